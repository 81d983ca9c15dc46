/* /v1/pools and /v1/pools/{pool}: lists of candidates that the server holds, as POOL. The name stands in the path, so
 * it may be any bytes; items are strings. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "dedup/pools.h"
#include "http/handlers.h"
#include "http/server.h"
#include "http/submit.h"

enum { GET_ITEMS = 1000, GET_ITEMS_MAX = ITEMS_MAX, NUMBER_TEXT = 24 };

/* --- changes --- */

static void tell_changed(struct http_request *rq, const struct request *asked)
{
    char version[POOL_VERSION_TEXT];
    buf_addf(&rq->out, "{\"items\":%" PRId64 ",\"version\":\"%s\"}\n", asked->count,
             pool_version_text(asked->pool_version, version));
}

static void tell_dropped(struct http_request *rq, const struct request *asked)
{
    buf_addf(&rq->out, "{\"dropped\":%" PRId64 "}\n", asked->count);
}

/* {"items": [...]}; with POST {"rename": "hot"} gives it another name instead. */
static enum http_outcome change(struct http_request *rq, unsigned of, enum request_kind kind)
{
    struct asked asked = {.rq = {.kind = kind, .pools = asked.names, .n_pools = 1}, .names = {rq->param}};
    if (!json_read(rq, of, &asked)) {
        return HTTP_DONE;
    }
    bool renames = asked.names[1].data != NULL, adds = asked.rq.n > 0;
    if (renames == adds) {
        return http_problem(rq, 400, "bad-request", "items and rename are %s given, expected one of them",
                            adds ? "both" : "not");
    }
    if (renames) {
        asked.rq.kind = REQUEST_POOL_RENAME;
        asked.rq.n_pools = 2;
    }
    return http_submit(rq, &asked.rq, OP_OTHER, tell_changed);
}

enum http_outcome put_pool(struct http_request *rq)
{
    return change(rq, OF_POOL_SET, REQUEST_POOL_SET);
}

enum http_outcome post_pool(struct http_request *rq)
{
    return change(rq, OF_POOL_POST, REQUEST_POOL_ADD);
}

enum http_outcome delete_pool(struct http_request *rq)
{
    const struct request asked = {.kind = REQUEST_POOL_DROP, .pools = &rq->param, .n_pools = 1};
    return http_submit(rq, &asked, OP_OTHER, tell_dropped);
}

/* --- what there is --- */

static const struct pool_table *table_of(struct http_request *rq)
{
    return service_pools(rq->conn->conn.worker->service);
}

/* Its members, without the braces. */
static void add_about(struct buf *out, const struct pool *pool)
{
    char version[POOL_VERSION_TEXT];
    buf_addf(out, "\"items\":%zu,\"version\":\"%s\",\"bytes\":%zu,\"changed\":%" PRId64 ",", pool->n,
             pool_version_text(pool->version, version), pool->bytes, pool->changed_ms);
    json_add_named_id(out, "name", pool->name);
}

enum http_outcome get_pools(struct http_request *rq)
{
    const struct pool_table *table = table_of(rq);
    buf_addf(&rq->out, "{\"pools\":[");
    for (size_t i = 0; table != NULL && i < table->n; i++) {
        buf_addf(&rq->out, i > 0 ? ",{" : "{");
        add_about(&rq->out, table->list[i]);
        buf_add(&rq->out, "}", 1);
    }
    buf_add(&rq->out, "]}\n", 3);
    return HTTP_DONE;
}

static bool read_number(struct http_request *rq, const char *name, struct slice value, long least, long most, long *out)
{
    char text[NUMBER_TEXT] = "", *end = text;
    if (value.len > 0 && value.len < sizeof text) {
        memcpy(text, value.data, value.len);
        errno = 0;
        *out = strtol(text, &end, 10);
    }
    if (end == text || *end != '\0' || errno != 0 || *out < least || *out > most) {
        http_problem(rq, 400, "bad-request", "%s is '%.*s', expected a whole number from %ld to %ld", name,
                     (int)(value.len < 64 ? value.len : 64), value.data, least, most);
        return false;
    }
    return true;
}

/* ?from=0&count=1000 */
static bool read_range(struct http_request *rq, long *from, long *count)
{
    struct slice name, value;
    size_t at = 0;
    int code;
    while ((code = http_argument(rq, &at, &name, &value)) > 0) {
        if (slice_eq(name, slice_str("from"))) {
            if (!read_number(rq, "from", value, 0, POOL_ITEMS_MAX, from)) {
                return false;
            }
        } else if (slice_eq(name, slice_str("count"))) {
            if (!read_number(rq, "count", value, 1, GET_ITEMS_MAX, count)) {
                return false;
            }
        } else {
            http_problem(rq, 400, "bad-request", "unknown argument '%.*s', expected from and count", (int)name.len,
                         name.data);
            return false;
        }
    }
    if (code < 0) {
        http_problem(rq, 400, "bad-request", "the query holds a %% without two hex digits behind it");
    }
    return code == 0;
}

enum http_outcome get_pool(struct http_request *rq)
{
    long from = 0, count = GET_ITEMS;
    if (!read_range(rq, &from, &count)) {
        return HTTP_DONE;
    }
    const struct pool_table *table = table_of(rq);
    const struct pool *pool = table != NULL ? pool_table_find(table, rq->param) : NULL;
    if (pool == NULL) {
        return http_nothing(rq, "unknown-pool", "there is no such pool");
    }
    size_t first = (size_t)from < pool->n ? (size_t)from : pool->n;
    size_t n = (size_t)count < pool->n - first ? (size_t)count : pool->n - first;
    size_t most = question_answer_max(FORM_ITEMS, n, pool_ids_max(n, pool->id_bytes));
    if (!question_may_answer(rq, most, "the page", "ask for fewer items")) {
        return HTTP_DONE;
    }
    struct pool_walk walk = {0};
    buf_add(&rq->out, "{", 1);
    add_about(&rq->out, pool);
    buf_addf(&rq->out, ",\"from\":%ld,\"ids\":[", from);
    for (size_t i = first; i < first + n; i++) {
        buf_add(&rq->out, ",", i > first);
        json_add_id(&rq->out, pool_item(pool, i, &walk));
    }
    buf_add(&rq->out, "]}\n", 3);
    return HTTP_DONE;
}
