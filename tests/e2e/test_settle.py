"""DEBUG SETTLE: whether a node has anything left to do, which settle() and advance() of conftest.py go by."""
import shutil

from conftest import HOUR, advance, run, settle, until


def look(client):
    return client.command("DEBUG", "SETTLE")


def test_a_node_without_work_is_idle_and_its_number_stands_still(server, client):
    settle(server)
    until(lambda: look(client) == look(client) and look(client)[1:] == [b"idle", -1])


def test_each_command_moves_the_number(server, client):
    settle(server)
    number = look(client)[0]
    assert client.command("PING") == b"PONG"
    assert look(client)[0] > number
    assert client.command("PLAYED", "u1", "a") == 1
    assert look(client)[0] > number + 2  # what has committed it is counted, too


def test_who_works_is_named_until_it_has_done(server, client):
    settle(server)
    assert client.command("DEBUG", "STALL", "historian", 600000) == b"OK"
    with server.client() as other:
        other.send(b"*2\r\n$4\r\nRING\r\n$5\r\nFLUSH\r\n")
        until(lambda: look(client)[1] == b"historian")
        assert client.command("DEBUG", "STALL", "historian", 0) == b"OK"
        assert other.read()
    settle(server)
    assert look(client)[1] == b"idle"


def test_what_is_recorded_is_flushed_when_the_clock_has_come_there(server, client):
    assert client.command("PLAYED", "u1", "a", "b") == 2
    advance([server], 3 * HOUR)
    assert client.command("SEEN", "u1", "a", "b", "c") == [1, 1, 0]
    assert server.sqlite("history.db", "SELECT count(*) > 0 FROM users") == "1"


def test_without_a_test_clock_there_is_none(make_server):
    server = make_server(clock=None)
    with server.client() as client:
        client.send(b"*2\r\n$5\r\nDEBUG\r\n$6\r\nSETTLE\r\n")
        assert "--test-clock" in str(client.read())


def follow(make_server, folder, primary):
    run("clone", f"127.0.0.1:{primary.port}", "--data", folder / "cloned")
    replica = make_server()
    assert replica.stop() == 0
    shutil.rmtree(replica.data)
    shutil.move(folder / "cloned", replica.data)
    replica.options["replica_of"] = f"127.0.0.1:{primary.port}"
    return replica.start()


def test_what_a_primary_records_is_on_its_replica_once_both_have_settled(make_server, folder):
    """Its fetch waits at the primary: that is idle."""
    primary = make_server()
    replica = follow(make_server, folder, primary)
    with primary.client() as p, replica.client() as r:
        settle(primary, replica)
        assert r.command("SEEN", "u", "item0") == [0]
        for i in range(50):
            assert p.command("PLAYED", "u", f"item{i}") == 1
            settle(primary, replica)
            assert r.command("SEEN", "u", f"item{i}", "other") == [1, 0], i
