/* Questions about pools (dedup/pools.h): which ones, and what is hidden of them beside what the user has seen. How they
 * are asked stands in ask.c; how they are looked at in order, until enough are found, in dedup/view_probe.c. */
#include <inttypes.h>

#include "base/log.h"
#include "service/question.h"
#include "service/sending.h"

/* Candidates that a worker looks at by itself: some 0.2 ms. */
enum { ITEMS_HERE = 128 * 1024 };

int pool_version_check(struct slice asked, uint64_t version, size_t n_pools, struct err *err)
{
    char is[POOL_VERSION_TEXT];
    uint64_t wanted;
    if (asked.data == NULL) {
        return 0;
    }
    if (!pool_version_read(asked, &wanted)) {
        return err_set(err, ERR_INVALID, "VERSION is 16 lower-case hex digits, got '%.*s'",
                       (int)(asked.len < 64 ? asked.len : 64), asked.data);
    }
    return wanted == version
               ? 0
               : err_set(err, ERR_POOL_VERSION, "%s the version %s", n_pools == 1 ? "the pool has" : "the pools have",
                         pool_version_text(version, is));
}

/* In the table that request_pools_answer() has looked at: what it said of the reply must hold. */
int request_find_pools(struct service_loop *l, struct request *rq, struct err *err)
{
    if (rq->held != NULL) {
        rq->line = rq->held;
        rq->n = rq->held->n;
        return 0;
    }
    const struct pool_table *table = l->pools != NULL ? l->pools : service_pools(l);
    l->line = (struct pool_line){0};
    for (size_t i = 0; i < rq->n_pools; i++) {
        const struct pool *pool = table != NULL ? pool_table_find(table, rq->pools[i]) : NULL;
        if (pool == NULL) {
            return err_set(err, ERR_POOL, "there is no pool %.100s", log_quote(rq->pools[i]));
        }
        pool_line_add(&l->line, pool);
    }
    if (l->line.n > POOL_ITEMS_MAX) {
        return err_set(err, ERR_RANGE, "the pools hold %zu items: a question is about at most %d", l->line.n,
                       POOL_ITEMS_MAX);
    }
    rq->line = &l->line;
    rq->n = l->line.n;
    rq->items = NULL;
    rq->pool_version = pool_versions(l->line.pools, l->line.n_pools);
    return pool_version_check(rq->version, rq->pool_version, rq->n_pools, err);
}

static bool request_excludes(const struct request *rq, uint64_t hash)
{
    return rq->n_exclude > 0 && hash_is_among(rq->excluded, rq->n_exclude, hash);
}

/* NULL: nothing that is being sent hides. */
static const struct sending *sending_of(const struct request *rq)
{
    return sending_any(rq->sending) && !request_sends_again(rq) ? rq->sending : NULL;
}

static size_t hide_pools(struct service_loop *l, const struct request *rq, bool blocks, size_t from, size_t n,
                         uint8_t *unseen)
{
    const struct pool_line *line = rq->line;
    struct pool_line_walk walk = {0};
    size_t hidden = 0, k = 0;
    const struct sending *sends = sending_of(rq);
    if (!blocks && line->n_pools == 1 && sends == NULL && rq->n_exclude == 0) {
        return 0;
    }
    for (size_t i = from; i < from + n; i++) {
        if ((unseen[i / 8] & (0x80 >> i % 8)) == 0) {
            continue;
        }
        k = pool_line_at(line, i, k);
        uint64_t hash = line->pools[k]->hashes[i - pool_line_begin(line, k)];
        if (pool_line_repeats(line, k, hash) ||
            (blocks && session_set_has(&l->blocked, pool_line_item(line, i, &walk), hash)) ||
            sending_holds(sends, hash) || request_excludes(rq, hash)) {
            bitmap_clear(unseen, i);
            hidden++;
        }
    }
    return hidden;
}

size_t request_hide(struct service_loop *l, const struct request *rq, const uint64_t *hashes, bool blocks, size_t from,
                    size_t n, uint8_t *unseen)
{
    if (rq->line != NULL) {
        return hide_pools(l, rq, blocks, from, n, unseen);
    }
    size_t hidden = blocks ? session_set_hide(&l->blocked, rq->items, hashes, n, unseen) : 0;
    const struct sending *sends = sending_of(rq);
    for (size_t i = 0; i < n && (sends != NULL || rq->n_exclude > 0); i++) {
        if ((unseen[i / 8] & (0x80 >> i % 8)) != 0 &&
            (request_excludes(rq, hashes[i]) || sending_holds(sends, hashes[i]))) {
            bitmap_clear(unseen, i);
            hidden++;
        }
    }
    return hidden;
}

/* --- at once, or later --- */

bool question_is_long(const struct request *rq)
{
    return rq->line != NULL && rq->n > ITEMS_HERE;
}

int question_may_want(const struct request *rq, struct err *err)
{
    if (rq->hashed) {
        return err_set(err, ERR_RANGE,
                       "the old Redis knows no hashes: about a user who is still to be migrated ask with ITEMS");
    }
    return rq->line == NULL || rq->n <= ITEMS_MAX
               ? 0
               : err_set(
                     err, ERR_RANGE,
                     "the pools hold %zu items: about a user who is still to be migrated a question takes at most %d",
                     rq->n, ITEMS_MAX);
}

static size_t hide(void *arg, size_t from, size_t n, uint8_t *unseen)
{
    const struct question_line *line = arg;
    return hide_pools(line->l, line->rq, line->rq->session.data != NULL, from, n, unseen);
}

int question_line_up(struct service_loop *l, const struct request *rq, struct query *a, struct question_line *line,
                     struct err *err)
{
    *line = (struct question_line){l, rq};
    a->line = rq->line;
    a->hide = hide;
    a->hide_arg = line;
    a->enough = rq->has_limit ? (size_t)rq->limit : 0;
    a->most = ITEMS_HERE;
    return rq->session.data != NULL ? sessions_load(l->dedup->sessions, rq->session, &l->blocked, err) : 0;
}

void question_hold_pools(struct question *q, uint64_t *hashes, struct slice *items)
{
    struct request *rq = &q->late.rq;
    q->line = *rq->line;
    rq->line = &q->line;
    rq->pools = NULL;
    for (size_t i = 0; i < q->line.n_pools; i++) {
        pool_hold(q->line.pools[i]);
    }
    if (q->line.n_pools == 1) {
        q->query.hashes = q->line.pools[0]->hashes;
    } else {
        pool_line_hashes(&q->line, hashes);
    }
    struct pool_line_walk walk = {0};
    q->items = items;
    for (size_t i = 0; items != NULL && i < rq->n; i++) {
        items[i] = pool_line_item(&q->line, i, &walk);
    }
}

/* --- what edges tell --- */

struct slice request_item(const struct request *rq, size_t i, struct pool_line_walk *walk)
{
    return rq->line != NULL ? pool_line_item(rq->line, i, walk) : rq->items[i];
}

void request_pools_answer(struct conn *c, const struct request *rq, size_t *n, size_t *id_bytes)
{
    struct service_loop *l = service_of(c);
    const struct pool_line *held = rq->line;
    const struct pool_table *table = l->dedup != NULL && held == NULL ? service_pools(l) : NULL;
    size_t n_pools = held != NULL                                          ? held->n_pools
                     : table != NULL && rq->n_pools <= POOLS_OF_A_QUESTION ? rq->n_pools
                                                                           : 0;
    *n = *id_bytes = 0;
    for (size_t i = 0; i < n_pools && *n <= POOL_ITEMS_MAX; i++) {
        const struct pool *pool = held != NULL ? held->pools[i] : pool_table_find(table, rq->pools[i]);
        *n += pool != NULL ? pool->n : 0;
        *id_bytes += pool != NULL ? pool->id_bytes : 0;
    }
    if (*n > POOL_ITEMS_MAX) {
        *n = *id_bytes = 0;
    }
    if (rq->has_limit && rq->limit > 0 && (uint64_t)rq->limit < *n) {
        *n = (size_t)rq->limit;
        *id_bytes = pool_ids_max(*n, *id_bytes);
    }
}
