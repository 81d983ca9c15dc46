/* Notes: the users whose plays still stand in another Redis, and what has become of them.
 *
 * On disk they are a table of staging.db that is only appended to, since a table in the order of the users' keys would
 * have a page written for nearly every user of millions. In memory they are a set of keys (migration_set.h). Two users
 * with one 64-bit key are one note; the second is refused, and said so: such users share their filters anyway.
 *
 * The stager writes the file and the set, readers take a lock that is nearly never contended: who isn't noted while
 * others are costs one look-up, and while none is, one load of a counter.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/migration.h"
#include "store/sqlite/staging/migration_set.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

#define PAUSED "legacy_paused" /* in meta */

enum { AGAIN_STEP = 2000 };

struct migration_users {
    pthread_rwlock_t lock; /* guards set */
    struct migration_set set;
    _Atomic uint64_t all; /* the set's, without the lock */
    _Atomic uint64_t problems;
    _Atomic bool paused;
    /* the stager's: */
    uint32_t last_id;
    bool stale; /* a commit failed: the file is to be read again before the next change */
};

/* Only the stager changes the set, so it reads it without the lock, which it holds for single changes: readers never
 * wait for a commit, nor for a set that grows. */
static void replace(struct migration_users *n, struct migration_set *by)
{
    struct migration_set old = n->set;
    pthread_rwlock_wrlock(&n->lock);
    n->set = *by;
    pthread_rwlock_unlock(&n->lock);
    atomic_store_explicit(&n->all, by->counts[MIGRATION_NONE], memory_order_release);
    migration_set_free(&old);
}

static int reserve(struct migration_users *n, uint64_t more)
{
    struct migration_set grown;
    int result = migration_set_grow(&n->set, more, &grown);
    if (result > 0) {
        replace(n, &grown);
    }
    return result;
}

static void add(struct migration_users *n, int64_t key, uint32_t id)
{
    pthread_rwlock_wrlock(&n->lock);
    migration_set_put(&n->set, key, id, MIGRATION_WAITING);
    pthread_rwlock_unlock(&n->lock);
    atomic_store_explicit(&n->all, n->set.counts[MIGRATION_NONE], memory_order_release);
}

static void change(struct migration_users *n, uint64_t at, enum store_note state)
{
    pthread_rwlock_wrlock(&n->lock);
    migration_set_change(&n->set, at, state);
    pthread_rwlock_unlock(&n->lock);
}

/* --- at start and end --- */

static int64_t key_of(struct sqlite_store *s, sqlite3_stmt *stmt)
{
    return sqlite3_column_type(stmt, 1) == SQLITE_INTEGER ? sqlite3_column_int64(stmt, 1)
                                                          : hash_user_key(s->seed, db_column_bytes(stmt, 1));
}

static int read_all(struct sqlite_store *s, struct migration_set *set, struct err *err)
{
    struct migration_users *n = s->users_to_migrate;
    struct note_some some = {.n = 0};
    struct db *db = &s->stager.db;
    int result;
    sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_ALL, err);
    while ((result = db_step(db, stmt, err)) == 1) {
        int64_t id = sqlite3_column_int64(stmt, 0);
        int64_t state = sqlite3_column_int64(stmt, 2);
        if (id < 1 || id > MIGRATION_ID_MAX || state < 0 || state >= MIGRATION_STATES - MIGRATION_WAITING) {
            log_error("a row of the table noted can't be read", "id=%" PRId64 " state=%" PRId64, id, state);
            continue;
        }
        migration_set_put_later(set, &some, key_of(s, stmt), (uint32_t)id,
                                (enum store_note)(state + MIGRATION_WAITING));
        n->last_id = (uint32_t)id;
    }
    migration_set_put_some(set, &some);
    return result;
}

/* Reads the set from the file: at start, and when a commit's outcome is unknown. On an error the old one stays. */
static int load(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t rows = 0, problems = 0, paused = 0;
    int result = db_int(db, "SELECT count(*) FROM noted", &rows, err);
    if (result < 0 || (result = db_int(db, "SELECT count(*) FROM legacy_problems", &problems, err)) < 0 ||
        (result = db_meta_int(db, PAUSED, 0, 0, 1, &paused, err)) < 0) {
        return result;
    }
    struct migration_set set = {0};
    if (rows > 0) {
        if (migration_set_make(&set, (uint64_t)rows) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for %" PRId64 " noted users", rows);
        }
        if ((result = read_all(s, &set, err)) < 0) {
            migration_set_free(&set);
            return result;
        }
    }
    replace(s->users_to_migrate, &set);
    atomic_store(&s->users_to_migrate->problems, (uint64_t)problems);
    atomic_store(&s->users_to_migrate->paused, paused != 0);
    s->users_to_migrate->stale = false;
    return 0;
}

int migration_users_open(struct sqlite_store *s, struct err *err)
{
    s->users_to_migrate = calloc(1, sizeof *s->users_to_migrate);
    if (s->users_to_migrate == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    pthread_rwlock_init(&s->users_to_migrate->lock, NULL);
    return load(s, err);
}

void migration_users_close(struct sqlite_store *s)
{
    if (s->users_to_migrate != NULL) {
        pthread_rwlock_destroy(&s->users_to_migrate->lock);
        migration_set_free(&s->users_to_migrate->set);
        free(s->users_to_migrate);
        s->users_to_migrate = NULL;
    }
}

/* --- any thread --- */

enum store_note migration_users_of(struct store *base, int64_t key)
{
    struct migration_users *n = sqlite_store(base)->users_to_migrate;
    if (atomic_load_explicit(&n->all, memory_order_acquire) == 0) {
        return MIGRATION_NONE;
    }
    enum store_note state = MIGRATION_NONE;
    uint64_t at;
    pthread_rwlock_rdlock(&n->lock);
    if (migration_set_find(&n->set, key, &at)) {
        state = migration_set_state(&n->set, at);
    }
    pthread_rwlock_unlock(&n->lock);
    return state;
}

void migration_users_state(struct store *base, struct store_migration_counts *out)
{
    struct migration_users *n = sqlite_store(base)->users_to_migrate;
    pthread_rwlock_rdlock(&n->lock);
    const uint64_t *counts = n->set.counts;
    *out = (struct store_migration_counts){.all = counts[MIGRATION_NONE],
                                           .waiting = counts[MIGRATION_WAITING],
                                           .done = counts[MIGRATION_DONE],
                                           .left = counts[MIGRATION_LEFT],
                                           .ended = counts[MIGRATION_ENDED]};
    pthread_rwlock_unlock(&n->lock);
    out->problems = atomic_load(&n->problems);
    out->paused = atomic_load(&n->paused);
}

void migration_users_write(struct store *base, struct store_migration_change *users_to_migrate)
{
    users_to_migrate->call.err = (struct err){0};
    users_to_migrate->changed = users_to_migrate->forgotten = 0;
    users_to_migrate->call.message.kind = STORE_CALL;
    users_to_migrate->call.message.what = WANTS_MIGRATION;
    thread_queue_put(&sqlite_store(base)->stager.queue, &users_to_migrate->call.message);
}

/* --- the stager's --- */

/* What was erased must not come back by a list that is older than that: only an explicit wish notes that user again. */
static int add_forgotten(struct sqlite_store *s, struct store_migration_change *users_to_migrate, uint64_t at, size_t i)
{
    struct migration_users *n = s->users_to_migrate;
    if (!users_to_migrate->forgotten_too) {
        users_to_migrate->forgotten++;
        return 0;
    }
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_NOTED_REVIVE, &users_to_migrate->call.err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, migration_set_id(&n->set, at));
        db_bind_id(stmt, 2, users_to_migrate->users[i]);
    }
    int result = db_run(&s->stager.db, stmt, &users_to_migrate->call.err);
    if (result == 0) {
        change(n, at, MIGRATION_WAITING);
        users_to_migrate->changed++;
    }
    return result;
}

/* The set takes the change at once, so that a repeat within the same list is seen; when the commit then fails, it is
 * read from the file again. */
static int add_users(struct sqlite_store *s, struct store_migration_change *users_to_migrate)
{
    struct migration_users *n = s->users_to_migrate;
    struct db *db = &s->stager.db;
    if (reserve(n, users_to_migrate->n) < 0) {
        return err_set(&users_to_migrate->call.err, ERR_NOMEM, "out of memory for %zu notes", users_to_migrate->n);
    }
    for (size_t i = 0; i < users_to_migrate->n; i++) {
        int64_t key = hash_user_key(s->seed, users_to_migrate->users[i]);
        uint64_t at;
        if (migration_set_find(&n->set, key, &at)) {
            int result =
                migration_set_state(&n->set, at) == MIGRATION_ENDED ? add_forgotten(s, users_to_migrate, at, i) : 0;
            if (result < 0) {
                return result;
            }
            continue;
        }
        if (!users_to_migrate->forgotten_too && tombstones_user_ms(s->tombstones, key) != INT64_MIN) {
            users_to_migrate->forgotten++; /* before it was ever noted */
            continue;
        }
        if (n->last_id == MIGRATION_ID_MAX) {
            return err_set(&users_to_migrate->call.err, ERR_FULL, "no more than %u users can be noted",
                           MIGRATION_ID_MAX);
        }
        sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_INSERT, &users_to_migrate->call.err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, (int64_t)n->last_id + 1);
            db_bind_id(stmt, 2, users_to_migrate->users[i]);
        }
        int result = db_run(db, stmt, &users_to_migrate->call.err);
        if (result < 0) {
            return result;
        }
        add(n, key, ++n->last_id);
        users_to_migrate->changed++;
    }
    return 0;
}

static int write_state(struct sqlite_store *s, uint64_t at, enum store_note state, struct err *err)
{
    struct migration_users *n = s->users_to_migrate;
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_NOTED_MARK, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, migration_set_id(&n->set, at));
        sqlite3_bind_int64(stmt, 2, state - MIGRATION_WAITING);
    }
    int result = db_run(&s->stager.db, stmt, err);
    if (result == 0) {
        change(n, at, state);
    }
    return result;
}

/* An ended one stays so. */
static int mark_users(struct sqlite_store *s, struct store_migration_change *users_to_migrate)
{
    struct migration_set *set = &s->users_to_migrate->set;
    int result = 0;
    for (size_t i = 0; i < users_to_migrate->n && result == 0; i++) {
        uint64_t at;
        if (migration_set_find(set, hash_user_key(s->seed, users_to_migrate->users[i]), &at) &&
            migration_set_state(set, at) != MIGRATION_ENDED &&
            migration_set_state(set, at) != users_to_migrate->state) {
            result = write_state(s, at, users_to_migrate->state, &users_to_migrate->call.err);
            users_to_migrate->changed++;
        }
    }
    return result;
}

/* A part of the set's slots a call. */
static int begin_again(struct sqlite_store *s, struct store_migration_change *users_to_migrate)
{
    struct migration_set *set = &s->users_to_migrate->set;
    struct db *db = &s->stager.db;
    int result = 0;
    uint64_t at = users_to_migrate->more;
    if (at == 0) {
        result = db_run(db, db_stmt(db, SQL_NOTED_PROBLEMS_DELETE, &users_to_migrate->call.err),
                        &users_to_migrate->call.err);
        atomic_store(&s->users_to_migrate->problems, 0);
    }
    for (; at < set->slots && users_to_migrate->changed < AGAIN_STEP && result == 0; at++) {
        enum store_note state = migration_set_state(set, at);
        if (state == MIGRATION_DONE || state == MIGRATION_LEFT) {
            result = write_state(s, at, MIGRATION_WAITING, &users_to_migrate->call.err);
            users_to_migrate->changed++;
        }
    }
    users_to_migrate->more = at < set->slots ? at : 0;
    return result;
}

static int write_problem(struct db *db, enum sql_statement sql, const struct store_problem *p, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, sql, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, p->key);
        sqlite3_bind_text(stmt, 2, p->what.data, (int)p->what.len, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 3, clock_wall_ms());
    }
    return db_run(db, stmt, err);
}

/* Each key once. Beyond so many, new ones are no longer listed; their finder counts them. */
static int add_problems(struct sqlite_store *s, struct store_migration_change *users_to_migrate)
{
    struct db *db = &s->stager.db;
    struct err *err = &users_to_migrate->call.err;
    int result = 0;
    for (size_t i = 0; i < users_to_migrate->n && result == 0; i++) {
        bool is_new = false;
        if (atomic_load(&s->users_to_migrate->problems) < STORE_PROBLEMS_MAX) {
            result = write_problem(db, SQL_NOTED_PROBLEM_NEW, &users_to_migrate->problems[i], err);
            is_new = result == 0 && sqlite3_changes(db->handle) > 0;
        }
        if (is_new) {
            atomic_fetch_add(&s->users_to_migrate->problems, 1);
            users_to_migrate->changed++;
        } else if (result == 0) {
            result = write_problem(db, SQL_NOTED_PROBLEM_AGAIN, &users_to_migrate->problems[i], err);
        }
    }
    return result;
}

static int set_paused(struct sqlite_store *s, struct store_migration_change *users_to_migrate)
{
    int result = db_meta_set_int(&s->stager.db, PAUSED, users_to_migrate->paused, &users_to_migrate->call.err);
    if (result == 0) {
        atomic_store(&s->users_to_migrate->paused, users_to_migrate->paused);
    }
    return result;
}

static int refresh(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db->lost ? db_reopen(db, err) : 0;
    return result < 0 ? result : load(s, err);
}

static void carry_out(struct sqlite_store *s, struct store_migration_change *users_to_migrate)
{
    static int (*const work[])(struct sqlite_store * s, struct store_migration_change * users_to_migrate) = {
        [MIGRATION_ADD] = add_users,         [MIGRATION_MARK] = mark_users,  [MIGRATION_AGAIN] = begin_again,
        [MIGRATION_PROBLEMS] = add_problems, [MIGRATION_PAUSE] = set_paused,
    };
    struct db *db = &s->stager.db;
    struct err *err = &users_to_migrate->call.err;
    int result = s->users_to_migrate->stale ? refresh(s, err) : 0;
    if (result == 0 && (result = db_begin(db, err)) == 0) {
        if ((result = work[users_to_migrate->kind](s, users_to_migrate)) == 0) {
            result = db_commit(db, err);
        } else {
            db_rollback(db);
        }
        if (result < 0) {
            struct err again = {0};
            s->users_to_migrate->stale = true;
            if (refresh(s, &again) < 0) {
                log_error("can't read the table noted again", "error=%s", log_quote_str(again.text));
            }
        }
    }
}

void migration_users_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_migration_change *users_to_migrate = (struct store_migration_change *)m;
    carry_out(s, users_to_migrate);
    users_to_migrate->call.done(&users_to_migrate->call);
}

int migration_users_add(struct sqlite_store *s, const struct slice *users, size_t n, struct err *err)
{
    struct store_migration_change users_to_migrate = {.kind = MIGRATION_ADD, .users = users, .n = n};
    carry_out(s, &users_to_migrate);
    return users_to_migrate.call.err.code < 0
               ? err_set(err, users_to_migrate.call.err.code, "%s", users_to_migrate.call.err.text)
               : 0;
}

int migration_users_end(struct sqlite_store *s, int64_t key, struct err *err)
{
    const struct migration_set *set = &s->users_to_migrate->set;
    uint64_t at;
    if (!migration_set_find(set, key, &at)) {
        return 0;
    }
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_NOTED_END, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, migration_set_id(set, at));
        sqlite3_bind_int64(stmt, 2, key);
    }
    return db_run(&s->stager.db, stmt, err);
}

void migration_users_ended(struct sqlite_store *s, int64_t key)
{
    uint64_t at;
    if (migration_set_find(&s->users_to_migrate->set, key, &at)) {
        change(s->users_to_migrate, at, MIGRATION_ENDED);
    }
}

/* --- the migration's --- */

int migration_users_waiting(struct sqlite_store *s, struct store_migration_walk *walk, uint32_t *ids, int max)
{
    struct migration_users *n = s->users_to_migrate;
    pthread_rwlock_rdlock(&n->lock);
    int found = migration_set_waiting(&n->set, walk, ids, max);
    pthread_rwlock_unlock(&n->lock);
    return found;
}
