/* The historian's connection: transactions, the barrier, and the WAL. On the historian's thread, or before it starts.
 *
 * The WAL is checkpointed by the thread that writes it (SQLite 3.7.0 to 3.51.2 can corrupt a WAL when a checkpoint in
 * one connection overlaps a commit in another). At wal_limit a reader's snapshot may keep it from shrinking: then
 * nothing but forgets may write.
 *
 * After a commit of unknown outcome the connection is reopened, and the commit counts as lost: everything not yet
 * behind a barrier is merged again.
 */
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

/* What a checkpoint moves, when no reader is in its way. The disk takes it in one burst, and the stager's fsync waits
 * behind it (docs/scale.md), so it is as small as the disk allows: where the two fsyncs of a checkpoint take longer
 * than the work between two, it grows. */
enum {
    CHECKPOINT_LEAST = 1024 * 1024,
    CHECKPOINT_MOST = 8 * 1024 * 1024,
};

int history_recount(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    /* The first two hold next to nothing. Of the third, which may be large, only whether there are any counts. */
    static const char *const counts[] = {"SELECT count(*) FROM quarantine WHERE accepted IS NULL",
                                         "SELECT count(*) FROM shared_keys",
                                         "SELECT EXISTS (SELECT 1 FROM exceptions)"};
    _Atomic uint64_t *gauges[] = {&s->counters.quarantined, &s->counters.shared_keys, &s->exceptions};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t n = 0;
        int result = db_int(&h->db, counts[i], &n, err);
        if (result < 0) {
            return result;
        }
        atomic_store(gauges[i], (uint64_t)n);
    }
    return 0;
}

/* After something was deleted, or not written after all. What can't be counted stays too high, which costs questions a
 * read and hides nothing. A connection that is lost may be in the middle of a transaction: it is counted when it is
 * opened again. */
void history_recount_lower(struct sqlite_store *s)
{
    struct err ignored = {0};
    if (!s->historian.db.lost) {
        history_recount(s, &ignored);
    }
}

/* A commit that was lost may have deleted what is there again: without the counts nothing may be read or written. */
int history_reopen(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    if (!h->db.lost) {
        return 0;
    }
    h->months_known = false;
    int result = db_reopen(&h->db, err);
    if (result == 0 && (result = history_recount(s, err)) < 0) {
        h->db.lost = true;
    }
    return result;
}

int history_begin(struct sqlite_store *s, struct err *err)
{
    int result = history_reopen(s, err);
    return result < 0 ? result : db_begin(&s->historian.db, err);
}

void history_rollback(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    db_rollback(&h->db);
    h->n_deltas = 0;
    h->marked = 0;
    h->months_known = false;
    history_recount_lower(s);
}

int history_commit(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    int result = month_write_counts(s, err);
    if (result < 0) {
        history_rollback(s);
        return result;
    }
    result = db_commit(&h->db, err);
    if (result < 0) {
        h->months_known = false;
        h->losses++;
    } else if (h->marked > 0) {
        atomic_store(&s->flushes_durable, h->marked);
    }
    h->marked = 0;
    atomic_store_explicit(&s->counters.history_wal_bytes, (uint64_t)h->db.wal_bytes, memory_order_relaxed);
    return result;
}

int history_full(struct sqlite_store *s, bool full, struct err *err)
{
    int result = history_reopen(s, err);
    return result < 0 ? result : db_pragma(&s->historian.db, "synchronous", full ? 2 : 1, err);
}

void history_met(struct sqlite_store *s, uint64_t row_id)
{
    struct historian *h = &s->historian;
    h->met = (int64_t)row_id > h->met ? (int64_t)row_id : h->met;
}

void history_settle(struct sqlite_store *s, uint64_t forget)
{
    struct historian *h = &s->historian;
    h->settled = (int64_t)forget > h->settled ? (int64_t)forget : h->settled;
}

int history_mark(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    int64_t flushes = 0;
    int result = db_meta_count(&h->db, "flushes", &flushes, err);
    if (result < 0 || (result = db_meta_set_int(&h->db, "flushes", flushes + 1, err)) < 0) {
        return result;
    }
    h->marked = flushes + 1;
    result = h->settled > 0 ? db_meta_raise(&h->db, "forgets", h->settled, err) : 0;
    return result == 0 && h->met > 0 ? db_meta_raise(&h->db, "high_water", h->met, err) : result;
}

int history_barrier(struct sqlite_store *s, struct err *err)
{
    struct historian *h = &s->historian;
    if (h->db.lost) {
        return err_set(err, ERR_IO, "%s: a commit failed before the barrier", h->db.path);
    }
    int result = history_full(s, true, err);
    if (result == 0 && (result = history_begin(s, err)) == 0) {
        result = history_mark(s, err);
        if (result == 0) {
            result = db_meta_set_int(&h->db, "retention", config_now(s->cfg)->retention, err); /* for the views */
        }
        if (result == 0) {
            result = history_commit(s, err);
        } else {
            history_rollback(s);
        }
    }
    struct err normal = {0};
    if (!h->db.lost && history_full(s, false, &normal) < 0) {
        log_warn("could not go back to synchronous=NORMAL", "error=%s", log_quote_str(normal.text));
    }
    return result;
}

/* --- the WAL --- */

static void checkpoint(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    struct err err = {0};
    int64_t began = clock_real_us();
    if (db_checkpoint(&h->db, SQLITE_CHECKPOINT_RESTART, &err) < 0) {
        h->losses++;
        log_error("checkpoint failed", "error=%s", log_quote_str(err.text));
    }
    int64_t worked = began - h->checkpointed_us;
    h->checkpointed_us = clock_real_us();
    if (h->checkpointed_us - began > worked && h->checkpoint_bytes < CHECKPOINT_MOST) {
        h->checkpoint_bytes *= 2;
    } else if (h->checkpointed_us - began < worked / 4 && h->checkpoint_bytes > CHECKPOINT_LEAST) {
        h->checkpoint_bytes /= 2;
    }
    h->checkpointed_bytes = h->db.wal_bytes;
    atomic_store_explicit(&s->counters.history_wal_bytes, (uint64_t)h->db.wal_bytes, memory_order_relaxed);
}

/* Checkpoints a WAL that has grown. Returns false when it is at its limit and can't shrink. */
static bool wal_has_room(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    int64_t wal_limit = config_now(s->cfg)->wal_limit;
    int64_t limit = wal_limit - wal_limit / 8; /* room for a transaction that was begun below it */
    int64_t least = limit / 4;
    if (h->checkpoint_bytes == 0) {
        h->checkpoint_bytes = CHECKPOINT_LEAST;
    }
    if (least > h->checkpoint_bytes && !atomic_load(&s->loading)) {
        least = h->checkpoint_bytes; /* during a load no client waits for an answer */
    }
    /* After a partial checkpoint, wait until the WAL has grown again: until then the same reader is in the way. */
    int64_t next = h->checkpointed_bytes == 0 ? least : h->checkpointed_bytes + limit / 16;
    if (h->db.lost || (h->db.wal_bytes < next && h->db.wal_bytes < limit)) {
        return true;
    }
    checkpoint(s);
    return h->db.wal_bytes < limit;
}

/* Whether background work may write. Logs when a pause begins and ends. */
bool history_may_write(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    bool room = wal_has_room(s);
    if (!room && !h->paused) {
        COUNT(s, wal_pauses, 1);
        char cause[STORE_ERROR_TEXT];
        blocked_by_reader(s, cause, sizeof cause);
        log_warn("history WAL at its limit, flush, sweep and sealing pause",
                 "bytes=%" PRId64 " limit=%" PRId64 " cause=%s", h->db.wal_bytes, config_now(s->cfg)->wal_limit,
                 log_quote_str(cause));
    } else if (room && h->paused) {
        log_info("history WAL has room again", "bytes=%" PRId64, h->db.wal_bytes);
    }
    h->paused = !room;
    atomic_store(&s->wal_full, !room);
    return room;
}
