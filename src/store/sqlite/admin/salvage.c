/* Saves what can be read of a damaged folder into a new one. The damaged files are only read. Until the new ones are
 * complete they have names that nothing opens, as in a backup. */
#include "store/sqlite/admin/salvage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/owner.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/sqlite_store.h"
#include "store/store.h"

void salvage_tell(struct salvage *s, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    s->losses++;
    s->did(s->arg, text);
}

int salvage_put(struct salvage *s, sqlite3_stmt *put, sqlite3_stmt *row, struct err *err)
{
    for (int i = 0; i < sqlite3_column_count(row); i++) {
        sqlite3_bind_value(put, i + 1, sqlite3_column_value(row, i));
    }
    if (++s->rows % 1024 == 0 && s->progress != NULL) {
        s->progress(s->arg, s->rows, 0);
    }
    return db_run(&s->to, put, err);
}

int salvage_open(struct salvage *s, const char *folder, const char *name, struct err *err)
{
    struct db *db = &s->from;
    int64_t tables = 0;
    struct err why = {0};
    *db = (struct db){.name = name, .mode = DB_READ};
    if (snprintf(db->path, sizeof db->path, "%s/%s.db", folder, name) >= (int)sizeof db->path) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    bool whole = access(db->path, F_OK) == 0;
    int result = 0;
    if (!whole) {
        err_set(&why, ERR_NOTFOUND, "%s: there is no such file", db->path);
    } else if (sqlite3_open_v2(db->path, &db->handle, SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        result = db_error(db, &why, "open");
    } else if ((result = db_distrust(db, &why)) == 0) {
        /* Otherwise SQLite refuses a file that has fewer pages than its header says. */
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
        if ((result = db_exec(db, "PRAGMA writable_schema = ON", &why)) == 0) {
            result = db_int(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'", &tables, &why);
        }
    }
    if (whole && result == 0 && tables > 0) {
        return 1;
    }
    salvage_tell(s, "%s.db: nothing can be read: %s", name, why.code < 0 ? why.text : "it has no table meta");
    sqlite3_close(db->handle);
    db->handle = NULL;
    return 0;
}

uint64_t salvage_rows_max(struct salvage *s)
{
    int64_t pages = 0, size = 0;
    struct err none = {0};
    bool known = db_int(&s->from, "PRAGMA page_count", &pages, &none) == 0 &&
                 db_int(&s->from, "PRAGMA page_size", &size, &none) == 0;
    return known ? (uint64_t)pages * (uint64_t)size / 4 : 0;
}

int salvage_copy(struct salvage *s, const char *table, const char *columns, struct err *err)
{
    char read[256], write[256], values[64] = "?";
    sqlite3_stmt *from = NULL, *to = NULL;
    for (const char *c = columns; *c != '\0'; c++) {
        strcat(values, *c == ',' ? ", ?" : "");
    }
    snprintf(write, sizeof write, "INSERT OR IGNORE INTO %s (%s) VALUES (%s)", table, columns, values);
    if (sqlite3_prepare_v2(s->to.handle, write, -1, &to, NULL) != SQLITE_OK) {
        return db_error(&s->to, err, write);
    }
    bool whole = false;
    int result = 0;
    uint64_t left = 2 * salvage_rows_max(s);
    for (int down = 0; down <= 1 && !whole && result == 0; down++) {
        int rc;
        snprintf(read, sizeof read, "SELECT %s FROM %s%s", columns, table, down ? " ORDER BY 1 DESC" : "");
        rc = sqlite3_prepare_v2(s->from.handle, read, -1, &from, NULL);
        while (rc == SQLITE_OK && result == 0 && left > 0 && (rc = sqlite3_step(from)) == SQLITE_ROW) {
            left--;
            for (int i = 0; i < sqlite3_column_count(from); i++) {
                sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
            }
            result = db_run(&s->to, to, err);
            rc = SQLITE_OK;
        }
        whole = rc == SQLITE_DONE;
        sqlite3_finalize(from);
        from = NULL;
    }
    if (result == 0 && !whole) {
        salvage_tell(s, "%s.db: %s can't be read to its end", s->from.name, table);
    }
    sqlite3_finalize(to);
    return result;
}

/* --- meta --- */

/* The new folder begins its own count of starts, and gets a mark of its own. */
static int copy_meta(struct salvage *s, struct err *err)
{
    int result = salvage_copy(s, "meta", "name, value", err); /* `schema` is there already */
    return result < 0 ? result : db_exec(&s->to, "DELETE FROM meta WHERE name IN ('folder', 'starts')", err);
}

static bool proves_seed(struct salvage *s, uint64_t seed)
{
    sqlite3_stmt *stmt = NULL;
    bool proved = true;
    if (sqlite3_prepare_v2(s->from.handle, "SELECT user_key, user FROM users LIMIT 1", -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        struct slice user = db_column_bytes(stmt, 1);
        proved = user.len == 0 || hash_user_key(seed, user) == sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    return proved;
}

static int find_seed(struct salvage *s, const uint64_t *given, struct err *err)
{
    struct err why = {0};
    if (s->from.handle != NULL && schema_seed(&s->from, &s->seed, &why) == 1) {
        s->seed_known = true;
    } else if (given != NULL) {
        s->seed = *given;
        s->seed_known = true;
    } else if (s->from.handle != NULL) {
        return err_set(err, ERR_SEED,
                       "the hash seed of history.db can't be read, and without it no user's plays can be found: give "
                       "hash_seed, or restore a backup");
    } else if (getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed) {
        return err_set(err, ERR_SYSTEM, "can't draw a seed");
    }
    if (s->from.handle != NULL && !proves_seed(s, s->seed)) {
        return err_set(err, ERR_SEED, "the users of history.db have keys of another hash seed than %s",
                       given != NULL ? "that which was given" : "the one in it");
    }
    return 0;
}

static int write_seed(struct salvage *s, struct err *err)
{
    char sql[128];
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta (name, value) VALUES ('seed', '%016" PRIx64 "')", s->seed);
    return db_exec(&s->to, sql, err);
}

/* --- the files --- */

static int begin_file(struct salvage *s, const struct backup_folder *f, const char *partial, const char *name,
                      int (*schema)(struct db *db, struct err *err), struct err *err)
{
    int result = db_open(&s->to, f->path, partial, NULL, DB_WRITE_FULL, err);
    if (result < 0) {
        return result;
    }
    s->to.name = name; /* by which its views are known */
    result = schema(&s->to, err);
    return result < 0 ? result : db_begin(&s->to, err);
}

static int end_file(struct salvage *s, const struct backup_folder *f, const char *partial, int result, struct err *err)
{
    if (result == 0 && (result = views_make(&s->to, err)) == 0) {
        result = db_commit(&s->to, err);
    } else {
        db_rollback(&s->to);
    }
    db_drop_statements(&s->from);
    sqlite3_close(s->from.handle);
    s->from.handle = NULL;
    db_close(&s->to);
    return result < 0 ? result : backup_close_wal(f->path, partial, NULL, err);
}

static int do_history(struct salvage *s, const char *folder, const struct backup_folder *f, const uint64_t *given,
                      struct err *err)
{
    int result = salvage_open(s, folder, "history", err);
    if (result < 0 || (result = find_seed(s, given, err)) < 0) {
        return end_file(s, f, HISTORY_PARTIAL, result, err);
    }
    result = begin_file(s, f, HISTORY_PARTIAL, "history", schema_history, err);
    if (result == 0 && s->from.handle != NULL && (result = copy_meta(s, err)) == 0) {
        result = salvage_history(s, err);
    }
    if (result == 0 && (result = write_seed(s, err)) == 0 &&
        (result = db_meta_count(&s->to, "flushes", &s->flushes, err)) == 0) {
        result = db_meta_count(&s->to, "high_water", &s->high_water, err);
    }
    if (result == 0 && (result = db_meta_count(&s->to, "forgets", &s->settled, err)) == 0) {
        s->high_water = s->settled > s->high_water ? s->settled : s->high_water;
        s->has_history = s->from.handle != NULL;
    }
    return end_file(s, f, HISTORY_PARTIAL, result, err);
}

static int do_staging(struct salvage *s, const char *folder, const struct backup_folder *f, struct err *err)
{
    int result = salvage_open(s, folder, "staging", err);
    if (result < 0) {
        return end_file(s, f, STAGING_PARTIAL, result, err);
    }
    result = begin_file(s, f, STAGING_PARTIAL, "staging", schema_staging, err);
    if (result == 0 && s->from.handle != NULL && (result = copy_meta(s, err)) == 0) {
        result = salvage_staging(s, err);
    }
    if (result == 0 && !s->seed_known) { /* they are keys of the old seed */
        result = db_exec(&s->to, "DELETE FROM noted WHERE state = 3; DELETE FROM forgets", err);
    }
    if (result == 0 && (result = db_meta_raise(&s->to, "high_water", s->high_water, err)) == 0) {
        result = db_meta_set_int(&s->to, "flushes", s->flushes, err);
    }
    return end_file(s, f, STAGING_PARTIAL, result, err);
}

static int sync_files(const struct backup_folder *f, struct err *err)
{
    static const char *const names[] = {STAGING_PARTIAL, HISTORY_PARTIAL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int fd = backup_folder_open(f, names[i], err);
        if (fd < 0) {
            return fd;
        }
        int synced = fsync(fd);
        close(fd);
        if (synced < 0) {
            return err_set(err, ERR_IO, "can't sync the files in %s", f->path);
        }
    }
    return 0;
}

/* The new folder is to take the place of the damaged one. */
static void own_target(const struct backup_folder *f, const char *damaged)
{
    char path[PATH_MAX + 32];
    if (f->created_from == 0) {
        return; /* its owner was chosen */
    }
    owner_as(f->path, damaged);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s.db", f->path, i == 0 ? STAGING_PARTIAL : HISTORY_PARTIAL);
        owner_as_folder(path);
    }
}

int sqlite_salvage_folder(const struct sqlite_salvage *order, struct err *err)
{
    struct salvage s = {.did = order->did, .progress = order->progress, .arg = order->arg};
    struct backup_folder f;
    struct err none = {0};
    if (folder_need(order->folder, "history.db", &none) < 0 && folder_need(order->folder, "staging.db", &none) < 0) {
        return err_set(err, ERR_NOTFOUND, "there is neither history.db nor staging.db in %s", order->folder);
    }
    struct folder_lock lock;
    int result = folder_lock(order->folder, &lock, err);
    if (result < 0) {
        return result;
    }
    result = backup_folder_take(&f, order->target, NULL, order->folder, err);
    if (result == 0) {
        own_target(&f, order->folder);
        if ((result = do_history(&s, order->folder, &f, order->seed, err)) == 0 &&
            (result = do_staging(&s, order->folder, &f, err)) == 0 && (result = sync_files(&f, err)) == 0) {
            result = backup_folder_complete(&f, err);
        }
        if (result < 0) {
            backup_folder_remove(&f);
        } else {
            backup_folder_leave(&f);
        }
    }
    folder_unlock(&lock);
    return result < 0 ? result : s.losses;
}
