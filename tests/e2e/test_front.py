"""What stands around the server: HAProxy with TLS in front of it, a service definition for Consul."""
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request

import pytest

from conftest import PATIENCE, REPO, UNSEEN, free_port, http_url, until


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
def haproxy(folder):
    """Starts it with etc/haproxy-unseen.cfg: (the port for Redis clients, that for questions, that for HTTP, the
    certificate). other: the second node, or nobody."""
    if shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("haproxy is not installed")
    started = []

    def start(server, other=None):
        *ports, process = start_haproxy(folder, server, other)
        started.append(process)
        return ports

    yield start
    for process in started:
        process.terminate()
        process.wait(PATIENCE)


def start_haproxy(folder, server, other):
    pem, key = folder / "unseen.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key,
                    "-out", pem], check=True, capture_output=True)
    certificate = folder / "ca.pem"
    shutil.copy(pem, certificate)
    pem.write_text(pem.read_text() + key.read_text())
    redis, questions, web = free_port(), free_port(), free_port()
    text = (REPO / "etc/haproxy-unseen.cfg").read_text()
    there = [f"127.0.0.2:{port}" for port in (7979, 7980)]  # where nobody listens
    if other is not None:
        there = [f"127.0.0.1:{other.port}", http_url(other)[len("http://"):]]
    for old, new in ((":6380 ", f"127.0.0.1:{redis} "), (":6390 ", f"127.0.0.1:{questions} "),
                     ("192.0.2.2:7979 check port 7980", f"{there[0]} check port {there[1].rpartition(':')[2]}"),
                     ("192.0.2.2:7980", there[1]),
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
    return redis, questions, web, certificate, process


def says(command, wanted):
    """Until it says what is wanted: HAProxy may still be starting."""
    said = []
    until(lambda: said.append(subprocess.run(command, capture_output=True, text=True)) or
          re.search(wanted, said[-1].stdout), lambda: said[-1])


def redis_cli(port, certificate):
    return ["redis-cli", "--tls", "--cacert", certificate, "-h", "localhost", "--sni", "localhost", "-p", str(port),
            "-a", "secret", "--no-auth-warning"]


def test_tls_in_front(make_server, haproxy):
    redis, _, web, certificate = haproxy(make_server(http="127.0.0.1:0", requirepass="secret"))
    cli = redis_cli(redis, certificate)
    says([*cli, "PLAYED", "u", "a"], "^1$")
    says([*cli, "UNSEEN", "u", "a", "b"], "^b$")
    curl = ["curl", "-s", "--cacert", certificate, "-H", "Authorization: Bearer secret"]
    base = f"https://localhost:{web}"
    says([*curl, f"{base}/readyz"], '^{"ready":true}$')
    says([*curl, "--json", '{"user": "u", "items": ["a", "b"]}', f"{base}/v1/unseen"], r'^{"items":\["b"\]}$')
    says([*curl, "-o", "/dev/null", "-w", "%{http_code}", f"{base}/metrics"], "^403$")


def test_writes_go_to_the_primary(make_server, haproxy, folder):
    """And to the other one, once that is promoted; questions to whoever is there."""
    options = {"clock": None, "http": "127.0.0.1:0", "requirepass": "secret", "replica_password": "secret"}
    primary, replica = make_server(**options), make_server(**options)
    assert replica.stop() == 0
    shutil.rmtree(replica.data)
    env = {**os.environ, "UNSEEN_PASSWORD": "secret"}
    subprocess.run([UNSEEN, "clone", f"127.0.0.1:{primary.port}", "--data", replica.data, "--min-free", "0"], env=env,
                   check=True, capture_output=True)
    replica.options["replica_of"] = f"127.0.0.1:{primary.port}"
    replica.start()
    redis, questions, web, certificate = haproxy(primary, replica)
    write, ask = redis_cli(redis, certificate), redis_cli(questions, certificate)
    says([*write, "PLAYED", "u", "a"], "^1$")
    says([*ask, "SEEN", "u", "a"], "^1$")
    roles = set()
    deadline = time.monotonic() + PATIENCE
    while roles != {"master", "slave"} and time.monotonic() < deadline:
        roles.add(subprocess.run([*ask, "ROLE"], capture_output=True, text=True).stdout.split("\n")[0])
    assert roles == {"master", "slave"}
    says([*write, "ROLE"], "^master")
    primary.kill()
    subprocess.run([UNSEEN, "promote", "--to", f"127.0.0.1:{replica.port}"], env=env, check=True, capture_output=True)
    says([*write, "PLAYED", "u", "b"], "^1$")
    says([*ask, "SEEN", "u", "b"], "^1$")
    curl = ["curl", "-s", "--cacert", certificate, "-H", "Authorization: Bearer secret"]
    says([*curl, "--json", '{"user": "u", "items": ["c"]}', f"https://localhost:{web}/v1/played"], r"1")
    assert replica.client().command("AUTH", "secret") == b"OK"
