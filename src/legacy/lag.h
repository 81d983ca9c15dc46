/* Age of the oldest event not sent yet. Events are sent in the order of their ids, but have no time of their own in the
 * queue. So marks are set from time to time. Each says that events recorded before it have no higher id; the last mark
 * that was passed gives the lag. When there are too many, one that is close to both neighbours is dropped: the lag is
 * overstated by a thirtieth at most, and never understated.
 *
 * Pure: the caller passes the time. */
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

/* Events recorded until now have no higher id: the time is taken before the id. May be called as often as one likes. */
void lag_mark(struct lag *r, int64_t now_ms, uint64_t last_id);

/* All up to this id is sent. */
void lag_sent(struct lag *r, uint64_t id);

#endif
