/* What a clone copies, in this order: positions, tombstones and pools, then the users, page by page. */
#ifndef UNSEEN_CLI_REPLICA_CLONE_COPY_H
#define UNSEEN_CLI_REPLICA_CLONE_COPY_H

#include "base/buf.h"
#include "cli/lib/progress.h"
#include "cli/replica/other_node.h"
#include "store/store.h"

struct clone_copy {
    struct other_node *from;
    struct store *to;
    uint64_t rate; /* bytes a second at most; 0: any */
    int64_t mark;  /* users with lower keys are here, durably */
    struct progress *progress;

    int64_t began_us;      /* the copying of users; 0: not yet */
    uint64_t began;        /* clone_key_part() of the mark then */
    uint64_t users, bytes; /* that came, in this run */
    uint64_t positions, tombstones, pools;
};

int clone_copy_positions(struct clone_copy *c, struct err *err);
int clone_copy_tombstones(struct clone_copy *c, struct err *err);
int clone_copy_pools(struct clone_copy *c, struct err *err); /* clone_pools.c; those that changed since another one */

/* From c->mark on. What was asked for is asked a page ahead; the mark moves behind each page that is durable. So it
 * may be called again after an error, with another connection. */
int clone_copy_users(struct clone_copy *c, struct err *err);

/* Moves the mark, durably (replica/clone_mark.h). */
int clone_copy_mark(struct clone_copy *c, int64_t mark, struct err *err);

/* How far the keys up to this one are of all, 0..1000000: keys are hashes, and spread evenly. */
uint64_t clone_key_part(int64_t key);

/* How long to wait until so many bytes are within the rate, since began_us. */
int64_t clone_rate_wait_us(uint64_t bytes, uint64_t rate, int64_t elapsed_us);

/* "1048576", "512K", "10MiB": bytes, or 0 when it is none. */
uint64_t clone_rate_read(const char *text);

#endif
