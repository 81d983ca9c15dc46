"""How a Redis in front is shown and handled: FRONT, unseen front, INFO, /v1/status, the metrics."""
import json

import pytest

from conftest import run
from old_redis import REDIS, OldRedis, wait
from resp import RespError, flat
from test_http import Asker
from test_metrics import scrape
from test_page import validate

pytestmark = pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
NONE = "there is no front: set redis in the section [front]"


@pytest.fixture
def redis(folder):
    redis = OldRedis(folder / "front", "--appendonly", "no")
    yield redis
    redis.kill()


@pytest.fixture
def primary(make_server, redis):
    """With some users, all of them in the front, where each play came as an event: it was full before."""
    server = make_server(http="127.0.0.1:0", front_redis=f"unix:{redis.socket}", front_users_rate="0")
    until_in_step(server)
    with server.client() as c:
        for i in range(20):
            c.command("PLAYED", f"u{i}", "a", "b")
    until_in_step(server)
    return server


def status(server):
    with server.client() as c:
        return flat(c.command("FRONT", "STATUS"))


def until_in_step(server):
    def in_step():
        shown = status(server)
        return shown["state"] == b"in step" and shown["full"] == 1 and shown["waiting"] == 0

    wait(in_step, lambda: status(server))


def front(server, *words, check=True):
    return run("front", *words, "--data", server.data, check=check)


def test_none(make_server):
    server = make_server(http="127.0.0.1:0")
    with server.client() as c:
        for words in (("FRONT",), ("FRONT", "STATUS"), ("FRONT", "RECONCILE"), ("FRONT", "REBUILD")):
            with pytest.raises(RespError, match=f"^ERR {NONE.replace('[', '.').replace(']', '.')}$"):
                c.command(*words)
        assert c.command("INFO", "front") == b"# Front\r\nfront_state:off\r\nfront_cause:\r\nfront_redis:\r\n"
    for word in ("--status", "--reconcile", "--rebuild"):
        done = front(server, word, check=False)
        assert done.returncode == 1 and NONE in done.stderr.decode() and done.stdout == b""
    assert not [name for name in scrape(server) if name.startswith("unseen_front_")]


def test_misuse(folder):
    for words, said in (((), "expected one of"), (("--status", "--rebuild"), "expected one of"),
                        (("--reconcile", "--json"), "--json goes with --status"),
                        (("--status", "--no-wait"), "--no-wait goes with"), (("--status", "u"), "no argument")):
        done = run("front", *words, check=False)
        assert done.returncode == 2 and said in done.stderr.decode(), words


def test_status(primary, redis):
    shown = json.loads(front(primary, "--status", "--json").stdout)
    said = status(primary)
    assert list(shown) == list(said)
    assert shown["state"] == "in step" and shown["full"] == 1 and shown["redis"] == f"unix:{redis.socket}"
    assert shown["events"] == 40 and shown["differences"] == 0 and shown["named"] == [] and shown["epoch"] == 1
    text = front(primary, "--status").stdout.decode()
    assert text.startswith("front     in step, full\n") and "sent      40 events" in text
    with primary.client() as c:
        info = dict(line.split(":", 1) for line in c.command("INFO", "front").decode().split("\r\n") if ":" in line)
    assert info["front_state"] == "in step" and info["front_events"] == "40" and info["front_up"] == "1"
    served = scrape(primary)
    assert served["unseen_front_full"] == 1 and served["unseen_front_events_total"] == 40


def test_one_that_is_away(primary, redis):
    redis.kill()
    wait(lambda: status(primary)["state"] == b"waiting")
    with primary.client() as c:
        c.command("PLAYED", "u1", "c")
    done = front(primary, "--status", check=False)
    text = done.stdout.decode()
    assert done.returncode == 1 and text.startswith("front     waiting, full, since 20") and "waiting   1 event, " in text
    assert f"cause     unix:{redis.socket}" in text or "\ncause     " in text
    assert scrape(primary)["unseen_front_up"] == 0
    done = front(primary, "--reconcile", check=False)
    assert done.returncode == 1 and "the front is not full now" in done.stderr.decode()


def test_reconcile(primary, redis):
    assert front(primary, "--reconcile").stdout.decode() == "20 users compared, none differs\n"
    assert redis.ask("DEL", "unseen:w:u3", "unseen:t:u3", "unseen:w:u4", "unseen:t:u4") >= 2
    done = front(primary, "--reconcile", check=False)
    text = done.stdout.decode()
    assert done.returncode == 1 and text.startswith("20 users compared, 2 differed and were sent again:\n")
    assert sorted(line.split(":")[0] for line in text.splitlines()[1:]) == ['  "u3"', '  "u4"']
    assert redis.ask("EXISTS", "unseen:w:u3", "unseen:w:u4") == 2
    assert front(primary, "--reconcile").stdout.decode() == "20 users compared, none differs\n"
    assert scrape(primary)["unseen_front_differences_total"] == 2
    assert "2 differed" in front(primary, "--status").stdout.decode()
    assert b"--status tells how far" in front(primary, "--reconcile", "--no-wait").stdout
    wait(lambda: status(primary)["comparing"] == 0)


def test_rebuild(primary, redis):
    """What stood there is gone, also what nobody knows of."""
    for i in range(500):
        redis.ask("HSET", f"unseen:w:ghost{i}", "r", "7")
    redis.ask("ZADD", "unseen:t:ghost", "9", "nonsense")
    redis.ask("SET", "other:w:ghost", "stays")
    assert front(primary, "--rebuild").stdout.decode() == "20 users brought in, the front is full\n"
    keys = {key.decode() for key in redis.ask("KEYS", "*")}
    assert keys == {"unseen:meta", "other:w:ghost", *[f"unseen:w:u{i}" for i in range(20)]}
    assert front(primary, "--reconcile").stdout.decode() == "20 users compared, none differs\n"
    assert b"--status tells how far" in front(primary, "--rebuild", "--no-wait").stdout
    wait(lambda: status(primary)["rebuilds"] == 3 and status(primary)["full"] == 1)


def test_two_writers(primary, redis, make_server):
    """The first one is shut out by the second, says so, and is back with a rebuild."""
    second = make_server(front_redis=f"unix:{redis.socket}")
    until_in_step(second)
    wait(lambda: status(primary)["state"] == b"fenced", lambda: status(primary))
    done = front(primary, "--status", check=False)
    assert done.returncode == 1 and done.stdout.decode().startswith("front     fenced, ")
    assert scrape(primary)["unseen_front_fenced"] == 1
    assert front(primary, "--rebuild").stdout.decode() == "20 users brought in, the front is full\n"
    wait(lambda: status(second)["state"] == b"fenced", lambda: status(second))
    assert front(primary, "--status").returncode == 0


def test_http(primary):
    with primary.client() as c:
        c.command("FRONT", "RECONCILE")
    wait(lambda: status(primary)["reconciled_at"] != 0)
    with Asker(primary) as asker:
        said = asker.good("GET", "/v1/status")
    validate(said, "Status")
    assert said["front"]["state"] == "in step" and said["front"]["full"] is True and said["front"]["compared"] == 20
    assert said["figures"]["front_events"] == 40
