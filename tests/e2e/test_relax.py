"""RELAX: where fewer are unseen than wanted, what deliveries alone hide follows, on every edge and every path to an answer.
A model of sets says what is right."""
import concurrent.futures
import json
import random
import urllib.error

import pytest

from conftest import DAY, HOUR, START
from old_redis import REDIS, OldRedis
from resp import RespError
from test_hashes import SEED, ask, packed, xxh3  # noqa: F401
from test_policy import MINUTE, Model, month_of, post
from test_read_through import make_noted
from unseen_grpc import Grpc, messages

STORES = ("sqlite", "memory", "memory:later")
NEEDS_FOLDER = {"test_while_the_old_redis_has_them"}
POLICIES = {"feed": {"plays": "1", "item": "1 in 10min, 3 in 7d"}, "both": {"item": "1 in 1h", "also": "push:{user}"},
            "off": {"item": "off"}}


@pytest.fixture
def edges(make_server):
    server = make_server(http="127.0.0.1:0", grpc="127.0.0.1:0", policies=POLICIES)
    with server.client() as c:
        fill(c)
    return server


def fill(c):
    """p was played; c, b and a were sent, in this order, each a second after the other."""
    c.command("PLAYED", "u", "p")
    for item in "cba":
        c.command("DELIVERED", "u", item)
        c.command("DEBUG", "ADVANCE", 1000)


def relaxed(c, limit, *items, words=(), user="u"):
    return c.command("FILTER", user, *words, "LIMIT", str(limit), "RELAX", "ITEMS", *items)


def test_the_longest_ago_comes_first(edges):
    with edges.client() as c:
        assert relaxed(c, 2, *"pabcxy") == [b"x", b"y", 0]
        assert relaxed(c, 4, *"pabcxy") == [b"x", b"y", b"c", b"b", 2]
        assert relaxed(c, 9, *"pabcxy") == [b"x", b"y", b"c", b"b", b"a", 3]
        assert relaxed(c, 9, *"papa") == [b"a", b"a", 2]
        assert relaxed(c, 9, "p") == [0]
        c.command("DELIVERED", "u", "d", "e")
        c.command("DELIVERED", "u", "c")
        assert relaxed(c, 9, *"edcba") == [b"b", b"a", b"e", b"d", b"c", 5], "equal: as asked"
        c.command("FORGET", "u", "b")
        assert relaxed(c, 1, *"bac") == [b"b", 0]


def test_by_policies(edges):
    with edges.client() as c:
        assert relaxed(c, 9, *"pabcx", words=("POLICY", "feed")) == [b"x", b"c", b"b", b"a", 3]
        assert relaxed(c, 9, *"pabcx", words=("POLICY", "off")) == [b"a", b"b", b"c", b"x", 0]
        c.command("DELIVERED", "push:u", "c")
        c.command("PLAYED", "push:u", "b")
        assert relaxed(c, 9, *"pabcx", words=("POLICY", "both")) == [b"x", b"a", b"c", 2]
        c.command("DEBUG", "ADVANCE", HOUR)
        assert relaxed(c, 9, *"pabcx", words=("POLICY", "both")) == [b"a", b"c", b"x", 0]


def test_of_groups(make_server):
    """Still at most so many of a group are in the answer; the age is the item's own, or that of the group which hides it."""
    server = make_server(policies={"two": {"item": "1 in 10min", "group": "2 in 1h"},
                                   "also": {"item": "off", "group": "2 in 1h", "also": "push:{user}"}})
    with server.client() as c:
        for user, item, group in (("u", "a", "A"), ("u", "c", "C"), ("u", "b", "A"), ("u", "d", "C"), ("push:u", "e", "E"), ("push:u", "f", "E")):
            c.command("DELIVERED", user, "PAIRS", item, group)
            c.command("DEBUG", "ADVANCE", 1000)

        def answer(policy, limit, *pairs, deliver=()):
            words = [word for pair in pairs for word in (pair[0], pair[1:])]
            told = c.command("FILTER", "u", "POLICY", policy, "LIMIT", str(limit), "RELAX", *deliver, "PAIRS", *words)
            return b"".join(told[:-1]).decode(), told[-1]

        assert answer("two", 9, "vA", "wA", "xA", "yB") == ("yvw", 2)
        assert answer("two", 9, "xB", "yB", "zB", "vA") == ("xyv", 1), "what the answer holds caps as well"
        assert answer("two", 9, "dC", "bA", "cC", "aA", "vA") == ("acbd", 4)
        assert answer("two", 9, "vC", "wA", "n") == ("nwv", 2)
        assert answer("also", 9, "vE", "wA", "n") == ("nwv", 2)
        assert answer("also", 9, "vE", "wE", "xE") == ("vw", 2)
        assert answer("two", 4, "aA", "aA", "vA", "wA", "n", deliver=["DELIVER"]) == ("nav", 2)
        assert answer("two", 1, "n", "wA") == ("n", 1), "equal: as asked"


def test_each_form(edges):
    with edges.client() as c:
        indexes = ("REPLY", "INDEXES")
        assert relaxed(c, 3, *"pabcx", words=indexes) == [4, 3, 2, 2]
        c.command("BLOCK", "s", "b")
        assert relaxed(c, 9, *"pabcxy", words=("SESSION", "s", "EXCLUDE", "2", "a", "y")) == [b"x", b"c", 1]
        c.command("POOL", "SET", "one", *"pab")
        c.command("POOL", "SET", "two", *"bcx")
        pools = ("RELAX", "POOL", "one", "POOL", "two")
        assert c.command("FILTER", "u", "LIMIT", "3", *pools) == [b"x", b"c", b"b", 2]
        version, places, n = c.command("FILTER", "u", *indexes, "LIMIT", "9", *pools)
        assert len(version) == 16 and places == [5, 4, 2, 1] and n == 3
        for words, said in ((("RELAX", "ITEMS", "a"), "RELAX needs LIMIT"),
                            (("LIMIT", "1", "RELAX", "REPLY", "BITMAP", "ITEMS", "a"), "LIMIT can't be used with REPLY BITMAP"),
                            (("LIMIT", "1", "RELAX", "RELAX", "ITEMS", "a"), "RELAX is given twice")):
            with pytest.raises(RespError, match=said):
                c.command("FILTER", "u", *words)


def test_it_is_delivered(edges):
    with edges.client() as c:
        asked = ("FILTER", "u", "POLICY", "feed", "LIMIT", "3", "RELAX", "DELIVER", "ITEMS", *"aabbccpx")
        assert c.command(*asked) == [b"x", b"c", b"b", 2]
        c.command("DEBUG", "ADVANCE", 1000)
        assert c.command("EXPOSURE", "u", *"xcba") == [[1, 1], [2, 1], [2, 1], [1, 2]]
        assert c.command(*asked) == [b"a", b"b", b"c", 3]
        c.command("POOL", "SET", "one", *"pa")
        c.command("POOL", "SET", "two", *"xy")
        c.command("DEBUG", "ADVANCE", 1000)
        assert c.command("FILTER", "u", "LIMIT", "3", "RELAX", "DELIVER", "POOL", "one", "POOL", "two") == [b"y", b"x", b"a", 2]
        c.command("DEBUG", "ADVANCE", 1000)
        assert c.command("EXPOSURE", "u", *"yxa") == [[1, 1], [2, 1], [3, 1]]


def test_of_the_second_pool(edges):
    """What is recorded is the item itself, though the first pool has nothing for the user."""
    with edges.client() as c:
        c.command("POOL", "SET", "one", "p")
        c.command("POOL", "SET", "two", *"xyz")
        assert c.command("FILTER", "u", "LIMIT", "2", "DELIVER", "POOL", "one", "POOL", "two") == [b"x", b"y"]
        assert c.command("EXPOSURE", "u", *"xyz") == [[1, 0], [1, 0], None]
        assert c.command("UNSEEN", "u", *"xyz") == [b"z"]


def test_at_the_same_moment(edges):
    """Nobody goes without, and what is unseen is answered once as that."""
    def take(_):
        with edges.client() as c:
            return c.command("FILTER", "v", "LIMIT", "2", "RELAX", "DELIVER", "ITEMS", *"abc")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(take, range(12)))
    assert all(len(a) == 3 and len(set(a[:2])) == 2 for a in answers)
    fresh = [item for a in answers for item in a[:2 - a[2]]]
    assert sorted(fresh) == [b"a", b"b", b"c"]


def test_by_hashes(make_server, xxh3):  # noqa: F811
    server = make_server(hash_seed=SEED, policies=POLICIES)
    with server.client() as c:
        fill(c)
        assert ask(c, "u", packed(xxh3, int(SEED, 16), "pabcx"), "LIMIT", "3", "RELAX", reply="INDEXES") == [4, 3, 2, 2]


def test_http(edges):
    assert post(edges, "/v1/unseen", user="u", items=list("pabcx"), limit=3, relax=True) == {"items": ["x", "c", "b"], "relaxed": 2}
    assert post(edges, "/v1/unseen", user="u", items=list("pabcx"), limit=1, relax=True) == {"items": ["x"], "relaxed": 0}
    assert post(edges, "/v1/unseen", user="u", items=list("pabcx"), limit=3, relax=False) == {"items": ["x"]}
    assert post(edges, "/v1/unseen", user="u", items=list("ap"), limit=3, relax=True, reply="indexes") == {"indexes": [0], "relaxed": 1}
    many = post(edges, "/v1/unseen:batch", users=["u", "v"], items=list("pabc"), limit=2, relax=True)["answers"]
    assert many == [{"user": "u", "items": ["c", "b"], "relaxed": 2}, {"user": "v", "items": ["p", "a"], "relaxed": 0}]
    with pytest.raises(urllib.error.HTTPError) as e:
        post(edges, "/v1/unseen", user="u", items=["a"], relax=True)
    assert e.value.code == 400 and json.loads(e.value.read())["detail"] == "RELAX needs LIMIT"


def test_grpc(edges):
    pb = messages()
    with edges.client() as c:
        c.command("POOL", "SET", "hot", *"pab", b"\xff")
        c.command("DELIVERED", "u", b"\xff")
    with Grpc(edges) as grpc:
        asked = {"items": list("pabcx"), "reply": pb.FilterRequest.ITEMS, "limit": 3, "relax": True}
        reply = grpc.ask("Filter", user="u", **asked)
        assert (list(reply.items), reply.relaxed) == (["x", "c", "b"], 2)
        reply = grpc.ask("Filter", user="u", items=list("pabcx"), reply=pb.FilterRequest.INDEXES, limit=3, relax=True)
        assert (list(reply.indexes), reply.relaxed) == ([4, 3, 2], 2)
        reply = grpc.ask("Filter", user="u", pools=["hot"], reply=pb.FilterRequest.ITEMS, limit=3, relax=True)
        assert (list(reply.binary_items), reply.relaxed) == ([b"b", b"a", b"\xff"], 3)
        request, method = grpc.method("FilterMany", "unary_stream")
        assert {m.index: ("".join(m.reply.items), m.reply.relaxed) for m in method(request(users=["u", "v"], **asked), timeout=30)} == {
            0: ("xcb", 2), 1: ("pab", 0)}
        with pytest.raises(Exception, match="RELAX needs LIMIT"):
            grpc.ask("Filter", user="u", items=["a"], relax=True)


def test_of_a_giant(make_server):
    """Who is answered on a thread of its own."""
    server = make_server(workers=1, policies=POLICIES)
    with server.client() as c:
        for n in range(0, 80_000, 20_000):
            c.command("PLAYED", "giant", *[f"i{k}" for k in range(n, n + 20_000)])
        c.command("DELIVERED", "giant", "d", "i7")
        if server.options.get("store", "sqlite") == "sqlite":
            c.command("RING", "FLUSH")
        assert relaxed(c, 9, "i7", "d", "n", user="giant") == [b"n", b"d", 1]
        assert relaxed(c, 1, "i7", "d", user="giant", words=("POLICY", "both")) == [b"d", 1]


@pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
def test_while_the_old_redis_has_them(make_server, folder):
    old = OldRedis(folder / "old")
    with old.client() as redis:
        redis.command("ZADD", "played:u", START - 1000, "p")
        redis.command("ZADD", "delivered:u", START - 3000, "a", START - 5000, "b")
    server = make_noted(make_server, old, "u", policies=POLICIES)
    with server.client() as c:
        c.command("DELIVERED", "u", "c")
        assert relaxed(c, 9, *"pcabx") == [b"x", b"b", b"a", b"c", 3]
        assert relaxed(c, 9, *"pcabx", words=("POLICY", "both")) == [b"x", b"b", b"a", b"c", 3]
    old.kill()


MEANT = {None: ((3, [(1, None)]), []), "feed": ((1, [(1, 10 * MINUTE), (3, 7 * DAY)]), []), "both": ((3, [(1, HOUR)]), ["push:{}"])}


class Relaxing(Model):
    def is_played(self, months, user, item):
        return any(m >= month_of(self.now) - months for m in self.plays.get((user, item), ()))

    def age(self, caps, user, item):
        """Since the newest delivery, if a cap holds; else None."""
        ages = sorted(max(0, self.now - t) for t in self.times(user).get(item, ()))
        held = any(len(ages) >= n and (within is None or ages[n - 1] < within) for n, within in caps)
        return ages[0] if held else None

    def answer(self, policy, user, items, limit):
        (months, caps), also = MEANT[policy]
        users = [user, *[a.format(user) for a in also]]
        left = [i for i in items if not any(self.is_played(months, u, i) for u in users)]
        ages = {i: [a for u in users if (a := self.age(caps, u, i)) is not None] for i in left}
        unseen = [i for i in left if not ages[i]][:limit]
        hidden = sorted((i for i in left if ages[i]), key=lambda i: -min(ages[i]))
        rest = hidden[:limit - len(unseen)]
        return unseen + rest, len(rest)


@pytest.mark.parametrize("seed", range(3))
def test_against_a_model(make_server, store, seed):
    draw = random.Random(seed)
    server = make_server(policies=POLICIES)
    model, users, items = Relaxing(), ["u", "v"], [f"i{n}" for n in range(16)]
    client = server.client()
    for step in range(80):
        what, user = draw.randrange(10), draw.choice([*users, "push:u", "push:v"])
        some = draw.sample(items, draw.randrange(1, 5))
        if what < 3:
            client.command("DELIVERED", user, *some)
            model.send(user, some)
        elif what == 3:
            at = model.now - draw.choice([0, 40 * DAY, 70 * DAY])
            client.command("PLAYEDAT", user, at, some[0])
            model.play(user, some[:1], at)
        elif what < 7:
            policy, user, limit = draw.choice(list(MEANT)), draw.choice(users), draw.randrange(1, 12)
            words = ["POLICY", policy] if policy else []
            deliver = ["DELIVER"] if draw.randrange(2) else []
            expected, n = model.answer(policy, user, items, limit)
            answer = client.command("FILTER", user, *words, "LIMIT", str(limit), "RELAX", *deliver, "ITEMS", *items)
            assert answer == [i.encode() for i in expected] + [n], (step, policy)
            if deliver:
                model.send(user, expected)
        elif what == 7:
            ms = draw.choice([1, MINUTE, 9 * MINUTE, HOUR, DAY])
            client.command("DEBUG", "ADVANCE", ms)
            model.now += ms
        elif what == 8 and store == "sqlite":
            client.command("RING", "FLUSH")
        elif what == 9 and store == "sqlite" and step % 3 == 0:
            client.close()
            server.kill()
            server.clock = model.now
            server.start()
            client = server.client()
        client.command("DEBUG", "ADVANCE", 1000)
        model.now += 1000
    client.close()
