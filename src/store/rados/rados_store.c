/* Opening and closing the engine on RADOS, its thread, and what only looks or leaves a message. */
#include "store/rados/rados_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hide.h"
#include "base/log.h"
#include "base/module.h"
#include "store/codec/user_snapshot.h"
#include "store/positions.h"
#include "store/rados/bulk.h"
#include "store/rados/fullness.h"
#include "store/rados/meta.h"
#include "store/rados/night.h"
#include "store/rados/rados.h"
#include "store/rados/reconnect.h"

enum { LOOK_EVERY_MS = 1000, DOWN_US = 10 * 1000 * 1000 };

/* A stamp: milliseconds; the number of the node's start, cut; and what it has delivered within the millisecond, which
 * goes on into the bits above when there is more. */
enum { STAMP_COUNT_BITS = 8, STAMP_NUMBER_BITS = 12 };

/* --- what is under way --- */

void rados_store_begun(struct rados_store *s)
{
    pthread_mutex_lock(&s->mutex);
    s->under_way++;
    pthread_mutex_unlock(&s->mutex);
}

void rados_store_ended(struct rados_store *s)
{
    pthread_mutex_lock(&s->mutex);
    if (--s->under_way == 0) {
        pthread_cond_broadcast(&s->ended);
    }
    pthread_mutex_unlock(&s->mutex);
}

bool rados_store_closing(struct rados_store *s)
{
    pthread_mutex_lock(&s->mutex);
    bool closing = s->closing;
    pthread_mutex_unlock(&s->mutex);
    return closing;
}

void rados_store_post(struct rados_store *s, struct store_message *message, enum rados_message what)
{
    message->kind = STORE_INTERNAL;
    message->what = (int)what;
    thread_queue_put(&s->queue, message);
}

uint64_t rados_store_stamp(struct rados_store *s)
{
    int64_t later, earlier;
    guarded_clock_now(&s->clock, &later, &earlier);
    uint64_t number = s->number & ((1U << STAMP_NUMBER_BITS) - 1), last = atomic_load(&s->stamp), next;
    uint64_t now = ((uint64_t)(later > 0 ? later : 0) << STAMP_NUMBER_BITS | number) << STAMP_COUNT_BITS;
    do {
        next = now > last ? now : last + 1;
    } while (!atomic_compare_exchange_weak(&s->stamp, &last, next));
    return next;
}

/* Two generations that are equal by chance are a lost change: so they are drawn by the system. */
uint64_t rados_store_random(struct rados_store *s)
{
    uint64_t n;
    while (getrandom(&n, sizeof n, 0) != sizeof n) {
        if (errno != EINTR) {
            return rados_store_stamp(s); /* unique here, at least */
        }
    }
    return n;
}

uint64_t rados_store_generation(struct rados_store *s)
{
    return rados_store_random(s) << STAMP_NUMBER_BITS | (s->number & ((1U << STAMP_NUMBER_BITS) - 1));
}

bool rados_store_wrote(const struct rados_store *s, struct slice generation)
{
    uint64_t n;
    return layout_unhex(generation, &n) && ((n ^ s->number) & ((1U << STAMP_NUMBER_BITS) - 1)) == 0;
}

int64_t rados_store_forgotten(struct rados_store *s, int64_t ms)
{
    int64_t later, earlier;
    guarded_clock_now(&s->clock, &later, &earlier);
    return ms > later + USER_SNAPSHOT_AHEAD_MS ? later : ms;
}

/* --- what the cluster answers --- */

int cluster_error_of(struct rados_store *s, const struct cluster_op *op, const char *doing, const char *what,
                     struct err *err)
{
    static struct log_limit limit;
    int64_t timeout = s->cfg->rados_timeout_ms;
    bool down = false, writes = strcmp(doing, "writing") == 0;
    switch (op->result) {
    case CLUSTER_LATE:
        err_set(err, ERR_LATE, "RADOS: no answer within %" PRId64 " ms (rados_timeout) while %s %s%s", timeout, doing,
                what, writes ? ": whether it will be durable is unknown, send it again" : "");
        break;
    case CLUSTER_FULL:
        err_set(err, ERR_FULL, "RADOS: the cluster, or the pool %s, is full", log_quote_str(s->cfg->rados_pool));
        break;
    case CLUSTER_FENCED:
        err_set(err, ERR_IO,
                "RADOS: this client was blocklisted by the cluster while %s %s, and another one connects%s", doing,
                what, writes ? ": whether it is durable is unknown, send it again" : "");
        down = true;
        break;
    case CLUSTER_NO_POOL:
        err_set(err, ERR_IO, "RADOS: the pool %s was removed", log_quote_str(s->cfg->rados_pool));
        down = true;
        break;
    case CLUSTER_DENIED:
        err_set(err, ERR_IO, "RADOS: %s is not allowed to do that while %s %s", s->cfg->rados_user, doing, what);
        down = true;
        break;
    case CLUSTER_LARGE:
        err_set(err, ERR_CORRUPT, "RADOS: object %s: a value has %zu bytes, and Unseen writes %zu at most, while %s %s",
                log_quote_str(op->object), op->length, op->most, doing, what);
        break;
    case CLUSTER_NOMEM:
        err_set(err, ERR_NOMEM, "out of memory while %s %s", doing, what);
        break;
    case CLUSTER_CLOSED:
        return err_set(err, ERR_CLOSED, "the store is closing");
    default:
        err_set(err, ERR_IO, "RADOS: %s while %s %s", strerror(op->code), doing, what);
    }
    if (down) {
        pthread_mutex_lock(&s->mutex);
        s->down.code = err->code;
        hide_ids_copy(s->down.text, sizeof s->down.text, err->text);
        s->down_us = clock_mono_us();
        s->down_fenced = op->result == CLUSTER_FENCED;
        pthread_mutex_unlock(&s->mutex);
    }
    if (log_again(&limit)) {
        log_error("cluster failed", "error=%s", log_quote_str(err->text));
    }
    return err->code;
}

int cluster_error(struct rados_store *s, const struct cluster_op *op, const char *doing, struct slice user,
                  struct err *err)
{
    char what[sizeof err->text];
    snprintf(what, sizeof what, "user %s", log_quote(user));
    return cluster_error_of(s, op, doing, what, err);
}

/* --- the thread --- */

static void work(struct rados_store *s)
{
    for (struct store_message *m = thread_queue_take(&s->queue), *next; m != NULL; m = next) {
        next = m->next;
        heartbeat_now(&s->queue.task.heartbeat);
        switch ((enum rados_message)m->what) {
        case RADOS_STEP:
            update_step((struct update *)m);
            break;
        case RADOS_BATCH: {
            struct store_batch *batch = (struct store_batch *)m;
            batch->done(batch);
            break;
        }
        case RADOS_FORGET: {
            struct store_forget *forget = (struct store_forget *)m;
            forget->done(forget);
            break;
        }
        case RADOS_MERGED: {
            struct store_merge *merge = (struct store_merge *)m;
            merge->done(merge);
            break;
        }
        case RADOS_CLOCK: {
            pool_clock_change(s, (struct store_clock_change *)m);
            break;
        }
        case RADOS_CALL: {
            struct store_call *call = (struct store_call *)m;
            call->done(call);
            break;
        }
        }
    }
}

static void run(void *arg)
{
    struct rados_store *s = arg;
    bool stop = false;
    while (!stop) {
        stop = thread_queue_wait_until(&s->queue, clock_mono_us() + LOOK_EVERY_MS * 1000);
        work(s);
        pool_clock_look(s);
        fullness_look(s);
    }
}

/* --- the seam --- */

static void store_tick(struct store *base, struct store_call *call)
{
    call->err = (struct err){0};
    thread_queue_wake(&rados_of(base)->queue);
    pool_clock_look(rados_of(base)); /* not by that thread, which a close behind this tick may outrun */
    night_tick(rados_of(base), call);
}

static void store_clock_change(struct store *base, struct store_clock_change *change)
{
    change->call.err = (struct err){0};
    rados_store_post(rados_of(base), &change->call.message, RADOS_CLOCK);
}

static void store_now(struct store *base, int64_t *later, int64_t *earlier)
{
    guarded_clock_now(&rados_of(base)->clock, later, earlier);
}

static int store_time_known(struct store *base, struct err *err)
{
    return guarded_clock_known(&rados_of(base)->clock, err);
}

static void store_clock(struct store *base, struct store_clock *out)
{
    guarded_clock_tell(&rados_of(base)->clock, out);
}

static void store_stats(struct store *base, struct store_stats *out)
{
    struct rados_store *s = rados_of(base);
    pthread_mutex_lock(&s->mutex);
    *out = s->stats;
    out->queue_messages = s->under_way;
    pthread_mutex_unlock(&s->mutex);
    out->staged_bytes = atomic_load(&s->bytes);
    out->rados_full = fullness_known(s);
    out->months_found_ms = (uint64_t)night_age(s).oldest_ms;
    const struct quota *quotas[] = {&s->small, &s->large};
    for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
        struct quota_state state = quota_state(quotas[i]);
        out->user_bytes += state.used;
        out->user_waits += state.waits;
    }
}

static int store_refusal(struct store *base, struct err *err)
{
    struct rados_store *s = rados_of(base);
    pthread_mutex_lock(&s->mutex);
    bool down = s->down.code < 0 && clock_mono_us() - s->down_us < DOWN_US;
    int result = down ? err_set(err, s->down.code, "%s", s->down.text) : 0;
    pthread_mutex_unlock(&s->mutex);
    result = result < 0 ? result : fullness_refusal(s, err);
    result = result < 0 ? result : writes_refusal(s, err);
    return result < 0 ? result : guarded_clock_known(&s->clock, err);
}

static uint64_t store_seed(struct store *base)
{
    return rados_of(base)->seed;
}

static int store_publish(struct store *base, const char *address, struct err *err)
{
    (void)base, (void)address, (void)err;
    return 0; /* other nodes may open the pool as well */
}

/* --- opening and closing --- */

static void free_store(struct rados_store *s)
{
    if (s->cluster != NULL) {
        s->ops->disconnect(s->cluster);
    }
    night_free(s);
    rados_positions_free(s);
    bulk_free(s);
    merges_destroy(s);
    fullness_destroy(s);
    writes_destroy(s);
    quota_destroy(&s->small);
    quota_destroy(&s->large);
    delivered_codec_free(&s->codec);
    thread_queue_destroy(&s->queue);
    if (s->clock.cfg != NULL) { /* it was started */
        guarded_clock_end(&s->clock);
    }
    pool_clock_free(s);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

/* Nothing comes from outside any more; what is under way ends within the cluster's time limit. The thread goes last,
 * since what is under way is worked out there. */
static void store_close(struct store *base)
{
    struct rados_store *s = rados_of(base);
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_mutex_unlock(&s->mutex);
    night_stop(s);
    pthread_mutex_lock(&s->mutex);
    while (s->under_way > 0) {
        pthread_cond_wait(&s->ended, &s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    task_stop(&s->queue.task);
    free_store(s);
}

/* What any store of a pool does alike. */
#define READING_OPS                                                                                                    \
    .tick = store_tick, .reader_open = rados_reader_open, .reader_close = rados_reader_close, .load = rados_load,      \
    .view = rados_view, .rest = rados_rest, .scan = rados_scan, .stats = store_stats, .now = store_now,                \
    .time_known = store_time_known, .clock = store_clock, .clock_change = store_clock_change, .seed = store_seed,      \
    .publish = store_publish, .close = store_close

/* --- a store that only asks --- */

static int read_only(struct err *err)
{
    return err_set(err, ERR_READONLY, "the pool was opened to be read alone");
}

static void refuse_batch(struct store *base, struct store_batch *batch)
{
    read_only(&batch->err);
    rados_store_post(rados_of(base), &batch->message, RADOS_BATCH);
}

static void refuse_forget(struct store *base, struct store_forget *forget)
{
    read_only(&forget->err);
    rados_store_post(rados_of(base), &forget->message, RADOS_FORGET);
}

static void refuse_import(struct store *base, struct store_import *import)
{
    memset(import->verdicts, 0, import->n);
    read_only(&import->call.err);
    rados_store_post(rados_of(base), &import->call.message, RADOS_CALL);
}

static void refuse_merge(struct store *base, struct store_merge *merge)
{
    read_only(&merge->err);
    rados_store_post(rados_of(base), &merge->message, RADOS_MERGED);
}

static int refuse_all(struct store *base, struct err *err)
{
    (void)base;
    return read_only(err);
}

static const struct store_ops rados_ops = {
    READING_OPS,          .record = writes_record, .forget = rados_forget,
    .merge = rados_merge, .import = rados_import,  .refusal = store_refusal,
};

static const struct store_ops asking_ops = {
    READING_OPS,           .record = refuse_batch,  .forget = refuse_forget,
    .merge = refuse_merge, .import = refuse_import, .refusal = refuse_all,
};

static int find_ops(const struct config *cfg, const struct cluster_ops **ops, struct err *err)
{
    if (cfg->rados_pool[0] == '\0') {
        return err_set(err, ERR_INVALID, "store = rados needs rados_pool: the pool that holds the users");
    }
    const void *functions = NULL;
    int code = *ops != NULL ? 0 : module_open(cfg->modules, "rados", "unseen-rados", &functions, err);
    *ops = functions != NULL ? functions : *ops;
    return code;
}

static struct cluster_options options_of(const struct config *cfg)
{
    return (struct cluster_options){
        .conf = cfg->rados_conf, .user = cfg->rados_user, .pool = cfg->rados_pool, .timeout_ms = cfg->rados_timeout_ms};
}

int rados_cluster_connect(const struct config *cfg, const struct cluster_ops **ops, struct cluster **cluster,
                          struct err *err)
{
    const struct cluster_options to = options_of(cfg);
    int code = find_ops(cfg, ops, err);
    return code < 0 ? code : (*ops)->connect(&to, cluster, err);
}

static int on_fresh(void *owner, const struct cluster_ops *ops, struct cluster *fresh, struct err *err)
{
    struct rados_store *s = owner;
    pthread_mutex_lock(&s->mutex);
    struct meta meta = s->meta;
    pthread_mutex_unlock(&s->mutex);
    return meta.schema == 0 ? err_set(err, ERR_LOADING, "the pool isn't open yet") : meta_still(&meta, ops, fresh, err);
}

static void on_connected(void *owner)
{
    struct rados_store *s = owner;
    pthread_mutex_lock(&s->mutex);
    s->stats.reconnects++;
    if (s->down_fenced) {
        s->down = (struct err){0};
    }
    pthread_mutex_unlock(&s->mutex);
}

static void on_failed(void *owner)
{
    struct rados_store *s = owner;
    RADOS_COUNT(s, rados_errors, 1);
}

static int connect_store(struct rados_store *s, const struct cluster_ops *ops, const char **version, struct err *err)
{
    const struct cluster_options to = options_of(s->cfg);
    const struct reconnect_hooks hooks = {s, on_fresh, on_connected, on_failed};
    int code = find_ops(s->cfg, &ops, err);
    code = code < 0 ? code : reconnect_open(ops, &to, &hooks, &s->cluster, err);
    *version = code < 0 ? "" : ops->version();
    return code;
}

const char *rados_library_version(const char *folder)
{
    const void *functions = NULL;
    struct err err;
    if (module_open(folder != NULL ? folder : "", "rados", "unseen-rados", &functions, &err) < 0) {
        return err.code == ERR_ABSENT ? "not installed" : "not usable";
    }
    return ((const struct cluster_ops *)functions)->version();
}

static int start(struct rados_store *s, struct err *err)
{
    int code = task_start(&s->queue.task, "rados", TASK_BEATS, run, s, err);
    code = code < 0 ? code : night_start(s, err);
    if (code < 0) {
        task_stop(&s->queue.task);
    }
    return code;
}

int rados_store_walk(struct store *store, struct err *err)
{
    return night_walk(rados_of(store), err);
}

int rados_store_open(const struct config *cfg, const struct rados_store_options *options, struct store **store,
                     struct err *err)
{
    static const struct rados_store_options plain = {0};
    const struct rados_store_options *o = options != NULL ? options : &plain;
    const char *version;
    struct rados_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    s->base = (struct store){.engine = "rados",
                             .ops = o->use == RADOS_ASKS ? &asking_ops : &rados_ops,
                             .by_user = true,
                             .admin = &night_admin_ops,
                             .bulk = o->use == RADOS_LOADS ? &rados_bulk_ops : NULL,
                             .positions = o->use == RADOS_SERVES ? &rados_positions_ops : NULL};
    s->use = o->use;
    s->cfg = cfg;
    s->ops = &reconnect_ops;
    quota_init(&s->small, cfg, QUOTA_SMALL);
    quota_init(&s->large, cfg, QUOTA_LARGE);
    thread_queue_init(&s->queue);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->ended, NULL);
    int code =
        writes_init(s) < 0 || merges_init(s) < 0 || fullness_init(s) < 0 ? err_set(err, ERR_NOMEM, "out of memory") : 0;
    code = code < 0 ? code : connect_store(s, o->ops, &version, err);
    code = code < 0 ? code : meta_open(s, err);
    code = code < 0 ? code : pool_clock_open(s, o->built_ms != 0 ? o->built_ms : clock_built_ms(), err);
    code = code < 0 ? code : rados_positions_open(s, err);
    code = code < 0 ? code : start(s, err);
    if (code < 0) {
        free_store(s);
        return code;
    }
    char address[CLUSTER_ADDRESS];
    s->ops->address(s->cluster, address, sizeof address);
    log_info("connected to RADOS", "pool=%s user=%s address=%s librados=%s", log_quote_str(cfg->rados_pool),
             log_quote_str(cfg->rados_user), log_quote_str(address), version);
    *store = &s->base;
    return 0;
}
