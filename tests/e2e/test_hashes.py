"""Questions with hashes instead of ids, against a real server: they answer as the same ids do, wherever a play stands.
What each edge says of good and bad ones is in test_conformance.py."""
import ctypes
import ctypes.util
import random
import struct

import pytest

from conftest import DAY, START
from resp import RespError, flat
from test_http import Asker
from test_read_through import make_noted, make_old, wait_done, zadd  # noqa: F401

SEED, FINGERPRINT = "0123456789abcdef", "07f90ff4"
ASKED = [f"i{n}" for n in range(3000)]


@pytest.fixture(scope="module")
def xxh3():
    """XXH3 of libxxhash, as a client has it."""
    library = ctypes.util.find_library("xxhash")
    if library is None:
        pytest.skip("libxxhash0 is not installed")
    function = ctypes.CDLL(library).XXH3_64bits_withSeed
    function.restype, function.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
    return lambda seed, item: function(item, len(item), seed)


def told(client):
    return {k.decode() if isinstance(k, bytes) else k: v.decode() for k, v in flat(client.command("SEED")).items()}


def packed(hash_of, seed, items):
    return b"".join(struct.pack("<Q", hash_of(seed, item.encode() if isinstance(item, str) else item)) for item in items)


def ask(client, user, hashes, *options, fingerprint=FINGERPRINT, reply="BITMAP"):
    return client.command("FILTER", user, "REPLY", reply, *options, "SEED", fingerprint, "HASHES", hashes)


def refused(client, *words, **options):
    with pytest.raises(RespError) as e:
        ask(client, *words, **options)
    return str(e.value)


def same(client, user, hashes, items=ASKED):
    """The answer by hashes, after it was the one by ids in each form."""
    bitmap = ask(client, user, hashes)
    assert bitmap == client.command("FILTER", user, "REPLY", "BITMAP", "ITEMS", *items)
    indexes = ask(client, user, hashes, reply="INDEXES")
    assert indexes == client.command("FILTER", user, "REPLY", "INDEXES", "ITEMS", *items)
    assert ask(client, user, hashes, "LIMIT", 7, reply="INDEXES") == indexes[:7]
    return bitmap


@pytest.mark.parametrize("protocol", (2, 3))
def test_seed(make_server, protocol):
    server = make_server(hash_seed=SEED, http="127.0.0.1:0")
    with server.client(protocol) as c, Asker(server) as a:
        assert told(c) == {"hash": "xxh3-64", "seed": SEED, "fingerprint": FINGERPRINT}
        assert a.good("GET", "/v1/seed") == told(c)
        assert f"seed_fingerprint:{FINGERPRINT}" in c.command("INFO", "persistence").decode()
        assert SEED not in server.log() and SEED not in c.command("INFO").decode()


def test_a_drawn_seed_is_kept(make_server, xxh3):
    server = make_server()
    with server.client() as c:
        first = told(c)
        c.command("PLAYED", "u", "a")
    assert server.stop() == 0
    server.start()
    with server.client() as c:
        assert told(c) == first
        hashes = packed(xxh3, int(first["seed"], 16), ["a", "b"])
        assert ask(c, "u", hashes, fingerprint=first["fingerprint"]) == b"\x40"
        assert refused(c, "u", hashes).startswith(f"SEED the hashes were made with the seed {FINGERPRINT}, and here it is ")


@pytest.mark.parametrize("store", ("sqlite", "memory", "memory:later"))
def test_wherever_a_play_stands(make_server, xxh3, store):
    server = make_server(hash_seed=SEED, store=store)
    binary = [b"\xff\x00", b"a\r\n$3", b"x" * 255]
    hashes = packed(xxh3, int(SEED, 16), ASKED)
    with server.client() as c:
        c.command("PLAYEDAT", "u", START - 70 * DAY, *ASKED[:500])
        c.command("PLAYEDAT", "u", START - 150 * DAY, *ASKED[2000:2100])  # before the window
        c.command("PLAYED", "u", *ASKED[400:900:2], *binary)
        if store == "sqlite":
            c.command("RING", "FLUSH")
        c.command("PLAYED", "u", *ASKED[1000:1100])
        c.command("DELIVERED", "u", *ASKED[1200:1250])
        c.command("FORGET", "u", ASKED[3], ASKED[1001])
        bitmap = same(c, "u", hashes)
        assert same(c, "nobody", hashes) == b"\xff" * 375
        assert not any(bitmap[i // 8] >> (7 - i % 8) & 1 for i in (0, 499, 898, 1000, 1249))
        assert all(bitmap[i // 8] >> (7 - i % 8) & 1 for i in (3, 1001, 2050))
        assert ask(c, "u", packed(xxh3, int(SEED, 16), [*binary, b"new"])) == b"\x10"


def test_in_a_transaction_pipelined_and_in_pieces(make_server, xxh3):
    server = make_server(hash_seed=SEED)
    hashes = packed(xxh3, int(SEED, 16), ASKED)
    with server.client() as c:
        c.command("PLAYED", "u", *ASKED[:8])
        assert c.command("MULTI") == b"OK"
        assert ask(c, "u", hashes) == b"QUEUED"
        assert ask(c, "u", hashes[:17]) == b"QUEUED"
        c.command("PLAYED", "u", ASKED[8])
        assert ask(c, "u", hashes) == b"QUEUED"
        before, bad, played, after = c.command("EXEC")
        assert before[:2] == b"\x00\xff" and after[:2] == b"\x00\x7f" and played == 1
        assert str(bad) == "ERR HASHES has 17 bytes: expected a multiple of 8, the bytes of a hash"
        words = ("FILTER", "u", "REPLY", "BITMAP", "SEED", FINGERPRINT, "HASHES", hashes)
        assert c.pipeline([words] * 50) == [after] * 50
        rng = random.Random(18)
        for _ in range(20):  # any bytes are hashes
            assert len(ask(c, "u", rng.randbytes(8 * 1000))) == 125


def test_the_slow_log_has_no_seed(make_server, xxh3):
    server = make_server(hash_seed=SEED, slowlog_slower_than="0")
    with server.client() as c:
        ask(c, "u", packed(xxh3, int(SEED, 16), ["a"]))
        told(c)
        entries = c.command("SLOWLOG", "GET", "-1")
        assert [b"SEED"] in [entry[3] for entry in entries]
        assert SEED.encode() not in repr(entries).encode()


def test_who_is_still_to_be_migrated(make_server, make_old, xxh3):  # noqa: F811
    """The old Redis knows ids only: an answer without it would show again what was played there."""
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START - i, f"p{i}") for i in range(20)])
    server = make_noted(make_server, redis, "u", hash_seed=SEED)
    hashes = packed(xxh3, int(SEED, 16), ["p1", "x"])
    with server.client() as c:
        assert refused(c, "u", hashes) == ("ERR the old Redis knows no hashes: about a user who is still to be migrated "
                                           "ask with ITEMS")
        assert c.command("FILTER", "u", "REPLY", "BITMAP", "ITEMS", "p1", "x") == b"\x40"
        assert ask(c, "another", hashes) == b"\xc0"
        c.command("LEGACY", "RESUME")
        wait_done(server)
        assert ask(c, "u", hashes) == b"\x40"
