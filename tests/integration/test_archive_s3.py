"""An archive in a bucket of a real server: what is recorded there, the machine burns, and is made again."""
import itertools
import json
import shutil

import pytest

from conftest import end_to_end
from s3_server import KEY, REGION, SECRET, Versity

until, run = end_to_end.until, end_to_end.run
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Versity(tmp_path_factory.mktemp("s3"))
    yield made
    made.stop()


class Archive:
    def __init__(self, place, folder, name):
        place.make_bucket(name)
        self.place, self.bucket, self.folder, self.made = place, name, folder, []
        self.url = f"s3://{name}/some prefix"
        self.keys = folder / "keys"
        self.keys.write_text(f"aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        self.key = folder / "key"
        self.key.write_bytes(b"k" * 32)
        self.key.chmod(0o600)
        self.options = {"archive_endpoint": place.endpoint, "archive_region": REGION, "archive_path_style": "yes",
                        "archive_keys_file": str(self.keys), "archive_key_file": str(self.key)}

    def words(self):
        return [word for name, value in self.options.items() for word in (f"--{name.replace('_', '-')}", value)]

    def server(self, name, **options):
        """On the real clock, as signatures are."""
        target = self.folder / name
        target.mkdir(exist_ok=True)
        self.made.append(end_to_end.Server(target, clock=None, **options))
        return self.made[-1]

    def writer(self, **options):
        return self.server("writer", archive_url=self.url, archive_rate="0", archive_every="1s", **self.options, **options)

    def verified(self):
        return json.loads(run("archive", "--verify", "--from", self.url, "--json", *self.words()).stdout)

    def restored(self, name="restored"):
        run("restore", "--from", self.url, "--data", self.folder / name / "data", *self.words())
        return self.server(name)


@pytest.fixture
def archive(place, folder):
    made = Archive(place, folder, f"bucket-{next(numbers)}")
    yield made
    for server in made.made:
        if server.alive():
            server.stop()


def fields(server):
    with server.client() as c:
        reply = c.command("ARCHIVE")
    return {k.decode(): v.decode() if isinstance(v, bytes) else v for k, v in zip(reply[::2], reply[1::2])}


def settle(server):
    def settled():
        now = fields(server)
        return now["restorable"] == 1 and now["waiting"] == 0 and now["round"] == 0 and now["state"] != "waiting"
    until(settled, lambda: f"{fields(server)}\n{server.log()}")


def play(server, *items):
    with server.client() as c:
        c.command("PLAYED", "u", *items)


def seen(server, *items):
    with server.client() as c:
        return c.command("SEEN", "u", *items)


def test_a_burnt_machine(archive):
    """With more objects than a page of the list has; those of others are left alone."""
    for n in range(1100):
        archive.place.call("PUT", f"/{archive.bucket}/some prefix/0-of-others/{n:04}", body=b"x")
    server = archive.writer()
    play(server, "a")
    settle(server)
    play(server, "b")
    settle(server)
    server.restart()
    play(server, "c")
    settle(server)
    found = archive.verified()
    assert found["problems"] == [] and found["versions"] == "none"
    server.kill()
    shutil.rmtree(server.data)
    assert seen(archive.restored(), *"abcd") == [1, 1, 1, 0]


def test_old_objects_go(archive):
    server = archive.writer()
    play(server, "a")
    settle(server)
    before = set(archive.place.names(archive.bucket))
    run("archive", "--forget-now", "--data", server.data)
    until(lambda: fields(server)["removed"] > 0 and fields(server)["round"] == 0, server.log)
    settle(server)
    after = set(archive.place.names(archive.bucket))
    assert before and not before & {name for name in after if "/base/" in name}
    assert archive.verified()["problems"] == []
    server.kill()
    assert seen(archive.restored(), "a", "b") == [1, 0]


def test_versions(archive):
    server = archive.writer()
    settle(server)
    assert archive.verified()["versions"] == "none"
    archive.place.keep_versions(archive.bucket, "Enabled")
    assert archive.verified()["versions"] == "kept"
    archive.place.keep_versions(archive.bucket, "Suspended")
    assert archive.verified()["versions"] == "suspended"


@pytest.mark.parametrize("wrong, says", [("key", "InvalidAccessKeyId"), ("secret", "SignatureDoesNotMatch"),
                                         ("bucket", "NoSuchBucket"), ("clock", "clock")])
def test_what_is_wrong_is_named(archive, wrong, says):
    if wrong == "bucket":
        archive.url = "s3://no-such-bucket/x"
    elif wrong != "clock":
        archive.keys.write_text(f"aws_access_key_id = {'AKIAOTHER' if wrong == 'key' else KEY}\n"
                                f"aws_secret_access_key = {'other' if wrong == 'secret' else SECRET}\n")
    clock = ["--test-clock", end_to_end.START] if wrong == "clock" else []
    done = run("archive", "--list", "--from", archive.url, *archive.words(), *clock, check=False)
    assert done.returncode == 1 and says in done.stderr.decode(), done.stderr
