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

/* As at a start; the caller has the lock, or no other has the clock. */
static void judge(struct guarded_clock *c, const struct guard_kept *kept)
{
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    c->guard = (struct guard){0};
    guard_start(&c->guard, kept, c->built_ms, wall, mono);
}

void guarded_clock_start(struct guarded_clock *c, const struct config *cfg, int64_t built_ms,
                         const struct guard_kept *kept)
{
    pthread_mutex_init(&c->mutex, NULL);
    c->cfg = cfg;
    c->built_ms = built_ms;
    judge(c, kept);
    if (c->guard.unknown) {
        log_error("no time is known, writes are refused", "reason=%s", log_quote_str(c->guard.reason));
    } else if (c->guard.doubted) {
        log_warn("clock doubted, nothing expires", "reason=%s", log_quote_str(c->guard.reason));
    }
}

bool guarded_clock_kept(struct guarded_clock *c, struct guard_kept *kept)
{
    int64_t wall, mono;
    pthread_mutex_lock(&c->mutex);
    const struct guard *g = look(c, &wall, &mono);
    *kept = g->kept;
    bool doubted = g->doubted;
    pthread_mutex_unlock(&c->mutex);
    return doubted;
}

void guarded_clock_heard(struct guarded_clock *c, const struct guard_kept *kept, bool changed)
{
    int64_t wall, mono;
    pthread_mutex_lock(&c->mutex);
    struct guard *g = look(c, &wall, &mono);
    bool was_doubted = g->doubted;
    if (changed || (g->doubted && !g->anchored && kept->newest > g->kept.newest)) {
        judge(c, kept);
        if (g->doubted != was_doubted) {
            log_info(g->doubted ? "clock doubted, by what other nodes believe" : "clock believed, as by other nodes",
                     "reason=%s", log_quote_str(g->reason));
        }
    } else if (kept->unsure != 0 && (g->kept.unsure == 0 || kept->unsure < g->kept.unsure) &&
               wall - kept->leapt <= g->hold_ms) {
        g->kept.unsure = kept->unsure;
        g->kept.leapt = kept->leapt;
    }
    pthread_mutex_unlock(&c->mutex);
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

int guarded_clock_plan(struct guarded_clock *c, const struct store_clock_change *change, struct guard *planned,
                       struct err *err)
{
    int64_t wall, mono;
    pthread_mutex_lock(&c->mutex);
    *planned = *look(c, &wall, &mono);
    pthread_mutex_unlock(&c->mutex);
    return change->set_back ? guard_set_back(planned, wall, mono, err) : guard_accept(planned, wall, mono, err);
}

void guarded_clock_become(struct guarded_clock *c, const struct store_clock_change *change, const struct guard *planned)
{
    pthread_mutex_lock(&c->mutex);
    log_warn(change->set_back ? "newest time set back to the clock's" : "clock accepted",
             "from_ms=%" PRId64 " to_ms=%" PRId64, c->guard.kept.newest, planned->kept.newest);
    c->guard = *planned;
    pthread_mutex_unlock(&c->mutex);
}

int guarded_clock_change(struct guarded_clock *c, struct store_clock_change *change, int64_t *wall_ms)
{
    struct guard planned;
    int result = guarded_clock_plan(c, change, &planned, &change->call.err);
    *wall_ms = clock_wall_ms();
    if (result == 0) {
        guarded_clock_become(c, change, &planned);
    }
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
