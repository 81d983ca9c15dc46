/* POST /v1/played, /v1/delivered, /v1/block, /v1/unblock, DELETE /v1/users/{user}: ids in, a count out. */
#include <inttypes.h>

#include "http/handlers.h"
#include "http/submit.h"

static void tell_recorded(struct http_request *rq, const struct request *asked)
{
    buf_addf(&rq->out, "{\"recorded\":%" PRId64 "}\n", asked->count);
}

static void tell_blocked(struct http_request *rq, const struct request *asked)
{
    buf_addf(&rq->out, "{\"blocked\":%" PRId64 "}\n", asked->count);
}

static void tell_unblocked(struct http_request *rq, const struct request *asked)
{
    buf_addf(&rq->out, "{\"unblocked\":%" PRId64 "}\n", asked->count);
}

static void tell_forgotten(struct http_request *rq, const struct request *asked)
{
    buf_addf(&rq->out, "{\"forgotten\":%" PRId64 "}\n", asked->count);
}

/* Reads the body and submits it; the request's items are the field `ids`. */
static enum http_outcome submit(struct http_request *rq, struct request *asked, const struct json_field *fields,
                                const struct json_ids *ids, enum op op, http_tell *tell)
{
    if (!json_read(rq, fields)) {
        return HTTP_DONE;
    }
    asked->items = ids->items;
    asked->n = ids->n;
    enum http_outcome outcome = http_submit(rq, asked, asked->has_at ? OP_PLAYEDAT : op, tell);
    return outcome;
}

enum http_outcome post_played(struct http_request *rq)
{
    struct request asked = {.kind = REQUEST_PLAY};
    struct json_ids ids = {0};
    const struct json_field fields[] = {{"user", true, .id = &asked.user},
                                        {"items", true, .ids = &ids},
                                        {"at", false, .number = &asked.at_ms, .given = &asked.has_at},
                                        {0}};
    return submit(rq, &asked, fields, &ids, OP_PLAYED, tell_recorded);
}

enum http_outcome post_delivered(struct http_request *rq)
{
    struct request asked = {.kind = REQUEST_DELIVERY};
    struct json_ids ids = {0};
    const struct json_field fields[] = {{"user", true, .id = &asked.user}, {"items", true, .ids = &ids}, {0}};
    return submit(rq, &asked, fields, &ids, OP_DELIVERED, tell_recorded);
}

/* Ids are strings, as the items of /v1/unseen are. */
enum http_outcome post_block(struct http_request *rq)
{
    struct request asked = {.kind = REQUEST_BLOCK};
    struct json_ids ids = {0};
    const struct json_field fields[] = {{"session", true, .id = &asked.session}, {"ids", true, .ids = &ids}, {0}};
    return submit(rq, &asked, fields, &ids, OP_BLOCK, tell_blocked);
}

/* Without ids it ends the session. */
enum http_outcome post_unblock(struct http_request *rq)
{
    struct request asked = {.kind = REQUEST_UNBLOCK};
    struct json_ids ids = {0};
    const struct json_field fields[] = {{"session", true, .id = &asked.session}, {"ids", false, .ids = &ids}, {0}};
    return submit(rq, &asked, fields, &ids, OP_UNBLOCK, tell_unblocked);
}

/* ?item=a&item=b */
static bool read_items(struct http_request *rq, size_t *n)
{
    struct slice name, value;
    size_t at = 0;
    int code;
    *n = 0;
    while ((code = http_argument(rq, &at, &name, &value)) > 0 && slice_eq(name, slice_str("item"))) {
        rq->items[(*n)++] = value; /* a line holds far fewer than ITEMS_MAX */
    }
    if (code < 0) {
        http_problem(rq, 400, "bad-request", "the query holds a %% without two hex digits behind it");
    } else if (code > 0) {
        http_problem(rq, 400, "bad-request", "unknown argument '%.*s', expected item", (int)name.len, name.data);
    }
    return code == 0;
}

enum http_outcome delete_user(struct http_request *rq)
{
    struct request asked = {.kind = REQUEST_FORGET, .user = rq->param, .items = rq->items};
    return read_items(rq, &asked.n) ? http_submit(rq, &asked, OP_FORGET, tell_forgotten) : HTTP_DONE;
}
