/* When the migration tries again after a failure, and how carefully. Pure. */
#ifndef UNSEEN_LEGACY_RETRY_H
#define UNSEEN_LEGACY_RETRY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 10 * 1000,
    RETRY_BLAME = 3, /* replies in a row that break the limits, until the user's key is blamed */
};

/* All zero: nothing has failed. */
struct retry {
    int64_t delay_ms; /* what the last failure cost; 0: users have become durable since */
    bool careful;     /* the store failed: a few users must succeed before more are read */
    int64_t user;     /* whose reply could not be taken, by key, */
    unsigned replies; /* so many times in a row */
};

/* Notes a failure. Returns after how many ms to try again. */
int64_t retry_failed(struct retry *r, bool by_store);

/* Users became durable. Whether there had been failures. */
bool retry_proved(struct retry *r);

/* A reply about the user was too large. Returns whether to note that as a problem and skip the user. */
bool retry_blames(struct retry *r, int64_t user);

#endif
