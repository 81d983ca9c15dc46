/* The courier's thread: opens, reads a batch, sends it, says how far it is done, and begins again; when nothing waits
 * it sleeps until the store wakes it, which it does only for one that sleeps.
 *
 * What can go wrong. Reading, or the consumer: what was begun is closed, and begun again after a delay, from where the
 * consumer has all; said in the log when that begins and when it ends. An event may be sent twice, never out of order
 * but for that, and none is done that send() has not said is. The newest place in the feed jumps without an event when
 * the node was killed: a remote consumer goes there, else it would never be level; a local one doesn't, since behind a
 * gap (store/sqlite/staging/feed.c) there may be more for it.
 */
#include "dedup/courier.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/hide.h"
#include "base/log.h"
#include "store/node.h"

const char *courier_doing_name(enum courier_doing doing)
{
    static const char *const names[COURIER_DOINGS] = {"off", "waiting", "fenced", "filling", "sending", "in step"};
    return names[doing];
}

static bool is_remote(const struct courier *c)
{
    return feed_is_remote(c->ops->consumer);
}

static int64_t now_us(const struct courier *c)
{
    return c->ops->real ? clock_real_us() : clock_mono_us();
}

/* Until told to stop, or until then, or, when it may, woken. */
static void rest(struct courier *c, int64_t until_us, bool wakes)
{
    static bool (*const waits[2][2])(struct task *, int64_t) = {{task_rest, task_wait},
                                                                {task_rest_real, task_wait_real}};
    pthread_mutex_lock(&c->mutex);
    waits[c->ops->real][wakes](&c->task, until_us);
    pthread_mutex_unlock(&c->mutex);
}

static void rest_ms(struct courier *c, int64_t ms, bool wakes)
{
    rest(c, now_us(c) + ms * 1000, wakes);
}

/* --- what is said about it --- */

static void log_change(enum log_level level, const struct courier *c, const char *what, int64_t ms, const char *cause)
{
    char message[80];
    struct feed_state queue;
    feed_state_of(c->store, c->ops->consumer, &queue);
    snprintf(message, sizeof message, "%s %s", c->ops->name, what);
    if (cause != NULL) {
        log_write(level, message, "waiting=%" PRIu64 " cause=%s", queue.events, log_quote_str(cause));
    } else {
        log_write(level, message, "waiting=%" PRIu64 " after_ms=%" PRId64, queue.events, ms);
    }
}

/* Said once; the cause may change while it lasts. */
static void begin_waiting(struct courier *c, const struct err *err)
{
    const enum courier_doing doing = err->code == ERR_LOCKED ? COURIER_FENCED : COURIER_WAITING;
    struct courier_status *s = &c->status;
    pthread_mutex_lock(&c->mutex);
    const bool first = s->doing != doing;
    s->doing = doing;
    hide_ids_copy(s->cause, sizeof s->cause, err->text);
    if (first) {
        s->since_ms = clock_wall_ms();
        s->outages += doing == COURIER_WAITING;
    }
    pthread_mutex_unlock(&c->mutex);
    if (first && doing == COURIER_FENCED) {
        log_change(LOG_LEVEL_ERROR, c, "rests: another writer has taken over", 0, err->text);
    } else if (first) {
        log_change(LOG_LEVEL_WARN, c, "waits", 0, err->text);
    }
}

static void set_doing(struct courier *c, enum courier_doing doing)
{
    struct courier_status *s = &c->status;
    pthread_mutex_lock(&c->mutex);
    const bool waited = s->doing != COURIER_OFF && s->since_ms != 0;
    const int64_t ms = clock_wall_ms() - s->since_ms;
    s->doing = doing;
    s->since_ms = 0;
    s->cause[0] = '\0';
    pthread_mutex_unlock(&c->mutex);
    c->delay_ms = 0;
    if (waited && doing != COURIER_OFF) {
        log_change(LOG_LEVEL_INFO, c, "goes on", ms, NULL);
    }
}

static bool is_fenced(struct courier *c)
{
    pthread_mutex_lock(&c->mutex);
    const bool fenced = c->status.doing == COURIER_FENCED;
    pthread_mutex_unlock(&c->mutex);
    return fenced;
}

void courier_look(struct courier *c, struct courier_status *out)
{
    pthread_mutex_lock(&c->mutex);
    *out = c->status;
    pthread_mutex_unlock(&c->mutex);
    feed_state_of(c->store, c->ops->consumer, &out->queue);
}

/* --- being woken --- */

void courier_wake(struct courier *c)
{
    pthread_mutex_lock(&c->mutex);
    task_wake(&c->task);
    pthread_mutex_unlock(&c->mutex);
}

void courier_retry(struct courier *c)
{
    pthread_mutex_lock(&c->mutex);
    c->status.doing = c->status.doing == COURIER_FENCED ? COURIER_WAITING : c->status.doing;
    task_wake(&c->task);
    pthread_mutex_unlock(&c->mutex);
}

/* On a thread of the store, which must not wait. */
static void on_more(void *arg)
{
    struct courier *c = arg;
    if (atomic_exchange(&c->asleep, false)) {
        courier_wake(c);
    }
}

static int be_woken(struct courier *c, struct err *err)
{
    const struct feed_consumer consumer = {c->ops->consumer, c->ops->limit, on_more, c};
    atomic_store(&c->listens, true);
    return c->store->feed->listen(c->store, &consumer, err);
}

/* What is recorded is kept for it all the same. */
static void be_left_alone(struct courier *c)
{
    const struct feed_consumer consumer = {c->ops->consumer, c->ops->limit, NULL, NULL};
    struct feed_state queue;
    struct err err;
    feed_state_of(c->store, c->ops->consumer, &queue);
    if (atomic_load(&c->listens) && (queue.name[0] != '\0' || !is_remote(c))) {
        c->store->feed->listen(c->store, &consumer, &err);
    }
}

/* A local one listens from the first write that is taken here on. */
static void on_role(void *arg, enum node_role now)
{
    struct courier *c = arg;
    struct err err;
    if (now == NODE_PRIMARY && !is_remote(c) && be_woken(c, &err) < 0) {
        log_change(LOG_LEVEL_ERROR, c, "can't begin", 0, err.text);
    }
    courier_wake(c);
}

/* --- of open() --- */

void courier_go_from(struct courier *c, uint64_t to)
{
    c->to = c->done = to;
    pthread_mutex_lock(&c->mutex);
    c->status.to = to;
    pthread_mutex_unlock(&c->mutex);
}

uint64_t courier_skip(struct courier *c)
{
    const uint64_t to = c->store->feed->last(c->store);
    c->store->feed->pass(c->store, c->ops->consumer);
    courier_go_from(c, to);
    return to;
}

struct answer {
    struct courier *c;
    bool done;
};

static void on_answer(struct store_call *call)
{
    struct answer *a = call->owner;
    pthread_mutex_lock(&a->c->mutex);
    task_answer(&a->c->task, &a->done);
    pthread_mutex_unlock(&a->c->mutex);
}

static int await(struct answer *a, const struct err *answer, struct err *err)
{
    pthread_mutex_lock(&a->c->mutex);
    task_await(&a->c->task, &a->done);
    a->done = false;
    pthread_mutex_unlock(&a->c->mutex);
    *err = *answer;
    return err->code;
}

int courier_enlist(struct courier *c, struct err *err)
{
    struct store *s = c->store;
    struct answer a = {.c = c};
    struct feed_reset reset = {.call = {.done = on_answer, .owner = &a}, .consumer = c->ops->consumer};
    struct feed_enlist enlist = {.call = {.done = on_answer, .owner = &a}, .consumer = c->ops->consumer};
    struct feed_state queue;
    int rc = 0;
    feed_state_of(s, c->ops->consumer, &queue);
    if (queue.name[0] != '\0' && queue.place == FEED_LOST) {
        s->feed->reset(s, &reset);
        rc = await(&a, &reset.call.err, err);
    }
    if (rc == 0 && (queue.name[0] == '\0' || queue.place == FEED_LOST)) {
        s->feed->enlist(s, &enlist);
        rc = await(&a, &enlist.call.err, err);
    }
    return rc < 0 ? rc : be_woken(c, err);
}

static void on_given_up(struct store_call *call)
{
    if (call->err.code < 0) {
        log_warn("what was kept for a consumer of the feed stays", "error=%s", log_quote_str(call->err.text));
    }
    free(call->owner);
}

void courier_give_up(struct store *store, const struct courier_ops *ops)
{
    struct feed_state queue;
    feed_state_of(store, ops->consumer, &queue);
    struct feed_reset *reset = queue.name[0] != '\0' ? calloc(1, sizeof *reset) : NULL;
    if (reset != NULL) {
        log_info("a consumer of the feed is no longer there: what waited for it is dropped", "consumer=%s",
                 ops->consumer);
        *reset = (struct feed_reset){.call = {.done = on_given_up, .owner = reset}, .consumer = ops->consumer};
        store->feed->reset(store, reset);
    }
}

/* --- carrying --- */

static uint64_t this_node(struct courier *c)
{
    struct store_node self = {.node = 0};
    if (is_remote(c)) {
        c->store->node->get(c->store, &self);
    }
    return self.node;
}

static int open_it(struct courier *c, struct err *err)
{
    struct feed_state queue;
    if (c->is_open) {
        return 0;
    }
    feed_state_of(c->store, c->ops->consumer, &queue);
    c->done = is_remote(c) ? c->done : queue.cursor;
    c->to = c->done;
    c->node = this_node(c);
    c->worked = false;
    int rc = c->ops->open(c->arg, err);
    c->is_open = rc == 0;
    c->opened_us = now_us(c);
    c->beat_us = 0;
    return rc;
}

/* Whether a remote one can be gone on with: also after the read, since what it has lost isn't read. */
static int check(struct courier *c, struct err *err)
{
    struct feed_state queue;
    if (!is_remote(c)) {
        return 0;
    }
    feed_state_of(c->store, c->ops->consumer, &queue);
    return this_node(c) != c->node ? err_set(err, ERR_STALE, "this folder has become another node")
           : queue.name[0] == '\0' || queue.place == FEED_LOST
               ? err_set(err, ERR_STALE, "too much was recorded while it was away (feed_max)")
               : 0;
}

/* Those that wait, and up to where that is all there is. */
static int read_events(struct courier *c, struct courier_batch *b, struct err *err)
{
    const int64_t now_ms = clock_wall_ms();
    const uint64_t last = c->store->feed->last(c->store);
    arena_reset(&c->arena);
    b->events = c->events;
    b->from = c->to;
    if (last > c->to) {
        heartbeat_excuse(&c->task.heartbeat); /* what was just recorded is in memory, as a rule */
        b->n = c->store->feed->read(c->reader, c->ops->consumer, c->to, c->events, c->ops->batch_max, &c->arena, err);
        heartbeat_now(&c->task.heartbeat);
    }
    if (b->n < 0) {
        return b->n;
    }
    const bool all = b->n < c->ops->batch_max;
    const struct feed_event *end = b->n > 0 ? &c->events[b->n - 1] : NULL;
    b->to = end != NULL ? end->seq : b->from;
    b->to = all && is_remote(c) && last > b->to ? last : b->to;
    b->as_of_ms = all ? now_ms : end->recorded_ms;
    b->done = b->to;
    return check(c, err);
}

static void note_sent(struct courier *c, const struct courier_batch *b)
{
    struct feed_stretch stretch = {.from = b->from, .to = b->to, .n = (uint64_t)b->n};
    for (int i = 0; i < b->n; i++) {
        stretch.bytes += feed_event_bytes(b->events[i].user, b->events[i].item, b->events[i].group);
    }
    if (b->to > b->from) {
        feed_sent_add(&c->sent, &stretch);
    }
    c->worked = c->worked || b->n > 0;
    c->to = b->to;
    c->beat_us = now_us(c) + (int64_t)c->ops->beat_ms * 1000;
    pthread_mutex_lock(&c->mutex);
    c->status.to = b->to;
    c->status.events += stretch.n;
    c->status.bytes += stretch.bytes;
    pthread_mutex_unlock(&c->mutex);
}

/* Sends what waits next. Returns how many events. */
static int step(struct courier *c, struct err *err)
{
    struct courier_batch b = {.n = 0};
    int rc = open_it(c, err);
    rc = rc < 0 || c->ops->look == NULL ? rc : c->ops->look(c->arg, err);
    if (rc < 0) {
        return rc;
    }
    atomic_store(&c->asleep, true); /* before it looks for events, so that no wake-up is missed */
    if ((rc = read_events(c, &b, err)) < 0) {
        return rc;
    }
    if (b.n > 0) {
        atomic_store(&c->asleep, false);
    }
    if (b.n == 0 && (c->ops->beat_ms == 0 || (b.to == b.from && now_us(c) < c->beat_us))) {
        return 0;
    }
    if ((rc = c->ops->send(c->arg, &b, err)) < 0) {
        return rc;
    }
    note_sent(c, &b);
    if (b.done > c->done) {
        rc = feed_sent_done(&c->sent, c->store, c->reader, c->ops->consumer, b.done, &c->task.heartbeat, err);
        c->done = rc < 0 ? c->done : b.done;
    }
    return rc < 0 ? rc : b.n;
}

static void shut(struct courier *c)
{
    c->ops->close(c->arg);
    c->is_open = false;
    atomic_store(&c->asleep, false);
}

static void trouble(struct courier *c, const struct err *err)
{
    const bool old = c->is_open && now_us(c) - c->opened_us >= COURIER_AGAIN_MS * 1000;
    const bool hung_up = err->code == ERR_CLOSED && (old || (c->is_open && c->worked));
    shut(c);
    if (task_stops(&c->task) || hung_up) {
        return;
    }
    if (old && err->code == ERR_STALE) {
        log_change(LOG_LEVEL_WARN, c, "is begun again", 0, err->text);
        return;
    }
    begin_waiting(c, err);
    c->delay_ms = backoff_next(c->delay_ms, c->ops->first_delay_ms, c->ops->last_delay_ms);
    rest_ms(c, c->delay_ms, false);
}

static void carry(struct courier *c)
{
    struct err err = {0};
    const int n = step(c, &err);
    if (n < 0) {
        trouble(c, &err);
        return;
    }
    set_doing(c, n == c->ops->batch_max ? COURIER_SENDING : COURIER_IN_STEP);
    if (n == 0) {
        rest(c, c->ops->beat_ms > 0 ? c->beat_us : now_us(c) + HEARTBEAT_EVERY_MS * 1000, true);
    } else if (n < c->ops->batch_max && c->ops->gather_ms > 0) {
        rest_ms(c, c->ops->gather_ms, false);
    }
}

static void run(void *arg)
{
    struct courier *c = arg;
    while (!task_stops(&c->task)) {
        heartbeat_now(&c->task.heartbeat);
        if (!role_is_primary(c->role)) {
            shut(c);
            set_doing(c, COURIER_OFF);
            if (is_remote(c)) {
                courier_give_up(c->store, c->ops); /* once it is promoted, all is brought in again */
            }
            rest_ms(c, HEARTBEAT_EVERY_MS, true);
        } else if (is_fenced(c)) {
            rest_ms(c, HEARTBEAT_EVERY_MS, true);
        } else {
            carry(c);
        }
    }
    shut(c);
}

/* --- start and end --- */

void courier_init(struct courier *c, const struct courier_ops *ops, void *arg, struct store *store, struct role *role)
{
    *c = (struct courier){.ops = ops, .arg = arg, .store = store, .role = role};
    c->status.doing = ops->unreached != NULL ? COURIER_WAITING : COURIER_IN_STEP;
    snprintf(c->status.cause, sizeof c->status.cause, "%s", ops->unreached != NULL ? ops->unreached : "");
    pthread_mutex_init(&c->mutex, NULL);
    task_init(&c->task, &c->mutex);
}

int courier_start(struct courier *c, struct err *err)
{
    if (c->store->feed == NULL) {
        return store_lacks(c->store, "feed, so nothing can be carried from it", err);
    }
    c->events = calloc((size_t)c->ops->batch_max, sizeof *c->events);
    int rc = c->events != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory for %s", c->ops->name);
    rc = rc < 0 ? rc : c->store->ops->reader_open(c->store, &c->reader, err);
    if (rc == 0 && !is_remote(c) && role_is_primary(c->role)) {
        rc = be_woken(c, err);
    }
    rc = rc < 0 ? rc : task_start(&c->task, c->ops->task, TASK_BEATS, run, c, err);
    if (rc == 0 && c->role != NULL && (rc = role_listen(c->role, on_role, c)) < 0) {
        err_set(err, rc, "%s can't be told of promotions", c->ops->name);
    }
    if (rc < 0) {
        courier_stop(c);
    } else if (c->role != NULL && role_is_primary(c->role)) {
        on_role(c, NODE_PRIMARY); /* it may have become that just now */
    }
    return rc;
}

void courier_ask_stop(struct courier *c)
{
    task_ask_stop(&c->task);
    if (c->ops->interrupt != NULL) {
        c->ops->interrupt(c->arg);
    }
}

void courier_stop(struct courier *c)
{
    courier_ask_stop(c);
    task_stop(&c->task);
    if (c->reader != NULL) {
        be_left_alone(c);
        c->store->ops->reader_close(c->reader);
        c->reader = NULL;
    }
}

void courier_free(struct courier *c)
{
    free(c->events);
    arena_free(&c->arena);
    task_destroy(&c->task);
    pthread_mutex_destroy(&c->mutex);
}
