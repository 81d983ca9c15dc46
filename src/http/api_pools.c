/* /v1/pools and /v1/pools/{pool}: lists of candidates that the server holds, as POOL. The name stands in the path, so
 * it may be any bytes; items are strings. */
#include <inttypes.h>

#include "dedup/pools.h"
#include "http/handlers.h"
#include "http/server.h"
#include "http/submit.h"

enum { GET_ITEMS = 1000 };

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

enum http_outcome get_pool(struct http_request *rq)
{
    struct asked asked = {.count = GET_ITEMS};
    if (!json_read_query(rq, OF_POOL_GET, &asked)) {
        return HTTP_DONE;
    }
    const struct pool_table *table = table_of(rq);
    const struct pool *pool = table != NULL ? pool_table_find(table, rq->param) : NULL;
    if (pool == NULL) {
        return http_nothing(rq, "unknown-pool", "there is no such pool");
    }
    size_t first = asked.from < pool->n ? (size_t)asked.from : pool->n;
    size_t n = asked.count < pool->n - first ? (size_t)asked.count : pool->n - first;
    size_t most = question_answer_max(FORM_ITEMS, n, pool_ids_max(n, pool->id_bytes));
    if (!question_may_answer(rq, most, "the page", "ask for fewer items")) {
        return HTTP_DONE;
    }
    struct pool_walk walk = {0};
    buf_add(&rq->out, "{", 1);
    add_about(&rq->out, pool);
    buf_addf(&rq->out, ",\"from\":%" PRIu64 ",\"ids\":[", asked.from);
    for (size_t i = first; i < first + n; i++) {
        buf_add(&rq->out, ",", i > first);
        json_add_id(&rq->out, pool_item(pool, i, &walk));
    }
    buf_add(&rq->out, "]}\n", 3);
    return HTTP_DONE;
}
