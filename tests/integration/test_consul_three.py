"""Three nodes and a real agent of Consul, which is killed, frozen, and cut off from one of them. Meanwhile each node is
told of plays, one after the other: never do two take them at once, what one has taken is not lost, and soon the nodes
take plays again, without anybody's help."""
import pathlib
import threading
import time

import pytest

from conftest import end_to_end, free_port, go
from consul import Consul, key_of, make_server, refusal, start_follower  # noqa: F401
from partition import CUT, NO_REPLIES, OPEN, SILENT, Wire
from standstill import freeze, thaw

NAME = "three"
PACE = 0.02  # seconds between two plays


class Hammer:
    """Plays for each node, on a thread for each. What a node has acknowledged is (item, sent, answered)."""

    def __init__(self, nodes):
        self.taken = {node: [] for node in nodes}
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(node, n)) for n, node in enumerate(nodes)]
        for thread in self.threads:
            thread.start()

    def run(self, node, n):
        link, i = None, 0
        while not self.ended.wait(PACE):
            item, sent = f"{n}:{i}", time.monotonic()
            try:
                link = link or node.client()
                link.command("PLAYED", "u", item)
                self.taken[node].append((item, sent, time.monotonic()))
            except end_to_end.RespError:
                pass
            except (OSError, end_to_end.Closed):
                link = None
            i += 1

    def takers(self, since):
        """The nodes that have taken a play that was sent since then."""
        return [node for node, taken in self.taken.items() if taken and taken[-1][1] > since]

    def taker(self, but=None):
        """Waits until a node takes plays, and another one than `but`."""
        now = time.monotonic()
        return end_to_end.until(lambda: [node for node in self.takers(now) if node is not but])[0]

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def check(self):
        """A node that was replaced takes no plays any more: so the last that it took was sent before any that another one
        took was answered, or the other way round."""
        held = [(node, min(t[2] for t in taken), max(t[1] for t in taken)) for node, taken in self.taken.items() if taken]
        for a, first_a, last_a in held:
            for b, first_b, last_b in held:
                assert a is b or last_a < first_b or last_b < first_a, [(n.folder, f, t) for n, f, t in held]

    def items(self):
        return [item for taken in self.taken.values() for item, _, _ in taken]


class Group:
    """The first node is the primary. Each has a wire to the agent, and is reached by the others over one."""

    def __init__(self, make_server, agent, **options):
        self.agent, self.nodes, self.to_agent, self.to_node = agent, [], {}, {}
        for _ in range(3):
            wire = Wire(agent.port)
            node = make_server(wait=False, registry_consul=f"http://{wire.address}", registry_name=NAME, **options)
            self.to_agent[node], self.to_node[node] = wire, Wire(node.port)
            node.options["replica_address"] = self.to_node[node].address
            if self.nodes:
                start_follower(node, self.to_node[self.nodes[0]].address)
            else:
                node.start()
                agent.until(lambda: refusal(node) is None)
            self.nodes.append(node)
        self.hammer = Hammer(self.nodes)
        assert self.hammer.taker() is self.nodes[0]

    def key(self):
        return (self.agent.key(key_of(NAME)) or (None, {}))[1]

    def until_none_takes(self):
        """Longer than a play may be on its way."""
        since = [time.monotonic()]

        def none_takes():
            if self.hammer.takers(since[0]):
                since[0] = time.monotonic()
            return time.monotonic() > since[0] + 1
        end_to_end.until(none_takes)

    def end(self):
        self.hammer.end()
        for wire in [*self.to_agent.values(), *self.to_node.values()]:
            wire.stop()

    def check(self, last):
        """What any has taken, the last one has."""
        assert self.hammer.taker() is last
        self.hammer.end()
        self.hammer.check()
        items = self.hammer.items()
        with last.client() as c:
            assert c.command("UNSEEN", "u", *items, "new") == [b"new"]


@pytest.fixture
def agent(tmp_path_factory):
    program = go("consul")
    assert pathlib.Path(program[0]).exists(), "scripts/test-integration builds it"
    made = Consul(program, tmp_path_factory.mktemp("consul"), free_port, lasting=True)
    yield made
    made.stop()


@pytest.fixture
def make_group(make_server, agent):  # noqa: F811
    made = []

    def make(**options):
        made.append(Group(make_server, agent, **options))
        return made[-1]
    yield make
    for group in made:
        group.end()


@pytest.fixture
def group(make_group):
    """All three are in step."""
    made = make_group(replica_failover="in-step", replica_ack="replica", replica_ack_timeout="5s")
    end_to_end.until(lambda: len(made.key().get("replicas", [])) == 2)
    return made


def test_the_agent_is_killed_and_stands_still(group):
    """Writes end, and are taken again when it is back."""
    group.agent.kill()
    group.until_none_takes()
    group.agent.start()
    group.hammer.taker()
    group.agent.freeze()
    group.until_none_takes()
    group.agent.thaw()
    group.check(group.hammer.taker())


@pytest.mark.parametrize("shape", [CUT, SILENT, NO_REPLIES])
def test_the_agent_is_cut_off_from_the_primary(group, shape):
    """A replica takes over; the old primary finds that out when it hears of Consul again."""
    first = group.nodes[0]
    group.to_agent[first].set(shape)
    new = group.hammer.taker(but=first)
    group.to_agent[first].set(OPEN)
    end_to_end.until(lambda: "has taken over in term 2" in (refusal(first) or ""))
    group.check(new)
    assert group.key()["term"] == 2


def test_the_agent_is_cut_off_from_a_replica(group):
    """That changes nothing; and it is none of those that take over when the primary dies."""
    first, second, third = group.nodes
    group.to_agent[third].set(SILENT)
    first.kill()
    assert group.hammer.taker() is second
    group.to_agent[third].set(OPEN)
    end_to_end.until(lambda: group.to_node[second].address in (refusal(third) or ""))
    group.check(second)


def test_the_primary_stands_still(group):
    first = group.nodes[0]
    freeze(first.process)
    try:
        new = group.hammer.taker(but=first)
    finally:
        thaw(first.process)
    end_to_end.until(lambda: "has taken over in term 2" in (refusal(first) or ""))
    group.check(new)


def test_the_primary_is_alone_with_its_clients(make_group):
    """It hears neither of the agent nor of the others, and needs none of them to acknowledge a play: its clock alone
    ends that before another one begins. What it took last is lost, as failover = lossy says."""
    group = make_group(replica_failover="lossy", replica_ack="local")
    first = group.nodes[0]
    wires = [group.to_agent[first], group.to_node[first]]
    for wire in wires:
        wire.set(SILENT)
    new = group.hammer.taker(but=first)
    for wire in wires:
        wire.set(OPEN)
    end_to_end.until(lambda: "has taken over in term 2" in (refusal(first) or ""))
    assert group.hammer.taker() is new
    group.hammer.end()
    group.hammer.check()
