/* Objects that no moment of the last `keep` needs go: all that is older than the newest round which had ended before
 * those began. So do parts of rounds that never ended, and what other nodes left, once it is as old. */
#include "archive/archive_impl.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"

struct sweep {
    struct archive *a;
    const struct catalog *c;
    int64_t before_ms; /* moments from here on are kept */
    uint64_t removed;
};

static int remove_name(struct sweep *s, const char *name, struct err *err)
{
    s->removed++;
    heartbeat_excuse(&s->a->task.heartbeat);
    int rc = s->a->depot->ops->remove(s->a->depot, name, err);
    heartbeat_now(&s->a->task.heartbeat);
    return rc;
}

/* The end first: what is left of it is no round then. */
static int remove_round(struct sweep *s, const struct catalog_round *r, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    size_t n;
    int rc = r->ended ? remove_name(s, catalog_end_name(r->node, r->round, name), err) : 0;
    const struct catalog_shard *shards = catalog_shards(s->c, r->node, r->round, &n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = remove_name(s, catalog_shard_name(&shards[i], name), err);
    }
    return rc;
}

static int remove_segments(struct sweep *s, uint64_t node, uint64_t up_to, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    int rc = 0;
    for (size_t i = 0; i < s->c->n_segments && rc == 0; i++) {
        if (s->c->segments[i].node == node && s->c->segments[i].to <= up_to) {
            rc = remove_name(s, catalog_segment_name(&s->c->segments[i], name), err);
        }
    }
    return rc;
}

/* When the object was made, or the last of its events recorded; 0: it can't be told. */
static int64_t time_of(struct sweep *s, const char *name)
{
    struct archive *a = s->a;
    struct object_head head;
    struct err err;
    buf_clear(&a->page);
    heartbeat_excuse(&a->task.heartbeat);
    int rc = a->depot->ops->get(a->depot, name, OBJECT_HEAD_BYTES, &a->page, &err);
    heartbeat_now(&a->task.heartbeat);
    return rc == 0 && object_look(name, buf_slice(&a->page), &head, &err) == 0 ? head.last_ms : 0;
}

/* The newest round of that node that had ended by then. */
static const struct catalog_round *find_kept(struct sweep *s, uint64_t node)
{
    char name[DEPOT_NAME_MAX];
    for (size_t i = s->c->n_rounds; i > 0; i--) {
        const struct catalog_round *r = &s->c->rounds[i - 1];
        if (r->node == node && r->ended) {
            int64_t ms = time_of(s, catalog_end_name(node, r->round, name));
            if (ms != 0 && ms <= s->before_ms) {
                return r;
            }
        }
    }
    return NULL;
}

static int sweep_own(struct sweep *s, const struct catalog_round *kept, struct err *err)
{
    int rc = remove_segments(s, kept->node, kept->from, err);
    for (size_t i = 0; i < s->c->n_rounds && rc == 0; i++) {
        const struct catalog_round *r = &s->c->rounds[i];
        if (r->node == kept->node && r->round < kept->round) {
            rc = remove_round(s, r, err);
        }
    }
    return rc;
}

/* Parts of rounds that were given up. */
static int sweep_unended(struct sweep *s, uint64_t node, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->c->n_rounds && rc == 0; i++) {
        const struct catalog_round *r = &s->c->rounds[i];
        bool active = s->a->round.phase != ROUND_NONE && r->round == s->a->round.number;
        if (r->node == node && !r->ended && !active) {
            rc = remove_round(s, r, err);
        }
    }
    return rc;
}

/* All of it, once the newest of it is too old. */
static int sweep_other(struct sweep *s, uint64_t node, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    int64_t newest = INT64_MIN;
    for (size_t i = 0; i < s->c->n_segments; i++) {
        const struct catalog_segment *g = &s->c->segments[i];
        if (g->node == node && (i + 1 == s->c->n_segments || g[1].node != node)) {
            int64_t ms = time_of(s, catalog_segment_name(g, name));
            newest = ms > newest ? ms : newest;
            newest = ms == 0 ? INT64_MAX : newest;
        }
    }
    for (size_t i = 0; i < s->c->n_shards; i++) {
        const struct catalog_shard *h = &s->c->shards[i];
        if (h->node == node && (i + 1 == s->c->n_shards || h[1].node != node)) {
            int64_t ms = time_of(s, catalog_shard_name(h, name));
            newest = ms > newest ? ms : newest;
            newest = ms == 0 ? INT64_MAX : newest;
        }
    }
    if (newest == INT64_MIN || newest > s->before_ms) {
        return 0;
    }
    int rc = 0;
    for (size_t i = 0; i < s->c->n_rounds && rc == 0; i++) {
        rc = s->c->rounds[i].node == node ? remove_round(s, &s->c->rounds[i], err) : 0;
    }
    return rc < 0 ? rc : remove_segments(s, node, UINT64_MAX, err);
}

static int sweep(struct sweep *s, bool all_before, struct err *err)
{
    const struct catalog_round *kept = find_kept(s, s->a->self.node);
    int rc = kept != NULL ? sweep_own(s, kept, err) : 0;
    rc = rc < 0 ? rc : sweep_unended(s, s->a->self.node, err);
    if (rc < 0 || kept == NULL || all_before) {
        return rc;
    }
    uint64_t last = s->a->self.node;
    for (size_t i = 0; i < s->c->n_segments + s->c->n_rounds && rc == 0; i++) {
        uint64_t node = i < s->c->n_segments ? s->c->segments[i].node : s->c->rounds[i - s->c->n_segments].node;
        if (node != last && node != s->a->self.node) {
            rc = sweep_other(s, node, err);
        }
        last = node;
    }
    return rc;
}

int archive_sweep(struct archive *a, bool all_before, struct err *err)
{
    struct catalog c = {0};
    struct sweep s = {.a = a, .c = &c};
    struct store_clock clock;
    a->store->ops->clock(a->store, &clock);
    s.before_ms = all_before ? INT64_MAX : clock.believed_ms - config_now(a->cfg)->archive_keep_ms;
    heartbeat_excuse(&a->task.heartbeat);
    int rc = catalog_read(a->depot, all_before ? a->self.node : 0, &c, err);
    heartbeat_now(&a->task.heartbeat);
    rc = rc < 0 ? rc : archive_compare(a, &c, err);
    if (rc == 0) {
        rc = err_set(err, ERR_CLOSED, "another copy of the data folder writes there, too");
    } else if (rc == 1) {
        rc = clock.doubted && !all_before ? 0 : sweep(&s, all_before, err);
    }
    catalog_free(&c);
    if (s.removed > 0) {
        log_info("objects of the archive that no moment needs any more are removed", "objects=%" PRIu64, s.removed);
    }
    pthread_mutex_lock(&a->mutex);
    a->status.removed += s.removed;
    pthread_mutex_unlock(&a->mutex);
    return rc;
}
