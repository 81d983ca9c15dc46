"""A primary and two replicas on machines of their own, as far as they can tell: partitions of every shape, kill -9,
promotions. A ledger knows what was acknowledged with replica-strict: none of that is lost, and no forgotten user is
back."""
import os
import random
import shutil

import pytest

from conftest import end_to_end
from ledger import Ledger
from three_nodes import Network, Node, allowed

RespError, Closed, PATIENCE = end_to_end.RespError, end_to_end.Closed, end_to_end.PATIENCE
USERS = [f"u{i}" for i in range(6)]
ITEMS = [f"item:{i}" for i in range(60)]
NAMES = "abc"
pytestmark = pytest.mark.skipif(not allowed(), reason="needs root, ip (iproute2) and network namespaces")


def fields(reply):
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


class Group:
    """The first node is the primary; self.story says what was done, for a failure's sake."""

    def __init__(self, folder, seed):
        self.random, self.ledger, self.story = random.Random(seed), Ledger(USERS), []
        self.network = Network(f"unseen{os.getpid()}")
        self.nodes = []
        for number, name in enumerate(NAMES, 1):
            self.network.join(name, number)
            self.nodes.append(Node(folder / name, self.network, name, number, replica_ack="replica-strict",
                                   replica_ack_timeout="500ms"))
        self.primary = self.nodes[0].start()
        for node in self.others():
            self.clone(node)
        self.level()

    def others(self):
        return [node for node in self.nodes if node is not self.primary]

    def clone(self, node):
        self.story.append(f"clone {node.name}")
        node.run("clone", self.primary.reach, "--data", node.data)
        node.options["replica_of"] = self.primary.reach
        node.start()

    def say(self, node, *words):
        with node.client() as link:
            return link.command(*words)

    def status(self, node):
        answer = fields(self.say(node, "REPLICA", "STATUS"))
        answer["follower"] = fields(answer["follower"])
        return answer

    def told(self):
        return [self.story, *[(node.name, node.log()[-2000:]) for node in self.nodes]]

    def until(self, wanted):
        return end_to_end.until(wanted, self.told)

    # --- what clients do ---

    def tell(self, link, *words):
        """True: acknowledged; False: nobody knows."""
        try:
            link.command(*words)
            return True
        except RespError as refused:
            assert str(refused).startswith("NOREPLICAS"), (str(refused), self.told())
            return False

    def load(self, n):
        """Returns how many of n writes were acknowledged."""
        sure = 0
        with self.primary.client() as link:
            for _ in range(n):
                user, items = self.random.choice(USERS), self.random.sample(ITEMS, 3)
                what = self.random.choices("pdfF", [6, 2, 2, 1])[0]
                if what == "F":
                    done = self.tell(link, "FORGET", user)
                    self.ledger.forgot(user, done)
                else:
                    verb = {"p": "PLAYED", "d": "DELIVERED", "f": "FORGET"}[what]
                    done = self.tell(link, verb, user, *items)
                    self.ledger.said(user, items, what != "f", done)
                sure += done
        self.story.append(f"{sure} of {n} acknowledged")
        return sure

    # --- and what must hold ---

    def is_level(self, node):
        last, mine = self.status(self.primary)["last"], self.status(node)["follower"]
        return mine["applied"] >= last and mine["state"] == b"in step"

    def level(self):
        for node in self.others():
            self.until(lambda: self.is_level(node))

    def check(self, node):
        with node.client() as link:
            problems = self.ledger.problems(lambda user, items: link.command("SEEN", user, *items))
        assert problems == [], (node.name, problems, self.told())

    def agree(self):
        self.network.heal()
        self.level()
        for node in self.nodes:
            self.check(node)
        for node in self.others():
            node.run("replica", "--verify", "--from", self.primary.reach, "--to", node.reach)

    # --- faults ---

    def part(self, *pairs):
        self.story.append("drop " + " ".join(one.name + other.name for one, other in pairs))
        for one, other in pairs:
            self.network.drop(one, other)

    def kill(self, node):
        self.story.append(f"kill {node.name}")
        node.kill()

    def promote_furthest(self, among):
        """As Consul's lock does it: a write is acknowledged once any replica has it, so the furthest has them all."""
        best = max(among, key=lambda node: self.status(node)["follower"]["applied"])
        self.story.append(f"promote {best.name}")
        best.run("promote", "--to", best.reach)
        self.primary = best

    def follow(self, node):
        """A replica of the one before: it follows the new one by itself, or is cloned again."""
        assert node.stop() == 0
        node.options["replica_of"] = self.primary.reach
        node.start()
        state = self.until(lambda: (s := self.status(node)["follower"]["state"]) != b"connecting" and s)
        if state in (b"refused", b"lost"):
            assert node.stop() == 0
            self.clone(node)

    def stop(self):
        try:
            for node in self.nodes:
                if node.alive():
                    assert node.stop() == 0
                assert "Sanitizer" not in node.log() and "runtime error:" not in node.log(), node.log()[-5000:]
        finally:
            self.network.stop()


@pytest.fixture
def make_group(tmp_path):
    made = []

    def make(seed):
        made.append(Group(tmp_path, seed))
        return made[-1]
    yield make
    for group in made:
        group.stop()


def shapes(a, b, c):
    """Every link, both ways and one way, and every node for itself."""
    return {
        "a-b": [(a, b), (b, a)],
        "a-c": [(a, c), (c, a)],
        "b-c": [(b, c), (c, b)],
        "a>b": [(a, b)],
        "b>a": [(b, a)],
        "a>b,c": [(a, b), (a, c)],
        "b,c>a": [(b, a), (c, a)],
        "a": [(a, b), (b, a), (a, c), (c, a)],
        "b": [(a, b), (b, a), (b, c), (c, b)],
    }


def test_partitions_of_every_shape(make_group):
    group = make_group(1)
    a, b, c = group.nodes
    for name, pairs in shapes(a, b, c).items():
        group.part(*pairs)
        lonely = name in ("a", "a>b,c", "b,c>a")
        if lonely:  # what is on its way when the wire is cut may still be confirmed, and then no more
            group.until(lambda: group.load(1) == 0)
        else:
            assert group.load(60) > 0
        group.agree()
        assert group.load(20) > 0


@pytest.mark.parametrize("burns", [True, False])
@pytest.mark.parametrize("ahead", ["b", "c", "both"])
def test_the_primary_is_killed(make_group, ahead, burns):
    """One of the replicas is further than the other, or neither: the furthest is promoted. The old one's disk is gone,
    or it comes back with what it alone had."""
    group = make_group(2)
    a, b, c = group.nodes
    group.load(50)
    if ahead != "both":
        away = c if ahead == "b" else b
        group.part((a, away), (away, a))
    assert group.load(50) > 0
    group.kill(a)
    group.network.heal()
    group.promote_furthest([b, c])
    assert ahead in ("both", group.primary.name), group.told()
    group.check(group.primary)
    follower = c if group.primary is b else b
    group.follow(follower)
    group.until(lambda: group.is_level(follower))
    assert group.load(50) > 0
    if burns:
        shutil.rmtree(a.data)
        group.clone(a)
    else:
        a.run("rejoin", group.primary.reach, "--data", a.data)
        a.start()
    group.agree()


def test_the_primary_is_cut_off_and_another_promoted(make_group):
    """Two primaries for a while: whatever the old one answers is no acknowledgement, since nobody confirms it; when they
    meet, it takes no writes, and brings along what it has."""
    group = make_group(3)
    a, b, c = group.nodes
    group.load(50)
    group.part((a, b), (b, a), (a, c), (c, a))
    group.until(lambda: group.load(1) == 0)
    group.promote_furthest([b, c])
    group.follow(c if group.primary is b else b)
    assert group.load(50) > 0
    with pytest.raises(RespError, match="^NOREPLICAS"):
        group.say(a, "PLAYED", "stranded", "x")
    group.network.heal()
    group.until(lambda: group.status(a)["role"] == b"fenced")
    with pytest.raises(RespError, match="^READONLY"):
        group.say(a, "PLAYED", "stranded", "y")
    assert a.stop() == 0
    a.run("rejoin", group.primary.reach, "--data", a.data)
    a.start()
    group.agree()
    assert group.say(group.primary, "SEEN", "stranded", "x", "y") == [1, 0]
