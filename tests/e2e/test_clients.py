"""The programs of docs/clients.md, as they stand there."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import REPO
from test_docs import examples
from test_node import HERE, NODE

DOCUMENT = "docs/clients.md"

STORES = ("sqlite", "memory:later")
NEEDS_FOLDER = {"test_node"}


def program(language):
    (_, text), = examples(DOCUMENT, language)
    return text


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


def test_node(server, folder):
    assert NODE and (HERE / "node_modules" / "redis").is_dir(), "npm ci --prefix tests/e2e/node"
    (folder / "node_modules").symlink_to(HERE / "node_modules")
    (folder / "unseen.mjs").write_text(program("javascript"))
    expect(server, "node:u1", [NODE, folder / "unseen.mjs"])


def test_c(server, folder):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not os.path.exists("/usr/include/hiredis/hiredis.h"):
        pytest.skip("no compiler, or no libhiredis-dev")
    (folder / "unseen.c").write_text(program("c"))
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


def test_the_loop_is_the_same_in_all():
    """Java and Go can't be run here; at least they send the same three commands."""
    for language in ("python", "javascript", "c", "java", "go"):
        text = program(language)
        assert all(command in text for command in ("PLAYED", "FILTER", "DELIVERED", "INDEXES")), language
