"""A migration to a disk that is full: it waits for room before it reads, says since when, and blames this machine."""
import os

import pytest

from conftest import http_url, run
from old_redis import wait
from resp import RespError
from test_lying_redis import Liar
from test_metrics import scrape
from test_migrate import status, wait_done, wait_status
from test_reload import reload

PLAYS = b"*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$13\r\n1795255100000\r\n"


@pytest.fixture
def old():
    """Each user has one play."""
    liar = Liar(lambda words: [PLAYS] if words[0] == b"ZSCAN" else None)
    yield liar
    liar.close()


def waits_for_room(server):
    return wait_status(server, lambda s: s[b"state"] == b"waiting" and b"min_free" in s[b"cause"])


def stuff(file):
    """Until the disk is full."""
    with pytest.raises(OSError):
        while True:
            file.write(b"x" * 65536)


def test_no_room_before(make_server, old):
    server = make_server(legacy_redis=old.address, http="127.0.0.1:0")
    reload(server, min_free="16TiB")
    server.advance(1000)
    with server.client() as c:
        with pytest.raises(RespError, match="min_free"):
            c.command("PLAYED", "other", "x")
        c.command("LEGACY", "NOTE", *[f"u{i}" for i in range(1000)])
    first = waits_for_room(server)
    server.advance(20 * 60 * 1000)
    later = waits_for_room(server)
    assert later[b"waiting_since"] == first[b"waiting_since"]
    assert old.commands == []
    figures = scrape(server)
    assert (figures["unseen_migration_up"], figures["unseen_migration_needs_room"]) == (0, 1)
    assert str(server.data).encode() in later[b"cause"] and old.address.encode() not in later[b"cause"]
    shown = run("migrate", "--status", "-c", server.config, "--test-clock", server.clock).stdout
    assert b"min_free" in shown
    reload(server, min_free="0")
    server.advance(1000)
    assert wait_done(server)[b"migrated"] == 1000
    assert scrape(server)["unseen_migration_needs_room"] == 0


def test_a_disk_that_fills_up(make_server, old, make_disk):
    """min_free keeps no room here: each try meets the end of the disk, and reads a few users only to find out."""
    disk = make_disk("24m")
    server = make_server(legacy_redis=old.address)
    server.stop()
    server.options["data"] = str(disk / "data")
    server.start()
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        for at in range(0, 20000, 1000):
            c.command("LEGACY", "NOTE", *[f"u{i}" for i in range(at, at + 1000)])
        stuffing = open(disk / "stuffing", "wb", buffering=0)
        stuff(stuffing)
        stuffing.truncate(stuffing.tell() - 256 * 1024)  # what the next commit may need
        stuffing.seek(0, os.SEEK_END)
        c.command("LEGACY", "RESUME")
        stuff(stuffing)
    first = wait_status(server, lambda s: s[b"state"] == b"waiting")
    rounds = len(old.sent)
    before = old.count(b"ZSCAN")
    wait(lambda: len(old.sent) >= rounds + 4)
    assert old.count(b"ZSCAN") - before <= 5 * 2 * 8
    now = status(server)
    assert now[b"state"] == b"waiting" and now[b"waiting_since"] == first[b"waiting_since"]
    stuffing.close()
    (disk / "stuffing").unlink()
    assert wait_done(server)[b"migrated"] == 20000
