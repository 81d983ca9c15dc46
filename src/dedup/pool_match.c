/* A position of a filter stands for a range of hashes (filter/filter.h), and these lie in a bucket of the pool, or in
 * some neighbours: each item there is compared with the position by the filter's own rule, so the range may be taken
 * too wide, and must not be taken too narrow. Positions ascend, and so do the buckets that they lead to.
 *
 * As everywhere: what the filters have is seen, unless it is an exception; what is staged or delivered is seen. */
#include "dedup/pool_match.h"

#include <string.h>

/* An item of the user costs about as much as so many candidates; of a pool that is too large for the cache, more. */
enum { COST = 8, COST_LARGE = 12, LARGE = 32 * 1024 };

/* Hashes are asked for so many positions ahead: they lie anywhere. */
enum { AHEAD = 8 };

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
    return (line->n > LARGE ? COST_LARGE : COST) * line->n_pools * items_of(view) < line->n;
}

static void set(const struct match *m, size_t place, bool is_unseen)
{
    size_t i = m->from + place;
    uint8_t bit = (uint8_t)(0x80 >> i % 8);
    m->unseen[i / 8] = (uint8_t)(is_unseen ? m->unseen[i / 8] | bit : m->unseen[i / 8] & ~bit);
}

/* --- positions --- */

/* The upper halves of hashes that may have the position: from *low to *high. */
static void range_of(const struct filter_part *part, uint32_t position, uint64_t *low, uint64_t *high)
{
    const uint64_t grain = part->coarse ? (UINT64_C(1) << FILTER_GRAIN) - 1 : 0;
    if (filter_part_live(part)) {
        *low = part->coarse ? (uint64_t)position << FILTER_GRAIN : position;
        *high = *low + grain;
        return;
    }
    *low = ((uint64_t)position << 32) / part->m;
    *high = (((uint64_t)position + 1) << 32) / part->m + grain; /* position < m < 2^32 */
    *high = *high < UINT32_MAX ? *high : UINT32_MAX;
}

static void prefetch(const struct match *m, const struct filter_part *part, uint32_t position)
{
    uint64_t low, high;
    range_of(part, position, &low, &high);
    uint32_t end = pool_bucket_end(m->pool, high << 32);
    for (uint32_t k = pool_bucket_begin(m->pool, low << 32); k < end; k++) {
        __builtin_prefetch(&m->pool->hashes[m->pool->order[k]]);
    }
}

static void match_part(const struct match *m, const struct filter_part *part)
{
    for (uint32_t i = 0; i < part->n; i++) {
        if (i + AHEAD < part->n) {
            prefetch(m, part, part->positions[i + AHEAD]);
        }
        uint64_t low, high;
        range_of(part, part->positions[i], &low, &high);
        uint32_t end = pool_bucket_end(m->pool, high << 32);
        for (uint32_t k = pool_bucket_begin(m->pool, low << 32); k < end; k++) {
            uint32_t place = m->pool->order[k];
            uint64_t hash = m->pool->hashes[place];
            if (filter_part_position(part, hash) == part->positions[i] && filter_part_fits(part->tails, i, hash)) {
                set(m, place, false);
            }
        }
    }
}

/* --- hashes --- */

static void match_hash(const struct match *m, uint64_t hash, bool is_unseen)
{
    uint32_t end = pool_bucket_end(m->pool, hash);
    for (uint32_t k = pool_bucket_begin(m->pool, hash); k < end; k++) {
        if (m->pool->hashes[m->pool->order[k]] == hash) {
            set(m, m->pool->order[k], is_unseen);
        }
    }
}

static void match_pool(const struct match *m, const struct store_view *view)
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

static size_t count_bits(const uint8_t *bits, size_t bytes)
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

size_t pool_match(const struct pool_line *line, const struct store_view *view, uint8_t *unseen)
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
