/* A connection: opening it with every pragma read back, errors, transactions and the WAL. */
#include "store/sqlite/db/db.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/owner.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/db/own_wal.h"
#include "store/sqlite/db/read_now.h"

enum {
    BUSY_WAIT_MS = 2000,     /* for a lock that an operator's shell may hold for a moment */
    CHECKPOINT_WAIT_MS = 20, /* for readers to end their snapshots */
    /* A file enters WAL mode and leaves it by a rollback journal. What NORMAL leaves out is sound with a log, but there
     * a power cut could leave a journal that says it is whole, and isn't; and where FULL doesn't make its removal
     * durable, one that comes back takes the change back. */
    SYNC_EXTRA = 3,
};

static void log_sqlite(void *arg, int code, const char *text)
{
    static struct log_limit limit;
    (void)arg;
    /* Schema changes are prepared again by SQLite itself, and a WAL that is recovered after a crash is what it's for.
     */
    if ((code & 0xff) == SQLITE_SCHEMA || (code & 0xff) == SQLITE_NOTICE || (code & 0xff) == SQLITE_CONSTRAINT ||
        read_now_missed()) {
        return;
    }
    /* What failed is told by the caller, too: this only adds SQLite's own words to the first of many. */
    if (!log_again(&limit)) {
        return;
    }
    log_warn("sqlite", "code=%d text=%s", code, log_quote_str(text));
}

static void configure_once(void)
{
    /* Without memory statistics no allocation takes SQLite's one global lock. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_MULTITHREAD);
    sqlite3_config(SQLITE_CONFIG_LOG, log_sqlite, NULL);
    sqlite3_initialize();
    read_now_install();
}

int db_error(struct db *db, struct err *err, const char *what)
{
    if (db->handle == NULL) {
        return err_set(err, ERR_IO, "%s: %s: the file is not open", db->path, what);
    }
    int code = sqlite3_extended_errcode(db->handle);
    db->unsure = db->unsure || code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC;
    int ours = ERR_IO;
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        ours = ERR_NOMEM;
        break;
    case SQLITE_FULL:
        ours = ERR_FULL;
        break;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        ours = ERR_READONLY;
        break;
    case SQLITE_CANTOPEN:
        ours = ERR_IO;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        ours = ERR_CORRUPT;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        ours = ERR_BUSY;
        break;
    default:
        break;
    }
    int system = sqlite3_system_errno(db->handle);
    if (ours == ERR_IO && (system == ENOSPC || system == EDQUOT)) {
        ours = ERR_FULL;
    }
    bool tell_system = system != 0 && (ours == ERR_IO || ours == ERR_READONLY);
    return err_set(err, ours, "%s: %s: %s%s%s%s", db->path, what, sqlite3_errmsg(db->handle), tell_system ? " (" : "",
                   tell_system ? strerror(system) : "", tell_system ? ")" : "");
}

int db_exec(struct db *db, const char *sql, struct err *err)
{
    if (sqlite3_exec(db->handle, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return db_error(db, err, sql);
    }
    return 0;
}

int db_int(struct db *db, const char *sql, int64_t *out, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) != SQLITE_OK) {
        return db_error(db, err, sql);
    }
    int rc = sqlite3_step(stmt);
    int result = 0;
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(stmt, 0);
    } else {
        result =
            rc == SQLITE_DONE ? err_set(err, ERR_NOTFOUND, "%s: %s: no row", db->path, sql) : db_error(db, err, sql);
    }
    sqlite3_finalize(stmt);
    return result;
}

int db_pragma(struct db *db, const char *pragma, int64_t value, struct err *err)
{
    char sql[96];
    snprintf(sql, sizeof sql, "PRAGMA %s = %" PRId64, pragma, value);
    int result = db_exec(db, sql, err);
    if (result < 0) {
        return result;
    }
    int64_t now = 0;
    snprintf(sql, sizeof sql, "PRAGMA %s", pragma);
    result = db_int(db, sql, &now, err);
    if (result == 0 && now != value) {
        result = err_set(err, ERR_SYSTEM, "%s: PRAGMA %s is %" PRId64 " after it was set to %" PRId64, db->path, pragma,
                         now, value);
    }
    return result;
}

/* The journal mode is text, so it has a read-back of its own. */
static int set_wal(struct db *db, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->handle, "PRAGMA journal_mode = WAL", -1, &stmt, NULL) != SQLITE_OK) {
        return db_error(db, err, "journal_mode");
    }
    int result = 0;
    int rc = sqlite3_step(stmt);
    if ((rc & 0xff) == SQLITE_BUSY) { /* a file that was closed has no log beside which it could be read */
        result = err_set(err, ERR_BUSY,
                         "%s: another program reads it, such as a sqlite3 shell, and it can't be opened for writing "
                         "meanwhile: end that first",
                         db->path);
    } else if (rc != SQLITE_ROW) {
        result = db_error(db, err, "journal_mode");
    } else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") != 0) {
        result = err_set(err, ERR_SYSTEM, "%s: journal_mode is %s after it was set to wal", db->path,
                         (const char *)sqlite3_column_text(stmt, 0));
    }
    sqlite3_finalize(stmt);
    return result;
}

/* Whether the file is ours, or new: then *is_new. */
static int check_owner(struct db *db, bool *is_new, struct err *err)
{
    int64_t id = 0;
    int64_t tables = 0;
    int result = db_int(db, "PRAGMA application_id", &id, err);
    if (result == 0) {
        result = db_int(db, "SELECT count(*) FROM sqlite_schema", &tables, err);
    }
    if (result == ERR_CORRUPT) { /* nothing else can be read either: say what helps */
        return err_set(err, ERR_CORRUPT,
                       "%s: %s: restore a backup, or save what can be read with `unseen check --salvage NEWFOLDER`",
                       db->path, sqlite3_errmsg(db->handle));
    }
    if (result < 0) {
        return result;
    }
    *is_new = id == 0 && tables == 0;
    if (id == DB_APPLICATION_ID || *is_new) {
        return 0;
    }
    return err_set(err, ERR_CORRUPT,
                   "%s: this SQLite database belongs to another program (application_id %" PRId64 ", expected %d)",
                   db->path, id, DB_APPLICATION_ID);
}

static int on_wal(void *arg, sqlite3 *handle, const char *schema, int pages)
{
    (void)handle;
    (void)schema;
    struct db *db = arg;
    db->wal_bytes = (int64_t)pages * db->page_size;
    return SQLITE_OK;
}

/* Only a file without a single page takes another page size; any other keeps its own. Of the files made here,
 * staging.db is the one whose every commit is durable. */
static int set_page_size(struct db *db, struct err *err)
{
    int64_t size = db->mode == DB_WRITE_FULL ? DB_STAGING_PAGE : DB_HISTORY_PAGE;
    int64_t pages = 0;
    int result = db_int(db, "PRAGMA page_count", &pages, err);
    return result < 0 || pages > 0 ? result : db_pragma(db, "page_size", size, err);
}

int db_distrust(struct db *db, struct err *err)
{
    static const struct {
        int what, on;
    } switches[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
        {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
    };
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        int is = -1;
        if (sqlite3_db_config(db->handle, switches[i].what, switches[i].on, &is) != SQLITE_OK || is != switches[i].on) {
            return err_set(err, ERR_SYSTEM, "%s: SQLite's switch %d is %d after it was set to %d", db->path,
                           switches[i].what, is, switches[i].on);
        }
    }
    return sqlite3_drop_modules(db->handle, NULL) == SQLITE_OK ? 0 : db_error(db, err, "dropping modules");
}

static int configure(struct db *db, struct err *err)
{
    bool is_new = false;
    int result = db_distrust(db, err);
    if (result < 0 || (result = db_pragma(db, "cell_size_check", 1, err)) < 0 ||
        (result = check_owner(db, &is_new, err)) < 0) {
        return result;
    }
    /* The size of the page cache in KiB, as SQLite takes it; -2000 is its default. Readers need few pages at a time.
     * mmap_size is not read back, since a build without memory maps answers nothing. */
    if ((result = db_exec(db, "PRAGMA mmap_size = 0", err)) < 0 ||
        (result = db_pragma(db, "wal_autocheckpoint", 0, err)) < 0 ||
        (result = db_pragma(db, "temp_store", 2, err)) < 0 ||
        (result = db_pragma(db, "cache_size", db->mode == DB_READ ? -4096 : -16384, err)) < 0) {
        return result;
    }
    if (db->mode == DB_READ) {
        return db_pragma(db, "query_only", 1, err);
    }
    if ((result = set_page_size(db, err)) < 0 || (result = db_pragma(db, "synchronous", SYNC_EXTRA, err)) < 0 ||
        (result = own_wal_enter(db, err)) < 0 || (result = set_wal(db, err)) < 0 ||
        (result = db_pragma(db, "max_page_count", DB_PAGES_MAX, err)) < 0 ||
        (result = db_pragma(db, "synchronous", db->mode == DB_WRITE_FULL ? 2 : 1, err)) < 0 ||
        (result = db_pragma(db, "secure_delete", 0, err)) < 0 || (result = db_pragma(db, "foreign_keys", 0, err)) < 0) {
        return result;
    }
    if (is_new && (result = db_pragma(db, "application_id", DB_APPLICATION_ID, err)) < 0) {
        return result; /* it writes: opening a file again after an error should not depend on that */
    }
    if ((result = db_int(db, "PRAGMA page_size", &db->page_size, err)) < 0) {
        return result;
    }
    sqlite3_wal_hook(db->handle, on_wal, db);
    return own_wal_link(db, err);
}

/* may_create: at the start alone. A file that has gone since is not to be taken for one that is new. */
static int open_file(struct db *db, const char *folder, const char *name, const char *vfs, enum db_mode mode,
                     bool may_create, bool renew, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure_once);
    memset(db, 0, sizeof *db);
    db->name = name;
    db->vfs = vfs;
    db->mode = mode;
    if (snprintf(db->path, sizeof db->path, "%s/%s.db", folder, name) >= (int)sizeof db->path) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                (mode == DB_READ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) |
                (may_create && mode != DB_READ ? SQLITE_OPEN_CREATE : 0);
    int result = 0;
    if (sqlite3_open_v2(db->path, &db->handle, flags, vfs) != SQLITE_OK) {
        result =
            db->handle == NULL ? err_set(err, ERR_NOMEM, "%s: out of memory", db->path) : db_error(db, err, "open");
    } else {
        if (mode != DB_READ) {
            owner_as_folder(db->path); /* SQLite makes the files beside it its owner's */
        }
        /* Only an operator's shell that recovers or checkpoints can be in the way, for a moment. */
        sqlite3_busy_timeout(db->handle, BUSY_WAIT_MS);
        result = renew ? db_renew_wal(db, err) : 0; /* before anything is read */
        result = result < 0 ? result : configure(db, err);
    }
    if (result < 0) {
        db->lost = true;
        db_close(db);
    }
    return result;
}

int db_open(struct db *db, const char *folder, const char *name, const char *vfs, enum db_mode mode, struct err *err)
{
    return open_file(db, folder, name, vfs, mode, true, mode != DB_READ, err);
}

int db_settle(const char *folder, const char *name, const char *vfs, struct err *err)
{
    struct db db = {.name = name};
    char journal[PATH_MAX];
    struct stat st;
    if (snprintf(db.path, sizeof db.path, "%s/%s.db", folder, name) >= (int)sizeof db.path ||
        snprintf(journal, sizeof journal, "%s/%s.db-journal", folder, name) >= (int)sizeof journal) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    if (stat(journal, &st) < 0 || st.st_size == 0) {
        return 0;
    }
    int64_t tables = 0;
    int result = sqlite3_open_v2(db.path, &db.handle, SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE, vfs) == SQLITE_OK
                     ? db_int(&db, "SELECT count(*) FROM sqlite_schema", &tables, err)
                     : db_error(&db, err, "open");
    sqlite3_close(db.handle);
    return result;
}

int db_leave_wal(struct db *db, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int result = 0;
    if (db->handle == NULL) {
        return 0;
    }
    db_drop_statements(db);
    sqlite3_busy_timeout(db->handle, CHECKPOINT_WAIT_MS);
    if ((result = db_pragma(db, "synchronous", SYNC_EXTRA, err)) < 0 || (result = own_wal_clear(db, err)) < 0) {
        return result;
    }
    if (sqlite3_prepare_v2(db->handle, "PRAGMA journal_mode = DELETE", -1, &stmt, NULL) != SQLITE_OK) {
        result = db_error(db, err, "journal_mode");
    } else if (sqlite3_step(stmt) != SQLITE_ROW) {
        bool busy = (sqlite3_errcode(db->handle) & 0xff) == SQLITE_BUSY;
        result = busy ? 1 : db_error(db, err, "journal_mode");
    } else {
        result = strcmp((const char *)sqlite3_column_text(stmt, 0), "delete") != 0;
    }
    sqlite3_finalize(stmt);
    return result;
}

void db_close(struct db *db)
{
    if (db->handle == NULL) {
        return;
    }
    db_drop_statements(db);
    sqlite3_backup_finish(db->copy); /* NULL is fine */
    db->copy = NULL;
    /* The last connection would checkpoint what no one has made sure of, and delete a log that the file says it needs.
     */
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (sqlite3_close(db->handle) != SQLITE_OK) {
        log_error("database did not close", "file=%s error=%s", log_quote_str(db->path),
                  log_quote_str(sqlite3_errmsg(db->handle)));
    }
    db->handle = NULL;
}

int db_reopen(struct db *db, struct err *err)
{
    struct db old = *db;
    old.unsure = old.unsure && old.mode != DB_READ;
    char *slash = strrchr(old.path, '/');
    *slash = '\0'; /* db_open() made the path as folder/name.db */
    db_close(db);
    int result = open_file(db, old.path, old.name, old.vfs, old.mode, false, old.unsure, err);
    db->lock = old.lock;
    db->lost = result < 0; /* then the next write tries again */
    db->unsure = result < 0 && old.unsure;
    return result;
}

static int run_word(struct db *db, enum sql_statement word, struct err *err)
{
    return db_run(db, db_stmt(db, word, err), err);
}

static int begin(struct db *db, enum sql_statement word, struct err *err)
{
    if (db->lost) {
        int result = db_reopen(db, err);
        if (result < 0) {
            return result;
        }
    }
    return run_word(db, word, err);
}

/* Whether the file that is open is still the one of that name. Of one that was removed, or put aside, all could still
 * be read and written, and would be gone with this process. */
static int check_there(struct db *db, struct err *err)
{
    int moved = 0;
    if (sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || moved == 0) {
        return 0;
    }
    return folder_tell_gone(db->path, err);
}

int db_begin(struct db *db, struct err *err)
{
    int result = begin(db, SQL_BEGIN_WRITE, err);
    if (result == 0 && ((result = check_there(db, err)) < 0 ||
                        (result = db->lock != NULL ? folder_lock_keep(db->lock, err) : 0) < 0)) {
        db_rollback(db);
    }
    return result;
}

void db_wait_for_locks(struct db *db, bool wait)
{
    if (db->handle != NULL) {
        sqlite3_busy_timeout(db->handle, wait ? BUSY_WAIT_MS : 0);
    }
}

int db_begin_read(struct db *db, struct err *err)
{
    return begin(db, SQL_BEGIN_READ, err);
}

int db_commit(struct db *db, struct err *err)
{
    int result = run_word(db, SQL_COMMIT, err);
    if (result < 0) {
        db_rollback(db);
        db->lost = true;
    }
    return result;
}

int db_end_read(struct db *db, int result, struct err *err)
{
    struct err ended = {0};
    if (result < 0 && read_now_missed() && sqlite3_get_autocommit(db->handle) != 0) {
        return result; /* SQLite ends the transaction itself after an I/O error */
    }
    if (db_commit(db, &ended) < 0 && result >= 0) {
        return err_set(err, ended.code, "%s", ended.text);
    }
    return result;
}

void db_rollback(struct db *db)
{
    if (db->handle != NULL && sqlite3_get_autocommit(db->handle) == 0 &&
        sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK) {
        db->lost = true;
    }
}

static int move_pages(struct db *db, int mode, struct err *err)
{
    int pages = 0;
    int moved = 0;
    sqlite3_busy_timeout(db->handle, CHECKPOINT_WAIT_MS);
    int rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, mode, &pages, &moved);
    sqlite3_busy_timeout(db->handle, BUSY_WAIT_MS);
    if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY) {
        return rc != SQLITE_OK || pages != moved;
    }
    /* An fsync that failed: nothing that was written since the last one can be trusted to be there. */
    int result = db_error(db, err, "checkpoint");
    db->lost = true;
    return result;
}

int db_checkpoint(struct db *db, int mode, struct err *err)
{
    if (db->lost || db->handle == NULL) {
        return err_set(err, ERR_IO, "%s: the file is not open", db->path);
    }
    int result = own_wal_mark(db, err);
    if (result != 0 || (result = move_pages(db, mode, err)) < 0) {
        return result;
    }
    int unmarked = own_wal_clear(db, err);
    if (result == 0 && mode != SQLITE_CHECKPOINT_PASSIVE) {
        db->wal_bytes = 0; /* but for that */
    }
    return unmarked < 0 ? unmarked : result;
}

int db_extend_wal(struct db *db, int64_t step, struct err *err)
{
    if (db->lost || db->handle == NULL || db->wal_bytes == 0 || db->wal_bytes + step / 2 <= db->wal_room) {
        return 0;
    }
    static const char zeros[64 * 1024];
    sqlite3_file *wal = NULL;
    int rc = sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
    sqlite3_int64 size = 0;
    if (rc == SQLITE_OK && (wal == NULL || wal->pMethods == NULL)) {
        rc = SQLITE_NOTFOUND;
    }
    if (rc == SQLITE_OK) {
        rc = wal->pMethods->xFileSize(wal, &size);
    }
    int64_t end = db->wal_bytes + step;
    while (rc == SQLITE_OK && size < end) {
        rc = wal->pMethods->xWrite(wal, zeros, sizeof zeros, size);
        size += (int64_t)sizeof zeros;
    }
    db->wal_room = end; /* also after an error: then the WAL grows by itself, and it is tried again further on */
    if (rc != SQLITE_OK) {
        return err_set(err, (rc & 0xff) == SQLITE_FULL ? ERR_FULL : ERR_IO, "%s: extending the WAL: %s", db->path,
                       sqlite3_errstr(rc));
    }
    return 0;
}
