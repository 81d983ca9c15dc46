#include "archive/moment.h"

#include <inttypes.h>
#include <string.h>

#include "base/calendar.h"
#include "replica/event.h"

enum { NODES_MAX = 256 };

int moment_read_head(struct depot *d, const char *name, struct object_head *head, struct err *err)
{
    struct buf bytes = {0};
    int rc = d->ops->get(d, name, OBJECT_HEAD_BYTES, &bytes, err);
    rc = rc < 0 ? rc : object_look(name, buf_slice(&bytes), head, err);
    buf_free(&bytes);
    return rc;
}

int moment_read_object(struct depot *d, const char *name, struct buf *bytes, struct object_head *head,
                       struct buf *records, struct err *err)
{
    buf_clear(bytes);
    buf_clear(records);
    int rc = d->ops->get(d, name, 0, bytes, err);
    return rc < 0 ? rc : object_open(name, buf_slice(bytes), d->keys, head, records, err);
}

/* A bucket whose listing came late when a round went on may hold another part of a number: it is none of the round. */
static int check_shards(const struct catalog *c, const struct catalog_round *r, const char *name,
                        const struct round_end *end, struct err *err)
{
    const struct round_shard *list = (const struct round_shard *)(const void *)end->shards.data;
    size_t n = end->shards.len / sizeof *list, n_there, at = 0;
    const struct catalog_shard *there = catalog_shards(c, r->node, r->round, &n_there);
    bool same = n > 0;
    for (size_t i = 0; i < n && same; i++, at++) {
        while (at < n_there && (there[at].shard != list[i].shard || there[at].to != list[i].to)) {
            at++;
        }
        same = at < n_there && there[at].from == list[i].from && there[at].bytes == list[i].bytes;
    }
    return same ? 0 : err_set(err, ERR_CORRUPT, "%s names other parts than there are: some are missing", name);
}

int moment_read_end(struct depot *d, const struct catalog *c, const struct catalog_round *r, struct round_end *end,
                    struct err *err)
{
    struct buf bytes = {0}, records = {0};
    struct object_head head;
    enum object_record kind = RECORD_KINDS;
    struct slice text = slice_of("", 0);
    size_t at = 0;
    char name[DEPOT_NAME_MAX];
    catalog_end_name(r->node, r->round, name);
    int rc = moment_read_object(d, name, &bytes, &head, &records, err);
    rc = rc < 0 ? rc : object_next(buf_slice(&records), &at, &kind, &text, err);
    if (rc >= 0) {
        rc = head.kind == OBJECT_END && head.node == r->node && head.round == r->round && kind == RECORD_TEXT
                 ? round_end_read(name, text, end, err)
                 : err_set(err, ERR_CORRUPT, "%s holds another object", name);
    }
    rc = rc < 0 ? rc : check_shards(c, r, name, end, err);
    buf_free(&bytes);
    buf_free(&records);
    return rc;
}

/* --- a round's chain --- */

static int read_chain(struct depot *d, const struct catalog *c, struct moment *m, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    const struct catalog_segment *s;
    size_t i = 0;
    const struct cipher_key *key;
    buf_clear(&m->list);
    m->refused = (struct err){0};
    m->reach = m->round.from;
    m->beside = catalog_beside(c, m->node) != NULL;
    while ((s = catalog_next(c, m->node, m->reach, &i)) != NULL) {
        struct moment_segment one = {.is = *s};
        int rc = moment_read_head(d, catalog_segment_name(s, name), &one.head, err);
        rc = rc < 0 ? rc : catalog_check_segment(s, &one.head, err);
        if (rc == 0 && cipher_find(d->keys, name, one.head.key, &key, &m->refused) < 0) {
            m->refused_ms = one.head.n > 0 ? one.head.first_ms : INT64_MIN;
            break;
        }
        if (rc < 0 || buf_add(&m->list, &one, sizeof one) < 0) {
            return rc < 0 ? rc : err_set(err, ERR_NOMEM, "out of memory for the list of segments");
        }
        m->reach = s->to;
    }
    m->segments = (const struct moment_segment *)(const void *)m->list.data;
    m->n_segments = m->list.len / sizeof *m->segments;
    return 0;
}

/* The last event of the run that is not later; `max_ms` is the running maximum so far. */
static int last_in(struct slice run, int64_t at_ms, int64_t *max_ms, struct moment *m, struct err *err)
{
    struct event_state state = {0};
    struct feed_event e;
    size_t at = 0;
    int rc;
    while ((rc = event_read(&state, run, &at, &e, err)) == 1) {
        if (e.seq > m->to) {
            *max_ms = e.recorded_ms > *max_ms ? e.recorded_ms : *max_ms;
            if (*max_ms > at_ms) {
                return 0;
            }
            m->to = e.seq;
            m->to_ms = *max_ms;
        }
    }
    return rc;
}

static int look_into(struct depot *d, const struct moment_segment *s, int64_t at_ms, int64_t *max_ms, struct moment *m,
                     struct err *err)
{
    struct buf bytes = {0}, records = {0};
    struct object_head head;
    enum object_record kind;
    struct slice record;
    size_t at = 0;
    char name[DEPOT_NAME_MAX];
    int rc = moment_read_object(d, catalog_segment_name(&s->is, name), &bytes, &head, &records, err);
    while (rc == 0 && (rc = object_next(buf_slice(&records), &at, &kind, &record, err)) == 1) {
        rc = kind == RECORD_EVENTS ? last_in(record, at_ms, max_ms, m, err) : 0;
    }
    buf_free(&bytes);
    buf_free(&records);
    return rc;
}

/* Up to where the chain goes by then. */
static int find_to(struct depot *d, int64_t at_ms, struct moment *m, struct err *err)
{
    int64_t max_ms = INT64_MIN;
    m->to = m->round.from;
    m->to_ms = INT64_MIN;
    for (size_t i = 0; i < m->n_segments; i++) {
        const struct object_head *h = &m->segments[i].head;
        int64_t after = h->n > 0 && h->last_ms > max_ms ? h->last_ms : max_ms;
        if (after > at_ms) {
            return look_into(d, &m->segments[i], at_ms, &max_ms, m, err);
        }
        max_ms = after;
        m->to = h->to;
        m->to_ms = max_ms;
    }
    return 0;
}

static void count_lacking(struct moment *m)
{
    m->lacks = 0;
    for (size_t i = 0; i < m->n_segments && m->segments[i].head.from < m->to; i++) {
        m->lacks += (m->segments[i].head.flags & OBJECT_LACKS_USERS) != 0;
    }
}

/* Whether what follows an event up to `to` was read when more had happened. */
static int is_in_hole(struct depot *d, const struct moment *m, bool *in, struct err *err)
{
    *in = false;
    for (size_t i = 0; i < m->n_segments && m->segments[i].head.from < m->to && !*in; i++) {
        struct buf bytes = {0}, records = {0};
        struct object_head head;
        enum object_record kind;
        struct slice record;
        size_t at = 0;
        char name[DEPOT_NAME_MAX];
        int rc = 0;
        if (m->segments[i].head.covers > m->to && m->segments[i].head.covers > m->segments[i].head.to) {
            rc = moment_read_object(d, catalog_segment_name(&m->segments[i].is, name), &bytes, &head, &records, err);
        }
        while (rc == 0 && records.len > 0 && (rc = object_next(buf_slice(&records), &at, &kind, &record, err)) == 1) {
            *in = *in || (kind == RECORD_USER && record.len >= 16 && object_number(record.data) <= m->to &&
                          object_number(record.data + 8) > m->to);
            rc = 0;
        }
        buf_free(&bytes);
        buf_free(&records);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Something of the node is there behind the chain. */
static bool has_gap(const struct catalog *c, const struct moment *m)
{
    for (size_t i = 0; i < c->n_segments; i++) {
        if (c->segments[i].node == m->node && c->segments[i].from > m->reach) {
            return true;
        }
    }
    return false;
}

/* 1: it is this round's; 0: it is not, and why; of another key: ERR_KEY. */
static int try_round(struct depot *d, const struct catalog *c, int64_t at_ms, struct moment *m, struct err *err)
{
    char when[TIME_TEXT];
    bool in_hole;
    int rc = moment_read_end(d, c, &m->round, &m->end, err);
    if (rc < 0 || (rc = read_chain(d, c, m, err)) < 0 || (rc = find_to(d, at_ms, m, err)) < 0) {
        return rc == ERR_CORRUPT || rc == ERR_NOTFOUND ? 0 : rc;
    }
    m->gap = has_gap(c, m);
    bool earlier = m->to_ms == INT64_MIN && at_ms < m->end.ended_ms; /* no event of the chain is as old */
    if (m->to < m->round.to || earlier) {
        err_set(err, ERR_NOTFOUND, "round %" PRIu32 " ended later, or segments behind it are missing", m->round.round);
        return 0;
    }
    if (m->refused.code < 0 && m->to == m->reach && at_ms >= m->refused_ms) {
        return (*err = m->refused).code;
    }
    if (at_ms != MOMENT_NEWEST && m->gap && m->refused.code == 0 && m->to == m->reach) {
        err_set(err, ERR_NOTFOUND, "what was recorded after %s is missing, up to a later round",
                time_text(m->to_ms, when));
        return 0;
    }
    count_lacking(m);
    if (at_ms == MOMENT_NEWEST) {
        m->to_ms = m->to_ms == INT64_MIN ? m->end.ended_ms : m->to_ms;
        return 1;
    }
    if (m->lacks > 0) {
        err_set(err, ERR_NOTFOUND, "users were imported then, who are in a later round");
        return 0;
    }
    if ((rc = is_in_hole(d, m, &in_hole, err)) < 0) {
        return rc;
    }
    if (in_hole) {
        err_set(err, ERR_NOTFOUND, "users were brought in at that moment: name one some seconds earlier or later");
        return 0;
    }
    m->to_ms = m->to_ms == INT64_MIN ? m->end.ended_ms : m->to_ms;
    return 1;
}

/* --- nodes --- */

size_t moment_nodes(const struct catalog *c, uint64_t *nodes, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_rounds; i++) {
        if (c->rounds[i].ended && (n == 0 || nodes[n - 1] != c->rounds[i].node) && n < max) {
            nodes[n++] = c->rounds[i].node;
        }
    }
    return n;
}

/* When the newest that is there of a node was recorded, or made. */
static int newest_of(struct depot *d, const struct catalog *c, uint64_t node, int64_t *ms, uint32_t *seed,
                     struct err *err)
{
    char name[DEPOT_NAME_MAX];
    struct object_head head;
    *ms = INT64_MIN;
    int rc = 0;
    for (size_t i = 0; i < c->n_segments && rc == 0; i++) {
        const struct catalog_segment *s = &c->segments[i];
        if (s->node == node && (i + 1 == c->n_segments || s[1].node != node)) {
            rc = moment_read_head(d, catalog_segment_name(s, name), &head, err);
            *ms = rc == 0 && head.last_ms > *ms ? head.last_ms : *ms;
        }
    }
    for (size_t i = 0; i < c->n_rounds && rc == 0; i++) {
        const struct catalog_round *r = &c->rounds[i];
        if (r->node == node && r->ended) {
            rc = moment_read_head(d, catalog_end_name(node, r->round, name), &head, err);
            *ms = rc == 0 && head.last_ms > *ms ? head.last_ms : *ms;
            *seed = head.seed;
        }
    }
    return rc;
}

static int choose_node(struct depot *d, const struct catalog *c, uint64_t *node, struct err *err)
{
    uint64_t nodes[NODES_MAX];
    size_t n = moment_nodes(c, nodes, NODES_MAX);
    int64_t newest = INT64_MIN;
    uint32_t first_seed = 0;
    if (n == 0) {
        return err_set(err, ERR_NOTFOUND, "nothing there can be restored: no round has ended yet");
    }
    for (size_t i = 0; i < n; i++) {
        int64_t ms;
        uint32_t seed = 0;
        int rc = newest_of(d, c, nodes[i], &ms, &seed, err);
        if (rc < 0) {
            return rc;
        }
        if (i > 0 && seed != first_seed) {
            return err_set(err, ERR_INVALID,
                           "nodes of several histories are there, such as %016" PRIx64 " and %016" PRIx64
                           ": name one with --node (unseen archive --list shows them)",
                           nodes[0], nodes[i]);
        }
        first_seed = seed;
        if (ms >= newest) {
            newest = ms;
            *node = nodes[i];
        }
    }
    return 0;
}

int moment_find(struct depot *d, const struct catalog *c, uint64_t node, int64_t at_ms, struct moment *m,
                struct err *err)
{
    char when[TIME_TEXT];
    struct err why = {0}, refused = {0};
    int rc = node == 0 ? choose_node(d, c, &node, err) : 0;
    if (rc < 0) {
        return rc;
    }
    m->node = node;
    err_set(&why, ERR_NOTFOUND, "no round of it has ended");
    for (size_t i = c->n_rounds; i > 0; i--) {
        const struct catalog_round *r = &c->rounds[i - 1];
        if (r->node != node || !r->ended) {
            continue;
        }
        round_end_free(&m->end);
        m->end = (struct round_end){0};
        m->round = *r;
        if ((rc = try_round(d, c, at_ms, m, &why)) == 1) {
            return 0;
        }
        if (rc == ERR_KEY && at_ms != MOMENT_NEWEST) { /* an earlier one may be of this key */
            refused = refused.code < 0 ? refused : why;
        } else if (rc < 0) {
            return (*err = why).code;
        }
    }
    if (refused.code < 0) {
        return (*err = refused).code;
    }
    return at_ms == MOMENT_NEWEST
               ? err_set(err, ERR_NOTFOUND, "node %016" PRIx64 " can't be restored: %s", node, why.text)
               : err_set(err, ERR_NOTFOUND, "node %016" PRIx64 " can't be restored as of %s: %s", node,
                         time_text(at_ms, when), why.text);
}

void moment_free(struct moment *m)
{
    round_end_free(&m->end);
    buf_free(&m->list);
    *m = (struct moment){0};
}

/* --- all of them --- */

static int stretch_of(struct depot *d, const struct catalog *c, struct moment *m, struct moment_stretch *s,
                      struct err *err)
{
    int rc = moment_read_end(d, c, &m->round, &m->end, err);
    if (rc < 0 || (rc = read_chain(d, c, m, err)) < 0 || (rc = find_to(d, MOMENT_NEWEST, m, err)) < 0) {
        return rc;
    }
    *s = (struct moment_stretch){.node = m->node,
                                 .round = m->round.round,
                                 .first = m->round.to,
                                 .last = m->reach,
                                 .first_ms = m->end.ended_ms,
                                 .last_ms = m->to_ms > m->end.ended_ms ? m->to_ms : m->end.ended_ms,
                                 .bytes = m->round.bytes,
                                 .segments = m->n_segments};
    count_lacking(m);
    s->lacks = m->lacks > 0;
    for (size_t i = 0; i < m->n_segments; i++) {
        s->bytes += m->segments[i].is.bytes;
    }
    return m->reach >= m->round.to ? 1 : 0;
}

int moment_stretches(struct depot *d, const struct catalog *c, int (*each)(void *arg, const struct moment_stretch *s),
                     void *arg, struct err *err)
{
    struct err refused = {0};
    int rc = 0;
    for (size_t i = 0; i < c->n_rounds && rc == 0; i++) {
        struct moment m = {.node = c->rounds[i].node, .round = c->rounds[i]};
        struct moment_stretch s;
        rc = c->rounds[i].ended ? stretch_of(d, c, &m, &s, err) : 0;
        if (rc == ERR_KEY) {
            refused = refused.code < 0 ? refused : *err;
        }
        rc = rc == 1 ? each(arg, &s) : rc == ERR_CORRUPT || rc == ERR_KEY ? 0 : rc;
        moment_free(&m);
    }
    return rc == 0 && refused.code < 0 ? (*err = refused).code : rc;
}
