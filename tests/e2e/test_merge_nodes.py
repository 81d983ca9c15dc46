"""MERGE where there is more than one node, or more than one run: a replica, an old primary that rejoins, a clone, an archive,
a load, a kill -9 and a disk that has no room."""
import subprocess
import threading

import pytest

from conftest import START, UNSEEN, run, until
from old_redis import REDIS, OldRedis
from partition import CUT, OPEN
from resp import Closed, RespError
from test_archive import archive_all, burn, make, restored, url  # noqa: F401 (fixtures)
from test_read_through import make_noted
from test_reload import reload
from test_replica import level, make_follower, pair, say  # noqa: F401 (pair is a fixture)
from test_replica_faults import address, verify


def fill(server):
    """Of a phone: plays, deliveries and an un-seen item, half of them in history."""
    for words in (("PLAYED", "phone", "p1"), ("DELIVERED", "phone", "d1"), ("PLAYED", "phone", "x"), ("RING", "FLUSH"),
                  ("FORGET", "phone", "x"), ("PLAYED", "phone", "p2"), ("DELIVERED", "phone", "d2"),
                  ("PLAYED", "ann", "own")):
        say(server, *words)


ITEMS = ("p1", "d1", "x", "p2", "d2", "own", "none")
MERGED = [1, 1, 0, 1, 1, 1, 0]
PHONE = [1, 1, 0, 1, 1, 0, 0]
NOTHING = [0] * len(ITEMS)


def check(server, ann, phone):
    assert say(server, "SEEN", "ann", *ITEMS) == ann
    assert say(server, "SEEN", "phone", *ITEMS) == phone


@pytest.mark.parametrize("forget", [[], ["FORGET"]])
@pytest.mark.parametrize("cut", [False, True])
def test_it_reaches_the_replica(pair, forget, cut):  # noqa: F811
    primary, replica, wire = pair(clock=START)
    fill(primary)
    level(primary, replica)
    if cut:
        wire.set(CUT)
    assert say(primary, "MERGE", "phone", "ann", *forget) == 1
    if cut:
        primary.kill()
        primary.start()
        wire.set(OPEN)
    phone = NOTHING if forget else PHONE
    level(primary, replica)
    for server in (primary, replica):
        check(server, MERGED, phone)
    verify(primary, replica)
    say(primary, "PLAYED", "phone", "none")
    assert say(primary, "MERGE", "phone", "ann") == 1
    verify(primary, replica)
    for server in (primary, replica):
        server.kill()
        server.start()
        assert say(server, "SEEN", "ann", *ITEMS) == [*MERGED[:-1], 1]
        assert say(server, "SEEN", "phone", *ITEMS) == [*phone[:-1], 1]


@pytest.mark.parametrize("forget", [[], ["FORGET"]])
def test_the_old_primary_brings_it(pair, forget):  # noqa: F811
    """It alone has acknowledged the merge. What either hides is hidden on both in the end, also what the new primary has
    recorded since; with FORGET the phone is forgotten but for that."""
    old, new, _ = pair(clock=START)
    fill(old)
    level(old, new)
    assert new.stop() == 0
    for server in (old, new):
        server.clock = START
    say(old, "PLAYED", "phone", "late")
    assert say(old, "MERGE", "phone", "ann", *forget) == 1
    old.kill()
    del new.options["replica_of"]
    run("promote", "--data", new.data, "--test-clock", START)
    new.start()
    say(new, "PLAYED", "ann", "new")
    done = run("rejoin", address(new), "--data", old.data, "--test-clock", START, check=False)
    assert done.returncode == 3 and b"users were sent as a whole" in done.stdout, done  # it has to be cloned again
    assert say(new, "SEEN", "ann", *ITEMS, "late", "new") == [*MERGED, 1, 1]
    assert say(new, "SEEN", "phone", *ITEMS, "late") == ([*NOTHING, 0] if forget else [*PHONE, 1])
    run("clone", address(new), "--data", old.data, "--test-clock", START)
    old.options["replica_of"] = address(new)
    old.start()
    verify(new, old)
    assert say(old, "SEEN", "ann", *ITEMS, "late", "new") == [*MERGED, 1, 1]


@pytest.mark.parametrize("forget", [[], ["FORGET"]])
def test_it_outlives_the_machine(make, url, folder, forget):  # noqa: F811
    server = make()
    fill(server)
    archive_all(server)
    assert say(server, "MERGE", "phone", "ann", *forget) == 1
    archive_all(server)
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        check(again, MERGED, NOTHING if forget else PHONE)
    finally:
        again.stop()


def test_where_no_writes_are_taken(pair):  # noqa: F811
    primary, replica, _ = pair(clock=START)
    fill(primary)
    level(primary, replica)
    for forget in ([], ["FORGET"]):
        with pytest.raises(RespError, match="READONLY .* takes writes"):
            say(replica, "MERGE", "phone", "ann", *forget)
    reload(primary, min_free="16TiB")
    with pytest.raises(RespError, match="min_free"):
        say(primary, "MERGE", "phone", "ann", "FORGET")
    own = [0, 0, 0, 0, 0, 1, 0]
    check(primary, own, PHONE)
    reload(primary, min_free="0")
    primary.kill()
    primary.start()
    check(primary, own, PHONE)
    assert say(primary, "MERGE", "phone", "ann", "FORGET") == 1
    verify(primary, replica)


@pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
def test_while_the_old_redis_has_them(make_server, folder):
    old = OldRedis(folder / "old")
    with old.client() as redis:
        redis.command("ZADD", "played:u", START - 1000, "a")
    server = make_noted(make_server, old, "u")
    say(server, "PLAYED", "v", "b")
    for words in (("u", "v"), ("v", "u"), ("u", "v", "FORGET"), ("v", "u", "FORGET")):
        with pytest.raises(RespError, match='^ERR user "?u"? is still to be migrated'):
            say(server, "MERGE", *words)
    assert say(server, "SEEN", "v", "a", "b") == [0, 1] and say(server, "SEEN", "u", "a", "b") == [1, 0]
    old.kill()


def test_beside_a_load(make_server, folder):
    """Whichever comes first, what was loaded of either is hidden of `ann` after one more merge."""
    seed = "00112233445566aa"
    other = make_server(hash_seed=seed)
    with other.client() as c:
        c.pipeline([("PLAYED", f"u{i}", "there") for i in range(200)] + [("DELIVERED", "phone", "there")])
    run("export", folder / "users", "--data", other.data, "--test-clock", other.clock)
    server = make_server(hash_seed=seed)
    fill(server)
    load = subprocess.Popen([UNSEEN, "load", str(folder / "users"), "--to", address(server)], stdout=subprocess.DEVNULL)
    with server.client() as c:
        for i in range(200):
            assert c.command("MERGE", f"u{i}", "ann") in (0, 1)
            assert c.command("MERGE", "phone", "ann") == 1
    assert load.wait() == 0
    assert say(server, "MERGE", "phone", "ann", "FORGET") == 1
    assert say(server, "SEEN", "ann", *ITEMS, "there") == [*MERGED, 1]
    assert say(server, "SEEN", "phone", *ITEMS, "there") == [*NOTHING, 0]
    assert [say(server, "SEEN", f"u{i}", "there") for i in (0, 99, 199)] == [[1]] * 3


def test_a_clone_meanwhile(make_server, folder):
    """Users are merged into others, whose pages the clone has had, or not."""
    primary = make_server()
    with primary.client() as c:
        c.pipeline([("PLAYED", f"from{i}", f"v{i}") for i in range(300)])
        c.pipeline([("PLAYED", f"into{i}", "own") for i in range(300)])
    data = folder / "replica-data"
    clone = subprocess.Popen([UNSEEN, "clone", address(primary), "--data", str(data), "--test-clock", str(primary.clock)],
                             stdout=subprocess.DEVNULL)
    with primary.client() as c:
        for i in range(300):
            assert c.command("MERGE", f"from{i}", f"into{i}", *["FORGET"] * (i % 2)) == 1
    assert clone.wait() == 0
    replica = make_follower(make_server, data, address(primary), primary.clock, {})
    verify(primary, replica)
    with replica.client() as c:
        assert c.pipeline([("SEEN", f"into{i}", f"v{i}", "own") for i in range(300)]) == [[1, 1]] * 300
        assert c.pipeline([("SEEN", f"from{i}", f"v{i}") for i in range(300)]) == [[1 - i % 2] for i in range(300)]


@pytest.mark.parametrize("after", [0, 1, 20])
def test_a_kill_between(make_server, after):
    """Of each pair either both is done or the first is as it was; of those that were answered both is."""
    server = make_server()
    n, answered = 60, []
    with server.client() as c:
        c.pipeline([("PLAYED", f"from{i}", f"v{i}") for i in range(n)])
        c.pipeline([("DELIVERED", f"from{i}", f"d{i}") for i in range(n)])

    def merge():
        try:
            with server.client() as c:
                for i in range(n):
                    assert c.command("MERGE", f"from{i}", f"into{i}", "FORGET") == 1
                    answered.append(i)
        except (Closed, OSError):
            pass
    thread = threading.Thread(target=merge)
    thread.start()
    until(lambda: len(answered) >= after or not thread.is_alive(), lambda: answered[-1:])
    server.kill()
    thread.join()
    server.start()
    with server.client() as c:
        for i in range(n):
            was = c.command("SEEN", f"from{i}", f"v{i}", f"d{i}"), c.command("SEEN", f"into{i}", f"v{i}", f"d{i}")
            done = [0, 0], [1, 1]
            assert was == done if i in answered else was in (done, ([1, 1], [0, 0])), i
