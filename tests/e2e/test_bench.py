"""unseen bench against a real server: what it counts and verifies, not how fast anything is."""
import json
import resource
import subprocess

import pytest

from conftest import PATIENCE, START, UNSEEN, run, until
from old_redis import REDIS, OldRedis


def bench(server, *args, check=True):
    result = run("bench", "--to", f"127.0.0.1:{server.port}", "--test-clock", START, "--seconds", "1", "--warm-up", "0",
                 "--json", *args, check=check)
    return json.loads(result.stdout), result


def check_load(load, kind):
    assert load["kind"] == kind
    assert load["answered"] > 0 and load["done"] > 0
    assert load["errors"] == load["wrong"] == load["unanswered"] == 0
    latency = load["latency_us"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p999"] <= latency["max"]
    assert sum(bucket["count"] for bucket in load["histogram_us"]) == load["answered"]


@pytest.mark.parametrize("reply", ["bitmap", "items", "indexes"])
def test_questions_are_verified(server, reply):
    users = ["--users", 5, "--plays-per-month", 50, "--candidates", 301, "--reply", reply, "--verify"]
    found, _ = bench(server, "--prepare", *users)
    [load] = found["loads"]
    check_load(load, "questions")
    assert load["played_but_unseen"] == 0
    # Never-played candidates are counted in the first question of 16, with names that are asked about once.
    asked = (load["answered"] + 15) // 16
    assert asked * 301 * 0.5 < load["unplayed"] < asked * 301
    assert load["unplayed_but_hidden"] <= 2 + load["unplayed"] / 1000
    with server.client() as c:
        # What it took of the server's time is a part of all that the server took until now.
        cpu = dict(line.split(":") for line in c.command("INFO", "cpu").decode().splitlines() if ":" in line)
        for kind, name in (("user", "used_cpu_user"), ("kernel", "used_cpu_sys")):
            found["server_cpu_us_a_request"][kind] *= load["answered"] / 1e6
            assert 0 <= found["server_cpu_us_a_request"][kind] <= float(cpu[name])
        assert sum(found["server_cpu_us_a_request"].values()) > 0.01  # of a second, with requests without a break
        assert c.command("HISTORY", "bench:00000004")
        assert c.command("HISTORY", "bench:00000005") is None

    # Of users without plays, all is unseen: that must be noticed.
    found, result = bench(server, *users, "--prefix", "nobody", check=False)
    assert result.returncode == 1
    assert found["loads"][0]["wrong"] > 0 and found["loads"][0]["played_but_unseen"] > 0


@pytest.mark.parametrize("reply", ["bitmap", "indexes"])
def test_questions_with_hashes(server, reply):
    """Of the server's own seed: so they are answered as ids are, also those that are asked about once."""
    users = ["--users", 5, "--plays-per-month", 50, "--candidates", 301, "--reply", reply, "--verify", "--hashes"]
    found, _ = bench(server, "--prepare", *users)
    [load] = found["loads"]
    check_load(load, "questions")
    asked = (load["answered"] + 15) // 16
    assert load["played_but_unseen"] == 0 and asked * 301 * 0.5 < load["unplayed"] < asked * 301
    assert load["unplayed_but_hidden"] <= load["unplayed"] / 1000
    found, result = bench(server, *users, "--prefix", "nobody", check=False)
    assert result.returncode == 1 and found["loads"][0]["played_but_unseen"] > 0


def test_answers_are_delivered(server):
    """Ten of a pool at a time, never the same ones, until there are as many as are remembered."""
    asked = ["--users", 1, "--plays-per-month", 10, "--candidates", 2000, "--pool", "--reply", "items",
             "--limit", 10]
    found, _ = bench(server, "--prepare", *asked, "--deliver", "--verify")
    [load] = found["loads"]
    check_load(load, "questions")
    assert load["played_but_unseen"] == 0
    with server.client() as c:
        history = c.command("HISTORY", "bench:00000000")
        assert 10 * min(10, load["answered"]) <= history[history.index(b"delivered") + 1] <= 100
    for wrong in (["--pool", "--reply", "items"], ["--pool", "--reply", "items", "--limit", 101]):
        result = run("bench", "--to", f"127.0.0.1:{server.port}", *wrong, "--deliver", check=False)
        assert result.returncode == 2 and b"--deliver needs --limit of at most 100" in result.stderr


def test_plays_are_recorded(server):
    found, _ = bench(server, "--workload", "played", "--connections", 4, "--pipeline", 16, "--users", 10, "--threads", 2)
    [load] = found["loads"]
    check_load(load, "plays")
    with server.client() as c:
        c.command("RING", "FLUSH")
        assert f"plays_flushed:{load['answered']}\r\n" in c.command("INFO", "stats").decode()
    # Two items of one user may have one position in its filter: of 20,000, one pair in twenty users.
    stored = int(server.sqlite("history.db", "SELECT sum(items) FROM plays_202611"))
    assert load["answered"] - 20 < stored <= load["answered"]


def test_an_open_loop_of_both(server):
    found, _ = bench(server, "--workload", "mixed", "--connections", 4, "--rate", 400, "--plays-per-question", 3,
                     "--arrivals", "random", "--prepare", "--verify", "--users", 20, "--candidates", 50)
    asked, played = found["loads"]
    assert asked["rate"] == 100 and played["rate"] == 300
    assert asked["answered"] + asked["unsent"] + played["answered"] + played["unsent"] > 200
    assert asked["errors"] == asked["wrong"] == played["errors"] == played["wrong"] == 0


def sleeps(server, *args):
    """How often the program slept, and its requests."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw
    found, _ = bench(server, "--workload", "ping", "--rate", 500, *args)
    return found, resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw - before


def test_a_client_that_polls_does_not_sleep(server):
    found, slept = sleeps(server)
    assert found["poll"] is False and slept > found["loads"][0]["answered"] / 2
    found, before_that = sleeps(server, "--poll", "--rate", 1)  # as it starts and ends
    found, slept = sleeps(server, "--poll")
    assert found["poll"] is True and slept - before_that < found["loads"][0]["answered"] / 4


def test_the_password_is_used(make_server):
    server = make_server(requirepass="secret")
    result = run("bench", "--to", f"127.0.0.1:{server.port}", check=False)
    assert result.returncode == 1 and b"password" in result.stderr
    found, _ = bench(server, "--requirepass", "secret", "--workload", "ping")
    check_load(found["loads"][0], "pings")


def test_for_people(server):
    text = run("bench", "--to", f"127.0.0.1:{server.port}", "--workload", "ping", "--seconds", "0.2").stdout.decode()
    assert "a second" in text and "p99.9" in text and "####" in text
    assert "the server's CPU time a request" in text


def test_nothing_measured(server):
    """The only request is due at the start, in the warm-up."""
    result = run("bench", "--to", f"127.0.0.1:{server.port}", "--workload", "ping", "--rate", "0.01", "--warm-up", "1",
                 "--seconds", "0.1", check=False)
    assert result.returncode == 1
    assert b"none was answered" in result.stdout and b"  -  " in result.stdout


def test_a_server_that_ends_meanwhile(server):
    process = subprocess.Popen([UNSEEN, "bench", "--to", f"127.0.0.1:{server.port}", "--json", "--seconds", "60"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with server.client() as c:
        until(lambda: b"\r\nquestions:0\r\n" not in c.command("INFO", "stats"))
    server.kill()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and out == b""
    assert b"the server closed a connection" in err and err.count(b"\n") == 1


@pytest.mark.skipif(REDIS is None, reason="there is no redis-server")
def test_a_server_that_does_not_know_the_commands(folder):
    redis = OldRedis(folder / "redis")
    result = run("bench", "--to", f"unix:{redis.socket}", "--seconds", "0.2", "--json", check=False)
    redis.kill()
    [load] = json.loads(result.stdout)["loads"]
    assert result.returncode == 1
    assert load["errors"] == load["answered"] > 0
    assert "unknown command" in load["named_errors"][0]["error"]


@pytest.mark.parametrize("args, words", [
    (["--workload", "asked"], "unseen, played, ping or mixed"),
    (["--connections", "0"], "whole number from 1"),
    (["--skew", "x"], "number from 0 to 10"),
    (["--threads", "2"], "more than there are connections"),
    (["--arrivals", "random"], "needs --rate"),
    (["--rate", "5", "--plays-per-question", "3"], "needs --workload mixed"),
    (["--workload", "played", "--verify"], "unseen or mixed"),
    (["--rate", "0"], "number from 0.01"),
    (["--rate", "-5"], "number from 0.01"),
    (["--reply", "json"], "items, indexes or bitmap"),
    (["--prefix", "a b"], "no blanks"),
    (["--candidates", "65537"], "65536"),
    (["more"], "takes no argument"),
])
def test_wrong_usage(args, words):
    result = run("bench", *args, check=False)
    assert result.returncode == 2
    assert words in result.stderr.decode() and result.stderr.count(b"\n") == 1
