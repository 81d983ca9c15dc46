"""`store = rados` where no cluster is: what doesn't go with it is refused by name, and so is whatever is missing. What
it does with a cluster is tested in tests/integration."""
import json
import os
import re

import pytest

from conftest import BUILD, free_port, run

MODULE = BUILD / "unseen_rados.so"
needs_module = pytest.mark.skipif(not MODULE.exists(), reason="configured without librados")


# The address sanitizer looks for C++'s exceptions when the program starts. librados, which throws them, comes later.
WITH_LIBRADOS = {**os.environ, "LD_PRELOAD": "libstdc++.so.6"}


def refused(*args, env=None):
    done = run("serve", "-c", os.devnull, "--store", "rados", "--port", free_port(), "--http", "none", "--grpc", "none",
               *args, check=False, env=env)
    assert done.returncode in (1, 78), (args, done.stderr)  # 78: not even with a cluster
    return done.stderr.decode().splitlines()[-1]


def librados(folder):
    return json.loads(run("version", "--json", env={**os.environ, "UNSEEN_MODULES": str(folder)}).stdout)["librados"]


def test_a_pool_is_needed():
    assert refused() == "unseen: store = rados needs rados_pool: the pool that holds the users"


@pytest.mark.parametrize("option", [
    ("--slots", "4"), ("--wal-limit", "1GiB"), ("--min-free", "1GiB"), ("--backup-at", "03:00"),
    ("--replica-of", "127.0.0.1:7979"), ("--replica-ack", "replica"), ("--front-redis", "127.0.0.1:6379"),
    ("--legacy-redis", "127.0.0.1:6379")],
    ids=lambda option: option[0][2:])
def test_what_would_be_passed_over_is_refused(option):
    name = option[0][2:].replace("-", "_")
    assert refused("--rados-pool", "unseen", *option).startswith(f"unseen: {name} doesn't go with store = rados: ")


def test_kafka_needs_a_folder_for_dead_letters():
    assert refused("--rados-pool", "unseen", "--kafka-brokers", "127.0.0.1:9092", "--kafka-topics", "plays").startswith(
        "unseen: kafka_brokers with store = rados needs kafka_dead_letters: ")


def test_without_the_module(folder):
    assert refused("--rados-pool", "unseen", "--modules", folder) == (
        f"unseen: {folder}/unseen_rados.so is not there: install the package unseen-rados, or set the option modules")
    assert librados(folder) == "not installed"
    (folder / "unseen_rados.so").write_text("no library")
    assert librados(folder) == "not usable"


@needs_module
def test_the_version_names_it():
    assert re.fullmatch(r"\d+\.\d+\.\d+", librados(BUILD))


@needs_module
def test_without_a_configuration(folder):
    conf = folder / "none.conf"
    assert refused("--rados-pool", "unseen", "--modules", BUILD, "--rados-conf", conf, env=WITH_LIBRADOS) == (
        f"unseen: rados_conf: can't read {conf}: No such file or directory")


@needs_module
def test_without_a_monitor(folder):
    """Nobody listens there: an error by name, after rados_timeout."""
    conf = folder / "ceph.conf"
    conf.write_text("[global]\nmon host = [v2:127.0.0.1:1]\nauth client required = none\n"
                    "auth cluster required = none\nauth service required = none\nkeyring = /dev/null\n")
    assert refused("--rados-pool", "unseen", "--modules", BUILD, "--rados-conf", conf, "--rados-timeout", "1s",
                   env=WITH_LIBRADOS) == (
        "unseen: RADOS: no monitor answered within 1000 ms (rados_timeout)")


def on_a_pool(*args):
    done = run(*args, "-c", os.devnull, "--store", "rados", "--rados-pool", "unseen", check=False)
    assert done.returncode == 1, (args, done.stdout)
    return done.stderr.decode().splitlines()[-1]


@pytest.mark.parametrize("words", [("clone", "127.0.0.1:1"), ("rejoin", "127.0.0.1:1"), ("promote",)],
                         ids=lambda words: words[0])
def test_commands_on_a_folder(words):
    assert on_a_pool(*words) == (
        "unseen: store = rados has no data folder, and this works on one: the users are in a pool, which keeps replicas "
        "and is served by any node (docs/rados.md)")


@pytest.mark.parametrize("option", [("--repair",), ("--salvage", "x")], ids=lambda option: option[0])
def test_a_pool_is_not_repaired(option):
    assert on_a_pool("check", *option).startswith(f"unseen: {option[0]} doesn't go with store = rados: Ceph repairs ")


def test_the_node_of_the_configuration_is_asked():
    port = free_port()
    assert on_a_pool("ping", "--listen", f"127.0.0.1:{port}").startswith(f"unseen: 127.0.0.1:{port}: can't connect")
    assert on_a_pool("pool", "list", "--listen", "none", "--unix-socket", "/nowhere").startswith("unseen: unix:/nowhere: ")
    assert on_a_pool("ping", "--listen", "none") == (
        "unseen: no client could connect: listen is none and unix_socket is empty; set one")


def test_a_rate_is_for_a_pool(folder):
    for words in ("check",), ("export", str(folder / "file")):
        done = run(*words, "-c", os.devnull, "--data", folder, "--rate", "5", check=False)
        assert done.returncode == 2 and b"--rate goes with store = rados" in done.stderr, done.stderr
    assert not (folder / "file.partial").exists()


@pytest.mark.parametrize("words", [("check",), ("user", "u"), ("why", "u", "i"), ("months",), ("export", "file")],
                         ids=lambda words: words[0])
def test_a_pool_is_opened_by(words, folder):
    """Whatever is missing is named, as by serve."""
    assert on_a_pool(*words[:1], *(str(folder / word) if word == "file" else word for word in words[1:]),
                     "--modules", folder) == (
        f"unseen: {folder}/unseen_rados.so is not there: install the package unseen-rados, or set the option modules")
