/* Double writing: with legacy_mirror = yes, plays, deliveries and forgets are repeated in the sorted sets of the Redis
 * that users came from, so that one can go back at any time.
 *
 * What is to be repeated waits in the store's feed, durable with the write itself; a courier carries it
 * (dedup/courier.h).
 *
 *   server_start() -> the store recovers -> mirror_start() -> ... server_stop() -> mirror_stop() -> the store closes ->
 *   mirror_free()
 */
#ifndef UNSEEN_LEGACY_MIRROR_H
#define UNSEEN_LEGACY_MIRROR_H

#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "config/config.h"
#include "dedup/courier.h"
#include "dedup/dedup.h"

struct mirror;

/* *mirror is NULL when the mirror is off; then mirror_stop() and mirror_free() do nothing. ERR_INVALID: this unseen was
 * built without hiredis. The Redis itself need not be there. It rests while another node takes the writes: the mirror
 * is that one's, and nothing is kept for this one's. */
int mirror_start(const struct config *cfg, struct store *store, struct role *role, struct mirror **mirror,
                 struct err *err);
void mirror_stop(struct mirror *m); /* ends the thread at once; what waits is sent after the next start */
void mirror_free(struct mirror *m);

#define MIRROR_CONSUMER "mirror" /* what it is called in the feed */
enum { MIRROR_TEXT = COURIER_TEXT };

struct mirror_status {
    struct courier_status courier; /* its queue lost: the mirror is broken */
    uint64_t skipped;              /* refused for their key alone, since the start */
    char problem[MIRROR_TEXT];     /* the last key that was refused, and why; "" none */
};
void mirror_look(const struct dedup *d, struct mirror_status *out); /* any thread; also when it is off */
/* NULL: the mirror is off, and all is well. */
void mirror_figures_each(struct mirror *m, figure_visit *visit, void *arg);

#endif
