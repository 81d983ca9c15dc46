"""A primary's disk and its replica as the second tier, under faults of both, against a ledger: no acknowledged play is ever
unseen, no forgotten one is seen, and no question fails while either tier is well.

UNSEEN_COURSES_TIERS: how many courses (4); UNSEEN_COURSES_FROM: the number of the first.
"""
import os
import random

import pytest

from conftest import START, in_time
from ledger import Ledger
from partition import OPEN, SILENT
from resp import RespError
from standstill import freeze, thaw
from test_cold import disk, stats  # noqa: F401
from test_replica import level, pair, status, until  # noqa: F401
from test_replica_hedge import wait_for_tier

COURSES = int(os.environ.get("UNSEEN_COURSES_TIERS", "4"))
FIRST = int(os.environ.get("UNSEEN_COURSES_FROM", "1"))
STEPS, ITEMS = 60, 40
USERS = [f"u{i}" for i in range(6)]


class Course:
    def __init__(self, number, primary, replica, wire, disk):  # noqa: F811
        self.random = random.Random(number)
        self.primary, self.replica, self.wire, self.disk = primary, replica, wire, disk
        self.ledger = Ledger(USERS)
        self.frozen = self.stopped = False  # the disk; the replica
        self.level = False  # it had all there was when nothing was wrong, and nothing was done to it since
        self.answered = self.refused = 0
        self.steps = []

    def some(self):
        return self.random.choice(USERS), [f"i{self.random.randrange(ITEMS)}" for _ in range(self.random.randint(1, 4))]

    def write(self, *words):
        with self.primary.client() as c:
            c.command(*words)
        return True

    def play(self):
        user, items = self.some()
        self.ledger.said(user, items, True, self.write("PLAYED", user, *items))

    def deliver(self):
        user, items = self.some()
        self.ledger.said(user, items, True, self.write("DELIVERED", user, *items))

    def unsee(self):  # reads and erases history
        user, items = self.some()
        if not self.frozen:
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
            self.primary.advance(3600 * 1000)
            if not self.stopped:
                self.replica.advance(3600 * 1000)

    def freeze(self, cold=None):
        """After a restart nothing of history is in memory."""
        if not self.frozen and (self.random.random() < 0.6 if cold is None else cold):
            self.primary.restart()
            self.level = False
            self.be_level()
        self.frozen = not self.frozen
        if self.frozen:
            self.disk.freeze(str(self.primary.data / "history.db"))
        else:
            self.disk.thaw()

    def stop(self):
        self.stopped = not self.stopped
        self.level = False
        (freeze if self.stopped else thaw)(self.replica.process)

    def cut(self):
        """It falls behind, and for some seconds it is asked all the same."""
        self.level = False
        self.wire.set(OPEN if self.wire.shape == SILENT else SILENT)

    def kill_replica(self):
        if not self.stopped:
            self.level = False
            self.replica.kill()
            self.replica.start()

    def kill_primary(self):
        if not self.frozen:
            self.level = False
            self.primary.kill()
            self.primary.start()

    def be_level(self):
        if not self.frozen and not self.stopped and self.wire.shape == OPEN:
            level(self.primary, self.replica)
            wait_for_tier(self.primary)
            until(lambda: any(row for row in status(self.primary)["replicas"]), lambda: self.primary.log()[-3000:])
            self.level = True

    def won(self):
        return int(stats(self.primary)["hedge_won"])

    def ask(self, user, words):
        with self.primary.client() as c:
            return dict(zip(words, c.command("SEEN", user, *words))) if words else {}

    def check(self):
        hopeless = self.frozen and not self.level  # each may take as long as question_timeout
        for user in self.random.sample(USERS, 1 if hopeless else len(USERS)):
            words = self.ledger.items[user]
            try:
                seen = in_time(lambda: self.ask(user, words), lambda: not self.level)
            except RespError as e:
                self.refused += 1
                assert self.frozen and not self.level, (user, str(e), self.steps, self.primary.log()[-3000:])
                continue
            self.answered += self.frozen and bool(words)
            wrong = {item: word for item, word in words.items() if word is not None and seen[item] != word}
            assert not wrong, (user, wrong, self.steps, self.primary.log()[-3000:])

    def run(self):
        kinds = [(self.play, 10), (self.deliver, 3), (self.unsee, 2), (self.forget, 1), (self.flush, 3), (self.turn, 1),
                 (self.freeze, 4), (self.stop, 1), (self.cut, 2), (self.kill_replica, 0.5), (self.kill_primary, 0.5), (self.be_level, 4)]
        for _ in range(STEPS):
            step, = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
            self.steps.append(step.__name__)
            step()
            self.check()
        if self.stopped:
            self.stop()
        if self.wire.shape == SILENT:
            self.cut()
        if self.frozen:
            self.freeze()
        self.flush()
        self.freeze(cold=True)
        before, won = self.answered, self.won()
        self.check()
        asked = sum(1 for words in self.ledger.items.values() if words)
        assert self.answered == before + asked and self.won() == won + asked  # all by the replica
        self.freeze()
        self.check()


@pytest.mark.parametrize("number", range(FIRST, FIRST + COURSES))
def test_course(number, pair, disk):  # noqa: F811
    primary, replica, wire = pair(primary={"replica_hedge": "yes", "question_timeout": "1s", "hedge_after": "2ms"},
                               clock=START, workers="1", error_rate="0.0001")
    course = Course(number, primary, replica, wire, disk)
    try:
        course.run()
    finally:
        disk.thaw()
        thaw(replica.process)
    print(f"on a frozen disk: {course.answered} answered, {course.refused} refused")
