/* The capability `pools`: lists of candidates that questions name (dedup/pools.h) outlive a restart. Without it they
 * end with the server.
 *
 * What it keeps are items behind each other, each a byte with its length and the id, and their version, which is
 * hash_chain() over the ids. A pool is replaced as a whole or not at all, however large it is: what is new lies beside
 * the old one until one transaction exchanges the two. That transaction also says so in the feed (FEED_POOL).
 */
#ifndef UNSEEN_STORE_POOLS_H
#define UNSEEN_STORE_POOLS_H

#include "store/store.h"

struct store_pool {
    struct slice name;  /* 1 to 255 bytes */
    struct slice items; /* packed */
    uint64_t n;
    uint64_t version;
    int64_t changed_ms;
};

/* What is wrong with its items: they can't be read to their end, or aren't as many, or not those of the version. NULL:
 * nothing. */
const char *store_pool_problem(const struct store_pool *pool);

enum store_pool_kind {
    STORE_POOL_SET,    /* replaces all of it, or makes it */
    STORE_POOL_ADD,    /* puts items behind those that are there */
    STORE_POOL_DROP,   /* no such pool: nothing is to be done */
    STORE_POOL_RENAME, /* in place of the one that has the name already */
};

struct store_pool_change {
    struct store_call call; /* first. err: ERR_FULL, ERR_IO, ERR_NOMEM, ERR_CLOSED; ERR_INVALID: the pool that is to be
                             * added to or renamed isn't what it was, since an earlier change failed: set it again */
    enum store_pool_kind kind;
    struct store_pool pool; /* as it is once it is done, but `items` are the added ones of ADD; all of it the caller's
                             * until done() */
    struct slice to;        /* RENAME: the new name */
    uint64_t before;        /* ADD, RENAME: the version that is there */
    uint64_t seq;           /* once durable, as that of a batch */
    uint64_t written, place, parts; /* the store's own */
};

struct store_pools_ops {
    /* One change at a time; done() once it is durable. */
    void (*change)(struct store *s, struct store_pool_change *change);

    /* Hands over all pools by their names. A damaged one goes to bad(), with what is wrong. Blocks. ERR_IO, ERR_NOMEM,
     * or what each() returned. */
    int (*each)(struct store_reader *reader, int (*each)(void *arg, const struct store_pool *pool, struct err *err),
                void (*bad)(void *arg, struct slice name, const char *what), void *arg, struct err *err);
};

#endif
