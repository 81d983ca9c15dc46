/* Staged rows that are not as they were written: one of them costs no other row anything, and nothing that could not be
 * read is deleted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/store_calls.h"

#define FAR INT64_C(10000000000) /* more ids than an index holds */

/* Plays a to e of u are staged in the open slot, with ids as they are after years. Returns that slot. */
static int stage(struct store_fixture *f)
{
    char sql[160];
    play(f, "u", "first"); /* a slot of its own */
    close_store(f);
    snprintf(sql, sizeof sql, "UPDATE meta SET value = %" PRId64 " WHERE name = 'high_water'", FAR);
    damage(f, "staging", sql);
    open_store(f);
    int slot = (int)ask(f, "staging",
                        "SELECT t.value % s.value FROM meta t, meta s WHERE t.name = 'turn' AND s.name = 'slots'");
    for (char item[2] = "a"; item[0] <= 'e'; item[0]++) {
        play(f, "u", item);
    }
    deliver(f, "u", "sent");
    snprintf(sql, sizeof sql, "SELECT min(id) FROM staged_%d", slot);
    assert_int_equal(ask(f, "staging", sql), FAR + 1);
    close_store(f);
    return slot;
}

static void damage_row(struct store_fixture *f, int slot, const char *change, const char *item)
{
    char sql[256];
    snprintf(sql, sizeof sql, "UPDATE staged_%d SET %s WHERE item = '%s'", slot, change, item);
    damage(f, "staging", sql);
}

static void expect_seen(struct store_fixture *f, const char *items, bool expected)
{
    for (char item[2] = {items[0], 0}; item[0] != '\0'; item[0] = *++items) {
        if (seen(f, "u", item) != expected) {
            fail_msg("%s is %s", item, expected ? "unseen" : "seen");
        }
    }
}

/* --- ids that can't be --- */

static void stray_ids(struct store_fixture *f, const char *change, const char *item)
{
    int slot = stage(f);
    damage_row(f, slot, change, item);
    expect_problem(f, "an id that can't be");
    open_store(f);
    for (int round = 0; round < 3; round++) {
        expect_seen(f, "abcde", true);
        assert_true(seen(f, "u", "sent"));
        assert_true(seen(f, "u", "first"));
        if (round == 0) {
            kill_store(f);
            open_store(f);
        } else if (round == 1) {
            assert_int_equal(flush(f), 0);
            assert_int_equal(stats(f).staged_rows, 0);
        }
    }
    play(f, "v", "next"); /* goes on behind the others */
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT max(id) BETWEEN %" PRId64 " AND %" PRId64 " FROM staged", FAR + 6, FAR + 100);
    assert_int_equal(ask(f, "staging", sql), 1);
    close_store(f);
    expect_problem(f, NULL);
}

static void test_first_id_too_low(void **state)
{
    stray_ids(*state, "id = 7", "a");
}

static void test_id_zero(void **state)
{
    stray_ids(*state, "id = 0", "c");
}

static void test_id_negative(void **state)
{
    stray_ids(*state, "id = -9223372036854775808", "a");
}

static void test_last_id_too_high(void **state)
{
    stray_ids(*state, "id = 9223372036854775807", "e");
}

static void test_many_stray_ids(void **state)
{
    stray_ids(*state, "id = CASE item WHEN 'a' THEN 1 WHEN 'b' THEN -1 ELSE id + 4611686018427387904 END",
              "a' OR item = 'b' OR item = 'e");
}

/* The only row of its slot. */
static void test_id_of_the_only_row(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    close_store(f);
    damage(f, "staging", "UPDATE staged_1 SET id = 4611686018427387904");
    damage(f, "staging", "UPDATE staged_0 SET id = 4611686018427387904");
    open_store(f);
    assert_true(seen(f, "u", "a"));
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "u", "a"));
}

/* What ids say of deliveries, which is newer, holds but for the row that has lost its own. */
static void test_stray_delivery(void **state)
{
    struct store_fixture *f = *state;
    int slot = stage(f);
    damage_row(f, slot, "id = 3", "sent");
    open_store(f);
    assert_true(seen(f, "u", "sent"));
    expect_seen(f, "abcde", true);
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "u", "sent"));
}

/* --- rows that can't be read --- */

static void test_set_aside(void **state)
{
    struct store_fixture *f = *state;
    int slot = stage(f);
    damage_row(f, slot, "kind = 8", "a");
    damage_row(f, slot, "at = 110175724800000", "b");
    damage_row(f, slot, "user = ''", "c");
    damage_row(f, slot, "item = zeroblob(256)", "d");
    expect_problem(f, "neither a play nor a delivery");
    expect_problem(f, "time is in no month");
    open_store(f);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM set_aside WHERE accepted IS NULL"), 4);
    assert_int_equal(stats(f).rows_set_aside, 4);
    for (int round = 0; round < 2; round++) {
        expect_seen(f, "e", true);
        assert_true(seen(f, "u", "sent"));
        assert_int_equal(flush(f), 0);
    }
    kill_store(f);
    open_store(f);
    assert_int_equal(stats(f).rows_set_aside, 4);
    close_store(f);

    /* They are there as they were, and named until somebody accepts their loss. */
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM set_aside WHERE slot = %d AND id = %" PRId64
             " AND kind = 8 AND user = 'u' AND item = 'a'",
             slot, FAR + 1);
    assert_int_equal(ask(f, "staging", sql), 1);
    expect_problem(f, "can't be read and was set aside on 2026-11-21");
}

static void accepted(void *arg, const char *what)
{
    (void)arg;
    (void)what;
}

/* history.db may have noted the id of a row that is set aside: that makes staging.db no older copy. */
static void test_set_aside_the_newest(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    play(f, "w", "x");
    assert_int_equal(flush(f), 0);
    play(f, "u", "e");
    play(f, "u", "f");
    assert_int_equal(forget(f, "w", NULL), 1); /* none of his rows is staged */
    kill_store(f);
    damage(f, "staging",
           "UPDATE meta SET value = 0 WHERE name = 'high_water'"); /* the forget has raised it there, too */
    int slot = (int)ask(f, "staging",
                        "SELECT t.value % s.value FROM meta t, meta s WHERE t.name = 'turn' AND s.name = 'slots'");
    assert_true(ask(f, "history", "SELECT value FROM meta WHERE name = 'high_water'") >
                ask(f, "staging", "SELECT value FROM meta WHERE name = 'high_water'"));
    damage_row(f, slot, "kind = 8", "f");
    /* The row's loss is accepted, and ids go on behind the forget's. */
    assert_int_equal(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, accepted, NULL, NULL, &err), 2);
    expect_problem(f, NULL);
    open_store(f);
    expect_seen(f, "e", true);
    assert_false(seen(f, "u", "f"));
    assert_int_equal(stats(f).rows_set_aside, 0); /* accepted */
}

/* The disk fails while they are set aside: the start fails, and nothing is half done. */
static void test_set_aside_on_a_bad_disk(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    int slot = stage(f);
    damage_row(f, slot, "kind = 8", "a");
    damage_row(f, slot, "id = 1", "b");
    char kept[] = "/tmp/unseen-test-kept.XXXXXX";
    static const char *const files[] = {"staging.db", "history.db", "staging.db-wal", "history.db-wal"};
    assert_non_null(mkdtemp(kept));
    for (size_t i = 0; i < 4; i++) {
        copy_file(f->cfg.data, files[i], kept, files[i]);
    }
    for (uint64_t nth = 1;; nth++) {
        for (size_t i = 0; i < 4; i++) { /* a start that fails leaves its log */
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", f->cfg.data, files[i]);
            unlink(path);
            copy_file(kept, files[i], f->cfg.data, files[i]);
        }
        rule(VFS_CHANGE, "staging", nth, true, VFS_EIO);
        int result = try_open(f, &err);
        vfs_fault_heal();
        if (result == 0) {
            assert_true(nth > 1);
            f->store->ops->close(f->store);
            f->store = NULL;
            break; /* all changes of a start went well; it ran, and may have flushed */
        }
        f->store = NULL;
        int64_t rows = ask(f, "staging", "SELECT count(*) FROM staged WHERE item = 'a' AND kind = 'delivery'");
        bool moved = ask(f, "staging", "SELECT count(*) FROM sqlite_schema WHERE name = 'set_aside'") == 1;
        assert_int_equal(rows + (moved ? ask(f, "staging", "SELECT count(*) FROM set_aside") : 0), 1);
        assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged WHERE item = 'b'"), 1);
    }
    remove_folder(kept);
    open_store(f);
    expect_seen(f, "bcde", true);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_first_id_too_low),     TEST(test_id_zero),        TEST(test_id_negative),
        TEST(test_last_id_too_high),     TEST(test_many_stray_ids), TEST(test_id_of_the_only_row),
        TEST(test_stray_delivery),       TEST(test_set_aside),      TEST(test_set_aside_on_a_bad_disk),
        TEST(test_set_aside_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
