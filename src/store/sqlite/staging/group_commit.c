/* The stager's group commit: insert the rows of all batches, commit (with synchronous=FULL that is the fsync), put them
 * into the open slot's index, answer each batch.
 *
 * Senders that wait for their answers before they send again would take turns in two commits: while one half is being
 * fsynced, the other half gathers, and each commit's own cost is paid by half as many. So before it begins the stager
 * gives those who were answered last a moment to come back (stager_gather()): it waits for as many events as there were
 * senders at the last commit, in it or behind it, for a third of that commit's time at most. A lone sender is never
 * waited for.
 *
 * What can go wrong. A commit that fails is an error to every batch in it, and its outcome is unknown: the connection
 * is opened again, and the next transaction first deletes the ids it had used (they are never used again).
 */
#include <inttypes.h>
#include <string.h>

#include "base/background.h"
#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    WAL_STEP_BYTES = 1 << 20, /* in which staging.db's WAL is extended */
    GATHER_US_MAX = 300,
};

static int insert_row(struct sqlite_store *s, sqlite3_stmt *stmt, const struct store_event *event,
                      const struct store_item *item, uint64_t id, struct err *err)
{
    char text[GROUPED_MAX];
    const bool grouped = item->group != 0;
    sqlite3_bind_int64(stmt, 1, (int64_t)id);
    sqlite3_bind_int(stmt, 2, grouped ? GROUPED_KIND : (int)event->kind);
    db_bind_id(stmt, 3, event->user);
    db_bind_id(stmt, 4, grouped ? grouped_write(item->group, item->id, text) : item->id);
    sqlite3_bind_int64(stmt, 5, event->at_ms);
    return db_run(&s->stager.db, stmt, err);
}

static int insert_event(struct sqlite_store *s, const struct store_event *event, uint64_t rows_a_part, uint64_t *id,
                        struct err *err)
{
    struct slot_parts *parts = &s->slots[s->open].parts;
    sqlite3_stmt *stmt = NULL;
    int into = -1;
    const uint8_t *at = event->items;
    for (uint32_t i = 0; i < event->n; i++) {
        struct store_item item;
        at = store_event_item(event, at, &item);
        int part = parts_take(parts, *id, rows_a_part);
        if (part != into) {
            stmt = db_stmt_for(&s->stager.db, SQL_STAGED_INSERT, slot_table(s->open, part), err);
            into = part;
        }
        int result = stmt == NULL ? err->code : insert_row(s, stmt, event, &item, (*id)++, err);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

int stager_note_flushes(struct sqlite_store *s, struct err *err)
{
    int64_t flushes = atomic_load(&s->flushes_durable);
    return flushes > 0 ? db_meta_raise(&s->stager.db, "flushes", flushes, err) : 0;
}

void stager_note_end(struct sqlite_store *s)
{
    struct err err = {0};
    struct db *db = &s->stager.db;
    int64_t migration_state = 0;
    int result = db->lost ? db_reopen(db, &err) : 0;
    if (result < 0 || (result = db_meta_count(db, "flushes", &migration_state, &err)) < 0 ||
        migration_state >= atomic_load(&s->flushes_durable)) {
        return;
    }
    if ((result = db_begin(db, &err)) == 0) {
        if ((result = stager_note_flushes(s, &err)) < 0) {
            db_rollback(db);
        } else {
            result = db_commit(db, &err);
        }
    }
    if (result < 0) {
        log_warn("number of flushes not saved", "error=%s", log_quote_str(err.text));
    }
}

int stager_undo(struct sqlite_store *s, struct err *err)
{
    struct stager *st = &s->stager;
    int migration_state = stager_note_flushes(s, err);
    if (migration_state < 0 || st->undo_from == 0) {
        return migration_state;
    }
    int result =
        parts_delete_range(&st->db, st->undo_slot, &s->slots[st->undo_slot].parts, st->undo_from, st->undo_to, err);
    if (result == 0) { /* their ids are used */
        result = db_meta_raise(&st->db, "high_water", (int64_t)st->next_id - 1, err);
    }
    if (result == 0) {
        result = positions_undo(s, err);
    }
    if (result == 0 && st->undo_forgets) {
        result = forgets_undo(s, st->undo_from, err);
    }
    if (result == 0 && st->undo_merges) {
        result = merges_undo(s, err);
    }
    return result < 0 ? result : feed_undo(s, st->undo_from, st->undo_to, err);
}

void stager_undo_ended(struct sqlite_store *s, bool committed)
{
    if (s->stager.undo_from == 0) {
        return;
    }
    if (committed) {
        s->stager.undo_from = 0;
        feed_committed(s, 0);
    } else {
        feed_failed(s);
    }
}

/* A replica's own positions are its own, but those that say which of its primary's events these are: a replica that
 * followed that one goes on here by them. */
static bool travels(struct slice source)
{
    static const char *const own[] = {"merge:", "clone:", "promoted:", "peer:"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        size_t n = strlen(own[i]);
        if (source.len >= n && memcmp(source.data, own[i], n) == 0) {
            return false;
        }
    }
    return true;
}

static int feed_offsets(struct sqlite_store *s, struct store_batch *batch, uint64_t *id, struct err *err)
{
    int result = 0;
    batch->offset_ids = 0;
    for (size_t i = 0; i < batch->n_positions && result == 0 && feed_takes(s); i++) {
        if (travels(batch->positions[i].source)) {
            result = feed_add_offset(s, &batch->positions[i], (*id)++, err);
            batch->offset_ids++;
        }
    }
    return result;
}

int stager_write_batch(struct sqlite_store *s, struct store_batch *batch, uint64_t *id, struct err *err)
{
    uint64_t rows_a_part = parts_rows(config_now(s->cfg)->staging_memory);
    struct store_event event;
    size_t at = 0;
    int result = 0;
    while (result == 0 && store_batch_next(batch, &at, &event)) {
        uint64_t from = *id;
        result = insert_event(s, &event, rows_a_part, id, err);
        if (result == 0) {
            result = feed_add(s, &event, from, err);
        }
    }
    return result;
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
        result = stager_write_batch(s, batch, id, err);
        result = result < 0 ? result : positions_write(s, batch, err);
        result = result < 0 ? result : feed_offsets(s, batch, id, err);
    }
    if (result == 0) {
        result = feed_before_commit(s, err);
    }
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    int64_t started = clock_figures_us();
    result = db_commit(db, err);
    uint64_t took = (uint64_t)(clock_figures_us() - started);
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
    for (int step = 0; step < STAGED_STEPS; step++) {
        for (size_t i = 0; i < n; i++) {
            staged_prefetch(index, keys[i], step);
        }
    }
}

int stager_index_batch(struct sqlite_store *s, struct store_batch *batch, uint64_t *id)
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
        if (event.n == 0) {
            continue; /* its user may be one who was forgotten */
        }
        int month = month_of_ms(event.at_ms);
        struct staged_user *user = staged_user(index, event.key, event.user);
        const uint8_t *items = event.items;
        for (uint32_t i = 0; i < event.n; i++) {
            struct store_item item;
            items = store_event_item(&event, items, &item);
            int result = user == NULL               ? ERR_NOMEM
                         : event.kind == STORE_PLAY ? staged_add_play(index, user, item.hash, month, *id)
                                                    : staged_add_delivery(index, user, &item, event.at_ms, *id);
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
        st->undo_forgets = st->undo_merges = false;
    }
    st->undo_to = end;
}

/* Before any client is answered, so that no user is counted twice. */
static void count_senders(struct stager *st, struct store_message *first, struct store_message *end)
{
    st->senders = thread_queue_events(&st->queue);
    for (struct store_message *m = first; m != end; m = m->next) {
        st->senders += ((struct store_batch *)m)->events;
    }
}

void stager_note_commit(struct sqlite_store *s, const struct err *err)
{
    bool before = s->commit_failed.code != 0; /* this thread alone changes it: it needs no lock to look */
    if (err->code == ERR_NOMEM || (!before && err->code == 0)) {
        return;
    }
    pthread_mutex_lock(&s->ring_mutex);
    s->commit_failed = *err;
    pthread_mutex_unlock(&s->ring_mutex);
    if (before && err->code == 0) {
        log_info("commits succeed again", "file=%s", log_quote_str(s->stager.db.path));
    }
}

void stager_gather(struct stager *st)
{
    int64_t most = st->commit_us / 3 < GATHER_US_MAX ? st->commit_us / 3 : GATHER_US_MAX;
    if (st->held == NULL && st->senders > 1) {
        thread_queue_gather(&st->queue, st->senders, most);
    }
}

/* Not to be told to a client whose rows are durable: without it commits are slower, no more. */
static void extend_wal(struct sqlite_store *s)
{
    struct err err = {0};
    if (!stager_disk_is_low(s) && db_extend_wal(&s->stager.db, WAL_STEP_BYTES, &err) < 0) {
        log_warn("WAL not extended", "error=%s", log_quote_str(err.text));
    }
}

/* As its senders are. */
static void be_patient(struct stager *st, const struct store_message *first, const struct store_message *end)
{
    bool patient = true;
    for (const struct store_message *m = first; m != end && patient; m = m->next) {
        patient = ((const struct store_batch *)m)->patient;
    }
    if (patient != st->patient) {
        st->patient = patient;
        (void)background_slice(patient ? BACKGROUND_SLICE_LONG_MS : 0); /* refused: others wait a little longer */
    }
}

static uint64_t rows_of(const struct store_message *first, const struct store_message *end)
{
    uint64_t rows = 0;
    for (const struct store_message *m = first; m != end; m = m->next) {
        rows += ((const struct store_batch *)m)->rows;
    }
    return rows;
}

void stager_commit(struct sqlite_store *s, struct store_message *first, struct store_message *end)
{
    struct stager *st = &s->stager;
    if (first == end) {
        return;
    }
    be_patient(st, first, end);
    slots_make_room(s, rows_of(first, end));
    struct err err = {0};
    uint64_t from = st->next_id;
    uint64_t id = from;
    int result = write_group(s, first, end, &id, &err);
    st->next_id = id;
    count_senders(st, first, end);
    stager_note_commit(s, &err);
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
        feed_failed(s);
        stager_undo_later(s, from, id);
    }
    bool committed = result == 0;
    uint64_t indexed = from;
    for (struct store_message *m = first; m != end;) {
        struct store_batch *batch = (struct store_batch *)m;
        m = m->next;
        batch->err = err;
        if (result == 0 && (result = stager_index_batch(s, batch, &indexed)) < 0) {
            err = batch->err; /* also of the batches behind it, whose rows go with its own */
            stager_undo_later(s, indexed, id);
        }
        if (result == 0) {
            position_set_move(s->positions, batch);
            indexed += batch->offset_ids;
            batch->seq = indexed - 1;
        }
    }
    if (committed) {
        feed_committed(s, indexed - 1);
        extend_wal(s);
    }
    /* All at once, so that a worker that wakes finds all of its answers. */
    for (struct store_message *m = first, *next; m != end; m = next) {
        next = m->next;
        ((struct store_batch *)m)->done((struct store_batch *)m);
    }
}
