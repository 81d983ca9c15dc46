#include "store/sqlite/staging/slot_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "store/sqlite/staging/staged_row.h"

int slot_table_named(const char *name)
{
    int slot = 0, part = 0;
    char again[32];
    if (sscanf(name, "staged_%3d_%3d", &slot, &part) < 1 || slot < 0 || slot >= STORE_SLOTS_MAX || part < 0 ||
        part >= SLOT_PARTS_MAX) {
        return -1;
    }
    db_expand("staged_{slot}", slot_table(slot, part), again, sizeof again);
    return strcmp(again, name) == 0 ? slot_table(slot, part) : -1;
}

int slot_rows_tables(struct db *db, struct slot_tables *out, struct err *err)
{
    *out = (struct slot_tables){0};
    sqlite3_stmt *stmt = db_stmt(db, SQL_STAGED_TABLES, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        int table = slot_table_named(name);
        if (table < 0) {
            result = err_set(err, ERR_CORRUPT,
                             "%s: table %s is no slot's (expected staged_0 .. staged_%d, each with staged_0_1 .. "
                             "staged_0_%d)",
                             db->path, name, STORE_SLOTS_MAX - 1, SLOT_PARTS_MAX - 1);
            sqlite3_reset(stmt);
            break;
        }
        int part = table / DB_SLOT_PART;
        out->has[table % DB_SLOT_PART][part / 64] |= UINT64_C(1) << (part % 64);
    }
    return result;
}

int slot_tables_next(const struct slot_tables *tables, int slot, int part)
{
    for (part++; part < SLOT_PARTS_MAX; part++) {
        if (tables->has[slot][part / 64] >> (part % 64) & 1) {
            return part;
        }
    }
    return -1;
}

/* --- stray rows --- */

static int64_t above(int64_t id)
{
    return id < INT64_MAX - UINT32_MAX ? id + UINT32_MAX : INT64_MAX;
}

/* min(id), max(id) and, of those between 1 and `most`, the same (0: there are none). 1; 0: the table is empty. */
static int bounds(struct db *db, int table, int64_t most, int64_t out[4], struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_BOUNDS, table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, most);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        bool any = sqlite3_column_type(stmt, 0) != SQLITE_NULL;
        for (int i = 0; i < 4; i++) {
            out[i] = sqlite3_column_int64(stmt, i);
        }
        sqlite3_reset(stmt);
        result = any;
    }
    return result;
}

/* The same of all of a slot's tables. */
static int slot_bounds(struct db *db, const struct slot_tables *tables, int slot, int64_t most, int64_t out[4],
                       struct err *err)
{
    bool any = false;
    int result = 0;
    for (int part = -1; result == 0 && (part = slot_tables_next(tables, slot, part)) >= 0;) {
        int64_t at[4];
        if ((result = bounds(db, slot_table(slot, part), most, at, err)) != 1) {
            continue;
        }
        out[0] = !any || at[0] < out[0] ? at[0] : out[0];
        out[1] = !any || at[1] > out[1] ? at[1] : out[1];
        out[2] = !any || out[2] == 0 || (at[2] > 0 && at[2] < out[2]) ? at[2] : out[2];
        out[3] = !any || at[3] > out[3] ? at[3] : out[3];
        any = true;
        result = 0;
    }
    return result < 0 ? result : any;
}

/* The statement of that name over the ids of all of the slot's tables. Its owner finalizes it; NULL on error. */
static sqlite3_stmt *over_all(struct db *db, const struct slot_tables *tables, int slot, enum sql_statement which,
                              struct err *err)
{
    const char *sql = sql_statements[which], *at = strstr(sql, "{ids}");
    struct buf all = {0};
    sqlite3_stmt *stmt = NULL;
    buf_add(&all, sql, (size_t)(at - sql));
    for (int part = -1, n = 0; (part = slot_tables_next(tables, slot, part)) >= 0; n++) {
        char ids[64];
        db_expand(sql_statements[SQL_STAGED_IDS], slot_table(slot, part), ids, sizeof ids);
        buf_addf(&all, "%s%s", n > 0 ? " UNION ALL " : "", ids);
    }
    buf_addf(&all, "%s", at + strlen("{ids}"));
    if (all.failed) {
        err_set(err, ERR_NOMEM, "out of memory for the rows of slot %d", slot);
    } else if (sqlite3_prepare_v2(db->handle, all.data, (int)all.len, &stmt, NULL) != SQLITE_OK) {
        db_error(db, err, sql);
    }
    buf_free(&all);
    return stmt;
}

/* Of several far groups of rows the largest is the slot's. It is looked for only where there are such. */
static int largest_group(struct db *db, const struct slot_tables *tables, int slot, int64_t most, int64_t *first,
                         struct err *err)
{
    sqlite3_stmt *stmt = over_all(db, tables, slot, SQL_STAGED_LARGEST_GROUP, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, most);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        *first = sqlite3_column_int64(stmt, 0);
        result = 0;
    }
    sqlite3_finalize(stmt);
    return result;
}

struct group {
    int64_t first;   /* of the slot's rows; 0: none */
    int64_t highest; /* of all that can have been used */
    bool strays;     /* there are others */
};

static int find_group(struct db *db, const struct slot_tables *tables, int slot, int64_t most, struct group *out,
                      struct err *err)
{
    int64_t at[4];
    *out = (struct group){0};
    int result = slot_bounds(db, tables, slot, most, at, err);
    if (result != 1) {
        return result;
    }
    out->first = at[2];
    out->highest = at[3];
    out->strays = at[0] < 1 || at[0] != at[2] || at[1] != at[3] || at[3] - at[2] > UINT32_MAX;
    return at[3] - at[2] > UINT32_MAX ? largest_group(db, tables, slot, most, &out->first, err) : 0;
}

int slot_rows_first(struct db *db, const struct slot_tables *tables, int slot, int64_t highest, int64_t *first,
                    struct err *err)
{
    struct group group;
    int result = find_group(db, tables, slot, above(highest), &group, err);
    *first = group.first;
    return result;
}

int slot_rows_highest(struct db *db, int64_t *out, struct err *err)
{
    struct slot_tables tables;
    int64_t migration_state = 0;
    int result = db_meta_count(db, "high_water", &migration_state, err);
    *out = migration_state;
    if (result < 0 || (result = slot_rows_tables(db, &tables, err)) < 0) {
        return result;
    }
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        int64_t at[4] = {0};
        int any = slot_bounds(db, &tables, slot, above(migration_state), at, err);
        result = any < 0 ? any : 0;
        *out = any == 1 && at[3] > *out ? at[3] : *out;
    }
    return result;
}

int slot_rows_span(struct db *db, int table, int64_t *first, int64_t *last, struct err *err)
{
    int64_t at[4] = {0};
    int result = bounds(db, table, INT64_MAX, at, err);
    *first = at[0];
    *last = at[1];
    return result;
}

static int find_strays(struct db *db, int table, int64_t first, struct staged_ids *out, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_OUTSIDE, table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, first > 0 ? first : 1);
        sqlite3_bind_int64(stmt, 2, first > 0 ? above(first) : 0);
    }
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (staged_ids_add(out, (uint64_t)sqlite3_column_int64(stmt, 0)) < 0) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_NOMEM, "out of memory for the rows of slot %d", table % DB_SLOT_PART);
        }
    }
    return result;
}

int slot_rows_strays(struct db *db, const struct slot_tables *tables, int slot, int64_t highest, int64_t *n,
                     struct err *err)
{
    struct group group;
    struct staged_ids ids = {0};
    int result = find_group(db, tables, slot, above(highest), &group, err);
    for (int part = -1; result == 0 && group.strays && (part = slot_tables_next(tables, slot, part)) >= 0;) {
        result = find_strays(db, slot_table(slot, part), group.first, &ids, err);
    }
    *n = (int64_t)ids.n;
    staged_ids_free(&ids);
    return result;
}

/* A new id may be that of another stray row: then the next one is tried. */
static int move(struct db *db, int table, int64_t id, int64_t *next, struct err *err)
{
    int changed = 0;
    while (changed == 0) {
        sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_RENUMBER, table, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, id);
            sqlite3_bind_int64(stmt, 2, (*next)++);
        }
        int result = db_run(db, stmt, err);
        if (result < 0) {
            return result;
        }
        changed = sqlite3_changes(db->handle);
    }
    return 0;
}

/* Those of one table. Returns how many, or an error. */
static int move_all(struct db *db, int table, int64_t first, int64_t *next,
                    void (*told)(void *arg, int slot, int64_t id, int64_t new_id), void *arg, struct err *err)
{
    struct staged_ids ids = {0};
    int moved = 0;
    int result = find_strays(db, table, first, &ids, err);
    for (size_t i = 0; i < ids.n && result == 0; i++) {
        result = move(db, table, (int64_t)ids.at[i], next, err);
        if (result == 0) {
            told(arg, table % DB_SLOT_PART, (int64_t)ids.at[i], *next - 1);
            moved++;
        }
    }
    staged_ids_free(&ids);
    return result < 0 ? result : moved;
}

int slot_rows_renumber(struct db *db, int64_t highest, void (*told)(void *arg, int slot, int64_t id, int64_t new_id),
                       void *arg, struct err *err)
{
    struct group groups[STORE_SLOTS_MAX] = {{0}};
    struct slot_tables tables;
    int64_t next = highest;
    int moved = 0;
    int result = slot_rows_tables(db, &tables, err);
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        result = find_group(db, &tables, slot, above(highest), &groups[slot], err);
        next = groups[slot].highest > next ? groups[slot].highest : next;
    }
    next++;
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        for (int part = -1;
             result == 0 && groups[slot].strays && (part = slot_tables_next(&tables, slot, part)) >= 0;) {
            int n = move_all(db, slot_table(slot, part), groups[slot].first, &next, told, arg, err);
            result = n < 0 ? n : 0;
            moved += n > 0 ? n : 0;
        }
    }
    return result < 0 ? result : moved;
}

/* --- unreadable rows --- */

int slot_rows_unreadable(struct db *db, int table, struct staged_ids *out, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_ALL, table, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (staged_row_problem(stmt) != NULL && staged_ids_add(out, (uint64_t)sqlite3_column_int64(stmt, 0)) < 0) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_NOMEM, "out of memory for the rows of slot %d", table % DB_SLOT_PART);
        }
    }
    return result;
}

/* Whether it was there, or an error. */
static int set_row_aside(struct db *db, int table, int64_t id, bool accepted, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_SET_ASIDE, table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, id);
        sqlite3_bind_int(stmt, 2, table % DB_SLOT_PART);
        sqlite3_bind_int64(stmt, 3, clock_wall_ms());
        sqlite3_bind_null(stmt, 4);
        if (accepted) {
            sqlite3_bind_int64(stmt, 4, clock_wall_ms());
        }
    }
    int result = db_run(db, stmt, err);
    if (result < 0 || sqlite3_changes(db->handle) == 0) {
        return result;
    }
    /* Its id is used, and history.db may have met it. */
    if ((result = db_meta_raise(db, "high_water", id, err)) < 0) {
        return result;
    }
    stmt = db_stmt_for(db, SQL_STAGED_DELETE_ONE, table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, id);
    }
    result = db_run(db, stmt, err);
    return result < 0 ? result : 1;
}

int slot_rows_set_aside(struct db *db, int table, const struct staged_ids *rows, bool accepted, struct err *err)
{
    int moved = 0;
    for (size_t i = 0; i < rows->n; i++) {
        int result = set_row_aside(db, table, (int64_t)rows->at[i], accepted, err);
        if (result < 0) {
            return result;
        }
        moved += result;
    }
    return moved;
}

int slot_rows_has(struct db *db, int table, uint64_t id, struct err *err)
{
    struct err why = {0};
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_HAS, table, &why);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)id);
    }
    int result = db_step(db, stmt, &why);
    if (result == 1) {
        sqlite3_reset(stmt);
    }
    if (result < 0) {
        struct slot_tables tables;
        result = slot_rows_tables(db, &tables, err);
        int slot = table % DB_SLOT_PART, part = table / DB_SLOT_PART;
        if (result == 0 && slot_tables_next(&tables, slot, part - 1) == part) {
            result = err_set(err, why.code, "%s", why.text);
        }
    }
    return result;
}

int slot_rows_waiting(struct db *db, int64_t *n, struct err *err)
{
    *n = 0;
    return db_int(db, "SELECT count(*) FROM set_aside WHERE accepted IS NULL", n, err);
}

int slot_rows_accept(struct db *db, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_SET_ASIDE_ACCEPT, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    }
    int result = db_run(db, stmt, err);
    return result < 0 ? result : sqlite3_changes(db->handle);
}
