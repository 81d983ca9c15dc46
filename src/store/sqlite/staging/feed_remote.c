/* Consumers on other machines: the store listens in their place, and holds for a while what they have done. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/staging/feed_impl.h"

uint64_t feed_remote_limit(const struct config *live)
{
    return (uint64_t)live->feed_max;
}

bool feed_is_remote(const char *name)
{
    return strncmp(name, FEED_REMOTE, sizeof FEED_REMOTE - 1) == 0;
}

bool feed_has_remote(struct sqlite_store *s)
{
    struct feed *f = s->feed;
    bool has = false;
    pthread_mutex_lock(&f->mutex);
    for (const struct consumer *c = f->consumers; c < feed_end(f); c++) {
        has = has || c->remote;
    }
    pthread_mutex_unlock(&f->mutex);
    return has;
}

/* --- what is held behind the cursor --- */

static uint64_t half_of(const struct sqlite_store *s)
{
    return feed_remote_limit(config_now(s->cfg)) / 2;
}

/* Lets go of the oldest steps. Returns how many events that frees. */
static uint64_t let_go(struct consumer *c, int64_t now_ms, uint64_t half)
{
    uint64_t freed = 0;
    while (c->n_steps > 0) {
        const struct feed_step *oldest = &c->steps[0];
        if (now_ms - oldest->at_ms < FEED_HOLD_MS && c->held_bytes <= half && c->n_steps < FEED_STEPS) {
            break;
        }
        c->held = oldest->to;
        c->held_bytes -= oldest->bytes;
        freed += oldest->events;
        memmove(c->steps, c->steps + 1, (size_t)--c->n_steps * sizeof *c->steps);
    }
    return freed;
}

uint64_t feed_hold(const struct sqlite_store *s, struct consumer *c, uint64_t events, uint64_t bytes, int64_t now_ms)
{
    struct feed_step *last = c->n_steps > 0 ? &c->steps[c->n_steps - 1] : NULL;
    uint64_t half = half_of(s);
    if (last == NULL || now_ms - last->began_ms >= FEED_HOLD_MS / (FEED_STEPS / 2) ||
        last->bytes >= half / (FEED_STEPS / 2)) {
        if (c->n_steps == FEED_STEPS) { /* full while the clock stands */
            c->held = c->steps[0].to;
            c->held_bytes -= c->steps[0].bytes;
            memmove(c->steps, c->steps + 1, (size_t)--c->n_steps * sizeof *c->steps);
        }
        last = &c->steps[c->n_steps++];
        *last = (struct feed_step){.began_ms = now_ms};
    }
    last->to = c->cursor;
    last->at_ms = now_ms;
    last->events += events;
    last->bytes += bytes;
    c->held_bytes += bytes;
    return let_go(c, now_ms, half);
}

void feed_age(struct sqlite_store *s)
{
    struct feed *f = s->feed;
    int64_t now_ms = clock_wall_ms();
    pthread_mutex_lock(&f->mutex);
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        f->pending += c->remote ? let_go(c, now_ms, half_of(s)) : 0;
    }
    pthread_mutex_unlock(&f->mutex);
}

/* --- enlisting --- */

static int put(struct sqlite_store *s, const char *name, uint64_t cursor, struct err *err)
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
    result = db_run(db, stmt, err);
    /* No later run may give these ids again, also when what had them is to be undone. */
    result = result < 0 ? result : db_meta_raise(db, "high_water", (int64_t)cursor, err);
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

static int enlist(struct sqlite_store *s, struct feed_enlist *e, struct err *err)
{
    struct feed *f = s->feed;
    uint64_t cursor = s->stager.next_id - 1;
    pthread_mutex_lock(&f->mutex);
    const struct consumer *known = feed_find(f, e->consumer);
    bool kept = known != NULL && known->kept, full = known == NULL && f->n == FEED_CONSUMERS_MAX;
    e->cursor = kept ? known->cursor : cursor;
    pthread_mutex_unlock(&f->mutex);
    if (kept) {
        return 0;
    }
    if (full || !feed_is_remote(e->consumer) || strlen(e->consumer) >= FEED_NAME_MAX) {
        return err_set(err, ERR_INVALID,
                       "the feed can't enlist \"%s\": at most %d consumers, with names of up to %d B that begin "
                       "with " FEED_REMOTE,
                       e->consumer, FEED_CONSUMERS_MAX, FEED_NAME_MAX - 1);
    }
    int result = put(s, e->consumer, cursor, err);
    if (result < 0) {
        return result;
    }
    pthread_mutex_lock(&f->mutex);
    struct consumer *c = feed_find(f, e->consumer);
    c = c != NULL ? c : feed_add_consumer(f, e->consumer);
    if (c != NULL) {
        c->kept = true;
        c->cursor = c->saved = c->held = cursor;
    }
    pthread_mutex_unlock(&f->mutex);
    if (c == NULL) {
        return err_set(err, ERR_INVALID, "the feed has too many consumers: at most %d", FEED_CONSUMERS_MAX);
    }
    log_info("a replica was enlisted", "consumer=%s cursor=%" PRIu64, e->consumer, cursor);
    return 0;
}

void feed_enlist_work(struct sqlite_store *s, struct store_message *m)
{
    struct feed_enlist *e = (struct feed_enlist *)m;
    enlist(s, e, &e->call.err);
    e->call.done(&e->call);
}

/* --- when the folder becomes another node --- */

int feed_lose_remote(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_LOSE_REMOTE, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    }
    return db_run(db, stmt, err);
}

void feed_remote_lost(struct sqlite_store *s)
{
    struct feed *f = s->feed;
    pthread_mutex_lock(&f->mutex);
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        c->lost_ms = c->remote && c->lost_ms == 0 ? clock_wall_ms() : c->lost_ms;
    }
    pthread_mutex_unlock(&f->mutex);
}

/* --- forgets that history lacks still --- */

int feed_forget_begins(struct sqlite_store *s, uint64_t id)
{
    struct feed *f = s->feed;
    pthread_mutex_lock(&f->mutex);
    size_t before = f->unsettled.len;
    buf_add(&f->unsettled, &id, sizeof id);
    bool failed = f->unsettled.failed;
    if (failed) {
        f->unsettled.failed = false;
        f->unsettled.len = before;
    }
    pthread_mutex_unlock(&f->mutex);
    return failed ? ERR_NOMEM : 0;
}

void feed_forget_ended(struct sqlite_store *s, uint64_t id)
{
    struct feed *f = s->feed;
    pthread_mutex_lock(&f->mutex);
    uint64_t *ids = (uint64_t *)(void *)f->unsettled.data;
    size_t n = f->unsettled.len / sizeof *ids;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) {
            memmove(ids + i, ids + i + 1, (n - i - 1) * sizeof *ids);
            f->unsettled.len -= sizeof *ids;
            break;
        }
    }
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        if (c->kept && c->events > 0 && c->by.wake != NULL) {
            c->by.wake(c->by.arg);
        }
    }
    pthread_mutex_unlock(&f->mutex);
}

uint64_t feed_visible(const struct feed *f, uint64_t last)
{
    if (f->unsettled.len == 0) {
        return last;
    }
    uint64_t first;
    memcpy(&first, f->unsettled.data, sizeof first); /* ids grow */
    return first - 1 < last ? first - 1 : last;
}
