/* What is staged, found again at start, before there are threads: the tables of the ring, and an index of each slot's
 * rows. Slots at or above cfg->slots (it was lowered) are taken like the others, so that they are flushed, and then
 * dropped.
 */
#include <inttypes.h>

#include "base/log.h"
#include "store/ring.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/staging/slot_stream.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum { PROGRESS_ROWS = 65536 /* recovered between two words of progress */ };

/* Whether the slot lacks a table: its first one, if it is of the ring, or one before another that it has. */
static bool lacks_table(const struct sqlite_store *s, const struct slot_tables *tables, int slot)
{
    int n = s->slots[slot].parts.n, found = 0;
    for (int part = -1; (part = slot_tables_next(tables, slot, part)) >= 0;) {
        found++;
    }
    return found < n || (n == 0 && slot < s->cfg->slots);
}

/* The tables of the ring, the views over them, and how many slots it has: in one transaction, which does nothing when
 * all is as it was. */
static int make_ring(struct sqlite_store *s, const struct slot_tables *tables, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t before = 0;
    int result = db_meta_int(db, "slots", 0, &before, err);
    bool missing = before != s->cfg->slots;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        missing |= lacks_table(s, tables, i);
    }
    if (result < 0 || !missing || (result = db_begin(db, err)) < 0) {
        return result;
    }
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        if (lacks_table(s, tables, i)) {
            struct slot_parts *parts = &s->slots[i].parts;
            parts->n = parts->n > 0 ? parts->n : 1;
            result = parts_make(db, i, 0, parts->n, err);
        }
    }
    if (result < 0 || (result = db_meta_set_int(db, "slots", s->cfg->slots, err)) < 0 ||
        (result = views_make(db, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int find_tables(struct sqlite_store *s, struct slot_tables *tables, struct err *err)
{
    int result = slot_rows_tables(&s->stager.db, tables, err);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        for (int part = -1; (part = slot_tables_next(tables, i, part)) >= 0;) {
            s->slots[i].parts.n = part + 1;
        }
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

static int set_aside_in_all(struct db *db, int slot, int parts, const struct staged_ids *rows, struct err *err)
{
    int result = 0;
    for (int part = 0; part < parts && result >= 0; part++) {
        result = slot_rows_set_aside(db, slot_table(slot, part), rows, false, err);
    }
    return result;
}

/* One row must not keep the service from starting, nor be deleted with its slot before somebody has looked at it. */
static int set_aside(struct sqlite_store *s, int slot, const struct staged_ids *rows, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = rows->n > 0 ? db_begin(db, err) : 0;
    if (result < 0 || rows->n == 0) {
        return result;
    }
    if ((result = set_aside_in_all(db, slot, s->slots[slot].parts.n, rows, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while recovering staged rows");
}

/* Moves the rows that can be added to the front, and notes the others. */
static int sort_out(struct sqlite_store *s, int slot, const struct staged *index, struct slot_batch *batch,
                    struct staged_ids *bad)
{
    size_t good = 0;
    for (size_t i = 0; i < batch->n; i++) {
        const struct staged_row *row = &batch->at[i];
        const char *why = batch->problem[i];
        if (why == NULL && !staged_fits(index, row->id, row->month)) {
            why = "its id can't be";
        }
        if (why == NULL) {
            batch->at[good++] = *row;
            continue;
        }
        log_error("staged row can't be read, set aside", "file=%s slot=%d id=%" PRIu64 " error=%s",
                  log_quote_str(s->stager.db.path), slot, row->id, log_quote_str(why));
        if (staged_ids_add(bad, row->id) < 0) {
            return ERR_NOMEM;
        }
    }
    batch->n = good;
    return 0;
}

static void tell_progress(struct sqlite_store *s, uint64_t before, uint64_t rows)
{
    if (s->progress != NULL && before / PROGRESS_ROWS != rows / PROGRESS_ROWS) {
        s->progress(s->progress_arg, rows);
    }
}

/* Adds all rows of the stream. *index is made for the first of them; first: the lowest id. */
static int add_rows(struct sqlite_store *s, int n, struct slot_stream *stream, int64_t first, struct staged **index,
                    struct staged_ids *bad, uint64_t *rows, struct err *err)
{
    struct slot *slot = &s->slots[n];
    struct slot_batch *batch;
    int result;
    while ((result = slot_stream_next(stream, &batch, err)) == 1) {
        if (batch->n == 0) {
            continue;
        }
        size_t read = batch->n;
        slot->last_id = batch->at[read - 1].id > slot->last_id ? batch->at[read - 1].id : slot->last_id;
        if (*index == NULL) {
            *index = staged_new((uint64_t)first);
        }
        if (*index == NULL || sort_out(s, n, *index, batch, bad) < 0 ||
            staged_rows_add(*index, batch->at, batch->n) < 0) {
            return out_of_memory(err);
        }
        *rows += read;
        tell_progress(s, *rows - read, *rows);
    }
    return result;
}

/* Which of the slot's tables have rows, and with which ids. Returns how many, or an error. */
static int find_rows(struct sqlite_store *s, int n, struct slot_table_rows *found, struct err *err)
{
    struct slot_parts *parts = &s->slots[n].parts;
    int n_found = 0;
    for (int part = 0; part < parts->n; part++) {
        int64_t first, last;
        int result = slot_rows_span(&s->stager.db, slot_table(n, part), &first, &last, err);
        if (result < 0) {
            return result;
        }
        if (result == 1) {
            parts_found(parts, part, (uint64_t)first, (uint64_t)last);
            found[n_found++] = (struct slot_table_rows){slot_table(n, part), first, last};
        }
    }
    return n_found;
}

/* Rebuilds a slot's index from its tables. Empty tables leave the slot empty. */
static int recover_slot(struct sqlite_store *s, int n, uint64_t *rows, uint64_t *highest, struct err *err)
{
    struct slot *slot = &s->slots[n];
    struct db *db = &s->stager.db;
    struct slot_stream *stream;
    struct slot_table_rows tables[SLOT_PARTS_MAX];
    struct staged *index = NULL;
    struct staged_ids bad = {0};
    int found = find_rows(s, n, tables, err);
    int result = found < 0 ? found : 0;
    if (found > 0 && (result = slot_stream_open(db, s->folder, s->seed, tables, found, &stream, err)) == 0) {
        int64_t first = tables[0].first;
        for (int i = 1; i < found; i++) {
            first = tables[i].first < first ? tables[i].first : first;
        }
        result = add_rows(s, n, stream, first, &index, &bad, rows, err);
        slot_stream_close(stream);
        result = result < 0 ? result : set_aside(s, n, &bad, err);
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
    struct slot_tables tables;
    *highest = 0;
    int result = find_tables(s, &tables, err);
    if (result < 0 || (result = make_ring(s, &tables, err)) < 0 || (result = renumber_strays(s, err)) < 0) {
        return result;
    }
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        bool exists = s->slots[i].parts.n > 0;
        if (exists && (result = recover_slot(s, i, &rows, highest, err)) < 0) {
            return result;
        }
        if (exists && i >= s->cfg->slots && slots_state(s, i) == SLOT_EMPTY) {
            slots_drop(s, i);
        }
    }
    atomic_store(&s->counters.recovered_rows, rows);
    int64_t waiting = 0;
    result = slot_rows_waiting(&s->stager.db, &waiting, err);
    GAUGE(s, rows_set_aside, waiting); /* only a start sets rows aside */
    return result;
}
