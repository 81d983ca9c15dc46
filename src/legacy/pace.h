/* A rate limit: what is taken beyond the rate has to be waited for. All zero is a fresh one. Pure: the caller brings
 * the time, in us of a clock that doesn't go back, and the rate, which may change from call to call. */
#ifndef UNSEEN_LEGACY_PACE_H
#define UNSEEN_LEGACY_PACE_H

#include <stdint.h>

enum { PACE_BURST_US = 100 * 1000 }; /* of the rate's worth may be taken at once */

struct pace {
    double ahead; /* taken beyond what the rate allowed up to at_us; negative: still free */
    int64_t at_us;
};

/* n are taken, of so many a second; rate 0: as many as one likes. */
void pace_take(struct pace *p, int64_t now_us, uint64_t n, int64_t rate);

/* How long until the next may be taken, in us; 0: now. */
int64_t pace_left(struct pace *p, int64_t now_us, int64_t rate);

#endif
