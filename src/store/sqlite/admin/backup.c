/* A backup as others see it: one at a time, on a thread of its own, shown while it runs and after it, given up when the
 * store closes. How the copy is made stands in backup_make.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/hide.h"
#include "base/log.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/state.h"

enum { NICE = 15 }; /* below the historian */

/* --- the thread --- */

static void tell(struct sqlite_store *s, const struct store_backup *request)
{
    if (request->err.code == ERR_INVALID) { /* a mistake of who asked for it */
        log_warn("backup refused", "folder=%s error=%s", log_quote_str(request->folder),
                 log_quote_str(request->err.text));
    } else if (request->err.code < 0) {
        COUNT(s, backup_errors, 1);
        log_error("backup failed", "folder=%s error=%s", log_quote_str(request->folder),
                  log_quote_str(request->err.text));
    } else {
        COUNT(s, backups, 1);
        atomic_store(&s->counters.backup_problems, request->problems);
        atomic_store(&s->counters.backup_ms, (uint64_t)clock_wall_ms());
        log_info("backup done", "folder=%s bytes=%" PRIu64 " ms=%" PRId64 " problems=%" PRIu64,
                 log_quote_str(request->folder), request->bytes, request->took_ms, request->problems);
    }
}

static void end(struct backup *b)
{
    struct sqlite_store *s = b->s;
    struct store_backup *request = b->request;
    request->took_ms = (clock_figures_us() - b->began_us) / 1000;
    tell(s, request);
    pthread_mutex_lock(&s->backup_mutex);
    struct store_backup_state *last = &s->backup_last;
    last->last_ms = clock_wall_ms();
    last->last_took_ms = request->took_ms;
    last->last_bytes = request->bytes;
    last->last_problems = request->problems;
    last->last_code = request->err.code;
    hide_ids_copy(last->last_error, sizeof last->last_error, request->err.text);
    snprintf(last->last_folder, sizeof last->last_folder, "%s",
             request->folder[0] == '/' || b->folder.path[0] == '\0' ? request->folder : b->folder.path);
    buf_free(&b->forgotten);
    b->noting = false;
    b->phase = BACKUP_NONE;
    b->ended = true;
    pthread_mutex_unlock(&s->backup_mutex);
    request->done(request);
}

static void *backup_main(void *arg)
{
    struct backup *b = arg;
    struct store_backup *request = b->request;
    struct err *err = &request->err;
    pthread_setname_np(pthread_self(), "backup");
    if (background_enter(NICE, BACKGROUND_SLICE_LONG_MS) < 0) {
        log_debug("can't lower the backup's priority", "errno=%d", errno);
    }
    log_info("backup begins", "folder=%s", log_quote_str(request->folder));
    int result = backup_folder_take(&b->folder, request->folder, request->root, b->s->folder, err);
    if (result == 0) {
        result = backup_make(b, err);
        if (result < 0) {
            backup_folder_remove(&b->folder);
        } else {
            request->bytes =
                backup_file_size(b->folder.path, "staging.db") + backup_file_size(b->folder.path, "history.db");
            backup_folder_leave(&b->folder);
        }
    }
    end(b);
    return NULL;
}

/* --- any thread --- */

/* Joins the last one's thread, if it is at its end, and frees it. Under the mutex. */
static void collect(struct sqlite_store *s)
{
    struct backup *b = s->backup;
    if (b != NULL && b->ended) {
        pthread_join(b->thread, NULL); /* it takes no lock any more, and only calls done() */
        pthread_cond_destroy(&b->wake);
        free(b);
        s->backup = NULL;
    }
}

static int begin(struct sqlite_store *s, struct store_backup *request)
{
    struct err *err = &request->err;
    collect(s);
    if (s->backup_stopped) {
        return err_set(err, ERR_CLOSED, "the store is closing");
    }
    if (s->backup != NULL) {
        return err_set(err, ERR_BUSY, "a backup to %s is under way; another may begin when it has ended",
                       s->backup->request->folder);
    }
    struct backup *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    b->s = s;
    b->request = request;
    b->fd = -1;
    b->phase = BACKUP_PREPARING;
    b->began_us = clock_figures_us();
    pthread_cond_init(&b->wake, NULL);
    int rc = pthread_create(&b->thread, NULL, backup_main, b);
    if (rc != 0) {
        pthread_cond_destroy(&b->wake);
        free(b);
        return err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(rc));
    }
    s->backup = b;
    return 0;
}

void backup_start(struct store *base, struct store_backup *request)
{
    struct sqlite_store *s = sqlite_store(base);
    request->err = (struct err){0};
    request->bytes = 0;
    request->problems = 0;
    request->took_ms = 0;
    pthread_mutex_lock(&s->backup_mutex);
    int result = begin(s, request);
    pthread_mutex_unlock(&s->backup_mutex);
    if (result < 0) {
        request->done(request);
    }
}

void backup_state(struct store *base, struct store_backup_state *out)
{
    struct sqlite_store *s = sqlite_store(base);
    pthread_mutex_lock(&s->backup_mutex);
    *out = s->backup_last;
    if (s->backup != NULL) {
        out->phase = s->backup->phase;
        out->done = s->backup->done;
        out->total = s->backup->total;
    }
    pthread_mutex_unlock(&s->backup_mutex);
}

void backup_stop(struct store *base)
{
    struct sqlite_store *s = sqlite_store(base);
    pthread_mutex_lock(&s->backup_mutex);
    s->backup_stopped = true;
    if (s->backup != NULL && !s->backup->ended) {
        atomic_store(&s->backup->cancelled, true);
        pthread_cond_signal(&s->backup->wake);
    }
    pthread_mutex_unlock(&s->backup_mutex);
    thread_queue_wake(&s->historian.queue);
}

void backup_join(struct sqlite_store *s)
{
    pthread_mutex_lock(&s->backup_mutex);
    struct backup *b = s->backup; /* none begins any more */
    pthread_mutex_unlock(&s->backup_mutex);
    if (b != NULL) {
        pthread_join(b->thread, NULL);
        pthread_mutex_lock(&s->backup_mutex);
        s->backup = NULL;
        pthread_mutex_unlock(&s->backup_mutex);
        pthread_cond_destroy(&b->wake);
        free(b);
    }
}

/* --- when the last one was whole, and what its check found --- */

static const char TIME[] = "backup_ms", PROBLEMS[] = "backup_problems";

int backup_time_load(struct sqlite_store *s, struct err *err)
{
    int64_t ms = 0, problems = 0;
    int result = db_meta_time(&s->stager.db, TIME, &ms, err);
    if (result == 0) {
        result = db_meta_count(&s->stager.db, PROBLEMS, &problems, err);
    }
    atomic_store(&s->counters.backup_problems, problems > 0 ? (uint64_t)problems : 0);
    s->backup_saved_ms = ms > 0 ? (uint64_t)ms : 0;
    atomic_store(&s->counters.backup_ms, s->backup_saved_ms);
    return result;
}

void backup_time_save(struct sqlite_store *s)
{
    struct db *db = &s->stager.db;
    uint64_t ms = atomic_load(&s->counters.backup_ms);
    int64_t problems = (int64_t)atomic_load(&s->counters.backup_problems); /* set before the time */
    struct err err = {0};
    if (ms == s->backup_saved_ms) {
        return;
    }
    s->backup_saved_ms = ms; /* if it fails, not again at every tick */
    if (db_begin(db, &err) < 0) {
        log_warn("time of the backup not saved", "error=%s", log_quote_str(err.text));
        return;
    }
    if (db_meta_set_int(db, TIME, (int64_t)ms, &err) < 0 || db_meta_set_int(db, PROBLEMS, problems, &err) < 0) {
        db_rollback(db);
    } else {
        db_commit(db, &err);
    }
    if (err.code < 0) {
        log_warn("time of the backup not saved", "error=%s", log_quote_str(err.text));
    }
}
