"""Every command through redis-cli, in both protocols."""
import subprocess

import pytest

from conftest import HOUR, START


@pytest.fixture(params=["-2", "-3"])
def cli(server, request):
    def ask(*words, stdin=None):
        result = subprocess.run(
            ["redis-cli", request.param, "-p", str(server.port), *map(str, words)],
            input=stdin, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        out = result.stdout.rstrip("\n")
        return out.split("\n") if "\n" in out else out

    ask.resp3 = request.param == "-3"
    return ask


def test_record_and_ask(cli):
    assert cli("PLAYED", "u1", "a", "b") == "2"
    assert cli("DELIVERED", "u1", "c") == "1"
    assert cli("PLAYEDAT", "u1", START - 40 * 24 * HOUR, "d") == "1"
    assert cli("UNSEEN", "u1", "x", "a", "y", "b", "c", "d", "x") == ["x", "y", "x"]
    assert cli("SEEN", "u1", "a", "x", "a") == ["1", "0", "1"]
    assert cli("FILTER", "u1", "ITEMS", "a", "x") == "x"
    assert cli("FILTER", "u1", "REPLY", "INDEXES", "ITEMS", "a", "x", "y") == ["1", "2"]
    assert cli("FILTER", "u1", "LIMIT", "1", "ITEMS", "a", "x", "y") == "x"
    assert cli("FILTER", "u1", "REPLY", "BITMAP", "ITEMS", "a", "x", "b", "y", "z") == "X"  # 01011000
    assert cli("UNSEEN", "nobody", "a") == "a"


def test_filter_delivers(cli):
    assert cli("FILTER", "u1", "LIMIT", "2", "DELIVER", "ITEMS", "a", "b", "c") == ["a", "b"]
    assert cli("FILTER", "u1", "LIMIT", "2", "DELIVER", "ITEMS", "a", "b", "c") == "c"
    assert cli("WHY", "u1", "a").split()[0] == "delivered"  # -3 answers a map, with the chance of an error


def test_why_and_history(cli):
    cli("PLAYED", "u1", "a")
    assert cli("RING", "FLUSH")
    cli("PLAYED", "u1", "a", "b")
    why = cli("WHY", "u1", "a")
    assert "staged" in why[0] and any("2026-11" in line for line in why)
    assert cli("WHY", "u1", "nothing") == ""
    text = "\n".join(cli("HISTORY", "u1"))
    assert "u1" in text and "2026-11" in text and "staged" in text
    assert cli("HISTORY", "nobody") == ""


def test_forget(cli):
    cli("PLAYED", "u1", "a", "b")
    assert cli("FORGET", "u1", "a", "x") == "1"
    assert cli("UNSEEN", "u1", "a", "b") == "a"
    assert cli("FORGET", "u1") == "1"
    assert cli("FORGET", "u1") == "0"
    assert cli("UNSEEN", "u1", "a", "b") == ["a", "b"]


def test_ring_and_months(cli):
    cli("PLAYED", "u1", "a", "b")
    text = "\n".join(cli("RING"))
    assert "open" in text and "empty" in text
    cli("RING", "FLUSH")
    text = "\n".join(cli("MONTHS"))
    assert "2026-11" in text and "live" in text


def test_the_words_every_server_knows(cli):
    assert cli("PING") == "PONG"
    assert cli("PING", "hello") == "hello"
    assert cli("ECHO", "hello") == "hello"
    assert cli("SELECT", "0") == "OK"
    assert "redis_version:" in "\n".join(cli("INFO"))
    info = "\n".join(cli("INFO", "server"))
    assert "redis_version:" in info
    text = "\n".join(cli("INFO"))
    assert "role:master" in text and "loading:0" in text
    assert int(cli("COMMAND", "COUNT")) > 20
    assert cli("CLIENT", "SETNAME", "me") == "OK"
    assert int(cli("CLIENT", "ID")) > 0
    assert cli("CONFIG", "GET", "slots") in (["slots", "6"], "slots 6")
    assert cli("SELECT", "1").startswith("ERR")


def test_multi_through_stdin(cli):
    out = cli(stdin="MULTI\nPLAYED u1 a\nUNSEEN u1 a b\nEXEC\nMULTI\nDISCARD\nRESET\nPING\n")
    assert out == ["OK", "QUEUED", "QUEUED", "1", "b", "OK", "OK", "RESET", "PONG"]


def test_inline_commands(server):
    with server.client() as c:
        c.send(b"PLAYED u1 a b\r\nUNSEEN u1 a b 'c d' \"e\\x20f\"\nPING\r\n\r\n")
        assert c.read() == 2
        assert c.read() == [b"c d", b"e f"]
        assert c.read() == b"PONG"


def test_help_of_redis_cli_works(cli):
    """redis-cli asks COMMAND DOCS when it starts a session."""
    docs, info = cli("COMMAND", "DOCS", "PLAYED"), cli("COMMAND", "INFO", "PLAYED")
    summary = "Records items as played by the user, now; answers how many, once they are durable."
    assert any(summary in line for line in docs) and any("played" in line for line in info)
