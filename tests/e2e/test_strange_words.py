"""What others say, and what a crafted folder holds, is refused where it comes in, or does nothing where it is shown."""
import contextlib
import socket
import sqlite3
import threading

import pytest

from conftest import START, run
from resp import RespError

ESCAPES = b"\x1b]0;owned\x07\x1b[2J\x1b[31mall is well\x1b[0m\xc2\x9b2J"
FORGED = "h:1\r\nforged_field:1\r\nwrites_refused:0"
NODE = "00000000000000ff"


@pytest.fixture
def liar():
    """A server that answers everything with an error that a terminal would obey."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                conn, _ = listener.accept()
                with conn:
                    conn.recv(4096)
                    conn.sendall(b"-ERR " + ESCAPES + b"\n\nsecond line\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize("words", [("clone",), ("replica", "--status", "--to"), ("promote", "--to"), ("kafka", "--status", "--to"),
                                   ("front", "--status", "--to"), ("pool", "list", "--to"), ("migrate", "--status", "--to")],
                         ids=lambda words: words[0])
def test_a_terminal_obeys_no_server(folder, liar, words):
    done = run(*words, liar, "--data", folder / "data", check=False)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and b"all is well" in said and said.count(b"\n") == 1, said
    assert b"\x1b" not in said and b"\xc2\x9b" not in said and b"\x07" not in said, said


def test_addresses_and_folders_are_refused(make_server):
    server = make_server()
    with server.client() as c:
        c.command("REPLICA", "ENLIST", NODE)
        for words in (("REPLICA", "HELLO", 3, NODE, 1, FORGED), ("REPLICA", "MEET", 7, NODE, FORGED),
                      ("REPLICA", "STEPDOWN", 7, NODE, "h\x1b[2J:1"), ("BACKUP", f"{server.folder}/{FORGED}"),
                      ("BACKUP", f"{server.folder}/a\x1b[2J")):
            with pytest.raises(RespError) as e:
                c.command(*words)
            assert not set(str(e.value)) & set("\r\n\x1b"), e.value
        info = c.command("INFO", "all").decode()
        assert "forged_field" not in info and "\x1b" not in info
        assert c.command("ROLE")[0] == b"master"
        assert c.command("PLAYED", "u", "a") == 1
    assert "\x1b" not in server.log()


@pytest.mark.parametrize("file, sql, cause", [
    ("staging.db", "INSERT OR REPLACE INTO meta VALUES ('leader_address', 'h:1' || char(13, 10) || 'forged:1')", "leader_address"),
    ("staging.db", "UPDATE meta SET value = 9223372036854775807 WHERE name = 'starts'", "starts in meta"),
    ("history.db", "UPDATE meta SET value = 9223372036854775807 WHERE name = 'starts'", "starts in meta"),
    ("history.db", "UPDATE meta SET value = -9223372036854775807 WHERE name = 'starts'", "starts in meta"),
    ("history.db", "INSERT OR REPLACE INTO meta VALUES ('flushes', 9223372036854775807)", "flushes in meta"),
    ("history.db", "INSERT OR REPLACE INTO meta VALUES ('high_water', 9223372036854775807)", "high_water in meta"),
    ("staging.db", "UPDATE meta SET value = 'x' WHERE name = 'turn'", 'turn in meta is "x", expected a whole number'),
])
def test_a_crafted_folder_is_refused(make_server, file, sql, cause):
    server = make_server()
    assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(server.data / file)) as db:
        assert db.execute(sql).rowcount == 1
        db.commit()
    done = run("serve", "-c", server.config, "--test-clock", START, check=False)
    assert done.returncode == 1 and cause in done.stderr.decode(), done
    assert b"Sanitizer" not in done.stderr and b"runtime error" not in done.stderr
