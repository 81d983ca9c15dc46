"""A Redis in front (section [front]), a real one, in every state that one can be in: no acknowledged play is unseen, no
forgotten one is seen, questions and plays go on, and it becomes whole by itself."""
import contextlib
import json
import shutil
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import DAY, HOUR, PATIENCE, START, http_url, is_late, pause, peak_memory, run
from front_redis import (COMPARED, FrontRedis, LosingWire, MeasuringWire, SlowWire, TrickleWire, by_front, figures,
                         front, frozen, last_seq, reconcile, said, unseen, unseen_in_time, wait_in_step, wait_state, won)
from old_cluster import Node
from old_redis import REDIS, wait
from partition import CUT, NO_REPLIES, NO_REQUESTS, OPEN, SILENT
from resp import RespError, encode
from test_cold import disk  # noqa: F401
from test_reload import reload
from test_repair import key_of, months_table, spoil
from test_replica import level, make_follower
from test_tls import Certificates

pytestmark = pytest.mark.skipif(REDIS is None, reason="there is no redis-server")


@pytest.fixture
def make_redis(folder):
    made = []

    def make(*options):
        made.append(FrontRedis(folder / f"redis{len(made)}", *options))
        return made[-1]

    yield make
    for redis in made:
        redis.kill()


@pytest.fixture
def redis(make_redis):
    return make_redis()


@pytest.fixture
def fronted(make_server, disk, redis):  # noqa: F811
    """A server with that Redis in front, in step."""
    def make(wait=True, **options):
        server = make_server(**{"front_redis": redis.address, "front_users_rate": "0", "workers": "1",
                                "hedge_after": "2ms", "question_timeout": "3s", "error_rate": "0.0001", **options})
        if wait:
            wait_in_step(server)
        return server

    return make


@pytest.fixture
def make_wire():
    wires = []

    def make(redis):
        wires.append(SlowWire(redis.port))
        return wires[-1]

    yield make
    for wire in wires:
        wire.stop()


def say(server, *words):
    with server.client() as c:
        return c.command(*words)


def play_some(server, prefix="u", users=5, item="a"):
    with server.client() as c:
        for i in range(users):
            assert c.command("PLAYED", f"{prefix}{i}", item, f"{item}{i}") == 2


def played(prefix="u", users=5, item="a"):
    """As by_front() expects it."""
    return {f"{prefix}{i}": ((item, f"{item}{i}", "x"), ("x",)) for i in range(users)}


def health(server):
    with urllib.request.urlopen(http_url(server) + "/readyz", timeout=60) as reply:
        return json.load(reply)


# --- what is there ---


def test_switched_on(fronted, disk, redis):  # noqa: F811
    """Users who were there before, their deliveries, and what was forgotten of them."""
    server = fronted(wait=False, front_redis="")
    assert front(server)["state"] == "off"
    play_some(server, users=300)
    say(server, "DELIVERED", "u1", "d")
    say(server, "RING", "FLUSH")
    say(server, "PLAYED", "u2", "later")
    say(server, "FORGET", "u3", "a")
    say(server, "FORGET", "u4")
    server.options["front_redis"] = redis.address
    server.restart()
    status = wait_in_step(server)
    assert status["redis"] == redis.address and status["cause"] == ""
    meta = redis.meta()
    assert (meta["v"], meta["full"]) == ("2", "1") and int(meta["epoch"]) == status["epoch"] > 0
    assert reconcile(server, 299) == 0
    by_front(server, disk, {"u0": (("a", "a0", "x"), ("x",)), "u1": (("a", "d", "x"), ("x",)),
                            "u2": (("later", "a2", "x"), ("x",)), "u3": (("a", "a3"), ("a",)),
                            "u4": (("a", "a4"), ("a", "a4")), "nobody": (("a",), ("a",)),
                            "u299": (("a299", "x"), ("x",))})


def test_what_is_recorded(fronted, make_server, disk, redis, folder):  # noqa: F811
    other, server = make_server(hash_seed="00c0ffee12345678"), fronted(hash_seed="00c0ffee12345678")
    export, file = folder / "users", folder / "plays.csv"
    say(other, "PLAYED", "moved", "a", "b")
    say(other, "PLAYED", "u0", "carried")
    run("export", export, "--data", other.data)
    file.write_text("".join(f"{START - i},bulk{i},i{i}\n" for i in range(500)))
    with server.client() as c:
        for round in range(2):  # also into users whose state is there already
            for i in range(40):
                c.command("PLAYED", f"u{i}", f"{round}a{i}", f"{round}b{i}", f"{round}c{i}")
                c.command("DELIVERED", f"u{i}", f"{round}d{i}")
                c.command("FORGET", f"u{i}", f"{round}b{i}")
                if i % 4 == 1:
                    c.command("PLAYED", f"u{i}", f"{round}b{i}")
                if i % 4 == 2:
                    c.command("FORGET", f"u{i}", f"{round}d{i}")
                if i % 4 == 3:
                    c.command("FORGET", f"u{i}")
                    c.command("PLAYED", f"u{i}", f"{round}b{i}")
                c.command("PLAYEDAT", f"u{i}", START - 20 * DAY, f"{round}old{i}")
            c.command("RING", "FLUSH")
        assert c.command("FILTER", "u0", "LIMIT", "1", "DELIVER", "ITEMS", "1a0", "offered") == [b"offered"]
    run("load", export, "--to", f"127.0.0.1:{server.port}")
    wait_in_step(server)
    assert server.stop() == 0
    run("import", file, "--data", server.data, "--test-clock", server.clock)  # while nobody serves it
    server.start()
    assert reconcile(server, 541) == 0, front(server)
    expected = {"moved": (("a", "b", "x"), ("x",)), "bulk7": (("i7", "x"), ("x",)), "bulk499": (("i499", "x"), ("x",)),
                "u0": (("0a0", "0b0", "0c0", "0d0", "0old0", "1a0", "1b0", "offered"), ("0b0", "1b0")),
                "u1": (("0a1", "0b1", "0c1", "0d1", "1old1", "1b1", "x"), ("x",)),
                "u2": (("0a2", "0b2", "0c2", "0d2", "1old2", "1b2"), ("0b2", "0d2", "1b2")),
                "u3": (("0a3", "0b3", "0d3", "1a3", "1b3", "1c3", "1d3", "0old3", "1old3"),
                       ("0a3", "0b3", "0d3", "1a3", "1c3", "1d3", "0old3", "1old3"))}
    by_front(server, disk, expected)


def test_without_a_flush(fronted, disk):  # noqa: F811
    """All is told by events alone, and by a state with events behind it."""
    server = fronted()
    say(server, "PLAYED", "u", "merged", "gone")
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    with server.client() as c:
        for i in range(300):  # more than are kept beside a state
            c.command("PLAYED", "u", f"i{i}")
        c.command("DELIVERED", "u", "d")
        c.command("PLAYED", "other", "a")
        c.command("FORGET", "u", "gone")
    assert reconcile(server) == 0
    server.restart()
    wait_in_step(server)
    disk.freeze("history.db")
    assert unseen(server, "u", "merged", "gone", "i0", "i299", "d", "x") == ["gone", "x"]
    assert unseen(server, "other", "a", "x") == ["x"]
    assert won(server) >= 1
    disk.thaw()


def test_many_events_of_one_user(fronted, disk):  # noqa: F811
    """More than a script of Redis can take at once, in one command."""
    server = fronted()
    assert say(server, "PLAYED", "busy", *[f"i{i}" for i in range(20000)]) == 20000
    assert say(server, "PLAYED", "idle", "a") == 1
    wait_in_step(server)
    assert reconcile(server) == 0
    by_front(server, disk, {"busy": (("i0", "i9999", "i19999", "x"), ("x",)), "idle": (("a", "x"), ("x",))})


def test_large_numbers(fronted, disk, redis):  # noqa: F811
    """Of events, as a folder has them that has recorded a thousand million million: Redis keeps them exactly."""
    server = fronted(wait=False, front_redis="")
    play_some(server)
    assert server.stop() == 0
    spoil(server, "UPDATE meta SET value = ? WHERE name = 'high_water'", (1 << 52) + 12345, file="staging.db")
    server.options["front_redis"] = redis.address
    server.start()
    wait_in_step(server)
    play_some(server, item="b")
    say(server, "FORGET", "u1", "a")
    say(server, "FORGET", "u2")
    say(server, "RING", "FLUSH")
    before = wait_in_step(server)
    assert before["to"] == int(redis.meta()["to"]) == last_seq(server) > 1 << 52
    redis.save()
    play_some(server, item="c")
    wait_in_step(server)
    redis.go_back()
    assert reconcile(server) == 0 and front(server)["rebuilds"] == before["rebuilds"]
    by_front(server, disk, {"u0": (("a", "b", "c", "x"), ("x",)), "u1": (("a", "b", "c"), ("a",)),
                            "u2": (("a", "b", "c"), ("a", "b"))})


def test_months(fronted, disk):  # noqa: F811
    """The turn of a month, the sealing of the last, and months that are past retention."""
    server = fronted()
    say(server, "PLAYED", "u", "november")
    say(server, "RING", "FLUSH")
    server.advance(30 * DAY)
    say(server, "PLAYED", "u", "december")
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    server.advance(31 * DAY)
    assert reconcile(server) == 0
    by_front(server, disk, {"u": (("november", "december", "x"), ("x",))})
    server.advance(180 * DAY)
    say(server, "PLAYED", "u", "july")
    assert reconcile(server) == 0
    by_front(server, disk, {"u": (("november", "december", "july"), ("november", "december"))})
    server.advance(500 * DAY)
    assert reconcile(server) == 0


# --- the disk ---


def test_a_frozen_disk_is_not_felt(fronted, disk):  # noqa: F811
    server = fronted(http="127.0.0.1:0")
    play_some(server, users=30)
    wait(lambda: "degraded" not in health(server), lambda: health(server))
    with frozen(server, disk):
        took = []
        with server.client() as c:
            for i in range(30):
                began = time.monotonic()
                assert c.command("UNSEEN", f"u{i}", "a", f"a{i}", "x") == [b"x"]
                took.append(time.monotonic() - began)
                assert c.command("PLAYED", f"u{i}", "x") == 1  # staging.db is well
                assert c.command("UNSEEN", f"u{i}", "a", "x", "y") == [b"y"]
            assert c.command("SEEN", "u0", "a", "x", "y") == [1, 1, 0]
            assert c.command("FILTER", "u0", "LIMIT", "1", "DELIVER", "ITEMS", "a", "z1", "z2") == [b"z1"]
        assert sorted(took)[15] < 2
        assert won(server) >= 60
        assert "the disk is late" in health(server)["degraded"]
    assert unseen(server, "u0", "a", "x", "z1", "y") == ["y"]
    wait_in_step(server)
    assert reconcile(server) == 0


def test_a_broken_disk(fronted, disk):  # noqa: F811
    """EIO: of what is read, questions are answered; of what is written, the error is told, and nothing is shown of it."""
    server = fronted(http="127.0.0.1:0")
    play_some(server)
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    server.restart()
    wait_in_step(server)
    disk.freeze("!history.db")
    for user, (items, left) in played().items():
        assert unseen_in_time(server, user, *items) == list(left)
    assert won(server) >= 5
    assert "can't be read" in health(server)["degraded"]
    with pytest.raises(RespError, match="(?i)history.db.*i/o error"):
        say(server, "HISTORY", "u0")
    disk.freeze("!staging.db-wal")
    with pytest.raises(RespError, match="(?i)i/o|disk"):
        say(server, "PLAYED", "u0", "never")
    for user, (items, left) in played().items():
        assert unseen_in_time(server, user, *items) == list(left)
    disk.thaw()

    def takes_plays():
        with contextlib.suppress(RespError):
            return say(server, "PLAYED", "u0", "again") == 1

    wait(takes_plays, server.log)
    wait_in_step(server)
    assert unseen_in_time(server, "u0", "a", "again", "x") == ["x"]
    assert reconcile(server) == 0


def broken(server, disk, users):  # noqa: F811
    """Nobody is in memory, and what is asked of history.db fails."""
    play_some(server, users=users)
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    server.restart()
    wait_in_step(server)
    disk.freeze("!history.db")


def test_more_than_it_takes_at_a_time(fronted, disk):  # noqa: F811
    """While the disk is broken, the second tier has no room for all at once: none fails for that."""
    users = 200
    server = fronted(workers="1")
    broken(server, disk, users)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for _ in range(users)]
        for i, c in enumerate(clients):
            c.send(encode("UNSEEN", f"u{i}", "a", "x"))
        late = 0
        for i, c in enumerate(clients):
            reply = c.read()
            if isinstance(reply, RespError) and is_late(reply):  # a busy machine lets Redis be late for a moment
                reply, late = [b"x"] if unseen_in_time(server, f"u{i}", "a", "x") == ["x"] else reply, late + 1
            assert reply == [b"x"], said(server)()
    assert won(server) == users and late < users / 2


def test_the_frame_stands_there(fronted, redis):
    """By the writer's clock and its options, as they change."""
    server = fronted(window=3, delivered_max=50)

    def frame(first, most):
        wait(lambda: redis.ask("HMGET", "unseen:meta", "first", "most") == [first.encode(), most.encode()], said(server))

    frame("202608", "50")
    reload(server, window=5, delivered_max=60)
    frame("202606", "60")
    server.advance(15 * DAY)
    frame("202607", "60")


def test_redis_ends_idle_connections(fronted, disk, redis):  # noqa: F811
    """As its option `timeout` does: the first question over such a one isn't lost."""
    server = fronted()
    broken(server, disk, 20)
    for i in range(10):
        assert unseen_in_time(server, f"u{i}", "a", "x") == ["x"]
    redis.ask("CONFIG", "SET", "timeout", "1")
    ours = lambda: redis.ask("CLIENT", "LIST", "TYPE", "NORMAL").count(b" addr=") - 1
    wait(lambda: ours() <= 2, said(server))  # the writer's and the keeper's, which are never idle
    for i in range(20):
        assert unseen_in_time(server, f"u{i}", "a", "x") == ["x"]
    # Each time that a busy machine lets Redis be late, the question under way fails there, and is put there again.
    assert int(figures(server)["hedge_failed"]) <= server.log().count("the second tier is not there")


def test_the_disk_hangs_and_redis_blinks(fronted, disk, redis):  # noqa: F811
    """Also what is written waits: the front begins again without the disk, and answers."""
    server = fronted()
    play_some(server, users=20)
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    server.restart()
    wait_in_step(server)
    answers = []
    disk.freeze(f"~{server.data}")
    waits = threading.Thread(target=lambda: answers.append(try_play(server, "u0", "waits")))
    waits.start()
    try:
        assert unseen_in_time(server, "u1", "a", "x") == ["x"]
        epoch = front(server)["epoch"]
        redis.ask("CLIENT", "KILL", "TYPE", "normal")
        wait(lambda: front(server)["epoch"] > epoch and figures(server)["second_tier_up"] == "1", said(server))
        for i in range(2, 20):
            assert unseen_in_time(server, f"u{i}", "a", "x") == ["x"]
    finally:
        disk.thaw()
        waits.join()
    wait_in_step(server)
    assert reconcile(server) == 0


def try_play(server, user, item):
    with contextlib.suppress(RespError):
        return say(server, "PLAYED", user, item)


def test_history_is_put_aside(fronted, disk, redis):  # noqa: F811
    """Its name is gone, or another file's: nothing more goes there, questions and plays go on, and when it is back it
    has all."""
    server = fronted(http="127.0.0.1:0")
    play_some(server)
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    file, aside = server.data / "history.db", server.data / "aside"
    file.rename(aside)
    assert "history.db: the file was removed or put aside" in health(server)["degraded"] and health(server)["ready"]
    play_some(server, item="b")
    for other in (False, True):
        if other:
            shutil.copy(aside, file)
        with pytest.raises(RespError, match="MISCONF .*put aside"):
            say(server, "RING", "FLUSH")
        with pytest.raises(RespError, match="MISCONF .*put aside"):
            say(server, "FORGET", "u4")
        for i in range(4):
            assert unseen(server, f"u{i}", "a", "b", f"b{i}", "x") == ["x"]
    server.kill()
    aside.rename(file)
    server.start()
    wait_in_step(server)
    say(server, "FORGET", "u4")
    say(server, "RING", "FLUSH")
    wait(lambda: "degraded" not in health(server), lambda: health(server))
    assert reconcile(server, 4) == 0
    by_front(server, disk, {"u0": (("a", "b", "b0", "x"), ("x",)), "u4": (("a", "b"), ("a", "b"))})


def test_staging_is_put_aside(fronted, redis):
    """No play is acknowledged that would be gone with the process."""
    server = fronted(http="127.0.0.1:0")
    play_some(server)
    file, aside = server.data / "staging.db", server.data / "aside"
    file.rename(aside)
    with pytest.raises(RespError, match="MISCONF .*put aside"):
        say(server, "PLAYED", "u1", "b")
    with pytest.raises(urllib.error.HTTPError) as told:
        health(server)
    assert told.value.code == 503 and b"staging.db: the file was removed or put aside" in told.value.read()
    assert unseen(server, "u1", "a", "b") == ["b"]
    assert not file.exists()
    aside.rename(file)
    assert say(server, "PLAYED", "u1", "b") == 1
    assert health(server)["ready"]
    server.kill()
    server.start()
    assert unseen(server, "u1", "a", "b", "x") == ["x"]


def test_both_are_away(fronted, disk, redis):  # noqa: F811
    server = fronted(question_timeout="300ms")
    play_some(server)
    with frozen(server, disk):
        assert unseen_in_time(server, "u1", "a", "x") == ["x"]
        redis.pause()
        with pytest.raises(RespError, match="(?i)disk is late|not answered within"):
            for i in (0, 2, 3, 4):
                unseen(server, f"u{i}", "a", "x")
        redis.go_on()
        wait(lambda: [try_ask(server, f"u{i}") for i in range(5)] == [["x"]] * 5, said(server))


def try_ask(server, user):
    with contextlib.suppress(RespError):
        return unseen(server, user, "a", "x")


def test_giants(fronted, disk):  # noqa: F811
    """Of whom too much is known the front answers nothing: said, counted, and the disk answers."""
    server = fronted(question_timeout="300ms")
    with server.client() as c:
        for at in range(0, 300000, 50000):
            c.command("PLAYED", "giant", *[f"i{i}" for i in range(at, at + 50000)])
        c.command("PLAYED", "u", "a")
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    assert front(server)["giants"] >= 1
    assert reconcile(server) == 0
    assert unseen_in_time(server, "giant", "i0", "i299999", "x") == ["x"]
    with frozen(server, disk):
        assert unseen_in_time(server, "u", "a", "x") == ["x"]
        with pytest.raises(RespError):
            unseen(server, "giant", "i0", "x")
    assert unseen_in_time(server, "giant", "i0", "i299999", "x") == ["x"]


def test_no_script_is_large(fronted, redis):
    """Users of nearly 512 KiB, and many of 20 KiB: Redis does nothing else while it runs a script."""
    wire = MeasuringWire(redis.port)
    try:
        server = fronted(front_redis=wire.address)
        with server.client() as c:
            for user in range(4):
                for at in range(0, 160000, 40000):
                    c.command("PLAYED", f"large{user}", *[f"i{i}" for i in range(at, at + 40000)])
            c.pipeline([("PLAYED", f"u{user}", *[f"i{i}" for i in range(8000)]) for user in range(60)])
        wait_in_step(server)
        say(server, "RING", "FLUSH")
        giants = front(server)["giants"]  # while their plays were staged
        rebuild(server)
        assert front(server)["giants"] == giants and reconcile(server, 64) == 0
        assert max(redis.ask("MEMORY", "USAGE", f"unseen:w:large{user}") for user in range(4)) > 256 << 10
        assert 256 << 10 < wire.largest < 1 << 20
    finally:
        wire.stop()


# --- Redis is away, and comes back as another ---


def test_it_is_stopped(fronted, disk, redis):  # noqa: F811
    server = fronted()
    play_some(server)
    wait_in_step(server)
    rebuilds = front(server)["rebuilds"]
    redis.pause()
    play_some(server, item="b")
    say(server, "FORGET", "u0", "a")
    say(server, "FORGET", "u1")
    assert unseen(server, "u2", "a", "b", "x") == ["x"]
    waiting = wait_state(server, "waiting")
    assert waiting["cause"] != "" and waiting["since"] == server.clock
    assert unseen(server, "u3", "a", "b", "x") == ["x"]
    disk.freeze("history.db")  # nobody is told what was forgotten
    assert "a" in (try_ask(server, "u1") or ["a"])
    disk.thaw()
    redis.go_on()
    wait_in_step(server)
    assert front(server)["rebuilds"] == rebuilds and front(server)["outages"] == 1
    assert reconcile(server) == 0
    by_front(server, disk, {"u0": (("a", "a0", "b"), ("a",)), "u1": (("a", "b"), ("a", "b")),
                            "u4": (("a", "b", "x"), ("x",))})


def test_what_was_not_sent_is_not_answered(fronted, disk, make_wire, redis):  # noqa: F811
    """The front has an older state than was dropped from memory, or one from before a forget: it is not asked."""
    wire = make_wire(redis)
    server = fronted(front_redis=wire.address, question_timeout="300ms")
    play_some(server)
    with frozen(server, disk):
        assert unseen_in_time(server, "u4", "a", "x") == ["x"]
    wire.set(CUT)
    say(server, "PLAYED", "u0", "later")
    say(server, "FORGET", "u1")
    say(server, "FORGET", "u2", "a")
    say(server, "RING", "FLUSH")
    wait_state(server, "waiting")
    for restart in (False, True):
        if restart:
            server.restart()
        disk.freeze("history.db")
        for user, item, word in (("u0", "later", 1), ("u1", "a", 0), ("u2", "a", 0)):
            with contextlib.suppress(RespError):
                assert say(server, "SEEN", user, item) == [word]
        disk.thaw()
    wire.set(OPEN)
    wait_in_step(server)
    by_front(server, disk, {"u0": (("a", "later", "x"), ("x",)), "u1": (("a", "x"), ("a", "x")),
                            "u2": (("a", "a2"), ("a",)), "u3": (("a", "a3", "x"), ("x",))})


def test_it_is_killed(fronted, disk, redis):  # noqa: F811
    """Without a file: it comes back empty, and all users are brought in again."""
    server = fronted()
    play_some(server, users=200)
    say(server, "RING", "FLUSH")
    before = wait_in_step(server)
    redis.kill()
    play_some(server, item="b")
    wait_state(server, "waiting")
    redis.start()
    after = wait_in_step(server)
    assert after["rebuilds"] == before["rebuilds"] + 1 and after["epoch"] > before["epoch"]
    assert reconcile(server, 200) == 0
    by_front(server, disk, {"u0": (("a", "b", "x"), ("x",)), "u199": (("a", "a199", "x"), ("x",))})


def test_it_is_killed_and_has_all(fronted, make_redis, disk):  # noqa: F811
    redis = make_redis("--appendonly", "yes")
    server = fronted(front_redis=redis.address)
    for round in range(4):
        play_some(server, item=f"r{round}")
        if round % 2 == 1:
            say(server, "RING", "FLUSH")
        before = front(server)["rebuilds"]
        redis.kill()
        play_some(server, item=f"s{round}")
        redis.start()
    assert wait_in_step(server)["rebuilds"] == before
    assert reconcile(server) == 0
    items = [f"{kind}{round}" for round in range(4) for kind in "rs"]
    by_front(server, disk, {"u0": ((*items, "x"), ("x",))})


def test_killed_while_it_is_filled(fronted, disk, redis):  # noqa: F811
    server = fronted(wait=False, front_redis="")
    play_some(server, users=3000)
    say(server, "RING", "FLUSH")
    server.options.update(front_redis=redis.address, front_users_rate="2000")
    server.restart()
    wait(lambda: front(server)["state"] == "filling" and front(server)["filled"] > 0, said(server))
    assert redis.meta()["full"] == "0"
    redis.save()
    server.kill()
    server.start()
    wait(lambda: front(server)["state"] == "filling", said(server))
    redis.go_back()
    play_some(server, item="b")
    say(server, "FORGET", "u2999")
    wait(lambda: front(server)["state"] == "filling", said(server))
    redis.kill()
    redis.start()
    reload(server, front_users_rate="0")
    wait_in_step(server)
    assert reconcile(server, 2999) == 0
    by_front(server, disk, {"u0": (("a", "b", "x"), ("x",)), "u2999": (("a",), ("a",)), "u2998": (("a", "x"), ("x",))})


@pytest.mark.parametrize("what", ["FLUSHALL", "DEL", "other prefix"])
def test_it_is_emptied(fronted, disk, redis, what):  # noqa: F811
    server = fronted()
    play_some(server)
    before = wait_in_step(server)
    if what == "FLUSHALL":
        redis.ask("FLUSHALL")
    elif what == "DEL":
        redis.ask("DEL", "unseen:meta")
    else:
        redis.ask("RENAME", "unseen:meta", "elsewhere:meta")
    play_some(server, item="b")
    wait(lambda: front(server)["rebuilds"] == before["rebuilds"] + 1, said(server))
    wait_in_step(server)
    assert reconcile(server, 5) == 0
    by_front(server, disk, {"u0": (("a", "b", "x"), ("x",))})


def test_emptied_in_silence(fronted, disk, redis):  # noqa: F811
    """Nothing is sent, nobody asks it; yet it is noticed."""
    server = fronted()
    play_some(server)
    before = wait_in_step(server)
    redis.ask("FLUSHALL")
    wait(lambda: front(server)["rebuilds"] == before["rebuilds"] + 1, said(server))
    by_front(server, disk, played())


@pytest.mark.parametrize("restarted", [False, True])
def test_an_older_state_comes_back(fronted, disk, redis, restarted):  # noqa: F811
    """A file of before: what was sent since is sent again, from where it says."""
    server = fronted()
    play_some(server)
    say(server, "PLAYED", "u3", "gone")
    say(server, "DELIVERED", "u2", "d")
    wait_in_step(server)
    redis.save()
    to = int(redis.meta()["to"])
    play_some(server, item="b")
    say(server, "FORGET", "u3", "gone")
    say(server, "FORGET", "u4")
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    if restarted:  # by a writer of whom the file knows nothing
        server.restart()
        wait_in_step(server)
    say(server, "PLAYED", "u1", "c")
    before = wait_in_step(server)
    redis.kill()
    say(server, "PLAYED", "u1", "e")
    shutil.copy(redis.folder / "older.rdb", redis.folder / "dump.rdb")
    redis.start()
    assert int(redis.meta()["to"]) == to or front(server)["state"] != "waiting"
    after = wait_in_step(server)
    assert after["rebuilds"] == before["rebuilds"], server.log()[-3000:]
    assert reconcile(server) == 0
    by_front(server, disk, {"u0": (("a", "b", "x"), ("x",)), "u1": (("a", "b", "c", "e", "x"), ("x",)),
                            "u2": (("a", "d", "x"), ("x",)), "u3": (("a", "b", "gone"), ("gone",)),
                            "u4": (("a", "b"), ("a", "b"))})


def test_too_old_a_state_comes_back(fronted, disk, redis):  # noqa: F811
    """What was sent since is no longer kept: all users are brought in again."""
    server = fronted()
    play_some(server)
    wait_in_step(server)
    redis.save()
    for item in "bcd":
        play_some(server, item=item)
        say(server, "FORGET", "u4")
        say(server, "RING", "FLUSH")
        wait_in_step(server)
        server.advance(HOUR)
    before = front(server)["rebuilds"]
    redis.go_back()
    wait(lambda: front(server)["rebuilds"] == before + 1, said(server))
    wait_in_step(server)
    assert reconcile(server, 4) == 0
    by_front(server, disk, {"u0": (("a", "b", "c", "d", "x"), ("x",)), "u4": (("a", "d"), ("a", "d"))})


def test_an_hour_without_it(fronted, disk, make_wire, redis):  # noqa: F811
    wire = make_wire(redis)
    server = fronted(front_redis=wire.address)
    play_some(server)
    before = wait_in_step(server)
    wire.set(CUT)
    for _ in range(6):
        server.advance(HOUR // 6)
        play_some(server, item="b")
        say(server, "FORGET", "u4")
        say(server, "RING", "FLUSH")
    waiting = wait_state(server, "waiting")
    assert waiting["waiting"] >= 60 and waiting["rebuilds"] == before["rebuilds"]
    wire.set(OPEN)
    assert wait_in_step(server)["rebuilds"] == before["rebuilds"]
    assert reconcile(server, 4) == 0
    by_front(server, disk, {"u0": (("a", "b", "x"), ("x",)), "u4": (("a", "b"), ("a", "b"))})


def test_more_waits_than_there_is_room_for(fronted, disk, redis):  # noqa: F811
    server = fronted(feed_max="1MiB")
    play_some(server)
    before = wait_in_step(server)
    redis.kill()
    with server.client() as c:
        for at in range(0, 12000, 500):
            c.command("PLAYED", f"m{at}", *(b"%0200d" % n for n in range(at, at + 500)))
    redis.start()
    wait(lambda: front(server)["rebuilds"] == before["rebuilds"] + 1, said(server))
    wait_in_step(server)
    assert "lost" in server.log()
    assert reconcile(server, 29) == 0
    by_front(server, disk, {"m11500": (("%0200d" % 11999, "x"), ("x",)), "u0": (("a", "x"), ("x",))})


def test_killed_in_the_middle(fronted, disk, redis):  # noqa: F811
    server = fronted()
    for round in range(5):
        with server.client() as c:
            c.pipeline([("PLAYED", f"u{i}", f"r{round}i{i}") for i in range(400)])
        server.kill()
        server.start()
    wait_in_step(server)
    assert reconcile(server, 400) == 0
    by_front(server, disk, {f"u{i}": ((*[f"r{r}i{i}" for r in range(5)], "x"), ("x",)) for i in (0, 399)})


# --- Redis refuses ---


def test_it_is_full(fronted, disk, redis):  # noqa: F811
    server = fronted()
    play_some(server)
    before = wait_in_step(server)
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    play_some(server, item="b")
    assert "OOM" in wait_state(server, "waiting", "OOM")["cause"]
    assert unseen(server, "u0", "a", "b", "x") == ["x"]
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert wait_in_step(server)["rebuilds"] == before["rebuilds"]
    assert reconcile(server, 5) == 0
    by_front(server, disk, {"u0": (("a", "b", "x"), ("x",))})


def test_it_evicts(fronted, make_redis):
    redis = make_redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    server = fronted(wait=False, front_redis=redis.address)
    assert "allkeys-lru" in wait_state(server, "waiting", "noeviction")["cause"]
    play_some(server)
    assert redis.ask("DBSIZE") == 0
    redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    wait_in_step(server)
    redis.ask("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
    wait_state(server, "waiting", "volatile-ttl")
    redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    wait_in_step(server)
    assert reconcile(server, 5) == 0


def test_it_has_evicted(fronted, disk, redis):  # noqa: F811
    """Behind our back, while the policy was another: nobody is taken for unknown, from the first question on."""
    server = fronted(question_timeout="300ms")
    play_some(server, users=200)
    wait_in_step(server)
    with frozen(server, disk), redis.client() as c, server.client() as asker:
        before = front(server)
        used = int(next(line for line in c.command("INFO", "memory").decode().splitlines()
                        if line.startswith("used_memory:")).split(":")[1])
        c.pipeline([("CONFIG", "SET", "maxmemory-policy", "allkeys-random"),
                    ("CONFIG", "SET", "maxmemory", used - 30000), ("SET", "x", "y"),
                    ("CONFIG", "SET", "maxmemory", 0), ("CONFIG", "SET", "maxmemory-policy", "noeviction")])
        evicted = int(next(line for line in c.command("INFO", "stats").decode().splitlines()
                           if line.startswith("evicted_keys:")).split(":")[1])
        assert evicted > 0
        for i in range(0, 200, 20):
            with contextlib.suppress(RespError):
                assert asker.command("UNSEEN", f"u{i}", "a", "x") == [b"x"]
    wait(lambda: front(server)["rebuilds"] > before["rebuilds"], said(server))
    wait_in_step(server)
    assert reconcile(server, 200) == 0


def test_it_only_reads(fronted, redis):
    server = fronted()
    play_some(server)
    before = wait_in_step(server)
    redis.ask("REPLICAOF", "127.0.0.1", "1")
    play_some(server, item="b")
    wait_state(server, "waiting")
    assert unseen(server, "u0", "a", "b", "x") == ["x"]
    redis.ask("REPLICAOF", "NO", "ONE")
    assert wait_in_step(server)["rebuilds"] == before["rebuilds"]
    assert reconcile(server, 5) == 0


def test_the_password(fronted, redis):
    redis.ask("CONFIG", "SET", "requirepass", "right")
    redis.password = "right"
    server = fronted(wait=False, front_password="hushhush")
    assert "password" in wait_state(server, "waiting", "wrong")["cause"]
    assert "hushhush" not in server.log() and "hushhush" not in str(front(server))
    play_some(server)
    reload(server, front_password="right")
    wait_in_step(server)
    assert reconcile(server, 5) == 0


RIGHTS = ("+evalsha", "+script|load", "+ping", "+info", "+role", "+select", "+scan", "+hget", "+hset", "+hdel", "+hmget",
          "+hgetall", "+del", "+unlink", "+zadd", "+zcard", "+zrange", "+zremrangebyscore", "+sadd", "+srem", "+scard",
          "+srandmember", "+pexpire", "+persist")


def test_a_user_of_its_own(fronted, disk, redis):  # noqa: F811
    """With what it needs, on its prefix, and no more."""
    redis.ask("ACL", "SETUSER", "front", "on", ">secret", "~mine:*", "-@all", *RIGHTS)
    server = fronted(front_user="front", front_password="secret", front_prefix="mine:")
    play_some(server)
    say(server, "FORGET", "u4")
    say(server, "FORGET", "u3", "a")
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    assert reconcile(server, 4) == 0
    rebuild(server)
    by_front(server, disk, {"u0": (("a", "x"), ("x",)), "u3": (("a", "a3"), ("a",)), "u4": (("a",), ("a",))})
    assert redis.ask("KEYS", "unseen:*") == []
    redis.ask("ACL", "SETUSER", "front", "-evalsha")
    play_some(server, item="b")
    assert "NOPERM" in wait_state(server, "waiting")["cause"]
    redis.ask("ACL", "SETUSER", "front", "+evalsha")
    wait_in_step(server)


def test_another_database(fronted, redis):
    server = fronted(front_database="3")
    play_some(server)
    wait_in_step(server)
    assert redis.ask("DBSIZE") == 0
    with redis.client() as c:
        c.command("SELECT", "3")
        assert c.command("EXISTS", "unseen:meta") == 1
    assert reconcile(server, 5) == 0


def test_tls(fronted, make_redis, folder, disk):  # noqa: F811
    certs = Certificates(folder / "certs")
    redis = make_redis()
    port = Node(folder / "unused").port
    redis.kill()
    redis.start("--tls-port", str(port), "--tls-cert-file", certs["server.pem"], "--tls-key-file", certs["server.key"],
                "--tls-ca-cert-file", certs["ca.pem"])
    server = fronted(front_redis=f"tls://127.0.0.1:{port}", tls_ca=certs["ca.pem"], tls_cert=certs["client.pem"],
                     tls_key=certs["client.key"])
    play_some(server)
    wait_in_step(server)
    assert reconcile(server, 5) == 0
    by_front(server, disk, played())


def test_two_second_tiers(cold, redis):
    server = cold(front_redis=redis.address, replica_hedge="yes")
    server.spawn()
    assert server.process.wait(PATIENCE) != 0
    assert "replica_hedge is yes and there is a front, expected one second tier" in server.log()


# --- the wire ---


def test_a_slow_wire(fronted, disk, make_wire, redis):  # noqa: F811
    """Questions that the disk answers are not held up; those that it doesn't take as long as the wire."""
    wire = make_wire(redis)
    server = fronted(front_redis=wire.address)
    play_some(server)
    wait_in_step(server)
    wire.delay, took = 0.1, []
    for i in range(5):
        began = time.monotonic()
        assert unseen(server, f"u{i}", "a", f"a{i}", "x") == ["x"]
        took.append(time.monotonic() - began)
    assert min(took) < 0.2  # the wire takes that long there and back
    play_some(server, item="b")
    wire.delay = 0.003
    with frozen(server, disk):
        assert unseen(server, "u0", "a", "b", "x") == ["x"]
    wire.delay = 0
    wait_in_step(server)
    assert reconcile(server, 5) == 0


def test_byte_by_byte(fronted, redis):
    """Who answers like that is away, whoever asks, and holds up no stop."""
    wire = TrickleWire(redis.port)
    try:
        server = fronted(front_redis=wire.address)
        play_some(server)
        say(server, "RING", "FLUSH")
        wait_in_step(server)
        wire.slow = True
        play_some(server, item="b")
        wait(lambda: front(server)["state"] == "waiting" and figures(server)["second_tier_up"] == "0", said(server))
        assert "no whole answer for" in front(server)["cause"]
        assert unseen(server, "u1", "a", "b", "x") == ["x"]
        wire.slow = False
        wait_in_step(server)
        assert reconcile(server, 5) == 0
        wire.slow = True
        assert server.stop() == 0
        wire.slow = False
    finally:
        wire.stop()


@pytest.mark.parametrize("users, passed", [(1000, 1), (20, 0)])
def test_an_answer_is_lost(fronted, disk, redis, users, passed):  # noqa: F811
    """A page of states is there, the first of many or the last one, and its writer doesn't know."""
    wire = LosingWire(redis.port)
    try:
        server = fronted(front_redis=wire.address)
        play_some(server, users=users)
        say(server, "RING", "FLUSH")
        before = wait_in_step(server)
        wire.passed = passed
        say(server, "FRONT", "REBUILD")
        wait(lambda: wire.lost, said(server))
        wait(lambda: front(server)["rebuilds"] > before["rebuilds"], said(server))
        after = wait_in_step(server)
        assert after["rebuilds"] == before["rebuilds"] + 1
        assert reconcile(server, users) == 0
        by_front(server, disk, played(users=5))
    finally:
        wire.stop()


def test_a_long_text(fronted, disk, redis):  # noqa: F811
    """Somebody's text of any length in the place of a user, or of meta, is damage, and is not fetched."""
    size = 16 << 20  # of which Redis is to make a sum within 2 s, on a busy machine too
    server = fronted(question_timeout="300ms")
    play_some(server)
    say(server, "RING", "FLUSH")
    rebuild(server)
    with frozen(server, disk):
        assert unseen_in_time(server, "u1", "a", "x") == ["x"]
        before = peak_memory(server)
        for key in ("unseen:w:u1", "unseen:w:u2"):
            redis.ask("HSET", key, "m202001", b"x" * size)
        redis.ask("ZADD", "unseen:t:u3", 5, b"x" * size)
        for user in ("u1", "u2", "u3"):
            with pytest.raises(RespError):
                unseen(server, user, "a", "x")
        wait(lambda: figures(server)["second_tier_up"] == "1", said(server))  # it was busy with that text
        assert unseen_in_time(server, "u4", "a", "x") == ["x"]
    assert reconcile(server, 5) == 3
    assert reconcile(server, 5) == 0
    redis.ask("HSET", "unseen:meta", "x", b"x" * size)
    wait(lambda: figures(server)["second_tier_up"] == "0", said(server))
    assert unseen_in_time(server, "u1", "a", "x") == ["x"]
    assert peak_memory(server) < before + size // 2
    redis.ask("HDEL", "unseen:meta", "x")
    wait_in_step(server)
    by_front(server, disk, {f"u{i}": (("a", "x"), ("x",)) for i in range(5)})


@pytest.mark.parametrize("shape", [CUT, SILENT, NO_REQUESTS, NO_REPLIES])
def test_a_broken_wire(fronted, disk, make_wire, redis, shape):  # noqa: F811
    """What was under way may be done, or come much later: nothing is written twice, or over what is newer."""
    wire = make_wire(redis)
    server = fronted(front_redis=wire.address)
    play_some(server, users=50)
    say(server, "RING", "FLUSH")
    before = wait_in_step(server)
    say(server, "PLAYED", "u0", "b")
    wire.set(shape)
    play_some(server, users=50, item="c")
    say(server, "FORGET", "u1", "a")
    say(server, "FORGET", "u2")
    say(server, "RING", "FLUSH")
    wait_state(server, "waiting")
    for i in (0, 3, 49):
        assert unseen(server, f"u{i}", "a", "c", "x") == ["x"]
    if shape in (NO_REQUESTS, SILENT):  # it goes on over another way, and the old bytes arrive when all is done
        server.options["front_redis"] = redis.address
        server.restart()
        wait_in_step(server)
        play_some(server, users=50, item="d")
        wait_in_step(server)
    wire.set(OPEN)
    after = wait_in_step(server)
    assert after["rebuilds"] == before["rebuilds"] or shape in (NO_REQUESTS, SILENT)
    assert reconcile(server, 49) == 0
    by_front(server, disk, {"u0": (("a", "b", "c", "x"), ("x",)), "u1": (("a", "c"), ("a",)),
                            "u2": (("a", "a2"), ("a", "a2")), "u49": (("a", "c", "x"), ("x",))})


# --- others ---


def test_two_writers(fronted, disk, redis):  # noqa: F811
    """Two nodes with one prefix: the later one has it. The first says so, and keeps off."""
    first = fronted()
    play_some(first)
    wait_in_step(first)
    second = fronted(wait=False)
    play_some(second, prefix="v")
    wait_in_step(second)
    play_some(first, item="b")
    fenced = wait_state(first, "fenced")
    assert fenced["cause"] != "" and fenced["since"] == first.clock
    epoch = redis.meta()["epoch"]
    for server, prefix, items in ((first, "u", ("a", "b")), (second, "v", ("a",))):
        for i in range(5):
            assert unseen(server, f"{prefix}{i}", *items, "x") == ["x"]
    play_some(first, item="c")
    play_some(second, prefix="v", item="b")
    wait_in_step(second)
    assert front(first)["state"] == "fenced" and redis.meta()["epoch"] == epoch  # it doesn't fight
    assert reconcile(second, 5) == 0
    disk.freeze("history.db")  # nor does it believe what is another's
    for i in range(5):
        with contextlib.suppress(RespError):
            assert unseen(first, f"u{i}", "a", "b", "c", "x") == ["x"]
    disk.thaw()
    rebuild(first)
    play_some(second, prefix="v", item="d")
    wait_state(second, "fenced")
    assert reconcile(first, 5) == 0
    assert second.stop() == 0
    by_front(first, disk, {"u0": (("a", "b", "c", "x"), ("x",)), "v0": (("a",), ("a",))})


@pytest.mark.parametrize("how", ["kill", "FLUSHALL"])
def test_fenced_for_good(fronted, redis, how):
    """The one that was fenced doesn't take it over when nothing stands there any more."""
    first = fronted()
    play_some(first)
    wait_in_step(first)
    second = fronted()
    play_some(first, item="b")
    wait_state(first, "fenced")
    for _ in range(2):
        if how == "kill":
            redis.kill()
            wait_state(second, "waiting")
            pause(1, "both try again and again")
            redis.start()
        else:
            redis.ask("FLUSHALL")
        wait(lambda: redis.ask("HGET", "unseen:meta", "full") in ("1", b"1"), said(second))  # it has noticed
        wait_in_step(second)
        assert front(first)["state"] == "fenced"
    first.restart()  # of two, the one that was started last has it
    wait_in_step(first)
    wait_state(second, "fenced")


def test_two_prefixes(fronted, redis):
    first, second = fronted(front_prefix="one:"), fronted(front_prefix="two:")
    for server, prefix in ((first, "u"), (second, "v")):
        play_some(server, prefix=prefix)
        wait_in_step(server)
    for server in (first, second):
        assert reconcile(server, 5) == 0 and front(server)["state"] == "in step"
    rebuild(first)
    assert reconcile(second, 5) == 0


def rebuild(server):
    before = front(server)["rebuilds"]
    say(server, "FRONT", "REBUILD")
    wait(lambda: front(server)["rebuilds"] > before, said(server))
    return wait_in_step(server)


def harm(redis, what):
    """Something in the state of u1."""
    key = "unseen:w:u1"
    month = next(name for name in redis.hash(key) if name.startswith(b"m"))
    blob = redis.hash(key)[month]
    flipped = blob[:-1] + bytes([blob[-1] ^ 1])
    words = {"a month": ("HSET", key, month, flipped), "an empty month": ("HSET", key, month, ""),
             "plays": ("HSET", key, "p", "12345"), "deliveries": ("HSET", key, "d", "nonsense"),
             "revision": ("HSET", key, "r", "x"), "field": ("HSET", key, "zzz", "1"),
             "type": ("SET", key, "a string"), "event": ("ZADD", "unseen:t:u1", "5.5", "nonsense"),
             "type of events": ("SET", "unseen:t:u1", "a string"), "gone": ("DEL", key),
             "a month less": ("HDEL", key, month)}
    redis.ask(*words[what])


@pytest.mark.parametrize("what", ["a month", "an empty month", "plays", "deliveries", "revision", "field", "type", "event",
                                  "type of events", "gone", "a month less"])
def test_it_is_corrupt(fronted, disk, redis, what):  # noqa: F811
    """Whatever stands there of a user is validated, not believed, and mended when all are compared."""
    server = fronted(question_timeout="300ms")
    play_some(server)
    say(server, "DELIVERED", "u1", "d")
    say(server, "RING", "FLUSH")
    rebuild(server)
    with frozen(server, disk):
        assert unseen_in_time(server, "u0", "a", "x") == ["x"]
        harm(redis, what)
        if what not in ("gone", "a month less"):  # nobody sees that of a user
            with pytest.raises(RespError):
                unseen(server, "u1", "a", "x")
        assert unseen_in_time(server, "u2", "a", "x") == ["x"]
    assert unseen_in_time(server, "u1", "a", "a1", "d", "x") == ["x"]
    assert reconcile(server, 5) == 1, front(server)
    assert len(front(server)["named"]) == 1 and "u1" in str(front(server)["named"])
    assert reconcile(server, 5) == 0
    by_front(server, disk, {"u1": (("a", "a1", "d", "x"), ("x",)), "u2": (("a", "x"), ("x",))})


@pytest.mark.parametrize("what", ["revision", "type", "type of events"])
def test_one_that_is_corrupt_holds_up_nobody(fronted, disk, redis, what):  # noqa: F811
    """What is recorded of that user, too, is sent on, and that of others."""
    server = fronted()
    play_some(server)
    say(server, "RING", "FLUSH")
    before = rebuild(server)
    harm(redis, what)
    play_some(server, item="b")
    say(server, "FORGET", "u1", "a")
    wait_in_step(server)
    reconcile(server)
    assert reconcile(server, 5) == 0 and front(server)["rebuilds"] == before["rebuilds"]
    by_front(server, disk, {"u1": (("a", "a1", "b", "x"), ("a", "x")), "u2": (("a", "b", "x"), ("x",))})


@pytest.mark.parametrize("on_damage", ["error", "answer"])
def test_a_user_whose_merge_fails(fronted, disk, redis, on_damage):  # noqa: F811
    """One slot can't be merged for one user, the next one is merged for all: nobody's plays are lost there on the way."""
    server = fronted(on_damage=on_damage, question_timeout="300ms")
    play_some(server)
    say(server, "DELIVERED", "u0", "d")
    say(server, "RING", "FLUSH")
    rebuild(server)  # so all of it is in their states
    assert server.stop() == 0
    key = key_of(server, "u0")
    spoil(server, f"UPDATE {months_table(server)} SET filter = x'20ffffffff' WHERE user_key = ?", key)
    server.start()
    wait_in_step(server)
    for item in ("b", "c"):
        play_some(server, item=item)
        say(server, "RING", "FLUSH")
        wait_in_step(server)
        assert reconcile(server) == 0  # what can't be read here is no measure
    assert server.sqlite("history.db", "SELECT count(*) FROM quarantine") == "1"
    all_of = {f"u{i}": (("a", f"a{i}", "b", f"b{i}", "c", f"c{i}", "x"), ("x",)) for i in range(5)}
    for user, (items, left) in all_of.items():  # the disk lacks what the front has
        assert unseen_in_time(server, user, *items) == list(left)
    by_front(server, disk, all_of)
    say(server, "PLAYED", "u0", *[f"e{i}" for i in range(200)])  # more than stays beside a state
    wait_in_step(server)
    by_front(server, disk, {**all_of, "u0": (("a", "d", "e0", "e199", "x"), ("x",))})
    rebuild(server)  # now it is lost
    with frozen(server, disk), pytest.raises(RespError):
        unseen(server, "u0", "a", "x")
    if on_damage == "answer":
        assert unseen_in_time(server, "u0", "a", "b", "c", "x") == ["a", "x"]
    else:
        with pytest.raises(RespError, match="u0.*can't be read.*; and the second tier"):
            unseen_in_time(server, "u0", "a", "x")
    assert say(server, "FORGET", "u0") == 1
    play_some(server, users=1, item="n")
    wait_in_step(server)
    by_front(server, disk, {**all_of, "u0": (("a", "n", "n0"), ("a",))})
    assert reconcile(server, 5) == 0


@pytest.mark.parametrize("words", [("HDEL", "full"), ("HSET", "full", "0"), ("HSET", "full", "x"), ("HDEL", "v"),
                                   ("HSET", "seed", "12"), ("HSET", "node", "7"), ("HSET", "ev", "x"), ("HDEL", "to"),
                                   ("HSET", "to", "00110"), ("HSET", "epoch", "9007199254740991")],
                         ids=" ".join)
def test_its_meta_is_changed(fronted, disk, redis, words):  # noqa: F811
    """Noticed within a second, and brought in again, by itself; nothing is believed meanwhile that was not whole."""
    server = fronted()
    play_some(server)
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    before = front(server)["rebuilds"]
    redis.ask(words[0], "unseen:meta", *words[1:])
    wait(lambda: front(server)["rebuilds"] > before, said(server))
    wait_in_step(server)
    by_front(server, disk, played())
    assert reconcile(server) == 0
    assert front(server)["rebuilds"] <= before + 2  # and not over and over


@pytest.mark.parametrize("words", [("ZADD", "unseen:t:u2", "9000000000000000", "garbage"),
                                   ("ZADD", "unseen:t:u2", "inf", "garbage"), ("HSET", "unseen:w:u2", "r", "nan"),
                                   ("HSET", "unseen:w:u2", "s", "nan")], ids=" ".join)
def test_numbers_that_are_none(fronted, disk, redis, words):  # noqa: F811
    """Found once, and mended, however they compare."""
    server = fronted()
    play_some(server)
    say(server, "RING", "FLUSH")
    rebuild(server)
    redis.ask(*words)
    assert reconcile(server) == 1
    assert reconcile(server) == 0
    say(server, "PLAYED", "u2", "later")
    wait_in_step(server)
    by_front(server, disk, {**played(), "u2": (("a", "a2", "later", "x"), ("x",))})


def test_strangers_keys(fronted, redis):
    """Of users whom nobody knows, and of a forgotten one: found and removed; what is not ours is left alone."""
    redis.ask("SET", "mine", "1")
    redis.ask("SET", "unseenother", "1")
    server = fronted()
    play_some(server)
    wait_in_step(server)
    redis.ask("HSET", "unseen:w:stranger", "r", "1", "p", "123456789012"[:8] + "\0\0\0\0")
    rebuild(server)
    assert redis.ask("EXISTS", "unseen:w:stranger") == 0
    assert redis.ask("EXISTS", "mine", "unseenother") == 2


@pytest.mark.parametrize("what", ["v", "epoch", "to", "seed", "type"])
def test_its_meta_is_wrong(fronted, disk, redis, what):  # noqa: F811
    """Never believed. A newer layout is another version's; it says so."""
    server = fronted(question_timeout="300ms", clock=START)
    play_some(server)
    with frozen(server, disk):
        assert unseen_in_time(server, "u0", "a", "x") == ["x"]
        if what == "type":
            redis.ask("SET", "unseen:meta", "a string")
        else:
            redis.ask("HSET", "unseen:meta", what, {"v": "2", "seed": "0123456789abcdef"}.get(what, "nonsense"))
        with contextlib.suppress(RespError):
            assert unseen(server, "u1", "a", "x") == ["x"]
    play_some(server, item="b")
    now = front(server)
    assert now["state"] in ("in step", "filling") or now["cause"] != ""
    rebuild(server)
    assert reconcile(server, 5) == 0


def test_a_backup_is_restored(fronted, disk, redis, folder):  # noqa: F811
    """The folder is of before what stands in Redis, and another node: all users are brought in again."""
    server = fronted()
    play_some(server)
    say(server, "BACKUP", str(folder / "copy"))
    play_some(server, prefix="later")
    say(server, "FORGET", "u0")
    say(server, "RING", "FLUSH")
    before = wait_in_step(server)
    node = redis.meta()["node"]
    assert server.stop() == 0
    shutil.rmtree(server.data)
    shutil.move(folder / "copy", server.data)
    server.start()
    after = wait_in_step(server)
    assert redis.meta()["node"] != node and after["epoch"] > before["epoch"] and after["rebuilds"] == 1
    assert reconcile(server, 5) == 0
    by_front(server, disk, {**played(), "later0": (("a",), ("a",))})


def test_off_and_on_again(fronted, disk, redis):  # noqa: F811
    server = fronted()
    play_some(server)
    wait_in_step(server)
    server.options["front_redis"] = ""
    server.restart()
    assert front(server)["state"] == "off"
    play_some(server, item="b")
    say(server, "FORGET", "u4")
    say(server, "FORGET", "u3", "a")
    say(server, "RING", "FLUSH")
    server.options["front_redis"] = redis.address
    server.restart()
    wait_in_step(server)
    assert reconcile(server, 4) == 0
    by_front(server, disk, {"u0": (("a", "b", "x"), ("x",)), "u3": (("a", "b"), ("a",)), "u4": (("a", "b"), ("a", "b"))})


def test_ended_while_it_is_away(fronted, redis):
    """SIGTERM is not held up by a Redis that says nothing; what waits is sent after the next start."""
    server = fronted()
    play_some(server)
    wait_in_step(server)
    redis.pause()
    play_some(server, item="b")
    assert server.stop() == 0
    server.start()
    redis.go_on()
    wait_in_step(server)
    assert reconcile(server, 5) == 0


def test_it_comes_later(fronted, disk, redis):  # noqa: F811
    """The server starts without it."""
    redis.kill()
    server = fronted(wait=False, http="127.0.0.1:0")
    play_some(server)
    wait_state(server, "waiting")
    assert "second tier" in health(server)["degraded"]
    redis.start()
    wait_in_step(server)
    wait(lambda: "degraded" not in health(server), lambda: health(server))
    assert reconcile(server, 5) == 0
    by_front(server, disk, played())


# --- it is compared ---


def lose(redis):
    """What a Redis may lose without a word: a state, and an event."""
    assert redis.ask("DEL", "unseen:w:u1") == 1 and redis.ask("DEL", "unseen:t:u2") == 1


def test_a_sample_finds_it(fronted, disk, redis):  # noqa: F811
    """Seconds after an event was sent its user is looked at, and mended."""
    server = fronted()
    say(server, "PLAYED", "u2", "a")
    wait_in_step(server)
    assert redis.ask("DEL", "unseen:t:u2") == 1
    server.advance(4000)
    assert front(server)["compared"] == 0
    server.advance(2000)
    wait(lambda: front(server)["differences"] == 1, said(server))
    wait_in_step(server)
    assert front(server)["compared"] == 1 and "u2" in str(front(server)["named"])
    by_front(server, disk, {"u2": (("a", "x"), ("x",))})


def test_a_night_finds_it(fronted, disk, redis):  # noqa: F811
    """Once a night all are looked at, here and there; whoever stands there alone goes."""
    server = fronted(timezone="UTC", sweep_window="12:00-13:00")
    play_some(server)
    say(server, "RING", "FLUSH")
    rebuild(server)
    server.advance(2 * HOUR)
    wait(lambda: server.log().count(COMPARED) == 1, said(server))
    play_some(server, item="b")
    wait_in_step(server)
    server.advance(HOUR // 2)
    wait(lambda: front(server)["comparing"] == 0, said(server))
    lose(redis)
    redis.ask("RESTORE", "unseen:w:ghost", 0, redis.ask("DUMP", "unseen:w:u3"))
    before = front(server)["differences"]
    server.advance(24 * HOUR)
    wait(lambda: server.log().count(COMPARED) == 2, said(server))
    assert front(server)["differences"] - before == 3, front(server)["named"]
    assert redis.hash("unseen:w:ghost").keys() == {b"r"} and redis.ask("TTL", "unseen:w:ghost") > 0
    assert reconcile(server, 5) == 0
    by_front(server, disk, {f"u{i}": (("a", "b", f"a{i}", f"b{i}", "x"), ("x",)) for i in range(5)})


def test_at_a_rate(fronted, disk, redis):  # noqa: F811
    """Users come in page by page, and are compared so. Until all are there none is believed."""
    server = fronted()
    play_some(server, users=600)
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    reload(server, front_users_rate="300")
    say(server, "FRONT", "REBUILD")
    wait(lambda: front(server)["state"] == "filling" and 0 < front(server)["filled"] < 600, said(server))
    assert redis.meta()["full"] == "0" and figures(server)["second_tier_up"] == "0"
    assert unseen(server, "u599", "a", "x") == ["x"]
    assert wait_in_step(server)["filled"] == 600
    assert reconcile(server, 600) == 0
    by_front(server, disk, played(users=3))


# --- Sentinel ---


@pytest.fixture
def watched(folder):
    """(master, replica, Sentinels)"""
    master, replica = Node(folder / "master").start(), Node(folder / "replica").start()
    watchers = [Node(folder / f"s{i}", "--sentinel") for i in range(3)]
    try:
        replica.ask("REPLICAOF", "127.0.0.1", master.port)
        wait(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
        for node in watchers:
            (node.folder / "conf").write_text(
                f"port {node.port}\nsentinel monitor front 127.0.0.1 {master.port} 2\n"
                "sentinel down-after-milliseconds front 1000\nsentinel failover-timeout front 5000\n")
            node.start()
        wait(lambda: all(len(n.ask("SENTINEL", "SENTINELS", "front")) == 2 for n in watchers))
        wait(lambda: all(len(n.ask("SENTINEL", "REPLICAS", "front")) == 1 for n in watchers))
        yield master, replica, ",".join(n.address for n in watchers) + "/front"
    finally:
        for node in (*watchers, master, replica):
            node.kill()


def test_a_failover_that_loses_writes(fronted, disk, watched):  # noqa: F811
    """The replica takes over without what came last: that is sent again."""
    master, replica, sentinels = watched
    server = fronted(front_redis=f"sentinel://{sentinels}")
    assert front(server)["redis"].startswith(master.address)
    play_some(server)
    before = wait_in_step(server)
    master.ask("WAIT", 1, 0)
    to = replica.ask("HGET", "unseen:meta", "to")
    replica.ask("REPLICAOF", "127.0.0.1", 1)  # it hears no more
    play_some(server, item="b")
    say(server, "FORGET", "u4")
    say(server, "FORGET", "u3", "a")
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    master.kill()
    assert replica.ask("HGET", "unseen:meta", "to") == to
    play_some(server, item="c")
    wait(lambda: front(server)["redis"].startswith(replica.address), said(server))
    assert wait_in_step(server)["rebuilds"] == before["rebuilds"]
    assert reconcile(server) == 0
    by_front(server, disk, {"u0": (("a", "b", "c", "x"), ("x",)), "u3": (("a", "b", "c"), ("a",)),
                            "u4": (("a", "b", "c"), ("a", "b"))})


def test_sentinels_with_passwords_and_tls(fronted, disk, folder):  # noqa: F811
    """The Sentinels' account is not the Redis's, and both speak TLS."""
    certs = Certificates(folder / "certs")
    tls = ("--tls-replication", "yes", "--tls-cert-file", certs["server.pem"], "--tls-key-file", certs["server.key"],
           "--tls-ca-cert-file", certs["ca.pem"])
    ports = [Node(folder / f"unused{i}").port for i in range(2)]
    master = Node(folder / "master", "--tls-port", str(ports[0]), *tls, "--requirepass", "of the redis", "--masterauth",
                  "of the redis")
    watcher = Node(folder / "watcher", "--sentinel")
    try:
        (watcher.folder / "conf").write_text(
            f"port {watcher.port}\ntls-port {ports[1]}\nuser looker on >looking +@all\n" +
            "".join(f"{name[2:]} {value}\n" for name, value in zip(tls[::2], tls[1::2])) +
            f"sentinel monitor front 127.0.0.1 {ports[0]} 1\nsentinel auth-pass front \"of the redis\"\n"
            "requirepass closed\n")
        options = {"front_redis": f"sentinels://127.0.0.1:{ports[1]}/front", "tls_ca": certs["ca.pem"],
                   "tls_cert": certs["client.pem"], "tls_key": certs["client.key"],
                   "front_sentinel_user": "looker", "front_sentinel_password": "looking",
                   "front_password": "of the redis"}
        master.password, watcher.password = "of the redis", "closed"
        master.start()
        watcher.start()
        server = fronted(**options)
        assert front(server)["redis"].startswith(f"tls://127.0.0.1:{ports[0]}")
        play_some(server)
        wait_in_step(server)
        assert reconcile(server, 5) == 0
        by_front(server, disk, played())
        for name, says in (("front_sentinel_password", "front_sentinel_password, of front_sentinel_user"),
                           ("front_password", "front_password, of front_user")):
            server.stop()
            server.options.update(options, **{name: "wrong"})
            server.start()
            assert says in wait_state(server, "waiting", "the password is wrong")["cause"]
            assert unseen(server, "u1", "a", "x") == ["x"]
    finally:
        watcher.kill()
        master.kill()


# --- what is shown ---


def test_figures(fronted):
    server = fronted(http="127.0.0.1:0")
    play_some(server)
    say(server, "RING", "FLUSH")
    wait_in_step(server)
    shown = figures(server)
    names = [name for name in shown if name.startswith("front_")]
    assert names and shown["second_tier_wanted"] == "1"
    page = urllib.request.urlopen(http_url(server) + "/metrics").read().decode()
    assert "unseen_front_" in page
    with server.client(3) as c:
        status = c.command("FRONT", "STATUS")
    assert status[b"state"] == b"in step"
    with pytest.raises(RespError):
        say(server, "FRONT", "NONSENSE")


def test_no_front(make_server):
    server = make_server()
    status = front(server)
    assert status["state"] == "off"
    for what in ("RECONCILE", "REBUILD"):
        with pytest.raises(RespError):
            say(server, "FRONT", what)


# --- two nodes and one front ---


@pytest.fixture
def pair(make_server, folder, redis):
    """A primary, and its replica, which has the same section [front]."""
    options = {"front_users_rate": "0", "workers": "1", "hedge_after": "2ms"}
    first = make_server(clock=None, front_redis=redis.address, **options)
    play_some(first)
    wait_in_step(first)
    clone = folder / "clone"
    run("clone", f"127.0.0.1:{first.port}", "--data", clone)
    second = make_follower(make_server, clone, f"127.0.0.1:{first.port}", None, options)
    second.options["front_redis"] = redis.address
    second.restart()
    level(first, second)
    return first, second


def hand_over(old, new):
    """The other one is primary, and the old one follows it."""
    wait(lambda: run("promote", "--data", new.data, check=False).returncode == 0, new.log)
    wait_state(old, "off")
    assert old.stop() == 0
    run("rejoin", f"127.0.0.1:{new.port}", "--data", old.data)
    old.options.pop("replica_of", None)
    old.start()
    level(new, old)


def test_promoted_and_back(pair, redis):
    """One front for both nodes: whoever is primary writes it, the other keeps off."""
    first, second = pair
    for i, (old, new) in enumerate([(first, second), (second, first), (first, second)]):
        assert front(new)["state"] == "off"
        play_some(old, item=f"old{i}")
        wait_in_step(old)
        epoch = int(redis.meta()["epoch"])
        hand_over(old, new)
        play_some(new, item=f"new{i}")
        assert wait_in_step(new)["epoch"] == epoch + 1
        assert reconcile(new, 5) == 0
    for server in pair:
        level(second, first)
        assert say(server, "UNSEEN", "u1", "a", "old0", "new0", "old2", "new2", "x") == [b"x"]


def test_fenced_and_demoted(pair, redis):
    """That a writer was fenced is over with its role: promoted again it writes."""
    first, second = pair
    redis.ask("HSET", "unseen:meta", "node", "00000000000000aa", "epoch", int(redis.meta()["epoch"]) + 1)
    wait_state(first, "fenced")
    hand_over(first, second)
    wait_in_step(second)
    hand_over(second, first)
    wait_in_step(first)
    assert reconcile(first, 5) == 0


def test_a_lower_term_takes_nothing(pair, redis):
    """The old primary is started again before it has heard of the new one, which is away for a moment."""
    first, second = pair
    first.process.kill()
    first.process.wait()
    run("promote", "--data", second.data, "--force")
    wait_in_step(second)
    play_some(second, item="new")
    wait_in_step(second)
    second.process.kill()
    second.process.wait()
    meta = redis.meta()
    assert meta["term"] == "2"
    first.start()
    assert "of term 2 writes there" in wait_state(first, "fenced")["cause"]
    assert redis.meta() == meta
    # An older version knows no term, and takes it; then it is taken back.
    redis.ask("HDEL", "unseen:meta", "term")
    redis.ask("HSET", "unseen:meta", "node", "00000000000000aa", "epoch", int(meta["epoch"]) + 1)
    second.start()
    wait_in_step(second)
    assert redis.meta()["term"] == "2" and reconcile(second, 5) == 0
