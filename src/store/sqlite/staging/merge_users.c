/* MERGE, the stager's half. Three steps, each durable before the next:
 *
 *   1  here: a row of `merges` says what is to be done.
 *   2  the historian unites both (history/merge_users.c).
 *   3  here: the row goes, and the feed tells that more is known of `into`. With FORGET this is in the transaction of
 * an ordinary forget of `from` (forget.c), whose event comes behind: no replica ever hides less than it did.
 *
 * A start carries out what is in `merges`, before any flush, and before a question is answered. That is a union, so it
 * doesn't matter how far it had come.
 *
 * From the first step to the last no other forget or merge of either user begins (as of forgets, by counters), so a
 * start need not order them. No row of `from` is written either: it would be united too soon, or be forgotten without
 * being in `into`. Batches that have one are held, with what comes behind them, for the milliseconds that it takes.
 * With FORGET the historian imports and loads no user from step 2 on.
 *
 * A merge that is refused, or whose last step fails, is answered with that error. Its row must not be carried out
 * later, when `from` has newer plays: it is deleted by the next transaction that succeeds, without which nothing is
 * recorded.
 */
#include "base/log.h"
#include "store/migration.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staged_row.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum { UNDO_AT_ONCE = 64 };

static struct store_merge *merge_of(struct store_message *m)
{
    return (struct store_merge *)m;
}

static void answer(struct store_merge *merge)
{
    if (merge->err.code < 0) {
        log_warn("merge failed", "error=%s", log_quote_str(merge->err.text));
    }
    merge->done(merge);
}

static void undo_later(struct sqlite_store *s)
{
    stager_undo_later(s, s->stager.next_id, s->stager.next_id);
    s->stager.undo_merges = true;
}

/* --- step 1 --- */

static int check_migrated(struct sqlite_store *s, int64_t key, struct slice user, struct err *err)
{
    enum store_note note = migration_users_of(&s->base, key);
    return note == MIGRATION_WAITING || note == MIGRATION_LEFT
               ? err_set(err, ERR_CONFLICT, "user %s is still to be migrated", log_quote(user))
               : 0;
}

static int check(struct sqlite_store *s, struct store_merge *merge)
{
    struct err *err = &merge->err;
    int result = merge->from_key != merge->into_key || !slice_eq(merge->from, merge->into)
                     ? 0
                     : err_set(err, ERR_INVALID, "%s can't be merged into itself", log_quote(merge->from));
    if (result == 0 && (result = stager_disk_room(s, err)) == 0 && (result = store_time_known(&s->base, err)) == 0 &&
        (result = check_migrated(s, merge->from_key, merge->from, err)) == 0) {
        result = check_migrated(s, merge->into_key, merge->into, err);
    }
    return result == 0 && merge->forgets ? stager_check_shared(s, merge->from_key, merge->from, err) : result;
}

static void refuse(struct sqlite_store *s, struct store_merge *merge)
{
    stager_forget_ended(s, merge->from_key);
    stager_forget_ended(s, merge->into_key);
    answer(merge);
}

static int put_row(struct sqlite_store *s, struct store_merge *merge, struct err *err)
{
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MERGE_PUT, err);
    merge->id = ++s->stager.merge_id;
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)merge->id);
        db_bind_id(stmt, 2, merge->from);
        db_bind_id(stmt, 3, merge->into);
        sqlite3_bind_int(stmt, 4, merge->forgets);
    }
    return db_run(db, stmt, err);
}

static int put_rows(struct sqlite_store *s, struct store_message *first, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db->lost ? db_reopen(db, err) : 0;
    if (result < 0 || (result = db_begin(db, err)) < 0) {
        return result;
    }
    result = stager_undo(s, err);
    for (struct store_message *m = first; m != NULL && result == 0; m = m->next) {
        result = put_row(s, merge_of(m), err);
    }
    if (result < 0) {
        db_rollback(db);
    } else {
        result = db_commit(db, err);
    }
    stager_undo_ended(s, result == 0);
    if (result < 0) {
        undo_later(s);
    }
    return result;
}

void stager_merges(struct sqlite_store *s, struct store_message *first)
{
    struct store_message *good = NULL, **last = &good, *next;
    struct err err = {0};
    for (struct store_message *m = first; m != NULL; m = next) {
        struct store_merge *merge = merge_of(m);
        next = m->next;
        merge->err = (struct err){0};
        merge->answer = 0;
        merge->united = false;
        heartbeat_now(&s->stager.queue.task.heartbeat);
        if (check(s, merge) < 0) {
            refuse(s, merge);
        } else {
            *last = m;
            last = &m->next;
        }
    }
    *last = NULL;
    if (good == NULL) {
        return;
    }
    int result = put_rows(s, good, &err);
    stager_note_commit(s, &err);
    for (struct store_message *m = good; m != NULL; m = next) {
        struct store_merge *merge = merge_of(m);
        next = m->next;
        if (result < 0) {
            merge->err = err;
            refuse(s, merge);
        } else {
            merge->next = s->stager.merges;
            s->stager.merges = merge;
            thread_queue_put(&s->historian.queue, m);
        }
    }
}

bool merges_hold(const struct sqlite_store *s, const struct store_batch *batch)
{
    struct store_event event;
    size_t at = 0;
    while (s->stager.merges != NULL && store_batch_next(batch, &at, &event)) {
        for (const struct store_merge *m = s->stager.merges; m != NULL; m = m->next) {
            if (m->from_key == event.key) {
                return true;
            }
        }
    }
    return false;
}

/* --- step 2: the historian's thread --- */

void merge_united(struct sqlite_store *s, struct store_merge *merge, const struct err *barrier)
{
    if (merge->err.code == 0 && barrier->code < 0) {
        merge->err = *barrier;
    }
    if (merge->forgets && merge->err.code == 0) {
        atomic_fetch_add(&s->leaving, 1);
    }
    merge->message.what = WANTS_MERGED;
    thread_queue_put(&s->stager.queue, &merge->message);
}

/* --- step 3 --- */

static void left(struct sqlite_store *s)
{
    atomic_fetch_sub(&s->leaving, 1);
    thread_queue_wake(&s->historian.queue); /* it goes on to import */
}

/* `from` is forgotten, or not: then, if that was found before anything was written, the row is still there, and this is
 * the stager's thread. */
static void on_forgotten(struct store_forget *forget)
{
    struct store_merge *merge = forget->merge;
    struct sqlite_store *s = forget->owner;
    merge->err = forget->err;
    merge->seq = forget->seq;
    left(s);
    if (merge->id == 0) {
        answer(merge);
        return;
    }
    stager_forget_begun(s, merge->from_key); /* its own, that the forget has ended */
    merge->message.next = s->stager.united;
    s->stager.united = &merge->message;
}

void merge_take(struct sqlite_store *s, struct store_merge *merge)
{
    struct store_message **list = &s->stager.united;
    if (merge->forgets && merge->err.code == 0) {
        merge->leaving = (struct store_forget){.message = {.kind = STORE_FORGET},
                                               .key = merge->from_key,
                                               .user = merge->from,
                                               .merge = merge,
                                               .done = on_forgotten,
                                               .owner = s};
        merge->leaving.message.next = s->stager.leaves;
        s->stager.leaves = &merge->leaving.message;
        return;
    }
    merge->message.next = *list;
    *list = &merge->message;
}

static int delete_row(struct sqlite_store *s, uint64_t id, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_MERGE_DELETE, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)id);
    }
    return db_run(&s->stager.db, stmt, err);
}

static int add_end(struct sqlite_store *s, struct store_merge *merge, uint64_t *id, struct err *err)
{
    int result = delete_row(s, merge->id, err);
    if (result == 0 && merge->united && feed_takes(s)) {
        result = feed_add_user(s, merge->into, (*id)++, err);
    }
    return result;
}

/* It is under way no more, but for the forget. */
static void take_out(struct sqlite_store *s, struct store_merge *merge)
{
    struct store_merge **at = &s->stager.merges;
    while (*at != merge) {
        at = &(*at)->next;
    }
    *at = merge->next;
    merge->id = 0;
    stager_forget_ended(s, merge->into_key);
}

void merge_refuse(struct sqlite_store *s, struct store_merge *merge, const struct err *err)
{
    merge->err = *err;
    take_out(s, merge);
    stager_forget_ended(s, merge->from_key);
    answer(merge);
}

static int add_ends(struct sqlite_store *s, void *arg, uint64_t *id, struct err *err)
{
    int result = 0;
    for (struct store_message *m = arg; m != NULL && result == 0; m = m->next) {
        struct store_merge *merge = merge_of(m);
        result = add_end(s, merge, id, err);
        merge->seq = *id - 1;
    }
    return result;
}

static void end_united(struct sqlite_store *s)
{
    struct store_message *first = s->stager.united, *next;
    struct err err = {0};
    uint64_t last;
    s->stager.united = NULL;
    if (feed_transaction(s, add_ends, first, &last, &err) < 0) {
        undo_later(s);
    }
    stager_note_commit(s, &err);
    for (struct store_message *m = first; m != NULL; m = next) {
        struct store_merge *merge = merge_of(m);
        next = m->next;
        merge->err = merge->err.code < 0 ? merge->err : err;
        take_out(s, merge);
        stager_forget_ended(s, merge->from_key);
        answer(merge);
    }
}

void merges_end(struct sqlite_store *s)
{
    struct store_message *leaves = s->stager.leaves;
    s->stager.leaves = NULL;
    if (leaves != NULL) {
        stager_forgets(s, leaves);
    }
    if (s->stager.united != NULL) {
        end_united(s);
    }
}

int merge_write_end(struct sqlite_store *s, struct store_merge *merge, struct err *err)
{
    return add_end(s, merge, &s->stager.next_id, err);
}

void merge_written(struct sqlite_store *s, struct store_merge *merge)
{
    store_raise_left(s, merge->leaving.seq); /* what `into` got was never in memory */
    take_out(s, merge);
}

/* --- after a commit that failed --- */

static bool is_under_way(const struct sqlite_store *s, uint64_t id)
{
    const struct store_merge *m = s->stager.merges;
    while (m != NULL && m->id != id) {
        m = m->next;
    }
    return m != NULL;
}

int merges_undo(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    uint64_t ids[UNDO_AT_ONCE];
    int n, result;
    do {
        sqlite3_stmt *stmt = db_stmt(db, SQL_MERGES_ALL, err);
        for (n = 0; n < UNDO_AT_ONCE && (result = db_step(db, stmt, err)) == 1;) {
            uint64_t id = (uint64_t)sqlite3_column_int64(stmt, 0);
            if (!is_under_way(s, id)) {
                ids[n++] = id;
            }
        }
        if (n == UNDO_AT_ONCE) {
            sqlite3_reset(stmt);
            result = 0;
        }
        for (int i = 0; i < n && result == 0; i++) {
            result = delete_row(s, ids[i], err);
        }
    } while (result == 0 && n == UNDO_AT_ONCE);
    return result;
}

/* --- at a start, before threads --- */

/* A row of the table, with copies of its ids. 1; 0: there is none; ERR_CORRUPT: it is no row of ours. */
struct open_merge {
    struct store_merge merge;
    char from[HASH_ID_MAX], into[HASH_ID_MAX];
};

static bool copy_id(sqlite3_stmt *stmt, int column, char *bytes, struct slice *out)
{
    struct slice id = db_column_bytes(stmt, column);
    bool good = id.len >= 1 && id.len <= HASH_ID_MAX;
    if (good) {
        memcpy(bytes, id.data, id.len);
        *out = slice_of(bytes, id.len);
    }
    return good;
}

static int read_first(struct sqlite_store *s, struct open_merge *o, struct err *err)
{
    struct db *db = &s->stager.db;
    struct store_merge *merge = &o->merge;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MERGES_ALL, err);
    *merge = (struct store_merge){.id = 0};
    int result = db_step(db, stmt, err);
    if (result != 1) {
        return result;
    }
    merge->id = (uint64_t)sqlite3_column_int64(stmt, 0);
    merge->forgets = sqlite3_column_int64(stmt, 3) == 1;
    bool good = copy_id(stmt, 1, o->from, &merge->from) && copy_id(stmt, 2, o->into, &merge->into);
    sqlite3_reset(stmt);
    merge->from_key = hash_user_key(s->seed, merge->from);
    merge->into_key = hash_user_key(s->seed, merge->into);
    return good ? 1 : err_set(err, ERR_CORRUPT, "%s: a row of merges can't be read: unseen check --repair", db->path);
}

/* The rows of the slot's tables that are the user's; those that can't be read are set aside later. NULL: none. */
static int read_slot(struct sqlite_store *s, int slot, struct slice user, struct staged **index, struct err *err)
{
    struct db *db = &s->stager.db;
    struct staged_months months = {0};
    int result = 0;
    *index = NULL;
    for (int part = 0; part < s->slots[slot].parts.n && result == 0; part++) {
        sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_OF_USER, slot_table(slot, part), err);
        if (stmt != NULL) {
            db_bind_id(stmt, 1, user);
        }
        while ((result = db_step(db, stmt, err)) == 1) {
            struct staged_row row;
            if (staged_row_read(stmt, s->seed, &months, &row) != NULL) {
                continue;
            }
            *index = *index != NULL ? *index : staged_new(row.id);
            bool fits = *index != NULL && staged_fits(*index, row.id, row.month);
            if (*index == NULL || (fits && staged_row_add(*index, &row) < 0)) {
                sqlite3_reset(stmt);
                return err_set(err, ERR_NOMEM, "out of memory while merging users");
            }
        }
    }
    return result;
}

static int unite(struct sqlite_store *s, struct store_merge *merge, struct err *err)
{
    struct staged *slots[STORE_SLOTS_MAX];
    int n = 0, result = 0;
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        result = read_slot(s, i, merge->from, &slots[n], err);
        n += slots[n] != NULL;
    }
    if (result == 0 && (result = merge_users_staged(s, merge, slots, n)) == 0) {
        result = history_barrier(s, &merge->err);
    }
    for (int i = 0; i < n; i++) {
        staged_free(slots[i]);
    }
    return result < 0 && merge->err.code < 0 ? err_set(err, result, "%s", merge->err.text) : result;
}

/* The end of the row, and the forget, whose half of history is carried out behind this, as of any. */
static int write_end(struct sqlite_store *s, void *arg, uint64_t *id, struct err *err)
{
    struct store_merge *merge = arg;
    struct store_forget *forget = &merge->leaving;
    int result = add_end(s, merge, id, err);
    if (result < 0 || !merge->forgets) {
        return result;
    }
    uint64_t fed = feed_forget_ids(s, forget);
    forget->id = forget->before = *id;
    *id += fed > 0 ? fed : 1;
    forget->seq = *id - 1;
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        for (int part = 0; part < s->slots[slot].parts.n && result == 0; part++) {
            sqlite3_stmt *stmt = db_stmt_for(&s->stager.db, SQL_STAGED_DELETE_USER, slot_table(slot, part), err);
            if (stmt != NULL) {
                db_bind_id(stmt, 1, merge->from);
            }
            result = db_run(&s->stager.db, stmt, err);
        }
    }
    if (result == 0) {
        result = forgets_write(s, forget, err);
    }
    if (result == 0 && fed > 0) {
        result = feed_add_forget(s, forget, forget->id, err);
    }
    if (result == 0 && migration_users_of(&s->base, forget->key) != MIGRATION_NONE) {
        result = migration_users_end(s, forget->key, err);
    }
    return result == 0 ? db_meta_raise(&s->stager.db, "high_water", (int64_t)*id - 1, err) : result;
}

static int end(struct sqlite_store *s, struct store_merge *merge, struct err *err)
{
    struct store_forget *forget = &merge->leaving;
    struct db *db = &s->stager.db;
    int64_t earlier;
    uint64_t last;
    *forget = (struct store_forget){.key = merge->from_key, .user = merge->from};
    store_now(&s->base, &forget->at_ms, &earlier);
    int result = forgets_reserve(s, 1, err);
    if (result < 0 || (result = db_pragma(db, "secure_delete", 1, err)) < 0) {
        return result;
    }
    feed_await_absent(s, true);
    result = feed_transaction(s, write_end, merge, &last, err);
    feed_await_absent(s, false);
    if (result == 0 && merge->forgets) {
        forgets_written(s, forget);
        feed_forgot(s, forget);
        migration_users_ended(s, forget->key);
    }
    return result < 0 ? result : db_pragma(db, "secure_delete", 0, err);
}

/* What can't be carried out would have been refused. */
static int carry_out(struct sqlite_store *s, struct store_merge *merge, struct err *err)
{
    int result = unite(s, merge, err);
    if (result == ERR_CONFLICT || result == ERR_CORRUPT) {
        log_warn("merge failed", "error=%s", log_quote_str(err->text));
        *err = (struct err){0};
        merge->forgets = merge->united = false;
        result = 0;
    }
    return result < 0 ? result : end(s, merge, err);
}

int merges_open(struct sqlite_store *s, struct err *err)
{
    struct open_merge open;
    int n = 0, result;
    while ((result = read_first(s, &open, err)) == 1) {
        if ((result = carry_out(s, &open.merge, err)) < 0) {
            return result;
        }
        n++;
    }
    if (n > 0 && result == 0) {
        log_info("merges carried out that the end of the last run had interrupted", "n=%d", n);
    }
    return result;
}
