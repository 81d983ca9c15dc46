/* The mirror's thread: reads what waits, some hundred events at a time, sends them all, reads all replies (repeat.h),
 * says how far it has come, and begins again.
 *
 * What can go wrong. A connection that is lost, a silence, and replies that concern the Redis as a whole (LOADING,
 * READONLY, OOM ...): the events stay, and all of them are sent again over a new connection, after delays that grow to
 * ten seconds; said in the log when it begins and when it ends. To send events twice changes nothing, since they come
 * in their order again. A reply that concerns one key (WRONGTYPE, MOVED ...): the key is named, once, and the event is
 * passed over, or it would keep up all others for ever.
 */
#include "legacy/mirror.h"
#include "base/backoff.h"
#include "dedup/role.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/hide.h"
#include "base/log.h"
#include "base/task.h"
#include "legacy/parse.h"
#include "legacy/redis.h"
#include "legacy/repeat.h"
#include "store/migration.h"

enum {
    NAMED_MAX = 1024, /* keys that are named */
    FIRST_DELAY_MS = 100,
    LAST_DELAY_MS = 10 * 1000,
    GATHER_MS = 5, /* behind a part of a batch: nobody waits for this thread, and larger ones cost all others less */
};

struct mirror {
    const struct config *cfg;
    struct store *store;
    struct role *role;
    struct store_reader *reader;
    struct arena arena;
    struct task task;
    _Atomic bool asleep; /* wants to be woken when something waits */

    /* The thread's. */
    struct repeat repeat;
    uint64_t after; /* all up to this id was sent */
    bool proven;    /* the connection has worked: when it fails now, it may just have been idle for too long */
    int64_t delay_ms;
    uint64_t named[NAMED_MAX];
    size_t n_named;

    pthread_mutex_t mutex; /* guards: */
    struct mirror_status status;
};

static const char *const doing_names[] = {"in step", "sending", "waiting", "off"};

const char *mirror_doing_name(enum mirror_doing doing)
{
    return doing_names[doing];
}

/* --- what is said about it --- */

static void set_doing(struct mirror *m, enum mirror_doing doing)
{
    pthread_mutex_lock(&m->mutex);
    m->status.doing = doing;
    pthread_mutex_unlock(&m->mutex);
}

static uint64_t waiting_events(struct mirror *m)
{
    struct feed_state queue;
    feed_state_of(m->store, MIRROR_CONSUMER, &queue);
    return queue.events;
}

/* Said once; the cause may change while it lasts. */
static void begin_waiting(struct mirror *m, const struct err *err)
{
    pthread_mutex_lock(&m->mutex);
    bool first = m->status.doing != MIRROR_WAITING;
    m->status.doing = MIRROR_WAITING;
    hide_ids_copy(m->status.cause, sizeof m->status.cause, err->text);
    if (first) {
        m->status.waiting_since_ms = clock_wall_ms();
        m->status.outages++;
    }
    pthread_mutex_unlock(&m->mutex);
    if (first) {
        log_warn("the mirror waits", "waiting=%" PRIu64 " cause=%s", waiting_events(m), log_quote_str(err->text));
    }
}

static void end_waiting(struct mirror *m)
{
    pthread_mutex_lock(&m->mutex);
    bool waited = m->status.doing == MIRROR_WAITING;
    int64_t ms = clock_wall_ms() - m->status.waiting_since_ms;
    m->status.waiting_since_ms = 0;
    m->status.cause[0] = '\0';
    m->status.doing = MIRROR_SENDING;
    pthread_mutex_unlock(&m->mutex);
    m->delay_ms = 0;
    if (waited) {
        log_info("the mirror goes on", "waiting=%" PRIu64 " after_ms=%" PRId64, waiting_events(m), ms);
    }
}

static bool named_before(struct mirror *m, struct slice key)
{
    uint64_t hash = hash_id(0, key);
    for (size_t i = 0; i < m->n_named; i++) {
        if (m->named[i] == hash) {
            return true;
        }
    }
    if (m->n_named < NAMED_MAX) {
        m->named[m->n_named++] = hash;
        return false;
    }
    return true;
}

/* For LEGACY PROBLEMS, durably. */
struct listed {
    struct store_migration_change users_to_migrate;
    struct store_problem problem;
    char bytes[LEGACY_KEY_MAX + MIRROR_TEXT];
};

static void on_listed(struct store_call *call)
{
    if (call->err.code < 0) {
        log_warn("a problem of the mirror is not listed", "error=%s", log_quote_str(call->err.text));
    }
    free(call->owner);
}

static void list_problem(struct mirror *m, struct slice key, struct slice text)
{
    struct listed *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return; /* the log has it */
    }
    char *what = l->bytes + key.len;
    memcpy(l->bytes, key.data, key.len);
    snprintf(what, MIRROR_TEXT, "mirror: %.*s", (int)text.len, text.data);
    l->problem = (struct store_problem){slice_of(l->bytes, key.len), slice_str(what), clock_wall_ms()};
    l->users_to_migrate.kind = MIGRATION_PROBLEMS;
    l->users_to_migrate.problems = &l->problem;
    l->users_to_migrate.n = 1;
    l->users_to_migrate.call.done = on_listed;
    l->users_to_migrate.call.owner = l;
    m->store->migration->note(m->store, &l->users_to_migrate);
}

static void on_refused(void *owner, struct slice key, int events, struct slice text)
{
    struct mirror *m = owner;
    const char *name = log_quote(key);
    pthread_mutex_lock(&m->mutex);
    m->status.skipped += (uint64_t)events;
    snprintf(m->status.problem, sizeof m->status.problem, "%s: %.*s", name, (int)text.len, text.data);
    pthread_mutex_unlock(&m->mutex);
    if (!named_before(m, key)) {
        log_error("the old Redis refuses a key, its events are passed over", "key=%s error=%s", name, log_quote(text));
        list_problem(m, key, text);
    }
}

static int send_batch(struct mirror *m, int n, struct err *err)
{
    int rc = repeat_rows(&m->repeat, n, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += feed_event_bytes(m->repeat.rows[i].user, m->repeat.rows[i].item);
    }
    m->after = m->repeat.rows[n - 1].seq;
    pthread_mutex_lock(&m->mutex);
    m->status.sent += (uint64_t)n;
    m->status.sent_bytes += bytes;
    pthread_mutex_unlock(&m->mutex);
    m->store->feed->done(m->store, MIRROR_CONSUMER, m->after, (uint64_t)n, bytes);
    return 0;
}

/* --- the thread --- */

/* At most so long: until told to stop, or, when it may, woken. */
static void rest(struct mirror *m, int64_t ms, bool wakes)
{
    const int64_t until_us = clock_real_us() + ms * 1000;
    pthread_mutex_lock(&m->mutex);
    if (wakes) {
        task_wait_real(&m->task, until_us);
    } else {
        task_rest_real(&m->task, until_us);
    }
    pthread_mutex_unlock(&m->mutex);
}

static void trouble(struct mirror *m, const struct err *err)
{
    if (task_stops(&m->task)) {
        return;
    }
    begin_waiting(m, err);
    m->delay_ms = backoff_next(m->delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS);
    atomic_store(&m->asleep, false);
    rest(m, m->delay_ms, false);
}

/* Sends what waits next. Returns how many, 0: nothing does. */
static int step(struct mirror *m, struct err *err)
{
    arena_reset(&m->arena);
    atomic_store(&m->asleep, true); /* before the look, so that no wake is missed */
    int n = m->store->feed->read(m->reader, MIRROR_CONSUMER, m->after, m->repeat.rows, REPEAT_BATCH, &m->arena, err);
    int rc = n < 0 ? n : 0;
    if (n > 0) {
        atomic_store(&m->asleep, false);
    }
    if (rc == 0 && !redis_connected(m->repeat.redis)) {
        rc = redis_connect(m->repeat.redis, m->cfg, err);
    }
    if (rc == 0 && n > 0) {
        rc = send_batch(m, n, err);
        if (rc < 0) {
            /* Also when it refuses: another may be there by then, or the password changed. */
            redis_disconnect(m->repeat.redis);
        }
    }
    return rc < 0 ? rc : n;
}

static void mirror_main(void *arg)
{
    struct mirror *m = arg;
    while (!task_stops(&m->task)) {
        struct err err = {0};
        heartbeat_now(&m->task.heartbeat);
        if (!role_is_primary(m->role)) {
            redis_disconnect(m->repeat.redis);
            set_doing(m, MIRROR_OFF);
            rest(m, HEARTBEAT_EVERY_MS, true);
            continue;
        }
        int n = step(m, &err);
        if (n < 0 && m->proven && err.code == ERR_SYSTEM) {
            m->proven = false; /* it may have been closed while there was nothing to say: try once more, quietly */
        } else if (n < 0) {
            m->proven = false;
            trouble(m, &err);
        } else {
            end_waiting(m);
            m->proven = m->proven || n > 0;
            if (n == 0) {
                set_doing(m, MIRROR_IN_STEP);
                rest(m, HEARTBEAT_EVERY_MS, true);
            } else if (n < REPEAT_BATCH) {
                rest(m, GATHER_MS, false);
            }
        }
    }
}

/* --- from outside --- */

static void wake(struct mirror *m)
{
    pthread_mutex_lock(&m->mutex);
    task_wake(&m->task);
    pthread_mutex_unlock(&m->mutex);
}

static uint64_t limit(const struct config *live)
{
    return (uint64_t)live->legacy_mirror_max;
}

/* On a thread of the store. */
static void on_more(void *arg)
{
    struct mirror *m = arg;
    if (atomic_exchange(&m->asleep, false)) {
        wake(m);
    }
}

/* Not to be woken any more: what is recorded is kept for it all the same. */
static int be_woken(struct mirror *m, void (*wakes)(void *arg), struct err *err)
{
    return m->store->feed->listen(m->store, &(struct feed_consumer){MIRROR_CONSUMER, limit, wakes, m}, err);
}

/* From the first write that is taken here on. */
static void on_role(void *arg, enum node_role now)
{
    struct mirror *m = arg;
    struct err err;
    if (now == NODE_PRIMARY && be_woken(m, on_more, &err) < 0) {
        log_error("the mirror can't begin", "error=%s", log_quote_str(err.text));
    }
    wake(m);
}

/* What the queue was left with, by the run before. */
static void tell_queue(const struct feed_state *queue, bool on)
{
    if (on && queue->lost_ms != 0) {
        log_error("the mirror is broken", "since=%" PRId64 " left_out=%" PRIu64 " waiting=%" PRIu64, queue->lost_ms,
                  queue->left_out, queue->events);
    } else if (!on && queue->events > 0) {
        log_warn("the mirror is off, and what waited for the old Redis stays", "waiting=%" PRIu64 " bytes=%" PRIu64,
                 queue->events, queue->bytes);
    }
}

static int start(struct mirror *m, struct err *err)
{
    int rc = redis_new(&m->task.heartbeat, &m->repeat.redis, err);
    if (rc < 0) {
        return rc;
    }
    if ((rc = m->store->ops->reader_open(m->store, &m->reader, err)) < 0) {
        return rc;
    }
    rc = role_is_primary(m->role) ? be_woken(m, on_more, err) : 0;
    rc = rc < 0 ? rc : task_start(&m->task, "mirror", TASK_BEATS, mirror_main, m, err);
    if (rc < 0) {
        be_woken(m, NULL, &(struct err){0});
        m->store->ops->reader_close(m->reader);
    }
    return rc;
}

int mirror_start(const struct config *cfg, struct store *store, struct role *role, struct mirror **mirror,
                 struct err *err)
{
    *mirror = NULL;
    struct feed_state queue;
    feed_state_of(store, MIRROR_CONSUMER, &queue);
    tell_queue(&queue, cfg->legacy_mirror != 0);
    if (!cfg->legacy_mirror) {
        return 0;
    }
    if (store->feed == NULL) {
        return err_set(err, ERR_INVALID, "this store keeps no feed, so it can't have a mirror");
    }
    struct mirror *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    m->cfg = cfg;
    m->repeat.cfg = cfg;
    m->repeat.refused = on_refused;
    m->repeat.owner = m;
    m->store = store;
    m->role = role;
    pthread_mutex_init(&m->mutex, NULL);
    task_init(&m->task, &m->mutex);
    int rc = start(m, err);
    if (rc < 0) {
        mirror_free(m);
        return rc;
    }
    *mirror = m;
    return role != NULL ? role_listen(role, on_role, m) : 0;
}

void mirror_stop(struct mirror *m)
{
    if (m == NULL) {
        return;
    }
    if (role_is_primary(m->role)) {
        be_woken(m, NULL, &(struct err){0});
    }
    task_ask_stop(&m->task);
    redis_interrupt(m->repeat.redis);
    task_stop(&m->task);
    redis_disconnect(m->repeat.redis);
    m->store->ops->reader_close(m->reader);
}

void mirror_free(struct mirror *m)
{
    if (m == NULL) {
        return;
    }
    redis_close(m->repeat.redis);
    arena_free(&m->arena);
    task_destroy(&m->task);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

static void look(struct mirror *m, struct mirror_status *out)
{
    pthread_mutex_lock(&m->mutex);
    *out = m->status;
    pthread_mutex_unlock(&m->mutex);
    feed_state_of(m->store, MIRROR_CONSUMER, &out->queue);
    if (out->doing == MIRROR_IN_STEP && out->queue.events > 0) {
        out->doing = MIRROR_SENDING; /* the thread hasn't looked yet, or is connecting */
    }
}

void mirror_look(const struct dedup *d, struct mirror_status *out)
{
    if (d->mirror != NULL) {
        look(d->mirror, out);
    } else {
        *out = (struct mirror_status){.doing = MIRROR_OFF};
        feed_state_of(d->store, MIRROR_CONSUMER, &out->queue);
        out->queue.limit = limit(config_now(d->cfg));
    }
}

void mirror_figures_each(struct mirror *m, figure_visit *visit, void *arg)
{
    struct mirror_status s = {0};
    if (m != NULL) {
        look(m, &s);
    }
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"mirror_waiting", "mirror_waiting_events", FIGURE_GAUGE,
          "Plays, deliveries and forgets that wait to be repeated in the old Redis."},
         s.queue.events},
        {{"mirror_waiting_bytes", "mirror_waiting_bytes", FIGURE_GAUGE, "About what the waiting events take on disk."},
         s.queue.bytes},
        {{"mirror_limit_bytes", "mirror_limit_bytes", FIGURE_GAUGE,
          "How much the waiting events may take on disk (legacy_mirror_max)."},
         s.queue.limit},
        {{"mirror_up", "mirror_up", FIGURE_GAUGE, "1 unless the mirror waits for the old Redis."},
         s.doing != MIRROR_WAITING},
        {{"mirror_behind_us", "mirror_behind_seconds", FIGURE_US,
          "For how long the oldest event has waited; 0: nothing waits."},
         (uint64_t)s.queue.behind_ms * 1000},
        {{"mirror_broken_since", "mirror_broken_since_timestamp_seconds", FIGURE_TIME,
          "Since when the mirror is broken; 0: it isn't."},
         (uint64_t)s.queue.lost_ms},
        {{"mirror_broken", "mirror_broken", FIGURE_GAUGE,
          "1 when events were left out because the queue was full, until that is accepted."},
         s.queue.lost_ms != 0},
        {{"mirror_left_out", "mirror_left_out_events", FIGURE_GAUGE,
          "Events that were left out since the mirror is broken."},
         s.queue.left_out},
        {{"mirror_sent", "mirror_sent_total", FIGURE_COUNTER, "Events that were repeated in the old Redis."}, s.sent},
        {{"mirror_sent_bytes", "mirror_sent_bytes_total", FIGURE_COUNTER,
          "About what the repeated events took on disk."},
         s.sent_bytes},
        {{"mirror_skipped", "mirror_skipped_total", FIGURE_COUNTER,
          "Events that the old Redis refused for their key alone."},
         s.skipped},
        {{"mirror_outages", "mirror_outages_total", FIGURE_COUNTER,
          "Times that the mirror had to wait for the old Redis."},
         s.outages},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
