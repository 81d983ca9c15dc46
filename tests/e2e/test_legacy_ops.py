"""Operating the way from another Redis: threads, health, figures, and what people look at meanwhile."""
import pathlib
import socket
import time

import pytest

from conftest import PATIENCE, free_port
from test_notify import Manager, health


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


def until(good, what=lambda: None):
    deadline = time.monotonic() + PATIENCE
    while not good():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def threads(server):
    return sorted(task.read_text().strip() for task in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/comm"))


def test_every_thread_has_a_name(make_server, folder):
    server = make_server(http=f"127.0.0.1:{free_port()}", legacy_redis=folder / "none", legacy_mirror="yes")
    assert threads(server) == ["aside", "historian", "http", "migration", "mirror", "stager", "unseen", "worker-0",
                               "worker-1"]


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
        deadline = time.monotonic() + PATIENCE
        while waits != {"migration", "mirror"}:
            assert time.monotonic() < deadline
            assert health(server, "/healthz") == (200, {"alive": True})
            assert health(server, "/readyz") == (200, {"ready": True})
            assert info(server, "persistence")["writes_refused"] == "0"
            assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
            if b"no answer for 5 s" in dict(zip(*[iter(c.command("LEGACY", "STATUS"))] * 2))[b"cause"]:
                waits.add("migration")
            if b"no answer for 5 s" in dict(zip(*[iter(c.command("LEGACY", "MIRROR"))] * 2))[b"cause"]:
                waits.add("mirror")
            time.sleep(0.05)
    assert "stuck" not in server.log()
    before = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - before < 5, "nobody waits for the old Redis at the end"
    manager.socket.close()
