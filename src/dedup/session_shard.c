#include "dedup/session_shard.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"

enum {
    BUCKETS_MIN = 16,
    EXPIRE_BESIDE = 4, /* freed by each use of a shard */
    MALLOC_HEAD = 8,   /* bytes of glibc in front of each piece */
};

static void add_to(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void take_from(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_sub_explicit(counter, n, memory_order_relaxed);
}

static size_t weight(void *allocated)
{
    return malloc_usable_size(allocated) + MALLOC_HEAD;
}

int shard_init(struct session_shard *shard, uint64_t seed, struct session_totals *totals)
{
    *shard = (struct session_shard){.seed = seed, .totals = totals, .arena.block_size = 4096};
    pthread_mutex_init(&shard->lock, NULL);
    atomic_store(&shard->oldest_ms, INT64_MAX);
    shard->buckets = calloc(BUCKETS_MIN, sizeof(struct session_entry *));
    if (shard->buckets == NULL) {
        return ERR_NOMEM;
    }
    shard->n_buckets = BUCKETS_MIN;
    add_to(&totals->bytes, weight(shard->buckets));
    return 0;
}

void shard_free(struct session_shard *shard)
{
    for (struct use *use = shard->uses.newest, *older; use != NULL; use = older) {
        older = use->older;
        free(use); /* an entry's first member */
    }
    free(shard->buckets);
    arena_free(&shard->arena);
    buf_free(&shard->blob);
    pthread_mutex_destroy(&shard->lock);
}

struct slice session_name(const struct session_entry *e)
{
    return slice_of(e->bytes, e->name_len);
}

struct slice session_blob(const struct session_entry *e)
{
    return slice_of(e->bytes + e->name_len, e->blob_len);
}

uint64_t shard_hash(uint64_t seed, struct slice name)
{
    return hash_id(seed, name);
}

static struct session_entry **bucket_of(const struct session_shard *shard, uint64_t hash)
{
    return &shard->buckets[hash & (shard->n_buckets - 1)];
}

struct session_entry **shard_find(const struct session_shard *shard, uint64_t hash, struct slice name)
{
    struct session_entry **at = bucket_of(shard, hash);
    while (*at != NULL && !slice_eq(session_name(*at), name)) {
        at = &(*at)->next;
    }
    return at;
}

static void show_oldest(struct session_shard *shard)
{
    const struct session_entry *oldest = shard_oldest(shard);
    int64_t ms = oldest != NULL ? oldest->used_ms : INT64_MAX;
    atomic_store_explicit(&shard->oldest_ms, ms, memory_order_relaxed);
}

void shard_use(struct session_shard *shard, struct session_entry *e, int64_t now)
{
    uses_take(&shard->uses, &e->use);
    e->used_ms = now;
    uses_put(&shard->uses, &e->use);
    show_oldest(shard);
}

void shard_drop(struct session_shard *shard, struct session_entry **place)
{
    struct session_entry *e = *place;
    *place = e->next;
    uses_take(&shard->uses, &e->use);
    show_oldest(shard);
    shard->n--;
    take_from(&shard->totals->bytes, weight(e));
    take_from(&shard->totals->live, 1);
    free(e);
}

void shard_drop_oldest(struct session_shard *shard)
{
    struct slice name = session_name(shard_oldest(shard));
    shard_drop(shard, shard_find(shard, shard_hash(shard->seed, name), name));
}

static bool has_ended(const struct session_entry *e, int64_t now, int64_t ttl)
{
    return now - e->used_ms >= ttl;
}

bool shard_oldest_ended(const struct session_shard *shard, int64_t now, int64_t ttl)
{
    const struct session_entry *oldest = shard_oldest(shard);
    return oldest != NULL && has_ended(oldest, now, ttl);
}

void shard_expire(struct session_shard *shard, int64_t now, int64_t ttl, int most)
{
    int n = 0;
    while (n < most && shard_oldest_ended(shard, now, ttl)) {
        shard_drop_oldest(shard);
        n++;
    }
    add_to(&shard->totals->expired, (uint64_t)n);
}

struct session_entry **shard_find_live(struct session_shard *shard, uint64_t hash, struct slice name, int64_t now,
                                       int64_t ttl)
{
    shard_expire(shard, now, ttl, EXPIRE_BESIDE);
    struct session_entry **place = shard_find(shard, hash, name);
    if (*place != NULL && has_ended(*place, now, ttl)) {
        shard_drop(shard, place);
        add_to(&shard->totals->expired, 1);
        place = shard_find(shard, hash, name);
    }
    return place;
}

/* Keeps about one session a bucket. When there is no memory for it, chains get longer. */
static void grow_table(struct session_shard *shard)
{
    size_t n = 2 * shard->n_buckets;
    struct session_entry **buckets = calloc(n, sizeof(struct session_entry *));
    if (buckets == NULL) {
        return;
    }
    struct session_entry **old = shard->buckets;
    add_to(&shard->totals->bytes, weight(buckets));
    take_from(&shard->totals->bytes, weight(old));
    shard->buckets = buckets;
    shard->n_buckets = n;
    for (struct use *use = shard->uses.newest; use != NULL; use = use->older) {
        struct session_entry *e = (struct session_entry *)use;
        struct session_entry **at = bucket_of(shard, shard_hash(shard->seed, session_name(e)));
        e->next = *at;
        *at = e;
    }
    free(old);
}

int shard_put(struct session_shard *shard, struct session_entry **place, struct slice name, struct slice blob,
              int64_t now)
{
    struct session_entry *old = *place;
    struct session_entry *e = old;
    if (old == NULL || old->blob_len != blob.len) {
        e = malloc(sizeof *e + name.len + blob.len);
        if (e == NULL) {
            return ERR_NOMEM;
        }
        e->next = old != NULL ? old->next : NULL;
        e->blob_len = (uint32_t)blob.len;
        e->name_len = (uint8_t)name.len;
        memcpy(e->bytes, name.data, name.len);
        add_to(&shard->totals->bytes, weight(e));
        *place = e;
        if (old != NULL) {
            uses_take(&shard->uses, &old->use);
            take_from(&shard->totals->bytes, weight(old));
            free(old);
        } else {
            shard->n++;
            add_to(&shard->totals->live, 1);
        }
        uses_put(&shard->uses, &e->use);
    }
    memcpy(e->bytes + e->name_len, blob.data, blob.len);
    shard_use(shard, e, now);
    if (shard->n > shard->n_buckets) {
        grow_table(shard);
    }
    return 0;
}
