"""What tests with a broker of Kafka stand on: the broker, topics, and servers that read them."""
import itertools

import pytest

from conftest import CLASS_PATH, CLIENTS, Server, end_to_end, node
from kafka_broker import Broker
from test_tls import certificates

PATIENCE = end_to_end.PATIENCE
numbers = itertools.count()


def next_topic():
    return f"t{next(numbers)}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority")
    certificates(folder)
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory, authority):
    class_path = CLIENTS / "java" / "kafka" / CLASS_PATH
    assert class_path.exists(), f"scripts/test-integration builds {class_path}"
    made = Broker(tmp_path_factory.mktemp("broker"), class_path, node("kafka.mjs"),
                  [authority / "server.key", authority / "server.pem"])
    yield made
    made.stop()


class Reader(Server):
    """A server that reads a topic, on the real clock as its broker is."""

    def kafka(self):
        with self.client(3) as c:
            return {key.decode(): value for key, value in c.command("KAFKA").items()}

    def next(self, topic):
        """Up to where its partitions are durable here."""
        return {p[b"partition"]: p[b"next"] for p in self.kafka()["partitions"] if p[b"topic"].decode() == topic}

    def command(self, *words):
        with self.client() as c:
            return c.command(*words)

    def unseen(self, plays):
        """What of {user: items} it has not."""
        with self.client() as c:
            asked = {user: c.command("UNSEEN", user, *sorted(items)) for user, items in plays.items()}
        return {user: {item.decode() for item in left} for user, left in asked.items() if left}

    def hides(self, never):
        """What part of {user: items} that none of them has played it takes for played: where plays are flushed, the
        filter's error, a thousandth at most. A start flushes what the run before had staged."""
        left = self.unseen(never)
        asked = sum(len(items) for items in never.values())
        return (asked - sum(len(items) for items in left.values())) / asked

    def stored(self, user):
        """How many plays it counts of a user, once they are flushed."""
        with self.client(3) as c:
            history = c.command("HISTORY", user)
        return sum(month[b"items"] for month in history[b"months"]) if history else 0


@pytest.fixture
def topic(broker):
    """Of one partition."""
    return broker.topic(next_topic())


@pytest.fixture
def reader(folder, broker):
    """Makes servers that read a topic; with a group of its own, unless another is given."""
    made = []

    def make(topic, data=None, start=True, **options):
        own = folder / f"reader{len(made)}"
        own.mkdir()
        if data is not None:
            data.rename(own / "data")
        defaults = {"kafka_brokers": broker.plain, "kafka_topics": topic, "kafka_group": f"{topic}-{len(made)}",
                    "kafka_rdkafka.session.timeout.ms": "3000", "kafka_rdkafka.heartbeat.interval.ms": "500",
                    "kafka_rdkafka.reconnect.backoff.max.ms": "500", "modules": end_to_end.BUILD}
        server = Reader(own, clock=None, wait=False, **{**defaults, **options})
        made.append(server)
        return server.start() if start else server

    yield make
    problems = [server.log()[-20000:] for server in made
                if server.process is not None and (server.stop() not in (0, -9) or "Sanitizer" in server.log())]
    assert not problems, problems[0]


def until(true, *servers, what="", patience=PATIENCE):
    def said():
        states = "\n".join(f"{server.kafka()}\n{server.log()[-6000:]}" for server in servers if server.alive())
        return f"{what or true} is not so\n{states}"

    return end_to_end.until(true, said, patience)


def read_all(broker, topic, *servers):
    """Until one or another of the servers has each partition up to its end."""
    ends = {partition: end for partition, end in broker.ends(topic).items() if end > 0}

    def all_read():
        reached = {}
        for server in servers:
            for partition, offset in server.next(topic).items():
                reached[partition] = max(offset, reached.get(partition, -1))
        return all(reached.get(partition, -1) >= end for partition, end in ends.items())
    until(all_read, *servers, what=f"{topic} read up to {ends}")
