"""A real server in a folder of its own, and what every test asks it with.

UNSEEN_BUILD names the build folder that holds the binary and hiredis_client; scripts/test sets it.
"""
import contextlib
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from resp import Client, Closed, RespError  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("UNSEEN_BUILD", REPO / "build"))
UNSEEN = BUILD / "unseen"
DATA = pathlib.Path(os.environ.get("UNSEEN_TEST_TRACES", REPO.parent / "shared" / "data"))
START = 1795255200000  # 2026-11-21T10:00Z
HOUR = 3600 * 1000
DAY = 24 * HOUR
PATIENCE = 240  # seconds, for a slow machine under a sanitizer, on which many servers run; only what fails waits so long


# Below those that the kernel gives to whoever connects, and apart for each process of tests: what was free a moment ago is
# still so when a server listens there.
PORTS = range(10000 + 2000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 11), 32000)
ports = itertools.cycle(random.sample(PORTS[:2000], 2000))


def free_port():
    for port in ports:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            return port


def run(*args, check=True, **kwargs):
    """Runs a subcommand of unseen."""
    result = subprocess.run([str(UNSEEN), *map(str, args)], capture_output=True, timeout=PATIENCE * 5, **kwargs)
    if check and result.returncode != 0:
        raise AssertionError(f"unseen {args}: exit {result.returncode}\n{result.stdout!r}\n{result.stderr!r}")
    return result



def until(wanted, said=lambda: "", patience=PATIENCE):
    """What wanted() answers once that is something. It is asked soon first, then less often. This is the only place that
    gives up, and none waits for long but to fail: an assert in wanted() ends it sooner."""
    deadline, seconds = time.monotonic() + patience, 0.001
    while not (got := wanted()):
        assert time.monotonic() < deadline, said()
        time.sleep(seconds)
        seconds = min(1.5 * seconds, 0.05)
    return got


def pause(seconds, why):
    """Real time passes, for what has no test clock; why says what that is. test_rules.py counts who does."""
    assert why
    time.sleep(seconds)


def settle(*servers, outside=()):
    """Until these servers have nothing more to do: no number of theirs moves any more, and every part is idle, but those named
    in outside, which wait for what has no DEBUG SETTLE. Returns in how many ms of the clock something is due, or -1."""
    outside = {name.encode() for name in outside}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.admin()) for server in servers]
        looks = [None]

        def rest():
            looks.append([client.command("DEBUG", "SETTLE") for client in clients])
            before, now = looks[-2:]
            return now if before is not None and [look[0] for look in before] == [look[0] for look in now] and all(
                look[1] == b"idle" or outside.issuperset(look[1].split()) for look in before + now) else None

        dues = [look[2] for look in until(rest, lambda: f"still at work: {looks[-3:]}")]
    return min((due for due in dues if due >= 0), default=-1)


STEPS = 20


def advance(servers, ms):
    """The clocks of all servers go on by ms, from one time at which something is due to the next, and each time all settle: no
    deadline passes that its answer could have met. What looks again all the time is not waited for: STEPS in all at most."""
    least, left = max(1, -(-ms // STEPS)), ms
    while left > 0:
        due = settle(*servers)
        step = left if due < 0 else min(left, max(due, least))
        for server in servers:
            server.advance(step)
        left -= step
    settle(*servers)


SECTIONS = ("archive_", "legacy_", "kafka_", "lock_", "registry_", "replica_", "front_")


def is_late(error):
    """The store, or the second tier, which has 50 ms."""
    return "not answered within question_timeout" in str(error) or "no whole answer for" in str(error)


def in_time(ask, hopeless=lambda: False):
    """What ask() answers. A machine that is busy with others may be too late with it: then it is asked again, unless there
    is no hope."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except RespError as e:
            if hopeless() or not is_late(e) or time.monotonic() > deadline:
                raise


def peak_memory(server):
    """The most bytes it was resident with so far; 0 with a sanitizer, which keeps what was freed for as long as it likes."""
    if "san" in BUILD.name:
        return 0
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024


class Server:
    launcher = ()  # the words before the command

    def __init__(self, folder, clock=START, wait=True, tcp=True, **options):
        """`clock` in unix ms, or None for the real one; options are lines of the configuration file."""
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "data"
        self.port = free_port()
        self.log_path = self.folder / "log"
        self.clock = clock
        self.process = None
        self.log_thread = None
        options.setdefault("min_free", "0")
        options.setdefault("workers", "2")
        options.setdefault("timezone", "UTC")
        options.setdefault("slot_length", "1h")  # so that many turns fit into a short story
        options.setdefault("http", "none")  # many run side by side
        options.setdefault("grpc", "none")
        if "UNSEEN_TEST_STORE" in os.environ:  # see docs/store.md
            options.setdefault("store", os.environ["UNSEEN_TEST_STORE"])
        if tcp:
            options.setdefault("listen", f"127.0.0.1:{self.port}")
        options["data"] = str(self.data)
        options.setdefault("backup_root", str(self.folder.parent))  # copies lie beside the server's folder, or in it
        self.options = options
        self.config = self.folder / "unseen.conf"
        if wait:
            self.start()

    def write_config(self):
        """An option SECTION_NAME of those that have a section of their own stands there, as NAME; policies are a dict of
        dicts."""
        sections = {"": []}
        policies = self.options.get("policies", {})
        for option, value in self.options.items():
            if option == "policies":
                continue
            section, _, name = option.partition("_") if option.startswith(SECTIONS) else ("", "", option)
            sections.setdefault(section, []).append(f"{name} = {value}\n")
        self.config.write_text("".join((f"[{section}]\n" if section else "") + "".join(lines)
                                       for section, lines in sections.items())
                               + "".join(f"[policy {name}]\n" + "".join(f"{o} = {v}\n" for o, v in lines.items())
                                         for name, lines in policies.items()))

    def spawn(self, *args):
        self.write_config()
        command = [*self.launcher, str(UNSEEN), "serve", "-c", str(self.config), *args]
        if self.clock is not None:
            command += ["--test-clock", str(self.clock)]
        self.log_before = len(self.log())
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def start(self):
        self.spawn()
        until(self.answers, lambda: f"the server does not answer\n{self.log()}")
        return self

    def answers(self):
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}\n{self.log()}"
        if "accounts" in self.options:
            return self.is_ready()
        try:
            with self.admin() as c:
                return c.command("PING") == b"PONG" and self.is_ready()
        except (OSError, RespError, Closed):
            return False

    def is_ready(self):
        """PING is answered a moment before the folder names who serves it and the log says where."""
        log = self.log()[self.log_before:]
        return " ready seed=" in log or ("accounts" not in self.options and " unseen version=" not in log)

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def client(self, protocol=2):
        if self.options.get("listen") == "none":
            return Client(self.options["unix_socket"], protocol)
        return Client(self.address, protocol)

    def admin(self):
        client = self.client()
        if "requirepass" in self.options:
            client.command("AUTH", self.options["requirepass"])
        return client

    def log(self):
        """All that was logged before what this test was last answered: its thread sleeps only where nothing waits."""
        until(lambda: not self.alive() or not self.log_thread_works())
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_thread_works(self):
        if self.log_thread and self.log_thread[0] == self.process.pid:
            tasks = [self.log_thread[1]]
        else:
            tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        for task in tasks:
            with contextlib.suppress(OSError):  # it has ended
                name, _, rest = task.read_text(errors="replace").partition("(")[2].rpartition(")")
                if name == "log":
                    self.log_thread = (self.process.pid, task)
                    return rest.split()[0] not in "ST"  # stopped, as all of it is
        return False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not end\n{self.log()}")

    def restart(self):
        assert self.stop() == 0, self.log()
        return self.start()

    def advance(self, ms):
        with self.admin() as c:
            c.command("DEBUG", "ADVANCE", ms)
        self.clock += ms

    def sqlite(self, file, sql):
        result = subprocess.run(["sqlite3", "-readonly", "-batch", str(self.data / file), sql], capture_output=True,
                                text=True, timeout=PATIENCE)
        assert result.returncode == 0, result.stderr
        return result.stdout.rstrip("\n")


def http_url(server):
    """As the log says; of a server that was started again, the last one."""
    def found():
        urls = re.findall(r'listening address="(http://[^"]*)"', log := server.log())
        return urls if len(urls) == log.count(" unseen version=") else []

    return until(found, server.log)[-1]


@pytest.fixture
def folder(request):
    """Temporary files may be in memory, as scripts/test has them: not those of a disk that is late."""
    path = tempfile.mkdtemp(prefix="unseen-e2e-", dir=os.environ.get("UNSEEN_DISK") if "disk" in request.fixturenames else None)
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


# What takes a minute or more comes first, so that no process is left alone with one of these at the end.
LONGEST = ["front_redis", "two_tiers", "page", "replica_model", "nodes_model", "model", "front_model", "replica", "backup", "replica_hedge",
           "cold", "replica_faults", "export", "pools", "start_early", "process"]


# Of these each test may run on a process of its own; of any other file all run on one, which then makes only once what they
# share.
APART = ["front_redis", "two_tiers", "replica_model", "model", "front_model", "replica", "replica_hedge", "cold",
         "replica_faults", "export", "start_early", "process"]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items):
    ranks = {f"test_{name}": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))
    for item in items:
        if item.path.stem.removeprefix("test_") not in APART:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_generate_tests(metafunc):
    """A module's STORES: its tests are run over each; but those of NEEDS_FOLDER as ever, over sqlite."""
    module, name = metafunc.module, metafunc.function.__name__
    if "make_server" in metafunc.fixturenames and hasattr(module, "STORES") and name not in module.NEEDS_FOLDER:
        metafunc.parametrize("store", module.STORES, indirect=True)


@pytest.fixture
def store(request):
    return getattr(request, "param", None)


@pytest.fixture
def make_server(folder, request, store):
    """Starts servers; each must end with 0 on SIGTERM when the test is over, without a word of a sanitizer."""
    servers = []

    def make(**options):
        if store is not None:
            options.setdefault("store", store)
        own = folder / f"server{len(servers)}"
        own.mkdir()
        server = Server(own, **options, wait=False)
        servers.append(server)
        return server.start()

    yield make
    problems = []
    for server in servers:
        code = server.stop()
        log = server.log()
        if code not in (0, -signal.SIGKILL):
            problems.append(f"exit {code}")
        if "Sanitizer" in log or "runtime error:" in log:
            problems.append("a sanitizer spoke")
        if problems or getattr(request.node, "failed", False):
            print(f"--- log of {server.folder.name} ---\n{log[-20000:]}")
    assert not problems, problems


@pytest.fixture
def make_disk(folder):
    """File systems of so many bytes ("24m"), where the machine allows mounting them."""
    mounts = []

    def make(size):
        mount = folder / f"disk{len(mounts)}"
        mount.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)], capture_output=True)
        if done.returncode != 0:
            pytest.skip("not here: mounting a tmpfs is not allowed here; disks that fail are tested in tests/unit and tests/scenario")
        mounts.append(mount)
        return mount

    yield make
    for mount in mounts:
        subprocess.run(["umount", "-l", str(mount)], check=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call" and outcome.get_result().failed:
        item.failed = True


@pytest.fixture
def server(make_server):
    return make_server()


@pytest.fixture
def client(server):
    with server.client() as c:
        yield c


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def protocol(request):
    return request.param


@pytest.fixture
def spoken(server, protocol):
    """A client of each protocol in turn."""
    with server.client(protocol) as c:
        yield c


@pytest.fixture(scope="session")
def trace_path():
    path = DATA / "movietweetings.tsv.gz"
    if not path.exists():
        pytest.skip(f"not here: the real trace is not at {path}: set UNSEEN_TEST_TRACES to its folder")
    return path


@pytest.fixture(scope="session")
def configure_cache(tmp_path_factory):
    """A cache of what configure has found out for the build that is tested, but nothing that pkg-config has said."""
    path = tmp_path_factory.mktemp("configure") / "cache"
    path.write_text("".join(f"{line}\n" for line in (BUILD / "config.log").read_text().splitlines()
                            if re.match(r"(ac|am|lt)_cv_(?!env_|path_(ac_pt_)?PKG_CONFIG)", line)))
    return path


@pytest.fixture
def cold(folder):
    """A server that is not started."""
    made = []

    def make(**options):
        own = folder / f"cold{len(made)}"
        own.mkdir()
        made.append(Server(own, wait=False, **options))
        return made[-1]

    yield make
    for server in made:
        if server.alive():
            server.kill()
