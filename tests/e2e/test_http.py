"""HTTP: a real server, asked with http.client, sockets and curl."""
import gzip
import http.client
import json
import re
import select
import socket
import subprocess
import threading
import time
import urllib.parse

import jsonschema
import pytest

from conftest import DAY, PATIENCE, REPO, START, free_port, http_url, peak_memory, run, until

OPENAPI = json.loads((REPO / "etc" / "openapi.json").read_text())
BODY_MAX = 4 * 1024 * 1024
REQUEST_PATIENCE = 60 * 1000  # ms on the server's clock


def http_port(server):
    return int(http_url(server).rpartition(":")[2])


@pytest.fixture
def web(make_server):
    return make_server(http="127.0.0.1:0")


class Asker:
    """A connection."""

    def __init__(self, server, password=None):
        self.http = http.client.HTTPConnection("127.0.0.1", http_port(server), timeout=PATIENCE)
        self.headers = {"Authorization": f"Bearer {password}"} if password else {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, what the body says as JSON)"""
        headers = {**self.headers, **(headers or {})}
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        self.http.request(method, path, body, headers)
        answer = self.http.getresponse()
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text else None

    def good(self, method, path, body=None):
        status, _, answer = self.ask(method, path, body)
        assert status == 200, answer
        return answer

    def bad(self, status, kind, method, path, body=None, headers=None):
        """The problem's text, after a look at the rest."""
        got, fields, answer = self.ask(method, path, body, headers)
        assert got == status, answer
        assert fields["Content-Type"] == "application/problem+json"
        assert answer["status"] == status and answer["type"] == f"urn:unseen:problem:{kind}", answer
        jsonschema.validate(answer, schema("Problem"))
        return answer["detail"]


@pytest.fixture
def asker(web):
    with Asker(web) as a:
        yield a


def schema(name):
    return {**OPENAPI, "$ref": f"#/components/schemas/{name}"}


def raw(server):
    s = socket.create_connection(("127.0.0.1", http_port(server)), PATIENCE)
    return s


def healthy(server):
    with Asker(server) as a:
        return a.good("GET", "/healthz") == {"alive": True}


def read_all(s):
    data = b""
    try:
        while piece := s.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


# --- health and the server ---

def test_health(web):
    with Asker(web) as a:
        assert a.good("GET", "/healthz") == {"alive": True}
        assert a.good("GET", "/readyz") == {"ready": True}
        status, headers, body = a.ask("HEAD", "/readyz")
        assert status == 200 and body is None and int(headers["Content-Length"]) > 0
        status, headers, body = a.ask("HEAD", "/v1/months")
        assert status == 200 and body is None and int(headers["Content-Length"]) > 0


def test_health_while_it_recovers(make_server, folder):
    """The ports are open before the store is: what needs it is refused meanwhile, the rest is answered."""
    server = make_server(http="127.0.0.1:0")
    with Asker(server) as a:
        for chunk in range(4):
            a.good("POST", "/v1/played", {"user": "u", "items": [f"{chunk}-{i}" for i in range(20000)]})
    server.kill()
    server.options["http"] = f"127.0.0.1:{free_port()}"
    server.spawn()
    seen = set()
    deadline = time.monotonic() + PATIENCE
    while 200 not in seen and time.monotonic() < deadline:
        try:
            c = http.client.HTTPConnection(server.options["http"], timeout=PATIENCE)
            c.request("GET", "/readyz")
            answer = c.getresponse()
            body = json.loads(answer.read())
            if answer.status == 503:
                assert body["type"] == "urn:unseen:problem:recovering" and answer.headers["Retry-After"]
                c.request("GET", "/v1/ring")
                answer = c.getresponse()
                assert answer.status in (200, 503)
                answer.read()
                c.request("GET", "/healthz")
                assert c.getresponse().status == 200
            seen.add(answer.status)
            c.close()
        except ConnectionError:
            pass
    assert 200 in seen, server.log()


def test_where_it_listens(web):
    with web.client() as c:
        assert f"listener1:http://127.0.0.1:{http_port(web)}".encode() in c.command("INFO", "server")


def test_addresses(web, folder):
    taken = f"127.0.0.1:{http_port(web)}"
    for address, text in ((taken, f"can't listen on {taken}: Address already in use"), ("0.0.0.0:0", "requirepass"),
                          ("7980", "expected an IP address and a port")):
        result = run("serve", "--data", folder / "other", "--port", 0, "--http", address, check=False)
        assert result.returncode != 0 and text in result.stderr.decode() and "http" in result.stderr.decode()


def test_without_http(server):
    assert "http://" not in server.log()


# --- the API ---

def test_played_and_unseen(web, asker):
    assert asker.good("POST", "/v1/played", {"user": "u", "items": ["a", "b", "ü\0x"]}) == {"recorded": 3}
    question = {"user": "u", "items": ["a", "c", "b", "d", "ü\0x", "c"]}
    assert asker.good("POST", "/v1/unseen", question) == {"items": ["c", "d", "c"]}
    assert asker.good("POST", "/v1/unseen", {**question, "reply": "indexes"}) == {"indexes": [1, 3, 5]}
    assert asker.good("POST", "/v1/unseen", {**question, "limit": 2}) == {"items": ["c", "d"]}
    with web.client() as c:  # one history behind both
        assert c.command("UNSEEN", "u", "a", "ü\0x", "e") == [b"e"]
        assert c.command("PLAYED", "u", "e") == 1
    assert asker.good("POST", "/v1/unseen", {"user": "u", "items": ["e", "f"]}) == {"items": ["f"]}


def test_delivered(asker):
    assert asker.good("POST", "/v1/delivered", {"user": "u", "items": ["a"]}) == {"recorded": 1}
    question = {"user": "u", "items": ["a", "b", "c", "d"], "limit": 2, "deliver": True}
    assert asker.good("POST", "/v1/unseen", question) == {"items": ["b", "c"]}
    assert asker.good("POST", "/v1/unseen", {**question, "reply": "indexes"}) == {"indexes": [3]}
    assert asker.good("POST", "/v1/unseen", question) == {"items": []}
    assert asker.good("POST", "/v1/why", {"user": "u", "item": "d"}) == {
        "user": "u", "item": "d", "seen": True, "places": [{"place": "delivered", "error": 0}]}


def test_times(web, asker):
    body = {"user": "u", "items": ["a"], "at": START - 40 * DAY}
    assert asker.good("POST", "/v1/played", body) == {"recorded": 1}
    with web.client() as c:
        c.command("RING", "FLUSH")
    why = asker.good("POST", "/v1/why", {"user": "u", "item": "a"})
    assert [p["place"] for p in why["places"]] == ["2026-10"] and 0 < why["places"][0]["error"] < 1e-3
    assert "seconds" in asker.bad(400, "bad-request", "POST", "/v1/played", {**body, "at": START // 1000})
    assert "ahead" in asker.bad(400, "bad-request", "POST", "/v1/played", {**body, "at": START + 2 * DAY})
    assert asker.good("GET", "/v1/months")["months"][0]["month"] == "2026-10"


def test_users(web, asker):
    user = "a/b ü?%&=+\0\x7f"
    path = "/v1/users/" + urllib.parse.quote(user, safe="")
    assert asker.bad(404, "unknown-user", "GET", path)
    assert asker.good("POST", "/v1/played", {"user": user, "items": ["x", "y&z", "+"]}) == {"recorded": 3}
    history = asker.good("GET", path)
    assert history["user"] == user and history["staged"] == 3
    assert asker.good("DELETE", path + "?item=x&item=y%26z&item=nosuch") == {"forgotten": 2}
    assert asker.good("POST", "/v1/unseen", {"user": user, "items": ["x", "y&z", "+"]}) == {"items": ["x", "y&z"]}
    assert asker.good("DELETE", path) == {"forgotten": 1}
    assert asker.good("DELETE", path) == {"forgotten": 0}
    assert asker.good("POST", "/v1/unseen", {"user": user, "items": ["+"]}) == {"items": ["+"]}


def test_a_user_that_json_cannot_say(web, asker):
    with web.client() as c:
        c.command("PLAYED", b"\xff\xfe", "x")
    told = asker.good("GET", "/v1/users/%FF%fe")
    assert told["user_base64"] == "//4=" and "user" not in told
    assert asker.good("DELETE", "/v1/users/%ff%fe") == {"forgotten": 1}


def test_sessions(web, asker):
    """One set of sessions, whoever asks how."""
    assert asker.good("POST", "/v1/block", {"session": "s", "ids": ["1", "4294967295", "1"]}) == {"blocked": 2}
    with web.client() as c:
        assert c.command("BLOCK", "s", "2", "1") == 1
        c.command("PLAYED", "u", "3")
    question = {"user": "u", "items": ["0", "1", "2", "3", "4294967295", "x"]}
    assert asker.good("POST", "/v1/unseen", {**question, "session": "s"}) == {"items": ["0", "x"]}
    assert asker.good("POST", "/v1/unseen", {**question, "session": "s", "reply": "indexes"}) == {"indexes": [0, 5]}
    assert asker.good("POST", "/v1/unseen", {**question, "session": "other"}) == {"items": ["0", "1", "2", "4294967295", "x"]}
    assert asker.good("POST", "/v1/unseen", question) == {"items": ["0", "1", "2", "4294967295", "x"]}
    delivered = {**question, "session": "s", "limit": 1, "deliver": True}
    assert asker.good("POST", "/v1/unseen", delivered) == {"items": ["0"]}
    assert asker.good("POST", "/v1/unseen", delivered) == {"items": ["x"]}
    asker.good("POST", "/v1/block", {"session": "s", "ids": ["3"]})
    assert asker.good("POST", "/v1/why", {"user": "u", "item": "3", "session": "s"}) == \
        {"user": "u", "item": "3", "seen": True, "places": [{"place": "blocked", "error": 0}, {"place": "staged", "error": 0}]}
    assert asker.good("POST", "/v1/why", {"user": "u", "item": "9", "session": "s"}) == \
        {"user": "u", "item": "9", "seen": False, "places": []}
    assert asker.good("POST", "/v1/unblock", {"session": "s", "ids": ["1", "9"]}) == {"unblocked": 1}
    assert asker.good("POST", "/v1/unblock", {"session": "s"}) == {"unblocked": 3}
    assert asker.good("POST", "/v1/unblock", {"session": "s"}) == {"unblocked": 0}


def test_sessions_take_any_id(web, asker):
    assert asker.good("POST", "/v1/block", {"session": "s", "ids": ["7", "007", "video:7", "4294967296"]}) == \
        {"blocked": 4}
    question = {"user": "u", "items": ["07", "007", "video:7", "4294967296", "video:8"], "session": "s"}
    assert asker.good("POST", "/v1/unseen", question) == {"items": ["07", "video:8"]}
    assert asker.good("POST", "/v1/why", {"user": "u", "item": "video:7", "session": "s"}) == \
        {"user": "u", "item": "video:7", "seen": True, "places": [{"place": "blocked", "error": 0}]}
    with web.client() as c:
        assert c.command("FILTER", "u", "SESSION", "s", "ITEMS", "video:7", "x") == [b"x"]
    assert asker.good("POST", "/v1/unblock", {"session": "s", "ids": ["video:7", "07"]}) == {"unblocked": 1}
    assert asker.good("POST", "/v1/unseen", question) == {"items": ["07", "video:7", "video:8"]}


@pytest.mark.parametrize("body, part", [
    ({"session": "", "ids": ["1"]}, "session is empty"),
    ({"session": "s", "ids": [1]}, "ids[0] is a number, expected a string"),
    ({"session": "s", "ids": ["1", ""]}, "id 2 is empty"),
    ({"session": "s", "ids": ["1", "x" * 256]}, "id 2 has 256 bytes"),
    ({"session": "s", "ids": []}, "ids holds 0 ids"),
    ({"session": "s"}, "the field ids is missing"),
    ({"ids": ["1"]}, "the field session is missing"),
])
def test_bad_sessions(asker, body, part):
    assert part in asker.bad(400, "bad-request", "POST", "/v1/block", body)
    assert asker.good("POST", "/v1/unblock", {"session": "s"}) == {"unblocked": 0}


def test_a_session_that_is_full(asker):
    assert asker.good("POST", "/v1/block", {"session": "s", "ids": [str(n) for n in range(65536)]}) == {"blocked": 65536}
    assert "at most 65536" in asker.bad(400, "bad-request", "POST", "/v1/block", {"session": "s", "ids": ["65536"]})


def test_many_items(asker):
    items = [f"{i:050}" for i in range(65536)]
    assert asker.good("POST", "/v1/played", {"user": "u", "items": items[::2]}) == {"recorded": 32768}
    assert asker.good("POST", "/v1/unseen", {"user": "u", "items": items}) == {"items": items[1::2]}
    assert "65536" in asker.bad(400, "bad-request", "POST", "/v1/unseen", {"user": "u", "items": ["x"] * 65537})


def test_counters(web, asker):
    asker.good("POST", "/v1/played", {"user": "u", "items": ["a", "b"]})
    asker.good("POST", "/v1/unseen", {"user": "u", "items": ["a", "b", "c"]})
    with web.client() as c:
        stats = c.command("INFO", "stats").decode()
    for line in ("plays_received:2", "questions:1", "candidates:3", "candidates_unseen:1"):
        assert line in stats.split()


def test_durable_before_it_answers(web):
    with Asker(web) as a:
        a.good("POST", "/v1/played", {"user": "u", "items": ["a"]})
    web.kill()
    web.start()
    with Asker(web) as a:
        assert a.good("POST", "/v1/unseen", {"user": "u", "items": ["a", "b"]}) == {"items": ["b"]}


def test_curl(web):
    at = f"http://127.0.0.1:{http_port(web)}/v1/played"
    done = subprocess.run(["curl", "-sS", "-i", "--json", '{"user":"u","items":["a"]}', at], capture_output=True,
                          text=True, timeout=PATIENCE)
    assert "200 OK" in done.stdout and '{"recorded":1}' in done.stdout
    for name in ("X-Content-Type-Options: nosniff", "Cache-Control: no-store", "Content-Type: application/json"):
        assert name in done.stdout
    assert "Access-Control" not in done.stdout


def test_a_plus_in_the_query_is_a_space(web, asker):
    """As forms are encoded, by urllib, requests, Go's url.Values, URLSearchParams; in the path it is a plus."""
    for user in ("u", "a+b"):
        asker.good("POST", "/v1/played", {"user": user, "items": ["two words", "1+1", "both +"]})
        for items in (["two words", "1+1"], ["both +"]):
            query = urllib.parse.urlencode([("item", item) for item in items])
            assert "+" in query
            assert asker.good("DELETE", f"/v1/users/{user}?{query}") == {"forgotten": len(items)}
    asker.good("PUT", "/v1/pools/a+b", {"items": ["x"]})
    assert asker.good("GET", "/v1/pools")["pools"][0]["name"] == "a+b"
    assert "'1 '" in asker.bad(400, "bad-request", "GET", "/v1/pools/a+b?from=1+")


def test_curl_takes_it_for_a_proxy(web):
    at = http_url(web)
    done = subprocess.run(["curl", "-sS", "-x", at, f"{at}/healthz"], capture_output=True, timeout=PATIENCE)
    assert json.loads(done.stdout) == {"alive": True}


# --- bad input ---

@pytest.mark.parametrize("body, parts", [
    ("{", ["line 1", "column 1"]),
    ('{"user":"u",\n "items":["a" "b"]}', ["line 2", "column 15"]),
    ("", ["no JSON"]),
    (b'{"user":"\xff","items":["a"]}', ["no JSON", "0xff"]),
    ('{"user":"u","items":["a"]} x', ["end of file expected"]),
    ('{"user":"u","user":"v","items":["a"]}', ["duplicate", "user"]),
    ("[]", ["an array", "an object with user, items and at"]),
    ("7", ["a number", "an object"]),
    ('{"items":["a"]}', ["user is missing"]),
    ('{"user":"u"}', ["items is missing"]),
    ('{"user":7,"items":["a"]}', ["user is a number", "expected a string"]),
    ('{"user":"u","items":"a"}', ["items is a string", "expected an array of strings"]),
    ('{"user":"u","items":["a",null]}', ["items[1] is null", "expected a string"]),
    ('{"user":"u","items":[]}', ["items holds 0 ids"]),
    ('{"user":"u","itmes":["a"]}', ['unknown field "itmes"', "expected user, items and at"]),
    ('{"user":"u","items":["a"],"at":"now"}', ["at is a string", "a whole number"]),
    ('{"user":"u","items":["a"],"at":1.5}', ["at is a number with a fraction", "a whole number"]),
    ('{"user":"u","items":["a"],"at":99999999999999999999}', ["too big integer"]),
    ('{"user":"","items":["a"]}', ["user is empty"]),
    (json.dumps({"user": "u" * 256, "items": ["a"]}), ["user has 256 bytes"]),
    ('{"user":"u","items":["a",""]}', ["item 2 is empty"]),
    ("[" * 100000, ["no JSON", "nested too deeply"]),
    ('{"user":"\\ud83d","items":["a"]}', ["no JSON", "line 1, column 16", "surrogate"]),
    ('{"user":"ü","items":["a"],"at":1.}'.encode(), ["no JSON", "line 1, column 34", "a digit"]),
    ('{"user":"u","items":["a"' + ',"a"' * 100000 + "]}", ["items holds 100001 ids", "1 to 65536"]),
    ('{"user":"u","items":["a"],"at":-99999999999999999999}', ["at is", "too big integer"]),
    ('{"user":"u","items":["a"],"at":1e3}', ["at is a number with a fraction or exponent"]),
    ('{"user":"u","items":{"a":1}}', ["items is an object"]),
    ('{"user":"u","items":["a"],"at":true}', ["at is true"]),
], ids=range(29))
def test_bad_bodies(asker, body, parts):
    kind = "bad-json" if re.search("no JSON|end of file|duplicate|big integer", " ".join(parts)) or "line" in parts[0] \
        else "bad-request"
    text = asker.bad(400, kind, "POST", "/v1/played", body)
    for part in parts:
        assert part in text, text
    assert asker.good("POST", "/v1/unseen", {"user": "u", "items": ["a"]}) == {"items": ["a"]}  # nothing was recorded


@pytest.mark.parametrize("more, part", [
    ({"reply": "bits"}, 'reply is "bits", expected "items", "indexes" or "bitmap"'),
    ({"reply": "bitmap", "limit": 1}, "LIMIT can't be used with REPLY BITMAP"),
    ({"limit": 0}, "LIMIT must be a whole number of at least 1, got '0'"),
    ({"deliver": True}, "DELIVER needs LIMIT of at most 100"),
    ({"deliver": True, "limit": 101}, "at most 100, got 101"),
    ({"deliver": 1}, "deliver is a number, expected true or false"),
    ({"session": ""}, "session is empty"),
    ({"session": "s" * 256}, "session has 256 bytes"),
    ({"session": 7}, "session is a number, expected a string"),
])
def test_bad_questions(asker, more, part):
    assert part in asker.bad(400, "bad-request", "POST", "/v1/unseen", {"user": "u", "items": ["a"], **more})


def test_a_body_of_gzip(asker):
    body = json.dumps({"user": "u", "items": [f"item-{i}" for i in range(20000)]}).encode()
    packed = gzip.compress(body)
    for name in "gzip", "GZIP", "x-gzip":
        assert asker.ask("POST", "/v1/played", packed, {"Content-Encoding": name})[::2] == (200, {"recorded": 20000})
    pieces = iter([packed[:10], packed[10:]])
    asker.http.request("POST", "/v1/unseen", pieces, {"Content-Encoding": "gzip", "Content-Type": "application/json"},
                       encode_chunked=True)
    assert json.loads(asker.http.getresponse().read())["items"] == []
    for bad, text in ((body, "incorrect header check"), (packed[:-1], "it is cut off"), (packed + b"x", "stand behind its end")):
        assert text in asker.bad(400, "bad-request", "POST", "/v1/played", bad, {"Content-Encoding": "gzip"})
    bomb = gzip.compress(bytes(5 << 20))
    assert "inflated, is larger" in asker.bad(413, "too-large", "POST", "/v1/played", bomb, {"Content-Encoding": "gzip"})
    assert asker.good("POST", "/v1/unseen", {"user": "u", "items": ["item-7", "b"]})["items"] == ["b"]


def test_bad_requests(asker):
    assert "/nothing" in asker.bad(404, "not-found", "GET", "/nothing")
    assert asker.bad(404, "not-found", "GET", "/v1/users/a/b")
    assert asker.bad(404, "not-found", "GET", "/v1/played/")
    for method, path, allowed in (("GET", "/v1/played", "POST"), ("POST", "/v1/users/u", "GET, HEAD, DELETE"),
                                  ("DELETE", "/healthz", "GET, HEAD"), ("OPTIONS", "/v1/ring", "GET, HEAD")):
        assert asker.ask(method, path)[1]["Allow"] == allowed
        assert allowed in asker.bad(405, "method-not-allowed", method, path)
    for type in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        assert type in asker.bad(415, "unsupported-type", "POST", "/v1/played", "{}", {"Content-Type": type})
    assert "br" in asker.bad(415, "unsupported-type", "POST", "/v1/played", "{}", {"Content-Encoding": "br"})
    assert asker.ask("POST", "/v1/played", "{}", {"Content-Encoding": "br"})[1]["Accept-Encoding"] == "gzip, identity"
    assert asker.ask("POST", "/v1/unseen", '{"user":"u","items":["a"]}',
                     {"Content-Type": "Application/JSON; charset=utf-8"})[0] == 200
    assert "%zz" in asker.bad(400, "bad-request", "GET", "/v1/users/%zz")
    assert "empty" in asker.bad(400, "bad-request", "GET", "/v1/users/")
    assert "'itm'" in asker.bad(400, "bad-request", "DELETE", "/v1/users/u?itm=a")
    assert "%" in asker.bad(400, "bad-request", "DELETE", "/v1/users/u?item=%1")
    assert "item 2 is empty" in asker.bad(400, "bad-request", "DELETE", "/v1/users/u?item=a&item=")


def test_no_body(web):
    with raw(web) as s:
        s.sendall(b"POST /v1/played HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 411 ")


def test_password(make_server):
    server = make_server(http="127.0.0.1:0", requirepass="geheim wörd")
    with Asker(server) as a:
        assert a.good("GET", "/healthz") == {"alive": True} and a.good("GET", "/readyz") == {"ready": True}
        assert a.good("GET", "/openapi.json") == OPENAPI
        for path in ("/v1/ring", "/v1/months", "/v1/users/u"):
            assert a.bad(401, "unauthorized", "GET", path) == "Authentication required."
            schemes = a.ask("GET", path)[1].get_all("WWW-Authenticate")
            assert schemes == ['Basic realm="unseen", charset="UTF-8"', 'Bearer realm="unseen"']
        body = {"user": "u", "items": ["a"]}
        for given in ("Bearer x", "Bearer", "Basic Z2VoZWlt", "geheim wörd", "Bearer geheim", "Bearer geheim wörd2"):
            a.bad(401, "unauthorized", "POST", "/v1/played", body, {"Authorization": given.encode()})
    with Asker(server) as a:
        a.headers = {"Authorization": "Bearer geheim wörd".encode()}
        assert a.good("POST", "/v1/unseen", body) == {"items": ["a"]}  # nothing was recorded
        assert a.good("GET", "/v1/ring")["open"] == 0
        a.headers = {"Authorization": "bearer  geheim wörd".encode()}
        assert a.good("DELETE", "/v1/users/u") == {"forgotten": 0}


# --- bodies that are too large ---

HEAD = b"POST /v1/played HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_gigabyte(web, asker):
    """Sent without waiting: refused at once, the answer arrives, and no memory is taken."""
    before = peak_memory(web)
    for length in (b"Content-Length: 1073741824\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        with raw(web) as s:
            s.sendall(HEAD + length)
            chunk = b"x" * 1048576
            framed = b"100000\r\n" + chunk + b"\r\n" if b"chunked" in length else chunk
            try:
                for _ in range(1024):
                    s.sendall(framed)
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = read_all(s)
        assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
        assert b"urn:unseen:problem:too-large" in answer
    assert asker.good("GET", "/healthz") == {"alive": True}
    assert peak_memory(web) - before < 64 * 1024 * 1024


def test_expect_continue(web):
    """Who asks first is told before it sends."""
    with raw(web) as s:
        s.sendall(HEAD + b"Content-Length: 1073741824\r\nExpect: 100-continue\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 413 ")
    with raw(web) as s:
        body = b'{"user":"u","items":["a"]}'
        s.sendall(HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body))
        assert s.recv(65536).startswith(b"HTTP/1.1 100 ")
        s.sendall(body)
        assert b"HTTP/1.1 200 " in s.recv(65536)


def test_largest_body(asker):
    start, end = b'{"user":"u","items":["a"', b"]}"
    body = start + b" " * (BODY_MAX - len(start) - len(end)) + end
    assert asker.good("POST", "/v1/unseen", body) == {"items": ["a"]}
    asker.bad(413, "too-large", "POST", "/v1/unseen", body + b" ")


def test_a_body_that_would_swell(web, asker):
    """As a tree it would take forty times its size: it is read where it stands."""
    before = peak_memory(web)
    assert "an array" in asker.bad(400, "bad-request", "POST", "/v1/played", b"[" + b"[]," * 1300000 + b"[]]")
    assert peak_memory(web) - before < 4 * BODY_MAX


def test_a_refused_body_is_read_to_its_end(asker):
    """So that the connection lives on."""
    asker.bad(404, "not-found", "POST", "/nothing", b"x" * 1000000)
    assert asker.http.sock is not None
    assert asker.good("GET", "/healthz") == {"alive": True}


# --- rude clients ---

def read_all_in_time(server, s):
    """What comes when the clock moves on; and on, since it may have moved before the server knew of the connection."""
    deadline = time.monotonic() + PATIENCE
    while not select.select([s], [], [], 0)[0]:
        assert time.monotonic() < deadline
        server.advance(REQUEST_PATIENCE)
        select.select([s], [], [], 2)
    return read_all(s)


def test_stalled_clients(web):
    quiet, head, body, idle = raw(web), raw(web), raw(web), raw(web)
    head.sendall(b"GET /healthz HTT")
    body.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert idle.recv(65536).startswith(b"HTTP/1.1 200 ")
    with Asker(web) as a:
        assert a.good("GET", "/healthz") == {"alive": True}
    web.advance(REQUEST_PATIENCE)
    assert read_all(head).startswith(b"HTTP/1.1 408 ")
    answer = read_all(body)
    assert answer.startswith(b"HTTP/1.1 408 ") and b"urn:unseen:problem:timeout" in answer
    assert b"408" in read_all(quiet)[:20]
    assert read_all(idle) == b""  # between two requests there is nothing to say
    with Asker(web) as a:
        assert a.good("GET", "/healthz") == {"alive": True}
    with web.client() as c:
        assert "timed_out_connections:4" in c.command("INFO", "stats").decode()


def test_a_dripping_client(web):
    """A byte now and then doesn't win time."""
    with raw(web) as s:
        s.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
        with Asker(web) as a:
            a.good("GET", "/healthz")  # the other one was accepted before
        for _ in range(5):
            web.advance(REQUEST_PATIENCE // 5)
            s.sendall(b"{")
        assert read_all(s).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_does_not_read(web, asker):
    items = [f"{i:050}" for i in range(65536)]
    body = json.dumps({"user": "u", "items": items}).encode()
    with raw(web) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(HEAD.replace(b"played", b"unseen") + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert s.recv(10)
        assert asker.good("GET", "/healthz") == {"alive": True}
        with web.client() as c:
            def ended():
                web.advance(REQUEST_PATIENCE)  # again, should the kernel's buffers have taken it all just now
                return "timed_out_connections:0" not in c.command("INFO", "stats").decode()

            until(ended)


def test_half_open_connections(web, asker):
    """Many that say nothing: those within the limit are served, RESP is not disturbed."""
    crowd = [raw(web) for _ in range(200)]
    assert asker.good("GET", "/healthz") == {"alive": True}
    with web.client() as c:
        assert c.command("PLAYED", "u", "a") == 1
    for s in crowd[::2]:
        s.shutdown(socket.SHUT_WR)
    assert asker.good("POST", "/v1/unseen", {"user": "u", "items": ["a", "b"]}) == {"items": ["b"]}
    for s in crowd:
        s.close()


def test_more_connections_than_it_takes(web):
    crowd = [raw(web) for _ in range(300)]
    with web.client() as c:
        assert c.command("PLAYED", "u", "a") == 1
    body = b'{"user":"u","items":["a","b"]}'
    with raw(web) as s:  # its turn comes when the quiet ones were sent away
        s.sendall(HEAD.replace(b"played", b"unseen") +
                  b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert b'{"items":["b"]}' in read_all_in_time(web, s)
    for s in crowd:
        s.close()


GARBAGE = [  # and the status of the first answer; None: of no request, until its end or its time is up; 0: of RESP
    (b"\x00\x01\x02\xff" * 1000, None), (b"GET\r\n\r\n", None), (b"*1\r\n$4\r\nPING\r\n", 0),
    (b"GET / HTTP/9.9\r\n\r\n", 505),
    (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3 + b"\r\n\r\n\x80garbage\r\n\r\n", 200),
    (b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20000 + b"\r\n", 431),
    (HEAD + b"Content-Length: -1\r\n\r\n", 400), (HEAD + b"Content-Length: x\r\n\r\n", 400),
    (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n", 413),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 413),
    (HEAD + b"Transfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 501),
    (HEAD + b"Content-Length: 5\r\nContent-Length: 2\r\n\r\n{}", 400),
    (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
]


@pytest.mark.parametrize("garbage, status", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage(web, garbage, status):
    with raw(web) as s:
        try:
            s.sendall(garbage)
            s.shutdown(socket.SHUT_WR)
        except OSError:
            assert len(garbage) > 65536  # it was enough before it was all, and then an answer may be lost
        answer = read_all_in_time(web, s)  # what is no whole request will never be one
    assert b"{\"recorded" not in answer
    if answer or len(garbage) < 65536:
        expected = [b"", b"HTTP/1.1 408"] if status is None else [b"HTTP/1.1 %d" % status if status else b"-ERR this po"]
        assert answer[:12] in expected, answer[:200]
    assert answer.count(b'{"alive":true}') == (3 if status == 200 else 0)
    assert healthy(web)
    with web.client() as c:
        assert c.command("PING") == b"PONG"


def test_pipelined_requests(web):
    body = b'{"user":"u","items":["a"]}'
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with raw(web) as s:
        s.sendall(request * 50 + b"GET /v1/users/u HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = read_all(s)
    assert answer.count(b'{"recorded":1}') == 50
    told = json.loads(answer.rpartition(b"\r\n\r\n")[2])
    assert told == {"user": "u", "months": [], "staged": 50, "delivered": 0, "error": 0}


def test_clients_that_leave(web, asker):
    """While their write is on its way to the disk: it is recorded, and nobody misses them."""
    body = b'{"user":"u","items":["%d"]}'
    for i in range(100):
        with raw(web) as s:
            text = body % i
            s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(text) + text)
            if i % 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    items = [str(i) for i in range(0, 100, 2)]  # those that left politely were all heard
    until(lambda: not asker.good("POST", "/v1/unseen", {"user": "u", "items": items})["items"])


@pytest.mark.threads
def test_many_at_once(make_server):
    """Writers and askers on both protocols, and each sees what it wrote; then it stops amid them."""
    server = make_server(http="127.0.0.1:0")
    problems = []
    stopping = threading.Event()

    def write_and_ask(n):
        try:
            with Asker(server) as a, server.client() as c:
                for i in range(40):
                    user, item = f"user{n}", f"item{i}"
                    a.good("POST", "/v1/played", {"user": user, "items": [item]})
                    assert c.command("UNSEEN", user, item, "x") == [b"x"]
                    c.command("PLAYED", user, item + "r")
                    assert a.good("POST", "/v1/unseen", {"user": user, "items": [item + "r"]}) == {"items": []}
                    if i % 10 == 9:
                        a.good("DELETE", f"/v1/users/{user}")
                        a.good("GET", "/v1/ring")
                        a.good("GET", "/v1/months")
        except Exception as e:  # noqa: BLE001
            problems.append(e)

    def write_until_stopped(n):
        try:
            with Asker(server) as a:
                while not stopping.is_set():
                    a.good("POST", "/v1/played", {"user": f"user{n}", "items": ["a", "b"]})
        except (OSError, http.client.HTTPException, AssertionError):
            if not stopping.is_set():
                raise

    threads = [threading.Thread(target=write_and_ask, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems
    threads = [threading.Thread(target=write_until_stopped, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    stopping.set()
    assert server.stop() == 0
    for t in threads:
        t.join()


def test_stop_with_open_connections(web):
    idle, half = raw(web), raw(web)
    half.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    with Asker(web) as a:
        assert a.good("GET", "/healthz") == {"alive": True}
        assert web.stop() == 0
    assert read_all(idle) == b"" and b" 200 " not in read_all(half)


# --- when the store can't ---

def test_full_disk(make_server):
    server = make_server(http="127.0.0.1:0", min_free="16TiB")
    with Asker(server) as a:
        status, headers, answer = a.ask("POST", "/v1/played", {"user": "u", "items": ["a"]})
        assert (status, answer["type"]) == (503, "urn:unseen:problem:disk-full"), answer
        assert "min_free" in answer["detail"] and int(headers["Retry-After"]) > 0
        assert a.ask("GET", "/readyz")[0] == 503
        assert a.good("GET", "/healthz") == {"alive": True}
        assert a.good("POST", "/v1/unseen", {"user": "u", "items": ["a"]}) == {"items": ["a"]}


# --- the description ---

def operations():
    for path, entry in OPENAPI["paths"].items():
        for method in entry:
            if method != "parameters":
                yield method.upper(), path


def test_every_route_is_described():
    table = (REPO / "src" / "http" / "routes.c").read_text()
    rows = set(re.findall(r'^    \{"([A-Z]+)", "([^"]+)"', table, re.MULTILINE))
    assert rows
    assert rows - {("OPTIONS", "*")} == {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in operations()}


def resolve(entry):
    while "$ref" in entry:
        entry = eval("OPENAPI" + "".join(f"[{part!r}]" for part in entry["$ref"].split("/")[1:]))
    return entry


def check(value, schema):
    jsonschema.Draft202012Validator({**OPENAPI, **schema}).validate(value)


@pytest.mark.parametrize("method, path", operations())
def test_it_answers_as_described(web, asker, method, path):
    """The example of each request, and an error of it, as the file says; both before and after there is something."""
    operation = OPENAPI["paths"][path][method.lower()]
    with web.client() as c:
        c.pipeline([("PLAYED", f"u{n}", "a", "b") for n in range(10)])
        c.command("RING", "FLUSH")
        c.command("PLAYED", "u42", "a")
        c.command("DELIVERED", "u42", "b")
        c.command("POOL", "SET", "hot", "a", "b", "c")
    where = path.replace("{user}", "u42").replace("{pool}", "hot")
    body, of_bytes = None, "application/octet-stream" in operation.get("requestBody", {}).get("content", ())
    if of_bytes:
        body, where = bytes(24), f"{where}?seed={asker.good('GET', '/v1/seed')['fingerprint']}"
    elif "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        body = content["example"]
        check(body, content["schema"])
    status, headers, answer = 0, {}, None
    asker.http.request(method, where, body if of_bytes else json.dumps(body) if body else None,
                       {"Content-Type": "application/octet-stream" if of_bytes else "application/json"})
    reply = asker.http.getresponse()
    text = reply.read().decode()
    assert reply.status == 200, text
    described = operation["responses"]["200"]["content"]
    type = reply.headers["Content-Type"]
    assert type in described
    if type == "application/json":
        check(json.loads(text), described[type]["schema"])
        if "example" in described[type]:
            check(described[type]["example"], described[type]["schema"])
    if of_bytes:
        broken = [(where, body, 415, None), (where, body[:-1], 400, "application/octet-stream"),
                  (where[:-8] + "00000000", body, 409, "application/octet-stream")]
        for where, body, expected, kind in broken:
            status, headers, answer = asker.ask(method, where, body, {"Content-Type": kind} if kind else None)
            assert status == expected
            check(answer, resolve(operation["responses"][str(status)])["content"][headers["Content-Type"]]["schema"])
    elif body is not None:
        for broken in ("{", {**body, "nosuch": 1}, {"user": 1}):
            status, headers, answer = asker.ask(method, where, broken)
            response = resolve(operation["responses"][str(status)])
            check(answer, response["content"][headers["Content-Type"]]["schema"])
        with pytest.raises(jsonschema.ValidationError):
            check({**body, "nosuch": 1}, content["schema"])


def test_the_description_is_served(asker):
    assert asker.good("GET", "/openapi.json") == OPENAPI
    assert OPENAPI["openapi"].startswith("3.1.")
    ids = [OPENAPI["paths"][path][method.lower()]["operationId"] for method, path in operations()]
    assert len(ids) == len(set(ids))
    for name in re.findall(r'"\$ref": "(#[^"]+)"', json.dumps(OPENAPI)):
        assert resolve({"$ref": name})
