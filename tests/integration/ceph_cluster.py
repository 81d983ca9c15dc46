"""A real cluster of Ceph: one monitor and some OSDs, all on loopback, each with a folder of its own.

Its daemons are those of the packages ceph-mon and ceph-osd. $UNSEEN_CEPH is where they were unpacked to, since installing
them would start services; without it they are the system's. Nothing needs a manager: an OSD tells the monitor itself
that it is full, and a pool with a number of placement groups of its own needs nobody to scale it.

Every OSD counts as a host, so that replicas go to different ones. Whoever is started here is ended here, by its pid.
"""
import json
import os
import pathlib
import shutil
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

import rados

from ports import free_port
from conftest import end_to_end
from standstill import freeze, thaw

PATIENCE = 120
CEPH = os.environ.get("UNSEEN_CEPH", "")

# Of a client: it asks for the map by itself when an OSD is silent, sooner than its operations are given up.
ATTENTIVE = {"objecter_timeout": "1", "objecter_tick_interval": "1"}

# No login: whoever can use loopback here may do anything anyway. Few threads and little memory, since a test's machine
# has two cores. The heartbeats are those that docs/rados.md recommends.
CONFIG = """\
[global]
fsid = {fsid}
mon host = [v2:{monitor}]
public network = 127.0.0.0/8
ms bind msgr1 = false
ms bind ipv4 = true
ms async op threads = 1
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
log to stderr = false
mon cluster log file = {folder}/cluster.log
crash dir = {folder}/crash
osd heartbeat interval = 1
osd heartbeat grace = 6
mon osd adjust heartbeat grace = false
mon osd adjust down out interval = false
mon osd down out interval = 86400
{plugins}
[mon]
mon data = {folder}/mon
mon initial members = a
mon allow pool delete = true
mon allow pool size one = true
mon data avail warn = 1
mon data avail crit = 1
paxos propose interval = 0.1
paxos min wait = 0.02
mon osd min down reporters = 1
osd pool default pg autoscale mode = off

[osd]
osd data = {folder}/osd.$id
osd objectstore = {store}
osd erasure code plugins =
bluestore block size = {size}
bluestore block preallocate file = false
memstore device bytes = {size}
osd memory target = 939524096
osd op num shards = 2
osd op num threads per shard = 1
osd max backfills = 4
osd recovery max active = 8
osd recovery sleep = 0
osd beacon report interval = 5
{more}"""


def plugins():
    """Where the daemons find them, unless that is where they were built for."""
    folders = list(pathlib.Path(f"{CEPH}/usr/lib").glob("*/ceph/erasure-code")) if CEPH else []
    return "".join(f"erasure code dir = {path}\nosd class dir = {path.parents[1] / 'rados-classes'}\n"
                   for path in folders)


class Daemon:
    """One process, known by its pid alone."""

    def __init__(self, program, *args):
        self.command = [f"{CEPH}/usr/bin/{program}" if CEPH else program, *map(str, args)]
        self.process = None

    def once(self, *args, patience=PATIENCE):
        """To its end."""
        done = subprocess.run([*self.command, *map(str, args)], capture_output=True, text=True, timeout=patience)
        assert done.returncode == 0, f"{self.command} {args}: exit {done.returncode}\n{done.stdout}{done.stderr}"

    def start(self):
        assert not self.alive()
        self.process = subprocess.Popen([*self.command, "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9: what was synced stays."""
        self.process.kill()
        self.process.wait()

    def freeze(self):
        freeze(self.process)

    def thaw(self):
        thaw(self.process)

    def cpu(self):
        """Seconds of the processor, kernel included."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Cluster:
    """store: "bluestore", whose acknowledged writes survive kill -9, or "memstore", which is quicker and forgets. more:
    lines for the daemons' configuration, which ends with the section [osd]."""

    def __init__(self, folder, osds=3, store="bluestore", size=2 << 30, more=""):
        self.folder, self.osds = pathlib.Path(folder), {}
        self.conf = self.folder / "ceph.conf"
        self.fsid, self.monitor = str(uuid.uuid4()), f"127.0.0.1:{free_port()}"
        self.conf.write_text(CONFIG.format(
            fsid=self.fsid, monitor=self.monitor, folder=self.folder, store=store, size=size, plugins=plugins(),
            more=more))
        # What is unseen's own view of it: nothing but where the monitor is.
        self.client_conf = self.folder / "client.conf"
        self.client_conf.write_text(f"[global]\nfsid = {self.fsid}\nmon host = [v2:{self.monitor}]\n"
                                    "auth cluster required = none\nauth service required = none\n"
                                    "auth client required = none\nkeyring = /dev/null\n")
        self.mon = Daemon("ceph-mon", "-i", "a", "-c", self.conf)
        self.admin = None
        try:
            self.mon.once("--mkfs", "--monmap", self.monmap())
            self.mon.start()
            self.connect()
            with ThreadPoolExecutor() as side_by_side:  # making one waits for the disk most of the time
                made = list(side_by_side.map(lambda _: self.prepare(), range(osds)))
            for number in made:
                self.osds[number].start()
            self.wait_up(*made)
        except BaseException:
            self.stop()
            raise

    def monmap(self):
        path = self.folder / "monmap"
        Daemon("monmaptool").once("--create", "--fsid", self.fsid, "--addv", "a", f"[v2:{self.monitor}]", path)
        return path

    def connect(self):
        self.admin = rados.Rados(conffile=str(self.client_conf), conf={
            "rados_mon_op_timeout": "60", "rados_osd_op_timeout": "5", "client_mount_timeout": "60", **ATTENTIVE})
        try:
            self.admin.connect()
        except rados.Error as error:
            raise AssertionError((error, self.log("mon.a"))) from error

    def stop(self):
        """Nothing of it is needed any more."""
        if self.admin is not None:
            self.admin.shutdown()
            self.admin = None
        for daemon in [*self.osds.values(), self.mon]:
            if daemon.alive():
                daemon.kill()

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-8000:] if path.exists() else ""

    # --- asking it ---

    def command(self, prefix, **words):
        code, out, text = self.admin.mon_command(json.dumps({"prefix": prefix, "format": "json", **words}), b"")
        assert code == 0, (prefix, words, code, text)
        return json.loads(out) if out.strip().startswith((b"{", b"[")) else out.decode()

    def until(self, wanted, what):
        return end_to_end.until(wanted, lambda: (what, self.states(), self.log("mon.a")))

    def states(self):
        """Of each OSD, such as {"exists", "up"}."""
        return {osd["osd"]: set(osd["state"]) for osd in self.command("osd dump")["osds"]}

    def wait_up(self, *numbers):
        self.until(lambda: all("up" in self.states().get(n, ()) for n in numbers), ("up", numbers))

    def wait_down(self, *numbers):
        self.until(lambda: all("up" not in self.states().get(n, ()) for n in numbers), ("down", numbers))

    def groups(self, pool):
        """The state of each placement group, by its primary; None: it has none that answers."""
        number, n = self.admin.pool_lookup(pool), self.command("osd pool get", pool=pool, var="pg_num")["pg_num"]
        out = {}
        for i in range(n):
            group = f"{number}.{i:x}"
            try:
                code, answer, _ = self.admin.pg_command(group, json.dumps({"prefix": "query", "pgid": group}), b"",
                                                        timeout=5)
                out[group] = json.loads(answer)["state"] if code == 0 else None
            except (rados.Error, ValueError):
                out[group] = None
        return out

    def wait_clean(self, pool):
        """All that was written is on as many OSDs as it should be."""
        self.until(lambda: all(state and "active" in state.split("+") and "clean" in state.split("+")
                               for state in self.groups(pool).values()), ("clean", pool))

    def primary(self, pool, thing):
        """The OSD that answers for an object."""
        return self.command("osd map", pool=pool, object=thing)["acting_primary"]

    # --- pools ---

    def pool(self, name, size=3, min_size=2, groups=8):
        self.command("osd pool create", pool=name, pg_num=groups, pgp_num=groups, pool_type="replicated")
        self.set_pool(name, size=size, min_size=min_size)
        self.wait_clean(name)
        return name

    def set_pool(self, name, **values):
        for var, value in values.items():
            self.command("osd pool set", pool=name, var=var, val=str(value), yes_i_really_mean_it=True)

    def drop_pool(self, name):
        self.command("osd pool delete", pool=name, pool2=name, yes_i_really_really_mean_it=True)

    # --- OSDs ---

    def prepare(self, host=None):
        """A new OSD, not started; on a host of its own."""
        own = str(uuid.uuid4())
        number = self.command("osd new", uuid=own)["osdid"]
        (self.folder / f"osd.{number}").mkdir()
        host = host or f"host{number}"
        daemon = Daemon("ceph-osd", "-i", number, "-c", self.conf, f"--crush-location=root=default host={host}")
        daemon.once("--mkfs", "--osd-uuid", own)
        self.osds[number] = daemon
        return number

    def add(self):
        number = self.prepare()
        self.osds[number].start()
        self.wait_up(number)
        return number

    def restart(self, number):
        self.osds[number].start()
        self.wait_up(number)

    def kill(self, number):
        self.osds[number].kill()

    def drain(self, number):
        """What it holds goes to the others; wait_clean() says when."""
        self.command("osd out", ids=[str(number)])

    def remove(self, number):
        """For good."""
        self.kill(number)
        self.command("osd down", ids=[str(number)])
        self.command("osd purge-actual", id=number, yes_i_really_mean_it=True)
        del self.osds[number]
        shutil.rmtree(self.folder / f"osd.{number}")  # the number is given again

    def tell(self, number, prefix, **words):
        code, out, text = self.admin.osd_command(number, json.dumps({"prefix": prefix, **words}), b"", timeout=10)
        assert code == 0, (number, prefix, words, code, text)
        return out

    def tool(self, program, *words):
        """One of those that look into an OSD that is stopped."""
        Daemon(program).once(*words, patience=3600)

    def fullness(self, nearfull=0.85, backfillfull=0.90, full=0.95, failsafe=0.97):
        """From which share on an OSD counts as full; failsafe: drops even what the map would allow."""
        for number in self.osds:
            self.tell(number, "config set", var="osd_failsafe_full_ratio", val=[str(failsafe)])
        for name, ratio in (("nearfull", nearfull), ("backfillfull", backfillfull), ("full", full)):
            self.command(f"osd set-{name}-ratio", ratio=ratio)
