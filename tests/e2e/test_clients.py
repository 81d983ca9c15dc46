"""The programs of docs/clients.md, as they stand there, or in the files that it links to."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import redis

from conftest import REPO, START, run
from old_redis import REDIS, OldRedis
from resp import RespError, flat
from test_docs import examples
from test_node import HERE, NODE

DOCUMENT = "docs/clients.md"

STORES = ("sqlite", "memory:later")
NEEDS_FOLDER = {"test_node", "test_asyncio", "test_a_decoding_client_of_python", "test_a_write_sent_twice", "test_shards"}


def program(language, document=DOCUMENT):
    (_, text), = examples(document, language)
    return text


def linked(path):
    """A file of ours to which the document leads."""
    assert f"](../{path})" in (REPO / DOCUMENT).read_text()
    return (REPO / path).read_text()


def expect(server, user, command, **environment):
    done = subprocess.run(command, env=dict(os.environ, PORT=str(server.port), **environment), capture_output=True,
                          text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "b\n"), done.stderr
    with server.client() as c:
        assert c.command("WHY", user, "a") == [b"staged"]
        assert c.command("WHY", user, "b") == [b"delivered"]
        assert c.command("UNSEEN", user, "c") == [b"c"]


def test_python(server):
    expect(server, "python:u1", [sys.executable, "-c", program("python")])


def test_asyncio(server):
    expect(server, "asyncio:u1", [sys.executable, "-c", linked("tests/integration/python/loop_asyncio.py")])


@pytest.mark.parametrize("package, text, user", [
    ("redis", program("javascript"), "node:u1"),
    ("ioredis", linked("tests/integration/node/ioredis.mjs"), "ioredis:u1")], ids=["redis", "ioredis"])
def test_node(server, folder, package, text, user):
    assert NODE and (HERE / "node_modules" / package).is_dir(), "npm ci --prefix tests/e2e/node"
    (folder / "node_modules").symlink_to(HERE / "node_modules")
    (folder / "unseen.mjs").write_text(text)
    expect(server, user, [NODE, folder / "unseen.mjs"])


def test_a_decoding_client_of_python(server):
    """Text is no bitmap: the call must say that it wants the bytes, as the document does."""
    r = redis.Redis(port=server.port, decode_responses=True)
    words = ("FILTER", "decoded:u1", "REPLY", "BITMAP", "ITEMS", "a", "b", "c")
    with pytest.raises(UnicodeDecodeError):
        r.execute_command(*words)
    assert r.execute_command(*words, NEVER_DECODE=True) == bytes([0b11100000])
    r.close()


def test_c(server, folder):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not os.path.exists("/usr/include/hiredis/hiredis.h"):
        pytest.skip("no compiler, or no libhiredis-dev")
    (folder / "unseen.c").write_text(linked("tests/integration/c/loop.c"))
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-o", folder / "a.out", folder / "unseen.c", "-lhiredis"],
                   check=True)
    expect(server, "c:u1", [folder / "a.out"])


def test_python_of_many_users(make_server, folder):
    """Its stubs are made as the document says."""
    from unseen_grpc import grpc_address  # which skips where there is no python3-grpcio, or no protoc
    plugin = shutil.which("grpc_python_plugin")
    if plugin is None:
        pytest.skip("protobuf-compiler-grpc is not installed")
    proto = REPO / "proto"
    subprocess.run(["protoc", "-I", proto, f"--python_out={folder}", f"--grpc_python_out={folder}",
                    f"--plugin=protoc-gen-grpc_python={plugin}", proto / "unseen/v1/unseen.proto"], check=True)
    server = make_server(grpc="127.0.0.1:0")
    path = "tests/integration/python/many.py"
    assert program(f"python {path}") + "\n" == (REPO / path).read_text()
    expect(server, "grpcio-many:u1", [sys.executable, REPO / path], UNSEEN=grpc_address(server),
           PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1")
    with server.client() as c:
        assert c.command("WHY", "grpcio-many:u2", "a") == [b"delivered"]


def test_every_program_is_run():
    """Here, or by tests/integration/test_examples.py, which has the other files."""
    fences = re.findall(r"^```(\S.*)$", (REPO / DOCUMENT).read_text(), re.MULTILINE)
    programs = [fence for fence in fences if fence.split()[0] not in ("console", "py")]
    here = ["python", "javascript"]
    assert [fence for fence in programs if " tests/integration/" not in fence] == here
    for fence in programs:
        if " tests/integration/" in fence and "hash" not in fence.lower():
            assert all(word in program(fence).upper() for word in ("PLAYED", "FILTER", "DELIVERED")), fence


def test_a_write_sent_twice(server):
    """What the document says of a client that repeats by itself."""
    with server.client() as c:
        deliver = ("FILTER", "twice:u1", "LIMIT", "1", "DELIVER", "ITEMS", "a", "b")
        assert [c.command(*deliver) for _ in range(2)] == [[b"a"], [b"b"]]
        for words in (("PLAYED", "twice:u2", "a"), ("DELIVERED", "twice:u2", "b"), ("BLOCK", "twice", "1"),
                      ("POOL", "SET", "twice", "a"), ("POOL", "ADD", "twice", "b")):
            c.command(*words)
            c.command(*words)
        assert c.command("UNSEEN", "twice:u2", "a", "b", "c") == [b"c"]
        assert flat(c.command("POOL", "GET", "twice"))["ids"] == [b"a", b"b"]
        assert c.command("POOL", "RENAME", "twice", "once")
        with pytest.raises(RespError, match="^NOPOOL"):
            c.command("POOL", "RENAME", "twice", "once")
        assert [c.command("POOL", "DROP", "once") for _ in range(2)] == [1, 0]


def shown(document):
    """What the page says that its program prints."""
    (_, text), = examples(document, "")
    return text + "\n"


def test_shards(make_server, folder):
    """Users are where `unseen export --shard` looks for them."""
    servers = [make_server(hash_seed="5eed5eed5eed5eed") for _ in range(2)]
    done = subprocess.run([sys.executable, "-c", program("python shards", "docs/sharding.md")], capture_output=True, text=True,
                          timeout=60, env=dict(os.environ, NODES=",".join(f"127.0.0.1:{s.port}" for s in servers)))
    assert (done.returncode, done.stdout) == (0, shown("docs/sharding.md")), done.stderr
    users = []
    for i, server in enumerate(servers):
        of = [json.loads(run("export", folder / "part", "--shard", f"{part}/2", "--data", server.data, "--json").stdout)["users"]
              for part in range(2)]
        assert of[1 - i] == 0 and of[i] > 0
        users.append(of[i])
    assert sum(users) == 100


@pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
def test_pilot(make_server, folder):
    """The sample trace in both; and then a play that only the old store has is named."""
    server, old = make_server(), OldRedis(folder / "redis", "--appendfsync", "no")
    try:
        plays = subprocess.run([REPO / "scripts" / "sample-trace"], capture_output=True, check=True).stdout
        (folder / "plays.tsv").write_bytes(plays)
        run("import", "--to", f"127.0.0.1:{server.port}", "--test-clock", START, folder / "plays.tsv")
        sets = {}
        for line in plays.decode().splitlines():
            at, user, item = line.split("\t")
            sets.setdefault(user, {})[item] = int(at)
        for user, items in sets.items():
            old.zadd(f"played:{user}", ((at, item) for item, at in items.items()))

        def compare():
            done = subprocess.run([sys.executable, "-c", program("python pilot", "docs/pilot.md")], capture_output=True,
                                  text=True, timeout=120, env=dict(os.environ, PORT=str(server.port), OLD=old.socket,
                                                                   SINCE="1785542400000"))
            assert done.returncode == 0, done.stderr
            return done.stdout
        said, page = compare(), shown("docs/pilot.md")
        assert re.sub(r"\d+ hidden", "N hidden", said) == re.sub(r"\d+ hidden", "N hidden", page)
        assert int(re.search(r"(\d+) hidden", said)[1]) <= 242  # as the page reckons: three standard deviations
        old.zadd("played:somebody", [(START, "only there")])
        assert compare().startswith("shown again: b'somebody' b'only there'\n")
    finally:
        old.kill()
