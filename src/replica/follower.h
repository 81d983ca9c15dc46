/* The replica's half: a thread that says hello to the primary, fetches, and applies.
 *
 * Batches to catch up: while replies are full, the next is asked for before the last is applied; then one fetch waits
 * at the primary, and comes back with the next event. One reply is held in memory; the next waits in the sockets.
 */
#ifndef UNSEEN_REPLICA_FOLLOWER_H
#define UNSEEN_REPLICA_FOLLOWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "replica/feeder.h"
#include "replica/replica.h"

enum { FOLLOWER_FIRST_DELAY_MS = 100, FOLLOWER_LAST_DELAY_MS = 2000 };

int follower_start(struct replica *r, struct follower **follower, struct err *err);
/* Ends the thread: when it returns nothing more is applied. Also for a promotion. NULL is fine. */
void follower_stop(struct follower *f);
/* Goes on where it was stopped. NULL is fine. */
int follower_resume(struct follower *f, struct err *err);
void follower_free(struct follower *f);

enum follower_doing {
    FOLLOWER_CONNECTING,
    FOLLOWER_CATCHING_UP,
    FOLLOWER_IN_STEP,
    FOLLOWER_LOST,    /* the primary no longer has what it needs: clone again */
    FOLLOWER_REFUSED, /* a setting, a seed or a version is not the primary's, as `problem` says; tried again */
    FOLLOWER_OFF,
    FOLLOWER_DOINGS,
};
const char *follower_doing_name(enum follower_doing doing);

struct follower_state {
    enum follower_doing doing;
    char primary[NODE_ADDRESS_TEXT];
    uint64_t node, run, applied; /* all up to that event of that node and run is durable here */
    uint64_t last;               /* the newest that the primary has told of */
    int64_t age_ms;              /* how old the newest state is that this node is known to have; -1: never level yet */
    int64_t clock_apart_ms;      /* the primary's wall clock less ours */
    uint64_t events, users;      /* applied since the start */
    uint64_t reconnects;
    char problem[REPLICA_TEXT];
};
void follower_look(const struct follower *f, struct follower_state *out); /* any thread */

/* Questions: 0, or ERR_STALE beyond replica_max_age. NULL: 0. */
int follower_fresh(const struct follower *f, const struct config *live, struct err *err);

/* Waits until all up to seq is durable here, or for ms: 0, ERR_LATE. */
int follower_wait(struct follower *f, uint64_t seq, int64_t ms, struct err *err);

/* Any thread: whether something of that node's feed is here, now or before another was followed, and up to where. */
bool follower_has(struct follower *f, uint64_t node, uint64_t *seq);

/* Another replica of the primary's. */
struct sibling {
    uint64_t node;
    char address[NODE_ADDRESS_TEXT]; /* as it says; "": not known */
};
/* Any thread: the other replicas of its primary of whom it is known how they are reached. Returns how many. */
int follower_siblings(struct follower *f, struct sibling out[FEEDER_REPLICAS_MAX]);

#endif
