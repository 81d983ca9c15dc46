/* The object `meta`: what all nodes of a pool agree on. Made once, by rados_store_init(), exclusively.
 *
 *   schema      "1"
 *   seed        16 hex digits: of all hashes
 *   error_rate  as the option says it, since every node merges and seals for all
 *   clock       the newest time that any node has believed (pool_clock.c)
 *   lineage     16 hex digits that no other pool has (STORE_LINEAGE of store/positions.h)
 *   starts      16 hex digits: how many nodes have opened the pool so far. Each has a number of its own, which orders
 *               what two of them deliver within a millisecond, and what one delivers before and after it was started
 * again
 */
#ifndef UNSEEN_STORE_RADOS_META_H
#define UNSEEN_STORE_RADOS_META_H

#include "store/rados/cluster.h"
#include "store/store.h"

struct meta {
    int schema;
    uint64_t seed;
    double error_rate;
    uint64_t starts;
    uint64_t lineage; /* 0: it was made before there were any; the next node that opens it draws one */
};

/* 1; 0: there is none; or an error. Blocks. */
int meta_read(const struct cluster_ops *ops, struct cluster *cluster, struct meta *out, struct err *err);
/* Whether it is what cfg says: 0, ERR_VERSION, ERR_SEED, ERR_INVALID. */
int meta_fits(const struct meta *meta, const struct config *cfg, struct err *err);

/* On a new connection of a store that is open: whether this is still its pool. 0; ERR_NOTFOUND, ERR_SEED; or as
 * meta_read(). Blocks. */
int meta_still(const struct meta *meta, const struct cluster_ops *ops, struct cluster *cluster, struct err *err);

/* Connects as cfg says; *ops NULL: by the module, whose functions they become. Blocks. */
int rados_cluster_connect(const struct config *cfg, const struct cluster_ops **ops, struct cluster **cluster,
                          struct err *err);

#endif
