#include <string.h>

#include "http/handlers.h"
#include "openapi.h"

enum http_outcome get_openapi(struct http_request *rq)
{
    buf_add(&rq->out, embedded_openapi, sizeof embedded_openapi - 1);
    return HTTP_DONE;
}

/* Of the server as a whole: no content. */
enum http_outcome options_all(struct http_request *rq)
{
    http_header(rq, "Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    return HTTP_DONE;
}
