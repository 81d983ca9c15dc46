/* A day and a month, for the page: points of five minutes and of an hour, which outlive a restart as two memos of the
 * store (store/memos.h). A point of the month grows with each of the day that ends within its hour, so that both are
 * kept together and a restart costs five minutes at most.
 *
 * As kept, a span is text, a point on each line, the oldest first, as `SELECT value FROM meta WHERE name = 'span_day'`
 * shows in the shell of staging.db:
 *   at,ms,questions,writes,errors,candidates,hidden,question_p99_us,write_p99_us
 *
 * Pure: who has the counters, the clock and the store hands over what they say. Owned by the HTTP thread. */
#ifndef UNSEEN_HTTP_SPANS_H
#define UNSEEN_HTTP_SPANS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"
#include "http/timeline.h"

enum {
    SPAN_DAY_STEP_MS = 5 * 60 * 1000,
    SPAN_DAY_MS = 24 * 3600 * 1000,
    SPAN_DAY_POINTS = SPAN_DAY_MS / SPAN_DAY_STEP_MS,
    SPAN_MONTH_STEP_MS = 3600 * 1000,
    SPAN_MONTH_POINTS = 31 * 24,
};

/* What took place in a span that ended at a time. */
struct span_point {
    int64_t at_ms; /* wall */
    uint64_t ms;   /* how long it was */
    uint64_t questions, writes, errors, candidates, hidden;
    uint64_t question_p99_us, write_p99_us; /* of an hour: the highest of its five minutes; 0: nothing took place */
};

struct span {
    size_t n;
    struct span_point points[SPAN_MONTH_POINTS]; /* the oldest first; of a day only SPAN_DAY_POINTS */
};

/* All zero is an empty one. */
struct spans {
    bool begun;
    struct timeline_mark from; /* where the next point begins */
    struct span day, month;
};

/* Whether a point has ended: then both spans are to be kept. */
bool spans_note(struct spans *spans, const struct timeline_mark *now, int64_t wall_ms);

/* Appends a span as text. */
void span_write(const struct span *span, struct buf *to);

/* Reads one of at most so many points. False: it isn't one, and the span is empty. */
bool span_read(struct span *span, size_t most, struct slice text);

/* Of the UTC day of this time, up to the mark. */
struct span_today {
    uint64_t questions, candidates, hidden;
};
struct span_today spans_today(const struct spans *spans, const struct timeline_mark *now, int64_t wall_ms);

#endif
