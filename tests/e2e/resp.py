"""A RESP client of a hundred lines, for what the well-behaved clients don't let us say."""
import socket


class RespError(Exception):
    """An error reply."""


class Closed(Exception):
    """The server closed the connection."""


class Map(dict):
    """A RESP3 map; a RESP2 one comes as a list."""


def encode(*words):
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, (int, float)):
            word = str(word)
        if isinstance(word, str):
            word = word.encode()
        out.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(out)


class Client:
    """Values come back as bytes, int, list, Map, None; an error reply is raised by command(), returned by read()."""

    def __init__(self, address, protocol=2, timeout=240):
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
        else:
            self.sock = socket.socket(socket.AF_INET)
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        if not isinstance(address, str):
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb", 1 << 16)
        if protocol == 3:
            self.command("HELLO", "3")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def command(self, *words):
        self.send(encode(*words))
        reply = self.read()
        if isinstance(reply, RespError):
            raise reply
        return reply

    def pipeline(self, commands):
        """Sends all, reads all; errors are returned in their places."""
        self.send(b"".join(encode(*words) for words in commands))
        return [self.read() for _ in commands]

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Closed()
        return line[:-2]

    def read(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return RespError(rest.decode("utf-8", "replace"))
        if kind == b":":
            return int(rest)
        if kind == b",":
            return float(rest)
        if kind == b"#":
            return rest == b"t"
        if kind == b"_":
            return None
        if kind in b"$=":
            size = int(rest)
            if size < 0:
                return None
            data = self.file.read(size + 2)
            if len(data) != size + 2:
                raise Closed()
            return data[4 if kind == b"=" else 0:-2]  # a verbatim string begins with "txt:"
        if kind in b"*~>":
            return None if int(rest) < 0 else [self.read() for _ in range(int(rest))]
        if kind == b"%":
            return Map((self.read(), self.read()) for _ in range(int(rest)))
        raise AssertionError(f"no RESP: {line!r}")

    def at_end(self):
        """True when the server closes without another byte."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


def flat(reply):
    """A map in either protocol, with text keys."""
    if isinstance(reply, dict):
        return {k.decode(): v for k, v in reply.items()}
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}
