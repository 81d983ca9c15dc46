/* The functions of the loadable extension, linked in rather than loaded, so that the sanitizers see them: answers,
 * NULLs, wrong types, damaged blobs, where the seed comes from, and no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "extension/extension.h"
#include "filter/filter.h"
#include "store/user/deliveries.h"
#include "tests/lib/alloc.h"
#include "tests/lib/sent_list.h"

#define SEED UINT64_C(0x5eed5eed5eed5eed)

enum { ITEMS = 40, SEALED_M = 1000003 };

/* --- the fixture: a connection, a filter with a live and a sealed part, a list of deliveries --- */

struct fixture {
    sqlite3 *db;
    struct buf filter, delivered;
    struct delivered_codec codec;
    struct arena arena;
};

static const char *item_name(int i)
{
    static char text[16];
    snprintf(text, sizeof text, "v%d", i);
    return text;
}

static void make_filter(struct fixture *f)
{
    struct filter filter = {0};
    for (unsigned part = 0; part < 2; part++) {
        uint32_t *positions = arena_alloc(&f->arena, ITEMS * sizeof *positions);
        for (int i = 0; i < ITEMS; i++) {
            positions[i] = filter_position(hash_id(SEED, slice_str(item_name(i + (int)part * ITEMS))), FILTER_LIVE_M);
        }
        filter.parts[part] = (struct filter_part){.positions = positions, .m = FILTER_LIVE_M};
        filter.parts[part].n = filter_sort(positions, ITEMS, NULL);
        filter.n_parts++;
    }
    assert_int_equal(filter_cut(&filter.parts[0], SEALED_M), 0);
    assert_int_equal(filter_encode(&filter, &f->filter), 0);
}

static void make_delivered(struct fixture *f)
{
    struct store_delivery list[] = {{.stamp = delivered_stamp(30, 7), .item = slice_of("\xff\x00z", 3)},
                                    {.stamp = delivered_stamp(20, 7), .item = slice_str("v2")},
                                    {.stamp = delivered_stamp(7, 7), .item = slice_str("v1")}};
    assert_int_equal(sent_list_pack(&f->codec, list, 3, &f->delivered), 0);
}

static void exec(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) {
        fail_msg("%s: %s", sql, error);
    }
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char *error = NULL;
    *state = f;
    assert_int_equal(sqlite3_open(":memory:", &f->db), SQLITE_OK);
    assert_int_equal(sqlite3_unseen_init(f->db, &error, NULL), SQLITE_OK);
    exec(f->db, "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;"
                "INSERT INTO meta VALUES ('schema', 1), ('seed', '5eed5eed5eed5eed')");
    make_filter(f);
    make_delivered(f);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    alloc_fail_after(-1);
    assert_int_equal(sqlite3_close(f->db), SQLITE_OK); /* nothing holds the connection back */
    buf_free(&f->filter);
    buf_free(&f->delivered);
    delivered_codec_free(&f->codec);
    arena_free(&f->arena);
    free(f);
    return 0;
}

/* The rows of a statement as one text, "a|b,c|d"; or "error: ...". ?1 and ?2 are the two blobs. */
static const char *ask_blobs(struct fixture *f, const char *sql, struct slice filter, struct slice delivered)
{
    static char out[4096];
    sqlite3_stmt *stmt = NULL;
    size_t len = 0;
    out[0] = '\0';
    int rc = sqlite3_prepare_v2(f->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_blob(stmt, 1, filter.data, (int)filter.len, SQLITE_TRANSIENT);
        sqlite3_bind_blob(stmt, 2, delivered.data, (int)delivered.len, SQLITE_TRANSIENT);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
            for (int i = 0; i < sqlite3_column_count(stmt); i++) {
                const char *text = (const char *)sqlite3_column_text(stmt, i);
                len += (size_t)snprintf(out + len, sizeof out - len, "%s%s",
                                        i > 0     ? "|"
                                        : len > 0 ? ","
                                                  : "",
                                        text != NULL ? text : "NULL");
            }
        }
    }
    if (rc != SQLITE_DONE) {
        snprintf(out, sizeof out, "error: %s", sqlite3_errmsg(f->db));
    }
    sqlite3_finalize(stmt);
    return out;
}

static const char *ask(struct fixture *f, const char *sql)
{
    return ask_blobs(f, sql, buf_slice(&f->filter), buf_slice(&f->delivered));
}

static const char *number(uint64_t n)
{
    static char text[24];
    snprintf(text, sizeof text, "%" PRId64, (int64_t)n);
    return text;
}

/* --- tests --- */

static void test_answers(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(ask(f, "SELECT unseen_key('u1')"), number(hash_id(SEED, slice_str("u1"))));
    assert_string_equal(ask(f, "SELECT unseen_hash(x'ff00')"), number(hash_id(SEED, slice_of("\xff\x00", 2))));
    assert_string_equal(ask(f, "SELECT unseen_count(?1)"), number(2 * (uint64_t)ITEMS));
    assert_string_equal(ask(f, "SELECT abs(unseen_error(?1) - 40 / 1000003.0 - 40 / 4294967296.0) < 1e-12"), "1");
    assert_string_equal(ask(f, "SELECT unseen_damage(?1)"), "NULL");
    for (int i = 0; i < 2 * ITEMS; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "SELECT unseen_has(?1, '%s')", item_name(i));
        assert_string_equal(ask(f, sql), "1");
    }
    assert_string_equal(ask(f, "SELECT unseen_has(?1, 'x'), unseen_has(?1, cast('v7' AS BLOB))"), "0|1");
    assert_string_equal(ask(f, "SELECT at, sub, group_hash, CASE typeof(item) WHEN 'text' THEN item ELSE hex(item) END "
                               "FROM unseen_delivered(?2)"),
                        "30|7|NULL|FF007A,20|7|NULL|v2,7|7|NULL|v1");
}

static void test_nulls_and_types(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(ask(f, "SELECT unseen_key(NULL), unseen_hash(NULL), unseen_has(NULL, 'v1'), "
                               "unseen_has(?1, NULL), unseen_count(NULL), unseen_error(NULL), unseen_damage(NULL)"),
                        "NULL|NULL|NULL|NULL|NULL|NULL|NULL");
    assert_string_equal(ask(f, "SELECT count(*) FROM unseen_delivered(NULL)"), "0");
    static const char *const wrong[][2] = {
        {"SELECT unseen_key(7)",
         "error: unseen_key: the user is an INTEGER, expected TEXT or a BLOB: ids are bytes, so put it in quotes"},
        {"SELECT unseen_hash(7.5)", "error: unseen_hash: the item is a REAL, expected TEXT or a BLOB"},
        {"SELECT unseen_has(?1, '')", "error: unseen_has: the item has 0 bytes, expected 1 to 255"},
        {"SELECT unseen_key(zeroblob(256))", "error: unseen_key: the user has 256 bytes, expected 1 to 255"},
        {"SELECT unseen_has('v1', 'v1')", "error: unseen_has: the filter is TEXT, expected a BLOB"},
        {"SELECT unseen_count(1)", "error: unseen_count: the filter is an INTEGER, expected a BLOB"},
        {"SELECT unseen_error(1.5)", "error: unseen_error: the filter is a REAL, expected a BLOB"},
        {"SELECT unseen_damage('')", "error: unseen_damage: the filter is TEXT, expected a BLOB"},
        {"SELECT * FROM unseen_delivered('v1')", "error: unseen_delivered: items is TEXT, expected a BLOB"},
        {"SELECT * FROM unseen_delivered",
         "error: unseen_delivered: expected one argument, the items of a row of delivered"},
        {"SELECT unseen_key()", "error: wrong number of arguments to function unseen_key()"},
        {"SELECT unseen_has(?1)", "error: wrong number of arguments to function unseen_has()"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_string_equal(ask(f, wrong[i][0]), wrong[i][1]);
    }
}

/* Each blob cut off at every byte, and with every bit of it wrong. */
static void test_damaged_blobs(void **state)
{
    struct fixture *f = *state;
    static const char *const queries[] = {"SELECT unseen_has(?1, 'v1')", "SELECT unseen_count(?1)",
                                          "SELECT unseen_error(?1)"};
    struct slice filter = buf_slice(&f->filter);
    struct slice delivered = buf_slice(&f->delivered);
    for (size_t len = 0; len < filter.len; len++) {
        for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
            const char *answer = ask_blobs(f, queries[i], slice_of(filter.data, len), delivered);
            assert_true(strncmp(answer, "error: unseen_", 14) == 0 && strstr(answer, ": month filter of ") != NULL);
        }
        assert_int_equal(strncmp(ask_blobs(f, "SELECT unseen_damage(?1)", slice_of(filter.data, len), delivered),
                                 "month filter", 12),
                         0);
    }
    for (size_t len = 0; len < delivered.len; len++) {
        const char *answer =
            ask_blobs(f, "SELECT count(*) FROM unseen_delivered(?2)", filter, slice_of(delivered.data, len));
        assert_int_equal(strncmp(answer, "error: unseen_delivered: ", 25), 0);
    }
    for (size_t bit = 0; bit < 8 * filter.len; bit++) {
        f->filter.data[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(strncmp(ask(f, "SELECT unseen_has(?1, 'v1')"), "error: unseen_has: month filter", 31), 0);
        f->filter.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_string_equal(ask(f, "SELECT unseen_has(?1, 'v1')"), "1");
}

static void test_where_the_seed_comes_from(void **state)
{
    struct fixture *f = *state;
    const char *mine = strdup(number(hash_id(SEED, slice_str("u1"))));
    const char *other = strdup(number(hash_id(1, slice_str("u1"))));
    exec(f->db, "DELETE FROM meta WHERE name = 'seed'");
    assert_string_equal(
        ask(f, "SELECT unseen_key('u1')"),
        "error: unseen_key: no hash seed: expected the history.db of a data folder, opened or attached");
    assert_string_equal(ask(f, "SELECT unseen_count(?1)"), "80"); /* needs none */

    exec(f->db, "ATTACH ':memory:' AS \"my \"\"folder\"; CREATE TABLE \"my \"\"folder\".meta (name, value);"
                "INSERT INTO \"my \"\"folder\".meta VALUES ('seed', '0000000000000001')");
    assert_string_equal(ask(f, "SELECT unseen_key('u1')"), other);
    exec(f->db, "INSERT INTO meta VALUES ('seed', '0000000000000001')"); /* a copy beside the original */
    assert_string_equal(ask(f, "SELECT unseen_key('u1')"), other);
    exec(f->db, "UPDATE main.meta SET value = '5eed5eed5eed5eed' WHERE name = 'seed'");
    assert_string_equal(ask(f, "SELECT unseen_key('u1')"),
                        "error: unseen_key: main and my \"folder have different hash seeds: open one folder at a time");
    exec(f->db, "DETACH \"my \"\"folder\"");
    assert_string_equal(ask(f, "SELECT unseen_key('u1')"), mine);

    exec(f->db, "ATTACH ':memory:' AS foreign_one; CREATE TABLE foreign_one.meta (key, text)"); /* another's meta */
    assert_string_equal(ask(f, "SELECT unseen_key('u1')"), mine);
    exec(f->db, "UPDATE main.meta SET value = 'no seed' WHERE name = 'seed'");
    assert_string_equal(ask(f, "SELECT unseen_key('u1')"),
                        "error: unseen_key: the seed in main.meta is no number of 16 hex digits");
    free((char *)mine);
    free((char *)other);
}

/* Another connection writes the seed while this one has answered before. */
static void test_a_file_that_changes(void **state)
{
    struct fixture *f = *state;
    char path[] = "/tmp/unseen-extension-XXXXXX";
    char attach[96];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    sqlite3 *writer;
    assert_int_equal(sqlite3_open(path, &writer), SQLITE_OK);
    exec(writer, "CREATE TABLE meta (name, value); INSERT INTO meta VALUES ('seed', '0000000000000001')");
    exec(f->db, "DELETE FROM meta WHERE name = 'seed'");
    snprintf(attach, sizeof attach, "ATTACH '%s' AS folder", path);
    exec(f->db, attach);
    assert_string_equal(ask(f, "SELECT unseen_key('u1') FROM folder.meta"), number(hash_id(1, slice_str("u1"))));
    exec(writer, "UPDATE meta SET value = '0000000000000002'");
    assert_string_equal(ask(f, "SELECT unseen_key('u1') FROM folder.meta"), number(hash_id(2, slice_str("u1"))));
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
    unlink(path);
}

/* What depends on the seed can't be stored in a file; what doesn't, can. */
static void test_stored_views(void **state)
{
    struct fixture *f = *state;
    exec(f->db, "CREATE TABLE t (filter); CREATE VIEW counts AS SELECT unseen_count(filter) FROM t;"
                "CREATE VIEW keys AS SELECT unseen_key('u1') FROM t; PRAGMA trusted_schema = ON");
    assert_string_equal(ask(f, "SELECT * FROM keys"), "error: unsafe use of unseen_key()");
    exec(f->db, "PRAGMA trusted_schema = OFF");
    assert_string_equal(ask(f, "SELECT * FROM counts"), "");
    exec(f->db, "CREATE TEMP VIEW mine AS SELECT unseen_key('u1') IS NOT NULL");
    assert_string_equal(ask(f, "SELECT * FROM mine"), "1");
}

static void test_no_memory(void **state)
{
    struct fixture *f = *state;
    static const char *const queries[][2] = {{"SELECT unseen_has(?1, 'v1')", "1"},
                                             {"SELECT count(*) FROM unseen_delivered(?2)", "3"}};
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        char *error = NULL;
        int n = 0, refused = 0;
        for (bool done = false; !done; n++) {
            sqlite3 *old = f->db;
            assert_int_equal(sqlite3_open(":memory:", &f->db), SQLITE_OK);
            exec(f->db, "CREATE TABLE meta (name, value); INSERT INTO meta VALUES ('seed', '5eed5eed5eed5eed')");
            alloc_fail_after(n);
            int rc = sqlite3_unseen_init(f->db, &error, NULL);
            const char *answer = rc == SQLITE_OK ? ask(f, queries[i][0]) : "error: out of memory";
            done = !alloc_failed;
            alloc_fail_after(-1);
            assert_string_equal(answer, done                      ? queries[i][1]
                                        : strstr(answer, "error") ? "error: out of memory"
                                                                  : queries[i][1]);
            refused += strstr(answer, "error") != NULL;
            assert_int_equal(sqlite3_close(f->db), SQLITE_OK);
            f->db = old;
        }
        assert_true(n > 3 && refused > 1);
    }
}

static void test_loaded_twice(void **state)
{
    struct fixture *f = *state;
    char *error = NULL;
    assert_string_equal(ask(f, "SELECT unseen_has(?1, 'v1')"), "1");
    assert_int_equal(sqlite3_unseen_init(f->db, &error, NULL), SQLITE_OK);
    assert_string_equal(ask(f, "SELECT unseen_has(?1, 'v1')"), "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nulls_and_types, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_blobs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_where_the_seed_comes_from, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stored_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loaded_twice, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
