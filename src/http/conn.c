/* HTTP/1 on a connection: its requests one after the other, whole ones, and their answers in the same order. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "http/server.h"
#include "http/submit.h"
#include "net/stray.h"

static struct http_conn *conn_of(struct conn *c)
{
    return (struct http_conn *)c;
}

static void on_open(struct conn *c)
{
    struct http_conn *s = conn_of(c);
    s->rq.conn = s;
    s->rq.http = http_of(c->worker);
}

static void on_close(struct conn *c)
{
    struct http_conn *s = conn_of(c);
    struct http *h = s->rq.http;
    h->head_of = h->head_of == s ? NULL : h->head_of;
    http_submit_end(&s->rq);
    buf_free(&s->rq.out);
    buf_free(&s->headers);
}

static void on_gone(struct conn *c)
{
    http_submit_end(&conn_of(c)->rq);
}

/* Behind an answer: what is left are the connection's own fields. */
static void forget_request(struct http_conn *s)
{
    buf_free(&s->rq.out);
    buf_free(&s->headers);
    s->rq = (struct http_request){.http = s->rq.http, .conn = s};
    s->route = NULL;
    s->seen = s->head_len = s->length = s->scanned = s->lent = 0;
    s->chunks = (struct chunks){0};
    s->chunked = s->dropping = s->working = s->conn.midway = false;
    s->served = true;
    s->rq.http->head_of = NULL;
}

static void answer(struct http_conn *s)
{
    struct conn *c = &s->conn;
    request_answer(s, &c->out);
    c->active_ms = clock_mono_ms();
    forget_request(s);
    if (s->closing) {
        conn_finish(c);
    }
    room_quiet(c);
}

/* Nothing behind it can be understood, or is wanted. */
static void answer_and_close(struct http_conn *s)
{
    s->closing = true;
    answer(s);
}

static bool refuse_head(struct http_conn *s)
{
    const struct slice in = s->conn.input;
    if (in.len <= HEAD_MAX) {
        s->conn.need = in.len + 1;
        return false;
    }
    bool line = memchr(in.data, '\n', HEAD_MAX) == NULL;
    http_problem(&s->rq, line ? 414 : 431, "too-large", "the %s larger than %d bytes, the most that is taken",
                 line ? "line of the request is" : "headers are", HEAD_MAX);
    answer_and_close(s);
    return false;
}

/* Whether its head is there, and looked at. */
static bool next_head(struct http_conn *s)
{
    struct conn *c = &s->conn;
    while (c->input.len >= 2 && memcmp(c->input.data, "\r\n", 2) == 0) { /* some send one behind a body */
        conn_consume(c, 2);
        s->seen = 0;
    }
    if (c->input.len == 0 || (c->input.len == 1 && c->input.data[0] == '\r')) {
        return false;
    }
    if (s->seen == 0 && stray_is_resp(c->input)) {
        stray_send_on(c, "HTTP");
        return false;
    }
    if (!head_may_begin(c->input)) {
        conn_log(c, LOG_LEVEL_DEBUG, "no HTTP client", NULL);
        conn_finish(c);
        return false;
    }
    size_t len = head_find(c->input, &s->seen);
    if (len == 0 || len > HEAD_MAX) {
        return refuse_head(s);
    }
    if (!request_begin(s, len)) {
        s->seen = 0;
        return false;
    }
    if (s->rq.account != NULL) {
        c->trusted = true; /* as far as its memory is concerned; each request says again whose it is */
    }
    s->head_len = len;
    return true;
}

/* The head alone has decided. */
static bool begin(struct http_conn *s)
{
    struct conn *c = &s->conn;
    if (!next_head(s)) {
        return false;
    }
    bool has_body = s->chunked || s->length > 0, none_came = c->input.len == s->head_len;
    bool asks = s->rq.http->head.fields[FIELD_EXPECT] != NULL && has_body && none_came && !s->old;
    if (s->rq.status == 0) {
        if (asks) {
            static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
            buf_add(&c->out, go_on, sizeof go_on - 1);
        }
        return true;
    }
    conn_consume(c, s->head_len);
    s->closing = s->closing || asks;
    if (s->closing) {
        answer(s);
        return false;
    }
    s->dropping = c->midway = true;
    return true;
}

/* Whether the answer may go: the body that is not wanted is gone, or there is too much of it. */
static bool drop_body(struct http_conn *s)
{
    struct conn *c = &s->conn;
    size_t n = s->length < c->input.len ? s->length : c->input.len;
    if (s->chunked) {
        n = chunks_scan(&s->chunks, c->input.data, c->input.len, HTTP_BODY_MAX, NULL);
        s->closing = s->closing || s->chunks.state > CHUNK_DONE;
    } else {
        s->length -= n;
    }
    if (n > 0) {
        conn_consume(c, n);
    }
    return s->chunked ? s->chunks.state >= CHUNK_DONE : s->length == 0;
}

/* Whether the body is there, or is refused. */
static bool find_body(struct http_conn *s)
{
    struct conn *c = &s->conn;
    if (s->rq.status != 0) {
        return true; /* refused before, when there was no room to say so */
    }
    if (!s->chunked) {
        c->need = s->head_len + s->length;
        return c->input.len >= c->need;
    }
    size_t from = s->head_len + s->scanned;
    s->scanned += chunks_scan(&s->chunks, c->input.data + from, c->input.len - from, HTTP_BODY_MAX, NULL);
    if (s->chunks.state == CHUNK_LARGE) {
        http_problem(&s->rq, 413, "too-large", "the body is larger than %d bytes, the most that is taken",
                     HTTP_BODY_MAX);
    } else if (s->chunks.state == CHUNK_BAD) {
        http_problem(&s->rq, 400, "bad-request", "the body's chunks are not as they must be, %zu bytes behind the head",
                     s->scanned);
    }
    c->need = s->head_len + s->scanned + (s->chunks.state == CHUNK_DATA ? (size_t)s->chunks.left + 2 : 1);
    return s->chunks.state >= CHUNK_DONE;
}

/* The body in its bytes' own place, which are not needed any more. */
static struct slice whole_body(struct http_conn *s)
{
    char *at = (char *)s->conn.input.data + s->head_len;
    if (!s->chunked) {
        return slice_of(at, s->length);
    }
    struct chunks again = {0};
    chunks_scan(&again, at, s->scanned, HTTP_BODY_MAX, at);
    return slice_of(at, again.body);
}

/* Goes on with the request at hand. False: more must come, or happen. */
static bool go_on(struct http_conn *s)
{
    struct conn *c = &s->conn;
    if (s->head_len == 0 && !begin(s)) {
        return false;
    }
    if (!(s->dropping ? drop_body(s) : find_body(s)) || !conn_may_reply(c, HTTP_ANSWER_SMALL)) {
        return false;
    }
    room_spoke(c);
    if (s->dropping) {
        answer(s);
    } else if (s->rq.status != 0) {
        answer_and_close(s);
    } else {
        size_t all = s->head_len + (s->chunked ? s->scanned : s->length);
        struct buf inflated = {0}; /* as with the body as it came, what is needed of it later is copied */
        struct slice body = whole_body(s);
        bool refused = s->gzip && !request_inflate(s, body, &inflated);
        bool done = refused || request_run(s, s->gzip ? buf_slice(&inflated) : body);
        buf_free(&inflated);
        conn_consume(c, all);
        s->working = !done;
        if (done) {
            answer(s);
        }
    }
    return c->state == CONN_OPEN;
}

static void on_input(struct conn *c)
{
    struct http_conn *s = conn_of(c);
    if (s->working && http_submit_go_on(&s->rq)) { /* it had to wait for memory */
        answer(s);
    }
    while (!s->working && conn_may_run(c) && go_on(s)) {
    }
    c->paused = s->working || s->login.pending != NULL;
    c->extra = s->lent + s->rq.out.cap;
}

void http_conn_answered(struct http_conn *s)
{
    struct conn *c = &s->conn;
    answer(s);
    c->extra = 0;
    conn_touch(c);
    conn_kick(c);
}

static void on_recorded(struct conn *c, uint32_t n, size_t bytes, const struct err *err)
{
    (void)n;
    (void)bytes;
    http_submit_recorded(&conn_of(c)->rq, err);
}

/* A client that waits between two requests could take it for the answer to its next one. */
static struct slice last_word(struct conn *c, enum conn_end why)
{
    struct http_conn *s = conn_of(c);
    struct buf *word = &s->rq.http->last_word;
    bool idle = c->input.len + c->in_kernel == 0 && !c->midway && !s->working;
    buf_clear(word);
    if (why == CONN_END_LATE && !s->working && (!idle || !s->served)) {
        http_problem(&s->rq, 408, "timeout", "the request did not come whole in time");
    } else if (why == CONN_END_STOPPING && !idle) {
        http_problem(&s->rq, 503, "stopping", "the server is stopping%s",
                     s->rq.asked != NULL && c->line == NULL ? ", and the store has not answered yet" : "");
    } else {
        return (struct slice){NULL, 0};
    }
    s->closing = true;
    request_answer(s, word);
    return buf_slice(word);
}

#define CLOSING(status, body)                                                                                          \
    "HTTP/1.1 " status "\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n" body
#define FULL(detail)                                                                                                   \
    CLOSING("503 Service Unavailable",                                                                                 \
            "{\"type\":\"urn:unseen:problem:too-many-connections\",\"title\":\"Service Unavailable\",\"status\":503,"  \
            "\"detail\":\"" detail "\"}")

const struct conn_ops http_conn_ops = {
    .size = sizeof(struct http_conn),
    .edge = "http",
    .answers_anybody = true,
    .alpn = "http/1.1",
    .idle_ms = HTTP_PATIENCE_MS,
    .full = FULL("there are as many connections as there may be"),
    .full_here = FULL("your address has max_clients_per_address connections already"),
    .made_room = "",
    .open = on_open,
    .input = on_input,
    .recorded = on_recorded,
    .gone = on_gone,
    .last_word = last_word,
    .close = on_close,
};
