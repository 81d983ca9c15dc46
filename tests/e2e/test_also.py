"""Policies that look at other users, too (`also`), on every edge and every path to an answer. A model of sets says what is
right."""
import base64
import concurrent.futures
import json
import random
import urllib.request

import pytest

from conftest import DAY, HOUR, START, http_url
from resp import RespError
from old_redis import REDIS, OldRedis
from test_hashes import SEED, ask, packed, xxh3  # noqa: F401
from test_late_store import stall
from test_policy import MEANT, MINUTE, Model, post, run
from test_front_only import DELIVERY, front, make_reader, source  # noqa: F401
from test_read_through import make_noted
from test_repair import key_of, months_table, spoil
from test_replica import level, pair  # noqa: F401
from unseen_grpc import Grpc, messages

STORES = ("sqlite", "memory", "memory:later")
NEEDS_FOLDER = {"test_while_the_old_redis_has_them", "test_a_deadline_holds_for_all", "test_a_user_who_can_not_be_read",
                "test_of_users_on_the_disk", "test_the_errors_add_up", "test_of_a_replica", "test_of_a_front_alone"}
FEED = {"item": "1 in 10min, 3 in 7d", "also": "push:{user}  search:{user}"}
POLICIES = {"feed": FEED, "played": {"item": "off", "also": "push:{user}"}, "banned": {"also": "banned"}}


@pytest.fixture
def edges(make_server):
    server = make_server(http="127.0.0.1:0", grpc="127.0.0.1:0", policies=POLICIES)
    with server.client() as c:
        fill(c)
    return server


def fill(client):
    """Of a, b, c, d, e each but e is hidden from one of the three."""
    client.command("PLAYED", "u", "a")
    client.command("DELIVERED", "push:u", "b")
    client.command("PLAYED", "push:u", "c")
    client.command("DELIVERED", "search:u", "d")


def under(client, policy, *items, user="u"):
    return b"".join(client.command("FILTER", user, "POLICY", policy, "ITEMS", *items)).decode()


def test_each_user_hides(edges):
    with edges.client() as c:
        assert c.command("UNSEEN", "u", *"abcde") == list(map(bytes, [[98], [99], [100], [101]])), "without a policy, u alone"
        assert under(c, "feed", *"abcde") == "e"
        assert under(c, "played", *"abcde") == "bde"
        assert under(c, "banned", *"abcde") == "bcde"
        c.command("PLAYED", "banned", "e")
        assert under(c, "banned", *"abcde") == "bcd", "a name without {user} is that user"
        assert under(c, "feed", *"abcde", user="push:u") == "ade", "push:push:u is another one"
        c.command("DEBUG", "ADVANCE", 10 * MINUTE)
        assert under(c, "feed", *"abcde") == "bde", "each by its own counts"
        for _ in range(2):
            c.command("DELIVERED", "push:u", "b")
            c.command("DELIVERED", "search:u", "d")
            c.command("DEBUG", "ADVANCE", 10 * MINUTE)
        assert under(c, "feed", *"abcde") == "e", "three times in a week"


def test_each_form(edges):
    with edges.client() as c:
        assert c.command("FILTER", "u", "POLICY", "feed", "REPLY", "INDEXES", "ITEMS", *"abcdee") == [4, 5]
        assert c.command("FILTER", "u", "POLICY", "feed", "REPLY", "BITMAP", "ITEMS", *"abcdefghi") == b"\x0f\x80"
        c.command("BLOCK", "s", "f")
        assert c.command("FILTER", "u", "POLICY", "feed", "SESSION", "s", "EXCLUDE", "1", "g", "LIMIT", "2", "ITEMS",
                         *"abcdefghij") == [b"e", b"h"]
        c.command("POOL", "SET", "one", *"abcde")
        c.command("POOL", "SET", "two", *"xfeg")
        assert c.command("FILTER", "u", "POLICY", "feed", "POOL", "one") == [b"e"]
        assert c.command("FILTER", "u", "POLICY", "feed", "SESSION", "s", "EXCLUDE", "1", "g", "POOL", "one", "POOL", "two") == [b"e", b"x"]
        assert c.command("FILTER", "u", "POLICY", "feed", "LIMIT", "2", "POOL", "one", "POOL", "two") == [b"e", b"x"]
        version, bits = c.command("FILTER", "u", "POLICY", "feed", "REPLY", "BITMAP", "POOL", "one", "POOL", "two")
        assert len(version) == 16 and bits == bytes([0b00001110, 0b10000000])


def test_of_a_large_pool(make_server):
    server = make_server(policies=POLICIES)
    with server.client() as c:
        fill(c)
        for n in range(0, 150_000, 50_000):
            c.command("POOL", "ADD", "hot", *"abcd", *[f"i{k}" for k in range(n, n + 50_000)])
        c.command("PLAYED", "push:u", "i0", "i149999")
        assert c.command("FILTER", "u", "POLICY", "feed", "LIMIT", "2", "POOL", "hot") == [b"i1", b"i2"]
        assert c.command("FILTER", "u", "POLICY", "feed", "LIMIT", "1", "DELIVER", "POOL", "hot") == [b"i1"]
        _, bits = c.command("FILTER", "u", "POLICY", "feed", "REPLY", "BITMAP", "POOL", "hot")
        assert sum(bin(b).count("1") for b in bits) == 150_000 - 3


def test_it_is_delivered_to_the_user_alone(edges):
    with edges.client() as c:
        asked = ("FILTER", "u", "POLICY", "feed", "LIMIT", "2", "DELIVER", "ITEMS", *"abcdefgg")
        assert c.command(*asked) == [b"e", b"f"]
        assert c.command(*asked) == [b"g"]
        assert c.command("EXPOSURE", "u", *"efg") == [[1, 0]] * 3
        assert c.command("EXPOSURE", "push:u", *"efgb") == [None, None, None, [1, 0]]
        assert c.command("EXPOSURE", "search:u", *"efgd") == [None, None, None, [1, 0]]


def test_at_the_same_moment(edges):
    """No item of a user is answered twice, though each question looks at three users in between."""
    items = [f"n{i}" for i in range(40)]

    def take(_):
        with edges.client() as c:
            return c.command("FILTER", "u", "POLICY", "feed", "LIMIT", "3", "DELIVER", "ITEMS", *items)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answered = [i for answer in pool.map(take, range(10)) for i in answer]
    assert len(answered) == len(set(answered)) == 30


def test_by_hashes(make_server, xxh3):  # noqa: F811
    server = make_server(hash_seed=SEED, policies=POLICIES)
    with server.client() as c:
        fill(c)
        assert ask(c, "u", packed(xxh3, int(SEED, 16), "abcde"), "POLICY", "feed", reply="INDEXES") == [4]


def test_why(edges):
    with edges.client() as c, edges.client(protocol=3) as c3:
        c.command("DELIVERED", "search:u", "a", "b")
        c.command("DEBUG", "ADVANCE", 1000)
        c.command("DELIVERED", "search:u", "b")
        assert [p[b"place"] for p in c3.command("WHY", "u", "a", "POLICY", "feed")] == [b"staged", b"also:search:u"]
        assert c3.command("WHY", "u", "b", "POLICY", "feed") == [
            {b"place": b"also:push:u", b"error": 0.0, b"until": START + 10 * MINUTE},
            {b"place": b"also:search:u", b"error": 0.0, b"until": START + 10 * MINUTE + 1000}]
        assert c3.command("WHY", "u", "b", "POLICY", "banned") == []
        c.command("DELIVERED", "banned", "b")
        assert c3.command("WHY", "u", "b", "POLICY", "banned") == [{b"place": b"also:banned", b"error": 0.0, b"until": None}]
        c.command("BLOCK", "s", "b")
        assert [p[b"place"] for p in c3.command("WHY", "u", "b", "SESSION", "s", "POLICY", "banned")] == [b"blocked", b"also:banned"]
        c.command("DELIVERED", b"push:\xff\0", "b")
        assert c.command("WHY", b"\xff\0", "b", "POLICY", "feed")[0][1] == b"also:push:\xff\0"
        c.command("FORGET", "push:u", "c")
        assert c3.command("WHY", "u", "c", "POLICY", "feed") == [] and under(c, "feed", "c") == "c"


def test_of_the_default(make_server):
    server = make_server(policies={"default": FEED})
    with server.client() as c, server.client(protocol=3) as c3:
        fill(c)
        assert c.command("UNSEEN", "u", *"abcde") == [b"e"]
        assert c.command("SEEN", "u", *"abcde") == [1, 1, 1, 1, 0]
        assert c.command("WHY", "u", "b") == [b"also:push:u"]
        assert c3.command("WHY", "u", "b") == {b"also:push:u": 0.0}
        told = run("why", "u", "b", "--to", f"127.0.0.1:{server.port}")
        assert "also:push:u" in told and "b is hidden from u" in told
        assert json.loads(run("why", "u", "b", "--json", "--to", f"127.0.0.1:{server.port}"))["places"] == [
            {"place": "also:push:u", "error": 0.0}]


def test_http(edges):
    assert post(edges, "/v1/unseen", user="u", items=list("abcde"), policy="feed") == {"items": ["e"]}
    assert base64.b64decode(post(edges, "/v1/unseen", user="u", items=list("abcde"), policy="feed", reply="bitmap")["bitmap"]) == b"\x08"
    many = post(edges, "/v1/unseen:batch", users=["u", "v", "push:u"], policy="feed", items=list("abcde"))["answers"]
    assert ["".join(m["items"]) for m in many] == ["e", "abcde", "ade"]
    assert post(edges, "/v1/why", user="u", item="b", policy="feed")["places"] == [
        {"place": "also:push:u", "error": 0.0, "until": START + 10 * MINUTE}]


def test_grpc(edges):
    pb = messages()
    with Grpc(edges) as grpc:
        asked = {"items": list("abcde"), "reply": pb.FilterRequest.ITEMS, "policy": "feed"}
        assert list(grpc.ask("Filter", user="u", **asked).items) == ["e"]
        request, method = grpc.method("FilterMany", "unary_stream")
        assert {m.index: "".join(m.reply.items) for m in method(request(users=["u", "v", "push:u"], **asked), timeout=30)} == {
            0: "e", 1: "abcde", 2: "ade"}
        places = grpc.ask("Why", user="u", item="b", policy="feed").places
        assert [(p.place, p.until) for p in places] == [("also:push:u", START + 10 * MINUTE)]
        with edges.client() as c:
            c.command("DELIVERED", b"push:\xff", "b")
        places = grpc.ask("Why", binary_user=b"\xff", item="b", policy="feed").places
        assert [(p.place, p.binary_place) for p in places] == [("", b"also:push:\xff")]


def test_an_id_that_is_too_long(edges):
    long = "u" * 249
    said = 'also search:{user} of policy "feed" is a user of 256 bytes: an id has 1 to 255'
    with edges.client() as c:
        assert under(c, "feed", "a", user=long[:248]) == "a"
        for words in (["FILTER", long, "POLICY", "feed", "ITEMS", "a"], ["WHY", long, "a", "POLICY", "feed"],
                      ["FILTER", long, "POLICY", "feed", "LIMIT", "1", "DELIVER", "ITEMS", "a"]):
            with pytest.raises(RespError, match=said):
                c.command(*words)
        assert under(c, "played", "a", user=long) == "a"
        assert c.command("EXPOSURE", long, "a") == [None]
    answers = post(edges, "/v1/unseen:batch", users=["u", long], policy="feed", items=["e"])["answers"]
    assert answers[0] == {"user": "u", "items": ["e"]} and answers[1]["error"]["detail"] == said
    with Grpc(edges) as grpc, pytest.raises(Exception, match="is a user of 256 bytes"):
        grpc.ask("Filter", user=long, items=["a"], policy="feed")


def test_a_giant_among_them(make_server):
    """Who is answered on a thread of its own."""
    server = make_server(workers=1, policies=POLICIES)
    with server.client() as c:
        for n in range(0, 80_000, 20_000):
            c.command("PLAYED", "push:giant", *[f"i{k}" for k in range(n, n + 20_000)])
        c.command("PLAYED", "giant", "p")
        c.command("DELIVERED", "search:giant", "d")
        if server.options.get("store", "sqlite") == "sqlite":
            c.command("RING", "FLUSH")
        assert c.command("FILTER", "giant", "POLICY", "feed", "ITEMS", "i7", "p", "d", "n") == [b"n"]
        assert c.command("FILTER", "giant", "POLICY", "feed", "LIMIT", "1", "DELIVER", "ITEMS", "i7", "p", "d", "n", "m") == [b"n"]
        assert [p[1] for p in c.command("WHY", "giant", "i7", "POLICY", "feed")] == [b"also:push:giant"]
        c.command("POOL", "SET", "hot", "i7", "p", "d", "n", "m")
        assert c.command("FILTER", "giant", "POLICY", "feed", "POOL", "hot") == [b"m"]


def test_of_users_on_the_disk(make_server):
    """Each of the three has to be read."""
    server = make_server(policies=POLICIES)
    with server.client() as c:
        fill(c)
        c.command("RING", "FLUSH")
    server.restart()
    with server.client() as c:
        assert under(c, "feed", *"abcde") == "e"
        assert c.command("FILTER", "u", "POLICY", "feed", "LIMIT", "1", "DELIVER", "ITEMS", *"abcdef") == [b"e"]


def test_the_errors_add_up(make_server):
    """Of 100,000 candidates that nobody has, three users hide about three times as many as one."""
    server = make_server(workers=1, error_rate="0.05", policies={"one": {}, "three": {"also": "push:{user} search:{user}"}})
    with server.client() as c:
        for user in ("u", "push:u", "search:u"):
            c.command("PLAYED", user, *[f"{user}{k}" for k in range(20_000)])
        c.command("RING", "FLUSH")

        def expected(policy):
            def figure():
                return float(next(line.split(":")[1] for line in c.command("INFO", "stats").decode().splitlines()
                                  if line.startswith("expected_false_hits")))
            before = figure()
            c.command("FILTER", "u", "POLICY", policy, "LIMIT", "1", "ITEMS", *[f"n{k}" for k in range(50_000)])
            return figure() - before

        one, three = expected("one"), expected("three")
        assert one > 0 and 2.5 * one < three < 3.5 * one


def test_a_deadline_holds_for_all(make_server):
    server = make_server(store="memory:later", workers="1", question_timeout="50ms", policies=POLICIES)
    with server.client() as c:
        stall(server, 600_000)
        for words in (["FILTER", "u", "POLICY", "feed", "ITEMS", "a"], ["WHY", "u", "a", "POLICY", "feed"],
                      ["FILTER", "u", "POLICY", "feed", "LIMIT", "1", "DELIVER", "ITEMS", "a"]):
            with pytest.raises(RespError, match="not answered within question_timeout: the store is late"):
                c.command(*words)
        stall(server, 0)
        assert under(c, "feed", "a", "b") == "ab"
    assert server.stop() == 0


@pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
def test_while_the_old_redis_has_them(make_server, folder):
    """Each of the three may be one who is still to be migrated."""
    old = OldRedis(folder / "old")
    with old.client() as redis:
        redis.command("ZADD", "played:u", START - 1000, "a")
        redis.command("ZADD", "delivered:push:u", START - 1000, "b")
        redis.command("ZADD", "played:search:u", START - 1000, "d")
    server = make_noted(make_server, old, "u", "push:u", policies=POLICIES, http="127.0.0.1:0")
    with server.client() as c:
        assert under(c, "feed", *"abcde") == "cde", "search:u isn't noted"
        assert [p[1] for p in c.command("WHY", "u", "b", "POLICY", "feed")] == [b"also:push:u"]
        c.command("LEGACY", "NOTE", "search:u")
        assert under(c, "feed", *"abcde") == "ce"
        assert c.command("FILTER", "u", "POLICY", "feed", "LIMIT", "1", "DELIVER", "ITEMS", *"abcde") == [b"c"]
        many = post(server, "/v1/unseen:batch", users=["u", "v"], policy="feed", items=list("abcde"))["answers"]
        assert ["".join(m["items"]) for m in many] == ["e", "abcde"]
    old.kill()


def test_a_user_who_can_not_be_read(make_server):
    """Then the question has no answer, as where the user itself can't be read."""
    server = make_server(policies=POLICIES)
    with server.client() as c:
        fill(c)
        c.command("RING", "FLUSH")
    server.stop()
    spoil(server, f"UPDATE {months_table(server)} SET filter = x'00' WHERE user_key = ?", key_of(server, "push:u"))
    server.start()
    with server.client() as c:
        for words in (["FILTER", "u", "POLICY", "feed", "ITEMS", *"abcde"], ["WHY", "u", "a", "POLICY", "feed"]):
            with pytest.raises(RespError, match="also push:{user}: .*push:u"):
                c.command(*words)
        assert under(c, "banned", *"abcde") == "bcde"


def test_of_a_replica(pair):  # noqa: F811
    """Which answers by its own policies, and says who may deliver."""
    primary, replica, _ = pair(policies=POLICIES)
    with primary.client() as c:
        fill(c)
    level(primary, replica)
    with replica.client() as c:
        assert under(c, "feed", *"abcde") == "e"
        assert [p[1] for p in c.command("WHY", "u", "b", "POLICY", "feed")] == [b"also:push:u"]
        with pytest.raises(RespError, match="READONLY"):
            c.command("FILTER", "u", "POLICY", "feed", "LIMIT", "1", "DELIVER", "ITEMS", *"abcde")


@pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
def test_of_a_front_alone(front, make_reader):  # noqa: F811
    front.state("u", 10, p=front.plays("a"))
    front.state("push:u", 11, p=front.plays("c"))
    front.event("push:u", 12, DELIVERY, "b")
    front.event("search:u", 13, DELIVERY, "d")
    reader = make_reader(policies={"feed": {"also": "push:{user} search:{user}"}})
    with reader.client() as c:
        assert under(c, "feed", *"abcde") == "e"
        assert [p[1] for p in c.command("WHY", "u", "d", "POLICY", "feed")] == [b"also:search:u"]


def test_what_each_hid(edges):
    with edges.client() as c, edges.client(protocol=3) as c3:
        for _ in range(2):
            under(c, "feed", *"abcdee")
        under(c, "played", *"abcde")
        told = {p[b"policy"]: p for p in c3.command("POLICIES")}
        assert told[b"feed"][b"also"] == [{b"user": b"push:{user}", b"hidden": 4}, {b"user": b"search:{user}", b"hidden": 2}]
        assert (told[b"feed"][b"questions"], told[b"feed"][b"candidates"], told[b"feed"][b"hidden"]) == (2, 12, 8)
        assert told[b"banned"][b"also"] == [{b"user": b"banned", b"hidden": 0}]
        assert b"\r\nquestions:3\r\n" in c.command("INFO", "stats"), "however many users each looks at"
    with urllib.request.urlopen(http_url(edges) + "/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert 'unseen_policy_also_hidden_total{policy="feed",also="push:{user}"} 4\n' in text
    with urllib.request.urlopen(http_url(edges) + "/v1/policies", timeout=30) as answer:
        shown = json.loads(answer.read())
    assert shown["policies"][0]["also"] == [{"user": "push:{user}", "hidden": 4}, {"user": "search:{user}", "hidden": 2}]
    to = f"127.0.0.1:{edges.port}"
    assert json.loads(run("policy", "--json", "--to", to)) == shown
    assert "push:{user} search:{user}" in run("policy", "--to", to)
    assert "  Hidden is also what it hides from push:{user}, which added 4.\n" in run("policy", "feed", "--to", to)


# --- the model ---

ALSO = {"feed": ["push:{}", "search:{}"], "played": ["push:{}"], "twice": ["push:{}", "all"]}
DRAWN = {"feed": {"plays": "1", "item": "1 in 10min, 3 in 7d", "also": "push:{user} search:{user}"},
         "played": {"item": "off", "also": "push:{user}"}, "twice": {"plays": "0", "item": "2 in 1h, 4", "also": "push:{user} all"}}


def hides(model, policy, user, item):
    return any(model.hides(policy, u, item) for u in [user, *[a.format(user) for a in ALSO[policy]]])


@pytest.mark.parametrize("seed", range(3))
def test_against_a_model(make_server, store, seed):
    """What is recorded of any of them, days that pass, flushes, kills: after each the answers are the model's."""
    assert {p: MEANT[p][1] for p in DRAWN}["feed"] == [(1, 10 * MINUTE), (3, 7 * DAY)]
    draw = random.Random(seed)
    server = make_server(policies=DRAWN, http="127.0.0.1:0")
    model, users, items = Model(), ["u", "v"], [f"i{n}" for n in range(24)]
    every = [*users, "push:u", "push:v", "search:u", "search:v", "all"]
    client = server.client()

    def check():
        for policy in DRAWN:
            expected = {u: [i for i in items if not hides(model, policy, u, i)] for u in users}
            for user in users:
                assert client.command("FILTER", user, "POLICY", policy, "ITEMS", *items) == [i.encode() for i in expected[user]], (policy, user)
            answers = post(server, "/v1/unseen:batch", users=users, items=items, policy=policy)["answers"]
            assert [m["items"] for m in answers] == [expected[u] for u in users]
            item, user = draw.choice(items), draw.choice(users)
            assert (client.command("WHY", user, item, "POLICY", policy) != []) == hides(model, policy, user, item)

    for step in range(60):
        what, user = draw.randrange(10), draw.choice(every)
        some = draw.sample(items, draw.randrange(1, 4))
        if what < 3:
            client.command("DELIVERED", user, *some)
            model.send(user, some)
        elif what < 5:
            at = model.now - draw.choice([0, 0, 20 * DAY, 40 * DAY])
            client.command("PLAYEDAT", user, at, *some)
            model.play(user, some, at)
        elif what < 7:
            policy, user = draw.choice(list(DRAWN)), draw.choice(users)
            unseen = [i for i in some if not hides(model, policy, user, i)]
            answer = client.command("FILTER", user, "POLICY", policy, "LIMIT", "2", "DELIVER", "ITEMS", *some)
            assert [i.decode() for i in answer] == unseen[:2], policy
            model.send(user, unseen[:2])
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
        if step % 5 == 0:
            check()
        client.command("DEBUG", "ADVANCE", 1000)  # two deliveries in one ms are one
        model.now += 1000
    check()
    client.close()
