/* A pool that is set, added to, dropped or renamed: a request that is late until its change is durable, here and, where
 * writes wait for that, on a replica. It works on a copy of what the edge has, since that moves. */
#include <stdlib.h>
#include <string.h>

#include "replica/replica.h"
#include "service/impl.h"

struct pool_request {
    struct late late;
    struct loop_message message;
    struct pool_change change;
    struct ack_wait ack;
    char bytes[]; /* the names, and the items, packed */
};

static void on_message(struct loop_message *message, void *owner)
{
    (void)owner;
    late_arrived(&((struct pool_request *)((char *)message - offsetof(struct pool_request, message)))->late);
}

static void post(struct pool_request *p)
{
    p->message.deliver = on_message;
    loop_queue_post(&p->late.loop->worker->queue, &p->message);
}

static void on_acknowledged(struct ack_wait *ack)
{
    post(ack->owner);
}

/* On the pools' thread. One that changed nothing has no place in the feed. */
static void on_changed(struct pool_change *change)
{
    struct pool_request *p = change->owner;
    const struct replica *replica = p->late.loop->dedup->replica;
    if (change->err.code < 0 || replica == NULL || change->seq == 0) {
        post(p);
        return;
    }
    p->ack = (struct ack_wait){.seq = change->seq, .err = &change->err, .done = on_acknowledged, .owner = p};
    ack_wait(replica->ack, &p->ack);
}

static enum request_state answer(struct service_loop *l, struct late *late)
{
    (void)l;
    const struct pool_request *p = (struct pool_request *)late;
    late->rq.err = p->change.err.code < 0 ? &p->change.err : NULL;
    late->rq.count = p->change.kind == POOL_DROP ? p->change.existed : (int64_t)p->change.n;
    late->rq.pool_version = p->change.version;
    return REQUEST_ANSWERED;
}

static void free_request(struct late *late)
{
    free(late);
}

static struct slice copy(char **to, struct slice from)
{
    char *at = *to;
    memcpy(at, from.data, from.len);
    *to += from.len;
    return slice_of(at, from.len);
}

static void fill(struct pool_request *p, const struct request *rq)
{
    static const enum pool_change_kind kinds[REQUEST_KINDS] = {
        [REQUEST_POOL_SET] = POOL_SET,
        [REQUEST_POOL_ADD] = POOL_ADD,
        [REQUEST_POOL_DROP] = POOL_DROP,
        [REQUEST_POOL_RENAME] = POOL_RENAME,
    };
    char *to = p->bytes;
    p->change = (struct pool_change){.kind = kinds[rq->kind], .done = on_changed, .owner = p};
    p->change.name = copy(&to, rq->pools[0]);
    p->change.to = rq->n_pools > 1 ? copy(&to, rq->pools[1]) : slice_of("", 0);
    char *items = to;
    for (size_t i = 0; i < rq->n; i++) {
        *to++ = (char)(uint8_t)rq->items[i].len;
        copy(&to, rq->items[i]);
    }
    p->change.items = slice_of(items, (size_t)(to - items));
    p->late.rq.pools = NULL;
}

static int check(const struct request *rq, struct err *err)
{
    bool lists = rq->kind == REQUEST_POOL_SET || rq->kind == REQUEST_POOL_ADD;
    int code = 0;
    for (size_t i = 0; i < rq->n_pools && code == 0; i++) {
        code = dedup_check_id("pool", 0, rq->pools[i], err);
    }
    if (code == 0 && lists && rq->n == 0) {
        code = err_set(err, ERR_INVALID, "a pool holds at least one item");
    }
    return code < 0 ? code : dedup_check_items(rq->items, rq->n, err);
}

enum request_state request_change_pool(struct service_loop *l, struct conn *c, struct request *rq)
{
    struct err err;
    if (l->dedup->pools == NULL) {
        store_lacks(l->dedup->store, "pools", &err);
        return request_fail(l, rq, &err);
    }
    if (check(rq, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    if (l->recorder.stalled.code < 0) {
        return request_fail(l, rq, &l->recorder.stalled);
    }
    size_t size = sizeof(struct pool_request);
    for (size_t i = 0; i < rq->n_pools; i++) {
        size += rq->pools[i].len;
    }
    for (size_t i = 0; i < rq->n; i++) {
        size += 1 + rq->items[i].len;
    }
    enum request_state state;
    struct pool_request *p = late_new(l, c, rq, size, 0, &state);
    if (p == NULL) {
        return state;
    }
    p->late.go_on = answer;
    p->late.free = free_request;
    fill(p, rq);
    late_leave(&p->late, rq);
    pools_change(l->dedup->pools, &p->change);
    return REQUEST_LATE;
}
