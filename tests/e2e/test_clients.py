"""The programs of docs/clients.md, as they stand there."""
import os
import shutil
import subprocess
import sys

import pytest

from test_docs import examples
from test_node import HERE, NODE

DOCUMENT = "docs/clients.md"

STORES = ("sqlite", "memory:later")
NEEDS_FOLDER = {"test_node"}


def program(language):
    (_, text), = examples(DOCUMENT, language)
    return text


def expect(server, user, command, **options):
    done = subprocess.run(command, env=dict(os.environ, PORT=str(server.port)), capture_output=True, text=True,
                          timeout=60, **options)
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


def test_the_loop_is_the_same_in_all():
    """Java and Go can't be run here; at least they send the same three commands."""
    for language in ("python", "javascript", "c", "java", "go"):
        text = program(language)
        assert all(command in text for command in ("PLAYED", "FILTER", "DELIVERED", "INDEXES")), language
