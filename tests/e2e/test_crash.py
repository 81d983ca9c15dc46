"""kill -9 at random moments under load, while a ledger keeps every acknowledgement.

UNSEEN_CRASH_CYCLES says how many times (scripts/test --crash-cycles N).
"""
import os
import random
import threading
import time

import pytest

from conftest import HOUR, Server, until
from resp import Closed, encode

CYCLES = int(os.environ.get("UNSEEN_CRASH_CYCLES", "10"))
USERS = 40
WRITERS = 4


class Ledger:
    def __init__(self):
        self.lock = threading.Lock()
        self.plays = {}  # user: [item]
        self.deliveries = {}  # user: [item], oldest first
        self.forgotten = []  # (user, items) that were acknowledged as forgotten
        self.acknowledged = 0

    def add(self, where, user, items):
        with self.lock:
            where.setdefault(user, []).extend(items)
            self.acknowledged += len(items)


def write(server, ledger, n, cycle, stop):
    """One writer: pipelines of plays and deliveries, now and then a user that comes and is forgotten."""
    rng = random.Random(n * 1000003 + cycle)
    count = 0
    try:
        with server.client() as c:
            while not stop.is_set():
                batch = []
                for _ in range(rng.randint(1, 30)):
                    count += 1
                    user = f"user{rng.randrange(USERS)}"
                    items = [f"{cycle}.{n}.{count}.{k}" for k in range(rng.randint(1, 5))]
                    if rng.random() < 0.1:
                        batch.append((ledger.deliveries, f"{user}.{n}", "DELIVERED", items[:1]))
                    else:
                        batch.append((ledger.plays, user, "PLAYED", items))
                c.send(b"".join(encode(command, user, *items) for _, user, command, items in batch))
                for where, user, _, items in batch:
                    if c.read() == len(items):
                        ledger.add(where, user, items)
                if rng.random() < 0.1:
                    user = f"gone{cycle}.{n}.{count}"
                    items = [f"x{k}" for k in range(50)]
                    assert c.command("PLAYED", user, *items) == 50
                    if rng.random() < 0.5:
                        c.command("DEBUG", "ADVANCE", 0)
                    assert c.command("FORGET", user) == 1
                    with ledger.lock:
                        ledger.forgotten.append((user, items))
    except (OSError, Closed):
        pass  # killed


def turn(server, stop):
    """Turns and flushes without a break, so that kills land in the middle of them."""
    try:
        with server.client() as c:
            while not stop.is_set():
                if random.random() < 0.5:
                    c.command("RING", "FLUSH")
                else:
                    c.command("DEBUG", "ADVANCE", HOUR // 4)
                    server.clock += HOUR // 4
    except (OSError, Closed):
        pass  # killed


def unseen(client, user, items):
    """How many of the items are unseen, asked 10,000 at a time."""
    total = 0
    for i in range(0, len(items), 10000):
        part = items[i:i + 10000]
        bitmap = client.command("FILTER", user, "REPLY", "BITMAP", "ITEMS", *part)
        total += bin(int.from_bytes(bitmap, "big")).count("1")
    return total


def judge(server, ledger):
    with server.client() as c:
        for user, items in ledger.plays.items():
            assert unseen(c, user, items) == 0, f"{user} lost plays"
        for user, items in ledger.deliveries.items():
            assert unseen(c, user, items[-60:]) == 0, f"{user} lost deliveries"
        for user, items in ledger.forgotten:
            assert c.command("HISTORY", user) is None, f"{user} is back"
            assert unseen(c, user, items) == len(items)
        assert unseen(c, "user1", [f"never{i}" for i in range(20)]) == 20  # few, so that no filter errs on them


@pytest.mark.threads
def test_kill_under_load(folder):
    rng = random.Random(7979)
    ledger = Ledger()
    server = Server(folder, slot_length="1min", slots="4", workers="2")
    try:
        for cycle in range(CYCLES):
            stop = threading.Event()
            threads = [threading.Thread(target=write, args=(server, ledger, n, cycle, stop)) for n in range(WRITERS)]
            threads.append(threading.Thread(target=turn, args=(server, stop)))
            before = ledger.acknowledged
            for t in threads:
                t.start()
            # The load decides when it is time, so that a slow machine is not killed before it did anything.
            goal = before + rng.randint(1, 2500)
            until(lambda: ledger.acknowledged >= goal or not any(t.is_alive() for t in threads), server.log)
            server.kill()
            stop.set()
            for t in threads:
                t.join()
            assert ledger.acknowledged > before, server.log()[-5000:]
            server.start()
            judge(server, ledger)
        with server.client() as c:
            c.command("RING", "FLUSH")
        judge(server, ledger)
        assert server.stop() == 0, server.log()[-5000:]
        for file in ("staging.db", "history.db"):
            assert server.sqlite(file, "PRAGMA integrity_check") == "ok"
        print(f"{CYCLES} kills, {ledger.acknowledged} acknowledged, 0 lost")
    finally:
        if server.alive():
            server.kill()
