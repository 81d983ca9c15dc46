"""The examples of docs/kafka.md.

A fence that says "... example" is run: what a section has is options for `[kafka]` (ini), messages for Kafka's console
producer (json, csv; key-value with keys; textproto through protoc, by the schema in proto), and questions with their
answers (redis), in that order. Their times are brought to today. What says "ini security" must start a server.
"""
import re
import subprocess
import time

import pytest

from conftest import REPO
from kafka_reader import PATIENCE, authority, broker, next_topic, read_all, reader, until  # noqa: F401  # fixtures

DOCUMENT = (REPO / "docs" / "kafka.md").read_text()
FENCES = re.findall(r"^```(\S+) (example|security \S+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


def sections():
    """Of examples: {kind: text}, each up to its questions."""
    found = [{}]
    for language, info, text in FENCES:
        if info == "example":
            found[-1][language] = text
            if language == "redis":
                found.append({})
    assert found.pop() == {} and len(found) >= 4
    return found


def today(text):
    now = int(time.time()) - 3600
    return text.replace("2026-11-22T09:00:00", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))) \
        .replace("1795341600", str(now))


def options(text):
    """Lines of a configuration, as options of a server."""
    pairs = (line.split("=", 1) for line in text.splitlines() if line and line != "[kafka]")
    return {f"kafka_{name.strip()}": value.strip() for name, value in pairs}


def send(broker, topic, section, folder):
    if "textproto" in section:
        (folder / "schema.proto").write_text(section["proto"])
        message = re.search(r"^message (\w+)", section["proto"], re.MULTILINE)[1]
        done = subprocess.run(["protoc", f"--encode={message}", "schema.proto"], cwd=folder, check=True, timeout=60,
                              input=today(section["textproto"]).encode(), capture_output=True)
        broker.send(topic, [done.stdout])
    elif "key-value" in section:
        broker.console_producer(topic, today(section["key-value"]), "--property", "parse.key=true", "--property",
                                "key.separator=:")
    else:
        broker.console_producer(topic, today(section.get("json") or section["csv"]))


@pytest.mark.parametrize("section", sections(), ids=lambda s: options(s["ini"]).get("kafka_format", "+".join(s)))
def test_example(broker, reader, folder, section):
    topic = broker.topic(next_topic())
    server = reader(topic, **options(section["ini"]))
    send(broker, topic, section, folder)
    read_all(broker, topic, server)
    assert server.kafka()["dead"] == 0
    for question, answer in re.findall(r"^> (.*)\n((?:(?!> ).*\n)*)", section["redis"], re.MULTILINE):
        done = subprocess.run(["redis-cli", "--no-raw", "-p", str(server.port)], input=question, text=True,
                              capture_output=True, timeout=60)
        assert done.stdout.strip() == answer.strip()


def oidc():
    """Whether librdkafka was built with it. Debian 12's was not, as the document says."""
    version = subprocess.run(["pkg-config", "--modversion", "rdkafka"], capture_output=True, text=True, check=True)
    return not version.stdout.startswith("2.0.2")


@pytest.mark.parametrize("text", [text for _, info, text in FENCES if info.startswith("security")],
                         ids=[info.split()[1] for _, info, _ in FENCES if info.startswith("security")])
def test_security(reader, authority, text):
    """librdkafka takes all of it; with a broker, test_kafka.py tries these."""
    (authority / "password").write_text("secret\n")
    for name, file in (("kafka-ca.pem", "ca.pem"), ("kafka-client.pem", "client.pem"),
                       ("kafka-client.key", "client.key"), ("kafka.password", "password")):
        text = text.replace(f"/etc/unseen/{name}", str(authority / file))
    server = reader("plays", start=False, **{**options(text), "kafka_brokers": "127.0.0.1:1"})
    if "oidc" in text and not oidc():
        server.spawn()
        server.process.wait(PATIENCE)
        assert "OAuth/OIDC depends on libcurl" in server.log()
        server.process = None
        return
    server.start()
    until(lambda: server.kafka()["state"] == b"connecting", server)
