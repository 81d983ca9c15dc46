/* The schema: what a new folder has, which files are refused, a made-up upgrade with a failure at every write; and the
 * views over tables that come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/migration.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/db/schema.h"
#include "tests/lib/world_fixture.h"

enum { HOUR_MS = 3600 * 1000 };
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

/* --- what is made, and what is refused --- */

/* Each table says first what it is, those that come later, too. */
static void test_tables_say_what_they_are(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    static const char silent[] = "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE TABLE%' AND instr(sql, '(' || "
                                 "char(10) || '    -- ') = 0";
    start(w);
    play(w, "u1", "a", SEPTEMBER_22);
    flush_world(w);
    world_stop(w);
    expect(f, "history", silent, "");
    expect(f, "staging", silent, "");
    expect(f, "history", "SELECT value FROM meta WHERE name = 'schema'", "1\n");
    expect(f, "staging", "SELECT value FROM meta WHERE name = 'schema'", "4\n");
}

static void need_refused(struct fixture *f, const char *file, const char *words)
{
    struct err err = {0};
    assert_int_equal(world_start(&f->world, &err), ERR_VERSION);
    assert_non_null(strstr(err.text, file));
    assert_non_null(strstr(err.text, words));
    err = (struct err){0};
    assert_int_equal(world_check(&f->world, &err), ERR_VERSION);
    assert_non_null(strstr(err.text, words));
}

/* Before a format is released, it may change without a step: so its number alone doesn't tell. */
static void test_other_builds(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"history", "staging"};
    static const char *const newer[] = {"newer than this program's 1", "newer than this program's 4"};
    static const int versions[] = {1, 4};
    start(&f->world);
    world_stop(&f->world);
    for (int i = 0; i < 2; i++) {
        char back[64];
        exec(f, files[i], "UPDATE meta SET value = value + 1 WHERE name = 'schema'");
        need_refused(f, files[i], newer[i]);
        exec(f, files[i], "UPDATE meta SET value = -1 WHERE name = 'schema'");
        need_refused(f, files[i], "another build");
        snprintf(back, sizeof back, "UPDATE meta SET value = %d WHERE name = 'schema'", versions[i]);
        exec(f, files[i], back);
        exec(f, files[i], "UPDATE meta SET value = value + 1 WHERE name = 'schema_hash'");
        need_refused(f, files[i], "another build");
        exec(f, files[i], "UPDATE meta SET value = value - 1 WHERE name = 'schema_hash'");
    }
    start(&f->world);
    world_stop(&f->world);
    assert_int_equal(problems(&f->world), 0);
}

/* --- the upgrade --- */

static int name_papers(struct db *db, struct err *err)
{
    return db_exec(db, "UPDATE papers SET title = 'Paper ' || id", err);
}

/* A file of its own, as three versions of a program wrote it. */
static const struct schema_step steps[] = {
    {"CREATE TABLE meta (name TEXT PRIMARY KEY, value); CREATE TABLE papers (id INTEGER PRIMARY KEY);", NULL},
    {"ALTER TABLE papers ADD COLUMN title TEXT NOT NULL DEFAULT '';", name_papers},
    {"CREATE INDEX papers_title ON papers (title);", NULL},
};

static const char *const written[] = {
    NULL,
    "SELECT value, (SELECT group_concat(id) FROM papers) FROM meta WHERE name = 'schema'",
    "SELECT value, (SELECT group_concat(id || title) FROM papers) FROM meta WHERE name = 'schema'",
    "SELECT value, (SELECT group_concat(id || title) FROM papers INDEXED BY papers_title) FROM meta WHERE name = "
    "'schema'",
};
static const char *const wanted[] = {NULL, "1|1,2,3\n", "2|1Paper 1,2Paper 2,3Paper 3\n",
                                     "3|1Paper 1,2Paper 2,3Paper 3\n"};

static int upgrade_to(const struct fixture *f, const struct schema_step *list, int version, struct err *err)
{
    struct db db;
    int result = db_open(&db, f->folder, "papers", VFS_FAULT_NAME, DB_WRITE_FULL, err);
    if (result == 0) {
        result = schema_upgrade(&db, list, version, err);
        db_close(&db);
    }
    return result;
}

static void make_first(const struct fixture *f)
{
    struct err err = {0};
    char command[128];
    snprintf(command, sizeof command, "rm -f %s/papers.db*", f->folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(upgrade_to(f, steps, 1, &err), 0);
    exec(f, "papers", "INSERT INTO papers VALUES (1), (2), (3)");
}

static void need_version(const struct fixture *f, int version)
{
    expect(f, "papers", written[version], wanted[version]);
}

static void test_upgrade(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    for (int last = 1; last <= 3; last++) {
        make_first(f);
        need_version(f, 1);
        assert_int_equal(upgrade_to(f, steps, last, &err), 0);
        need_version(f, last);
        assert_int_equal(upgrade_to(f, steps, 3, &err), 0);
        need_version(f, 3);
        assert_int_equal(upgrade_to(f, steps, 3, &err), 0); /* nothing is left to do */
        need_version(f, 3);
        assert_int_equal(upgrade_to(f, steps, 2, &err), ERR_VERSION);
    }
    /* A program whose first step is another one. */
    static const struct schema_step others[] = {{"CREATE TABLE meta (name, value)", NULL}, {"no SQL", NULL}};
    make_first(f);
    assert_int_equal(upgrade_to(f, others, 2, &err), ERR_VERSION);
    need_version(f, 1);
}

/* The disk fails at the first write of the upgrade, at the second, and so on: the file is whole, of one version or
 * another, and the next start ends the upgrade. */
static void test_upgrade_interrupted(void **state)
{
    struct fixture *f = *state;
    int failed[4] = {0};
    bool done = false;
    for (uint64_t nth = 1; !done; nth++) {
        struct err err = {0};
        make_first(f);
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_CHANGE, .file = "", .nth = nth, .sticky = true, .action = VFS_EIO});
        done = upgrade_to(f, steps, 3, &err) == 0;
        vfs_fault_heal();
        char *version = ask(f, "papers", "SELECT value FROM meta WHERE name = 'schema'");
        need_version(f, version[0] - '0');
        failed[version[0] - '0'] += !done;
        free(version);
        assert_int_equal(upgrade_to(f, steps, 3, &err), 0);
        need_version(f, 3);
        assert_true(nth < 200);
    }
    assert_true(failed[1] > 1 && failed[2] > 1);
}

/* A staging.db of version 1, as the first builds wrote it: each slot's rows in one table, and views over those. */
static void make_version_1(struct fixture *f)
{
    char sql[512];
    uint64_t chain[2] = {0, hash_checksum(sql_file_staging, strlen(sql_file_staging))};
    snprintf(sql, sizeof sql,
             "UPDATE meta SET value = 1 WHERE name = 'schema';"
             "UPDATE meta SET value = %" PRId64 " WHERE name = 'schema_hash';"
             "ALTER TABLE forgets DROP COLUMN cut; DROP TABLE merges; DROP VIEW ring; DROP VIEW staged; CREATE VIEW "
             "staged AS SELECT 0 AS "
             "slot, id, user FROM staged_0;"
             "CREATE VIEW ring AS SELECT 0 AS slot, count(*) AS rows FROM staged_0",
             (int64_t)hash_checksum(chain, sizeof chain));
    exec(f, "staging", sql);
}

static void test_staging_of_version_1(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    start(w);
    play(w, "u1", "a", SEPTEMBER_22);
    play(w, "u2", "b", SEPTEMBER_22);
    world_crash(w);
    make_version_1(f);
    start(w);
    expect(f, "staging", "SELECT value FROM meta WHERE name = 'schema'", "4\n");
    expect(f, "staging", "SELECT kind, user, item FROM staged ORDER BY id", "play|u1|a\nplay|u2|b\n");
    flush_world(w);
    expect(f, "staging", "SELECT count(*) FROM staged", "0\n");
    expect(f, "history", "SELECT user, items FROM plays ORDER BY 1", "u1|1\nu2|1\n");
    world_stop(w);
    assert_int_equal(problems(w), 0);
}

/* One of version 3, which knows no groups; the view over what waits for the mirror was another. */
static void test_staging_of_version_3(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    char sql[768];
    uint64_t chain[2] = {0};
    const char *const steps_of_3[] = {sql_file_staging, sql_file_staging_2, sql_file_staging_3};
    for (int i = 0; i < 3; i++) {
        chain[1] = hash_checksum(steps_of_3[i], strlen(steps_of_3[i]));
        chain[0] = hash_checksum(chain, sizeof chain);
    }
    start(w);
    play(w, "u1", "a", SEPTEMBER_22);
    world_crash(w);
    snprintf(sql, sizeof sql,
             "UPDATE meta SET value = 3 WHERE name = 'schema';"
             "UPDATE meta SET value = 'unseen 0.1.0' WHERE name = 'feed_needs';"
             "UPDATE meta SET value = %" PRId64 " WHERE name = 'schema_hash';"
             "DROP VIEW staged; CREATE VIEW staged AS SELECT 0 AS slot, id, user FROM staged_0;"
             "DROP TABLE merges; DROP VIEW mirror_queue; CREATE VIEW mirror_queue AS SELECT seq AS id, kind FROM feed",
             (int64_t)chain[0]);
    exec(f, "staging", sql);
    start(w);
    expect(f, "staging", "SELECT value FROM meta WHERE name = 'schema'", "4\n");
    expect(f, "staging", "SELECT kind, user, item, group_hash IS NULL FROM staged", "play|u1|a|1\n");
    expect(f, "staging", "SELECT count(item) FROM mirror_queue", "0\n");
    world_stop(w);
    assert_int_equal(problems(w), 0);
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
    flush_world(w);
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

/* A user is found by the key: nothing is read through. */
static void test_plan(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    start(w);
    play(w, "u1", "a", SEPTEMBER_22 - 40 * DAY_MS);
    play(w, "u1", "b", SEPTEMBER_22);
    flush_world(w);
    world_stop(w);
    exec(f, "history",
         "CREATE TABLE sealed_202608 (user_key INTEGER PRIMARY KEY, counted INTEGER, filter BLOB NOT NULL, items "
         "INTEGER AS (coalesce(counted, instr('123456789ABCDEF', substr(hex(substr(filter, 1, 1)), 2)))) VIRTUAL); "
         "UPDATE months SET sealed_to = 0 WHERE month = 2026 * 12 + 7");
    start(w); /* two months, one of them in two tables */
    static const char *const questions[] = {
        "EXPLAIN QUERY PLAN SELECT user, month FROM plays WHERE user_key = 7",
        "EXPLAIN QUERY PLAN SELECT * FROM plays WHERE user_key = 7 AND month >= '2026-09' AND length(hex(filter)) > 1",
        "EXPLAIN QUERY PLAN SELECT user, total(items), total(bytes) FROM plays WHERE user_key = 7",
        "EXPLAIN QUERY PLAN SELECT * FROM plays WHERE user_key = 7",
        "EXPLAIN QUERY PLAN SELECT user, items FROM deliveries WHERE user_key = 7",
        "EXPLAIN QUERY PLAN SELECT user, item_hash FROM forgotten WHERE user_key = 7",
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
    /* By the id all users are read, but no month. */
    char *by_id = ask(f, "history", "EXPLAIN QUERY PLAN SELECT month FROM plays WHERE user = 'u1'");
    assert_non_null(strstr(by_id, "SCAN users"));
    assert_non_null(strstr(by_id, "SEARCH plays_202609"));
    assert_null(strstr(by_id, "SCAN plays_"));
    free(by_id);
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
    start(w);
    play(w, "u1", "a", SEPTEMBER_22);
    flush_world(w);
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
        cmocka_unit_test_setup_teardown(test_tables_say_what_they_are, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_builds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upgrade, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upgrade_interrupted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_staging_of_version_1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_staging_of_version_3, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_of_a_new_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_hands, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
