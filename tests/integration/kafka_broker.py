"""A real broker of Kafka: one node, started from its jars, with a folder of its own.

It listens in clear, over TLS, and with SASL (PLAIN, SCRAM, and OAUTHBEARER with tokens that nobody signs). Topics are
made, and messages sent, by node/kafka.mjs, which stays: to start a JVM for each takes too long.
"""
import base64
import json
import pathlib
import socket
import subprocess
import threading
import uuid

from conftest import end_to_end
from ports import free_port

CLUSTER = base64.urlsafe_b64encode(uuid.UUID(int=0x5eed << 64 | 1).bytes).decode().rstrip("=")
USER, PASSWORD = "unseen", "secret"
PATIENCE = 120
# Below a test's other programs: little heap, one thread to collect, no second compiler.
JVM = ["java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
       "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
listeners=PLAIN://{plain},SASL://{sasl},TLS://{tls},CONTROLLER://{controller}
listener.security.protocol.map=PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
num.network.threads=2
num.io.threads=2
log.cleaner.threads=1
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=4000000
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="{user}";
"""
TLS = """\
ssl.keystore.type=PEM
ssl.keystore.location={folder}/keystore.pem
"""


class Broker:
    """class_path: the file that Maven has written. node: the command of node/kafka.mjs; without it only run() and
    console_producer() work. certificate: files with the server's key and certificate; without them there is no TLS."""

    def __init__(self, folder, class_path, node=None, certificate=None, jvm=()):
        self.folder = pathlib.Path(folder)
        self.jars = [*JVM, *jvm, "-cp", pathlib.Path(class_path).read_text().strip()]
        self.node, self.helper, self.process = node, None, None
        self.lock = threading.Lock()
        self.plain, self.sasl, self.tls, controller = (f"127.0.0.1:{free_port()}" for _ in range(4))
        text = PROPERTIES.format(folder=self.folder, plain=self.plain, sasl=self.sasl, tls=self.tls,
                                 controller=controller, user=USER, password=PASSWORD)
        if certificate:
            (self.folder / "keystore.pem").write_text("".join(pathlib.Path(f).read_text() for f in certificate))
            text += TLS.format(folder=self.folder)
        else:
            text = text.replace(f",TLS://{self.tls}", "").replace("TLS:SSL,", "")
        self.config = self.folder / "server.properties"
        self.config.write_text(text)
        self.run("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", self.config, "--add-scram",
                 f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]")
        self.start()

    def run(self, main, *args, **kwargs):
        """One of Kafka's own tools, to its end."""
        done = subprocess.run([*self.jars, main, *map(str, args)], capture_output=True, text=True, timeout=PATIENCE,
                              **kwargs)
        assert done.returncode == 0, f"{main}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def log(self):
        return (self.folder / "broker.log").read_text(errors="replace")

    def spawn(self):
        with open(self.folder / "broker.log", "ab") as log:
            self.process = subprocess.Popen([*self.jars, "kafka.Kafka", str(self.config)], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, cwd=self.folder)

    def start(self):
        self.spawn()
        host, port = self.plain.split(":")

        def listens():
            assert self.process.poll() is None, self.log()[-8000:]
            try:
                socket.create_connection((host, int(port)), 1).close()
                return True
            except OSError:
                return False

        end_to_end.until(listens, self.log)
        if self.node and self.helper is None:
            self.helper = subprocess.Popen([*self.node, self.plain], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           text=True)
            assert json.loads(self.helper.stdout.readline()) == {"ok": "connected"}
        return self

    def kill(self):
        """As a machine's end does it. What was acknowledged is in the page cache, which outlives a process."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.helper is not None:
            self.helper.stdin.close()
            self.helper.terminate()
            self.helper.wait()
            self.helper = None
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def ask(self, do, **words):
        """Any thread; one at a time."""
        with self.lock:
            self.helper.stdin.write(json.dumps({"do": do, **words}) + "\n")
            self.helper.stdin.flush()
            answer = json.loads(self.helper.stdout.readline())
        assert "ok" in answer, answer
        return answer["ok"]

    def topic(self, name, partitions=1, **config):
        """config: the topic's own, with _ for dots."""
        self.ask("topic", topic=name, partitions=partitions,
                 config={key.replace("_", "."): value for key, value in config.items()})
        return name

    def drop(self, topic):
        self.ask("drop", topic=topic)

    def send(self, topic, messages):
        """Messages are values, or (key, value), or (key, value, partition): text, bytes or None. On the broker when it
        returns."""
        def packed(data):
            return None if data is None else base64.b64encode(data.encode() if isinstance(data, str) else data).decode()

        out = []
        for message in messages:
            key, value, *partition = message if isinstance(message, tuple) else (None, message)
            out.append({"key": packed(key), "value": packed(value), "partition": partition[0] if partition else None})
        for first in range(0, len(out), 5000):
            self.ask("send", topic=topic, messages=out[first:first + 5000])

    def flood(self, topic, name, users, n, first=0):
        """A play a message: of user NAME:(i % users), item:i, for i from first."""
        self.ask("flood", topic=topic, name=name, users=users, first=first, n=n)

    def ends(self, topic):
        """The end of each partition's log."""
        return {p["partition"]: p["high"] for p in self.ask("ends", topic=topic)}

    def starts(self, topic):
        return {p["partition"]: p["low"] for p in self.ask("ends", topic=topic)}

    def committed(self, group, topic):
        """What the group told the broker; -1: nothing."""
        return {p["partition"]: p["offset"] for p in self.ask("committed", group=group, topic=topic)}

    def members(self, group):
        """How many are in a group that is at rest; None while it is not."""
        found = self.ask("members", group=group)
        return found["members"] if found["state"] in ("Stable", "Empty", "Dead") else None

    def console_producer(self, topic, text, *options):
        """Kafka's own: a message a line."""
        self.run("kafka.tools.ConsoleProducer", "--bootstrap-server", self.plain, "--topic", topic, *options,
                 input=text)
