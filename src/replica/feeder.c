/* One thread for all replicas. A fetch is looked at once when it comes; one that may wait is parked, and looked at
 * again whenever something was recorded, until its time is over.
 *
 * No courier (dedup/courier.h) carries here: a replica asks, by itself, for what it wants next and says what it has
 * durable; so nothing is opened, sent, or tried again, and one thread answers all. What is the same is the feed's:
 * which place can be gone on from (feed_fits()), and what was sent and is done (feed_sent.h). */
#include "replica/feeder.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"
#include "replica/event.h"
#include "replica/replica.h"
#include "store/feed_sent.h"

enum { READ_EVENTS = 512, LOOK_MS = 250, LOOK_TEST_MS = 5 };

struct member {
    struct feeder_replica shown; /* under the mutex; the rest is the thread's */
    char name[FEED_NAME_MAX];
    bool listening;
    int64_t seen_us; /* under the mutex, too */
    struct feed_sent sent;
};

struct feeder {
    struct replica *r;
    struct store_reader *reader;
    struct arena arena;
    struct feed_event events[READ_EVENTS];
    struct task task;
    struct log_limit log;

    pthread_mutex_t mutex;              /* guards: */
    struct feeder_fetch *first, **last; /* have come */
    struct feeder_fetch *parked;
    struct member members[FEEDER_REPLICAS_MAX];
    int n;
};

static void name_of(uint64_t node, char out[FEED_NAME_MAX])
{
    snprintf(out, FEED_NAME_MAX, FEED_REMOTE "%016" PRIx64, node);
}

/* With the mutex. */
static struct member *find(struct feeder *f, uint64_t node)
{
    for (int i = 0; i < f->n; i++) {
        if (f->members[i].shown.node == node) {
            return &f->members[i];
        }
    }
    return NULL;
}

static uint64_t limit(const struct config *live)
{
    return (uint64_t)live->feed_max;
}

/* On a thread of the store, which must not wait. */
static void on_more(void *arg)
{
    struct feeder *f = arg;
    pthread_mutex_lock(&f->mutex);
    task_wake(&f->task);
    pthread_mutex_unlock(&f->mutex);
}

/* With the mutex. NULL: there is no room. */
static struct member *find_or_add(struct feeder *f, uint64_t node)
{
    struct member *m = find(f, node);
    if (m == NULL && f->n < FEEDER_REPLICAS_MAX) {
        m = &f->members[f->n++];
        *m = (struct member){.shown.node = node};
        name_of(node, m->name);
    }
    return m;
}

/* Those that the feed doesn't hold anything for any more, since they were dismissed, make room. By the feeder's thread,
 * which alone keeps a member without the mutex, while it keeps none. The feed is not asked with the mutex: it wakes
 * this thread with a lock of its own. */
static void forget_dismissed(struct feeder *f)
{
    for (int i = FEEDER_REPLICAS_MAX - 1; i >= 0; i--) {
        char name[FEED_NAME_MAX] = "";
        struct feed_state queue;
        pthread_mutex_lock(&f->mutex);
        if (i < f->n) {
            snprintf(name, sizeof name, "%s", f->members[i].name);
        }
        pthread_mutex_unlock(&f->mutex);
        feed_state_of(f->r->store, name, &queue);
        if (name[0] != '\0' && queue.name[0] == '\0') {
            pthread_mutex_lock(&f->mutex);
            f->members[i] = f->members[--f->n];
            pthread_mutex_unlock(&f->mutex);
        }
    }
}

/* By the feeder's thread. NULL: there are too many. */
static struct member *member_of(struct feeder *f, uint64_t node)
{
    struct member *m = NULL;
    for (int tries = 0; m == NULL && tries < 2; tries++) {
        if (tries > 0) {
            forget_dismissed(f);
        }
        pthread_mutex_lock(&f->mutex);
        m = find_or_add(f, node);
        pthread_mutex_unlock(&f->mutex);
    }
    return m;
}

/* --- a fetch --- */

static const char FOREIGN[] = "what this replica has last is not of this feed";
static const char TOO_OLD[] = "this replica went back to a state older than what is held for it";
static const char TOO_MUCH[] = "too much was recorded while this replica was away (feed_max)";

static int lost(struct feeder_fetch *fetch, const char *why)
{
    return err_set(&fetch->err, ERR_NOTFOUND, "%s: unseen clone makes this replica again", why);
}

static void renew(struct store_call *call)
{
    struct feeder *f = call->owner;
    if (call->err.code < 0) {
        log_error("this folder could not become a new node", "error=%s", log_quote_str(call->err.text));
    }
    pthread_mutex_lock(&f->mutex);
    task_wake(&f->task);
    pthread_mutex_unlock(&f->mutex);
    free(call);
}

/* A replica has more than this folder: it was copied, or its disk went back. */
static void went_back(struct feeder *f, const struct feeder_fetch *fetch)
{
    log_error("a replica knows more of this folder than it does itself: it was copied, or went back to an older state; "
              "from now on it is another node, and its replicas must be cloned again",
              "replica=%016" PRIx64 " run=%016" PRIx64 " seq=%" PRIu64, fetch->replica, fetch->run, fetch->after);
    struct store_call *call = calloc(1, sizeof *call);
    if (call != NULL) {
        call->done = renew;
        call->owner = f;
        f->r->store->node->renew(f->r->store, call);
    }
}

static int look_at_cursor(struct feeder *f, struct feeder_fetch *fetch, const char *name)
{
    switch (feed_fits(f->r->store, name, fetch->node, fetch->run, fetch->after)) {
    case FEED_UNKNOWN:
        return lost(fetch, "this replica is not enlisted here");
    case FEED_ROLLED_BACK:
        went_back(f, fetch);
        return lost(fetch, FOREIGN);
    case FEED_FOREIGN:
        return lost(fetch, FOREIGN);
    case FEED_MISSES:
        return lost(fetch, TOO_MUCH);
    case FEED_TOO_OLD:
        return lost(fetch, TOO_OLD);
    case FEED_FITS:
        break;
    }
    return 0;
}

/* A forget and what it spares, which follows it and is of the same user, are not torn apart, as far as a reply may go:
 * a replica takes them in one step (follower_apply.c). */
static bool goes_in(const struct feeder_fetch *fetch, const struct event_state *state, const struct feed_event *event)
{
    return fetch->n < EVENT_RUN_MAX && (fetch->events.len < fetch->bytes_max || slice_eq(event->user, state->user));
}

static int read_events(struct feeder *f, struct member *m, struct feeder_fetch *fetch)
{
    struct event_state state = {0};
    struct feed_stretch sent = {.from = fetch->after, .to = fetch->after};
    int got = READ_EVENTS;
    bool fits = true;
    arena_reset(&f->arena);
    while (fits && got == READ_EVENTS) {
        /* Not reset in between: `state` looks at the user before. */
        got = f->r->store->feed->read(f->reader, m->name, fetch->to, f->events, READ_EVENTS, &f->arena, &fetch->err);
        for (int i = 0; i < got && (fits = goes_in(fetch, &state, &f->events[i])); i++) {
            struct feed_event event = f->events[i];
            event.group = fetch->groups ? event.group : 0;
            if (event_write(&state, &event, &fetch->events) < 0) {
                return err_set(&fetch->err, ERR_NOMEM, "out of memory while events are packed");
            }
            fetch->n++;
            fetch->to = f->events[i].seq;
            sent.bytes += feed_event_bytes(f->events[i].user, f->events[i].item, f->events[i].group);
        }
        heartbeat_now(&f->task.heartbeat);
    }
    if (got < 0 && fetch->n == 0) {
        return got;
    }
    fetch->err = (struct err){0}; /* what can't be read stands behind what could */
    if (fetch->n > 0) {
        sent.n = fetch->n;
        sent.to = fetch->to;
        feed_sent_add(&m->sent, &sent);
    }
    return 0;
}

static void listen_for(struct feeder *f, struct member *m)
{
    struct err err = {0};
    const struct feed_consumer consumer = {m->name, limit, on_more, f};
    m->listening = f->r->store->feed->listen(f->r->store, &consumer, &err) == 0;
    if (!m->listening) {
        log_error("a replica can't be woken", "error=%s", log_quote_str(err.text));
    }
}

static void note_seen(struct feeder *f, struct member *m, const struct feeder_fetch *fetch)
{
    int64_t now = clock_wall_ms();
    pthread_mutex_lock(&f->mutex);
    m->seen_us = fetch->began_us;
    m->shown.connected = true;
    m->shown.seen_ms = now;
    m->shown.clock_apart_ms = fetch->sent_ms - now;
    pthread_mutex_unlock(&f->mutex);
}

static bool is_over(const struct feeder_fetch *fetch)
{
    return clock_real_us() - fetch->began_us >= fetch->wait_ms * 1000;
}

/* Nothing stands up to the newest place, which jumps without an event when this node was killed: the replica goes
 * there, else it would never be level. Unless it has lost what stood there. */
static int pass_empty(struct feeder *f, struct feeder_fetch *fetch, const char *name)
{
    struct feed_state queue;
    if (fetch->n > 0 || fetch->err.code < 0) {
        return 0;
    }
    feed_state_of(f->r->store, name, &queue);
    if (queue.name[0] == '\0' || queue.place == FEED_LOST) {
        return lost(fetch, TOO_MUCH);
    }
    fetch->to = fetch->last > fetch->to ? fetch->last : fetch->to;
    return 0;
}

static int pass_durable(struct feeder *f, struct member *m, uint64_t durable, struct err *err)
{
    return feed_sent_done(&m->sent, f->r->store, f->reader, m->name, durable, &f->task.heartbeat, err);
}

/* Whether it is answered; else it waits. */
static bool work(struct feeder *f, struct feeder_fetch *fetch, bool first)
{
    struct store *s = f->r->store;
    struct feed_state queue;
    char name[FEED_NAME_MAX];
    name_of(fetch->replica, name);
    fetch->to = fetch->after;
    fetch->last = s->feed->last(s);
    if (look_at_cursor(f, fetch, name) < 0) {
        return true;
    }
    struct member *m = member_of(f, fetch->replica);
    if (m == NULL) {
        err_set(&fetch->err, ERR_FULL, "more than %d replicas follow", FEEDER_REPLICAS_MAX);
        return true;
    }
    if (!m->listening) {
        listen_for(f, m);
    }
    if (first) {
        note_seen(f, m, fetch);
    }
    if ((first && pass_durable(f, m, fetch->durable, &fetch->err) < 0) || read_events(f, m, fetch) < 0 ||
        pass_empty(f, fetch, name) < 0) {
        return true;
    }
    feed_state_of(s, name, &queue);
    if (fetch->after < queue.held) { /* it went back, and what was held there may have gone while it was read */
        buf_clear(&fetch->events);
        fetch->n = 0;
        lost(fetch, TOO_OLD);
        return true;
    }
    fetch->last = fetch->to > fetch->last ? fetch->to : fetch->last;
    pthread_mutex_lock(&f->mutex);
    m->shown.read = fetch->to;
    m->shown.durable = fetch->durable;
    pthread_mutex_unlock(&f->mutex);
    return fetch->n > 0 || fetch->durable < fetch->after || is_over(fetch);
}

/* --- the thread --- */

static void answer(struct feeder *f, struct feeder_fetch *fetch)
{
    if (fetch->err.code < 0 && log_again(&f->log)) {
        log_warn("a replica is refused", "replica=%016" PRIx64 " error=%s", fetch->replica,
                 log_quote_str(fetch->err.text));
    }
    fetch->done(fetch);
}

/* With the mutex, which is let go meanwhile. */
static void work_list(struct feeder *f, struct feeder_fetch *list, bool first)
{
    for (struct feeder_fetch *next; list != NULL; list = next) {
        next = list->next;
        pthread_mutex_unlock(&f->mutex);
        bool answered = work(f, list, first);
        if (answered) {
            answer(f, list);
        }
        pthread_mutex_lock(&f->mutex);
        if (!answered) {
            list->next = f->parked;
            f->parked = list;
        }
    }
}

/* Those who haven't asked for long count no more. With the mutex, which is let go meanwhile. */
static void look_for_gone(struct feeder *f)
{
    uint64_t gone[FEEDER_REPLICAS_MAX];
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        struct member *m = &f->members[i];
        bool waits = false;
        for (struct feeder_fetch *p = f->parked; p != NULL; p = p->next) {
            waits = waits || p->replica == m->shown.node;
        }
        if (m->shown.connected && !waits && clock_real_us() - m->seen_us > FEEDER_GONE_MS * 1000) {
            m->shown.connected = false;
            gone[n++] = m->shown.node;
        }
    }
    pthread_mutex_unlock(&f->mutex);
    for (int i = 0; i < n; i++) {
        log_warn("a replica is away", "replica=%016" PRIx64, gone[i]);
        ack_left(f->r->ack, gone[i]);
    }
    pthread_mutex_lock(&f->mutex);
}

/* Until the next parked one's time is over. */
static int64_t rest_us(const struct feeder *f)
{
    int64_t look_ms = f->n == 0 ? HEARTBEAT_EVERY_MS : clock_is_test() ? LOOK_TEST_MS : LOOK_MS;
    int64_t most = look_ms * 1000, now = clock_real_us();
    for (const struct feeder_fetch *p = f->parked; p != NULL; p = p->next) {
        int64_t left = p->began_us + p->wait_ms * 1000 - now;
        most = left < 1 ? 1 : left < most ? left : most;
    }
    return most;
}

static void feeder_main(void *arg)
{
    struct feeder *f = arg;
    pthread_mutex_lock(&f->mutex);
    while (!task_stops(&f->task)) {
        if (f->first == NULL) {
            task_wait_real(&f->task, clock_real_us() + rest_us(f));
        }
        heartbeat_now(&f->task.heartbeat);
        struct feeder_fetch *come = f->first, *parked = f->parked;
        f->first = f->parked = NULL;
        f->last = &f->first;
        work_list(f, parked, false);
        work_list(f, come, true);
        look_for_gone(f);
    }
    pthread_mutex_unlock(&f->mutex);
}

/* --- from outside --- */

int feeder_start(struct replica *r, struct feeder **feeder, struct err *err)
{
    *feeder = NULL;
    struct feeder *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    f->r = r;
    f->last = &f->first;
    pthread_mutex_init(&f->mutex, NULL);
    task_init(&f->task, &f->mutex);
    int rc = r->store->ops->reader_open(r->store, &f->reader, err);
    if (rc == 0 && (rc = task_start(&f->task, "feeder", TASK_BEATS, feeder_main, f, err)) < 0) {
        r->store->ops->reader_close(f->reader);
    }
    if (rc < 0) {
        f->reader = NULL;
        feeder_free(f);
        return rc;
    }
    *feeder = f;
    return 0;
}

static void close_all(struct feeder_fetch *list)
{
    for (struct feeder_fetch *next; list != NULL; list = next) {
        next = list->next;
        err_set(&list->err, ERR_CLOSED, "the server is shutting down");
        list->done(list);
    }
}

void feeder_stop(struct feeder *f)
{
    if (f == NULL || f->reader == NULL) {
        return;
    }
    task_stop(&f->task);
    struct err err;
    for (int i = 0; i < f->n; i++) { /* what is recorded is kept for them all the same */
        f->r->store->feed->listen(f->r->store, &(struct feed_consumer){f->members[i].name, limit, NULL, NULL}, &err);
    }
    pthread_mutex_lock(&f->mutex);
    struct feeder_fetch *come = f->first, *parked = f->parked;
    f->first = f->parked = NULL;
    pthread_mutex_unlock(&f->mutex);
    close_all(come);
    close_all(parked);
    f->r->store->ops->reader_close(f->reader);
    f->reader = NULL;
}

void feeder_free(struct feeder *f)
{
    if (f == NULL) {
        return;
    }
    arena_free(&f->arena);
    task_destroy(&f->task);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

void feeder_fetch(struct feeder *f, struct feeder_fetch *fetch)
{
    bool rolled_back = false;
    fetch->began_us = clock_real_us();
    fetch->next = NULL;
    if (f->r->store->node->knows(f->r->store, fetch->node, fetch->run, fetch->durable, &rolled_back) == 1) {
        ack_reached(f->r->ack, fetch->replica, fetch->durable); /* at once: writes wait for it */
    }
    pthread_mutex_lock(&f->mutex);
    bool stopped = task_stops(&f->task);
    if (!stopped) {
        *f->last = fetch;
        f->last = &fetch->next;
        task_wake(&f->task);
    }
    pthread_mutex_unlock(&f->mutex);
    if (stopped) {
        close_all(fetch);
    }
}

void feeder_tell_address(struct feeder *f, uint64_t node, const char *address, uint64_t term)
{
    char name[FEED_NAME_MAX];
    struct feed_state queue;
    name_of(node, name);
    feed_state_of(f->r->store, name, &queue);
    pthread_mutex_lock(&f->mutex);
    struct member *m = queue.name[0] != '\0' ? find_or_add(f, node) : NULL; /* a clone says hello, too */
    if (m != NULL) {
        if (m->shown.connected && m->shown.address[0] != '\0' && strcmp(m->shown.address, address) != 0) {
            log_warn("two replicas say that they are one node, or one has moved: clone a copied folder again",
                     "replica=%016" PRIx64 " address=%s", node, log_quote_str(address));
        }
        snprintf(m->shown.address, sizeof m->shown.address, "%s", address);
        m->shown.heard = term;
    }
    pthread_mutex_unlock(&f->mutex);
}

void feeder_know_address(struct feeder *f, uint64_t node, const char *address)
{
    pthread_mutex_lock(&f->mutex);
    struct member *m = find_or_add(f, node);
    if (m != NULL && m->shown.address[0] == '\0') {
        snprintf(m->shown.address, sizeof m->shown.address, "%s", address);
    }
    pthread_mutex_unlock(&f->mutex);
}

int feeder_look(struct feeder *f, struct feeder_replica out[FEEDER_REPLICAS_MAX])
{
    struct feed_state all[FEED_CONSUMERS_MAX];
    int n = 0, consumers = feed_look(f->r->store, all);
    for (int i = 0; i < consumers && n < FEEDER_REPLICAS_MAX; i++) {
        uint64_t node;
        if (strncmp(all[i].name, FEED_REMOTE, strlen(FEED_REMOTE)) != 0 ||
            sscanf(all[i].name + strlen(FEED_REMOTE), "%16" SCNx64, &node) != 1) {
            continue;
        }
        pthread_mutex_lock(&f->mutex);
        const struct member *m = find(f, node);
        out[n] = m != NULL ? m->shown : (struct feeder_replica){.node = node};
        pthread_mutex_unlock(&f->mutex);
        out[n++].queue = all[i];
    }
    return n;
}
