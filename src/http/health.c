/* /healthz: is it alive, or must it be restarted? /readyz: may it be sent requests? */
#include <jansson.h>

#include "http/handlers.h"
#include "http/json.h"

/* This thread runs, and so the process does. */
enum http_outcome get_healthz(struct http_request *rq)
{
    json_write(&rq->out, json_pack("{s:b}", "alive", 1));
    return HTTP_DONE;
}

enum http_outcome get_readyz(struct http_request *rq)
{
    if (rq->dedup == NULL) {
        struct err err = {ERR_LOADING, "the server is reading what was staged; it has not recovered yet"};
        return http_fail(rq, &err);
    }
    struct store_ring ring;
    rq->dedup->store->ops->ring(rq->dedup->store, &ring);
    if (ring.busy) {
        struct err err = {.code = ERR_BUSY};
        err_set(&err, ERR_BUSY, "writes are refused: %s", ring.busy_cause);
        return http_fail(rq, &err);
    }
    json_write(&rq->out, json_pack("{s:b}", "ready", 1));
    return HTTP_DONE;
}
