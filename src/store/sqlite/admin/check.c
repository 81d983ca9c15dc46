/* Reads both files completely. Each file is read in one snapshot, so that totals and rows agree while a server writes.
 * Anything that can't be read is a problem, named with its user and month, and the check goes on after it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/sqlite/admin/check.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/sqlite_store.h"
#include "store/sqlite/staging/pool_rows.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/staging/staged_row.h"
#include "store/user/deliveries.h"

enum {
    OPS = 1000,        /* of SQLite between two looks at its own check's progress ... */
    ROWS_AN_OPS = 120, /* ... which are about so many rows */
};

struct check {
    const struct check_files *files;
    int problems;
    int unread; /* of them: tables that can't be read to their end */
    bool stopped;
    uint64_t done, total;
    uint64_t pages_end; /* what `done` comes to with SQLite's own check */
    uint64_t seed;
    struct arena arena;
    struct delivered_codec codec;
};

static void problem(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem(struct check *c, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->problems++;
    c->files->found(c->files->arg, text);
}

static void show(struct check *c)
{
    if (c->files->progress != NULL) {
        c->files->progress(c->files->arg, c->done, c->total > c->done ? c->total : c->done);
    }
    c->stopped = c->stopped || (c->files->stop != NULL && c->files->stop(c->files->arg));
}

static void advance(struct check *c)
{
    if (++c->done % 1024 == 0) {
        show(c);
    }
}

/* Walks the rows of a query; row() looks at one. An unreadable table is a problem, not the end. */
static void each_row(struct check *c, struct db *db, const char *sql,
                     void (*row)(struct check *, sqlite3_stmt *, void *), void *arg)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) != SQLITE_OK) {
        c->unread++;
        problem(c, "%s: %s: %s", db->path, sql, sqlite3_errmsg(db->handle));
        return;
    }
    int rc = SQLITE_DONE;
    while (!c->stopped && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        row(c, stmt, arg);
        advance(c);
    }
    if (!c->stopped && rc != SQLITE_DONE) {
        c->unread++;
        problem(c, "%s: the rest of (%s) can't be read: %s", db->path, sql, sqlite3_errmsg(db->handle));
    }
    sqlite3_finalize(stmt);
}

static void integrity_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    const char *text = (const char *)sqlite3_column_text(stmt, 0);
    if (text == NULL || strcmp(text, "ok") != 0) {
        problem(c, "%s: %s", ((struct db *)arg)->path, text != NULL ? text : "integrity check failed");
    }
}

struct view_check {
    struct check *check;
    struct db *db;
};

static void view_problem(void *arg, const char *view, const char *what)
{
    const struct view_check *v = arg;
    problem(v->check, "%s: view %s: %s", v->db->path, view, what);
}

/* Those of an older version are as that one made them, until a start brings it up to date. */
static int check_views(struct check *c, struct db *db, struct err *err)
{
    struct view_check v = {c, db};
    bool older = false;
    int result = schema_is_older(db, &older, err);
    if (result < 0 || older) {
        return result;
    }
    return views_check(db, view_problem, &v, err);
}

static int on_ops(void *arg)
{
    struct check *c = arg;
    c->done = c->done + ROWS_AN_OPS < c->pages_end ? c->done + ROWS_AN_OPS : c->pages_end;
    show(c);
    return c->stopped;
}

/* SQLite's own check. It goes through the rows, too, which is when the bar moves. */
static void check_pages(struct check *c, struct db *db, uint64_t rows)
{
    if (!c->files->pages) {
        return;
    }
    c->total += rows;
    c->pages_end = c->done + rows;
    show(c);
    sqlite3_progress_handler(db->handle, OPS, on_ops, c);
    each_row(c, db, "PRAGMA integrity_check", integrity_row, db);
    sqlite3_progress_handler(db->handle, 0, NULL, NULL);
    c->done = c->pages_end;
}

/* --- history --- */

static const char *who(sqlite3_stmt *stmt, int key_column, int user_column)
{
    static _Thread_local char text[64];
    if (sqlite3_column_type(stmt, user_column) != SQLITE_NULL) {
        return log_quote(db_column_bytes(stmt, user_column));
    }
    snprintf(text, sizeof text, "with key %" PRId64, (int64_t)sqlite3_column_int64(stmt, key_column));
    return text;
}

static void user_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    (void)arg;
    struct slice user = db_column_bytes(stmt, 1);
    if (user.len == 0 && sqlite3_column_type(stmt, 1) == SQLITE_TEXT) {
        return; /* its name was lost, and that accepted: see repair_nameless.c */
    }
    if (user.len == 0 || user.len > 255) {
        problem(c, "user with key %" PRId64 ": an id of %zu bytes, expected 1 to 255",
                (int64_t)sqlite3_column_int64(stmt, 0), user.len);
    } else if (hash_user_key(c->seed, user) != sqlite3_column_int64(stmt, 0)) {
        problem(c, "user %s: its key is not the hash of its id", log_quote(user));
    }
}

struct month_check {
    int month;
    int64_t from, to; /* the keys that belong into the table */
    char name[MONTH_TEXT];
    uint64_t users, plays, bytes;
};

static void play_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    struct month_check *m = arg;
    struct slice blob = db_column_bytes(stmt, 2);
    struct filter filter;
    struct err err = {0};
    m->users++;
    m->plays += (uint64_t)sqlite3_column_int64(stmt, 1);
    m->bytes += blob.len;
    if (sqlite3_column_int64(stmt, 0) < m->from || sqlite3_column_int64(stmt, 0) > m->to) {
        problem(c, "user %s: %s is in the wrong table by the cursor of the month's sealing", who(stmt, 0, 3), m->name);
    }
    if (sqlite3_column_type(stmt, 3) == SQLITE_NULL) {
        problem(c,
                "user %s: plays of %s without a row in users: not found until the user plays again, or unseen check "
                "--repair",
                who(stmt, 0, 3), m->name);
    } else if (sqlite3_column_int(stmt, 4) < m->month) {
        problem(c, "user %s: plays of %s, but the row in users says that an earlier month is the newest",
                who(stmt, 0, 3), m->name);
    }
    if (filter_weigh(blob.data, blob.len, &filter, &err) < 0) {
        problem(c, "user %s: %s can't be read: %s", who(stmt, 0, 3), m->name, err.text);
    } else if ((int64_t)filter_items(&filter) != sqlite3_column_int64(stmt, 1)) {
        problem(c, "user %s: %s: the row says %" PRId64 " items, the filter holds %" PRIu64, who(stmt, 0, 3), m->name,
                (int64_t)sqlite3_column_int64(stmt, 1), filter_items(&filter));
    }
}

static void each_play(struct check *c, struct db *db, const char *table, struct month_check *m)
{
    char suffix[MONTH_TEXT];
    char sql[256];
    snprintf(sql, sizeof sql,
             "SELECT p.user_key, p.items, p.filter, u.user, u.last_month FROM %s_%s p LEFT JOIN users u USING "
             "(user_key) ORDER BY "
             "p.user_key",
             table, month_suffix(m->month, suffix));
    each_row(c, db, sql, play_row, m);
}

static void month_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    struct db *db = arg;
    struct month_check m = {.month = sqlite3_column_int(stmt, 0), .from = INT64_MIN, .to = INT64_MAX};
    bool sealing = sqlite3_column_type(stmt, 4) != SQLITE_NULL;
    int before = c->problems;
    month_name(m.month, m.name);
    if (sealing) {
        m.to = sqlite3_column_int64(stmt, 4);
        each_play(c, db, "sealed", &m);
        m.from = m.to < INT64_MAX ? m.to + 1 : m.to;
        m.to = INT64_MAX;
    }
    each_play(c, db, "plays", &m);
    uint64_t users = (uint64_t)sqlite3_column_int64(stmt, 1);
    uint64_t plays = (uint64_t)sqlite3_column_int64(stmt, 2);
    uint64_t bytes = (uint64_t)sqlite3_column_int64(stmt, 3);
    if (c->problems == before && (users != m.users || plays != m.plays || bytes != m.bytes)) {
        problem(c,
                "month %s: its totals say %" PRIu64 " users, %" PRIu64 " plays, %" PRIu64
                " bytes; its rows hold %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                m.name, users, plays, bytes, m.users, m.plays, m.bytes);
    }
}

static void stray_table_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    problem(c, "%s: table %s has no row in months", ((struct db *)arg)->path, sqlite3_column_text(stmt, 0));
}

static void delivered_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    (void)arg;
    struct slice blob = db_column_bytes(stmt, 1);
    struct delivered list;
    struct err err = {0};
    arena_reset(&c->arena);
    if (sqlite3_column_type(stmt, 2) == SQLITE_NULL) {
        problem(c,
                "user %s: deliveries without a row in users: not found until the user plays again, or unseen "
                "check --repair",
                who(stmt, 0, 2));
    }
    if (delivered_unpack(&c->codec, blob.data, blob.len, c->seed, &c->arena, &list, &err) < 0) {
        problem(c, "user %s: deliveries can't be read: %s", who(stmt, 0, 2), err.text);
    }
}

static void exception_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    (void)arg;
    problem(c, "user %s: an exception without a row in users", who(stmt, 0, 1));
}

static void shared_key_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    (void)arg;
    problem(c, "user %s: is said to share a key, but no other in users has it", who(stmt, 0, 1));
}

static void quarantine_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    (void)arg;
    char at[TIME_TEXT];
    char month[MONTH_TEXT];
    int m = sqlite3_column_int(stmt, 2);
    problem(c, "user %s: %s was damaged and set aside on %s, and the loss is not accepted (unseen check --repair): %s",
            who(stmt, 0, 1), m == 0 ? "deliveries" : month_name(m, month), time_text(sqlite3_column_int64(stmt, 3), at),
            sqlite3_column_text(stmt, 4));
}

static int read_seed(struct check *c, struct db *db, struct err *err)
{
    int found = schema_seed(db, &c->seed, err);
    return found == 0 ? err_set(err, ERR_CORRUPT, "%s: meta holds no seed", db->path) : found < 0 ? found : 0;
}

static int check_history(struct check *c, struct err *err)
{
    struct db db;
    int result = db_open(&db, c->files->folder, c->files->history, c->files->vfs, DB_READ, err);
    if (result < 0) {
        return result;
    }
    int64_t rows = 0;
    if ((result = schema_examine(&db, true, err)) < 0 || (result = read_seed(c, &db, err)) < 0 ||
        (result = db_begin_read(&db, err)) < 0) {
        goto out;
    }
    if (db_int(&db, "SELECT (SELECT count(*) FROM users) + (SELECT coalesce(sum(users), 0) FROM months)", &rows,
               NULL) == 0) {
        c->total += (uint64_t)rows;
    }
    check_pages(c, &db, (uint64_t)rows);
    each_row(c, &db, "SELECT user_key, user FROM users ORDER BY user_key", user_row, NULL);
    each_row(c, &db, "SELECT month, users, plays, bytes, sealed_to FROM months ORDER BY month", month_row, &db);
    each_row(
        c, &db,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'plays_[0-9]*' AND substr(name, 7) NOT IN "
        "(SELECT printf('%04d%02d', month / 12, month % 12 + 1) FROM months)",
        stray_table_row, &db);
    each_row(
        c, &db,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'sealed_[0-9]*' AND substr(name, 8) NOT "
        "IN (SELECT printf('%04d%02d', month / 12, month % 12 + 1) FROM months WHERE sealed_to IS NOT NULL)",
        stray_table_row, &db);
    each_row(c, &db, "SELECT d.user_key, d.items, u.user FROM delivered d LEFT JOIN users u USING (user_key)",
             delivered_row, NULL);
    each_row(c, &db,
             "SELECT DISTINCT user_key, NULL FROM exceptions WHERE user_key NOT IN (SELECT user_key FROM users)",
             exception_row, NULL);
    each_row(c, &db,
             "SELECT user_key, user FROM shared_keys s WHERE NOT EXISTS (SELECT 1 FROM users u WHERE u.user_key = "
             "s.user_key AND u.user IS NOT s.user)",
             shared_key_row, NULL);
    each_row(c, &db, "SELECT user_key, user, month, at, reason FROM quarantine WHERE accepted IS NULL ORDER BY id",
             quarantine_row, NULL);
    if ((result = check_views(c, &db, err)) == 0) {
        result = db_commit(&db, err);
    }
out:
    db_close(&db);
    return result;
}

/* --- staging --- */

struct sizes {
    struct db *db;
    uint64_t rows;
};

static void staged_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    const char *table = arg;
    const char *why = staged_row_problem(stmt);
    if (why != NULL) {
        problem(c, "%s: row %" PRId64 " can't be read: %s", table, (int64_t)sqlite3_column_int64(stmt, 0), why);
    }
}

/* Row ids that can't be of one slot. */
static void check_ids(struct check *c, struct db *db)
{
    struct slot_tables tables;
    struct err why = {0};
    int64_t highest = 0, strays = 0;
    if (db_meta_count(db, "high_water", &highest, &why) < 0 || slot_rows_tables(db, &tables, &why) < 0) {
        if (why.code == ERR_CORRUPT) {
            problem(c, "%s", why.text);
        }
        return;
    }
    for (int slot = 0; slot < STORE_SLOTS_MAX; slot++) {
        if (slot_rows_strays(db, &tables, slot, highest, &strays, &why) == 0 && strays > 0) {
            problem(c, "staged_%d: %" PRId64 " row%s an id that can't be: the next start gives others", slot, strays,
                    strays == 1 ? " has" : "s have");
        }
    }
}

static void slot_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    struct db *db = arg;
    char table[64];
    char sql[160];
    snprintf(table, sizeof table, "%s", sqlite3_column_text(stmt, 0));
    snprintf(sql, sizeof sql, "SELECT id, kind, user, item, at FROM \"%s\" ORDER BY id", table);
    each_row(c, db, sql, staged_row, table);
}

/* About how many rows a slot has: ids of deleted ones are never used again. */
static void slot_size_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    char sql[160];
    int64_t rows = 0;
    (void)c;
    snprintf(sql, sizeof sql, "SELECT coalesce(max(id) - min(id) + 1, 0) FROM \"%s\"", sqlite3_column_text(stmt, 0));
    if (db_int(((struct sizes *)arg)->db, sql, &rows, NULL) == 0 && rows > 0) {
        ((struct sizes *)arg)->rows += (uint64_t)rows;
    }
}

static void text_row(struct check *c, sqlite3_stmt *stmt, void *arg)
{
    (void)arg;
    problem(c, "%s", sqlite3_column_text(stmt, 0));
}

static int pool_good(void *arg, const struct store_pool *pool, struct err *err)
{
    struct check *c = arg;
    (void)pool, (void)err;
    advance(c);
    return 0;
}

static int pool_bad(void *arg, struct slice name, const char *what, struct err *err)
{
    (void)err;
    problem(arg, "staging.db: pool %s is damaged: %s", log_quote(name), what);
    return 0;
}

static void check_pools(struct check *c, struct db *db)
{
    const struct pool_rows_walk walk = {pool_good, pool_bad, c};
    struct err err = {0};
    if (pool_rows_each(db, &walk, &err) < 0) {
        c->unread++;
        problem(c, "%s: pools can't be read to their end: %s", db->path, err.text);
    }
}

/* A file of an older version has no such table. */
static void check_merges(struct check *c, struct db *db)
{
    int64_t has = 0;
    struct err err = {0};
    if (db_int(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'merges'", &has, &err) == 0 &&
        has > 0) {
        each_row(c, db, sql_statements[SQL_MERGES_PROBLEMS_FOUND], text_row, NULL);
    }
}

/* What a file has beside its slots, once it is made. */
static int check_staging_tables(struct check *c, struct db *db, struct err *err)
{
    each_row(c, db, sql_statements[SQL_SET_ASIDE_FOUND], text_row, NULL);
    each_row(c, db, sql_statements[SQL_NOTED_PROBLEMS_FOUND], text_row, NULL);
    each_row(c, db, sql_statements[SQL_FEED_PROBLEMS_FOUND], text_row, NULL);
    each_row(c, db, sql_statements[SQL_POSITIONS_PROBLEMS_FOUND], text_row, NULL);
    each_row(c, db, sql_statements[SQL_TOMBSTONES_PROBLEMS_FOUND], text_row, NULL);
    check_merges(c, db);
    check_pools(c, db);
    return check_views(c, db, err);
}

static int check_staging(struct check *c, struct err *err)
{
    struct db db;
    int result = db_open(&db, c->files->folder, c->files->staging, c->files->vfs, DB_READ, err);
    if (result < 0) {
        return result;
    }
    int made = result = schema_examine(&db, false, err);
    if (result >= 0 && (result = db_begin_read(&db, err)) == 0) {
        struct sizes sizes = {&db, 0};
        each_row(c, &db, sql_statements[SQL_STAGED_TABLES], slot_size_row, &sizes);
        c->total += sizes.rows;
        check_pages(c, &db, sizes.rows);
        each_row(c, &db, sql_statements[SQL_STAGED_TABLES], slot_row, &db);
        if (made > 0) {
            check_ids(c, &db);
        }
        if (made == 0 || (result = check_staging_tables(c, &db, err)) == 0) {
            result = db_commit(&db, err);
        }
    }
    db_close(&db);
    return result;
}

/* A file that SQLite won't open at all is a problem found, not a check that failed. */
static int as_problem(struct check *c, int result, struct err *err)
{
    if (result == ERR_CORRUPT) {
        c->unread++;
        problem(c, "%s", err->text);
        *err = (struct err){0};
        return 0;
    }
    return result;
}

int check_files(const struct check_files *files, int *unread, struct err *err)
{
    struct check c = {.files = files};
    int result = as_problem(&c, check_history(&c, err), err);
    if (result == 0 && !c.stopped) {
        result = as_problem(&c, check_staging(&c, err), err);
    }
    if (c.stopped) {
        result = err_set(err, ERR_CLOSED, "the check was given up");
    }
    c.total = c.done;
    show(&c);
    arena_free(&c.arena);
    delivered_codec_free(&c.codec);
    if (unread != NULL) {
        *unread = c.unread;
    }
    return result < 0 ? result : c.problems;
}
