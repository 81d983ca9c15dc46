/* The guarded clock (base/guard.h): the stager keeps it, other threads read what it publishes. What the guard remembers
 * over a restart stands in staging's `meta`. */
#include <inttypes.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    NEWEST_SAVE_MS = 10 * 60 * 1000, /* how often the newest believed time is written down */
    SAVE_RETRY_MS = 60 * 1000,
};

static const char *const kept_names[] = {"newest_ms", "unsure_ms", "leapt_ms", "reached_ms"};
enum { KEPT = sizeof kept_names / sizeof *kept_names };

/* Each of them, in the order of the names. */
static int64_t *kept_field(struct guard_kept *kept, int i)
{
    int64_t *const fields[KEPT] = {&kept->newest, &kept->unsure, &kept->leapt, &kept->reached};
    return fields[i];
}

/* --- published --- */

static void publish(struct sqlite_store *s)
{
    const struct guard *g = &s->stager.guard;
    struct clock_published *p = &s->clock;
    atomic_store(&p->offset, g->offset);
    atomic_store(&p->newest, g->kept.newest);
    atomic_store(&p->unsure, g->kept.unsure);
    atomic_store(&p->doubted, g->doubted);
    atomic_store(&p->unknown, g->unknown);
    pthread_mutex_lock(&s->ring_mutex);
    snprintf(s->clock_reason, sizeof s->clock_reason, "%s", g->reason);
    pthread_mutex_unlock(&s->ring_mutex);
}

/* A jump is noticed here at once, before the stager looks. */
static struct guard_view look(struct sqlite_store *s, int64_t *wall, int64_t *mono)
{
    struct clock_published *p = &s->clock;
    clock_both_ms(wall, mono);
    struct guard_view v = {
        .offset = atomic_load_explicit(&p->offset, memory_order_relaxed),
        .newest = atomic_load_explicit(&p->newest, memory_order_relaxed),
        .unsure = atomic_load_explicit(&p->unsure, memory_order_relaxed),
        .doubted = atomic_load_explicit(&p->doubted, memory_order_relaxed),
    };
    int64_t apart = *wall - (v.offset + *mono);
    v.doubted = v.doubted || apart > GUARD_JUMP_MS || apart < -GUARD_JUMP_MS;
    return v;
}

bool store_clock_doubted(struct sqlite_store *s)
{
    int64_t wall, mono;
    return look(s, &wall, &mono).doubted;
}

int64_t store_believed(struct sqlite_store *s)
{
    int64_t wall, mono;
    struct guard_view v = look(s, &wall, &mono);
    return v.doubted ? v.offset + mono : wall;
}

int store_time_known(struct store *base, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    if (!atomic_load_explicit(&s->clock.unknown, memory_order_relaxed)) {
        return 0;
    }
    pthread_mutex_lock(&s->ring_mutex);
    int result = err_set(err, ERR_BUSY, "no time is known yet: %s", s->clock_reason);
    pthread_mutex_unlock(&s->ring_mutex);
    return result;
}

void store_now(struct store *base, int64_t *later, int64_t *earlier)
{
    int64_t wall, mono;
    struct guard_view v = look(sqlite_store(base), &wall, &mono);
    guard_times(&v, wall, mono, later, earlier);
}

void store_clock(struct store *base, struct store_clock *out)
{
    struct sqlite_store *s = sqlite_store(base);
    int64_t mono;
    struct guard_view v = look(s, &out->wall_ms, &mono);
    out->believed_ms = v.doubted ? v.offset + mono : out->wall_ms;
    out->newest_ms = v.newest;
    out->unsure_ms = v.unsure;
    out->known = !atomic_load(&s->clock.unknown);
    out->doubted = atomic_load(&s->clock.doubted);
    pthread_mutex_lock(&s->ring_mutex);
    snprintf(out->reason, sizeof out->reason, "%s", s->clock_reason);
    pthread_mutex_unlock(&s->ring_mutex);
}

/* --- kept --- */

int time_persist(struct sqlite_store *s, struct err *err)
{
    struct stager *st = &s->stager;
    struct guard_kept kept = st->guard.kept;
    if (memcmp(&kept, &st->kept_saved, sizeof kept) == 0) {
        return 0;
    }
    int result = db_begin(&st->db, err);
    for (int i = 0; i < KEPT && result == 0; i++) {
        result = db_meta_set_int(&st->db, kept_names[i], *kept_field(&kept, i), err);
        if (result < 0) {
            db_rollback(&st->db);
        }
    }
    if (result < 0 || (result = db_commit(&st->db, err)) < 0) {
        return result;
    }
    st->kept_saved = kept;
    return 0;
}

/* What a restart must not lose is saved at once: a new month too, so that after a crash nothing is stamped with the one
 * before. */
static bool is_worth_saving(const struct guard_kept *saved, const struct guard_kept *now)
{
    return now->unsure != saved->unsure || now->leapt != saved->leapt || now->newest < saved->newest ||
           now->newest - saved->newest >= NEWEST_SAVE_MS || now->reached - saved->reached >= NEWEST_SAVE_MS ||
           month_of_ms(now->newest) != month_of_ms(saved->newest);
}

static void save(struct sqlite_store *s, int64_t mono)
{
    struct stager *st = &s->stager;
    struct err err = {0};
    if (mono >= st->kept_retry_mono_ms && is_worth_saving(&st->kept_saved, &st->guard.kept) &&
        time_persist(s, &err) < 0) {
        log_error("newest time not saved", "error=%s", log_quote_str(err.text));
        st->kept_retry_mono_ms = mono + SAVE_RETRY_MS;
    }
}

/* --- the stager's --- */

static void log_guard(const struct guard *g)
{
    if (g->unknown) {
        log_error("no time is known, writes are refused", "reason=%s", log_quote_str(g->reason));
    } else if (g->doubted) {
        log_warn("clock doubted, nothing is swept", "reason=%s", log_quote_str(g->reason));
    } else {
        log_info("clock believed again", "");
    }
}

static int64_t hold_ms(struct sqlite_store *s)
{
    return (config_now(s->cfg)->window + 1) * INT64_C(31) * 24 * 3600 * 1000;
}

int time_start(struct sqlite_store *s, int64_t built_ms, struct err *err)
{
    struct stager *st = &s->stager;
    struct guard_kept kept;
    for (int i = 0; i < KEPT; i++) {
        int result = db_meta_count(&st->db, kept_names[i], kept_field(&kept, i), err);
        if (result < 0) {
            return result;
        }
    }
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    st->kept_saved = kept;
    st->guard.hold_ms = hold_ms(s);
    guard_start(&st->guard, &kept, built_ms, wall, mono);
    if (st->guard.doubted) {
        log_guard(&st->guard);
    }
    publish(s);
    return 0;
}

void time_look(struct sqlite_store *s)
{
    struct guard *g = &s->stager.guard;
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    g->hold_ms = hold_ms(s);
    if (guard_observe(g, wall, mono)) {
        log_guard(g);
    }
    publish(s);
    save(s, mono);
}

void time_change(struct store *base, struct store_clock_change *change)
{
    struct store_message *m = &change->call.message;
    change->call.err = (struct err){0};
    m->kind = STORE_CALL;
    m->what = WANTS_CLOCK;
    thread_queue_put(&sqlite_store(base)->stager.queue, m);
}

void time_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_clock_change *change = (struct store_clock_change *)m;
    struct store_call *call = &change->call;
    struct guard *g = &s->stager.guard, before = *g;
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    int result = change->set_back ? guard_set_back(g, wall, mono, &call->err) : guard_accept(g, wall, mono, &call->err);
    if (result == 0 && ((change->set_back && (result = forgets_until(s, wall, &call->err)) < 0) ||
                        (result = time_persist(s, &call->err)) < 0)) {
        *g = before; /* what isn't durable isn't believed */
    }
    if (result == 0) {
        log_warn(change->set_back ? "newest time set back to the clock's" : "clock accepted",
                 "from_ms=%" PRId64 " to_ms=%" PRId64, before.kept.newest, wall);
    }
    publish(s);
    thread_queue_wake(&s->historian.queue);
    call->done(call);
}
