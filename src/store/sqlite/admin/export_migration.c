#include "store/sqlite/admin/export_migration.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct export_migration_user {
    int64_t key, id;
};

enum { WAITING = 0, LEFT = 2 /* noted.state, see sql/staging.sql */ };

static int by_key(const void *a, const void *b)
{
    int64_t x = ((const struct export_migration_user *)a)->key;
    int64_t y = ((const struct export_migration_user *)b)->key;
    return (x > y) - (x < y);
}

static int add(struct export_migration *x, struct export_migration_user note, struct err *err)
{
    if (x->n == x->cap) {
        size_t cap = x->cap > 0 ? 2 * x->cap : 1024;
        struct export_migration_user *more = reallocarray(x->list, cap, sizeof *more);
        if (more == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory for the notes while exporting");
        }
        x->list = more;
        x->cap = cap;
    }
    x->list[x->n++] = note;
    return 0;
}

/* A user who was left because of a problem is read once more where the snapshot comes to. */
static bool is_open(sqlite3_stmt *stmt, struct slice user)
{
    int64_t state = sqlite3_column_int64(stmt, 2);
    return (state == WAITING || state == LEFT) && sqlite3_column_type(stmt, 1) != SQLITE_INTEGER && user.len >= 1 &&
           user.len <= 255;
}

int export_migration_read(struct export_migration *x, struct db *staging, const struct store_export *e, uint64_t seed,
                          struct err *err)
{
    int result;
    sqlite3_stmt *stmt = db_stmt(staging, SQL_NOTED_ALL, err);
    while ((result = db_step(staging, stmt, err)) == 1) {
        struct slice user = db_column_bytes(stmt, 1);
        struct export_migration_user note = {hash_user_key(seed, user), sqlite3_column_int64(stmt, 0)};
        if (!is_open(stmt, user) || note.key < e->from || note.key > e->to || !e->wanted(e->arg, user)) {
            continue;
        }
        if ((result = add(x, note, err)) < 0) {
            sqlite3_reset(stmt);
            return result;
        }
    }
    if (x->n > 1) {
        qsort(x->list, x->n, sizeof *x->list, by_key);
    }
    return result;
}

int export_migration_next(struct export_migration *x, struct db *staging, int64_t *key, struct slice *user,
                          struct err *err)
{
    int found = 0;
    while (found == 0 && x->at < x->n) {
        const struct export_migration_user *note = &x->list[x->at++];
        sqlite3_stmt *stmt = db_stmt(staging, SQL_NOTED_USER, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, note->id);
        }
        if ((found = db_step(staging, stmt, err)) == 1) {
            struct slice id = db_column_bytes(stmt, 0);
            size_t len = id.len <= sizeof x->user ? id.len : sizeof x->user;
            memcpy(x->user, id.data, len);
            *key = note->key;
            *user = slice_of(x->user, len);
            sqlite3_reset(stmt);
        }
    }
    return found;
}

void export_migration_free(struct export_migration *x)
{
    free(x->list);
}
