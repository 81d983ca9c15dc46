/* Positions of sources outside (store/positions.h), in staging.db's table and in memory.
 *
 * The table is written in the transaction that holds the batch's rows; memory moves once that is durable and the rows
 * are in the index. So after a commit that failed, or whose outcome is unknown, memory is behind the file, and the next
 * transaction, which deletes that commit's rows, writes the table again from memory. Until then file and rows go
 * together: who starts from that file finds both or none.
 */
#include "store/positions.h"
#include "base/log.h"
#include "store/sqlite/db/pair.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

static int put(struct db *db, const struct store_position *position, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POSITION_PUT, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, position->source);
        sqlite3_bind_int64(stmt, 2, position->next);
    }
    return db_run(db, stmt, err);
}

int positions_write(struct sqlite_store *s, const struct store_batch *batch, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < batch->n_positions && result == 0; i++) {
        result = put(&s->stager.db, &batch->positions[i], err);
    }
    return result;
}

int positions_undo(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    struct store_position position;
    int result = db_run(db, db_stmt(db, SQL_POSITIONS_DELETE, err), err);
    for (size_t i = 0; result == 0 && position_set_at(s->positions, &i, &position);) {
        result = put(db, &position, err);
    }
    return result;
}

static int read_positions(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_POSITIONS_ALL, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct store_position position = {db_column_bytes(stmt, 0), sqlite3_column_int64(stmt, 1)};
        if (sqlite3_column_type(stmt, 1) != SQLITE_INTEGER) {
            result = err_set(err, ERR_CORRUPT, "%s: the position of %s can't be read: unseen check --repair", db->path,
                             log_quote(position.source));
        } else if ((result = position_set_load(s->positions, &position, err)) == ERR_INVALID) {
            err->code = result = ERR_CORRUPT;
            err_prefix(err, "%s: positions can't be read: unseen check --repair", db->path);
        }
        if (result < 0) {
            sqlite3_reset(stmt);
            return result;
        }
    }
    return result;
}

/* A folder's own is that of its two files. It is written down for those who copy the positions, and may be that of the
 * folder that this one was copied from. */
static int know_lineage(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    struct store_position lineage = {slice_str(STORE_LINEAGE), 0};
    if (position_set_find(s->positions, lineage.source, &lineage.next) && lineage.next != 0) {
        return 0;
    }
    int result = pair_folder(db, &lineage.next, err);
    if (result < 0 || (result = position_set_load(s->positions, &lineage, err)) < 0) {
        return result;
    }
    struct err unwritten = {0};
    if (put(db, &lineage, &unwritten) < 0) { /* a full disk is no reason not to answer; the next start writes it */
        log_warn("the folder's lineage could not be noted", "error=%s", log_quote_str(unwritten.text));
        return db->lost ? db_reopen(db, err) : 0;
    }
    return 0;
}

int positions_open(struct sqlite_store *s, struct err *err)
{
    s->positions = position_set_new();
    int result = s->positions == NULL ? err_set(err, ERR_NOMEM, "out of memory") : read_positions(s, err);
    return result < 0 ? result : know_lineage(s, err);
}

void positions_close(struct sqlite_store *s)
{
    position_set_free(s->positions);
    s->positions = NULL;
}

static int positions_find(struct store *base, struct slice source, int64_t *next)
{
    return position_set_find(sqlite_store(base)->positions, source, next);
}

const struct store_positions_ops sqlite_positions_ops = {.find = positions_find};
