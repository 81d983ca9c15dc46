/* /healthz: is it alive, or must it be restarted? /readyz: may it be sent requests? */
#include <jansson.h>

#include "http/handlers.h"
#include "http/json.h"
#include "service/health.h"

static enum http_outcome stuck(struct http_request *rq, const struct health *health)
{
    return http_problem(rq, 503, "stuck", "%s", health->cause);
}

enum http_outcome get_healthz(struct http_request *rq)
{
    struct health health;
    health_look(rq->pool, &health);
    if (!health.alive) {
        return stuck(rq, &health);
    }
    json_write(&rq->out, json_pack("{s:b}", "alive", 1));
    return HTTP_DONE;
}

enum http_outcome get_readyz(struct http_request *rq)
{
    struct health health;
    health_look(rq->pool, &health);
    if (!health.alive) {
        return stuck(rq, &health);
    }
    if (!health.ready) {
        struct err err = {0};
        err_set(&err, health.code, "%s", health.cause);
        return http_fail(rq, &err);
    }
    const char *clock = health.clock[0] != '\0' ? health.clock : NULL;
    json_write(&rq->out, json_pack("{s:b, s:s*}", "ready", 1, "clock", clock));
    return HTTP_DONE;
}
