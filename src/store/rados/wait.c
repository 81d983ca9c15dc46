#include "store/rados/wait.h"

#include <pthread.h>

struct wait {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
};

static void on_done(struct cluster_op *op)
{
    struct wait *w = op->owner;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

static void begin(struct wait *w, struct cluster_op *op)
{
    *w = (struct wait){.done = false};
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->cond, NULL);
    op->done = on_done;
    op->owner = w;
}

static enum cluster_result end(struct wait *w, const struct cluster_op *op)
{
    pthread_mutex_lock(&w->mutex);
    while (!w->done) {
        pthread_cond_wait(&w->cond, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->mutex);
    return op->result;
}

enum cluster_result wait_read(const struct cluster_ops *ops, struct cluster *cluster, struct cluster_read *read)
{
    struct wait w;
    begin(&w, &read->op);
    if (ops->read(cluster, read) < 0) {
        read->op.result = CLUSTER_NOMEM;
        on_done(&read->op);
    }
    return end(&w, &read->op);
}

enum cluster_result wait_write(const struct cluster_ops *ops, struct cluster *cluster, struct cluster_write *write)
{
    struct wait w;
    begin(&w, &write->op);
    if (ops->write(cluster, write) < 0) {
        write->op.result = CLUSTER_NOMEM;
        on_done(&write->op);
    }
    return end(&w, &write->op);
}
