/* The thread that carries events from the feed to the front's Redis, some hundred in one script, in their order.
 *
 * It begins with each connection: what stands there is compared with the feed, and is gone on with from its own `to`,
 * or removed and brought in anew (states.c) when the feed doesn't reach back to there, or it is another folder's. Each
 * beginning takes an epoch of its own, so that what an earlier connection still delivers is refused; a writer that
 * finds a higher one of another node or run is fenced. It reads no history, so a disk that hangs does not hold it up.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/hide.h"
#include "front/front_impl.h"

enum { NUMBER_TEXT = 24, LOOK_MS = 500 /* at whether it is to write after all */ };

static struct slice number(uint64_t n, char out[NUMBER_TEXT])
{
    snprintf(out, NUMBER_TEXT, "%" PRIu64, n);
    return slice_str(out);
}

void front_rest(struct front *f, struct task *t, int64_t ms)
{
    pthread_mutex_lock(&f->mutex);
    task_rest_real(t, clock_real_us() + ms * 1000);
    pthread_mutex_unlock(&f->mutex);
}

int front_verdict(const struct reply *reply, struct err *err)
{
    if (reply->kind != REPLY_ARRAY || reply->n == 0 || reply->items[0].kind != REPLY_TEXT) {
        return err_set(err, ERR_SYSTEM, "the front's Redis answers something else");
    }
    const struct slice word = reply->items[0].text;
    return slice_eq(word, slice_str("OK"))
               ? 0
               : err_set(err, ERR_STALE, "%s",
                         slice_eq(word, slice_str("FENCED"))  ? "another writer has begun"
                         : slice_eq(word, slice_str("MOVED")) ? "what stands in the front went back to an older state"
                                                              : "what stood in the front is gone");
}

/* --- what is said about it --- */

void front_set_doing(struct front *f, enum front_doing doing)
{
    pthread_mutex_lock(&f->mutex);
    f->status.doing = doing;
    f->status.cause[0] = '\0';
    f->status.since_ms = 0;
    pthread_mutex_unlock(&f->mutex);
}

/* Nobody may believe what is there until it is begun anew. */
static void end_epoch(struct front *f)
{
    pthread_mutex_lock(&f->mutex);
    f->epoch = 0;
    f->status.epoch = 0;
    pthread_mutex_unlock(&f->mutex);
    front_link_close(f->w.link);
    f->w.link = NULL;
}

static void begin_waiting(struct front *f, const struct err *err, enum front_doing doing)
{
    pthread_mutex_lock(&f->mutex);
    bool first = f->status.doing != doing;
    f->status.doing = doing;
    hide_ids_copy(f->status.cause, sizeof f->status.cause, err->text);
    if (first) {
        f->status.since_ms = clock_wall_ms();
        f->status.outages += doing == FRONT_WAITING;
    }
    pthread_mutex_unlock(&f->mutex);
    if (first && doing == FRONT_FENCED) {
        log_error("another writer has taken over the front: this one rests", "cause=%s", log_quote_str(err->text));
    } else if (first) {
        log_warn("the front waits", "cause=%s", log_quote_str(err->text));
    }
}

static void end_waiting(struct front *f, enum front_doing doing)
{
    pthread_mutex_lock(&f->mutex);
    bool waited = f->status.since_ms != 0; /* not when it begins for the first time */
    int64_t ms = clock_wall_ms() - f->status.since_ms;
    f->status.doing = doing;
    f->status.cause[0] = '\0';
    f->status.since_ms = 0;
    pthread_mutex_unlock(&f->mutex);
    f->w.delay_ms = 0;
    if (waited) {
        log_info("the front goes on", "after_ms=%" PRId64, ms);
    }
}

/* --- events --- */

struct event_place {
    int64_t key;
    int at; /* in events */
};

/* Events of a user side by side, in their order. */
static int by_user(const void *a, const void *b)
{
    const struct event_place *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->at - y->at;
}

static const char *kind_word(enum feed_kind kind)
{
    return kind == FEED_PLAY || kind == FEED_DELIVERY ? "e" : kind == FEED_FORGET ? "f" : "s";
}

struct batch {
    struct buf *words;
    struct arena *arena;
    bool failed;
};

static void add_word(struct batch *b, struct slice word)
{
    b->failed = buf_add(b->words, &word, sizeof word) < 0 || b->failed;
}

static void add_copy(struct batch *b, const void *bytes, size_t len)
{
    const char *copy = arena_copy(b->arena, bytes, len);
    b->failed = b->failed || copy == NULL;
    add_word(b, slice_of(copy != NULL ? copy : "", copy != NULL ? len : 0));
}

static void add_number(struct batch *b, uint64_t n)
{
    char text[NUMBER_TEXT];
    struct slice word = number(n, text);
    add_copy(b, word.data, word.len);
}

static void add_event(struct front *f, struct batch *b, const struct feed_event *e)
{
    uint8_t member[FRONT_EVENT_MAX];
    size_t len = 0;
    if (e->kind == FEED_PLAY || e->kind == FEED_DELIVERY) {
        len = front_event_write((enum store_kind)e->kind, hash_id(f->dedup->seed, e->item), month_of_ms(e->at_ms),
                                e->item, member);
    }
    add_word(b, slice_str(kind_word(e->kind)));
    add_number(b, e->seq);
    add_copy(b, member, len);
}

/* Two users may share a key: a group ends where the name changes, and each has as many groups as it takes. */
static int group_end(const struct front *f, const struct event_place *list, int n, int from)
{
    int to = from + 1;
    while (to < n && list[to].key == list[from].key &&
           slice_eq(f->w.events[list[to].at].user, f->w.events[list[from].at].user)) {
        to++;
    }
    return to;
}

static int sort_events(const struct front *f, int n, struct event_place *list)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const struct feed_event *e = &f->w.events[i];
        if (e->kind != FEED_OFFSET && e->kind != FEED_POOL) { /* these name no user */
            list[kept++] = (struct event_place){hash_user_key(f->dedup->seed, e->user), i};
        }
    }
    qsort(list, (size_t)kept, sizeof *list, by_user);
    return kept;
}

static void add_keys(struct front *f, struct batch *b, const struct event_place *list, int n)
{
    char key[FRONT_KEY_MAX];
    int groups = 0;
    for (int i = 0; i < n; i = group_end(f, list, n, i)) {
        groups++;
    }
    add_number(b, 2 + 2 * (uint64_t)groups);
    struct slice word = front_key_meta(f->cfg->front_prefix, key);
    add_copy(b, word.data, word.len);
    word = front_key_dirty(f->cfg->front_prefix, key);
    add_copy(b, word.data, word.len);
    for (int i = 0; i < n; i = group_end(f, list, n, i)) {
        struct slice user = f->w.events[list[i].at].user;
        word = front_key_state(f->cfg->front_prefix, user, key);
        add_copy(b, word.data, word.len);
        word = front_key_events(f->cfg->front_prefix, user, key);
        add_copy(b, word.data, word.len);
    }
}

static int pack_events(struct front *f, int n, uint64_t to, int64_t at_ms, uint64_t last, struct err *err)
{
    struct event_place list[FRONT_EVENTS_BATCH];
    struct batch b = {.words = &f->w.words, .arena = &f->w.arena};
    char month[MONTH_TEXT];
    n = sort_events(f, n, list);
    buf_clear(b.words);
    add_keys(f, &b, list, n);
    add_number(&b, f->last_epoch);
    add_number(&b, f->w.to);
    add_number(&b, to);
    add_number(&b, (uint64_t)at_ms);
    add_number(&b, strlen(f->cfg->front_prefix) + 3);
    add_number(&b, last);
    month_suffix(dedup_first_month(f->dedup), month);
    add_copy(&b, month, strlen(month));
    add_number(&b, (uint64_t)config_now(f->cfg)->delivered_max);
    for (int i = 0, end; i < n; i = end) {
        end = group_end(f, list, n, i);
        add_number(&b, (uint64_t)(end - i));
        for (int k = i; k < end; k++) {
            add_event(f, &b, &f->w.events[list[k].at]);
        }
    }
    return b.failed ? err_set(err, ERR_NOMEM, "out of memory for the front") : 0;
}

/* What the feed counts as waiting is behind its cursor. */
static void count_done(struct front *f, int n)
{
    struct feed_state queue;
    uint64_t events = 0, bytes = 0, sent_bytes = 0;
    feed_state_of(f->store, FEED_FRONT, &queue);
    for (int i = 0; i < n; i++) {
        const struct feed_event *e = &f->w.events[i];
        uint64_t size = feed_event_bytes(e->user, e->item);
        sent_bytes += size;
        events += e->seq > queue.cursor;
        bytes += e->seq > queue.cursor ? size : 0;
    }
    if (events > 0) {
        f->store->feed->done(f->store, FEED_FRONT, f->w.events[n - 1].seq, events, bytes);
    }
    pthread_mutex_lock(&f->mutex);
    f->status.events += (uint64_t)n;
    f->status.bytes += sent_bytes;
    pthread_mutex_unlock(&f->mutex);
}

/* With the mutex. One a second. */
static void take_sample(struct front *f, int n)
{
    int64_t now_us = clock_real_us();
    if (n == 0 || now_us < f->w.sample_us || f->n_samples == FRONT_SAMPLES_MAX || !f->full) {
        return;
    }
    const struct feed_event *e = &f->w.events[n - 1];
    if (e->kind != FEED_OFFSET && e->kind != FEED_POOL) {
        struct front_sample *s = &f->samples[f->n_samples++];
        s->due_ms = clock_mono_ms() + FRONT_SAMPLE_MS;
        memcpy(s->bytes, e->user.data, e->user.len);
        s->user.len = e->user.len;
        f->w.sample_us = now_us + 1000 * 1000;
    }
}

static int send_events(struct front *f, int n, uint64_t to, int64_t at_ms, struct err *err)
{
    const struct reply *reply;
    int64_t dirty = 0;
    int rc = pack_events(f, n, to, at_ms, f->store->feed->last(f->store), err);
    if (rc < 0) {
        return rc;
    }
    heartbeat_excuse(&f->w.task.heartbeat);
    rc = front_link_run(f->w.link, FRONT_EVENTS, (const struct slice *)f->w.words.data,
                        f->w.words.len / sizeof(struct slice), &reply, err);
    heartbeat_now(&f->w.task.heartbeat);
    if (rc < 0 || (rc = front_verdict(reply, err)) < 0) {
        return rc;
    }
    if (reply->n > 1) {
        reply_integer(&reply->items[1], &dirty);
    }
    f->w.to = to;
    f->w.beat_us = clock_real_us() + FRONT_BEAT_MS * 1000;
    if (n > 0) {
        count_done(f, n);
    }
    pthread_mutex_lock(&f->mutex);
    f->status.to = to;
    f->status.dirty = (uint64_t)dirty;
    take_sample(f, n);
    pthread_mutex_unlock(&f->mutex);
    return 0;
}

/* What the scripts don't compare. Another epoch is theirs to find. */
static int check_meta(struct front *f, struct err *err)
{
    const struct front_meta *m = &f->w.question.meta;
    struct err why = {0};
    pthread_mutex_lock(&f->mutex);
    const bool full = f->full; /* before the look: Redis has it first */
    pthread_mutex_unlock(&f->mutex);
    int rc = front_question_read(f->w.link, f->cfg->front_prefix, NULL, 0, &f->w.question, &why);
    if (rc == ERR_CORRUPT || rc == ERR_VERSION) {
        return err_set(err, ERR_STALE, "%s", why.text);
    }
    if (rc < 0 && rc != ERR_ABSENT) {
        return (*err = why).code;
    }
    bool ours = m->present && m->seed == f->dedup->seed && m->node == f->node && m->run == f->w.run &&
                m->evicted == f->evicted && (m->full || !full);
    return ours || (m->present && m->epoch != f->last_epoch) ? 0
                                                             : err_set(err, ERR_STALE, "somebody has changed its meta");
}

/* Once a second: that Redis, what stands there, and this node. */
static int check(struct front *f, struct err *err)
{
    struct store_node self;
    uint64_t evicted;
    if (clock_real_us() < f->w.check_us) {
        return 0;
    }
    f->w.check_us = clock_real_us() + FRONT_CHECK_MS * 1000;
    int rc = front_link_check(f->w.link, &evicted, err);
    if (rc == 0 && evicted > f->evicted) {
        rc = err_set(err, ERR_STALE, "that Redis has evicted keys");
    }
    rc = rc < 0 ? rc : check_meta(f, err);
    f->store->node->get(f->store, &self);
    return rc == 0 && self.node != f->node ? err_set(err, ERR_STALE, "this folder has become another node") : rc;
}

/* Sends what waits next. Returns how many events. */
static int step(struct front *f, struct err *err)
{
    pthread_mutex_lock(&f->mutex);
    bool rebuild = f->rebuild, again = f->begin_again;
    f->begin_again = false;
    pthread_mutex_unlock(&f->mutex);
    if (rebuild || again) {
        return err_set(err, ERR_STALE, rebuild ? "a rebuild was asked for" : "users could not be brought into it");
    }
    int rc = check(f, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t last = f->store->feed->last(f->store);
    arena_reset(&f->w.arena);
    heartbeat_excuse(&f->w.task.heartbeat); /* what was just recorded is in memory, as a rule */
    int n = f->store->feed->read(f->w.reader, FEED_FRONT, f->w.to, f->w.events, FRONT_EVENTS_BATCH, &f->w.arena, err);
    heartbeat_now(&f->w.task.heartbeat);
    if (n < 0) {
        return n;
    }
    struct feed_state queue;
    feed_state_of(f->store, FEED_FRONT, &queue);
    if (queue.name[0] == '\0' || queue.place == FEED_LOST) {
        return err_set(err, ERR_STALE, "too much was recorded while it was away (feed_max)");
    }
    const struct feed_event *end = n > 0 ? &f->w.events[n - 1] : NULL;
    bool all = n < FRONT_EVENTS_BATCH;
    uint64_t to = all && (end == NULL || last > end->seq) ? last : end->seq;
    to = to > f->w.to ? to : f->w.to;
    if (n > 0 || to > f->w.to || clock_real_us() >= f->w.beat_us) {
        rc = send_events(f, n, to, all ? clock_wall_ms() : end->recorded_ms, err);
    }
    return rc < 0 ? rc : n;
}

static enum front_doing doing_now(struct front *f, int n)
{
    pthread_mutex_lock(&f->mutex);
    bool full = f->full;
    pthread_mutex_unlock(&f->mutex);
    return !full ? FRONT_FILLING : n == FRONT_EVENTS_BATCH ? FRONT_SENDING : FRONT_IN_STEP;
}

/* What was begun ends; ERR_STALE: it is begun anew at once, since that was found out over a good connection, unless it
 * has only just been. */
static void trouble(struct front *f, const struct err *err)
{
    bool again = err->code == ERR_STALE && f->epoch != 0 && clock_real_us() - f->w.begun_us >= FRONT_CHECK_MS * 1000;
    end_epoch(f);
    if (task_stops(&f->w.task)) {
        return;
    }
    if (again) {
        log_warn("the front is begun anew", "cause=%s", log_quote_str(err->text));
        return;
    }
    begin_waiting(f, err, err->code == ERR_LOCKED ? FRONT_FENCED : FRONT_WAITING);
    f->w.delay_ms = backoff_next(f->w.delay_ms, FRONT_FIRST_DELAY_MS, FRONT_LAST_DELAY_MS);
    front_rest(f, &f->w.task, f->w.delay_ms);
}

/* Once fenced it leaves the front alone, whatever becomes of that. */
static bool rests_fenced(struct front *f)
{
    pthread_mutex_lock(&f->mutex);
    bool rests = f->status.doing == FRONT_FENCED && !f->rebuild;
    pthread_mutex_unlock(&f->mutex);
    return rests;
}

void front_writer_main(void *arg)
{
    struct front *f = arg;
    while (!task_stops(&f->w.task)) {
        struct err err = {0};
        heartbeat_now(&f->w.task.heartbeat);
        if (!role_is_primary(f->dedup->role)) {
            end_epoch(f);
            front_set_doing(f, FRONT_OFF);
            front_give_up(f->store); /* once it is promoted, all is brought in anew */
            front_rest(f, &f->w.task, LOOK_MS);
            continue;
        }
        if (rests_fenced(f)) {
            front_rest(f, &f->w.task, LOOK_MS);
            continue;
        }
        int n = f->w.link == NULL ? front_begin(f, &err) : 0;
        n = n < 0 ? n : step(f, &err);
        if (n < 0) {
            trouble(f, &err);
            continue;
        }
        end_waiting(f, doing_now(f, n));
        if (n < FRONT_EVENTS_BATCH) {
            pthread_mutex_lock(&f->mutex);
            task_wait_real(&f->w.task, clock_real_us() + FRONT_BEAT_MS * 1000);
            pthread_mutex_unlock(&f->mutex);
        }
    }
    end_epoch(f);
}
