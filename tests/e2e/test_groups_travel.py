"""Groups on their travels: a backup, a repair, an archive, a promotion and a return, the views of SQL. A cap of a group
hides as before what was sent before; WHY says so too."""
import json
import shutil

import pytest

from conftest import START, run
from partition import CUT
from test_archive import archive_all, restore
from test_groups_kept import POLICIES, authors, level, pair, say, send  # noqa: F401

SENT = ["b2", "b3", "c1"]  # of send(): the two of A hide a3, the one of B hides nothing


def place(server, item):
    """Where WHY finds it hidden."""
    return [dict(zip(flat[::2], flat[1::2]))[b"place"] for flat in say(server, "WHY", "u", item, "POLICY", "authors")]


def hides(server):
    assert authors(server) == SENT
    assert place(server, "a1") == [b"group"] and place(server, "b1") == [] and place(server, "x") == []


def check(data, *options):
    assert json.loads(run("check", "--json", "--data", data, *options).stdout)["problems"] == []


@pytest.fixture(params=["staged", "flushed", "both"])
def sent(request, make_server):
    """A server that has sent: all of it is in staging.db, or in history.db, or each has some."""
    server = make_server(clock=START, policies=POLICIES)
    if request.param == "both":
        say(server, "DELIVERED", "u", "PAIRS", "a1", "A")
        say(server, "RING", "FLUSH")
    send(server)
    if request.param == "flushed":
        say(server, "RING", "FLUSH")
    hides(server)
    return server


@pytest.fixture
def serve(make_server):
    """A server of a folder that is there already."""
    def start(data):
        server = make_server(clock=START, policies=POLICIES)
        assert server.stop() == 0
        shutil.rmtree(server.data)
        shutil.copytree(data, server.data)
        return server.start()

    return start


def test_a_backup(sent, serve, folder):
    copy = folder / "copy"
    run("backup", copy, "--data", sent.data)
    say(sent, "DELIVERED", "u", "PAIRS", "b2", "B")
    check(copy)
    hides(serve(copy))
    assert authors(sent) == ["c1"]


def test_a_clone(sent, serve, folder):
    run("clone", f"127.0.0.1:{sent.port}", "--data", folder / "clone", "--test-clock", START)
    check(folder / "clone")
    hides(serve(folder / "clone"))


def test_a_repair_of_nothing(sent):
    assert sent.stop() == 0
    check(sent.data)
    check(sent.data, "--repair")
    sent.start()
    hides(sent)


def test_an_archive(make_server, serve, folder):
    url = f"file://{folder}/archive"
    server = make_server(clock=START, archive_url=url, archive_rate="0", policies=POLICIES)
    send(server)
    archive_all(server)
    target = folder / "restored"
    target.mkdir()
    restore(url, target, server.clock)
    check(target / "data")
    hides(serve(target / "data"))


def test_the_old_primary_returns(pair):  # noqa: F811
    """What it alone had recorded comes to the new one with its groups."""
    old, new, wire = pair(clock=START, policies=POLICIES)
    level(old, new)
    wire.set(CUT)
    send(old)
    assert old.stop() == 0
    run("promote", "--to", f"127.0.0.1:{new.port}", "--force")
    run("rejoin", f"127.0.0.1:{new.port}", "--data", old.data, "--test-clock", START)
    hides(new)
    say(new, "RING", "FLUSH")
    hides(new)
