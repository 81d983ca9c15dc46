/* Users out of a folder, see sqlite_export_folder().
 *
 * Staging is read first, in one snapshot, into an index for each table; then history, some hundred users in each
 * snapshot. In this order a flush in between can't hide a play, as with a question: plays that left staging before it
 * was read are durable in history, which is read later. Both are walked in the order of keys, side by side: the next
 * user is the one with the lowest key of all indexes, of those who are noted, and of history. A FORGET in between
 * deletes from staging first, then from history. So rows that have left staging by the time a user is packed are
 * dropped, and history is read again, which has them if they were flushed. Users with one key (there are hardly any)
 * follow each other; each gets all that history has under the key, since they share it.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "store/ring.h"
#include "store/sqlite/admin/export_pack.h"
#include "store/sqlite/admin/export_staging.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/db/pair.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"

enum {
    CHUNK_USERS = 256,            /* of one snapshot */
    HELD_BYTES = 8 * 1024 * 1024, /* of snapshots that wait for its end; more are handed over within it */
};

struct chunk_user {
    int64_t key;
    int last_month;
    struct slice user;
};

struct exporter {
    const char *folder;
    const struct store_export *e;
    struct db history;
    struct export_staging staging;
    bool served; /* a server may write meanwhile */

    /* of the snapshot */
    struct arena users_arena;
    struct chunk_user users[CHUNK_USERS];
    size_t n_users;
    struct stored_month months[HISTORY_MONTHS_MAX];
    bool any_shared;

    struct export_packer packer;
    struct buf bytes, ends; /* snapshots that are to be handed over, and where each ends (size_t) */
};

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while exporting");
}

/* --- one user --- */

/* The caller that takes them may be slow, so this is done between snapshots. */
static int hand_over(struct exporter *x, struct err *err)
{
    size_t from = 0;
    int result = 0;
    for (size_t at = 0; at < x->ends.len && result == 0; at += sizeof(size_t)) {
        size_t end;
        memcpy(&end, x->ends.data + at, sizeof end);
        result = x->e->snapshot(x->e->arg, slice_of(x->bytes.data + from, end - from), err);
        from = end;
    }
    buf_clear(&x->bytes);
    buf_clear(&x->ends);
    return result;
}

static int read_months(struct exporter *x, struct err *err)
{
    x->packer.n_months = 0;
    sqlite3_stmt *stmt = db_stmt(&x->history, SQL_MONTHS_WINDOW, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, INT_MIN);
    }
    int result;
    while ((result = db_step(&x->history, stmt, err)) == 1) {
        if (x->packer.n_months == HISTORY_MONTHS_MAX) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_CORRUPT, "%s: more than %d months", x->history.path, HISTORY_MONTHS_MAX);
        }
        month_column(stmt, 1, &x->months[x->packer.n_months++]);
    }
    return result;
}

/* So that history is read as it is now. */
static int renew_snapshot(struct exporter *x, struct err *err)
{
    int result = db_commit(&x->history, err);
    return result < 0 || (result = db_begin_read(&x->history, err)) < 0 ? result : read_months(x, err);
}

/* stored: history has rows under the key. */
static int pack(struct exporter *x, int64_t key, struct slice user, int last_month, bool stored, struct err *err)
{
    if (!x->e->wanted(x->e->arg, user)) {
        return 0;
    }
    int newest = export_staging_delivery(&x->staging, key, user);
    bool migration_state = export_staging_noted(&x->staging, key, user);
    x->packer.forgotten_ms = export_staging_forgotten(&x->staging, key);
    x->packer.forgotten = export_staging_items(&x->staging, key, &x->packer.n_forgotten);
    size_t begin = x->bytes.len;
    int result, gone;
    do {
        x->bytes.len = begin;
        result = export_pack(&x->packer, key, user, newest > last_month ? newest : last_month, stored, migration_state,
                             &x->bytes, err);
        gone = result >= 0 && x->served ? export_staging_drop_gone(&x->staging, key, user, err) : 0;
        if (gone > 0 && (gone = renew_snapshot(x, err)) == 0) {
            stored = true; /* perhaps by now */
            gone = 1;
        }
    } while (gone > 0);
    if (gone < 0 || result != 1) {
        return gone < 0 ? gone : result;
    }
    size_t end = x->bytes.len;
    if (buf_add(&x->ends, &end, sizeof end) < 0) {
        return out_of_memory(err);
    }
    return end >= HELD_BYTES ? hand_over(x, err) : 0;
}

/* Every user with the lowest staged key, once each, but for those of history's list. */
static int pack_staged_users(struct exporter *x, int64_t key, const struct chunk_user *known, size_t n_known,
                             bool stored, struct err *err)
{
    int result = 0;
    for (;;) {
        int first = export_staging_lowest(&x->staging, key);
        if (first < 0 || result < 0) {
            return result;
        }
        struct slice user = x->staging.walks[first].user;
        bool packed = false;
        for (size_t i = 0; i < n_known; i++) {
            packed = packed || slice_eq(known[i].user, user);
        }
        if (!packed) {
            result = pack(x, x->staging.walks[first].key, user, 0, stored, err);
        }
        if (result == 0) {
            result = export_staging_pass(&x->staging, key, user, err);
        }
    }
}

/* --- history, chunk by chunk --- */

static int read_users(struct exporter *x, int64_t from, struct err *err)
{
    x->n_users = 0;
    arena_reset(&x->users_arena);
    sqlite3_stmt *stmt = db_stmt(&x->history, SQL_USERS_FROM, err);
    db_bind_key(stmt, from);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, x->e->to);
        sqlite3_bind_int(stmt, 3, CHUNK_USERS);
    }
    int result;
    while ((result = db_step(&x->history, stmt, err)) == 1) {
        struct slice user = db_column_bytes(stmt, 1);
        const char *copy = arena_copy(&x->users_arena, user.data, user.len);
        if (copy == NULL) {
            sqlite3_reset(stmt);
            return out_of_memory(err);
        }
        x->users[x->n_users++] =
            (struct chunk_user){sqlite3_column_int64(stmt, 0), sqlite3_column_int(stmt, 2), slice_of(copy, user.len)};
    }
    int64_t shared = 0;
    if (result == 0 && (result = db_int(&x->history, "SELECT EXISTS (SELECT 1 FROM shared_keys)", &shared, err)) == 0) {
        x->any_shared = shared != 0;
    }
    return result;
}

enum { KEY_USERS = 16 /* that share one key */ };

/* The user of a users row, and all who share its key. */
static int pack_key(struct exporter *x, const struct chunk_user *first, struct err *err)
{
    struct chunk_user users[KEY_USERS] = {*first};
    size_t n = 1;
    int result = 0;
    if (first->user.len == 0) { /* its name was lost; who is staged under the key may be that user */
        char what[96];
        snprintf(what, sizeof what, "user with key %" PRId64 ": has no name, left out", first->key);
        x->e->damaged(x->e->arg, what);
        n = 0;
    }
    if (x->any_shared) {
        sqlite3_stmt *stmt = db_stmt(&x->history, SQL_SHARED_USERS, err);
        db_bind_key(stmt, first->key);
        while ((result = db_step(&x->history, stmt, err)) == 1) {
            struct slice user = db_column_bytes(stmt, 0);
            const char *copy = arena_copy(&x->users_arena, user.data, user.len);
            if (copy == NULL || n == KEY_USERS) {
                sqlite3_reset(stmt);
                return copy == NULL ? out_of_memory(err)
                                    : err_set(err, ERR_SHARED, "more than %d users share a key", KEY_USERS);
            }
            users[n++] = (struct chunk_user){first->key, first->last_month, slice_of(copy, user.len)};
        }
    }
    for (size_t i = 0; i < n && result == 0; i++) {
        result = pack(x, users[i].key, users[i].user, users[i].last_month, true, err);
    }
    return result < 0 ? result : pack_staged_users(x, first->key, users, n, true, err);
}

/* Users of history from the key on, in one snapshot, and the staged ones between them. *next: where the next chunk
 * begins. Returns 1 when there is one. */
static int pack_chunk(struct exporter *x, int64_t from, int64_t *next, struct err *err)
{
    int result = read_months(x, err);
    if (result < 0 || (result = read_users(x, from, err)) < 0) {
        return result;
    }
    for (size_t i = 0; i < x->n_users && result == 0; i++) {
        int slot;
        while (result == 0 && (slot = export_staging_lowest(&x->staging, x->users[i].key)) >= 0 &&
               x->staging.walks[slot].key < x->users[i].key) {
            result = pack_staged_users(x, x->staging.walks[slot].key, NULL, 0, false, err);
        }
        result = result < 0 ? result : pack_key(x, &x->users[i], err);
    }
    bool more = x->n_users == CHUNK_USERS && x->users[x->n_users - 1].key < x->e->to;
    *next = more ? x->users[x->n_users - 1].key + 1 : x->e->to;
    return result < 0 ? result : more;
}

static void show(struct exporter *x, int64_t at)
{
    uint64_t total = ((uint64_t)x->e->to - (uint64_t)x->e->from) >> 10;
    uint64_t done = ((uint64_t)at - (uint64_t)x->e->from) >> 10;
    if (x->e->progress != NULL) {
        x->e->progress(x->e->arg, done, total > 0 ? total : 1);
    }
}

/* Those behind the last one of history. */
static int pack_rest(struct exporter *x, struct err *err)
{
    int slot;
    int result = db_begin_read(&x->history, err);
    if (result < 0 || (result = read_months(x, err)) < 0) {
        return result;
    }
    while (result == 0 && (slot = export_staging_lowest(&x->staging, x->e->to)) >= 0) {
        result = pack_staged_users(x, x->staging.walks[slot].key, NULL, 0, false, err);
    }
    result = db_end_read(&x->history, result, err);
    return result < 0 ? result : hand_over(x, err);
}

static int pack_all(struct exporter *x, struct err *err)
{
    int64_t from = x->e->from;
    int result = 0;
    int more = 1;
    while (result == 0 && more == 1) {
        if ((result = db_begin_read(&x->history, err)) < 0) {
            return result;
        }
        more = pack_chunk(x, from, &from, err);
        result = more < 0 ? more : 0;
        result = db_end_read(&x->history, result, err);
        result = result == 0 ? hand_over(x, err) : result;
        show(x, from);
    }
    return result < 0 ? result : pack_rest(x, err);
}

static int export_files(struct exporter *x, struct err *err)
{
    int result = db_open(&x->staging.db, x->folder, "staging", NULL, DB_READ, err);
    if (result < 0) {
        return result;
    }
    if ((result = db_open(&x->history, x->folder, "history", NULL, DB_READ, err)) < 0) {
        db_close(&x->staging.db);
        return result;
    }
    if ((result = schema_examine(&x->staging.db, false, err)) >= 0 &&
        (result = schema_examine(&x->history, true, err)) >= 0) {
        result = schema_seed(&x->history, &x->packer.seed, err);
    }
    if (result == 0) {
        result = err_set(err, ERR_NOTFOUND, "%s has no seed yet: nothing was ever recorded", x->history.path);
    }
    if (result == 1) {
        result = x->e->begin(x->e->arg, x->packer.seed, err);
    }
    if (result == 0 && (result = export_staging_read(&x->staging, x->packer.seed, err)) == 0) {
        x->packer.n_slots = x->staging.n_slots;
        result = pack_all(x, err);
    }
    db_close(&x->history);
    db_close(&x->staging.db);
    return result;
}

int sqlite_export_folder(const char *folder, const struct store_export *e, struct err *err)
{
    int result;
    if ((result = folder_need(folder, "history.db", err)) < 0 ||
        (result = folder_need(folder, "staging.db", err)) < 0) {
        return result;
    }
    struct exporter *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return out_of_memory(err);
    }
    x->folder = folder;
    x->e = x->staging.e = e;
    x->packer = (struct export_packer){
        .history = &x->history, .months = x->months, .slots = x->staging.slots, .damaged = e->damaged, .arg = e->arg};
    struct folder_lock lock;
    result = folder_lock(folder, &lock, err);
    if (result < 0 && result != ERR_LOCKED) {
        free(x);
        return result;
    }
    x->served = result < 0;
    result = x->served ? 0 : pair_examine(folder, NULL, err);
    result = result == 0 ? export_files(x, err) : result;
    if (!x->served) {
        folder_unlock(&lock);
    }
    export_staging_free(&x->staging);
    arena_free(&x->users_arena);
    export_packer_free(&x->packer);
    buf_free(&x->bytes);
    buf_free(&x->ends);
    free(x);
    return result;
}
