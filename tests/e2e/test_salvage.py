"""unseen check --salvage: what is left of damaged files goes into a new folder, and nothing is lost without a word."""
import json
import random
import shutil
import sqlite3

import pytest

from conftest import PATIENCE, run
from resp import RespError

USERS = 1000
PAGE = 2048


@pytest.fixture
def full(server):
    """1,000 users with plays and deliveries in history, and 200 of them with staged plays."""
    with server.client() as c:
        for user in range(USERS):
            c.command("PLAYED", f"u{user}", *(f"v{user}-{i}" for i in range(20)))
            c.command("DELIVERED", f"u{user}", "d")
        c.command("FORGET", "u1", "v1-0")
        c.command("RING", "FLUSH")
        for user in range(200):
            c.command("PLAYED", f"u{user}", "staged")
    assert server.stop() == 0
    return server


def salvage(server, code=0):
    target = server.folder / "saved"
    shutil.rmtree(target, ignore_errors=True)
    result = run("check", "--salvage", target, "--json", "--data", server.data, check=False)
    assert result.returncode == code, result.stderr
    return target, json.loads(result.stdout)


def ask_all(server, accepted):
    """Of each user: all seen, or an error until the losses are accepted. Returns how many got errors, and lost plays."""
    errors = lost = 0
    known = set(server.sqlite("history.db", "SELECT user FROM users").split("\n"))
    with server.client() as c:
        for user in range(USERS):
            items = [f"v{user}-{i}" for i in range(20)]
            try:
                unseen = c.command("UNSEEN", f"u{user}", *items, "never")
            except RespError as error:
                assert not accepted and "can't be read" in str(error), error
                errors += 1
                continue
            assert b"never" in unseen
            unseen = [i for i in unseen if i not in (b"never", b"v1-0")]
            lost += unseen != []
            # Whose name is lost, too, nobody can mark: the command has said so.
            assert accepted or not unseen or f"u{user}" not in known, (user, unseen)
    return errors, lost


def serve(server, folder):
    server.data = folder
    server.options["data"] = str(folder)
    server.start()


def test_a_whole_folder(full):
    target, report = salvage(full)
    assert report["losses"] == [] and report["complete"]
    assert run("check", "--data", target, check=False).returncode == 0
    serve(full, target)
    assert ask_all(full, accepted=True) == (0, 0)
    with full.client() as c:
        assert c.command("UNSEEN", "u7", "d", "staged", "x") == [b"x"]
        assert c.command("UNSEEN", "u1", "v1-0") == [b"v1-0"]


def through(server, losses_expected=True):
    """Salvages, asks, accepts, asks again. Returns users with errors, and then with lost plays."""
    before = {f.name: f.read_bytes() for f in server.data.glob("*.db*")}
    data = server.data
    target, report = salvage(server)
    assert {f.name: f.read_bytes() for f in data.glob("*.db")} == {k: v for k, v in before.items() if k.endswith(".db")}
    assert bool(report["losses"]) == losses_expected, report
    serve(server, target)
    errors, _ = ask_all(server, accepted=False)
    assert server.stop() == 0
    run("check", "--repair", "--data", target)  # ends with nothing left
    server.start()
    assert ask_all(server, accepted=True)[0] == 0
    assert server.stop() == 0
    server.data = data
    return errors


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_history_cut_short(full, share):
    history = full.data / "history.db"
    whole = history.read_bytes()
    history.write_bytes(whole[:int(len(whole) * share) // PAGE * PAGE])
    result = run("check", "--data", full.data, check=False)
    assert result.returncode == 1
    errors = through(full)
    assert errors > 0 or share == 0.1  # of so little that not even the names of users are left


def test_history_cut_short_at_many_places(full):
    history = full.data / "history.db"
    whole = history.read_bytes()
    for cut in random.Random(7).sample(range(PAGE, len(whole)), 8):
        history.write_bytes(whole[:cut])
        _, report = salvage(full)
        assert report["losses"], cut


def test_bytes_flipped(full):
    history = full.data / "history.db"
    whole = history.read_bytes()
    rand = random.Random(11)
    for _ in range(4):
        damaged = bytearray(whole)
        for _ in range(5):
            at = rand.randrange(PAGE, len(whole) - 64)
            damaged[at:at + 64] = bytes(rand.randrange(256) for _ in range(64))
        history.write_bytes(damaged)
        target = full.folder / "saved"
        shutil.rmtree(target, ignore_errors=True)
        result = run("check", "--salvage", target, "--json", "--data", full.data, check=False)
        assert result.returncode == 0, result.stderr
        run("check", "--repair", "--data", target)  # ends with nothing left


def test_nothing_but_staging(full):
    """The history is gone: what was recorded since the last flush is saved."""
    (full.data / "history.db").unlink()
    full.spawn()
    assert full.process.wait(PATIENCE) == 1
    assert "history.db is missing" in full.log() and "--salvage" in full.log()
    target, report = salvage(full)
    assert len(report["losses"]) == 1 and "history.db: nothing can be read" in report["losses"][0]
    again = run("check", "--data", full.data, "--salvage", full.folder / "again").stdout.decode().splitlines()
    assert again[-2].endswith("again, 1 loss") and again[-1].startswith(f"next: unseen check --data {full.folder / 'again'}"), again
    serve(full, target)
    with full.client() as c:
        assert c.command("UNSEEN", "u7", "staged", "v7-1") == [b"v7-1"]


def test_staging_cut_short(full):
    staging = full.data / "staging.db"
    whole = staging.read_bytes()
    staging.write_bytes(whole[:len(whole) // 2 // 1024 * 1024])
    target, report = salvage(full)
    assert any(loss.startswith("staging.db") for loss in report["losses"])
    serve(full, target)
    assert ask_all(full, accepted=True) == (0, 0)


def test_refusals(full):
    """Nothing to save, and no room for it."""
    empty = full.folder / "empty"
    empty.mkdir()
    result = run("check", "--salvage", full.folder / "new", "--data", empty, check=False)
    assert result.returncode == 1 and b"neither history.db nor staging.db" in result.stderr
    result = run("check", "--salvage", full.data, "--data", full.data, check=False)
    assert result.returncode == 1 and b"is not empty" in result.stderr
    for options in (("--salvage", "x", "--repair"), ("--nameless", "drop"), ("--repair", "--nameless", "what")):
        assert run("check", *options, "--data", full.data, check=False).returncode == 2
    full.start()
    result = run("check", "--salvage", full.folder / "new", "--data", full.data, check=False)
    assert result.returncode == 1 and b"in use by process" in result.stderr
    assert not (full.folder / "new").exists()


def test_a_seed_that_cannot_be_read(full):
    with sqlite3.connect(full.data / "history.db") as db:
        seed = db.execute("SELECT value FROM meta WHERE name = 'seed'").fetchone()[0]
        db.execute("DELETE FROM meta WHERE name = 'seed'")
    db.close()
    result = run("check", "--salvage", full.folder / "new", "--data", full.data, check=False)
    assert result.returncode == 1 and b"hash seed of history.db can't be read" in result.stderr
    result = run("check", "--salvage", full.folder / "new", "--data", full.data, "--hash-seed", "0" * 15 + "1", check=False)
    assert result.returncode == 1 and b"another hash seed" in result.stderr
    run("check", "--salvage", full.folder / "new", "--data", full.data, "--hash-seed", seed)
    assert not (full.folder / "new" / "history.partial.db").exists()
