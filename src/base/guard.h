/* Clocks lie: what may be believed of the wall clock. Pure; the caller passes both clocks in.
 *
 * The wall clock is doubted when it is more than a day behind the newest time ever seen, more than 31
 * days ahead of it, or moved more than 5 minutes against the monotonic clock. It is believed again after
 * 24 hours without another such jump. While it is doubted nothing is swept, dropped or sealed; a play is
 * stamped with the later of both times and the window begins at the earlier one, so that a wrong clock
 * can hide an item for longer, but never show one that was played.
 */
#ifndef UNSEEN_BASE_GUARD_H
#define UNSEEN_BASE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct guard {
    int64_t newest;    /* newest believed wall time; persisted by the owner; 0: none yet */
    int64_t offset;    /* wall - mono that is believed */
    int64_t candidate; /* wall - mono that is being proven, while doubted */
    int64_t since;     /* mono time at which the candidate appeared */
    bool doubted;
    bool started;
    char reason[96]; /* "" unless doubted */
};

enum {
    GUARD_JUMP_MS = 5 * 60 * 1000,
    GUARD_STEADY_MS = 24 * 3600 * 1000,
};

/* At start, with the persisted newest time (0: none), and whenever time may have passed. Returns true when
 * doubted or not changed by this call, so that the caller logs it. */
bool guard_observe(struct guard *g, int64_t newest, int64_t wall, int64_t mono);

/* Wall time by the believed offset. Equal to wall (within GUARD_JUMP_MS) unless doubted. */
int64_t guard_believed(const struct guard *g, int64_t wall, int64_t mono);

#endif
