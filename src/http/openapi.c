#include <string.h>

#include "http/handlers.h"
#include "openapi.h"

enum http_outcome get_openapi(struct http_request *rq)
{
    buf_add(&rq->out, embedded_openapi, sizeof embedded_openapi - 1);
    return HTTP_DONE;
}
