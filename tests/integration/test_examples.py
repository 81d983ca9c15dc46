"""The programs of docs/clients.md that speak gRPC and Dubbo: each is a file, and does what the document says."""
import re

import pytest

from conftest import HERE, LOOPBACK, REPO, dubbo, go, java, node, python, run_client

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


@pytest.mark.parametrize("path", PROGRAMS)
def test_the_document_has_the_file(path):
    assert BLOCKS[f"tests/integration/{path}"] == (HERE / path).read_text()


def test_every_program_of_the_document_is_run():
    assert set(BLOCKS) == {f"tests/integration/{path}" for path in PROGRAMS}


@pytest.mark.parametrize("path", PROGRAMS)
def test_example(server, path):
    name, command = PROGRAMS[path]
    address = server.grpc.replace("127.0.0.1", LOOPBACK) if name == "dubbo" else server.grpc
    done = run_client(command(), UNSEEN=address)
    assert (done.returncode, done.stdout) == (0, "b\n"), done.stdout + done.stderr
    user = f"{name}:u1"
    with server.client() as c:
        assert c.command("WHY", user, "a") == [b"staged"]
        assert c.command("WHY", user, "b") == [b"delivered"]
        assert c.command("UNSEEN", user, "c") == [b"c"]
