"""Accounts: the file, `unseen account`, who may do what over each edge, and what a reload takes away."""
import base64
import json
import os
import pathlib
import pty
import re
import shutil
import sqlite3
import stat
import subprocess
import urllib.request

import pytest

from conftest import PATIENCE, UNSEEN, http_url, run, until
from resp import Client, RespError, encode
from test_doors import FREE, TURN, await_log, failed, server_advance
from test_http import Asker
from test_reload import reload

ROLES = ("ask", "record", "forget", "load", "admin", "watch")


def account(path, *words, password=None, check=True):
    given = ["--password-stdin"] if password is not None else []
    done = subprocess.run([UNSEEN, "account", *map(str, words), *given, "--file", str(path)], timeout=PATIENCE, text=True,
                          capture_output=True, input=password)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def made_accounts(tmp_path_factory):
    """A hash takes long, as it should."""
    path = tmp_path_factory.mktemp("accounts") / "accounts"
    for role in ROLES:
        account(path, "add", f"the-{role}", "--roles", role, password=f"the-{role}\n")
    account(path, "add", "all", "--roles", ",".join(ROLES), password="all\n")
    return path


@pytest.fixture
def accounts(folder, made_accounts):
    """One of each role, whose password is its name, and one with all."""
    return pathlib.Path(shutil.copy2(made_accounts, folder))


@pytest.fixture
def guarded(make_server, accounts):
    return make_server(accounts=str(accounts), http="127.0.0.1:0")


def login(server, name, password=None):
    c = Client(server.address)
    assert c.command("AUTH", name, password or name) == b"OK"
    return c


def refusal(c, *words):
    with pytest.raises(RespError) as e:
        c.command(*words)
    return str(e.value)


def basic(name, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


# --- unseen account ---

def test_add_and_list(folder):
    path = folder / "accounts"
    done = account(path, "add", "bob", "--roles", "record,ask", password="pässword")
    assert "account bob added" in done.stdout and "SIGHUP" in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    line = path.read_text().splitlines()[-1]
    assert re.fullmatch(r"bob ask,record \$y\$j9T\$\S+", line)
    assert "pässword" not in path.read_text()
    account(path, "add", "ann", "--roles", "watch", password="x")
    assert json.loads(account(path, "list", "--json").stdout) == [
        {"name": "ann", "roles": ["watch"]}, {"name": "bob", "roles": ["ask", "record"]}]
    assert re.search(r"bob +ask,record", account(path, "list").stdout)
    assert not (folder / "accounts.new").exists()


def test_what_is_changed_and_what_is_not(folder):
    """The other lines, the mode and the group stay; a link goes on pointing to the file."""
    path = folder / "accounts"
    for name in ("ann", "bob", "bobby"):
        account(path, "add", name, "--roles", "ask", password=name)
    path.chmod(0o640)
    path.write_text("# mine\n\n" + path.read_text())
    before = path.read_text().splitlines()
    link = folder / "link"
    link.symlink_to(path)
    account(link, "set-roles", "bob", "--roles", "ask,forget")
    after = path.read_text().splitlines()
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640
    at = next(i for i, line in enumerate(before) if line.startswith("bob "))
    assert after[at] == before[at].replace("bob ask ", "bob ask,forget ")
    assert after[:at] + after[at + 1:] == before[:at] + before[at + 1:]
    account(path, "passwd", "bob", password="new")
    hashes = [lines[at].split()[2] for lines in (after, path.read_text().splitlines())]
    assert hashes[0] != hashes[1]
    account(path, "remove", "bob")
    assert path.read_text().splitlines() == before[:at] + before[at + 1:]


@pytest.mark.parametrize("words, password, code, want", [
    (["add", "bob", "--roles", "asks"], "x", 2, 'there is no role "asks", expected some of ask'),
    (["add", "bob"], "x", 2, "add needs --roles"),
    (["add", "--roles", "ask"], "x", 2, "add expects NAME"),
    (["add", "b/b", "--roles", "ask"], "x", 1, "can't be an account's name"),
    (["add", "default", "--roles", "ask"], "x", 1, "its password is requirepass"),
    (["add", "ann", "--roles", "ask"], "x", 1, "the account ann is there already"),
    (["add", "bob", "--roles", "ask"], "", 1, "the password is empty"),
    (["add", "bob", "--roles", "ask"], "\n", 1, "the password is empty"),
    (["add", "bob", "--roles", "ask"], "x\ny\n", 1, "more than one line"),
    (["add", "bob", "--roles", "ask"], "x" * 256, 1, "longer than 255 bytes"),
    (["add", "bob", "--roles", "ask"], "a\0b", 1, "more than one line of text"),
    (["passwd", "nobody"], "x", 1, 'there is no account "nobody"'),
    (["set-roles", "nobody", "--roles", "ask"], None, 1, 'there is no account "nobody"'),
    (["set-roles", "ann"], None, 2, "set-roles needs --roles"),
    (["set-roles", "ann", "--roles", "ask"], "x", 2, "takes no password"),
    (["remove", "nobody"], None, 1, 'there is no account "nobody"'),
    (["list", "ann"], None, 2, "list expects no NAME"),
    (["passwd", "ann", "--roles", "ask"], "x", 2, "takes no --roles"),
    (["remove", "ann", "--json"], None, 2, "prints no JSON"),
    (["frobnicate"], None, 2, "is none of add, passwd, set-roles, remove and list"),
])
def test_wrong_usage(folder, words, password, code, want):
    path = folder / "accounts"
    account(path, "add", "ann", "--roles", "watch", password="x")
    before = path.read_bytes()
    done = account(path, *words, password=password, check=False)
    assert done.returncode == code and want in done.stderr, done
    assert path.read_bytes() == before


def test_files_that_are_left_alone(folder):
    path = folder / "accounts"
    account(path, "add", "ann", "--roles", "watch", password="x")
    before = path.read_bytes()
    (folder / "accounts.new").write_text("")
    done = account(path, "remove", "ann", check=False)
    assert done.returncode == 1 and "another process is changing the accounts" in done.stderr
    (folder / "accounts.new").unlink()
    path.chmod(0o644)
    done = account(path, "remove", "ann", check=False)
    assert done.returncode == 1 and "is open to everybody on this machine (mode 0644)" in done.stderr
    path.chmod(0o600)
    path.write_bytes(before + b"bob ask\n")
    done = account(path, "remove", "ann", check=False)
    assert done.returncode == 1 and "accounts:3: expected a name, roles and a hash" in done.stderr
    done = account(folder / "none" / "accounts", "add", "bob", "--roles", "ask", password="x", check=False)
    assert done.returncode == 1 and "No such file" in done.stderr
    (folder / "empty.conf").touch()
    done = run("account", "list", "-c", folder / "empty.conf", check=False)
    assert done.returncode == 1 and b"Give --file, or set accounts" in done.stderr


def typed(path, *lines):
    """What the terminal shows, and the exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(UNSEEN, [str(UNSEEN), "account", "add", "bob", "--roles", "ask", "--file", str(path)])
    shown = b""
    try:
        for i, line in enumerate(lines):
            while shown.count(b"bob: ") <= i:
                shown += os.read(terminal, 1000)
            os.write(terminal, line.encode() + b"\n")
        while piece := os.read(terminal, 1000):
            shown += piece
    except OSError:  # its end
        pass
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_terminal(folder):
    shown, code = typed(folder / "accounts", "sesam", "sesam ")
    assert code == 1 and "the two passwords are not the same" in shown and "sesam" not in shown
    assert not (folder / "accounts").exists()
    shown, code = typed(folder / "accounts", "sesam", "sesam")
    assert code == 0 and "account bob added" in shown and "sesam" not in shown
    done = subprocess.run([UNSEEN, "account", "passwd", "bob", "--file", str(folder / "accounts")],
                          start_new_session=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 1 and b"there is no terminal" in done.stderr and b"--password-stdin" in done.stderr


# --- who may do what ---

WANTED = {
    "ask": [("UNSEEN", "u", "a"), ("SEEN", "u", "a"), ("FILTER", "u", "ITEMS", "a"), ("WHY", "u", "a"), ("HISTORY", "u"),
            ("MEMORY", "USAGE", "u"), ("BLOCK", "s", "1"), ("UNBLOCK", "s", "1")],
    "record": [("PLAYED", "u", "a"), ("PLAYEDAT", "u", "1795255200000", "a"), ("DELIVERED", "u", "a")],
    "forget": [("FORGET", "u"), ("FORGET", "u", "a")],
    "load": [("LOAD", "x")],
    "watch": [("INFO",), ("SLOWLOG", "GET"), ("CLIENT", "LIST"), ("MONTHS",), ("RING",), ("CLOCK",), ("FEED",),
              ("KAFKA",), ("ROLE",), ("REPLICA", "STATUS"), ("FRONT",), ("FRONT", "STATUS"),
              ("CONFIG", "GET", "data"), ("DBSIZE",), ("LATENCY", "HISTOGRAM"), ("MEMORY", "STATS")],
    "admin": [("SEED",), ("BACKUP", "/x"), ("DEBUG", "ADVANCE", "0"), ("RING", "FLUSH"), ("CLOCK", "ACCEPT"),
              ("LEGACY", "STATE", "u"), ("REPLICA", "PROMOTE"),
              ("FRONT", "RECONCILE"), ("FRONT", "REBUILD"), ("SLOWLOG", "RESET"),
              ("LATENCY", "RESET"), ("CLIENT", "KILL", "ID", "999999")],
}
ANYBODY = [("PING",), ("ECHO", "x"), ("SELECT", "0"), ("CLIENT", "ID"), ("CLIENT", "INFO"), ("COMMAND", "COUNT"),
           ("COMMAND", "LIST"), ("CLIENT", "NO-EVICT", "on"), ("ACL", "WHOAMI")]


@pytest.mark.parametrize("role", ROLES)
def test_roles(guarded, role):
    with login(guarded, f"the-{role}") as c:
        for words in ANYBODY:
            c.command(*words)
        assert c.command("ACL", "WHOAMI") == f"the-{role}".encode()
        for needed, rows in WANTED.items():
            for words in rows:
                try:
                    answer = c.command(*words)
                except RespError as e:
                    answer = str(e)
                denied = f"NOPERM User the-{role} has no permissions to do this: it needs the role {needed}"
                assert (answer == denied) == (needed != role), (words, answer)


def test_deliver_needs_both(guarded):
    words = ("FILTER", "u", "LIMIT", "1", "DELIVER", "ITEMS", "a")
    with login(guarded, "the-ask") as c:
        assert refusal(c, *words).endswith("it needs the role record")
    with login(guarded, "the-record") as c:
        assert refusal(c, *words).endswith("it needs the role ask")
    with login(guarded, "all") as c:
        assert c.command(*words) == [b"a"]


def test_what_an_admin_alone_may_not_do(guarded):
    """To record, forget or load needs those roles by whichever command."""
    merge = ("REPLICA", "MERGE", "0" * 15 + "1", "0" * 15 + "1", "1", "x", "FORCE")
    with login(guarded, "the-admin") as c:
        assert refusal(c, *merge).endswith("it needs the role record")
        for words in (("NOTE", "u"), ("RENOTE", "u"), ("AGAIN",)):
            assert refusal(c, "LEGACY", *words).endswith("it needs the role load")
    for role in ("record", "forget", "load"):
        with login(guarded, f"the-{role}") as c:
            assert "needs the role" in refusal(c, *merge)
    with login(guarded, "all") as c:
        assert "NOPERM" not in refusal(c, *merge)


def test_who_only_looks_sees_no_ids(make_server, accounts):
    server = make_server(accounts=str(accounts), slowlog_slower_than="0")
    with login(server, "all") as c:
        c.command("UNSEEN", "some-user", "some-item")
    for role, sees in (("watch", False), ("all", True)):
        with login(server, role if sees else f"the-{role}") as c:
            asked, = [args for _, _, _, args, *_ in c.command("SLOWLOG", "GET", "-1") if args[0] == b"UNSEEN"]
            assert asked == [b"UNSEEN", *([b"some-user", b"some-item"] if sees else [b"(9 bytes)", b"(9 bytes)"])]
            assert sees or b"some-" not in c.command("CLIENT", "LIST") + c.command("INFO", "everything")


def test_who_only_looks_sees_no_ids_in_errors(make_server, accounts):
    server = make_server(store="sqlite", accounts=str(accounts), http="127.0.0.1:0")
    with login(server, "all") as c:
        c.command("DELIVERED", "some-user", "a")
        c.command("RING", "FLUSH")
    assert server.stop() == 0
    db = sqlite3.connect(server.data / "history.db")
    db.execute("UPDATE delivered SET items = x'00'")
    db.commit()
    db.close()
    server.start()
    with login(server, "all") as c:
        assert 'user "some-user": deliveries can' in refusal(c, "FORGET", "some-user", "a")
    for name, user in ("the-watch", "user -"), ("all", 'user \\"some-user\\"'):
        status = urllib.request.Request(http_url(server) + "/v1/status", headers=basic(name, name))
        with urllib.request.urlopen(status, timeout=PATIENCE) as reply:
            failed, = [w["text"] for w in json.load(reply)["warnings"] if "forget failed" in w["text"]]
        assert f'error="{user}: deliveries' in failed, failed


def test_in_a_transaction(guarded):
    with login(guarded, "the-ask") as c:
        assert c.command("MULTI") == b"OK"
        c.command("PLAYED", "u", "a")
        c.command("UNSEEN", "u", "a")
        played, unseen = c.command("EXEC")
        assert str(played).startswith("NOPERM") and unseen == [b"a"]


def test_who_is_there(guarded):
    with login(guarded, "the-watch") as c, Client(guarded.address) as other:
        assert refusal(other, "ACL", "WHOAMI") == "NOAUTH Authentication required."
        lines = c.command("CLIENT", "LIST").decode().splitlines()
        assert sorted(re.search(r"user=(\S*)", line).group(1) for line in lines) == ["", "the-watch"]
        other.command("HELLO", "3", "AUTH", "the-ask", "the-ask")
        assert other.command("ACL", "WHOAMI") == b"the-ask"
        assert "WRONGPASS" in refusal(other, "AUTH", "all", "x")
        assert other.command("ACL", "WHOAMI") == b"the-ask"  # a login that fails takes nothing away
        assert other.command("RESET") == b"RESET"
        assert refusal(other, "UNSEEN", "u", "a").startswith("NOAUTH")


PATHS = {
    "ask": [("POST", "/v1/unseen", {"user": "u", "items": ["a"]}), ("POST", "/v1/why", {"user": "u", "item": "a"}),
            ("GET", "/v1/users/u", None), ("POST", "/v1/block", {"session": "s", "ids": ["1"]}),
            ("POST", "/v1/unblock", {"session": "s"})],
    "record": [("POST", "/v1/played", {"user": "u", "items": ["a"]}), ("POST", "/v1/delivered", {"user": "u", "items": ["a"]})],
    "forget": [("DELETE", "/v1/users/u", None)],
    "watch": [("GET", "/v1/status", None), ("GET", "/v1/timeline", None), ("GET", "/metrics", None), ("GET", "/v1/ring", None),
              ("GET", "/v1/months", None)],
    "admin": [("GET", "/v1/seed", None)],
}


@pytest.mark.parametrize("role", ROLES)
def test_roles_over_http(guarded, role):
    with Asker(guarded) as a:
        a.headers = basic(f"the-{role}", f"the-{role}")
        for needed, rows in PATHS.items():
            for method, path, body in rows:
                if needed == role:
                    a.http.request(method, path, json.dumps(body) if body else None,
                                   {**a.headers, "Content-Type": "application/json"})
                    answer = a.http.getresponse()
                    assert answer.status in (200, 404), (path, answer.read())
                    answer.read()
                else:
                    told = a.bad(403, "forbidden", method, path, body)
                    assert told == f"User the-{role} has no permissions to do this: it needs the role {needed}"


def test_credentials_over_http(guarded):
    body = {"user": "u", "items": ["a"]}
    with Asker(guarded) as a:
        assert a.good("GET", "/healthz") and a.good("GET", "/readyz")
        assert a.bad(401, "unauthorized", "GET", "/metrics") == "Authentication required."
        for given in ("Basic", "Basic ", "Basic x", "Basic ====", "Basic dGhlLWFzaw==", "Digest x", "Bearer the-ask",
                      basic("the-ask", "x")["Authorization"], basic("", "")["Authorization"],
                      basic("the-ask", "the-ask\0")["Authorization"], "Basic " + "A" * 2000):
            a.headers = {"Authorization": given}
            assert "invalid username" in a.bad(401, "unauthorized", "POST", "/v1/played", body), given
    with Asker(guarded) as a:
        a.headers = {"Authorization": basic("the-record", "the-record")["Authorization"].replace("Basic", "basic ")}
        for _ in range(50):
            assert a.good("POST", "/v1/played", body) == {"recorded": 1}


def test_subcommands(guarded, folder):
    """They log in as $UNSEEN_USER, and need what they do."""
    (folder / "plays").write_text("1795255200000\tu\ta\n")
    to = ("--to", f"127.0.0.1:{guarded.port}", folder / "plays")

    def as_account(name, password, *words):
        environment = {**os.environ, "UNSEEN_USER": name, "UNSEEN_PASSWORD": password}
        return run(*words, check=False, env=environment)

    account(folder / "accounts", "add", "importer", "--roles", "record,watch", password="i")
    reload(guarded)
    done = as_account("importer", "i", "import", "--test-clock", "1795255200000", *to)
    assert done.returncode == 0, done.stderr
    assert b"NOPERM" in as_account("the-ask", "the-ask", "import", *to).stderr
    assert b"the password is wrong" in as_account("importer", "x", "import", *to).stderr
    assert b"$UNSEEN_USER" in run("import", *to, check=False).stderr


# --- beside requirepass ---

def test_beside_requirepass(make_server, accounts):
    server = make_server(accounts=str(accounts), requirepass="geheim", http="127.0.0.1:0")
    with Client(server.address) as c:
        assert c.command("AUTH", "geheim") == b"OK"
        assert c.command("ACL", "WHOAMI") == b"default"
        for rows in WANTED.values():
            for words in rows:
                try:
                    c.command(*words)
                except RespError as e:
                    assert not str(e).startswith("NOPERM")
        assert c.command("AUTH", "the-ask", "the-ask") == b"OK"
        assert refusal(c, "AUTH", "default", "the-ask").startswith("WRONGPASS")
        assert c.command("ACL", "WHOAMI") == b"the-ask"
    with Asker(server) as a:
        a.headers = {"Authorization": "Bearer geheim"}
        assert a.good("GET", "/v1/status")
        a.headers = basic("default", "geheim")
        assert a.good("GET", "/v1/status")


def test_without_requirepass_there_is_no_default(guarded):
    with Client(guarded.address) as c:
        assert refusal(c, "AUTH", "x").startswith("ERR AUTH <password> called without any password")
        assert refusal(c, "AUTH", "default", "").startswith("WRONGPASS")


def test_beyond_loopback(cold, accounts):
    """A file of accounts is a password; none is none."""
    server = cold(listen="0.0.0.0:0")
    server.spawn()
    assert server.process.wait(PATIENCE) == 78
    assert "set requirepass, requirepass_file or accounts" in server.log()
    server = cold(listen="0.0.0.0:0", accounts=str(accounts))
    server.spawn()
    await_log(server, " ready ")


@pytest.mark.parametrize("text, want", [
    ("bob ask\n", ":1: expected a name, roles and a hash"),
    ("\nbob aks $y$x\n", ':2: there is no role "aks"'),
    (None, "No such file"),
])
def test_a_bad_file_refuses_the_start(cold, folder, text, want):
    path = folder / "accounts"
    if text is not None:
        path.write_text(text)
        path.chmod(0o600)
    server = cold(accounts=str(path))
    server.spawn()
    assert server.process.wait(PATIENCE) == 78
    assert f"{path}" in server.log() and want in server.log()
    checked = run("check-config", server.config, check=False)
    assert checked.returncode == 1 and want in (checked.stdout + checked.stderr).decode()


# --- reload ---

def test_a_reload_takes_away_at_once(guarded, accounts):
    """Roles hold at once; who is gone or has another password must log in again. What is wrong changes nothing."""
    ask, record, forget, all_ = (login(guarded, n) for n in ("the-ask", "the-record", "the-forget", "all"))
    with Asker(guarded) as a:
        a.headers = basic("the-record", "the-record")
        assert a.good("POST", "/v1/played", {"user": "u", "items": ["a"]})
        good = accounts.read_text()
        accounts.write_text(good + "bob\n")
        said = reload(guarded)
        assert f"{accounts}:{len(good.splitlines()) + 1}: expected a name, roles and a hash" in said
        assert "nothing was changed" in said
        assert ask.command("UNSEEN", "u", "b") == [b"b"]
        accounts.write_text(good)
        account(accounts, "set-roles", "the-ask", "--roles", "watch")
        account(accounts, "remove", "the-record")
        account(accounts, "passwd", "the-forget", password="other")
        assert "accounts read again" in reload(guarded)
        assert refusal(ask, "UNSEEN", "u", "b") == "NOPERM User the-ask has no permissions to do this: it needs the role ask"
        assert ask.command("INFO")
        assert refusal(record, "PLAYED", "u", "a") == "NOAUTH Authentication required."
        assert refusal(forget, "FORGET", "u") == "NOAUTH Authentication required."
        assert refusal(forget, "AUTH", "the-forget", "the-forget").startswith("WRONGPASS")  # nothing is remembered
        assert forget.command("AUTH", "the-forget", "other") == b"OK"
        assert all_.command("PLAYED", "u", "a") == 1
        assert "invalid username" in a.bad(401, "unauthorized", "POST", "/v1/played", {"user": "u", "items": ["a"]})
    assert "accounts read again" not in reload(guarded)
    for c in (ask, record, forget, all_):
        c.close()


def test_accounts_come_and_go(make_server, accounts):
    """Who was let in as `default` while nothing was asked for is nobody once accounts are; and the other way round."""
    server = make_server()
    c = Client(server.address)
    assert c.command("PLAYED", "u", "a") == 1
    reload(server, accounts=str(accounts))
    assert refusal(c, "PLAYED", "u", "a").startswith("NOAUTH")
    assert c.command("AUTH", "all", "all") == b"OK"
    del server.options["accounts"]
    reload(server)
    with Client(server.address) as other:
        assert other.command("ACL", "WHOAMI") == b"default"
    c.close()


# --- many, wrong ones, slow ones ---

def test_a_crowd_comes_back(guarded):
    """Logins with one name cost one hash, and nobody else waits for them meanwhile."""
    crowd = [Client(guarded.address) for _ in range(200)]
    known = login(guarded, "the-ask")
    for c in crowd:
        c.send(encode("AUTH", "all", "all") + encode("PLAYED", "u", "a"))
    assert known.command("UNSEEN", "u", "b") == [b"b"]
    for c in crowd:
        assert c.read() == b"OK" and c.read() == 1
        c.close()
    known.close()


def await_failed(known, n):
    until(lambda: failed(known) >= n)


def waits(c):
    c.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        c.sock.recv(1)
    c.sock.settimeout(PATIENCE)


def test_wrong_ones_are_slowed(guarded):
    """On many connections at once; what is remembered waits, too. Other accounts of the address don't."""
    known = login(guarded, "all")
    login(guarded, "the-ask").close()
    crowd = [Client(guarded.address) for _ in range(FREE + 5)]
    for i, c in enumerate(crowd):
        c.send(encode("AUTH", "all", f"x{i}"))
    await_failed(known, FREE)
    with Client(guarded.address) as c:
        c.send(encode("AUTH", "all", "all"))
        login(guarded, "the-ask").close()  # nor does it end what the others wait for
        waits(c)
        assert failed(known) <= FREE + 1
        server_advance(known, 2 * TURN)
        assert c.read() == b"OK"
    assert "failed login address=127.0.0.1 edge=resp" in guarded.log()
    for c in crowd:
        c.close()
    known.close()


def test_many_names_are_slowed(guarded):
    """Names that nobody has, and each of them once."""
    known = login(guarded, "the-watch")
    for i in range(100):
        with Client(guarded.address) as c:
            assert refusal(c, "AUTH", f"nobody{i}", "x").startswith("WRONGPASS")
    with Client(guarded.address) as c:
        assert refusal(c, "AUTH", "nobody100", "x").startswith("WRONGPASS")
        c.send(encode("AUTH", "nobody101", "x"))
        waits(c)
    assert failed(known) == 101
    known.close()


def test_who_leaves_meanwhile(guarded):
    """A client that is gone before its hash was checked, and a server that stops with some that wait."""
    for i in range(20):
        with Client(guarded.address) as c:
            c.send(encode("AUTH", "all", f"all{i}"))
    crowd = [Client(guarded.address) for _ in range(20)]
    for i, c in enumerate(crowd):
        c.send(encode("AUTH", "the-ask", f"y{i}"))
    assert guarded.stop() == 0
    for c in crowd:
        c.close()
