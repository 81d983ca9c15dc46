/* /healthz: is it alive, or must it be restarted? /readyz: may it be sent requests? */
#include <jansson.h>

#include "dedup/role.h"
#include "http/handlers.h"
#include "http/json.h"
#include "service/health.h"

static const char *said(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

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
    json_write(&rq->out, json_pack("{s:b, s:s*}", "alive", 1, "degraded", said(health.degraded)));
    return HTTP_DONE;
}

/* ?role=primary or ?role=replica: for routers of writes, or of questions. 0: no role is asked for, or it is this
 * one's. */
static int check_role(struct http_request *rq, struct err *err)
{
    struct slice name, value;
    size_t at = 0;
    int rc;
    while ((rc = http_argument(rq, &at, &name, &value)) > 0) {
        bool primary = slice_eq(value, slice_str("primary")), replica = slice_eq(value, slice_str("replica"));
        if (!slice_eq(name, slice_str("role")) || (!primary && !replica)) {
            return err_set(err, ERR_INVALID, "only role=primary and role=replica can be asked for");
        }
        if (primary ? role_may_write(rq->dedup->role, err) < 0 : role_is_primary(rq->dedup->role)) {
            return primary ? ERR_STALE : err_set(err, ERR_STALE, "this node is a primary");
        }
    }
    return rc < 0 ? err_set(err, ERR_INVALID, "the query has a bad %%xx") : 0;
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
    struct err wrong = {0};
    int role = check_role(rq, &wrong);
    if (role < 0) {
        return http_problem(rq, role == ERR_STALE ? 503 : 400, role == ERR_STALE ? "other-role" : "bad-request", "%s",
                            wrong.text);
    }
    json_write(&rq->out, json_pack("{s:b, s:s*, s:s*}", "ready", 1, "clock", said(health.clock), "degraded",
                                   said(health.degraded)));
    return HTTP_DONE;
}
