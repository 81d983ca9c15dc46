"""Connections that have not logged in, or have asked for nothing that needs a login, do what they can to hold memory. Those
who have logged in are answered all the while, on every edge, although no time passes and so none is closed; and once it
does, new ones come in."""
import concurrent.futures
import contextlib
import http.client
import pathlib
import socket
import ssl
import struct
import subprocess
import tempfile

import pytest

from conftest import PATIENCE, Server, free_port
from resp import Client
from unseen_grpc import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, Grpc,
                         call_headers, frame, message)

MIB = 1024 * 1024
MEMORY = 16 * MIB
THEIRS = (MEMORY - 3 * MEMORY // 8) // 8  # what all strangers may hold
SPARE = 3 * MIB // 2  # what the workers have taken in steps and do not use, and what the honest hold
CROWD, MANY = 20, 60  # connections, and those that send little
STREAMS = range(1, 128, 2)
ITEMS = [f"i{n}" for n in range(500)]
NO_WINDOW = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
ALPHA = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WATCH = "/grpc.health.v1.Health/Watch"
SYMBOL = message(b"\x22\x10unseen.v1.Unseen")
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300)


def calls(body=b"", flags=0, **headers):
    """Many on one connection, whose replies are not read."""
    block = call_headers(**headers)
    data = (lambda stream: frame(DATA, flags, stream, body)) if body else lambda stream: b""
    return NO_WINDOW + b"".join(frame(HEADERS, END_HEADERS, i, block) + data(i) for i in STREAMS)


def indexed(n):
    """Headers that the table of a connection keeps."""
    return b"".join(b"\x40\x05x-%03d\x7e" % i + b"v" * 126 for i in range(n))


def array(*args):
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in args)


# edge, and bytes of each of the crowd
ATTACKS = {
    "reflection": ("grpc", calls(SYMBOL * 20, path=REFLECTION)),
    "reflection alpha": ("grpc", calls(SYMBOL * 20, path=ALPHA)),
    "half reflection": ("grpc", calls(SYMBOL[:3] + b"\x3f\x00" + b"x" * 8000, path=REFLECTION)),
    "large reflection": ("grpc", calls(b"\0\0\x7f\xff\xff" + b"x" * 8000, path=REFLECTION)),
    "watch": ("grpc", calls(message(b""), END_STREAM, path=WATCH)),
    "check": ("grpc", calls(message(b""), END_STREAM, path="/grpc.health.v1.Health/Check")),
    "unknown": ("grpc", calls(message(b""), END_STREAM, path="/nothing")),
    "stream": ("grpc", calls(b"\0\0\x7f\xff\xff" + b"x" * 8000, method="PlayedStream")),
    "filter": ("grpc", calls(message(b""), END_STREAM)),
    "begun": ("grpc", calls(path=REFLECTION)),
    "given up": ("grpc", NO_WINDOW + b"".join(
        frame(HEADERS, END_HEADERS, i, call_headers(path=WATCH)) + frame(DATA, END_STREAM, i, message(b"")) +
        frame(RST_STREAM, 0, i, b"\0\0\0\x08") for i in STREAMS)),
    "ping": ("grpc", NO_WINDOW + frame(PING, 0, 0, bytes(8)) * 20000),
    "settings": ("grpc", NO_WINDOW + frame(SETTINGS, 0, 0) * 20000),
    "continuation": ("grpc", NO_WINDOW + frame(HEADERS, 0, 1, call_headers()) +
                     frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 3000) * 50),
    "header table": ("grpc", NO_WINDOW + b"".join(
        frame(HEADERS, END_HEADERS, i, call_headers(path=WATCH) + indexed(60)) for i in STREAMS)),
    "preface": ("grpc", PREFACE),
    "half handshake of gRPC": ("grpcs", HALF_HELLO),
    "half handshake of RESP": ("tls", HALF_HELLO),
    "half handshake of HTTP": ("https", HALF_HELLO),
    "half head": ("http", b"GET / HTTP/1.1\r\nx-much: " + b"x" * 30000),
    "half body": ("http", b"POST /v1/played HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                          b"content-length: 4000000\r\n\r\n" + b'{"items":["' + b"x" * 200000),
    "pages": ("http", b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 400),
    "half auth": ("resp", b"*2\r\n$4\r\nAUTH\r\n$16000\r\n" + b"x" * 15000),
    "large auth": ("resp", b"*2\r\n$4\r\nAUTH\r\n$16000000\r\n" + b"x" * 1500000),
    "hello": ("resp", array(b"HELLO", b"3", b"SETNAME", b"n" * 15000) * 20),
    "refused": ("resp", array(b"UNSEEN", b"u", b"i") * 60000),
}


OPEN = ["reflection", "half reflection", "begun", "half handshake of gRPC", "pages"]  # also where there is no password


class Edges:
    """A server with every edge, plain and over TLS, and a client of each that has logged in, or has asked something."""

    def __init__(self, folder, password):
        self.password = password
        self.ports = {edge: free_port() for edge in ("tls", "http", "https", "grpc", "grpcs")}
        at = {edge: f"127.0.0.1:{port}" for edge, port in self.ports.items()}
        self.server = Server(folder, wait=False, request_memory=str(MEMORY), tls_cert=str(folder / "cert.pem"),
                             tls_key=str(folder / "key.pem"), http=f"{at['http']}, tls://{at['https']}",
                             grpc=f"{at['grpc']}, tls://{at['grpcs']}",
                             **({"requirepass": password} if password else {}))
        self.ports["resp"] = self.server.port
        self.server.options["listen"] = f"127.0.0.1:{self.server.port}, tls://{at['tls']}"
        self.server.start()
        self.crowd = []
        self.client = Client(self.server.address)
        if password:
            self.client.command("AUTH", password)
        self.honest = [self.resp(), self.http(), self.grpc()]
        for ask in self.honest:
            ask()

    def resp(self):
        client = Client(self.server.address)
        if self.password:
            client.command("AUTH", self.password)
        return lambda: client.command("UNSEEN", "u", *ITEMS) == [i.encode() for i in ITEMS]

    def http(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=PATIENCE)
        headers = {"content-type": "application/json"}
        if self.password:
            headers["authorization"] = f"Bearer {self.password}"
        body = '{"user":"u","items":["%s"]}' % '","'.join(ITEMS)

        def ask():
            connection.request("POST", "/v1/unseen", body, headers)
            answer = connection.getresponse()
            return answer.read().count(b"\"i") >= len(ITEMS) and answer.status == 200
        return ask

    def grpc(self):
        calls = Grpc(self.server, address=f"127.0.0.1:{self.ports['grpc']}")
        metadata = [("authorization", f"Bearer {self.password}")] if self.password else None
        return lambda: list(calls.ask("Filter", user="u", items=ITEMS, reply="ITEMS", metadata=metadata).items) == ITEMS

    def attack(self, edge, data):
        for _ in range(CROWD if len(data) > 1000 else MANY):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", self.ports[edge]))
            s.setblocking(False)
            self.crowd.append([s, data])
        for _ in range(8):
            self.push()
            assert [ask() for ask in self.honest] == [True] * 3

    def push(self):
        """What the server and the kernel take by now."""
        for one in self.crowd:
            with contextlib.suppress(OSError):
                one[1] = one[1][one[0].send(one[1]):]

    def leave(self):
        for s, _ in self.crowd:
            s.close()
        self.crowd = []
        while self.memory("used") > SPARE:  # soon, or when others of them make way
            self.client.command("DEBUG", "ADVANCE", 1000)

    def newcomers(self):
        """One more on each edge, plain and over TLS: who came before makes way in time."""
        secure = ssl.create_default_context()
        secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE

        def shake(edge):
            while True:  # where this machine was slow, and the clock has moved on, it was taken for one of the crowd
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[edge]), PATIENCE) as s:
                    return secure.wrap_socket(s).version() == "TLSv1.3"
        with concurrent.futures.ThreadPoolExecutor() as threads:
            come = [threads.submit(lambda make=make: make()()) for make in (self.resp, self.http, self.grpc)]
            come += [threads.submit(shake, edge) for edge in ("tls", "https", "grpcs")]
            while concurrent.futures.wait(come, 0.5).not_done:
                self.push()
                self.client.command("DEBUG", "ADVANCE", 1000)
            assert [one.result() for one in come] == [True] * len(come)

    def memory(self, what):
        lines = self.client.command("INFO", "memory").decode().split("\r\n")
        return int(next(line.split(":")[1] for line in lines if line.startswith(f"request_memory_{what}:")))


@pytest.fixture(scope="module")
def all_edges():
    with tempfile.TemporaryDirectory(prefix="unseen-strangers-") as folder:
        made = {}

        def get(password):
            if password not in made:
                own = pathlib.Path(folder) / (password or "open")
                own.mkdir()
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                                "-days", "30", "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"],
                               cwd=own, check=True, capture_output=True, timeout=PATIENCE)
                made[password] = Edges(own, password)
            return made[password]
        yield get
        for edges in made.values():
            assert edges.server.stop() == 0
            assert "Sanitizer" not in edges.server.log() and "runtime error:" not in edges.server.log()


@pytest.mark.parametrize("name, password", [(name, password) for password in ("secret", "") for name in ATTACKS
                                            if password or name in OPEN])
def test_strangers_take_nothing_from_who_has_logged_in(all_edges, name, password):
    edge, data = ATTACKS[name]
    edges = all_edges(password)
    edges.attack(edge, data)
    assert edges.memory("waiting") == 0
    assert edges.memory("used") <= THEIRS + SPARE
    edges.newcomers()
    edges.leave()
