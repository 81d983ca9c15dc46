"""HTTP: a real server, asked with http.client, sockets and curl."""
import http.client
import json
import re
import time

import pytest

from conftest import PATIENCE, run


def http_port(server):
    """As the log says; of a server that was started again, the last one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.findall(r'listening address="http://127\.0\.0\.1:(\d+)"', server.log())
        if len(found) == server.log().count(" unseen version="):
            return int(found[-1])
        time.sleep(0.01)
    raise AssertionError(server.log())


@pytest.fixture
def web(make_server):
    return make_server(http="127.0.0.1:0")


def ask(server, method, path, body=None, headers=None):
    """(status, headers, what the body says as JSON) on a connection of its own."""
    c = http.client.HTTPConnection("127.0.0.1", http_port(server), timeout=PATIENCE)
    headers = dict(headers or {})
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
    c.request(method, path, body, headers)
    answer = c.getresponse()
    text = answer.read()
    c.close()
    return answer.status, answer.headers, json.loads(text) if text else None


def test_health(web):
    assert ask(web, "GET", "/healthz")[0] == 200
    assert ask(web, "GET", "/readyz")[0] == 200
    status, headers, body = ask(web, "HEAD", "/readyz")
    assert status == 200 and body is None and int(headers["Content-Length"]) > 0


def test_where_it_listens(web):
    with web.client() as c:
        assert f"listener1:http://127.0.0.1:{http_port(web)}".encode() in c.command("INFO", "server")


def test_addresses(web, folder):
    taken = f"127.0.0.1:{http_port(web)}"
    for address, text in ((taken, f"can't listen on {taken}: Address already in use"), ("0.0.0.0:0", "requirepass"),
                          ("7980", "expected an IP address and a port")):
        result = run("serve", "--data", folder / "other", "--port", 0, "--http", address, check=False)
        assert result.returncode != 0 and text in result.stderr.decode() and "http" in result.stderr.decode()
