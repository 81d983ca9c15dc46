/* Whether to ask the old Redis. After some late answers in a row there is a pause, then one question is let through. If
 * it is late too, the next pause is twice as long; if it is answered, all may ask again. So a Redis that hangs delays a
 * few questions, and then one for each pause.
 *
 * One for each connection, since a single one may hang. Pure: the caller passes the time. */
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

/* Whether nothing may be asked now: in a pause, or because a trial is under way. */
bool breaker_pauses(const struct breaker *b, int64_t now_us);

/* Whether a question may be asked; the caller then reports how it ended, by one of the functions below. */
bool breaker_allows(struct breaker *b, int64_t now_us);

bool breaker_good(struct breaker *b); /* answered in time; true: that closed it */
void breaker_late(struct breaker *b, int64_t now_us);
void breaker_unknown(struct breaker *b); /* neither: the connection was lost */

#endif
