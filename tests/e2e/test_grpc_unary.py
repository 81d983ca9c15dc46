"""Unary calls without gRPC's frames, as Connect's clients and Dubbo's make them; by curl, which speaks HTTP/2."""
import gzip
import json
import subprocess

import pytest

from conftest import PATIENCE, START
from unseen_grpc import SERVICE, Grpc, grpc_address, messages

PB = messages()
PROTO = "application/proto"
WRAPPER = b"\x0a\x08hessian2\x12\x02\x04u\x1a\x10java.lang.String"


@pytest.fixture
def server(make_server):
    return make_server(grpc="127.0.0.1:0")


def curl(server, path, body, *more, content_type=PROTO, method="POST"):
    """The status, the content type and the body."""
    command = ["curl", "-sS", "--http2-prior-knowledge", "-X", method, "-H", f"Content-Type: {content_type}",
               "--data-binary", "@-", "-w", "\n%{http_code} %{content_type}", *more, f"http://{grpc_address(server)}{path}"]
    done = subprocess.run(command, input=body, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    answer, _, status = done.stdout.rpartition(b"\n")
    code, _, kind = status.decode().partition(" ")
    return int(code), kind, answer


def good(server, method, request, reply, *more, prefix=SERVICE):
    code, kind, answer = curl(server, prefix + method, request.SerializeToString(), *more)
    assert (code, kind) == (200, PROTO), answer
    return reply.FromString(answer)


def bad(server, method, body, *more, prefix=SERVICE):
    if not isinstance(body, bytes):
        body = body.SerializeToString()
    code, kind, answer = curl(server, prefix + method, body, *more)
    assert kind == "application/json", (code, answer)
    error = json.loads(answer)
    assert list(error) == ["code", "status", "message"]
    return code, error["code"], error["message"]


def test_operations(server):
    played = PB.RecordRequest(user="u", items=["a", "b"], tag=7)
    assert good(server, "Played", played, PB.RecordReply) == PB.RecordReply(count=2, tag=7)
    asked = PB.FilterRequest(user="u", items=["a", "x", "b"], reply=PB.FilterRequest.ITEMS)
    assert list(good(server, "Filter", asked, PB.FilterReply).items) == ["x"]
    nothing = PB.FilterRequest(user="u", items=["a"], reply=PB.FilterRequest.INDEXES)
    assert good(server, "Filter", nothing, PB.FilterReply) == PB.FilterReply()
    assert good(server, "Forget", PB.ForgetRequest(user="u", all=True), PB.ForgetReply).count == 1
    code, kind, answer = curl(server, "/grpc.health.v1.Health/Check", b"")
    assert (code, kind, answer) == (200, PROTO, b"\x08\x01")


def test_large(server):
    items = [f"item-{i:07}" for i in range(60000)]
    asked = PB.FilterRequest(user="u", items=items, reply=PB.FilterRequest.ITEMS)
    assert list(good(server, "Filter", asked, PB.FilterReply).items) == items
    # Of unknown length, as a stream would come.
    assert list(good(server, "Filter", asked, PB.FilterReply, "-H", "Content-Length:").items) == items


def test_gzip(server):
    asked = PB.FilterRequest(user="u", items=[f"item-{i}" for i in range(1000)])
    body = gzip.compress(asked.SerializeToString())
    code, kind, answer = curl(server, SERVICE + "Filter", body, "-H", "Content-Encoding: gzip")
    assert (code, kind) == (200, PROTO) and PB.FilterReply.FromString(answer).bitmap == b"\xff" * 125
    assert bad(server, "Filter", asked, "-H", "Content-Encoding: gzip")[:2] == (400, "invalid_argument")
    code, word, text = bad(server, "Filter", asked, "-H", "Content-Encoding: br")
    assert (code, word) == (501, "unimplemented") and "expected identity or gzip" in text
    bomb = gzip.compress(bytes(17 << 20))
    assert bad(server, "Filter", bomb, "-H", "Content-Encoding: gzip")[:2] == (429, "resource_exhausted")


@pytest.mark.parametrize("body, code, word, text", [
    (PB.FilterRequest(items=["a"]), 400, "invalid_argument", "user is empty: an id has 1 to 255 bytes"),
    (PB.FilterRequest(user="u", items=["a"] * 65537), 400, "invalid_argument",
     "65537 items are too many: a command takes at most 65536"),
    (b"\x0a\x05u", 400, "invalid_argument", "user (field 1): is 5 bytes long, and the message ends after 1 of them"),
    (WRAPPER, 501, "unimplemented", "a TripleRequestWrapper (hessian2) is not served: call by the stub that Dubbo's "
                                    "compiler makes of unseen.proto, which sends protobuf"),
    (b"", 400, "invalid_argument", "items holds 0 ids, expected 1 to 65536"),
])
def test_errors(server, body, code, word, text):
    assert bad(server, "Filter", body) == (code, word, text)


def test_statuses(server):
    assert bad(server, "History", PB.HistoryRequest(user='"\\\n')) == \
        (404, "not_found", "nothing is remembered of this user")
    assert bad(server, "Played", PB.RecordRequest(user="u", items=["a"], at=START // 1000))[:2] == (400, "out_of_range")
    assert bad(server, "Nothing", b"")[:2] == (501, "unimplemented")
    assert bad(server, "Filter", b"", prefix="/unseen.v1.Other/")[:2] == (501, "unimplemented")
    code, word, text = bad(server, "Filter", b"x" * (17 << 20))
    assert (code, word) == (429, "resource_exhausted") and "larger than" in text


def test_headers(server):
    asked = PB.FilterRequest(user="u", items=["a"])
    good(server, "Filter", asked, PB.FilterReply, "-H", "Connect-Protocol-Version: 1", "-H", "Connect-Timeout-Ms: 60000")
    good(server, "Filter", asked, PB.FilterReply, "-H", "Triple-Protocol-Version: 0.1.0", "-H", "Triple-Timeout-Ms: 60000",
         "-H", "tri-service-timeout: 60000", "-H", "tri-service-version: 1.0.0", "-H", "tri-service-group: g", "-H", "attachment: x")
    assert bad(server, "Filter", asked, "-H", "Connect-Protocol-Version: 2")[:2] == (400, "invalid_argument")
    assert bad(server, "Filter", asked, "-H", "Connect-Timeout-Ms: soon") == \
        (400, "invalid_argument", "the timeout is no number of milliseconds, expected up to 10 digits")
    assert bad(server, "Filter", asked, "-H", "Connect-Timeout-Ms: 0")[:2] == (504, "deadline_exceeded")


@pytest.mark.parametrize("path", ["/unseen.v1.Unseen/filter", "/com.shop.unseen.v1.Unseen/Filter",
                                  "/com.shop.unseen.v1.Unseen/filter"])
def test_java_paths(server, path):
    prefix, _, method = path.rpartition("/")
    asked = PB.FilterRequest(user="u", items=["a"])
    assert good(server, method, asked, PB.FilterReply, prefix=prefix + "/").bitmap == b"\x80"
    with Grpc(server) as calls:  # the same by gRPC, as Dubbo's consumers ask
        answer = calls.raw(path, asked.SerializeToString())
        assert PB.FilterReply.FromString(answer).bitmap == b"\x80"


@pytest.mark.parametrize("path", ["/xunseen.v1.Unseen/Filter", "/unseen.v1.Unseen", "/unseen.v1.Unseen/",
                                  "/unseen.v1.Unseen/fILTER", "/a/unseen.v1.Unseen/Filter", "/.v1.Unseen/Filter", "//"])
def test_other_paths(server, path):
    assert bad(server, path, b"", prefix="")[:2] == (501, "unimplemented")


@pytest.mark.parametrize("path, content_type, method, code", [
    (SERVICE + "Filter", "application/json", "POST", 415),
    (SERVICE + "Filter", "application/connect+proto", "POST", 415),
    (SERVICE + "Filter", "application/protobuf", "POST", 415),
    (SERVICE + "PlayedStream", PROTO, "POST", 415),
    ("/grpc.health.v1.Health/Watch", PROTO, "POST", 415),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", PROTO, "POST", 415),
    (SERVICE + "Filter", PROTO, "GET", 405),
])
def test_what_has_no_such_form(server, path, content_type, method, code):
    assert curl(server, path, b"", content_type=content_type, method=method)[0] == code


def test_passwords(make_server):
    server = make_server(grpc="127.0.0.1:0", requirepass="secret")
    asked = PB.FilterRequest(user="u", items=["a"])
    assert bad(server, "Filter", asked)[:2] == (401, "unauthenticated")
    good(server, "Filter", asked, PB.FilterReply, "-H", "Authorization: Bearer secret")
