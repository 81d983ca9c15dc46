/* Opening and closing the memory store, its thread, and what only looks or leaves a message. */
#include "store/memory/memory_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/memory/memory.h"

enum { EXPIRE_EVERY_MS = 3600 * 1000 };

enum wanted { WANTS_TICK, WANTS_IMPORT, WANTS_CLOCK }; /* of a STORE_CALL */

/* --- the thread --- */

static void work_call(struct memory_store *s, struct store_message *m)
{
    struct store_call *call = (struct store_call *)m;
    switch ((enum wanted)m->what) {
    case WANTS_TICK:
        memory_expire(s);
        call->done(call);
        break;
    case WANTS_IMPORT:
        memory_import(s, (struct store_import *)m);
        break;
    case WANTS_CLOCK:
        memory_clock_work(s, (struct store_clock_change *)m);
        call->done(call);
        break;
    }
}

static void work(struct memory_store *s)
{
    for (struct store_message *m = thread_queue_take(&s->queue), *next; m != NULL; m = next) {
        next = m->next;
        heartbeat_now(&s->queue.task.heartbeat);
        switch (m->kind) {
        case STORE_BATCH:
            memory_record(s, (struct store_batch *)m);
            break;
        case STORE_FORGET:
            memory_forget(s, (struct store_forget *)m);
            break;
        case STORE_MERGE:
            memory_merge(s, (struct store_merge *)m);
            break;
        case STORE_CALL:
            work_call(s, m);
            break;
        case STORE_INTERNAL:
            memory_load_now((struct store_load *)m);
            break;
        }
    }
}

static void run(void *arg)
{
    struct memory_store *s = arg;
    bool stop = false;
    while (!stop) {
        stop = thread_queue_wait(&s->queue, EXPIRE_EVERY_MS);
        work(s);
        int64_t now = clock_mono_ms();
        if (now - s->expired_mono_ms >= EXPIRE_EVERY_MS) {
            s->expired_mono_ms = now;
            memory_expire(s);
        }
    }
}

/* --- the seam --- */

static void put(struct store *base, struct store_message *message, enum store_message_kind kind, int what)
{
    message->kind = kind;
    message->what = what;
    thread_queue_put(&memory_of(base)->queue, message);
}

static void store_record(struct store *base, struct store_batch *batch)
{
    batch->err = (struct err){0};
    put(base, &batch->message, STORE_BATCH, 0);
}

static void store_forget(struct store *base, struct store_forget *forget)
{
    put(base, &forget->message, STORE_FORGET, 0);
}

static void store_merge(struct store *base, struct store_merge *merge)
{
    put(base, &merge->message, STORE_MERGE, 0);
}

static void store_tick(struct store *base, struct store_call *call)
{
    call->err = (struct err){0};
    put(base, &call->message, STORE_CALL, WANTS_TICK);
}

static void store_import(struct store *base, struct store_import *import)
{
    import->call.err = (struct err){0};
    put(base, &import->call.message, STORE_CALL, WANTS_IMPORT);
}

static void store_clock_change(struct store *base, struct store_clock_change *change)
{
    change->call.err = (struct err){0};
    put(base, &change->call.message, STORE_CALL, WANTS_CLOCK);
}

static void store_stats(struct store *base, struct store_stats *out)
{
    struct memory_store *s = memory_of(base);
    pthread_mutex_lock(&s->mutex);
    *out = s->stats;
    out->staged_bytes = s->bytes;
    pthread_mutex_unlock(&s->mutex);
    out->queue_messages = thread_queue_length(&s->queue);
}

static int store_refusal(struct store *base, struct err *err)
{
    struct memory_store *s = memory_of(base);
    pthread_mutex_lock(&s->mutex);
    int result = s->bytes >= memory_limit(s) ? memory_full(s, err) : 0;
    pthread_mutex_unlock(&s->mutex);
    return result < 0 ? result : memory_time_known(base, err);
}

static uint64_t store_seed(struct store *base)
{
    return memory_of(base)->seed;
}

static int store_publish(struct store *base, const char *address, struct err *err)
{
    (void)base, (void)address, (void)err;
    return 0; /* no other process can open it */
}

/* --- opening and closing --- */

static void free_store(struct memory_store *s)
{
    memory_free_all(s);
    position_set_free(s->positions);
    tombstones_free(s->tombstones);
    arena_free(&s->arena);
    delivered_codec_free(&s->codec);
    delivered_free(&s->united);
    thread_queue_destroy(&s->queue);
    guarded_clock_end(&s->clock);
    pthread_cond_destroy(&s->loaded);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static void store_close(struct store *base)
{
    struct memory_store *s = memory_of(base);
    task_stop(&s->queue.task);
    free_store(s);
}

static int find_position(struct store *base, struct slice source, int64_t *next)
{
    return position_set_find(memory_of(base)->positions, source, next);
}

static const struct store_positions_ops positions_ops = {.find = find_position};

static const struct store_ops memory_ops = {
    .record = store_record,
    .forget = store_forget,
    .merge = store_merge,
    .tick = store_tick,
    .reader_open = memory_reader_open,
    .reader_close = memory_reader_close,
    .load = memory_load,
    .scan = memory_scan,
    .import = store_import,
    .stats = store_stats,
    .now = memory_now,
    .time_known = memory_time_known,
    .refusal = store_refusal,
    .clock = memory_clock,
    .clock_change = store_clock_change,
    .seed = store_seed,
    .publish = store_publish,
    .close = store_close,
};

int memory_store_open(const struct config *cfg, const struct memory_store_options *options, struct store **store,
                      struct err *err)
{
    static const struct memory_store_options plain = {0};
    const struct memory_store_options *o = options != NULL ? options : &plain;
    struct memory_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    s->base = (struct store){.engine = "memory", .ops = &memory_ops, .positions = &positions_ops};
    s->cfg = cfg;
    s->later = o->later;
    s->seed = cfg->hash_seed;
    s->expired_mono_ms = clock_mono_ms();
    thread_queue_init(&s->queue);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->loaded, NULL);
    guarded_clock_start(&s->clock, cfg, o->built_ms != 0 ? o->built_ms : clock_built_ms(), &(struct guard_kept){0});
    if ((s->positions = position_set_new()) == NULL || (s->tombstones = tombstones_new()) == NULL) {
        free_store(s);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    if (!cfg->hash_seed_given && getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed) {
        free_store(s);
        return err_set(err, ERR_SYSTEM, "can't draw a seed: %s", strerror(errno));
    }
    int code = task_start(&s->queue.task, "memory", TASK_BEATS, run, s, err);
    if (code < 0) {
        free_store(s);
        return code;
    }
    log_warn("NOTHING IS DURABLE: store = memory keeps all in memory, and all ends with this process", "");
    *store = &s->base;
    return 0;
}
