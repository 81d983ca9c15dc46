/* The wanted schema is made in memory by the steps' own SQL, and each row of sqlite_schema is looked up there. Tables
 * of months and slots come and go: what one must look like follows from its name. */
#include "store/sqlite/db/own_schema.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/staging/slot_rows.h"

enum { WORD_SHOWN = 48 /* bytes of a word, in an error */ };

#define SALVAGE "or save its rows with `unseen check --salvage NEWFOLDER`"

#define ALL "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema"

/* --- words of SQL --- */

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static const char *skip_blank(const char *p)
{
    for (;;) {
        if (isspace((unsigned char)*p)) {
            p++;
        } else if (p[0] == '-' && p[1] == '-') {
            p += strcspn(p, "\n");
        } else if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            p = end != NULL ? end + 2 : p + strlen(p);
        } else {
            return p;
        }
    }
}

/* The next word, literal or sign, and *at moved behind it; "" at the end of the statement. A name is given without its
 * quotes, unless one is part of it. */
static struct slice next_word(const char **at)
{
    const char *p = skip_blank(*at), *end = p;
    if (*p == '\0' || *p == ';') {
        *at = p;
        return slice_of("", 0);
    }
    if (*p == '"' || *p == '\'') {
        do {
            end = strchr(end + 1, *p);
            end = end != NULL ? end + 1 : p + strlen(p);
        } while (*end == *p);
        *at = end;
        bool plain = *p == '"' && memchr(p + 1, '"', (size_t)(end - p) - 1) == end - 1 && end - p > 2;
        return plain ? slice_of(p + 1, (size_t)(end - p) - 2) : slice_of(p, (size_t)(end - p));
    }
    do {
        end++;
    } while (in_word(*p) && in_word(*end));
    *at = end;
    return slice_of(p, (size_t)(end - p));
}

/* Where the two differ: the words there. */
struct difference {
    struct slice found, wanted;
};

static bool same(const char *sql, const char *wanted, struct difference *d)
{
    do {
        d->found = next_word(&sql);
        d->wanted = next_word(&wanted);
    } while (d->found.len > 0 && slice_eq(d->found, d->wanted));
    return d->found.len == 0 && d->wanted.len == 0;
}

bool own_schema_same(const char *sql, const char *wanted)
{
    struct difference d;
    return same(sql, wanted, &d);
}

/* --- what is wanted --- */

struct object {
    const char *type, *name, *table, *sql;
};

struct wanted {
    struct db *db; /* the file that is compared */
    bool history;
    const char *meta; /* the SQL of that table alone is wanted; else */
    sqlite3 *memory;
    sqlite3_stmt *find;
    char table[2048]; /* the SQL of a month's or slot's table */
};

static int close_wanted(struct wanted *w, int result)
{
    sqlite3_finalize(w->find);
    sqlite3_close(w->memory);
    return result;
}

static int memory_error(const struct wanted *w, struct err *err)
{
    int code = sqlite3_errcode(w->memory);
    return err_set(err, code == SQLITE_NOMEM ? ERR_NOMEM : ERR_SYSTEM, "%s: what its schema should be: %s", w->db->path,
                   sqlite3_errstr(code));
}

static int open_wanted(struct wanted *w, const struct schema_step *steps, int64_t n_steps, struct err *err)
{
    static const char find[] = "SELECT tbl_name, coalesce(sql, '') FROM sqlite_schema WHERE type = ?1 AND name = ?2";
    int rc =
        sqlite3_open_v2(":memory:", &w->memory,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX, NULL);
    for (int64_t i = 0; i < n_steps && rc == SQLITE_OK; i++) {
        rc = sqlite3_exec(w->memory, steps[i].sql, NULL, NULL, NULL);
    }
    rc = rc == SQLITE_OK ? sqlite3_prepare_v2(w->memory, find, -1, &w->find, NULL) : rc;
    return rc == SQLITE_OK ? 0 : memory_error(w, err);
}

/* Which month's table has that name, as db_expand() takes it; -1: none. */
static int month_table(const char *name)
{
    bool sealed = strncmp(name, "sealed_", 7) == 0;
    const char *digits = name + (sealed ? 7 : 6);
    if ((!sealed && strncmp(name, "plays_", 6) != 0) || strlen(digits) != 6 || strspn(digits, "0123456789") != 6) {
        return -1;
    }
    int year = 0, month = 0;
    sscanf(digits, "%4d%2d", &year, &month);
    return month >= 1 && month <= 12 ? month_make(year, month) | (sealed ? DB_SEALED_TABLE : 0) : -1;
}

/* The SQL of the month's or slot's table of that name, as SQLite keeps it. NULL: there is no such table. */
static const char *table_that_comes(struct wanted *w, const char *name)
{
    int variant = w->history ? month_table(name) : slot_table_named(name);
    char made[sizeof w->table];
    if (variant < 0) {
        return NULL;
    }
    db_expand(w->history ? sql_file_month : sql_file_slot, variant, made, sizeof made);
    const char *columns = strchr(made, '(');
    return columns != NULL && snprintf(w->table, sizeof w->table, "CREATE TABLE %s %s", name, columns) > 0 ? w->table
                                                                                                           : NULL;
}

/* What ANALYZE makes, which is read as numbers, for plans alone; and what tables that were there can leave behind. */
static const char *table_of_sqlite(const char *name)
{
    static const char *const tables[][2] = {
        {"sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"},
        {"sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)"},
        {"sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(tables[i][0], name) == 0) {
            return tables[i][1];
        }
    }
    return NULL;
}

static const char *column(sqlite3_stmt *stmt, int i)
{
    const char *text = (const char *)sqlite3_column_text(stmt, i);
    return text != NULL && strlen(text) == (size_t)sqlite3_column_bytes(stmt, i) ? text : "";
}

/* The object of that type and name as it should be, until the next call: 1. 0: there is none. */
static int find(struct wanted *w, const struct object *o, struct object *out, struct err *err)
{
    *out = (struct object){.type = o->type, .name = o->name, .table = o->name, .sql = w->meta};
    if (w->meta != NULL) {
        return strcmp(o->type, "table") == 0 && strcmp(o->name, "meta") == 0;
    }
    if (strcmp(o->type, "table") == 0 &&
        ((out->sql = table_that_comes(w, o->name)) != NULL || (out->sql = table_of_sqlite(o->name)) != NULL)) {
        return 1;
    }
    sqlite3_reset(w->find);
    sqlite3_bind_text(w->find, 1, o->type, -1, SQLITE_STATIC);
    sqlite3_bind_text(w->find, 2, o->name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(w->find);
    if (rc == SQLITE_ROW) {
        out->table = column(w->find, 0);
        out->sql = column(w->find, 1);
    }
    return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : memory_error(w, err);
}

/* --- errors --- */

static const char *show(struct slice word)
{
    return word.len == 0 ? "the end" : log_quote(slice_of(word.data, word.len < WORD_SHOWN ? word.len : WORD_SHOWN));
}

static bool is_plain(const char *name)
{
    bool any = *name != '\0';
    while (in_word(*name) && (unsigned char)*name < 0x80) {
        name++;
    }
    return any && *name == '\0';
}

/* Of one that should not be there. Any of its words may be made up. */
static int tell_stranger(const struct wanted *w, const struct object *o, struct err *err)
{
    static const char *const types[] = {"table", "index", "view", "trigger"};
    static const char *const words[] = {"TABLE", "INDEX", "VIEW", "TRIGGER"};
    const char *drop = NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        drop = strcmp(o->type, types[i]) == 0 ? words[i] : drop;
    }
    const char *type = drop != NULL ? o->type : log_quote_str(o->type);
    if (drop == NULL || !is_plain(o->name) || strncmp(o->name, "sqlite_", 7) == 0 || strcmp(o->name, "meta") == 0) {
        return err_set(err, ERR_CORRUPT, "%s: its %s %s on %s is none of unseen's: restore a backup, " SALVAGE,
                       w->db->path, type, log_quote_str(o->name), log_quote_str(o->table));
    }
    return err_set(err, ERR_CORRUPT,
                   "%s: its %s %s on %s is none of unseen's: in a copy, DROP %s \"%s\" in the sqlite3 "
                   "shell, " SALVAGE,
                   w->db->path, type, log_quote_str(o->name), log_quote_str(o->table), drop, o->name);
}

/* there: what has its name instead, "": nothing. */
static int tell_missing(const struct wanted *w, const struct object *o, const char *there, struct err *err)
{
    if (there[0] != '\0') {
        return err_set(err, ERR_CORRUPT, "%s: its %s is a %s instead of a %s: restore a backup, " SALVAGE, w->db->path,
                       o->name, log_quote_str(there), o->type);
    }
    if (strcmp(o->type, "index") == 0) {
        return err_set(err, ERR_CORRUPT, "%s: its index %s is missing: in a copy, %s in the sqlite3 shell, " SALVAGE,
                       w->db->path, o->name, o->sql);
    }
    return err_set(err, ERR_CORRUPT, "%s: its %s %s is missing: restore a backup, " SALVAGE, w->db->path, o->type,
                   o->name);
}

/* --- the comparison --- */

/* 0, or what is wrong with it. */
static int compare(struct wanted *w, const struct object *o, struct err *err)
{
    struct object own;
    struct difference d;
    if (strcmp(o->type, "view") == 0 && views_is_ours(w->history, o->name)) {
        return 0;
    }
    int found = find(w, o, &own, err);
    if (found <= 0) {
        return found < 0 ? found : tell_stranger(w, o, err);
    }
    if (strcmp(o->table, own.table) != 0) {
        return err_set(err, ERR_CORRUPT, "%s: its %s %s is on %s instead of %s: restore a backup, " SALVAGE,
                       w->db->path, o->type, o->name, log_quote_str(o->table), own.table);
    }
    if (!same(o->sql, own.sql, &d)) {
        return err_set(err, ERR_CORRUPT,
                       "%s: its %s %s is not as unseen makes it, %s stands where %s is expected: restore a "
                       "backup, " SALVAGE,
                       w->db->path, o->type, o->name, show(d.found), show(d.wanted));
    }
    return 0;
}

/* Each object that the query shows. */
static int compare_all(struct wanted *w, const char *query, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int result = 0, wrong = 0;
    if (sqlite3_prepare_v2(w->db->handle, query, -1, &stmt, NULL) != SQLITE_OK) {
        return db_error(w->db, err, "its schema");
    }
    struct err first = {0};
    while (first.code != ERR_NOMEM && (result = db_step(w->db, stmt, err)) == 1) {
        const struct object o = {column(stmt, 0), column(stmt, 1), column(stmt, 2), column(stmt, 3)};
        wrong += compare(w, &o, wrong == 0 ? &first : NULL) < 0;
    }
    sqlite3_finalize(stmt);
    if (result < 0 || wrong == 0) {
        return result;
    }
    return wrong == 1 ? err_set(err, first.code, "%s", first.text)
                      : err_set(err, first.code, "%s; and %d more in its schema", first.text, wrong - 1);
}

/* Each has pages of its own, or a change of one would be one of another. */
static int check_roots(struct db *db, struct err *err)
{
    static const char query[] =
        "SELECT min(name), iif(count(*) > 1, max(name), 'sqlite_schema') FROM sqlite_schema WHERE type IN ('table', "
        "'index') GROUP BY CAST(rootpage AS INTEGER) HAVING count(*) > 1 OR CAST(rootpage AS INTEGER) < 2";
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->handle, query, -1, &stmt, NULL) != SQLITE_OK) {
        return db_error(db, err, "its schema");
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        result = err_set(err, ERR_CORRUPT, "%s: %s and %s have the same pages: restore a backup, " SALVAGE, db->path,
                         log_quote_str(column(stmt, 0)), log_quote_str(column(stmt, 1)));
    }
    sqlite3_finalize(stmt);
    return result;
}

/* Each of ours is there. */
static int check_missing(struct wanted *w, struct err *err)
{
    sqlite3_stmt *own = NULL, *has = NULL;
    int result = 0;
    if (sqlite3_prepare_v2(w->memory, ALL, -1, &own, NULL) != SQLITE_OK) {
        return memory_error(w, err);
    }
    if (sqlite3_prepare_v2(w->db->handle, "SELECT type FROM sqlite_schema WHERE name = ?1 ORDER BY type <> ?2", -1,
                           &has, NULL) != SQLITE_OK) {
        result = db_error(w->db, err, "its schema");
    }
    while (result == 0 && sqlite3_step(own) == SQLITE_ROW) {
        const struct object o = {column(own, 0), column(own, 1), column(own, 2), column(own, 3)};
        if (strcmp(o.type, "view") == 0 && views_is_ours(w->history, o.name)) {
            continue;
        }
        sqlite3_bind_text(has, 1, o.name, -1, SQLITE_STATIC);
        sqlite3_bind_text(has, 2, o.type, -1, SQLITE_STATIC);
        result = db_step(w->db, has, err);
        if (result >= 0 && (result == 0 || strcmp(column(has, 0), o.type) != 0)) {
            result = tell_missing(w, &o, result == 1 ? column(has, 0) : "", err);
        }
        result = result < 0 ? result : 0;
        sqlite3_reset(has);
    }
    sqlite3_finalize(own);
    sqlite3_finalize(has);
    return result;
}

/* Comparisons and lengths in our SQL are of UTF-8. */
static int check_encoding(struct db *db, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->handle, "PRAGMA encoding", -1, &stmt, NULL) != SQLITE_OK) {
        return db_error(db, err, "its encoding");
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        const char *is = column(stmt, 0);
        result = strcmp(is, "UTF-8") == 0
                     ? 0
                     : err_set(err, ERR_CORRUPT, "%s: its texts are %s, expected UTF-8: restore a backup, " SALVAGE,
                               db->path, is);
    }
    sqlite3_finalize(stmt);
    return result;
}

int own_schema_check(struct db *db, bool history, const struct schema_step *steps, int64_t n_steps, struct err *err)
{
    struct wanted w = {.db = db, .history = history};
    int result = open_wanted(&w, steps, n_steps, err);
    if (result == 0 && (result = check_missing(&w, err)) == 0 && (result = compare_all(&w, ALL, err)) == 0 &&
        (result = check_roots(db, err)) == 0) {
        result = check_encoding(db, err);
    }
    return close_wanted(&w, result);
}

int own_schema_meta(struct db *db, const struct schema_step *steps, struct err *err)
{
    struct wanted w = {.db = db, .meta = strstr(steps[0].sql, "CREATE TABLE meta ")};
    return compare_all(&w, ALL " WHERE lower(name) = 'meta' OR lower(tbl_name) = 'meta'", err);
}
