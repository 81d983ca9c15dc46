"""A replica as the second tier of its primary (replica_hedge): what the primary's disk is late with, or can't read, is
answered by the replica."""
import json
import struct
import threading
import urllib.request

import pytest

from conftest import DAY, START, http_url, run
from partition import CUT, OPEN, SILENT, Wire
from resp import RespError
from standstill import freeze, thaw
from test_cold import cold_users, disk, stats  # noqa: F401
from test_repair import key_of, months_table, spoil
from test_reload import reload
from test_replica import level, pair, status, until  # noqa: F401
from test_replica_three import three  # noqa: F401


def wait_for_tier(server, there=True):
    until(lambda: stats(server)["second_tier_up"] == str(int(there)), server.log)


def health(server):
    with urllib.request.urlopen(http_url(server) + "/readyz", timeout=60) as reply:
        return json.load(reply)


def hashes(*items):
    """Not of any item: what a question is about is the replica's to look up."""
    return struct.pack(f"<{len(items)}Q", *items)


def wait_until_well(server):
    """A busy machine lets a ping of the second tier be late now and then, which is told."""
    until(lambda: "degraded" not in health(server), lambda: health(server))


@pytest.fixture
def hedged(pair):  # noqa: F811
    """(primary, replica), the primary with the replica as its second tier, and 20,000 users whom it must read."""
    def make(**options):
        primary, replica, _ = pair(replica_hedge="yes", workers="1", hedge_after="2ms", **options)
        with primary.client() as c:
            assert set(c.pipeline([["PLAYED", f"u{i}", "a"] for i in range(20000)])) == {1}
            c.command("RING", "FLUSH")
        level(primary, replica)
        primary.restart()
        with primary.client() as c:
            for user in ("u1", "u2"):
                assert c.command("UNSEEN", user, "a", "x") == [b"x"]
        wait_for_tier(primary)
        until(lambda: status(primary)["replicas"], lambda: "the replica")
        level(primary, replica)
        return primary, replica
    return make


def test_a_frozen_disk_is_not_felt(disk, hedged):  # noqa: F811
    primary, replica = hedged(http="127.0.0.1:0")
    cold = cold_users(primary, 30)
    wait_until_well(primary)
    disk.freeze(str(primary.data / "history.db"))
    with primary.client() as c:
        for user in cold:
            assert c.command("UNSEEN", user, "a", "x", "y") == [b"x", b"y"]
            assert c.command("PLAYED", user, "y") == 1  # staging.db is well, and nobody waits for the replica to have it
            assert c.command("UNSEEN", user, "a", "x", "y") == [b"x"]
        assert c.command("SEEN", cold[0], "a", "x") == [1, 0]
        assert c.command("FILTER", cold[0], "LIMIT", "1", "DELIVER", "ITEMS", "a", "z1", "z2") == [b"z1"]
        figures = stats(primary)
        assert int(figures["hedge_won"]) >= 60 and int(figures["cold_questions"]) < 40
    assert "the disk is late" in health(primary)["degraded"]
    disk.thaw()
    with primary.client() as c:
        for user in cold:
            assert c.command("UNSEEN", user, "a", "x", "y") == [b"x"]
        assert c.command("UNSEEN", cold[0], "z1", "z2") == [b"z2"]
    assert primary.stop() == 0


def test_what_the_replica_lacks_does_not_count(disk, hedged):  # noqa: F811
    primary, replica = hedged()
    (user,) = cold_users(primary, 1)
    freeze(replica.process)
    try:
        with primary.client() as c:
            c.command("PLAYED", user, "later")
            c.command("RING", "FLUSH")  # so it is in memory no more, and the replica hasn't got it
    finally:
        thaw(replica.process)
    wait_for_tier(primary)
    level(primary, replica)
    with primary.client() as c, replica.client() as there:
        assert there.command("UNSEEN", user, "later", "x") == [b"x"]
        disk.freeze(str(primary.data / "history.db"))
        assert c.command("UNSEEN", user, "a", "later", "x") == [b"x"]
        disk.thaw()


@pytest.mark.parametrize("on_damage", ["error", "answer"])
def test_a_damaged_month_is_answered_by_the_replica(disk, hedged, on_damage):  # noqa: F811
    primary, replica = hedged(on_damage=on_damage)
    assert primary.stop() == 0
    spoil(primary, f"UPDATE {months_table(primary)} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(primary, "u77"))
    primary.start()
    wait_for_tier(primary)
    until(lambda: status(primary)["replicas"], lambda: "the replica")
    with primary.client() as c:
        until(lambda: try_ask(c, "u77") == [b"x"], lambda: "the replica's answer")
        replica.kill()
        wait_for_tier(primary, there=False)
        if on_damage == "answer":
            assert c.command("UNSEEN", "u77", "a", "x") == [b"a", b"x"]  # without it
        else:
            with pytest.raises(RespError, match="u77.*can't be read"):
                c.command("UNSEEN", "u77", "a", "x")
        assert c.command("UNSEEN", "u78", "a", "x") == [b"x"]
    replica.start()
    wait_for_tier(primary)
    with primary.client() as c:
        until(lambda: try_ask(c, "u77") == [b"x"], lambda: "the replica's answer")


def damaged(pair, clock=START, **options):  # noqa: F811
    """A pair whose primary can't read this month of the user u, who played july and now."""
    primary, replica, _ = pair(clock=clock, replica_hedge="yes", window=3, **options)
    with primary.client() as c:
        c.command("PLAYEDAT", "u", clock - 130 * DAY, "july")
        c.command("PLAYED", "u", "now")
        c.command("RING", "FLUSH")
    level(primary, replica)
    with replica.client() as r:
        r.command("RING", "FLUSH")
    assert primary.stop() == 0
    spoil(primary, "UPDATE plays_202611 SET filter = x'20ffffffff'")
    primary.start()
    wait_for_tier(primary)
    until(lambda: status(primary)["replicas"], lambda: "the replica")
    return primary, replica


def answer(c, *items):
    """Once the replica gives one: at first it may not be as far as what the primary asks about."""
    said = []
    until(lambda: said.append(try_ask(c, "u", *items)) or said[-1] is not None, lambda: "an answer")
    return said[-1]


def test_the_question_brings_its_window(pair):  # noqa: F811
    """It is changed on the primary alone; what the replica would say by its own is another question's answer."""
    primary, replica = damaged(pair)
    with primary.client() as c:
        assert answer(c, "july", "now", "x") == [b"july", b"x"]
        reload(primary, window=5)
        said = [answer(c, "july", "now", "x")]
        # As soon as the settings are compared again the replica follows no more, and says why.
        until(lambda: "window is 3 here and 5 at" in replica.log(), lambda: replica.log())
        assert said == [[b"x"]]
        reload(replica, window=5)
        until(lambda: answer(c, "july", "now", "x") == [b"x"], lambda: replica.log())


def test_the_question_brings_its_month(pair):  # noqa: F811
    """By the replica's clock the month is over, and with it one of the window's."""
    primary, replica = damaged(pair)
    with primary.client() as c, replica.client() as r:
        c.command("PLAYEDAT", "u", START - 90 * DAY, "august")
        c.command("RING", "FLUSH")
        level(primary, replica)
        r.command("RING", "FLUSH")
        r.command("DEBUG", "ADVANCE", 12 * DAY)
        assert answer(c, "august", "now", "x") == [b"x"]


def try_ask(c, user, *items):
    try:
        return c.command("UNSEEN", user, *(items or ("a", "x")))
    except RespError:
        return None


def test_a_dead_replica_costs_little(disk, hedged):  # noqa: F811
    primary, replica = hedged(question_timeout="1min")
    cold = cold_users(primary, 10)
    freeze(replica.process)
    try:
        wait_for_tier(primary, there=False)
        disk.freeze(str(primary.data / "history.db"))
        thawed = threading.Timer(0.3, disk.thaw)
        thawed.start()
        with primary.client() as c:
            assert c.command("UNSEEN", cold[0], "a", "x") == [b"x"]  # the disk's answer, once it goes on
            for user in cold[1:]:
                assert c.command("UNSEEN", user, "a", "x") == [b"x"]
        thawed.join()
    finally:
        thaw(replica.process)
    wait_for_tier(primary)


def test_another_replica_takes_its_place(three):  # noqa: F811
    """One that is connected to the feeder all the time, and does not answer."""
    first, *replicas, _ = three(replica_hedge="yes", workers="1")
    wires = [Wire(replica.port) for replica in replicas]
    try:
        with first.client() as c:
            assert c.command("PLAYED", "u77", "a") == 1
            c.command("RING", "FLUSH")
        for replica, wire in zip(replicas, wires):
            replica.options["replica_address"] = wire.address
            replica.restart()
            level(first, replica)
        assert first.stop() == 0
        spoil(first, f"UPDATE {months_table(first)} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(first, "u77"))
        first.start()
        for replica in replicas:
            level(first, replica)
        for shape in (SILENT, CUT):
            for dead in wires:
                dead.set(shape)
                with first.client() as c:
                    until(lambda: try_ask(c, "u77") == [b"x"], lambda: "the answer of the other one")
                dead.set(OPEN)
        for wire in wires:
            wire.set(CUT)
        wait_for_tier(first, there=False)
        with first.client() as c, pytest.raises(RespError, match="u77.*can't be read"):
            c.command("UNSEEN", "u77", "a", "x")
    finally:
        for wire in wires:
            wire.stop()


def test_a_replica_wants_none_until_it_is_promoted(pair):  # noqa: F811
    primary, replica, _ = pair(replica_hedge="yes", http="127.0.0.1:0")
    wait_for_tier(primary)
    assert stats(primary)["second_tier_wanted"] == "1" and stats(replica)["second_tier_wanted"] == "0"
    for server in (primary, replica):
        wait_until_well(server)
    assert primary.stop() == 0
    run("promote", "--to", f"127.0.0.1:{replica.port}")
    until(lambda: stats(replica)["second_tier_wanted"] == "1", lambda: "the promotion")
    until(lambda: "no replica is connected" in health(replica)["degraded"], lambda: health(replica))


def test_replica_ask(pair):  # noqa: F811
    primary, replica, _ = pair()
    with primary.client() as c:
        c.command("PLAYED", b"\x00user", "a")
    level(primary, replica)
    with primary.client() as c, replica.client() as there:
        node = status(primary)["node"]
        to, error, bitmap = there.command("REPLICA", "ASK", node, b"\x00user", hashes(*range(1, 12)))
        assert to >= 1 and float(error) >= 0 and bitmap == b"\xff\xe0"
        assert len(there.command("REPLICA", "ASK", node, "nobody", hashes(*range(65536)))[2]) == 8192
        assert there.command("REPLICA", "ASK", node, b"\x00user", hashes(*range(1, 12)), "2026-09", 1)[2] == bitmap
        for words, said in (((node, "u", b"1234567"), "multiple of 8"), ((node, "u", b""), "has 0 hashes"),
                            ((node, "u", hashes(*range(65537))), "1 to 65536"), (("zz", "u", hashes(1)), "16 lower-case"),
                            (("0123456789abcdef", "u", hashes(1)), "doesn't follow"), ((node, "", hashes(1)), "user is empty"),
                            ((node, "u", hashes(1), "2026-09", 2), "this node follows term 1 now, not 2"),
                            ((node, "u", hashes(1), "2026-9", 1), "expected node user hashes first_month term"),
                            ((node, "u", hashes(1), "september", 1), "expected node user hashes first_month term"),
                            ((node, "u", hashes(1), "2026-09"), "expected node user hashes first_month term")):
            with pytest.raises(RespError, match=said):
                there.command("REPLICA", "ASK", *words)
        with pytest.raises(RespError, match="doesn't follow"):
            c.command("REPLICA", "ASK", node, "u", hashes(1))
