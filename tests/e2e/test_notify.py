"""The service manager's side: what it is told and when, and a watchdog that a stuck thread misses. Health over HTTP."""
import concurrent.futures
import contextlib
import json
import os
import re
import socket
import sqlite3
import time
import urllib.error
import urllib.request

import pytest

from conftest import PATIENCE, free_port, run
from resp import encode
from test_reload import refusal, reload
from unseen_grpc import Grpc

WATCHDOG_MS = 3000


class Manager:
    """A systemd of one socket."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.seen = []

    def receive(self, seconds):
        """The next message as a dictionary, or None."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            message = dict(line.split("=", 1) for line in self.socket.recv(65536).decode().splitlines())
        except (TimeoutError, BlockingIOError):
            return None
        message["at"] = time.monotonic()
        self.seen.append(message)
        return message

    def wait(self, **wanted):
        """The first message that has all of it ("..." for any value)."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            message = self.receive(deadline - time.monotonic())
            if message and all(name in message and value in ("...", message[name]) for name, value in wanted.items()):
                return message
        raise AssertionError(f"{wanted} did not come: {self.seen}")

    def drain(self):
        while self.receive(0):
            pass


@pytest.fixture(params=["path", "abstract"])
def manager(request, folder, monkeypatch):
    path = str(folder / "notify") if request.param == "path" else f"\0unseen-{os.getpid()}-{time.monotonic_ns()}"
    manager = Manager(path)
    monkeypatch.setenv("NOTIFY_SOCKET", path.replace("\0", "@"))
    yield manager
    manager.socket.close()


def health(server, path):
    try:
        with urllib.request.urlopen(f"http://{server.options['http']}{path}", timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as answer:
        return answer.code, json.load(answer)


def metrics(server):
    with urllib.request.urlopen(f"http://{server.options['http']}/metrics", timeout=PATIENCE) as answer:
        return answer.read().decode()


def test_ready_reload_stop(manager, make_server):
    server = make_server()
    assert "recovering" in manager.wait(EXTEND_TIMEOUT_USEC="...")["STATUS"]
    assert manager.wait(READY="1")["STATUS"] == "ready"

    before = time.monotonic_ns() // 1000
    reload(server, retention="12")
    assert before <= int(manager.wait(RELOADING="1")["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert manager.wait(READY="1")["STATUS"] == "ready"

    reload(server, text=server.config.read_text() + "slots = 1\n")
    manager.wait(RELOADING="1")
    status = manager.wait(READY="1")["STATUS"]
    assert status.startswith("ready; the configuration was not read again: ") and "slots is" in status
    server.write_config()

    reload(server, min_free="16TiB")
    manager.wait(READY="1")
    server.advance(1000)
    assert "writes are refused: less than min_free" in manager.wait(STATUS="...")["STATUS"]
    reload(server, min_free="0")
    server.advance(1000)
    manager.wait(STATUS="ready")

    assert server.stop() == 0
    manager.wait(STOPPING="1")
    assert not any("WATCHDOG" in message for message in manager.seen), "nobody asked for it"


def test_a_long_recovery_asks_for_time(manager, make_server):
    """Every message of the recovery extends it, and none says that it is ready."""
    server = make_server()
    assert server.stop() == 0
    with sqlite3.connect(server.data / "staging.db") as db:
        for slot in range(5):
            db.execute(f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) INSERT INTO "
                       f"staged_{slot} SELECT {slot} * 1000000 + i, 1, 'u' || (i % 1000), 'item' || i, {server.clock} "
                       "FROM n")
    db.close()
    manager.drain()
    manager.seen.clear()
    server.start()
    manager.wait(READY="1")
    told = [message["STATUS"] for message in manager.seen[:-1]]
    assert told[0] == "recovering" and all("EXTEND_TIMEOUT_USEC" in message for message in manager.seen[:-1])
    assert any(text.endswith("staged rows read") for text in told), told


def look_stuck(thread, server):
    code, answer = health(server, "/healthz")
    assert code == 503 and f"{thread} has been stuck for" in answer["detail"], answer
    assert health(server, "/readyz")[0] == 503
    _, page = health(server, "/v1/status")
    assert not page["ready"] and f"{thread} has been stuck for" in page["trouble"], page
    shown = metrics(server)
    assert "unseen_ready 0" in shown, shown
    silent = {name: float(s) for name, s in re.findall(r'(?m)^unseen_thread_silent_seconds{thread="(.*)"} (.*)$', shown)}
    assert {"ack", "aside", "changer", "feeder", "historian", "http", "logins", "migration", "mirror", "pages", "pools",
            "stager", "worker-0", "worker-1"} == silent.keys()
    assert max(silent, key=silent.get) == thread and silent[thread] > WATCHDOG_MS / 1000 / 2, silent


def see_it_stuck(thread, server, manager):
    """A server that stands still as a whole meanwhile has nothing stuck for a moment, or is late with a beat."""
    deadline = time.monotonic() + PATIENCE
    beats = [manager.wait(WATCHDOG="1")["at"] for _ in range(5)]
    assert min(later - at for at, later in zip(beats, beats[1:])) < WATCHDOG_MS / 1000
    clients = [server.client() for _ in range(8)]  # not all are of one worker
    assert clients[0].command("DEBUG", "STALL", thread, 10 * 60 * 1000) == b"OK"
    status = manager.wait(STATUS="...")
    assert status["STATUS"].startswith(f"{thread} has been stuck for "), status
    while thread != "http":
        try:
            look_stuck(thread, server)
            break
        except AssertionError:
            if time.monotonic() > deadline:
                raise
    while time.monotonic() - max(message["at"] for message in manager.seen if "WATCHDOG" in message) < WATCHDOG_MS / 1000:
        assert time.monotonic() < deadline, "no manager would have ended it"
        manager.receive(0.1)
    for c in clients:
        c.send(encode("DEBUG", "STALL", thread, 0))
    for c in clients:
        assert c.read() == b"OK"
        c.close()
    manager.wait(STATUS="ready")
    manager.wait(WATCHDOG="1")
    assert f"a thread is stuck thread={thread}" in server.log()
    assert "no thread is stuck any more" in server.log()
    assert health(server, "/healthz") == (200, {"alive": True})
    assert health(server, "/readyz") == (200, {"ready": True})
    assert "unseen_ready 1" in metrics(server)


def test_the_watchdog_misses_who_is_stuck(folder, make_server, monkeypatch):
    """One server a thread, all at once, since it takes its real time."""
    monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_MS * 1000))
    cases = []
    for thread in ("worker-1", "stager", "historian", "http", "aside", "logins", "migration", "mirror"):
        manager = Manager(str(folder / thread))
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / thread))
        server = make_server(http=f"127.0.0.1:{free_port()}", legacy_redis=folder / "none", legacy_mirror="yes")
        cases.append((thread, server, manager))
        manager.wait(READY="1")
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        for outcome in [pool.submit(see_it_stuck, *case) for case in cases]:
            outcome.result()
    for _, _, manager in cases:
        manager.socket.close()


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_why_it_does_not_start(manager, folder):
    """systemctl status shows it, however often it was started since."""
    words = ("serve", "-c", os.devnull, "--listen", "none", "--unix-socket", folder / "socket", "--http", "none", "--grpc",
             "none", "--data", folder)
    for more, cause in ((("--expect-data", "yes"), "holds no data"), (("--listen", "0.0.0.0:1"), "there is no password")):
        assert run(*words, *more, check=False).returncode in (1, 78)
        status = {}
        while cause not in status.get("STATUS", ""):
            status = manager.wait(STATUS="...")


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_a_watchdog_of_somebody_else(manager, make_server, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    server = make_server()
    manager.wait(READY="1")
    reload(server)
    manager.wait(READY="1")
    assert server.stop() == 0
    manager.wait(STOPPING="1")
    assert not any("WATCHDOG" in message for message in manager.seen)


def test_a_socket_that_cannot_be_used(make_server, monkeypatch, folder):
    monkeypatch.setenv("NOTIFY_SOCKET", "vsock:2:1")
    assert "NOTIFY_SOCKET is no socket that can be used" in make_server().log()
    monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "nobody"))
    server = make_server()
    assert "the service manager can't be notified" in server.log()
    assert server.stop() == 0


def test_health_while_writes_are_refused(make_server):
    server = make_server(http=f"127.0.0.1:{free_port()}")
    assert health(server, "/readyz") == (200, {"ready": True})
    reload(server, min_free="16TiB")
    server.advance(1000)
    code, answer = health(server, "/readyz")
    assert code == 503 and "less than min_free" in answer["detail"], answer
    assert health(server, "/healthz") == (200, {"alive": True})


def test_another_process_holds_the_write_lock(make_server):
    """All edges say so, until a commit succeeds: no client's write is needed."""
    server = make_server(http=f"127.0.0.1:{free_port()}", grpc="127.0.0.1:0")

    def look():
        with server.client() as c, Grpc(server) as g:
            _, page = health(server, "/v1/status")
            cause = re.search(r"writes_refused_cause:(.*)", c.command("INFO", "persistence").decode())[1].strip()
            return ([health(server, path)[0] for path in ("/readyz", "/readyz?role=primary", "/healthz")],
                    g.raw("/grpc.health.v1.Health/Check", b"")[1], page["ready"], page.get("trouble") or "", cause)

    with contextlib.closing(sqlite3.connect(server.data / "staging.db", isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with server.client() as c:
            assert re.match("BUSY .*staging.db: .*database is locked", refusal(c, "PLAYED", "u", "a"))
            codes, grpc, ready, trouble, cause = look()
            assert (codes, grpc, ready) == ([503, 503, 200], 2, False)
            assert "writes are refused: " in trouble and "database is locked" in trouble and "locked" in cause
            assert c.command("UNSEEN", "u", "a") == [b"a"]
        shell.execute("ROLLBACK")
    server.advance(1000)
    assert look() == ([200, 200, 200], 1, True, "", "")
    assert "commits succeed again" in server.log()


def test_a_thread_that_cannot_be_stalled(client):
    assert "there is no thread 'nobody'" in refusal(client, "DEBUG", "STALL", "nobody", 5)
    assert "whole number" in refusal(client, "DEBUG", "STALL", "stager", "x")
