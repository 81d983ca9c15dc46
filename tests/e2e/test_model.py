"""Random histories against an exact model: plays, late plays, deliveries, forgets, merges of users, turns, months that pass, restarts and kills, with
questions in between. Live filters err about once in 10^7 here, so that any difference is a bug. Where nights pass, months are
sealed and swept: then an item that was never played may be hidden at error_rate, and is counted.

UNSEEN_MODEL_STEPS sets the length and UNSEEN_MODEL_SEEDS how many; the seeds are fixed, so a failure repeats.
"""
import os
import random

import pytest

from conftest import DAY, HOUR, START

STEPS = int(os.environ.get("UNSEEN_MODEL_STEPS", "1500"))
USERS = [f"u{i}" for i in range(6)]
ITEMS = [f"item:{i}" for i in range(300)]
WINDOW, RETENTION, DELIVERED_MAX = 3, 6, 20


def month_of(ms):
    days = ms // DAY
    # days_from_civil, inverted (Howard Hinnant)
    z = days + 719468
    era = z // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    m = mp + 3 if mp < 10 else mp - 9
    return (yoe + era * 400 + (m <= 2)) * 12 + m - 1


class Model:
    """What the service promises, with sets."""

    def __init__(self):
        self.plays = {u: {} for u in USERS}  # item -> months it counts in
        self.unseen_again = {u: {} for u in USERS}  # item -> months it was forgotten in
        self.forgotten = {}  # (user, item), or (user, None) for all of it -> when
        self.delivered = {u: [] for u in USERS}  # oldest first; the last DELIVERED_MAX count
        self.sent = {}  # (user, item) -> its place in the order of all deliveries
        self.last_month = {u: 0 for u in USERS}
        self.undelivered = set()  # users of whom a delivery was forgotten: an older one, still staged, moves up

    def play(self, user, item, month):
        self.last_month[user] = max(month, self.last_month[user])
        self.plays[user].setdefault(item, set()).add(month)

    def deliver(self, user, item, month):
        self.last_month[user] = max(month, self.last_month[user])
        if item in self.delivered[user]:
            self.delivered[user].remove(item)
        self.delivered[user].append(item)
        self.sent[user, item] = len(self.sent) + 1 if not self.sent else max(self.sent.values()) + 1

    def merge(self, user, into, now):
        """What is known of the user is known of the other one, too. Of one of whom all is past retention nothing is."""
        if self.last_month[user] < month_of(now) - RETENTION:
            return
        self.last_month[into] = max(self.last_month[into], self.last_month[user])
        for items, others in [(self.plays[into], self.plays[user]), (self.unseen_again[into], self.unseen_again[user])]:
            for item, months in others.items():
                items.setdefault(item, set()).update(months)
        for item in self.delivered[user]:
            if item not in self.delivered[into]:
                self.delivered[into].append(item)
            self.sent[into, item] = max(self.sent.get((into, item), 0), self.sent[user, item])
        self.delivered[into].sort(key=lambda item: self.sent[into, item])
        if user in self.undelivered:
            self.undelivered.add(into)

    def seen(self, user, item, now):
        """True, False, or None where the promise leaves it open."""
        oldest = month_of(now) - WINDOW
        if any(m >= oldest for m in self.plays[user].get(item, ())):
            return True
        if item in self.delivered[user]:
            if user in self.undelivered or self.last_month[user] < month_of(now) - RETENTION:
                return None
            return item in self.delivered[user][-DELIVERED_MAX:] or self.play_revives(user, item, oldest)
        return self.play_revives(user, item, oldest)

    def play_revives(self, user, item, oldest):
        """An item's next play ends its exception, so filters in which it was forgotten may hide it again: also when that play is a
        late one, of a month before the window."""
        again = item in self.plays[user] and any(m >= oldest for m in self.unseen_again[user].get(item, ()))
        return None if again else False

    def forgotten_at(self, user, item):
        """What was played by then, as its writer says, a replay does not bring back."""
        return max(self.forgotten.get((user, None), 0), self.forgotten.get((user, item), 0))

    def known(self, user):
        return bool(self.plays[user] or self.delivered[user])

    def forget(self, user):
        self.plays[user].clear()
        self.unseen_again[user].clear()
        self.undelivered.discard(user)
        self.delivered[user].clear()
        self.sent = {(u, i): at for (u, i), at in self.sent.items() if u != user}

    def forget_item(self, user, item):
        months = self.plays[user].pop(item, set())
        self.unseen_again[user].setdefault(item, set()).update(months)
        if item in self.delivered[user]:
            self.delivered[user].remove(item)
            del self.sent[user, item]
            self.undelivered.add(user)


class World:
    def __init__(self, server, seed, exact, has_folder=True):
        self.exact, self.has_folder = exact, has_folder
        self.server, self.random, self.model = server, random.Random(seed), Model()
        self.client = server.client()
        self.story = []
        self.asked = self.hidden = 0  # items that should be unseen, and those of them that were not

    def do(self, *words):
        self.story.append(" ".join(str(w) for w in words))
        return self.client.command(*words)

    def some(self, most):
        return self.random.sample(ITEMS, self.random.randint(1, most))

    def sure(self, user, item):
        return self.model.seen(user, item, self.server.clock) is not None

    def played(self):
        user, items = self.random.choice(USERS), self.some(8)
        assert self.do("PLAYED", user, *items) == len(items)
        for item in items:
            self.model.play(user, item, month_of(self.server.clock))

    def played_at(self):
        user, items = self.random.choice(USERS), self.some(4)
        at = self.server.clock - self.random.randint(0, 200) * DAY
        if month_of(at) < month_of(self.server.clock) - RETENTION:
            return
        assert self.do("PLAYEDAT", user, at, *items) == len(items)
        for item in items:
            if at > self.model.forgotten_at(user, item):
                self.model.play(user, item, month_of(at))

    def delivered(self):
        user, items = self.random.choice(USERS), self.some(6)
        assert self.do("DELIVERED", user, *items) == len(items)
        for item in items:
            self.model.deliver(user, item, month_of(self.server.clock))

    def filter_and_deliver(self):
        user, items = self.random.choice(USERS), self.some(40)
        items = [i for i in items if self.sure(user, i)]
        if not items:
            return
        unseen = [i for i in items if not self.model.seen(user, i, self.server.clock)]
        got = [g.decode() for g in self.do("FILTER", user, "LIMIT", 5, "DELIVER", "ITEMS", *items)]
        assert got == (unseen[:5] if self.exact else [i for i in unseen if i in got]), self.tell()
        for item in got:
            self.model.deliver(user, item, month_of(self.server.clock))

    def forget(self):
        user = self.random.choice(USERS)
        got = self.do("FORGET", user)
        if self.model.known(user):
            assert got == 1, self.tell()
        self.model.forget(user)
        self.model.forgotten[user, None] = self.server.clock

    def forget_items(self):
        user, items = self.random.choice(USERS), self.some(5)
        items = [i for i in items if self.sure(user, i)]
        if not items:
            return
        expected = sum(self.model.seen(user, i, self.server.clock) for i in items)
        got = self.do("FORGET", user, *items)
        assert got == expected or (got > expected and not self.exact), self.tell()
        for item in items:
            self.model.forget_item(user, item)
            self.model.forgotten[user, item] = self.server.clock

    def merge(self):
        user, into = self.random.sample(USERS, 2)
        forget = self.random.random() < 0.5
        got = self.do("MERGE", user, into, *["FORGET"] * forget)
        if self.model.known(user) and self.model.last_month[user] >= month_of(self.server.clock) - RETENTION:
            assert got == 1, self.tell()
        self.model.merge(user, into, self.server.clock)
        if forget:
            self.model.forget(user)
            self.model.forgotten[user, None] = self.server.clock

    def flush(self):
        self.do("RING", "FLUSH")

    def advance(self):
        ms = self.random.choice([HOUR, 7 * HOUR, DAY, 9 * DAY, 25 * DAY])
        self.do("DEBUG", "ADVANCE", ms)
        self.server.clock += ms

    def restart(self, how):
        self.story.append(how)
        self.client.close()
        self.server.kill() if how == "kill" else self.server.stop()
        self.server.start()
        self.client = self.server.client()

    def ask(self):
        user = self.random.choice(USERS)
        expected = [self.model.seen(user, i, self.server.clock) for i in ITEMS]
        got = self.client.command("SEEN", user, *ITEMS)
        self.asked += expected.count(False)
        for item, is_seen in [(i, e) for i, e, g in zip(ITEMS, expected, got) if e is not None and e != g]:
            if not is_seen and not self.exact:
                self.hidden += 1
                continue
            why = self.do("WHY", user, item)
            assert False, f"{user} {item}: {'seen' if is_seen else 'unseen'} by the model, {why} by WHY\n{self.tell(user, item)}"

    def tell(self, user=None, item=None):
        """The story, or the part of it that an item of a user had."""
        def concerns(line):
            words = line.split()
            return len(words) == 1 or words[0] in ("RING", "DEBUG") or (words[0] == "MERGE" and user in words) or (words[1] == user and item in words) or words[1:] == [user]
        return "\n".join([line for line in self.story if user is None or concerns(line)][-60:])

    def step(self):
        deeds = [(self.played, 30), (self.played_at, 10), (self.delivered, 8), (self.filter_and_deliver, 6), (self.forget, 2),
                 (self.forget_items, 8), (self.merge, 3), (self.advance, 3), (self.ask, 25)]
        if self.has_folder:
            deeds += [(self.flush, 6), (lambda: self.restart("stop"), 1), (lambda: self.restart("kill"), 1)]
        self.random.choices([d for d, _ in deeds], [w for _, w in deeds])[0]()


@pytest.mark.parametrize("nights", ["no nights", "nights"])
@pytest.mark.parametrize("seed", range(int(os.environ.get("UNSEEN_MODEL_SEEDS", "3"))))
def test_random_history(make_server, seed, nights):
    exact = nights == "no nights"
    server = make_server(clock=START, retention=RETENTION, window=WINDOW, delivered_max=DELIVERED_MAX,
                         slots=random.Random(seed).choice([2, 3, 6]),
                         sweep_window="03:33-03:34" if exact else "00:00-24:00")
    world = World(server, seed, exact)
    for _ in range(STEPS):
        world.step()
    for _ in USERS:
        world.ask()
    world.client.close()
    # error_rate is 0.001; few draws make for a wide spread, and a hidden item is asked about again and again
    assert world.hidden <= 0.005 * world.asked, (world.hidden, world.asked)
    assert server.sqlite("history.db", "PRAGMA integrity_check") == "ok"


@pytest.mark.parametrize("seed", range(3))
def test_random_history_of_a_store_that_answers_later(make_server, seed):
    world = World(make_server(clock=START, retention=RETENTION, window=WINDOW, delivered_max=DELIVERED_MAX,
                              store="memory:later"), seed, exact=True, has_folder=False)
    for _ in range(STEPS):
        world.step()
    for _ in USERS:
        world.ask()
    world.client.close()
