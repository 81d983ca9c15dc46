"""Clients of four languages, each against a server of its own. What they check stands in their sources."""
import pytest

from conftest import INTERFACE, LOOPBACK, dubbo, go, grpc_server, java, names_of, node, python, results_of

SUITES = {
    "grpc-js": ("node/grpc.mjs", lambda: node("grpc.mjs")),
    "connect-node": ("node/connect.mjs", lambda: node("connect.mjs")),
    "dubbo-js": ("node/dubbo/dubbo.mjs", lambda: node("dubbo/dubbo.mjs")),
    "grpcio": ("python/checks.py", lambda: python("checks.py")),
    "grpc-java": ("java/grpc/src/main/java/Checks.java", lambda: java("grpc", "Checks")),
    "dubbo-3.2": ("java/dubbo/src/main/java/Checks.java", lambda: dubbo("dubbo-3.2", "Checks")),
    "dubbo-3.3": ("java/dubbo/src/main/java/Checks.java", lambda: dubbo("dubbo-3.3", "Checks")),
    "grpc-go": ("go/checks/main.go", lambda: go("checks")),
    "dubbo-go": ("dubbo-go/main.go", lambda: go("dubbo-go")),
}
DUBBO = ("dubbo-3.2", "dubbo-3.3")
CASES = [(suite, name) for suite, (source, _) in SUITES.items() for name in names_of(source)]


def provider_url(address, group):
    """As Dubbo writes it. The group keeps the servers of these tests apart."""
    return (f"tri://{address}/{INTERFACE}?application=unseen&category=providers&dubbo=2.0.2&group={group}"
            f"&interface={INTERFACE}&methods=Filter,Played,PlayedStream&side=provider")


@pytest.fixture(scope="session")
def results(tmp_path_factory, zookeeper):
    """Of each suite, run when it is first asked for."""
    known = {}

    def of(suite):
        if suite not in known:
            server = grpc_server(tmp_path_factory.mktemp(suite))
            try:
                address = server.grpc if suite not in DUBBO else server.grpc.replace("127.0.0.1", LOOPBACK)
                zookeeper.provide(INTERFACE, provider_url(address, suite))
                known[suite] = results_of(SUITES[suite][1](), address, zookeeper.address, GROUP=suite)
            except Exception as error:  # said once for each of its checks
                known[suite] = error
            finally:
                code = server.stop()
                log = server.log()
                if code != 0 or "Sanitizer" in log or "runtime error:" in log:
                    known[suite] = AssertionError(f"the server ended with {code}\n{log[-20000:]}")
        if isinstance(known[suite], Exception):
            raise AssertionError(f"{suite}: {known[suite]}")
        return known[suite]

    return of


@pytest.mark.parametrize("suite, name", CASES, ids=[f"{suite}-{name}" for suite, name in CASES])
def test_client(results, suite, name):
    found = results(suite)
    assert name in found, f"{name} was not run"
    assert found[name] is None, found[name]
