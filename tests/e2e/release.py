#!/usr/bin/python3
"""Keeps what a release wrote, for all later versions to open: run by hand when a release is cut, with the program of
UNSEEN_BUILD. It makes tests/data/releases/VERSION with

folder.tar.gz  a data folder after a clean stop
users.unseen   an export of it
unseen.conf    every option at its default
told.json      questions, and what the server answered: [{"ask": [word ...], "answer": ...}, ...], bytes as Latin-1
clock          the unix ms at which it answered
"""
import gzip
import io
import json
import re
import sys
import tarfile
import tempfile

from conftest import DAY, HOUR, REPO, START, Server, run, until
from resp import flat

RELEASES = REPO / "tests" / "data" / "releases"
OPTION = re.compile(r"^#([a-z_]+ =.*)$", re.MULTILINE)
MONTHS = {9: 1789473600000, 10: 1792065600000, 11: 1794744000000}  # the middle of each, in 2026: in the window in December too
HEAVY = [f"h{n}" for n in range(6000)]
POOL = [f"p{n}" for n in range(300)]


def plain(reply):
    """As JSON can say it."""
    if isinstance(reply, bytes):
        return reply.decode("latin-1")
    return [plain(one) for one in reply] if isinstance(reply, list) else reply


def words_of(ask):
    return [word.encode("latin-1") for word in ask]


def wait_sealed(server, n):
    """Nights seal in the background."""
    def sealed():
        with server.client() as c:
            return sum(flat(month)["state"] == b"sealed" for month in c.command("MONTHS"))

    until(lambda: sealed() >= n, server.log)


def fill(server):
    """From the day before START to START."""
    with server.client() as c:
        for month, at in MONTHS.items():
            for n in range(50):
                c.command("PLAYEDAT", f"u{n}", at, *(f"{month}-{n}-{i}" for i in range(1 + n % 7)))
            c.command("PLAYEDAT", "heavy", at, *HEAVY[(month - 9) * 2000:(month - 8) * 2000])
            c.command("PLAYEDAT", b"\xff\x00binary", at, f"b{month}", b"\x00\xfe")
            c.command("PLAYEDAT", "leaves", at, f"l{month}")
            c.command("PLAYEDAT", "forgotten", at, f"f{month}")
        c.command("DELIVERED", "u1", *(f"sent{n}" for n in range(120)))  # more than are remembered
        c.command("RING", "FLUSH")
        assert c.command("FORGET", "u6", "9-6-0", "10-6-1") == 2
        assert c.command("FORGET", "forgotten") == 1
    for _ in range(24):
        server.advance(HOUR)
    wait_sealed(server, 2)
    with server.client() as c:
        c.command("PLAYED", "forgotten", "f-again")
        c.command("PLAYED", "u2", *POOL[:40])
        c.command("PLAYED", "heavy", *POOL[100:200])
        c.command("DELIVERED", "u3", "late0", "late1")
        assert c.command("FORGET", "u2", "p7") == 1  # of what is staged
        c.command("PLAYED", "staged", "s0", "s1")
        c.command("POOL", "SET", "hot", *POOL)
        c.command("POOL", "SET", "few", "p1", "s0", "x", "9-6-0")
        c.command("BLOCK", "scroll", "s1", "p45", "7", "4294967296")


def questions():
    for n in range(0, 50, 3):
        items = [f"{month}-{n}-{i}" for month in MONTHS for i in range(1 + n % 7)]
        yield "UNSEEN", f"u{n}", *items, f"never{n}"
        yield "SEEN", f"u{n}", *items, f"never{n}"
    yield "UNSEEN", "u1", *(f"sent{n}" for n in range(120))
    yield "UNSEEN", "u3", "late0", "late1", "late2"
    yield "UNSEEN", "heavy", *HEAVY[::20], "never"
    yield "FILTER", "heavy", "REPLY", "BITMAP", "ITEMS", *HEAVY[5::50], "never", *POOL[90:110]
    yield "UNSEEN", b"\xff\x00binary", "b9", "b10", b"\x00\xfe", b"\x00\xfd"
    yield "UNSEEN", "leaves", "l9", "l10", "l11"
    yield "UNSEEN", "forgotten", "f9", "f10", "f11", "f-again"
    yield "SEEN", "staged", "s0", "s1", "s2"
    yield "FILTER", "u2", "REPLY", "INDEXES", "ITEMS", *POOL[:45]
    yield "FILTER", "staged", "LIMIT", "1", "ITEMS", "s0", "s2", "s3"
    yield "UNSEEN", "nobody", "a", "b"
    yield "FILTER", "u2", "POOL", "hot", "LIMIT", "10"
    yield "FILTER", "heavy", "POOL", "hot", "REPLY", "BITMAP"
    yield "FILTER", "staged", "POOL", "few", "POOL", "hot", "LIMIT", "5"
    yield "FILTER", "u6", "POOL", "few", "REPLY", "INDEXES"
    yield "FILTER", "staged", "SESSION", "scroll", "ITEMS", "s0", "s1", "s2", "7", "8", "4294967296"
    yield "FILTER", "u2", "SESSION", "scroll", "POOL", "hot", "LIMIT", "10"


def pack(data, path):
    """Nothing in it that differs from run to run but the files themselves."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(data.iterdir()):
            if file.is_file() and file.name != "lock":
                info = tar.gettarinfo(str(file), file.name)
                info.uid = info.gid = 0
                info.uname = info.gname = "root"
                info.mtime, info.mode = START // 1000, 0o600
                tar.addfile(info, io.BytesIO(file.read_bytes()))
    path.write_bytes(gzip.compress(out.getvalue(), 9, mtime=0))


def main():
    version = re.search(r"unseen ([0-9][^ \n]*)", run("version").stdout.decode())[1]
    kept = RELEASES / version
    if kept.exists():
        sys.exit(f"{kept} is there: what a release wrote is kept as it is")
    with tempfile.TemporaryDirectory(prefix="unseen-release-") as own:
        server = Server(own, clock=START - DAY, store="sqlite", hash_seed="00c0ffee12345678")
        try:
            fill(server)
            with server.client() as c:
                told = [{"ask": plain([w if isinstance(w, bytes) else w.encode() for w in ask]),
                         "answer": plain(c.command(*ask))} for ask in questions()]
        finally:
            code = server.stop()
        assert code == 0 and " error " not in server.log(), server.log()
        kept.mkdir(parents=True)
        pack(server.data, kept / "folder.tar.gz")
        run("export", kept / "users.unseen", "--data", server.data, "--timezone", "UTC", "--test-clock", server.clock)
    (kept / "told.json").write_text("[\n" + ",\n".join(map(json.dumps, told)) + "\n]\n")
    (kept / "unseen.conf").write_text(OPTION.sub(r"\1", run("check-config", "--sample").stdout.decode()))
    (kept / "clock").write_text(f"{server.clock}\n")
    for file in kept.iterdir():
        file.chmod(0o644)
        print(f"{file.stat().st_size:8} {file}")


if __name__ == "__main__":
    main()
