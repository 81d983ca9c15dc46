"""serve --front-only: questions answered from what stands in the front's Redis, without a folder. The test writes there
what a writer would (src/front/layout.h), with blobs of a real folder."""
import json
import re
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import BUILD, PATIENCE, Server, free_port, http_url, run
from front_redis import FrontRedis, TrickleWire
from old_redis import REDIS, OldRedis, wait
from resp import RespError, encode
from unseen_grpc import Grpc

pytestmark = pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
SEED = "0123456789abcdef"
NO_WRITES = "this server answers from a front and takes no writes; send them to the primary"
PLAY, DELIVERY = 1, 2


def now_ms():
    return int(time.time() * 1000)


def this_month():
    t = time.gmtime()
    return t.tm_year * 12 + t.tm_mon - 1


def month_field(month):
    return f"m{month // 12:04}{month % 12 + 1:02}"


class Folder:
    """A server with a folder and the same seed: its hashes, and what it has of a user."""

    def __init__(self, server):
        self.server = server

    def sql(self, file, sql):
        told = subprocess.run(["sqlite3", "-readonly", "-batch", "-cmd", f".load {BUILD / 'unseen.so'}",
                               str(self.server.data / file), sql], capture_output=True, text=True, timeout=PATIENCE)
        assert told.returncode == 0, told.stderr
        return told.stdout.split()

    def hash(self, item):
        return int(self.sql("history.db", f"SELECT unseen_hash('{item}')")[0]) & (1 << 64) - 1

    def month(self, user):
        return bytes.fromhex(self.sql("history.db", f"SELECT hex(filter) FROM plays WHERE user = '{user}'")[0])

    def delivered(self, user):
        return bytes.fromhex(self.sql("history.db", f"SELECT hex(items) FROM deliveries WHERE user = '{user}'")[0])


class Front:
    """What a writer does, by hand."""

    def __init__(self, redis, folder):
        self.redis, self.folder = redis, folder
        self.prefix = "unseen:"

    def ask(self, *words):
        return self.redis.ask(*words)

    def meta(self, **fields):
        told = {"v": 1, "seed": SEED, "node": "00000000000000aa", "run": "00000000000000bb", "epoch": 7, "to": 1000,
                "full": 1, "at": now_ms(), "ev": 0, **fields}
        self.ask("HSET", self.prefix + "meta", *[word for pair in told.items() for word in pair])

    def state(self, user, revision, **fields):
        self.ask("DEL", f"{self.prefix}w:{user}")
        self.ask("HSET", f"{self.prefix}w:{user}", "r", revision, *[word for pair in fields.items() for word in pair])

    def plays(self, *items, month=None):
        return b"".join(struct.pack("<QI", self.folder.hash(item), month or this_month()) for item in items)

    def event(self, user, seq, kind, item, month=None):
        member = struct.pack("<BQI", kind, self.folder.hash(item), month or this_month())
        self.ask("ZADD", f"{self.prefix}t:{user}", seq, member + (item.encode() if kind == DELIVERY else b""))


class Reader(Server):
    def spawn(self, *args):
        self.options.pop("store", None)
        super().spawn("--front-only", *args)


@pytest.fixture
def source(make_server):
    return Folder(make_server(hash_seed=SEED, clock=None, store="sqlite"))


@pytest.fixture
def front(folder, source):
    redis = OldRedis(folder / "redis")
    front = Front(redis, source)
    front.meta()
    yield front
    redis.kill()


@pytest.fixture
def make_reader(folder, front):
    readers = []

    def make(start=True, **options):
        own = folder / f"reader{len(readers)}"
        own.mkdir()
        options.setdefault("front_redis", f"unix:{front.redis.socket}")
        reader = Reader(own, clock=None, wait=False, **options)
        readers.append(reader)
        return reader.start() if start else reader

    yield make
    for reader in readers:
        assert reader.stop() in (0, None) or not reader.alive(), reader.log()
        assert "Sanitizer" not in reader.log() and "runtime error:" not in reader.log(), reader.log()


def ask(reader, *words):
    with reader.client() as c:
        return c.command(*words)


def refused(reader, *words):
    with pytest.raises(RespError) as told:
        ask(reader, *words)
    return str(told.value)


def answers(reader, *words):
    try:
        return ask(reader, *words)
    except RespError as e:
        return e


def until(reader, wanted, *words):
    """Asks until that is the answer, or an error with that text."""
    def is_so():
        told = answers(reader, *words)
        return wanted in str(told) if isinstance(wanted, str) else told == wanted
    wait(is_so, lambda: (wanted, answers(reader, *words), reader.log()[-3000:]))


def web(reader, path, body=None, method=None):
    """(status, JSON or text)"""
    request = urllib.request.Request(http_url(reader) + path, method=method,
                                     data=None if body is None else json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            status, text = reply.status, reply.read()
    except urllib.error.HTTPError as e:
        status, text = e.code, e.read()
    return status, json.loads(text) if text[:1] in b"{[" else text.decode()


def info(reader):
    text = ask(reader, "INFO", "front").decode()
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


def test_the_frame_is_the_writers(front, make_reader):
    """The window and delivered_max of who writes, by its clock; a writer of 0.1.0 says none, and the reader's own count."""
    month = this_month()
    reader = make_reader(window=1, delivered_max=100)
    front.state("u", 900, p=front.plays("old", month=month - 3) + front.plays("new"))
    for i in range(3):
        front.event("u", 901 + i, DELIVERY, f"d{i}")
    items = ["old", "new", "d0", "d2", "x"]
    assert ask(reader, "UNSEEN", "u", *items) == [b"old", b"x"]
    front.meta(first=month_field(month - 3)[1:], most=2)
    assert ask(reader, "UNSEEN", "u", *items) == [b"d0", b"x"]
    front.meta(first=month_field(month + 1)[1:], most=3)
    assert ask(reader, "UNSEEN", "u", *items) == [b"old", b"new", b"x"]
    for wrong in ({"first": "2026-9"}, {"first": "202613"}, {"first": "20260"}, {"most": 10001}, {"most": "all"}):
        front.meta(**{"first": month_field(month)[1:], "most": 2, **wrong})
        until(reader, "the front's meta", "UNSEEN", "u", "x")


def test_what_stands_there_is_answered(front, make_reader, source):
    with source.server.client() as c:
        c.command("PLAYED", "blobbed", *(f"v{i}" for i in range(40)))
        c.command("DELIVERED", "blobbed", "d1", "d2")
        c.command("RING", "FLUSH")
    month = this_month()
    front.state("staged", 10, p=front.plays("a", "b"))
    front.event("staged", 11, PLAY, "c")
    front.event("staged", 12, DELIVERY, "d")
    front.event("late", 13, PLAY, "e")  # of a user without a state
    front.state("blobbed", 20, **{month_field(month): source.month("blobbed"), "d": source.delivered("blobbed"),
                                  "x": struct.pack("<QQ", source.hash("v7"), source.hash("v8"))})
    front.event("blobbed", 21, PLAY, "v8")  # played again, after it was un-seen
    front.state("forgotten", 30)  # nothing but a revision
    front.state("old", 40, p=front.plays("a", month=month - 60))
    reader = make_reader(http="127.0.0.1:0", grpc="127.0.0.1:0")
    with reader.client() as c:
        assert c.command("UNSEEN", "staged", "a", "b", "c", "d", "e") == [b"e"]
        assert c.command("SEEN", "late", "e", "f") == [1, 0]
        items = [f"v{i}" for i in range(40)] + ["d1", "d2", "new"]
        assert c.command("UNSEEN", "blobbed", *items) == [b"v7", b"new"]
        assert c.command("UNSEEN", "forgotten", "a") == [b"a"]
        assert c.command("UNSEEN", "unknown", "a", "b") == [b"a", b"b"]
        assert c.command("UNSEEN", "old", "a") == [b"a"]
        assert c.command("WHY", "staged", "d") == [b"delivered"] and c.command("WHY", "staged", "c") == [b"staged"]
        assert c.command("WHY", "blobbed", "v1") == [f"{month // 12}-{month % 12 + 1:02}".encode()]
        assert c.command("HISTORY", "forgotten") is None and c.command("HISTORY", "unknown") is None
        assert c.command("HISTORY", "old") is not None
        # Sessions are this node's own.
        assert c.command("BLOCK", "s", "z") == 1
        assert c.command("FILTER", "staged", "SESSION", "s", "ITEMS", "a", "y", "z") == [b"y"]
        assert c.command("UNBLOCK", "s", "z") == 1
        assert c.command("FILTER", "staged", "SESSION", "s", "LIMIT", "1", "ITEMS", "a", "y", "z") == [b"y"]
        assert c.command("ROLE")[0] == b"slave"
        replication = c.command("INFO", "replication").decode()
        assert "role:slave\r\n" in replication and "master_link_status:up\r\n" in replication
    status, told = web(reader, "/v1/unseen", {"user": "staged", "items": ["a", "d", "e"]})
    assert status == 200 and told["items"] == ["e"], told
    with Grpc(reader) as g:
        assert list(g.ask("Filter", user="staged", items=["a", "d", "e"], reply=2).items) == ["e"]
    # What changes there is seen by the next question.
    front.event("late", 14, PLAY, "f")
    assert ask(reader, "SEEN", "late", "e", "f") == [1, 1]
    assert web(reader, "/readyz")[0] == 200 and web(reader, "/healthz")[0] == 200
    assert web(reader, "/readyz?role=replica")[0] == 200 and web(reader, "/readyz?role=primary")[0] == 503
    shown = info(reader)
    assert shown["front_only"] == "1" and shown["front_to"] == "1000" and shown["front_cause"] == "", shown
    assert 0 <= int(shown["front_age_ms"]) < 1000 * PATIENCE
    metrics = web(reader, "/metrics")[1]
    described = re.findall(r"^# TYPE (\S+)", metrics, re.M)
    assert len(described) == len(set(described))
    assert "\nunseen_front_only 1\n" in metrics and "\nunseen_front_answers 1\n" in metrics
    assert re.search(r"\nunseen_front_age_seconds [0-9.]+\n", metrics) and "\nunseen_writes_refused 0\n" in metrics
    assert web(reader, "/v1/status")[1]["replication"]["role"] == "replica"
    assert not reader.data.exists()


def test_writes_are_refused(front, make_reader):
    reader = make_reader(http="127.0.0.1:0", grpc="127.0.0.1:0")
    for words in (("PLAYED", "u", "a"), ("DELIVERED", "u", "a"), ("PLAYEDAT", "u", now_ms(), "a"), ("FORGET", "u"),
                  ("FORGET", "u", "a"), ("FILTER", "u", "LIMIT", "1", "DELIVER", "ITEMS", "a")):
        assert refused(reader, *words) == f"READONLY {NO_WRITES}", words
    assert ask(reader, "UNSEEN", "u", "a") == [b"a"]
    for path, body, method in (("/v1/played", {"user": "u", "items": ["a"]}, "POST"), ("/v1/users/u", None, "DELETE"),
                               ("/v1/unseen", {"user": "u", "items": ["a"], "limit": 1, "deliver": True}, "POST")):
        status, told = web(reader, path, body, method)
        assert (status, told["detail"]) == (421, NO_WRITES), told
    with Grpc(reader) as g:
        assert g.refused("Played", user="u", items=["a"]) == ("FAILED_PRECONDITION", NO_WRITES)
        assert g.refused("Forget", user="u", items=["a"]) == ("FAILED_PRECONDITION", NO_WRITES)
        assert g.refused("Filter", user="u", items=["a"], reply=2, limit=1,
                         deliver=True) == ("FAILED_PRECONDITION", NO_WRITES)
    for words in (("RING", "FLUSH"), ("MONTHS",), ("BACKUP", "/tmp/nowhere"), ("CLOCK", "ACCEPT")):
        assert isinstance(answers(reader, *words), RespError), words
    assert front.ask("KEYS", "*") == [b"unseen:meta"]


def test_until_it_is_full(front, make_reader):
    front.meta(full=0, walk=-5)
    reader = make_reader(http="127.0.0.1:0", grpc="127.0.0.1:0")
    assert refused(reader, "UNSEEN", "u", "a") == "MASTERDOWN not all users are in the front yet"
    status, told = web(reader, "/readyz")
    assert (status, told["detail"]) == (503, "questions are refused: not all users are in the front yet")
    assert web(reader, "/healthz")[0] == 200
    with Grpc(reader) as g:
        assert g.refused("Filter", user="u", items=["a"])[0] == "UNAVAILABLE"
    front.meta()
    assert ask(reader, "UNSEEN", "u", "a") == [b"a"]  # at once: each question reads meta
    wait(lambda: web(reader, "/readyz")[0] == 200, reader.log)
    front.ask("DEL", "unseen:meta")
    assert "its writer has not begun" in refused(reader, "UNSEEN", "u", "a")
    wait(lambda: web(reader, "/readyz")[0] == 503, reader.log)
    front.meta(seed="00000000000000ff")
    assert "what stands in the front has another seed" in refused(reader, "UNSEEN", "u", "a")
    front.meta(node="00000000000000cc", epoch=8, to=5)
    until(reader, [b"a"], "UNSEEN", "u", "a")
    wait(lambda: info(reader)["front_node"] == "00000000000000cc" and info(reader)["front_to"] == "5", reader.log)
    front.meta(v=99)
    assert "has layout 99, this version reads 2" in refused(reader, "UNSEEN", "u", "a")
    front.meta(epoch="nine")
    assert "the front's meta" in refused(reader, "UNSEEN", "u", "a")
    front.meta()
    assert ask(reader, "UNSEEN", "u", "a") == [b"a"]


def test_max_age(front, make_reader):
    front.meta(at=now_ms() - 3600 * 1000)
    reader = make_reader(http="127.0.0.1:0", front_max_age="1min")
    text = refused(reader, "UNSEEN", "u", "a")
    assert re.fullmatch(r"MASTERDOWN what stands in the front is 36\d\d\.\d s old, more than front_max_age allows "
                        r"\(60\.0 s\)", text), text
    assert web(reader, "/readyz")[0] == 503 and int(info(reader)["front_age_ms"]) >= 3600 * 1000
    assert "\nunseen_front_answers 0\n" in web(reader, "/metrics")[1]
    front.meta(at=now_ms() + 60 * 1000)  # its clock is ahead: that is no age
    assert ask(reader, "UNSEEN", "u", "a") == [b"a"]
    wait(lambda: web(reader, "/readyz")[0] == 200 and info(reader)["front_age_ms"] == "0", reader.log)
    front.meta(at=now_ms() - 3600 * 1000)
    assert "s old" in refused(reader, "UNSEEN", "u", "a")
    text = reader.config.read_text()
    reader.config.write_text(text.replace("1min", "2h"))
    reader.process.send_signal(1)
    until(reader, [b"a"], "UNSEEN", "u", "a")


def test_users_that_it_cant_answer_for(front, make_reader, source):
    with source.server.client() as c:
        c.command("PLAYED", "u", *(f"v{i}" for i in range(40)))
        c.command("RING", "FLUSH")
    field, blob = month_field(this_month()), source.month("u")
    front.state("giant", 10, g=1)
    front.state("crowded", 10)
    with front.redis.client() as c:
        c.pipeline([("ZADD", "unseen:t:crowded", 11 + i, struct.pack("<BQI", PLAY, i, this_month()))
                    for i in range(8193)])
    front.state("stale", 10, s=11, p=front.plays("a"))
    front.state("caught-up", 11, s=11, p=front.plays("a"))
    front.state("damaged", 10, b=1)
    front.state("corrupt", 10, **{field: blob[:-9] + bytes(9)})
    front.state("strange", 10, q=1)
    front.state("short", 10, p=b"123")
    front.state("deliveries", 10, d=b"xyz")
    front.state("good", 10, **{field: blob})
    front.ask("SET", "unseen:w:string", "no hash")
    reader = make_reader(http="127.0.0.1:0", grpc="127.0.0.1:0")

    def check():
        for user in ("giant", "crowded"):
            for words in (("UNSEEN", user, "a"), ("WHY", user, "a"), ("HISTORY", user)):
                assert refused(reader, *words) == ("ERR the front holds no users of more than 512 KiB: ask a node that "
                                                   "has a folder"), user
        text = refused(reader, "UNSEEN", "stale", "a")
        assert text == "MASTERDOWN the front does not have this user's newest state yet"
        assert ask(reader, "UNSEEN", "caught-up", "a", "b") == [b"b"]
        assert "the front lacks parts of this user" in refused(reader, "UNSEEN", "damaged", "a")
        for user in ("corrupt", "strange", "short", "deliveries"):
            assert refused(reader, "UNSEEN", user, "a").startswith("ERR "), user
        assert "WRONGTYPE" in refused(reader, "UNSEEN", "string", "a")
        assert ask(reader, "UNSEEN", "good", "v1", "a") == [b"a"]
    check()
    check()
    status, told = web(reader, "/v1/unseen", {"user": "giant", "items": ["a"]})
    assert status == 501 and "ask a node that has a folder" in told["detail"], told
    assert web(reader, "/v1/unseen", {"user": "corrupt", "items": ["a"]})[0] == 500
    with Grpc(reader) as g:
        assert g.refused("Filter", user="giant", items=["a"])[0] == "UNIMPLEMENTED"
        assert g.refused("Filter", user="corrupt", items=["a"])[0] == "DATA_LOSS"
        assert g.refused("Filter", user="stale", items=["a"])[0] == "UNAVAILABLE"
    stats = ask(reader, "INFO", "stats").decode()
    assert "\r\nlarge_questions:0\r\n" in stats, stats  # no thread was asked a second time


def test_redis_stops_and_goes_on(front, make_reader):
    front.event("u", 5, PLAY, "a")
    reader = make_reader(http="127.0.0.1:0")
    assert ask(reader, "UNSEEN", "u", "a", "b") == [b"b"]
    front.redis.pause()
    until(reader, "MASTERDOWN the front can't be read", "UNSEEN", "u", "a", "b")
    wait(lambda: info(reader)["front_reached"] == "0", reader.log)
    assert web(reader, "/readyz")[0] == 503 and web(reader, "/healthz")[0] == 200
    began = time.monotonic()  # now nobody waits for it any more
    for _ in range(50):
        assert "the front can't be read" in refused(reader, "UNSEEN", "u", "a")
    assert time.monotonic() - began < PATIENCE / 20
    front.redis.go_on()
    until(reader, [b"b"], "UNSEEN", "u", "a", "b")
    wait(lambda: web(reader, "/readyz")[0] == 200, reader.log)


def test_redis_has_evicted(front, make_reader):
    """Known with the answer itself, so that nobody is taken for unknown."""
    front.event("u", 5, PLAY, "a")
    reader = make_reader()
    assert ask(reader, "UNSEEN", "u", "a", "b") == [b"b"]
    front.ask("SET", "victim", "x", "EX", 1000)
    with front.redis.client() as c, reader.client() as asker:
        c.pipeline([("CONFIG", "SET", "maxmemory-policy", "volatile-ttl"), ("CONFIG", "SET", "maxmemory", 1),
                    ("SET", "x", "y"), ("CONFIG", "SET", "maxmemory", 0),
                    ("CONFIG", "SET", "maxmemory-policy", "noeviction")])
        assert c.command("EXISTS", "victim") == 0
        with pytest.raises(RespError, match="MASTERDOWN .* has evicted keys"):
            asker.command("UNSEEN", "u", "a")
    wait(lambda: "has evicted keys" in info(reader)["front_cause"], reader.log)
    front.meta(ev=1)
    until(reader, [b"b"], "UNSEEN", "u", "a", "b")


def test_a_long_text(front, make_reader):
    for user in ("u", "v"):
        front.event(user, 5, PLAY, "a")
    reader = make_reader()
    assert ask(reader, "UNSEEN", "u", "a", "b") == [b"b"]
    front.ask("HSET", "unseen:w:u", "r", 4, "p", b"x" * (3 << 20))
    assert "a user in the front: more than 3145728 bytes" in refused(reader, "UNSEEN", "u", "a")
    assert ask(reader, "UNSEEN", "v", "a", "b") == [b"b"]


def test_redis_answers_byte_by_byte(folder, source, make_reader):
    """It is away, for questions and for those who ask whether this server is ready; and it holds up no stop."""
    redis = FrontRedis(folder / "slow")
    wire = TrickleWire(redis.port)
    try:
        front = Front(redis, source)
        front.meta()
        front.event("u", 5, PLAY, "a")
        reader = make_reader(front_redis=wire.address, http="127.0.0.1:0", question_timeout="20s")
        assert ask(reader, "UNSEEN", "u", "a", "b") == [b"b"]
        wire.slow = True
        until(reader, "MASTERDOWN the front can't be read", "UNSEEN", "u", "a", "b")
        wait(lambda: info(reader)["front_reached"] == "0", reader.log)
        assert web(reader, "/readyz")[0] == 503 and web(reader, "/healthz")[0] == 200
        wire.slow = False
        until(reader, [b"b"], "UNSEEN", "u", "a", "b")
        wait(lambda: web(reader, "/readyz")[0] == 200, reader.log)
        wire.slow = True
        assert reader.stop() == 0
        wire.slow = False
    finally:
        wire.stop()
        redis.kill()


def test_many_wait_while_redis_hangs(front, make_reader):
    """More than there are threads: none waits for its turn at a dead Redis, and the server ends at once."""
    front.event("u", 5, PLAY, "a")
    reader = make_reader()
    until(reader, [b"b"], "UNSEEN", "u", "a", "b")
    clients = [reader.client() for _ in range(300)]
    front.redis.pause()
    for c in clients:
        c.send(encode("UNSEEN", "u", "a", "b"))
    began = time.monotonic()
    told = [c.read() for c in clients]
    assert time.monotonic() - began < 10 + PATIENCE / 20
    assert all(isinstance(reply, RespError) for reply in told)
    front.redis.go_on()
    until(reader, [b"b"], "UNSEEN", "u", "a", "b")
    front.redis.pause()
    for c in clients:
        c.send(encode("UNSEEN", "u", "a", "b"))
    assert reader.stop() == 0
    front.redis.go_on()
    for c in clients:
        c.close()


def test_redis_dies_and_comes_back(front, make_reader):
    front.event("u", 5, PLAY, "a")
    reader = make_reader()
    until(reader, [b"b"], "UNSEEN", "u", "a", "b")
    front.redis.kill()
    until(reader, "the front can't be read", "UNSEEN", "u", "a", "b")
    front.redis.start()
    until(reader, [b"b"], "UNSEEN", "u", "a", "b")
    answered, deadline = 0, time.monotonic() + PATIENCE
    while answered < 10:  # connections that died are no error of a question, unless half of its patience is over
        front.ask("CLIENT", "KILL", "TYPE", "normal")
        try:
            assert ask(reader, "UNSEEN", "u", "a", "b") == [b"b"]
            answered += 1
        except RespError:  # on a busy machine it is, and Redis is lost for a moment: all that is asked then fails
            assert time.monotonic() < deadline, (answered, reader.log()[-2000:])
            until(reader, [b"b"], "UNSEEN", "u", "a", "b")
    front.ask("SCRIPT", "FLUSH")
    assert ask(reader, "UNSEEN", "u", "a", "b") == [b"b"]
    front.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    until(reader, "noeviction is needed", "UNSEEN", "u", "a")
    front.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    until(reader, [b"b"], "UNSEEN", "u", "a", "b")
    log = reader.log()
    assert "the front's Redis is lost" in log and "the front's Redis is there" in log


def test_load(front, make_reader):
    """Many at a time, each gets its own answer."""
    for i in range(40):
        front.event(f"u{i}", 5, PLAY, f"a{i}")
    reader = make_reader()
    wrong = []

    def go(k):
        with reader.client() as c:
            for round_ in range(20):
                replies = c.pipeline([("UNSEEN", f"u{i}", f"a{i}", f"a{(i + 1) % 40}") for i in range(k % 3, 40)])
                for i, reply in zip(range(k % 3, 40), replies):
                    if reply != [f"a{(i + 1) % 40}".encode()]:
                        wrong.append((k, i, reply))

    threads = [threading.Thread(target=go, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]


def test_a_replica_of_that_redis(folder, source):
    """As in another region."""
    port = str(free_port())
    redis = OldRedis(folder / "redis", "--port", port)
    copy = OldRedis(folder / "copy", "--replicaof", "127.0.0.1", port)
    try:
        front = Front(redis, source)
        front.meta()
        front.event("u", 5, PLAY, "a")
        own = folder / "far"
        own.mkdir()
        reader = Reader(own, clock=None, front_redis=f"unix:{copy.socket}")
        until(reader, [b"b"], "UNSEEN", "u", "a", "b")
        front.event("u", 6, PLAY, "b")
        until(reader, [], "UNSEEN", "u", "a", "b")
        assert reader.stop() == 0
    finally:
        copy.kill()
        redis.kill()


def test_password(front, make_reader):
    front.ask("CONFIG", "SET", "requirepass", "secret")
    front.redis.password = "secret"
    reader = make_reader(start=False, front_password="wrong")
    reader.spawn()
    assert reader.process.wait(PATIENCE) != 0
    assert "the password is wrong: it is front_password, of front_user" in reader.log(), reader.log()
    reader = make_reader(front_password="secret")
    assert ask(reader, "UNSEEN", "u", "a") == [b"a"]
    assert "secret" not in reader.log()


def start_fails(reader):
    reader.spawn()
    assert reader.process.wait(PATIENCE) != 0
    return reader.log()


def test_starts_that_fail(front, make_reader, folder):
    for options, text in (({"front_redis": ""}, "--front-only needs front_redis"),
                          ({"replica_of": "127.0.0.1:1"}, "but replica_of is set"),
                          ({"kafka_brokers": "127.0.0.1:1", "kafka_topics": "t"}, "but kafka_brokers is set"),
                          ({"legacy_redis": "127.0.0.1:1"}, "but legacy_redis is set"),
                          ({"backup_at": "03:30"}, "but backup_at is set"),
                          ({"hash_seed": "00000000000000ff"}, "hash_seed is not that of what stands in the front"),
                          ({"front_redis": "unix:" + str(folder / "nobody")}, "nobody")):
        log = start_fails(make_reader(start=False, **options))
        assert text in log, (options, log)
    front.ask("DEL", "unseen:meta")
    assert "its writer has not begun" in start_fails(make_reader(start=False))
    front.meta()
    front.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert "noeviction is needed" in start_fails(make_reader(start=False))
    assert "--front-only" in run("serve", "--help").stdout.decode()


def test_waits_for_its_front(front, make_reader):
    front.redis.kill()
    reader = make_reader(start=False)
    reader.spawn()
    wait(lambda: isinstance(answers_early(reader), RespError), reader.log)
    front.redis.start()
    until(reader, [b"a"], "UNSEEN", "u", "a")


def answers_early(reader):
    try:
        return answers(reader, "UNSEEN", "u", "a")
    except OSError:
        return None


def test_behind_a_primary(make_server, folder):
    """Both halves: a primary writes, a reader answers."""
    redis = OldRedis(folder / "redis")
    try:
        primary = make_server(clock=None, store="sqlite", front_redis=f"unix:{redis.socket}")
        with primary.client() as c:
            c.command("PLAYED", "u", *(f"v{i}" for i in range(40)))
            c.command("RING", "FLUSH")
            c.command("PLAYED", "u", "w")
            c.command("FORGET", "u", "v3")
        own = folder / "behind"
        own.mkdir()
        reader = Reader(own, clock=None, front_redis=f"unix:{redis.socket}", front_max_age="1min")
        until(reader, [b"v3", b"x"], "UNSEEN", "u", "v1", "v2", "v3", "w", "x")
        with primary.client() as c:
            c.command("DELIVERED", "u", "x")
        until(reader, [b"v3"], "UNSEEN", "u", "v1", "v2", "v3", "w", "x")
        ask(primary, "FORGET", "u")
        until(reader, [b"v1", b"w", b"x"], "UNSEEN", "u", "v1", "w", "x")
        assert reader.stop() == 0
    finally:
        redis.kill()


