/* The migration's progress: its thread writes it, any thread reads it. All zero but for migration_state_init(). */
#ifndef UNSEEN_LEGACY_MIGRATION_STATE_H
#define UNSEEN_LEGACY_MIGRATION_STATE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "legacy/fetch_user.h"
#include "legacy/legacy.h"
#include "legacy/redis.h"

struct migration_state {
    pthread_mutex_t mutex;     /* guards: */
    struct legacy_state shown; /* but for its notes */
    int64_t rate_from_us;      /* 0: users a second are not measured */
    uint64_t rate_from;
    struct redis_cluster_figures before; /* of the connections before this one */
};

void migration_state_init(struct migration_state *m);
void migration_state_free(struct migration_state *m);

void migration_state_show(struct migration_state *m, enum legacy_doing doing, const struct err *cause);
void migration_state_user(struct migration_state *m, const struct fetch_user *t); /* was read to the end */
void migration_state_bytes(struct migration_state *m, size_t bytes);              /* were read */
void migration_state_turn(struct migration_state *m, uint64_t unlisted); /* now and then: renews users a second */

/* Of the connection; ended: the next one counts from 0. */
void migration_state_cluster(struct migration_state *m, const struct redis_cluster_figures *figures, bool ended);

void migration_state_get(struct migration_state *m, struct legacy_state *out);

#endif
