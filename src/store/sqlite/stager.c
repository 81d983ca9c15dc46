/* The stager: the one thread that writes staging.db.
 *
 * It takes everything that waits in its inbox at once and commits it as a group: insert the rows of all batches, commit
 * (with synchronous=FULL that is the fsync), put them into the open slot's index, answer each batch. So pipelined and
 * concurrent senders share commits without waiting for a timer: while one group is being fsynced the next one gathers.
 *
 * Senders that wait for their answers before they send again would take turns in two commits: while one half is being
 * fsynced, the other half gathers, and each commit's own cost is paid by half as many. So before it begins the stager
 * gives those who were answered last a moment to come back (gather()): it waits for as many events as there were
 * senders at the last commit, in it or behind it, for a third of that commit's time at most. A lone sender is never
 * waited for.
 *
 * What can go wrong. A commit that fails is an error to every batch in it, and its outcome is unknown: the connection
 * is opened anew, and the next transaction first deletes the ids it had used (they are never used again). Memory that
 * is full: batches and forgets are held back in order (senders feel it, since nobody reads on from a client whose work
 * is queued), until a slot is emptied, or nothing has been freed for a minute: then they are refused with the cause. A
 * disk with less than min_free: batches are refused, forgets go on.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/folder.h"
#include "store/sqlite/internal.h"

enum {
    TICK_MS = 200,                   /* real time between looks at the clocks */
    GROUP_ROWS_MAX = 100000,         /* rows of one commit */
    WAL_CHECKPOINT_BYTES = 16 << 20, /* of staging.db's WAL */
    WAL_STEP_BYTES = 1 << 20,        /* in which its file is extended */
    GATHER_US_MAX = 300,
    NEWEST_SAVE_MS = 10 * 60 * 1000, /* how often the newest believed time is written down */
};

/* --- one group --- */

static int insert_event(struct sqlite_store *s, const struct store_event *event, uint64_t *id, struct err *err)
{
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_INSERT, s->open, err);
    if (stmt == NULL) {
        return err->code;
    }
    sqlite3_bind_int(stmt, 2, (int)event->kind);
    db_bind_id(stmt, 3, event->user);
    sqlite3_bind_int64(stmt, 5, event->at_ms);
    const uint8_t *at = event->items;
    for (uint32_t i = 0; i < event->n; i++) {
        struct slice item;
        uint64_t hash;
        at = store_event_item(at, &item, &hash);
        sqlite3_bind_int64(stmt, 1, (int64_t)(*id)++);
        db_bind_id(stmt, 4, item);
        int result = db_run(db, stmt, err);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

/* Deletes what a commit of unknown outcome may have left. */
int stager_undo(struct sqlite_store *s, struct err *err)
{
    struct stager *st = &s->stager;
    if (st->undo_from == 0) {
        return 0;
    }
    sqlite3_stmt *stmt = db_stmt_for(&st->db, SQL_STAGED_DELETE_RANGE, st->undo_slot, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)st->undo_from);
        sqlite3_bind_int64(stmt, 2, (int64_t)st->undo_to);
    }
    int result = db_run(&st->db, stmt, err);
    return result < 0 ? result : mirror_undo(s, st->undo_from, st->undo_to, err);
}

void stager_undo_ended(struct sqlite_store *s, bool committed)
{
    if (s->stager.undo_from == 0) {
        return;
    }
    if (committed) {
        s->stager.undo_from = 0;
        mirror_committed(s, 0);
    } else {
        mirror_failed(s);
    }
}

static int write_group(struct sqlite_store *s, struct store_message *first, struct store_message *end, uint64_t *id,
                       struct err *err)
{
    struct stager *st = &s->stager;
    struct db *db = &st->db;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    result = stager_undo(s, err);
    for (struct store_message *m = first; m != end && result == 0; m = m->next) {
        struct store_batch *batch = (struct store_batch *)m;
        struct store_event event;
        size_t at = 0;
        while (result == 0 && store_batch_next(batch, &at, &event)) {
            uint64_t from = *id;
            result = insert_event(s, &event, id, err);
            if (result == 0) {
                result = mirror_add(s, &event, from, err);
            }
        }
    }
    if (result == 0) {
        result = mirror_before_commit(s, err);
    }
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    int64_t started = clock_stopwatch_us();
    result = db_commit(db, err);
    uint64_t took = (uint64_t)(clock_stopwatch_us() - started);
    st->commit_us = (int64_t)took;
    GAUGE(s, commit_us_last, took);
    buckets_note(&s->commit_us, &buckets_us, took, 1);
    buckets_note(&s->commit_rows, &buckets_rows, *id - st->next_id, 1);
    if (took > atomic_load_explicit(&s->counters.commit_us_max, memory_order_relaxed)) {
        atomic_store_explicit(&s->counters.commit_us_max, took, memory_order_relaxed);
    }
    return result;
}

enum { PREFETCH = 16 };

/* The next few events of the batch are about to be indexed. */
static void prefetch(const struct staged *index, const struct store_batch *batch, size_t at)
{
    int64_t keys[PREFETCH];
    size_t n = 0;
    struct store_event event;
    while (n < PREFETCH && store_batch_next(batch, &at, &event)) {
        keys[n++] = event.key;
    }
    staged_prefetch(index, keys, n);
}

/* Puts a committed batch into the open slot's index, up to the first row that fails: *id becomes that one's. */
static int index_batch(struct sqlite_store *s, struct store_batch *batch, uint64_t *id)
{
    struct staged *index = atomic_load_explicit(&s->slots[s->open].index, memory_order_relaxed);
    struct store_event event;
    for (size_t at = 0, done = 0;; done++) {
        if (done % PREFETCH == 0) {
            prefetch(index, batch, at);
        }
        if (!store_batch_next(batch, &at, &event)) {
            return 0;
        }
        int month = month_of_ms(event.at_ms);
        struct staged_user *user = staged_user(index, event.key, event.user);
        const uint8_t *items = event.items;
        for (uint32_t i = 0; i < event.n; i++) {
            struct slice item;
            uint64_t hash;
            items = store_event_item(items, &item, &hash);
            int result = user == NULL               ? ERR_NOMEM
                         : event.kind == STORE_PLAY ? staged_add_play(index, user, hash, month, *id)
                                                    : staged_add_delivery(index, user, item, hash, month, *id);
            if (result < 0) {
                return err_set(&batch->err, result, "out of memory: the write is not acknowledged");
            }
            ++*id;
        }
    }
}

/* The next transaction deletes these rows of the open slot, which are or may be in the file and in no index. */
void stager_undo_later(struct sqlite_store *s, uint64_t from, uint64_t end)
{
    struct stager *st = &s->stager;
    if (st->undo_from == 0) {
        st->undo_from = from;
        st->undo_slot = s->open;
    }
    st->undo_to = end;
}

/* Whether the open slot's index can hold the batch's rows: asked before the commit. */
static int check_fits(struct sqlite_store *s, struct store_batch *batch, uint64_t id)
{
    struct staged *index = atomic_load_explicit(&s->slots[s->open].index, memory_order_relaxed);
    struct store_event event;
    size_t at = 0;
    while (store_batch_next(batch, &at, &event)) {
        if (!staged_fits(index, id + batch->rows, month_of_ms(event.at_ms))) {
            return err_set(&batch->err, ERR_RANGE, "time %" PRId64 " is outside the years that can be stored",
                           event.at_ms);
        }
    }
    return 0;
}

/* Before anybody is answered, so that nobody is counted twice. */
static void count_crowd(struct stager *st, struct store_message *first, struct store_message *end)
{
    st->crowd = inbox_events(&st->inbox);
    for (struct store_message *m = first; m != end; m = m->next) {
        st->crowd += ((struct store_batch *)m)->events;
    }
}

static void gather(struct stager *st)
{
    int64_t most = st->commit_us / 3 < GATHER_US_MAX ? st->commit_us / 3 : GATHER_US_MAX;
    if (st->held == NULL && st->crowd > 1) {
        inbox_gather(&st->inbox, st->crowd, most);
    }
}

/* Not to be told to anybody whose rows are durable: without it commits are slower, no more. */
static void extend_wal(struct sqlite_store *s)
{
    struct err err = {0};
    if (!atomic_load(&s->disk_low) && db_extend_wal(&s->stager.db, WAL_STEP_BYTES, &err) < 0) {
        log_warn("WAL not extended", "error=%s", log_quote_str(err.text));
    }
}

/* Commits the batches first .. end (excluded) and answers them. */
static void commit_group(struct sqlite_store *s, struct store_message *first, struct store_message *end)
{
    struct stager *st = &s->stager;
    if (first == end) {
        return;
    }
    struct err err = {0};
    uint64_t from = st->next_id;
    uint64_t id = from;
    int result = write_group(s, first, end, &id, &err);
    st->next_id = id;
    count_crowd(st, first, end);
    if (result == 0) {
        st->undo_from = 0;
        COUNT(s, commits, 1);
        COUNT(s, rows_recorded, id - from);
        s->slots[s->open].last_id = id - 1;
    } else {
        COUNT(s, commit_errors, 1);
        if (log_again(&st->commit_log)) {
            log_error("commit failed", "file=%s failed=%" PRIu64 " error=%s", log_quote_str(st->db.path),
                      atomic_load_explicit(&s->counters.commit_errors, memory_order_relaxed), log_quote_str(err.text));
        }
        mirror_failed(s);
        stager_undo_later(s, from, id);
    }
    bool committed = result == 0;
    uint64_t indexed = from;
    for (struct store_message *m = first; m != end;) {
        struct store_batch *batch = (struct store_batch *)m;
        m = m->next;
        batch->err = err;
        if (result == 0 && (result = index_batch(s, batch, &indexed)) < 0) {
            err = batch->err; /* also of the batches behind it, whose rows go with its own */
            stager_undo_later(s, indexed, id);
        }
    }
    if (committed) {
        mirror_committed(s, indexed - 1);
        extend_wal(s);
    }
    /* All at once, so that a worker that wakes finds all of its answers. */
    for (struct store_message *m = first, *next; m != end; m = next) {
        next = m->next;
        ((struct store_batch *)m)->done((struct store_batch *)m);
    }
}

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

static void answer_error(struct store_message *m, const struct err *err)
{
    if (m->kind == STORE_BATCH) {
        struct store_batch *batch = (struct store_batch *)m;
        batch->err = *err;
        batch->done(batch);
    } else if (m->kind == STORE_FORGET) {
        struct store_forget *forget = (struct store_forget *)m;
        forget->err = *err;
        forget->done(forget);
    } else {
        struct store_call *call = (struct store_call *)m;
        call->err = *err;
        call->done(call);
    }
}

/* The state of the slots in a few words, for the cause of -BUSY. */
static void describe_block(struct sqlite_store *s, char *out, size_t out_size)
{
    out[0] = '\0';
    pthread_mutex_lock(&s->ring_mutex);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        const struct store_slot *info = &s->slots[i].info;
        if (info->error[0] != '\0') {
            snprintf(out, out_size, "; slot %d: %s", i, info->error);
            break;
        }
    }
    pthread_mutex_unlock(&s->ring_mutex);
}

static void set_memory_state(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    uint64_t limit = (uint64_t)config_now(s->cfg)->staging_memory;
    enum ring_memory before = st->memory;
    st->memory = ring_memory(&st->pressure, slots_bytes(s), limit, st->slots_freed, clock_mono_ms());
    if (st->memory == before) {
        return;
    }
    char block[STORE_ERROR_TEXT / 2];
    describe_block(s, block, sizeof block);
    pthread_mutex_lock(&s->ring_mutex);
    s->busy = st->memory == RING_REFUSE;
    snprintf(s->busy_cause, sizeof s->busy_cause,
             s->busy ? "staging memory (%" PRIu64 " MiB) is full and nothing was freed for %d s%s" : "", limit >> 20,
             RING_FULL_PATIENCE_MS / 1000, block);
    pthread_mutex_unlock(&s->ring_mutex);
    if (st->memory == RING_ROOM) {
        log_info("staging memory has room again", "limit=%" PRIu64, limit);
    } else {
        log_warn(st->memory == RING_FULL ? "staging memory is full, writes wait"
                                         : "staging memory is full, writes are refused",
                 "limit=%" PRIu64 "%s%s", limit, block[0] != '\0' ? " cause=" : "",
                 block[0] != '\0' ? log_quote_str(block + 2) : "");
    }
}

int stager_disk_room(struct sqlite_store *s, struct err *err)
{
    if (!atomic_load(&s->disk_low)) {
        return 0;
    }
    return err_set(err, ERR_FULL, "less than min_free (%" PRId64 " MiB) is left on the disk of %s",
                   config_now(s->cfg)->min_free >> 20, s->folder);
}

/* Whether the batch may be written now. 0: yes, 1: it must wait, or an error that refuses it. */
static int admit(struct sqlite_store *s, struct store_batch *batch, uint64_t rows_before)
{
    if (stager_disk_room(s, &batch->err) < 0) {
        COUNT(s, full_refusals, 1);
        return batch->err.code;
    }
    if (s->stager.memory == RING_REFUSE) {
        COUNT(s, busy_refusals, 1);
        return err_set(&batch->err, ERR_BUSY, "%s", s->busy_cause);
    }
    if (s->stager.memory == RING_FULL) {
        return 1;
    }
    return check_fits(s, batch, s->stager.next_id + rows_before);
}

/* --- the turn --- */

static void consider_turn(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    const struct staged *index = atomic_load_explicit(&s->slots[s->open].index, memory_order_relaxed);
    int64_t now = clock_mono_ms();
    enum ring_due due = ring_due(now - st->opened_mono_ms, s->cfg->slot_length_ms, staged_taken(index),
                                 staged_bytes(index), (uint64_t)config_now(s->cfg)->staging_memory);
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
        s->next_turn_ms = clock_wall_ms() + s->cfg->slot_length_ms;
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

/* Writes what is held, in order, as far as memory and disk allow. */
static void work_held(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    while (st->held != NULL) {
        beat_now(&st->inbox.beat);
        set_memory_state(s);
        struct store_message *group = NULL;
        struct store_message **last = &group;
        uint64_t rows = 0;
        int verdict = 0;
        while (st->held != NULL && st->held->kind == STORE_BATCH && rows < GROUP_ROWS_MAX) {
            struct store_batch *batch = (struct store_batch *)st->held;
            verdict = admit(s, batch, rows);
            if (verdict != 0) {
                break;
            }
            rows += batch->rows;
            *last = unhold(st);
            (*last)->next = NULL;
            last = &(*last)->next;
        }
        commit_group(s, group, NULL);
        consider_turn(s);
        if (verdict < 0) {
            struct store_batch *batch = (struct store_batch *)unhold(st);
            batch->done(batch);
        } else if (verdict > 0) {
            return;
        } else if (st->held != NULL && st->held->kind == STORE_FORGET) {
            if (stager_forget_waits(s, (struct store_forget *)st->held)) {
                return;
            }
            stager_forget(s, (struct store_forget *)unhold(st));
        }
    }
}

/* --- clocks and disk --- */

static void publish_guard(struct sqlite_store *s)
{
    const struct guard *g = &s->stager.guard;
    atomic_store(&s->clock_offset, g->offset);
    atomic_store(&s->clock_doubted, g->doubted);
    pthread_mutex_lock(&s->ring_mutex);
    snprintf(s->clock_reason, sizeof s->clock_reason, "%s", g->reason);
    pthread_mutex_unlock(&s->ring_mutex);
}

int stager_persist_clock(struct sqlite_store *s, struct err *err)
{
    struct stager *st = &s->stager;
    if (st->guard.newest == st->newest_saved_ms) {
        return 0;
    }
    int result = db_begin(&st->db, err);
    if (result < 0) {
        return result;
    }
    if ((result = db_meta_set_int(&st->db, "newest_ms", st->guard.newest, err)) < 0) {
        db_rollback(&st->db);
        return result;
    }
    result = db_commit(&st->db, err);
    if (result == 0) {
        st->newest_saved_ms = st->guard.newest;
    }
    return result;
}

static void look_at_clock(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    int64_t wall;
    int64_t mono;
    clock_both_ms(&wall, &mono);
    if (guard_observe(&st->guard, 0, wall, mono)) {
        if (st->guard.doubted) {
            log_warn("clock doubted, nothing is swept", "reason=%s", log_quote_str(st->guard.reason));
        } else {
            log_info("clock believed again", "");
        }
    }
    publish_guard(s);
    /* It goes back only when it was found to be wrong: then the wrong one must not be met again at the next start. */
    if (st->guard.newest - st->newest_saved_ms >= NEWEST_SAVE_MS || st->guard.newest < st->newest_saved_ms) {
        struct err err = {0};
        if (stager_persist_clock(s, &err) < 0) {
            log_error("newest time not saved", "error=%s", log_quote_str(err.text));
            st->newest_saved_ms = st->guard.newest; /* not again at every tick */
        }
    }
}

static void look_at_disk(struct sqlite_store *s)
{
    int64_t free_bytes = folder_free_bytes(s->folder);
    int64_t min_free = config_now(s->cfg)->min_free;
    bool low = free_bytes >= 0 && free_bytes < min_free;
    if (low != atomic_load(&s->disk_low)) {
        atomic_store(&s->disk_low, low);
        if (low) {
            log_error("disk nearly full, plays are refused", "free=%" PRId64 " min_free=%" PRId64, free_bytes,
                      min_free);
        } else {
            log_info("disk has room again", "free=%" PRId64, free_bytes);
        }
    }
}

static void checkpoint_when_long(struct sqlite_store *s)
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
    s->stager.ticked_us = clock_stopwatch_us();
    look_at_clock(s);
    look_at_disk(s);
    set_memory_state(s);
    consider_turn(s);
    slots_retry_emptying(s, false);
    slots_collect_garbage(s, false);
    mirror_empty_step(s, true);
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
            answer_error(m, &err);
        } else {
            m->what = turned > 0 ? WANTS_FLUSH : WANTS_ROOM;
            inbox_put(&s->historian.inbox, m);
        }
    }
}

static void take_call(struct sqlite_store *s, struct store_message *m)
{
    if (m->what == WANTS_TICK) {
        tick(s);
        inbox_put(&s->historian.inbox, m);
        return;
    }
    if (m->what == WANTS_NOTES) {
        notes_work(s, m);
        return;
    }
    if (m->what == WANTS_MIRROR) {
        mirror_work(s, m);
        return;
    }
    if (m->what == WANTS_SESSIONS) {
        kept_work(s, m);
        return;
    }
    if (m->what == WANTS_JOIN) {
        join_pass(s, m);
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
    for (struct store_message *m = inbox_take(&s->stager.inbox); m != NULL; m = next) {
        next = m->next;
        if (m->kind == STORE_CALL) {
            take_call(s, m);
        } else {
            hold(&s->stager, m);
        }
    }
}

/* Whatever is still queued when the store closes was not written. */
static void refuse_rest(struct sqlite_store *s)
{
    struct stager *st = &s->stager;
    struct err err = {0};
    err_set(&err, ERR_CLOSED, "the store is closing");
    struct store_message *m;
    while ((m = unhold(st)) != NULL) {
        answer_error(m, &err);
    }
    while ((m = st->flush_calls) != NULL) {
        st->flush_calls = m->next;
        answer_error(m, &err);
    }
    struct store_message *next;
    for (m = inbox_take(&st->inbox); m != NULL; m = next) {
        next = m->next;
        answer_error(m, &err);
    }
}

static void *stager_main(void *arg)
{
    struct sqlite_store *s = arg;
    struct stager *st = &s->stager;
    bool more = false;
    beat_begin(&st->inbox.beat, "stager");
    for (;;) {
        bool stop = more ? inbox_stopped(&st->inbox) : inbox_wait(&st->inbox, TICK_MS);
        gather(st);
        take_messages(s);
        if (!clock_is_test() && clock_stopwatch_us() - st->ticked_us >= TICK_MS * 1000) {
            tick(s);
        }
        work_held(s);
        more = slots_empty_step(s);
        if (more) {
            set_memory_state(s);
            consider_turn(s);
            inbox_wake(&s->historian.inbox); /* calls may wait for it */
        }
        more = mirror_empty_step(s, false) || more;
        work_flush_calls(s);
        checkpoint_when_long(s);
        if (stop) {
            beat_end(&st->inbox.beat);
            return NULL;
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
    look_at_disk(s);
    int rc = pthread_create(&st->thread, NULL, stager_main, s);
    if (rc != 0) {
        reader_close(st->reader);
        return err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(rc));
    }
    return 0;
}

void stager_stop(struct sqlite_store *s)
{
    inbox_stop(&s->stager.inbox);
    pthread_join(s->stager.thread, NULL);
}

void stager_free(struct sqlite_store *s)
{
    refuse_rest(s);
    reader_close(s->stager.reader);
    slots_collect_garbage(s, true);
    staged_ids_free(&s->stager.ids);
}
