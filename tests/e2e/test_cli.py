"""The subcommands, as they are typed: against a folder, and against the server that serves it."""
import gzip
import json
import subprocess
import threading
import time

import pytest

from conftest import DAY, PATIENCE, REPO, START, UNSEEN, pause, run
from resp import RespError

COMMANDS = ["serve", "import", "user", "why", "months", "clock", "check", "check-config", "ping", "clone", "rejoin", "replica", "front", "version", "help"]


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
        f"sample.conf:{len(lines)}: slots belongs in [unseen]; here it stands in [replica], "
        f"which begins in line {lines.index('[replica]') + 1}\n") in done.stdout.decode() + done.stderr.decode()


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


@pytest.fixture
def pipe(folder):
    """`unseen import -` whose standard input stays open; its words on standard error are lines of `said`."""
    started = []

    def start(*args):
        p = subprocess.Popen([UNSEEN, "import", *map(str, args), "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        started.append(p)
        return p

    yield start
    for p in started:
        p.kill()
        p.wait()


def until(p, done):
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert p.poll() is None, p.stderr.read()
        assert time.monotonic() < deadline, "it holds what it has"


def feed(p, data):
    p.stdin.write(data)
    p.stdin.flush()


@pytest.mark.parametrize("packing", ["", "gz", "zst"])
def test_import_from_a_pipe_that_stays_open_is_answered(server, pipe, packing):
    """Nothing tells the import that more will come, or not: what it has is sent all the same."""
    p = pipe("--to", f"127.0.0.1:{server.port}", "--test-clock", START)
    with server.client() as c:
        for n in range(3):
            feed(p, pack(tsv([(START - 1000, "u", f"{n}-{i}") for i in range(10)]), packing))
            until(p, lambda: not c.command("UNSEEN", "u", *[f"{n}-{i}" for i in range(10)]))
            assert p.stderr.readline() == b"import: %d events are durable\n" % (10 * n + 10)
    assert p.poll() is None
    out, said = p.communicate()
    assert p.returncode == 0 and b"events                   30" in out and said == b"", (out, said)


def test_import_from_a_pipe_that_trickles(server, pipe):
    """Events come more often than once a second, and never stop."""
    p = pipe("--to", f"127.0.0.1:{server.port}", "--test-clock", START)
    with server.client() as c:
        def one_more():
            feed(p, tsv([(START - 1000, "u", "a")]).encode())
            pause(0.05, "the pace at which they come")
            return not c.command("UNSEEN", "u", "a")

        until(p, one_more)
    assert p.stderr.readline().startswith(b"import: ")


def test_import_into_a_folder_from_a_pipe_that_is_cut_off(folder, pipe):
    """What was acknowledged is there after a kill."""
    args = ["--data", folder / "data", "--test-clock", START]
    p = pipe(*args)
    feed(p, tsv(ROWS).encode())
    assert b"an empty history is begun" in p.stderr.readline()
    assert p.stderr.readline() == b"import: %d events are durable\n" % len(ROWS)
    p.kill()
    p.wait()
    assert json.loads(run("why", "u1", "a", "--json", *args).stdout)["seen"] is True
    assert run("check", "--data", folder / "data").returncode == 0


def test_import_from_a_pipe_says_nothing_when_it_is_asked_to(server, pipe):
    p = pipe("--to", f"127.0.0.1:{server.port}", "--test-clock", START, "--quiet")
    feed(p, tsv(ROWS).encode())
    with server.client() as c:
        until(p, lambda: not c.command("UNSEEN", "u1", "a"))
    assert p.communicate() == (b"", b"") and p.returncode == 0


def test_import_to_a_running_server(server, folder):
    path = folder / "plays.tsv"
    path.write_text(tsv(ROWS) + tsv([(START - 1000, f"v{i % 100}", f"i{i}") for i in range(20000)]))
    refused = run("import", "--data", server.data, path, check=False)
    assert refused.returncode == 1 and b"--to" in refused.stderr, refused.stderr  # the folder is locked
    run("import", "--to", f"127.0.0.1:{server.port}", "--test-clock", START, path)
    with server.client() as c:
        assert c.command("UNSEEN", "u1", "a", "b", "x") == [b"x"]
        assert c.command("UNSEEN", "v7", "i7", "i19907", "i8") == [b"i8"]


def said(p, words):
    """Its line with these words, once it says so."""
    return next((line for line in iter(p.stderr.readline, b"") if words in line), None)


def test_an_import_outlives_its_server(server, pipe):
    """Killed in the middle, and started again."""
    rows = [(START - 1000, f"v{i % 100}", f"i{i}") for i in range(30000)]
    p = pipe("--to", f"127.0.0.1:{server.port}", "--test-clock", START)
    feed(p, tsv(rows[:10000]).encode())
    assert said(p, b"10,000 events are durable")
    server.kill()
    writer = threading.Thread(target=feed, args=(p, tsv(rows[10000:]).encode()))
    writer.start()
    assert said(p, b"trying again")
    server.start()
    writer.join()
    out, rest = p.communicate()
    assert p.returncode == 0 and b"events               30,000" in out, (out, rest)
    assert f"import: 127.0.0.1:{server.port} answers again\n".encode() in rest, rest
    with server.client() as c:
        for v in range(100):
            assert c.command("UNSEEN", f"v{v}", *[item for _, user, item in rows[v::100]]) == []


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
        assert f"  {path}:{number}: " in text, text
    told = json.loads(run("import", *args, "--json", path).stdout)
    assert told["malformed"] == 4 and told["too_old"] == 1, told
    strict = folder / "strict"
    done = run("import", "--data", strict, "--test-clock", START, "--strict", path, check=False)
    assert done.returncode == 1 and "plays.tsv:2" in done.stderr.decode(), done.stderr
    assert not strict.exists()


def test_import_of_what_is_no_file(folder):
    done = run("import", "--data", folder / "data", folder / "none.tsv", check=False)
    assert done.returncode == 1 and b"none.tsv" in done.stderr
    done = run("import", "--data", folder / "data", folder, check=False)
    assert done.returncode == 1 and f"{folder}: Is a directory" in done.stderr.decode()
    good = folder / "good.tsv"
    good.write_text(tsv(ROWS))
    done = run("import", "--data", folder / "data", good, folder / "none.tsv", check=False)
    assert done.returncode == 1 and b"none.tsv" in done.stderr
    assert not (folder / "data").exists()  # nothing was begun
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


def test_what_a_forget_drops_is_not_loaded(make_server, folder):
    """Neither into a server nor into its folder, and the exit code says so when nothing else was."""
    server = make_server()
    with server.client() as c:
        c.command("FORGET", "u")
    plays = folder / "plays.tsv"
    for where in (["--to", f"127.0.0.1:{server.port}"], ["--data", server.data]):
        for more, code in (("", 1), (f"{int(START) - 1000}\tv\ta\n", 0)):
            plays.write_text(f"{int(START) - 1000}\tu\ta\n" + more)
            done = run("import", *where, "--test-clock", START, "--json", plays, check=False)
            told = json.loads(done.stdout)
            assert (told["events"], told["forgotten"], done.returncode) == (1 - code, 1, code)
        if where[0] == "--to":
            server.stop()


def test_old_names_of_options(make_server, tmp_path):
    """They do what they did; check-config says what to write instead, and the log does once."""
    conf = tmp_path / "old.conf"
    conf.write_text("[front]\nsentinel = 127.0.0.1:1/name\n[legacy]\nredis = 127.0.0.1:1\ndatabase = 3\n")
    done = run("check-config", conf)
    assert b"front_sentinel is an old name: expected redis = sentinel://host:port/name in the section [front]" in done.stdout
    assert b"legacy_database is an old name" in done.stdout and b"legacy_redis is an old name" not in done.stdout
    conf.write_text("[front]\nredis = sentinel://127.0.0.1:1/name\n[legacy]\nredis = redis://127.0.0.1:1/3\n")
    assert b"old name" not in run("check-config", conf).stdout
    server = make_server(legacy_redis="127.0.0.1:1", legacy_database="3")
    assert server.log().count("an option is set by an old name") == 1


def test_merge(make_server):
    """What was hidden from the first is hidden from the second, too; the words and codes of what goes wrong."""
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "phone", "a", "b")
        done = run("merge", "phone", "ann", "--to", f"127.0.0.1:{server.port}")
        assert done.stdout == b"phone is merged into ann\n"
        assert c.command("UNSEEN", "ann", "a", "b", "c") == [b"c"]
        assert c.command("UNSEEN", "phone", "a") == []
        done = run("merge", "phone", "ann", "--forget", "--json", "--data", server.data)
        assert json.loads(done.stdout) == {"merged": 1}
        assert c.command("UNSEEN", "phone", "a") == [b"a"] and c.command("UNSEEN", "ann", "a") == []
    assert run("merge", "nobody", "ann", "--to", f"127.0.0.1:{server.port}").stdout == b"nothing is known of nobody\n"
    done = run("merge", "ann", "ann", "--to", f"127.0.0.1:{server.port}", check=False)
    assert done.returncode == 1 and b"can't be merged into itself" in done.stderr
    assert run("merge", "ann", check=False).returncode == 2
    server.stop()
    done = run("merge", "phone", "ann", "--data", server.data, check=False)
    assert done.returncode == 1 and b"no server" in done.stderr
