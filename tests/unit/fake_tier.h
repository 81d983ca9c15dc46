/* A second tier that answers when the test says so, and as it says. One at a time in a process; one worker. */
#ifndef UNSEEN_TESTS_FAKE_TIER_H
#define UNSEEN_TESTS_FAKE_TIER_H

#include "dedup/tier.h"

struct tier *fake_tier_new(void);
void fake_tier_free(struct tier *t); /* once the server has stopped */

void fake_tier_take(struct tier *t, bool takes);
void fake_tier_blink(struct tier *t, bool blinks);      /* it isn't well, and was a moment ago */
void fake_tier_fill(struct tier *t, bool full);         /* it is well, and takes nothing now */
void fake_tier_wait(struct tier *t, int n);             /* until n questions are with it */
void fake_tier_wait_turned_away(struct tier *t, int n); /* until it has taken n questions not, ever */
int fake_tier_asked(struct tier *t);                    /* ever */
int fake_tier_has(struct tier *t);                      /* now */

/* Answers all that it has, in order, with that verdict: seen is each candidate whose hash is one of these. */
void fake_tier_answer(struct tier *t, enum tier_verdict verdict, uint64_t to, const uint64_t *seen, size_t n_seen);

#endif
