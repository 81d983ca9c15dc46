"""node-redis and ioredis of today; the cases stand in node/clients.mjs."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent / "node"
NODE = os.environ.get("UNSEEN_NODE") or shutil.which("node")
SCRIPT = HERE / "clients.mjs"
CASES = re.findall(r"^  '([^']+)': async", SCRIPT.read_text(), re.MULTILINE)


@pytest.fixture(scope="module", params=["redis", "ioredis"])
def results(request, tmp_path_factory):
    from conftest import Server
    assert NODE and (HERE / "node_modules" / request.param).is_dir(), "npm ci --prefix tests/e2e/node"
    server = Server(tmp_path_factory.mktemp("node"))
    try:
        done = subprocess.run([NODE, str(SCRIPT), request.param, str(server.port)], capture_output=True, text=True,
                              timeout=120)
        assert done.returncode == 0, f"{done.stderr}\n{server.log()}"
        return json.loads(done.stdout)
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("case", CASES)
def test_client(results, case):
    assert results[case] is None, results[case]
