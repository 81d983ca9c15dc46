"""A build without hiredis says of all that it can't do that it can't, and does the rest. In a build with it, the same
things work: scripts/test runs this against both."""
import json

import pytest

from conftest import REPO, run
from old_redis import REDIS, OldRedis
from resp import RespError

HIREDIS = json.loads(run("version", "--json").stdout)["hiredis"] != "none"
WITHOUT = "this unseen was built without hiredis"


@pytest.fixture
def config(folder):
    def write(*lines):
        path = folder / "unseen.conf"
        path.write_text("\n".join([f"data = {folder}/data", "[legacy]", *lines, ""]))
        return path

    return write


@pytest.mark.parametrize("lines", [["redis = 127.0.0.1:1"], ["redis = 127.0.0.1:1", "mirror = yes"]])
def test_configuration(config, lines):
    path = config(*lines)
    checked = run("check-config", "-c", path, check=False)
    if HIREDIS:
        assert checked.returncode == 0
        return
    assert checked.returncode == 1 and f"legacy_redis is set, but {WITHOUT}" in checked.stderr.decode()
    served = run("serve", "-c", path, check=False)
    assert served.returncode == 78 and f"legacy_redis is set, but {WITHOUT}" in served.stderr.decode()


def test_the_sample_is_good(folder):
    """All its options are known to either build, and none is set."""
    assert run("check-config", "-c", REPO / "etc/unseen.conf").returncode == 0


def test_a_server_without_a_redis(server):
    with server.client() as c:
        with pytest.raises(RespError, match="built with hiredis"):
            c.command("LEGACY", "STATUS")
        assert c.command("PLAYED", "u", "a") == 1
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
        assert b"off" in c.command("LEGACY", "MIRROR")


@pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
def test_migrate(make_server, folder):
    server = make_server()
    redis = OldRedis(folder / "redis")
    try:
        redis.zadd("played:u", [(server.clock, "a")])
        for args in (("--scan",), ("--verify",), ("--verify", "7")):
            said = run("migrate", *args, "-c", server.config, check=False)
            assert said.returncode == 1
            assert ("set redis in its section [legacy]" if HIREDIS else WITHOUT) in said.stderr.decode()
        said = run("migrate", "--status", "-c", server.config, check=False)
        assert said.returncode == 1 and "set redis in its section [legacy]" in said.stderr.decode()
    finally:
        redis.kill()
