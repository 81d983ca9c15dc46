"""Folders and backups that were made to harm. What is refused in detail: tests/unit/test_own_schema.c."""
import contextlib
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess

import pytest

from conftest import PATIENCE, UNSEEN, run, until
from test_process import refused

TRIGGER = "CREATE TRIGGER {} AFTER INSERT ON staged_0 BEGIN DELETE FROM staged_0; END"
ENDLESS = "WITH RECURSIVE r (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r)"
VIEW = ("DROP TABLE set_aside; CREATE VIEW set_aside AS " + ENDLESS + " SELECT a AS slot, a AS id, a AS kind, a AS user, "
        "a AS item, a AS at, a AS found, NULL AS accepted FROM r")


def change(folder, sql, file="staging.db"):
    with contextlib.closing(sqlite3.connect(pathlib.Path(folder) / file)) as db:
        db.executescript(sql)


@pytest.fixture
def closed(cold):
    """A stopped server with plays in both files."""
    server = cold(store="sqlite")
    server.start()
    with server.client() as c:
        c.command("PLAYED", "u", "flushed")
        c.command("RING", "FLUSH")
        c.command("PLAYED", "u", "staged")
    assert server.stop() == 0
    return server


def test_a_trigger(closed):
    """Acknowledged plays went, and a check found nothing. What the error advises gets the folder going again."""
    change(closed.data, "; ".join(TRIGGER.format(f"t{i}") for i in range(3)))
    why = refused(closed)
    for word in ("staging.db", 'trigger "t0" on "staged_0"', "and 2 more", 'DROP TRIGGER "t0"'):
        assert word in why
    checked = run("check", "--data", closed.data, check=False)
    assert checked.returncode == 1 and b'trigger "t0" on "staged_0"' in checked.stdout
    assert b": 1 problem\n" in checked.stdout
    for command in (("months",), ("user", "u"), ("export", closed.data.parent / "users"), ("check", "--repair")):
        told = run(*command, "--data", closed.data, check=False)
        assert told.returncode == 1 and b'trigger "t0"' in told.stderr, (command, told)
    change(closed.data, "; ".join(f"DROP TRIGGER t{i}" for i in range(3)))
    closed.start()
    with closed.client() as c:
        assert c.command("UNSEEN", "u", "flushed", "staged", "new") == [b"new"]
    assert closed.stop() == 0


def test_a_view_that_never_ends(closed, folder):
    """A start and a check had no end. The rows are saved around it."""
    change(closed.data, VIEW)
    assert 'set_aside is a "view" instead of a table' in refused(closed)
    checked = run("check", "--data", closed.data, check=False)
    assert checked.returncode == 1 and b'set_aside is a "view" instead of a table' in checked.stdout
    run("check", "--data", closed.data, "--salvage", folder / "saved")
    assert run("check", "--data", folder / "saved").stdout.endswith(b": 0 problems\n")


def test_a_backup(make_server, folder):
    """One that came from elsewhere is looked at before it is used, and when it is restored."""
    server = make_server(store="sqlite")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    run("backup", folder / "copy", "--data", server.data)
    assert server.stop() == 0
    change(folder / "copy", "CREATE UNIQUE INDEX one ON users (last_month)", "history.db")
    checked = run("check", "--data", folder / "copy", check=False)
    assert checked.returncode == 1 and b'index "one" on "users"' in checked.stdout
    kept = server.data.rename(folder / "kept")
    shutil.copytree(folder / "copy", server.data)
    assert 'index "one" on "users"' in refused(server)
    shutil.rmtree(server.data)
    kept.rename(server.data)
    server.start()


def test_names_that_act_on_a_terminal(closed):
    change(closed.data, 'CREATE TABLE "\x1b]0;owned\x07\nx" (a)')
    refused(closed)
    checked = run("check", "--data", closed.data, check=False)
    for shown in (closed.log_path.read_bytes(), checked.stdout, checked.stderr):
        assert not set(shown) & set(range(32)) - {10}
    assert b"owned" in checked.stdout and checked.stdout.count(b"\n") == 2


TRIES = 5  # the two seconds for which a program waits for another may be over before it is told


def has_open(process, path):
    with contextlib.suppress(OSError):
        for fd in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(fd) == str(path):
                    return True
    return False


def until_open(process, path):
    until(lambda: process.poll() is not None or has_open(process, path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_ends_when_it_is_told(closed, number):
    file = (closed.data / "staging.db").resolve()
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("BEGIN EXCLUSIVE")
        for _ in range(TRIES):
            with subprocess.Popen([str(UNSEEN), "check", "--data", str(closed.data)], stdout=subprocess.DEVNULL) as check:
                until_open(check, file)
                check.send_signal(number)
                if check.wait(PATIENCE) == -number:
                    return
    raise AssertionError(check.returncode)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_it_opens(closed, number):
    """Whatever holds a start up: here another program, for two seconds, after which the start has failed."""
    file = (closed.data / "staging.db").resolve()
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("BEGIN EXCLUSIVE")
        for _ in range(TRIES):
            closed.spawn()
            until_open(closed.process, file)
            closed.process.send_signal(number)
            if closed.process.wait(PATIENCE) == 0:
                break
    assert closed.process.returncode == 0, closed.log()
    assert closed.log().splitlines()[-2:][0].endswith(f"info stopping signal={number.name[3:]}")
    assert closed.log().splitlines()[-1].endswith("info stopped")
    closed.start()
    with closed.client() as c:
        assert c.command("UNSEEN", "u", "flushed", "staged", "new") == [b"new"]
    assert closed.stop() == 0
