"""Every subcommand that asks a server, of one that greets and then lies: it fails, says whom it asked and what was expected,
takes little memory, and shows no terminal what it would obey. What all clients share, and their patience:
tests/unit/test_lying_peers.c. The old Redis: test_lying_redis.py."""
import concurrent.futures
import json
import subprocess

import pytest

from conftest import BUILD, PATIENCE, START, UNSEEN
from test_lying_redis import MIB, Liar

OBEYED = b"\x1b]0;owned\x07\x1b[2J\xc2\x9b2J\nunseen: all is well\n"
ROOM = 256 * MIB  # of a subcommand, and most of it is libraries


def bulk(kind, text):
    return b"%c%d\r\n%b\r\n" % (kind, len(text), text)


def cut_off():
    yield b"*3\r\n$300\r\nab"
    raise OSError("it hangs up")


LIES = {
    "a number": lambda: [b":-9223372036854775808\r\n"],
    "lists": lambda: [b"*30\r\n" + b"*0\r\n" * 30],
    "a map of lists": lambda: [b"%2\r\n*1\r\n_\r\n*1\r\n_\r\n+state\r\n*0\r\n"],
    "a long text": lambda: [bulk(ord("$"), OBEYED * (MIB // len(OBEYED)))],
    "a long error": lambda: [bulk(ord("!"), b"ERR " + OBEYED * (4 * MIB // len(OBEYED)))],
    "an end in the middle": cut_off,
}


def commands(folder):
    plays, ids = folder / "plays.ndjson", folder / "ids"
    plays.write_text(json.dumps({"user": "u", "item": "a", "unix_ms": START - 1000}) + "\n")
    ids.write_text("a\nb\n")
    return {
        "ping": ("ping", "--to"), "user": ("user", "u", "--to"), "why": ("why", "u", "a", "--to"), "months": ("months", "--to"),
        "clock": ("clock", "--to"), "backup": ("backup", "copy", "--to"), "kafka": ("kafka", "--status", "--to"),
        "front": ("front", "--status", "--to"), "reconcile": ("front", "--reconcile", "--to"),
        "replica": ("replica", "--status", "--json", "--to"), "promote": ("promote", "--to"), "list": ("pool", "list", "--to"),
        "get": ("pool", "get", "p", "--to"), "drop": ("pool", "drop", "p", "--to"), "pool": ("pool", "load", "p", ids, "--to"),
        "status": ("migrate", "--status", "--to"), "problems": ("migrate", "--problems", "--to"),
        "keys": ("migrate", "--keys", ids, "--to"), "import": ("import", plays, "--to"), "clone": ("clone",),
        "verify": ("replica", "--verify", "--to", "127.0.0.1:1", "--from"),
    }


def ask(words, folder):
    """Within an address space that has no room for more; of a sanitizer's there is no bound."""
    bound = () if "san" in BUILD.name else ("sh", "-c", f'ulimit -v {ROOM // 1024} && exec "$@"', "sh")
    return subprocess.run([*bound, str(UNSEEN), *map(str, words), "--data", str(folder / "data")], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("lie", LIES)
def test_a_subcommand_is_lied_to(folder, lie):
    def answer(words):
        if words[0] == b"HELLO":
            return [b"%0\r\n"]
        if words[0] == b"CONFIG":  # for those who need to be told where to go on
            return [b"*4\r\n$12\r\nlegacy_redis\r\n$11\r\n127.0.0.1:1\r\n$9\r\nretention\r\n$1\r\n6\r\n"]
        return LIES[lie]()

    liar = Liar(answer)
    asked = {name: (*words, liar.address) for name, words in commands(folder).items()}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for words, done in zip(asked.values(), pool.map(lambda words: ask(words, folder), asked.values())):
            said = done.stdout
            assert done.returncode == 1 and liar.address in said.decode(), (words, done.returncode, said[-1000:])
            assert not set(said) & set(b"\x1b\x07\x9b") and said.count(b"\n") < 20 and len(said) < 8192, (words, said[-1000:])
    liar.close()
