"""unseen check --repair: losses are named, accepted, and then answered without."""
import json
import sqlite3

import pytest

from conftest import run
from resp import RespError


def spoil(server, sql, *values, file="history.db"):
    """Changes a file behind the program's back."""
    with sqlite3.connect(server.data / file) as db:
        db.execute(sql, values)
    db.close()


def months_table(server):
    return server.sqlite("history.db", "SELECT name FROM sqlite_schema WHERE name GLOB 'plays_[0-9]*'")


@pytest.fixture
def filled(server):
    with server.client() as c:
        for user in ("good", "bad", "worse", "counted"):
            c.command("PLAYED", user, "a", "b")
            c.command("DELIVERED", user, "d")
        c.command("RING", "FLUSH")
    assert server.stop() == 0
    return server


def key_of(server, user):
    return int(server.sqlite("history.db", f"SELECT user_key FROM users WHERE user = '{user}'"))


def check(server, *options):
    result = run("check", "--json", "--data", server.data, *options, check=False)
    return result.returncode, json.loads(result.stdout)


def test_nothing_to_repair(filled):
    assert check(filled, "--repair") == (0, {"data": str(filled.data), "repairs": [], "problems": [], "served": False,
                                             "complete": True})


def test_what_cannot_be_read_is_lost_and_nothing_else(filled):
    table = months_table(filled)
    spoil(filled, f"UPDATE {table} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(filled, "bad"))
    spoil(filled, "UPDATE delivered SET items = x'00' WHERE user_key = ?", key_of(filled, "worse"))
    spoil(filled, f"UPDATE {table} SET counted = 7 WHERE user_key = ?", key_of(filled, "counted"))
    assert check(filled)[0] == 1
    filled.start()
    with filled.client() as c:
        for user in ("bad", "worse"):
            with pytest.raises(RespError, match=user):
                c.command("UNSEEN", user, "a")
        assert c.command("UNSEEN", "good", "a", "x") == [b"x"]
    result = run("check", "--repair", "--data", filled.data, check=False)
    assert result.returncode == 1 and b"in use by process" in result.stderr
    assert filled.stop() == 0

    code, report = check(filled, "--repair")
    assert code == 0 and report["problems"] == []
    repairs = "\n".join(report["repairs"])
    assert '"bad": 2026-11 is lost' in repairs and '"worse": deliveries are lost' in repairs
    assert '"counted": 2026-11: count of items set to 2' in repairs and "totals are counted again" in repairs
    assert '"good"' not in repairs
    assert check(filled, "--repair")[1]["repairs"] == []

    filled.start()
    with filled.client() as c:
        assert c.command("UNSEEN", "bad", "a", "d") == [b"a"]
        assert c.command("UNSEEN", "worse", "a", "d") == [b"d"]
        assert c.command("UNSEEN", "good", "a", "d", "x") == [b"x"]
        assert c.command("FORGET", "bad") == 1
    assert filled.sqlite("history.db", "SELECT count(*) FROM quarantine WHERE user = 'bad'") == "0"


def test_what_a_flush_had_set_aside(filled):
    spoil(filled, f"UPDATE {months_table(filled)} SET filter = x'00' WHERE user_key = ?", key_of(filled, "bad"))
    filled.start()
    with filled.client() as c:
        c.command("PLAYED", "bad", "new")
        c.command("RING", "FLUSH")
        with pytest.raises(RespError, match="bad"):
            c.command("UNSEEN", "bad", "new")
    assert filled.stop() == 0
    code, report = check(filled)
    assert code == 1 and any("unseen check --repair" in p for p in report["problems"])
    code, report = check(filled, "--repair")
    assert code == 0 and '"bad": 2026-11, set aside before, is lost' in report["repairs"][0]
    filled.start()
    with filled.client() as c:
        assert c.command("UNSEEN", "bad", "new", "a") == [b"a"]
    assert filled.sqlite("history.db", "SELECT length(blob), accepted IS NOT NULL FROM quarantine") == "1|1"


def test_staged_rows_that_cannot_be_read(filled):
    filled.start()
    with filled.client() as c:
        for item in "abcde":
            c.command("PLAYED", "staged", item)
    assert filled.stop() == 0
    table = filled.sqlite("staging.db", "SELECT name FROM sqlite_schema WHERE name GLOB 'staged_[0-9]*' ORDER BY name")
    table = next(t for t in table.split("\n") if filled.sqlite("staging.db", f"SELECT count(*) FROM {t}") == "5")
    spoil(filled, f"UPDATE {table} SET kind = 8 WHERE item = 'a'", file="staging.db")
    spoil(filled, f"UPDATE {table} SET user = '' WHERE item = 'b'", file="staging.db")
    spoil(filled, f"UPDATE {table} SET item = zeroblob(256) WHERE item = 'c'", file="staging.db")
    spoil(filled, f"UPDATE {table} SET at = 110175724800000 WHERE item = 'd'", file="staging.db")
    code, report = check(filled)
    assert code == 1 and len(report["problems"]) == 4 and all(table in p for p in report["problems"])
    code, report = check(filled, "--repair")
    slot = table.removeprefix("staged_")
    assert code == 0 and report["repairs"] == [f"staging.db: 4 rows of slot {slot} that can't be read are lost"]
    assert filled.sqlite("staging.db", "SELECT count(*) FROM set_aside") == "4"
    assert check(filled, "--repair")[1]["repairs"] == []
    filled.start()
    assert "can't be read" not in filled.log()
    with filled.client() as c:
        assert c.command("UNSEEN", "staged", "a", "e") == [b"a"]


def test_newest_month_of_a_user(filled):
    spoil(filled, "UPDATE users SET last_month = last_month - 1 WHERE user = 'bad'")
    code, report = check(filled)
    assert code == 1 and report["problems"] == [
        'user "bad": plays of 2026-11, but the row in users says that an earlier month is the newest']
    assert check(filled, "--repair")[1]["repairs"] == ["1 users: their newest month is set to 2026-11"]
    assert check(filled)[0] == 0
    assert filled.sqlite("history.db", "SELECT count(DISTINCT last_month) FROM users") == "1"


def lose_a_name(filled):
    """Of "bad" only plays and deliveries are left."""
    key = key_of(filled, "good")
    spoil(filled, "DELETE FROM users WHERE user = 'bad'")
    spoil(filled, "INSERT INTO exceptions VALUES (1, 2), (?, 3)", key)
    spoil(filled, "INSERT INTO shared_keys VALUES (1, 'nobody'), (?, 'good'), (?, 'twin')", key, key)
    code, report = check(filled)
    problems = "\n".join(report["problems"])
    assert code == 1 and len(report["problems"]) == 5, problems
    for part in ("plays of 2026-11 without a row in users", "deliveries without a row in users",
                 "an exception without a row in users", '"nobody": is said to share', '"good": is said to share'):
        assert part in problems


def is_repaired(filled):
    assert filled.sqlite("history.db", "SELECT (SELECT group_concat(user) FROM shared_keys), "
                                       "(SELECT group_concat(item_hash) FROM exceptions)") == "twin|3"
    assert check(filled) == (0, {"data": str(filled.data), "problems": [], "served": False, "complete": True})


def test_plays_without_a_name_are_kept(filled):
    """They hide what they hid, and the user's next flush brings the name back."""
    lose_a_name(filled)
    code, report = check(filled, "--repair")
    assert code == 0 and report["repairs"] == [
        "1 user whose name is lost: kept without it, a user with the key is answered with their plays",
        "1 exceptions of users who are not in users: deleted", "2 shared keys of users who share none: deleted"]
    is_repaired(filled)
    filled.start()
    with filled.client() as c:
        assert c.command("UNSEEN", "bad", "a", "d", "x") == [b"x"]
        c.command("PLAYED", "bad", "new")
        c.command("RING", "FLUSH")
        assert c.command("UNSEEN", "bad", "a", "d", "new", "x") == [b"x"]
    assert filled.stop() == 0
    assert filled.sqlite("history.db", "SELECT count(*) FROM users WHERE user = 'bad'") == "1"
    assert filled.sqlite("history.db", "SELECT count(*) FROM users WHERE user = ''") == "0"
    is_repaired(filled)


def test_somebody_without_a_name_is_forgotten(filled):
    spoil(filled, "DELETE FROM users WHERE user = 'bad'")
    assert check(filled, "--repair", "--nameless", "keep")[0] == 0
    filled.start()
    with filled.client() as c:
        assert c.command("FORGET", "bad") == 1
        assert c.command("UNSEEN", "bad", "a", "d") == [b"a", b"d"]
    assert filled.stop() == 0
    assert check(filled)[0] == 0


def test_plays_without_a_name_are_dropped(filled):
    lose_a_name(filled)
    code, report = check(filled, "--repair", "--nameless", "drop")
    assert code == 0 and report["repairs"][0] == \
        "1 month and 1 list of deliveries of users whose name is lost: dropped", report
    is_repaired(filled)
    filled.start()
    with filled.client() as c:
        assert c.command("UNSEEN", "bad", "a", "d", "x") == [b"a", b"d", b"x"]
        assert c.command("UNSEEN", "good", "a", "d", "x") == [b"x"]


@pytest.mark.parametrize("mend", ["start", "--repair"])
def test_views_that_somebody_dropped(filled, mend):
    views = {"history.db": ("plays", "month_report", "expiring", "deliveries", "forgotten", "damaged"),
             "staging.db": ("staged", "ring")}
    sql = "SELECT sql FROM sqlite_schema WHERE type = 'view' ORDER BY name"
    before = [filled.sqlite(file, sql) for file in views]
    for file, names in views.items():
        for name in names:
            spoil(filled, f"DROP VIEW {name}", file=file)
    assert sum("it is missing" in p for p in check(filled)[1]["problems"]) == 8
    if mend == "start":
        filled.start()
        assert filled.stop() == 0
        assert "missing view made again" in filled.log()
    else:
        check(filled, mend)
    assert [filled.sqlite(file, sql) for file in views] == before
    assert check(filled)[1]["problems"] == []


NOTED = "INSERT INTO noted (id, user, state) VALUES "


def test_users_of_another_redis(server):
    """Notes, problems and the feed: each damage is named, mended, and gone."""
    server.options.update(legacy_redis=server.folder / "nobody", legacy_mirror="yes")
    server.restart()
    with server.client() as c:
        c.command("LEGACY", "NOTE", "a", "b", "c", "d", "e")
        c.command("FORGET", "e")
        c.command("PLAYED", "a", "x", "y")
        c.command("DELIVERED", "a", "z")
        c.command("FORGET", "a", "y")
    assert server.stop() == 0
    assert problems_of(server) == []
    for sql, file in (("UPDATE noted SET state = 9 WHERE user = 'a'", "staging.db"),
                      (NOTED + "(900, x'', 0), (901, 5, 1), (0, 'zero', 0)", "staging.db"),
                      (NOTED + "(902, 'b', 1), (903, 'b', 0)", "staging.db"),
                      ("INSERT INTO legacy_problems VALUES ('', 'what', 1)", "staging.db"),
                      ("INSERT INTO meta VALUES ('legacy_paused', 'maybe')", "staging.db"),
                      ("UPDATE feed SET kind = 8 WHERE item = 'x'", "staging.db"),
                      ("UPDATE feed SET item = NULL WHERE item = 'z'", "staging.db"),
                      ("UPDATE feed_consumers SET left_out = 3", "staging.db"),
                      ("INSERT INTO feed_consumers VALUES ('', 0, 0, 0, 0)", "staging.db")):
        spoil(server, sql, file=file)
    found = problems_of(server)
    for wanted in ("can't be read (state 9, user of 1 B)", "note 900 can't be read (state 0, user of 0 B)",
                   "note 901 can't be read", "note 0 can't be read", "3 notes of one user, the first of them is 2",
                   "a row of legacy_problems can't be read (key of 0 B)", 'legacy_paused in meta is "maybe"',
                   "of the feed can't be read (kind 8, user of 1 B)", "can't be read (kind 2, user of 1 B)",
                   'consumer "mirror" of the feed can\'t be read (cursor ', 'consumer "" of the feed can\'t be read'):
        assert sum(wanted in p for p in found) == 1, (wanted, found)
    assert len(found) == 11, found
    done = run("check", "--repair", "--data", server.data, "--test-clock", server.clock).stdout.decode()
    for wanted in ("1 note of a state that can't be read, to be read again", "3 notes that can't be read, lost",
                   "1 user noted more than once, to be read again", "2 repeated notes removed",
                   "1 row of legacy_problems", "the migration is not paused", "2 events of the feed",
                   "consumers of the feed lost from now on", "1 consumer of the feed without a name removed"):
        assert wanted in done, (wanted, done)
    assert problems_of(server) == []
    assert server.sqlite("staging.db", "SELECT noted, waiting, forgotten FROM migration") == "5|4|1"
    server.start()
    with server.client(3) as c:
        now = c.command("LEGACY", "MIRROR")
        assert now[b"left_out"] == 5 and now[b"broken_since"] > 0 and now[b"waiting"] == 3


def problems_of(server):
    result = run("check", "--data", server.data, "--json", check=False)
    return json.loads(result.stdout)["problems"]
