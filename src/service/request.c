#include "service/request.h"

#include <stdlib.h>

#include "base/clock.h"
#include "service/account.h"
#include "service/impl.h"
#include "service/slowlog.h"

enum request_state request_fail(struct service_loop *l, struct request *rq, const struct err *err)
{
    l->err = *err;
    rq->err = &l->err;
    return REQUEST_ANSWERED;
}

/* --- late ones --- */

void *late_new(struct service_loop *l, struct conn *c, struct request *rq, size_t size, size_t beside,
               enum request_state *state)
{
    if (!rq->is_part && !conn_has_room(c, BUDGET_REPLY, size + beside)) {
        conn_starve(c, BUDGET_REPLY, size + beside);
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
    late->rq.late_size = size + beside;
    late->rq.sending = NULL;  /* until it leaves */
    late->rq.deadline_us = 0; /* a question sets its own; what is being written has none */
    late->conn = c;
    late->loop = l;
    return late;
}

/* The loop's milliseconds begin anywhere within ours, so it may be early by less than one, and is then set again. */
static void set_timer(struct service_loop *l)
{
    if (l->late == NULL) {
        uv_timer_stop(&l->deadline);
        return;
    }
    int64_t left = l->late->rq.deadline_us - clock_real_us();
    uv_update_time(&l->worker->loop);
    uv_timer_start(&l->deadline, service_on_deadline, left > 0 ? (uint64_t)left / 1000 + 1 : 0, 0);
}

/* Deadlines mostly come in order: it is looked for from behind. */
static void insert(struct service_loop *l, struct late *late)
{
    struct late *before = l->late != NULL ? l->late->prev : NULL;
    while (before != NULL && before->rq.deadline_us > late->rq.deadline_us) {
        before = before == l->late ? NULL : before->prev;
    }
    late->next = before != NULL ? before->next : l->late;
    if (before != NULL) {
        before->next = late;
        late->prev = before;
    } else {
        late->prev = l->late != NULL ? l->late->prev : late;
        l->late = late;
    }
    struct late *behind = late->next != NULL ? late->next : l->late;
    behind->prev = late;
    if (before == NULL) {
        set_timer(l);
    }
}

static void withdraw(struct service_loop *l, struct late *late)
{
    if (late->prev == NULL) {
        return; /* it is not among them */
    }
    bool was_first = l->late == late;
    struct late *behind = late->next != NULL ? late->next : l->late;
    behind->prev = late->prev;
    if (was_first) {
        l->late = late->next;
        set_timer(l);
    } else {
        late->prev->next = late->next;
    }
    late->next = late->prev = NULL;
}

enum request_state late_leave(struct late *late, struct request *rq)
{
    conn_hold(late->conn);
    if (rq != &late->rq) {
        late->rq.sending = rq->sending;
        rq->sending = NULL;
    }
    rq->late = &late->rq;
    rq->late_size = late->rq.late_size;
    late->away = true;
    if (late->rq.deadline_us != 0) {
        insert(late->loop, late);
    }
    return REQUEST_LATE;
}

static void tell(struct late *late)
{
    struct conn *c = late->conn;
    withdraw(late->loop, late);
    late->rq.done(c, &late->rq);
    conn_release(c);
}

void late_arrived(struct late *late)
{
    late->away = false;
    if (late->ended) {
        budget_give(&late->loop->worker->memory, late->rq.late_size);
        late->free(late);
    } else if (!late->told) {
        tell(late);
    }
}

/* False: a source is at it. */
static bool take_back(struct late *late)
{
    if (late->away && late->take_back != NULL && late->take_back(late)) {
        late->away = false;
    }
    return !late->away;
}

void late_tell(struct late *late)
{
    late->told = true;
    take_back(late);
    tell(late);
}

void service_on_deadline(uv_timer_t *timer)
{
    struct service_loop *l = timer->data;
    int64_t now = clock_real_us();
    while (l->late != NULL && l->late->rq.deadline_us <= now) {
        struct late *late = l->late;
        late->overdue = true;
        late_tell(late);
    }
    set_timer(l);
}

const char *late_end(struct request *rq)
{
    struct late *late = (struct late *)rq;
    if (late == NULL) {
        return NULL;
    }
    struct conn *c = late->away && !late->told ? late->conn : NULL;
    withdraw(late->loop, late);
    const bool ours = take_back(late);
    const char *cause = late->cause;
    if (ours) {
        late->free(late);
    } else {
        late->ended = true;
        budget_take(&late->loop->worker->memory, late->rq.late_size);
    }
    if (c != NULL) {
        conn_release(c);
    }
    return cause;
}

void service_end(struct request *rq)
{
    late_end(rq);
}

void service_refused(struct conn *c, const struct request *rq)
{
    meter_count(&service_of(c)->meter, COUNT_TIMES_REFUSED, rq->has_at && rq->err->code == ERR_RANGE);
}

/* The arguments of the slow log: the operation, of whom, about what. */
static void note_slow(struct conn *c, const struct request *rq, int64_t us)
{
    struct buf args = {0};
    bool merges = rq->kind == REQUEST_MERGE;
    const struct slice *items = merges ? &rq->into : rq->items;
    size_t n = merges ? 1 : rq->hashed || rq->line != NULL ? 0 : rq->n;
    struct slice who = rq->user.data != NULL ? rq->user : rq->session;
    bool more = slowlog_add_arg(&args, 0, 2 + n, slice_str(op_names[c->op])) && slowlog_add_arg(&args, 1, 2 + n, who);
    for (size_t i = 0; more && i < n; i++) {
        more = slowlog_add_arg(&args, 2 + i, 2 + n, items[i]);
    }
    slowlog_note(c, us, &args);
}

void service_answered(struct conn *c, const struct request *rq)
{
    int64_t us = clock_figures_us() - c->arrived_us;
    meter_note(&service_of(c)->meter, (enum op)c->op, us, 1, rq->err == NULL ? METER_DONE : METER_FAILED);
    if (slowlog_wants(c, us)) {
        note_slow(c, rq, us);
    }
    if (rq->err != NULL) {
        service_refused(c, rq);
    }
}

enum request_state service_resume(struct conn *c, struct request *rq)
{
    struct late *late = (struct late *)rq;
    return late->go_on(service_of(c), late);
}

/* --- what is recorded --- */

int request_hash_groups(struct service_loop *l, const struct dedup *d, struct request *rq, struct err *err)
{
    rq->grouped = NULL;
    if (rq->n_groups == 0) {
        return 0;
    }
    l->grouped = l->grouped != NULL ? l->grouped : malloc(ITEMS_MAX * sizeof *l->grouped);
    if (l->grouped == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for %zu groups", rq->n_groups);
    }
    int code = dedup_hash_groups(d, rq->groups, rq->n_groups, l->grouped, err);
    rq->grouped = code == 0 ? l->grouped : NULL;
    return code;
}

enum request_state request_record(struct service_loop *l, struct conn *c, struct request *rq, const struct recorded *r,
                                  bool has_memory)
{
    if (l->recorder.stalled.code < 0) {
        return request_fail(l, rq, &l->recorder.stalled);
    }
    int code = recorder_add(l, c, r, has_memory, &rq->bytes);
    if (code == ERR_BUSY) {
        return REQUEST_WAIT;
    }
    if (code < 0) {
        struct err err = {0};
        err_set(&err, ERR_NOMEM, "out of memory for %zu items", r->n);
        return request_fail(l, rq, &err);
    }
    meter_count(&l->meter, r->kind == STORE_PLAY ? COUNT_PLAYS : COUNT_DELIVERIES, r->n);
    rq->count = (int64_t)r->n;
    return REQUEST_RECORDED;
}

/* Everything is checked before anything is recorded. */
static enum request_state record(struct service_loop *l, struct conn *c, struct request *rq)
{
    const struct dedup *d = l->recording;
    struct err err = {0};
    int64_t at = 0;
    bool skewed = false;
    int code = 0;
    if (rq->has_at) {
        code = dedup_event_time(d, rq->at_ms, &at, &skewed, &err);
    } else {
        at = dedup_stamp(d);
    }
    if (code == 0) {
        code = dedup_hash_items(d, rq->items, rq->n, l->hashes, &err);
    }
    code = code == 0 ? request_hash_groups(l, d, rq, &err) : code;
    if (code < 0) {
        return request_fail(l, rq, &err);
    }
    enum store_kind kind = rq->kind == REQUEST_PLAY ? STORE_PLAY : STORE_DELIVERY;
    enum store_time time = rq->has_at && !skewed ? STORE_STATED : STORE_STAMPED;
    const struct recorded r = {.kind = kind,
                               .at_ms = at,
                               .time = time,
                               .user = rq->user,
                               .items = rq->items,
                               .hashes = l->hashes,
                               .groups = rq->grouped,
                               .n = rq->n};
    enum request_state state = request_record(l, c, rq, &r, false);
    meter_count(&l->meter, COUNT_SKEWED, state == REQUEST_RECORDED && skewed);
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
        [REQUEST_QUESTION] = request_ask,
        [REQUEST_WHY] = request_ask,
        [REQUEST_HISTORY] = request_ask,
        [REQUEST_EXPOSURE] = request_ask,
        [REQUEST_PLAY] = record,
        [REQUEST_DELIVERY] = record,
        [REQUEST_FORGET] = request_forget,
        [REQUEST_MERGE] = request_forget,
        [REQUEST_BLOCK] = change_session,
        [REQUEST_UNBLOCK] = change_session,
        [REQUEST_POOL_SET] = request_change_pool,
        [REQUEST_POOL_ADD] = request_change_pool,
        [REQUEST_POOL_DROP] = request_change_pool,
        [REQUEST_POOL_RENAME] = request_change_pool,
    };
    struct service_loop *l = service_of(c);
    struct err err;
    rq->sending = NULL;
    rq->sent = NULL;
    if (rq->line != NULL) { /* it had to wait: its pools may be others by now */
        rq->line = NULL;
        rq->n = 0;
    }
    const struct dedup *d = rq->kind == REQUEST_PLAY || rq->kind == REQUEST_DELIVERY ? l->recording : l->dedup;
    if (account_check(rq->account, account_roles_for(rq), &err) < 0 || request_check(rq, &err) < 0 ||
        (d == NULL && service_loading(l->worker->pool->service, &err) < 0) || request_may_write(d, rq, &err) < 0 ||
        request_is_fresh(d, rq, &err) < 0 || request_find_policy(d, rq, &err) < 0 || request_check_also(rq, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    return kinds[rq->kind](l, c, rq);
}
