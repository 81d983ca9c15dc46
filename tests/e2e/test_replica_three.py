"""Three nodes: when one of two replicas is promoted, the other goes on behind it, without being copied again."""
import json
import shutil
import sqlite3

import pytest

from conftest import run
from partition import CUT
from test_replica import level, make_follower, pair, say, status, until  # noqa: F401 (the fixture)


@pytest.fixture
def three(pair, make_server, folder):  # noqa: F811
    """A primary and two replicas that know of each other."""

    def make(**options):
        first, second, wire = pair(**options)
        data = folder / "third-data"
        run("clone", f"127.0.0.1:{first.port}", "--data", data)
        third = make_server(clock=None, **options)
        assert third.stop() == 0
        shutil.rmtree(third.data)
        shutil.move(data, third.data)
        third.options["replica_of"] = f"127.0.0.1:{first.port}"
        third.start()
        level(first, third)
        # Who follows is said with a hello, and the second one's was before the third came.
        assert second.stop() == 0
        second.start()
        level(first, second)
        return first, second, third, wire

    return make


def node(server):
    return status(server)["node"]


def at(server):
    return f"127.0.0.1:{server.port}"


def promote(server, *options):
    return json.loads(run("promote", "--data", server.data, "--json", *options).stdout)


def play(server, user, n, first=0):
    with server.client() as link:
        for i in range(first, first + n):
            assert link.command("PLAYED", user, f"v{i}") == 1


def kept_for(server):
    """The remote consumers of a server's feed, by node."""
    return server.sqlite("staging.db", "SELECT name FROM feed_consumers ORDER BY name").split()


def follows(server, leader):
    until(lambda: (s := status(server))["follower"].get("node") == node(leader) and s["follower"]["state"] == b"in step",
          lambda: (status(server), server.log()[-3000:]))


def agree(*servers):
    for other in servers[1:]:
        run("replica", "--verify", "--from", at(servers[0]), "--to", at(other))


def test_replicas_keep_what_they_have_for_each_other(three):
    first, second, third, _ = three()
    for one, other in ((second, third), (third, second)):
        name = b"replica:" + node(other)
        until(lambda: name.decode() in kept_for(one), lambda: (kept_for(one), one.log()[-2000:]))
    assert status(second)["replicas"] == []  # nobody follows it


def test_the_other_replica_goes_on_when_the_primary_is_gone(three):
    first, second, third, _ = three()
    play(first, "ann", 50)
    say(first, "FORGET", "ann", "v3")
    say(first, "DELIVERED", "ann", "d")
    level(first, second)
    level(first, third)
    first.kill()
    assert promote(second)["term"] == 2
    follows(third, second)
    assert "goes on behind another primary" in third.log()
    play(second, "ann", 50, 50)
    say(second, "FORGET", "ann", "v60")
    level(second, third)
    agree(second, third)
    assert say(third, "UNSEEN", "ann", "v0", "v3", "v60", "v99", "x") == [b"v3", b"v60", b"x"]


def test_one_that_lags_gets_what_it_lacks_from_the_new_primary(three):
    first, second, third, _ = three()
    play(first, "ann", 20)
    level(first, third)
    assert third.stop() == 0
    play(first, "ann", 20, 20)
    say(first, "FORGET", "ann", "v1")
    level(first, second)
    first.kill()
    promote(second)
    play(second, "ann", 20, 40)
    third.options["replica_of"] = at(second)
    third.start()
    follows(third, second)
    level(second, third)
    agree(second, third)


def test_roles_go_round(three):
    first, second, third, _ = three()
    play(first, "ann", 10)
    assert promote(second)["lossless"]
    follows(third, second)
    assert first.stop() == 0
    run("rejoin", at(second), "--data", first.data)
    first.start()
    follows(first, second)
    play(second, "ann", 10, 10)
    until(lambda: b"replica:" + node(first) in [k.encode() for k in kept_for(third)], lambda: kept_for(third))
    level(second, third)
    assert promote(third)["lossless"]
    follows(first, third)
    assert second.stop() == 0
    run("rejoin", at(third), "--data", second.data)
    second.start()
    play(third, "ann", 10, 20)
    for other in (first, second):
        follows(other, third)
        level(third, other)
    agree(third, first, second)
    assert say(first, "UNSEEN", "ann", *(f"v{i}" for i in range(31))) == [b"v30"]


def test_one_that_has_more_than_the_promoted_one_is_refused(three):
    first, second, third, wire = three()
    level(first, second)
    wire.set(CUT)
    play(first, "ann", 5)
    level(first, third)
    first.kill()
    promote(second, "--force")
    until(lambda: "5 events" in third.log(), lambda: third.log()[-3000:])
    assert status(third)["follower"]["state"] == b"refused"
    assert say(third, "UNSEEN", "ann", "v0") == []  # nothing was thrown away


def hand_over(old, new):
    """The primary's place, without loss; the old one comes back as a replica."""
    assert promote(new)["lossless"]
    assert old.stop() == 0
    run("rejoin", at(new), "--data", old.data)
    old.start()
    follows(old, new)


def test_a_position_of_an_earlier_reign_proves_nothing(three):
    """The third has plays of the second that the first, whom it followed before, never got."""
    first, second, third, _ = three()
    hand_over(first, second)
    follows(third, second)
    play(second, "ann", 1)
    for replica in (first, third):
        level(second, replica)
    assert first.stop() == 0
    play(second, "ann", 5, 1)
    level(second, third)
    second.kill()
    assert third.stop() == 0
    first.start()
    promote(first, "--force")
    third.options["replica_of"] = at(first)
    third.start()
    until(lambda: status(third)["follower"]["state"] == b"refused", lambda: (status(third), third.log()[-3000:]))
    assert "5 events" in third.log() and "clone it again" in third.log()
    play(first, "ann", 1, 6)
    assert say(third, "SEEN", "ann", *(f"v{i}" for i in range(7))) == [1] * 6 + [0]  # nothing was thrown away, or mixed
    assert status(third)["follower"]["state"] == b"refused"


def test_a_full_round_needs_no_clone(three):
    """In its second reign the first node gives each a place by what they had last, not by what they had of its first."""
    first, second, third, _ = three()
    play(first, "ann", 10)
    for i, (old, new, other) in enumerate(((first, second, third), (second, third, first), (third, first, second))):
        level(old, new)
        level(old, other)
        hand_over(old, new)
        follows(other, new)
        went_on = [line for line in other.log().splitlines() if "goes on behind another primary" in line]
        assert went_on and f"node={node(new).decode()}" in went_on[-1], went_on
        play(new, "ann", 10, 10 + 10 * i)
        for replica in (old, other):
            level(new, replica)
    agree(first, second, third)
    assert say(second, "UNSEEN", "ann", *(f"v{i}" for i in range(41))) == [b"v40"]


def back_and_forth(first, second):
    """The first node has led, and leads again; what it forgets then."""
    say(first, "PLAYED", "ann", "a", "b")
    level(first, second)
    hand_over(first, second)
    assert first.stop() == 0  # its last event was read, and nobody waits for it any more
    first.start()
    follows(first, second)
    assert promote(first)["lossless"]
    say(first, "FORGET", "ann")
    assert second.stop() == 0


def test_an_event_of_one_reign_is_none_of_another(pair):  # noqa: F811
    """What the second had of the first's earlier reign tells nothing of the later one."""
    first, second, _ = pair()
    back_and_forth(first, second)
    run("rejoin", at(first), "--data", second.data)
    second.start()
    level(first, second)
    assert say(second, "SEEN", "ann", "a") == say(first, "SEEN", "ann", "a") == [0]
    agree(first, second)


def test_one_that_an_earlier_release_told_an_event_twice_is_cloned(pair):  # noqa: F811
    first, second, _ = pair()
    back_and_forth(first, second)
    at_seq = status(first)["promoted_at_seq"]
    with sqlite3.connect(second.data / "staging.db") as db:
        source = f"feed:{node(first).decode()}:*"
        assert db.execute("UPDATE positions SET next = ? WHERE source GLOB ?", (at_seq + 1, source)).rowcount == 1
    db.close()
    done = run("rejoin", at(first), "--data", second.data, check=False)
    assert done.returncode == 3 and b"has to be cloned again" in done.stdout, done
    run("clone", at(first), "--data", second.data)
    second.start()
    level(first, second)
    assert say(second, "SEEN", "ann", "a") == [0]


@pytest.mark.parametrize("forgets", ["leave", "apply"])
def test_one_that_was_replaced_twice_comes_back(three, forgets):
    """The node that it comes to was not promoted in its place, so only tombstones tell what it has forgotten alone."""
    first, second, third, _ = three()
    for user in ("known", "gone"):
        say(first, "PLAYED", user, "a", "b")
    say(first, "FORGET", "known")
    for replica in (second, third):
        level(first, replica)
    for replica in (second, third):
        assert replica.stop() == 0
    say(first, "FORGET", "gone")
    say(first, "PLAYED", "mine", "a")
    assert first.stop() == 0
    second.start()
    promote(second, "--force")
    third.options["replica_of"] = at(second)
    third.start()
    follows(third, second)
    assert promote(third)["lossless"]
    say(third, "PLAYED", "gone", "c")
    done = run("rejoin", at(third), "--data", first.data, check=False)
    assert done.returncode == 1 and b"can't tell what is newer" in done.stderr, done
    assert say(third, "SEEN", "gone", "a") == [1] and say(third, "SEEN", "mine", "a") == [0]
    done = run("rejoin", at(third), "--data", first.data, "--forgets", forgets, check=False)
    assert done.returncode == 3, done
    assert (b"1 forget of this folder is not carried out there" in done.stdout) == (forgets == "leave"), done
    assert say(third, "SEEN", "gone", "a", "c") == ([1, 1] if forgets == "leave" else [0, 0])
    assert say(third, "SEEN", "mine", "a") == [1] and say(third, "SEEN", "known", "a") == [0]


def test_a_forget_that_is_left_parts_two_nodes_until_a_clone(pair, folder):  # noqa: F811
    """The user was loaded into the new primary since. So it is said by each rejoin, also behind one that was killed once
    it had sent that: here the folder is as it was before."""
    old, new, wire = pair()
    say(old, "PLAYED", "u", "a")
    level(old, new)
    run("export", folder / "users", "--data", old.data)
    wire.set(CUT)
    say(old, "FORGET", "u")
    run("promote", "--to", at(new), "--force")
    run("load", folder / "users", "--to", at(new))
    assert old.stop() == 0
    shutil.copytree(old.data, folder / "again")
    for data in (old.data, folder / "again"):
        done = run("rejoin", at(new), "--data", data, check=False)
        assert done.returncode == 3 and b"1 forget of this folder is not carried out" in done.stdout, done
    run("clone", at(new), "--data", old.data, "--min-free", "0")
    old.options["replica_of"] = at(new)
    old.start()
    level(new, old)
    agree(old, new)
    assert say(old, "SEEN", "u", "a") == [1]


def test_a_clone_keeps_nothing_of_an_old_primary(pair):  # noqa: F811
    """It has followed the other before, which has recorded nothing since: so the feed has all, but not the folder."""
    first, second, wire = pair()
    say(first, "PLAYED", "ann", "a")
    level(first, second)
    wire.set(CUT)
    run("promote", "--to", at(second), "--force")
    say(second, "FORGET", "ann")
    say(first, "REPLICA", "MEET", 2, node(second), at(second))
    run("promote", "--to", at(first), "--force")
    assert second.stop() == 0
    done = run("rejoin", at(first), "--data", second.data, "--forgets", "leave", check=False)
    assert done.returncode == 3, done
    done = run("clone", at(first), "--data", second.data, "--min-free", "0")
    assert b"beginning again" in done.stdout and b"going on" not in done.stdout, done
    second.options["replica_of"] = at(first)
    second.start()
    say(first, "PLAYEDAT", "ann", status(first)["now"] - 60000, "b")
    level(first, second)
    assert say(second, "SEEN", "ann", "a", "b") == [1, 1]
    agree(first, second)


def test_a_promotion_says_what_came_of_it_on_a_full_disk(pair):  # noqa: F811
    first, second, _ = pair()
    first.kill()
    second.options["min_free"] = "16TiB"
    second.restart()
    for forced in (False, True):
        done = run("promote", "--to", at(second), *["--force"] * forced, check=False)
        assert (done.returncode == 0) == forced == (status(second)["role"] == b"primary"), done
