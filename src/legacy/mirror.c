/* What the mirror's courier (dedup/courier.h) does with events: sends a batch of them, reads all replies (repeat.h).
 *
 * What can go wrong. A connection that is lost, a silence, and replies that concern the Redis as a whole (LOADING,
 * READONLY, OOM ...): the events stay, and all of them are sent again over a new connection. To send events twice
 * changes nothing, since they come in their order again. A reply that concerns one key (WRONGTYPE, MOVED ...): the key
 * is named, once, and the event is passed over, or it would keep up all others for ever.
 */
#include "legacy/mirror.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "legacy/parse.h"
#include "legacy/redis.h"
#include "legacy/repeat.h"
#include "store/migration.h"

enum {
    NAMED_MAX = 1024, /* keys that are named */
    FIRST_DELAY_MS = 100,
    LAST_DELAY_MS = 10 * 1000,
    GATHER_MS = 5, /* no request waits for this thread, and larger batches cost all others less */
};

struct mirror {
    const struct config *cfg;
    struct store *store;
    struct courier courier;

    /* The courier's thread's. */
    struct repeat repeat;
    uint64_t named[NAMED_MAX];
    size_t n_named;

    pthread_mutex_t mutex; /* guards: */
    uint64_t skipped;
    char problem[MIRROR_TEXT];
};

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
    m->skipped += (uint64_t)events;
    snprintf(m->problem, sizeof m->problem, "%s: %.*s", name, (int)text.len, text.data);
    pthread_mutex_unlock(&m->mutex);
    if (!named_before(m, key)) {
        log_error("the old Redis refuses a key, its events are passed over", "key=%s error=%s", name, log_quote(text));
        list_problem(m, key, text);
    }
}

/* --- the courier's --- */

static int open_redis(void *arg, struct err *err)
{
    struct mirror *m = arg;
    return redis_connect(m->repeat.redis, m->cfg, err);
}

static int send_events(void *arg, struct courier_batch *batch, struct err *err)
{
    struct mirror *m = arg;
    m->repeat.rows = batch->events;
    int rc = repeat_rows(&m->repeat, batch->n, err);
    err->code = rc == ERR_SYSTEM ? ERR_CLOSED : err->code; /* it may hang up while there is nothing to say */
    return rc < 0 ? err->code : 0;
}

/* Also when it refuses: another may be there by then, or the password changed. */
static void close_redis(void *arg)
{
    struct mirror *m = arg;
    redis_disconnect(m->repeat.redis);
}

static void interrupt(void *arg)
{
    struct mirror *m = arg;
    redis_interrupt(m->repeat.redis);
}

static uint64_t limit(const struct config *live)
{
    return (uint64_t)live->legacy_mirror_max;
}

static const struct courier_ops courier_ops = {
    .task = "mirror",
    .name = "the mirror",
    .consumer = MIRROR_CONSUMER,
    .limit = limit,
    .batch_max = REPEAT_BATCH,
    .gather_ms = GATHER_MS,
    .first_delay_ms = FIRST_DELAY_MS,
    .last_delay_ms = LAST_DELAY_MS,
    .real = true,
    .open = open_redis,
    .send = send_events,
    .close = close_redis,
    .interrupt = interrupt,
};

/* --- from outside --- */

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
    m->cfg = m->repeat.cfg = cfg;
    m->repeat.refused = on_refused;
    m->repeat.owner = m;
    m->store = store;
    pthread_mutex_init(&m->mutex, NULL);
    courier_init(&m->courier, &courier_ops, m, store, role);
    int rc = redis_new(&m->courier.task.heartbeat, &m->repeat.redis, err);
    rc = rc < 0 ? rc : courier_start(&m->courier, err);
    if (rc < 0) {
        mirror_free(m);
        return rc;
    }
    *mirror = m;
    return 0;
}

void mirror_stop(struct mirror *m)
{
    if (m != NULL) {
        courier_stop(&m->courier);
    }
}

void mirror_free(struct mirror *m)
{
    if (m == NULL) {
        return;
    }
    redis_close(m->repeat.redis);
    courier_free(&m->courier);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

static void look(struct mirror *m, struct mirror_status *out)
{
    courier_look(&m->courier, &out->courier);
    pthread_mutex_lock(&m->mutex);
    out->skipped = m->skipped;
    memcpy(out->problem, m->problem, sizeof out->problem);
    pthread_mutex_unlock(&m->mutex);
    if (out->courier.doing == COURIER_IN_STEP && out->courier.queue.events > 0) {
        out->courier.doing = COURIER_SENDING; /* the thread hasn't looked yet, or is connecting */
    }
}

void mirror_look(const struct dedup *d, struct mirror_status *out)
{
    *out = (struct mirror_status){.courier.doing = COURIER_OFF};
    if (d->mirror != NULL) {
        look(d->mirror, out);
    } else {
        feed_state_of(d->store, MIRROR_CONSUMER, &out->courier.queue);
        out->courier.queue.limit = limit(config_now(d->cfg));
    }
}

void mirror_figures_each(struct mirror *m, figure_visit *visit, void *arg)
{
    struct mirror_status all = {.courier.doing = COURIER_IN_STEP};
    if (m != NULL) {
        look(m, &all);
    }
    const struct courier_status s = all.courier;
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
         s.doing != COURIER_WAITING},
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
        {{"mirror_sent", "mirror_sent_total", FIGURE_COUNTER, "Events that were repeated in the old Redis."}, s.events},
        {{"mirror_sent_bytes", "mirror_sent_bytes_total", FIGURE_COUNTER,
          "About what the repeated events took on disk."},
         s.bytes},
        {{"mirror_skipped", "mirror_skipped_total", FIGURE_COUNTER,
          "Events that the old Redis refused for their key alone."},
         all.skipped},
        {{"mirror_outages", "mirror_outages_total", FIGURE_COUNTER,
          "Times that the mirror had to wait for the old Redis."},
         s.outages},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
