/* Which moments an archive can give back, and what each of them takes. For who reads it; one thread.
 *
 * A moment is the last event whose recorded time, as a running maximum, is not later. It takes a round that has ended
 * and of which every part's TO is not behind the event, and segments without a gap from that round's FROM on. */
#ifndef UNSEEN_ARCHIVE_MOMENT_H
#define UNSEEN_ARCHIVE_MOMENT_H

#include "archive/catalog.h"
#include "archive/round_end.h"

#define MOMENT_NEWEST INT64_MAX

struct moment_segment {
    struct catalog_segment is;
    struct object_head head;
};

struct moment {
    uint64_t node;
    struct catalog_round round;
    struct round_end end;
    struct buf list; /* struct moment_segment each: the chain from round.from on, as far as it goes */
    const struct moment_segment *segments;
    size_t n_segments;
    uint64_t reach;     /* the chain's last event */
    uint64_t to;        /* the moment's */
    int64_t to_ms;      /* when it was recorded, about; of a round alone, when that ended */
    uint64_t lacks;     /* segments up to `to` that lack users who were imported */
    bool beside;        /* two copies of the folder wrote at the same time: what one of them recorded is missing */
    bool gap;           /* NEWEST: more is there, behind a gap */
    int64_t refused_ms; /* when its first event was recorded; INT64_MIN: not known */
    struct err refused; /* code ERR_KEY: the chain ends before a segment of another key, and goes on with it */
};

/* node 0: the one that is there alone, or whose events are the newest of all. at_ms: a wall time, or MOMENT_NEWEST.
 * ERR_NOTFOUND: there is no such node, or no such moment, and why; ERR_INVALID: several nodes have nothing to do with
 * each other, and none is named; ERR_KEY: what is asked for needs another key; ERR_CORRUPT and what the depot says.
 * Zeroed before; moment_free() at any time. */
int moment_find(struct depot *d, const struct catalog *c, uint64_t node, int64_t at_ms, struct moment *m,
                struct err *err);
void moment_free(struct moment *m);

/* The end of a round, which says what its parts are. ERR_CORRUPT: or they are not all there. */
int moment_read_end(struct depot *d, const struct catalog *c, const struct catalog_round *r, struct round_end *end,
                    struct err *err);

/* The head of an object. */
int moment_read_head(struct depot *d, const char *name, struct object_head *head, struct err *err);

/* The object of that name, whole and checked: its records replace those in `records`. bytes: memory to read into. */
int moment_read_object(struct depot *d, const char *name, struct buf *bytes, struct object_head *head,
                       struct buf *records, struct err *err);

/* Nodes that have an ended round, each once; returns how many, at most max. */
size_t moment_nodes(const struct catalog *c, uint64_t *nodes, size_t max);

/* From when to when moments are there, by each round; calls each() for a stretch without a gap. */
struct moment_stretch {
    uint64_t node;
    uint32_t round;
    uint64_t first, last; /* events */
    int64_t first_ms, last_ms;
    uint64_t bytes; /* of the round and its segments */
    uint64_t segments;
    bool lacks;
};
/* ERR_KEY: there are rounds of another key, too, of which each() was not called. */
int moment_stretches(struct depot *d, const struct catalog *c, int (*each)(void *arg, const struct moment_stretch *s),
                     void *arg, struct err *err);

#endif
