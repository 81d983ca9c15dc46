/* The feed within the stager's transactions: who takes an event, and what of that outlives a commit that fails. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/staging/feed_impl.h"

enum { CHUNK_BESIDE = 512 }; /* deleted with other writes: not before there are so many */

/* Whether the event of n rows is kept for the consumer; else it misses it. */
static bool take(struct sqlite_store *s, struct consumer *c, uint64_t seq, uint64_t n, uint64_t bytes)
{
    uint64_t gap = c->now.gap != 0 ? c->now.gap : c->now.first != 0 ? 0 : c->gap;
    bool in_reach = gap == 0 || (c->now.gap == 0 && c->events == 0);
    bool will_listen = s->feed->starting && c->kept && c->lost_ms == 0;
    c->now.limit = c->listens ? c->by.limit(config_now(s->cfg)) : will_listen ? INT64_MAX : 0;
    c->now.takes = in_reach && (int64_t)c->bytes + c->now.bytes + (int64_t)bytes <= (int64_t)c->now.limit;
    if (c->listens && c->now.first == 0 && (!c->kept || (c->now.takes && gap != 0))) {
        c->now.first = seq;
    }
    if (c->now.takes) {
        c->now.events += (int64_t)n;
        c->now.bytes += (int64_t)bytes;
        return true;
    }
    c->now.left_out += c->listens ? n : 0;
    if (c->lost_ms == 0) {
        c->now.lost_ms = s->feed->now_ms;
    }
    return false;
}

/* Whether the event is to be written. */
static bool is_taken(struct sqlite_store *s, uint64_t seq, uint64_t n, uint64_t bytes)
{
    struct feed *f = s->feed;
    bool taken = false;
    f->now_ms = f->now_ms != 0 ? f->now_ms : clock_wall_ms();
    pthread_mutex_lock(&f->mutex);
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        taken = take(s, c, seq, n, bytes) || taken;
    }
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        bool has_gap = c->now.gap != 0 || (c->gap != 0 && c->now.first == 0);
        if (taken && !c->now.takes && !has_gap) {
            c->now.gap = seq;
        }
    }
    pthread_mutex_unlock(&f->mutex);
    return taken;
}

static int insert(struct sqlite_store *s, uint64_t seq, enum feed_kind kind, struct slice user,
                  const struct slice *item, int64_t at_ms, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_FEED_INSERT, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)seq);
        sqlite3_bind_int(stmt, 2, (int)kind);
        db_bind_id(stmt, 3, user);
        if (item != NULL) {
            db_bind_id(stmt, 4, *item);
        } else {
            sqlite3_bind_null(stmt, 4);
        }
        sqlite3_bind_int64(stmt, 5, at_ms);
        sqlite3_bind_int64(stmt, 6, s->feed->now_ms - at_ms); /* small, so it takes next to no room */
    }
    s->feed->added = true;
    return db_run(&s->stager.db, stmt, err);
}

int feed_add(struct sqlite_store *s, const struct store_event *event, uint64_t id, struct err *err)
{
    if (s->feed->n == 0 || event->n == 0) {
        return 0;
    }
    uint64_t bytes = 0;
    struct store_item item;
    const uint8_t *at = event->items;
    for (uint32_t i = 0; i < event->n; i++) {
        at = store_event_item(event, at, &item);
        bytes += feed_event_bytes(event->user, item.id, item.group);
    }
    int result = 0;
    if (is_taken(s, id, event->n, bytes)) {
        char text[GROUPED_MAX];
        at = event->items;
        for (uint32_t i = 0; i < event->n && result == 0; i++) {
            at = store_event_item(event, at, &item);
            const bool grouped = item.group != 0;
            const struct slice id_of = grouped ? grouped_write(item.group, item.id, text) : item.id;
            result = insert(s, id++, grouped ? FEED_GROUPED : (enum feed_kind)event->kind, event->user, &id_of,
                            event->at_ms, err);
        }
    }
    return result;
}

/* Also where a consumer is absent, which is lost by it. */
uint64_t feed_forget_ids(struct sqlite_store *s, const struct store_forget *forget)
{
    struct feed *f = s->feed;
    bool concerns = false;
    pthread_mutex_lock(&f->mutex);
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        concerns = concerns || c->listens || c->lost_ms == 0;
    }
    pthread_mutex_unlock(&f->mutex);
    return !concerns ? 0 : forget->n_items == 0 ? 1 : forget->n_items;
}

/* Its id, or else its hash. */
static struct slice item_of(const struct store_forget *forget, size_t i, uint64_t *hash)
{
    if (forget->items != NULL) {
        return forget->items[i];
    }
    *hash = htole64(forget->hashes[i]);
    return slice_of((const char *)hash, sizeof *hash);
}

int feed_add_forget(struct sqlite_store *s, const struct store_forget *forget, uint64_t id, struct err *err)
{
    uint64_t bytes = forget->n_items == 0 ? feed_event_bytes(forget->user, slice_of("", 0), 0) : 0, hash;
    for (size_t i = 0; i < forget->n_items; i++) {
        bytes += feed_event_bytes(forget->user, item_of(forget, i, &hash), 0);
    }
    if (!is_taken(s, id, forget->n_items == 0 ? 1 : forget->n_items, bytes)) {
        return 0;
    }
    int64_t at = forget->at_ms; /* the tombstone's, which a replica then has as well */
    int result = forget->n_items == 0 ? insert(s, id, FEED_FORGET, forget->user, NULL, at, err) : 0;
    enum feed_kind kind = forget->items != NULL ? FEED_UNSEE : FEED_UNSEE_HASH;
    for (size_t i = 0; i < forget->n_items && result == 0; i++) {
        struct slice item = item_of(forget, i, &hash);
        result = insert(s, id++, kind, forget->user, &item, at, err);
    }
    return result;
}

bool feed_takes(struct sqlite_store *s)
{
    struct feed *f = s->feed;
    bool takes = false;
    if (f->n > 0) {
        pthread_mutex_lock(&f->mutex);
        for (const struct consumer *c = f->consumers; c < feed_end(f); c++) {
            takes = takes || c->remote;
        }
        pthread_mutex_unlock(&f->mutex);
    }
    return takes;
}

/* A start would find its id in the feed alone, which loses it once no consumer holds the event. */
static bool is_rowless_taken(struct sqlite_store *s, uint64_t id, struct slice about)
{
    s->feed->rowless = id;
    return is_taken(s, id, 1, feed_event_bytes(about, slice_of("", 0), 0));
}

int feed_add_user(struct sqlite_store *s, struct slice user, uint64_t id, struct err *err)
{
    return is_rowless_taken(s, id, user) ? insert(s, id, FEED_USER, user, NULL, s->feed->now_ms, err) : 0;
}

int feed_add_pool(struct sqlite_store *s, struct slice name, uint64_t id, struct err *err)
{
    return is_rowless_taken(s, id, name) ? insert(s, id, FEED_POOL, name, NULL, s->feed->now_ms, err) : 0;
}

int feed_add_offset(struct sqlite_store *s, const struct store_position *position, uint64_t id, struct err *err)
{
    bool taken = is_rowless_taken(s, id, position->source);
    return taken ? insert(s, id, FEED_OFFSET, position->source, NULL, position->next, err) : 0;
}

/* The consumer as it is once this transaction is committed. */
static void apply(struct consumer *c, int64_t now_ms)
{
    if (c->now.first != 0) {
        c->cursor = c->now.first - 1;
        c->gap = 0;
        c->kept = true;
    }
    c->gap = c->now.gap != 0 ? c->now.gap : c->gap;
    c->oldest_ms = c->events == 0 ? now_ms : c->oldest_ms;
    c->events += (uint64_t)c->now.events;
    c->bytes += (uint64_t)c->now.bytes;
    c->left_out += c->now.left_out;
    c->lost_ms = c->now.lost_ms != 0 ? c->now.lost_ms : c->lost_ms;
}

int feed_save(struct sqlite_store *s, enum feed_save which, struct err *err)
{
    struct feed *f = s->feed;
    struct db *db = &s->stager.db;
    struct consumer rows[FEED_CONSUMERS_MAX];
    int n = 0, result = 0;
    pthread_mutex_lock(&f->mutex);
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        bool changes = c->now.first != 0 || c->now.gap != 0 || c->now.left_out > 0 || c->now.lost_ms != 0;
        bool moved = which == FEED_SAVE_CURSORS && c->cursor != c->saved;
        if (changes || (c->kept && (moved || which == FEED_SAVE_ALL))) {
            rows[n] = *c;
            apply(&rows[n], f->now_ms);
            c->now.saving = rows[n++].cursor;
        }
    }
    pthread_mutex_unlock(&f->mutex);
    for (int i = 0; i < n && result == 0; i++) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_CONSUMER_PUT, err);
        if (stmt != NULL) {
            sqlite3_bind_text(stmt, 1, rows[i].name, -1, SQLITE_STATIC);
            sqlite3_bind_int64(stmt, 2, (int64_t)rows[i].cursor);
            sqlite3_bind_int64(stmt, 3, (int64_t)rows[i].gap);
            sqlite3_bind_int64(stmt, 4, rows[i].lost_ms);
            sqlite3_bind_int64(stmt, 5, (int64_t)rows[i].left_out);
        }
        result = db_run(db, stmt, err);
    }
    return result;
}

int feed_before_commit(struct sqlite_store *s, struct err *err)
{
    struct feed *f = s->feed;
    int result = f->rowless > 0 ? db_meta_raise(&s->stager.db, "high_water", (int64_t)f->rowless, err) : 0;
    if (result < 0 || f->n == 0) {
        return result;
    }
    return f->more || feed_pending(f) >= CHUNK_BESIDE ? feed_sweep(s, err) : feed_save(s, FEED_SAVE_CHANGED, err);
}

void feed_begin_anew(struct feed *f)
{
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        memset(&c->now, 0, sizeof c->now);
    }
    f->added = f->swept = f->more_left = false;
    f->rowless = 0;
    f->now_ms = 0;
    f->sweeping = 0;
}

void feed_await_absent(struct sqlite_store *s, bool on)
{
    s->feed->starting = on;
}

void feed_failed(struct sqlite_store *s)
{
    feed_begin_anew(s->feed);
}

static void tell_lost(const struct consumer *c)
{
    if (c->now.limit != 0) {
        log_error("a consumer of the feed is lost: too much waits for it, and events are left out",
                  "consumer=%s since=%" PRId64 " limit=%" PRIu64, c->name, c->now.lost_ms, c->now.limit);
    } else {
        log_warn("a consumer of the feed is lost: it is off, and misses what is written now",
                 "consumer=%s since=%" PRId64, c->name, c->now.lost_ms);
    }
}

void feed_settle(struct feed *f, uint64_t last_id)
{
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        if (c->now.lost_ms != 0) {
            tell_lost(c);
        }
    }
    /* With the mutex: who has asked for the newest and reads up to there finds its events, by f->last. */
    pthread_mutex_lock(&f->mutex);
    if (last_id > atomic_load(&f->newest)) {
        atomic_store(&f->newest, last_id);
    }
    f->last = f->added ? last_id : f->last;
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        apply(c, f->now_ms);
        c->saved = c->now.saving != 0 ? c->now.saving : c->saved;
        if (c->now.events > 0 && c->by.wake != NULL) {
            c->by.wake(c->by.arg);
        }
    }
    f->pending -= f->sweeping;
    pthread_mutex_unlock(&f->mutex);
    f->more = f->swept ? f->more_left : f->more;
    feed_begin_anew(f);
}

void feed_committed(struct sqlite_store *s, uint64_t last_id)
{
    feed_settle(s->feed, last_id);
    s->feed->counted_to = s->stager.next_id - 1;
}

/* Rows of the range that were counted are counted off; those of a commit that failed never were. */
int feed_undo(struct sqlite_store *s, uint64_t from, uint64_t to, struct err *err)
{
    struct feed *f = s->feed;
    struct db *db = &s->stager.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_FROM, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)from - 1);
        sqlite3_bind_int64(stmt, 2, (int64_t)(to < f->counted_to ? to : f->counted_to));
        sqlite3_bind_int64(stmt, 3, -1);
    }
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        uint64_t seq = (uint64_t)sqlite3_column_int64(stmt, 0);
        uint64_t bytes = feed_event_bytes(db_column_bytes(stmt, 2), db_column_bytes(stmt, 3), 0);
        pthread_mutex_lock(&f->mutex);
        for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
            c->now.events -= feed_holds(c, seq);
            c->now.bytes -= feed_holds(c, seq) ? (int64_t)bytes : 0;
        }
        pthread_mutex_unlock(&f->mutex);
    }
    if (result < 0) {
        return result;
    }
    if ((stmt = db_stmt(db, SQL_FEED_DELETE, err)) != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)from);
        sqlite3_bind_int64(stmt, 2, (int64_t)to);
    }
    result = db_run(db, stmt, err);
    return result < 0 ? result : feed_save(s, FEED_SAVE_ALL, err); /* that commit may have changed them, too */
}
