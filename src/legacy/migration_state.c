#include "legacy/migration_state.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hide.h"

enum { RATE_US = 2 * 1000 * 1000 }; /* over which users a second are told */

void migration_state_init(struct migration_state *m)
{
    pthread_mutex_init(&m->mutex, NULL);
}

void migration_state_free(struct migration_state *m)
{
    pthread_mutex_destroy(&m->mutex);
}

void migration_state_show(struct migration_state *m, enum legacy_doing doing, const struct err *cause)
{
    pthread_mutex_lock(&m->mutex);
    m->shown.doing = doing;
    m->shown.waiting_since_ms = doing != LEGACY_WAITING         ? 0
                                : m->shown.waiting_since_ms > 0 ? m->shown.waiting_since_ms
                                                                : clock_wall_ms();
    m->shown.needs_room = cause != NULL && cause->code == ERR_FULL;
    hide_ids_copy(m->shown.cause, sizeof m->shown.cause, cause != NULL ? cause->text : "");
    if (doing != LEGACY_READING) {
        m->shown.users_second = 0;
        m->rate_from_us = 0;
    }
    pthread_mutex_unlock(&m->mutex);
}

void migration_state_user(struct migration_state *m, const struct fetch_user *t)
{
    pthread_mutex_lock(&m->mutex);
    m->shown.users++;
    m->shown.plays += t->plays;
    m->shown.deliveries += t->deliveries;
    m->shown.too_old += t->too_old;
    m->shown.skipped += t->played.members + t->delivered.members;
    pthread_mutex_unlock(&m->mutex);
}

void migration_state_bytes(struct migration_state *m, size_t bytes)
{
    pthread_mutex_lock(&m->mutex);
    m->shown.bytes += bytes;
    pthread_mutex_unlock(&m->mutex);
}

void migration_state_turn(struct migration_state *m, uint64_t unlisted)
{
    int64_t now = clock_figures_us();
    pthread_mutex_lock(&m->mutex);
    m->shown.unlisted = unlisted;
    if (m->rate_from_us == 0) {
        m->rate_from_us = now;
        m->rate_from = m->shown.users;
    } else if (now - m->rate_from_us >= RATE_US) {
        m->shown.users_second = (double)(m->shown.users - m->rate_from) * 1e6 / (double)(now - m->rate_from_us);
        m->rate_from_us = now;
        m->rate_from = m->shown.users;
    }
    pthread_mutex_unlock(&m->mutex);
}

void migration_state_cluster(struct migration_state *m, const struct redis_cluster_figures *figures, bool ended)
{
    pthread_mutex_lock(&m->mutex);
    m->shown.masters = figures->masters;
    m->shown.moved = m->before.moved + figures->moved;
    m->shown.asks = m->before.asks + figures->asks;
    if (ended) {
        m->before.moved = m->shown.moved;
        m->before.asks = m->shown.asks;
    }
    pthread_mutex_unlock(&m->mutex);
}

void migration_state_get(struct migration_state *m, struct legacy_state *out)
{
    pthread_mutex_lock(&m->mutex);
    *out = m->shown;
    pthread_mutex_unlock(&m->mutex);
}
