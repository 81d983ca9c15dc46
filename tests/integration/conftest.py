"""Servers with a gRPC port, and the clients of four languages that scripts/test-integration has built.

A client program is given the server's address. It runs all of its checks, and prints a line for each: `ok NAME`, or
`not ok NAME: WHY`. Its source names them as check("NAME", ...), so that a check that was never run is noticed.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse

import pytest
from kazoo.client import KazooClient

REPO = pathlib.Path(__file__).resolve().parents[2]
HERE = REPO / "tests" / "integration"
INTERFACE = "unseen.v1.Unseen"
LOOPBACK = "unseen.test"  # a name of it
CLIENTS = pathlib.Path(os.environ.get("UNSEEN_INTEGRATION", REPO / "build-test-integration" / "clients"))
NODE = os.environ.get("UNSEEN_NODE") or shutil.which("node")
CLASS_PATH = "class-path"  # a file that Maven writes beside the classes


def load_end_to_end():
    """The servers of tests/e2e."""
    spec = importlib.util.spec_from_file_location("end_to_end", REPO / "tests" / "e2e" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["end_to_end"] = module
    spec.loader.exec_module(module)
    return module


end_to_end = load_end_to_end()
Server, free_port, UNSEEN = end_to_end.Server, end_to_end.free_port, end_to_end.UNSEEN
folder, make_server, pytest_runtest_makereport, store = (
    end_to_end.folder, end_to_end.make_server, end_to_end.pytest_runtest_makereport, end_to_end.store)


def grpc_server(folder, scheme="", **options):
    """On the real clock, as clients are: deadlines and event times come from them."""
    address = f"127.0.0.1:{free_port()}"
    server = Server(folder, clock=None, grpc=scheme + address, **options)
    server.grpc = address
    return server


class ZooKeeper:
    """Debian's own, on a free port, with a folder of its own."""

    def __init__(self, folder):
        self.address = f"127.0.0.1:{free_port()}"
        config = folder / "zoo.cfg"
        config.write_text(f"tickTime=2000\ndataDir={folder}/data\nclientPortAddress=127.0.0.1\n"
                          f"clientPort={self.address.rpartition(':')[2]}\nadmin.enableServer=false\n")
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(["java", "-Xmx256m", "-cp", "/usr/share/java/zookeeper.jar",
                                         "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)],
                                        stdout=self.log, stderr=self.log, cwd=folder)
        self.client = KazooClient(self.address)
        self.client.start(timeout=end_to_end.PATIENCE)

    def provide(self, interface, url):
        """As a provider of Dubbo registers itself: its URL, escaped, is the name of a node that ends with it."""
        self.client.create(f"/dubbo/{interface}/providers/{urllib.parse.quote(url, safe='')}", ephemeral=True,
                           makepath=True)

    def stop(self):
        self.client.stop()
        self.client.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()


def pytest_collection_modifyitems(items):
    """What runs on one process: a file's tests, and all that need a cluster of Ceph or a broker of Kafka, so that there is
    one of each at a time."""
    for item in items:
        kind = re.match(r"test_(rados|kafka)", item.path.stem)
        item.add_marker(pytest.mark.xdist_group(kind[1] if kind else item.path.stem))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    made = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = grpc_server(tmp_path_factory.mktemp("server"))
    yield made
    code = made.stop()
    assert code == 0 and "Sanitizer" not in made.log(), made.log()[-20000:]


def node(script):
    assert NODE and (HERE / "node" / "node_modules").is_dir(), "scripts/test-integration installs them"
    return [NODE, str(HERE / "node" / script)]


def java(build, main):
    """A class of what Maven has built."""
    classes = CLIENTS / "java" / build
    assert (classes / CLASS_PATH).exists(), f"scripts/test-integration builds {classes}"
    path = f"{classes / 'classes'}:{(classes / CLASS_PATH).read_text().strip()}"
    # Short-lived: the first compiler alone, and one thread to collect.
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", path, main]


def dubbo(build, main):
    """Dubbo takes 127.0.0.1 and localhost for the machine's outer address. By another name it finds the loopback."""
    hosts, made = CLIENTS / "hosts", CLIENTS / f"hosts.{os.getpid()}"
    made.write_text(f"127.0.0.1 localhost {socket.gethostname()} {LOOPBACK}\n")
    made.rename(hosts)  # at once: another process may be reading it
    command = java(build, main)
    return [command[0], f"-Djdk.net.hosts.file={hosts}", *command[1:]]


def go(program):
    return [str(CLIENTS / "go" / "bin" / program)]


def python(script):
    return [sys.executable, str(HERE / "python" / script)]


def php(script):
    return ["php", "-d", "zend.assertions=1", "-d", "assert.exception=1", str(HERE / "php" / script)]


def environment(**more):
    """Of a client's program. The generated Python is found by path; Node's descriptors too."""
    return dict(os.environ, PYTHONPATH=str(CLIENTS / "python"), PYTHONDONTWRITEBYTECODE="1",
                UNSEEN_PROTO=str(REPO / "proto"), UNSEEN_DESCRIPTORS=str(CLIENTS / "unseen.binpb"), **more)


def run_client(command, *args, timeout=120, errors=None, **more):
    return subprocess.run([*command, *map(str, args)], env=environment(**more), capture_output=True, text=True,
                          timeout=timeout, errors=errors)


def names_of(source):
    """The checks that a program's source names."""
    names = re.findall(r'\bcheck\(\s*"([^"]+)"', (HERE / source).read_text())
    assert names and len(set(names)) == len(names), source
    return names


def results_of(command, *args, **more):
    """What a program printed of its checks: None, or why it failed."""
    done = run_client(command, *args, **more)
    results = {}
    for line in done.stdout.splitlines():
        if found := re.fullmatch(r"(not )?ok ([^:]+)(?:: (.*))?", line):
            results[found[2]] = (found[3] or "no reason given") if found[1] else None
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return results
