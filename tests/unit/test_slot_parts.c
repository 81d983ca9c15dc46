/* A slot's rows in many small tables: what is recorded goes on from one to the next, is found again, forgotten, flushed
 * and emptied in all of them, whatever fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/sqlite/sqlite_store.h"
#include "store/sqlite/staging/slot_parts.h"
#include "tests/lib/part_rows.h"
#include "tests/lib/store_calls.h"

enum { ROWS = 16, USERS = 10 };

/* --- the arithmetic --- */

static void test_rows_of_a_part(void **state)
{
    (void)state;
    unsetenv("UNSEEN_TEST_PART_ROWS");
    atomic_store(&part_rows, 0);
    assert_int_equal(parts_rows(INT64_C(4) << 20), SLOT_PART_LEAST);
    assert_int_equal(parts_rows(INT64_C(256) << 20), SLOT_PART_LEAST);
    assert_int_equal(parts_rows(INT64_C(1) << 30), 65536);
    assert_int_equal(parts_rows(INT64_C(75) << 30), SLOT_PART_MOST);
}

static void test_taken_in_turn(void **state)
{
    (void)state;
    struct slot_parts p = {.n = 3};
    assert_int_equal(parts_wanted(&p, 100, ROWS, ROWS), 3);
    assert_int_equal(parts_wanted(&p, 100, 3 * ROWS, ROWS), 3);
    assert_int_equal(parts_wanted(&p, 100, 3 * ROWS + 1, ROWS), 4);
    assert_int_equal(parts_wanted(&p, 100, 40 * ROWS, ROWS), 45); /* some ahead */
    assert_int_equal(parts_wanted(&p, 100, 1000000 * ROWS, ROWS), SLOT_PARTS_MAX);
    for (uint64_t id = 100; id < 100 + 10 * ROWS; id++) {
        uint64_t part = (id - 100) / ROWS;
        assert_int_equal(parts_take(&p, id, ROWS), part < 2 ? part : 2); /* the last one takes the rest */
        assert_int_equal(parts_of(&p, id), part < 2 ? part : 2);
    }
    assert_int_equal(parts_of(&p, 100 + ROWS - 1), 0);
    assert_int_equal(parts_of(&p, 100 + ROWS), 1);
    assert_int_equal(parts_wanted(&p, 100 + 10 * ROWS, 1, ROWS), 12);
    parts_reset(&p);
    assert_int_equal(p.n, 3);
    assert_int_equal(parts_take(&p, 7000, ROWS), 0);
    assert_int_equal(parts_wanted(&p, 7001, ROWS - 1, ROWS), 3);
}

/* Ids that no row has are counted, too; a gap makes one part end, and no empty ones. */
static void test_gaps(void **state)
{
    (void)state;
    struct slot_parts p = {.n = 9};
    assert_int_equal(parts_take(&p, 10, ROWS), 0);
    assert_int_equal(parts_take(&p, 10 + 5 * ROWS, ROWS), 1);
    assert_int_equal(parts_take(&p, 11 + 5 * ROWS, ROWS), 1);
    assert_int_equal(parts_of(&p, 10), 0);
    assert_int_equal(parts_of(&p, 10 + 5 * ROWS), 1);
}

static void test_found_at_start(void **state)
{
    (void)state;
    struct slot_parts p = {.n = 6};
    parts_found(&p, 1, 10, 20);
    parts_found(&p, 3, 21, 30);
    assert_false(p.overlap);
    assert_int_equal(parts_of(&p, 20), 1);
    assert_int_equal(parts_of(&p, 21), 3);
    assert_int_equal(parts_take(&p, 31, ROWS), 3);
    assert_int_equal(parts_take(&p, 40, ROWS), 4);
    parts_found(&p, 5, 30, 50);
    assert_true(p.overlap);
    parts_reset(&p);
    assert_false(p.overlap);
}

/* --- the store --- */

/* Plays i0 .. of users u0 .. u9 in turn, some a commit. */
static void play_some(struct store_fixture *f, int from, int to)
{
    for (int i = from; i < to;) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int k = 0; k < 7 && i < to; k++, i++) {
            char user[16], item[16];
            snprintf(user, sizeof user, "u%d", i % USERS);
            snprintf(item, sizeof item, "i%d", i);
            add(&batch, STORE_PLAY, clock_wall_ms(), user, item);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
    }
}

static void expect_seen(struct store_fixture *f, int from, int to, int but_user)
{
    for (int i = from; i < to; i++) {
        char user[16], item[16];
        snprintf(user, sizeof user, "u%d", i % USERS);
        snprintf(item, sizeof item, "i%d", i);
        if (seen(f, user, item) != (i % USERS != but_user)) {
            fail_msg("%s is %s", item, i % USERS == but_user ? "seen" : "unseen");
        }
    }
}

static int64_t tables(struct store_fixture *f)
{
    return ask(f, "staging", "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_0*'");
}

static int64_t staged(struct store_fixture *f)
{
    return ask(f, "staging", "SELECT count(*) FROM staged");
}

static void test_many_tables(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, 0, 10 * ROWS);
    assert_in_range(tables(f), 10, 12);
    assert_int_equal(staged(f), 10 * ROWS);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged_0"), ROWS);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged_0_9"), ROWS);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged WHERE slot = 0 AND user = 'u3'"), ROWS);
    assert_int_equal(ask(f, "staging", "SELECT rows FROM ring WHERE slot = 0 AND users = 10 AND state = 'open'"),
                     10 * ROWS);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM ring"), 6);
    expect_seen(f, 0, 10 * ROWS, -1);

    kill_store(f);
    expect_problem(f, NULL);
    open_store(f);
    assert_int_equal(stats(f).recovered_rows, 10 * ROWS);
    expect_seen(f, 0, 10 * ROWS, -1);
    assert_int_equal(flush(f), 0);
    assert_int_equal(staged(f), 0);
    assert_in_range(tables(f), 10, 12); /* for the next time */
    expect_seen(f, 0, 10 * ROWS, -1);

    /* The ring comes round to it. */
    for (int round = 0; round < 12; round++) {
        int from = (10 + round) * ROWS;
        play_some(f, from, from + ROWS);
        assert_int_equal(staged(f), ROWS);
        assert_int_equal(flush(f), 0);
        expect_seen(f, from, from + ROWS, -1);
    }
    assert_in_range(tables(f), 10, 12);
    close_store(f);
    expect_problem(f, NULL);
}

/* What is recovered into the open slot, because no other is free, goes on in the last table. */
static void test_goes_on_after_a_start(void **state)
{
    struct store_fixture *f = *state;
    close_store(f);
    f->cfg.slots = 2;
    open_store(f);
    rule(VFS_CHANGE, "history", 1, true, VFS_EIO);
    struct err err = {0};
    play_some(f, 0, 3 * ROWS + 3);
    assert_true(call(f, f->store->ring->flush, &err) < 0); /* the ring turned */
    play_some(f, 3 * ROWS + 3, 6 * ROWS);
    kill_store(f);
    open_store(f);
    play_some(f, 6 * ROWS, 9 * ROWS);
    expect_seen(f, 0, 9 * ROWS, -1);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged WHERE slot = 1"), 6 * ROWS - 3);
    assert_true(ask(f, "staging", "SELECT count(*) FROM staged_1_5") > 0);
    assert_int_equal(flush(f), 0);
    assert_int_equal(staged(f), 0);
    expect_seen(f, 0, 9 * ROWS, -1);
}

static void test_forget(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, 0, 10 * ROWS);
    assert_int_equal(forget(f, "u3", NULL), 1);
    assert_int_equal(forget(f, "u4", "i44"), 1);
    assert_int_equal(staged(f), 9 * ROWS - 1);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged WHERE user = 'u3' OR item = 'i44'"), 0);
    kill_store(f);
    open_store(f);
    assert_false(seen(f, "u4", "i44"));
    assert_true(seen(f, "u4", "i54"));
    assert_false(known(f, "u3"));
    assert_int_equal(forget(f, "u5", NULL), 1); /* as they were found again */
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged WHERE user = 'u5'"), 0);
    assert_int_equal(flush(f), 0);
    assert_false(known(f, "u3"));
    assert_false(known(f, "u5"));
    assert_true(seen(f, "u4", "i54"));
}

/* Tables whose ids lie among each other, as no program of ours leaves them. */
static void test_overlap(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, 0, 4 * ROWS);
    close_store(f);
    damage(f, "staging",
           "INSERT INTO staged_0_3 SELECT * FROM staged_0 WHERE id % 2 = 0; DELETE FROM staged_0 WHERE id % 2 = 0;"
           "INSERT INTO staged_0 SELECT * FROM staged_0_2 WHERE id % 3 = 0; DELETE FROM staged_0_2 WHERE id % 3 = 0");
    open_store(f);
    assert_int_equal(stats(f).recovered_rows, 4 * ROWS);
    assert_int_equal(stats(f).rows_set_aside, 0);
    expect_seen(f, 0, 4 * ROWS, -1);
    assert_int_equal(forget(f, "u3", NULL), 1);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged WHERE user = 'u3'"), 0);
    kill_store(f);
    open_store(f);
    assert_false(known(f, "u3"));
    expect_seen(f, 0, 4 * ROWS, 3);
    assert_int_equal(flush(f), 0);
    assert_int_equal(staged(f), 0);
    expect_seen(f, 0, 4 * ROWS, 3);
}

/* A table in the middle is missing, as after damage: it is made anew. */
static void test_hole(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, 0, 4 * ROWS);
    close_store(f);
    damage(f, "staging", "DROP TABLE staged_0_1");
    open_store(f);
    expect_seen(f, 0, ROWS, -1);
    expect_seen(f, 2 * ROWS, 4 * ROWS, -1);
    play_some(f, ROWS, 2 * ROWS);
    assert_int_equal(flush(f), 0);
    expect_seen(f, 0, 4 * ROWS, -1);
    close_store(f);
    expect_problem(f, NULL);
}

static void test_no_slots_table(void **state)
{
    struct store_fixture *f = *state;
    static const char *const names[] = {"staged_0_256", "staged_64",    "staged_0_",
                                        "staged_0_0",   "staged_0_1_2", "staged_1x"};
    struct err err = {0};
    close_store(f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "CREATE TABLE %s (id)", names[i]);
        damage(f, "staging", sql);
        assert_int_equal(try_open(f, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.text, names[i]));
        snprintf(sql, sizeof sql, "DROP TABLE %s", names[i]);
        damage(f, "staging", sql);
    }
    open_store(f);
}

/* Tables can't be made: rows stay in those that are there. */
static void test_no_room(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, 0, 3 * ROWS);
    close_store(f);
    open_store(f);
    int64_t before = tables(f);
    char sql[64];
    snprintf(sql, sizeof sql, "CREATE INDEX staged_0_%d ON meta (value)", (int)before);
    damage(f, "staging", sql); /* while it runs: no start takes it */
    int slot = (int)ask(f, "staging",
                        "SELECT t.value % s.value FROM meta t, meta s WHERE t.name = 'turn' AND s.name = 'slots'");
    while (slot != 0) { /* round to the slot with the index */
        play(f, "v", "x");
        assert_int_equal(flush(f), 0);
        slot = (slot + 1) % (int)f->cfg.slots;
    }
    play_some(f, 3 * ROWS, 20 * ROWS);
    assert_int_equal(tables(f), before);
    assert_int_equal(staged(f), 17 * ROWS);
    snprintf(sql, sizeof sql, "DROP INDEX staged_0_%d", (int)before);
    damage(f, "staging", sql);
    kill_store(f);
    open_store(f);
    expect_seen(f, 0, 20 * ROWS, -1);
    assert_int_equal(flush(f), 0);
    assert_int_equal(staged(f), 0);
    expect_seen(f, 0, 20 * ROWS, -1);
}

/* An older folder has a slot's rows in one table. */
static void test_one_large_table(void **state)
{
    struct store_fixture *f = *state;
    enum { MANY = SLOT_PART_MOST + 3 * SLOT_EMPTY_CHUNK };
    close_store(f);
    char sql[256];
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < %d) INSERT INTO staged_2 "
             "SELECT 1000 + i, 1, 'u' || (i %% %d), 'i' || i, %" PRId64 " FROM c",
             MANY, 100 * USERS, clock_wall_ms());
    damage(f, "staging", sql);
    open_store(f);
    assert_int_equal(stats(f).recovered_rows, MANY);
    uint64_t commits = stats(f).commits;
    assert_int_equal(flush(f), 0);
    assert_int_equal(staged(f), 0);
    assert_int_equal(stats(f).commits, commits);
    assert_true(seen(f, "u7", "i100007"));
    assert_true(seen(f, "u71", "i137071"));
}

/* The disk fails at the n-th change while the slot is emptied, or the server is killed there: nothing is lost, and the
 * rest is emptied later. */
static void test_emptying_interrupted(void **state)
{
    struct store_fixture *f = *state;
    bool done = false;
    int items = 0;
    for (uint64_t nth = 1; !done; nth++) {
        struct err err = {0};
        play_some(f, items, items + 5 * ROWS);
        items += 5 * ROWS;
        rule(VFS_CHANGE, "staging", 2 + nth, true, VFS_EIO); /* the turn comes first */
        done = call(f, f->store->ring->flush, &err) == 0;
        kill_store(f);
        assert_true(ask(f, "staging", "SELECT count(*) FROM staged") <= items);
        open_store(f);
        expect_seen(f, items - 5 * ROWS, items, -1);
        assert_int_equal(flush(f), 0);
        assert_int_equal(staged(f), 0);
        expect_seen(f, items - 5 * ROWS, items, -1);
        assert_true(nth < 100);
    }
    assert_true(items > 6 * 5 * ROWS);
}

/* Slots outside the ring go with all of their tables. */
static void test_slots_lowered(void **state)
{
    struct store_fixture *f = *state;
    static const char count[] = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[1-9]*'";
    for (int slot = 0; slot < 3; slot++) {
        play_some(f, slot * 4 * ROWS, (slot + 1) * 4 * ROWS);
        assert_int_equal(flush(f), 0);
    }
    play_some(f, 12 * ROWS, 16 * ROWS); /* in slot 3 */
    kill_store(f);
    assert_true(ask(f, "staging", count) > 9);
    f->cfg.slots = 2;
    open_store(f);
    assert_int_equal(flush(f), 0);
    expect_seen(f, 0, 16 * ROWS, -1);
    close_store(f);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'staged_[2-9]*'"), 0);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM ring"), 2);
    expect_problem(f, NULL);
}

static void repaired(void *arg, const char *what)
{
    strcat(arg, what);
}

/* Rows that can't be read, and stray ones, in some tables of a slot. */
static void test_damaged_rows(void **state)
{
    struct store_fixture *f = *state;
    for (int repair = 0; repair < 2; repair++) {
        char did[256] = "";
        struct err err = {0};
        int from = repair * 10 * ROWS;
        play_some(f, from, from + 5 * ROWS);
        close_store(f);
        int slot = (int)ask(f, "staging", "SELECT slot FROM staged LIMIT 1");
        char sql[512];
        snprintf(
            sql, sizeof sql,
            "UPDATE staged_%d SET kind = 8 WHERE item = 'i%d'; UPDATE staged_%d_1 SET user = '' WHERE item = 'i%d';"
            "UPDATE staged_%d_3 SET item = '' WHERE item = 'i%d';"
            "UPDATE staged_%d_2 SET id = 4611686018427387904 WHERE item = 'i%d'",
            slot, from + 1, slot, from + ROWS + 1, slot, from + 3 * ROWS + 1, slot, from + 2 * ROWS + 1);
        damage(f, "staging", sql);
        expect_problem(f, "neither a play nor a delivery");
        expect_problem(f, "an id that can't be");
        if (repair) {
            assert_true(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, repaired, NULL, did, &err) > 0);
            assert_non_null(strstr(did, "3 rows of slot"));
            expect_problem(f, NULL);
        }
        open_store(f);
        assert_int_equal(ask(f, "staging", "SELECT count(*) FROM set_aside"), 3 * (repair + 1));
        for (int i = from; i < from + 5 * ROWS; i++) {
            int in = i - from;
            char user[16], item[16];
            snprintf(user, sizeof user, "u%d", i % USERS);
            snprintf(item, sizeof item, "i%d", i);
            bool lost = in == 1 || in == ROWS + 1 || in == 3 * ROWS + 1;
            assert_int_equal(seen(f, user, item), !lost);
        }
        assert_int_equal(flush(f), 0);
        assert_int_equal(staged(f), 0);
        if (!repair) {
            close_store(f);
            assert_int_equal(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, repaired, NULL, did, &err), 1);
            open_store(f);
        }
    }
}

/* Of several far groups of ids, in several tables, the largest one's are kept as they are. */
static void test_far_groups(void **state)
{
    struct store_fixture *f = *state;
    close_store(f);
    damage(f, "staging",
           "UPDATE meta SET value = 30000000000 WHERE name = 'high_water';"
           "CREATE TABLE staged_2_1 AS SELECT * FROM staged_2; DROP TABLE staged_2_1");
    open_store(f);
    play_some(f, 0, 3 * ROWS);
    close_store(f);
    int slot = (int)ask(f, "staging", "SELECT slot FROM staged LIMIT 1");
    char sql[256];
    snprintf(sql, sizeof sql, "UPDATE staged_%d_1 SET id = id - 20000000000 WHERE item IN ('i%d', 'i%d')", slot,
             ROWS + 1, ROWS + 2);
    damage(f, "staging", sql);
    open_store(f);
    expect_seen(f, 0, 3 * ROWS, -1);
    assert_int_equal(ask(f, "staging", "SELECT min(id) > 30000000000 FROM staged"), 1);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged WHERE id <= 30000000000 + 48"), 3 * ROWS - 2);
    assert_int_equal(flush(f), 0);
    expect_seen(f, 0, 3 * ROWS, -1);
}

static int set_up(void **state)
{
    atomic_store(&part_rows, ROWS);
    return setup_store(state);
}

#define SMALL(name) cmocka_unit_test_setup_teardown(name, set_up, teardown_store)

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_a_part),
        cmocka_unit_test(test_taken_in_turn),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_found_at_start),
        SMALL(test_many_tables),
        SMALL(test_goes_on_after_a_start),
        SMALL(test_forget),
        SMALL(test_overlap),
        SMALL(test_hole),
        SMALL(test_no_slots_table),
        SMALL(test_no_room),
        SMALL(test_one_large_table),
        SMALL(test_emptying_interrupted),
        SMALL(test_slots_lowered),
        SMALL(test_damaged_rows),
        SMALL(test_far_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
