/* POST /v1/played, /v1/delivered, /v1/block, /v1/unblock, /v1/users/{user}:merge, DELETE /v1/users/{user}: ids in, a
 * count out. */
#include <inttypes.h>

#include "http/handlers.h"
#include "http/submit.h"

static void tell_count(struct http_request *rq, const struct request *asked)
{
    static const char *const names[REQUEST_KINDS] = {
        [REQUEST_PLAY] = "recorded", [REQUEST_DELIVERY] = "recorded", [REQUEST_FORGET] = "forgotten",
        [REQUEST_BLOCK] = "blocked", [REQUEST_UNBLOCK] = "unblocked", [REQUEST_MERGE] = "merged",
    };
    buf_addf(&rq->out, "{\"%s\":%" PRId64 "}\n", names[asked->kind], asked->count);
}

/* Reads the body and submits it. */
static enum http_outcome submit(struct http_request *rq, unsigned of, enum request_kind kind, enum op op)
{
    struct asked asked = {.rq = {.kind = kind}};
    return json_read(rq, of, &asked) ? http_submit(rq, &asked.rq, asked.rq.has_at ? OP_PLAYEDAT : op, tell_count)
                                     : HTTP_DONE;
}

enum http_outcome post_played(struct http_request *rq)
{
    return submit(rq, OF_PLAYED, REQUEST_PLAY, OP_PLAYED);
}

enum http_outcome post_delivered(struct http_request *rq)
{
    return submit(rq, OF_DELIVERED, REQUEST_DELIVERY, OP_DELIVERED);
}

/* Ids are strings, as the items of /v1/unseen are. */
enum http_outcome post_block(struct http_request *rq)
{
    return submit(rq, OF_BLOCK, REQUEST_BLOCK, OP_BLOCK);
}

/* Without ids it ends the session. */
enum http_outcome post_unblock(struct http_request *rq)
{
    return submit(rq, OF_UNBLOCK, REQUEST_UNBLOCK, OP_UNBLOCK);
}

/* ?item=a&item=b */
enum http_outcome delete_user(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_FORGET, .user = rq->param}};
    return json_read_query(rq, OF_FORGET, &asked) ? http_submit(rq, &asked.rq, OP_FORGET, tell_count) : HTTP_DONE;
}

enum http_outcome post_merge(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_MERGE, .user = rq->param}};
    return json_read(rq, OF_MERGE, &asked) ? http_submit(rq, &asked.rq, OP_MERGE, tell_count) : HTTP_DONE;
}
