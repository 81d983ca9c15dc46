#include "front/front.h"

#include <stdlib.h>
#include <string.h>

#include "dedup/tier_pool.h"
#include "front/front_impl.h"

bool front_is_wanted(const struct config *cfg)
{
    return cfg->front_at.kind != REDIS_AT_NONE;
}

/* --- start and end --- */

static int start(struct front *f, struct err *err)
{
    int rc = f->store->ops->reader_open(f->store, &f->s.reader, err);
    rc = rc < 0 ? rc : tier_pool_start(&front_line_ops, f, &f->pool, err);
    rc = rc < 0 ? rc : task_start(&f->s.task, "front-states", TASK_BEATS, front_states_main, f, err);
    return rc < 0 ? rc : courier_start(&f->courier, err);
}

int front_start(const struct dedup *dedup, struct front **front, struct err *err)
{
    struct store *store = dedup->store;
    *front = NULL;
    if (!front_is_wanted(dedup->cfg)) {
        if (store->feed != NULL) {
            courier_give_up(store, &front_courier_ops);
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
    pthread_mutex_init(&f->mutex, NULL);
    courier_init(&f->courier, &front_courier_ops, f, store, dedup->role);
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

void front_stop(struct front *f)
{
    if (f == NULL) {
        return;
    }
    courier_ask_stop(&f->courier);
    task_ask_stop(&f->s.task);
    tier_pool_stop(f->pool);
    courier_stop(&f->courier);
    task_stop(&f->s.task);
    if (f->s.reader != NULL) {
        f->store->ops->reader_close(f->s.reader);
    }
    f->s.reader = NULL;
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
    courier_free(&f->courier);
    task_destroy(&f->s.task);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

/* --- from outside --- */

void front_look(const struct dedup *d, struct front_status *out)
{
    struct front *f = d->front;
    if (f == NULL) {
        *out = (struct front_status){.courier.doing = COURIER_OFF};
        return;
    }
    struct courier_status c;
    courier_look(&f->courier, &c);
    pthread_mutex_lock(&f->mutex);
    *out = f->status;
    out->comparing = out->comparing || f->reconcile; /* from the command on */
    const bool fills = c.doing >= COURIER_SENDING && (f->epoch == 0 || !f->full);
    if (f->filling || fills) {
        c.doing = COURIER_FILLING;
        c.cause[0] = '\0';
        c.since_ms = 0;
    }
    pthread_mutex_unlock(&f->mutex);
    out->courier = c;
    out->courier.bytes += out->state_bytes;
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
    pthread_mutex_unlock(&f->mutex);
    courier_retry(&f->courier);
    return 0;
}
