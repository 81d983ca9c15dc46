#include "legacy/rate_limiter.h"

#include <math.h>

static void let_pass(struct rate_limiter *p, int64_t now_us, int64_t rate)
{
    double least = -(double)rate * RATE_LIMITER_BURST_US / 1e6;
    p->ahead -= (double)rate * (double)(now_us - p->at_us) / 1e6;
    p->at_us = now_us;
    if (p->ahead < least || rate <= 0) {
        p->ahead = least;
    }
}

void rate_limiter_take(struct rate_limiter *p, int64_t now_us, uint64_t n, int64_t rate)
{
    let_pass(p, now_us, rate);
    if (rate > 0) {
        p->ahead += (double)n;
    }
}

int64_t rate_limiter_left(struct rate_limiter *p, int64_t now_us, int64_t rate)
{
    let_pass(p, now_us, rate);
    return p->ahead > 0 ? (int64_t)ceil(p->ahead * 1e6 / (double)rate) : 0;
}
