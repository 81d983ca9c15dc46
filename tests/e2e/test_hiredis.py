"""A C client on hiredis (configure --with-hiredis)."""
import subprocess

import pytest

from conftest import BUILD

CLIENT = BUILD / "tests/e2e/hiredis_client"

STORES = ("sqlite", "memory:later")
NEEDS_FOLDER = ()


def test_hiredis_client(server):
    if not CLIENT.exists():
        pytest.skip("configured without --with-hiredis")
    done = subprocess.run([str(CLIENT), str(server.port)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
