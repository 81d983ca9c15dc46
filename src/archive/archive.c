/* The thread. It looks at the feed each `every`, writes what waits as segments, and in between what is due of a round.
 * What can't be written is tried again, after delays that grow from one second to five minutes; nothing else of the
 * server waits for it. */
#include "archive/archive_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/hide.h"
#include "base/log.h"
#include "dedup/role.h"

enum { FIRST_DELAY_MS = 1000, LAST_DELAY_MS = 5 * 60 * 1000, LOOK_MS = 1000, SWEEP_MS = 60 * 60 * 1000 };

const char *archive_doing_name(enum archive_doing doing)
{
    static const char *const names[ARCHIVE_DOINGS] = {"off", "waiting", "not restorable yet", "behind", "in step"};
    return names[doing];
}

/* --- the store's answers --- */

void archive_answer(struct archive *a)
{
    pthread_mutex_lock(&a->mutex);
    task_answer(&a->task, &a->answered);
    pthread_mutex_unlock(&a->mutex);
}

void archive_wait_answer(struct archive *a)
{
    pthread_mutex_lock(&a->mutex);
    task_await(&a->task, &a->answered);
    a->answered = false;
    pthread_mutex_unlock(&a->mutex);
}

static void on_reset(struct store_call *call)
{
    if (call->err.code < 0) {
        log_warn("what was kept for the archive stays", "error=%s", log_quote_str(call->err.text));
    }
    free(call->owner);
}

void archive_give_up(struct store *store)
{
    struct feed_state queue;
    feed_state_of(store, FEED_ARCHIVE, &queue);
    struct feed_reset *reset = queue.name[0] != '\0' ? calloc(1, sizeof *reset) : NULL;
    if (reset != NULL) {
        log_info("this node has no archive to keep: what waited for it is dropped", "");
        *reset = (struct feed_reset){.call = {.done = on_reset, .owner = reset}, .consumer = FEED_ARCHIVE};
        store->feed->reset(store, reset);
    }
}

/* --- objects --- */

size_t archive_part_bytes(void)
{
    return 8 * 1024 * 1024;
}

int archive_seal(struct archive *a, struct pending *p, struct err *err)
{
    p->head.node = a->self.node;
    p->head.run = a->self.run;
    p->head.seed = hash_seed_fingerprint(a->dedup->seed);
    buf_clear(&p->object);
    int rc = a->records.failed ? err_set(err, ERR_NOMEM, "out of memory for an object of the archive")
                               : object_seal(p->name, &p->head, &a->keys, buf_slice(&a->records), &p->object, err);
    p->waits = rc == 0;
    return rc;
}

int archive_put(struct archive *a, struct pending *p, struct err *err)
{
    heartbeat_excuse(&a->task.heartbeat);
    int rc = a->depot->ops->put(a->depot, p->name, buf_slice(&p->object), err);
    heartbeat_now(&a->task.heartbeat);
    p->waits = rc < 0;
    return rc;
}

/* --- what is said about it --- */

static void begin_waiting(struct archive *a, const struct err *err)
{
    pthread_mutex_lock(&a->mutex);
    bool first = a->status.doing != ARCHIVE_WAITING || a->status.since_ms == 0;
    a->status.doing = ARCHIVE_WAITING;
    hide_ids_copy(a->status.cause, sizeof a->status.cause, err->text);
    a->status.errors++;
    a->status.restorable = a->status.restorable && a->base_ms != 0;
    a->status.since_ms = first ? clock_wall_ms() : a->status.since_ms;
    pthread_mutex_unlock(&a->mutex);
    if (first) {
        log_warn("the archive waits", "cause=%s", log_quote_str(err->text));
    }
}

static void end_waiting(struct archive *a)
{
    pthread_mutex_lock(&a->mutex);
    int64_t since_ms = a->status.since_ms;
    a->status.since_ms = 0;
    a->status.cause[0] = '\0';
    a->status.restorable = a->base_ms != 0 && a->cursor >= a->base_to;
    a->status.rounded_ms = a->base_ms;
    a->status.node = a->self.node;
    a->status.to = a->cursor;
    a->status.doing = a->status.restorable ? ARCHIVE_IN_STEP : ARCHIVE_FILLING;
    pthread_mutex_unlock(&a->mutex);
    a->delay_ms = 0;
    if (since_ms != 0) {
        log_info("the archive goes on", "after_ms=%" PRId64, clock_wall_ms() - since_ms);
    }
}

/* --- the thread --- */

/* What was begun ends: it begins again with a look at what is there. */
static void end(struct archive *a)
{
    archive_round_drop(a);
    depot_close(a->depot);
    a->depot = NULL;
    a->begun = a->segment.waits = false;
    a->base_ms = 0;
}

static bool still_ours(struct archive *a)
{
    struct feed_state queue;
    struct store_node self;
    feed_state_of(a->store, FEED_ARCHIVE, &queue);
    a->store->node->get(a->store, &self);
    return queue.name[0] != '\0' && queue.place != FEED_LOST && self.node == a->self.node && self.run == a->self.run;
}

static int write_segments(struct archive *a, struct err *err)
{
    int64_t now_ms = clock_wall_ms();
    int rc;
    while ((rc = archive_segment(a, err)) == 1 && !task_stops(&a->task)) {
        heartbeat_now(&a->task.heartbeat);
    }
    if (rc == 0 && a->base_ms != 0) { /* else it lacks more than what waits */
        pthread_mutex_lock(&a->mutex);
        a->status.archived_ms = now_ms;
        pthread_mutex_unlock(&a->mutex);
    }
    return rc < 0 ? rc : 0;
}

/* *next_us: when more is to be done. */
static int work(struct archive *a, int64_t *next_us, struct err *err)
{
    int rc = 0;
    int64_t every_us = config_now(a->cfg)->archive_every_ms * 1000;
    pthread_mutex_lock(&a->mutex);
    bool wanted = a->wanted; /* a round, which begins behind what was recorded before it was asked for */
    pthread_mutex_unlock(&a->mutex);
    if (wanted || archive_purges(a) || clock_mono_us() >= a->tick_us) {
        a->tick_us = clock_mono_us() + every_us;
        rc = write_segments(a, err);
    }
    if (rc == 0) {
        rc = archive_round(a, next_us, err);
    }
    if (rc == 0 && archive_purges(a)) {
        rc = archive_purge(a, err);
        *next_us = archive_purges(a) ? 0 : *next_us;
    }
    if (rc == 0 && clock_mono_ms() - a->swept_ms >= SWEEP_MS) {
        a->swept_ms = clock_mono_ms();
        rc = archive_sweep(a, false, err);
    }
    *next_us = a->tick_us < *next_us ? a->tick_us : *next_us;
    return rc;
}

static void rest(struct archive *a, int64_t until_us)
{
    pthread_mutex_lock(&a->mutex);
    task_wait(&a->task, until_us);
    pthread_mutex_unlock(&a->mutex);
}

static void rest_off(struct archive *a)
{
    end(a);
    pthread_mutex_lock(&a->mutex);
    a->status.doing = ARCHIVE_OFF;
    a->status.cause[0] = '\0';
    a->status.since_ms = 0;
    a->status.restorable = false;
    pthread_mutex_unlock(&a->mutex);
    archive_give_up(a->store); /* once this is the primary, a round brings all in */
    rest(a, clock_mono_us() + LOOK_MS * 1000);
}

static void archive_main(void *arg)
{
    struct archive *a = arg;
    while (!task_stops(&a->task)) {
        struct err err = {0};
        int64_t next_us = INT64_MAX;
        heartbeat_now(&a->task.heartbeat);
        if (!role_is_primary(a->dedup->role)) {
            rest_off(a);
            continue;
        }
        if (a->begun && !still_ours(a)) {
            end(a);
        }
        int rc = a->begun ? 0 : archive_begin(a, &err);
        rc = rc < 0 ? rc : work(a, &next_us, &err);
        if (rc < 0 && !task_stops(&a->task)) {
            a->delay_ms = backoff_next(a->delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS);
            next_us = clock_mono_us() + a->delay_ms * 1000; /* before it is told: a test may then advance the clock */
            a->tick_us = next_us;
            begin_waiting(a, &err);
        } else if (rc == 0) {
            end_waiting(a);
        }
        rest(a, next_us);
    }
    end(a);
}

/* --- from outside --- */

static void on_role(void *arg, enum node_role now)
{
    struct archive *a = arg;
    (void)now;
    pthread_mutex_lock(&a->mutex);
    task_wake(&a->task);
    pthread_mutex_unlock(&a->mutex);
}

int archive_start(const struct dedup *dedup, struct archive **archive, struct err *err)
{
    struct store *store = dedup->store;
    *archive = NULL;
    if (dedup->cfg->archive_url[0] == '\0') {
        if (store->feed != NULL) {
            archive_give_up(store);
        }
        return 0;
    }
    if (store->feed == NULL || store->node == NULL || store->copy == NULL || store->ring == NULL) {
        return store_lacks(store, "feed, so it can't have an archive", err);
    }
    struct archive *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the archive");
    }
    if (cipher_keys_read(dedup->cfg, &a->keys, err) < 0) {
        free(a);
        return err->code;
    }
    a->dedup = dedup;
    a->store = store;
    a->cfg = dedup->cfg;
    a->status.doing = ARCHIVE_FILLING;
    snprintf(a->status.url, sizeof a->status.url, "%s", a->cfg->archive_url);
    pthread_mutex_init(&a->mutex, NULL);
    task_init(&a->task, &a->mutex);
    int rc = store->ops->reader_open(store, &a->reader, err);
    rc = rc < 0 ? rc : task_start(&a->task, "archive", TASK_BEATS, archive_main, a, err);
    rc = rc < 0 || dedup->role == NULL ? rc : role_listen(dedup->role, on_role, a);
    if (rc < 0) {
        archive_stop(a);
        archive_free(a);
        return rc;
    }
    *archive = a;
    return 0;
}

void archive_stop(struct archive *a)
{
    if (a == NULL) {
        return;
    }
    task_stop(&a->task);
    if (a->reader != NULL) {
        a->store->ops->reader_close(a->reader);
        a->reader = NULL;
    }
}

void archive_free(struct archive *a)
{
    if (a == NULL) {
        return;
    }
    struct buf *const bufs[] = {&a->run,  &a->records,    &a->segment.object,
                                &a->page, &a->round.ends, &a->round.part.object};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) {
        buf_free(bufs[i]);
    }
    arena_free(&a->arena);
    cipher_keys_forget(&a->keys);
    task_destroy(&a->task);
    pthread_mutex_destroy(&a->mutex);
    free(a);
}

void archive_look(const struct dedup *d, struct archive_status *out)
{
    struct archive *a = d->archive;
    if (a == NULL) {
        *out = (struct archive_status){.doing = ARCHIVE_OFF};
        return;
    }
    pthread_mutex_lock(&a->mutex);
    *out = a->status;
    pthread_mutex_unlock(&a->mutex);
    feed_state_of(a->store, FEED_ARCHIVE, &out->queue);
    if (out->doing == ARCHIVE_IN_STEP && out->queue.behind_ms > 2 * config_now(a->cfg)->archive_every_ms) {
        out->doing = ARCHIVE_BEHIND;
    }
}

int archive_forget_now(struct archive *a, struct err *err)
{
    if (!role_is_primary(a->dedup->role)) {
        return err_set(err, ERR_REPLICA, "this node is no primary, so it does not write the archive");
    }
    pthread_mutex_lock(&a->mutex);
    a->wanted = true;
    task_wake(&a->task);
    pthread_mutex_unlock(&a->mutex);
    return 0;
}
