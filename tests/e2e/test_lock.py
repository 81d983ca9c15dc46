"""Failover by a lock in etcd, the real one, and in Kubernetes' Lease, a stub that refuses what the real one does. The
nodes' clocks are the test's; who keeps the lock has none that counts."""
import json
import select
import subprocess

import pytest

from conftest import Server, run, until
from lock_servers import ETCD, Etcd, Kubernetes, coded
from resp import RespError

CURL = json.loads(run("version", "--json").stdout)["libcurl"] != "none"
pytestmark = pytest.mark.skipif(not CURL, reason="built without libcurl")

LEASE_MS = 7500
STEP_MS = 250  # less than the least time in which something is due


@pytest.fixture
def make_place(folder):
    made = []

    def make(kind, **options):
        if kind is Etcd and not ETCD:
            pytest.skip("not here: etcd")
        own = folder / f"place{len(made)}"
        own.mkdir()
        made.append(kind(own, **options))
        return made[-1]

    yield make
    for place in made:
        place.close()


@pytest.fixture(params=[Etcd, Kubernetes], ids=["etcd", "kubernetes"])
def place(request, make_place):
    return make_place(request.param)


@pytest.fixture
def etcd(make_place):
    return make_place(Etcd)


@pytest.fixture
def kubernetes(make_place):
    return make_place(Kubernetes)


def refusal(server):
    """What a write is refused with; None: it is taken."""
    with server.client() as c:
        try:
            c.command("PLAYED", "u", "i")
        except RespError as error:
            return str(error)
    return None


def until_passing(server, condition):
    """Its clock goes on meanwhile; a node that is alive beside it, and does not hear of that, would seem late."""

    def wanted():
        if got := condition():
            return got
        server.advance(STEP_MS)
        return None

    return until(wanted, lambda: server.log()[-5000:])


def pass_together(place, first, second, condition):
    """A turn is a renewal, which the primary has made before the next one begins. The replica may be late to see it: the
    key has changed, so it gets nothing."""

    def wanted():
        if got := condition():
            return got
        beat = place.key("films")[1]["beat"]
        first.advance(3400)
        until(lambda: place.key("films")[1]["beat"] > beat, first.log)
        second.advance(3400)
        return None

    return until(wanted, lambda: first.log()[-5000:] + second.log()[-5000:])


def takes(server):
    """It holds the lock, as the primary."""
    shown = info(server)
    return shown["failover_lock"] == "1"


def takes_alone(server):
    """A play, which no replica confirms: it waits for ack_timeout, of the server's clock."""
    with server.client() as c:
        c.send(b"PLAYED alone i\r\n")
        until(lambda: server.advance(1100) or select.select([c.sock], [], [], 1)[0])
        try:
            return c.read() in (0, 1)
        except RespError:
            return False


def primary(make_server, place, name="films", **options):
    server = make_server(**place.options, lock_name=name, replica_failover="in-step", **options)
    until(lambda: takes(server), lambda: server.log())
    return server


def follower(make_server, folder, first):
    """Of it, in step, as the lock has it."""
    second = Server(folder / "second", wait=False, **{n: v for n, v in first.options.items()
                                                      if n.startswith(("lock_", "replica_"))})
    second.folder.mkdir()
    run("clone", f"127.0.0.1:{first.port}", "--data", second.data)
    return second.start()


@pytest.fixture
def make_pair(make_server, folder):
    followers = []

    def make(place, **options):
        first = primary(make_server, place, replica_ack="replica", replica_ack_timeout="1s", **options)
        second = follower(make_server, folder, first)
        followers.append(second)
        pass_together(place, first, second, lambda: place.key("films")[1].get("in_step") is True)
        return first, second

    yield make
    for server in followers:
        if server.alive():
            server.process.send_signal(18)  # a test that failed may have left it standing
            assert server.stop() == 0, server.log()


def play(server, n, user="u"):
    items = [f"item{i}" for i in range(n)]
    with server.client() as c:
        for item in items:
            assert c.command("PLAYED", user, item) == 1
    return items


def assert_has(server, items):
    with server.client() as c:
        assert c.command("UNSEEN", "u", *items, "new") == [b"new"]


def info(server):
    with server.client() as c:
        return dict(line.split(":", 1) for line in c.command("INFO", "registry").decode().splitlines() if ":" in line)


def test_the_replica_takes_over_when_the_primary_dies(make_pair, place):
    """No acknowledged play is lost; the old primary comes back, and takes none."""
    first, second = make_pair(place)
    assert "READONLY" in refusal(second)
    items = play(first, 100)
    holder, value = place.key("films")
    assert value["address"] == f"127.0.0.1:{first.port}" and value["term"] == 1 and value["node"] in holder
    first.kill()
    until_passing(second, lambda: takes(second))
    assert_has(second, items)
    until(lambda: takes_alone(second), second.log)
    holder, value = place.key("films")
    assert value["address"] == f"127.0.0.1:{second.port}" and value["term"] == 2 and value["in_step"] is False
    assert value["node"] in holder and "heir" not in value
    assert info(second)["failover_by"] == place.name.lower()
    assert info(second)["failover_promotions"] == "1"
    first.start()
    until(lambda: "has taken over in term 2" in (refusal(first) or ""), first.log)
    until_passing(second, lambda: takes(second))
    assert f"the lock in {place.name} is held" in second.log()


def test_a_clean_stop_frees_the_lock(make_pair, place):
    first, second = make_pair(place)
    items = play(first, 10)
    assert first.stop() == 0
    assert f"the lock in {place.name} is free" in first.log()
    assert place.key("films")[0] == ""
    second.advance(2000)
    until_passing(second, lambda: takes(second))
    assert_has(second, items)
    first.start()
    until(lambda: "has taken over in term 2" in (refusal(first) or ""), first.log)


def test_writes_end_before_anyone_else_may_take_them(make_server, place):
    """Who keeps the lock stands still: 7.5 s after it was asked for the last renewal the primary takes no writes."""
    server = primary(make_server, place)
    place.freeze()
    server.advance(LEASE_MS)
    assert "READONLY" in refusal(server)
    until(lambda: f"{place.name} does not answer" in refusal(server), server.log)
    until(lambda: f"the lock in {place.name} ends: no writes are taken" in server.log())
    place.thaw()
    until_passing(server, lambda: takes(server))
    assert int(info(server)["failover_lost"]) >= 1


def test_an_outage_replaces_no_primary(make_pair, place):
    first, second = make_pair(place)
    place.freeze()
    for server in (first, second):
        server.advance(60 * 1000)
    for server in (first, second):
        until(lambda: f"{place.name} does not answer" in info(server)["failover_cause"], server.log)
    place.thaw()
    until_passing(first, lambda: takes(first))
    for _ in range(8):  # less than a lease, in which the primary renews
        second.advance(STEP_MS)
    assert "READONLY" in refusal(second)
    assert place.key("films")[1]["term"] == 1


def test_out_of_step_nobody_takes_over(make_pair, place):
    """The primary had answered alone, and said so before."""
    first, second = make_pair(place)
    second.kill()
    until(lambda: takes_alone(first), first.log)
    assert place.key("films")[1]["in_step"] is False
    first.kill()
    second.start()
    until_passing(second, lambda: "out of step" in info(second)["failover_cause"])
    assert "READONLY" in refusal(second)
    first.start()
    until_passing(first, lambda: takes(first))


def test_a_lock_that_is_lost_is_taken_again_by_its_holder(make_server, place):
    """All data of the one who keeps it are lost, or an operator has deleted the key."""
    server = primary(make_server, place)
    before = place.key("films")[0]
    if place.name == "etcd":
        place.ask("kv/deleterange", {"key": coded("unseen/"), "range_end": coded("unseen0")})
    else:
        with place.lock:
            place.leases.clear()
    until_passing(server, lambda: place.key("films")[0] not in ("", before))
    until_passing(server, lambda: takes(server))
    assert place.key("films")[1]["term"] == 1


# --- etcd alone ---

def test_etcd_is_killed_and_compacted(make_pair, etcd):
    first, second = make_pair(etcd)
    items = play(first, 10)
    etcd.kill()
    etcd.start()
    until(lambda: takes(first), first.log)
    revision = etcd.ask("kv/range", {"key": coded("x")})["header"]["revision"]
    assert etcd.ask("kv/compaction", {"revision": revision, "physical": True}) is not None
    beat = etcd.key("films")[1]["beat"]
    until_passing(first, lambda: etcd.key("films")[1]["beat"] > beat)
    until_passing(first, lambda: takes(first))
    first.kill()
    until_passing(second, lambda: takes(second))
    assert_has(second, items)


def test_leases_that_are_revoked_cost_nothing(make_pair, etcd):
    """No lease holds the lock, only what a replica says of itself: it says it again."""
    first, second = make_pair(etcd)
    entries = {"key": coded("unseen/films/replicas/"), "range_end": coded("unseen/films/replicas0")}

    def published_with(but=()):
        return [kv["lease"] for kv in (etcd.ask("kv/range", entries) or {}).get("kvs", []) if kv["lease"] not in but]

    until(published_with)
    revoked = etcd.leases()
    for lease in revoked:
        assert etcd.ask("lease/revoke", {"ID": lease}) is not None
    assert takes(first)
    until_passing(second, lambda: published_with(but=revoked))
    first.kill()
    until_passing(second, lambda: takes(second))


def enable_auth(etcd):
    """root, and unseen, who may read and write the group's keys alone."""
    prefix = {"key": coded("unseen/films/"), "range_end": coded("unseen/films0"), "permType": "READWRITE"}
    for path, body in (("user/add", {"name": "root", "password": "top"}), ("role/add", {"name": "root"}),
                       ("user/grant", {"user": "root", "role": "root"}),
                       ("user/add", {"name": "unseen", "password": "secret"}), ("role/add", {"name": "films"}),
                       ("role/grant", {"name": "films", "perm": prefix}),
                       ("user/grant", {"user": "unseen", "role": "films"}), ("enable", {})):
        assert etcd.ask(f"auth/{path}", body) is not None, path


def test_a_user_and_a_password(make_server, etcd):
    enable_auth(etcd)
    server = make_server(**etcd.options, lock_name="films", replica_failover="in-step", lock_user="unseen",
                         lock_password="wrong")
    until(lambda: "authentication failed" in refusal(server), server.log)
    server.options["lock_password"] = "secret"
    server.write_config()
    server.process.send_signal(1)
    until_passing(server, lambda: takes(server))
    etcd.kill()
    etcd.start()
    etcd.log_in("root", "top")
    beat = etcd.key("films")[1]["beat"]
    until_passing(server, lambda: etcd.key("films")[1]["beat"] > beat)
    until_passing(server, lambda: takes(server))
    assert "secret" not in server.log()


@pytest.fixture
def certificate(folder):
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", cert, "-days", "3", "-subj", "/CN=place", "-addext",
                    "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return str(cert), str(key)


def test_a_certificate_of_its_own(make_server, make_place, certificate):
    cert, key = certificate
    etcd = make_place(Etcd, tls=certificate)
    refused = make_server(**etcd.options, lock_name="films", replica_failover="in-step", lock_ca=cert)
    until(lambda: etcd.url in refusal(refused), refused.log)
    assert refused.stop() == 0
    server = primary(make_server, etcd, lock_ca=cert, lock_cert=cert, lock_key=key)
    assert etcd.key("films")[1]["term"] == 1
    assert server.stop() == 0


def test_a_server_that_does_not_answer_is_passed_over(make_server, etcd):
    server = make_server(lock_etcd=f"http://127.0.0.1:1,{etcd.url}", lock_name="films", replica_failover="in-step")
    until_passing(server, lambda: takes(server))


# --- Kubernetes alone ---

def test_answers_that_are_lost(make_pair, kubernetes):
    """Each write is carried out and not answered: who asked reads how it ended, and takes no writes for what it doesn't know."""
    first, second = make_pair(kubernetes)
    kubernetes.loses = {"PUT"}
    first.advance(LEASE_MS)
    assert "READONLY" in refusal(first)
    version = kubernetes.version
    until_passing(first, lambda: kubernetes.version > version)
    kubernetes.loses = set()
    until_passing(first, lambda: takes(first))
    assert kubernetes.key("films")[1]["term"] == 1
    assert "READONLY" in refusal(second)


def test_what_stands_in_a_lease(make_pair, kubernetes):
    """kubectl shows the holder; all that replicas say of themselves goes with them when they stop."""
    first, second = make_pair(kubernetes)
    until(lambda: len(kubernetes.leases) == 2)
    lock = kubernetes.leases["unseen-films"]
    assert lock["spec"]["leaseDurationSeconds"] == 10
    assert lock["metadata"]["labels"] == {"unseen/group": "films", "unseen/part": "lock"}
    assert second.stop() == 0
    assert set(kubernetes.leases) == {"unseen-films"}
    second.start()


def test_a_token_that_is_replaced(make_server, kubernetes):
    """Each hour, by the kubelet, in the file."""
    server = primary(make_server, kubernetes)
    kubernetes.token = "second"
    server.advance(LEASE_MS)
    until(lambda: "status 401" in refusal(server), server.log)
    kubernetes.token_file.write_text("second\n")
    until_passing(server, lambda: takes(server))
    kubernetes.token_file.unlink()
    server.advance(LEASE_MS)
    until(lambda: "lock_token_file" in refusal(server), server.log)
    assert "second" not in server.log()


def test_in_cluster(make_server, make_place, certificate, monkeypatch):
    """Where the API server is, the environment of a pod says."""
    kubernetes = make_place(Kubernetes, tls=certificate)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kubernetes.port))
    kubernetes.options["lock_kubernetes"] = "in-cluster"
    server = primary(make_server, kubernetes, lock_ca=certificate[0])
    assert kubernetes.key("films")[1]["term"] == 1
    assert server.stop() == 0


@pytest.mark.parametrize("options,said", [
    ({"lock_kubernetes": "in-cluster"}, "KUBERNETES_SERVICE_HOST"),
    ({"lock_kubernetes": "in-cluster", "lock_etcd": "http://127.0.0.1:1"}, "both given, expected one of them"),
    ({"lock_kubernetes": "https://127.0.0.1:1"}, "lock_namespace is empty"),
    ({"lock_kubernetes": "127.0.0.1:1"}, "expected in-cluster or https://host:port"),
    ({"lock_kubernetes": "in-cluster", "lock_name": "Films"}, "lower-case"),
    ({"lock_kubernetes": "in-cluster", "lock_namespace": "a/b"}, "lock_namespace is"),
    ({"lock_etcd": "127.0.0.1:2379"}, "expected http://host:port or https://host:port"),
    ({"lock_etcd": "http://a:b@127.0.0.1:2379"}, "they go into lock_user and lock_password"),
    ({"lock_etcd": "http://127.0.0.1:1", "lock_user": "u"}, "lock_password is empty"),
    ({"lock_etcd": "http://127.0.0.1:1", "lock_cert": "/c"}, "lock_key is empty"),
    ({"lock_etcd": "http://127.0.0.1:1", "lock_name": "a/b"}, "lock_name is"),
    ({}, "lock_etcd and lock_kubernetes are"),
])
def test_options_that_say_nothing_sound(folder, monkeypatch, options, said):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    server = Server(folder / "refused", wait=False, replica_failover="in-step", **options)
    server.folder.mkdir()
    server.spawn()
    assert server.process.wait(60) != 0
    assert said in server.log()
    assert "a:b" not in server.log()
