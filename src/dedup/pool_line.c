#include <string.h>

#include "dedup/pools.h"

void pool_line_add(struct pool_line *line, const struct pool *pool)
{
    line->pools[line->n_pools] = pool;
    line->n += pool->n;
    line->ends[line->n_pools++] = line->n;
}

bool pool_line_repeats(const struct pool_line *line, size_t pool, uint64_t hash)
{
    size_t i = 0;
    while (i < pool && !pool_has(line->pools[i], hash)) {
        i++;
    }
    return i < pool;
}

void pool_line_hashes(const struct pool_line *line, uint64_t *hashes)
{
    for (size_t k = 0; k < line->n_pools; k++) {
        memcpy(hashes + pool_line_begin(line, k), line->pools[k]->hashes, line->pools[k]->n * sizeof *hashes);
    }
}

struct slice pool_line_item(const struct pool_line *line, size_t i, struct pool_line_walk *walk)
{
    size_t pool = pool_line_at(line, i, i < pool_line_begin(line, walk->pool) ? 0 : walk->pool);
    if (pool != walk->pool) {
        *walk = (struct pool_line_walk){.pool = pool};
    }
    return pool_item(line->pools[pool], i - pool_line_begin(line, pool), &walk->in);
}
