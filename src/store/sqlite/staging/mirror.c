/* The mirror's queue: what still has to be repeated in the Redis that users came from, as rows of staging.db.
 *
 * The stager appends them in the transaction that makes the write itself durable, so the queue has exactly what was
 * acknowledged, in its order, and an acknowledgement costs one more insert and waits for nobody. Rows have the ids of
 * the staged rows, and a forget takes ids of the same sequence: so what a commit of unknown outcome may have left is
 * deleted here by the same range. The mirror's thread reads by a connection of its own, only up to the last id that is
 * known to be durable, and says how far it has come. What it has done is deleted from the front, in chunks, with the
 * next writes or, when there are none, by itself; rows that a crash leaves behind are repeated once more, which changes
 * nothing, because the last repetition of a key is the last of what happened to it.
 *
 * When the queue has legacy_mirror_max, events are left out until there is room again: from the first one on the mirror
 * is broken, durably, until that is accepted (mirror_reset). The same holds when the mirror is switched off and plays
 * go on; what waits then stays where it is.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    CHUNK = 4096,       /* rows that one transaction deletes at most: a few ms */
    CHUNK_BESIDE = 512, /* with other writes: not before there are so many */
};

struct mirror_queue {
    bool on;
    bool was_on; /* the stager's; in this folder, since the last reset: then what is left out while it is off counts */
    _Atomic uint64_t rows, bytes;
    _Atomic uint64_t left_out;
    _Atomic int64_t broken_ms;
    _Atomic uint64_t last_id; /* of what may be read */
    _Atomic uint64_t done_id; /* up to here it was repeated; not all of it is deleted yet, */
    _Atomic uint64_t pending; /* but for so many rows */

    /* The stager's, of the transaction under way. */
    bool added;
    int64_t add_rows, add_bytes;
    uint64_t add_left_out, deleted;
    int64_t broken_now_ms;
    uint64_t counted_to; /* rows up to this id are in `rows` */

    struct log_limit log;
    pthread_mutex_t wake_mutex;
    void (*wake)(void *arg);
    void *wake_arg;
};

/* --- at start and end --- */

static int read_totals(struct sqlite_store *s, struct err *err)
{
    struct mirror_queue *q = s->mirror;
    struct db *db = &s->stager.db;
    int64_t rows = 0, bytes = 0, last = 0, broken = 0, left_out = 0, was_on = 0;
    int result = db_int(db, "SELECT count(*) FROM mirror", &rows, err);
    if (result == 0) {
        result = db_int(db,
                        "SELECT coalesce(sum(24 + length(CAST(user AS BLOB)) + coalesce(length(CAST(item AS BLOB)), "
                        "0)), 0) FROM mirror",
                        &bytes, err);
    }
    if (result < 0 || (result = db_int(db, "SELECT coalesce(max(id), 0) FROM mirror", &last, err)) < 0 ||
        (result = db_meta_int(db, "mirror_broken", 0, &broken, err)) < 0 ||
        (result = db_meta_int(db, "mirror_left_out", 0, &left_out, err)) < 0 ||
        (result = db_meta_int(db, "mirror_on", 0, &was_on, err)) < 0) {
        return result;
    }
    atomic_store(&q->rows, (uint64_t)rows);
    atomic_store(&q->bytes, (uint64_t)bytes);
    atomic_store(&q->last_id, (uint64_t)last);
    atomic_store(&q->broken_ms, broken);
    atomic_store(&q->left_out, (uint64_t)left_out);
    q->was_on = was_on != 0;
    q->counted_to = (uint64_t)last;
    if ((uint64_t)last >= s->stager.next_id) {
        s->stager.next_id = (uint64_t)last + 1;
    }
    return 0;
}

static void tell_state(const struct mirror_queue *q)
{
    uint64_t rows = atomic_load(&q->rows);
    int64_t broken = atomic_load(&q->broken_ms);
    if (q->on && broken != 0) {
        log_error("the mirror is broken", "since=%" PRId64 " left_out=%" PRIu64 " waiting=%" PRIu64, broken,
                  atomic_load(&q->left_out), rows);
    } else if (!q->on && rows > 0) {
        log_warn("the mirror is off, and what waited for the old Redis stays", "waiting=%" PRIu64 " bytes=%" PRIu64,
                 rows, atomic_load(&q->bytes));
    }
}

int mirror_open(struct sqlite_store *s, struct err *err)
{
    struct mirror_queue *q = s->mirror = calloc(1, sizeof *q);
    if (q == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    q->on = s->cfg->legacy_mirror != 0;
    pthread_mutex_init(&q->wake_mutex, NULL);
    int result = read_totals(s, err);
    if (result == 0) {
        tell_state(q);
    }
    return result;
}

void mirror_close(struct sqlite_store *s)
{
    if (s->mirror != NULL) {
        pthread_mutex_destroy(&s->mirror->wake_mutex);
        free(s->mirror);
        s->mirror = NULL;
    }
}

/* --- within the stager's transaction --- */

/* Whether so much more may wait; else it is left out. */
static bool has_room(struct sqlite_store *s, uint64_t n, uint64_t bytes)
{
    struct mirror_queue *q = s->mirror;
    int64_t waiting = (int64_t)atomic_load_explicit(&q->bytes, memory_order_relaxed) + q->add_bytes;
    bool room = waiting + (int64_t)bytes <= config_now(s->cfg)->legacy_mirror_max;
    if (!room) {
        q->add_left_out += n;
    }
    return room;
}

static int insert(struct sqlite_store *s, uint64_t id, enum store_mirror_kind kind, struct slice user,
                  const struct slice *item, int64_t at_ms, struct err *err)
{
    struct mirror_queue *q = s->mirror;
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_MIRROR_INSERT, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)id);
        sqlite3_bind_int(stmt, 2, (int)kind);
        db_bind_id(stmt, 3, user);
        if (item != NULL) {
            db_bind_id(stmt, 4, *item);
        } else {
            sqlite3_bind_null(stmt, 4);
        }
        sqlite3_bind_int64(stmt, 5, at_ms);
    }
    q->added = true;
    q->add_rows++;
    q->add_bytes += (int64_t)store_mirror_bytes(user, item != NULL ? *item : slice_of("", 0));
    return db_run(&s->stager.db, stmt, err);
}

/* When the mirror was on before, what it misses now makes it broken. */
static bool is_off(struct mirror_queue *q)
{
    if (!q->on && q->was_on && atomic_load_explicit(&q->broken_ms, memory_order_relaxed) == 0) {
        q->broken_now_ms = clock_wall_ms();
    }
    return !q->on;
}

int mirror_add(struct sqlite_store *s, const struct store_event *event, uint64_t id, struct err *err)
{
    if (is_off(s->mirror)) {
        return 0;
    }
    uint64_t bytes = 0;
    struct slice item;
    uint64_t hash;
    const uint8_t *at = event->items;
    for (uint32_t i = 0; i < event->n; i++) {
        at = store_event_item(at, &item, &hash);
        bytes += store_mirror_bytes(event->user, item);
    }
    int result = 0;
    if (has_room(s, event->n, bytes)) {
        at = event->items;
        for (uint32_t i = 0; i < event->n && result == 0; i++) {
            at = store_event_item(at, &item, &hash);
            result = insert(s, id++, (enum store_mirror_kind)event->kind, event->user, &item, event->at_ms, err);
        }
    }
    return result;
}

uint64_t mirror_forget_ids(const struct sqlite_store *s, const struct store_forget *forget)
{
    return !s->mirror->on ? 0 : forget->n_items == 0 ? 1 : forget->n_items;
}

int mirror_add_forget(struct sqlite_store *s, const struct store_forget *forget, uint64_t id, struct err *err)
{
    if (is_off(s->mirror)) {
        return 0;
    }
    uint64_t bytes = forget->n_items == 0 ? store_mirror_bytes(forget->user, slice_of("", 0)) : 0;
    for (size_t i = 0; i < forget->n_items; i++) {
        bytes += store_mirror_bytes(forget->user, forget->items[i]);
    }
    int64_t now = clock_wall_ms();
    int result = 0;
    if (!has_room(s, mirror_forget_ids(s, forget), bytes)) {
        return 0;
    }
    if (forget->n_items == 0) {
        return insert(s, id, MIRROR_FORGET_USER, forget->user, NULL, now, err);
    }
    for (size_t i = 0; i < forget->n_items && result == 0; i++) {
        result = insert(s, id++, MIRROR_FORGET_ITEM, forget->user, &forget->items[i], now, err);
    }
    return result;
}

/* Deletes the oldest rows that were repeated, a chunk of them. */
static int delete_chunk(struct sqlite_store *s, struct err *err)
{
    struct mirror_queue *q = s->mirror;
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MIRROR_CHUNK_END, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)atomic_load(&q->done_id));
        sqlite3_bind_int(stmt, 2, CHUNK);
    }
    int result = db_step(db, stmt, err);
    if (result < 0) {
        return result;
    }
    int64_t end = sqlite3_column_int64(stmt, 0);
    q->deleted = (uint64_t)sqlite3_column_int64(stmt, 1);
    sqlite3_reset(stmt);
    if (q->deleted == 0) {
        q->deleted = atomic_load(&q->pending); /* a commit that was thought to have failed has deleted them */
        return 0;
    }
    if ((stmt = db_stmt(db, SQL_MIRROR_DELETE, err)) != NULL) {
        sqlite3_bind_int64(stmt, 1, end);
    }
    return db_run(db, stmt, err);
}

int mirror_before_commit(struct sqlite_store *s, struct err *err)
{
    struct mirror_queue *q = s->mirror;
    struct db *db = &s->stager.db;
    int result = 0;
    if (q->added && !q->was_on) {
        result = db_meta_set_int(db, "mirror_on", 1, err);
    }
    if (q->add_left_out > 0 && atomic_load(&q->broken_ms) == 0) {
        q->broken_now_ms = clock_wall_ms();
    }
    if (result == 0 && q->broken_now_ms != 0) {
        result = db_meta_set_int(db, "mirror_broken", q->broken_now_ms, err);
    }
    if (result == 0 && q->add_left_out > 0) {
        result = db_meta_set_int(db, "mirror_left_out", (int64_t)(atomic_load(&q->left_out) + q->add_left_out), err);
    }
    if (result == 0 && atomic_load_explicit(&q->pending, memory_order_relaxed) >= CHUNK_BESIDE) {
        result = delete_chunk(s, err);
    }
    return result;
}

static void begin_anew(struct mirror_queue *q)
{
    q->added = false;
    q->add_rows = q->add_bytes = q->broken_now_ms = 0;
    q->add_left_out = q->deleted = 0;
}

void mirror_failed(struct sqlite_store *s)
{
    begin_anew(s->mirror);
}

/* What was repeated is no longer in `rows`, so only `pending` goes down with what is deleted; it rises meanwhile. */
static void count_deleted(struct mirror_queue *q)
{
    atomic_fetch_sub(&q->pending, q->deleted);
    q->deleted = 0;
}

static void note_broken(struct sqlite_store *s)
{
    struct mirror_queue *q = s->mirror;
    atomic_store(&q->broken_ms, q->broken_now_ms);
    if (q->on) {
        log_error("the mirror is broken: its queue is full, and events are left out",
                  "since=%" PRId64 " waiting=%" PRIu64 " bytes=%" PRIu64 " limit=%" PRId64, q->broken_now_ms,
                  atomic_load(&q->rows), atomic_load(&q->bytes), config_now(s->cfg)->legacy_mirror_max);
    } else {
        log_warn("the mirror is off, and what is written now is not in the old Redis", "since=%" PRId64,
                 q->broken_now_ms);
    }
}

void mirror_committed(struct sqlite_store *s, uint64_t last_id)
{
    struct mirror_queue *q = s->mirror;
    bool added = q->added;
    atomic_fetch_add(&q->rows, (uint64_t)q->add_rows);
    atomic_fetch_add(&q->bytes, (uint64_t)q->add_bytes);
    atomic_fetch_add(&q->left_out, q->add_left_out);
    count_deleted(q);
    if (q->broken_now_ms != 0) {
        note_broken(s);
    }
    q->was_on = q->was_on || added;
    q->counted_to = s->stager.next_id - 1;
    begin_anew(q);
    if (added) {
        atomic_store(&q->last_id, last_id);
        pthread_mutex_lock(&q->wake_mutex);
        if (q->wake != NULL) {
            q->wake(q->wake_arg);
        }
        pthread_mutex_unlock(&q->wake_mutex);
    }
}

/* Rows of the range that were counted are counted off; those of a commit that failed never were. */
int mirror_undo(struct sqlite_store *s, uint64_t from, uint64_t to, struct err *err)
{
    struct mirror_queue *q = s->mirror;
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MIRROR_FROM, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)from - 1);
        sqlite3_bind_int64(stmt, 2, (int64_t)(to < q->counted_to ? to : q->counted_to));
        sqlite3_bind_int64(stmt, 3, -1);
    }
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        q->add_rows--;
        q->add_bytes -= (int64_t)store_mirror_bytes(db_column_bytes(stmt, 2), db_column_bytes(stmt, 3));
    }
    if (result < 0) {
        return result;
    }
    if ((stmt = db_stmt(db, SQL_MIRROR_DELETE_RANGE, err)) != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)from);
        sqlite3_bind_int64(stmt, 2, (int64_t)to);
    }
    return db_run(db, stmt, err);
}

/* --- the stager's, by themselves --- */

bool mirror_empty_step(struct sqlite_store *s, bool all)
{
    struct mirror_queue *q = s->mirror;
    struct db *db = &s->stager.db;
    uint64_t pending = atomic_load(&q->pending);
    if (pending == 0 || (!all && pending < CHUNK)) {
        return false;
    }
    struct err err = {0};
    int result = db_begin(db, &err);
    if (result == 0) {
        if ((result = delete_chunk(s, &err)) == 0) {
            result = db_commit(db, &err);
        } else {
            db_rollback(db);
        }
    }
    if (result == 0) {
        count_deleted(q);
        return true;
    }
    q->deleted = 0;
    if (log_again(&q->log)) {
        log_error("the mirror's queue is not emptied", "error=%s", log_quote_str(err.text));
    }
    return false;
}

static int reset(struct sqlite_store *s, struct err *err)
{
    struct mirror_queue *q = s->mirror;
    struct db *db = &s->stager.db;
    int result = db_meta_set_int(db, "mirror_broken", 0, err);
    if (result == 0) {
        result = db_meta_set_int(db, "mirror_left_out", 0, err);
    }
    if (result == 0 && !q->on && (result = db_meta_set_int(db, "mirror_on", 0, err)) == 0) {
        result = db_exec(db, "DELETE FROM mirror", err);
    }
    return result;
}

void mirror_work(struct sqlite_store *s, struct store_message *m)
{
    struct mirror_queue *q = s->mirror;
    struct db *db = &s->stager.db;
    struct store_call *call = (struct store_call *)m;
    int result = db_begin(db, &call->err);
    if (result == 0) {
        if ((result = reset(s, &call->err)) == 0) {
            result = db_commit(db, &call->err);
        } else {
            db_rollback(db);
        }
    }
    if (result == 0) {
        log_info("the mirror was reset", "broken_since=%" PRId64 " left_out=%" PRIu64 " %s=%" PRIu64,
                 atomic_load(&q->broken_ms), atomic_load(&q->left_out), q->on ? "waiting" : "dropped",
                 atomic_load(&q->rows));
        atomic_store(&q->broken_ms, 0);
        atomic_store(&q->left_out, 0);
        if (!q->on) {
            q->was_on = false;
            atomic_store(&q->rows, 0);
            atomic_store(&q->bytes, 0);
            atomic_store(&q->pending, 0);
        }
    }
    call->done(call);
}

/* --- any thread --- */

void mirror_listen(struct store *base, void (*wake)(void *arg), void *arg)
{
    struct mirror_queue *q = sqlite_store(base)->mirror;
    pthread_mutex_lock(&q->wake_mutex);
    q->wake = wake;
    q->wake_arg = arg;
    pthread_mutex_unlock(&q->wake_mutex);
}

void mirror_done(struct store *base, uint64_t id, uint64_t n, uint64_t bytes)
{
    struct sqlite_store *s = sqlite_store(base);
    struct mirror_queue *q = s->mirror;
    atomic_store(&q->done_id, id);
    atomic_fetch_sub(&q->rows, n);
    atomic_fetch_sub(&q->bytes, bytes);
    if (atomic_fetch_add(&q->pending, n) + n >= CHUNK) {
        thread_queue_wake(&s->stager.queue);
    }
}

uint64_t mirror_last_id(const struct sqlite_store *s)
{
    return atomic_load(&s->mirror->last_id);
}

void mirror_reset(struct store *base, struct store_call *call)
{
    call->err = (struct err){0};
    call->message.kind = STORE_CALL;
    call->message.what = WANTS_MIRROR;
    thread_queue_put(&sqlite_store(base)->stager.queue, &call->message);
}

void mirror_state(struct store *base, struct store_mirror_state *out)
{
    struct sqlite_store *s = sqlite_store(base);
    const struct mirror_queue *q = s->mirror;
    *out = (struct store_mirror_state){
        .on = q->on,
        .rows = atomic_load(&q->rows),
        .bytes = atomic_load(&q->bytes),
        .limit = (uint64_t)config_now(s->cfg)->legacy_mirror_max,
        .broken_ms = atomic_load(&q->broken_ms),
        .left_out = atomic_load(&q->left_out),
        .last_id = atomic_load(&q->last_id),
    };
}
