"""Plays from a real broker of Kafka into a real pool of Ceph, read by two nodes that are one group: they share the
partitions, and either has all plays. Nodes are killed, partitions move, OSDs end and freeze, clients are shut out: what
the broker has acknowledged is there, and no forgotten user comes back.

UNSEEN_INTEGRATION_CYCLES (6) is how often a node is killed.
"""
import os
import pathlib
import random
import tempfile
import threading

import pytest

from ceph_cluster import Cluster
from conftest import end_to_end
from kafka_reader import PATIENCE, authority, broker, next_topic, until  # noqa: F401  # fixtures
from test_kafka import play
from test_rados import Node, address, init

CYCLES = int(os.environ.get("UNSEEN_INTEGRATION_CYCLES", 6))
POOL, USERS = "plays", 40


@pytest.fixture(scope="module")
def cluster():
    with tempfile.TemporaryDirectory(prefix="unseen-ceph-") as folder:
        made = Cluster(pathlib.Path(folder))
        try:
            made.pool(POOL)
            init(made, POOL)
            yield made
        finally:
            made.stop()


class Reader(Node):
    """A node that reads a topic."""

    def kafka(self):
        with self.client(3) as c:
            return {key.decode(): value for key, value in c.command("KAFKA").items()}

    def next(self, topic):
        return {p[b"partition"]: p[b"next"] for p in self.kafka()["partitions"] if p[b"topic"].decode() == topic}


@pytest.fixture
def readers(cluster, broker, tmp_path):  # noqa: F811
    made = []

    def make(topic, group=None, pool=POOL, **options):
        folder = tmp_path / f"node{len(made)}"
        defaults = {"kafka_brokers": broker.plain, "kafka_topics": topic, "kafka_group": group or f"{topic}-pool",
                    "kafka_dead_letters": tmp_path / f"letters{len(made)}",
                    "kafka_rdkafka.session.timeout.ms": "3000", "kafka_rdkafka.heartbeat.interval.ms": "500",
                    "kafka_rdkafka.reconnect.backoff.max.ms": "500", "rados_timeout": "5s"}
        node = Reader(folder, cluster, pool, **{**defaults, **options})
        made.append(node)
        return node.start()

    yield make
    problems = [node.log()[-20000:] for node in made if node.stop() not in (None, 0, -9) or "Sanitizer" in node.log()]
    assert not problems, problems[0]


class Flood:
    """Plays of some users without end, until it is stopped."""

    def __init__(self, broker, topic, name, pause=0.0):  # noqa: F811
        self.broker, self.topic, self.name, self.sent, self.pause = broker, topic, name, 0, pause
        self.ends, self.failed = threading.Event(), []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.ends.is_set():
                self.broker.flood(self.topic, self.name, USERS, 200, self.sent)
                self.sent += 200
                end_to_end.pause(self.pause, "the pace at which they come")
        except Exception as e:  # pylint: disable=broad-except
            self.failed.append(e)

    def stop(self):
        self.ends.set()
        self.thread.join()
        assert not self.failed, self.failed

    def missing(self, node):
        """What of it the node does not have: {user: items}."""
        left = {}
        with node.client() as c:
            for u in range(USERS):
                items = [f"item:{i}" for i in range(u, self.sent, USERS)]
                unseen = c.command("UNSEEN", f"{self.name}:{u}", *items)
                if unseen:
                    left[u] = unseen
        return left


def read_all(broker, topic, *nodes):  # noqa: F811
    """Until every partition is durable to its end, by whoever has it."""
    ends = {partition: end for partition, end in broker.ends(topic).items() if end > 0}

    def all_read():
        reached = {}
        for node in nodes:
            for partition, offset in node.next(topic).items():
                reached[partition] = max(offset, reached.get(partition, -1))
        return all(reached.get(partition, -1) >= end for partition, end in ends.items())
    until(all_read, *nodes, what=f"{topic} read up to {ends}", patience=4 * PATIENCE)


def test_two_nodes_share_and_each_has_all(broker, readers):  # noqa: F811
    topic = broker.topic(next_topic(), 4)
    a, b = readers(topic), readers(topic)
    until(lambda: (a.kafka()["assigned"], b.kafka()["assigned"]) == (2, 2), a, b)
    flood = Flood(broker, topic, "share", pause=0.05)
    until(lambda: a.kafka()["plays"] > 1000 and b.kafka()["plays"] > 1000, a, b)
    flood.stop()
    read_all(broker, topic, a, b)
    assert flood.missing(a) == {} and flood.missing(b) == {}
    until(lambda: sum(broker.committed(f"{topic}-pool", topic).values()) == flood.sent, a, b, what="the broker told")
    assert a.kafka()["plays"] + b.kafka()["plays"] >= flood.sent
    # What can't be read is kept by the node that met it, and the partition goes on.
    broker.send(topic, [(None, "no json", 0), (None, play("u1", "after"), 0)])
    read_all(broker, topic, a, b)
    assert a.kafka()["dead"] + b.kafka()["dead"] == 1 and a.say("SEEN", "u1", "after") == [1]
    kept = [node.options["kafka_dead_letters"] / "dead-letters.jsonl" for node in (a, b)]
    assert sum(path.exists() and path.read_text().count("\n") for path in kept) == 1
    done = end_to_end.run("kafka", "--status", "--to", f"127.0.0.1:{a.port}")
    assert f"{topic}-pool".encode() in done.stdout and b"reading" in done.stdout


def test_nodes_are_killed_and_join_again(broker, readers):  # noqa: F811
    """At any moment, with groups on their way and partitions moving."""
    topic = broker.topic(next_topic(), 4)
    nodes = [readers(topic), readers(topic)]
    flood, luck = Flood(broker, topic, "killed", pause=0.02), random.Random(17)
    try:
        for cycle in range(CYCLES):
            node, other = nodes[cycle % 2], nodes[(cycle + 1) % 2]
            before = other.kafka()["messages"]
            until(lambda other=other, before=before: other.kafka()["messages"] > before, *nodes)
            end_to_end.pause(luck.random() * 0.5, "any moment will do")
            node.kill()
            end_to_end.pause(luck.random() * 4, "before or after the others have its partitions")
            node.start()
    finally:
        flood.stop()
    read_all(broker, topic, *nodes)
    assert [flood.missing(node) for node in nodes] == [{}, {}]
    never = [f"item:{i}" for i in range(flood.sent, flood.sent + 100)]
    assert len(nodes[0].say("UNSEEN", "killed:0", *never)) > 95  # a filter hides a thousandth at most


def test_osds_end_and_freeze_and_clients_are_shut_out(cluster, broker, readers):  # noqa: F811
    """Partitions pause while the cluster is away, and nobody is thrown out of the group for it."""
    topic = broker.topic(next_topic(), 4)
    nodes = [readers(topic), readers(topic)]
    until(lambda: [node.kafka()["assigned"] for node in nodes] == [2, 2], *nodes)
    flood = Flood(broker, topic, "osds", pause=0.02)
    rebalances = [node.kafka()["rebalances"] for node in nodes]

    def goes_on():
        for node in nodes:
            before = node.kafka()["messages"]
            until(lambda node=node, before=before: node.kafka()["messages"] > before + 50, *nodes)
    try:
        goes_on()
        first = cluster.primary(POOL, "positions")
        cluster.kill(first)
        goes_on()
        cluster.restart(first)
        cluster.wait_clean(POOL)
        frozen = cluster.primary(POOL, "positions")
        cluster.osds[frozen].freeze()
        cluster.wait_down(frozen)
        goes_on()
        cluster.osds[frozen].thaw()
        cluster.wait_up(frozen)
        cluster.wait_clean(POOL)
        dead = list(cluster.osds)[:2]
        for number in dead:
            cluster.kill(number)
        until(lambda: all(node.kafka()["state"] == b"paused" for node in nodes), *nodes, what="paused")
        assert nodes[0].kafka()["cause"]
        for number in dead:
            cluster.restart(number)
        goes_on()
        for node in nodes:
            was = address(node).strip('"')
            cluster.command("osd blocklist", blocklistop="add", addr=was)
            until(lambda node=node, was=was: address(node).strip('"') != was, *nodes)
        goes_on()
        cluster.command("osd blocklist clear")
    finally:
        flood.stop()
    read_all(broker, topic, *nodes)
    assert [flood.missing(node) for node in nodes] == [{}, {}]
    assert [node.kafka()["rebalances"] for node in nodes] == rebalances


def test_a_forget_is_not_undone_by_a_replay(cluster, broker, readers):  # noqa: F811
    topic = broker.topic(next_topic(), 1)
    a = readers(topic)
    broker.send(topic, [play("gone", "a"), play("stays", "b")])
    read_all(broker, topic, a)
    assert a.say("FORGET", "gone") == 1 and a.say("FORGET", "stays", "b") == 1
    broker.send(topic, [play("gone", "new")])
    read_all(broker, topic, a)
    assert a.stop() == 0
    ends = broker.ends(topic)
    b = readers(topic, group=f"{topic}-other")  # the pool's offset counts: nothing is read twice
    until(lambda: b.kafka()["assigned"] == 1 and b.next(topic) == ends, b)
    assert b.kafka()["messages"] == 0
    assert b.stop() == 0
    with cluster.admin.open_ioctx(POOL) as ioctx:
        ioctx.remove_object("positions")
    again = readers(topic, group=f"{topic}-again")
    read_all(broker, topic, again)
    assert again.kafka()["messages"] == 3
    assert again.say("UNSEEN", "gone", "a", "new") == [b"a"]
    assert again.say("UNSEEN", "stays", "b", "c") == [b"b", b"c"]


def test_a_pool_that_was_made_anew(cluster, broker, readers):  # noqa: F811
    """It has a lineage of its own, so it begins where the group stands; from then on its own positions count."""
    topic = broker.topic(next_topic(), 1)
    a = readers(topic)
    broker.send(topic, [play("old", "a")])
    read_all(broker, topic, a)
    until(lambda: broker.committed(f"{topic}-pool", topic) == {0: 1}, a, what="the broker told")
    assert a.stop() == 0
    cluster.pool("anew")
    init(cluster, "anew")
    broker.send(topic, [play("old", "b")])
    b = readers(topic, pool="anew")
    read_all(broker, topic, b)
    assert b.say("UNSEEN", "old", "a", "b") == [b"a"]
    assert b.stop() == 0
    c = readers(topic, pool="anew", group=f"{topic}-whole")
    until(lambda: c.kafka()["assigned"] == 1, c)
    assert c.say("UNSEEN", "old", "a", "b") == [b"a"]  # of what it has a position, that counts
