"""Questions about users who are noted and not yet migrated, which are also put to the Redis that they come from: with a
real redis-server that is there, slow, stopped, killed, and of the wrong kind."""
import re
import socket
import threading
import time

import pytest

from conftest import DAY, START, http_url, pause, until
from old_redis import PATIENT, REDIS, OldRedis
from resp import Closed, encode
from standstill import freeze, thaw
from test_migrate import migrate, status, wait_done, wait_status, zadd
from test_reload import reload

pytestmark = pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")



@pytest.fixture
def make_old(folder):
    olds = []

    def make(*options):
        olds.append(OldRedis(folder / f"old{len(olds)}", *options))
        return olds[-1]

    yield make
    for old in olds:
        old.kill()


def make_noted(make_server, redis, *users, wait=True, **options):
    """A server whose migration is paused, with users noted."""
    options.setdefault("legacy_timeout", PATIENT)
    server = make_server(legacy_redis=redis.socket, legacy_read_through="yes", **options)
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        if users:
            c.command("LEGACY", "NOTE", *users)
    if wait:
        wait_status(server, lambda s: s[b"read_through"] == b"on")
    return server


def figures(server):
    with server.client() as c:
        lines = c.command("INFO", "read_through").decode().splitlines()
    return {name.removeprefix("read_through_"): int(value) for name, value in (x.split(":") for x in lines if ":" in x)}


def calls(redis):
    """How often each command was called, as the old Redis counts."""
    with redis.client() as c:
        text = c.command("INFO", "commandstats").decode()
    return {name: int(n) for name, n in re.findall(r"cmdstat_(\w+):calls=(\d+)", text)}


def ask(client, user, *items):
    return client.command("UNSEEN", user, *items)


def test_nothing_is_repeated_before_and_after(make_server, make_old):
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START - i, f"p{i}") for i in range(20)])
        zadd(c, "played:u", [(START - 70 * DAY, "2 months"), (START - 120 * DAY, "4 months"), (START + 5 * DAY, "ahead"),
                             (START // 1000, "seconds"), ("-inf", "never")])
        zadd(c, "delivered:u", [(START - 1000 + i, f"d{i}") for i in range(150)])
        c.command("ZADD", b"played:by\xfftes", START, b"a\xff")
    server = make_noted(make_server, redis, "u", b"by\xfftes")
    asked = ([f"p{i}" for i in range(25)] + ["2 months", "4 months", "ahead", "seconds", "never"] +
             [f"d{i}" for i in range(150)] + ["mine", "sent", "p3", "p24"])
    expected = [f"p{i}" for i in range(20, 25)] + ["4 months", "ahead", "seconds", "never"] + [f"d{i}" for i in range(50)]
    with server.client() as c:
        c.command("PLAYED", "u", "mine", "p0")
        c.command("DELIVERED", "u", "sent")
        # What was sent here does not push out what was sent there, while both are asked.
        expected = [x.encode() for x in expected + ["p24"]]
        assert ask(c, "u", *asked) == expected
        assert c.command("SEEN", "u", "p1", "p24", "mine", "d149") == [1, 0, 1, 1]
        assert c.command("FILTER", "u", "LIMIT", 2, "ITEMS", *asked) == expected[:2]
        assert c.command("FILTER", "u", "REPLY", "INDEXES", "ITEMS", "p1", "x", "p2", "y") == [1, 3]
        assert c.command("FILTER", "u", "REPLY", "BITMAP", "ITEMS", "p1", "x", "p2", "y") == b"\x50"
        assert ask(c, b"by\xfftes", b"a\xff", b"b\xff") == [b"b\xff"]
        assert c.command("WHY", "u", "p1") == [b"legacy"]
        assert c.command("WHY", "u", "p0") == [b"staged", b"legacy"]
        assert c.command("WHY", "u", "d149") == [b"legacy"]
        assert c.command("WHY", "u", "p24") == []
        counted = figures(server)
        assert counted["asked"] == counted["answered"] == 10 and counted["late"] == counted["failed"] == counted["skipped"] == 0
        assert counted["up"] == 1 and counted["hidden"] > 120
        shown = status(server)
        assert shown[b"read_through"] == b"on" and shown[b"read_through_asked"] == 10
        with server.client(3) as c3:
            assert c3.command("WHY", "u", "p1") == {b"legacy": 0.0}

        c.command("LEGACY", "RESUME")
        wait_done(server)
        before = calls(redis)
        left = ask(c, "u", *asked)
        assert b"p20" in left and b"p0" not in left and b"2 months" not in left and b"4 months" in left
        assert ask(c, b"by\xfftes", b"a\xff", b"b\xff") == [b"b\xff"]
        assert c.command("WHY", "u", "p1") == [b"2026-11"]
        assert calls(redis).get("zmscore") == before["zmscore"], "a migrated user is not asked about there"


def test_who_is_not_noted_is_not_asked_about(make_server, make_old):
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_noted(make_server, redis, wait=False, workers=2)
    wait_status(server, lambda s: calls(redis).get("zmscore", 0) == 2)  # each worker's connection tries it once
    with server.client() as c:
        assert ask(c, "u", "a") == [b"a"]
        c.command("LEGACY", "NOTE", "noted")
        assert ask(c, "u", "a") == [b"a"]
        assert figures(server)["asked"] == 0
        for _ in range(50):
            ask(c, "noted", "a")
    assert figures(server)["asked"] == 50
    assert calls(redis)["zrevrange"] == calls(redis)["zmscore"] == 52


def test_what_is_known_here_is_not_asked_there(make_server, make_old):
    redis = make_old()
    server = make_noted(make_server, redis, "u")
    with server.client() as c:
        c.command("PLAYED", "u", "a", "b")
        assert ask(c, "u", "a", "b") == []
        assert figures(server)["asked"] == 0
        assert ask(c, "u", "a", "b", "c") == [b"c"]
        assert figures(server)["asked"] == 1


def test_forget(make_server, make_old):
    """Who is forgotten is not asked about; an item that was un-seen stays so, whatever stands there."""
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:gone", [(START, "a")])
        zadd(c, "played:item", [(START, "a"), (START, "b")])
        zadd(c, "delivered:item", [(START, "a")])
    server = make_noted(make_server, redis, "gone", "item")
    with server.client() as c:
        assert ask(c, "gone", "a") == []
        c.command("FORGET", "gone")
        assert ask(c, "gone", "a") == [b"a"]
        c.command("FORGET", "item", "a")
        assert ask(c, "item", "a", "b", "c") == [b"a", b"c"]
        assert c.command("WHY", "item", "a") == [] and c.command("WHY", "item", "b") == [b"legacy"]
        c.command("PLAYED", "item", "a")
        assert ask(c, "item", "a", "b", "c") == [b"c"]


def test_deliver_and_transactions(make_server, make_old):
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, f"i{k}") for k in range(0, 100, 2)])
    server = make_noted(make_server, redis, "u")
    with server.client() as c:
        assert c.command("FILTER", "u", "LIMIT", 3, "DELIVER", "ITEMS", *[f"i{k}" for k in range(10)]) == [b"i1", b"i3", b"i5"]
        assert ask(c, "u", *[f"i{k}" for k in range(10)]) == [b"i7", b"i9"]
        c.command("MULTI")
        c.command("UNSEEN", "u", "i2", "i7")
        c.command("PLAYED", "u", "i7")
        c.command("UNSEEN", "u", "i2", "i7", "i9")
        assert c.command("EXEC") == [[b"i7"], 1, [b"i9"]]


def test_many_candidates(make_server, make_old):
    """In chunks; and of a Redis that has no ZMSCORE, one by one."""
    items = [f"item:{i}" for i in range(10000)]
    for options in ((), ("--rename-command", "ZMSCORE", "")):
        redis = make_old(*options)
        with redis.client() as c:
            zadd(c, "played:u", [(START - i, item) for i, item in enumerate(items) if i % 3 == 0])
        server = make_noted(make_server, redis, "u")
        left = [x.encode() for i, x in enumerate(items) if i % 3]
        with server.client() as c:
            for _ in range(5):
                assert ask(c, "u", *items) == left
                assert ask(c, "u", *items[:1]) == [] and ask(c, "u", *items[1:502]) == [
                    x.encode() for x in items[1:502] if int(x[5:]) % 3]
            assert figures(server)["answered"] == 15
            longest = [str(i) * (255 // len(str(i))) for i in range(10000, 30000)]
            assert len(ask(c, "u", *longest)) == 20000
            assert figures(server)["answered"] == 16
        assert ("zmscore" in calls(redis)) == (options == ())


def test_pipelined(make_server, make_old):
    """Answers come in the order of the commands, and each sees the writes before it."""
    redis = make_old()
    with redis.client() as c:
        for u in range(20):
            zadd(c, f"played:u{u}", [(START, f"old{u}")])
    server = make_noted(make_server, redis, *[f"u{u}" for u in range(20)])
    with server.client() as c:
        commands, expected = [], []
        for k in range(300):
            u = k % 20
            commands += [("UNSEEN", f"u{u}", f"old{u}", f"new{k}", "x"), ("PLAYED", f"u{u}", f"new{k}"),
                         ("UNSEEN", f"u{u}", f"old{u}", f"new{k}", "x"), ("UNSEEN", "nobody", "x")]
            expected += [[f"new{k}".encode(), b"x"], 1, [b"x"], [b"x"]]
        assert c.pipeline(commands) == expected
    assert figures(server)["answered"] == 600


def test_a_stopped_redis(make_server, make_old):
    """Every question is answered; after some that waited, none does; and it comes back."""
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_noted(make_server, redis, "u", workers=1)
    with server.client() as c:
        assert ask(c, "u", "a", "b") == [b"b"]
        reload(server, legacy_timeout="20ms")
        freeze(redis.process)
        took = []
        for _ in range(5):
            began = time.monotonic()
            assert ask(c, "u", "a", "b") == [b"a", b"b"]
            took.append(time.monotonic() - began)
        assert min(took[1:]) < 0.7, "their answers leave when they are there, and not with the loop's next event, a second later"
        for _ in range(195):
            assert ask(c, "u", "a", "b") == [b"a", b"b"]
        counted = figures(server)
        assert 5 <= counted["late"] <= 20, counted
        assert counted["late"] + counted["skipped"] + counted["failed"] == 200 and counted["skipped"] >= 150, counted
        assert counted["up"] == 0
        shown = status(server)
        assert shown[b"read_through"] == b"waiting" and shown[b"read_through_cause"]
        assert c.command("PLAYED", "u", "c") == 1
        reload(server, legacy_timeout=PATIENT)
        thaw(redis.process)
        until(lambda: ask(c, "u", "a", "b", "c") == [b"b"], server.log)
        for _ in range(50):
            assert ask(c, "u", "a", "b") == [b"b"]
        assert figures(server)["up"] == 1 and status(server)[b"read_through"] == b"on"
    log = server.log()
    assert log.count("read-through waits") == 1 and log.count("read-through goes on") == 1, log
    assert b"questions put to the old Redis too, which is on: " in migrate(server, "--status").stdout


def test_a_silent_connection_is_given_up(make_server, make_old):
    """What never answers is tried again; late replies of the old connection never meet a new question."""
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_noted(make_server, redis, "u", workers=1)
    with server.client() as c:
        assert ask(c, "u", "a", "b") == [b"b"]  # so there is a connection, which "on" alone does not say
        reload(server, legacy_timeout="5ms")
        freeze(redis.process)
        assert ask(c, "u", "a") == [b"a"]
        wait_status(server, lambda s: b"no answer for 5 s" in s[b"read_through_cause"])
        thaw(redis.process)
        wait_status(server, lambda s: s[b"read_through"] == b"on")
        reload(server, legacy_timeout=PATIENT)
        assert ask(c, "u", "a", "b") == [b"b"]


def test_a_killed_redis(make_server, make_old):
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_noted(make_server, redis, "u", workers=1)
    with server.client() as c:
        for _ in range(3):
            assert ask(c, "u", "a", "b") == [b"b"]
            redis.kill()
            wait_status(server, lambda s: s[b"read_through"] == b"waiting")
            assert redis.socket.encode() in status(server)[b"read_through_cause"]
            before = figures(server)
            assert ask(c, "u", "a", "b") == [b"a", b"b"]
            assert figures(server)["skipped"] == before["skipped"] + 1
            redis.start()
            wait_status(server, lambda s: s[b"read_through"] == b"on")
        assert ask(c, "u", "a", "b") == [b"b"]


def test_killed_while_questions_are_out(make_server, make_old):
    redis = make_old()
    users = [f"u{i}" for i in range(50)]
    server = make_noted(make_server, redis, *users, workers=1)
    freeze(redis.process)
    clients = [server.client() for _ in users]
    for c, user in zip(clients, users):
        c.send(encode("UNSEEN", user, "a", "b"))
    wait_status(server, lambda s: s[b"read_through_asked"] == 50 or s[b"read_through_late"] > 0)
    redis.process.kill()
    for c in clients:
        assert c.read() == [b"a", b"b"]
        c.close()
    counted = figures(server)
    assert counted["late"] + counted["failed"] + counted["skipped"] == 50


def test_a_wrong_password(make_server, make_old):
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
        c.command("CONFIG", "SET", "requirepass", "right")
    server = make_noted(make_server, redis, "u", wait=False, legacy_password="wrong")
    waiting = wait_status(server, lambda s: s[b"read_through"] == b"waiting")
    assert b"WRONGPASS" in waiting[b"read_through_cause"]
    with server.client() as c:
        assert ask(c, "u", "a") == [b"a"]
        assert figures(server)["skipped"] == 1
    server.stop()
    server.options["legacy_password"] = "right"
    server.start()
    wait_status(server, lambda s: s[b"read_through"] == b"on")
    with server.client() as c:
        assert ask(c, "u", "a") == []


def test_a_command_that_is_forbidden(make_server, make_old):
    """Of ZMSCORE, ZSCORE does as well."""
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
        c.command("ACL", "SETUSER", "default", "-zmscore")
        server = make_noted(make_server, redis, "u")
        with server.client() as s:
            wait_status(server, lambda _: connections(redis) > 2)
            assert ask(s, "u", "a", "b") == [b"b"] and calls(redis)["zscore"] == 2
            c.command("ACL", "SETUSER", "default", "-zrevrange")
            assert ask(s, "u", "a", "b")[-1] == b"b"
            waiting = wait_status(server, lambda s: s[b"read_through"] == b"waiting")
            assert b"NOPERM" in waiting[b"read_through_cause"] and b"zrevrange" in waiting[b"read_through_cause"]
            c.command("ACL", "SETUSER", "default", "+zrevrange", "+zmscore")
            wait_status(server, lambda s: s[b"read_through"] == b"on")
            assert ask(s, "u", "a", "b") == [b"b"]


def test_keys_that_are_refused(make_server, make_old):
    """One key's trouble is its user's alone."""
    redis = make_old()
    with redis.client() as c:
        c.command("SET", "played:string", "x")
        c.command("SET", "delivered:half", "x")
        zadd(c, "played:half", [(START, "a")])
        zadd(c, "delivered:string", [(START, "sent")])
        zadd(c, "played:good", [(START, "a")])
    server = make_noted(make_server, redis, "string", "half", "good")
    with server.client() as c:
        assert ask(c, "string", "a", "sent") == [b"a"], "what can be read counts"
        assert ask(c, "half", "a", "b") == [b"b"]
        assert ask(c, "good", "a") == []
    counted = figures(server)
    assert (counted["failed"], counted["answered"], counted["up"]) == (2, 1, 1)


def test_no_deliveries_in_seconds_another_database(make_server, make_old):
    redis = make_old()
    with redis.client() as c:
        c.command("SELECT", 3)
        zadd(c, "p/u/x", [(START // 1000, "a")])
    server = make_noted(make_server, redis, "u", legacy_database=3, legacy_played_key="p/{user}/x", legacy_delivered_key="",
                        legacy_score="s")
    with server.client() as c:
        assert ask(c, "u", "a", "b") == [b"b"]
    assert "zrevrange" not in calls(redis)


def test_over_tcp_by_name(make_server, make_old):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    redis = make_old("--port", str(port))
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    for host in ("localhost", "127.0.0.1"):
        redis_at = type("At", (), {"socket": f"{host}:{port}"})
        server = make_noted(make_server, redis_at, "u")
        with server.client() as c:
            assert ask(c, "u", "a", "b") == [b"b"]
    nowhere = type("At", (), {"socket": f"no-such-host.invalid:{port}"})
    server = make_noted(make_server, nowhere, "u", wait=False)
    with server.client() as c:
        assert ask(c, "u", "a") == [b"a"]


def test_a_client_that_goes_while_its_question_is_out(make_server, make_old):
    redis = make_old()
    server = make_noted(make_server, redis, "u", workers=1, legacy_timeout="300ms")
    freeze(redis.process)
    for _ in range(3):
        c = server.client()
        c.send(encode("UNSEEN", "u", "a", "b"))
        wait_status(server, lambda s: s[b"read_through_asked"] > 0)
        c.close()
    thaw(redis.process)
    wait_status(server, lambda s: s[b"read_through_asked"] == s[b"read_through_late"] + s[b"read_through_answered"] +
                 s[b"read_through_failed"])
    with server.client() as c:
        assert c.command("PING") == b"PONG"


def test_stopped_while_questions_are_out(make_server, make_old):
    """The service ends as soon as they are answered."""
    redis = make_old()
    users = [f"u{i}" for i in range(20)]
    server = make_noted(make_server, redis, *users, legacy_timeout="500ms")
    freeze(redis.process)
    clients = [server.client() for _ in users]
    for c, user in zip(clients, users):
        c.send(encode("UNSEEN", user, "a"))
    wait_status(server, lambda s: s[b"read_through_asked"] > 0)
    assert server.stop() == 0
    assert "stopped with work under way" not in server.log()
    for c in clients:
        try:
            assert c.read() == [b"a"]
        except (Closed, OSError):
            pass
        c.close()


def test_switched_on_and_off(make_server, make_old):
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_server(legacy_redis=redis.socket, legacy_timeout=PATIENT)
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        c.command("LEGACY", "NOTE", "u")
        assert ask(c, "u", "a") == [b"a"] and status(server)[b"read_through"] == b"off"
        reload(server, legacy_read_through="yes")
        assert ask(c, "u", "a") == [], "the first question comes through"
        reload(server, legacy_read_through="no")
        assert ask(c, "u", "a") == [b"a"]
        until(lambda: not calls(redis) or connections(redis) <= 1, lambda: connections(redis))
        reload(server, legacy_read_through="yes")
        assert ask(c, "u", "a") == []


def connections(redis):
    with redis.client() as c:
        return int(re.search(r"connected_clients:(\d+)", c.command("INFO", "clients").decode())[1])


def test_an_idle_connection_that_ends(make_server, make_old):
    """A Redis that closes idle connections is nothing to speak of."""
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_noted(make_server, redis, "u", workers=1)
    pause(1.1, "an idle second makes it a good connection")
    with server.client() as c, redis.client() as r:
        assert ask(c, "u", "a") == []
        for _ in range(2):
            before = calls(redis)["zmscore"]
            r.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            until(lambda: calls(redis)["zmscore"] > before)
            pause(1.1, "the same")
        assert ask(c, "u", "a") == []
    assert "read-through waits" not in server.log()


def test_who_is_asked_about_is_migrated_first(make_server, make_old):
    redis = make_old()
    users = [f"u{i}" for i in range(3000)]
    with redis.client() as c:
        for user in users:
            c.command("ZADD", f"played:{user}", START, "a")
    server = make_noted(make_server, redis, *users, legacy_users_rate=100)
    wanted = users[100::250]
    with server.client() as c:
        for user in wanted:
            assert ask(c, user, "a") == []
        c.command("LEGACY", "RESUME")
        until(lambda: c.command("LEGACY", "STATE", *wanted) == [b"migrated"] * len(wanted))
        assert status(server)[b"migrated"] < 1000, "twelve by chance among the first third: no"
        assert ask(c, wanted[-1], "a", "b") == [b"b"]


def test_while_users_are_migrated(make_server, make_old):
    """Before, while and after: never is a play missing."""
    redis = make_old()
    users = [f"u{i}" for i in range(400)]
    with redis.client() as c:
        for user in users:
            zadd(c, f"played:{user}", [(START - k, f"{user}-{k}") for k in range(30)])
    server = make_noted(make_server, redis, *users, legacy_users_rate=400)
    problems, ends, rounds = [], threading.Event(), []

    def asking(seed):
        with server.client() as c:
            n = seed
            while not ends.is_set():
                user = users[n % len(users)]
                n += 7
                left = ask(c, user, *[f"{user}-{k}" for k in range(30)], "new")
                rounds.append(user)
                if left != [b"new"]:
                    problems.append((user, left))

    threads = [threading.Thread(target=asking, args=(i * 100,)) for i in range(4)]
    for t in threads:
        t.start()
    until(lambda: len(rounds) >= 200 or problems)
    with server.client() as c:
        c.command("LEGACY", "RESUME")
    wait_done(server)
    already = len(rounds)
    until(lambda: len(rounds) >= already + 200 or problems)
    ends.set()
    for t in threads:
        t.join()
    assert problems == []
    assert figures(server)["late"] == figures(server)["failed"] == figures(server)["skipped"] == 0


def test_a_large_user(make_server, make_old):
    """Whose question goes to the thread beside the workers first, and then to the old Redis."""
    redis = make_old()
    with redis.client() as c:
        zadd(c, "played:large", [(START, f"there{i}") for i in range(100)])
    server = make_noted(make_server, redis, "large")
    with server.client() as c:
        for at in range(0, 60000, 5000):
            c.command("PLAYED", "large", *[f"here{i}" for i in range(at, at + 5000)])
        assert ask(c, "large", "here7", "there7", "x") == [b"x"]
        assert c.command("WHY", "large", "there7") == [b"legacy"]
        assert c.command("WHY", "large", "here7") == [b"staged"]
        large = int(re.search(r"large_questions:(\d+)", c.command("INFO", "stats").decode())[1])
        assert large == 3 and figures(server)["answered"] == 3


def test_metrics(make_server, make_old):
    import urllib.request

    server = make_noted(make_server, make_old(), "u", http="127.0.0.1:0")
    with server.client() as c:
        ask(c, "u", "a")
    with urllib.request.urlopen(http_url(server) + "/metrics") as r:
        text = r.read().decode()
    assert "\nunseen_read_through_asked_total 1\n" in text and "\nunseen_read_through_up 1\n" in text
