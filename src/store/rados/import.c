/* Users that another store has packed. A user is read as a whole, united in memory with what comes, and written under
 * the version that was read, so that no play comes in between: an import may begin and end exceptions.
 *
 * Filters are united month by month into one part each. What was staged there are plays here, to be merged as others
 * are. An item is un-seen only where it was forgotten: an exception from there is not taken over when a filter or a
 * play here shows the item, and one from here ends when a filter or a play there does. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/error_budget.h"
#include "store/codec/user_snapshot.h"
#include "store/rados/gathered.h"
#include "store/rados/rados.h"

enum { AT_ONCE = 16 };

/* A call, whose users are imported some at a time. */
struct call {
    struct rados_store *s;
    struct store_import *import;
    pthread_mutex_t mutex;
    size_t next, under_way;
    struct err err; /* the first */
};

struct part {
    int month;
    struct filter filter;
    bool united; /* it goes into another */
};

struct import {
    struct update update; /* first */
    struct writes_turn turn;
    struct call *call;
    size_t place; /* among the call's snapshots */

    /* Of a try: */
    struct gathered gathered;
    struct user_snapshot snapshot;
    struct filter *theirs; /* of the snapshot's months */
    struct part *ours;
    size_t n_ours; /* as the gathered parts */
    struct layout_part *directory;
    size_t n_directory;
    int first_kept, newest;
    double error; /* of the window, afterwards */
    int verdict;
    size_t keys;
    uint8_t len;
    char user[255];
};

static struct import *import_of(struct update *u)
{
    return (struct import *)u;
}

static void *get(struct import *m, size_t n, size_t size)
{
    return arena_alloc(&m->update.arena, n * size + 1);
}

static void again(struct update *u)
{
    struct import *m = import_of(u);
    gathered_begin(&m->gathered, &u->arena, 0);
    m->error = 0;
    m->verdict = 0;
    m->keys = m->n_directory = 0;
}

static int take(struct update *u, const struct layout_key *key, struct slice value)
{
    return gathered_take(&import_of(u)->gathered, u->user, key, value, &u->err);
}

/* --- what comes --- */

static int check_times(struct import *m)
{
    const struct user_snapshot *in = &m->snapshot;
    struct update *u = &m->update;
    int64_t later, earlier;
    m->newest = in->last_month;
    for (size_t i = 0; i < in->n_months; i++) {
        m->newest = in->months[i].month > m->newest ? in->months[i].month : m->newest;
    }
    for (size_t i = 0; i < in->n_plays; i++) {
        m->newest = in->plays[i].month > m->newest ? in->plays[i].month : m->newest;
    }
    guarded_clock_now(&u->s->clock, &later, &earlier);
    if (in->forgotten_ms > later + USER_SNAPSHOT_AHEAD_MS) {
        return err_set(&u->err, ERR_RANGE, "user %s was forgotten at a time that lies ahead", log_quote(in->user));
    }
    if (m->newest > month_of_ms(later) + 1) {
        char name[MONTH_TEXT];
        return err_set(&u->err, ERR_RANGE, "user %s has something in %s, which lies ahead", log_quote(in->user),
                       month_name(m->newest, name));
    }
    return 0;
}

static int decode(struct import *m, struct slice blob, struct filter *out)
{
    struct err why;
    int result = filter_decode(blob.data, blob.len, &m->update.arena, out, &why);
    return result < 0 ? err_set(&m->update.err, result, "user %s: %s", log_quote(m->update.user), why.text) : 0;
}

static int read_snapshot(struct import *m)
{
    struct update *u = &m->update;
    struct user_snapshot *in = &m->snapshot;
    struct slice bytes = m->call->import->snapshots[m->place];
    int result = user_snapshot_decode(bytes.data, bytes.len, &u->arena, in, &u->err);
    if (result < 0) {
        return result;
    }
    user_snapshot_forget(in, rados_store_forgotten(u->s, m->gathered.forgotten_ms));
    if ((result = check_times(m)) < 0) {
        return result;
    }
    m->theirs = get(m, in->n_months, sizeof *m->theirs);
    if (m->theirs == NULL) {
        return update_nomem(u);
    }
    for (size_t i = 0; i < in->n_months && result == 0; i++) {
        result = decode(m, in->months[i].blob, &m->theirs[i]);
    }
    return result;
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
        m->ours[i] = (struct part){.month = g->parts[i].month};
        result = decode(m, g->parts[i].blob, &m->ours[i].filter);
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

static uint16_t free_number(const struct import *m, int month)
{
    uint16_t n = 0;
    for (size_t i = 0; i < m->n_ours; i++) {
        const struct gathered_part *p = &m->gathered.parts[i];
        n = p->month == month && p->part >= n ? (uint16_t)(p->part + 1) : n;
    }
    return n;
}

static int put_month(struct import *m, int month, const struct filter *filter)
{
    struct update *u = &m->update;
    struct buf blob = {0};
    struct layout_part part = {.month = month,
                               .part = free_number(m, month),
                               .items = (uint32_t)filter_items(filter),
                               .sealed = filter_sealed(filter)};
    for (unsigned i = 0; i < filter->n_parts; i++) {
        const struct filter_part *p = &filter->parts[i];
        part.coarse = part.coarse || p->coarse;
        part.live += !p->coarse && !p->fine && filter_part_live(p) ? p->n : 0;
    }
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
    if (result < 0) {
        return result == ERR_FULL ? IMPORT_CROWDED : update_nomem(&m->update);
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
        int month = in->months[i].month;
        result = month < m->first_kept ? 0 : unite_month(m, month, &m->theirs[i]);
    }
    for (size_t i = 0; i < m->n_ours; i++) {
        const struct part *p = &m->ours[i];
        m->error += !p->united && is_in_window(m, p->month) ? filter_error(&p->filter) : 0;
    }
    return result;
}

/* --- exceptions --- */

static bool is_played(const struct store_play *plays, size_t n, uint64_t hash, int first_kept)
{
    for (size_t i = 0; i < n; i++) {
        if (plays[i].hash == hash && plays[i].month >= first_kept) {
            return true;
        }
    }
    return false;
}

static bool shown_there(const struct import *m, uint64_t hash)
{
    const struct user_snapshot *in = &m->snapshot;
    for (size_t i = 0; i < in->n_months; i++) {
        if (in->months[i].month >= m->first_kept && filter_has(&m->theirs[i], hash)) {
            return true;
        }
    }
    return false;
}

static bool shown_here(const struct import *m, uint64_t hash)
{
    for (size_t i = 0; i < m->n_ours; i++) {
        if (m->ours[i].month >= m->first_kept && filter_has(&m->ours[i].filter, hash)) {
            return true;
        }
    }
    return is_played(m->gathered.plays, m->gathered.n_plays, hash, m->first_kept);
}

static int unite_exceptions(struct import *m)
{
    const struct user_snapshot *in = &m->snapshot;
    const struct gathered *g = &m->gathered;
    struct update *u = &m->update;
    int result = 0;
    for (size_t i = 0; i < g->n_exceptions && result == 0; i++) {
        uint64_t hash = g->exceptions[i];
        bool ends = is_played(in->plays, in->n_plays, hash, m->first_kept) ||
                    (!hash_is_among(in->exceptions, in->n_exceptions, hash) && shown_there(m, hash));
        if (ends) {
            result = update_remove(u, &(struct layout_key){.kind = LAYOUT_EXCEPTION, .hash = hash});
        }
    }
    for (size_t i = 0; i < in->n_exceptions && result == 0; i++) {
        uint64_t hash = in->exceptions[i];
        if (!hash_is_among(g->exceptions, g->n_exceptions, hash) && !shown_here(m, hash) &&
            !is_played(in->plays, in->n_plays, hash, m->first_kept)) {
            result = update_set(u, &(struct layout_key){.kind = LAYOUT_EXCEPTION, .hash = hash}, slice_of("", 0));
        }
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
        if (p->month >= m->first_kept) {
            const struct layout_key key = {.kind = LAYOUT_PLAY, .month = p->month, .hash = p->hash};
            result = update_set(&m->update, &key, slice_of(value, sizeof value));
            m->keys++;
        }
    }
    return result;
}

static bool is_ours(const struct gathered *g, const struct store_delivery *d)
{
    for (size_t i = 0; i < g->n_deliveries; i++) {
        if (g->deliveries[i].id == d->id && g->deliveries[i].hash == d->hash) {
            return true;
        }
    }
    return false;
}

static int put_deliveries(struct import *m, const struct store_delivery *all, size_t n)
{
    const struct gathered *g = &m->gathered;
    struct update *u = &m->update;
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++) {
        char value[LAYOUT_DELIVERY_VALUE];
        if (!is_ours(g, &all[i])) {
            size_t len = layout_delivery_write(m->newest, all[i].item, value);
            const struct layout_key key = {.kind = LAYOUT_DELIVERY, .stamp = all[i].id, .hash = all[i].hash};
            result = update_set(u, &key, slice_of(value, len));
            m->keys++;
        }
    }
    for (size_t i = 0; i < g->n_deliveries && result == 0; i++) {
        const struct store_delivery *d = &g->deliveries[i];
        bool stays = false;
        for (size_t j = 0; j < n && !stays; j++) {
            stays = all[j].id == d->id && all[j].hash == d->hash;
        }
        if (!stays) {
            result = update_remove(u, &(struct layout_key){.kind = LAYOUT_DELIVERY, .stamp = d->id, .hash = d->hash});
        }
    }
    return result;
}

static int unite_deliveries(struct import *m)
{
    struct rados_store *s = m->update.s;
    const struct gathered *g = &m->gathered;
    struct slice blob = m->snapshot.deliveries;
    struct store_delivery *theirs = NULL;
    struct err why = {0};
    size_t n = 0, max = (size_t)config_now(s->cfg)->delivered_max;
    if (blob.len == 0 || m->snapshot.last_month < m->first_kept) {
        return 0;
    }
    int result = delivered_decode(&s->codec, blob.data, blob.len, s->seed, &m->update.arena, &theirs, &n, &why);
    if (result < 0) {
        return err_set(&m->update.err, result, "user %s: %s", log_quote(m->update.user), why.text);
    }
    struct store_delivery *ours = get(m, g->n_deliveries, sizeof *ours);
    struct store_delivery *all = get(m, g->n_deliveries + n, sizeof *all);
    if (ours == NULL || all == NULL) {
        return update_nomem(&m->update);
    }
    if (g->n_deliveries > 0) {
        memcpy(ours, g->deliveries, g->n_deliveries * sizeof *ours);
    }
    size_t n_ours = delivered_last(ours, g->n_deliveries, max);
    delivered_rank(ours, n_ours, theirs, n, all);
    return put_deliveries(m, all, delivered_last(all, n_ours + n, max));
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

static int put_tombstone(struct import *m)
{
    char value[LAYOUT_HEX];
    int64_t ms = m->snapshot.forgotten_ms;
    if (ms <= 0 || ms <= m->gathered.forgotten_ms) {
        return 0;
    }
    layout_hex((uint64_t)ms, value);
    if (m->gathered.forgotten_ms == INT64_MIN) {
        RADOS_COUNT(m->update.s, tombstones, 1);
    }
    return update_set(&m->update, &(struct layout_key){.kind = LAYOUT_FORGOTTEN}, slice_of(value, sizeof value));
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

static int plan(struct update *u)
{
    struct import *m = import_of(u);
    m->first_kept = guarded_clock_first_kept(&u->s->clock);
    int result = read_snapshot(m);
    result = result < 0 ? result : put_tombstone(m);
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

/* --- a call --- */

static void go_on(struct call *c);

static void one_done(struct call *c, const struct err *err)
{
    pthread_mutex_lock(&c->mutex);
    if (err->code < 0 && c->err.code == 0) {
        c->err = *err;
    }
    pthread_mutex_unlock(&c->mutex);
    go_on(c);
}

static void on_done(struct update *u)
{
    struct import *m = import_of(u);
    struct rados_store *s = u->s;
    struct call *c = m->call;
    struct err err = u->err;
    int64_t key = u->key;
    char name[255];
    struct slice user = slice_of(name, m->len);
    memcpy(name, m->user, m->len);
    c->import->verdicts[m->place] = (uint8_t)(err.code < 0 ? 0 : m->verdict);
    if (err.code == 0) {
        RADOS_COUNT(s, staged_rows, m->keys);
    }
    update_destroy(u);
    free(m);
    writes_end_turn(s, key, user);
    one_done(c, &err);
}

static void start(struct writes_turn *turn)
{
    struct import *m = (struct import *)((char *)turn - offsetof(struct import, turn));
    update_start(&m->update);
}

/* Whose it is has to be known before it is read. */
static int begin_user(struct call *c, size_t place, struct err *err)
{
    static const struct slice directory[] = {{"w", 1}};
    struct rados_store *s = c->s;
    struct slice bytes = c->import->snapshots[place];
    struct arena arena = {0};
    struct user_snapshot in;
    struct import *m = calloc(1, sizeof *m);
    int result = m == NULL ? err_set(err, ERR_NOMEM, "out of memory while joining users")
                           : user_snapshot_decode(bytes.data, bytes.len, &arena, &in, err);
    if (result == 0 && in.key != hash_user_key(s->seed, in.user)) {
        result = err_set(err, ERR_SEED, "user %s was packed in a store with another seed", log_quote(in.user));
    }
    if (result == 0 && in.migration_state) {
        result = store_lacks(&s->base, "users who are still to come from another Redis", err);
    }
    if (result == 0) {
        m->call = c;
        m->place = place;
        m->len = (uint8_t)in.user.len;
        memcpy(m->user, in.user.data, in.user.len);
        m->turn.start = start;
        struct update *u = &m->update;
        update_init(u, s, in.key, slice_of(m->user, m->len));
        u->guard = UPDATE_BY_VERSION;
        u->heavy = true;
        u->again = again;
        u->take = take;
        u->plan = plan;
        u->done = on_done;
        u->fetch.ranges = gathered_ranges;
        u->fetch.n_ranges = GATHERED_RANGES;
        u->fetch.keys = directory;
        u->fetch.n_keys = 1;
        if (writes_take_turn(s, u->key, u->user, &m->turn) < 0) {
            update_destroy(u);
            result = err_set(err, ERR_NOMEM, "out of memory while joining users");
        }
    }
    arena_free(&arena);
    if (result < 0) {
        free(m);
    }
    return result;
}

/* Begins what may be under way besides. Whoever calls it is counted in under_way until its end; the last one ends the
 * call. */
static void go_on(struct call *c)
{
    pthread_mutex_lock(&c->mutex);
    while (c->err.code == 0 && c->next < c->import->n && c->under_way <= AT_ONCE) {
        size_t place = c->next++;
        c->under_way++;
        pthread_mutex_unlock(&c->mutex);
        struct err err = {0};
        int result = begin_user(c, place, &err);
        pthread_mutex_lock(&c->mutex);
        if (result < 0) {
            c->under_way--;
            c->err = c->err.code == 0 ? err : c->err;
        }
    }
    bool over = --c->under_way == 0;
    pthread_mutex_unlock(&c->mutex);
    if (over) {
        struct rados_store *s = c->s;
        struct store_import *import = c->import;
        import->call.err = c->err;
        pthread_mutex_destroy(&c->mutex);
        free(c);
        rados_store_post(s, &import->call.message, RADOS_CALL);
    }
}

void rados_import(struct store *base, struct store_import *import)
{
    struct rados_store *s = rados_of(base);
    struct call *c = calloc(1, sizeof *c);
    import->call.err = (struct err){0};
    memset(import->verdicts, 0, import->n);
    if (c == NULL) {
        err_set(&import->call.err, ERR_NOMEM, "out of memory while joining users");
    } else if (guarded_clock_known(&s->clock, &import->call.err) < 0) {
        free(c);
        c = NULL;
    }
    if (c == NULL) {
        rados_store_post(s, &import->call.message, RADOS_CALL);
        return;
    }
    c->s = s;
    c->import = import;
    c->under_way = 1;
    pthread_mutex_init(&c->mutex, NULL);
    go_on(c);
}
