"""Who a node is, as all edges tell it: a primary that has met a higher term takes no writes, at once and from then on."""
import urllib.error
import urllib.request

import pytest

from conftest import run
from resp import RespError
from test_http import http_port

OTHER = "00000000000000aa"
WRITES = [("PLAYED", "u", "b"), ("PLAYEDAT", "u", "1795255200000", "b"), ("DELIVERED", "u", "b"), ("FORGET", "u"),
          ("FORGET", "u", "a"), ("FILTER", "u", "LIMIT", "1", "DELIVER", "ITEMS", "b"), ("LOAD", "x"),
          ("REPLICA", "MERGE", OTHER, OTHER, "1", "")]


def status(c):
    flat = c.command("REPLICA", "STATUS")
    return dict(zip(flat[::2], flat[1::2]))


def info(c):
    return dict(line.split(":", 1) for line in c.command("INFO", "replication").decode().splitlines() if ":" in line)


def code(server, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{http_port(server)}{path}", data=body,
                                     headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


@pytest.fixture
def node(make_server):
    return make_server(http="127.0.0.1:0")


def test_a_plain_node_is_a_primary(node):
    c = node.client()
    assert c.command("ROLE")[0] == b"master" and c.command("ROLE")[2] == []
    shown = info(c)
    assert shown["role"] == "master" and shown["connected_slaves"] == "0" and len(shown["master_replid"]) == 40
    assert status(c)[b"role"] == b"primary" and status(c)[b"term"] == 1
    assert code(node, "/readyz?role=primary")[0] == 200 and code(node, "/readyz?role=replica")[0] == 503
    assert code(node, "/readyz?role=king")[0] == 400
    with pytest.raises(RespError, match="this node is the primary of term 1 already"):
        c.command("REPLICA", "PROMOTE", "FORCE")


def test_a_higher_term_fences(node):
    c = node.client()
    c.command("PLAYED", "u", "a")
    assert c.command("REPLICA", "MEET", 1, "0000000000000001", "b:1")[2] == b"primary"
    assert c.command("REPLICA", "MEET", 5, OTHER, "b:1")[::2] == [5, b"fenced under"]
    for start in range(2):
        for write in WRITES:
            with pytest.raises(RespError, match="^READONLY You can't write against a read only replica: b:1 has taken "
                                                "over in term 5, and this node takes no writes until unseen rejoin"):
                c.command(*write)
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]  # nothing of it was done, and questions are answered
        assert c.command("BLOCK", f"s{start}", 1) == 1  # sessions are each node's own
        assert c.command("ROLE") == [b"slave", b"b", 1, b"none", 0]
        shown = info(c)
        assert (shown["role"], shown["master_host"], shown["master_link_status"]) == ("slave", "b", "down")
        for path in ("/v1/played", "/v1/delivered"):
            refused, said = code(node, path, b'{"user": "u", "items": ["b"]}')
            assert refused == 421 and "read-only-replica" in said and "b:1 has taken over" in said, said
        assert code(node, "/readyz")[0] == 200 and code(node, "/readyz?role=primary")[0] == 503
        assert code(node, "/readyz?role=replica")[0] == 200
        c.close()
        node.stop()
        node.start()
        c = node.client()
        assert status(c)[b"role"] == b"fenced"
    assert len(c.command("INFO")) < 64 * 1024


def test_stepping_down_says_what_is_durable(node):
    c = node.client()
    c.command("PLAYED", "u", "a")
    before = status(c)[b"last"]
    with pytest.raises(RespError, match="not that of the one that asks"):
        c.command("REPLICA", "STEPDOWN", 1, "0000000000000001", "b:1")
    assert c.command("PLAYED", "u", "a2") == 1
    assert c.command("REPLICA", "STEPDOWN", 2, OTHER, "b:1") >= before
    assert c.command("REPLICA", "STEPDOWN", 2, OTHER, "b:1") >= before  # once more, for one that asks again
    with pytest.raises(RespError, match="READONLY"):
        c.command("PLAYED", "u", "b")


def test_force_takes_over_again(node):
    c = node.client()
    c.command("REPLICA", "MEET", 5, OTHER, "127.0.0.1:1")
    with pytest.raises(RespError, match="FORCE makes this one the primary without what the other has"):
        c.command("REPLICA", "PROMOTE")
    flat = c.command("REPLICA", "PROMOTE", "FORCE")
    assert dict(zip(flat[::2], flat[1::2]))[b"term"] == 6
    assert c.command("PLAYED", "u", "b") == 1
    assert status(c)[b"promoted"] == 1


def test_what_replica_of_needs(make_server, node):
    """A folder is a replica's by unseen clone alone."""
    data = node.folder / "data"
    node.stop()
    done = run("serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "none", "--grpc", "none",
               "--replica-of", "127.0.0.1:1", check=False)
    assert done.returncode == 1 and b"run unseen clone 127.0.0.1:1 --data" in done.stderr, done.stderr
    done = run("promote", "--data", data, check=False)
    assert done.returncode == 1 and b"the folder of a primary already, of term 1" in done.stderr, done.stderr


def test_redis_py_reads_it(node):
    redis = pytest.importorskip("redis")
    r = redis.Redis(port=node.port)
    assert r.role()[0] == b"master" or r.role()[0] == "master"
    assert r.info("replication")["role"] == "master"
    r.execute_command("REPLICA", "MEET", 5, OTHER, "b:1")
    with pytest.raises(redis.exceptions.ReadOnlyError):
        r.execute_command("PLAYED", "u", "a")
    assert r.info("replication")["master_port"] == 1


def test_grpc(make_server):
    """Writes are FAILED_PRECONDITION, and a Watch of the role is told."""
    unseen_grpc = pytest.importorskip("unseen_grpc")
    node = make_server(grpc="127.0.0.1:0")
    with unseen_grpc.Grpc(node) as calls:
        def health(role, method="Check", kind="unary_unary"):
            return calls.raw(f"/grpc.health.v1.Health/{method}", b"\x0a" + bytes([len(role)]) + role.encode(), kind)

        assert health("primary") == b"\x08\x01" and health("replica") == b"\x08\x02"
        watch = health("primary", "Watch", "unary_stream")
        assert next(watch) == b"\x08\x01"
        node.client().command("REPLICA", "MEET", 5, OTHER, "b:1")
        assert next(watch) == b"\x08\x02"
        watch.cancel()
        assert health("primary") == b"\x08\x02" and health("replica") == b"\x08\x01" and health("") == b"\x08\x01"
        for write in ("Played", "Delivered"):
            code, said = calls.refused(write, user="u", items=["b"])
            assert code == "FAILED_PRECONDITION" and "b:1 has taken over" in said
