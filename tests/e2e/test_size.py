"""unseen size: what it reckons, beside a folder that is really filled."""
import json

import pytest

from conftest import START, run

USERS = 1500


def size(*words):
    return json.loads(run("size", "--json", *words).stdout)


@pytest.mark.parametrize("plays", [3, 30, 300])
def test_it_is_what_a_folder_takes(folder, plays):
    users = USERS if plays < 300 else USERS // 5
    rows = [f"{START - 1000 * i}\tuser:{u:07}\titem:{u}:{i}\n" for u in range(users) for i in range(plays)]
    (folder / "plays.tsv").write_text("".join(rows))
    run("import", folder / "plays.tsv", "--data", folder / "data", "--test-clock", START, "--min-free", "0")
    months = json.loads(run("months", "--data", folder / "data", "--json", "--test-clock", START).stdout)
    months = months["months"] if isinstance(months, dict) else months
    assert sum(m["plays"] for m in months) == pytest.approx(users * plays, rel=0.001)  # two plays may share a bit
    told = size("--users", users, "--plays-a-month", plays, "--id-bytes", 12)
    assert months[0]["bytes"] / users == pytest.approx(told["live_month_bytes"], rel=0.05)


def test_more_of_anything_takes_more():
    base = size("--users", "1M", "--plays-a-month", 100)
    for words, larger in [(["--users", "2M", "--plays-a-month", 100], "history_bytes"),
                          (["--users", "1M", "--plays-a-month", 200], "history_bytes"),
                          (["--users", "1M", "--plays-a-month", 100, "--retention", 12], "history_bytes"),
                          (["--users", "1M", "--plays-a-month", 100, "--error-rate", "0.0001"], "sealed_month_bytes"),
                          (["--users", "1M", "--plays-a-month", 100, "--id-bytes", 40], "replica_bytes_a_second"),
                          (["--users", "1M", "--plays-a-month", 100, "--slot-length", "12h"], "staging_memory_bytes"),
                          (["--users", "1M", "--plays-a-month", 100, "--questions", "1k"], "processors")]:
        assert size(*words)[larger] > base[larger], words
    assert base["disk_bytes"] > base["history_bytes"] > 1e6 * 7 * base["sealed_month_bytes"]


def test_it_says_how(folder):
    text = run("size", "--users", "50M", "--plays-a-month", "3000").stdout.decode()
    assert "57,870/s" in text and "sealed months" in text and "staging_memory is 256.0 MiB" in text
    assert "staging_memory is" not in run("size", "--users", "1000", "--plays-a-month", "30").stdout.decode()


@pytest.mark.parametrize("words, said", [
    (["--users", "1M"], "--plays-a-month"),
    (["--users", "many", "--plays-a-month", "3"], "--users is 'many'"),
    (["--users", "5x", "--plays-a-month", "3"], "--users is '5x'"),
    (["--users", "nan", "--plays-a-month", "3"], "--users is 'nan'"),
    (["--users", "0", "--plays-a-month", "3"], "from 1 to"),
    (["--users", "1M", "--plays-a-month", "2M"], "1 to 1000000"),
    (["--users", "1M", "--plays-a-month", "3", "--id-bytes", "256"], "1 to 255"),
])
def test_what_it_does_not_take(words, said):
    done = run("size", *words, check=False)
    assert done.returncode == 2 and said in done.stderr.decode() and done.stdout == b""
