"""GET /metrics: its figures are those of what was really done; promtool takes it; dashboard and alerts use what is there."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from conftest import DAY, HOUR, PATIENCE, REPO, START, run, until
from resp import RespError, encode, flat
from test_http import http_port

PROMTOOL = os.environ.get("UNSEEN_PROMTOOL") or shutil.which("promtool")
ALERTS = REPO / "etc" / "alerts.yml"
ALERTS_TEST = pathlib.Path(__file__).parent / "alerts_test.yml"
DASHBOARD = REPO / "etc" / "grafana-dashboard.json"

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's prometheus) is not there")


def scrape_text(server, token=None):
    request = urllib.request.Request(f"http://127.0.0.1:{http_port(server)}/metrics")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return answer.read().decode()


class Metrics(dict):
    """name{labels} -> value; the labels as they are printed."""

    def __init__(self, text):
        super().__init__()
        self.types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert name not in self, name
                self[name] = float(value)

    def count(self, command):
        return self[f'unseen_command_duration_seconds_count{{command="{command}"}}']

    def errors(self, kind):
        return self[f'unseen_command_errors_total{{kind="{kind}"}}']

    def histogram(self, name, labels=""):
        """[(bound, cumulative count)], in the order of bounds."""
        found = re.compile(re.escape(name) + r"_bucket\{" + re.escape(labels + ("," if labels else "")) + r'le="([^"]+)"\}$')
        return [(float(m.group(1)), value) for key, value in self.items() if (m := found.match(key))]


def scrape(server):
    return Metrics(scrape_text(server))


def scrape_until(server, good):
    return until(lambda: m if good(m := scrape(server)) else None, lambda: dict(scrape(server)))


@pytest.fixture
def web(make_server):
    return make_server(http="127.0.0.1:0")


def test_counts_are_what_was_sent(web):
    before = scrape(web)
    with web.client() as c:
        c.pipeline([("PLAYED", "u1", "a", "b", "c")] * 50 + [("UNSEEN", "u1", "a", "z")] * 4)
        c.command("PLAYEDAT", "u2", START - HOUR, "a")
        c.command("DELIVERED", "u2", "d1", "d2")
        c.command("SEEN", "u1", "a")
        c.command("FILTER", "u1", "LIMIT", 1, "DELIVER", "ITEMS", "x", "y", "a")
        c.command("FILTER", "u1", "ITEMS", "q")
        c.command("FORGET", "u2")
        c.command("WHY", "u1", "a")
        c.command("HISTORY", "u1")
        c.command("BLOCK", "s1", 1, 2, 3)
        c.command("UNBLOCK", "s1", 1)
        c.command("RING", "FLUSH")
        c.command("ring")
        c.command("MONTHS")
        c.command("INFO")
        c.command("PING")
        for words, kind in ((("NONSENSE",), "ERR"), (("PLAYED", "u"), "ERR"), (("UNSEEN", "", "a"), "ERR"),
                            (("HELLO", "9"), "NOPROTO"), (("AUTH", "a"), "ERR")):
            with pytest.raises(RespError, match=f"^{kind}"):
                c.command(*words)
        assert c.pipeline([("MULTI",), ("PLAYED", "u3", "a"), ("SEEN", "u3", "a"), ("EXEC",)]) == [
            b"OK", b"QUEUED", b"QUEUED", [1, [1]]]
    after = scrape(web)
    counts = {name: after.count(name) - before.count(name)
              for name in ("played", "playedat", "delivered", "unseen", "seen", "filter", "filter_deliver", "forget", "why",
                           "history", "block", "unblock", "ring", "months", "info", "other")}
    assert counts == {
        "played": 50 + 1 + 1,  # one had too few words, one was in MULTI
        "playedat": 1,
        "delivered": 1,
        "unseen": 5,
        "seen": 2,
        "filter": 1,
        "filter_deliver": 1,
        "forget": 1,
        "why": 1,
        "history": 1,
        "block": 1,
        "unblock": 1,
        "ring": 2,
        "months": 1,
        "info": 1,
        "other": 1 + 1 + 2 + 4,  # PING, NONSENSE, HELLO and AUTH; MULTI, QUEUED twice, EXEC
    }
    assert after.errors("ERR") - before.errors("ERR") == 4
    assert after.errors("NOPROTO") - before.errors("NOPROTO") == 1

    def rise(name):
        return after[name] - before[name]

    assert rise("unseen_plays_received_total") == 152
    assert rise("unseen_deliveries_received_total") == 3
    assert rise("unseen_rows_recorded_total") == 155
    assert rise("unseen_questions_total") == 8
    assert rise("unseen_candidates_total") == 4 * 2 + 1 + 3 + 1 + 1
    assert rise("unseen_candidates_unseen_total") == 4 + 0 + 2 + 1 + 0
    assert rise("unseen_connections_total") == 2  # the second scrape came on one, too
    assert after["unseen_users_forgotten_total"] == 1
    assert after["unseen_sessions"] == after["unseen_sessions_begun_total"] == 1
    assert after["unseen_month_plays{month=\"2026-11\",state=\"live\"}"] == 3


def test_histograms_hold_what_they_counted(web):
    with web.client() as c:
        for n in range(1, 31):
            c.command("PLAYED", f"u{n}", *[f"i{k}" for k in range(n)])
            c.command("UNSEEN", f"u{n}", "x")
    m = scrape(web)
    for name, kind in m.types.items():
        if kind != "histogram":
            continue
        for labels in {re.sub(r'^[^{]*\{?|,?le="[^"]*"|\}$', "", key) for key in m if key.startswith(name + "_bucket")}:
            buckets = m.histogram(name, labels)
            braces = f"{{{labels}}}" if labels else ""
            assert [bound for bound, _ in buckets] == sorted({bound for bound, _ in buckets}) and len(buckets) > 15
            assert [n for _, n in buckets] == sorted(n for _, n in buckets)
            assert buckets[-1] == (float("inf"), m[f"{name}_count{braces}"])
            # A value lies above the bound before its bucket's, and not above its own.
            least = sum(low * (n - before) for (low, before), (_, n) in zip(buckets, buckets[1:]))
            assert least <= m[f"{name}_sum{braces}"] + 1e-9
    assert m.count("played") == m.count("unseen") == 30
    assert m["unseen_commit_rows_sum"] == m["unseen_rows_recorded_total"] == sum(range(1, 31))
    assert m["unseen_commit_rows_count"] == m["unseen_commits_total"] == m["unseen_commit_duration_seconds_count"] == 30
    assert m.histogram("unseen_commit_rows")[:5] == [(1, 1), (2, 2), (5, 5), (10, 10), (20, 20)]
    # A durable write's time includes that of its commit.
    assert m['unseen_command_duration_seconds_sum{command="played"}'] > m["unseen_commit_duration_seconds_sum"] > 0


def test_a_question_behind_its_own_write_waits_for_the_commit(web):
    with web.client() as c:
        c.pipeline([("PLAYED", "u", "a"), ("UNSEEN", "u", "a")])
    m = scrape(web)
    assert m['unseen_command_duration_seconds_sum{command="unseen"}'] > m["unseen_commit_duration_seconds_sum"] > 0


def test_same_as_info(web):
    with web.client() as c:
        c.command("PLAYED", "u", "a", "b")
        c.command("RING", "FLUSH")
        info = dict(line.split(":", 1) for line in c.command("INFO").decode().splitlines() if ":" in line)
        m = scrape(web)
    for name, metric in (("plays_received", "plays_received_total"), ("rows_recorded", "rows_recorded_total"),
                         ("turns", "turns_total"), ("users_flushed", "users_flushed_total"),
                         ("staged_rows", "staged_rows"), ("history_wal_bytes", "history_wal_bytes"),
                         ("maxclients", "connections_limit"), ("request_memory_limit", "request_memory_limit_bytes"),
                         ("ring_memory_limit", "staged_limit_bytes"), ("connected_clients", "connections")):
        assert float(info[name]) == m[f"unseen_{metric}"], name
    assert float(info["commit_us_max"]) / 1e6 == m["unseen_commit_longest_seconds"]


def test_what_the_filters_cost(web):
    with web.client() as c:
        c.command("PLAYED", "u", *[f"i{k}" for k in range(3000)])
        before = scrape(web)
        c.command("UNSEEN", "u", *[f"x{k}" for k in range(1000)])
        assert scrape(web)["unseen_expected_false_hits_total"] == before["unseen_expected_false_hits_total"]  # still exact
        c.command("RING", "FLUSH")
        for _ in range(10):
            c.command("UNSEEN", "u", *[f"x{k}" for k in range(5000)])
        after = scrape(web)
        error = float(flat(c.command("HISTORY", "u"))["error"])
    cost = after["unseen_expected_false_hits_total"] - before["unseen_expected_false_hits_total"]
    assert cost == pytest.approx(10 * 5000 * error, rel=1e-3) and cost > 0
    assert after["unseen_questions_over_error_rate_total"] == 0
    assert after["unseen_error_rate_limit_ratio"] == 0.001


def test_a_user_above_the_error_rate(make_server):
    """A sealed month spends its share of error_rate; asked under a smaller one, it is above it."""
    web = make_server(http="127.0.0.1:0", error_rate="0.05", window="1", sweep_window="00:00-24:00")
    with web.client() as c:
        c.command("PLAYED", "u", *[f"i{k}" for k in range(100)])
        c.command("RING", "FLUSH")
    for _ in range(15):
        web.advance(DAY)
    m = scrape_until(web, lambda m: m["unseen_months_sealed_total"] == 1)
    assert m['unseen_month_plays{month="2026-11",state="sealed"}'] > 90
    assert m["unseen_seal_last_success_timestamp_seconds"] > 0
    with web.client() as c:
        c.command("UNSEEN", "u", "x")
    assert scrape(web)["unseen_questions_over_error_rate_total"] == 0
    assert web.stop() == 0
    web.options["error_rate"] = "0.001"
    web.start()
    with web.client() as c:
        c.command("UNSEEN", "u", *[f"x{k}" for k in range(100)])
    m = scrape(web)
    assert m["unseen_questions_over_error_rate_total"] == 1
    assert m["unseen_expected_false_hits_total"] / m["unseen_candidates_total"] > 0.04


def test_http_requests(web):
    """They are questions and plays like those of other clients, and have a line for each resource."""
    def ask(method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{http_port(web)}{path}", method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert ask("POST", "/v1/played", {"user": "u", "items": [f"i{k}" for k in range(3000)]}) == 200
    with web.client() as c:
        c.command("RING", "FLUSH")
    assert ask("POST", "/v1/unseen", {"user": "u", "items": [f"x{k}" for k in range(5000)]}) == 200
    assert ask("POST", "/v1/unseen", {"user": "u"}) == 400
    assert ask("GET", "/v1/users/u") == 200
    assert ask("GET", "/v1/users/nobody") == 404
    assert ask("GET", "/nothing") == 404
    assert ask("DELETE", "/v1/played") == 405
    m = scrape(web)

    def count(method, path):
        return m[f'unseen_http_request_duration_seconds_count{{method="{method}",path="{path}"}}']

    assert count("POST", "/v1/played") == 1 and count("POST", "/v1/unseen") == 2
    assert count("GET", "/v1/users/{}") == 2 and count("other", "other") == 2
    assert [m[f'unseen_http_responses_total{{code="{code}"}}'] for code in (200, 400, 404, 405)] == [3, 1, 2, 1]
    duration = m['unseen_http_request_duration_seconds_sum{method="POST",path="/v1/played"}']
    assert duration > m["unseen_commit_duration_seconds_sum"] > 0
    assert m["unseen_questions_total"] == 1 and m["unseen_candidates_total"] == 5000
    assert m["unseen_plays_received_total"] == m["unseen_rows_recorded_total"] == 3000
    with web.client() as c:
        error = float(flat(c.command("HISTORY", "u"))["error"])
    assert m["unseen_expected_false_hits_total"] == pytest.approx(5000 * error, rel=1e-3)
    assert scrape(web)['unseen_http_request_duration_seconds_count{method="GET",path="/metrics"}'] == 1


def test_ring_and_staging(web):
    with web.client() as c:
        c.command("PLAYED", "u1", "a", "b")
        c.command("PLAYED", "u2", "a")
        m = scrape(web)
        assert m["unseen_staged_rows"] == 3 and m["unseen_staged_bytes"] > 0
        assert m['unseen_slot_rows{slot="0"}'] == 3 and m['unseen_slot_users{slot="0"}'] == 2
        assert m['unseen_slot_state{slot="0",state="open"}'] == 1 and m['unseen_slot_state{slot="0",state="empty"}'] == 0
        assert m["unseen_ring_next_turn_timestamp_seconds"] == START / 1000 + 3600
        assert m["unseen_ring_overdue_seconds"] == m["unseen_flush_behind_seconds"] == 0
        assert m["unseen_flush_last_success_timestamp_seconds"] == 0
    web.advance(HOUR)
    m = scrape(web)
    assert m["unseen_turns_total"] == m["unseen_flushes_total"] == 1
    assert m["unseen_staged_rows"] == 0 and m["unseen_plays_flushed_total"] == 3
    assert m['unseen_slot_state{slot="1",state="open"}'] == 1
    assert m["unseen_flush_last_success_timestamp_seconds"] == START / 1000 + 3600
    assert m["unseen_flush_last_duration_seconds"] > 0
    assert m['unseen_month_users{month="2026-11",state="live"}'] == 2
    assert m['unseen_month_filter_bytes{month="2026-11",state="live"}'] > 0


def test_a_flush_that_is_behind(make_server):
    """A shell that holds a snapshot keeps the log of history.db at its limit, and so the flush from going on."""
    web = make_server(http="127.0.0.1:0", wal_limit="4MiB")
    with web.client() as c:
        c.command("PLAYED", "first", "x")
        c.command("RING", "FLUSH")
    shell = subprocess.Popen(["sqlite3", "-readonly", str(web.data / "history.db")], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    try:
        shell.stdin.write("BEGIN; SELECT count(*) FROM users;\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == "1\n"
        with web.client() as c:
            for n in range(40):
                c.pipeline([("PLAYED", f"u{n}-{k}", *[f"i{i}" for i in range(40)]) for k in range(500)])
        web.advance(HOUR)
        web.advance(HOUR // 2)
        m = scrape(web)
        assert m["unseen_flush_behind_seconds"] == pytest.approx(1800, abs=1)
        assert m["unseen_history_wal_pauses_total"] >= 1
        assert m["unseen_history_wal_bytes"] >= 0.8 * m["unseen_history_wal_limit_bytes"]
        assert m["unseen_flush_users"] == 20000 and 0 < m["unseen_flush_users_done"] < 20000
        assert m['unseen_slot_state{slot="1",state="flushing"}'] == 1
    finally:
        shell.stdin.close()
        shell.wait(PATIENCE)
    scrape_until(web, lambda m: m["unseen_flush_behind_seconds"] == 0 and m["unseen_flush_users"] == 0)


def test_refused_and_doubted(make_server):
    web = make_server(http="127.0.0.1:0", min_free="16TiB")
    with web.client() as c:
        with pytest.raises(RespError, match="^MISCONF"):
            c.command("PLAYED", "u", "a")
        m = scrape(web)
        assert m["unseen_writes_refused"] == 1 and m.errors("MISCONF") == 1 and m["unseen_full_refusals_total"] == 1
        assert m["unseen_disk_min_free_bytes"] == 2**44 > m["unseen_disk_free_bytes"] > 0
        assert m["unseen_disk_size_bytes"] >= m["unseen_disk_free_bytes"]
        assert m["unseen_clock_doubted"] == 0
        c.command("DEBUG", "JUMP", -3 * DAY)
    assert scrape(web)["unseen_clock_doubted"] == 1


def test_pages_of_history(web):
    with web.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("RING", "FLUSH")
        before = scrape(web)
        for _ in range(320):
            c.command("UNSEEN", "u", "a")
    m = scrape(web)
    assert m["unseen_cache_hits_total"] - before["unseen_cache_hits_total"] >= 320
    assert m["unseen_cache_misses_total"] > 0


def test_the_process(web):
    m = scrape(web)
    status = pathlib.Path(f"/proc/{web.process.pid}/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024
    assert m["process_resident_memory_bytes"] == pytest.approx(resident, rel=0.2)
    assert m["process_open_fds"] == pytest.approx(len(os.listdir(f"/proc/{web.process.pid}/fd")), abs=2)
    assert m["process_start_time_seconds"] == START / 1000
    assert m["process_cpu_seconds_total"] > 0
    assert m["unseen_workers"] == 2 and m["unseen_loading"] == 0
    version = run("version").stdout.decode().split()[1]
    assert f'unseen_build_info{{version="{version}",' in scrape_text(web)


def test_password(make_server):
    web = make_server(http="127.0.0.1:0", requirepass="secret")
    with pytest.raises(urllib.error.HTTPError) as refused:
        scrape_text(web)
    assert refused.value.code == 401
    m = Metrics(scrape_text(web, "secret"))
    with web.client() as c:
        with pytest.raises(RespError, match="^NOAUTH"):
            c.command("PING")
        with pytest.raises(RespError, match="^WRONGPASS"):
            c.command("AUTH", "wrong")
    after = Metrics(scrape_text(web, "secret"))
    assert after.errors("NOAUTH") - m.errors("NOAUTH") == 1
    assert after.errors("WRONGPASS") - m.errors("WRONGPASS") == 1


@pytest.mark.threads
def test_under_load(web):
    """Writers, askers and scrapers at once: nothing ever falls, and in the end every command was counted."""
    rounds, workers = 40, 4
    done = threading.Event()
    problems = []

    def load(n):
        try:
            with web.client() as c:
                for i in range(rounds):
                    c.pipeline([("PLAYED", f"u{n}", f"i{i}-{k}", "x") for k in range(20)] + [("UNSEEN", f"u{n}", "x", "y")] * 5)
        except Exception as e:  # noqa: BLE001
            problems.append(e)

    def watch():
        last = scrape(web)
        try:
            while not done.is_set():
                m = scrape(web)
                for name, value in last.items():
                    kind = m.types.get(re.sub(r"\{.*", "", name), "histogram")
                    if kind != "gauge" and m[name] < value:
                        problems.append((name, value, m[name]))
                last = m
        except Exception as e:  # noqa: BLE001
            problems.append(e)

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    loaders = [threading.Thread(target=load, args=(n,)) for n in range(workers)]
    for t in watchers + loaders:
        t.start()
    with web.client() as c:
        for _ in range(5):
            c.command("RING", "FLUSH")
    for t in loaders:
        t.join()
    done.set()
    for t in watchers:
        t.join()
    assert not problems
    m = scrape(web)
    assert m.count("played") == rounds * workers * 20
    assert m.count("unseen") == rounds * workers * 5 == m["unseen_questions_total"]
    assert m["unseen_rows_recorded_total"] == m["unseen_commit_rows_sum"] == rounds * workers * 40
    assert m["unseen_plays_received_total"] == rounds * workers * 40


def test_a_client_that_leaves_is_counted_too(web):
    with web.client() as c:
        c.send(encode("PLAYED", "u", "a") * 100)
    m = scrape_until(web, lambda m: m["unseen_rows_recorded_total"] == 100 and m["unseen_connections"] == 0)
    assert m.count("played") == 100


def promtool(*args, **kwargs):
    result = subprocess.run([PROMTOOL, *map(str, args)], capture_output=True, text=True, timeout=PATIENCE, **kwargs)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


@needs_promtool
def test_promtool_takes_the_metrics(web):
    with web.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("RING", "FLUSH")
    assert promtool("check", "metrics", input=scrape_text(web)) == ""


@needs_promtool
def test_promtool_takes_the_alerts():
    assert "SUCCESS" in promtool("check", "rules", ALERTS)
    assert "SUCCESS" in promtool("test", "rules", ALERTS_TEST, cwd=ALERTS_TEST.parent)


def test_every_alert_is_explained_and_tested():
    alerts = re.split(r"^      - alert: ", ALERTS.read_text(), flags=re.M)[1:]
    cases = re.split(r"^  - name: ", ALERTS_TEST.read_text(), flags=re.M)[1:]
    silent = {case.split("\n", 1)[0] for case in cases if "exp_samples: []" in case}
    tested = set(re.findall(r'alertname="(\w+)",alertstate="firing"', ALERTS_TEST.read_text()))
    assert len(alerts) >= 10
    for text in alerts:
        name = text.split("\n", 1)[0]
        for part in ("summary", "description", "action"):
            assert re.search(rf"^          {part}: ", text, re.M), (name, part)
        assert re.search(r"^          severity: (critical|warning)$", text, re.M), name
        assert name in tested, f"{name} has no test in {ALERTS_TEST}"
        assert name in silent, f"{name} is never silent in {ALERTS_TEST}"


def used_metrics(expr):
    expr = re.sub(r'"[^"]*"', '""', expr)
    return set(re.findall(r"\b((?:unseen|process)_[a-z_]+)\b", expr))


def served_names(server):
    names = set()
    for name, kind in scrape(server).types.items():
        if kind == "histogram":
            names.add(f"{name}_bucket")
        names |= {f"{name}_sum", f"{name}_count"} if kind in ("histogram", "summary") else {name}
    return names


def test_dashboard_and_alerts_use_what_is_served(make_server, folder):
    served = served_names(make_server(http="127.0.0.1:0", front_redis="127.0.0.1:1",  # where nobody listens
                                      archive_url=f"file://{folder}/archive"))
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [p for p in dashboard["panels"] if p["type"] != "row"]
    assert len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"])
    assert len(panels) >= 15
    used = set()
    for panel in panels:
        assert panel["title"] and panel["description"] and panel["targets"], panel["title"]
        for target in panel["targets"]:
            found = used_metrics(target["expr"])
            assert found and found <= served, (panel["title"], found - served)
            used |= found
    for part in ("replica", "feed", "front", "hedge", "pool", "grpc", "tls", "kafka", "mirror", "migration", "backup",
                 "archive", "policy"):
        assert any(name.startswith(f"unseen_{part}") for name in used), part
    for variable in dashboard["templating"]["list"]:
        assert used_metrics(variable["query"] if isinstance(variable["query"], str) else "") <= served
    alerts = used_metrics("\n".join(re.findall(r"^        expr: (.*(?:\n {10}.*)*)", ALERTS.read_text(), re.M)))
    assert len(alerts) >= 10 and alerts <= served, alerts - served


@needs_promtool
def test_the_dashboards_expressions_can_be_parsed(folder):
    """As rules, since promtool reads those; the dashboard's variables stand for something."""
    rules = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            expr = target["expr"].replace("$__rate_interval", "5m").replace("$instance", "a")
            rules.append({"record": f"panel:{panel['id']}:{len(rules)}", "expr": expr})
    path = folder / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert "SUCCESS" in promtool("check", "rules", path)
