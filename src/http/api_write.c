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

/* Reads the body and submits it. */
static enum http_outcome submit(struct http_request *rq, unsigned of, enum request_kind kind, enum op op,
                                http_tell *tell)
{
    struct asked asked = {.rq = {.kind = kind}};
    return json_read(rq, of, &asked) ? http_submit(rq, &asked.rq, asked.rq.has_at ? OP_PLAYEDAT : op, tell) : HTTP_DONE;
}

enum http_outcome post_played(struct http_request *rq)
{
    return submit(rq, OF_PLAYED, REQUEST_PLAY, OP_PLAYED, tell_recorded);
}

enum http_outcome post_delivered(struct http_request *rq)
{
    return submit(rq, OF_DELIVERED, REQUEST_DELIVERY, OP_DELIVERED, tell_recorded);
}

/* Ids are strings, as the items of /v1/unseen are. */
enum http_outcome post_block(struct http_request *rq)
{
    return submit(rq, OF_BLOCK, REQUEST_BLOCK, OP_BLOCK, tell_blocked);
}

/* Without ids it ends the session. */
enum http_outcome post_unblock(struct http_request *rq)
{
    return submit(rq, OF_UNBLOCK, REQUEST_UNBLOCK, OP_UNBLOCK, tell_unblocked);
}

/* ?item=a&item=b */
enum http_outcome delete_user(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_FORGET, .user = rq->param}};
    return json_read_query(rq, OF_FORGET, &asked) ? http_submit(rq, &asked.rq, OP_FORGET, tell_forgotten) : HTTP_DONE;
}
