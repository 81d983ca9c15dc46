"""A primary and its replica: how they meet, what one of them does without the other, and how it is handed over."""
import json
import os
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import DAY, START, http_url, run, until
from partition import CUT, OPEN, Wire
from resp import Closed, RespError
from test_cold import disk  # noqa: F401


def fields(reply):
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def status(server):
    with server.client() as link:
        answer = fields(link.command("REPLICA", "STATUS"))
    answer["follower"] = fields(answer["follower"])
    return answer


def level(primary, replica):
    """All that the primary has recorded by now is on the replica."""
    last = status(primary)["last"]
    until(lambda: (s := status(replica)["follower"])["applied"] >= last and s["state"] == b"in step",
          lambda: (status(replica), replica.log()[-2000:]))


def say(server, *words):
    with server.client() as link:
        return link.command(*words)


@pytest.fixture
def pair(make_server, folder):
    """(primary, replica, the wire between them)"""
    wires = []

    def make(primary=None, clock=None, **options):
        first = make_server(clock=clock, **{**options, **(primary or {})})
        wires.append(Wire(first.port))
        say(first, "PLAYED", "first", "item")
        data = folder / "replica-data"
        run("clone", wires[-1].address, "--data", data)
        second = make_follower(make_server, data, wires[-1], clock, options)
        level(first, second)
        return first, second, wires[-1]

    yield make
    for wire in wires:
        wire.stop()


def make_follower(make_server, data, wire, clock, options):
    """A server whose folder is there already."""
    server = make_server(clock=clock, **options)
    assert server.stop() == 0
    shutil.rmtree(server.data)
    shutil.move(data, server.data)
    server.options["replica_of"] = getattr(wire, "address", wire)
    return server.start()


def test_it_is_level_with_a_primary_that_was_killed_after_a_load_of_nothing(pair, make_server, folder):
    """Of a user who has nothing within the retention."""
    seed = "00112233445566aa"
    primary, replica, wire = pair(clock=START, hash_seed=seed)
    other = make_server(clock=START - 400 * DAY, hash_seed=seed)
    say(other, "PLAYED", "old", "a")
    run("export", folder / "users", "--data", other.data, "--test-clock", other.clock)
    wire.set(CUT)
    run("load", folder / "users", "--to", f"127.0.0.1:{primary.port}")
    primary.kill()
    primary.start()
    wire.set(OPEN)
    level(primary, replica)
    primary.kill()
    run("promote", "--to", f"127.0.0.1:{replica.port}")
    assert say(replica, "SEEN", "first", "item") == [1]


def test_it_follows_and_takes_no_writes(pair):
    primary, replica, _ = pair()
    with primary.client() as p, replica.client() as r:
        p.command("PLAYED", "u", "a", "b")
        p.command("DELIVERED", "u", "c")
        p.command("FORGET", "u", "b")
        level(primary, replica)
        assert r.command("UNSEEN", "u", "a", "b", "c", "d") == [b"b", b"d"]
        p.command("FORGET", "u")
        p.command("PLAYED", "u", "e")
        level(primary, replica)
        assert r.command("UNSEEN", "u", "a", "c", "e") == [b"a", b"c"]
        for words in (("PLAYED", "u", "x"), ("FORGET", "u"), ("FILTER", "u", "LIMIT", "1", "DELIVER", "ITEMS", "x")):
            with pytest.raises(RespError, match="READONLY .* takes writes"):
                r.command(*words)
        assert r.command("ROLE")[0] == b"slave" and p.command("ROLE")[0] == b"master"
    lineages = {node.sqlite("staging.db", "SELECT next FROM positions WHERE source = 'lineage'") for node in (primary, replica)}
    assert len(lineages) == 1 and lineages != {""}


def test_loaded_users_come_too(pair, folder):
    primary, replica, _ = pair()
    export = folder / "users"
    say(primary, "PLAYED", "moved", "a", "b")
    run("export", export, "--data", primary.data)
    say(primary, "FORGET", "moved")
    file = folder / "plays.csv"
    file.write_text("".join(f"{int(time.time() * 1000)},bulk{i},item{i}\n" for i in range(300)))
    run("load", export, "--to", f"127.0.0.1:{primary.port}")
    level(primary, replica)
    assert primary.stop() == 0
    run("import", file, "--data", primary.data)  # nobody serves it: its feed still listens for the replica
    primary.start()
    level(primary, replica)
    for i in range(0, 300, 23):
        assert say(replica, "SEEN", f"bulk{i}", f"item{i}", "other") == [1, 0]


def test_loaded_users_come_with_what_was_forgotten_of_them(pair, make_server, folder):
    """No replay undoes on a promoted replica what was forgotten before its primary loaded the user."""
    seed = "00c0ffee12345678"
    primary, replica, _ = pair(hash_seed=seed)
    source = make_server(hash_seed=seed, clock=None)
    an_hour_ago = int(time.time() * 1000) - 3600 * 1000
    items = [f"gone{i}" for i in range(300)]
    say(source, "PLAYEDAT", "moved", an_hour_ago, "kept", *items)
    assert say(source, "FORGET", "moved", *items) == 300
    run("export", folder / "users", "--data", source.data)
    run("load", folder / "users", "--to", f"127.0.0.1:{primary.port}")
    level(primary, replica)
    run("promote", "--to", f"127.0.0.1:{replica.port}")
    for node in (primary, replica):
        assert say(node, "SEEN", "moved", "kept", "gone0") == [1, 0]
    say(replica, "PLAYEDAT", "moved", an_hour_ago, "kept", *items)
    assert say(replica, "UNSEEN", "moved", "kept", *items) == [item.encode() for item in items]


@pytest.mark.parametrize("who", ["primary", "replica"])
def test_either_is_killed(pair, who):
    primary, replica, _ = pair()
    for i in range(5):
        say(primary, "PLAYED", "u", f"a{i}")
        (primary if who == "primary" else replica).kill()
        (primary if who == "primary" else replica).start()
        say(primary, "PLAYED", "u", f"b{i}")
    level(primary, replica)
    items = [f"{x}{i}" for i in range(5) for x in "ab"]
    assert say(replica, "UNSEEN", "u", *items) == []


def test_what_must_be_equal(pair):
    primary, replica, _ = pair()
    assert replica.stop() == 0
    replica.options["window"] = "2"
    replica.start()
    until(lambda: status(replica)["follower"]["state"] == b"refused", lambda: status(replica))
    problem = status(replica)["follower"]["problem"].decode()
    assert "window is 2 here and 3 at" in problem, problem


def test_too_old_a_replica_refuses_questions(pair):
    primary, replica, wire = pair()
    assert replica.stop() == 0
    replica.options["replica_max_age"] = "1s"
    replica.start()

    def answer():
        try:
            return say(replica, "UNSEEN", "u", "a")
        except RespError as error:
            return str(error)

    def answers():
        """A machine that is busy with others may let a second go by between two words of the primary."""
        until(lambda: answer() == [b"a"], lambda: (answer(), replica.log()[-2000:]))

    answers()
    wire.set(CUT)
    until(lambda: "MASTERDOWN" in str(answer()), lambda: (answer(), replica.log()[-2000:]))
    wire.set(OPEN)
    answers()


def test_lost_beyond_feed_max(pair):
    primary, replica, wire = pair(primary={"feed_max": "1MiB"})
    wire.set(CUT)
    item = "x" * 240
    with primary.client() as link:
        for part in range(10):
            link.pipeline([("PLAYED", f"u{i}", f"{item}{part}") for i in range(1000)])
    wire.set(OPEN)
    until(lambda: status(replica)["follower"]["state"] == b"lost", lambda: status(replica))
    assert replica.stop() == 0
    run("clone", wire.address, "--data", replica.data)
    replica.start()
    level(primary, replica)
    assert say(replica, "SEEN", "u7", f"{item}3") == [1]


def test_a_folder_that_went_back_is_noticed(pair, folder):
    primary, replica, wire = pair()
    assert primary.stop() == 0
    shutil.copytree(primary.data, folder / "older")
    primary.start()
    say(primary, "PLAYED", "u", "newer")
    level(primary, replica)
    assert primary.stop() == 0
    shutil.rmtree(primary.data)
    shutil.move(folder / "older", primary.data)
    node = primary.sqlite("staging.db", "SELECT value FROM meta WHERE name = 'node'")
    wire.set(CUT)
    primary.start()
    for i in range(50):  # its seqs are beyond the replica's again: the run alone tells
        say(primary, "PLAYED", "u", f"other{i}")
    wire.set(OPEN)
    until(lambda: status(replica)["follower"]["state"] in (b"lost", b"refused"), lambda: status(replica))
    until(lambda: "it is another node" in primary.log(), primary.log)

    def became():
        return primary.sqlite("staging.db", "SELECT value FROM meta WHERE name = 'node'")

    until(lambda: became() != node, primary.log)  # said first, committed a moment later
    assert say(replica, "SEEN", "u", "newer") == [1]  # what it has it keeps


def test_handed_over_under_load(pair):
    """No acknowledged play is lost, whoever answered it."""
    primary, replica, _ = pair()
    done, stop = [], threading.Event()

    def load(k):
        link, i = primary.client(), 0
        while not stop.is_set():
            try:
                link.command("PLAYED", f"u{k}", f"{i}")
            except (RespError, Closed, OSError):
                return
            done.append((f"u{k}", f"{i}"))
            i += 1

    threads = [threading.Thread(target=load, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(done) > 2000, lambda: len(done))
    answer = json.loads(run("promote", "--to", f"127.0.0.1:{replica.port}", "--json").stdout)
    stop.set()
    for thread in threads:
        thread.join()
    assert answer["lossless"] in (1, True), answer
    with replica.client() as link:
        seen = link.pipeline([("SEEN", user, item) for user, item in done])
    assert [one for one, answer in zip(done, seen) if answer != [1]] == []
    with pytest.raises(RespError, match=f"READONLY .*:{replica.port} has taken over"):
        say(primary, "PLAYED", "u", "x")
    assert say(replica, "PLAYED", "u", "x") == 1


def test_what_the_old_primary_says_last_is_waited_for(pair):
    """It takes no writes any more, and was asked for what it has before its last words: they are fetched, too."""
    primary, replica, _ = pair()
    say(primary, "PLAYED", "u", "a")
    level(primary, replica)
    before = status(replica)["follower"]["reconnects"]
    say(primary, "REPLICA", "MEET", "2", status(replica)["node"], f"127.0.0.1:{replica.port}")
    until(lambda: status(replica)["follower"]["reconnects"] > before, replica.log)
    answer = json.loads(run("promote", "--to", f"127.0.0.1:{replica.port}", "--json").stdout)
    assert answer["lossless"] in (1, True), answer
    assert status(replica)["term"] == 2
    assert say(replica, "SEEN", "u", "a", "x") == [1, 0]
    assert say(replica, "PLAYED", "u", "x") == 1


def test_what_is_being_loaded_is_handed_over(disk, pair, make_server, folder):  # noqa: F811
    """A LOAD that was taken before the hand-over, and is answered after it, is there, too."""
    seed, export, answers = "00112233445566ff", folder / "users", {}
    source = make_server(hash_seed=seed, clock=None)
    for i in range(20):
        say(source, "PLAYED", f"moved{i}", "a")
    assert source.stop() == 0
    run("export", export, "--data", source.data)
    primary, replica, _ = pair(hash_seed=seed)
    primary.restart()  # its historian has read nothing yet
    level(primary, replica)

    def start(name, *words):
        thread = threading.Thread(target=lambda: answers.update({name: run(*words, check=False)}))
        thread.start()
        return thread

    disk.freeze(str(primary.data / "history.db"))
    threads = [start("load", "load", export, "--to", f"127.0.0.1:{primary.port}")]
    until(lambda: b"cmd=load" in say(primary, "CLIENT", "LIST"), primary.log)
    threads.append(start("promote", "promote", "--to", f"127.0.0.1:{replica.port}", "--json"))
    until(lambda: status(primary)["role"] == b"fenced", primary.log)
    assert status(replica)["role"] == b"replica"
    disk.thaw()
    for thread in threads:
        thread.join()
    assert [answers[name].returncode for name in ("load", "promote")] == [0, 0], answers
    assert json.loads(answers["promote"].stdout)["lossless"] in (1, True)
    for i in range(20):
        assert say(replica, "SEEN", f"moved{i}", "a", "x") == [1, 0]


def fill(server):
    """More than a megabyte of the feed."""
    with server.client() as link:
        link.pipeline([("PLAYED", f"fill{i}", *(f"{i}:{k}" for k in range(100))) for i in range(1000)])


def cut_off_for_long(pair):
    """What the old primary alone has was too much for its feed; and both have forgotten since the other was promoted."""
    old, new, wire = pair(feed_max="1MiB")
    for user in ("gone", "back", "some", "theirs"):
        say(old, "PLAYED", user, "a", "b")
        say(old, "DELIVERED", user, "d")
    level(old, new)
    wire.set(CUT)
    say(old, "FORGET", "gone")
    say(old, "FORGET", "back")
    say(old, "PLAYED", "back", "c")
    say(old, "FORGET", "some", "a", "d")
    fill(old)
    until(lambda: b"lost" in str(say(old, "FEED")).encode(), lambda: say(old, "FEED"))
    run("promote", "--to", f"127.0.0.1:{new.port}", "--force")
    say(new, "PLAYED", "gone", "b", "n")
    say(new, "DELIVERED", "some", "d", "n")
    say(new, "FORGET", "theirs", "b", "d")
    return old, new, wire


def bring_back(old, new, *options, check=True):
    wire = f"127.0.0.1:{new.port}"
    if old.alive():
        assert old.stop() == 0
    done = run("rejoin", wire, "--data", old.data, "--feed-max", "1MiB", *options, check=check)
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_the_old_primary_comes_back_without_its_feed(pair):
    """Its users are sent as a whole, and what it has forgotten alone is known by keys and hashes: it ends all that is
    older, and nothing else."""
    old, new, wire = cut_off_for_long(pair)
    wire.set(OPEN)
    code, text = bring_back(old, new, check=False)
    assert code == 3 and "all of its users are sent" in text and "not carried out" not in text, text
    assert "2 items of them, forgotten there since, stayed so" in text, text
    run("clone", f"127.0.0.1:{new.port}", "--data", old.data, "--min-free", "0")
    old.options["replica_of"] = f"127.0.0.1:{new.port}"
    old.start()
    level(new, old)
    for server in (new, old):
        assert say(server, "SEEN", "gone", "a", "b", "d", "n") == [0, 1, 0, 1]
        assert say(server, "SEEN", "back", "a", "b", "c", "d") == [0, 0, 1, 0]
        assert say(server, "SEEN", "some", "a", "b", "d", "n") == [0, 1, 1, 1]
        assert say(server, "SEEN", "theirs", "a", "b", "d") == [1, 0, 0]
        assert say(server, "SEEN", "fill999", "999:99", "x") == [1, 0]
    run("replica", "--verify", "--from", f"127.0.0.1:{new.port}", "--to", f"127.0.0.1:{old.port}")


def test_a_month_later_it_is_surely_newer(pair):
    """A filter has no times, but months: what was played in a later one than the forget there is sent all the same."""
    clock = 1795255200000
    old, new, wire = pair(clock=clock, feed_max="1MiB")
    for user in ("whole", "some"):
        say(old, "PLAYED", user, "a", "b")
    level(old, new)
    wire.set(CUT)
    run("promote", "--to", f"127.0.0.1:{new.port}", "--force")
    say(new, "FORGET", "whole")
    say(new, "FORGET", "some", "a", "b")
    for server in (old, new):
        server.advance(15 * 24 * 3600 * 1000)
    for user in ("whole", "some"):
        say(old, "PLAYED", user, "b")
    fill(old)
    wire.set(OPEN)
    code, text = bring_back(old, new, "--test-clock", str(old.clock), check=False)
    assert code == 3 and "1 item of them, forgotten there since, stayed so" in text, text
    for user in ("whole", "some"):
        assert say(new, "SEEN", user, "a", "b") == [0, 1]


@pytest.mark.parametrize("forgets", ["apply", "leave"])
def test_forgets_that_nobody_can_tell_apart(pair, forgets):
    """The new primary's feed is lost, too: nothing is done before it is said what."""
    old, new, wire = cut_off_for_long(pair)
    fill(new)
    wire.set(OPEN)
    code, text = bring_back(old, new, check=False)
    assert code == 1 and "can't tell what is newer" in text and "--forgets leave leaves" in text, text
    assert say(new, "SEEN", "gone", "a", "b", "n") == [1, 1, 1]
    assert say(new, "SEEN", "back", "c") == [0]  # nor was any user sent
    code, text = bring_back(old, new, "--forgets", forgets, check=False)
    assert code == 3 and f"unseen clone 127.0.0.1:{new.port}" in text, text
    if forgets == "apply":
        assert say(new, "SEEN", "gone", "a", "b", "n") == [0, 0, 0]
        assert say(new, "SEEN", "back", "a", "b", "c") == [0, 0, 1]
        assert say(new, "SEEN", "some", "a", "b", "d", "n") == [0, 1, 0, 1]
    else:
        for named in ("user gone\n", "user back\n", "user some, an item of which only the hash is known"):
            assert f"not forgotten there: {named}" in text, text
        assert "4 forgets of this folder are not carried out there" in text, text
        assert say(new, "SEEN", "gone", "a", "b", "n") == [1, 1, 1]
        assert say(new, "SEEN", "some", "a", "d") == [1, 1]
    assert say(new, "SEEN", "fill999", "999:99", "x") == [1, 0]
    code, text = bring_back(old, new, check=False)
    assert code == 3 and "unseen clone" in text, text
    run("clone", f"127.0.0.1:{new.port}", "--data", old.data, "--min-free", "0")
    old.options["replica_of"] = f"127.0.0.1:{new.port}"
    old.start()
    level(new, old)
    run("replica", "--verify", "--from", f"127.0.0.1:{new.port}", "--to", f"127.0.0.1:{old.port}")


def test_what_rejoin_does_not_take(pair):
    primary, replica, _ = pair()
    assert primary.stop() == 0
    for words, wanted, code in ((("rejoin", f"127.0.0.1:{replica.port}", "--forgets", "maybe"), "expected apply or leave", 2),
                                (("rejoin", f"127.0.0.1:{replica.port}"), "is no primary, but a replica", 1),
                                (("rejoin",), "the ADDRESS of the new primary", 2)):
        done = run(*words, "--data", primary.data, check=False)
        assert done.returncode == code and wanted in done.stderr.decode(), done
    primary.start()
    for words, wanted in ((("x", "", "1", ""), "16 lower-case hex digits"),
                          (("00000000000000aa", "00000000000000aa", "1", "", "ALL"), "FORGETS and FORCE, got 'ALL'"),
                          (("00000000000000aa", "00000000000000aa", "1", "\x63\x03new"), "newer version")):
        with pytest.raises(RespError, match=wanted):
            say(primary, "REPLICA", "MERGE", *words)


def test_the_old_primary_comes_back(pair):
    primary, replica, wire = pair()
    say(primary, "PLAYED", "both", "a")
    say(primary, "PLAYED", "gone", "a")
    level(primary, replica)
    wire.set(CUT)
    say(primary, "PLAYED", "mine", "a", "b")  # only the old one has these
    say(primary, "PLAYED", "gone", "b")
    say(primary, "FORGET", "both")
    run("promote", "--to", f"127.0.0.1:{replica.port}")
    say(replica, "FORGET", "gone")
    say(replica, "PLAYED", "theirs", "c")
    wire.set(OPEN)
    until(lambda: status(primary)["role"] == b"fenced", lambda: (status(primary), replica.log()))
    with pytest.raises(RespError, match="READONLY"):
        say(primary, "PLAYED", "u", "x")
    assert primary.stop() == 0
    run("rejoin", f"127.0.0.1:{replica.port}", "--data", primary.data)
    primary.start()
    level(replica, primary)
    for server in (replica, primary):
        assert say(server, "SEEN", "mine", "a", "b", "c") == [1, 1, 0]
        assert say(server, "SEEN", "gone", "a", "b") == [0, 0]  # older than the forget
        assert say(server, "SEEN", "both", "a") == [0]
        assert say(server, "SEEN", "theirs", "c") == [1]
    say(replica, "PLAYED", "later", "a")
    level(replica, primary)
    assert say(primary, "SEEN", "later", "a") == [1]


def test_the_old_primarys_own_order_counts(pair):
    """In other runs of MERGE than the forgets; with times ahead, and all of one moment."""
    primary, replica, wire = pair(clock=START)
    say(primary, "PLAYEDAT", "early", START + 3600 * 1000, "x")  # both have it
    level(primary, replica)
    wire.set(CUT)
    for user in ("ahead", "item"):
        say(primary, "PLAYEDAT", user, START + 3600 * 1000, "x", "y")
    say(primary, "FORGET", "again")
    say(primary, "PLAYED", "again", "z")
    say(primary, "FORGET", "again")
    with primary.client() as link:  # more than a run has
        link.pipeline([("PLAYED", f"f{i}", *(f"v{k}" for k in range(100))) for i in range(90)])
    say(primary, "FORGET", "early")
    say(primary, "FORGET", "ahead")
    say(primary, "FORGET", "item", "x")
    with primary.client() as link:
        link.pipeline([("PLAYED", f"g{i}", *(f"v{k}" for k in range(100))) for i in range(90)])
    say(primary, "PLAYED", "again", "x")  # of the same millisecond as the forgets
    run("promote", "--to", f"127.0.0.1:{replica.port}")
    wire.set(OPEN)
    until(lambda: status(primary)["role"] == b"fenced", lambda: (status(primary), replica.log()))
    assert primary.stop() == 0
    for _ in range(2):
        run("rejoin", f"127.0.0.1:{replica.port}", "--data", primary.data, check=False)
        assert say(replica, "SEEN", "early", "x") == [0]
        assert say(replica, "SEEN", "ahead", "x", "y") == [0, 0]
        assert say(replica, "SEEN", "item", "x", "y") == [0, 1]
        assert say(replica, "SEEN", "again", "x", "z") == [1, 0]
    primary.start()
    level(replica, primary)
    run("replica", "--verify", "--from", f"127.0.0.1:{replica.port}", "--to", f"127.0.0.1:{primary.port}")


def test_an_older_forget_comes_back(pair):
    """What was forgotten on the old primary alone ends what is older, and nothing that was recorded since."""
    primary, replica, wire = pair()
    for user in ("whole", "some", "twice"):
        say(primary, "PLAYED", user, "a", "b")
    level(primary, replica)
    wire.set(CUT)
    say(primary, "FORGET", "whole")
    say(primary, "FORGET", "some", "a", "b")
    say(primary, "FORGET", "twice")
    say(primary, "PLAYED", "mine", "a")
    run("promote", "--to", f"127.0.0.1:{replica.port}")
    for user in ("whole", "some"):
        say(replica, "PLAYED", user, "a", "c")
        say(replica, "DELIVERED", user, "d")
    say(replica, "RING", "FLUSH")
    say(replica, "FORGET", "whole", "c")
    for words in (("PLAYED", "twice", "c", "d"), ("FORGET", "twice"), ("PLAYED", "twice", "d")):
        say(replica, *words)
    wire.set(OPEN)
    until(lambda: status(primary)["role"] == b"fenced", lambda: (status(primary), replica.log()))
    assert primary.stop() == 0
    run("rejoin", f"127.0.0.1:{replica.port}", "--data", primary.data)
    primary.start()
    level(replica, primary)
    for server in (replica, primary):
        assert say(server, "SEEN", "whole", "a", "b", "c", "d") == [1, 0, 0, 1]
        assert say(server, "SEEN", "some", "a", "b", "c", "d") == [1, 0, 1, 1]
        assert say(server, "SEEN", "twice", "a", "b", "c", "d") == [0, 0, 0, 1]
        assert say(server, "SEEN", "mine", "a") == [1]
    run("replica", "--verify", "--from", f"127.0.0.1:{replica.port}", "--to", f"127.0.0.1:{primary.port}")


def test_whom_a_write_waits_for(pair):
    clock = 1795255200000
    primary, replica, wire = pair(clock=clock, primary={"replica_ack": "replica", "replica_ack_timeout": "200ms"})

    def advance(ms):
        for server in (primary, replica):
            server.advance(ms)

    assert status(primary)["in_step"] == 0
    assert say(primary, "PLAYED", "u", "alone") == 1
    level(primary, replica)
    until(lambda: advance(11000) or status(primary)["in_step"] == 1, lambda: status(primary))
    wire.set(CUT)
    answers = []
    waits = threading.Thread(target=lambda: answers.append(say(primary, "PLAYED", "u", "waits")))
    waits.start()
    until(lambda: status(primary)["ack_waiting"] > 0, lambda: status(primary))
    assert answers == []
    primary.advance(300)
    waits.join()
    assert answers == [1] and "out of step" in primary.log()
    assert status(primary)["in_step"] == 0 and status(primary)["fell_out"] == 1
    assert say(primary, "PLAYED", "u", "at once") == 1
    wire.set(OPEN)
    level(primary, replica)
    until(lambda: advance(11000) or status(primary)["in_step"] == 1, lambda: status(primary))
    primary.options["replica_ack"] = "replica-strict"
    primary.write_config()
    primary.process.send_signal(signal.SIGHUP)
    until(lambda: "configuration read again" in primary.log(), primary.log)
    assert say(primary, "PLAYED", "u", "strict") == 1
    wire.set(CUT)
    errors = []

    def refused():
        try:
            say(primary, "PLAYED", "u", "refused")
        except RespError as error:
            errors.append(str(error))

    waits = threading.Thread(target=refused)
    waits.start()
    until(lambda: status(primary)["ack_waiting"] > 0, lambda: status(primary))
    primary.advance(300)
    waits.join()
    assert errors and errors[0].startswith("NOREPLICAS durable here"), errors


def test_probes_tell_the_role(pair):
    primary, replica, _ = pair(http="127.0.0.1:0")

    def ready(server, role):
        try:
            with urllib.request.urlopen(f"{http_url(server)}/readyz?role={role}") as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert (ready(primary, "primary"), ready(primary, "replica")) == (200, 503)
    assert (ready(replica, "primary"), ready(replica, "replica")) == (503, 200)


def test_protocols_one_apart(pair, monkeypatch):
    primary, replica, _ = pair(clock=1795255200000)
    assert replica.stop() == 0
    monkeypatch.setenv("UNSEEN_TEST_PROTOCOL", "1")
    replica.start()
    say(primary, "PLAYED", "u", "a")
    level(primary, replica)
    assert replica.stop() == 0
    monkeypatch.setenv("UNSEEN_TEST_PROTOCOL", "0")
    replica.start()
    until(lambda: status(replica)["follower"]["state"] == b"refused", lambda: status(replica))
    assert "versions one apart work together" in status(replica)["follower"]["problem"].decode()


@pytest.mark.parametrize("older", ["replica", "primary"])
def test_deliveries_one_protocol_apart(pair, make_server, folder, monkeypatch, older):
    """Who knows no times of deliveries is told of users without them, and what it tells is in order."""
    seed = "00112233445566aa"
    primary, replica, _ = pair(clock=START, hash_seed=seed)
    other = make_server(clock=START - DAY, hash_seed=seed)
    say(other, "DELIVERED", "loaded", "a", "b", "c")
    run("export", folder / "users", "--data", other.data, "--test-clock", other.clock)
    server = replica if older == "replica" else primary
    assert server.stop() == 0
    with monkeypatch.context() as patch:
        patch.setenv("UNSEEN_TEST_PROTOCOL", "3")
        server.start()
    say(primary, "DELIVERED", "u", "a", "b")
    say(primary, "DELIVERED", "u", "c", "a")
    say(primary, "RING", "FLUSH")
    run("load", folder / "users", "--to", f"127.0.0.1:{primary.port}")  # the replica asks for the user
    say(primary, "DELIVERED", "loaded", "d", "e")
    level(primary, replica)
    addresses = ("--from", f"127.0.0.1:{primary.port}", "--to", f"127.0.0.1:{replica.port}")
    assert "users are the same" in run("replica", "--verify", *addresses).stdout.decode()
    for node in (primary, replica):
        assert say(node, "UNSEEN", "u", "a", "b", "c", "d") == [b"d"]
        assert say(node, "UNSEEN", "loaded", "a", "b", "c", "d", "e", "f") == [b"f"]


def test_verify_names_who_differs(make_server):
    seed = "00112233445566aa"
    one, other = make_server(clock=None, hash_seed=seed), make_server(clock=None, hash_seed=seed)
    for i in range(300):
        for server in (one, other):
            say(server, "PLAYED", f"u{i}", "a", "b")
    say(other, "RING", "FLUSH")
    for server in (one, other):
        say(server, "DELIVERED", "u7", "d", "e")
        say(server, "FORGET", "u9", "a")  # flushed on one side, so that it has an exception there alone
    command = ("replica", "--verify", "--from", f"127.0.0.1:{one.port}", "--to", f"127.0.0.1:{other.port}")
    assert "300 users are the same" in run(*command).stdout.decode()
    say(one, "PLAYED", "u5", "only here")
    say(other, "DELIVERED", "u7", "d")
    say(other, "PLAYED", "nobody else", "x")
    say(other, "FORGET", "u11", "b")
    done = run(*command, check=False)
    text = done.stdout.decode()
    assert done.returncode == 1 and "4 of 301 users differ" in text, text
    for wanted in ('"u5": ', "only here", '"u7": delivery 1 of 2 is another', '"nobody else": ', '"u11": '):
        assert wanted in text, (wanted, text)
    answer = json.loads(run(*command, "--json", check=False).stdout)
    assert answer["differ"] == 4 and len(answer["first"]) == 4


def test_verify_logs_in_twice(make_server):
    """With the account of [replica], at either node."""
    seed = "00112233445566aa"
    one, other = (make_server(clock=None, hash_seed=seed, requirepass="hush") for _ in range(2))
    login = {**os.environ, "UNSEEN_REPLICA_USER": "default", "UNSEEN_REPLICA_PASSWORD": "hush"}
    done = run("replica", "--verify", "--from", f"127.0.0.1:{one.port}", "--to", f"127.0.0.1:{other.port}", env=login)
    assert "0 users are the same" in done.stdout.decode()


def test_what_an_account_needs(make_server, folder):
    """As docs/replicas.md has it, and no less."""
    accounts, password = folder / "accounts", {"UNSEEN_PASSWORD": "long enough"}

    def account(name, roles):
        run("account", "add", name, "--roles", roles, "--file", accounts, "--password-stdin", input=b"long enough\n")

    for name, roles in (("follows", "admin"), ("clones", "admin,watch"), ("rejoins", "admin,load,watch,record,forget")):
        account(name, roles)
    options = {"accounts": str(accounts), "clock": None, "replica_user": "follows", "replica_password": "long enough"}
    primary, replica = make_server(**options), make_server(**options)
    at = f"127.0.0.1:{primary.port}"

    def tell(*words, check=True):
        return run(*words, check=check, env={**os.environ, **password})

    assert replica.stop() == 0
    shutil.rmtree(replica.data)
    done = tell("clone", at, "--data", replica.data, "--min-free", "0", "--user", "follows", check=False)
    assert done.returncode == 1 and b"it needs the role watch" in done.stderr, done
    tell("clone", at, "--data", replica.data, "--min-free", "0", "--user", "clones")
    replica.options["replica_of"] = at
    replica.start()
    status_of = ("replica", "--status", "--data", replica.data, "--user", "clones")
    until(lambda: b"in step" in tell(*status_of, check=False).stdout, replica.log)
    password["UNSEEN_USER"] = "follows"
    tell("promote", "--to", f"127.0.0.1:{replica.port}")
    assert primary.stop() == 0
    there = f"127.0.0.1:{replica.port}"
    assert b"it needs the role" in tell("rejoin", there, "--data", primary.data, "--user", "follows", check=False).stderr
    tell("rejoin", there, "--data", primary.data, "--user", "rejoins")


def test_a_backup_of_an_old_primary_comes_back(pair, folder):
    """It is another node, so only tombstones tell what was forgotten there alone before the backup."""
    old, new, wire = pair()
    say(old, "PLAYED", "gone", "a")
    level(old, new)
    wire.set(CUT)
    say(old, "FORGET", "gone")
    say(old, "PLAYED", "mine", "a")
    run("backup", folder / "copy", "--data", old.data)
    old.kill()
    run("promote", "--to", f"127.0.0.1:{new.port}", "--force")
    words = ("rejoin", f"127.0.0.1:{new.port}", "--data", folder / "copy", "--min-free", "0")
    done = run(*words, check=False)
    assert done.returncode == 1 and b"can't tell what is newer" in done.stderr, done
    done = run(*words, "--forgets", "apply", check=False)
    assert done.returncode == 3, done
    assert say(new, "SEEN", "gone", "a") == [0] and say(new, "SEEN", "mine", "a") == [1]
