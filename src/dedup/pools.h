/* All pools of a server: found by questions, changed by a thread of their own, kept by the store (store/pools.h).
 *
 * Questions see a table that never changes. Each loop holds the newest one it has seen, and asks for another only when
 * the generation has moved, so a question takes no lock and counts no references; what is answered later holds on to
 * the pools that it needs. A change makes the new pool first, charged to pool_memory before it is made, then it is made
 * durable, then it is published as part of the next table. The old pool goes once no question has it any more; so while
 * it is replaced there is room for both, or the change is refused.
 *
 * What was there at the start is loaded whatever pool_memory says by then, and a replica takes what its primary has.
 */
#ifndef UNSEEN_DEDUP_POOLS_H
#define UNSEEN_DEDUP_POOLS_H

#include "base/figure.h"
#include "dedup/dedup.h"
#include "dedup/pool.h"

enum {
    POOLS_MAX = 4096,         /* pools */
    POOLS_OF_A_QUESTION = 16, /* named by one; their items are POOL_ITEMS_MAX at most */
};

struct pool_table {
    _Atomic unsigned refs;
    uint64_t generation;
    size_t n;
    struct pool *list[]; /* by their names */
};

struct pools;

/* Loads what the store has kept. Blocks. A damaged pool is left out, and logged. */
int pools_start(const struct dedup *d, struct pools **out, struct err *err);
void pools_stop(struct pools *all); /* ends the thread; what waits is answered ERR_CLOSED. NULL is none */
void pools_free(struct pools *all); /* once all tables and pools were let go */

/* Any thread. */
uint64_t pools_generation(const struct pools *all);
const struct pool_table *pools_take(struct pools *all);
void pools_let_go(const struct pool_table *table);
const struct pool *pool_table_find(const struct pool_table *table, struct slice name); /* NULL: there is none */

/* The pools of a question, behind each other. Of an item that stands in several of them, the first place counts. They
 * are as good as the table that they were found in, or as who holds them. */
struct pool_line {
    size_t n_pools, n; /* n: items */
    const struct pool *pools[POOLS_OF_A_QUESTION];
    size_t ends[POOLS_OF_A_QUESTION]; /* behind the last item of each */
};
void pool_line_add(struct pool_line *line, const struct pool *pool);
/* Whose the i-th item is; `pool` is where to look from, 0 or that of an earlier item. */
static inline size_t pool_line_at(const struct pool_line *line, size_t i, size_t pool)
{
    while (i >= line->ends[pool]) {
        pool++;
    }
    return pool;
}
static inline size_t pool_line_begin(const struct pool_line *line, size_t pool)
{
    return pool == 0 ? 0 : line->ends[pool - 1];
}
bool pool_line_repeats(const struct pool_line *line, size_t pool, uint64_t hash); /* an earlier pool has it */
void pool_line_hashes(const struct pool_line *line, uint64_t *hashes);            /* all n */

/* Forwards costs next to nothing. The walk begins zeroed. */
struct pool_line_walk {
    size_t pool;
    struct pool_walk in;
};
struct slice pool_line_item(const struct pool_line *line, size_t i, struct pool_line_walk *walk);
static inline uint64_t pool_line_hash(const struct pool_line *line, size_t i)
{
    const size_t pool = pool_line_at(line, i, 0);
    return line->pools[pool]->hashes[i - pool_line_begin(line, pool)];
}

enum pool_change_kind {
    POOL_SET,
    POOL_ADD,
    POOL_DROP,
    POOL_RENAME,
    POOL_NOTHING, /* answered once all changes before it are seen */
};

/* The caller's until done(), which is called once, on the pools' thread, when it is durable or refused. */
struct pool_change {
    struct pool_change *next;
    enum pool_change_kind kind;
    struct slice name, to; /* to: the new name of RENAME, in place of the pool that has it */
    struct slice items;    /* packed, of SET and ADD */
    bool replicated;       /* from a primary, beyond pool_memory, too */
    struct err err;        /* ERR_INVALID, ERR_RANGE; ERR_POOL: there is no such pool to be added to or renamed; what
                            * store_pools_ops.change() says */
    bool existed;          /* DROP: it was there */
    uint64_t n, version;   /* of the pool as it is now */
    uint64_t seq;          /* as that of a batch */
    void (*done)(struct pool_change *change);
    void *owner;
};
void pools_change(struct pools *all, struct pool_change *change);

/* What a caller holds to make a pool of counts as taken: so many bytes more, or less. It is refused nothing, but local
 * changes are while there is no room left. */
void pools_charge(struct pools *all, int64_t bytes);

struct pools_stats {
    uint64_t pools, items, bytes, limit; /* gauges */
    uint64_t changes;                    /* since the start, as is the next */
    uint64_t refused;                    /* for want of memory */
};
void pools_look(struct pools *all, struct pools_stats *out);
void pools_figures_each(struct pools *all, figure_visit *visit, void *arg);

#endif
