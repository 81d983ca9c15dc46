/* How the writer begins: what of this folder lies there, whether it is this folder's past, and what it lacks.
 *
 * A listing may name a run or a seq that this folder doesn't know: then it went back to an older state, or another copy
 * of it has written. From now on it is another node, with objects of its own, which no other writer touches. */
#include "archive/archive_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "archive/round_end.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/positions.h"

static void on_call(struct store_call *call)
{
    archive_answer(call->owner);
}

static uint64_t limit(const struct config *live)
{
    return (uint64_t)live->feed_max;
}

/* From here on the store keeps what is recorded. One that is lost is given up before; then there is a gap between its
 * objects, and a round is needed. */
static int enlist(struct archive *a, struct err *err)
{
    struct feed_state queue;
    feed_state_of(a->store, FEED_ARCHIVE, &queue);
    if (queue.name[0] != '\0' && queue.place == FEED_LOST) {
        log_error("the archive lacks what was recorded while it could not be written: all users are brought in again",
                  "lost_since=%" PRId64 " left_out=%" PRIu64, queue.lost_ms, queue.left_out);
        a->reset = (struct feed_reset){.call = {.done = on_call, .owner = a}, .consumer = FEED_ARCHIVE};
        a->store->feed->reset(a->store, &a->reset);
        archive_wait_answer(a);
        if (a->reset.call.err.code < 0) {
            return (*err = a->reset.call.err).code;
        }
    }
    a->enlist = (struct feed_enlist){.call = {.done = on_call, .owner = a}, .consumer = FEED_ARCHIVE};
    a->store->feed->enlist(a->store, &a->enlist);
    archive_wait_answer(a);
    if (a->enlist.call.err.code < 0) {
        return (*err = a->enlist.call.err).code;
    }
    feed_state_of(a->store, FEED_ARCHIVE, &queue);
    a->cursor = a->enlist.cursor;
    return a->store->feed->listen(a->store, &(struct feed_consumer){FEED_ARCHIVE, limit, NULL, NULL}, err);
}

/* --- what is needed of a round --- */

static void on_marked(struct store_batch *batch)
{
    archive_answer(batch->owner);
}

static void mark_name(const struct archive *a, const char *what, char out[NODE_TEXT + 32])
{
    snprintf(out, NODE_TEXT + 32, "%s%016" PRIx64, what, a->self.node);
}

int archive_mark(struct archive *a, const char *what, uint64_t n, struct err *err)
{
    char name[NODE_TEXT + 32];
    mark_name(a, what, name);
    const struct store_position position = {slice_str(name), (int64_t)n};
    a->mark = (struct store_batch){.positions = &position, .n_positions = 1, .done = on_marked, .owner = a};
    a->store->ops->record(a->store, &a->mark);
    archive_wait_answer(a);
    a->tick_us = 0; /* it is an event of the feed itself */
    return a->mark.err.code < 0 ? (*err = a->mark.err).code : 0;
}

static uint64_t marked(const struct archive *a, const char *what)
{
    char name[NODE_TEXT + 32];
    int64_t n = 0;
    mark_name(a, what, name);
    return a->store->positions->find(a->store, slice_str(name), &n) == 1 ? (uint64_t)n : 0;
}

static int renew(struct archive *a, uint64_t run, uint64_t seq, struct err *err)
{
    log_error("the archive has more of this folder than it has itself: it was copied, or went back to an older state; "
              "from now on it is another node, and its replicas must be cloned again",
              "node=%016" PRIx64 " run=%016" PRIx64 " seq=%" PRIu64, a->self.node, run, seq);
    a->renew = (struct store_call){.done = on_call, .owner = a};
    a->store->node->renew(a->store, &a->renew);
    archive_wait_answer(a);
    return a->renew.err.code < 0 ? (*err = a->renew.err).code : 0;
}

/* The newest event of each run there is; runs are few, and segments of a run lie side by side, but for a start's first.
 */
static bool is_newest_of_run(const struct catalog *c, size_t i)
{
    const struct catalog_segment *s = &c->segments[i];
    if (i + 1 < c->n_segments && s[1].run == s->run && s[1].to >= s->to) {
        return false;
    }
    for (size_t k = i + 1; k < c->n_segments && s->node == c->segments[k].node; k++) {
        if (c->segments[k].run == s->run && c->segments[k].to > s->to) {
            return false;
        }
    }
    return true;
}

int archive_compare(struct archive *a, const struct catalog *c, struct err *err)
{
    for (size_t i = 0; i < c->n_segments; i++) {
        const struct catalog_segment *s = &c->segments[i];
        bool rolled_back = false;
        if (s->node == a->self.node && is_newest_of_run(c, i) &&
            a->store->node->knows(a->store, s->node, s->run, s->to, &rolled_back) != 1 && rolled_back) {
            return renew(a, s->run, s->to, err);
        }
    }
    return 1;
}

static int read_end(struct archive *a, const struct catalog_round *r, struct round_end *end, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    struct object_head head;
    enum object_record kind;
    struct slice text;
    size_t at = 0;
    catalog_end_name(r->node, r->round, name);
    buf_clear(&a->page);
    buf_clear(&a->records);
    int rc = a->depot->ops->get(a->depot, name, 0, &a->page, err);
    rc = rc < 0 ? rc : object_open(name, buf_slice(&a->page), a->depot->keys, &head, &a->records, err);
    rc = rc < 0 ? rc : object_next(buf_slice(&a->records), &at, &kind, &text, err);
    if (rc == 1) {
        rc = kind == RECORD_TEXT && head.kind == OBJECT_END && head.shard == r->shards
                 ? round_end_read(name, text, end, err)
                 : err_set(err, ERR_CORRUPT, "%s is not the end of its round", name);
    }
    return rc;
}

/* The newest round from which the cursor is reached; what is damaged is none. */
static void find_base(struct archive *a, const struct catalog *c)
{
    a->base_ms = 0;
    a->base_from = a->base_to = a->base_bytes = a->since_bytes = 0;
    a->last_round = c->n_rounds > 0 ? c->rounds[c->n_rounds - 1].round : 0;
    for (size_t i = c->n_rounds; i > 0 && a->base_ms == 0; i--) {
        const struct catalog_round *r = &c->rounds[i - 1];
        struct round_end end = {0};
        struct err err = {0};
        uint64_t reach = r->ended && r->shards > 0 ? catalog_reach(c, r->node, r->from) : 0;
        if (reach < a->cursor || reach < r->to || reach == 0 || r->from + 1 < a->key_from) {
            continue;
        }
        if (read_end(a, r, &end, &err) < 0) {
            log_error("a round of the archive can't be used", "error=%s", log_quote_str(err.text));
        } else {
            a->base_ms = end.ended_ms;
            a->base_from = r->from;
            a->base_to = r->to;
            a->base_bytes = r->bytes;
        }
        round_end_free(&end);
    }
    for (size_t i = 0; i < c->n_segments; i++) {
        a->since_bytes += c->segments[i].to > a->base_from ? c->segments[i].bytes : 0;
    }
}

/* A restore has one key: what was written with another one needs a round of its own. */
static int look_at_key(struct archive *a, const struct catalog *c, struct err *err)
{
    uint64_t last = a->cursor;
    a->key_from = marked(a, ARCHIVE_KEY_FROM);
    if (marked(a, ARCHIVE_KEY) == a->keys.now.id) {
        return 0;
    }
    for (size_t i = 0; i < c->n_segments; i++) {
        last = c->segments[i].to > last ? c->segments[i].to : last;
    }
    if (c->n_segments + c->n_rounds > 0) {
        log_info("the archive is written with another key from now on: all users are brought in again", "encrypted=%d",
                 a->keys.now.id != CIPHER_PLAIN);
    }
    a->key_from = last + 1;
    int rc = archive_mark(a, ARCHIVE_KEY_FROM, a->key_from, err);
    return rc < 0 ? rc : archive_mark(a, ARCHIVE_KEY, a->keys.now.id, err);
}

static bool stops(void *arg)
{
    return task_stops(&((struct archive *)arg)->task);
}

int archive_begin(struct archive *a, struct err *err)
{
    struct catalog c = {0};
    char folder[DEPOT_NAME_MAX];
    struct feed_state queue;
    feed_state_of(a->store, FEED_ARCHIVE, &queue);
    bool lost = queue.name[0] != '\0' && queue.place == FEED_LOST; /* and shown as such, as long as the depot is away */
    int rc = lost ? 0 : enlist(a, err); /* what is recorded is kept, whether or not the depot is reached */
    if (rc < 0) {
        return rc;
    }
    a->store->node->get(a->store, &a->self);
    uint64_t place = hash_id(0, slice_str(a->cfg->archive_url));
    bool known = marked(a, ARCHIVE_PLACE) == place; /* then a folder that is missing is one that is not mounted */
    const struct depot_order order = {a->cfg->archive_url, a->cfg, &a->keys, true, !known, stops, a};
    if (a->depot == NULL && (rc = depot_open(&order, &a->depot, err)) < 0) {
        return rc;
    }
    if (!known && (rc = archive_mark(a, ARCHIVE_PLACE, place, err)) < 0) {
        return rc;
    }
    heartbeat_excuse(&a->task.heartbeat);
    snprintf(folder, sizeof folder, "%016" PRIx64 "/", a->self.node);
    a->depot->ops->tidy(a->depot, folder);
    rc = catalog_read(a->depot, a->self.node, &c, err);
    heartbeat_now(&a->task.heartbeat);
    rc = rc < 0 ? rc : archive_compare(a, &c, err);
    if (rc == 0) { /* another node: it has nothing there */
        a->store->node->get(a->store, &a->self);
        catalog_free(&c);
    }
    if (rc == 0 || (rc == 1 && lost)) {
        rc = enlist(a, err);
    }
    rc = rc < 0 ? rc : look_at_key(a, &c, err);
    if (rc >= 0) {
        find_base(a, &c);
        a->lacks_to = marked(a, ARCHIVE_LACKS);
        a->purge_to = marked(a, ARCHIVE_PURGE);
        rc = archive_resume(a, &c, err);
    }
    if (rc >= 0) {
        log_info("the archive begins",
                 "url=%s node=%016" PRIx64 " cursor=%" PRIu64 " round=%" PRIu32 " restorable=%d encrypted=%d",
                 log_quote_str(a->cfg->archive_url), a->self.node, a->cursor, a->last_round, a->base_ms != 0,
                 a->keys.now.id != CIPHER_PLAIN);
        a->begun = true;
        a->tick_us = clock_mono_us();
        a->swept_ms = clock_mono_ms();
    }
    catalog_free(&c);
    return rc < 0 ? rc : 0;
}
