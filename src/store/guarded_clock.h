/* The guarded clock (base/guard.h) of an engine that keeps nothing of it over a restart. Any thread. */
#ifndef UNSEEN_STORE_GUARDED_CLOCK_H
#define UNSEEN_STORE_GUARDED_CLOCK_H

#include <pthread.h>

#include "store/store.h"

struct guarded_clock {
    pthread_mutex_t mutex;
    const struct config *cfg;
    struct guard guard;
};

/* built_ms: no time before it is believed. */
void guarded_clock_start(struct guarded_clock *c, const struct config *cfg, int64_t built_ms);
void guarded_clock_end(struct guarded_clock *c);

/* As store_ops has them. */
void guarded_clock_now(struct guarded_clock *c, int64_t *later, int64_t *earlier);
int guarded_clock_known(struct guarded_clock *c, struct err *err);
void guarded_clock_tell(struct guarded_clock *c, struct store_clock *out);

/* Carries out a change, but for its done(). The wall clock's time then is in *wall_ms. */
int guarded_clock_change(struct guarded_clock *c, struct store_clock_change *change, int64_t *wall_ms);

/* The oldest month within the retention; INT_MIN while in doubt. */
int guarded_clock_first_kept(struct guarded_clock *c);

#endif
