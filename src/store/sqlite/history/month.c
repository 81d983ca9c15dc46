/* Month tables and their totals, inside the historian's transaction. A table and its row in `months` are created and
 * dropped together. A month that is being sealed has a second table. The view `plays` over all of them is recreated
 * each time (views.h). */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"

void month_column(sqlite3_stmt *stmt, int sealed_to_column, struct stored_month *out)
{
    *out = (struct stored_month){
        .month = sqlite3_column_int(stmt, 0),
        .sealing = sqlite3_column_type(stmt, sealed_to_column) != SQLITE_NULL,
        .sealed_to = sqlite3_column_int64(stmt, sealed_to_column),
    };
}

int month_list(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    if (h->months_known) {
        return 0;
    }
    h->n_months = 0;
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_MONTHS_WINDOW, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, INT_MIN);
    }
    int result;
    while ((result = db_step(&h->db, stmt, err)) == 1) {
        if (h->n_months == HISTORY_MONTHS_MAX) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_FULL, "%s: more than %d months", h->db.path, HISTORY_MONTHS_MAX);
        }
        month_column(stmt, 1, &h->months[h->n_months++]);
    }
    h->months_known = result == 0;
    return result;
}

const struct stored_month *month_find(struct sqlite_store *s, int month)
{
    const struct historian *h = &s->historian;
    for (int i = 0; i < h->n_months; i++) {
        if (h->months[i].month == month) {
            return &h->months[i];
        }
    }
    return NULL;
}

static int create_table(struct sqlite_store *s, int table, struct err *err)
{
    char sql[1024];
    db_expand(sql_file_month, table, sql, sizeof sql);
    return db_exec(&s->historian.db, sql, err);
}

static int drop_table(struct sqlite_store *s, int table, struct err *err)
{
    char sql[128];
    db_drop_variant(&s->historian.db, table);
    db_expand(sql_statements[SQL_MONTH_DROP], table, sql, sizeof sql);
    return db_exec(&s->historian.db, sql, err);
}

int month_ensure(struct sqlite_store *s, int month, struct err *err)
{
    struct historian *h = &s->historian;
    int result = month_list(s, err);
    if (result < 0 || month_find(s, month) != NULL) {
        return result;
    }
    if (h->n_months == HISTORY_MONTHS_MAX) {
        return err_set(err, ERR_FULL, "%s: more than %d months", h->db.path, HISTORY_MONTHS_MAX);
    }
    if ((result = create_table(s, month, err)) < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_MONTH_INSERT, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, month);
    }
    result = db_run(&h->db, stmt, err);
    h->months_known = false;
    return result < 0 ? result : views_make(&h->db, err);
}

int month_drop(struct sqlite_store *s, int month, struct err *err)
{
    struct historian *h = &s->historian;
    int result = drop_table(s, month, err);
    if (result < 0 || (result = drop_table(s, month | DB_SEALED_TABLE, err)) < 0) {
        return result;
    }
    static const enum sql_statement rows[] = {SQL_MONTH_DELETE, SQL_QUARANTINE_DELETE_MONTH};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sqlite3_stmt *stmt = db_stmt(&h->db, rows[i], err);
        if (stmt != NULL) {
            sqlite3_bind_int(stmt, 1, month);
        }
        if ((result = db_run(&h->db, stmt, err)) < 0) {
            return result;
        }
    }
    h->months_known = false;
    return views_make(&h->db, err);
}

int month_seal_cursor(struct sqlite_store *s, int month, int64_t sealed_to, struct err *err)
{
    struct historian *h = &s->historian;
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_MONTH_SEALED_TO, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, month);
        sqlite3_bind_int64(stmt, 2, sealed_to);
    }
    h->months_known = false;
    return db_run(&h->db, stmt, err);
}

int month_seal_begin(struct sqlite_store *s, int month, struct err *err)
{
    int result = create_table(s, month | DB_SEALED_TABLE, err);
    if (result == 0) {
        result = month_seal_cursor(s, month, INT64_MIN, err);
    }
    return result < 0 ? result : views_make(&s->historian.db, err);
}

int month_seal_end(struct sqlite_store *s, int month, struct err *err)
{
    struct historian *h = &s->historian;
    char sql[128];
    db_drop_variant(&h->db, month | DB_SEALED_TABLE);
    db_expand(sql_statements[SQL_MONTH_RENAME], month, sql, sizeof sql);
    int result = views_drop(&h->db, err);
    if (result < 0 || (result = drop_table(s, month, err)) < 0 || (result = db_exec(&h->db, sql, err)) < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_MONTH_SEALED, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, month);
    }
    h->months_known = false;
    result = db_run(&h->db, stmt, err);
    return result < 0 ? result : views_make(&h->db, err);
}

int month_count(struct sqlite_store *s, int month, int64_t users, int64_t plays, int64_t bytes, struct err *err)
{
    struct historian *h = &s->historian;
    int i = 0;
    while (i < h->n_deltas && h->deltas[i].month != month) {
        i++;
    }
    if (i == h->n_deltas) {
        if (i == HISTORY_MONTHS_MAX) {
            return err_set(err, ERR_FULL, "%s: more than %d months", h->db.path, HISTORY_MONTHS_MAX);
        }
        h->deltas[h->n_deltas++] = (struct month_delta){.month = month};
    }
    h->deltas[i].users += users;
    h->deltas[i].plays += plays;
    h->deltas[i].bytes += bytes;
    return 0;
}

int month_write_counts(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    int result = 0;
    for (int i = 0; i < h->n_deltas && result == 0; i++) {
        const struct month_delta *d = &h->deltas[i];
        sqlite3_stmt *stmt = db_stmt(&h->db, SQL_MONTH_ADD, err);
        if (stmt != NULL) {
            sqlite3_bind_int(stmt, 1, d->month);
            sqlite3_bind_int64(stmt, 2, d->users);
            sqlite3_bind_int64(stmt, 3, d->plays);
            sqlite3_bind_int64(stmt, 4, d->bytes);
        }
        result = db_run(&h->db, stmt, err);
    }
    h->n_deltas = 0;
    return result;
}
