"""The real trace, imported and replayed, against an oracle: a plain set of what was played when."""
import collections
import datetime
import gzip
import random
import re

import pytest

from conftest import HOUR, Server, run
from resp import encode

WINDOW = 3
MAX_HIDDEN = 1e-5  # of the unplayed, with live filters
ERROR_RATE = 1e-3  # with sealed ones


def month_of(ms):
    t = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return t.year * 12 + t.month - 1


@pytest.fixture(scope="module")
def events(trace_path):
    with gzip.open(trace_path, "rt") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    return [(int(at), user, item) for at, user, item in rows]


class Catalogue:
    """All items, shuffled, each with its bytes on the wire, so that ten million candidates are quickly put together."""

    def __init__(self, events):
        self.items = sorted({item for _, _, item in events})
        random.Random(1).shuffle(self.items)
        self.wire = {item: b"$%d\r\n%s\r\n" % (len(item), item.encode()) for item in self.items}
        self.next = 0

    def sample(self, n):
        if self.next + n > len(self.items):
            self.next = 0
        self.next += n
        return self.items[self.next - n:self.next]

    def question(self, user, candidates):
        head = encode("FILTER", user, "REPLY", "BITMAP", "ITEMS")
        return b"*%d" % (5 + len(candidates)) + head[2:] + b"".join(self.wire[c] for c in candidates)


class Tally:
    def __init__(self):
        self.lost = []
        self.played = self.unplayed = self.hidden = 0


def compare(client, catalogue, played, users, per_user, tally):
    """Asks for each user about everything played in the window and per_user other items. played: user -> set."""
    todo = []

    def drain():
        client.send(b"".join(catalogue.question(user, items + others) for user, items, others in todo))
        for user, items, others in todo:
            bitmap = client.read()
            n = len(items) + len(others)
            assert isinstance(bitmap, bytes) and len(bitmap) == (n + 7) // 8, bitmap
            bits = int.from_bytes(bitmap, "big") >> (8 * len(bitmap) - n)
            seen_part = bits >> len(others)
            if seen_part:
                tally.lost.append((user, [i for k, i in enumerate(items) if seen_part >> (len(items) - 1 - k) & 1]))
            tally.played += len(items)
            tally.unplayed += len(others)
            tally.hidden += len(others) - bin(bits & ((1 << len(others)) - 1)).count("1")
        todo.clear()

    for user in users:
        mine = played.get(user, set())
        others = [c for c in catalogue.sample(per_user) if c not in mine]
        todo.append((user, list(mine), others))
        if len(todo) == 20:
            drain()
    drain()


@pytest.mark.slow
def test_import_against_the_oracle(events, trace_path, folder):
    end = events[-1][0] + HOUR
    (folder / "own").mkdir()
    server = Server(folder / "own", clock=end, wait=False, retention="12", sweep_window="12:00-13:00")  # live filters
    server.write_config()
    done = run("import", "-c", server.config, "--test-clock", end, trace_path)
    text = re.sub(r"(?<=\d)[ ,'_](?=\d{3})", "", (done.stdout + done.stderr).decode())
    distinct = len({(user, item) for _, user, item in events})
    for figure in (len(events), len({u for _, u, _ in events}), len({i for _, _, i in events})):
        assert str(figure) in text, text
    assert distinct <= len(events)
    last = month_of(end)
    played = collections.defaultdict(set)
    for at, user, item in events:
        if month_of(at) >= last - WINDOW:
            played[user].add(item)
    users = sorted({user for _, user, _ in events})
    catalogue, tally = Catalogue(events), Tally()
    server.start()
    try:
        with server.client() as c:
            compare(c, catalogue, played, users, 500, tally)
            months = c.command("MONTHS")
            assert len(months) == len({month_of(at) for at, _, _ in events})
        assert tally.lost == []
        assert tally.unplayed > 10 ** 7
        assert tally.hidden <= MAX_HIDDEN * tally.unplayed
        assert server.sqlite("history.db", "SELECT sum(plays) FROM months") == str(
            len({(user, item, month_of(at)) for at, user, item in events}))
        assert server.stop() == 0
        # The same file again changes nothing.
        before = server.sqlite("history.db", "SELECT * FROM months")
        run("import", "-c", server.config, "--test-clock", end, trace_path)
        assert server.sqlite("history.db", "SELECT * FROM months") == before
        check = run("check", "--data", server.data)
        assert check.returncode == 0
    finally:
        if server.alive():
            server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("nights", ["no nights", "nights"])
def test_replay_against_the_oracle(events, folder, nights):
    """The trace over RESP in its own time: the clock moves through nine months, with kills and restarts on the way. Once
    without nights, so that all filters stay live; once with them, so that months are sealed and swept."""
    step = 6 * HOUR
    live = nights == "no nights"
    server = Server(folder, clock=events[0][0] // step * step, timezone="UTC",
                    sweep_window="03:33-03:34" if live else "00:00-05:00")
    rng = random.Random(2)
    catalogue, tally = Catalogue(events), Tally()
    by_month = collections.defaultdict(lambda: collections.defaultdict(set))  # month: user: items

    def window():
        now, played = month_of(server.clock), collections.defaultdict(set)
        for month, users in by_month.items():
            if month >= now - WINDOW:
                for user, items in users.items():
                    played[user] |= items
        return played

    groups = collections.OrderedDict()
    for at, user, item in events:
        groups.setdefault(at // step * step, []).append((user, item))
    client = server.client()
    try:
        for start, plays in groups.items():
            if start > server.clock:
                month = month_of(server.clock)
                client.command("DEBUG", "ADVANCE", start - server.clock)
                server.clock = start
                if month_of(start) != month:
                    played = window()
                    compare(client, catalogue, played, rng.sample(sorted(played), min(1500, len(played))), 50, tally)
                    assert tally.lost == []
                    client.close()
                    if month % 2:
                        server.kill()
                    else:
                        assert server.stop() == 0, server.log()[-5000:]
                    server.start()
                    client = server.client()
                    compare(client, catalogue, played, rng.sample(sorted(played), min(500, len(played))), 50, tally)
            answers = client.pipeline([("PLAYED", user, item) for user, item in plays])
            assert answers == [1] * len(plays), answers
            for user, item in plays:
                by_month[month_of(server.clock)][user].add(item)
            users = {user for user, _ in rng.sample(plays, min(3, len(plays)))}
            now = month_of(server.clock)
            some = {user: set().union(*(by_month[m].get(user, ()) for m in list(by_month) if m >= now - WINDOW))
                    for user in users}
            compare(client, catalogue, some, users, 50, tally)
            assert tally.lost == [], (server.clock, tally.lost)
        played = window()
        users = sorted({user for _, user, _ in events})
        compare(client, catalogue, played, users, 100, tally)
        assert tally.lost == []
        assert tally.hidden <= (MAX_HIDDEN if live else ERROR_RATE) * tally.unplayed
        assert tally.unplayed > 10 ** 6 and tally.played > 100000
        report = server.sqlite("history.db", "SELECT month, state FROM month_report").split("\n")
        assert report[0].startswith("2013-11|")
        if live:
            assert all(line.endswith("|live") for line in report), report
        else:
            # What retention has ended for is gone: February to April, in November.
            assert any(line.endswith("|sealed") for line in report), report
            assert not any(line.startswith("2013-03") for line in report), report
        client.close()
        assert server.stop() == 0, server.log()[-5000:]
        assert run("check", "--data", server.data).returncode == 0
    finally:
        if server.alive():
            server.kill()
