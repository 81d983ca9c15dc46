/* GET /: one page that shows how the service is, and asks the JSON API for it. It holds everything that it needs. */
#include "page.h"
#include "http/handlers.h"

enum http_outcome get_page(struct http_request *rq)
{
    rq->type = "text/html; charset=utf-8";
    http_header(rq, "Content-Security-Policy",
                "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    http_header(rq, "X-Content-Type-Options", "nosniff");
    http_header(rq, "Referrer-Policy", "no-referrer");
    buf_add(&rq->out, embedded_page, sizeof embedded_page - 1);
    return HTTP_DONE;
}
