/* A slot that is read by threads, at the start: all of its rows, in their order, whatever fails. Ids far apart make a
 * few rows a large slot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sqlite/db/db.h"
#include "store/sqlite/staging/slot_stream.h"
#include "tests/lib/store_calls.h"

enum { USERS = 50, RANGE = SLOT_BATCH * SLOT_AHEAD / 2 };

/* n rows in staged_N, the i-th with the id first + i * step; every seventh is a delivery. */
static void fill_slot(struct store_fixture *f, int slot, int64_t n, int64_t first, int64_t step)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < %" PRId64 ") "
             "INSERT INTO staged_%d SELECT %" PRId64 " + i * %" PRId64
             ", iif(i %% 7 = 0, 2, 1), 'u' || (i %% %d), 'i' || i, "
             "%" PRId64 " + i FROM c",
             n, slot, first, step, USERS, START);
    damage(f, "staging", sql);
}

static struct slot_stream *open_stream(struct db *db, struct store_fixture *f, int slot, int64_t first, int64_t last)
{
    struct slot_stream *stream;
    struct err err = {0};
    if (slot_stream_open(db, f->cfg.data, SEED, &(struct slot_table_rows){slot, first, last}, 1, &stream, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return stream;
}

static void open_db(struct db *db, struct store_fixture *f)
{
    struct err err = {0};
    if (db_open(db, f->cfg.data, "staging", VFS_FAULT_NAME, DB_WRITE_FULL, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void check_row(const struct staged_row *row, int64_t i, int64_t id)
{
    char user[16], item[16];
    snprintf(user, sizeof user, "u%d", (int)(i % USERS));
    snprintf(item, sizeof item, "i%d", (int)i);
    assert_int_equal(row->id, id);
    assert_int_equal(row->kind, i % 7 == 0 ? STORE_DELIVERY : STORE_PLAY);
    assert_int_equal(row->user.len, strlen(user));
    assert_memory_equal(row->user.data, user, row->user.len);
    assert_int_equal(row->item.len, strlen(item));
    assert_memory_equal(row->item.data, item, row->item.len);
    assert_int_equal(row->key, hash_user_key(SEED, slice_str(user)));
    assert_int_equal(row->hash, hash_id(SEED, slice_str(item)));
}

static void test_all_rows_in_order(void **state)
{
    struct store_fixture *f = *state;
    static const struct {
        int64_t n, step;
    } table[] = {
        {1, 1},
        {SLOT_BATCH, 1},
        {SLOT_BATCH + 1, 1},
        {SLOT_THREADED / 64 + 1, 64},
        {SLOT_THREADED / 64 + 2, 64},
        {5000, RANGE},
        {300, 3 * RANGE},
        {1000, 3 * RANGE + 1},
        {3 * SLOT_THREADED, 1},
        {70000, 2},
        {40, 100000000},
        {41, 107374182},
        {45, 107374182},
    };
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++) {
        struct db db;
        const int64_t first = 10000001;
        damage(f, "staging", "DELETE FROM staged_3");
        fill_slot(f, 3, table[t].n, first, table[t].step);
        open_db(&db, f);
        int64_t last = first + (table[t].n - 1) * table[t].step;
        struct slot_stream *stream = open_stream(&db, f, 3, first, last);
        struct slot_batch *batch;
        struct err err = {0};
        int64_t i = 0;
        int result;
        while ((result = slot_stream_next(stream, &batch, &err)) == 1) {
            for (size_t k = 0; k < batch->n; k++, i++) {
                assert_null(batch->problem[k]);
                check_row(&batch->at[k], i, first + i * table[t].step);
            }
        }
        assert_int_equal(result, 0);
        assert_int_equal(i, table[t].n);
        slot_stream_close(stream);
        db_close(&db);
    }
}

/* Closed before its end, at any batch: threads wait for room then, or read. */
static void test_closed_amid(void **state)
{
    struct store_fixture *f = *state;
    fill_slot(f, 2, 20000, 1, 5);
    struct db db;
    open_db(&db, f);
    for (int stop = 0; stop < 60; stop++) {
        struct slot_stream *stream = open_stream(&db, f, 2, 1, stop % 2 == 0 ? 5 * 20000 : 1000);
        struct slot_batch *batch;
        struct err err = {0};
        for (int i = 0; i < stop; i++) {
            assert_true(slot_stream_next(stream, &batch, &err) >= 0);
        }
        slot_stream_close(stream);
    }
    db_close(&db);
}

/* The n-th read of the file fails: the stream says so, and has given all rows before in order. */
static void test_reads_fail(void **state)
{
    struct store_fixture *f = *state;
    fill_slot(f, 2, 20000, 1, 5);
    bool good = false;
    for (uint64_t nth = 1; !good; nth = nth * 3 / 2 + 1) {
        struct db db;
        open_db(&db, f);
        vfs_fault_add(
            &(struct vfs_rule){.ops = VFS_READ, .file = "staging.db", .nth = nth, .sticky = true, .action = VFS_EIO});
        struct slot_stream *stream = open_stream(&db, f, 2, 1, 5 * 20000);
        struct slot_batch *batch;
        struct err err = {0};
        int64_t i = 0;
        int result;
        while ((result = slot_stream_next(stream, &batch, &err)) == 1) {
            for (size_t k = 0; k < batch->n; k++, i++) {
                assert_int_equal(batch->at[k].id, 1 + 5 * i);
            }
        }
        good = result == 0;
        if (good ? i != 20000 : err.code != ERR_IO || strstr(err.text, "staging.db") == NULL) {
            fail_msg("read %" PRIu64 ": %d rows, %s", nth, (int)i, err.text);
        }
        assert_int_equal(slot_stream_next(stream, &batch, &err), result); /* and goes on saying so */
        slot_stream_close(stream);
        vfs_fault_heal();
        db_close(&db);
    }
}

static void test_no_memory(void **state)
{
    struct store_fixture *f = *state;
    struct db db;
    struct slot_stream *stream;
    struct err err = {0};
    open_db(&db, f);
    for (int left = 1; left < 12; left++) {
        atomic_store(&large_left, left);
        const struct slot_table_rows rows = {2, 1, left % 2 == 0 ? 100000 : 1};
        int result = slot_stream_open(&db, f->cfg.data, SEED, &rows, 1, &stream, &err);
        atomic_store(&large_left, 0);
        if (result < 0) {
            assert_int_equal(result, ERR_NOMEM);
            assert_null(stream);
        }
        slot_stream_close(stream);
    }
    db_close(&db);
}

/* The store starts with it: rows of several slots, and some that can't be read, in the middle of all. */
static void test_recovered(void **state)
{
    struct store_fixture *f = *state;
    fill_slot(f, 2, 20000, 1, 5);
    fill_slot(f, 3, 3 * SLOT_THREADED, 200000, 1);
    fill_slot(f, 4, 10, 600000, 1);
    damage(f, "staging", "UPDATE staged_2 SET user = '' WHERE id IN (1, 6, 10241, 50001, 99996)");
    damage(f, "staging", "UPDATE staged_3 SET kind = 7 WHERE id % 10000 = 1");
    damage(f, "staging", "UPDATE meta SET value = 700000 WHERE name = 'high_water'");
    vfs_fault_heal();
    open_store(f);
    int64_t bad = 5 + 20;
    assert_int_equal(stats(f).recovered_rows, 20000 + 3 * SLOT_THREADED + 10);
    assert_int_equal(stats(f).rows_set_aside, bad);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM set_aside"), bad);
    assert_int_equal(ask(f, "staging", "SELECT sum(id) FROM set_aside WHERE slot = 2"), 1 + 6 + 10241 + 50001 + 99996);
    assert_true(seen(f, "u2", "i2"));
    assert_true(seen(f, "u49", "i19949"));
    assert_true(seen(f, "u7", "i196607"));
    assert_true(seen(f, "u9", "i9"));
    assert_int_equal(flush(f), 0);
    assert_int_equal(stats(f).staged_rows, 0);
    assert_true(seen(f, "u7", "i196607"));
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM users"), USERS);
}

/* A start that fails in a thread is none, and the next one is good. */
static void test_start_fails(void **state)
{
    struct store_fixture *f = *state;
    fill_slot(f, 2, 20000, 1, 5);
    struct err err = {0};
    vfs_fault_add(
        &(struct vfs_rule){.ops = VFS_READ, .file = "staging.db", .nth = 300, .sticky = true, .action = VFS_EIO});
    assert_int_equal(try_open(f, &err), ERR_IO);
    assert_non_null(strstr(err.text, "slot 2"));
    vfs_fault_heal();
    open_store(f);
    assert_int_equal(stats(f).recovered_rows, 20000);
    assert_true(seen(f, "u49", "i19949"));
}

static int set_up(void **state)
{
    struct store_fixture *f = store_fixture_new("slot-stream");
    *state = f;
    open_store(f);
    close_store(f);
    return 0;
}

static int tear_down(void **state)
{
    store_fixture_free(*state);
    return 0;
}

#define ON_FOLDER(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_FOLDER(test_all_rows_in_order), ON_FOLDER(test_closed_amid), ON_FOLDER(test_reads_fail),
        ON_FOLDER(test_no_memory),         ON_FOLDER(test_recovered),   ON_FOLDER(test_start_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
