"""The Redis that users come from: a real redis-server that is killed, stopped and refuses, and what tests ask of it."""
import shutil
import subprocess

from conftest import until as wait
from resp import Client, Closed, RespError
from standstill import freeze, thaw

REDIS = shutil.which("redis-server")
PATIENT = "1min"  # a legacy_timeout for what it is to answer, however slow the machine


class OldRedis:
    """On a Unix socket; what it has acknowledged survives a kill. options: of its command line, a later one counts."""

    def __init__(self, folder, *options):
        self.folder = folder
        folder.mkdir()
        self.socket = str(folder / "s")
        self.options = options
        self.password = None
        self.process = None
        self.start()

    def start(self, *options, answers=b"PONG"):
        """Waits until PING is answered so, or with an error that begins so."""
        self.process = subprocess.Popen(
            [REDIS, "--port", "0", "--unixsocket", self.socket, "--dir", str(self.folder), "--save", "",
             "--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning", *self.options, *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        wait(lambda: self.says().startswith(answers) or self.process.poll() is not None)
        assert self.process.poll() is None
        return self

    def says(self):
        try:
            with self.client() as c:
                return c.command("PING")
        except RespError as e:
            return str(e).encode()
        except (OSError, Closed):
            return b""

    def client(self):
        c = Client(self.socket)
        if self.password is not None:
            c.command("AUTH", self.password)
        return c

    def ask(self, *words):
        with self.client() as c:
            return c.command(*words)

    def kill(self):
        if self.process.poll() is None:
            self.go_on()
            self.process.kill()
            self.process.wait()

    def pause(self):
        freeze(self.process)

    def go_on(self):
        thaw(self.process)

    def zadd(self, key, pairs):
        """(score, member), some hundred a command."""
        pairs = list(pairs)
        with self.client() as c:
            c.pipeline([("ZADD", key, *[word for pair in pairs[at:at + 500] for word in pair])
                        for at in range(0, len(pairs), 500)])

    def zset(self, key):
        """{member: score}, lowest first."""
        flat = self.ask("ZRANGE", key, "0", "-1", "WITHSCORES")
        return {flat[i]: int(flat[i + 1]) for i in range(0, len(flat), 2)}
