/* What a user becomes who comes from another store: see import.c. */
#include <stdlib.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/error_budget.h"
#include "store/rados/import_impl.h"
#include "store/user/exceptions.h"
#include "store/user/parcel.h"

static struct import *import_of(struct update *u)
{
    return (struct import *)u;
}

static void *get(struct import *m, size_t n, size_t size)
{
    return arena_alloc(&m->update.arena, n * size + 1);
}

/* --- what comes --- */

static int read_snapshot(struct import *m)
{
    struct update *u = &m->update;
    struct user_snapshot *in = &m->snapshot;
    const struct store_merge *as = m->call->as;
    const int64_t forgotten_ms = as != NULL ? INT64_MIN : rados_store_forgotten(u->s, m->gathered.forgotten_ms);
    int64_t later, earlier;
    int result = parcel_open(m->call->import->snapshots[m->place], u->s->seed, &u->arena, in, &u->err);
    if (result < 0) {
        return result;
    }
    if (as != NULL) {
        in->key = as->into_key;
        in->user = as->into;
    } else if (m->gathered.forgotten_damaged) {
        return err_set(&u->err, ERR_CORRUPT, "user %s: it can't be read when they were forgotten", log_quote(u->user));
    }
    guarded_clock_now(&u->s->clock, &later, &earlier);
    result = parcel_admit(in, forgotten_ms, later, m->first_kept, &u->arena, &m->newest, &u->err);
    return result < 0 ? result : parcel_months(in, &u->arena, &m->theirs, &u->err);
}

static int read_ours(struct import *m)
{
    const struct gathered *g = &m->gathered;
    int n = layout_directory_count(g->directory), result = 0;
    if (n < 0) {
        return err_set(&m->update.err, ERR_CORRUPT, "user %s: the directory of the filters is damaged",
                       log_quote(m->update.user));
    }
    m->n_ours = g->n_parts;
    m->ours = get(m, g->n_parts, sizeof *m->ours);
    m->directory = get(m, (size_t)n + m->snapshot.n_months, sizeof *m->directory);
    if (m->ours == NULL || m->directory == NULL) {
        return update_nomem(&m->update);
    }
    for (size_t i = 0; i < g->n_parts && result == 0; i++) {
        m->ours[i] = (struct import_part){.month = g->parts[i].month};
        struct slice blob = g->parts[i].blob;
        struct err why;
        result = filter_decode(blob.data, blob.len, &m->update.arena, &m->ours[i].filter, &why);
        if (result < 0) {
            err_set(&m->update.err, result, "user %s: %s", log_quote(m->update.user), why.text);
        }
    }
    for (int i = 0; i < n; i++) {
        m->directory[m->n_directory++] = layout_directory_part(g->directory, (size_t)i);
    }
    return result;
}

/* --- months --- */

static void drop_from_directory(struct import *m, int month, uint16_t part)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->n_directory; i++) {
        if (m->directory[i].month != month || m->directory[i].part != part) {
            m->directory[kept++] = m->directory[i];
        }
    }
    m->n_directory = kept;
}

/* Not one of the parts that go, too: what is set is written before what is removed. */
static uint16_t free_number(const struct import *m, int month)
{
    uint16_t n = 0;
    for (bool taken = true; taken; n = (uint16_t)(n + taken)) {
        taken = false;
        for (size_t i = 0; i < m->n_ours && !taken; i++) {
            taken = m->gathered.parts[i].month == month && m->gathered.parts[i].part == n;
        }
    }
    return n;
}

static int put_month(struct import *m, int month, const struct filter *filter)
{
    struct update *u = &m->update;
    struct buf blob = {0};
    struct layout_part part = layout_part_of(filter, month, free_number(m, month));
    int result = filter_encode(filter, &blob) < 0 ? update_nomem(u) : 0;
    if (result == 0) {
        part.bytes = (uint32_t)blob.len;
        result = update_set(u, &(struct layout_key){.kind = LAYOUT_FILTER, .month = month, .part = part.part},
                            buf_slice(&blob));
    }
    buf_free(&blob);
    for (size_t i = 0; i < m->n_ours && result == 0; i++) {
        const struct gathered_part *p = &m->gathered.parts[i];
        if (p->month == month) {
            result = update_remove(u, &(struct layout_key){.kind = LAYOUT_FILTER, .month = month, .part = p->part});
            drop_from_directory(m, month, p->part);
            m->ours[i].united = true;
        }
    }
    m->directory[m->n_directory++] = part;
    return result;
}

static bool is_in_window(const struct import *m, int month)
{
    int64_t later, earlier;
    guarded_clock_now(&m->update.s->clock, &later, &earlier);
    return month >= month_of_ms(earlier) - (int)config_now(m->update.s->cfg)->window;
}

/* 0, IMPORT_CROWDED, or an error. */
static int unite_month(struct import *m, int month, const struct filter *theirs)
{
    struct arena *arena = &m->update.arena;
    uint32_t coarse_max = error_budget_coarse_max(m->update.s->error_rate);
    struct filter filter = {0};
    int result = 0;
    for (size_t i = 0; i < m->n_ours && result == 0; i++) {
        if (m->ours[i].month == month) {
            result = filter_join(&filter, &m->ours[i].filter, coarse_max, arena);
        }
    }
    result = result < 0 ? result : filter_join(&filter, theirs, coarse_max, arena);
    if (result == ERR_FULL) {
        m->crowded = month;
        return IMPORT_CROWDED;
    }
    if (result < 0) {
        return update_nomem(&m->update);
    }
    if (filter_items(&filter) == 0) {
        return 0;
    }
    m->error += is_in_window(m, month) ? filter_error(&filter) : 0;
    return put_month(m, month, &filter);
}

static int unite_months(struct import *m)
{
    const struct user_snapshot *in = &m->snapshot;
    int result = 0;
    for (size_t i = 0; i < in->n_months && result == 0; i++) {
        result = unite_month(m, in->months[i].month, &m->theirs[i]);
    }
    for (size_t i = 0; i < m->n_ours; i++) {
        const struct import_part *p = &m->ours[i];
        m->error += !p->united && is_in_window(m, p->month) ? filter_error(&p->filter) : 0;
    }
    return result;
}

/* --- exceptions --- */

static int unite_exceptions(struct import *m)
{
    const struct user_snapshot *in = &m->snapshot;
    const struct gathered *g = &m->gathered;
    struct update *u = &m->update;
    struct exceptions x;
    int result = exceptions_begin(&x, g->exceptions, g->n_exceptions, in->exceptions, in->n_exceptions, &u->arena);
    if (result < 0) {
        return update_nomem(u);
    }
    exceptions_played(&x, in->plays, in->n_plays, m->first_kept, true);
    exceptions_played(&x, g->plays, g->n_plays, m->first_kept, false);
    for (size_t i = 0; i < in->n_months; i++) {
        exceptions_shown_there(&x, &m->theirs[i]);
    }
    for (size_t i = 0; i < m->n_ours; i++) {
        if (m->ours[i].month >= m->first_kept) {
            exceptions_shown_here(&x, &m->ours[i].filter);
        }
    }
    for (size_t i = 0; i < x.n_here && result == 0; i++) {
        const struct layout_key key = {.kind = LAYOUT_EXCEPTION, .hash = x.here[i]};
        result = x.ends[i] ? update_remove(u, &key) : 0;
    }
    for (size_t i = 0; i < x.n_there && result == 0; i++) {
        const struct layout_key key = {.kind = LAYOUT_EXCEPTION, .hash = x.there[i]};
        result = x.comes[i] ? update_set(u, &key, slice_of("", 0)) : 0;
    }
    return result;
}

/* --- the rest --- */

static int add_plays(struct import *m)
{
    const struct user_snapshot *in = &m->snapshot;
    char value[LAYOUT_HEX];
    int64_t later, earlier;
    int result = 0;
    guarded_clock_now(&m->update.s->clock, &later, &earlier);
    layout_hex((uint64_t)(later > 0 ? later : 0), value);
    for (size_t i = 0; i < in->n_plays && result == 0; i++) {
        const struct store_play *p = &in->plays[i];
        const struct layout_key key = {.kind = LAYOUT_PLAY, .month = p->month, .hash = p->hash};
        result = update_set(&m->update, &key, slice_of(value, sizeof value));
        m->keys++;
    }
    return result;
}

/* Its key is there, with the group of the other. */
static bool is_replaced(const struct delivered *by, const struct store_delivery *d)
{
    for (size_t i = 0; i < by->n; i++) {
        if (by->list[i].stamp == d->stamp && by->list[i].hash == d->hash) {
            return true;
        }
    }
    return false;
}

/* What lies there becomes what is to: only what differs is written. */
static int put_deliveries(struct import *m, const struct delivered *all)
{
    const struct gathered *g = &m->gathered;
    struct update *u = &m->update;
    struct delivered there;
    int result = gathered_last(g, DELIVERED_MAX, &there) < 0 ? update_nomem(u) : 0;
    for (size_t i = 0; i < all->n && result == 0; i++) {
        const struct store_delivery *d = &all->list[i];
        char value[LAYOUT_DELIVERY_VALUE];
        if (!delivered_has(&there, d)) {
            const struct layout_delivery of = {d->group, m->newest, d->item};
            size_t len = layout_delivery_write(&of, value);
            const struct layout_key key = {.kind = LAYOUT_DELIVERY, .stamp = d->stamp, .hash = d->hash};
            result = update_set(u, &key, slice_of(value, len));
            m->keys++;
        }
    }
    for (size_t i = 0; i < g->n_deliveries && result == 0; i++) {
        const struct store_delivery *d = &g->deliveries[i];
        if (!delivered_has(all, d) && !is_replaced(all, d)) {
            result =
                update_remove(u, &(struct layout_key){.kind = LAYOUT_DELIVERY, .stamp = d->stamp, .hash = d->hash});
        }
    }
    return result;
}

static int unite_deliveries(struct import *m)
{
    struct rados_store *s = m->update.s;
    struct slice blob = m->snapshot.deliveries;
    struct delivered theirs, all;
    struct err why = {0};
    const size_t max = (size_t)config_now(s->cfg)->delivered_max;
    if (blob.len == 0) {
        return 0;
    }
    int result = delivered_unpack(&s->codec, blob.data, blob.len, s->seed, &m->update.arena, &theirs, &why);
    if (result < 0) {
        return err_set(&m->update.err, result, "user %s: %s", log_quote(m->update.user), why.text);
    }
    if (gathered_last(&m->gathered, max, &all) < 0) {
        return update_nomem(&m->update);
    }
    if (delivered_add(&all, theirs.list, theirs.n) < 0) {
        return update_nomem(&m->update);
    }
    delivered_unite(&all, max);
    result = put_deliveries(m, &all);
    delivered_free(&all);
    return result;
}

static int mark_damage(struct import *m)
{
    const struct user_snapshot *in = &m->snapshot;
    int result = 0;
    for (size_t i = 0; i < in->n_damaged && result == 0; i++) {
        if (in->damaged[i] == 0 || in->damaged[i] >= m->first_kept) {
            result = update_set(&m->update, &(struct layout_key){.kind = LAYOUT_DAMAGED, .month = in->damaged[i]},
                                slice_of("", 0));
        }
    }
    return result;
}

/* before_ms: what is there; INT64_MIN: nothing. */
static int put_tombstone(struct import *m, const struct layout_key *key, int64_t ms, int64_t before_ms)
{
    char value[LAYOUT_HEX];
    if (ms <= 0 || ms <= before_ms) {
        return 0;
    }
    layout_hex((uint64_t)ms, value);
    if (before_ms == INT64_MIN) {
        RADOS_COUNT(m->update.s, tombstones, 1);
    }
    return update_set(&m->update, key, slice_of(value, sizeof value));
}

static int put_tombstones(struct import *m)
{
    const struct user_snapshot *in = &m->snapshot;
    const struct gathered *g = &m->gathered;
    int result = put_tombstone(m, &(struct layout_key){.kind = LAYOUT_FORGOTTEN}, in->forgotten_ms, g->forgotten_ms);
    for (size_t i = 0, at = 0; i < in->n_forgotten && result == 0; i++) {
        const struct snapshot_forgotten *f = &in->forgotten[i];
        while (at < g->n_forgotten && g->forgotten[at].item < f->item) {
            at++;
        }
        bool had = at < g->n_forgotten && g->forgotten[at].item == f->item;
        if (f->at_ms > g->forgotten_ms) {
            result = put_tombstone(m, &(struct layout_key){.kind = LAYOUT_FORGOTTEN, .item = true, .hash = f->item},
                                   f->at_ms, had ? g->forgotten[at].at_ms : INT64_MIN);
        }
    }
    return result;
}

static int put_directory(struct import *m)
{
    struct update *u = &m->update;
    struct buf value = {0};
    int result = layout_directory_write(m->directory, m->n_directory, &value) < 0 ? update_nomem(u) : 0;
    result = result < 0 ? result : update_set(u, &(struct layout_key){.kind = LAYOUT_DIRECTORY}, buf_slice(&value));
    buf_free(&value);
    return result < 0 ? result : update_generation(u);
}

static int read_filters(struct import *m)
{
    struct update *u = &m->update;
    u->fetch.n_keys = 0;
    u->fetch.ranges = gathered_filters;
    u->fetch.n_ranges = 1;
    int result = update_expect(u, layout_directory_sum(m->gathered.directory));
    return result < 0 ? result : UPDATE_READ;
}

int import_plan(struct update *u)
{
    struct import *m = import_of(u);
    if (!m->listed && update_existed(u)) {
        m->listed = true;
        return read_filters(m);
    }
    m->first_kept = guarded_clock_first_kept(&u->s->clock);
    int result = read_snapshot(m);
    result = result < 0 ? result : put_tombstones(m);
    if (result == 0 && m->newest < m->first_kept) {
        m->verdict = IMPORT_OLD;
        if (update_is_empty(u)) {
            return UPDATE_NOTHING;
        }
        result = update_generation(u);
        return result < 0 ? result : UPDATE_WRITE;
    }
    result = result < 0 ? result : read_ours(m);
    result = result < 0 ? result : unite_months(m);
    if (result == IMPORT_CROWDED) {
        m->verdict = IMPORT_CROWDED;
        return UPDATE_NOTHING;
    }
    result = result < 0 ? result : unite_exceptions(m);
    result = result < 0 ? result : unite_deliveries(m);
    result = result < 0 ? result : add_plays(m);
    result = result < 0 ? result : mark_damage(m);
    result = result < 0 ? result : put_directory(m);
    m->verdict = m->error > config_now(u->s->cfg)->error_rate ? IMPORT_OVER : IMPORT_DONE;
    return result < 0 ? result : UPDATE_WRITE;
}
