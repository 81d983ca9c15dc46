/* FORGET and MERGE: transactions in two files, the store's to do. It works on copies of the ids, since the edge's move.
 *
 * A client that waits for a disk that does not answer is told so, as of other writes (recorder.h). The forget stays the
 * store's, and is done once that has the disk again. */
#include <stdlib.h>

#include "replica/replica.h"
#include "service/impl.h"

struct forget {
    struct late late;
    struct forget *next, **at; /* of the loop's that the store has */
    bool stalled;              /* it was told that: late.err, since the rest is the store's */
    struct loop_message message;
    struct store_forget forget;
    struct store_merge merge; /* one of both */
    struct err *err;          /* of that */
    struct ack_wait ack;
    uint64_t ids[]; /* their copies */
};

static void add(struct service_loop *l, struct forget *f)
{
    f->next = l->forgets;
    f->at = &l->forgets;
    if (f->next != NULL) {
        f->next->at = &f->next;
    }
    l->forgets = f;
}

static void leave(struct forget *f)
{
    *f->at = f->next;
    if (f->next != NULL) {
        f->next->at = f->at;
    }
}

static void on_message(struct loop_message *message, void *owner)
{
    (void)owner;
    struct forget *f = (struct forget *)((char *)message - offsetof(struct forget, message));
    leave(f);
    late_arrived(&f->late);
}

static void post(struct forget *f)
{
    f->message.deliver = on_message;
    loop_queue_post(&f->late.loop->worker->queue, &f->message);
}

static void on_acknowledged(struct ack_wait *ack)
{
    post(ack->owner);
}

/* On a thread of the store, as the next two. */
static void done(struct forget *f, uint64_t seq)
{
    const struct replica *replica = f->late.loop->dedup->replica;
    if (f->err->code < 0 || replica == NULL) {
        post(f);
        return;
    }
    f->ack = (struct ack_wait){.seq = seq, .err = f->err, .done = on_acknowledged, .owner = f};
    ack_wait(replica->ack, &f->ack);
}

static void on_forgotten(struct store_forget *forget)
{
    done(forget->owner, forget->seq);
}

static void on_merged(struct store_merge *merge)
{
    done(merge->owner, merge->seq);
}

static enum request_state answer(struct service_loop *l, struct late *late)
{
    (void)l;
    const struct forget *f = (struct forget *)late;
    if (f->stalled) {
        late->rq.err = &late->err;
        return REQUEST_ANSWERED;
    }
    late->rq.err = f->err->code < 0 ? f->err : NULL;
    late->rq.count = late->rq.kind == REQUEST_MERGE ? f->merge.answer : f->forget.answer;
    return REQUEST_ANSWERED;
}

static void free_forget(struct late *late)
{
    free(late);
}

static bool are_stalled(struct store *store, struct err *cause)
{
    const struct store_ops *ops = store->ops;
    return (ops->stalled != NULL && ops->stalled(store, cause) < 0) ||
           (ops->forgets_stalled != NULL && ops->forgets_stalled(store, cause) < 0);
}

void service_look_at_forgets(struct service_loop *l)
{
    struct err cause = {0};
    l->forgets_refused.code = 0;
    if (l->dedup == NULL || !are_stalled(l->dedup->store, &cause)) {
        return;
    }
    err_set(&l->forgets_refused, ERR_BUSY, "%s: forgets are refused", cause.text); /* before any of them goes on */
    for (struct forget *f = l->forgets; f != NULL; f = f->next) {
        if (!f->late.told && !f->late.ended) {
            f->stalled = true;
            err_set(&f->late.err, ERR_LATE, "%s: whether that will be %s is unknown, send it again later", cause.text,
                    f->late.rq.kind == REQUEST_MERGE ? "done" : "forgotten");
            late_tell(&f->late);
        }
    }
}

static void hand_in(struct service_loop *l, struct forget *f, const struct request *rq)
{
    struct store *store = l->dedup->store;
    if (rq->kind == REQUEST_MERGE) {
        dedup_merge(l->dedup, &f->merge, f->ids, rq->user, rq->into);
        f->merge.forgets = rq->forget;
        f->merge.done = on_merged;
        f->merge.owner = f;
        f->err = &f->merge.err;
        store->ops->merge(store, &f->merge);
        return;
    }
    dedup_forget(l->dedup, &f->forget, f->ids, rq->user, rq->items, rq->n);
    f->forget.done = on_forgotten;
    f->forget.owner = f;
    f->err = &f->forget.err;
    store->ops->forget(store, &f->forget);
}

enum request_state request_forget(struct service_loop *l, struct conn *c, struct request *rq)
{
    struct err err;
    if (dedup_check_items(rq->items, rq->n, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    if (l->recorder.stalled.code < 0) {
        return request_fail(l, rq, &l->recorder.stalled);
    }
    if (l->forgets_refused.code < 0 && are_stalled(l->dedup->store, &err)) { /* it may have ended since */
        return request_fail(l, rq, &l->forgets_refused);
    }
    size_t size = sizeof(struct forget) + (rq->kind == REQUEST_MERGE ? rq->user.len + rq->into.len
                                                                     : dedup_forget_size(rq->user, rq->items, rq->n));
    enum request_state state;
    struct forget *f = late_new(l, c, rq, size, 0, &state);
    if (f == NULL) {
        return state;
    }
    f->late.go_on = answer;
    f->late.free = free_forget;
    late_leave(&f->late, rq);
    add(l, f);
    hand_in(l, f, rq);
    return REQUEST_LATE;
}
