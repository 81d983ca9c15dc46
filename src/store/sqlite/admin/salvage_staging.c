/* Salvages a staging.db. Rows are copied as they are: the next start checks each. Scroll sessions are left out. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/plural.h"
#include "store/ring.h"
#include "store/sqlite/admin/salvage.h"
#include "store/sqlite/admin/salvage_table.h"
#include "store/sqlite/staging/slot_rows.h"

struct part {
    struct salvage *s;
    sqlite3_stmt *put;
    uint64_t stretches;
};

static int put_row(void *arg, sqlite3_stmt *row, struct err *err)
{
    struct part *p = arg;
    return salvage_put(p->s, p->put, row, err);
}

static int count_lost(void *arg, int64_t from, int64_t to, struct err *err)
{
    (void)from;
    (void)to;
    (void)err;
    ((struct part *)arg)->stretches++;
    return 0;
}

/* A table with ids, into the same one. They are its first column. */
static int take(struct salvage *s, const char *table, const char *key, const char *columns, const char *values,
                uint64_t *lost, struct err *err)
{
    char sql[256];
    struct part p = {.s = s};
    snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO \"%s\" (%s) VALUES (%s)", table, columns, values);
    if (sqlite3_prepare_v2(s->to.handle, sql, -1, &p.put, NULL) != SQLITE_OK) {
        return db_error(&s->to, err, sql);
    }
    struct salvage_table t = {
        .from = &s->from, .name = table, .key = key, .columns = columns, .row = put_row, .lost = count_lost, .arg = &p};
    int result = salvage_table(&t, err);
    sqlite3_finalize(p.put);
    *lost = p.stretches;
    if (result == 0 && p.stretches > 0) {
        salvage_tell(s,
                     "staging.db: %s: %" PRIu64 " rows saved, %" PRIu64 " stretches of ids can't be read: what stood "
                     "there is lost, and whose it was isn't known",
                     table, t.rows, p.stretches);
    }
    return result;
}

static int take_slot(struct salvage *s, int number, struct err *err)
{
    char table[32], sql[1024];
    uint64_t lost;
    db_expand("staged_{slot}", number, table, sizeof table);
    db_expand(sql_file_slot, number, sql, sizeof sql);
    int result = db_exec(&s->to, sql, err);
    return result < 0 ? result : take(s, table, "id", "id, kind, user, item, at", "?, ?, ?, ?, ?", &lost, err);
}

static int take_set_aside(struct salvage *s, struct err *err)
{
    int64_t rows = 0;
    if (slot_rows_waiting(&s->from, &rows, NULL) < 0 || rows == 0) {
        return 0; /* what was accepted is no matter any more */
    }
    return salvage_copy(s, "set_aside", "slot, id, kind, user, item, at, found, accepted", err);
}

static int run(struct db *db, enum sql_statement sql, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, sql, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    }
    return db_run(db, stmt, err);
}

/* Whose events they were may be unknown. */
static int take_feed(struct salvage *s, struct err *err)
{
    uint64_t lost = 0;
    int result = salvage_copy(s, "feed_consumers", "name, cursor, gap, lost, left_out", err);
    if (result < 0 ||
        (result = take(s, "feed", "seq", "seq, kind, user, item, at, late", "?, ?, ?, ?, ?, ?", &lost, err)) < 0) {
        return result;
    }
    result = lost > 0 ? run(&s->to, SQL_FEED_LOSE_ALL, err) : 0;
    return result < 0 ? result : run(&s->to, SQL_REPAIR_FEED_MIRROR, err);
}

/* They must not be ahead of the plays that could be saved, of either file. */
static int take_positions(struct salvage *s, struct err *err)
{
    int result = salvage_copy(s, "positions", "source, next", err);
    if (result < 0 || s->losses == 0) {
        return result;
    }
    result = db_run(&s->to, db_stmt(&s->to, SQL_POSITIONS_AGAIN, err), err);
    int sources = sqlite3_changes(s->to.handle);
    if (result == 0 && sources > 0) {
        salvage_tell(s, "staging.db: positions: %d source%s to be read again from the beginning", sources,
                     plural((uint64_t)sources));
    }
    return result;
}

/* A folder of an older version has no such table. */
static int take_merges(struct salvage *s, struct err *err)
{
    int64_t has = 0;
    (void)db_int(&s->from, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'merges'", &has, NULL);
    return has > 0 ? salvage_copy(s, "merges", "id, from_user, into_user, forgets", err) : 0;
}

/* Without history's word on which were carried out none is carried out at the next start: it would erase what was
 * played since. */
static int take_forgets(struct salvage *s, struct err *err)
{
    int result = salvage_copy(s, "forgets", "user_key, item_hash, at, id", err);
    if (result < 0 || !s->has_history || s->settled > 0) {
        return result;
    }
    result = db_run(&s->to, db_stmt(&s->to, SQL_TOMBSTONES_SETTLE, err), err);
    int n = sqlite3_changes(s->to.handle);
    if (result == 0 && n > 0) {
        salvage_tell(s,
                     "staging.db: forgets: whether history.db had carried out %d of them can't be read: one that had "
                     "not been answered is to be asked for again",
                     n);
    }
    return result;
}

int salvage_staging(struct salvage *s, struct err *err)
{
    struct slot_tables tables;
    uint64_t lost;
    if (slot_rows_tables(&s->from, &tables, NULL) < 0) {
        salvage_tell(s, "staging.db: its list of tables can't be read to the end");
    }
    int result = 0;
    for (int slot = 0; slot < STORE_SLOTS_MAX && result == 0; slot++) {
        for (int part = -1; result == 0 && (part = slot_tables_next(&tables, slot, part)) >= 0;) {
            result = take_slot(s, slot_table(slot, part), err);
        }
    }
    if (result < 0 || (result = take_set_aside(s, err)) < 0 ||
        (result = take(s, "noted", "id", "id, user, state", "?, ?, ?", &lost, err)) < 0 ||
        (result = salvage_copy(s, "legacy_problems", "key, what, at", err)) < 0 ||
        (result = salvage_copy(s, "pools", "name, place, parts, items, version, changed", err)) < 0 ||
        (result = take(s, "pool_parts", "id", "id, items", "?, ?", &lost, err)) < 0 ||
        (result = take_merges(s, err)) < 0 || (result = take_forgets(s, err)) < 0) {
        return result;
    }
    return (result = take_feed(s, err)) < 0 ? result : take_positions(s, err);
}
