/* A rate limit: whatever is taken beyond the rate must be waited for. All zero is a new one. Pure: the caller passes
 * the time, in us of a monotonic clock, and the rate, which may change from call to call. */
#ifndef UNSEEN_LEGACY_RATE_LIMITER_H
#define UNSEEN_LEGACY_RATE_LIMITER_H

#include <stdint.h>

enum { RATE_LIMITER_BURST_US = 100 * 1000 }; /* of the rate's worth may be taken at once */

struct rate_limiter {
    double ahead; /* taken beyond what the rate allowed up to at_us; negative: still free */
    int64_t at_us;
};

/* Takes n, at `rate` a second; rate 0: no limit. */
void rate_limiter_take(struct rate_limiter *p, int64_t now_us, uint64_t n, int64_t rate);

/* How long until the next may be taken, in us; 0: now. */
int64_t rate_limiter_left(struct rate_limiter *p, int64_t now_us, int64_t rate);

#endif
