#include "store/sqlite/staging/slot_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/sqlite/staging/staged_row.h"

int slot_rows_tables(struct db *db, struct slot_tables *out, struct err *err)
{
    *out = (struct slot_tables){0};
    sqlite3_stmt *stmt = db_stmt(db, SQL_STAGED_TABLES, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        char *end;
        long slot = strtol(name + strlen("staged_"), &end, 10);
        if (*end != '\0' || slot >= STORE_SLOTS_MAX) {
            result = err_set(err, ERR_CORRUPT, "%s: table %s is no slot (expected staged_0 .. staged_%d)", db->path,
                             name, STORE_SLOTS_MAX - 1);
            sqlite3_reset(stmt);
            break;
        }
        out->exists[slot] = true;
    }
    return result;
}

/* --- stray rows --- */

static int64_t above(int64_t id)
{
    return id < INT64_MAX - UINT32_MAX ? id + UINT32_MAX : INT64_MAX;
}

/* min(id), max(id) and, of those between 1 and `most`, the same. 1; 0: the table is empty. */
static int bounds(struct db *db, int slot, int64_t most, int64_t out[4], struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_BOUNDS, slot, err);
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

/* Of several far groups of rows the largest is the slot's. It is looked for only where there are such. */
static int largest_group(struct db *db, int slot, int64_t most, int64_t *first, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_LARGEST_GROUP, slot, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, most);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        *first = sqlite3_column_int64(stmt, 0);
        sqlite3_reset(stmt);
        result = 0;
    }
    return result;
}

struct group {
    int64_t first;   /* of the slot's rows; 0: none */
    int64_t highest; /* of all that can have been used */
    bool strays;     /* there are others */
};

static int find_group(struct db *db, int slot, int64_t most, struct group *out, struct err *err)
{
    int64_t at[4];
    *out = (struct group){0};
    int result = bounds(db, slot, most, at, err);
    if (result != 1) {
        return result;
    }
    out->first = at[2];
    out->highest = at[3];
    out->strays = at[0] < 1 || at[0] != at[2] || at[1] != at[3] || at[3] - at[2] > UINT32_MAX;
    return at[3] - at[2] > UINT32_MAX ? largest_group(db, slot, most, &out->first, err) : 0;
}

int slot_rows_first(struct db *db, int slot, int64_t highest, int64_t *first, struct err *err)
{
    struct group group;
    int result = find_group(db, slot, above(highest), &group, err);
    *first = group.first;
    return result;
}

int slot_rows_highest(struct db *db, int64_t *out, struct err *err)
{
    struct slot_tables tables;
    int64_t migration_state = 0;
    int result = db_meta_int(db, "high_water", 0, &migration_state, err);
    *out = migration_state;
    if (result < 0 || (result = slot_rows_tables(db, &tables, err)) < 0) {
        return result;
    }
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        int64_t at[4] = {0};
        int any = tables.exists[slot] ? bounds(db, slot, above(migration_state), at, err) : 0;
        result = any < 0 ? any : 0;
        *out = any == 1 && at[3] > *out ? at[3] : *out;
    }
    return result;
}

int slot_rows_span(struct db *db, int slot, int64_t *first, int64_t *last, struct err *err)
{
    int64_t at[4] = {0};
    int result = bounds(db, slot, INT64_MAX, at, err);
    *first = at[0];
    *last = at[1];
    return result;
}

static int find_strays(struct db *db, int slot, int64_t first, struct staged_ids *out, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_OUTSIDE, slot, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, first > 0 ? first : 1);
        sqlite3_bind_int64(stmt, 2, first > 0 ? above(first) : 0);
    }
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (staged_ids_add(out, (uint64_t)sqlite3_column_int64(stmt, 0)) < 0) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_NOMEM, "out of memory for the rows of slot %d", slot);
        }
    }
    return result;
}

int slot_rows_strays(struct db *db, int slot, int64_t highest, int64_t *n, struct err *err)
{
    struct group group;
    struct staged_ids ids = {0};
    int result = find_group(db, slot, above(highest), &group, err);
    if (result == 0 && group.strays) {
        result = find_strays(db, slot, group.first, &ids, err);
    }
    *n = (int64_t)ids.n;
    staged_ids_free(&ids);
    return result;
}

/* A new id may be that of another stray row: then the next one is tried. */
static int move(struct db *db, int slot, int64_t id, int64_t *next, struct err *err)
{
    int changed = 0;
    while (changed == 0) {
        sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_RENUMBER, slot, err);
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

static int move_all(struct db *db, const struct group groups[STORE_SLOTS_MAX], int64_t next,
                    void (*told)(void *arg, int slot, int64_t id, int64_t new_id), void *arg, struct err *err)
{
    struct staged_ids ids = {0};
    int moved = 0;
    int result = 0;
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        ids.n = 0;
        result = groups[slot].strays ? find_strays(db, slot, groups[slot].first, &ids, err) : 0;
        for (size_t i = 0; i < ids.n && result == 0; i++) {
            result = move(db, slot, (int64_t)ids.at[i], &next, err);
            if (result == 0) {
                told(arg, slot, (int64_t)ids.at[i], next - 1);
                moved++;
            }
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
    int64_t used = highest;
    bool strays = false;
    int result = slot_rows_tables(db, &tables, err);
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        result = tables.exists[slot] ? find_group(db, slot, above(highest), &groups[slot], err) : 0;
        used = groups[slot].highest > used ? groups[slot].highest : used;
        strays = strays || groups[slot].strays;
    }
    return result < 0 || !strays ? result : move_all(db, groups, used + 1, told, arg, err);
}

/* --- unreadable rows --- */

int slot_rows_unreadable(struct db *db, int slot, struct staged_ids *out, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_ALL, slot, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (staged_row_problem(stmt) != NULL && staged_ids_add(out, (uint64_t)sqlite3_column_int64(stmt, 0)) < 0) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_NOMEM, "out of memory for the rows of slot %d", slot);
        }
    }
    return result;
}

int slot_rows_set_aside(struct db *db, int slot, const struct staged_ids *rows, bool accepted, struct err *err)
{
    if (rows->n == 0) {
        return 0;
    }
    /* Their ids are used, and history.db may have met them. */
    int result = db_meta_raise(db, "high_water", (int64_t)rows->at[rows->n - 1], err);
    for (size_t i = 0; i < rows->n && result == 0; i++) {
        sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_SET_ASIDE, slot, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, (int64_t)rows->at[i]);
            sqlite3_bind_int(stmt, 2, slot);
            sqlite3_bind_int64(stmt, 3, clock_wall_ms());
            sqlite3_bind_null(stmt, 4);
            if (accepted) {
                sqlite3_bind_int64(stmt, 4, clock_wall_ms());
            }
        }
        if ((result = db_run(db, stmt, err)) < 0) {
            break;
        }
        stmt = db_stmt_for(db, SQL_STAGED_DELETE_ONE, slot, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, (int64_t)rows->at[i]);
        }
        result = db_run(db, stmt, err);
    }
    return result;
}

int slot_rows_has(struct db *db, int slot, uint64_t id, struct err *err)
{
    struct err why = {0};
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_HAS, slot, &why);
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
        if (result == 0 && tables.exists[slot]) {
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
