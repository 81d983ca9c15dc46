"""What programs say to people: one of a thing is no plural."""
import re
import subprocess

import pytest

from conftest import REPO, START, run
from old_redis import REDIS, OldRedis
from test_migrate import migrate, wait_done

ONE_OF_MANY = re.compile(r"(?<![\d.,])1 (?!is\b|as\b|us\b|ms\b)[a-z]+s\b")


def good(text):
    assert not ONE_OF_MANY.search(text), text
    return text


def test_the_shape_that_is_looked_for():
    assert ONE_OF_MANY.search("1 users found") and ONE_OF_MANY.search("in 1 months,")
    assert not ONE_OF_MANY.search("11 users, 1 user, 1 is, 21 keys, 0.1 seconds, 1 us")


def test_one_of_each(make_server, folder):
    """One user with one play, through every subcommand that counts."""
    server = make_server()
    address, clock = f"127.0.0.1:{server.port}", ("--test-clock", START)
    plays = folder / "plays.tsv"
    plays.write_text(f"{START}\tu\ta\n")
    good(run("import", "--to", address, *clock, plays).stdout.decode())
    with server.client() as c:
        c.command("DELIVERED", "u", "b")
        c.command("RING", "FLUSH")
    for words in (("user", "u"), ("why", "u", "a"), ("months",)):
        good(run(*words, "--data", server.data).stdout.decode())
    bench = run("bench", "--to", address, *clock, "--users", 1, "--candidates", 1, "--plays-per-month", 1, "--months", 1,
                "--prepare", "--verify", "--seconds", "0.1")
    assert "prepared 1 user with 1 play each" in good((bench.stdout + bench.stderr).decode())
    assert "1 user, " in bench.stdout.decode() and "1 candidate, " in bench.stdout.decode()
    server.stop()
    exported = run("export", folder / "one", "--data", server.data, *clock)
    good((exported.stdout + exported.stderr).decode())
    assert good(run("load", folder / "one", "--data", folder / "other", *clock).stdout.decode()) == "2 users loaded\n"
    good(run("load", "--check", folder / "one").stdout.decode())
    good(run("check", "--data", server.data).stdout.decode())
    bad = folder / "bad.conf"
    bad.write_text("slots = 1\n")
    assert good(run("check-config", bad, check=False).stderr.decode()).endswith("\n1 problem\n")


@pytest.mark.skipif(REDIS is None, reason="there is no redis-server")
def test_one_user_of_another_redis(make_server, folder):
    redis = OldRedis(folder / "redis")
    try:
        redis.zadd("played:u", [(START, "a")])
        redis.zadd("delivered:u", [(START, "b")])
        server = make_server(legacy_redis=redis.socket)
        assert good(migrate(server, "--scan").stdout.decode()) == f"{redis.socket}: 1 user found, 1 new\n"
        wait_done(server)
        assert good(migrate(server, "--scan").stdout.decode()) == f"{redis.socket}: 1 user found, 0 new\n"
        assert "1 of 1 user " in good(migrate(server, "--status").stdout.decode())
        assert good(migrate(server, "--verify").stdout.decode()) == "1 user, 1 play inside of the window: 0 missing\n"
        assert good(migrate(server, "--again").stdout.decode()) == "1 user to be read again\n"
        wait_done(server)
        with server.client() as c:
            c.command("FORGET", "u")
        said = good(migrate(server, "--keys", "-", input=b"u\n").stdout.decode())
        assert "1 user found, 0 new\n1 user forgotten here and not noted" in said
    finally:
        redis.kill()


def test_no_plural_is_made_by_hand():
    """base/plural.h is the one place."""
    found = subprocess.run(["grep", "-rnE", r'\? *"" *: *"s"', REPO / "src", "--include=*.c"], capture_output=True, text=True)
    assert found.stdout == ""
