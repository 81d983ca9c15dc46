"""The entry that docs/registries.md makes in ZooKeeper, by its own command, is what Dubbo's consumers read."""
import os
import re
import subprocess
import urllib.parse

from conftest import INTERFACE, REPO


def test_the_documented_command(zookeeper):
    text = (REPO / "docs/registries.md").read_text()
    command = re.search(r"```sh\n(zkCli\.sh .*?)```", text, re.S)[1]
    assert "127.0.0.1:2181" in command and command.count("HOST") == 1
    command = command.replace("127.0.0.1:2181", zookeeper.address).replace("HOST", "unseen.test")
    path = f"/dubbo/{INTERFACE}/providers"
    before = set(zookeeper.client.get_children(path)) if zookeeper.client.exists(path) else set()
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, PATH=os.environ["PATH"] + ":/usr/share/zookeeper/bin"))
    assert done.returncode == 0, done.stdout + done.stderr
    made = set(zookeeper.client.get_children(path)) - before
    assert len(made) == 1, done.stdout + done.stderr
    node = made.pop()
    documented = re.search(r"```\n(tri://\S+)\n```", text)[1]
    assert urllib.parse.unquote(node) == documented.replace("HOST", "unseen.test")
    assert urllib.parse.quote(urllib.parse.unquote(node), safe="") == node
    zookeeper.client.delete(f"{path}/{node}")
