"""A primary and its replica against a ledger, with random faults: partitions of every shape, kill -9 of either, frozen
nodes, flushes here and not there, users brought in by LOAD. After healing both agree on every user. In the second half
the primary and its folder are destroyed at a random moment: nothing that it had acknowledged is lost, and no forgotten
user is back.

UNSEEN_PAIR_SEEDS says how many seeds (30); UNSEEN_PAIR_SEED the one alone. The seeds are fixed; what a fault meets
is not, so the story is printed.
"""
import os
import random
import shutil
import signal
import threading
import time

import pytest

from conftest import PATIENCE, Server, run
from ledger import Ledger
from partition import OPEN, SHAPES, Wire
from resp import Closed, RespError

SEEDS = int(os.environ.pop("UNSEEN_PAIR_SEEDS", "30"))  # not the servers'
ONE = os.environ.pop("UNSEEN_PAIR_SEED", None)
STEPS = 40
USERS = [f"u{i}" for i in range(8)]
ITEMS = [f"item:{i}" for i in range(120)]


class World:
    def __init__(self, folder, seed, **options):
        self.random, self.folder, self.ledger, self.story = random.Random(seed), folder, Ledger(USERS), []
        self.options, self.links = options, {}
        self.primary = self.node("a", **options)
        self.primary.start()
        self.wire = Wire(self.primary.port)
        self.replica = self.node("b", replica_of=self.wire.address)
        run("clone", self.wire.address, "--data", self.replica.data)
        self.replica.start()

    def node(self, name, **options):
        own = self.folder / name
        own.mkdir()
        return Server(own, clock=None, wait=False, **options)

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
        self.replica.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.replica.process.send_signal(signal.SIGCONT)

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
        deadline = time.monotonic() + PATIENCE
        while True:
            last = fields(self.link(self.primary).command("REPLICA", "STATUS"))["last"]
            mine = fields(fields(self.link(self.replica).command("REPLICA", "STATUS"))["follower"])
            if mine["applied"] >= last and mine["state"] == b"in step":
                return
            assert time.monotonic() < deadline, (last, mine, self.story, self.replica.log()[-3000:])
            time.sleep(0.01)

    def answers(self, server):
        out = {}
        for user in USERS:
            unseen = set(self.link(server).command("UNSEEN", user, *ITEMS))
            out[user] = {item for item in ITEMS if item.encode() not in unseen}
        return out

    def check(self, server):
        """Against the ledger."""
        for user, seen in self.answers(server).items():
            for item in ITEMS:
                word = self.ledger.items[user].get(item, False)
                assert word is None or (item in seen) == word, (user, item, word, self.story)
            assert not (self.ledger.forgotten[user] and seen), (user, self.story)

    def stop(self):
        for server in list(self.links):
            self.drop(server)
        self.wire.stop()
        codes = []
        for server in (self.replica, self.primary):
            if server.alive():
                server.process.send_signal(signal.SIGCONT)
                codes.append(server.stop())
            assert "Sanitizer" not in server.log() and "runtime error:" not in server.log(), server.log()[-5000:]
        assert all(code == 0 for code in codes), codes


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [s for s in seeds() if s % 2 == 1])
def test_the_primary_burns(seed, world):
    """With replica-strict all that is acknowledged is on the replica, whatever the wire does."""
    w = world(seed, replica_ack="replica-strict", replica_ack_timeout="30s")
    w.level()
    moment = threading.Timer(w.random.random() * 0.4, w.primary.process.kill)
    moment.start()
    while w.primary.process.poll() is None:
        w.random.choices([w.played, w.delivered, w.forget_items, w.forget], [40, 10, 8, 4])[0]()
    moment.join()
    w.drop(w.primary)
    shutil.rmtree(w.primary.data)
    run("promote", "--to", f"127.0.0.1:{w.replica.port}")
    w.check(w.replica)
    w.primary = w.replica
    for _ in range(5):
        w.played()
    w.check(w.replica)
