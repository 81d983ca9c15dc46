/* Merges one user of another store with the data here, inside the historian's transaction.
 *
 * Everything is computed in memory first and then written. So a user that can't be merged is left as before, and the
 * others of the transaction go on.
 *
 * Months: the filters are merged (filter_join), then plays that were staged there are added as by a flush. Months past
 * retention are left out.
 *
 * Exceptions: import_exceptions.c.
 *
 * Deliveries: import_write.c.
 *
 * Damage: months that the other store could not read are marked, and get the same mark here. A question that needs one
 * gets the same error, until the loss is accepted.
 */

#include <malloc.h>

#include "base/calendar.h"
#include "store/sqlite/history/import_work.h"
#include "store/user/parcel.h"
#include "store/user/plays.h"

/* What one user may take, in memory, at least; else staging_memory. */
enum { MEMORY_MIN = 16 * 1024 * 1024 };

/* --- what comes --- */

/* As whom: NULL, as whom it was packed; else as that one, whose forgets are no matter. */
static int read_snapshot(struct import_work *w, struct slice bytes, const struct staged_walk *as)
{
    struct user_snapshot *p = &w->snapshot;
    int64_t later;
    int64_t earlier;
    int result = parcel_open(bytes, w->s->seed, &w->s->historian.arena, p, w->err);
    if (result < 0) {
        return result;
    }
    if (as != NULL) {
        p->key = as->key;
        p->user = as->user;
    }
    store_now(&w->s->base, &later, &earlier);
    w->user.key = p->key;
    w->user.user = p->user;
    w->first_kept = sweep_first_kept(w->s);
    int64_t forgotten = as != NULL ? INT64_MIN : tombstones_user_ms(w->s->tombstones, p->key);
    return parcel_admit(p, forgotten, later, w->first_kept, &w->s->historian.arena, &w->newest, w->err);
}

/* --- months --- */

int import_read_month(struct import_work *w, const struct stored_month *month, bool keep, struct filter *out)
{
    struct historian *h = &w->s->historian;
    struct err why = {0};
    out->n_parts = 0;
    sqlite3_stmt *stmt = db_stmt_for(&h->db, SQL_PLAY_GET, month_table(month, w->user.key), w->err);
    db_bind_key(stmt, w->user.key);
    int result = db_step(&h->db, stmt, w->err);
    if (result != 1) {
        return result;
    }
    struct slice blob = db_column_bytes(stmt, 0);
    result =
        keep ? filter_decode(blob.data, blob.len, &h->arena, out, &why) : filter_weigh(blob.data, blob.len, out, &why);
    sqlite3_reset(stmt);
    return result == ERR_NOMEM ? import_no_memory(w->err) : result;
}

static struct plays staged_there(const struct user_snapshot *p, int month)
{
    size_t at = 0;
    while (at < p->n_plays && p->plays[at].month != month) {
        at++;
    }
    return plays_of_month(p->plays, p->n_plays, at);
}

/* Computes the month of both, in memory that is scratch but for h->blob, which holds it if planned->blob.len > 0. its:
 * the month's place in the snapshot; -1: it was only staged there. 0; IMPORT_CROWDED; or an error. */
static int join_month(struct import_work *w, int month, int its, struct imported_month *planned)
{
    struct sqlite_store *s = w->s;
    struct historian *h = &s->historian;
    const struct plays staged = staged_there(&w->snapshot, month);
    const struct plays_limits limits = plays_limits(config_now(s->cfg)->error_rate);
    struct filter filter, theirs = {.n_parts = 0};
    int64_t old_bytes;
    int64_t old_items;
    int result;
    if ((result = month_ensure(s, month, w->err)) < 0 || (result = month_list(s, w->err)) < 0 ||
        (result = its >= 0 ? parcel_month(&w->snapshot, (size_t)its, &h->arena, &theirs, w->err) : 0) < 0) {
        return result;
    }
    if (staged.n == 0 && filter_items(&theirs) == 0) {
        return 0;
    }
    int table = month_table(month_find(s, month), w->user.key);
    if ((result = merge_read_filter(s, &w->user, month, table, &filter, &old_bytes, w->err)) < 0) {
        return result;
    }
    uint64_t before = filter_items(&filter);
    old_items = (int64_t)before;
    if (old_bytes >= 0 && before == 0 && (result = merge_stored_items(s, w->user.key, table, &old_items, w->err)) < 0) {
        return result;
    }
    result = its >= 0 ? filter_join(&filter, &theirs, limits.coarse_max, &h->arena) : 0;
    if (result == 0 && staged.n > 0) {
        result = plays_add(&filter, &staged, &limits, &h->arena);
    }
    if (result == ERR_FULL) {
        w->crowded = month;
        return IMPORT_CROWDED;
    }
    if (result < 0) {
        return import_no_memory(w->err);
    }
    uint64_t after = filter_items(&filter);
    w->newest = month > w->newest ? month : w->newest;
    if (after == before) {
        return 0; /* nothing is ever taken out, so nothing came in */
    }
    buf_clear(&h->blob);
    if (filter_encode(&filter, &h->blob) < 0) {
        return import_no_memory(w->err);
    }
    *planned = (struct imported_month){
        .month = month,
        .table = table,
        .blob = buf_slice(&h->blob),
        .items = (int64_t)after,
        .more_items = (int64_t)after - old_items,
        .more_bytes = (int64_t)h->blob.len - (old_bytes < 0 ? 0 : old_bytes),
        .is_new = old_bytes < 0,
    };
    return 0;
}

/* One month at a time is taken apart: a small blob may hold much. */
static int plan_month(struct import_work *w, int month, int its)
{
    struct arena *arena = &w->s->historian.arena;
    struct arena_mark mark = arena_mark(arena);
    struct imported_month planned = {.blob = {NULL, 0}};
    int result = join_month(w, month, its, &planned);
    arena_rewind(arena, mark);
    if (result != 0 || planned.blob.len == 0) {
        return result;
    }
    planned.blob.data = arena_copy(arena, planned.blob.data, planned.blob.len);
    if (planned.blob.data == NULL) {
        return import_no_memory(w->err);
    }
    w->months[w->n_months++] = planned;
    return 0;
}

static int plan_months(struct import_work *w)
{
    const struct user_snapshot *p = &w->snapshot;
    size_t most = p->n_months;
    for (size_t i = 0; i < p->n_plays; i++) {
        most += i == 0 || p->plays[i].month != p->plays[i - 1].month;
    }
    w->months = arena_alloc(&w->s->historian.arena, most * sizeof *w->months + 1);
    if (w->months == NULL) {
        return import_no_memory(w->err);
    }
    int result = 0;
    for (size_t i = 0; i < p->n_months && result == 0; i++) {
        result = plan_month(w, p->months[i].month, (int)i);
    }
    for (size_t i = 0; i < p->n_plays && result == 0; i++) {
        int month = p->plays[i].month;
        bool done = i > 0 && p->plays[i - 1].month == month;
        for (size_t j = 0; j < p->n_months && !done; j++) {
            done = p->months[j].month == month;
        }
        result = done ? 0 : plan_month(w, month, -1);
    }
    return result;
}

/* Whether the chance to hide an item by error is now beyond what is promised: 1, 0 or an error. */
static int is_over(struct import_work *w)
{
    struct sqlite_store *s = w->s;
    struct historian *h = &s->historian;
    const struct config *live = config_now(s->cfg);
    int64_t later;
    int64_t earlier;
    double error = 0;
    store_now(&s->base, &later, &earlier);
    int first = month_of_ms(earlier) - (int)live->window;
    for (int i = 0; i < h->n_months; i++) {
        struct filter filter;
        if (h->months[i].month < first) {
            continue;
        }
        int result = import_read_month(w, &h->months[i], false, &filter);
        if (result < 0 && result != ERR_CORRUPT) {
            return result;
        }
        error += result == 0 ? filter_error(&filter) : 0;
    }
    return error > live->error_rate;
}

static int import_snapshot(struct import_work *w, struct slice bytes, const struct staged_walk *as)
{
    struct sqlite_store *s = w->s;
    int result = read_snapshot(w, bytes, as);
    if (result < 0) {
        return result;
    }
    if (w->newest < w->first_kept) {
        return w->snapshot.migration_state ? IMPORT_DONE : IMPORT_OLD;
    }
    if ((result = month_list(s, w->err)) < 0 || (result = import_plan_exceptions(w)) < 0 ||
        (result = plan_months(w)) != 0) {
        return result;
    }
    result = import_write(w);
    result = result < 0 ? result : is_over(w);
    return result < 0 ? result : result > 0 ? IMPORT_OVER : IMPORT_DONE;
}

static int import(struct sqlite_store *s, struct slice bytes, const struct staged_walk *as, int *crowded,
                  struct err *err)
{
    struct arena *arena = &s->historian.arena;
    struct import_work w = {.s = s, .err = err};
    const size_t most = (size_t)config_now(s->cfg)->staging_memory;
    arena_reset(arena);
    arena->limit = most > MEMORY_MIN ? most : MEMORY_MIN;
    int result = import_snapshot(&w, bytes, as);
    *crowded = w.crowded;
    if (result < 0 && arena->refused) {
        result = err_set(err, ERR_RANGE,
                         "a user of %zu bytes would take more than %zu MiB to be joined; such users need a larger "
                         "staging_memory for the load",
                         bytes.len, arena->limit >> 20);
    }
    bool giant = arena->most > MEMORY_MIN;
    arena->limit = 0;
    arena_reset(arena); /* a giant's memory is no other's, */
    if (giant) {
        malloc_trim(0); /* and the allocator would keep it */
    }
    return result;
}

int import_user(struct sqlite_store *s, struct slice bytes, struct err *err)
{
    int crowded;
    return import(s, bytes, NULL, &crowded, err);
}

int import_user_as(struct sqlite_store *s, struct slice bytes, int64_t key, struct slice user, struct err *err)
{
    const struct staged_walk as = {.key = key, .user = user};
    char name[MONTH_TEXT];
    int crowded, result = import(s, bytes, &as, &crowded, err);
    return result != IMPORT_CROWDED ? result
                                    : err_set(err, ERR_CONFLICT, "user %s: %s would need more than %d parts",
                                              log_quote(user), month_name(crowded, name), FILTER_PARTS_MAX);
}
