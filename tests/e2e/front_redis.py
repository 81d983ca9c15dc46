"""The Redis in front: a real redis-server on a port of its own, what tests ask of it, and of the server behind it."""
import contextlib
import shutil

from conftest import free_port, in_time, pause
from old_redis import OldRedis, wait
from partition import Wire
from resp import RespError, flat

COMPARED = "the front was compared with the folder"


class FrontRedis(OldRedis):
    """It keeps nothing by itself: what it has after a restart is what a test has saved. "--appendonly", "yes": all."""

    def __init__(self, folder, *options):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        super().__init__(folder, "--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "no", *options)

    def kill(self):
        super().kill()
        if "yes" not in self.options:
            (self.folder / "dump.rdb").unlink(missing_ok=True)

    def save(self):
        self.ask("SAVE")
        shutil.copy(self.folder / "dump.rdb", self.folder / "older.rdb")

    def go_back(self):
        """To what was saved."""
        self.kill()
        shutil.copy(self.folder / "older.rdb", self.folder / "dump.rdb")
        self.start()

    def hash(self, key):
        words = self.ask("HGETALL", key)
        return dict(zip(words[::2], words[1::2]))

    def meta(self):
        return {name.decode(): value.decode() for name, value in self.hash("unseen:meta").items()}


class SlowWire(Wire):
    """One on which each piece takes `delay` seconds."""
    delay = 0

    def carry(self, sock, to, pair):
        pause(self.delay, "a slow network")
        super().carry(sock, to, pair)


class TrickleWire(Wire):
    """One on which, while it is slow, answers take `pause` seconds for each byte."""
    slow, pause = False, 0.02

    def carry(self, sock, to, pair):
        if not self.slow or sock is pair[0]:
            super().carry(sock, to, pair)
            return
        try:
            to.sendall(sock.recv(1) or self.closed())
            pause(self.pause / len(self.pairs), "a slow network")
        except OSError:
            self.end(pair)
            self.pairs.remove(pair)

    @staticmethod
    def closed():
        raise OSError


class MeasuringWire(Wire):
    """How many bytes are asked for at once, at most: what one command has."""

    def __init__(self, target):
        self.asked, self.largest = {}, 0
        super().__init__(target)

    def carry(self, sock, to, pair):
        if sock is pair[1]:
            self.asked[pair] = 0
            super().carry(sock, to, pair)
            return
        data = sock.recv(1 << 16)
        self.asked[pair] = self.asked.get(pair, 0) + len(data)
        self.largest = max(self.largest, self.asked[pair])
        if data:
            to.sendall(data)
        else:
            self.end(pair)
            self.pairs.remove(pair)


class LosingWire(Wire):
    """Once `passed` is a number, so many answers to scripts that name states arrive; the next one is lost, with its
    connection, and what it answers has been done."""
    passed, pair, lost = None, None, False

    def carry(self, sock, to, pair):
        if self.passed is None:
            super().carry(sock, to, pair)
        elif sock is pair[0]:
            words = sock.recv(1 << 16)
            self.pair = pair if b"unseen:w:u" in words else self.pair
            to.sendall(words)
        elif pair is not self.pair or self.passed > 0:
            self.passed -= pair is self.pair
            super().carry(sock, to, pair)
        else:
            sock.recv(1 << 16)
            self.end(pair)
            self.pairs.remove(pair)
            self.passed, self.lost = None, True


def front(server):
    try:
        with server.client() as c:
            status = flat(c.command("FRONT", "STATUS"))
    except RespError as e:
        assert "no front" in str(e)
        return {"state": "off"}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in status.items()}


def said(server):
    return lambda: f"{front(server)}\n{server.log()[-5000:]}"


def wait_state(server, state, cause=""):
    """Returns what it says then."""
    wait(lambda: (s := front(server))["state"] == state and cause in s["cause"], said(server))
    return front(server)


def last_seq(server):
    with server.client() as c:
        return flat(c.command("REPLICA", "STATUS"))["last"]


def wait_in_step(server):
    """All that was recorded by now is in Redis, so are the states that were to be sent, and it may be asked."""
    last = last_seq(server)
    wait(lambda: (s := front(server))["state"] == "in step" and s["full"] and s["to"] >= last and s["dirty"] == 0
         and figures(server)["second_tier_up"] == "1", said(server))
    return front(server)


def reconcile(server, least=0):
    """Compares all users, so many at least. Returns how many differed."""
    wait_in_step(server)
    before, ended = front(server), server.log().count(COMPARED)
    with server.client() as c:
        c.command("FRONT", "RECONCILE")
    wait(lambda: server.log().count(COMPARED) > ended, said(server))
    after = wait_in_step(server)
    assert after["compared"] - before["compared"] >= least, after
    return after["differences"] - before["differences"]


def figures(server):
    with server.client() as c:
        lines = c.command("INFO").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def won(server):
    return int(figures(server)["hedge_won"])


@contextlib.contextmanager
def frozen(server, disk, restart=True):
    """Nothing of history.db can be read meanwhile; after a restart nothing of it is in memory either."""
    with server.client() as c:
        c.command("RING", "FLUSH")
    wait_in_step(server)
    if restart:
        server.restart()
        wait_in_step(server)
    disk.freeze("history.db")
    try:
        yield
    finally:
        disk.thaw()


def unseen(server, user, *items):
    with server.client() as c:
        return [item.decode() for item in c.command("UNSEEN", user, *items)]


def unseen_in_time(server, user, *items):
    return in_time(lambda: unseen(server, user, *items))


def by_front(server, disk, expected):
    """{user: (items, those of them that are unseen)}: told by Redis alone."""
    with frozen(server, disk):
        before = won(server)
        for user, (items, left) in expected.items():
            assert unseen_in_time(server, user, *items) == list(left), (user, said(server)())
        assert won(server) == before + len(expected), said(server)()
