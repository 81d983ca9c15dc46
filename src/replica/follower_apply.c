/* Events into the store, in their order. Plays and deliveries gather in a batch, whose position says up to where they
 * go; before a forget, and before a user who is fetched whole, what came before is made durable, with its position. One
 * batch at a time is with the store: were there two, the second could move the position past a first that was refused.
 *
 * A batch that is refused (memory is full, the disk is) is handed in again until it is taken. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/hide.h"
#include "replica/clone_mark.h"
#include "replica/cursor.h"
#include "replica/event.h"
#include "replica/follower_impl.h"

enum { FIRST_DELAY_MS = 20, LAST_DELAY_MS = 2000, POSITIONS_MAX = 64, OWN_POSITIONS = 2, BATCH_BYTES = 1024 * 1024 };

/* --- the store's answers --- */

void follower_tell(struct follower *f)
{
    pthread_mutex_lock(&f->mutex);
    task_answer(&f->task, &f->done);
    pthread_mutex_unlock(&f->mutex);
}

static void on_batch(struct store_batch *batch)
{
    follower_tell(batch->owner);
}

static void on_forget(struct store_forget *forget)
{
    follower_tell(forget->owner);
}

static void on_import(struct store_call *call)
{
    follower_tell(call->owner);
}

void follower_await(struct follower *f)
{
    pthread_mutex_lock(&f->mutex);
    task_await(&f->task, &f->done); /* how the store is its own threads say */
    f->done = false;
    pthread_mutex_unlock(&f->mutex);
}

bool follower_again(struct follower *f, const char *what, const struct err *err, int64_t *delay_ms)
{
    bool passes = err->code == ERR_BUSY || err->code == ERR_FULL || err->code == ERR_IO || err->code == ERR_NOMEM ||
                  err->code == ERR_READONLY || err->code == ERR_RANGE; /* the last: a clock is behind */
    if (follower_stopping(f) || !passes) {
        return false;
    }
    pthread_mutex_lock(&f->mutex);
    hide_ids_copy(f->state.problem, sizeof f->state.problem, err->text);
    pthread_mutex_unlock(&f->mutex);
    if (*delay_ms == 0) {
        log_warn("what the primary has recorded is not taken here yet", "what=%s error=%s", what,
                 log_quote_str(err->text));
    }
    *delay_ms = backoff_next(*delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS);
    follower_rest(f, *delay_ms);
    return !follower_stopping(f);
}

static int stopped(const struct err *why, struct err *err)
{
    return err_set(err, why->code, "%s", why->text);
}

/* --- what is handed in --- */

struct apply {
    struct follower *f;
    uint64_t run, to;         /* up to where what was read goes */
    struct event_state state; /* of what is read, f->events, and where that is */
    size_t at;
    uint64_t end;    /* what is read goes no further, says who sent it */
    int64_t n_read;  /* events */
    uint64_t spared; /* events that were taken with forgets, since what was last handed in */
    struct store_position positions[POSITIONS_MAX];
    size_t n_positions; /* of sources; behind them go our own: OWN_POSITIONS */
};

static void show_applied(struct follower *f, uint64_t run, uint64_t to, uint64_t events)
{
    f->cursor.run = run;
    f->cursor.seq = to;
    pthread_mutex_lock(&f->mutex);
    f->state.node = f->cursor.node; /* the three are one place: a reader never sees parts of two */
    f->state.run = run;
    f->state.applied = to;
    f->state.events += events;
    pthread_cond_broadcast(&f->more);
    pthread_mutex_unlock(&f->mutex);
}

static int hand_in(struct apply *a, struct err *err)
{
    struct follower *f = a->f;
    struct store_batch *b = &f->batch;
    uint32_t events = b->events;
    int64_t delay_ms = 0;
    if (b->events == 0 && a->n_positions == 0 && a->to == f->cursor.seq && a->run == f->cursor.run) {
        return 0;
    }
    char source[CLONE_MARK_TEXT];
    a->positions[a->n_positions] =
        (struct store_position){slice_str(clone_feed_name(f->cursor.node, a->run, source)), (int64_t)a->to};
    b->positions = a->positions;
    b->n_positions = a->n_positions + 1;
    if (cursor_last(f->r->store) != f->cursor.node) {
        a->positions[b->n_positions++] = (struct store_position){slice_str(CLONE_FOLLOWED), (int64_t)f->cursor.node};
    }
    b->patient = f->behind;
    b->done = on_batch;
    b->owner = f;
    do {
        f->r->store->ops->record(f->r->store, b);
        follower_await(f);
    } while (b->err.code < 0 && follower_again(f, "plays", &b->err, &delay_ms));
    int rc = b->err.code < 0 ? stopped(&b->err, err) : 0;
    buf_clear(&b->bytes);
    b->rows = b->events = 0;
    a->n_positions = 0;
    if (rc == 0) {
        show_applied(f, a->run, a->to, events + a->spared);
        a->spared = 0;
    }
    return rc;
}

/* As event_read() does. */
static int next_event(struct apply *a, struct feed_event *e, struct err *err)
{
    int rc = event_read(&a->state, buf_slice(&a->f->events), &a->at, e, err);
    a->n_read += rc == 1;
    return rc == 1 && e->seq > a->end
               ? err_set(err, ERR_CORRUPT, "event %" PRIu64 " is behind the end that %s names, %" PRIu64, e->seq,
                         a->f->address, a->end)
               : rc;
}

static int add_event(struct apply *a, struct store_batch *to, const struct feed_event *e, struct err *err)
{
    uint64_t seed = a->f->r->dedup->seed, hash = hash_id(seed, e->item);
    int rc = store_batch_add_groups(to, (enum store_kind)e->kind, e->at_ms, STORE_STAMPED, hash_user_key(seed, e->user),
                                    e->user, &e->item, &hash, &e->group, 1);
    return rc < 0 ? err_set(err, rc, "out of memory for what the primary has recorded") : 0;
}

/* What follows it of the same user may be what it spares (struct store_forget): that is never absent here either, not
 * for a moment. *e is the last of these then. */
static int take_spared(struct apply *a, struct feed_event *e, struct store_batch *spared, struct err *err)
{
    struct apply next = *a;
    struct feed_event event;
    int rc;
    while ((rc = next_event(&next, &event, err)) == 1 && (event.kind == FEED_PLAY || event.kind == FEED_DELIVERY) &&
           slice_eq(event.user, e->user)) {
        if ((rc = add_event(a, spared, &event, err)) < 0) {
            return rc;
        }
        a->state = next.state;
        a->at = next.at;
        a->n_read = next.n_read;
        e->seq = event.seq;
    }
    return 0; /* an error is met again, in its place */
}

/* Repeated as a whole after a crash: nothing behind it was applied by then but what it spares. */
static int forget(struct apply *a, const struct feed_event *e, struct store_batch *spared, struct err *err)
{
    struct follower *f = a->f;
    size_t n = e->kind == FEED_UNSEE;
    uint64_t hash = e->kind == FEED_UNSEE_HASH ? feed_item_hash(e->item) : 0;
    int64_t delay_ms = 0;
    void *memory = malloc(dedup_forget_size(e->user, &e->item, n));
    if (memory == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a forget of the primary's");
    }
    struct store_forget forget;
    do {
        forget = (struct store_forget){.stated_ms = e->at_ms};
        dedup_forget(f->r->dedup, &forget, memory, e->user, &e->item, n);
        if (e->kind == FEED_UNSEE_HASH) {
            forget.items = NULL;
            forget.hashes = &hash;
            forget.n_items = 1;
        }
        forget.stated_ms = e->at_ms;
        forget.spared = spared->events > 0 ? spared : NULL;
        forget.done = on_forget;
        forget.owner = f;
        f->r->store->ops->forget(f->r->store, &forget);
        follower_await(f);
    } while (forget.err.code < 0 && follower_again(f, "a forget", &forget.err, &delay_ms));
    free(memory);
    if (forget.err.code == ERR_SHARED || forget.err.code == ERR_CORRUPT) {
        /* It would keep up all that comes behind it. Damage is mended from the primary, which has carried it out. */
        log_error("a forget of the primary's can't be carried out here", "error=%s", log_quote_str(forget.err.text));
        return 0;
    }
    return forget.err.code < 0 ? stopped(&forget.err, err) : 0;
}

static int apply_forget(struct apply *a, struct feed_event *e, struct err *err)
{
    struct store_batch spared = {0};
    const struct feed_event event = *e;
    int rc = take_spared(a, e, &spared, err);
    rc = rc < 0 ? rc : forget(a, &event, &spared, err);
    a->spared += spared.events;
    buf_free(&spared.bytes);
    return rc;
}

/* --- a user whom the feed alone doesn't tell --- */

static int import_user(struct follower *f, struct slice snapshot, struct err *err)
{
    uint8_t verdict;
    int64_t delay_ms = 0;
    struct store_import import;
    do {
        import = (struct store_import){.snapshots = &snapshot, .n = 1, .verdicts = &verdict};
        import.call.done = on_import;
        import.call.owner = f;
        f->r->store->ops->import(f->r->store, &import);
        follower_await(f);
    } while (import.call.err.code < 0 && follower_again(f, "a user", &import.call.err, &delay_ms));
    return import.call.err.code < 0 ? stopped(&import.call.err, err) : 0;
}

static int apply_user(struct apply *a, const struct feed_event *e, struct err *err)
{
    struct follower *f = a->f;
    const struct reply *reply;
    char protocol[16];
    snprintf(protocol, sizeof protocol, "%" PRId64, f->protocol);
    const struct slice words[] = {slice_str("REPLICA"), slice_str("USER"), e->user, slice_str(protocol)};
    const size_t n = f->protocol >= REPLICA_TIMES ? 4 : 3; /* an older one knows three */
    int rc = f->users == NULL ? follower_open(f, 0, &f->users, err) : 0;
    if (rc < 0 || (rc = client_queue(f->users, words, n, err)) < 0 || (rc = client_read(f->users, &reply, err)) < 0) {
        return rc;
    }
    if (reply->kind == REPLY_ERROR) {
        return err_set(err, ERR_SYSTEM, "%s: %.*s", f->address, (int)reply->text.len, reply->text.data);
    }
    if (reply->kind == REPLY_TEXT) { /* else the user was forgotten since: that comes, too */
        rc = import_user(f, reply->text, err);
    }
    pthread_mutex_lock(&f->mutex);
    f->state.users += rc == 0;
    pthread_mutex_unlock(&f->mutex);
    return rc;
}

static int apply_pool(struct apply *a, const struct feed_event *e, struct err *err)
{
    struct follower *f = a->f;
    int rc = f->users == NULL ? follower_open(f, 0, &f->users, err) : 0;
    return rc < 0 || f->r->dedup->pools == NULL ? rc : follower_take_pool(f, f->users, e->user, err);
}

/* --- --- */

static int apply_event(struct apply *a, struct feed_event *e, struct err *err)
{
    int rc = 0;
    switch (e->kind) {
    case FEED_PLAY:
    case FEED_DELIVERY:
        rc = add_event(a, &a->f->batch, e, err);
        break;
    case FEED_OFFSET:
        a->positions[a->n_positions++] = (struct store_position){e->user, e->at_ms};
        break;
    case FEED_FORGET:
    case FEED_UNSEE:
    case FEED_UNSEE_HASH:
        rc = (rc = hand_in(a, err)) < 0 ? rc : apply_forget(a, e, err);
        break;
    case FEED_USER:
        rc = (rc = hand_in(a, err)) < 0 ? rc : apply_user(a, e, err);
        break;
    case FEED_POOL:
        rc = (rc = hand_in(a, err)) < 0 ? rc : apply_pool(a, e, err);
        break;
    default:
        return err_set(err, ERR_VERSION, "an event of kind %d: use the primary's version of unseen", e->kind);
    }
    if (rc == 0) {
        a->to = e->seq;
        bool full = a->n_positions == POSITIONS_MAX - OWN_POSITIONS || a->f->batch.bytes.len >= BATCH_BYTES;
        rc = full ? hand_in(a, err) : 0;
    }
    return rc;
}

int follower_go_on(struct follower *f, const struct feed_cursor *from, struct err *err)
{
    struct apply a = {.f = f, .run = from->run, .to = from->seq};
    f->cursor = (struct feed_cursor){.node = from->node};
    return hand_in(&a, err);
}

int follower_apply(struct follower *f, uint64_t run, uint64_t to, int64_t n, struct err *err)
{
    struct apply a = {.f = f, .run = run, .to = f->cursor.seq, .end = to};
    struct feed_event event;
    int rc;
    while ((rc = next_event(&a, &event, err)) == 1) {
        if (event.seq > f->cursor.seq && (rc = apply_event(&a, &event, err)) < 0) {
            break;
        }
    }
    if (rc == 0 && a.n_read != n) { /* were its end believed, what is missing would be lost */
        rc = err_set(err, ERR_CORRUPT, "%s has sent %" PRId64 " events, and says that there are %" PRId64, f->address,
                     a.n_read, n);
    }
    if (rc == 0) {
        a.to = to > a.to ? to : a.to;
        rc = hand_in(&a, err);
    }
    buf_clear(&f->batch.bytes);
    f->batch.rows = f->batch.events = 0;
    return rc;
}
