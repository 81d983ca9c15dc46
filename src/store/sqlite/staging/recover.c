/* What is staged, found again at start: the tables of the ring, and an index of each one's rows. Tables at or above
 * cfg->slots (it was lowered) are taken like the others, so that they are flushed, and then dropped.
 *
 * In two parts, so that plays are taken at once. Before there are threads: which tables there are, and the lowest and
 * the highest row id of each, which is quick however many rows there are. Then the stager takes batches, into a slot
 * that was empty, while a thread reads the others, through a connection of its own. Nobody else looks at those slots
 * meanwhile: the historian has not begun, and the rows of a closed slot change only by a forget or a flush. Rows that
 * can't be read are set aside at the end, by the stager, who alone writes the file. If no slot was empty, the open one
 * is read before the stager begins.
 *
 * What can go wrong. A crash meanwhile leaves one more slot with rows, which the next start reads with the others; when
 * that has happened to all of them, the open one is read first. What is not read yet counts as memory that is used
 * (about: its true size is known once it is read), so that plays which come in meanwhile stay within staging_memory.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/ring.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/staging/slot_stream.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum { ROW_BYTES = 48 }; /* of memory, about: 35 where users have ten rows, over 100 where they have one */

struct unread {
    int tables; /* 0: nothing is to be read */
    struct slot_table_rows rows[SLOT_PARTS_MAX];
    struct staged_ids bad;
};

struct recovery {
    struct unread slots[STORE_SLOTS_MAX];
    uint64_t rows, of; /* read; how many there are at most, since ids may be missing */
    uint64_t bytes;    /* that all of them may take */
    store_progress *progress;
    void *arg;
    struct sqlite_store *s; /* of the thread */
    struct heartbeat heartbeat;
    struct err err;
};

/* Whether the slot lacks a table: its first one, if it is of the ring, or one before another that it has. */
static bool lacks_table(const struct sqlite_store *s, const struct slot_tables *tables, int slot)
{
    int n = s->slots[slot].parts.n, found = 0;
    for (int part = -1; (part = slot_tables_next(tables, slot, part)) >= 0;) {
        found++;
    }
    return found < n || (n == 0 && slot < s->cfg->slots);
}

/* The tables of the ring, the views over them, and how many slots it has: in one transaction, which does nothing when
 * all is as it was. */
static int make_ring(struct sqlite_store *s, const struct slot_tables *tables, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t before = 0;
    int result = db_meta_int(db, "slots", 0, 1, STORE_SLOTS_MAX, &before, err);
    bool missing = before != s->cfg->slots;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        missing |= lacks_table(s, tables, i);
    }
    if (result < 0 || !missing || (result = db_begin(db, err)) < 0) {
        return result;
    }
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        if (lacks_table(s, tables, i)) {
            struct slot_parts *parts = &s->slots[i].parts;
            parts->n = parts->n > 0 ? parts->n : 1;
            result = parts_make(db, i, 0, parts->n, err);
        }
    }
    if (result < 0 || (result = db_meta_set_int(db, "slots", s->cfg->slots, err)) < 0 ||
        (result = views_make(db, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int find_tables(struct sqlite_store *s, struct slot_tables *tables, struct err *err)
{
    int result = slot_rows_tables(&s->stager.db, tables, err);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        for (int part = -1; (part = slot_tables_next(tables, i, part)) >= 0;) {
            s->slots[i].parts.n = part + 1;
        }
    }
    return result;
}

static void stray_told(void *arg, int slot, int64_t id, int64_t new_id)
{
    const struct db *db = arg;
    log_error("staged row had an id that can't be, it gets another one",
              "file=%s slot=%d id=%" PRId64 " new_id=%" PRId64, log_quote_str(db->path), slot, id, new_id);
}

/* So that each slot's first row can begin its index. */
static int renumber_strays(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t highest = 0;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    if ((result = db_meta_count(db, "high_water", &highest, err)) < 0 ||
        (result = slot_rows_renumber(db, highest, stray_told, db, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int set_aside_in_all(struct db *db, int slot, int parts, const struct staged_ids *rows, struct err *err)
{
    int result = 0;
    for (int part = 0; part < parts && result >= 0; part++) {
        result = slot_rows_set_aside(db, slot_table(slot, part), rows, false, err);
    }
    return result;
}

/* One row must not keep the service from starting, nor be deleted with its slot before somebody has looked at it. */
static int set_aside(struct sqlite_store *s, int slot, const struct staged_ids *rows, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = rows->n > 0 ? db_begin(db, err) : 0;
    if (result < 0 || rows->n == 0) {
        return result;
    }
    if ((result = set_aside_in_all(db, slot, s->slots[slot].parts.n, rows, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while recovering staged rows");
}

/* Moves the rows that can be added to the front, and notes the others. */
static int sort_out(struct sqlite_store *s, int slot, const struct staged *index, struct slot_batch *batch,
                    struct staged_ids *bad)
{
    size_t good = 0;
    for (size_t i = 0; i < batch->n; i++) {
        const struct staged_row *row = &batch->at[i];
        const char *why = batch->problem[i];
        if (why == NULL && !staged_fits(index, row->id, row->month)) {
            why = "its id can't be";
        }
        if (why == NULL) {
            batch->at[good++] = *row;
            continue;
        }
        log_error("staged row can't be read, set aside", "file=%s slot=%d id=%" PRIu64 " error=%s",
                  log_quote_str(s->stager.db.path), slot, row->id, log_quote_str(why));
        if (staged_ids_add(bad, row->id) < 0) {
            return ERR_NOMEM;
        }
    }
    batch->n = good;
    return 0;
}

static int tell_progress(struct recovery *r, struct err *err)
{
    return r->progress == NULL || r->progress(r->arg, r->rows, r->of)
               ? 0
               : err_set(err, ERR_CLOSED, "stopped while what was staged was read");
}

/* Also how much memory is still to be taken, and, to whoever waits for memory, that something moves. */
static int rows_read(struct sqlite_store *s, uint64_t n, struct err *err)
{
    struct recovery *r = s->recovery;
    r->rows += n;
    double left = r->rows < r->of ? (double)(r->of - r->rows) / (double)r->of : 0;
    atomic_store_explicit(&s->unread_bytes, (uint64_t)((double)r->bytes * left), memory_order_relaxed);
    atomic_store_explicit(&s->merged_bytes, (uint64_t)((double)r->bytes * (1 - left)), memory_order_relaxed);
    heartbeat_now(&r->heartbeat);
    return tell_progress(r, err);
}

static uint64_t lowest_id(const struct unread *unread)
{
    int64_t lowest = unread->rows[0].first;
    for (int i = 1; i < unread->tables; i++) {
        lowest = unread->rows[i].first < lowest ? unread->rows[i].first : lowest;
    }
    return (uint64_t)lowest;
}

/* Adds all rows of the stream to the slot's index, which is made for the first of them. */
static int add_rows(struct sqlite_store *s, int n, struct slot_stream *stream, struct err *err)
{
    struct unread *unread = &s->recovery->slots[n];
    struct staged *index = NULL;
    struct slot_batch *batch;
    int result;
    while ((result = slot_stream_next(stream, &batch, err)) == 1) {
        if (batch->n == 0) {
            continue;
        }
        size_t read = batch->n;
        if (index == NULL) {
            index = staged_new(lowest_id(unread));
            atomic_store(&s->slots[n].index, index); /* so that its memory is known */
        }
        if (index == NULL || sort_out(s, n, index, batch, &unread->bad) < 0 ||
            staged_rows_add(index, batch->at, batch->n) < 0) {
            return out_of_memory(err);
        }
        if (rows_read(s, read, err) < 0) {
            return err->code;
        }
    }
    return result;
}

/* Rebuilds a slot's index from its tables, read through db. */
static int read_slot(struct sqlite_store *s, struct db *db, int n, struct err *err)
{
    const struct unread *unread = &s->recovery->slots[n];
    struct slot_stream *stream;
    int result = slot_stream_open(db, s->folder, s->seed, unread->rows, unread->tables, &stream, err);
    if (result == 0) {
        result = add_rows(s, n, stream, err);
        slot_stream_close(stream);
    }
    return result < 0 ? err_prefix(err, "slot %d", n) : 0;
}

/* --- before threads --- */

/* Which of the slot's tables have rows, and with which ids. */
static int find_tables_with_rows(struct sqlite_store *s, int n, struct err *err)
{
    struct unread *unread = &s->recovery->slots[n];
    struct slot *slot = &s->slots[n];
    for (int part = 0; part < slot->parts.n; part++) {
        int64_t first, last;
        int result = slot_rows_span(&s->stager.db, slot_table(n, part), &first, &last, err);
        if (result < 0) {
            return result;
        }
        if (result == 1) {
            parts_found(&slot->parts, part, (uint64_t)first, (uint64_t)last);
            unread->rows[unread->tables++] = (struct slot_table_rows){slot_table(n, part), first, last};
            s->recovery->of += (uint64_t)last - (uint64_t)first + 1;
            slot->last_id = (uint64_t)last > slot->last_id ? (uint64_t)last : slot->last_id;
        }
    }
    return 0;
}

static int find_rows(struct sqlite_store *s, int n, uint64_t *highest, struct err *err)
{
    int result = find_tables_with_rows(s, n, err);
    if (result < 0) {
        return err_prefix(err, "slot %d", n);
    }
    if (s->recovery->slots[n].tables > 0) {
        *highest = s->slots[n].last_id > *highest ? s->slots[n].last_id : *highest;
        slots_set_state(s, n, SLOT_CLOSED);
    } else if (n >= s->cfg->slots) {
        slots_drop(s, n);
    }
    return 0;
}

/* Ids may be far apart, but no row takes fewer bytes in the file than in memory by much. After a crash the rows may be
 * in the log alone. */
static void guess_memory(struct sqlite_store *s)
{
    uint64_t file = folder_file_bytes(s->folder, "staging.db") + folder_file_bytes(s->folder, "staging.db-wal");
    uint64_t rows = s->recovery->of;
    s->recovery->bytes = rows < file / ROW_BYTES ? rows * ROW_BYTES : file;
    atomic_store(&s->unread_bytes, rows > 0 ? s->recovery->bytes : 0);
}

int recover_begin(struct sqlite_store *s, uint64_t *highest, struct err *err)
{
    *highest = 0;
    atomic_store(&s->recovering, true);
    s->recovery = calloc(1, sizeof *s->recovery);
    if (s->recovery == NULL) {
        return out_of_memory(err);
    }
    struct slot_tables tables;
    int result = find_tables(s, &tables, err);
    if (result < 0 || (result = make_ring(s, &tables, err)) < 0 || (result = renumber_strays(s, err)) < 0) {
        return result;
    }
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        result = s->slots[i].parts.n > 0 ? find_rows(s, i, highest, err) : 0;
    }
    if (result == 0) {
        guess_memory(s);
    }
    return result;
}

int recover_now(struct sqlite_store *s, int n, struct err *err)
{
    struct unread *unread = &s->recovery->slots[n];
    int result = read_slot(s, &s->stager.db, n, err);
    if (result == 0) {
        unread->tables = 0;
        result = set_aside(s, n, &unread->bad, err);
    }
    return result;
}

/* --- beside the stager --- */

struct recovered_call {
    struct store_call call;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

static void on_done(struct store_call *call)
{
    struct recovered_call *c = (struct recovered_call *)call;
    pthread_mutex_lock(&c->mutex);
    c->done = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}

static int tell_stager(struct sqlite_store *s, struct err *err)
{
    struct recovered_call c = {.call = {.message = {.kind = STORE_CALL, .what = WANTS_RECOVERED}, .done = on_done}};
    pthread_mutex_init(&c.mutex, NULL);
    pthread_cond_init(&c.wake, NULL);
    thread_queue_put(&s->stager.queue, &c.call.message);
    pthread_mutex_lock(&c.mutex);
    while (!c.done) {
        pthread_cond_wait(&c.wake, &c.mutex);
    }
    pthread_mutex_unlock(&c.mutex);
    pthread_cond_destroy(&c.wake);
    pthread_mutex_destroy(&c.mutex);
    return c.call.err.code < 0 ? err_set(err, c.call.err.code, "%s", c.call.err.text) : 0;
}

static bool is_pending(const struct recovery *r)
{
    bool pending = false;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        pending = pending || r->slots[i].tables > 0;
    }
    return pending;
}

static void *recovery_main(void *arg)
{
    struct recovery *r = arg;
    struct db db;
    heartbeat_begin(&r->heartbeat, "recovery");
    int result = tell_progress(r, &r->err);
    if (result == 0 && (result = db_open(&db, r->s->folder, "staging", r->s->vfs, DB_READ, &r->err)) == 0) {
        for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
            result = r->slots[i].tables > 0 ? read_slot(r->s, &db, i, &r->err) : 0;
        }
        db_close(&db);
    }
    heartbeat_end(&r->heartbeat);
    return NULL;
}

/* On a thread, so that a disk that does not answer is noticed and named. */
static int read_rest(struct sqlite_store *s, struct err *err)
{
    struct recovery *r = s->recovery;
    pthread_t thread;
    r->s = s;
    int rc = pthread_create(&thread, NULL, recovery_main, r);
    if (rc != 0) {
        return err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(rc));
    }
    pthread_join(thread, NULL);
    if (r->err.code < 0) {
        *err = r->err;
    }
    return r->err.code;
}

int recover_rest(struct sqlite_store *s, store_progress *progress, void *arg, struct err *err)
{
    struct recovery *r = s->recovery;
    r->progress = progress;
    r->arg = arg;
    int result = is_pending(r) ? read_rest(s, err) : 0;
    if (result == 0) {
        atomic_store(&s->counters.recovered_rows, r->rows);
        atomic_store(&s->unread_bytes, 0);
        result = tell_stager(s, err);
    }
    if (result == 0) {
        recover_free(s);
        atomic_store(&s->recovering, false);
    }
    return result;
}

static int end(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db->lost ? db_reopen(db, err) : 0;
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        const struct unread *unread = &s->recovery->slots[i];
        if (unread->tables > 0 && (result = set_aside(s, i, &unread->bad, err)) < 0) {
            err_prefix(err, "slot %d", i);
        }
    }
    int64_t waiting = 0;
    if (result < 0 || (result = slot_rows_waiting(db, &waiting, err)) < 0) {
        return result;
    }
    GAUGE(s, rows_set_aside, waiting); /* only a start sets rows aside */
    atomic_store(&s->merged_bytes, 0);
    s->stager.slots_freed++; /* as if one was: what waits for memory waits for a flush from here on */
    return 0;
}

void recover_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_call *call = (struct store_call *)m;
    end(s, &call->err);
    call->done(call);
}

void recover_free(struct sqlite_store *s)
{
    for (int i = 0; s->recovery != NULL && i < STORE_SLOTS_MAX; i++) {
        staged_ids_free(&s->recovery->slots[i].bad);
    }
    free(s->recovery);
    s->recovery = NULL;
}
