/* One of the shards that scroll sessions are dealt to: a hash table of them, chained, and a list of them by last use.
 * Expiry and eviction take sessions from that list's old end, so neither ever scans. The ttl is the same for all, so
 * the order of use is the order of expiry.
 *
 * A session is one piece of memory: links, name, the blob of its ids. It is allocated again whenever its blob changes
 * its size, so it is never larger than it must be.
 *
 * The owner locks; `hash` is always shard_hash() of the name.
 */
#ifndef UNSEEN_DEDUP_SESSION_SHARD_H
#define UNSEEN_DEDUP_SESSION_SHARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/slice.h"
#include "base/uses.h"

struct session_entry {
    struct use use;             /* in the shard's list by last use */
    struct session_entry *next; /* of the bucket */
    int64_t used_ms;            /* monotonic */
    uint32_t blob_len;
    uint8_t name_len;
    char bytes[]; /* the name, the blob */
};

/* Of all shards together. */
struct session_totals {
    _Atomic uint64_t bytes, live, expired;
};

struct session_shard {
    pthread_mutex_t lock;
    struct session_entry **buckets; /* a power of two of them */
    size_t n_buckets, n;
    struct uses uses;
    _Atomic int64_t oldest_ms; /* of the last use; INT64_MAX: none. Read without the lock, too */
    uint64_t seed;
    struct session_totals *totals;
    struct arena arena; /* of the set being changed */
    struct buf blob;
} __attribute__((aligned(64)));

int shard_init(struct session_shard *shard, uint64_t seed, struct session_totals *totals); /* 0 or ERR_NOMEM */
void shard_free(struct session_shard *shard);

struct slice session_name(const struct session_entry *e);
struct slice session_blob(const struct session_entry *e);
uint64_t shard_hash(uint64_t seed, struct slice name);

/* The session's place in the table; *place is NULL when there is none. shard_find_live(): or it has ended; and some
 * that have ended are freed beside it. */
struct session_entry **shard_find(const struct session_shard *shard, uint64_t hash, struct slice name);
struct session_entry **shard_find_live(struct session_shard *shard, uint64_t hash, struct slice name, int64_t now,
                                       int64_t ttl);

/* Puts a set of ids in the place of what `place` holds, if anything, and uses it. 0 or ERR_NOMEM. */
int shard_put(struct session_shard *shard, struct session_entry **place, struct slice name, struct slice blob,
              int64_t now);
void shard_use(struct session_shard *shard, struct session_entry *e, int64_t now);
void shard_drop(struct session_shard *shard, struct session_entry **place);
static inline const struct session_entry *shard_oldest(const struct session_shard *shard) /* NULL: none */
{
    return (const struct session_entry *)shard->uses.oldest;
}
void shard_drop_oldest(struct session_shard *shard);
bool shard_oldest_ended(const struct session_shard *shard, int64_t now, int64_t ttl);
void shard_expire(struct session_shard *shard, int64_t now, int64_t ttl, int most); /* frees what has ended */

#endif
