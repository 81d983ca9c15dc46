"""An archive in a bucket, whose server loses answers, refuses, tears connections, is full, and lists late."""
import json
import shutil

import pytest

from bucket import KEY, REGION, SECRET, bucket
from conftest import HOUR, Server, run, until
from test_archive import EVERY, archive_all, look, seen

URL = "s3://bucket/some/prefix"


@pytest.fixture
def place():
    with bucket() as b:
        yield b


def bucket_options(place, folder):
    keys = folder / "keys"
    keys.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key={SECRET}\n")
    return {"archive_url": URL, "archive_endpoint": place.endpoint, "archive_region": REGION,
            "archive_path_style": "yes", "archive_keys_file": str(keys), "archive_rate": "0"}


@pytest.fixture
def options(place, folder):
    return bucket_options(place, folder)


def words(options):
    return [word for name, value in options.items() if name not in ("archive_url", "archive_rate")
            for word in ("--" + name.replace("_", "-"), value)]


def restored(options, folder, clock, *args):
    target = folder / "restored"
    target.mkdir()
    run("restore", "--from", URL, "--data", target / "data", "--test-clock", clock, *words(options), *args)
    return Server(target, clock=clock)


def burn(server):
    server.kill()
    shutil.rmtree(server.data)


def test_a_bucket(make_server, options, folder, place):
    server = make_server(**options)
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    for item in "bcdefghijk":  # more objects than a page of the list
        archive_all(server)
        with server.client() as c:
            c.command("PLAYED", "u", item)
    archive_all(server)
    assert all(name.startswith("some/prefix/") for name in place.objects)
    server.restart()
    with server.client() as c:
        c.command("PLAYED", "u", "l")
    archive_all(server)
    assert run("archive", "--verify", "--from", URL, *words(options)).returncode == 0
    burn(server)
    again = restored(options, folder, server.clock)
    try:
        assert seen(again, "u", *"abcdefghijklm") == [1] * 12 + [0]
    finally:
        again.stop()


@pytest.mark.parametrize("what", ["lose", "tear", "refuse", "full", "skewed"])
def test_faults(make_server, options, folder, place, what):
    """Nothing is passed that is not there, and what is there twice is there once."""
    server = make_server(**options)
    archive_all(server)
    place.fault(what, times=2)
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        server.advance(EVERY)
        now = look(server)
        assert now["errors"] == 1 and now["state"] == "waiting", (now, server.log())
        assert ("clock" in now["cause"]) == (what == "skewed")
        server.advance(1000)  # the first delay; libcurl itself tries once more where an old connection has ended
        now = look(server)
        assert now["errors"] == 2 or now["waiting"] == 0, (now, server.log())
        server.advance(2000)
    archive_all(server)
    burn(server)
    again = restored(options, folder, server.clock)
    try:
        assert seen(again, "u", "a", "b") == [1, 0]
    finally:
        again.stop()


def test_a_list_that_comes_late(make_server, options, folder, place):
    """A start doesn't see what was written last: it writes under other names, and nothing is overwritten."""
    server = make_server(**options)
    archive_all(server)
    place.late = True
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    archive_all(server)
    written = dict(place.objects)
    server.restart()
    with server.client() as c:
        c.command("PLAYED", "u", "b")
    place.late = False
    server.advance(EVERY)
    now = look(server)
    assert now["waiting"] == 0 and now["state"] != "waiting", (now, server.log())
    archive_all(server)
    place.hidden.clear()
    assert all(place.objects.get(name, body) == body for name, body in written.items())
    burn(server)
    again = restored(options, folder, server.clock)
    try:
        assert seen(again, "u", "a", "b") == [1, 1]
    finally:
        again.stop()


@pytest.mark.parametrize("encrypted", [False, True])
def test_old_objects_go(make_server, options, folder, place, encrypted):
    """By their age, one request each; a moment of the last `keep` can be had from what is left."""
    if encrypted:
        options["archive_key_file"] = str(folder / "key")
        (folder / "key").write_bytes(b"k" * 32)
        (folder / "key").chmod(0o600)
    server = make_server(**options, archive_keep="2h", archive_rounds="1h")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    archive_all(server)
    first = set(place.objects)
    for _ in range(6):
        server.advance(HOUR)
        archive_all(server)
    deleted = [name for method, name in place.requests if method == "DELETE"]
    assert first and first <= set(deleted) and not first & set(place.objects)
    assert len(set(deleted)) == len(deleted) == look(server)["removed"]
    burn(server)
    again = restored(options, folder, server.clock, "--at", str(server.clock - 2 * HOUR))
    try:
        assert seen(again, "u", "a", "b") == [1, 0]
    finally:
        again.stop()


# --- a round that is interrupted ---

USERS = 3000  # of two parts and an end; more of them: tests/unit/test_archive_round.c


def sent(place):
    """Of the round's PUTs: node and round, and the number of each part, or "end"."""
    names = [name.split("/") for method, name in place.requests if method == "PUT" and "/base/" in name]
    return [("/".join(words[-4:-1]), words[-1].split("-")[0]) for words in names]


@pytest.fixture
def many(make_server, options, folder):
    """A server with so many users, which archives from its next start on."""
    server = make_server(archive_rate="0")
    server.stop()
    trace = folder / "trace.tsv"
    trace.write_text("".join(f"{server.clock - 1000}\told{i}\ta{i}\n" for i in range(USERS)))
    run("import", trace, "--data", server.data, "--test-clock", server.clock)
    server.options |= options
    return server


def interrupted(server, place, after):
    """Started, and killed once so many of the round's PUTs have gone through, behind which the bucket refuses."""
    place.fault("refuse", times=1000000, part="/base/", after=after)
    server.start()
    until(lambda: len(sent(place)) > after, server.log)
    server.kill()
    place.faults.clear()
    done = sent(place)[:after]
    place.requests.clear()
    return done


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_round_goes_on(many, options, folder, place, after):
    """What was sent is not sent again. Users who came or were forgotten meanwhile are as they were left."""
    done = interrupted(many, place, after)
    many.start()
    with many.client() as c:
        for user in range(0, USERS, USERS // 50):
            c.command("PLAYED", f"old{user}", "later")
            c.command("FORGET", f"old{user + 1}")
    assert archive_all(many)["rounds"] == 1
    again = sent(place)
    assert len(set(done + again)) == len(done + again) and again[-1][1] == "end", (done, again)
    assert after == 0 or len({number for number, _ in done + again}) == 1
    assert len(done + again) == 3
    burn(many)
    found = restored(options, folder, many.clock)
    try:
        for user in range(0, USERS, USERS // 50):
            assert seen(found, f"old{user}", f"a{user}", "later", "b") == [1, 1, 0]
            assert seen(found, f"old{user + 1}", f"a{user + 1}") == [0]
            assert seen(found, f"old{user + 2}", f"a{user + 2}", "b") == [1, 0]
    finally:
        found.stop()


def test_a_round_goes_on_where_a_list_came_late(many, options, folder, place):
    """A part lies there twice then, each as of another moment: the round's end names one."""
    place.fault("refuse", times=1000000, part="/base/", after=2)
    many.start()
    until(lambda: len(sent(place)) > 2, many.log)
    many.kill()
    place.faults.clear()
    last = [name for method, name in place.requests if method == "PUT" and "/base/" in name][1]
    place.hidden.add(last)
    many.start()
    with many.client() as c:
        c.command("PLAYED", "new", "a")
    archive_all(many)
    place.hidden.clear()
    burn(many)
    found = restored(options, folder, many.clock)
    try:
        assert seen(found, "new", "a", "b") == [1, 0] and seen(found, "old7", "a7", "b") == [1, 0]
    finally:
        found.stop()


def test_a_folder_that_went_back_begins_its_round_again(many, options, folder, place):
    """The parts that lie there know more than it does."""
    shutil.copytree(many.data, folder / "before")
    done = interrupted(many, place, 2)
    shutil.rmtree(many.data)
    shutil.copytree(folder / "before", many.data)
    many.start()
    archive_all(many)
    assert not {number for number, _ in done} & {number for number, _ in sent(place)}
    burn(many)
    found = restored(options, folder, many.clock)
    try:
        assert seen(found, "old7", "a7", "b") == [1, 0]
    finally:
        found.stop()


def test_wrong_keys(make_server, options, folder):
    (folder / "keys").write_text(f"aws_access_key_id = {KEY}\naws_secret_access_key = wrong\n")
    server = make_server(**options)
    with server.client() as c:
        now = look(server)
        assert now["state"] == "waiting" and "SignatureDoesNotMatch" in now["cause"], (now, server.log())
        (folder / "keys").write_text(f"aws_access_key_id = {KEY}\n")
        server.advance(EVERY)
        now = look(server)
        assert "no keys for the bucket" in now["cause"] or now["errors"] > 1, (now, server.log())
        assert c.command("PLAYED", "u", "a") == 1


@pytest.mark.parametrize("status, word, says", [
    ("", "none", ""), ("Enabled", "kept", "the bucket keeps versions"), ("Suspended", "suspended", "kept versions once"),
    (None, "unknown", "is not known: the bucket bucket at 127.0.0.1")])
def test_versions(make_server, options, place, status, word, says):
    """What is deleted stays there, which --verify says; it asks for a right that the server needs not have."""
    server = make_server(**options)
    archive_all(server)
    place.versions = status
    asked = ["archive", "--verify", "--from", URL, *words(options)]

    def verify(*args):
        if status is None:
            place.refuses = "versioning="
        return run(*asked, *args)

    assert json.loads(verify("--json").stdout)["versions"] == word
    printed = verify().stdout.decode()
    assert says in printed and ("version" in printed) == bool(says)
