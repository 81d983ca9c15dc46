"""What librados and a real cluster do, on which src/store/rados rests: error numbers, pages, time limits, and what a
client sees of each failure. docs/rados.md says the same in words; a version of Ceph that does otherwise is noticed here.
"""
import contextlib
import ctypes
import errno
import pathlib
import tempfile
import time

import pytest
import rados

from ceph_cluster import ATTENTIVE, Cluster
from conftest import end_to_end

PAGE = 1024  # osd_max_omap_entries_per_request
LIMIT = 4    # seconds that an operation may take here
OK = 0
FULL_TRY, FULL_FORCE = 64, 128  # LIBRADOS_OPERATION_*, which Python's module doesn't name


@pytest.fixture(scope="module")
def cluster():
    with tempfile.TemporaryDirectory(prefix="unseen-ceph-") as folder:
        made = Cluster(pathlib.Path(folder))
        made.pool("facts")
        yield made
        made.stop()


@contextlib.contextmanager
def connected(cluster, **conf):
    limit = str(LIMIT)
    client = rados.Rados(conffile=str(cluster.client_conf), conf={
        "rados_osd_op_timeout": limit, "rados_mon_op_timeout": limit, "client_mount_timeout": limit, **ATTENTIVE, **conf})
    try:
        client.connect()
        yield client
    finally:
        client.shutdown()


def connect(cluster):
    with connected(cluster):
        pass


@pytest.fixture
def client(cluster):
    with connected(cluster) as made:
        yield made


@pytest.fixture
def pool(client):
    with client.open_ioctx("facts") as made:
        yield made


def code_of(call, *args):
    """0, or the number of the error."""
    try:
        call(*args)
        return OK
    except rados.Error as error:
        return error.errno


def write(pool, name, keys=None, remove=None, guard=None, version=None, clear=False, create=False, flags=0):
    """One atomic operation: 0, or the number of its error. guard: (key, value)."""
    with rados.WriteOpCtx() as op:
        if version is not None:
            op.assert_version(version)
        if guard is not None:
            op.omap_cmp(guard[0], guard[1], rados.LIBRADOS_CMPXATTR_OP_EQ)
        if create:
            op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        if clear:
            pool.clear_omap(op)
        if keys:
            pool.set_omap(op, tuple(keys), tuple(keys.values()))
        if remove:
            pool.remove_omap_keys(op, tuple(remove))
        return code_of(lambda: pool.operate_write_op(op, name, flags=flags))


def read(pool, name, after="", n=1 << 30, flags=0):
    """A page of an object's keys."""
    with rados.ReadOpCtx() as op:
        values, _ = pool.get_omap_vals(op, after, "", n)
        pool.operate_read_op(op, name, flag=flags)
        return {key: value or b"" for key, value in values}


def took(call, *args):
    began = time.monotonic()
    return call(*args), time.monotonic() - began


def test_a_guard_that_does_not_hold_is_canceled(pool):
    assert write(pool, "guard", {"g": b"1"}) == OK
    assert write(pool, "guard", {"m": b"x", "g": b"2"}, guard=("g", "0")) == errno.ECANCELED
    assert read(pool, "guard") == {"g": b"1"}, "all or nothing"
    assert write(pool, "guard", {"m": b"x", "g": b"2"}, remove=["p"], guard=("g", "1")) == OK
    assert read(pool, "guard") == {"g": b"2", "m": b"x"}


def test_a_guard_of_a_key_that_is_not_there(pool):
    """It counts as empty; so a guard of the value "" holds for a key that was never written."""
    assert write(pool, "bare", {"p": b""}) == OK
    assert write(pool, "bare", {"g": b"1"}, guard=("g", "0")) == errno.ECANCELED
    assert write(pool, "bare", {"g": b"1"}, guard=("g", "")) == OK


def test_a_guard_of_an_object_that_is_not_there(pool):
    assert write(pool, "nobody", {"m": b"x"}, guard=("g", "")) == errno.ENOENT
    assert code_of(read, pool, "nobody") == errno.ENOENT


class Raw:
    """What Python's module has no call for: a read with a guard."""

    def __init__(self, cluster):
        self.lib = ctypes.CDLL("librados.so.2")
        for name in ("create_read_op", "aio_create_completion"):
            getattr(self.lib, f"rados_{name}").restype = ctypes.c_void_p
        self.client, self.pool = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.lib.rados_create(ctypes.byref(self.client), None) == 0
        assert self.lib.rados_conf_read_file(self.client, str(cluster.client_conf).encode()) == 0
        assert self.lib.rados_connect(self.client) == 0
        assert self.lib.rados_ioctx_create(self.client, b"facts", ctypes.byref(self.pool)) == 0

    def guarded_read(self, name, key, comparison, value):
        op = ctypes.c_void_p(self.lib.rados_create_read_op())
        found, more, rval, rval2 = ctypes.c_void_p(), ctypes.c_ubyte(), ctypes.c_int(), ctypes.c_int()
        self.lib.rados_read_op_omap_cmp2(op, key, ctypes.c_uint8(comparison), value, ctypes.c_size_t(len(key)),
                                         ctypes.c_size_t(len(value)), ctypes.byref(rval))
        self.lib.rados_read_op_omap_get_vals2(op, b"", b"", ctypes.c_uint64(10), ctypes.byref(found),
                                              ctypes.byref(more), ctypes.byref(rval2))
        code = self.lib.rados_read_op_operate(op, self.pool, name, 0)
        if code == 0:
            self.lib.rados_omap_get_end(found)
        self.lib.rados_release_read_op(op)
        return -code

    def close(self):
        self.lib.rados_ioctx_destroy(self.pool)
        self.lib.rados_shutdown(self.client)


def test_a_guard_in_a_read(cluster, pool):
    """The order is that of bytes, and a key that is not there sorts first."""
    less = rados.LIBRADOS_CMPXATTR_OP_LT
    assert write(pool, "limit", {"w": b"00000100", "g": b"1"}) == OK
    raw = Raw(cluster)
    try:
        assert raw.guarded_read(b"limit", b"w", less, b"00000101") == OK
        assert raw.guarded_read(b"limit", b"w", less, b"00000100") == errno.ECANCELED
        assert raw.guarded_read(b"limit", b"w", less, b"000000ff") == errno.ECANCELED
        assert raw.guarded_read(b"limit", b"absent", less, b"0") == OK
        assert raw.guarded_read(b"limit", b"w", rados.LIBRADOS_CMPXATTR_OP_EQ, b"00000100") == OK
        assert raw.guarded_read(b"nobody", b"w", less, b"0") == errno.ENOENT
    finally:
        raw.close()


def test_made_exclusively(pool):
    assert write(pool, "meta", {"seed": b"1"}, create=True) == OK
    assert write(pool, "meta", {"seed": b"2"}, create=True) == errno.EEXIST
    assert read(pool, "meta") == {"seed": b"1"}


def test_an_asserted_version(pool):
    assert write(pool, "version", {"a": b""}) == OK
    now = pool.get_last_version()
    assert write(pool, "version", {"b": b""}, version=now) == OK
    assert write(pool, "version", {"c": b""}, version=now) == errno.ERANGE       # it has changed since
    assert write(pool, "version", {"c": b""}, version=now + 100) == errno.EOVERFLOW  # never was
    assert write(pool, "no version", {"c": b""}, version=now) in (errno.EOVERFLOW, errno.ENOENT)


def test_removing_what_is_not_there(pool):
    """One operation sets a play and ends the exception that may be there: that makes the object, if need be."""
    assert write(pool, "new", remove=["x1"]) == errno.ENOENT
    assert write(pool, "new", clear=True) == errno.ENOENT
    assert write(pool, "new", {"p1": b""}, remove=["x1"]) == OK  # set first, then removed
    assert write(pool, "new", remove=["x1", "x2"]) == OK
    assert write(pool, "new", clear=True, keys={"g": b"1"}) == OK  # in the order of the operation
    assert read(pool, "new") == {"g": b"1"}


def test_a_page_has_1024_keys_at_most(pool):
    keys = {f"p{i:06}": b"" for i in range(3 * PAGE)}
    assert write(pool, "pages", keys) == OK
    page = read(pool, "pages")
    assert len(page) == PAGE and list(page) == sorted(keys)[:PAGE]
    everything, after = {}, ""
    while page := read(pool, "pages", after):
        everything.update(page)
        after = max(page)
    assert everything == keys


def test_binary_keys_and_values(pool):
    """Through the calls of C that take a length; Python's takes text."""
    value = bytes(range(256))
    assert write(pool, "binary", {"p\x01\u00e9": value}) == OK
    assert read(pool, "binary")["p\x01\u00e9"] == value


def test_names_end_at_2048_bytes(pool):
    assert write(pool, "n" * 2048, {"g": b""}) == OK
    assert write(pool, "n" * 2049, {"g": b""}) == errno.ENAMETOOLONG


def test_an_erasure_coded_pool_has_no_keys(cluster, client):
    cluster.command("osd erasure-code-profile set", name="two", profile=["k=2", "m=1", "plugin=jerasure"])
    cluster.command("osd pool create", pool="coded", pg_num=1, pgp_num=1, pool_type="erasure",
                    erasure_code_profile="two")
    with client.open_ioctx("coded") as pool:
        assert write(pool, "u1", {"g": b""}) == errno.EOPNOTSUPP
    cluster.drop_pool("coded")


def test_a_pool_that_was_dropped(cluster, client):
    """Its objects are answered as ENOENT, like one that was never there: only the pool's name tells the difference."""
    cluster.pool("dropped")
    with client.open_ioctx("dropped") as pool:
        assert write(pool, "u1", {"g": b""}) == OK
        cluster.drop_pool("dropped")
        client.wait_for_latest_osdmap()  # before, it times out
        assert write(pool, "u1", {"g": b""}) == errno.ENOENT
        assert code_of(read, pool, "u1") == errno.ENOENT
        assert not client.pool_exists("dropped")


def test_a_lock_ends_by_itself(cluster, client, pool):
    with connected(cluster) as other, other.open_ioctx("facts") as theirs:
        pool.lock_exclusive("slice", "night", "one", duration=2)
        assert code_of(theirs.lock_exclusive, "slice", "night", "two") == errno.EBUSY
        assert code_of(pool.lock_exclusive, "slice", "night", "one") == errno.EEXIST  # held already, by us
        end_to_end.until(lambda: code_of(theirs.lock_exclusive, "slice", "night", "two") != errno.EBUSY)
        assert code_of(pool.unlock, "slice", "night", "one") == errno.ENOENT
        theirs.unlock("slice", "night", "two")


def test_a_client_that_was_shut_out(cluster):
    """As an administrator fences a node: nothing of it is carried out any more."""
    with connected(cluster) as client, client.open_ioctx("facts") as pool:
        assert write(pool, "fenced", {"a": b""}) == OK
        cluster.command("osd blocklist", blocklistop="add", addr=client.get_addrs())
        cluster.until(lambda: write(pool, "fenced", {"a": b""}) == errno.ESHUTDOWN, "the OSDs have heard of it")
        assert code_of(read, pool, "fenced") == errno.ESHUTDOWN
        cluster.command("osd blocklist clear")
        with connected(cluster) as again, again.open_ioctx("facts") as theirs:
            assert read(theirs, "fenced") == {"a": b""}


def test_an_osd_is_killed(cluster):
    """A write that is under way waits for the others to take over, and is carried out once. How long they take is the
    machine's: the client has a limit of its own."""
    with connected(cluster, rados_osd_op_timeout="60") as client, client.open_ioctx("facts") as pool:
        assert write(pool, "killed", {"a": b""}) == OK
        number = cluster.primary("facts", "killed")
        cluster.kill(number)
        try:
            assert write(pool, "killed", {"b": b""}) == OK
            assert set(read(pool, "killed")) == {"a", "b"}
        finally:
            cluster.restart(number)
            cluster.wait_clean("facts")


def test_an_osd_is_frozen(cluster, client, pool):
    """Until the others have noticed (osd_heartbeat_grace), its objects are neither written nor read: the time limit
    answers. What was sent to it may still be carried out when it thaws."""
    assert write(pool, "frozen", {"a": b""}) == OK
    number = cluster.primary("facts", "frozen")
    cluster.osds[number].freeze()
    code, seconds = took(code_of, read, pool, "frozen")
    assert code == errno.ETIMEDOUT and LIMIT - 0.5 < seconds < LIMIT + 3, (code, seconds)
    assert write(pool, "frozen", {"b": b""}) in (OK, errno.ETIMEDOUT)
    cluster.wait_down(number)
    cluster.until(lambda: write(pool, "frozen", {"c": b""}) == OK, "the others take over")
    assert {"a", "c"} <= set(read(pool, "frozen"))
    cluster.osds[number].thaw()
    cluster.wait_up(number)
    cluster.wait_clean("facts")


def test_without_the_monitor(cluster, pool):
    """Who is connected goes on. Nobody new comes in; and when an OSD ends now, nobody says who takes over."""
    assert write(pool, "alone", {"a": b""}) == OK
    cluster.mon.kill()
    assert write(pool, "alone", {"b": b""}) == OK and set(read(pool, "alone")) == {"a", "b"}
    code, seconds = took(code_of, connect, cluster)
    assert code == errno.ETIMEDOUT and seconds < LIMIT + 3, (code, seconds)
    cluster.mon.start()
    cluster.until(lambda: code_of(connect, cluster) == OK, "the monitor is back")
    assert write(pool, "alone", {"c": b""}) == OK


def test_two_replicas_of_three_are_down(cluster, pool):
    """min_size 2: neither a write nor a read is carried out, until there are two again."""
    assert write(pool, "two down", {"a": b""}) == OK
    first = cluster.primary("facts", "two down")
    dead = [first, next(n for n in cluster.osds if n != first)]
    for number in dead:
        cluster.kill(number)
    cluster.wait_down(*dead)
    assert write(pool, "two down", {"b": b""}) == errno.ETIMEDOUT
    assert code_of(read, pool, "two down") == errno.ETIMEDOUT
    for number in dead:
        cluster.restart(number)
    cluster.until(lambda: write(pool, "two down", {"c": b""}) == OK, "two are back")
    assert {"a", "c"} <= set(read(pool, "two down"))
    cluster.wait_clean("facts")


def test_a_full_osd(cluster, client, pool):
    """Without a word a write waits for room. With FULL_TRY a new object is refused at once, but one that is there takes
    more keys, since those don't count as bytes: beyond osd_failsafe_full_ratio, too, until the OSDs end themselves. FULL_FORCE
    makes new objects, too, but is dropped from that ratio on; both together pass. Reading goes on."""
    assert write(pool, "full", {"a": b"", "b": b""}) == OK
    cluster.fullness(0.0001, 0.0002, 0.0003)
    try:
        cluster.until(lambda: any("full" in state for state in cluster.states().values()), "full")
        client.wait_for_latest_osdmap()
        code, seconds = took(write, pool, "full", {"c": b""})
        assert code == errno.ETIMEDOUT and seconds > LIMIT - 0.5
        code, seconds = took(lambda: write(pool, "full, and new", {"c": b""}, flags=FULL_TRY))
        assert code == errno.ENOSPC and seconds < 1, (code, seconds)
        assert write(pool, "full", {"d": b""}, flags=FULL_TRY) == OK
        assert set(read(pool, "full")) == {"a", "b", "d"}
        assert write(pool, "full", remove=["b"], flags=FULL_FORCE) == OK
        assert write(pool, "full", {"g": b"2"}, clear=True, flags=FULL_FORCE) == OK
        cluster.fullness(0.0001, 0.0002, 0.0003, 0.0004)
        cluster.until(lambda: write(pool, "full", {"e": b""}, flags=FULL_FORCE) == errno.ETIMEDOUT, "failsafe")
        assert write(pool, "full", {"e": b""}, flags=FULL_TRY) == OK
        assert write(pool, "full", {"f": b""}, flags=FULL_TRY | FULL_FORCE) == OK
        assert write(pool, "made nevertheless", {"f": b""}, flags=FULL_TRY | FULL_FORCE) == OK
    finally:
        cluster.fullness()
    cluster.until(lambda: write(pool, "full", {"c": b""}) == OK, "there is room again")


def test_a_large_object_moves(cluster, pool):
    """It has no data, only keys, of more bytes than are copied in one piece (osd_recovery_max_chunk). It is copied to new
    OSDs, its old ones go, and nothing is missing."""
    keys = {f"m{i:06}": bytes([i % 251]) * 700 for i in range(20000)}
    names = sorted(keys)
    for first in range(0, len(names), 1000):
        assert write(pool, "large", {name: keys[name] for name in names[first:first + 1000]}) == OK
    added = [cluster.add(), cluster.add()]
    old = [number for number in cluster.osds if number not in added][:2]
    for number in old:
        cluster.drain(number)
    cluster.wait_clean("facts")
    for number in old:
        cluster.remove(number)
    cluster.wait_clean("facts")
    everything, after = {}, ""
    while page := read(pool, "large", after):
        everything.update(page)
        after = max(page)
    assert everything == keys
