"""Three nodes in every order: plays, deliveries and forgets at whatever leads or believes so; promotions, over a server
and of a folder; rejoins and clones, cut short and repeated; kill -9, a supervisor, an operator who does what the log and
the commands say; settings that one node alone has, wires that are cut, clocks apart and a month's end between them, a
full disk and a broken one, full staging memory, nodes that stand still, a feed that no longer reaches. In the end all are healed: what was
acknowledged is seen, what was forgotten is not (branches.py), and nodes that are level answer and compare equal.

UNSEEN_NODES_SEEDS says how many seeds (16); UNSEEN_NODES_SEED those alone.
"""
import os
import select
import shutil
import subprocess
import threading

import pytest

from branches import NEVER, Branches
from conftest import BUILD, HOUR, REPO, START, UNSEEN, run, until
from partition import OPEN, SHAPES, Wire
from resp import Closed, RespError, encode
from standstill import freeze, thaw
from test_reload import reload
from test_replica_model import ITEMS, USERS, Nodes, fields

SEEDS = int(os.environ.pop("UNSEEN_NODES_SEEDS", "16"))  # not the servers'
ONE = os.environ.pop("UNSEEN_NODES_SEED", "")
STEPS = 50
DECEMBER = 1796083200000
FEW_USERS, FEW_ITEMS = USERS[:3], ITEMS[:10]
STEPS_OF = {  # what is asked of another node, by which a step of a command has a name
    "rejoin": ["HELLO", "STATUS", "POSITIONS", "TOMBSTONES", "MERGE", "USERS", "LOAD", "ENLIST", "FLUSH"],
    "clone": ["HELLO", "STATUS", "ENLIST", "POSITIONS", "TOMBSTONES", "USERS"],
    "promote": ["STEPDOWN", "FETCH", "HELLO"]}


class Group(Nodes):
    def __init__(self, folder, seed, library):
        super().__init__(folder, seed)
        self.frozen, self.broken = {}, set()  # by how much the clock of one that stands still is behind
        draw, self.branches, self.hurry = self.random, Branches(), False
        start, self.apart = (DECEMBER - 30000 if seed % 3 == 1 else START), 5000 * (seed % 2)
        self.small = seed % 4 == 2
        self.swells = int(seed >= 16)  # the first ones are as they were
        for name in "abc":
            server = self.node(name, start + draw.randint(-self.apart, self.apart),
                               feed_max="1MiB" if self.small else "64MiB")
            server.wire, server.switch = Wire(server.port), server.folder / "switch"
            if library:
                server.launcher = ("env", f"LD_PRELOAD={library}", f"FROZEN_DISK={server.switch}")
            self.wires.append(server.wire)
            server.options["replica_address"] = server.wire.address
            server.reign, server.term, server.more, server.whole = None, 0, set(), name == "a"
        self.nodes[0].start()
        self.look(self.nodes[0])
        for server in self.nodes[1:]:
            self.clone(server)

    def ask(self, server, *words):
        return None if server in self.frozen else super().ask(server, *words)

    # --- what is known of them ---

    def look(self, server):
        """REPLICA STATUS; None: it doesn't answer."""
        said = self.ask(server, "REPLICA", "STATUS") if server.alive() else None
        if said is None:
            return None
        state = fields(said)
        state["follower"] = fields(state["follower"])
        led = state["role"] == b"fenced" and server.reign is None  # and was fenced before it was looked at
        if led or state["role"] == b"primary" and (server.reign is None or server.term != state["term"]):
            if server.reign:  # an old primary that was forced to lead once more
                server.reign = self.branches.go_on(server.reign, state["last"])
            else:
                followed = (state["promoted_from"], state["common_seq"])
                if "nothing is kept for the old primary" in server.log():  # forced, and its disk is full
                    followed, server.more = (b"", 0), set().union(*(e for r in self.branches.reigns for e in r.state()))
                server.reign = self.branches.begin(state["node"], state["promoted_at_seq"], *followed, server.more)
            server.term = 0 if led else state["term"]
            self.story.append(f"{server.folder.name} leads, term {server.term}")
        return state

    def leader(self):
        return max((s for s in self.nodes if s.reign), key=lambda s: (s.term, s.reign.node))

    def last(self, server):
        state = self.look(server)
        return state["last"] if state else NEVER

    # --- processes ---

    def down(self, server, kills=None):
        if server.alive():
            self.drop(server)
            if self.random.random() < 0.5 if kills is None else kills:
                server.kill()
                self.frozen.pop(server, None)
            else:
                self.go_on(server)
                self.mend(server)
                assert server.stop() == 0, self.story

    def up(self, server):
        self.go_on(server)
        if not server.alive() and server.whole:
            self.mend(server)
            server.start()
        self.look(server)

    def stand_still(self):
        server = self.random.choice(self.nodes)
        if server.alive() and server not in self.frozen:
            self.story.append(f"{server.folder.name} stands still")
            freeze(server.process)
            self.frozen[server] = 0

    def go_on(self, *servers):
        for server in servers or self.nodes:
            behind = self.frozen.pop(server, None)
            if behind is not None:
                self.story.append(f"{server.folder.name} goes on")
                thaw(server.process)
                if behind:
                    self.ask(server, "DEBUG", "ADVANCE", behind)

    def break_disk(self):
        server = self.random.choice(self.nodes)
        if server.launcher:
            file = self.random.choice(["staging.db-wal", "history.db-wal", "staging.db", "history.db"])
            self.story.append(f"{file} of {server.folder.name} is broken")
            server.switch.write_text(f"!{file}")
            self.broken.add(server)

    def mend(self, *servers):
        for server in servers or self.nodes:
            if server in self.broken:
                self.story.append(f"the disk of {server.folder.name} is well")
                server.switch.unlink()
                self.broken.remove(server)
                if server.options.pop("staging_memory", None):
                    self.set(server)

    def cut_short(self, words, most, *servers):
        """At a step that has a name, too."""
        if self.random.random() < 0.3:
            return super().cut_short(words, most, *servers)
        draw = self.random
        step, nth, whom = draw.choice(STEPS_OF[words[0]]), draw.randint(1, 2), draw.choice([None, *servers])
        self.story.append(f"{words[0]}, and {whom.folder.name if whom else 'it'} killed at {step} {nth}")
        process = subprocess.Popen([str(UNSEEN), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        killed = []

        def kill():
            killed.append(whom)
            (whom.process if whom else process).kill()

        for wire in self.wires:
            wire.trap = (step.encode(), nth, kill)
        said = process.communicate()[0].decode()
        for wire in self.wires:
            wire.trap = None
        if whom and killed:
            whom.process.wait()
            self.drop(whom)
        return said

    def command(self, server, *words):
        """Of its folder."""
        server.write_config()
        return [words[0], *words[1:], "-c", server.config, "--data", server.data, "--test-clock", server.clock]

    def run(self, *words):
        done = run(*words, check=False)
        said = (done.stdout + done.stderr).decode()
        self.story.append(f"{' '.join(map(str, words))}: {done.returncode} {said.strip()}")
        return done.returncode, said

    def kill(self):
        server = self.random.choice(self.nodes)
        self.story.append(f"kill {server.folder.name}")
        self.down(server, True)

    def supervise(self):
        for server in self.nodes:
            self.up(server)

    def restart(self):
        server = self.random.choice(self.nodes)
        self.story.append(f"restart {server.folder.name}")
        self.down(server)
        self.up(server)

    def advance(self, ms):
        for server in self.nodes:
            if server in self.frozen:
                self.frozen[server] += ms
            elif server.alive():
                self.ask(server, "DEBUG", "ADVANCE", ms)
            server.clock += ms

    # --- clients ---

    def write(self, server):
        draw, user = self.random, self.random.choice(FEW_USERS)
        word = draw.choices(["PLAYED", "DELIVERED", "FORGET", "FORGET all"], [10, 3, 5, 2])[0]
        items = [] if word == "FORGET all" else draw.sample(FEW_ITEMS, draw.randint(1, 4))
        before, at_ms = self.last(server), server.clock
        try:
            sure = self.ask(server, word.split()[0], user, *items) is not None
            says = "" if sure else " ?"
        except RespError as refused:
            sure, says = False, f": {refused}"
        self.story.append(f"{server.folder.name}: {word} {user} {' '.join(items)}{says}")
        if "READONLY" not in says:
            seqs = (before, self.last(server) if sure else NEVER)
            self.branches.record(server.reign, not word.startswith("FORGET"), user, items or [None], at_ms, seqs, sure)

    def writes(self):
        lead = [s for s in self.nodes if (self.look(s) or {}).get("role") == b"primary"]
        for _ in range(self.random.randint(1, 4) if lead else 0):
            self.advance(1000)
            self.write(self.random.choice(lead))

    def killed_while_it_writes(self):
        server = self.leader()
        self.up(server)
        timer = threading.Timer(self.random.random() * 0.02, server.process.kill)
        timer.start()
        while server.process.poll() is None:
            self.advance(1000)
            self.write(server)
        timer.join()
        self.drop(server)

    def flood(self):
        server = self.leader()
        if self.small and server.alive() and server not in self.frozen and server not in self.broken:
            self.story.append(f"flood {server.folder.name}")
            with server.client() as link:
                link.pipeline([("PLAYED", f"filler{i}", *(f"{i}:{k}" + "x" * 200 for k in range(10))) for i in range(600)])

    def swell(self):
        """Staging memory of one node alone is full, and nothing can be flushed there: plays are refused, or wait."""
        leader, server = self.leader(), self.random.choice(self.nodes)
        if self.small or not server.launcher or any(not s.alive() or s in self.frozen or s in self.broken
                                                    for s in (leader, server)):
            return
        server.switch.write_text("!history.db-wal")
        self.broken.add(server)
        self.set(server, staging_memory="4MiB")
        with leader.client() as link:
            for i in range(220):
                link.send(encode("DELIVERED", f"filler{i}", *(f"{i}:{k}" + "x" * 240 for k in range(100))))
                while not select.select([link.sock], [], [], 0.5)[0]:
                    self.advance(61000)  # what waits for memory is refused then
                try:
                    said = link.read()
                except Closed:
                    return
                assert isinstance(said, int) or str(said).startswith(("BUSY", "MISCONF", "READONLY")), said
        self.advance(61000)
        self.story.append(f"the staging memory of {server.folder.name} is full")

    def flush(self):
        server = self.random.choice(self.nodes)
        self.story.append(f"flush {server.folder.name}")
        if server.alive():
            try:
                self.ask(server, "RING", "FLUSH")
            except RespError as refused:
                self.story.append(str(refused))

    # --- surroundings ---

    def hour(self):
        self.story.append("an hour")
        self.advance(HOUR)

    def minute(self):
        self.story.append("eleven minutes")
        self.advance(11 * 60000)

    def set(self, server, **options):
        self.story.append(f"{server.folder.name}: {options}")
        server.options.update(options)
        self.go_on(server)
        if server.alive():
            reload(server)

    def settings(self):
        server = self.random.choice(self.nodes)
        self.set(server, **self.random.choice([{"window": "1"}, {"delivered_max": "60"}, {"min_free": "16TiB"}]))

    def restore(self):
        for server in self.nodes:
            if (server.options.get("window"), server.options.get("delivered_max")) != (None, None) or \
                    server.options["min_free"] != "0":
                server.options.pop("window", None)
                server.options.pop("delivered_max", None)
                self.set(server, min_free="0")

    def cut(self, server=None):
        server, shape = server or self.random.choice(self.nodes), self.random.choice(SHAPES)
        self.story.append(f"{shape}: to {server.folder.name}")
        server.wire.set(shape)

    def heal(self):
        self.story.append("heal")
        for wire in self.wires:
            wire.set(OPEN)

    # --- the operator ---

    def promote(self, server=None, force=None):
        draw, leader = self.random, self.leader()
        others = [s for s in self.nodes if s.whole and not s.reign]
        server = server or (draw.choice(others) if others else None)
        if server is None:
            return
        if draw.random() < 0.3:
            for old in self.nodes:
                if old.reign or old is server:
                    self.down(old)  # "stop that first"
            words = self.command(server, "promote")
        else:
            self.up(server)
            words = ["promote", "--to", f"127.0.0.1:{server.port}"]
        if draw.random() < 0.25 and force is None:
            self.story.append(self.cut_short(words, 0.1, *(s for s in (server, leader) if s.alive())))
            self.up(server)
        if server.reign is None or server.term <= leader.term:
            code, said = self.run(*words)
            if code == 1 and "force" in said.lower() and (draw.random() < 0.5 if force is None else force):
                code, said = self.run(*words, "--force")
        self.up(server)
        if server.reign and "take replica_of out of it" in server.log() and draw.random() < 0.5:
            server.options.pop("replica_of", None)

    def part(self):
        """Two primaries, and clients of both."""
        self.cut(self.leader())
        self.promote(force=True)

    def back(self):
        """An old primary leads once more, without what its successor has; and who has followed that one is to follow."""
        fenced = [s for s in self.nodes if s.reign and (self.look(s) or {}).get("role") == b"fenced"]
        if fenced:
            old = self.random.choice(fenced)
            how = self.random.choice(["served", "started again", "a folder"]) if self.swells else "served"
            if how != "served":
                self.down(old)
            if how == "started again":
                self.up(old)
            words = self.command(old, "promote") if how == "a folder" else ["promote", "--to", f"127.0.0.1:{old.port}"]
            self.run(*words, "--force")
            self.up(old)

    def rejoin(self, server):
        leader, old = self.leader(), server.reign
        self.up(leader)
        if server is leader or old is None:
            return
        leader.wire.set(OPEN)  # an operator sees that nothing happens, and looks why
        self.down(server)
        words, first = self.command(server, "rejoin", leader.wire.address), self.last(leader)
        said, policy = "", ()
        for _ in range(self.random.choice([0, 0, 1, 2])):
            said += self.cut_short(words, 0.3, leader)
            self.up(leader)
        self.story.append(said)
        code, text = self.run(*words)
        if "--forgets apply" in text:
            policy = ("--forgets", self.random.choice(["apply", "leave"]))
            said += text
            code, text = self.run(*words, *policy)
        said += text
        whole = code in (0, 3) or "is a replica's already" in text
        forgets = policy[1] if policy else "leave" if "not carried out" in said + leader.log() else "spare"
        self.branches.unite(old, leader.reign, (first, self.last(leader)), whole, "can't be told by its feed" not in said,
                            forgets)
        if whole:
            server.more, server.reign, server.whole = set().union(*old.state()), None, code != 3
            self.obey(server, text)
        if code == 3:
            self.clone(server)

    def clone(self, server):
        leader = self.leader()
        self.up(leader)
        if server is leader or server.reign:
            return
        leader.wire.set(OPEN)  # an operator sees that nothing happens, and looks why
        self.down(server)
        words = self.command(server, "clone", leader.wire.address)
        if self.random.random() < 0.3:
            self.story.append(self.cut_short(words, 0.2, leader))
            self.up(leader)
        code, said = self.run(*words)
        if code and ("delete it" in said or "left to be deleted" in said):
            shutil.rmtree(f"{server.data}.clone")
            code, said = self.run(*words)
        if code == 0:
            server.more, server.whole = set(), True
            self.obey(server, said)
            self.up(server)

    def obey(self, server, said):
        """next: set of = ADDRESS in the section [replica] of its configuration"""
        if "set of = " in said:
            server.options["replica_of"] = said.split("set of = ")[1].split()[0]

    def operate(self, server=None):
        """What the log and the documents say. Whether there was something to do."""
        server, leader = server or self.random.choice(self.nodes), self.leader()
        self.up(server)
        state = self.look(server)
        if server is leader:
            return False
        if state is None:
            self.clone(server)
            return True
        if state["role"] == b"fenced":
            self.rejoin(server)
            return True
        problem = state["follower"].get("problem", b"").decode()
        doing = state["follower"].get("state")
        if state["role"] == b"primary" or doing == b"in step":
            return False
        if "either promote the replica, or clone it again" in problem and self.random.random() < 0.3 and not self.hurry:
            self.promote(server)
        elif doing == b"lost" or "unseen clone" in problem or "clone it again" in problem:
            self.clone(server)
        elif server.options.get("replica_of") != leader.wire.address:
            self.story.append(f"{server.folder.name}: of = {leader.wire.address}")
            server.options["replica_of"] = leader.wire.address
            self.down(server)
            self.up(server)
        elif self.hurry and doing == b"refused":
            self.down(server)  # it would try again in ten seconds
            self.up(server)
        return True

    # --- the course ---

    def step(self):
        what = self.random.choices(
            [self.writes, self.flush, self.hour, self.minute, self.kill, self.killed_while_it_writes, self.supervise,
             self.restart, self.promote, self.part, self.operate, self.settings, self.restore, self.cut, self.heal, self.flood,
             self.swell, self.check, self.back, self.stand_still, self.go_on, self.break_disk, self.mend],
            [30, 4, 0.3, 1, 3, 1, 6, 1, 3, 3, 7, 2, 3, 3, 4, 1, self.swells, 3, 2, 2, 3, 2, 3])[0]
        what()

    def check(self):
        """Each node that leads, or did, answers what it has."""
        for server in self.nodes:
            if server.reign and server.alive() and server not in self.frozen and server not in self.broken:
                self.compare(server, server.reign)

    def compare(self, server, reign):
        answers = self.answers(server)
        for user in FEW_USERS:
            for item in FEW_ITEMS:
                word = self.branches.word(reign, user, item)
                assert word is None or (item in answers[user]) == word, (server.folder.name, user, item, word)
        return answers

    def settle(self):
        """One primary, and all are level."""
        self.story.append("--- settle")
        self.hurry = True
        self.go_on()
        self.mend()
        self.heal()
        self.restore()
        for round in range(40):
            self.supervise()  # a promotion of a folder has stopped the others
            leader = self.leader()
            if (self.look(leader) or {}).get("role") != b"primary":
                self.find_a_leader()
                continue
            others = [s for s in self.nodes if s is not leader]
            if not any([self.operate(server) for server in self.nodes]) and leader is self.leader() and \
                    all(s.reign is None and self.is_level(s, self.look(leader)["last"]) for s in others):
                break  # one that isn't level yet may still find that it is lost
            self.advance(1000)
            self.wait(leader)
        else:
            raise AssertionError(("they don't come to one primary", [self.look(s) for s in self.nodes]))
        self.advance(20000)
        last = self.look(leader)["last"]
        until(lambda: all(self.is_level(s, last) for s in self.nodes if s is not leader),
              lambda: [(s.folder.name, self.look(s)) for s in self.nodes], 60)
        return leader

    def is_level(self, server, last):
        state = (self.look(server) or {}).get("follower", {})
        return state.get("applied", -1) >= last and state.get("state") == b"in step"

    def wait(self, leader):
        """For what comes by itself: an old primary hears of its successor, a replica connects."""
        def rests():
            states = [self.look(s) for s in self.nodes if s is not leader and s.alive()]
            return all(s["role"] != b"primary" and s["follower"].get("state") not in (b"connecting", b"catching up")
                       for s in states)
        try:
            until(rests, patience=4)
        except AssertionError:
            pass

    def find_a_leader(self):
        for force in (False, True):
            for server in self.nodes:
                state = self.look(server)
                if state and state["role"] == b"replica":
                    self.promote(server, force)
                    if (self.look(server) or {}).get("role") == b"primary":
                        return

    def end(self):
        leader = self.settle()
        answers = [self.compare(server, leader.reign) for server in self.nodes]
        assert answers[0] == answers[1] == answers[2]
        for server in self.nodes:
            if server is not leader:
                done = run("replica", "--verify", "--from", f"127.0.0.1:{leader.port}", "--to", f"127.0.0.1:{server.port}",
                           check=False)
                assert done.returncode == 0, done


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """None: nothing may stand before the C library, or there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or "san" in BUILD.name:
        return None
    made = tmp_path_factory.mktemp("disk") / "frozen_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, REPO / "tests/e2e/frozen_disk.c", "-ldl"], check=True)
    return made


@pytest.fixture
def group(folder, library):
    made = []

    def make(seed):
        made.append(Group(folder, seed, library))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_a_forget_may_be_ahead_of_its_position():
    """A replica that was killed behind it has carried it out, and its position is before it."""
    b = Branches()
    old = b.begin("a", 0, "", 0)
    b.record(old, True, "u", ["x", "y"], 1000, (100, 101), True)
    b.record(old, False, "u", ["x"], 2000, (101, 102), True)
    b.record(old, True, "u", ["z"], 3000, (102, 103), True)
    b.record(old, False, "u", ["y"], 4000, (103, 104), True)
    new = b.begin("b", 500, "a", 101)
    assert [b.word(new, "u", item) for item in "xyz"] == [None, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [int(seed) for seed in ONE.split()] or range(SEEDS))
def test_they_come_to_one_history(seed, group):
    g = group(seed)
    try:
        for _ in range(STEPS):
            g.step()
        g.end()
    except Exception:
        print("\n".join(map(str, g.story)))
        for server in g.nodes:
            print(f"--- log of {server.folder.name} ---\n{server.log()[-6000:]}")
        raise
