"""etc/kubernetes.yaml against the schemas that Kubernetes publishes, and what stands in it against what there is."""
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest
import yaml

from conftest import CLIENTS, REPO, UNSEEN, end_to_end

MANIFEST = REPO / "etc/kubernetes.yaml"
VALIDATE = CLIENTS / "kubernetes/bin/kubernetes-validate"


@pytest.fixture(scope="module")
def objects():
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.mark.parametrize("version", ["1.27", "1.31", "1.35"])
def test_schemas(version, tmp_path):
    command = [VALIDATE, "--strict", "--no-warn", "-k", version]
    done = subprocess.run([*command, MANIFEST], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANIFEST.read_text().replace("serviceName:", "serviceNames:"))
    assert subprocess.run([*command, wrong], capture_output=True).returncode != 0


def test_names_meet(objects):
    nodes = objects["StatefulSet", "unseen"]["spec"]
    assert nodes["serviceName"] == "unseen" and ("Service", "unseen") in objects
    labels = nodes["template"]["metadata"]["labels"]
    assert objects["Service", "unseen"]["spec"]["selector"].items() <= labels.items()
    router = objects["Deployment", "unseen-router"]["spec"]["template"]
    ports = {p["name"] for p in router["spec"]["containers"][0]["ports"]}
    for name in ("unseen-primary", "unseen-questions"):
        service = objects["Service", name]["spec"]
        assert service["selector"].items() <= router["metadata"]["labels"].items()
        assert {p["targetPort"] for p in service["ports"]} <= ports


def test_configuration_and_scripts(objects, tmp_path):
    data = objects["ConfigMap", "unseen"]["data"]
    config = tmp_path / "unseen.conf"
    config.write_text(data["unseen.conf"])
    (container,) = objects["StatefulSet", "unseen"]["spec"]["template"]["spec"]["containers"]
    given = {e["name"]: e.get("value") for e in container["env"]}
    assert given["UNSEEN_REPLICA_ADDRESS"] == "$(POD).unseen:7979" and "POD" in given
    environment = {"UNSEEN_REQUIREPASS": "secret", "UNSEEN_REPLICA_ADDRESS": "unseen-0.unseen:7979"}
    done = subprocess.run([UNSEEN, "check-config", "-c", config], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    del environment["UNSEEN_REPLICA_ADDRESS"]
    done = subprocess.run([UNSEEN, "check-config", "-c", config], capture_output=True, text=True, env=environment)
    assert done.returncode != 0 and "set address" in done.stderr
    script = tmp_path / "clone"
    script.write_text(data["clone"])
    assert subprocess.run(["sh", "-n", script]).returncode == 0
    for command in re.findall(r"unseen (\w+) \"", data["clone"]):
        assert subprocess.run([UNSEEN, command, "--help"], capture_output=True).returncode == 0, command
    haproxy = tmp_path / "haproxy.cfg"
    haproxy.write_text(data["haproxy.cfg"])
    binary = next(p for p in map(pathlib.Path, ("/usr/sbin/haproxy", "/usr/bin/haproxy")) if p.exists())
    done = subprocess.run([binary, "-c", "-f", haproxy], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def script(objects, folder):
    """Runs the init container's script in the name of a pod; .others are the nodes' addresses."""
    data = objects["ConfigMap", "unseen"]["data"]["clone"]
    fakes = folder / "fakes"
    fakes.mkdir()

    def run(pod, volume, others, begin="yes"):
        text = data
        for name, address in others.items():
            text = text.replace(f"{name}.unseen:7979", address)
        (folder / "clone").write_text(text)
        (fakes / "hostname").write_text(f"#!/bin/sh\necho {pod}\n")
        (fakes / "hostname").chmod(0o755)
        env = {**os.environ, "PATH": f"{fakes}:{UNSEEN.parent}:{os.environ['PATH']}", "UNSEEN_DATA": str(volume),
               "BEGIN_AS_PRIMARY": begin, "UNSEEN_MIN_FREE": "0"}
        return subprocess.run(["sh", folder / "clone"], env=env, capture_output=True, text=True, timeout=60)
    return run


def test_volumes_become_what_they_should(script, make_server, folder):
    """Empty, a replica's, half a clone's, and an old primary's, whose place was taken."""
    first = make_server(clock=None, replica_ack="local")
    nobody = f"127.0.0.1:{end_to_end.free_port()}"
    address = f"127.0.0.1:{first.port}"
    others = {"unseen-0": address, "unseen-1": nobody}
    assert script("unseen-0", folder / "new", others).returncode == 0  # the first of all: serve makes it
    assert script("unseen-0", folder / "new", others, begin="no").returncode != 0
    with first.client() as link:
        link.command("PLAYED", "u", "a")
    second = make_server(clock=None)
    assert second.stop() == 0
    shutil.rmtree(second.data)
    done = script("unseen-1", second.data, others)
    assert done.returncode == 0 and "is a replica of" in done.stdout, done
    assert script("unseen-1", second.data, others).returncode == 0  # a restart of the pod
    with sqlite3.connect(second.data / "staging.db") as db:  # as if the clone had been cut short
        assert db.execute("UPDATE positions SET next = 0 WHERE source LIKE 'clone:%' AND source <> 'clone:followed'").rowcount == 1
    db.close()
    done = script("unseen-1", second.data, others)
    assert done.returncode == 0 and "going on at" in done.stdout, done
    second.start()  # it knows whom it follows
    with second.client() as link:
        end_to_end.until(lambda: b"in step" in link.command("REPLICA", "STATUS")[-1],  # whom it follows, and how
                         lambda: (link.command("ROLE"), second.log()))
        assert link.command("ROLE")[0] == b"slave"
    others["unseen-1"] = f"127.0.0.1:{second.port}"
    first.kill()
    subprocess.run([UNSEEN, "promote", "--to", others["unseen-1"]], check=True)
    done = script("unseen-0", first.data, others)
    assert done.returncode == 0 and "is a replica of" in done.stdout, done
    first.start()
    with first.client() as link:
        assert link.command("ROLE")[0] == b"slave" and link.command("SEEN", "u", "a") == [1]
