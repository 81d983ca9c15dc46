/* How a pool lies in memory: one piece, in this order:
 *
 *   struct pool | hashes (8 B an item) | cells (8 B a bucket) | starts (4 B a bucket) | entries (4 B an item, and 4) |
 *   marks (4 B for each POOL_STRIDE items) | ids (1 B an item, and the id) | name
 *
 * A bucket has some BUCKET_ITEMS items, and 64 cells, so a cell that isn't empty is nearly always that of an
 * item that is looked for, and the set bits below it say which entry is its. Only where two items share a cell of the
 * bucket that count is too low, by one for each of them but the first.
 *
 * What is new is hashed and compared first, in scratch memory that is charged as well: only then it is known how large
 * the pool will be.
 */
#include "dedup/pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "filter/filter.h"

enum { POOL_STRIDE = 8, BUCKET_ITEMS = 5, BUCKETS_BEHIND = 2 };

/* New items while a pool is made. */
struct fresh {
    uint64_t *hashes;
    uint32_t *at;    /* where each begins in the packed list */
    uint32_t *slots; /* open addressing: the place of an item + 1; 0 is free */
    size_t mask;
    size_t n; /* those that are kept */
    uint64_t id_bytes;
    uint64_t bytes; /* that were charged */
};

/* --- the budget --- */

static int charge(struct pool_budget *budget, uint64_t limit, uint64_t bytes, struct err *err)
{
    uint64_t used = atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
    if (bytes <= limit && used <= limit - bytes) {
        return 0;
    }
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
    return err_set(err, ERR_RANGE,
                   "pool_memory is full: this needs %" PRIu64 " more bytes, %" PRIu64 " of %" PRIu64 " are taken",
                   bytes, used, limit);
}

static void give(struct pool_budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

/* --- packed lists --- */

int pool_pack(struct buf *packed, struct slice id)
{
    uint8_t len = (uint8_t)id.len;
    if (buf_reserve(packed, 1 + id.len) < 0) {
        return ERR_NOMEM;
    }
    buf_add(packed, &len, 1);
    return buf_add(packed, id.data, id.len);
}

/* False: it ends within an item, or that is empty. */
static bool next_packed(struct slice packed, size_t *at, struct slice *id)
{
    size_t len = (uint8_t)packed.data[*at];
    if (len == 0 || len > packed.len - *at - 1) {
        return false;
    }
    *id = slice_of(packed.data + *at + 1, len);
    *at += 1 + len;
    return true;
}

static int count_packed(struct slice packed, size_t *n, struct err *err)
{
    struct slice id;
    *n = 0;
    for (size_t at = 0; at < packed.len; ++*n) {
        if (!next_packed(packed, &at, &id)) {
            return err_set(err, ERR_INVALID, "item %zu is cut off, or empty: ids are 1 to 255 bytes", *n + 1);
        }
    }
    return 0;
}

/* --- what is new --- */

static bool same_item(const struct pool *pool, size_t i, struct slice id)
{
    struct pool_walk walk = {0};
    return slice_eq(pool_item(pool, i, &walk), id);
}

static bool has_item(const struct pool *pool, uint64_t hash, struct slice id)
{
    if (pool == NULL) {
        return false;
    }
    struct pool_finding f;
    size_t i = pool_find(pool, hash, &f);
    while (i < pool->n && !same_item(pool, i, id)) {
        i = pool_find_next(pool, hash, &f);
    }
    return i < pool->n;
}

/* True: it was not among the new ones yet. */
static bool take_fresh(struct fresh *f, struct slice packed, uint64_t hash, struct slice id)
{
    size_t slot = (size_t)hash & f->mask;
    for (; f->slots[slot] != 0; slot = (slot + 1) & f->mask) {
        size_t i = f->slots[slot] - 1;
        const char *there = packed.data + f->at[i];
        if (f->hashes[i] == hash && slice_eq(slice_of(there + 1, (uint8_t)there[0]), id)) {
            return false;
        }
    }
    f->slots[slot] = (uint32_t)f->n + 1;
    return true;
}

static int find_fresh(uint64_t seed, const struct pool *base, struct slice packed, struct pool_budget *budget,
                      uint64_t limit, struct fresh *f, struct err *err)
{
    size_t most, slots = 1;
    int rc = count_packed(packed, &most, err);
    if (rc < 0) {
        return rc;
    }
    if (most > POOL_ITEMS_MAX) {
        return err_set(err, ERR_RANGE, "%zu items are too many: a pool holds at most %d", most, POOL_ITEMS_MAX);
    }
    while (slots < 2 * most) {
        slots *= 2;
    }
    f->bytes = most * (sizeof *f->hashes + sizeof *f->at) + slots * sizeof *f->slots;
    if ((rc = charge(budget, limit, f->bytes, err)) < 0) {
        f->bytes = 0;
        return rc;
    }
    f->hashes = malloc(f->bytes);
    if (f->hashes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a pool of %zu items", most);
    }
    f->at = (uint32_t *)(f->hashes + most);
    f->slots = f->at + most;
    f->mask = slots - 1;
    memset(f->slots, 0, slots * sizeof *f->slots);
    struct slice id;
    for (size_t at = 0, next = 0; next < packed.len; at = next) {
        next_packed(packed, &next, &id);
        uint64_t hash = hash_id(seed, id);
        if (!has_item(base, hash, id) && take_fresh(f, packed, hash, id)) {
            f->hashes[f->n] = hash;
            f->at[f->n++] = (uint32_t)at;
            f->id_bytes += id.len;
        }
    }
    return 0;
}

static void free_fresh(struct fresh *f, struct pool_budget *budget)
{
    free(f->hashes);
    give(budget, f->bytes);
}

/* --- one piece of memory --- */

static size_t n_marks(size_t n)
{
    return (n + POOL_STRIDE - 1) / POOL_STRIDE;
}

static size_t n_buckets(size_t n)
{
    return n < BUCKET_ITEMS ? 1 : n / BUCKET_ITEMS;
}

static uint64_t size_of(size_t n, uint64_t id_bytes, size_t name)
{
    uint64_t buckets = n_buckets(n) + BUCKETS_BEHIND;
    return sizeof(struct pool) + n * (sizeof(uint64_t) + sizeof(uint32_t) + 1) +
           buckets * (sizeof(uint64_t) + sizeof(uint32_t)) + (1 + n_marks(n)) * sizeof(uint32_t) + id_bytes + name;
}

/* Charged, with its name and everything but its items. */
static struct pool *new_pool(size_t n, uint64_t id_bytes, struct slice name, struct pool_budget *budget, uint64_t limit,
                             struct err *err)
{
    uint64_t bytes = size_of(n, id_bytes, name.len);
    if (charge(budget, limit, bytes, err) < 0) {
        return NULL;
    }
    struct pool *pool = malloc(bytes);
    if (pool == NULL) {
        give(budget, bytes);
        err_set(err, ERR_NOMEM, "out of memory for a pool of %zu items", n);
        return NULL;
    }
    *pool = (struct pool){.refs = 1, .budget = budget, .bytes = bytes, .id_bytes = id_bytes, .n = n};
    pool->n_buckets = n_buckets(n);
    pool->hashes = (uint64_t *)(pool + 1);
    pool->cells = pool->hashes + n;
    pool->starts = (uint32_t *)(pool->cells + pool->n_buckets + BUCKETS_BEHIND);
    pool->entries = pool->starts + pool->n_buckets + BUCKETS_BEHIND;
    pool->marks = pool->entries + n + 1;
    pool->ids = (uint8_t *)(pool->marks + n_marks(n));
    pool->place_mask = UINT32_MAX >> __builtin_clz((uint32_t)n | 1);
    char *own = (char *)pool->ids + n + id_bytes;
    memcpy(own, name.data, name.len);
    pool->name = slice_of(own, name.len);
    return pool;
}

/* Where each item of a list of ids begins, for those that have a mark. */
static void set_marks(struct pool *pool)
{
    uint32_t at = 0;
    for (size_t i = 0; i < pool->n; i++) {
        if (i % POOL_STRIDE == 0) {
            pool->marks[i / POOL_STRIDE] = at;
        }
        at += 1 + (uint32_t)pool->ids[at];
    }
}

/* The starts of it and of the next one are known, and that one is not indexed yet. */
static void index_bucket(struct pool *pool, size_t bucket)
{
    uint32_t from = pool->starts[bucket], to = pool->starts[bucket + 1];
    uint64_t cells = 0;
    filter_sort(pool->entries + from, to - from, NULL);
    for (uint32_t k = from; k < to; k++) {
        cells |= UINT64_C(1) << (pool->entries[k] >> POOL_CELL_SHIFT);
    }
    uint32_t more = to - from - (uint32_t)__builtin_popcountll(cells);
    pool->cells[bucket] = cells;
    pool->starts[bucket] = from | (more < 2 ? more : 2) << POOL_SHARED_SHIFT;
}

static void index_hashes(struct pool *pool)
{
    const size_t buckets = n_buckets(pool->n);
    uint32_t *starts = pool->starts, before = 0;
    memset(starts, 0, (buckets + BUCKETS_BEHIND) * sizeof *starts);
    for (size_t i = 0; i < pool->n; i++) {
        starts[pool_spot(pool, pool->hashes[i]) >> 32]++;
    }
    for (size_t b = 0; b < buckets + BUCKETS_BEHIND; b++) {
        uint32_t here = starts[b];
        starts[b] = before;
        before += here;
    }
    for (size_t i = 0; i < pool->n; i++) { /* each bucket's start moves to its end, ... */
        uint64_t spot = pool_spot(pool, pool->hashes[i]);
        pool->entries[starts[spot >> 32]++] = ((uint32_t)spot & ~pool->place_mask) | (uint32_t)i;
    }
    pool->entries[pool->n] = 0;
    memmove(starts + 1, starts, buckets * sizeof *starts); /* ... which is the start of the next one */
    starts[0] = 0;
    for (size_t b = 0; b < buckets; b++) {
        index_bucket(pool, b);
    }
    memset(pool->cells + buckets, 0, BUCKETS_BEHIND * sizeof *pool->cells);
}

static void add_fresh(struct pool *pool, const struct pool *base, const struct fresh *f, struct slice packed)
{
    size_t n = base != NULL ? base->n : 0;
    size_t at = base != NULL ? n + base->id_bytes : 0;
    uint64_t version = base != NULL ? base->version : 0;
    if (base != NULL) {
        memcpy(pool->hashes, base->hashes, n * sizeof *pool->hashes);
        memcpy(pool->ids, base->ids, at);
    }
    memcpy(pool->hashes + n, f->hashes, f->n * sizeof *pool->hashes);
    for (size_t i = 0; i < f->n; i++) {
        const char *from = packed.data + f->at[i];
        size_t len = (uint8_t)from[0];
        memcpy(pool->ids + at, from, 1 + len);
        version = hash_chain(version, slice_of(from + 1, len));
        at += 1 + len;
    }
    pool->version = version;
}

int pool_make(uint64_t seed, struct slice name, const struct pool *base, struct slice packed, int64_t changed_ms,
              struct pool_budget *budget, uint64_t limit, struct pool **out, struct err *err)
{
    struct fresh f = {0};
    int rc = find_fresh(seed, base, packed, budget, limit, &f, err);
    size_t before = base != NULL ? base->n : 0;
    if (rc == 0 && before + f.n > POOL_ITEMS_MAX) {
        rc = err_set(err, ERR_RANGE, "the pool would hold %zu items: at most %d", before + f.n, POOL_ITEMS_MAX);
    }
    if (rc == 0 && before + f.n == 0) {
        rc = err_set(err, ERR_INVALID, "a pool holds at least one item");
    }
    struct pool *pool = NULL;
    if (rc == 0) {
        pool = new_pool(before + f.n, f.id_bytes + (base != NULL ? base->id_bytes : 0), name, budget, limit, err);
        rc = pool == NULL ? err->code : 0;
    }
    if (rc == 0) {
        pool->changed_ms = changed_ms;
        add_fresh(pool, base, &f, packed);
        set_marks(pool);
        index_hashes(pool);
        *out = pool;
    }
    free_fresh(&f, budget);
    return rc;
}

int pool_rename(const struct pool *pool, struct slice name, struct pool_budget *budget, uint64_t limit,
                struct pool **out, struct err *err)
{
    struct pool *other = new_pool(pool->n, pool->id_bytes, name, budget, limit, err);
    if (other == NULL) {
        return err->code;
    }
    memcpy(other->hashes, pool->hashes,
           (size_t)((char *)(pool->ids + pool->n + pool->id_bytes) - (char *)pool->hashes));
    other->version = pool->version;
    other->changed_ms = pool->changed_ms;
    *out = other;
    return 0;
}

struct pool *pool_hold(const struct pool *pool)
{
    struct pool *held = (struct pool *)pool; /* its count is not part of what never changes */
    atomic_fetch_add_explicit(&held->refs, 1, memory_order_relaxed);
    return held;
}

void pool_release(struct pool *pool)
{
    if (pool != NULL && atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) == 1) {
        give(pool->budget, pool->bytes);
        free(pool);
    }
}

/* --- reading --- */

size_t pool_find(const struct pool *pool, uint64_t hash, struct pool_finding *f)
{
    uint64_t spot = pool_spot(pool, hash), bucket = spot >> 32;
    *f = (struct pool_finding){0, 0};
    if ((pool->cells[bucket] >> ((uint32_t)spot >> POOL_CELL_SHIFT) & 1) == 0) {
        return pool->n;
    }
    *f = (struct pool_finding){pool_start(pool, bucket), pool_start(pool, bucket + 1)};
    return pool_find_next(pool, hash, f);
}

size_t pool_find_next(const struct pool *pool, uint64_t hash, struct pool_finding *f)
{
    const uint32_t fraction = (uint32_t)pool_spot(pool, hash);
    while (f->k < f->end) {
        uint32_t entry = pool->entries[f->k++], place = entry & pool->place_mask;
        if (((entry ^ fraction) & ~pool->place_mask) == 0 && pool->hashes[place] == hash) {
            return place;
        }
    }
    return pool->n;
}

bool pool_has(const struct pool *pool, uint64_t hash)
{
    struct pool_finding f;
    return pool_find(pool, hash, &f) < pool->n;
}

struct slice pool_item(const struct pool *pool, size_t i, struct pool_walk *walk)
{
    if (i < walk->i || i - walk->i >= POOL_STRIDE) {
        walk->i = i - i % POOL_STRIDE;
        walk->at = pool->marks[i / POOL_STRIDE];
    }
    for (; walk->i < i; walk->i++) {
        walk->at += 1 + (size_t)pool->ids[walk->at];
    }
    return slice_of((const char *)pool->ids + walk->at + 1, pool->ids[walk->at]);
}

size_t pool_packed(const struct pool *pool, size_t from, size_t bytes, struct slice *out)
{
    if (from >= pool->n) {
        *out = slice_of("", 0);
        return 0;
    }
    struct pool_walk walk = {0};
    pool_item(pool, from, &walk);
    size_t at = walk.at, n = 0;
    do {
        at += 1 + (size_t)pool->ids[at];
        n++;
    } while (from + n < pool->n && at + 1 + pool->ids[at] - walk.at <= bytes);
    *out = slice_of((const char *)pool->ids + walk.at, at - walk.at);
    return n;
}

/* --- versions --- */

uint64_t pool_versions(const struct pool *const *pools, size_t n)
{
    uint64_t version = n > 0 ? pools[0]->version : 0;
    for (size_t i = 1; i < n; i++) {
        char text[POOL_VERSION_TEXT];
        version = hash_chain(version, slice_str(pool_version_text(pools[i]->version, text)));
    }
    return version;
}

const char *pool_version_text(uint64_t version, char out[POOL_VERSION_TEXT])
{
    snprintf(out, POOL_VERSION_TEXT, "%016" PRIx64, version);
    return out;
}

bool pool_version_read(struct slice text, uint64_t *version)
{
    *version = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return false;
        }
        *version = *version << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return text.len == POOL_VERSION_TEXT - 1;
}
