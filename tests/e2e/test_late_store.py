"""A store that answers later (store = memory:later), and one whose thread stands still: what each edge says meanwhile, and
what is left of it. tests/unit/test_late.c holds the store to the point."""
import concurrent.futures
import contextlib
import re

import pytest

from conftest import until
from old_redis import wait
from resp import RespError, encode
from test_http import Asker
from unseen_grpc import Grpc, grpc

MANY = 100  # more than a worker asks the store at a time
HELD_MS = 10 * 60 * 1000  # until it is told to go on
LATE = "not answered within question_timeout: the store is late"


def stall(server, ms):
    """The next thing that the store is asked takes it so long."""
    with server.client() as c:
        assert c.command("DEBUG", "STALL", "memory", ms) == b"OK"


@pytest.fixture
def make_stalled(make_server):
    def make(ms=HELD_MS, **options):
        server = make_server(store="memory:later", http="127.0.0.1:0", grpc="127.0.0.1:0", workers="1", **options)
        with server.client() as c:
            assert c.command("PLAYED", "u", "a") == 1
        stall(server, ms)
        return server

    return make


def test_many_calls_of_a_connection(make_stalled):
    server = make_stalled()
    with Grpc(server) as calls, server.client() as c, Asker(server) as http:
        request, method = calls.method("Filter")
        asked = [method.future(request(user=f"u{i % 2 or ''}", items=["a", "x"], reply=2)) for i in range(MANY)]
        http.http.request("GET", "/v1/users/u")
        assert c.command("PING") == b"PONG"
        wait(lambda: b"\r\ngrpc_open_calls:%d\r\n" % MANY in c.command("INFO"), server.log)
        stall(server, 0)
        for i, answer in enumerate(asked):
            assert list(answer.result().items) == (["a", "x"] if i % 2 else ["x"])
        assert http.http.getresponse().status == 200


def test_the_time_is_bounded(make_stalled):
    server = make_stalled(question_timeout="50ms")
    with Grpc(server) as calls, server.client() as c, Asker(server) as http:
        for words in (("UNSEEN", "u", "a"), ("WHY", "u", "a"), ("HISTORY", "u")):
            with pytest.raises(RespError, match=LATE):
                c.command(*words)
        status, _, problem = http.ask("POST", "/v1/unseen", {"user": "u", "items": ["a"]})
        assert (status, problem["type"], problem["detail"]) == (503, "urn:unseen:problem:late", LATE)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            refused = pool.map(lambda i: calls.refused("Filter", user=f"u{i}", items=["a"]), range(MANY))
        assert set(refused) == {("DEADLINE_EXCEEDED", LATE)}
    stall(server, 0)
    stop_says_nothing(server)


def test_callers_that_give_up(make_stalled):
    server = make_stalled()
    with Grpc(server) as calls:
        request, method = calls.method("Filter")
        asked = [method.future(request(user="u", items=["a"] * 1000), timeout=0.1 if i % 2 else None) for i in range(MANY)]
        for i, answer in enumerate(asked):
            if i % 2:
                assert answer.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            else:
                answer.cancel()
        stall(server, 0)
        assert list(calls.ask("Filter", user="u", items=["a", "x"], reply=2).items) == ["x"]
    stop_says_nothing(server)


def test_a_stop_meanwhile(make_stalled):
    """What has come is answered, since the store moves on in time."""
    server = make_stalled(2000)
    with server.client() as c:
        c.send(encode("UNSEEN", "u", "a", "x"))
        with server.client() as other:
            assert other.command("PING") == b"PONG"  # one worker, and so behind it
        stop_says_nothing(server)
        assert c.read() == [b"x"]


def stop_says_nothing(server):
    assert server.stop() == 0
    assert "stopped with work under way" not in server.log()


def test_the_room_for_groups_is_asked_for_first(make_stalled):
    """A question with caps of groups makes a list of what was sent once the user is read: 24 bytes an item. A worker takes
    its share of request_memory by MiBs, so several ask."""
    server = make_stalled(delivered_max="10000", question_timeout="0", policies={"authors": {"group": "2 in 1h"}})
    with contextlib.ExitStack() as stack:
        c, *askers = (stack.enter_context(server.client()) for _ in range(21))

        def used():
            return int(re.search(r"request_memory_used:(\d+)", c.command("INFO", "memory").decode())[1])

        for asking in askers:
            asking.send(encode("FILTER", "u", "POLICY", "authors", "PAIRS", "a", "A", "x", "A"))
        try:
            until(lambda: used() >= 24 * 10000 * len(askers))
        finally:
            stall(server, 0)
        assert [asking.read() for asking in askers] == [[b"x"]] * len(askers)
