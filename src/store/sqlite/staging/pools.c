/* Writing pools (store/pools.h), on the stager's thread.
 *
 * Plays wait for whatever the stager does, so a pool is written in pieces, each in a transaction of its own, and the
 * stager looks at its queue in between. Pieces lie where no pool has its place (SET), or behind the parts that its pool
 * has (ADD), and so belong to none until the last transaction writes the row of `pools`, takes out the parts that
 * are replaced, and appends the event to the feed.
 *
 * What can go wrong. A crash, or an error, leaves parts that belong to none: the first change after a start or an
 * error deletes them. A commit of unknown outcome may have exchanged the pool, although that was answered as an error:
 * nothing is kept in memory here, each change reads the row as it is in the file, and one that goes by what was there
 * (ADD, RENAME) is refused where that is something else.
 */
#include "store/pools.h"
#include "base/log.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/pool_rows.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum { PIECE_BYTES = 512 * 1024 };

struct row {
    bool exists;
    int64_t place, parts;
    uint64_t version;
};

static int find(struct db *db, struct slice name, struct row *row, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POOL_GET, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, name);
    }
    int result = db_step(db, stmt, err);
    *row = (struct row){.exists = result == 1};
    if (result == 1) {
        row->place = sqlite3_column_int64(stmt, 0);
        row->parts = sqlite3_column_int64(stmt, 1);
        row->version = (uint64_t)sqlite3_column_int64(stmt, 2);
        sqlite3_reset(stmt);
    }
    return result < 0 ? result : 0;
}

static int delete_parts(struct db *db, int64_t place, int64_t from, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POOL_PARTS_DELETE, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, place * POOL_ROWS_PARTS + from);
        sqlite3_bind_int64(stmt, 2, place * POOL_ROWS_PARTS + POOL_ROWS_PARTS - 1);
    }
    return db_run(db, stmt, err);
}

static int delete_row(struct db *db, struct slice name, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POOL_DELETE, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, name);
    }
    return db_run(db, stmt, err);
}

static int put_row(struct db *db, struct slice name, int64_t place, int64_t parts, const struct store_pool *pool,
                   struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POOL_PUT, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, name);
        sqlite3_bind_int64(stmt, 2, place);
        sqlite3_bind_int64(stmt, 3, parts);
        sqlite3_bind_int64(stmt, 4, (int64_t)pool->n);
        sqlite3_bind_int64(stmt, 5, (int64_t)pool->version);
        sqlite3_bind_int64(stmt, 6, pool->changed_ms);
    }
    return db_run(db, stmt, err);
}

static int tell(struct sqlite_store *s, struct slice name, uint64_t *id, struct err *err)
{
    return feed_takes(s) ? feed_add_pool(s, name, (*id)++, err) : 0;
}

static int check_before(const struct store_pool_change *c, const struct row *row, struct err *err)
{
    bool same = row->exists && row->version == c->before;
    return same ? 0
                : err_set(err, ERR_INVALID,
                          "pool %s is not on the disk as it is in memory, since an earlier change of it failed: set it "
                          "again",
                          log_quote(c->pool.name));
}

/* --- the beginning: where its parts go --- */

static int begin(struct sqlite_store *s, struct store_pool_change *c, struct err *err)
{
    struct db *db = &s->stager.db;
    struct row row;
    int64_t place = 0;
    int result = s->stager.pool_parts_left ? db_run(db, db_stmt(db, SQL_POOL_PARTS_LEFT, err), err) : 0;
    if (result < 0 || (result = find(db, c->pool.name, &row, err)) < 0) {
        return result;
    }
    if (c->kind == STORE_POOL_ADD || c->kind == STORE_POOL_RENAME) {
        if ((result = check_before(c, &row, err)) < 0) {
            return result;
        }
        c->place = (uint64_t)row.place;
        c->parts = (uint64_t)row.parts;
        return delete_parts(db, row.place, row.parts, err);
    }
    if ((result = db_int(db, sql_statements[SQL_POOL_FREE_PLACE], &place, err)) == 0) {
        c->place = (uint64_t)place;
    }
    return result;
}

/* --- pieces --- */

static int write_piece(struct db *db, struct store_pool_change *c, size_t n, struct err *err)
{
    if (c->parts == POOL_ROWS_PARTS) {
        return err_set(err, ERR_RANGE, "pool %s was added to %d times: set it again", log_quote(c->pool.name),
                       POOL_ROWS_PARTS);
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_POOL_PART_PUT, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)(c->place * POOL_ROWS_PARTS + c->parts));
        sqlite3_bind_blob64(stmt, 2, c->pool.items.data + c->written, n, SQLITE_STATIC);
    }
    return db_run(db, stmt, err);
}

/* --- the end --- */

static int exchange(struct sqlite_store *s, const struct store_pool_change *c, uint64_t *id, struct err *err)
{
    struct db *db = &s->stager.db;
    struct slice name = c->kind == STORE_POOL_RENAME ? c->to : c->pool.name;
    struct row old;
    int result = find(db, name, &old, err);
    if (result == 0 && old.exists && old.place != (int64_t)c->place) {
        result = delete_parts(db, old.place, 0, err);
    }
    if (result == 0 && (c->kind == STORE_POOL_DROP || c->kind == STORE_POOL_RENAME)) {
        result = delete_row(db, c->pool.name, err);
        result = result < 0 ? result : tell(s, c->pool.name, id, err);
    }
    if (result == 0 && c->kind != STORE_POOL_DROP) {
        result = put_row(db, name, (int64_t)c->place, (int64_t)c->parts, &c->pool, err);
        result = result < 0 ? result : tell(s, name, id, err);
    }
    return result;
}

static bool is_last(const struct store_pool_change *c, size_t n)
{
    return c->written + n == c->pool.items.len;
}

static size_t piece_of(const struct store_pool_change *c)
{
    size_t left = c->pool.items.len - c->written;
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static int step(struct sqlite_store *s, void *arg, uint64_t *id, struct err *err)
{
    struct store_pool_change *c = arg;
    size_t n = piece_of(c);
    int result = c->place == 0 ? begin(s, c, err) : 0;
    if (result == 0 && n > 0 && (result = write_piece(&s->stager.db, c, n, err)) == 0) {
        c->parts++;
    }
    return result == 0 && is_last(c, n) ? exchange(s, c, id, err) : result;
}

void pool_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_pool_change *c = (struct store_pool_change *)m;
    size_t n = piece_of(c);
    bool last = is_last(c, n);
    int result = c->kind == STORE_POOL_DROP ? 0 : stager_disk_room(s, &c->call.err);
    if (result == 0) {
        result = feed_transaction(s, step, c, &c->seq, &c->call.err);
    }
    s->stager.pool_parts_left = result < 0;
    c->written += n;
    if (result == 0 && !last) {
        thread_queue_put(&s->stager.queue, m); /* behind what came meanwhile */
    } else {
        c->call.done(&c->call);
    }
}

/* --- the seam --- */

static void pools_change(struct store *base, struct store_pool_change *change)
{
    change->call.err = (struct err){0};
    change->call.message.kind = STORE_CALL;
    change->call.message.what = WANTS_POOL;
    change->written = change->place = change->parts = 0;
    thread_queue_put(&sqlite_store(base)->stager.queue, &change->call.message);
}

const struct store_pools_ops sqlite_pools_ops = {.change = pools_change, .each = reader_pools};
