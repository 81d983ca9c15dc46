"""HTTP/2 frame by frame, as no library would send it: what is refused and how, what a peer may not do too often, and
what it may hold."""
import struct

import pytest

from conftest import PATIENCE, peak_memory, until
from unseen_grpc import (CALM, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, PING,
                         PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, Frames, Grpc, call_headers,
                         frame, header_block, message, messages)


@pytest.fixture
def server(make_server):
    return make_server(grpc="127.0.0.1:0")


@pytest.fixture
def peer(server):
    with Frames(server) as f:
        yield f


def question(*items, user="u"):
    return message(messages().FilterRequest(user=user, items=items or ["a"]).SerializeToString())


def alive(server):
    with Grpc(server) as calls:
        return calls.ask("Filter", user="u", items=["a"]).bitmap == b"\x80"


def test_a_question(peer):
    peer.call(1, question())
    headers, data, kinds, _ = peer.answer(1)
    assert headers[":status"] == "200" and headers["content-type"] == "application/grpc" and headers["grpc-status"] == "0"
    assert kinds == [HEADERS, DATA, HEADERS] and data == message(b"\x0a\x01\x80")


def test_an_error_is_trailers_only(peer):
    peer.call(1, question("x" * 256))
    headers, data, kinds, _ = peer.answer(1)
    assert kinds == [HEADERS] and not data and headers[":status"] == "200" and headers["grpc-status"] == "3"
    peer.call(3, message(b""))
    assert peer.answer(3)[0]["grpc-status"] == "3"


def test_a_text_is_percent_encoded(peer):
    body = messages().BlockRequest(session="s", ids=["100 % ü" + "x" * 255]).SerializeToString()
    peer.call(1, message(body), method="Block")
    told = peer.answer(1)[0]["grpc-message"]
    assert told.isascii() and "100 %" not in told


@pytest.mark.parametrize("headers, status, grpc_status", [
    ({"content_type": "application/json"}, "415", None),
    ({"content_type": None}, "415", None),
    ({"content_type": "application/grpcx"}, "415", None),
    ({":method": "GET"}, "405", None),
    ({"content_type": "application/grpc+proto"}, "200", "0"),
    ({"content_type": "application/grpc;charset=utf-8"}, "200", "0"),
    ({"path": "/unseen.v1.Unseen/Nothing"}, "200", "12"),
    ({"path": "/nothing"}, "200", "12"),
    ({"grpc_encoding": "snappy"}, "200", "12"),
    ({"grpc_encoding": "deflate"}, "200", "12"),
    ({"grpc_encoding": "identity"}, "200", "0"),
    ({"grpc_timeout": "soon"}, "200", "3"),
    ({"grpc_timeout": "123456789S"}, "200", "3"),
    ({"grpc_timeout": "99999999H"}, "200", "0"),
    ({"grpc_timeout": "1n"}, "200", "4"),
    ({"grpc_timeout": "0S"}, "200", "4"),
    ({"tri_service_version": "1.0", "x_unknown": "y"}, "200", "0"),
])
def test_headers(peer, headers, status, grpc_status):
    peer.call(1, question(), **headers)
    told = peer.answer(1)[0]
    assert told[":status"] == status and told.get("grpc-status") == grpc_status
    if "grpc_encoding" in headers and grpc_status == "12":
        assert told["grpc-accept-encoding"] == "identity, gzip" and "expected identity or gzip" in told["grpc-message"]


@pytest.mark.parametrize("body, status, text", [
    (b"", "3", "there is no message"),
    (b"\0\0", "3", "cut off"),
    (message(b"abcdef")[:-1], "3", "cut off"),
    (message(b"", flag=2), "3", "0 or 1"),
    (message(b"x", flag=1), "13", "grpc-encoding"),
    (b"\0" + struct.pack(">I", 16 * 1024 * 1024 + 1), "8", "larger than"),
    (b"\0\xff\xff\xff\xff", "8", "larger than"),
    (question() + question(), "3", "more than one"),
    (message(b"\x0a\x05u"), "3", ""),
    (message(b"\xff\xff\xff"), "3", ""),
])
def test_messages(peer, body, status, text):
    peer.send(frame(HEADERS, END_HEADERS, 1, call_headers()))
    peer.send(frame(DATA, END_STREAM, 1, body))
    told = peer.answer(1)[0]
    assert told["grpc-status"] == status and text in told["grpc-message"]


def test_gzip_that_is_none(peer):
    peer.call(1, message(b"no gzip", flag=1), grpc_encoding="gzip")
    assert peer.answer(1)[0]["grpc-status"] == "3"


def test_a_message_in_pieces(peer):
    body = question("a", "b", "c")
    peer.send(frame(HEADERS, END_HEADERS, 1, call_headers()))
    for i, byte in enumerate(body):
        peer.send(frame(DATA, END_STREAM if i == len(body) - 1 else 0, 1, bytes([byte])))
    assert peer.answer(1)[1] == message(b"\x0a\x01\xe0")


def test_an_answer_before_the_end_of_the_request(peer):
    """The reset comes behind END_STREAM, and says that there is no error."""
    peer.send(frame(HEADERS, END_HEADERS, 1, call_headers(content_type="text/plain")))
    peer.take_until(HEADERS)
    kind, _, stream, body = peer.take_until(RST_STREAM)[-1]
    assert stream == 1 and int.from_bytes(body, "big") == NO_ERROR
    peer.call(3, question())
    assert peer.answer(3)[0]["grpc-status"] == "0"


def test_a_deadline_passes_while_the_message_comes(peer):
    peer.send(frame(HEADERS, END_HEADERS, 1, call_headers(grpc_timeout="1m")))
    assert peer.answer(1)[0]["grpc-status"] == "4"


# --- what is no HTTP/2 ---

@pytest.mark.parametrize("preface", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"\0" * 64, b"PRI * HTTP/2.0\r\n\r\nXX"])
def test_another_protocol(server, preface):
    with Frames(server, preface=preface) as peer:
        while peer.take() is not None:
            pass
    assert alive(server)


@pytest.mark.parametrize("bad", [
    frame(DATA, 0, 0, b"x"),
    frame(HEADERS, END_HEADERS, 0, call_headers()),
    frame(HEADERS, END_HEADERS, 2, call_headers()),
    frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    frame(CONTINUATION, END_HEADERS, 1, b""),
    frame(SETTINGS, 0, 0, b"12345"),
    frame(PING, 0, 0, b"short"),
    frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0)),
    b"\xff\xff\xff\0\0\0\0\0\1",
])
def test_a_broken_frame_ends_the_connection(server, bad):
    with Frames(server) as peer:
        peer.send(bad)
        assert peer.end() is not None
    assert alive(server)


def test_frames_of_unknown_kinds_are_ignored(peer):
    peer.send(frame(0xbe, 0xff, 0, b"what is this?") + frame(PRIORITY, 0, 5, b"\0\0\0\0\1"))
    peer.call(7, question())
    assert peer.answer(7)[0]["grpc-status"] == "0"


# --- too much ---

def said_goodbye(server, data, **options):
    with Frames(server, **options) as peer:
        try:
            for i in range(0, len(data), 8192):
                peer.send(data[i:i + 8192])
        except OSError:
            pass
        try:
            return peer.end()
        except OSError:
            return None, None


def test_a_flood_of_resets(server):
    calls = b"".join(frame(HEADERS, END_HEADERS, i, call_headers()) + frame(RST_STREAM, 0, i, struct.pack(">I", CANCEL))
                     for i in range(1, 8001, 2))
    said_goodbye(server, calls)
    assert "too_many" in server.log() or "flood" in server.log().lower() or "reset" in server.log()
    assert alive(server)


def test_pings_that_come_too_often(server):
    code, text = said_goodbye(server, b"".join(frame(PING, 0, 0, bytes(8)) for _ in range(10)))
    assert code == CALM and text == "too_many_pings"
    assert alive(server)


def test_pings_between_answers_are_no_flood(server, peer):
    for i in range(1, 41, 2):
        peer.call(i, question())
        peer.answer(i)
        peer.ping()
    assert alive(server)


@pytest.mark.parametrize("one", [frame(SETTINGS, 0, 0), frame(PRIORITY, 0, 1, b"\0\0\0\0\1"), frame(0xbe, 0, 0)],
                         ids=["settings", "priority", "unknown"])
def test_a_flood_of_frames_that_do_nothing(server, one):
    code, text = said_goodbye(server, one * 3000)
    assert code == CALM, text
    assert alive(server)


def test_a_flood_of_empty_data(server):
    code, _ = said_goodbye(server, frame(HEADERS, END_HEADERS, 1, call_headers()) + frame(DATA, 0, 1) * 3000)
    assert code == CALM
    assert alive(server)


def test_a_flood_of_continuations(server):
    block = call_headers()
    said_goodbye(server, frame(HEADERS, 0, 1, block) + frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 1000) * 200)
    assert alive(server)


def test_headers_that_are_too_large(server, peer):
    block = call_headers() + header_block([(f"x-{i}", "y" * 60) for i in range(200)])
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
    told = peer.answer(1)[0]
    assert told["grpc-status"] == "8" and "expected 16384 at most" in told["grpc-message"]
    peer.call(3, question())
    assert peer.answer(3)[0]["grpc-status"] == "0"
    assert alive(server)


def test_more_calls_than_there_may_be(server, peer):
    for i in range(1, 2 * 300, 2):
        peer.send(frame(HEADERS, END_HEADERS, i, call_headers()))
    assert peer.take_until(RST_STREAM)[-1][2] > 2 * 255
    peer.send(frame(DATA, END_STREAM, 1, question()))
    assert alive(server)


def test_a_peer_that_opens_no_window(server):
    """Its answers wait, and hold no more than they may; others are answered."""
    with Frames(server, settings=struct.pack(">HI", 4, 0)) as peer:  # INITIAL_WINDOW_SIZE
        for i in range(1, 101, 2):
            peer.call(i, question())
        peer.ping()
        assert alive(server)
        peer.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 5)))
        headers = peer.take_until(DATA)
        assert headers[-1][2:] == (1, message(b"\x0a\x01\x80")[:5])
        peer.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1000)))
        assert peer.take_until(DATA)[-1][3] == b"\x0a\x01\x80"


def test_windows_open_for_what_has_a_place(server, peer):
    """A message of 4 MiB comes in steps: the peer is let go on as it is read."""
    body = question(*(f"{i:0250}" for i in range(16000)))
    peer.send(frame(HEADERS, END_HEADERS, 1, call_headers()))
    windows = {0: 65535, 1: 1024 * 1024}
    at = 0
    while at < len(body):
        n = min(16384, len(body) - at, *windows.values())
        if n > 0:
            peer.send(frame(DATA, END_STREAM if at + n == len(body) else 0, 1, body[at:at + n]))
            at += n
            windows = {k: v - n for k, v in windows.items()}
        else:
            _, _, stream, more = peer.take_until(WINDOW_UPDATE)[-1]
            windows[stream] += int.from_bytes(more, "big")
            assert windows[0] <= 16 * 1024 * 1024 and windows[1] <= 1024 * 1024
    assert peer.answer(1)[0]["grpc-status"] == "0"


def test_idle_connections(server):
    with_calls = [Frames(server) for _ in range(200)]
    for peer in with_calls:
        for i in range(1, 101, 2):
            peer.send(frame(HEADERS, END_HEADERS, i, call_headers(method="PlayedStream")))
    assert alive(server)
    for peer in with_calls:
        peer.ping()
        peer.socket.close()
    assert alive(server)


# --- time and memory ---

def info(client, name):
    lines = client.command("INFO").decode().split("\r\n")
    return next(line.split(":", 1)[1] for line in lines if line.startswith(name + ":"))


def test_idle_timeout(make_server):
    server = make_server(grpc="127.0.0.1:0", idle_timeout="30s")
    with Frames(server) as peer, server.client() as c:
        peer.call(1, question())
        peer.answer(1)
        c.command("DEBUG", "ADVANCE", 29000)
        peer.call(3, question())
        peer.answer(3)
        c.command("DEBUG", "ADVANCE", 29000)
        peer.call(5, question())
        peer.answer(5)
        c.command("DEBUG", "ADVANCE", 30000)
        assert peer.end() == (NO_ERROR, "")


def test_a_peer_that_answers_no_ping(server):
    with Frames(server) as peer, server.client() as c:
        peer.call(1, question())
        peer.answer(1)
        for _ in range(3):
            c.command("DEBUG", "ADVANCE", 10000)
        kinds = []
        while (got := peer.take()) is not None:
            kinds.append(got[0])
        assert kinds.count(PING) == 2
        assert "pings are not answered" in server.log()


def test_a_peer_that_answers_pings_stays(server):
    with Frames(server) as peer, server.client() as c:
        peer.call(1, question(), flags=0)
        peer.ping()
        for _ in range(5):
            c.command("DEBUG", "ADVANCE", 10000)
            _, _, _, word = peer.take_until(PING)[-1]
            peer.send(frame(PING, 1, 0, word))
            peer.ping()  # it has come
        peer.send(frame(DATA, END_STREAM, 1))
        assert peer.answer(1)[0]["grpc-status"] == "0"


def test_half_a_message_is_not_waited_for_for_ever(server, peer):
    with server.client() as c:
        peer.call(1, question()[:-1], flags=0)
        peer.ping()
        c.command("DEBUG", "ADVANCE", 60000)
        told = peer.answer(1)[0]
        assert told["grpc-status"] == "4" and "whole" in told["grpc-message"]


def test_many_half_messages_take_no_more_than_there_is(make_server):
    """Each promises 3 MiB, and sends as much as it is let: by the window, or by the server that does not read on."""
    server = make_server(grpc="127.0.0.1:0", request_memory="32MiB")
    peers = [Frames(server) for _ in range(50)]
    body = b"\0" + struct.pack(">I", 3 * 1024 * 1024) + bytes(1024 * 1024 - 5)
    sent = b"".join(frame(DATA, 0, 1, body[i:i + 16384]) for i in range(0, len(body), 16384))
    with server.client() as c:
        for peer in peers:
            peer.send(frame(HEADERS, END_HEADERS, 1, call_headers()))
            peer.socket.setblocking(False)
        at = [0] * len(peers)
        for _ in range(20):
            for i, peer in enumerate(peers):
                try:
                    at[i] += peer.socket.send(sent[at[i]:])
                except BlockingIOError:
                    pass  # it is not read on
            assert alive(server)
            assert int(info(c, "request_memory_used")) <= 32 * 1024 * 1024
        for peer in peers:
            peer.socket.close()
        assert alive(server)


def test_calls_that_are_given_up(server):
    """Their outcome is dropped, whenever it comes: of what is recorded, and of what is late."""
    pb = messages()
    play = message(pb.RecordRequest(user="other", items=["a"]).SerializeToString())
    forget = message(pb.ForgetRequest(user="other", all=True).SerializeToString())
    for ended in (False, True):
        with Frames(server) as peer:
            for i in range(1, 401, 4):
                peer.call(i, play, method="Played")
                peer.call(i + 2, forget, method="Forget")
                if not ended:
                    reset = struct.pack(">I", CANCEL)
                    peer.send(frame(RST_STREAM, 0, i, reset) + frame(RST_STREAM, 0, i + 2, reset))
            if not ended:
                peer.ping()
    assert alive(server)


def test_bad_bytes_on_a_stream_come_behind_its_answers(peer):
    play = message(messages().RecordRequest(user="u", items=["a"], tag=7).SerializeToString())
    peer.call(1, play * 50 + b"\7\0\0\0\1x", method="PlayedStream")
    headers, data, _, _ = peer.answer(1)
    assert headers["grpc-status"] == "3" and len(data) == 50 * len(message(b"\x08\x01\x10\x07"))


def test_a_half_read_answer_that_is_too_late(server):
    """What was begun is told to its end, and nothing behind it."""
    with Frames(server, settings=struct.pack(">HI", 4, 3)) as peer, server.client() as c:
        peer.call(1, message(b""), path="/grpc.health.v1.Health/Watch", grpc_timeout="2S")
        assert peer.take_until(DATA)[-1][3] == message(b"")[:3]
        before = info(c, "total_error_replies")
        until(lambda: info(c, "total_error_replies") != before)
        peer.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 65536)))
        headers, data, _, _ = peer.answer(1)
        assert data == message(b"\x08\x01")[3:] and headers["grpc-status"] == "4"
    assert alive(server)


def test_health_is_watched_without_a_login(make_server):
    """The time to say who one is ends nobody who is being answered."""
    server = make_server(grpc="127.0.0.1:0", requirepass="secret")
    with Frames(server) as peer, server.client() as c:
        c.command("AUTH", "secret")
        peer.call(1, message(b""), path="/grpc.health.v1.Health/Watch")
        peer.take_until(DATA)
        for _ in range(8):
            c.command("DEBUG", "ADVANCE", 9000)
            peer.send(frame(SETTINGS, 0, 0))  # something comes, and is answered
            peer.take_until(SETTINGS)


def test_a_stream_whose_answers_are_not_read(server):
    """Nobody need log in for this one, so it may not hold its answer for ever."""
    body = message(b"\x1a" + bytes([0x80 | 15000 & 0x7f, 15000 >> 7]) + b"x" * 15000)
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    with Frames(server, settings=struct.pack(">HI", 4, 0)) as peer, server.client() as c:  # INITIAL_WINDOW_SIZE
        peer.call(1, b"", flags=0, path=path)
        for at in range(0, len(body), 16384):
            peer.send(frame(DATA, 0, 1, body[at:at + 16384]))
        peer.take_until(HEADERS)
        kinds = []
        for _ in range(8):
            c.command("DEBUG", "ADVANCE", 9000)
            peer.send(frame(SETTINGS, 0, 0))  # something comes, and is answered
            kinds += [kind for kind, _, _, _ in peer.take_until(SETTINGS)]
        assert RST_STREAM in kinds


def test_a_client_is_told_that_it_sends_too_much(server):
    with Grpc(server) as calls:
        for n in range(2):  # the first may go before the client knows of the limit
            code, _ = calls.refused("Filter", user="u", items=["a"], metadata=[("x-large", "y" * 20000)])
            assert code == "RESOURCE_EXHAUSTED"
        assert calls.ask("Filter", user="u", items=["a"]).bitmap == b"\x80"


def test_a_stop_does_not_wait_for_who_reads_nothing(make_server):
    server = make_server(grpc="127.0.0.1:0")
    with Frames(server, settings=struct.pack(">HI", 4, 0)) as peer:
        peer.call(1, question())
        peer.take_until(HEADERS)
        assert server.stop() == 0
    assert "stopped with work under way" not in server.log()


LARGE = [f"i{n}" for n in range(150000)]  # so many that a question about them is answered later


@pytest.fixture
def short(make_server):
    """Some of its replies fill request_memory."""
    server = make_server(grpc="127.0.0.1:0", request_memory="16MiB")
    with server.client() as c:
        for at in range(0, len(LARGE), 50000):
            c.command("POOL", "ADD" if at else "SET", "large", *LARGE[at:at + 50000])
    return server


def memory(client, what):
    return int(info(client, f"request_memory_{what}"))


@pytest.mark.parametrize("method", ["Filter", "FilterMany"])
def test_who_reads_no_reply_leaves_room_for_others(short, method):
    """There are more calls than memory for their replies."""
    about = dict(pools=["large"], reply="ITEMS")
    body = (messages().FilterRequest(user="u", **about) if method == "Filter"
            else messages().FilterManyRequest(users=["u", "v"], **about))
    with Frames(short) as peer, short.client() as c:
        for stream in range(1, 201, 2):
            peer.call(stream, message(body.SerializeToString()), method=method)
        peer.take_until(DATA)
        for n in range(5):
            with Grpc(short) as others:
                assert list(others.ask("Filter", user="w", **about).items) == LARGE
            assert memory(c, "used") <= memory(c, "limit") // 2
    assert alive(short)


def test_many_who_read_nothing(short):
    """Forty connections, each with replies of five megabytes that it lets none of through."""
    body = message(messages().FilterRequest(user="u", pools=["large"], reply="ITEMS").SerializeToString())
    before = peak_memory(short)
    peers = [Frames(short, settings=struct.pack(">HI", 4, 0)) for _ in range(40)]
    for peer in peers:
        for stream in range(1, 10, 2):
            peer.call(stream, body)
        if peer is peers[0]:
            peer.take_until(HEADERS)  # the first is answered; of the others, those for whom there is memory
    with short.client() as c, Grpc(short) as others:
        for n in range(20):
            assert list(others.ask("Filter", user="w", items=["a"], reply="ITEMS").items) == ["a"]
            assert memory(c, "used") <= memory(c, "limit")
    assert peak_memory(short) - before < 64 * 1024 * 1024
    for peer in peers:
        peer.socket.close()


def test_large_replies_come_to_who_reads_them(short):
    """More than there is memory for at once."""
    with Grpc(short) as calls:
        request, method = calls.method("Filter")
        asked = [method.future(request(user=f"u{n}", pools=["large"], reply="ITEMS"), timeout=PATIENCE) for n in range(40)]
        assert all(list(a.result().items) == LARGE for a in asked)
