"""Whatever a release wrote is opened by all later versions, and answers as it did: its folder, its export, its
configuration. release.py made them."""
import json
import re
import tarfile

import pytest

from conftest import DAY, HOUR, run
from release import RELEASES, plain, wait_sealed, words_of
from resp import flat
from test_export import load
from test_export import sound as checked

KEPT = sorted(path for path in RELEASES.glob("*") if path.is_dir())


def test_there_is_one():
    assert KEPT, f"{RELEASES} is empty: tests/e2e/release.py fills it"


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def kept(request):
    return request.param


@pytest.fixture
def told(kept):
    told = json.loads((kept / "told.json").read_text())
    kinds = {kind: sum(kind in one["ask"] for one in told) for kind in ("UNSEEN", "SEEN", "FILTER", "POOL", "SESSION")}
    assert all(kinds.values()), kinds
    return told


@pytest.fixture
def clock(kept):
    return int((kept / "clock").read_text())


def unlike(server, told, without=()):
    """The questions that are answered in another way now, but for those with a word of `without`."""
    asked = [one for one in told if not set(without) & set(one["ask"])]
    assert asked
    with server.client() as c:
        answers = [plain(c.command(*words_of(one["ask"]))) for one in asked]
    return [(one["ask"][:5], one["answer"], answer) for one, answer in zip(asked, answers) if answer != one["answer"]]


def sound(server):
    """Stopped, read through, and without a word of an error."""
    checked(server)
    assert " error " not in server.log(), server.log()


def test_the_folder(cold, kept, told, clock):
    server = cold(clock=clock, store="sqlite")
    server.data.mkdir(mode=0o700)
    with tarfile.open(kept / "folder.tar.gz") as tar:
        tar.extractall(server.data)
    assert json.loads(run("check", "--json", "--data", server.data).stdout)["problems"] == []
    server.start()
    assert unlike(server, told) == []

    with server.client() as c:
        c.command("PLAYED", "u0", "on-top0", "on-top1")
        c.command("PLAYED", "new", "on-top0")
        c.command("DELIVERED", "u3", "on-top2")
        assert c.command("POOL", "SET", "new", "on-top0", "on-top3")[0] == 2
        assert c.command("FORGET", "leaves") == 1
    changed = {"leaves"}

    def on_top():
        assert unlike(server, told, changed) == []
        with server.client() as c:
            assert c.command("UNSEEN", "u0", "on-top0", "on-top1", "on-top3") == [b"on-top3"]
            assert c.command("FILTER", "new", "POOL", "new") == [b"on-top3"]
            assert c.command("UNSEEN", "u3", "on-top2", "on-top3") == [b"on-top3"]
            assert c.command("UNSEEN", "leaves", "l9", "l10", "l11") == [b"l9", b"l10", b"l11"]

    on_top()
    server.restart()
    on_top()  # sessions too

    # Until a night has sealed what was the current month.
    with server.client() as c:
        months = [flat(month) for month in c.command("MONTHS")]
        c.command("RING", "FLUSH")
    sealed = sum(month["state"] == b"sealed" for month in months)
    assert 0 < sealed < len(months)
    server.advance(16 * HOUR)
    for _ in range(10):
        server.advance(DAY)
    wait_sealed(server, len(months))
    changed.add("SESSION")  # it has ended
    on_top()
    server.restart()
    on_top()
    sound(server)


def test_the_export(cold, kept, told, clock):
    server = cold(clock=clock, store="sqlite")
    done = json.loads(load(server.data, kept / "users.unseen", clock=clock, args=("--json",)).stdout)
    assert done["loaded"] > 0 and done["loaded"] == done["users"]
    not_moved = ("POOL", "SESSION")
    server.start()
    assert unlike(server, told, not_moved) == []
    with server.client() as c:
        c.command("PLAYED", "u0", "on-top0")
        c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "u0", "on-top0", "on-top3") == [b"on-top3"]
    server.restart()
    assert unlike(server, told, not_moved) == []
    sound(server)


def test_the_configuration(kept):
    file = kept / "unseen.conf"
    named = re.findall(r"^[a-z_]+ =", file.read_text(), re.MULTILINE)
    report = json.loads(run("check-config", "-c", file, "--json").stdout)
    assert report["problems"] == []
    assert len([option for option in report["options"].values() if option["from"] == "file"]) == len(named) > 50
