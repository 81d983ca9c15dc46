"""A question and its delivery are one step: whatever comes at once, about one user, on any connection and edge, none is
answered what another one has taken."""
import json
import threading
import urllib.request

import pytest

from conftest import http_url
from resp import RespError
from test_reload import reload

ITEMS = [f"item:{i}" for i in range(600)]


@pytest.fixture(params=["sqlite", "memory"])
def server(request, make_server):
    return make_server(http="127.0.0.1:0", store=request.param, workers="3", delivered_max="1000")


def test_in_one_read(server):
    """Of one turn of the loop: nothing is recorded before all are answered."""
    with server.client() as c:
        answers = c.pipeline([["FILTER", "u", "LIMIT", "2", "DELIVER", "ITEMS", *"abcde"]] * 4)
        assert answers == [[b"a", b"b"], [b"c", b"d"], [b"e"], []]
        assert c.command("UNSEEN", "u", *"abcde") == []


def test_users_are_apart(server):
    with server.client() as c:
        answers = c.pipeline([["FILTER", user, "LIMIT", "1", "DELIVER", "ITEMS", "a", "b"] for user in "uvuv"])
        assert answers == [[b"a"], [b"a"], [b"b"], [b"b"]]
        assert c.command("FILTER", "u", "LIMIT", "2", "ITEMS", "a", "b", "c") == [b"c"]


def test_of_a_pool(server):
    with server.client() as c:
        c.command("POOL", "SET", "p", *ITEMS)
        answers = c.pipeline([["FILTER", "u", "LIMIT", "100", "DELIVER", "POOL", "p"]] * 7)
        assert [len(answer) for answer in answers] == [100] * 6 + [0]
        assert sorted(sum(answers, [])) == sorted(item.encode() for item in ITEMS)


def test_what_failed_is_answered_again(make_server):
    """A disk that is nearly full, and then is not: no item is kept from the user, and none is held for ever."""
    server = make_server(store="sqlite", min_free="16TiB")
    question = ["FILTER", "u", "LIMIT", "2", "DELIVER", "ITEMS", *"abc"]
    with server.client() as c:
        for _ in range(2):
            with pytest.raises(RespError, match="^MISCONF"):
                c.command(*question)
        reload(server, min_free="0")
        server.advance(10000)  # it looks at the disk
        assert c.command(*question) == [b"a", b"b"]
        assert c.command(*question) == [b"c"]


def ask_http(server, limit):
    question = {"user": "u", "limit": limit, "deliver": True, "items": ITEMS}
    ask = urllib.request.Request(f"{http_url(server)}/v1/unseen", json.dumps(question).encode(),
                                 {"content-type": "application/json"})
    with urllib.request.urlopen(ask) as answer:
        return json.load(answer)["items"]


def test_on_many_connections(server):
    got, lock = [], threading.Lock()

    def asks(ask):
        while answer := ask():
            with lock:
                got.extend(answer)

    def resp():
        with server.client() as c:
            asks(lambda: [item.decode() for answer in
                          c.pipeline([["FILTER", "u", "LIMIT", "3", "DELIVER", "ITEMS", *ITEMS]] * 3) for item in answer])

    threads = [threading.Thread(target=resp) for _ in range(4)]
    threads += [threading.Thread(target=asks, args=(lambda: ask_http(server, 5),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    with server.client() as c:
        while any(thread.is_alive() for thread in threads):
            if server.options["store"] == "sqlite":
                c.command("RING", "FLUSH")
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(ITEMS)
