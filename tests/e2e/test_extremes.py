"""Users, questions and clients at the far end of what is allowed. Each must be answered right and within the memory that is
configured. (A client that doesn't read: test_bad_input.py. A clock that jumps in the middle of a flush, to the row:
clock_a_month_ahead_in_a_flush.scn of tests/scenario.)"""
import resource

import pytest

from conftest import DAY, START, peak_memory
from resp import Client, encode

ITEMS_MAX = 65536
MIB = 1 << 20


def bits(bitmap, n):
    return [bitmap[i // 8] >> (7 - i % 8) & 1 for i in range(n)]


@pytest.mark.slow
def test_a_million_plays_in_a_month(server, client):
    count = 1_000_000
    for first in range(0, count, ITEMS_MAX):
        items = [f"v{i}" for i in range(first, min(first + ITEMS_MAX, count))]
        assert client.command("PLAYED", "giant", *items) == len(items)
    ask = [f"v{i}" for i in range(0, count, 20)] + [f"w{i}" for i in range(15000)]
    expected = [1] * 50000

    def check():
        got = client.command("SEEN", "giant", *ask)
        assert got[:50000] == expected
        assert sum(got[50000:]) < 30  # the filter's error is 1,000,000 / 2^32 a candidate

    check()
    client.command("RING", "FLUSH")
    check()
    history = client.command("HISTORY", "giant")
    fields = dict(zip(history[::2], history[1::2]))
    assert fields[b"staged"] == 0
    assert client.command("FORGET", "giant") == 1
    assert sum(client.command("SEEN", "giant", *ask)) == 0
    # Staged plays, requests, tables of questions; the configuration allows twice as much.
    assert peak_memory(server) < 256 * MIB


def test_every_candidate_of_the_largest_question(server, client):
    items = [f"i{i}" for i in range(ITEMS_MAX)]
    assert client.command("UNSEEN", "u", *items) == [i.encode() for i in items]
    assert client.command("PLAYED", "u", *items) == ITEMS_MAX
    for _ in range(2):
        assert client.command("UNSEEN", "u", *items) == []
        assert client.command("FILTER", "u", "REPLY", "BITMAP", "ITEMS", *items) == bytes(ITEMS_MAX // 8)
        assert client.command("FILTER", "u", "REPLY", "INDEXES", "ITEMS", *items) == []
        client.command("RING", "FLUSH")
    assert peak_memory(server) < 64 * MIB


def test_the_same_candidate_again_and_again(server, client):
    client.command("PLAYED", "u", "seen")
    assert client.command("SEEN", "u", *["seen"] * ITEMS_MAX) == [1] * ITEMS_MAX
    assert client.command("SEEN", "u", *["new"] * ITEMS_MAX) == [0] * ITEMS_MAX
    assert client.command("UNSEEN", "u", *["new", "seen"] * 1000) == [b"new"] * 1000
    assert bits(client.command("FILTER", "u", "REPLY", "BITMAP", "ITEMS", *["new", "seen"] * 10), 20) == [1, 0] * 10
    assert peak_memory(server) < 64 * MIB


def test_shortest_and_longest_ids(server, client):
    short = [bytes([i]) for i in range(256)]
    long = [bytes([i]) * 255 for i in range(256)]
    client.command("PLAYED", b"\x00", *short[::2], *long[::2])
    client.command("PLAYED", b"\xff" * 255, *short[1::2], *long[1::2])
    for _ in range(2):
        assert client.command("UNSEEN", b"\x00", *short, *long) == short[1::2] + long[1::2]
        assert client.command("UNSEEN", b"\xff" * 255, *short, *long) == short[::2] + long[::2]
        client.command("RING", "FLUSH")
    most = [b"%0255d" % i for i in range(60000)]  # 15.8 MB, of the 16 MiB that a request may have
    assert client.command("UNSEEN", "u", *most) == most
    assert peak_memory(server) < 128 * MIB


@pytest.mark.slow
def test_ten_thousand_idle_connections(make_server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10000
    if hard < wanted + 200:
        pytest.skip(f"not here: the limit of open files is {hard}, {wanted + 200} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 200), hard))
    server = make_server()
    before = peak_memory(server)
    idle = []
    try:
        for i in range(wanted - 10):
            idle.append(Client(server.address))
            if i % 100 == 0:
                idle[-1].send(encode("PLAYED", f"u{i}", "i"))  # and some have said something
        for i in range(0, wanted - 10, 100):
            assert idle[i].read() == 1
        with server.client() as busy:
            assert busy.command("PLAYED", "u", "a") == 1
            assert busy.command("UNSEEN", "u", "a", "b") == [b"b"]
        assert peak_memory(server) - before < 128 * MIB
    finally:
        for client in idle:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_clock_jumps_a_month_in_the_middle_of_a_flush(make_server):
    server = make_server(clock=START, sweep_window="00:00-24:00")
    users = [f"u{i}" for i in range(3000)]
    with server.client() as c, server.client() as flusher:
        c.pipeline([("PLAYED", u, "a", "b") for u in users])
        flusher.send(encode("RING", "FLUSH"))
        c.command("DEBUG", "JUMP", 31 * DAY)
        c.pipeline([("PLAYED", u, "c") for u in users])
        flusher.read()
        for now in ("jumped", "back"):
            assert all(r == [b"d"] for r in c.pipeline([("UNSEEN", u, "a", "b", "c", "d") for u in users])), now
            c.command("DEBUG", "JUMP", -31 * DAY if now == "jumped" else 0)
        c.command("RING", "FLUSH")
        assert all(r == [b"d"] for r in c.pipeline([("UNSEEN", u, "a", "b", "c", "d") for u in users]))


def test_a_large_user_in_every_form_of_question(server, client):
    """Asked aside, by another thread and another algorithm: the answers are those of any user, in their order."""
    count = 130_000
    for first in range(0, count, ITEMS_MAX):
        items = [f"v{i}" for i in range(first, min(first + ITEMS_MAX, count))]
        assert client.command("PLAYED", "giant", *items) == len(items)
    client.command("PLAYED", "giant", "staged")
    ask = ["staged", "new1", *(f"v{i}" for i in range(0, count, 1000)), "new2", "new3"]

    def check(month):
        with server.client() as small:
            for c in (client, small):
                c.send(encode("SEEN", "giant", *ask) + encode("UNSEEN", "small", "a"))
            for c in (client, small):
                assert c.read() == [1, 0] + [1] * (len(ask) - 4) + [0, 0]
                assert c.read() == [b"a"]
        assert client.command("UNSEEN", "giant", *ask) == [b"new1", b"new2", b"new3"]
        bitmap = client.command("FILTER", "giant", "REPLY", "BITMAP", "ITEMS", *ask)
        assert [i for i, unseen in enumerate(bits(bitmap, len(ask))) if unseen] == [1, len(ask) - 2, len(ask) - 1]
        indexes = ("FILTER", "giant", "REPLY", "INDEXES", "LIMIT", 2, "ITEMS", *ask)
        assert client.command(*indexes) == [1, len(ask) - 2]
        assert client.command("WHY", "giant", "v5") == [month]
        assert client.command("WHY", "giant", "new1") == []
        for command in (["MULTI"], ["SEEN", "giant", "v1", "new1"], ["PLAYED", "small", "b"], ["WHY", "giant", "v1"]):
            client.command(*command)
        assert client.command("EXEC") == [[1, 0], 1, [month]]

    check(b"staged")
    client.command("RING", "FLUSH")
    check(b"2026-11")
    history = client.command("HISTORY", "giant")
    assert dict(zip(history[::2], history[1::2]))[b"staged"] == 0
    assert client.command("FILTER", "giant", "LIMIT", 2, "DELIVER", "ITEMS", *ask) == [b"new1", b"new2"]
    assert client.command("UNSEEN", "giant", *ask) == [b"new3"]
    assert client.command("FORGET", "giant", "v1000", "new1") == 2
    assert client.command("UNSEEN", "giant", *ask) == [b"new1", b"v1000", b"new3"]
    info = dict(line.split(b":", 1) for line in client.command("INFO").splitlines() if b":" in line)
    assert int(info[b"large_questions"]) > 20
    assert client.command("FORGET", "giant") == 1
    assert client.command("UNSEEN", "giant", *ask) == [i.encode() for i in ask]
