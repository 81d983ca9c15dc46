/* FilterMany: one message, a batch of questions, a reply for each. Where the client does not read, no more are asked.
 */
#include "base/clock.h"
#include "grpc/server.h"
#include "service/batch.h"

static struct call *call_of(const struct batch *b)
{
    return b->owner;
}

static void describe(const struct batch *b, struct message *m)
{
    batch_answer_max(b, &m->pool_items, &m->pool_bytes);
    m->asked.rq.form = b->rq.form;
    m->asked.rq.kind = REQUEST_QUESTION;
    m->asked.rq.n = 0;
}

static size_t reply_max(const struct batch *b)
{
    struct message m = {0};
    describe(b, &m);
    return GRPC_PREFIX + MESSAGE_MANY_MAX + message_reply_max(&m);
}

static enum batch_state room(struct batch *b)
{
    struct call *call = call_of(b);
    if (call_is_full(call, 1)) {
        return BATCH_FULL;
    }
    return conn_may_reply(&call->conn->conn, reply_max(b)) ? BATCH_DONE : BATCH_WAIT;
}

static void told(struct batch *b, size_t user, const struct request *rq)
{
    struct call *call = call_of(b);
    struct message m = {.asked.rq = *rq, .binary = call->binary};
    char text[REFUSAL_TEXT] = "";
    int code = 0;
    if (rq->err != NULL) {
        refusal_text(rq->err, false, text);
        utf8_clean(text);
        code = (int)refusal_status(rq->err->code);
        call_count_error(call, refusal_of(rq->err->code, false)->word, text);
    } else {
        batch_answer_max(b, &m.pool_items, &m.pool_bytes);
    }
    size_t from = call_begin_reply(call);
    message_write_many(&m, user, code, text, &call->reply);
    call_end_reply(call, from);
}

static void wake(struct batch *b)
{
    struct call *call = call_of(b);
    call->arrived = true;
    grpc_work_first(call);
    conn_wake(&call->conn->conn);
}

static const struct batch_ops ops = {room, told, wake};

_Static_assert(REFUSAL_TEXT + 64 <= MESSAGE_MANY_MAX, "an error fits");

enum call_step call_go_on_many(struct call *call)
{
    struct conn *c = &call->conn->conn;
    if (call->deadline_us != 0 && clock_real_us() >= call->deadline_us) {
        return call_refuse(call, GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
    }
    if (!conn_may_run(c)) {
        return STEP_WAIT;
    }
    size_t before = call->reply.len;
    enum batch_state state = batch_go_on(call->many);
    call->lent = batch_held(call->many);
    call_settle(call); /* at work, so it is only charged */
    if (call->reply.len > before) {
        h2_reply(call);
    }
    if (state == BATCH_WAIT) {
        return STEP_WAIT;
    }
    call->blocked = state == BATCH_FULL;
    call->arrived = state == BATCH_FULL;
    if (state == BATCH_DONE) {
        c->op = OP_FILTER_MANY;
        c->arrived_us = call->arrived_us;
        batch_answered(call->many);
        call_drop_late(call);
        call_count(call);
        call_end(call, GRPC_OK, NULL);
    }
    return STEP_DONE;
}

static int check_reply(const struct call *call, const struct batch *b, struct err *err)
{
    return conn_check_reply(&call->conn->conn, reply_max(b), "a reply", "ask with a limit, or for a bitmap", err);
}

static enum call_step refuse(struct call *call, const struct err *err)
{
    call_drop_late(call);
    call_count(call);
    call_refuse_err(call, err, false);
    return STEP_DONE;
}

enum call_step call_run_many(struct call *call, struct slice bytes)
{
    struct conn *c = &call->conn->conn;
    struct message m = {0};
    struct err err = {0};
    int code = !call_may_read(call)       ? err_set(&err, ERR_NOMEM, "out of memory for the message")
               : service_dedup(c) == NULL ? service_loading(c->worker->pool->service, &err)
                                          : message_read(call->method, bytes, grpc_loop_of(c)->items, &m, &err);
    if (code < 0) {
        return refuse(call, &err);
    }
    m.asked.rq.account = account_now(c->worker->pool->service, &call->login.who);
    m.asked.rq.deadline_us = call->deadline_us;
    enum request_state state = batch_new(c, &m.asked.rq, m.asked.users, m.asked.n_users, &ops, call, &call->many);
    if (state != REQUEST_LATE) {
        return state == REQUEST_WAIT ? STEP_WAIT : refuse(call, m.asked.rq.err);
    }
    if (check_reply(call, call->many, &err) < 0) {
        return refuse(call, &err);
    }
    call->binary = m.binary;
    call->each = reply_max(call->many);
    call->state = CALL_LATE;
    call->arrived = true;
    return STEP_ON;
}
