"""unseen export and unseen load: users on the move between machines, and two nodes that heal after an outage.

The oracle is exact: whatever was acknowledged by either node is never unseen afterwards, on the node that has the user.
"""
import contextlib
import json
import random
import re
import resource
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import DAY, HOUR, PATIENCE, START, UNSEEN, Server, run
from resp import Closed, RespError
from test_lying_redis import Liar

SEED = "00c0ffee12345678"


def export(data, path, *args, check=True):
    return run("export", path, "--data", data, "--timezone", "UTC", *args, check=check)


def load(server_or_data, *paths, check=True, clock=START, args=(), **kwargs):
    if isinstance(server_or_data, Server):
        to = ("--to", f"127.0.0.1:{server_or_data.port}")
    else:
        to = ("--data", server_or_data, "--test-clock", clock, "--min-free", "0")
    return run("load", *paths, *to, *args, "--timezone", "UTC", check=check, **kwargs)


def played(c, user, *items):
    c.command("PLAYED", user, *items)


def unseen(server, user, items):
    with server.client() as c:
        return [item.decode() for item in c.command("UNSEEN", user, *items)]


def sound(server):
    """Stopped, and read through."""
    assert server.stop() == 0, server.log()
    report = json.loads(run("check", "--json", "--data", server.data).stdout)
    assert report["problems"] == []


def keyslot(user):
    crc = 0
    for byte in user.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc % 16384


class Writer(threading.Thread):
    """Plays and deliveries to one node, for as long as it goes; what was acknowledged is kept."""

    def __init__(self, server, name, users):
        super().__init__()
        self.server, self.name, self.users = server, name, users
        self.plays = {}
        self.sent = {}
        self.end = threading.Event()
        self.rounds = 0

    def run(self):
        rng = random.Random(self.name)
        try:
            with self.server.client() as c:
                while not self.end.is_set():
                    user = rng.choice(self.users)
                    items = [f"{self.name}{self.rounds}x{i}" for i in range(3)]
                    c.command("PLAYED", user, *items)
                    self.plays.setdefault(user, []).extend(items)
                    item = f"sent{self.name}{self.rounds}"
                    c.command("DELIVERED", user, item)
                    self.sent.setdefault(user, []).append(item)
                    self.rounds += 1
        except (OSError, Closed):
            pass  # killed

    def until(self, rounds):
        goal = self.rounds + rounds
        while self.rounds < goal and self.is_alive():
            self.end.wait(0.002)

    def stop(self):
        self.end.set()
        self.join()


def judge(server, *writers, recent=20):
    """Nothing acknowledged is unseen: no play, and no recent delivery."""
    with server.client() as c:
        for w in writers:
            for user, items in w.plays.items():
                for at in range(0, len(items), 1000):
                    assert c.command("UNSEEN", user, *items[at:at + 1000]) == [], (user, w.name)
            for user, items in w.sent.items():
                assert c.command("UNSEEN", user, *items[-recent:]) == [], (user, w.name)


@pytest.fixture
def filled(make_server):
    """A server with two months of history, deliveries, exceptions, and something staged."""
    server = make_server(hash_seed=SEED, clock=START - 30 * DAY)
    with server.client() as c:
        for u in range(300):
            played(c, f"u{u}", *(f"old{u}-{i}" for i in range(10)))
            c.command("DELIVERED", f"u{u}", f"d{u}", f"e{u}")
        c.command("RING", "FLUSH")
        c.command("FORGET", "u3", "old3-4")
    server.advance(30 * DAY)
    with server.client() as c:
        c.command("RING", "FLUSH")
        for u in range(0, 300, 2):
            played(c, f"u{u}", f"staged{u}")
        played(c, b"\xff\x00binary", "x")
        c.command("DELIVERED", "u5", "f5")
    return server


def test_moves_everything_to_an_empty_folder(filled, folder):
    path = folder / "all.unseen"
    summary = json.loads(export(filled.data, path, "--json").stdout)
    assert summary["users"] == 301 and summary["staged_plays"] == 151 and summary["exceptions"] == 1
    assert summary["damaged"] == 0 and summary["bytes"] == path.stat().st_size
    assert path.stat().st_mode & 0o077 == 0 and not (folder / "all.unseen.partial").exists()
    checked = json.loads(load(folder / "none", path, args=("--check", "--json")).stdout)
    assert checked["users"] == 301 and not (folder / "none").exists()

    own = folder / "target"
    own.mkdir()
    target = Server(own, clock=START, wait=False)
    assert json.loads(load(target.data, path, args=("--json",)).stdout)["loaded"] == 301
    target.start()
    everything = [f"old7-{i}" for i in range(10)] + ["d7", "e7", "new"]
    assert unseen(target, "u7", everything) == ["new"]
    assert unseen(target, "u8", ["staged8", "new"]) == ["new"]
    assert unseen(target, "u3", ["old3-3", "old3-4"]) == ["old3-4"]
    assert unseen(target, "u5", ["f5"]) == []
    with target.client() as c:
        assert c.command("UNSEEN", b"\xff\x00binary", "x", "y") == [b"y"]
        c.command("DELIVERED", "u5", "later")
        assert c.command("UNSEEN", "u5", "later", "f5", "d5") == []
    sound(target)


def dump(server):
    """All of history, as it stands."""
    months = server.sqlite("history.db", "SELECT name FROM sqlite_schema WHERE name GLOB 'plays_[0-9]*' ORDER BY name")
    tables = months.split() + ["users", "delivered", "exceptions", "months", "quarantine"]
    columns = {"delivered": "user_key, quote(items)", "users": "user_key, quote(user), last_month",
               **dict.fromkeys(months.split(), "user_key, items, quote(filter)")}
    return {table: server.sqlite("history.db", f"SELECT {columns.get(table, '*')} FROM {table}") for table in tables}


def test_loading_twice_changes_nothing(filled, folder, make_server):
    target = make_server(hash_seed=SEED, clock=START + HOUR)
    with target.client() as c:
        for u in range(0, 300, 3):
            played(c, f"u{u}", f"own{u}", f"old{u}-1")
            c.command("DELIVERED", f"u{u}", *(f"here{u}-{i}" for i in range(u + 1)))
    path = folder / "all.unseen"
    export(filled.data, path)
    load(target, path)
    with target.client() as c:
        c.command("RING", "FLUSH")
    once = dump(target)
    load(target, path)
    assert dump(target) == once
    load(target, path, path)
    assert dump(target) == once
    for u in range(0, 300, 3):
        fell_off = [f"d{u}"] if u >= 99 else []  # a hundred were sent here, an hour later
        asked = [f"own{u}", f"old{u}-0", f"old{u}-9", f"d{u}", "new"]
        assert unseen(target, f"u{u}", asked) == [*fell_off, "new"]
    assert unseen(target, "u99", [f"here99-{i}" for i in range(20, 99)]) == []
    sound(target)


class Busy:
    """What a Liar answers who hands on to a server, but is too busy for the first n LOADs, and every other one then."""

    def __init__(self, server, n):
        self.link, self.n = server.client(), n
        self.loads, self.users = 0, []  # of the LOADs that were handed on: how many each had

    def __call__(self, words):
        if words[0] == b"LOAD":
            self.loads += 1
            if self.loads <= self.n or self.loads % 2 == 0:
                return [b'-BUSY user "u" changes faster than it can be read\r\n']
            self.users.append(len(words) - 1)
        return [self.text(self.link.command(*words))]

    def text(self, value):
        if isinstance(value, int):
            return b":%d\r\n" % value
        if isinstance(value, bytes):
            return b"$%d\r\n%b\r\n" % (len(value), value)
        if value is None:
            return b"_\r\n"
        return b"*%d\r\n" % len(value) + b"".join(map(self.text, value))


def export_six_batches(folder):
    """The users of what a load sends in six batches, four of them under way."""
    users = [f"u{i}" for i in range(2600)]
    (folder / "plays.tsv").write_text("".join(f"{START}\t{user}\t{user}:item\n" for user in users))
    config = ("-c", "/dev/null", "--data", folder / "from", "--hash-seed", SEED, "--test-clock", START)
    run("import", *config, "--min-free", "0", folder / "plays.tsv")
    export(folder / "from", folder / "all.unseen")
    return users


def test_a_server_too_busy_is_asked_again(make_server, folder):
    users = export_six_batches(folder)
    server = make_server(hash_seed=SEED)
    busy = Busy(server, 3)
    with contextlib.closing(Liar(busy)) as wire:
        summary = json.loads(run("load", folder / "all.unseen", "--to", wire.address, "--json").stdout)
    assert summary["loaded"] == len(users) and summary["past_retention"] == 0
    assert len(busy.users) == 6 and sum(busy.users) == len(users) and busy.loads > 11, (busy.users, busy.loads)
    with server.client() as c:
        assert all(c.command("SEEN", user, f"{user}:item") == [1] for user in users)


def test_a_load_outlives_its_server(make_server, folder):
    """Killed at the third batch, when it has it and has not said so."""
    users = export_six_batches(folder)
    server = make_server(hash_seed=SEED)

    class Restarted(Busy):
        def __call__(self, words):
            if words[0] == b"LOAD" and self.loads == 2:
                self.loads += 1
                self.link.command(*words)
                self.server.kill()
                self.server.start()
                self.link = self.server.client()
                raise OSError("it was killed")
            return super().__call__(words)

    wire = Restarted(server, 0)
    wire.server = server
    with contextlib.closing(Liar(wire)) as to:
        done = run("load", folder / "all.unseen", "--to", to.address)
    assert b"trying again" in done.stderr and b"answers again" in done.stderr, done
    with server.client() as c:
        assert all(c.command("SEEN", user, f"{user}:item") == [1] for user in users)


def test_a_load_into_a_server_without_times(make_server, folder):
    """0.1.0's INFO names no parcel_version. It gets what was sent in its order, as it stores that itself."""
    a, b = make_server(hash_seed=SEED), make_server(hash_seed=SEED, delivered_max=2)
    with a.client() as c:
        played(c, "other", "x")
        c.command("DELIVERED", "u", "first", "second")
        c.command("DELIVERED", "u", "third")
    export(a.data, folder / "a.unseen")
    parcels = []

    class Older(Busy):
        def __call__(self, words):
            if words[0] == b"LOAD":
                parcels.extend(words[1:])
            if words[0] != b"INFO":
                return super().__call__(words)
            info, n = re.subn(rb"parcel_version:\d+\r\n", b"", self.link.command("INFO"))
            assert n == 1
            return [self.text(info)]

    with contextlib.closing(Liar(Older(b, 0))) as wire:
        run("load", folder / "a.unseen", "--to", wire.address)
    assert len(parcels) == 2 and all(parcel[0] <= 4 for parcel in parcels)
    assert unseen(b, "u", ["first", "second", "third"]) == ["first"]
    assert unseen(b, "other", ["x", "y"]) == ["y"]


def test_exceptions(make_server, folder):
    """An item is un-seen only where nobody has it seen."""
    a, b = make_server(hash_seed=SEED), make_server(hash_seed=SEED)
    for server in (a, b):
        with server.client() as c:
            played(c, "u", "both", "onlya", "again", "kept")
            c.command("RING", "FLUSH")
    with a.client() as c:
        c.command("FORGET", "u", "both", "onlya", "again")
        c.command("FORGET", "gone")
        played(c, "u", "again")
        played(c, "v", "x")
        c.command("RING", "FLUSH")
        c.command("FORGET", "v", "x")
    with b.client() as c:
        c.command("FORGET", "u", "both", "again")
    path = folder / "a.unseen"
    export(a.data, path)
    load(b, path)
    assert unseen(b, "u", ["both", "onlya", "again", "kept"]) == ["both"]
    assert unseen(b, "v", ["x"]) == ["x"]
    sound(b)


# Pairs of users whose 64-bit keys are equal under SEED.
ONE_KEY = [("6nbaxsh", "eg659uq7"), ("xg3un6e", "ecukvmby"), ("dfsjoax", "xa4szk0k")]


@pytest.mark.parametrize("flushed", [False, True])
def test_what_is_past_retention_ends_no_exception(make_server, folder, flushed):
    a, b = make_server(hash_seed=SEED), make_server(hash_seed=SEED, clock=START + 12 * DAY)  # in December
    with a.client() as c:
        assert c.command("PLAYEDAT", "u", START - 180 * DAY, "item") == 1  # May: past retention there
        played(c, "u", "other")
        if flushed:
            c.command("RING", "FLUSH")
    with b.client() as c:
        played(c, "u", "item")
        c.command("RING", "FLUSH")
        assert c.command("FORGET", "u", "item") == 1
    export(a.data, folder / "a.unseen")
    load(b, folder / "a.unseen")
    assert unseen(b, "u", ["item", "other", "new"]) == ["item", "new"]
    sound(b)


def test_users_of_one_key(make_server, folder):
    """Both stored, one of them staged, both staged: each arrives, whatever is there already, and nothing is lost."""
    a, b = make_server(hash_seed=SEED), make_server(hash_seed=SEED)
    (stored, stored2), (half, staged), (fresh, fresh2) = ONE_KEY
    with a.client() as c:
        for user in (stored, stored2, half):
            played(c, user, f"flushed-{user}")
            c.command("DELIVERED", user, f"sent-{user}")
        c.command("RING", "FLUSH")
        for user in (half, staged, fresh, fresh2):
            played(c, user, f"staged-{user}")
            c.command("DELIVERED", user, f"last-{user}")
    with b.client() as c:
        for one, two in ONE_KEY:
            played(c, two, f"own-{two}")
        c.command("RING", "FLUSH")
    path = folder / "all"
    assert json.loads(export(a.data, path, "--json").stdout)["users"] == 6
    assert json.loads(export(a.data, folder / "one", "--user", fresh, "--json").stdout)["users"] == 1
    counts = [json.loads(export(a.data, folder / "part", "--shard", f"{i}/16384", "--json").stdout)["users"]
              for i in sorted({keyslot(user) for pair in ONE_KEY for user in pair})]
    assert sum(counts) == 6
    own = folder / "fresh"
    own.mkdir()
    c = Server(own, clock=START, wait=False)
    assert json.loads(load(c.data, path, args=("--json",)).stdout)["loaded"] == 6
    c.start()
    for target in (b, c):
        report = json.loads(load(target, path, args=("--json",)).stdout)
        assert report["loaded"] == 6 and report["not_loaded"] == []
        once = dump(target)
        load(target, path)
        assert dump(target) == once
        for pair in ONE_KEY:
            for user in pair:
                items = [] if user in (staged, fresh, fresh2) else [f"flushed-{user}", f"sent-{user}"]
                items += [] if user in (stored, stored2) else [f"staged-{user}", f"last-{user}"]
                assert unseen(target, user, items + ["new"]) == ["new"], user
                with target.client() as client, pytest.raises(RespError, match="share"):
                    client.command("FORGET", user)
    for one, two in ONE_KEY:
        assert unseen(b, two, [f"own-{two}", "new"]) == ["new"]
    assert b.sqlite("history.db", "SELECT count(*) FROM users NATURAL JOIN (SELECT DISTINCT user_key FROM shared_keys)") == "3"
    for server in (a, b, c):
        sound(server)


def test_shards(filled, folder):
    users = []
    for i in range(4):
        path = folder / f"shard{i}"
        export(filled.data, path, "--shard", f"{i}/4")
        data = folder / f"data{i}"
        load(data, path)
        names = subprocess.run(["sqlite3", "-readonly", data / "history.db", "SELECT user FROM users WHERE typeof(user) = 'text'"],
                               capture_output=True, text=True, check=True).stdout.split()
        assert names and all(keyslot(name) * 4 // 16384 == i for name in names)
        users += names
    assert sorted(users) == sorted(f"u{u}" for u in range(300))
    counts = [json.loads(export(filled.data, folder / "part", "--range", f"{i}/3", "--json").stdout)["users"]
              for i in range(3)]
    assert sum(counts) == 301 and min(counts) > 50
    one = json.loads(export(filled.data, folder / "one", "--user", "u42", "--json").stdout)
    assert one["users"] == 1
    for bad in ("4/4", "x", "1/0", "-1/4", "1/4x", "0/99999"):
        assert export(filled.data, folder / "bad", "--shard", bad, check=False).returncode == 2
    assert not (folder / "bad").exists()


def test_refuses_bad_files_before_anything_is_changed(filled, folder, make_server):
    good = folder / "good"
    export(filled.data, good)
    bytes_ = good.read_bytes()
    target = make_server(hash_seed=SEED)
    cases = {
        "empty": (b"", "doesn't begin with"),
        "text": (b"1383782400000\tu\tv\n" * 9, "doesn't begin with"),
        "cut": (bytes_[:-1], "cut off"),
        "half": (bytes_[:len(bytes_) // 2], "cut off"),
        "more": (bytes_ + b"x", "something follows"),
        "flipped": (bytes_[:len(bytes_) // 2] + bytes([bytes_[len(bytes_) // 2] ^ 1]) + bytes_[len(bytes_) // 2 + 1:],
                    "damaged"),
        "late": (bytes_[:-12] + bytes([bytes_[-12] ^ 1]) + bytes_[-11:], "damaged"),
    }
    for name, (content, words) in cases.items():
        bad = folder / name
        bad.write_bytes(content)
        result = load(target, good, bad, check=False)
        assert result.returncode == 1 and words in result.stderr.decode() and name in result.stderr.decode(), result
        result = load(folder / "fresh", bad, check=False)
        assert result.returncode == 1 and not (folder / "fresh").exists()
    with target.client() as c:
        assert c.command("HISTORY", "u7") is None
    other = make_server(hash_seed="00000000000000aa")
    with other.client() as c:
        played(c, "u", "x")
    result = load(other, good, check=False)
    assert result.returncode == 1 and "another seed" in result.stderr.decode()
    assert other.stop() == 0
    result = load(other.data, good, check=False)
    assert result.returncode == 1 and "another seed" in result.stderr.decode()
    assert load(folder / "fresh", folder / "missing", check=False).returncode == 1
    with target.client() as c:
        with pytest.raises(RespError, match="parcel"):
            c.command("LOAD", "nonsense" * 9)


def test_standard_input_and_output(filled, folder):
    exported = run("export", "--data", filled.data)
    assert exported.stdout.startswith(b"UNSEENEX") and b"301 users" in exported.stderr
    run("load", "-", "--data", folder / "new", "--test-clock", START, "--min-free", "0", input=exported.stdout)
    assert b"u42" in run("user", "u42", "--data", folder / "new", "--test-clock", START, "--min-free", "0").stdout
    assert load(folder / "new", "-", "-", check=False).returncode == 2


@pytest.mark.parametrize("into", ["folder", "server", "memory"])
@pytest.mark.parametrize("staged", [True, False], ids=["staged", "flushed"])
def test_no_replay_undoes_the_forget_of_an_item(make_server, folder, into, staged):
    """What was forgotten before the move stays so, whatever comes once more where the user has moved to."""
    source = make_server(hash_seed=SEED)
    played_at, later = START - HOUR, START + HOUR
    with source.client() as c:
        c.command("PLAYEDAT", "u1", played_at, "gone", "kept")
        if not staged:
            c.command("RING", "FLUSH")
        assert c.command("FORGET", "u1", "gone") == 1
    path = folder / "one.unseen"
    summary = json.loads(export(source.data, path, "--json").stdout)
    assert summary["users"] == 1 and summary["forgotten_items"] == 1

    if into == "folder":
        own = folder / "target"
        own.mkdir()
        target = Server(own, clock=START, wait=False)
        load(target.data, path)
        target.start()
    else:
        target = make_server(hash_seed=SEED, **({"store": "memory"} if into == "memory" else {}))
        load(target, path)
        load(target, path)
    assert unseen(target, "u1", ["gone", "kept"]) == ["gone"]
    with target.client() as c:
        assert c.command("PLAYEDAT", "u1", played_at, "gone", "kept") == 2
        assert unseen(target, "u1", ["gone", "kept"]) == ["gone"]
        c.command("PLAYEDAT", "u1", later, "gone")  # once more since
        assert unseen(target, "u1", ["gone", "kept"]) == []
    if into == "folder":  # and to the next machine
        again = json.loads(export(target.data, folder / "two.unseen", "--json").stdout)
        assert again["forgotten_items"] == 1
        sound(target)


def test_a_user_beyond_the_error_is_listed(make_server, folder):
    """Three months that both nodes have sealed, to other ranges: they stand side by side, and cost twice."""
    servers = [make_server(hash_seed=SEED), make_server(hash_seed=SEED)]
    for n, server in enumerate(servers):
        with server.client() as c:
            for month in range(1, 4):
                at = START - 31 * DAY * month
                c.command("PLAYEDAT", "heavy", at, *(f"{n}-{month}-{i}" for i in range(1000 + 100 * n)))
            played(c, "light", str(n))
            c.command("RING", "FLUSH")
        for _ in range(24):
            server.advance(HOUR)
        with server.client() as c:
            assert [month[month.index(b"state") + 1] for month in c.command("MONTHS")].count(b"sealed") == 3
        export(server.data, folder / str(n))
    for _ in range(2):
        report = json.loads(load(servers[0], folder / "1", args=("--json",)).stdout)
        assert report["beyond_error_rate"] == ["heavy"] and report["loaded"] == 2
    words = load(servers[1], folder / "0").stdout.decode()
    assert "2 users loaded" in words and "beyond error_rate" in words and "  heavy\n" in words
    for server in servers:
        for n in range(2):
            assert unseen(server, "heavy", [f"{n}-{m}-{i}" for m in range(1, 4) for i in range(1000)] + ["new"]) in (
                ["new"], [])
        sound(server)


def test_runbook_moving_a_shard(make_server, folder):
    """docs/move.md: half of the users go to another machine while they play; callers switch in the middle."""
    users = [f"user{i}" for i in range(60)]
    moving = [u for u in users if keyslot(u) * 2 // 16384 == 1]
    a = make_server(hash_seed=SEED, slot_length="1h")
    old = Writer(a, "old", users)
    old.start()
    old.until(400)
    b = make_server(hash_seed=SEED)
    export(a.data, folder / "first", "--shard", "1/2")  # the bulk, while everybody still writes to a
    load(b, folder / "first")
    old.until(200)
    old.stop()  # the callers are told: shard 1 is b's. From now on they write there
    new = Writer(b, "new", moving)
    new.start()
    new.until(100)
    export(a.data, folder / "second", "--shard", "1/2")  # what came to a since
    load(b, folder / "second")
    new.until(100)
    new.stop()
    moved = Writer(a, "moved", [])
    moved.plays = {u: i for u, i in old.plays.items() if u in moving}
    moved.sent = {u: i for u, i in old.sent.items() if u in moving}
    judge(b, moved, new)
    with b.client() as c:
        c.command("RING", "FLUSH")
        for u in set(users) - set(moving):
            assert c.command("HISTORY", u) is None
    judge(b, moved, new)
    with a.client() as c:
        for u in moving:
            assert c.command("FORGET", u) == 1
    judge(b, moved, new)
    for server in (a, b):
        sound(server)


def test_runbook_two_nodes_heal(make_server, folder):
    """docs/move.md: both nodes get every write, until one is away for a while; each then gets the other's."""
    users = [f"user{i}" for i in range(40)]
    a, b = make_server(hash_seed=SEED, workers="2"), make_server(hash_seed=SEED)
    with a.client() as ca, b.client() as cb:
        for c in (ca, cb):
            for u in users:
                played(c, u, *(f"common{i}" for i in range(20)))
    a.kill()
    away = Writer(b, "awaya", users)
    away.start()
    away.until(300)
    away.stop()
    a.start()
    b.kill()
    other = Writer(a, "awayb", users)
    other.start()
    other.until(300)
    other.stop()
    b.start()
    both = [Writer(a, "nowa", users), Writer(b, "nowb", users)]  # it goes on meanwhile
    for w in both:
        w.start()
    for source, target, name in ((a, b, "a"), (b, a, "b")):
        export(source.data, folder / name)
        load(target, folder / name)
    for w in both:
        w.until(50)
        w.stop()
    judge(a, away, other, both[0], recent=5)
    judge(b, away, other, both[1], recent=5)
    for server in (a, b):
        with server.client() as c:
            c.command("RING", "FLUSH")
            for u in users:
                assert c.command("UNSEEN", u, *(f"common{i}" for i in range(20)), "new") == [b"new"]
    judge(a, away, other, both[0], recent=5)
    for server in (a, b):
        sound(server)


def test_sealed_and_live_months_stand_beside_each_other(make_server, folder):
    """One node has sealed the month, the other not; and the other way round."""
    servers = [make_server(hash_seed=SEED), make_server(hash_seed=SEED, sweep_window="11:00-12:00")]
    for n, server in enumerate(servers):
        with server.client() as c:
            for u in range(30):
                played(c, f"u{u}", "both", *(f"n{n}-{u}-{i}" for i in range(50)))
        server.advance(29 * DAY)
        with server.client() as c:
            c.command("RING", "FLUSH")
    for hour in range(24):
        servers[0].advance(HOUR)
        servers[1].advance(HOUR)
    states = [server.sqlite("history.db", "SELECT sealed FROM months ORDER BY month LIMIT 1") for server in servers]
    for source, target, name in ((*servers, "0"), (*reversed(servers), "1")):
        export(source.data, folder / name)
        load(target, folder / name)
        load(target, folder / name)
    for server in servers:
        for u in range(30):
            items = ["both"] + [f"n{n}-{u}-{i}" for n in (0, 1) for i in range(50)]
            assert unseen(server, f"u{u}", items + ["new"]) == ["new"], states
        sound(server)


@pytest.fixture
def big(folder):
    """A data folder of 20,000 users of three plays."""
    trace = folder / "trace.tsv"
    with open(trace, "w") as out:
        for u in range(20000):
            out.write("".join(f"{START - HOUR}\tbig{u}\t{x}{u}\n" for x in "abc"))
    source = folder / "source"
    run("import", trace, "--data", source, "--test-clock", START, "--min-free", "0", "--hash-seed", SEED)
    return source


def count_big(server):
    """How many of some users are there; each of them whole or not at all."""
    there = 0
    with server.client() as c:
        for u in range(0, 20000, 97):
            left = c.command("UNSEEN", f"big{u}", f"a{u}", f"b{u}", f"c{u}", "new")
            assert len(left) in (1, 4) and b"new" in left
            there += len(left) == 1
    return there


BIG_ASKED = len(range(0, 20000, 97))


def test_killed_in_the_middle_of_a_load(big, folder):
    """The server, and who loads and would wait a minute for it. What was loaded until then is whole user by user; the load is
    repeated."""
    path = folder / "big"
    export(big, path)
    own = folder / "victim"
    own.mkdir()
    target = Server(own, clock=START, hash_seed=SEED)
    process = subprocess.Popen([UNSEEN, "load", path, "--to", f"127.0.0.1:{target.port}", "--quiet"])
    with target.client() as c:
        while process.poll() is None and not c.command("MONTHS"):
            pass
    target.kill()
    process.kill()
    assert process.wait() in (0, -signal.SIGKILL)
    target.start()
    there = count_big(target)
    assert there > 0 and (process.returncode != 0 or there == BIG_ASKED)  # 0 is a promise
    assert json.loads(load(target, path, args=("--json",)).stdout)["loaded"] == 20000
    assert count_big(target) == BIG_ASKED
    sound(target)


def limited(size):
    """Files may have so many bytes; more is an error of the write."""
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


def test_export_without_room(big, folder, make_disk):
    """No half file, and what stood under the name still does."""
    size = json.loads(export(big, folder / "whole", "--json").stdout)["bytes"]
    assert size > 600000
    path = folder / "out" / "users"
    path.parent.mkdir()
    for most in (32 * 1024, size // 2, size - 1):  # SQLite's -shm has 32 KiB
        for before in (None, b"what was there"):
            if before:
                path.write_bytes(before)
            result = run("export", path, "--data", big, check=False, **limited(most))
            assert result.returncode == 1 and b"can't write" in result.stderr, result
            assert list(path.parent.iterdir()) == ([path] if before else []) and (
                not before or path.read_bytes() == before)
        path.unlink()
    disk = make_disk("512k")
    (disk / "users").write_bytes(b"what was there")
    result = export(big, disk / "users", check=False)
    assert result.returncode == 1 and b"No space left on device" in result.stderr
    assert [f.name for f in disk.iterdir()] == ["users"] and (disk / "users").read_bytes() == b"what was there"
    subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
    export(big, disk / "users")
    assert (disk / "users").stat().st_size == size


def test_load_without_room_for_the_copy_of_a_pipe(big, folder):
    bytes_ = run("export", "--data", big).stdout
    result = load(folder / "new", "-", check=False, input=bytes_, **limited(len(bytes_) - 1))
    assert result.returncode == 1 and b"standard input: can't write a temporary copy" in result.stderr
    assert not (folder / "new").exists()


@pytest.mark.parametrize("served", [False, True], ids=["folder", "server"])
def test_load_onto_a_disk_that_fills_up(big, folder, make_disk, served):
    """An error that says so; each user whole or not there; with room again the same load goes through."""
    path = folder / "big"
    export(big, path)
    disk = make_disk("1500k")
    own = folder / "target"
    own.mkdir()
    target = Server(own, clock=START, hash_seed=SEED, wait=False)
    target.data = disk / "data"
    target.options["data"] = str(target.data)
    if served:
        target.start()
    result = load(target if served else target.data, path, check=False)
    words = result.stderr.decode()
    assert result.returncode == 1 and "full" in words and "loading again is harmless" in words, words
    if served:
        count_big(target)
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    if not served:
        target.start()
    assert 0 < count_big(target) < BIG_ASKED
    if not served:
        assert target.stop() == 0
    assert json.loads(load(target if served else target.data, path, args=("--json",)).stdout)["loaded"] == 20000
    if not served:
        target.start()
    assert count_big(target) == BIG_ASKED
    sound(target)


def test_no_room(filled, folder, make_server):
    path = folder / "all.unseen"
    export(filled.data, path)
    free = shutil.disk_usage(folder).total
    target = make_server(hash_seed=SEED, min_free=str(free))
    result = load(target, path, check=False)
    assert result.returncode == 1 and "min_free" in result.stderr.decode()
    with target.client() as c:
        assert c.command("HISTORY", "u7") is None
    with open("/dev/full", "wb") as full:
        result = subprocess.run([UNSEEN, "export", "-", "--data", filled.data], stdout=full, stderr=subprocess.PIPE,
                                timeout=PATIENCE)
    assert result.returncode == 1 and b"No space left" in result.stderr
    result = export(filled.data, "/dev/null", check=False)
    assert result.returncode == 1 and b"no plain file" in result.stderr


def test_marks_of_damage_go_along(filled, folder):
    assert filled.stop() == 0
    history = filled.data / "history.db"
    key = subprocess.run(["sqlite3", history, "SELECT user_key FROM users WHERE user = 'u7'; UPDATE plays_202610 SET "
                          "filter = x'40' WHERE user_key = (SELECT user_key FROM users WHERE user = 'u7')"],
                         capture_output=True, text=True)
    assert key.returncode == 0, key.stderr
    path = folder / "damaged"
    result = export(filled.data, path, check=False)
    assert result.returncode == 1 and "u7" in result.stderr.decode() and "2026-10" in result.stderr.decode()
    own = folder / "target"
    own.mkdir()
    target = Server(own, clock=START, wait=False)
    load(target.data, path)
    load(target.data, path)
    target.start()
    with target.client() as c:
        with pytest.raises(RespError, match="u7"):
            c.command("UNSEEN", "u7", "old7-1")
        assert c.command("UNSEEN", "u8", "old8-1") == []
    assert target.sqlite("history.db", "SELECT count(*) FROM quarantine") == "1"
    assert target.stop() == 0
