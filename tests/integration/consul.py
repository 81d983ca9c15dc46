"""A real agent of Consul on free ports of the loopback, and nodes whose primary holds a lock there."""
import base64
import json
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import end_to_end
from standstill import freeze, thaw

PATIENCE = 120

# One server for itself. It asks nobody outside whether there is a newer one.
LASTING = ("-server", "-bootstrap-expect=1", "-node=one", "-hcl=performance { raft_multiplier = 1 }",
           "-hcl=disable_update_check = true")


class Consul:
    """It holds nothing on disk; with lasting it does, and can be killed and started again."""

    def __init__(self, program, folder, free_port, lasting=False):
        http, lan, server = free_port(), free_port(), free_port()
        self.url, self.folder = f"http://127.0.0.1:{http}", folder
        self.port = http
        self.command = [
            *program, "agent", *([*LASTING, f"-data-dir={folder}/data"] if lasting else ["-dev", LASTING[-1]]),
            "-bind=127.0.0.1", "-client=127.0.0.1", f"-http-port={http}", "-dns-port=-1", "-grpc-port=-1",
            f"-serf-lan-port={lan}", "-serf-wan-port=-1", f"-server-port={server}", "-disable-host-node-id"]
        self.log = open(folder / "log", "w")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, cwd=self.folder)
        self.until(lambda: self.get("/v1/status/leader") not in (None, "") and self.get("/v1/catalog/nodes"))

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, method=method), timeout=5) as r:
                return json.loads(r.read() or b"null")
        except (urllib.error.URLError, OSError):
            return None

    def get(self, path):
        return self.call("GET", path)

    def key(self, path):
        """(the session that has locked it, its content), or None"""
        found = self.get(f"/v1/kv/{path}")
        return found and (found[0].get("Session"), json.loads(base64.b64decode(found[0]["Value"])))

    def until(self, condition, patience=PATIENCE):
        def wanted():
            assert self.process.poll() is None
            return condition()

        return end_to_end.until(wanted, patience=patience)

    def freeze(self):
        freeze(self.process)

    def thaw(self):
        thaw(self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.thaw()
        self.process.terminate()
        self.process.wait()
        self.log.close()


def key_of(name):
    return f"unseen/{name}/primary"


@pytest.fixture
def make_server(tmp_path_factory):
    """On the real clock, as Consul is."""
    made = []

    def make(**options):
        made.append(end_to_end.Server(tmp_path_factory.mktemp("server"), clock=None, **options))
        return made[-1]
    yield make
    for server in made:
        if server.alive():
            assert server.stop() == 0
        assert "Sanitizer" not in server.log(), server.log()[-20000:]


def refusal(server):
    """What a write is refused with; None: it is taken."""
    with server.client() as c:
        try:
            c.command("PLAYED", "u", "i")
        except end_to_end.RespError as error:
            return str(error)
    return None


def start_follower(server, of):
    """Of what make_server(wait=False) has made, a replica."""
    end_to_end.run("clone", of, "--data", server.data)
    return server.start()
