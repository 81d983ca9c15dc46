/* The table of resources, and how a path finds its row. */
#include <stdio.h>
#include <string.h>

#include "http/handlers.h"
#include "http/server.h"

const struct http_route http_routes[] = {
    {"GET", "/", get_page, ROLE_ANYBODY, HTTP_NO_STORE},
    {"GET", "/v1/status", get_status, ROLE_WATCH, HTTP_NO_STORE},
    {"GET", "/v1/timeline", get_timeline, ROLE_WATCH, HTTP_NO_STORE},
    {"GET", "/healthz", get_healthz, ROLE_ANYBODY, HTTP_NO_STORE | HTTP_ANY_HOST},
    {"GET", "/readyz", get_readyz, ROLE_ANYBODY, HTTP_NO_STORE | HTTP_ANY_HOST},
    {"GET", "/metrics", get_metrics, ROLE_WATCH, HTTP_NO_STORE},
    {"GET", "/openapi.json", get_openapi, ROLE_ANYBODY, HTTP_NO_STORE},
    {"POST", "/v1/played", post_played, ROLE_REQUEST, HTTP_NO_STORE},
    {"POST", "/v1/delivered", post_delivered, ROLE_REQUEST, HTTP_NO_STORE},
    {"POST", "/v1/unseen", post_unseen, ROLE_REQUEST, 0},
    {"POST", "/v1/unseen/{}", post_hashes, ROLE_REQUEST, HTTP_BYTES},
    {"GET", "/v1/seed", get_seed, ROLE_ADMIN, 0},
    {"POST", "/v1/unseen:batch", post_unseen_batch, ROLE_REQUEST, 0},
    {"POST", "/v1/why", post_why, ROLE_REQUEST, 0},
    {"POST", "/v1/exposure", post_exposure, ROLE_REQUEST, 0},
    {"POST", "/v1/block", post_block, ROLE_REQUEST, 0},
    {"POST", "/v1/unblock", post_unblock, ROLE_REQUEST, 0},
    {"GET", "/v1/users/{}", get_user, ROLE_REQUEST, 0},
    {"DELETE", "/v1/users/{}", delete_user, ROLE_REQUEST, 0},
    {"POST", "/v1/users/{}:merge", post_merge, ROLE_REQUEST, 0},
    {"GET", "/v1/pools", get_pools, ROLE_ASK, 0},
    {"GET", "/v1/pools/{}", get_pool, ROLE_ASK, 0},
    {"PUT", "/v1/pools/{}", put_pool, ROLE_REQUEST, 0},
    {"POST", "/v1/pools/{}", post_pool, ROLE_REQUEST, 0},
    {"DELETE", "/v1/pools/{}", delete_pool, ROLE_REQUEST, 0},
    {"GET", "/v1/ring", get_ring, ROLE_WATCH, 0},
    {"GET", "/v1/months", get_months, ROLE_WATCH, 0},
    {"GET", "/v1/policies", get_policies, ROLE_WATCH, 0},
    {"OPTIONS", "*", options_all, ROLE_ANYBODY, HTTP_NO_STORE | HTTP_ANY_HOST},
    {NULL, NULL, NULL, 0, 0},
};

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* The byte that the text begins with, and how many of its own say it: three where it is percent-encoded. */
static size_t decode_one(struct slice text, char *byte)
{
    const char *at = text.data;
    bool coded = text.len >= 3 && *at == '%' && hex(at[1]) >= 0 && hex(at[2]) >= 0;
    *byte = coded ? (char)(hex(at[1]) << 4 | hex(at[2])) : *at;
    return coded ? 3 : 1;
}

/* Whether the row's path is this one, whichever bytes are percent-encoded. A {} takes all of the rest but what stands
 * behind it, if that holds no '/'; one that is encoded is part of what stands there. */
static bool path_fits(const struct http_route *row, struct slice path, struct slice *param)
{
    const char *at = row->path;
    for (char byte; *at != '\0' && *at != '{' && path.len > 0; at++) {
        size_t n = decode_one(path, &byte);
        if (byte != *at || (byte == '/' && n > 1)) {
            return false;
        }
        path = slice_of(path.data + n, path.len - n);
    }
    const char *behind = *at == '{' ? at + 2 : at;
    size_t n = strlen(behind);
    if (path.len < n || memcmp(path.data + path.len - n, behind, n) != 0) {
        return false;
    }
    *param = path = slice_of(path.data, path.len - n);
    return *at == '{' ? path.len == 0 || memchr(path.data, '/', path.len) == NULL : *at == '\0' && path.len == 0;
}

static bool method_fits(const struct http_route *row, const char *method)
{
    return strcmp(row->method, method) == 0 || (strcmp(row->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* In place; it only gets shorter. form: as forms are encoded, where '+' is a space. */
static bool decode(struct slice *text, bool form)
{
    char *from = (char *)text->data, *to = from; /* the head's, which is ours */
    const char *end = from + text->len;
    while (from < end) {
        size_t n = decode_one(slice_of(from, (size_t)(end - from)), to);
        if (*from == '%' && n == 1) {
            return false;
        }
        *to = form && n == 1 && *to == '+' ? ' ' : *to;
        to++;
        from += n;
    }
    text->len = (size_t)(to - text->data);
    return true;
}

const struct http_route *route_find(struct http_request *rq, char allowed[64])
{
    allowed[0] = '\0';
    for (const struct http_route *row = http_routes; row->method != NULL; row++) {
        struct slice param;
        if (!path_fits(row, rq->path, &param)) {
            continue;
        }
        if (method_fits(row, rq->method)) {
            struct slice raw = param;
            if (!decode(&param, false)) {
                http_problem(rq, 400, "bad-request", "'%.*s' holds a %% without two hex digits behind it", (int)raw.len,
                             raw.data);
            }
            rq->param = param;
            return row;
        }
        size_t len = strlen(allowed);
        snprintf(allowed + len, 64 - len, "%s%s", len > 0 ? ", " : "",
                 strcmp(row->method, "GET") == 0 ? "GET, HEAD" : row->method);
    }
    return NULL;
}

int http_argument(struct http_request *rq, size_t *at, struct slice *name, struct slice *value)
{
    while (*at < rq->query.len) {
        const char *start = rq->query.data + *at;
        size_t left = rq->query.len - *at;
        const char *end = memchr(start, '&', left);
        size_t len = end != NULL ? (size_t)(end - start) : left;
        *at += len + 1;
        if (len == 0) {
            continue;
        }
        const char *equals = memchr(start, '=', len);
        size_t name_len = equals != NULL ? (size_t)(equals - start) : len;
        *name = slice_of(start, name_len);
        *value = equals != NULL ? slice_of(equals + 1, len - name_len - 1) : slice_of(start + len, 0);
        return decode(name, true) && decode(value, true) ? 1 : ERR_INVALID;
    }
    return 0;
}
