/* The feed with one consumer, the mirror, through the store's seam, on a file system that fails on demand: that exactly
 * what was acknowledged waits, in its order, whatever fails, and never more than legacy_mirror_max. Sending is tested
 * in tests/e2e. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/lib/store_calls.h"

enum { READ_MAX = 20000 };

static struct arena arena;
static struct feed_event waiting[READ_MAX];

static int setup(void **state)
{
    struct store_fixture *f = store_fixture_new("mirror");
    f->cfg.legacy_mirror = 1;
    open_store(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    store_fixture_free(*state);
    arena_free(&arena);
    return 0;
}

static int record(struct store_fixture *f, enum store_kind kind, const char *user, const char *first, int n)
{
    int done = 0;
    char names[200][24];
    struct slice items[200];
    uint64_t hashes[200];
    struct store_batch batch = {.done = batch_done, .owner = &done};
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], n == 1 ? "%s" : "%s%d", first, i);
        items[i] = slice_str(names[i]);
        hashes[i] = hash_id(SEED, items[i]);
    }
    int64_t key = hash_user_key(SEED, slice_str(user));
    assert_int_equal(
        store_batch_add(&batch, kind, clock_wall_ms(), STORE_STAMPED, key, slice_str(user), items, hashes, (size_t)n),
        0);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

static int try_play(struct store_fixture *f, const char *user, const char *item)
{
    return record(f, STORE_PLAY, user, item, 1);
}

static void reset(struct store_fixture *f)
{
    int done = 0;
    struct feed_reset r = {.call = {.done = call_done, .owner = &done}, .consumer = "mirror"};
    f->store->feed->reset(f->store, &r);
    wait_flag(&done);
    assert_int_equal(r.call.err.code, 0);
}

static struct feed_state state_of(struct store_fixture *f)
{
    struct feed_state s;
    feed_state_of(f->store, "mirror", &s);
    return s;
}

static int read_all(struct store_fixture *f)
{
    struct err err = {0};
    arena_reset(&arena);
    int n = f->store->feed->read(f->reader, "mirror", 0, waiting, READ_MAX, &arena, &err);
    assert_true(n >= 0);
    return n;
}

/* What waits, as text: "play u a, forget u". And that the totals agree. */
static void expect(struct store_fixture *f, const char *want)
{
    static const char *const kinds[] = {"?", "play", "deliver", "forget", "forget"};
    int n = read_all(f);
    struct buf got = {0};
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const struct feed_event *m = &waiting[i];
        assert_true(i == 0 || m->seq > waiting[i - 1].seq);
        assert_true(m->at_ms == START && m->recorded_ms == START);
        buf_addf(&got, "%s%s %.*s%s%.*s", i > 0 ? ", " : "", kinds[m->kind], (int)m->user.len, m->user.data,
                 m->item.len > 0 ? " " : "", (int)m->item.len, m->item.data);
        bytes += feed_event_bytes(m->user, m->item, 0);
    }
    buf_add(&got, "", 1);
    assert_string_equal(got.data, want);
    buf_free(&got);
    assert_int_equal(state_of(f).events, n);
    assert_int_equal(state_of(f).bytes, bytes);
}

/* Says that the first n were repeated. */
static void repeat(struct store_fixture *f, int n)
{
    struct err err = {0};
    arena_reset(&arena);
    assert_int_equal(f->store->feed->read(f->reader, "mirror", 0, waiting, n, &arena, &err), n);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += feed_event_bytes(waiting[i].user, waiting[i].item, waiting[i].group);
    }
    f->store->feed->done(f->store, "mirror", waiting[n - 1].seq, (uint64_t)n, bytes);
}

static int64_t in_file(struct store_fixture *f, const char *sql)
{
    char path[CONFIG_TEXT + 16];
    sqlite3 *db;
    sqlite3_stmt *stmt;
    snprintf(path, sizeof path, "%s/staging.db", f->cfg.data);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

/* --- tests --- */

static void test_in_order(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(record(f, STORE_PLAY, "u", "a", 3), 0);
    assert_int_equal(record(f, STORE_DELIVERY, "v", "d", 1), 0);
    assert_true(forget(f, "u", "a1") >= 0);
    assert_true(forget(f, "stranger", NULL) >= 0);
    assert_int_equal(try_play(f, "u", "z"), 0);
    const char *all = "play u a0, play u a1, play u a2, deliver v d, forget u a1, forget stranger, play u z";
    expect(f, all);
    assert_int_equal(flush(f), 0); /* what waits doesn't go with the staged rows, */
    expect(f, all);
    kill_store(f); /* and neither with a crash */
    open_store(f);
    expect(f, all);
    assert_int_equal(try_play(f, "w", "a"), 0); /* its id is above those of the queue */
    expect(f, "play u a0, play u a1, play u a2, deliver v d, forget u a1, forget stranger, play u z, play w a");
}

static void test_off(void **state)
{
    struct store_fixture *f = *state;
    close_store(f);
    f->cfg.legacy_mirror = 0;
    open_store(f);
    assert_int_equal(try_play(f, "u", "a"), 0);
    assert_true(forget(f, "u", NULL) >= 0);
    expect(f, "");
    assert_int_equal(state_of(f).lost_ms, 0); /* nobody ever wanted it */
}

static void test_repeated_ones_go(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(record(f, STORE_PLAY, "u", "a", 200), 0);
    }
    repeat(f, 9998);
    assert_int_equal(state_of(f).events, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try_play(f, "u", "b"), 0); /* chunks go with the next writes */
    }
    assert_true(in_file(f, "SELECT count(*) FROM feed") <= 10000 - 9998 + 3 + 4096);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
    assert_int_equal(in_file(f, "SELECT count(*) FROM feed"), 5);
    kill_store(f);
    open_store(f);
    expect(f, "play u a198, play u a199, play u b, play u b, play u b");
    repeat(f, 5);
    close_store(f); /* a clean stop deletes what is left */
    open_store(f);
    expect(f, "");
}

/* What a failed commit has written is not repeated, though the rows may be in the file. */
static void test_failed_commits(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(try_play(f, "u", "a"), 0);
    static const unsigned ops[] = {VFS_WRITE, VFS_SYNC};
    for (int i = 0; i < 2; i++) {
        vfs_fault_add(&(struct vfs_rule){.ops = ops[i], .file = "staging.db-wal", .nth = 1, .action = VFS_EIO});
        assert_true(try_play(f, "u", "lost") < 0);
        vfs_fault_heal();
        expect(f, "play u a");
        vfs_fault_add(&(struct vfs_rule){.ops = ops[i], .file = "staging.db-wal", .nth = 1, .action = VFS_EIO});
        assert_true(forget(f, "u", NULL) < 0);
        vfs_fault_heal();
        expect(f, "play u a");
    }
    assert_int_equal(try_play(f, "u", "b"), 0);
    expect(f, "play u a, play u b");
    kill_store(f);
    open_store(f);
    expect(f, "play u a, play u b");
}

/* Nobody has the file open beside, so what a failed commit has written is found in it when it is opened again. */
static void test_failed_commits_that_were_written(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_SYNC, .file = "staging.db-wal", .nth = 1, .action = VFS_EIO});
        assert_true((i == 0 ? record(f, STORE_PLAY, "u", "lost", 3) : forget(f, "u", NULL)) < 0);
        vfs_fault_heal();
        assert_int_equal(try_play(f, "u", i == 0 ? "a" : "b"), 0);
    }
    expect(f, "play u a, play u b");
    kill_store(f);
    open_store(f);
    expect(f, "play u a, play u b");
}

/* Rows that were committed and then found no room in memory are refused, though they are in the file and were counted:
 * the next transaction takes them away and counts them off. */
static void test_committed_without_room_in_memory(void **state)
{
    struct store_fixture *f = *state;
    char first[16];
    int taken = 0, rc = 0;
    assert_int_equal(record(f, STORE_DELIVERY, "u", "a", 100), 0);
    taken += 100;
    atomic_store(&no_large, true);
    for (int i = 0; i < 50 && rc == 0; i++) {
        snprintf(first, sizeof first, "%d.", i);
        rc = record(f, STORE_DELIVERY, "u", first, 200);
        taken += rc == 0 ? 200 : 0;
    }
    atomic_store(&no_large, false);
    assert_int_equal(rc, ERR_NOMEM);
    int n = read_all(f); /* some of the refused ones may be seen: those before the first that found no room */
    assert_true(n >= taken && n < taken + 200);
    assert_int_equal(state_of(f).events, taken + 200);
    assert_int_equal(in_file(f, "SELECT count(*) FROM feed"), taken + 200);

    assert_int_equal(try_play(f, "v", "b"), 0);
    assert_int_equal(read_all(f), n + 1);
    assert_memory_equal(waiting[n].user.data, "v", 1);
    assert_int_equal(in_file(f, "SELECT count(*) FROM feed"), n + 1);
    uint64_t bytes = 0;
    for (int i = 0; i <= n; i++) {
        bytes += feed_event_bytes(waiting[i].user, waiting[i].item, waiting[i].group);
    }
    assert_int_equal(state_of(f).events, n + 1);
    assert_int_equal(state_of(f).bytes, bytes);
}

static void test_deleted_beside_a_write(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(record(f, STORE_PLAY, "u", "a", 200), 0);
    }
    repeat(f, 1000);
    assert_int_equal(try_play(f, "u", "b"), 0);
    assert_int_equal(in_file(f, "SELECT count(*) FROM feed"), 201);
}

/* Deleting fails for as long as the disk does; then it goes on. */
static void test_deleting_fails(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(record(f, STORE_PLAY, "u", "a", 100), 0);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0); /* has written down what else a tick does */
    repeat(f, 100);
    int failed =
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_SYNC, .file = "staging.db-wal", .nth = 1, .action = VFS_EIO});
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
    assert_true(vfs_fault_hits(failed) > 0);
    vfs_fault_heal();
    assert_int_equal(in_file(f, "SELECT count(*) FROM feed"), 100);
    assert_int_equal(state_of(f).events, 0);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
    assert_int_equal(in_file(f, "SELECT count(*) FROM feed"), 0);
    expect(f, "");
    assert_int_equal(try_play(f, "u", "b"), 0);
    expect(f, "play u b");
}

static void test_full(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.legacy_mirror_max = 10000;
    uint64_t taken = 0;
    while (state_of(f).lost_ms == 0) {
        taken = state_of(f).events;
        assert_int_equal(record(f, STORE_PLAY, "u", "a", 100), 0);
        clock_test_advance(1);
    }
    struct feed_state s = state_of(f);
    assert_int_equal(s.events, taken);
    assert_true(s.bytes <= 10000 && s.bytes > 5000);
    assert_int_equal(s.left_out, 100);
    int64_t since = s.lost_ms;
    assert_true(forget(f, "u", NULL) >= 0); /* there is room for this one */
    assert_int_equal(state_of(f).events, taken + 1);
    assert_int_equal(record(f, STORE_PLAY, "u", "a", 200), 0);
    kill_store(f);
    open_store(f);
    s = state_of(f);
    assert_int_equal(s.lost_ms, since);
    assert_int_equal(s.left_out, 300);
    assert_int_equal(s.events, taken + 1);
    reset(f);
    s = state_of(f);
    assert_true(s.lost_ms == 0 && s.left_out == 0 && s.events == taken + 1);
    close_store(f);
    open_store(f);
    assert_int_equal(state_of(f).lost_ms, 0);
}

/* A commit that fails leaves nothing out. */
static void test_full_and_a_failed_commit(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.legacy_mirror_max = 100;
    vfs_fault_add(&(struct vfs_rule){.ops = VFS_SYNC, .file = "staging.db-wal", .nth = 1, .action = VFS_EIO});
    assert_true(record(f, STORE_PLAY, "u", "a", 100) < 0);
    vfs_fault_heal();
    assert_int_equal(try_play(f, "u", "a"), 0);
    assert_int_equal(state_of(f).lost_ms, 0);
    assert_int_equal(state_of(f).left_out, 0);
    expect(f, "play u a");
}

static void test_off_and_on_again(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(try_play(f, "u", "a"), 0);
    close_store(f);
    f->cfg.legacy_mirror = 0;
    open_store(f);
    assert_int_equal(state_of(f).lost_ms, 0); /* nothing is missing yet */
    assert_int_equal(try_play(f, "u", "b"), 0);
    assert_int_equal(state_of(f).lost_ms, START);
    close_store(f);
    f->cfg.legacy_mirror = 1;
    open_store(f);
    assert_int_equal(state_of(f).lost_ms, START);
    assert_int_equal(try_play(f, "u", "c"), 0);
    expect(f, "play u a, play u c");
    close_store(f);
    f->cfg.legacy_mirror = 0;
    open_store(f);
    reset(f); /* off for good */
    expect(f, "");
    assert_int_equal(in_file(f, "SELECT count(*) FROM feed"), 0);
    assert_int_equal(try_play(f, "u", "d"), 0);
    assert_int_equal(state_of(f).lost_ms, 0);
}

/* Of whom nothing is to be erased here, either. */
static void test_forgotten_while_it_is_off(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(try_play(f, "u", "a"), 0);
    close_store(f);
    f->cfg.legacy_mirror = 0;
    open_store(f);
    assert_true(forget(f, "stranger", NULL) >= 0);
    assert_int_equal(state_of(f).lost_ms, START);
    expect(f, "play u a");
}

static void count_wakes(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static uint64_t no_limit(const struct config *live)
{
    (void)live;
    return INT64_MAX;
}

static void listen(struct store_fixture *f, void (*wake)(void *arg), void *arg)
{
    struct err err;
    assert_int_equal(f->store->feed->listen(f->store, &(struct feed_consumer){"mirror", no_limit, wake, arg}, &err), 0);
}

static void test_wakes(void **state)
{
    struct store_fixture *f = *state;
    _Atomic int wakes = 0;
    listen(f, count_wakes, &wakes);
    assert_int_equal(try_play(f, "u", "a"), 0);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0); /* it comes after the answer */
    assert_int_equal(atomic_load(&wakes), 1);
    listen(f, NULL, NULL);
    assert_int_equal(try_play(f, "u", "b"), 0);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
    assert_int_equal(atomic_load(&wakes), 1);
}

int main(void)
{
#define MIRROR_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        MIRROR_TEST(test_in_order),
        MIRROR_TEST(test_off),
        MIRROR_TEST(test_repeated_ones_go),
        MIRROR_TEST(test_failed_commits),
        MIRROR_TEST(test_deleting_fails),
        MIRROR_TEST(test_full),
        MIRROR_TEST(test_forgotten_while_it_is_off),
        MIRROR_TEST(test_full_and_a_failed_commit),
        MIRROR_TEST(test_off_and_on_again),
        MIRROR_TEST(test_wakes),
        MIRROR_TEST(test_failed_commits_that_were_written),
        MIRROR_TEST(test_deleted_beside_a_write),
        MIRROR_TEST(test_committed_without_room_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
