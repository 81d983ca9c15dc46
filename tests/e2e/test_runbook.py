"""docs/replicas.md as an operator reads it: the commands are typed as the page has them, on nodes a, b and c of one machine.

Each row of its table "What to type" has a scenario here, which makes that failure. Then the row's commands are typed, the
errors that the row says clients see must have been seen, and the status must become what the row calls well. The
examples with output run as one story.
"""
import json
import re
import shutil
import signal
import subprocess

import pytest

from conftest import PATIENCE, REPO, START, UNSEEN, Server, http_url, run, until
from partition import CUT, OPEN, Wire
from resp import Closed, RespError
from standstill import freeze, thaw
from test_docs import examples
from test_repair import key_of, months_table, spoil
from test_replica import level, say, status
from test_replica_three import follows

PAGE = (REPO / "docs" / "replicas.md").read_text()
TYPED = re.compile(r"([abc])\$ (.*)")
HOSTS = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


def section(heading):
    return re.search(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[1]


class Row:
    def __init__(self, line):
        self.name, seen, typed, _, well = [cell.strip() for cell in line.strip("|").split(" | ")]
        self.name = re.sub(r"[*`]", "", self.name)
        self.refusals = re.findall(r"`-([^`]*)`", seen)
        self.typed = re.findall(r"`([abc]\$ [^`]*)`", typed)
        self.well = re.findall(r"([abc])'s status: `([^`]*)`", well)


ROWS = {row.name: row for row in map(Row, re.findall(r"^\| \*\*.*\|$", section("What to type"), re.MULTILINE))}
SCENARIOS = {}


def squeezed(text):
    return re.sub(r"\s+", " ", text)


class Machines:
    """a, b and c, with the page's addresses, folders and configurations for their own."""

    def __init__(self, folder, **options):
        self.folder, self.options, self.nodes, self.wire, self.hangs = folder, options, {}, None, None
        self.seen, self.instead, self.codes = [], {}, (0,)

    def node(self, name, clock=None, **options):
        own = self.folder / name
        own.mkdir()
        self.nodes[name] = Server(own, clock=clock, wait=False, **{**self.options, **options})
        self.nodes[name].write_config()
        return self.nodes[name]

    def pair(self, wired=False, **options):
        """(a, b): with a play that both have; `options` are a's."""
        a = self.node("a", **options)
        a.start()
        if wired:
            self.wire = Wire(a.port)
        b = self.node("b", replica_of=self.wire.address if wired else f"127.0.0.1:{a.port}")
        self.replica("b")
        say(a, "PLAYED", "ann", "film1")
        level(a, b)
        return a, b

    def replica(self, name):
        """As the page sets one up."""
        self.type(f"{name}$ unseen clone 10.0.0.1:7979 --data /var/lib/unseen")
        self.nodes[name].start()
        level(self.nodes["a"], self.nodes[name])

    def here(self, name, command):
        for other, server in self.nodes.items():
            command = command.replace(f"{HOSTS[other]}:7979", f"127.0.0.1:{server.port}")
        server = self.nodes[name]
        command = command.replace("/var/lib/unseen", str(server.data)).replace("-p 7979", f"-p {server.port}")
        command = command.replace("/etc/unseen/unseen.conf", str(server.config))
        if "NODE" in command:
            command = command.replace("NODE", until(lambda: self.away(server)))
        return re.sub(r"(?<![\w/])unseen ([a-z]+)", rf"{UNSEEN} \1 -c {server.config}", command)

    @staticmethod
    def away(server):
        """The node that is gone; a moment later it is shown so."""
        replicas = [dict(zip(r[::2], r[1::2])) for r in status(server)["replicas"]]
        gone = [r for r in replicas if r[b"connected"] == 0 or len(replicas) == 1]
        return gone[0][b"node"].decode() if len(gone) == 1 else None

    def there(self, text):
        for name, server in self.nodes.items():
            text = text.replace(f"127.0.0.1:{server.port}", f"{HOSTS[name]}:7979").replace(str(server.data), "/var/lib/unseen")
        return text

    def type(self, line):
        """What it shows, as the page would have it."""
        name, command = TYPED.fullmatch(line).groups()
        server = self.nodes[name]
        if line in self.instead:  # of the machine, not of Unseen
            self.instead[line]()
            return ""
        if command.startswith("systemctl "):
            self.systemctl(server, *command.split()[1:])
            return ""
        done = subprocess.run(["bash", "-c", self.here(name, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE)
        assert done.returncode in self.codes, (line, done)
        if command.startswith("sed "):
            self.read_config(server)
        return self.there(done.stdout)

    def systemctl(self, server, verb, unit):
        assert unit == "unseen"
        if verb in ("stop", "restart") and server.alive():
            server.kill() if server is self.hangs else server.stop()  # systemd kills what doesn't stop in time
        if verb in ("start", "restart"):
            server.start()
        if verb == "reload":
            server.process.send_signal(signal.SIGHUP)

    @staticmethod
    def read_config(server):
        """The next start writes the file once more."""
        options, section = {}, ""
        for line in server.config.read_text().splitlines():
            if line.startswith("["):
                section = line.strip("[]") + "_"
            else:
                option, value = line.split(" = ", 1)
                options[section + option] = value
        assert options != server.options, "sed has changed nothing"
        server.options = options

    def set(self, name, **options):
        """While it runs."""
        self.nodes[name].options.update(options)
        self.nodes[name].write_config()
        self.systemctl(self.nodes[name], "reload", "unseen")

    def ask(self, name, *words):
        """The answer, or the error, which is noted as what clients see."""
        try:
            return say(self.nodes[name], *words)
        except (RespError, Closed, OSError) as error:
            self.seen.append(self.there(str(error)))
            return self.seen[-1]

    def until_refused(self, name, *words):
        until(lambda: isinstance(self.ask(name, *words), str), lambda: self.nodes[name].log())

    def shows(self, name, text):
        def shown():
            done = run("replica", "--status", "-c", self.nodes[name].config, check=False)
            return text in squeezed(done.stdout.decode())
        until(shown, lambda: (status(self.nodes[name]), self.nodes[name].log()[-2000:]))

    def end(self):
        for server in self.nodes.values():
            if server.alive():
                server.kill()
            assert "Sanitizer" not in server.log() and "runtime error:" not in server.log(), server.log()
        if self.wire:
            self.wire.stop()


@pytest.fixture
def machines(folder):
    m = Machines(folder)
    yield m
    m.end()


def after(name):
    """The scenario of a row, a generator: it makes the failure, and goes on once the commands were typed."""
    def register(scenario):
        SCENARIOS[name] = scenario
        return scenario
    return register


def test_every_row_has_a_scenario():
    assert len(ROWS) > 20 and set(ROWS) == set(SCENARIOS)
    assert [row.name for row in ROWS.values() if not row.well] == []


@pytest.mark.parametrize("name", ROWS)
def test_what_to_type(machines, name):
    row = ROWS[name]
    scenario = SCENARIOS[name](machines)
    next(scenario)
    for line in row.typed:
        machines.type(line)
    for who, text in row.well:
        machines.shows(who, squeezed(text))
    for _ in scenario:
        pass
    for refusal in row.refusals:
        pattern = ".*".join(map(re.escape, refusal.split("...")))
        assert [text for text in machines.seen if re.match(pattern, text)], (refusal, machines.seen)


# --- the primary is gone ---


@after("a died, and starts again")
def _(m):
    a, b = m.pair()
    a.kill()
    yield
    say(a, "PLAYED", "ann", "film2")
    level(a, b)


@after("a died; its disk is whole")
def _(m):
    a, b = m.pair(wired=True)
    m.wire.set(CUT)
    say(a, "PLAYED", "ann", "hidden")
    a.kill()
    yield
    assert say(b, "SEEN", "ann", "film1", "hidden") == [1, 1]


@after("a's disk is gone")
def _(m):
    a, b = m.pair()
    a.kill()
    shutil.rmtree(a.data)
    yield
    assert say(a, "SEEN", "ann", "film1") == [1]
    assert len(status(b)["replicas"]) == 1


@after("a died, and b was started since")
def _(m):
    a, b = m.pair()
    b.stop()
    say(a, "PLAYED", "ann", "hidden")
    a.kill()
    b.start()
    refused = run("promote", "-c", b.config, check=False)
    assert refused.returncode == 1 and b"and this node may lack some of what it had" in refused.stderr
    assert "and this node may lack some of what it had" in PAGE
    yield
    assert say(b, "SEEN", "ann", "film1", "hidden") == [1, 0]


@after("a hangs, or its disk does")
def _(m):
    m.hangs, _ = m.pair()
    process = m.hangs.process
    freeze(process)
    yield
    thaw(process)  # it has ended


@after("a is cut off from b and from clients, and still runs")
def _(m):
    m.pair(wired=True)
    m.wire.set(CUT)
    yield


def third(m):
    """c, which b has heard of."""
    a, b = m.nodes["a"], m.nodes["b"]
    c = m.node("c", replica_of=f"127.0.0.1:{a.port}")
    m.replica("c")
    b.restart()  # so that it hears of c now, not in ten seconds
    until(lambda: status(c)["node"].decode() in b.sqlite("staging.db", "SELECT name FROM feed_consumers"))
    level(a, b)
    level(a, c)
    return c


@after("a died, and both b and c follow")
def _(m):
    a, b = m.pair()
    c = third(m)
    a.kill()
    yield
    say(b, "PLAYED", "ann", "film2")
    level(b, c)


@after("c is refused: it has events that b never got")
def _(m):
    a, b = m.pair(wired=True)
    c = third(m)
    m.wire.set(CUT)
    say(a, "PLAYED", "ann", "more")
    level(a, c)
    a.kill()
    run("promote", "-c", b.config)
    m.shows("c", "follows refused")
    yield
    assert say(c, "SEEN", "ann", "film1", "more") == [1, 0]


# --- the replica is gone, or behind ---


@after("b died")
def _(m):
    a, b = m.pair(replica_ack="replica-strict")
    b.kill()
    m.until_refused("a", "PLAYED", "ann", "film2")
    yield
    level(a, b)
    assert say(b, "SEEN", "ann", "film2") == [1]


@after("b is gone for good")
def _(m):
    _, b = m.pair()
    b.kill()
    yield


@after("b lags, or the network between a and b is cut")
def _(m):
    a, b = m.pair(wired=True, replica_ack="replica-strict")
    m.set("b", replica_max_age="50ms")
    m.wire.set(CUT)
    m.until_refused("a", "PLAYED", "ann", "film2")
    m.until_refused("b", "SEEN", "ann", "film2")
    assert "problem" in m.type("b$ unseen replica --status")
    m.set("b", replica_max_age="0")
    m.instead["b$ unseen replica --status"] = lambda: m.wire.set(OPEN)
    yield
    level(a, b)


def fill(server):
    """More than a megabyte of its feed."""
    with server.client() as link:
        link.pipeline([("PLAYED", f"fill{i}", *(f"{i}:{k}" for k in range(100))) for i in range(1000)])


def lose(m):
    """b is lost."""
    a, b = m.pair(feed_max="1MiB")
    b.stop()
    fill(a)
    b.start()
    m.shows("b", "follows lost")
    return a, b


@after("b is lost")
def _(m):
    a, b = lose(m)
    yield
    level(a, b)


@after("b is refused: its settings differ")
def _(m):
    a, b = m.pair(window="3")
    b.stop()
    b.options["window"] = "2"
    b.start()
    m.shows("b", "follows refused")
    assert "window is 2 here and 3 at" in m.type("b$ unseen replica --status")
    yield


@after("b was restored from a backup")
def _(m):
    a, b = m.pair()
    restore(b, back_up(m, b))
    b.start()
    m.shows("b", "follows lost")
    yield
    level(a, b)


# --- two primaries, and none ---


@after("Split brain: b was promoted while a took writes")
def _(m):
    a, b = m.pair(wired=True)
    m.wire.set(CUT)
    run("promote", "-c", b.config)
    say(b, "PLAYED", "ann", "b only")
    say(a, "PLAYED", "ann", "a only")
    m.wire.set(OPEN)
    m.until_refused("a", "PLAYED", "ann", "film2")
    yield
    assert say(b, "SEEN", "ann", "a only", "b only") == [1, 1]


@after("a is back after a fail-over, and fenced")
def _(m):
    a, b = m.pair()
    a.kill()
    run("promote", "-c", b.config)
    a.start()
    m.until_refused("a", "PLAYED", "ann", "film2")
    m.shows("a", "role fenced")
    assert "was not replaced" not in a.log()
    yield


def back_up(m, server):
    copy = m.folder / "copy"
    run("backup", copy, "-c", server.config)
    return copy


def restore(server, copy):
    if server.alive():
        server.stop()
    shutil.rmtree(server.data)
    shutil.move(copy, server.data)


def restored(m):
    """a is a backup of itself, of before the last play, and stopped."""
    a, b = m.pair()
    copy = back_up(m, a)
    say(a, "PLAYED", "ann", "newer")
    level(a, b)
    restore(a, copy)
    return a, b


@after("rejoin ended with exit code 3")
def _(m):
    a, b = restored(m)
    run("promote", "-c", b.config)
    m.codes = (3,)
    m.type("a$ unseen rejoin 10.0.0.2:7979 --data /var/lib/unseen")
    m.codes = (0,)
    yield
    level(b, a)
    assert say(a, "SEEN", "ann", "newer") == [1]


@after("rejoin says can't tell what is newer")
def _(m):
    a, b = m.pair(wired=True)
    m.wire.set(CUT)
    say(a, "FORGET", "ann")
    restore(a, back_up(m, a))
    run("promote", "-c", b.config)
    say(b, "PLAYED", "ann", "film2")
    m.codes = (1,)
    assert "can't tell what is newer" in m.type("a$ unseen rejoin 10.0.0.2:7979 --data /var/lib/unseen")
    m.codes = (3,)
    yield
    assert say(b, "SEEN", "ann", "film1", "film2") == [0, 0]


def half_way(m, a, b):
    """b has asked a to step down, and was killed then."""
    say(a, "REPLICA", "STEPDOWN", "2", status(b)["node"], f"127.0.0.1:{b.port}")
    b.kill()
    b.start()
    for node in "ab":
        m.until_refused(node, "PLAYED", "ann", "film2")


@after("The fail-over failed half-way: a is fenced, b a replica")
def _(m):
    a, b = m.pair()
    half_way(m, a, b)
    level(a, b)
    yield
    assert say(b, "PLAYED", "ann", "film2") == 1


@after("The same, and b is lost, or its disk is full")
def _(m):
    a, b = lose(m)
    half_way(m, a, b)
    yield
    assert say(a, "PLAYED", "ann", "film2") == 1
    until(lambda: status(b)["term"] == 3, b.log)


@after("Consul is gone or frozen, with failover")
def _(m):
    a, b = m.pair()
    if json.loads(run("version", "--json").stdout)["libcurl"] == "none":
        pytest.skip("not here: built without libcurl")
    for server in (a, b):
        server.stop()
        server.options.update(registry_consul="http://127.0.0.1:1", registry_name="films", replica_failover="in-step")
        server.start()
    m.until_refused("a", "PLAYED", "ann", "film2")
    until(lambda: "Consul does not answer" in str(m.ask("a", "PLAYED", "ann", "film2")))
    yield
    assert say(a, "PLAYED", "ann", "film2") == 1
    level(a, b)


@after("a was started again, and its peers are gone for good")
def _(m):
    a, b = m.pair(replica_start="when-heard")
    until(lambda: "peer:" in a.sqlite("staging.db", "SELECT source FROM positions"), a.log)
    b.kill()
    a.restart()
    m.until_refused("a", "PLAYED", "ann", "film2")
    yield
    a.restart()  # for ever
    until(lambda: m.ask("a", "PLAYED", "ann", "film2") == 1)


# --- disks, clocks, backups ---


@after("a's disk is full")
def _(m):
    a, b = m.pair()
    m.set("a", min_free="16TiB")
    m.until_refused("a", "PLAYED", "ann", "film2")
    assert say(a, "SEEN", "ann", "film1") == [1]
    m.instead["a$ df -h /var/lib/unseen"] = lambda: m.set("a", min_free="0")
    yield
    until(lambda: m.ask("a", "PLAYED", "ann", "film2") == 1)
    level(a, b)


@after("b's disk is full")
def _(m):
    a, b = m.pair(replica_ack="replica-strict")
    m.set("b", min_free="16TiB")
    until(lambda: "disk nearly full" in b.log())
    m.until_refused("a", "PLAYED", "ann", "film2")
    until(lambda: "is left on the disk" in m.type("b$ unseen replica --status"))
    m.instead["b$ df -h /var/lib/unseen"] = lambda: m.set("b", min_free="0")
    yield
    level(a, b)
    assert say(b, "SEEN", "ann", "film2") == [1]


@after("The clocks are apart by more than 5 s")
def _(m):
    a = m.node("a", clock=START)
    b = m.node("b", clock=START + 60000, replica_of=f"127.0.0.1:{a.port}")
    a.start()
    run("clone", f"127.0.0.1:{a.port}", "-c", b.config, "--data", b.data, "--test-clock", START)
    b.start()
    m.shows("a", "+60000 ms")

    def set_clock():
        b.stop()
        b.clock = START
        b.start()

    m.instead["b$ systemctl restart systemd-timesyncd"] = set_clock
    yield


@after("a was restored from a backup")
def _(m):
    a, b = restored(m)
    a.start()
    m.shows("b", "follows lost")
    shown = m.type("b$ unseen replica --status")
    assert "this folder is no copy of the node" in shown and "if that was restored from a backup, promote this one" in shown
    m.codes = (0, 3)  # of rejoin
    yield
    level(b, a)
    assert say(a, "SEEN", "ann", "film1", "newer") == [1, 1]


@after("A month on a can't be read")
def _(m):
    a, b = m.pair()
    say(a, "RING", "FLUSH")
    a.stop()
    spoil(a, f"UPDATE {months_table(a)} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(a, "ann"))
    a.start()
    m.until_refused("a", "SEEN", "ann", "film1")
    yield
    assert say(a, "SEEN", "ann", "film1") == [1]


# --- which node is what ---


def test_which_node_is_what(machines):
    """Each way to ask, of each role; the log's line of c, which follows another primary then."""
    m, roles = machines, ("primary", "replica", "fenced")
    m.options["http"] = "127.0.0.1:0"
    a, b = m.pair()
    c = third(m)
    run("promote", "-c", b.config)
    m.shows("a", "role fenced")
    follows(c, b)
    nodes, asked = dict(zip(roles, "bca")), 0
    for line in re.findall(r"^\| .*\|$", section("Which node is what"), re.MULTILINE)[1:]:
        ask, *said = (cell.strip() for cell in line.strip("|").split(" | "))
        for role, cell in zip(roles, said):
            name = nodes[role]
            if ask.startswith("`"):
                had = m.type(f"{name}$ " + ask.strip("`").replace("10.0.0.1:7980", http_url(m.nodes[name])[7:]))
            else:
                had = m.nodes[name].log()
            for span in re.findall(r"`([^`]*)`", cell):
                assert squeezed(span) in squeezed(had), (ask, role, had)
                asked += 1
    assert asked >= 18


# --- the examples with output ---


def alike(text):
    """Without what differs from run to run."""
    for differs, same in ((r"\b[0-9a-f]{16}\b", "ID"), (r"\b[0-9a-f]{8}\b", "SUM"), (r"\b20\d\d-\d\d\b", "MONTH"),
                          (r"\d+(\.\d+)? ([KMG]i)?B\b", "BYTES"), (r"\b[\d.]+ (s old|ms)\b", r"N \1"), (r"\d+ of \d+", "N of N"),
                          (r"(in step) [\d.]+ s\b", r"\1 N s"), (r"[+-]N ms", "N ms")):
        text = re.sub(differs, same, squeezed(text))
    return text.strip()


def test_the_examples_are_what_is_shown(machines):
    m = machines
    a, b = m.pair()
    blocks = [text for _, text in examples("docs/replicas.md", "console")]
    blocks = [text for text in blocks if TYPED.match(text) and "requirepass" not in text and "c$" not in text]
    assert len(blocks) == 6, blocks
    for text in blocks:
        for typed, shown in re.findall(r"^([abc]\$ .*)\n?((?:(?![abc]\$ ).*\n?)*)", text, re.MULTILINE):
            if "check --repair" in typed:
                spoil(a, f"UPDATE {months_table(a)} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(a, "ann"))
            had = m.type(typed)
            assert alike(had) == alike(shown), f"{typed}\n{had}"
            if "term 3" in had:  # "b rejoins, as a did"
                for line in ("stop unseen", "rejoin 10.0.0.1:7979 --data /var/lib/unseen", "start unseen"):
                    m.type(f"b$ {'unseen' if 'rejoin' in line else 'systemctl'} {line}")
        for name, server in m.nodes.items():
            if status(server)["role"] == b"replica":
                m.shows(name, "follows in step")
