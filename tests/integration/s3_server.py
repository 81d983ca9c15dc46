"""A real server of S3 on a free port of the loopback: versitygw, over a folder of its own."""
import hashlib
import hmac
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from conftest import end_to_end, free_port, go

KEY, SECRET, REGION = "AKIAINTEGRATION", "a/secret+of/the=tests", "us-east-1"


def hashed(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Versity:
    def __init__(self, folder):
        self.endpoint, self.host = "", f"127.0.0.1:{free_port()}"
        self.endpoint = f"http://{self.host}"
        for name in ("data", "versions", "accounts"):
            (folder / name).mkdir()
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            [*go("versitygw"), "--port", self.host, "--access", KEY, "--secret", SECRET, "--region", REGION, "--iam-dir",
             folder / "accounts", "posix", "--versioning-dir", folder / "versions", folder / "data"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=folder)
        end_to_end.until(self.answers)

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
        self.process.terminate()
        self.process.wait()
        self.log.close()
