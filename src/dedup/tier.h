/* A second tier: another place that can answer a question, when the disk here is late or broken, such as a replica
 * (src/replica/second.h). There is one at most.
 *
 * It answers as of a place in this node's own feed: all events up to `to` are in its answer, and maybe some later ones.
 * What it lacks is in memory here, or the answer doesn't count; the asker finds that out (service/ask_hedge.c):
 *
 *   asker_recent()              what memory here has, and the newest event that memory no longer has: `left`
 *   tier ask()                  answers, as of `to`
 *   to >= left, and feed->covers(): no forget of the user is later than `to`
 *   tier_unite()                seen is what either says
 *
 * In this order: what leaves the memory here after asker_recent() had a look was seen by that.
 *
 * Each loop has a port of its own, used on its thread alone.
 */
#ifndef UNSEEN_DEDUP_TIER_H
#define UNSEEN_DEDUP_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "base/slice.h"
#include "net/budget.h"

struct tier;
struct tier_port;
struct uv_loop_s;

enum tier_verdict {
    TIER_ANSWERED,
    TIER_NOT_WHOLE, /* it doesn't have everything now, or not of this user (err says) */
    TIER_FAILED,    /* it can't be reached, refuses, or spoke nonsense (err says) */
};

/* A question which of n candidates are unseen. The asking side owns it and all that it points to, fills in the first
 * part, and keeps it until done() or ask_drop(). */
struct tier_question {
    void (*done)(struct tier_question *q); /* on the loop, once, never from within ask() */
    struct slice user;
    const uint64_t *hashes; /* hash_id() of each candidate */
    size_t n;
    int first_month; /* of the window */

    enum tier_verdict verdict;
    uint8_t *unseen; /* bit i, most significant first: (n + 7) / 8 bytes; that much is written whatever the verdict */
    double error;    /* the chance that a candidate which the user never had is hidden */
    uint64_t to;     /* in this node's feed */
    struct err err;

    void *way; /* the tier's own, from ask() to done() or drop() */
};

struct tier_ops {
    const char *name; /* "replica" */

    /* Any thread; port_free() once its loop has ended. ERR_NOMEM. */
    int (*port_new)(struct tier *tier, struct tier_port **port, struct err *err);
    void (*port_free)(struct tier_port *port);

    /* The rest on the port's thread. open() connects; memory: the loop's share of request_memory, which copies of
     * questions count in. close() ends what is under way, with done() (TIER_FAILED); then the loop may end. */
    void (*port_open)(struct tier_port *port, struct uv_loop_s *loop, struct budget_share *memory);
    void (*port_close)(struct tier_port *port);

    /* False: it can't be asked now, and done() is not called. Bounded: it takes no more than some number of questions
     * at a time, and none for which there is no memory. No question waits for a tier that is dead: within 100 ms of its
     * death (no answer, though one is due) it takes no more, and what is under way is done() as TIER_FAILED. */
    bool (*ask)(struct tier_port *port, struct tier_question *q);
    void (*drop)(struct tier_port *port, struct tier_question *q); /* its answer is not wanted any more */

    /* Any thread: whether it would be asked; else why not. */
    bool (*is_well)(struct tier *tier, char *why, size_t size);
    bool (*was_well)(struct tier *tier); /* it isn't, and a moment ago it was: it may just have been busy */
};

/* The first member of each tier's own struct. */
struct tier {
    const struct tier_ops *ops;
};

/* Takes out of a's answer what the second tier has seen: seen is what either says. Both are about the same n
 * candidates. Returns how many are unseen in a. */
size_t tier_unite(uint8_t *a, const uint8_t *tier, size_t n);

#endif
