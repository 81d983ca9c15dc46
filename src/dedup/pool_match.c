/* A position of a filter stands for a range of hashes (filter/filter.h), and these lie in a cell of the pool, or in
 * some neighbours. Nearly all positions end there, at a cell that is empty. Of the others the count of cells that are
 * taken says which entry to look at, and that item is compared by the filter's own rule: so the range may be taken too
 * wide, and must not be taken too narrow. Where two items share a cell of the bucket, or the range touches two cells,
 * the next entry is looked at as well. Where that isn't enough either, all entries of the range are.
 *
 * Positions are taken in blocks, in one loop for each of these steps, without a branch on the outcome: a mispredicted
 * one would cost as much as all of them. (That of the few for which two entries aren't enough is rarely taken, so that
 * it costs less than to go without it.) Positions ascend, so cells, starts and entries are read from front to back.
 *
 * As everywhere: what the filters have is seen, unless it is an exception; what is staged or delivered is seen. */
#include "dedup/pool_match.h"

#include <string.h>

#include "base/bits.h"

enum { BLOCK = 1024, LARGE = 32 * 1024 /* items: their hashes are fetched ahead */ };

/* Everything is in one function for each kind of part, and all of that twice (pool_match). */
#define INLINE static inline __attribute__((always_inline))

struct match {
    const struct pool *pool;
    size_t from; /* the bit of its first item */
    uint8_t *unseen;
};

static uint64_t items_of(const struct store_view *view)
{
    uint64_t n = view->n_plays + view->n_deliveries + view->n_exceptions;
    for (size_t i = 0; i < view->n_months; i++) {
        for (unsigned p = 0; p < view->months[i].filter.n_parts; p++) {
            n += view->months[i].filter.parts[p].n;
        }
    }
    return n;
}

bool pool_match_pays(const struct pool_line *line, const struct store_view *view)
{
    return (line->n_pools - 1) * items_of(view) <= line->n;
}

INLINE void hide_if(const struct match *m, size_t place, bool is_seen)
{
    size_t i = m->from + place;
    m->unseen[i / 8] &= (uint8_t) ~(0x80U * is_seen >> i % 8);
}

/* --- positions --- */

/* Where the spots (dedup/pool.h) of a part's position may be, in fixed point with `shift` more bits: from
 * position * inverse to that + width. The inverse of a range that was cut is rounded down, so all of it may be too low
 * by as much as the position, which is below m. In a coarse part hashes count as if their lowest bits were 0. */
struct ruler {
    uint64_t inverse, width;
    unsigned shift;
};

static struct ruler ruler_of(const struct pool *pool, const struct filter_part *part)
{
    const uint64_t grain = part->coarse ? (UINT64_C(1) << FILTER_GRAIN) - 1 : 0;
    if (filter_part_live(part)) {
        return (struct ruler){pool->n_buckets * (grain + 1), pool->n_buckets * grain, 0};
    }
    struct ruler r = {.shift = 0};
    while (pool->n_buckets << (33 + r.shift) < UINT64_C(1) << 61) {
        r.shift++;
    }
    r.inverse = (pool->n_buckets << (32 + r.shift)) / part->m;
    r.width = r.inverse + 1 + part->m + (pool->n_buckets * grain << r.shift);
    return r;
}

/* What of a part is known when this is compiled. */
enum kind {
    EXACT,  /* it has m = 2^32, */
    TAILED, /* and tails */
    NARROW, /* its positions' ranges are less than a cell, */
    WIDE,   /* or not */
};

INLINE bool is_taken(const struct pool *pool, uint64_t cell)
{
    return pool->cells[cell / POOL_CELLS] >> cell % POOL_CELLS & 1;
}

/* Whether an item is in one of the cells. */
INLINE bool are_taken(const struct pool *pool, enum kind kind, uint64_t first, uint64_t last)
{
    if (kind == WIDE) {
        const uint64_t *word = &pool->cells[first / POOL_CELLS];
        uint64_t cells = word[0] >> first % POOL_CELLS | word[1] << 1 << (POOL_CELLS - 1 - first % POOL_CELLS);
        return last - first >= POOL_CELLS - 1 || (cells & ((UINT64_C(2) << (last - first)) - 1)) != 0;
    }
    return (unsigned)is_taken(pool, first) | (unsigned)(kind == NARROW && is_taken(pool, last));
}

/* The entry of an item in the cell, or of the first behind it, unless items share a cell below in the bucket; then it
 * is one before. */
INLINE uint32_t entry_at(const struct pool *pool, uint64_t cell)
{
    uint64_t below = (UINT64_C(1) << cell % POOL_CELLS) - 1;
    return pool_start(pool, cell / POOL_CELLS) + (uint32_t)__builtin_popcountll(pool->cells[cell / POOL_CELLS] & below);
}

/* All items in the position's range. */
static void match_range(const struct match *m, const struct filter_part *part, const struct ruler *r, uint32_t i)
{
    const struct pool *pool = m->pool;
    const uint64_t low = part->positions[i] * r->inverse >> r->shift;
    uint64_t high = (part->positions[i] * r->inverse + r->width) >> r->shift;
    high = high >> 32 < pool->n_buckets ? high : (pool->n_buckets << 32) - 1;
    const bool one = low >> 32 == high >> 32; /* bucket */
    const uint32_t least = one ? (uint32_t)low & ~pool->place_mask : 0;
    const uint32_t most = one ? (uint32_t)high | pool->place_mask : UINT32_MAX;
    const uint32_t end = pool_start(pool, (high >> 32) + 1);
    for (uint32_t k = entry_at(pool, low >> POOL_CELL_SHIFT); k < end && pool->entries[k] <= most; k++) {
        if (pool->entries[k] >= least) {
            size_t place = pool->entries[k] & pool->place_mask;
            uint64_t hash = pool->hashes[place];
            hide_if(m, place,
                    filter_part_position(part, hash) == part->positions[i] && filter_part_fits(part->tails, i, hash));
        }
    }
}

INLINE void match_block(const struct match *m, const struct filter_part *part, const struct ruler *ruler,
                        enum kind kind, uint32_t from, uint32_t to)
{
    const struct pool *const pool = m->pool;
    const uint64_t *const hashes = pool->hashes;
    const uint32_t *const positions = part->positions, *const entries = pool->entries;
    const uint8_t *const tails = part->tails;
    const uint32_t place_mask = pool->place_mask;
    const struct filter_part rule = *part;
    const struct ruler r = *ruler;
    const bool exact = kind == EXACT || kind == TAILED;
    const unsigned shift = exact ? POOL_CELL_SHIFT : POOL_CELL_SHIFT + r.shift;
    uint32_t open[BLOCK], wide[BLOCK];
    uint64_t found[2 * BLOCK]; /* an entry to look at, and above it the position, or with tails which one that is */
    size_t n_open = 0, n_wide = 0, n = 0;

    for (uint32_t i = from; i < to; i++) {
        const uint64_t at = positions[i] * r.inverse;
        open[n_open] = i;
        n_open += are_taken(pool, kind, at >> shift, (at + r.width) >> shift);
    }
    for (size_t j = 0; j < n_open; j++) {
        const uint32_t i = open[j];
        const uint64_t at = positions[i] * r.inverse, cell = at >> shift, last = exact ? cell : (at + r.width) >> shift;
        uint32_t more = pool_shared(pool, cell / POOL_CELLS) + (uint32_t)(last - cell);
        if (kind == WIDE || more > 1 || (last ^ cell) >= POOL_CELLS) {
            wide[n_wide++] = i;
            continue;
        }
        found[n] = (uint64_t)(kind == TAILED ? i : positions[i]) << 32 | entry_at(pool, cell);
        found[n + 1] = found[n] + 1;
        n += 1 + more;
    }
    for (size_t j = 0; j < n && pool->n > LARGE; j++) {
        __builtin_prefetch(&hashes[entries[(uint32_t)found[j]] & place_mask]);
    }
    for (size_t j = 0; j < n; j++) {
        const size_t place = entries[(uint32_t)found[j]] & place_mask;
        const uint32_t above = (uint32_t)(found[j] >> 32);
        const uint32_t position = filter_part_position(&rule, hashes[place]);
        hide_if(m, place,
                kind == TAILED ? position == positions[above] && filter_part_fits(tails, above, hashes[place])
                               : position == above);
    }
    for (size_t j = 0; j < n_wide; j++) {
        match_range(m, part, &r, wide[j]);
    }
}

INLINE void match_part(const struct match *m, const struct filter_part *part)
{
    const struct ruler r = ruler_of(m->pool, part);
    const bool narrow = r.width >> (POOL_CELL_SHIFT + r.shift) == 0;
    for (uint32_t from = 0, to; from < part->n; from = to) {
        to = part->n - from < BLOCK ? part->n : from + BLOCK;
        if (!narrow) {
            match_block(m, part, &r, WIDE, from, to);
        } else if (part->m < FILTER_LIVE_M) {
            match_block(m, part, &r, NARROW, from, to);
        } else if (part->tails != NULL) {
            match_block(m, part, &r, TAILED, from, to);
        } else {
            match_block(m, part, &r, EXACT, from, to);
        }
    }
}

/* --- hashes --- */

static void match_hash(const struct match *m, uint64_t hash, bool is_unseen)
{
    struct pool_finding f;
    for (size_t k = pool_find(m->pool, hash, &f); k < m->pool->n; k = pool_find_next(m->pool, hash, &f)) {
        size_t i = m->from + k;
        uint8_t bit = (uint8_t)(0x80 >> i % 8);
        m->unseen[i / 8] = (uint8_t)(is_unseen ? m->unseen[i / 8] | bit : m->unseen[i / 8] & ~bit);
    }
}

INLINE void match_pool(const struct match *m, const struct store_view *view)
{
    for (size_t i = 0; i < view->n_months; i++) {
        for (unsigned p = 0; p < view->months[i].filter.n_parts; p++) {
            match_part(m, &view->months[i].filter.parts[p]);
        }
    }
    for (size_t i = 0; i < view->n_exceptions; i++) {
        match_hash(m, view->exceptions[i], true);
    }
    for (size_t i = 0; i < view->n_plays; i++) {
        match_hash(m, view->plays[i].hash, false);
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        match_hash(m, view->deliveries[i].hash, false);
    }
}

INLINE size_t count_bits(const uint8_t *bits, size_t bytes)
{
    size_t n = 0, i = 0;
    for (uint64_t word; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, bits + i, sizeof word);
        n += (size_t)__builtin_popcountll(word);
    }
    for (; i < bytes; i++) {
        n += (size_t)__builtin_popcount(bits[i]);
    }
    return n;
}

INLINE size_t match_line(const struct pool_line *line, const struct store_view *view, uint8_t *unseen)
{
    size_t bytes = (line->n + 7) / 8;
    memset(unseen, 0xff, bytes);
    if (line->n % 8 != 0) {
        unseen[bytes - 1] = (uint8_t)(0xff << (8 - line->n % 8));
    }
    for (size_t k = 0; k < line->n_pools; k++) {
        match_pool(&(struct match){line->pools[k], pool_line_begin(line, k), unseen}, view);
    }
    return count_bits(unseen, bytes);
}

BITS_QUICK static size_t quick_match(const struct pool_line *line, const struct store_view *view, uint8_t *unseen)
{
    return match_line(line, view, unseen);
}

size_t pool_match(const struct pool_line *line, const struct store_view *view, uint8_t *unseen)
{
    return bits_quick() ? quick_match(line, view, unseen) : match_line(line, view, unseen);
}
