#include "resp/client.h"
#include "resp/args.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "resp/command.h"
#include "service/refusal.h"
#include "service/slowlog.h"

static struct resp_client *client_of(struct conn *c)
{
    return (struct resp_client *)c;
}

static void on_open(struct conn *c)
{
    struct resp_client *s = client_of(c);
    parser_init(&s->parser);
    s->writer = (struct writer){&c->out, 2};
    c->name = s->name;
}

const struct account *resp_client_account(struct resp_client *s)
{
    const struct account *account = account_now(s->conn.worker->pool->service, &s->who);
    s->conn.trusted = account != NULL;
    return account;
}

static void on_gone(struct conn *c)
{
    struct resp_client *s = client_of(c);
    service_end(s->late);
    s->late = NULL;
}

static void on_close(struct conn *c)
{
    struct resp_client *s = client_of(c);
    service_end(s->late);
    parser_free(&s->parser);
    buf_free(&s->reply);
    buf_free(&s->queue);
}

/* Room for a large request's arguments is kept once a worker, not once a connection. */
static void borrow_args(struct resp_client *s)
{
    struct worker *w = s->conn.worker;
    if (s->parser.args == NULL) {
        s->parser.args = w->args;
        s->parser.args_cap = w->args_cap;
        w->args = NULL;
        w->args_cap = 0;
    }
}

static void return_args(struct resp_client *s)
{
    struct worker *w = s->conn.worker;
    if (s->parser.args_cap > w->args_cap) {
        free(w->args);
        w->args = s->parser.args;
        w->args_cap = s->parser.args_cap;
    } else {
        free(s->parser.args);
    }
    s->parser.args = NULL;
    s->parser.args_cap = 0;
}

static struct slice source(const struct resp_client *s)
{
    if (s->replaying) {
        return slice_of(s->queue.data + s->queue_at, s->queue.len - s->queue_at);
    }
    return s->conn.input;
}

static void forget_parsed(struct resp_client *s)
{
    s->ready = false;
    parser_next(&s->parser);
    return_args(s);
}

static void drop_request(struct resp_client *s)
{
    size_t used = s->parser.used;
    forget_parsed(s);
    if (!s->from_queue) {
        conn_consume(&s->conn, used);
        return;
    }
    s->queue_at += used;
    if (s->queue_at == s->queue.len) {
        resp_client_end_multi(s);
    }
}

/* What EXEC goes through was taken in by the limit of its time. */
static size_t request_max(const struct resp_client *s)
{
    return s->replaying ? PARSER_BYTES_MAX : budget_request_max(&s->conn.worker->pool->budget);
}

/* Whether there is one: whole, or so bad that only an error is left to say. */
static bool next_request(struct resp_client *s)
{
    for (;;) {
        struct slice in = source(s);
        s->from_queue = s->replaying;
        if (parser_fresh(&s->parser)) {
            s->parser.bytes_max = request_max(s);
            s->parser.guarded = !s->conn.trusted && resp_client_account(s) == NULL;
        }
        borrow_args(s);
        enum parse_result result = parser_feed(&s->parser, in.data, in.len);
        if (result == PARSE_MORE) {
            s->conn.need = s->parser.need;
            if (s->conn.looking || in.len <= CONN_HEAD) { /* begun again then, rather than holding room for arguments */
                forget_parsed(s);
            }
            return false;
        }
        if (result == PARSE_BAD || s->parser.count > 0) {
            return true;
        }
        drop_request(s);
    }
}

/* Whether the reply is an error. */
static bool count_error(struct resp_client *s, size_t before)
{
    const struct buf *out = &s->conn.out;
    if (out->len <= before || out->data[before] != '-') {
        return false;
    }
    worker_count(s->conn.worker, COUNT_ERRORS, 1);
    meter_error(&service_of(&s->conn)->meter, slice_of(out->data + before + 1, out->len - before - 1));
    return true;
}

atomic_size_t resp_client_overruns;

int64_t resp_client_measure(struct resp_client *s, size_t before)
{
    if (s->conn.out.len > before + REPLY_LEAST && s->conn.out.len - before > s->reply_most) {
        atomic_fetch_add_explicit(&resp_client_overruns, 1, memory_order_relaxed);
    }
    int64_t us = clock_figures_us() - s->conn.arrived_us;
    enum meter_end end = !count_error(s, before) ? METER_DONE : s->rejected ? METER_REJECTED : METER_FAILED;
    meter_note(&service_of(&s->conn)->meter, (enum op)s->conn.op, us, 1, end);
    return us;
}

/* Not of what may hold a password; and of requests that came in one read, the first, as the recorder does. */
static void note_if_slow(struct resp_client *s, int64_t us)
{
    const struct parser *p = &s->parser;
    bool wanted = s->slow_us != s->conn.arrived_us && slowlog_wants(&s->conn, us);
    const struct command *cmd = wanted ? command_find(p->args[0]) : NULL;
    if (cmd != NULL && (cmd->role & ROLE_ANYBODY) == 0) {
        struct buf args = {0};
        resp_client_keep_args(s, &args);
        slowlog_note(&s->conn, us, &args);
        s->slow_us = s->conn.arrived_us;
    }
}

void resp_client_keep_args(const struct resp_client *s, struct buf *args)
{
    const struct parser *p = &s->parser;
    for (size_t i = 0; i < p->n && slowlog_add_arg(args, i, p->n, p->args[i]); i++) {
    }
}

static enum outcome protocol_error(struct resp_client *s)
{
    if (s->pending > 0) {
        return OUTCOME_AGAIN;
    }
    static struct log_limit limit;
    size_t before = s->conn.out.len;
    worker_count(s->conn.worker, COUNT_PROTOCOL_ERRORS, 1);
    conn_log(&s->conn, log_again(&limit) ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "no RESP client", s->parser.error);
    write_error(&s->writer, s->parser.error);
    count_error(s, before);
    conn_finish(&s->conn);
    return OUTCOME_ANSWERED;
}

static enum outcome resume(struct resp_client *s);

static enum outcome run_request(struct resp_client *s)
{
    struct parser *p = &s->parser;
    size_t before = s->conn.out.len;
    if (!conn_may_reply(&s->conn, s->late != NULL ? s->reply_most : REPLY_LEAST)) { /* an error, or what MULTI says */
        return OUTCOME_AGAIN;
    }
    enum outcome outcome;
    if (s->late != NULL) {
        outcome = resume(s);
    } else {
        s->conn.op = OP_OTHER;
        s->rejected = false;
        if (p->error != NULL) {
            return protocol_error(s);
        }
        outcome = command_dispatch(s, p->args, p->n, p->count);
    }
    if (s->conn.silent && s->conn.trusted) {
        room_spoke(&s->conn);
    }
    if (outcome != OUTCOME_AGAIN && outcome != OUTCOME_LATE) {
        worker_count(s->conn.worker, COUNT_COMMANDS, 1);
    }
    if (outcome == OUTCOME_ANSWERED) {
        note_if_slow(s, resp_client_measure(s, before));
    }
    return outcome;
}

static void on_input(struct conn *c)
{
    struct resp_client *s = client_of(c);
    if (s->ready) {
        parser_moved(&s->parser, source(s).data);
    }
    while (!s->waiting && conn_may_run(c)) {
        if (!s->ready && !next_request(s)) {
            break;
        }
        s->ready = true;
        s->too_deep = false;
        enum outcome outcome = run_request(s);
        if (outcome == OUTCOME_AGAIN) {
            break;
        }
        s->waiting = outcome == OUTCOME_LATER || outcome == OUTCOME_LATE;
        s->lent += s->waiting ? s->reply_most : 0;
        if (outcome != OUTCOME_LATE) {
            drop_request(s);
        }
    }
    c->paused = s->waiting || s->ready;
    if (s->ready && c->looking) {
        forget_parsed(s); /* the same while it waits: args may take several times what it does */
    }
    c->extra = parser_args_bytes(&s->parser, c->in.cap) + s->parser.line.cap + s->queue.cap + s->reply.cap + s->lent +
               (s->late != NULL ? s->late->late_size : 0);
}

/* What the reply to a request may take: at least a few KiB, since any of them may be an error; of the request itself,
 * which bulk strings repeat as they are and a line of words in longer form; and what the command's row says. A copy of
 * the arguments, for a later answer, is counted with it. */
static size_t reply_most(const struct resp_client *s, const struct command *cmd)
{
    const struct parser *p = &s->parser;
    size_t most = REPLY_LEAST + (p->base != NULL ? p->used / 4 * 5 : 4 * p->used) + command_reply(cmd->flags);
    if ((cmd->flags & CMD_COPIES) != 0) {
        most += p->used + p->n * (sizeof *p->args + 1);
    }
    if ((cmd->flags & CMD_PER_CLIENT) != 0) {
        size_t all = (size_t)atomic_load_explicit(&s->conn.worker->pool->room.clients, memory_order_relaxed);
        most += CLIENT_LINE_MAX * (p->n > 3 ? p->n - 3 : all);
    }
    return most;
}

bool resp_client_may_reply(struct resp_client *s, const struct command *cmd, enum outcome *refused)
{
    size_t most = reply_most(s, cmd), limit = budget_reply_max(&s->conn.worker->pool->budget);
    s->reply_most = most < limit ? most : limit;
    *refused = OUTCOME_AGAIN;
    return conn_may_reply(&s->conn, s->reply_most);
}

void resp_client_answered(struct resp_client *s)
{
    s->waiting = false;
    s->conn.extra -= s->lent; /* the reply itself is charged from here on */
    s->lent = 0;
    s->conn.active_ms = clock_mono_ms();
    conn_touch(&s->conn);
    conn_kick(&s->conn);
}

static void write_refusal(struct resp_client *s, const struct err *err, bool write)
{
    char text[REFUSAL_TEXT];
    write_errorf(&s->writer, "%s %s", refusal_of(err->code, write)->word, refusal_text(err, write, text));
}

static void on_recorded(struct conn *c, uint32_t n, size_t bytes, const struct err *err)
{
    struct resp_client *s = client_of(c);
    size_t before = c->out.len;
    s->pending--;
    s->pending_bytes -= bytes;
    if (err->code < 0) {
        write_refusal(s, err, true);
        count_error(s, before);
    } else if (s->delivering) {
        buf_add(&c->out, s->reply.data, s->reply.len);
        c->out.failed = c->out.failed || s->reply.failed;
    } else {
        write_int(&s->writer, n);
    }
    if (s->delivering) {
        s->delivering = false;
        buf_free(&s->reply);
        resp_client_answered(s);
        return;
    }
    bool shallow = s->too_deep && s->pending_bytes < CLIENT_PENDING_MAX / 2;
    if (c->paused && (s->pending == 0 || shallow)) {
        conn_kick(c);
    }
}

/* FILTER ... DELIVER: its reply is known, and goes out once what it delivers is durable. */
static enum outcome keep_reply(struct resp_client *s, const struct request *rq, write_fn *write)
{
    struct writer reply = {&s->reply, s->writer.proto};
    write(s, &reply, rq);
    s->delivering = true;
    return OUTCOME_LATER;
}

static size_t find_arg(const struct resp_client *s, struct slice text)
{
    size_t i = 0;
    while (i < s->parser.n && s->parser.args[i].data != text.data) {
        i++;
    }
    return i;
}

static enum outcome wait_for(struct resp_client *s, struct request *rq, write_fn *write)
{
    s->late = rq->late;
    s->late_write = write;
    s->late_items = rq->items != NULL && rq->n > 0 ? find_arg(s, rq->items[0]) : 0;
    const struct slice *text;
    for (size_t i = 0; (text = fields_text(rq, i)) != NULL; i++) {
        s->late_texts[i] = text->data != NULL ? find_arg(s, *text) : 0;
    }
    s->conn.owed = true;
    return OUTCOME_LATE;
}

static enum outcome tell(struct resp_client *s, struct request *rq, enum request_state state, write_fn *write)
{
    enum outcome outcome = OUTCOME_ANSWERED;
    switch (state) {
    case REQUEST_WAIT:
        return OUTCOME_AGAIN;
    case REQUEST_LATE:
        return wait_for(s, rq, write);
    case REQUEST_RECORDED:
        s->pending++;
        s->pending_bytes += rq->bytes;
        outcome = write != NULL ? keep_reply(s, rq, write) : OUTCOME_RECORDED;
        break;
    case REQUEST_ANSWERED:
        if (rq->err != NULL && s->pending > 0) {
            outcome = OUTCOME_AGAIN; /* an error waits for the answers before it */
        } else if (rq->err != NULL) {
            write_refusal(s, rq->err, request_is_write(rq));
            service_refused(&s->conn, rq);
        } else if (write != NULL) {
            write(s, &s->writer, rq);
        } else {
            write_int(&s->writer, rq->count);
        }
        break;
    }
    service_end(rq->late);
    s->late = NULL;
    s->conn.owed = s->replaying;
    return outcome;
}

static void on_done(struct conn *c, struct request *late)
{
    (void)late;
    resp_client_answered(client_of(c));
}

enum outcome resp_client_submit(struct resp_client *s, struct request *rq, write_fn *write)
{
    if (s->pending_bytes > CLIENT_PENDING_MAX) {
        s->too_deep = true;
        return OUTCOME_AGAIN;
    }
    rq->done = on_done;
    rq->account = resp_client_account(s);
    return tell(s, rq, service_submit(&s->conn, rq), write);
}

/* Its arguments may have moved. */
static enum outcome resume(struct resp_client *s)
{
    const struct slice *args = s->parser.args;
    struct request *rq = s->late;
    struct slice *text;
    for (size_t i = 0; (text = fields_text(rq, i)) != NULL; i++) {
        *text = s->late_texts[i] > 0 ? args[s->late_texts[i]] : (struct slice){NULL, 0};
    }
    rq->items = rq->line != NULL    ? NULL
                : rq->n_groups == 0 ? args + s->late_items
                                    : args_pairs(s, args + s->late_items, rq->n);
    if (rq->items == NULL && rq->line == NULL) {
        return OUTCOME_AGAIN;
    }
    return tell(s, rq, service_resume(&s->conn, rq), s->late_write);
}

enum outcome resp_client_refuse(struct resp_client *s, const char *format, ...)
{
    if (s->pending > 0) {
        return OUTCOME_AGAIN;
    }
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    write_error(&s->writer, text);
    return OUTCOME_ANSWERED;
}

enum outcome resp_client_refuse_err(struct resp_client *s, const struct err *err)
{
    char text[REFUSAL_TEXT];
    return resp_client_refuse(s, "%s %s", refusal_of(err->code, true)->word, refusal_text(err, true, text));
}

enum outcome resp_client_lacks(struct resp_client *s, const char *what)
{
    struct err err;
    store_lacks(service_dedup(&s->conn)->store, what, &err);
    return resp_client_refuse(s, "ERR %s", err.text);
}

void resp_client_write_err(struct resp_client *s, const struct err *err)
{
    write_refusal(s, err, true);
}

void resp_client_write_unread(struct resp_client *s, const struct err *err)
{
    write_refusal(s, err, false);
}

static const char full[] = "-ERR max number of clients reached\r\n";

const struct conn_ops resp_client_ops = {
    .size = sizeof(struct resp_client),
    .edge = "resp",
    .full = full,
    .full_here = "-ERR max number of clients reached for your address (max_clients_per_address)\r\n",
    .made_room = full,
    .open = on_open,
    .input = on_input,
    .recorded = on_recorded,
    .gone = on_gone,
    .close = on_close,
};
