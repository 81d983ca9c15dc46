"""gRPC as its clients see it: operations, statuses, deadlines, streams, health, logins, the end."""
import concurrent.futures
import queue
import re
import threading

import pytest

from conftest import DAY, PATIENCE, REPO, START, free_port, run, until
from test_http import Asker
from test_metrics import scrape
from test_start_early import STALL, go_on, held, stage, taken, told_to_stop
from unseen_grpc import Grpc, grpc, grpc_address

LOADING = r"Redis is loading the dataset in memory: \d+ % of what was staged is read"
ITEMS = [f"item-{i}" for i in range(10000)]


@pytest.fixture
def server(make_server):
    return make_server(grpc="127.0.0.1:0")


@pytest.fixture
def calls(server):
    with Grpc(server) as g:
        yield g


def test_operations(calls):
    assert calls.ask("Played", user="u", items=["a", "b"], tag=7).count == 2
    assert calls.ask("Played", user="u", items=["old"], at=START - DAY).count == 1
    assert calls.ask("Delivered", user="u", items=["d"]).count == 1
    asked = dict(user="u", items=["a", "x", "b", "d", "y"])
    assert calls.ask("Filter", **asked).bitmap == b"\x48"
    assert list(calls.ask("Filter", reply=1, **asked).indexes) == [1, 4]
    assert list(calls.ask("Filter", reply=2, limit=1, **asked).items) == ["x"]
    assert list(calls.ask("Filter", reply=2, limit=1, deliver=True, **asked).items) == ["x"]
    assert list(calls.ask("Filter", reply=2, **asked).items) == ["y"]
    assert [p.place for p in calls.ask("Why", user="u", item="x").places] == ["delivered"]
    history = calls.ask("History", user="u")
    assert history.staged == 3 and history.delivered == 2
    assert calls.ask("Block", session="s", ids=["7", "8"]).count == 2
    assert calls.ask("Filter", user="u", items=["7", "9"], session="s").bitmap == b"\x40"
    assert calls.ask("Unblock", session="s", ids=["7"]).count == 1
    assert calls.ask("Unblock", session="s", all=True).count == 1
    assert calls.ask("Forget", user="u", items=["a", "nothing"]).count == 1
    assert calls.ask("Forget", user="u", all=True).count == 1
    assert calls.refused("History", user="u") == ("NOT_FOUND", "nothing is remembered of this user")


def test_every_edge_sees_the_same(server, calls):
    calls.ask("Played", user="u", binary_items=[b"\xff\x00", b"b"])
    with server.client() as c:
        assert c.command("UNSEEN", "u", b"\xff\x00", "b", "c") == [b"c"]
        assert c.command("PLAYED", "u", "c") == 1
    assert list(calls.ask("Filter", reply=2, user="u", binary_items=[b"\xff\x00", b"c", b"d"]).binary_items) == [b"d"]


def test_statuses(calls):
    assert calls.refused("Filter", user="", items=["a"]) == ("INVALID_ARGUMENT", "user is empty: an id has 1 to 255 bytes")
    status, text = calls.refused("Played", user="u", items=["a"], at=START // 1000)
    assert status == "OUT_OF_RANGE" and "seconds" in text
    assert calls.refused("Filter", user="u", items=["x"] * 65537)[0] == "INVALID_ARGUMENT"
    status, text = calls.refused("Filter", user="u", items=["ü" * 200])
    assert status == "INVALID_ARGUMENT" and "400 bytes" in text
    with pytest.raises(grpc.RpcError) as caught:
        calls.raw("/unseen.v1.Unseen/Nothing", b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.RpcError) as caught:
        calls.raw("/unseen.v1.Unseen/Filter", b"\x0a\xff")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_text_is_utf8_whatever_it_quotes(calls):
    status, text = calls.refused("Block", session="s", binary_ids=[b"\xff" + b"%" * 300])
    assert status == "INVALID_ARGUMENT" and text


def test_both_cases_of_the_first_letter(calls):
    request = calls.pb.FilterRequest(user="u", items=["a"]).SerializeToString()
    assert calls.pb.FilterReply.FromString(calls.raw("/unseen.v1.Unseen/filter", request)).bitmap == b"\x80"


def test_a_large_question_compressed_or_not(calls):
    for compression in (None, grpc.Compression.Gzip):
        reply = calls.ask("Filter", user="u", items=ITEMS, reply=2, compression=compression)
        assert list(reply.items) == ITEMS


def test_a_message_of_17_mib(server):
    big = ["x" * 255] * 65000  # 16.7 MiB
    with Grpc(server) as calls:
        for compression in (None, grpc.Compression.Gzip):
            status, text = calls.refused("Filter", user="u", items=big + big[:5000], compression=compression)
            assert status == "RESOURCE_EXHAUSTED" and "larger than" in text
        assert calls.ask("Filter", user="u", items=["a"]).bitmap == b"\x80"


def test_many_calls_at_once(calls):
    asked = [calls.method("Filter")[1].future(calls.pb.FilterRequest(user=f"u{i}", items=ITEMS)) for i in range(300)]
    assert all(len(a.result(PATIENCE).bitmap) == 1250 for a in asked)
    wrote = [calls.method("Played")[1].future(calls.pb.RecordRequest(user=f"u{i % 7}", items=[str(i)], tag=i)) for i in range(300)]
    assert [w.result(PATIENCE).tag for w in wrote] == list(range(300))


# --- streams ---

def record(calls, i, **more):
    return calls.pb.RecordRequest(**{"user": f"u{i % 10}", "items": [f"i{i}"], "tag": i, **more})


def test_a_stream_is_answered_in_order(server, calls):
    n = 5000  # more than a window of HTTP/2 holds
    replies = list(calls.stream(record(calls, i) for i in range(n)))
    assert [r.tag for r in replies] == list(range(n)) and all(r.count == 1 and r.code == 0 for r in replies)
    with server.client() as c:
        assert c.command("UNSEEN", "u3", "i3", "i13", "i4993", "none") == [b"none"]


def test_a_stream_answers_as_it_goes(calls):
    asked = queue.SimpleQueue()
    replies = calls.stream(iter(asked.get, None))
    for i in range(10):
        asked.put(record(calls, i))
        assert next(replies).tag == i
    asked.put(None)
    assert list(replies) == []


def test_a_stream_goes_on_behind_a_refused_message(calls):
    bad = {3: dict(items=[]), 5: dict(user=""), 6: dict(items=["x" * 256]), 8: dict(at=1)}
    replies = list(calls.stream(record(calls, i, **bad.get(i, {})) for i in range(10)))
    assert [r.tag for r in replies] == list(range(10))
    assert {r.tag for r in replies if r.code} == set(bad)
    assert replies[8].code == grpc.StatusCode.OUT_OF_RANGE.value[0] and replies[5].message.startswith("user is empty")


def test_a_cancelled_stream(server, calls):
    asked = queue.SimpleQueue()
    replies = calls.stream(iter(asked.get, None))
    asked.put(record(calls, 1))
    assert next(replies).tag == 1
    replies.cancel()
    asked.put(None)
    assert calls.ask("Filter", user="u1", items=["i1"]).bitmap == b"\x00"


# --- health ---

def test_health(server, calls):
    def check(service):
        return calls.raw("/grpc.health.v1.Health/Check", b"\x0a" + bytes([len(service)]) + service.encode())
    assert check("") == check("unseen.v1.Unseen") == b"\x08\x01"
    with pytest.raises(grpc.RpcError) as caught:
        check("nothing")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    unknown = calls.raw("/grpc.health.v1.Health/Watch", b"\x0a\x01x", "unary_stream")
    assert next(unknown) == b"\x08\x03"
    unknown.cancel()


def test_watchers_are_told_of_the_end(make_server):
    server = make_server(grpc="127.0.0.1:0")
    with Grpc(server) as calls:
        watch = calls.raw("/grpc.health.v1.Health/Watch", b"", "unary_stream")
        assert next(watch) == b"\x08\x01"
        server.stop()
        assert next(watch) == b"\x08\x02"
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_reflection(calls):
    for version in ("v1", "v1alpha"):
        (reply,) = calls.raw(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo", iter([b"\x3a\x01*"]),
                             "stream_stream")
        assert b"unseen.v1.Unseen" in reply


# --- the start ---

def test_while_what_was_staged_is_read(make_server):
    """Plays are taken, over streams too; whatever else is asked is UNAVAILABLE, and says how far it is."""
    address = f"127.0.0.1:{free_port()}"
    server = make_server(grpc=address)
    assert server.stop() == 0
    stage(server)
    with held(server, STALL) as c, Grpc(server, address) as g:
        assert taken(c, "PLAYED", "u1", "redis") == 1
        assert g.ask("Played", user="u1", items=["one", "two"], tag=7).count == 2
        assert g.ask("Played", user="u1", items=["at"], at=START - DAY).count == 1
        assert g.ask("Delivered", user="u1", items=["sent"]).count == 1
        plays = [g.pb.RecordRequest(user="u1", items=[f"s{i}"], tag=i) for i in range(3)]
        assert sorted(reply.tag for reply in g.stream(iter(plays))) == [0, 1, 2]
        questions = {
            "Filter": dict(user="u1", items=["a"]),
            "Why": dict(user="u1", item="a"),
            "History": dict(user="u1"),
            "Exposure": dict(user="u1", items=["a"]),
            "Forget": dict(user="u1", all=True), "Merge": dict(user="u1", into="u2"),
            "Block": dict(session="s", ids=["1"]),
            "Unblock": dict(session="s", all=True),
            "PoolSet": dict(pool="p", items=["a"]),
            "PoolAdd": dict(pool="p", items=["a"]),
            "PoolRename": dict(pool="p", rename="q"),
            "PoolDrop": dict(pool="p"),
            "PoolList": {},
            "PoolGet": dict(pool="p"),
        }
        for method, fields in questions.items():
            status, text = g.refused(method, **fields)
            assert status == "UNAVAILABLE" and re.fullmatch(LOADING, text), (method, status, text)
        request, method = g.method("FilterMany", "unary_stream")
        with pytest.raises(grpc.RpcError) as caught:
            list(method(request(users=["u1", "u2"], items=["a"]), timeout=PATIENCE))
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE and re.fullmatch(LOADING, caught.value.details())
        services = {line.split()[1] for line in (REPO / "proto/unseen/v1/unseen.proto").read_text().splitlines()
                    if line.startswith("  rpc ")}
        assert {name.split("(")[0] for name in services} == {*questions, "FilterMany", "Played", "PlayedStream", "Delivered"}
        assert g.raw("/grpc.health.v1.Health/Check", b"") == b"\x08\x02"
        told_to_stop(server)
        go_on(c)
        assert server.process.wait(PATIENCE) == 0
    server.start()
    with Grpc(server, address) as g:
        items = ["redis", "one", "two", "at", "sent", "s0", "s1", "s2", "item1", "never"]
        assert list(g.ask("Filter", reply=2, user="u1", items=items).items) == ["never"]


# --- the end ---

def test_what_is_under_way_is_answered_when_the_server_stops(make_server):
    server = make_server(grpc="127.0.0.1:0")
    with Grpc(server) as calls:
        done, n = threading.Event(), 0
        acked = []

        def play():
            nonlocal n
            while not done.is_set():
                try:
                    acked.append(calls.ask("Played", user="u", items=[f"i{n}"], tag=n).tag)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.UNAVAILABLE, error
                    return
                n += 1

        thread = threading.Thread(target=play)
        thread.start()
        while len(acked) < 20:
            pass
        server.stop()
        done.set()
        thread.join()
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u", *(f"i{i}" for i in acked), "none") == [b"none"]


# --- who asks ---

def bearer(password):
    return [("authorization", f"Bearer {password}")]


def test_a_password(make_server):
    server = make_server(grpc="127.0.0.1:0", requirepass="hush")
    with Grpc(server) as calls:
        assert calls.refused("Filter", user="u", items=["a"]) == ("UNAUTHENTICATED", "Authentication required.")
        assert calls.refused("Filter", user="u", items=["a"], metadata=bearer("wrong"))[0] == "UNAUTHENTICATED"
        assert calls.ask("Filter", user="u", items=["a"], metadata=bearer("hush")).bitmap == b"\x80"
        for twice in (bearer("hush") * 2, bearer("wrong") + bearer("hush"), [("authorization", ""), *bearer("hush")]):
            assert calls.refused("Filter", user="u", items=["a"], metadata=twice) == \
                ("INVALID_ARGUMENT", "authorization is given twice")
        assert calls.raw("/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
        request = [calls.pb.RecordRequest(user="u", items=["a"])]
        with pytest.raises(grpc.RpcError) as caught:
            list(calls.stream(iter(request)))
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert [r.count for r in calls.stream(iter(request), metadata=bearer("hush"))] == [1]


def refused_start(folder, address):
    return run("serve", "--data", folder / "other", "--listen", "127.0.0.1:0", "--http", "none", "--grpc", address,
               check=False).stderr.decode()


def test_beyond_loopback_a_password_is_wanted(folder):
    assert "grpc is 0.0.0.0:0, which other machines may reach" in refused_start(folder, "0.0.0.0:0")


def test_a_port_that_is_taken(server, folder):
    address = grpc_address(server)
    assert f"grpc: can't listen on {address}: Address already in use" in refused_start(folder, address)


# --- what is counted ---

def test_it_is_counted_as_everywhere(make_server):
    server = make_server(grpc="127.0.0.1:0", http="127.0.0.1:0", slowlog_slower_than="0")
    before = scrape(server)
    with Grpc(server) as calls, server.client() as c:
        calls.ask("Filter", user="slow", items=["a"])
        calls.ask("Played", user="slow", items=["a"])
        calls.refused("Filter", user="", items=["a"])
        entries = [entry[3] for entry in c.command("SLOWLOG", "GET", 10)]
        assert [b"filter", b"slow", b"a"] in entries and [b"played", b"slow", b"a"] in entries
        with Asker(server) as asker:
            asker.http.request("GET", "/metrics")
            text = asker.http.getresponse().read().decode()
        assert 'unseen_command_duration_seconds_count{command="filter"} 2' in text
        assert 'unseen_command_errors_total{kind="ERR"} 1' in text
        after = scrape(server)
        rise = {name: after[name] - before[name] for name in after if name.startswith(("unseen_edge_", "unseen_grpc_"))}
        assert rise == {
            'unseen_edge_requests_total{edge="resp"}': 1,  # SLOWLOG
            'unseen_edge_requests_total{edge="http"}': 2,  # /metrics, twice
            'unseen_edge_requests_total{edge="grpc"}': 3,
            'unseen_edge_errors_total{edge="resp"}': 0,
            'unseen_edge_errors_total{edge="http"}': 0,
            'unseen_edge_errors_total{edge="grpc"}': 1,
            "unseen_grpc_connections": 1, "unseen_grpc_open_calls": 0, "unseen_grpc_calls_total": 3}


def test_open_calls_and_connections_come_and_go(server):
    def told():
        lines = dict(line.split(":", 1) for line in c.command("INFO", "stats").decode().splitlines() if ":" in line)
        return tuple(int(lines[name]) for name in ("grpc_connections", "grpc_open_calls", "grpc_calls", "grpc_messages"))

    def becomes(wanted):
        until(lambda: told() == wanted, told)

    with server.client() as c:
        with Grpc(server) as calls:
            asked = queue.SimpleQueue()
            replies = calls.stream(iter(asked.get, None))
            for i in range(2):
                asked.put(record(calls, i))
                assert next(replies).tag == i
            assert told() == (1, 1, 1, 2)
            asked.put(None)
            assert list(replies) == []
            becomes((1, 0, 1, 2))
        becomes((0, 0, 1, 2))


def test_clients_of_other_edges_are_not_listed_as_its_own(server, calls):
    calls.ask("Filter", user="u", items=["a"])
    with server.client() as c:
        assert len(c.command("CLIENT", "LIST").splitlines()) == 1


def test_many_connections(server):
    def one(i):
        with Grpc(server, **{"grpc.use_local_subchannel_pool": 1}) as calls:
            return calls.ask("Filter", user="u", items=["a"]).bitmap
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(64))) == {b"\x80"}
