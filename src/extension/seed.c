#include <stdlib.h>
#include <string.h>

#include "extension/extension.h"

SQLITE_EXTENSION_INIT3

/* Which files are open, and in which state: names, paths, and a number that changes with every commit. The temporary
 * database is left out. Returns 0 or ERR_NOMEM. */
static int list_files(struct buf *out, sqlite3 *db)
{
    const char *name;
    buf_clear(out);
    out->failed = false;
    for (int i = 0; (name = sqlite3_db_name(db, i)) != NULL; i++) {
        const char *path = sqlite3_db_filename(db, name);
        unsigned version = 0;
        if (i == 1) {
            continue;
        }
        sqlite3_file_control(db, name, SQLITE_FCNTL_DATA_VERSION, &version);
        buf_add(out, name, strlen(name) + 1);
        buf_add(out, path != NULL ? path : "", path != NULL ? strlen(path) + 1 : 1);
        buf_add(out, &version, sizeof version);
    }
    return out->failed ? ERR_NOMEM : 0;
}

/* 1: this file has a seed; 0: it has none, or is no folder's history; or an error. */
static int read_seed(sqlite3 *db, const char *name, uint64_t *seed, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    char *sql = sqlite3_mprintf("SELECT value FROM \"%w\".meta WHERE name = 'seed'", name);
    if (sql == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    sqlite3_free(sql);
    if (rc == SQLITE_ERROR) {
        return 0; /* no such table or column */
    }
    int result = 0;
    if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        char *end = NULL;
        *seed = text != NULL ? strtoull(text, &end, 16) : 0;
        result = text != NULL && strlen(text) == 16 && *end == '\0'
                     ? 1
                     : err_set(err, ERR_CORRUPT, "the seed in %s.meta is no number of 16 hex digits", name);
    } else if (rc != SQLITE_OK && rc != SQLITE_DONE) {
        result = err_set(err, ERR_IO, "%s.meta can't be read: %s", name, sqlite3_errmsg(db));
    }
    sqlite3_finalize(stmt);
    return result;
}

static int find_seed(sqlite3 *db, uint64_t *seed, struct err *err)
{
    const char *found_in = NULL;
    const char *name;
    for (int i = 0; (name = sqlite3_db_name(db, i)) != NULL; i++) {
        uint64_t other = 0;
        int result = i == 1 ? 0 : read_seed(db, name, &other, err);
        if (result < 0) {
            return result;
        }
        if (result == 1 && found_in != NULL && other != *seed) {
            return err_set(err, ERR_SEED, "%s and %s have different hash seeds: open one folder at a time", found_in,
                           name);
        }
        if (result == 1 && found_in == NULL) {
            found_in = name;
            *seed = other;
        }
    }
    return found_in != NULL ? 0
                            : err_set(err, ERR_NOTFOUND,
                                      "no hash seed: expected the history.db of a data folder, opened or attached");
}

int extension_seed(struct extension *x, sqlite3 *db, uint64_t *seed, struct err *err)
{
    if (list_files(&x->files, db) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    if (x->seed_of.len == 0 || !slice_eq(buf_slice(&x->files), buf_slice(&x->seed_of))) {
        buf_clear(&x->seed_of);
        int result = find_seed(db, &x->seed, err);
        if (result < 0) {
            return result;
        }
        if (buf_add(&x->seed_of, x->files.data, x->files.len) < 0) {
            buf_clear(&x->seed_of);
            x->seed_of.failed = false; /* then it is read again next time */
        }
    }
    *seed = x->seed;
    return 0;
}
