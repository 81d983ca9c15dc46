/* Pools of another node, asked for by REPLICA POOLS and REPLICA POOL: by a replica, and by a clone. A pool comes in
 * parts, all of one version; what claims to be more than a pool may hold is refused before it is made. One thread. */
#ifndef UNSEEN_REPLICA_POOL_FETCH_H
#define UNSEEN_REPLICA_POOL_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

enum { POOL_FETCH_PROTOCOL = 3 }; /* the first that knows pools */

struct reply;

struct pool_source {
    const char *address; /* for errors */
    void *owner;
    /* One command and its reply, which lives until the next call. */
    int (*ask)(struct pool_source *s, const struct slice *words, size_t n, const struct reply **reply, struct err *err);
    /* Whether the pool is here in that version, and need not come. */
    bool (*has)(struct pool_source *s, struct slice name, uint64_t version);
    /* Told before the list takes so many more bytes, and (negative) when it gives them back. NULL: they are not
     * counted. */
    void (*charge)(struct pool_source *s, int64_t bytes);
    bool (*stopping)(struct pool_source *s); /* NULL: never */
};

struct pool_fetched {
    struct buf items; /* packed; empty: the pool is here already */
    uint64_t n, version;
};

/* Zeroed before its first use, and freed by pool_fetch_free(). 1: all of it, in the order and number that its version
 * and the other node say; 0: there is no such pool. ERR_INVALID: it isn't what it is said to be; ERR_BUSY: it changes
 * faster than it comes, or stopping() said so; ERR_NOMEM; or what ask() returned. */
int pool_fetch(struct pool_source *s, struct slice name, struct pool_fetched *out, struct err *err);
void pool_fetch_free(struct pool_source *s, struct pool_fetched *f);

/* The names of all pools there that are not here in their version, packed (dedup/pool.h), behind those that gone()
 * finds to be here alone: it is called with the list, and appends to the names. */
int pool_fetch_names(struct pool_source *s,
                     int (*gone)(struct pool_source *s, const struct reply *list, struct buf *names), struct buf *names,
                     struct err *err);

/* Whether a reply to REPLICA POOLS lists that name. */
bool pool_fetch_lists(const struct reply *list, struct slice name);

#endif
