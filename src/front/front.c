#include "front/front.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dedup/tier_pool.h"
#include "front/front_impl.h"

bool front_is_wanted(const struct config *cfg)
{
    return cfg->front_redis[0] != '\0' || cfg->front_sentinel[0] != '\0';
}

const char *front_doing_name(enum front_doing doing)
{
    static const char *const names[FRONT_DOINGS] = {"off", "waiting", "fenced", "filling", "sending", "in step"};
    return names[doing];
}

/* --- what an earlier run kept --- */

static void on_reset(struct store_call *call)
{
    if (call->err.code < 0) {
        log_warn("what was kept for the front stays", "error=%s", log_quote_str(call->err.text));
    }
    free(call->owner);
}

void front_give_up(struct store *store)
{
    struct feed_state queue;
    feed_state_of(store, FEED_FRONT, &queue);
    struct feed_reset *reset = queue.name[0] != '\0' ? calloc(1, sizeof *reset) : NULL;
    if (reset != NULL) {
        log_info("this node has no front to keep: what waited for it is dropped", "");
        *reset = (struct feed_reset){.call = {.done = on_reset, .owner = reset}, .consumer = FEED_FRONT};
        store->feed->reset(store, reset);
    }
}

/* --- start and end --- */

static int start(struct front *f, struct err *err)
{
    int rc = f->store->ops->reader_open(f->store, &f->w.reader, err);
    rc = rc < 0 ? rc : f->store->ops->reader_open(f->store, &f->s.reader, err);
    rc = rc < 0 ? rc : tier_pool_start(&front_line_ops, f, &f->pool, err);
    rc = rc < 0 ? rc : task_start(&f->w.task, "front", TASK_BEATS, front_writer_main, f, err);
    return rc < 0 ? rc : task_start(&f->s.task, "front-states", TASK_BEATS, front_states_main, f, err);
}

int front_start(const struct dedup *dedup, struct front **front, struct err *err)
{
    struct store *store = dedup->store;
    *front = NULL;
    if (!front_is_wanted(dedup->cfg)) {
        if (store->feed != NULL) {
            front_give_up(store);
        }
        return 0;
    }
    if (store->feed == NULL || store->node == NULL || store->copy == NULL || store->ring == NULL) {
        return store_lacks(store, "feed, so it can't have a front", err);
    }
    struct front *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the front");
    }
    f->dedup = dedup;
    f->store = store;
    f->cfg = dedup->cfg;
    f->status.doing = FRONT_WAITING;
    snprintf(f->status.cause, sizeof f->status.cause, "it was not reached yet");
    pthread_mutex_init(&f->mutex, NULL);
    task_init(&f->w.task, &f->mutex);
    task_init(&f->s.task, &f->mutex);
    int rc = start(f, err);
    if (rc < 0) {
        front_stop(f);
        front_free(f);
        return rc;
    }
    *front = f;
    return 0;
}

struct tier *front_tier(struct front *f)
{
    return f != NULL ? tier_pool_tier(f->pool) : NULL;
}

static void wake_nobody(struct front *f)
{
    struct feed_state queue;
    struct err err;
    feed_state_of(f->store, FEED_FRONT, &queue);
    if (queue.name[0] != '\0') {
        f->store->feed->listen(f->store, &(struct feed_consumer){FEED_FRONT, front_feed_limit, NULL, NULL}, &err);
    }
}

void front_stop(struct front *f)
{
    if (f == NULL) {
        return;
    }
    task_ask_stop(&f->w.task);
    task_ask_stop(&f->s.task);
    tier_pool_stop(f->pool);
    task_stop(&f->w.task);
    task_stop(&f->s.task);
    wake_nobody(f);
    if (f->w.reader != NULL) {
        f->store->ops->reader_close(f->w.reader);
    }
    if (f->s.reader != NULL) {
        f->store->ops->reader_close(f->s.reader);
    }
    f->w.reader = f->s.reader = NULL;
}

void front_free(struct front *f)
{
    if (f == NULL) {
        return;
    }
    tier_pool_free(f->pool);
    front_question_free(&f->w.question);
    front_question_free(&f->s.question);
    arena_free(&f->w.arena);
    arena_free(&f->s.arena);
    arena_free(&f->s.out.arena);
    struct buf *const bufs[] = {&f->w.words,    &f->s.page,     &f->s.ends,      &f->s.blob,
                                &f->s.out.keys, &f->s.out.args, &f->s.out.words, &f->s.out.snapshot};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) {
        buf_free(bufs[i]);
    }
    task_destroy(&f->w.task);
    task_destroy(&f->s.task);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

/* --- from outside --- */

void front_look(const struct dedup *d, struct front_status *out)
{
    struct front *f = d->front;
    if (f == NULL) {
        *out = (struct front_status){.doing = FRONT_OFF};
        return;
    }
    pthread_mutex_lock(&f->mutex);
    *out = f->status;
    out->comparing = out->comparing || f->reconcile; /* from the command on */
    if (out->doing == FRONT_FILLING && f->epoch != 0 && f->full) {
        out->doing = FRONT_IN_STEP; /* the writer hasn't looked yet */
    }
    pthread_mutex_unlock(&f->mutex);
    feed_state_of(f->store, FEED_FRONT, &out->queue);
}

int front_reconcile(struct front *f, struct err *err)
{
    pthread_mutex_lock(&f->mutex);
    bool full = f->epoch != 0 && f->full;
    f->reconcile = f->reconcile || full;
    pthread_mutex_unlock(&f->mutex);
    return full ? 0 : err_set(err, ERR_ABSENT, "the front is not full now, so there is nothing to compare yet");
}

int front_rebuild(struct front *f, struct err *err)
{
    if (!role_is_primary(f->dedup->role)) {
        return err_set(err, ERR_REPLICA, "this node is no primary, so it does not write the front");
    }
    pthread_mutex_lock(&f->mutex);
    f->rebuild = true;
    task_wake(&f->w.task);
    pthread_mutex_unlock(&f->mutex);
    return 0;
}
