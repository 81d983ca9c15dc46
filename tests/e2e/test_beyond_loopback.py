"""The first steps that documents state, beyond loopback: in a network of the test's own, with addresses that are no
loopback's. Two nodes of a pair listen on two of them."""
import contextlib
import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import PATIENCE, REPO, UNSEEN, run, until
from resp import Client, RespError
from test_accounts import account
from test_doors import await_log
from test_reload import reload
from test_tls import HERE, Certificates

V4, V6 = "192.0.2.1", "2001:db8::1"
CLONE_NEWNET, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x40000000, 0x8914, 0x8916, 1


@pytest.fixture(autouse=True)
def network():
    """Of this thread and all that it starts: loopback, V4, V6, and what it is called with. All ports are free."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if libc.unshare(CLONE_NEWNET) != 0:
        os.close(before)
        pytest.skip("not here: a network of its own is not allowed here")
    names = iter(range(9))

    def add(*addresses):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s6:
            fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
            for address in addresses:
                if ":" in address:
                    fcntl.ioctl(s6, SIOCSIFADDR, struct.pack("16sIi", socket.inet_pton(socket.AF_INET6, address), 128, 1))
                    continue
                name = b"lo:%d" % next(names)
                fcntl.ioctl(s, SIOCSIFADDR, struct.pack("16sH2s4s8x", name, socket.AF_INET, b"", socket.inet_aton(address)))

    add(V4, V6)
    yield add
    assert libc.setns(before, CLONE_NEWNET) == 0
    os.close(before)


@pytest.fixture
def secret(folder):
    path = folder / "password"
    path.write_text("geheim\n")
    path.chmod(0o640)
    return path


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    made = Certificates(tmp_path_factory.mktemp("tls") / "certs")
    made.sign("here", "ca", ",".join([HERE, f"IP:{V4}", *(f"IP:10.0.0.{n}" for n in (1, 2, 3, 7))]))
    return made


def resp_logs_in(address, password, *user):
    with Client(address) as c:
        with pytest.raises(RespError, match="^NOAUTH"):
            c.command("SEEN", "u", "a")
        assert c.command("AUTH", *user, password) == b"OK"
        assert c.command("SEEN", "u", "a") == [0]


def status(url, *more, user=None):
    """What curl gets."""
    login = ["-u", user] if user else []
    done = subprocess.run(["curl", "-gsS", "-o", "/dev/null", "-w", "%{http_code}", *login, *more, url], capture_output=True,
                          text=True, timeout=PATIENCE)
    return int(done.stdout or 0)


def asks_grpc(host, port, *more, user=None):
    """A unary call without gRPC's frames."""
    scheme = "https" if "--cacert" in more else "http"
    http2 = [] if scheme == "https" else ["--http2-prior-knowledge"]
    return status(f"{scheme}://{host}:{port}/unseen.v1.Unseen/PoolList", *http2, "-H", "Content-Type: application/proto",
                  "--data-binary", "", *more, user=user)


def test_each_edge_with_the_password_from_a_file(cold, secret):
    server = cold(listen=f"{V4}:7001, [{V6}]:7001", http=f"{V4}:7002", grpc=f"{V4}:7003", requirepass_file=str(secret))
    server.write_config()
    assert b": good" in run("check-config", server.config).stdout
    server.spawn()
    await_log(server, " ready ")
    resp_logs_in((V4, 7001), "geheim")
    said = run("ping", "-c", server.config).stdout  # with the configuration and the password of the server
    assert b"7001" in said
    asked = ("--to", f"[{V6}]:7001", "--password-file", secret)
    assert run("replica", "--status", "--to", f"[{V6}]:7001", "-c", server.config).returncode == 0
    assert run("replica", "--status", "-c", os.devnull, *asked).returncode == 0
    assert status(f"http://{V4}:7002/v1/pools") == 401
    assert status(f"http://{V4}:7002/v1/pools", user="default:geheim") == 200
    assert asks_grpc(V4, 7003) == 401 and asks_grpc(V4, 7003, user="default:geheim") == 200
    # Another password in the file is that of the next reload.
    secret.write_text("neu\n")
    assert "configuration read again" in reload(server)
    resp_logs_in((V4, 7001), "neu")
    # A file that is gone leaves the last one, and so does no password at all.
    secret.unlink()
    assert "configuration not read again" in reload(server)
    assert "there is no password" in reload(server, requirepass_file="")
    resp_logs_in((V4, 7001), "neu")
    assert server.stop() == 0
    assert run("months", "-c", server.config, check=False).returncode != 0  # which is good again below
    server.options["requirepass_file"] = str(secret)
    server.write_config()
    assert run("months", "-c", server.config).returncode == 0  # of the folder: no password is needed


@pytest.mark.parametrize("edge", ["listen", "http", "grpc"])
@pytest.mark.parametrize("address", [f"{V4}:7001", f"[{V6}]:7001", "0.0.0.0:7001", "[::]:7001"])
def test_an_edge_without_a_password_is_refused_by_all(folder, edge, address):
    options = {"listen": "127.0.0.1:7004", "http": "none", "grpc": "none", "data": folder / "data", edge: address}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    for command in ("serve", "check-config", "ping"):
        done = run(command, "-c", os.devnull, *words, check=False)
        assert done.returncode != 0 and b"set requirepass, requirepass_file or accounts" in done.stderr, done
    assert not (folder / "data").exists()


@pytest.mark.parametrize("content, cause", [(None, "No such file"), ("", "is empty"), ("\n", "is empty"),
                                            ("a\nb\n", "more than one line")])
def test_a_file_that_holds_no_password_is_refused(folder, content, cause):
    secret = folder / "password"
    if content is not None:
        secret.write_text(content)
    words = ("-c", os.devnull, "--listen", f"{V4}:7001", "--http", "none", "--grpc", "none", "--data", folder / "data",
             "--requirepass-file", secret)
    for command in ("serve", "check-config"):
        done = run(command, *words, check=False)
        assert done.returncode != 0 and cause in done.stderr.decode() and "requirepass_file" in done.stderr.decode(), done
    assert not (folder / "data").exists()


def test_the_environment_of_a_container(folder, secret, monkeypatch):
    """install.md: UNSEEN_REQUIREPASS_FILE for a mounted secret, or UNSEEN_ACCOUNTS for a mounted file."""
    recipe = (REPO / "packaging/container/listen-outside").read_text()
    config = folder / "unseen.conf"
    lines = re.findall(r"s/\^#\w+ = \.\*/(\w+ = 0\.0\.0\.0:\d+)/", recipe)
    assert len(lines) == 3
    config.write_text("\n".join(["[unseen]", *lines, ""]))
    file = folder / "accounts"
    account(file, "add", "robot", "--roles", "ask,watch", password="geheim\n")
    monkeypatch.setenv("UNSEEN_DATA", str(folder / "data"))
    monkeypatch.setenv("UNSEEN_MIN_FREE", "0")
    for variable, value, user in (("UNSEEN_REQUIREPASS_FILE", secret, "default"), ("UNSEEN_ACCOUNTS", file, "robot")):
        monkeypatch.setenv(variable, str(value))
        log = folder / f"log-{user}"
        with open(log, "wb") as out:
            process = subprocess.Popen([UNSEEN, "serve", "-c", config], stdout=out, stderr=out)
        try:
            ready(process, log)
            resp_logs_in((V4, 7979), "geheim", user)
            assert status(f"http://{V4}:7980/v1/pools", user=f"{user}:geheim") == 200
            assert asks_grpc(V4, 7981, user=f"{user}:geheim") == 200
            if user == "default":
                assert run("ping", "-c", config).returncode == 0  # the image's health check
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, log.read_text()
        monkeypatch.delenv(variable)


def ready(process, log):
    server = type("Server", (), {"log": staticmethod(lambda: log.read_text(errors="replace")),
                                 "alive": staticmethod(lambda: process.poll() is None)})
    await_log(server, " ready ")


def document(name, part):
    """The block of the document that holds `part`."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```$", (REPO / "docs" / name).read_text(), re.M | re.S)
    return next(block for block in blocks if part in block)


def test_tls_as_security_has_it(folder, cold, certs, secret, network):
    network("10.0.0.7")
    block = document("security.md", "tls://10.0.0.7:7443")
    block = block.replace("/etc/unseen/cert.pem", certs["here.pem"]).replace("/etc/unseen/key.pem", certs["here.key"])
    server = cold(**{**dict(re.findall(r"(\w+) *= (.*)", block)), "requirepass_file": str(secret)})
    server.spawn()
    await_log(server, " ready ")
    ca = ("--cacert", certs["ca.pem"])
    done = run("ping", "-c", server.config)
    assert done.returncode == 0
    done = run("replica", "--status", "-c", os.devnull, "--to", "tls://10.0.0.7:7443", "--tls-ca", certs["ca.pem"],
               "--password-file", secret)
    assert done.returncode == 0
    assert status("https://10.0.0.7:7444/v1/pools", *ca, user="default:geheim") == 200
    assert asks_grpc("10.0.0.7", 7445, *ca, user="default:geheim") == 200
    assert server.stop() == 0


def test_a_pair_as_replicas_has_it(folder, network, monkeypatch):
    """The three commands, word by word but for folders and the password; and the way back of an old primary, which was
    started without a word about the other node."""
    network("10.0.0.1", "10.0.0.2")
    lines = document("replicas.md", "b$ UNSEEN_PASSWORD=").splitlines()
    monkeypatch.setenv("UNSEEN_HTTP", "none")  # one machine has both
    monkeypatch.setenv("UNSEEN_GRPC", "none")
    monkeypatch.setenv("UNSEEN_MIN_FREE", "0")
    monkeypatch.setenv("PATH", f"{UNSEEN.parent}:{os.environ['PATH']}")
    servers = {}

    def type_in(line):
        node, command = re.fullmatch(r"(\w)\$ (.*)", line).groups()
        command = command.replace("/var/lib/unseen", str(folder / node)).replace("...", "hush")
        log = folder / f"log-{node}"
        log.write_bytes(b"")
        with open(log, "ab") as out:
            process = subprocess.Popen(["sh", "-c", f"exec env {command}"], stdout=out, stderr=out)
        if " serve " in command:
            servers[node] = process
            ready(process, log)
        else:
            assert process.wait(PATIENCE) == 0, log.read_text()

    try:
        for line in lines:
            type_in(line)
        with Client(("10.0.0.1", 7979)) as a, Client(("10.0.0.2", 7979)) as b:
            for c in (a, b):
                assert c.command("AUTH", "hush") == b"OK"
            a.command("PLAYED", "u", "a")
            with pytest.raises(RespError, match="^READONLY .* 10.0.0.1:7979 takes writes"):
                b.command("PLAYED", "u", "b")
            until(lambda: b.command("SEEN", "u", "a") == [1] and
                  fields(b.command("REPLICA", "STATUS"))["follower"][1] == b"in step")
        servers["a"].kill()
        servers.pop("a").wait()
        monkeypatch.setenv("UNSEEN_PASSWORD", "hush")
        type_in("b$ unseen promote --data /var/lib/unseen")
        type_in(re.search(r"^a\$ unseen rejoin .*$", document("replicas.md", "a$ unseen rejoin"), re.MULTILINE)[0])
        type_in(next(line for line in lines if line.startswith("a$ unseen serve")))
        with Client(("10.0.0.1", 7979)) as a, Client(("10.0.0.2", 7979)) as b:
            for c in (a, b):
                assert c.command("AUTH", "hush") == b"OK"
            b.command("PLAYED", "u", "c")
            until(lambda: a.command("SEEN", "u", "c") == [1])
    finally:
        for process in servers.values():
            process.send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE) for process in servers.values()] == [0] * len(servers)


def test_a_pair_on_one_machine_as_replicas_has_it(folder, monkeypatch):
    """With the ports and the output that stand there, and nothing of the configuration of an installed package."""
    monkeypatch.setenv("PATH", f"{UNSEEN.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("UNSEEN_MIN_FREE", "0")
    steps = re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", document("replicas.md", "7311"), re.MULTILINE)
    assert len(steps) == 7 and all("-c /dev/null" in command for command, _ in steps if command.startswith("unseen "))
    servers = []
    try:
        for command, shown in steps:
            if command.endswith("&"):
                log = folder / f"log{len(servers)}"
                with open(log, "ab") as out:
                    servers.append(subprocess.Popen(command[:-1].split(), cwd=folder, stdout=out, stderr=out))
                ready(servers[-1], log)
                continue
            deadline = time.monotonic() + PATIENCE
            while True:  # a replica is some milliseconds behind
                done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
                said = re.sub(r"\(\d+ ms\)", "(3 ms)", done.stdout).strip()
                if "SEEN" not in command or said == shown.strip() or time.monotonic() > deadline:
                    break
            assert (done.returncode, said) == (0, shown.strip() or said), (command, done)
    finally:
        for process in servers:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE) for process in servers] == [0] * len(servers)


@pytest.fixture
def node(folder, cold, certs):
    """Starts one of several nodes, in a folder that may have been made by clone."""

    def make(name, **options):
        server = cold(clock=None, requirepass="hush", replica_password="hush", tls_cert=certs["here.pem"],
                      tls_key=certs["here.key"], tls_ca=certs["ca.pem"], **options)
        server.options["data"] = server.data = folder / name
        server.spawn()
        await_log(server, " ready ")
        return server

    return make


def clone(address, data, certs, monkeypatch):
    monkeypatch.setenv("UNSEEN_PASSWORD", "hush")
    run("clone", address, "-c", os.devnull, "--data", data, "--tls-ca", certs["ca.pem"])


def login(address):
    c = Client(address)
    assert c.command("AUTH", "hush") == b"OK"
    return c


def fields(reply):
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def test_who_was_told_tls_never_speaks_plain(folder, network, node, certs, monkeypatch):
    """The replica was told so by its clone alone. Then a peer of a version before this says where the next primary is."""
    network("10.0.0.1", "10.0.0.2", "10.0.0.3")
    first = node("a", listen="127.0.0.1:7001, tls://10.0.0.1:7443")
    clone("tls://10.0.0.1:7443", folder / "b", certs, monkeypatch)
    second = node("b", listen="127.0.0.1:7002, tls://10.0.0.2:7443")
    with login(("127.0.0.1", 7001)) as a, login(("127.0.0.1", 7002)) as b:
        # Each is named as others reach it, and not by the address that it has on its own machine.
        replicas = until(lambda: fields(a.command("REPLICA", "STATUS"))["replicas"])
        until(lambda: fields(fields(a.command("REPLICA", "STATUS"))["replicas"][0])["connected"])
        assert fields(replicas[0])["address"] in (b"", b"tls://10.0.0.2:7443")
        assert a.command("ROLE")[2][0][:2] == [b"10.0.0.2", b"7443"]
        assert fields(a.command("REPLICA", "STATUS"))["address"] == b"tls://10.0.0.1:7443"
        with pytest.raises(RespError, match="tls://10.0.0.1:7443 takes writes"):
            b.command("PLAYED", "u", "b")
        for address in ("0.0.0.0:1", "[::]:1", "10.0.0.3"):  # which lead nowhere, or are none
            with pytest.raises(RespError) if ":" not in address else contextlib.nullcontext():
                a.command("REPLICA", "HELLO", 3, "00000000000000ff", 1, address)
    heard = []
    listener = socket.create_server(("10.0.0.3", 7444))

    def listen():
        with contextlib.suppress(OSError):
            while True:
                conn, _ = listener.accept()
                with conn:
                    heard.append(conn.recv(4096))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert first.stop() == 0
    try:
        for _ in range(2):  # and after a restart
            with login(("127.0.0.1", 7002)) as b:
                b.command("REPLICA", "MEET", 7, "ffffffffffffffff", "10.0.0.3:7444")
                assert fields(b.command("REPLICA", "STATUS"))["leader_address"] == b"tls://10.0.0.3:7444"
                with pytest.raises(RespError, match="tls://10.0.0.3:7444 takes writes"):
                    b.command("PLAYED", "u", "b")
            until(lambda: heard)
            assert all(data.startswith(b"\x16\x03") for data in heard), heard
            heard.clear()
            assert second.stop() == 0
            second.spawn()
            until(lambda: second.log().count(" ready ") > 1)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        second.stop()


def test_no_node_is_named_by_an_address_that_leads_nowhere(folder, network, node, certs, monkeypatch):
    network("10.0.0.1", "10.0.0.2")
    done = run("check-config", "-c", os.devnull, "--listen", "0.0.0.0:7001", "--requirepass", "x", "--replica-of",
               "10.0.0.2:7979", check=False)
    assert done.returncode != 0 and b"set address in the section [replica]" in done.stderr
    first = node("a", listen="0.0.0.0:7001")  # it is not known yet that there will be others
    clone("10.0.0.1:7001", folder / "b", certs, monkeypatch)
    second = node("b", listen="[::]:7002")
    await_log(second, "can't be told how to reach this node: set address")
    with login(("127.0.0.1", 7001)) as a, login(("127.0.0.1", 7002)) as b:
        until(lambda: fields(b.command("REPLICA", "STATUS"))["follower"][1] == b"in step")
        assert fields(a.command("REPLICA", "STATUS"))["address"] == b""
        run("promote", "-c", os.devnull, "--to", "10.0.0.2:7002")
        with pytest.raises(RespError, match="READONLY .*: another node has taken over in term 2"):
            a.command("PLAYED", "u", "b")
        assert a.command("ROLE")[1] == b""
    assert "0.0.0.0" not in second.log().partition(" ready ")[2] and first.stop() == 0 and second.stop() == 0
    # With an address both are named.
    second.options["replica_address"] = "10.0.0.2:7002"
    second.spawn()
    first.spawn()
    for server in (first, second):
        until(lambda: server.log().count(" ready ") == 2)
    with login(("127.0.0.1", 7001)) as a:
        a.command("REPLICA", "MEET", 3, "ffffffffffffffff", "10.0.0.2:7002")
        with pytest.raises(RespError, match="READONLY .*: 10.0.0.2:7002 has taken over"):
            a.command("PLAYED", "u", "b")
    with login(("10.0.0.1", 7001)) as a:  # a client elsewhere, whose loopback is another one
        a.command("REPLICA", "MEET", 4, "ffffffffffffffff", "127.0.0.1:7002")
        with pytest.raises(RespError, match="READONLY .*: another node has taken over in term 4"):
            a.command("PLAYED", "u", "b")
    assert first.stop() == 0 and second.stop() == 0


def test_a_reader_as_front_has_it(folder, network, monkeypatch, secret):
    """Its Redis is not there: clients are told so, once they have logged in."""
    network("10.0.0.5")
    monkeypatch.setenv("UNSEEN_HTTP", "none")
    monkeypatch.setenv("UNSEEN_GRPC", "none")
    line = document("front.md", "--front-only --front-redis 10.0.0.5").strip()
    command = line.removeprefix("$ unseen ").replace("/etc/unseen/password", str(secret)).split()
    process = subprocess.Popen([UNSEEN, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def listens():
            assert process.poll() is None
            try:
                return Client((V4, 7979))
            except ConnectionRefusedError:
                return None

        with until(listens) as c, pytest.raises(RespError, match="^NOAUTH"):
            c.command("SEEN", "u", "a")
        with Client((V4, 7979)) as c:
            assert c.command("AUTH", "geheim") == b"OK"
            with pytest.raises(RespError, match="^LOADING"):
                c.command("SEEN", "u", "a")
    finally:
        process.kill()
        process.wait()
