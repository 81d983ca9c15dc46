/* Shared by the files of read-through: read_through.c, which all ports have in common, and read_through_port.c. */
#ifndef UNSEEN_LEGACY_READ_THROUGH_IMPL_H
#define UNSEEN_LEGACY_READ_THROUGH_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "legacy/read_through.h"

struct read_through {
    const struct dedup *dedup;
    const struct config *cfg;
    _Atomic uint64_t counts[READ_THROUGH_COUNTS];
    pthread_mutex_t mutex; /* guards: */
    int waiting;           /* ports */
    bool told;             /* the log says that it waits; it says once that it goes on */
    char cause[320];       /* of the port that began to wait last */
};

/* Any thread. `waits` is the port's own: whether it is among those that wait. */
void read_through_count(struct read_through *t, enum read_through_count what, uint64_t n);
void read_through_begin_waiting(struct read_through *t, bool *waits, const char *cause);
void read_through_end_waiting(struct read_through *t, bool *waits, bool tell);
/* The next question goes to the old Redis. Its answer is not known yet, so the log doesn't say that read-through
 * resumes. */
void read_through_stop_waiting(struct read_through *t, bool *waits);

#endif
