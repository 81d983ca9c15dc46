"""Policies: what hides a candidate, on every edge and every path to an answer. A model of sets says what is right."""
import base64
import json
import random
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import DAY, HOUR, START, UNSEEN, http_url
from resp import RespError
from test_hashes import SEED, ask, packed, xxh3  # noqa: F401
from test_reload import reload
from unseen_grpc import Grpc, messages

STORES = ("sqlite", "memory", "memory:later")
NEEDS_FOLDER = set()
MINUTE = 60_000
POLICIES = {
    "often": {"plays": "off", "item": "off"},
    "played": {"item": "off"},
    "sent": {"plays": "off", "item": "1"},
    "feed": {"plays": "1", "item": "1 in 10min, 3 in 7d"},
    "twice": {"plays": "0", "item": "2 in 1h, 4"},
}
# The same as the model reads it: months that hide, beside the current one, and caps.
MEANT = {None: (3, [(1, None)]), "often": (None, []), "played": (3, []), "sent": (None, [(1, None)]),
         "feed": (1, [(1, 10 * MINUTE), (3, 7 * DAY)]), "twice": (0, [(2, HOUR), (4, None)])}


def post(server, path, **body):
    asked = urllib.request.Request(http_url(server) + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture
def edges(make_server):
    return make_server(http="127.0.0.1:0", grpc="127.0.0.1:0", policies=POLICIES)


@pytest.fixture
def policed(make_server):
    server = make_server(policies=POLICIES)
    with server.client() as c:
        yield c


def fill(client):
    client.command("PLAYED", "u", "p")
    client.command("DELIVERED", "u", "d")


def under(client, policy, *items, user="u"):
    words = ["POLICY", policy] if policy else []
    return [i.decode() for i in client.command("FILTER", user, *words, "ITEMS", *items)]


def test_each_policy(policed):
    fill(policed)
    assert {p: "".join(under(policed, p, *"pdn")) for p in MEANT} == {
        None: "n", "often": "pdn", "played": "dn", "sent": "pn", "feed": "n", "twice": "dn"}
    policed.command("DEBUG", "ADVANCE", 10 * MINUTE - 1)
    assert under(policed, "feed", *"pdn") == ["n"]
    policed.command("DEBUG", "ADVANCE", 1)
    assert under(policed, "feed", *"pdn") == ["d", "n"]
    assert under(policed, None, *"pdn") == ["n"], "without a policy as before"
    policed.command("DELIVERED", "u", "d")
    assert under(policed, "twice", *"pdn") == ["n"], "twice within an hour"
    policed.command("DEBUG", "ADVANCE", HOUR)
    assert under(policed, "twice", *"pdn") == ["d", "n"]
    policed.command("DELIVERED", "u", "d")
    policed.command("DEBUG", "ADVANCE", HOUR)
    assert under(policed, "feed", *"pdn") == ["n"], "three times in a week"
    policed.command("DEBUG", "ADVANCE", 7 * DAY)
    assert under(policed, "feed", *"pdn") == ["d", "n"]


def test_each_form(policed):
    fill(policed)
    asked = ["POLICY", "played"]
    assert policed.command("FILTER", "u", *asked, "REPLY", "INDEXES", "ITEMS", *"pdn") == [1, 2]
    assert policed.command("FILTER", "u", "REPLY", "BITMAP", *asked, "ITEMS", *"pdn") == bytes([0b01100000])
    assert policed.command("FILTER", "u", *asked, "EXCLUDE", "1", "d", "LIMIT", "1", "ITEMS", *"pdn") == [b"n"]
    policed.command("POOL", "SET", "one", *"pdn")
    policed.command("POOL", "SET", "two", *"dn7")
    policed.command("BLOCK", "s", "7")
    assert policed.command("FILTER", "u", *asked, "POOL", "one") == [b"d", b"n"]
    assert policed.command("FILTER", "u", *asked, "SESSION", "s", "POOL", "one", "POOL", "two") == [b"d", b"n"]
    assert policed.command("FILTER", "u", "POLICY", "sent", "LIMIT", "1", "POOL", "two") == [b"n"]
    assert policed.command("FILTER", "u", "POLICY", "sent", "LIMIT", "2", "POOL", "one", "POOL", "two") == [b"p", b"n"]


def test_a_delivery(policed):
    deliver = ("LIMIT", "2", "DELIVER", "ITEMS", *"aabcd")
    assert policed.command("FILTER", "u", "POLICY", "feed", *deliver) == [b"a", b"b"]
    assert policed.command("FILTER", "u", "POLICY", "feed", *deliver) == [b"c", b"d"]
    assert policed.command("FILTER", "u", "POLICY", "feed", *deliver) == []
    policed.command("DEBUG", "ADVANCE", 1)  # twice in one ms is once
    assert policed.command("FILTER", "u", "POLICY", "played", *deliver) == [b"a", b"b"], "what was sent never hides"
    policed.command("DEBUG", "ADVANCE", 10 * MINUTE)
    assert policed.command("FILTER", "u", "POLICY", "feed", *deliver) == [b"a", b"b"]
    policed.command("DEBUG", "ADVANCE", 10 * MINUTE)
    assert policed.command("FILTER", "u", "POLICY", "feed", *deliver) == [b"c", b"d"], "a and b were sent three times"


def test_by_hashes(make_server, xxh3):  # noqa: F811
    server = make_server(hash_seed=SEED, policies=POLICIES)
    with server.client() as c:
        fill(c)
        assert ask(c, "u", packed(xxh3, int(SEED, 16), "pdn"), "POLICY", "sent", reply="INDEXES") == [0, 2]


def test_why(make_server):
    server = make_server(policies=POLICIES)
    with server.client() as c, server.client(protocol=3) as c3:
        fill(c)
        c.command("DELIVERED", "u", "p")
        assert c.command("WHY", "u", "p") == [b"staged", b"delivered"]
        assert c.command("WHY", "u", "p", "POLICY", "often") == []
        assert c.command("WHY", "u", "d", "POLICY", "sent") == [[b"place", b"item", b"error", b"0", b"until", None]]
        assert c3.command("WHY", "u", "d", "POLICY", "feed") == [
            {b"place": b"item", b"error": 0.0, b"until": START + 10 * MINUTE}]
        places = c3.command("WHY", "u", "p", "POLICY", "feed")
        assert [p[b"place"] for p in places] == [b"staged", b"item"]
        assert places[0][b"until"] > START + 28 * DAY, "until the month after the next one begins"
        c.command("DEBUG", "ADVANCE", 10 * MINUTE)
        assert c.command("WHY", "u", "d", "POLICY", "feed") == []


def test_the_default(make_server):
    server = make_server(policies={"default": {"item": "1 in 10min"}})
    with server.client() as c:
        fill(c)
        assert c.command("UNSEEN", "u", *"pdn") == [b"n"]
        assert c.command("WHY", "u", "d") == [b"item"]
        c.command("DEBUG", "ADVANCE", 10 * MINUTE)
        assert c.command("UNSEEN", "u", *"pdn") == [b"d", b"n"]
        assert c.command("SEEN", "u", *"pdn") == [1, 0, 0]
        assert under(c, "default", *"pdn") == ["d", "n"]
        assert c.command("WHY", "u", "d") == []
        reload(server, policies={})
        assert c.command("UNSEEN", "u", *"pdn") == [b"n"]
        assert c.command("WHY", "u", "d") == [b"delivered"]
        with pytest.raises(RespError, match='ERR there is no policy "default"'):
            under(c, "default", "p")


def test_http(edges):
    with edges.client() as c:
        fill(c)
        c.command("POOL", "SET", "pool", *"pdn")
    assert post(edges, "/v1/unseen", user="u", items=list("pdn"), policy="played") == {"items": ["d", "n"]}
    assert post(edges, "/v1/unseen", user="u", pools=["pool"], policy="sent")["items"] == ["p", "n"]
    assert base64.b64decode(post(edges, "/v1/unseen", user="u", items=list("pdn"), policy="often", reply="bitmap")["bitmap"]) == b"\xe0"
    for asked in ({"items": list("pdn")}, {"pools": ["pool"]}):
        many = post(edges, "/v1/unseen:batch", users=["u", "v"], policy="sent", **asked)["answers"]
        assert [m["items"] for m in many] == [["p", "n"], ["p", "d", "n"]]
    why = post(edges, "/v1/why", user="u", item="d", policy="feed")
    assert why["places"] == [{"place": "item", "error": 0.0, "until": START + 10 * MINUTE}]
    assert post(edges, "/v1/why", user="u", item="d", policy="sent")["places"] == [{"place": "item", "error": 0.0, "until": None}]
    assert post(edges, "/v1/why", user="u", item="d")["places"] == [{"place": "delivered", "error": 0.0}]
    for path, of in (("/v1/unseen", {"user": "u"}), ("/v1/unseen:batch", {"users": ["u"]})):
        with pytest.raises(urllib.error.HTTPError) as e:
            post(edges, path, items=["a"], policy="x", **of)
        assert e.value.code == 400 and json.loads(e.value.read())["detail"] == 'there is no policy "x"'


def test_grpc(edges):
    pb = messages()
    with edges.client() as c:
        fill(c)
    with Grpc(edges) as grpc:
        asked = {"user": "u", "items": list("pdn"), "reply": pb.FilterRequest.ITEMS}
        assert list(grpc.ask("Filter", **asked, policy="played").items) == ["d", "n"]
        assert list(grpc.ask("Filter", **asked, policy="").items) == ["n"]
        request = pb.FilterManyRequest(users=["u", "v"], items=list("pdn"), policy="sent", reply=pb.FilterRequest.ITEMS)
        _, method = grpc.method("FilterMany", "unary_stream")
        assert {m.index: list(m.reply.items) for m in method(request, timeout=30)} == {0: ["p", "n"], 1: ["p", "d", "n"]}
        places = grpc.ask("Why", user="u", item="d", policy="feed").places
        assert [(p.place, p.until) for p in places] == [("item", START + 10 * MINUTE)]
        with pytest.raises(Exception, match='there is no policy "x"'):
            grpc.ask("Filter", **asked, policy="x")


def test_exposure(edges):
    with edges.client() as c, edges.client(protocol=3) as c3, Grpc(edges) as grpc:
        fill(c)
        c.command("DEBUG", "ADVANCE", 90_500)
        c.command("DELIVERED", "u", "d", "e")
        c.command("DEBUG", "ADVANCE", 1_999)
        assert c.command("EXPOSURE", "u", *"pdned") == [None, [2, 1], None, [1, 1], [2, 1]]
        assert c3.command("EXPOSURE", "u", "p", "d") == [None, [2, 1]]
        assert c.command("EXPOSURE", "v", "d") == [None]
        assert post(edges, "/v1/exposure", user="u", items=["d", "n"])["exposure"] == [{"count": 2, "seconds": 1}, None]
        items = grpc.ask("Exposure", user="u", items=["d", "n"]).items
        assert [(i.count, i.seconds) for i in items] == [(2, 1), (0, 0)]
        assert c.command("EXPOSURE", "u", *["d"] * 1000) == [[2, 1]] * 1000
        with pytest.raises(RespError, match="1001 items are too many: EXPOSURE takes at most 1000"):
            c.command("EXPOSURE", "u", *["d"] * 1001)
        with pytest.raises(RespError, match="item 2 is empty"):
            c.command("EXPOSURE", "u", "d", "")


def test_exposure_of_a_giant(make_server):
    """Who is answered on a thread of their own."""
    server = make_server(workers=1, policies=POLICIES)
    with server.client() as c:
        for n in range(0, 80_000, 20_000):
            c.command("PLAYED", "giant", *[f"i{k}" for k in range(n, n + 20_000)])
        c.command("DELIVERED", "giant", "d")
        if server.options.get("store", "sqlite") == "sqlite":
            c.command("RING", "FLUSH")
        assert c.command("EXPOSURE", "giant", "d", "i7") == [[1, 0], None]
        assert under(c, "sent", "i7", "d", "n", user="giant") == ["i7", "n"]
        assert under(c, "played", "i7", "d", "n", user="giant") == ["d", "n"]
        assert under(c, "feed", "i7", "d", "n", user="giant") == ["n"]
        places = c.command("WHY", "giant", "d", "POLICY", "feed")
        assert [p[1] for p in places] == [b"item"]
        assert c.command("WHY", "giant", "i7", "POLICY", "sent") == []


@pytest.mark.parametrize("words, said", [
    (["FILTER", "u", "POLICY", "x", "ITEMS", "a"], 'there is no policy "x"'),
    (["FILTER", "u", "POLICY", "", "ITEMS", "a"], 'there is no policy ""'),
    (["FILTER", "u", "POLICY", "feed", "POLICY", "feed", "ITEMS", "a"], "POLICY is given twice"),
    (["WHY", "u", "a", "POLICY", "x"], 'there is no policy "x"'),
    (["WHY", "u", "a", "POLICY"], "behind the item WHY takes SESSION id and POLICY name"),
])
def test_what_is_refused(policed, words, said):
    with pytest.raises(RespError, match=said):
        policed.command(*words)


def test_a_reload_replaces_all(make_server):
    server = make_server(policies=POLICIES)
    with server.client() as c:
        fill(c)
        said = reload(server, policies={"feed": {"item": "off"}, "new": {"plays": "off"}})
        assert "policies read again" in said and "changed=1" in said
        assert under(c, "feed", *"pdn") == ["d", "n"] and under(c, "new", *"pdn") == ["p", "n"]
        with pytest.raises(RespError, match='there is no policy "often"'):
            under(c, "often", "p")
        assert "policies read again" not in reload(server)
        said = reload(server, policies={"feed": {"item": "16 in 1h"}, "more": {}})
        assert "configuration not read again" in said and "expected 1 to 15 times" in said
        assert under(c, "feed", *"pdn") == ["d", "n"] and under(c, "new", *"pdn") == ["p", "n"]
        assert "expected at most window, 3" in reload(server, policies={"feed": {"plays": "4"}})


def test_check_config(folder):
    path = folder / "unseen.conf"
    path.write_text("[unseen]\nretention = 6\n[policy feed]\nplays = 3\nitem = 1 in 10\n\n[policy feed]\n[policy]\n"
                    "[policy two]\nplays = 1\nplays = 2\nslots = 6\nauthor = 2 in 1h\ngroup = 16\n"
                    "[policy default]\ngroup = 2 in 1h\n")
    done = subprocess.run([str(UNSEEN), "check-config", "-c", str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    said = [line.split("unseen.conf:", 1)[1] for line in (done.stdout + done.stderr).splitlines() if "unseen.conf:" in line]
    assert said[:6] == [
        '5: item has the cap "1 in 10", expected 1, off, or caps such as 1 in 10min, 3 in 7d',
        "7: [policy feed] is given twice",
        '8: there is no section "[policy]", only [unseen], [archive], [front], [kafka], [legacy], [lock], [registry], [replica] and '
        '[policy NAME]',
        "11: plays is given twice in [policy two]",
        "12: slots belongs in [unseen]; here it stands in [policy two], which begins in line 9",
        '13: there is no option "author" in [policy two], only plays, item, group and also']
    assert said[6:8] == [
        '14: group has the cap "16", expected 1 to 15 times',
        "16: [policy default] has no group, since questions that name no policy need not say groups: expected it in a "
        "policy that they name"]


# --- the model ---

class Model:
    """What a user was sent and has played, as sets; months by their number."""

    def __init__(self):
        self.plays, self.sent, self.now = {}, {}, START

    def hides(self, policy, user, item):
        months, caps = MEANT[policy]
        played = months is not None and any(m >= month_of(self.now) - months for m in self.plays.get((user, item), ()))
        times = self.times(user).get(item, ())
        ages = sorted(max(0, self.now - t) for t in times)
        return played or any(len(ages) >= n and (within is None or ages[n - 1] < within) for n, within in caps)

    def times(self, user, most=100):
        """The last `most` items by their newest time; no time older than the newest one of the last item."""
        items = {i: sorted(t, reverse=True)[:15] for (u, i), t in self.sent.items() if u == user}
        kept = sorted(items, key=lambda i: items[i][0], reverse=True)[:most]
        last = items[kept[-1]][0] if len(kept) == most else 0
        return {i: [t for t in items[i] if t >= last] for i in kept}

    def send(self, user, items):
        for i in items:
            self.sent.setdefault((user, i), set()).add(self.now)

    def play(self, user, items, at=None):
        for i in items:
            self.plays.setdefault((user, i), set()).add(month_of(at or self.now))


def month_of(ms):
    import datetime
    day = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return day.year * 12 + day.month


@pytest.mark.parametrize("seed", range(3))
def test_against_a_model(make_server, store, seed):
    """Deliveries, plays, answers that deliver, days that pass, flushes, a kill: after each the answers are the model's."""
    draw = random.Random(seed)
    server = make_server(policies=POLICIES, http="127.0.0.1:0")
    model, users, items = Model(), ["u", "v"], [f"i{n}" for n in range(30)]
    names = [p for p in MEANT if p]
    client = server.client()

    def check():
        for policy in MEANT:
            for user in users:
                expected = [i for i in items if not model.hides(policy, user, i)]
                assert under(client, policy, *items, user=user) == expected, (policy, user)
        policy, expected = draw.choice(names), None
        expected = [[i for i in items if not model.hides(policy, user, i)] for user in users]
        assert [m["items"] for m in post(server, "/v1/unseen:batch", users=users, items=items, policy=policy)["answers"]] == expected
        item, user = draw.choice(items), draw.choice(users)
        assert (client.command("WHY", user, item, "POLICY", policy) != []) == model.hides(policy, user, item)
        times = model.times(user)
        assert client.command("EXPOSURE", user, *items) == [
            [len(times[i]), (model.now - times[i][0]) // 1000] if i in times else None for i in items]

    for step in range(60):
        what, user = draw.randrange(10), draw.choice(users)
        some = draw.sample(items, draw.randrange(1, 5))
        if what < 3:
            client.command("DELIVERED", user, *some)
            model.send(user, some)
        elif what == 3:
            client.command("PLAYED", user, *some)
            model.play(user, some)
        elif what == 4:
            at = model.now - draw.choice([0, 20 * DAY, 40 * DAY, 70 * DAY])
            client.command("PLAYEDAT", user, at, *some)
            model.play(user, some, at)
        elif what < 7:
            policy = draw.choice(names)
            unseen = [i for i in some if not model.hides(policy, user, i)]
            answer = client.command("FILTER", user, "POLICY", policy, "LIMIT", "3", "DELIVER", "ITEMS", *some)
            assert [i.decode() for i in answer] == unseen[:3], policy
            model.send(user, unseen[:3])
        elif what == 7:
            ms = draw.choice([1, MINUTE, 9 * MINUTE, HOUR, 5 * HOUR, DAY])
            client.command("DEBUG", "ADVANCE", ms)
            model.now += ms
        elif what == 8 and store == "sqlite":
            client.command("RING", "FLUSH")
        elif what == 9 and store == "sqlite" and step % 3 == 0:
            client.close()
            server.kill()
            server.clock = model.now
            server.start()
            client = server.client()
        if step % 4 == 0:
            check()
        client.command("DEBUG", "ADVANCE", 1000)  # two deliveries in one ms are one
        model.now += 1000
    check()
    client.close()


# --- what is shown ---

def test_what_each_hid(make_server):
    server = make_server(http="127.0.0.1:0", policies=POLICIES)
    with server.client() as c, server.client(protocol=3) as c3:
        fill(c)
        for _ in range(2):
            under(c, "feed", *"pdn")
        under(c, "often", *"pdn")
        under(c, None, *"pdn")

        def told():
            return {p[b"policy"].decode(): (p[b"questions"], p[b"candidates"], p[b"hidden"], p[b"hidden_today"])
                    for p in c3.command("POLICIES")}

        expected = {"often": (1, 3, 0, 0), "played": (0, 0, 0, 0), "sent": (0, 0, 0, 0), "feed": (2, 6, 4, 4), "twice": (0, 0, 0, 0)}
        assert told() == expected and list(told()) == list(POLICIES)
        with urllib.request.urlopen(http_url(server) + "/metrics", timeout=30) as answer:
            assert 'unseen_policy_hidden_total{policy="feed"} 4' in answer.read().decode()
        with urllib.request.urlopen(http_url(server) + "/v1/policies", timeout=30) as answer:
            shown = json.loads(answer.read())
        assert shown["policies"][3] == {"policy": "feed", "plays": "1", "item": "1 in 10min, 3 in 7d", "group": "off", "questions": 2,
                                        "candidates": 6, "hidden": 4, "hidden_today": 4, "also": []}
        assert json.loads(run("policy", "--json", "--to", f"127.0.0.1:{server.port}")) == shown
        c.command("DEBUG", "ADVANCE", DAY)
        assert told()["feed"] == (2, 6, 4, 0)
        assert "feed    1       1 in 10min, 3 in 7d  off    -             2             0       4" in run("policy", "--to", f"127.0.0.1:{server.port}")
        reload(server, policies={"feed": POLICIES["feed"]})
        assert told() == {"feed": (2, 6, 4, 0)}


def run(*words):
    done = subprocess.run([str(UNSEEN), *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_explained(folder):
    path = folder / "unseen.conf"
    path.write_text(f"[unseen]\ndata = {folder}/none\n[policy feed]\nplays = 1\nitem = 1 in 10min, 3 in 7d, 4\n"
                    "group = 1 in 10min, 2 in 1h, 4\n[policy default]\nplays = off\nitem = off\n")
    assert run("policy", "feed", "-c", path) == (
        "feed\n  A play hides the item in its own month and 1 full month after that.\n"
        "  An item is hidden while it was sent once within the last 10min.\n"
        "  An item is hidden while it was sent 3 times within the last 7d.\n"
        "  An item is hidden while it is remembered that it was sent 4 times.\n"
        "  An item is hidden while another item of its group was sent within the last 10min.\n"
        "  An item is hidden while 2 items of its group were sent within the last 1h.\n"
        "  An item is hidden while it is remembered that 4 items of its group were sent.\n")
    assert run("policy", "default", "-c", path) == (
        "default\n  Plays hide nothing.\n  What was sent hides nothing.\n  It holds for questions that name no policy.\n")
    assert [line.split()[0] for line in run("policy", "-c", path).splitlines()] == ["policy", "feed", "default"]
    done = subprocess.run([str(UNSEEN), "policy", "x", "-c", str(path)], capture_output=True, text=True)
    assert done.returncode == 1 and 'there is no policy "x"' in done.stderr
