"""What keeps the primary's lock: Debian's etcd, and a stub of Kubernetes' API that takes what its documentation has."""
import base64
import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid

from conftest import free_port, until
from standstill import freeze, thaw

ETCD = os.environ.get("UNSEEN_ETCD") or shutil.which("etcd")


def coded(text):
    return base64.b64encode(text.encode()).decode()


class Etcd:
    """One server for itself; tls: (certificate, key) for both sides."""
    options_of = "lock_etcd"
    name = "etcd"

    def __init__(self, folder, tls=None):
        client, peer = (f"{scheme}://127.0.0.1:{free_port()}" for scheme in ("https" if tls else "http", "http"))
        self.url, self.folder, self.token = client, folder, None
        self.context = None
        self.command = [
            ETCD, "--data-dir", str(folder / "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        if tls:
            cert, key = tls
            self.command += ["--cert-file", cert, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", cert]
            self.context = ssl.create_default_context(cafile=cert)
            self.context.load_cert_chain(cert, key)
        self.options = {self.options_of: client}
        self.process = None
        self.start()

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        until(self.answers, lambda: (self.folder / "log").read_text())

    def answers(self):
        """Also that it takes no questions of those without a token."""
        try:
            self.post("kv/range", {"key": coded("x")})
        except urllib.error.HTTPError as error:
            return error.code != 503
        except OSError:
            return False
        return True

    def ask(self, path, body):
        """What it answers; None: nothing, or that it refuses."""
        try:
            return self.post(path, body)
        except OSError:
            return None

    def post(self, path, body):
        assert self.process.poll() is None, (self.folder / "log").read_text()
        request = urllib.request.Request(f"{self.url}/v3/{path}", json.dumps(body).encode())
        if self.token:
            request.add_header("Authorization", self.token)
        with urllib.request.urlopen(request, timeout=5, context=self.context) as reply:
            return json.loads(reply.read())

    def log_in(self, name, password):
        """Its tokens are in memory: once it is started again, they are gone."""
        self.token = None
        self.token = until(lambda: self.ask("auth/authenticate", {"name": name, "password": password}))["token"]

    def read(self, path):
        """The value of that key; "": it is not there."""
        found = self.ask("kv/range", {"key": coded(path)})
        return base64.b64decode(found["kvs"][0]["value"]).decode() if found and found.get("kvs") else ""

    def key(self, name):
        """(who holds the lock, what is said of it)"""
        return self.read(f"unseen/{name}/holder"), json.loads(self.read(f"unseen/{name}/primary") or "{}")

    def leases(self):
        return [lease["ID"] for lease in (self.ask("lease/leases", {}) or {}).get("leases", [])]

    def freeze(self):
        freeze(self.process)

    def thaw(self):
        thaw(self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.thaw()
        self.kill()


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")  # RFC 3339 to the microsecond, or Go does not read it
SPEC = {"holderIdentity": str, "leaseDurationSeconds": int, "acquireTime": str, "renewTime": str, "leaseTransitions": int}
META = {"name": str, "namespace": str, "labels": dict, "annotations": dict, "resourceVersion": str, "uid": str}
QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{,61}[A-Za-z0-9])?)?")
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Refused(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                       "reason": reason, "code": code}


class Kubernetes:
    """Keeps the Leases of one namespace, and what it was asked, in order. `wrong`: what the real one had refused."""
    options_of = "lock_kubernetes"
    name = "Kubernetes"
    NAMESPACE = "films"

    def __init__(self, folder, tls=None):
        self.leases, self.version, self.asked, self.wrong = {}, 100, [], []
        self.lock, self.goes_on = threading.Lock(), threading.Event()
        self.goes_on.set()
        self.token, self.token_file = "first", folder / "token"
        self.loses = set()  # methods that are carried out, and not answered
        self.token_file.write_text(self.token)
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stub.goes_on.wait()
                with stub.lock:
                    try:
                        code, reply = stub.take(self.command, self.path, body, self.headers)
                    except Refused as refused:
                        code, reply = refused.status["code"], refused.status
                    except Exception as error:  # said by the test
                        stub.wrong.append(repr(error))
                        code, reply = 400, {"kind": "Status", "message": repr(error)}
                    stub.asked.append((self.command, self.path, code))
                if self.command in stub.loses:
                    self.close_connection = True
                    return
                data = json.dumps(reply).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *args):
                pass

        class Threads(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args):
                pass

        self.server = Threads(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.options = {self.options_of: self.url, "lock_namespace": self.NAMESPACE, "lock_token_file": self.token_file}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, method, path, body, headers):
        if headers.get("Authorization") != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized", "Unauthorized")
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query))
        all_of = f"/apis/coordination.k8s.io/v1/namespaces/{self.NAMESPACE}/leases"
        assert url.path == all_of or url.path.startswith(all_of + "/"), path
        name = url.path[len(all_of) + 1:]
        if method == "GET" and not name:
            wanted = dict(one.split("=") for one in query.pop("labelSelector").split(","))
            assert not query
            return 200, {"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {},
                         "items": [lease for lease in self.leases.values()
                                   if wanted.items() <= lease["metadata"]["labels"].items()]}
        if method == "POST":
            assert not name and not query and headers["Content-Type"] == "application/json"
            return 201, self.create(json.loads(body))
        if name not in self.leases and method != "PATCH":
            raise Refused(404, "NotFound", f'leases.coordination.k8s.io "{name}" not found')
        if method == "GET":
            assert not query  # no resourceVersion: it is read as it is now, not from a cache
            return 200, self.leases[name]
        if method == "DELETE":
            del self.leases[name]
            return 200, {"kind": "Status", "status": "Success"}
        given = json.loads(body)
        assert given["metadata"]["name"] == name
        if method == "PATCH":
            assert headers["Content-Type"] == "application/apply-patch+yaml"
            assert query == {"fieldManager": "unseen", "force": "true"}
            assert "resourceVersion" not in given["metadata"]
            return (200, self.change(given)) if name in self.leases else (201, self.create(given))
        assert method == "PUT" and not query and headers["Content-Type"] == "application/json"
        now = self.leases[name]["metadata"]
        assert "resourceVersion" in given["metadata"], "an update of a Lease without one is refused"
        if given["metadata"].get("uid", now["uid"]) != now["uid"]:
            raise Refused(409, "Conflict", f"Precondition failed: UID in precondition, UID in object meta: {now['uid']}")
        if given["metadata"]["resourceVersion"] != now["resourceVersion"]:
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on leases.coordination.k8s.io "{name}": the object'
                                           " has been modified; please apply your changes to the latest version and try again")
        return 200, self.change(given)

    def check(self, given):
        assert (given["apiVersion"], given["kind"]) == ("coordination.k8s.io/v1", "Lease")
        assert set(given) == {"apiVersion", "kind", "metadata", "spec"}
        meta, spec = given["metadata"], given["spec"]
        assert all(n in META and type(v) is META[n] for n, v in meta.items()), meta
        assert all(n in SPEC and type(v) is SPEC[n] for n, v in spec.items()), spec
        assert meta["namespace"] == self.NAMESPACE and OBJECT_NAME.fullmatch(meta["name"])
        assert all(QUALIFIED.fullmatch(k) and LABEL.fullmatch(v) for k, v in meta.get("labels", {}).items()), meta
        assert all(QUALIFIED.fullmatch(k) and type(v) is str for k, v in meta.get("annotations", {}).items()), meta
        assert spec.get("holderIdentity") != "" and spec.get("leaseDurationSeconds", 1) > 0
        assert all(TIME.fullmatch(spec[n]) for n in ("acquireTime", "renewTime") if n in spec), spec

    def create(self, given):
        self.check(given)
        name = given["metadata"]["name"]
        assert "resourceVersion" not in given["metadata"], "resourceVersion should not be set on objects to be created"
        if name in self.leases:
            raise Refused(409, "AlreadyExists", f'leases.coordination.k8s.io "{name}" already exists')
        self.version += 1
        given["metadata"].update(uid=str(uuid.uuid4()), resourceVersion=str(self.version))
        self.leases[name] = given
        return given

    def change(self, given):
        """What changes nothing gets no new version."""
        self.check(given)
        name, old = given["metadata"]["name"], self.leases[given["metadata"]["name"]]
        given["metadata"].update(uid=old["metadata"]["uid"], resourceVersion=old["metadata"]["resourceVersion"])
        if given != old:
            self.version += 1
            given["metadata"]["resourceVersion"] = str(self.version)
        self.leases[name] = given
        return given

    def key(self, name):
        with self.lock:
            lease = self.leases.get(f"unseen-{name}")
            return ("", {}) if not lease else (lease["spec"].get("holderIdentity", ""),
                                               json.loads(lease["metadata"]["annotations"]["unseen/value"]))

    def freeze(self):
        self.goes_on.clear()

    def thaw(self):
        self.goes_on.set()

    def close(self):
        self.thaw()
        self.server.shutdown()
        self.server.server_close()
        assert not self.wrong, self.wrong
