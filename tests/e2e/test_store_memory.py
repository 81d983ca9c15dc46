"""`unseen serve --store memory`: what other people's tests run against. Everything but durability."""
import json
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import DAY, HOUR, START, UNSEEN, Server, free_port, run
from resp import RespError


@pytest.fixture
def server(make_server):
    port = free_port()
    server = make_server(store="memory", http=f"127.0.0.1:{port}")
    server.url = f"http://127.0.0.1:{port}"
    return server


def http(server, path, body=None):
    """Status and JSON."""
    request = urllib.request.Request(server.url + path, json.dumps(body).encode() if body else None,
                                     {"Content-Type": "application/json"} if body else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def info(client):
    lines = client.command("INFO").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def test_no_folder_and_a_loud_warning(server):
    assert not server.data.exists()
    assert "warn NOTHING IS DURABLE" in server.log()
    assert "data=none" in server.log()


def test_plays_deliveries_and_forgets(server):
    with server.client() as c:
        assert c.command("PLAYED", "u", "a", "b") == 2
        assert c.command("DELIVERED", "u", "d") == 1
        assert c.command("UNSEEN", "u", "a", "b", "d", "x") == [b"x"]
        assert c.command("FILTER", "u", "REPLY", "INDEXES", "LIMIT", "1", "DELIVER", "ITEMS", "a", "y", "z") == [1]
        assert c.command("SEEN", "u", "y", "z") == [1, 0]
        assert c.command("WHY", "u", "a") == [b"staged"]
        assert c.command("FORGET", "u", "a") == 1
        assert c.command("UNSEEN", "u", "a", "b") == [b"a"]
        assert c.command("FORGET", "u") == 1
        assert c.command("HISTORY", "u") is None
    assert http(server, "/v1/played", {"user": "h", "items": ["1", "2"]})[0] == 200
    status, answer = http(server, "/v1/unseen", {"user": "h", "items": ["1", "2", "3"]})
    assert status == 200 and answer["items"] == ["3"]


def test_time_goes_by(server):
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("BLOCK", "s", "1")
        server.advance(HOUR)
        assert c.command("FILTER", "u", "SESSION", "s", "ITEMS", "1") == [b"1"]
        assert c.command("SEEN", "u", "a") == [1]
        server.advance(150 * DAY)
        assert c.command("SEEN", "u", "a") == [0]  # out of the window,
        assert int(info(c)["staged_rows"]) == 1
        server.advance(150 * DAY)
        assert int(info(c)["staged_rows"]) == 0  # and of the retention


@pytest.mark.parametrize("command, says", [
    (["RING"], 'the store "memory" keeps no ring'),
    (["RING", "FLUSH"], 'the store "memory" keeps no ring'),
    (["MONTHS"], 'the store "memory" keeps no months'),
    (["BACKUP", "x"], 'the store "memory" keeps no backups'),
    (["LEGACY", "MIRROR"], 'the store "memory" keeps no mirror'),
    (["LEGACY", "MIRROR", "RESET"], 'the store "memory" keeps no mirror'),
])
def test_what_it_lacks_is_said(server, command, says):
    with server.client() as c:
        with pytest.raises(RespError) as e:
            c.command(*command)
        assert str(e.value) == "ERR " + says
        assert c.command("PING") == b"PONG"


def test_what_it_lacks_over_http(server):
    for path in ("/v1/ring", "/v1/months"):
        status, problem = http(server, path)
        assert status == 501 and problem["type"] == "urn:unseen:problem:absent"
        assert 'the store "memory" keeps no' in problem["detail"]
    status, answer = http(server, "/v1/status")
    assert status == 200 and answer["ready"] and answer["backup"] is None
    metrics = urllib.request.urlopen(server.url + "/metrics").read().decode()
    assert "unseen_writes_refused 0" in metrics and "unseen_ring_overdue_seconds" not in metrics
    with server.client() as c:
        assert info(c)["store"] == "memory"


def test_full_memory_refuses_writes_and_forgets_go_on(make_server):
    server = make_server(store="memory", staging_memory="4MiB")
    with server.client() as c:
        refused, users = None, 0
        while refused is None and users < 1000:
            try:
                c.command("PLAYED", f"u{users}", *(f"item {n}" for n in range(1000)))
                users += 1
            except RespError as e:
                refused = str(e)
        assert refused == 'BUSY the store "memory" is full: staging_memory is 4 MiB'
        assert c.command("SEEN", f"u{users}", "item 0") == [0]
        assert c.command("SEEN", "u0", "item 0") == [1]
        for u in range(users):
            assert c.command("FORGET", f"u{u}") == 1
        assert c.command("PLAYED", "u0", "a") == 1


def test_nothing_outlives_it(make_server):
    server = make_server(store="memory")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("BLOCK", "s", "1")
    assert server.stop() == 0
    server.start()
    with server.client() as c:
        assert c.command("SEEN", "u", "a") == [0]
        assert c.command("FILTER", "u", "SESSION", "s", "ITEMS", "1") == [b"1"]


def test_what_needs_a_folder_says_so(folder):
    for command in (["user", "u"], ["check"], ["import", "/dev/null"], ["export", "all"]):
        done = run(*command, "--store", "memory", check=False)
        assert done.returncode != 0
        assert b"store = memory has no data folder" in done.stderr, done.stderr


def test_another_name_is_refused_with_what_there_is():
    done = subprocess.run([UNSEEN, "serve", "--store", "rocks"], capture_output=True)
    assert done.returncode == 2
    assert b'store is "rocks", expected sqlite, memory, memory:later or rados' in done.stderr
    text = run("version").stdout.decode()
    assert "stores: sqlite memory" in text


def test_another_redis_to_come_from_is_refused(folder):
    server = Server(folder, wait=False, store="memory", legacy_redis="127.0.0.1:1", legacy_played_key="p:{user}")
    server.spawn()
    assert server.process.wait() != 0
    assert 'the store "memory" keeps no' in server.log()


def test_a_file_is_loaded_into_a_store_without_a_ring(make_server, folder):
    """Such as this one, and that on a pool of Ceph: there is nothing to flush before."""
    seed = "0123456789abcdef"
    server = make_server(store="memory", hash_seed=seed)
    plays, users, data = folder / "plays.tsv", folder / "users", folder / "data"
    plays.write_text("".join(f"{START}\tuser{i % 20}\titem{i}\n" for i in range(200)))
    run("import", plays, "--data", data, "--hash-seed", seed, "--test-clock", START, "--min-free", "0")
    run("export", users, "--data", data, "--test-clock", START, "--min-free", "0")
    assert b"20 users loaded" in run("load", users, "--to", f"127.0.0.1:{server.port}").stdout
    with server.client() as client:
        assert client.command("SEEN", "user3", "item3", "item4") == [1, 0]
