"""Double writing, with a real redis-server that is killed, stopped, locked and filled with the wrong things: at the end
its sorted sets hold exactly what was recorded."""
import json
import random
import shutil
import threading
import urllib.request

import pytest

from conftest import HOUR, http_url, run
from old_redis import REDIS, OldRedis, wait
from resp import RespError

pytestmark = pytest.mark.skipif(REDIS is None, reason="there is no redis-server")


@pytest.fixture
def redis(folder):
    r = OldRedis(folder / "redis")
    yield r
    r.kill()


def status(server):
    with server.client() as c:
        flat = c.command("LEGACY", "MIRROR")
    return {flat[i].decode(): v.decode() if isinstance(v := flat[i + 1], bytes) else v for i in range(0, len(flat), 2)}


def wait_in_step(server):
    wait(lambda: status(server)["state"] == "in step" and status(server)["waiting"] == 0)


class Recorder:
    """Records plays and deliveries, each at a ms of its own, and knows what the sorted sets must hold."""

    def __init__(self, server, seed=1):
        self.server = server
        self.random = random.Random(seed)
        self.played, self.delivered = {}, {}

    def send(self, client, *words):
        assert client.pipeline([("DEBUG", "ADVANCE", 1), words])[1] == len(words) - 2
        self.server.clock += 1

    def play(self, client, user, *items):
        self.send(client, "PLAYED", user, *items)
        for item in items:
            self.played.setdefault(user, {})[item] = self.server.clock

    def deliver(self, client, user, item):
        self.send(client, "DELIVERED", user, item)
        times = self.delivered.setdefault(user, {})
        times[item] = self.server.clock
        self.delivered[user] = dict(sorted(times.items(), key=lambda of: -of[1])[:100])

    def some(self, commands=150):
        with self.server.client() as client:
            for _ in range(commands):
                user = f"u{self.random.randrange(4)}"
                if self.random.random() < 0.3:
                    self.play(client, user, *(b"v%d" % self.random.randrange(3000) for _ in range(9)))
                else:
                    self.deliver(client, user, b"d%d" % self.random.randrange(400))

    def check(self, redis):
        wait_in_step(self.server)
        for user, items in self.played.items():
            assert redis.zset(f"played:{user}") == items
        for user, items in self.delivered.items():
            assert redis.zset(f"delivered:{user}") == items


@pytest.fixture
def mirrored(make_server, redis):
    def make(**options):
        return make_server(legacy_redis=redis.socket, legacy_mirror="yes", **options)

    return make


def test_all_that_is_recorded(mirrored, redis):
    server = mirrored()
    recorder = Recorder(server)
    recorder.some(700)
    assert max(map(len, recorder.delivered.values())) == 100
    with server.client() as c:
        recorder.play(c, "{user}", b"\xfe\x00")
        at = server.clock - 24 * 3600 * 1000
        assert c.command("PLAYEDAT", "late", at, "v1") == 1
        recorder.played["late"] = {b"v1": at}
        c.command("FILTER", "asker", "LIMIT", "2", "DELIVER", "ITEMS", "a", "b", "c")
        recorder.delivered["asker"] = {b"a": server.clock, b"b": server.clock}
    recorder.check(redis)
    assert status(server)["skipped"] == 0


def test_seconds_and_other_keys(mirrored, redis):
    server = mirrored(legacy_score="s", legacy_played_key="{{user}}:p", legacy_delivered_key="", legacy_database="3")
    with server.client() as c:
        c.command("PLAYED", "u", "v")
        c.command("DELIVERED", "u", "d")
    wait_in_step(server)
    with redis.client() as c:
        assert c.command("KEYS", "*") == []
        c.command("SELECT", "3")
        assert c.command("KEYS", "*") == [b"{u}:p"]
        assert c.command("ZSCORE", "{u}:p", "v") == b"%d" % (server.clock // 1000)


def test_forget(mirrored, redis):
    with redis.client() as c:
        c.command("ZADD", "played:stranger", "1", "old")
        c.command("ZADD", "delivered:stranger", "1", "old")
    server = mirrored()
    recorder = Recorder(server)
    recorder.some()
    redis.kill()
    with server.client() as c:
        item = next(iter(recorder.played["u0"]))
        assert c.command("FORGET", "u0", item) == 1
        del recorder.played["u0"][item]
        gone = next(iter(recorder.delivered["u0"]))
        assert c.command("FORGET", "u0", gone) == 1
        del recorder.delivered["u0"][gone]
        assert c.command("FORGET", "u1") == 1
        recorder.played["u1"], recorder.delivered["u1"] = {}, {}
        assert c.command("FORGET", "stranger") == 0
        recorder.play(c, "u1", b"again")
        recorder.play(c, "u0", item)
    redis.start()
    recorder.check(redis)
    assert redis.zset("played:stranger") == {} == redis.zset("delivered:stranger")


def test_an_item_of_which_only_the_hash_is_known(mirrored, redis):
    """As an old primary may bring it that rejoins: the old Redis knows no hashes, so it is passed over, and listed."""
    server = mirrored()
    with server.client() as client:
        client.command("PLAYED", "u", "a")
        body = bytes([1]) + b"\0" + b"\0" + b"\x01u" + b"\x0812345678"  # number, time 0, late 0, user, hash
        assert client.command("REPLICA", "MERGE", "0" * 15 + "1", "0" * 15 + "1", "1", b"\x07" + bytes([len(body)]) + body,
                              "FORCE") == 0
        client.command("PLAYED", "u", "b")
    wait_in_step(server)
    assert status(server)["skipped"] == 1
    problems = server.sqlite("staging.db", "SELECT key, what FROM legacy_problems")
    assert "only the hash is known" in problems, problems


def test_redis_is_killed_and_started_while_clients_record(mirrored, redis):
    server = mirrored()
    recorder = Recorder(server)
    recorder.some(50)
    writer = threading.Thread(target=recorder.some, args=(1500,))
    writer.start()
    for _ in range(3):
        redis.kill()
        wait(lambda: status(server)["state"] == "waiting")
        redis.start()
        wait(lambda: status(server)["state"] != "waiting")
    writer.join()
    recorder.check(redis)
    log = server.log()
    assert log.count("the mirror waits") == log.count("the mirror goes on") == status(server)["outages"] >= 3


def test_redis_is_stopped(mirrored, redis):
    """It takes bytes and answers nothing: writes are acknowledged, and the service ends when told to."""
    server = mirrored()
    recorder = Recorder(server)
    recorder.some()
    wait_in_step(server)
    redis.pause()
    recorder.some()
    wait(lambda: status(server)["state"] == "waiting")
    assert "no answer for" in status(server)["cause"]
    waiting = status(server)["waiting"]
    assert waiting > 0
    server.restart()  # within SIGSTOP, too
    assert status(server)["waiting"] == waiting
    recorder.some()
    redis.go_on()
    recorder.check(redis)


def test_a_queue_survives_restarts_and_kills(mirrored, redis):
    server = mirrored()
    recorder = Recorder(server)
    recorder.some()
    redis.kill()
    recorder.some()
    waiting = status(server)["waiting"]
    assert waiting > 0
    server.restart()
    assert status(server)["waiting"] == waiting
    recorder.some()
    server.kill()
    server.start()
    assert status(server)["waiting"] > waiting
    redis.start()
    for _ in range(5):  # also in the middle of sending
        recorder.some(60)
        server.kill()
        server.start()
    recorder.check(redis)
    server.restart()
    assert server.sqlite("staging.db", "SELECT count(*) FROM feed") == "0"


def test_how_far_it_is_behind(mirrored, redis):
    """The age of what waits, not the time since nothing did, or since the start."""
    server = mirrored()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    wait_in_step(server)
    server.restart()
    wait_in_step(server)
    server.advance(HOUR)
    with server.client() as c:
        for item in "bb":  # before the second one the thread has looked at the clock
            c.command("PLAYED", "u", item)
            wait_in_step(server)
        redis.kill()
        c.command("PLAYED", "u", "c")
        assert status(server)["waiting"] == 1 and status(server)["behind_ms"] == 0
        server.advance(HOUR // 6)
        c.command("PLAYED", "u", "d")
        assert status(server)["behind_ms"] == HOUR // 6
    server.restart()
    wait(lambda: status(server)["state"] == "waiting")
    assert status(server)["behind_ms"] == HOUR // 6
    server.advance(HOUR // 6)
    assert status(server)["behind_ms"] == HOUR // 3
    redis.start()
    wait_in_step(server)
    assert status(server)["behind_ms"] == 0


def metric(server, name):
    text = urllib.request.urlopen(http_url(server) + "/metrics").read().decode()
    return [float(line.split()[1]) for line in text.splitlines() if line.split()[0] == name]


def feed(server):
    with server.client(3) as c:
        consumers = c.command("FEED")
    assert len(consumers) <= 1
    return consumers[0] if consumers else None


def test_what_the_feed_says(mirrored, redis):
    """FEED, /v1/status and /metrics: nobody before the mirror is on, then how far it is, through a kill."""
    server = mirrored(http="127.0.0.1:0")
    with server.client() as c:
        c.command("PLAYED", "u", "a", "b")
        wait_in_step(server)
        now = feed(server)
        assert (now[b"consumer"], now[b"state"], now[b"events"], now[b"listens"]) == (b"mirror", b"in step", 0, 1)
        assert now[b"cursor"] == now[b"last"] > 0 == now[b"behind_ms"] == now[b"left_out"]
        redis.kill()
        c.command("PLAYED", "u", "c")
        c.command("FORGET", "u", "a")
        server.advance(HOUR)
    for again in (False, True):
        if again:
            server.kill()
            server.start()
        now = feed(server)
        assert (now[b"state"], now[b"events"], now[b"behind_ms"], now[b"since"]) == (b"behind", 2, HOUR, server.clock - HOUR)
        assert now[b"last"] == now[b"cursor"] + 2 and now[b"bytes"] == 2 * 24 + 4
        shown = json.load(urllib.request.urlopen(http_url(server) + "/v1/status"))["feed"]
        assert shown == [{name.decode(): v.decode() if isinstance(v, bytes) else v for name, v in now.items()
                          if name.decode() not in ("bytes", "limit", "lost_since")}]
        text = urllib.request.urlopen(http_url(server) + "/metrics").read().decode()
        for line in ('unseen_feed_events{consumer="mirror"} 2', 'unseen_feed_behind_seconds{consumer="mirror"} 3600.000',
                     'unseen_feed_state{consumer="mirror",state="behind"} 1',
                     'unseen_feed_state{consumer="mirror",state="lost"} 0'):
            assert line in text.splitlines(), (line, text)
    redis.start()
    wait_in_step(server)
    assert feed(server)[b"state"] == b"in step"
    redis.kill()
    server.options["legacy_mirror"] = "no"
    server.restart()
    with server.client() as c:
        c.command("PLAYED", "u", "d")
    now = feed(server)
    assert (now[b"state"], now[b"listens"], now[b"lost_since"]) == (b"lost", 0, server.clock)
    assert run("migrate", "--mirror-reset", "-c", server.config).returncode == 0
    assert feed(server) is None


def test_a_full_queue_breaks_the_mirror(mirrored, redis):
    server = mirrored(legacy_mirror_max="1MiB", http="127.0.0.1:0")
    assert metric(server, "unseen_mirror_broken") == [0]
    redis.kill()
    sent = 0
    with server.client() as c:
        while status(server)["broken_since"] == 0:
            c.command("PLAYED", "u", *(b"%0200d" % n for n in range(sent, sent + 500)))
            sent += 500
        s = status(server)
        assert s["left_out"] == 500 and s["waiting"] == sent - 500 and s["bytes"] <= s["limit"] == 1 << 20
        assert s["broken_since"] == server.clock
        c.command("PLAYED", "u", "small")  # there is room for it
    assert "a consumer of the feed is lost: too much waits for it" in server.log()
    assert metric(server, "unseen_mirror_broken") == [1]
    said = run("migrate", "--status", "-c", server.config).stdout.decode()
    assert "the mirror, which is broken since 2026-11-21T10:00:00.000Z: 500 events were left out" in said
    server.restart()
    assert server.log().count("the mirror is broken") == 1
    redis.start()
    wait_in_step(server)
    assert status(server)["broken_since"] == s["broken_since"]
    assert len(redis.zset("played:u")) == sent - 500 + 1
    assert run("migrate", "--mirror-reset", "-c", server.config).returncode == 0
    with server.client() as c:
        c.command("PLAYED", "u", "after")
    wait_in_step(server)
    assert status(server)["broken_since"] == 0 == status(server)["left_out"]
    server.restart()
    assert status(server)["broken_since"] == 0
    assert b"after" in redis.zset("played:u")


def test_a_key_that_is_refused_is_passed_over(mirrored, redis):
    with redis.client() as c:
        c.command("SET", "played:u0", "a string")
        c.command("LPUSH", "delivered:u1", "a list")
    server = mirrored()
    recorder = Recorder(server)
    recorder.some(300)
    del recorder.delivered["u1"]
    refused = sum(len(items) for items in (recorder.played.pop("u0"),))
    recorder.check(redis)
    assert server.log().count("refuses a key") == 2
    assert status(server)["skipped"] >= refused
    assert "WRONGTYPE" in status(server)["last_problem"]
    with server.client() as c:
        problems = c.command("LEGACY", "PROBLEMS")
    assert sorted(p[1] for p in problems) == [b"delivered:u1", b"played:u0"]
    assert all(p[3].startswith(b"mirror: WRONGTYPE") for p in problems)
    assert status(server)["outages"] == 0
    said = run("migrate", "--status", "-c", server.config).stdout.decode()
    assert "events passed over, refused for their key; the last: " in said and "WRONGTYPE" in said


def test_redis_refuses_the_password(mirrored, redis):
    with redis.client() as c:
        c.command("CONFIG", "SET", "requirepass", "right")
    server = mirrored(legacy_password="wrong")
    recorder = Recorder(server)
    recorder.some(50)
    wait(lambda: status(server)["state"] == "waiting")
    assert "password" in status(server)["cause"]
    assert "wrong" not in server.log().replace("WRONGPASS", "")
    with redis.client() as c:
        c.command("AUTH", "right")
        c.command("CONFIG", "SET", "requirepass", "")
        c.command("ACL", "SETUSER", "default", "on", "resetpass", ">wrong")
    wait_in_step(server)
    with redis.client() as c:
        c.command("AUTH", "wrong")
        c.command("ACL", "SETUSER", "default", "nopass")
    recorder.check(redis)


def test_redis_only_reads(mirrored, redis):
    server = mirrored()
    recorder = Recorder(server)
    recorder.some(50)
    wait_in_step(server)
    with redis.client() as c:
        c.command("REPLICAOF", "127.0.0.1", "1")
    recorder.some(50)
    wait(lambda: status(server)["state"] == "waiting")
    assert "READONLY" in status(server)["cause"]
    said = run("migrate", "--status", "-c", server.config).stdout.decode()
    assert "since 2026-11-21T10:00:00" in said and "it waits: " in said and "READONLY" in said
    with redis.client() as c:
        c.command("REPLICAOF", "NO", "ONE")
    recorder.check(redis)
    assert status(server)["skipped"] == 0


def test_switched_off_and_on_again(mirrored, redis):
    server = mirrored()
    recorder = Recorder(server)
    recorder.some()
    wait_in_step(server)
    redis.kill()
    recorder.some(50)
    waiting = status(server)["waiting"]
    server.options["legacy_mirror"] = "no"
    server.restart()
    s = status(server)
    assert (s["state"], s["waiting"], s["broken_since"]) == ("off", waiting, 0)
    with server.client() as c:
        c.command("PLAYED", "missed", "v")
    assert status(server)["broken_since"] == server.clock
    server.options["legacy_mirror"] = "yes"
    server.restart()
    redis.start()
    recorder.some(50)
    recorder.check(redis)
    assert redis.zset("played:missed") == {}
    assert status(server)["broken_since"] > 0
    redis.kill()
    recorder.some(50)
    server.options["legacy_mirror"] = "no"
    server.restart()
    with server.client() as c:
        assert c.command("LEGACY", "MIRROR", "RESET") == b"OK"
        c.command("PLAYED", "missed", "w")
    s = status(server)
    assert (s["waiting"], s["bytes"], s["broken_since"]) == (0, 0, 0)
    assert server.sqlite("staging.db", "SELECT count(*) FROM feed") == "0"


def test_bad_input(mirrored):
    with mirrored().client() as c:
        for words in (["X"], ["X", "RESET"]):
            with pytest.raises(RespError, match="LEGACY MIRROR takes nothing or RESET, got 'X'"):
                c.command("LEGACY", "MIRROR", *words)


def test_a_backup_sends_nothing_again(mirrored, redis, folder):
    server = mirrored()
    recorder = Recorder(server)
    recorder.some(50)
    wait_in_step(server)
    redis.kill()
    recorder.some(20)
    with server.client() as c:
        c.command("BACKUP", str(folder / "copy"))
    redis.start()
    recorder.check(redis)
    server.stop()
    before = {user: redis.zset(f"played:{user}") for user in recorder.played}
    shutil.rmtree(server.data)
    shutil.move(folder / "copy", server.data)
    server.start()
    wait_in_step(server)
    s = status(server)
    assert s["sent"] == 0 and s["broken_since"] > 0
    assert before == {user: redis.zset(f"played:{user}") for user in recorder.played}
