/* Opens and closes the embedded store, and has the functions of the interface that only read state or send a
 * message. */
#include "store/sqlite/sqlite_store.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/bulk.h"
#include "store/ring.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/admin/copy.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/db/pair.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/node.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"
#include "store/stats.h"

static int begin_pair(struct sqlite_store *s, struct err *err)
{
    int64_t flushes = 0;
    int result = db_meta_count(&s->historian.db, "flushes", &flushes, err);
    atomic_store(&s->flushes_durable, flushes);
    return result < 0 ? result : pair_begin(&s->stager.db, &s->historian.db, err);
}

/* --- the seam --- */

static void put_data(struct store *base, struct store_message *message, enum store_message_kind kind, int what)
{
    message->kind = kind;
    message->what = what;
    thread_queue_put(&sqlite_store(base)->stager.queue, message);
}

static void store_record(struct store *base, struct store_batch *batch)
{
    batch->err = (struct err){0};
    put_data(base, &batch->message, STORE_BATCH, 0);
}

static void store_forget(struct store *base, struct store_forget *forget)
{
    put_data(base, &forget->message, STORE_FORGET, 0);
}

static void store_merge(struct store *base, struct store_merge *merge)
{
    put_data(base, &merge->message, STORE_MERGE, 0);
}

static void store_flush(struct store *base, struct store_call *call)
{
    put_data(base, &call->message, STORE_CALL, WANTS_FLUSH);
}

static void store_tick(struct store *base, struct store_call *call)
{
    put_data(base, &call->message, STORE_CALL, WANTS_TICK);
}

/* Between any two steps a thread says that it goes on: whatever step holds it, all that waits for it waits for that. */
static int tell_silent(const struct sqlite_store *s, const struct heartbeat *thread, struct err *err)
{
    const int64_t ms = heartbeat_silent_ms(thread);
    return ms < STORE_STALLED_MS
               ? 0
               : err_set(err, ERR_LATE, "the disk of %s has not answered for %" PRId64 " s", s->folder, ms / 1000);
}

static int store_forgets_stalled(struct store *base, struct err *err)
{
    const struct sqlite_store *s = sqlite_store(base);
    return tell_silent(s, &s->historian.queue.task.heartbeat, err);
}

static int store_stalled(struct store *base, struct err *err)
{
    const struct sqlite_store *s = sqlite_store(base);
    int result = tell_silent(s, &s->stager.queue.task.heartbeat, err);
    return result == 0 && atomic_load(&s->stager.behind_forget) ? store_forgets_stalled(base, err) : result;
}

static int store_missing(struct store *base, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    int result = folder_has(s->folder, "staging.db", &s->staging_file, err);
    result = result < 0 ? result : folder_has(s->folder, "history.db", &s->history_file, err);
    return result < 0 ? result : folder_lock_keep(&s->lock, err);
}

static int commit_failed(struct sqlite_store *s, struct err *err)
{
    pthread_mutex_lock(&s->ring_mutex);
    const struct err last = s->commit_failed;
    pthread_mutex_unlock(&s->ring_mutex);
    return last.code < 0 ? err_set(err, last.code, "%s", last.text) : 0;
}

static int store_refusal(struct store *base, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    pthread_mutex_lock(&s->ring_mutex);
    int result = s->busy ? err_set(err, ERR_BUSY, "%s", s->busy_cause) : 0;
    pthread_mutex_unlock(&s->ring_mutex);
    if (result == 0 && (result = stager_disk_room(s, err)) == 0) {
        result = store_time_known(base, err);
    }
    result = result < 0 ? result : folder_has(s->folder, "staging.db", &s->staging_file, err);
    result = result < 0 ? result : folder_lock_keep(&s->lock, err);
    return result < 0 ? result : commit_failed(s, err);
}

static void store_ring(struct store *base, struct store_ring *out)
{
    struct sqlite_store *s = sqlite_store(base);
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&s->ring_mutex);
    out->turn = s->turn;
    out->open = s->open;
    out->next_turn_ms = s->next_turn_ms;
    snprintf(out->clock_reason, sizeof out->clock_reason, "%s", s->clock_reason);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        if (i < s->cfg->slots || s->slots[i].info.state != SLOT_EMPTY) {
            out->slots[out->n_slots++] = s->slots[i].info;
        }
    }
    pthread_mutex_unlock(&s->ring_mutex);
    struct err cause = {0};
    out->busy = store_refusal(base, &cause) < 0;
    snprintf(out->busy_cause, sizeof out->busy_cause, "%s", cause.text);
    out->clock_doubted = atomic_load(&s->clock.doubted);
    out->memory_limit = (uint64_t)config_now(s->cfg)->staging_memory;
}

/* Rows, users and bytes come from the index, which the stager may discard: so it is pinned like a question does. */
static void add_index_figures(struct sqlite_store *s, struct store_reader *pin, struct store_ring *out)
{
    atomic_fetch_add(&pin->pin, 1);
    for (int i = 0; i < out->n_slots; i++) {
        struct store_slot *info = &out->slots[i];
        const struct staged *index = atomic_load(&s->slots[info->slot].index);
        if (index != NULL) {
            info->rows = staged_rows(index);
            info->users = staged_users(index);
            info->bytes = staged_bytes(index);
            out->memory += info->bytes;
        }
    }
    atomic_fetch_add(&pin->pin, 1);
}

static void store_ring_figures(struct store *base, struct store_ring *out)
{
    struct sqlite_store *s = sqlite_store(base);
    store_ring(base, out);
    pthread_mutex_lock(&s->figures_mutex);
    add_index_figures(s, &s->figures_pin, out);
    pthread_mutex_unlock(&s->figures_mutex);
}

static size_t kept_bytes(struct sqlite_store *s)
{
    size_t all = 0;
    pthread_mutex_lock(&s->readers_mutex);
    for (const struct store_reader *r = s->readers; r != NULL; r = r->next) {
        all += atomic_load_explicit(&r->kept.bytes, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->readers_mutex);
    return all;
}

static void store_stats(struct store *base, struct store_stats *out)
{
    struct sqlite_store *s = sqlite_store(base);
    memset(out, 0, sizeof *out);
#define X(name) out->name = atomic_load_explicit(&s->counters.name, memory_order_relaxed);
    STORE_COUNTERS(X)
#undef X
    buckets_add(&out->commit_us, &s->commit_us);
    buckets_add(&out->commit_rows, &s->commit_rows);
    int64_t free_bytes = folder_free_bytes(s->folder);
    out->disk_free_bytes = free_bytes > 0 ? (uint64_t)free_bytes : 0;
    out->disk_bytes = folder_disk_bytes(s->folder);
    out->staging_file_bytes = folder_file_bytes(s->folder, "staging.db");
    out->history_file_bytes = folder_file_bytes(s->folder, "history.db");
    out->kept_bytes = kept_bytes(s);
    struct store_ring ring;
    store_ring_figures(base, &ring);
    for (int i = 0; i < ring.n_slots; i++) {
        out->staged_rows += ring.slots[i].rows;
        out->staged_bytes += ring.slots[i].bytes;
    }
    out->queue_messages =
        thread_queue_length(&s->stager.queue) + atomic_load_explicit(&s->stager.n_held, memory_order_relaxed);
}

static uint64_t store_seed(struct store *base)
{
    return sqlite_store(base)->seed;
}

/* --- opening and closing --- */

static int open_files(struct sqlite_store *s, struct err *err)
{
    int result = pair_examine(s->folder, s->vfs, err);
    if (result < 0 || (result = db_open(&s->stager.db, s->folder, "staging", s->vfs, DB_WRITE_FULL, err)) < 0) {
        return result;
    }
    if ((result = db_open(&s->historian.db, s->folder, "history", s->vfs, DB_WRITE_NORMAL, err)) < 0) {
        db_close(&s->stager.db);
        return result;
    }
    if ((result = schema_staging(&s->stager.db, err)) < 0 || (result = schema_history(&s->historian.db, err)) < 0 ||
        (result = backup_time_load(s, err)) < 0 ||
        (result = folder_note(s->folder, "staging.db", &s->staging_file, err)) < 0 ||
        (result = folder_note(s->folder, "history.db", &s->history_file, err)) < 0) {
        db_close(&s->historian.db);
        db_close(&s->stager.db);
    }
    s->stager.db.lock = s->historian.db.lock = &s->lock;
    return result;
}

static void free_slots(struct sqlite_store *s)
{
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        staged_free(atomic_exchange(&s->slots[i].index, NULL));
    }
}

static void close_file(struct db *db)
{
    struct err err = {0};
    /* So that a log that is found beside it later is known to belong to another file. */
    if (!db->lost && db_leave_wal(db, &err) < 0) {
        log_error("the log was not brought into the file at the end, and stays beside it", "error=%s",
                  log_quote_str(err.text));
    }
    db_close(db);
}

static void free_store(struct sqlite_store *s)
{
    thread_queue_destroy(&s->stager.queue);
    thread_queue_destroy(&s->historian.queue);
    pthread_mutex_destroy(&s->ring_mutex);
    pthread_mutex_destroy(&s->readers_mutex);
    pthread_mutex_destroy(&s->figures_mutex);
    pthread_mutex_destroy(&s->backup_mutex);
    pthread_mutex_destroy(&s->bulk_mutex);
    pthread_cond_destroy(&s->bulk_wake);
    pthread_cond_destroy(&s->came_back);
    free(s);
}

static void store_close(struct store *base)
{
    struct sqlite_store *s = sqlite_store(base);
    struct err err = {0};
    backup_stop(base);
    backup_join(s);
    /* The stager first: what it has passed on, the historian still answers. */
    stager_stop(s);
    historian_stop(s);
    bulk_drop(s);
    stager_free(s);
    if (time_persist(s, &err) < 0) {
        log_error("newest time not saved", "error=%s", log_quote_str(err.text));
    }
    backup_time_save(s);
    while (feed_sweep_step(s, true)) {
    }
    stager_note_end(s);
    forgets_close(s);
    node_close(s);
    positions_close(s);
    feed_close(s);
    migration_users_close(s);
    recover_free(s);
    close_file(&s->stager.db);
    close_file(&s->historian.db);
    free_slots(s);
    folder_unlock(&s->lock);
    free_store(s);
}

static int store_room(struct store *base, struct err *err)
{
    return stager_disk_room(sqlite_store(base), err);
}

static int store_publish(struct store *base, const char *address, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    return folder_publish(&s->lock, address, err);
}

static int store_recover(struct store *base, store_progress *progress, void *arg, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    int64_t started = clock_figures_us();
    int result = recover_all(s, progress, arg, err);
    if (result < 0) {
        return result;
    }
    uint64_t took = (uint64_t)(clock_figures_us() - started);
    atomic_store(&s->counters.recovery_us, took);
    log_info("staging recovered", "rows=%" PRIu64 " ms=%" PRIu64, atomic_load(&s->counters.recovered_rows),
             took / 1000);
    return task_started(&s->historian.queue.task) ? 0 : historian_start(s, err);
}

static const struct store_ops sqlite_ops = {
    .recover = store_recover,
    .record = store_record,
    .forget = store_forget,
    .merge = store_merge,
    .tick = store_tick,
    .reader_open = reader_open,
    .reader_close = reader_close,
    .reader_leave_cold = reader_leave_cold,
    .load = reader_load,
    .recent = reader_recent,
    .scan = reader_scan,
    .import = import_begin,
    .stats = store_stats,
    .now = store_now,
    .time_known = store_time_known,
    .refusal = store_refusal,
    .stalled = store_stalled,
    .forgets_stalled = store_forgets_stalled,
    .missing = store_missing,
    .clock = store_clock,
    .clock_change = time_change,
    .seed = store_seed,
    .publish = store_publish,
    .close = store_close,
};

static const struct store_ring_ops ring_ops = {
    .look = store_ring_figures,
    .flush = store_flush,
};

static const struct store_admin_ops admin_ops = {
    .months = reader_months,
    .backup = backup_start,
    .backup_state = backup_state,
    .backup_stop = backup_stop,
};

static const struct store_bulk_ops bulk_ops = {
    .begin = bulk_begin,
    .add = bulk_add,
    .deliver = bulk_deliver,
    .bytes = bulk_bytes,
    .turn = bulk_turn,
    .end = bulk_end,
    .stop = bulk_stop,
    .room = store_room,
};

static const struct store_migration_ops migration_ops = {
    .note = migration_users_write,
    .of = migration_users_of,
    .state = migration_users_state,
    .read = reader_migration,
    .problems = reader_problems,
};

static const struct store_sessions_ops sessions_ops = {
    .keep = kept_put,
    .take = kept_take,
};

/* It needs an open slot: one with rows is read before, and starts it then. */
static int start_stager(struct sqlite_store *s, struct err *err)
{
    return slots_state(s, s->open) == SLOT_OPEN ? stager_start(s, err) : 0;
}

int sqlite_store_open(const struct config *cfg, const struct sqlite_store_options *options, struct store **store,
                      struct err *err)
{
    int result = sqlite_store_begin(cfg, options, store, err);
    if (result == 0 && (result = store_recover(*store, NULL, NULL, err)) < 0) {
        store_close(*store);
        *store = NULL;
    }
    return result;
}

int sqlite_store_begin(const struct config *cfg, const struct sqlite_store_options *options, struct store **store,
                       struct err *err)
{
    struct sqlite_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int64_t built_ms = clock_built_ms();
    s->base = (struct store){
        .engine = "sqlite",
        .ops = &sqlite_ops,
        .ring = &ring_ops,
        .admin = &admin_ops,
        .bulk = &bulk_ops,
        .migration = &migration_ops,
        .feed = &sqlite_feed_ops,
        .sessions = &sessions_ops,
        .positions = &sqlite_positions_ops,
        .node = &sqlite_node_ops,
        .copy = &sqlite_copy_ops,
        .pools = &sqlite_pools_ops,
        .memos = &sqlite_memos_ops,
    };
    s->cfg = cfg;
    s->disk_free = -1;
    if (options != NULL) {
        s->vfs = options->vfs;
        built_ms = options->built_ms != 0 ? options->built_ms : built_ms;
    }
    s->historian.revived = INT_MIN;
    s->historian.seal_failed = INT_MIN;
    s->stager.pool_parts_left = true;
    pthread_mutex_init(&s->ring_mutex, NULL);
    pthread_mutex_init(&s->readers_mutex, NULL);
    pthread_mutex_init(&s->figures_mutex, NULL);
    pthread_mutex_init(&s->backup_mutex, NULL);
    pthread_mutex_init(&s->bulk_mutex, NULL);
    pthread_cond_init(&s->bulk_wake, NULL);
    pthread_cond_init(&s->came_back, NULL);
    thread_queue_init(&s->stager.queue);
    thread_queue_init(&s->historian.queue);
    s->figures_pin.store = s;
    s->historian_pin.store = s;
    s->figures_pin.next = &s->historian_pin;
    s->readers = &s->figures_pin;

    int result = ERR_INVALID;
    if (snprintf(s->folder, sizeof s->folder, "%s", cfg->data) >= (int)sizeof s->folder) {
        err_set(err, ERR_INVALID, "the path of the data folder is too long");
        goto free_store;
    }
    result = folder_lock(s->folder, &s->lock, err);
    if (result < 0) {
        goto free_store;
    }
    if ((result = open_files(s, err)) < 0) {
        goto unlock;
    }
    if ((result = seed_choose(s, err)) < 0 || (result = begin_pair(s, err)) < 0 ||
        (result = time_start(s, built_ms, err)) < 0 || (result = slots_begin(s, err)) < 0 ||
        (result = migration_users_open(s, err)) < 0 || (result = feed_open(s, err)) < 0 ||
        (result = positions_open(s, err)) < 0 || (result = node_open(s, err)) < 0 ||
        (result = forgets_open(s, err)) < 0 || (result = start_stager(s, err)) < 0) {
        goto close_files;
    }
    *store = &s->base;
    return 0;

close_files:
    forgets_close(s);
    node_close(s);
    positions_close(s);
    feed_close(s);
    migration_users_close(s);
    recover_free(s);
    free_slots(s);
    db_close(&s->historian.db);
    db_close(&s->stager.db);
unlock:
    folder_unlock(&s->lock);
free_store:
    free_store(s);
    return result;
}
