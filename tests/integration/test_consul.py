"""Registration and failover with a real agent of Consul."""
import pathlib
import time

import pytest

from conftest import end_to_end, free_port, go
from consul import Consul, key_of, make_server, refusal, start_follower  # noqa: F401
from standstill import freeze, thaw

STOPS = 10   # seconds: the TTL, before which writes have ended
DELAY = 10   # seconds: the lock delay


@pytest.fixture(scope="module")
def running_agent(tmp_path_factory):
    program = go("consul")
    assert pathlib.Path(program[0]).exists(), "scripts/test-integration builds it"
    made = Consul(program, tmp_path_factory.mktemp("consul"), free_port)
    yield made
    made.stop()


@pytest.fixture
def agent(running_agent):
    yield running_agent
    running_agent.thaw()  # a test that failed may have left it frozen


def primary(make_server, agent, name):
    """Each test has a lock of its own: whoever had one before may win over a new folder, by its id."""
    return make_server(registry_consul=agent.url, registry_name=name, replica_failover="in-step")


def test_a_server_is_registered_and_deregistered(make_server, agent):
    server = make_server(registry_consul=agent.url)
    checks = agent.until(lambda: [c for c in (agent.get("/v1/agent/checks") or {}).values()
                                  if c["ServiceName"] == "unseen" and c["Status"] == "passing"])
    service = agent.get("/v1/agent/services")[checks[0]["ServiceID"]]
    assert (service["Address"], service["Port"]) == ("127.0.0.1", server.port)
    assert agent.get("/v1/health/service/unseen?passing")
    assert server.stop() == 0
    assert not agent.get("/v1/agent/services")


def test_writes_wait_for_the_lock_and_end_before_it_can(make_server, agent):
    agent.freeze()
    server = primary(make_server, agent, "waits")
    assert "READONLY" in refusal(server) and "Consul" in refusal(server)
    agent.thaw()
    agent.until(lambda: refusal(server) is None)
    session, value = agent.key(key_of("waits"))
    assert session and value["term"] == 1 and value["in_step"] is False
    assert value["address"] == f"127.0.0.1:{server.port}"
    agent.freeze()
    began = time.monotonic()
    agent.until(lambda: refusal(server) is not None)
    assert time.monotonic() - began < STOPS
    # A write looks at the clock itself, before the thread that keeps the lock notices, and logs.
    agent.until(lambda: "the lock in Consul ends: no writes are taken" in server.log(), STOPS)
    agent.thaw()
    agent.until(lambda: refusal(server) is None)
    assert server.stop() == 0
    session, again = agent.key(key_of("waits"))
    assert not session and again.pop("beat") > value.pop("beat") and again == value  # free at once; it says whose it was


def test_a_session_that_is_destroyed_costs_the_lock_delay(make_server, agent):
    server = primary(make_server, agent, "destroyed")
    agent.until(lambda: refusal(server) is None)
    session, _ = agent.key(key_of("destroyed"))
    began = time.monotonic()
    agent.call("PUT", f"/v1/session/destroy/{session}")
    agent.until(lambda: refusal(server) is not None)
    assert time.monotonic() - began < STOPS
    agent.until(lambda: refusal(server) is None)
    assert time.monotonic() - began >= DELAY - 0.5
    assert agent.key(key_of("destroyed"))[0] not in (None, "", session)
    assert server.stop() == 0


def test_who_stood_still_past_the_lock_takes_no_write(make_server, agent):
    server = primary(make_server, agent, "frozen")
    agent.until(lambda: refusal(server) is None)
    with server.client() as c:
        freeze(server.process)
        try:
            c.send(b"PLAYED u late\r\n")
            agent.until(lambda: not agent.key(key_of("frozen"))[0])  # somebody else could have it
        finally:
            thaw(server.process)
        assert "READONLY" in str(c.read())
    agent.until(lambda: refusal(server) is None)


def test_of_two_primaries_one_takes_writes(make_server, agent):
    a, b = primary(make_server, agent, "two"), primary(make_server, agent, "two")
    agent.until(lambda: (refusal(a) is None) + (refusal(b) is None) == 1)
    for _ in range(100):
        assert (refusal(a) is None) + (refusal(b) is None) <= 1
        end_to_end.pause(0.05, "renewals go on meanwhile")


def pair(make_server, agent, name, ack_timeout, failover="in-step"):
    """A primary and its replica, in step, as Consul knows."""
    options = {"registry_consul": agent.url, "registry_name": name, "replica_failover": failover,
               "replica_ack": "replica", "replica_ack_timeout": ack_timeout}
    first = make_server(**options)
    agent.until(lambda: refusal(first) is None)
    second = start_follower(make_server(wait=False, **options), f"127.0.0.1:{first.port}")
    agent.until(lambda: (agent.key(key_of(name))[1] or {}).get("in_step") is True)
    return first, second


def test_a_pair_that_is_idle_stays_as_it_is(make_server, agent):
    """Each renewal shows, though there is nothing new to say."""
    first, second = pair(make_server, agent, "idle", "5s")
    beat = agent.key(key_of("idle"))[1]["beat"]
    agent.until(lambda: agent.key(key_of("idle"))[1]["beat"] >= beat + 8)  # more than two leases later
    assert refusal(first) is None
    assert "READONLY" in refusal(second)
    assert agent.key(key_of("idle"))[1]["term"] == 1
    assert "failover waits" not in second.log()


def test_the_replica_takes_over_when_the_primary_dies(make_server, agent):
    """In step, as Consul was told: no acknowledged play is lost. The old primary comes back, and takes none."""
    first, second = pair(make_server, agent, "pair", "5s")
    items = [f"item{i}" for i in range(200)]
    with first.client() as c:
        for item in items:
            assert c.command("PLAYED", "u", item) == 1
    first.kill()
    agent.until(lambda: refusal(second) is None)
    with second.client() as c:
        assert c.command("UNSEEN", "u", *items, "new") == [b"new"]
    session, value = agent.key(key_of("pair"))
    assert session and value["term"] == 2 and value["address"] == f"127.0.0.1:{second.port}"
    first.start()
    agent.until(lambda: "READONLY" in (refusal(first) or ""))
    agent.until(lambda: "has taken over in term 2" in (refusal(first) or ""))
    assert refusal(second) is None


def test_nobody_takes_over_out_of_step(make_server, agent):
    """The primary had answered alone, and said so before: what it has may be nowhere else."""
    first, second = pair(make_server, agent, "apart", "1s")
    freeze(second.process)
    assert refusal(first) is None  # alone, once Consul has it
    assert agent.key(key_of("apart"))[1]["in_step"] is False
    first.kill()
    thaw(second.process)
    agent.until(lambda: not agent.key(key_of("apart"))[0])
    agent.until(lambda: "failover waits" in second.log() and "out of step" in second.log().split("failover waits")[-1])
    assert "READONLY" in refusal(second)
    first.start()  # with its lock it goes on
    agent.until(lambda: refusal(first) is None)


def status(server):
    with server.client() as c:
        reply = c.command("REPLICA", "STATUS")
    fields = dict(zip(reply[::2], reply[1::2]))
    fields[b"follower"] = dict(zip(fields[b"follower"][::2], fields[b"follower"][1::2]))
    return fields


def test_of_three_one_takes_over_and_the_other_follows_it(make_server, agent):
    """By itself, without a clone; and nothing is lost."""
    first, second = pair(make_server, agent, "three", "5s")
    own = {name: value for name, value in first.options.items() if name.startswith(("registry_", "replica_"))}
    third = start_follower(make_server(wait=False, **own), f"127.0.0.1:{first.port}")
    replicas = [second, third]
    node = {server: status(server)[b"node"].decode() for server in replicas}
    names = {second: f"consumer=replica:{node[third]}", third: f"consumer=replica:{node[second]}"}
    agent.until(lambda: all(names[server] in server.log() for server in replicas))  # each keeps what it has for the other
    with first.client() as c:
        for i in range(100):
            assert c.command("PLAYED", "u", f"item{i}") == 1
    first.kill()
    agent.until(lambda: any(refusal(server) is None for server in replicas))
    new, = [server for server in replicas if refusal(server) is None]
    other, = [server for server in replicas if server is not new]
    assert agent.key(key_of("three"))[1]["address"] == f"127.0.0.1:{new.port}"
    agent.until(lambda: status(other)[b"follower"].get(b"node") == node[new].encode())
    with new.client() as c:
        assert c.command("PLAYED", "u", "later") == 1
    with other.client() as c:
        agent.until(lambda: c.command("SEEN", "u", "later") == [1])
        assert c.command("UNSEEN", "u", *[f"item{i}" for i in range(100)], "new") == [b"new"]
    assert "goes on behind another primary" in other.log()


def test_lossy_takes_over_out_of_step(make_server, agent):
    """Who says so beforehand is up again, without what the primary alone had."""
    first, second = pair(make_server, agent, "lossy", "1s", "lossy")
    freeze(second.process)
    assert refusal(first) is None  # alone: u's i is nowhere else
    first.kill()
    thaw(second.process)
    agent.until(lambda: refusal(second) is None)
    assert agent.key(key_of("lossy"))[1]["address"] == f"127.0.0.1:{second.port}"
