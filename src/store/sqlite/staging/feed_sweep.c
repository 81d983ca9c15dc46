/* What no consumer holds in the feed is deleted: at the front, what all consumers have done; and where a gap begins,
 * what only those took that are past it. */
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/staging/feed_impl.h"

struct stretch {
    uint64_t from, to;
};

/* From `from` up to before the first event that a consumer holds. */
static struct stretch free_from(struct feed *f, uint64_t from)
{
    struct stretch free = {from, f->last};
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        uint64_t held = feed_held(c) + 1, first = held > from ? held : from;
        if ((feed_holds(c, first) || (c->remote && c->kept && first <= c->cursor)) && first - 1 < free.to) {
            free.to = first - 1;
        }
    }
    return free;
}

/* At the front, and where gaps begin. */
static int find_free(struct sqlite_store *s, struct stretch out[FEED_CONSUMERS_MAX + 1])
{
    struct feed *f = s->feed;
    int n = 0;
    pthread_mutex_lock(&f->mutex);
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        if (c->remote) {
            feed_mark(c, c->by.limit(config_now(s->cfg)) / 2);
        }
    }
    out[n++] = free_from(f, 1);
    f->deleted = out[0].to > f->deleted ? out[0].to : f->deleted; /* before: one who has read looks again */
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        if (c->gap != 0) {
            out[n++] = free_from(f, c->gap);
        }
    }
    f->sweeping = f->pending;
    pthread_mutex_unlock(&f->mutex);
    return n;
}

static int delete_stretch(struct db *db, struct stretch stretch, int *left, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_FEED_CHUNK_END, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)stretch.from);
        sqlite3_bind_int64(stmt, 2, (int64_t)stretch.to);
        sqlite3_bind_int(stmt, 3, *left);
    }
    int result = db_step(db, stmt, err);
    if (result < 0) {
        return result;
    }
    int64_t end = sqlite3_column_int64(stmt, 0);
    int rows = sqlite3_column_int(stmt, 1);
    sqlite3_reset(stmt);
    *left -= rows;
    if (rows == 0) {
        return 0;
    }
    if ((stmt = db_stmt(db, SQL_FEED_DELETE, err)) != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)stretch.from);
        sqlite3_bind_int64(stmt, 2, end);
    }
    return db_run(db, stmt, err);
}

/* A chunk of it. */
int feed_sweep(struct sqlite_store *s, struct err *err)
{
    struct feed *f = s->feed;
    struct stretch stretches[FEED_CONSUMERS_MAX + 1];
    int left = FEED_CHUNK, n = find_free(s, stretches), result = feed_save(s, FEED_SAVE_CURSORS, err);
    for (int i = 0; i < n && left > 0 && result == 0; i++) {
        if (stretches[i].to >= stretches[i].from) {
            result = delete_stretch(&s->stager.db, stretches[i], &left, err);
        }
    }
    f->swept = true;
    f->more_left = left == 0;
    return result;
}

uint64_t feed_pending(struct feed *f)
{
    pthread_mutex_lock(&f->mutex);
    uint64_t n = f->pending;
    pthread_mutex_unlock(&f->mutex);
    return n;
}

/* What was held is to be looked at now and then, also when nothing more is done. */
static bool time_to_look(struct feed *f)
{
    int64_t now = clock_mono_ms();
    bool any = false;
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        any = any || c->remote;
    }
    if (!any || now - f->held_ms < FEED_MARK_MS) {
        return false;
    }
    f->held_ms = now;
    return true;
}

bool feed_sweep_step(struct sqlite_store *s, bool all)
{
    struct feed *f = s->feed;
    f->more = f->more || (all && f->n > 0 && time_to_look(f));
    uint64_t n = feed_pending(f);
    if (!f->more && (n == 0 || (!all && n < FEED_CHUNK))) {
        return false;
    }
    struct err err = {0};
    int result = db_begin(&s->stager.db, &err);
    if (result == 0) {
        if ((result = feed_sweep(s, &err)) == 0) {
            result = db_commit(&s->stager.db, &err);
        } else {
            db_rollback(&s->stager.db);
        }
    }
    if (result == 0) {
        feed_settle(f, 0);
        return true;
    }
    feed_begin_anew(f);
    if (log_again(&f->log)) {
        log_error("the feed is not emptied", "error=%s", log_quote_str(err.text));
    }
    return false;
}
