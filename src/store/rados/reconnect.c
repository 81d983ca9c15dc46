/* A client is counted by what is under way with it, so that it is dropped when nothing can touch it any more. What
 * answers an operation is a function of ours, which then calls the caller's. */
#include "store/rados/reconnect.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"

enum {
    FIRST_DELAY_MS = 1000,
    LAST_DELAY_MS = 30 * 1000,
    WELL_US = 60 * 1000 * 1000, /* a client that was well for so long is replaced at once */
};

struct client {
    struct client *next; /* of those that are retired */
    struct cluster *of;
    struct cluster *inner;
    size_t under_way;
    bool fenced;
};

struct cluster {
    const struct cluster_ops *ops;
    struct cluster_options to;
    struct reconnect_hooks hooks;
    struct task task;

    pthread_mutex_t mutex; /* all below, and the clients */
    pthread_cond_t idle;   /* nothing is under way with one of the clients any more, as it ends */
    struct client *current, *retired;
    int64_t connected_us, delay_ms, next_us;
};

struct cluster_listing {
    struct client *client;
    struct cluster_listing *inner;
};

static struct client *take(struct cluster *c)
{
    pthread_mutex_lock(&c->mutex);
    struct client *client = c->current;
    client->under_way++;
    pthread_mutex_unlock(&c->mutex);
    return client;
}

/* It isn't touched any more. */
static void give_back(struct client *client)
{
    struct cluster *c = client->of;
    pthread_mutex_lock(&c->mutex);
    if (--client->under_way == 0 && (client != c->current || task_stops(&c->task))) {
        task_wake(&c->task);
        pthread_cond_signal(&c->idle);
    }
    pthread_mutex_unlock(&c->mutex);
}

static void note_fenced(struct client *client)
{
    struct cluster *c = client->of;
    bool first;
    pthread_mutex_lock(&c->mutex);
    first = !client->fenced && client == c->current;
    client->fenced = true;
    if (first) {
        int64_t now_us = clock_mono_us();
        c->delay_ms = now_us - c->connected_us >= WELL_US ? 0 : c->delay_ms;
        c->next_us = now_us + c->delay_ms * 1000;
        task_wake(&c->task);
    }
    pthread_mutex_unlock(&c->mutex);
    if (first) {
        char address[CLUSTER_ADDRESS];
        c->ops->address(client->inner, address, sizeof address);
        log_error("RADOS has blocklisted this client: another one connects", "pool=%s address=%s",
                  log_quote_str(c->to.pool), log_quote_str(address));
    }
}

/* --- operations --- */

static bool is_error(enum cluster_result result)
{
    switch (result) {
    case CLUSTER_LATE:
    case CLUSTER_FENCED:
    case CLUSTER_NO_POOL:
    case CLUSTER_DENIED:
    case CLUSTER_FAILED:
        return true;
    case CLUSTER_DONE:
    case CLUSTER_ABSENT:
    case CLUSTER_EXISTS:
    case CLUSTER_DIFFERS:
    case CLUSTER_FULL:
    case CLUSTER_LARGE:
    case CLUSTER_NOMEM:
    case CLUSTER_CLOSED:
        break;
    }
    return false;
}

static void on_done(struct cluster_op *op)
{
    struct client *client = op->by;
    if (op->result == CLUSTER_FENCED) {
        note_fenced(client);
    }
    if (is_error(op->result)) {
        client->of->hooks.failed(client->of->hooks.owner);
    }
    op->done = op->then;
    op->done(op);
    give_back(client);
}

static struct client *begin(struct cluster *c, struct cluster_op *op)
{
    struct client *client = take(c);
    op->by = client;
    op->then = op->done;
    op->done = on_done;
    return client;
}

/* It may be over already, and the operation another's memory, unless it was not begun. */
static int begun(struct client *client, struct cluster_op *op, int result)
{
    if (result < 0) {
        op->done = op->then;
        give_back(client);
    }
    return result;
}

static int do_read(struct cluster *c, struct cluster_read *read)
{
    struct client *client = begin(c, &read->op);
    return begun(client, &read->op, c->ops->read(client->inner, read));
}

static int do_write(struct cluster *c, struct cluster_write *write)
{
    struct client *client = begin(c, &write->op);
    return begun(client, &write->op, c->ops->write(client->inner, write));
}

static void do_cancel(struct cluster *c, struct cluster_op *op)
{
    const struct client *client = op->by;
    c->ops->cancel(client->inner, op);
}

/* --- what blocks --- */

/* Passes on what a call has answered. */
static int answered(const struct cluster *c, int result)
{
    if (result < 0 && result != ERR_NOMEM) {
        c->hooks.failed(c->hooks.owner);
    }
    return result;
}

static int do_command(struct cluster *c, const char *json, char **text, size_t *len, struct err *err)
{
    struct client *client = take(c);
    int result = c->ops->command(client->inner, json, text, len, err);
    give_back(client);
    return answered(c, result);
}

static void do_address(struct cluster *c, char *out, size_t size)
{
    struct client *client = take(c);
    c->ops->address(client->inner, out, size);
    give_back(client);
}

static int do_lock(struct cluster *c, const char *object, const char *cookie, int seconds, struct err *err)
{
    struct client *client = take(c);
    int result = c->ops->lock(client->inner, object, cookie, seconds, err);
    give_back(client);
    return answered(c, result);
}

static int do_unlock(struct cluster *c, const char *object, const char *cookie, struct err *err)
{
    struct client *client = take(c);
    int result = c->ops->unlock(client->inner, object, cookie, err);
    give_back(client);
    return answered(c, result);
}

static int do_list(struct cluster *c, size_t i, size_t n, struct cluster_listing **listing, struct err *err)
{
    struct cluster_listing *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory while listing objects");
    }
    l->client = take(c);
    int result = c->ops->list(l->client->inner, i, n, &l->inner, err);
    if (result < 0) {
        give_back(l->client);
        free(l);
        return answered(c, result);
    }
    *listing = l;
    return result;
}

static int do_list_next(struct cluster_listing *l, size_t max, void (*name)(void *arg, const char *object), void *arg,
                        struct err *err)
{
    const struct cluster *c = l->client->of;
    return answered(c, c->ops->list_next(l->inner, max, name, arg, err));
}

static void do_list_end(struct cluster_listing *l)
{
    l->client->of->ops->list_end(l->inner);
    give_back(l->client);
    free(l);
}

/* --- the thread --- */

static struct client *client_new(struct cluster *c, struct err *err)
{
    struct client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        err_set(err, ERR_NOMEM, "out of memory");
        return NULL;
    }
    client->of = c;
    if (c->ops->connect(&c->to, &client->inner, err) < 0) {
        free(client);
        return NULL;
    }
    return client;
}

static void client_end(struct client *client)
{
    client->of->ops->disconnect(client->inner);
    free(client);
}

static void connect_anew(struct cluster *c)
{
    struct err err = {0};
    heartbeat_excuse(&c->task.heartbeat);
    struct client *fresh = client_new(c, &err);
    if (fresh != NULL && c->hooks.check(c->hooks.owner, c->ops, fresh->inner, &err) < 0) {
        client_end(fresh);
        fresh = NULL;
    }
    heartbeat_now(&c->task.heartbeat);
    pthread_mutex_lock(&c->mutex);
    int64_t now_us = clock_mono_us();
    c->delay_ms = backoff_next(c->delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS);
    c->next_us = now_us + c->delay_ms * 1000;
    if (fresh != NULL) {
        c->current->next = c->retired;
        c->retired = c->current;
        c->current = fresh;
        c->connected_us = now_us;
    }
    int64_t delay_ms = c->delay_ms;
    pthread_mutex_unlock(&c->mutex);
    if (fresh != NULL) {
        char address[CLUSTER_ADDRESS];
        do_address(c, address, sizeof address);
        log_info("connected to RADOS again", "pool=%s address=%s", log_quote_str(c->to.pool), log_quote_str(address));
        c->hooks.connected(c->hooks.owner);
    } else {
        log_error("can't connect to RADOS again", "error=%s again_ms=%" PRId64, log_quote_str(err.text), delay_ms);
    }
}

/* One with which nothing is under way. The caller has the lock. */
static struct client *take_retired(struct cluster *c)
{
    struct client **at = &c->retired;
    while (*at != NULL && (*at)->under_way > 0) {
        at = &(*at)->next;
    }
    struct client *client = *at;
    if (client != NULL) {
        *at = client->next;
    }
    return client;
}

static void run(void *arg)
{
    struct cluster *c = arg;
    pthread_mutex_lock(&c->mutex);
    while (!task_stops(&c->task)) {
        struct client *idle = take_retired(c);
        bool due = c->current->fenced && clock_mono_us() >= c->next_us;
        if (idle == NULL && !due) {
            task_wait(&c->task, c->current->fenced ? c->next_us : INT64_MAX);
            continue;
        }
        pthread_mutex_unlock(&c->mutex);
        if (idle != NULL) {
            heartbeat_excuse(&c->task.heartbeat);
            client_end(idle);
            heartbeat_now(&c->task.heartbeat);
        } else {
            connect_anew(c);
        }
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
}

/* --- opening and closing --- */

static void free_cluster(struct cluster *c)
{
    task_destroy(&c->task);
    pthread_cond_destroy(&c->idle);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

/* The last answer may have been given, and its thread not be back yet. */
static void do_disconnect(struct cluster *c)
{
    task_stop(&c->task);
    pthread_mutex_lock(&c->mutex);
    c->current->next = c->retired;
    c->retired = c->current;
    while (c->retired != NULL) {
        struct client *idle = take_retired(c);
        if (idle == NULL) {
            pthread_cond_wait(&c->idle, &c->mutex);
            continue;
        }
        pthread_mutex_unlock(&c->mutex);
        client_end(idle);
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    free_cluster(c);
}

int reconnect_open(const struct cluster_ops *inner, const struct cluster_options *to,
                   const struct reconnect_hooks *hooks, struct cluster **cluster, struct err *err)
{
    struct cluster *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    c->ops = inner;
    c->to = *to;
    c->hooks = *hooks;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->idle, NULL);
    task_init(&c->task, &c->mutex);
    c->current = client_new(c, err);
    if (c->current == NULL) {
        int result = err->code;
        free_cluster(c);
        return result;
    }
    c->connected_us = clock_mono_us();
    int code = task_start(&c->task, "rados connect", TASK_BEATS, run, c, err);
    if (code < 0) {
        client_end(c->current);
        free_cluster(c);
        return code;
    }
    *cluster = c;
    return 0;
}

const struct cluster_ops reconnect_ops = {
    .address = do_address,
    .disconnect = do_disconnect,
    .read = do_read,
    .write = do_write,
    .cancel = do_cancel,
    .command = do_command,
    .lock = do_lock,
    .unlock = do_unlock,
    .list = do_list,
    .list_next = do_list_next,
    .list_end = do_list_end,
};
