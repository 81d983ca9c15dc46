/* The stager: the one thread that writes staging.db.
 *
 * It takes everything that waits in its queue at once and commits it as a group (group_commit.c): pipelined and
 * concurrent senders share commits without waiting for a timer, since while one group is being fsynced the next one
 * gathers. Batches and forgets are done in the order in which they came.
 *
 * What can go wrong. Memory that is full (admission.c): batches and forgets are held back in order (senders feel
 * it, since no loop reads on from a client whose work is queued), until a slot is emptied, or nothing has been freed
 * for a minute: then they are refused with the cause. A disk with less than min_free: batches are refused, forgets go
 * on.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/admin/copy.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/node.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    TICK_MS = 200,                  /* real time between looks at the clocks */
    GROUP_ROWS_MAX = 100000,        /* rows of one commit */
    WAL_CHECKPOINT_BYTES = 4 << 20, /* of staging.db's WAL; plays wait for it: some milliseconds */
};

/* --- what is held --- */

static void hold(struct stager *st, struct store_message *m)
{
    m->next = NULL;
    *st->held_last = m;
    st->held_last = &m->next;
    atomic_fetch_add_explicit(&st->n_held, 1, memory_order_relaxed);
}

static struct store_message *unhold(struct stager *st)
{
    struct store_message *m = st->held;
    if (m != NULL) {
        atomic_fetch_sub_explicit(&st->n_held, 1, memory_order_relaxed);
        st->held = m->next;
        if (st->held == NULL) {
            st->held_last = &st->held;
        }
    }
    return m;
}

static void answer_error(struct sqlite_store *s, struct store_message *m, const struct err *err)
{
    if (m->kind == STORE_BATCH) {
        struct store_batch *batch = (struct store_batch *)m;
        batch->err = *err;
        batch->done(batch);
    } else if (m->kind == STORE_FORGET) {
        struct store_forget *forget = (struct store_forget *)m;
        forget->err = *err;
        forget->done(forget);
    } else if (m->kind == STORE_MERGE) {
        struct store_merge *merge = (struct store_merge *)m;
        if (m->what == WANTS_MERGED) {
            merge_refuse(s, merge, err);
            return;
        }
        merge->err = *err;
        merge->done(merge);
    } else if (m->what == WANTS_USERS) {
        struct store_import *import = (struct store_import *)m;
        import->call.err = *err;
        import_answer(s, import);
    } else {
        struct store_call *call = (struct store_call *)m;
        call->err = *err;
        call->done(call);
    }
}

/* --- the turn --- */

static void consider_turn(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    const struct staged *index = atomic_load_explicit(&s->slots[s->open].index, memory_order_relaxed);
    int64_t now = clock_mono_ms();
    const struct ring_open open = {.elapsed_ms = now - st->opened_mono_ms,
                                   .slot_length_ms = config_slot_length_ms(s->cfg),
                                   .taken = staged_taken(index),
                                   .bytes = staged_bytes(index),
                                   .closed = slots_bytes(s) - staged_bytes(index),
                                   .limit = (uint64_t)config_now(s->cfg)->staging_memory};
    enum ring_due due = ring_due(&st->fill, &open);
    if (now < st->turn_retry_mono_ms) {
        return;
    }
    struct err err = {0};
    switch (due) {
    case RING_STAY:
        break;
    case RING_RENEW:
        st->opened_mono_ms = now;
        pthread_mutex_lock(&s->ring_mutex);
        s->next_turn_ms = clock_wall_ms() + config_slot_length_ms(s->cfg);
        pthread_mutex_unlock(&s->ring_mutex);
        break;
    case RING_TURN:
    case RING_TURN_EARLY:
        if (slots_turn(s, due == RING_TURN_EARLY, &err) < 0) {
            int64_t delay = ring_retry_delay_ms(++st->turn_failures);
            st->turn_retry_mono_ms = now + delay;
            log_error("turn failed", "failures=%u retry_s=%" PRId64 " error=%s", st->turn_failures, delay / 1000,
                      log_quote_str(err.text));
        }
        break;
    }
}

/* Those that are held one behind the other and need not wait for an earlier one; false: there is none. */
static bool work_forgets(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    struct store_message *first = NULL, **last = &first;
    for (int n = 0; n < STAGER_FORGETS_MAX && st->held != NULL && st->held->kind == STORE_FORGET; n++) {
        struct store_forget *forget = (struct store_forget *)st->held;
        if (stager_forget_is_under_way(s, forget->key) ||
            (forget->spared != NULL && stager_import_is_under_way(s, forget->key))) {
            break;
        }
        stager_forget_begun(s, forget->key);
        *last = unhold(st);
        last = &(*last)->next;
    }
    *last = NULL;
    stager_forgets(s, first);
    return first != NULL;
}

/* The same of merges: of no user of theirs is anything under way that a start would have to order. */
static bool work_merges(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    struct store_message *first = NULL, **last = &first;
    for (int n = 0; n < STAGER_FORGETS_MAX && st->held != NULL && st->held->kind == STORE_MERGE; n++) {
        struct store_merge *merge = (struct store_merge *)st->held;
        if (stager_forget_is_under_way(s, merge->from_key) || stager_forget_is_under_way(s, merge->into_key)) {
            break;
        }
        stager_forget_begun(s, merge->from_key);
        stager_forget_begun(s, merge->into_key);
        *last = unhold(st);
        last = &(*last)->next;
    }
    *last = NULL;
    stager_merges(s, first);
    return first != NULL;
}

/* Writes what is held, in order, as far as memory and disk allow. Whether the rest waits for an earlier forget
 * or merge. */
static bool work_held(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    while (st->held != NULL) {
        heartbeat_now(&st->queue.task.heartbeat);
        stager_look_at_memory(s, false);
        struct store_message *group = NULL;
        struct store_message **last = &group;
        uint64_t rows = 0;
        int verdict = 0;
        bool behind = false;
        while (st->held != NULL && st->held->kind == STORE_BATCH && rows < GROUP_ROWS_MAX) {
            struct store_batch *batch = (struct store_batch *)st->held;
            behind = merges_hold(s, batch);
            verdict = behind ? 0 : stager_admit(s, batch, rows);
            if (behind || verdict != 0) {
                break;
            }
            rows += batch->rows;
            *last = unhold(st);
            (*last)->next = NULL;
            last = &(*last)->next;
        }
        stager_commit(s, group, NULL);
        consider_turn(s);
        if (verdict < 0) {
            struct store_batch *batch = (struct store_batch *)unhold(st);
            batch->done(batch);
        } else if (verdict > 0) {
            return false;
        } else if (behind) {
            return true;
        } else if (st->held != NULL && st->held->kind == STORE_MERGE) {
            if (!work_merges(s)) {
                return true;
            }
        } else if (st->held != NULL && st->held->kind == STORE_FORGET) {
            if (((struct store_forget *)st->held)->spared != NULL && st->memory == RING_FULL) {
                return false;
            }
            if (!work_forgets(s)) {
                return true;
            }
        }
    }
    return false;
}

void stager_checkpoint_when_long(struct sqlite_store *s)
{
    struct db *db = &s->stager.db;
    struct err err = {0};
    if (!db->lost && db->wal_bytes > WAL_CHECKPOINT_BYTES && db_checkpoint(db, SQLITE_CHECKPOINT_PASSIVE, &err) < 0) {
        log_error("checkpoint failed", "error=%s", log_quote_str(err.text));
    }
    atomic_store_explicit(&s->counters.staging_wal_bytes, (uint64_t)db->wal_bytes, memory_order_relaxed);
}

static void tick(struct sqlite_store *s)
{
    struct err err = {0};
    s->stager.ticked_us = clock_real_us();
    folder_lock_keep(&s->lock, &err); /* what it finds refuses writes, and is told by those */
    time_look(s);
    backup_time_save(s);
    stager_look_at_disk(s);
    stager_look_at_memory(s, true);
    slots_try_commit(s);
    consider_turn(s);
    slots_retry_emptying(s, false);
    slots_collect_garbage(s, false);
    feed_sweep_step(s, true);
    forgets_expire(s);
}

/* --- calls --- */

/* RING FLUSH: turn first, if there is anything to turn; the historian answers. When no slot is free it sends the call
 * back as soon as one is, or answers with what keeps the slots from being emptied. */
static void work_flush_calls(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    struct store_message *m;
    while ((m = st->flush_calls) != NULL) {
        struct err err = {0};
        const struct staged *index = atomic_load_explicit(&s->slots[s->open].index, memory_order_relaxed);
        int turned = staged_taken(index) > 0 ? slots_turn(s, false, &err) : 1;
        st->flush_calls = m->next;
        if (turned < 0) {
            answer_error(s, m, &err);
        } else {
            m->what = turned > 0 ? WANTS_FLUSH : WANTS_ROOM;
            thread_queue_put(&s->historian.queue, m);
        }
    }
}

static void take_call(struct sqlite_store *s, struct store_message *m)
{
    if (m->what == WANTS_MERGED) {
        merge_take(s, (struct store_merge *)m);
        return;
    }
    if (m->what == WANTS_TICK) {
        tick(s);
        thread_queue_put(&s->historian.queue, m);
        return;
    }
    if (m->what == WANTS_MIGRATION) {
        migration_users_work(s, m);
        return;
    }
    if (m->what == WANTS_FEED) {
        feed_work(s, m);
        return;
    }
    if (m->what == WANTS_ENLIST) {
        feed_enlist_work(s, m);
        return;
    }
    if (m->what == WANTS_USERS) {
        import_feed(s, m);
        return;
    }
    if (m->what == WANTS_LOADED) {
        load_feed(s, m);
        return;
    }
    if (m->what == WANTS_NODE || m->what == WANTS_NEW_NODE) {
        node_work(s, m);
        return;
    }
    if (m->what == WANTS_ADOPT) {
        copy_adopt(s, m);
        return;
    }
    if (m->what == WANTS_SESSIONS) {
        kept_work(s, m);
        return;
    }
    if (m->what == WANTS_CLOCK) {
        time_work(s, m);
        return;
    }
    if (m->what == WANTS_POOL) {
        pool_work(s, m);
        return;
    }
    if (m->what == WANTS_MEMO) {
        memo_work(s, m);
        return;
    }
    if (m->what == WANTS_RECOVERED) {
        recover_work(s, m);
        return;
    }
    if (m->what == WANTS_IMPORT) {
        import_pass(s, m);
        return;
    }
    slots_retry_emptying(s, true);
    struct store_message **end = &s->stager.flush_calls;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    m->next = NULL;
    *end = m;
}

static void take_messages(struct sqlite_store *s)
{
    struct store_message *next;
    for (struct store_message *m = thread_queue_take(&s->stager.queue); m != NULL; m = next) {
        next = m->next;
        if (m->kind == STORE_CALL || m->what == WANTS_MERGED) {
            take_call(s, m);
        } else {
            hold(&s->stager, m);
        }
    }
    merges_end(s);
}

/* Whatever is still queued when the store closes was not written. */
static void refuse_rest(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    struct err err = {0};
    err_set(&err, ERR_CLOSED, "the store is closing");
    struct store_message *m;
    while ((m = unhold(st)) != NULL) {
        answer_error(s, m, &err);
    }
    while ((m = st->flush_calls) != NULL) {
        st->flush_calls = m->next;
        answer_error(s, m, &err);
    }
    struct store_message *next;
    for (m = thread_queue_take(&st->queue); m != NULL; m = next) {
        next = m->next;
        answer_error(s, m, &err);
    }
}

static void stager_main(void *arg)
{
    struct sqlite_store *s = arg;
    struct stager *st = &s->stager;
    bool more = false;
    for (;;) {
        bool stop = more ? thread_queue_stopped(&st->queue) : thread_queue_wait(&st->queue, TICK_MS);
        stager_gather(st);
        take_messages(s);
        if (!clock_is_test() && clock_real_us() - st->ticked_us >= TICK_MS * 1000) {
            tick(s);
        }
        atomic_store(&st->behind_forget, work_held(s));
        more = slots_empty_step(s);
        if (more) {
            stager_look_at_memory(s, false);
            consider_turn(s);
            thread_queue_wake(&s->historian.queue); /* calls may wait for it */
        }
        more = feed_sweep_step(s, false) || more;
        work_flush_calls(s);
        stager_checkpoint_when_long(s);
        if (stop) {
            return;
        }
    }
}

int stager_start(struct sqlite_store *s, struct err *err)
{
    struct stager *st = &s->stager;
    st->held_last = &st->held;
    int result = reader_open(&s->base, &st->reader, err);
    if (result < 0) {
        return result;
    }
    stager_look_at_disk(s);
    result = task_start(&st->queue.task, "stager", TASK_BEATS, stager_main, s, err);
    if (result < 0) {
        reader_close(st->reader);
        st->reader = NULL;
    }
    return result;
}

void stager_stop(struct sqlite_store *s)
{
    task_stop(&s->stager.queue.task);
}

void stager_free(struct sqlite_store *s)
{
    refuse_rest(s);
    reader_close(s->stager.reader);
    slots_collect_garbage(s, true);
    staged_ids_free(&s->stager.ids);
}
