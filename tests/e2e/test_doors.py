"""Who comes in, and who keeps others out: silent connections, guessed passwords, strangers' protocols."""
import grp
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest

from conftest import BUILD, PATIENCE, REPO, pause, run, until
from old_redis import wait
from resp import Client, Closed, RespError, encode
from standstill import freeze, thaw
from test_http import Asker, http_port, raw, read_all

HTTP_CLIENTS = 256
TURN = 10 * 1000  # ms; none waits longer for its turn to log in
FREE = 10  # wrong passwords in a row that cost nothing


def await_log(server, text):
    until(lambda: text in server.log() or not server.alive(), server.log)
    assert text in server.log(), server.log()


def stats(server, name, password=None):
    """A counter of INFO; asked through the Unix socket where there is one."""
    address = server.options.get("unix_socket", server.address)
    with Client(address) as c:
        if password:
            c.command("AUTH", password)
        text = c.command("INFO", "stats").decode()
    return int(re.search(rf"^{name}:(\d+)", text, re.M).group(1))


def ask(s, request):
    """One answer, whole, or what came until the end."""
    s.sendall(request)
    answer = b""
    while True:
        head, behind, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if behind and length and len(body) >= int(length.group(1)):
            return answer
        piece = s.recv(65536)
        if not piece:
            return answer
        answer += piece


def alone(server):
    """A connection, once the one that start() asked with is gone."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            c = Client(server.address)
            until(lambda: b"connected_clients:1\r\n" in c.command("INFO", "clients"))
            return c
        except (RespError, Closed, OSError):
            assert time.monotonic() < deadline


# --- room ---

@pytest.mark.parametrize("said", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"],
                         ids=["silent", "half", "idle"])
def test_health_has_room(make_server, said):
    """However many say nothing: no time passes on the server's clock, and nobody waits."""
    server = make_server(http="127.0.0.1:0")
    crowd = []
    for _ in range(HTTP_CLIENTS + 100):
        crowd.append(raw(server))
        if said:
            crowd[-1].sendall(said)
    for path in ("/healthz", "/readyz"):
        with Asker(server) as a:
            assert a.good("GET", path)
    with socket.create_connection(("127.0.0.1", http_port(server)), PATIENCE) as s:
        assert ask(s, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert stats(server, "shed_connections") >= 100
    assert 1 <= server.log().count("silent connections are closed to make room edge=http") < 10
    first, last = crowd[0], crowd[-1]
    first.settimeout(PATIENCE)
    assert not read_all(first).startswith(b"HTTP/1.1 5")
    if not said:
        assert ask(last, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200"), "the youngest"
    for s in crowd:
        s.close()


def test_a_crowd_at_the_door(make_server):
    """Many come at once, before the server looks: a kernel that drops them lets everybody behind them wait a second."""
    crowd = 2000
    if int(open("/proc/sys/net/core/somaxconn").read()) < crowd:
        pytest.skip("not here: this kernel keeps no such queue")
    server = make_server(http="127.0.0.1:0")
    port = http_port(server)
    freeze(server.process)
    comers = []
    try:
        for i in range(crowd):
            comers.append(socket.socket())
            comers[-1].setblocking(False)
            comers[-1].connect_ex(("127.0.0.1", port))
            comer = select.poll()
            comer.register(comers[-1], select.POLLOUT)
            assert comer.poll(900), f"the kernel had no place for number {i}"  # it asks again after a second
    finally:
        thaw(server.process)
        for s in comers:
            s.close()
    with Asker(server) as a:
        assert a.good("GET", "/healthz")


@pytest.mark.parametrize("password", [None, "geheim"])
def test_silent_clients_give_way(make_server, password):
    """The oldest first; those that asked something stay."""
    options = {"requirepass": password} if password else {}
    server = make_server(max_clients="20", **options)

    def login():
        c = Client(server.address)
        if password:
            c.command("AUTH", password)
        assert c.command("PING") == b"PONG"
        return c

    known = [login() for _ in range(5)]
    crowd = [socket.create_connection(server.address, PATIENCE) for _ in range(60)]
    late = [login() for _ in range(5)]
    for c in known + late:
        assert c.command("PLAYED", "u", "a") == 1
    info = known[0].command("INFO", "stats").decode()
    assert int(re.search(r"^shed_connections:(\d+)", info, re.M).group(1)) >= 40
    assert "connections are closed to make room" in server.log()
    assert b"max number of clients" in read_all(crowd[0])
    crowd[-1].sendall(b"PING\r\n")
    assert crowd[-1].recv(100) == (b"-NOAUTH Authentication required.\r\n" if password else b"+PONG\r\n")
    for s in crowd:
        s.close()
    for c in known + late:
        c.close()


def test_a_guess_is_no_word(make_server):
    """With a password, who never gave it is silent, whatever it said."""
    server = make_server(max_clients="10", requirepass="geheim")
    crowd = [socket.create_connection(server.address, PATIENCE) for _ in range(30)]
    for s in crowd:
        try:
            s.sendall(b"PING\r\n")
        except OSError:
            pass
    with Client(server.address) as c:
        assert c.command("AUTH", "geheim") == b"OK"
        assert c.command("PING") == b"PONG"
    for s in crowd:
        s.close()


def test_room_for_an_administrator(make_server, folder):
    """All of max_clients are there, and busy: the Unix socket still has room."""
    server = make_server(max_clients="5", unix_socket=str(folder / "admin.sock"))
    crowd = [alone(server)] + [Client(server.address) for _ in range(4)]
    for c in crowd:
        assert c.command("PING") == b"PONG"
    with pytest.raises((RespError, Closed, OSError)):
        with Client(server.address) as c:
            c.command("PING")
    for _ in range(3):
        with Client(str(folder / "admin.sock")) as admin:
            assert admin.command("PING") == b"PONG"
            assert b"connected_clients" in admin.command("INFO", "clients")
    assert stats(server, "rejected_connections") >= 1
    assert "connections are turned away address=127.0.0.1 edge=resp max_clients=5" in server.log()
    for c in crowd:
        c.close()


def test_max_clients_per_address(make_server, folder):
    server = make_server(max_clients_per_address="3", unix_socket=str(folder / "admin.sock"), http="127.0.0.1:0")
    crowd = [alone(server)] + [Client(server.address) for _ in range(2)]
    for c in crowd:
        assert c.command("PING") == b"PONG"
    with Client(server.address) as c:
        assert "max_clients_per_address" in str(c.read())
    other = socket.socket()
    other.bind(("127.0.0.2", 0))
    other.connect(server.address)
    other.sendall(b"PING\r\n")
    assert other.recv(100) == b"+PONG\r\n"
    unix = [Client(str(folder / "admin.sock")) for _ in range(6)]
    for c in unix:
        assert c.command("PING") == b"PONG"
    crowd.pop().close()
    deadline = time.monotonic() + PATIENCE
    while True:  # its place is free again, once the server knows
        with Client(server.address) as c:
            try:
                assert c.command("PING") == b"PONG"
                break
            except (RespError, Closed, OSError):
                assert time.monotonic() < deadline
    assert "connections are turned away address=127.0.0.1 edge=resp max_clients_per_address=3" in server.log()
    web = [raw(server) for _ in range(3)]
    for s in web:
        assert ask(s, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
    with raw(server) as s:
        answer = read_all(s)
        assert answer.startswith(b"HTTP/1.1 503") and b"max_clients_per_address" in answer
    for c in crowd + unix + web + [other]:
        c.close()


def test_stalled_bodies_give_way(make_server):
    """Bodies that are half sent don't hold all of the room for bodies for a minute."""
    server = make_server(http="127.0.0.1:0", request_memory="16MiB")
    crowd = [raw(server) for _ in range(12)]
    head = b"POST /v1/played HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4194304\r\n\r\n"
    for s in crowd:
        try:
            s.sendall(head + b"x" * 2000000)
        except OSError:
            pass
    with Asker(server) as a:
        a.ask("POST", "/v1/played", {"user": "u", "items": ["a"]})
    server.advance(5000)
    with Asker(server) as a:
        assert a.good("POST", "/v1/played", {"user": "u", "items": ["x" * 200] * 10000}) == {"recorded": 10000}
    for s in crowd:
        s.close()


def test_small_requests_while_memory_is_short(make_server):
    """They need none of it, in however many pieces they come; and no time passes."""
    server = make_server(http="127.0.0.1:0", request_memory="16MiB")
    head = b"POST /v1/played HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    crowd = [raw(server) for _ in range(12)]
    for s in crowd:
        s.setblocking(False)
        try:
            s.send(head + b"Content-Length: 4194304\r\n\r\n" + b"x" * 2000000)
        except OSError:
            pass
    with server.client() as c:
        until(lambda: b"request_memory_waiting:0\r" not in c.command("INFO", "memory"))
    body = json.dumps({"user": "u", "items": ["a", "b"]}).encode()
    with raw(server) as s:
        s.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(body), 5):
            s.sendall(b"%x\r\n%s\r\n" % (len(body[i:i + 5]), body[i:i + 5]))
        assert b'{"recorded":2}' in ask(s, b"0\r\n\r\n")
        assert ask(s, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
        assert ask(s, b"GET /nosuch HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 404")
        assert ask(s, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
    for s in crowd:
        s.close()


def test_unread_answers_give_way(make_server):
    """They count, so that they can't pile up; and who never reads them does not keep the room for ever."""
    server = make_server(http="127.0.0.1:0", request_memory="16MiB")
    body = json.dumps({"user": "u", "items": [f"{i:050}" for i in range(60000)]}).encode()
    question = (b"POST /v1/unseen HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def send(s):
        try:
            s.sendall(question)
        except OSError:
            pass  # it was given up

    crowd = []
    for _ in range(20):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(PATIENCE)
        s.connect(("127.0.0.1", http_port(server)))
        crowd.append(s)
        threading.Thread(target=send, args=(s,)).start()  # those for whom there is no room yet wait
        if len(crowd) == 1:  # before the others take the room
            assert s.recv(12) == b"HTTP/1.1 200"
    with Asker(server) as a:
        assert a.good("GET", "/healthz")
        with server.client() as c:
            assert int(re.search(r"request_memory_used:(\d+)", c.command("INFO", "memory").decode())[1]) <= 16 << 20
    done = threading.Event()

    def let_time_pass():  # until those who don't read were closed
        deadline = time.monotonic() + PATIENCE
        while not done.wait(0.1) and time.monotonic() < deadline:
            server.advance(1000)

    clock = threading.Thread(target=let_time_pass)
    clock.start()
    try:
        with Asker(server) as a:
            deadline = time.monotonic() + PATIENCE
            while (status := a.ask("POST", "/v1/unseen", body)[0]) != 200:
                # Those who don't read had not gone yet: there was no room for the request, or none for its answer.
                assert status in (408, 503)
                assert time.monotonic() < deadline
    finally:
        done.set()
        clock.join()
    for s in crowd:
        s.close()


# --- names ---

@pytest.mark.parametrize("host, good", [
    ("localhost", True), ("LocalHost:7980", True), ("127.0.0.1", True), ("127.0.0.1:1", True), ("[::1]:7980", True),
    ("10.0.0.7", True), ("metrics.example.org", True), ("Metrics.Example.org:443", True), ("unseen", True),
    ("rebind.example.com", False), ("rebind.example.com:7980", False), ("127.0.0.1.example.com", False),
    ("example.org", False), ("localhost.example.com", False), ("", False), ("1.2.3", False),
])
def test_host(make_server, host, good):
    server = make_server(http="127.0.0.1:0", http_hosts="metrics.example.org, unseen")
    with Asker(server) as a:
        for path in ("/v1/ring", "/metrics", "/"):
            status, _, _ = ask_text(a, path, host)
            assert status == (200 if good else 421), (path, host)
        assert ask_text(a, "/healthz", host)[0] == 200  # tells nothing, and is never hidden
    if not good:
        with Asker(server) as a:
            status, fields, body = ask_text(a, "/v1/ring", host)
            problem = json.loads(body)
            assert problem["type"] == "urn:unseen:problem:wrong-host" and "http_hosts" in problem["detail"]
            assert fields["Content-Type"] == "application/problem+json"


def ask_text(a, path, host):
    a.http.putrequest("GET", path, skip_host=True)
    a.http.putheader("Host", host)
    a.http.endheaders()
    answer = a.http.getresponse()
    return answer.status, answer.headers, answer.read()


def test_two_hosts(make_server):
    server = make_server(http="127.0.0.1:0")
    with Asker(server) as a:
        assert ask_text(a, "/v1/ring", "[rebind]")[0] == 400  # no host at all
    with raw(server) as s:
        two = b"GET /v1/ring HTTP/1.1\r\nHost: localhost\r\nHost: rebind.example.com\r\n\r\n"
        assert ask(s, two).startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 "))
    with raw(server) as s:  # a browser always names one
        assert ask(s, b"GET /v1/ring HTTP/1.0\r\n\r\n")[:13] in (b"HTTP/1.0 200 ", b"HTTP/1.1 200 ")


# --- passwords ---

def test_failed_logins(make_server):
    """Counted and logged with the address; after some in a row, each waits for its turn, on new connections too."""
    server = make_server(requirepass="geheim", http="127.0.0.1:0", workers="1")
    known = Client(server.address)
    assert known.command("AUTH", "geheim") == b"OK"
    for i in range(FREE):
        with Client(server.address) as c:
            with pytest.raises(RespError, match="^WRONGPASS"):
                c.command(*(("AUTH", "x") if i % 2 else ("HELLO", "3", "AUTH", "default", "x")))
    assert re.search(r"warn failed login address=127\.0\.0\.1 edge=resp failed=1\b", server.log())
    assert server.log().count("failed login") == 1
    assert b"failed_logins:%d\r" % FREE in known.command("INFO", "stats")
    # pipelined, and on many connections
    crowd = [Client(server.address) for _ in range(5)]
    for c in crowd:
        c.send(encode("AUTH", "y") * 3)
        c.send(encode("PING"))
    assert known.command("PING") == b"PONG"
    with Client(server.address) as c:
        c.send(encode("PING"))
        assert "NOAUTH" in str(c.read())  # each of the crowd has been read
    before = failed(known)
    assert before == FREE + 1, "the first one had no turn to wait for, all others have"
    for turns in range(1, 4):
        server_advance(known, 1000)
        wait(lambda: failed(known) >= before + turns)  # whose turn it is fails a moment later
        assert failed(known) == before + turns, "one turn a second"
    for c in crowd:
        c.close()
    known.close()


def failed(c):
    return int(re.search(rb"failed_logins:(\d+)", c.command("INFO", "stats")).group(1))


def server_advance(c, ms):
    assert c.command("DEBUG", "ADVANCE", ms) == b"OK"


def test_a_right_password_waits_too_and_ends_it(make_server):
    """Otherwise the time would tell it from a wrong one. Then nobody waits any more."""
    server = make_server(requirepass="geheim", workers="1")
    known = Client(server.address)
    assert known.command("AUTH", "geheim") == b"OK"
    with Client(server.address) as c:
        assert all("WRONGPASS" in str(r) for r in c.pipeline([("AUTH", "x")] * (FREE + 1)))
        c.send(encode("AUTH", "geheim") + encode("PING"))
        known.command("PING")
        c.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            c.sock.recv(1)
        c.sock.settimeout(PATIENCE)
        server_advance(known, TURN)
        assert c.sock.recv(5) == b"+OK\r\n"
        assert c.sock.recv(7) == b"+PONG\r\n"
    for _ in range(3):
        with Client(server.address) as c:
            assert c.command("AUTH", "geheim") == b"OK"
    known.close()


def test_too_many_wait(make_server, folder):
    """Whose turn would be late is refused at once, unlooked at. The Unix socket never waits."""
    path = str(folder / "admin.sock")
    server = make_server(requirepass="geheim", workers="1", unix_socket=path)
    with Client(server.address) as c:
        c.pipeline([("AUTH", "x")] * (FREE + 1))
    crowd = [Client(server.address) for _ in range(30)]
    for c in crowd:
        c.send(encode("AUTH", "geheim"))
    deadline = time.monotonic() + PATIENCE
    refused = []
    while not refused and time.monotonic() < deadline:
        for c in crowd:
            c.sock.settimeout(0.01)
            try:
                refused.append(c.sock.recv(200))
            except TimeoutError:
                pass
    assert refused and all(b"-WRONGPASS too many failed logins" in r for r in refused), refused
    for _ in range(FREE + 5):
        with Client(path) as c:
            with pytest.raises(RespError, match="^WRONGPASS invalid"):
                c.command("AUTH", "x")
    with Client(path) as c:
        assert c.command("AUTH", "geheim") == b"OK"
    for c in crowd:
        c.close()


def test_failed_logins_over_http(make_server):
    server = make_server(requirepass="geheim", http="127.0.0.1:0", workers="1")
    known = Client(server.address)
    assert known.command("AUTH", "geheim") == b"OK"
    wrong = b"GET /v1/ring HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n"
    right = wrong.replace(b"Bearer x", b"Bearer geheim")
    for _ in range(FREE + 1):
        with raw(server) as s:
            assert ask(s, wrong).startswith(b"HTTP/1.1 401")
    with raw(server) as s:
        for _ in range(FREE):  # to say nothing is no guess
            assert ask(s, b"GET /v1/ring HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 401")
    assert re.search(r"warn failed login address=127\.0\.0\.1 edge=http failed=1\b", server.log())
    assert failed(known) == FREE + 1
    with raw(server) as s:
        s.sendall(right)
        with Asker(server) as a:
            assert a.good("GET", "/healthz")  # nobody else waits
        s.settimeout(0.2)
        with pytest.raises(TimeoutError):
            s.recv(1)
        s.settimeout(PATIENCE)
        server_advance(known, TURN)
        assert ask(s, b"").startswith(b"HTTP/1.1 200")
        for _ in range(3):
            assert ask(s, right).startswith(b"HTTP/1.1 200")
    for _ in range(FREE + 1):
        with raw(server) as s:
            assert ask(s, wrong).startswith(b"HTTP/1.1 401")
    with raw(server) as s:
        s.sendall(right + right)
        with raw(server) as other:
            assert ask(other, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
        assert server.stop() == 0  # with one that waits
    known.close()


def test_password_from_a_file(cold, folder):
    secret = folder / "secret"
    secret.write_text("geheim wörd\n")
    secret.chmod(0o600)
    server = cold(requirepass_file=str(secret))
    server.spawn()
    await_log(server, " ready ")
    with Client(server.address) as c:
        with pytest.raises(RespError, match="^NOAUTH"):
            c.command("PING")
        assert c.command("AUTH", "geheim wörd") == b"OK"
        assert c.command("CONFIG", "GET", "requirepass*") == [
            b"requirepass", b"********", b"requirepass_file", str(secret).encode()]
    # the same file for the command line
    assert run("months", "--data", server.data, "--requirepass-file", secret).returncode == 0
    assert run("user", "u", "--data", server.data, "--password-file", secret).returncode == 0
    assert run("user", "u", "--data", server.data, check=False).returncode != 0
    # a new one
    secret.write_text("neu")
    server.process.send_signal(signal.SIGHUP)
    await_log(server, "configuration read again")
    with Client(server.address) as c:
        assert c.command("AUTH", "neu") == b"OK"
    assert "neu" not in server.log() and "geheim" not in server.log()
    server.stop()


@pytest.mark.parametrize("content, text", [
    (None, "No such file"), (b"", "is empty"), (b"a\0b", "control character"), (b"a\nb\n", "one line"),
    (b"x" * 300, "expected at most 255"), (b"********", "hidden"),
])
def test_a_bad_password_file(folder, content, text):
    secret = folder / "secret"
    if content is not None:
        secret.write_bytes(content)
    for args in (("serve", "--port", 0), ("check-config",)):
        result = run(*args, "--http", "none", "--grpc", "none", "--data", folder / "data", "--requirepass-file", secret, check=False)
        said = (result.stdout + result.stderr).decode()
        assert result.returncode != 0 and text in said and "requirepass_file" in said, said
    assert not (folder / "data").exists()


def test_a_password_on_the_command_line_is_not_shown(cold):
    server = cold()
    server.spawn("--requirepass", "geheim-im-ps", "--legacy-password=auch-geheim")
    await_log(server, " ready ")
    shown = open(f"/proc/{server.process.pid}/cmdline", "rb").read()
    assert b"geheim" not in shown and b"--requirepass\0" in shown and b"--data" not in shown, shown
    with Client(server.address) as c:
        assert c.command("AUTH", "geheim-im-ps") == b"OK"
    server.process.send_signal(signal.SIGHUP)  # it is still known
    await_log(server, "configuration read again")
    with Client(server.address) as c:
        assert c.command("AUTH", "geheim-im-ps") == b"OK"
    server.stop()


# --- strangers ---

TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(32)) * 4


@pytest.mark.parametrize("bytes_, cause", [
    (TLS_HELLO, "TLS"), (b"\x16", "TLS"), (b"\x00\x00\x00\x08", "not RESP"), (b"\xff\xfe", "not RESP"),
    (b"\x7fELF", "not RESP"), (b"GET / HTTP/1.1\r\n", "HTTP"), (b"POST /x HTTP/1.1\r\n", "HTTP"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"), (b"OPTIONS * HTTP/1.1\r\n", "HTTP"), (b"SSH-2.0-x\r\n", None),
], ids=range(10))
def test_a_stranger(make_server, bytes_, cause):
    """Closed at once, whatever else it wants to say."""
    server = make_server(requirepass="geheim")
    with socket.create_connection(server.address, PATIENCE) as s:
        s.sendall(bytes_)
        if cause is None:
            assert s.recv(200).startswith(b"-ERR unknown command")
            return
        answer = read_all(s)
        assert answer.startswith(b"-ERR Protocol error: ") and answer.count(b"\r\n") == 1
        assert cause.encode() in answer
    assert re.search(r"warn no RESP client id=\d+ address=\"127\.0\.0\.1:\d+\" cause=\"[^\"]*" + cause, server.log()), server.log()


def test_inline_commands(make_server):
    server = make_server()
    with socket.create_connection(server.address, PATIENCE) as s:
        for text in (b"PING\r\n", b"  ping\r\n", b"\r\n\tPING\n", b"get\r\n", b'"PING"\r\n'):
            s.sendall(text)
            assert s.recv(200).startswith((b"+PONG", b"-ERR unknown command"))


# --- the Unix socket ---

@pytest.mark.parametrize("mode", ["0600", "0660", "0666"])
def test_unix_socket_mode(make_server, folder, mode):
    path = folder / "s.sock"
    make_server(unix_socket=str(path), unix_socket_mode=mode)
    assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(int(mode, 8))


def test_unix_socket_group(make_server, folder):
    groups = os.getgroups() if os.getuid() else [g.gr_gid for g in grp.getgrall() if g.gr_gid not in (0, os.getgid())]
    if not groups:
        pytest.skip("not here: there is no other group")
    group = grp.getgrgid(groups[-1])
    for name in (group.gr_name, str(group.gr_gid)):
        path = folder / f"{name}.sock"
        server = make_server(unix_socket=str(path), unix_socket_mode="0660", unix_socket_group=name)
        assert path.stat().st_gid == group.gr_gid and stat.S_IMODE(path.stat().st_mode) == 0o660
        with Client(str(path)) as c:
            assert c.command("PING") == b"PONG"
        server.stop()
        assert not path.exists()


def test_a_bad_unix_socket_group(folder):
    result = run("serve", "--data", folder / "d", "--http", "none", "--grpc", "none", "--listen", "none", "--unix-socket", folder / "s",
                 "--unix-socket-group", "no-such-group", check=False)
    assert result.returncode != 0 and b'unix_socket_group is "no-such-group"' in result.stderr
    assert not (folder / "s").exists()


def test_the_installed_configuration_has_a_socket(folder):
    """Packages set up the administrator's way in."""
    subprocess.run(["make", "-s", "-C", BUILD, "packaging/unseen.conf"], check=True)
    options = json.loads(run("check-config", BUILD / "packaging" / "unseen.conf", "--json").stdout)["options"]
    changed = {name: option["value"] for name, option in options.items() if option["changed"]}
    assert changed == {"unix_socket": "/run/unseen/unseen.sock", "unix_socket_mode": "0660"}
    unit = (REPO / "packaging" / "systemd" / "unseen.service.in").read_text()
    assert "RuntimeDirectory=unseen\nRuntimeDirectoryMode=0750\n" in unit
    assert "d /run/unseen 0750 unseen unseen\n" in (
        REPO / "packaging" / "systemd" / "tmpfiles.d" / "unseen.conf.in").read_text()


# --- a process that stood still ---

def test_a_stop_is_no_alarm(make_server, monkeypatch):
    """SIGSTOP for longer than the patience of health; it is not the threads that were stuck."""
    monkeypatch.setenv("NOTIFY_SOCKET", "@nobody")
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")  # the least patience: 3 s
    server = make_server(http="127.0.0.1:0")
    monkeypatch.delenv("WATCHDOG_USEC")
    with Asker(server) as a:
        assert a.good("GET", "/healthz") == {"alive": True}
        freeze(server.process)
        a.http.request("GET", "/healthz")  # the first thing that it sees
        pause(5, "longer than a server that stands still may be silent")
        thaw(server.process)
        answer = a.http.getresponse()
        assert answer.status == 200 and json.load(answer) == {"alive": True}
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            assert a.good("GET", "/healthz") == {"alive": True}
        assert "stuck" not in server.log()
        with server.client() as c:  # and one that is stuck is still seen
            c.command("DEBUG", "STALL", "stager", 60000)
        until(lambda: a.ask("GET", "/healthz")[0] != 200)
    server.kill()


# --- patterns ---

def test_hostile_patterns(make_server):
    server = make_server(workers="1")
    with server.client() as c:
        assert c.command("CONFIG", "GET", "MAX_CLIENTS") == [b"max_clients", b"10000"]
        assert c.command("CONFIG", "GET", "max_client?") == [b"max_clients", b"10000"]
        assert c.command("CONFIG", "GET", "m[a-c]x_client[^t]") == [b"max_clients", b"10000"]
        assert c.command("CONFIG", "GET", "max\\_clients") == [b"max_clients", b"10000"]
        assert c.command("CONFIG", "GET", "*_*_*_*_*_*_*_*") == []
        hostile = "*" + "?*" * 3 + "[a-z]*" * 8 + "b"
        assert c.command("CONFIG", "GET", *["*a" * 30 + "*b", hostile] * 16) is not None
        with pytest.raises(RespError, match="patterns"):
            c.command("CONFIG", "GET", *["*e" * 20 + "*Q"] * 1000)
