"""Who is told of a new term: by the folder, whatever the configuration says by then, and after any start."""
import contextlib
import shutil
import socket
import sqlite3
import threading

import pytest

from conftest import PATIENCE, START, free_port, run
from partition import CUT, OPEN
from resp import RespError
from test_reload import reload
from test_replica import fields, level, make_follower, pair, say, status, until  # noqa: F401 (the fixture)
from test_replica_three import agree, at, three  # noqa: F401 (the fixture)


def is_fenced(server):
    until(lambda: status(server)["role"] == b"fenced", lambda: (status(server), server.log()[-2000:]))


@pytest.mark.parametrize("served", [True, False])
def test_the_old_primary_is_told_though_nothing_is_configured(pair, served):  # noqa: F811
    first, second, _ = pair()
    first.process.kill()
    first.process.wait()
    if served:
        run("promote", "--to", at(second))
    assert second.stop() == 0
    if not served:
        run("promote", "--data", second.data)
    del second.options["replica_of"]
    for _ in range(2):
        second.start()
        assert second.stop() == 0
    second.start()
    first.start()
    is_fenced(first)
    with pytest.raises(RespError, match="has taken over"):
        say(first, "PLAYED", "u", "only here")


def test_the_other_replica_is_told_after_a_start(three):  # noqa: F811
    """The second was restarted since it heard of the third, without a primary; the third knows of the first alone."""
    first, second, third, wire = three()
    until(lambda: f":{at(third)}" in second.sqlite("staging.db", "SELECT source FROM positions"), second.log)
    third.stop()
    first.process.kill()
    first.process.wait()
    second.stop()
    second.start()
    run("promote", "--to", at(second), "--force")
    second.stop()
    del second.options["replica_of"]
    second.start()
    third.start()
    until(lambda: (s := status(third))["term"] == 2 and s["leader"] == status(second)["node"],
          lambda: (status(third), third.log()[-2000:], second.log()[-2000:]))


@pytest.mark.parametrize("how", ["served", "started again", "a folder"])
def test_what_a_node_had_taken_before_it_was_forced_once_more_is_spared(pair, how):  # noqa: F811
    """Two lead apart and in turn, by force: a forget of the one ends nothing of the other's, of its first term either."""
    first, second, wire = pair()
    wire.set(CUT)
    run("promote", "--to", at(second), "--force")
    assert say(second, "PLAYED", "first", "new") == 1
    assert say(first, "FORGET", "first") == 1
    say(first, "REPLICA", "MEET", 2, status(second)["node"], at(second))
    is_fenced(first)
    run("promote", "--to", at(first), "--force")
    say(second, "REPLICA", "MEET", 3, status(first)["node"], at(first))
    is_fenced(second)
    if how != "served":
        assert second.stop() == 0
    if how == "a folder":
        run("promote", "--data", second.data, "--force")
    if how != "served":
        second.start()
    if how != "a folder":
        run("promote", "--to", at(second), "--force")
    wire.set(OPEN)
    is_fenced(first)
    assert first.stop() == 0
    run("rejoin", at(second), "--data", first.data)
    assert say(second, "SEEN", "first", "item", "new") == [0, 1]


@pytest.mark.parametrize("items", [["a", "n"], []])
def test_what_was_spared_stays_when_a_third_node_sends_its_users(pair, make_server, folder, items):  # noqa: F811
    """The second leads twice without having followed in between. What it acknowledged in its first term outlives the
    forget that the first brings by its feed, a kill behind that, and the users of a third, which knew them before."""
    first, second, wire = pair()
    say(first, "PLAYED", "u", "a", "b")
    say(first, "PLAYED", "v", "a")
    level(first, second)
    run("clone", wire.address, "--data", folder / "third-data")
    third = make_server(clock=None)
    assert third.stop() == 0
    shutil.rmtree(third.data)
    shutil.move(folder / "third-data", third.data)
    wire.set(CUT)
    run("promote", "--data", third.data, "--force")
    third.start()
    say(third, "FORGET", "v")
    assert third.stop() == 0
    run("promote", "--to", at(second), "--force")
    say(second, "PLAYED", "u", "a", "n")
    say(first, "FORGET", "u", *items)
    say(first, "PLAYED", "u", "m")
    say(first, "REPLICA", "MEET", 2, status(second)["node"], at(second))
    is_fenced(first)
    run("promote", "--to", at(first), "--force")
    say(second, "REPLICA", "MEET", 3, status(first)["node"], at(first))
    is_fenced(second)
    run("promote", "--to", at(second), "--force")
    wire.set(OPEN)
    is_fenced(first)
    assert first.stop() == 0
    done = run("rejoin", at(second), "--data", first.data)
    assert b"events, 0 users" in done.stdout, done
    wanted = [1, 1, 1, len(items) > 0]
    assert say(second, "SEEN", "u", "a", "n", "m", "b") == wanted
    second.kill()
    second.start()
    done = run("rejoin", at(second), "--data", third.data, "--forgets", "leave", check=False)
    assert done.returncode == 3 and b"not forgotten there: user v" in done.stdout, done
    first.options["replica_of"] = at(second)
    first.start()
    level(second, first)
    for server in (second, first):
        assert say(server, "SEEN", "u", "a", "n", "m", "b") == wanted
        say(server, "RING", "FLUSH")
        assert say(server, "SEEN", "u", "a", "n", "m", "b") == wanted
    agree(second, first)


class Old:
    """A node of 0.1.0 that was the primary: asked to step down, it doesn't; told of another, it names its own node."""

    def __init__(self, port, node):
        self.node, self.told = node, threading.Event()
        self.socket = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.answer, args=(self.socket.accept()[0],), daemon=True).start()

    def answer(self, link):
        with link, link.makefile("rb") as said, contextlib.suppress(OSError):
            while line := said.readline():
                words = [said.read(int(said.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                met = words[1:2] == [b"MEET"]
                link.sendall(b"*3\r\n:%s\r\n$16\r\n%s\r\n$6\r\nfenced\r\n" % (words[2], self.node) if met
                             else b"+OK\r\n" if words[0] == b"HELLO" else b"-ERR not here\r\n")
                if met:
                    self.told.set()

    def stop(self):
        self.socket.close()


def test_an_old_primary_of_an_older_version_ends_no_term(make_server, folder):
    """Whoever it is, its answer is no claim to the term."""
    first = make_server(clock=None)
    run("clone", at(first), "--data", folder / "copy")
    second = make_server(clock=None)
    assert second.stop() == first.stop() == 0
    shutil.rmtree(second.data)
    shutil.move(folder / "copy", second.data)
    run("promote", "--data", second.data)
    old = Old(first.port, b"fffffffffffffffe")
    second.start()
    assert old.told.wait(PATIENCE), second.log()
    until(lambda: "another node has heard of this primary" in second.log(), second.log)
    say(second, "PLAYED", "u", "a")  # behind what was answered
    assert (s := status(second))["role"] == b"primary" and s["unheard"] == 0, (s, second.log())
    old.stop()


def test_a_replaced_folder_is_promoted_by_force_alone(pair):  # noqa: F811
    first, second, wire = pair()
    wire.set(CUT)
    run("promote", "--to", at(second), "--force")
    say(second, "PLAYED", "u", "later")
    say(first, "REPLICA", "MEET", 2, status(second)["node"], at(second))
    assert first.stop() == 0
    done = run("promote", "--data", first.data, check=False)
    assert done.returncode == 1 and b"another node has taken over in term 2: run unseen rejoin" in done.stderr
    first.start()
    assert status(first)["role"] == b"fenced"
    assert first.stop() == 0
    run("promote", "--data", first.data, "--force")
    first.start()
    is_fenced(second)
    assert status(first)["term"] == 3


def test_a_write_that_waits_is_not_acknowledged_once_replaced(pair):  # noqa: F811
    first, second, wire = pair(clock=START, primary={"replica_ack": "replica", "replica_ack_timeout": "200ms"})

    def advance(ms):
        for server in (first, second):
            server.advance(ms)

    level(first, second)
    until(lambda: advance(11000) or status(first)["in_step"] == 1, lambda: status(first))
    wire.set(CUT)
    said = []

    def write():
        try:
            said.append(say(first, "PLAYED", "u", "waits"))
        except RespError as error:
            said.append(str(error))

    waits = threading.Thread(target=write)
    waits.start()
    until(lambda: status(first)["ack_waiting"] > 0, lambda: status(first))
    say(second, "REPLICA", "PROMOTE", "FORCE")
    assert status(second)["follower"] == {}
    say(first, "REPLICA", "MEET", 2, status(second)["node"], at(second))
    first.advance(300)
    waits.join()
    assert said[0].startswith("NOREPLICAS durable here, but this node may not write any more"), said
    assert say(second, "SEEN", "u", "waits") == [0]


@pytest.mark.parametrize("start", ["at-once", "when-heard"])
def test_a_primary_that_hears_of_nobody_says_so(pair, start):  # noqa: F811
    first, second, wire = pair(primary={"replica_start": start})
    until(lambda: "peer:" in first.sqlite("staging.db", "SELECT source FROM positions"), first.log)
    second.process.kill()
    second.process.wait()
    for _ in range(2):
        first.process.kill()
        first.process.wait()
        first.start()
        assert status(first)["unheard"] == 1
        if start == "when-heard":
            with pytest.raises(RespError, match="none of those that it has met has answered since the start"):
                say(first, "PLAYED", "u", "a")
        else:
            assert say(first, "PLAYED", "u", "a") == 1
        until(lambda: "can't know whether it was replaced" in first.log(), first.log)
    assert b"replaced  not known" in run("replica", "--status", "--to", at(first)).stdout
    second.start()
    until(lambda: status(first)["unheard"] == 0, lambda: status(first))
    assert say(first, "PLAYED", "u", "b") == 1
    assert status(first)["role"] == b"primary"


def test_an_option_ends_the_wait(pair):  # noqa: F811
    first, second, wire = pair(primary={"replica_start": "when-heard"})
    until(lambda: "peer:" in first.sqlite("staging.db", "SELECT source FROM positions"), first.log)
    assert second.stop() == 0
    first.restart()
    assert b"start = when-heard" in status(first)["writes_refused"]
    first.options["replica_start"] = "at-once"
    reload(first)
    until(lambda: status(first)["writes_refused"] == b"", lambda: status(first))
    assert status(first)["unheard"] == 1 and say(first, "PLAYED", "u", "a") == 1


@pytest.mark.parametrize("by", ["node", "address"])
def test_a_node_that_is_gone_for_good_is_dismissed(pair, by):  # noqa: F811
    def peers():
        return first.sqlite("staging.db", "SELECT source FROM positions WHERE source LIKE 'peer:%' AND next >= 0")
    first, second, wire = pair(primary={"replica_start": "when-heard"})
    until(peers, first.log)
    node = status(second)["node"]
    assert second.stop() == 0
    first.restart()
    assert b"start = when-heard" in status(first)["writes_refused"]
    address = peers().split(":", 3)[3].split("|")[0].strip()
    assert say(first, "REPLICA", "DISMISS", node if by == "node" else address) == b"OK"
    assert not peers() and status(first)["unheard"] == 0
    assert (status(first)["replicas"] == []) == (by == "node")
    assert say(first, "PLAYED", "u", "a") == 1
    first.restart()
    assert status(first)["unheard"] == 0 and say(first, "PLAYED", "u", "b") == 1
    with pytest.raises(RespError, match="a node is 16 lower-case hex digits, got 'x'"):
        say(first, "REPLICA", "DISMISS", "x")


def test_peers_are_each_folders_own(pair, folder):  # noqa: F811
    """They neither go along with the feed, nor with a clone."""
    def peers_in(server):
        return server.sqlite("staging.db", "SELECT source FROM positions WHERE source LIKE 'peer:%'")
    first, second, _ = pair()
    node = status(first)["node"].decode()
    until(lambda: f"peer:{node}:" in peers_in(first) and "peer:" in peers_in(second), first.log)
    run("clone", at(first), "--data", folder / "third")
    say(first, "PLAYED", "u", "a")
    level(first, second)
    assert f"peer:{node}:" not in peers_in(second)
    second.stop()
    second.data = folder / "third"
    assert f"peer:{node}:" not in peers_in(second)


def test_a_replica_stays_where_it_is_configured(pair):  # noqa: F811
    """A primary that is started again tells its replicas where it is, as it sees that; `of` says more."""
    first, second, wire = pair()
    until(lambda: "peer:" in first.sqlite("staging.db", "SELECT source FROM positions"), first.log)
    first.restart()
    until(lambda: "another node has heard of this primary" in first.log(), first.log)
    with pytest.raises(RespError, match=f"{wire.address} takes writes"):
        say(second, "PLAYED", "u", "a")


def known(server, *others):
    until(lambda: all(at(o) in server.sqlite("staging.db", "SELECT source FROM positions") for o in others), server.log)


def test_two_that_were_promoted_apart_come_to_one(three):  # noqa: F811
    """Both have the same term, after the same primary: the higher node stays, also if it is the lower one that tells."""
    first, second, third, _ = three()
    low, high = sorted((second, third), key=lambda s: status(s)["node"])
    known(low, high)
    first.process.kill()
    first.process.wait()
    for one in (second, third):
        assert one.stop() == 0
        run("promote", "--data", one.data)
        del one.options["replica_of"]
    high.start()
    low.port = free_port()  # where the other doesn't know it
    low.options["listen"] = at(low)
    low.start()
    is_fenced(low)
    assert status(low)["leader"] == status(high)["node"] and status(high)["role"] == b"primary"


def test_one_that_has_another_successor_hands_over_to_nobody(three):  # noqa: F811
    """Of equal terms the higher node counts; but what the old one had is not all that was acknowledged."""
    first, second, third, _ = three()
    say(first, "REPLICA", "MEET", 2, "0000000000000001", "127.0.0.1:1")
    done = run("promote", "--to", at(second), check=False)
    assert done.returncode == 1 and b"has met term 2" in done.stderr, done


@pytest.mark.parametrize("served", [True, False])
def test_what_was_followed_last_is_what_one_parts_from(three, served):  # noqa: F811
    """The third has heard of the second, but has nothing of it."""
    first, second, third, _ = three()
    say(first, "PLAYED", "u", "a")
    level(first, third)
    node, last = status(first)["node"], status(first)["last"]
    first.process.kill()
    first.process.wait()
    say(third, "REPLICA", "MEET", 5, status(second)["node"], "127.0.0.1:1")
    third.options["replica_of"] = "127.0.0.1:1"
    third.restart()
    if served:
        run("promote", "--to", at(third), "--force")
    else:
        assert third.stop() == 0
        run("promote", "--data", third.data)
        third.start()
    now = status(third)
    assert (now["promoted_from"], now["common_seq"]) == (node, last)


@pytest.mark.parametrize("by", ["the one that was replaced", "its successor"])
def test_an_old_primary_hears_of_one_that_never_met_it(pair, make_server, folder, by):  # noqa: F811
    """The second could not tell the first, before the third took its place."""
    first, second, wire = pair()
    wire.set(CUT)
    run("promote", "--to", at(second), "--force")
    until(lambda: [fields(r)["address"] for r in status(second)["replicas"]] == [wire.address.encode()],
          lambda: (status(second), second.log()))
    run("clone", at(second), "--data", folder / "third-data")
    third = make_follower(make_server, folder / "third-data", at(second), None, {})
    level(second, third)
    knows = "its successor" in by
    if knows:
        until(lambda: f":{wire.address}" in third.sqlite("staging.db", "SELECT source FROM positions"), third.log)
        second.kill()
    else:
        assert third.stop() == 0
        forgets = "DELETE FROM positions WHERE source LIKE 'peer:%' AND source NOT LIKE '%" + f"{second.port}'"
        with contextlib.closing(sqlite3.connect(third.data / "staging.db")) as db:
            db.execute(forgets)
            db.commit()
    run("promote", *(["--to", at(third), "--force"] if knows else ["--data", third.data]))
    if not knows:
        third.start()
        is_fenced(second)
    wire.set(OPEN)
    is_fenced(first)
    assert status(first)["leader"] == status(third)["node"]


def test_the_address_of_one_that_is_away_is_known_after_a_start(pair):  # noqa: F811
    first, second, _ = pair()
    until(lambda: f":{at(second)}" in first.sqlite("staging.db", "SELECT source FROM positions"), first.log)
    second.kill()
    first.restart()
    until(lambda: [fields(r)["address"] for r in status(first)["replicas"]] == [at(second).encode()],
          lambda: (status(first), first.log()))
