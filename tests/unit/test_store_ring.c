/* The embedded store's ring of slots through its seam, on a disk that fails: turns, flushes, what is tried again, and
 * what happens when memory or disk are full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/ring.h"
#include "store/sqlite/state.h"
#include "tests/lib/store_calls.h"

static void test_ring_flush_of_nothing(void **state)
{
    struct store_fixture *f = *state;
    struct store_ring ring;
    f->store->ring->look(f->store, &ring);
    uint64_t turn = ring.turn;
    assert_int_equal(flush(f), 0);
    f->store->ring->look(f->store, &ring);
    assert_int_equal(ring.turn, turn);
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    f->store->ring->look(f->store, &ring);
    assert_int_equal(ring.turn, turn + 1);
    assert_int_equal(ring.n_slots, 6);
    for (int i = 0; i < ring.n_slots; i++) {
        assert_int_equal(ring.slots[i].state, i == ring.open ? SLOT_OPEN : SLOT_EMPTY);
    }
}

/* Every slot holds rows that can't be flushed: RING FLUSH has nowhere to turn to, and must say why. Healed, the same
 * command does it all. */
static void test_ring_flush_without_a_free_slot(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.slots = 2;
    close_store(f);
    open_store(f);
    play(f, "u", "a");
    rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
    assert_true(flush(f) < 0);
    play(f, "u", "b");
    struct err err = {0};
    assert_true(call(f, f->store->ring->flush, &err) < 0);
    assert_non_null(strstr(err.text, "history"));
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "u", "b"));
    vfs_fault_heal();
    assert_int_equal(flush(f), 0);
    assert_int_equal(stats(f).staged_rows, 0);
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "u", "b"));
}

/* A flush that failed is tried again by RING FLUSH before it is answered, not answered with the old error. */
static void test_ring_flush_tries_again(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 20; i++) {
        play(f, "u", "a");
        rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
        assert_true(flush(f) < 0);
        vfs_fault_heal();
        assert_int_equal(flush(f), 0);
    }
}

/* Neither hangs nor answers early: what failed is due exactly now. */
static void test_tick_waits_for_retries(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 20; i++) {
        play(f, "u", "a");
        rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
        assert_true(flush(f) < 0);
        vfs_fault_heal();
        advance(f, 5 * 60 * 1000);
        assert_int_equal(stats(f).staged_rows, 0);
    }
}

static void test_slot_that_is_not_emptied(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    int slot = 0;
    while (slot_state(f, slot) != SLOT_OPEN) {
        slot++;
    }
    /* The new time is written first, then the turn, then the emptying: by the tick, which finds the stager idle. */
    while (!task_is_idle(&((struct sqlite_store *)f->store)->stager.queue.task)) {
        usleep(100);
    }
    rule(VFS_SYNC, "staging.db-wal", 3, true, VFS_EIO);
    clock_test_advance(HOUR_MS);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
    assert_int_equal(slot_state(f, slot), SLOT_EMPTYING);
    struct store_ring ring;
    f->store->ring->look(f->store, &ring);
    assert_non_null(strstr(ring.slots[slot].error, "staging"));
    assert_true(ring.slots[slot].retry_ms > clock_wall_ms());
    assert_true(seen(f, "u", "a"));
    assert_true(flush(f) < 0);
    vfs_fault_heal();
    advance(f, 30 * 1000);
    assert_int_equal(slot_state(f, slot), SLOT_EMPTYING);
    advance(f, 5 * 60 * 1000);
    assert_int_equal(slot_state(f, slot), SLOT_EMPTY);
    assert_true(seen(f, "u", "a"));
}

/* A range that was merged before a commit failed is merged again, although only another range was left to do. */
static void test_loss_between_tries(void **state)
{
    struct store_fixture *f = *state;
    /* One month's table is made unwritable for plays: that user's range fails, the other is merged. */
    play(f, "bad", "a");
    play(f, "good", "a");
    play(f, "other", "a");
    assert_int_equal(flush(f), 0);
    play(f, "bad", "b");
    play(f, "good", "b");
    char sql[256];
    snprintf(sql, sizeof sql,
             "CREATE TRIGGER stop BEFORE UPDATE ON plays_202611 WHEN NEW.user_key = %" PRId64
             " BEGIN SELECT raise(ABORT, 'stop'); END",
             key_of("bad"));
    damage(f, "history", sql);
    /* No start takes such a file, and no connection heeds a trigger, until it is told to. */
    sqlite3_db_config(sqlite_store(f->store)->historian.db.handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 1, NULL);
    assert_true(flush(f) < 0); /* both in one transaction */
    assert_true(flush(f) < 0); /* in one again: the range has fewer than 16 */
    assert_true(flush(f) < 0); /* each alone: good is merged */
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM plays_202611 WHERE items = 2"), 1);

    /* Now a commit of somebody else's forget fails: what is not yet durable may be gone. */
    rule(VFS_SYNC, "history.db-wal", 1, false, VFS_EIO);
    assert_true(forget(f, "other", NULL) < 0);
    snprintf(sql, sizeof sql,
             "UPDATE plays_202611 SET counted = 1, filter = (SELECT filter FROM plays_202611 WHERE "
             "user_key = %" PRId64 ") WHERE items = 2",
             key_of("bad"));
    damage(f, "history", sql); /* gone, for the test */
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM plays_202611 WHERE items = 2"), 0);
    damage(f, "history", "DROP TRIGGER stop");
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "bad", "b"));
    assert_true(seen(f, "good", "b"));
}

static void test_slots_lowered(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        char item[8];
        snprintf(item, sizeof item, "i%d", i);
        play(f, "u", item);
        rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
        flush(f);
        vfs_fault_heal();
    }
    kill_store(f);
    f->cfg.slots = 4;
    open_store(f);
    assert_int_equal(flush(f), 0);
    for (int i = 0; i < 6; i++) {
        char item[8];
        snprintf(item, sizeof item, "i%d", i);
        assert_true(seen(f, "u", item));
    }
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'staged_*'"), 4);

    /* Empty ones go at the start. */
    close_store(f);
    f->cfg.slots = 2;
    open_store(f);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'staged_*'"), 2);
}

/* --- tests: memory and disk --- */

static void test_early_turns(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.staging_memory = 1 << 20;
    fill(f, 40);
    assert_true(stats(f).early_turns > 0);
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "user0-0", "a"));
    assert_true(known(f, "user39-999"));
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM users"), 40 * 1000);
}

/* Rows that are in the file and found no place in memory are not acknowledged, and don't stay in the file. */
static void test_no_memory_for_the_index(void **state)
{
    struct store_fixture *f = *state;
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    for (int i = 0; i < 5000; i++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", i);
        add(&batch, STORE_PLAY, clock_wall_ms(), user, "a");
    }
    play(f, "first", "a");
    atomic_store(&no_large, true);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    atomic_store(&no_large, false);
    buf_free(&batch.bytes);
    assert_int_equal(batch.err.code, ERR_NOMEM);
    play(f, "last", "a");
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged"), (int64_t)stats(f).staged_rows);
    assert_true(seen(f, "first", "a"));
    assert_true(seen(f, "last", "a"));
    assert_false(seen(f, "u4999", "a"));
}

static void test_busy_after_a_minute(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.staging_memory = 1 << 20;
    rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
    struct store_ring ring;
    do {
        fill(f, 1);
        f->store->ring->look(f->store, &ring);
    } while (ring.memory < ring.memory_limit);

    int waits = 0;
    struct store_batch batch = {.done = batch_done, .owner = &waits};
    add(&batch, STORE_PLAY, clock_wall_ms(), "w", "a");
    f->store->ops->record(f->store, &batch);
    advance(f, 0); /* the minute begins when the stager has seen it */
    advance(f, 59 * 1000);
    assert_false(is_raised(&waits));
    assert_true(seen(f, "user0-0", "a"));
    advance(f, 2 * 1000);
    wait_flag(&waits);
    assert_int_equal(batch.err.code, ERR_BUSY);
    assert_non_null(strstr(batch.err.text, "staging memory (1 MiB) is full"));
    assert_non_null(strstr(batch.err.text, "slot"));
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "w", "a"), ERR_BUSY);
    f->store->ring->look(f->store, &ring);
    assert_true(ring.busy);

    /* A forget goes on, and does not need the memory. */
    assert_int_equal(forget(f, "nobody", NULL), 0);
    vfs_fault_heal();
    assert_int_equal(flush(f), 0);
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "w", "a"), 0);
    f->store->ring->look(f->store, &ring);
    assert_false(ring.busy);
    buf_free(&batch.bytes);
}

/* --- tests: commits that fail --- */

static void expect_refusal(struct store_fixture *f, int code, const char *words)
{
    struct err err = {0};
    struct store_ring ring;
    assert_int_equal(f->store->ops->refusal(f->store, &err), code);
    assert_non_null(strstr(err.text, words));
    f->store->ring->look(f->store, &ring);
    assert_true(ring.busy);
    assert_non_null(strstr(ring.busy_cause, words));
}

static void expect_writable(struct store_fixture *f)
{
    struct store_ring ring;
    assert_int_equal(f->store->ops->refusal(f->store, NULL), 0);
    f->store->ring->look(f->store, &ring);
    assert_false(ring.busy);
}

/* Said until a commit succeeds, which needs no client's write. */
static void test_lock_of_another(void **state)
{
    struct store_fixture *f = *state;
    sqlite3 *shell = open_file(f, "staging");
    vfs_fault_skip_sleeps();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sqlite3_exec(shell, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(i == 0 ? record_at(f, STORE_PLAY, clock_wall_ms(), "u", "a") : forget(f, "u", NULL), ERR_BUSY);
        expect_refusal(f, ERR_BUSY, "locked");
        advance(f, 1000);
        expect_refusal(f, ERR_BUSY, "locked");
        assert_int_equal(sqlite3_exec(shell, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        advance(f, 1000);
        expect_writable(f);
    }
    assert_int_equal(sqlite3_exec(shell, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "a"), ERR_BUSY);
    assert_int_equal(sqlite3_exec(shell, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    play(f, "u", "b");
    expect_writable(f);
    assert_false(seen(f, "u", "a"));
    sqlite3_close(shell);
}

/* The same; what the stager tries writes to the disk, or it would say that all is well again. */
static void test_disk_that_takes_no_commit(void **state)
{
    static const struct {
        unsigned op;
        enum vfs_action action;
        int code;
    } of[] = {{VFS_SYNC, VFS_EIO, ERR_IO}, {VFS_WRITE, VFS_EIO, ERR_IO}, {VFS_WRITE, VFS_FULL, ERR_FULL}};
    struct store_fixture *f = *state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        rule(of[i].op, "staging.db-wal", 1, true, of[i].action);
        assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "a"), of[i].code);
        expect_refusal(f, of[i].code, "staging.db");
        advance(f, 1000);
        expect_refusal(f, of[i].code, "staging.db");
        vfs_fault_heal();
        advance(f, 1000);
        expect_writable(f);
        assert_false(seen(f, "u", "a"));
    }
}

static void test_min_free(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    f->cfg.min_free = INT64_C(1) << 60;
    advance(f, 1000);
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "b"), ERR_FULL);
    struct store_ring ring;
    f->store->ring->look(f->store, &ring);
    assert_true(ring.busy);
    assert_non_null(strstr(ring.busy_cause, "min_free"));
    assert_true(seen(f, "u", "a"));
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_false(seen(f, "u", "a"));
    assert_int_equal(flush(f), 0);
    f->cfg.min_free = 0;
    advance(f, 1000);
    f->store->ring->look(f->store, &ring);
    assert_false(ring.busy);
    play(f, "u", "b");
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_ring_flush_of_nothing),
        TEST(test_ring_flush_without_a_free_slot),
        TEST(test_ring_flush_tries_again),
        TEST(test_tick_waits_for_retries),
        TEST(test_slot_that_is_not_emptied),
        TEST(test_loss_between_tries),
        TEST(test_slots_lowered),
        TEST(test_early_turns),
        TEST(test_no_memory_for_the_index),
        TEST(test_busy_after_a_minute),
        TEST(test_lock_of_another),
        TEST(test_disk_that_takes_no_commit),
        TEST(test_min_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
