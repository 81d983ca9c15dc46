"""What is shown of Kafka where no broker answers, and what is said where its module is not installed."""
import contextlib
import json
import os
import re
import socket
import struct
import threading

import pytest

from conftest import BUILD, PATIENCE, free_port, run, until
from resp import flat
from test_http import Asker
from test_metrics import scrape_until
from test_page import validate

MODULE = BUILD / "unseen_kafka.so"
needs_module = pytest.mark.skipif(not MODULE.exists(), reason="configured without librdkafka")


def librdkafka(folder):
    return json.loads(run("version", "--json", env={**os.environ, "UNSEEN_MODULES": str(folder)}).stdout)["librdkafka"]


def test_without_the_module(folder):
    done = run("serve", "-c", os.devnull, "--data", folder / "data", "--listen", "none", "--http", "none", "--grpc", "none",
               "--unix-socket", folder / "socket", "--modules", folder, "--kafka-brokers", "127.0.0.1:1", "--kafka-topics", "plays",
               check=False)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == (
        f"unseen: {folder}/unseen_kafka.so is not there: install the package unseen-kafka, or set the option modules")
    assert librdkafka(folder) == "not installed"
    (folder / "unseen_kafka.so").write_text("no library")
    assert librdkafka(folder) == "not usable"


@needs_module
def test_the_version_names_it():
    assert re.fullmatch(r"\d+\.\d+\.\d+", librdkafka(BUILD))
    text = run("version", env={**os.environ, "UNSEEN_MODULES": str(BUILD)}).stdout.decode()
    assert f", librdkafka {librdkafka(BUILD)}; stores:" in text


@needs_module
def test_a_file_that_is_missing(folder):
    done = run("serve", "-c", os.devnull, "--data", folder / "data", "--listen", "none", "--http", "none", "--grpc", "none",
               "--unix-socket", folder / "socket", "--modules", BUILD, "--kafka-brokers", "127.0.0.1:1", "--kafka-topics", "plays",
               "--kafka-properties", f"security.protocol=ssl; ssl.ca.location={folder}/ca.pem", check=False)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == (
        f"unseen: kafka_ssl.ca.location: can't read {folder}/ca.pem: No such file or directory")


class LyingBroker(threading.Thread):
    """Answers whatever it is asked with the same bytes, and then without end."""

    def __init__(self, head):
        super().__init__(daemon=True)
        self.head, self.sent, self.refused = head, 0, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                with contextlib.suppress(OSError), peer:
                    peer.recv(4096)
                    sent = len(self.head)
                    peer.sendall(self.head)
                    while True:
                        peer.sendall(bytes(65536))
                        sent += 65536
                        self.sent = max(self.sent, sent)
                self.refused.set()


@needs_module
def test_brokers_that_lie(make_server):
    """About how long their answers are; the server takes no memory for them, and goes on."""
    brokers = [LyingBroker(struct.pack(">i", size)) for size in (2**31 - 1, -1, 90 * 10**6, 40 * 2**20)]
    brokers.append(LyingBroker(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    server = make_server(modules=BUILD, kafka_brokers=",".join(b.address for b in brokers), kafka_topics="plays",
                         kafka_group="the-group")
    for broker in brokers:
        assert broker.refused.wait(PATIENCE), server.log()
        assert broker.sent < 16 * 2**20, broker.sent  # what the sockets between hold
    with server.client() as c:
        assert c.command("PLAYED", "u", "a") == 1
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
    for broker in brokers:
        broker.listener.close()


@needs_module
def test_no_broker_answers(make_server):
    server = make_server(http="127.0.0.1:0", modules=BUILD, kafka_brokers=f"127.0.0.1:{free_port()}", kafka_topics="plays",
                         kafka_group="the-group")
    scrape_until(server, lambda m: m["unseen_kafka_errors_total"] > 0 and m['unseen_kafka_state{state="connecting"}'] == 1)
    with server.client() as c:
        until(lambda: b"refused" in flat(c.command("KAFKA"))["cause"], lambda: c.command("KAFKA"))
        told = flat(c.command("KAFKA"))
        assert told["state"] == b"connecting" and told["group"] == b"the-group"
        assert (told["assigned"], told["lag"], told["lag_ms"], told["partitions"]) == (0, -1, -1, [])
        assert b"kafka_state:connecting\r\n" in c.command("INFO", "kafka")
    done = run("kafka", "--status", "--data", server.data, check=False)
    assert done.returncode == 1 and done.stdout.startswith(b"connecting: ")
    assert json.loads(run("kafka", "--status", "--json", "--data", server.data, check=False).stdout)["lag"] == -1
    with Asker(server) as asker:
        asker.http.request("GET", "/v1/status")
        status = json.loads(asker.http.getresponse().read())
    validate(status, "Status")
    assert status["kafka"]["state"] == "connecting" and status["kafka"]["lag"] is None
