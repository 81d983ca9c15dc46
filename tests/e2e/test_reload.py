"""SIGHUP: what may change while the server runs changes, what needs a restart is named, what is wrong changes nothing."""
import json
import re
import signal
import threading

import pytest

from conftest import DAY, HOUR, REPO, START, free_port, until
from resp import Closed, RespError
from test_repair import key_of, months_table, spoil

OPTIONS = re.findall(r'\.name = "(\w+)".*?\.change = CHANGE_(\w+)',
                     "".join(f.read_text() for f in sorted((REPO / "src/config").glob("options*.[ci]*"))), re.S)
LIVE = {
    "requirepass": "hush", "idle_timeout": "10min", "retention": "12", "window": "2", "error_rate": "0.01",
    "staging_memory": "64MiB", "request_memory": "32MiB", "wal_limit": "16MiB", "min_free": "1MiB",
    "sweep_window": "01:00-02:00", "delivered_max": "7", "skewed_time": "now", "on_damage": "answer",
    "session_ttl": "1min", "session_memory": "4MiB", "rados_memory": "64MiB", "pool_memory": "4MiB", "history_memory": "1MiB", "log_level": "debug", "slowlog_slower_than": "1s", "question_timeout": "1s",
    "hedge_after": "7ms",
    "legacy_password": "secret", "registry_token": "hidden", "lock_password": "hidden", "legacy_user": "someone", "legacy_sentinel_user": "watched",
    "legacy_sentinel_password": "seen", "legacy_months": "7", "legacy_users_rate": "9",
    "legacy_bytes_rate": "1MiB",
    "legacy_mirror_max": "2GiB", "backup_root": "none", "backup_at": "03:30", "backup_keep": "3",
    "legacy_read_through": "yes", "legacy_timeout": "20ms", "http_hosts": "unseen.example.org",
    "feed_max": "2GiB", "replica_ack": "replica", "replica_ack_timeout": "20ms", "replica_max_age": "1min", "replica_start": "when-heard",
    "front_user": "someone", "front_password": "secret", "front_sentinel_user": "watched", "front_sentinel_password": "seen",
    "archive_every": "20s", "archive_keep": "40d", "archive_rounds": "8d", "archive_rate": "1MiB",
    "front_users_rate": "9", "front_max_age": "1min", "kafka_dead_letters_max": "2MiB",
    "tls_cert": "/tmp/cert.pem", "tls_key": "/tmp/key.pem", "client_ca": "/tmp/ca.pem",  # test_tls.py has real ones
}
FILES = {"requirepass_file", "legacy_password_file", "registry_token_file", "lock_password_file", "front_password_file", "accounts"}  # are read again too: test_doors.py, test_accounts.py
RESTART = {
    "rados_conf": "/tmp/ceph.conf", "rados_pool": "other", "rados_user": "client.other", "rados_timeout": "3s",
    "data": "/tmp/elsewhere", "expect_data": "yes", "modules": "/tmp", "store": "memory", "listen": "127.0.0.1:1", "http": "127.0.0.1:1",
    "grpc": "127.0.0.1:1", "unix_socket": "/tmp/elsewhere.sock", "max_clients": "99", "max_clients_per_address": "9",
    "unix_socket_mode": "0660", "unix_socket_group": "root",
    "tls_ca": "/tmp/ca.pem", "workers": "1", "slots": "9", "slot_length": "2h", "timezone": "Europe/Berlin", "hash_seed": "0123456789abcdef",
    "legacy_redis": "127.0.0.1:1", "legacy_cluster": "no", "legacy_sentinel": "127.0.0.1:1/name", "legacy_database": "7", "legacy_played_key": "p:{user}",
    "legacy_delivered_key": "d:{user}", "legacy_score": "s", "legacy_mirror": "yes",
    "kafka_brokers": "127.0.0.1:1", "kafka_topics": "plays", "kafka_group": "g", "kafka_start": "latest", "kafka_format": "csv",
    "kafka_prefix": "confluent", "kafka_key": "user", "kafka_user": "u", "kafka_item": "i", "kafka_time": "t",
    "kafka_time_unit": "iso", "kafka_dead_letters": "/tmp/letters", "kafka_type": "kind", "kafka_play": "seen", "kafka_delivery": "sent",
    "kafka_properties": "rdkafka.client.id=x",
    "registry_consul": "http://127.0.0.1:1", "registry_datacenter": "dc2", "registry_name": "seen",
    "registry_tags": "a,b", "registry_address": "host", "registry_check": "grpc",
    "lock_etcd": "http://127.0.0.1:1", "lock_kubernetes": "in-cluster", "lock_name": "seen", "lock_namespace": "films",
    "lock_user": "someone", "lock_token_file": "/tmp/token", "lock_ca": "/tmp/ca.pem", "lock_cert": "/tmp/cert.pem",
    "lock_key": "/tmp/key.pem",
    "replica_of": "127.0.0.1:1", "replica_user": "someone", "replica_password": "secret", "replica_address": "host:1",
    "replica_failover": "in-step", "replica_hedge": "yes",
    "archive_url": "file:///tmp/elsewhere", "archive_endpoint": "http://127.0.0.1:1", "archive_region": "eu-west-1",
    "archive_path_style": "yes", "archive_keys_file": "/tmp/keys",
    "archive_key_file": "/tmp/key", "archive_old_key_file": "none",
    "front_redis": "127.0.0.1:1", "front_sentinel": "127.0.0.1:1/name", "front_database": "7", "front_prefix": "p:",
}
SECRET = ("requirepass", "hash_seed", "legacy_password", "legacy_sentinel_password", "registry_token", "lock_password",
          "replica_password", "front_password", "front_sentinel_password")
ENDS = ("configuration read again", "configuration not read again")


def reload(server, text=None, gone=False, **options):
    """Returns what the log says about it."""
    before = len(server.log())
    server.options.update(options)
    if gone:
        server.config.unlink()
    elif text is None:
        server.write_config()
    else:
        server.config.write_text(text)
    server.process.send_signal(signal.SIGHUP)

    def answer():
        said = server.log()[before:]
        return said if said.endswith("\n") and any(end in said for end in ENDS) else ""

    return until(answer, lambda: f"no answer to SIGHUP\n{server.log()}")


def config(client, name):
    return client.command("CONFIG", "GET", name)[1].decode()


def refusal(client, *words):
    with pytest.raises(RespError) as e:
        client.command(*words)
    return str(e.value)


def test_the_tables_of_this_test_are_whole():
    assert {name for name, change in OPTIONS if change == "LIVE"} == set(LIVE) | FILES | {"log_format"}  # see test_log_format
    assert {name for name, change in OPTIONS if change != "LIVE"} == set(RESTART) | {
        "kafka_password_file", "replica_password_file"}  # test_config_kafka.c, test_config.c


@pytest.mark.parametrize("name", LIVE)
def test_a_live_option(make_server, name):
    needs = {"legacy_redis": "127.0.0.1:1"} if name == "legacy_read_through" else {}  # it would be no use alone
    server = make_server(**needs)
    client = server.client()
    old = config(client, name)
    assert old != LIVE[name]
    said = reload(server, **{name: LIVE[name]})
    assert "changed=1 need_restart=0" in said, said
    shown = "********" if name in SECRET else LIVE[name]
    assert f'option changed name={name} from="{old}" to="{shown}"' in said
    assert config(client, name) == shown
    assert "hush" not in server.log()
    assert "changed=0 need_restart=0" in reload(server)
    client.close()


@pytest.mark.parametrize("name", RESTART)
def test_an_option_that_needs_a_restart(server, client, name):
    old = config(client, name)
    needs = {"legacy_mirror": "legacy_redis", "kafka_brokers": "kafka_topics", "replica_failover": "registry_consul"}.get(name)  # it would be no use alone
    besides = {needs: RESTART[needs]} if needs else {}
    said = reload(server, **{name: RESTART[name]}, **besides)
    assert f"changed=0 need_restart={1 + len(besides)}" in said, said
    cause = "it belongs to the folder" if name == "hash_seed" else "it needs a restart"
    shown = "********" if name in SECRET else RESTART[name]
    assert f'option not changed: {cause} name={name} runs_with="{old}" file="{shown}"' in said
    assert config(client, name) == old
    assert RESTART["hash_seed"] not in server.log()
    assert f"need_restart={1 + len(besides)}" in reload(server), "told again as long as it is so"


def test_what_is_wrong_changes_nothing(server, client):
    good = server.config.read_text()
    said = reload(server, text=good + "retention = 12\nslots = 1\nretentoin = 3\nwindow\n")
    lines = len(good.splitlines())
    for number, problem in ((2, "slots is"), (3, "there is no option"), (4, "expected name = value")):
        assert f"unseen.conf:{lines + number}: {problem}" in said, said
    assert "option changed" not in said
    assert config(client, "retention") == "6"
    said = reload(server, text=good + "retention = 2\nwindow = 3\n")
    assert "window is 3 months, but retention keeps only 2" in said
    assert config(client, "retention") == "6"
    assert "No such file" in reload(server, gone=True)
    assert client.command("PING") == b"PONG"


def test_what_only_a_restart_would_make_good(make_server):
    server = make_server(requirepass="hush")
    assert server.stop() == 0
    server.options["listen"] = f"0.0.0.0:{server.port}"
    server.start()
    said = reload(server, requirepass="", listen="127.0.0.1:0", retention="12")
    assert f"until a restart: listen is 0.0.0.0:{server.port}" in said and "option changed" not in said, said


def test_the_command_line_of_the_start_wins(server):
    assert server.stop() == 0
    before = len(server.log())
    server.spawn("--retention", "9", "--port", str(server.port))
    until(lambda: "info ready" in server.log()[before:], server.log)
    said = reload(server, retention="12", window="5", listen="127.0.0.1:1")
    assert "changed=1 need_restart=0" in said, said
    with server.client() as c:
        assert (config(c, "retention"), config(c, "window")) == ("9", "5")


def test_password(server):
    with server.client() as old:
        assert old.command("PING") == b"PONG"
        reload(server, requirepass="hush")
        assert old.command("PLAYED", "u", "a") == 1, "who was let in stays"
        with server.client() as c:
            assert refusal(c, "PLAYED", "u", "b").startswith("NOAUTH")
            assert c.command("AUTH", "hush") == b"OK"
            reload(server, requirepass="quiet")
            assert c.command("PING") == b"PONG"
        with server.client() as c:
            assert refusal(c, "AUTH", "hush").startswith("WRONGPASS")
            assert c.command("AUTH", "quiet") == b"OK"
        with server.client() as waiting:
            assert refusal(waiting, "PING").startswith("NOAUTH")
            reload(server, requirepass="")
            assert waiting.command("PING") == b"PONG", "nobody is asked any more"


def test_idle_timeout(server):
    with server.client() as c:
        c.command("PING")
        server.advance(HOUR)
        assert c.command("PING") == b"PONG"
        reload(server, idle_timeout="10min")
        server.advance(HOUR)
        with pytest.raises((Closed, OSError)):
            c.command("PING")


def test_retention_and_skewed_time(server, client):
    old = START - 400 * DAY
    assert "past retention" in refusal(client, "PLAYEDAT", "u", old, "a")
    reload(server, retention="24")
    assert client.command("PLAYEDAT", "u", old, "a") == 1
    reload(server, retention="6")
    assert "past retention" in refusal(client, "PLAYEDAT", "u", old, "b")
    reload(server, skewed_time="now")
    assert client.command("PLAYEDAT", "u", old, "b") == 1
    assert client.command("UNSEEN", "u", "b") == []


def test_window(server, client):
    client.command("PLAYEDAT", "u", START - 65 * DAY, "a")
    client.command("RING", "FLUSH")
    assert client.command("UNSEEN", "u", "a") == []
    reload(server, window="1")
    assert client.command("UNSEEN", "u", "a") == [b"a"]
    reload(server, window="3")
    assert client.command("UNSEEN", "u", "a") == []


def test_sweep_window_and_retention_of_what_is_stored(server, client):
    client.command("PLAYEDAT", "u", START - 130 * DAY, "a")
    client.command("RING", "FLUSH")
    months = client.command("MONTHS")
    assert len(months) == 1
    reload(server, retention="3", window="3")
    server.advance(1000)
    assert client.command("MONTHS") != [], "not at this hour"
    assert "past retention, swept in the coming nights months=1 plays=1 retention=3" in server.log()
    reload(server, sweep_window="09:00-12:00")
    server.advance(1000)
    month = client.command("MONTHS")[0]
    assert b"expiring" in month and month[month.index(b"month") + 1] == b"2026-07", month


def test_error_rate_of_what_is_sealed(make_server):
    """Sealing goes by the rate in force: a tenth of it is more bytes."""
    sizes = []
    for rate in ("0.001", "0.0001"):
        server = make_server(clock=START, sweep_window="00:00-24:00")
        with server.client() as c:
            reload(server, error_rate=rate)
            c.command("PLAYEDAT", "u", START - 30 * DAY, *range(2000))
            c.command("RING", "FLUSH")
            server.advance(HOUR)
            month = c.command("MONTHS")[0]
            assert b"sealed" in month, month
            sizes.append(month[month.index(b"bytes") + 1])
    assert sizes[1] > 1.1 * sizes[0], sizes


def test_memory(server, client):
    def info(name):
        return int(re.search(rf"^{name}:(\d+)", client.command("INFO").decode(), re.M)[1])
    reload(server, staging_memory="64MiB", request_memory="16MiB")
    assert info("ring_memory_limit") == 64 << 20
    assert info("request_memory_limit") == 16 << 20
    # A request may take an eighth of it; on this connection too, though it is older.
    client.sock.sendall(b"*3\r\n$6\r\nPLAYED\r\n$1\r\nu\r\n$3000000\r\n")
    assert "Protocol error" in str(client.read())


def test_min_free(server, client):
    assert client.command("PLAYED", "u", "a") == 1
    reload(server, min_free="16TiB")
    server.advance(1000)
    assert "min_free" in refusal(client, "PLAYED", "u", "b")
    assert client.command("UNSEEN", "u", "b") == [b"b"]
    reload(server, min_free="0")
    server.advance(1000)
    assert client.command("PLAYED", "u", "b") == 1


def test_delivered_max(server, client):
    client.command("DELIVERED", "u", "a", "b", "c")
    reload(server, delivered_max="2")
    assert client.command("UNSEEN", "u", "a", "b", "c") == [b"a"]
    client.command("RING", "FLUSH")
    reload(server, delivered_max="3")
    assert client.command("UNSEEN", "u", "a", "b", "c") == [b"a"], "what was dropped stays so"


def test_on_damage(server):
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("RING", "FLUSH")
    assert server.stop() == 0
    spoil(server, f"UPDATE {months_table(server)} SET filter = x'20ffffffff' WHERE user_key = ?", key_of(server, "u"))
    server.start()
    with server.client() as c:
        assert "can't be read" in refusal(c, "UNSEEN", "u", "a")
        reload(server, on_damage="answer")
        assert c.command("UNSEEN", "u", "a") == [b"a"]
        reload(server, on_damage="error")
        assert "can't be read" in refusal(c, "UNSEEN", "u", "a")


def test_log_level(server, client):
    reload(server, log_level="error")
    before = len(server.log())
    client.command("PLAYED", "u", "a")
    client.command("RING", "FLUSH")
    assert server.log()[before:] == ""
    said = reload(server, log_level="info")
    assert 'option changed name=log_level from="error" to="info"' in said
    client.command("PLAYED", "u", "b")
    client.command("RING", "FLUSH")
    assert "flush done" in server.log()


def test_changes_under_load(make_server):
    """For a sanitizer above all: every live option changes again and again while questions and writes go on."""
    server = make_server(clock=None, retention="24", legacy_redis="127.0.0.1:1")
    ends = threading.Event()
    asked = [0, 0, 0]

    def load(n):
        with server.client() as c:
            while not ends.is_set():
                c.command("PLAYED", f"u{n}", *range(asked[n], asked[n] + 50))
                c.command("DELIVERED", f"u{n}", "d")
                assert c.command("UNSEEN", f"u{n}", asked[n], "new") == [b"new"]
                c.command("HISTORY", f"u{n}")
                c.command("INFO")
                asked[n] += 50
    threads = [threading.Thread(target=load, args=(n,)) for n in range(len(asked))]
    for thread in threads:
        thread.start()
    try:
        before = {**server.options}
        for _ in range(10):
            assert f"changed={len(LIVE) - 1}" in reload(server, **{**LIVE, "requirepass": ""})
            assert f"changed={len(LIVE) - 1}" in reload(server, **{name: before.get(name, default(name)) for name in LIVE})
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert all(n > 0 for n in asked)


def default(name):
    section, _, short = name.partition("_")
    if section not in ("archive", "legacy", "kafka", "lock", "registry", "replica", "front"):
        section, short = "unseen", name
    text = (REPO / "etc/unseen.conf").read_text()
    return re.search(rf"^#{short} = ?(.*)$", text[text.index(f"\n[{section}]"):], re.M)[1]


def test_log_format(server):
    assert 'option changed name=log_format from="logfmt" to="json"' in reload(server, log_format="json")
    said = [json.loads(line) for line in reload(server, log_format="logfmt").splitlines()]
    assert said[-1]["changed"] == 1
    assert "changed=0 need_restart=0" in reload(server)


def test_sessions(server, client):
    client.command("BLOCK", "scroll", 7)
    server.advance(5 * 60 * 1000)
    assert client.command("FILTER", "u", "SESSION", "scroll", "ITEMS", 7, 8) == [b"8"]
    reload(server, session_ttl="1min")
    server.advance(5 * 60 * 1000)
    assert client.command("FILTER", "u", "SESSION", "scroll", "ITEMS", 7, 8) == [b"7", b"8"]
    reload(server, session_memory="2MiB")
    assert b"session_memory_limit:2097152\r\n" in client.command("INFO")
