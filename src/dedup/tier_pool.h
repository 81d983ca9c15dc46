/* A second tier (dedup/tier.h) that threads of its own ask, each over a connection that blocks: so a tier is written as
 * what to say over one, and how to know that it is well.
 *
 * One more thread, the keeper, says a word each TIER_POOL_PING_MS. When that isn't answered within
 * TIER_POOL_PATIENCE_MS, the tier is dead: all that waits for it fails at once, and it takes nothing until the keeper
 * has an answer again. So what a dead tier costs a question is below 100 ms. A question that is answered late holds
 * one of the threads, at most for TIER_POOL_ASK_MS.
 */
#ifndef UNSEEN_DEDUP_TIER_POOL_H
#define UNSEEN_DEDUP_TIER_POOL_H

#include "dedup/tier.h"

struct tier_pool;

enum {
    TIER_POOL_THREADS = 4,
    TIER_POOL_QUESTIONS_MAX = 64,
    TIER_POOL_BYTES_MAX = 8 * 1024 * 1024, /* of their hashes; more are not taken */
    TIER_POOL_PING_MS = 40,
    TIER_POOL_PATIENCE_MS = 50,
    TIER_POOL_BLINK_MS = 1000,      /* for so long one that is dead was well a moment ago */
    TIER_POOL_ASK_MS = 1000,        /* a question that isn't answered by then is lost */
    TIER_POOL_FIRST_DELAY_MS = 100, /* between tries to connect, ... */
    TIER_POOL_LAST_DELAY_MS = 2000, /* ... doubled up to this */
};

/* Blocking; open() and ping() within TIER_POOL_PATIENCE_MS, ask() within TIER_POOL_ASK_MS. An error of any but open()
 * ends the connection; a question that fails at once over one that was there before is asked again over a new one. */
struct tier_line_ops {
    const char *name; /* of the tier */
    int (*open)(void *owner, void **line, struct err *err);
    void (*close)(void *line);
    int (*ping)(void *line, struct err *err);
    int (*ask)(void *line, struct tier_question *q, struct err *err); /* 0: q->verdict says */
};

/* ops and owner outlive it. ERR_NOMEM, ERR_SYSTEM. */
int tier_pool_start(const struct tier_line_ops *ops, void *owner, struct tier_pool **pool, struct err *err);
struct tier *tier_pool_tier(struct tier_pool *pool);

/* Once the ports are closed; ports may be freed later. NULL is fine. */
void tier_pool_stop(struct tier_pool *pool);
void tier_pool_free(struct tier_pool *pool); /* once they are freed, too */

#endif
