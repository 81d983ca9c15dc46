/* Who was forgotten behind the moment that is restored: such users don't come back. That is said by events behind it,
 * of this node and of all others with the same seed, and, where segments are missing, by the tombstones of later
 * rounds. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cli/archive/restore_impl.h"
#include "replica/event.h"

static int add(struct restoring *r, int64_t key, int64_t at_ms, struct err *err)
{
    const struct tombstone t = {.key = key, .item = TOMBSTONE_USER, .at_ms = at_ms};
    return buf_add(&r->gone, &t, sizeof t) < 0 ? err_set(err, ERR_NOMEM, "out of memory for forgotten users") : 0;
}

/* after: events behind that seq; of other nodes, which count otherwise, those that were recorded behind the moment. */
static int read_events(struct restoring *r, struct slice run, bool own, struct err *err)
{
    struct event_state state = {0};
    struct feed_event e;
    size_t at = 0;
    int rc;
    while ((rc = event_read(&state, run, &at, &e, err)) == 1) {
        bool later = own ? e.seq > r->moment.to : e.recorded_ms > r->moment.to_ms;
        if (later && e.kind == FEED_FORGET &&
            (rc = add(r, hash_user_key(r->moment.end.seed, e.user), e.at_ms, err)) < 0) {
            return rc;
        }
    }
    return rc;
}

static int read_tombstones(struct restoring *r, struct slice rows, struct err *err)
{
    int rc = 0;
    for (size_t at = 0; at + 24 <= rows.len && rc == 0; at += 24) {
        int64_t at_ms = (int64_t)object_number(rows.data + at + 16);
        if (object_number(rows.data + at + 8) == TOMBSTONE_USER && at_ms > r->moment.to_ms) {
            rc = add(r, (int64_t)object_number(rows.data + at), at_ms, err);
        }
    }
    return rc;
}

static int read_object(struct restoring *r, const char *name, bool own, struct err *err)
{
    struct object_head head;
    enum object_record kind;
    struct slice record;
    size_t at = 0;
    int rc = moment_read_object(r->depot, name, &r->bytes, &head, &r->records, err);
    if (rc == ERR_KEY) {
        err_prefix(err, "who was forgotten after the moment is not known (--undo-forgets restores all the same)");
    }
    while (rc == 0 && (rc = object_next(buf_slice(&r->records), &at, &kind, &record, err)) == 1) {
        rc = kind == RECORD_EVENTS       ? read_events(r, record, own, err)
             : kind == RECORD_TOMBSTONES ? read_tombstones(r, record, err)
                                         : 0;
    }
    return rc;
}

/* Whether the object may tell of a time behind the moment, by its head alone. */
static int look(struct restoring *r, const char *name, bool own, bool *later, struct err *err)
{
    struct object_head head;
    int rc = moment_read_head(r->depot, name, &head, err);
    if (rc == 0) {
        bool same = head.seed == hash_seed_fingerprint(r->moment.end.seed);
        *later = same && (head.last_ms > r->moment.to_ms || (own && head.to > r->moment.to));
    }
    return rc;
}

static int by_key(const void *a, const void *b)
{
    const struct tombstone *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->at_ms < y->at_ms) - (x->at_ms > y->at_ms);
}

int restore_find_forgets(struct restoring *r, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    const struct catalog *c = &r->catalog;
    int rc = 0;
    for (size_t i = c->n_segments; i > 0 && rc == 0;) {
        const struct catalog_segment *s = &c->segments[i - 1];
        bool own = s->node == r->moment.node, later = own && s->to > r->moment.to;
        if (!own) {
            rc = look(r, catalog_segment_name(s, name), false, &later, err);
        }
        if (rc == 0 && later) {
            rc = read_object(r, catalog_segment_name(s, name), own, err);
        }
        i--;
        while (!own && !later && i > 0 && c->segments[i - 1].node == s->node) {
            i--; /* earlier ones are older */
        }
    }
    for (size_t i = 0; i < c->n_shards && rc == 0; i++) {
        const struct catalog_shard *s = &c->shards[i];
        bool own = s->node == r->moment.node, later = false;
        if (s->shard == 0 && (!own || s->to > r->moment.to)) {
            rc = look(r, catalog_shard_name(s, name), own, &later, err);
        }
        if (rc == 0 && later) {
            rc = read_object(r, catalog_shard_name(s, name), own, err);
        }
    }
    struct tombstone *list = (struct tombstone *)(void *)r->gone.data;
    size_t n = r->gone.len / sizeof *list, kept = 0;
    if (rc < 0 || n == 0) {
        return rc;
    }
    qsort(list, n, sizeof *list, by_key);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || list[kept - 1].key != list[i].key) {
            list[kept++] = list[i];
        }
    }
    r->gone.len = kept * sizeof *list;
    return 0;
}

bool restore_is_gone(const struct restoring *r, int64_t key)
{
    const struct tombstone one = {.key = key, .at_ms = INT64_MAX},
                           *list = (const struct tombstone *)(const void *)r->gone.data;
    size_t low = 0, high = r->gone.len / sizeof *list;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list[middle].key < one.key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < r->gone.len / sizeof *list && list[low].key == key;
}
