"""An archive that is encrypted: what lies there says nothing, and is read with the right key alone."""
import json
import shutil

import pytest

from bucket import bucket
from conftest import HOUR, Server, run, until
from test_archive import EVERY, archive_all, burn, fields, make, objects, restore, seen, unpacked, url  # noqa: F401
from test_archive_bucket import URL, bucket_options, words


def write_key(path, byte):
    path.write_bytes(bytes([byte]) * 32)
    path.chmod(0o600)
    return path


@pytest.fixture
def key(folder):
    return write_key(folder / "key", 1)


@pytest.fixture
def other(folder):
    return write_key(folder / "other", 2)


def with_keys(now=None, old=None):
    return [*(["--archive-key-file", now] if now else []), *(["--archive-old-key-file", old] if old else [])]


def change_keys(server, now="", old=""):
    server.options |= {"archive_key_file": str(now), "archive_old_key_file": str(old)}
    server.restart()


class Restored:
    def __init__(self, url, folder, clock, *args):
        self.target = folder / "restored"
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir()
        restore(url, self.target, clock, *args)
        self.clock = clock

    def __enter__(self):
        self.server = Server(self.target, clock=self.clock)
        return self.server

    def __exit__(self, *exc):
        self.server.stop()


def refused(url, folder, clock, *args):
    """Why."""
    target = folder / "refused"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    done = restore(url, target, clock, *args, check=False)
    assert done.returncode == 1
    return done.stderr.decode()


def problems(url, *args):
    return json.loads(run("archive", "--verify", "--from", url, "--json", *args, check=False).stdout)["problems"]


def rows(url, *args):
    return json.loads(run("archive", "--list", "--from", url, "--json", *args).stdout)


def test_right_wrong_and_no_key(make, url, folder, key, other):  # noqa: F811
    server = make(archive_key_file=str(key))
    with server.client() as c:
        c.command("PLAYED", "somebody-in-particular", *"ab")
    archive_all(server)
    with server.client() as c:
        c.command("PLAYED", "somebody-in-particular", "c")
    assert archive_all(server)["rounds"] == 1
    server.restart()  # with the same key no other round is needed
    assert archive_all(server)["rounds"] == 0
    written = objects(folder, "seg") + objects(folder, "base")
    assert not any(b"somebody" in path.read_bytes() for path in written)
    with pytest.raises(AssertionError):  # behind the head there is no frame of zstd
        assert any(b"somebody" in unpacked(path) for path in written)
    burn(server)
    end = next(path.relative_to(folder / "archive") for path in written if path.name == "end")
    for args, cause in ((with_keys(other), "is encrypted with another key than that of archive_key_file"),
                        ([], "is encrypted: name the file of its key in archive_key_file")):
        assert f"{end} {cause}" in refused(url, folder, server.clock, *args)
        assert not (folder / "refused" / "data").exists()
        assert len(problems(url, *args)) == 1 and cause in problems(url, *args)[0]
        listed = run("archive", "--list", "--from", url, *args, check=False)
        assert listed.returncode == 1 and cause in listed.stderr.decode()
    assert problems(url, *with_keys(key)) == [] and len(rows(url, *with_keys(key))) == 1
    with Restored(url, folder, server.clock, *with_keys(key)) as again:
        assert seen(again, "somebody-in-particular", *"abcd") == [1, 1, 1, 0]


def test_a_bucket(make_server, folder, key, other):
    with bucket() as place:
        options = bucket_options(place, folder)
        server = make_server(**options, archive_key_file=str(key))
        with server.client() as c:
            c.command("PLAYED", "somebody-in-particular", "a")
        archive_all(server)
        assert not any(b"somebody" in body for body in place.objects.values())
        burn(server)
        assert "another key" in refused(URL, folder, server.clock, *words(options), *with_keys(other))
        with Restored(URL, folder, server.clock, *words(options), *with_keys(key)) as again:
            assert seen(again, "somebody-in-particular", "a", "b") == [1, 0]


def test_objects_that_change_places(make, url, folder, key):  # noqa: F811
    """Each is whole, and says so, but lies under another's name."""
    server = make(archive_key_file=str(key))
    archive_all(server)
    for item in "ab":
        with server.client() as c:
            c.command("PLAYED", "u", item)
        archive_all(server)
    burn(server)
    first, second = objects(folder, "seg")[-2:]
    contents = first.read_bytes(), second.read_bytes()
    first.unlink()
    second.unlink()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    found = problems(url, *with_keys(key))
    assert len(found) == 2 and all("is not what was written under that name" in problem for problem in found)


def test_a_key_that_is_put_in_later(make, url, folder, key):  # noqa: F811
    """A round begins at once, and from its end on the new key alone restores. Moments before are had back without it, or
    with both, which knows of forgets since."""
    server = make()
    with server.client() as c:
        c.command("PLAYED", "u", "plain")
        c.command("PLAYED", "gone", "a")
    archive_all(server)
    before = server.clock
    server.advance(1000)
    change_keys(server, key)
    with server.client() as c:
        c.command("PLAYED", "u", "hidden")
        c.command("FORGET", "gone")
    assert archive_all(server)["rounds"] == 1
    server.advance(1000)
    burn(server)
    both = with_keys(key, "none")
    assert all("is not encrypted" in problem for problem in problems(url, *with_keys(key)))
    assert problems(url, *both) == [] and len(rows(url, *both)) == 2
    assert len(rows(url, *with_keys(key))) == 1 and len(rows(url)) == 1
    with Restored(url, folder, server.clock, *with_keys(key)) as again:
        assert seen(again, "u", "plain", "hidden") == [1, 1] and seen(again, "gone", "a") == [0]
    assert "is encrypted: name" in refused(url, folder, server.clock)
    at = ["--at", str(before)]
    assert "is not encrypted" in refused(url, folder, server.clock, *with_keys(key), *at)
    assert "--undo-forgets" in refused(url, folder, server.clock, *at)
    with Restored(url, folder, server.clock, *both, *at) as again:
        assert seen(again, "u", "plain", "hidden") == [1, 0] and seen(again, "gone", "a") == [0]
    with Restored(url, folder, server.clock, *at, "--undo-forgets") as again:
        assert seen(again, "u", "plain", "hidden") == [1, 0] and seen(again, "gone", "a") == [1]


def test_a_key_that_is_changed_and_changed_back(make, url, folder, key, other):  # noqa: F811
    """Whichever key is configured now restores all by itself, also when an earlier round of the same key is there."""
    server = make(archive_key_file=str(key))
    for n, now in enumerate((key, other, key)):
        change_keys(server, now)
        with server.client() as c:
            c.command("PLAYED", "u", f"i{n}")
        archive_all(server)
        server.advance(HOUR // 60)
    burn(server)
    with Restored(url, folder, server.clock, *with_keys(key)) as again:
        assert seen(again, "u", "i0", "i1", "i2") == [1, 1, 1]
    assert "another key" in refused(url, folder, server.clock, *with_keys(other))
    assert problems(url, *with_keys(key, other)) == []


def test_a_changed_key_before_its_round_has_ended(make, url, folder, key, other):  # noqa: F811
    """Until then both keys are needed, and the server says that it is not restorable yet."""
    server = make(archive_key_file=str(key))
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    archive_all(server)
    server.options["archive_rate"] = "1"  # so the round waits behind its first part
    change_keys(server, other)
    with server.client() as c:
        c.command("PLAYED", "u", "b")
        server.advance(EVERY)
        until(lambda: fields(c)["waiting"] == 0 and fields(c)["round"] != 0, server.log)
        assert fields(c)["state"] == "not restorable yet" and fields(c)["restorable"] == 0
    burn(server)
    assert "another key" in refused(url, folder, server.clock, *with_keys(other))
    assert "another key" in refused(url, folder, server.clock, *with_keys(key))
    with Restored(url, folder, server.clock, *with_keys(other, key)) as again:
        assert seen(again, "u", "a", "b", "c") == [1, 1, 0]


@pytest.mark.parametrize("what", ["none", "short", "long", "open"])
def test_files_that_are_no_key(folder, url, what):  # noqa: F811
    path = folder / "bad"
    cause = {"none": "can't read archive_key_file", "short": "has 31 bytes, expected 32",
             "long": "bytes, expected 32", "open": "may be read or written by others"}[what]
    if what != "none":
        path.write_bytes(b"k" * {"short": 31, "long": 33, "open": 32}[what])
        path.chmod(0o644 if what == "open" else 0o600)
    options = ["--archive-url", url, *with_keys(path)]
    served = run("serve", "--data", folder / "data", "--listen", "none", "--http", "none", "--grpc", "none",
                 "--unix-socket", folder / "s", *options, check=False)
    assert served.returncode not in (0, None) and cause in served.stderr.decode()
    checked = run("check-config", *options, check=False)
    assert checked.returncode == 1 and cause in checked.stderr.decode()
    listed = run("archive", "--list", *options, check=False)
    assert listed.returncode == 1 and cause in listed.stderr.decode()
