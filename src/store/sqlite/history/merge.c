/* Merging one user's staged rows into history: a union, so that repeating it is harmless.
 *
 * For each month among the plays: decode the user's blob, add the new positions to a live part, encode. A play ends
 * the exception of its item. Deliveries: the last ones of stored and staged. In the same transaction the users row is
 * upserted; last_month only rises. A blob that can't be decoded is set aside in `quarantine` and a new one begun: one
 * bad blob never blocks a slot; the user stays marked until the loss is accepted.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"
#include "store/user/plays.h"

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while merging");
}

int merge_quarantine(struct sqlite_store *s, const struct staged_walk *walk, int month, struct slice blob,
                     const char *reason, struct err *err)
{
    struct db *db = &s->historian.db;
    char name[MONTH_TEXT];
    log_error("damaged blob set aside", "user=%s of=%s error=%s", log_quote(walk->user),
              month == 0 ? "deliveries" : month_name(month, name), log_quote_str(reason));
    sqlite3_stmt *stmt = db_stmt(db, SQL_QUARANTINE_PUT, err);
    db_bind_key(stmt, walk->key);
    if (stmt != NULL) {
        db_bind_id(stmt, 2, walk->user);
        sqlite3_bind_int(stmt, 3, month);
        sqlite3_bind_int64(stmt, 4, clock_wall_ms());
        sqlite3_bind_text(stmt, 5, reason, -1, SQLITE_STATIC);
        sqlite3_bind_blob(stmt, 6, blob.data, (int)blob.len, SQLITE_TRANSIENT);
    }
    /* Raised before the commit, so that no question sees the new blob without the mark. */
    COUNT(s, quarantined, 1);
    return db_run(db, stmt, err);
}

/* The users row. Two users with one key: the first stays, the other is noted. */
int merge_users_row(struct sqlite_store *s, const struct staged_walk *walk, int newest_month, struct err *err)
{
    struct db *db = &s->historian.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_USER_GET, err);
    db_bind_key(stmt, walk->key);
    int result = db_step(db, stmt, err);
    if (result < 0) {
        return result;
    }
    if (result == 1) {
        struct slice name = db_column_bytes(stmt, 0);
        bool same = slice_eq(name, walk->user), nameless = name.len == 0;
        int last_month = sqlite3_column_int(stmt, 1);
        sqlite3_reset(stmt);
        if (nameless) { /* see repair_nameless.c */
            stmt = db_stmt(db, SQL_USER_NAME, err);
            db_bind_key(stmt, walk->key);
            if (stmt != NULL) {
                db_bind_id(stmt, 2, walk->user);
            }
            if ((result = db_run(db, stmt, err)) < 0) {
                return result;
            }
        } else if (!same) {
            log_warn("two users share one key", "user=%s key=%" PRId64, log_quote(walk->user), walk->key);
            stmt = db_stmt(db, SQL_SHARED_PUT, err);
            db_bind_key(stmt, walk->key);
            if (stmt != NULL) {
                db_bind_id(stmt, 2, walk->user);
            }
            if ((result = db_run(db, stmt, err)) < 0) {
                return result;
            }
            COUNT(s, shared_keys, sqlite3_changes(db->handle));
        }
        if (last_month >= newest_month) {
            return 0;
        }
    }
    stmt = db_stmt(db, SQL_USER_PUT, err);
    db_bind_key(stmt, walk->key);
    if (stmt != NULL) {
        db_bind_id(stmt, 2, walk->user);
        sqlite3_bind_int(stmt, 3, newest_month);
    }
    return db_run(db, stmt, err);
}

/* The user's filter of a month, into *filter. bytes: of its blob, -1 when there is none. */
int merge_read_filter(struct sqlite_store *s, const struct staged_walk *walk, int month, int table,
                      struct filter *filter, int64_t *bytes, struct err *err)
{
    struct historian *h = &s->historian;
    filter->n_parts = 0;
    *bytes = -1;
    sqlite3_stmt *stmt = db_stmt_for(&h->db, SQL_PLAY_GET, table, err);
    db_bind_key(stmt, walk->key);
    int result = db_step(&h->db, stmt, err);
    if (result != 1) {
        return result;
    }
    struct slice blob = db_column_bytes(stmt, 0);
    struct err why = {0};
    *bytes = (int64_t)blob.len;
    result = filter_decode(blob.data, blob.len, &h->arena, filter, &why);
    if (result == ERR_CORRUPT) {
        filter->n_parts = 0;
        result = merge_quarantine(s, walk, month, blob, why.text, err);
    } else if (result < 0) {
        result = out_of_memory(err);
    }
    sqlite3_reset(stmt);
    return result;
}

/* What a damaged blob had counted for is only known to its row; of a short one to its first byte, unless that is what
 * is damaged. */
int merge_stored_items(struct sqlite_store *s, int64_t key, int table, int64_t *items, struct err *err)
{
    struct db *db = &s->historian.db;
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_PLAY_SIZE, table, err);
    db_bind_key(stmt, key);
    int result = db_step(db, stmt, err);
    *items = 0;
    if (result == 1) {
        *items = sqlite3_column_int64(stmt, 0);
        sqlite3_reset(stmt);
        result = 0;
    }
    return result;
}

static int merge_month(struct sqlite_store *s, const struct staged_walk *walk, int month, const struct plays *more,
                       struct err *err)
{
    struct historian *h = &s->historian;
    const struct plays_limits limits = plays_limits(config_now(s->cfg)->error_rate);
    struct filter filter;
    int64_t old_bytes;
    int result = month_ensure(s, month, err);
    if (result < 0 || (result = month_list(s, err)) < 0) {
        return result;
    }
    int table = month_table(month_find(s, month), walk->key);
    if ((result = merge_read_filter(s, walk, month, table, &filter, &old_bytes, err)) < 0) {
        return result;
    }
    uint64_t before = filter_items(&filter);
    int64_t old_items = (int64_t)before;
    if (old_bytes >= 0 && before == 0 && (result = merge_stored_items(s, walk->key, table, &old_items, err)) < 0) {
        return result;
    }
    if ((result = plays_add(&filter, more, &limits, &h->arena)) < 0) {
        return result == ERR_NOMEM
                   ? out_of_memory(err)
                   : err_set(err, result, "user %s: too many parts in one filter", log_quote(walk->user));
    }
    uint64_t after = filter_items(&filter);
    if (after == before && before > 0) {
        return 0;
    }
    if ((double)after > config_now(s->cfg)->error_rate / 4 * (double)FILTER_LIVE_M) {
        COUNT(s, plays_over_capacity, after - before);
    }
    buf_clear(&h->blob);
    if (filter_encode(&filter, &h->blob) < 0) {
        return out_of_memory(err);
    }
    sqlite3_stmt *stmt = db_stmt_for(&h->db, SQL_PLAY_PUT, table, err);
    db_bind_key(stmt, walk->key);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, (int64_t)after);
        sqlite3_bind_blob(stmt, 3, h->blob.data, (int)h->blob.len, SQLITE_STATIC);
    }
    if ((result = db_run(&h->db, stmt, err)) < 0) {
        return result;
    }
    return month_count(s, month, old_bytes < 0, (int64_t)after - old_items,
                       (int64_t)h->blob.len - (old_bytes < 0 ? 0 : old_bytes), err);
}

static int by_month(const void *a, const void *b)
{
    return ((const struct staged_play *)a)->month - ((const struct staged_play *)b)->month;
}

static int reserve_positions(struct historian *h, size_t n)
{
    if (n <= h->cap_positions) {
        return 0;
    }
    size_t cap = n > 2 * h->cap_positions ? n : 2 * h->cap_positions;
    free(h->positions);
    free(h->scratch);
    h->positions = malloc(cap * sizeof *h->positions);
    h->scratch = malloc(cap * sizeof *h->scratch);
    h->cap_positions = h->positions != NULL && h->scratch != NULL ? cap : 0;
    return h->cap_positions > 0 ? 0 : ERR_NOMEM;
}

/* Of the plays that are kept. */
static int end_exceptions(struct sqlite_store *s, const struct staged_walk *walk, int first_kept, struct err *err)
{
    if (atomic_load(&s->exceptions) == 0) {
        return 0;
    }
    struct db *db = &s->historian.db;
    sqlite3_stmt *any = db_stmt(db, SQL_EXCEPTIONS_GET, err);
    db_bind_key(any, walk->key);
    int has = db_step(db, any, err);
    if (has != 1) {
        return has;
    }
    sqlite3_reset(any);
    for (size_t i = 0; i < walk->n_plays; i++) {
        if (walk->plays[i].month < first_kept) {
            continue;
        }
        sqlite3_stmt *stmt = db_stmt(db, SQL_EXCEPTION_DELETE, err);
        db_bind_key(stmt, walk->key);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 2, (int64_t)walk->plays[i].hash);
        }
        int result = db_run(db, stmt, err);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

static int merge_plays(struct sqlite_store *s, const struct staged_walk *walk, int first_kept, bool older, int *newest,
                       struct err *err)
{
    struct historian *h = &s->historian;
    if (reserve_positions(h, walk->n_plays) < 0) {
        return out_of_memory(err);
    }
    bool in_order = true; /* as those of one month are, and those of a small sorted set by time */
    for (size_t i = 1; i < walk->n_plays; i++) {
        in_order = in_order && walk->plays[i - 1].month <= walk->plays[i].month;
    }
    if (!in_order) {
        qsort(walk->plays, walk->n_plays, sizeof *walk->plays, by_month);
    }
    for (size_t at = 0; at < walk->n_plays;) {
        struct plays more = {&walk->plays[at].hash, .stride = sizeof *walk->plays, .positions = h->positions,
                             .scratch = h->scratch};
        int month = walk->plays[at].month;
        for (; at < walk->n_plays && walk->plays[at].month == month; at++) {
            more.n++;
        }
        if (month < first_kept) {
            COUNT(s, plays_too_old, more.n);
            continue;
        }
        int result = merge_month(s, walk, month, &more, err);
        if (result < 0) {
            return result;
        }
        *newest = month > *newest ? month : *newest;
    }
    return older ? 0 : end_exceptions(s, walk, first_kept, err);
}

int merge_write_deliveries(struct sqlite_store *s, int64_t key, const struct delivered *all, struct err *err)
{
    struct historian *h = &s->historian;
    buf_clear(&h->blob);
    if (delivered_pack(&h->codec, all, &h->blob) < 0) {
        return out_of_memory(err);
    }
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_DELIVERED_PUT, err);
    db_bind_key(stmt, key);
    if (stmt != NULL) {
        sqlite3_bind_blob(stmt, 2, h->blob.data, (int)h->blob.len, SQLITE_STATIC);
    }
    return db_run(&h->db, stmt, err);
}

int merge_unite_deliveries(struct sqlite_store *s, const struct staged_walk *walk, struct err *err)
{
    struct historian *h = &s->historian;
    struct delivered *all = &h->deliveries;
    if (all->n == 0) {
        return 0;
    }
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_DELIVERED_GET, err);
    db_bind_key(stmt, walk->key);
    int result = db_step(&h->db, stmt, err);
    if (result == 1) {
        struct slice blob = db_column_bytes(stmt, 0);
        struct delivered stored;
        struct err why = {0};
        result = delivered_unpack(&h->codec, blob.data, blob.len, s->seed, &h->arena, &stored, &why);
        result = result == 0 ? delivered_add(all, stored.list, stored.n) : result;
        result = result == ERR_CORRUPT ? merge_quarantine(s, walk, 0, blob, why.text, err)
                 : result < 0          ? out_of_memory(err)
                                       : 0;
        sqlite3_reset(stmt);
    }
    if (result < 0) {
        return result;
    }
    delivered_unite(all, (size_t)config_now(s->cfg)->delivered_max);
    return merge_write_deliveries(s, walk->key, all, err);
}

static int merge_deliveries(struct sqlite_store *s, const struct staged_walk *walk, int first_kept, int *newest,
                            struct err *err)
{
    struct delivered *all = &s->historian.deliveries;
    delivered_clear(all);
    for (size_t i = 0; i < walk->n_deliveries; i++) {
        const struct staged_delivery *d = &walk->deliveries[i];
        if (d->month < first_kept) {
            continue;
        }
        *newest = d->month > *newest ? d->month : *newest;
        const struct store_delivery one = {.stamp = d->stamp, .hash = d->hash, .item = d->item, .group = d->group};
        if (delivered_add(all, &one, 1) < 0) {
            return out_of_memory(err);
        }
    }
    return merge_unite_deliveries(s, walk, err);
}

int merge_user(struct sqlite_store *s, const struct staged_walk *walk, int first_kept, bool older, struct err *err)
{
    arena_reset(&s->historian.arena);
    int newest = INT_MIN;
    int result = walk->n_plays > 0 ? merge_plays(s, walk, first_kept, older, &newest, err) : 0;
    if (result == 0 && walk->n_deliveries > 0) {
        result = merge_deliveries(s, walk, first_kept, &newest, err);
    }
    if (result < 0 || newest == INT_MIN) {
        return result;
    }
    /* The month's row carries the sweep that ends the users row, also for a user with deliveries alone. */
    result = month_ensure(s, newest, err);
    return result < 0 ? result : merge_users_row(s, walk, newest, err);
}
