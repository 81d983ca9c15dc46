"""The subcommands on a real pool: what opens a data folder opens the pool, beside the node that serves it, and what has
nothing to do there is refused by name. The table of them is in docs/rados.md."""
import json
import pathlib
import re
import tempfile
import time

import pytest

from ceph_cluster import Cluster
from conftest import end_to_end
from rados_load import Load
from test_rados import MODULES, Node, init

Server, run, PATIENCE = end_to_end.Server, end_to_end.run, end_to_end.PATIENCE
POOL = "commands"


class Setting:
    def __init__(self, folder):
        self.folder = folder
        (folder / "ceph").mkdir()
        self.cluster = Cluster(folder / "ceph", store="memstore")
        self.node = Node(folder / "node", self.cluster, POOL)
        self.others = []
        try:
            self.cluster.pool(POOL)
            init(self.cluster, POOL)
            self.node.start()
        except BaseException:
            self.stop()
            raise

    def stop(self):
        codes = [server.stop() for server in [self.node, *self.others]]
        self.cluster.stop()
        assert all(code in (0, None) for code in codes), codes

    def unseen(self, *words, pool=POOL, check=True):
        return run(*words, "-c", "/dev/null", "--store", "rados", "--rados-pool", pool, "--rados-conf",
                   self.cluster.client_conf, "--modules", MODULES, check=check)

    def refused(self, *words, **options):
        done = self.unseen(*words, check=False, **options)
        assert done.returncode != 0, (words, done.stdout)
        return done.stderr.decode().splitlines()[-1]

    def json(self, *words, **options):
        return json.loads(self.unseen(*words, "--json", **options).stdout)

    def other(self, name, pool=None):
        """A further server: on a pool, or on a folder of its own."""
        made = Node(self.folder / name, self.cluster, pool) if pool else None
        if made is None:
            (self.folder / name).mkdir()
            made = Server(self.folder / name, clock=None, wait=False)
        self.others.append(made)
        return made.start()


@pytest.fixture(scope="module")
def setting():
    with tempfile.TemporaryDirectory(prefix="unseen-commands-") as folder:
        made = Setting(pathlib.Path(folder))
        yield made
        made.stop()


def test_one_user(setting):
    say = setting.node.say
    say("PLAYED", "reader", *(f"i{i}" for i in range(70)))
    say("DELIVERED", "reader", "sent")
    shown = setting.json("user", "reader")
    assert shown["user"] == "reader" and shown["delivered"] == 1
    assert shown["staged"] + sum(month["items"] for month in shown["months"]) >= 70
    assert setting.unseen("user", "nobody").stdout == b"nobody: never heard of, so everything is unseen\n"
    assert setting.json("why", "reader", "i3")["seen"] is True
    assert [place["place"] for place in setting.json("why", "reader", "sent")["places"]] == ["delivered"]
    assert setting.json("why", "reader", "never")["seen"] is False


def test_months_say_how_old_they_are(setting):
    assert setting.json("months") == {"months": []}
    assert setting.unseen("months").stdout == b"no month is known yet: no nightly walk has found one\n"


def test_a_sound_pool_and_one_with_strangers(setting):
    setting.node.say("PLAYED", "checked", "a")
    sound = setting.json("check")
    assert sound["problems"] == [] and sound["complete"] and sound["users"] > 0, sound
    assert b": 0 problems\n" in setting.unseen("check", "--rate", "50").stdout
    with setting.cluster.admin.open_ioctx(POOL) as io:
        io.write_full("stranger", b"")
        done = setting.unseen("check", check=False)
        assert done.returncode == 1
        assert b'object "stranger": Unseen didn\'t write it\n' in done.stdout
        assert done.stdout.endswith(b": 1 problem\n")
        io.remove_object("stranger")
    assert setting.refused("check", "--rate", "fast") == (
        "unseen check: --rate 'fast': expected a number of objects a second, at most 1000000")


def loaded(setting, *words, **options):
    return setting.json("load", *words, **options)["loaded"]


def test_a_folder_into_a_pool_and_back(setting):
    """A pool that isn't ready adopts the file's seed. There and back each says the same."""
    folder, file = setting.other("folder"), setting.folder / "folder.unseen"
    say = folder.client().command
    users = [f"moved/{i}" for i in range(30)]
    for number, user in enumerate(users):
        say("PLAYED", user, *(f"i{i}" for i in range(number + 1)))
        say("DELIVERED", user, "sent")
    say("RING", "FLUSH")
    assert say("FORGET", users[3], "i1") == 1
    assert say("FORGET", users[4]) == 1
    say("PLAYED", users[5], "staged")
    run("export", file, "--data", folder.data)
    setting.cluster.pool("moved")
    assert loaded(setting, file, pool="moved") == 29
    assert loaded(setting, file, pool="moved") == 29  # again is once
    node = setting.other("moved", "moved")
    back = setting.folder / "pool.unseen"
    assert setting.json("export", back, pool="moved")["users"] == 29
    copy = setting.folder / "copy"
    assert json.loads(run("load", back, "--data", copy, "--json").stdout)["loaded"] == 29
    for user in users:
        items = [f"i{i}" for i in range(31)] + ["sent", "staged", "never"]
        before = say("SEEN", user, *items)
        assert node.say("SEEN", user, *items) == before, user
        told = json.loads(run("user", user, "--data", copy, "--json").stdout)
        assert (told is None) == (user == users[4])
        assert before == [int(json.loads(run("why", user, item, "--data", copy, "--json").stdout)["seen"])
                          for item in items[:3]] + before[3:], user
    assert node.say("HISTORY", users[4]) is None
    assert re.search("was made ready with another seed than the file's", setting.refused("load", file))
    # And through a node, which is no other way.
    assert json.loads(run("load", file, "--to", f"127.0.0.1:{node.port}", "--json").stdout)["loaded"] == 29


def test_an_export_while_plays_come(setting):
    """All that was acknowledged before is in it; a forgotten user stays so in what is made of it."""
    load = Load([setting.node], threads=3, name="busy")
    try:
        load.wait(300)
        setting.node.say("PLAYED", "left", "a")
        assert setting.node.say("FORGET", "left") == 1
        setting.node.say("PLAYED", "stays", "a")
        file = setting.folder / "busy.unseen"
        setting.unseen("export", file)
        load.wait(100)
    finally:
        load.stop()
    load.check()
    setting.cluster.pool("restored")
    loaded(setting, file, pool="restored")
    restored = setting.other("restored", "restored")
    assert restored.say("SEEN", "stays", "a") == [1]
    assert restored.say("HISTORY", "left") is None
    one = setting.folder / "one.unseen"
    assert setting.json("export", one, "--user", "stays")["users"] == 1
    assert setting.json("check", pool="restored")["problems"] == []


def test_files_of_plays(setting):
    at = int(time.time() * 1000) - 3600 * 1000
    file = setting.folder / "plays.tsv"
    file.write_text("".join(f"{at + i}\tfiled{i % 50}\titem{i}\n" for i in range(2000)))
    assert setting.json("import", file)["events"] == 2000
    setting.unseen("import", file)  # again is once
    for i in range(0, 2000, 97):
        assert setting.node.say("SEEN", f"filed{i % 50}", f"item{i}", "never") == [1, 0]
    assert setting.node.say("FORGET", "filed7") == 1
    setting.unseen("import", file)  # older than the forget
    assert setting.node.say("HISTORY", "filed7") is None


def test_what_doesnt_go_with_a_pool(setting):
    """Each subcommand but those above, by name, with what stands instead."""
    node = "--to", f"127.0.0.1:{setting.node.port}"
    for words, text in [
        (["backup", str(setting.folder / "b")],
         'unseen: the store "rados" has no folder to copy: unseen export makes a copy of its users'),
        (["clock"], "unseen: the clock of a pool is for its nodes to change: send CLOCK to one of them"),
        (["clock", "--accept"], "unseen: the clock of a pool is for its nodes to change: send CLOCK to one of them"),
        (["check", "--repair"], "unseen: --repair doesn't go with store = rados: Ceph repairs what a disk has spoilt"),
        (["check", "--salvage", "x"], "unseen: --salvage doesn't go with store = rados: Ceph repairs"),
        (["promote"], "unseen: store = rados has no data folder, and this works on one"),
        (["clone", "127.0.0.1:1"], "unseen: store = rados has no data folder, and this works on one"),
        (["rejoin", "127.0.0.1:1"], "unseen: store = rados has no data folder, and this works on one"),
        (["import", "--dead-letters"], "unseen: store = rados has no data folder: name the FILEs"),
        (["kafka", "--status", *node], f"unseen: {node[1]}: ERR no Kafka is configured"),
        (["migrate", "--status", *node], "unseen: the server knows no Redis to come from"),
    ]:
        assert setting.refused(*words).startswith(text), (words, setting.refused(*words))


def test_a_node_is_found_by_the_configuration(setting):
    listen = "--listen", f"127.0.0.1:{setting.node.port}"
    assert setting.unseen("ping", *listen).stdout == f"127.0.0.1:{setting.node.port} answers\n".encode()
    setting.node.say("POOL", "SET", "hot", "a", "b")
    assert setting.unseen("pool", "get", "hot", *listen).stdout == b"a\nb\n"
    assert setting.refused("ping", "--listen", f"127.0.0.1:{end_to_end.free_port()}").startswith("unseen: 127.0.0.1:")
