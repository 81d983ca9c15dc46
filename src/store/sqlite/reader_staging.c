/* What a reader reads of staging.db, by a second connection that is opened when it is needed first: the notes that wait
 * and the problems, for the migration and whoever shows it, and the mirror's queue, for the mirror's thread. Questions
 * don't: what is staged they find in the indexes.
 */
#include "store/sqlite/internal.h"

static struct db *staging_of(struct store_reader *r, struct err *err)
{
    struct sqlite_store *s = r->store;
    if (r->staging.handle == NULL && db_open(&r->staging, s->folder, "staging", s->vfs, DB_READ, err) < 0) {
        return NULL;
    }
    return &r->staging;
}

static int copy(struct arena *arena, struct slice from, struct slice *to, struct err *err)
{
    char *bytes = arena_copy(arena, from.data, from.len);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *to = slice_of(bytes, from.len);
    return 0;
}

/* Who they are. One whose note isn't durable yet is left out: he is in the next walk. */
static int read_users(struct db *db, const uint32_t *ids, int n, struct slice *users, struct arena *arena,
                      struct err *err)
{
    int found = 0, result = 0;
    for (int i = 0; i < n && result >= 0; i++) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_WAITING, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, ids[i]);
        }
        if ((result = db_step(db, stmt, err)) == 1) {
            result = copy(arena, db_column_bytes(stmt, 0), &users[found++], err);
            sqlite3_reset(stmt);
        }
    }
    return result < 0 ? result : found;
}

int reader_notes(struct store_reader *r, struct store_notes_walk *walk, struct slice *users, int max,
                 struct arena *arena, struct err *err)
{
    struct db *db = staging_of(r, err);
    if (db == NULL) {
        return err->code;
    }
    uint32_t *ids = arena_alloc(arena, (size_t)max * sizeof *ids);
    if (ids == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int found = 0;
    while (found == 0 && !walk->ended) {
        int n = notes_waiting(r->store, walk, ids, max);
        int result = n > 0 ? db_begin_read(db, err) : 0;
        if (n == 0 || result < 0) {
            found = result;
            continue;
        }
        found = read_users(db, ids, n, users, arena, err);
        struct err ended = {0};
        if (db_commit(db, &ended) < 0 && found >= 0) {
            found = err_set(err, ended.code, "%s", ended.text);
        }
    }
    return found;
}

int reader_problems(struct store_reader *r, struct store_problem *out, int max, struct arena *arena, struct err *err)
{
    struct db *db = staging_of(r, err);
    if (db == NULL) {
        return err->code;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_PROBLEMS, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, max);
    }
    int n = 0, result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct store_problem *p = &out[n++];
        p->at_ms = sqlite3_column_int64(stmt, 2);
        if ((result = copy(arena, db_column_bytes(stmt, 0), &p->key, err)) < 0 ||
            (result = copy(arena, db_column_bytes(stmt, 1), &p->what, err)) < 0) {
            sqlite3_reset(stmt);
            break;
        }
    }
    return result < 0 ? result : n;
}

int reader_mirror(struct store_reader *r, uint64_t after, struct store_mirrored *out, int max, struct arena *arena,
                  struct err *err)
{
    uint64_t last = mirror_last_id(r->store);
    struct db *db = last > after ? staging_of(r, err) : NULL;
    if (db == NULL) {
        return last > after ? err->code : 0;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_MIRROR_FROM, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)after);
        sqlite3_bind_int64(stmt, 2, (int64_t)last);
        sqlite3_bind_int(stmt, 3, max);
    }
    int n = 0, result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct store_mirrored *m = &out[n++];
        m->id = (uint64_t)sqlite3_column_int64(stmt, 0);
        m->kind = (enum store_mirror_kind)sqlite3_column_int(stmt, 1);
        m->at_ms = sqlite3_column_int64(stmt, 4);
        if ((result = copy(arena, db_column_bytes(stmt, 2), &m->user, err)) < 0 ||
            (result = copy(arena, db_column_bytes(stmt, 3), &m->item, err)) < 0) {
            sqlite3_reset(stmt);
            break;
        }
    }
    return result < 0 ? result : n;
}
