"""Plays, deliveries and forgets of the same users through several nodes, and a ledger of what was acknowledged. Each
node is spoken to over RESP, HTTP and gRPC in turn, about the same users.

What was answered by an error may still be carried out, and later than what was said after it: a frozen OSD may have it
in its queue. So an item counts again only once all that was ever said of it since agrees, or once the cluster is at
rest (settle()).
"""
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

import grpc

from conftest import CLIENTS, end_to_end

RespError, Closed = end_to_end.RespError, end_to_end.Closed
PATIENCE = end_to_end.PATIENCE
EDGES = "resp", "http", "grpc"
ITEMS, DELIVERED = [f"item:{i}" for i in range(2000)], [f"sent:{i}" for i in range(60)]


class Refused(Exception):
    """An answer, and no good one."""


class Gone(Exception):
    """The connection is: nobody knows."""


class Resp:
    def __init__(self, node):
        self.link = node.client()

    def say(self, verb, user, items):
        try:
            return self.link.command(verb, user, *items)
        except RespError as error:
            raise Refused(str(error)) from error
        except (Closed, OSError) as error:
            raise Gone(str(error)) from error

    def close(self):
        self.link.close()


def seen_of(items, unseen):
    """Positions of the unseen ones, as SEEN has them."""
    return [0 if i in unseen else 1 for i in range(len(items))]


class Http:
    PATHS = {"PLAYED": "/v1/played", "DELIVERED": "/v1/delivered", "SEEN": "/v1/unseen"}

    def __init__(self, node):
        host, _, port = node.options["http"].rpartition(":")
        self.link = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)

    def say(self, verb, user, items):
        if verb == "FORGET":
            query = urllib.parse.urlencode([("item", item) for item in items])
            return self.ask("DELETE", f"/v1/users/{urllib.parse.quote(user, safe='')}" + (f"?{query}" if query else ""))[
                "forgotten"]
        body = {"user": user, "items": items, **({"reply": "indexes"} if verb == "SEEN" else {})}
        answer = self.ask("POST", self.PATHS[verb], json.dumps(body))
        return seen_of(items, set(answer["indexes"])) if verb == "SEEN" else answer["recorded"]

    def ask(self, method, path, body=None):
        try:
            self.link.request(method, path, body, {"Content-Type": "application/json"})
            answer = self.link.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Gone(str(error)) from error
        if answer.status != 200:
            raise Refused(json.loads(text)["detail"])
        return json.loads(text)

    def close(self):
        self.link.close()


class Grpc:
    def __init__(self, node):
        if str(CLIENTS / "python") not in sys.path:
            sys.path.insert(0, str(CLIENTS / "python"))
        from unseen.v1 import unseen_pb2, unseen_pb2_grpc
        # No channel is shared, and one that was lost is tried again at once: a node is away for a moment only.
        self.channel = grpc.insecure_channel(node.options["grpc"], options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.min_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)])
        self.pb, self.stub = unseen_pb2, unseen_pb2_grpc.UnseenStub(self.channel)

    def say(self, verb, user, items):
        pb = self.pb
        try:
            if verb == "SEEN":
                request = pb.FilterRequest(user=user, items=items, reply=pb.FilterRequest.INDEXES)
                return seen_of(items, set(self.stub.Filter(request, timeout=PATIENCE).indexes))
            if verb == "FORGET":
                return self.stub.Forget(pb.ForgetRequest(user=user, items=items, all=not items), timeout=PATIENCE).count
            method = self.stub.Played if verb == "PLAYED" else self.stub.Delivered
            return method(pb.RecordRequest(user=user, items=items), timeout=PATIENCE).count
        except grpc.RpcError as error:
            lost = error.code() == grpc.StatusCode.UNAVAILABLE
            raise (Gone if lost else Refused)(f"{error.code().name} {error.details()}") from error

    def close(self):
        self.channel.close()


DOORS = dict(zip(EDGES, (Resp, Http, Grpc)))


class User:
    """What was said of one user, by one thread."""

    def __init__(self, name):
        self.name = name
        self.words = {}       # item -> True (seen) or False: the last word that was acknowledged
        self.late = {}        # item -> words that may still come true
        self.forgetting = False  # a forget of all may still come true
        self.known = None     # False: forgotten, and nothing said since

    def said(self, items, word, sure):
        for item in items:
            if sure:
                self.words[item] = word
            else:
                self.late.setdefault(item, set()).add(word)
        if word:
            self.known = True if sure else None

    def forgot(self, sure):
        if sure:
            self.words = dict.fromkeys(self.words, False)
            self.known = False if not any(self.late.values()) else None
        else:
            self.forgetting, self.known = True, None

    def certain(self):
        """Item -> what every node must say of it now."""
        return {item: word for item, word in self.words.items()
                if self.late.get(item, set()) <= {word} and not (self.forgetting and word)}

    def settle(self, seen):
        """Nothing is on its way any more. What nobody knew is now as the nodes have it."""
        unknown = [item for item in {*self.words, *self.late} if item not in self.certain()]
        for item, word in zip(unknown, seen(self.name, unknown) if unknown else []):
            self.words[item] = bool(word)
        self.late, self.forgetting = {}, False


class Load:
    """Threads that each have users of their own, and speak to all nodes in turn."""

    def __init__(self, nodes, threads=6, users=4, seed=1, name="u"):
        self.nodes, self.stopping = nodes, threading.Event()
        self.crews = [[User(f"{name}{t}.{u}") for u in range(users)] for t in range(threads)]
        self.problems, self.gaps = [], []
        self.acknowledged = self.refused = self.asked = self.unanswered = 0
        self.words = {}  # of errors -> how many
        self.edges = dict.fromkeys(EDGES, 0)  # -> what was acknowledged or answered there
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(crew, random.Random(seed * 1000 + i)))
                        for i, crew in enumerate(self.crews)]
        for thread in self.threads:
            thread.start()

    def users(self):
        return [user for crew in self.crews for user in crew]

    # --- a thread's life ---

    def run(self, crew, chance):
        links = {}
        last = time.monotonic()
        try:
            while not self.stopping.is_set():
                user = chance.choice(crew)
                if self.write(links, chance.choice(self.nodes), user, chance):
                    now = time.monotonic()
                    with self.lock:
                        self.gaps.append((now - last, now))
                    last = now
                    if chance.random() < 0.3:
                        self.ask(links, chance.choice(self.nodes), user, chance)
        except BaseException as error:  # noqa: B036  # whatever it is, the test must see it
            self.problems.append(repr(error))
        finally:
            for link in links.values():
                link.close()

    def call(self, links, node, chance, verb, user, *items):
        """Over some edge. None: nobody knows."""
        edge = chance.choice(EDGES)
        link = node, edge
        try:
            if link not in links:
                links[link] = DOORS[edge](node)
            answer = links[link].say(verb, user, items)
            with self.lock:
                self.edges[edge] += 1
            return answer
        except Refused as error:
            with self.lock:
                word = f"{edge}: {error}"[:70]
                self.words[word] = self.words.get(word, 0) + 1
        except (Gone, Closed, OSError):
            if link in links:
                links.pop(link).close()
            end_to_end.pause(0.02, "a node that is being started again")
        return None

    def write(self, links, node, user, chance):
        what = chance.choices("pdfF", [40, 4, 3, 0.3])[0]
        if what == "F":
            answer = self.call(links, node, chance, "FORGET", user.name)
            user.forgot(answer is not None)
        else:
            items = chance.sample(DELIVERED if what == "d" else ITEMS, 3)
            verb = {"p": "PLAYED", "d": "DELIVERED", "f": "FORGET"}[what]
            answer = self.call(links, node, chance, verb, user.name, *items)
            user.said(items, what != "f", answer is not None)
        with self.lock:
            self.acknowledged += answer is not None
            self.refused += answer is None
        return answer is not None

    def ask(self, links, node, user, chance):
        """Any node, at once."""
        certain = user.certain()
        items = chance.sample(sorted(certain), min(len(certain), 200))
        if not items:
            return
        answer = self.call(links, node, chance, "SEEN", user.name, *items)
        with self.lock:
            self.asked += answer is not None
            self.unanswered += answer is None
        if answer is not None:
            self.compare(node, user, items, answer, certain)

    def compare(self, node, user, items, answer, certain):
        """A new item may be hidden by error, one in a thousand: only what was played and is shown is a loss, and what
        was un-seen is exact."""
        for item, seen in zip(items, answer):
            if bool(seen) != certain[item]:
                self.problems.append((node.folder.name, user.name, item, certain[item], seen))

    # --- what a test asks of it ---

    def pause(self, since):
        """The longest time in which a thread got nothing acknowledged, that ended after `since`."""
        with self.lock:
            return max((gap for gap, at in self.gaps if at >= since), default=0)

    def count(self):
        with self.lock:
            return self.acknowledged

    def wait(self, n, patience=60):
        """Until so many more writes were acknowledged."""
        wanted = self.count() + n
        end_to_end.until(lambda: self.count() >= wanted or self.problems, lambda: (self.count(), wanted, self.words),
                         patience)
        self.check_problems()

    def check_problems(self):
        assert not self.problems, (self.problems[:10], len(self.problems), self.words)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def check(self):
        """The ledger, against every node."""
        self.check_problems()
        sure = 0
        for node in self.nodes:
            with node.client() as link:
                for user in self.users():
                    certain = user.certain()
                    items = sorted(certain)
                    if items:
                        self.compare(node, user, items, link.command("SEEN", user.name, *items), certain)
                    sure += len(items)
                    if user.known is False and not user.forgetting:
                        assert link.command("HISTORY", user.name) is None, (node.folder.name, user.name)
        self.check_problems()
        assert sure > 0
        return sure
