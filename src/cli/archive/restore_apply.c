/* What the archive has, into the store, in this order: the parts of the round, then events from its FROM on. How far it
 * is stands in the folder, as positions: those of events are committed with them. What is done twice changes nothing,
 * since of each item the last word counts, and what comes behind it is done again, too. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cli/archive/restore_impl.h"
#include "cli/lib/output.h"
#include "cli/lib/store_wait.h"
#include "dedup/pool.h"
#include "replica/clone_mark.h"
#include "replica/event.h"
#include "store/positions.h"

enum { IMPORT_USERS = 512, BATCH_BYTES = 4 * 1024 * 1024, POSITIONS_MAX = 64, TOMBSTONES_MAX = 1000 };

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for what is restored");
}

/* --- users --- */

struct group {
    struct slice list[IMPORT_USERS];
    uint8_t verdicts[IMPORT_USERS];
    size_t n;
};

static int import(struct restoring *r, struct group *g, struct err *err)
{
    int rc = g->n > 0 ? store_wait_import(r->store, g->list, g->n, g->verdicts, err) : 0;
    for (size_t i = 0; i < g->n && rc == 0; i++) {
        if (g->verdicts[i] == IMPORT_CROWDED) {
            rc = err_set(err, ERR_CORRUPT, "a user can't be restored: a month has too many parts");
        }
    }
    r->users += g->n;
    g->n = 0;
    return rc;
}

static int add_user(struct restoring *r, struct group *g, struct slice snapshot, struct err *err)
{
    if (snapshot.len < 9) {
        return err_set(err, ERR_CORRUPT, "a user of the archive is cut off");
    }
    if (restore_is_gone(r, (int64_t)object_number(snapshot.data + 1))) {
        r->kept_out++;
        return 0;
    }
    g->list[g->n++] = snapshot;
    return g->n == IMPORT_USERS ? import(r, g, err) : 0;
}

/* --- the rest of a part --- */

static int adopt(struct restoring *r, struct slice rows, struct err *err)
{
    struct tombstone list[TOMBSTONES_MAX];
    int rc = 0;
    if (rows.len % 24 != 0) {
        return err_set(err, ERR_CORRUPT, "tombstones of the archive are cut off");
    }
    for (size_t at = 0; at < rows.len && rc == 0;) {
        size_t n = 0;
        for (; n < TOMBSTONES_MAX && at < rows.len; n++, at += 24) {
            list[n] = (struct tombstone){.key = (int64_t)object_number(rows.data + at),
                                         .item = object_number(rows.data + at + 8),
                                         .at_ms = (int64_t)object_number(rows.data + at + 16)};
        }
        rc = store_wait_adopt(r->store, list, n, err);
        r->tombstones += n;
    }
    return rc;
}

static int put_position(struct restoring *r, struct slice record, struct err *err)
{
    if (record.len < 9) {
        return err_set(err, ERR_CORRUPT, "a position of the archive is cut off");
    }
    const struct store_position p = {slice_of(record.data + 8, record.len - 8), (int64_t)object_number(record.data)};
    if (clone_is_own(p.source)) {
        return 0;
    }
    r->positions++;
    return store_wait_positions(r->store, &p, 1, err);
}

static int put_pool(struct restoring *r, struct slice record, struct err *err)
{
    const char *at = record.data;
    size_t name = record.len >= 34 ? (uint8_t)at[33] : 0;
    if (name == 0 || record.len < 34 + name) {
        return err_set(err, ERR_CORRUPT, "a pool of the archive is cut off");
    }
    struct store_pool_change change = {.kind = STORE_POOL_DROP, .pool = {.name = slice_of(at + 34, name)}};
    if (at[8] == 1) {
        change.kind = STORE_POOL_SET;
        change.pool.items = slice_of(at + 34 + name, record.len - 34 - name);
        change.pool.version = object_number(at + 9);
        change.pool.changed_ms = (int64_t)object_number(at + 17);
        change.pool.n = object_number(at + 25);
        const char *problem = store_pool_problem(&change.pool);
        if (problem != NULL) {
            return err_set(err, ERR_CORRUPT, "a pool of the archive is damaged: %s", problem);
        }
    }
    r->pools++;
    return store_wait_pool(r->store, &change, err);
}

static int apply_part(struct restoring *r, struct err *err)
{
    static struct group g;
    enum object_record kind;
    struct slice record;
    size_t at = 0;
    int rc = 0;
    g.n = 0;
    while (rc == 0 && (rc = object_next(buf_slice(&r->records), &at, &kind, &record, err)) == 1) {
        rc = kind == RECORD_USER         ? add_user(r, &g, record, err)
             : kind == RECORD_TOMBSTONES ? adopt(r, record, err)
             : kind == RECORD_POSITION   ? put_position(r, record, err)
             : kind == RECORD_POOL       ? put_pool(r, record, err)
                                         : err_set(err, ERR_CORRUPT, "a part of a round holds something else");
    }
    return rc < 0 ? rc : import(r, &g, err);
}

int restore_parts(struct restoring *r, struct err *err)
{
    char name[DEPOT_NAME_MAX], users[OUTPUT_TEXT];
    const struct round_shard *told = (const struct round_shard *)(const void *)r->moment.end.shards.data;
    size_t n = r->moment.end.shards.len / sizeof *told;
    for (size_t i = (size_t)r->parts; i < n; i++) {
        const struct catalog_shard shard = {r->moment.node, r->moment.round.round, told[i].shard, told[i].from,
                                            told[i].to,     told[i].bytes};
        struct object_head head;
        int rc = moment_read_object(r->depot, catalog_shard_name(&shard, name), &r->bytes, &head, &r->records, err);
        rc = rc < 0 ? rc : catalog_check_shard(&shard, &head, err);
        if (rc == 0 && object_checksum(buf_slice(&r->bytes)) != told[i].checksum) {
            rc = err_set(err, ERR_CORRUPT, "%s is not the part that the round's end names", name);
        }
        rc = rc < 0 ? rc : apply_part(r, err);
        if (rc < 0) {
            return rc;
        }
        const struct store_position done = {slice_str(RESTORE_PARTS), (int64_t)i + 1};
        if ((rc = store_wait_positions(r->store, &done, 1, err)) < 0) {
            return rc;
        }
        r->read_bytes += r->bytes.len;
        progress_show(&r->progress, i + 1, n, "%s users", count_text(r->users, users));
    }
    return 0;
}

/* --- events --- */

struct replay {
    struct restoring *r;
    struct store_position positions[POSITIONS_MAX + 1];
    size_t n_positions;
    uint64_t to;       /* what was read goes up to here */
    struct buf beside; /* struct beside each: what follows the events, by seq */
};

struct beside {
    uint64_t seq;
    enum object_record kind;
    struct slice record;
};

static int hand_in(struct replay *p, struct err *err)
{
    struct restoring *r = p->r;
    if (p->to <= (uint64_t)r->events_to) {
        return 0;
    }
    p->positions[p->n_positions] = (struct store_position){slice_str(RESTORE_EVENTS), (int64_t)p->to};
    r->batch.positions = p->positions;
    r->batch.n_positions = p->n_positions + 1;
    int rc = store_wait_record(r->store, &r->batch, err);
    if (rc == 0) {
        r->events_to = (int64_t)p->to;
    }
    buf_clear(&r->batch.bytes);
    r->batch.rows = r->batch.events = 0;
    p->n_positions = 0;
    return rc;
}

static int add_play(struct replay *p, const struct feed_event *e, struct err *err)
{
    struct restoring *r = p->r;
    uint64_t seed = r->dedup.seed, hash = hash_id(seed, e->item);
    r->plays++;
    return store_batch_add_groups(&r->batch, (enum store_kind)e->kind, e->at_ms, STORE_STAMPED,
                                  hash_user_key(seed, e->user), e->user, &e->item, &hash, &e->group, 1) < 0
               ? out_of_memory(err)
               : 0;
}

static int forget(struct replay *p, const struct feed_event *e, struct err *err)
{
    size_t n = e->kind == FEED_UNSEE;
    uint64_t hash = e->kind == FEED_UNSEE_HASH ? feed_item_hash(e->item) : 0;
    void *memory = malloc(dedup_forget_size(e->user, &e->item, n));
    if (memory == NULL) {
        return out_of_memory(err);
    }
    struct store_forget forget = {0};
    dedup_forget(&p->r->dedup, &forget, memory, e->user, &e->item, n);
    if (e->kind == FEED_UNSEE_HASH) {
        forget.items = NULL;
        forget.hashes = &hash;
        forget.n_items = 1;
    }
    forget.stated_ms = e->at_ms;
    int rc = store_wait_forget(p->r->store, &forget, err);
    free(memory);
    p->r->forgets++;
    return rc;
}

static const struct beside *find_beside(const struct replay *p, uint64_t seq)
{
    const struct beside *list = (const struct beside *)(const void *)p->beside.data;
    for (size_t low = 0, high = p->beside.len / sizeof *list; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (list[middle].seq == seq) {
            return &list[middle];
        }
        if (list[middle].seq < seq) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* None: a round behind the moment has what is missing here, and the moment was found all the same. */
static int apply_user(struct replay *p, const struct feed_event *e, struct err *err)
{
    const struct beside *b = find_beside(p, e->seq);
    uint8_t verdict;
    if (b == NULL || b->kind != RECORD_USER || b->record.len <= 17) {
        return 0;
    }
    const struct slice snapshot = slice_of(b->record.data + 17, b->record.len - 17);
    p->r->users++;
    int rc = store_wait_import(p->r->store, &snapshot, 1, &verdict, err);
    return rc == 0 && verdict == IMPORT_CROWDED
               ? err_set(err, ERR_CORRUPT, "a user can't be restored: a month has too many parts")
               : rc;
}

static int apply_pool(struct replay *p, const struct feed_event *e, struct err *err)
{
    const struct beside *b = find_beside(p, e->seq);
    return b != NULL && b->kind == RECORD_POOL ? put_pool(p->r, b->record, err) : 0;
}

static int apply(struct replay *p, const struct feed_event *e, struct err *err)
{
    struct restoring *r = p->r;
    bool names_user = e->kind != FEED_OFFSET && e->kind != FEED_POOL;
    int rc = 0;
    if (names_user && restore_is_gone(r, hash_user_key(r->dedup.seed, e->user))) {
        r->kept_out += e->kind == FEED_PLAY || e->kind == FEED_DELIVERY;
        p->to = e->seq;
        return 0;
    }
    switch (e->kind) {
    case FEED_PLAY:
    case FEED_DELIVERY:
        rc = add_play(p, e, err);
        break;
    case FEED_OFFSET:
        if (!clone_is_own(e->user)) {
            p->positions[p->n_positions++] = (struct store_position){e->user, e->at_ms};
        }
        break;
    case FEED_FORGET:
    case FEED_UNSEE:
    case FEED_UNSEE_HASH:
        rc = (rc = hand_in(p, err)) < 0 ? rc : forget(p, e, err);
        break;
    case FEED_USER:
        rc = (rc = hand_in(p, err)) < 0 ? rc : apply_user(p, e, err);
        break;
    case FEED_POOL:
        rc = (rc = hand_in(p, err)) < 0 ? rc : apply_pool(p, e, err);
        break;
    default:
        return err_set(err, ERR_VERSION, "an event of kind %d: use a newer version of unseen", e->kind);
    }
    p->to = rc == 0 ? e->seq : p->to;
    bool full = r->batch.bytes.len >= BATCH_BYTES || p->n_positions == POSITIONS_MAX;
    return rc == 0 && full ? hand_in(p, err) : rc;
}

static int apply_run(struct replay *p, struct slice run, struct err *err)
{
    struct event_state state = {0};
    struct feed_event e;
    size_t at = 0;
    int rc;
    while ((rc = event_read(&state, run, &at, &e, err)) == 1 && e.seq <= p->r->moment.to) {
        if (e.seq > (uint64_t)p->r->events_to && (rc = apply(p, &e, err)) < 0) {
            return rc;
        }
    }
    return rc < 0 ? rc : 0;
}

static int by_seq(const void *a, const void *b)
{
    const struct beside *x = a, *y = b;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

static int apply_segment(struct replay *p, struct err *err)
{
    struct slice run = slice_of("", 0), record, all = buf_slice(&p->r->records);
    enum object_record kind;
    size_t at = 0;
    int rc = 0;
    buf_clear(&p->beside);
    while (rc == 0 && (rc = object_next(all, &at, &kind, &record, err)) == 1) {
        rc = 0;
        if (kind == RECORD_EVENTS) {
            run = record;
        } else if ((kind == RECORD_USER && record.len >= 17) || (kind == RECORD_POOL && record.len >= 34)) {
            const struct beside b = {object_number(record.data), kind, record};
            rc = buf_add(&p->beside, &b, sizeof b) < 0 ? out_of_memory(err) : 0;
        } else {
            rc = err_set(err, ERR_CORRUPT, "a segment holds something else");
        }
    }
    if (rc == 0 && p->beside.len > sizeof(struct beside)) {
        qsort(p->beside.data, p->beside.len / sizeof(struct beside), sizeof(struct beside), by_seq);
    }
    rc = rc < 0 ? rc : apply_run(p, run, err);
    return rc < 0 ? rc : hand_in(p, err);
}

int restore_events(struct restoring *r, struct err *err)
{
    static struct replay p;
    struct moment *m = &r->moment;
    char name[DEPOT_NAME_MAX], plays[OUTPUT_TEXT];
    int rc = 0;
    p = (struct replay){.r = r};
    r->events_to = r->events_to > (int64_t)m->round.from ? r->events_to : (int64_t)m->round.from;
    p.to = (uint64_t)r->events_to;
    for (size_t i = 0; i < m->n_segments && rc == 0 && m->segments[i].is.from < m->to; i++) {
        const struct catalog_segment *s = &m->segments[i].is;
        struct object_head head;
        if (s->to <= (uint64_t)r->events_to) {
            continue;
        }
        rc = moment_read_object(r->depot, catalog_segment_name(s, name), &r->bytes, &head, &r->records, err);
        rc = rc < 0 ? rc : catalog_check_segment(s, &head, err);
        rc = rc < 0 ? rc : apply_segment(&p, err);
        r->read_bytes += r->bytes.len;
        progress_show(&r->progress, i + 1, m->n_segments, "%s plays", count_text(r->plays, plays));
    }
    buf_free(&p.beside);
    return rc;
}
