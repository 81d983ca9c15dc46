/* Accepts a loss. Whatever can't be read is moved into `quarantine` and marked as accepted, together with what a flush
 * had put there before. From then on questions are answered without it. Nothing is deleted: the bytes stay in
 * `quarantine` until their month expires. Counts that don't agree with their rows are set right.
 *
 * All of it is one transaction, and for staging.db (repair_staging.c) another. Damaged pages, which SQLite itself can't
 * read, are not repaired here: the error says so, and nothing is changed.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/admin/repair.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/db/pair.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"
#include "store/user/deliveries.h"

struct repair {
    struct db db;
    uint64_t done, total; /* rows */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void (*did)(void *arg, const char *what);
    void *arg;
    int repairs;
    enum sqlite_nameless nameless;
    uint64_t seed;
    struct arena arena;
    struct delivered_codec codec;
};

/* A row to be mended, noted while the table is walked. */
struct row {
    int64_t key;
    int64_t items; /* what the filter really holds; -1: it can't be read */
    char reason[160];
};
struct rows {
    struct row *at;
    size_t n, cap;
};

static int note(struct rows *rows, int64_t key, int64_t items, const char *reason, struct err *err)
{
    if (rows->n == rows->cap) {
        size_t cap = rows->cap > 0 ? 2 * rows->cap : 64;
        struct row *more = realloc(rows->at, cap * sizeof *more);
        if (more == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        rows->at = more;
        rows->cap = cap;
    }
    struct row *row = &rows->at[rows->n++];
    row->key = key;
    row->items = items;
    snprintf(row->reason, sizeof row->reason, "%s", reason);
    return 0;
}

static void tell(struct repair *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(struct repair *r, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->repairs++;
    r->did(r->arg, text);
}

static sqlite3_stmt *prepare(struct repair *r, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static sqlite3_stmt *prepare(struct repair *r, struct err *err, const char *format, ...)
{
    char sql[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(r->db.handle, sql, -1, &stmt, NULL) != SQLITE_OK) {
        db_error(&r->db, err, sql);
    }
    return stmt;
}

/* The id of the user with this key, quoted; or the key, when no row of users has it. */
static const char *who(struct repair *r, int64_t key)
{
    static _Thread_local char text[48];
    const char *name = NULL;
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_USER_GET, NULL);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, key);
        if (db_step(&r->db, stmt, NULL) == 1) {
            name = log_quote(db_column_bytes(stmt, 0));
            sqlite3_reset(stmt);
        }
    }
    snprintf(text, sizeof text, "with key %" PRId64, key);
    return name != NULL ? name : text;
}

/* Moves a row's blob into quarantine, accepted. month 0: deliveries. */
static int set_aside(struct repair *r, const char *table, const char *column, int month, const struct row *row,
                     struct err *err)
{
    sqlite3_stmt *stmt = prepare(r, err,
                                 "INSERT INTO quarantine (user_key, user, month, at, reason, blob, accepted) "
                                 "SELECT t.user_key, coalesce(u.user, ''), ?2, ?3, ?4, t.%s, ?3 "
                                 "FROM %s t LEFT JOIN users u USING (user_key) WHERE t.user_key = ?1",
                                 column, table);
    if (stmt == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(stmt, 1, row->key);
    sqlite3_bind_int(stmt, 2, month);
    sqlite3_bind_int64(stmt, 3, clock_wall_ms());
    sqlite3_bind_text(stmt, 4, row->reason, -1, SQLITE_STATIC);
    int result = db_run(&r->db, stmt, err);
    sqlite3_finalize(stmt);
    if (result < 0 || (stmt = prepare(r, err, "DELETE FROM %s WHERE user_key = ?1", table)) == NULL) {
        return result < 0 ? result : err->code;
    }
    sqlite3_bind_int64(stmt, 1, row->key);
    result = db_run(&r->db, stmt, err);
    sqlite3_finalize(stmt);
    return result;
}

static int set_items(struct repair *r, const char *table, const struct row *row, struct err *err)
{
    sqlite3_stmt *stmt =
        prepare(r, err, "UPDATE %s SET counted = iif(filter < x'80', ?2, NULL) WHERE user_key = ?1", table);
    if (stmt == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(stmt, 1, row->key);
    sqlite3_bind_int64(stmt, 2, row->items);
    int result = db_run(&r->db, stmt, err);
    sqlite3_finalize(stmt);
    return result;
}

static void advance(struct repair *r)
{
    if (++r->done % 1024 == 0 && r->progress != NULL) {
        r->progress(r->arg, r->done, r->total > r->done ? r->total : r->done);
    }
}

/* Notes the rows of a table whose filter can't be read, or holds another number of items than the row says. */
static int find_filters(struct repair *r, const char *table, struct rows *rows, struct err *err)
{
    sqlite3_stmt *stmt = prepare(r, err, "SELECT user_key, items, filter FROM %s ORDER BY user_key", table);
    int result;
    while ((result = db_step(&r->db, stmt, err)) == 1) {
        struct slice blob = db_column_bytes(stmt, 2);
        struct filter filter;
        struct err why = {0};
        advance(r);
        int64_t key = sqlite3_column_int64(stmt, 0);
        if (filter_weigh(blob.data, blob.len, &filter, &why) < 0) {
            result = note(rows, key, -1, why.text, err);
        } else if ((int64_t)filter_items(&filter) != sqlite3_column_int64(stmt, 1)) {
            result = note(rows, key, (int64_t)filter_items(&filter), "", err);
        }
        if (result < 0) {
            break;
        }
    }
    sqlite3_finalize(stmt);
    return result;
}

static int repair_filters(struct repair *r, const char *table, int month, struct err *err)
{
    struct rows rows = {0};
    char name[MONTH_TEXT];
    int result = find_filters(r, table, &rows, err);
    for (size_t i = 0; i < rows.n && result == 0; i++) {
        const struct row *row = &rows.at[i];
        if (row->items >= 0) {
            result = set_items(r, table, row, err);
            tell(r, "user %s: %s: count of items set to %" PRId64, who(r, row->key), month_name(month, name),
                 row->items);
        } else {
            tell(r, "user %s: %s is lost: %s", who(r, row->key), month_name(month, name), row->reason);
            result = set_aside(r, table, "filter", month, row, err);
        }
    }
    free(rows.at);
    return result;
}

static int repair_totals(struct repair *r, const char *tables, int month, struct err *err)
{
    sqlite3_stmt *stmt =
        prepare(r, err,
                "UPDATE months SET (users, plays, bytes) = (SELECT count(*), coalesce(sum(items), 0), "
                "coalesce(sum(length(filter)), 0) FROM (%s)) WHERE month = ?1 AND (users, plays, bytes) IS NOT "
                "(SELECT count(*), coalesce(sum(items), 0), coalesce(sum(length(filter)), 0) FROM (%s))",
                tables, tables);
    if (stmt == NULL) {
        return err->code;
    }
    sqlite3_bind_int(stmt, 1, month);
    int result = db_run(&r->db, stmt, err);
    sqlite3_finalize(stmt);
    if (result == 0 && sqlite3_changes(r->db.handle) > 0) {
        char name[MONTH_TEXT];
        tell(r, "month %s: its totals are counted again", month_name(month, name));
    }
    return result;
}

static int repair_month(struct repair *r, const struct stored_month *m, struct err *err)
{
    char suffix[MONTH_TEXT];
    char table[64];
    char tables[256];
    month_suffix(m->month, suffix);
    snprintf(table, sizeof table, "plays_%s", suffix);
    snprintf(tables, sizeof tables, "SELECT items, filter FROM %s", table);
    int result = repair_filters(r, table, m->month, err);
    if (result == 0 && m->sealing) {
        snprintf(table, sizeof table, "sealed_%s", suffix);
        snprintf(tables, sizeof tables, "SELECT items, filter FROM plays_%s UNION ALL SELECT items, filter FROM %s",
                 suffix, table);
        result = repair_filters(r, table, m->month, err);
    }
    return result < 0 ? result : repair_totals(r, tables, m->month, err);
}

static int repair_months(struct repair *r, struct err *err)
{
    struct stored_month months[HISTORY_MONTHS_MAX];
    int n = 0;
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_MONTHS_WINDOW, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, INT_MIN);
    }
    int result;
    while ((result = db_step(&r->db, stmt, err)) == 1) {
        if (n == HISTORY_MONTHS_MAX) {
            sqlite3_reset(stmt);
            break;
        }
        month_column(stmt, 1, &months[n++]);
    }
    for (int i = 0; i < n && result >= 0; i++) {
        result = repair_month(r, &months[i], err);
    }
    return result < 0 ? result : 0;
}

static int repair_delivered(struct repair *r, struct err *err)
{
    struct rows rows = {0};
    sqlite3_stmt *stmt = prepare(r, err, "SELECT user_key, items FROM delivered ORDER BY user_key");
    int result;
    while ((result = db_step(&r->db, stmt, err)) == 1) {
        struct slice blob = db_column_bytes(stmt, 1);
        struct delivered list;
        struct err why = {0};
        arena_reset(&r->arena);
        advance(r);
        if (delivered_unpack(&r->codec, blob.data, blob.len, r->seed, &r->arena, &list, &why) == ERR_CORRUPT &&
            (result = note(&rows, sqlite3_column_int64(stmt, 0), -1, why.text, err)) < 0) {
            break;
        }
    }
    sqlite3_finalize(stmt);
    for (size_t i = 0; i < rows.n && result == 0; i++) {
        tell(r, "user %s: deliveries are lost: %s", who(r, rows.at[i].key), rows.at[i].reason);
        result = set_aside(r, "delivered", "items", 0, &rows.at[i], err);
    }
    free(rows.at);
    return result;
}

/* What flushes had set aside. */
static int accept_quarantine(struct repair *r, struct err *err)
{
    sqlite3_stmt *stmt =
        prepare(r, err, "SELECT user, month, reason FROM quarantine WHERE accepted IS NULL ORDER BY id");
    int result;
    while ((result = db_step(&r->db, stmt, err)) == 1) {
        char name[MONTH_TEXT];
        int month = sqlite3_column_int(stmt, 1);
        tell(r, "user %s: %s, set aside before, %s lost: %s", log_quote(db_column_bytes(stmt, 0)),
             month == 0 ? "deliveries" : month_name(month, name), month == 0 ? "are" : "is",
             sqlite3_column_text(stmt, 2));
    }
    sqlite3_finalize(stmt);
    if (result < 0 || (stmt = prepare(r, err, "UPDATE quarantine SET accepted = ?1 WHERE accepted IS NULL")) == NULL) {
        return result < 0 ? result : err->code;
    }
    sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    result = db_run(&r->db, stmt, err);
    sqlite3_finalize(stmt);
    return result;
}

static int repair_history(struct repair *r, struct err *err)
{
    int result = schema_history(&r->db, err);
    if (result < 0 || (result = schema_seed(&r->db, &r->seed, err)) < 0 || (result = db_begin(&r->db, err)) < 0) {
        return result;
    }
    int64_t rows = 0;
    if (db_int(&r->db, "SELECT (SELECT count(*) FROM delivered) + (SELECT coalesce(sum(users), 0) FROM months)", &rows,
               NULL) == 0 &&
        rows > 0) {
        r->total = (uint64_t)rows;
    }
    int named = 0;
    if ((result = accept_quarantine(r, err)) < 0 ||
        (result = named = repair_nameless(&r->db, r->nameless, r->did, r->arg, err)) < 0 ||
        (result = repair_months(r, err)) < 0 || (result = repair_delivered(r, err)) < 0 ||
        (result = repair_users(&r->db, r->did, r->arg, err)) < 0) {
        db_rollback(&r->db);
        return err_prefix(err, "nothing was repaired");
    }
    r->repairs += result + named;
    return db_commit(&r->db, err);
}

static int accept_logs(struct repair *r, const struct pair_lost *lost)
{
    int before = r->repairs;
    if (lost->staging_log) {
        tell(r, "the log of staging.db was missing: what was recorded last is lost; users who were forgotten last may "
                "have plays again: forget them once more");
    }
    if (lost->history_log) {
        tell(r, "the log of history.db was missing: what was flushed last is lost");
    }
    return r->repairs - before;
}

/* As a store that closes leaves it. A file whose lost log is not accepted stays one that needs it: what was begun here
 * is no log of its. */
static void end_file(struct db *db, const char *folder, bool lost_log, bool accepted)
{
    if (!lost_log || accepted) {
        db_leave_wal(db, NULL);
    }
    db_close(db);
    static const char *const suffixes[] = {"wal", "shm"};
    for (int i = 0; i < 2 && lost_log && !accepted && db->name != NULL; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s.db-%s", folder, db->name, suffixes[i]) < (int)sizeof path) {
            unlink(path);
        }
    }
}

int sqlite_repair_folder(const char *folder, enum sqlite_nameless nameless, void (*did)(void *arg, const char *what),
                         void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct err *err)
{
    struct repair r = {.did = did, .progress = progress, .arg = arg, .nameless = nameless};
    int result = folder_need(folder, "history.db", err);
    if (result < 0) {
        return result;
    }
    struct folder_lock lock;
    if ((result = folder_lock(folder, &lock, err)) < 0) {
        return result;
    }
    struct db staging = {0};
    struct pair_lost lost = {0};
    int moved = 0, accepted = 0, logs = 0;
    bool history_done = false;
    result = pair_examine_loss(folder, &lost, err);
    if (result == 0) {
        result = db_open(&r.db, folder, "history", NULL, DB_WRITE_FULL, err);
    }
    if (result == 0 && (result = db_open(&staging, folder, "staging", NULL, DB_WRITE_FULL, err)) == 0 &&
        (result = schema_staging(&staging, err)) == 0 && (result = db_begin(&staging, err)) == 0) {
        logs = accept_logs(&r, &lost);
        result = accepted = pair_accept(&staging, &r.db, did, arg, err);
        if (result >= 0 && accepted + logs > 0) { /* plays are lost that sources outside may still have */
            result = db_run(&staging, db_stmt(&staging, SQL_POSITIONS_AGAIN, err), err);
        }
        if (result >= 0) {
            result = moved = repair_staging(&staging, did, arg, err);
        }
        /* history.db first: what follows is of rows that no start can read. */
        if (result >= 0 && (result = repair_history(&r, err)) == 0) {
            history_done = true;
            result = db_commit(&staging, err);
        }
    }
    db_rollback(&staging);
    end_file(&staging, folder, lost.staging_log, result >= 0);
    end_file(&r.db, folder, lost.history_log, history_done);
    arena_free(&r.arena);
    delivered_codec_free(&r.codec);
    folder_unlock(&lock);
    return result < 0 ? result : r.repairs + moved + accepted;
}
