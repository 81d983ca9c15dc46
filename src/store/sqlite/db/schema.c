/* Creating and upgrading both files. A file's version is the row `schema` of its meta table, and `schema_hash` tells
 * builds apart that gave one number to different SQL; each step is committed together with both. */
#include "store/sqlite/db/schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "store/sqlite/db/own_schema.h"
#include "store/sqlite/db/views.h"

static const struct schema_step staging_steps[] = {
    {sql_file_staging, views_make},
    {sql_file_staging_2, views_make},
    {sql_file_staging_3, NULL},
    {sql_file_staging_4, views_make},
};
static const struct schema_step history_steps[] = {{sql_file_history, views_make}};
enum {
    STAGING_VERSION = sizeof staging_steps / sizeof *staging_steps,
    HISTORY_VERSION = sizeof history_steps / sizeof *history_steps,
};

/* Of the SQL of the first n steps. */
static int64_t hash_of(const struct schema_step *steps, int64_t n)
{
    uint64_t chain[2] = {0};
    for (int64_t i = 0; i < n; i++) {
        chain[1] = hash_checksum(steps[i].sql, strlen(steps[i].sql));
        chain[0] = hash_checksum(chain, sizeof chain);
    }
    return (int64_t)chain[0];
}

/* 0: it is new. */
static int read_version(struct db *db, int64_t *version, struct err *err)
{
    int64_t has_meta = 0;
    int result =
        db_int(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'", &has_meta, err);
    *version = 0;
    return result == 0 && has_meta > 0 ? db_meta_int(db, "schema", 0, INT64_MIN, INT64_MAX, version, err) : result;
}

/* The same, of a file that these steps have made. */
static int need_version(struct db *db, const struct schema_step *steps, int n_steps, int64_t *version, struct err *err)
{
    int64_t hash = 0;
    int result = read_version(db, version, err);
    if (result < 0 || *version == 0) {
        return result;
    }
    if (*version > n_steps) {
        return err_set(err, ERR_VERSION,
                       "%s: its schema is version %" PRId64 ", newer than this program's %d: use the version of unseen "
                       "that wrote it, or a later one",
                       db->path, *version, n_steps);
    }
    if ((result = db_meta_int(db, "schema_hash", 0, INT64_MIN, INT64_MAX, &hash, err)) < 0) {
        return result;
    }
    if (*version < 0 || hash != hash_of(steps, *version)) {
        return err_set(err, ERR_VERSION,
                       "%s: its schema is a version %" PRId64 " that another build of unseen made: use that build, or "
                       "take its users over with its `unseen export` and `unseen load`",
                       db->path, *version);
    }
    return 0;
}

/* Both files have a table meta. One under the other's name would be upgraded to a mixture of both. */
static int need_kind(struct db *db, bool history, struct err *err)
{
    int64_t version = 0, users = 0;
    int result = read_version(db, &version, err);
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

/* Looks at each table before it reads it. */
int schema_examine(struct db *db, bool history, struct err *err)
{
    const struct schema_step *steps = history ? history_steps : staging_steps;
    int64_t version = 0;
    int result = own_schema_meta(db, steps, err);
    if (result < 0 || (result = need_kind(db, history, err)) < 0 ||
        (result = need_version(db, steps, history ? HISTORY_VERSION : STAGING_VERSION, &version, err)) < 0 ||
        (result = own_schema_check(db, history, steps, version, err)) < 0) {
        return result;
    }
    return version > 0;
}

static int run_step(struct db *db, const struct schema_step *steps, int64_t version, struct err *err)
{
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    if ((result = db_exec(db, steps[version].sql, err)) < 0 ||
        (steps[version].then != NULL && (result = steps[version].then(db, err)) < 0) ||
        (result = db_meta_set_int(db, "schema", version + 1, err)) < 0 ||
        (result = db_meta_set_int(db, "schema_hash", hash_of(steps, version + 1), err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

int schema_upgrade(struct db *db, const struct schema_step *steps, int n_steps, struct err *err)
{
    int64_t version = 0;
    int result = need_version(db, steps, n_steps, &version, err);
    bool existed = version > 0;
    for (; result == 0 && version < n_steps; version++) {
        result = run_step(db, steps, version, err);
        if (result == 0 && existed) {
            log_info("schema upgraded", "file=%s from=%" PRId64 " to=%" PRId64, log_quote_str(db->path), version,
                     version + 1);
        }
    }
    return result;
}

static int make(struct db *db, bool history, const struct schema_step *steps, int n_steps, struct err *err)
{
    int result = schema_examine(db, history, err);
    if (result < 0 || (result = schema_upgrade(db, steps, n_steps, err)) < 0) {
        return result;
    }
    return views_renew(db, err);
}

int schema_staging(struct db *db, struct err *err)
{
    return make(db, false, staging_steps, STAGING_VERSION, err);
}

int schema_history(struct db *db, struct err *err)
{
    return make(db, true, history_steps, HISTORY_VERSION, err);
}

int schema_is_older(struct db *db, bool *older, struct err *err)
{
    int64_t version = 0;
    int result = read_version(db, &version, err);
    *older = version > 0 && version < (strcmp(db->name, "history") == 0 ? HISTORY_VERSION : STAGING_VERSION);
    return result;
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
