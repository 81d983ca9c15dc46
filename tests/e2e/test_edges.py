"""The same thing is said the same way on every edge: what RESP2, RESP3, HTTP, a subcommand that asks the running server
and one that opens the stopped folder say of the same store is compared, field by field and value by value."""
import base64
import json
import os
import urllib.parse

import jsonschema
import pytest

from conftest import DAY, HOUR, START, run
from old_redis import PATIENT, REDIS, OldRedis
from resp import flat
from test_http import Asker, schema
from test_migrate import wait_status, zadd

MONTH = 30 * DAY
BINARY = b"\xff\xfe"
USERS = [b"u1", "ü".encode(), b"a\0b", BINARY, b"nobody"]
ITEMS = ["a", "staged", "twice", "sent", "old", "older", "new"]
CANDIDATES = [*ITEMS, "a", *(f"c{i}" for i in range(9))]


@pytest.fixture
def filled(make_server):
    """Months in every state, in the window and before it; staged plays, deliveries, ids of every kind."""
    server = make_server(http="127.0.0.1:0")
    with server.client() as c:
        for months, item in ((5, "older"), (6, "oldest"), (1, "old"), (0, "a"), (2, "twice")):
            c.command("PLAYEDAT", "u1", START - months * MONTH, item)
        for user in USERS[1:4]:
            c.command("PLAYED", user, "a")
        c.command("RING", "FLUSH")
    server.advance(20 * DAY)
    server.advance(15 * HOUR)  # the night: seals what is past, begins to sweep
    with server.client() as c:
        for user in USERS[:4]:
            c.command("PLAYED", user, "staged", "twice")
            c.command("DELIVERED", user, "sent")
        months = [flat(m) for m in c.command("MONTHS")]
    assert {m["state"] for m in months} >= {b"sealed", b"expiring"}, months
    return server


def plain(value):
    """A RESP value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def said_id(name, value):
    """How JSON says an id."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def fields(reply, *flags, numbers=()):
    """A RESP map: 0 and 1 that stand for yes and no, and RESP2's numbers, as JSON has them."""
    told = {k: plain(v) if k != "user" else v for k, v in flat(reply).items()}
    for name in flags:
        assert told[name] in (0, 1)
        told[name] = bool(told[name])
    for name in numbers:
        told[name] = float(told[name])
    return told


class Resp:
    def __init__(self, server, protocol):
        self.client = server.client(protocol)
        self.protocol = protocol

    def why(self, user, item):
        places = self.client.command("WHY", user, item)
        if self.protocol == 2:  # says no chances
            return [p.decode() for p in places]
        return {**said_id("user", user), "item": item, "seen": bool(places),
                "places": [{"place": p.decode(), "error": e} for p, e in places.items()]}

    def history(self, user):
        reply = self.client.command("HISTORY", user)
        if reply is None:
            return None
        told = fields(reply, numbers=["error"])
        told["months"] = [fields(m, "sealed", "in_window", numbers=["error"]) for m in flat(reply)["months"]]
        return {**said_id("user", told.pop("user")), **told}

    def months(self):
        return {"months": [fields(m, "in_window", numbers=["progress"]) for m in self.client.command("MONTHS")]}

    def ring(self):
        slots = [fields(s) for s in self.client.command("RING")]
        info = dict(line.split(":", 1) for line in self.client.command("INFO", "ring", "persistence").decode().split("\r\n")
                    if ":" in line)
        assert {s.pop("clock") for s in slots} == {info["clock"]}
        return {"slots": slots, "clock": info["clock"], "writes_refused_cause": info["writes_refused_cause"],
                "writes_refused": bool(int(info["writes_refused"])),
                **{k: int(info[f"ring_{k}"]) for k in ("turn", "open", "next_turn", "memory", "memory_limit")}}

    def filter(self, form, limit=None):
        answer = self.client.command("FILTER", "u1", "REPLY", form, *(["LIMIT", limit] if limit else []), "ITEMS",
                                     *CANDIDATES)
        return base64.b64encode(answer).decode() if form == "BITMAP" else plain(answer)


class Http:
    def __init__(self, server):
        self.asker = Asker(server)

    def why(self, user, item):
        return self.good("Why", "POST", "/v1/why", {"user": user.decode(), "item": item})

    def good(self, name, *request):
        answer = self.asker.good(*request)
        jsonschema.validate(answer, schema(name))
        return answer

    def history(self, user):
        path = "/v1/users/" + urllib.parse.quote(user, safe="")
        if self.asker.ask("GET", path)[0] == 404:
            return None
        return self.good("User", "GET", path)

    def months(self):
        return self.good("Months", "GET", "/v1/months")

    def ring(self):
        return self.good("Ring", "GET", "/v1/ring")

    def filter(self, form, limit=None):
        body = {"user": "u1", "items": CANDIDATES, "reply": form.lower(), **({"limit": limit} if limit else {})}
        answer = self.good(f"Unseen{form.capitalize()}", "POST", "/v1/unseen", body)
        assert list(answer) == [form.lower()]
        return answer[form.lower()]


class Cli:
    """clock: of the stopped folder; a running server has its own."""

    def __init__(self, server, clock=None):
        self.options = ["--json", "--data", server.data, *(["--test-clock", clock] if clock else [])]

    def json(self, *words):
        return json.loads(run(*words, *self.options).stdout)

    def why(self, user, item):
        return self.json("why", os.fsdecode(user), item)

    def history(self, user):
        return self.json("user", os.fsdecode(user))

    def months(self):
        return self.json("months")


def compare(edges, question, *words):
    """The edges that have the question must agree. What all of them say."""
    answers = {name: getattr(edge, question)(*words) for name, edge in edges.items() if hasattr(edge, question)}
    first = next(iter(answers.values()))
    for name, answer in answers.items():
        assert answer == first, (question, words, name, answers)
    return first


def local(server):
    """The folder of the server, which ends. What is staged would be flushed while the folder is read: it has been."""
    assert server.stop() == 0
    return Cli(server, server.clock)


def flush(server):
    with server.client() as c:
        c.command("RING", "FLUSH")


def running(server):
    return {"RESP3": Resp(server, 3), "HTTP": Http(server), "remote": Cli(server)}


def test_history(filled):
    edges = {"RESP2": Resp(filled, 2), **running(filled)}

    def all_users():  # an argument of a process holds no NUL
        return {user: compare({k: v for k, v in edges.items() if k != "remote" or b"\0" not in user}, "history", user)
                for user in USERS}

    assert all_users()[b"u1"]["staged"] == 2
    flush(filled)
    told = all_users()
    assert told[b"nobody"] is None
    assert told[BINARY]["user_base64"] == "//4=" and "user" not in told[BINARY]
    assert told[b"a\0b"]["user"] == "a\0b"
    assert {m["in_window"] for m in told[b"u1"]["months"]} == {True, False}
    folder = local(filled)
    for user in USERS:
        assert b"\0" in user or folder.history(user) == told[user]


def test_why(filled):
    edges = running(filled)
    told = {}
    for item in ITEMS:
        told[item] = compare(edges, "why", b"u1", item)
        assert Resp(filled, 2).why(b"u1", item) == [p["place"] for p in told[item]["places"]]
    assert told["twice"]["places"][0]["place"] == "staged" and len(told["twice"]["places"]) == 2
    compare(edges, "why", b"nobody", "a")
    flush(filled)
    told = {item: compare(edges, "why", b"u1", item) for item in ITEMS}
    del edges["HTTP"]  # a body can't say such a user
    assert compare(edges, "why", BINARY, "a")["user_base64"] == "//4="
    folder = local(filled)
    for item in ITEMS:
        assert folder.why(b"u1", item) == told[item]


def test_months(filled):
    flush(filled)
    told = compare({"RESP2": Resp(filled, 2), **running(filled)}, "months")
    assert {m["in_window"] for m in told["months"]} == {True, False}
    assert local(filled).months() == told


def test_ring(filled):
    compare({"RESP2": Resp(filled, 2), **running(filled)}, "ring")


@pytest.mark.parametrize("form, limit", [("ITEMS", None), ("ITEMS", 3), ("INDEXES", None), ("INDEXES", 3), ("BITMAP", None)])
def test_filter(filled, form, limit):
    edges = {"RESP2": Resp(filled, 2), **running(filled)}
    told = compare(edges, "filter", form, limit)
    unseen = plain(edges["RESP3"].client.command("UNSEEN", "u1", *CANDIDATES))
    seen = edges["RESP3"].client.command("SEEN", "u1", *CANDIDATES)
    assert unseen == [item for item, hidden in zip(CANDIDATES, seen) if not hidden]
    bits = bytearray((len(CANDIDATES) + 7) // 8)
    for i in (i for i, hidden in enumerate(seen) if not hidden):
        bits[i // 8] |= 0x80 >> i % 8
    assert told == {"ITEMS": unseen[:limit], "INDEXES": [i for i, hidden in enumerate(seen) if not hidden][:limit],
                    "BITMAP": base64.b64encode(bits).decode()}[form]


def test_blocked(filled):
    """A scroll session's say, in front of the other places. A folder has no sessions."""
    resp, http = Resp(filled, 3), Http(filled)
    for session, item in (("s", "7"), ("other", "7"), ("s", "8")):
        resp.client.command("BLOCK", "s", "7")
        resp.client.command("PLAYED", "u1", "7")
        said = resp.client.command("WHY", "u1", item, "SESSION", session)
        answer = http.good("Why", "POST", "/v1/why", {"user": "u1", "item": item, "session": session})
        assert [(p["place"], p["error"]) for p in answer["places"]] == [(p.decode(), e) for p, e in said.items()]
        assert ("blocked" in [p["place"] for p in answer["places"]]) == ((session, item) == ("s", "7"))


def test_legacy(make_server, folder):
    """What only the old Redis has seen, as WHY says it."""
    if REDIS is None:
        pytest.skip("redis-server is not installed")
    redis = OldRedis(folder / "old")
    try:
        with redis.client() as c:
            zadd(c, "played:u", [(START, "there")])
        server = make_server(legacy_redis=redis.socket, legacy_read_through="yes", legacy_timeout=PATIENT)
        with server.client() as c:
            c.command("LEGACY", "PAUSE")
            c.command("LEGACY", "NOTE", "u")
        wait_status(server, lambda s: s[b"read_through"] == b"on")
        edges = {"RESP3": Resp(server, 3), "remote": Cli(server)}
        told = compare(edges, "why", b"u", "there")
        assert told["places"] == [{"place": "legacy", "error": 0}]
        text = run("why", "u", "there", "--data", server.data).stdout.decode()
        assert "legacy" in text and "none" in text
    finally:
        redis.kill()


def test_what_writes_is_no_reader(client):
    """A client that sends what is read-only to a replica must not send FILTER ... DELIVER there."""
    flags = {row[0]: set(row[2]) for row in client.command("COMMAND", "INFO", "FILTER", "UNSEEN", "PLAYED", "BLOCK", "UNBLOCK")}
    assert b"readonly" not in flags[b"filter"] and b"write" in flags[b"filter"]
    assert b"readonly" in flags[b"unseen"] and b"write" in flags[b"played"]
    assert all(b"write" in flags[name] for name in (b"block", b"unblock"))
