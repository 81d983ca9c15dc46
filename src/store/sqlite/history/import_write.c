/* Writes what import_user.c has computed for one user. */
#include "store/sqlite/history/import_work.h"

static int write_months(struct import_work *w)
{
    struct sqlite_store *s = w->s;
    struct db *db = &s->historian.db;
    int result = 0;
    for (size_t i = 0; i < w->n_months && result == 0; i++) {
        const struct imported_month *m = &w->months[i];
        sqlite3_stmt *stmt = db_stmt_for(db, SQL_PLAY_PUT, m->table, w->err);
        db_bind_key(stmt, w->user.key);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 2, m->items);
            sqlite3_bind_blob(stmt, 3, m->blob.data, (int)m->blob.len, SQLITE_STATIC);
        }
        if ((result = db_run(db, stmt, w->err)) == 0) {
            result = month_count(s, m->month, m->is_new, m->more_items, m->more_bytes, w->err);
        }
    }
    return result;
}

/* What is staged here is united with them when it is merged. */
static int write_deliveries(struct import_work *w)
{
    struct historian *h = &w->s->historian;
    struct slice blob = w->snapshot.deliveries;
    struct delivered theirs;
    struct err why = {0};
    if (blob.len == 0) {
        return 0;
    }
    int result = delivered_unpack(&h->codec, blob.data, blob.len, w->s->seed, &h->arena, &theirs, &why);
    if (result < 0) {
        return err_set(w->err, result, "user %s: %s", log_quote(w->user.user), why.text);
    }
    delivered_clear(&h->deliveries);
    result = delivered_add(&h->deliveries, theirs.list, theirs.n);
    return result < 0 ? import_no_memory(w->err) : merge_unite_deliveries(w->s, &w->user, w->err);
}

/* A month that is marked here, or was once, needs no second mark. */
static int write_marks(struct import_work *w)
{
    struct db *db = &w->s->historian.db;
    int result = 0;
    for (size_t i = 0; i < w->snapshot.n_damaged && result == 0; i++) {
        int month = w->snapshot.damaged[i];
        if (month != 0 && month < w->first_kept) {
            continue;
        }
        sqlite3_stmt *stmt = db_stmt(db, SQL_QUARANTINE_ANY, w->err);
        db_bind_key(stmt, w->user.key);
        if (stmt != NULL) {
            sqlite3_bind_int(stmt, 2, month);
        }
        result = db_step(db, stmt, w->err);
        if (result == 1) {
            sqlite3_reset(stmt);
            result = 0;
        } else if (result == 0) {
            result = merge_quarantine(w->s, &w->user, month, slice_of("", 0),
                                      "it was damaged in the store that the user came from", w->err);
        }
    }
    return result;
}

int import_write(struct import_work *w)
{
    int result;
    /* The newest month's row carries the sweep that ends the users row. */
    if ((result = month_ensure(w->s, w->newest, w->err)) < 0 || (result = month_list(w->s, w->err)) < 0 ||
        (result = write_months(w)) < 0 || (result = import_write_exceptions(w)) < 0 ||
        (result = write_deliveries(w)) < 0 || (result = write_marks(w)) < 0) {
        return result;
    }
    return merge_users_row(w->s, &w->user, w->newest, w->err);
}
