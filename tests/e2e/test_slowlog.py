"""SLOWLOG, as Redis has it."""
import pytest

from resp import RespError


@pytest.fixture
def all_slow(make_server):
    """Every command is one that took 0 ms or longer."""
    return make_server(slowlog_slower_than="0", requirepass="secret")


@pytest.fixture
def client(all_slow):
    with all_slow.client() as c:
        c.command("AUTH", "secret")
        c.command("CLIENT", "SETNAME", "me")
        c.command("SLOWLOG", "RESET")
        yield c


def entries(client, *count):
    return client.command("SLOWLOG", "GET", *count)


def test_fast_commands_are_not_in_it(make_server):
    server = make_server(slowlog_slower_than="1h")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
        c.command("UNSEEN", "u", "a")
        assert c.command("SLOWLOG", "LEN") == 0 and entries(c) == []


def test_what_an_entry_says(all_slow, client):
    commands = [("UNSEEN", "u", "a", "b"), ("PLAYED", "u", "a"), ("PLAYEDAT", "u", str(all_slow.clock), "b", "c"),
                ("FILTER", "u", "LIMIT", "1", "DELIVER", "ITEMS", "x", "y"), ("FORGET", "u"), ("RING", "FLUSH")]
    for command in commands:
        client.command(*command)
    shown = entries(client)[::-1]
    assert shown[0][3] == [b"SLOWLOG", b"RESET"]
    wanted = [[arg.encode() for arg in command] for command in commands]
    wanted[1][0], wanted[2][0] = b"played", b"playedat"
    wanted[3] = [b"filter", b"u", b"x"]  # what is recorded
    assert [entry[3] for entry in shown[1:]] == wanted
    first = shown[0][0]
    for i, (id, at, us, _, address, name) in enumerate(shown):
        assert (id, at, name) == (first + i, all_slow.clock // 1000, b"me") and 0 <= us < 60_000_000
        assert address.startswith(b"127.0.0.1:")


def test_a_slow_commit(make_server):
    """The time is that until the reply, which waits for the stager."""
    server = make_server(slowlog_slower_than="400ms")
    with server.client() as c, server.client() as other:
        while not c.command("SLOWLOG", "LEN"):  # its next beat may be the one after this write, or 500 ms are over before it
            other.command("DEBUG", "STALL", "stager", 500)
            c.command("PLAYED", "u", "a")
        newest = entries(c)[0]
        assert newest[3] == [b"played", b"u", b"a"] and newest[2] >= 400_000


def test_long_ones_are_cut(client):
    client.command("UNSEEN", "u", "x" * 129, *["i"] * 40)
    args = entries(client, 1)[0][3]
    assert len(args) == 32 and args[2] == b"x" * 128 + b"... (1 more bytes)" and args[31] == b"... (12 more arguments)"
    client.command("PLAYED", "u", *[str(n) for n in range(40)])
    args = entries(client, 1)[0][3]
    assert len(args) == 32 and args[30] == b"28" and args[31] == b"... (11 more arguments)"


def test_the_newest_128(client):
    for _ in range(200):
        client.command("PING")
    assert client.command("SLOWLOG", "LEN") == 128
    assert len(entries(client)) == 10 and len(entries(client, 3)) == 3 and entries(client, 0) == []
    everything = entries(client, -1)
    assert len(everything) == 128
    ids = [entry[0] for entry in everything]
    assert ids == list(range(ids[0], ids[0] - 128, -1))
    assert client.command("SLOWLOG", "RESET") == b"OK"
    assert [entry[3] for entry in entries(client)] == [[b"SLOWLOG", b"RESET"]]


def test_no_passwords(all_slow, client):
    """What may hold one is not in it; what comes behind it is."""
    with all_slow.client() as c:
        for wrong in (("AUTH", "wrong"), ("AUTH", "a", "secret", "c"), ("HELLO", "2", "AUTH", "default", "wrong")):
            with pytest.raises(RespError):
                c.command(*wrong)
        for good in (("AUTH", "secret"), ("HELLO", "2", "AUTH", "default", "secret"), ("ECHO", "behind")):
            c.command(*good)
    logged = [entry[3] for entry in entries(client, -1)]
    assert [b"ECHO", b"behind"] in logged
    assert not {b"AUTH", b"HELLO"} & {args[0] for args in logged}
    assert not any(b"secret" in arg or b"wrong" in arg for args in logged for arg in args)


@pytest.mark.parametrize("args", [("GET", "x"), ("GET", "-2"), ("GET", "1", "2"), ("LEN", "1"), ("NONE",), ()])
def test_bad_arguments(client, args):
    with pytest.raises(RespError, match="^ERR"):
        client.command("SLOWLOG", *args)
