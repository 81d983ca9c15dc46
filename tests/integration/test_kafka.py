"""Plays from a real broker of Kafka: formats, groups, ends of any kind, logins, dead letters.

UNSEEN_INTEGRATION_CYCLES (6) is how often broker or server are killed, UNSEEN_INTEGRATION_MESSAGES (200,000) how many
make a large topic.
"""
import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import CLIENTS, end_to_end
from kafka_broker import PASSWORD, USER
from kafka_reader import authority, broker, next_topic, read_all, reader, topic, until  # noqa: F401  # fixtures

CYCLES = int(os.environ.get("UNSEEN_INTEGRATION_CYCLES", 6))
MESSAGES = int(os.environ.get("UNSEEN_INTEGRATION_MESSAGES", 200000))


def play(user, *items, **more):
    return json.dumps({"user": user, "item": items[0] if len(items) == 1 else list(items), **more})


def reload(server, **options):
    server.options.update(options)
    server.write_config()
    server.process.send_signal(signal.SIGHUP)


def now_ms():
    return int(time.time() * 1000)


# Formats.

def test_json_of_the_console_producer(broker, topic, reader):
    server = reader(topic)
    broker.console_producer(topic, "".join(f"{line}\n" for line in (
        play("u1", "a"), play("u1", "b", "c", time=now_ms()), play("u1", "d", type="delivery"), play("u2", "x"))))
    read_all(broker, topic, server)
    assert server.command("UNSEEN", "u1", *"abcde") == [b"e"]
    assert server.command("WHY", "u1", "d") == [b"delivered"] and server.command("WHY", "u1", "c") == [b"staged"]
    assert server.command("UNSEEN", "u2", "a", "x") == [b"a"]
    until(lambda: server.kafka()["lag"] == 0, server)
    state = server.kafka()
    assert [state[name] for name in ("state", "messages", "plays", "deliveries", "dead")] == [b"reading", 4, 4, 1, 0]
    until(lambda: broker.committed(f"{topic}-0", topic) == {0: 4}, server, what="the broker told")


def test_csv_of_kafkajs(broker, topic, reader):
    server = reader(topic, kafka_format="csv", kafka_user="2", kafka_item="1", kafka_time="3", kafka_type="4")
    now = now_ms()
    broker.send(topic, [f"a,u1,{now}", f'"b,1","u ""2""",{now},play', f"c,u1,{now},delivery"])
    read_all(broker, topic, server)
    assert server.command("UNSEEN", "u1", "a", "b", "c") == [b"b"]
    assert server.command("WHY", "u1", "c") == [b"delivered"]
    assert server.command("UNSEEN", 'u "2"', "b,1", "b") == [b"b"]


def test_protobuf_of_kafkajs(broker, topic, reader):
    """Our own RecordRequest, by its numbers, behind the prefix of a schema registry."""
    sys.path.insert(0, str(CLIENTS / "python"))
    from unseen.v1 import unseen_pb2
    server = reader(topic, kafka_format="protobuf", kafka_prefix="confluent", kafka_key="user", kafka_item="2",
                    kafka_time="3", kafka_type="")
    prefix = b"\0\0\0\0\7" + b"\0"  # a schema's id, the first message of it
    record = unseen_pb2.RecordRequest(items=["a", "b"], at=now_ms())
    broker.send(topic, [("u1", prefix + record.SerializeToString())])
    read_all(broker, topic, server)
    assert server.command("UNSEEN", "u1", "a", "b", "c") == [b"c"]
    assert server.kafka()["plays"] == 2


# Groups.

def test_own_groups_all_get_all(broker, reader):
    topic = broker.topic(next_topic(), 3)
    servers = [reader(topic), reader(topic)]
    broker.flood(topic, "u", 50, 2000)
    plays = {f"u:{u}": {f"item:{i}" for i in range(u, 2000, 50)} for u in range(50)}
    for server in servers:
        read_all(broker, topic, server)
        assert server.unseen(plays) == {}
        assert server.kafka()["plays"] == 2000


def test_members_share_and_hand_over_under_load(broker, reader):
    """While messages come two more join, one is killed, one leaves. All have a part, together they have everything."""
    topic, users = broker.topic(next_topic(), 6), 60
    ends, failed = threading.Event(), []
    sent = 0

    def load():
        nonlocal sent
        try:
            while not ends.is_set():
                broker.flood(topic, "u", users, 500, sent)
                sent += 500
        except Exception as e:  # pylint: disable=broad-except
            failed.append(e)

    loading = threading.Thread(target=load)
    first = reader(topic, kafka_group="shared")
    loading.start()
    try:
        until(lambda: first.kafka()["assigned"] == 6, first)
        second = reader(topic, kafka_group="shared")
        until(lambda: (first.kafka()["assigned"], second.kafka()["assigned"]) == (3, 3), first, second)
        until(lambda: second.kafka()["plays"] > 3000, first, second)
        third = reader(topic, kafka_group="shared")
        until(lambda: [s.kafka()["assigned"] for s in (first, second, third)] == [2, 2, 2], first, second, third)
        until(lambda: third.kafka()["plays"] > 0, first, second, third)
        third.kill()  # the broker notices by its heartbeats
        assert second.stop() == 0
        until(lambda: first.kafka()["assigned"] == 6, first)
    finally:
        ends.set()
        loading.join()
    assert not failed, failed
    read_all(broker, topic, first)
    second.start()
    third.start()
    plays = {f"u:{u}": {f"item:{i}" for i in range(u, sent, users)} for u in range(users)}
    never = {f"u:{u}": {f"item:{i}" for i in range(sent, sent + 100)} for u in range(users)}
    left = [server.unseen(plays) for server in (first, second, third)]
    missing = {user: items for user in plays if (items := set.intersection(*(of.get(user, set()) for of in left)))}
    assert missing == {}
    assert first.hides(never) == 0 and second.hides(never) < 0.01 and third.hides(never) < 0.01
    # What moved to others and came back, the first has read again, from where its own folder was.
    assert left[1] != {} and left[2] != {}


# Ends of any kind.

def test_killed_again_and_again(broker, reader):
    """Broker and server in turn, and both; what the broker has acknowledged is there once, and nothing else."""
    topic, users = broker.topic(next_topic(), 3), 40
    server = reader(topic)
    luck, sent = random.Random(14), 0
    for cycle in range(CYCLES):
        n = luck.randrange(2000, 20000)
        loading = threading.Thread(target=broker.flood, args=(topic, "u", users, n, sent))
        loading.start()
        sent += n
        end_to_end.pause(luck.random() * 0.3, "any moment will do")
        if cycle % 3 != 1:
            server.kill()
        if cycle % 3 != 0:
            broker.kill()
            end_to_end.pause(luck.random() * 0.3, "a broker that is away")
            broker.start()
        if not server.alive():
            server.start()
        loading.join()
    read_all(broker, topic, server)
    assert sum(broker.ends(topic).values()) >= sent  # kafkajs may have sent some twice
    plays = {f"u:{u}": {f"item:{i}" for i in range(u, sent, users)} for u in range(users)}
    assert server.unseen(plays) == {}
    never = {f"u:{u}": {f"item:{i}" for i in range(sent, sent + 100)} for u in range(users)}
    assert server.hides(never) < 0.01
    server.command("RING", "FLUSH")
    for user, items in plays.items():
        assert len(items) - 3 <= server.stored(user) <= len(items)  # in a filter some share a position


def test_a_restored_folder_reads_again_what_it_lacks(broker, topic, reader, folder):
    server = reader(topic, kafka_group="restored")
    broker.send(topic, [play("u1", "a"), play("u1", "b")])
    read_all(broker, topic, server)
    server.command("BACKUP", str(folder / "copy"))
    broker.send(topic, [play("u1", "c"), play("u2", "d")])
    read_all(broker, topic, server)
    until(lambda: broker.committed("restored", topic) == {0: 4}, server, what="the broker told")
    assert server.stop() == 0
    again = reader(topic, data=folder / "copy", kafka_group="restored")
    read_all(broker, topic, again)
    assert again.unseen({"u1": {"a", "b", "c"}, "u2": {"d"}}) == {}
    assert again.kafka()["messages"] == 2


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_folder_of_before_the_first_message_reads_all_that_it_lacks(broker, topic, reader, folder, start):
    """Of a partition of which it has nothing, the broker's note tells where it had begun."""
    group = f"{topic}-lineage"
    server = reader(broker.topic(next_topic()))
    server.command("PLAYED", "u0", "here")
    server.command("BACKUP", str(folder / "copy"))
    assert server.stop() == 0
    broker.send(topic, [play("u1", "before")])
    server.options.update(kafka_topics=topic, kafka_group=group, kafka_start=start)
    server.start()
    read_all(broker, topic, server)
    broker.send(topic, [play("u1", "a"), play("u1", "b")])
    read_all(broker, topic, server)
    until(lambda: broker.committed(group, topic) == {0: 3}, server, what="the broker told")
    assert server.stop() == 0
    broker.send(topic, [play("u1", "c")])
    stranger = reader(topic, kafka_group=group, kafka_start=start)  # a new folder goes on where the group was
    read_all(broker, topic, stranger)
    assert stranger.unseen({"u1": {"a", "b", "c"}}) == {"u1": {"a", "b"}}
    assert stranger.stop() == 0
    server.start()
    read_all(broker, topic, server)
    assert server.stop() == 0  # the note is ours again
    again = reader(topic, data=folder / "copy", kafka_group=group, kafka_start=start)
    read_all(broker, topic, again)
    assert again.unseen({"u0": {"here"}, "u1": {"a", "b", "c"}}) == {}
    assert again.command("UNSEEN", "u1", "before") == ([b"before"] if start == "latest" else [])
    assert "it is read again from there" in again.log()


def test_a_replica_of_before_the_first_message_reads_all_that_it_lacks(broker, topic, reader, folder):
    group = f"{topic}-pair"
    primary = reader(broker.topic(next_topic()), kafka_group=group)
    primary.command("PLAYED", "u0", "here")
    end_to_end.run("clone", f"127.0.0.1:{primary.port}", "--data", folder / "replica")
    assert primary.stop() == 0
    primary.options["kafka_topics"] = topic
    primary.start()
    broker.send(topic, [play("u1", "a"), play("u1", "b")])
    read_all(broker, topic, primary)
    until(lambda: broker.committed(group, topic) == {0: 2}, primary, what="the broker told")
    primary.kill()
    end_to_end.run("promote", "--data", folder / "replica")
    replica = reader(topic, data=folder / "replica", kafka_group=group)
    read_all(broker, topic, replica)
    assert replica.unseen({"u0": {"here"}, "u1": {"a", "b"}}) == {}


def test_a_forget_is_not_undone_by_a_replay(broker, topic, reader):
    server = reader(topic)
    broker.send(topic, [play("u1", "a"), play("u2", "b")])
    read_all(broker, topic, server)
    assert server.command("FORGET", "u1") == 1
    broker.send(topic, [play("u1", "new")])
    read_all(broker, topic, server)
    assert server.stop() == 0
    # The folder forgets how far it was, and is a stranger to the broker.
    subprocess.run(["sqlite3", str(server.data / "staging.db"), "DELETE FROM positions"], check=True, timeout=60)
    server.options["kafka_group"] = f"{topic}-again"
    server.start()
    until(lambda: server.kafka()["messages"] == 3, server)
    read_all(broker, topic, server)
    assert server.command("UNSEEN", "u1", "a", "new") == [b"a"]
    assert server.command("UNSEEN", "u2", "b") == []


def test_a_server_that_takes_nothing_stays_a_member(broker, topic, reader):
    server = reader(topic, **{"kafka_rdkafka.session.timeout.ms": "6000",
                              "kafka_rdkafka.max.poll.interval.ms": "6000"})
    group = f"{topic}-0"
    broker.send(topic, [play("u1", "a")])
    read_all(broker, topic, server)
    rebalances = server.kafka()["rebalances"]
    reload(server, min_free="16TiB")
    until(lambda: "plays are refused" in server.log(), server)  # the disk is looked at now and then
    broker.flood(topic, "u", 10, 5000)
    until(lambda: server.kafka()["state"] == b"paused", server)
    began = time.monotonic()
    while time.monotonic() < began + 8:
        state = server.kafka()
        assert (state["state"], state["rebalances"]) == (b"paused", rebalances), state
        assert broker.members(group) == 1
        end_to_end.pause(0.5, "longer in all than a member may be silent")
    assert state["cause"] != b"" and server.command("UNSEEN", "u1", "a") == []
    reload(server, min_free="0")
    read_all(broker, topic, server)
    assert server.unseen({f"u:{u}": {f"item:{i}" for i in range(u, 5000, 10)} for u in range(10)}) == {}
    assert server.kafka()["rebalances"] == rebalances


def test_the_broker_is_away_at_start(broker, topic, reader):
    broker.send(topic, [play("u1", "a")])
    broker.kill()
    try:
        server = reader(topic)
        assert server.command("PLAYED", "u2", "x") == 1  # clients are served all the while
        until(lambda: server.kafka()["state"] == b"connecting" and server.kafka()["error"] != b"", server)
    finally:
        broker.start()
    read_all(broker, topic, server)
    assert server.unseen({"u1": {"a"}, "u2": {"x"}}) == {}


def test_a_topic_made_anew(broker, reader):
    topic = broker.topic("anew")
    server = reader(topic)
    broker.send(topic, [play("u1", f"old{i}") for i in range(10)])
    read_all(broker, topic, server)
    broker.drop(topic)
    broker.topic(topic)
    broker.send(topic, [play("u1", "new")])
    until(lambda: server.unseen({"u1": {"new"}}) == {}, server)
    read_all(broker, topic, server)
    broker.send(topic, [play("u1", "newer")])
    until(lambda: server.unseen({"u1": {"newer"}}) == {}, server)


def test_a_topic_made_anew_that_has_outgrown_our_offset(broker, reader):
    """With its topic the broker forgets the group's offset, which tells it from one that was not read for a while."""
    topic = broker.topic("outgrown")
    server = reader(topic)
    broker.send(topic, [play("u1", f"old{i}") for i in range(10)])
    read_all(broker, topic, server)
    server.stop()
    server.start()  # the broker has our offset, and the folder knows
    read_all(broker, topic, server)
    assert server.stop() == 0
    broker.drop(topic)
    broker.topic(topic)
    broker.send(topic, [play("u1", f"new{i}") for i in range(30)])
    server.start()
    read_all(broker, topic, server)
    assert server.unseen({"u1": {f"new{i}" for i in range(30)}}) == {}
    assert "the broker has forgotten our offset" in server.log()


# Logins.

@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_sasl(broker, topic, reader, folder, mechanism):
    (folder / "password").write_text(f"{PASSWORD}\n")
    who = {"kafka_sasl.username": USER, "kafka_password_file": folder / "password"}
    if mechanism == "OAUTHBEARER":
        who = {"kafka_rdkafka.enable.sasl.oauthbearer.unsecure.jwt": "true",
               "kafka_sasl.oauthbearer.config": f"principal={USER}"}
    server = reader(topic, kafka_brokers=broker.sasl, **who,
                    **{"kafka_security.protocol": "sasl_plaintext", "kafka_sasl.mechanism": mechanism})
    broker.send(topic, [play("u1", "a")])
    read_all(broker, topic, server)
    assert server.command("UNSEEN", "u1", "a", "b") == [b"b"]
    assert PASSWORD not in server.log() and PASSWORD.encode() not in b"".join(server.command("CONFIG", "GET", "*"))


def test_a_wrong_password_is_told(broker, topic, reader):
    server = reader(topic, kafka_brokers=broker.sasl, **{
        "kafka_security.protocol": "sasl_plaintext", "kafka_sasl.mechanism": "PLAIN", "kafka_sasl.username": USER,
        "kafka_sasl.password": "wr0ng"})
    until(lambda: b"authentication" in server.kafka()["error"].lower(), server)
    assert server.kafka()["state"] == b"connecting" and "wr0ng" not in server.log()


def test_tls(broker, topic, reader, authority):
    server = reader(topic, kafka_brokers=broker.tls, **{
        "kafka_security.protocol": "ssl", "kafka_ssl.ca.location": authority / "ca.pem"})
    broker.send(topic, [play("u1", "a")])
    read_all(broker, topic, server)
    assert server.command("UNSEEN", "u1", "a", "b") == [b"b"]


def test_a_broker_of_another_authority_is_refused(broker, topic, reader, authority):
    server = reader(topic, kafka_brokers=broker.tls, **{
        "kafka_security.protocol": "ssl", "kafka_ssl.ca.location": authority / "other.pem"})
    until(lambda: b"certificate" in server.kafka()["error"], server)
    assert server.kafka()["state"] == b"connecting"


# What topics hold.

def test_compaction(broker, reader):
    """Holes in the log, and keys without a value."""
    topic = broker.topic(next_topic(), cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01)
    first = reader(topic)
    broker.send(topic, [(f"k{i % 10}", play("u1", f"item{i}")) for i in range(1000)])
    broker.send(topic, [("k1", None), ("k2", None)])
    read_all(broker, topic, first)
    assert first.unseen({"u1": {f"item{i}" for i in range(1000)}}) == {}
    assert first.kafka()["nulls"] == 2
    log = broker.folder / "log" / f"{topic}-0" / f"{0:020}.log"
    # A segment ends when one comes that is younger.
    until(lambda: broker.send(topic, [("last", play("u1", "last"))]) or log.stat().st_size < 20000, what="compacted")
    second = reader(topic)
    read_all(broker, topic, second)
    assert second.kafka()["messages"] < 500
    assert second.unseen({"u1": {"item993", "item999", "last"}}) == {}
    assert "item1" in second.unseen({"u1": {"item1"}})["u1"]


def test_a_poisoned_partition(broker, topic, reader, folder):
    server = reader(topic)
    broker.send(topic, [play("u1", "a"), "no json", ("a key", '{"user":"u1"}'), play("u1", "b"), b"\xff\0",
                        play("u1", "c", type="purchase"), play("u1", "d")])
    read_all(broker, topic, server)
    assert server.unseen({"u1": {"a", "b", "d"}}) == {}
    state = server.kafka()
    assert (state["dead"], state["dead_letters"], state["plays"]) == (4, 4, 3)
    letters = [json.loads(line) for path in sorted(server.data.glob("dead-letters*.jsonl"))
               for line in path.read_text().splitlines()]
    assert [(letter["topic"], letter["partition"], letter["offset"]) for letter in letters] == \
        [(topic, 0, offset) for offset in (1, 2, 4, 5)]
    assert all(letter["reason"] for letter in letters)
    # They are not read twice, whoever ends.
    server.kill()
    server.start()
    broker.send(topic, [play("u1", "e")])
    read_all(broker, topic, server)
    assert server.kafka()["dead_letters"] == 4 and server.unseen({"u1": {"e"}}) == {}
    # Mended: options that fit what was sent, and one by hand.
    server.options["kafka_play"] = "play,purchase"
    server.restart()
    (path,) = server.data.glob("dead-letters*.jsonl")
    mended = base64.b64encode(play("u1", "f").encode()).decode()
    lines = [json.dumps({**letter, "value": mended}) if letter["offset"] == 4 else line
             for line in path.read_text().splitlines() for letter in (json.loads(line),)]
    path.write_text("".join(f"{line}\n" for line in lines))
    end_to_end.run("import", "--dead-letters", "-c", server.config, "--to", f"127.0.0.1:{server.port}", check=False)
    assert server.unseen({"u1": set("abcdef")}) == {}
    left = [json.loads(line)["offset"] for path in server.data.glob("dead-letters*.jsonl")
            for line in path.read_text().splitlines()]
    assert left == [1, 2]


@pytest.mark.parametrize("kind", ["latest", "unix_ms"])
def test_start(broker, topic, reader, kind):
    broker.send(topic, [play("u1", "old")])
    end_to_end.pause(0.05, "a broker's clock")
    at = now_ms()
    end_to_end.pause(0.05, "the same")
    if kind == "unix_ms":
        broker.send(topic, [play("u1", "new")])
    server = reader(topic, kafka_start="latest" if kind == "latest" else at)
    if kind == "latest":
        until(lambda: server.next(topic).get(0) == 1, server)
        broker.send(topic, [play("u1", "new")])
    until(lambda: server.unseen({"u1": {"new"}}) == {}, server)
    assert server.command("UNSEEN", "u1", "old") == [b"old"]


def test_many(broker, reader):
    topic, users = broker.topic(next_topic(), 4), 500
    server = reader(topic, staging_memory="2GiB")
    broker.flood(topic, "u", users, MESSAGES)
    read_all(broker, topic, server)
    assert server.kafka()["plays"] == MESSAGES
    plays = {f"u:{u}": {f"item:{i}" for i in range(u, MESSAGES, users)} for u in range(0, users, max(1, users // 100))}
    assert server.unseen(plays) == {}
    server.command("RING", "FLUSH")
    for user, items in plays.items():
        assert len(items) - 3 <= server.stored(user) <= len(items)


def status_mib(server, field):
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(f"{field}:")) / 1024


def test_memory_beside_what_is_queued(broker, reader):
    """The broker has far more than may wait here, and what waits is bounded: 64 MiB of messages, or 300,000 of them at
    some hundred bytes more each, and one answer of the broker; beside that are staged plays."""
    empty, topic = broker.topic(next_topic()), broker.topic(next_topic(), 8)
    broker.flood(topic, "u", 500, 6 * MESSAGES)
    server = reader(empty)
    until(lambda: server.kafka()["state"] == b"reading", server)
    before = status_mib(server, "VmHWM")
    server.stop()
    server = reader(topic, staging_memory="2GiB")
    read_all(broker, topic, server)
    info = dict(line.split(":", 1) for line in server.command("INFO").decode().splitlines() if ":" in line)
    beyond = status_mib(server, "VmHWM") - before - int(info["staged_bytes"]) / 2**20
    assert beyond < 200  # 521, of 2,400,000 messages, where all may wait
