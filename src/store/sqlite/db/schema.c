/* Creating and upgrading both files. A file's version is the row `schema` of its meta table; each step from one version
 * to the next is committed together with the new version. */
#include "store/sqlite/db/schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/sqlite/db/views.h"

struct step {
    const char *sql; /* brings the file from version i to i + 1, i being its place in the array */
    int (*then)(struct db *db, struct err *err); /* what SQL alone can't; or NULL */
};

static const struct step staging_steps[] = {{sql_file_staging, NULL},         {sql_file_staging_2, NULL},
                                            {sql_file_staging_3, views_make}, {sql_file_staging_4, NULL},
                                            {sql_file_staging_5, NULL},       {sql_file_staging_6, NULL}};
static const struct step history_steps[] = {
    {sql_file_history, NULL}, {sql_file_history_2, NULL}, {sql_file_history_3, views_make}};

static int run_step(struct db *db, const struct step *step, int64_t to, struct err *err)
{
    int result = db_exec(db, step->sql, err);
    if (result == 0 && step->then != NULL) {
        result = step->then(db, err);
    }
    return result < 0 ? result : db_meta_set_int(db, "schema", to, err);
}

int schema_version(struct db *db, int64_t *version, struct err *err)
{
    int64_t has_meta = 0;
    int result =
        db_int(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'", &has_meta, err);
    *version = 0;
    return result == 0 && has_meta > 0 ? db_meta_int(db, "schema", 0, version, err) : result;
}

/* Both files have a table meta. One under the other's name would be upgraded to a mixture of both. */
int schema_kind(struct db *db, bool history, struct err *err)
{
    int64_t version = 0;
    int64_t users = 0;
    int result = schema_version(db, &version, err);
    if (result < 0 || version == 0) {
        return result;
    }
    result = db_int(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'users'", &users, err);
    if (result < 0 || (users > 0) == history) {
        return result;
    }
    return err_set(err, ERR_CORRUPT, "%s: this is a %s.db: give each file its own name", db->path,
                   history ? "staging" : "history");
}

static int upgrade(struct db *db, const struct step *steps, int64_t n_steps, struct err *err)
{
    int64_t version = 0;
    int result = schema_version(db, &version, err);
    if (result < 0 || (result = schema_kind(db, steps == history_steps, err)) < 0) {
        return result;
    }
    if (version > n_steps) {
        return err_set(err, ERR_VERSION,
                       "%s: its schema is version %" PRId64 ", newer than this program's %" PRId64
                       ": use the version of unseen that wrote it, or a later one",
                       db->path, version, n_steps);
    }
    bool existed = version > 0;
    /* A step may rewrite the text of a table's SQL; some builds of SQLite forbid that unless told otherwise. */
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    while (version < n_steps) {
        if ((result = db_begin(db, err)) < 0) {
            return result;
        }
        if ((result = run_step(db, &steps[version], version + 1, err)) < 0) {
            db_rollback(db);
            return result;
        }
        if ((result = db_commit(db, err)) < 0) {
            return result;
        }
        if (existed) {
            log_info("schema upgraded", "file=%s from=%" PRId64 " to=%" PRId64, log_quote_str(db->path), version,
                     version + 1);
        }
        version++;
    }
    return views_renew(db, err);
}

int schema_staging(struct db *db, struct err *err)
{
    return upgrade(db, staging_steps, sizeof staging_steps / sizeof *staging_steps, err);
}

int schema_history(struct db *db, struct err *err)
{
    return upgrade(db, history_steps, sizeof history_steps / sizeof *history_steps, err);
}

int schema_seed(struct db *db, uint64_t *seed, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, "seed", -1, SQLITE_STATIC);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        char *end = NULL;
        *seed = text != NULL ? strtoull(text, &end, 16) : 0;
        if (text == NULL || strlen(text) != 16 || *end != '\0') {
            result = err_set(err, ERR_CORRUPT, "%s: the seed in meta is no number of 16 hex digits", db->path);
        }
        sqlite3_reset(stmt);
    }
    return result;
}
