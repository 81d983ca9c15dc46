"""Who is told of a new term: by the folder, whatever the configuration says by then, and after any start."""
import pytest

from conftest import run
from partition import CUT
from resp import RespError
from test_replica import level, pair, say, status, until  # noqa: F401 (the fixture)
from test_replica_three import at, three  # noqa: F401 (the fixture)


def is_fenced(server):
    until(lambda: status(server)["role"] == b"fenced", lambda: (status(server), server.log()[-2000:]))


@pytest.mark.parametrize("served", [True, False])
def test_the_old_primary_is_told_though_nothing_is_configured(pair, served):  # noqa: F811
    first, second, _ = pair()
    first.process.kill()
    first.process.wait()
    if served:
        run("promote", "--to", at(second))
    assert second.stop() == 0
    if not served:
        run("promote", "--data", second.data)
    del second.options["replica_of"]
    for _ in range(2):
        second.start()
        assert second.stop() == 0
    second.start()
    first.start()
    is_fenced(first)
    with pytest.raises(RespError, match="has taken over"):
        say(first, "PLAYED", "u", "only here")


def test_the_other_replica_is_told_after_a_start(three):  # noqa: F811
    """The second was restarted since it heard of the third, without a primary; the third knows of the first alone."""
    first, second, third, wire = three()
    third.stop()
    first.process.kill()
    first.process.wait()
    second.stop()
    second.start()
    run("promote", "--to", at(second), "--force")
    second.stop()
    del second.options["replica_of"]
    second.start()
    third.start()
    until(lambda: (s := status(third))["term"] == 2 and s["leader"] == status(second)["node"],
          lambda: (status(third), third.log()[-2000:], second.log()[-2000:]))


def test_a_replaced_folder_is_promoted_by_force_alone(pair):  # noqa: F811
    first, second, wire = pair()
    wire.set(CUT)
    run("promote", "--to", at(second), "--force")
    say(second, "PLAYED", "u", "later")
    say(first, "REPLICA", "MEET", 2, status(second)["node"], at(second))
    assert first.stop() == 0
    done = run("promote", "--data", first.data, check=False)
    assert done.returncode == 1 and b"another node has taken over in term 2: run unseen rejoin" in done.stderr
    first.start()
    assert status(first)["role"] == b"fenced"
    assert first.stop() == 0
    run("promote", "--data", first.data, "--force")
    first.start()
    is_fenced(second)
    assert status(first)["term"] == 3
