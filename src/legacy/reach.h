/* How long ago that was recorded which waits to be sent. Events are sent in the order of their ids, but a queue that is
 * never empty has no moment from which that could be counted. So marks are set on the way, each of which says that what
 * was recorded by then has no higher id; the last one that was passed is how far one has come. When there are too many,
 * one that stands closely between two others is dropped: what waits seems older than it is by a thirtieth of the lag at
 * most, and never younger.
 *
 * Pure: the caller has the time. */
#ifndef UNSEEN_LEGACY_REACH_H
#define UNSEEN_LEGACY_REACH_H

#include <stdint.h>

enum { REACH_MARKS = 64 };

/* All zero, but for reached_ms. */
struct reach {
    int64_t reached_ms; /* all that was recorded until then is sent */
    struct reach_mark {
        int64_t at_ms;
        uint64_t id;
    } marks[REACH_MARKS]; /* ids ascend; not passed yet */
    int n;
};

/* What was recorded until now has no higher id: the time is taken before the id. As often as one likes. */
void reach_mark(struct reach *r, int64_t now_ms, uint64_t last_id);

/* All up to this id is sent. */
void reach_sent(struct reach *r, uint64_t id);

#endif
