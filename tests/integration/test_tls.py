"""gRPC over TLS, by grpc-js."""
import subprocess

import pytest

from conftest import grpc_server, names_of, node, results_of

HERE = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def certificates(folder):
    """Two authorities. The first has signed for two servers, one of them long ago, and a client; the other for a
    stranger."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-days", "30", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                f"{name}.pem")
    for name, ca, days in (("server", "ca", 30), ("expired", "ca", -1), ("client", "ca", 30), ("stranger", "other", 30)):
        openssl("req", *key, "-subj", f"/CN={name}", "-addext", HERE, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial",
                "-copy_extensions", "copy", "-days", str(days), "-out", f"{name}.pem")


def tls_server(folder, name, **options):
    (folder / f"of-{name}").mkdir()
    server = grpc_server(folder / f"of-{name}", scheme="tls://", tls_cert=folder / f"{name}.pem",
                         tls_key=folder / f"{name}.key", **options)
    server.grpc = server.grpc.replace("127.0.0.1", "localhost")
    return server


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What the client found, and what the server wrote meanwhile."""
    folder = tmp_path_factory.mktemp("tls")
    certificates(folder)
    servers = [tls_server(folder, "server", client_ca=folder / "ca.pem", log_level="debug")]
    try:
        servers.append(tls_server(folder, "expired"))
        results = results_of(node("tls.mjs"), servers[0].grpc, folder, servers[1].grpc)
    finally:
        codes = [server.stop() for server in servers]
    assert codes == [0, 0], "\n".join(server.log() for server in servers)
    return results, servers[0].log()


@pytest.mark.parametrize("name", names_of("node/tls.mjs"))
def test_grpc_js(done, name):
    results, _ = done
    assert results[name] is None, results[name]


@pytest.mark.parametrize("cause", [
    "no client certificate, and client_ca asks for one",
    "the client's certificate is refused: unable to get local issuer certificate",
])
def test_the_server_names_whom_it_refuses(done, cause):
    _, log = done
    assert "TLS handshake failed" in log and cause in log, log
