#include "store/sqlite/staging/pool_rows.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"

/* A row of pools, whose statement the reading of its parts doesn't disturb. */
struct row {
    char name[HASH_ID_MAX];
    struct store_pool pool;
    int64_t place, parts;
};

/* NULL: it is good. */
static const char *read_row(sqlite3_stmt *stmt, struct row *row)
{
    struct slice name = db_column_bytes(stmt, 0);
    row->pool.name = slice_of(row->name, name.len < sizeof row->name ? name.len : sizeof row->name);
    memcpy(row->name, name.data, row->pool.name.len);
    row->place = sqlite3_column_int64(stmt, 1);
    row->parts = sqlite3_column_int64(stmt, 2);
    row->pool.n = (uint64_t)sqlite3_column_int64(stmt, 3);
    row->pool.version = (uint64_t)sqlite3_column_int64(stmt, 4);
    row->pool.changed_ms = sqlite3_column_int64(stmt, 5);
    if (name.len == 0 || name.len > sizeof row->name) {
        return "its name is not 1 to 255 bytes";
    }
    for (int i = 1; i <= 5; i++) {
        if (sqlite3_column_type(stmt, i) != SQLITE_INTEGER) {
            return "its row can't be read";
        }
    }
    bool in_range =
        row->place > 0 && row->place < INT64_MAX / POOL_ROWS_PARTS && row->parts > 0 && row->parts <= POOL_ROWS_PARTS;
    return in_range ? NULL : "its row can't be read";
}

static int read_parts(struct db *db, const struct row *row, struct buf *items, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POOL_PARTS_OF, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, row->place * POOL_ROWS_PARTS);
        sqlite3_bind_int64(stmt, 2, row->place * POOL_ROWS_PARTS + row->parts - 1);
    }
    int result;
    buf_clear(items);
    while ((result = db_step(db, stmt, err)) == 1) {
        struct slice part = db_column_bytes(stmt, 0);
        if (buf_add(items, part.data, part.len) < 0) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_NOMEM, "out of memory for a pool");
        }
    }
    return result;
}

int pool_rows_each(struct db *db, const struct pool_rows_walk *walk, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POOLS_ALL, err);
    struct buf items = {0};
    struct row row = {0};
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        const char *bad = read_row(stmt, &row);
        result = bad == NULL ? read_parts(db, &row, &items, err) : 0;
        row.pool.items = buf_slice(&items);
        if (result == 0) {
            bad = bad == NULL ? store_pool_problem(&row.pool) : bad;
            result =
                bad == NULL ? walk->each(walk->arg, &row.pool, err) : walk->bad(walk->arg, row.pool.name, bad, err);
        }
        if (result < 0) {
            sqlite3_reset(stmt);
            break;
        }
    }
    buf_free(&items);
    return result;
}

/* --- repair --- */

struct repair {
    struct db *db;
    void (*did)(void *arg, const char *what);
    void *arg;
    int n;
};

static int leave(void *arg, const struct store_pool *pool, struct err *err)
{
    (void)arg, (void)pool, (void)err;
    return 0;
}

/* Its parts go with the next change of a pool. */
static int take_out(void *arg, struct slice name, const char *what, struct err *err)
{
    struct repair *r = arg;
    char text[256];
    sqlite3_stmt *stmt = db_stmt(r->db, SQL_POOL_DELETE, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, name);
    }
    int result = db_run(r->db, stmt, err);
    if (result == 0) {
        snprintf(text, sizeof text, "staging.db: pool %.64s is lost: %s: set it again", log_quote(name), what);
        r->did(r->arg, text);
        r->n++;
    }
    return result;
}

int pool_rows_repair(struct db *db, void (*did)(void *arg, const char *what), void *arg, struct err *err)
{
    struct repair r = {db, did, arg, 0};
    const struct pool_rows_walk walk = {leave, take_out, &r};
    int result = pool_rows_each(db, &walk, err);
    return result < 0 ? result : r.n;
}
