"""The archive: what was recorded streams to a folder elsewhere; the data folder burns, and is made again from that."""
import contextlib
import ctypes
import itertools
import json
import random
import shutil
import signal
import threading
import urllib.request

import pytest

from conftest import HOUR, PATIENCE, Server, http_url, run, settle, until
from resp import Closed

EVERY = 10000


@pytest.fixture
def url(folder):
    return f"file://{folder}/archive"


@pytest.fixture
def make(make_server, url):
    def start(**options):
        return make_server(archive_url=url, archive_rate="0", **options)

    return start


def fields(c):
    reply = c.command("ARCHIVE")
    return {k.decode(): v.decode() if isinstance(v, bytes) else v for k, v in zip(reply[::2], reply[1::2])}


def look(server):
    """What it says once it has nothing more to do."""
    settle(server)
    with server.client() as c:
        return fields(c)


def archive_all(server):
    """All that was acknowledged is there, and a round has ended."""
    server.advance(EVERY)
    now = look(server)
    assert (now["state"], now["waiting"], now["round"]) == ("in step", 0, 0), f"{now}\n{server.log()}"
    return now


def restore(url, target, clock, *args, **kwargs):
    return run("restore", "--from", url, "--data", target / "data", "--test-clock", clock, *args, **kwargs)


def serve(target, clock, **options):
    return Server(target, clock=clock, **options)


def restored(url, folder, clock, *args, name="restored"):
    """A server on a folder that was made from the archive."""
    target = folder / name
    target.mkdir()
    restore(url, target, clock, *args)
    report = json.loads(run("check", "--json", "--data", target / "data").stdout)
    assert report["problems"] == []
    return serve(target, clock)


def seen(server, user, *items):
    with server.client() as c:
        return c.command("SEEN", user, *items)


def test_a_burnt_machine(make, url, folder):
    server = make()
    with server.client() as c:
        c.command("PLAYED", "u1", "a", "b")
        c.command("DELIVERED", "u1", "d1", "d2")
        c.command("PLAYED", "u2", "a")
        c.command("POOL", "SET", "hot", "p1", "p2")
    first = archive_all(server)
    assert first["restorable"] == 1 and first["rounds"] == 1
    with server.client() as c:
        c.command("PLAYED", "u1", "c")
        c.command("PLAYED", "u3", "x")
        c.command("FORGET", "u2")
        c.command("FORGET", "u1", "b")
        c.command("POOL", "ADD", "hot", "p3")
    archive_all(server)
    server.kill()
    shutil.rmtree(server.data)
    again = restored(url, folder, server.clock)
    try:
        assert seen(again, "u1", "a", "b", "c", "d1", "d2", "z") == [1, 0, 1, 1, 1, 0]
        assert seen(again, "u2", "a") == [0]
        assert seen(again, "u3", "x") == [1]
        with again.client() as c:
            assert c.command("FILTER", "u9", "POOL", "hot") == [b"p1", b"p2", b"p3"]
    finally:
        again.stop()


def parts(folder):
    return sum(path.name != "end" and path.name[0] != "." for path in objects(folder, "base"))


def set_rate(server, rate):
    server.options["archive_rate"] = rate
    server.write_config()
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGHUP)
        with server.client() as c:
            until(lambda: c.command("CONFIG", "GET", "archive_rate")[1] == rate.encode(), server.log)


@contextlib.contextmanager
def held(server):
    """A round that begins now goes on behind its first part once this has ended."""
    set_rate(server, "1")
    with server.client() as c:
        yield c
    set_rate(server, "0")


# --- models ---


class Model:
    """What each user has seen, and who was forgotten when: the last word counts."""

    def __init__(self):
        self.users = {}
        self.moments = []  # (clock, users then)
        self.forgotten = []  # (clock, user)

    def step(self, rng, c, clock):
        user = f"u{rng.randrange(12)}"
        item = f"i{rng.randrange(40)}"
        items = self.users.setdefault(user, set())
        what = rng.choices(["play", "deliver", "unsee", "forget"], [8, 2, 2, 1])[0]
        if what == "play":
            c.command("PLAYED", user, item, item + "x")
            items |= {item, item + "x"}
        elif what == "deliver":
            c.command("DELIVERED", user, "d" + item)
            items.add("d" + item)
        elif what == "unsee":
            c.command("FORGET", user, item)
            items.discard(item)
        else:
            c.command("FORGET", user)
            items.clear()
            self.forgotten.append((clock, user))

    def mark(self, clock):
        self.moments.append((clock, {user: set(items) for user, items in self.users.items()}))

    def at(self, i, undo=False):
        clock, users = self.moments[i]
        later = () if undo else {user for when, user in self.forgotten if when > clock}
        return {user: set() if user in later else items for user, items in users.items()}


ALL = [f"{before}i{n}{behind}" for n in range(40) for before, behind in (("", ""), ("", "x"), ("d", ""))]


def differences(server, users):
    with server.client() as c:
        out = []
        for user, items in users.items():
            answer = c.command("SEEN", user, *ALL)
            out += [(user, item, flag) for item, flag in zip(ALL, answer) if bool(flag) != (item in items)]
        return out


def course(rng, server, model, steps):
    """Moments between which the clock moves, while the ring turns, rounds begin and the server is killed."""
    for _ in range(steps):
        with server.client() as c:
            for _ in range(rng.randrange(1, 12)):
                model.step(rng, c, server.clock)
            chance = rng.random()
            if chance < 0.15:
                c.command("RING", "FLUSH")
        model.mark(server.clock)
        server.advance(rng.choice([1000, 4000, EVERY, 3 * EVERY]))
        if rng.random() < 0.15:
            server.kill()
            server.start()
    archive_all(server)


@pytest.mark.parametrize("seed", range(6))
def test_moments_against_the_model(make, url, folder, seed):
    rng = random.Random(seed)
    model = Model()
    server = make(slot_length="15min", archive_rounds="1h")
    archive_all(server)
    course(rng, server, model, 25)
    server.advance(HOUR)  # a second round, spread over a day
    course(rng, server, model, 10)
    server.kill()
    shutil.rmtree(server.data)
    for n, i in enumerate(sorted(rng.sample(range(len(model.moments)), 4)) + [len(model.moments) - 1]):
        undo = rng.random() < 0.3
        again = restored(url, folder, server.clock, "--at", str(model.moments[i][0]),
                         *(["--undo-forgets"] if undo else []), name=f"moment{n}")
        try:
            assert differences(again, model.at(i, undo)) == []
        finally:
            again.stop()


# --- what goes wrong ---


def burn(server):
    server.kill()
    shutil.rmtree(server.data)


def objects(folder, kind):
    return sorted(path for path in (folder / "archive").glob(f"*/{kind}/**/*") if path.is_file())


def test_under_load(make, url, folder):
    """Threads record while the clock moves; the machine burns at a drawn moment. Whatever was acknowledged before a
    moment up to which the archive says that it has all is there again."""
    server = make(slot_length="15min")
    archive_all(server)
    said, stop = [], threading.Event()

    def record(n):
        rng = random.Random(n)
        with server.client() as c, contextlib.suppress(Closed, OSError):
            for i in itertools.count():
                if stop.is_set():
                    return
                user = f"w{n}u{rng.randrange(50)}"
                c.command("PLAYED", user, f"p{i}")
                said.append((user, f"p{i}"))

    threads = [threading.Thread(target=record, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    with server.client() as c:
        for _ in range(random.Random(5).randrange(4, 9)):
            sure = len(said)
            server.advance(EVERY)
            until(lambda: fields(c)["archived_at"] >= server.clock, server.log)
        until(lambda: len(said) > sure, server.log)
    burn(server)
    stop.set()
    for t in threads:
        t.join()
    assert sure > 0
    again = restored(url, folder, server.clock)
    try:
        users = {}
        for user, item in said[:sure]:
            users.setdefault(user, []).append(item)
        for user, items in users.items():
            assert seen(again, user, *items) == [1] * len(items)
    finally:
        again.stop()


def test_what_a_kill_leaves(make, url, folder):
    """A temporary file, written in part or linked already, is no object, and goes with the next start."""
    server = make()
    archive_all(server)
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    archive_all(server)
    server.kill()
    last = objects(folder, "seg")[-1]
    (last.parent / ".part-1-1").write_bytes(last.read_bytes()[:50])
    (last.parent / ".part-1-2").hardlink_to(last)
    assert run("archive", "--verify", "--from", url).returncode == 0
    server.start()
    archive_all(server)
    assert not list((folder / "archive").glob("**/.part-*"))
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        assert seen(again, "u", "a") == [1]
    finally:
        again.stop()


def test_a_folder_that_went_back(make, url, folder):
    """It is another node from now on, with a round of its own; both can be restored."""
    server = make()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    archive_all(server)
    server.stop()
    shutil.copytree(server.data, folder / "old")
    server.start()
    with server.client() as c:
        c.command("PLAYED", "u", "b")
    archive_all(server)
    server.stop()
    shutil.rmtree(server.data)
    shutil.copytree(folder / "old", server.data)
    server.start()
    with server.client() as c:
        c.command("PLAYED", "u", "c")
    now = archive_all(server)
    assert "from now on it is another node" in server.log()
    nodes = {row["node"] for row in json.loads(run("archive", "--list", "--from", url, "--json").stdout)}
    assert len(nodes) == 2 and now["node"] in nodes
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        assert seen(again, "u", "a", "b", "c") == [1, 0, 1]
    finally:
        again.stop()
    other = restored(url, folder, server.clock, "--node", (nodes - {now["node"]}).pop(), name="other")
    try:
        assert seen(other, "u", "a", "b", "c") == [1, 1, 0]
    finally:
        other.stop()


def test_two_copies_that_write_at_the_same_time(make, make_server, url, folder):
    """Each becomes another node within the hour, with a round of its own. Of the hour before a restore says that something
    is missing."""
    server = make()
    with server.client() as c:
        c.command("PLAYED", "u", "both")
    node = archive_all(server)["node"]
    server.stop()
    copy = make_server()
    copy.stop()
    shutil.rmtree(copy.data)
    shutil.copytree(server.data, copy.data)
    copy.options |= {"archive_url": url, "archive_rate": "0"}
    copy.write_config()
    server.start()
    copy.start()
    both = (server, "a"), (copy, "b")
    for n in range(3):
        for each, word in both:
            with each.client() as c:
                c.command("PLAYED", "u", f"{word}{n}")
            archive_all(each)
    problems = json.loads(run("archive", "--verify", "--from", url, "--json", check=False).stdout)["problems"]
    assert problems and all("two copies of a folder wrote at the same time" in problem for problem in problems), problems
    target = folder / "early"
    target.mkdir()
    done = restore(url, target, server.clock, "--node", node)
    assert "two copies of the data folder wrote" in done.stderr.decode()
    for n, (each, word) in enumerate(both):
        each.advance(HOUR)
        settle(each)
        assert "from now on it is another node" in each.log(), each.log()
        each.advance(EVERY)
        assert look(each)["node"] != node, each.log()
        now = archive_all(each)
        again = restored(url, folder, each.clock, "--node", now["node"], name=f"restored{n}")
        try:
            items = [f"{w}{k}" for w in "ab" for k in range(3)]
            assert seen(again, "u", "both", *items) == [1] + [int(item[0] == word) for item in items]
        finally:
            again.stop()


def test_nothing_goes_while_the_clock_is_doubted(make, folder):
    server = make(archive_keep="30h", archive_rounds="1h")
    for n in range(3):
        with server.client() as c:
            c.command("PLAYED", "u", f"i{n}")
        server.advance(HOUR)
        archive_all(server)
    with server.client() as c:
        assert fields(c)["removed"] == 0 and fields(c)["rounds"] > 1
        before = set(objects(folder, "base") + objects(folder, "seg"))
        c.command("DEBUG", "JUMP", 40 * 24 * HOUR)
        server.advance(1000)
        settle(server)
        assert b"doubted" in c.command("CLOCK"), server.log()
        for _ in range(3):
            server.advance(HOUR)
            archive_all(server)
        assert fields(c)["removed"] == 0
    assert before <= set(objects(folder, "base") + objects(folder, "seg"))


def test_a_folder_that_is_gone(make, url, folder):
    """Such as one that is not mounted: none is made in its place."""
    server = make()
    archive_all(server)
    server.stop()
    (folder / "archive").rename(folder / "away")
    server.start()
    assert look(server)["state"] == "waiting", server.log()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    assert not (folder / "archive").exists()
    (folder / "away").rename(folder / "archive")
    server.advance(EVERY)
    archive_all(server)
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        assert seen(again, "u", "a") == [1]
    finally:
        again.stop()


@contextlib.contextmanager
def unmounted(folder):
    """The mount point is there, and empty."""
    (folder / "archive").rename(folder / "away")
    (folder / "archive").mkdir()
    yield
    assert not list((folder / "archive").iterdir())
    (folder / "archive").rmdir()
    (folder / "away").rename(folder / "archive")


def test_a_mount_point_without_its_mount(make, url, folder):
    """Nothing is written into it, neither while the server runs nor after a start. Once the right one is back, it goes
    on."""
    server = make()
    settle(server)
    for again in (False, True):
        if again:
            server.stop()
        with unmounted(folder):
            if again:
                server.start()
            with server.client() as c:
                c.command("PLAYED", "u", f"i{again}")
                server.advance(EVERY)
                until(lambda: "is not mounted" in fields(c)["cause"], server.log)
        server.advance(EVERY)
        settle(server)
    burn(server)
    made = restored(url, folder, server.clock)
    try:
        assert seen(made, "u", "iFalse", "iTrue") == [1, 1]
    finally:
        made.stop()


def test_lost(make, url, folder):
    """The folder is away until more was recorded than feed_max keeps: it waits, recording goes on, and afterwards all
    users are brought in anew."""
    server = make(feed_max="1MiB")
    archive_all(server)
    (folder / "archive").rename(folder / "away")
    (folder / "archive").write_text("no folder")
    with server.client() as c:
        for i in range(20):
            c.command("PLAYED", f"u{i}", *[f"{i}-{n}-{'x' * 200}" for n in range(300)])
        server.advance(EVERY)
        now = look(server)
        assert now["state"] == "waiting" and now["lost_since"] != 0 and now["restorable"] == 0, (now, server.log())
        assert "is no folder" in now["cause"] or "Not a directory" in now["cause"]
    (folder / "archive").unlink()
    (folder / "away").rename(folder / "archive")
    for _ in range(3):
        server.advance(10 * EVERY)
    now = archive_all(server)
    assert now["lost_since"] == 0 and now["restorable"] == 1
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        for i in range(20):
            assert seen(again, f"u{i}", f"{i}-0-{'x' * 200}", f"{i}-299-{'x' * 200}") == [1, 1]
    finally:
        again.stop()


@pytest.mark.parametrize("users", [50, 10100])
def test_imports(make, url, folder, users):
    """Users whom staging has not seen follow their events; when they are too many, a round brings them."""
    server = make()
    archive_all(server)
    trace = folder / "trace.tsv"
    trace.write_text("".join(f"{server.clock - 1000}\told{i}\ta{i}\n" for i in range(users)))
    run("import", trace, "--to", f"127.0.0.1:{server.port}", "--test-clock", server.clock)
    before = archive_all(server)["rounds"]
    archive_all(server)
    assert before >= 1
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        for i in range(0, users, max(1, users // 60)):
            assert seen(again, f"old{i}", f"a{i}", "b") == [1, 0]
    finally:
        again.stop()


def test_loaded_users_outlive_a_kill(make, make_server, url, folder):
    """The users are not in the segments, and the kill came before the round that has them had ended."""
    users, seed = 10100, "00c0ffee12345678"
    source = make_server(hash_seed=seed)
    trace = folder / "trace.tsv"
    trace.write_text("".join(f"{source.clock - 1000}\told{i}\ta{i}\n" for i in range(users)))
    run("import", trace, "--to", f"127.0.0.1:{source.port}", "--test-clock", source.clock)
    with source.client() as c:
        c.command("RING", "FLUSH")
    run("export", folder / "users.unseen", "--data", source.data)
    server = make(hash_seed=seed)
    archive_all(server)
    run("load", folder / "users.unseen", "--to", f"127.0.0.1:{server.port}")
    with held(server) as c:
        server.advance(EVERY)
        until(lambda: fields(c)["waiting"] == 0, server.log)
        server.advance(EVERY)  # no more of them come
        until(lambda: parts(folder) == 3, server.log)
        server.kill()
    server.start()
    archive_all(server)
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        assert [i for i in range(0, users, 97) if seen(again, f"old{i}", f"a{i}", "b") != [1, 0]] == []
    finally:
        again.stop()


def test_a_loaded_user(make, url, folder):
    """LOAD goes past staging; what follows the event is the user, whole."""
    seed = "00c0ffee12345678"
    source = make(hash_seed=seed)
    with source.client() as c:
        c.command("PLAYED", "moved", "a", "b")
        c.command("RING", "FLUSH")
    run("export", folder / "users.unseen", "--data", source.data)
    source.stop()
    shutil.rmtree(folder / "archive")
    target = folder / "target"
    target.mkdir()
    server = Server(target, archive_url=url, archive_rate="0", hash_seed=seed)
    try:
        archive_all(server)
        run("load", folder / "users.unseen", "--to", f"127.0.0.1:{server.port}")
        assert archive_all(server)["users"] == 1
        burn(server)
        again = restored(url, folder, server.clock)
        try:
            assert seen(again, "moved", "a", "b", "c") == [1, 1, 0]
        finally:
            again.stop()
    finally:
        server.stop()


def test_restored_and_archived_again(make, url, folder):
    """The restored folder archives to the same place, and burns, too. A user whom it forgot stays forgotten, whichever
    node is restored."""
    server = make()
    with server.client() as c:
        c.command("PLAYED", "u1", "a")
        c.command("PLAYED", "u2", "a")
    old = archive_all(server)["node"]
    server.advance(1000)
    burn(server)
    target = folder / "second"
    target.mkdir()
    restore(url, target, server.clock)
    second = Server(target, clock=server.clock, archive_url=url, archive_rate="0")
    try:
        with second.client() as c:
            c.command("FORGET", "u2")
            c.command("PLAYED", "u1", "b")
        new = archive_all(second)["node"]
        assert new != old
        burn(second)
    finally:
        second.stop()
    again = restored(url, folder, second.clock, name="third")
    try:
        assert seen(again, "u1", "a", "b") == [1, 1] and seen(again, "u2", "a") == [0]
    finally:
        again.stop()
    first = restored(url, folder, second.clock, "--node", old, name="fourth")
    try:
        assert seen(first, "u1", "a", "b") == [1, 0] and seen(first, "u2", "a") == [0]
    finally:
        first.stop()
    undone = restored(url, folder, second.clock, "--node", old, "--undo-forgets", name="fifth")
    try:
        assert seen(undone, "u2", "a") == [1]
    finally:
        undone.stop()


def test_a_damaged_object(make, url, folder):
    """It is named; nothing serves what was restored in part; once it is there again, the restore goes on."""
    server = make()
    archive_all(server)
    for item in "abc":
        with server.client() as c:
            c.command("PLAYED", "u", item)
        archive_all(server)
    burn(server)
    last = objects(folder, "seg")[-1]
    whole = last.read_bytes()
    last.chmod(0o640)
    last.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    report = run("archive", "--verify", "--from", url, check=False)
    assert report.returncode == 1 and last.name in report.stdout.decode() + report.stderr.decode()
    target = folder / "restored"
    target.mkdir()
    failed = restore(url, target, server.clock, check=False)
    assert failed.returncode == 1 and b"is damaged" in failed.stderr
    refused = run("serve", "--data", target / "data", "--listen", "none", "--http", "none", "--grpc", "none",
                  "--unix-socket", target / "s", check=False)
    assert refused.returncode != 0 and b"has not ended" in refused.stderr
    last.write_bytes(whole)
    restore(url, target, server.clock)
    again = serve(target, server.clock)
    try:
        assert seen(again, "u", "a", "b", "c") == [1, 1, 1]
    finally:
        again.stop()
    refused = restore(url, target, server.clock, check=False)
    assert refused.returncode == 1 and b"is not empty" in refused.stderr


def unpacked(path):
    zstd = ctypes.CDLL("libzstd.so.1")
    whole = path.read_bytes()
    size = int.from_bytes(whole[120:128], "little")
    out = ctypes.create_string_buffer(size + 1)
    zstd.ZSTD_decompress(out, size, whole[192:], len(whole) - 192)
    return out.raw[:size]


def test_old_objects_go(make, url, folder):
    """A moment of the last `keep` can always be had; a forgotten user is nowhere after keep, rounds and a day."""
    server = make(archive_keep="2h", archive_rounds="1h")
    archive_all(server)
    with server.client() as c:
        c.command("PLAYED", "somebody-in-particular", "a")
        c.command("PLAYED", "u", "a")
    archive_all(server)
    with server.client() as c:
        c.command("FORGET", "somebody-in-particular")
    forgotten = server.clock
    archive_all(server)
    assert any(b"somebody-in-particular" in unpacked(path) for path in objects(folder, "seg"))
    for hour in range(28):
        server.advance(HOUR)
        archive_all(server)
    assert look(server)["removed"] > 0, server.log()
    left = objects(folder, "seg") + objects(folder, "base")
    assert server.clock > forgotten + 27 * HOUR
    assert not any(b"somebody-in-particular" in unpacked(path) for path in left)
    rows = json.loads(run("archive", "--list", "--from", url, "--json").stdout)
    assert min(row["first"] for row in rows) <= server.clock - 2 * HOUR
    assert max(row["last"] for row in rows) >= server.clock - HOUR - EVERY
    burn(server)
    again = restored(url, folder, server.clock, "--at", str(server.clock - 2 * HOUR))
    try:
        assert seen(again, "u", "a") == [1]
    finally:
        again.stop()


def test_forget_now(make, url, folder):
    server = make()
    with server.client() as c:
        c.command("PLAYED", "somebody", "a")
    archive_all(server)
    with server.client() as c:
        c.command("PLAYED", "somebody", "b")
        c.command("FORGET", "somebody")  # both are not archived yet
    run("archive", "--forget-now", "--data", server.data)
    now = look(server)
    assert now["rounds"] == 2 and now["round"] == 0 and now["removed"] > 0, (now, server.log())
    archive_all(server)
    left = objects(folder, "seg") + objects(folder, "base")
    assert not any(b"somebody" in unpacked(path) for path in left)
    assert json.loads(run("archive", "--status", "--json", "--data", server.data).stdout)["rounds"] == 2


def test_forget_now_outlives_a_kill(make, url, folder):
    """The round had not ended: the next start makes another one, and then what was before it goes."""
    server = make()
    with server.client() as c:
        c.command("PLAYED", "somebody", "a")
    archive_all(server)
    with held(server) as c:
        c.command("FORGET", "somebody")
        run("archive", "--forget-now", "--data", server.data)
        until(lambda: fields(c)["round"] != 0 and parts(folder) >= 3, server.log)
        server.kill()
    server.start()
    assert look(server)["removed"] > 0, server.log()
    archive_all(server)
    left = objects(folder, "seg") + objects(folder, "base")
    assert not any(b"somebody" in unpacked(path) for path in left)


def test_forget_now_while_a_round_is_under_way(make, url, folder):
    """That one began too early: another begins at once."""
    server = make()
    archive_all(server)
    with held(server) as c:
        run("archive", "--forget-now", "--data", server.data)
        until(lambda: parts(folder) == 3, server.log)
        c.command("PLAYED", "u", "a")
        run("archive", "--forget-now", "--data", server.data)
        until(lambda: parts(folder) == 4, server.log)


def test_forget_now_leaves_what_can_be_restored(make, url, folder):
    """Users of the new round know more than the segments do: what was before it goes once those are there, too."""
    server = make()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    archive_all(server)
    with held(server) as c:
        run("archive", "--forget-now", "--data", server.data)
        until(lambda: fields(c)["round"] != 0 and parts(folder) >= 3, server.log)
        c.command("PLAYED", "u", "b")
    now = look(server)
    assert now["round"] == 0 and now["removed"] > 0, (now, server.log())
    burn(server)
    again = restored(url, folder, server.clock)
    try:
        assert seen(again, "u", "a", "b", "c") == [1, 1, 0]
    finally:
        again.stop()


def test_shown(make, url):
    server = make(http="127.0.0.1:0")
    archive_all(server)
    with server.client() as c:
        info = c.command("INFO", "archive").decode()
    assert "archive_state:in step" in info and "archive_restorable:1" in info
    status = json.loads(urllib.request.urlopen(http_url(server) + "/v1/status", timeout=PATIENCE).read())
    assert status["archive"]["state"] == "in step" and status["archive"]["url"] == url
    metrics = urllib.request.urlopen(http_url(server) + "/metrics", timeout=PATIENCE).read().decode()
    assert "unseen_archive_behind_seconds 0" in metrics and "unseen_archive_up 1" in metrics


def test_wrong_words(folder):
    for url, cause in (("ftp://x", b"expected file:///path"), ("file://x", b"expected file:///path"),
                       ("s3:///prefix", b"expected file:///path")):
        result = run("serve", "--data", folder / "data", "--archive-url", url, check=False)
        assert result.returncode == 78 and cause in result.stderr
    result = run("restore", "--from", f"file://{folder}/none", "--data", folder / "data", check=False)
    assert result.returncode == 1 and b"can't find the folder" in result.stderr
    (folder / "empty").mkdir()
    result = run("restore", "--from", f"file://{folder}/empty", "--data", folder / "data", check=False)
    assert result.returncode == 1 and b"no round has ended" in result.stderr
    assert not (folder / "data").exists()
    assert run("restore", "--from", "file:///x", "--data", "y", "--at", "tomorrow", check=False).returncode == 2
    assert run("archive", check=False).returncode == 2


def test_not_a_primary(make, folder, make_server, url):
    """A replica writes nothing; once it is promoted, it does, as a node of its own."""
    primary = make_server()
    with primary.client() as c:
        c.command("PLAYED", "u", "a")
    target = folder / "replica"
    target.mkdir()
    run("clone", f"127.0.0.1:{primary.port}", "--data", target / "data", "--test-clock", primary.clock)
    replica = Server(target, clock=primary.clock, replica_of=f"127.0.0.1:{primary.port}", archive_url=url,
                     archive_rate="0")
    try:
        assert look(replica)["state"] == "off", replica.log()
        with replica.client() as c:
            assert not objects(folder, "seg") and not objects(folder, "base")
            primary.stop()
            c.command("REPLICA", "PROMOTE", "FORCE")
        archive_all(replica)
        with replica.client() as c:
            c.command("PLAYED", "u", "b")
        archive_all(replica)
    finally:
        replica.stop()
    again = restored(url, folder, primary.clock + 10 * HOUR)
    try:
        assert seen(again, "u", "a", "b") == [1, 1]
    finally:
        again.stop()
