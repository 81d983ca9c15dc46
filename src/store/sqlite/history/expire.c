/* Expiry. user_key is uniform, so a month's rows need no time of their own: in the UTC month after retention ends, each
 * night deletes by primary key from the durable cursor months.swept_to up to the share of that month that has passed,
 * and to the end once it is over; then the table is dropped. So a night's work is even, sequential on disk, and a
 * missed night is made up by the next.
 *
 * Users of a range whose last month is no later than the swept one are deleted with its rows, and so are their
 * deliveries and exceptions.
 *
 * Nothing happens while the clock is doubted, or outside sweep_window.
 */
#include <inttypes.h>
#include <limits.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    SWEEP_ROWS = 1000,              /* of one transaction */
    SWEEP_PACE_MS = 10 * 60 * 1000, /* the target moves in steps of this, so that each has something to do */
};

/* Retention may change while the server runs; one step goes by one. */
static int first_kept_at(int retention, int64_t now)
{
    return month_of_ms(now) - retention;
}

int sweep_first_kept(struct sqlite_store *s)
{
    int64_t later;
    int64_t earlier;
    store_now(&s->base, &later, &earlier);
    return store_clock_doubted(s) ? INT_MIN : first_kept_at((int)config_now(s->cfg)->retention, earlier);
}

/* The key up to which a month that ended its retention should be swept by now. */
static int64_t target_key(int retention, int month, int64_t now)
{
    int sweeping = month + retention + 1; /* the month in which it is swept */
    if (month_of_ms(now) > sweeping) {
        return INT64_MAX;
    }
    int64_t begin = month_start_ms(sweeping);
    int64_t elapsed = (now - begin) / SWEEP_PACE_MS * SWEEP_PACE_MS;
    double share = (double)elapsed / (double)(month_start_ms(sweeping + 1) - begin);
    return (int64_t)((uint64_t)(share * 18446744073709549568.0) - (UINT64_C(1) << 63));
}

struct expiring {
    struct stored_month month;
    bool started;
    int64_t swept_to;
};

/* The oldest month that has something to sweep: 1, or 0. */
static int find_month(struct sqlite_store *s, int retention, int64_t now, struct expiring *out, struct err *err)
{
    int first_kept = first_kept_at(retention, now);
    struct db *db = &s->historian.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTHS_ALL, err);
    int found = 0;
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct expiring m = {.started = sqlite3_column_type(stmt, 5) != SQLITE_NULL,
                             .swept_to = sqlite3_column_int64(stmt, 5)};
        month_column(stmt, 6, &m.month);
        if (m.month.month >= first_kept) {
            continue;
        }
        int64_t target = target_key(retention, m.month.month, now);
        if (!m.started || m.swept_to < target || m.swept_to == INT64_MAX) {
            *out = m; /* newest first: the last one is the oldest */
            found = 1;
        }
    }
    return result < 0 ? result : found;
}

static int run_range(struct sqlite_store *s, sqlite3_stmt *stmt, int64_t from, int64_t to, int third, struct err *err)
{
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, from);
        sqlite3_bind_int64(stmt, 2, to);
        if (third != INT_MIN) {
            sqlite3_bind_int(stmt, 3, third);
        }
    }
    return db_run(&s->historian.db, stmt, err);
}

struct chunk {
    int64_t last;
    int64_t rows, items, bytes;
};

/* The next rows from a key on: where a chunk of them ends. */
static int measure(struct sqlite_store *s, sqlite3_stmt *stmt, int64_t from, int64_t to, struct chunk *out,
                   struct err *err)
{
    struct db *db = &s->historian.db;
    *out = (struct chunk){.last = to};
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, from);
        sqlite3_bind_int64(stmt, 2, to);
        sqlite3_bind_int(stmt, 3, SWEEP_ROWS);
    }
    int result = db_step(db, stmt, err);
    if (result != 1) {
        return result;
    }
    out->rows = sqlite3_column_int64(stmt, 1);
    if (out->rows == SWEEP_ROWS) {
        out->last = sqlite3_column_int64(stmt, 0);
    }
    if (sqlite3_column_count(stmt) > 2) {
        out->items = sqlite3_column_int64(stmt, 2);
        out->bytes = sqlite3_column_int64(stmt, 3);
    }
    sqlite3_reset(stmt);
    return 0;
}

/* Deletes the month's rows in from .. to, or as many as one transaction takes; *to becomes where it ended. When the
 * month's sealing was interrupted by its expiry, the part that was sealed ends first: each range has one table. */
static int sweep_range(struct sqlite_store *s, const struct stored_month *m, int64_t from, int64_t *to, struct err *err)
{
    struct db *db = &s->historian.db;
    int month = m->month;
    int table = month_table(m, from);
    if (table != month && *to > m->sealed_to) {
        *to = m->sealed_to;
    }
    struct chunk plays;
    struct chunk users;
    int result = measure(s, db_stmt_for(db, SQL_PLAY_CHUNK, table, err), from, *to, &plays, err);
    if (result < 0 ||
        (result = measure(s, db_stmt(db, SQL_USERS_STALE_CHUNK, err), from, plays.last, &users, err)) < 0) {
        return result;
    }
    if (users.last < plays.last) {
        /* More users than plays here: end with them, and measure what is really deleted. */
        if ((result = measure(s, db_stmt_for(db, SQL_PLAY_CHUNK, table, err), from, users.last, &plays, err)) < 0) {
            return result;
        }
        plays.last = plays.last < users.last ? plays.last : users.last;
    }
    *to = plays.last;
    if ((result = run_range(s, db_stmt_for(db, SQL_PLAY_DELETE_RANGE, table, err), from, *to, INT_MIN, err)) < 0 ||
        (result = run_range(s, db_stmt(db, SQL_USERS_DELETE_STALE, err), from, *to, month, err)) < 0) {
        return result;
    }
    if (sqlite3_changes(db->handle) > 0) {
        static const enum sql_statement orphans[] = {SQL_DELIVERED_DELETE_ORPHANS, SQL_EXCEPTIONS_DELETE_ORPHANS,
                                                     SQL_SHARED_DELETE_ORPHANS, SQL_QUARANTINE_DELETE_ORPHANS};
        for (size_t i = 0; i < sizeof orphans / sizeof *orphans; i++) {
            if ((result = run_range(s, db_stmt(db, orphans[i], err), from, *to, INT_MIN, err)) < 0) {
                return result;
            }
        }
    }
    COUNT(s, rows_swept, plays.rows);
    return month_count(s, month, -plays.rows, -plays.items, -plays.bytes, err);
}

static int set_cursor(struct sqlite_store *s, int month, int64_t swept_to, struct err *err)
{
    struct db *db = &s->historian.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTH_SWEPT, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, month);
        sqlite3_bind_int64(stmt, 2, swept_to);
    }
    return db_run(db, stmt, err);
}

/* Inside a transaction. */
static int sweep_month(struct sqlite_store *s, const struct expiring *m, int retention, int64_t now, struct err *err)
{
    int month = m->month.month;
    if (m->started && m->swept_to == INT64_MAX) {
        COUNT(s, months_dropped, 1);
        char name[MONTH_TEXT];
        log_info("month dropped", "month=%s", month_name(month, name));
        return month_drop(s, month, err);
    }
    int64_t from = m->started ? m->swept_to + 1 : INT64_MIN;
    int64_t to = target_key(retention, month, now);
    if (!m->started) {
        char name[MONTH_TEXT];
        log_info("month begins to expire", "month=%s", month_name(month, name));
    }
    int result = sweep_range(s, &m->month, from, &to, err);
    return result < 0 ? result : set_cursor(s, month, to, err);
}

/* Months that came back into retention, which is longer now, lose their cursor. A transaction of its own. */
static int revive_months(struct sqlite_store *s, int first_kept, struct err *err)
{
    struct db *db = &s->historian.db;
    if (s->historian.revived == first_kept) {
        return 0;
    }
    int result = history_begin(s, err);
    if (result < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTHS_REVIVE, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, first_kept);
    }
    if ((result = db_run(db, stmt, err)) < 0) {
        history_rollback(s);
        return result;
    }
    if ((result = history_commit(s, err)) == 0) {
        s->historian.revived = first_kept;
    }
    return result;
}

int sweep_step(struct sqlite_store *s, struct err *err)
{
    int64_t later;
    int64_t now; /* what is past retention goes by it */
    store_now(&s->base, &later, &now);
    int64_t clock = store_believed(s);
    const struct config *live = config_now(s->cfg);
    if (store_clock_doubted(s) || !config_in_sweep_window(live, clock)) {
        return 0;
    }
    int retention = (int)live->retention;
    struct expiring m = {0};
    if (s->historian.db.lost) {
        int result = history_full(s, false, err); /* opens it again */
        if (result < 0) {
            return result;
        }
    }
    int result = revive_months(s, first_kept_at(retention, now), err);
    if (result < 0 || (result = find_month(s, retention, now, &m, err)) < 0) {
        return result;
    }
    if (result == 0) {
        GAUGE(s, swept_ms, clock);
        return 0;
    }
    if ((result = history_begin(s, err)) < 0) {
        return result;
    }
    if ((result = sweep_month(s, &m, retention, now, err)) < 0) {
        history_rollback(s);
        return result;
    }
    if ((result = history_commit(s, err)) < 0) {
        return result;
    }
    history_recount_lower(s); /* users and a month's set-aside blobs may have gone */
    return 1;
}

void sweep_announce(struct sqlite_store *s)
{
    struct db *db = &s->historian.db;
    struct err err = {0};
    int first_kept = sweep_first_kept(s);
    s->historian.retention_seen = config_now(s->cfg)->retention;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTHS_ALL, &err);
    int months = 0;
    int64_t plays = 0;
    while (db_step(db, stmt, &err) == 1) {
        if (sqlite3_column_int(stmt, 0) < first_kept) {
            months++;
            plays += sqlite3_column_int64(stmt, 3);
        }
    }
    if (months > 0) {
        log_info("past retention, swept in the coming nights", "months=%d plays=%" PRId64 " retention=%d", months,
                 plays, (int)s->historian.retention_seen);
    }
}
