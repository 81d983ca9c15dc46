"""EXCLUDE: what a question leaves out, on every edge and every path to an answer."""
import base64
import concurrent.futures
import json
import random
import urllib.request

import pytest

from conftest import http_url
from resp import RespError
from test_hashes import SEED, ask, packed, xxh3  # noqa: F401
from unseen_grpc import Grpc, messages

STORES = ("sqlite", "memory", "memory:later")
NEEDS_FOLDER = set()


def post(server, path, **body):
    asked = urllib.request.Request(http_url(server) + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture
def edges(make_server):
    return make_server(http="127.0.0.1:0", grpc="127.0.0.1:0")


def test_each_form(client):
    client.command("PLAYED", "u", "a")
    excluded = ["EXCLUDE", "2", "b", "d"]
    assert client.command("FILTER", "u", *excluded, "ITEMS", *"abcde") == [b"c", b"e"]
    assert client.command("FILTER", "u", *excluded, "REPLY", "INDEXES", "ITEMS", *"abcde") == [2, 4]
    assert client.command("FILTER", "u", "REPLY", "BITMAP", *excluded, "ITEMS", *"abcde") == bytes([0b00101000])
    assert client.command("FILTER", "u", *excluded, "LIMIT", "1", "ITEMS", *"abcde") == [b"c"]
    assert client.command("FILTER", "u", "EXCLUDE", "1", "ITEMS", "ITEMS", "ITEMS", "x") == [b"x"]
    assert client.command("FILTER", "u", "ITEMS", *"abcde") == [b"b", b"c", b"d", b"e"], "nothing is remembered"


def test_with_what_else_hides(client):
    client.command("BLOCK", "s", "7")
    client.command("POOL", "SET", "p", "5", "6", "7", "8", "6")
    client.command("POOL", "SET", "q", "8", "9")
    assert client.command("FILTER", "u", "SESSION", "s", "EXCLUDE", "1", "5", "ITEMS", "5", "6", "7") == [b"6"]
    version, answer = client.command("FILTER", "u", "EXCLUDE", "2", "5", "9", "SESSION", "s", "REPLY", "INDEXES",
                                     "POOL", "p", "POOL", "q")
    assert answer == [1, 3] and len(version) == 16
    assert client.command("FILTER", "u", "EXCLUDE", "1", "6", "LIMIT", "1", "POOL", "q") == [b"8"]
    assert client.command("FILTER", "u", "EXCLUDE", "2", "8", "6", "LIMIT", "2", "POOL", "p") == [b"5", b"7"]


def test_a_delivery(client):
    assert client.command("FILTER", "u", "EXCLUDE", "1", "a", "LIMIT", "2", "DELIVER", "ITEMS", *"abcd") == [b"b", b"c"]
    assert client.command("FILTER", "u", "EXCLUDE", "1", "d", "LIMIT", "2", "DELIVER", "ITEMS", *"abcd") == [b"a"]
    assert client.command("UNSEEN", "u", *"abcd") == [b"d"]


def test_by_hashes(make_server, xxh3):  # noqa: F811
    server = make_server(hash_seed=SEED)
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        assert ask(c, "u", packed(xxh3, int(SEED, 16), "abcd"), "EXCLUDE", "1", "c", reply="INDEXES") == [1, 3]


def test_http(edges):
    with edges.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("POOL", "SET", "p", *"abcde")
    assert post(edges, "/v1/unseen", user="u", items=list("abcde"), exclude=["b", "d"]) == {"items": ["c", "e"]}
    assert post(edges, "/v1/unseen", user="u", pools=["p"], exclude=["b"], reply="indexes")["indexes"] == [2, 3, 4]
    answer = post(edges, "/v1/unseen", user="u", items=list("abcde"), exclude=["c"], reply="bitmap")
    assert base64.b64decode(answer["bitmap"]) == bytes([0b01011000])
    many = post(edges, "/v1/unseen:batch", users=["u", "v"], items=list("abc"), exclude=["c"])["answers"]
    assert [m["items"] for m in many] == [["b"], ["a", "b"]]
    many = post(edges, "/v1/unseen:batch", users=["u", "v"], pools=["p"], exclude=["c"], limit=2)["answers"]
    assert [m["items"] for m in many] == [["b", "d"], ["a", "b"]]


def test_grpc(edges):
    pb = messages()
    with edges.client() as c:
        c.command("PLAYED", "u", "a")
    with Grpc(edges) as grpc:
        asked = {"user": "u", "items": list("abcde"), "reply": pb.FilterRequest.ITEMS}
        assert list(grpc.ask("Filter", **asked, exclude=["b", "d"]).items) == ["c", "e"]
        assert list(grpc.ask("Filter", **asked, binary_exclude=[b"b", b"e"]).items) == ["c", "d"]
        assert list(grpc.ask("Filter", **asked).items) == list("bcde")
        request = pb.FilterManyRequest(users=["u", "v"], items=list("abc"), exclude=["c"], reply=pb.FilterRequest.ITEMS)
        _, method = grpc.method("FilterMany", "unary_stream")
        assert {m.index: list(m.reply.items) for m in method(request, timeout=30)} == {0: ["b"], 1: ["a", "b"]}


def test_many_users(edges):
    users, items = [f"u{n}" for n in range(300)], [f"i{n}" for n in range(40)]
    with edges.client() as c:
        c.pipeline([("PLAYED", user, items[n % 40]) for n, user in enumerate(users)])
    answers = post(edges, "/v1/unseen:batch", users=users, items=items, exclude=items[:5])["answers"]
    for n, answer in enumerate(answers):
        assert answer["items"] == [i for k, i in enumerate(items) if k >= 5 and k != n % 40]


def test_against_a_model(client):
    draw = random.Random(7)
    seen = set(draw.sample(range(500), 100))
    client.command("PLAYED", "u", *[f"i{n}" for n in seen])
    commands, wanted = [], []
    for _ in range(100):
        asked = draw.sample(range(500), draw.randrange(1, 120))
        excluded = draw.sample(range(500), draw.randrange(1, 200))
        limit = draw.randrange(1, 50)
        commands.append(("FILTER", "u", "EXCLUDE", str(len(excluded)), *[f"i{n}" for n in excluded], "LIMIT", str(limit),
                         "ITEMS", *[f"i{n}" for n in asked]))
        wanted.append([f"i{n}".encode() for n in asked if n not in seen and n not in excluded][:limit])
    assert client.pipeline(commands) == wanted


def test_many_at_once(make_server, store):
    """Each keeps what it leaves out until its answer is there: of a giant that is on another thread, of others where the
    store answers later; a call about many users takes several turns of its loop."""
    server = make_server(workers=1, http="127.0.0.1:0")
    with server.client() as c:
        for n in range(0, 80_000, 20_000):
            c.command("PLAYED", "giant", *[f"i{k}" for k in range(n, n + 20_000)])
        if store == "sqlite":
            c.command("RING", "FLUSH")
    asked = [f"i{k}" for k in range(79_990, 80_010)]
    users = ["giant", *[f"u{n}" for n in range(999)]]

    def one(n):
        left = f"i{80_000 + n % 10}"
        wanted = [i for i in asked[10:] if i != left]
        if n % 4 == 3:
            answers = post(server, "/v1/unseen:batch", users=users, items=asked[10:], exclude=[left])["answers"]
            assert all(answer["items"] == wanted for answer in answers)
        else:
            with server.client() as c:
                for answer in c.pipeline([("FILTER", "giant", "EXCLUDE", "1", left, "ITEMS", *asked)] * 20):
                    assert answer == [i.encode() for i in wanted]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(24)))


@pytest.mark.parametrize("words, said", [
    (["EXCLUDE", "0", "ITEMS", "a"], "EXCLUDE must be how many items follow, at least 1, got '0'"),
    (["EXCLUDE", "9", "a", "ITEMS", "a"], "EXCLUDE says that 9 items follow, and 3 words do"),
    (["EXCLUDE", "1", "", "ITEMS", "a"], "EXCLUDE: item"),
    (["EXCLUDE", "1001", *["a"] * 1001, "ITEMS", "a"], "1001 items of EXCLUDE are too many: a question takes at most 1000"),
    (["EXCLUDE", "1", "a", "EXCLUDE", "1", "b", "ITEMS", "a"], "EXCLUDE is given twice"),
    (["EXCLUDE", "1", "a"], "FILTER needs ITEMS"),
])
def test_what_is_refused(client, words, said):
    with pytest.raises(RespError, match=said):
        client.command("FILTER", "u", *words)
    assert client.command("FILTER", "u", "EXCLUDE", "1000", *["a"] * 1000, "ITEMS", "a", "b") == [b"b"]
