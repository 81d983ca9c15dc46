"""What befalls a pair of nodes beside wires and kills: folders that went back or were copied, months of absence, clocks,
full disks, a clone that is cut short; and what Redis's own client library sees of the pair."""
import errno
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import threading
import urllib.request

import pytest
import redis

from conftest import DAY, HOUR, START, UNSEEN, http_url, run
from partition import CUT, OPEN, Wire
from resp import Closed, RespError
from standstill import freeze, thaw
from test_reload import reload
from test_replica import level, make_follower, pair, say, status, until  # noqa: F401 (pair is a fixture)


def address(server):
    return f"127.0.0.1:{server.port}"


def verify(primary, replica):
    """Every user is the same on both: filters, staged plays, deliveries, exceptions."""
    level(primary, replica)
    run("replica", "--verify", "--from", address(primary), "--to", address(replica))


def doing(replica):
    return status(replica)["follower"]["state"].decode()


def wait_doing(replica, *wanted):
    until(lambda: doing(replica) in wanted, lambda: (status(replica), replica.log()[-2000:]))


def clone_anew(primary, replica):
    assert replica.stop() == 0
    clock = [] if primary.clock is None else ["--test-clock", primary.clock]
    done = run("clone", address(primary), "--data", replica.data, *clock)
    replica.options["replica_of"] = address(primary)
    replica.start()
    return done.stdout.decode()


# --- folders ---


def test_a_restored_backup_as_the_primary(pair, folder):
    """It is another node, so nobody mistakes its seqs for those of the one that is gone."""
    primary, replica, _ = pair()
    say(primary, "PLAYED", "old", "a")
    level(primary, replica)
    run("backup", folder / "copy", "--data", primary.data)
    say(primary, "PLAYED", "newer", "a")
    level(primary, replica)
    node = status(primary)["node"]
    primary.kill()
    shutil.rmtree(primary.data)
    shutil.move(folder / "copy", primary.data)
    primary.start()
    assert status(primary)["node"] != node
    wait_doing(replica, "refused", "lost")
    assert "is no copy of the node" in status(replica)["follower"]["problem"].decode()
    until(lambda: "this replica is lost" in replica.log(), replica.log)  # shown first, said a moment later
    for i in range(20):  # and it stays so, however far the other gets
        say(primary, "PLAYED", "later", f"{i}")
    assert doing(replica) == "lost"
    assert say(replica, "SEEN", "newer", "a") == [1] and say(replica, "SEEN", "later", "1") == [0]
    assert "a new one is made in" in clone_anew(primary, replica)
    verify(primary, replica)
    assert say(replica, "SEEN", "later", "1") == [1] and say(replica, "SEEN", "newer", "a") == [0]


def test_a_restored_backup_as_the_replica(pair, folder):
    """It is another node, for which nothing was kept: it says so, and answers what it knows until it is cloned again."""
    primary, replica, _ = pair()
    say(primary, "PLAYED", "u", "a")
    level(primary, replica)
    node = status(replica)["node"]
    run("backup", folder / "copy", "--data", replica.data)
    say(primary, "PLAYED", "u", "b")
    assert replica.stop() == 0
    shutil.rmtree(replica.data)
    shutil.move(folder / "copy", replica.data)
    replica.start()
    wait_doing(replica, "lost")
    until(lambda: "this replica is lost: it must be cloned again" in replica.log(), replica.log)
    assert status(replica)["node"] != node and say(replica, "SEEN", "u", "a", "b") == [1, 0]
    with pytest.raises(RespError, match="^READONLY"):
        say(replica, "PLAYED", "u", "c")
    clone_anew(primary, replica)
    verify(primary, replica)
    assert say(replica, "SEEN", "u", "a", "b") == [1, 1]


def test_a_copied_folder_as_a_second_replica(pair, make_server, folder):
    """Two that say that they are one node: each is served from where it is, and it is said."""
    primary, replica, wire = pair()
    say(primary, "PLAYED", "u", "before")
    level(primary, replica)
    assert replica.stop() == 0
    shutil.copytree(replica.data, folder / "copied")
    replica.start()
    say(primary, "PLAYED", "u", "meanwhile")
    level(primary, replica)
    twin = make_follower(make_server, folder / "copied", wire, None, {})
    assert status(twin)["node"] == status(replica)["node"]
    for i in range(50):
        say(primary, "PLAYED", "u", f"after{i}")
    say(primary, "FORGET", "u", "after7")
    for one in (replica, twin):
        verify(primary, one)
        assert say(one, "SEEN", "u", "before", "meanwhile", "after49", "after7") == [1, 1, 1, 0]
    until(lambda: "two replicas say that they are one node" in primary.log(), primary.log)


def test_a_copied_folder_as_a_second_primary(pair, make_server, folder):
    """The copy serves what it has; whoever follows the other one notices that it has no run that it knows."""
    primary, replica, wire = pair()
    assert primary.stop() == 0
    shutil.copytree(primary.data, folder / "copied")
    primary.start()
    for i in range(20):
        say(primary, "PLAYED", "u", f"a{i}")
    level(primary, replica)
    twin = make_server(clock=None)
    assert twin.stop() == 0
    shutil.rmtree(twin.data)
    shutil.move(folder / "copied", twin.data)
    twin.start()
    for i in range(50):
        say(twin, "PLAYED", "u", f"b{i}")
    node = status(primary)["node"]
    assert status(twin)["node"] == node
    wire.target = twin.port
    wire.set(CUT)
    wire.set(OPEN)
    wait_doing(replica, "refused", "lost")
    until(lambda: status(twin)["node"] != node, twin.log)
    assert say(replica, "SEEN", "u", "a19", "b0", "b49") == [1, 0, 0]
    wire.target = primary.port
    wire.set(CUT)
    wire.set(OPEN)
    assert replica.stop() == 0
    replica.start()
    verify(primary, replica)


# --- a long time ---


def months_pass(primary):
    """Three of them, with plays and forgets in each week, and what falls due: the first one leaves the window."""
    for week in range(13):
        for i in range(20):
            say(primary, "PLAYED", f"u{i}", f"week{week}")
        say(primary, "FORGET", f"u{week}", f"week{week}")
        say(primary, "FORGET", "gone")
        primary.advance(7 * DAY)
        say(primary, "RING", "FLUSH")


def test_away_for_months(pair):
    primary, replica, _ = pair(clock=START)
    for name in ("u1", "gone"):
        say(primary, "PLAYED", name, "before")
    level(primary, replica)
    assert say(replica, "SEEN", "u1", "before") == [1]
    assert replica.stop() == 0
    months_pass(primary)
    replica.clock = primary.clock
    replica.start()
    verify(primary, replica)
    assert say(replica, "SEEN", "u5", "week12", "before") == [1, 0]
    assert say(replica, "SEEN", "gone", "before") == [0]


def test_away_for_longer_than_the_feed_reaches(pair):
    primary, replica, _ = pair(clock=START, primary={"feed_max": "1MiB"})
    for name in ("u1", "gone"):
        say(primary, "PLAYED", name, "before")
    level(primary, replica)
    assert replica.stop() == 0
    months_pass(primary)
    with primary.client() as link:
        for part in range(10):
            link.pipeline([("PLAYED", f"many{i}", "x" * 240 + str(part)) for i in range(1000)])
    replica.clock = primary.clock
    replica.start()
    wait_doing(replica, "lost")
    until(lambda: "this replica is lost: it must be cloned again" in replica.log(), replica.log)
    clone_anew(primary, replica)
    verify(primary, replica)
    assert say(replica, "SEEN", "gone", "before") == [0] and say(replica, "SEEN", "u5", "week12") == [1]
    primary.advance(HOUR)
    say(primary, "PLAYED", "u1", "and on")
    verify(primary, replica)


def metric(server, name):
    with urllib.request.urlopen(http_url(server) + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


@pytest.mark.parametrize("apart", [-30000, 30000])
def test_clocks_half_a_minute_apart(pair, apart):
    primary, replica, _ = pair(clock=START, http="127.0.0.1:0")
    assert replica.stop() == 0
    replica.clock = START + apart
    replica.start()
    for i in range(20):
        say(primary, "PLAYED", "u", f"{i}")
        say(primary, "DELIVERED", "u", f"d{i}")
    say(primary, "FORGET", "u", "3")
    say(primary, "PLAYED", "gone", "a")
    say(primary, "FORGET", "gone")
    level(primary, replica)
    assert say(replica, "UNSEEN", "u", *map(str, range(20))) == [b"3"]
    assert say(replica, "SEEN", "gone", "a") == [0]
    until(lambda: abs(status(replica)["follower"]["clock_apart_ms"] + apart) < 100, lambda: status(replica))
    for server in (primary, replica):
        assert abs(metric(server, "unseen_replica_clock_apart_seconds") - 30) < 0.1
    for _ in range(3):  # what was recorded an hour ago is flushed: by each at its own time
        for server in (primary, replica):
            server.advance(HOUR)
        say(primary, "PLAYED", "u", "hour")
    verify(primary, replica)
    # Promoted, the one with the older clock takes no play back and lets no forget fall behind.
    run("promote", "--to", address(replica))
    say(replica, "PLAYED", "gone", "b")
    assert say(replica, "SEEN", "gone", "a", "b") == [0, 1]
    say(replica, "FORGET", "u")
    assert say(replica, "SEEN", "u", "hour") == [0]


# --- disks ---


def stuff(disk):
    """What is free on the disk, in a file."""
    file = open(disk / "stuffing", "ab", buffering=0)
    with pytest.raises(OSError) as full:
        while True:
            file.write(b"x" * 4096)
    assert full.value.errno == errno.ENOSPC
    file.close()
    return disk / "stuffing"


def load_some(server, name, n=3000):
    """Until it refuses; returns what it has acknowledged."""
    done = []
    with server.client() as link:
        for i in range(n):
            item = f"{name}{i}" + "x" * 200
            try:
                link.command("PLAYED", f"u{i % 50}", item)
            except RespError as refused:
                return done, str(refused)
            done.append((f"u{i % 50}", item))
    return done, ""


def on_disk(make_server, disk):
    """A server whose folder is on the disk, stopped."""
    server = make_server(clock=None)
    assert server.stop() == 0
    server.data = disk / "data"
    server.options["data"] = str(server.data)
    return server


def test_the_replicas_disk_fills_up(make_server, make_disk):
    disk = make_disk("32m")
    primary = make_server(clock=None)
    replica = on_disk(make_server, disk)
    run("clone", address(primary), "--data", replica.data, "--min-free", "0")
    replica.options["replica_of"] = address(primary)
    replica.start()
    level(primary, replica)
    stuffing = stuff(disk)
    done, refused = load_some(primary, "a")
    assert refused == ""  # the primary doesn't feel it
    until(lambda: b"full" in status(replica)["follower"]["problem"], lambda: (status(replica), replica.log()))
    assert status(replica)["follower"]["applied"] < status(primary)["last"]
    stuffing.unlink()
    verify(primary, replica)
    with replica.client() as link:
        assert all(answer == [1] for answer in link.pipeline([("SEEN", *one) for one in done]))


def test_the_primarys_disk_fills_up(make_server, make_disk):
    disk = make_disk("32m")
    primary = on_disk(make_server, disk)
    primary.start()
    replica = make_server(clock=None)
    assert replica.stop() == 0
    shutil.rmtree(replica.data)
    run("clone", address(primary), "--data", replica.data, "--min-free", "0")
    replica.options["replica_of"] = address(primary)
    replica.start()
    stuffing = stuff(disk)
    done, refused = load_some(primary, "a")
    assert "full" in refused, refused
    wait_doing(replica, "in step")
    stuffing.unlink()
    until(lambda: say_again(primary, "PLAYED", "u", "room"), primary.log)
    verify(primary, replica)
    with replica.client() as link:
        assert all(answer == [1] for answer in link.pipeline([("SEEN", *one) for one in done]))


def say_again(server, *words):
    try:
        say(server, *words)
        return True
    except RespError:
        return False


# --- a clone ---


def test_a_clone_is_killed_and_goes_on(make_server, folder):
    """A progress bar, as a terminal sees it, says when it is in the middle."""
    primary = make_server(clock=None)
    with primary.client() as link:
        link.pipeline([("DELIVERED", f"u{i}", *[f"{i}:{k}" + "x" * 200 for k in range(100)]) for i in range(500)])
    data = folder / "cloned"
    terminal, end = pty.openpty()
    clone = subprocess.Popen([str(UNSEEN), "clone", address(primary), "--data", str(data), "--rate", "2M"], stderr=end,
                             stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
    os.close(end)
    text = b""
    while not any(f" {percent}%".encode() in text for percent in range(10, 90)):
        text += os.read(terminal, 4096)
    clone.kill()
    assert clone.wait() == -signal.SIGKILL
    os.close(terminal)
    say(primary, "PLAYED", "u7", "meanwhile")
    say(primary, "FORGET", "u8")
    server = make_server(clock=None)
    assert server.stop() == 0
    shutil.rmtree(server.data)
    shutil.copytree(data, server.data)
    server.options["replica_of"] = address(primary)
    server.spawn()
    assert server.process.wait() != 0 and "has not ended" in server.log()  # half a folder is not served
    shutil.rmtree(server.data)
    assert "going on at " in run("clone", address(primary), "--data", data).stdout.decode()
    shutil.move(data, server.data)
    server.start()
    verify(primary, server)
    assert say(server, "SEEN", "u7", "meanwhile", "7:3" + "x" * 200) == [1, 1]
    assert say(server, "SEEN", "u8", "8:3" + "x" * 200) == [0]


class AskedWire(Wire):
    """Knows from which keys users were asked for, and hangs up at each of those that `cuts` counts."""

    def __init__(self, target, cuts):
        super().__init__(target)
        self.asked, self.cuts = [], cuts

    def spring(self, data):
        for key in re.findall(rb"USERS\r\n\$\d+\r\n(-?\d+)\r\n", data):
            self.asked.append(int(key))
            if len(self.asked) in self.cuts:
                for pair in self.pairs:
                    self.end(pair)


@pytest.fixture(name="many")
def many_users(make_server):
    """A primary whose users are some pages."""
    primary, draw = make_server(clock=None), random.Random(34)
    with primary.client() as link:
        link.pipeline([("DELIVERED", f"u{i}", *[draw.randbytes(100).hex() for _ in range(100)]) for i in range(500)])
    return primary


def follow(make_server, primary, data):
    server = make_server(clock=None)
    assert server.stop() == 0
    shutil.rmtree(server.data)
    shutil.move(data, server.data)
    server.options["replica_of"] = address(primary)
    server.start()
    verify(primary, server)


def test_a_clone_outlives_its_connection(many, make_server, folder):
    """It asks once more for what it was not answered, and for nothing that it has."""
    wire = AskedWire(many.port, {3, 5})
    done = run("clone", wire.address, "--data", folder / "cloned")
    wire.stop()
    assert done.stderr.count(b"connecting again") == 2 and b"500 users" in done.stdout, done
    assert wire.asked == sorted(wire.asked) and wire.asked[0] == -1 << 63
    assert len(wire.asked) == len(set(wire.asked)) + 2 and wire.asked[2] == wire.asked[3] and wire.asked[4] == wire.asked[5]
    follow(make_server, many, folder / "cloned")


def test_a_clone_ends_where_the_other_one_hangs_up_twice(many, make_server, folder):
    """The next run goes on there."""
    wire = AskedWire(many.port, {3, 4})
    done = run("clone", wire.address, "--data", folder / "cloned", check=False)
    wire.stop()
    assert done.returncode == 1 and done.stderr.count(b"connecting again") == 1, done
    assert len(wire.asked) == 4 and wire.asked[2] == wire.asked[3]
    wire = AskedWire(many.port, set())
    assert b"going on at " in run("clone", wire.address, "--data", folder / "cloned").stdout
    wire.stop()
    assert wire.asked[0] > -1 << 63
    follow(make_server, many, folder / "cloned")


def test_a_clone_under_load(make_server):
    """What is recorded and forgotten meanwhile comes with the feed, once each."""
    primary = make_server(clock=None)
    with primary.client() as link:
        link.pipeline([("PLAYED", f"u{i}", *[f"{k}" for k in range(50)]) for i in range(3000)])
    stop = threading.Event()

    def load(k):
        i = 0
        with primary.client() as link:
            while not stop.is_set():
                link.command("PLAYED", f"u{i % 3000}", f"new{k}:{i}")
                link.command("DELIVERED", f"u{i % 100}", f"shown{k}:{i}")
                link.command("FORGET", f"u{i % 3000}", f"{i % 50}")
                if i % 10 == 0:
                    link.command("FORGET", f"u{(i * 7) % 3000}")
                i += 1

    threads = [threading.Thread(target=load, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    try:
        replica = make_server(clock=None)
        assert replica.stop() == 0
        shutil.rmtree(replica.data)
        run("clone", address(primary), "--data", replica.data, "--rate", "1M")
        replica.options["replica_of"] = address(primary)
        replica.start()
        wait_doing(replica, "catching up", "in step")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    verify(primary, replica)


# --- restarts, and those who look ---


def test_each_is_restarted_while_the_other_works(pair):
    primary, replica, _ = pair()
    done, stop = [], threading.Event()

    def load(k):
        i = 0
        link = None
        while not stop.is_set():
            try:
                link = link or primary.client()
                link.command("PLAYED", f"u{k}", f"{i}")
                done.append((f"u{k}", f"{i}"))
            except (OSError, Closed, RespError):
                link = None
            i += 1

    threads = [threading.Thread(target=load, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    try:
        for server in (replica, primary, replica, primary):
            before = len(done)
            until(lambda: len(done) > before + 200, lambda: len(done))
            server.restart()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    verify(primary, replica)
    with replica.client() as link:
        assert all(answer == [1] for answer in link.pipeline([("SEEN", *one) for one in done]))


def test_what_redis_clients_see(pair):
    primary, replica, wire = pair()
    say(primary, "PLAYED", "u", "a")
    level(primary, replica)
    with redis.Redis(port=primary.port) as first, redis.Redis(port=replica.port) as second:
        role = first.execute_command("ROLE")
        assert role[0] == b"master" and role[1] == status(primary)["last"]
        assert [one[:2] for one in role[2]] == [[b"127.0.0.1", str(replica.port).encode()]]
        until(lambda: int(first.execute_command("ROLE")[2][0][2]) == role[1], lambda: first.execute_command("ROLE"))
        shown = first.info("replication")
        assert shown["role"] == "master" and shown["connected_slaves"] == 1
        assert shown["slave0"]["ip"] == "127.0.0.1" and shown["slave0"]["port"] == replica.port
        assert shown["slave0"]["state"] == "online" and shown["master_repl_offset"] == role[1]
        role = second.execute_command("ROLE")
        assert role[0] == b"slave" and role[3] == b"connected" and role[4] == status(primary)["last"]
        assert role[1:3] == [b"127.0.0.1", wire.port]
        shown = second.info("replication")
        assert shown["role"] == "slave" and shown["master_port"] == wire.port
        assert shown["master_link_status"] == "up" and shown["slave_read_only"] == 1
        with pytest.raises(redis.exceptions.ReadOnlyError):
            second.execute_command("PLAYED", "u", "b")
        wire.set(CUT)
        until(lambda: second.info("replication")["master_link_status"] == "down", lambda: second.info("replication"))
        assert second.execute_command("ROLE")[3] in (b"connect", b"connecting")
        until(lambda: first.info("replication")["connected_slaves"] == 0, lambda: first.info("replication"))


def test_a_replica_that_stands_still(pair):
    primary, replica, _ = pair()
    primary.options.update(replica_ack="replica-strict", replica_ack_timeout="1min")
    primary.restart()
    level(primary, replica)
    assert say(primary, "PLAYED", "u", "a") == 1
    freeze(replica.process)
    try:
        reload(primary, replica_ack_timeout="100ms")  # which a busy machine may need for a write that is well
        for words in (("PLAYED", "u", "b"), ("FORGET", "u", "a")):
            with pytest.raises(RespError, match="^NOREPLICAS durable here"):
                say(primary, *words)
    finally:
        thaw(replica.process)
    reload(primary, replica_ack_timeout="1min")
    verify(primary, replica)
    assert say(primary, "PLAYED", "u", "c") == 1
    assert say(replica, "SEEN", "u", "a", "b", "c") == [0, 1, 1]


# --- nodes that flush apart ---


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_absent_while_the_old_one_rejoins(pair, killed):  # noqa: F811
    """The old primary brings a forget that the new one never had: what the new one has acknowledged since stays seen, at
    each moment, and a kill -9 in between changes nothing."""
    old, new, _ = pair()
    say(old, "PLAYED", "u", "old")
    level(old, new)
    assert new.stop() == 0
    say(old, "FORGET", "u")  # acknowledged by the old one alone
    old.kill()
    del new.options["replica_of"]
    run("promote", "--data", new.data)
    new.start()
    say(new, "PLAYED", "u", "new")
    with new.client() as c:
        c.pipeline([["PLAYED", f"f{i}", *range(100)] for i in range(1000)])
    ends, said = threading.Event(), []

    def asks():
        try:
            with new.client() as c:
                while not ends.is_set():
                    said.append(c.command("SEEN", "u", "new", "old"))
        except (Closed, OSError):
            pass
    thread = threading.Thread(target=asks)
    thread.start()
    rejoin = [UNSEEN, "rejoin", f"127.0.0.1:{new.port}", "--data", str(old.data)]
    process = subprocess.Popen(rejoin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if killed:
        until(lambda: [1, 0] in said or process.poll() is not None, lambda: said[-5:])
        new.kill()
        new.start()
        process.wait()
    assert process.wait() == 0 or killed
    ends.set()
    thread.join()
    assert said and [answer for answer in said if answer[0] != 1] == []
    assert subprocess.run(rejoin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode in (0, 1)
    with new.client() as c:
        assert c.command("SEEN", "u", "new", "old") == [1, 0]


def test_a_full_disk_keeps_no_node_from_leading(pair):  # noqa: F811
    """It doesn't take the place of one that takes plays, unless that is forced: then it leads, takes forgets, and plays
    as soon as min_free says so, on a clock that stands still."""
    primary, replica, _ = pair(clock=START)
    reload(replica, min_free="16TiB")
    done = run("promote", "--to", address(replica), check=False)
    assert done.returncode == 1 and b"Nothing was changed" in done.stderr and b"min_free" in done.stderr, done
    assert say(primary, "PLAYED", "u", "a") == 1 and status(primary)["role"] == b"primary"
    assert say(primary, "FORGET", "u") == 1
    reload(replica, min_free="0")
    level(primary, replica)
    reload(replica, min_free="16TiB")
    run("promote", "--to", address(replica), "--force")
    assert status(replica)["role"] == b"primary" and "lossless=1" in replica.log()
    assert "nothing is kept for the old primary" not in replica.log()
    assert say(replica, "FORGET", "first") == 1
    with pytest.raises(RespError, match="min_free"):
        say(replica, "PLAYED", "u", "a")
    reload(replica, min_free="0")
    assert say(replica, "PLAYED", "u", "a") == 1


def test_an_idle_replica_with_a_full_disk_says_so(pair):  # noqa: F811
    primary, replica, _ = pair(clock=START)
    for free, said in (("16TiB", True), ("0", False)):
        reload(replica, min_free=free)
        until(lambda: (b"min_free" in status(replica)["follower"]["problem"]) == said, lambda: status(replica))
        assert status(replica)["follower"]["state"] == b"in step"


def test_one_with_a_full_disk_leads_when_its_primary_is_gone(pair):  # noqa: F811
    primary, replica, _ = pair(clock=START)
    reload(replica, min_free="16TiB")
    primary.kill()
    wait_doing(replica, "connecting")
    run("promote", "--to", address(replica))
    assert status(replica)["role"] == b"primary"


@pytest.mark.parametrize("why", ["lost", "full"])
def test_one_that_takes_nothing_does_not_stop_its_primary(pair, why):  # noqa: F811
    """It is refused before the primary is asked to step down: else neither would take writes."""
    primary, replica, _ = pair(feed_max="1MiB")
    if why == "lost":
        assert replica.stop() == 0
        with primary.client() as c:
            c.pipeline([("PLAYED", f"f{i}", *(f"{i}:{k}" for k in range(100))) for i in range(1000)])
        replica.start()
        wait_doing(replica, "lost")
    else:
        reload(replica, min_free="16TiB")
        until(lambda: "disk nearly full" in replica.log())
        say(primary, "PLAYED", "u", "a")
        until(lambda: status(replica)["follower"]["problem"], replica.log)
    done = run("promote", "--to", address(replica), check=False)
    assert done.returncode == 1 and b"Nothing was changed" in done.stderr, done
    assert (b"is lost" if why == "lost" else b"min_free") in done.stderr, done
    assert say(primary, "PLAYED", "u", "b") == 1 and status(primary)["role"] == b"primary"
    if why == "lost":
        run("promote", "--to", address(replica), "--force")
        until(lambda: status(primary)["role"] == b"fenced", primary.log)


def test_a_delivery_that_fell_off_comes_back_on_neither(pair):
    primary, replica, _ = pair()
    for i in range(100):
        say(primary, "DELIVERED", "u", f"d{i}")
    level(primary, replica)
    for server in (primary, replica):
        say(server, "RING", "FLUSH")
    say(primary, "DELIVERED", "u", "d100")
    level(primary, replica)
    say(primary, "RING", "FLUSH")  # here alone: "d0" leaves the history of the primary
    assert say(primary, "FORGET", "u", "d100") == 1
    for flushed in (False, True):
        level(primary, replica)
        for server in (primary, replica):
            if flushed:
                say(server, "RING", "FLUSH")
            assert say(server, "SEEN", "u", "d0", "d1", "d100") == [0, 1, 0]
        verify(primary, replica)


def test_an_unseen_item_is_played_again_in_another_month(pair):
    """The filter of the first month has it on the primary alone, where the exception has ended."""
    primary, replica, _ = pair(clock=START)
    say(primary, "PLAYED", "u", "x")
    level(primary, replica)
    say(primary, "RING", "FLUSH")
    assert say(primary, "FORGET", "u", "x") == 1
    verify(primary, replica)
    for server in (primary, replica):
        server.advance(20 * DAY)
    assert say(primary, "SEEN", "u", "x") == [0]
    say(primary, "PLAYED", "u", "x")
    verify(primary, replica)
    for server in (primary, replica):
        say(server, "RING", "FLUSH")
        assert say(server, "SEEN", "u", "x") == [1]
    verify(primary, replica)


def test_deliveries_are_in_one_order_after_a_load(pair, make_server, folder):
    """Where nothing was flushed, and where all was."""
    primary, replica, _ = pair(hash_seed="00112233445566aa")
    other = make_server(clock=None, hash_seed="00112233445566aa")
    for user in ("u", "v"):
        say(other, "DELIVERED", user, *(f"there{i}" for i in range(7)))
    run("export", folder / "users", "--data", other.data)
    for user, flushing in (("u", primary), ("v", replica)):
        say(primary, "DELIVERED", user, *(f"here{i}" for i in range(5)))
        level(primary, replica)
        say(flushing, "RING", "FLUSH")
    say(primary, "DELIVERED", "u", "here6")
    level(primary, replica)
    run("load", folder / "users", "--data", primary.data)
    verify(primary, replica)
    for user in ("u", "v"):
        for i in range(7):
            assert say(replica, "SEEN", user, f"there{i}") == [1]
