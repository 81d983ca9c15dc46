#include "legacy/retry.h"

#include "base/backoff.h"

int64_t retry_failed(struct retry *r, bool by_store)
{
    r->delay_ms = backoff_next(r->delay_ms, RETRY_MIN_MS, RETRY_MAX_MS);
    r->careful = r->careful || by_store;
    return r->delay_ms;
}

bool retry_proved(struct retry *r)
{
    bool failed = r->delay_ms > 0;
    r->delay_ms = 0;
    r->careful = false;
    return failed;
}

bool retry_blames(struct retry *r, int64_t user)
{
    r->replies = r->replies > 0 && r->user == user ? r->replies + 1 : 1;
    r->user = user;
    return r->replies >= RETRY_BLAME;
}
