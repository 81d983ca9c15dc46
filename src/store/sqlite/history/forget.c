/* FORGET, the historian's half. The staged rows are already gone. Now history is erased, of all forgets that wait one
 * behind the other, in one transaction under
 * secure_delete and synchronous=FULL, so that it is durable when it is answered. It runs between transactions of a
 * flush; a later merge finds the user's rows gone from the slot's index.
 *
 * An item can't be taken out of a filter. Where a month's filter has it (or has its position by error), the item's
 * whole hash becomes an exception, which its next play ends. A filter that can't be read may have all of them. The
 * stager refuses a user with such a filter in the window, so here it lies outside, and the forget is carried out
 * completely.
 */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/migration.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

static int run_key(struct sqlite_store *s, sqlite3_stmt *stmt, int64_t key, struct err *err)
{
    db_bind_key(stmt, key);
    return db_run(&s->historian.db, stmt, err);
}

static int forget_month(struct sqlite_store *s, int64_t key, const struct stored_month *month, struct err *err)
{
    struct db *db = &s->historian.db;
    int table = month_table(month, key);
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_PLAY_SIZE, table, err);
    db_bind_key(stmt, key);
    int result = db_step(db, stmt, err);
    if (result != 1) {
        return result;
    }
    int64_t items = sqlite3_column_int64(stmt, 0);
    int64_t bytes = sqlite3_column_int64(stmt, 1);
    sqlite3_reset(stmt);
    if ((result = run_key(s, db_stmt_for(db, SQL_PLAY_DELETE, table, err), key, err)) < 0) {
        return result;
    }
    return month_count(s, month->month, -1, -items, -bytes, err);
}

static int forget_user(struct sqlite_store *s, struct store_forget *forget)
{
    struct historian *h = &s->historian;
    struct err *err = &forget->err;
    int result = month_list(s, err);
    for (int i = 0; i < h->n_months && result == 0; i++) {
        result = forget_month(s, forget->key, &h->months[i], err);
    }
    static const enum sql_statement rows[] = {SQL_DELIVERED_DELETE, SQL_EXCEPTIONS_DELETE, SQL_QUARANTINE_DELETE,
                                              SQL_USER_DELETE};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && result == 0; i++) {
        result = run_key(s, db_stmt(&h->db, rows[i], err), forget->key, err);
    }
    return result;
}

/* Takes the items out of the stored deliveries, and what no longer counted before. */
static int forget_delivered(struct sqlite_store *s, struct store_forget *forget)
{
    struct historian *h = &s->historian;
    struct err *err = &forget->err;
    sqlite3_stmt *stmt = db_stmt(&h->db, SQL_DELIVERED_GET, err);
    db_bind_key(stmt, forget->key);
    int result = db_step(&h->db, stmt, err);
    if (result != 1) {
        return result;
    }
    struct slice blob = db_column_bytes(stmt, 0);
    struct delivered stored;
    struct err why = {0};
    result = delivered_unpack(&h->codec, blob.data, blob.len, s->seed, &h->arena, &stored, &why);
    sqlite3_reset(stmt);
    if (result == ERR_CORRUPT && config_now(s->cfg)->on_damage == DAMAGE_ANSWER) {
        return 0; /* no question reads it */
    }
    if (result < 0) {
        return err_set(err, result, "user %s: deliveries can't be read: %s", log_quote(forget->user), why.text);
    }
    const struct delivered_unseen unseen = {forget->hashes, forget->items, forget->n_items, forget->cut};
    if (delivered_unsee(&stored, &unseen) == 0) {
        return 0;
    }
    if (stored.n == 0) {
        return run_key(s, db_stmt(&h->db, SQL_DELIVERED_DELETE, err), forget->key, err);
    }
    return merge_write_deliveries(s, forget->key, &stored, err);
}

static int add_exception(struct sqlite_store *s, struct store_forget *forget, uint64_t hash)
{
    /* Raised before the commit, so that no question overlooks the new row. */
    atomic_fetch_add(&s->exceptions, 1);
    sqlite3_stmt *stmt = db_stmt(&s->historian.db, SQL_EXCEPTION_PUT, &forget->err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, (int64_t)hash);
    }
    return run_key(s, stmt, forget->key, &forget->err);
}

/* For the items that the filter has; NULL: for all. */
static int add_exceptions(struct sqlite_store *s, struct store_forget *forget, const struct filter *filter)
{
    int result = 0;
    for (size_t i = 0; i < forget->n_items && result == 0; i++) {
        bool has = filter == NULL || filter_has(filter, forget->hashes[i]);
        result = has ? add_exception(s, forget, forget->hashes[i]) : 0;
    }
    return result;
}

/* What is still to be taken over from another system may bring the items: whatever it brings is older. The user gets a
 * row in `users`, with which the exceptions stay, and with which they go. */
static int except_all(struct sqlite_store *s, struct store_forget *forget)
{
    const struct staged_walk user = {.key = forget->key, .user = forget->user};
    int64_t later, earlier;
    store_now(&s->base, &later, &earlier);
    int month = month_of_ms(later);
    int result = month_ensure(s, month, &forget->err);
    if (result == 0) {
        result = merge_users_row(s, &user, month, &forget->err);
    }
    return result == 0 ? add_exceptions(s, forget, NULL) : result;
}

static int forget_items(struct sqlite_store *s, struct store_forget *forget)
{
    struct historian *h = &s->historian;
    struct err *err = &forget->err;
    arena_reset(&h->arena);
    int result = forget_delivered(s, forget);
    enum store_note note = migration_users_of(&s->base, forget->key);
    if (result == 0 && (note == MIGRATION_WAITING || note == MIGRATION_LEFT)) {
        result = except_all(s, forget);
    }
    if (result == 0) {
        result = month_list(s, err);
    }
    for (int i = 0; i < h->n_months && result == 0; i++) {
        int table = month_table(&h->months[i], forget->key);
        sqlite3_stmt *stmt = db_stmt_for(&h->db, SQL_PLAY_GET, table, err);
        db_bind_key(stmt, forget->key);
        result = db_step(&h->db, stmt, err);
        if (result != 1) {
            continue;
        }
        struct slice blob = db_column_bytes(stmt, 0);
        struct filter filter;
        struct err why = {0};
        result = filter_decode(blob.data, blob.len, &h->arena, &filter, &why);
        sqlite3_reset(stmt);
        if (result == 0) {
            result = add_exceptions(s, forget, &filter);
        } else if (result == ERR_CORRUPT) {
            result = add_exceptions(s, forget, NULL);
        } else {
            err_set(err, result, "out of memory while forgetting");
        }
    }
    return result;
}

static struct store_forget *next_of(const struct store_forget *forget)
{
    return (struct store_forget *)forget->message.next;
}

static int in_transaction(struct sqlite_store *s, struct store_forget *first, struct err *err)
{
    bool known = false;
    int result = history_begin(s, err);
    if (result < 0) {
        return result;
    }
    for (struct store_forget *forget = first; forget != NULL && result == 0; forget = next_of(forget)) {
        result = forget->n_items == 0 ? forget_user(s, forget) : forget_items(s, forget);
        if (result < 0) {
            *err = forget->err;
        } else if (forget->answer > 0) {
            history_met(s, forget->before - 1);
            known = true;
        }
    }
    /* Not of a user who was never heard of: that needs no room on the disk. */
    if (result == 0 && known) {
        result = history_mark(s, err);
    }
    if (result < 0) {
        history_rollback(s);
        return result;
    }
    return history_commit(s, err);
}

/* All of the list or nothing. They are settled up to the last one; a list of which nothing was done is not settled, so
 * that no commit in between says so of a forget that is still to be done. */
static int erase(struct sqlite_store *s, struct store_forget *first, struct err *err)
{
    struct db *db = &s->historian.db;
    int64_t settled = s->historian.settled;
    for (const struct store_forget *forget = first; forget != NULL; forget = next_of(forget)) {
        history_settle(s, forget->id);
    }
    int result = history_full(s, true, err);
    if (result == 0) {
        result = db_pragma(db, "secure_delete", 1, err);
    }
    if (result == 0) {
        result = in_transaction(s, first, err);
    }
    struct err off = {0};
    if (!db->lost && (db_pragma(db, "secure_delete", 0, &off) < 0 || history_full(s, false, &off) < 0)) {
        log_warn("could not go back to synchronous=NORMAL", "error=%s", log_quote_str(off.text));
    }
    if (result < 0 && next_of(first) != NULL) {
        s->historian.settled = settled;
    }
    return result;
}

int forget_erase(struct sqlite_store *s, struct store_forget *forget)
{
    forget->message.next = NULL;
    forget->err = (struct err){0};
    return erase(s, forget, &forget->err); /* refused, it is settled too */
}

static void end(struct sqlite_store *s, struct store_forget *forget, int result)
{
    if (result < 0) {
        log_warn("forget failed", "error=%s", log_quote_str(forget->err.text));
    } else if (forget->n_items == 0) {
        COUNT(s, users_forgotten, forget->answer);
        history_recount_lower(s);
    } else {
        COUNT(s, items_forgotten, forget->answer);
    }
    if (result == 0) {
        backup_forgot(s, forget);
    }
    stager_forget_ended(s, forget->key);
    forget->done(forget);
}

void forgets_history(struct sqlite_store *s, struct store_forget *first)
{
    struct err err = {0};
    bool one = next_of(first) == NULL;
    int result = one ? -1 : erase(s, first, &err);
    for (struct store_forget *forget = first, *next; forget != NULL; forget = next) {
        next = next_of(forget);
        heartbeat_now(&s->historian.queue.task.heartbeat);
        end(s, forget, result == 0 ? 0 : forget_erase(s, forget)); /* alone: it may be another one's failure */
    }
}
