"""Three nodes on one pool of a real cluster of Ceph, under load, while its parts die, freeze, fill up, come and go.

A ledger knows what was acknowledged. Whatever happens: 0 acknowledged plays lost, no forgotten user back, and every node
gives the same answer at once.
"""
import itertools
import pathlib
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ceph_cluster import Cluster
from conftest import end_to_end
from rados_load import Load
from resp import encode

Server, RespError, PATIENCE, run = end_to_end.Server, end_to_end.RespError, end_to_end.PATIENCE, end_to_end.run
POOL = "unseen"
MODULES = end_to_end.BUILD
NIGHTS = 30  # of December: enough for all users


def until(wanted, what, patience=PATIENCE):
    return end_to_end.until(wanted, lambda: what, patience)


def init(cluster, pool=POOL, *more, check=True):
    return run("rados", "init", "--pool", pool, "--rados-conf", cluster.client_conf, "-c", "/dev/null",
               "--modules", MODULES, *more, check=check)


class Node(Server):
    def __init__(self, folder, cluster, pool=POOL, **options):
        folder.mkdir()
        options.setdefault("clock", None)
        options.setdefault("rados_timeout", "10s")
        for edge in ("http", "grpc"):  # known before it is started, and the same when it is started again
            options.setdefault(edge, f"127.0.0.1:{end_to_end.free_port()}")
        super().__init__(folder, wait=False, store="rados", rados_conf=str(cluster.client_conf), rados_pool=pool,
                         modules=str(MODULES), **options)
        del self.options["min_free"]  # there is no disk

    def stats(self):
        lines = self.say("INFO", "stats").decode().splitlines()
        return {name: int(value) for name, _, value in (line.partition(":") for line in lines) if value.isdigit()}

    def say(self, *words):
        with self.client() as link:
            return link.command(*words)


def answers(node):
    try:
        return node.say("PLAYED", "anybody", "a") == 1
    except RespError:
        return False


class Setting:
    def __init__(self, folder):
        self.folder = folder
        (folder / "ceph").mkdir()
        self.cluster = Cluster(folder / "ceph")
        self.nodes = [Node(folder / name, self.cluster) for name in "abc"]
        try:
            self.cluster.pool(POOL)
            init(self.cluster)
            for node in self.nodes:
                node.start()
        except BaseException:
            self.stop()
            raise

    def stop(self):
        problems = []
        for node in self.nodes:
            code = node.stop()
            if code not in (None, 0, -9) or "Sanitizer" in node.log():
                problems.append((node.folder.name, code, node.log()[-8000:]))
        self.cluster.stop()
        assert not problems, problems


@pytest.fixture(scope="module")
def setting():
    with tempfile.TemporaryDirectory(prefix="unseen-ceph-") as folder:
        made = Setting(pathlib.Path(folder))
        yield made
        made.stop()


@pytest.fixture
def load(setting, request):
    """It runs until the test is over; then every node must say what the ledger does, before and after all has come to
    rest."""
    made = Load(setting.nodes, name=request.node.name[:30] + ":")
    try:
        made.wait(200)
        yield made
    finally:
        made.stop()
    if getattr(request.node, "failed", False):
        for node in setting.nodes:
            print(f"--- log of {node.folder.name} ---\n{node.log()[-8000:]}")
    setting.cluster.wait_clean(POOL)
    assert made.check() > 100
    with setting.nodes[0].client() as link:
        for user in made.users():
            user.settle(lambda name, items: link.command("SEEN", name, *items))
    made.check()


def test_nothing_happens(setting, load):
    load.wait(2000)
    assert load.refused == 0 and load.unanswered == 0 and load.asked > 100, load.words
    assert all(n > 100 for n in load.edges.values()), load.edges


def test_every_osd_is_killed_in_turn(setting, load):
    """Never is a play refused: writes wait until the others have taken over."""
    cluster = setting.cluster
    for number in list(cluster.osds):
        began = time.monotonic()
        cluster.kill(number)
        load.wait(500)
        assert load.pause(began) < 5, (number, load.pause(began))
        cluster.restart(number)
        cluster.wait_clean(POOL)
    assert load.refused == 0, load.words


def test_the_monitor_is_killed(setting, load):
    """Who is connected goes on without it. A node that is started meanwhile waits for it."""
    cluster = setting.cluster
    cluster.mon.kill()
    load.wait(1000)
    assert load.refused == 0, load.words
    cluster.mon.start()
    load.wait(500)


def test_an_osd_freezes(setting, load):
    """Its users wait until the others have noticed, and are then served by them. What it still had in its hands when it
    thaws is void."""
    cluster = setting.cluster
    number = cluster.primary(POOL, "meta")
    began = time.monotonic()
    cluster.osds[number].freeze()
    cluster.wait_down(number)
    load.wait(500)
    assert load.pause(began) < 15, load.pause(began)
    cluster.osds[number].thaw()
    cluster.wait_up(number)
    load.wait(500)


def test_an_osd_is_added_and_one_removed(setting, load):
    """Everything moves meanwhile, and nobody notices."""
    cluster = setting.cluster
    added = cluster.add()
    load.wait(500)
    cluster.wait_clean(POOL)
    gone = next(n for n in cluster.osds if n != added)
    cluster.drain(gone)
    load.wait(500)
    cluster.wait_clean(POOL)
    cluster.remove(gone)
    load.wait(500)
    assert load.refused == 0, load.words


def test_two_replicas_are_down(setting, load):
    """Writes stop, and say so; nothing is acknowledged that one disk alone would have. With them the same goes on."""
    cluster = setting.cluster
    dead = list(cluster.osds)[:2]
    for number in dead:
        cluster.kill(number)
    cluster.wait_down(*dead)
    until(lambda: load.refused > 6, "writes are refused")
    before = load.count()
    until(lambda: load.refused > 12, "and no write is acknowledged")
    assert load.count() == before, load.words
    for number in dead:
        cluster.restart(number)
    load.wait(500)


def takes(node, *words):
    try:
        node.say(*words)
        return True
    except RespError:
        return False


def test_a_full_osd(setting, load):
    """Plays are refused and say why, of users who are there, too: Ceph itself would take their keys until its OSDs end
    themselves. Questions go on, and a user can be forgotten, which makes room; beyond osd_failsafe_full_ratio as well.
    With room all goes on by itself."""
    cluster, (node, other, _) = setting.cluster, setting.nodes
    for name in ("leaves", "leaves too", "stays"):
        node.say("PLAYED", name, "a")
    items = itertools.count()
    try:
        for failsafe, name in ((0.97, "leaves"), (0.0004, "leaves too")):
            cluster.fullness(0.0001, 0.0002, 0.0003, failsafe)
            with pytest.raises(RespError, match="full"):
                until(lambda: node.say("PLAYED", "stays", f"late{next(items)}") is None, "full")
            if failsafe < 0.1:
                cluster.until(lambda: "failsafe engaged" in cluster.log("cluster"), "failsafe")
            began = time.monotonic()
            for _ in range(20):
                with pytest.raises(RespError, match="full"):
                    node.say("PLAYED", "stays", "never")
            assert time.monotonic() - began < 5, "each at once, not after rados_timeout"
            assert other.say("SEEN", name, "a") == [1]
            assert other.say("FORGET", name) == 1
            until(lambda: load.refused > 100, "everybody is told")
            asked = load.asked
            assert other.say("SEEN", "stays", "a", "never") == [1, 0]
            assert load.unanswered == 0 and load.asked >= asked, load.words
    finally:
        cluster.fullness()
    load.wait(500)
    for each in setting.nodes:
        until(lambda: takes(each, "PLAYED", "stays", "after all"), "each node notices by itself")
    assert all("RADOS: the cluster, or the pool" in word for word in load.words), load.words


def address(node):
    """Under which the cluster knows it now, as its log says."""
    return [line for line in node.log().splitlines() if "connected to RADOS" in line][-1].split("address=")[1].split()[0]


def test_a_node_is_blocklisted_again_and_again(setting, load):
    """Its clients are told, and a new one of it connects by itself: none is started again."""
    cluster = setting.cluster
    before = {node: node.stats()["reconnects"] for node in setting.nodes}
    for node in setting.nodes * 2:
        load.wait(300)
        was = address(node).strip('"')
        cluster.command("osd blocklist", blocklistop="add", addr=was)
        until(lambda node=node, was=was: address(node).strip('"') != was, f"{was} is replaced")
        until(lambda node=node: answers(node), "and serves")
    load.wait(300)
    for node in setting.nodes:
        assert node.alive() and node.stats()["reconnects"] == before[node] + 2
    cluster.command("osd blocklist clear")


def test_a_node_is_killed_again_and_again(setting, load):
    """With whatever it had in its hands, merges among it. The others serve its users at once."""
    for i in range(6):
        node = setting.nodes[i % 3]
        load.wait(300)
        node.kill()
        load.wait(300)
        node.start()


def test_a_node_is_killed_in_a_merge(setting, load):
    """The OSD of a user stands still while a node merges them: the node is killed with its write on the way."""
    cluster, (a, b, c) = setting.cluster, setting.nodes
    items = [f"merged:{i}" for i in range(63)]
    for name in ("mergeable1", "mergeable2", "mergeable3"):
        assert a.say("PLAYED", name, *items) == 63
        number = cluster.primary(POOL, name)
        cluster.osds[number].freeze()
        try:
            with a.client() as link:
                link.send(encode("PLAYED", name, "one more"))  # the 64th
                end_to_end.pause(0.2, "a write on its way to an OSD that stands still")
                a.kill()
        finally:
            cluster.osds[number].thaw()
        cluster.wait_up(number)
        assert b.say("PLAYED", name, "another") == 1  # merges, too
        for node in (b, c):
            assert node.say("SEEN", name, *items, "another") == [1] * 64
        a.start()
        assert a.say("SEEN", name, *items, "another") == [1] * 64


class Giant:
    """Recorders of one user, each through a node of its own, and askers; what was acknowledged must be seen everywhere."""

    def __init__(self, nodes, user, batches, n):
        self.user, self.nodes, self.batches, self.n = user, nodes, batches, n
        self.acknowledged = [0] * len(nodes)  # batches, of each recorder
        self.problems, self.asked = [], 0

    def items(self, recorder, batch):
        return [f"{recorder}:{batch}:{i}" for i in range(self.n)]

    def record(self, recorder):
        with self.nodes[recorder].client() as link:
            for batch in range(self.batches):
                assert link.command("PLAYED", self.user, *self.items(recorder, batch)) == self.n
                self.acknowledged[recorder] += 1

    def ask(self, asker):
        chance = random.Random(asker)
        with self.nodes[asker].client() as link:
            while any(done < self.batches for done in self.acknowledged) and not self.problems:
                recorder = chance.randrange(len(self.nodes))
                if (done := self.acknowledged[recorder]) > 0:
                    batch = chance.choice((done - 1, chance.randrange(done)))
                    self.compare(link, self.items(recorder, batch), (asker, recorder, batch))
                    self.asked += 1

    def compare(self, link, items, where):
        if not all(seen := link.command("SEEN", self.user, *items)):
            self.problems.append((where, seen.count(0), items[seen.index(0)]))

    def check(self, also):
        """All of it, from every node."""
        played = [item for recorder in range(len(self.nodes)) for batch in range(self.batches)
                  for item in self.items(recorder, batch)] + also
        for number, node in enumerate(self.nodes):
            with node.client() as link:
                for first in range(0, len(played), 10000):
                    self.compare(link, played[first:first + 10000], (number, first))
                never = link.command("SEEN", self.user, *(f"never:{i}" for i in range(10000)))
                assert sum(never) < 60, "one in a thousand"
        assert not self.problems, self.problems[:5]


def test_a_giant_is_recorded_asked_merged_imported_and_forgotten_from_three_nodes(setting):
    """200,000 plays of one user, all at once: through every node, by import of their months from a folder, and again."""
    cluster, folder, seed = setting.cluster, setting.folder, "00000000deadbeef"
    cluster.pool("giants")
    init(cluster, "giants", "--hash-seed", seed)
    now = int(time.time() * 1000)
    imported = [f"imported:{i}" for i in range(70000)]
    (folder / "giant.tsv").write_text("".join(f"{now - i % 50 * end_to_end.DAY}\tgiant\t{item}\n"
                                              for i, item in enumerate(imported)) +
                                      "".join(f"{now}\tother{i % 500}\t{i}\n" for i in range(5000)))
    whose = ("-c", "/dev/null", "--data", folder / "giant", "--hash-seed", seed)
    run("import", *whose, folder / "giant.tsv")
    run("export", *whose, folder / "giant.unseen")
    nodes = [Node(folder / f"giant{i}", cluster, "giants") for i in range(3)]
    for node in nodes:
        node.start()
    giant = Giant(nodes, "giant", batches=60, n=700)

    def load(node):
        run("load", "--to", "%s:%d" % node.address, folder / "giant.unseen")
    try:
        with ThreadPoolExecutor(9) as crowd:
            work = [crowd.submit(do, i) for do in (giant.record, giant.ask) for i in range(3)]
            work += [crowd.submit(load, node) for node in nodes[:2]]
            for one in work:
                one.result()
        assert giant.asked > 10 and sum(stats(node)["users_flushed"] for node in nodes) > 3
        giant.check(imported)
        # A forget while merges of what was just recorded are under way: nothing comes back.
        with nodes[0].client() as link, ThreadPoolExecutor() as crowd:
            late = [crowd.submit(node.say, "PLAYED", "giant", *(f"late:{i}" for i in range(n, 900, 3)))
                    for n, node in enumerate(nodes)]
            for one in late:
                assert one.result() == 300
            assert link.command("FORGET", "giant") == 1
        for node in nodes:
            assert node.say("HISTORY", "giant") is None
            assert not any(node.say("SEEN", "giant", *giant.items(0, 7), *imported[:1000], "late:0"))
            assert node.say("SEEN", "other7", "7", "507") == [1, 1]
        assert nodes[1].say("PLAYED", "giant", "again") == 1
        assert [node.say("SEEN", "giant", "again", "late:1") for node in nodes] == [[1, 0]] * 3
    finally:
        codes = [node.stop() for node in nodes]
        cluster.drop_pool("giants")
    assert codes == [0] * 3, [node.log()[-4000:] for node in nodes]


def stats(node):
    """The numbers of INFO stats."""
    lines = node.say("INFO", "stats").decode().split("\r\n")
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines) if value.isdigit()}


def test_two_nodes_walk_at_night(setting):
    """Their clocks are the test's. Every user is walked in four weeks, by one of the two, while plays come in: what is past
    retention goes, and nothing else."""
    cluster = setting.cluster
    cluster.pool("nights")
    init(cluster, "nights")
    nodes = [Node(setting.folder / f"walker{i}", cluster, "nights", clock=end_to_end.START + 9 * end_to_end.DAY)
             for i in range(2)]
    for node in nodes:
        node.start()
    try:
        users, old = [f"n{i}" for i in range(60)], end_to_end.START - 200 * end_to_end.DAY  # May
        for user in users:
            assert nodes[0].say("PLAYEDAT", user, old, "old:1", "old:2") == 2
            assert nodes[1].say("PLAYED", user, *(f"new:{i}" for i in range(70))) == 70

        def live(node, word):
            node.advance(16 * end_to_end.HOUR)  # to two o'clock
            for night in range(NIGHTS):
                node.advance(end_to_end.DAY)
                for user in users[night % 7::7]:
                    node.say("PLAYED", user, f"{word}:{night}")
        with ThreadPoolExecutor() as both:
            list(both.map(live, nodes, ("one", "other")))
        months = [[month[1] for month in node.say("MONTHS")] for node in nodes]
        assert months[0] == months[1] and b"2026-05" not in months[0] and b"2026-11" in months[0], months
        for number, user in enumerate(users):
            items = [f"new:{i}" for i in range(70)] + [f"{word}:{night}" for word in ("one", "other")
                                                       for night in range(NIGHTS) if number % 7 == night % 7]
            for node in nodes:
                assert node.say("SEEN", user, *items) == [1] * len(items), user
                assert b"2026-05" not in str(node.say("HISTORY", user)).encode()
    finally:
        codes = [node.stop() for node in nodes]
    assert codes == [0, 0], [node.log()[-4000:] for node in nodes]
