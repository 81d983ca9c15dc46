/* What the files of the feed share. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_FEED_IMPL_H
#define UNSEEN_STORE_SQLITE_STAGING_FEED_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/recent_forgets.h"
#include "store/sqlite/state.h"

enum {
    FEED_CHUNK = 4096, /* rows that one transaction deletes at most: a few ms */
    FEED_MARKS = 24,
    FEED_MARK_MS = FEED_HOLD_MS / (FEED_MARKS - 4), /* between two of them */
};

/* How far a remote consumer was at a time. */
struct feed_mark {
    uint64_t cursor;
    uint64_t done_bytes; /* since the start */
    int64_t at_ms;       /* monotonic */
};

struct consumer {
    char name[FEED_NAME_MAX];
    bool kept; /* it has a row of feed_consumers */
    bool listens;
    struct feed_consumer by;
    uint64_t cursor, gap; /* holds what is above cursor and below gap; gap 0: none */
    uint64_t events, bytes, left_out;
    int64_t lost_ms, oldest_ms, in_step_ms;
    uint64_t saved; /* the cursor, as it stands in the file */
    bool remote;    /* what it has done is held from the first mark on */
    struct feed_mark marks[FEED_MARKS];
    int n_marks;
    uint64_t done_bytes;

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
    bool starting;         /* feed_await_absent() */
    pthread_mutex_t mutex; /* guards consumers but for `now`, and: */
    struct consumer consumers[FEED_CONSUMERS_MAX];
    uint64_t last;    /* of what may be read */
    uint64_t pending; /* events that were done and not looked at for deletion since */
    uint64_t deleted; /* all up to it are gone from the front, or go now */
    int64_t held_ms;  /* monotonic: when what is held was looked at last */

    struct recent_forgets forgets;

    _Atomic int n; /* consumers: 0 costs nothing */
    _Atomic uint64_t newest;

    /* The stager's. */
    bool more;           /* more may be deleted than a chunk was */
    uint64_t counted_to; /* rows up to this id are in the consumers' events */
    bool added;          /* of the transaction under way, as all that follows */
    uint64_t rowless;    /* the highest id of an event that no staged row has; 0: none */
    int64_t now_ms;
    uint64_t sweeping; /* of pending; ... */
    bool swept, more_left;
    struct log_limit log;
};

static inline struct consumer *feed_end(struct feed *f)
{
    return f->consumers + f->n;
}

static inline bool feed_holds(const struct consumer *c, uint64_t seq)
{
    return c->kept && seq > c->cursor && (c->gap == 0 || seq < c->gap);
}

/* The first seq that a remote consumer may still want is behind this one. With the mutex. */
uint64_t feed_held(const struct consumer *c);
/* Notes where it is, and forgets marks that hold nothing any more. With the mutex. */
void feed_mark(struct consumer *c, uint64_t bytes_max);

/* feed_write.c, inside a transaction: those whose row changes with it; also those whose cursor has moved; or all that
 * have one. */
enum feed_save { FEED_SAVE_CHANGED, FEED_SAVE_CURSORS, FEED_SAVE_ALL };
int feed_save(struct sqlite_store *s, enum feed_save which, struct err *err);
void feed_settle(struct feed *f, uint64_t last_id); /* what the transaction has changed is durable */
void feed_begin_anew(struct feed *f);               /* or it failed */

/* feed_sweep.c, inside a transaction: writes the cursors, and deletes a chunk of what no consumer holds. */
int feed_sweep(struct sqlite_store *s, struct err *err);
uint64_t feed_pending(struct feed *f);

#endif
