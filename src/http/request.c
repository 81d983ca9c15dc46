/* A request's way: its head decides (request_begin()), its body comes (conn.c), the handler runs (request_run()) and
 * answers at once, or the service does later (submit.h), the answer is written (request_answer()).
 *
 * What can be refused from the head alone is refused then. A small body behind it is read and thrown away, so that the
 * connection lives on; where it is too large, or its end is in doubt, the answer ends the connection. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/gzip.h"
#include "base/log.h"
#include "http/server.h"

enum { ALLOWED_TEXT = 64, ANSWER_HEAD = 512 };

static const char json_type[] = "application/json", bytes_type[] = "application/octet-stream";

static const struct config *config_of(const struct http_request *rq)
{
    return config_now(rq->http->cfg);
}

static struct worker *worker_of(const struct http_request *rq)
{
    return rq->conn->conn.worker;
}

void http_header(struct http_request *rq, const char *name, const char *value)
{
    buf_add(&rq->conn->headers, name, strlen(name) + 1);
    buf_add(&rq->conn->headers, value, strlen(value) + 1);
}

void http_count(struct http_request *rq, enum counter counter, uint64_t n)
{
    worker_count(worker_of(rq), counter, n);
}

/* --- what the head says --- */

static bool is_type(const char *type, const char *expected)
{
    size_t n = strlen(expected);
    return type != NULL && strncasecmp(type, expected, n) == 0 && (type[n] == '\0' || strchr("; \t", type[n]) != NULL);
}

static void too_large(struct http_request *rq)
{
    http_problem(rq, 413, "too-large", "the body is larger than %d bytes, the most that is taken", HTTP_BODY_MAX);
}

void request_no_memory(struct http_request *rq)
{
    http_header(rq, "Retry-After", "1");
    http_problem(rq, 503, "busy", "the requests under way hold as much memory as they may");
}

static void check_body(struct http_request *rq, const struct head *head)
{
    const char *expected = (rq->conn->route->flags & HTTP_BYTES) != 0 ? bytes_type : json_type;
    const char *type = head->fields[FIELD_CONTENT_TYPE], *encoding = head->fields[FIELD_CONTENT_ENCODING];
    if (head->fields[FIELD_CONTENT_LENGTH] == NULL && !head->chunked) {
        http_problem(rq, 411, "length-required", "%s needs a body, with Content-Length or in chunks", rq->method);
    } else if (head->length > HTTP_BODY_MAX) {
        too_large(rq);
    } else if (!is_type(type, expected)) {
        http_problem(rq, 415, "unsupported-type", "Content-Type is %s, expected %s", type != NULL ? type : "missing",
                     expected);
    } else if (encoding != NULL && (strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "x-gzip") == 0)) {
        rq->conn->gzip = true;
    } else if (encoding != NULL && strcasecmp(encoding, "identity") != 0) {
        http_header(rq, "Accept-Encoding", "gzip, identity");
        http_problem(rq, 415, "unsupported-type", "Content-Encoding is %s, expected gzip or none", encoding);
    }
}

/* A request for another's name on this machine's loopback is a web page's that sent a browser here. Over TLS that
 * browser has seen that the certificate is not that name's. */
static bool check_host(struct http_request *rq, const char *host)
{
    bool any = rq->conn->route != NULL && (rq->conn->route->flags & HTTP_ANY_HOST) != 0;
    const struct listener *from = rq->conn->conn.from;
    if (!from->is_loopback || from->tls || any || host == NULL || host_is_ours(host, config_of(rq)->http_hosts)) {
        return true;
    }
    http_problem(rq, 421, "wrong-host",
                 "Host is %s, expected localhost or an IP address; other names are listed in http_hosts",
                 log_quote_str(host));
    return false;
}

static void check_path(struct http_request *rq, const struct head *head)
{
    char allowed[ALLOWED_TEXT];
    rq->conn->route = route_find(rq, allowed);
    if (!check_host(rq, head->fields[FIELD_HOST]) || rq->conn->route != NULL) {
        return;
    }
    if (allowed[0] == '\0') {
        http_problem(rq, 404, "not-found", "there is nothing at %.*s; /openapi.json lists what there is",
                     (int)rq->path.len, rq->path.data);
    } else {
        http_header(rq, "Allow", allowed);
        http_problem(rq, 405, "method-not-allowed", "%.*s takes %s, not %s", (int)rq->path.len, rq->path.data, allowed,
                     rq->method);
    }
}

static void on_login(struct account_login *login)
{
    struct http_conn *s = (struct http_conn *)((char *)login - offsetof(struct http_conn, login));
    s->login_told = true;
    conn_kick(&s->conn);
}

/* Who asks. False: that is not known yet. */
static bool find_account(struct http_request *rq, const char *authorization)
{
    struct http_conn *s = rq->conn;
    struct account_login *l = &s->login;
    l->done = on_login;
    l->edge = "http";
    struct slice header = authorization != NULL ? slice_str(authorization) : (struct slice){NULL, 0};
    if (l->pending != NULL || (!s->login_told && account_login_header(&s->conn, l, header) == ACCOUNT_LATE)) {
        return false;
    }
    s->login_told = false;
    rq->account = account_now(worker_of(rq)->pool->service, &l->who);
    return true;
}

static void refuse_login(struct http_request *rq, const struct err *err)
{
    if (err->code == ERR_NOAUTH || err->code == ERR_WRONGPASS) {
        http_header(rq, "WWW-Authenticate", "Basic realm=\"unseen\", charset=\"UTF-8\"");
        http_header(rq, "WWW-Authenticate", "Bearer realm=\"unseen\"");
    }
    http_fail(rq, err);
}

/* False: it is not known yet who asks. */
static bool check_login(struct http_request *rq, const char *authorization)
{
    struct err err;
    unsigned role = rq->conn->route->role;
    if ((role & ROLE_ANYBODY) != 0) {
        return true;
    }
    if (!find_account(rq, authorization)) {
        return false;
    }
    if (rq->account == NULL && rq->conn->login.err != NULL) {
        refuse_login(rq, rq->conn->login.err);
    } else if (account_check(rq->account, role, &err) < 0) {
        refuse_login(rq, &err);
    }
    return true;
}

/* Into the worker's own memory: the connection's bytes may move before the body has come. */
static struct head *read_head(struct http_conn *s, size_t len)
{
    struct http *h = s->rq.http;
    memcpy(h->head_text, s->conn.input.data, len);
    head_parse(&h->head, h->head_text, len);
    h->head_of = s;
    s->rq.method = h->head.method;
    if (h->head.target != NULL) {
        size_t all = strlen(h->head.target), path = strcspn(h->head.target, "?");
        s->rq.path = slice_of(h->head.target, path);
        s->rq.query = slice_of(h->head.target + path + (path < all), all - path - (path < all));
    }
    return &h->head;
}

bool request_begin(struct http_conn *s, size_t head_len)
{
    struct http_request *rq = &s->rq;
    const struct head *head = read_head(s, head_len);
    s->is_head = strcmp(head->method, "HEAD") == 0;
    s->old = head->old;
    s->chunked = head->chunked;
    s->gzip = false;
    s->length = head->length < SIZE_MAX ? (size_t)head->length : SIZE_MAX;
    s->closing = !head->keep_alive || head->length > HTTP_BODY_MAX;
    if (head->status != 0) {
        s->closing = true;
        http_problem(rq, head->status, head->status == 413 ? "too-large" : "bad-request", "%s", head->error);
        return true;
    }
    check_path(rq, head);
    if (rq->status == 0 && !check_login(rq, head->fields[FIELD_AUTHORIZATION])) {
        return false;
    }
    if (rq->status == 0 && head->fields[FIELD_EXPECT] != NULL && !head->old &&
        strcasecmp(head->fields[FIELD_EXPECT], "100-continue") != 0) {
        http_problem(rq, 417, "unknown-expectation", "Expect is %s, expected 100-continue",
                     log_quote_str(head->fields[FIELD_EXPECT]));
    }
    if (rq->status == 0 && (strcmp(s->route->method, "POST") == 0 || strcmp(s->route->method, "PUT") == 0)) {
        check_body(rq, head);
    } else if (rq->status == 0 && head->length > HTTP_BODY_MAX) {
        too_large(rq);
    }
    return true;
}

/* --- the body --- */

static bool may_hold(void *arg, size_t bytes)
{
    return conn_has_room(arg, BUDGET_LARGE, bytes);
}

bool request_inflate(struct http_conn *s, struct slice packed, struct buf *body)
{
    struct err err;
    switch (gzip_inflate(packed, HTTP_BODY_MAX, may_hold, &s->conn, body, &err)) {
    case 0:
        return true;
    case ERR_LARGE:
        http_problem(&s->rq, 413, "too-large", "the body, inflated, is larger than %d bytes, the most that is taken",
                     HTTP_BODY_MAX);
        break;
    case ERR_INVALID:
        http_problem(&s->rq, 400, "bad-request", "the body: %s", err.text);
        break;
    default:
        request_no_memory(&s->rq);
    }
    return false;
}

/* --- the answer --- */

bool request_run(struct http_conn *s, struct slice body)
{
    struct http_request *rq = &s->rq;
    struct worker *w = worker_of(rq);
    char allowed[ALLOWED_TEXT];
    if (rq->http->head_of != s) { /* another's was read meanwhile */
        read_head(s, s->head_len);
        route_find(rq, allowed);
    }
    rq->body = body;
    rq->cfg = rq->http->cfg;
    rq->pool = w->pool;
    rq->dedup = w->service->dedup;
    rq->asker = w->service->asker;
    rq->items = rq->http->items;
    if (rq->dedup == NULL && (s->route->flags & HTTP_NO_STORE) == 0) {
        http_header(rq, "Retry-After", "1");
        http_problem(rq, 503, "recovering", "the server is reading what was staged, %.0f %% of it is read",
                     100 * service_recovered(w->pool->service));
        return true;
    }
    return s->route->run(rq) == HTTP_DONE;
}

static void add_date(struct buf *to)
{
    char text[64];
    struct tm tm;
    time_t now = (time_t)(clock_wall_ms() / 1000);
    gmtime_r(&now, &tm);
    strftime(text, sizeof text, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
    buf_add(to, text, strlen(text));
}

static void add_head(const struct http_conn *s, struct buf *to)
{
    const struct http_request *rq = &s->rq;
    buf_addf(to, "HTTP/1.1 %u %s\r\n", rq->status, status_phrase(rq->status));
    add_date(to);
    buf_addf(
        to, "Content-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
        rq->type, rq->out.len);
    for (size_t at = 0; at < s->headers.len;) {
        const char *name = s->headers.data + at, *value = name + strlen(name) + 1;
        buf_addf(to, "%s: %s\r\n", name, value);
        at = (size_t)(value + strlen(value) + 1 - s->headers.data);
    }
    const char *connection = s->closing ? "Connection: close\r\n" : s->old ? "Connection: keep-alive\r\n" : "";
    buf_addf(to, "%s\r\n", connection);
}

/* Whether there is room for it beside what others hold. Its request, which goes now, had room before. */
static bool fits(struct http_conn *s)
{
    if (s->rq.out.len <= HTTP_ANSWER_SMALL || s->rq.out.len <= s->conn.extra) {
        return true; /* it needs none, or was given it before it was made */
    }
    conn_charge(&s->conn, s->conn.extra); /* with the answers before it that are not sent yet */
    return conn_has_room(&s->conn, BUDGET_REPLY, s->rq.out.len);
}

void request_answer(struct http_conn *s, struct buf *to)
{
    struct http_request *rq = &s->rq;
    if (rq->out.failed) {
        buf_free(&rq->out);
        http_fail(rq, &(struct err){ERR_NOMEM, "out of memory for the answer"});
    } else if (!fits(s)) {
        request_no_memory(rq);
    }
    rq->status = rq->status != 0 ? rq->status : 200;
    rq->type = rq->type != NULL ? rq->type : json_type;
    s->closing = s->closing || worker_of(rq)->stopping;
    buf_reserve(to, ANSWER_HEAD + s->headers.len + rq->out.len);
    add_head(s, to);
    if (!s->is_head) {
        buf_add(to, rq->out.data, rq->out.len);
    }
    to->failed = to->failed || s->headers.failed || rq->out.failed;
    http_count(rq, COUNT_COMMANDS, 1);
    metrics_note_request(&rq->http->meter, s->route, rq->status, clock_figures_us() - s->conn.arrived_us);
}
