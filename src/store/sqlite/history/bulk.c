/* The bulk load: events are gathered in an index like a slot's, but without rows in staging.db, and the historian
 * merges it like a closed slot: sorted by user, with the barrier at the end. Two indexes take turns: one is filled
 * while the other is merged. A load that ends half-way is repeated: it is a union. In a running service the historian
 * merges it after the slots, and the loader says when to hand over.
 */
#include <stdlib.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "store/bulk.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

struct bulk {
    struct store_message message; /* to the historian */
    struct staged *filling;
    struct staged *merging; /* the historian's until `merged` */
    uint64_t next_id;
    struct staged_user *last; /* the entry of the last event: most are followed by more of the user */
    int month;                /* of the last event, from month_ms on, up to month_end_ms */
    int64_t month_ms, month_end_ms;
    bool serving;
    bool merged;    /* under store.bulk_mutex, like */
    struct err err; /* that of the merge */
};

struct staged *bulk_index(struct bulk *bulk)
{
    return bulk->merging;
}

bool bulk_serving(const struct bulk *bulk)
{
    return bulk->serving;
}

void bulk_merged(struct sqlite_store *s, const struct err *err)
{
    pthread_mutex_lock(&s->bulk_mutex);
    s->bulk->merged = true;
    if (err != NULL && s->bulk->err.code == 0) {
        s->bulk->err = *err;
    }
    pthread_cond_signal(&s->bulk_wake);
    pthread_mutex_unlock(&s->bulk_mutex);
}

void bulk_stop(struct store *base)
{
    struct sqlite_store *s = sqlite_store(base);
    pthread_mutex_lock(&s->bulk_mutex);
    s->bulk_stopped = true;
    pthread_cond_signal(&s->bulk_wake);
    pthread_mutex_unlock(&s->bulk_mutex);
}

static int closing(struct err *err)
{
    return err_set(err, ERR_CLOSED, "the store is closing");
}

static int renew(struct bulk *bulk, struct err *err)
{
    bulk->filling = staged_new(1);
    bulk->last = NULL;
    bulk->next_id = STORE_RANK_MAX + 1;
    return bulk->filling != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

int bulk_begin(struct store *base, bool serving, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    pthread_mutex_lock(&s->bulk_mutex);
    bool stopped = s->bulk_stopped;
    pthread_mutex_unlock(&s->bulk_mutex);
    if (stopped) {
        return closing(err);
    }
    if (s->bulk != NULL) {
        return err_set(err, ERR_BUSY, "a load is under way already; another may begin when it has ended");
    }
    int result = store_time_known(base, err);
    if (result < 0) {
        return result;
    }
    struct bulk *bulk = calloc(1, sizeof *bulk);
    if (bulk == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    bulk->merged = true;
    bulk->serving = serving;
    if ((result = renew(bulk, err)) < 0) {
        free(bulk);
        return result;
    }
    s->bulk = bulk;
    atomic_store(&s->loading, !serving);
    return 0;
}

int bulk_brings(struct sqlite_store *s, int64_t key, struct slice user)
{
    struct staged_ids ids = {0};
    pthread_mutex_lock(&s->bulk_mutex);
    int result = s->bulk_brings == NULL ? 0 : staged_find_user(s->bulk_brings, key, user, &ids);
    pthread_mutex_unlock(&s->bulk_mutex);
    bool any = ids.n > 0;
    staged_ids_free(&ids);
    return result < 0 ? result : any;
}

/* Waits for the merge under way. Returns its error, or ERR_CLOSED: then the historian may still have the index. */
static int wait_merged(struct sqlite_store *s, struct err *err)
{
    struct bulk *bulk = s->bulk;
    pthread_mutex_lock(&s->bulk_mutex);
    while (!bulk->merged && !s->bulk_stopped) {
        pthread_cond_wait(&s->bulk_wake, &s->bulk_mutex);
    }
    bool merged = bulk->merged;
    struct err result = bulk->err;
    pthread_mutex_unlock(&s->bulk_mutex);
    if (!merged) {
        return closing(err);
    }
    int code = result.code < 0 ? err_set(err, result.code, "%s", result.text) : 0;
    if (code == 0 && bulk->merging != NULL) {
        code = feed_loaded(s, bulk->merging, err);
    }
    pthread_mutex_lock(&s->bulk_mutex);
    s->bulk_brings = NULL;
    pthread_mutex_unlock(&s->bulk_mutex);
    staged_free(bulk->merging);
    bulk->merging = NULL;
    return code;
}

/* Hands what was gathered to the historian. */
static int hand_over(struct sqlite_store *s, struct bulk *bulk, struct err *err)
{
    int result = wait_merged(s, err);
    if (result < 0) {
        return result;
    }
    result = stager_disk_room(s, err);
    if (result < 0) {
        return result;
    }
    pthread_mutex_lock(&s->bulk_mutex);
    s->bulk_brings = bulk->filling;
    pthread_mutex_unlock(&s->bulk_mutex);
    bulk->merging = bulk->filling;
    bulk->merged = false;
    bulk->message.kind = STORE_INTERNAL;
    bulk->message.what = WANTS_MERGE;
    bulk->filling = NULL;
    thread_queue_put(&s->historian.queue, &bulk->message);
    return 0;
}

static int month_of(struct bulk *bulk, int64_t at_ms)
{
    if (at_ms < bulk->month_ms || at_ms >= bulk->month_end_ms) {
        bulk->month = month_of_ms(at_ms);
        bulk->month_ms = month_start_ms(bulk->month);
        bulk->month_end_ms = month_start_ms(bulk->month + 1);
    }
    return bulk->month;
}

/* The user's entry becomes bulk->last, if an event of the month can be taken. */
static int find_entry(struct bulk *bulk, int64_t at_ms, int month, int64_t key, struct slice user, struct err *err)
{
    if (bulk->filling == NULL) {
        return err_set(err, ERR_CLOSED, "the load has failed before");
    }
    if (!staged_fits(bulk->filling, bulk->next_id, month)) {
        return err_set(err, ERR_RANGE, "time %lld is outside the years that can be stored", (long long)at_ms);
    }
    if (bulk->last == NULL || !staged_is(bulk->last, key, user)) {
        bulk->last = staged_user(bulk->filling, key, user);
    }
    return bulk->last != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

/* All that is loaded has the time that its writer stated. A user who waits to be migrated was noted after a forget only
 * by an explicit wish (migration_users.c). */
static bool is_forgotten(struct sqlite_store *s, int64_t at_ms, int64_t key, uint64_t item_hash)
{
    bool older = at_ms <= tombstones_item_ms(s->tombstones, key, item_hash) &&
                 migration_users_of(&s->base, key) != MIGRATION_WAITING;
    COUNT(s, forgotten_dropped, older);
    return older;
}

int bulk_add(struct store *base, int64_t at_ms, int64_t key, struct slice user, uint64_t item_hash, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    struct bulk *bulk = s->bulk;
    if (is_forgotten(s, at_ms, key, item_hash)) {
        return 0;
    }
    int month = month_of(bulk, at_ms);
    int result = find_entry(bulk, at_ms, month, key, user, err);
    if (result < 0) {
        return result;
    }
    result = staged_add_play(bulk->filling, bulk->last, item_hash, month, bulk->next_id);
    if (result < 0) {
        return err_set(err, result, "out of memory");
    }
    bulk->next_id++;
    /* Two indexes share the memory of the staging ring. */
    if (bulk->serving || (int64_t)staged_bytes(bulk->filling) < config_now(s->cfg)->staging_memory / 2) {
        return 0;
    }
    return bulk_turn(base, err);
}

int bulk_deliver(struct store *base, int64_t at_ms, int64_t key, struct slice user, struct slice item,
                 uint64_t item_hash, uint64_t rank, struct err *err)
{
    struct bulk *bulk = sqlite_store(base)->bulk;
    if (is_forgotten(sqlite_store(base), at_ms, key, item_hash)) {
        return 0;
    }
    int month = month_of(bulk, at_ms);
    int result = find_entry(bulk, at_ms, month, key, user, err);
    if (result < 0) {
        return result;
    }
    result = staged_add_delivery(bulk->filling, bulk->last, &(struct store_item){item, item_hash, 0}, at_ms, rank);
    return result < 0 ? err_set(err, result, "out of memory") : 0;
}

size_t bulk_bytes(struct store *base)
{
    const struct bulk *bulk = sqlite_store(base)->bulk;
    return bulk->filling != NULL ? staged_bytes(bulk->filling) : 0;
}

int bulk_turn(struct store *base, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    struct bulk *bulk = s->bulk;
    if (bulk->filling == NULL) {
        return err_set(err, ERR_CLOSED, "the load has failed before");
    }
    if (staged_rows(bulk->filling) == 0) {
        return wait_merged(s, err);
    }
    int result = hand_over(s, bulk, err);
    return result < 0 ? result : renew(bulk, err);
}

void bulk_drop(struct sqlite_store *s)
{
    struct bulk *bulk = s->bulk;
    if (bulk == NULL) {
        return;
    }
    s->bulk = NULL;
    atomic_store(&s->loading, false);
    pthread_mutex_lock(&s->bulk_mutex);
    s->bulk_brings = NULL;
    pthread_mutex_unlock(&s->bulk_mutex);
    staged_free(bulk->filling);
    staged_free(bulk->merging);
    free(bulk);
}

int bulk_end(struct store *base, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    struct bulk *bulk = s->bulk;
    if (bulk == NULL) {
        return 0;
    }
    int result = 0;
    if (bulk->filling != NULL && staged_rows(bulk->filling) > 0) {
        result = hand_over(s, bulk, err);
    }
    int last = wait_merged(s, result < 0 ? NULL : err);
    if (last != ERR_CLOSED) { /* else the end of the store drops it */
        bulk_drop(s);
    }
    return result < 0 ? result : last;
}
