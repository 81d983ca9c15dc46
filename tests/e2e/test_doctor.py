"""unseen doctor: what it finds on a machine, in a folder, of a server; and that it leaves nothing behind."""
import json
import os
import socket
import stat

import pytest

from conftest import run
from test_tls import HERE, certs  # noqa: F401: a fixture

QUIET = ["--listen", "127.0.0.1:0", "--http", "none", "--grpc", "none"]


def doctor(*words, **kwargs):
    """(exit code, its findings)"""
    done = run("doctor", "--json", *words, check=False, **kwargs)
    told = json.loads(done.stdout)
    assert told["wrong"] == sum(f["state"] == "wrong" for f in told["findings"])
    assert told["warnings"] == sum(f["state"] == "warning" for f in told["findings"])
    assert done.returncode == (1 if told["wrong"] else 0), done
    return done.returncode, told["findings"]


def of(findings, about, state=None):
    return [f for f in findings if f["about"] == about and state in (None, f["state"])]


def test_before_the_first_start(folder):
    code, findings = doctor("--data", folder / "a" / "b", *QUIET)
    assert code == 0 and os.listdir(folder) == []
    assert "serve makes it" in of(findings, "folder", "good")[0]["text"]
    assert of(findings, "ports", "good") and of(findings, "server", "note")
    text = run("doctor", "--data", folder / "a" / "b", *QUIET).stdout.decode()
    assert all(f["state"] in text and f["about"] in text for f in findings)


def test_a_server(make_server):
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "u", "i")
    before = sorted(os.listdir(server.data))
    code, findings = doctor("-c", server.folder / "unseen.conf", "--data", server.data)
    assert code == 0 and sorted(os.listdir(server.data)) == before
    assert f":{server.port} answers" in of(findings, "server", "good")[0]["text"]
    assert not of(findings, "ports")  # its own
    assert of(findings, "open files", "good") and of(findings, "folder", "good")


def test_a_server_that_takes_no_plays(make_server):
    server = make_server(min_free="16TiB")
    server.advance(60 * 1000)
    code, findings = doctor("-c", server.folder / "unseen.conf", "--data", server.data)
    assert code == 1
    assert "min_free" in of(findings, "server", "wrong")[0]["text"]
    assert "16.0 TiB" in of(findings, "room", "wrong")[0]["text"]


def test_a_server_that_wants_a_password(make_server):
    server = make_server(requirepass="sesame")
    code, findings = doctor("--data", server.data)
    assert code == 0 and "UNSEEN_PASSWORD" in of(findings, "server", "note")[0]["advice"]
    code, findings = doctor("--data", server.data, env={**os.environ, "UNSEEN_PASSWORD": "sesame"})
    assert code == 0 and of(findings, "server", "good")


def test_a_clock_that_is_doubted(make_server):
    server = make_server()
    with server.client() as c:
        c.command("PLAYED", "u", "i")
        c.command("DEBUG", "JUMP", 60 * 86400 * 1000)
    server.advance(1000)
    code, findings = doctor("-c", server.folder / "unseen.conf", "--data", server.data)
    assert code == 1 and "doubts it: the clock is" in of(findings, "clock", "wrong")[0]["text"]


def test_a_configuration_that_is_wrong(folder):
    (folder / "bad.conf").write_text("retentoin = 12\nslots = 1\n")
    code, findings = doctor("-c", folder / "bad.conf")
    assert code == 1 and [f["state"] for f in findings] == ["wrong", "wrong"]
    assert "bad.conf:1" in findings[0]["text"] and "bad.conf:2" in findings[1]["text"]


def test_a_port_that_another_has(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, findings = doctor("--data", folder / "d", *QUIET[2:], "--listen", f"127.0.0.1:{port}")
    assert code == 1 and str(port) in of(findings, "ports", "wrong")[0]["text"]
    code, findings = doctor("--data", folder / "d", *QUIET[2:], "--listen", f"127.0.0.1:{port}")
    assert code == 0, "it has left the port"


def test_where_the_folder_is(folder):
    (folder / "file").write_text("")
    assert doctor("--data", folder / "file", *QUIET)[0] == 1
    (folder / "open").mkdir()
    os.chmod(folder / "open", 0o755)
    assert "every user" in of(doctor("--data", folder / "open", *QUIET)[1], "folder", "warning")[0]["text"]
    code, findings = doctor("--data", folder / "gone", "--expect-data", "yes", *QUIET)
    assert code == 1 and "mounted" in of(findings, "folder", "wrong")[0]["text"]


def test_memory_is_no_disk():
    if not os.path.isdir("/dev/shm") or os.statvfs("/dev/shm").f_flag & os.ST_RDONLY:
        pytest.skip("not here: /dev/shm")
    findings = doctor("--data", "/dev/shm/unseen-doctor-is-not-there", *QUIET)[1]
    assert "at the next boot all is gone" in of(findings, "file system", "warning")[0]["text"]
    assert not os.path.exists("/dev/shm/unseen-doctor-is-not-there")


def test_a_file_of_another_user(make_server):
    if os.geteuid() != 0:
        pytest.skip("not here: root")
    server = make_server()
    server.stop()
    os.chown(server.data, 1, 1)
    for name in os.listdir(server.data):
        os.chown(server.data / name, 1, 1)
    assert not of(doctor("--data", server.data, *QUIET)[1], "owners")
    os.chown(server.data / "history.db", 0, 0)
    code, findings = doctor("--data", server.data, *QUIET)
    assert code == 1 and "history.db belongs to root" in of(findings, "owners", "wrong")[0]["text"]


def test_who_can_read_a_password(folder):
    conf = folder / "unseen.conf"
    conf.write_text("requirepass = sesame\n")
    os.chmod(conf, 0o644)
    findings = doctor("-c", conf, "--data", folder / "d", *QUIET)[1]
    assert str(conf) in of(findings, "secrets", "warning")[0]["text"]
    os.chmod(conf, 0o640)
    assert not of(doctor("-c", conf, "--data", folder / "d", *QUIET)[1], "secrets")


@pytest.mark.parametrize("days, state", [(-1, "wrong"), (5, "warning"), (30, "good")])
def test_a_certificate(folder, certs, days, state):  # noqa: F811
    name = f"doctor{days}"
    certs.sign(name, "ca", HERE, days)
    words = ["--data", folder / "d", *QUIET, "--tls-cert", certs[name + ".pem"], "--tls-key", certs[name + ".key"]]
    assert of(doctor(*words)[1], "certificate", state)


def test_a_bundle(make_server, folder):
    server = make_server(requirepass="sesame-open")
    with server.client() as c:
        c.command("AUTH", "sesame-open")
        c.command("PLAYED", "user-who-watches", "item-watched")
        c.command("FILTER", "user-who-watches", "ITEMS", "item-watched")
    out = folder / "report.json"
    words = ["doctor", "-c", server.folder / "unseen.conf", "--data", server.data, "--bundle", out]
    run(*words)
    text = out.read_text()
    told = json.loads(text)
    assert stat.S_IMODE(os.stat(out).st_mode) == 0o600
    assert {"versions", "machine", "findings", "options", "info"} <= set(told)
    assert any(line.startswith("unseen_version:") for line in told["info"])
    assert told["options"]["requirepass"]["value"] == "********"
    assert not any(word in text for word in ("sesame-open", "user-who-watches", "item-watched"))
    again = run(*words, check=False)
    assert again.returncode == 1 and str(out) in again.stderr.decode() and out.read_text() == text
