"""`unseen import --follow`: a pipe without end and a file that grows, through the ends of the server and of itself."""
import array
import fcntl
import gzip
import json
import os
import signal
import subprocess
import termios

import pytest

from conftest import PATIENCE, START, UNSEEN, run
from conftest import until as until_so

AT = START - 1000


def lines(user, *items):
    return "".join(f"{AT}\t{user}\t{item}\n" for item in items)


@pytest.fixture
def follow(folder):
    """Starts followers; what they say is in `said()`."""
    started = []

    def start(server, path, *args):
        said = folder / f"said{len(started)}"
        with open(said, "wb") as errors:
            p = subprocess.Popen([UNSEEN, "import", "--follow", "--json", "--to", f"127.0.0.1:{server.port}",
                                  "--test-clock", str(START), *map(str, args), str(path)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        p.said = said.read_text
        started.append(p)
        return p

    yield start
    for p in started:
        p.kill()
        p.wait()


def until(p, condition):
    def holds():
        assert p.poll() is None, p.said()
        return condition()

    until_so(holds, p.said)


def unseen(server, user, *items):
    with server.client() as c:
        return c.command("UNSEEN", user, *items)


def seen(server, user, *items):
    return not unseen(server, user, *items)


def end(p, number=signal.SIGTERM):
    p.send_signal(number)
    out = p.communicate(timeout=PATIENCE)[0]
    assert p.returncode == 0, p.said()
    return json.loads(out)


def feed(p, text):
    p.stdin.write(text.encode())
    p.stdin.flush()


def unread(p):
    """Bytes in the pipe to it."""
    n = array.array("i", [0])
    fcntl.ioctl(p.stdin, termios.FIONREAD, n)
    return n[0]


def append(path, text):
    with open(path, "a") as f:
        f.write(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_pipe_is_acknowledged_while_it_stays_open(server, follow, number):
    p = follow(server, "-")
    feed(p, lines("u", "a", "b"))
    until(p, lambda: "import: 2 events are durable" in p.said())
    assert seen(server, "u", "a", "b")
    feed(p, lines("u", "c") + f"{AT}\tu\thalf")
    until(p, lambda: seen(server, "u", "c"))
    feed(p, " a line\nno play\n" + lines("u", "d"))
    until(p, lambda: seen(server, "u", "half a line", "d"))
    feed(p, f"{AT}\tu\tcut o")
    summary = end(p, number)
    assert summary["events"] == 5 and summary["malformed"] == 1
    assert unseen(server, "u", "cut o") == [b"cut o"]


def test_a_pipe_that_ends(server, follow):
    p = follow(server, "-")
    out = p.communicate((lines("u", "a") + f"{AT}\tu\tb").encode(), timeout=PATIENCE)[0]
    assert p.returncode == 0 and json.loads(out)["events"] == 2 and seen(server, "u", "a", "b")


def test_a_signal_sends_what_was_read(server, follow):
    p = follow(server, "-")
    feed(p, lines("u", "a"))
    until(p, lambda: "durable" in p.said())  # it has its handlers
    feed(p, lines("u", *[f"i{i}" for i in range(50)]))
    until(p, lambda: unread(p) == 0)
    assert end(p)["events"] == 51 and seen(server, "u", *[f"i{i}" for i in range(50)])


def test_the_server_dies_under_a_pipe(make_server, follow):
    server = make_server()
    p = follow(server, "-")
    items = []
    for round_ in range(3):
        new = [f"{round_}-{i}" for i in range(200)]
        items += new
        feed(p, lines("u", *new))
        until(p, lambda: seen(server, "u", *new))
        server.kill()
        new = [f"away-{round_}-{i}" for i in range(200)]
        items += new
        feed(p, lines("u", *new))
        until(p, lambda: p.said().count("trying again") == round_ + 1)
        server.start()
        until(p, lambda: seen(server, "u", *items))
    summary = end(p)
    assert summary["events"] == len(items) and p.said().count("is back") == 3


def test_a_server_that_is_not_there_yet(make_server, follow):
    server = make_server()
    assert server.stop() == 0
    p = follow(server, "-")
    feed(p, lines("u", "a"))
    until(p, lambda: "trying again" in p.said())
    server.start()
    until(p, lambda: seen(server, "u", "a"))
    assert end(p)["events"] == 1


def test_a_signal_while_the_server_is_away(make_server, follow):
    server = make_server()
    p = follow(server, "-")
    feed(p, lines("u", "a"))
    until(p, lambda: seen(server, "u", "a"))
    assert server.stop() == 0
    feed(p, lines("u", "b"))
    until(p, lambda: "trying again" in p.said())
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=PATIENCE)
    assert p.returncode == 1 and "ended while the server at" in p.said()
    server.start()


def test_a_file_that_grows_is_renamed_and_cut(server, follow, folder):
    path = folder / "plays.log"
    p = follow(server, path)
    until(p, lambda: "is not there yet" in p.said())
    path.write_text("unix_ms\tuser\titem\n" + lines("u", "a"))
    until(p, lambda: seen(server, "u", "a"))
    append(path, lines("u", "b"))
    until(p, lambda: seen(server, "u", "b"))
    old = open(path, "a")
    path.rename(folder / "plays.log.1")
    old.write(lines("u", "c").rstrip("\n"))  # who has it open goes on writing, and stops within a line
    old.close()
    path.write_text(lines("u", "d"))
    until(p, lambda: seen(server, "u", "c", "d"))
    os.truncate(path, 0)
    until(p, lambda: "was cut" in p.said())
    append(path, lines("u", "e"))
    until(p, lambda: seen(server, "u", "e"))
    summary = end(p)
    assert summary["events"] == 5 and summary["malformed"] == 0


def state_of(path):
    words = (path.parent / (path.name + ".follow")).read_text().split()
    return {name: int(words[words.index(name) + 1]) for name in ("ino", "offset", "line")}


def acknowledged(path):
    """Whether the state says that the file was, to its end. It is written after what it says is seen."""
    return (path.parent / (path.name + ".follow")).exists() and state_of(path)["offset"] == path.stat().st_size


def test_a_restart_goes_on_where_it_was(server, follow, folder):
    path = folder / "plays.log"
    path.write_text(lines("u", "a", "b") + f"{AT}\tu\tha")
    p = follow(server, path)
    until(p, lambda: seen(server, "u", "a", "b"))
    assert end(p)["events"] == 2
    whole = len(lines("u", "a", "b"))
    assert state_of(path) == {"ino": path.stat().st_ino, "offset": whole, "line": 3}
    append(path, "lf\nbad\n")
    p = follow(server, path)
    until(p, lambda: seen(server, "u", "half"))
    summary = end(p)
    assert summary["events"] == 1 and summary["problems"][0]["line"] == 4
    # Renamed while nobody looked: its rest is read before the new one.
    append(path, lines("u", "rest"))
    path.rename(folder / "plays.log.7")
    path.write_text(lines("u", "new"))
    p = follow(server, path)
    until(p, lambda: seen(server, "u", "rest", "new"))
    assert end(p)["events"] == 2


def test_a_follower_that_is_killed_loses_nothing(make_server, follow, folder):
    """At no moment does the state stand behind what is not durable."""
    server, path, items = make_server(), folder / "plays.log", []
    path.touch()
    for round_ in range(5):
        p = follow(server, path, "--state", folder / "state")
        for part in range(20):
            new = [f"{round_}-{part}-{i}" for i in range(300)]
            items += new
            append(path, lines("u", *new))
        until(p, lambda: seen(server, "u", f"{round_}-0-0"))
        p.kill()
        p.wait()
        if round_ == 2:
            server.kill()
            server.start()
    p = follow(server, path, "--state", folder / "state")
    append(path, lines("u", "last"))
    items.append("last")
    until(p, lambda: seen(server, "u", "last"))
    assert end(p)["events"] <= len(items)
    for at in range(0, len(items), 5000):
        assert seen(server, "u", *items[at:at + 5000])


def test_one_follower_a_state(server, follow, folder):
    path = folder / "plays.log"
    path.write_text(lines("u", "a"))
    p = follow(server, path)
    until(p, lambda: seen(server, "u", "a"))
    second = ["import", "--follow", "--to", f"127.0.0.1:{server.port}"]
    done = run(*second, path, check=False)
    assert done.returncode == 1 and "plays.log.follow: another unseen import --follow has this state" in done.stderr.decode()
    other = follow(server, path, "--state", folder / "other")
    until(other, lambda: "durable" in other.said())
    end(other)
    append(path, lines("u", "b"))
    until(p, lambda: acknowledged(path))  # else "b" is sent again, as it may be
    p.kill()
    p.wait()
    append(path, lines("u", "c"))
    p = follow(server, path)  # the lock ends with its process
    until(p, lambda: seen(server, "u", "c"))
    assert end(p)["events"] == 1


@pytest.mark.parametrize("n", [2, 400])
def test_another_file_with_the_inode_of_the_old_one(server, follow, folder, n):
    """As when it was deleted and a new one made: as long as it, or longer."""
    path, old = folder / "plays.log", [f"old{i}" for i in range(n)]
    path.write_text(lines("u", *old))
    p = follow(server, path)
    until(p, lambda: seen(server, "u", *old))
    end(p)
    inode, new = path.stat().st_ino, [f"new{i}" for i in range(n)]
    path.write_text(lines("u", *new, "more"))
    assert path.stat().st_ino == inode
    p = follow(server, path)
    until(p, lambda: seen(server, "u", "more"))
    assert end(p)["events"] == n + 1 and seen(server, "u", *new)
    assert "is gone" in p.said() and "read from its beginning" in p.said()


def test_a_damaged_state_is_named(server, folder):
    path = folder / "plays.log"
    path.write_text(lines("u", "a"))
    (folder / "plays.log.follow").write_text("rubbish")
    done = run("import", "--follow", "--to", f"127.0.0.1:{server.port}", path, check=False)
    assert done.returncode == 1 and "plays.log.follow is no state of --follow" in done.stderr.decode()


def test_a_named_pipe(server, folder, follow):
    """Writers come and go: each one's lines are an input, also packed ones, and half a line is one at its end."""
    path = folder / "pipe"
    os.mkfifo(path)
    p = follow(server, path)
    for text, item in [(lines("u", "a").encode(), "a"), (lines("u", "b").encode()[:-1], "b"),
                       (gzip.compress(lines("u", "c").encode()), "c"), (b"what?\n" + lines("u", "d").encode(), "d")]:
        with open(path, "wb") as writer:  # waits for its reader
            writer.write(text)
        until(p, lambda: seen(server, "u", item))
    done = end(p)
    assert done["events"] == 4 and done["malformed"] == 1 and done["problems"][0]["line"] == 1
    assert not (folder / "pipe.follow").exists()


def test_a_pipe_without_a_name_ends(server, folder, follow):
    reader, writer = os.pipe()
    os.write(writer, lines("u", "a").encode())
    os.close(writer)
    done = run("import", "--follow", "--to", f"127.0.0.1:{server.port}", "--test-clock", START, f"/dev/fd/{reader}",
               pass_fds=[reader])
    os.close(reader)
    assert "1 event is durable" in done.stderr.decode() and seen(server, "u", "a")


@pytest.mark.parametrize("name, said", [
    ("plays.gz", "packed with gzip, and --follow reads plain lines"), ("plays.zst", "packed with zstd"),
    ("folder", "a folder, and --follow reads a file, a pipe or standard input"), ("/dev/null", "/dev/null: a device")])
def test_what_can_not_be_followed(server, folder, name, said):
    (folder / "folder").mkdir()
    (folder / "plays.gz").write_bytes(gzip.compress(lines("u", "a").encode()))
    (folder / "plays.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00")
    state = folder / "state"
    done = run("import", "--follow", "--to", f"127.0.0.1:{server.port}", "--state", state, folder / name, check=False)
    assert done.returncode == 1 and said in done.stderr.decode()


def test_a_file_that_becomes_packed(server, folder, follow):
    path = folder / "plays"
    path.write_text(lines("u", "a"))
    p = follow(server, path)
    until(p, lambda: seen(server, "u", "a"))
    path.rename(folder / "plays.1")
    path.write_bytes(gzip.compress(lines("u", "b").encode()))
    assert p.wait(PATIENCE) == 1 and "packed with gzip" in p.said()


def test_rejects_of_a_follower(server, folder, follow):
    """A restart goes on behind those that are there; escapes and columns hold for all inputs."""
    path, rejects = folder / "plays", folder / "rejects"
    path.write_text(f"u\ta\\\\b\t{START}\nu\tx\tsoon\n")
    how = ("--columns", "user,item,time", "--escapes", "psql", "--rejects", rejects)
    p = follow(server, path, *how)
    until(p, lambda: seen(server, "u", "a\\b"))
    end(p)
    with open(path, "a") as f:
        f.write(f"\\N\tx\t{START}\nu\tc\t{START}\n")
    p = follow(server, path, *how)
    until(p, lambda: seen(server, "u", "c"))
    assert end(p)["malformed"] == 1
    got = rejects.read_text().splitlines()
    assert [line.split("\t")[0] for line in got] == [f"{path}:2", f"{path}:3"] and "user (column 1) is NULL" in got[1]


@pytest.mark.parametrize("args, said", [
    (["-"], "--follow needs --to"), (["--to", "h:1", "a", "b"], "--follow takes one FILE"),
    (["--to", "h:1", "--strict", "a"], "neither --strict nor --dry-run"),
    (["--to", "h:1", "--state", "s", "-"], "a pipe can't be read again")])
def test_what_does_not_go_together(args, said):
    done = run("import", "--follow", *args, check=False)
    assert done.returncode == 2 and said in done.stderr.decode()


def test_what_a_forget_drops_is_not_counted(make_server, folder, follow):
    server = make_server()
    with server.client() as c:
        c.command("FORGET", "u")
    path = folder / "log"
    path.write_text(lines("u", "a", "b") + lines("v", "a"))
    p = follow(server, path)
    until(p, lambda: seen(server, "v", "a"))
    with open(path, "a") as log:
        log.write(lines("u", "c"))
    with server.client() as c:
        until(p, lambda: b"forgotten_dropped:3\r\n" in c.command("INFO", "stats"))
    told = end(p)
    assert (told["events"], told["forgotten"]) == (1, 3)
