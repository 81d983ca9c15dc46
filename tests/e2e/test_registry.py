"""The registration with Consul, against a stub of its agent's API that takes only what Consul's documentation has."""
import http.server
import json
import re
import signal
import ssl
import subprocess
import threading
import urllib.parse

import pytest

from conftest import PATIENCE, REPO, Server, free_port, pause, run, until

CURL = json.loads(run("version", "--json").stdout)["libcurl"] != "none"
pytestmark = pytest.mark.skipif(not CURL, reason="built without libcurl")

# What the agent's API takes, by name and type: agent/service, and agent/check beside it.
CHECK = {"CheckID": str, "Name": str, "TTL": str, "DeregisterCriticalServiceAfter": str, "GRPC": str,
         "GRPCUseTLS": bool, "Interval": str, "Timeout": str}
SERVICE = {"ID": str, "Name": str, "Tags": list, "Address": str, "Port": int, "Meta": dict, "Check": dict}
DURATION = re.compile(r"\d+(ms|s|m|h)")


def checked(given, fields):
    for name, value in given.items():
        assert name in fields and type(value) is fields[name], (name, value)
    return given


class Agent:
    """Keeps services and their checks as an agent does, and what it was asked, in order."""

    def __init__(self, port=0, tls=None):
        self.services, self.status, self.asked, self.wrong = {}, {}, [], []
        self.token, self.hangs, self.on_deregister = None, threading.Event(), lambda: None
        self.changed = threading.Condition()
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    status, text = agent.take(self.command, self.path, body, self.headers)
                except Exception as error:  # said by the test
                    agent.wrong.append(repr(error))
                    status, text = 400, repr(error)
                with agent.changed:
                    agent.asked.append((self.command, self.path, status))
                    agent.changed.notify_all()
                while agent.hangs.is_set():
                    pause(0.01, "an agent that hangs")
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = answer

            def log_message(self, *args):
                pass

        class Threads(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args):
                pass

        self.server = Threads(("127.0.0.1", port), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, method, path, body, headers):
        path, _, query = path.partition("?")
        if self.token and headers.get("X-Consul-Token") != self.token:
            return 403, "Permission denied"
        parts = urllib.parse.unquote(path).split("/")
        assert parts[:3] == ["", "v1", "agent"], path
        if parts[3:] == ["self"]:
            assert method == "GET"
            return 200, json.dumps({"Config": {"Datacenter": "dc1", "NodeName": "n"}})
        if parts[3:] == ["service", "register"]:
            assert method == "PUT" and query == "replace-existing-checks=true"
            service = checked(json.loads(body), SERVICE)
            check = checked(service["Check"], CHECK)
            assert ("TTL" in check) != ("GRPC" in check and "Interval" in check)
            assert all(DURATION.fullmatch(check[n]) for n in ("TTL", "Interval", "Timeout",
                                                             "DeregisterCriticalServiceAfter") if n in check)
            assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,128}", k) and len(v) <= 512 for k, v in service["Meta"].items())
            self.services[service["ID"]] = service
            self.status[check["CheckID"]] = ("critical", "")
            return 200, ""
        if parts[3:5] == ["service", "deregister"]:
            assert method == "PUT" and len(parts) == 6
            self.on_deregister()
            known = self.services.pop(parts[5], None)
            self.status.pop(f"service:{parts[5]}", None)
            return (200, "") if known else (404, f'Unknown service ID "{parts[5]}"')
        if parts[3:5] == ["check", "update"]:
            update = checked(json.loads(body), {"Status": str, "Output": str})
            assert method == "PUT" and update["Status"] in ("passing", "warning", "critical")
            if parts[5] not in self.status:
                return 404, f'Unknown check ID "{parts[5]}". Ensure that the check ID is passed, not the check name.'
            assert "TTL" in self.services[parts[5].removeprefix("service:")]["Check"]
            self.status[parts[5]] = (update["Status"], update["Output"])
            return 200, ""
        assert method == "GET" and parts[3] == "service" and len(parts) == 5, path
        return (200, json.dumps(self.services[parts[4]])) if parts[4] in self.services else (404, "unknown service ID")

    def until(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), (self.asked[-20:], self.wrong)
        assert not self.wrong, self.wrong

    def named(self):
        return {s["Name"]: s for s in self.services.values()}

    def all_are(self, status):
        return self.status and all(s == status for s, _ in self.status.values())

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def agent():
    made = Agent()
    yield made
    made.hangs.clear()
    made.close()
    assert not made.wrong, made.wrong


def info(server):
    with server.client() as c:
        return dict(line.split(":", 1) for line in c.command("INFO", "registry").decode().splitlines() if ":" in line)


def test_every_edge_is_registered_and_deregistered(make_server, agent):
    grpc = free_port()
    server = make_server(registry_consul=agent.url, http="127.0.0.1:0", grpc=f"127.0.0.1:{grpc}",
                         registry_tags="eu-1, blue", registry_datacenter="dc1", clock=None)
    agent.until(lambda: len(agent.services) == 4 and agent.all_are("passing"))
    named = agent.named()
    assert set(named) == {"unseen", "unseen-http", "unseen-grpc", "unseen.v1.Unseen"}
    resp = named["unseen"]
    assert resp["Port"] == server.port and resp["Address"] == "127.0.0.1" and resp["Tags"] == ["eu-1", "blue", "primary"]
    version = json.loads(run("version", "--json").stdout)["unseen"]
    seed = re.search(r" seed=([0-9a-f]{8})", server.log())[1]
    assert resp["Meta"] == {"version": version, "seed": seed, "role": "primary", "protocol": "resp", "tls": "no"}
    dubbo = named["unseen.v1.Unseen"]
    assert dubbo["Tags"] == ["eu-1", "blue", "primary", "dubbo"] and dubbo["Port"] == grpc
    url = urllib.parse.urlsplit(dubbo["Meta"]["url"])
    query = dict(urllib.parse.parse_qsl(url.query))
    assert (url.scheme, url.netloc, url.path) == ("tri", f"127.0.0.1:{grpc}", "/unseen.v1.Unseen")
    assert query == {"application": "unseen", "category": "providers", "dubbo": "2.0.2", "side": "provider",
                     "interface": "unseen.v1.Unseen"}
    until(lambda: info(server)["registry_state"] == "registered")
    assert info(server)["registry_services"] == "4" and info(server)["registry_errors"] == "0"
    # While it is deregistered it still answers who is connected: that is drained afterwards.
    client, answers = server.client(), []
    agent.on_deregister = lambda: answers.append(client.command("PING"))
    assert server.stop() == 0
    assert answers == [b"PONG"] * 4 and not agent.services


def test_grpc_check(make_server, agent):
    grpc = free_port()
    server = make_server(registry_consul=agent.url, grpc=f"127.0.0.1:{grpc}", registry_check="grpc", clock=None)
    until(lambda: info(server)["registry_state"] == "registered")
    for service in agent.services.values():
        assert service["Check"]["GRPC"] == f"127.0.0.1:{grpc}" and service["Check"]["GRPCUseTLS"] is False
    n = len(agent.asked)
    agent.services.clear()  # as an agent that was restarted
    agent.until(lambda: len(agent.services) == 3)
    assert ("GET", "/v1/agent/service/" + next(iter(agent.services)), 404) in agent.asked[n:]


def test_what_the_agent_lost_is_registered_again(make_server, agent):
    make_server(registry_consul=agent.url, clock=None)
    agent.until(lambda: agent.all_are("passing"))
    agent.services.clear()
    agent.status.clear()
    agent.until(lambda: len(agent.services) == 1 and agent.all_are("passing"))


def test_an_unhealthy_server_passes_no_check(make_server, agent):
    server = make_server(registry_consul=agent.url, clock=None)
    agent.until(lambda: agent.all_are("passing"))
    server.options["min_free"] = "16TiB"
    server.write_config()
    server.process.send_signal(signal.SIGHUP)
    agent.until(lambda: agent.all_are("critical"))
    assert all("writes are refused" in output for _, output in agent.status.values())
    server.options["min_free"] = "0"
    server.write_config()
    server.process.send_signal(signal.SIGHUP)
    agent.until(lambda: agent.all_are("passing"))


def test_consul_that_is_away_holds_up_nothing(make_server):
    port = free_port()
    server = make_server(registry_consul=f"http://127.0.0.1:{port}", clock=None)
    until(lambda: int(info(server)["registry_errors"]) >= 2)
    state = info(server)
    assert state["registry_state"] == "waiting" and str(port) in state["registry_cause"]
    assert server.log().count("the registry is tried again") == 1
    agent = Agent(port)
    try:
        agent.until(lambda: agent.all_are("passing"))
        until(lambda: "the registry knows this server" in server.log())
    finally:
        agent.close()


def test_an_agent_that_hangs_holds_up_no_stop(make_server, agent):
    agent.hangs.set()
    server = make_server(registry_consul=agent.url, clock=None)
    agent.until(lambda: agent.asked)
    assert server.stop() == 0
    assert "not deregistered" in server.log() and "no answer in" in server.log()


def test_token(make_server, agent, folder):
    agent.token = "right-token"
    secret = folder / "token"
    secret.write_text("wrong-token\n")
    server = make_server(registry_consul=agent.url, registry_token_file=secret, clock=None)
    agent.until(lambda: any(status == 403 for *_, status in agent.asked))
    until(lambda: "Permission denied" in info(server)["registry_cause"])
    secret.write_text("right-token\n")
    server.process.send_signal(signal.SIGHUP)
    agent.until(lambda: agent.all_are("passing"))
    with server.client() as c:
        assert c.command("CONFIG", "GET", "registry_token")[1] == b"********"
    assert "-token" not in server.log()


def test_another_datacenter(make_server, agent):
    server = make_server(registry_consul=agent.url, registry_datacenter="dc2", clock=None)
    until(lambda: "datacenter" in info(server)["registry_cause"])
    assert not agent.services


def test_https(make_server, folder):
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=agent", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
                    "-out", cert], check=True, capture_output=True)
    agent = Agent(tls=(cert, key))
    try:
        server = make_server(registry_consul=agent.url, tls_ca=cert, clock=None)
        agent.until(lambda: agent.all_are("passing"))
        assert server.stop() == 0 and not agent.services
    finally:
        agent.close()


@pytest.mark.parametrize("options, said", [
    ({"registry_consul": "127.0.0.1:8500"}, "expected http://host:port or https://host:port"),
    ({"registry_consul": "http://name:secret@h:1"}, "a token goes into registry_token"),
    ({"registry_consul": "http://h:8500/v1"}, "expected http://host:port or https://host:port"),
    ({"registry_consul": "http://h:1", "registry_name": "a b"}, "expected letters, digits and hyphens"),
    ({"registry_consul": "http://h:1", "registry_address": "host:80"}, "registry_address is \"host:80\", expected a host"),
    ({"registry_consul": "http://h:1", "registry_check": "grpc"}, "registry_check is grpc, but grpc is none"),
    ({"registry_consul": "http://h:1", "listen": "none", "unix_socket": "u.sock"}, "there is no address to register"),
    ({"registry_consul": "http://h:1", "registry_name": ""}, "registry_name is empty"),
    ({"registry_consul": "http://h:1", "listen": "0.0.0.0:0", "requirepass": "x"}, "set address in the section"),
])
def test_what_is_wrong_is_refused(folder, options, said):
    server = Server(folder, wait=False, **options)
    server.write_config()
    done = run("check-config", "-c", server.config, check=False)
    assert done.returncode == 1 and said in done.stderr.decode() and b"secret" not in done.stderr


def test_the_service_file_is_what_the_server_registers(make_server, agent):
    """etc/consul-unseen.json, for those who let the agent read a file."""
    server = make_server(registry_consul=agent.url, http="127.0.0.1:0", grpc="127.0.0.1:0", clock=None)
    agent.until(lambda: len(agent.services) == 4)
    in_file = {s["name"]: s for s in json.loads((REPO / "etc/consul-unseen.json").read_text())["services"]}
    assert set(in_file) == set(agent.named())
    for name, service in agent.named().items():
        assert in_file[name]["meta"]["protocol"] == service["Meta"]["protocol"]
        assert in_file[name].get("tags", []) == [t for t in service["Tags"] if t != "primary"]  # it can't know
    port = agent.named()["unseen.v1.Unseen"]["Port"]
    assert in_file["unseen.v1.Unseen"]["meta"]["url"].replace(":7981/", f":{port}/") == \
        agent.named()["unseen.v1.Unseen"]["Meta"]["url"]
    assert server.stop() == 0


def test_a_promotion_changes_the_entry(make_server, agent):
    """Clients that look for the primary's tag find the one that takes writes."""
    server = make_server(registry_consul=agent.url, http="none", grpc="none", clock=None)
    agent.until(lambda: len(agent.services) == 1 and agent.all_are("passing"))
    assert agent.named()["unseen"]["Tags"] == ["primary"]
    with server.client() as link:
        link.command("REPLICA", "MEET", 5, "00000000000000aa", "other:7979")
    agent.until(lambda: agent.named()["unseen"]["Tags"] == ["fenced"])
    assert agent.named()["unseen"]["Meta"]["role"] == "fenced"
    agent.until(lambda: agent.all_are("passing"))
