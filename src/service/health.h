/* Whether the server is well: for /healthz and /readyz, systemd's watchdog, and others that ask.
 *
 * Alive: every thread that beats has done so (base/heartbeat.h) within the limit; else a restart is what helps. Ready:
 * alive, recovered, and taking writes; else it will be by itself, or once there is room.
 *
 * A server without a folder takes no writes: it is ready while it answers questions.
 *
 * Degraded: alive, and with only one of its two tiers (dedup/tier.h) well. A disk that is frozen makes threads of the
 * store stuck; while a second tier answers questions, that is no reason for a restart, which would end in not being
 * able to open the folder.
 *
 * The backup's thread does not beat: a restart is no help when the disk that it copies to hangs.
 */
#ifndef UNSEEN_SERVICE_HEALTH_H
#define UNSEEN_SERVICE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/heartbeat.h"
#include "store/store.h"

struct worker_pool;

enum {
    /* Steps between two beats take milliseconds. The longest that is no fault is an fsync of a disk that others keep
     * busy: some seconds. */
    HEALTH_LIMIT_MS = 20 * 1000,
    HEALTH_THREADS_MAX = 256,
};

struct health {
    bool alive;
    bool ready;
    char stuck[HEARTBEAT_NAME];           /* not alive: which thread is stuck, such as "worker-0" or "stager" ... */
    int64_t stuck_ms;                     /* ... and for how long, by real time */
    int code;                             /* alive and not ready: ERR_LOADING, ERR_BUSY or ERR_STALE */
    char cause[STORE_ERROR_TEXT + 64];    /* not ready: why, in words; else "" */
    char degraded[STORE_ERROR_TEXT + 64]; /* which file or tier is not well, and why; else "" */
    char clock[GUARD_REASON];             /* why the clock is doubted, which makes nothing unready; else "" */
};

/* Any thread, from worker_pool_start() to worker_pool_stop(). Looks at atomics and a short lock; waits for no
 * thread. */
void health_look(struct worker_pool *pool, struct health *out);

/* A watchdog that is less patient than HEALTH_LIMIT_MS. Before the threads start. */
void health_set_limit(int64_t ms);

#endif
