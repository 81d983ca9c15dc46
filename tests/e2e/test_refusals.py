"""Whatever the old Redis answers but what it should: what concerns all keys alike makes the mirror and the migration
wait, with the cause, and nothing is lost; what concerns one key is named, counted and passed over."""
import json
import shutil
import signal
import subprocess

import pytest

from conftest import REPO, START, free_port, run
from old_redis import REDIS, OldRedis, wait
from resp import flat

pytestmark = pytest.mark.skipif(REDIS is None, reason="there is no redis-server")


@pytest.fixture
def old(folder):
    made = []

    def make(*options):
        made.append(OldRedis(folder / f"redis{len(made)}", *options))
        return made[-1]

    yield make
    for redis in made:
        redis.kill()


def ask(server, *words):
    with server.client() as c:
        return c.command(*words)


def mirror(server):
    return flat(ask(server, "LEGACY", "MIRROR"))


def migration(server):
    return flat(ask(server, "LEGACY", "STATUS"))


def wait_in_step(server):
    wait(lambda: (s := mirror(server))["state"] == b"in step" and s["waiting"] == 0, lambda: mirror(server))


def wait_migrated(server):
    wait(lambda: (s := migration(server))["state"] == b"idle" and s["waiting"] == 0, lambda: migration(server))
    return migration(server)


def wait_cause(server, state, cause):
    """The cause may be another one at first: the connection that was cut."""
    wait(lambda: (s := state(server))["state"] == b"waiting" and cause in s["cause"], lambda: state(server))
    return state(server)


def problems(server):
    said = run("migrate", "--problems", "--json", "-c", server.config)
    return {p["key"]: p["problem"] for p in json.loads(said.stdout)}


def forbid(redis):
    redis.ask("ACL", "SETUSER", "default", "-zadd", "-zscan", "-zrevrange")


def allow(redis):
    redis.ask("ACL", "SETUSER", "default", "+@all")


def fail_to_save(redis):
    """Nor does it write, then: stop-writes-on-bgsave-error."""
    redis.ask("CONFIG", "SET", "save", "3600 1000000")
    (redis.folder / "dump.rdb").mkdir()
    redis.ask("BGSAVE")
    wait(lambda: b"rdb_last_bgsave_status:err" in redis.ask("INFO", "persistence"))


def save(redis):
    (redis.folder / "dump.rdb").rmdir()
    redis.ask("BGSAVE")
    wait(lambda: b"rdb_last_bgsave_status:ok" in redis.ask("INFO", "persistence"))


def load_slowly(redis):
    redis.ask("SAVE")
    redis.kill()
    redis.start("--appendonly", "no", "--key-load-delay", "500000", "--loading-process-events-interval-bytes", "1024",
                answers=b"LOADING")


def load(redis):
    redis.ask("CONFIG", "SET", "key-load-delay", "0")
    wait(lambda: redis.says() == b"PONG")


def follow_nobody(redis):
    redis.ask("CONFIG", "SET", "replica-serve-stale-data", "no")
    redis.ask("REPLICAOF", "127.0.0.1", "1")


def lead(redis):
    redis.ask("REPLICAOF", "NO", "ONE")


def lock(redis):
    redis.ask("CONFIG", "SET", "requirepass", "right")
    redis.password = "right"
    redis.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def unlock(redis):
    redis.ask("CONFIG", "SET", "requirepass", "")
    redis.password = None


def config(name, bad, good):
    return (lambda redis: redis.ask("CONFIG", "SET", name, bad)), (lambda redis: redis.ask("CONFIG", "SET", name, good))


ALL = {
    "noauth": (lock, unlock, b"NOAUTH"),
    "noperm": (forbid, allow, b"NOPERM"),
    "loading": (load_slowly, load, b"LOADING"),
}
READS = {
    "masterdown": (follow_nobody, lead, b"MASTERDOWN"),
}
WRITES = {
    "readonly": (follow_nobody, lead, b"READONLY"),
    "oom": (*config("maxmemory", "1", "0"), b"OOM"),
    "misconf": (fail_to_save, save, b"MISCONF"),
    "noreplicas": (*config("min-replicas-to-write", "1", "0"), b"NOREPLICAS"),
}


def fill(redis):
    """Enough to load for a while."""
    for n in range(30):
        redis.zadd(f"played:u{n}", [(START + i, f"old{i}") for i in range(300)])


@pytest.mark.parametrize("kind", [*ALL, *WRITES])
def test_the_mirror_waits(make_server, old, kind):
    spoil, mend, cause = {**ALL, **WRITES}[kind]
    redis = old()
    fill(redis)
    server = make_server(legacy_redis=redis.socket, legacy_mirror="yes")
    ask(server, "PLAYED", "u1", "before")
    wait_in_step(server)
    spoil(redis)
    for n in range(3):
        ask(server, "PLAYED", "u1", f"meanwhile{n}")
        ask(server, "DELIVERED", "u2", f"sent{n}")
    stuck = wait_cause(server, mirror, cause)
    assert stuck["waiting"] > 0 and stuck["skipped"] == 0
    mend(redis)
    wait_in_step(server)
    assert {b"before", b"meanwhile0", b"meanwhile1", b"meanwhile2"} <= set(redis.zset("played:u1"))
    assert list(redis.zset("delivered:u2")) == [b"sent0", b"sent1", b"sent2"]
    now = mirror(server)
    assert (now["skipped"], now["broken_since"], now["last_problem"]) == (0, 0, b"") and problems(server) == {}


@pytest.mark.parametrize("kind", [*ALL, *READS])
def test_the_migration_waits(make_server, old, kind):
    spoil, mend, cause = {**ALL, **READS}[kind]
    redis = old()
    fill(redis)
    server = make_server(legacy_redis=redis.socket)
    ask(server, "LEGACY", "NOTE", "u0")
    wait_migrated(server)
    spoil(redis)
    ask(server, "LEGACY", "NOTE", *(f"u{n}" for n in range(30)))
    assert wait_cause(server, migration, cause)["waiting"] == 29
    assert ask(server, "PLAYED", "u1", "meanwhile") == 1
    assert ask(server, "UNSEEN", "u1", "old7", "meanwhile") == [b"old7"]
    mend(redis)
    done = wait_migrated(server)
    assert (done["migrated"], done["left"], done["problems"]) == (30, 0, 0)
    assert ask(server, "UNSEEN", "u1", "old7", "meanwhile", "x") == [b"x"]


@pytest.mark.parametrize("kind", [kind for kind in WRITES if kind != "readonly"])  # see READS
def test_the_migration_only_reads(make_server, old, kind):
    spoil, _, _ = WRITES[kind]
    redis = old()
    fill(redis)
    spoil(redis)
    server = make_server(legacy_redis=redis.socket)
    ask(server, "LEGACY", "NOTE", *(f"u{n}" for n in range(30)))
    done = wait_migrated(server)
    assert (done["migrated"], done["left"], done["problems"]) == (30, 0, 0)


def test_the_password_is_changed(make_server, old):
    """Both wait, and go on once the new one stands in the configuration and that is read again."""
    redis = old()
    fill(redis)
    lock(redis)
    server = make_server(legacy_redis=redis.socket, legacy_mirror="yes", legacy_password="right")
    ask(server, "PLAYED", "u1", "before")
    wait_in_step(server)
    ask(server, "LEGACY", "NOTE", "u0")
    wait_migrated(server)

    redis.ask("CONFIG", "SET", "requirepass", "new")
    redis.password = "new"
    redis.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    ask(server, "PLAYED", "u1", "meanwhile")
    ask(server, "LEGACY", "NOTE", "u1")
    wait_cause(server, mirror, b"WRONGPASS")
    wait_cause(server, migration, b"WRONGPASS")
    assert b"right" not in server.log_path.read_bytes()
    server.options["legacy_password"] = "new"
    server.write_config()
    server.process.send_signal(signal.SIGHUP)
    wait_in_step(server)
    wait_migrated(server)
    assert b"meanwhile" in redis.zset("played:u1")
    assert ask(server, "UNSEEN", "u1", "old7", "x") == [b"x"]


def test_a_node_of_a_cluster(make_server, old):
    """Keys of other nodes are named and passed over. A cluster that is down is waited for."""
    options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    nodes = []
    for _ in range(2):
        port, bus = free_port(), free_port()
        nodes.append((old("--port", str(port), "--cluster-port", str(bus), *options), port, bus))
    (redis, _, _), (other, port, bus) = nodes
    server = make_server(legacy_redis=redis.socket, legacy_mirror="yes")
    ask(server, "LEGACY", "NOTE", "here", "there")
    ask(server, "PLAYED", "here", "v")
    ask(server, "PLAYED", "there", "v")
    wait_cause(server, mirror, b"CLUSTERDOWN")
    wait_cause(server, migration, b"CLUSTERDOWN")
    slots = {user: redis.ask("CLUSTER", "KEYSLOT", f"played:{user}") for user in ("here", "there")}
    delivered = {user: redis.ask("CLUSTER", "KEYSLOT", f"delivered:{user}") for user in ("here", "there")}
    other.ask("CLUSTER", "ADDSLOTS", slots["there"])
    redis.ask("CLUSTER", "MEET", "127.0.0.1", str(port), str(bus))
    wait(lambda: f":{port}@".encode() in redis.ask("CLUSTER", "NODES"))
    redis.ask("CLUSTER", "ADDSLOTS", *(n for n in range(16384) if n != slots["there"]))
    wait(lambda: f" {slots['there']}\n".encode() in redis.ask("CLUSTER", "NODES"))
    wait_in_step(server)
    done = wait_migrated(server)
    assert delivered["there"] != slots["there"]
    assert (done["migrated"], done["left"], done["problems"]) == (1, 1, 1)
    said = problems(server)
    assert list(said) == ["played:there"] and "MOVED" in said["played:there"]
    assert mirror(server)["skipped"] == 1 and b"played:there" in mirror(server)["last_problem"]
    assert list(redis.zset("played:here")) == [b"v"]


def test_keys_that_the_acl_forbids(make_server, old):
    redis = old()
    for user in ("mine", "other"):
        redis.zadd(f"played:{user}", [(START, "old")])
    redis.ask("ACL", "SETUSER", "default", "resetkeys", "~played:mine", "~delivered:*")
    server = make_server(legacy_redis=redis.socket, legacy_mirror="yes")
    ask(server, "LEGACY", "NOTE", "mine", "other")
    done = wait_migrated(server)
    assert (done["migrated"], done["left"], done["problems"]) == (1, 1, 1)
    ask(server, "PLAYED", "mine", "v")
    ask(server, "PLAYED", "other", "v")
    wait_in_step(server)
    assert mirror(server)["skipped"] == 1
    assert list(problems(server)) == ["played:other"] and "NOPERM" in problems(server)["played:other"]
    assert b"v" in redis.zset("played:mine")
    redis.ask("ACL", "SETUSER", "default", "allkeys")
    assert list(redis.zset("played:other")) == [b"old"]


def test_its_name(make_server, old):
    port = free_port()
    redis = old("--port", str(port))
    redis.zadd("played:u", [(START, "old")])
    server = make_server(legacy_redis=f"localhost:{port}", legacy_mirror="yes")
    ask(server, "LEGACY", "NOTE", "u")
    wait_migrated(server)
    ask(server, "PLAYED", "u", "new")
    wait_in_step(server)
    assert list(redis.zset("played:u")) == [b"new", b"old"]


def test_a_name_that_nobody_knows(make_server):
    server = make_server(legacy_redis="no-such-machine.invalid:6379", legacy_mirror="yes")
    ask(server, "LEGACY", "NOTE", "u")
    for state in (mirror, migration):
        wait_cause(server, state, b"no-such-machine.invalid: ")


def test_a_resolver_that_never_answers(make_server, folder, monkeypatch):
    """Nobody waits for it: neither who records, nor the end of the service."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    deaf = folder / "deaf_resolver.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", deaf, REPO / "tests/e2e/deaf_resolver.c", "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(deaf))
    server = make_server(legacy_redis="deaf.example:6379", legacy_mirror="yes", legacy_read_through="yes")
    monkeypatch.delenv("LD_PRELOAD")
    ask(server, "LEGACY", "NOTE", "u")
    assert ask(server, "PLAYED", "u", "v") == 1
    assert mirror(server)["state"] != b"in step"
    for state in (mirror, migration):
        assert wait_cause(server, state, b"deaf.example:6379: the look-up of its name has no answer")["waiting"] == 1
    assert ask(server, "UNSEEN", "u", "v", "w") == [b"w"]
    assert server.stop() == 0
