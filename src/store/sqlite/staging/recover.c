/* What is staged, found again at start, before there are threads: the tables of the ring, and an index of each one's
 * rows. Tables at or above cfg->slots (it was lowered) are taken like the others, so that they are flushed, and then
 * dropped.
 */
#include <inttypes.h>

#include "base/log.h"
#include "store/ring.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/staging/staged_row.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum { PROGRESS_ROWS = 65536 /* recovered between two words of progress */ };

/* The tables of the ring, the views over them, and how many slots it has: in one transaction, which does nothing when
 * all is as it was. */
static int make_ring(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t before = 0;
    int result = db_meta_int(db, "slots", 0, &before, err);
    bool missing = before != s->cfg->slots;
    for (int i = 0; i < s->cfg->slots; i++) {
        missing |= !s->slots[i].exists;
    }
    if (result < 0 || !missing || (result = db_begin(db, err)) < 0) {
        return result;
    }
    for (int i = 0; i < s->cfg->slots && result == 0; i++) {
        char sql[1024];
        db_expand(sql_file_slot, i, sql, sizeof sql);
        result = db_exec(db, sql, err);
        s->slots[i].exists = true;
    }
    if (result < 0 || (result = db_meta_set_int(db, "slots", s->cfg->slots, err)) < 0 ||
        (result = views_make(db, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int find_tables(struct sqlite_store *s, struct err *err)
{
    struct slot_tables tables;
    int result = slot_rows_tables(&s->stager.db, &tables, err);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        s->slots[i].exists = tables.exists[i];
    }
    return result;
}

static void stray_told(void *arg, int slot, int64_t id, int64_t new_id)
{
    const struct db *db = arg;
    log_error("staged row had an id that can't be, it gets another one",
              "file=%s slot=%d id=%" PRId64 " new_id=%" PRId64, log_quote_str(db->path), slot, id, new_id);
}

/* So that each slot's first row can begin its index. */
static int renumber_strays(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t highest = 0;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    if ((result = db_meta_int(db, "high_water", 0, &highest, err)) < 0 ||
        (result = slot_rows_renumber(db, highest, stray_told, db, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

/* One row must not keep the service from starting, nor be deleted with its slot before somebody has looked at it. */
static int set_aside(struct sqlite_store *s, int slot, const struct staged_ids *rows, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = rows->n > 0 ? db_begin(db, err) : 0;
    if (result < 0 || rows->n == 0) {
        return result;
    }
    if ((result = slot_rows_set_aside(db, slot, rows, false, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while recovering staged rows");
}

/* Rebuilds a slot's index from its table. An empty table leaves the slot empty. */
static int recover_slot(struct sqlite_store *s, int n, uint64_t *rows, uint64_t *highest, struct err *err)
{
    struct slot *slot = &s->slots[n];
    struct db *db = &s->stager.db;
    struct staged *index = NULL;
    struct staged_rows held;
    struct staged_ids bad = {0};
    held.n = 0;
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_ALL, n, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        uint64_t id = (uint64_t)sqlite3_column_int64(stmt, 0);
        if (index == NULL) {
            index = staged_new(id);
            if (index == NULL) {
                result = out_of_memory(err);
                break;
            }
        }
        slot->last_id = id;
        struct staged_row row;
        if (!staged_row_read(stmt, s->seed, &row) || !staged_fits(index, id, row.month)) {
            const char *why = staged_row_problem(stmt);
            log_error("staged row can't be read, set aside", "file=%s slot=%d id=%" PRIu64 " error=%s",
                      log_quote_str(db->path), n, id, log_quote_str(why != NULL ? why : "its id can't be"));
            if (staged_ids_add(&bad, id) < 0) {
                result = out_of_memory(err);
                break;
            }
        } else if (staged_rows_take(&held, index, &row) < 0) {
            result = out_of_memory(err);
            break;
        }
        if (++*rows % PROGRESS_ROWS == 0 && s->progress != NULL) {
            s->progress(s->progress_arg, *rows);
        }
    }
    if (result == 0 && index != NULL && staged_rows_add(&held, index) < 0) {
        result = out_of_memory(err);
    }
    if (result == 0) {
        result = set_aside(s, n, &bad, err);
    } else if (stmt != NULL) {
        sqlite3_reset(stmt);
    }
    staged_ids_free(&bad);
    if (result < 0) {
        staged_free(index);
        return err_prefix(err, "slot %d", n);
    }
    if (slot->last_id > *highest) {
        *highest = slot->last_id;
    }
    if (index != NULL) {
        atomic_store(&slot->index, index);
        slots_set_state(s, n, SLOT_CLOSED);
    }
    return 0;
}

int recover_slots(struct sqlite_store *s, uint64_t *highest, struct err *err)
{
    uint64_t rows = 0;
    *highest = 0;
    int result = find_tables(s, err);
    if (result < 0 || (result = make_ring(s, err)) < 0 || (result = renumber_strays(s, err)) < 0) {
        return result;
    }
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        if (s->slots[i].exists && (result = recover_slot(s, i, &rows, highest, err)) < 0) {
            return result;
        }
        if (s->slots[i].exists && i >= s->cfg->slots && slots_state(s, i) == SLOT_EMPTY) {
            slots_drop(s, i);
        }
    }
    atomic_store(&s->counters.recovered_rows, rows);
    int64_t waiting = 0;
    result = slot_rows_waiting(&s->stager.db, &waiting, err);
    GAUGE(s, rows_set_aside, waiting); /* only a start sets rows aside */
    return result;
}
