/* The historian: the one thread that writes history.db, at a lower priority than the others, but at a start.
 *
 * It looks at the slots, then takes its queue, then does one step, a transaction of a few milliseconds, and begins
 * again. In this order a forget is always carried out before a newer row is merged, because the stager sends it before
 * it closes the slot with that row. Work in order of precedence: forgets, flushes, a bulk load's merge, the sweep, the
 * sealing. After each step a backup under way copies some pages, so that it ends under any load.
 *
 * When the WAL is at its limit and can't shrink (txn.c), flush, load, sweep and sealing pause and say so; forgets
 * go on.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/ring.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    NICE = 10,
    IDLE_WAIT_MS = 500,            /* real time between looks at retries and the sweep */
    PAUSE_WAIT_MS = 50,            /* while the WAL can't shrink */
    IDLE_RETRY_MS = 5 * 60 * 1000, /* after a transaction of the sweep or the sealing failed */
};

/* --- slots --- */

static void set_failed(struct sqlite_store *s, int slot, const struct err *error)
{
    struct flush_job *job = &s->historian.jobs[slot];
    job->retry_mono_ms = slots_set_stuck(s, slot, SLOT_FAILED, error->text, job->failures);
    log_error("flush failed", "slot=%d failures=%u ranges=%zu retry_s=%" PRId64 " error=%s", slot, job->failures,
              job->failed.n, slots_retry_delay_ms(s, job->failures) / 1000, log_quote_str(error->text));
}

static void end_flush(struct sqlite_store *s, int slot)
{
    struct flush_job *job = &s->historian.jobs[slot];
    log_info("flush done", "slot=%d users=%" PRIu64 " plays=%" PRIu64 " ms=%" PRId64, slot, job->users, job->plays,
             (clock_figures_us() - job->started_us) / 1000);
    GAUGE(s, flush_us_last, clock_figures_us() - job->started_us);
    GAUGE(s, flushed_ms, clock_wall_ms());
    flush_free(job);
    slots_set_state(s, slot, SLOT_EMPTYING);
    thread_queue_wake(&s->stager.queue);
}

/* The slot to work on: one being flushed before one that waits. -1: none is due. */
static int due_slot(struct sqlite_store *s)
{
    int waiting = -1;
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&s->ring_mutex);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        enum store_slot_state state = s->slots[i].info.state;
        if (state == SLOT_FLUSHING) {
            waiting = i;
            break;
        }
        bool due = (state == SLOT_CLOSED && s->slots[i].reading != SLOT_READING) ||
                   (state == SLOT_FAILED && now >= s->historian.jobs[i].retry_mono_ms);
        if (due && (waiting < 0 || s->slots[i].info.since_ms < s->slots[waiting].info.since_ms)) {
            waiting = i;
        }
    }
    pthread_mutex_unlock(&s->ring_mutex);
    return waiting;
}

/* How much of the slot's memory is merged, so that a write that waits for it sees that something moves. */
static void note_merged(struct sqlite_store *s, const struct flush_job *job, int result)
{
    uint64_t users = staged_users(job->index), bytes = staged_bytes(job->index);
    double share = result == 0 || job->users >= users ? 1 : (double)job->users / (double)users;
    atomic_store_explicit(&s->merged_bytes, (uint64_t)((double)bytes * share), memory_order_relaxed);
}

static void work_slot(struct sqlite_store *s, int slot)
{
    struct flush_job *job = &s->historian.jobs[slot];
    if (slots_state(s, slot) != SLOT_FLUSHING) {
        slots_set_state(s, slot, SLOT_FLUSHING);
        flush_begin(s, job, atomic_load(&s->slots[slot].index));
        history_met(s, s->slots[slot].last_id); /* closed: the stager changes it no more */
    }
    int result = flush_step(s, job);
    note_merged(s, job, result);
    GAUGE(s, flush_users_done, result == 1 ? job->users : 0);
    GAUGE(s, flush_users, result == 1 ? staged_users(job->index) : 0);
    if (result == 0) {
        end_flush(s, slot);
    } else if (result < 0) {
        struct err error = job->error;
        set_failed(s, slot, &error);
    }
}

/* A turn tries the failed ones again, as does the ring when it comes round to one, and RING FLUSH. */
static void retry_failed(struct sqlite_store *s)
{
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        s->historian.jobs[i].retry_mono_ms = INT64_MIN;
    }
}

static void notice_turn(struct sqlite_store *s)
{
    pthread_mutex_lock(&s->ring_mutex);
    uint64_t turn = s->turn;
    pthread_mutex_unlock(&s->ring_mutex);
    if (turn != s->historian.turn_seen) {
        s->historian.turn_seen = turn;
        retry_failed(s);
    }
}

/* A shorter retention makes more of what is there old. */
static void notice_retention(struct sqlite_store *s)
{
    if (config_now(s->cfg)->retention != s->historian.retention_seen) {
        sweep_announce(s);
    }
}

/* --- calls --- */

/* Whether every slot has come to rest; error: of the first that could not. */
static bool slots_at_rest(struct sqlite_store *s, struct err *error)
{
    bool rest = true;
    pthread_mutex_lock(&s->ring_mutex);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        const struct store_slot *info = &s->slots[i].info;
        bool stuck = info->error[0] != '\0' && (info->state == SLOT_FAILED || info->state == SLOT_EMPTYING);
        if (stuck && error->code == 0) {
            err_set(error, ERR_IO, "slot %d: %s", i, info->error);
        }
        rest = rest && (stuck || info->state == SLOT_EMPTY || info->state == SLOT_OPEN);
    }
    pthread_mutex_unlock(&s->ring_mutex);
    return rest;
}

static void answer_calls(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    struct err error = {0};
    bool rest = slots_at_rest(s, &error);
    if (h->paused && !rest) {
        char cause[STORE_ERROR_TEXT / 4 * 3];
        blocked_by_reader(s, cause, sizeof cause);
        err_set(&error, ERR_BUSY, "history.db can't be written: %s", cause);
        rest = true;
    }
    if (!rest) {
        return;
    }
    struct store_message *m = h->calls;
    h->calls = NULL;
    while (m != NULL) {
        struct store_call *call = (struct store_call *)m;
        m = m->next;
        if (call->message.what == WANTS_ROOM && error.code == 0) {
            thread_queue_put(&s->stager.queue, &call->message); /* there is a slot to turn to */
            continue;
        }
        call->err = (struct err){0};
        if (call->message.what != WANTS_TICK) {
            call->err = error;
        }
        call->done(call);
    }
}

/* Ends the list behind the last of the forgets that it begins with; returns the rest. */
static struct store_message *take_forgets(struct store_message *first)
{
    struct store_message *last = first;
    for (int n = 1; n < STAGER_FORGETS_MAX && last->next != NULL && last->next->kind == STORE_FORGET; n++) {
        last = last->next;
    }
    struct store_message *rest = last->next;
    last->next = NULL;
    return rest;
}

/* Whether there was a call among them: then the slots must be looked at again before any is answered. */
static bool take_messages(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    struct store_message *next;
    bool called = false;
    for (struct store_message *m = thread_queue_take(&h->queue); m != NULL; m = next) {
        next = m->next;
        if (m->kind == STORE_FORGET) {
            heartbeat_now(&h->queue.task.heartbeat);
            next = take_forgets(m);
            forgets_history(s, (struct store_forget *)m);
            continue;
        }
        if (m->kind == STORE_INTERNAL) {
            flush_begin(s, &h->bulk_job, bulk_index(s->bulk));
            h->bulk_job.older = bulk_serving(s->bulk);
            continue;
        }
        if (m->kind == STORE_MERGE) {
            h->n_merges++;
            import_take(s, m);
            continue;
        }
        if (m->what == WANTS_IMPORT) {
            import_take(s, m);
            continue;
        }
        if (m->what != WANTS_TICK) {
            retry_failed(s);
        }
        m->next = h->calls;
        h->calls = m;
        called = true;
    }
    return called;
}

/* --- the loop --- */

static void work_bulk(struct sqlite_store *s)
{
    struct flush_job *job = &s->historian.bulk_job;
    int result = flush_step(s, job);
    if (result == 1) {
        return;
    }
    struct err error = job->error;
    flush_free(job);
    bulk_merged(s, result < 0 ? &error : NULL);
}

static bool work_sweep(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    if (clock_mono_ms() < h->sweep_retry_mono_ms) {
        return false;
    }
    struct err err = {0};
    int result = sweep_step(s, &err);
    if (result < 0) {
        log_error("sweep failed", "retry_s=%d error=%s", IDLE_RETRY_MS / 1000, log_quote_str(err.text));
        h->sweep_retry_mono_ms = clock_mono_ms() + IDLE_RETRY_MS;
    }
    return result > 0;
}

static bool work_seal(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    if (clock_mono_ms() < h->seal_retry_mono_ms) {
        return false;
    }
    struct err err = {0};
    int result = seal_step(s, &err);
    if (result < 0) {
        log_error("sealing failed", "retry_s=%d error=%s", IDLE_RETRY_MS / 1000, log_quote_str(err.text));
        h->seal_retry_mono_ms = clock_mono_ms() + IDLE_RETRY_MS;
    }
    return result > 0;
}

/* One step of the most pressing work. Returns whether there may be more. */
static bool work(struct sqlite_store *s, int slot)
{
    struct historian *h = &s->historian;
    if (!history_may_write(s)) {
        return h->n_merges > 0 && import_step(s); /* as a forget: plays may wait for it */
    }
    bool imported = import_step(s);
    if (slot >= 0) {
        work_slot(s, slot);
        return true;
    }
    if (h->bulk_job.index != NULL && atomic_load(&s->leaving) == 0) {
        work_bulk(s);
        return true;
    }
    if (atomic_load(&s->recovering)) {
        return imported; /* nights have time */
    }
    return imported || work_sweep(s) || work_seal(s);
}

/* At once, and again until it is done: what questions read of a WAL whose fsync failed is not to be trusted. */
static void open_again(struct sqlite_store *s)
{
    struct err err = {0};
    if (history_reopen(s, &err) < 0 && log_again(&s->historian.reopen_log)) {
        log_error("can't open history.db again", "error=%s", log_quote_str(err.text));
    }
}

static void refuse_rest(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    take_messages(s);
    struct err closed = {0};
    err_set(&closed, ERR_CLOSED, "the store is closing");
    import_refuse(s, &closed);
    while (h->calls != NULL) {
        struct store_call *call = (struct store_call *)h->calls;
        h->calls = call->message.next;
        call->err = closed;
        call->done(call);
    }
    if (h->bulk_job.index != NULL) {
        bulk_merged(s, &closed);
    }
}

/* Not as long as a start waits for flushes. */
static bool enter_background(struct sqlite_store *s)
{
    if (atomic_load(&s->recovering)) {
        return false;
    }
    if (background_enter(NICE, BACKGROUND_SLICE_LONG_MS) < 0) {
        log_debug("can't lower the historian's priority", "errno=%d", errno);
    }
    return true;
}

static void historian_main(void *arg)
{
    struct sqlite_store *s = arg;
    struct historian *h = &s->historian;
    bool more = false, background = false;
    for (;;) {
        bool stop = more ? thread_queue_stopped(&h->queue)
                    : h->paused
                        ? thread_queue_wait_real(&h->queue, PAUSE_WAIT_MS) /* for a reader to end its snapshot */
                        : thread_queue_wait(&h->queue, IDLE_WAIT_MS);
        background = background || enter_background(s);
        notice_turn(s);
        notice_retention(s);
        int slot = due_slot(s);
        bool called = take_messages(s);
        if (stop) {
            break;
        }
        open_again(s);
        more = work(s, slot) || called;
        if (!more) {
            arena_reset(&h->arena); /* what a giant took goes back */
        }
        if (!more && h->calls != NULL) {
            answer_calls(s);
        }
        more = backup_step(s) || more;
    }
    refuse_rest(s);
}

int historian_start(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    pthread_mutex_lock(&s->ring_mutex);
    h->turn_seen = s->turn;
    pthread_mutex_unlock(&s->ring_mutex);
    int result = history_recount(s, err);
    if (result < 0) {
        return result;
    }
    sweep_announce(s);
    return task_start(&h->queue.task, "historian", TASK_BEATS, historian_main, s, err);
}

void historian_stop(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    task_stop(&h->queue.task);
    refuse_rest(s); /* if it never ran */
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        flush_free(&h->jobs[i]);
    }
    flush_free(&h->bulk_job);
    arena_free(&h->arena);
    buf_free(&h->blob);
    delivered_codec_free(&h->codec);
    delivered_free(&h->deliveries);
    staged_out_free(&s->historian_pin.out);
    free(h->positions);
    free(h->scratch);
}
