/* Exceptions of an imported user. An exception from there is taken over unless the item is seen here, in a filter
 * without an exception. One from here ends if the item is seen there. So an item is hidden if either side hides it.
 * Months past retention don't count.
 *
 * A user snapshot may be crafted: nothing here takes longer than its lists are long, times a logarithm.
 */
#include "base/hash.h"
#include "store/sqlite/history/import_work.h"
#include "store/sqlite/read/exceptions.h"

/* Hashes of what was staged there, ascending: it comes by months. */
static int sort_staged(struct import_work *w, uint64_t **sorted, size_t *n)
{
    const struct user_snapshot *p = &w->snapshot;
    *n = 0;
    *sorted = arena_alloc(&w->s->historian.arena, p->n_plays * sizeof **sorted + 1);
    if (*sorted == NULL) {
        return import_no_memory(w->err);
    }
    for (size_t i = 0; i < p->n_plays; i++) {
        if (p->plays[i].month >= w->first_kept) {
            (*sorted)[(*n)++] = p->plays[i].hash;
        }
    }
    hash_sort(*sorted, *n);
    return 0;
}

/* Those of ours that a filter of theirs shows to be seen there end, unless they are exceptions there, too. */
static int look_there(struct import_work *w)
{
    const struct user_snapshot *p = &w->snapshot;
    struct arena *arena = &w->s->historian.arena;
    for (size_t i = 0; i < p->n_months; i++) {
        struct arena_mark mark = arena_mark(arena);
        struct filter theirs;
        int result = p->months[i].month >= w->first_kept ? import_read_theirs(w, i, &theirs) : 1;
        for (size_t j = 0; j < w->n_exceptions && result == 0; j++) {
            uint64_t hash = w->exceptions[j];
            w->ours_end[j] =
                w->ours_end[j] || (filter_has(&theirs, hash) && !hash_is_among(p->exceptions, p->n_exceptions, hash));
        }
        arena_rewind(arena, mark);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

/* Those of theirs that a filter of ours shows to be seen here are not taken over. */
static int look_here(struct import_work *w)
{
    struct historian *h = &w->s->historian;
    for (int i = 0; i < h->n_months; i++) {
        struct filter ours;
        if (h->months[i].month < w->first_kept) {
            continue;
        }
        struct arena_mark mark = arena_mark(&h->arena);
        int result = import_read_month(w, &h->months[i], true, &ours);
        for (size_t j = 0; j < w->snapshot.n_exceptions && (result == 0 || result == ERR_CORRUPT); j++) {
            uint64_t hash = w->snapshot.exceptions[j];
            bool maybe = result == ERR_CORRUPT || filter_has(&ours, hash);
            if (maybe && !hash_is_among(w->exceptions, w->n_exceptions, hash)) {
                w->take_over[j] = false;
            }
        }
        arena_rewind(&h->arena, mark);
        if (result < 0 && result != ERR_CORRUPT) {
            return result;
        }
    }
    return 0;
}

int import_plan_exceptions(struct import_work *w)
{
    const struct user_snapshot *p = &w->snapshot;
    struct arena *arena = &w->s->historian.arena;
    int result = exceptions_read(&w->s->historian.db, w->user.key, arena, &w->exceptions, &w->n_exceptions, w->err);
    uint64_t *staged = NULL;
    size_t n_staged = 0;
    if (result < 0 || w->n_exceptions + p->n_exceptions == 0 || (result = sort_staged(w, &staged, &n_staged)) < 0) {
        return result;
    }
    w->ours_end = arena_alloc(arena, w->n_exceptions + 1);
    w->take_over = arena_alloc(arena, p->n_exceptions + 1);
    if (w->ours_end == NULL || w->take_over == NULL) {
        return import_no_memory(w->err);
    }
    for (size_t i = 0; i < w->n_exceptions; i++) {
        w->ours_end[i] = hash_is_among(staged, n_staged, w->exceptions[i]);
    }
    for (size_t i = 0; i < p->n_exceptions; i++) {
        w->take_over[i] = !hash_is_among(staged, n_staged, p->exceptions[i]);
    }
    result = w->n_exceptions > 0 ? look_there(w) : 0;
    return result == 0 && p->n_exceptions > 0 ? look_here(w) : result;
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
    int result = 0;
    for (size_t i = 0; i < w->n_exceptions && result == 0; i++) {
        result = w->ours_end[i] ? write_exception(w, SQL_EXCEPTION_DELETE, w->exceptions[i]) : 0;
    }
    for (size_t i = 0; i < w->snapshot.n_exceptions && result == 0; i++) {
        if (w->take_over[i]) {
            /* Raised before the commit, so that no question overlooks the new row. */
            atomic_fetch_add(&w->s->exceptions, 1);
            result = write_exception(w, SQL_EXCEPTION_PUT, w->snapshot.exceptions[i]);
        }
    }
    return result;
}
