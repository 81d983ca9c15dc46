"""Asks a server over gRPC: by stubs, whose messages protoc makes when a test first wants them; and by frames of HTTP/2
written by hand, for what no library would send."""
import ctypes
import functools
import importlib
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

import pytest

from conftest import PATIENCE, REPO, until

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
if shutil.which("protoc") is None:
    pytest.skip("protoc is not installed", allow_module_level=True)

SERVICE = "/unseen.v1.Unseen/"
MESSAGES = {"Played": "Record", "PlayedStream": "Record", "Delivered": "Record", "PoolSet": "Pool", "PoolAdd": "Pool",
            "PoolRename": "Pool", "PoolDrop": "Pool"}


@functools.cache
def messages():
    folder = tempfile.mkdtemp(prefix="unseen-proto-")
    try:
        subprocess.run(["protoc", "-I", str(REPO / "proto"), f"--python_out={folder}",
                        str(REPO / "proto/unseen/v1/unseen.proto")], check=True)
        sys.path.insert(0, folder)
        return importlib.import_module("unseen.v1.unseen_pb2")
    finally:
        sys.path.remove(folder)
        shutil.rmtree(folder)


def grpc_address(server):
    """As the log says; of a server that was started again, the last one."""
    def found():
        log = server.log()
        addresses = re.findall(r'listening address="grpc://([^"]*)"', log)
        return addresses[-1] if len(addresses) == log.count(" unseen version=") else None

    return until(found, server.log)


class Grpc:
    def __init__(self, server, address=None, **options):
        """address: where the log does not say it yet."""
        self.channel = grpc.insecure_channel(address or grpc_address(server), options=list(options.items()))
        self.pb = messages()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.channel.close()

    def method(self, name, kind="unary_unary"):
        said = MESSAGES.get(name, name)
        request, reply = getattr(self.pb, said + "Request"), getattr(self.pb, said + "Reply")
        made = getattr(self.channel, kind)(SERVICE + name, request.SerializeToString, reply.FromString)
        return request, made

    def ask(self, name, metadata=None, timeout=PATIENCE, compression=None, **fields):
        """The reply, or grpc.RpcError."""
        request, method = self.method(name)
        return method(request(**fields), timeout=timeout, metadata=metadata, compression=compression)

    def refused(self, name, **fields):
        """The name of the status, and the text."""
        with pytest.raises(grpc.RpcError) as caught:
            self.ask(name, **fields)
        return caught.value.code().name, caught.value.details()

    def raw(self, path, body, kind="unary_unary", **options):
        return getattr(self.channel, kind)(path)(body, timeout=PATIENCE, **options)

    def stream(self, requests, timeout=PATIENCE, **options):
        """Replies to an iterable of RecordRequests."""
        return self.method("PlayedStream", "stream_stream")[1](requests, timeout=timeout, **options)


DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL, REFUSED, CANCEL, CALM = 0, 1, 3, 7, 8, 11


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def header_block(headers):
    """Each as a literal that nobody need remember."""
    out = b""
    for name, value in headers:
        assert len(name) < 127 and len(value) < 127
        out += b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return out


def call_headers(method="Filter", path=None, **more):
    headers = {":method": "POST", ":scheme": "http", ":path": path or SERVICE + method, ":authority": "localhost",
               "content-type": "application/grpc", "te": "trailers"}
    headers.update({k.replace("_", "-") if not k.startswith(":") else k: v for k, v in more.items()})
    return header_block([(k, v) for k, v in headers.items() if v is not None])


def message(body, flag=0):
    return struct.pack(">BI", flag, len(body)) + body


class _Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("value", ctypes.c_void_p), ("name_len", ctypes.c_size_t),
                ("value_len", ctypes.c_size_t), ("flags", ctypes.c_uint8)]


class Inflater:
    """Header blocks of one connection, by the library that the server links as well."""

    def __init__(self):
        self.library = ctypes.CDLL("libnghttp2.so.14")
        self.library.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self.state = ctypes.c_void_p()
        assert self.library.nghttp2_hd_inflate_new(ctypes.byref(self.state)) == 0

    def read(self, block):
        headers, header, flags = {}, _Header(), ctypes.c_int(0)
        while True:
            n = self.library.nghttp2_hd_inflate_hd2(self.state, ctypes.byref(header), ctypes.byref(flags), block,
                                                    ctypes.c_size_t(len(block)), 1)
            assert n >= 0
            block = block[n:]
            if flags.value & 2:  # a header
                name = ctypes.string_at(header.name, header.name_len).decode()
                headers[name] = ctypes.string_at(header.value, header.value_len).decode()
            if flags.value & 1:  # that was the last one
                self.library.nghttp2_hd_inflate_end_headers(self.state)
                return headers


class Frames:
    """A connection, frame by frame."""

    def __init__(self, server, settings=b"", preface=PREFACE):
        host, port = grpc_address(server).rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE)
        self.buffer = b""
        self.inflater = Inflater()
        self.send(preface + (frame(SETTINGS, 0, 0, settings) if preface == PREFACE else b""))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def call(self, stream, body=b"", flags=END_STREAM, **headers):
        end = 0 if body or not flags else END_STREAM
        self.send(frame(HEADERS, END_HEADERS | end, stream, call_headers(**headers)))
        if body:
            self.send(frame(DATA, flags, stream, body))

    def take(self):
        """The next frame: kind, flags, stream, body. None: the connection has ended."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.buffer += more
        size = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        body, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
        return kind, flags, stream, body

    def take_until(self, *kinds):
        """The frames up to the first of these kinds."""
        seen = []
        while True:
            seen.append(self.take())
            assert seen[-1] is not None, f"the connection ended: {seen}"
            if seen[-1][0] in kinds:
                return seen

    def answer(self, stream):
        """To a call: its headers and trailers in one, the bytes of its data, and how the stream ended: the kinds of the
        frames, the last one's being END_STREAM's, and the error of a reset behind it."""
        headers, data, kinds = {}, b"", []
        while True:
            got = self.take()
            assert got is not None, f"the connection ended: {kinds}"
            kind, flags, of, body = got
            if kind == HEADERS:
                told = self.inflater.read(body)  # of all streams, or the table is lost
            if of != stream:
                continue
            kinds.append(kind)
            if kind == HEADERS:
                headers.update(told)
            elif kind == DATA:
                data += body
            elif kind == RST_STREAM:
                return headers, data, kinds, int.from_bytes(body, "big")
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                return headers, data, kinds, None

    def ping(self, word=b"12345678"):
        """What came before the answer to a ping: all that was caused before it."""
        self.send(frame(PING, 0, 0, word))
        seen = []
        while True:
            got = self.take()
            assert got is not None, f"the connection ended: {seen}"
            if got == (PING, ACK, 0, word):
                return seen
            seen.append(got)

    def end(self):
        """The error of its GOAWAY and the text; then the connection has ended."""
        said = None
        while (got := self.take()) is not None:
            if got[0] == GOAWAY:
                said = int.from_bytes(got[3][4:8], "big"), got[3][8:].decode()
        return said
