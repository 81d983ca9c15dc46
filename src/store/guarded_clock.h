/* The guarded clock (base/guard.h) of an engine that has no folder to keep it in. What of it a restart must not lose is
 * the engine's to keep, if it can. Any thread. */
#ifndef UNSEEN_STORE_GUARDED_CLOCK_H
#define UNSEEN_STORE_GUARDED_CLOCK_H

#include <pthread.h>

#include "store/store.h"

struct guarded_clock {
    pthread_mutex_t mutex;
    const struct config *cfg;
    int64_t built_ms;
    struct guard guard;
};

/* built_ms: no time before it is believed. kept: what was kept of it; all zero: a first start. */
void guarded_clock_start(struct guarded_clock *c, const struct config *cfg, int64_t built_ms,
                         const struct guard_kept *kept);
void guarded_clock_end(struct guarded_clock *c);

/* As store_ops has them. */
void guarded_clock_now(struct guarded_clock *c, int64_t *later, int64_t *earlier);
int guarded_clock_known(struct guarded_clock *c, struct err *err);
void guarded_clock_tell(struct guarded_clock *c, struct store_clock *out);

/* What is to be kept of it now. True: the clock is doubted. */
bool guarded_clock_kept(struct guarded_clock *c, struct guard_kept *kept);

/* What others who keep one time together have kept. changed: one of them was told by an administrator, so this one
 * judges again by that, as at a start. It also does while it has doubted since its start, and others believe a later
 * time. */
void guarded_clock_heard(struct guarded_clock *c, const struct guard_kept *kept, bool changed);

/* What a change would make of it, to be kept first; then guarded_clock_become(). As guarded_clock_change(). */
int guarded_clock_plan(struct guarded_clock *c, const struct store_clock_change *change, struct guard *planned,
                       struct err *err);
void guarded_clock_become(struct guarded_clock *c, const struct store_clock_change *change,
                          const struct guard *planned);

/* Carries out a change, but for its done(). The wall clock's time then is in *wall_ms. */
int guarded_clock_change(struct guarded_clock *c, struct store_clock_change *change, int64_t *wall_ms);

/* The oldest month within the retention; INT_MIN while in doubt. */
int guarded_clock_first_kept(struct guarded_clock *c);

#endif
