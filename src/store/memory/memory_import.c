/* Users that another store has packed. All that a user becomes is worked out first, in an arena, and had as memory that
 * is counted; then nothing can fail.
 *
 * What was staged there are plays here. Filters stay filters, united with those that were imported before. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/error_budget.h"
#include "store/memory/memory.h"
#include "store/user/exceptions.h"
#include "store/user/parcel.h"

/* What the user is to have; lists are the arena's. */
struct plan {
    struct memory_store *s;
    struct user_snapshot snapshot;
    struct filter *theirs;
    int first_kept, newest;
    struct memory_user *user;
    struct memory_month *months; /* newest first */
    size_t n_months;
    struct filter *filters; /* of the months */
    uint64_t *exceptions;
    size_t n_exceptions;
    int *damaged;
    size_t n_damaged;
    int crowded; /* IMPORT_CROWDED: the month */
    struct err *err;
};

static int no_memory(struct plan *p)
{
    return err_set(p->err, ERR_NOMEM, "out of memory while importing a user");
}

static void *get(struct plan *p, size_t n, size_t size)
{
    return arena_alloc(&p->s->arena, n * size + 1);
}

/* --- what comes --- */

/* As whom: NULL, as whom it was packed; else as that one, whose forgets are no matter. */
struct other {
    int64_t key;
    struct slice user;
};

static int read_snapshot(struct plan *p, struct slice bytes, const struct other *as)
{
    struct user_snapshot *in = &p->snapshot;
    int64_t later, earlier;
    int result = parcel_open(bytes, p->s->seed, &p->s->arena, in, p->err);
    if (result < 0) {
        return result;
    }
    if (as != NULL) {
        in->key = as->key;
        in->user = as->user;
    }
    if (in->migration_state) {
        return store_lacks(&p->s->base, "users who are still to come from another Redis", p->err);
    }
    memory_now(&p->s->base, &later, &earlier);
    int64_t forgotten = as != NULL ? INT64_MIN : tombstones_user_ms(p->s->tombstones, in->key);
    result = parcel_admit(in, forgotten, later, p->first_kept, &p->s->arena, &p->newest, p->err);
    return result < 0 ? result : parcel_months(in, &p->s->arena, &p->theirs, p->err);
}

/* --- what the user becomes --- */

static int look_here(struct plan *p, struct exceptions *x)
{
    const struct memory_user *u = p->user;
    int result = 0;
    for (size_t i = 0; i < u->n_months && x->n_there > 0 && result == 0; i++) {
        const struct memory_month *m = &u->months[i];
        struct filter ours = {.n_parts = 0};
        result = m->month >= p->first_kept ? filter_decode(m->blob, m->len, &p->s->arena, &ours, p->err) : 0;
        if (result == 0) {
            exceptions_shown_here(x, &ours);
        }
    }
    return result;
}

static int plan_exceptions(struct plan *p)
{
    const struct user_snapshot *in = &p->snapshot;
    const struct memory_user *u = p->user;
    struct exceptions x;
    uint64_t *here = arena_copy(&p->s->arena, u->exceptions, u->n_exceptions * sizeof *here);
    p->exceptions = get(p, in->n_exceptions + u->n_exceptions, sizeof *p->exceptions);
    if (here == NULL || p->exceptions == NULL) {
        return no_memory(p);
    }
    hash_sort(here, u->n_exceptions);
    if (exceptions_begin(&x, here, u->n_exceptions, in->exceptions, in->n_exceptions, &p->s->arena) < 0) {
        return no_memory(p);
    }
    exceptions_played(&x, in->plays, in->n_plays, p->first_kept, true);
    for (size_t i = 0; i < in->n_months; i++) {
        exceptions_shown_there(&x, &p->theirs[i]);
    }
    int result = look_here(p, &x);
    for (size_t i = 0; i < x.n_here; i++) {
        if (!x.ends[i]) {
            p->exceptions[p->n_exceptions++] = x.here[i];
        }
    }
    for (size_t i = 0; i < x.n_there; i++) {
        if (x.comes[i]) {
            p->exceptions[p->n_exceptions++] = x.there[i];
        }
    }
    return result;
}

/* One month of both: either may be missing. 0, IMPORT_CROWDED or an error. */
static int unite_month(struct plan *p, const struct memory_month *ours, const struct filter *theirs, int month)
{
    struct arena *arena = &p->s->arena;
    struct filter *filter = &p->filters[p->n_months];
    struct buf blob = {0};
    int result = 0;
    *filter = (struct filter){0};
    if (ours != NULL && filter_decode(ours->blob, ours->len, arena, filter, p->err) < 0) {
        return p->err->code;
    }
    if (theirs != NULL) {
        uint32_t coarse_max = error_budget_coarse_max(config_now(p->s->cfg)->error_rate);
        result = filter_join(filter, theirs, coarse_max, arena);
    }
    if (result == ERR_FULL) {
        p->crowded = month;
        return IMPORT_CROWDED;
    }
    if (result < 0) {
        return no_memory(p);
    }
    if (filter_items(filter) == 0) {
        return 0;
    }
    void *copy = filter_encode(filter, &blob) == 0 ? arena_copy(arena, blob.data, blob.len) : NULL;
    if (copy != NULL) {
        p->months[p->n_months++] = (struct memory_month){month, (uint32_t)blob.len, copy};
    }
    buf_free(&blob);
    return copy != NULL ? 0 : no_memory(p);
}

/* Both lists of months from the newest on. */
static int plan_months(struct plan *p)
{
    const struct user_snapshot *in = &p->snapshot;
    const struct memory_user *u = p->user;
    size_t ours = 0, theirs = in->n_months;
    p->months = get(p, in->n_months + u->n_months, sizeof *p->months);
    p->filters = get(p, in->n_months + u->n_months, sizeof *p->filters);
    if (p->months == NULL || p->filters == NULL) {
        return no_memory(p);
    }
    int result = 0;
    while (result == 0 && (ours < u->n_months || theirs > 0)) {
        int a = ours < u->n_months ? u->months[ours].month : INT_MIN;
        int b = theirs > 0 ? in->months[theirs - 1].month : INT_MIN;
        int month = a > b ? a : b;
        const struct memory_month *mine = a == month ? &u->months[ours++] : NULL;
        const struct filter *other = b == month ? &p->theirs[--theirs] : NULL;
        result = month < p->first_kept ? 0 : unite_month(p, mine, other, month);
    }
    return result;
}

static int plan_deliveries(struct plan *p)
{
    struct memory_store *s = p->s;
    const struct memory_user *u = p->user;
    struct slice blob = p->snapshot.deliveries;
    struct delivered theirs = {0};
    const struct delivered ours = {.list = u->deliveries, .n = u->n_deliveries};
    struct err why = {0};
    if (blob.len > 0) {
        int result = delivered_unpack(&s->codec, blob.data, blob.len, s->seed, &s->arena, &theirs, &why);
        if (result < 0) {
            return err_set(p->err, result, "user %s: %s", log_quote(p->snapshot.user), why.text);
        }
    }
    s->united.n = 0;
    if (delivered_add(&s->united, ours.list, ours.n) < 0 || delivered_add(&s->united, theirs.list, theirs.n) < 0) {
        return no_memory(p);
    }
    delivered_unite(&s->united, (size_t)config_now(s->cfg)->delivered_max);
    return 0;
}

static int plan_damage(struct plan *p)
{
    const struct user_snapshot *in = &p->snapshot;
    const struct memory_user *u = p->user;
    p->damaged = get(p, in->n_damaged + u->n_damaged, sizeof *p->damaged);
    if (p->damaged == NULL) {
        return no_memory(p);
    }
    for (size_t i = 0; i < u->n_damaged + in->n_damaged; i++) {
        int month = i < u->n_damaged ? u->damaged[i] : in->damaged[i - u->n_damaged];
        bool had = month != 0 && month < p->first_kept;
        for (size_t j = 0; j < p->n_damaged && !had; j++) {
            had = p->damaged[j] == month;
        }
        if (!had) {
            p->damaged[p->n_damaged++] = month;
        }
    }
    return 0;
}

/* --- carrying it out --- */

/* A copy that is counted, of a list of the arena's; NULL when it is empty, too. */
static void *keep(struct memory_store *s, const void *list, size_t size)
{
    void *kept = size > 0 ? memory_resize(s, NULL, 0, size, false) : NULL;
    if (kept != NULL) {
        memcpy(kept, list, size);
    }
    return kept;
}

static void drop(struct memory_store *s, const void *list, size_t size)
{
    memory_resize(s, (void *)(uintptr_t)list, size, 0, true);
}

/* Another user who is not in the table, with all that the plan says but the plays. */
static bool keep_lists(struct plan *p, struct memory_user *to)
{
    struct memory_store *s = p->s;
    to->months = keep(s, p->months, p->n_months * sizeof *p->months);
    to->deliveries = keep(s, s->united.list, s->united.n * sizeof *s->united.list);
    to->exceptions = keep(s, p->exceptions, p->n_exceptions * sizeof *p->exceptions);
    to->damaged = keep(s, p->damaged, p->n_damaged * sizeof *p->damaged);
    to->n_exceptions = to->exceptions != NULL ? p->n_exceptions : 0;
    to->n_damaged = to->damaged != NULL ? p->n_damaged : 0;
    to->cap_deliveries = to->deliveries != NULL ? s->united.n : 0;
    bool good = to->n_exceptions == p->n_exceptions && to->n_damaged == p->n_damaged &&
                to->cap_deliveries == s->united.n && (p->n_months == 0 || to->months != NULL);
    size_t months = to->months != NULL ? p->n_months : 0;
    for (; good && to->n_months < months; to->n_months++) {
        const struct memory_month *m = &p->months[to->n_months];
        to->months[to->n_months].blob = keep(s, m->blob, m->len);
        good = to->months[to->n_months].blob != NULL;
        if (!good) {
            break;
        }
    }
    for (; good && to->n_deliveries < s->united.n; to->n_deliveries++) {
        struct store_delivery d = s->united.list[to->n_deliveries];
        d.item.data = keep(s, d.item.data, d.item.len);
        if (d.item.data == NULL) {
            good = false;
            break;
        }
        to->deliveries[to->n_deliveries] = d;
    }
    return good;
}

static void drop_lists(struct plan *p, struct memory_user *of, size_t cap_months)
{
    struct memory_store *s = p->s;
    for (size_t i = 0; i < of->n_months; i++) {
        drop(s, of->months[i].blob, of->months[i].len);
    }
    for (size_t i = 0; i < of->n_deliveries; i++) {
        drop(s, of->deliveries[i].item.data, of->deliveries[i].item.len);
    }
    drop(s, of->months, of->months != NULL ? cap_months * sizeof *of->months : 0);
    drop(s, of->deliveries, of->cap_deliveries * sizeof *of->deliveries);
    drop(s, of->exceptions, of->n_exceptions * sizeof *of->exceptions);
    drop(s, of->damaged, of->n_damaged * sizeof *of->damaged);
}

static int carry_out(struct plan *p)
{
    struct memory_store *s = p->s;
    struct memory_user *u = p->user;
    const struct user_snapshot *in = &p->snapshot;
    struct memory_user now = {0};
    if (!keep_lists(p, &now) || memory_promise_plays(s, u, in->n_plays) < 0) {
        drop_lists(p, &now, p->n_months);
        return memory_full(s, p->err);
    }
    s->stats.staged_rows += now.n_deliveries - u->n_deliveries;
    drop_lists(p, u, u->n_months);
    u->months = now.months;
    u->n_months = now.n_months;
    u->deliveries = now.deliveries;
    u->n_deliveries = u->cap_deliveries = now.n_deliveries;
    u->exceptions = now.exceptions;
    u->n_exceptions = now.n_exceptions;
    u->damaged = now.damaged;
    u->n_damaged = now.n_damaged;
    for (size_t i = 0; i < in->n_plays; i++) {
        memory_add_play(s, u, in->plays[i].hash, in->plays[i].month);
    }
    u->known = true;
    u->last_month = p->newest > u->last_month ? p->newest : u->last_month;
    return 0;
}

static int verdict(struct plan *p)
{
    int64_t later, earlier;
    double error = 0;
    const struct config *live = config_now(p->s->cfg);
    memory_now(&p->s->base, &later, &earlier);
    for (size_t i = 0; i < p->n_months; i++) {
        error += p->months[i].month >= month_of_ms(earlier) - (int)live->window ? filter_error(&p->filters[i]) : 0;
    }
    return error > live->error_rate ? IMPORT_OVER : IMPORT_DONE;
}

static int adopt_forgets(struct memory_store *s, const struct user_snapshot *in, struct err *err)
{
    if (tombstones_reserve(s->tombstones, 1 + in->n_forgotten) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory while joining users");
    }
    if (in->forgotten_ms > 0) {
        tombstones_put(s->tombstones, &(struct tombstone){.key = in->key, .at_ms = in->forgotten_ms});
    }
    for (size_t i = 0; i < in->n_forgotten; i++) {
        const struct snapshot_forgotten *f = &in->forgotten[i];
        tombstones_put(s->tombstones, &(struct tombstone){.key = in->key, .item = f->item, .at_ms = f->at_ms});
    }
    return 0;
}

/* The verdict, or an error. */
static int import_user(struct memory_store *s, struct slice bytes, const struct other *as, int *crowded,
                       struct err *err)
{
    struct plan p = {.s = s, .first_kept = memory_first_kept(s), .err = err};
    int result = read_snapshot(&p, bytes, as);
    if (result < 0) {
        return result;
    }
    if ((result = adopt_forgets(s, &p.snapshot, err)) < 0) {
        return result;
    }
    if (p.newest < p.first_kept) {
        return IMPORT_OLD;
    }
    pthread_mutex_lock(&s->mutex);
    p.user = memory_make(s, p.snapshot.key, p.snapshot.user);
    if (p.user == NULL) {
        result = memory_full(s, err);
    } else if ((result = plan_exceptions(&p)) == 0 && (result = plan_months(&p)) == 0 &&
               (result = plan_deliveries(&p)) == 0 && (result = plan_damage(&p)) == 0) {
        result = carry_out(&p);
    }
    pthread_mutex_unlock(&s->mutex);
    *crowded = p.crowded;
    return result == 0 ? verdict(&p) : result;
}

int memory_import_as(struct memory_store *s, struct slice bytes, int64_t key, struct slice user, struct err *err)
{
    char name[MONTH_TEXT];
    int crowded, result = import_user(s, bytes, &(struct other){key, user}, &crowded, err);
    return result != IMPORT_CROWDED ? result
                                    : err_set(err, ERR_CONFLICT, "user %s: %s would need more than %d parts",
                                              log_quote(user), month_name(crowded, name), FILTER_PARTS_MAX);
}

void memory_import(struct memory_store *s, struct store_import *import)
{
    struct err *err = &import->call.err;
    int crowded, result = memory_time_known(&s->base, err);
    for (size_t i = 0; i < import->n && result >= 0; i++) {
        result = import_user(s, import->snapshots[i], NULL, &crowded, err);
        import->verdicts[i] = (uint8_t)(result > 0 ? result : 0);
        arena_reset(&s->arena);
    }
    import->call.done(&import->call);
}
