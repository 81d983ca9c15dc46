/* A call: what comes of it, message by message.
 *
 * A unary call's one message is run once its end has come; a stream's are run as they come, each handed to the service
 * before the one before it is durable, and answered in their order. An error is told behind the answers before it.
 *
 * A call that its peer gave up, or whose deadline has passed, is ended at once; what the service still does of it goes
 * on, and its outcome is dropped: so a write may have become durable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "grpc/server.h"
#include "service/refusal.h"

enum {
    SPARE_MAX = 64,         /* calls that a worker keeps for next time */
    SPARE_IN = 16 * 1024,   /* and so much memory for what comes of each, */
    SPARE_REPLY = 4 * 1024, /* and for what goes */
    WINDOW_ASKS = 32 * 1024,
    MESSAGE_LATE_MS = CONN_PATIENCE_MS,
};

/* --- memory --- */

static void account(struct call *call)
{
    struct grpc_conn *s = call->conn;
    size_t held = sizeof *call + call->in.cap + call->reply.cap + call->text.cap + call->authorization.cap + call->lent;
    s->held = s->held + held - call->held;
    call->held = held;
    grpc_charge(s);
}

static void set_coming(struct call *call, size_t bytes)
{
    call->conn->coming = call->conn->coming + bytes - call->coming;
    call->coming = bytes;
}

struct call *call_new(struct grpc_conn *s, int32_t stream)
{
    struct grpc_loop *l = grpc_loop_of(&s->conn);
    struct call *call = l->spare;
    struct buf in = {0}, reply = {0};
    if (call != NULL) {
        l->spare = call->next;
        l->n_spare--;
        in = call->in;
        reply = call->reply;
    } else if ((call = malloc(sizeof *call)) == NULL) {
        return NULL;
    }
    *call = (struct call){.conn = s, .stream = stream, .in = in, .reply = reply, .next = s->calls};
    if (s->calls != NULL) {
        s->calls->prev = call;
    }
    s->calls = call;
    account(call);
    return call;
}

void call_free(struct call *call)
{
    struct grpc_conn *s = call->conn;
    struct grpc_loop *l = grpc_loop_of(&s->conn);
    service_end(call->late);
    set_coming(call, 0);
    s->held -= call->held;
    *(call->prev != NULL ? &call->prev->next : &s->calls) = call->next;
    if (call->next != NULL) {
        call->next->prev = call->prev;
    }
    buf_free(&call->text);
    buf_free(&call->authorization);
    buf_clear(&call->in);
    buf_clear(&call->reply);
    buf_shrink(&call->in, SPARE_IN);
    buf_shrink(&call->reply, SPARE_REPLY);
    call->in.failed = call->reply.failed = false;
    if (l->n_spare < SPARE_MAX) {
        call->next = l->spare;
        l->spare = call;
        l->n_spare++;
    } else {
        buf_free(&call->in);
        buf_free(&call->reply);
        free(call);
    }
}

void call_drop_spare(struct grpc_loop *l)
{
    while (l->spare != NULL) {
        struct call *call = l->spare;
        l->spare = call->next;
        buf_free(&call->in);
        buf_free(&call->reply);
        free(call);
    }
}

void call_settle(struct call *call)
{
    if (call->stream == 0 && call->late == NULL && call->n_pending == 0 && !call->at_work) {
        call_free(call);
    } else {
        account(call);
    }
}

/* --- its end --- */

/* What came of it is not needed any more. */
static void drop_input(struct call *call)
{
    if (call->unconsumed > 0) {
        h2_credit(call, call->unconsumed);
    }
    set_coming(call, 0);
    buf_clear(&call->in);
    buf_shrink(&call->in, SPARE_IN);
    call->at = 0;
}

static void end(struct call *call, enum grpc_status status, const char *text)
{
    if (call->state == CALL_ENDED) {
        return;
    }
    call->state = CALL_ENDED;
    call->status = status;
    if (text != NULL) {
        status_message(text, &call->text);
    }
    drop_input(call);
    call->moved_ms = clock_mono_ms();
    if (call->reply.failed || call->text.failed) {
        h2_cancel(call);
    } else {
        h2_reply(call);
    }
}

static void count_error(struct call *call, const char *word, const char *text)
{
    char line[REFUSAL_TEXT + 32];
    int len = snprintf(line, sizeof line, "%s %s", word, text);
    struct conn *c = &call->conn->conn;
    worker_count(c->worker, COUNT_ERRORS, 1);
    meter_error(&service_of(c)->meter, slice_of(line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1));
}

/* What is no request of the service. */
static void refuse(struct call *call, enum grpc_status status, const char *text)
{
    buf_clear(&call->reply);
    count_error(call, "ERR", text);
    worker_count(call->conn->conn.worker, COUNT_COMMANDS, 1);
    end(call, status, text);
}

static void too_late(struct call *call)
{
    refuse(call, GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
}

/* --- replies --- */

static size_t begin_reply(struct call *call)
{
    static const char none[GRPC_PREFIX] = {0};
    buf_add(&call->reply, none, sizeof none);
    return call->reply.len;
}

static void end_reply(struct call *call, size_t from)
{
    if (!call->reply.failed) {
        size_t n = call->reply.len - from;
        uint8_t *at = (uint8_t *)call->reply.data + from - GRPC_PREFIX;
        at[1] = (uint8_t)(n >> 24);
        at[2] = (uint8_t)(n >> 16);
        at[3] = (uint8_t)(n >> 8);
        at[4] = (uint8_t)n;
    }
}

static void write_reply(struct call *call, const struct message *m)
{
    size_t from = begin_reply(call);
    message_write(call->method, m, &call->reply);
    end_reply(call, from);
}

/* The request is refused: the call with it, or on a stream this one. */
static void tell_refused(struct call *call, uint64_t tag, const struct err *err, bool write)
{
    char text[REFUSAL_TEXT];
    const struct refusal *r = refusal_of(err->code, write);
    refusal_text(err, write, text);
    utf8_clean(text);
    count_error(call, r->word, text);
    if (call->method->is_stream) {
        size_t from = begin_reply(call);
        message_write_refused(tag, (int)refusal_status(err->code), text, &call->reply);
        end_reply(call, from);
        h2_reply(call);
    } else {
        buf_clear(&call->reply);
        end(call, refusal_status(err->code), text);
    }
}

static void tell_answered(struct call *call, const struct message *m)
{
    if (m->rq.kind == REQUEST_HISTORY && m->rq.history == NULL) {
        end(call, GRPC_NOT_FOUND, "nothing is remembered of this user");
        return;
    }
    write_reply(call, m);
    if (call->method->is_stream) {
        h2_reply(call);
    } else {
        end(call, GRPC_OK, NULL);
    }
}

/* --- messages --- */

enum step {
    STEP_ON,   /* goes on with the next message */
    STEP_DONE, /* nothing is left to do for now */
    STEP_WAIT, /* nothing can be done: the connection waits */
};

/* The message at hand was run. */
static void next_message(struct call *call)
{
    size_t size = GRPC_PREFIX + call->size;
    call->at += size;
    if (call->state == CALL_READY || call->state == CALL_LATE) {
        call->state = CALL_RECEIVING;
    }
    size_t more = call->unconsumed < size ? call->unconsumed : size;
    if (more > 0) {
        h2_credit(call, more);
    }
    if (call->at >= call->in.len) {
        buf_clear(&call->in);
        call->at = 0;
    } else if (call->at >= SPARE_IN) {
        call->in.len -= call->at;
        memmove(call->in.data, call->in.data + call->at, call->in.len);
        call->at = 0;
    }
}

/* A place for all of the message, so that the peer may send it. */
static enum step make_room(struct call *call, size_t size)
{
    struct grpc_conn *s = call->conn;
    struct conn *c = &s->conn;
    size_t wanted = call->at + GRPC_PREFIX + size;
    if (wanted > call->in.cap) {
        size_t more = wanted - call->in.cap;
        enum budget_use use = wanted > budget_large(&c->worker->pool->budget) ? BUDGET_LARGE : BUDGET_REQUEST;
        if (!conn_has_room(c, use, more)) {
            conn_starve(c, use, more);
            return STEP_WAIT;
        }
        if (buf_reserve(&call->in, wanted - call->in.len) < 0) {
            refuse(call, GRPC_RESOURCE_EXHAUSTED, "out of memory for the message");
            return STEP_DONE;
        }
        account(call);
    }
    set_coming(call, wanted - call->in.len);
    if (call->unconsumed > 0) {
        h2_credit(call, call->unconsumed);
    }
    if (size > WINDOW_ASKS && GRPC_WINDOW + s->coming > (size_t)s->window) {
        h2_window(s, GRPC_WINDOW + s->coming);
    }
    return STEP_DONE;
}

static enum step cut_off(struct call *call)
{
    bool none = call->at == call->in.len;
    if (none && call->kind != CALL_UNARY) {
        if (call->n_pending == 0 && call->kind != CALL_WATCH) {
            end(call, GRPC_OK, NULL);
        }
    } else {
        refuse(call, GRPC_INVALID_ARGUMENT, none ? "there is no message" : "the message is cut off");
    }
    return STEP_DONE;
}

static size_t message_max(const struct call *call)
{
    size_t most = budget_request_max(&call->conn->conn.worker->pool->budget);
    return most < GRPC_MESSAGE_MAX ? most : GRPC_MESSAGE_MAX;
}

/* STEP_ON: the next message is there, in call->size bytes behind its prefix. */
static enum step find_message(struct call *call)
{
    const uint8_t *at = (const uint8_t *)call->in.data + call->at;
    size_t have = call->in.len - call->at;
    if (have < GRPC_PREFIX) {
        return call->whole ? cut_off(call) : STEP_DONE;
    }
    call->size = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
    if (at[0] > 1) {
        refuse(call, GRPC_INVALID_ARGUMENT, "a message does not begin with a prefix: expected a byte of 0 or 1");
    } else if (at[0] == 1 && !call->gzip) {
        refuse(call, GRPC_INVALID_ARGUMENT, "a message is marked as compressed, but there is no grpc-encoding");
    } else if (call->size > message_max(call)) {
        char text[128];
        snprintf(text, sizeof text, "a message of %zu bytes is larger than %zu, the most that is taken", call->size,
                 message_max(call));
        refuse(call, GRPC_RESOURCE_EXHAUSTED, text);
    } else if (have < GRPC_PREFIX + call->size) {
        return call->whole ? cut_off(call) : make_room(call, call->size);
    } else if (call->kind == CALL_UNARY && have > GRPC_PREFIX + call->size) {
        refuse(call, GRPC_INVALID_ARGUMENT, "there is more than one message");
    } else {
        return call->kind == CALL_UNARY && !call->whole ? STEP_DONE : STEP_ON;
    }
    return STEP_DONE;
}

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
    if (call->state == CALL_ENDED) { /* nobody waits for it */
        service_end(late);
        call->late = NULL;
        call->lent = 0;
        call_settle(call);
        grpc_charge(s);
        return;
    }
    grpc_work_add(call);
    conn_kick(c);
}

static void on_recorded(struct call *call, const struct message *m)
{
    call->n_pending++;
    call->pending_bytes += m->rq.bytes;
    grpc_pending_add(call, m->tag, m->rq.count);
    if (!call->method->is_stream) {
        call->state = CALL_PENDING;
        write_reply(call, m); /* which goes once it is durable */
    }
}

static enum step tell(struct call *call, struct message *m, enum request_state state)
{
    struct conn *c = &call->conn->conn;
    switch (state) {
    case REQUEST_WAIT:
        return STEP_WAIT;
    case REQUEST_LATE:
        call->late = m->rq.late;
        call->arrived = false;
        call->lent = m->rq.late_size + message_reply_max(m);
        call->state = CALL_LATE;
        return STEP_DONE;
    case REQUEST_RECORDED:
        on_recorded(call, m);
        break;
    case REQUEST_ANSWERED:
        if (m->rq.err != NULL && call->n_pending > 0) {
            call->blocked = true; /* an error waits for the answers before it */
            return STEP_DONE;
        }
        service_answered(c, &m->rq);
        if (m->rq.err != NULL) {
            tell_refused(call, m->tag, m->rq.err, request_is_write(&m->rq));
        } else {
            tell_answered(call, m);
        }
        break;
    }
    worker_count(c->worker, COUNT_COMMANDS, 1);
    service_end(m->rq.late);
    call->late = NULL;
    call->lent = 0;
    next_message(call);
    return STEP_ON;
}

static enum step refuse_message(struct call *call, const struct message *m, const struct err *err)
{
    if (call->n_pending > 0) {
        call->blocked = true;
        return STEP_DONE;
    }
    worker_count(call->conn->conn.worker, COUNT_COMMANDS, 1);
    tell_refused(call, m->tag, err, call->method->kind >= REQUEST_PLAY);
    next_message(call);
    return STEP_ON;
}

static bool find_items(struct call *call)
{
    struct grpc_loop *l = grpc_loop_of(&call->conn->conn);
    l->items = l->items != NULL ? l->items : malloc(ITEMS_MAX * sizeof *l->items);
    return l->items != NULL && grpc_pending_room(call->conn);
}

static enum step run_request(struct call *call, struct slice bytes)
{
    struct conn *c = &call->conn->conn;
    struct message m = {0};
    struct err err = {0};
    int code = !find_items(call)          ? err_set(&err, ERR_NOMEM, "out of memory for the message")
               : service_dedup(c) == NULL ? (err.code = ERR_LOADING)
                                          : message_read(call->method, bytes, grpc_loop_of(c)->items, &m, &err);
    if (code < 0) {
        return refuse_message(call, &m, &err);
    }
    if (!conn_may_reply(c, GRPC_PREFIX + message_reply_max(&m))) {
        return STEP_WAIT;
    }
    c->op = (int)m.op;
    c->arrived_us = call->arrived_us;
    enum request_state state;
    if (call->late != NULL) {
        struct request *late = call->late;
        late->user = m.rq.user;
        late->session = m.rq.session;
        late->items = m.rq.items;
        state = service_resume(c, late);
        m.rq = *late;
    } else {
        m.rq.done = on_done;
        m.rq.deadline_us = call->deadline_us;
        state = service_submit(c, &m.rq);
    }
    return tell(call, &m, state);
}

static enum step run(struct call *call)
{
    struct slice bytes = slice_of(call->in.data + call->at + GRPC_PREFIX, call->size);
    if (call->in.data[call->at] == 1) {
        refuse(call, GRPC_UNIMPLEMENTED, "gzip");
        return STEP_DONE;
    }
    return run_request(call, bytes);
}

/* A stream whose answers pile up takes no more. */
static bool is_full(const struct call *call, unsigned share)
{
    return call->pending_bytes > GRPC_PENDING_MAX / share || call->reply.len - call->sent > GRPC_UNREAD_MAX / share;
}

static enum step one_step(struct call *call)
{
    if (call->state == CALL_ENDED || call->state == CALL_PENDING || (call->late != NULL && !call->arrived)) {
        return STEP_DONE;
    }
    call->blocked = is_full(call, 1);
    if (call->blocked) {
        return STEP_DONE;
    }
    if (call->late == NULL) {
        enum step found = find_message(call);
        if (found != STEP_ON) {
            return found;
        }
    }
    if (call->deadline_us != 0 && clock_stopwatch_us() >= call->deadline_us) {
        too_late(call);
        return STEP_DONE;
    }
    call->state = CALL_READY;
    return conn_may_run(&call->conn->conn) ? run(call) : STEP_WAIT;
}

bool call_work(struct call *call)
{
    enum step step;
    do {
        step = one_step(call);
    } while (step == STEP_ON);
    account(call);
    return step == STEP_DONE;
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
    } else if (call->method->is_stream) {
        struct message m = {.tag = p->tag, .rq = {.kind = call->method->kind, .count = p->count}};
        write_reply(call, &m);
        h2_reply(call);
    } else {
        end(call, GRPC_OK, NULL);
    }
    if (call->n_pending == 0 ? call->blocked || call->whole : call->blocked && !is_full(call, 2)) {
        grpc_work_add(call);
    }
}

/* --- what comes --- */

static const struct {
    const char *path;
    enum call_kind kind;
} paths[] = {
    {"/" GRPC_SERVICE "/", CALL_UNARY},
};

static void find_method(struct call *call, struct slice path)
{
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        size_t n = strlen(paths[i].path);
        if (path.len > n && memcmp(path.data, paths[i].path, n) == 0) {
            call->method = method_find(slice_of(path.data + n, path.len - n));
            call->kind = call->method != NULL && call->method->is_stream ? CALL_STREAM : paths[i].kind;
            return;
        }
    }
}

static bool is_word(struct slice text, const char *word)
{
    return slice_eq(text, slice_str(word));
}

/* application/grpc, application/grpc+proto, application/grpc;charset=utf-8 */
static bool is_grpc(struct slice type)
{
    static const char want[] = "application/grpc";
    size_t n = sizeof want - 1;
    struct slice rest = slice_of(type.data + n, type.len - n);
    return type.len >= n && memcmp(type.data, want, n) == 0 &&
           (rest.len == 0 || rest.data[0] == ';' || is_word(rest, "+proto"));
}

void call_header(struct call *call, struct slice name, struct slice value)
{
    if (is_word(name, ":method")) {
        call->is_post = is_word(value, "POST");
    } else if (is_word(name, ":path")) {
        find_method(call, value);
    } else if (is_word(name, "content-type")) {
        call->is_grpc = is_grpc(value);
    } else if (is_word(name, "grpc-encoding")) {
        call->gzip = is_word(value, "gzip");
        call->unknown_encoding = !call->gzip && !is_word(value, "identity");
    } else if (is_word(name, "grpc-timeout")) {
        call->bad_timeout = status_timeout(value, &call->timeout_us) < 0;
        call->has_timeout = true;
    } else if (is_word(name, "authorization") && value.len <= GRPC_AUTHORIZATION_MAX) {
        buf_add(&call->authorization, value.data, value.len);
    }
}

void call_begin(struct call *call)
{
    struct grpc_conn *s = call->conn;
    call->arrived_us = s->conn.arrived_us;
    call->moved_ms = clock_mono_ms();
    call->deadline_us = call->has_timeout ? call->arrived_us + call->timeout_us : 0;
    if (!call->is_post || !call->is_grpc) {
        call->refused = call->is_post ? 415 : 405;
        refuse(call, GRPC_UNKNOWN, "no call of gRPC");
    } else if (call->method == NULL) {
        refuse(call, GRPC_UNIMPLEMENTED, "there is no such method");
    } else if (call->bad_timeout) {
        refuse(call, GRPC_INVALID_ARGUMENT, "grpc-timeout is no time, expected up to 8 digits and H, M, S, m, u or n");
    } else if (call->unknown_encoding) {
        refuse(call, GRPC_UNIMPLEMENTED, "grpc-encoding is not known, expected identity or gzip");
    } else if (s->draining) {
        refuse(call, GRPC_UNAVAILABLE, "the server is stopping");
    }
    s->conn.trusted = true;
    room_spoke(&s->conn);
}

void call_data(struct call *call, struct slice bytes)
{
    if (buf_add(&call->in, bytes.data, bytes.len) < 0) {
        refuse(call, GRPC_RESOURCE_EXHAUSTED, "out of memory for the message");
        return;
    }
    set_coming(call, call->coming > bytes.len ? call->coming - bytes.len : 0);
    call->arrived_us = call->state == CALL_RECEIVING ? call->conn->conn.arrived_us : call->arrived_us;
    call->moved_ms = clock_mono_ms();
    grpc_work_add(call);
}

void call_whole(struct call *call)
{
    call->whole = true;
    grpc_work_add(call);
}

void call_gone(struct call *call)
{
    call->stream = 0;
    if (call->state != CALL_ENDED) {
        call->state = CALL_ENDED;
        drop_input(call);
    }
    call_settle(call);
}

/* --- time --- */

void call_tick(struct call *call, int64_t now)
{
    const struct conn *c = &call->conn->conn;
    bool wanted = budget_load(&c->worker->pool->budget.waiting) > 0 && call->held > sizeof *call;
    int64_t patience = wanted ? CONN_PATIENCE_SHORT_MS : CONN_PATIENCE_MS;
    bool stuck = now - call->moved_ms >= patience;
    if (call->state == CALL_ENDED) {
        if (stuck && call->stream != 0) {
            h2_cancel(call);
        }
    } else if (call->deadline_us != 0 && clock_stopwatch_us() >= call->deadline_us) {
        too_late(call);
    } else if (call->state == CALL_RECEIVING && stuck && call->in.len > call->at && !call->blocked) {
        refuse(call, GRPC_DEADLINE_EXCEEDED, "the message did not come whole in time");
    }
}

void call_drain(struct call *call)
{
    if (call->state == CALL_RECEIVING && call->n_pending == 0 && !call->at_work) {
        refuse(call, GRPC_UNAVAILABLE, "server is shutting down");
    }
}
