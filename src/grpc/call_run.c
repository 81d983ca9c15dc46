/* A call's messages: from its bytes to requests of the service, and from their outcomes to replies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/gzip.h"
#include "grpc/server.h"

enum {
    COMPACT = 16 * 1024,     /* bytes of messages that were run are kept before those behind them */
    WINDOW_ASKS = 32 * 1024, /* a message that needs no more opens no window */
};

/* --- replies --- */

static void write_reply(struct call *call, const struct message *m)
{
    size_t from = call_begin_reply(call);
    message_write(m, &call->reply);
    call_end_reply(call, from);
}

/* The request is refused: the call with it, or on a stream this one. */
static void tell_refused(struct call *call, uint64_t tag, const struct err *err, bool write)
{
    if (!call->is_stream) {
        call_refuse_err(call, err, write);
        return;
    }
    char text[REFUSAL_TEXT];
    refusal_text(err, write, text);
    utf8_clean(text);
    call_count_error(call, refusal_of(err->code, write)->word, text);
    size_t from = call_begin_reply(call);
    message_write_refused(tag, (int)refusal_status(err->code), text, &call->reply);
    call_end_reply(call, from);
    h2_reply(call);
}

static void tell_answered(struct call *call, const struct message *m)
{
    if (m->asked.rq.kind == REQUEST_HISTORY && m->asked.rq.history == NULL) {
        call_end(call, GRPC_NOT_FOUND, "nothing is remembered of this user");
        return;
    }
    write_reply(call, m);
    if (call->is_stream) {
        h2_reply(call);
    } else {
        call_end(call, GRPC_OK, NULL);
    }
}

/* --- messages --- */

/* The message at hand was run. */
static void next_message(struct call *call)
{
    size_t size = call->prefix + call->size;
    call->at += size;
    if (call->state == CALL_LATE) {
        call->state = CALL_RECEIVING;
    }
    size_t more = call->unconsumed < size ? call->unconsumed : size;
    if (more > 0) {
        h2_credit(call, more);
    }
    if (call->at >= call->in.len) {
        buf_clear(&call->in);
        call->at = 0;
    } else if (call->at >= COMPACT) {
        call->in.len -= call->at;
        memmove(call->in.data, call->in.data + call->at, call->in.len);
        call->at = 0;
    }
    call->since_ms = call->in.len > call->at ? clock_mono_ms() : call->since_ms;
}

/* A place for all of the message, so that the peer may send it. */
static enum call_step make_room(struct call *call, size_t size)
{
    struct grpc_conn *s = call->conn;
    struct conn *c = &s->conn;
    size_t wanted = call->at + call->prefix + size;
    if (wanted > call->in.cap) {
        size_t more = wanted - call->in.cap;
        enum budget_use use = budget_use_for(&c->worker->pool->budget, wanted);
        if (!conn_has_room(c, use, more) && !conn_is_lent(c, s->held, more)) {
            conn_starve(c, use, more);
            return STEP_WAIT;
        }
        if (buf_reserve(&call->in, wanted - call->in.len) < 0) {
            return call_refuse(call, GRPC_RESOURCE_EXHAUSTED, "out of memory for the message");
        }
        call_settle(call);
    }
    call_set_coming(call, wanted - call->in.len);
    if (call->unconsumed > 0) {
        h2_credit(call, call->unconsumed);
    }
    if (size > WINDOW_ASKS && GRPC_WINDOW + s->coming > (size_t)s->window) {
        h2_window(s, GRPC_WINDOW + s->coming);
    }
    return STEP_DONE;
}

/* Behind the answers that are still to come. */
static enum call_step refuse_bytes(struct call *call, enum grpc_status status, const char *text)
{
    call->blocked = call->n_pending > 0;
    return call->blocked ? STEP_DONE : call_refuse(call, status, text);
}

/* Its end has come before the next message's. */
static enum call_step finish(struct call *call)
{
    bool none = call->at == call->in.len;
    if (!none || !call->is_stream) {
        return refuse_bytes(call, GRPC_INVALID_ARGUMENT, none ? "there is no message" : "the message is cut off");
    }
    if (call->n_pending == 0) {
        call_end(call, GRPC_OK, NULL);
    }
    return STEP_DONE;
}

static size_t message_max(const struct call *call)
{
    size_t most = call->method != NULL ? GRPC_MESSAGE_MAX : GRPC_MESSAGE_NAME_MAX;
    size_t room = budget_request_max(&call->conn->conn.worker->pool->budget);
    return room < most ? room : most;
}

static enum call_step too_large(struct call *call, const char *what)
{
    char text[128];
    snprintf(text, sizeof text, "%s larger than %zu bytes, the most that is taken", what, message_max(call));
    return refuse_bytes(call, GRPC_RESOURCE_EXHAUSTED, text);
}

/* The same of one that is all of the body. */
static enum call_step find_body(struct call *call)
{
    size_t have = call->in.len;
    call->size = call->whole || have > call->length ? have : call->length;
    if (call->size > message_max(call)) {
        return too_large(call, "the message is");
    }
    return call->whole ? STEP_ON : make_room(call, have > call->length ? have + WINDOW_ASKS : call->length);
}

/* STEP_ON: the next message is there, in call->size bytes behind its prefix. */
static enum call_step find_message(struct call *call)
{
    size_t have = call->in.len - call->at;
    if (have < GRPC_PREFIX) {
        return call->whole ? finish(call) : STEP_DONE;
    }
    const uint8_t *at = (const uint8_t *)call->in.data + call->at;
    call->size = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
    if (at[0] > 1) {
        return refuse_bytes(call, GRPC_INVALID_ARGUMENT, "a message does not begin with 0 or 1");
    }
    if (at[0] == 1 && !call->gzip) {
        return refuse_bytes(call, GRPC_INTERNAL, "a message is compressed, but grpc-encoding is missing");
    }
    if (call->size > message_max(call)) {
        return too_large(call, "the message is");
    }
    if (have < GRPC_PREFIX + call->size) {
        return call->whole ? finish(call) : make_room(call, call->size);
    }
    if (!call->is_stream && have > GRPC_PREFIX + call->size) {
        return call_refuse(call, GRPC_INVALID_ARGUMENT, "there is more than one message");
    }
    return call->is_stream || call->whole ? STEP_ON : STEP_DONE;
}

/* --- requests --- */

static struct call *find_late(struct grpc_conn *s, const struct request *late)
{
    struct call *call = s->calls;
    while (call->late != late) {
        call = call->next;
    }
    return call;
}

static void on_done(struct conn *c, struct request *late)
{
    struct grpc_conn *s = grpc_conn_of(c);
    struct call *call = find_late(s, late);
    call->arrived = true;
    grpc_work_first(call);
    conn_wake(c);
}

static void on_recorded(struct call *call, const struct message *m)
{
    call->n_pending++;
    call->pending_bytes += m->asked.rq.bytes;
    grpc_pending_add(call, m->asked.tag, m->asked.rq.count);
    if (!call->is_stream) {
        call->state = CALL_PENDING;
        write_reply(call, m); /* which goes once it is durable */
    }
}

static enum call_step tell(struct call *call, struct message *m, enum request_state state)
{
    struct conn *c = &call->conn->conn;
    switch (state) {
    case REQUEST_WAIT:
        return STEP_WAIT;
    case REQUEST_LATE:
        call->late = m->asked.rq.late;
        call->arrived = false;
        call->lent = m->asked.rq.late_size + message_reply_max(m);
        call->state = CALL_LATE;
        return STEP_DONE;
    case REQUEST_RECORDED:
        on_recorded(call, m);
        break;
    case REQUEST_ANSWERED:
        if (m->asked.rq.err != NULL && call->n_pending > 0 && m->asked.rq.late == NULL) {
            call->blocked = true; /* an error waits for the answers before it */
            return STEP_DONE;
        }
        service_answered(c, &m->asked.rq);
        if (m->asked.rq.err != NULL) {
            tell_refused(call, m->asked.tag, m->asked.rq.err, request_is_write(&m->asked.rq));
        } else {
            tell_answered(call, m);
        }
        break;
    }
    call_count(call);
    service_end(m->asked.rq.late);
    call->late = NULL;
    call->lent = 0;
    next_message(call);
    return STEP_ON;
}

static enum call_step refuse_message(struct call *call, const struct message *m, const struct err *err)
{
    if (call->n_pending > 0) {
        call->blocked = true;
        return STEP_DONE;
    }
    call_drop_late(call);
    call_count(call);
    tell_refused(call, m->asked.tag, err, call->method->kind >= REQUEST_PLAY);
    next_message(call);
    return STEP_ON;
}

bool call_may_read(struct call *call)
{
    struct grpc_loop *l = grpc_loop_of(&call->conn->conn);
    l->items = l->items != NULL ? l->items : malloc(FIELDS_SLICES * sizeof *l->items);
    return l->items != NULL && grpc_pending_room(call->conn);
}

/* What the answer may take goes by the pools, and is refused where it could never be made. */
static int look_at_pools(struct call *call, struct message *m, struct err *err)
{
    struct conn *c = &call->conn->conn;
    request_pools_answer(c, call->late != NULL ? call->late : &m->asked.rq, &m->pool_items, &m->pool_bytes);
    return conn_check_reply(c, GRPC_PREFIX + message_reply_max(m), "the reply", "ask with a limit, or for a bitmap",
                            err);
}

enum call_step call_run_request(struct call *call, struct slice bytes)
{
    struct conn *c = &call->conn->conn;
    struct message m = {0};
    struct err err = {0};
    enum request_kind kind = call->method->kind;
    bool loading = service_dedup(c) == NULL && kind != REQUEST_PLAY && kind != REQUEST_DELIVERY;
    int code = !call_may_read(call) ? err_set(&err, ERR_NOMEM, "out of memory for the message")
               : loading            ? service_loading(c->worker->pool->service, &err)
                                    : message_read(call->method, bytes, grpc_loop_of(c)->items, &m, &err);
    if (code == 0 && m.asked.rq.n_pools > 0 && m.asked.rq.kind == REQUEST_QUESTION) {
        code = look_at_pools(call, &m, &err);
    }
    if (code < 0) {
        return refuse_message(call, &m, &err);
    }
    if (call->late == NULL && !conn_may_reply(c, GRPC_PREFIX + message_reply_max(&m))) { /* else call->lent has it */
        return STEP_WAIT;
    }
    c->op = (int)m.op;
    c->arrived_us = call->arrived_us;
    enum request_state state;
    if (call->late != NULL) {
        struct request *late = call->late;
        struct slice *text;
        for (size_t i = 0; (text = fields_text(late, i)) != NULL; i++) {
            *text = *fields_text(&m.asked.rq, i);
        }
        late->items = m.asked.rq.items;
        state = service_resume(c, late);
        m.asked.rq = *late;
    } else {
        m.asked.rq.done = on_done;
        m.asked.rq.account = account_now(c->worker->pool->service, &call->login.who);
        m.asked.rq.deadline_us = call->deadline_us;
        state = service_submit(c, &m.asked.rq);
    }
    return tell(call, &m, state);
}

/* --- the work --- */

struct inflating {
    struct conn *conn;
    size_t wants;
};

static bool may_hold(void *arg, size_t bytes)
{
    struct inflating *i = arg;
    i->wants = bytes;
    return conn_has_room(i->conn, BUDGET_LARGE, bytes);
}

static enum call_step run_inflated(struct call *call, struct slice packed)
{
    struct buf bytes = {0};
    struct err err = {0};
    struct inflating i = {&call->conn->conn, 0};
    switch (gzip_inflate(packed, message_max(call), may_hold, &i, &bytes, &err)) {
    case 0:
        break;
    case ERR_BUSY:
        conn_starve(i.conn, BUDGET_LARGE, i.wants);
        return STEP_WAIT;
    case ERR_LARGE:
        return too_large(call, "the message, inflated, is");
    case ERR_NOMEM:
        return refuse_bytes(call, GRPC_RESOURCE_EXHAUSTED, "out of memory for the message");
    default:
        err_prefix(&err, "the message");
        return refuse_bytes(call, GRPC_INVALID_ARGUMENT, err.text);
    }
    enum call_step step = call->run(call, buf_slice(&bytes));
    buf_free(&bytes);
    return step;
}

static enum call_step run(struct call *call)
{
    struct slice bytes = slice_str(""); /* a plain body may be nothing at all */
    if (call->size > 0) {
        bytes = slice_of(call->in.data + call->at + call->prefix, call->size);
    }
    bool packed = call->is_plain ? call->gzip : call->in.data[call->at] == 1;
    if (call->deadline_us != 0 && clock_real_us() >= call->deadline_us) {
        return call_refuse(call, GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
    }
    if (!conn_may_run(&call->conn->conn)) {
        return STEP_WAIT;
    }
    return packed ? run_inflated(call, bytes) : call->run(call, bytes);
}

/* A stream whose answers pile up takes no more. */
bool call_is_full(const struct call *call, unsigned share)
{
    return call->pending_bytes > GRPC_PENDING_MAX / share || call->reply.len - call->sent > GRPC_UNREAD_MAX / share;
}

static enum call_step one_step(struct call *call)
{
    bool waits = call->login.pending != NULL || (call->state == CALL_LATE && !call->arrived);
    if (waits || (call->state != CALL_RECEIVING && call->state != CALL_LATE)) {
        return STEP_DONE;
    }
    bool begins = call->state == CALL_RECEIVING;
    call->blocked = call_is_full(call, 1) || (begins && grpc_is_full(call));
    if (call->blocked) {
        return STEP_DONE;
    }
    if (call->many != NULL) {
        return call_go_on_many(call);
    }
    enum call_step found = call->state == CALL_LATE ? STEP_ON : call->is_plain ? find_body(call) : find_message(call);
    return found == STEP_ON ? run(call) : found;
}

bool call_work(struct call *call)
{
    enum call_step step;
    do {
        step = one_step(call);
    } while (step == STEP_ON);
    return step == STEP_DONE;
}

/* Another one was run, which is no request. */
enum call_step call_ran(struct call *call)
{
    call_count(call);
    next_message(call);
    return STEP_ON;
}

void call_recorded(struct call *call, const struct pending *p, size_t bytes, const struct err *err)
{
    call->n_pending--;
    call->pending_bytes -= bytes;
    if (call->state == CALL_ENDED) {
        return;
    }
    if (err->code < 0) {
        tell_refused(call, p->tag, err, true);
    } else if (call->is_stream) {
        struct message m = {.asked.tag = p->tag, .asked.rq = {.kind = call->method->kind, .count = p->count}};
        write_reply(call, &m);
        h2_reply(call);
    } else {
        call_end(call, GRPC_OK, NULL);
    }
    if (call->n_pending == 0 ? call->blocked || call->whole : call->blocked && !call_is_full(call, 2)) {
        grpc_work_add(call);
    }
}
