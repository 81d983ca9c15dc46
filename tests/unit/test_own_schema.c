/* Folders that were made to harm, or were changed by others: whatever a schema has that is not ours is refused by name,
 * at a start, by a check, and by what else opens a folder; and what is ours, in all its forms, is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/db/own_schema.h"
#include "tests/lib/store_calls.h"

/* A text that SQLite's CREATE would not write. */
#define WRITE_SCHEMA(change) "PRAGMA writable_schema = ON; " change "; PRAGMA writable_schema = RESET"

static const struct crafted {
    const char *what, *file, *sql;
    const char *words[3]; /* of the error */
} crafted[] = {
    {"a trigger that takes back what is recorded",
     "staging",
     "CREATE TRIGGER t AFTER INSERT ON staged_0 BEGIN DELETE FROM staged_0; END",
     {"trigger \"t\" on \"staged_0\"", "DROP TRIGGER \"t\""}},
    {"several",
     "staging",
     "CREATE TRIGGER t AFTER INSERT ON staged_0 BEGIN DELETE FROM staged_0; END;"
     "CREATE TRIGGER t1 AFTER INSERT ON staged_1 BEGIN DELETE FROM staged_1; END",
     {"trigger \"t\"", "and 1 more"}},
    {"a trigger of history.db",
     "history",
     "CREATE TRIGGER t BEFORE DELETE ON exceptions BEGIN SELECT raise(IGNORE); END",
     {"trigger \"t\" on \"exceptions\""}},
    {"a trigger on meta, which is read first",
     "history",
     "CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM users; END",
     {"trigger \"t\" on \"meta\""}},
    {"a view in place of a table, with a trigger that takes its rows",
     "staging",
     "ALTER TABLE positions RENAME TO zz; CREATE VIEW positions AS SELECT source, next FROM zz;"
     "CREATE TRIGGER t INSTEAD OF INSERT ON positions BEGIN SELECT 1; END",
     {"positions is a \"view\" instead of a table", "restore a backup"}},
    {"a view that never ends in place of a table",
     "staging",
     "DROP TABLE set_aside; CREATE VIEW set_aside AS WITH RECURSIVE r (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) "
     "SELECT a AS slot, a AS id, a AS kind, a AS user, a AS item, a AS at, a AS found, NULL AS accepted FROM r",
     {"set_aside is a \"view\" instead of a table"}},
    {"the same in place of meta",
     "staging",
     "DROP VIEW ring; DROP VIEW migration; ALTER TABLE meta RENAME TO zz; CREATE VIEW meta AS WITH RECURSIVE r (a) AS "
     "(SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT 'schema' AS name, a AS value FROM r",
     {"view \"meta\"", "restore a backup"}},
    {"a view of their own", "staging", "CREATE VIEW mine AS SELECT user FROM staged_0", {"view \"mine\""}},
    {"a table of their own", "history", "CREATE TABLE notes (text)", {"table \"notes\"", "DROP TABLE \"notes\""}},
    {"a virtual table", "history", "CREATE VIRTUAL TABLE v USING dbstat", {"table \"v\"", "DROP TABLE \"v\""}},
    {"a virtual table in place of ours",
     "history",
     "DROP TABLE shared_keys; CREATE VIRTUAL TABLE shared_keys USING dbstat",
     {"table shared_keys", "expected"}},
    {"an index of their own", "history", "CREATE INDEX by_user ON users (user)", {"index \"by_user\" on \"users\""}},
    {"an index over what is computed",
     "history",
     "CREATE INDEX costly ON users (hex(zeroblob(1000000)) || user)",
     {"index \"costly\" on \"users\""}},
    {"an index that has rows replaced",
     "staging",
     "CREATE UNIQUE INDEX one ON staged_1 (user)",
     {"index \"one\" on \"staged_1\"", "DROP INDEX \"one\""}},
    {"a part of an index", "staging", "CREATE INDEX part ON runs (run) WHERE run > 5", {"index \"part\" on \"runs\""}},
    {"no index", "history", "DROP INDEX quarantine_user", {"index quarantine_user is missing", "CREATE INDEX"}},
    {"another index of that name",
     "history",
     "DROP INDEX quarantine_user; CREATE INDEX quarantine_user ON quarantine (month)",
     {"index quarantine_user", "\"month\" stands where \"user_key\""}},
    {"that index on another table",
     "history",
     "DROP INDEX quarantine_user; CREATE INDEX quarantine_user ON delivered (user_key)",
     {"index quarantine_user is on \"delivered\" instead of quarantine"}},
    {"no table", "staging", "DROP TABLE sessions", {"table sessions is missing"}},
    {"a table under another name", "staging", "ALTER TABLE sessions RENAME TO away", {"table sessions is missing"}},
    {"a name in other letters",
     "staging",
     "ALTER TABLE sessions RENAME TO x; ALTER TABLE x RENAME TO Sessions",
     {"table sessions is missing"}},
    {"a column more", "history", "ALTER TABLE users ADD COLUMN mail TEXT", {"table users", "\",\" stands where \")\""}},
    {"a computed column",
     "staging",
     "DROP TABLE runs; CREATE TABLE runs (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, first_seq INTEGER AS (id))",
     {"table runs", "\"AS\" stands where \"NOT\""}},
    {"a column of another kind",
     "history",
     "DROP TABLE delivered; CREATE TABLE delivered (user_key TEXT PRIMARY KEY, items BLOB NOT NULL)",
     {"table delivered", "\"TEXT\" stands where \"INTEGER\""}},
    {"a rule for a column",
     "staging",
     "DROP TABLE runs; CREATE TABLE runs (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, first_seq INTEGER NOT NULL "
     "CHECK (first_seq < 5))",
     {"table runs", "\"CHECK\" stands where \")\""}},
    {"a conflict that replaces",
     "history",
     "DROP TABLE exceptions; CREATE TABLE exceptions (user_key INTEGER NOT NULL, item_hash INTEGER NOT NULL, PRIMARY "
     "KEY (user_key, item_hash) ON CONFLICT REPLACE) WITHOUT ROWID",
     {"table exceptions", "\"ON\" stands where \")\""}},
    {"with row ids",
     "history",
     "DROP TABLE exceptions; CREATE TABLE exceptions (user_key INTEGER NOT NULL, item_hash INTEGER NOT NULL, PRIMARY "
     "KEY (user_key, item_hash))",
     {"table exceptions", "the end stands where \"WITHOUT\""}},
    {"other letters that sort",
     "staging",
     "DROP TABLE feed_consumers; CREATE TABLE feed_consumers (name TEXT COLLATE NOCASE PRIMARY KEY, cursor INTEGER NOT "
     "NULL, gap INTEGER NOT NULL, lost INTEGER NOT NULL, left_out INTEGER NOT NULL) WITHOUT ROWID",
     {"table feed_consumers", "\"COLLATE\" stands where \"PRIMARY\""}},
    {"a month's table of another kind",
     "history",
     "DROP TABLE plays_202611; CREATE TABLE plays_202611 (user_key INTEGER PRIMARY KEY, counted INTEGER, filter BLOB "
     "NOT NULL, items INTEGER AS (7) VIRTUAL)",
     {"table plays_202611", "\"7\" stands where \"coalesce\""}},
    {"a view in place of a month",
     "history",
     "DROP TABLE plays_202611; CREATE VIEW plays_202611 AS SELECT 1 AS user_key",
     {"view \"plays_202611\""}},
    {"a month that can't be", "history", "CREATE TABLE plays_202613 (x)", {"table \"plays_202613\""}},
    {"a month in more digits", "history", "CREATE TABLE plays_0202611 (x)", {"table \"plays_0202611\""}},
    {"a slot's table of another kind",
     "staging",
     "CREATE TABLE staged_7 (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL COLLATE NOCASE, item NOT "
     "NULL, at INTEGER NOT NULL)",
     {"table staged_7", "\"COLLATE\" stands where \",\""}},
    {"a month in the wrong file", "staging", "CREATE TABLE plays_202611 (x)", {"table \"plays_202611\""}},
    {"a word cut in two",
     "staging",
     WRITE_SCHEMA("UPDATE sqlite_schema SET sql = replace(sql, 'first_seq', 'first seq') WHERE name = 'runs'"),
     {"table runs", "\"first\" stands where \"first_seq\""}},
    {"a comment that hides",
     "staging",
     WRITE_SCHEMA("UPDATE sqlite_schema SET sql = replace(sql, ', first_seq INTEGER NOT NULL', "
                  "'/*, first_seq INTEGER NOT NULL*/') WHERE name = 'runs'"),
     {"table runs", "\")\" stands where \",\""}},
    {"a text that is no SQL",
     "staging",
     WRITE_SCHEMA("UPDATE sqlite_schema SET sql = 'CREATE nonsense' WHERE name = 'runs'"),
     {"malformed", "--salvage"}},
    {"two tables with the same pages",
     "staging",
     WRITE_SCHEMA("UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'staged_0') "
                  "WHERE name = 'staged_1'"),
     {"\"staged_0\" and \"staged_1\" have the same pages"}},
    {"a table over the schema itself",
     "staging",
     WRITE_SCHEMA("UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'runs'"),
     {"malformed", "runs"}},
    {"a row that says another name than its SQL",
     "staging",
     WRITE_SCHEMA("UPDATE sqlite_schema SET name = 'other' WHERE name = 'runs'"),
     {"malformed", "other"}},
    {"names that act on a terminal",
     "staging",
     "CREATE TABLE \"x\x1b[31m\r\ny\" (id)",
     {"table \"x\\u001b[31m\\r\\ny\"", "restore a backup"}},
    {"a name in quotes", "staging", "CREATE TABLE \"a\"\"b\" (id)", {"table \"a\\\"b\"", "restore a backup"}},
    {"statistics that are none",
     "history",
     WRITE_SCHEMA("INSERT INTO sqlite_schema SELECT 'table', 'sqlite_stat1', 'sqlite_stat1', max(rootpage), 'CREATE "
                  "TABLE sqlite_stat1 (tbl, idx, stat, more)' FROM sqlite_schema"),
     {"table sqlite_stat1"}},
};

static const char *const files[] = {"staging", "history"};

static void keep(const struct store_fixture *f, bool back)
{
    char aside[PATH_MAX], name[32], copy[32];
    snprintf(aside, sizeof aside, "%s", f->cfg.data);
    for (int i = 0; i < 2; i++) {
        static const char *const beside[] = {"-wal", "-shm", "-journal"};
        for (int b = 0; b < 3 && back; b++) {
            char path[PATH_MAX + 32];
            snprintf(path, sizeof path, "%s/%s.db%s", aside, files[i], beside[b]);
            unlink(path);
        }
        snprintf(name, sizeof name, "%s.db", files[i]);
        snprintf(copy, sizeof copy, "%s.kept", files[i]);
        assert_true(copy_file(aside, back ? copy : name, aside, back ? name : copy));
    }
}

static bool has_word(const char *text, const char *word)
{
    return word == NULL || strstr(text, word) != NULL;
}

static void need_words(const struct crafted *c, const char *text)
{
    for (size_t i = 0; i < sizeof c->words / sizeof *c->words; i++) {
        if (!has_word(text, c->words[i])) {
            fail_msg("%s: \"%s\" is not in: %s", c->what, c->words[i], text);
        }
    }
}

static void fill_folder(struct store_fixture *f)
{
    play(f, "u", "a");
    deliver(f, "u", "d");
    assert_int_equal(flush(f), 0);
    play(f, "v", "a");
    close_store(f);
}

static void test_crafted(void **state)
{
    struct store_fixture *f = *state;
    fill_folder(f);
    keep(f, false);
    for (size_t i = 0; i < sizeof crafted / sizeof *crafted; i++) {
        const struct crafted *c = &crafted[i];
        struct err err = {0};
        damage(f, c->file, c->sql);
        if (try_open(f, &err) != ERR_CORRUPT) {
            fail_msg("%s: it starts: %s", c->what, err.text);
        }
        need_words(c, err.text);
        assert_non_null(strstr(err.text, c->file));
        expect_problem(f, c->words[0]);
        keep(f, true);
    }
    expect_problem(f, NULL);
    open_store(f);
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "v", "a"));
}

static int take_seed(void *arg, uint64_t seed, struct err *err)
{
    (void)arg, (void)seed, (void)err;
    return 0;
}

/* Each way into a folder. */
static void test_ways(void **state)
{
    static const char *const triggers[] = {"CREATE TRIGGER t AFTER INSERT ON staged_0 BEGIN DELETE FROM staged_0; END",
                                           "CREATE TRIGGER t AFTER INSERT ON users BEGIN DELETE FROM users; END"};
    struct store_fixture *f = *state;
    fill_folder(f);
    for (int i = 0; i < 2; i++) {
        damage(f, files[i], triggers[i]);
        for (int way = 0; way < 4; way++) {
            const struct store_export e = {.from = INT64_MIN, .to = INT64_MAX, .begin = take_seed};
            struct sqlite_losses losses = {0}, one = {.list = &(struct sqlite_loss){1, 1}, .n = 1};
            struct err err = {0};
            int result = way == 0   ? sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, found, NULL, NULL, &err)
                         : way == 1 ? sqlite_export_folder(f->cfg.data, &e, &err)
                         : i == 0   ? ERR_CORRUPT /* they read history.db alone */
                         : way == 2 ? sqlite_losses_list(f->cfg.data, &losses, &err)
                                    : sqlite_losses_mended(f->cfg.data, &one, &err);
            assert_int_equal(result, ERR_CORRUPT);
            assert_true((way >= 2 && i == 0) || strstr(err.text, "trigger \"t\"") != NULL);
        }
        damage(f, files[i], "DROP TRIGGER t");
    }
    open_store(f);
    assert_true(seen(f, "u", "a") && seen(f, "v", "a"));
}

/* Rows are saved beside a trigger; what a view or a virtual table would say is not waited for. */
static void test_salvage(void **state)
{
    static const char *const harm[][2] = {
        {"staging", "CREATE TRIGGER t AFTER INSERT ON staged_0 BEGIN DELETE FROM staged_0; END"},
        {"staging",
         "DROP TABLE set_aside; CREATE VIEW set_aside AS WITH RECURSIVE r (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM "
         "r) SELECT a AS slot, a AS id, a AS kind, a AS user, a AS item, a AS at, a AS found, NULL AS accepted FROM r"},
        {"staging",
         "DROP TABLE positions; CREATE VIEW positions AS WITH RECURSIVE r (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM "
         "r) SELECT 'x' || a AS source, a AS next FROM r"},
        {"history", "DROP TABLE exceptions; CREATE VIRTUAL TABLE exceptions USING fts5 (user_key, item_hash)"},
    };
    struct store_fixture *f = *state;
    char target[CONFIG_TEXT];
    fill_folder(f);
    keep(f, false);
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++) {
        struct err err = {0};
        struct config cfg = f->cfg;
        assert_true(snprintf(target, sizeof target, "%s/saved%zu", cfg.data, i) < (int)sizeof target);
        const struct sqlite_salvage order = {.folder = cfg.data, .target = target, .did = found};
        damage(f, harm[i][0], harm[i][1]);
        int losses = sqlite_salvage_folder(&order, &err);
        assert_int_equal(losses, i == 0 || i == 1 ? 0 : 1);
        snprintf(f->cfg.data, sizeof f->cfg.data, "%s", target);
        expect_problem(f, NULL);
        open_store(f);
        assert_true(seen(f, "u", "a") && seen(f, "u", "d") && seen(f, "v", "a"));
        close_store(f);
        f->cfg = cfg;
        keep(f, true);
    }
}

/* --- what may be there --- */

static void test_what_is_ours(void **state)
{
    static const struct {
        const char *what, *file, *sql;
    } cases[] = {
        {"what ANALYZE leaves", "history", "ANALYZE"},
        {"and in the other file", "staging", "ANALYZE; ANALYZE sqlite_schema"},
        {"other pages", "history", "VACUUM"},
        {"large pages", "history", "PRAGMA page_size = 32768; VACUUM"},
        {"small pages", "staging", "PRAGMA page_size = 512; VACUUM"},
        {"pages that move", "staging", "PRAGMA auto_vacuum = FULL; VACUUM"},
        {"indexes made again", "history", "REINDEX"},
        {"a log", "staging", "PRAGMA journal_mode = WAL"},
        {"an emptied journal", "history", "PRAGMA journal_mode = TRUNCATE"},
        {"a renamed table", "staging", "ALTER TABLE runs RENAME TO x; ALTER TABLE x RENAME TO runs"},
        {"what AUTOINCREMENT leaves", "staging", "CREATE TABLE x (id INTEGER PRIMARY KEY AUTOINCREMENT); DROP TABLE x"},
        {"no comments", "history",
         "CREATE TABLE sealed_202611 (user_key INTEGER PRIMARY KEY,counted INTEGER,filter BLOB NOT NULL,items INTEGER "
         "AS (coalesce(counted,instr('123456789ABCDEF',substr(hex(substr(filter,1,1)),2)))) VIRTUAL)"},
        {"a view that is missing", "history", "DROP VIEW damaged"},
        {"a view of ours that never ends", "history",
         "DROP VIEW damaged; CREATE VIEW damaged AS WITH RECURSIVE r (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) "
         "SELECT a FROM r"},
        {"another one", "staging",
         "DROP VIEW ring; CREATE VIEW ring AS WITH RECURSIVE r (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) "
         "SELECT a FROM r"},
    };
    struct store_fixture *f = *state;
    fill_folder(f);
    keep(f, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        damage(f, cases[i].file, cases[i].sql);
        open_store(f);
        close_store(f);
        if (strstr(cases[i].sql, "sealed_") == NULL) { /* it has no row in months */
            expect_problem(f, NULL);
        }
        open_store(f);
        assert_true(seen(f, "u", "a") && seen(f, "u", "d") && seen(f, "v", "a"));
        play(f, "u", "b");
        assert_int_equal(flush(f), 0);
        assert_true(seen(f, "u", "b"));
        close_store(f);
        keep(f, true);
    }
}

/* A check tells them, although the next start makes them again. */
static void test_views_are_told(void **state)
{
    struct store_fixture *f = *state;
    fill_folder(f);
    damage(f, "history", "DROP VIEW damaged; CREATE VIEW damaged AS SELECT 1 AS user");
    expect_problem(f, "view damaged: it is not as unseen makes it");
    damage(f, "staging", "DROP VIEW staged; CREATE VIEW staged AS SELECT 1 AS user");
    expect_problem(f, "view staged: it doesn't fit the tables that are there");
    open_store(f);
    close_store(f);
    expect_problem(f, NULL);
}

static void test_other_letters(void **state)
{
    static const char *const encodings[] = {"UTF-16le", "UTF-16be"};
    struct store_fixture *f = *state;
    char path[PATH_MAX], sql[128], command[PATH_MAX + 32];
    close_store(f);
    for (int i = 0; i < 4; i++) {
        struct err err = {0};
        snprintf(command, sizeof command, "rm -f %s/*.db", f->cfg.data);
        assert_int_equal(system(command), 0);
        open_store(f);
        close_store(f);
        snprintf(path, sizeof path, "%s/%s.db", f->cfg.data, files[i / 2]);
        unlink(path);
        sqlite3 *db;
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        snprintf(sql, sizeof sql,
                 "PRAGMA encoding = '%s'; PRAGMA application_id = %d; CREATE TABLE x (y); DROP TABLE x",
                 encodings[i % 2], DB_APPLICATION_ID);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        assert_int_equal(try_open(f, &err), ERR_CORRUPT);
        if (strstr(err.text, encodings[i % 2]) == NULL) {
            fail_msg("%s", err.text);
        }
    }
}

/* A pipe would be waited for, a folder can't be read. */
static void test_no_files(void **state)
{
    static const char *const names[] = {"staging.db", "history.db", "staging.db-wal", "history.db-wal"};
    struct store_fixture *f = *state;
    char path[PATH_MAX], aside[PATH_MAX];
    fill_folder(f);
    for (int i = 0; i < 8; i++) {
        struct err err = {0};
        snprintf(path, sizeof path, "%s/%s", f->cfg.data, names[i / 2]);
        snprintf(aside, sizeof aside, "%s/aside", f->cfg.data);
        rename(path, aside);
        assert_int_equal(i % 2 == 0 ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
        assert_true(try_open(f, &err) < 0);
        assert_non_null(strstr(err.text, names[i / 2]));
        assert_int_equal(remove(path), 0);
        rename(aside, path);
    }
    open_store(f);
    assert_true(seen(f, "u", "a"));
}

/* --- words --- */

static void test_words(void **state)
{
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        {"CREATE TABLE a (b)", "CREATE TABLE a (b); CREATE TABLE c (d)", true},
        {"CREATE TABLE a (b)", "CREATE  TABLE\na\t( b -- it; is\n) ", true},
        {"CREATE TABLE \"a\" (b)", "CREATE TABLE a(/* ; */b);", true},
        {"CREATE TABLE a (b)", "CREATE TABLE a (b) STRICT", false},
        {"CREATE TABLE a (b, c)", "CREATE TABLE a (b)", false},
        {"CREATE TABLE a (b)", "CREATE TABLE A (b)", false},
        {"CREATE TABLE a (b c)", "CREATE TABLE a (bc)", false},
        {"SELECT 'a b'", "SELECT 'a  b'", false},
        {"SELECT 'a;b'", "SELECT 'a", false},
        {"SELECT 'a'", "SELECT a", false},
        {"SELECT \"a\"", "SELECT 'a'", false},
        {"SELECT \"a\"\"b\"", "SELECT \"a\"\"b\"", true},
        {"SELECT \"a\"\"b\"", "SELECT a\"b", false},
        {"SELECT \"\"", "SELECT ", false},
        {"SELECT 'it''s'", "SELECT 'it''s' -- 'so", true},
        {"SELECT '--'", "SELECT '-'", false},
        {"SELECT 1 /* open", "SELECT 1", true},
        {"SELECT [a]", "SELECT a", false},
        {"SELECT `a`", "SELECT a", false},
        {"", "", true},
        {"", "x", false},
        {";", "", true},
        {"SELECT 1; SELECT 2", "SELECT 1", true},
        {"\xc3\xa4 b", "\xc3\xa4/**/b", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (own_schema_same(cases[i].one, cases[i].other) != cases[i].same ||
            own_schema_same(cases[i].other, cases[i].one) != cases[i].same) {
            fail_msg("%s | %s", cases[i].one, cases[i].other);
        }
    }
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_crafted),        TEST(test_ways),          TEST(test_salvage),  TEST(test_what_is_ours),
        TEST(test_views_are_told), TEST(test_other_letters), TEST(test_no_files), cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
