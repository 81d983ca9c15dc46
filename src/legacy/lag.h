/* Age of the oldest event not sent yet. Events are sent in the order of their ids, but a queue that is
 * never empty has no moment from which that could be counted. So marks are set on the way, each of which says that what
 * was recorded by then has no higher id; the last one that was passed is how far one has come. When there are too many,
 * one that stands closely between two others is dropped: what waits seems older than it is by a thirtieth of the lag at
 * most, and never younger.
 *
 * Pure: the caller has the time. */
#ifndef UNSEEN_LEGACY_LAG_H
#define UNSEEN_LEGACY_LAG_H

#include <stdint.h>

enum { LAG_MARKS = 64 };

/* All zero, but for reached_ms. */
struct lag {
    int64_t reached_ms; /* all that was recorded until then is sent */
    struct lag_mark {
        int64_t at_ms;
        uint64_t id;
    } marks[LAG_MARKS]; /* ids ascend; not passed yet */
    int n;
};

/* What was recorded until now has no higher id: the time is taken before the id. As often as one likes. */
void lag_mark(struct lag *r, int64_t now_ms, uint64_t last_id);

/* All up to this id is sent. */
void lag_sent(struct lag *r, uint64_t id);

#endif
