"""The programs of docs/clients.md that are files, shown there or linked: each does what the document says."""
import re

import pytest

from conftest import HERE, LOOPBACK, REPO, Server, dubbo, go, java, node, php, python, run_client

DOCUMENT = (REPO / "docs" / "clients.md").read_text()
BLOCKS = dict(re.findall(r"^```\w+ (tests/integration/\S+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL))
PROGRAMS = {
    "python/example.py": ("grpcio", lambda: python("example.py")),
    "python/many.py": ("grpcio-many", lambda: python("many.py")),
    "node/example.mjs": ("grpc-js", lambda: node("example.mjs")),
    "java/grpc/src/main/java/Example.java": ("grpc-java", lambda: java("grpc", "Example")),
    "java/dubbo/src/main/java/Example.java": ("dubbo", lambda: dubbo("dubbo-3.3", "Example")),
    "go/example/main.go": ("grpc-go", lambda: go("example")),
}
REDIS_PROGRAMS = {
    "java/redis/src/main/java/JedisExample.java": ("jedis", lambda: java("redis", "JedisExample")),
    "java/redis/src/main/java/LettuceExample.java": ("lettuce", lambda: java("redis", "LettuceExample")),
    "java/redis/src/main/java/SpringExample.java": ("spring", lambda: java("redis", "SpringExample")),
    "go-redis/goredis/main.go": ("go-redis", lambda: go("goredis")),
    "php/predis.php": ("predis", lambda: php("predis.php")),
}
HASH_PROGRAMS = {
    "python/hashes.py": ("hash-python", lambda: python("hashes.py")),
    "java/redis/src/main/java/HashExample.java": ("hash-java", lambda: java("redis", "HashExample")),
    "go-redis/gohash/main.go": ("hash-go", lambda: go("gohash")),
}
ELSEWHERE = {"python/loop_asyncio.py", "node/ioredis.mjs", "c/loop.c"}  # tests/e2e/test_clients.py runs them
ALL = {**PROGRAMS, **REDIS_PROGRAMS, **HASH_PROGRAMS}


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("redis"), clock=None, hash_seed="0123456789abcdef")
    yield made
    assert made.stop() == 0, made.log()[-20000:]


@pytest.mark.parametrize("path", ALL)
def test_the_document_has_the_file(path):
    if f"tests/integration/{path}" in BLOCKS:
        assert BLOCKS[f"tests/integration/{path}"] == (HERE / path).read_text()
    else:
        assert f"](../tests/integration/{path})" in DOCUMENT


def test_every_program_of_the_document_is_run():
    linked = set(re.findall(r"\]\(\.\./tests/integration/(\S+?)\)", DOCUMENT))
    assert {path.removeprefix("tests/integration/") for path in BLOCKS} | linked == {*ALL, *ELSEWHERE}


def expect_loop(server, name, done):
    assert (done.returncode, done.stdout) == (0, "b\n"), done.stdout + done.stderr
    user = f"{name}:u1"
    with server.client() as c:
        assert c.command("WHY", user, "a") == [b"staged"]
        assert c.command("WHY", user, "b") == [b"delivered"]
        assert c.command("UNSEEN", user, "c") == [b"c"]


@pytest.mark.parametrize("path", PROGRAMS)
def test_example(server, path):
    name, command = PROGRAMS[path]
    address = server.grpc.replace("127.0.0.1", LOOPBACK) if name == "dubbo" else server.grpc
    expect_loop(server, name, run_client(command(), UNSEEN=address))


@pytest.mark.parametrize("path", REDIS_PROGRAMS)
def test_redis_example(redis_server, path):
    name, command = REDIS_PROGRAMS[path]
    expect_loop(redis_server, name, run_client(command(), PORT=str(redis_server.port)))


@pytest.mark.parametrize("path", HASH_PROGRAMS)
def test_hash_example(redis_server, path):
    name, command = HASH_PROGRAMS[path]
    with redis_server.client() as c:
        c.command("PLAYED", f"{name}:u1", "b")
    done = run_client(command(), PORT=str(redis_server.port))
    assert (done.returncode, done.stdout) == (0, "a\nc\n"), done.stdout + done.stderr
