"""The data folder: who has it, whose its files are, and what is told when it holds nothing."""
import json
import os
import shutil
import subprocess
import urllib.request

import pytest

from conftest import DAY, PATIENCE, START, UNSEEN, RespError, Server, http_url, run, until


def wait_for(server, condition):
    until(lambda: condition() or not server.alive(), server.log)
    assert server.alive(), server.log()


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
    wait_for(server, lambda: lock.read_text() == named)
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


# --- a folder that holds nothing ---

def refused(folder, data, *args, code=1, **options):
    server = Server(folder, wait=False, store="sqlite", **options)
    server.options["data"] = str(data)
    server.spawn(*args)
    assert server.process.wait(PATIENCE) == code, server.log()
    return server.log().splitlines()[-1]


def test_an_empty_history_is_no_silent_thing(make_server):
    server = make_server(store="sqlite", http="127.0.0.1:0")
    begun = "warn the data folder holds no data: an empty history is begun"
    assert f"{begun} data={server.data} seed=" in server.log().replace('"', "")
    with server.client() as c:
        assert f"begun_ms:{START}\r\n".encode() in c.command("INFO")
    with urllib.request.urlopen(http_url(server) + "/metrics", timeout=PATIENCE) as reply:
        assert f"unseen_history_begun_timestamp_seconds {START // 1000}" in reply.read().decode()
    with urllib.request.urlopen(http_url(server) + "/v1/status", timeout=PATIENCE) as reply:
        status = json.load(reply)
    assert status["figures"]["begun_ms"] == START
    assert any("an empty history is begun" in w["text"] for w in status["warnings"]), status["warnings"]
    server.clock += DAY
    server.restart()
    assert server.log().count(begun) == 1
    with server.client() as c:
        assert f"begun_ms:{START}\r\n".encode() in c.command("INFO")


def test_a_service_that_has_had_data(make_server, folder):
    mark = folder / "mark"
    server = make_server(store="sqlite", expect_data=str(mark))
    assert mark.read_text().startswith(f"{server.data}\nseed=")
    made = mark.read_text()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    server.restart()
    assert mark.read_text() == made
    assert server.stop() == 0

    typo = folder / "dta"
    text = refused(folder, typo, expect_data=str(mark))
    assert f"the data folder {typo} holds no data, but this service had some in {server.data}, as {mark} says" in text
    assert "unseen serve --new" in text
    assert not typo.exists()
    unmounted = folder / "unmounted"
    unmounted.mkdir()
    (unmounted / "lock").touch()
    assert "is the path right, and its disk mounted?" in refused(folder, unmounted, expect_data=str(mark))
    (unmounted / "history.db").touch()  # of no byte
    (unmounted / "staging.db").touch()
    assert "holds no data" in refused(folder, unmounted, expect_data=str(mark))
    shutil.copy(server.data / "staging.db", unmounted)
    assert "history.db is missing or empty" in refused(folder, unmounted, expect_data=str(mark))
    assert mark.read_text() == made

    server.options["data"] = str(typo)
    server.data = typo
    server.spawn("--new")
    wait_for(server, lambda: mark.read_text().startswith(f"{typo}\n"))
    assert server.stop() == 0
    server.start()
    mark.unlink()
    server.restart()
    assert mark.read_text().startswith(f"{typo}\n")


def test_data_is_expected(make_server, folder):
    assert "and expect_data is yes" in refused(folder, folder / "none", expect_data="yes")
    assert not (folder / "none").exists()
    inside = folder / "none" / "mark"
    assert "expected a file outside of the data folder" in refused(folder, folder / "none", expect_data=inside, code=78)
    assert "expected no, yes, or the whole path" in refused(folder, folder / "none", expect_data="maybe", code=78)
    missing = folder / "there" / "is" / "none"
    assert f"expect_data: can't write {missing}.new" in refused(folder, folder / "d", expect_data=missing)
    server = make_server(store="sqlite")
    server.options["expect_data"] = "yes"
    server.restart()


def test_import_and_load_begin_no_history_in_silence(make_server, folder):
    trace, users, mark = folder / "plays.tsv", folder / "users", folder / "mark"
    trace.write_text(f"{START}\tu\ta\n")
    clock = "--test-clock", START, "--min-free", "0", "--timezone", "UTC"
    begun = "warn the data folder holds no data: an empty history is begun data=\"{}\" seed="
    told = run("import", trace, "--data", folder / "first", "--quiet", *clock).stderr.decode()
    assert begun.format(folder / "first") in told and len(told.splitlines()) == 1
    assert run("import", trace, "--data", folder / "first", "--quiet", *clock).stderr == b""
    run("export", users, "--data", folder / "first", *clock)
    told = run("load", users, "--data", folder / "second", *clock).stderr.decode()
    assert begun.format(folder / "second") in told

    mark.write_text(f"{folder}/first\n")
    for expect in "yes", str(mark):
        for name, file in ("import", trace), ("load", users):
            words = name, file, "--data", folder / "typo", "--expect-data", expect, *clock
            refusal = run(*words, check=False).stderr.decode()
            assert f"the data folder {folder}/typo holds no data" in refusal and f"run once unseen {name} --new" in refusal
            assert not (folder / "typo").exists()
            run(*words, "--new")
            assert mark.read_text() == f"{folder}/first\n"  # of what was served
            shutil.rmtree(folder / "typo")


def test_the_folder_of_another_history(make_server, folder):
    """A mark of 0.1.0 takes any; one of ours that of another disk by name. A folder without plays may change its seed."""
    mark = folder / "mark"
    server = make_server(store="sqlite", expect_data=str(mark))
    mark.write_text("/elsewhere\n")
    server.restart()
    path, history = mark.read_text().splitlines()
    assert path == str(server.data) and history.endswith(f" begun={START}")
    assert server.stop() == 0

    trace, users = folder / "plays.tsv", folder / "users"
    trace.write_text(f"{START}\tu\ta\n")
    clock = "--test-clock", START + 1, "--min-free", "0", "--timezone", "UTC"
    run("import", trace, "--data", folder / "other", *clock)
    refusal = refused(folder, folder / "other", expect_data=str(mark))
    assert f"the data folder {folder}/other holds another history (seed " in refusal, refusal
    assert f"had in {server.data} (seed {history[5:13]}), as {mark} says" in refusal and "unseen serve --new" in refusal
    assert mark.read_text() == f"{path}\n{history}\n"

    run("export", users, "--data", folder / "other", *clock)
    run("load", users, "--data", server.data, *clock)  # which adopts its seed
    server.start()
    adopted = mark.read_text().splitlines()[1]
    assert adopted != history and adopted.endswith(f" begun={START}")
    assert server.stop() == 0

    run("load", users, "--data", folder / "again", *clock)  # of the same seed: the same history
    server.options["data"], server.data = str(folder / "again"), folder / "again"
    server.start()
    assert mark.read_text().splitlines()[0] == str(folder / "again")
    assert server.stop() == 0

    run("import", trace, "--data", folder / "third", "--test-clock", START + 2, *clock[2:])
    assert "holds another history" in refused(folder, folder / "third", expect_data=str(mark))
    server.options["data"], server.data = str(folder / "third"), folder / "third"
    server.spawn("--new")
    wait_for(server, lambda: mark.read_text().startswith(f"{folder}/third\n"))
    assert server.stop() == 0
    server.start()
    for text in "no path\n", f"{folder}/third\nseed=1 begun=0\n", f"{folder}/third\nseed=00000001 begun=-1\n":
        mark.write_text(text)
        assert f"{mark} is no mark of Unseen" in refused(folder, folder / "new", "--new", expect_data=str(mark))


# --- whose the files are ---

OTHER = 54321  # no user of the system
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")


def owners(path):
    return {str(p.relative_to(path)): p.lstat().st_uid for p in [path, *path.rglob("*")]}


@as_root
def test_what_root_makes_is_the_folders_owner(folder):
    folder.chmod(0o755)
    home, root = folder / "home", folder / "root"
    home.mkdir()
    root.mkdir()
    os.chown(home, OTHER, OTHER)
    data = home / "data"
    trace = folder / "plays.tsv"
    trace.write_text(f"{START}\tu\ta\n")
    clock = "--test-clock", START, "--min-free", "0", "--timezone", "UTC"
    run("import", trace, "--data", data, *clock)
    for words in ("months",), ("user", "u"), ("why", "u", "a"), ("check",), ("clock",):
        run(*words, "--data", data, *clock)
    run("backup", home / "copies" / "one", "--data", data, *clock)
    run("backup", root / "copy", "--data", data, *clock)
    (home / "server").mkdir()
    os.chown(home / "server", OTHER, OTHER)
    server = Server(folder / "home" / "server", store="sqlite", unix_socket=str(home / "socket"))
    server.kill()  # with its logs
    assert {"data/lock", "data/staging.db", "data/history.db", "copies/one/history.db", "socket",
            "server/data/staging.db-wal", "server/data/history.db-shm"} <= set(owners(home))
    assert {p for p, uid in owners(home).items() if uid != OTHER} == {"server/log", "server/unseen.conf"}  # the test's
    assert set(owners(root).values()) == {0}

    # What is salvaged takes the place of what was damaged, beside it.
    shutil.move(data, root / "data")
    run("check", "--salvage", root / "data.saved", "--data", root / "data", *clock)
    assert set(owners(root / "data.saved").values()) == {OTHER}

    # A folder that an earlier command of root's made unusable is mended by the next one.
    os.chown(root / "data" / "staging.db", 0, 0)
    run("months", "--data", root / "data", *clock)
    assert set(owners(root / "data").values()) == {OTHER}


@as_root
def test_a_clone_for_another_user(make_server, folder):
    primary = make_server(store="sqlite")
    target = folder / "replica"
    target.mkdir()
    os.chown(target, OTHER, OTHER)
    clone = "clone", f"127.0.0.1:{primary.port}", "--data", target, "--test-clock", START, "--min-free", "0"
    for _ in range(2):  # the second one is made beside it
        run(*clone)
        assert set(owners(target).values()) == {OTHER}
    assert not (folder / "replica.clone").exists()


def test_a_clone_needs_a_folder(make_server, folder):
    primary = make_server(store="sqlite")
    config = folder / "unseen.conf"
    config.write_text(f"data = {folder / 'named'}\n")
    for words in (), ("-c", config):
        done = run("clone", f"127.0.0.1:{primary.port}", *words, check=False)
        assert done.returncode == 1 and b"--data DIR names, and none is named" in done.stderr, done.stderr
    assert not (folder / "named").exists()


def test_a_backup_holds_data(folder):
    trace = folder / "plays.tsv"
    trace.write_text(f"{START}\tu\ta\n")
    clock = "--test-clock", START, "--min-free", "0", "--timezone", "UTC"
    run("import", trace, "--data", folder / "data", *clock)
    run("backup", folder / "copy", "--data", folder / "data", *clock)
    for words in ("months",), ("user", "u"), ("why", "u", "a"), ("clock",), ("promote",):
        shutil.copytree(folder / "copy", folder / words[0])
        done = run(*words, "--data", folder / words[0], *clock, check=False)
        assert done.returncode == 0 or b"is the folder of a primary already" in done.stderr, done.stderr
        done = run(*words, "--data", folder, *clock, check=False)
        assert done.returncode == 1 and f"{folder} holds no data of Unseen".encode() in done.stderr, done.stderr
    assert not (folder / "lock").exists()


def test_a_wrong_folder_is_no_failed_backup(make_server):
    server = make_server(store="sqlite")
    with server.client() as c:
        for wrong in "/elsewhere", "a/../..", ".":
            with pytest.raises(RespError):
                c.command("BACKUP", wrong)
        assert b"backup_errors:0\r\n" in c.command("INFO")


@as_root
def test_media_that_can_only_be_read(folder):
    trace = folder / "plays.tsv"
    trace.write_text(f"{START}\tu\ta\n")
    clock = "--test-clock", str(START), "--min-free", "0", "--timezone", "UTC"
    data, media = folder / "data", folder / "media"
    run("import", trace, "--data", data, *clock)
    (data / "lock").unlink()
    media.mkdir()
    mount = f"mount --bind {data} {media} && mount -o remount,ro,bind {media}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed")

    def there(*words):
        command = mount + ' && exec "$@"'
        return subprocess.run(["unshare", "-m", "sh", "-c", command, "sh", UNSEEN, *words, "--data", media, *clock],
                              capture_output=True, text=True, timeout=PATIENCE)

    assert there("check").stdout == f"{media}: 0 problems\n"
    assert "1 user" in there("export", folder / "users").stdout
    for words in ("months",), ("user", "u"), ("why", "u", "a"):
        done = there(*words)
        assert done.returncode == 1 and "unseen check and unseen export only read" in done.stderr, done
    assert not (data / "lock").exists()
    # Where systemd starts it, the unit's sandbox is what forbids it.
    (data / "lock").touch()
    done = there("serve", "-c", os.devnull, "--listen", "none", "--unix-socket", folder / "socket", "--http", "none",
                 "--grpc", "none")
    assert done.returncode == 1 and f"ReadWritePaths={media}" in done.stderr, done
    assert "lock file" not in done.stderr  # one cause is enough
