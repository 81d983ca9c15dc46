"""Three nodes, each in a network namespace of its own, and a router between them that drops what it is told to. Nobody's
packets are refused on their way: they vanish, as on a wire that is cut."""
import contextlib
import ctypes
import os
import subprocess
import threading

from conftest import UNSEEN, end_to_end

PORT, NET_NAMESPACE, PASSWORD = 7979, 0x40000000, "of all nodes"
libc = ctypes.CDLL(None, use_errno=True)
switching = threading.Lock()


def ip(*words, space=None):
    subprocess.run(["ip", *(["-n", space] if space else []), *map(str, words)], check=True, capture_output=True,
                   timeout=60)


def allowed():
    """Whether this machine lets us make such a network."""
    probe = f"unseen{os.getpid()}p"
    try:
        ip("netns", "add", probe)
        ip("rule", "add", "from", "10.99.1.2", "to", "10.99.2.2", "blackhole", space=probe)
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=False, capture_output=True)
    return True


@contextlib.contextmanager
def within(space):
    """This thread's new sockets belong to the namespace."""
    with switching, open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{space}") as there:
        assert libc.setns(there.fileno(), NET_NAMESPACE) == 0
        try:
            yield
        finally:
            assert libc.setns(before.fileno(), NET_NAMESPACE) == 0


class Node(end_to_end.Server):
    def __init__(self, folder, network, name, number, **options):
        self.space, self.ip = f"{network.prefix}{name}", f"10.99.{number}.2"
        folder.mkdir()
        super().__init__(folder, clock=None, wait=False, listen=f"{self.ip}:{PORT}", requirepass=PASSWORD,
                         replica_password=PASSWORD, **options)
        self.name, self.reach = name, f"{self.ip}:{PORT}"
        self.launcher = ("ip", "netns", "exec", self.space)

    def client(self, protocol=2):
        """Beside the node: no partition is in between."""
        with within(self.space):
            link = end_to_end.Client((self.ip, PORT), protocol)
        link.command("AUTH", PASSWORD)
        return link

    def run(self, *words, check=True):
        """A subcommand on this node's machine."""
        done = subprocess.run(["ip", "netns", "exec", self.space, str(UNSEEN), *map(str, words)], capture_output=True,
                              timeout=600, text=True, env={**os.environ, "UNSEEN_PASSWORD": PASSWORD})
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr, self.log()[-3000:])
        return done


class Network:
    def __init__(self, prefix):
        self.prefix, self.router, self.spaces, self.dropped = prefix, f"{prefix}r", [], []
        self.add(self.router)
        subprocess.run(["ip", "netns", "exec", self.router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"],
                       check=True)

    def add(self, space):
        ip("netns", "add", space)
        self.spaces.append(space)
        ip("link", "set", "lo", "up", space=space)

    def join(self, name, number):
        space = f"{self.prefix}{name}"
        self.add(space)
        ip("link", "add", "wire", "netns", space, "type", "veth", "peer", "name", f"wire{number}", "netns", self.router)
        ip("address", "add", f"10.99.{number}.1/24", "dev", f"wire{number}", space=self.router)
        ip("link", "set", f"wire{number}", "up", space=self.router)
        ip("address", "add", f"10.99.{number}.2/24", "dev", "wire", space=space)
        ip("link", "set", "wire", "up", space=space)
        ip("route", "add", "default", "via", f"10.99.{number}.1", space=space)

    def drop(self, one, other):
        """What `one` sends to `other`, from now on."""
        rule = ("from", one.ip, "to", other.ip, "priority", "10", "blackhole")
        ip("rule", "add", *rule, space=self.router)
        self.dropped.append(rule)

    def heal(self):
        while self.dropped:
            ip("rule", "del", *self.dropped.pop(), space=self.router)

    def stop(self):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
