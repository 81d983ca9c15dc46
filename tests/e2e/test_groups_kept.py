"""Groups where they are carried: to a replica, one protocol apart, by an export, a clone, a promotion, the mirror."""
import pytest

from conftest import START, run
from test_replica import level, pair, say, status  # noqa: F401

POLICIES = {"authors": {"plays": "off", "item": "off", "group": "2 in 1h"}}
WORDS = "a3 A b2 B b3 B c1 C".split()


def authors(server, user="u"):
    return [i.decode() for i in say(server, "FILTER", user, "POLICY", "authors", "PAIRS", *WORDS)]


def send(server):
    say(server, "DELIVERED", "u", "PAIRS", "a1", "A", "x", "", "a2", "A")
    say(server, "FILTER", "u", "POLICY", "authors", "LIMIT", "2", "DELIVER", "PAIRS", "a3", "A", "b1", "B")
    say(server, "DELIVERED", "u", "x", "y")


def test_a_replica_has_them(pair):  # noqa: F811
    primary, replica, _ = pair(clock=START, policies=POLICIES)
    send(primary)
    for _ in range(2):
        level(primary, replica)
        for node in (primary, replica):
            assert authors(node) == ["b2", "b3", "c1"]
            say(node, "RING", "FLUSH")
    run("replica", "--verify", "--from", f"127.0.0.1:{primary.port}", "--to", f"127.0.0.1:{replica.port}")


@pytest.mark.parametrize("older", ["replica", "primary"])
def test_one_protocol_apart(pair, monkeypatch, older):  # noqa: F811
    """Who knows no groups is told of deliveries without, and goes on."""
    primary, replica, _ = pair(clock=START, policies=POLICIES)
    server = replica if older == "replica" else primary
    assert server.stop() == 0
    with monkeypatch.context() as patch:
        patch.setenv("UNSEEN_TEST_PROTOCOL", "3")
        server.start()
    send(primary)
    level(primary, replica)
    assert status(replica)["follower"]["state"] == b"in step"
    assert authors(primary) == ["b2", "b3", "c1"] and authors(replica) == ["a3", "b2", "b3", "c1"]
    for node in (primary, replica):
        assert say(node, "UNSEEN", "u", "a1", "a2", "b1", "x", "y", "z") == [b"z"]


def test_a_clone_and_an_export(make_server, folder):
    seed = "00112233445566aa"
    one, other = (make_server(clock=START, hash_seed=seed, policies=POLICIES) for _ in range(2))
    send(one)
    say(one, "RING", "FLUSH")
    say(one, "DELIVERED", "u", "PAIRS", "c2", "C", "c3", "C")
    run("export", folder / "users", "--data", one.data, "--test-clock", one.clock)
    for _ in range(2):  # once more, and nothing changes
        run("load", folder / "users", "--to", f"127.0.0.1:{other.port}")
        assert authors(one) == authors(other) == ["b2", "b3"]
        say(other, "RING", "FLUSH")
    say(other, "DELIVERED", "u", "PAIRS", "b9", "B")
    assert authors(other) == []
