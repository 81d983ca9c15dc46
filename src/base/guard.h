/* Clocks lie: what may be believed of the wall clock. Pure; the caller passes both clocks in.
 *
 * At start the only witness is the newest time that was ever believed: the wall clock is doubted when it is more than
 * a day behind it or more than 31 days ahead of it. From then on the witness is the monotonic clock: the wall clock is
 * doubted when it moved more than 5 minutes against it, at once or within a day. It is believed again as soon as it
 * agrees with the witness again (it was corrected), or after 24 hours without another such jump (it was the old time
 * that was wrong).
 *
 * While it is doubted nothing is swept, dropped or sealed; a play is stamped with the later of both times and the
 * window begins at the earlier one, so that a wrong clock can hide an item for longer, but never show one that was
 * played.
 */
#ifndef UNSEEN_BASE_GUARD_H
#define UNSEEN_BASE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* All zero before the first guard_observe(). */
struct guard {
    int64_t newest;    /* newest believed wall time; persisted by the owner; 0: none yet */
    int64_t offset;    /* wall - mono that is believed */
    int64_t candidate; /* wall - mono that is being proven, while doubted */
    int64_t since;     /* mono time at which the candidate appeared, or offset was last taken from the wall clock */
    bool started;
    bool anchored; /* offset comes from the wall clock, and not from the newest time that was persisted */
    bool doubted;
    char reason[96]; /* "" unless doubted */
};

enum {
    GUARD_JUMP_MS = 5 * 60 * 1000,
    GUARD_STEADY_MS = 24 * 3600 * 1000,
};

/* At start, with the persisted newest time (0: none), and whenever time may have passed (newest is then ignored). Both
 * clocks are of one moment: clock_both_ms(). Returns true when the wall clock came into doubt, jumped again while
 * doubted, or is believed again, so that the caller logs it. */
bool guard_observe(struct guard *g, int64_t newest, int64_t wall, int64_t mono);

/* Wall time by the believed offset. Equal to wall (within GUARD_JUMP_MS) unless doubted. When doubted since the start
 * it goes on from the newest time. */
int64_t guard_believed(const struct guard *g, int64_t wall, int64_t mono);

#endif
