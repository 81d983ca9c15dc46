#include "service/request.h"

#include <stdlib.h>

#include "service/impl.h"

enum request_state request_fail(struct service_loop *l, struct request *rq, const struct err *err)
{
    l->err = *err;
    rq->err = &l->err;
    return REQUEST_ANSWERED;
}

/* --- late ones --- */

void *late_new(struct service_loop *l, struct conn *c, struct request *rq, size_t size, enum request_state *state)
{
    if (!c->overdraft && !budget_allows(&l->worker->memory, BUDGET_REPLY, size)) {
        conn_starve(c, BUDGET_REPLY, size);
        *state = REQUEST_WAIT;
        return NULL;
    }
    struct late *late = calloc(1, size);
    if (late == NULL) {
        struct err err = {0};
        err_set(&err, ERR_NOMEM, "out of memory for %zu items", rq->n);
        *state = request_fail(l, rq, &err);
        return NULL;
    }
    late->rq = *rq;
    late->rq.late = &late->rq;
    late->conn = c;
    return late;
}

enum request_state late_leave(struct late *late, struct request *rq, size_t size)
{
    conn_hold(late->conn);
    rq->late = &late->rq;
    rq->late_size = late->rq.late_size = size;
    return REQUEST_LATE;
}

void late_arrived(struct late *late)
{
    struct conn *c = late->conn;
    late->rq.done(c);
    conn_release(c);
}

enum request_state service_resume(struct conn *c, struct request *rq)
{
    struct late *late = (struct late *)rq;
    return late->go_on(service_of(c), late);
}

void service_end(struct request *rq)
{
    if (rq != NULL) {
        struct late *late = (struct late *)rq;
        late->free(late);
    }
}

/* --- what is recorded --- */

enum request_state request_record(struct service_loop *l, struct conn *c, struct request *rq, enum store_kind kind,
                                  int64_t at_ms, const struct slice *items, const uint64_t *hashes, size_t n,
                                  bool has_memory)
{
    const struct recorded r = {kind, at_ms, rq->user, items, hashes, n};
    int code = recorder_add(l, c, &r, has_memory, &rq->bytes);
    if (code == ERR_BUSY) {
        return REQUEST_WAIT;
    }
    if (code < 0) {
        struct err err = {0};
        err_set(&err, ERR_NOMEM, "out of memory for %zu items", n);
        return request_fail(l, rq, &err);
    }
    worker_count(l->worker, kind == STORE_PLAY ? COUNT_PLAYS : COUNT_DELIVERIES, n);
    rq->count = (int64_t)n;
    return REQUEST_RECORDED;
}

/* Everything is checked before anything is recorded. */
static enum request_state record(struct service_loop *l, struct conn *c, struct request *rq)
{
    const struct dedup *d = l->dedup;
    struct err err = {0};
    int64_t at = 0;
    bool skewed = false;
    int code = 0;
    if (rq->has_at) {
        code = dedup_event_time(d, rq->at_ms, &at, &skewed, &err);
        worker_count(l->worker, COUNT_TIMES_REFUSED, code == ERR_RANGE);
    } else {
        at = dedup_stamp(d);
    }
    if (code == 0) {
        code = dedup_hash_items(d, rq->items, rq->n, l->hashes, &err);
    }
    if (code < 0) {
        return request_fail(l, rq, &err);
    }
    enum store_kind kind = rq->kind == REQUEST_PLAY ? STORE_PLAY : STORE_DELIVERY;
    enum request_state state = request_record(l, c, rq, kind, at, rq->items, l->hashes, rq->n, false);
    worker_count(l->worker, COUNT_SKEWED, state == REQUEST_RECORDED && skewed);
    return state;
}

/* --- scroll sessions --- */

static enum request_state change_session(struct service_loop *l, struct conn *c, struct request *rq)
{
    (void)c;
    struct session_ids ids;
    struct err err = {0};
    const struct dedup *d = l->dedup;
    if (session_ids_read(d->seed, rq->items, rq->n, l->hashes, &ids, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    rq->count = rq->kind == REQUEST_BLOCK ? sessions_block(d->sessions, rq->session, &ids, &err)
                                          : sessions_unblock(d->sessions, rq->session, &ids, &err);
    if (rq->count == ERR_FULL) {
        err.code = ERR_INVALID; /* the session is full, not the disk */
    }
    return rq->count < 0 ? request_fail(l, rq, &err) : REQUEST_ANSWERED;
}

enum request_state service_submit(struct conn *c, struct request *rq)
{
    static enum request_state (*const kinds[REQUEST_KINDS])(struct service_loop *, struct conn *, struct request *) = {
        [REQUEST_QUESTION] = request_ask, [REQUEST_WHY] = request_ask,        [REQUEST_HISTORY] = request_ask,
        [REQUEST_PLAY] = record,          [REQUEST_DELIVERY] = record,        [REQUEST_FORGET] = request_forget,
        [REQUEST_BLOCK] = change_session, [REQUEST_UNBLOCK] = change_session,
    };
    struct service_loop *l = service_of(c);
    struct err err;
    if (request_check(rq, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    return kinds[rq->kind](l, c, rq);
}
