/* /v1/pools and /v1/pools/{pool}: lists of candidates that the server holds, as POOL. The name stands in the path, so
 * it may be any bytes; items are strings. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "dedup/pools.h"
#include "http/handlers.h"
#include "http/server.h"
#include "http/submit.h"

enum { GET_ITEMS = 1000, GET_ITEMS_MAX = 10000, NUMBER_TEXT = 24 };

/* --- changes --- */

static json_t *tell_changed(const struct request *rq)
{
    char version[POOL_VERSION_TEXT];
    return json_pack("{s:I, s:s}", "items", (json_int_t)rq->count, "version",
                     pool_version_text(rq->pool_version, version));
}

static json_t *tell_dropped(const struct request *rq)
{
    return json_pack("{s:I}", "dropped", (json_int_t)rq->count);
}

enum http_outcome put_pool(struct http_request *rq)
{
    struct json_ids ids = {0};
    const struct json_field fields[] = {{"items", true, .ids = &ids}, {0}};
    json_t *body = json_read(rq, fields);
    if (body == NULL) {
        return HTTP_DONE;
    }
    const struct request asked = {
        .kind = REQUEST_POOL_SET, .pools = &rq->param, .n_pools = 1, .items = ids.items, .n = ids.n};
    enum http_outcome outcome = http_submit(rq, &asked, OP_OTHER, tell_changed);
    json_decref(body);
    return outcome;
}

/* {"items": [...]} adds them, {"rename": "hot"} gives it another name. */
enum http_outcome post_pool(struct http_request *rq)
{
    struct json_ids ids = {0};
    struct slice names[2] = {rq->param, {0}};
    bool renames = false, adds = false;
    const struct json_field fields[] = {
        {"items", false, .ids = &ids, .given = &adds}, {"rename", false, .id = &names[1], .given = &renames}, {0}};
    json_t *body = json_read(rq, fields);
    if (body == NULL) {
        return HTTP_DONE;
    }
    const struct request asked = {.kind = renames ? REQUEST_POOL_RENAME : REQUEST_POOL_ADD,
                                  .pools = names,
                                  .n_pools = renames ? 2 : 1,
                                  .items = ids.items,
                                  .n = ids.n};
    enum http_outcome outcome =
        renames == adds ? http_problem(rq, 400, "bad-request", "items and rename are %s given, expected one of them",
                                       adds ? "both" : "not")
                        : http_submit(rq, &asked, OP_OTHER, tell_changed);
    json_decref(body);
    return outcome;
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

static json_t *about(const struct pool *pool)
{
    char version[POOL_VERSION_TEXT];
    json_t *told = json_pack("{s:I, s:s, s:I, s:I}", "items", (json_int_t)pool->n, "version",
                             pool_version_text(pool->version, version), "bytes", (json_int_t)pool->bytes, "changed",
                             (json_int_t)pool->changed_ms);
    if (told != NULL) {
        json_set_id(told, "name", pool->name);
    }
    return told;
}

enum http_outcome get_pools(struct http_request *rq)
{
    const struct pool_table *table = table_of(rq);
    json_t *list = json_array();
    for (size_t i = 0; table != NULL && i < table->n; i++) {
        json_append(&list, about(table->list[i]));
    }
    json_write(&rq->out, json_pack("{s:o}", "pools", list));
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
    json_t *ids = json_array(), *told = about(pool);
    for (size_t i = first; i < first + n; i++) {
        struct slice id = pool_item(pool, i, &walk);
        json_append(&ids, json_from_item(id));
    }
    if (told != NULL) {
        json_object_set_new(told, "from", json_integer(from));
        json_object_set_new(told, "ids", ids);
    } else {
        json_decref(ids);
    }
    json_write(&rq->out, told);
    return HTTP_DONE;
}
