/* Hedged questions: when to put one to the second tier (dedup/tier.h) as well, or first. One for all loops, and only
 * for questions that memory doesn't answer: those take long enough for a lock.
 *
 *   - The tier is asked when the disk has not answered for `after`: hedge_after, or by measurement three times what 99
 *     of 100 such questions take, between HEDGE_AFTER_LEAST_US and HEDGE_AFTER_MOST_US. ("The Tail at Scale", Dean and
 *     Barroso, 2013.)
 *   - Not more than one in HEDGE_BUDGET of all questions is, so that a tier is not drowned by what a disk that is a
 *     little slow sends there. That does not hold for one whom the disk refuses, and not while the disk is down.
 *   - The disk is down once HEDGE_LATE_MAX questions in a row were answered late, or by an error of the disk: then the
 *     tier is asked first, and the disk once a second, on trial, until it answers such a one in time. After a minute
 *     without any that shows that it is still down, that is forgotten: memory may answer all there are.
 *
 * Pure but for the lock: the caller passes the time, in us.
 */
#ifndef UNSEEN_SERVICE_HEDGE_H
#define UNSEEN_SERVICE_HEDGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/figure.h"

enum {
    HEDGE_AFTER_LEAST_US = 2 * 1000,
    HEDGE_AFTER_MOST_US = 50 * 1000,
    HEDGE_BUDGET = 20,
    HEDGE_BURST = 64, /* questions that the budget allows at once, if it wasn't used before */
    HEDGE_LATE_MAX = 5,
    HEDGE_TRIAL_US = 1000 * 1000,
    HEDGE_LAPSE_US = 60 * 1000 * 1000,
    HEDGE_AGAIN_US = 100 * 1000, /* between two tries of a question that the disk still has, or has refused */
    HEDGE_TRIES = 20,            /* of one that the disk has refused */
    HEDGE_FAILURES = 2,          /* times that the tier may fail one of these while it is asked */
    HEDGE_TIMES = 128,           /* answers that the measurement goes by */
};

struct hedge {
    pthread_mutex_t mutex;
    int64_t times[HEDGE_TIMES]; /* of the disk's last answers, us; a ring */
    unsigned n_times;           /* ever */
    int64_t p99;                /* of these, as of every eighth */
    double tokens;
    uint64_t questions; /* that were counted into tokens */
    unsigned late;      /* in a row */
    bool down;
    int64_t trial_us; /* the next one */
    int64_t late_us;  /* when it was late last */
};

void hedge_init(struct hedge *h);
void hedge_free(struct hedge *h);

/* How to begin one: the disk, and the tier after so many us (first: at once). disk false: the tier alone. */
struct hedge_plan {
    bool first, disk;
    int64_t after_us;
};
void hedge_begin(struct hedge *h, int64_t now_us, int64_t hedge_after_ms, struct hedge_plan *out);

/* Whether the tier may be asked now. questions: all that were ever asked. refused: the disk has answered with an error.
 */
bool hedge_may(struct hedge *h, uint64_t questions, bool refused);

/* The tier was first, or the disk can't be read. */
void hedge_disk_late(struct hedge *h, int64_t now_us);

/* The disk has answered after so long, where it had `after`. told: the tier was first, which was said then. */
void hedge_disk_answered(struct hedge *h, int64_t now_us, int64_t took_us, int64_t after_us, bool told);

bool hedge_disk_is_down(struct hedge *h, int64_t now_us);

/* Gauges, for INFO, the metrics and the page: what the meter doesn't count. A replica that has one configured
 * wants none until it is promoted. */
struct dedup;
void hedge_figures_each(struct hedge *h, const struct dedup *dedup, figure_visit *visit, void *arg);

#endif
