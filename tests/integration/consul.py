"""A real agent of Consul, with a server in it that holds nothing on disk, on free ports of the loopback."""
import base64
import json
import subprocess
import urllib.error
import urllib.request

from conftest import end_to_end
from standstill import freeze, thaw

PATIENCE = 120


class Consul:
    def __init__(self, program, folder, free_port):
        http, lan, server = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{http}"
        self.log = open(folder / "log", "w")
        # It asks nobody outside whether there is a newer one.
        self.process = subprocess.Popen(
            [*program, "agent", "-dev", "-bind=127.0.0.1", "-client=127.0.0.1", f"-http-port={http}", "-dns-port=-1",
             "-grpc-port=-1", f"-serf-lan-port={lan}", "-serf-wan-port=-1", f"-server-port={server}",
             "-disable-host-node-id", "-hcl=disable_update_check = true"], stdout=self.log, stderr=self.log, cwd=folder)
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

    def stop(self):
        self.thaw()
        self.process.terminate()
        self.process.wait()
        self.log.close()
