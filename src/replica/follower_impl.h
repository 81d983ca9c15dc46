/* What the files of the follower share. */
#ifndef UNSEEN_REPLICA_FOLLOWER_IMPL_H
#define UNSEEN_REPLICA_FOLLOWER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/task.h"
#include "net/client.h"
#include "replica/cursor.h"
#include "replica/feeder.h"
#include "replica/follower.h"
#include "store/feed.h"
#include "store/node.h"

enum {
    FOLLOWER_REPLY_MAX = 8 * 1024 * 1024, /* of what is recorded, and what the node says of itself and its pools */
    FOLLOWER_FETCH_BYTES = 64 * 1024,     /* of a reply: small, so that questions find a core in between */
    FOLLOWER_PATIENCE_MS = 500,           /* a primary that can't be reached for so long is away; also of a hello */
    FOLLOWER_SILENCE_MS = 5 * 1000,  /* what isn't answered for so long is lost; the reply's bytes have more time */
    FOLLOWER_REFUSED_MS = 10 * 1000, /* between tries of what an operator must mend */
    FOLLOWER_GREET_MS = 10 * 1000,   /* between hellos, which say who else follows */
    FOLLOWER_BEHIND = 10000,         /* events that are to come: then it catches up rather than follows */
};

struct follower {
    struct replica *r;
    struct task task;         /* from each follower_resume() to the next follower_stop() */
    _Atomic int64_t level_us; /* clock_mono_us(): when it was level last; 0: never */

    /* The thread's. */
    struct store_reader *reader;
    struct arena arena;
    char address[NODE_ADDRESS_TEXT];
    int64_t protocol;              /* of who is followed, as was agreed */
    struct client *client, *users; /* for fetches, and for users between them */
    struct feed_cursor cursor;     /* where it is: durable here */
    uint64_t primary_run, term;
    bool takes_over;   /* the other has stepped down for this node, which is to be promoted */
    struct buf events; /* of the reply at hand */
    struct store_batch batch;
    int64_t delay_ms;
    unsigned tries;
    bool behind;                    /* much is to come: no question waits for single events */
    int64_t skipped_us, greeted_us; /* siblings.h; the last hello */
    int told;                       /* how grave the trouble is that was told of and lasts; 0: none */

    pthread_mutex_t mutex; /* guards: */
    pthread_cond_t more;   /* is applied */
    bool done;             /* what the store was asked for */
    struct follower_state state;
    struct feed_cursor before[CURSOR_NODES_MAX]; /* of all nodes that were followed before state.node */
    int n_before;
    struct sibling siblings[FEEDER_REPLICAS_MAX]; /* written by the thread alone */
    int n_siblings;
};

static inline bool follower_stopping(const struct follower *f)
{
    return task_stops(&f->task);
}

/* follower_link.c: connects, greets, checks what must be equal, and finds the cursor. 0; ERR_SYSTEM and the like: try
 * again soon; ERR_INVALID, ERR_VERSION: refused, and why; ERR_NOTFOUND: lost; ERR_CLOSED: it is to stop. */
int follower_connect(struct follower *f, struct err *err);
void follower_disconnect(struct follower *f);
/* A hello in between, while no fetch is under way. */
int follower_greet(struct follower *f, struct err *err);
/* A connection whose waits say that the thread lives, and end when it is to stop. reply_max: 0: a client's. */
int follower_open(struct follower *f, size_t reply_max, struct client **client, struct err *err);
/* At most so long, until told to stop. */
void follower_rest(struct follower *f, int64_t ms);

/* follower_apply.c: makes durable that it goes on behind there, and does. */
int follower_go_on(struct follower *f, const struct feed_cursor *from, struct err *err);

/* follower_apply.c: waits until follower_tell() was called, for what the store and the pools do later; and whether to
 * try again after an error, having rested. */
void follower_await(struct follower *f);
void follower_tell(struct follower *f);
bool follower_again(struct follower *f, const char *what, const struct err *err, int64_t *delay_ms);

/* follower_pools.c: one pool, and all of them, become what they are at the primary. */
int follower_take_pool(struct follower *f, struct client *client, struct slice name, struct err *err);
int follower_compare_pools(struct follower *f, int64_t protocol, struct err *err);

/* f->events, n of them, durably, up to `to` of that run. ERR_CORRUPT: these contradict each other. */
int follower_apply(struct follower *f, uint64_t run, uint64_t to, int64_t n, struct err *err);

#endif
