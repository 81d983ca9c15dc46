/* What repairs have given up: the accepted rows of `quarantine`, and users without a name (repair_nameless.c). */
#include "store/sqlite/sqlite_store.h"

#include <stdlib.h>

#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/db/schema.h"

int sqlite_losses_add(struct sqlite_losses *l, struct sqlite_loss loss, struct err *err)
{
    if (l->n == SQLITE_LOSSES_MAX) {
        return err_set(err, ERR_FULL, "more than %d months and lists are lost", SQLITE_LOSSES_MAX);
    }
    if (l->n == l->cap) {
        size_t cap = l->cap > 0 ? 2 * l->cap : 64;
        struct sqlite_loss *more = realloc(l->list, cap * sizeof *more);
        if (more == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory for a list of losses");
        }
        l->list = more;
        l->cap = cap;
    }
    l->list[l->n++] = loss;
    return 0;
}

static int list(struct db *db, struct sqlite_losses *out, struct err *err)
{
    int result = schema_seed(db, &out->seed, err);
    sqlite3_stmt *stmt = result < 0 ? NULL : db_stmt(db, SQL_LOSSES, err);
    if (stmt == NULL) {
        return err->code;
    }
    while ((result = db_step(db, stmt, err)) == 1) {
        const struct sqlite_loss loss = {sqlite3_column_int64(stmt, 0), sqlite3_column_int(stmt, 1)};
        if ((result = sqlite_losses_add(out, loss, err)) < 0) {
            sqlite3_reset(stmt);
            return err_prefix(err, "%s", db->path);
        }
    }
    return result;
}

static int delete_rows(struct db *db, const struct sqlite_losses *mended, struct err *err)
{
    int result = db_begin(db, err);
    for (size_t i = 0; i < mended->n && result == 0; i++) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_LOSS_DELETE, err);
        db_bind_key(stmt, mended->list[i].key);
        if (stmt != NULL) {
            sqlite3_bind_int(stmt, 2, mended->list[i].month);
        }
        result = db_run(db, stmt, err);
    }
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

/* With the folder's lock held. */
static int with_history(const char *folder, const struct sqlite_losses *mended, struct sqlite_losses *out,
                        struct err *err)
{
    struct db db;
    int result = folder_need(folder, "history.db", err);
    if (result < 0 ||
        (result = db_open(&db, folder, "history", NULL, mended != NULL ? DB_WRITE_FULL : DB_READ, err)) < 0) {
        return result;
    }
    result = mended != NULL ? schema_history(&db, err) : schema_examine(&db, true, err);
    result = result < 0 ? result : mended != NULL ? delete_rows(&db, mended, err) : list(&db, out, err);
    if (mended != NULL) {
        db_leave_wal(&db, NULL); /* as a store that closes leaves it */
    }
    db_close(&db);
    return result < 0 ? result : 0;
}

static int locked(const char *folder, const struct sqlite_losses *mended, struct sqlite_losses *out, struct err *err)
{
    struct folder_lock lock;
    int result = folder_lock(folder, &lock, err);
    if (result < 0) {
        return result;
    }
    result = with_history(folder, mended, out, err);
    folder_unlock(&lock);
    return result;
}

int sqlite_losses_list(const char *folder, struct sqlite_losses *out, struct err *err)
{
    *out = (struct sqlite_losses){0};
    int result = locked(folder, NULL, out, err);
    if (result < 0) {
        sqlite_losses_free(out);
    }
    return result;
}

int sqlite_losses_mended(const char *folder, const struct sqlite_losses *mended, struct err *err)
{
    return mended->n == 0 ? 0 : locked(folder, mended, NULL, err);
}

void sqlite_losses_free(struct sqlite_losses *l)
{
    free(l->list);
    *l = (struct sqlite_losses){0};
}
