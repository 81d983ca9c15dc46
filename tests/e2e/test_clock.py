"""`unseen clock`, CLOCK and what /readyz, INFO and RING say of it: on the running server, and on a stopped folder."""
import json

import pytest

from conftest import DAY, START, run
from resp import RespError
from test_http import Asker

HOUR = 3600 * 1000


def clock(server, *words, at=None):
    """Exit code, what it says as JSON or None, and what it complains of."""
    test = ["--test-clock", str(at)] if at is not None else []
    done = run("clock", *words, "--json", "--data", server.data, *test, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr.decode()


def test_a_leap_is_accepted_and_taken_back(make_server):
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "u", "before")
        assert clock(server)[:2] == (0, {"state": "believed", "wall": START, "believed": START, "newest": START, "held": 0,
                                         "reason": ""})
        c.command("DEBUG", "JUMP", 62 * DAY)
        for _ in range(30):
            c.command("DEBUG", "ADVANCE", HOUR)
        code, told, _ = clock(server)
        assert code == 1 and told["state"] == "doubted" and told["wall"] == START + 62 * DAY + 30 * HOUR
        assert told["believed"] == START + 30 * HOUR and told["newest"] == START
        reason = "the clock is 62 days ahead of the time it kept until now; set it right, or if it is right, type: unseen clock --accept"
        assert told["reason"] == reason
        assert f"clock:{reason}" in c.command("INFO", "ring").decode()
        assert 'reason="' + reason in server.log()
        shown = run("clock", "--data", server.data, check=False).stdout.decode()
        assert shown.startswith("clock     2027-01-23 16:00:00 UTC, doubted\nbelieved  2026-11-22 16:00:00 UTC\n") and reason in shown
        c.command("PLAYED", "u", "meanwhile")
        assert clock(server, "--set-back")[0] == 1
        code, told, _ = clock(server, "--accept")
        assert code == 0 and told["state"] == "believed" and told["held"] == START
        assert clock(server, "--accept")[2].endswith(": ERR the clock is believed: there is nothing to accept\n")
        c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "u", "before", "meanwhile", "new") == [b"new"]
        # It was a mistake.
        c.command("DEBUG", "JUMP", -62 * DAY)
        code, _, complaint = clock(server, "--accept")
        assert code == 1 and "take it back with unseen clock --set-back" in complaint
        code, told, _ = clock(server, "--set-back")
        assert code == 0 and told["newest"] == START + 30 * HOUR
        assert c.command("UNSEEN", "u", "before", "meanwhile", "new") == [b"new"]
        c.command("PLAYED", "u", "after")
        c.command("RING", "FLUSH")
        assert b"2026-11" in c.command("WHY", "u", "after")


def test_a_stopped_folder(make_server):
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    assert server.stop() == 0
    later = START + 100 * DAY
    code, told, _ = clock(server, at=later)
    assert code == 1 and told["state"] == "doubted" and "unseen clock --accept" in told["reason"]
    assert clock(server, "--accept", at=later)[0] == 0
    assert clock(server, at=later)[0] == 0
    assert clock(server, "--set-back", at=START)[0] == 0
    assert clock(server, at=START)[0] == 0
    server.restart()
    with server.client() as c:
        assert c.command("UNSEEN", "u", "a", "b") == [b"b"]
    assert run("clock", "--accept", "--set-back", "--data", server.data, check=False).returncode == 2


def test_readyz_says_what_to_type(make_server):
    server = make_server(http="127.0.0.1:0")
    with server.client() as c, Asker(server) as a:
        assert a.good("GET", "/readyz") == {"ready": True}
        c.command("DEBUG", "JUMP", -3 * DAY)
        assert a.good("GET", "/readyz") == {
            "ready": True, "clock": "the clock is 3 days behind the time it kept until now; set it right, or if it is right, "
                                    "type: unseen clock --set-back"}
        assert a.good("GET", "/v1/ring")["clock"].endswith("type: unseen clock --set-back")


def test_months_of_a_test_clock_are_no_jump(server):
    """Both clocks move: replays and tests of months need nobody's word."""
    with server.client() as c:
        for _ in range(8):
            c.command("PLAYED", "u", "a")
            c.command("DEBUG", "ADVANCE", 40 * DAY)
            assert b"clock:steady" in c.command("INFO", "ring")


@pytest.mark.parametrize("days", [-400, 400])
def test_event_times_go_by_the_later_time(server, days):
    with server.client() as c:
        c.command("DEBUG", "JUMP", days * DAY)
        assert c.command("PLAYEDAT", "u", START, "a") == 1
        later = max(START, START + days * DAY)
        assert c.command("PLAYEDAT", "u", later + DAY, "b") == 1
        with pytest.raises(RespError, match="ahead of the server's clock"):
            c.command("PLAYEDAT", "u", later + DAY + 1, "c")
        assert c.command("UNSEEN", "u", "a", "b", "c") == [b"c"]
