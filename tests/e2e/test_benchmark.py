"""redis-benchmark with our commands: that it runs and every request is answered well, not how fast."""
import csv
import io
import subprocess

import pytest


def bench(server, requests, *words):
    done = subprocess.run(
        ["redis-benchmark", "-p", str(server.port), "-n", str(requests), "-c", "20", "-P", "16", "-r", "100000",
         "-e", "--csv", *words], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERR" not in done.stdout + done.stderr, done.stdout + done.stderr
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert float(rows[-1][1]) > 0
    return float(rows[-1][1])


@pytest.mark.slow
def test_redis_benchmark(server):
    bench(server, 20000, "PLAYED", "u:__rand_int__", "i:__rand_int__")
    bench(server, 20000, "UNSEEN", "u:__rand_int__", "i:__rand_int__", "i:__rand_int__")
    bench(server, 4800, "DELIVERED", "u:__rand_int__", "i:__rand_int__")
    bench(server, 20000, "PING")
    with server.client() as c:
        rows = int(server.sqlite("staging.db", "SELECT count(*) FROM staged"))
        assert rows == 24800
        assert c.command("RING", "FLUSH")
    assert server.sqlite("staging.db", "SELECT count(*) FROM staged") == "0"


def test_its_own_tests_of_ping(server):
    done = subprocess.run(["redis-benchmark", "-p", str(server.port), "-n", "1000", "-t", "ping", "--csv"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "PING_INLINE" in done.stdout, done.stdout + done.stderr
