/* The schema: folders that earlier versions wrote, upgraded, also with a failure at every write; and the views over
 * tables that come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/sqlite/db/db.h"
#include "world_fixture.h"

enum { HOUR_MS = 3600 * 1000, TEXT = 32768 };
static const int64_t DAY_MS = INT64_C(24) * HOUR_MS;
static const int64_t SEPTEMBER_22 = INT64_C(1790071200000); /* 2026-09-22T10:00Z */

struct fixture {
    struct world world;
    char folder[64];
};

static void path_of(char out[128], const char *folder, const char *file)
{
    snprintf(out, 128, "%s/%s.db", folder, file);
}

/* Plays a file of SQL, as .dump wrote it, into a new folder/file.db. */
static void load(const struct fixture *f, const char *file, const char *snapshot)
{
    char path[128];
    static char sql[TEXT];
    FILE *in = fopen(snapshot, "r");
    assert_non_null(in);
    sql[fread(sql, 1, sizeof sql - 1, in)] = '\0';
    fclose(in);
    path_of(path, f->folder, file);
    remove(path);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void exec(const struct fixture *f, const char *file, const char *sql)
{
    char path[128];
    sqlite3 *db;
    path_of(path, f->folder, file);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* All rows, "a|b" each on a line. The caller frees it. */
static char *ask(const struct fixture *f, const char *file, const char *sql)
{
    char path[128];
    sqlite3 *db;
    sqlite3_stmt *stmt = NULL;
    struct buf out = {0};
    path_of(path, f->folder, file);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(stmt); i++) {
            const char *text = (const char *)sqlite3_column_text(stmt, i);
            buf_addf(&out, "%s%s", i > 0 ? "|" : "", text != NULL ? text : "");
        }
        buf_add(&out, "\n", 1);
    }
    sqlite3_finalize(stmt);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    buf_add(&out, "", 1);
    assert_false(out.failed);
    return out.data;
}

static void expect(const struct fixture *f, const char *file, const char *sql, const char *wanted)
{
    char *rows = ask(f, file, sql);
    assert_string_equal(rows, wanted);
    free(rows);
}

static int problems(struct world *w)
{
    struct err err = {0};
    int n = world_check(w, &err);
    if (n < 0) {
        fail_msg("check: %s", err.text);
    }
    return n;
}

static void play(struct world *w, const char *user, const char *item, int64_t at_ms)
{
    struct err err = {0};
    struct slice id = slice_str(item);
    struct world_event event = {.kind = STORE_PLAY, .at_ms = at_ms, .user = slice_str(user), .items = &id, .n = 1};
    world_record(w, &event, 1, NULL, NULL);
    assert_int_equal(world_wait(w, NULL, &err), 0);
}

static int setup(void **state)
{
    static struct fixture f;
    world_fixture_init(&f.world, "schema", SEPTEMBER_22, f.folder);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    world_fixture_end(&f->world, f->folder);
    return 0;
}

/* --- the upgrade --- */

/* As these versions of the schema left it. */
static void load_folder(struct fixture *f, int history, int staging)
{
    char path[256];
    snprintf(path, sizeof path, SRCDIR "/tests/data/history_v%d.sql", history);
    load(f, "history", path);
    snprintf(path, sizeof path, SRCDIR "/tests/data/staging_v%d.sql", staging);
    load(f, "staging", path);
    f->world.cfg.hash_seed_given = false;
}

static const char schema_sql[] = "SELECT name, sql FROM sqlite_schema WHERE name <> 'plays' AND name NOT GLOB "
                                 "'plays_*' AND name NOT GLOB 'sealed_*' ORDER BY name";

/* Whatever version a folder comes from, its schema becomes the one of a new folder, to the letter. */
static void test_one_schema(void **state)
{
    struct fixture *f = *state;
    start(&f->world);
    world_stop(&f->world);
    char *history = ask(f, "history", schema_sql);
    char *staging = ask(f, "staging", schema_sql);
    static const int versions[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {3, 4}, {3, 5}};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        load_folder(f, versions[i][0], versions[i][1]);
        start(&f->world);
        world_stop(&f->world);
        expect(f, "history", schema_sql, history);
        expect(f, "staging", schema_sql, staging);
        char table[1024];
        db_expand(sql_file_month, month_make(2026, 8), table, sizeof table);
        const char *body = strchr(table, '(');
        char *stored = ask(f, "history",
                           "SELECT substr(sql, instr(sql, '(')) FROM sqlite_schema WHERE name = "
                           "'plays_202608'");
        assert_int_equal(strncmp(stored, body, strlen(stored) - 1), 0);
        free(stored);
    }
    assert_null(strstr(history, "CREATE TABLE users (user_key")); /* each says first what it is */
    assert_non_null(strstr(history, "CREATE TABLE users (\n    -- Every user"));
    assert_non_null(strstr(staging, "CREATE TABLE staged_0 (\n    -- One slot"));
    free(history);
    free(staging);
}

static void need_whole_v2(struct fixture *f)
{
    struct world *w = &f->world;
    static const char *const played[][2] = {{"anna", "a2"}, {"anna", "a3"}, {"anna", "a9"},
                                            {"bert", "b1"}, {"bert", "d1"}, {"carl", "c1"}};
    for (size_t i = 0; i < sizeof played / sizeof *played; i++) {
        assert_true(is_seen(w, played[i][0], played[i][1]));
    }
    assert_false(is_seen(w, "anna", "a1")); /* forgotten */
    assert_false(is_seen(w, "carl", "a2"));
    assert_int_equal(problems(w), 0);
    expect(f, "history", "SELECT month, user, items FROM plays ORDER BY month, user",
           "2026-08|anna|2\n2026-08|bert|1\n2026-09|anna|1\n2026-09|carl|1\n");
    expect(f, "history", "SELECT user, item_hash FROM forgotten", "anna|4249428017983793941\n");
    expect(f, "history", "SELECT user, part, set_aside, accepted, bytes FROM damaged",
           "bert|2026-09|2026-09-22 09:56:40|2026-09-22 09:58:20|1\n");
    expect(f, "history", "SELECT month, state, percent, expires FROM month_report",
           "2026-09|live||\n2026-08|sealing|44.7|\n");
    expect(
        f, "staging", "SELECT slot, id, time, kind, user, item, at FROM staged",
        "0|5|2026-09-22 09:58:20|play|anna|a9|1790071100000\n0|6|2026-09-22 09:58:20|delivery|bert|d1|1790071100500\n");
}

static void test_upgrade(void **state)
{
    struct fixture *f = *state;
    load_folder(f, 2, 1);
    assert_int_equal(problems(&f->world), 0); /* read as it is, by a program that knows more */
    start(&f->world);
    need_whole_v2(f);
}

static enum store_note note_of(struct world *w, const char *user)
{
    return w->store->ops->migration_state(w->store, hash_user_key(w->dedup.seed, slice_str(user)));
}

/* Notes that schema 4 had are what they were. */
static void need_migration_users(struct fixture *f)
{
    struct world *w = &f->world;
    struct store_migration_counts users_to_migrate;
    w->store->ops->migration_users_state(w->store, &users_to_migrate);
    assert_int_equal(users_to_migrate.all, 5);
    assert_int_equal(users_to_migrate.waiting, 2);
    assert_int_equal(users_to_migrate.problems, 1);
    assert_true(users_to_migrate.paused);
    assert_int_equal(note_of(w, "dora"), MIGRATION_WAITING);
    assert_int_equal(note_of(w, "d\xff"), MIGRATION_WAITING);
    assert_int_equal(note_of(w, "anna"), MIGRATION_DONE);
    assert_int_equal(note_of(w, "emil"), MIGRATION_LEFT);
    assert_int_equal(note_of(w, "fred"), MIGRATION_ENDED);
    assert_int_equal(note_of(w, "bert"), MIGRATION_NONE);
    assert_true(is_seen(w, "anna", "a9"));
    assert_int_equal(problems(w), 0);
    expect(f, "staging", "SELECT * FROM migration", "5|2|1|1|1|60.0|yes|1\n");
    expect(f, "staging", "SELECT time, key FROM migration_problems", "2026-09-22 09:56:40|played:emil\n");
}

static void test_upgrade_notes(void **state)
{
    struct fixture *f = *state;
    load_folder(f, 3, 4);
    assert_int_equal(problems(&f->world), 0);
    start(&f->world);
    need_migration_users(f);
    expect(f, "staging", "SELECT count(*) FROM mirror_queue", "0\n");
}

static void test_upgrade_mirror(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    struct store_mirror_state mirror;
    load_folder(f, 3, 5);
    assert_int_equal(problems(w), 0);
    start(w);
    need_migration_users(f);
    w->store->ops->mirror_state(w->store, &mirror);
    assert_int_equal(mirror.rows, 4);
    assert_int_equal(mirror.broken_ms, 1790070000000);
    assert_int_equal(mirror.left_out, 3);
    expect(f, "staging", "SELECT id, time, kind, user, item FROM mirror_queue",
           "7|2026-09-22 09:58:20|play|anna|a9\n8|2026-09-22 09:58:20|delivery|bert|d1\n"
           "9|2026-09-22 09:58:20|forget user|fred|\n10|2026-09-22 09:58:20|forget item|anna|a1\n");
}

/* The disk fails at the first write of the upgrade, at the second, and so on: either version is whole, and the next
 * start ends the upgrade. */
static void interrupt_upgrade(struct fixture *f, int history, int staging, void (*need)(struct fixture *), int least)
{
    struct world *w = &f->world;
    bool done = false;
    int failed = 0;
    for (uint64_t nth = 1; !done; nth++) {
        struct err err = {0};
        load_folder(f, history, staging);
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_CHANGE, .file = "", .nth = nth, .sticky = true, .action = VFS_EIO});
        if (world_start(w, &err) == 0) {
            done = true;
            world_crash(w);
        }
        vfs_fault_heal();
        failed += !done;
        assert_int_equal(problems(w), 0);
        start(w);
        need(f);
        world_stop(w);
        assert_true(nth < 200);
    }
    assert_true(failed > least);
}

static void test_upgrade_interrupted(void **state)
{
    interrupt_upgrade(*state, 2, 1, need_whole_v2, 10);
}

static void test_upgrade_notes_interrupted(void **state)
{
    interrupt_upgrade(*state, 3, 4, need_migration_users, 5);
}

/* --- the views --- */

static void test_views_of_a_new_folder(void **state)
{
    struct fixture *f = *state;
    start(&f->world);
    expect(f, "history", "SELECT count(*) FROM plays WHERE user = 'u' AND month > '2026'", "0\n");
    expect(f, "history", "SELECT (SELECT count(*) FROM month_report) + (SELECT count(*) FROM expiring)", "0\n");
    expect(f, "staging", "SELECT slot, state, rows, users FROM ring",
           "0|open|0|0\n1|empty|0|0\n2|empty|0|0\n3|empty|0|0\n4|empty|0|0\n5|empty|0|0\n");
    expect(f, "staging", "SELECT count(*) FROM staged", "0\n");
    assert_int_equal(problems(&f->world), 0);
}

/* Months come, are sealed, expire and go, and slots come and go: the views follow. */
static void test_views_follow(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    struct err err = {0};
    start(w);
    play(w, "u1", "a", SEPTEMBER_22 - 40 * DAY_MS);
    play(w, "u1", "b", SEPTEMBER_22);
    play(w, "u2", "b", SEPTEMBER_22);
    expect(f, "staging", "SELECT slot, state, rows, users, oldest, newest FROM ring WHERE state <> 'empty'",
           "0|open|3|2|2026-08-13 10:00:00|2026-09-22 10:00:00\n");
    world_flush(w);
    assert_int_equal(world_wait(w, NULL, &err), 0);
    expect(f, "staging", "SELECT slot, state FROM ring WHERE state <> 'empty'", "1|open\n");
    expect(f, "history", "SELECT month, user, items FROM plays ORDER BY 1, 2",
           "2026-08|u1|1\n2026-09|u1|1\n2026-09|u2|1\n");
    expect(f, "history", "SELECT month, expires FROM month_report", "2026-09|2027-04-01\n2026-08|2027-03-01\n");
    assert_int_equal(world_advance(w, 16 * HOUR_MS, &err), 0); /* to where the sweep's window is open */
    for (int day = 0; day < 170; day++) {
        assert_int_equal(world_advance(w, DAY_MS, &err), 0); /* to March: August's sweep is under way */
        assert_int_equal(day % 10 == 0 ? problems(w) : 0, 0);
    }
    expect(f, "history", "SELECT month, state FROM month_report", "2026-09|sealed\n2026-08|expiring\n");
    expect(f, "history", "SELECT month, gone_by FROM expiring", "2026-08|2027-04-01\n");
    for (int day = 0; day < 60; day++) {
        assert_int_equal(world_advance(w, DAY_MS, &err), 0);
    }
    expect(f, "history", "SELECT count(*) FROM plays", "0\n");
    world_stop(w);

    w->cfg.slots = 3;
    start(w);
    expect(f, "staging", "SELECT count(*) FROM ring", "3\n");
    world_stop(w);
    w->cfg.slots = 4;
    start(w);
    expect(f, "staging", "SELECT count(*), sum(state = 'open') FROM ring", "4|1\n");
    assert_int_equal(problems(w), 0);
}

/* A user is found by the index, then by his key in each month: nothing is read through. */
static void test_plan(void **state)
{
    struct fixture *f = *state;
    load_folder(f, 2, 1); /* two months, one of them in two tables */
    start(&f->world);
    static const char *const questions[] = {
        "EXPLAIN QUERY PLAN SELECT month FROM plays WHERE user = 'u1'",
        "EXPLAIN QUERY PLAN SELECT * FROM plays WHERE user = 'u1' AND month >= '2026-09' AND length(hex(filter)) > 1",
        "EXPLAIN QUERY PLAN SELECT total(items), total(bytes) FROM plays WHERE user = 'u1'",
        "EXPLAIN QUERY PLAN SELECT * FROM plays WHERE user_key = 7",
        "EXPLAIN QUERY PLAN SELECT items FROM deliveries WHERE user = 'u1'",
        "EXPLAIN QUERY PLAN SELECT item_hash FROM forgotten WHERE user = 'u1'",
    };
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        char *plan = ask(f, "history", questions[i]);
        const char *table = strstr(plan, "SCAN ");
        if (table != NULL && strncmp(table, "SCAN (subquery", 14) != 0 && strncmp(table, "SCAN plays\n", 11) != 0) {
            fail_msg("%s:\n%s", questions[i], plan);
        }
        int searches = 0;
        for (const char *at = plan; (at = strstr(at, "SEARCH ")) != NULL; at++) {
            searches++;
        }
        assert_int_equal(searches, i < 4 ? 6 : 2);
        free(plan);
    }
    /* All users: a month's table in its own order, never all of `users` with a look-up at random for each. */
    static const char all[] = "EXPLAIN QUERY PLAN SELECT user, items FROM plays ORDER BY items";
    char *plan = ask(f, "history", all);
    assert_non_null(strstr(plan, "SCAN plays_202609"));
    assert_null(strstr(plan, "SCAN users"));
    free(plan);
}

/* What other hands did is found, and mended by the next start. */
static void test_other_hands(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    struct err err = {0};
    start(w);
    play(w, "u1", "a", SEPTEMBER_22);
    world_flush(w);
    assert_int_equal(world_wait(w, NULL, &err), 0);
    world_stop(w);
    assert_int_equal(problems(w), 0);
    exec(f, "history", "DROP VIEW plays; CREATE VIEW plays AS SELECT 1");
    exec(f, "staging", "DROP VIEW ring; ALTER TABLE staged_5 RENAME TO staged_6");
    assert_int_equal(problems(w), 3);
    start(w);
    world_stop(w);
    assert_int_equal(problems(w), 0);
    exec(f, "history", "DROP VIEW forgotten");
    assert_int_equal(problems(w), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_schema, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upgrade, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upgrade_notes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upgrade_mirror, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upgrade_interrupted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upgrade_notes_interrupted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_of_a_new_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_hands, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
