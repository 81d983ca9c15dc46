/* What a reader reads of staging.db, by a second connection that is opened when it is needed first: the notes that wait
 * and the problems, for the migration and its figures, and the feed, for its consumers. Questions
 * don't: what is staged they find in the indexes.
 */
#include "store/migration.h"
#include "store/sqlite/read/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/memos.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/pool_rows.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

static int begin(struct store_reader *r, struct err *err)
{
    struct sqlite_store *s = r->store;
    struct db *db = &r->staging;
    int result = db->handle == NULL ? db_open(db, s->folder, "staging", s->vfs, DB_READ, err) : 0;
    return result < 0 ? result : db_begin_read(db, err);
}

static int copy(struct arena *arena, struct slice from, struct slice *to, struct err *err)
{
    char *bytes = arena_copy(arena, from.data, from.len);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *to = slice_of(bytes, from.len);
    return 0;
}

/* Who they are. One whose note isn't durable yet is left out: they are in the next walk. */
static int read_users(struct db *db, const uint32_t *ids, int n, struct slice *users, struct arena *arena,
                      struct err *err)
{
    int found = 0, result = 0;
    for (int i = 0; i < n && result >= 0; i++) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_WAITING, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, ids[i]);
        }
        if ((result = db_step(db, stmt, err)) == 1) {
            result = copy(arena, db_column_bytes(stmt, 0), &users[found++], err);
            sqlite3_reset(stmt);
        }
    }
    return result < 0 ? result : found;
}

int reader_migration(struct store_reader *r, struct store_migration_walk *walk, struct slice *users, int max,
                     struct arena *arena, struct err *err)
{
    uint32_t *ids = arena_alloc(arena, (size_t)max * sizeof *ids);
    if (ids == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int found = 0;
    while (found == 0 && !walk->ended) {
        struct store_migration_walk before = *walk;
        int n = migration_users_waiting(r->store, walk, ids, max);
        if (n == 0) {
            continue;
        }
        if ((found = begin(r, err)) == 0) {
            found = db_end_read(&r->staging, read_users(&r->staging, ids, n, users, arena, err), err);
        }
        if (found < 0) {
            *walk = before; /* or those who could not be read would be passed over */
        }
    }
    return found;
}

static int list_problems(struct db *db, struct store_problem *out, int max, struct arena *arena, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_PROBLEMS, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, max);
    }
    int n = 0, result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct store_problem *p = &out[n++];
        p->at_ms = sqlite3_column_int64(stmt, 2);
        if ((result = copy(arena, db_column_bytes(stmt, 0), &p->key, err)) < 0 ||
            (result = copy(arena, db_column_bytes(stmt, 1), &p->what, err)) < 0) {
            sqlite3_reset(stmt);
            break;
        }
    }
    return result < 0 ? result : n;
}

int reader_problems(struct store_reader *r, struct store_problem *out, int max, struct arena *arena, struct err *err)
{
    int result = begin(r, err);
    return result < 0 ? result : db_end_read(&r->staging, list_problems(&r->staging, out, max, arena, err), err);
}

/* What a newer program has written, or a damage. */
static int unknown_kind(struct db *db, uint64_t seq, int kind, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_GET, err);
    char needs[32] = "the version that wrote it";
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, "feed_needs", -1, SQLITE_STATIC);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        snprintf(needs, sizeof needs, "%s", (const char *)sqlite3_column_text(stmt, 0));
        sqlite3_reset(stmt);
    }
    return result < 0 ? result
                      : err_set(err, ERR_VERSION,
                                "event %" PRIu64 " of the feed is of kind %d, which unseen " UNSEEN_VERSION
                                " doesn't know: use %s, or a later one",
                                seq, kind, needs);
}

static int list_events(struct db *db, uint64_t after, uint64_t last, struct feed_event *out, int max,
                       struct arena *arena, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_FROM, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)after);
        sqlite3_bind_int64(stmt, 2, (int64_t)last);
        sqlite3_bind_int(stmt, 3, max);
    }
    int n = 0, result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct feed_event *e = &out[n];
        int kind = sqlite3_column_int(stmt, 1);
        *e = (struct feed_event){.seq = (uint64_t)sqlite3_column_int64(stmt, 0),
                                 .kind = (enum feed_kind)kind,
                                 .at_ms = sqlite3_column_int64(stmt, 4)};
        e->recorded_ms = e->at_ms + sqlite3_column_int64(stmt, 5);
        bool known = kind >= FEED_PLAY && kind < FEED_KINDS;
        if (!known || (result = copy(arena, db_column_bytes(stmt, 2), &e->user, err)) < 0 ||
            (result = copy(arena, db_column_bytes(stmt, 3), &e->item, err)) < 0) {
            sqlite3_reset(stmt);
            result = known || n > 0 ? result : unknown_kind(db, e->seq, kind, err); /* those before it are fine */
            break;
        }
        if (kind == FEED_GROUPED) {
            e->kind = FEED_DELIVERY;
            if (!grouped_read(e->item, &e->item, &e->group)) {
                sqlite3_reset(stmt);
                return err_set(err, ERR_CORRUPT, "event %" PRIu64 " of the feed has no group and item", e->seq);
            }
        }
        n++;
    }
    return result < 0 ? result : n;
}

int reader_feed(struct store_reader *r, const char *consumer, uint64_t after, struct feed_event *out, int max,
                struct arena *arena, struct err *err)
{
    uint64_t last;
    if (!feed_range(r->store, consumer, &after, &last)) {
        return 0;
    }
    int n = begin(r, err);
    if (n == 0) {
        n = db_end_read(&r->staging, list_events(&r->staging, after, last, out, max, arena, err), err);
    }
    if (n > 0) {
        feed_was_read(r->store, consumer, after, out[0].recorded_ms);
    }
    return n;
}

static int find_mark(struct db *db, struct slice prefix, int64_t most, uint64_t *seq, struct err *err)
{
    char end[STORE_SOURCE_MAX];
    if (prefix.len == 0 || prefix.len > sizeof end) {
        return err_set(err, ERR_INVALID, "a source of %zu bytes, expected 1 to %zu", prefix.len, sizeof end);
    }
    memcpy(end, prefix.data, prefix.len);
    end[prefix.len - 1]++; /* the first name behind all that begin like this */
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_MARK, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, prefix);
        db_bind_id(stmt, 2, slice_of(end, prefix.len));
        sqlite3_bind_int64(stmt, 3, most);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        *seq = (uint64_t)sqlite3_column_int64(stmt, 0);
        result = sqlite3_column_type(stmt, 0) != SQLITE_NULL;
        sqlite3_reset(stmt);
    }
    return result;
}

int reader_feed_mark(struct store_reader *r, struct slice prefix, int64_t most, uint64_t *seq, struct err *err)
{
    int result = begin(r, err);
    return result < 0 ? result : db_end_read(&r->staging, find_mark(&r->staging, prefix, most, seq, err), err);
}

int reader_memo(struct store_reader *r, const char *name, struct buf *value, struct err *err)
{
    struct db *db = &r->staging;
    int result = begin(r, err);
    if (result < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    }
    if ((result = db_step(db, stmt, err)) == 1) {
        struct slice found = db_column_bytes(stmt, 0);
        result = found.len <= STORE_MEMO_MAX ? buf_add(value, found.data, found.len) : 0;
        sqlite3_reset(stmt);
        if (result < 0) {
            err_set(err, ERR_NOMEM, "out of memory");
        }
    }
    return db_end_read(db, result, err);
}

struct pool_walk {
    int (*each)(void *arg, const struct store_pool *pool, struct err *err);
    void (*bad)(void *arg, struct slice name, const char *what);
    void *arg;
};

static int pool_each(void *arg, const struct store_pool *pool, struct err *err)
{
    const struct pool_walk *walk = arg;
    return walk->each(walk->arg, pool, err);
}

static int pool_bad(void *arg, struct slice name, const char *what, struct err *err)
{
    const struct pool_walk *walk = arg;
    (void)err;
    walk->bad(walk->arg, name, what);
    return 0;
}

int reader_pools(struct store_reader *r, int (*each)(void *arg, const struct store_pool *pool, struct err *err),
                 void (*bad)(void *arg, struct slice name, const char *what), void *arg, struct err *err)
{
    struct pool_walk to = {each, bad, arg};
    const struct pool_rows_walk walk = {pool_each, pool_bad, &to};
    int result = begin(r, err);
    return result < 0 ? result : db_end_read(&r->staging, pool_rows_each(&r->staging, &walk, err), err);
}
