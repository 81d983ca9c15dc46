#include "legacy/breaker.h"

bool breaker_allows(struct breaker *b, int64_t now_us)
{
    if (!breaker_open(b)) {
        return true;
    }
    if (b->trial || now_us < b->until_us) {
        return false;
    }
    b->trial = true;
    return true;
}

bool breaker_good(struct breaker *b)
{
    bool was_open = breaker_open(b);
    *b = (struct breaker){0};
    return was_open;
}

bool breaker_late(struct breaker *b, int64_t now_us)
{
    bool was_open = breaker_open(b);
    if (was_open && !b->trial) {
        return false; /* asked before it opened */
    }
    if (++b->late < BREAKER_LATE_MAX && !was_open) {
        return false;
    }
    b->moment_us = was_open ? 2 * b->moment_us : BREAKER_FIRST_US;
    b->moment_us = b->moment_us < BREAKER_LAST_US ? b->moment_us : BREAKER_LAST_US;
    b->until_us = now_us + b->moment_us;
    b->trial = false;
    return !was_open;
}

void breaker_unknown(struct breaker *b)
{
    b->trial = false;
}
