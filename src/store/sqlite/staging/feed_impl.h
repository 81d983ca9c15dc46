/* What the files of the feed share. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_FEED_IMPL_H
#define UNSEEN_STORE_SQLITE_STAGING_FEED_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/sqlite/staging/feed.h"
#include "store/sqlite/state.h"

enum { FEED_CHUNK = 4096 }; /* rows that one transaction deletes at most: a few ms */
enum { FEED_STEPS = 32 };   /* in which a remote consumer lets go of what it holds behind its cursor */

struct consumer {
    char name[FEED_NAME_MAX];
    bool kept; /* it has a row of feed_consumers */
    bool listens;
    struct feed_consumer by;
    uint64_t cursor, gap; /* holds what is above cursor and below gap; gap 0: none */
    uint64_t events, bytes, left_out;
    int64_t lost_ms, oldest_ms, in_step_ms;
    bool remote;
    uint64_t held;       /* remote: what is above it is not deleted */
    uint64_t held_bytes; /* up to the cursor */
    struct feed_step {
        uint64_t to, events, bytes; /* done between began_ms and at_ms */
        int64_t began_ms, at_ms;
    } steps[FEED_STEPS]; /* oldest first */
    int n_steps;
    uint64_t saved; /* the cursor, as it stands in the file */

    /* The stager's, of the transaction under way. */
    struct {
        uint64_t first; /* its cursor moves to before this one, and its gap ends */
        uint64_t gap;   /* one begins here */
        int64_t events, bytes;
        uint64_t left_out;
        int64_t lost_ms;
        uint64_t limit; /* that was reached; 0: it is absent */
        bool takes;
        uint64_t saving; /* the cursor that is written */
    } now;
};

struct feed {
    pthread_mutex_t mutex; /* guards consumers but for `now`, and: */
    struct consumer consumers[FEED_CONSUMERS_MAX];
    uint64_t last;        /* of what may be read, but for forgets that history lacks: */
    struct buf unsettled; /* uint64_t each */
    uint64_t pending;     /* events that were done and not looked at for deletion since */

    _Atomic uint64_t durable; /* of the newest row, or forget, that is durable: also when nobody consumes it */

    _Atomic int n; /* consumers: 0 costs nothing */

    /* The stager's. */
    bool more;           /* more may be deleted than a chunk was */
    uint64_t counted_to; /* rows up to this id are in the consumers' events */
    bool added;          /* of the transaction under way, as all that follows */
    int64_t now_ms;
    uint64_t sweeping; /* of pending; ... */
    bool swept, more_left;
    struct log_limit log;
};

static inline struct consumer *feed_end(struct feed *f)
{
    return f->consumers + f->n;
}

/* feed.c, under the mutex */
struct consumer *feed_find(struct feed *f, const char *name);
struct consumer *feed_add_consumer(struct feed *f, const char *name);

/* feed_remote.c. Under the mutex: that consumer has moved its cursor; returns how many events may be deleted by it. */
uint64_t feed_hold(const struct sqlite_store *s, struct consumer *c, uint64_t events, uint64_t bytes, int64_t now_ms);
uint64_t feed_remote_limit(const struct config *live);
bool feed_is_remote(const char *name);
void feed_age(struct sqlite_store *s);                      /* lets go of what has become old */
uint64_t feed_visible(const struct feed *f, uint64_t last); /* under the mutex: up to before a forget to be done */

/* Behind what its consumer has done nothing is held, but for a remote one. */
static inline uint64_t feed_kept_from(const struct consumer *c)
{
    return c->remote && c->held < c->cursor ? c->held : c->cursor;
}

static inline bool feed_holds(const struct consumer *c, uint64_t seq)
{
    return c->kept && seq > c->cursor && (c->gap == 0 || seq < c->gap);
}

/* feed_write.c, inside a transaction: those whose row changes with it; also those whose cursor has moved; or all that
 * have one. */
enum feed_save { FEED_SAVE_CHANGED, FEED_SAVE_CURSORS, FEED_SAVE_ALL };
int feed_save(struct sqlite_store *s, enum feed_save which, struct err *err);
void feed_settle(struct feed *f, uint64_t last_id); /* what the transaction has changed is durable */
void feed_begin_anew(struct feed *f);               /* or it failed */

/* feed_sweep.c, inside a transaction: writes the cursors, and deletes a chunk of what nobody holds. */
int feed_sweep(struct sqlite_store *s, struct err *err);
uint64_t feed_pending(struct feed *f);

#endif
