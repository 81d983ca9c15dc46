/* Segments: what waits in the feed, in its order. A user of whom more is known than the feed says follows the events as
 * a snapshot, which is as new as when it was read; so do pools. */
#include "archive/archive_impl.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "dedup/pools.h"
#include "replica/event.h"

enum { FORGET_LOOK_MS = 10 };

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for a segment of the archive");
}

/* --- pools --- */

static void on_pools(struct pool_change *change)
{
    archive_answer(change->owner);
}

/* An event may come before its change is seen. */
static int pools_in_step(struct archive *a, struct err *err)
{
    struct pool_change nothing = {.kind = POOL_NOTHING, .name = slice_of("", 0), .done = on_pools, .owner = a};
    pools_change(a->dedup->pools, &nothing);
    archive_wait_answer(a);
    return nothing.err.code < 0 ? (*err = nothing.err).code : 0;
}

static int add_pool(uint64_t seq, struct slice name, const struct pool *pool, struct buf *records, struct err *err)
{
    uint8_t head[8 + 1 + 3 * 8 + 1 + HASH_ID_MAX] = {0};
    struct slice items = slice_of("", 0);
    size_t len = 34 + name.len;
    object_put_number(head, seq);
    head[8] = pool != NULL;
    if (pool != NULL) {
        object_put_number(head + 9, pool->version);
        object_put_number(head + 17, (uint64_t)pool->changed_ms);
        object_put_number(head + 25, pool->n);
        pool_packed(pool, 0, SIZE_MAX, &items);
    }
    head[33] = (uint8_t)name.len;
    memcpy(head + 34, name.data, name.len);
    return object_add(records, RECORD_POOL, slice_of((const char *)head, len), items) < 0 ? out_of_memory(err) : 0;
}

int archive_add_pool(struct archive *a, uint64_t seq, struct slice name, struct buf *records, struct err *err)
{
    int rc = a->dedup->pools != NULL ? pools_in_step(a, err) : ERR_ABSENT;
    if (rc < 0) {
        return rc == ERR_ABSENT ? 0 : rc;
    }
    const struct pool_table *table = pools_take(a->dedup->pools);
    rc = add_pool(seq, name, pool_table_find(table, name), records, err);
    pools_let_go(table);
    return rc;
}

int archive_add_pools(struct archive *a, struct buf *records, struct err *err)
{
    int rc = a->dedup->pools != NULL ? pools_in_step(a, err) : ERR_ABSENT;
    if (rc < 0) {
        return rc == ERR_ABSENT ? 0 : rc;
    }
    const struct pool_table *table = pools_take(a->dedup->pools);
    for (size_t i = 0; i < table->n && rc == 0; i++) {
        rc = add_pool(0, table->list[i]->name, table->list[i], records, err);
    }
    pools_let_go(table);
    return rc;
}

/* --- users --- */

/* 1: *as_of is set; 0: nothing is known of them. While they are being forgotten it waits. */
static int read_user(struct archive *a, struct slice user, uint64_t *as_of, struct err *err)
{
    int rc;
    while ((rc = a->store->copy->whole(a->reader, user, &a->page, as_of, err)) == ERR_BUSY && !task_stops(&a->task)) {
        pthread_mutex_lock(&a->mutex);
        task_rest_real(&a->task, clock_real_us() + FORGET_LOOK_MS * 1000);
        pthread_mutex_unlock(&a->mutex);
        buf_clear(&a->page);
    }
    return rc;
}

/* What was read may know of all that the feed had by then. */
static int add_user(struct archive *a, const struct feed_event *e, struct object_head *head, struct err *err)
{
    uint8_t front[17];
    uint64_t as_of = e->seq;
    if (++a->users_in_a_row > ARCHIVE_USERS_IN_A_ROW) {
        head->flags |= OBJECT_LACKS_USERS;
        a->lacks_to = e->seq;
        return 0;
    }
    buf_clear(&a->page);
    int rc = read_user(a, e->user, &as_of, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t covers = a->store->feed->last(a->store);
    covers = covers > as_of ? covers : as_of;
    head->covers = covers > head->covers ? covers : head->covers;
    object_put_number(front, e->seq);
    object_put_number(front + 8, covers);
    front[16] = (uint8_t)rc;
    struct slice snapshot = rc == 1 ? buf_slice(&a->page) : slice_of("", 0);
    pthread_mutex_lock(&a->mutex);
    a->status.users++;
    pthread_mutex_unlock(&a->mutex);
    return object_add(&a->records, RECORD_USER, slice_of((const char *)front, sizeof front), snapshot) < 0
               ? out_of_memory(err)
               : 0;
}

/* --- a segment --- */

/* event_write() looks at the user before, who must outlive what was read. */
struct packing {
    struct event_state state;
    char user[HASH_ID_MAX + 1024];
};

static int add_event(struct archive *a, struct packing *p, const struct feed_event *e, struct object_head *head,
                     struct err *err)
{
    if (event_write(&p->state, e, &a->run) < 0) {
        return out_of_memory(err);
    }
    size_t len = e->user.len < sizeof p->user ? e->user.len : 0;
    memcpy(p->user, e->user.data, len);
    p->state.user = slice_of(p->user, len);
    head->to = e->seq;
    head->n++;
    head->first_ms = head->n == 1 ? e->recorded_ms : head->first_ms;
    head->last_ms = head->n == 1 || e->recorded_ms > head->last_ms ? e->recorded_ms : head->last_ms;
    a->segment_bytes += feed_event_bytes(e->user, e->item, e->group);
    if (e->kind == FEED_USER) {
        return add_user(a, e, head, err);
    }
    a->users_in_a_row = e->kind == FEED_OFFSET ? a->users_in_a_row : 0; /* such as this program's own marks */
    return e->kind == FEED_POOL ? archive_add_pool(a, e->seq, e->user, &a->records, err) : 0;
}

static int collect(struct archive *a, struct object_head *head, struct err *err)
{
    struct packing p = {0};
    int n = ARCHIVE_READ_EVENTS;
    while (n == ARCHIVE_READ_EVENTS && a->run.len + a->records.len < ARCHIVE_SEGMENT_BYTES) {
        arena_reset(&a->arena);
        heartbeat_now(&a->task.heartbeat);
        n = a->store->feed->read(a->reader, FEED_ARCHIVE, head->to, a->events, ARCHIVE_READ_EVENTS, &a->arena, err);
        for (int i = 0; i < n && a->run.len + a->records.len < ARCHIVE_SEGMENT_BYTES; i++) {
            int rc = add_event(a, &p, &a->events[i], head, err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    if (n < 0 && head->n > 0) { /* what can't be read stands behind what could */
        *err = (struct err){0};
        return 0;
    }
    return n;
}

/* Makes one of what waits: 1; 0: nothing does. */
static int make(struct archive *a, struct err *err)
{
    struct object_head *head = &a->segment.head;
    *head = (struct object_head){.kind = OBJECT_SEGMENT, .from = a->cursor, .to = a->cursor, .covers = a->cursor};
    uint64_t last = a->store->feed->last(a->store); /* before the look: nothing stands up to it that isn't read then */
    buf_clear(&a->run);
    buf_clear(&a->records);
    a->segment_bytes = 0;
    int rc = collect(a, head, err);
    if (rc < 0) {
        return rc;
    }
    if (head->n == 0) {
        if (last <= a->cursor) {
            return 0;
        }
        head->to = last; /* seqs without events, as a start leaves them */
    }
    head->covers = head->covers > head->to ? head->covers : head->to;
    if (a->run.len > 0 && object_add(&a->records, RECORD_EVENTS, buf_slice(&a->run), slice_of("", 0)) < 0) {
        return out_of_memory(err);
    }
    const struct catalog_segment s = {.node = a->self.node, .run = a->self.run, .from = head->from, .to = head->to};
    catalog_segment_name(&s, a->segment.name);
    rc = archive_seal(a, &a->segment, err);
    return rc < 0 ? rc : 1;
}

static void count(struct archive *a, const struct object_head *h)
{
    a->since_bytes += a->segment.object.len;
    pthread_mutex_lock(&a->mutex);
    a->status.segments++;
    a->status.segment_bytes += a->segment.object.len;
    a->status.events += h->n;
    a->status.to = h->to;
    pthread_mutex_unlock(&a->mutex);
}

int archive_segment(struct archive *a, struct err *err)
{
    const struct object_head *h = &a->segment.head;
    int rc = a->segment.waits ? 1 : make(a, err);
    if (rc != 1) {
        a->users_in_a_row = rc == 0 ? 0 : a->users_in_a_row;
        return rc;
    }
    /* Before it is passed: who comes after a kill must know that a round is needed. */
    if ((h->flags & OBJECT_LACKS_USERS) != 0 && (rc = archive_mark(a, ARCHIVE_LACKS, a->lacks_to, err)) < 0) {
        return rc;
    }
    if ((rc = archive_put(a, &a->segment, err)) < 0) {
        return rc;
    }
    a->cursor = h->to;
    a->store->feed->done(a->store, FEED_ARCHIVE, h->to, h->n, a->segment_bytes);
    count(a, h);
    buf_shrink(&a->page, 0);
    return a->run.len + a->records.len >= ARCHIVE_SEGMENT_BYTES;
}
