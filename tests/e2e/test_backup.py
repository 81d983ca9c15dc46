"""unseen backup: copies taken under load, restored, and asked for every play that was acknowledged before."""
import json
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from conftest import HOUR, PATIENCE, START, UNSEEN, Server, run, until
from resp import RespError, encode
from test_crash import Ledger, judge, turn, write
from test_reload import reload

DECEMBER_1 = 1796083200000  # 2026-12-01T00:00Z
USERS = 120000  # some 15 MB of history: a copy of several portions


def snapshot(ledger):
    """What was acknowledged until now."""
    with ledger.lock:
        copy = Ledger()
        copy.plays = {user: list(items) for user, items in ledger.plays.items()}
        copy.deliveries = {user: list(items) for user, items in ledger.deliveries.items()}
        copy.forgotten = list(ledger.forgotten)
        return copy


def fill(folder, month_ms, clock):
    """Imports a month, so that there is something to copy."""
    trace = folder / "trace.tsv"
    with open(trace, "w") as out:
        for i in range(USERS):
            out.write(f"{month_ms + i}\told{i}\ta{i}\n")
            out.write(f"{month_ms + i}\told{i}\tb{i}\n")
    run("import", trace, "--data", folder / "data", "--test-clock", clock, "--min-free", "0", "--timezone", "UTC")
    trace.unlink()


def restored(folder, copy, clock, **options):
    """As docs/backup.md says: the two files into an empty data folder, check, start."""
    folder.mkdir()
    server = Server(folder, clock=clock, wait=False, **options)
    server.data.mkdir()
    for name in ("staging.db", "history.db"):
        shutil.copy(copy / name, server.data)
    report = json.loads(run("check", "--json", "--data", server.data).stdout)
    assert report["problems"] == []
    return server.start()


def test_copies_under_load(folder):
    """Plays, deliveries, forgets, flushes, and the sealing of a month go on while three copies are made."""
    clock = DECEMBER_1 + 22 * HOUR
    fill(folder, DECEMBER_1 - 10 * 24 * HOUR, clock)
    ledger = Ledger()
    server = Server(folder, clock=clock, slot_length="15min", slots="4", workers="2")
    stop = threading.Event()
    threads = [threading.Thread(target=write, args=(server, ledger, n, 0, stop)) for n in range(3)]
    threads.append(threading.Thread(target=turn, args=(server, stop)))
    copies = []
    try:
        for t in threads:
            t.start()
        until(lambda: "month begins to be sealed" in server.log() or not any(t.is_alive() for t in threads), server.log)
        for i in range(3):
            goal = ledger.acknowledged + 2000
            until(lambda: ledger.acknowledged >= goal or not any(t.is_alive() for t in threads), server.log)
            before = snapshot(ledger)
            copy = folder / f"copy{i}"
            report = json.loads(run("backup", copy, "--data", server.data, "--json").stdout)
            assert report["problems"] == 0 and report["bytes"] == sum(f.stat().st_size for f in copy.iterdir())
            copies.append((copy, before))
    finally:
        stop.set()
        for t in threads:
            t.join()
    with server.client() as c:
        info = c.command("INFO", "backup").decode()
        assert "last_backup_result:ok" in info and f"last_backup_folder:{copies[-1][0]}" in info
    assert server.stop() == 0
    log = server.log()
    assert log.count("backup done") == 3 and "Sanitizer" not in log
    for i, (copy, before) in enumerate(copies):
        again = restored(folder / f"restored{i}", copy, server.clock, slot_length="15min", slots="4")
        judge(again, before)
        with again.client() as c:
            c.command("RING", "FLUSH")
            for user in range(0, USERS, 1001):
                assert c.command("UNSEEN", f"old{user}", f"a{user}", f"b{user}") == []
            c.command("PLAYED", "user1", "new")
        judge(again, before)
        assert again.stop() == 0, again.log()
        shutil.rmtree(again.folder)


def begin(server, copy):
    """Sends BACKUP, and returns when history is being copied."""
    c = server.client()
    c.send(encode("BACKUP", str(copy)))
    deadline = time.monotonic() + PATIENCE
    while not (copy / "history.partial.db").exists():
        assert time.monotonic() < deadline and not (copy / "history.db").exists(), server.log()
    return c


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    fill(folder, START - 24 * HOUR, START)
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def large(folder, filled):
    shutil.copytree(filled, folder / "data")
    server = Server(folder)
    yield server
    if server.alive():
        server.kill()


def test_kill_in_the_middle(large, folder):
    copy = folder / "copy"
    with large.client() as c:
        c.command("PLAYED", "u", "a")
    c = begin(large, copy)
    large.kill()
    c.close()
    # What is left can't be taken for a copy.
    assert not (copy / "history.db").exists()
    result = run("check", "--data", copy, check=False)
    assert result.returncode == 1 and b"there is no history.db" in result.stderr
    large.start()
    with large.client() as c:
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
        with pytest.raises(RespError, match="is not empty, it holds .*partial.* of a backup that runs or was cut short"):
            c.command("BACKUP", str(copy))
        c.command("BACKUP", str(folder / "second"))
    assert large.stop() == 0
    again = restored(folder / "restored", folder / "second", START)
    with again.client() as c:
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
    assert again.stop() == 0


def test_stop_in_the_middle(large, folder):
    """SIGTERM gives the copy up, tells who waits for it, and leaves nothing of it."""
    copy = folder / "copy"
    c = begin(large, copy)
    began = time.monotonic()
    assert large.stop() == 0, large.log()
    if "backup done" not in large.log():
        assert isinstance(c.read(), RespError)
        assert not copy.exists()
    assert "stopped with work under way" not in large.log()
    assert time.monotonic() - began < PATIENCE
    c.close()


def test_one_at_a_time(large, folder):
    c = begin(large, folder / "copy")
    with large.client() as other:
        try:
            other.command("BACKUP", str(folder / "second"))
            assert (folder / "copy" / "history.db").exists()  # it was over already
        except RespError as e:
            assert str(e) == f"BUSY a backup to {folder / 'copy'} is under way; another may begin when it has ended"
            assert not (folder / "second").exists()
    assert c.read()
    c.close()


def test_command(large, folder):
    """A relative path is the shell's; without a server the command makes the copy itself."""
    with large.client() as c:
        c.command("PLAYED", "u", "staged")
    result = run("backup", "here", "--data", large.data, cwd=folder)
    assert result.stdout.startswith(f"{folder}/here: ".encode()) and b"copied and checked in" in result.stdout
    assert sorted(f.name for f in (folder / "here").iterdir()) == ["history.db", "staging.db"]
    # Each is one plain file, which the shell reads without writing beside it.
    for name in ("history.db", "staging.db"):
        assert subprocess.run(["sqlite3", "-readonly", f"file:{folder}/here/{name}?immutable=1", "PRAGMA quick_check"],
                              capture_output=True, text=True).stdout == "ok\n"
    for bad, words in ((folder / "here", b"is not empty"), (large.config, b"is a file"), ("/no/where", b"is outside of backup_root")):
        result = run("backup", bad, "--data", large.data, check=False)
        assert result.returncode == 1 and words in result.stderr and result.stdout == b""
    assert run("backup", check=False).returncode == 2
    assert run("backup", "", check=False).returncode == 2
    assert large.stop() == 0
    run("backup", folder / "alone", "--data", large.data, "--min-free", "0", "--test-clock", START)
    again = restored(folder / "restored", folder / "alone", START)
    with again.client() as c:
        assert c.command("UNSEEN", "u", "staged", "x") == [b"x"]
        assert c.command("UNSEEN", "old7", "a7", "b7", "x") == [b"x"]
    assert again.stop() == 0


def test_interrupted_command(large, folder):
    """Ctrl-C ends the command; the server goes on."""
    process = subprocess.Popen([str(UNSEEN), "backup", str(folder / "copy"), "--data", str(large.data)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until((folder / "copy").exists)
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)
    until(lambda: "backup done" in large.log(), large.log)
    assert run("check", "--data", folder / "copy").returncode == 0
    assert large.stop() == 0


def test_root(make_server, folder):
    """By default beside the data folder; below it, whatever stands above the copy is made; nowhere else."""
    server = make_server(backup_root="")
    root = server.folder / "data-backups"
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        assert c.command("BACKUP", "some/where")[0] == b"bytes"
        with pytest.raises(RespError, match=f"outside of backup_root, expected a folder below .{root}"):
            c.command("BACKUP", "/etc/cron.d")
    assert (root / "some" / "where" / "history.db").stat().st_mode & 0o777 == 0o600
    assert root.stat().st_mode & 0o777 == 0o700
    assert run("backup", "a/b", "--data", server.data, cwd=root).returncode == 0
    outside = run("backup", folder / "elsewhere", "--data", server.data, check=False)
    assert outside.returncode == 1 and f"a folder below \"{root}\"".encode() in outside.stderr
    assert server.stop() == 0
    # The command's own process writes where its user may, and makes what is above.
    run("backup", folder / "else" / "where", "--data", server.data, "--min-free", "0", "--test-clock", START)
    assert (folder / "else" / "where" / "history.db").exists()


def test_no_root(make_server):
    with make_server(backup_root="none").client() as c:
        with pytest.raises(RespError, match="backup_root is none"):
            c.command("BACKUP", "x")


def info(server):
    with server.client() as c:
        lines = c.command("INFO", "backup").decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def scheduled(root):
    """Whole ones, oldest first."""
    return sorted(p.name for p in root.glob("scheduled-*") if (p / "history.db").exists())


def wait_for(condition, server):
    until(condition, server.log)


@pytest.fixture
def root(folder):
    (folder / "root").mkdir()
    return folder / "root"


def test_schedule(make_server, root):
    """START is 10:00 in UTC. The first at once, then one a day, the newest two kept, and nothing else touched."""
    (root / "scheduled-20200101T000000Z").mkdir()
    (root / "scheduled-20200101T000000Z" / "mine").write_text("no backup")
    (root / "scheduled-by-hand").mkdir()
    server = make_server(backup_root=str(root), backup_at="03:30", backup_keep="2")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        with pytest.raises(RespError, match="are those of backup_at"):
            c.command("BACKUP", "scheduled-20261122T033000Z")
        wait_for(lambda: len(scheduled(root)) == 1 and info(server)["backup_phase"] == "none", server)
        c.command("BACKUP", "by-hand")
    names = ["scheduled-20261122T033000Z", "scheduled-20261123T033000Z", "scheduled-20261124T033000Z"]
    server.advance(17 * HOUR)  # 03:00 of the 22nd
    before = scheduled(root)
    for name in names:
        server.advance(HOUR // 2)
        wait_for(lambda: info(server)["backup_phase"] == "none" and name in info(server)["last_backup_folder"], server)
        server.advance(23 * HOUR + HOUR // 2)
    wait_for(lambda: scheduled(root) == names[1:], server)
    assert len(before) <= 1
    assert (root / "scheduled-20200101T000000Z" / "mine").exists()
    assert (root / "scheduled-by-hand").is_dir() and (root / "by-hand" / "history.db").exists()
    assert info(server)["last_backup_problems"] == "0" and info(server)["last_backup_result"] == "ok"
    report = json.loads(run("check", "--json", "--data", root / names[2]).stdout)
    assert report["problems"] == []


def test_missed_time_and_age(make_server, root):
    """When the last one was is known after a restart; a time that passed meanwhile is made up for."""
    server = make_server(backup_root=str(root), backup_at="03:30")
    wait_for(lambda: len(scheduled(root)) == 1, server)
    wait_for(lambda: info(server)["last_good_backup_time"] == str(START // 1000), server)
    server.advance(1000)
    server.restart()
    assert info(server)["last_good_backup_time"] == str(START // 1000)
    assert info(server)["last_backup_result"] == "none"
    assert server.stop() == 0
    server.clock += 20 * HOUR
    server.start()
    wait_for(lambda: len(scheduled(root)) == 2, server)
    assert server.stop() == 0
    # One that the command makes without a server counts too.
    run("backup", root / "alone", "--data", server.data, "--min-free", "0", "--test-clock", server.clock + HOUR)
    server.clock += 2 * HOUR
    server.start()
    assert info(server)["last_good_backup_time"] == str((server.clock - HOUR) // 1000)
    assert len(scheduled(root)) == 2


def test_schedule_fails(make_server, root):
    """It is tried again, later and later, says so each time, and keeps what is there."""
    (root / "gone").write_text("a file")
    server = make_server(backup_root=str(root / "gone"), backup_at="03:30")
    failures = "scheduled backup failed, older ones are kept"
    wait_for(lambda: f"{failures} retry_s=300" in server.log(), server)
    server.advance(4 * 60 * 1000)
    server.advance(60 * 1000)
    wait_for(lambda: f"{failures} retry_s=600" in server.log(), server)
    assert server.log().count(failures) == 2
    (root / "gone").unlink()
    server.advance(10 * 60 * 1000)
    wait_for(lambda: len(scheduled(root / "gone")) == 1, server)


def test_no_schedule_by_a_clock_in_doubt(make_server, root):
    server = make_server(backup_root=str(root), backup_at="03:30")
    wait_for(lambda: len(scheduled(root)) == 1, server)
    with server.client() as c:
        c.command("DEBUG", "JUMP", 20 * HOUR)
        server.clock += 20 * HOUR
        wait_for(lambda: b"clock:steady" not in c.command("INFO", "ring"), server)
        for limit in ("2MiB", "3MiB"):  # after each of which the schedule is looked at
            reload(server, min_free=limit)
        c.command("DEBUG", "JUMP", -20 * HOUR)
        server.clock -= 20 * HOUR
    assert server.log().count("backup begins") == 1


def test_problems_keep_the_older_ones(make_server, root):
    """What the check finds is told, and no earlier backup, which may be better, is deleted for it."""
    server = make_server(backup_root=str(root), backup_at="03:30", backup_keep="1")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("RING", "FLUSH")
    wait_for(lambda: info(server)["last_backup_result"] == "ok", server)
    assert server.stop() == 0
    table = server.sqlite("history.db", "SELECT name FROM sqlite_schema WHERE name GLOB 'plays_[0-9]*'")
    with sqlite3.connect(server.data / "history.db") as db:
        db.execute(f"UPDATE {table} SET filter = x'0102'")
    db.close()
    server.start()
    server.advance(18 * HOUR)
    wait_for(lambda: "scheduled backup has problems, older ones are kept" in server.log(), server)
    assert len(scheduled(root)) == 2 and int(info(server)["last_backup_problems"]) > 0
    # The next good one makes up for all.
    assert server.stop() == 0
    with sqlite3.connect(server.data / "history.db") as db:
        db.execute(f"DELETE FROM {table}")
        db.execute("UPDATE months SET users = 0, plays = 0, bytes = 0")
    db.close()
    server.clock += 24 * HOUR
    server.start()
    wait_for(lambda: len(scheduled(root)) == 1, server)
