/* A pool: candidates that the server holds, so that a question names them instead of sending them. It never changes
 * once it was made: a change makes another one, and questions that are at the old one go on with that.
 *
 * The items stand in the order in which they were given, each once: where one comes again, its first place counts.
 * Beside the ids stand their hashes, ready to be tested, and an index from hash to place, in which users can be looked
 * up (dedup/pool_match.h). All of it takes the ids' length and at most POOL_ITEM_BYTES an item, in one piece of memory,
 * which is charged before it is made.
 *
 * The version is a chain of hashes over the ids: the same list has the same version on every node and in every folder,
 * whether it was set at once or grew.
 */
#ifndef UNSEEN_DEDUP_POOL_H
#define UNSEEN_DEDUP_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"

enum {
    POOL_ITEMS_MAX = 1000000,
    POOL_ITEM_BYTES = 16,    /* of an item beside its id, at most; */
    POOL_BESIDE_BYTES = 512, /* and of a pool beside its items and its name */
    POOL_VERSION_TEXT = 17,  /* 16 hex digits, and the end */
};

/* What all pools take together. */
struct pool_budget {
    _Atomic uint64_t used;
};

struct pool {
    _Atomic unsigned refs;
    struct pool_budget *budget;
    struct slice name;
    uint64_t bytes; /* that it takes */
    uint64_t id_bytes;
    uint64_t version;
    int64_t changed_ms;
    size_t n;
    uint64_t *hashes; /* of each item */

    /* The index. A hash's upper half times n_buckets (pool_spot) is its bucket, and below that 32 bits of a fraction,
     * of which the upper six are its cell in the bucket. So buckets, cells and fractions ascend as hashes do. Two
     * buckets without items follow the last. */
    uint64_t n_buckets;
    uint64_t *cells;     /* of each bucket a word: those in which an item is, the first in the lowest bit */
    uint32_t *starts;    /* where each begins in entries, and in the upper two bits pool_shared() */
    uint32_t *entries;   /* of all items, ascending in each bucket: the fraction's upper bits, and below them the place;
                          * and one of place 0 behind them, so that a reader that is at one may read the next */
    uint32_t place_mask; /* the bits of the place */

    /* pool.c's own: */
    uint32_t *marks; /* where each POOL_STRIDE-th item begins */
    uint8_t *ids;    /* each with a byte of its length before it */
};

/* Appends an id to a packed list. 0 or ERR_NOMEM. */
int pool_pack(struct buf *packed, struct slice id);

/* Makes a pool of packed items, behind those of base (NULL: none), with a name of its own. It has one reference. limit:
 * of the budget. ERR_INVALID: an id is empty, or the list ends within one; there are none; ERR_RANGE: too many items,
 * or no memory within the limit, and how much is missing; ERR_NOMEM. */
int pool_make(uint64_t seed, struct slice name, const struct pool *base, struct slice packed, int64_t changed_ms,
              struct pool_budget *budget, uint64_t limit, struct pool **out, struct err *err);

/* The same pool under another name. */
int pool_rename(const struct pool *pool, struct slice name, struct pool_budget *budget, uint64_t limit,
                struct pool **out, struct err *err);

/* Any thread. The last one to release it frees it; NULL is none. */
struct pool *pool_hold(const struct pool *pool);
void pool_release(struct pool *pool);

enum { POOL_CELLS = 64, POOL_CELL_SHIFT = 26 /* of a spot */, POOL_SHARED_SHIFT = 30 /* of a start */ };

static inline uint64_t pool_spot(const struct pool *pool, uint64_t hash)
{
    return (hash >> 32) * pool->n_buckets;
}

static inline uint32_t pool_start(const struct pool *pool, uint64_t bucket)
{
    return pool->starts[bucket] & ((UINT32_C(1) << POOL_SHARED_SHIFT) - 1);
}

/* How many more items a bucket has than cells that are taken: 0, 1, or 2 for all above. */
static inline uint32_t pool_shared(const struct pool *pool, uint64_t bucket)
{
    return pool->starts[bucket] >> POOL_SHARED_SHIFT;
}

/* Goes through the places that have a hash: for (i = pool_find(...); i < pool->n; i = pool_find_next(...)). */
struct pool_finding {
    uint32_t k, end; /* the entries that are left */
};
size_t pool_find(const struct pool *pool, uint64_t hash, struct pool_finding *f);
size_t pool_find_next(const struct pool *pool, uint64_t hash, struct pool_finding *f);

/* Whether one of its items has the hash. */
bool pool_has(const struct pool *pool, uint64_t hash);

/* The i-th item. The walk begins zeroed; to go on from it costs nothing, to go anywhere else next to nothing. */
struct pool_walk {
    size_t i, at; /* item i stands at byte `at` */
};
struct slice pool_item(const struct pool *pool, size_t i, struct pool_walk *walk);

/* The bytes that n of its ids take at most; id_bytes: all of them, of one pool or of several. */
static inline size_t pool_ids_max(size_t n, size_t id_bytes)
{
    return n * HASH_ID_MAX < id_bytes ? n * HASH_ID_MAX : id_bytes;
}

/* Items from a place on, packed, up to so many bytes, but at least one; returns how many. They are the pool's own. */
size_t pool_packed(const struct pool *pool, size_t from, size_t bytes, struct slice *out);

/* The version of a list of pools: of one, its own. */
uint64_t pool_versions(const struct pool *const *pools, size_t n);

/* 16 hex digits. */
const char *pool_version_text(uint64_t version, char out[POOL_VERSION_TEXT]);
bool pool_version_read(struct slice text, uint64_t *version);

#endif
