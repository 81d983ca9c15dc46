/* The copy of staging.db is older than that of history.db. That must not undo what happened in between.
 *
 *   flush    rows that were merged and deleted meanwhile are in both: a merge is a union, nothing is to be done.
 *   forget   erased in history, but the older copy of staging has the rows: they would come back with the first flush.
 *            So the historian notes each forget, and those rows are deleted here, as the stager had deleted them, the
 *            notes of those users are ended, and its tombstone is added.
 *   ids      the deliveries in history may have higher row ids than any that the older copy knows. Later deliveries
 *            must get higher ones still, so the mark is raised.
 *   feed     what waits for the old Redis is sent from the store itself. A copy that sent it again, days later, would
 *            undo what happened since: forget a user once more. So it isn't in the copy, and those for whom something
 *            waited are lost there.
 *   merge    of one user into another: unanswered when the copy of staging was made, so it isn't in the copy. What the
 *            copy of history.db has of it is a union, and its forget is noted as any.
 *   seal, sweep, new months
 *            are within history.db, whose copy is of one moment.
 */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/ring.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/store.h"
#include "store/tombstones.h"

enum { FORGOTTEN_MAX = 64 << 20 }; /* bytes of notes: a million forgets and more */

/* --- forgets: before, time, cut (8 bytes each), length of the user, length of the item (0: all of the user's rows),
 * both ids --- */

enum { HEAD = 26 };

static void note(struct buf *users_to_migrate, const struct store_forget *forget, struct slice item)
{
    unsigned char head[HEAD];
    memcpy(head, &forget->before, 8);
    memcpy(head + 8, &forget->at_ms, 8);
    memcpy(head + 16, &forget->cut, 8);
    head[24] = (unsigned char)forget->user.len;
    head[25] = (unsigned char)item.len;
    buf_add(users_to_migrate, head, sizeof head);
    buf_add(users_to_migrate, forget->user.data, forget->user.len);
    buf_add(users_to_migrate, item.data, item.len);
}

int backup_note_forget(struct buf *users_to_migrate, const struct store_forget *forget)
{
    if (forget->n_items == 0) {
        note(users_to_migrate, forget, slice_of("", 0));
    }
    for (size_t i = 0; i < forget->n_items; i++) {
        note(users_to_migrate, forget, forget->items[i]);
    }
    return users_to_migrate->failed || users_to_migrate->len > FORGOTTEN_MAX ? ERR_NOMEM : 0;
}

/* Its tombstone. The copy of history.db has carried it out. */
static int put_tombstone(struct db *db, int64_t key, uint64_t item, int64_t at_ms, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONE_PUT, err);
    db_bind_key(stmt, key);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, (int64_t)item);
        sqlite3_bind_int64(stmt, 3, at_ms);
        sqlite3_bind_int64(stmt, 4, 0);
        sqlite3_bind_int64(stmt, 5, 0);
    }
    return db_run(db, stmt, err);
}

static int put_forgotten(struct db *db, const struct buf *users_to_migrate, uint64_t seed, struct err *err)
{
    int result = db_run(db, db_stmt(db, SQL_FORGOTTEN_CREATE, err), err);
    for (size_t at = 0; at < users_to_migrate->len && result == 0;) {
        uint64_t before, cut;
        int64_t at_ms;
        const char *p = users_to_migrate->data + at;
        memcpy(&before, p, 8);
        memcpy(&at_ms, p + 8, 8);
        memcpy(&cut, p + 16, 8);
        size_t user_len = (unsigned char)p[24];
        size_t item_len = (unsigned char)p[25];
        struct slice item = slice_of(p + HEAD + user_len, item_len);
        int64_t key = hash_user_key(seed, slice_of(p + HEAD, user_len));
        sqlite3_stmt *stmt = db_stmt(db, SQL_FORGOTTEN_PUT, err);
        if (stmt != NULL) {
            db_bind_id(stmt, 1, slice_of(p + HEAD, user_len));
            sqlite3_bind_null(stmt, 2);
            if (item_len > 0) {
                db_bind_id(stmt, 2, item);
            }
            sqlite3_bind_int64(stmt, 3, (int64_t)before);
            sqlite3_bind_int64(stmt, 4, key);
            sqlite3_bind_int64(stmt, 5, (int64_t)cut);
        }
        result = db_run(db, stmt, err);
        if (result == 0) {
            uint64_t hash = item_len > 0 ? tombstone_item(hash_id(seed, item)) : TOMBSTONE_USER;
            result = put_tombstone(db, key, hash, at_ms, err);
        }
        at += HEAD + user_len + item_len;
    }
    return result < 0 ? result : db_run(db, db_stmt(db, SQL_FORGOTTEN_INDEX, err), err);
}

static int delete_forgotten(struct db *db, const struct buf *users_to_migrate, uint64_t seed, struct err *err)
{
    struct slot_tables tables;
    int64_t rows = 0;
    int result = slot_rows_tables(db, &tables, err);
    if (result < 0 || (result = put_forgotten(db, users_to_migrate, seed, err)) < 0) {
        return result;
    }
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        for (int part = -1; result == 0 && (part = slot_tables_next(&tables, slot, part)) >= 0;) {
            result = db_run(db, db_stmt_for(db, SQL_STAGED_DELETE_FORGOTTEN, slot_table(slot, part), err), err);
            rows += sqlite3_changes64(db->handle);
        }
    }
    if (result == 0) {
        result = db_run(db, db_stmt(db, SQL_NOTED_END_FORGOTTEN, err), err);
    }
    if (result == 0) {
        log_info("forgets carried out in the backup", "rows=%lld", (long long)rows);
    }
    return result;
}

static int drop_feed(struct db *db, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_LOSE, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    }
    int result = db_run(db, stmt, err);
    if (result == 0) {
        result = db_run(db, db_stmt(db, SQL_FEED_REMOTES_DELETE, err), err);
    }
    /* What starts from the copy is another node. */
    if (result == 0) {
        result = db_exec(db, "DELETE FROM runs; DELETE FROM meta WHERE name = 'node'", err);
    }
    return result < 0 ? result : db_exec(db, "DELETE FROM feed", err);
}

static int mend(struct db *db, const struct buf *users_to_migrate, uint64_t seed, uint64_t high_water, struct err *err)
{
    int result = db_pragma(db, "secure_delete", 1, err);
    if (result < 0 || (result = db_begin(db, err)) < 0) {
        return result;
    }
    if ((users_to_migrate->len > 0 && (result = delete_forgotten(db, users_to_migrate, seed, err)) < 0) ||
        (result = drop_feed(db, err)) < 0 || (result = db_exec(db, "DELETE FROM merges", err)) < 0 ||
        (result = db_meta_set_int(db, "high_water", (int64_t)high_water, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

int backup_mend_staging(const char *folder, const char *vfs, const struct buf *users_to_migrate, uint64_t seed,
                        uint64_t high_water, struct err *err)
{
    struct db db;
    int result = db_open(&db, folder, STAGING_PARTIAL, vfs, DB_WRITE_FULL, err);
    if (result == 0) {
        result = mend(&db, users_to_migrate, seed, high_water, err);
        db_close(&db);
    }
    return result;
}

int backup_close_wal(const char *folder, const char *name, const char *vfs, struct err *err)
{
    struct db db;
    int result = db_open(&db, folder, name, vfs, DB_WRITE_FULL, err);
    if (result < 0) {
        return result;
    }
    result = db_leave_wal(&db, err);
    if (result > 0) {
        result = err_set(err, ERR_BUSY, "%s: another program has the copy open", db.path);
    }
    db_close(&db);
    return result;
}
