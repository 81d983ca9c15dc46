"""The table of bad input: each row gets a clear error and changes nothing; others notice nothing."""
import contextlib
import re
import socket

import pytest

from conftest import DAY, HOUR, START, peak_memory, until
from resp import Client, Closed, RespError, encode

LONG = "x" * 256


def error_of(client, *words):
    with pytest.raises(RespError) as caught:
        client.command(*words)
    return str(caught.value)


BAD_COMMANDS = [
    # command, what the error must name
    (("PLAYED", "", "a"), ["user", "empty"]),
    (("PLAYED", "u", "a", ""), ["item 2", "empty"]),
    (("PLAYED", "u", "good", LONG), ["item 2", "255"]),
    (("PLAYED", LONG, "a"), ["user", "255"]),
    (("DELIVERED", "u", "good", ""), ["item 2", "empty"]),
    (("UNSEEN", "u", "good", ""), ["item 2", "empty"]),
    (("SEEN", "", "good"), ["user"]),
    (("WHY", "u", ""), ["item"]),
    (("HISTORY", LONG), ["user", "255"]),
    (("FORGET", ""), ["user"]),
    (("FORGET", "u", "a", LONG), ["item 2", "255"]),
    (("PLAYED",), ["wrong number of arguments", "played"]),
    (("PLAYED", "u"), ["wrong number of arguments"]),
    (("PLAYEDAT", "u", str(START)), ["wrong number of arguments"]),
    (("DELIVERED", "u"), ["wrong number of arguments"]),
    (("UNSEEN", "u"), ["wrong number of arguments"]),
    (("HISTORY",), ["wrong number of arguments"]),
    (("WHY", "u", "a", "b"), ["WHY takes SESSION", "'b'"]),
    (("FILTER", "u"), ["wrong number of arguments"]),
    (("PLAYEDAT", "u", "noon", "a"), ["unix_ms", "noon"]),
    (("PLAYEDAT", "u", "", "a"), ["unix_ms", "whole number"]),
    (("PLAYEDAT", "u", "1e12", "a"), ["unix_ms", "1e12"]),
    (("PLAYEDAT", "u", "99999999999999999999", "a"), ["unix_ms"]),
    (("PLAYEDAT", "u", str(START - 400 * DAY), "a"), ["retention"]),
    (("PLAYEDAT", "u", str(START + DAY + 1000), "a"), ["ahead"]),
    (("PLAYEDAT", "u", str(START // 1000), "a"), ["seconds"]),
    (("FILTER", "u", "BEST", "ITEMS", "a"), ["BEST"]),
    (("FILTER", "u", "REPLY", "NUMBERS", "ITEMS", "a"), ["NUMBERS"]),
    (("FILTER", "u", "LIMIT", "0", "ITEMS", "a"), ["LIMIT"]),
    (("FILTER", "u", "LIMIT", "-1", "ITEMS", "a"), ["LIMIT"]),
    (("FILTER", "u", "LIMIT", "many", "ITEMS", "a"), ["LIMIT"]),
    (("FILTER", "u", "LIMIT", "5", "REPLY", "BITMAP", "ITEMS", "a"), ["LIMIT", "BITMAP"]),
    (("FILTER", "u", "DELIVER", "ITEMS", "a"), ["LIMIT"]),
    (("FILTER", "u", "DELIVER", "LIMIT", "101", "ITEMS", "a"), ["100"]),
    (("FILTER", "u", "SESSION", "s", "SESSION", "t", "ITEMS", "a"), ["SESSION is given twice"]),
    (("FILTER", "u", "ITEMS"), ["wrong number of arguments"]),
    (("FILTER", "u", "LIMIT", "5", "a", "b"), ["a"]),
    (("RING", "SPIN"), ["SPIN"]),
    (("SELECT", "1"), ["DB index is out of range"]),
    (("SELECT", "x"), ["ERR"]),
    (("HELLO", "4"), ["NOPROTO"]),
    (("HELLO", "x"), ["Protocol version is not an integer"]),
    (("NOSUCHCOMMAND", "a"), ["unknown command", "NOSUCHCOMMAND"]),
    (("CLIENT", "MAINT_NOTIFICATIONS", "ON"), ["ERR"]),
    (("EXEC",), ["EXEC without MULTI"]),
    (("DISCARD",), ["DISCARD without MULTI"]),
    (("DEBUG", "ADVANCE", "-1"), ["ERR"]),
    (("DEBUG", "ADVANCE", "soon"), ["ERR"]),
    (("AUTH", "secret"), ["ERR", "password"]),
]


def short(words):
    return " ".join(w if len(w) < 30 else w[:5] + ".." for w in words)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    from conftest import Server
    server = Server(tmp_path_factory.mktemp("bad"))
    yield server
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize("words, parts", BAD_COMMANDS, ids=[short(w) for w, _ in BAD_COMMANDS])
def test_bad_command(shared, words, parts, protocol):
    with shared.client(protocol) as c:
        text = error_of(c, *words)
        for part in parts:
            assert part.lower() in text.lower(), f"{text!r} does not name {part!r}"
        assert c.command("PING") == b"PONG"  # the connection goes on
        assert c.command("HISTORY", "u") is None  # nothing recorded, not even the good items
        assert c.command("UNSEEN", "u", "good", "a") == [b"good", b"a"]


def test_longest_id_is_good(shared):
    with shared.client() as c:
        assert c.command("PLAYED", "y" * 255, "z" * 255) == 1
        assert c.command("UNSEEN", "y" * 255, "z" * 255, "z" * 254) == [b"z" * 254]


def test_most_items_of_a_command(shared):
    with shared.client() as c:
        items = [str(i) for i in range(65536)]
        assert c.command("PLAYED", "most", *items) == 65536
        assert "65536" in error_of(c, "PLAYED", "toomany", *items, "one")
        assert c.command("HISTORY", "toomany") is None


def test_event_time_errors_say_by_how_much(shared):
    with shared.client() as c:
        assert re.search(r"\d", error_of(c, "PLAYEDAT", "u", START - 400 * DAY, "a"))
        assert re.search(r"\d", error_of(c, "PLAYEDAT", "u", START + 3 * DAY, "a"))
        assert "milliseconds" in error_of(c, "PLAYEDAT", "u", START // 1000, "a")
        assert c.command("PLAYEDAT", "edge", START + DAY, "a") == 1


def test_bad_times_are_counted(server, client):
    error_of(client, "PLAYEDAT", "u", START - 400 * DAY, "a")
    error_of(client, "PLAYEDAT", "u", START + 3 * DAY, "a")
    error_of(client, "PLAYEDAT", "u", START // 1000, "a")
    assert b"\r\nevent_times_refused:3\r\n" in client.command("INFO")


def test_skewed_time_now(make_server):
    server = make_server(skewed_time="now")
    with server.client() as c:
        assert c.command("PLAYEDAT", "u", START // 1000, "a") == 1
        assert c.command("PLAYEDAT", "u", START - 400 * DAY, "b") == 1
        assert c.command("UNSEEN", "u", "a", "b", "c") == [b"c"]
        c.command("RING", "FLUSH")
        assert b"2026-11" in c.command("WHY", "u", "a")
        assert b"\r\nevent_times_replaced:2\r\n" in c.command("INFO")


GARBAGE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST": b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nPLAYED u a\r\n",
    "a count that is no number": b"*x\r\n",
    "a negative length": b"*2\r\n$4\r\nPING\r\n$-5\r\n",
    "a length that is no number": b"*1\r\n$abc\r\nPING\r\n",
    "too many arguments": b"*2000000\r\n",
    "too long an argument": b"*2\r\n$4\r\nECHO\r\n$99999999\r\n",
    "a huge count": b"*9223372036854775807\r\n",
    "no CR LF behind an argument": b"*1\r\n$4\r\nPINGxxPING\r\n",
    "an integer where a string is due": b"*2\r\n$4\r\nECHO\r\n:5\r\n",
    "unbalanced quotes": b"PLAYED u \"a\r\n",
    "bytes": bytes(range(1, 256)) * 400 + b"\r\n*9\r\n\xff",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_the_connection(shared, name):
    with shared.client() as other, shared.client() as c:
        other.command("PLAYED", "other", "a")
        try:
            c.send(GARBAGE[name])
            c.sock.shutdown(socket.SHUT_WR)
            replies = []
            while True:
                replies.append(c.read())
        except (Closed, ConnectionResetError, BrokenPipeError):
            pass
        assert any(isinstance(r, RespError) and "Protocol error" in str(r) for r in replies), replies
        assert other.command("UNSEEN", "other", "a", "b") == [b"b"]
    with shared.client() as c:
        assert c.command("HISTORY", "u") is None


def test_ten_megabytes_without_a_newline(shared):
    with shared.client() as other, shared.client() as c:
        with pytest.raises((Closed, ConnectionResetError, BrokenPipeError)):
            for _ in range(160):
                c.send(b"x" * 65536)
            first = c.read()
            assert isinstance(first, RespError) and "Protocol error" in str(first)
            c.read()
        assert other.command("PING") == b"PONG"


def test_truncated_requests_do_nothing(shared):
    whole = encode("PLAYED", "truncated", "item")
    for cut in range(1, len(whole)):
        with shared.client() as c:
            c.send(whole[:cut])
            c.sock.shutdown(socket.SHUT_WR)
            assert c.at_end()
    with shared.client() as c:
        assert c.command("HISTORY", "truncated") is None
        for byte in whole:  # and byte by byte it is a request like any other
            c.send(bytes([byte]))
        assert c.read() == 1


def test_a_request_of_over_16_mib(shared):
    with shared.client() as c:
        with pytest.raises((Closed, ConnectionResetError, BrokenPipeError, RespError)):
            c.send(encode("PLAYED", "huge", *["%0250d" % i for i in range(65536)]) +
                   encode("PLAYED", "huge", *["%0255d" % i for i in range(65536)]))
            first = c.read()
            if isinstance(first, RespError):
                raise first
            second = c.read()
            if isinstance(second, RespError):
                raise second
            raise AssertionError((first, second))
    with shared.client() as c:
        assert c.command("PING") == b"PONG"


def test_before_authentication(make_server):
    server = make_server(requirepass="secret")
    with server.client() as c:
        assert error_of(c, "PLAYED", "u", "a").startswith("NOAUTH")
        assert error_of(c, "PING").startswith("NOAUTH")
        assert error_of(c, "INFO").startswith("NOAUTH")
        assert error_of(c, "AUTH", "wrong").startswith("WRONGPASS")
        assert error_of(c, "AUTH", "default", "wrong").startswith("WRONGPASS")
        assert error_of(c, "HELLO", "3").startswith("NOAUTH")
        assert error_of(c, "HELLO", "3", "AUTH", "default", "wrong").startswith("WRONGPASS")
        assert c.command("HELLO", "3", "AUTH", "default", "secret")[b"proto"] == 3
        assert c.command("PLAYED", "u", "a") == 1
        assert c.command("RESET") == b"RESET"
        assert error_of(c, "PLAYED", "u", "a").startswith("NOAUTH")
        assert c.command("AUTH", "secret") == b"OK"
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
    for garbage in (b"*11\r\n", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"):
        with server.client() as c:
            c.send(garbage)
            assert "unauthenticated" in str(c.read())
            assert c.at_end()
    with server.client() as c:
        # A large command before AUTH is refused without being taken in.
        with pytest.raises((Closed, ConnectionResetError, BrokenPipeError)):
            c.send(encode("PLAYED", "u", *["x" * 200] * 60000))
            assert isinstance(c.read(), RespError)
            c.read()
    assert "secret" not in server.log()


def test_max_clients(make_server):
    server = make_server(max_clients="5")
    clients = [server.client()]
    until(lambda: b"connected_clients:1\r\n" in clients[0].command("INFO", "clients"))  # that of start() is still being closed
    clients += [server.client() for _ in range(4)]
    assert [c.command("PING") for c in clients] == [b"PONG"] * 5
    with server.client() as sixth:
        assert "max number of clients" in str(sixth.read())
        assert sixth.at_end()
    clients[0].close()
    until(server.answers, lambda: "a place did not become free")
    for c in clients:
        c.close()


def test_a_client_that_does_not_read(server):
    """It asks for more than it takes: it is held back or closed, and nobody else notices."""
    items = ["i%d" % i for i in range(5000)]
    question = encode("UNSEEN", "u", *items)
    with server.client() as other:
        slow = Client(server.address, timeout=0.5)
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent = 0
        try:
            for _ in range(2000):
                slow.send(question)
                sent += 1
                if sent % 20 == 0:
                    assert other.command("PING") == b"PONG"
        except OSError:
            pass
        assert sent < 2000
        assert other.command("UNSEEN", "u", "a") == [b"a"]
        assert peak_memory(server) < 400 << 20
        slow.close()


def test_idle_timeout(make_server):
    server = make_server(clock=None, idle_timeout="1s")
    with server.client() as c:
        with contextlib.suppress(Closed, OSError):  # a second may be over before it is sent
            assert c.command("PING") == b"PONG"
        assert c.at_end()


def test_debug_needs_the_test_clock(make_server):
    server = make_server(clock=None)
    with server.client() as c:
        assert "ERR" in error_of(c, "DEBUG", "ADVANCE", HOUR)
