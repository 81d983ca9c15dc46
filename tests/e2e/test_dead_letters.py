"""`unseen import --dead-letters`: what is mended comes in, the rest stays, and nothing is lost in between."""
import base64
import fcntl
import json
import os

import pytest

from conftest import DAY, START, run


def letter(value, offset=1, key=None, ms=START - 5000, **more):
    def pack(text):
        return None if text is None else base64.b64encode(text.encode()).decode()
    return json.dumps({"topic": "plays", "partition": 0, "offset": offset, "unix_ms": ms, "reason": "why", "key": pack(key),
                       "value": pack(value), **more}) + "\n"


def play(user, item, **more):
    return json.dumps({"user": user, "item": item, **more})


def bring(server, *words, check=True):
    done = run("import", "--dead-letters", "--json", *words, "--data", server.data, "--test-clock", START, check=check)
    return json.loads(done.stdout)


def files(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("dead-letters"))


@pytest.fixture(params=["server", "folder"])
def target(request, server):
    """What stops the server, or says where it is."""
    if request.param == "server":
        return ["--to", f"127.0.0.1:{server.port}"]
    assert server.stop() == 0
    return []


def seen(server, user, *items):
    if server.process.poll() is not None:
        server.start()
    client = server.client()
    left = client.command("FILTER", user, "ITEMS", *items)
    client.close()
    return [item for item in items if item.encode() not in left]


def test_what_is_mended_comes_in(server, target):
    path = server.data / "dead-letters.jsonl"
    path.write_text(letter(play("u", ["a", "b"]), 1) + letter('{"user":"u"}', 2) + letter(play("u", "c", time=START - 7000), 3)
                    + letter(None, 4) + "no letter\n" + letter(play("u", "late", time=START + 3 * DAY), 5)
                    + letter(play("u", "old", time=START - 900 * DAY), 6) + letter(play("u", "d"), 7, ms=0))
    said = bring(server, *target)
    assert (said["letters_taken"], said["letters_kept"], said["events"]) == (4, 4, 3)
    assert (said["malformed"], said["ahead"], said["too_old"]) == (3, 1, 1)
    assert [p["reason"] for p in said["problems"]] == [
        "item is missing", 'expected "{" at byte 1', "time is missing, and Kafka had none"]
    assert files(server.data) == ["dead-letters.1.4.jsonl"]  # what the service shows is counted by the name
    left = (server.data / "dead-letters.1.4.jsonl").read_text().splitlines()
    assert [json.loads(line)["offset"] if line[0] == "{" else line for line in left] == [2, "no letter", 5, 7]

    # The same once more takes nothing; other rules take what they can read.
    again = bring(server, *target, check=False)
    assert (again["letters_taken"], again["letters_kept"], again["events"]) == (0, 4, 0)
    (server.data / "dead-letters.1.4.jsonl").write_text("".join(line + "\n" for line in left[:1]))
    path.write_text(letter('{"item":"e"}', 9, key="u"))
    mended = bring(server, *target, "--kafka-key", "user", check=False)
    assert (mended["letters_taken"], mended["letters_kept"], mended["events"]) == (1, 1, 1)
    assert files(server.data) == ["dead-letters.1.1.jsonl"]
    assert seen(server, "u", "a", "b", "c", "d", "e", "late") == ["a", "b", "c", "e"]


def test_deliveries(server, target):
    (server.data / "dead-letters.jsonl").write_text(letter(play("u", ["x", "y"], type="delivery")))
    said = bring(server, *target, check=bool(target))
    assert (said["letters_taken"], said["letters_kept"]) == ((1, 0) if target else (0, 1))
    assert files(server.data) == ([] if target else ["dead-letters.1.1.jsonl"])
    if target:
        client = server.client()
        assert client.command("FILTER", "u", "ITEMS", "x", "y", "z") == [b"z"]
        client.close()


def test_a_file_of_its_own(server, target, tmp_path):
    mine, other = tmp_path / "edited", server.data / "dead-letters.jsonl"
    mine.write_text(letter(play("u", "a"))[:-1])  # an editor left out the newline
    other.write_text(letter(play("u", "b")))
    assert bring(server, *target, "--dry-run", str(mine))["letters_taken"] == 1
    assert bring(server, "--dry-run")["events"] == 1
    assert mine.exists() and other.exists()
    assert bring(server, *target, str(mine))["letters_taken"] == 1
    assert not mine.exists() and other.exists() and os.listdir(tmp_path).count("edited.new") == 0
    assert seen(server, "u", "a", "b") == ["a"]


def test_what_fails_leaves_them(server):
    path = server.data / "dead-letters.jsonl"
    path.write_text(letter(play("u", "a")))
    before = path.read_text()
    done = run("import", "--dead-letters", "--data", server.data, check=False)
    assert done.returncode == 1 and b"a server has the data folder" in done.stderr
    done = run("import", "--dead-letters", "--data", server.data, "--to", "127.0.0.1:1", check=False)
    assert done.returncode == 1
    done = run("import", "--dead-letters", "--data", server.data, "--to", f"127.0.0.1:{server.port}", "--kafka-format", "csv",
               check=False)
    assert done.returncode == 1 and b"kafka_user is" in done.stderr
    assert path.read_text() == before
    done = run("import", "--dead-letters", server.data / "none", "--to", f"127.0.0.1:{server.port}", check=False)
    assert done.returncode == 1 and b"No such file" in done.stderr
    for wrong in (["--strict"], ["--format", "csv"], ["-"]):
        assert run("import", "--dead-letters", *wrong, check=False).returncode == 2
    assert run("import", check=False).returncode == 2


def test_another_import_has_it(server, tmp_path):
    path = tmp_path / "letters"
    path.write_text(letter(play("u", "a")))
    with open(path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run("import", "--dead-letters", path, "--to", f"127.0.0.1:{server.port}", check=False)
    assert done.returncode == 1 and b"another import has it" in done.stderr
    new = tmp_path / "letters.new"
    new.mkdir()  # so that it can't be made
    done = run("import", "--dead-letters", path, "--to", f"127.0.0.1:{server.port}", check=False)
    assert done.returncode == 1 and b"letters.new: can't make it" in done.stderr
    new.rmdir()
    new.write_text("what a crash left\n")
    assert bring(server, path, "--to", f"127.0.0.1:{server.port}")["letters_taken"] == 1
    assert not path.exists() and not new.exists()


def test_what_the_server_refuses_stays(server):
    """A clock that is behind takes for good what the server says lies ahead."""
    path = server.data / "dead-letters.jsonl"
    path.write_text(letter(play("u", "a")) + letter(play("u", "b", time=START + 2 * DAY)))
    done = run("import", "--dead-letters", "--json", "--to", f"127.0.0.1:{server.port}", "--data", server.data, "--test-clock",
               START + 2 * DAY, check=False)
    said = json.loads(done.stdout)
    assert done.returncode == 1 and (said["refused"], said["letters_taken"], said["letters_kept"]) == (1, 0, 2)
    assert len((server.data / "dead-letters.1.2.jsonl").read_text().splitlines()) == 2


def test_nothing_to_take(server):
    said = bring(server, "--to", f"127.0.0.1:{server.port}")
    assert (said["letters_taken"], said["letters_kept"], said["events"]) == (0, 0, 0)
    assert files(server.data) == []
