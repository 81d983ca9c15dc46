/* What an old primary alone has, when it rejoins: recorded here in its order, each event once, since the position of
 * the source "merge:NODE" moves with it. Its times are stated ones: what is older than a forget here is dropped. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "replica/change_impl.h"
#include "replica/event.h"
#include "replica/replica.h"
#include "store/positions.h"

enum { SOURCE_TEXT = 32, MERGE_BATCH_BYTES = 1024 * 1024 };

struct merge {
    struct replica *r;
    char source[SOURCE_TEXT];
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

static int take(struct merge *m, const struct feed_event *e, struct err *err)
{
    int rc = 0;
    if (e->kind == FEED_PLAY || e->kind == FEED_DELIVERY) {
        uint64_t hash = hash_id(m->r->dedup->seed, e->item);
        rc = store_batch_add(&m->batch, (enum store_kind)e->kind, e->at_ms, STORE_STATED,
                             hash_user_key(m->r->dedup->seed, e->user), e->user, &e->item, &hash, 1);
        if (rc < 0) {
            return err_set(err, rc, "out of memory for events");
        }
    } else if (e->kind == FEED_FORGET || e->kind == FEED_UNSEE) {
        rc = hand_in(m, err);
        if (rc == 0) {
            rc = forget(m, e, err);
        }
    } /* a user's state comes by LOAD, and the offsets of sources are this node's own */
    m->read = e->seq;
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
    buf_free(&m.batch.bytes);
    return rc;
}
