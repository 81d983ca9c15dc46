#include "legacy/breaker.h"

#include "base/backoff.h"

bool breaker_pauses(const struct breaker *b, int64_t now_us)
{
    return breaker_open(b) && (b->trial || now_us < b->until_us);
}

bool breaker_allows(struct breaker *b, int64_t now_us)
{
    if (breaker_pauses(b, now_us)) {
        return false;
    }
    b->trial = breaker_open(b);
    return true;
}

bool breaker_good(struct breaker *b)
{
    bool was_open = breaker_open(b);
    *b = (struct breaker){0};
    return was_open;
}

void breaker_late(struct breaker *b, int64_t now_us)
{
    bool was_open = breaker_open(b);
    if (was_open && !b->trial) {
        return; /* asked before it opened */
    }
    if (++b->late < BREAKER_LATE_MAX && !was_open) {
        return;
    }
    b->moment_us = backoff_next(b->moment_us, BREAKER_FIRST_US, BREAKER_LAST_US);
    b->until_us = now_us + b->moment_us;
    b->trial = false;
}

void breaker_unknown(struct breaker *b)
{
    b->trial = false;
}
