/* The services beside our own: health and reflection. */
#include "dedup/role.h"
#include "grpc/health.h"
#include "grpc/reflection.h"
#include "grpc/server.h"
#include "service/health.h"
#include "service/service.h"

/* A primary whose writes are held is none to one that routes them. */
static bool has_role(const struct call *call)
{
    const struct dedup *dedup = service_dedup(&call->conn->conn);
    struct err err;
    switch ((enum health_role)call->watched_role) {
    case HEALTH_PRIMARY:
        return dedup != NULL && role_may_write(dedup->role, &err) == 0;
    case HEALTH_REPLICA:
        return dedup != NULL && !role_is_primary(dedup->role);
    default:
        return true;
    }
}

static int health_now(const struct call *call)
{
    struct health h;
    struct worker *w = call->conn->conn.worker;
    health_look(w->pool, &h);
    return h.ready && !w->stopping && has_role(call) ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

static void tell_health(struct call *call, int status)
{
    size_t from = call_begin_reply(call);
    health_write((enum health_status)status, &call->reply);
    call_end_reply(call, from);
    call->watched = status;
}

enum call_step call_run_check(struct call *call, struct slice bytes)
{
    struct err err = {0};
    enum health_role role;
    int code = health_read(bytes, &role, &err);
    call->watched_role = (int)role;
    if (code < 0) {
        return call_refuse(call, code == ERR_NOTFOUND ? GRPC_NOT_FOUND : GRPC_INVALID_ARGUMENT, err.text);
    }
    tell_health(call, health_now(call));
    call_end(call, GRPC_OK, NULL);
    return call_ran(call);
}

/* Who asks about a service that there is not, is told so once. */
enum call_step call_run_watch(struct call *call, struct slice bytes)
{
    struct err err = {0};
    enum health_role role;
    int code = health_read(bytes, &role, &err);
    call->watched_role = (int)role;
    if (code < 0 && code != ERR_NOTFOUND) {
        return call_refuse(call, GRPC_INVALID_ARGUMENT, err.text);
    }
    tell_health(call, code < 0 ? HEALTH_SERVICE_UNKNOWN : health_now(call));
    call->state = CALL_WATCHING;
    h2_reply(call);
    return call_ran(call);
}

void call_look(struct call *call)
{
    int now = call->watched == HEALTH_SERVICE_UNKNOWN ? call->watched : health_now(call);
    if (now != call->watched) {
        tell_health(call, now);
        h2_reply(call);
    }
}

enum call_step call_run_reflection(struct call *call, struct slice bytes)
{
    struct err err = {0};
    if (!conn_may_reply(&call->conn->conn, GRPC_PREFIX + reflection_reply_max(bytes))) {
        return STEP_WAIT;
    }
    size_t before = call->reply.len, from = call_begin_reply(call);
    if (reflection_answer(bytes, &call->reply, &err) < 0) {
        call->reply.len = before;
        return call_refuse(call, GRPC_INVALID_ARGUMENT, err.text);
    }
    call_end_reply(call, from);
    h2_reply(call);
    return call_ran(call);
}
