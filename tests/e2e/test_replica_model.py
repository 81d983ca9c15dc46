"""A primary and its replica against a ledger, with random faults: partitions of every shape, kill -9 of either, frozen
nodes, flushes here and not there. After healing both agree on every user. In the second half the primary and its
folder are destroyed at a random moment: nothing that it had acknowledged is lost, and no forgotten user is back. In
some courses two are primaries for a while, and the old one rejoins: what either has acknowledged counts by its time.

UNSEEN_PAIR_SEEDS says how many seeds (30); UNSEEN_PAIR_SEED the one alone. The seeds are fixed; what a fault meets
is not, so the story is printed.
"""
import os
import random
import shutil
import subprocess
import threading
import time

import pytest

from conftest import PATIENCE, START, UNSEEN, Server, pause, run, until
from ledger import Ledger
from partition import OPEN, SHAPES, Wire
from resp import Closed, RespError
from standstill import freeze, thaw

SEEDS = int(os.environ.pop("UNSEEN_PAIR_SEEDS", "30"))  # not the servers'
ONE = os.environ.pop("UNSEEN_PAIR_SEED", None)
STEPS = 40
USERS = [f"u{i}" for i in range(8)]
ITEMS = [f"item:{i}" for i in range(120)]


class Nodes:
    """Nodes, what is said to them, and the story of that."""

    def __init__(self, folder, seed):
        self.random, self.folder, self.story = random.Random(seed), folder, []
        self.links, self.nodes, self.wires = {}, [], []

    def node(self, name, clock, **options):
        own = self.folder / name
        own.mkdir()
        self.nodes.append(Server(own, clock=clock, wait=False, **options))
        return self.nodes[-1]

    def link(self, server):
        if server not in self.links:
            self.links[server] = server.client()
        return self.links[server]

    def drop(self, server):
        link = self.links.pop(server, None)
        if link is not None:
            link.close()

    def ask(self, server, *words):
        """The reply; None when it is not known whether it was done."""
        try:
            return self.link(server).command(*words)
        except RespError as refused:
            if str(refused).startswith("NOREPLICAS"):
                return None  # durable there, or not
            raise
        except (OSError, Closed):
            self.drop(server)
            return None

    def answers(self, server):
        out = {}
        for user in USERS:
            unseen = set(self.link(server).command("UNSEEN", user, *ITEMS))
            out[user] = {item for item in ITEMS if item.encode() not in unseen}
        return out

    def cut_short(self, words, most, *servers):
        """Runs a subcommand, during which it or one of the servers is killed. Returns what it said."""
        process = subprocess.Popen([str(UNSEEN), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        moment, whom = self.random.random() * most, self.random.choice([None, *servers])
        timer = threading.Timer(moment, (whom or process).kill)
        self.story.append(f"{words[0]}, and {whom.folder.name if whom else 'it'} killed after {moment:.3f} s")
        timer.start()
        said = process.communicate()[0].decode()
        if whom is None:
            timer.cancel()
        timer.join()
        if whom:
            self.drop(whom)
        return said

    def stop(self):
        for server in list(self.links):
            self.drop(server)
        for wire in self.wires:
            wire.stop()
        codes = []
        for server in self.nodes:
            if server.alive():
                thaw(server.process)
                codes.append(server.stop())
            assert "Sanitizer" not in server.log() and "runtime error:" not in server.log(), server.log()[-5000:]
        assert all(code == 0 for code in codes), codes


class World(Nodes):
    def __init__(self, folder, seed, clock=None, **options):
        super().__init__(folder, seed)
        self.ledger, self.clock = Ledger(USERS), clock
        self.primary = self.node("a", clock, **options)
        self.primary.start()
        self.wire = Wire(self.primary.port)
        self.wires.append(self.wire)
        self.replica = self.node("b", clock, replica_of=self.wire.address)
        run("clone", self.wire.address, "--data", self.replica.data, *self.clock_option())
        self.replica.start()

    def clock_option(self):
        """Of a command that opens a folder."""
        return [] if self.clock is None else ["--test-clock", self.primary.clock]

    def advance(self, ms):
        for server in (self.primary, self.replica):
            server.advance(ms)

    # --- what is said to the primary ---

    def some(self, most):
        return self.random.sample(ITEMS, self.random.randint(1, most))

    def played(self):
        user, items = self.random.choice(USERS), self.some(6)
        self.ledger.said(user, items, True, self.tell("PLAYED", user, *items))

    def delivered(self):
        user, items = self.random.choice(USERS), self.some(3)
        self.ledger.said(user, items, True, self.tell("DELIVERED", user, *items))

    def forget_items(self):
        user, items = self.random.choice(USERS), self.some(4)
        self.ledger.said(user, items, False, self.tell("FORGET", user, *items))

    def forget(self):
        user = self.random.choice(USERS)
        self.ledger.forgot(user, self.tell("FORGET", user))

    def tell(self, *words):
        reply = self.ask(self.primary, *words)
        self.story.append(f"{' '.join(words)}{' ?' if reply is None else ''}")
        return reply is not None

    # --- and what happens meanwhile ---

    def flush(self):
        server = self.random.choice([self.primary, self.replica])
        self.story.append(f"flush {server.folder.name}")
        self.ask(server, "RING", "FLUSH")

    def partition(self):
        shape = self.random.choice(SHAPES)
        self.story.append(shape)
        self.wire.set(shape)

    def heal(self):
        self.story.append("heal")
        self.wire.set(OPEN)

    def kill(self):
        server = self.random.choice([self.primary, self.replica])
        self.story.append(f"kill {server.folder.name}")
        self.drop(server)
        server.kill()
        server.start()

    def freeze(self):
        """The replica alone: a frozen primary answers nobody, and says nothing."""
        self.story.append("freeze")
        freeze(self.replica.process)

    def thaw(self):
        thaw(self.replica.process)

    def step(self):
        what = self.random.choices(
            [self.played, self.delivered, self.forget_items, self.forget, self.flush, self.partition, self.heal, self.kill,
             self.freeze, self.thaw], [40, 10, 8, 4, 5, 4, 8, 3, 2, 4])[0]
        if what == self.flush:
            self.thaw()
        what()

    # --- the end ---

    def level(self):
        """All that the primary has recorded is durable on the replica."""
        self.heal()
        self.thaw()

        def level():
            last = fields(self.link(self.primary).command("REPLICA", "STATUS"))["last"]
            mine = fields(fields(self.link(self.replica).command("REPLICA", "STATUS"))["follower"])
            return mine["applied"] >= last and mine["state"] == b"in step"

        until(level, lambda: (self.story, self.replica.log()[-3000:]))

    def check(self, server):
        """Against the ledger."""
        for user, seen in self.answers(server).items():
            for item in ITEMS:
                word = self.ledger.items[user].get(item, False)
                assert word is None or (item in seen) == word, (user, item, word, self.story)
            assert not (self.ledger.forgotten[user] and seen), (user, self.story)


def fields(reply):
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


@pytest.fixture
def world(folder, request):
    worlds = []

    def make(seed, **options):
        worlds.append(World(folder, seed, **options))
        return worlds[-1]

    yield make
    for made in worlds:
        made.stop()


def seeds():
    return [int(ONE)] if ONE else list(range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [s for s in seeds() if s % 2 == 0])
def test_they_agree(seed, world):
    w = world(seed)
    for _ in range(STEPS):
        w.step()
    w.level()
    w.check(w.primary)
    w.check(w.replica)
    assert w.answers(w.primary) == w.answers(w.replica), w.story
    # Filters, deliveries in their order, exceptions, marks of damage: flushed on both, and compared.
    run("replica", "--verify", "--from", w.wire.address, "--to", f"127.0.0.1:{w.replica.port}")


def in_step(world):
    """Whether what it answers is on the replica, too, whatever befalls the primary."""
    status = fields(world.link(world.primary).command("REPLICA", "STATUS"))
    return status["ack"] == b"replica-strict" or status["in_step"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [s for s in seeds() if s % 2 == 1])
def test_the_primary_burns(seed, world):
    """What is acknowledged while the two are in step is on the replica. The clock of ack = replica stands still, so that
    it never goes on alone; with replica-strict whatever is acknowledged is there."""
    if seed % 4 == 1:
        w = world(seed, replica_ack="replica-strict", replica_ack_timeout="30s")
    else:
        w = world(seed, clock=START, replica_ack="replica", replica_ack_timeout="1s")
    w.level()
    deadline = time.monotonic() + PATIENCE
    while not in_step(w):
        assert time.monotonic() < deadline, w.primary.log()[-3000:]
        w.advance(11000)
        w.level()
    moment = threading.Timer(w.random.random() * 0.4, w.primary.process.kill)
    moment.start()
    while w.primary.process.poll() is None:
        w.random.choices([w.played, w.delivered, w.forget_items, w.forget], [40, 10, 8, 4])[0]()
    moment.join()
    assert "out of step" not in w.primary.log()
    w.drop(w.primary)
    shutil.rmtree(w.primary.data)
    run("promote", "--to", f"127.0.0.1:{w.replica.port}")
    w.check(w.replica)
    w.primary = w.replica
    for _ in range(5):
        w.played()
    w.check(w.replica)


# --- two primaries ---


class Parted:
    """A world that is parted, whose replica was promoted: clients of both go on. The clocks agree, and no two events
    have the same time."""

    def __init__(self, world, lost):
        self.w, self.old, self.new, self.lost = world, world.primary, world.replica, lost
        self.there = {user: set() for user in USERS}  # what the new one has forgotten of each since
        self.kept = {user: set() for user in USERS}  # what it has acknowledged of each since: no forget of the old one ends it

    def acknowledge(self, server, *words):
        self.w.advance(1000)
        self.w.primary = server
        reply = self.w.tell(*words)
        self.w.primary = self.old
        self.w.story[-1] += f" at {server.folder.name}"
        assert reply, self.w.story

    def stays(self, user, items):
        if items:
            self.w.ledger.said(user, items, True, True)

    def speak(self):
        w, server = self.w, self.w.random.choice([self.old, self.new])
        user, items = w.random.choice(USERS), w.some(5)
        what = w.random.choices(["PLAYED", "DELIVERED", "FORGET", "forget all", "flush"], [10, 3, 4, 2, 1])[0]
        if what == "flush":
            w.link(server).command("RING", "FLUSH")
        elif what == "forget all":
            self.acknowledge(server, "FORGET", user)
            w.ledger.forgot(user, True)
            if server is self.new:
                self.there[user] = set(ITEMS)
                self.kept[user] = set()
            self.stays(user, self.kept[user])
        else:
            self.acknowledge(server, what, user, *items)
            w.ledger.said(user, items, what != "FORGET", True)
            if server is self.new and what == "FORGET":
                self.there[user] |= set(items)
                self.kept[user] -= set(items)
            elif server is self.new:
                self.there[user] -= set(items)
                self.kept[user] |= set(items)
            self.stays(user, self.kept[user] & set(items))
        if self.lost and server is self.old and what in ("PLAYED", "DELIVERED"):
            # Sent as a filter, which has no times: a forget there may hide it.
            doubtful = set(items) & self.there[user]
            w.ledger.items[user].update(dict.fromkeys(doubtful))

    def meet(self):
        w = self.w
        if self.lost:  # its feed tells no longer what it alone has
            with self.old.client() as link:
                link.pipeline([("PLAYED", f"filler{i}", *(f"{i}:{k}" for k in range(100))) for i in range(1000)])
            assert fields(w.ask(self.old, "FEED")[0])["state"] == b"lost", w.ask(self.old, "FEED")
        w.heal()
        w.drop(self.old)
        assert self.old.stop() == 0
        words = [f"127.0.0.1:{self.new.port}", "--data", self.old.data, "--test-clock", self.old.clock]
        for _ in range(w.random.choice([0, 0, 1, 2])):
            w.cut_short(["rejoin", *words], 0.3, self.new)
            if not self.new.alive():
                self.new.start()
        done = run("rejoin", *words, check=False)
        w.story.append(done.stdout.decode() + done.stderr.decode())
        already = "is a replica's already" in w.story[-1]  # an earlier one was cut short at its very end
        assert done.returncode == (3 if self.lost else 1 if already else 0), w.story
        assert "not carried out" not in w.story[-1], w.story
        if self.lost:
            run("clone", *words)
        self.old.options["replica_of"] = f"127.0.0.1:{self.new.port}"
        self.old.start()
        w.primary, w.replica = self.new, self.old


@pytest.mark.slow
@pytest.mark.parametrize("seed", [s for s in seeds() if s % 5 == 0])
def test_the_old_primary_rejoins(seed, world):
    lost = seed % 2 == 1
    w = world(seed, clock=START, feed_max="1MiB" if lost else "64MiB")
    for _ in range(15):
        w.random.choices([w.played, w.delivered, w.forget_items, w.forget, w.flush], [10, 4, 2, 1, 1])[0]()
        w.advance(1000)
    w.level()
    w.partition()
    run("promote", "--to", f"127.0.0.1:{w.replica.port}", "--force")
    parted = Parted(w, lost)
    for _ in range(STEPS):
        parted.speak()
    parted.meet()
    for _ in range(3):
        w.played()
    w.level()
    for server in (w.primary, w.replica):
        w.check(server)
    run("replica", "--verify", "--from", f"127.0.0.1:{w.primary.port}", "--to", f"127.0.0.1:{w.replica.port}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [s for s in seeds() if s % 10 == 3])
def test_one_primary_is_left(seed, world):
    """The primary dies, the replica is promoted, over its server or as a folder; that one is killed, stopped and started
    again and again, at any moment, and its operator takes `of` out as its log says. Whenever the old one is back, it
    hears of that, though no configuration names it any more."""
    w = world(seed)
    for _ in range(5):
        w.played()
    w.level()
    old, new, draw = w.primary, w.replica, w.random
    for server in (old, new):
        w.drop(server)
    old.process.kill()
    old.process.wait()
    offline = draw.random() < 0.5
    if offline:
        assert new.stop() == 0
        run("promote", "--data", new.data)
        new.start()
    else:
        run("promote", "--to", f"127.0.0.1:{new.port}")
    w.story.append(f"promoted, offline={offline}")
    removed = draw.randrange(3)
    for i in range(3):
        if i == removed:
            del new.options["replica_of"]
        kills = draw.random() < 0.5
        w.story.append(f"{'killed' if kills else 'stopped'}, of={new.options.get('replica_of')}")
        if kills:
            pause(draw.random() * 0.2, "any moment will do")
            new.process.kill()
            new.process.wait()
        else:
            assert new.stop() == 0
        new.start()
    old.start()
    until(lambda: fields(w.ask(old, "REPLICA", "STATUS"))["role"] == b"fenced", lambda: (w.story, new.log()[-3000:]))
    if draw.random() < 0.5:  # and stays so, also for who promotes its folder without a thought
        w.drop(old)
        assert old.stop() == 0
        done = run("promote", "--data", old.data, check=False)
        assert done.returncode == 1 and b"another node has taken over" in done.stderr, (w.story, done.stderr)
        old.start()
    with pytest.raises(RespError, match="READONLY"):
        w.ask(old, "PLAYED", USERS[0], "item:0")
    w.primary = new
    w.played()
    w.check(new)
