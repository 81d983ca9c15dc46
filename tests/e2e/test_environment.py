"""Options in the environment, above the file and below the command line; and `unseen ping`, as a container has both."""
import json
import os
import signal

import pytest

from conftest import START, Server, free_port, run
from test_reload import reload


def with_environment(**variables):
    return {**os.environ, **variables}


def checked(*args, **variables):
    return json.loads(run("check-config", *args, "--json", env=with_environment(**variables)).stdout)["options"]


@pytest.fixture
def file(folder):
    path = folder / "unseen.conf"
    path.write_text("# first\nretention = 9\nwindow = 2\nslots = 5\nrequirepass = of-the-file\n[legacy]\nscore = s\n")
    return path


def test_where_each_value_comes_from(file):
    options = checked("-c", file, "--slots", "7", UNSEEN_WINDOW="4", UNSEEN_SLOTS="6", UNSEEN_LEGACY_SCORE="ms")
    assert options["slots"] == {"value": "7", "changed": True, "from": "command line"}
    assert options["window"] == {"value": "4", "changed": True, "from": "environment"}
    assert options["legacy_score"] == {"value": "ms", "changed": False, "from": "environment"}
    assert options["retention"] == {"value": "9", "changed": True, "from": "file", "line": 2}
    assert options["slot_length"]["from"] == "default" and "line" not in options["slot_length"]

    said = run("check-config", file, "--slots", "7", env=with_environment(UNSEEN_WINDOW="3")).stdout.decode()
    rows = {line.lstrip("* ").split()[0]: line.split() for line in said.splitlines() if line.strip()}
    assert rows["slots"][-2:] == ["command", "line"]
    assert rows["window"][-2:] == ["3", "environment"]
    assert rows["retention"][-2:] == ["line", "2"]
    assert rows["slot_length"][-1] == "default"


def test_a_password_comes_from_where_its_file_was_named(folder):
    secret = folder / "secret"
    secret.write_text("hush\n")
    options = checked(UNSEEN_REQUIREPASS_FILE=str(secret))
    assert options["requirepass"] == {"value": "********", "changed": True, "from": "environment"}
    options = checked("--requirepass-file", secret)
    assert options["requirepass"]["from"] == "command line"
    assert options["legacy_password"] == {"value": "", "changed": False, "from": "default"}


def test_secrets_are_masked(file):
    seed = "0123456789abcdef"
    said = run("check-config", file, env=with_environment(UNSEEN_REQUIREPASS="of-the-environment", UNSEEN_HASH_SEED=seed,
                                                          UNSEEN_LEGACY_PASSWORD="of-redis")).stdout.decode()
    for secret in ("of-the-environment", "of-the-file", seed, "of-redis"):
        assert secret not in said
    assert said.count("********") == 3


def test_problems_of_file_and_environment_are_listed_together(folder):
    bad = folder / "bad.conf"
    bad.write_text("slots = 1\n")
    done = run("check-config", bad, env=with_environment(UNSEEN_WINDOWS="2", UNSEEN_RETENTION="many"), check=False)
    assert done.returncode == 1
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith(f"{bad}:1: slots") and lines[-1] == "3 problems"
    assert sorted(lines[1:-1]) == [
        'environment: UNSEEN_RETENTION: retention is "many", expected a whole number, 1 to 120 months',
        "environment: there is no option for UNSEEN_WINDOWS; did you mean UNSEEN_WINDOW?"]
    served = run("serve", "--data", folder / "data", env=with_environment(UNSEEN_WINDOWS="2"), check=False)
    assert served.returncode == 78 and b"UNSEEN_WINDOWS" in served.stderr
    assert not (folder / "data").exists()


@pytest.fixture
def started(folder, monkeypatch):
    """A server whose window comes from the environment."""
    monkeypatch.setenv("UNSEEN_WINDOW", "3")
    monkeypatch.setenv("UNSEEN_REQUIREPASS", "hush")
    server = Server(folder, wait=False, window="2", retention="12")
    server.spawn()
    try:
        yield server
    finally:
        assert server.stop() == 0


def answers(server, *args):
    """Its exit code and all that it says."""
    done = run("ping", *args, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def until_it_answers(server, *args):
    while True:
        code, said = answers(server, *args)
        if code == 0:
            return said
        assert server.alive() and ("still starting" in said or "holds no data" in said or "can't open" in said), said


def test_a_server_and_its_reload_keep_the_order(started):
    until_it_answers(started, "-c", started.config)
    with started.client() as c:
        assert c.command("AUTH", "hush") == b"OK"
        assert c.command("CONFIG", "GET", "window")[1] == b"3"
        said = reload(started, window="4", retention="6")
        assert "changed=1 need_restart=0" in said  # retention; window and password stay the environment's
        assert c.command("CONFIG", "GET", "window")[1] == b"3"
        assert c.command("CONFIG", "GET", "retention")[1] == b"6"


def test_ping(server):
    assert until_it_answers(server, "-c", server.config) == f"127.0.0.1:{server.port} answers\n"
    server.process.send_signal(signal.SIGTERM)
    server.process.wait()
    assert server.process.returncode == 0
    code, said = answers(server, "-c", server.config)
    assert code == 1 and said == f"unseen: {server.data}: no server is ready: none runs, or it is still starting\n"
    server.start()
    server.kill()  # the lock file still names it
    code, said = answers(server, "-c", server.config)
    assert code == 1 and "can't connect" in said
    server.start()


def test_ping_wants_the_password(started):
    until_it_answers(started, "-c", started.config)
    done = run("ping", "-c", started.config, env=with_environment(UNSEEN_REQUIREPASS="wrong"), check=False)
    assert done.returncode == 1 and b"the password is wrong" in done.stderr


def test_ping_without_data(folder):
    code, said = answers(None, "--data", folder / "none")
    assert code == 1 and str(folder / "none") in said
    assert not (folder / "none").exists()


def test_a_service_called_unseen_in_kubernetes(folder, monkeypatch):
    port = free_port()
    monkeypatch.setenv("UNSEEN_PORT", "tcp://10.0.0.1:7979")
    monkeypatch.setenv("UNSEEN_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("UNSEEN_LISTEN", f"127.0.0.1:{port}")
    server = Server(folder, wait=False, tcp=False)
    server.port = port
    server.start()
    assert server.stop() == 0
    assert f'listening address="127.0.0.1:{port}"' in server.log() and server.clock == START
