#include "store/sqlite/admin/export_pack.h"

#include <limits.h>

#include "base/log.h"
#include "store/sqlite/read/exceptions.h"
#include "store/user/parcel.h"

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while exporting");
}

/* --- what history has under a key --- */

struct packed {
    struct user_snapshot snapshot;
    struct snapshot_month months[HISTORY_MONTHS_MAX];
    int damaged[USER_SNAPSHOT_LISTS_MAX];
    struct delivered stored;
};

static void mark(struct export_packer *x, struct packed *p, int month, const char *why)
{
    char what[STORE_ERROR_TEXT];
    if (parcel_mark(&p->snapshot, p->damaged, month, why, what)) {
        x->damaged(x->arg, what);
    }
}

static int pack_month(struct export_packer *x, struct packed *p, const struct stored_month *month, struct err *err)
{
    int64_t key = p->snapshot.key;
    sqlite3_stmt *stmt = db_stmt_for(x->history, SQL_PLAY_GET, month_table(month, key), err);
    db_bind_key(stmt, key);
    int result = db_step(x->history, stmt, err);
    if (result != 1) {
        return result;
    }
    struct slice blob = db_column_bytes(stmt, 0);
    struct filter filter;
    struct err why = {0};
    result = filter_weigh(blob.data, blob.len, &filter, &why);
    if (result == ERR_CORRUPT) {
        mark(x, p, month->month, why.text);
        result = 0;
    } else if (result == 0 && filter_items(&filter) > 0) {
        const char *copy = arena_copy(&x->arena, blob.data, blob.len);
        p->months[p->snapshot.n_months++] = (struct snapshot_month){month->month, slice_of(copy, blob.len)};
        p->snapshot.last_month = month->month > p->snapshot.last_month ? month->month : p->snapshot.last_month;
        result = copy == NULL ? ERR_NOMEM : 0;
    }
    sqlite3_reset(stmt);
    return result < 0 ? out_of_memory(err) : 0;
}

static int pack_delivered(struct export_packer *x, struct packed *p, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(x->history, SQL_DELIVERED_GET, err);
    db_bind_key(stmt, p->snapshot.key);
    int result = db_step(x->history, stmt, err);
    if (result != 1) {
        return result;
    }
    struct slice blob = db_column_bytes(stmt, 0);
    struct err why = {0};
    result = delivered_unpack(&x->codec, blob.data, blob.len, x->seed, &x->arena, &p->stored, &why);
    sqlite3_reset(stmt);
    if (result == ERR_CORRUPT) {
        mark(x, p, 0, why.text);
        result = 0;
    }
    return result < 0 ? out_of_memory(err) : 0;
}

static int pack_marks(struct export_packer *x, struct packed *p, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(x->history, SQL_QUARANTINE_OPEN, err);
    db_bind_key(stmt, p->snapshot.key);
    int result;
    while ((result = db_step(x->history, stmt, err)) == 1) {
        mark(x, p, sqlite3_column_int(stmt, 0), "set aside as damaged");
    }
    return result;
}

/* --- what is staged for a user --- */

static int pack_staged(struct export_packer *x, struct packed *p, struct err *err)
{
    staged_out_clear(&x->staged);
    x->staged.deliveries_max = DELIVERED_MAX;
    for (int i = 0; i < x->n_slots; i++) {
        if (staged_load(x->slots[i], p->snapshot.key, p->snapshot.user, INT_MIN, &x->staged) < 0) {
            return out_of_memory(err);
        }
    }
    struct store_play *plays = x->staged.plays;
    size_t n = user_snapshot_sort_plays(plays, x->staged.n_plays);
    if (n > 0 && plays[n - 1].month > p->snapshot.last_month) {
        p->snapshot.last_month = plays[n - 1].month;
    }
    p->snapshot.plays = plays;
    p->snapshot.n_plays = n;
    return 0;
}

static int pack_deliveries(struct export_packer *x, struct packed *p, struct err *err)
{
    struct delivered *all = &x->staged.deliveries;
    struct buf blob = {0};
    if (delivered_add(all, p->stored.list, p->stored.n) < 0) {
        return out_of_memory(err);
    }
    if (all->n == 0) {
        return 0;
    }
    delivered_unite(all, DELIVERED_MAX);
    int result = delivered_pack(&x->codec, all, &blob);
    const char *copy = result == 0 ? arena_copy(&x->arena, blob.data, blob.len) : NULL;
    p->snapshot.deliveries = slice_of(copy, copy != NULL ? blob.len : 0);
    buf_free(&blob);
    return copy == NULL ? out_of_memory(err) : 0;
}

/* --- the user --- */

int export_pack(struct export_packer *x, int64_t key, struct slice user, int last_month, bool stored,
                bool migration_state, struct buf *out, struct err *err)
{
    struct packed p = {.snapshot = {.key = key,
                                    .user = user,
                                    .last_month = last_month,
                                    .migration_state = migration_state,
                                    .forgotten_ms = x->forgotten_ms,
                                    .forgotten = x->forgotten,
                                    .n_forgotten = x->n_forgotten}};
    arena_reset(&x->arena);
    p.snapshot.months = p.months;
    p.snapshot.damaged = p.damaged;
    uint64_t *exceptions;
    int result = 0;
    for (int i = x->n_months - 1; i >= 0 && stored && result == 0; i--) { /* listed newest first */
        result = pack_month(x, &p, &x->months[i], err);
    }
    if (stored && result == 0 && (result = pack_delivered(x, &p, err)) == 0 &&
        (result = exceptions_read(x->history, key, &x->arena, &exceptions, &p.snapshot.n_exceptions, err)) == 0) {
        p.snapshot.exceptions = exceptions;
        result = pack_marks(x, &p, err);
    }
    if (result < 0 || (result = pack_staged(x, &p, err)) < 0 || (result = pack_deliveries(x, &p, err)) < 0) {
        return result;
    }
    const struct user_snapshot *all = &p.snapshot;
    if (all->n_months + all->n_plays + all->deliveries.len + all->n_exceptions + all->n_damaged +
            all->migration_state ==
        0) {
        return 0;
    }
    if ((result = user_snapshot_encode(all, out)) < 0) {
        return result == ERR_NOMEM ? out_of_memory(err)
                                   : err_set(err, ERR_CORRUPT, "user %s: has a month that can't be", log_quote(user));
    }
    return 1;
}

void export_packer_free(struct export_packer *x)
{
    arena_free(&x->arena);
    delivered_codec_free(&x->codec);
    staged_out_free(&x->staged);
}
