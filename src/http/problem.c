/* Errors for people and programs, RFC 9457. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/json.h"
#include "http/server.h"

enum { DETAIL_TEXT = 1024 };

static const char problem_type[] = "application/problem+json";

/* Ids within a text may be any bytes; what isn't UTF-8 becomes '?'. */
static void make_utf8(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        json_t *whole = json_string(text);
        if (whole != NULL) {
            json_decref(whole);
            return;
        }
        if ((*at & 0x80) != 0) {
            *at = '?';
        }
    }
}

enum http_outcome http_problem(struct http_request *rq, unsigned status, const char *kind, const char *format, ...)
{
    char detail[DETAIL_TEXT], type[64];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    make_utf8(detail);
    snprintf(type, sizeof type, "urn:unseen:problem:%s", kind);
    buf_clear(&rq->out);
    rq->status = status;
    json_t *problem = json_pack("{s:s, s:s, s:i, s:s}", "type", type, "title", MHD_get_reason_phrase_for(status),
                                "status", (int)status, "detail", detail);
    json_write(&rq->out, problem);
    rq->type = problem_type;
    rq->part->answered = true;
    if (rq->part->http != NULL) {
        http_count(rq, COUNT_ERRORS, 1);
    }
    return HTTP_DONE;
}

enum http_outcome http_fail(struct http_request *rq, const struct err *err)
{
    switch (err->code) {
    case ERR_INVALID:
    case ERR_RANGE:
        return http_problem(rq, 400, "bad-request", "%s", err->text);
    case ERR_BUSY:
        http_header(rq, MHD_HTTP_HEADER_RETRY_AFTER, "5");
        return http_problem(rq, 503, "busy", "%s", err->text);
    case ERR_FULL:
        http_header(rq, MHD_HTTP_HEADER_RETRY_AFTER, "60");
        return http_problem(rq, 503, "disk-full", "%s", err->text);
    case ERR_NOMEM:
        http_header(rq, MHD_HTTP_HEADER_RETRY_AFTER, "5");
        return http_problem(rq, 503, "out-of-memory", "%s", err->text[0] != '\0' ? err->text : "out of memory");
    case ERR_LOADING:
        http_header(rq, MHD_HTTP_HEADER_RETRY_AFTER, "1");
        return http_problem(rq, 503, "recovering", "%s", err->text);
    case ERR_CLOSED:
        return http_problem(rq, 503, "stopping", "the server is stopping");
    case ERR_SHARED:
        return http_problem(rq, 409, "shared-key", "%s", err->text);
    case ERR_CORRUPT:
        return http_problem(rq, 500, "damaged", "%s", err->text);
    default:
        return http_problem(rq, 500, "failed", "%s", err->text);
    }
}
