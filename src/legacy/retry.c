#include "legacy/retry.h"

int64_t retry_failed(struct retry *r, bool by_store)
{
    int64_t delay = RETRY_MIN_MS;
    for (unsigned i = 0; i < r->failures && delay < RETRY_MAX_MS; i++) {
        delay *= 2;
    }
    r->failures++;
    r->careful = r->careful || by_store;
    return delay < RETRY_MAX_MS ? delay : RETRY_MAX_MS;
}

bool retry_proved(struct retry *r)
{
    bool failed = r->failures > 0;
    r->failures = 0;
    r->careful = false;
    return failed;
}

bool retry_blames(struct retry *r, int64_t user)
{
    r->replies = r->replies > 0 && r->user == user ? r->replies + 1 : 1;
    r->user = user;
    return r->replies >= RETRY_BLAME;
}
