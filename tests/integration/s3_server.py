"""Real servers of S3, each on a free port of the loopback: versitygw, over a folder of its own, and Ceph's radosgw, over a
cluster of its own."""
import hashlib
import hmac
import os
import pathlib
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from ceph_cluster import CEPH, Cluster
from conftest import end_to_end, free_port, go

KEY, SECRET, REGION = "AKIAINTEGRATION", "a/secret+of/the=tests", "us-east-1"


def hashed(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Server:
    """One that answers."""

    def __init__(self, folder):
        self.folder, self.host = folder, f"127.0.0.1:{free_port()}"
        self.endpoint = f"http://{self.host}"
        self.log = open(folder / "log", "w")
        self.process = None

    def start(self, command, **environment):
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=self.folder,
            env={**os.environ, **environment})
        end_to_end.until(self.answers, lambda: (self.folder / "log").read_text()[-4000:])

    def answers(self):
        assert self.process.poll() is None
        try:
            return self.call("GET", "/")
        except (urllib.error.URLError, OSError):
            return None

    def call(self, method, path, query="", body=b""):
        """As AWS's documents have it."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        payload = hashlib.sha256(body).hexdigest()
        names = "host;x-amz-content-sha256;x-amz-date"
        request = "\n".join([method, urllib.parse.quote(path), query, f"host:{self.host}",
                             f"x-amz-content-sha256:{payload}", f"x-amz-date:{now}", "", names, payload])
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{SECRET}".encode()
        for word in scope.split("/"):
            key = hashed(key, word)
        url = self.endpoint + urllib.parse.quote(path) + (f"?{query}" if query else "")
        asked = urllib.request.Request(url, body or None, method=method, headers={
            "x-amz-date": now, "x-amz-content-sha256": payload,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/{scope},SignedHeaders={names},"
                             f"Signature={hashed(key, text).hex()}"})
        with urllib.request.urlopen(asked, timeout=30) as reply:
            return reply.read() or b"good"

    def make_bucket(self, name):
        self.call("PUT", f"/{name}")

    def keep_versions(self, name, status):
        self.call("PUT", f"/{name}", "versioning=",
                  f'<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>{status}</Status>'
                  "</VersioningConfiguration>".encode())

    def names(self, bucket):
        """The first thousand."""
        found = self.call("GET", f"/{bucket}", "list-type=2").decode()
        return [part.split("</Key>")[0] for part in found.split("<Key>")[1:]]

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        self.log.close()


class Versity(Server):
    def __init__(self, folder):
        super().__init__(folder)
        for name in ("data", "versions", "accounts"):
            (folder / name).mkdir()
        self.start([*go("versitygw"), "--port", self.host, "--access", KEY, "--secret", SECRET, "--region", REGION,
                    "--iam-dir", folder / "accounts", "posix", "--versioning-dir", folder / "versions", folder / "data"])


# Of a cluster of one OSD, for the gateway, which makes its pools itself. Left to itself it asks for a login, which the
# cluster has none of.
GATEWAY = """\
[global]
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
[client.gateway]
rgw frontends = beast endpoint={host}
rgw data = {folder}
keyring = /dev/null
auth client required = none
ms mon client mode = crc
"""


class RadosGateway(Server):
    def __init__(self, folder):
        super().__init__(folder)
        self.cluster = Cluster(folder, osds=1, store="memstore", more=GATEWAY.format(host=self.host, folder=folder))
        try:
            self.run("radosgw-admin", "user", "create", "--uid=test", "--display-name=test", f"--access-key={KEY}",
                     f"--secret-key={SECRET}")
            self.start(self.command("radosgw", "-f"), **self.libraries())
        except BaseException:
            self.stop()
            raise

    def command(self, program, *words):
        return [f"{CEPH}/usr/bin/{program}" if CEPH else program, "-c", self.cluster.conf, "-n", "client.gateway", *words]

    @staticmethod
    def libraries():
        """Its own, of the same package, where that was unpacked to."""
        found = [str(path.parent) for path in pathlib.Path(f"{CEPH}/usr/lib").glob("*/libradosgw.so.2")] if CEPH else []
        return {"LD_LIBRARY_PATH": ":".join(found)}

    def run(self, program, *words):
        done = subprocess.run(self.command(program, *words), env={**os.environ, **self.libraries()}, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self):
        super().stop()
        self.cluster.stop()
