/* The life of a call; call_begin.c, call_run.c and services.c say what it is about. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "grpc/server.h"
#include "grpc/status.h"
#include "grpc/unary.h"
#include "service/refusal.h"

enum {
    SPARE_MAX = 64,         /* calls that a worker keeps for next time */
    SPARE_IN = 16 * 1024,   /* and so much memory for what comes of each, */
    SPARE_REPLY = 4 * 1024, /* and for what goes */
};

/* --- memory --- */

static void account(struct call *call)
{
    struct grpc_conn *s = call->conn;
    size_t held = sizeof *call + call->in.cap + call->reply.cap + call->text.cap + call->authorization.cap + call->lent;
    size_t owed = call->reply.cap + call->lent + (call->many != NULL ? call->each : 0);
    s->held = s->held + held - call->held;
    s->owed = s->owed + owed - call->owed;
    call->held = held;
    call->owed = owed;
    grpc_charge(s);
}

void call_set_coming(struct call *call, size_t bytes)
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
    worker_count(s->conn.worker, COUNT_GRPC_CALLS, 1);
    worker_count(s->conn.worker, COUNT_GRPC_OPEN, 1);
    account(call);
    return call;
}

/* A large one goes back whole. Cut in its place, it would be new pages, zeroed, for each message. */
static void empty_input(struct call *call)
{
    if (call->in.cap > SPARE_IN) {
        buf_free(&call->in);
    }
    buf_clear(&call->in);
}

void call_free(struct call *call)
{
    struct grpc_conn *s = call->conn;
    struct grpc_loop *l = grpc_loop_of(&s->conn);
    worker_count(s->conn.worker, COUNT_GRPC_OPEN, (uint64_t)-1);
    call_drop_late(call);
    account_cancel(&call->login);
    call_set_coming(call, 0);
    s->held -= call->held;
    s->owed -= call->owed;
    *(call->prev != NULL ? &call->prev->next : &s->calls) = call->next;
    if (call->next != NULL) {
        call->next->prev = call->prev;
    }
    buf_free(&call->text);
    buf_free(&call->authorization);
    empty_input(call);
    buf_clear(&call->reply);
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
    if (call->stream == 0 && call->late == NULL && call->many == NULL && call->n_pending == 0 && !call->at_work) {
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
    call_set_coming(call, 0);
    empty_input(call);
    call->at = 0;
}

void call_end(struct call *call, enum grpc_status status, const char *text)
{
    if (call->state == CALL_ENDED) {
        return;
    }
    account_cancel(&call->login);
    call->state = CALL_ENDED;
    call->status = status;
    if (call->is_plain && status != GRPC_OK) {
        buf_clear(&call->reply);
        unary_write_error(status, text, &call->reply);
    } else if (text != NULL) {
        status_message(text, &call->text);
    }
    drop_input(call);
    call->since_ms = clock_mono_ms();
    h2_reply(call);
}

void call_count_error(struct call *call, const char *word, const char *text)
{
    char line[REFUSAL_TEXT + 32];
    int len = snprintf(line, sizeof line, "%s %s", word, text);
    struct conn *c = &call->conn->conn;
    worker_count(c->worker, COUNT_ERRORS, 1);
    worker_count(c->worker, COUNT_GRPC_ERRORS, 1);
    meter_error(&service_of(c)->meter, slice_of(line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1));
}

void call_count(struct call *call)
{
    worker_count(call->conn->conn.worker, COUNT_COMMANDS, 1);
    worker_count(call->conn->conn.worker, COUNT_GRPC_MESSAGES, 1);
}

/* A reply of which nothing was told is taken back; what has begun to leave is good. */
static void take_back(struct call *call)
{
    if (!call->headers_sent) {
        buf_clear(&call->reply);
    }
}

void call_drop_late(struct call *call)
{
    service_end(call->late);
    batch_end(call->many);
    call->late = NULL;
    call->many = NULL;
    call->lent = 0;
}

enum call_step call_refuse(struct call *call, enum grpc_status status, const char *text)
{
    if (call->state != CALL_ENDED) {
        call_drop_late(call);
        take_back(call);
        call_count_error(call, "ERR", text);
        call_count(call);
        call_end(call, status, text);
    }
    return STEP_DONE;
}

void call_refuse_err(struct call *call, const struct err *err, bool write)
{
    char text[REFUSAL_TEXT];
    refusal_text(err, write, text);
    utf8_clean(text);
    call_count_error(call, refusal_of(err->code, write)->word, text);
    take_back(call);
    call_end(call, refusal_status(err->code), text);
}

/* --- replies --- */

size_t call_begin_reply(struct call *call)
{
    static const char none[GRPC_PREFIX] = {0};
    if (call->reply.len == call->sent) {
        call->since_ms = clock_mono_ms();
    }
    buf_add(&call->reply, none, call->prefix);
    return call->reply.len;
}

void call_end_reply(struct call *call, size_t from)
{
    if (!call->reply.failed && call->prefix > 0) {
        size_t n = call->reply.len - from;
        uint8_t *at = (uint8_t *)call->reply.data + from - GRPC_PREFIX;
        at[1] = (uint8_t)(n >> 24);
        at[2] = (uint8_t)(n >> 16);
        at[3] = (uint8_t)(n >> 8);
        at[4] = (uint8_t)n;
    }
}

/* --- what comes --- */

void call_data(struct call *call, struct slice bytes)
{
    if (call->in.len == call->at) {
        call->since_ms = clock_mono_ms();
    }
    if (buf_add(&call->in, bytes.data, bytes.len) < 0) {
        call_refuse(call, GRPC_RESOURCE_EXHAUSTED, "out of memory for the message");
        return;
    }
    call_set_coming(call, call->coming > bytes.len ? call->coming - bytes.len : 0);
    call->arrived_us = call->state == CALL_RECEIVING ? call->conn->conn.arrived_us : call->arrived_us;
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
    account_cancel(&call->login);
    call_drop_late(call);
    if (call->state != CALL_ENDED) {
        call->state = CALL_ENDED;
        drop_input(call);
    }
    call_settle(call);
}

/* --- time --- */

/* What comes, and what goes, may take its time; less of it while others wait for the memory. */
static bool is_slow(const struct call *call, size_t bytes, int64_t now)
{
    const struct conn *c = &call->conn->conn;
    int64_t passed = now - call->since_ms;
    bool wanted = bytes > 0 && budget_load(&c->worker->pool->budget.waiting) > 0;
    int64_t least = CONN_PATIENCE_SHORT_MS + (int64_t)(bytes / (CONN_RATE_LEAST * 1024)) * 1000;
    return passed >= CONN_PATIENCE_MS || (wanted && passed >= least);
}

void call_tick(struct call *call, int64_t now)
{
    size_t half = call->in.len - call->at, unread = call->reply.len - call->sent;
    if (call->state == CALL_ENDED) {
        if (call->stream != 0 && is_slow(call, unread, now)) {
            h2_cancel(call);
        }
    } else if (call->deadline_us != 0 && clock_real_us() >= call->deadline_us) {
        call_refuse(call, GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
    } else if (call->state == CALL_WATCHING) {
        call_look(call);
    } else if ((call->state == CALL_RECEIVING || call->blocked) && unread > 0) {
        if (is_slow(call, unread, now)) {
            h2_cancel(call);
        }
    } else if (call->state == CALL_RECEIVING && half > 0) {
        if (call->at_work || call->blocked || call->login.pending != NULL) {
            call->since_ms = now; /* it is we who take the time */
        } else if (is_slow(call, half, now)) {
            call_refuse(call, GRPC_DEADLINE_EXCEEDED, "the message did not come whole in time");
        }
    }
}

/* A message that is whole is still answered. */
void call_drain(struct call *call)
{
    if (call->state == CALL_WATCHING) {
        call_look(call);
    }
    bool idle = call->state == CALL_RECEIVING && call->n_pending == 0 && !call->at_work && call->login.pending == NULL;
    if (idle || call->state == CALL_WATCHING) {
        call_end(call, GRPC_UNAVAILABLE, "server is shutting down");
    }
}
