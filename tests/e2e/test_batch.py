"""Many users in one call: what is answered to each, whatever becomes of the others."""
import base64
import random

import jsonschema
import pytest

from conftest import PATIENCE
from resp import RespError, flat
from test_http import Asker, schema
from test_metrics import scrape
from unseen_grpc import Grpc, grpc

POOL = [f"i{n}" for n in range(3000)]


@pytest.fixture(params=["sqlite", "memory", "memory:later"])
def server(make_server, request):
    return make_server(store=request.param, grpc="127.0.0.1:0", http="127.0.0.1:0")


@pytest.fixture
def users(server):
    """Each has played something else of the pool."""
    rng = random.Random(7)
    played = {f"u{n}": set(rng.sample(POOL, n % 50)) for n in range(200)}
    with server.client() as c:
        c.command("POOL", "SET", "hot", *POOL)
        for user, items in played.items():
            if items:
                c.command("PLAYED", user, *items)
    return played


def many(calls, timeout=PATIENCE, metadata=None, **fields):
    request, method = calls.method("FilterMany", "unary_stream")
    return list(method(request(**fields), timeout=timeout, metadata=metadata))


def bitmap_of(items, played):
    bits = "".join("0" if i in played else "1" for i in items)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def test_a_reply_for_each_user(server, users):
    names = list(users)
    with Grpc(server) as calls:
        of_pool = many(calls, users=names, pools=["hot"])
        of_items = many(calls, users=names, items=POOL)
        limited = many(calls, users=names, pools=["hot"], reply="ITEMS", limit=3)
        indexes = many(calls, users=names, pools=["hot"], reply="INDEXES", limit=3)
    assert sorted(r.index for r in of_pool) == list(range(len(names)))
    with server.client() as c:
        version = c.command("FILTER", "u", "POOL", "hot", "REPLY", "BITMAP")[0].decode()
    for replies in (of_pool, of_items):
        for r in replies:
            assert r.code == 0 and r.reply.bitmap == bitmap_of(POOL, users[names[r.index]])
    assert {r.reply.pool_version for r in of_pool} == {version}
    for r, places in zip(sorted(limited, key=lambda r: r.index), sorted(indexes, key=lambda r: r.index)):
        expected = [i for i in POOL if i not in users[names[r.index]]][:3]
        assert list(r.reply.items) == expected and [POOL[i] for i in places.reply.indexes] == expected


def test_an_error_is_of_one_user(server, users):
    with Grpc(server) as calls:
        replies = {r.index: r for r in many(calls, users=["u1", "", "x" * 256, "u2"], pools=["hot"])}
        assert sorted(replies) == [0, 1, 2, 3]
        assert replies[1].code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert replies[1].message == "user is empty: an id has 1 to 255 bytes"
        assert replies[2].code == replies[1].code and "256 bytes" in replies[2].message
        assert replies[0].reply.bitmap == bitmap_of(POOL, users["u1"])
        assert replies[3].reply.bitmap == bitmap_of(POOL, users["u2"])
        assert [r.reply.bitmap for r in many(calls, binary_users=[b"\xff"], binary_items=[b"\xfe", b"a"])] == [b"\xc0"]
        assert [list(r.reply.binary_items) for r in
                many(calls, users=["u"], binary_items=[b"\xfe", b"a"], reply="ITEMS")] == [[b"\xfe", b"a"]]


@pytest.mark.parametrize("fields, status, says", [
    (dict(users=[], pools=["hot"]), "INVALID_ARGUMENT", "0 users are given: expected 1 to 1000"),
    (dict(users=["u"] * 1001, pools=["hot"]), "INVALID_ARGUMENT", "1001 users are given: expected 1 to 1000"),
    (dict(users=["u"]), "INVALID_ARGUMENT", "items holds 0 ids, expected 1 to 65536"),
    (dict(users=["u"], pools=["none"]), "NOT_FOUND", 'there is no pool "none"'),
    (dict(users=["u"], pools=["hot"], items=["a"]), "INVALID_ARGUMENT", "about items or about pools"),
    (dict(users=["u"], pools=["hot"], limit=1), "INVALID_ARGUMENT", "LIMIT can't be used with REPLY BITMAP"),
    (dict(users=["u"], pools=["hot"], pool_version="0123456789abcdef"), "FAILED_PRECONDITION", "the pool has the version"),
    (dict(users=["u"], items=["a", "y" * 256]), "INVALID_ARGUMENT", "item 2 has 256 bytes"),
    (dict(users=["u"], binary_users=[b"u"], pools=["hot"]), "INVALID_ARGUMENT", "users and binary_users can't both"),
], ids=str)
def test_what_is_wrong_for_all_is_said_once(server, users, fields, status, says):
    with Grpc(server) as calls, pytest.raises(grpc.RpcError) as caught:
        many(calls, **fields)
    assert caught.value.code().name == status and says in caught.value.details()


def test_counted_and_measured(server, users):
    with Grpc(server) as calls:
        before = scrape(server)
        many(calls, users=["u1", "u2", ""], pools=["hot"])
        after = scrape(server)
    grown = {k: after[k] - before.get(k, 0) for k in after}
    assert grown["unseen_questions_total"] == 2 and grown["unseen_candidates_total"] == 2 * len(POOL)
    assert grown['unseen_command_duration_seconds_count{command="filter_many"}'] == 1
    assert grown['unseen_command_errors_total{kind="ERR"}'] == 1


def test_who_does_not_read_is_waited_for(server, users):
    """The replies take more than windows and sockets hold; others are answered meanwhile."""
    wide = [f"{n:0100}" for n in range(3000)]
    with Grpc(server) as calls, server.client() as c:
        c.command("POOL", "SET", "wide", *wide)
        request, method = calls.method("FilterMany", "unary_stream")
        slow = method(request(users=[f"v{n}" for n in range(100)], pools=["wide"], reply="ITEMS"))
        with Grpc(server) as others:
            for n in range(20):
                assert len(many(others, users=["u3"], pools=["hot"])) == 1
        got = list(slow)
    assert sorted(r.index for r in got) == list(range(100)) and all(list(r.reply.items) == wide for r in got)


# --- HTTP ---

def batch(server, **fields):
    jsonschema.validate(fields, schema("BatchQuestion"))
    told = Asker(server).good("POST", "/v1/unseen:batch", fields)
    jsonschema.validate(told, schema("BatchAnswers"))
    return told


def test_http_answers_in_the_order_of_the_users(server, users):
    names = list(users)
    with server.client() as c:
        version = c.command("FILTER", "u", "POOL", "hot", "REPLY", "BITMAP")[0].decode()
    told = batch(server, users=names, pools=["hot"], reply="bitmap")
    assert told["pool_version"] == version
    assert told["answers"] == [
        {"user": user, "bitmap": base64.b64encode(bitmap_of(POOL, users[user])).decode()} for user in names]
    told = batch(server, users=names, items=POOL, limit=2)
    assert told == {"answers": [{"user": user, "items": [i for i in POOL if i not in users[user]][:2]} for user in names]}
    told = batch(server, users=names[:3], pools=["hot"], reply="indexes", limit=2, pool_version=version)
    assert [[POOL[i] for i in a["indexes"]] for a in told["answers"]] == [
        [i for i in POOL if i not in users[user]][:2] for user in names[:3]]


def test_http_an_error_is_of_one_user(server, users):
    odd = 'a "quote"\\\n\x01ü'
    with server.client() as c:
        c.command("POOL", "SET", "odd", odd, b"\xff\xfe")
    told = batch(server, users=["u1", "ü" * 128, odd], pools=["odd"])["answers"]
    assert [a["user"] for a in told] == ["u1", "ü" * 128, odd]
    assert told[0]["items"] == told[2]["items"] == [odd, {"base64": "//4="}]
    assert told[1]["error"]["status"] == 400 and told[1]["error"]["type"] == "urn:unseen:problem:bad-request"
    assert "256 bytes" in told[1]["error"]["detail"]
    assert Asker(server).good("POST", "/v1/unseen", {"user": "u", "pools": ["odd"]})["items"] == told[0]["items"]


@pytest.mark.parametrize("fields, status, says", [
    (dict(users=[], pools=["hot"]), 400, "users holds 0 ids, expected 1 to 1000"),
    (dict(users=["u"] * 1001, pools=["hot"]), 400, "users holds 1001 ids, expected 1 to 1000"),
    (dict(pools=["hot"]), 400, "the field users is missing"),
    (dict(users=["u"]), 400, "the field items is missing, expected it or pools"),
    (dict(users=["u"], pools=["hot"], items=["a"]), 400, "items and pools are both given"),
    (dict(users=["u"], pools=["none"]), 404, 'there is no pool "none"'),
    (dict(users=["u"], pools=["hot"], hide=True), 400,
     'unknown field "hide", expected users, items, groups, pools, pool_version, policy, exclude, reply, limit and relax'),
    (dict(users=["u"], pools=["hot"], reply="bitmap", limit=1), 400, "LIMIT can't be used with REPLY BITMAP"),
    (dict(users=["u"], pools=["hot"], pool_version="0123456789abcdef"), 409, "the pool has the version"),
    (dict(users=["u"] * 30, pools=["hot"]), 400, "the answers may list 90000 items, and over HTTP at most 65536"),
], ids=str)
def test_http_what_is_wrong_for_all_is_said_once(server, users, fields, status, says):
    got, _, problem = Asker(server).ask("POST", "/v1/unseen:batch", fields)
    assert got == status and says in problem["detail"]


@pytest.mark.parametrize("field, value, wire, says", [
    ("deliver", True, b"\x28\x01", "DELIVER is of one user, and many are asked about"),
    ("session", "s", b"\x32\x01s", "SESSION is of one user, and many are asked about"),
])
def test_what_is_of_one_user_is_refused_by_name(server, users, field, value, wire, says):
    """By the numbers that the fields have for one user, which the messages of a batch leave free."""
    names = list(users)[:3]
    got, _, problem = Asker(server).ask("POST", "/v1/unseen:batch",
                                        {"users": names, "pools": ["hot"], "limit": 2, field: value})
    assert got == 400 and says in problem["detail"]
    with Grpc(server) as calls:
        request, method = calls.method("FilterMany", "unary_stream")
        message = request(users=names, pools=["hot"], reply="ITEMS", limit=2)
        message.MergeFromString(wire)
        with pytest.raises(grpc.RpcError) as caught:
            list(method(message, timeout=PATIENCE))
        assert caught.value.code().name == "INVALID_ARGUMENT" and says in caught.value.details()
        for reply in many(calls, users=names, pools=["hot"]):  # nothing was delivered
            assert reply.reply.bitmap == bitmap_of(POOL, users[names[reply.index]])


def test_given_up_midway(server, users):
    with Grpc(server) as calls:
        request, method = calls.method("FilterMany", "unary_stream")
        for _ in range(20):
            replies = method(request(users=list(users) * 5, pools=["hot"], reply="ITEMS"))
            next(replies)
            replies.cancel()
        assert len(many(calls, users=["u1"], pools=["hot"])) == 1
    from test_pools import info  # memory comes back
    with server.client() as c:
        assert info(c)["pools"] == 1


# --- what pools there are ---

def test_pools_are_listed_and_read_in_pages(server, users):
    with Grpc(server) as calls, server.client() as c:
        version = c.command("POOL", "SET", b"\xff", "a", b"\xfe")[1].decode()
        listed = {p.pool or p.binary_pool: p for p in calls.ask("PoolList").pools}
        assert set(listed) == {"hot", b"\xff"} and listed[b"\xff"].pool_version == version
        assert listed["hot"].items == len(POOL) and listed["hot"].bytes > 8 * len(POOL)
        got, now = [], ""
        while len(got) < len(POOL):
            page = calls.ask("PoolGet", pool="hot", **{"from": len(got)}, count=700, pool_version=now)
            now = page.pool.pool_version
            got += page.items
        assert got == POOL and now == listed["hot"].pool_version
        assert len(calls.ask("PoolGet", pool="hot").items) == 1000
        assert list(calls.ask("PoolGet", pool="hot", **{"from": 5000}).items) == []
        c.command("POOL", "SET", "odd", "a", b"\xfe")
        assert list(calls.ask("PoolGet", pool="odd").binary_items) == [b"a", b"\xfe"]
        assert list(calls.ask("PoolGet", pool="odd", count=1).items) == ["a"]
        c.command("POOL", "ADD", "hot", "more")
        assert calls.refused("PoolGet", pool="hot", pool_version=now)[0] == "FAILED_PRECONDITION"
        assert calls.refused("PoolGet", pool="none") == ("NOT_FOUND", 'there is no pool "none"')
        assert calls.refused("PoolGet") == ("NOT_FOUND", 'there is no pool ""')
        assert calls.refused("PoolGet", pool="hot", count=65537) == (
            "INVALID_ARGUMENT", "count is 65537, expected 0 to 65536")


def test_a_page_that_could_never_be_made_is_refused(make_server):
    server = make_server(grpc="127.0.0.1:0", http="127.0.0.1:0", request_memory="16MiB")
    ids = [f"{n:0250}" for n in range(20000)]
    with Grpc(server) as calls, server.client() as c:
        for at in range(0, len(ids), 4000):
            c.command("POOL", "ADD", "wide", *ids[at:at + 4000])
        status, text = calls.refused("PoolGet", pool="wide", count=20000)
        assert status == "OUT_OF_RANGE" and "ask for fewer items" in text
        assert list(calls.ask("PoolGet", pool="wide").items) == ids[:1000]
        with pytest.raises(RespError, match="ask for fewer items"):
            c.command("POOL", "GET", "wide", "0", "20000")
        assert flat(c.command("POOL", "GET", "wide", "0", "1"))["ids"] == [ids[0].encode()]
    with Asker(server) as a:
        told = a.bad(400, "bad-request", "GET", "/v1/pools/wide?count=10000")
        assert "ask for fewer items" in told
        assert a.good("GET", "/v1/pools/wide?count=100&from=19950")["ids"] == ids[19950:]
        assert a.good("GET", "/v1/pools/wide?from=20001")["ids"] == []
        told = a.bad(400, "bad-request", "POST", "/v1/unseen", {"user": "u", "pools": ["wide"]})
        assert "ask with a limit, or for a bitmap" in told
        assert a.good("POST", "/v1/unseen", {"user": "u", "pools": ["wide"], "limit": 2}) == {"items": ids[:2]}


def test_who_may(make_server, folder):
    from test_accounts import account, basic
    for name in ("ask", "record"):
        account(folder / "accounts", "add", name, "--roles", name, password=name)
    server = make_server(http="127.0.0.1:0", grpc="127.0.0.1:0", accounts=str(folder / "accounts"), requirepass="all")
    with Grpc(server) as calls:
        asked = dict(users=["u"], items=["a"])
        for who, may in (("ask", True), ("record", False)):
            header = basic(who, who)
            metadata = [(k.lower(), v) for k, v in header.items()]
            if may:
                assert len(many(calls, metadata=metadata, **asked)) == 1
                assert list(calls.ask("PoolList", metadata=metadata).pools) == []
            else:
                for call in (lambda: many(calls, metadata=metadata, **asked),
                             lambda: calls.ask("PoolList", metadata=metadata),
                             lambda: calls.ask("PoolGet", metadata=metadata, pool="x")):
                    with pytest.raises(grpc.RpcError) as caught:
                        call()
                    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
            status, _, answer = Asker(server).ask("POST", "/v1/unseen:batch", asked, header)
            assert status == (200 if may else 403), answer
        with pytest.raises(grpc.RpcError) as caught:
            many(calls, **asked)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert Asker(server).ask("POST", "/v1/unseen:batch", asked)[0] == 401


# --- who is late ---

def test_one_deadline_and_a_late_store(make_server):
    """More users than are late at once: with a deadline the call ends; without, each is answered, or told why not."""
    server = make_server(store="memory:later", http="127.0.0.1:0", grpc="127.0.0.1:0", workers="1",
                         question_timeout="50ms")
    with server.client() as c, Grpc(server) as calls:
        c.command("PLAYED", "u", "a")
        c.command("DEBUG", "STALL", "memory", 600000)  # until it is told to go on
        names = [f"u{n}" for n in range(20)]
        replies = many(calls, users=names, items=["a"])
        assert sorted(r.index for r in replies) == list(range(20))
        late = [r for r in replies if r.code]
        assert late and {(r.code, r.message) for r in late} == {
            (grpc.StatusCode.DEADLINE_EXCEEDED.value[0], "not answered within question_timeout: the store is late")}
        told = Asker(server).good("POST", "/v1/unseen:batch", {"users": names, "items": ["a"]})["answers"]
        assert [a["user"] for a in told] == names
        assert {a["error"]["type"] for a in told if "error" in a} == {"urn:unseen:problem:late"}
        c.command("DEBUG", "STALL", "memory", 0)
