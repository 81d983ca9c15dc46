/* Tombstones of forgets (store/tombstones.h) in staging.db's table `forgets`.
 *
 * A forget spans two files. Its tombstone is committed with the deletion of the staged rows and the event of the feed.
 * The historian then erases history, and in the same transaction notes there how far forgets are settled (`forgets` in
 * history.db's meta): that is the mark that it is carried out. A start carries out what is beyond that mark, before any
 * merge, import or question. That erases nothing newer: rows that came after the forget are deleted from staging.db,
 * and imports answered, only behind a commit of history.db that carries the mark (history_mark()).
 *
 * One that history refused was answered with an error. It is settled too, since what was played after it must not be
 * erased by a later start: its tombstone stands, and history's part is done when it is asked for again.
 */
#include <inttypes.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

static int put(struct db *db, const struct tombstone *t, uint64_t cut, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONE_PUT, err);
    db_bind_key(stmt, t->key);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, (int64_t)t->item);
        sqlite3_bind_int64(stmt, 3, t->at_ms);
        sqlite3_bind_int64(stmt, 4, (int64_t)t->id);
        sqlite3_bind_int64(stmt, 5, (int64_t)cut);
    }
    return db_run(db, stmt, err);
}

static size_t count_of(const struct store_forget *forget)
{
    return forget->n_items == 0 ? 1 : forget->n_items;
}

static struct tombstone tombstone_of(const struct store_forget *forget, size_t i)
{
    uint64_t item = forget->n_items == 0 ? TOMBSTONE_USER : tombstone_item(forget->hashes[i]);
    return (struct tombstone){forget->key, item, forget->at_ms, forget->id};
}

int forgets_reserve(struct sqlite_store *s, size_t n, struct err *err)
{
    return tombstones_reserve(s->tombstones, n) < 0 ? err_set(err, ERR_NOMEM, "out of memory while forgetting") : 0;
}

int forgets_write(struct sqlite_store *s, struct store_forget *forget, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = 0;
    if (forget->n_items == 0) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_DELETE_USER, err);
        db_bind_key(stmt, forget->key);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 2, forget->at_ms); /* one that is stated may be older than those */
        }
        result = db_run(db, stmt, err);
    }
    for (size_t i = 0; i < count_of(forget) && result == 0; i++) {
        struct tombstone t = tombstone_of(forget, i);
        result = put(db, &t, forget->cut, err);
    }
    return result;
}

void forgets_written(struct sqlite_store *s, const struct store_forget *forget)
{
    for (size_t i = 0; i < count_of(forget); i++) {
        struct tombstone t = tombstone_of(forget, i);
        tombstones_put(s->tombstones, &t);
    }
    GAUGE(s, tombstones, tombstones_count(s->tombstones));
}

int forgets_adopt(struct sqlite_store *s, const struct tombstone *list, size_t n, struct err *err)
{
    struct db *db = &s->stager.db;
    if (n == 0) {
        return 0;
    }
    if (tombstones_reserve(s->tombstones, n) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory while joining users");
    }
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    for (size_t i = 0; i < n && result == 0; i++) {
        result = put(db, &list[i], 0, err);
    }
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    result = db_commit(db, err);
    for (size_t i = 0; i < n && result == 0; i++) {
        tombstones_put(s->tombstones, &list[i]);
    }
    GAUGE(s, tombstones, tombstones_count(s->tombstones));
    return result;
}

/* Those that stay keep their cuts: no forget of a user is in a commit before the user's last one is settled. */
int forgets_undo(struct sqlite_store *s, uint64_t from, struct err *err)
{
    struct db *db = &s->stager.db;
    struct tombstone t;
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_UNDO, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)from);
    }
    int result = db_run(db, stmt, err);
    for (size_t i = 0; result == 0 && tombstones_at(s->tombstones, &i, &t);) {
        result = put(db, &t, 0, err);
    }
    return result;
}

int forgets_until(struct sqlite_store *s, int64_t ms, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_UNTIL, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, ms);
    }
    if ((result = db_run(db, stmt, err)) < 0) {
        db_rollback(db);
        return result;
    }
    if ((result = db_commit(db, err)) == 0) {
        tombstones_until(s->tombstones, ms);
    }
    return result;
}

/* --- at start --- */

int forgets_read(struct tombstones *all, struct db *db, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_ALL, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        for (int i = 0; i < 4 && result == 1; i++) {
            result = sqlite3_column_type(stmt, i) == SQLITE_INTEGER ? 1 : ERR_CORRUPT;
        }
        struct tombstone t = {sqlite3_column_int64(stmt, 0), (uint64_t)sqlite3_column_int64(stmt, 1),
                              sqlite3_column_int64(stmt, 2), (uint64_t)sqlite3_column_int64(stmt, 3)};
        if (result == 1) {
            result = tombstones_reserve(all, 1);
        }
        if (result < 0) {
            sqlite3_reset(stmt);
            return result == ERR_NOMEM ? err_set(err, result, "out of memory")
                                       : err_set(err, ERR_CORRUPT,
                                                 "%s: a row of forgets can't be read: unseen check --repair", db->path);
        }
        tombstones_put(all, &t);
    }
    return result;
}

static int read_tombstones(struct sqlite_store *s, struct err *err)
{
    struct tombstone t;
    int result = forgets_read(s->tombstones, &s->stager.db, err);
    for (size_t i = 0; result == 0 && tombstones_at(s->tombstones, &i, &t);) {
        s->stager.next_id = t.id >= s->stager.next_id ? t.id + 1 : s->stager.next_id;
    }
    return result;
}

static int carry_out(struct sqlite_store *s, int64_t key, uint64_t item, uint64_t cut, struct err *err)
{
    struct store_forget forget = {.key = key, .hashes = &item, .n_items = item != TOMBSTONE_USER, .cut = cut};
    int result = forget_erase(s, &forget);
    if (result == ERR_CORRUPT) { /* as it would have been answered */
        log_warn("forget failed", "key=%" PRId64 " error=%s", key, log_quote_str(forget.err.text));
        return 0;
    }
    return result < 0 ? err_set(err, result, "%s", forget.err.text) : 0;
}

/* Settled only once all of them are: the items of one forget share its id. */
static int carry_out_rest(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t settled = 0, n = 0;
    int result = db_meta_count(&s->historian.db, "forgets", &settled, err);
    if (result < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_AFTER, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, settled);
    }
    while ((result = db_step(db, stmt, err)) == 1) {
        history_settle(s, (uint64_t)sqlite3_column_int64(stmt, 2));
        result = carry_out(s, sqlite3_column_int64(stmt, 0), (uint64_t)sqlite3_column_int64(stmt, 1),
                           (uint64_t)sqlite3_column_int64(stmt, 3), err);
        if (result < 0) {
            sqlite3_reset(stmt);
            return result;
        }
        n++;
    }
    if (result == 0 && n > 0 && (result = history_barrier(s, err)) == 0) {
        log_info("forgets carried out that the end of the last run had interrupted", "n=%" PRId64, n);
    }
    return result;
}

int forgets_open(struct sqlite_store *s, struct err *err)
{
    s->tombstones = tombstones_new();
    int result = s->tombstones == NULL ? err_set(err, ERR_NOMEM, "out of memory") : read_tombstones(s, err);
    GAUGE(s, tombstones, s->tombstones == NULL ? 0 : tombstones_count(s->tombstones));
    if (result == 0) {
        result = merges_open(s, err); /* before: some end with a forget */
    }
    return result < 0 ? result : carry_out_rest(s, err);
}

void forgets_close(struct sqlite_store *s)
{
    tombstones_free(s->tombstones);
    s->tombstones = NULL;
}

/* --- expiry --- */

static int delete_expired(struct sqlite_store *s, int64_t before_ms, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_EXPIRE, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, before_ms);
    }
    if ((result = db_run(db, stmt, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

void forgets_expire(struct sqlite_store *s)
{
    const struct config *live = config_now(s->cfg);
    int first_kept = sweep_first_kept(s);
    struct err err = {0};
    if (first_kept <= 0 || !tombstones_expired(s->tombstones, month_start_ms(first_kept)) ||
        !config_in_sweep_window(live, store_believed(s))) {
        return;
    }
    if (delete_expired(s, month_start_ms(first_kept), &err) < 0) {
        log_error("expired forgets not deleted", "error=%s", log_quote_str(err.text));
        return; /* tried again at the next look */
    }
    tombstones_expire(s->tombstones, month_start_ms(first_kept));
    GAUGE(s, tombstones, tombstones_count(s->tombstones));
}
