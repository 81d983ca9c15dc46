"""A disk that is frozen (frozen_disk.c stands before the C library) holds who must be read from it, and nobody else."""
import os
import select
import shutil
import subprocess
import time

import pytest

from conftest import PATIENCE, REPO
from resp import RespError, encode
from test_http import Asker
from test_reload import reload
from unseen_grpc import Grpc

THREADS = 16  # that may wait for the disk, OFFLOAD_COLD_THREADS
USERS = 20000
APART = 400  # more than a page has
WARM = ("u1", "u2")
LATE = "not answered within question_timeout: the disk is late"
BEHIND = "not answered within question_timeout: other users are before whom the disk is late with"


class Disk:
    def __init__(self, folder):
        self.switch = folder / "frozen"

    def freeze(self, path):
        part = self.switch.with_suffix(".new")
        part.write_text(path)
        part.rename(self.switch)

    def thaw(self):
        self.switch.unlink(missing_ok=True)


@pytest.fixture
def disk(folder, monkeypatch, make_server):
    """For servers that are started from here on; thawed before they are stopped."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    library = folder / "frozen_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, REPO / "tests/e2e/frozen_disk.c", "-ldl"], check=True)
    disk = Disk(folder)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FROZEN_DISK", str(disk.switch))
    yield disk
    disk.thaw()


def make_history(make_server, **options):
    """A server that has nothing of its users in SQLite's caches, but for the warm ones."""
    server = make_server(workers="1", **options)
    with server.client() as c:
        assert set(c.pipeline([["PLAYED", f"u{i}", "a"] for i in range(USERS)])) == {1}
        c.command("RING", "FLUSH")
    server.restart()
    with server.client() as c:
        for user in WARM:
            assert c.command("UNSEEN", user, "a", "x") == [b"x"]
    return server


def stats(server):
    with server.client() as c:
        lines = c.command("INFO", "stats").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def cold_users(server, n):
    """Users of whom nobody has a page: in the order of the pages, far from each other and from the warm ones."""
    names = server.sqlite("history.db", "SELECT user FROM users ORDER BY user_key").splitlines()
    warm = [names.index(user) for user in WARM]
    far = [i for i in range(0, len(names), APART) if all(abs(i - w) > APART for w in warm)]
    assert len(far) >= n
    return [names[i] for i in far[:n]]


def test_a_frozen_user_holds_nobody(make_server, disk):
    server = make_history(make_server, http="127.0.0.1:0", grpc="127.0.0.1:0")
    (frozen,) = cold_users(server, 1)
    with server.client() as c, server.client() as other, Asker(server) as http, Grpc(server) as calls:
        disk.freeze("history.db")
        c.send(encode("UNSEEN", frozen, "a", "x"))
        deadline = time.monotonic() + PATIENCE
        while stats(server)["cold_questions"] == "0":
            assert time.monotonic() < deadline
        for _ in range(20):
            assert other.command("UNSEEN", "u1", "a", "x") == [b"x"]
            assert other.command("WHY", "u2", "a") != []
            assert other.command("PLAYED", "u1", "b") == 1  # staging.db's disk is well
            assert other.command("UNSEEN", "u1", "b", "x") == [b"x"]
        assert http.ask("GET", "/healthz")[0] == 200
        http.http.request("GET", "/metrics")
        page = http.http.getresponse().read().decode()
        assert "\nunseen_cold_questions_total 1\n" in page and '\nunseen_month_users{month="2026-11"' in page
        assert select.select([c.sock], [], [], 0)[0] == []
        disk.thaw()
        assert c.read() == [b"x"]
        assert list(calls.method("Filter")[1](calls.method("Filter")[0](user=frozen, items=["a", "x"], reply=2)).items) == ["x"]
    assert server.stop() == 0
    assert " error " not in server.log()


def test_the_bound(make_server, disk):
    """All threads are held, which is said, and neither the warm ones nor the memory suffer. Each thread has long enough
    to take its question up on a busy machine, since one that waits for a thread is told something else."""
    server = make_history(make_server, question_timeout="1s")
    cold = cold_users(server, THREADS + 4)
    with server.client() as c:
        disk.freeze("history.db")
        for i, user in enumerate(cold):
            if i == THREADS:
                reload(server, question_timeout="100ms")
            with pytest.raises(RespError, match=LATE if i < THREADS else BEHIND):
                c.command("UNSEEN", user, "a", "x")
            assert c.command("UNSEEN", "u1", "a", "x") == [b"x"]
        assert int(stats(server)["cold_questions"]) >= len(cold)
        disk.thaw()
        deadline = time.monotonic() + PATIENCE
        for user in cold:
            while True:
                assert time.monotonic() < deadline
                try:
                    assert c.command("UNSEEN", user, "a", "x") == [b"x"]
                    break
                except RespError as e:  # what was frozen goes first
                    assert "the disk is late" in str(e)


def test_a_frozen_log(make_server, disk):
    """Of history.db what was written last is in its log."""
    server = make_history(make_server)
    with server.client() as c, server.client() as other:
        c.command("PLAYED", "u5", "b")
        c.command("RING", "FLUSH")
        disk.freeze("history.db-wal")
        c.send(encode("UNSEEN", "u5", "a", "b", "x"))
        assert other.command("PLAYED", "u1", "b") == 1
        assert select.select([c.sock], [], [], 0)[0] == []
        disk.thaw()
        assert c.read() == [b"x"]


def test_a_list_from_the_disk(make_server, disk, folder):
    """That of the migration's problems is asked aside, too."""
    server = make_server(legacy_redis=folder / "none", workers="1")
    with server.client() as c, server.client() as other:
        disk.freeze("staging.db")
        c.send(encode("LEGACY", "PROBLEMS"))
        assert other.pipeline([["PING"]] * 20) == [b"PONG"] * 20
        assert select.select([c.sock], [], [], 0)[0] == []
        disk.thaw()
        assert c.read() == []


def test_a_file_system_that_cannot_tell(make_server, disk, monkeypatch):
    """Then a worker waits, as it always did, and INFO says so."""
    server = make_history(make_server)
    assert stats(server)["cold_untold"] == "0"
    monkeypatch.setenv("FROZEN_DISK_UNTOLD", "1")
    server.restart()
    assert stats(server)["cold_untold"] == "1"
    with server.client() as c:
        assert c.command("UNSEEN", "u1", "a", "x") == [b"x"]
    assert stats(server)["cold_questions"] == "0"


def test_a_real_page_cache(make_server):
    """The folder's files leave memory: questions come from the disk, counted once, and are warm after that."""
    server = make_history(make_server)
    fd = os.open(server.data / "history.db", os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    with server.client() as c:
        for i in range(0, USERS, 100):
            assert c.command("UNSEEN", f"u{i}", "a", "x") == [b"x"]
        cold = int(stats(server)["cold_questions"])
        for i in range(0, USERS, 100):
            assert c.command("UNSEEN", f"u{i}", "a", "x") == [b"x"]
        assert int(stats(server)["cold_questions"]) == cold
    if stats(server)["cold_untold"] == "0":
        assert cold > 0
