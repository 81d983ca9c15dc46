"""Pools against a real server: what FILTER answers from them, how they change, and what is left after a kill."""
import contextlib
import json
import random
import re
import select
import shutil
import socket
import sqlite3
import threading

import pytest

from conftest import run
from resp import RespError, flat
from test_replica import level, pair, say, until  # noqa: F401

STORES = ("sqlite", "memory", "memory:later")
NEEDS_FOLDER = {
    "test_kept_over_kills_and_backups",
    "test_damage_costs_one_pool",
    "test_replicas_have_them",
    "test_a_large_one_comes_in_parts",
    "test_a_promoted_node_has_them_and_an_old_primary_follows",
    "test_a_clone_brings_them",
    "test_a_clone_that_goes_on_takes_what_changed",
    "test_a_protocol_without_pools_is_asked_for_none",
}

HOT = [f"i{n}" for n in range(1000)]


def info(client):
    lines = client.command("INFO", "pools").decode().splitlines()
    return {k: int(v) for k, v in (line.split(":") for line in lines if ":" in line)}


def listed(client):
    return {p[b"name"].decode(): p for p in map(flat_bytes, client.command("POOL", "LIST"))}


def flat_bytes(reply):
    return {k.encode() if isinstance(k, str) else k: v for k, v in flat(reply).items()}


def bits(bitmap, n):
    return [bitmap[i // 8] >> (7 - i % 8) & 1 for i in range(n)]


def texts(reply):
    return [item.decode() for item in reply]


def test_set_ask_and_the_same_by_items(client):
    n, version = client.command("POOL", "SET", "hot", *HOT)
    assert (n, len(version)) == (1000, 16)
    client.command("PLAYED", "u", *HOT[:20], "elsewhere")
    assert texts(client.command("FILTER", "u", "POOL", "hot")) == HOT[20:]
    assert texts(client.command("FILTER", "u", "POOL", "hot", "LIMIT", "3")) == HOT[20:23]
    assert client.command("FILTER", "u", "POOL", "hot", "REPLY", "INDEXES", "LIMIT", "2") == [version, [20, 21]]
    told, bitmap = client.command("FILTER", "u", "REPLY", "BITMAP", "POOL", "hot")
    assert told == version
    assert bitmap == client.command("FILTER", "u", "REPLY", "BITMAP", "ITEMS", *HOT)
    assert client.command("FILTER", "u", "POOL", "hot", "LIMIT", "1", "VERSION", version) == [HOT[20].encode()]


def test_deliver_from_a_pool_counts_as_delivered(client):
    client.command("POOL", "SET", "hot", *HOT)
    assert texts(client.command("FILTER", "u", "POOL", "hot", "LIMIT", "10", "DELIVER")) == HOT[:10]
    assert texts(client.command("FILTER", "u", "LIMIT", "10", "DELIVER", "POOL", "hot")) == HOT[10:20]
    assert [p.decode() for p in client.command("WHY", "u", HOT[3])] == ["delivered"]


def test_several_pools_in_order_an_item_once(client):
    client.command("POOL", "SET", "a", "1", "2", "3", "4", "5")
    client.command("POOL", "SET", "b", "4", "6", "2", "7")
    client.command("POOL", "SET", "c", "7", "8", "1")
    client.command("PLAYED", "u", "1", "6")
    ask = "FILTER", "u", "POOL", "a", "POOL", "b", "POOL", "c"
    assert texts(client.command(*ask)) == ["2", "3", "4", "5", "7", "8"]
    assert texts(client.command(*ask, "LIMIT", "5")) == ["2", "3", "4", "5", "7"]
    version, indexes = client.command(*ask, "REPLY", "INDEXES")
    assert indexes == [1, 2, 3, 4, 8, 10]
    assert [i for i, bit in enumerate(bits(client.command(*ask, "REPLY", "BITMAP")[1], 12)) if bit] == indexes
    assert client.command("FILTER", "u", "POOL", "b", "POOL", "a", "REPLY", "INDEXES")[0] != version
    client.command("BLOCK", "s", "3", "8")
    assert texts(client.command(*ask, "SESSION", "s")) == ["2", "4", "5", "7"]
    assert texts(client.command(*ask, "SESSION", "s", "LIMIT", "2", "DELIVER")) == ["2", "4"]
    assert texts(client.command(*ask, "SESSION", "s")) == ["5", "7"]


@pytest.mark.parametrize("plays", [100, 12000], ids=["few plays", "many plays"])
def test_a_large_pool_however_it_is_looked_at(client, plays):
    """By what the user has, in order until enough are found, or each candidate, in slices where a store answers late."""
    ids = [f"i{n}" for n in range(100000)]
    for pool, part in (("all", ids), ("a", ids[:70000]), ("b", ids[60000:])):
        for at in range(0, len(part), 50000):
            client.command("POOL", "ADD", pool, *part[at:at + 50000])
    seen = set(random.Random(3).sample(ids, plays)) | set(ids[:50])
    for at in range(0, plays, 1000):
        client.command("PLAYED", "u", *sorted(seen)[at:at + 1000])
    client.command("PLAYED", "u", *ids[:50], *sorted(seen)[plays // 1000 * 1000:])
    client.command("BLOCK", "s", *ids[40:60])
    unseen = [i for i in ids if i not in seen]
    for names in (("all",), ("a", "b")):
        asked = [word for name in names for word in ("POOL", name)]
        answer = client.command("FILTER", "u", "REPLY", "BITMAP", *asked)[1]
        count = sum(bin(byte).count("1") for byte in answer)
        assert count == len(unseen)
        assert texts(client.command("FILTER", "u", *asked)) == unseen
        assert texts(client.command("FILTER", "u", "LIMIT", "20", *asked)) == unseen[:20]
        free = [i for i in unseen if i not in ids[40:60]]
        assert texts(client.command("FILTER", "u", "SESSION", "s", "LIMIT", "9", *asked)) == free[:9]
        assert texts(client.command("FILTER", "u", "SESSION", "s", "LIMIT", "100000", *asked)) == free


def test_versions_are_of_the_list(client):
    one = client.command("POOL", "SET", "a", "x", "y", "z")
    assert client.command("POOL", "SET", "b", "x", "y") != one
    assert client.command("POOL", "ADD", "b", "y", "z", "x") == one
    assert client.command("POOL", "SET", "c", "z", "y", "x")[1] != one[1]
    with pytest.raises(RespError, match=f"VERSION the pool has the version {one[1].decode()}"):
        client.command("FILTER", "u", "POOL", "a", "VERSION", "0123456789abcdef")
    with pytest.raises(RespError, match="ERR VERSION is 16 lower-case hex digits, got 'x'"):
        client.command("FILTER", "u", "POOL", "a", "VERSION", "x")


def test_looks_renames_and_drops(client):
    client.command("POOL", "SET", "new", *HOT)
    client.command("POOL", "SET", "hot", "old")
    got = flat_bytes(client.command("POOL", "GET", "new", "10", "3"))
    assert (got[b"items"], got[b"from"], texts(got[b"ids"])) == (1000, 10, HOT[10:13])
    assert client.command("POOL", "GET", "none") is None
    assert client.command("POOL", "RENAME", "new", "hot")[0] == 1000
    assert set(listed(client)) == {"hot"}
    assert listed(client)["hot"][b"items"] == 1000
    figures = info(client)
    assert (figures["pools"], figures["pool_items"]) == (1, 1000)
    assert client.command("POOL", "DROP", "hot") == 1
    assert client.command("POOL", "DROP", "hot") == 0
    assert client.command("POOL", "LIST") == []
    with pytest.raises(RespError, match='NOPOOL there is no pool "hot"'):
        client.command("FILTER", "u", "POOL", "hot")
    with pytest.raises(RespError, match='NOPOOL there is no pool "hot"'):
        client.command("POOL", "RENAME", "hot", "cold")


@pytest.mark.parametrize("words, error", [
    (("FILTER", "u", "LIMIT", "2", "POOL"), "ERR unknown option 'POOL' of FILTER"),
    (("FILTER", "u", "POOL", "a", "ITEMS", "x"), "ERR a question is about items or about pools, and not both"),
    (("FILTER", "u", "POOL", "a", "ITEMS"), "ERR FILTER needs ITEMS and at least one item behind it"),
    (("FILTER", "u", "VERSION", "0123456789abcdef", "ITEMS", "x"), "ERR VERSION is of pools, and none is named"),
    (("FILTER", "u", *["POOL", "a"] * 17), "ERR 17 pools are too many: a question takes at most 16"),
    (("POOL", "SET", "", "x"), "ERR pool is empty: an id has 1 to 255 bytes"),
    (("POOL", "SET", "a", "x", ""), "ERR item 2 is empty: an id has 1 to 255 bytes"),
    (("POOL", "GET", "a", "x"), "ERR from is a whole number from 0 to 1000000, got 'x'"),
    (("POOL", "SET", "a"), "ERR wrong number of arguments for 'pool\\|set' command"),
])
def test_refusals(client, words, error):
    client.command("POOL", "SET", "a", "y")
    with pytest.raises(RespError, match=error):
        client.command(*words)


def test_memory_is_refused_by_name(make_server):
    server = make_server(pool_memory="1MiB")
    with server.client() as client:
        client.command("POOL", "SET", "a", *HOT)
        with pytest.raises(RespError, match="ERR pool_memory is full: this needs [0-9]+ more bytes"):
            client.command("POOL", "SET", "b", *(f"item-{n:09}" for n in range(60000)))
        assert info(client)["pools_refused"] == 1
        assert texts(client.command("FILTER", "u", "POOL", "a", "LIMIT", "1")) == HOT[:1]


def test_a_large_pool_is_asked_aside(client):
    """As many items as there may be, in parts; what is asked of it may be more than a worker looks at by itself."""
    chunks = [[f"{n:07}" for n in range(at, at + 50000)] for at in range(0, 300000, 50000)]
    for chunk in chunks:
        n, _ = client.command("POOL", "ADD", "many", *chunk)
    assert n == 300000
    seen = random.Random(1).sample(range(300000), 5000)
    client.command("PLAYED", "u", *(f"{n:07}" for n in seen))
    _, bitmap = client.command("FILTER", "u", "POOL", "many", "REPLY", "BITMAP")
    assert [i for i, bit in enumerate(bits(bitmap, 300000)) if not bit] == sorted(seen)
    client.command("POOL", "SET", "first", *chunks[0])
    client.command("PLAYED", "v", *chunks[0])
    assert texts(client.command("FILTER", "v", "POOL", "first", "POOL", "many", "LIMIT", "2")) == chunks[1][:2]
    for chunk in chunks[1:4]:
        client.command("PLAYED", "v", *chunk)
    assert texts(client.command("FILTER", "v", "POOL", "many", "LIMIT", "2", "DELIVER")) == chunks[4][:2]


def test_against_items_at_random(client):
    """Whatever was played, delivered, un-seen and blocked: from a pool the answer is that of the same ids."""
    chance = random.Random(7)
    client.command("POOL", "SET", "p", *HOT)
    for round in range(20):
        user = f"u{round}"
        for _ in range(chance.randrange(5)):
            client.command(chance.choice(["PLAYED", "DELIVERED"]), user, *chance.sample(HOT, chance.randrange(1, 90)))
        if chance.random() < 0.5:
            client.command("FORGET", user, *chance.sample(HOT, 5))
        client.command("BLOCK", user, *chance.sample(HOT, 30))
        options = ["SESSION", user] if chance.random() < 0.5 else []
        options += ["LIMIT", str(chance.randrange(1, 900))] if chance.random() < 0.5 else []
        assert client.command("FILTER", user, *options, "POOL", "p") == client.command("FILTER", user, *options, "ITEMS", *HOT)


def test_kept_over_kills_and_backups(make_server, folder):
    server = make_server()
    with server.client() as client:
        told = client.command("POOL", "SET", "hot", *HOT)
        client.command("PLAYED", "u", HOT[0])
        client.command("BACKUP", str(folder / "copy"))
    server.kill()
    server.start()
    with server.client() as client:
        assert texts(client.command("FILTER", "u", "POOL", "hot", "LIMIT", "1", "VERSION", told[1])) == [HOT[1]]
    server.stop()
    run("check", "--data", server.data)
    run("check", "--data", folder / "copy")


def test_damage_costs_one_pool(make_server, folder):
    server = make_server()
    with server.client() as client:
        for name in ("good", "bad"):
            client.command("POOL", "SET", name, *HOT)
    server.stop()
    with contextlib.closing(sqlite3.connect(server.data / "staging.db")) as db, db:
        db.execute("UPDATE pools SET items = 7 WHERE name = 'bad'")
    found = run("check", "--data", server.data, check=False)
    assert found.returncode == 1 and b'pool "bad" is damaged: items of it are missing, or too many' in found.stdout
    shutil.copytree(server.data, folder / "left")
    said = run("check", "--repair", "--data", server.data, check=False).stdout
    assert b'pool "bad" is lost' in said and b"good" not in said
    run("check", "--data", server.data)
    server.start()
    with server.client() as client:
        assert set(listed(client)) == {"good"}
    run("check", "--salvage", folder / "saved", "--data", folder / "left", check=False)
    server.stop()
    shutil.rmtree(server.data)
    shutil.copytree(folder / "saved", server.data)
    server.start()
    with server.client() as client:
        assert texts(client.command("FILTER", "u", "POOL", "good", "LIMIT", "1")) == HOT[:1]


def test_the_command_loads_lists_gets_and_drops(make_server, folder):
    server = make_server()
    to = ("--to", f"127.0.0.1:{server.port}")
    file = folder / "hot.txt"
    ids = [f"item-{n:07}" for n in range(50000)]  # some pieces
    file.write_text("\n".join(ids) + "\n")
    assert run("pool", "load", "hot", file, *to).stdout == b"50,000 items\n"
    with server.client() as client:
        assert client.command("POOL", "SET", "same", *ids) == [50000, listed(client)["hot"][b"version"]]
        assert set(listed(client)) == {"hot", "same"}
    assert run("pool", "get", "hot", *to).stdout.decode().split() == ids
    run("pool", "load", "hot", "-", *to, input=b"a\r\nb\n\xff")
    assert run("pool", "get", "hot", *to).stdout == b"a\nb\n\xff\n"
    table = run("pool", "list", *to).stdout.decode()
    assert re.search(r"^hot +3 ", table, re.MULTILINE) and re.search(r"^same +50,000 ", table, re.MULTILINE)
    assert [p["items"] for p in json.loads(run("pool", "list", "--json", *to).stdout)] == [3, 50000]
    for lines, says in ((b"a\n\nb\n", b"-:2: an id of 0 bytes: expected 1 to 255"), (b"", b"-: there are no ids")):
        failed = run("pool", "load", "hot", "-", *to, input=lines, check=False)
        assert failed.returncode == 1 and says in failed.stderr
    run("pool", "drop", "same", *to)
    assert b'there is no pool "same"' in run("pool", "drop", "same", *to, check=False).stderr
    assert b'there is no pool "same"' in run("pool", "get", "same", *to, check=False).stderr
    with server.client() as client:
        assert set(listed(client)) == {"hot"} and listed(client)["hot"][b"items"] == 3


class Cut:
    """A wire to a port that ends both sides when a word is said."""

    def __init__(self, port, word):
        self.port, self.word = port, word
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                self.carry(self.listener.accept()[0])

    def carry(self, near):
        with near, socket.create_connection(("127.0.0.1", self.port)) as far, contextlib.suppress(OSError):
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data or (ready is near and self.word in data):
                        return
                    (far if ready is near else near).sendall(data)


def versions(server):
    with server.client() as client:
        return {name: pool[b"version"] for name, pool in listed(client).items()}


def test_replicas_have_them(pair):
    primary, replica, wire = pair()
    say(primary, "POOL", "SET", "hot", *HOT)
    say(primary, "POOL", "SET", "gone", "x")
    level(primary, replica)
    assert versions(replica) == versions(primary) and len(versions(primary)) == 2
    say(primary, "POOL", "ADD", "hot", "more")
    say(primary, "POOL", "DROP", "gone")
    say(primary, "POOL", "SET", "new", *HOT)
    say(primary, "POOL", "RENAME", "new", "next")
    say(primary, "PLAYED", "u", HOT[0])
    level(primary, replica)
    assert versions(replica) == versions(primary) and set(versions(primary)) == {"hot", "next"}
    with replica.client() as client:
        assert texts(client.command("FILTER", "u", "POOL", "hot", "LIMIT", "1")) == [HOT[1]]
        with pytest.raises(RespError, match="READONLY .* takes writes"):
            client.command("POOL", "SET", "hot", "x")
    replica.kill()
    say(primary, "POOL", "SET", "hot", *HOT[:10])
    replica.start()
    level(primary, replica)
    assert versions(replica) == versions(primary)


def test_a_large_one_comes_in_parts(pair):
    primary, replica, _ = pair()
    ids = [f"{n:0200}" for n in range(6000)]  # 1.2 MB
    say(primary, "POOL", "SET", "large", *ids)
    level(primary, replica)
    assert versions(replica) == versions(primary)
    with replica.client() as client:
        assert texts(client.command("FILTER", "u", "POOL", "large")) == ids


def served_alone(make_server, data, primary):
    """The folder of a clone, served while its primary is gone: what it has then, the clone has brought."""
    primary.kill()
    server = make_server(clock=None)
    server.stop()
    shutil.rmtree(server.data)
    shutil.copytree(data, server.data)
    server.options["replica_of"] = f"127.0.0.1:{primary.port}"
    server.start()
    return server


def test_a_clone_brings_them(make_server, folder):
    primary = make_server(clock=None)
    ids = [f"{n:0200}" for n in range(6000)]  # in three parts
    say(primary, "POOL", "SET", "large", *ids)
    say(primary, "POOL", "SET", b"\xff", "a", b"\xfe")
    say(primary, "PLAYED", "u", ids[0])
    told = run("clone", f"127.0.0.1:{primary.port}", "--data", folder / "cloned").stdout.decode()
    assert "1 user and 2 pools copied" in told
    with primary.client() as client:
        before = {p[b"name"]: p[b"version"] for p in map(flat_bytes, client.command("POOL", "LIST"))}
    replica = served_alone(make_server, folder / "cloned", primary)
    with replica.client() as client:
        assert {p[b"name"]: p[b"version"] for p in map(flat_bytes, client.command("POOL", "LIST"))} == before
        assert texts(client.command("FILTER", "u", "POOL", "large")) == ids[1:]


def test_a_clone_that_goes_on_takes_what_changed(make_server, folder):
    """Cut short behind its pools: the users' page is never answered."""
    primary = make_server(clock=None)
    say(primary, "POOL", "SET", "stays", *HOT)
    say(primary, "POOL", "SET", "goes", "x")
    say(primary, "POOL", "SET", "grows", "x")
    say(primary, "PLAYED", "u", "x")
    with Cut(primary.port, b"USERS") as wire:
        failed = run("clone", wire.address, "--data", folder / "cloned", check=False)
        assert failed.returncode == 1, failed
    say(primary, "POOL", "DROP", "goes")
    say(primary, "POOL", "ADD", "grows", "y")
    told = run("clone", f"127.0.0.1:{primary.port}", "--data", folder / "cloned").stdout.decode()
    assert "going on" in told and "1 user and 1 pool copied" in told
    before = versions(primary)
    replica = served_alone(make_server, folder / "cloned", primary)
    assert versions(replica) == before and set(before) == {"stays", "grows"}


def test_a_promoted_node_has_them_and_an_old_primary_follows(pair, folder):
    primary, replica, _ = pair()
    say(primary, "POOL", "SET", "hot", *HOT)
    level(primary, replica)
    primary.kill()
    assert say(replica, "REPLICA", "PROMOTE", "FORCE")
    told = say(replica, "POOL", "ADD", "hot", "more")
    assert told[0] == 1001
    primary.start()  # knows of nothing yet
    with primary.client() as client:
        try:
            client.command("POOL", "SET", "mine", "x")
        except RespError:
            pass  # it was told of the promotion before
    primary.stop()
    run("rejoin", f"127.0.0.1:{replica.port}", "--data", primary.data)
    primary.start()
    level(replica, primary)
    assert versions(primary) == versions(replica) == {"hot": told[1]}


def test_a_protocol_without_pools_is_asked_for_none(pair, monkeypatch):
    monkeypatch.setenv("UNSEEN_TEST_PROTOCOL", "2")
    primary, replica, _ = pair(clock=1795255200000)
    say(primary, "PLAYED", "u", "a")
    level(primary, replica)
