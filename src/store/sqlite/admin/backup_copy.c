/* The copy of one file while it is written, by SQLite's own backup.
 *
 * The pages are copied in order, some in each step, and no lock or snapshot is held between steps. A page that the
 * source's own connection changes meanwhile is written to the copy too, with the commit, if its turn is over. So the
 * copy made on the writer's connection is, with its last step, the source as it is then, however long it took. (Were it
 * made on another connection, each commit would make it begin again.) A rollback makes it begin again even so, since
 * the pages may have got into the copy; that is counted, and given up when it goes on and on.
 *
 * A connection that is opened again after a failed commit takes the backup with it (db_close()): then this copy fails.
 *
 * The copy's own connection syncs nothing and keeps no journal: the backup syncs the file, and throws it
 * away when anything failed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "store/sqlite/admin/backup.h"

enum {
    STEP_PAGES = 32,
    RESTARTS_MAX = 8,
};

/* Maps a result that is neither OK nor DONE. What failed may be either file's reading or writing. */
static int copy_error(const struct copy *c, int code, struct err *err)
{
    int system = c->to != NULL ? sqlite3_system_errno(c->to) : 0;
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
    case SQLITE_CANTOPEN:
        ours = ERR_READONLY;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        ours = ERR_CORRUPT;
        break;
    default:
        ours = system == ENOSPC || system == EDQUOT ? ERR_FULL : ERR_IO;
        break;
    }
    return err_set(err, ours, "copying %s to %s: %s%s%s%s", c->source->path, c->path, sqlite3_errstr(code),
                   system != 0 ? " (" : "", system != 0 ? strerror(system) : "", system != 0 ? ")" : "");
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static int open_target(struct copy *c, const char *vfs)
{
    static const char *const words[] = {"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF",
                                        "PRAGMA locking_mode = EXCLUSIVE",
                                        ("PRAGMA max_page_count = " TEXT(DB_PAGES_MAX))};
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    int rc = sqlite3_open_v2(c->path, &c->to, flags, vfs);
    for (size_t i = 0; i < sizeof words / sizeof *words && rc == SQLITE_OK; i++) {
        rc = sqlite3_exec(c->to, words[i], NULL, NULL, NULL);
    }
    return rc;
}

int copy_begin(struct copy *c, struct db *source, const char *folder, const char *name, const char *vfs,
               struct err *err)
{
    *c = (struct copy){.source = source};
    if (source->handle == NULL || source->lost) {
        return err_set(err, ERR_IO, "%s: the file is not open", source->path);
    }
    int result = db_int(source, "PRAGMA page_size", &c->page_size, err);
    if (result < 0) {
        return result;
    }
    snprintf(c->path, sizeof c->path, "%s/%s.db", folder, name); /* it fits, see backup_folder_take() */
    int rc = open_target(c, vfs);
    if (rc != SQLITE_OK) {
        return copy_error(c, rc, err);
    }
    source->copy = sqlite3_backup_init(c->to, "main", source->handle, "main");
    if (source->copy == NULL) {
        return copy_error(c, sqlite3_extended_errcode(c->to), err);
    }
    return 0;
}

/* Notes how far it is. Returns an error when it began again too often. */
static int look(struct copy *c, struct err *err)
{
    int64_t page = c->page_size;
    int64_t total = sqlite3_backup_pagecount(c->source->copy) * page;
    int64_t done = total - sqlite3_backup_remaining(c->source->copy) * page;
    if (done < c->done) {
        c->restarts++;
    }
    c->done = done;
    c->total = total;
    if (c->restarts > RESTARTS_MAX) {
        return err_set(err, ERR_IO, "%s: the copy began again %u times, because writes to the file failed meanwhile",
                       c->source->path, c->restarts);
    }
    return 0;
}

int copy_step(struct copy *c, int64_t us, int64_t bytes, struct err *err)
{
    int64_t end_us = clock_work_us() + us;
    int64_t end = c->done + bytes;
    for (;;) {
        if (c->source->copy == NULL || c->source->lost) {
            return err_set(err, ERR_IO, "%s: a write to the file failed during the copy", c->source->path);
        }
        int rc = sqlite3_backup_step(c->source->copy, STEP_PAGES);
        int base = rc & 0xff;
        if (base == SQLITE_BUSY || base == SQLITE_LOCKED) {
            return 1; /* an operator's shell that recovers the file, for a moment */
        }
        if (rc != SQLITE_OK && rc != SQLITE_DONE) {
            return copy_error(c, rc, err);
        }
        int result = look(c, err);
        if (result < 0 || rc == SQLITE_DONE) {
            return result;
        }
        if (c->done >= end || clock_work_us() >= end_us) {
            return 1;
        }
    }
}

void copy_end(struct copy *c)
{
    if (c->source != NULL) {
        sqlite3_backup_finish(c->source->copy); /* NULL is fine; its result is that of the last step */
        c->source->copy = NULL;
    }
    sqlite3_close(c->to);
    c->to = NULL;
    c->source = NULL;
}
