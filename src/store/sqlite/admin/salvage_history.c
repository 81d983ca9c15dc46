/* Salvages a history.db. A month's row that can't be read no longer hides anything, so each user who may have had one
 * there is marked in quarantine. Questions about them get an error until the loss is accepted. Users whose own row is
 * lost are known from the months that are left, without a name; so all months are read first. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/sqlite/admin/repair.h"
#include "store/sqlite/admin/salvage.h"
#include "store/sqlite/admin/salvage_table.h"

enum { MONTHS_MAX = 1024 };

struct stretch {
    int64_t from, to;
};

/* Of one table. */
struct part {
    struct salvage *s;
    sqlite3_stmt *put;
    int month; /* 0: deliveries */
    uint64_t rows;
    struct stretch *lost;
    size_t n, cap;
};

/* Of the months and the deliveries. */
struct parts {
    struct part at[MONTHS_MAX + 1];
    size_t n;
};

static int note_lost(void *arg, int64_t from, int64_t to, struct err *err)
{
    struct part *p = arg;
    if (p->n == p->cap) {
        size_t cap = p->cap > 0 ? 2 * p->cap : 64;
        struct stretch *more = realloc(p->lost, cap * sizeof *more);
        if (more == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        p->lost = more;
        p->cap = cap;
    }
    p->lost[p->n++] = (struct stretch){from, to};
    return 0;
}

static int put_row(void *arg, sqlite3_stmt *row, struct err *err)
{
    struct part *p = arg;
    return salvage_put(p->s, p->put, row, err);
}

/* A row of users proves itself. */
static int put_user(void *arg, sqlite3_stmt *row, struct err *err)
{
    struct part *p = arg;
    struct slice user = db_column_bytes(row, 1);
    bool nameless = user.len == 0 && sqlite3_column_type(row, 1) == SQLITE_TEXT;
    if (!nameless &&
        (user.len == 0 || user.len > HASH_ID_MAX || hash_user_key(p->s->seed, user) != sqlite3_column_int64(row, 0))) {
        return ERR_CORRUPT;
    }
    return put_row(arg, row, err);
}

static int put_blob(void *arg, sqlite3_stmt *row, struct err *err)
{
    int last = sqlite3_column_count(row) - 1;
    return sqlite3_column_type(row, last) == SQLITE_BLOB ? put_row(arg, row, err) : ERR_CORRUPT;
}

static int take(struct part *p, const char *from, const char *key, const char *columns, const char *to,
                int (*row)(void *arg, sqlite3_stmt *row, struct err *err), struct err *err)
{
    char sql[256];
    int values = 1;
    for (const char *c = columns; *c != '\0'; c++) {
        values += *c == ',';
    }
    int at = snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO \"%s\" (%s) VALUES (?", to, columns);
    for (int i = 1; i < values; i++) {
        at += snprintf(sql + at, sizeof sql - (size_t)at, ", ?");
    }
    snprintf(sql + at, sizeof sql - (size_t)at, ")");
    if (sqlite3_prepare_v2(p->s->to.handle, sql, -1, &p->put, NULL) != SQLITE_OK) {
        return db_error(&p->s->to, err, sql);
    }
    struct salvage_table t = {
        .from = &p->s->from, .name = from, .key = key, .columns = columns, .row = row, .lost = note_lost, .arg = p};
    int result = salvage_table(&t, err);
    p->rows += t.rows - t.refused;
    sqlite3_finalize(p->put);
    p->put = NULL;
    return result;
}

/* Users in the lost stretches, who may have had something there. Returns how many. */
static int mark(struct part *p, struct err *err)
{
    struct db *db = &p->s->to;
    int marked = 0;
    int result = 0;
    for (size_t i = 0; i < p->n && result == 0; i++) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_SALVAGE_MARK, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, p->lost[i].from);
            sqlite3_bind_int64(stmt, 2, p->lost[i].to);
            sqlite3_bind_int(stmt, 3, p->month);
            sqlite3_bind_int64(stmt, 4, clock_wall_ms());
        }
        result = db_run(db, stmt, err);
        marked += result == 0 ? sqlite3_changes(db->handle) : 0;
    }
    return result < 0 ? result : marked;
}

static int tell_lost(struct part *p, struct err *err)
{
    char name[MONTH_TEXT];
    int marked = p->n > 0 ? mark(p, err) : 0;
    if (marked < 0 || p->n == 0) {
        return marked;
    }
    salvage_tell(p->s,
                 "history.db: %s: %" PRIu64
                 " users' saved, %zu stretches of keys can't be read: %d users who may have had "
                 "something there are marked",
                 p->month > 0 ? month_name(p->month, name) : "deliveries", p->rows, p->n, marked);
    return 0;
}

static int take_users(struct salvage *s, struct err *err)
{
    struct part p = {.s = s};
    int result = take(&p, "users", "user_key", "user_key, user, last_month", "users", put_user, err);
    if (result == 0 && p.n > 0) {
        salvage_tell(s,
                     "history.db: users: %" PRIu64
                     " saved, %zu stretches of keys can't be read: who stood there, and has nothing left, can't be "
                     "marked, and is answered as a new user",
                     p.rows, p.n);
    }
    free(p.lost);
    return result;
}

static struct part *add_part(struct parts *parts, struct salvage *s, int month)
{
    struct part *p = &parts->at[parts->n++];
    *p = (struct part){.s = s, .month = month};
    return p;
}

static int take_month(struct part *p, bool second, struct err *err)
{
    char suffix[MONTH_TEXT], table[32], to[32], sql[1024];
    struct db *db = &p->s->to;
    month_suffix(p->month, suffix);
    snprintf(to, sizeof to, "plays_%s", suffix);
    db_expand(sql_file_month, p->month, sql, sizeof sql);
    int result = db_exec(db, sql, err);
    if (result == 0 && second) { /* while a month is sealed a part of its users is here */
        snprintf(table, sizeof table, "sealed_%s", suffix);
        result = take(p, table, "user_key", "user_key, counted, filter", to, put_blob, err);
    }
    if (result == 0) {
        result = take(p, to, "user_key", "user_key, counted, filter", to, put_blob, err);
    }
    if (result == 0) {
        snprintf(sql, sizeof sql,
                 "UPDATE months SET (users, plays, bytes) = (SELECT count(*), coalesce(sum(items), 0), "
                 "coalesce(sum(length(filter)), 0) FROM %s) WHERE month = %d",
                 to, p->month);
        result = db_exec(db, sql, err);
    }
    return result;
}

/* The months that `months` or the schema knows. A month whose sealing had begun begins it again. */
struct months {
    int at[MONTHS_MAX];
    bool second[MONTHS_MAX];
    int n;
};

static void add_month(struct months *m, int month, bool second)
{
    for (int i = 0; i < m->n; i++) {
        if (m->at[i] == month) {
            m->second[i] = m->second[i] || second;
            return;
        }
    }
    if (m->n < MONTHS_MAX && month > 0) {
        m->at[m->n] = month;
        m->second[m->n++] = second;
    }
}

static int note_month(void *arg, sqlite3_stmt *row, struct err *err)
{
    (void)err;
    add_month(arg, sqlite3_column_int(row, 0), sqlite3_column_type(row, 1) != SQLITE_NULL);
    return 0;
}

static int no_matter(void *arg, int64_t from, int64_t to, struct err *err)
{
    (void)arg;
    (void)from;
    (void)to;
    (void)err;
    return 0;
}

static void schema_months(struct salvage *s, struct months *m)
{
    sqlite3_stmt *stmt = db_stmt(&s->from, SQL_SALVAGE_MONTH_TABLES, NULL);
    while (db_step(&s->from, stmt, NULL) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        const char *digits = strchr(name, '_');
        int number = digits != NULL ? atoi(digits + 1) : 0;
        if (number % 100 >= 1 && number % 100 <= 12) {
            add_month(m, month_make(number / 100, number % 100), name[0] == 's');
        }
    }
}

static int take_months(struct salvage *s, struct parts *parts, struct err *err)
{
    struct months *m = calloc(1, sizeof *m);
    struct part p = {.s = s};
    if (m == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    struct salvage_table t = {.from = &s->from,
                              .name = "months",
                              .key = "month",
                              .columns = "month, sealed_to",
                              .row = note_month,
                              .lost = no_matter,
                              .arg = m};
    int result = salvage_table(&t, err);
    if (result == 0) {
        result = take(&p, "months", "month", "month, sealed, swept_to", "months", put_row, err);
    }
    free(p.lost);
    schema_months(s, m);
    for (int i = 0; i < m->n && result == 0; i++) {
        sqlite3_stmt *stmt = db_stmt(&s->to, SQL_MONTH_INSERT, err);
        if (stmt != NULL) {
            sqlite3_bind_int(stmt, 1, m->at[i]);
        }
        result = db_run(&s->to, stmt, err);
        result = result < 0 ? result : take_month(add_part(parts, s, m->at[i]), m->second[i], err);
    }
    free(m);
    return result;
}

static int take_all(struct salvage *s, struct parts *parts, struct err *err)
{
    int result = take_users(s, err);
    if (result < 0 || (result = take_months(s, parts, err)) < 0) {
        return result;
    }
    struct part *delivered = add_part(parts, s, 0);
    if ((result = take(delivered, "delivered", "user_key", "user_key, items", "delivered", put_blob, err)) < 0 ||
        (result = salvage_copy(s, "exceptions", "user_key, item_hash", err)) < 0 ||
        (result = salvage_copy(s, "shared_keys", "user_key, user", err)) < 0 ||
        (result = salvage_copy(s, "quarantine", "user_key, user, month, at, reason, blob, accepted", err)) < 0) {
        return result;
    }
    result = repair_nameless(&s->to, NAMELESS_KEEP, s->did, s->arg, err);
    s->losses += result > 0 ? result : 0;
    for (size_t i = 0; i < parts->n && result >= 0; i++) {
        result = tell_lost(&parts->at[i], err);
    }
    return result < 0 ? result : 0;
}

int salvage_history(struct salvage *s, struct err *err)
{
    struct parts *parts = calloc(1, sizeof *parts);
    if (parts == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int result = take_all(s, parts, err);
    for (size_t i = 0; i < parts->n; i++) {
        free(parts->at[i].lost);
    }
    free(parts);
    return result;
}
