"""GET /v1/timeline: the last hour, by the server's own clock, in bounded memory; and what /v1/status says of now."""
import jsonschema
import pytest

from conftest import HOUR, START
from resp import RespError
from test_http import Asker, schema

STEP = 15 * 1000


def points(asker):
    told = asker.good("GET", "/v1/timeline")
    jsonschema.validate(told, schema("Timeline"))
    assert told["step_ms"] == STEP
    return told["points"]


def test_rates_and_latencies(make_server):
    server = make_server(http="127.0.0.1:0")
    with Asker(server) as asker, server.client() as c:
        assert points(asker) == []
        for _ in range(30):
            c.command("PLAYED", "u", "a")
            c.command("UNSEEN", "u", "a", "b")
        server.advance(STEP)
        (first,) = points(asker)
        assert first["at"] == server.clock and first["seconds"] == 15
        assert first["writes"] == first["questions"] == 2 and first["hidden"] == 0.5
        for kind in ("question", "write"):
            assert 0 < first[f"{kind}_p50_ms"] <= first[f"{kind}_p99_ms"]
        with pytest.raises(RespError):
            c.command("NOSUCH")
        server.advance(STEP)
        idle = points(asker)[1]
        assert (idle["questions"], idle["writes"], idle["hidden"], idle["question_p99_ms"]) == (0, 0, None, None)
        assert idle["errors"] == 1 / 15
        server.advance(STEP - 1)
        assert len(points(asker)) == 2


def test_an_hour_and_no_more(make_server):
    server = make_server(http="127.0.0.1:0")

    def look():  # each on a connection of its own: they don't live as long as the steps of the clock are
        with Asker(server) as asker:
            return points(asker)

    with server.client() as c:
        for n in range(250):
            c.command("PLAYED", "u", "a")
            server.advance(STEP)
            if n % 50 == 49:  # nobody need look meanwhile: the server ticks; here time goes faster than it
                assert len(look()) <= 240
        server.advance(2 * HOUR)
        told = look()
        assert len(told) == 1 and told[0]["seconds"] >= 2 * 3600
        server.advance(STEP)
        assert look()[-1]["at"] == server.clock


def test_now_growth_and_the_error_budget(make_server):
    server = make_server(http="127.0.0.1:0")
    with Asker(server) as asker, server.client() as c:
        status = asker.good("GET", "/v1/status")
        assert status["recent"] is None and status["error_budget"]["spent"] is None
        assert status["error_budget"]["error_rate"] == 0.001
        c.command("PLAYED", "u", *[f"v{n}" for n in range(10000)])
        server.advance(STEP)  # the first moment when the data's size is known
        asker.good("GET", "/v1/status")
        c.command("PLAYED", "u", *[f"v{n}" for n in range(10000, 20000)])
        c.command("RING", "FLUSH")
        c.command("UNSEEN", "u", *[f"w{n}" for n in range(5000)])
        server.advance(STEP)
        status = asker.good("GET", "/v1/status")
        jsonschema.validate(status, schema("Status"))
        assert status["recent"]["writes"] == 10000 / 15
        budget = status["error_budget"]
        millionths = status["figures"]["expected_false_hits_millionths"]
        assert budget["expected"] == millionths / 1e6 and abs(budget["spent"] - millionths / 1e6 / 5) < 1e-9
        assert 0 < budget["spent"] < 1
        assert status["growth"] is None  # not before an hour is known
        for _ in range(238):
            server.advance(STEP)
            status = asker.good("GET", "/v1/status")
        files = status["figures"]["staging_file_bytes"] + status["figures"]["history_file_bytes"]  # without their logs
        assert 3570 <= status["growth"]["seconds"] <= 3600 and 0 <= status["growth"]["bytes"] < files


def test_the_last_backup(make_server, folder):
    server = make_server(http="127.0.0.1:0")
    with Asker(server) as asker, server.client() as c:
        assert asker.good("GET", "/v1/status")["backup"]["last_at"] == 0
        c.command("PLAYED", "u", "a")
        c.command("BACKUP", str(folder / "copy"))
        told = asker.good("GET", "/v1/status")["backup"]
        assert told["last_ok"] and told["last_at"] == server.clock and told["last_bytes"] > 0 and told["phase"] == "none"
        server.advance(1000)
        with pytest.raises(RespError):
            c.command("BACKUP", str(folder / "copy"))  # it is there
        told = asker.good("GET", "/v1/status")["backup"]
        assert not told["last_ok"] and told["last_error"]
        assert told["good_at"] == server.clock - 1000 and told["problems"] == 0 and told["next_at"] == 0


def test_the_backup_before_the_start_and_the_next(make_server, folder):
    """START is 10:00 in UTC."""
    server = make_server(http="127.0.0.1:0", backup_root=str(folder))
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("BACKUP", "copy")
        made = server.clock
        server.advance(1000)  # it is saved
    server.restart()
    with Asker(server) as asker, server.client() as c:
        status = asker.good("GET", "/v1/status")
        jsonschema.validate(status, schema("Status"))
        told = status["backup"]
        assert (told["good_at"], told["problems"], told["last_at"], told["next_at"]) == (made, 0, 0, 0)
        assert "next_backup_time:0\r\n" in c.command("INFO", "backup").decode()
    server.options.update(backup_at="12:00", timezone="UTC")
    server.restart()
    with Asker(server) as asker, server.client() as c:
        noon = START + 2 * HOUR
        assert asker.good("GET", "/v1/status")["backup"]["next_at"] == noon
        assert f"next_backup_time:{noon // 1000}\r\n" in c.command("INFO", "backup").decode()


def test_the_clock(make_server):
    server = make_server(http="127.0.0.1:0")
    with Asker(server) as asker, server.client() as c:
        clock = asker.good("GET", "/v1/status")["clock"]
        assert (clock["state"], clock["reason"], clock["believed"]) == ("believed", "", server.clock)
        c.command("DEBUG", "JUMP", str(40 * 24 * HOUR))
        status = asker.good("GET", "/v1/status")
        jsonschema.validate(status, schema("Status"))
        assert status["clock"]["state"] == "doubted" and "unseen clock --accept" in status["clock"]["reason"]
        c.command("CLOCK", "ACCEPT")
        assert asker.good("GET", "/v1/status")["clock"]["state"] == "believed"
