"""Messages of gRPC, written by hand, and h2load (of nghttp2-client), which sends one over and over."""
import random
import re
import subprocess

from served import fail

SERVICE = "unseen.v1.Unseen"
HEADERS = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
MONTHS = 4
NEVER_PLAYED = 1 << 40  # as bench_ids.h has it
MASK = (1 << 64) - 1


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def framed(message):
    return b"\0" + len(message).to_bytes(4, "big") + message


def user(n):
    """A user of `unseen bench`."""
    return f"bench:{n:08}"


def item(n):
    """An id of `unseen bench`."""
    z = n + 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return f"item:{z ^ z >> 31:020}"


def candidates(n, a_month):
    """30 % of them were played by a user of `unseen bench` with so many plays a month."""
    rand = random.Random(1)
    return [item(rand.randrange(MONTHS * a_month) if rand.random() < 0.3 else NEVER_PLAYED + i) for i in range(n)]


def h2load_command(url, body, *options):
    return ["h2load", "-t", "1", *map(str, options), "-d", str(body), url]


def h2load_answered(printed):
    """How many requests, if all were answered well."""
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", printed)
    status = re.search(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx", printed)
    if not (counts and status) or counts[1] == "0" or counts[2] != "0" or counts[4] != "0":
        fail(f"h2load: {printed}")
    return int(counts[1])


def h2load(url, body, *options):
    """What it prints, and how many were answered."""
    done = subprocess.run(h2load_command(url, body, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout, h2load_answered(done.stdout)
