"""TLS with the clients that people have: openssl, redis-cli, redis-py, curl, Python, and unseen itself."""
import json
import re
import shutil
import socket
import struct
import ssl
import subprocess
import time
import urllib.request

import pytest

from conftest import PATIENCE, Server, free_port, run, until
from resp import Client
from test_reload import reload

pytestmark = pytest.mark.skipif(json.loads(run("version", "--json").stdout)["openssl"] == "none",
                                reason="configured without OpenSSL")
HERE = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Certificates:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.ca("ca")
        self.ca("other")
        self.sign("server", "ca", HERE)
        self.sign("client", "ca", HERE)
        self.sign("stranger", "other", HERE)
        self.sign("elsewhere", "ca", "subjectAltName=DNS:elsewhere.example")
        self.sign("expired", "ca", HERE, days=-1)

    def openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True, timeout=PATIENCE)

    def ca(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                     "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def sign(self, name, ca, names, days=30):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-addext", names, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                     "-CAcreateserial", "-copy_extensions", "copy", "-days", str(days), "-out", f"{name}.pem")

    def __getitem__(self, name):
        return str(self.folder / name)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("tls") / "certs")


@pytest.fixture
def tls(folder, certs):
    """A server with a plain and a TLS address each; server.tls and server.https are the ports."""
    servers = []

    def make(wait=True, **options):
        own = folder / f"tls{len(servers)}"
        own.mkdir()
        secure, https = free_port(), free_port()
        server = Server(own, clock=None, wait=False, tcp=False, **{
            "tls_cert": certs["server.pem"], "tls_key": certs["server.key"], "http": f"tls://127.0.0.1:{https}",
            **options})
        server.options["listen"] = f"127.0.0.1:{server.port}, tls://127.0.0.1:{secure}"
        server.tls, server.https = secure, https
        servers.append(server)
        return server.start() if wait else server

    yield make
    for server in servers:
        assert server.stop() in (0, 1, 78)
        assert "Sanitizer" not in server.log() and "runtime error:" not in server.log()


def context(certs, ca="ca", cert=None):
    c = ssl.create_default_context(cafile=certs[f"{ca}.pem"])
    if cert is not None:
        c.load_cert_chain(certs[f"{cert}.pem"], certs[f"{cert}.key"])
    return c


def connect(port, c, name="localhost"):
    return c.wrap_socket(socket.create_connection(("127.0.0.1", port), PATIENCE), server_hostname=name)


def wait_for(server, pattern):
    until(lambda: re.search(pattern, server.log()), lambda: f"no {pattern} in the log\n{server.log()}")


def test_clients(tls, certs):
    server = tls()
    address = f"tls://localhost:{server.tls}"
    assert f'listening address="tls://127.0.0.1:{server.tls}"' in server.log()
    assert f'listening address="https://127.0.0.1:{server.https}"' in server.log()
    with connect(server.tls, context(certs)) as s:
        s.sendall(b"PING\r\n")
        assert s.recv(100) == b"+PONG\r\n"
        assert s.version() == "TLSv1.3"
        s.sendall(b"CLIENT LIST\r\n")
        assert b" tls=TLSv1.3" in s.recv(10000)
    if shutil.which("redis-cli"):
        done = subprocess.run(["redis-cli", "--tls", "--cacert", certs["ca.pem"], "-h", "localhost", "-p",
                               str(server.tls), "PLAYED", "u", "a"], capture_output=True, timeout=PATIENCE)
        assert done.stdout == b"1\n"
    for version in ("-tls1_2", "-tls1_3"):
        done = subprocess.run(["openssl", "s_client", "-connect", f"localhost:{server.tls}", version, "-CAfile",
                               certs["ca.pem"], "-verify_return_error", "-quiet", "-ign_eof"],
                              input=b"PING\r\nQUIT\r\n", capture_output=True, timeout=PATIENCE)
        assert done.stdout == b"+PONG\r\n+OK\r\n", done.stderr
    done = subprocess.run(["openssl", "s_client", "-connect", f"localhost:{server.tls}", "-tls1_1", "-cipher",
                           "ALL@SECLEVEL=0"], input=b"", capture_output=True, timeout=PATIENCE)
    assert done.returncode != 0
    status = urllib.request.urlopen(f"https://localhost:{server.https}/v1/status", context=context(certs))
    assert abs(json.load(status)["tls_certificate_expires"] / 1000 - time.time() - 30 * 86400) < 86400
    done = subprocess.run(["curl", "-sv", "--cacert", certs["ca.pem"], f"https://localhost:{server.https}/metrics"],
                          capture_output=True, timeout=PATIENCE)
    assert b"unseen_tls_certificate_expires_timestamp_seconds 1" in done.stdout
    assert b"server accepted http/1.1" in done.stderr or b"server accepted to use http/1.1" in done.stderr
    done = run("import", "-", "--to", address, "--tls-ca", certs["ca.pem"],
               input=f"{int(time.time() * 1000)}\tu\tb\n".encode())
    assert b"events                    1" in done.stdout
    done = run("bench", "--to", address, "--tls-ca", certs["ca.pem"], "--workload", "ping", "--seconds", "0.2",
               "--connections", "4", "--pipeline", "10", "--json")
    assert json.loads(done.stdout)["loads"][0]["errors"] == 0
    with Client(server.address) as c:
        assert c.command("SEEN", "u", "a", "b", "c") == [1, 1, 0]


def test_redis_py(tls, certs):
    redis = pytest.importorskip("redis")
    server = tls()
    r = redis.Redis("localhost", server.tls, ssl=True, ssl_ca_certs=certs["ca.pem"])
    assert r.ping()
    pipe = r.pipeline(transaction=False)
    for i in range(10000):
        pipe.echo(f"{i:05d}")
    assert pipe.execute() == [b"%05d" % i for i in range(10000)]
    items = [f"video:{i:014d}" for i in range(10000)]
    assert len(r.execute_command("UNSEEN", "u", *items)) == 10000
    wrong = redis.Redis("localhost", server.tls, ssl=True, ssl_ca_certs=certs["other.pem"])
    with pytest.raises(redis.ConnectionError, match="unable to get local issuer certificate"):
        wrong.ping()


@pytest.mark.parametrize("server_cert, options, client_says, server_says", [
    ("server", ["--tls-ca", "other.pem"], "unable to get local issuer certificate", "does not know the CA"),
    ("expired", ["--tls-ca", "ca.pem"], "certificate has expired", "our certificate has expired"),
    ("elsewhere", ["--tls-ca", "ca.pem"], "hostname mismatch", "refuses our certificate"),
])
def test_a_server_is_refused_by_name(tls, certs, server_cert, options, client_says, server_says):
    server = tls(tls_cert=certs[f"{server_cert}.pem"], tls_key=certs[f"{server_cert}.key"])
    done = run("bench", "--to", f"tls://localhost:{server.tls}", *options, check=False, cwd=certs.folder)
    assert done.returncode == 1 and f"tls://localhost:{server.tls}: TLS: " in done.stderr.decode()
    assert client_says in done.stderr.decode()
    wait_for(server, f'TLS handshake failed id=\\d+ address="127.0.0.1:\\d+" cause=".*{server_says}')
    assert ("the TLS certificate has expired" in server.log()) == (server_cert == "expired")


@pytest.mark.parametrize("cert, client_says, server_says", [
    (None, "a client certificate is asked for, and none was given", "no client certificate"),
    ("stranger", "does not know the CA of our certificate", "unable to get local issuer certificate"),
    ("expired", "our certificate has expired", "certificate has expired"),
    ("client", None, None),
])
def test_a_client_is_refused_by_name(tls, certs, cert, client_says, server_says):
    server = tls(client_ca=certs["ca.pem"])
    own = ["--tls-cert", certs[f"{cert}.pem"], "--tls-key", certs[f"{cert}.key"]] if cert else []
    done = run("bench", "--to", f"tls://localhost:{server.tls}", "--tls-ca", certs["ca.pem"], *own, "--workload",
               "ping", "--seconds", "0.1", check=False)
    assert done.returncode == (0 if client_says is None else 1), done.stderr
    if client_says is not None:
        assert client_says in done.stderr.decode()
        wait_for(server, f'TLS handshake failed id=\\d+ address="127.0.0.1:\\d+" cause=".*{server_says}')


def test_the_log_names_the_port_of_who_is_gone(tls, certs):
    server = tls(log_level="debug")
    ports = set()
    for _ in range(50):
        s = socket.create_connection(("127.0.0.1", server.tls))
        ports.add(s.getsockname()[1])
        s.sendall(b"PING\r\n")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    for port in ports:
        wait_for(server, f'client disconnected id=\\d+ address="127.0.0.1:{port}"')
    assert 'address="127.0.0.1"' not in server.log()


def test_the_wrong_port(tls, certs):
    server = tls()
    with socket.create_connection(("127.0.0.1", server.tls)) as s:
        s.sendall(b"PING\r\n")
        assert s.recv(100) == b""
    wait_for(server, 'TLS handshake failed .* cause="what came is not TLS"')
    done = run("ping", "--to", f"127.0.0.1:{server.tls}", check=False)
    assert f"the address is tls://127.0.0.1:{server.tls}" in done.stderr.decode()
    done = run("bench", "--to", f"tls://127.0.0.1:{server.port}", "--tls-ca", certs["ca.pem"], check=False)
    assert "TLS: what came is not TLS" in done.stderr.decode()
    wait_for(server, "no RESP client .*not TLS")


def test_renewed_without_dropping_anybody(tls, certs, folder):
    for name in ("server", "elsewhere"):
        shutil.copy(certs[f"{name}.pem"], folder / f"{name}.pem")
    cert, key = folder / "cert.pem", folder / "key.pem"
    shutil.copy(certs["server.pem"], cert)
    shutil.copy(certs["server.key"], key)
    server = tls(tls_cert=str(cert), tls_key=str(key))

    def serial():
        with connect(server.tls, context(certs)) as s:
            return s.getpeercert()["serialNumber"]

    first = serial()
    with connect(server.tls, context(certs)) as old:
        shutil.copy(certs["client.pem"], cert)  # for localhost too, and its key is not there yet
        said = reload(server)
        wait_for(server, f'TLS certificate not read again, the one before stays error="private key {key}: '
                         'it does not belong to the certificate"')
        assert serial() == first
        shutil.copy(certs["client.key"], key)
        reload(server)
        wait_for(server, "(?s)TLS certificate not read again.*configuration read again")
        until(lambda: serial() != first, lambda: said)
        old.sendall(b"PING\r\n")
        assert old.recv(100) == b"+PONG\r\n"


@pytest.mark.parametrize("options, problem", [
    ({"tls_cert": ""}, "TLS needs a certificate: set tls_cert and tls_key"),
    ({"tls_cert": "/nowhere.pem"}, "certificate /nowhere.pem: No such file or directory"),
    ({"client_ca": "/nowhere.pem"}, "CA /nowhere.pem: No such file or directory"),
])
def test_it_does_not_start(tls, options, problem):
    server = tls(wait=False, **options)
    server.spawn()
    assert server.process.wait(PATIENCE) in (1, 78)  # 78: whatever the files are
    assert problem in server.log()


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_old_redis(make_server, certs, folder, mirrored):
    """A real Redis that speaks TLS: users come from it, and what is played goes back to it."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server")
    port = free_port()
    redis = subprocess.Popen(["redis-server", "--port", "0", "--tls-port", str(port), "--tls-cert-file",
                              certs["server.pem"], "--tls-key-file", certs["server.key"], "--tls-ca-cert-file",
                              certs["ca.pem"], "--save", "", "--dir", str(folder)], stdout=subprocess.DEVNULL)

    def cli(*words):
        return subprocess.run(["redis-cli", "--tls", "--cacert", certs["ca.pem"], "--cert", certs["client.pem"],
                               "--key", certs["client.key"], "-h", "localhost", "-p", str(port), *words],
                              capture_output=True, timeout=PATIENCE).stdout
    try:
        until(lambda: cli("PING") == b"PONG\n")
        cli("ZADD", "played:u", str(int(time.time() * 1000) - 1000), "old")
        options = {"legacy_mirror": "yes"} if mirrored else {"legacy_read_through": "yes"}
        server = make_server(clock=None, tls_ca=certs["ca.pem"], tls_cert=certs["client.pem"],
                             tls_key=certs["client.key"], legacy_redis=f"tls://localhost:{port}",
                             legacy_played_key="played:{user}", **options)
        with server.client() as c:
            if mirrored:
                c.command("PLAYED", "u", "new")
                until(lambda: b"new" in cli("ZRANGE", "played:u", "0", "-1"))
                assert cli("ZRANGE", "played:u", "0", "-1") == b"old\nnew\n"
            else:
                run("migrate", "--scan", "-c", server.config)
                until(lambda: c.command("SEEN", "u", "old", "x") == [1, 0], server.log)
    finally:
        redis.terminate()
        redis.wait()


def test_version_names_it():
    assert re.search(r"OpenSSL 3\.", run("version").stdout.decode())
