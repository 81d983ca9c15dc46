/* Secures a WAL after a failed fsync, or after a process that ended, before anything is read from it.
 *
 * When an fsync fails, the kernel marks the pages that it could not write as clean. They can be read for a while, are
 * dropped when memory is needed, and no later fsync writes them: it succeeds, and the device has something else. A
 * commit under synchronous=NORMAL is in SQLite's index of the WAL all the same. A checkpoint copies every frame of that
 * index into the file and checks no checksum, so it may copy zeros, or a frame of an earlier WAL. And a power cut in
 * the middle leaves a file with some pages from frames that the WAL on the device no longer has.
 *
 * So each frame of the index is read, compared with its checksum, and written again with the same bytes: then its pages
 * are dirty, and this fsync really writes them. The same holds for the file. A checkpoint that a reader cuts short
 * copies without an fsync, and if the fsync of a later one fails, those pages are not written again. So the index
 * forgets that they were copied. When a frame is lost, everything after the last complete commit before it was never
 * durable, and is merged again (flush.c). SQLite finds that commit itself, as after a crash, once its index is invalid.
 * So the index is made invalid while no reader uses it.
 *
 * The forms of the WAL, its index and its locks are https://www.sqlite.org/walformat.html.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/db/wal_form.h"

enum {
    INDEX_REGION = 32 * 1024,
    INDEX_COPY = 48,  /* of the index's header, which stands there twice */
    LOCK_WRITE = 0,   /* the writer's, and the checkpointer's behind it */
    LOCK_RECOVER = 2, /* and those of the readers behind it */
    LOCKS = 8,
    LOCK_WAIT_MS = 20,
};

/* What the index says. */
struct wal_index {
    uint32_t frames; /* that are committed */
    uint32_t copied; /* of those, into the file; durably, when these are all */
    uint32_t page_size;
    uint8_t salt[8]; /* as in the WAL's header */
};

struct wal {
    struct db *db;
    sqlite3_file *main, *file;
    uint8_t *index; /* shared memory */
    struct wal_index of;
    struct wal_sum sum;
    uint8_t *frame;
    uint32_t good; /* frames up to the last whole commit */
};

static uint16_t read_native16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t read_native32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int io_error(const struct wal *w, int rc, const char *what, struct err *err)
{
    return err_set(err, (rc & 0xff) == SQLITE_FULL ? ERR_FULL : ERR_IO, "%s: making its WAL sure: %s: %s", w->db->path,
                   what, sqlite3_errstr(rc));
}

/* --- locks --- */

static int lock(struct wal *w, int first, int n, struct err *err)
{
    int rc = SQLITE_BUSY;
    for (int ms = 0; ms <= LOCK_WAIT_MS && rc == SQLITE_BUSY; ms++) {
        rc = w->main->pMethods->xShmLock(w->main, first, n, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE);
        if (rc == SQLITE_BUSY) {
            sqlite3_sleep(1);
        }
    }
    if (rc == SQLITE_BUSY) {
        return err_set(err, ERR_BUSY, "%s: a reader holds the WAL, which can't be used after a failed fsync",
                       w->db->path);
    }
    return rc == SQLITE_OK ? 0 : io_error(w, rc, "lock", err);
}

static void unlock(struct wal *w, int first, int n)
{
    w->main->pMethods->xShmLock(w->main, first, n, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE);
}

/* --- reading and writing again --- */

/* Whether there are frames that a checkpoint must still copy. A WAL whose index is not valid is gone through by SQLite
 * before it is used. */
static bool read_index(struct wal *w)
{
    const uint8_t *h = w->index;
    bool valid = memcmp(h, h + INDEX_COPY, INDEX_COPY) == 0 && h[12] != 0; /* isInit */
    uint32_t size = read_native16(h + 14);                                 /* 1 stands for 65536 */
    w->of.page_size = size == 1 ? 65536 : size;
    w->of.frames = valid ? read_native32(h + 16) : 0;
    memcpy(w->of.salt, h + 32, sizeof w->of.salt);
    w->of.copied = read_native32(h + 2 * INDEX_COPY);
    return w->of.frames > w->of.copied;
}

/* 1, or 0: it doesn't belong to the index, or an error. */
static int renew_header(struct wal *w, struct err *err)
{
    uint8_t h[WAL_HEADER];
    int rc = w->file->pMethods->xRead(w->file, h, sizeof h, 0);
    if (rc != SQLITE_OK) {
        return rc == SQLITE_IOERR_SHORT_READ ? 0 : io_error(w, rc, "read", err);
    }
    if (!wal_take_header(&w->sum, h, w->of.page_size) || memcmp(h + WAL_SALTS, w->of.salt, 8) != 0) {
        return 0;
    }
    rc = w->file->pMethods->xWrite(w->file, h, sizeof h, 0);
    return rc == SQLITE_OK ? 1 : io_error(w, rc, "write", err);
}

/* The same for a frame. */
static int renew_frame(struct wal *w, uint32_t number, struct err *err)
{
    int size = WAL_FRAME_HEADER + (int)w->of.page_size;
    sqlite3_int64 at = WAL_HEADER + (sqlite3_int64)(number - 1) * size;
    int rc = w->file->pMethods->xRead(w->file, w->frame, size, at);
    if (rc != SQLITE_OK) {
        return rc == SQLITE_IOERR_SHORT_READ ? 0 : io_error(w, rc, "read", err);
    }
    if (!wal_take_frame(&w->sum, w->frame, w->of.page_size, w->of.salt)) {
        return 0;
    }
    rc = w->file->pMethods->xWrite(w->file, w->frame, size, at);
    if (rc != SQLITE_OK) {
        return io_error(w, rc, "write", err);
    }
    if (wal_frame_commits(w->frame)) {
        w->good = number;
    }
    return 1;
}

/* 1, or 0: some are lost. */
static int renew_frames(struct wal *w, struct err *err)
{
    int result = renew_header(w, err);
    if (result > 0 && (w->frame = malloc(WAL_FRAME_HEADER + w->of.page_size)) == NULL) {
        result = err_set(err, ERR_NOMEM, "out of memory");
    }
    for (uint32_t n = 1; n <= w->of.frames && result > 0; n++) {
        result = renew_frame(w, n, err);
    }
    free(w->frame);
    int rc = result < 0 ? SQLITE_OK : w->file->pMethods->xSync(w->file, SQLITE_SYNC_NORMAL);
    return rc == SQLITE_OK ? result : io_error(w, rc, "fsync", err);
}

/* Has SQLite go through the WAL again. */
static int drop_index(struct wal *w, struct err *err)
{
    int result = lock(w, LOCK_RECOVER, LOCKS - LOCK_RECOVER, err);
    if (result < 0) {
        return result;
    }
    memset(w->index, 0, 2 * INDEX_COPY);
    w->main->pMethods->xShmBarrier(w->main);
    unlock(w, LOCK_RECOVER, LOCKS - LOCK_RECOVER);
    return 0;
}

/* The next checkpoint begins with the first frame. No reader minds: the frames are there, and one that reads the file
 * alone keeps a checkpoint out of it. */
static void forget_copied(struct wal *w)
{
    memset(w->index + 2 * INDEX_COPY, 0, sizeof w->of.copied);
    w->main->pMethods->xShmBarrier(w->main);
}

static int renew(struct wal *w, struct err *err)
{
    int result = read_index(w) ? renew_frames(w, err) : 1;
    if (result > 0 && w->of.frames > w->of.copied) {
        forget_copied(w);
    }
    if (result != 0) {
        return result;
    }
    if (w->good < w->of.copied) {
        return err_set(err, ERR_CORRUPT,
                       "%s: its WAL can't be read: frame %" PRIu32 " of %" PRIu32 " that were durable", w->db->path,
                       w->good + 1, w->of.copied);
    }
    if ((result = drop_index(w, err)) == 0) {
        log_warn("the disk lost commits whose fsync failed", "file=%s frames=%" PRIu32, log_quote_str(w->db->path),
                 w->of.frames - w->good);
    }
    return result;
}

/* Has SQLite open the WAL, and its index; after a crash it goes through it here. That a page is no good is told later:
 * it may be one that is lost. */
static int open_wal(struct wal *w, struct err *err)
{
    sqlite3 *handle = w->db->handle;
    int rc = sqlite3_exec(handle, "SELECT 1 FROM sqlite_schema", NULL, NULL, NULL);
    if ((rc & 0xff) != SQLITE_OK && (rc & 0xff) != SQLITE_NOTADB && (rc & 0xff) != SQLITE_CORRUPT) {
        return db_error(w->db, err, "open");
    }
    rc = sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &w->main);
    if (rc == SQLITE_OK) {
        rc = sqlite3_file_control(handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &w->file);
    }
    if (rc != SQLITE_OK || w->file == NULL || w->file->pMethods == NULL) {
        return rc == SQLITE_OK ? 0 : io_error(w, rc, "open", err); /* there is none */
    }
    void volatile *region = NULL;
    rc = w->main->pMethods->xShmMap(w->main, 0, INDEX_REGION, 0, &region);
    w->index = (uint8_t *)(uintptr_t)region;
    return rc == SQLITE_OK ? 0 : io_error(w, rc, "index", err);
}

int db_renew_wal(struct db *db, struct err *err)
{
    struct wal w = {.db = db};
    int result = open_wal(&w, err);
    if (result < 0 || w.index == NULL || (result = lock(&w, LOCK_WRITE, LOCK_RECOVER, err)) < 0) {
        return result;
    }
    result = renew(&w, err);
    unlock(&w, LOCK_WRITE, LOCK_RECOVER);
    return result < 0 ? result : 0;
}

int db_wal_empty(struct db *db, struct err *err)
{
    struct wal w = {.db = db};
    int result = open_wal(&w, err);
    if (result < 0 || w.index == NULL) {
        return result;
    }
    read_index(&w);
    return w.of.frames == 0;
}
