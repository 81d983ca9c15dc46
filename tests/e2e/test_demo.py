"""unseen demo: each command that it shows does what it says, and nothing of it is left."""
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request

import pytest

from conftest import PATIENCE, UNSEEN, run, until


@pytest.fixture
def demo(folder):
    """(process, what it has printed)"""
    made = subprocess.Popen([str(UNSEEN), "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "TMPDIR": str(folder)})
    lines = []
    for line in made.stdout:  # ends if the process does
        lines.append(line)
        if line.startswith("Ctrl-C"):
            break
    yield made, "".join(lines)
    made.kill()
    made.communicate()


def port_of(text):
    return int(re.search(r"served on 127\.0\.0\.1:(\d+)", text)[1])


def is_gone(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


def test_each_command(demo, folder):
    process, text = demo
    assert len(os.listdir(folder)) == 1
    told = {}
    commands = re.findall(r"^# (.*)\n(.*)$", text, re.MULTILINE)
    assert len(commands) == 10
    path = f"{UNSEEN.parent}:{os.environ['PATH']}"
    for about, command in commands:
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
                              env={**os.environ, "PATH": path})
        assert done.returncode == 0 and done.stdout.strip() and "ERR" not in done.stdout, (command, done)
        told[about.split(":")[0].split(",")[0]] = done.stdout
    assert "video:new" in told["Which of these has user"].split() and "video:1" not in told["Which of these has user"].split()
    assert re.match(r"20\d\d-\d\d", told["Why is one of them hidden?"])
    assert told["The first three that are unseen"].split() == ["new:1", "new:2", "new:3"]
    assert json.loads(told["The same over HTTP"]) == {"items": ["video:4712"]}
    assert "13 months" in told["What is remembered of a user"]
    page = re.search(r"The page: (\S+)", text)[1]
    assert b"Unseen" in urllib.request.urlopen(page, timeout=PATIENCE).read()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    assert os.listdir(folder) == [] and is_gone(port_of(text))


def test_a_server_that_ends(demo, folder):
    process, text = demo
    pid = subprocess.run(["redis-cli", "-p", str(port_of(text)), "INFO", "server"], capture_output=True, text=True, check=True)
    os.kill(int(re.search(r"process_id:(\d+)", pid.stdout)[1]), signal.SIGKILL)
    assert process.wait(PATIENCE) == 1
    assert "the server failed" in process.stderr.read() and os.listdir(folder) == []


def test_killed(demo):
    process, text = demo
    process.kill()
    process.wait()
    until(lambda: is_gone(port_of(text)))


def test_no_room_for_a_folder():
    done = run("demo", check=False, env={**os.environ, "TMPDIR": "/proc"})
    assert done.returncode == 1 and "can't make a folder in /proc" in done.stderr.decode()


def test_its_options(folder):
    done = run("demo", "--data", folder, check=False)
    assert done.returncode == 2 and "a folder of its own" in done.stderr.decode()
    done = run("demo", "--window", "20", check=False, env={**os.environ, "TMPDIR": str(folder)})
    assert done.returncode == 1 and "window is 20" in done.stderr.decode() and os.listdir(folder) == []
