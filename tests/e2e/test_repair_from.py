"""unseen check --repair --from: what one node can't read any more comes from the other."""
import json

import pytest

from conftest import run
from test_repair import key_of, months_table, spoil
from test_replica import level, pair, say  # noqa: F401 (the fixture)


@pytest.fixture
def spoiled(pair):  # noqa: F811
    """(primary, replica): the same, and the primary's folder, which nobody serves, is damaged."""
    primary, replica, _ = pair()
    with primary.client() as link:
        for user in ("good", "bad", "worse", "anonymous"):
            link.command("PLAYED", user, "a", "b")
            link.command("DELIVERED", user, "d")
        link.command("FORGET", "bad", "b")
    level(primary, replica)
    say(primary, "RING", "FLUSH")
    assert primary.stop() == 0
    table = months_table(primary)
    spoil(primary, f"UPDATE {table} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(primary, "bad"))
    spoil(primary, "UPDATE delivered SET items = x'00' WHERE user_key = ?", key_of(primary, "worse"))
    spoil(primary, "DELETE FROM users WHERE user = 'anonymous'")
    return primary, replica


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
    assert f'"bad": 2026-11 is mended from {at(replica)}' in said
    assert f'"worse": deliveries are mended from {at(replica)}' in said
    assert f'"anonymous": is known again, from {at(replica)}' in said
    assert '"good"' not in said
    assert repair(primary, "--from", at(replica))["repairs"] == []
    is_whole(primary)


def test_what_an_earlier_repair_gave_up_comes_back_too(spoiled):
    primary, replica = spoiled
    assert "is lost" in repair(primary)["repairs"][0]
    said = "\n".join(repair(primary, "--from", at(replica))["repairs"])
    assert said.count("mended") == 2 and "known again" in said
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
    assert '"bad": 2026-11 is lost' in said and '"bad": 2026-11 is mended' not in said
    assert '"worse": deliveries are mended' in said
    primary.start()
    with primary.client() as link:
        assert link.command("UNSEEN", "bad", "a") == [b"a"]  # accepted, and answered without


def test_from_is_of_repair_alone(server):
    assert "--from goes with --repair" in run("check", "--from", "127.0.0.1:1", "--data", server.data, check=False).stderr.decode()
