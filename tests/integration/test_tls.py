"""gRPC over TLS, by grpc-js."""
import subprocess

import pytest

from conftest import grpc_server, names_of, node, results_of

HERE = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def certificates(folder):
    """Two authorities; a certificate of the first for the server and a client, one of the second for a stranger."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-days", "30", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                f"{name}.pem")
    for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        openssl("req", *key, "-subj", f"/CN={name}", "-addext", HERE, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial",
                "-copy_extensions", "copy", "-days", "30", "-out", f"{name}.pem")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificates(folder)
    server = grpc_server(folder, scheme="tls://", tls_cert=folder / "server.pem", tls_key=folder / "server.key",
                         client_ca=folder / "ca.pem")
    try:
        return results_of(node("tls.mjs"), server.grpc.replace("127.0.0.1", "localhost"), folder)
    finally:
        assert server.stop() == 0, server.log()


@pytest.mark.parametrize("name", names_of("node/tls.mjs"))
def test_grpc_js(results, name):
    assert results[name] is None, results[name]
