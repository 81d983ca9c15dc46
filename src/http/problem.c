/* Errors for people and programs, RFC 9457. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/json.h"
#include "http/server.h"
#include "service/refusal.h"

enum { DETAIL_TEXT = 1024 };

static const char problem_type[] = "application/problem+json";

const char *status_phrase(unsigned status)
{
    static const struct {
        unsigned status;
        const char *phrase;
    } rows[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].status == status) {
            return rows[i].phrase;
        }
    }
    return "Error";
}

static void write_problem(struct http_request *rq, unsigned status, const char *kind, const char *detail)
{
    char type[64];
    snprintf(type, sizeof type, "urn:unseen:problem:%s", kind);
    buf_clear(&rq->out);
    rq->status = status;
    json_t *problem = json_pack("{s:s, s:s, s:i, s:s}", "type", type, "title", status_phrase(status), "status",
                                (int)status, "detail", detail);
    json_write(&rq->out, problem);
    rq->type = problem_type;
}

enum http_outcome http_problem(struct http_request *rq, unsigned status, const char *kind, const char *format, ...)
{
    char detail[DETAIL_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    utf8_clean(detail); /* ids within it may be any bytes */
    write_problem(rq, status, kind, detail);
    http_count(rq, COUNT_ERRORS, 1);
    return HTTP_DONE;
}

enum http_outcome http_nothing(struct http_request *rq, const char *kind, const char *text)
{
    write_problem(rq, 404, kind, text);
    return HTTP_DONE;
}

static void count(struct http_request *rq, const struct refusal *refusal)
{
    char word[64];
    snprintf(word, sizeof word, "%s ", refusal->word);
    meter_error(&service_of(&rq->conn->conn)->meter, slice_str(word));
}

void http_add_problem(struct http_request *rq, const struct err *err, struct buf *out)
{
    const struct refusal *refusal = refusal_of(err->code, false);
    char text[REFUSAL_TEXT];
    refusal_text(err, false, text);
    utf8_clean(text);
    count(rq, refusal);
    http_count(rq, COUNT_ERRORS, 1);
    buf_addf(out, "{\"type\":\"urn:unseen:problem:%s\",\"title\":\"%s\",\"status\":%u,\"detail\":", refusal->problem,
             status_phrase(refusal->status), refusal->status);
    json_add_text(out, slice_str(text));
    buf_add(out, "}", 1);
}

enum http_outcome http_refuse(struct http_request *rq, const struct err *err, bool write)
{
    const struct refusal *refusal = refusal_of(err->code, write);
    char text[REFUSAL_TEXT], first[64];
    if (refusal->retry_s > 0) {
        snprintf(first, sizeof first, "%d", refusal->retry_s);
        http_header(rq, "Retry-After", first);
    }
    count(rq, refusal);
    return http_problem(rq, refusal->status, refusal->problem, "%s", refusal_text(err, write, text));
}

enum http_outcome http_fail(struct http_request *rq, const struct err *err)
{
    return http_refuse(rq, err, false);
}
