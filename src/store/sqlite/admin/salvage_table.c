#include "store/sqlite/admin/salvage_table.h"

#include <inttypes.h>
#include <stdio.h>

enum { BARREN_MAX = 8 /* halvings that show nothing, one after the other */ };

struct end {
    int64_t key; /* the last that was read */
    bool any, whole;
};

static bool is_damage(int rc)
{
    int code = rc & 0xff;
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_IOERR || code == SQLITE_ERROR ||
           code == SQLITE_TOOBIG;
}

/* Reads from one end up to the first page that can't be. Keys that don't go on in order are damage, too: a page may
 * point back to one that was read. */
static int read_end(struct salvage_table *t, int64_t from, int64_t to, bool down, struct end *end, struct err *err)
{
    char sql[256];
    sqlite3_stmt *stmt = NULL;
    *end = (struct end){0};
    snprintf(sql, sizeof sql, "SELECT %s FROM \"%s\" WHERE %s BETWEEN ?1 AND ?2 ORDER BY %s%s", t->columns, t->name,
             t->key, t->key, down ? " DESC" : "");
    int rc = sqlite3_prepare_v2(t->from->handle, sql, -1, &stmt, NULL);
    if (rc != SQLITE_OK) {
        return is_damage(rc) ? 0 : db_error(t->from, err, sql);
    }
    sqlite3_bind_int64(stmt, 1, from);
    sqlite3_bind_int64(stmt, 2, to);
    int result = 0;
    while (result == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        int64_t key = sqlite3_column_int64(stmt, 0);
        if (key < from || key > to || (end->any && (down ? key >= end->key : key <= end->key))) {
            rc = SQLITE_CORRUPT;
            break;
        }
        end->any = true;
        end->key = key;
        t->rows++;
        result = t->row(t->arg, stmt, err);
        if (result == ERR_CORRUPT) {
            t->refused++;
            result = t->lost(t->arg, key, key, err);
        }
    }
    end->whole = rc == SQLITE_DONE;
    if (result == 0 && rc != SQLITE_DONE && !is_damage(rc)) {
        result = db_error(t->from, err, sql);
    }
    sqlite3_finalize(stmt);
    return result;
}

static int read_stretch(struct salvage_table *t, int64_t from, int64_t to, int barren, struct err *err)
{
    struct end low, high;
    int result = read_end(t, from, to, false, &low, err);
    if (result < 0 || low.whole || (low.any && low.key == to)) {
        return result;
    }
    from = low.any ? low.key + 1 : from;
    if ((result = read_end(t, from, to, true, &high, err)) < 0 || high.whole || (high.any && high.key == from)) {
        return result;
    }
    to = high.any ? high.key - 1 : to;
    barren = low.any || high.any ? 0 : barren + 1;
    if (from == to || barren > BARREN_MAX) {
        t->stretches++;
        return t->lost(t->arg, from, to, err);
    }
    int64_t middle = from + (int64_t)(((uint64_t)to - (uint64_t)from) / 2);
    result = read_stretch(t, from, middle, barren, err);
    return result < 0 ? result : read_stretch(t, middle + 1, to, barren, err);
}

int salvage_table(struct salvage_table *t, struct err *err)
{
    return read_stretch(t, INT64_MIN, INT64_MAX, 0, err);
}
