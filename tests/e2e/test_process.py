"""The process around it: start, stop, lock, sockets, what it refuses to start with, a disk without room."""
import contextlib
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading

import pytest

from conftest import DAY, HOUR, PATIENCE, START, UNSEEN, free_port, run, until
from resp import Client, Closed, RespError, encode


CONFIGURATION = 78  # exit code: a restart would not help


def refused(server, *args, code=1):
    """Spawns a server that must not start: the exit code and one line that says why."""
    server.spawn(*args)
    ended = server.process.wait(PATIENCE)
    lines = [line for line in server.log().splitlines() if line.startswith("unseen: ")]
    assert ended == code, (ended, server.log())
    assert len(lines) == 1, server.log()
    return lines[0]


def test_sigterm_and_restart(server):
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("DELIVERED", "u", "b")
    log = server.log()
    for word in ("unseen version=", "sqlite=", "data=", "recovered", "listening", "ready"):
        assert word in log
    assert server.stop() == 0
    assert sorted(path.name for path in server.data.iterdir()) == ["history.db", "lock", "staging.db"]  # and no WAL
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u", "a", "b", "c") == [b"c"]
        assert b"rows" in server.log().encode()
    assert server.stop() == 0
    server.start()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE) == 0


@pytest.mark.threads
def test_sigterm_under_load_answers_or_loses_nothing(server):
    acknowledged = []

    def load(n):
        try:
            with server.client() as c:
                for i in range(100000):
                    if c.command("PLAYED", f"u{n}", f"i{i}") == 1:
                        acknowledged.append((n, i))
        except (OSError, Closed):
            pass  # it is gone

    threads = [threading.Thread(target=load, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    until(lambda: len(acknowledged) >= 500)
    assert server.stop() == 0, server.log()
    for t in threads:
        t.join()
    server.start()
    with server.client() as c:
        for n in range(8):
            items = [f"i{i}" for m, i in acknowledged if m == n]
            assert c.command("UNSEEN", f"u{n}", *items, "x") == [b"x"]


def test_a_second_process_is_refused(server, cold):
    other = cold()
    other.options["data"] = str(server.data)
    line = refused(other)
    assert str(server.data) in line
    with server.client() as c:
        assert c.command("PING") == b"PONG"


def test_a_port_that_is_taken(server, cold):
    other = cold(listen=f"127.0.0.1:{server.port}")
    assert str(server.port) in refused(other)


@pytest.mark.parametrize("line, parts", [
    ("slotz = 6", ["slotz", "slots", ":"]),
    ("slots = 1", ["slots", "2"]),
    ("slots = many", ["slots", "many"]),
    ("session_ttl = 1parsec", ["session_ttl", "1parsec"]),
    ("error_rate = 0.5", ["error_rate"]),
    ("window = 9", ["window", "retention"]),
    ("on_damage = hope", ["on_damage", "hope"]),
    ("timezone = Mars/Olympus", ["timezone", "Mars/Olympus"]),
    ("hash_seed = xyz", ["hash_seed"]),
    ("listen = 0.0.0.0:7979", ["requirepass"]),
    ("listen = nowhere", ["listen"]),
    ("no equals sign", ["unseen.conf:"]),
    ("[other]", ["other"]),
    ("slots = 4\nslots = 5", ["slots", "twice"]),
])
def test_a_bad_configuration(cold, line, parts):
    server = cold(tcp=not line.startswith("listen"))
    server.write_config()
    number = len(server.config.read_text().splitlines()) + 1 + line.count("\n")
    text = server.config.read_text() + line + "\n"
    if line.startswith("timezone"):
        text = re.sub("timezone = .*\n", "", text, count=1)
        number -= 1
    server.write_config = lambda: server.config.write_text(text)
    message = refused(server, code=CONFIGURATION)
    for part in parts:
        assert part in message, message
    if "requirepass" not in parts and "retention" not in parts:
        assert f"unseen.conf:{number}:" in message, message
    check = run("check-config", "-c", server.config, check=False)
    assert check.returncode == 1
    for part in parts:
        assert part in (check.stdout + check.stderr).decode()
    assert not server.data.exists()  # nothing was touched


def test_options_on_the_command_line(cold):
    usage = cold()
    usage.spawn("--prot", "1")
    assert usage.process.wait(PATIENCE) == 2
    assert "--port" in usage.log()


def test_public_listening_needs_a_password(cold):
    server = cold(listen=f"0.0.0.0:{free_port()}")
    assert "requirepass" in refused(server, code=CONFIGURATION)
    server = cold(requirepass="secret")
    server.options["listen"] = f"0.0.0.0:{server.port}"
    server.start()
    with server.client() as c:
        c.command("AUTH", "secret")
        assert c.command("PING") == b"PONG"
    assert server.stop() == 0


def test_unix_socket(cold, folder):
    path = folder / "unseen.sock"
    server = cold(tcp=False, unix_socket=str(path))
    server.options["listen"] = "none"
    old = os.umask(0o002)
    try:
        server.start()
    finally:
        os.umask(old)
    mode = stat.S_IMODE(path.stat().st_mode)
    assert stat.S_ISSOCK(path.stat().st_mode) and mode & 0o007 == 0, oct(mode)
    with Client(str(path), 3) as c:
        assert c.command("PLAYED", "u", "a") == 1
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
    assert b"u1" not in run("user", "u", "--data", server.data).stdout  # found through the lock file
    assert b"1 staged" in run("user", "u", "--data", server.data).stdout
    server.kill()
    server.start()  # over the stale socket
    assert server.stop() == 0
    assert not path.exists()


def test_tcp_and_unix_socket_together(make_server, folder):
    server = make_server(unix_socket=str(folder / "both.sock"))
    with server.client() as tcp, Client(str(folder / "both.sock")) as unix:
        assert tcp.command("PLAYED", "u", "a") == 1
        assert unix.command("UNSEEN", "u", "a", "b") == [b"b"]


def test_sqlite_shell_while_it_runs(server):
    with server.client() as c:
        c.pipeline([("PLAYED", f"user{i}", f"item{i}") for i in range(300)])
        c.command("DELIVERED", "user1", "d")
        assert server.sqlite("staging.db", "SELECT user, item FROM staged_0 ORDER BY id LIMIT 1") == "user0|item0"
        assert server.sqlite("staging.db", "SELECT count(*) FROM staged_0") == "301"
        c.command("RING", "FLUSH")
        assert server.sqlite("history.db", "SELECT count(*) FROM plays_202611") == "300"
        assert server.sqlite("history.db", "SELECT count(*) FROM users WHERE user = 'user7'") == "1"
        assert server.sqlite("history.db", "SELECT month, state, plays FROM month_report") == "2026-11|live|300"
        for file in ("staging.db", "history.db"):
            assert server.sqlite(file, "PRAGMA journal_mode") == "wal"
            assert server.sqlite(file, "PRAGMA integrity_check") == "ok"


@pytest.mark.threads
def test_sqlite_shell_reading_under_load(server):
    """Shells that read both files again and again disturb nobody, and always see a sound file."""
    stop, problems = threading.Event(), []

    def shell(file):
        while not stop.is_set():
            try:
                if server.sqlite(file, "PRAGMA quick_check") != "ok":
                    problems.append(file)
            except AssertionError as e:
                problems.append(str(e))

    shells = [threading.Thread(target=shell, args=(f,)) for f in ("staging.db", "history.db")]
    for t in shells:
        t.start()
    with server.client() as c:
        for round_ in range(10):
            assert c.pipeline([("PLAYED", f"u{i}", f"i{round_}") for i in range(500)]) == [1] * 500
            c.command("RING", "FLUSH")
    stop.set()
    for t in shells:
        t.join()
    assert problems == []
    with server.client() as c:
        assert c.command("UNSEEN", "u499", *[f"i{i}" for i in range(10)], "x") == [b"x"]


def test_a_shell_that_holds_a_transaction_open(make_server):
    """A reader that pins the history's WAL: flushes pause at wal_limit, nothing is lost, and it ends when the reader
    does."""
    server = make_server(wal_limit="4MiB")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("RING", "FLUSH")
        shell = subprocess.Popen(["sqlite3", "-readonly", "-batch", str(server.data / "history.db")],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        shell.stdin.write("BEGIN; SELECT count(*) FROM users;\n")
        shell.stdin.flush()
        assert shell.stdout.readline().strip() == "1"
        for round_ in range(8):
            c.pipeline([("PLAYED", f"u{i}", *[f"i{round_}.{k}" for k in range(20)]) for i in range(3000)])
            server.advance(HOUR)
        assert c.command("UNSEEN", "u2999", "i0.0", "i7.19", "x") == [b"x"]
        assert (server.data / "history.db-wal").stat().st_size < 16 << 20
        shell.stdin.close()
        shell.wait()
        server.advance(HOUR)
        assert c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "u2999", "i0.0", "i7.19", "x") == [b"x"]
        assert sum(int(server.sqlite("staging.db", f"SELECT count(*) FROM staged_{i}")) for i in range(6)) == 0


CHURN = """
import fcntl, random, sys
files = [open(f"{sys.argv[1]}/lock{i}", "w+") for i in range(100)]
print("locks", flush=True)
while True:
    fcntl.lockf(random.choice(files), fcntl.LOCK_EX, 1, random.randrange(1000))
    fcntl.lockf(random.choice(files), fcntl.LOCK_UN)
"""


@contextlib.contextmanager
def locks_that_come_and_go(folder):
    process = subprocess.Popen([sys.executable, "-c", CHURN, str(folder)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"locks\n"
        yield
    finally:
        process.kill()
        process.wait()


def test_busy_names_who_holds_the_log(make_server, folder):
    """Nothing can be flushed because a shell holds history.db: whoever is refused is told what is full, who holds it, and
    what ends it; and it ends with that."""
    server = make_server(wal_limit="4MiB", staging_memory="4MiB", slots=3)
    with server.client() as c, server.client() as writer:
        c.command("PLAYED", "u", "a")
        c.command("RING", "FLUSH")
        shell = subprocess.Popen(["sqlite3", "-readonly", "-batch", str(server.data / "history.db")],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        shell.stdin.write("BEGIN; SELECT count(*) FROM users;\n")
        shell.stdin.flush()
        assert shell.stdout.readline().strip() == "1"
        refused, n = None, 0
        # A slot that was flushed just before the log was full may still be freed: then there is room once more.
        while not isinstance(refused, RespError) or b"writes_refused:0" in c.command("INFO", "persistence"):
            n += 1
            writer.send(encode("PLAYED", f"u{n}", *[f"i{n}.{k}" for k in range(1000)]))
            while not select.select([writer.sock], [], [], 0.2)[0]:
                if b"wal_pauses:0" not in c.command("INFO", "stats"):
                    server.advance(61 * 1000)  # it waits for memory, and nothing is flushed any more
            refused = writer.read()
        refused = str(refused)
        who = f"process {shell.pid} (sqlite3) reads history.db"
        assert refused.startswith("BUSY staging memory (4 MiB) is full and nothing was freed for 60 s: ")
        assert f"its log is at wal_limit (4 MiB) because {who}; it ends when that transaction does" in refused
        assert who in c.command("INFO", "persistence").decode()
        with locks_that_come_and_go(folder):  # the kernel's list of them then lacks some of its lines
            for _ in range(60):
                with pytest.raises(RespError, match=f"BUSY .*wal_limit.*{shell.pid}"):
                    c.command("RING", "FLUSH")
        assert who in server.log()
        shell.stdin.close()
        shell.wait()
        server.advance(61 * 1000)
        c.command("RING", "FLUSH")
        assert c.command("PLAYED", "u", "b") == 1


def test_a_disk_without_room(make_server):
    """Less is free than min_free asks for."""
    server = make_server(min_free="15TiB")
    with server.client() as c:
        with pytest.raises(RespError, match="min_free|free") as caught:
            c.command("PLAYED", "u", "a")
        assert str(caught.value).startswith("MISCONF")
        assert c.command("UNSEEN", "u", "a") == [b"a"]
        assert c.command("FORGET", "u") == 0


def test_a_disk_that_fills_up(cold, make_disk):
    server = cold()
    small_disk = make_disk("24m")
    server.data = small_disk / "data"
    server.options["data"] = str(server.data)
    server.start()
    acknowledged = []
    with server.client() as c:
        error = None
        for i in range(100000):
            try:
                if c.command("PLAYED", f"u{i % 50}", *[f"{i}.{k}.{'x' * 200}" for k in range(50)]) == 50:
                    acknowledged.append(i)
            except RespError as e:
                error = str(e)
                break
        assert error and error.startswith("MISCONF"), error
        for i in acknowledged[-50:]:
            assert c.command("UNSEEN", f"u{i % 50}", f"{i}.49.{'x' * 200}", "new") == [b"new"]
        with pytest.raises(RespError):
            c.command("PLAYED", "u1", *["more" + "y" * 250] * 200)
        # Room again: writing resumes by itself.
        subprocess.run(["mount", "-o", "remount,size=96m", str(small_disk)], check=True)
        assert c.command("PLAYED", "u1", "after") == 1
        assert c.command("RING", "FLUSH")
        for i in acknowledged:
            assert c.command("UNSEEN", f"u{i % 50}", f"{i}.0.{'x' * 200}", "new") == [b"new"]
    server.kill()
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u1", "after") == []
    assert server.stop() == 0


def test_a_read_only_folder(cold, folder):
    if not (os.geteuid() == 0 and shutil.which("mount")):
        pytest.skip("not here: needs a read-only mount, which only root can make")
    server = cold()
    server.start()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    assert server.stop() == 0
    target = folder / "readonly"
    target.mkdir()
    if subprocess.run(["mount", "--bind", str(server.data), str(target)], capture_output=True).returncode != 0:
        pytest.skip("not here: mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(target)], check=True)
        other = cold()
        other.options["data"] = str(target)
        assert str(target) in refused(other)
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
    assert server.stop() == 0


def test_a_foreign_database(cold):
    server = cold()
    server.data.mkdir()
    subprocess.run(["sqlite3", str(server.data / "history.db"), "CREATE TABLE users(x); INSERT INTO users VALUES(1)"],
                   check=True)
    before = (server.data / "history.db").read_bytes()
    assert "history.db" in refused(server)
    assert (server.data / "history.db").read_bytes() == before


def test_no_database_at_all(cold):
    server = cold()
    server.data.mkdir()
    (server.data / "staging.db").write_bytes(b"no database, " * 1000)
    assert "staging.db" in refused(server)
    assert (server.data / "staging.db").read_bytes() == b"no database, " * 1000


def test_a_newer_schema(cold):
    server = cold()
    server.start()
    assert server.stop() == 0
    for file in ("history.db", "staging.db"):
        subprocess.run(["sqlite3", str(server.data / file), "UPDATE meta SET value = value + 1 WHERE name = 'schema'"],
                       check=True)
        line = refused(server)
        assert file in line and "newer" in line
        for command in ("check", "export"):
            told = run(command, "--data", server.data, check=False).stderr.decode()
            assert file in told and "newer" in told, told
        subprocess.run(["sqlite3", str(server.data / file), "UPDATE meta SET value = value - 1 WHERE name = 'schema'"],
                       check=True)
        server.log_path.unlink()
    server.start()
    assert server.stop() == 0


def test_another_seed(cold):
    server = cold(hash_seed="0123456789abcdef")
    server.start()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    assert server.stop() == 0
    server.options["hash_seed"] = "fedcba9876543210"
    line = refused(server)
    assert line.startswith(f"unseen: hash_seed differs from the seed of the plays in {server.data} (fingerprint "), line
    assert line.endswith("): remove hash_seed from the configuration, or use another data folder"), line
    assert "0123456789abcdef" not in server.log()
    server.options["hash_seed"] = "0123456789abcdef"
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
    assert server.stop() == 0


def corrupt_one_blob(server):
    subprocess.run(
        ["sqlite3", str(server.data / "history.db"),
         "UPDATE plays_202611 SET filter = substr(filter, 1, length(filter) - 3) || x'00ff00' "
         "WHERE user_key = (SELECT user_key FROM users WHERE user = 'victim')"], check=True)


def test_a_corrupt_filter(make_server):
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "victim", *[f"i{k}" for k in range(100)])
        c.pipeline([("PLAYED", f"u{i}", "a") for i in range(100)])
        c.command("RING", "FLUSH")
    assert server.stop() == 0
    corrupt_one_blob(server)
    check = run("check", "--data", server.data, check=False)
    assert check.returncode == 1
    text = (check.stdout + check.stderr).decode()
    assert "victim" in text and "2026-11" in text, text
    server.start()
    with server.client() as c:
        for words in (("UNSEEN", "victim", "i1"), ("SEEN", "victim", "x"), ("FILTER", "victim", "ITEMS", "x")):
            with pytest.raises(RespError) as caught:
                c.command(*words)
            assert "victim" in str(caught.value) and "2026-11" in str(caught.value)
        assert c.pipeline([("UNSEEN", f"u{i}", "a", "b") for i in range(100)]) == [[b"b"]] * 100
        c.command("PLAYED", "victim", "new")
        c.command("PLAYED", "u1", "new")
        assert c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "u1", "new", "b") == [b"b"]
        with pytest.raises(RespError):
            c.command("UNSEEN", "victim", "new")
    assert "victim" in server.log() and "2026-11" in server.log()


def test_a_corrupt_filter_left_out(make_server):
    server = make_server(on_damage="answer")
    with server.client() as c:
        c.command("PLAYED", "victim", *[f"i{k}" for k in range(100)])
        c.command("RING", "FLUSH")
    assert server.stop() == 0
    corrupt_one_blob(server)
    server.start()
    with server.client() as c:
        c.command("PLAYED", "victim", "new")
        assert c.command("UNSEEN", "victim", "i1", "new") == [b"i1"]
        assert "damaged_answers:1" in c.command("INFO").decode()


def test_truncated_history(cold):
    server = cold()
    server.start()
    with server.client() as c:
        c.pipeline([("PLAYED", f"u{i}", *[f"i{k}" for k in range(30)]) for i in range(3000)])
        c.command("RING", "FLUSH")
    assert server.stop() == 0
    whole = (server.data / "history.db").read_bytes()
    (server.data / "history.db").write_bytes(whole[:len(whole) // 2 // 4096 * 4096])
    check = run("check", "--data", server.data, check=False)
    assert check.returncode == 1 and b"history.db" in check.stdout + check.stderr
    mended = run("check", "--repair", "--data", server.data, check=False)
    assert mended.returncode == 1
    for said in (check.stdout.decode(), mended.stderr.decode(), refused(server)):
        assert "history.db" in said and "restore a backup" in said and "check --salvage" in said
    (server.data / "history.db").write_bytes(whole)
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u2999", "i0", "i29", "x") == [b"x"]
    assert server.stop() == 0


def test_month_end_on_a_running_server(make_server):
    server = make_server(clock=START + 9 * DAY + 13 * HOUR)  # 30 November, 23:00
    with server.client() as old, server.client(3) as also:
        old.command("PLAYED", "u", "a")
        also.command("RING", "FLUSH")
        assert old.command("UNSEEN", "u", "a", "b") == [b"b"]
        old.command("DEBUG", "ADVANCE", 2 * HOUR)
        also.command("PLAYED", "u", "b")
        assert old.command("UNSEEN", "u", "a", "b", "c") == [b"c"]
        also.command("RING", "FLUSH")
        assert old.command("UNSEEN", "u", "a", "b", "c") == [b"c"]
        assert b"2026-12" in old.command("WHY", "u", "b")
        months = also.command("MONTHS")
        assert len(months) == 2


def test_a_lying_clock_on_a_running_server(make_server):
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("RING", "FLUSH")
        c.command("DEBUG", "JUMP", 5 * 365 * DAY)
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
        c.command("PLAYED", "u", "b")
        c.command("DEBUG", "JUMP", -40 * 365 * DAY)
        assert c.command("UNSEEN", "u", "a", "b", "c") == [b"c"]
        assert "clock" in server.log()


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-", "<&- >&-"])
def test_closed_standard_streams(make_server, closed):
    """No file of the data folder takes their numbers, and gets the log into its middle."""
    server = make_server()
    assert server.stop() == 0
    server.launcher = ("sh", "-c", f'exec "$0" "$@" {closed}')
    server.start()
    names = [os.readlink(f"/proc/{server.process.pid}/fd/{n}") for n in range(3)]
    assert set(names) <= {"/dev/null", str(server.log_path)}
    with server.client() as c:
        assert c.command("PLAYED", "u", "a") == 1
    done = subprocess.run(["sh", "-c", 'exec "$0" version <&- 2>&-', UNSEEN], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout.startswith(b"unseen ")
    assert subprocess.run(["sh", "-c", 'exec "$0" version >&-', UNSEEN], stderr=subprocess.DEVNULL).returncode != 0
