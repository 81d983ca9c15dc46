"""Coming from another Redis: a real redis-server, and what gets in the way. The whole way: test_journey.py."""
import json
import select
import socket
import threading

import pytest

from conftest import DAY, START, run, until
from old_redis import REDIS, OldRedis
from resp import RespError, encode
from standstill import freeze, thaw
from test_reload import reload

pytestmark = pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")


@pytest.fixture
def redis(folder):
    old = OldRedis(folder / "redis", "--appendfsync", "no")
    yield old
    old.kill()


def zadd(client, key, pairs):
    pairs = list(pairs)
    for at in range(0, len(pairs), 500):
        client.command("ZADD", key, *[word for score, member in pairs[at:at + 500] for word in (score, member)])


def status(server):
    with server.client(3) as c:
        return c.command("LEGACY", "STATUS")


def wait_status(server, good):
    return until(lambda: now if good(now := status(server)) else None, lambda: (status(server), server.log()))


def wait_done(server):
    return wait_status(server, lambda s: s[b"state"] == b"idle" and s[b"waiting"] == 0)


def migrate(server, *args, check=True, **kwargs):
    result = run("migrate", *args, "-c", server.config, "--test-clock", server.clock, check=check, **kwargs)
    return json.loads(result.stdout) if "--json" in args and result.stdout else result


def verify(server, *args):
    return migrate(server, "--verify", *args, "--json", check=False)


def ask_unseen(server, user, *items):
    with server.client() as c:
        return c.command("UNSEEN", user, *items)


def test_missing_is_found(make_server, redis):
    """--verify sees what is not there, and --again brings it."""
    with redis.client() as c:
        for i in range(30):
            zadd(c, f"played:u{i}", [(START - k, f"i{k}") for k in range(10)])
    server = make_server(legacy_redis=redis.socket)
    migrate(server, "--scan")
    wait_done(server)
    assert verify(server)["missing"] == 0
    with redis.client() as c:
        zadd(c, "played:u7", [(START - 5, "later")])
        zadd(c, "played:stranger", [(START - 5, "x")])
    result = migrate(server, "--verify", check=False)
    assert result.returncode == 1
    assert b"not seen: u7  later" in result.stdout and b"the user is migrated" in result.stdout
    assert b"not seen: stranger  x" in result.stdout and b"the user is not noted" in result.stdout
    report = verify(server)
    assert report["missing"] == 2 and {m["user"] for m in report["not_seen"]} == {"u7", "stranger"}
    assert b"30 users to be read again" in migrate(server, "--again").stdout
    migrate(server, "--scan")
    wait_done(server)
    assert verify(server)["missing"] == 0


def test_keys_of_two_forms(make_server, redis):
    """A key of deliveries that also looks like one of plays is no user's."""
    with redis.client() as c:
        for i in range(30):
            zadd(c, f"u{i}", [(START - k, f"i{k}") for k in range(10)])
            zadd(c, f"delivered:u{i}", [(START - k, f"d{k}") for k in range(5)])
        zadd(c, "delivered:only", [(START, "d0")])
    server = make_server(legacy_redis=redis.socket, legacy_played_key="{user}")
    assert b": 31 users found, 31 new\n" in migrate(server, "--scan").stdout
    assert migrate(server, "--keys", "-", "--json", input=b"u1\ndelivered:u2\ndelivered:only\n")["noted"] == 0
    wait_done(server)
    with server.client() as c:
        assert c.command("LEGACY", "STATE", "u1", "only", "delivered:u1") == [b"migrated", b"migrated", b"none"]
        assert c.command("HISTORY", "delivered:u1") is None
    assert ask_unseen(server, "u1", "i9", "d4", "x") == [b"x"]
    report = verify(server)
    assert (report["users"], report["missing"], report["doubtful"]) == (30, 0, 0)


def test_keys_in_doubt(make_server, redis):
    """Where nobody can tell, all others are noted, and the command says what to do about these."""
    with redis.client() as c:
        for key in ("u:1", "u:2", "1:d", "u:3:d"):
            zadd(c, key, [(START, "a")])
    server = make_server(legacy_redis=redis.socket, legacy_played_key="u:{user}", legacy_delivered_key="{user}:d")
    for args, text in (("--scan",), b""), (("--keys", "-"), b"u:1\nu:3:d\n2:d\n"):
        result = migrate(server, *args, input=text, check=False)
        assert result.returncode == 1
        assert b'both played_key and delivered_key' in result.stderr and b'1, the first "u:3:d"' in result.stderr
        assert b"LEGACY NOTE" in result.stderr
    assert wait_done(server)[b"noted"] == 2
    result = migrate(server, "--verify")
    assert b'not compared: 1 key fitting both played_key and delivered_key; the first: "u:3:d"' in result.stdout


def test_problems(make_server, redis):
    """Each is named once with its key, counted and listed; nothing stops."""
    with redis.client() as c:
        c.command("SET", "played:string", "x")
        c.command("SET", "delivered:both", "x")
        zadd(c, "played:both", [(START, "good")])
        zadd(c, "played:long", [(START, "x" * 256), (START, "good"), (START, "y" * 300), (START, "")])
        zadd(c, "played:", [(START, "good")])
        zadd(c, "played:" + "u" * 256, [(START, "good")])
        zadd(c, "played:scores", [("inf", "a"), (-5, "b"), (START // 1000, "c"), (START + 2 * DAY, "d"), (START, "good")])
        zadd(c, "played:old", [(START - 150 * DAY, "a"), (START - 3000 * DAY, "b"), (START, "good")])
        zadd(c, "played:by\xfftes", [(START, "good")])
        for i in range(20):
            zadd(c, f"played:u{i}", [(START, "good")])
    server = make_server(legacy_redis=redis.socket)
    said = migrate(server, "--scan").stdout
    assert b"2 passed over, since they hold no id of 1 to 255 bytes; the first: " in said
    last = wait_done(server)
    assert (last[b"left"], last[b"problems"], last[b"skipped"], last[b"too_old"]) == (2, 4, 7, 2)
    problems = {p["key"]: p["problem"] for p in migrate(server, "--problems", "--json")}
    assert sorted(problems) == ["delivered:both", "played:long", "played:scores", "played:string"]
    assert problems["played:string"].startswith("WRONGTYPE")
    assert "bytes, expected 1 to 255 (and 2 more members)" in problems["played:long"]
    assert "(and 3 more members)" in problems["played:scores"]
    with server.client() as c:
        for user in ("both", "long", "scores", "old", "by\xfftes", *[f"u{i}" for i in range(20)]):
            assert c.command("UNSEEN", user, "good", "bad") == [b"bad"]
        assert c.command("LEGACY", "STATE", "string", "both", "u1", "nobody") == [b"left", b"left", b"migrated", b"none"]
    assert b"played:string" in migrate(server, "--problems").stdout
    text = migrate(server, "--status").stdout.decode()
    assert "2  left, because of a problem" in text and "4  keys with a problem" in text
    assert verify(server)["missing"] == 0


def test_forget(make_server, redis):
    """Who is forgotten before, while or after he is migrated stays so; a forgotten item too."""
    with redis.client() as c:
        for user in ("before", "after", "item"):
            zadd(c, f"played:{user}", [(START, "a"), (START, "b")])
    server = make_server(legacy_redis=redis.socket)
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        assert c.command("LEGACY", "NOTE", "before", "after", "item") == [b"noted", 3, b"forgotten", 0]
        assert c.command("FORGET", "before") == 1
        assert c.command("FORGET", "item", "a") == 0
        c.command("LEGACY", "RESUME")
        wait_done(server)
        assert c.command("UNSEEN", "before", "a", "b") == [b"a", b"b"]
        assert c.command("UNSEEN", "item", "a", "b") == [b"a"]
        assert c.command("UNSEEN", "after", "a", "b") == []
        assert c.command("FORGET", "after") == 1
        c.command("LEGACY", "AGAIN")
        assert c.command("LEGACY", "NOTE", "before", "after", "item") == [b"noted", 0, b"forgotten", 2]
        last = wait_done(server)
        assert last[b"forgotten"] == 2 and last[b"migrated"] == 1
        for user in ("before", "after"):
            assert c.command("UNSEEN", user, "a", "b") == [b"a", b"b"]
        assert c.command("UNSEEN", "item", "a", "b") == [b"a"]
    assert server.sqlite("staging.db", "SELECT count(*) FROM noted WHERE user IN ('before', 'after')") == "0"


def test_pause_is_durable(make_server, redis):
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_server(legacy_redis=redis.socket)
    migrate(server, "--pause")
    migrate(server, "--scan")
    server.kill()
    server.start()
    assert wait_status(server, lambda s: s[b"state"] == b"paused")[b"waiting"] == 1
    assert ask_unseen(server, "u", "a") == [b"a"]
    migrate(server, "--resume")
    wait_done(server)
    assert ask_unseen(server, "u", "a") == []


def test_stopped_redis(make_server, redis):
    """One that answers nothing pauses the migration, never the service."""
    with redis.client() as c:
        zadd(c, "played:u", [(START, "a")])
    server = make_server(legacy_redis=redis.socket)
    freeze(redis.process)
    with server.client() as c:
        c.command("LEGACY", "NOTE", "u")
        stuck = wait_status(server, lambda s: s[b"state"] == b"waiting")
        assert b"no answer for 5 s" in stuck[b"cause"]
        c.command("PLAYED", "u", "b")
        assert c.command("UNSEEN", "u", "a", "b") == [b"a"]
        thaw(redis.process)
        wait_done(server)
        assert c.command("UNSEEN", "u", "a", "b") == []


def test_password(make_server, folder):
    old = OldRedis(folder / "redis")
    old.ask("CONFIG", "SET", "requirepass", "right")
    try:
        with old.client() as c:
            c.command("AUTH", "right")
            zadd(c, "played:u", [(START // 1000, "a")])
        server = make_server(legacy_redis=old.socket, legacy_password="wrong", legacy_score="s")
        with server.client() as c:
            c.command("LEGACY", "NOTE", "u")
        stuck = wait_status(server, lambda s: s[b"state"] == b"waiting")
        assert b"WRONGPASS" in stuck[b"cause"] and b"wrong" not in stuck[b"cause"].split(b"WRONGPASS")[0]
        assert stuck[b"waiting"] == 1 and stuck[b"problems"] == 0
        server.options["legacy_password"] = "right"
        server.restart()
        wait_done(server)
        assert ask_unseen(server, "u", "a") == []
    finally:
        old.kill()


class Stub(threading.Thread):
    """Answers every command but AUTH and SELECT with one line."""

    def __init__(self, line):
        super().__init__(daemon=True)
        self.line = line
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        with peer, peer.makefile("rb") as f:
            while (head := f.readline()):
                words = []
                for _ in range(int(head[1:])):
                    words.append(f.read(int(f.readline()[1:]) + 2)[:-2])
                peer.sendall(b"+OK\r\n" if words[0] == b"SELECT" else self.line)


@pytest.mark.parametrize("line, state, what", [
    (b"-MOVED 3999 127.0.0.1:6381\r\n", "left", "MOVED 3999 127.0.0.1:6381"),
    (b"-LOADING Redis is loading the dataset in memory\r\n", "waiting", "LOADING"),
    (b"*1\r\n$1\r\nx\r\n", "waiting", "no page of a sorted set"),
    (b"$1\r\nx\r\n", "waiting", "no page of a sorted set"),
    (b"rubbish\r\n", "waiting", "expected one of"),
])
def test_strange_answers(make_server, line, state, what):
    stub = Stub(line)
    server = make_server(legacy_redis=f"127.0.0.1:{stub.port}", legacy_cluster="no")
    with server.client() as c:
        c.command("LEGACY", "NOTE", "u1", "u2")
        if state == "left":
            last = wait_done(server)
            assert last[b"left"] == 2
            listed = [(p["key"], p["problem"]) for p in migrate(server, "--problems", "--json")]
            assert sorted(k for k, _ in listed) == ["delivered:u1", "delivered:u2", "played:u1", "played:u2"]
            assert all(what in p for _, p in listed)
        else:
            stuck = wait_status(server, lambda s: s[b"state"] == b"waiting")
            assert what.encode() in stuck[b"cause"] and stuck[b"waiting"] == 2
        c.command("PLAYED", "u1", "a")
        assert c.command("UNSEEN", "u1", "a", "b") == [b"b"]
    stub.listener.close()


@pytest.mark.parametrize("rate", ["legacy_users_rate", "legacy_bytes_rate"])
def test_rate(make_server, redis, rate):
    """One a second, while a client comes and goes, is nearly none of three thousand; a new rate counts at once."""
    with redis.client() as c:
        for i in range(3000):
            zadd(c, f"played:u{i}", [(START, "a")])
    server = make_server(legacy_redis=redis.socket, **{rate: "1"})
    migrate(server, "--scan")
    wait_status(server, lambda s: s[b"bytes"] > 0)
    migrate(server, "--pause")
    assert wait_status(server, lambda s: s[b"state"] == b"paused")[b"users"] < 100
    migrate(server, "--resume")
    wait_status(server, lambda s: s[b"state"] == b"reading")
    reload(server, **{rate: "0"})
    assert wait_done(server)[b"migrated"] == 3000


@pytest.mark.parametrize("restored", [True, False])
def test_comes_back_empty(make_server, redis, restored):
    """An absent key is a user without plays, so nobody is read from a Redis that has lost its data."""
    redis.zadd("other", [(1, "x")])
    with redis.client() as c:
        for i in range(600):
            zadd(c, f"played:u{i}", [(START, "a")])
    server = make_server(legacy_redis=redis.socket, legacy_users_rate="100")
    migrate(server, "--scan")
    wait_status(server, lambda s: s[b"migrated"] > 0)
    redis.kill()
    redis.start("--appendonly", "no")
    stuck = wait_status(server, lambda s: s[b"state"] == b"waiting" and b"if it lost its data" in s[b"cause"])
    assert b"has 0 keys, and had 601 before it was away" in stuck[b"cause"]
    assert server.log().count("may have lost its data") == 1
    reload(server, legacy_users_rate="0")
    if restored:
        redis.kill()
        redis.start()
        assert wait_done(server)[b"migrated"] == 600
        assert verify(server)["missing"] == 0 and ask_unseen(server, "u599", "a") == []
    else:
        assert status(server)[b"migrated"] == stuck[b"migrated"]
        migrate(server, "--pause")
        wait_status(server, lambda s: s[b"state"] == b"paused")
        migrate(server, "--resume")
        assert wait_done(server)[b"migrated"] == 600


def test_not_configured(make_server):
    server = make_server()
    with server.client() as c:
        for words in (("NOTE", "u"), ("STATUS",), ("PAUSE",), ("RESUME",), ("AGAIN",), ("PROBLEMS",), ("STATE", "u")):
            with pytest.raises(RespError, match=r"set redis in the section \[legacy\]"):
                c.command("LEGACY", *words)
    result = run("migrate", "--status", "-c", server.config, check=False)
    assert result.returncode == 1 and b"set redis in its section [legacy]" in result.stderr


def test_bad_input(make_server, redis, folder):
    server = make_server(legacy_redis=redis.socket)
    with server.client() as c:
        for words, said in [(("NOTE", ""), "user 1 is empty"), (("NOTE", "ok", "x" * 256), "user 2 has 256 bytes"),
                            (("PROBLEMS", "0"), "1 to 1000"), (("PROBLEMS", "x"), "1 to 1000"),
                            (("STATE", ""), "user 1 is empty")]:
            with pytest.raises(RespError, match=said):
                c.command("LEGACY", *words)
        assert c.command("LEGACY", "STATE", "ok") == [b"none"]
    keys = folder / "keys"
    keys.write_bytes(b"played:a\n\n" + b"x" * 300 + b"\ndelivered:b\r\n\r\nnul\0\nnot\xffutf-8\nplayed:\nplayed:" +
                     b"y" * 256 + b"\n" + b"z" * 100000 + b"\n" + b"w" * 255 + b"\nlast")
    text = migrate(server, "--keys", keys).stdout.decode()
    assert ": 6 users found, 6 new\n" in text
    assert 'passed over, since they hold no id of 1 to 255 bytes; the first: line 3, "xxx' in text
    with server.client() as c:
        users = (b"a", b"b", b"nul\0", b"not\xffutf-8", b"w" * 255, b"last")
        assert b"none" not in c.command("LEGACY", "STATE", *users)
        assert c.command("LEGACY", "STATE", "played:", "b\r", "w") == [b"none"] * 3
    for args in ((), ("--scan", "--status"), ("--status", "7"), ("--verify", "x"), ("--verify", "0")):
        assert run("migrate", *args, "-c", server.config, check=False).returncode == 2
    missing = run("migrate", "--keys", folder / "none", "-c", server.config, check=False)
    assert missing.returncode == 1 and b"none" in missing.stderr
