/* The last hour, for the page: what had been counted at moments TIMELINE_STEP_MS apart. A point of the line is the
 * difference between two of them, and so is "now". Memory is fixed, some 90 KiB.
 *
 * Pure: the caller hands over the counters and the clock. Owned by the HTTP thread. */
#ifndef UNSEEN_HTTP_TIMELINE_H
#define UNSEEN_HTTP_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buckets.h"

enum {
    TIMELINE_STEP_MS = 15 * 1000,
    TIMELINE_MS = 3600 * 1000,
    TIMELINE_POINTS = TIMELINE_MS / TIMELINE_STEP_MS,
    TIMELINE_RECENT_MS = 10 * 1000, /* "now" is over at least so long, and at most a step more */
};

/* What was counted since the start, at a moment. */
struct timeline_mark {
    int64_t mono_ms;
    uint64_t questions, candidates, unseen, writes, errors;
    uint64_t data_bytes;                /* what the files take on disk, without their logs; 0: not known */
    struct bucket_sums asked, recorded; /* how long questions and writes took */
};

/* All zero is an empty one. */
struct timeline {
    struct timeline_mark marks[TIMELINE_POINTS + 1];
    size_t n;    /* marks that are there */
    size_t next; /* place of the next one */
};

/* Keeps the mark when a step has passed since the last one kept, or it is the first. */
void timeline_note(struct timeline *t, const struct timeline_mark *mark);

/* The i-th mark, the oldest first. */
const struct timeline_mark *timeline_mark(const struct timeline *t, size_t i);

/* The mark that "now" is counted from: the newest that is at least TIMELINE_RECENT_MS old, else the oldest; NULL: there
 * is none. */
const struct timeline_mark *timeline_recent(const struct timeline *t, int64_t now_mono_ms);

/* The oldest mark of the last hour whose data_bytes are known; NULL: there is none. */
const struct timeline_mark *timeline_data(const struct timeline *t, int64_t now_mono_ms);

/* Quantiles of what took place between two marks, in microseconds; below 0: nothing did. */
struct timeline_times {
    double p50_us, p99_us;
};

struct timeline_point {
    double seconds;
    double questions, writes, errors; /* a second; 0 when no time has passed */
    double hidden;                    /* share of the candidates; below 0: there were none */
    struct timeline_times asked, recorded;
};
struct timeline_point timeline_between(const struct timeline_mark *from, const struct timeline_mark *to);

#endif
