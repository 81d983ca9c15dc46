/* What is staged, found again at start: the tables of the ring, and an index of each one's rows. Tables at or above
 * cfg->slots (it was lowered) are taken like the others, so that they are flushed, and then dropped.
 *
 * In two parts, so that plays are taken at once. Before there are threads: which tables there are, and the lowest and
 * the highest row id of each, which is quick however many rows there are. Then the stager takes batches, into a slot
 * that was empty, while a thread reads the others, through a connection of its own. No other thread looks at those
 * slots meanwhile: the rows of a closed slot change only by a forget or a flush. Rows that can't be read are set aside
 * by the stager, who alone writes the file, before the slot may be flushed. If no slot was empty, the open one is read
 * first, and the stager begins behind that; until then this thread does what the stager does with a flushed slot.
 *
 * Memory. What a start reads may be more than what this process may hold: staging_memory was lowered, or the last
 * process was killed for what it held. So when the indexes of closed slots have reached what recovery.most says, the
 * slot under way is handed over to the historian as far as it is read. It takes the usual way of a closed slot: merged,
 * durable, its rows deleted, its index dropped. Then this thread reads on. Nothing is read from the file while it
 * waits. A flush that fails is tried again as always, and the recovery waits for it: there is no room for more.
 *
 * What can go wrong. A crash meanwhile leaves one more slot with rows, which the next start reads with the others; when
 * that has happened to all of them, the open one is read first. What is not read yet counts as memory that is used
 * (about: its true size is known once it is read), so that plays which come in meanwhile stay within staging_memory;
 * but it counts for no more than the recovery may take at once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "store/ring.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/staging/slot_stream.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    ROW_BYTES = 48,  /* of memory, about: 35 where users have ten rows, over 100 where they have one */
    LIMIT_SHARE = 4, /* of what the process may use, if staging_memory is more than the half of that */
    LEAST_PART = 8,  /* of the recovery's memory is read of a slot, also where others hold the rest */
    LOOK_MS = 100,   /* while a flush is waited for: whether that must end ... */
    EMPTY_MS = 5,    /* ... or whether a slot is to be emptied */
};

struct unread {
    int tables;                                  /* 0: nothing is to be read */
    int at;                                      /* of those: the one under way */
    bool begun;                                  /* some of that one's rows are read */
    struct slot_table_rows rows[SLOT_PARTS_MAX]; /* from `at` on: what is still to be read */
    struct staged_ids bad;
};

struct recovery {
    struct unread slots[STORE_SLOTS_MAX];
    uint64_t rows, of; /* read; how many there are at most, since ids may be missing */
    uint64_t bytes;    /* that all of them may take */
    uint64_t most;     /* that the indexes of what is read may take */
    uint64_t open;     /* that the open slot takes, if that was read: nothing flushes it now */
    bool in_parts;     /* that was reached */
    store_progress *progress;
    void *arg;
    struct sqlite_store *s; /* of the thread */
    struct task task;
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

/* One row must not keep the service from starting, nor be deleted with its slot before a person has looked at it. */
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

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What is not all read at once leaves half of the memory to the plays that come in meanwhile. */
static uint64_t most_bytes(const struct recovery *r)
{
    return r->in_parts || r->bytes > r->most ? r->most / 2 : r->most;
}

/* Also how much memory is still to be taken, and, to a write that waits for memory, that something moves. */
static int rows_read(struct sqlite_store *s, uint64_t n, uint64_t taken, struct err *err)
{
    struct recovery *r = s->recovery;
    r->rows += n;
    double left = r->rows < r->of ? (double)(r->of - r->rows) / (double)r->of : 0;
    uint64_t claimed = least_of(taken + (uint64_t)((double)r->bytes * left), most_bytes(r));
    uint64_t quarter = (uint64_t)config_now(s->cfg)->staging_memory / 4;
    atomic_store_explicit(&s->claimed_bytes, claimed, memory_order_relaxed);
    atomic_store_explicit(&s->read_quarters, (uint64_t)((double)r->bytes * (1 - left)) / quarter, memory_order_relaxed);
    heartbeat_now(&r->task.heartbeat);
    return tell_progress(r, err);
}

static uint64_t lowest_id(const struct unread *unread)
{
    int64_t lowest = unread->rows[unread->at].first;
    for (int i = unread->at + 1; i < unread->tables; i++) {
        lowest = unread->rows[i].first < lowest ? unread->rows[i].first : lowest;
    }
    return (uint64_t)lowest;
}

/* The slot's rows up to this one of that table are in the index. */
static void note_read(struct sqlite_store *s, int n, int table, uint64_t id)
{
    struct unread *unread = &s->recovery->slots[n];
    struct slot *slot = &s->slots[n];
    unread->begun = unread->begun && table == unread->at;
    unread->at = table;
    struct slot_table_rows *rows = &unread->rows[table];
    if (!unread->begun) {
        parts_found(&slot->parts, rows->table / DB_SLOT_PART, (uint64_t)rows->first, (uint64_t)rows->last);
        unread->begun = true;
    }
    rows->first = (int64_t)id + 1;
    slot->parts.read = id;
    slot->last_id = id > slot->last_id ? id : slot->last_id;
}

/* Whether a row is still to be read, perhaps: 1 or 0. */
static int has_more(struct unread *unread)
{
    while (unread->at < unread->tables && unread->rows[unread->at].first > unread->rows[unread->at].last) {
        unread->at++;
        unread->begun = false;
    }
    return unread->at < unread->tables;
}

/* Adds rows of the stream to the slot's index. 1: until there is no more memory; 0: all; or an error. */
static int add_rows(struct sqlite_store *s, int n, struct staged *index, struct slot_stream *stream, struct err *err)
{
    struct unread *unread = &s->recovery->slots[n];
    const int before = unread->at;
    struct slot_batch *batch;
    int result;
    while ((result = slot_stream_next(stream, &batch, err)) == 1) {
        if (batch->n == 0) {
            continue;
        }
        size_t read = batch->n;
        note_read(s, n, before + batch->table, batch->at[read - 1].id);
        if (sort_out(s, n, index, batch, &unread->bad) < 0 || staged_rows_add(index, batch->at, batch->n) < 0) {
            return out_of_memory(err);
        }
        const struct recovery *r = s->recovery;
        uint64_t taken = slots_closed_bytes(s);
        if (rows_read(s, read, taken, err) < 0) {
            return err->code;
        }
        if (taken + r->open >= most_bytes(r) && staged_bytes(index) >= r->most / LEAST_PART) {
            return has_more(unread);
        }
    }
    return result;
}

/* Reads on, through db, into a new index. Returns like add_rows(). */
static int read_some(struct sqlite_store *s, struct db *db, int n, struct err *err)
{
    const struct unread *unread = &s->recovery->slots[n];
    struct slot_stream *stream;
    struct staged *index = staged_new(lowest_id(unread));
    if (index == NULL) {
        return out_of_memory(err);
    }
    atomic_store(&s->slots[n].index, index); /* so that its memory is known */
    int result =
        slot_stream_open(db, s->folder, s->seed, unread->rows + unread->at, unread->tables - unread->at, &stream, err);
    if (result == 0) {
        result = add_rows(s, n, index, stream, err);
        slot_stream_close(stream);
    }
    return result;
}

/* --- the stager's part --- */

struct recovered_call {
    struct store_call call;
    int slot; /* that has rows to be set aside; -1: all is read */
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

static int tell_stager(struct sqlite_store *s, int slot, struct err *err)
{
    struct recovered_call c = {.call = {.message = {.kind = STORE_CALL, .what = WANTS_RECOVERED}, .done = on_done},
                               .slot = slot};
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

static int end(struct sqlite_store *s, struct err *err)
{
    int64_t waiting = 0;
    int result = slot_rows_waiting(&s->stager.db, &waiting, err);
    if (result < 0) {
        return result;
    }
    GAUGE(s, rows_set_aside, waiting); /* only a start sets rows aside */
    s->stager.slots_freed++;           /* as if one was: what waits for memory waits for a flush from here on */
    return 0;
}

static int set_bad_aside(struct sqlite_store *s, int n, struct err *err)
{
    struct staged_ids *bad = &s->recovery->slots[n].bad;
    int result = set_aside(s, n, bad, err);
    staged_ids_free(bad);
    return result;
}

void recover_work(struct sqlite_store *s, struct store_message *m)
{
    struct recovered_call *c = (struct recovered_call *)m;
    struct err *err = &c->call.err;
    int result = s->stager.db.lost ? db_reopen(&s->stager.db, err) : 0;
    if (result == 0 && c->slot < 0) {
        end(s, err);
    } else if (result == 0) {
        set_bad_aside(s, c->slot, err);
    }
    c->call.done(&c->call);
}

/* --- handing over --- */

/* What the stager does with a flushed slot, if it isn't running. Whether something was done. */
static bool empty_for_stager(struct sqlite_store *s)
{
    if (task_started(&s->stager.queue.task)) {
        return false;
    }
    slots_retry_emptying(s, false);
    slots_collect_garbage(s, false);
    bool more = slots_empty_step(s);
    stager_checkpoint_when_long(s);
    return more;
}

/* A server waits for a flush that fails, and says why meanwhile. A command ends with the cause. */
static int give_up(struct sqlite_store *s, struct err *err)
{
    int result = 0;
    pthread_mutex_lock(&s->ring_mutex);
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0 && s->recovery->progress == NULL; i++) {
        const struct store_slot *slot = &s->slots[i].info;
        if (slot->state == SLOT_FAILED) {
            result = err_set(err, ERR_IO, "slot %d can't be flushed: %s", i, slot->error);
        }
    }
    pthread_mutex_unlock(&s->ring_mutex);
    return result;
}

/* Until the historian and the stager are done with what was read of the slot. */
static int wait_for_flush(struct sqlite_store *s, int n, struct err *err)
{
    struct recovery *r = s->recovery;
    while (slots_reading(s, n) != SLOT_READING) {
        heartbeat_now(&r->task.heartbeat);
        if (tell_progress(r, err) < 0 || give_up(s, err) < 0) {
            return err->code;
        }
        if (!empty_for_stager(s)) {
            thread_queue_wake(&s->historian.queue); /* what has failed may be due again */
            pthread_mutex_lock(&s->ring_mutex);
            if (s->slots[n].reading != SLOT_READING) {
                clock_cond_wait_real(&s->came_back, &s->ring_mutex,
                                     task_started(&s->stager.queue.task) ? LOOK_MS : EMPTY_MS);
            }
            pthread_mutex_unlock(&s->ring_mutex);
        }
    }
    return 0;
}

/* As far as it is read. */
static int flush_part(struct sqlite_store *s, int n, struct err *err)
{
    struct recovery *r = s->recovery;
    log_info("not all that was staged fits into memory, it is flushed as far as it is read",
             "slot=%d rows=%" PRIu64 " of=%" PRIu64 " bytes=%" PRIu64 " most=%" PRIu64, n, r->rows, r->of,
             slots_closed_bytes(s), most_bytes(r));
    r->in_parts = true;
    int result = task_started(&s->historian.queue.task) ? 0 : historian_start(s, err);
    if (result < 0) {
        return result;
    }
    slots_hand_over(s, n, SLOT_READ_ON);
    return wait_for_flush(s, n, err);
}

/* Rebuilds a slot's index from its tables, read through db. */
static int read_slot(struct sqlite_store *s, struct db *db, int n, struct err *err)
{
    const struct unread *unread = &s->recovery->slots[n];
    int more;
    do {
        more = read_some(s, db, n, err);
        int result = more;
        if (more >= 0 && unread->bad.n > 0) {
            result = task_started(&s->stager.queue.task) ? tell_stager(s, n, err) : set_bad_aside(s, n, err);
        }
        if (result >= 0 && more == 1) {
            result = flush_part(s, n, err);
        }
        if (result < 0) {
            return err_prefix(err, "slot %d", n);
        }
    } while (more == 1);
    s->slots[n].parts.read = 0;
    return 0;
}

/* --- before threads --- */

/* Which of the slot's tables have rows, and with which ids. */
static int find_tables_with_rows(struct sqlite_store *s, int n, uint64_t *highest, struct err *err)
{
    struct unread *unread = &s->recovery->slots[n];
    for (int part = 0; part < s->slots[n].parts.n; part++) {
        int64_t first, last;
        int result = slot_rows_span(&s->stager.db, slot_table(n, part), &first, &last, err);
        if (result < 0) {
            return result;
        }
        if (result == 1) {
            unread->rows[unread->tables++] = (struct slot_table_rows){slot_table(n, part), first, last};
            s->recovery->of += (uint64_t)last - (uint64_t)first + 1;
            *highest = (uint64_t)last > *highest ? (uint64_t)last : *highest;
        }
    }
    return 0;
}

static int find_rows(struct sqlite_store *s, int n, uint64_t *highest, struct err *err)
{
    int result = find_tables_with_rows(s, n, highest, err);
    if (result < 0) {
        return err_prefix(err, "slot %d", n);
    }
    if (s->recovery->slots[n].tables > 0) {
        s->slots[n].reading = SLOT_READING;
        slots_set_state(s, n, SLOT_CLOSED);
    } else if (n >= s->cfg->slots) {
        slots_drop(s, n);
    }
    return 0;
}

/* A process that was killed for its memory had all of it: so less than what it held must do. */
static uint64_t find_most(const struct sqlite_store *s)
{
    const char *from;
    int64_t most = config_now(s->cfg)->staging_memory, limit = process_memory_limit("", &from);
    return (uint64_t)(limit > 0 && most > limit / 2 ? limit / LIMIT_SHARE : most);
}

/* Ids may be far apart, but no row takes fewer bytes in the file than in memory by much. After a crash the rows may be
 * in the log alone. */
static void guess_memory(struct sqlite_store *s)
{
    uint64_t file = folder_file_bytes(s->folder, "staging.db") + folder_file_bytes(s->folder, "staging.db-wal");
    uint64_t rows = s->recovery->of;
    s->recovery->bytes = rows < file / ROW_BYTES ? rows * ROW_BYTES : file;
    s->recovery->most = find_most(s);
    atomic_store(&s->claimed_bytes, rows > 0 ? least_of(s->recovery->bytes, most_bytes(s->recovery)) : 0);
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

/* --- beside the stager --- */

static bool is_pending(const struct recovery *r)
{
    bool pending = false;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        pending = pending || r->slots[i].tables > 0;
    }
    return pending;
}

/* No slot was empty. */
static int read_open(struct sqlite_store *s, struct db *db, struct err *err)
{
    int result = read_slot(s, db, s->open, err);
    if (result < 0) {
        return result;
    }
    const struct staged *index = atomic_load(&s->slots[s->open].index);
    s->recovery->open = index != NULL ? staged_bytes(index) : 0;
    slots_open_read(s);
    return stager_start(s, err);
}

static int read_closed(struct sqlite_store *s, struct db *db, struct err *err)
{
    int result = 0;
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        if (slots_reading(s, i) == SLOT_READING && (result = read_slot(s, db, i, err)) == 0) {
            slots_hand_over(s, i, SLOT_READ);
        }
    }
    return result;
}

static int read_all(struct sqlite_store *s, struct db *db, struct err *err)
{
    int result = task_started(&s->stager.queue.task) ? 0 : read_open(s, db, err);
    return result == 0 ? read_closed(s, db, err) : result;
}

static void recovery_main(void *arg)
{
    struct recovery *r = arg;
    struct db db;
    int result = tell_progress(r, &r->err);
    if (result == 0 && (result = db_open(&db, r->s->folder, "staging", r->s->vfs, DB_READ, &r->err)) == 0) {
        read_all(r->s, &db, &r->err);
        db_close(&db);
    }
}

/* On a thread, so that a disk that does not answer is noticed and named. */
static int read_on_thread(struct sqlite_store *s, struct err *err)
{
    struct recovery *r = s->recovery;
    r->s = s;
    task_init(&r->task, &s->ring_mutex);
    int result = task_start(&r->task, "recovery", TASK_BEATS, recovery_main, r, err);
    task_stop(&r->task);
    task_destroy(&r->task);
    if (result == 0 && (result = r->err.code) < 0) {
        *err = r->err;
    }
    return result;
}

int recover_all(struct sqlite_store *s, store_progress *progress, void *arg, struct err *err)
{
    struct recovery *r = s->recovery;
    r->progress = progress;
    r->arg = arg;
    int result = is_pending(r) ? read_on_thread(s, err) : 0;
    if (result == 0) {
        atomic_store(&s->counters.recovered_rows, r->rows);
        atomic_store(&s->claimed_bytes, 0);
        result = tell_stager(s, -1, err);
    }
    if (result == 0) {
        recover_free(s);
        atomic_store(&s->recovering, false);
        if (task_started(&s->historian.queue.task)) {
            thread_queue_wake(&s->historian.queue); /* it has more to do now */
        }
    }
    return result;
}

void recover_free(struct sqlite_store *s)
{
    for (int i = 0; s->recovery != NULL && i < STORE_SLOTS_MAX; i++) {
        staged_ids_free(&s->recovery->slots[i].bad);
    }
    free(s->recovery);
    s->recovery = NULL;
}
