"""Operating the way from another Redis: threads, health, figures, and what people look at meanwhile."""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import socket
import struct
import subprocess
import termios
import time

import pytest

from conftest import DAY, HOUR, PATIENCE, START, UNSEEN, free_port, run, until
from old_redis import REDIS, OldRedis
from test_metrics import scrape, scrape_until
from test_notify import Manager, health

needs_redis = pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")


@pytest.fixture
def silent_redis(folder):
    """One that lets everybody in and says nothing."""
    path = str(folder / "silent")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        yield path


def info(server, section):
    with server.client() as c:
        return dict(line.split(":", 1) for line in c.command("INFO", section).decode().splitlines() if ":" in line)


def migrate(server, *args, code=0):
    result = run("migrate", *args, "-c", server.config, "--test-clock", server.clock, check=False)
    assert result.returncode == code, result
    return result


def threads(server):
    return sorted(task.read_text().strip() for task in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/comm"))


def test_every_thread_has_a_name(make_server, folder):
    server = make_server(http=f"127.0.0.1:{free_port()}", legacy_redis=folder / "none", legacy_mirror="yes")
    expected = ["ack", "aside", "changer", *["cold"] * 16, "feeder", "historian", "http", "log", "logins", "migration", "mirror",
                "pages", "pools", "stager", "unseen", "worker-0", "worker-1"]
    until(lambda: threads(server) == expected, lambda: threads(server))  # a thread names itself once it runs


def test_a_silent_redis_makes_nothing_stuck(make_server, silent_redis, monkeypatch, folder):
    """Both threads wait for it for longer than a watchdog has patience, and beat."""
    manager = Manager(str(folder / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    server = make_server(http=f"127.0.0.1:{free_port()}", legacy_redis=silent_redis, legacy_mirror="yes")
    with server.client() as c:
        c.command("LEGACY", "NOTE", "u")
        c.command("PLAYED", "u", "a")
        waits = set()

        def both_wait():
            assert health(server, "/healthz") == (200, {"alive": True})
            assert health(server, "/readyz") == (200, {"ready": True})
            assert info(server, "persistence")["writes_refused"] == "0"
            assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
            if b"no answer for 5 s" in dict(zip(*[iter(c.command("LEGACY", "STATUS"))] * 2))[b"cause"]:
                waits.add("migration")
            if b"no answer for 5 s" in dict(zip(*[iter(c.command("LEGACY", "MIRROR"))] * 2))[b"cause"]:
                waits.add("mirror")
            return waits == {"migration", "mirror"}

        until(both_wait)
    assert "stuck" not in server.log()
    took = []
    for _ in range(3):
        before = time.monotonic()
        assert server.stop() == 0
        took.append(time.monotonic() - before)
        server.start()
    assert min(took) < 3, "none waits for the old Redis at the end, which it would for 5 s"
    manager.socket.close()


@pytest.fixture
def redis(folder):
    old = OldRedis(folder / "redis", "--appendfsync", "no")
    yield old
    old.kill()


def status(server):
    with server.client(3) as c:
        return c.command("LEGACY", "STATUS")


@needs_redis
def test_figures(make_server, redis):
    """What was read is what was there, in the metrics, in INFO and for the page."""
    for i in range(20):
        redis.zadd(f"played:u{i}", [(START - k, f"i{k}") for k in range(10)])
    redis.zadd("delivered:u0", [(START, "d1"), (START, "d2")])
    redis.zadd("played:old", [(START - 200 * DAY, "a"), (START, "b"), (1, "c"), (-1, "d")])
    redis.ask("SET", "played:string", "x")
    server = make_server(http="127.0.0.1:0", legacy_redis=redis.socket, legacy_mirror="yes")
    redis.pause()
    with server.client() as c:
        c.command("LEGACY", "NOTE", *[f"u{i}" for i in range(20)], "old", "string", "gone")
        c.command("FORGET", "gone")
        c.command("PLAYED", "m", "a", "b")
    m = scrape_until(server, lambda m: m["unseen_migration_up"] == 0 and m["unseen_mirror_up"] == 0)
    assert m["unseen_migration_waiting_since_timestamp_seconds"] == START / 1000
    assert m["unseen_migration_noted_users"] == 23 and m["unseen_migration_waiting_users"] == 22
    assert m["unseen_mirror_waiting_events"] == 3 and m["unseen_mirror_behind_seconds"] == 0 and m["unseen_ready"] == 1
    server.advance(HOUR)
    assert scrape(server)["unseen_mirror_behind_seconds"] == pytest.approx(3600, abs=1)
    shown = info(server, "migration")
    assert shown["migration_state"] == "waiting" and "no answer for 5 s" in shown["migration_cause"]
    assert info(server, "mirror")["mirror_state"] == "waiting" and shown["migration_up"] == "0"
    redis.go_on()
    m = scrape_until(server, lambda m: m["unseen_migration_waiting_users"] == m["unseen_mirror_waiting_events"] == 0
                     and m["unseen_migration_up"] == m["unseen_mirror_up"] == 1)
    assert {name: m[f"unseen_migration_{name}"] for name in (
        "noted_users", "migrated_users", "left_users", "forgotten_users", "problem_keys", "up", "paused",
        "waiting_since_timestamp_seconds", "users_total", "plays_total", "deliveries_total", "too_old_total",
        "skipped_total")} == {
            "noted_users": 23, "migrated_users": 21, "left_users": 1, "forgotten_users": 1, "problem_keys": 2, "up": 1,
            "paused": 0, "waiting_since_timestamp_seconds": 0, "users_total": 22, "plays_total": 201,
            "deliveries_total": 2, "too_old_total": 1, "skipped_total": 2}
    assert m["unseen_migration_read_bytes_total"] > 200 * 13
    assert m["unseen_mirror_up"] == 1 and m["unseen_mirror_behind_seconds"] == 0 and m["unseen_mirror_sent_total"] == 3
    assert m["unseen_mirror_sent_bytes_total"] == 3 * 24 + 2 * len("ma") + len("gone")
    until(lambda: info(server, "migration")["migration_state"] == "idle")
    until(lambda: info(server, "mirror")["mirror_state"] == "in step")
    shown = info(server, "migration")
    assert shown["migration_state"] == "idle" and shown["migration_cause"] == "" and shown["migration_plays"] == "201"
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
    assert scrape(server)["unseen_migration_paused"] == 1


def test_notes_without_a_redis(make_server, folder):
    """Notes that nobody works off are said to wait."""
    server = make_server(http="127.0.0.1:0", legacy_redis=folder / "none")
    with server.client() as c:
        c.command("LEGACY", "NOTE", "u")
    del server.options["legacy_redis"]
    server.restart()
    m = scrape(server)
    assert m["unseen_migration_up"] == 0 and m["unseen_migration_waiting_users"] == 1 and m["unseen_mirror_up"] == 1
    shown = info(server, "migration")
    assert shown["migration_state"] == "off" and "no Redis to come from is configured" in shown["migration_cause"]
    assert info(server, "mirror")["mirror_state"] == "off"


@needs_redis
def test_forgotten_users_come_back_only_by_wish(make_server, redis, folder):
    """A list that is older than the FORGET brings nothing back, and says of how many."""
    for user in ("a", "b", "c"):
        redis.zadd(f"played:{user}", [(START, "x")])
    server = make_server(legacy_redis=redis.socket)
    keys = folder / "keys"
    keys.write_text("a\nb\nc\n")
    assert json.loads(migrate(server, "--keys", keys, "--json").stdout)["noted"] == 3
    until(lambda: status(server)[b"migrated"] == 3)
    with server.client() as c:
        assert c.command("FORGET", "a") == 1 and c.command("FORGET", "b") == 1
    said = migrate(server, "--keys", keys).stdout.decode()
    assert ": 3 users found, 0 new\n" in said and "2 users forgotten here and not noted" in said
    assert json.loads(migrate(server, "--keys", keys, "--json").stdout)["forgotten"] == 2
    assert b"--keys" in migrate(server, "--scan", "--forgotten", code=2).stderr
    assert server.restart()
    with server.client() as c:
        assert c.command("LEGACY", "STATE", "a", "b", "c") == [b"forgotten", b"forgotten", b"migrated"]
        assert c.command("UNSEEN", "a", "x") == [b"x"]
    keys.write_text("a\nnew\n")
    answer = json.loads(migrate(server, "--keys", keys, "--forgotten", "--json").stdout)
    assert answer["noted"] == 2 and answer["forgotten"] == 0
    until(lambda: status(server)[b"waiting"] == 0)
    with server.client() as c:
        assert c.command("LEGACY", "STATE", "a", "b", "new") == [b"migrated", b"forgotten", b"migrated"]
        assert c.command("UNSEEN", "a", "x") == [] and c.command("UNSEEN", "b", "x") == [b"x"]
        assert c.command("LEGACY", "RENOTE", "b", "b") == [b"noted", 1, b"forgotten", 0]
    assert server.restart()
    until(lambda: status(server)[b"waiting"] == 0 and status(server)[b"state"] == b"idle")
    assert server.sqlite("staging.db", "SELECT user, state FROM noted ORDER BY id") == "a|1\nb|1\nc|1\nnew|1"


@needs_redis
def test_notes_move_along(make_server, redis, folder):
    """Who is noted and not yet taken over is noted where he is loaded; the forgotten and the migrated are not."""
    for i in range(40):
        redis.zadd(f"played:u{i}", [(START, f"old{i}")])
    redis.ask("SET", "played:u39", "no sorted set")
    old = make_server(legacy_redis=redis.socket, hash_seed="0123456789abcdef")
    with old.client() as c:
        c.command("LEGACY", "NOTE", "u0", "u1", "u39")
        until(lambda: status(old)[b"waiting"] == 0)
        c.command("LEGACY", "PAUSE")
        c.command("LEGACY", "NOTE", *[f"u{i}" for i in range(40)])
        c.command("FORGET", "u2")
        c.command("PLAYED", "u3", "here")  # noted, and with plays of his own that are staged, ...
        c.command("PLAYED", "u4", "here")
        c.command("RING", "FLUSH")  # ... or flushed
        c.command("PLAYED", "u5", "here")
        c.command("PLAYED", "stranger", "here")
    for part in range(3):
        made = run("export", folder / f"f{part}", "--shard", f"{part}/3", "--data", old.data, "--json")
        assert json.loads(made.stdout)["noted"] > 0
    whole = json.loads(run("export", folder / "whole", "--data", old.data, "--json").stdout)
    assert whole["noted"] == 40 - 3 and whole["users"] == whole["noted"] + 3  # u39 too; u0, u1, the stranger
    said = run("export", folder / "again", "--data", old.data, "--test-clock", old.clock).stdout.decode()
    assert "37 of them are noted only, or in part" in said
    ranges = [json.loads(run("export", folder / "r", "--range", f"{i}/2", "--data", old.data, "--json").stdout)["noted"]
              for i in range(2)]
    assert sum(ranges) == 37 and min(ranges) > 0

    # Into a running server, in parts; it goes to work at once.
    new = make_server(legacy_redis=redis.socket, hash_seed="0123456789abcdef")
    said = ""
    for part in range(3):
        said += run("load", "--to", f"127.0.0.1:{new.port}", folder / f"f{part}", "-c", new.config).stdout.decode()
    assert "of them are noted: the rest of theirs is read from the old Redis" in said
    until(lambda: status(new)[b"waiting"] == 0, lambda: status(new))
    with new.client() as c:
        for i in range(3, 39):
            assert c.command("UNSEEN", f"u{i}", f"old{i}", "z") == [b"z"]
        assert c.command("UNSEEN", "u0", "old0") == [] and c.command("UNSEEN", "u2", "old2") == [b"old2"]
        assert c.command("UNSEEN", "u3", "here") == c.command("UNSEEN", "u4", "here") == []
        assert c.command("LEGACY", "STATE", "u0", "u2", "u3", "u39", "stranger") == [b"none", b"none", b"migrated", b"left", b"none"]
    # Into a stopped folder; loading twice changes nothing, and a note that was ended stays so.
    with new.client() as c:
        c.command("FORGET", "u7")
    new.stop()
    for _ in range(2):
        run("load", folder / "whole", "-c", new.config, "--test-clock", new.clock)
    new.start()
    assert status(new)[b"noted"] == 37 and status(new)[b"forgotten"] == 1
    target = make_server(hash_seed="0123456789abcdef")
    target.stop()
    run("load", folder / "whole", "-c", target.config, "--test-clock", target.clock)
    assert target.sqlite("staging.db", "SELECT waiting, noted FROM migration") == "37|37"
    assert b"37 of them are noted" in run("export", folder / "on", "-c", target.config).stdout


@needs_redis
def test_watch(make_server, redis):
    """It follows to the end; on a terminal of 80 columns a bar that fits shows how far it is."""
    for i in range(300):
        redis.zadd(f"played:u{i}", [(START, "x")])
    server = make_server(legacy_redis=redis.socket, legacy_users_rate=150)
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        c.command("LEGACY", "NOTE", *[f"u{i}" for i in range(300)])
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with subprocess.Popen([str(UNSEEN), "migrate", "--watch", "-c", str(server.config), "--test-clock",
                               str(server.clock)], stdout=subprocess.PIPE, stderr=follower,
                              env=dict(os.environ, TERM="xterm")) as watch:
            os.close(follower)
            frames = b""
            while b"0 of 300 users  paused" not in frames:
                frames += os.read(leader, 4096)
            assert watch.poll() is None
            c.command("LEGACY", "RESUME")
            said = watch.stdout.read().decode()
            assert watch.wait(PATIENCE) == 0
        with contextlib.suppress(OSError):  # EIO is the end
            while more := os.read(leader, 65536):
                frames += more
        os.close(leader)
    lines = frames.decode().split("\r")
    assert all(len(line.replace("\x1b[K", "")) < 80 for line in lines), lines
    assert lines[-1] == "\x1b[K", "the bar is wiped"
    assert "300  migrated" in said and "100%  300 of 300 users" in said
    done = json.loads(migrate(server, "--watch", "--json").stdout)
    assert done["migrated"] == 300 and done["state"] == "idle" and done["estimated_end"] == 0
    assert b"expected one of" in migrate(server, "--watch", "--status", code=2).stderr
