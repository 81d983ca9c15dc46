"""What the scripts beside it stand on: a server of their own, and what can be read off it."""
import atexit
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

BUILD = pathlib.Path(__file__).resolve().parents[1] / "build"  # unless --build names another
TICK = os.sysconf("SC_CLK_TCK")
MIB = 1048576
FILL = []  # further options of every bench/fill

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended and folders removed then, too


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fail(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            fail(f"{program} is not installed")


def make(build, *targets):
    """Builds what is measured. Returns the build folder's full path."""
    build = pathlib.Path(build).resolve()
    if not (build / "Makefile").exists():
        fail(f"{build} is no build folder: run configure in it, or name another with --build")
    if subprocess.run(["make", "-s", "-C", build, *targets], stdout=sys.stderr).returncode != 0:
        fail(f"{' '.join(targets)} could not be built in {build}")
    return build


def fill(build, folder, users, plays_per_month, months=4, spread=0):
    """Makes the folder, or takes the one that an earlier run has left."""
    if (folder / "history.db").exists():
        print(f"fill: {folder.name} is there already")
        return
    done = subprocess.run([f"{build}/bench/fill", "--data", folder, "--users", str(users), "--plays-per-month",
                           str(plays_per_month), "--months", str(months), "--spread", str(spread), *FILL],
                          check=True, capture_output=True, text=True)
    os.sync()  # or the first fsync that is measured writes all of it
    print("fill:", done.stdout.strip())


def evict(folder):
    """Both files out of the page cache: what of them is clean."""
    for path in folder.glob("*.db*"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def size(folder):
    return sum(path.stat().st_size for path in folder.glob("*.db*"))


def sectors_written(folder):
    """Bytes that the device under the folder has written, by anybody. Exact, where /proc/PID/io counts a whole folio of
    the page cache for each page of it that was changed."""
    os.sync()
    device = os.stat(folder).st_dev
    stat = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return int(stat[6]) * 512


class Link:
    """A connection, spoken to as text."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 600)
        self.replies = self.socket.makefile("rb")

    def send(self, *words):
        self.socket.sendall("".join([f"*{len(words)}\r\n", *(f"${len(w)}\r\n{w}\r\n" for w in words)]).encode())

    def reply(self):
        line = self.replies.readline().decode().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == "$":
            return self.replies.read(int(rest) + 2)[:-2].decode() if rest != "-1" else None
        if kind == "*":
            return [self.reply() for _ in range(int(rest))]
        return line if kind == "-" else rest

    def call(self, *words):
        self.send(*words)
        return self.reply()

    def close(self):
        self.replies.close()
        self.socket.close()


def other_hours():
    """Options for a sweep_window that is far from now: months are not sealed while something else is measured."""
    hour = time.gmtime().tm_hour
    return ["--timezone", "UTC", "--sweep-window", f"{(hour + 12) % 24:02}:00-{(hour + 13) % 24:02}:00"]


class Server:
    def __init__(self, build, folder, *options, http="none", password=None):
        self.build, self.folder, self.port, self.password = build, folder, free_port(), password
        options += ("--requirepass", password) if password else ()
        self.to = f"127.0.0.1:{self.port}"
        self.log = open(f"{folder}.log", "w")
        began = time.monotonic()
        self.process = subprocess.Popen([f"{build}/unseen", "serve", "--data", folder, "--port", str(self.port),
                                         "--http", http, "--grpc", "none", *other_hours(), *options], stdout=self.log, stderr=self.log)
        atexit.register(self.process.kill)
        self.link = None
        while self.link is None:
            if self.process.poll() is not None or time.monotonic() - began > 60:
                fail(f"the server did not start: {pathlib.Path(self.log.name).read_text()}")
            try:
                self.link = Link(self.port)
            except OSError:
                time.sleep(0.005)
        if password:
            self.link.call("AUTH", password)
        while self.info("persistence").get("loading") != 0:
            time.sleep(0.005)
        self.start_seconds = time.monotonic() - began

    def info(self, *sections):
        """INFO's numbers by name."""
        values = {}
        for line in (self.link.call("INFO", *sections) or "").splitlines():
            name, _, value = line.partition(":")
            if value.lstrip("-").replace(".", "", 1).isdigit():
                values[name] = float(value)
        return values

    def cpu(self):
        """User and kernel seconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def historian_cpu(self):
        """User and kernel seconds of the thread that flushes: the one at the lowest priority."""
        nice, ticks = 0, 0
        for path in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[16]) > nice:
                nice, ticks = int(fields[16]), int(fields[11]) + int(fields[12])
        return ticks / TICK if nice > 0 else fail("no thread of the server is nice")

    def written(self):
        """Bytes it has caused to be written to the device."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
        return fail("/proc/PID/io has no write_bytes")

    def resident(self, name="VmRSS"):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        return fail("/proc/PID/status has no " + name)

    def resident_anonymous(self):
        return self.resident("RssAnon")

    def load_begin(self, *words, apart=False):
        """apart: it gets a core whenever it wants one, as on a machine of its own. Needs the right to (root)."""
        real_time = (lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))) if apart else None
        return subprocess.Popen([f"{self.build}/unseen", "bench", "--json", "--to", self.to, *map(str, words)],
                                preexec_fn=real_time,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **({"UNSEEN_PASSWORD": self.password} if self.password else {})})

    def load_end(self, process):
        """The loads of `unseen bench` by name: per_second, p50, p99 (ms), answered."""
        out, err = process.communicate()
        if process.returncode != 0:
            fail(f"unseen bench: exit {process.returncode}\n{out}{err}")
        loads = {}
        for load in json.loads(out)["loads"]:
            latency = load["latency_us"]
            loads[load["kind"]] = {"per_second": load["per_second"], "answered": load["answered"],
                                       **{q: latency[q] / 1000 for q in ("p50", "p99")}}
        return loads

    def load(self, *words, apart=False):
        return self.load_end(self.load_begin(*words, apart=apart))

    def stage(self, plays, users):
        """Records plays of users chosen evenly by chance, until so many more are staged."""
        to = self.info("stats")["staged_rows"] + plays
        began = time.monotonic()
        while (left := to - self.info("stats")["staged_rows"]) > 0:
            rate = 100000
            self.load("--workload", "played", "--skew", 0, "--users", users, "--connections", 8, "--pipeline", 64,
                      "--warm-up", 0, "--rate", rate, "--seconds", max(0.01, left / rate))
        return self.info("stats")["staged_rows"] - (to - plays), time.monotonic() - began

    def flush(self):
        """RING FLUSH: seconds, users, plays, bytes written until the slots are empty."""
        before, written, began = self.info("stats"), self.written(), time.monotonic()
        answer = self.link.call("RING", "FLUSH")
        seconds = time.monotonic() - began
        if isinstance(answer, str) and answer.startswith("-"):
            fail(f"RING FLUSH: {answer}")
        after = self.info("stats")
        return {"seconds": seconds, "users": after["users_flushed"] - before["users_flushed"],
                "plays": after["plays_flushed"] - before["plays_flushed"], "written": self.written() - written}

    def stop(self):
        self.link.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def logged(self, *words):
        """The lines of its log that hold any of the words."""
        return [line for line in pathlib.Path(self.log.name).read_text().splitlines() if any(w in line for w in words)]


def say_machine():
    load = " ".join(f"{n:.2f}" for n in os.getloadavg())
    print(f"{os.cpu_count()} cores, load average {load}")
