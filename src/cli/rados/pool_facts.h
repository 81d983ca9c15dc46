/* What a cluster of Ceph says of a pool, and what that costs one that keeps plays in it. Nothing here speaks to a
 * cluster: the answers of its monitor are given.
 */
#ifndef UNSEEN_CLI_RADOS_POOL_FACTS_H
#define UNSEEN_CLI_RADOS_POOL_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { POOL_NAME = 64, POOL_ADVICE = 512 };

struct pool_facts {
    bool replicated; /* else it is erasure-coded, and can't hold keys */
    int64_t size, min_size, groups;
    char rule[POOL_NAME];        /* of CRUSH, which places the replicas; "": not found */
    char domain[POOL_NAME];      /* what that tells apart: "host", "osd", "rack" */
    int64_t domains;             /* how many of these the rule can choose from: they have an OSD that is in */
    int64_t up, in;              /* OSDs: that run, that hold data; of the whole cluster */
    bool full, nearfull;         /* the pool, or the cluster */
    bool capped;                 /* it has a quota */
    bool tiered;                 /* another pool stands before it as a cache, or it is one */
    bool tagged;                 /* with the application "unseen" */
    char application[POOL_NAME]; /* the first of others; "": none */
};

/* osd_dump, crush_dump: what the monitor answers to "osd dump" and "osd crush dump", as JSON. ERR_NOTFOUND: there is no
 * such pool; ERR_INVALID: that is no such answer; ERR_NOMEM. */
int pool_facts_read(const char *pool, struct slice osd_dump, struct slice crush_dump, struct pool_facts *out,
                    struct err *err);

/* Names each thing that is not as it should be, with what it costs and what mends it: one call of say() each. Returns
 * how many there were; ERR_INVALID: the pool can't be used at all. */
typedef void pool_say(void *arg, const char *advice);
int pool_advise(const char *pool, const struct pool_facts *facts, pool_say *say, void *arg, struct err *err);

#endif
