"""--to: the server that is asked, and what is told where it is another port."""
import collections
import contextlib
import json
import re
import socket

import pytest

from conftest import PATIENCE, START, run
from test_export import Busy
from test_lying_redis import Liar


@pytest.fixture
def server(make_server):
    server = make_server(store="sqlite", http="127.0.0.1:0", grpc="127.0.0.1:0")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    return server


def port_of(server, scheme):
    found = re.search(rf'address="{scheme}://127.0.0.1:(\d+)"', server.log())
    if found is None:
        pytest.skip(f"built without {scheme}")
    return int(found[1])


class Hesitant(Busy):
    """Is busy when a command comes for the first time, and loading at the second."""

    def __init__(self, server):
        super().__init__(server, 0)
        self.asked = collections.Counter()

    def __call__(self, words):
        if words[0] == b"HELLO":
            return [b"%0\r\n"]
        name = b" ".join(words[:2] if words[0] == b"REPLICA" else words[:1])
        self.asked[name] += 1
        if self.asked[name] < 3:
            return [b"-BUSY come again\r\n" if self.asked[name] == 1 else b"-LOADING a moment\r\n"]
        return [self.text(self.link.command(*words))]


@pytest.mark.parametrize("words", ["clone", "verify", "pool"])
def test_a_busy_server_is_asked_again(server, folder, words):
    """Imports and loads: test_export.py, test_cli.py."""
    (folder / "ids").write_text("a\nb\n")
    with contextlib.closing(Liar(Hesitant(server))) as to:
        command = {"clone": ("clone", to.address, "--data", folder / "clone", "--test-clock", START, "--min-free", "0"),
                   "verify": ("replica", "--verify", "--from", to.address, "--to", f"127.0.0.1:{server.port}"),
                   "pool": ("pool", "load", "p", folder / "ids", "--to", to.address)}[words]
        done = run(*command, "--timezone", "UTC")
        assert done.stderr.count(b"BUSY come again; trying again") > 0 and b"answers again" in done.stderr, done
        assert all(n > 2 for n in to.lie.asked.values()), to.lie.asked


WORDS = [("user", "u"), ("why", "u", "a"), ("months",), ("clock",), ("ping",), ("backup", "copy")]


def test_a_server_is_asked(server):
    to = "--to", f"127.0.0.1:{server.port}", "--data", server.folder / "nowhere"
    assert b"1 staged" in run("user", "u", *to).stdout
    assert b"a is hidden from u" in run("why", "u", "a", *to).stdout
    assert run("months", *to).stdout == b"no month is stored yet\n"
    assert json.loads(run("clock", "--json", *to).stdout)["wall"] == START
    assert run("ping", *to).stdout == f"127.0.0.1:{server.port} answers\n".encode()
    run("backup", "below-its-root", *to)  # which only the server knows
    assert (server.folder.parent / "below-its-root" / "history.db").exists()
    assert not (server.folder / "nowhere").exists()


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_another_port_says_so(server, words):
    for scheme, protocol in ("http", "HTTP"), ("grpc", "gRPC"):
        port = port_of(server, scheme)
        done = run(*words, "--to", f"127.0.0.1:{port}", check=False)
        assert done.returncode == 1, done
        assert f"this port speaks {protocol}, and you speak RESP: use 127.0.0.1:{server.port}" in done.stderr.decode()
        done = run(*words, "--to", f"{scheme}://127.0.0.1:{port}", check=False)
        assert done.returncode == 1 and b"is a URL: expected the address of RESP" in done.stderr, done


@pytest.mark.parametrize("sent", [b"*1\r\n$4\r\nPING\r\n", b"PING\r\n", b"ping\n", b"INFO server\r\n", b"*2\r\n$7\r\nCOMMA"])
def test_a_client_of_resp(server, sent):
    for scheme, protocol in ("http", "HTTP"), ("grpc", "gRPC"):
        with socket.create_connection(("127.0.0.1", port_of(server, scheme)), timeout=PATIENCE) as s:
            s.sendall(sent)
            answer = b"".join(iter(lambda: s.recv(4096), b""))
        assert answer == (f"-ERR this port speaks {protocol}, and you speak RESP: use 127.0.0.1:{server.port}\r\n"
                          .encode()), answer


def test_an_option_in_another_word():
    def told(*words):
        done = run(*words, check=False)
        assert done.returncode == 2
        return done.stderr.decode()

    assert "unknown option '--ack': did you mean --replica-ack?" in told("serve", "--ack", "replica")
    assert "unknown option '--brokers': did you mean --kafka-brokers?" in told("serve", "--brokers", "b:1")
    assert "did you mean --registry-address or --replica-address" in told("serve", "--address", "b:1")
    assert "unknown option '--retentoin': did you mean --retention?" in told("months", "--retentoin", "1")
    assert "see unseen help months" in told("months", "--wholly-else", "1")
