"""unseen check --repair --from: what one node can't read any more comes from the other."""
import json

import pytest

from conftest import run, until
from test_repair import key_of, months_table, spoil
from test_replica import fields, level, make_follower, pair, say, status  # noqa: F401 (the fixture)
from test_replica_three import three  # noqa: F401 (the fixture)


@pytest.fixture
def spoiled(pair):  # noqa: F811
    """(primary, replica): the same, and the primary's folder, which nobody serves, is damaged."""
    primary, replica, _ = pair()
    fill(primary)
    level(primary, replica)
    spoil_three(primary)
    return primary, replica


def fill(server):
    with server.client() as link:
        for user in ("good", "bad", "worse", "anonymous"):
            link.command("PLAYED", user, "a", "b")
            link.command("DELIVERED", user, "d")
        link.command("FORGET", "bad", "b")


def spoil_three(server):
    say(server, "RING", "FLUSH")
    assert server.stop() == 0
    table = months_table(server)
    spoil(server, f"UPDATE {table} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(server, "bad"))
    spoil(server, "UPDATE delivered SET items = x'00' WHERE user_key = ?", key_of(server, "worse"))
    spoil(server, "DELETE FROM users WHERE user = 'anonymous'")


def at(server):
    return f"127.0.0.1:{server.port}"


def repair(server, *options, code=0):
    result = run("check", "--repair", "--json", "--data", server.data, *options, check=False)
    assert result.returncode == code, result
    return json.loads(result.stdout) if code == 0 else result.stderr.decode()


def is_whole(server):
    server.start()
    with server.client() as link:
        for user in ("good", "worse", "anonymous"):
            assert link.command("UNSEEN", user, "a", "b", "d", "x") == [b"x"], user
        assert link.command("UNSEEN", "bad", "a", "b", "d", "x") == [b"b", b"x"]
        assert link.command("HISTORY", "anonymous")
    assert server.stop() == 0


def test_what_is_damaged_comes_from_the_other(spoiled):
    primary, replica = spoiled
    report = repair(primary, "--from", at(replica))
    assert report["problems"] == []
    said = "\n".join(report["repairs"])
    assert f'"bad": 2026-11 is repaired from {at(replica)}' in said
    assert f'"worse": deliveries are repaired from {at(replica)}' in said
    assert f'"anonymous": is known again, from {at(replica)}' in said
    assert '"good"' not in said
    assert repair(primary, "--from", at(replica))["repairs"] == []
    is_whole(primary)


def test_what_an_earlier_repair_gave_up_comes_back_too(spoiled):
    primary, replica = spoiled
    assert "is lost" in repair(primary)["repairs"][0]
    said = "\n".join(repair(primary, "--from", at(replica))["repairs"])
    assert said.count("repaired from") == 2 and "known again" in said
    is_whole(primary)


def test_nothing_is_given_up_when_the_other_is_not_there_or_another(spoiled, make_server):
    primary, _ = spoiled
    stranger = make_server()
    before = (primary.data / "history.db").read_bytes()
    assert "different seeds" in repair(primary, "--from", at(stranger), code=1)
    assert stranger.stop() == 0
    assert at(stranger) in repair(primary, "--from", at(stranger), code=1)
    assert (primary.data / "history.db").read_bytes() == before


def test_what_the_other_can_not_read_either_stays_lost(spoiled):
    primary, replica = spoiled
    say(replica, "RING", "FLUSH")
    spoil(replica, f"UPDATE {months_table(replica)} SET filter = x'00' WHERE user_key = ?", key_of(replica, "bad"))
    said = "\n".join(repair(primary, "--from", at(replica))["repairs"])
    assert '"bad": 2026-11 is lost' in said and '"bad": 2026-11 is repaired' not in said
    assert '"worse": deliveries are repaired' in said
    primary.start()
    with primary.client() as link:
        assert link.command("UNSEEN", "bad", "a") == [b"a"]  # accepted, and answered without


def without(replica, server, *commands):
    """The replica is away while the server takes these."""
    assert replica.stop() == 0
    server.start()
    for command in commands:
        say(server, *command)
    say(server, "RING", "FLUSH")
    assert server.stop() == 0
    replica.start()


def problems(server):
    return json.loads(run("check", "--json", "--data", server.data, check=False).stdout)["problems"]


def test_nothing_is_given_up_when_the_other_is_not_level(spoiled):
    primary, replica = spoiled
    without(replica, primary, ("PLAYED", "good", "late"), ("FORGET", "good", "none"))
    before = problems(primary)
    said = repair(primary, "--from", at(replica), code=1)
    assert f"{at(replica)} is not level with {primary.data}: it lacks 2 events of this folder. Serve" in said
    assert problems(primary) == before and len(before) >= 3
    primary.start()
    level(primary, replica)
    assert primary.stop() == 0
    assert "\n".join(repair(primary, "--from", at(replica))["repairs"]).count("repaired from") == 2
    is_whole(primary)


def test_forced_it_takes_what_there_is(spoiled):
    primary, replica = spoiled
    without(replica, primary, ("PLAYED", "bad", "late"))
    assert "--user and --force with --from" in run("check", "--repair", "--force", "--data", primary.data,
                                                   check=False).stderr.decode()
    said = "\n".join(repair(primary, "--from", at(replica), "--force")["repairs"])
    assert f"{at(replica)} is not level" in said and '"bad": 2026-11 is repaired' in said
    is_whole(primary)


def test_what_was_loaded_meanwhile_is_said(spoiled, tmp_path):
    primary, replica = spoiled
    exported = tmp_path / "export"
    run("export", exported, "--data", replica.data)
    assert replica.stop() == 0
    primary.start()
    run("load", exported, "--to", at(primary))
    assert primary.stop() == 0
    replica.start()
    said = "\n".join(repair(primary, "--from", at(replica))["repairs"])
    assert "who were loaded or repaired here since" in said and "repaired from" in said


def test_an_old_primary_rejoins_first(spoiled):
    primary, replica = spoiled
    without(replica, primary, ("PLAYED", "alone", "x"))
    say(replica, "REPLICA", "PROMOTE", "FORCE")
    primary.start()
    until(lambda: status(primary)["role"] == b"fenced", primary.log)
    assert primary.stop() == 0
    assert "it lacks 1 event of this folder, which unseen rejoin brings there" in repair(
        primary, "--from", at(replica), code=1)


def test_a_replicas_folder_comes_from_its_primary(spoiled):
    primary, replica = spoiled
    assert repair(primary, "--from", at(replica))["problems"] == []
    primary.start()
    level(primary, replica)
    spoil_three(replica)
    said = "\n".join(repair(replica, "--from", at(primary))["repairs"])
    assert said.count("repaired from") == 2 and "known again" in said
    assert repair(replica)["problems"] == []


def test_of_two_replicas_the_other_may_be_behind(three):  # noqa: F811
    first, second, third, _ = three()
    fill(first)
    level(first, second)
    assert second.stop() == 0
    say(first, "PLAYED", "bad", "late")
    level(first, third)
    spoil_three(third)
    assert first.stop() == 0
    second.start()
    assert "it has the events of their primary up to" in repair(third, "--from", at(second), code=1)
    first.start()
    level(first, second)
    assert "\n".join(repair(third, "--from", at(second))["repairs"]).count("repaired from") == 2
    third.start()
    level(first, third)
    assert say(third, "UNSEEN", "bad", "a", "b", "late") == [b"b"]


def test_one_that_never_followed(spoiled, make_server):
    """The same seed alone says nothing of what it has."""
    primary, replica = spoiled
    hello = fields(say(replica, "REPLICA", "HELLO", 3, "0000000000000001", 0, ""))
    alone = make_server(hash_seed=hello["seed"].decode())
    assert "it never followed this folder" in repair(primary, "--from", at(alone), code=1)


def test_from_is_of_repair_alone(server):
    assert "--from goes with --repair" in run("check", "--from", "127.0.0.1:1", "--data", server.data, check=False).stderr.decode()
