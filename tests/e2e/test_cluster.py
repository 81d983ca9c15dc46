"""Coming from a Redis Cluster: three masters and their replicas, slots that move, masters that are killed."""
import pathlib
import socketserver
import tempfile
import threading

import pytest

from conftest import START
from old_cluster import Mover, Node, OldCluster
from old_redis import PATIENT, REDIS, wait
from resp import encode
from test_tls import Certificates
from test_migrate import migrate, verify, wait_done, wait_status
from test_mirror import wait_in_step
from test_reload import reload

pytestmark = pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")


@pytest.fixture(scope="module")
def shared():
    with tempfile.TemporaryDirectory() as folder:
        old = OldCluster(pathlib.Path(folder) / "cluster", replicas=0)
        yield old
        old.kill()


@pytest.fixture
def cluster(shared):
    for node in shared.masters:
        node.ask("FLUSHALL")
    return shared


@pytest.fixture
def whole(folder):
    old = OldCluster(folder / "cluster")
    yield old
    old.kill()


def fill(cluster, users, plays=20):
    commands = []
    for i in range(users):
        commands.append(("ZADD", f"played:u{i}", *[w for k in range(plays) for w in (START - k, f"i{k}")]))
        commands.append(("ZADD", f"delivered:u{i}", START, f"d{i}"))
    cluster.split(commands)


def all_there(server, users, plays=20):
    report = verify(server)
    assert (report["users"], report["plays"], report["missing"], report["unreadable"]) == (users, users * plays, 0, 0)
    with server.client() as c:
        for i in range(users):
            assert c.command("UNSEEN", f"u{i}", "x", "i0", f"i{plays - 1}", f"d{i}") == [b"x"]


def test_migration(make_server, cluster):
    fill(cluster, 300)
    server = make_server(legacy_redis=cluster.masters[1].address)
    assert b": 300 users found, 300 new\n" in migrate(server, "--scan").stdout
    s = wait_done(server)
    assert (s[b"migrated"], s[b"left"], s[b"cluster_masters"]) == (300, 0, 3)
    all_there(server, 300)


def test_seeds(make_server, cluster):
    """The first that answers tells the others; a cluster that is none is said to be none."""
    fill(cluster, 10)
    server = make_server(legacy_redis=f"cluster://127.0.0.1:1,{cluster.masters[2].address}")
    migrate(server, "--scan")
    assert wait_done(server)[b"migrated"] == 10


def test_user_of_the_old_redis(make_server, cluster):
    """An ACL user that may do just what is needed."""
    fill(cluster, 10)
    for node in cluster.masters:
        node.ask("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+zscan", "+zrevrange", "+zmscore", "+scan", "+select",
                 "+cluster|slots", "+cluster|nodes", "+asking")
    server = make_server(legacy_redis=cluster.seeds, legacy_user="reader", legacy_password="secret",
                         legacy_read_through="yes", legacy_timeout=PATIENT, legacy_cluster="yes")
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        migrate(server, "--scan")
        assert all(ask(c, i) == [b"x"] for i in range(10)) and counts(c)["answered"] == 10
        c.command("LEGACY", "RESUME")
    assert wait_done(server)[b"migrated"] == 10
    all_there(server, 10)


def test_scan_while_slots_move(make_server, cluster):
    """No key is missed, or the command says that some may be."""
    fill(cluster, 3000, plays=1)
    server = make_server(legacy_redis=cluster.seeds, legacy_users_rate="1")
    mover = Mover(cluster, [f"played:u{i}" for i in range(60)])
    moving = migrate(server, "--scan", check=False)
    mover.stop()
    status = wait_status(server, lambda s: True)
    assert moving.returncode == 1 and b"keys may still be missing" in moving.stderr or status[b"noted"] == 3000
    migrate(server, "--scan")
    assert wait_status(server, lambda s: True)[b"noted"] == 3000


def test_slots_move(make_server, cluster):
    """Also of users whose set comes in many pages."""
    fill(cluster, 200)
    big = [("ZADD", "played:big", *[w for k in range(at, at + 500) for w in (START - k, f"i{k}")])
           for at in range(0, 20000, 500)]
    cluster.split(big)
    server = make_server(legacy_redis=cluster.seeds, legacy_users_rate="400")
    mover = Mover(cluster, ["played:big"] + [f"played:u{i}" for i in range(10)])
    migrate(server, "--keys", "-", input=b"".join(b"u%d\n" % i for i in range(200)) + b"big\n")
    for _ in range(3):
        s = wait_done(server)
        assert (s[b"migrated"], s[b"left"]) == (201, 0)
        migrate(server, "--again")
    wait_done(server)
    mover.stop()
    assert wait_done(server)[b"cluster_moved"] > 0
    report = verify(server)
    assert (report["users"], report["plays"], report["missing"]) == (201, 200 * 20 + 20000, 0)


def test_mirror_while_slots_move(make_server, cluster):
    """What was written last to a key counts there too, in the end."""
    server = make_server(legacy_redis=cluster.seeds, legacy_mirror="yes")
    users = [f"u{i}" for i in range(30)]
    mover = Mover(cluster, [f"played:{u}" for u in users[:8]])
    want = {}
    with server.client() as c:
        for turn in range(60):
            for u in users:
                c.command("PLAYED", u, f"i{turn}")
                want.setdefault(u, set()).add(f"i{turn}".encode())
                if turn % 7 == 6:
                    c.command("FORGET", u)
                    want[u] = set()
    wait_in_step(server)
    mover.stop()
    assert {u: cluster.zset(f"played:{u}") for u in users} == want


@pytest.mark.slow
def test_master_is_killed(make_server, whole):
    """In the middle of a migration, mirror on: its replica takes over, and nothing is lost."""
    fill(whole, 400)
    whole.wait_copied()
    server = make_server(legacy_redis=whole.seeds, legacy_mirror="yes", legacy_users_rate="300")
    migrate(server, "--scan")
    wait_status(server, lambda s: s[b"migrated"] > 20)
    whole.owner("played:u0").kill()
    with server.client() as c:
        for i in range(400):
            c.command("PLAYED", f"u{i}", "later")
    assert wait_done(server)[b"left"] == 0
    wait_in_step(server)
    report = verify(server)
    assert (report["users"], report["missing"]) == (400, 0)
    assert all(b"later" in whole.zset(f"played:u{i}") for i in range(400))


def ask(client, i):
    return client.command("UNSEEN", f"u{i}", "x", "i0", "i19", f"d{i}")


def counts(client):
    s = client.command("LEGACY", "STATUS")
    flat = dict(zip(s[::2], s[1::2]))
    return {name: flat[b"read_through_" + name.encode()] for name in ("asked", "answered", "late", "failed", "skipped")}


def reading_through(make_server, cluster, users):
    """Whoever is noted waits: so many a second are migrated that none is."""
    server = make_server(legacy_redis=cluster.masters[0].address, legacy_read_through="yes", legacy_timeout=PATIENT,
                         legacy_users_rate="1", workers="1")
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        for i in range(users):
            c.command("LEGACY", "NOTE", f"u{i}")
    return server


def test_read_through(make_server, cluster):
    """A user's two keys are on two nodes."""
    fill(cluster, 50)
    server = reading_through(make_server, cluster, 50)
    with server.client() as c:
        for i in range(50):
            assert ask(c, i) == [b"x"], (i, counts(c))
        assert counts(c)["answered"] == 50
        with server.client() as other:
            c.send(b"".join(encode("UNSEEN", f"u{i}", "x", "i0", f"d{i}") for i in range(50)))
            assert [c.read() for _ in range(50)] == [[b"x"]] * 50
            assert counts(other) == {"asked": 100, "answered": 100, "late": 0, "failed": 0, "skipped": 0}


def test_read_through_while_slots_move(make_server, cluster):
    fill(cluster, 20)
    server = reading_through(make_server, cluster, 20)
    mover = Mover(cluster, [f"played:u{i}" for i in range(4)] + ["delivered:u0"])
    with server.client() as c:
        while mover.rounds < 2 and mover.failed is None:
            for i in range(20):
                assert ask(c, i) == [b"x"], (i, counts(c))
        mover.stop()
        now = counts(c)
        assert now["asked"] == now["answered"]


@pytest.mark.slow
def test_read_through_master_is_killed(make_server, whole):
    """Its users are answered without it, the others with theirs; its replica then answers."""
    fill(whole, 30)
    whole.wait_copied()
    server = reading_through(make_server, whole, 30)
    dead = whole.masters[2]
    with server.client() as c:
        assert all(ask(c, i) == [b"x"] for i in range(30))
        there = [i for i in range(30) if whole.owner(f"played:u{i}") is dead]
        dead.kill()
        assert ask(c, there[0]) in ([b"x", b"i0", b"i19"], [b"x"], [b"x", b"i0", b"i19", b"d%d" % there[0]])
        wait(lambda: all(ask(c, i) == [b"x"] for i in range(30)), server.log)


@pytest.fixture
def sentinels(folder):
    """A master, its replica, and who watches them."""
    master, replica = Node(folder / "master").start(), Node(folder / "replica").start()
    replica.ask("REPLICAOF", "127.0.0.1", master.port)
    wait(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
    watchers = []
    for i in range(3):
        node = Node(folder / f"s{i}", "--sentinel")
        (node.folder / "conf").write_text(
            f"port {node.port}\nsentinel monitor old 127.0.0.1 {master.port} 2\n"
            "sentinel down-after-milliseconds old 1000\nsentinel failover-timeout old 5000\n")
        watchers.append(node.start())
    wait(lambda: all(len(n.ask("SENTINEL", "SENTINELS", "old")) == 2 for n in watchers))
    wait(lambda: all(len(n.ask("SENTINEL", "REPLICAS", "old")) == 1 for n in watchers))
    yield master, replica, ",".join(n.address for n in watchers) + "/old"
    for node in (*watchers, master, replica):
        node.kill()


@pytest.mark.slow
def test_sentinel(make_server, sentinels):
    """The master is killed in the middle of the migration, mirror and read-through on: its replica is found."""
    master, replica, address = sentinels
    with master.client() as c:
        c.pipeline([("ZADD", f"played:u{i}", *[w for k in range(20) for w in (START - k, f"i{k}")]) for i in range(200)])
        c.pipeline([("ZADD", f"delivered:u{i}", START, f"d{i}") for i in range(200)])
        c.command("WAIT", 1, 0)
    server = make_server(legacy_redis=f"sentinel://{address}", legacy_mirror="yes", legacy_read_through="yes", legacy_timeout=PATIENT,
                         legacy_users_rate="100")
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        assert b": 200 users found, 200 new\n" in migrate(server, "--scan").stdout
        wait(lambda: ask(c, 199) == [b"x"])
        assert counts(c)["answered"] > 0
        c.command("LEGACY", "RESUME")
        wait_status(server, lambda s: s[b"migrated"] > 10)
        master.kill()
        for i in range(200):
            c.command("PLAYED", f"u{i}", "later")
    assert wait_done(server)[b"left"] == 0
    wait_in_step(server)
    report = verify(server)
    assert (report["users"], report["plays"], report["missing"]) == (200, 200 * 21, 0)
    assert all(b"later" in replica.ask("ZRANGE", f"played:u{i}", 0, -1) for i in range(200))


@pytest.fixture
def closed_sentinel(folder):
    """One that lets in nobody without a password, or that user; its master has another password."""
    master, sentinel = Node(folder / "master").start(), Node(folder / "sentinel", "--sentinel")
    (sentinel.folder / "conf").write_text(f"port {sentinel.port}\nsentinel monitor old 127.0.0.1 {master.port} 1\n")
    sentinel.start()
    sentinel.ask("SENTINEL", "SET", "old", "auth-pass", "of the redis")
    sentinel.ask("ACL", "SETUSER", "looker", "on", ">seen", "+sentinel|get-master-addr-by-name")
    sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">hush")
    master.ask("CONFIG", "SET", "requirepass", "of the redis")
    yield master, sentinel
    sentinel.kill()
    master.kill()


@pytest.mark.parametrize("user, password", [("", "hush"), ("looker", "seen")])
def test_sentinel_with_a_password(make_server, closed_sentinel, user, password):
    """It is the Sentinel's own: of both ways to it, the migration's and read-through's, and of --scan and --verify."""
    master, sentinel = closed_sentinel
    with master.client() as c:
        c.command("AUTH", "of the redis")
        c.pipeline([("ZADD", f"played:u{i}", START, "i0") for i in range(20)])
    server = make_server(legacy_sentinel=f"{sentinel.address}/old", legacy_password="of the redis",
                         legacy_sentinel_user=user, legacy_sentinel_password="wrong", legacy_mirror="yes",
                         legacy_read_through="yes", legacy_timeout=PATIENT, legacy_users_rate="1")
    done = migrate(server, "--scan", check=False)
    assert done.returncode != 0 and b"WRONGPASS" in done.stderr and sentinel.address.encode() in done.stderr, done
    migrate(server, "--keys", "-", input="".join(f"u{i}\n" for i in range(20)).encode())
    wait_status(server, lambda s: s[b"state"] == b"waiting" and b"WRONGPASS" in s[b"cause"])
    reload(server, legacy_sentinel_password=password)
    assert b": 20 users found" in migrate(server, "--scan").stdout
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        wait(lambda: c.command("UNSEEN", "u19", "i0", "x") == [b"x"] and counts(c)["answered"] > 0, server.log)
        c.command("LEGACY", "RESUME")
        c.command("PLAYED", "u3", "later")
    wait_in_step(server)
    reload(server, legacy_users_rate="0")
    assert wait_done(server)[b"left"] == 0
    assert verify(server)["missing"] == 0


class OneAnswer(socketserver.ThreadingTCPServer):
    """A Sentinel that names this address, whatever it is asked."""
    daemon_threads = True

    def __init__(self, node):
        answer = encode("127.0.0.1", str(node.port))
        asked = self.asked = threading.Event()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                while self.request.recv(4096):
                    asked.set()
                    self.request.sendall(answer)

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_sentinel_that_is_behind(make_server, folder):
    """It names a replica that holds nothing: nobody is migrated without plays, and the next Sentinel is asked."""
    master, other = Node(folder / "master").start(), Node(folder / "other").start()
    other.ask("REPLICAOF", "127.0.0.1", 1)
    behind, right = OneAnswer(other), OneAnswer(master)
    try:
        master.ask("ZADD", "played:u0", START, "i0")
        server = make_server(legacy_sentinel=f"{behind.address},{right.address}/old")
        migrate(server, "--keys", "-", input=b"u0\n")
        assert wait_done(server)[b"migrated"] == 1
        assert behind.asked.is_set()
        with server.client() as c:
            assert c.command("UNSEEN", "u0", "x", "i0") == [b"x"]
    finally:
        for sentinel in (behind, right):
            sentinel.shutdown()
            sentinel.server_close()
        master.kill()
        other.kill()


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("tls") / "certs")


def test_tls(make_server, folder, certs):
    """tls:// before the seeds holds for all nodes."""
    old = OldCluster(folder / "secure", replicas=0, certs=certs)
    try:
        fill(old, 20)
        server = make_server(legacy_redis=",".join(n.secure for n in old.masters), legacy_read_through="yes",
                             legacy_timeout=PATIENT, tls_ca=certs["ca.pem"], tls_cert=certs["client.pem"],
                             tls_key=certs["client.key"])
        with server.client() as c:
            c.command("LEGACY", "PAUSE")
            migrate(server, "--scan")
            wait(lambda: ask(c, 0) == [b"x"] and ask(c, 1) == [b"x"])
            c.command("LEGACY", "RESUME")
        assert wait_done(server)[b"migrated"] == 20
        all_there(server, 20)
    finally:
        old.kill()
