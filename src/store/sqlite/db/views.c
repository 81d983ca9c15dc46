#include "store/sqlite/db/views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/sqlite/db/own_schema.h"

static const struct view {
    const char *file; /* of the db's name */
    const char *name;
    enum sql_statement made_by; /* SQL_STATEMENTS: it is fixed, and part of the schema ... */
    const char *schema;         /* ... which is this text */
} views[] = {
    {"history", "plays", SQL_VIEW_PLAYS, NULL},
    {"history", "month_report", SQL_STATEMENTS, sql_file_history},
    {"history", "expiring", SQL_STATEMENTS, sql_file_history},
    {"history", "deliveries", SQL_STATEMENTS, sql_file_history},
    {"history", "forgotten", SQL_STATEMENTS, sql_file_history},
    {"history", "damaged", SQL_STATEMENTS, sql_file_history},
    {"staging", "staged", SQL_VIEW_STAGED, NULL},
    {"staging", "ring", SQL_VIEW_RING, NULL},
    {"staging", "migration", SQL_STATEMENTS, sql_file_staging},
    {"staging", "migration_problems", SQL_STATEMENTS, sql_file_staging},
    {"staging", "feed_lag", SQL_STATEMENTS, sql_file_staging},
    {"staging", "mirror_queue", SQL_STATEMENTS, sql_file_staging_4},
};
enum { VIEWS = sizeof views / sizeof *views };

static bool is_made(const struct db *db, const struct view *view)
{
    return strcmp(view->file, db->name) == 0 && view->made_by != SQL_STATEMENTS;
}

bool views_is_ours(bool history, const char *name)
{
    for (int i = 0; i < VIEWS; i++) {
        if (strcmp(views[i].file, history ? "history" : "staging") == 0 && strcmp(views[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* A fixed one's statement, up to its semicolon, behind which the text goes on. */
static const char *fixed_sql(const struct view *view)
{
    char head[64];
    snprintf(head, sizeof head, "CREATE VIEW %s AS", view->name);
    return strstr(view->schema, head);
}

static int drop(struct db *db, const struct view *view, struct err *err)
{
    char sql[64];
    snprintf(sql, sizeof sql, "DROP VIEW IF EXISTS %s", view->name);
    return db_exec(db, sql, err);
}

/* The view's SQL as the tables want it. The caller frees it; NULL on error. */
static char *wanted_sql(struct db *db, const struct view *view, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, view->made_by, err);
    if (db_step(db, stmt, err) != 1) {
        return NULL;
    }
    const char *text = (const char *)sqlite3_column_text(stmt, 0);
    char *sql = text != NULL ? strdup(text) : NULL;
    sqlite3_reset(stmt);
    if (sql == NULL) {
        err_set(err, ERR_NOMEM, "out of memory");
    }
    return sql;
}

static int make(struct db *db, const struct view *view, struct err *err)
{
    int result = drop(db, view, err);
    if (result < 0) {
        return result;
    }
    struct err why = {0};
    char *sql = wanted_sql(db, view, &why);
    result = sql != NULL ? db_exec(db, sql, &why) : why.code;
    free(sql);
    return result < 0 ? err_set(err, why.code, "%s", why.text) : 0;
}

int views_make(struct db *db, struct err *err)
{
    int result = 0;
    for (int i = 0; i < VIEWS && result == 0; i++) {
        result = is_made(db, &views[i]) ? make(db, &views[i], err) : 0;
    }
    return result;
}

int views_drop(struct db *db, struct err *err)
{
    int result = 0;
    for (int i = 0; i < VIEWS && result == 0; i++) {
        result = is_made(db, &views[i]) ? drop(db, &views[i], err) : 0;
    }
    return result;
}

static const char missing[] = "it is missing";

/* What is wrong with it, or NULL. */
static const char *look(struct db *db, const struct view *view, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_VIEW_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, view->name, -1, SQLITE_STATIC);
    }
    const char *problem = NULL;
    int found = db_step(db, stmt, err);
    if (found == 1) {
        const char *stored = (const char *)sqlite3_column_text(stmt, 0);
        if (is_made(db, view)) {
            char *wanted = wanted_sql(db, view, err);
            if (wanted != NULL && (stored == NULL || strcmp(wanted, stored) != 0)) {
                problem = "it doesn't fit the tables that are there";
            }
            free(wanted);
        } else if (stored == NULL || !own_schema_same(stored, fixed_sql(view))) {
            problem = "it is not as unseen makes it";
        }
        sqlite3_reset(stmt);
    } else if (found == 0) {
        problem = missing;
    }
    return problem;
}

/* A fixed view that is missing, or another than ours. */
static int restore(struct db *db, const struct view *view, const char *what, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int result = drop(db, view, err);
    if (result < 0) {
        return result;
    }
    if (sqlite3_prepare_v2(db->handle, fixed_sql(view), -1, &stmt, NULL) != SQLITE_OK) {
        return db_error(db, err, view->name);
    }
    result = db_run(db, stmt, err);
    sqlite3_finalize(stmt);
    if (result == 0) {
        log_info(what == missing ? "missing view made again" : "view made again", "file=%s view=%s",
                 log_quote_str(db->path), view->name);
    }
    return result;
}

static int renew(struct db *db, const char *const unfit[VIEWS], struct err *err)
{
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    for (int i = 0; i < VIEWS && result == 0; i++) {
        if (unfit[i] != NULL) {
            result = is_made(db, &views[i]) ? make(db, &views[i], err) : restore(db, &views[i], unfit[i], err);
        }
    }
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

int views_renew(struct db *db, struct err *err)
{
    struct err why = {0};
    const char *unfit[VIEWS] = {NULL};
    bool fit = true;
    for (int i = 0; i < VIEWS && why.code == 0; i++) {
        unfit[i] = strcmp(views[i].file, db->name) == 0 ? look(db, &views[i], &why) : NULL;
        fit = fit && unfit[i] == NULL;
    }
    if (why.code < 0) {
        return err_set(err, why.code, "%s", why.text);
    }
    return fit ? 0 : renew(db, unfit, err);
}

/* It is ours, so it can be read in this one place. */
static bool can_be_read(struct db *db, const struct view *view)
{
    char sql[64];
    sqlite3_stmt *stmt = NULL;
    snprintf(sql, sizeof sql, "SELECT * FROM %s", view->name);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_VIEW, 1, NULL);
    bool good = sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) == SQLITE_OK;
    sqlite3_finalize(stmt);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    return good;
}

int views_check(struct db *db, void (*problem)(void *arg, const char *view, const char *what), void *arg,
                struct err *err)
{
    struct err why = {0};
    for (int i = 0; i < VIEWS && why.code == 0; i++) {
        if (strcmp(views[i].file, db->name) != 0) {
            continue;
        }
        const char *what = look(db, &views[i], &why);
        if (what == NULL && why.code == 0 && !can_be_read(db, &views[i])) {
            what = sqlite3_errmsg(db->handle);
        }
        if (what != NULL) {
            problem(arg, views[i].name, what);
        }
    }
    return why.code < 0 ? err_set(err, why.code, "%s", why.text) : 0;
}
