#include "store/pools.h"

#include "base/hash.h"

const char *store_pool_problem(const struct store_pool *pool)
{
    const uint8_t *at = (const uint8_t *)pool->items.data;
    size_t left = pool->items.len;
    uint64_t n = 0, version = 0;
    while (left > 0 && at[0] > 0 && at[0] < left) {
        version = hash_chain(version, slice_of((const char *)at + 1, at[0]));
        n++;
        left -= 1 + (size_t)at[0];
        at += 1 + (size_t)at[0];
    }
    return left > 0                   ? "its items can't be read to their end"
           : n != pool->n             ? "items of it are missing, or too many"
           : version != pool->version ? "its items are not what was set"
                                      : NULL;
}
