"""docs/inspect.md, run as it stands in the real sqlite3 shell against the folder of a running server: its paths and
"now" are replaced, nothing else."""
import os
import re
import subprocess

import pytest

from conftest import BUILD, DAY, HOUR, START, UNSEEN
from test_docs import SEED, compare, examples
from test_repair import spoil

DOCUMENT = "docs/inspect.md"
EXTENSION = BUILD / "unseen"
OCTOBER_21 = START - 31 * DAY


def month_ms(month):
    """The 15th of the month of 2026, noon."""
    return {4: 1776254400000, 5: 1778846400000, 6: 1781524800000, 7: 1784116800000, 8: 1786795200000, 9: 1789473600000,
            10: 1792065600000}[month]


@pytest.fixture
def inspected(make_server):
    """Seven months of plays, of which one expires and the others are sealed; a forgotten item, a damaged filter,
    something staged, and users who come from a Redis that is away."""
    server = make_server(clock=OCTOBER_21, hash_seed=SEED)
    with server.client() as c:
        for month in range(4, 11):
            for user in range(1, 101):
                items = [f"v{i}" for i in range(month, month + (60 if user == 1 else 20 if user < 10 else 3))]
                c.command("PLAYEDAT", f"user:{user}", month_ms(month), *items)
        for i in range(1, 6):
            c.command("DELIVERED", "user:1", f"v{100 + i}")
        c.command("RING", "FLUSH")
        assert c.command("FORGET", "user:2", "v9", "v10") == 2
        assert c.command("FORGET", "user:5", "v9") == 1
        c.command("FORGET", "user:200")
    server.advance(16 * HOUR)
    for _ in range(30):  # nights: months are sealed, and from November on April is swept
        server.advance(DAY)
    server.advance(8 * HOUR)
    with server.client() as c:
        c.command("PLAYED", "user:1", "v9", "v200")
        c.command("PLAYED", "user:3", "v9")
        c.command("RING", "FLUSH")
    assert server.stop() == 0
    spoil(server, "UPDATE plays_202610 SET filter = x'20ffffffff' WHERE user_key = "
                  "(SELECT user_key FROM users WHERE user = 'user:7')")
    spoil(server, "UPDATE plays_202611 SET filter = substr(filter, 1, 1) WHERE user_key = "
                  "(SELECT user_key FROM users WHERE user = 'user:3')")
    spoil(server, "INSERT INTO noted VALUES (1, 'user:1', 1), (2, 'user:8', 1), (3, 'user:9', 2), (4, 123, 3), "
                  "(5, 'user:77', 0), (6, 'user:78', 0)", file="staging.db")
    spoil(server, "INSERT INTO legacy_problems VALUES ('played:user:9', 'WRONGTYPE Operation against a key holding the "
                  f"wrong kind of value', {START})", file="staging.db")
    spoil(server, "INSERT INTO positions VALUES ('kafka/x3kQ0dTzQvGm/plays/0', 1204), "
                  "('kafka/x3kQ0dTzQvGm/plays/1', 1187)", file="staging.db")
    server.options.update(legacy_redis=server.folder / "nobody", legacy_mirror="yes")
    server.start()
    with server.client() as c:
        c.command("PLAYED", "user:3", "v1")
        c.command("RING", "FLUSH")  # it sets the damaged one aside
        c.command("PLAYED", "user:1", "v9", "v201")
        c.command("DELIVERED", "user:4", "v9")
    return server


class Shell:
    def __init__(self, server):
        self.server = server
        self.environment = dict(os.environ, PATH=f"{UNSEEN.parent}:{os.environ['PATH']}", TZ="UTC", LC_ALL="C.UTF-8")
        self.prelude = ""

    def run(self, commands):
        text = self.prelude + commands + "\n"
        for written, real in (("/usr/local/lib/unseen/unseen", str(EXTENSION)),
                              ("/var/lib/unseen", str(self.server.data)), ("'now'", "'2026-11-21 10:00:00'")):
            text = text.replace(written, real)
        result = subprocess.run(["bash"], input=text, env=self.environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=120)
        return result.stdout


def commands_of(text):
    """[command, what it shows], a command going on where a line begins with "> "."""
    pairs = []
    for line in text.split("\n"):
        if line.startswith("$ "):
            pairs.append([line[2:], []])
        elif line.startswith("> ") and not pairs[-1][1]:
            pairs[-1][0] += "\n" + line[2:]
        else:
            pairs[-1][1].append(line)
    return pairs


def test_the_document(inspected):
    shell = Shell(inspected)
    blocks = examples(DOCUMENT, "console tested")
    asked = 0
    for line, text in blocks:
        for command, shown in commands_of(text):
            if re.match(r"\w+\(\)", command):
                shell.prelude += command + "\n"
                continue
            compare(DOCUMENT, line, shown, shell.run(command))
            asked += 1
    assert asked >= 15
    assert subprocess.run([UNSEEN, "check", "--data", inspected.data], capture_output=True).returncode == 1  # as it was


def ask(server, file, *sql):
    return subprocess.run(["sqlite3", "-readonly", "-batch", "-cmd", f".load {EXTENSION}", server.data / file, *sql],
                          capture_output=True, text=True, timeout=120)


def test_agrees_with_the_service(server):
    """What the shell answers for a flushed user is what WHY says."""
    with server.client() as c:
        for month in (8, 9, 10):
            c.command("PLAYEDAT", "u\u00e9", month_ms(month), *(f"v{i}" for i in range(month * 10, month * 10 + 15)))
        c.command("RING", "FLUSH")
        for i in range(60, 140):
            rows = ask(server, "history.db",
                       f"SELECT month FROM plays WHERE user_key = unseen_key('u\u00e9') AND unseen_has(filter, 'v{i}') "
                       "ORDER BY 1 DESC")
            assert rows.stdout.split() == [p.decode() for p in c.command("WHY", "u\u00e9", f"v{i}")], rows.stderr


def test_plan_with_the_extension(server):
    with server.client() as c:
        for month in (8, 9, 10):
            c.command("PLAYEDAT", "u1", month_ms(month), "v9")
        c.command("RING", "FLUSH")
    plan = ask(server, "history.db",
               "EXPLAIN QUERY PLAN SELECT month FROM plays WHERE user_key = unseen_key('u1') AND "
               "unseen_has(filter, 'v9')").stdout
    assert len(re.findall(r"SEARCH plays_2026\d\d USING INTEGER PRIMARY KEY \(rowid=\?\)", plan)) == 3
    assert "SCAN" not in plan


def test_bad_input(server):
    with server.client() as c:
        c.command("PLAYED", "u1", *(f"v{i}" for i in range(100)))
        c.command("RING", "FLUSH")
    for sql, error in (
            ("SELECT unseen_has(substr(filter, 1, length(filter) / 2), 'v1') FROM plays", "unseen_has: month filter of"),
            ("SELECT unseen_has(filter, 42) FROM plays", "the item is an INTEGER, expected TEXT or a BLOB"),
            ("SELECT * FROM unseen_delivered(x'2001')", "unseen_delivered: "),
            ("SELECT unseen_key('')", "the user has 0 bytes, expected 1 to 255")):
        result = ask(server, "history.db", sql)
        assert result.returncode != 0 and error in result.stderr
    result = ask(server, "staging.db", "SELECT unseen_key('u1')")
    assert "no hash seed: expected the history.db of a data folder" in result.stderr
    result = ask(server, "staging.db", f"ATTACH '{server.data}/history.db' AS h",
                 "SELECT unseen_key('u1') = user_key FROM h.users")
    assert result.stdout == "1\n"
    result = ask(server, "history.db", "DELETE FROM users")
    assert "readonly" in result.stderr


def test_exports_its_entry_alone():
    symbols = subprocess.run(["nm", "-D", "--defined-only", f"{EXTENSION}.so"], capture_output=True, text=True, check=True)
    own = {line.split()[-1] for line in symbols.stdout.splitlines()} - {"__bss_start", "_edata", "_end"}  # a linker's
    assert own == {"sqlite3_unseen_init"}
