"""The data folder: who has it, whose its files are, and what is told when it holds nothing."""
import shutil
import time

from conftest import PATIENCE, Server, run


def second(server, folder):
    """A server that is started beside the first one, on the same folder: how it ends."""
    other = Server(folder, wait=False, store="sqlite")
    other.data = server.data
    other.options["data"] = str(server.data)
    other.spawn()
    assert other.process.wait(PATIENCE) == 1, other.log()
    return other.log()


def test_two_servers_whose_lock_was_removed(make_server, folder):
    server = make_server(store="sqlite", clock=None)
    lock = server.data / "lock"
    named = lock.read_text()
    with server.client() as c:
        for i in range(3):
            lock.unlink()
            assert f"the data folder {server.data} is in use by process" in second(server, folder)
            assert c.command("PLAYED", "u", f"a{i}") == 1
            assert lock.read_text() == named  # put back by the play, if not by the clock
        assert f"in use by process {server.process.pid}, a server at 127.0.0.1:{server.port}" in second(server, folder)
    assert "is put back" in server.log()
    assert b"a2 is hidden from u" in run("why", "u", "a2", "--data", server.data).stdout


def test_a_lock_that_comes_from_a_copy(make_server, folder):
    """rsync --delete, or a restore over it: each file is replaced by another of its name."""
    server = make_server(store="sqlite", clock=None)
    lock = server.data / "lock"
    named = lock.read_text()
    shutil.copy(lock, folder / "copy")
    (folder / "copy").write_text("pid 1\naddress 127.0.0.1:1\n")
    (folder / "copy").rename(lock)
    deadline = time.monotonic() + PATIENCE
    while lock.read_text() != named:
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.01)
    assert "in use by process" in second(server, folder)


def test_a_folder_that_is_moved(make_server, folder):
    server = make_server(store="sqlite", clock=None)
    moved, here = folder / "moved", server.data
    here.rename(moved)
    server.data = moved
    assert f"in use by process {server.process.pid}" in second(server, folder)
    here.mkdir()
    with server.client() as c:
        try:
            answer = c.command("PLAYED", "u", "a")
        except Exception as e:  # noqa: BLE001
            answer = str(e)
        assert "removed or put aside" in answer, answer
    assert not list(here.iterdir())  # nothing is put into what is none of its own
    here.rmdir()
    moved.rename(here)
    with server.client() as c:
        assert c.command("PLAYED", "u", "a") == 1
