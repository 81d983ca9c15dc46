/* Whether it makes sense to ask the old Redis. After some answers in a row that came late nothing is asked for a
 * moment; then one question is let through: if it is late too, nothing is asked for a moment twice as long; if it is
 * answered, all may ask again. So a Redis that hangs costs a few questions their patience, and then one a moment.
 *
 * Of one connection, since it may be that alone which hangs. Pure: the caller has the time. */
#ifndef UNSEEN_LEGACY_BREAKER_H
#define UNSEEN_LEGACY_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum { BREAKER_LATE_MAX = 5, BREAKER_FIRST_US = 1000 * 1000, BREAKER_LAST_US = 10 * 1000 * 1000 };

/* All zero is a closed one. */
struct breaker {
    unsigned late;     /* in a row */
    int64_t until_us;  /* open until then; 0: closed */
    int64_t moment_us; /* how long that was */
    bool trial;        /* one is let through, and is not back */
};

static inline bool breaker_open(const struct breaker *b)
{
    return b->until_us != 0;
}

/* Whether nothing may be asked now: for a moment, or because a trial is under way. */
bool breaker_pauses(const struct breaker *b, int64_t now_us);

/* Whether one may ask; whoever does says how it ended, by one of the functions below. */
bool breaker_allows(struct breaker *b, int64_t now_us);

bool breaker_good(struct breaker *b); /* answered in time; true: that closed it */
void breaker_late(struct breaker *b, int64_t now_us);
void breaker_unknown(struct breaker *b); /* neither: the connection was lost */

#endif
