/* Whether the wall clock may be believed. Pure; the caller passes both clocks in.
 *
 * At start the wall clock is compared with the newest time that was ever believed, or, if that was in doubt already,
 * with the time that the monotonic clock reached from there. From then on it is compared with the monotonic clock, and
 * doubted when it moved more than 5 minutes against it, at once or within a day.
 *
 *   the wall clock is                          it is believed
 *   as the witness says, or at start less      at once
 *     than a day behind, 31 days ahead
 *   off by more, but neither of the below      after 24 hours without another jump
 *   more than a day behind the newest time     once it has passed it, never by being steady
 *   more than 31 days ahead of the witness     never: guard_accept()
 *   at a first start before the program was    once it is later than that, or guard_accept(); until then no
 *     built                                    time is known, and nothing can be stamped
 *
 * While it is doubted nothing is swept, dropped or sealed; a play is stamped with the later of both times and the
 * window begins at the earlier one, so that a wrong clock can hide an item for longer, but never show one that was
 * played. No play is stamped below the newest time that was ever believed, in doubt or not. Only an administrator takes
 * that time back: guard_set_back().
 *
 * A believed leap ahead, by more than a week and while the machine was on, means that the time before was wrong:
 * earlier plays are stamped too early. So the newest time before the leap is kept as `unsure`, and for `hold_ms` the
 * window begins no later than by that time. No play leaves the window by the leap, and a mistaken leap can be taken
 * back.
 */
#ifndef UNSEEN_BASE_GUARD_H
#define UNSEEN_BASE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
    GUARD_JUMP_MS = 5 * 60 * 1000,
    GUARD_STEADY_MS = 24 * 3600 * 1000,
    GUARD_REASON = 200,
};

/* The state that survives a restart; the owner stores it. All zero: a first start. */
struct guard_kept {
    int64_t newest;  /* the highest time ever believed */
    int64_t unsure;  /* the newest time before the time leapt, as long as the window begins by it; 0: it doesn't */
    int64_t leapt;   /* when that was, by the new time */
    int64_t reached; /* while doubted: how far time went on from the newest, by the monotonic clock; else 0 */
};

/* All zero before guard_start(). */
struct guard {
    struct guard_kept kept;
    int64_t built;     /* no time before it is believed at a first start; 0: any is */
    int64_t hold_ms;   /* for how long `unsure` is kept; the owner may change it */
    int64_t offset;    /* wall - mono that is believed */
    int64_t candidate; /* wall - mono that is being proven, while doubted */
    int64_t since;     /* mono time at which the candidate appeared, or offset was last taken from the wall clock */
    bool anchored;     /* offset comes from the wall clock, and not from the newest time that was persisted */
    bool doubted;
    bool unknown;              /* no time was ever believed: doubted too */
    bool behind;               /* the candidate began more than a day behind the newest time */
    char reason[GUARD_REASON]; /* "" unless doubted; says what to type */
};

/* Both clocks are of one moment: clock_both_ms(). */
void guard_start(struct guard *g, const struct guard_kept *kept, int64_t built, int64_t wall, int64_t mono);

/* To be called whenever time may have passed. Returns true when the wall clock is newly doubted, jumped again while
 * doubted, or is believed again, so that the caller logs it. */
bool guard_observe(struct guard *g, int64_t wall, int64_t mono);

/* An administrator confirms that the wall clock is right. ERR_INVALID: it isn't doubted, or it is more than a day
 * behind the newest time, which only guard_set_back() takes back. */
int guard_accept(struct guard *g, int64_t wall, int64_t mono, struct err *err);

/* An administrator says that a later time was believed wrongly: the newest time becomes the wall clock's. ERR_INVALID:
 * it isn't later, or the wall clock is before the program was built. */
int guard_set_back(struct guard *g, int64_t wall, int64_t mono, struct err *err);

/* Wall time by the believed offset. Equal to wall (within GUARD_JUMP_MS) unless doubted. If doubted since the start, it
 * continues from the newest time, or from the one that was reached. */
int64_t guard_believed(const struct guard *g, int64_t wall, int64_t mono);

/* The later and the earlier time (see above), from what an owner publishes of a guard. */
struct guard_view {
    int64_t offset, newest, unsure;
    bool doubted;
};
void guard_times(const struct guard_view *v, int64_t wall, int64_t mono, int64_t *later, int64_t *earlier);

#endif
