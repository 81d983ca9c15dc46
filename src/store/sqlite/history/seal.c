/* Sealing: a finished month's filters are cut to the month's share of error_rate, and packed. The same plays then take
 * a third less room, and the error of the whole window comes to what was promised, not far below it.
 *
 * When. A month is finished a day after its end, once every slot that holds rows was opened after that: then none holds
 * plays that were stamped in it. Nothing depends on that but size: a play that comes later still, an event reported
 * late or an import, goes into a second part of the user's filter, at 2^32, because only a live part can be cut, and
 * only once. In sweep_window, while the clock is believed; oldest month first; not past retention, not during a load.
 *
 * How. A filter that shrinks in place leaves its page half empty. So the month gets a second table, sealed_YYYYMM, to
 * which the rows are moved in key order, each cut on its way: appended to, it has full pages, and the pages that the
 * first table leaves are used again. months.sealed_to is the cursor: users up to it are in the second table, the others
 * in the first. Readers, merges, forgets, the sweep and the check choose the table by the cursor of their own snapshot.
 * When the first table is empty it is dropped and the second takes its name.
 *
 * Each step is one transaction of one file, of a few milliseconds: rows inserted, the same rows deleted, totals,
 * cursor. So a row is in exactly one table at any time and is cut once, whatever is interrupted where; the next step,
 * after a crash or in the next night, begins at the cursor. synchronous=NORMAL is enough: a power cut takes away the
 * last transactions whole and in order, and what is left is an earlier state of the same move.
 *
 * A row whose blob can't be decoded is moved as it is: a question, a flush or a check still finds and names it.
 */
#include <inttypes.h>
#include <limits.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "filter/error_budget.h"
#include "store/ring.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    SEAL_ROWS = 512,               /* of one transaction at most ... */
    SEAL_BYTES = 1024 * 1024,      /* ... or when it has written so much */
    SEAL_US = 20 * 1000,           /* ... or when it has taken this long */
    LATE_MS = 24 * 60 * 60 * 1000, /* a play is stamped at most so long after it came */
};

/* Months before this one are finished. */
static int first_unfinished(struct sqlite_store *s, int64_t now)
{
    int64_t oldest = now;
    pthread_mutex_lock(&s->ring_mutex);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        /* An index is discarded only after this thread has flushed it. */
        const struct staged *index = s->slots[i].info.state == SLOT_EMPTYING ? NULL : atomic_load(&s->slots[i].index);
        if (index != NULL && staged_rows(index) > 0 && s->slots[i].opened_ms < oldest) {
            oldest = s->slots[i].opened_ms;
        }
    }
    pthread_mutex_unlock(&s->ring_mutex);
    return month_of_ms(oldest - LATE_MS);
}

/* The oldest month to seal, 1, or 0. One that failed waits until the later ones are done. */
static int find_month(struct sqlite_store *s, int64_t now, struct stored_month *out, struct err *err)
{
    struct historian *h = &s->historian;
    int first_kept = month_of_ms(now) - (int)config_now(s->cfg)->retention;
    int end = first_unfinished(s, now);
    struct stored_month failed = {0};
    bool found = false;
    bool found_failed = false;
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_MONTHS_ALL, err);
    int result;
    while ((result = db_step(&h->db, stmt, err)) == 1) {
        struct stored_month m;
        month_column(stmt, 6, &m);
        if (m.month < first_kept || m.month >= end || sqlite3_column_int(stmt, 1) != 0) {
            continue;
        }
        bool later = m.month > h->seal_failed;
        *(later ? out : &failed) = m; /* newest first: the last one is the oldest */
        *(later ? &found : &found_failed) = true;
    }
    if (result == 0 && !found && found_failed) {
        *out = failed;
        h->seal_failed = INT_MIN;
    }
    return result < 0 ? result : found || found_failed;
}

/* What one transaction moves. */
struct move {
    int month;
    int64_t from, last;
    int64_t rows, items, bytes; /* items and bytes: how much more (or less) they are now */
    int64_t written;
};

/* Cuts the filter into historian.blob. 1; 0: it stays as it is; or an error. */
static int cut(struct sqlite_store *s, struct slice blob, int64_t *items, struct err *err)
{
    struct historian *h = &s->historian;
    struct filter filter;
    struct err why = {0};
    arena_reset(&h->arena);
    int result = filter_decode(blob.data, blob.len, &h->arena, &filter, &why);
    if (result == ERR_CORRUPT) {
        return 0;
    }
    const struct config *live = config_now(s->cfg);
    if (result == 0 && (result = error_budget_seal(&filter, live->error_rate, live->window, &h->arena)) == 0) {
        return 0;
    }
    buf_clear(&h->blob);
    if (result < 0 || filter_encode(&filter, &h->blob) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory while sealing");
    }
    *items = (int64_t)filter_items(&filter);
    return 1;
}

static int move_row(struct sqlite_store *s, sqlite3_stmt *row, struct move *move, struct err *err)
{
    struct historian *h = &s->historian;
    struct slice blob = db_column_bytes(row, 2);
    int64_t old_items = sqlite3_column_int64(row, 1);
    int64_t items = old_items;
    struct slice old = blob;
    int result = cut(s, blob, &items, err);
    if (result < 0) {
        return result;
    }
    if (result == 1) {
        blob = slice_of(h->blob.data, h->blob.len);
    }
    move->last = sqlite3_column_int64(row, 0);
    move->rows++;
    move->items += items - old_items;
    move->bytes += (int64_t)blob.len - (int64_t)old.len;
    move->written += (int64_t)blob.len;
    sqlite3_stmt *stmt = db_stmt_for(&h->db, SQL_PLAY_PUT, move->month | DB_SEALED_TABLE, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, move->last);
        sqlite3_bind_int64(stmt, 2, items);
        sqlite3_bind_blob(stmt, 3, blob.data, (int)blob.len, SQLITE_STATIC);
    }
    return db_run(&h->db, stmt, err);
}

/* Rows from move->from on. 1: there may be more; 0: the end was reached. */
static int move_rows(struct sqlite_store *s, struct move *move, struct err *err)
{
    struct db *db = &s->historian.db;
    int64_t started = clock_work_us();
    sqlite3_stmt *rows = db_stmt_for(db, SQL_PLAY_FROM, move->month, err);
    if (rows != NULL) {
        sqlite3_bind_int64(rows, 1, move->from);
    }
    int result;
    while ((result = db_step(db, rows, err)) == 1) {
        int moved = move_row(s, rows, move, err);
        if (moved < 0 || move->rows == SEAL_ROWS || move->written >= SEAL_BYTES ||
            (move->rows % 16 == 0 && clock_work_us() - started >= SEAL_US)) {
            sqlite3_reset(rows);
            result = moved < 0 ? moved : 1;
            break;
        }
    }
    return result;
}

static int delete_moved(struct sqlite_store *s, const struct move *move, struct err *err)
{
    struct db *db = &s->historian.db;
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_PLAY_DELETE_RANGE, move->month, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, move->from);
        sqlite3_bind_int64(stmt, 2, move->last);
    }
    int result = db_run(db, stmt, err);
    if (result == 0 && sqlite3_changes64(db->handle) != move->rows) {
        result = err_set(err, ERR_CORRUPT, "%s: %" PRId64 " rows were moved, but %" PRId64 " deleted", db->path,
                         move->rows, (int64_t)sqlite3_changes64(db->handle));
    }
    return result < 0 ? result : month_count(s, move->month, 0, move->items, move->bytes, err);
}

/* The first table is about to be dropped: nothing may be left in it. */
static int need_empty(struct sqlite_store *s, int month, struct err *err)
{
    struct db *db = &s->historian.db;
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_PLAY_FROM, month, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, INT64_MIN);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        sqlite3_reset(stmt);
        char name[MONTH_TEXT];
        result = err_set(err, ERR_CORRUPT, "%s: %s has rows behind the cursor of its sealing", db->path,
                         month_name(month, name));
    }
    return result;
}

/* Inside a transaction. *ended: the month is sealed. */
static int seal_rows(struct sqlite_store *s, const struct stored_month *m, int64_t *rows, bool *ended, struct err *err)
{
    struct move move = {.month = m->month, .from = INT64_MIN};
    int result = m->sealing ? 0 : month_seal_begin(s, m->month, err);
    if (result == 0 && m->sealing && m->sealed_to < INT64_MAX) {
        move.from = m->sealed_to + 1;
    }
    int more = 0;
    if (result == 0 && !(m->sealing && m->sealed_to == INT64_MAX)) {
        result = more = move_rows(s, &move, err);
    }
    if (result >= 0 && move.rows > 0 && (result = delete_moved(s, &move, err)) == 0) {
        result = month_seal_cursor(s, m->month, move.last, err);
    }
    *rows = move.rows;
    *ended = more == 0;
    if (result < 0 || more == 1) {
        return result < 0 ? result : 0;
    }
    result = need_empty(s, m->month, err);
    return result < 0 ? result : month_seal_end(s, m->month, err);
}

static int seal_month(struct sqlite_store *s, const struct stored_month *m, struct err *err)
{
    char name[MONTH_TEXT];
    int64_t rows = 0;
    bool ended = false;
    int result = history_begin(s, err);
    if (result < 0) {
        return result;
    }
    if ((result = seal_rows(s, m, &rows, &ended, err)) < 0) {
        history_rollback(s);
        return result;
    }
    if ((result = history_commit(s, err)) < 0) {
        return result;
    }
    COUNT(s, users_sealed, rows);
    month_name(m->month, name);
    if (!m->sealing) {
        log_info("month begins to be sealed", "month=%s", name);
    }
    if (ended) {
        COUNT(s, months_sealed, 1);
        log_info("month sealed", "month=%s", name);
    }
    return 0;
}

int seal_step(struct sqlite_store *s, struct err *err)
{
    int64_t now = store_believed(s);
    if (store_clock_doubted(s) || !config_in_sweep_window(config_now(s->cfg), now) || stager_disk_is_low(s) ||
        atomic_load(&s->loading)) {
        return 0;
    }
    if (s->historian.db.lost) {
        int result = history_full(s, false, err); /* opens it again */
        if (result < 0) {
            return result;
        }
    }
    struct stored_month m = {0};
    int result = find_month(s, now, &m, err);
    if (result < 0) {
        return result;
    }
    if (result == 0) {
        GAUGE(s, sealed_ms, now);
        return 0;
    }
    if ((result = seal_month(s, &m, err)) < 0) {
        s->historian.seal_failed = m.month;
        char name[MONTH_TEXT];
        return err_prefix(err, "%s", month_name(m.month, name));
    }
    return 1;
}
