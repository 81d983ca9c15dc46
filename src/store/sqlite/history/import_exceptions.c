/* Exceptions of an imported user: read, united (store/user/exceptions.h) and written. Filters are taken apart one at a
 * time. */
#include "store/sqlite/history/import_work.h"
#include "store/sqlite/read/exceptions.h"
#include "store/user/parcel.h"

static int look_there(struct import_work *w)
{
    const struct user_snapshot *p = &w->snapshot;
    struct arena *arena = &w->s->historian.arena;
    int result = 0;
    for (size_t i = 0; i < p->n_months && result == 0; i++) {
        struct arena_mark mark = arena_mark(arena);
        struct filter theirs;
        if ((result = parcel_month(p, i, arena, &theirs, w->err)) == 0) {
            exceptions_shown_there(&w->exceptions, &theirs);
        }
        arena_rewind(arena, mark);
    }
    return result;
}

static int look_here(struct import_work *w)
{
    struct historian *h = &w->s->historian;
    int result = 0;
    for (int i = 0; i < h->n_months && result == 0; i++) {
        struct arena_mark mark = arena_mark(&h->arena);
        struct filter ours = {.n_parts = 0};
        result = h->months[i].month >= w->first_kept ? import_read_month(w, &h->months[i], true, &ours) : 0;
        if (result == 0 || result == ERR_CORRUPT) {
            exceptions_shown_here(&w->exceptions, result == 0 ? &ours : NULL);
            result = 0;
        }
        arena_rewind(&h->arena, mark);
    }
    return result;
}

int import_plan_exceptions(struct import_work *w)
{
    const struct user_snapshot *p = &w->snapshot;
    struct exceptions *x = &w->exceptions;
    struct historian *h = &w->s->historian;
    uint64_t *here;
    size_t n_here;
    int result = exceptions_read(&h->db, w->user.key, &h->arena, &here, &n_here, w->err);
    if (result < 0) {
        return result;
    }
    if (exceptions_begin(x, here, n_here, p->exceptions, p->n_exceptions, &h->arena) < 0) {
        return import_no_memory(w->err);
    }
    exceptions_played(x, p->plays, p->n_plays, w->first_kept, true);
    result = x->n_here > 0 ? look_there(w) : 0;
    return result == 0 && x->n_there > 0 ? look_here(w) : result;
}

static int write_exception(struct import_work *w, enum sql_statement which, uint64_t hash)
{
    struct db *db = &w->s->historian.db;
    sqlite3_stmt *stmt = db_stmt(db, which, w->err);
    db_bind_key(stmt, w->user.key);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, (int64_t)hash);
    }
    return db_run(db, stmt, w->err);
}

int import_write_exceptions(struct import_work *w)
{
    const struct exceptions *x = &w->exceptions;
    int result = 0;
    for (size_t i = 0; i < x->n_here && result == 0; i++) {
        result = x->ends[i] ? write_exception(w, SQL_EXCEPTION_DELETE, x->here[i]) : 0;
    }
    for (size_t i = 0; i < x->n_there && result == 0; i++) {
        if (x->comes[i]) {
            /* Raised before the commit, so that no question overlooks the new row. */
            atomic_fetch_add(&w->s->exceptions, 1);
            result = write_exception(w, SQL_EXCEPTION_PUT, x->there[i]);
        }
    }
    return result;
}
