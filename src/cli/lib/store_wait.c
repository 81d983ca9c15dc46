#include "cli/lib/store_wait.h"

#include <pthread.h>
#include <time.h>

#include "store/ring.h"

enum { BUSY_STEP_MS = 100, BUSY_TRIES = 10 * 60 * 1000 / BUSY_STEP_MS };

struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};
#define WAITING                                                                                                        \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                                                     \
    }

static void end(struct waiting *w)
{
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

static void on_call(struct store_call *call)
{
    end(call->owner);
}

static void on_batch(struct store_batch *batch)
{
    end(batch->owner);
}

static int wait(struct waiting *w, const struct err *answer, struct err *err)
{
    pthread_mutex_lock(&w->mutex);
    while (!w->done) {
        pthread_cond_wait(&w->wake, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return answer->code < 0 ? err_set(err, answer->code, "%s", answer->text) : 0;
}

int store_wait_positions(struct store *s, const struct store_position *positions, size_t n, struct err *err)
{
    struct waiting w = WAITING;
    struct store_batch batch = {.positions = positions, .n_positions = n, .done = on_batch, .owner = &w};
    s->ops->record(s, &batch);
    int rc = wait(&w, &batch.err, err);
    buf_free(&batch.bytes);
    return rc;
}

int store_wait_adopt(struct store *s, const struct tombstone *list, size_t n, struct err *err)
{
    struct waiting w = WAITING;
    struct store_adopt adopt = {.call = {.done = on_call, .owner = &w}, .list = list, .n = n};
    s->copy->adopt(s, &adopt);
    return wait(&w, &adopt.call.err, err);
}

int store_wait_node(struct store *s, const struct store_node *to, struct err *err)
{
    struct waiting w = WAITING;
    struct store_node_change change = {.call = {.done = on_call, .owner = &w}, .to = *to};
    s->node->set(s, &change);
    return wait(&w, &change.call.err, err);
}

int store_wait_flush(struct store *s, struct err *err)
{
    struct waiting w = WAITING;
    struct store_call call = {.done = on_call, .owner = &w};
    s->ring->flush(s, &call);
    return wait(&w, &call.err, err);
}

int store_wait_clock(struct store *s, bool set_back, struct err *err)
{
    struct waiting w = WAITING;
    struct store_clock_change change = {.call = {.done = on_call, .owner = &w}, .set_back = set_back};
    s->ops->clock_change(s, &change);
    return wait(&w, &change.call.err, err);
}

static void rest_busy(int tries)
{
    if (tries > 0) {
        nanosleep(&(struct timespec){.tv_nsec = BUSY_STEP_MS * 1000 * 1000}, NULL);
    }
}

int store_wait_record(struct store *s, struct store_batch *batch, struct err *err)
{
    int rc = ERR_BUSY;
    for (int i = 0; rc == ERR_BUSY && i < BUSY_TRIES; i++) {
        struct waiting w = WAITING;
        batch->err = (struct err){0};
        batch->done = on_batch;
        batch->owner = &w;
        rest_busy(i);
        s->ops->record(s, batch);
        rc = wait(&w, &batch->err, err);
    }
    return rc;
}

static void on_forget(struct store_forget *forget)
{
    end(forget->owner);
}

int store_wait_forget(struct store *s, struct store_forget *forget, struct err *err)
{
    int rc = ERR_BUSY;
    const struct store_forget before = *forget;
    for (int i = 0; rc == ERR_BUSY && i < BUSY_TRIES; i++) {
        struct waiting w = WAITING;
        *forget = before;
        forget->done = on_forget;
        forget->owner = &w;
        rest_busy(i);
        s->ops->forget(s, forget);
        rc = wait(&w, &forget->err, err);
    }
    return rc;
}

int store_wait_import(struct store *s, const struct slice *snapshots, size_t n, uint8_t *verdicts, struct err *err)
{
    int rc = ERR_BUSY;
    for (int i = 0; rc == ERR_BUSY && i < BUSY_TRIES; i++) {
        struct waiting w = WAITING;
        struct store_import import = {.snapshots = snapshots, .n = n, .verdicts = verdicts};
        import.call.done = on_call;
        import.call.owner = &w;
        rest_busy(i);
        s->ops->import(s, &import);
        rc = wait(&w, &import.call.err, err);
    }
    return rc;
}

int store_wait_pool(struct store *s, struct store_pool_change *change, struct err *err)
{
    struct waiting w = WAITING;
    change->call.done = on_call;
    change->call.owner = &w;
    s->pools->change(s, change);
    return wait(&w, &change->call.err, err);
}
