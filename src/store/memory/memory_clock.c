#include <inttypes.h>
#include <limits.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/memory/memory.h"

/* The guard, brought up to date; the caller has the lock. */
static struct guard *look(struct memory_store *s, int64_t *wall, int64_t *mono)
{
    struct guard *g = &s->guard;
    clock_both_ms(wall, mono);
    g->hold_ms = (config_now(s->cfg)->window + 1) * INT64_C(31) * 24 * 3600 * 1000;
    if (guard_observe(g, *wall, *mono)) {
        if (g->doubted) {
            log_warn("clock doubted, nothing expires", "reason=%s", log_quote_str(g->reason));
        } else {
            log_info("clock believed again", "");
        }
    }
    return g;
}

void memory_clock_start(struct memory_store *s, int64_t built_ms)
{
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    guard_start(&s->guard, &(struct guard_kept){0}, built_ms, wall, mono);
    if (s->guard.unknown) {
        log_error("no time is known, writes are refused", "reason=%s", log_quote_str(s->guard.reason));
    }
}

void memory_now(struct store *base, int64_t *later, int64_t *earlier)
{
    struct memory_store *s = memory_of(base);
    int64_t wall, mono;
    pthread_mutex_lock(&s->clock_mutex);
    const struct guard *g = look(s, &wall, &mono);
    guard_times(&(struct guard_view){g->offset, g->kept.newest, g->kept.unsure, g->doubted}, wall, mono, later,
                earlier);
    pthread_mutex_unlock(&s->clock_mutex);
}

int memory_time_known(struct store *base, struct err *err)
{
    struct memory_store *s = memory_of(base);
    int64_t wall, mono;
    pthread_mutex_lock(&s->clock_mutex);
    const struct guard *g = look(s, &wall, &mono);
    int result = g->unknown ? err_set(err, ERR_BUSY, "no time is known yet: %s", g->reason) : 0;
    pthread_mutex_unlock(&s->clock_mutex);
    return result;
}

void memory_clock(struct store *base, struct store_clock *out)
{
    struct memory_store *s = memory_of(base);
    int64_t mono;
    pthread_mutex_lock(&s->clock_mutex);
    const struct guard *g = look(s, &out->wall_ms, &mono);
    out->believed_ms = guard_believed(g, out->wall_ms, mono);
    out->newest_ms = g->kept.newest;
    out->unsure_ms = g->kept.unsure;
    out->known = !g->unknown;
    out->doubted = g->doubted;
    snprintf(out->reason, sizeof out->reason, "%s", g->reason);
    pthread_mutex_unlock(&s->clock_mutex);
}

int memory_clock_work(struct memory_store *s, struct store_clock_change *change)
{
    struct err *err = &change->call.err;
    int64_t wall, mono;
    pthread_mutex_lock(&s->clock_mutex);
    struct guard *g = look(s, &wall, &mono);
    int64_t from = g->kept.newest;
    int result = change->set_back ? guard_set_back(g, wall, mono, err) : guard_accept(g, wall, mono, err);
    if (result == 0 && change->set_back) {
        tombstones_until(s->tombstones, wall);
    }
    if (result == 0) {
        log_warn(change->set_back ? "newest time set back to the clock's" : "clock accepted",
                 "from_ms=%" PRId64 " to_ms=%" PRId64, from, wall);
    }
    pthread_mutex_unlock(&s->clock_mutex);
    return result;
}

int memory_first_kept(struct memory_store *s)
{
    int64_t later, earlier;
    memory_now(&s->base, &later, &earlier);
    pthread_mutex_lock(&s->clock_mutex);
    bool doubted = s->guard.doubted;
    pthread_mutex_unlock(&s->clock_mutex);
    return doubted ? INT_MIN : month_of_ms(earlier) - (int)config_now(s->cfg)->retention;
}
