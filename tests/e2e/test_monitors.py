"""What monitors and clients ask before anything else, read as they read it: Redis's names have Redis's forms."""
import re

import pytest
import redis

from resp import RespError, flat


def sections(text):
    """As predis takes INFO apart, which fails at a title that is no word."""
    found, title = {}, None
    for line in text.split("\r\n"):
        if line.startswith("#"):
            title = re.fullmatch(r"# (\w+)", line)[1]
            found[title] = {}
        elif line:
            name, value = line.split(":", 1)
            assert re.fullmatch(r"[a-z][A-Za-z0-9_]*", name), line
            assert name not in found[title], line
            found[title][name] = value
    return found


def test_info_is_in_the_grammar_of_its_readers(server):
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        shown = {words: sections(c.command("INFO", *words).decode())
                 for words in ((), ("default",), ("all",), ("everything",), ("server", "Readthrough", "clients"))}
    for value in (value for lines in shown["all",].values() for value in lines.values()):
        assert "=" not in value or all("=" in item for item in value.split(",")), value  # which redis-py 4 wants
    default, every, three = list(shown[()]), list(shown["all",]), list(shown["server", "Readthrough", "clients"])
    assert list(shown["default",]) == default and list(shown["everything",]) == every
    assert set(every) - set(default) == {"Commandstats", "Latencystats", "Modules"} and set(default) < set(every)
    assert three == ["Server", "Clients", "Readthrough"]


def test_one_answer_to_who_this_is(server):
    """coredis, Lettuce and StackExchange.Redis take the version from HELLO, others from INFO."""
    with server.client(protocol=3) as c:
        hello = c.command("HELLO")
        info = sections(c.command("INFO").decode())
        assert hello[b"version"].decode() == info["Server"]["redis_version"]
        assert (hello[b"role"], c.command("ROLE")[0]) == (b"master", b"master")
        assert hello[b"mode"].decode() == info["Server"]["redis_mode"]
        assert info["Clients"]["maxclients"] == c.command("CONFIG", "GET", "maxclients")[b"maxclients"].decode()
        assert info["Memory"]["maxmemory"] == c.command("CONFIG", "GET", "maxmemory")[b"maxmemory"].decode()


def test_a_fenced_node_is_no_master_to_anyone(server):
    with server.client(protocol=3) as c:
        c.command("REPLICA", "MEET", 5, "00000000000000aa", "b:1")
        assert c.command("HELLO")[b"role"] == b"replica"
        assert c.command("ROLE")[0] == b"slave"
        assert sections(c.command("INFO", "replication").decode())["Replication"]["role"] == "slave"


def test_the_options_that_tools_ask_for(make_server):
    """Datadog's check fails as a whole without slowlog-max-len, redis-benchmark warns without save and appendonly, and
    StackExchange.Redis asks for timeout, databases and replica-read-only."""
    server = make_server(max_clients="77", idle_timeout="5min", slowlog_slower_than="20ms")
    r = redis.Redis(port=server.port, decode_responses=True)
    assert r.config_get("slowlog-max-len") == {"slowlog-max-len": "128"}
    wanted = {"maxclients": "77", "timeout": "300", "slowlog-log-slower-than": "20000", "databases": "1", "save": "",
              "appendonly": "yes", "maxmemory": "0", "maxmemory-policy": "noeviction", "replica-read-only": "yes"}
    for name, value in wanted.items():
        assert r.config_get(name) == {name: value}
    assert r.config_get("no-such-option") == {}
    with server.client() as c:
        several = flat(c.command("CONFIG", "GET", "max*", "timeout", "max_clients", "no-such-option"))
    assert list(several) == ["max_clients", "max_clients_per_address", "maxclients", "maxmemory", "maxmemory-policy",
                             "timeout"]
    r.close()


def test_what_was_asked_and_what_failed(make_server):
    """redis_exporter, Telegraf and Datadog read cmdstat_ and errorstat_; LATENCY HISTOGRAM tells the same."""
    server = make_server(requirepass="secret")
    r = redis.Redis(port=server.port, password="secret")
    with server.client() as stranger, pytest.raises(Exception, match="NOAUTH"):
        stranger.command("SEEN", "u", "a")
    r.execute_command("PLAYED", "u", "a")
    for words in (("SEEN", "u"), ("SEEN", "", "a")):
        with pytest.raises(redis.ResponseError):
            r.execute_command(*words)
    assert r.execute_command("SEEN", "u", "a") == [1]
    shown = r.info("commandstats")
    assert shown["cmdstat_played"]["calls"] == 1 and shown["cmdstat_played"]["failed_calls"] == 0
    seen = shown["cmdstat_seen"]
    assert (seen["calls"], seen["rejected_calls"], seen["failed_calls"]) == (4, 2, 1)
    assert seen["usec_per_call"] == pytest.approx(seen["usec"] / 4, abs=0.01)
    with server.client() as c:
        c.command("AUTH", "secret")
        errors = sections(c.command("INFO", "errorstats").decode())["Errorstats"]
    assert (errors["errorstat_ERR"], errors["errorstat_NOAUTH"]) == ("count=2", "count=1")
    assert set(r.info("latencystats")["latency_percentiles_usec_seen"]) == {"p50", "p99", "p99.9"}
    name, (_, calls, _, histogram) = r.execute_command("LATENCY", "HISTOGRAM", "seen")
    assert (name, calls, histogram[-1]) == (b"seen", 4, 4)
    assert histogram[1::2] == sorted(histogram[1::2])
    r.close()


def test_connections_are_closed_by_what_holds_for_them(make_server):
    server = make_server(workers="2")
    with server.client() as admin:
        def fields(c):
            return dict(field.split("=", 1) for field in c.command("CLIENT", "INFO").decode().split())

        def kill(*words):
            others = [server.client() for _ in range(3)]
            shown = [fields(c) for c in others]
            killed = admin.command("CLIENT", "KILL", *(word.format(**shown[1]) for word in words))
            ids = admin.command("CLIENT", "LIST").decode()
            left = [f"id={one['id']} " in ids for one in shown]
            for c, there in zip(others, left):
                assert there or c.at_end()
                c.close()
            return killed, left

        one = [True, False, True]
        assert kill("{addr}") == (b"OK", one)
        assert kill("ID", "{id}") == (1, one)
        assert kill("ADDR", "{addr}", "LADDR", "{laddr}", "USER", "default") == (1, one)
        with pytest.raises(RespError, match="No such user 'somebody'"):
            admin.command("CLIENT", "KILL", "USER", "somebody")
        admin.command("DEBUG", "ADVANCE", 5000)
        assert kill("MAXAGE", "5", "ID", "{id}") == (0, [True] * 3)
        killed, left = kill("TYPE", "normal")
        assert killed >= 3 and left == [False] * 3  # and not who asks
        assert admin.command("CLIENT", "KILL", fields(admin)["addr"]) == b"OK"
        assert admin.at_end()


def test_how_many_users_there_are(make_server):
    """As keys, for tools that know only those: counted where they are staged, and where they are stored."""
    r = redis.Redis(port=make_server().port)
    assert r.dbsize() == 0 and r.memory_usage("u1") is None
    for user in ("u1", "u2", "u3"):
        r.execute_command("PLAYED", user, "a", "b")
    assert r.dbsize() == 3 and r.memory_usage("u1") == 0
    r.execute_command("RING", "FLUSH")
    assert r.dbsize() == 3 and r.memory_usage("u1") > 0
    assert r.memory_stats()["total.allocated"] == pytest.approx(r.info("memory")["used_memory"], rel=0.5)
    r.close()
