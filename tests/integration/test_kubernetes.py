"""etc/kubernetes.yaml against the schemas that Kubernetes publishes, and what stands in it against what there is."""
import pathlib
import re
import subprocess

import pytest
import yaml

from conftest import CLIENTS, REPO, UNSEEN

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
    done = subprocess.run([UNSEEN, "check-config", "-c", config], capture_output=True, text=True,
                          env={"UNSEEN_REQUIREPASS": "secret"})
    assert done.returncode == 0, done.stdout + done.stderr
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
