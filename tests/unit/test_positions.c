/* Positions of sources outside, and small values, in the embedded store: never ahead of the rows, whatever a commit
 * does. What every engine keeps of them is in test_store_conformance.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "store/memos.h"
#include "store/positions.h"
#include "tests/lib/store_calls.h"

static int record_positions(struct store_fixture *f, const char *item, const struct store_position *position)
{
    int done = 0;
    struct store_batch batch = {.positions = position, .n_positions = 1, .done = batch_done, .owner = &done};
    if (item != NULL) {
        add(&batch, STORE_PLAY, clock_wall_ms(), "u", item);
    }
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

static int64_t position_of(struct store_fixture *f, const char *source)
{
    int64_t next = -1;
    f->store->positions->find(f->store, slice_str(source), &next);
    return next;
}

/* The position is no further than the rows: not while the outcome is unknown, and not once the rows are deleted. */
static void positions_after_failure(struct store_fixture *f, const char *item)
{
    const struct store_position old = {slice_str("t/0"), 5}, moved = {slice_str("t/0"), 6}, new = {slice_str("t/1"), 1};
    assert_int_equal(record_positions(f, "before", &old), 0);
    sqlite3 *shell = open_file(f, "staging"); /* keeps the WAL from being deleted when the file is opened again */
    assert_int_equal(sqlite3_exec(shell, "SELECT * FROM staged_0", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < 2; i++) {
        rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_EIO);
        assert_true(record_positions(f, item, i == 0 ? &moved : &new) < 0);
        assert_int_equal(position_of(f, "t/0"), 5);
        assert_int_equal(position_of(f, "t/1"), -1);
    }
    play(f, "other", "a"); /* deletes what those commits may have left */
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM positions WHERE source LIKE 't/%'"), 1);
    kill_store(f);
    open_store(f);
    assert_int_equal(position_of(f, "t/0"), 5);
    assert_int_equal(position_of(f, "t/1"), -1);
    assert_true(seen(f, "u", "before"));
    if (item != NULL) {
        assert_false(seen(f, "u", item));
    }
    sqlite3_close(shell);
}

static void test_positions_after_failed_commit(void **state)
{
    positions_after_failure(*state, "lost");
}

static void test_positions_alone_after_failed_commit(void **state)
{
    positions_after_failure(*state, NULL);
}

/* The rows were durable, and found no place in memory: they are not acknowledged, and go, and so does the position. */
static void test_positions_of_rows_undone(void **state)
{
    struct store_fixture *f = *state;
    const struct store_position old = {slice_str("t/0"), 5}, moved = {slice_str("t/0"), 6};
    assert_int_equal(record_positions(f, "before", &old), 0);
    int done = 0;
    struct store_batch batch = {.positions = &moved, .n_positions = 1, .done = batch_done, .owner = &done};
    for (int i = 0; i < 20000; i++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", i);
        add(&batch, STORE_PLAY, clock_wall_ms(), user, "lost");
    }
    atomic_store(&no_large, true);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    atomic_store(&no_large, false);
    buf_free(&batch.bytes);
    assert_int_equal(batch.err.code, ERR_NOMEM);
    assert_int_equal(position_of(f, "t/0"), 5);
    assert_int_equal(ask(f, "staging", "SELECT next FROM positions WHERE source = 't/0'"), 6); /* with its rows */
    play(f, "other", "a");
    assert_int_equal(ask(f, "staging", "SELECT next FROM positions WHERE source = 't/0'"), 5);
    kill_store(f);
    open_store(f);
    assert_int_equal(position_of(f, "t/0"), 5);
    assert_true(seen(f, "u", "before"));
    assert_false(seen(f, "u19999", "lost"));
}

/* Batches of one source that share a commit: the last one's position stands, in memory and in the file. */
static void test_positions_in_one_commit(void **state)
{
    struct store_fixture *f = *state;
    const struct store_position moved[] = {{slice_str("t/0"), 6}, {slice_str("t/0"), 7}, {slice_str("t/0"), 8}};
    struct store_batch batches[3] = {0};
    int done[3] = {0};
    rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_HOLD);
    for (int i = 0; i < 3; i++) {
        batches[i] =
            (struct store_batch){.positions = &moved[i], .n_positions = 1, .done = batch_done, .owner = &done[i]};
        add(&batches[i], STORE_PLAY, clock_wall_ms(), "u", i == 0 ? "a" : i == 1 ? "b" : "c");
        f->store->ops->record(f->store, &batches[i]);
        if (i == 0) {
            vfs_fault_wait_held(); /* the others come together, behind it */
        }
    }
    vfs_fault_release();
    for (int i = 0; i < 3; i++) {
        wait_flag(&done[i]);
        assert_int_equal(batches[i].err.code, 0);
        buf_free(&batches[i].bytes);
    }
    assert_int_equal(position_of(f, "t/0"), 8);
    kill_store(f);
    open_store(f);
    assert_int_equal(position_of(f, "t/0"), 8);
    assert_true(seen(f, "u", "a") && seen(f, "u", "b") && seen(f, "u", "c"));
}

static void test_positions_damaged(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    const struct store_position position = {slice_str("t/0"), 5};
    assert_int_equal(record_positions(f, NULL, &position), 0);
    close_store(f);
    expect_problem(f, NULL);
    damage(f, "staging", "INSERT INTO positions VALUES ('', 1)");
    assert_int_equal(try_open(f, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "positions can't be read"));
    expect_problem(f, "position of a source");
    assert_true(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, found, NULL, NULL, &err) > 0);
    expect_problem(f, NULL);
    damage(f, "staging", "UPDATE positions SET next = 'x'");
    expect_problem(f, "next x");
    assert_true(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, found, NULL, NULL, &err) > 0);
    open_store(f);
    assert_int_equal(position_of(f, "t/0"), 0);
}

/* What a folder is called stays, whatever is lost: it is drawn anew by nobody but a new folder. */
static void test_lineage(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    int64_t own = position_of(f, STORE_LINEAGE);
    assert_true(own != 0 && own != -1);
    close_store(f);
    assert_int_equal(ask(f, "staging", "SELECT next FROM positions WHERE source = 'lineage'"), own);
    damage(f, "staging", "DELETE FROM positions");
    rule(VFS_WRITE, "staging.db-wal", 3, true, VFS_FULL); /* it can't be written down, and is known all the same */
    if (try_open(f, &err) == 0) {
        assert_int_equal(position_of(f, STORE_LINEAGE), own);
        close_store(f);
    }
    vfs_fault_heal();
    damage(f, "staging", "UPDATE positions SET next = 'x'");
    assert_true(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, found, NULL, NULL, &err) >= 0);
    open_store(f);
    assert_int_equal(position_of(f, STORE_LINEAGE), own);
    /* That of the folder which this one was copied from. */
    const struct store_position other = {slice_str(STORE_LINEAGE), 7};
    assert_int_equal(record_positions(f, NULL, &other), 0);
    kill_store(f);
    open_store(f);
    assert_int_equal(position_of(f, STORE_LINEAGE), 7);
}

/* A small value outlives a kill; after one whose outcome isn't known the next is kept, without a restart. */
static int keep(struct store_fixture *f, const char *value)
{
    int done = 0;
    struct store_memo memo = {
        .call = {.done = call_done, .owner = &done}, .name = "span_day", .value = slice_str(value)};
    f->store->memos->keep(f->store, &memo);
    wait_flag(&done);
    return memo.call.err.code;
}

static bool is_kept(struct store_fixture *f, const char *value)
{
    struct buf text = {0};
    struct err err = {0};
    assert_int_equal(f->store->memos->read(f->reader, "span_day", &text, &err), 0);
    bool same = slice_eq(buf_slice(&text), slice_str(value));
    buf_free(&text);
    return same;
}

static void test_memos(void **state)
{
    struct store_fixture *f = *state;
    assert_true(is_kept(f, ""));
    assert_int_equal(keep(f, "before"), 0);
    assert_true(is_kept(f, "before"));
    static const unsigned ops[] = {VFS_WRITE, VFS_SYNC};
    static const char *const next[] = {"next", "last"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        rule(ops[i], "staging.db-wal", 1, false, VFS_EIO);
        assert_true(keep(f, "lost") < 0);
        vfs_fault_heal();
        assert_true(is_kept(f, i == 0 ? "before" : "next") || is_kept(f, "lost"));
        assert_int_equal(keep(f, next[i]), 0);
        assert_true(is_kept(f, next[i]));
    }
    kill_store(f);
    open_store(f);
    assert_true(is_kept(f, "last"));
    play(f, "u", "a");
    assert_true(seen(f, "u", "a"));
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_positions_after_failed_commit),
        TEST(test_positions_alone_after_failed_commit),
        TEST(test_positions_of_rows_undone),
        TEST(test_positions_in_one_commit),
        TEST(test_positions_damaged),
        TEST(test_lineage),
        TEST(test_memos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
