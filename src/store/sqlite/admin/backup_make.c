/* How a hot backup is made: both files are copied into another folder while the service runs, and no request waits for
 * it.
 *
 * The order makes copies from two moments consistent, as with a question: staging first, then history. A play
 * acknowledged before the backup is in staging's copy, or was deleted there before. Then it was durable in history
 * before, and is in history's copy. Plays flushed in between are in both, which is harmless. backup_mend.c has what
 * else may happen in between.
 *
 *   its own thread   looks at the folder and at the room on its disk
 *                    staging: on a reading connection of its own, in one snapshot. It is small, at most what
 *                    staging_memory holds, and staging.db's WAL waits for no reader, so the stager notices nothing
 *   the historian    history: page by page on the writer's connection, between its transactions, so that the copy
 *                    follows what it writes, ends under any load, and pins no snapshot (backup_copy.c)
 *   its own thread   meanwhile syncs the copy, portion by portion, and rests twice as long as each took: the historian
 *                    copies on only when the last portion is on the disk. So the disk is never far behind, and mostly
 *                    free
 *                    then it mends the copy, syncs it, reads it through, gives it its names
 *
 * After any failure the copy is removed. If the process ends, what is left has names that nothing opens.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/admin.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/admin/check.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/state.h"

enum {
    STEP_US = 3000,        /* of the historian, between its transactions */
    PORTION = 1024 * 1024, /* bytes that may wait for their fsync: 4 MiB made plays wait longer */
    REST_MAX_MS = 1000,
    LOOK_MS = 200, /* real time between looks at the disk's room */
    PROBLEMS_LOGGED = 5,
};

/* --- phases --- */

static void set_phase(struct backup *b, enum store_backup_phase phase, int64_t total)
{
    pthread_mutex_lock(&b->s->backup_mutex);
    b->phase = phase;
    b->done = 0;
    b->total = (uint64_t)total;
    pthread_mutex_unlock(&b->s->backup_mutex);
    log_debug("backup", "phase=%s", store_backup_phase_name(phase));
}

static int given_up(struct backup *b, struct err *err)
{
    return atomic_load(&b->cancelled) ? err_set(err, ERR_CLOSED, "the backup was given up: the store is closing") : 0;
}

static void show_copied(struct backup *b)
{
    pthread_mutex_lock(&b->s->backup_mutex);
    b->done = (uint64_t)(b->before + b->copy.done);
    b->total = (uint64_t)(b->before + b->copy.total);
    pthread_mutex_unlock(&b->s->backup_mutex);
}

/* --- syncing by portions --- */

static void rest(struct backup *b, int64_t ms)
{
    pthread_mutex_lock(&b->s->backup_mutex);
    int64_t end = clock_real_us() + ms * 1000;
    for (int64_t left = ms; left > 0 && !atomic_load(&b->cancelled); left = (end - clock_real_us()) / 1000) {
        clock_cond_wait_real(&b->wake, &b->s->backup_mutex, left);
    }
    pthread_mutex_unlock(&b->s->backup_mutex);
}

static int sync_file(struct backup *b, const char *name, struct err *err)
{
    if (b->fd < 0) {
        int fd = backup_folder_open(&b->folder, name, err);
        if (fd < 0) {
            return fd;
        }
        b->fd = fd;
    }
    if (fdatasync(b->fd) < 0) {
        return err_set(err, errno == ENOSPC || errno == EDQUOT ? ERR_FULL : ERR_IO, "can't sync %s/%s.db: %s",
                       b->folder.path, name, strerror(errno));
    }
    /* The service's files need the page cache more; and what is read again for the check comes from the disk. */
    posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

/* Puts on the disk what was copied, then leaves the disk to others for twice as long. */
static int sync_portion(struct backup *b, const char *name, struct err *err)
{
    int64_t copied = atomic_load(&b->copied);
    int64_t began = clock_work_us();
    int result = sync_file(b, name, err);
    if (result < 0) {
        return result;
    }
    int64_t rest_ms = 2 * (clock_work_us() - began) / 1000;
    rest(b, rest_ms < REST_MAX_MS ? rest_ms : REST_MAX_MS);
    atomic_store(&b->synced, copied);
    return backup_folder_room(&b->folder, 8 * PORTION, config_now(b->s->cfg)->min_free, err);
}

static void close_file(struct backup *b)
{
    if (b->fd >= 0) {
        close(b->fd);
        b->fd = -1;
    }
    atomic_store(&b->copied, 0);
    atomic_store(&b->synced, 0);
}

/* --- staging --- */

static int copy_staging_file(struct backup *b, struct db *db, struct err *err)
{
    int64_t tables = 0;
    int result = db_begin_read(db, err);
    if (result < 0 || (result = db_int(db, "SELECT count(*) FROM sqlite_schema", &tables, err)) < 0) {
        return result; /* the first read takes the snapshot */
    }
    result = copy_begin(&b->copy, db, b->folder.path, STAGING_PARTIAL, b->s->vfs, err);
    int more = 1;
    while (result == 0 && more > 0) {
        result = more = copy_step(&b->copy, INT64_MAX / 2, PORTION, err);
        atomic_store(&b->copied, b->copy.done);
        show_copied(b);
        if (result >= 0 && (result = given_up(b, err)) == 0) {
            result = sync_portion(b, STAGING_PARTIAL, err);
        }
    }
    copy_end(&b->copy);
    close_file(b);
    return result;
}

static int copy_staging(struct backup *b, struct err *err)
{
    struct db db;
    int result = db_open(&db, b->s->folder, "staging", b->s->vfs, DB_READ, err);
    if (result == 0) {
        result = copy_staging_file(b, &db, err);
        db_close(&db);
    }
    return result;
}

static int read_high_water(struct backup *b, int64_t *out, struct err *err)
{
    struct db db;
    int result = db_open(&db, b->s->folder, "staging", b->s->vfs, DB_READ, err);
    if (result < 0) {
        return result;
    }
    if ((result = db_begin_read(&db, err)) == 0) {
        result = slot_rows_highest(&db, out, err);
    }
    db_close(&db);
    return result;
}

/* --- history, the historian's part --- */

/* Its last step: from here on forgets are younger than the copy. */
static void hand_back(struct backup *b, int result, const struct err *err)
{
    copy_end(&b->copy);
    pthread_mutex_lock(&b->s->backup_mutex);
    b->result = result;
    b->handed_over = false;
    b->noting = false;
    if (result < 0) {
        b->err = *err;
    }
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->s->backup_mutex);
}

bool backup_step(struct sqlite_store *s)
{
    pthread_mutex_lock(&s->backup_mutex);
    struct backup *b = s->backup != NULL && s->backup->handed_over ? s->backup : NULL;
    pthread_mutex_unlock(&s->backup_mutex);
    if (b == NULL) {
        return false;
    }
    struct err err = {0};
    int result = given_up(b, &err);
    if (result == 0 && b->copy.source == NULL) {
        result = copy_begin(&b->copy, &s->historian.db, b->folder.path, HISTORY_PARTIAL, s->vfs, &err);
    } else if (result == 0 && atomic_load(&b->copied) - atomic_load(&b->synced) >= PORTION) {
        return false; /* until the thread has synced it, and wakes this one */
    }
    if (result == 0) {
        result = copy_step(&b->copy, STEP_US, PORTION, &err);
        atomic_store(&b->copied, b->copy.done);
        show_copied(b);
    }
    if (result <= 0) {
        hand_back(b, result, &err);
        return false;
    }
    if (b->copy.done - atomic_load(&b->synced) >= PORTION) {
        pthread_mutex_lock(&s->backup_mutex);
        pthread_cond_signal(&b->wake);
        pthread_mutex_unlock(&s->backup_mutex);
        return false;
    }
    return true;
}

void backup_forgot(struct sqlite_store *s, const struct store_forget *forget)
{
    pthread_mutex_lock(&s->backup_mutex);
    struct backup *b = s->backup;
    bool notes = b != NULL && b->noting && b->err.code == 0;
    if (notes && forget->n_items > 0 && forget->items == NULL) { /* its staged rows can't be found in the copy */
        err_set(&b->err, ERR_BUSY,
                "an item was forgotten meanwhile of which only the hash is known (unseen rejoin): "
                "begin the backup once more");
    } else if (notes && backup_note_forget(&b->forgotten, forget) < 0) {
        err_set(&b->err, ERR_NOMEM, "out of memory for the forgets during the backup");
    }
    pthread_mutex_unlock(&s->backup_mutex);
}

/* --- history, the thread's part --- */

static void hand_over(struct backup *b)
{
    pthread_mutex_lock(&b->s->backup_mutex);
    b->before = b->copy.total; /* of staging */
    b->result = 1;
    b->handed_over = true;
    pthread_mutex_unlock(&b->s->backup_mutex);
    thread_queue_wake(&b->s->historian.queue);
}

/* Waits until a portion is copied, or for a while. Whether the historian still copies. */
static bool wait_portion(struct backup *b)
{
    pthread_mutex_lock(&b->s->backup_mutex);
    if (b->handed_over && atomic_load(&b->copied) - atomic_load(&b->synced) < PORTION) {
        clock_cond_wait_real(&b->wake, &b->s->backup_mutex, LOOK_MS);
    }
    bool copies = b->handed_over;
    pthread_mutex_unlock(&b->s->backup_mutex);
    return copies;
}

static int copy_history(struct backup *b, struct err *err)
{
    int result = 0;
    hand_over(b);
    while (wait_portion(b)) {
        /* Before the historian has made the file there is nothing to sync. */
        if (result == 0 && atomic_load(&b->copied) > atomic_load(&b->synced) &&
            (result = sync_portion(b, HISTORY_PARTIAL, err)) < 0) {
            atomic_store(&b->cancelled, true); /* and wait until the historian has let go of it */
            atomic_store(&b->synced, INT64_MAX / 2);
        }
        thread_queue_wake(&b->s->historian.queue);
    }
    close_file(b);
    if (result == 0 && b->err.code < 0) {
        result = err_set(err, b->err.code, "%s", b->err.text);
    }
    return result;
}

/* --- finishing --- */

static int finish(struct backup *b, struct err *err)
{
    static const char *const names[] = {STAGING_PARTIAL, HISTORY_PARTIAL};
    int64_t high_water = 0;
    int result = read_high_water(b, &high_water, err);
    if (result == 0) {
        result = backup_mend_staging(b->folder.path, b->s->vfs, &b->forgotten, b->s->seed, (uint64_t)high_water, err);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && result == 0; i++) {
        result = backup_close_wal(b->folder.path, names[i], b->s->vfs, err);
        if (result == 0 && (result = given_up(b, err)) == 0) {
            result = sync_file(b, names[i], err);
        }
        close_file(b);
    }
    return result;
}

static void on_problem(void *arg, const char *problem)
{
    struct backup *b = arg;
    if (b->n_problems++ < PROBLEMS_LOGGED) {
        log_warn("problem in the backup", "problem=%s", log_quote_str(problem));
    }
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct backup *b = arg;
    pthread_mutex_lock(&b->s->backup_mutex);
    b->done = done;
    b->total = total;
    pthread_mutex_unlock(&b->s->backup_mutex);
}

static bool on_stop(void *arg)
{
    return atomic_load(&((struct backup *)arg)->cancelled);
}

/* What the copy holds that can't be read is no failure if the store holds it too; a file that can't be read through is:
 * then the copy is worth nothing. */
static int verify(struct backup *b, struct err *err)
{
    const struct check_files files = {.folder = b->folder.path,
                                      .history = HISTORY_PARTIAL,
                                      .staging = STAGING_PARTIAL,
                                      .vfs = b->s->vfs,
                                      .pages = true,
                                      .found = on_problem,
                                      .progress = on_progress,
                                      .stop = on_stop,
                                      .arg = b};
    int unread = 0;
    int problems = check_files(&files, &unread, err);
    if (problems < 0) {
        return problems;
    }
    b->request->problems = (uint64_t)problems;
    if (unread > 0) {
        return err_set(err, ERR_CORRUPT,
                       "the copy can't be read through, see the log; if `unseen check` finds the data folder good, the "
                       "disk of %s is not",
                       b->folder.path);
    }
    return 0;
}

/* What both files and their WALs take is the most that the copy takes, but for what is written meanwhile. */
static int need_room(struct backup *b, struct err *err)
{
    static const char *const names[] = {"staging.db", "staging.db-wal", "history.db", "history.db-wal"};
    uint64_t bytes = 8 * PORTION;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bytes += backup_file_size(b->s->folder, names[i]);
    }
    return backup_folder_room(&b->folder, (int64_t)bytes, config_now(b->s->cfg)->min_free, err);
}

int backup_make(struct backup *b, struct err *err)
{
    int result = need_room(b, err);
    if (result < 0) {
        return result;
    }
    pthread_mutex_lock(&b->s->backup_mutex);
    b->noting = true; /* before staging's snapshot, so that no forget falls between */
    pthread_mutex_unlock(&b->s->backup_mutex);
    set_phase(b, BACKUP_STAGING, 0);
    if ((result = copy_staging(b, err)) < 0) {
        return result;
    }
    set_phase(b, BACKUP_HISTORY, 0);
    if ((result = copy_history(b, err)) < 0) {
        return result;
    }
    set_phase(b, BACKUP_FINISHING, 0);
    if ((result = finish(b, err)) < 0) {
        return result;
    }
    set_phase(b, BACKUP_CHECKING, 0);
    if ((result = verify(b, err)) < 0) {
        return result;
    }
    return backup_folder_complete(&b->folder, err);
}
