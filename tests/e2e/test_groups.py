"""Groups: caps of what is sent of an author, a series. On every edge, by a model of sets, and by many at once."""
import random
import threading

import pytest

from conftest import DAY, HOUR, START
from resp import RespError
from test_policy import MINUTE, month_of, post
from unseen_grpc import Grpc, messages

STORES = ("sqlite", "memory", "memory:later")
NEEDS_FOLDER = set()
POLICIES = {
    "authors": {"plays": "off", "item": "off", "group": "2 in 1h"},
    "series": {"plays": "1", "item": "1 in 10min", "group": "1 in 10min, 3 in 1d"},
    "ever": {"item": "2", "group": "4"},
    "once": {"item": "1", "group": "2 in 1h"},
    "shared": {"plays": "off", "item": "off", "group": "2 in 1h", "also": "push:{user} search:{user}"},
}
MEANT = {"authors": (None, [], [(2, HOUR)]), "series": (1, [(1, 10 * MINUTE)], [(1, 10 * MINUTE), (3, DAY)]),
         "ever": (3, [(2, None)], [(4, None)])}


def pairs(items, groups):
    return [word for pair in zip(items, groups) for word in pair]


def ask(client, policy, words, *options, user="u"):
    return [i.decode() for i in client.command("FILTER", user, "POLICY", policy, *options, "PAIRS", *words.split())]


@pytest.fixture
def edges(make_server):
    return make_server(http="127.0.0.1:0", grpc="127.0.0.1:0", policies=POLICIES)


def test_two_of_an_author_an_hour(make_server):
    with make_server(policies=POLICIES).client() as c:
        assert ask(c, "authors", "a1 A a2 A a3 A b1 B n1 A") == ["a1", "a2", "a3", "b1", "n1"], "nothing was sent"
        assert ask(c, "authors", "a1 A a2 A a3 A b1 B", "LIMIT", "4") == ["a1", "a2", "b1"], "the answer counts"
        assert ask(c, "authors", "a1 A a1 A a2 A a3 A", "LIMIT", "4") == ["a1", "a1", "a2"], "an item once"
        assert ask(c, "authors", "a1 A b1 B a2 A a3 A", "LIMIT", "1") == ["a1"]
        assert ask(c, "authors", "a1 A a2 A a3 A b1 B", "LIMIT", "9", "DELIVER") == ["a1", "a2", "b1"]
        assert ask(c, "authors", "a1 A a3 A b2 B b3 B", "LIMIT", "9") == ["b2"], "the author's own two, too"
        assert ask(c, "authors", "a1 A a3 A b2 B b3 B") == ["b2", "b3"]
        c.command("DEBUG", "ADVANCE", HOUR - 1)
        assert ask(c, "authors", "a3 A") == []
        c.command("DEBUG", "ADVANCE", 1)
        assert ask(c, "authors", "a3 A a1 A") == ["a3", "a1"]
        assert c.command("DELIVERED", "u", "PAIRS", "a7", "A", "x", "", "a8", "A") == 3
        assert ask(c, "authors", "a3 A y B") == ["y"]
        assert ask(c, "authors", "x A a7 B", "LIMIT", "2") == ["a7"], "by the group that the question says"
        assert c.command("DELIVERED", "u", "PAIRS") == 1, "alone it is an item"
        assert c.command("EXPOSURE", "u", "PAIRS", "a7") == [[1, 0], [1, 0]]


def test_words_that_are_refused(make_server):
    with make_server(policies=POLICIES).client() as c:
        c.command("POOL", "SET", "pool", "a")
        for words, said in (
                ("FILTER u POLICY authors ITEMS a", 'ERR policy "authors" caps groups: expected PAIRS'),
                ("FILTER u POLICY authors POOL pool", 'ERR policy "authors" caps groups: expected PAIRS'),
                ("FILTER u LIMIT 1 PAIRS", "ERR behind PAIRS stand an item and its group, again and again, got 0 words"),
                ("FILTER u PAIRS a A b", "ERR behind PAIRS stand an item and its group, again and again, got 3 words"),
                ("DELIVERED u PAIRS a A b", "ERR behind PAIRS stand an item and its group, again and again, got 3 words"),
                ("FILTER u POOL pool PAIRS a A", "ERR a question is about items or about pools, and not both"),
                ("FILTER u PAIRS a " + 256 * "A", 'ERR group 1 has 256 bytes: expected at most 255, and "" for none'),
                ("DELIVERED u PAIRS a A b " + 256 * "A", 'ERR group 2 has 256 bytes: expected at most 255, and "" for none')):
            with pytest.raises(RespError, match=said.replace("[", r"\[")):
                c.command(*words.split())
        assert c.command("FILTER", "u", "PAIRS", "a", "A", "b", "") == [b"a", b"b"], "without a policy they say nothing"
        assert c.command("FILTER", "u", "REPLY", "BITMAP", "PAIRS", "a", "A", "b", "") == b"\xc0"
        assert c.command("FILTER", "u", "REPLY", "INDEXES", "PAIRS", "a", "A", "b", "") == [0, 1]
        c.command("MULTI")
        c.command("FILTER", "u", "POLICY", "authors", "LIMIT", "9", "DELIVER", "PAIRS", *"aAbAcA")
        c.command("FILTER", "u", "POLICY", "authors", "PAIRS", *"dAeB")
        assert c.command("EXEC") == [[b"a", b"b"], [b"e"]]


def test_http(edges):
    assert post(edges, "/v1/delivered", user="u", items=["a", "b"], groups=["A", ""]) == {"recorded": 2}
    ask = {"user": "u", "policy": "authors", "items": ["c", "d", "e"], "groups": ["A", "A", ""]}
    assert post(edges, "/v1/unseen", **ask, limit=3)["items"] == ["c", "e"]
    assert post(edges, "/v1/unseen", **ask, limit=3, deliver=True)["items"] == ["c", "e"]
    assert post(edges, "/v1/unseen", **ask)["items"] == ["e"]
    ask.pop("user")
    many = post(edges, "/v1/unseen:batch", **ask, users=["u", "v"], limit=2)["answers"]
    assert [m["items"] for m in many] == [["e"], ["c", "d"]]
    why = post(edges, "/v1/why", user="u", item="a", policy="authors")
    assert why["places"] == [{"place": "group", "error": 0.0, "until": START + HOUR}]
    with edges.client() as c:
        for body, said in (({"groups": ["A"]}, '1 group for 3 items, expected one each, and "" for none'),
                           ({}, 'policy "authors" caps groups: expected PAIRS')):
            with pytest.raises(Exception) as e:
                post(edges, "/v1/unseen", user="u", policy="authors", items=["c", "d", "e"], **body)
            assert said in e.value.read().decode().replace('\\"', '"')
        assert c.command("EXPOSURE", "u", *"abcde") == [[1, 0], [1, 0], [1, 0], None, [1, 0]]


def test_grpc(edges):
    pb = messages()
    with Grpc(edges) as grpc:
        assert grpc.ask("Delivered", user="u", items=["a", "b"], groups=["A", ""]).count == 2
        asked = {"user": "u", "policy": "authors", "items": ["c", "d", "e"], "reply": pb.FilterRequest.ITEMS}
        assert list(grpc.ask("Filter", **asked, groups=["A", "A", ""], limit=3).items) == ["c", "e"]
        assert list(grpc.ask("Filter", **asked, binary_groups=[b"\xff", b"\xff", b"\xff"], limit=3).items) == ["c", "d"]
        assert list(grpc.ask("Filter", **asked, groups=["A", "A", ""], limit=3, deliver=True).items) == ["c", "e"]
        assert list(grpc.ask("Filter", **asked, groups=["A", "A", ""]).items) == ["e"]
        request = pb.FilterManyRequest(users=["u", "v"], items=["c", "d", "e"], groups=["A", "A", ""], policy="authors",
                                       limit=2, reply=pb.FilterRequest.ITEMS)
        _, method = grpc.method("FilterMany", "unary_stream")
        assert {m.index: list(m.reply.items) for m in method(request, timeout=30)} == {0: ["e"], 1: ["c", "d"]}
        places = grpc.ask("Why", user="u", item="a", policy="authors").places
        assert [(p.place, p.until) for p in places] == [("group", START + HOUR)]
        many = [f"i{n}" for n in range(3000)]
        answer = grpc.ask("Filter", user="w", items=many, groups=[f"g{n % 1000}" for n in range(3000)], policy="authors",
                          limit=3000, reply=pb.FilterRequest.ITEMS)
        assert list(answer.items) == many[:2000], "two of each"
        for method, words, said in (("Played", {"groups": ["A"]}, "groups are for deliveries: a play has none"),
                                    ("Delivered", {"groups": ["A", "B"]}, "2 groups for 1 item"),
                                    ("Delivered", {"groups": ["A"], "binary_groups": [b"A"]}, "groups and binary_groups")):
            with pytest.raises(Exception, match=said):
                grpc.ask(method, user="u", items=["a"], **words)


def test_why(make_server):
    with make_server(policies=POLICIES).client(protocol=3) as c:
        c.command("DELIVERED", "u", "PAIRS", *"aAbA")
        c.command("DEBUG", "ADVANCE", MINUTE)
        c.command("DELIVERED", "u", "PAIRS", "c", "A", "d", "")
        def why(item, policy):
            return {p[b"place"]: p[b"until"] for p in c.command("WHY", "u", item, "POLICY", policy)}
        assert why("a", "authors") == {b"group": START + HOUR}, "then two are left"
        assert why("a", "series") == {b"item": START + 10 * MINUTE, b"group": START + DAY}
        assert why("d", "series") == {b"item": START + 11 * MINUTE} and why("d", "authors") == {}
        assert why("new", "authors") == {} and why("a", "ever") == {}
        c.command("DELIVERED", "u", "PAIRS", "e", "A")
        assert why("a", "ever") == {b"group": None}


def test_of_other_users(make_server):
    """Each by its own counts; what the answer holds counts for the user alone."""
    with make_server(policies=POLICIES).client(protocol=3) as c:
        c.command("DELIVERED", "push:u", "PAIRS", *"aAbAcB")
        c.command("DELIVERED", "search:u", "PAIRS", *"cBdC")
        c.command("DELIVERED", "u", "PAIRS", *"eDfC")
        words = "a1 A b1 B b2 B b3 B d1 D d2 D n1 _ c1 C c2 C".replace("_", "N")
        assert ask(c, "shared", words) == ["b1", "b2", "b3", "d1", "d2", "n1", "c1", "c2"], "A by the push alone"
        assert ask(c, "shared", words, "LIMIT", "9") == ["b1", "b2", "d1", "n1", "c1"]
        assert ask(c, "shared", words, "LIMIT", "9", "DELIVER") == ["b1", "b2", "d1", "n1", "c1"]
        assert ask(c, "shared", words, "LIMIT", "9") == ["n1"]
        assert [p[b"place"] for p in c.command("WHY", "u", "a", "POLICY", "shared")] == [b"also:push:u"]
        assert [p[b"place"] for p in c.command("WHY", "u", "c1", "POLICY", "shared")] == [b"group"]
        assert {p[b"policy"]: p[b"hidden"] for p in c.command("POLICIES")}[b"shared"] == 1 + 4 + 4 + 8


class Model:
    """What a user was sent, by time: the place within its ms, and the group. Plays by their month."""

    MOST = 12  # delivered_max

    def __init__(self):
        self.plays, self.sent, self.now, self.subs = {}, {}, START, 0

    def send(self, user, items, groups):
        for item, group in zip(items, groups):
            self.subs += 1
            self.sent.setdefault(user, {}).setdefault(item, {})[self.now] = (self.subs, group)
        self.sent[user] = self.times(user) if user in self.sent else {}

    def times(self, user):
        """Of the last MOST items the newest 15 times, none older than the newest of the last item."""
        def newest(times):
            return sorted(((ms, *rest) for ms, rest in times.items()), reverse=True)[:15]
        all = {i: newest(t) for i, t in self.sent.get(user, {}).items()}
        kept = sorted(all, key=lambda i: all[i][0][:2], reverse=True)[:self.MOST]
        last = all[kept[-1]][0][:2] if len(kept) == self.MOST else (0, 0)
        return {i: {ms: (sub, group) for ms, sub, group in all[i] if (ms, sub) >= last} for i in kept}

    def age(self, times):
        return self.now - max(times)

    def group(self, times):
        return next((times[ms][1] for ms in sorted(times, reverse=True) if times[ms][1]), "")

    def hits(self, caps, ages):
        return any(len(ages) >= n and (within is None or ages[n - 1] < within) for n, within in caps)

    def hides(self, policy, user, item, group, answered=()):
        months, caps, group_caps = MEANT[policy]
        sent = self.times(user)
        played = months is not None and any(m >= month_of(self.now) - months for m in self.plays.get((user, item), ()))
        ages = sorted(self.now - ms for ms in sent.get(item, ()))
        of_group = {i: self.age(t) for i, t in sent.items() if self.group(t) == group}
        of_group.update({i: 0 for i, g in answered if g == group})
        return played or self.hits(caps, ages) or (group != "" and self.hits(group_caps, sorted(of_group.values())))

    def answer(self, policy, user, items, groups, limit=None):
        answered = []
        for item, group in zip(items, groups):
            if not self.hides(policy, user, item, group, answered if limit else ()) and (not limit or len(answered) < limit):
                answered.append((item, group))
        return [i for i, _ in answered]


@pytest.mark.parametrize("seed", range(3))
def test_against_a_model(make_server, store, seed):
    """Deliveries with groups and without, plays, answers that deliver, days, flushes, kills: the answers are the model's."""
    draw = random.Random(seed)
    server = make_server(policies=POLICIES, http="127.0.0.1:0", delivered_max=Model.MOST)
    model, users, items = Model(), ["u", "v"], [f"i{n}" for n in range(24)]
    group_of = {i: draw.choice(["", "A", "B", "C", "D", "D"]) for i in items}
    groups = [group_of[i] for i in items]
    names = list(MEANT)
    client = server.client()

    def check():
        for policy in names:
            for user in users:
                for options, limit in (((), None), (("LIMIT", "5"), 5)):
                    answer = client.command("FILTER", user, "POLICY", policy, *options, "PAIRS", *pairs(items, groups))
                    assert [i.decode() for i in answer] == model.answer(policy, user, items, groups, limit), (policy, user, limit)
        policy, limit = draw.choice(names), draw.randrange(1, 9)
        many = post(server, "/v1/unseen:batch", users=users, items=items, groups=groups, policy=policy, limit=limit)["answers"]
        assert [m["items"] for m in many] == [model.answer(policy, user, items, groups, limit) for user in users]
        for user in users:
            sent = model.times(user)
            item = draw.choice(sorted(sent) or items)
            its = model.group(sent[item]) if item in sent else ""
            places = client.command("WHY", user, item, "POLICY", policy)
            assert (places != []) == model.hides(policy, user, item, its), (policy, user, item)

    for step in range(60):
        what, user = draw.randrange(10), draw.choice(users)
        some = draw.sample(items, draw.randrange(1, 6))
        said = [group_of[i] if draw.randrange(4) else "" for i in some]
        if what < 3:
            client.command("DELIVERED", user, "PAIRS", *pairs(some, said))
            model.send(user, some, said)
        elif what == 3:
            client.command("DELIVERED", user, *some)
            model.send(user, some, ["" for _ in some])
        elif what == 4:
            client.command("PLAYED", user, *some[:1])
            model.plays.setdefault((user, some[0]), set()).add(month_of(model.now))
        elif what < 7:
            policy, of = draw.choice(names), [group_of[i] for i in some]
            answer = [i.decode() for i in client.command(
                "FILTER", user, "POLICY", policy, "LIMIT", "3", "DELIVER", "PAIRS", *pairs(some, of))]
            assert answer == model.answer(policy, user, some, of, 3), policy
            model.send(user, answer, [group_of[i] for i in answer])
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
        client.command("DEBUG", "ADVANCE", 1000)
        model.now += 1000
    check()
    client.close()


def test_many_at_once(make_server):
    """However many ask at the same time: of each author two are answered within the hour, and each item once."""
    server = make_server(policies=POLICIES, workers=2)
    items = [f"i{n}" for n in range(60)]
    words = [word for n, item in enumerate(items) for word in (item, f"g{n % 5}")]
    answers, lock = [], threading.Lock()

    def run():
        with server.client() as c:
            for _ in range(5):
                got = c.command("FILTER", "u", "POLICY", "once", "LIMIT", "3", "DELIVER", "PAIRS", *words)
                with lock:
                    answers.extend(i.decode() for i in got)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(answers)) == len(answers)
    assert sorted(int(i[1:]) % 5 for i in answers) == sorted(list(range(5)) * 2)
