/* Opening and closing the engine on RADOS, its thread, and what only looks or leaves a message. */
#include "store/rados/rados_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/module.h"
#include "store/codec/user_snapshot.h"
#include "store/rados/fullness.h"
#include "store/rados/meta.h"
#include "store/rados/night.h"
#include "store/rados/rados.h"

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

int cluster_error(struct rados_store *s, const struct cluster_op *op, const char *doing, struct slice user,
                  struct err *err)
{
    static struct log_limit limit;
    int64_t timeout = s->cfg->rados_timeout_ms;
    bool down = false;
    switch (op->result) {
    case CLUSTER_LATE:
        err_set(err, ERR_LATE, "RADOS: no answer within %" PRId64 " ms (rados_timeout) while %s user %s%s", timeout,
                doing, log_quote(user),
                strcmp(doing, "writing") == 0 ? ": whether it will be durable is unknown, send it again" : "");
        break;
    case CLUSTER_FULL:
        err_set(err, ERR_FULL, "RADOS: the cluster, or the pool %s, is full", log_quote_str(s->cfg->rados_pool));
        break;
    case CLUSTER_FENCED:
        err_set(err, ERR_IO, "RADOS: this client is blocklisted by the cluster: it has to be started again");
        down = true;
        break;
    case CLUSTER_NO_POOL:
        err_set(err, ERR_IO, "RADOS: the pool %s was removed", log_quote_str(s->cfg->rados_pool));
        down = true;
        break;
    case CLUSTER_DENIED:
        err_set(err, ERR_IO, "RADOS: %s is not allowed to do that while %s user %s", s->cfg->rados_user, doing,
                log_quote(user));
        down = true;
        break;
    case CLUSTER_NOMEM:
        err_set(err, ERR_NOMEM, "out of memory while %s user %s", doing, log_quote(user));
        break;
    case CLUSTER_CLOSED:
        return err_set(err, ERR_CLOSED, "the store is closing");
    default:
        err_set(err, ERR_IO, "RADOS: %s while %s user %s", strerror(op->code), doing, log_quote(user));
    }
    if (down) {
        pthread_mutex_lock(&s->mutex);
        err_set(&s->down, err->code, "%s", err->text);
        s->down_us = clock_stopwatch_us();
        pthread_mutex_unlock(&s->mutex);
    }
    if (log_again(&limit)) {
        log_error("cluster failed", "error=%s", log_quote_str(err->text));
    }
    return err->code;
}

/* --- the thread --- */

static void work(struct rados_store *s)
{
    for (struct store_message *m = thread_queue_take(&s->queue), *next; m != NULL; m = next) {
        next = m->next;
        heartbeat_now(&s->queue.heartbeat);
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
        case RADOS_CLOCK: {
            struct store_clock_change *change = (struct store_clock_change *)m;
            int64_t wall;
            guarded_clock_change(&s->clock, change, &wall);
            change->call.done(&change->call);
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

static void *run(void *arg)
{
    struct rados_store *s = arg;
    bool stop = false;
    heartbeat_begin(&s->queue.heartbeat, "rados");
    while (!stop) {
        stop = thread_queue_wait_real(&s->queue, LOOK_EVERY_MS); /* the cluster has no test clock */
        work(s);
        fullness_look(s);
    }
    heartbeat_end(&s->queue.heartbeat);
    return NULL;
}

/* --- the seam --- */

static void store_tick(struct store *base, struct store_call *call)
{
    call->err = (struct err){0};
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
}

static int store_refusal(struct store *base, struct err *err)
{
    struct rados_store *s = rados_of(base);
    pthread_mutex_lock(&s->mutex);
    bool down = s->down.code < 0 && clock_stopwatch_us() - s->down_us < DOWN_US;
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
    return 0; /* anybody else may open the pool as well */
}

/* --- opening and closing --- */

static void free_store(struct rados_store *s)
{
    if (s->cluster != NULL) {
        s->ops->disconnect(s->cluster);
    }
    night_free(s);
    merges_destroy(s);
    fullness_destroy(s);
    writes_destroy(s);
    delivered_codec_free(&s->codec);
    thread_queue_destroy(&s->queue);
    guarded_clock_end(&s->clock);
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
    thread_queue_stop(&s->queue);
    pthread_join(s->thread, NULL);
    free_store(s);
}

static const struct store_ops rados_ops = {
    .record = writes_record,
    .forget = rados_forget,
    .tick = store_tick,
    .reader_open = rados_reader_open,
    .reader_close = rados_reader_close,
    .load = rados_load,
    .scan = rados_scan,
    .import = rados_import,
    .stats = store_stats,
    .now = store_now,
    .time_known = store_time_known,
    .refusal = store_refusal,
    .clock = store_clock,
    .clock_change = store_clock_change,
    .seed = store_seed,
    .publish = store_publish,
    .close = store_close,
};

int rados_cluster_connect(const struct config *cfg, const struct cluster_ops **ops, struct cluster **cluster,
                          struct err *err)
{
    if (*ops == NULL) {
        const void *functions = NULL;
        int code = module_open(cfg->modules, "rados", "unseen-rados", &functions, err);
        if (code < 0) {
            return code;
        }
        *ops = functions;
    }
    const struct cluster_options to = {
        .conf = cfg->rados_conf, .user = cfg->rados_user, .pool = cfg->rados_pool, .timeout_ms = cfg->rados_timeout_ms};
    return (*ops)->connect(&to, cluster, err);
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
    int code = pthread_create(&s->thread, NULL, run, s);
    if (code != 0) {
        return err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(code));
    }
    code = night_start(s, err);
    if (code < 0) {
        thread_queue_stop(&s->queue);
        pthread_join(s->thread, NULL);
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
    struct rados_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    s->base = (struct store){.engine = "rados", .ops = &rados_ops, .by_user = true, .admin = &night_admin_ops};
    s->cfg = cfg;
    s->ops = o->ops;
    thread_queue_init(&s->queue);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->ended, NULL);
    guarded_clock_start(&s->clock, cfg, o->built_ms != 0 ? o->built_ms : clock_built_ms());
    int code =
        writes_init(s) < 0 || merges_init(s) < 0 || fullness_init(s) < 0 ? err_set(err, ERR_NOMEM, "out of memory") : 0;
    code = code < 0 ? code : rados_cluster_connect(cfg, &s->ops, &s->cluster, err);
    code = code < 0 ? code : meta_open(s, err);
    code = code < 0 ? code : start(s, err);
    if (code < 0) {
        free_store(s);
        return code;
    }
    log_info("connected to RADOS", "pool=%s user=%s librados=%s", log_quote_str(cfg->rados_pool),
             log_quote_str(cfg->rados_user), s->ops->version());
    *store = &s->base;
    return 0;
}
