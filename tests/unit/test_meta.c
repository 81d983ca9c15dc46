/* The table meta of both files, crafted: no number that is read there is taken unless it can be one of ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/admin.h"
#include "store/memos.h"
#include "tests/lib/store_calls.h"

static void craft(struct store_fixture *f, const char *file, const char *sql, const char *name, const char *value)
{
    char path[PATH_MAX], text[512];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/%s.db", f->cfg.data, file);
    snprintf(text, sizeof text, sql, name, value);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", text, sqlite3_errmsg(db));
    }
    sqlite3_close(db);
}

/* In a file beside the folder, since a table that is none of ours is refused, too. */
static const char keep[] = "ATTACH '%s.%s' AS k; CREATE TABLE k.kept AS SELECT * FROM meta";
static const char put[] = "INSERT OR REPLACE INTO meta VALUES ('%s', %s)";
static const char restore[] = "ATTACH '%s.%s' AS k; DELETE FROM meta; INSERT INTO meta SELECT * FROM k.kept";

static void test_numbers(void **state)
{
    static const struct {
        const char *file, *name, *most;
    } rows[] = {
        {"staging", "turn", "4611686018427387903"},
        {"staging", "slots", "64"},
        {"staging", "starts", "4611686018427387903"},
        {"staging", "flushes", "4611686018427387903"},
        {"staging", "high_water", "4611686018427387903"},
        {"staging", "backup_ms", "253402300799999"},
        {"staging", "backup_problems", "4611686018427387903"},
        {"staging", "newest_ms", "4611686018427387903"},
        {"staging", "unsure_ms", "4611686018427387903"},
        {"staging", "leapt_ms", "4611686018427387903"},
        {"staging", "reached_ms", "4611686018427387903"},
        {"staging", "role", "2"},
        {"staging", "term", "4611686018427387903"},
        {"staging", "promoted", "1"},
        {"staging", "legacy_paused", "1"},
        {"history", "starts", "4611686018427387903"},
        {"history", "flushes", "4611686018427387903"},
        {"history", "high_water", "4611686018427387903"},
        {"history", "forgets", "4611686018427387903"},
        {"history", "begun", "253402300799999"},
    };
    static const char *const values[] = {
        "9223372036854775807", "-9223372036854775807 - 1", "'x'", "1e300", "x'00'", "NULL"};
    struct store_fixture *f = *state;
    close_store(f);
    craft(f, "staging", keep, f->cfg.data, "staging");
    craft(f, "history", keep, f->cfg.data, "history");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t v = 0, n = sizeof values / sizeof *values; v < n; v += v == 0 ? 1 + i % (n - 1) : n) {
            struct err err = {0};
            char wanted[64];
            craft(f, rows[i].file, put, rows[i].name, values[v]);
            snprintf(wanted, sizeof wanted, "%s.db: %s in meta is ", rows[i].file, rows[i].name);
            if (try_open(f, &err) == 0) {
                fail_msg("%s = %s was taken", rows[i].name, values[v]);
            }
            if (err.code != ERR_CORRUPT || strstr(err.text, wanted) == NULL || strstr(err.text, rows[i].most) == NULL) {
                fail_msg("%s = %s: %s", rows[i].name, values[v], err.text);
            }
            craft(f, "staging", restore, f->cfg.data, "staging"); /* a start may have counted itself before */
            craft(f, "history", restore, f->cfg.data, "history");
        }
    }
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s.%s", f->cfg.data, i == 0 ? "staging" : "history");
        assert_int_equal(unlink(path), 0);
    }
    open_store(f);
}

/* A memo of any length would be read into memory. */
static void test_a_memo(void **state)
{
    struct store_fixture *f = *state;
    struct buf text = {0};
    struct err err = {0};
    close_store(f);
    craft(f, "staging", "INSERT OR REPLACE INTO meta VALUES ('%s', zeroblob(%s))", "span_day", "1048577");
    open_store(f);
    assert_int_equal(f->store->memos->read(f->reader, "span_day", &text, &err), 0);
    assert_int_equal(text.len, 0);
    buf_free(&text);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_numbers),
        TEST(test_a_memo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
