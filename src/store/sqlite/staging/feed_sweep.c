/* What nobody holds in the feed is deleted: at the front, what all consumers have done; and where a gap begins, what
 * only those took that are past it. */
#include "base/log.h"
#include "store/sqlite/staging/feed_impl.h"

struct stretch {
    uint64_t from, to;
};

/* From `from` up to before the first event that somebody holds. */
static struct stretch free_from(struct feed *f, uint64_t from)
{
    struct stretch free = {from, f->last};
    for (struct consumer *c = f->consumers; c < feed_end(f); c++) {
        uint64_t first = feed_kept_from(c) + 1 > from ? feed_kept_from(c) + 1 : from;
        if (c->kept && (c->gap == 0 || first < c->gap) && first - 1 < free.to) {
            free.to = first - 1;
        }
    }
    return free;
}

/* At the front, and where gaps begin. */
static int find_free(struct feed *f, struct stretch out[FEED_CONSUMERS_MAX + 1])
{
    int n = 0;
    pthread_mutex_lock(&f->mutex);
    out[n++] = free_from(f, 1);
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
    int left = FEED_CHUNK, n = find_free(f, stretches), result = feed_save(s, FEED_SAVE_CURSORS, err);
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

bool feed_sweep_step(struct sqlite_store *s, bool all)
{
    struct feed *f = s->feed;
    if (all) {
        feed_age(s);
    }
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
