/* What an old primary alone has, when it rejoins: recorded here in its order, each event once, since the position of
 * the source "merge:NODE" moves with it. Its times are stated ones: what is older than a forget here is dropped.
 *
 * Nor may its forgets end what is newer. The store can't tell times apart once plays are in filters; the feed can: it
 * has all that was recorded here since the promotion, kept for the old primary. So after a forget what is newer there
 * is recorded again. That is a pass through the feed each, and such forgets are few. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "replica/change_impl.h"
#include "replica/event.h"
#include "replica/replica.h"
#include "store/positions.h"

enum { SOURCE_TEXT = 32, MERGE_BATCH_BYTES = 1024 * 1024, FEED_PAGE = 256 };

struct merge {
    struct replica *r;
    char source[SOURCE_TEXT];
    char consumer[FEED_NAME_MAX]; /* the old primary, as the feed here knows it */
    struct store_reader *reader;  /* NULL: none was needed yet */
    struct arena arena;
    int64_t done; /* all up to that event is here */
    uint64_t read;
    struct store_batch batch;
};

static int hand_in(struct merge *m, struct err *err)
{
    struct store_position position = {slice_str(m->source), (int64_t)m->read};
    if ((int64_t)m->read <= m->done && m->batch.events == 0) {
        return 0;
    }
    m->batch.positions = &position;
    m->batch.n_positions = 1;
    int rc = change_record(m->r->store, &m->batch, err);
    buf_clear(&m->batch.bytes);
    m->batch.rows = m->batch.events = 0;
    m->done = rc == 0 ? (int64_t)m->read : m->done;
    return rc;
}

static void on_forgotten(struct store_forget *forget)
{
    change_tell(forget->owner);
}

/* What came before it is durable by then, and so it is repeated alone, if at all. */
static int forget(struct merge *m, const struct feed_event *e, struct err *err)
{
    size_t n = e->kind == FEED_UNSEE;
    void *memory = malloc(dedup_forget_size(e->user, &e->item, n));
    if (memory == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a forget");
    }
    struct change_wait w = CHANGE_WAIT_INIT;
    struct store_forget f = {.stated_ms = e->at_ms, .done = on_forgotten, .owner = &w};
    dedup_forget(m->r->dedup, &f, memory, e->user, &e->item, n);
    m->r->store->ops->forget(m->r->store, &f);
    change_wait(&w);
    free(memory);
    if (f.err.code < 0) {
        *err = f.err;
    }
    return f.err.code;
}

static int record(struct merge *m, const struct feed_event *e, enum store_time time, struct err *err)
{
    uint64_t hash = hash_id(m->r->dedup->seed, e->item);
    int rc = store_batch_add(&m->batch, (enum store_kind)e->kind, e->at_ms, time,
                             hash_user_key(m->r->dedup->seed, e->user), e->user, &e->item, &hash, 1);
    return rc < 0 ? err_set(err, rc, "out of memory for events") : 0;
}

/* An event of the feed here, behind a forget that came late: whether the forget should have left it alone. */
static int keep(struct merge *m, const struct feed_event *late, const struct feed_event *e, struct err *err)
{
    bool same = slice_eq(e->user, late->user) && e->at_ms > late->at_ms;
    bool item = late->kind == FEED_FORGET || slice_eq(e->item, late->item);
    int rc = 0;
    if (same && (e->kind == FEED_FORGET || (e->kind == FEED_UNSEE && late->kind == FEED_UNSEE && item))) {
        buf_clear(&m->batch.bytes); /* all that was kept was before this one */
        m->batch.rows = m->batch.events = 0;
    } else if (same && e->kind == FEED_UNSEE && item) {
        rc = (rc = hand_in(m, err)) < 0 ? rc : forget(m, e, err);
    } else if (same && item && (e->kind == FEED_PLAY || e->kind == FEED_DELIVERY)) {
        rc = record(m, e, STORE_STAMPED, err); /* behind each forget before it, also one of the same millisecond */
    }
    return rc;
}

/* last: of what was recorded before the forget. */
static int keep_newer(struct merge *m, const struct feed_event *late, uint64_t last, struct err *err)
{
    struct store *s = m->r->store;
    struct feed_event page[FEED_PAGE];
    uint64_t after = 0;
    int n = m->reader == NULL ? s->ops->reader_open(s, &m->reader, err) : 0;
    for (bool more = n == 0; n >= 0 && more;) {
        arena_reset(&m->arena);
        n = s->feed->read(m->reader, m->consumer, after, page, FEED_PAGE, &m->arena, err);
        more = n == FEED_PAGE && page[n - 1].seq < last;
        for (int i = 0; i < n && page[i].seq <= last; i++) {
            int rc = keep(m, late, &page[i], err);
            if (rc < 0) {
                return rc;
            }
        }
        after = n > 0 ? page[n - 1].seq : after;
    }
    return n < 0 ? n : 0;
}

static int take(struct merge *m, const struct feed_event *e, struct err *err)
{
    int rc = 0;
    if (e->kind == FEED_PLAY || e->kind == FEED_DELIVERY) {
        rc = record(m, e, STORE_STATED, err);
    } else if (e->kind == FEED_FORGET || e->kind == FEED_UNSEE) {
        uint64_t last = m->r->store->feed->last(m->r->store);
        rc = hand_in(m, err);
        rc = rc < 0 ? rc : forget(m, e, err);
        rc = rc < 0 ? rc : keep_newer(m, e, last, err);
    } /* a user's state comes by LOAD, and the offsets of sources are this node's own */
    m->read = rc == 0 ? e->seq : m->read;
    return rc == 0 && m->batch.bytes.len >= MERGE_BATCH_BYTES ? hand_in(m, err) : rc;
}

int change_merge(struct replica *r, struct change *ch, struct err *err)
{
    struct merge m = {.r = r};
    struct event_state state = {0};
    struct feed_event event;
    size_t at = 0;
    if (r->store->positions == NULL) {
        return store_lacks(r->store, "positions", err);
    }
    snprintf(m.source, sizeof m.source, "merge:%016" PRIx64, ch->node);
    snprintf(m.consumer, sizeof m.consumer, FEED_REMOTE "%016" PRIx64, ch->node);
    r->store->positions->find(r->store, slice_str(m.source), &m.done);
    m.read = (uint64_t)m.done;
    int rc;
    while ((rc = event_read(&state, ch->events, &at, &event, err)) > 0) {
        rc = (int64_t)event.seq > m.done ? take(&m, &event, err) : 0;
        if (rc < 0) {
            break;
        }
    }
    if (rc == 0) {
        m.read = ch->to > m.read ? ch->to : m.read;
        rc = hand_in(&m, err);
    }
    if (m.reader != NULL) {
        r->store->ops->reader_close(m.reader);
    }
    arena_free(&m.arena);
    buf_free(&m.batch.bytes);
    return rc;
}
