#include "store/guarded_clock.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"

/* The guard, brought up to date; the caller has the lock. */
static struct guard *look(struct guarded_clock *c, int64_t *wall, int64_t *mono)
{
    struct guard *g = &c->guard;
    clock_both_ms(wall, mono);
    g->hold_ms = (config_now(c->cfg)->window + 1) * INT64_C(31) * 24 * 3600 * 1000;
    if (guard_observe(g, *wall, *mono)) {
        if (g->doubted) {
            log_warn("clock doubted, nothing expires", "reason=%s", log_quote_str(g->reason));
        } else {
            log_info("clock believed again", "");
        }
    }
    return g;
}

void guarded_clock_start(struct guarded_clock *c, const struct config *cfg, int64_t built_ms)
{
    int64_t wall, mono;
    pthread_mutex_init(&c->mutex, NULL);
    c->cfg = cfg;
    clock_both_ms(&wall, &mono);
    guard_start(&c->guard, &(struct guard_kept){0}, built_ms, wall, mono);
    if (c->guard.unknown) {
        log_error("no time is known, writes are refused", "reason=%s", log_quote_str(c->guard.reason));
    }
}

void guarded_clock_end(struct guarded_clock *c)
{
    pthread_mutex_destroy(&c->mutex);
}

void guarded_clock_now(struct guarded_clock *c, int64_t *later, int64_t *earlier)
{
    int64_t wall, mono;
    pthread_mutex_lock(&c->mutex);
    const struct guard *g = look(c, &wall, &mono);
    guard_times(&(struct guard_view){g->offset, g->kept.newest, g->kept.unsure, g->doubted}, wall, mono, later,
                earlier);
    pthread_mutex_unlock(&c->mutex);
}

int guarded_clock_known(struct guarded_clock *c, struct err *err)
{
    int64_t wall, mono;
    pthread_mutex_lock(&c->mutex);
    const struct guard *g = look(c, &wall, &mono);
    int result = g->unknown ? err_set(err, ERR_BUSY, "no time is known yet: %s", g->reason) : 0;
    pthread_mutex_unlock(&c->mutex);
    return result;
}

void guarded_clock_tell(struct guarded_clock *c, struct store_clock *out)
{
    int64_t mono;
    pthread_mutex_lock(&c->mutex);
    const struct guard *g = look(c, &out->wall_ms, &mono);
    out->believed_ms = guard_believed(g, out->wall_ms, mono);
    out->newest_ms = g->kept.newest;
    out->unsure_ms = g->kept.unsure;
    out->known = !g->unknown;
    out->doubted = g->doubted;
    snprintf(out->reason, sizeof out->reason, "%s", g->reason);
    pthread_mutex_unlock(&c->mutex);
}

int guarded_clock_change(struct guarded_clock *c, struct store_clock_change *change, int64_t *wall_ms)
{
    struct err *err = &change->call.err;
    int64_t mono;
    pthread_mutex_lock(&c->mutex);
    struct guard *g = look(c, wall_ms, &mono);
    int64_t from = g->kept.newest;
    int result = change->set_back ? guard_set_back(g, *wall_ms, mono, err) : guard_accept(g, *wall_ms, mono, err);
    if (result == 0) {
        log_warn(change->set_back ? "newest time set back to the clock's" : "clock accepted",
                 "from_ms=%" PRId64 " to_ms=%" PRId64, from, *wall_ms);
    }
    pthread_mutex_unlock(&c->mutex);
    return result;
}

int guarded_clock_first_kept(struct guarded_clock *c)
{
    int64_t later, earlier;
    guarded_clock_now(c, &later, &earlier);
    pthread_mutex_lock(&c->mutex);
    bool doubted = c->guard.doubted;
    pthread_mutex_unlock(&c->mutex);
    return doubted ? INT_MIN : month_of_ms(earlier) - (int)config_now(c->cfg)->retention;
}
