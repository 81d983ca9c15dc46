"""What test_archive_s3.py says, of Ceph's own server of S3."""
import pytest

from s3_server import RadosGateway
from test_archive_s3 import (archive, test_a_burnt_machine, test_old_objects_go, test_versions,  # noqa: F401
                             test_what_is_wrong_is_named)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = RadosGateway(tmp_path_factory.mktemp("gateway"))
    yield made
    made.stop()
