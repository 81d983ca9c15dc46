"""Each field of each operation on each edge: alone, left out, twice, of a wrong type, too long, out of range, and one that
there is not. What is answered stands byte for byte in tests/data/fields: a line is a request and its answer, and a
section an operation on an edge. JSON's fields are those of /openapi.json, protobuf's those of unseen.proto, so a new
field has its cases by itself; RESP's are listed here. UNSEEN_FIELDS=write writes the file: look at its difference.

In requests and answers `x*256` stands for so many of a byte, and `{bad ...}` for the head of a problem."""
import http.client
import json
import os
import re

import pytest

from conftest import DAY, REPO, START, Server, http_url
from resp import encode
from unseen_grpc import SERVICE, Grpc, grpc, grpc_address, messages

LONG, TOO_MANY = "x" * 256, 65537
SEED, FINGERPRINT = "0123456789abcdef", "07f90ff4"
VERSION = "9d3a1d5c6a7e1f00"
GOLDEN = REPO / "tests/data/fields"
PLAIN_PROBLEM = '{"type":"urn:unseen:problem:%s","title":"Bad Request","status":400,"detail":'
BEFORE = [*[("FORGET", user) for user in ("u", "v", "new")], ("UNBLOCK", "s"), ("UNBLOCK", "new"), ("BLOCK", "s", "7", "8"),
          ("PLAYED", "u", "a"), ("POOL", "SET", "p", "a", "b"), ("POOL", "DROP", "q"), ("POOL", "DROP", "new")]


def shown(value):
    """Short, and one line: bytes as Python says them, without its quotes."""
    said = value if isinstance(value, str) else repr(bytes(value))[2:-1].replace("\\\\", "\\")
    return re.sub(r"(.{1,12}?)\1{15,}", lambda m: f"{m[1]}*{len(m[0]) // len(m[1])}", said.replace("\n", "\\n"))


def begin(server):
    server.resp.pipeline(BEFORE)


# --- RESP ---

# Each option with what may follow it, good first.
OPTIONS = {
    "SESSION": ["s", "", LONG],
    "POLICY": ["often", "", "none", LONG],
    "EXCLUDE": [["1", "b"], ["2", "a", "b"], ["1", ""], ["1", LONG], ["0"], ["-1"], [""], ["one"], ["4"], ["1000", *["a"] * 1000],
                ["1001", *["a"] * 1001], ["9223372036854775807"]],
    "REPLY": ["INDEXES", "bitmap", "", "all", LONG],
    "LIMIT": ["2", "0", "-1", "", "01", "1.5", "two", "9223372036854775807", "9223372036854775808", LONG],
    "DELIVER": [None],
    "RELAX": [None],
    "POOL": ["p", "", "none", LONG],
    "VERSION": [VERSION, "", "new", LONG],
    "SEED": [FINGERPRINT, "", "1a2b3c4d", "new", LONG],
    "HASHES": ["12345678", "", "1234567", "x" * 8 * 65536, "x" * 8 * 65537],
}


def option(name, value):
    return [name] if value is None else [name, *value] if isinstance(value, list) else [name, value]


def filter_words():
    """FILTER with one option in each of the ways; then those that go together."""
    items = ["ITEMS", "a", "b"]
    for name, values in OPTIONS.items():
        one = option(name, values[0])
        yield [*one]
        yield [*one, *items]
        yield [*option(name.lower(), values[0]), *items]
        yield [*one, *one, *items]
        yield [name]
        yield ["LIMIT", "2", name]
        for value in values[1:]:
            yield [*option(name, value), *items]
            if name in ("POOL", "HASHES"):
                yield option(name, value)
    for words in ([], ["ITEMS"], items, ["items", "a"], ["ITEMS", ""], ["ITEMS", LONG], ["ITEMS", *["a"] * TOO_MANY],
                  ["ITEMS", *["a"] * 65536], ["a", *items], ["ITEM", "a"], [LONG, *items], ["", *items]):
        yield words
    limit, pool = ["LIMIT", "2"], ["POOL", "p"]
    for words in ([], ["a"], ["a", "A"], ["a", ""], ["", "A"], ["a", LONG], ["a", "A", "b"], ["a", "A", "b", "A"]):
        yield ["PAIRS", *words]
        yield [*pool, "PAIRS", *words]
    for words in (limit, [*limit, "DELIVER"], ["REPLY", "BITMAP"], ["POLICY", "often"], ["EXCLUDE", "1", "a"]):
        yield [*words, "pairs", "a", "A", "b", ""]
    for words in (limit + ["DELIVER"], ["LIMIT", "100", "DELIVER"], ["LIMIT", "101", "DELIVER"], limit + ["REPLY", "BITMAP"],
                  limit + ["SESSION", "s", "REPLY", "INDEXES"]):
        yield [*words, *items]
        yield [*words, *pool]
        yield [*words, "SEED", FINGERPRINT, "HASHES", "12345678"]
    for words in (["VERSION", VERSION], ["VERSION", "new"], ["SEED", FINGERPRINT], pool, ["HASHES", "12345678"], pool * 15, pool * 16):
        yield [*pool, *words]
    for form in ("ITEMS", "INDEXES", "BITMAP"):
        yield ["REPLY", form, "SEED", FINGERPRINT, "HASHES", "12345678"]
        yield ["REPLY", form, *items]
        yield ["REPLY", form, *pool]
    yield ["REPLY", "BITMAP", "HASHES", "12345678"]
    yield ["REPLY", "BITMAP", "SEED", FINGERPRINT, "HASHES", "12345678", "ITEMS", "a"]


# All others by their places.
PLACES = {
    "UNSEEN": ["u", "a", "b"], "SEEN": ["u", "a", "b"], "PLAYED": ["u", "a", "b"], "DELIVERED": ["u", "a", "b"],
    "PLAYEDAT": ["u", str(START - DAY), "a"], "FORGET": ["u", "a", "b"], "MERGE": ["u", "v"], "BLOCK": ["s", "7", "9"], "UNBLOCK": ["s", "7", "9"],
    "WHY": ["u", "a"], "HISTORY": ["u"], "POOL SET": ["p", "a", "b"], "POOL ADD": ["p", "c"], "POOL RENAME": ["p", "q"],
    "POOL DROP": ["p"], "POOL GET": ["p", "0", "2"], "POOL LIST": [],
}
NUMBERS = ["-1", "01", "1.5", "two", "9223372036854775808"]
MORE = {
    "UNSEEN": [["u", *["a"] * TOO_MANY]], "PLAYED": [["u", *["a"] * TOO_MANY]],
    "WHY": [["u", "a", *words] for words in (["SESSION"], ["SESSION", "s"], ["session", "s"], ["SESSION", ""], ["SESSION", LONG],
                                             ["NONE", "s"], ["SESSION", "s", "s"], ["SESSION", "s"] * 2, ["POLICY"], ["POLICY", "often"],
                                             ["POLICY", "none"], ["POLICY", "often", "SESSION", "s"], ["POLICY", "often"] * 2)],
    "DELIVERED": [["u", "PAIRS", *words] for words in ([], ["a"], ["a", "A"], ["a", "", "b", "B"], ["a", LONG], ["", "A"])],
    "PLAYEDAT": [["u", number, "a"] for number in [*NUMBERS, "0", str(START + 2 * DAY), str(START // 1000)]],
    "MERGE": [["u", "v", "FORGET"], ["u", "v", "forget"], ["u", "v", "FORGET", "FORGET"], ["u", "v", ""], ["u", "u"]],
    "POOL GET": [["p", number] for number in [*NUMBERS, "3"]] + [["p", "0", number] for number in [*NUMBERS, "0", "65537"]],
}


def places(name):
    good = PLACES[name]
    yield good
    for i in range(len(good)):
        yield good[:i] + good[i + 1:]
        for bad in ("", LONG):
            yield good[:i] + [bad] + good[i + 1:]
    yield [*good, "more"]
    yield from MORE.get(name, [])


class Kept:
    """A file, and what was read of it."""

    def __init__(self, file):
        self.file, self.bytes = file, b""

    def __getattr__(self, name):
        def read(*args):
            data = getattr(self.file, name)(*args)
            self.bytes += data or b""
            return data
        return read


def ask_resp(server, client, words):
    client.file = Kept(client.file)
    client.send(encode(*words))
    client.read()
    answer, client.file = client.file.bytes, client.file.file
    return shown(answer.replace(b"\r\n", b" ").rstrip())


def resp_cases():
    for words in filter_words():
        yield "filter", ["FILTER", "u", *words]
    yield "filter", ["FILTER", "", "ITEMS", "a"]
    yield "filter", ["FILTER", LONG, "ITEMS", "a"]
    yield "docs", ["COMMAND", "DOCS", "filter", "why", "playedat", "unblock", "pool"]
    for name in PLACES:
        for words in places(name):
            yield name.lower(), [*name.split(), *words]


# --- JSON ---

WRONG = {
    "string": [7, None, True, [], {}, "", LONG, "new"],
    "array": ["a", None, {}, [], [7], ["a", None], [["a"]], [""], [LONG], ["a"] * TOO_MANY],
    "integer": ["7", None, True, 1.5, [], {}, 0, -1, 101, 2 ** 63 - 1, 2 ** 63, -2 ** 63, 10 ** 30],
    "boolean": ["true", None, 0, 1, [], {}, False],
}
GOOD = {"user": "u", "users": ["u", "v"], "items": ["a", "b"], "groups": ["A", ""], "item": "a", "ids": ["7", "9"], "exclude": ["b"], "pools": ["p"], "at": START - DAY,
        "pool_version": VERSION, "session": "s", "policy": "often", "reply": "indexes", "limit": 2, "deliver": True, "relax": True, "rename": "q", "into": "v", "forget": True}
BODIES = [[], "u", 7, None, True, 1.5]
PATHS = ["/v1/unseen", "/v1/unseen:batch", "/v1/played", "/v1/delivered", "/v1/why", "/v1/exposure", "/v1/block", "/v1/unblock",
         "PUT /v1/pools/p", "POST /v1/pools/p", "/v1/users/u:merge"]
QUERIES = {
    "POST /v1/unseen/u": [f"seed={FINGERPRINT}", "reply=indexes", "limit=2", "session=s", "deliver=true", "reply=bitmap", "reply=items",
                          "reply=all", "reply=", "limit=", "limit=0", "limit=two", "limit=9223372036854775808", "deliver=yes",
                          "session=", "seed=new", "seed=", "nonesuch=1", f"limit={LONG}", f"nonesuch{LONG}=1", "=", "reply", "%zz=1"],
    "DELETE /v1/users/u": ["", "item=a", "item=", f"item={LONG}", "nonesuch=1", "item=%z"],
    "GET /v1/pools/p": ["", "from=1", "count=1", "from=", "from=two", "from=-1", "count=0", "count=65537", "nonesuch=1", "from=%z"],
    "GET /v1/users/u": [""],
}


def resolved(document, schema):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def plain(value):
    return json.dumps(value, separators=(",", ":"))


def json_schema(document, method, path):
    described = document["paths"][re.sub("/u:", "/{user}:", re.sub("/p$", "/{pool}", path))][method.lower()]
    return resolved(document, described["requestBody"]["content"]["application/json"]["schema"])


def bodies(document, schema):
    """The texts."""
    fields = {name: resolved(document, of) for name, of in schema["properties"].items()}
    one_of = schema.get("oneOf", [{}])[0].get("required", [])
    base = {name: GOOD[name] for name in [*schema.get("required", []), *one_of]}
    yield plain(base)
    yield plain({name: GOOD[name] for name in fields})
    for name, of in fields.items():
        good = plain(GOOD[name])
        yield f'{{"{name}":{good}}}'
        yield plain({**base, name: GOOD[name]}) if name not in base else plain({k: v for k, v in base.items() if k != name})
        yield plain(base | {name: GOOD[name]})[:-1] + f',"{name}":{good}}}'
        for wrong in WRONG[of["type"]]:
            yield plain({**base, name: wrong})
    for body in BODIES:
        yield plain(body)
    yield plain({**base, "nonesuch": 1})
    yield plain({**base, LONG: 1})
    yield from ("", "{", "{}", plain(base) + "x", plain(base)[:-1] + ",}", plain(base)[:-1])
    if "deliver" in fields:
        for more in ({"limit": 100}, {"limit": 101}, {"limit": 2, "reply": "bitmap"}, {"limit": 2, "session": "s"}):
            yield plain({**base, "deliver": True, **more})
    if "pools" in fields:
        of_pools = {k: v for k, v in base.items() if k != "items"}
        for more in ({}, {"pool_version": VERSION}, {"pool_version": "new"}, {"reply": "items"}, {"pools": ["p"] * 16},
                     {"pools": ["p"] * 17}, {"pools": ["none"]}, {"pools": ["", "p"]}, {"pools": [LONG]}):
            yield plain({**of_pools, "pools": ["p"], **more})
    for name in ("deliver", "session"):  # read where they are refused, too
        if "users" in fields and name not in fields:
            for value in (GOOD[name], None, 7):
                yield plain({**base, name: value})


def ask_http(server, client, request):
    method, path, body = request
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    client.request(method, path, body, {"Content-Type": kind} if body is not None else {})
    answer = client.getresponse()
    text = answer.read().decode().rstrip("\n")
    for problem in ("bad-request", "bad-json"):
        if answer.status == 400 and text.startswith(PLAIN_PROBLEM % problem):
            return shown(f"{{{problem} {text[len(PLAIN_PROBLEM % problem):]}")
    return shown(f"{answer.status} {text}")


def http_cases():
    document = json.loads((REPO / "etc/openapi.json").read_text())
    for path in PATHS:
        method, _, path = path.rpartition(" ")
        for body in bodies(document, json_schema(document, method or "POST", path)):
            yield f"{method or 'POST'} {path}", (method or "POST", path, body)
    for name, arguments in QUERIES.items():
        method, path = name.split()
        body = b"12345678" if method == "POST" else None
        for argument in arguments:
            yield name, (method, f"{path}?{argument}", body)
            if method == "POST":
                yield name, (method, f"{path}?{arguments[0]}&{argument}", body)
                yield name, (method, f"{path}?{arguments[0]}&{arguments[1]}&{argument}", body)
    for body in (b"", b"1234567", b"1234567812345678"):
        yield "POST /v1/unseen/u", ("POST", f"/v1/unseen/u?{QUERIES['POST /v1/unseen/u'][0]}", body)


# --- gRPC ---

METHODS = {  # by which fields each is good
    "Filter": ("user", "items"), "FilterMany": ("users", "items"), "Played": ("user", "items"), "PlayedStream": ("user", "items"),
    "Delivered": ("user", "items"), "Why": ("user", "item"), "Exposure": ("user", "items"), "History": ("user",), "Forget": ("user", "items"), "Merge": ("user", "into"),
    "Block": ("session", "ids"), "Unblock": ("session", "ids"), "PoolSet": ("pool", "items"), "PoolAdd": ("pool", "items"),
    "PoolRename": ("pool", "rename"), "PoolDrop": ("pool",), "PoolList": (), "PoolGet": ("pool",),
}
SAID = {**{name: [GOOD[name]] for name in GOOD if name not in ("users", "items", "groups", "ids", "exclude", "pools")}, "users": ["u", "v"],
        "items": ["a", "b"], "groups": ["A", ""], "ids": ["7", "9"], "exclude": ["b"], "pools": ["p"], "pool": ["p"], "reply": [1], "deliver": [1], "relax": [1], "forget": [1], "all": [1], "tag": [7],
        "from": [1], "count": [1], "hashes": ["12345678"], "seed": [FINGERPRINT]}
STREAMS = {"FilterMany": "unary_stream", "PlayedStream": "stream_stream"}


def varint(value):
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7f | 0x80]), value >> 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2 ** 64)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def bytes_of(of, values=None):
    values = SAID[of.name.removeprefix("binary_")] if values is None else values
    return b"".join(field(of.number, value) for value in values)


def protobufs(name):
    fields = METHODS[name]
    described = getattr(messages(), {"PlayedStream": "Record", "Played": "Record", "Delivered": "Record"}.get(
        name, "Pool" if name in ("PoolSet", "PoolAdd", "PoolRename", "PoolDrop") else name) + "Request").DESCRIPTOR.fields_by_name
    base = {each: bytes_of(described[each]) for each in fields}
    whole = b"".join(base.values())
    yield whole
    yield b"".join(bytes_of(of) for of in described.values() if not of.name.startswith("binary_"))
    yield b"".join(bytes_of(of) for of in described.values())
    for of in described.values():
        is_list, is_text, good = of.label == of.LABEL_REPEATED, of.type == of.TYPE_STRING, bytes_of(of)
        rest = b"".join(v for k, v in base.items() if k != of.name)
        if of.name in ("limit", "deliver"):
            rest += bytes_of(described["reply"])
        yield good
        yield rest if of.name in base else rest + good
        yield rest + good + good
        yield rest + varint(of.number << 3 | 5) + b"1234"
        yield rest + good[:-1]
        if of.type in (of.TYPE_STRING, of.TYPE_BYTES):
            yield rest + field(of.number, 7)
            bad = [[b"\xff"], [b"a\xff"], [""], [LONG], ["new"]]
            bad += [["a"] * TOO_MANY if of.name != "users" else ["u"] * 1001, ["a", b"\xff"]] if is_list and is_text else []
        else:
            yield rest + field(of.number, "7")
            bad = [[0], [1], [3], [101], [65537], [2 ** 31], [2 ** 63 - 1], [-1]]
        for values in bad:
            yield rest + bytes_of(of, values)
    for more in (field(1000, 1), field(1000, "x"), varint(4 << 3 | 3), b"\xff", b"\x02", b"\x00\x01"):
        yield whole + more
    yield field(1, "hessian2") + field(2, "u") + field(3, "java.lang.String")
    if "limit" in described and "deliver" in described:
        for limit in (100, 101):
            yield whole + bytes_of(described["limit"], [limit]) + bytes_of(described["deliver"])
    if name == "Filter":
        seed, hashes, pools = (bytes_of(described[each]) for each in ("seed", "hashes", "pools"))
        for more in (seed + hashes, hashes, pools, pools * 16, pools * 17, pools + bytes_of(described["pool_version"]), pools + hashes):
            yield base["user"] + more
            yield base["user"] + more + bytes_of(described["reply"], [2])


def call(channel, path, name, message):
    """The status and its text, or the replies."""
    kind = STREAMS.get(name, "unary_unary")
    try:
        said = getattr(channel, kind)(path)(iter([message]) if kind == "stream_stream" else message, timeout=240)
        return shown(b" | ".join([said] if isinstance(said, bytes) else said))
    except grpc.RpcError as error:
        return shown(f"{error.code().name} {error.details()}")


def ask_grpc(server, client, request):
    """As Dubbo's consumers name a method, it is the same."""
    name, message = request
    said = call(client.channel, SERVICE + name, name, message)
    begin(server)
    assert call(client.channel, "/com.shop" + SERVICE.replace("/", ".", 1) + name[0].lower() + name[1:], name, message) == said
    return said


def grpc_cases():
    for name in METHODS:
        for message in dict.fromkeys(protobufs(name)):
            yield name, (name, message)


# --- all ---

EDGES = {"resp": (resp_cases, ask_resp), "http": (http_cases, ask_http), "grpc": (grpc_cases, ask_grpc)}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("fields"), http="127.0.0.1:0", grpc="127.0.0.1:0", hash_seed=SEED,
                    policies={"often": {"item": "off"}}, delivered_max=100, store="memory")
    server.resp = server.client()
    yield server
    server.resp.close()
    server.stop()


def connect(server, edge):
    if edge == "resp":
        return server.client()
    if edge == "http":
        return http.client.HTTPConnection(*http_url(server).removeprefix("http://").split(":"), timeout=240)
    return Grpc(server)


def expected(edge):
    """Its lines of the file."""
    parts = re.split(r"^(?=== )", GOLDEN.read_text(), flags=re.MULTILINE)
    return "".join(part for part in parts if part.startswith(f"== {edge} ")).splitlines()


def said_of(edge, request):
    if edge == "resp":
        return shown(" ".join(word if word != "" else "''" for word in request[1:] if word is not None))
    if edge == "http":
        body = request[2]
        return shown(f"{request[1].partition('?')[2]} {shown(body) if body is not None else ''}".strip())
    return shown(request[1])


@pytest.mark.parametrize("edge", EDGES)
def test_every_field(served, edge):
    cases, ask = EDGES[edge]
    client = connect(served, edge)
    lines, section = [], None
    for name, request in cases():
        if name != section:
            section = name
            lines.append(f"== {edge} {name}")
        begin(served)
        lines.append(f"{said_of(edge, request)} -> {ask(served, client, request)}")
    client.close() if edge != "grpc" else client.channel.close()
    if os.environ.get("UNSEEN_FIELDS") == "write":
        GOLDEN.write_text("".join("\n".join(lines if each == edge else expected(each)) + "\n" for each in EDGES))
    assert lines == expected(edge)
