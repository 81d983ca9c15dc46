/* Tombstones in memory: a hash table with open addressing. Nothing is taken out one by one: what a user's forget ended
 * and what has expired goes when the table is made again. */
#include "store/tombstones.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { ROOM_FIRST = 64 };
#define NEVER INT64_MIN /* at_ms of a free place */

struct tombstones {
    pthread_mutex_t mutex; /* of all below */
    struct tombstone *at;
    size_t room; /* a power of two, or 0 */
    size_t n;
    int64_t oldest_ms;
    _Atomic bool any; /* false costs a batch one branch */
};

struct tombstones *tombstones_new(void)
{
    struct tombstones *t = calloc(1, sizeof *t);
    if (t != NULL) {
        pthread_mutex_init(&t->mutex, NULL);
        t->oldest_ms = INT64_MAX;
    }
    return t;
}

void tombstones_free(struct tombstones *t)
{
    if (t != NULL) {
        free(t->at);
        pthread_mutex_destroy(&t->mutex);
        free(t);
    }
}

/* The place of an entry, or the free one where it would stand. Users' keys and items' hashes are uniform already. */
static struct tombstone *place(const struct tombstones *t, int64_t key, uint64_t item)
{
    uint64_t h = ((uint64_t)key ^ item) * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = (size_t)(h >> 20);; i++) {
        struct tombstone *e = &t->at[i & (t->room - 1)];
        if (e->at_ms == NEVER || (e->key == key && e->item == item)) {
            return e;
        }
    }
}

static int64_t time_of(const struct tombstones *t, int64_t key, uint64_t item)
{
    return t->room == 0 ? NEVER : place(t, key, item)->at_ms;
}

/* Whether the user's own says as much. */
static bool is_ended(const struct tombstones *t, const struct tombstone *e)
{
    return e->item != TOMBSTONE_USER && time_of(t, e->key, TOMBSTONE_USER) >= e->at_ms;
}

/* Makes the table again with that much room, without what is before that time. */
static int make_anew(struct tombstones *t, size_t room, int64_t before_ms)
{
    struct tombstones now = {.room = room, .oldest_ms = INT64_MAX, .at = malloc(room * sizeof *now.at)};
    if (now.at == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < room; i++) {
        now.at[i].at_ms = NEVER;
    }
    for (size_t i = 0; i < t->room; i++) {
        const struct tombstone *e = &t->at[i];
        if (e->at_ms == NEVER || e->at_ms < before_ms || is_ended(t, e)) {
            continue;
        }
        *place(&now, e->key, e->item) = *e;
        now.n++;
        now.oldest_ms = e->at_ms < now.oldest_ms ? e->at_ms : now.oldest_ms;
    }
    free(t->at);
    t->at = now.at;
    t->room = room;
    t->n = now.n;
    t->oldest_ms = now.oldest_ms;
    atomic_store(&t->any, t->n > 0);
    return 0;
}

int tombstones_reserve(struct tombstones *t, size_t n)
{
    pthread_mutex_lock(&t->mutex);
    size_t room = t->room == 0 ? ROOM_FIRST : t->room;
    while ((t->n + n) > room / 4 * 3) {
        room *= 2;
    }
    int result = room == t->room ? 0 : make_anew(t, room, NEVER);
    pthread_mutex_unlock(&t->mutex);
    return result;
}

void tombstones_put(struct tombstones *t, const struct tombstone *tombstone)
{
    pthread_mutex_lock(&t->mutex);
    struct tombstone *e = place(t, tombstone->key, tombstone->item);
    struct tombstone before = *e;
    bool is_new = before.at_ms == NEVER;
    t->n += is_new;
    *e = *tombstone;
    e->at_ms = !is_new && before.at_ms > e->at_ms ? before.at_ms : e->at_ms;
    e->id = !is_new && before.id > e->id ? before.id : e->id;
    t->oldest_ms = e->at_ms < t->oldest_ms ? e->at_ms : t->oldest_ms;
    atomic_store(&t->any, true);
    pthread_mutex_unlock(&t->mutex);
}

void tombstones_until(struct tombstones *t, int64_t ms)
{
    pthread_mutex_lock(&t->mutex);
    for (size_t i = 0; i < t->room; i++) {
        t->at[i].at_ms = t->at[i].at_ms > ms ? ms : t->at[i].at_ms;
    }
    t->oldest_ms = t->oldest_ms != INT64_MAX && t->oldest_ms > ms ? ms : t->oldest_ms;
    pthread_mutex_unlock(&t->mutex);
}

int64_t tombstones_user_ms(struct tombstones *t, int64_t key)
{
    if (!atomic_load(&t->any)) {
        return NEVER;
    }
    pthread_mutex_lock(&t->mutex);
    int64_t at_ms = time_of(t, key, TOMBSTONE_USER);
    pthread_mutex_unlock(&t->mutex);
    return at_ms;
}

static int64_t item_ms(const struct tombstones *t, int64_t user_ms, int64_t key, uint64_t hash)
{
    int64_t at_ms = time_of(t, key, tombstone_item(hash));
    return at_ms > user_ms ? at_ms : user_ms;
}

int64_t tombstones_item_ms(struct tombstones *t, int64_t key, uint64_t hash)
{
    if (!atomic_load(&t->any)) {
        return NEVER;
    }
    pthread_mutex_lock(&t->mutex);
    int64_t at_ms = item_ms(t, time_of(t, key, TOMBSTONE_USER), key, hash);
    pthread_mutex_unlock(&t->mutex);
    return at_ms;
}

struct asked {
    const struct tombstones *t;
    int64_t key, user_ms; /* of the last event */
    bool any;
};

static bool is_older(void *arg, const struct store_event *event, uint64_t hash)
{
    struct asked *a = arg;
    if (event->time != STORE_STATED) {
        return false;
    }
    if (!a->any || a->key != event->key) {
        *a = (struct asked){a->t, event->key, time_of(a->t, event->key, TOMBSTONE_USER), true};
    }
    return event->at_ms <= item_ms(a->t, a->user_ms, event->key, hash);
}

uint64_t tombstones_drop(struct tombstones *t, struct store_batch *batch)
{
    if (!atomic_load(&t->any)) {
        return 0;
    }
    struct asked asked = {.t = t};
    pthread_mutex_lock(&t->mutex);
    uint64_t dropped = store_batch_drop(batch, is_older, &asked);
    pthread_mutex_unlock(&t->mutex);
    return dropped;
}

size_t tombstones_expire(struct tombstones *t, int64_t before_ms)
{
    pthread_mutex_lock(&t->mutex);
    size_t before = t->n;
    if (t->room > 0) {
        make_anew(t, t->room, before_ms); /* without memory they stay for a while */
    }
    size_t gone = before - t->n;
    pthread_mutex_unlock(&t->mutex);
    return gone;
}

bool tombstones_expired(struct tombstones *t, int64_t before_ms)
{
    pthread_mutex_lock(&t->mutex);
    bool expired = t->n > 0 && t->oldest_ms < before_ms;
    pthread_mutex_unlock(&t->mutex);
    return expired;
}

bool tombstones_at(struct tombstones *t, size_t *i, struct tombstone *out)
{
    for (; *i < t->room; ++*i) {
        if (t->at[*i].at_ms != NEVER && !is_ended(t, &t->at[*i])) {
            *out = t->at[(*i)++];
            return true;
        }
    }
    return false;
}

size_t tombstones_count(struct tombstones *t)
{
    pthread_mutex_lock(&t->mutex);
    size_t n = t->n;
    pthread_mutex_unlock(&t->mutex);
    return n;
}
