/* What is counted and measured of every command: how long it took, from the arrival of its last byte until its reply
 * was written (so a durable write includes its commit, and a pipelined command those before it), and with which error
 * it ended.
 *
 * Each thread that answers clients has a meter of its own, which others only read. */
#ifndef UNSEEN_SERVICE_METER_H
#define UNSEEN_SERVICE_METER_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buckets.h"
#include "base/figure.h"
#include "base/slice.h"

/* What has a line of its own; all else is "other". */
enum op {
    OP_OTHER,
    OP_PLAYED,
    OP_PLAYEDAT,
    OP_DELIVERED,
    OP_UNSEEN,
    OP_SEEN,
    OP_FILTER,
    OP_FILTER_DELIVER, /* which is a write */
    OP_FILTER_MANY,    /* of many users */
    OP_BLOCK,
    OP_UNBLOCK,
    OP_FORGET,
    OP_MERGE,
    OP_WHY,
    OP_HISTORY,
    OP_EXPOSURE,
    OP_RING,
    OP_MONTHS,
    OP_INFO,
    OPS,
};
extern const char *const op_names[OPS];

/* By a command's name, in lower case. */
enum op op_find(const char *name);

/* Errors by the first word of their text, which is what clients decide on. The last is for all others. */
enum { METER_ERRORS = 12 };
extern const char *const meter_error_names[METER_ERRORS];

/* How a command ended. */
enum meter_end {
    METER_DONE,
    METER_FAILED,   /* with an error */
    METER_REJECTED, /* with one before it was run: too few words, no right to it, a server that is loading */
};

/* What requests were about. */
enum meter_count {
    COUNT_QUESTIONS,
    COUNT_CANDIDATES,
    COUNT_UNSEEN,
    COUNT_LARGE,           /* questions about large users, asked on the offload thread */
    COUNT_COLD,            /* questions that had to wait for the disk, on threads beside the workers */
    COUNT_HEDGE_ASKED,     /* questions that were put to the second tier, too */
    COUNT_HEDGE_WON,       /* that it answered first */
    COUNT_HEDGE_WASTED,    /* that the disk did */
    COUNT_HEDGE_NOT_WHOLE, /* that it couldn't answer, or not as of late enough */
    COUNT_HEDGE_FAILED,    /* or that it failed to */
    COUNT_HEDGE_REFUSED,   /* that would have been put to it, beyond the budget */
    COUNT_FALSE_HITS,      /* expected, in millionths: a question's candidates times the user's error */
    COUNT_OVER_ERROR_RATE, /* questions about users whose window's error is above error_rate */
    COUNT_PLAYS,
    COUNT_DELIVERIES,
    COUNT_SKEWED,        /* event times replaced by the server's */
    COUNT_TIMES_REFUSED, /* past retention, too far ahead, or in seconds */
    METER_COUNTS,
};
extern const struct figure meter_figures[METER_COUNTS];

struct meter {
    struct buckets ops[OPS];                     /* all, */
    _Atomic uint64_t failed[OPS], rejected[OPS]; /* and of them these */
    _Atomic uint64_t errors[METER_ERRORS];
    _Atomic uint64_t counts[METER_COUNTS];
};

/* Only its own thread writes to a meter. */
static inline void meter_add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void meter_count(struct meter *m, enum meter_count what, uint64_t n)
{
    meter_add(&m->counts[what], n);
}

static inline void meter_note(struct meter *m, enum op op, int64_t us, uint64_t times, enum meter_end end)
{
    buckets_note(&m->ops[op], &buckets_us, us > 0 ? (uint64_t)us : 0, times);
    if (end != METER_DONE) {
        meter_add(end == METER_FAILED ? &m->failed[op] : &m->rejected[op], times);
    }
}

/* text: "WRONGPASS invalid ...". */
void meter_error(struct meter *m, struct slice text);

#endif
