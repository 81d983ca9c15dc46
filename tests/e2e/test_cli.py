"""The subcommands, as they are typed: against a folder, and against the server that serves it."""
import gzip
import json
import subprocess

import pytest

from conftest import DAY, REPO, START, UNSEEN, run
from resp import RespError

COMMANDS = ["serve", "import", "user", "why", "months", "clock", "check", "check-config", "ping", "version", "help"]


@pytest.fixture(params=["running", "stopped"])
def filled(make_server, request):
    """The same data behind a running server, and in a folder that nobody serves. Whoever opens that flushes what was
    staged, sooner or later: so there all is flushed."""
    server = make_server()
    stopped = request.param == "stopped"
    with server.client() as c:
        c.command("PLAYED", "u1", "a", "b")
        c.command("PLAYEDAT", "u1", START - 60 * DAY, "old")
        c.command("RING", "FLUSH")
        c.command("PLAYED", "u1", "c")
        c.command("DELIVERED", "u1", "d")
        if stopped:
            c.command("RING", "FLUSH")
    if stopped:
        assert server.stop() == 0
    server.state = request.param
    server.staged = 0 if stopped else 1
    return server


def ask(server, *words):
    clock = ["--test-clock", str(START)] if server.state == "stopped" else []
    return run(*words, "--data", server.data, *clock, check=False)


def test_user(filled):
    text = ask(filled, "user", "u1").stdout.decode()
    assert "2026-11" in text and "2026-09" in text and "u1" in text
    told = json.loads(ask(filled, "user", "u1", "--json").stdout)
    assert [(m["month"], m["items"]) for m in told["months"]] == [("2026-11", 3 - filled.staged), ("2026-09", 1)]
    assert told["staged"] == filled.staged and told["delivered"] == 1
    assert 0 < told["error"] < 1e-6
    unknown = ask(filled, "user", "nobody", "--json")
    assert json.loads(unknown.stdout) is None
    assert ask(filled, "user", "").returncode == 2
    assert ask(filled, "user", "x" * 256).returncode == 2


def test_why(filled):
    places = json.loads(ask(filled, "why", "u1", "a", "--json").stdout)
    assert places["seen"] is True and [p["place"] for p in places["places"]] == ["2026-11"]
    assert ("staged" if filled.staged else "2026-11") in ask(filled, "why", "u1", "c").stdout.decode()
    assert "delivered" in ask(filled, "why", "u1", "d").stdout.decode()
    assert "2026-09" in ask(filled, "why", "u1", "old").stdout.decode()
    assert json.loads(ask(filled, "why", "u1", "new", "--json").stdout)["places"] == []


def test_months(filled):
    text = ask(filled, "months").stdout.decode()
    assert "2026-11" in text and "2026-09" in text and "live" in text
    told = json.loads(ask(filled, "months", "--json").stdout)
    rows = told["months"] if isinstance(told, dict) else told
    assert [(m["month"], m["users"], m["plays"]) for m in rows] == [("2026-11", 1, 3 - filled.staged), ("2026-09", 1, 1)]


def test_check(filled):
    assert ask(filled, "check").returncode == 0
    assert json.loads(ask(filled, "check", "--json").stdout)


def test_no_folder(folder):
    for words in (["user", "u"], ["why", "u", "i"], ["months"], ["check"]):
        done = run(*words, "--data", folder / "none", check=False)
        assert done.returncode == 1 and str(folder / "none") in done.stderr.decode(), done
        assert not (folder / "none").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name):
    text = run(name, "--help").stdout.decode() if name != "help" else run("help").stdout.decode()
    assert "Usage: unseen" in text and "unseen " in text and "xample" in text
    assert run("help", name).returncode == 0


def test_usage_errors():
    for words in ([], ["nosuch"], ["user"], ["user", "a", "b"], ["why", "u"], ["months", "x"], ["serve", "--nosuch"],
                  ["import"], ["serve", "--port", "70000"]):
        done = run(*words, check=False)
        assert done.returncode == 2, (words, done)
        assert done.stderr
    assert "serve" in run("serv", check=False).stderr.decode()  # it guesses


def test_version():
    text = run("version").stdout.decode()
    for word in ("unseen", "sqlite", "libuv", "zstd"):
        assert word in text.lower()


def test_check_config(folder):
    sample = folder / "sample.conf"
    assert run("check-config", "-c", UNSEEN.parent / "none.conf", check=False).returncode == 1
    sample.write_text("slots = 4\nwindow = 2\n")
    assert run("check-config", "-c", sample).returncode == 0
    sample.write_text("slots = 1\nslotz = 2\nerror_rate = 7\n")
    done = run("check-config", "-c", sample, check=False)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == 1
    for number in (1, 2, 3):
        assert f"sample.conf:{number}:" in text, text  # all of them, not the first alone
    # A line appended to the sample falls into its last section.
    lines = (REPO / "etc/unseen.conf").read_text().splitlines() + ["slots = 4"]
    sample.write_text("\n".join(lines) + "\n")
    done = run("check-config", "-c", sample, check=False)
    assert done.returncode == 1 and (
        f"sample.conf:{len(lines)}: slots belongs in [unseen]; here it stands in [legacy], "
        f"which begins in line {lines.index('[legacy]') + 1}\n") in done.stdout.decode() + done.stderr.decode()


ROWS = [(START - 5000, "u1", "a"), (START - 4000, "u1", "b"), (START - 3000, "u2", "it,em \"x\""),
        (START - 40 * DAY, "u2", "c")]


def tsv(rows):
    return "".join(f"{at}\t{user}\t{item}\n" for at, user, item in rows)


FORMATS = {
    "tsv": tsv(ROWS),
    "csv": "unix_ms,user,item\n" + "".join(
        '%d,%s,"%s"\n' % (at, user, item.replace('"', '""')) for at, user, item in ROWS),
    "ndjson": "".join(json.dumps({"item": item, "user": user, "unix_ms": at}) + "\n" for at, user, item in ROWS),
}


def pack(text, packing):
    if packing == "gz":
        return gzip.compress(text.encode())
    if packing == "zst":
        return subprocess.run(["zstd", "-q", "-c"], input=text.encode(), capture_output=True, check=True).stdout
    return text.encode()


@pytest.mark.parametrize("packing", ["", "gz", "zst"])
@pytest.mark.parametrize("form", FORMATS)
def test_import_of_each_format(folder, form, packing):
    path = folder / ("plays." + form + ("." + packing if packing else ""))
    path.write_bytes(pack(FORMATS[form], packing))
    data = folder / "data"
    args = ["--data", data, "--test-clock", START]
    done = run("import", *args, path)
    assert b"4" in done.stdout + done.stderr
    for user, item, seen in (("u1", "a", True), ("u1", "b", True), ("u2", "it,em \"x\"", True), ("u2", "c", True),
                             ("u2", "a", False)):
        assert json.loads(run("why", user, item, "--json", *args).stdout)["seen"] is seen
    assert run("check", "--data", data).returncode == 0


def test_import_from_standard_input(folder):
    args = ["--data", folder / "data", "--test-clock", START]
    run("import", *args, "-", input=gzip.compress(tsv(ROWS).encode()))
    assert json.loads(run("why", "u1", "a", "--json", *args).stdout)["seen"] is True


def test_import_to_a_running_server(server, folder):
    path = folder / "plays.tsv"
    path.write_text(tsv(ROWS) + tsv([(START - 1000, f"v{i % 100}", f"i{i}") for i in range(20000)]))
    refused = run("import", "--data", server.data, path, check=False)
    assert refused.returncode == 1 and b"--to" in refused.stderr, refused.stderr  # the folder is locked
    run("import", "--to", f"127.0.0.1:{server.port}", "--test-clock", START, path)
    with server.client() as c:
        assert c.command("UNSEEN", "u1", "a", "b", "x") == [b"x"]
        assert c.command("UNSEEN", "v7", "i7", "i19907", "i8") == [b"i8"]


def test_import_of_bad_lines(folder):
    path = folder / "plays.tsv"
    lines = tsv(ROWS).splitlines()
    lines[1:1] = ["no tabs at all", "soon\tu\ti", f"{START}\t\ti", f"{START}\tu\t{'x' * 256}"]
    lines.append(f"{START - 900 * DAY}\tu9\told")
    path.write_text("\n".join(lines) + "\n")
    args = ["--data", folder / "data", "--test-clock", START]
    done = run("import", *args, path)
    text = (done.stdout + done.stderr).decode()
    for number in (2, 3, 4, 5):
        assert f":{number}" in text or f"line {number}" in text, text
    told = json.loads(run("import", *args, "--json", path).stdout)
    assert told["malformed"] == 4 and told["too_old"] == 1, told
    strict = folder / "strict"
    done = run("import", "--data", strict, "--test-clock", START, "--strict", path, check=False)
    assert done.returncode == 1 and "plays.tsv:2" in done.stderr.decode(), done.stderr
    assert not strict.exists() or run("user", "u1", "--data", strict, "--test-clock", START, "--json").stdout == b"null\n"


def test_import_of_what_is_no_file(folder):
    done = run("import", "--data", folder / "data", folder / "none.tsv", check=False)
    assert done.returncode == 1 and b"none.tsv" in done.stderr
    broken = folder / "broken.tsv.gz"
    broken.write_bytes(gzip.compress(tsv(ROWS * 1000).encode())[:-50])
    done = run("import", "--data", folder / "data", "--test-clock", START, broken, check=False)
    assert done.returncode == 1 and b"broken.tsv.gz" in done.stderr


def test_import_keeps_what_the_server_knew(make_server, folder):
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "u1", "staged")
        c.command("DELIVERED", "u1", "sent")
    server.kill()
    path = folder / "plays.tsv"
    path.write_text(tsv(ROWS))
    run("import", "-c", server.config, "--test-clock", START, path)
    server.start()
    with server.client() as c:
        assert c.command("UNSEEN", "u1", "staged", "sent", "a", "b", "x") == [b"x"]
        with pytest.raises(RespError):
            c.command("PLAYED", "u1", "")
