/* A connection's statements: prepared when they are needed first, kept until it closes or their table is gone; stepping
 * and binding them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/sqlite/db/db.h"

#define SQL_IMPLEMENTATION
#include "sql.h"

/* A statement of each kind, for one month's or slot's table. */
struct db_variant {
    int variant;
    sqlite3_stmt *stmts[SQL_STATEMENTS];
};

static sqlite3_stmt *prepare(struct db *db, const char *sql, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (db->handle == NULL ||
        sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) != SQLITE_OK) {
        db_error(db, err, sql);
        return NULL;
    }
    return stmt;
}

void db_expand(const char *sql, int variant, char *out, size_t out_size)
{
    char month[MONTH_TEXT];
    size_t len = 0;
    while (*sql != '\0' && len + 1 < out_size) {
        int n = 0;
        if (strncmp(sql, "{plays}", 7) == 0) {
            n = snprintf(out + len, out_size - len, "%s_%s", variant & DB_SEALED_TABLE ? "sealed" : "plays",
                         month_suffix(variant & ~DB_SEALED_TABLE, month));
            sql += 7;
        } else if (strncmp(sql, "{month}", 7) == 0) {
            n = snprintf(out + len, out_size - len, "%s", month_suffix(variant, month));
            sql += 7;
        } else if (strncmp(sql, "{slot}", 6) == 0) {
            int slot = variant % DB_SLOT_PART, part = variant / DB_SLOT_PART;
            n = part == 0 ? snprintf(out + len, out_size - len, "%d", slot)
                          : snprintf(out + len, out_size - len, "%d_%d", slot, part);
            sql += 6;
        } else {
            out[len] = *sql++;
            n = 1;
        }
        len += (size_t)n;
    }
    out[len < out_size ? len : out_size - 1] = '\0';
}

sqlite3_stmt *db_stmt(struct db *db, enum sql_statement which, struct err *err)
{
    if (db->fixed[which] == NULL) {
        db->fixed[which] = prepare(db, sql_statements[which], err);
    }
    return db->fixed[which];
}

static void free_variant(struct db_variant *v)
{
    for (int s = 0; s < SQL_STATEMENTS; s++) {
        sqlite3_finalize(v->stmts[s]);
    }
    free(v);
}

static bool is_stepped(const struct db_variant *v)
{
    for (int s = 0; s < SQL_STATEMENTS; s++) {
        if (v->stmts[s] != NULL && sqlite3_stmt_busy(v->stmts[s])) {
            return true;
        }
    }
    return false;
}

/* Makes the one that was used longest ago give way, but for those amid their rows. */
static void make_room(struct db *db)
{
    for (int i = db->n_variants - 1; i > 0 && db->n_variants >= DB_VARIANTS; i--) {
        if (!is_stepped(db->variants[i])) {
            free_variant(db->variants[i]);
            memmove(&db->variants[i], &db->variants[i + 1], sizeof *db->variants * (size_t)(db->n_variants - i - 1));
            db->n_variants--;
        }
    }
}

/* Moves the variant at i to the front, where the next look begins. */
static struct db_variant *put_first(struct db *db, int i)
{
    struct db_variant *v = db->variants[i];
    memmove(&db->variants[1], &db->variants[0], sizeof *db->variants * (size_t)i);
    db->variants[0] = v;
    return v;
}

static struct db_variant *find_variant(struct db *db, int variant)
{
    for (int i = 0; i < db->n_variants; i++) {
        if (db->variants[i]->variant == variant) {
            return i == 0 ? db->variants[0] : put_first(db, i);
        }
    }
    make_room(db);
    struct db_variant **more = realloc(db->variants, sizeof *more * (size_t)(db->n_variants + 1));
    if (more == NULL) {
        return NULL;
    }
    db->variants = more;
    struct db_variant *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return NULL;
    }
    v->variant = variant;
    more[db->n_variants] = v;
    return put_first(db, db->n_variants++);
}

sqlite3_stmt *db_stmt_for(struct db *db, enum sql_statement which, int variant, struct err *err)
{
    struct db_variant *v = find_variant(db, variant);
    if (v == NULL) {
        err_set(err, ERR_NOMEM, "out of memory");
        return NULL;
    }
    if (v->stmts[which] == NULL) {
        char sql[512];
        db_expand(sql_statements[which], variant, sql, sizeof sql);
        v->stmts[which] = prepare(db, sql, err);
    }
    return v->stmts[which];
}

void db_drop_variant(struct db *db, int variant)
{
    for (int i = 0; i < db->n_variants; i++) {
        if (db->variants[i]->variant == variant) {
            free_variant(db->variants[i]);
            db->variants[i] = db->variants[--db->n_variants];
            return;
        }
    }
}

void db_drop_statements(struct db *db)
{
    for (int i = 0; i < SQL_STATEMENTS; i++) {
        sqlite3_finalize(db->fixed[i]);
        db->fixed[i] = NULL;
    }
    while (db->n_variants > 0) {
        db_drop_variant(db, db->variants[0]->variant);
    }
    free(db->variants);
    db->variants = NULL;
}

int db_step(struct db *db, sqlite3_stmt *stmt, struct err *err)
{
    if (stmt == NULL) {
        return err != NULL && err->code < 0 ? err->code : ERR_NOMEM;
    }
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        return 1;
    }
    int result = 0;
    if (rc != SQLITE_DONE) {
        result = db_error(db, err, sqlite3_sql(stmt));
    }
    sqlite3_reset(stmt);
    return result;
}

int db_run(struct db *db, sqlite3_stmt *stmt, struct err *err)
{
    int result = db_step(db, stmt, err);
    if (result == 1) {
        sqlite3_reset(stmt);
        return 0;
    }
    return result;
}

void db_bind_key(sqlite3_stmt *stmt, int64_t key)
{
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, key);
    }
}

void db_bind_id(sqlite3_stmt *stmt, int index, struct slice id)
{
    if (slice_is_text(id)) {
        sqlite3_bind_text(stmt, index, id.data, (int)id.len, SQLITE_STATIC);
    } else {
        sqlite3_bind_blob(stmt, index, id.data, (int)id.len, SQLITE_STATIC);
    }
}

struct slice db_column_bytes(sqlite3_stmt *stmt, int column)
{
    const char *data = sqlite3_column_blob(stmt, column);
    return slice_of(data, (size_t)sqlite3_column_bytes(stmt, column));
}

int db_meta_int(struct db *db, const char *name, int64_t fallback, int64_t least, int64_t most, int64_t *out,
                struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    }
    int result = db_step(db, stmt, err);
    *out = fallback;
    if (result == 1) {
        int64_t value = sqlite3_column_int64(stmt, 0);
        bool whole = sqlite3_column_type(stmt, 0) == SQLITE_INTEGER;
        result = 0;
        if (whole && value >= least && value <= most) {
            *out = value;
        } else {
            char text[TIME_TEXT];
            snprintf(text, sizeof text, "%" PRId64, value);
            result =
                err_set(err, ERR_CORRUPT, "%s: %s in meta is %s, expected a whole number from %" PRId64 " to %" PRId64,
                        db->path, name, whole ? text : log_quote(db_column_bytes(stmt, 0)), least, most);
        }
        sqlite3_reset(stmt);
    }
    return result;
}

int db_meta_count(struct db *db, const char *name, int64_t *out, struct err *err)
{
    return db_meta_int(db, name, 0, 0, INT64_MAX / 2, out, err);
}

int db_meta_time(struct db *db, const char *name, int64_t *out, struct err *err)
{
    return db_meta_int(db, name, 0, 0, CALENDAR_LAST_MS, out, err);
}

static int set_int(struct db *db, enum sql_statement which, const char *name, int64_t value, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, which, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 2, value);
    }
    return db_run(db, stmt, err);
}

int db_meta_set_int(struct db *db, const char *name, int64_t value, struct err *err)
{
    return set_int(db, SQL_META_SET, name, value, err);
}

int db_meta_raise(struct db *db, const char *name, int64_t value, struct err *err)
{
    return set_int(db, SQL_META_RAISE, name, value, err);
}
