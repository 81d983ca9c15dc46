"""An old Redis that lies: strings and arrays of any size, nesting without end, replies that never end. Whoever reads it
says what came and what was expected, takes no memory for it, and comes back no sooner than its delay allows."""
import itertools
import re
import socket
import threading

import pytest

from old_redis import PATIENT, wait
from test_migrate import migrate, wait_done, wait_status

MIB = 1 << 20
KEPT = 16 * MIB  # of a reply, at most
ON_ITS_WAY = 16 * MIB  # what the sockets between may hold, and more


class Liar(threading.Thread):
    """Lets everybody in. What lie(words) gives, pieces of bytes, is the answer to a command; None: an honest one."""

    def __init__(self, lie):
        super().__init__(daemon=True)
        self.lie = lie
        self.sent = [0]  # bytes of lies, a connection each
        self.commands = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        honest = {b"SELECT": b"+OK\r\n", b"PING": b"+PONG\r\n", b"ZSCAN": b"*2\r\n$1\r\n0\r\n*0\r\n",
                  b"SCAN": b"*2\r\n$1\r\n0\r\n*0\r\n", b"ZADD": b":1\r\n"}
        at = len(self.sent)
        self.sent.append(0)
        try:
            with peer, peer.makefile("rb") as f:
                while head := f.readline():
                    words = [f.read(int(f.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                    self.commands.append(words)
                    for piece in self.lie(words) or [honest.get(words[0], b"*0\r\n")]:
                        peer.sendall(piece)
                        self.sent[at] += len(piece)
        except OSError:
            pass

    def count(self, name):
        return sum(words[0] == name for words in self.commands)

    def close(self):
        self.listener.close()


def endless(head, piece):
    return lambda: itertools.chain([head], itertools.repeat(piece))


LIES = {
    "a long string": (endless(b"$500000000\r\n", b"x" * 65536), "announces a string of 500000000 bytes"),
    "a long string inside": (endless(b"*2\r\n$1\r\n0\r\n*1\r\n$500000000\r\n", b"x" * 65536), "a string of 500000000 bytes"),
    "a large array": (endless(b"*2\r\n$1\r\n0\r\n*300000000\r\n", b"$1\r\nx\r\n" * 9000), "announces 300000000 elements"),
    "strings without end": (endless(b"*2\r\n$1\r\n0\r\n*200000\r\n", b"$8192\r\n%b\r\n" % (b"x" * 8192) * 8),
                            "more than 16777216 bytes"),
    "arrays without end": (endless(b"*2\r\n$1\r\n0\r\n*200000\r\n", b"*100\r\n" + b":1\r\n" * 100), "announces 100 elements"),
    "nesting": (endless(b"", b"*1\r\n" * 4096), "deeper than the 4 levels"),
    "a line without end": (endless(b"+", b"x" * 65536), "a line of more than"),
    "no length": (endless(b"$12ab\r\n", b"x" * 65536), 'begins with "$12ab"'),
    "less than nothing": (endless(b"*-7\r\n", b"x" * 65536), 'begins with "*-7"'),
    "a greeting of TLS": (endless(b"\x16\x03\x01", b"x" * 65536), "begins with byte 0x16"),
}


@pytest.fixture(params=LIES)
def lie(request):
    return LIES[request.param]


@pytest.fixture
def make_liar():
    liars = []

    def make(answers):
        liars.append(Liar(answers))
        return liars[-1]

    yield make
    for liar in liars:
        liar.close()


def need_little_read(liar):
    assert max(liar.sent) < KEPT + ON_ITS_WAY


def test_migration(make_server, make_liar, lie):
    make, what = lie
    liar = make_liar(lambda words: make() if words[0] == b"ZSCAN" else None)
    server = make_server(legacy_redis=liar.address)
    with server.client() as c:
        c.command("LEGACY", "NOTE", "u1", "u2")
        waits = wait_status(server, lambda s: s[b"state"] == b"waiting")
        assert what in waits[b"cause"].decode() and "expected" in waits[b"cause"].decode()
        c.command("PLAYED", "u1", "a")
        assert c.command("UNSEEN", "u1", "a", "b") == [b"b"]
    need_little_read(liar)


def test_no_answer_is_asked_for_in_a_loop(make_server, make_liar):
    """After each of them it waits, longer each time, and one user's too large key holds up nobody for good."""
    large = LIES["a long string"][0]
    liar = make_liar(lambda words: large() if words[:2] == [b"ZSCAN", b"played:large"] else None)
    server = make_server(legacy_redis=liar.address)
    with server.client() as c:
        c.command("LEGACY", "NOTE", "large", *[f"u{i}" for i in range(50)])
    last = wait_done(server)
    assert (last[b"migrated"], last[b"left"]) == (50, 1)
    assert liar.count(b"ZSCAN") < 51 * 5
    problems = migrate(server, "--problems", "--json")
    assert [(p["key"], "500000000 bytes" in p["problem"]) for p in problems] == [("played:large", True)]


def test_a_scan_that_never_ends(make_server, make_liar):
    """A cursor that does not move: the key is named, and nobody waits for it."""
    liar = make_liar(lambda words: [b"*2\r\n$1\r\n7\r\n*0\r\n"] if words[:2] == [b"ZSCAN", b"played:round"] else None)
    server = make_server(legacy_redis=liar.address)
    with server.client() as c:
        c.command("LEGACY", "NOTE", "round", "u1")
    last = wait_done(server)
    assert (last[b"migrated"], last[b"left"]) == (1, 1)
    assert "does not move on" in migrate(server, "--problems", "--json")[0]["problem"]
    assert liar.count(b"ZSCAN") < 10


def test_mirror(make_server, make_liar, lie):
    make, what = lie
    liar = make_liar(lambda words: make() if words[0] == b"ZADD" else None)
    server = make_server(legacy_redis=liar.address, legacy_mirror="yes")

    def state():
        with server.client(3) as c:
            return c.command("LEGACY", "MIRROR")

    with server.client() as c:
        c.command("PLAYED", "u1", "a")
    wait(lambda: state()[b"state"] == b"waiting", lambda: str(state()))
    assert what in state()[b"cause"].decode()
    assert state()[b"waiting"] == 1
    need_little_read(liar)


def test_read_through(make_server, make_liar, lie):
    make, _ = lie
    liar = make_liar(lambda words: make() if words[:2] == [b"ZMSCORE", b"played:u1"] else None)
    server = make_server(legacy_redis=liar.address, legacy_read_through="yes", legacy_timeout=PATIENT)
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        c.command("LEGACY", "NOTE", "u1")
        wait_status(server, lambda s: s[b"read_through"] == b"on")
        assert c.command("UNSEEN", "u1", "a", "b") == [b"a", b"b"]
    wait(lambda: re.search(f'read-through waits.*{liar.address}: a reply .*expected', server.log()), server.log)
    need_little_read(liar)


@pytest.mark.parametrize("option", ["--scan", "--verify"])
def test_command_line(make_server, make_liar, lie, option):
    make, what = lie
    liar = make_liar(lambda words: make() if words[0] == b"SCAN" else None)
    server = make_server(legacy_redis=liar.address)
    result = migrate(server, option, check=False)
    assert result.returncode == 1
    assert what in result.stderr.decode() and liar.address in result.stderr.decode()
    need_little_read(liar)


def test_keys_that_never_end(make_server, make_liar):
    liar = make_liar(lambda words: [b"*2\r\n$1\r\n7\r\n*0\r\n"] if words[0] == b"SCAN" else None)
    server = make_server(legacy_redis=liar.address)
    result = migrate(server, "--scan", check=False)
    assert result.returncode == 1 and b"does not move on" in result.stderr
    assert liar.count(b"SCAN") == 2


def test_a_greeting_that_lies(make_server, make_liar, lie):
    make, what = lie
    liar = make_liar(lambda words: make() if words[0] == b"SELECT" else None)
    server = make_server(legacy_redis=liar.address)
    with server.client() as c:
        c.command("LEGACY", "NOTE", "u1")
    wait_status(server, lambda s: what in s[b"cause"].decode())
    need_little_read(liar)
