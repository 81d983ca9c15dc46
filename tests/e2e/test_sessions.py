"""Scroll sessions against a real server: what is blocked, for how long, within which memory, and over restarts."""
import contextlib
import random
import sqlite3
import subprocess
import threading

import pytest

from conftest import PATIENCE
from resp import RespError
from test_start_early import STALL, go_on, held, stage

MINUTE = 60 * 1000

STORES = ("sqlite", "memory:later")
NEEDS_FOLDER = {"test_a_start_that_cannot_read_them_fails_and_loses_none",
                "test_kept_by_a_release_that_knew_only_numbers",
                "test_kept_over_a_clean_restart_and_then_forgotten"}


def info(client, name):
    lines = client.command("INFO", "sessions").decode().splitlines()
    return int(dict(line.split(":") for line in lines if ":" in line)[name])


def unseen(client, session, *items):
    return [item.decode() for item in client.command("FILTER", "u", "SESSION", session, "ITEMS", *items)]


def test_fifteen_screens(client):
    shown = set()
    for screen in range(15):
        candidates = [str(n) for n in range(1, 401)]
        left = unseen(client, "s", *candidates)
        assert set(left) == set(candidates) - shown
        screen_ids = left[:20]
        assert client.command("BLOCK", "s", *screen_ids) == 20
        shown |= set(screen_ids)
    assert client.command("UNBLOCK", "s") == 300
    assert unseen(client, "s", "1", "x") == ["1", "x"]


def test_blocked_and_played_and_delivered_together(client):
    client.command("PLAYED", "u", "1")
    client.command("BLOCK", "s", "2")
    assert unseen(client, "s", "1", "2", "3") == ["3"]
    assert client.command("FILTER", "u", "SESSION", "s", "LIMIT", "1", "DELIVER", "ITEMS", "1", "2", "3", "4") == [b"3"]
    assert unseen(client, "s", "1", "2", "3", "4") == ["4"]
    assert client.command("UNSEEN", "u", "2") == [b"2"]
    assert client.command("FORGET", "u") == 1  # sessions are no part of a user
    assert unseen(client, "s", "1", "2", "3") == ["1", "3"]


def test_ten_minutes_after_the_last_use(server, client):
    client.command("BLOCK", "a", "1")
    client.command("BLOCK", "b", "1")
    server.advance(10 * MINUTE - 1)
    assert unseen(client, "a", "1") == []
    server.advance(1)
    assert unseen(client, "b", "1") == ["1"]
    assert unseen(client, "a", "1") == []
    server.advance(10 * MINUTE)
    assert info(client, "sessions") == 0
    assert info(client, "sessions_expired") == 2


def test_kept_over_a_clean_restart_and_then_forgotten(server):
    with server.client() as c:
        c.command("BLOCK", "s", "1", "4294967295", "4294967296", "video:1")
        c.command("BLOCK", b"\x00\xff", "7")
    server.advance(6 * MINUTE)
    with server.client() as c:
        c.command("BLOCK", "late", "9", "video:9")
    server.clock += 5 * MINUTE  # while it is down
    server.restart()
    with server.client() as c:
        assert unseen(c, "s", "1", "4294967295", "2") == ["1", "4294967295", "2"]
        assert unseen(c, b"\x00\xff", "7") == ["7"]
        assert unseen(c, "late", "9", "2", "video:9", "video:2", "09") == ["2", "video:2", "09"]
    assert server.sqlite("staging.db", "SELECT count(*) FROM sessions") == "0"
    server.kill()  # a crash brings no old state back
    server.start()
    with server.client() as c:
        assert unseen(c, "late", "9") == ["9"]
        assert c.command("BLOCK", "s", "1") == 1
    server.restart()
    with server.client() as c:
        assert unseen(c, "s", "1", "2") == ["2"]


def test_a_start_that_cannot_read_them_fails_and_loses_none(server):
    with server.client() as c:
        c.command("BLOCK", "s", "1")
    assert server.stop() == 0
    stage(server)
    with held(server, STALL) as c, contextlib.closing(sqlite3.connect(server.data / "staging.db")) as db:
        db.execute("BEGIN IMMEDIATE")  # they are read and deleted in one transaction
        go_on(c)
        assert server.process.wait(PATIENCE) == 1
        assert "the sessions that were kept can't be read: " in server.log()
    server.start()
    with server.client() as c:
        assert unseen(c, "s", "1", "2") == ["2"]


def test_the_least_recently_used_end_early_when_memory_is_full(make_server):
    server = make_server(session_memory="1MiB")
    with server.client() as c:
        first = [str(n * 31) for n in range(300)]
        for count in range(2):
            c.command("BLOCK", f"s{count}", *first)
            server.advance(1)
        count = 2
        while info(c, "sessions_evicted") == 0:
            server.advance(1)  # or all are unused for equally long, and any may go
            for _ in range(100):
                c.command("BLOCK", f"s{count}", *first)
                count += 1
                assert unseen(c, "s0", "31") == []  # stays in use
        assert count > 2500
        assert info(c, "session_memory_used") <= 1 << 20
        assert info(c, "sessions") == count - info(c, "sessions_evicted")
        assert unseen(c, "s1", "31") == ["31"]
        assert unseen(c, f"s{count - 1}", "31") == []
    assert "session memory is full" in server.log()


def test_kept_by_a_release_that_knew_only_numbers(server):
    """The same folder, with a row as that release wrote it for 7, 42 and 4294967295."""
    server.stop()
    row = "INSERT INTO sessions(session, ids, used) VALUES('s', x'219E030700008008000040FDFFFF8F9115C069', %d)"
    subprocess.run(["sqlite3", "-batch", server.data / "staging.db", row % server.clock], check=True)
    server.start()
    with server.client() as c:
        assert unseen(c, "s", "7", "42", "4294967295", "8", "007") == ["8", "007"]
        assert c.command("BLOCK", "s", "7", "video:8") == 1
    server.restart()
    with server.client() as c:
        assert unseen(c, "s", "7", "42", "video:8", "8") == ["8"]


@pytest.mark.threads
def test_many_connections_share_sessions(server):
    """Each thread blocks its own ids of the same sessions; all of them are there at the end."""
    def work(part):
        chance = random.Random(part)
        with server.client() as c:
            for n in range(60):
                name = f"s{chance.randrange(5)}"
                ids = [part * 1000 + n * 10 + k for k in range(10)]
                assert c.command("BLOCK", name, *[f"v{i}" if i % 3 == 0 else str(i) for i in ids]) == 10
                unseen(c, name, "1", "2", "3")
                c.command("BLOCK", f"own-{part}-{n}", "1")
                assert c.command("UNBLOCK", f"own-{part}-{n}") == 1
    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with server.client() as c:
        total = sum(c.command("UNBLOCK", f"s{n}") for n in range(5))
        assert total == 4 * 60 * 10
        assert info(c, "sessions") == 0


def test_a_bad_command_changes_nothing(server, client):
    assert client.command("BLOCK", "s", "1") == 1
    for bad in (("BLOCK", "s", "2", ""), ("BLOCK", "s", "2", "x" * 256), ("UNBLOCK", "s", "1", "")):
        with pytest.raises(RespError, match="^ERR id 2 "):
            client.command(*bad)
    assert unseen(client, "s", "1", "2") == ["2"]
    many = [str(n) for n in range(2, 65538)]
    with pytest.raises(RespError, match="at most 65536 ids"):
        client.command("BLOCK", "s", *many)
    assert unseen(client, "s", "1", "2") == ["2"]
