"""Debian's redis-py, which speaks RESP2 and wraps its pipelines in MULTI."""
import threading

import pytest
import redis

STORES = ("sqlite", "memory:later")
NEEDS_FOLDER = {"test_fifty_connections_at_once",
                "test_forget_between_two_plays_of_a_pipeline",
                "test_ids_are_bytes",
                "test_many_candidates"}



@pytest.fixture
def r(server):
    client = redis.Redis(port=server.port)
    yield client
    client.close()


def test_commands(r):
    assert r.ping()
    assert r.execute_command("PLAYED", "u1", "a", "b") == 2
    assert r.execute_command("UNSEEN", "u1", "a", "x", "b", "y") == [b"x", b"y"]
    assert r.execute_command("SEEN", "u1", "a", "x") == [1, 0]
    bitmap = r.execute_command("FILTER", "u1", "REPLY", "BITMAP", "ITEMS", *"axbyz")
    assert bitmap == bytes([0b01011000])
    history = r.execute_command("HISTORY", "u1")
    assert history[0:2] == [b"user", b"u1"]
    assert r.execute_command("HISTORY", "nobody") is None
    assert r.info()["role"] == "master"
    assert r.info()["loading"] == 0
    assert r.config_get("slots") == {"slots": "6"}
    assert r.client_setname("me") and r.client_getname() == "me"


def test_pipeline_with_multi(r):
    """The default pipeline: MULTI, the commands, EXEC."""
    pipe = r.pipeline()
    for i in range(500):
        pipe.execute_command("PLAYED", f"u{i % 7}", f"i{i}")
    pipe.execute_command("UNSEEN", "u3", "i3", "i10", "i4", "new")
    answers = pipe.execute()
    assert answers[:500] == [1] * 500
    assert answers[500] == [b"i4", b"new"]


def test_pipeline_without_multi(r):
    pipe = r.pipeline(transaction=False)
    for i in range(2000):
        pipe.execute_command("PLAYED", "u1", f"i{i}")
        pipe.execute_command("UNSEEN", "u1", f"i{i}", f"j{i}")
    answers = pipe.execute()
    assert answers[0::2] == [1] * 2000
    assert answers[1::2] == [[b"j%d" % i] for i in range(2000)]


def test_forget_between_two_plays_of_a_pipeline(r):
    for transaction in (True, False):
        pipe = r.pipeline(transaction=transaction)
        for i in range(100):
            pipe.execute_command("PLAYED", f"f{i}", "before")
            pipe.execute_command("UNSEEN", f"f{i}", "before")
            pipe.execute_command("FORGET", f"f{i}")
            pipe.execute_command("UNSEEN", f"f{i}", "before")
            pipe.execute_command("PLAYED", f"f{i}", "after")
            pipe.execute_command("UNSEEN", f"f{i}", "before", "after")
        answers = pipe.execute()
        assert answers == [1, [], 1, [b"before"], 1, [b"before"]] * 100
    assert r.execute_command("RING", "FLUSH")
    assert r.execute_command("UNSEEN", "f7", "before", "after") == [b"before"]


def test_errors_in_a_pipeline_concern_their_command_only(r):
    pipe = r.pipeline(transaction=False)
    pipe.execute_command("PLAYED", "u1", "a")
    pipe.execute_command("PLAYED", "u1", "", "b")
    pipe.execute_command("NOSUCH", "x")
    pipe.execute_command("PLAYED", "u1", "c")
    answers = pipe.execute(raise_on_error=False)
    assert answers[0] == 1 and answers[3] == 1
    assert isinstance(answers[1], redis.ResponseError) and "item" in str(answers[1])
    assert isinstance(answers[2], redis.ResponseError) and "unknown command" in str(answers[2])
    assert r.execute_command("UNSEEN", "u1", "a", "b", "c") == [b"b"]


def test_a_bad_command_in_multi_aborts_it(r):
    pipe = r.pipeline()
    pipe.execute_command("PLAYED", "u1", "a")
    pipe.execute_command("NOSUCH")
    with pytest.raises(redis.RedisError):
        pipe.execute()
    assert r.execute_command("UNSEEN", "u1", "a") == [b"a"]


def test_ids_are_bytes(r):
    item = bytes(range(255))
    assert r.execute_command("PLAYED", b"\x00\xff", item, b"\r\n") == 2
    assert r.execute_command("UNSEEN", b"\x00\xff", item, b"\r\n", b"\r") == [b"\r"]
    assert r.execute_command("RING", "FLUSH")
    assert r.execute_command("UNSEEN", b"\x00\xff", item, b"\r\n", b"\r") == [b"\r"]
    assert r.execute_command("UNSEEN", b"\x00", item) == [item]


def test_many_candidates(r):
    items = [f"item:{i:020d}" for i in range(65536)]
    assert r.execute_command("PLAYED", "u1", *items[::2]) == 32768
    unseen = r.execute_command("UNSEEN", "u1", *items)
    assert unseen == [i.encode() for i in items[1::2]]
    assert r.execute_command("RING", "FLUSH")
    unseen = r.execute_command("UNSEEN", "u1", *items)
    assert set(unseen) <= {i.encode() for i in items[1::2]}
    assert len(unseen) >= 32768 - 10  # a filter of 32768 plays hides 0.25 of 32768 others, on average
    with pytest.raises(redis.ResponseError, match="65536"):
        r.execute_command("UNSEEN", "u1", *items, "one more")


@pytest.mark.threads
def test_fifty_connections_at_once(server):
    """Every connection reads its own writes, and those acknowledged to others."""
    acknowledged, problems, lock = set(), [], threading.Lock()

    def work(n):
        r = redis.Redis(port=server.port)
        try:
            for i in range(20):
                item = f"i{n}.{i}"
                assert r.execute_command("PLAYED", f"u{n % 10}", item) == 1
                with lock:
                    acknowledged.add((n % 10, item))
                    sample = list(acknowledged)[-20:]
                for user, other in sample:
                    if r.execute_command("UNSEEN", f"u{user}", other, "new") != [b"new"]:
                        problems.append((user, other))
                if i % 7 == 3 and n % 10 == 0:
                    r.execute_command("RING", "FLUSH")
        except Exception as e:  # noqa: BLE001: a thread's exception must reach the test
            problems.append(repr(e))
        finally:
            r.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert problems == []
    r = redis.Redis(port=server.port)
    for n in range(10):
        items = [item for user, item in acknowledged if user == n]
        assert r.execute_command("UNSEEN", f"u{n}", *items) == []
    r.close()
