#include "store/sqlite/staging/slot_parts.h"

enum {
    BYTES_A_ROW = 32, /* of staging_memory, at the least but for giants */
    AHEAD_SHARE = 8,  /* a slot that grows gets an eighth more tables at once, so that the schema seldom changes ... */
    AHEAD_MOST = 16,  /* ... but not so many that plays wait for long */
};

uint64_t parts_rows(int64_t staging_memory)
{
    uint64_t rows = (uint64_t)staging_memory / 2 / BYTES_A_ROW / SLOT_PARTS_MAX;
    return rows < SLOT_PART_LEAST ? SLOT_PART_LEAST : rows > SLOT_PART_MOST ? SLOT_PART_MOST : rows;
}

int parts_take(struct slot_parts *p, uint64_t id, uint64_t rows_a_part)
{
    if (p->first[p->at] == 0) {
        p->first[p->at] = id;
    } else if (id - p->first[p->at] >= rows_a_part && p->at + 1 < p->n) {
        p->first[++p->at] = id;
    }
    return p->at;
}

int parts_wanted(const struct slot_parts *p, uint64_t id, uint64_t rows, uint64_t rows_a_part)
{
    uint64_t first = p->first[p->at];
    uint64_t end = id + rows - (first == 0 ? id : first); /* counted from the part's begin */
    uint64_t more = end > rows_a_part ? (end - 1) / rows_a_part : 0;
    uint64_t wanted = (uint64_t)p->at + 1 + more;
    if (wanted <= (uint64_t)p->n) {
        return p->n;
    }
    uint64_t ahead = wanted / AHEAD_SHARE;
    wanted += ahead < AHEAD_MOST ? ahead : AHEAD_MOST;
    return wanted < SLOT_PARTS_MAX ? (int)wanted : SLOT_PARTS_MAX;
}

void parts_found(struct slot_parts *p, int part, uint64_t first, uint64_t last)
{
    p->overlap = p->overlap || first <= p->last;
    p->last = last > p->last ? last : p->last;
    p->first[part] = first;
    p->at = part;
}

void parts_reset(struct slot_parts *p)
{
    for (int i = 0; i <= p->at; i++) {
        p->first[i] = 0;
    }
    p->at = p->emptied = 0;
    p->overlap = false;
    p->last = p->read = 0;
}

int parts_of(const struct slot_parts *p, uint64_t id)
{
    int part = p->at;
    while (part > 0 && (p->first[part] == 0 || id < p->first[part])) {
        part--;
    }
    return part;
}

/* --- in a file --- */

int parts_make(struct db *db, int slot, int from, int to, struct err *err)
{
    int result = 0;
    for (int part = from; part < to && result == 0; part++) {
        char sql[1024];
        db_expand(sql_file_slot, slot_table(slot, part), sql, sizeof sql);
        result = db_exec(db, sql, err);
    }
    return result;
}

int parts_have_row(struct db *db, int slot, const struct slot_parts *p, uint64_t id, struct err *err)
{
    int result = slot_rows_has(db, slot_table(slot, parts_of(p, id)), id, err);
    for (int part = 0; result == 0 && p->overlap && part <= p->at; part++) {
        result = slot_rows_has(db, slot_table(slot, part), id, err);
    }
    return result;
}

/* Whether it was there, or an error. */
static int delete_from(struct db *db, int table, uint64_t id, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_DELETE_ONE, table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)id);
    }
    int result = db_run(db, stmt, err);
    return result < 0 ? result : sqlite3_changes(db->handle);
}

int parts_delete_row(struct db *db, int slot, const struct slot_parts *p, uint64_t id, struct err *err)
{
    int result = delete_from(db, slot_table(slot, parts_of(p, id)), id, err);
    for (int part = 0; result == 0 && p->overlap && part <= p->at; part++) {
        result = delete_from(db, slot_table(slot, part), id, err);
    }
    return result < 0 ? result : 0;
}

static int delete_range(struct db *db, int table, int64_t from, int64_t to, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_DELETE_RANGE, table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, from);
        sqlite3_bind_int64(stmt, 2, to);
    }
    return db_run(db, stmt, err);
}

int parts_delete_range(struct db *db, int slot, const struct slot_parts *p, uint64_t from, uint64_t to, struct err *err)
{
    int result = 0;
    for (int part = p->overlap ? 0 : parts_of(p, from); part <= p->at && result == 0; part++) {
        result = delete_range(db, slot_table(slot, part), (int64_t)from, (int64_t)to, err);
    }
    return result;
}

/* The first rows of a large table. */
static int delete_chunk(struct db *db, int table, uint64_t last_id, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_CHUNK_END, table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)last_id);
        sqlite3_bind_int(stmt, 2, SLOT_EMPTY_CHUNK);
    }
    int64_t end = 0, count = 0;
    int result = db_step(db, stmt, err);
    if (result == 1) {
        end = sqlite3_column_int64(stmt, 0);
        count = sqlite3_column_int64(stmt, 1);
        sqlite3_reset(stmt);
        result = count > 0 ? delete_range(db, table, INT64_MIN, end, err) : 0;
    }
    return result < 0 ? result : count == SLOT_EMPTY_CHUNK;
}

int parts_empty(struct db *db, int slot, int part, uint64_t last_id, struct err *err)
{
    int64_t first, last;
    int table = slot_table(slot, part);
    int result = slot_rows_span(db, table, &first, &last, err);
    if (result != 1) {
        return result;
    }
    if (last > (int64_t)last_id || (uint64_t)last - (uint64_t)first >= SLOT_PART_MOST) {
        return delete_chunk(db, table, last_id, err);
    }
    return db_run(db, db_stmt_for(db, SQL_STAGED_CLEAR, table, err), err);
}
