/* The feed as rows of staging.db, and its consumers.
 *
 * The stager appends events in the transaction that makes the write itself durable, so the feed has exactly what was
 * acknowledged, in its order, and an acknowledgement costs one more insert and waits for no consumer. Events have the
 * ids of the staged rows, and a forget takes ids of the same sequence: so what a commit of unknown outcome may have
 * left is deleted here by the same range. Consumers read by connections of their own, only up to the last id that is
 * known to be durable, and say how far they are done. That is written down, and what none holds any more deleted, in
 * chunks, with the next writes or, when there are none, by itself. After a crash a consumer may read some events once
 * more.
 *
 * Which events a consumer holds is said by two numbers: those behind its cursor, up to its gap if it has one. A
 * consumer whose limit is reached, or who is absent, takes no event: it is lost from then on. Where none takes it, it
 * isn't written, and nothing lies between what the consumer holds and what it takes when there is room again. Where
 * another consumer takes it, a gap begins there, which holds up no deletion, and the lost one takes nothing more until
 * it has done what lies before the gap: then its cursor moves to the gap's end. So what waits on the disk is bounded by
 * the consumers' limits, however they fall behind.
 *
 * A remote consumer may go back to an older state, so what it has done is held for a while: marks say where its cursor
 * was at which time, and nothing above the oldest mark that counts is deleted. After a start everything that is there
 * is held.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/staging/feed_impl.h"

static struct consumer *find(struct feed *f, const char *name)
{
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    return NULL;
}

static uint64_t remote_limit(const struct config *live)
{
    return (uint64_t)live->feed_max;
}

static struct consumer *add_consumer(struct feed *f, const char *name)
{
    if (f->n == FEED_CONSUMERS_MAX || name[0] == '\0' || strlen(name) >= FEED_NAME_MAX) {
        return NULL;
    }
    struct consumer *c = &f->consumers[f->n];
    *c = (struct consumer){.in_step_ms = clock_wall_ms()};
    memcpy(c->name, name, strlen(name));
    c->remote = feed_is_remote(name);
    if (c->remote) { /* it listens by itself, whichever process opens the folder */
        c->listens = true;
        c->by = (struct feed_consumer){.name = c->name, .limit = remote_limit};
        c->marks[c->n_marks++] = (struct feed_mark){.at_ms = clock_mono_ms()};
    }
    f->n++; /* not before: the stager looks at `now` without the mutex */
    return c;
}

/* --- at start and end --- */

static int read_consumers(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_CONSUMERS, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        struct consumer *c = add_consumer(s->feed, name != NULL ? name : "");
        if (c == NULL) {
            log_error("a consumer of the feed can't be read", "file=%s", log_quote_str(db->path));
            continue;
        }
        c->kept = true;
        c->cursor = c->saved = (uint64_t)sqlite3_column_int64(stmt, 1);
        c->gap = (uint64_t)sqlite3_column_int64(stmt, 2);
        c->lost_ms = sqlite3_column_int64(stmt, 3);
        c->left_out = (uint64_t)sqlite3_column_int64(stmt, 4);
    }
    return result;
}

static int read_totals(struct db *db, struct consumer *c, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_TOTALS, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)c->cursor);
        sqlite3_bind_int64(stmt, 2, c->gap == 0 ? INT64_MAX : (int64_t)c->gap);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        c->events = (uint64_t)sqlite3_column_int64(stmt, 0);
        c->bytes = (uint64_t)sqlite3_column_int64(stmt, 1);
        c->oldest_ms = sqlite3_column_int64(stmt, 2);
        sqlite3_reset(stmt);
    }
    return result < 0 ? result : 0;
}

static int read_feed(struct sqlite_store *s, struct err *err)
{
    struct feed *f = s->feed;
    struct db *db = &s->stager.db;
    int64_t rows = 0, last = 0;
    int result = db_int(db, "SELECT count(*) FROM feed", &rows, err);
    if (result < 0 || (result = db_int(db, "SELECT coalesce(max(seq), 0) FROM feed", &last, err)) < 0 ||
        (result = read_consumers(s, err)) < 0) {
        return result;
    }
    uint64_t highest = (uint64_t)last, most = 0;
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        if ((result = read_totals(db, c, err)) < 0) {
            return result;
        }
        highest = c->cursor > highest ? c->cursor : highest;
        most = c->events > most ? c->events : most;
    }
    if (rows > 0 && f->n == 0) {
        log_error("the feed has events, and no consumer of them: unseen check --repair", "file=%s rows=%" PRId64,
                  log_quote_str(db->path), rows);
    }
    f->more = f->n > 0 && (uint64_t)rows > most;
    f->last = f->counted_to = (uint64_t)last;
    int64_t first = 0;
    if (rows > 0 && (result = db_int(db, "SELECT min(seq) FROM feed", &first, err)) < 0) {
        return result;
    }
    f->deleted = rows > 0 ? (uint64_t)first - 1 : highest;
    if (highest >= s->stager.next_id) { /* an earlier release noted it in the feed alone, where it doesn't stay */
        if ((result = db_meta_raise(db, "high_water", (int64_t)highest, err)) < 0) {
            return result;
        }
        s->stager.next_id = highest + 1;
    }
    f->newest = s->stager.next_id - 1;
    store_raise_left(s, f->newest);
    f->forgets.unknown = f->newest;
    return 0;
}

int feed_open(struct sqlite_store *s, struct err *err)
{
    s->feed = calloc(1, sizeof *s->feed);
    if (s->feed == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    pthread_mutex_init(&s->feed->mutex, NULL);
    recent_forgets_init(&s->feed->forgets);
    return read_feed(s, err);
}

void feed_close(struct sqlite_store *s)
{
    if (s->feed != NULL) {
        recent_forgets_free(&s->feed->forgets);
        pthread_mutex_destroy(&s->feed->mutex);
        free(s->feed);
        s->feed = NULL;
    }
}

/* --- the stager's --- */

/* So that it is no longer lost; or, when it is absent, no longer known. */
static int reset(struct sqlite_store *s, const char *name, bool listens, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, listens ? SQL_FEED_CONSUMER_ACCEPT : SQL_FEED_CONSUMER_DELETE, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    }
    result = db_run(db, stmt, err);
    if (result == 0 && !listens && s->feed->n == 1) {
        result = db_exec(db, "DELETE FROM feed", err);
    }
    if (result == 0) {
        return db_commit(db, err);
    }
    db_rollback(db);
    return result;
}

void feed_work(struct sqlite_store *s, struct store_message *m)
{
    struct feed *f = s->feed;
    struct feed_reset *r = (struct feed_reset *)m;
    struct feed_state before;
    feed_state_of(&s->base, r->consumer, &before);
    bool remote = feed_is_remote(r->consumer);
    before.listens = before.listens && !remote; /* that one is given up */
    if (before.name[0] == '\0' || reset(s, before.name, before.listens, &r->call.err) < 0) {
        r->call.done(&r->call);
        return;
    }
    log_info("a consumer of the feed was reset", "consumer=%s lost_since=%" PRId64 " left_out=%" PRIu64 " %s=%" PRIu64,
             before.name, before.lost_ms, before.left_out, before.listens ? "waiting" : "dropped", before.events);
    pthread_mutex_lock(&f->mutex);
    struct consumer *c = find(f, r->consumer);
    c->lost_ms = 0;
    c->left_out = 0;
    if (!before.listens) {
        *c = f->consumers[f->n - 1];
        f->n--;
        f->more = f->n > 0;
    }
    pthread_mutex_unlock(&f->mutex);
    r->call.done(&r->call);
}

/* --- remote consumers --- */

uint64_t feed_held(const struct consumer *c)
{
    return c->remote && c->n_marks > 0 && c->marks[0].cursor < c->cursor ? c->marks[0].cursor : c->cursor;
}

void feed_mark(struct consumer *c, uint64_t bytes_max)
{
    int64_t now = clock_mono_ms();
    const struct feed_mark *last = &c->marks[c->n_marks - 1];
    if (c->n_marks == 0 || (now - last->at_ms >= FEED_MARK_MS && c->cursor > last->cursor)) {
        if (c->n_marks == FEED_MARKS) {
            memmove(c->marks, c->marks + 1, (FEED_MARKS - 1) * sizeof *c->marks);
            c->n_marks--;
        }
        c->marks[c->n_marks++] = (struct feed_mark){c->cursor, c->done_bytes, now};
    }
    int gone = 0;
    while (gone + 1 < c->n_marks &&
           (now - c->marks[gone + 1].at_ms >= FEED_HOLD_MS || c->done_bytes - c->marks[gone].done_bytes > bytes_max)) {
        gone++;
    }
    memmove(c->marks, c->marks + gone, (size_t)(c->n_marks - gone) * sizeof *c->marks);
    c->n_marks -= gone;
}

/* Durable before it is known: from then on all is kept for it. */
static int enlist(struct sqlite_store *s, const char *name, uint64_t cursor, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db->lost ? db_reopen(db, err) : 0;
    if (result < 0 || (result = db_begin(db, err)) < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_CONSUMER_PUT, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 2, (int64_t)cursor);
        sqlite3_bind_int64(stmt, 3, 0);
        sqlite3_bind_int64(stmt, 4, 0);
        sqlite3_bind_int64(stmt, 5, 0);
    }
    if ((result = db_run(db, stmt, err)) == 0 &&
        (result = db_meta_raise(db, "high_water", (int64_t)cursor, err)) == 0) {
        return db_commit(db, err);
    }
    db_rollback(db);
    return result;
}

void feed_enlist_work(struct sqlite_store *s, struct store_message *m)
{
    struct feed *f = s->feed;
    struct feed_enlist *e = (struct feed_enlist *)m;
    uint64_t cursor = s->stager.next_id - 1;
    pthread_mutex_lock(&f->mutex);
    const struct consumer *known = find(f, e->consumer);
    e->cursor = known != NULL ? known->cursor : cursor;
    pthread_mutex_unlock(&f->mutex);
    if (known == NULL && (f->n == FEED_CONSUMERS_MAX || strlen(e->consumer) >= FEED_NAME_MAX)) {
        err_set(&e->call.err, ERR_INVALID,
                "the feed can't have \"%s\" as a consumer: at most %d, with names of 1 to %d B", e->consumer,
                FEED_CONSUMERS_MAX, FEED_NAME_MAX - 1);
    } else if (known == NULL && enlist(s, e->consumer, cursor, &e->call.err) == 0) {
        pthread_mutex_lock(&f->mutex);
        f->deleted = f->n == 0 ? cursor : f->deleted; /* nothing was kept for anyone: it can't go back behind here */
        struct consumer *c = add_consumer(f, e->consumer);
        c->kept = true;
        c->cursor = c->saved = c->marks[0].cursor = cursor;
        f->last = f->last > cursor ? f->last : cursor;
        pthread_mutex_unlock(&f->mutex);
        log_info("a consumer of the feed was enlisted", "consumer=%s cursor=%" PRIu64, e->consumer, cursor);
    }
    e->call.done(&e->call);
}

void feed_forget_remotes(struct sqlite_store *s)
{
    struct feed *f = s->feed;
    pthread_mutex_lock(&f->mutex);
    for (int i = f->n - 1; i >= 0; i--) {
        if (f->consumers[i].remote) {
            f->consumers[i] = f->consumers[f->n - 1];
            f->n--;
        }
    }
    f->more = f->n > 0;
    pthread_mutex_unlock(&f->mutex);
}

uint64_t feed_newest(struct sqlite_store *s)
{
    return atomic_load(&s->feed->newest);
}

void feed_forgot(struct sqlite_store *s, const struct store_forget *forget)
{
    recent_forgets_add(&s->feed->forgets, forget->key, forget->seq);
}

/* --- any thread --- */

static int feed_listen(struct store *base, const struct feed_consumer *consumer, struct err *err)
{
    struct feed *f = sqlite_store(base)->feed;
    pthread_mutex_lock(&f->mutex);
    struct consumer *c = find(f, consumer->name);
    c = c != NULL ? c : add_consumer(f, consumer->name);
    if (c != NULL) {
        c->listens = true;
        c->by = *consumer;
    }
    pthread_mutex_unlock(&f->mutex);
    return c != NULL ? 0
                     : err_set(err, ERR_INVALID,
                               "the feed can't have \"%s\" as a consumer: at most %d, with names of 1 to %d B",
                               consumer->name, FEED_CONSUMERS_MAX, FEED_NAME_MAX - 1);
}

bool feed_range(struct sqlite_store *s, const char *consumer, uint64_t *after, uint64_t *last)
{
    struct feed *f = s->feed;
    pthread_mutex_lock(&f->mutex);
    const struct consumer *c = find(f, consumer);
    bool waits = c != NULL && c->kept && (c->events > 0 || (c->remote && *after < c->cursor));
    if (waits) {
        uint64_t lowest = c->remote && f->deleted < c->cursor ? f->deleted : c->cursor;
        *after = *after > lowest ? *after : lowest;
        *last = c->gap != 0 && c->gap - 1 < f->last ? c->gap - 1 : f->last;
        waits = *last > *after;
    }
    pthread_mutex_unlock(&f->mutex);
    return waits;
}

void feed_was_read(struct sqlite_store *s, const char *consumer, uint64_t after, int64_t recorded_ms)
{
    struct feed *f = s->feed;
    pthread_mutex_lock(&f->mutex);
    struct consumer *c = find(f, consumer);
    if (c != NULL && c->cursor == after) {
        c->oldest_ms = recorded_ms;
    }
    pthread_mutex_unlock(&f->mutex);
}

static void feed_done(struct store *base, const char *consumer, uint64_t seq, uint64_t n, uint64_t bytes)
{
    struct sqlite_store *s = sqlite_store(base);
    struct feed *f = s->feed;
    bool wakes = false;
    pthread_mutex_lock(&f->mutex);
    struct consumer *c = find(f, consumer);
    if (c != NULL) {
        c->cursor = seq;
        c->events -= n;
        c->bytes -= bytes;
        c->done_bytes += bytes;
        if (c->remote) {
            feed_mark(c, c->by.limit(config_now(s->cfg)) / 2);
        }
        c->in_step_ms = c->events == 0 ? clock_wall_ms() : c->in_step_ms;
        f->pending += n;
        wakes = f->pending >= FEED_CHUNK;
    }
    pthread_mutex_unlock(&f->mutex);
    if (wakes) {
        thread_queue_wake(&s->stager.queue);
    }
}

static void feed_pass(struct store *base, const char *consumer)
{
    struct sqlite_store *s = sqlite_store(base);
    struct feed *f = s->feed;
    pthread_mutex_lock(&f->mutex);
    const struct consumer *c = find(f, consumer);
    uint64_t seq = f->last, n = 0, bytes = 0;
    bool skips = c != NULL && c->lost_ms == 0 && c->gap == 0 && c->cursor < seq;
    if (skips) {
        n = c->events;
        bytes = c->bytes;
    }
    pthread_mutex_unlock(&f->mutex);
    if (skips) {
        feed_done(base, consumer, seq, n, bytes);
    }
}

static void feed_reset(struct store *base, struct feed_reset *reset)
{
    reset->call.err = (struct err){0};
    reset->call.message.kind = STORE_CALL;
    reset->call.message.what = WANTS_FEED;
    thread_queue_put(&sqlite_store(base)->stager.queue, &reset->call.message);
}

static void feed_put_enlist(struct store *base, struct feed_enlist *enlist)
{
    enlist->call.err = (struct err){0};
    if (!feed_is_remote(enlist->consumer)) {
        err_set(&enlist->call.err, ERR_INVALID, "\"%s\" is no name of a remote consumer", enlist->consumer);
        enlist->call.done(&enlist->call);
        return;
    }
    enlist->call.message.kind = STORE_CALL;
    enlist->call.message.what = WANTS_ENLIST;
    thread_queue_put(&sqlite_store(base)->stager.queue, &enlist->call.message);
}

static uint64_t feed_last(struct store *base)
{
    return feed_newest(sqlite_store(base));
}

static bool feed_covers(struct store *base, int64_t key, uint64_t to)
{
    return recent_forgets_cover(&sqlite_store(base)->feed->forgets, key, to);
}

static struct feed_state state_of(const struct consumer *c, const struct feed *f, const struct config *live,
                                  int64_t now)
{
    struct feed_state state = {
        .place = c->lost_ms != 0 ? FEED_LOST
                 : c->events > 0 ? FEED_BEHIND
                                 : FEED_IN_STEP,
        .since_ms = c->lost_ms != 0 ? c->lost_ms
                    : c->events > 0 ? c->oldest_ms
                                    : c->in_step_ms,
        .listens = c->listens,
        .cursor = c->cursor,
        .held = c->remote && f->deleted < c->cursor ? f->deleted : c->cursor,
        .last = f->last,
        .events = c->events,
        .bytes = c->bytes,
        .limit = c->listens ? c->by.limit(live) : 0,
        .behind_ms = c->events > 0 && now > c->oldest_ms ? now - c->oldest_ms : 0,
        .lost_ms = c->lost_ms,
        .left_out = c->left_out,
    };
    memcpy(state.name, c->name, sizeof state.name);
    return state;
}

static int feed_states(struct store *base, struct feed_state out[FEED_CONSUMERS_MAX])
{
    struct sqlite_store *s = sqlite_store(base);
    struct feed *f = s->feed;
    const struct config *live = config_now(s->cfg);
    int64_t now = clock_wall_ms();
    int n = 0;
    pthread_mutex_lock(&f->mutex);
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        out[n++] = state_of(c, f, live, now);
    }
    pthread_mutex_unlock(&f->mutex);
    return n;
}

const struct store_feed_ops sqlite_feed_ops = {
    .listen = feed_listen,
    .read = reader_feed,
    .done = feed_done,
    .pass = feed_pass,
    .mark = reader_feed_mark,
    .reset = feed_reset,
    .enlist = feed_put_enlist,
    .covers = feed_covers,
    .last = feed_last,
    .states = feed_states,
};
