"""A server's disk and the Redis in front of it, under faults of both, against a ledger: no acknowledged play is ever unseen,
no forgotten one is seen, and no question fails while either tier is well. Excepted are users of whom an item was un-seen
and who were not sent since: they are counted.

UNSEEN_COURSES_FRONT: how many courses (4); UNSEEN_COURSES_FROM: the number of the first.
"""
import os
import random

import pytest

from conftest import START, in_time
from front_redis import FrontRedis, reconcile, said, wait_in_step, won
from ledger import Ledger
from old_redis import REDIS, wait
from partition import OPEN, SHAPES, Wire
from resp import RespError
from test_cold import disk  # noqa: F401

COURSES = int(os.environ.get("UNSEEN_COURSES_FRONT", "4"))
FIRST = int(os.environ.get("UNSEEN_COURSES_FROM", "1"))
STEPS, ITEMS = 60, 40
USERS = [f"u{i}" for i in range(6)]

pytestmark = pytest.mark.skipif(REDIS is None, reason="there is no redis-server")


class Course:
    def __init__(self, number, server, redis, wire, disk):  # noqa: F811
        self.random = random.Random(number)
        self.server, self.redis, self.wire, self.disk = server, redis, wire, disk
        self.ledger = Ledger(USERS)
        self.frozen = self.stopped = False  # the disk; Redis
        self.level = False  # it had all there was when nothing was wrong, and nothing was done to it since
        self.unsent = set()  # users of whom an item was un-seen since
        self.saved = False  # there is an older state to go back to
        self.answered = self.refused = self.excepted = 0
        self.steps = []

    def some(self):
        return self.random.choice(USERS), [f"i{self.random.randrange(ITEMS)}" for _ in range(self.random.randint(1, 4))]

    def write(self, *words):
        """What is refused was not done: a disk that has just been thawed may still be the one that answers nobody."""
        refused = []

        def is_done():
            try:
                with self.server.client() as c:
                    c.command(*words)
                return True
            except RespError as e:
                refused.append(str(e))
                if self.frozen or not str(e).startswith("BUSY the disk of"):
                    raise
                return False

        wait(is_done, lambda: refused)
        return True

    # --- what clients do ---

    def play(self):
        user, items = self.some()
        self.ledger.said(user, items, True, self.write("PLAYED", user, *items))

    def deliver(self):
        user, items = self.some()
        self.ledger.said(user, items, True, self.write("DELIVERED", user, *items))

    def unsee(self):  # reads and erases history, as forget() does
        user, items = self.some()
        if not self.frozen:
            self.unsent.add(user)
            self.ledger.said(user, items, False, self.write("FORGET", user, *items))

    def forget(self):
        user = self.random.choice(USERS)
        if not self.frozen:
            self.ledger.forgot(user, self.write("FORGET", user))

    def flush(self):
        if not self.frozen:
            self.write("RING", "FLUSH")

    def turn(self):
        if not self.frozen:
            self.server.advance(self.random.choice([1, 60]) * 60 * 1000)

    # --- what goes wrong ---

    def freeze(self, cold=None):
        """After a restart nothing of history is in memory. Or it is broken: what is read there fails."""
        if not self.frozen and (self.random.random() < 0.6 if cold is None else cold):
            self.server.restart()
            self.level = False
            self.be_level()
        self.frozen = not self.frozen
        if self.frozen:
            breaks = self.random.random() < 0.3
            self.steps[-1] += " broken" if breaks else ""
            self.disk.freeze("!history.db" if breaks else "history.db")
        else:
            self.disk.thaw()

    def stop(self):
        self.stopped = not self.stopped
        self.level = False
        if self.stopped:
            self.redis.pause()
        else:
            self.redis.go_on()

    def cut(self):
        self.level = False
        self.wire.set(OPEN if self.wire.shape != OPEN else self.random.choice(SHAPES))

    def save(self):
        if not self.stopped and "yes" not in self.redis.options:
            self.redis.save()
            self.saved = True

    def harm(self):
        if self.stopped:
            return
        kind = self.random.choice(["flush", "kill", "older", "older", "less", "full", "rebuild"])
        self.steps[-1] += " " + kind
        if kind == "older" and not self.saved:
            return
        self.level = False
        if kind == "flush":
            self.redis.ask("FLUSHALL")
        elif kind == "kill":
            self.redis.kill()
            self.redis.start()
        elif kind == "older":
            self.redis.go_back()
        elif kind == "less":
            self.redis.ask("DEL", "unseen:meta")
        elif kind == "full":
            self.redis.ask("CONFIG", "SET", "maxmemory", "1")
            self.play()
            self.play()
            self.redis.ask("CONFIG", "SET", "maxmemory", "0")
        else:
            self.write("FRONT", "REBUILD")

    def kill(self):
        if not self.frozen:
            self.level = False
            self.server.kill()
            self.server.start()

    # --- what must hold ---

    def be_level(self):
        if not self.frozen and not self.stopped and self.wire.shape == OPEN:
            wait_in_step(self.server)
            self.level = True
            self.unsent = set()

    def fails(self, user, error):
        if user in self.unsent and self.frozen:
            self.excepted += 1
            return
        self.refused += 1
        assert self.frozen and not self.level, (user, str(error), self.steps, said(self.server)())

    def ask(self, user, words):
        with self.server.client() as c:
            return dict(zip(words, c.command("SEEN", user, *words))) if words else {}

    def check(self):
        hopeless = self.frozen and not self.level  # each may take as long as question_timeout
        for user in self.random.sample(USERS, 1 if hopeless else len(USERS)):
            words = self.ledger.items[user]
            try:
                seen = in_time(lambda: self.ask(user, words), lambda: not self.level or (user in self.unsent and self.frozen))
            except RespError as e:
                self.fails(user, e)
                continue
            self.answered += self.frozen and bool(words)
            wrong = {item: word for item, word in words.items() if word is not None and seen[item] != word}
            assert not wrong, (user, wrong, self.steps, said(self.server)())

    def end(self):
        """All is well again: it becomes whole by itself, differs in nothing, and answers everything without the disk."""
        if self.stopped:
            self.stop()
        if self.wire.shape != OPEN:
            self.cut()
        if self.frozen:
            self.freeze()
        self.flush()
        assert reconcile(self.server) == 0, (self.steps, said(self.server)())
        self.freeze(cold=True)
        before, first = self.answered, won(self.server)
        self.check()
        asked = sum(1 for words in self.ledger.items.values() if words)
        assert self.answered == before + asked and won(self.server) >= first + asked, (self.steps, said(self.server)())
        self.freeze()
        self.check()

    def run(self):
        kinds = [(self.play, 10), (self.deliver, 3), (self.unsee, 2), (self.forget, 1), (self.flush, 3), (self.turn, 1),
                 (self.freeze, 4), (self.stop, 1), (self.cut, 1.5), (self.save, 1), (self.harm, 1.5), (self.kill, 0.5),
                 (self.be_level, 4)]
        for _ in range(STEPS):
            step, = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
            self.steps.append(step.__name__)
            step()
            self.check()
        self.steps.append("end")
        self.end()


@pytest.mark.parametrize("number", range(FIRST, FIRST + COURSES))
def test_course(number, make_server, folder, disk):  # noqa: F811
    redis = FrontRedis(folder / "redis", *(("--appendonly", "yes") if number % 4 == 0 else ()))
    wire = Wire(redis.port)
    try:
        server = make_server(front_redis=wire.address, front_users_rate="0", question_timeout="1s", hedge_after="2ms",
                             clock=START, workers="1", error_rate="0.0001")
        course = Course(number, server, redis, wire, disk)
        course.run()
        print(f"on a frozen disk: {course.answered} answered, {course.refused} refused, {course.excepted} excepted")
    finally:
        disk.thaw()
        redis.go_on()
        wire.stop()
        redis.kill()
