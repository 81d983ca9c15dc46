"""The Redis Cluster that users come from: real redis-servers on loopback, whose slots move and whose masters are killed."""
import binascii
import subprocess
import threading

from conftest import free_port
from old_redis import REDIS, wait
from resp import Client, Closed, RespError

SLOTS = 16384
TIMEOUT_MS = 1500  # of a node that says nothing


def slot_of(key):
    """Of a key without braces."""
    return binascii.crc_hqx(key.encode(), 0) % SLOTS


class Node:
    def __init__(self, folder, *options):
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        while self.port > 55000:  # its bus is 10,000 above
            self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.options = options
        self.met = self.port  # by the other nodes
        self.password = None
        self.process = None
        self.id = None

    def start(self):
        conf = ["conf"] if "--sentinel" in self.options else []  # it writes down there what it knows
        self.process = subprocess.Popen(
            [REDIS, *conf, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
             "--appendonly", "no", "--loglevel", "warning", *self.options],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        wait(lambda: self.says("PING") == b"PONG" or self.process.poll() is not None)
        assert self.process.poll() is None, self.folder
        return self

    def client(self):
        c = Client(("127.0.0.1", self.port))
        if self.password is not None:
            c.command("AUTH", self.password)
        return c

    def ask(self, *words):
        with self.client() as c:
            return c.command(*words)

    def says(self, *words):
        try:
            return self.ask(*words)
        except (OSError, Closed, RespError):
            return None

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class OldCluster:
    """Three masters, each with as many replicas."""

    def __init__(self, folder, replicas=1, certs=None):
        """certs: each node also listens with TLS; clients that came over TLS are told those ports."""
        folder.mkdir()
        every = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(TIMEOUT_MS), "--repl-diskless-sync-delay",
                 "0")
        self.nodes = [Node(folder / f"n{i}", *every) for i in range(3 * (1 + replicas))]
        for node in self.nodes if certs is not None else ():
            secure = Node(node.folder / "secure").port
            node.secure = f"tls://127.0.0.1:{secure}"
            node.options += ("--tls-port", str(secure), "--tls-cert-file", certs["server.pem"], "--tls-key-file",
                             certs["server.key"], "--tls-ca-cert-file", certs["ca.pem"], "--tls-cluster",
                             "yes", "--tls-replication", "yes")
            node.met = secure
        self.masters = self.nodes[:3]
        self.replicas = self.nodes[3:]
        try:
            self.make()
        except BaseException:
            self.kill()
            raise

    def make(self):
        for node in self.nodes:
            node.start()
            node.id = node.ask("CLUSTER", "MYID").decode()
        first = self.nodes[0]
        for i, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if node is not first:
                first.ask("CLUSTER", "MEET", "127.0.0.1", node.met)
        for i, node in enumerate(self.masters):
            node.ask("CLUSTER", "ADDSLOTSRANGE", i * SLOTS // 3, (i + 1) * SLOTS // 3 - 1)
        wait(lambda: all(n.ask("CLUSTER", "NODES").count(b" connected") == len(self.nodes) for n in self.nodes))
        for i, node in enumerate(self.replicas):
            node.ask("CLUSTER", "REPLICATE", self.masters[i % 3].id)
        wait(lambda: all(b"cluster_state:ok" in n.ask("CLUSTER", "INFO") for n in self.nodes))
        wait(lambda: all(b"master_link_status:up" in n.ask("INFO", "replication") for n in self.replicas))
        wait(lambda: all(len(entry) == 3 + len(self.replicas) // 3 for n in self.nodes
                         for entry in n.ask("CLUSTER", "SLOTS")))

    @property
    def seeds(self):
        return ",".join(n.address for n in self.masters)

    def owner(self, key):
        for node in self.nodes:
            for entry in node.says("CLUSTER", "SLOTS") or ():
                if entry[0] <= slot_of(key) <= entry[1]:
                    return next(n for n in self.nodes if n.id == entry[2][2].decode())
        return None

    def split(self, commands):
        """Sends each to the master of its key, pipelined."""
        parts = {}
        for words in commands:
            parts.setdefault(slot_of(words[1]) * 3 // SLOTS, []).append(words)
        for i, part in parts.items():
            owner = self.owner(part[0][1])
            with owner.client() as c:
                c.pipeline(part)

    def zset(self, key):
        return set(self.owner(key).ask("ZRANGE", key, "0", "-1"))

    def wait_copied(self):
        for node in self.masters:
            node.ask("WAIT", len(self.replicas) // 3, 0)

    def move(self, slot, source, target):
        """As CLUSTER SETSLOT has it, a key at a time."""
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 10):
            for key in keys:
                source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        wait(self.agreed)

    def agreed(self):
        """Whether all know the same epochs and slots of all; who moves a slot back before that splits the cluster."""
        views = set()
        for node in self.nodes:
            lines = [line.split() for line in node.ask("CLUSTER", "NODES").decode().splitlines()]
            views.add(str(sorted((f[0], f[6], [slots for slots in f[8:] if "-" not in slots[1:-1] or "[" not in slots])
                                 for f in lines)))
        return len(views) == 1

    def kill(self):
        for node in self.nodes:
            node.kill()


class Mover(threading.Thread):
    """Moves the slots of these keys to the next master and back, until it is told to stop; then they are at home."""

    def __init__(self, cluster, keys):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.slots = sorted({slot_of(key) for key in keys})
        self.ended = threading.Event()
        self.rounds = 0
        self.failed = None
        self.start()

    def run(self):
        masters = self.cluster.masters
        try:
            while not self.ended.is_set():
                for there in (True, False):
                    for slot in self.slots:
                        home = min(slot * 3 // SLOTS, 2)
                        pair = masters[home], masters[(home + 1) % 3]
                        self.cluster.move(slot, *(pair if there else pair[::-1]))
                self.rounds += 1
        except BaseException as e:  # noqa: B902
            self.failed = e

    def stop(self):
        self.ended.set()
        self.join()
        assert self.failed is None, self.failed
