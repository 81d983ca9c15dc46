/* Batches and forgets. A batch is taken as a whole: all memory is had first, then nothing can fail. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/memory/memory.h"

/* --- a batch --- */

/* Items of its deliveries, in its order, and how many count of a user's (delivered_max). */
struct copies {
    struct slice *items;
    size_t n, taken, most;
};

static int copy_items(struct memory_store *s, const struct store_event *event, struct copies *copies)
{
    const uint8_t *at = event->items;
    for (uint32_t i = 0; i < event->n; i++) {
        struct store_item item;
        at = store_event_item(event, at, &item);
        char *copy = memory_resize(s, NULL, 0, item.id.len, false);
        if (copy == NULL) {
            return ERR_NOMEM;
        }
        memcpy(copy, item.id.data, item.id.len);
        copies->items[copies->n++] = slice_of(copy, item.id.len);
    }
    return 0;
}

/* No more are ever there than count. */
static int promise_deliveries(struct memory_store *s, struct memory_user *u, size_t n, size_t most)
{
    size_t want = u->n_deliveries + u->promised_deliveries + n;
    u->promised_deliveries += n;
    want = want < most * DELIVERED_TIMES ? want : most * DELIVERED_TIMES;
    if (want > u->cap_deliveries) {
        struct store_delivery *now =
            memory_resize(s, u->deliveries, u->cap_deliveries * sizeof *now, want * sizeof *now, false);
        if (now == NULL) {
            return ERR_NOMEM;
        }
        u->deliveries = now;
        u->cap_deliveries = want;
    }
    return delivered_reserve(&s->united, u->n_deliveries + u->promised_deliveries);
}

static bool is_kept(const struct store_event *event, int first_kept)
{
    return event->n > 0 && month_of_ms(event->at_ms) >= first_kept;
}

static int promise(struct memory_store *s, const struct store_batch *batch, int first_kept, struct copies *copies)
{
    struct store_event event;
    size_t at = 0;
    int result = s->bytes < memory_limit(s) ? 0 : ERR_NOMEM;
    while (result == 0 && store_batch_next(batch, &at, &event)) {
        if (!is_kept(&event, first_kept)) {
            continue;
        }
        struct memory_user *u = memory_make(s, event.key, event.user);
        if (u == NULL) {
            result = ERR_NOMEM;
        } else if (event.kind == STORE_PLAY) {
            result = memory_promise_plays(s, u, event.n);
        } else {
            result = promise_deliveries(s, u, event.n, copies->most);
            result = result < 0 ? result : copy_items(s, &event, copies);
        }
    }
    return result;
}

/* Users that were made for it stay, empty, until they expire. */
static void take_back(struct memory_store *s, const struct store_batch *batch, struct copies *copies)
{
    struct store_event event;
    size_t at = 0;
    while (store_batch_next(batch, &at, &event)) {
        struct memory_user *u = memory_find(s, event.key, event.user);
        if (u != NULL) {
            u->promised = u->promised_deliveries = 0;
        }
    }
    for (size_t i = 0; i < copies->n; i++) {
        memory_resize(s, (void *)(uintptr_t)copies->items[i].data, copies->items[i].len, 0, true);
    }
}

static void drop_gone(struct memory_store *s, const struct delivered *stays, const struct store_delivery *d)
{
    if (!delivered_has(stays, d)) {
        memory_resize(s, (void *)(uintptr_t)d->item.data, d->item.len, 0, true);
    }
}

/* As the user's list has room for, and `united` for all of them. */
static void add_deliveries(struct memory_store *s, struct memory_user *u, const struct store_event *event,
                           struct copies *copies)
{
    struct delivered *all = &s->united;
    const struct slice *items = copies->items + copies->taken;
    const uint64_t first = s->subs;
    const uint8_t *next = event->items;
    all->n = 0;
    delivered_add(all, u->deliveries, u->n_deliveries);
    for (uint32_t i = 0; i < event->n; i++) {
        struct store_item item;
        next = store_event_item(event, next, &item);
        const struct store_delivery one = {.stamp = delivered_stamp(event->at_ms, s->subs++),
                                           .hash = item.hash,
                                           .item = items[i],
                                           .group = item.group};
        delivered_add(all, &one, 1);
    }
    delivered_unite(all, copies->most);
    for (size_t i = 0; i < u->n_deliveries; i++) {
        drop_gone(s, all, &u->deliveries[i]);
    }
    next = event->items;
    for (uint32_t i = 0; i < event->n; i++) {
        struct store_item item;
        next = store_event_item(event, next, &item);
        drop_gone(s, all,
                  &(struct store_delivery){.stamp = delivered_stamp(event->at_ms, first + i),
                                           .hash = item.hash,
                                           .item = items[i],
                                           .group = item.group});
    }
    s->stats.staged_rows += all->n - u->n_deliveries;
    memcpy(u->deliveries, all->list, all->n * sizeof *all->list);
    u->n_deliveries = all->n;
    u->promised_deliveries -= event->n;
    copies->taken += event->n;
}

static void add_plays(struct memory_store *s, struct memory_user *u, const struct store_event *event, int month)
{
    const uint8_t *next = event->items;
    for (uint32_t i = 0; i < event->n; i++) {
        struct store_item item;
        next = store_event_item(event, next, &item);
        memory_add_play(s, u, item.hash, month);
    }
}

static void apply(struct memory_store *s, const struct store_batch *batch, int first_kept, struct copies *copies)
{
    struct store_event event;
    size_t at = 0;
    while (store_batch_next(batch, &at, &event)) {
        if (!is_kept(&event, first_kept)) {
            s->stats.plays_too_old += event.n;
            continue;
        }
        struct memory_user *u = memory_find(s, event.key, event.user);
        int month = month_of_ms(event.at_ms);
        if (event.kind == STORE_PLAY) {
            add_plays(s, u, &event, month);
        } else {
            add_deliveries(s, u, &event, copies);
        }
        u->known = true;
        u->last_month = month > u->last_month ? month : u->last_month;
    }
}

void memory_record(struct memory_store *s, struct store_batch *batch)
{
    int first_kept = memory_first_kept(s);
    uint64_t dropped = tombstones_drop(s->tombstones, batch);
    struct copies copies = {.items = calloc(batch->rows + 1, sizeof(struct slice)),
                            .most = (size_t)config_now(s->cfg)->delivered_max};
    int result = memory_time_known(&s->base, &batch->err);
    if (result == 0 && (result = position_set_admit(s->positions, batch)) < 0) {
        free(copies.items);
        batch->done(batch);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    if (result == 0 && (copies.items == NULL || promise(s, batch, first_kept, &copies) < 0)) {
        result = memory_full(s, &batch->err);
        take_back(s, batch, &copies);
    }
    if (result == 0) {
        apply(s, batch, first_kept, &copies);
        position_set_move(s->positions, batch);
        s->stats.forgotten_dropped += dropped;
        s->stats.commits++;
        s->stats.rows_recorded += batch->rows;
    } else {
        s->stats.busy_refusals++;
    }
    pthread_mutex_unlock(&s->mutex);
    free(copies.items);
    batch->done(batch);
}

/* --- a forget --- */

/* Whatever else the store refuses: beyond staging_memory, too. */
static int add_exception(struct memory_store *s, struct memory_user *u, uint64_t hash)
{
    size_t size = u->n_exceptions * sizeof *u->exceptions;
    uint64_t *now = memory_resize(s, u->exceptions, size, size + sizeof *now, true);
    if (now == NULL) {
        return ERR_NOMEM;
    }
    u->exceptions = now;
    u->exceptions[u->n_exceptions++] = hash;
    return 0;
}

/* Marks in seen[] what is in the window by its exact hash, and takes all of it out. */
static void drop_exact(struct memory_store *s, struct memory_user *u, const struct store_forget *forget,
                       const uint64_t *hashes, size_t n, bool *seen)
{
    size_t kept = 0;
    for (size_t i = 0; i < u->n_plays; i++) {
        size_t at = hash_place(hashes, n, u->plays[i].hash);
        if (at == n) {
            u->plays[kept++] = u->plays[i];
        } else {
            seen[at] |= u->plays[i].month >= forget->first_month;
        }
    }
    s->stats.staged_rows -= u->n_plays - kept;
    u->n_plays = kept;
    for (size_t i = u->n_deliveries; i-- > 0;) {
        size_t at = hash_place(hashes, n, u->deliveries[i].hash);
        if (at < n) {
            seen[at] = true;
            memory_drop_delivery(s, u, i);
        }
    }
    struct delivered left = {.list = u->deliveries, .n = u->n_deliveries};
    delivered_unite(&left, DELIVERED_MAX);
}

static int forget_items(struct memory_store *s, struct memory_user *u, struct store_forget *forget)
{
    uint64_t *hashes = calloc(forget->n_items, sizeof *hashes + sizeof(bool));
    bool *seen = (bool *)(hashes + forget->n_items);
    if (hashes == NULL) {
        return err_set(&forget->err, ERR_NOMEM, "out of memory while forgetting");
    }
    memcpy(hashes, forget->hashes, forget->n_items * sizeof *hashes);
    size_t n = hash_distinct(hashes, forget->n_items);
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++) {
        if (u->n_months > 0 && !memory_excepted(u, hashes[i]) && memory_filtered(u, hashes[i], INT_MIN)) {
            seen[i] = memory_filtered(u, hashes[i], forget->first_month);
            result = add_exception(s, u, hashes[i]);
        }
    }
    if (result == 0) {
        drop_exact(s, u, forget, hashes, n, seen);
    }
    for (size_t i = 0; i < n; i++) {
        forget->answer += seen[i];
    }
    s->stats.items_forgotten += (uint64_t)forget->answer;
    free(hashes);
    return result < 0 ? err_set(&forget->err, result, "out of memory while forgetting") : 0;
}

static void add_tombstones(struct memory_store *s, const struct store_forget *forget)
{
    int64_t later, earlier;
    memory_now(&s->base, &later, &earlier);
    struct tombstone t = {.key = forget->key, .item = TOMBSTONE_USER, .at_ms = later};
    if (forget->n_items == 0) {
        tombstones_put(s->tombstones, &t);
    }
    for (size_t i = 0; i < forget->n_items; i++) {
        t.item = tombstone_item(forget->hashes[i]);
        tombstones_put(s->tombstones, &t);
    }
    s->stats.tombstones = tombstones_count(s->tombstones);
}

void memory_forget(struct memory_store *s, struct store_forget *forget)
{
    forget->err = (struct err){0};
    forget->answer = 0;
    if (tombstones_reserve(s->tombstones, forget->n_items + 1) < 0) {
        err_set(&forget->err, ERR_NOMEM, "out of memory while forgetting");
        forget->done(forget);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    struct memory_user *u = memory_find(s, forget->key, forget->user);
    if (u != NULL && u->n_damaged > 0 && forget->n_items > 0 && config_now(s->cfg)->on_damage == DAMAGE_ERROR) {
        err_set(&forget->err, ERR_CORRUPT, "user %s came with a mark of damage", log_quote(forget->user));
    } else if (u != NULL && forget->n_items > 0) {
        forget_items(s, u, forget);
    } else if (u != NULL) {
        forget->answer = u->known;
        s->stats.users_forgotten += u->known;
        memory_drop(s, u);
    }
    if (forget->err.code == 0) {
        add_tombstones(s, forget);
    }
    pthread_mutex_unlock(&s->mutex);
    forget->done(forget);
}
