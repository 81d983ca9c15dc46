/* What the front's courier (dedup/courier.h) does with events: sends some hundred in one script, in their order.
 *
 * It begins with each connection (begin.c): what stands there is compared with the feed, and is gone on with from its
 * own `to`, or removed and brought in again (states.c) when the feed doesn't reach back to there, or it is another
 * folder's. Each beginning takes an epoch of its own, so that what an earlier connection still delivers is refused; a
 * writer that finds a higher one of another node or run is fenced. It reads no history, so a disk that hangs does not
 * hold it up.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "front/front_impl.h"

enum { NUMBER_TEXT = 24 };

static struct slice number(uint64_t n, char out[NUMBER_TEXT])
{
    snprintf(out, NUMBER_TEXT, "%" PRIu64, n);
    return slice_str(out);
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

/* No reader may believe what is there until it is begun again. */
static void end_epoch(void *arg)
{
    struct front *f = arg;
    pthread_mutex_lock(&f->mutex);
    f->epoch = 0;
    f->status.epoch = 0;
    f->filling = false;
    pthread_mutex_unlock(&f->mutex);
    front_link_close(f->w.link);
    f->w.link = NULL;
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
    if (e->kind == FEED_PLAY) {
        len = front_play_write(hash_id(f->dedup->seed, e->item), month_of_ms(e->at_ms), member);
    } else if (e->kind == FEED_DELIVERY) {
        const struct store_item item = {e->item, hash_id(f->dedup->seed, e->item), e->group};
        len = front_sent_write(&item, e->at_ms, member);
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

static int pack_events(struct front *f, const struct courier_batch *batch, struct err *err)
{
    struct event_place list[FRONT_EVENTS_BATCH];
    struct batch b = {.words = &f->w.words, .arena = &f->w.arena};
    char month[MONTH_TEXT];
    const int n = sort_events(f, batch->n, list);
    buf_clear(b.words);
    add_keys(f, &b, list, n);
    add_number(&b, f->last_epoch);
    add_number(&b, batch->from);
    add_number(&b, batch->to);
    add_number(&b, (uint64_t)batch->as_of_ms);
    add_number(&b, strlen(f->cfg->front_prefix) + 3);
    add_number(&b, f->store->feed->last(f->store));
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

static int send_events(void *arg, struct courier_batch *batch, struct err *err)
{
    struct front *f = arg;
    const struct reply *reply;
    int64_t dirty = 0;
    f->w.events = batch->events;
    arena_reset(&f->w.arena);
    int rc = pack_events(f, batch, err);
    if (rc < 0) {
        return rc;
    }
    heartbeat_excuse(&f->courier.task.heartbeat);
    rc = front_link_run(f->w.link, FRONT_EVENTS, (const struct slice *)f->w.words.data,
                        f->w.words.len / sizeof(struct slice), &reply, err);
    heartbeat_now(&f->courier.task.heartbeat);
    if (rc < 0 || (rc = front_verdict(reply, err)) < 0) {
        return rc;
    }
    if (reply->n > 1) {
        reply_integer(&reply->items[1], &dirty);
    }
    pthread_mutex_lock(&f->mutex);
    f->status.dirty = (uint64_t)dirty;
    take_sample(f, batch->n);
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
    return ours || (m->present && m->epoch != f->last_epoch)
               ? 0
               : err_set(err, ERR_STALE, "another process has changed its meta");
}

/* Each second: that Redis, and what stands there. */
static int look(void *arg, struct err *err)
{
    struct front *f = arg;
    uint64_t evicted;
    pthread_mutex_lock(&f->mutex);
    const bool rebuild = f->rebuild, again = f->begin_again;
    f->begin_again = false;
    pthread_mutex_unlock(&f->mutex);
    if (rebuild || again) {
        return err_set(err, ERR_STALE, rebuild ? "a rebuild was asked for" : "users could not be brought into it");
    }
    if (clock_real_us() < f->w.check_us) {
        return 0;
    }
    f->w.check_us = clock_real_us() + FRONT_CHECK_MS * 1000;
    int rc = front_link_check(f->w.link, &evicted, err);
    if (rc == 0 && evicted > f->evicted) {
        rc = err_set(err, ERR_STALE, "that Redis has evicted keys");
    }
    return rc < 0 ? rc : check_meta(f, err);
}

static uint64_t limit(const struct config *live)
{
    return (uint64_t)live->feed_max;
}

const struct courier_ops front_courier_ops = {
    .task = "front",
    .name = "the front",
    .consumer = FEED_FRONT,
    .limit = limit,
    .batch_max = FRONT_EVENTS_BATCH,
    .beat_ms = FRONT_BEAT_MS,
    .first_delay_ms = FRONT_FIRST_DELAY_MS,
    .last_delay_ms = FRONT_LAST_DELAY_MS,
    .real = true,
    .unreached = "it was not reached yet",
    .open = front_begin,
    .look = look,
    .send = send_events,
    .close = end_epoch,
};
