"""What the log says of clients: whose connection it was."""
import contextlib
import fcntl
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess

import pytest

from conftest import PATIENCE, UNSEEN, Server, http_url, until
from resp import Closed, RespError


@pytest.fixture
def server(make_server):
    return make_server(log_level="debug", http="127.0.0.1:0", idle_timeout="10min")


def line_with(server, *parts):
    """The one line that has all of them, which may take a moment."""
    found = until(lambda: [line for line in server.log().splitlines() if all(part in line for part in parts)],
                  lambda: f"{parts}\n{server.log()}")
    assert len(found) == 1, found
    return found[0]


def address_of(sock):
    return 'address="%s:%d"' % sock.getsockname()


def test_a_client_that_comes_and_goes(server):
    with server.client() as c:
        assert c.command("PING") == b"PONG"
        own = address_of(c.sock)
        number = re.search(rb"\bid=(\d+) ", c.command("CLIENT", "INFO")).group(1).decode()
        line_with(server, "debug client connected", f"id={number} {own}")
    line_with(server, "debug client disconnected", f"id={number} {own}")


def test_one_that_breaks_off(server):
    """Its socket no longer knows its peer; the port is gone with it."""
    with server.client() as c:
        number = re.search(rb"\bid=(\d+) ", c.command("CLIENT", "INFO")).group(1).decode()
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line_with(server, "debug client disconnected", f'id={number} address="127.0.0.1')


def test_a_protocol_error(server):
    with server.client() as c:
        own = address_of(c.sock)
        c.send(b"*1\r\n:5\r\n")
        with pytest.raises((RespError, Closed)):
            raise c.read()
        assert "cause=" in line_with(server, "no RESP client", own)


def test_a_silent_one(server):
    with server.client() as c:
        assert c.command("PING") == b"PONG"
        own = address_of(c.sock)
        server.advance(11 * 60 * 1000)
        line_with(server, "info connection timed out", own, "cause=")


def test_one_that_does_not_log_in(make_server):
    """Unlike one that does, it has 60 s."""
    server = make_server(log_level="debug", requirepass="geheim")
    with server.client() as c, socket.create_connection(("127.0.0.1", server.port)) as stranger:
        assert c.command("AUTH", "geheim") == b"OK"
        own, other = address_of(stranger), address_of(c.sock)
        line_with(server, "debug client connected", own)
        c.command("DEBUG", "ADVANCE", 61 * 1000)
        line_with(server, "info connection timed out", own, 'cause="no login"')
        assert c.command("PING") == b"PONG"
        assert other not in "".join(line for line in server.log().splitlines() if "timed out" in line)


def test_http(server):
    host, port = http_url(server)[len("http://"):].split(":")
    c = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    c.request("GET", "/healthz")
    assert c.getresponse().read() == b'{"alive":true}\n'
    own = address_of(c.sock)
    line_with(server, "debug client connected", own)
    c.close()
    line_with(server, "debug client disconnected", own)


def test_not_at_the_usual_level(make_server):
    server = make_server(http="127.0.0.1:0")
    with server.client() as c:
        assert c.command("PING") == b"PONG"
    server.stop()
    assert "client connected" not in server.log() and "client disconnected" not in server.log()


def test_a_reader_that_stands(folder):
    """A stopped `| tee`, a log driver that waits: what is logged waits in the server, and nothing that answers does. It
    all comes out once it is read again, the last line too."""
    server = Server(folder, wait=False, log_level="debug", http="127.0.0.1:0")
    server.write_config()
    end, stderr = os.pipe()
    fcntl.fcntl(stderr, fcntl.F_SETPIPE_SZ, 4096)
    server.process = subprocess.Popen([str(UNSEEN), "serve", "-c", str(server.config)], stderr=stderr)
    os.close(stderr)

    def answers():
        with contextlib.suppress(OSError, RespError, Closed), server.client() as c:
            return c.command("SEEN", "u", "a") == [0]

    try:
        until(answers)
        for i in range(100):  # two lines each: more than the pipe holds
            with server.client() as c:
                assert c.command("PLAYED", f"user{i}", "a") == 1
                assert c.command("SEEN", f"user{i}", "a") == [1]
        with server.client() as c:
            info = dict(line.split(":", 1) for line in c.command("INFO").decode().splitlines() if ":" in line)
            assert int(info["log_bytes_waiting"]) > 4096 and info["log_lines_lost"] == "0"
        server.process.send_signal(signal.SIGTERM)
        with os.fdopen(end, encoding="utf-8") as pipe:
            lines = pipe.read().splitlines()
        assert server.process.wait(PATIENCE) == 0
        assert sum("debug client connected" in line for line in lines) > 100
        assert lines[-1].endswith(" info stopped"), lines[-5:]
    finally:
        if server.alive():
            server.kill()


def test_json(make_server):
    """Each line is an object, from the first to the last, and the option is live."""
    server = make_server(log_format="json")
    with server.client() as c:
        c.command("PLAYED", 'a "b"\xff', "x")
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.log().splitlines()]
    begun = next(line for line in lines if line["message"] == "unseen")
    assert begun["pid"] == server.process.pid and isinstance(begun["jansson"], str)
    assert lines[-1]["message"] == "stopped" and set(lines[-1]) == {"time", "level", "message"}


def test_json_of_a_failed_start(folder):
    server = Server(folder, wait=False, log_format="json")
    server.data.mkdir()
    (server.data / "history.db").write_bytes(b"no database, though it is as long as one" * 100)
    server.spawn()
    assert server.process.wait(PATIENCE) == 1
    said = [json.loads(line) for line in server.log().splitlines()]
    assert said[-1]["level"] == "error" and "history.db" in said[-1]["message"]
