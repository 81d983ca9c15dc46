/* The primary's half: a thread that answers REPLICA FETCH from the feed, and a table of who follows.
 *
 * A fetch waits for events, for wait_ms at most, but only of a replica that has all it was sent durable: so one that
 * still has something to tell is answered at once, perhaps with nothing, and tells it with its next fetch. A slow
 * replica holds up no other: what waits for it waits in the feed, on disk.
 */
#ifndef UNSEEN_REPLICA_FEEDER_H
#define UNSEEN_REPLICA_FEEDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"
#include "net/loop_queue.h"
#include "store/feed.h"
#include "store/node.h"

struct feeder;
struct replica;

enum {
    FEEDER_REPLICAS_MAX = 8,
    FEEDER_REPLY_MAX = 256 * 1024,
    FEEDER_WAIT_MAX_MS = 10 * 1000,
    FEEDER_GONE_MS = 5 * 1000, /* a replica that doesn't fetch for so long is away */
};

struct feeder_fetch {
    struct feeder_fetch *next;
    uint64_t replica;   /* its node */
    uint64_t node, run; /* whose seqs these are: */
    uint64_t after;     /* it has read up to here, */
    uint64_t durable;   /* and has so much durable */
    bool groups;        /* it knows groups of deliveries; else it is told none */
    size_t bytes_max;
    int64_t wait_ms, began_us;
    int64_t sent_ms; /* the replica's wall clock, as it asked */

    struct err err;    /* the answer: ERR_NOTFOUND: not enlisted, or lost: clone again; ERR_VERSION; ERR_CLOSED */
    struct buf events; /* event.h */
    uint32_t n;
    uint64_t to;                              /* of the last of them; else as `after` */
    uint64_t last;                            /* the newest event there is */
    void (*done)(struct feeder_fetch *fetch); /* on the feeder's thread */
    void *owner;
};

int feeder_start(struct replica *r, struct feeder **feeder, struct err *err);
void feeder_stop(struct feeder *f); /* all fetches are answered: ERR_CLOSED */
void feeder_free(struct feeder *f); /* once the store is closed, too */

/* Any thread. fetch is the feeder's until done(). */
void feeder_fetch(struct feeder *f, struct feeder_fetch *fetch);

struct feeder_replica {
    uint64_t node;
    char address[NODE_ADDRESS_TEXT]; /* as it says, or did in an earlier run; "": not known */
    uint64_t heard; /* of this node as the primary of that term, with a hello; 0: not since the start */
    bool connected;
    int64_t seen_ms;        /* its last fetch, wall time; 0: not since the start */
    int64_t clock_apart_ms; /* its wall clock less ours, as far as can be told */
    uint64_t read, durable;
    struct feed_state queue;
};
/* Those that are enlisted; returns how many. */
int feeder_look(struct feeder *f, struct feeder_replica out[FEEDER_REPLICAS_MAX]);
/* It has said hello, and is answered with that term of this node; 0: of another one. */
void feeder_tell_address(struct feeder *f, uint64_t node, const char *address, uint64_t term);
/* Of one that is enlisted, as it was known before: unless it has said hello since the start. */
void feeder_know_address(struct feeder *f, uint64_t node, const char *address);

#endif
