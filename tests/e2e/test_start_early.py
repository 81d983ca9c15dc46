"""Plays are taken while the server still reads what was staged: over each edge, durably, also when it is killed then."""
import contextlib
import http.client
import json
import signal
import sqlite3
import time

import pytest

from conftest import PATIENCE, free_port, run, until
from resp import RespError

ROWS = 300000
STALL = 10 * 60 * 1000  # until it is killed, or goes on


def stage(server):
    """As a run before left it."""
    with contextlib.closing(sqlite3.connect(server.data / "staging.db")) as db, db:
        db.execute(f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) INSERT INTO "
                   f"staged_4 SELECT 1000000 + i, 1, 'u' || (i % 1000), 'item' || i, {server.clock} FROM n")


@contextlib.contextmanager
def held(server, ms):
    """Starts it, and holds its recovery for so long; it is killed at the end, unless it has ended by then. Where the
    recovery was over before that could be said, the server is stopped, which loses nothing, and started again."""
    deadline = time.monotonic() + PATIENCE * 4
    while time.monotonic() < deadline:
        server.spawn()
        while server.alive():
            try:
                c = server.client()
            except OSError:
                continue
            while True:
                try:
                    c.command("DEBUG", "STALL", "recovery", ms)
                    if b"loading:1" in c.command("INFO", "persistence"):
                        try:
                            yield c
                        finally:
                            server.kill()
                            c.close()
                        return
                except RespError:
                    pass
                if b"loading:1" not in c.command("INFO", "persistence"):
                    break
            c.close()
            break
        server.stop()
    raise AssertionError(f"the recovery was never seen\n{server.log()}")


def taken(c, *command):
    """The port is open a moment before plays are taken."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return c.command(*command)
        except RespError as e:
            assert str(e).startswith("LOADING") and time.monotonic() < deadline, e


def go_on(c):
    c.command("DEBUG", "STALL", "recovery", 0)


def told_to_stop(server, number=signal.SIGTERM):
    """Sends the signal; returns once it was heard."""
    said = f"stopping signal={number.name[3:]}"
    heard = server.log().count(said)
    server.process.send_signal(number)
    until(lambda: server.log().count(said) > heard or not server.alive(), server.log)
    assert server.alive(), server.log()


def refused(c, *command):
    try:
        return c.command(*command)
    except RespError as e:
        return str(e)


def ask(port, method, path, body=None):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as c:
        c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"} if body else {})
        answer = c.getresponse()
        return answer.status, answer.read()


def test_plays_while_it_recovers(make_server):
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}")
    assert server.stop() == 0
    stage(server)
    for life in range(2):  # it is killed meanwhile, twice
        with held(server, STALL) as c:
            assert taken(c, "PLAYED", "u1", f"new{life}") == 1
            assert c.command("PLAYEDAT", "u1", server.clock, f"at{life}") == 1
            assert c.command("DELIVERED", "u1", f"sent{life}", f"more{life}") == 2
            status, answer = ask(port, "POST", "/v1/played", {"user": "u2", "items": [f"web{life}"]})
            assert status == 200 and json.loads(answer) == {"recorded": 1}
            for question in (("UNSEEN", "u1", "item1"), ("FORGET", "u1"), ("RING",), ("BLOCK", "s", "1"),
                             ("FILTER", "u1", "LIMIT", 1, "DELIVER", "ITEMS", "a"), ("PING",)):
                assert refused(c, *question).startswith("LOADING"), question
            assert "% of what was staged is read" in refused(c, "UNSEEN", "u1", "item1")
            shown = c.command("INFO", "persistence").decode()
            assert "loading:1" in shown and "loading_takes_plays:1" in shown
            status, why = ask(port, "GET", "/readyz")
            assert status == 503 and b"plays and deliveries are taken" in why
            assert b"\nunseen_loading 1\n" in ask(port, "GET", "/metrics")[1]
    server.start()
    with server.client() as c:
        asked = [f"{word}{life}" for life in range(2) for word in ("new", "at", "sent", "more")]
        assert c.command("UNSEEN", "u1", *asked, "item1", "item1001", "never") == [b"never"]
        assert c.command("UNSEEN", "u2", "web0", "web1", "item2", "never") == [b"never"]
        assert c.command("FORGET", "u1") == 1
        assert c.command("UNSEEN", "u1", *asked, "item1", "never") == [*(a.encode() for a in asked), b"item1", b"never"]
        c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "u2", "web0", "web1", "item2", "never") == [b"never"]
    assert server.stop() == 0


WEB = [
    ("POST", "/v1/unseen", {"user": "u1", "items": ["a"]}),
    ("POST", "/v1/unseen:batch", {"users": ["u1"], "items": ["a"]}),
    ("POST", "/v1/why", {"user": "u1", "item": "a"}),
    ("POST", "/v1/block", {"session": "s", "ids": [1]}),
    ("POST", "/v1/unblock", {"session": "s", "all": True}),
    ("GET", "/v1/users/u1", None),
    ("DELETE", "/v1/users/u1", None),
    ("GET", "/v1/pools", None),
    ("GET", "/v1/pools/p", None),
    ("PUT", "/v1/pools/p", {"items": ["a"]}),
    ("POST", "/v1/pools/p", {"items": ["a"]}),
    ("DELETE", "/v1/pools/p", None),
    ("GET", "/v1/seed", None),
    ("GET", "/v1/ring", None),
    ("GET", "/v1/months", None),
]


def test_http_while_it_recovers(make_server):
    """Plays and deliveries are taken; whatever else is asked is 503, with when to come back and how far it is."""
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}")
    assert server.stop() == 0
    stage(server)
    with held(server, STALL) as c:
        assert taken(c, "PLAYED", "u1", "redis") == 1
        assert ask(port, "POST", "/v1/played", {"user": "u1", "items": ["web"]})[0] == 200
        assert ask(port, "POST", "/v1/delivered", {"user": "u1", "items": ["sent"]})[0] == 200
        for method, path, body in WEB:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as asked:
                asked.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"} if body else {})
                answer = asked.getresponse()
                problem = json.loads(answer.read())
            assert answer.status == 503 and answer.headers["Retry-After"] == "1", (path, problem)
            assert "recovering" in problem["type"] and "% of it is read" in problem["detail"], problem
        told_to_stop(server)
        go_on(c)
        assert server.process.wait(PATIENCE) == 0
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u1", "redis", "web", "sent", "item1", "never") == [b"never"]


@pytest.mark.parametrize("options", [{"replica_ack": "replica"}, {"front_redis": "127.0.0.1:1"},
                                     {"legacy_redis": "127.0.0.1:1", "legacy_mirror": "yes"}], ids=lambda o: list(o)[-1])
def test_who_takes_none_yet(make_server, options):
    """A play that must wait for a replica is not taken before one could answer, nor one that a mirror or a front would
    miss."""
    server = make_server(**options)
    assert server.stop() == 0
    stage(server)
    with held(server, STALL) as c:
        assert refused(c, "PLAYED", "u1", "new").startswith("LOADING")
        assert b"loading_takes_plays:0" in c.command("INFO", "persistence")
    server.start()
    assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_it_recovers(make_server, number):
    """It doesn't wait for the recovery, and loses nothing of what was staged before or taken meanwhile."""
    server = make_server()
    assert server.stop() == 0
    stage(server)
    for life in range(2):
        with held(server, STALL) as c:
            ready = server.log().count(" ready ")
            assert taken(c, "PLAYED", "u1", f"new{life}", f"more{life}") == 2
            told_to_stop(server, number)
            go_on(c)
            assert server.process.wait(PATIENCE) == 0, server.log()
        assert server.log().count(" ready ") == ready
        assert server.log().rstrip().endswith("info stopped")
        assert server.sqlite("staging.db", "SELECT count(*) FROM staged") == str(ROWS + 2 * (life + 1))
        assert not (server.data / "staging.db-wal").exists()
    server.start()
    with server.client() as c:
        asked = [f"{word}{life}" for life in range(2) for word in ("new", "more")]
        assert c.command("UNSEEN", "u1", *asked, "item1", "item1001", "never") == [b"never"]
        c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "u1", *asked, "item1", f"item{ROWS - 999}", "never") == [b"never"]
    assert server.stop() == 0
    assert run("check", "--data", server.data).returncode == 0


def test_told_twice_to_stop_while_it_recovers(make_server):
    """A recovery that stands still, as on a disk that does not answer, keeps nobody from ending it."""
    server = make_server()
    assert server.stop() == 0
    stage(server)
    with held(server, STALL) as c:
        assert taken(c, "PLAYED", "u1", "new") == 1
        told_to_stop(server)
        assert c.command("PLAYED", "u1", "late") == 1  # nothing has stopped yet
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 1, server.log()
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u1", "new", "late", "item1", "never") == [b"never"]
    assert server.stop() == 0


def test_more_than_memory_holds(make_server):
    """A start with less memory than what was staged takes flushes it in parts, while plays are taken. It ends amid that,
    and again, and goes on where it was."""
    flushed = "not all that was staged fits into memory"
    server = make_server()
    assert server.stop() == 0
    stage(server)
    server.options["staging_memory"] = "4MiB"
    for life, number in enumerate((signal.SIGKILL, signal.SIGTERM)):
        with held(server, STALL) as c:
            assert taken(c, "PLAYED", "u1", f"new{life}") == 1
            said = server.log().count(flushed)
            go_on(c)
            until(lambda: server.log().count(flushed) >= said + 2 or server.is_ready() or not server.alive(), server.log)
            assert server.alive(), server.log()
            server.process.send_signal(number)
            assert server.process.wait(PATIENCE) in (0, -signal.SIGKILL), server.log()
    left = int(server.sqlite("staging.db", "SELECT count(*) FROM staged"))
    assert left < ROWS
    server.start()
    asked = [f"item{i}" for i in range(7, ROWS, 1000)]
    with server.client() as c:
        assert c.command("UNSEEN", "u7", *asked, "never") == [b"never"]
        assert c.command("UNSEEN", "u1", "new0", "new1", "item1", "never") == [b"never"]
        c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "u7", *asked, "never") == [b"never"]
        assert c.command("FORGET", "u7") == 1
        assert len(c.command("UNSEEN", "u7", *asked)) == len(asked)
    assert server.stop() == 0
    assert run("check", "--data", server.data).returncode == 0
