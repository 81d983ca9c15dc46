/* A request's way:
 *
 *   request line -> request_new() -> headers: refused, or the body is gathered -> whole: the handler runs ->
 *   HTTP_DONE: queued;  HTTP_LATER: suspended -> the task ends -> resumed -> queued -> request_end()
 *
 * What can be refused from the headers alone is refused before the body: when the body is small it is read and thrown
 * away, so that the connection lives on; when it is too large the answer goes out at once and the connection ends.
 * A body without a length is counted while it comes, and cut off where it gets too large.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/server.h"

enum { PROBLEM_TEXT = 1024, ALLOWED_TEXT = 64 };

static const char json_type[] = "application/json";

size_t request_keep_encoded(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls;
    (void)mhd;
    return strlen(text);
}

static struct http_conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* Memory is one piece: the request, its part, the line. */
void *request_new(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http *h = cls;
    struct http_conn *c = conn_of(mhd);
    size_t len = strlen(uri);
    struct http_request *rq = calloc(1, sizeof *rq + sizeof *rq->part + len + 1);
    if (rq == NULL || c == NULL) {
        free(rq);
        return NULL;
    }
    rq->part = (struct http_part *)(rq + 1);
    rq->part->http = h;
    rq->part->conn = c;
    rq->part->mhd = mhd;
    rq->part->uri = (char *)(rq->part + 1);
    memcpy(rq->part->uri, uri, len + 1);
    size_t path = strcspn(uri, "?");
    rq->path = slice_of(rq->part->uri, path);
    if (path < len) {
        rq->query = slice_of(rq->part->uri + path + 1, len - path - 1);
    }
    c->rq = rq;
    c->silent = false;
    return rq;
}

static void hold(struct http_part *part, size_t held)
{
    part->http->held += held - part->held;
    part->held = held;
}

void request_end(void *cls, struct MHD_Connection *mhd, void **state, enum MHD_RequestTerminationCode code)
{
    (void)cls;
    (void)mhd;
    struct http_request *rq = *state;
    if (rq == NULL) {
        return;
    }
    struct http_part *part = rq->part;
    hold(part, 0);
    if (part->active) {
        part->http->n_active -= part->http->n_active > 0;
    }
    part->conn->rq = NULL;
    part->conn->silent = code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    http_conn_phase(part->conn, PHASE_READING);
    buf_free(&part->body);
    buf_free(&part->headers);
    buf_free(&rq->out);
    free(rq);
    *state = NULL;
}

void http_header(struct http_request *rq, const char *name, const char *value)
{
    buf_add(&rq->part->headers, name, strlen(name) + 1);
    buf_add(&rq->part->headers, value, strlen(value) + 1);
}

void http_count(struct http_request *rq, enum counter counter, uint64_t n)
{
    worker_pool_count_http(rq->part->http->pool, counter, n);
}

/* --- what the headers say --- */

static const char *header(struct http_request *rq, const char *name)
{
    return MHD_lookup_connection_value(rq->part->mhd, MHD_HEADER_KIND, name);
}

static bool is_json(const char *type)
{
    size_t n = sizeof json_type - 1;
    return type != NULL && strncasecmp(type, json_type, n) == 0 && (type[n] == '\0' || strchr("; \t", type[n]) != NULL);
}

static uint64_t declared_length(struct http_request *rq)
{
    const char *text = header(rq, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* Where a body ends must be beyond doubt, also for a proxy in front. Else nothing behind it can be understood. */
static bool refuse_framing(struct http_request *rq)
{
    const char *encoding = header(rq, MHD_HTTP_HEADER_TRANSFER_ENCODING);
    if (encoding == NULL) {
        return false;
    }
    if (strcasecmp(encoding, "chunked") != 0) {
        http_problem(rq, 501, "bad-request", "Transfer-Encoding is %s, expected chunked", encoding);
        return true;
    }
    if (header(rq, MHD_HTTP_HEADER_CONTENT_LENGTH) != NULL) {
        http_problem(rq, 400, "bad-request", "both Content-Length and Transfer-Encoding are given, expected one");
        return true;
    }
    return false;
}

static enum http_outcome too_large(struct http_request *rq)
{
    return http_problem(rq, 413, "too-large", "the body is larger than %d bytes, the most that is taken",
                        HTTP_BODY_MAX);
}

static void no_memory(struct http_request *rq)
{
    http_header(rq, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    http_problem(rq, 503, "busy", "the requests under way hold as much memory as they may");
}

static void refuse_body(struct http_request *rq)
{
    const char *type = header(rq, MHD_HTTP_HEADER_CONTENT_TYPE);
    const char *encoding = header(rq, MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (header(rq, MHD_HTTP_HEADER_CONTENT_LENGTH) == NULL && header(rq, MHD_HTTP_HEADER_TRANSFER_ENCODING) == NULL) {
        http_problem(rq, 411, "length-required", "%s needs a body, with Content-Length or in chunks", rq->method);
    } else if (declared_length(rq) > HTTP_BODY_MAX) {
        too_large(rq);
    } else if (!is_json(type)) {
        http_problem(rq, 415, "unsupported-type", "Content-Type is %s, expected %s", type != NULL ? type : "missing",
                     json_type);
    } else if (encoding != NULL && strcasecmp(encoding, "identity") != 0) {
        http_problem(rq, 415, "unsupported-type", "Content-Encoding is %s, expected none", encoding);
    } else if (!http_room(rq->part->http, declared_length(rq))) {
        no_memory(rq);
    }
}

/* A request for another's name on this machine's loopback is a web page's that sent a browser here. */
static enum MHD_Result check_host(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct http_request *rq = cls;
    (void)kind;
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0 &&
        !host_is_ours(value != NULL ? value : "", config_now(rq->part->http->cfg)->http_hosts)) {
        http_problem(rq, 421, "wrong-host",
                     "Host is %s, expected localhost or an IP address; other names are listed in http_hosts",
                     log_quote_str(value));
        return MHD_NO;
    }
    return MHD_YES;
}

static void find_route(struct http_request *rq)
{
    struct http *h = rq->part->http;
    char allowed[ALLOWED_TEXT];
    const struct http_route *route = rq->part->route = route_find(rq, allowed);
    if (h->is_loopback && (route == NULL || (route->flags & HTTP_ANY_HOST) == 0)) {
        MHD_get_connection_values(rq->part->mhd, MHD_HEADER_KIND, check_host, rq);
    }
    if (rq->part->answered) {
        return;
    }
    if (route == NULL && allowed[0] == '\0') {
        http_problem(rq, 404, "not-found", "there is nothing at %.*s; /openapi.json lists what there is",
                     (int)rq->path.len, rq->path.data);
    } else if (route == NULL) {
        http_header(rq, MHD_HTTP_HEADER_ALLOW, allowed);
        http_problem(rq, 405, "method-not-allowed", "%.*s takes %s, not %s", (int)rq->path.len, rq->path.data, allowed,
                     rq->method);
    }
}

/* Returns in how many ms the password may be looked at, see net/logins.h; 0 when it was, or none is needed. */
static int64_t login(struct http_request *rq)
{
    struct http_conn *c = rq->part->conn;
    struct logins *logins = &rq->part->http->pool->logins;
    const char *password = config_now(rq->part->http->cfg)->requirepass;
    const char *given = header(rq, MHD_HTTP_HEADER_AUTHORIZATION);
    int64_t now = clock_mono_ms();
    if (rq->part->answered || password[0] == '\0' || (rq->part->route->flags & HTTP_NO_AUTH) != 0) {
        return 0;
    }
    if (given != NULL) {
        int64_t wait = rq->part->waited ? 0 : logins_turn(logins, c->peer, now);
        if (wait > 0 && !rq->part->http->stopping) {
            return wait;
        }
        if (wait != 0) {
            http_header(rq, MHD_HTTP_HEADER_RETRY_AFTER, "10");
            http_problem(rq, 429, "too-many-failed-logins", "too many failed logins from your address");
            return 0;
        }
        if (auth_right(password, given)) {
            logins_good(logins, c->peer);
            return 0;
        }
        http_count(rq, COUNT_FAILED_LOGINS, 1);
        logins_failed(logins, c->peer, "http", now);
    }
    http_header(rq, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"unseen\"");
    http_problem(rq, 401, "unauthorized", "expected the header Authorization: Bearer, and the password behind it");
    return 0;
}

/* --- the answer --- */

static enum MHD_Result queue(struct http_request *rq)
{
    struct http_part *part = rq->part;
    if (rq->out.failed) {
        buf_free(&rq->out);
        http_fail(rq, &(struct err){ERR_NOMEM, "out of memory for the answer"});
    }
    size_t own = part->held; /* its body's, which goes */
    if (rq->out.len > HTTP_ANSWER_SMALL && !http_room(part->http, rq->out.len > own ? rq->out.len - own : 0)) {
        no_memory(rq);
    }
    if (rq->out.failed || part->headers.failed) {
        return MHD_NO; /* closes */
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(rq->out.len, rq->out.data != NULL ? rq->out.data : "", MHD_RESPMEM_MUST_COPY);
    if (response == NULL) {
        return MHD_NO;
    }
    bool good = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, rq->type) == MHD_YES &&
                MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store") == MHD_YES &&
                MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES;
    for (size_t at = 0; good && at < part->headers.len;) {
        const char *name = part->headers.data + at;
        const char *value = name + strlen(name) + 1;
        good = MHD_add_response_header(response, name, value) == MHD_YES;
        at = (size_t)(value + strlen(value) + 1 - part->headers.data);
    }
    if (good && (part->closing || part->http->stopping)) {
        good = MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES;
    }
    metrics_note_request(&part->http->meter, part->route, rq->status, clock_stopwatch_us() - part->arrived_us);
    http_conn_phase(part->conn, PHASE_SENDING);
    hold(part, rq->out.len); /* libmicrohttpd has a copy until it is sent */
    buf_free(&rq->out);
    buf_free(&part->body);
    enum MHD_Result queued = good ? MHD_queue_response(part->mhd, rq->status, response) : MHD_NO;
    MHD_destroy_response(response);
    return queued;
}

static void finish(struct http_request *rq)
{
    if (rq->status == 0) {
        rq->status = 200;
    }
    if (rq->type == NULL) {
        rq->type = json_type;
    }
    rq->part->answered = true;
}

/* --- the body --- */

/* By how much the buffer grows for so many bytes more, about. */
static size_t body_grows(const struct http_part *part, size_t len)
{
    return part->body.len + len <= part->body.cap ? 0 : part->body.cap > len ? part->body.cap : len;
}

void request_drop_body(struct http_request *rq)
{
    buf_free(&rq->part->body);
    hold(rq->part, 0);
    rq->part->answered = true;
}

/* Returns false when it is too large. */
static bool take(struct http_request *rq, const char *bytes, size_t len)
{
    struct http_part *part = rq->part;
    if (part->answered) { /* refused: thrown away, but counted, since it may have no length */
        part->dropped += len;
        return part->dropped <= HTTP_BODY_MAX;
    }
    if (part->body.len + len > HTTP_BODY_MAX) {
        too_large(rq);
        return false;
    }
    if (!http_room(part->http, body_grows(part, len)) || buf_add(&part->body, bytes, len) < 0) {
        no_memory(rq);
        part->dropped = part->body.len + len;
        buf_free(&part->body);
        hold(part, 0);
        return true;
    }
    hold(part, part->body.cap);
    return true;
}

/* The headers are there. Called again when its turn to give a password has come. */
static enum MHD_Result begin(struct http_request *rq, const char *method)
{
    struct http_part *part = rq->part;
    if (!part->begun) {
        part->begun = true;
        part->arrived_us = clock_stopwatch_us();
        rq->method = method;
        part->closing = refuse_framing(rq);
        if (!part->closing) {
            find_route(rq);
        }
    }
    int64_t wait = login(rq);
    if (wait > 0) {
        part->waited = true;
        http_conn_wait(part->conn, wait);
        return MHD_YES;
    }
    part->admitted = true;
    if (!part->answered && strcmp(part->route->method, "POST") == 0) {
        refuse_body(rq);
    }
    if (declared_length(rq) > HTTP_BODY_MAX) {
        part->closing = true;
        if (!part->answered) {
            too_large(rq);
        }
    }
    if (part->closing) {
        http_conn_linger(part->conn);
        return queue(rq);
    }
    return MHD_YES;
}

static enum MHD_Result run(struct http_request *rq)
{
    struct http_part *part = rq->part;
    struct http *h = part->http;
    part->arrived_us = clock_stopwatch_us();
    rq->body = buf_slice(&part->body);
    rq->cfg = h->cfg;
    rq->pool = h->pool;
    rq->dedup = h->dedup;
    rq->asker = h->asker;
    rq->items = h->items;
    rq->hashes = h->hashes;
    rq->bits = h->bits;
    rq->blocked = &h->blocked;
    part->active = true;
    h->n_active++;
    http_count(rq, COUNT_COMMANDS, 1);
    if (part->answered) {
        return queue(rq);
    }
    http_conn_phase(part->conn, PHASE_WORKING);
    if (h->dedup == NULL && (part->route->flags & HTTP_NO_STORE) == 0) {
        http_header(rq, MHD_HTTP_HEADER_RETRY_AFTER, "1");
        http_problem(rq, 503, "recovering", "the server is reading what was staged; it has not recovered yet");
    } else if (part->route->run(rq) == HTTP_LATER) {
        MHD_suspend_connection(part->mhd);
        return MHD_YES;
    }
    finish(rq);
    return queue(rq);
}

enum MHD_Result request_go_on(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_len, void **state)
{
    (void)cls;
    (void)mhd;
    (void)url;
    (void)version;
    struct http_request *rq = *state;
    if (rq == NULL) {
        return MHD_NO;
    }
    struct http_part *part = rq->part;
    if (part->conn->leaving) {
        return MHD_NO; /* closes */
    }
    if (!part->admitted) {
        return begin(rq, method);
    }
    if (*upload_len > 0) {
        bool taken = take(rq, upload, *upload_len);
        *upload_len = 0;
        if (!taken) {
            http_conn_refuse(part->conn, rq);
            return MHD_NO;
        }
        return MHD_YES;
    }
    if (part->active) { /* resumed */
        return queue(rq);
    }
    return run(rq);
}

void request_resume(struct http_request *rq)
{
    finish(rq);
    MHD_resume_connection(rq->part->mhd);
    http_run_soon(rq->part->http);
}

/* --- tasks --- */

void *http_task_new(struct http_request *rq, size_t size, size_t held,
                    void (*answer)(struct http_task *task, struct http_request *rq))
{
    struct http *h = rq->part->http;
    struct http_task *task = http_room(h, held) ? calloc(1, size) : NULL;
    if (task == NULL) {
        no_memory(rq);
        return NULL;
    }
    task->http = h;
    task->rq = rq;
    task->held = held;
    task->answer = answer;
    h->held += held;
    rq->part->task = task;
    return task;
}

static void on_task_done(struct loop_message *message, void *owner)
{
    struct http_task *task = (struct http_task *)message;
    struct http *h = owner;
    struct http_request *rq = task->rq;
    h->held -= task->held;
    if (rq != NULL) {
        rq->part->task = NULL;
    }
    task->answer(task, rq);
    free(task);
    if (rq != NULL) {
        request_resume(rq);
    }
}

void http_task_done(struct http_task *task)
{
    task->message.deliver = on_task_done;
    loop_queue_post(&task->http->queue, &task->message);
}
