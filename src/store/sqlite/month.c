/* Month tables and their totals, inside the historian's transaction. A table and its row in `months` come and go
 * together; the view `plays` over all of them is made anew each time. */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/sqlite/internal.h"

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
        h->months[h->n_months++] = sqlite3_column_int(stmt, 0);
    }
    h->months_known = result == 0;
    return result;
}

/* One SELECT a month, so that the shell can ask over all of them. */
static int make_view(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    int result = db_exec(&h->db, "DROP VIEW IF EXISTS plays", err);
    if (result < 0 || (result = month_list(s, err)) < 0 || h->n_months == 0) {
        return result;
    }
    struct buf sql = {0};
    for (int i = 0; i < h->n_months; i++) {
        char name[MONTH_TEXT];
        char suffix[MONTH_TEXT];
        buf_addf(&sql,
                 "%s SELECT '%s' AS month, users.user AS user, items, length(filter) AS bytes, filter "
                 "FROM plays_%s JOIN users USING (user_key)",
                 i == 0 ? "CREATE VIEW plays AS" : " UNION ALL", month_name(h->months[i], name),
                 month_suffix(h->months[i], suffix));
    }
    buf_add(&sql, "", 1);
    result = sql.failed ? err_set(err, ERR_NOMEM, "out of memory") : db_exec(&h->db, sql.data, err);
    buf_free(&sql);
    return result;
}

int month_ensure(struct sqlite_store *s, int month, struct err *err)
{
    struct historian *h = &s->historian;
    int result = month_list(s, err);
    for (int i = 0; i < h->n_months && result == 0; i++) {
        if (h->months[i] == month) {
            return 0;
        }
    }
    if (result < 0) {
        return result;
    }
    if (h->n_months == HISTORY_MONTHS_MAX) {
        return err_set(err, ERR_FULL, "%s: more than %d months", h->db.path, HISTORY_MONTHS_MAX);
    }
    char sql[1024];
    db_expand(sql_file_month, month, sql, sizeof sql);
    if ((result = db_exec(&h->db, sql, err)) < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_MONTH_INSERT, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, month);
    }
    result = db_run(&h->db, stmt, err);
    h->months_known = false;
    return result < 0 ? result : make_view(s, err);
}

int month_drop(struct sqlite_store *s, int month, struct err *err)
{
    struct historian *h = &s->historian;
    db_drop_variant(&h->db, month);
    char sql[128];
    db_expand(sql_statements[SQL_MONTH_DROP], month, sql, sizeof sql);
    int result = db_exec(&h->db, "DROP VIEW IF EXISTS plays", err);
    if (result < 0 || (result = db_exec(&h->db, sql, err)) < 0) {
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
    return make_view(s, err);
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
