"""What stands around the server: HAProxy with TLS in front of it, a service definition for Consul."""
import json
import re
import shutil
import subprocess
import time
import urllib.request

import pytest

from conftest import PATIENCE, REPO, free_port, http_url


def test_consul_asks_what_there_is(make_server):
    services = json.loads((REPO / "etc/consul-unseen.json").read_text())["services"]
    server = make_server(http="127.0.0.1:0", grpc="127.0.0.1:0")
    assert {s["name"]: s["port"] for s in services} == {"unseen": 7979, "unseen-http": 7980, "unseen-grpc": 7981,
                                                        "unseen.v1.Unseen": 7981}
    checks = [check for service in services for check in service["checks"]]
    assert len({check["id"] for check in checks}) == len(checks) == 5
    for check in checks:
        if "grpc" in check:  # the whole server's health: no service behind the address
            assert check["grpc"] == "127.0.0.1:7981" and check["grpc_use_tls"] is False
            continue
        assert check["http"].startswith("http://127.0.0.1:7980/")
        with urllib.request.urlopen(check["http"].replace("http://127.0.0.1:7980", http_url(server))) as answer:
            assert answer.status == 200


@pytest.fixture
def front(make_server, folder):
    """(the port for Redis clients, that for HTTP) behind TLS."""
    if shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("haproxy is not installed")
    server = make_server(http="127.0.0.1:0", requirepass="secret")
    pem, key = folder / "unseen.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key,
                    "-out", pem], check=True, capture_output=True)
    certificate = folder / "ca.pem"
    shutil.copy(pem, certificate)
    pem.write_text(pem.read_text() + key.read_text())
    redis, web = free_port(), free_port()
    text = (REPO / "etc/haproxy-unseen.cfg").read_text()
    for old, new in ((":6380 ", f"127.0.0.1:{redis} "), (":6390 ", f"127.0.0.1:{free_port()} "),
                     ("192.0.2.2", "127.0.0.2"),  # where nobody listens
                     ("bind :443 ", f"bind 127.0.0.1:{web} "),
                     ("/etc/haproxy/unseen.pem", str(pem)), ("port 7980", f"port {http_url(server).rpartition(':')[2]}"),
                     ("127.0.0.1:7979", f"127.0.0.1:{server.port}"), ("127.0.0.1:7980", http_url(server)[len("http://"):])):
        assert old in text, old
        text = text.replace(old, new)
    config = folder / "haproxy.cfg"
    config.write_text(text)
    binary = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    checked = subprocess.run([binary, "-c", "-f", config], capture_output=True, text=True)
    assert checked.returncode == 0 and "WARNING" not in checked.stderr, checked.stderr
    process = subprocess.Popen([binary, "-db", "-f", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield redis, web, certificate
    process.terminate()
    process.wait(PATIENCE)


def until(command, wanted):
    """Until it says what is wanted: HAProxy may still be starting."""
    deadline = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(command, capture_output=True, text=True)
        if re.search(wanted, done.stdout) or time.monotonic() > deadline:
            assert re.search(wanted, done.stdout), done
            return
        time.sleep(0.05)


def test_tls_in_front(front):
    redis, web, certificate = front
    cli = ["redis-cli", "--tls", "--cacert", certificate, "-h", "localhost", "--sni", "localhost", "-p", str(redis),
           "-a", "secret", "--no-auth-warning"]
    until([*cli, "PLAYED", "u", "a"], "^1$")
    until([*cli, "UNSEEN", "u", "a", "b"], "^b$")
    curl = ["curl", "-s", "--cacert", certificate, "-H", "Authorization: Bearer secret"]
    base = f"https://localhost:{web}"
    until([*curl, f"{base}/readyz"], '^{"ready":true}$')
    until([*curl, "--json", '{"user": "u", "items": ["a", "b"]}', f"{base}/v1/unseen"], r'^{"items":\["b"\]}$')
    until([*curl, "-o", "/dev/null", "-w", "%{http_code}", f"{base}/metrics"], "^403$")
