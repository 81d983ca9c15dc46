"""Every operation, with good and with bad input, through every edge: the outcome, the words of an error and what is
counted are the same, whether the store answers at once or later. A row is an operation as each edge says it; it is run
for a user of each edge's own."""
import base64
import struct
import urllib.parse

import pytest

from conftest import DAY, START
from resp import RespError, flat
from test_http import Asker
from unseen_grpc import Grpc as Calls
from unseen_grpc import grpc

LONG = "x" * 256
MANY = [f"c{i}" for i in range(16)]
EDGES = ("RESP2", "RESP3", "HTTP", "GRPC")
PLAYED = [("PLAYED", "{u}", "a", "b")]
SENT = [("PLAYED", "{u}", "a"), ("DELIVERED", "{u}", "c"), ("DELIVERED", "push:{u}", "d")]
BLOCKED = [("BLOCK", "{s}", "7", "8")]
NO_POOLS = [("POOL", "DROP", "p"), ("POOL", "DROP", "q")]
SEED, FINGERPRINT = "0123456789abcdef", "07f90ff4"
HASHES = {"a": 0xfcf369f9e7541d1b, "b": 0xa6c952c14d2bf2a9, "c": 0x9644456a23a6a28e, "d": 0xed8f84cb6cf426b7}
POOLS = [*PLAYED, *NO_POOLS, ("POOL", "SET", "p", "a", "c", "b", "d", "7"), ("POOL", "SET", "q", "d", "e", "a", "f")]

# Which first words of RESP stand for which problems of HTTP.
WORDS = {"bad-request": "ERR", "disk-full": "MISCONF", "not-recorded": "MISCONF", "busy": "BUSY", "out-of-memory": "OOM",
         "recovering": "LOADING", "shared-key": "ERR", "damaged": "ERR", "failed": "ERR", "unauthorized": "NOAUTH",
         "forbidden": "NOPERM", "unknown-pool": "NOPOOL", "pool-version": "VERSION", "other-seed": "SEED"}


# And statuses of gRPC, of those that are tried here.
STATUSES = {"INVALID_ARGUMENT": "ERR", "OUT_OF_RANGE": "ERR", "UNAUTHENTICATED": "NOAUTH", "PERMISSION_DENIED": "NOPERM",
            "NOT_FOUND": "NOPOOL", "FAILED_PRECONDITION": "VERSION"}

# What gRPC says otherwise, since a field that is not set is 0 or empty: no limit, no session.
NOT_OF_GRPC = {"limit of none", "empty session", "why an empty session", "no hashes", "hashes with limit of none"}


def unseen(**fields):
    return "POST", "/v1/unseen", {"user": "{u}", **fields}


def post(path, **fields):
    return "POST", path, fields


def row(name, resp, http, before=()):
    return pytest.param(resp, http, before, id=name)


def question(name, options, fields, before=PLAYED):
    return row(name, ("FILTER", "{u}", *options, "ITEMS", "a", "c", "b", "d", "a"),
               unseen(items=["a", "c", "b", "d", "a"], **fields), before)


def pool_question(name, options, fields, pools=("p",)):
    names = [word for pool in pools for word in ("POOL", pool)]
    return row(name, ("FILTER", "{u}", *options, *names), unseen(pools=list(pools), **fields), [*POOLS, *BLOCKED])


def hashes(ids):
    return b"".join(struct.pack("<Q", HASHES[i]) for i in ids)


def hash_question(name, options, about=hashes("acbda"), seed=FINGERPRINT, before=PLAYED, reply="bitmap"):
    """options: as the query of HTTP has them."""
    words = [word for key, value in options.items() for word in ([key] if key == "deliver" else [key, value])]
    query = "&".join(f"{k}={v}" for k, v in {"seed": seed, "reply": reply, **options}.items() if v is not None)
    said = ["SEED", seed] if seed is not None else []
    return row(name, ("FILTER", "{u}", "REPLY", reply.upper(), *(word.upper() if word in options else word for word in words),
                      *said, "HASHES", about), ("POST", f"/v1/unseen/{{u}}?{query}", about), [*before, *BLOCKED])


ROWS = [
    row("play", ("PLAYED", "{u}", "a", "b"), post("/v1/played", user="{u}", items=["a", "b"])),
    row("play at a time", ("PLAYEDAT", "{u}", START - DAY, "a"), post("/v1/played", user="{u}", items=["a"], at=START - DAY)),
    row("play in seconds", ("PLAYEDAT", "{u}", START // 1000, "a"),
        post("/v1/played", user="{u}", items=["a"], at=START // 1000)),
    row("play too far ahead", ("PLAYEDAT", "{u}", START + 2 * DAY, "a"),
        post("/v1/played", user="{u}", items=["a"], at=START + 2 * DAY)),
    row("play of a long item", ("PLAYED", "{u}", "a", LONG), post("/v1/played", user="{u}", items=["a", LONG])),
    row("play of an empty item", ("PLAYED", "{u}", "a", ""), post("/v1/played", user="{u}", items=["a", ""])),
    row("play of an empty user", ("PLAYED", "", "a"), post("/v1/played", user="", items=["a"])),
    row("play of a long user", ("PLAYED", LONG, "a"), post("/v1/played", user=LONG, items=["a"])),
    row("delivery", ("DELIVERED", "{u}", "a", "b"), post("/v1/delivered", user="{u}", items=["a", "b"])),
    row("delivery of an empty item", ("DELIVERED", "{u}", ""), post("/v1/delivered", user="{u}", items=[""])),
    question("question", [], {}),
    question("question of nobody", [], {}, before=()),
    question("indexes", ["REPLY", "INDEXES"], {"reply": "indexes"}),
    question("bitmap", ["REPLY", "BITMAP"], {"reply": "bitmap"}),
    question("limit", ["LIMIT", "1"], {"limit": 1}),
    question("limit beyond", ["LIMIT", "100000"], {"limit": 100000}),
    question("limit of none", ["LIMIT", "0"], {"limit": 0}),
    question("limit below none", ["LIMIT", "-1"], {"limit": -1}),
    question("limit of a bitmap", ["REPLY", "BITMAP", "LIMIT", "1"], {"reply": "bitmap", "limit": 1}),
    question("deliver", ["LIMIT", "1", "DELIVER"], {"limit": 1, "deliver": True}),
    question("deliver indexes", ["LIMIT", "2", "DELIVER", "REPLY", "INDEXES"], {"limit": 2, "deliver": True, "reply": "indexes"}),
    question("deliver without limit", ["DELIVER"], {"deliver": True}),
    question("deliver too many", ["DELIVER", "LIMIT", "101"], {"deliver": True, "limit": 101}),
    question("relax", ["LIMIT", "5", "RELAX"], {"limit": 5, "relax": True}, SENT),
    question("relax indexes", ["LIMIT", "4", "RELAX", "REPLY", "INDEXES"], {"limit": 4, "relax": True, "reply": "indexes"}, SENT),
    question("relax and deliver", ["LIMIT", "3", "RELAX", "DELIVER"], {"limit": 3, "relax": True, "deliver": True}, SENT),
    question("relax nothing", ["LIMIT", "1", "RELAX"], {"limit": 1, "relax": True}),
    question("relax without limit", ["RELAX"], {"relax": True}),
    question("policy", ["POLICY", "feed"], {"policy": "feed"}, SENT),
    question("policy and relax", ["POLICY", "feed", "LIMIT", "5", "RELAX"], {"policy": "feed", "limit": 5, "relax": True}, SENT),
    question("policy of other users", ["POLICY", "all", "REPLY", "BITMAP"], {"policy": "all", "reply": "bitmap"}, SENT),
    question("policy that is not there", ["POLICY", "feeds"], {"policy": "feeds"}),
    question("policy with a long name", ["POLICY", LONG], {"policy": LONG}),
    row("policy of another user's long id", ("FILTER", "u" * 251, "POLICY", "all", "ITEMS", "a"),
        post("/v1/unseen", user="u" * 251, items=["a"], policy="all")),
    row("why by a policy", ("WHY", "{u}", "c", "POLICY", "feed"), post("/v1/why", user="{u}", item="c", policy="feed"), SENT),
    row("why by another user", ("WHY", "{u}", "d", "POLICY", "shared"), post("/v1/why", user="{u}", item="d", policy="shared"),
        [("DELIVERED", "watched", "d")]),
    row("why by a policy that is not there", ("WHY", "{u}", "a", "POLICY", "x"), post("/v1/why", user="{u}", item="a", policy="x")),
    row("exposure", ("EXPOSURE", "{u}", "c", "a", "c"), post("/v1/exposure", user="{u}", items=["c", "a", "c"]), SENT),
    row("exposure of nobody", ("EXPOSURE", "{u}", "c"), post("/v1/exposure", user="{u}", items=["c"])),
    row("exposure of an empty item", ("EXPOSURE", "{u}", "a", ""), post("/v1/exposure", user="{u}", items=["a", ""])),
    row("exposure of too many", ("EXPOSURE", "{u}", *["a"] * 1001), post("/v1/exposure", user="{u}", items=["a"] * 1001)),
    row("exposure of a long user", ("EXPOSURE", LONG, "a"), post("/v1/exposure", user=LONG, items=["a"])),
    question("session", ["SESSION", "{s}"], {"session": "{s}"}),
    question("empty session", ["SESSION", ""], {"session": ""}),
    question("long session", ["SESSION", LONG], {"session": LONG}),
    row("question of an empty user", ("FILTER", "", "ITEMS", "a"), post("/v1/unseen", user="", items=["a"])),
    row("question about a long item", ("FILTER", "{u}", "ITEMS", "a", LONG), unseen(items=["a", LONG])),
    row("question about many", ("FILTER", "{u}", "ITEMS", *MANY), unseen(items=MANY), PLAYED),
    row("blocked ones", ("FILTER", "{u}", "SESSION", "{s}", "ITEMS", "7", "007", "9"),
        unseen(items=["7", "007", "9"], session="{s}"), BLOCKED),
    row("blocked bits", ("FILTER", "{u}", "SESSION", "{s}", "REPLY", "BITMAP", "ITEMS", "7", "007", "9"),
        unseen(items=["7", "007", "9"], session="{s}", reply="bitmap"), BLOCKED),
    row("why", ("WHY", "{u}", "a"), post("/v1/why", user="{u}", item="a"), PLAYED),
    row("why unseen", ("WHY", "{u}", "z"), post("/v1/why", user="{u}", item="z"), PLAYED),
    row("why blocked", ("WHY", "{u}", "7", "SESSION", "{s}"), post("/v1/why", user="{u}", item="7", session="{s}"), BLOCKED),
    row("why an empty item", ("WHY", "{u}", ""), post("/v1/why", user="{u}", item="")),
    row("why a long user", ("WHY", LONG, "a"), post("/v1/why", user=LONG, item="a")),
    row("why an empty session", ("WHY", "{u}", "a", "SESSION", ""), post("/v1/why", user="{u}", item="a", session="")),
    row("history", ("HISTORY", "{u}"), ("GET", "/v1/users/{u}", None), PLAYED),
    row("history of nobody", ("HISTORY", "{u}"), ("GET", "/v1/users/{u}", None)),
    row("history of a long user", ("HISTORY", LONG), ("GET", f"/v1/users/{LONG}", None)),
    row("forget", ("FORGET", "{u}"), ("DELETE", "/v1/users/{u}", None), PLAYED),
    row("forget nobody", ("FORGET", "{u}"), ("DELETE", "/v1/users/{u}", None)),
    row("forget an item", ("FORGET", "{u}", "a", "z"), ("DELETE", "/v1/users/{u}?item=a&item=z", None), PLAYED),
    row("forget a long item", ("FORGET", "{u}", "a", LONG), ("DELETE", f"/v1/users/{{u}}?item=a&item={LONG}", None), PLAYED),
    row("forget a long user", ("FORGET", LONG), ("DELETE", f"/v1/users/{LONG}", None)),
    row("merge", ("MERGE", "{u}", "to-{u}"), ("POST", "/v1/users/{u}:merge", {"into": "to-{u}"}), PLAYED),
    row("merge and forget", ("MERGE", "{u}", "to-{u}", "FORGET"),
        ("POST", "/v1/users/{u}:merge", {"into": "to-{u}", "forget": True}), PLAYED),
    row("merge nobody", ("MERGE", "{u}", "to-{u}"), ("POST", "/v1/users/{u}:merge", {"into": "to-{u}"})),
    row("merge into itself", ("MERGE", "me", "me"), ("POST", "/v1/users/me:merge", {"into": "me"})),
    row("merge a long user", ("MERGE", LONG, "to"), ("POST", f"/v1/users/{LONG}:merge", {"into": "to"})),
    row("merge into a long user", ("MERGE", "{u}", LONG), ("POST", "/v1/users/{u}:merge", {"into": LONG}), PLAYED),
    row("block", ("BLOCK", "{s}", "8", "9", "word"), post("/v1/block", session="{s}", ids=["8", "9", "word"]), BLOCKED),
    row("block an empty id", ("BLOCK", "{s}", "8", ""), post("/v1/block", session="{s}", ids=["8", ""])),
    row("block a long id", ("BLOCK", "{s}", LONG), post("/v1/block", session="{s}", ids=[LONG])),
    row("block in an empty session", ("BLOCK", "", "8"), post("/v1/block", session="", ids=["8"])),
    row("unblock", ("UNBLOCK", "{s}", "8", "9"), post("/v1/unblock", session="{s}", ids=["8", "9"]), BLOCKED),
    row("unblock all", ("UNBLOCK", "{s}"), post("/v1/unblock", session="{s}"), BLOCKED),
    pool_question("pool", [], {}),
    pool_question("pools", [], {}, ("p", "q")),
    pool_question("pool indexes", ["REPLY", "INDEXES"], {"reply": "indexes"}),
    pool_question("pool bitmap", ["REPLY", "BITMAP"], {"reply": "bitmap"}),
    pool_question("pools bitmap", ["REPLY", "BITMAP"], {"reply": "bitmap"}, ("q", "p")),
    pool_question("pools indexes", ["REPLY", "INDEXES", "SESSION", "{s}"], {"reply": "indexes", "session": "{s}"}, ("q", "p")),
    pool_question("pool limit", ["LIMIT", "1"], {"limit": 1}),
    pool_question("pool deliver", ["LIMIT", "2", "DELIVER"], {"limit": 2, "deliver": True}, ("q", "p")),
    pool_question("pool of another version", ["VERSION", "0123456789abcdef"], {"pool_version": "0123456789abcdef"}),
    pool_question("pool of a bad version", ["VERSION", "new"], {"pool_version": "new"}),
    pool_question("no pool", [], {}, ("p", "none")),
    pool_question("too many pools", [], {}, ("p",) * 17),
    pool_question("pool of a long name", [], {}, (LONG,)),
    hash_question("hashes", {}),
    hash_question("hashes of nobody", {}, before=()),
    hash_question("hash indexes", {}, reply="indexes"),
    hash_question("hash limit", {"limit": "1"}, reply="indexes"),
    hash_question("hash items", {}, reply="items"),
    hash_question("hashes with limit of none", {"limit": "0"}, reply="indexes"),
    hash_question("hash bitmap with limit", {"limit": "1"}),
    hash_question("hashes and a session", {"session": "{s}"}),
    hash_question("hashes to deliver", {"limit": "1", "deliver": "true"}, reply="indexes"),
    hash_question("hashes without seed", {}, seed=None),
    hash_question("hashes with another seed", {}, seed="1a2b3c4d"),
    hash_question("hashes with a bad seed", {}, seed="1A2B3C4D"),
    hash_question("hashes with a short seed", {}, seed="7f90ff4"),
    hash_question("hashes cut short", {}, hashes("ac")[:-1]),
    hash_question("less than a hash", {}, b"\0" * 5),
    hash_question("no hashes", {}, b""),
    hash_question("too many hashes", {}, b"\0" * 8 * 65537),
    hash_question("as many hashes as may be", {}, hashes("abcd") * 16384),
    row("pool set", ("POOL", "SET", "p", "a", "b", "a"), ("PUT", "/v1/pools/p", {"items": ["a", "b", "a"]}), NO_POOLS),
    row("pool set anew", ("POOL", "SET", "p", "z"), ("PUT", "/v1/pools/p", {"items": ["z"]}), POOLS),
    row("pool set of a long item", ("POOL", "SET", "p", "a", LONG), ("PUT", "/v1/pools/p", {"items": ["a", LONG]}), NO_POOLS),
    row("pool of a long name set", ("POOL", "SET", LONG, "a"), ("PUT", f"/v1/pools/{LONG}", {"items": ["a"]})),
    row("pool add", ("POOL", "ADD", "p", "z", "a"), post("/v1/pools/p", items=["z", "a"]), POOLS),
    row("pool add to none", ("POOL", "ADD", "p", "z", "a"), post("/v1/pools/p", items=["z", "a"]), NO_POOLS),
    row("pool rename", ("POOL", "RENAME", "p", "q"), post("/v1/pools/p", rename="q"), POOLS),
    row("pool rename none", ("POOL", "RENAME", "p", "q"), post("/v1/pools/p", rename="q"), NO_POOLS),
    row("pool drop", ("POOL", "DROP", "p"), ("DELETE", "/v1/pools/p", None), POOLS),
    row("pool drop none", ("POOL", "DROP", "p"), ("DELETE", "/v1/pools/p", None), NO_POOLS),
    row("unblock in a long session", ("UNBLOCK", LONG), post("/v1/unblock", session=LONG)),
]


def named(value, edge):
    """The row's words for the user and the session of this edge."""
    if isinstance(value, str):
        return value.replace("{u}", f"u-{edge.lower():.5}").replace("{s}", f"s-{edge.lower():.5}")
    if isinstance(value, dict):
        return {k: named(v, edge) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [named(v, edge) for v in value]
    return value


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def plain_month(month):
    told = {k: text(v) for k, v in flat(month).items()}
    return {**told, "sealed": bool(told["sealed"]), "in_window": bool(told["in_window"]), "error": float(told["error"])}


def resp_value(words, reply):
    """A reply, as HTTP's object has it."""
    operation = words[0]
    if operation == "POOL":
        return reply if words[1] == "DROP" else [reply[0], text(reply[1])]
    if operation == "WHY" and "POLICY" in words:
        return [{k: text(v) if k == "place" else v and float(v) for k, v in flat(place).items()} for place in reply]
    if operation == "FILTER" and "POOL" in words and "REPLY" in words:
        version, answer = reply
        return [text(version), base64.b64encode(answer).decode() if "BITMAP" in words else answer]
    if operation == "FILTER" and "BITMAP" in words:
        return base64.b64encode(reply).decode()
    if operation == "FILTER":
        return [text(v) for v in reply]
    if operation == "WHY":
        return [text(v) for v in reply]
    if operation == "HISTORY":
        if reply is None:
            return None
        told = flat(reply)
        return {**{k: told[k] for k in ("staged", "delivered")}, "error": float(told["error"]),
                "months": [plain_month(m) for m in told["months"]]}
    return reply


def http_value(path, status, answer):
    if path == "/v1/why" and any("until" in place for place in answer["places"]):
        return answer["places"]
    if path == "/v1/exposure":
        return [item and [item["count"], item["seconds"]] for item in answer["exposure"]]
    if "relaxed" in answer and "pool_version" not in answer:
        n = answer.pop("relaxed")
        return [*next(iter(answer.values())), n]
    if path == "/v1/why":
        return [place["place"] for place in answer["places"]]
    if path.startswith("/v1/users/") and "months" in answer:
        return {k: answer[k] for k in ("staged", "delivered", "error", "months")}
    if "pool_version" in answer:
        return [answer.pop("pool_version"), *answer.values()]
    if path.startswith("/v1/pools/") and "version" in answer:
        return [answer["items"], answer["version"]]
    assert len(answer) == 1, answer
    return next(iter(answer.values()))


class Resp:
    def __init__(self, server, protocol):
        self.client = server.client(protocol)

    def outcome(self, resp, http):
        try:
            return "answer", resp_value(resp, self.client.command(*resp))
        except RespError as error:
            return "error", *str(error).split(" ", 1)


class Http:
    def __init__(self, server):
        self.asker = Asker(server)

    def outcome(self, resp, http):
        method, path, body = http
        headers = {"Content-Type": "application/octet-stream"} if isinstance(body, bytes) else None
        status, _, answer = self.asker.ask(method, path, body, headers)
        if status == 404 and answer["type"].endswith(":unknown-user"):
            return "answer", None
        if status >= 400:
            assert answer["status"] == status
            return "error", WORDS[answer["type"].rsplit(":", 1)[1]], answer["detail"]
        return "answer", http_value(path, status, answer)


class Grpc:
    """Asks as HTTP does, in its own words."""

    METHODS = {"/v1/played": "Played", "/v1/delivered": "Delivered", "/v1/unseen": "Filter", "/v1/why": "Why", "/v1/exposure": "Exposure",
               "/v1/block": "Block", "/v1/unblock": "Unblock"}
    FORMS = {"items": 2, "indexes": 1, "bitmap": 0}

    def __init__(self, server, header=None):
        self.calls = Calls(server)
        self.metadata = [(name.lower(), value) for name, value in (header or {}).items()]

    POOLS = {"PUT": "PoolSet", "POST": "PoolAdd", "DELETE": "PoolDrop"}

    def call(self, method, path, body):
        if path.startswith("/v1/pools/"):
            name = "PoolRename" if body is not None and "rename" in body else self.POOLS[method]
            return name, {"pool": path.removeprefix("/v1/pools/"), **(body or {})}
        if isinstance(body, bytes):
            user, _, query = path.removeprefix("/v1/unseen/").partition("?")
            fields = {"user": user, "hashes": body, **dict(urllib.parse.parse_qsl(query))}
            fields["reply"] = self.FORMS[fields["reply"]]
            if "limit" in fields:
                fields["limit"] = int(fields["limit"])
            if "deliver" in fields:
                fields["deliver"] = True
            return "Filter", fields
        if path.endswith(":merge"):
            return "Merge", {"user": path.removeprefix("/v1/users/").removesuffix(":merge"), **body}
        if body is not None:
            fields = dict(body)
            if path == "/v1/unseen":
                fields["reply"] = self.FORMS[fields.get("reply", "items")]
            if path == "/v1/unblock" and "ids" not in fields:
                fields["all"] = True
            return self.METHODS[path], fields
        user, _, items = path.removeprefix("/v1/users/").partition("?")
        if method == "GET":
            return "History", {"user": user}
        items = [item.removeprefix("item=") for item in items.split("&") if item]
        return "Forget", {"user": user, **({"items": items} if items else {"all": True})}

    def form(self, fields, reply):
        return [base64.b64encode(reply.bitmap).decode(), list(reply.indexes), list(reply.items)][fields["reply"]]

    def value(self, name, fields, reply):
        if name.startswith("Pool"):
            return reply.count if name == "PoolDrop" else [reply.count, reply.pool_version]
        if name == "Filter" and reply.pool_version:
            return [reply.pool_version, self.form(fields, reply)]
        if name == "Filter":
            return self.form(fields, reply) if "relax" not in fields else [*self.form(fields, reply), reply.relaxed]
        if name == "Why" and "policy" in fields:
            return [{"place": p.place, "error": p.error, "until": p.until or None} for p in reply.places]
        if name == "Exposure":
            return [[i.count, i.seconds] if i.count else None for i in reply.items]
        if name == "Why":
            return [place.place for place in reply.places]
        if name == "History":
            months = [{"month": m.month, "items": m.items, "bytes": m.bytes, "error": m.error, "sealed": m.sealed,
                       "in_window": m.in_window, "expires": m.expires} for m in reply.months]
            return {"staged": reply.staged, "delivered": reply.delivered, "error": reply.error, "months": months}
        return reply.count

    def outcome(self, resp, http):
        name, fields = self.call(*http)
        try:
            return "answer", self.value(name, fields, self.calls.ask(name, metadata=self.metadata, **fields))
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND and "pool" not in error.details():
                return "answer", None
            word = "SEED" if "the seed" in error.details() and error.code().name == "FAILED_PRECONDITION" else None
            return "error", word or STATUSES[error.code().name], error.details()


COUNTED = ("questions", "candidates", "candidates_unseen", "plays_received", "deliveries_received", "event_times_replaced",
           "event_times_refused", "total_error_replies", "total_commands_processed", "large_questions",
           "questions_over_error_rate", "users_forgotten", "items_forgotten")


def counted(server):
    """What INFO counts, and how often /metrics saw each operation and error."""
    with server.client() as c:
        info = dict(line.split(":", 1) for line in c.command("INFO", "stats").decode().split("\r\n") if ":" in line)
    with Asker(server) as asker:
        asker.http.request("GET", "/metrics")
        lines = asker.http.getresponse().read().decode().split("\n")
    told = {name: int(info[name]) for name in COUNTED}
    for line in lines:
        if line.startswith(("unseen_command_duration_seconds_count{", "unseen_command_errors_total{")):
            name, value = line.rsplit(" ", 1)
            told[name] = float(value)
    return told


def difference(before, after):
    """Less what looking itself counts."""
    less = {"total_commands_processed": 2, 'unseen_command_duration_seconds_count{command="info"}': 1}
    return {k: after[k] - before.get(k, 0) - less.get(k, 0) for k in after if after[k] - before.get(k, 0) != less.get(k, 0)}


@pytest.fixture(scope="module", params=["sqlite", "memory:later"])
def served(tmp_path_factory, request):
    from conftest import Server
    server = Server(tmp_path_factory.mktemp("conformance"), http="127.0.0.1:0", grpc="127.0.0.1:0", delivered_max=100,
                    store=request.param, hash_seed=SEED,
                    policies={"feed": {"item": "1 in 1h"}, "all": {"item": "1 in 1h", "also": "push:{user}"},
                              "shared": {"item": "1 in 1h", "also": "watched"}})
    yield server, {"RESP2": Resp(server, 2), "RESP3": Resp(server, 3), "HTTP": Http(server), "GRPC": Grpc(server)}
    server.stop()


@pytest.mark.parametrize("resp, http, before", ROWS)
def test_edges_agree(served, resp, http, before, request):
    server, edges = served
    name = request.node.callspec.id.split("-", 1)[1]  # less the store's
    asked = [edge for edge in EDGES if edge != "GRPC" or name not in NOT_OF_GRPC]
    outcomes, counts = {}, {}
    for edge in asked:
        with server.client() as c:
            c.command("FORGET", named("{u}", edge))
            c.command("FORGET", named("push:{u}", edge))
            c.command("UNBLOCK", named("{s}", edge))
            for words in before:
                c.command(*named(words, edge))
        then = counted(server)
        outcomes[edge] = edges[edge].outcome(named(resp, edge), named(http, edge))
        counts[edge] = difference(then, counted(server))
    for edge in asked:
        assert outcomes[edge] == outcomes["RESP2"], edge
        assert counts[edge] == counts["RESP2"], edge
    assert counts["HTTP"], "the operation was counted nowhere"


# --- who may ---

WHO = ("nobody", "the-ask", "the-record", "the-forget", "the-watch")
ASKED = ("play", "delivery", "question", "deliver", "why", "history", "forget", "forget an item", "block", "unblock",
         "pool set", "pool drop", "pool add")
GUARDED = [pytest.param(who, *row.values[:2], id=f"{row.id} by {who}") for row in ROWS for who in WHO
           if row.id in ASKED and (who != "nobody" or len(row.values[0]) <= 10)]  # RESP reads no more without a login


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with an account of each role, and each edge as each of them."""
    from conftest import Server
    from test_accounts import account, basic
    folder = tmp_path_factory.mktemp("guarded")
    for name in WHO[1:]:
        account(folder / "accounts", "add", name, "--roles", name[4:], password=name)
    server = Server(folder, http="127.0.0.1:0", grpc="127.0.0.1:0", accounts=str(folder / "accounts"),
                    requirepass="all")
    edges = {}
    for who in WHO:
        header = basic(who, who) if who != "nobody" else {}
        edges[who] = {"RESP2": Resp(server, 2), "RESP3": Resp(server, 2), "HTTP": Http(server), "GRPC": Grpc(server, header)}
        if who != "nobody":
            edges[who]["RESP2"].client.command("AUTH", who, who)
            edges[who]["RESP3"].client.command("HELLO", "3", "AUTH", who, who)
            edges[who]["HTTP"].asker.headers = header
    yield edges
    server.stop()


@pytest.mark.parametrize("who, resp, http", GUARDED)
def test_edges_agree_who_may(guarded, who, resp, http):
    """The same words through each edge; where it is allowed, the same answer."""
    outcomes = {edge: guarded[who][edge].outcome(named(resp, edge), named(http, edge)) for edge in EDGES}
    assert outcomes["RESP2"] == outcomes["RESP3"] == outcomes["HTTP"] == outcomes["GRPC"]
    if who == "nobody":
        assert outcomes["HTTP"] == ("error", "NOAUTH", "Authentication required.")
    elif outcomes["HTTP"][0] == "error":
        assert outcomes["HTTP"][1] == "NOPERM" and f"User {who} has no permissions" in outcomes["HTTP"][2]
