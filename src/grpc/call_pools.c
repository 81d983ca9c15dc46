/* PoolList and PoolGet: what pools there are, as this loop sees them. */
#include <inttypes.h>

#include "base/log.h"
#include "grpc/server.h"

enum { PAGE = 1000, PAGE_MAX = ITEMS_MAX };

/* Read, by someone who may; else refused. */
static bool begin(struct call *call, struct slice bytes, struct message *m)
{
    struct conn *c = &call->conn->conn;
    struct err err = {0};
    int code = !call_may_read(call)       ? err_set(&err, ERR_NOMEM, "out of memory for the message")
               : service_dedup(c) == NULL ? service_loading(c->worker->pool->service, &err)
                                          : message_read(call->method, bytes, grpc_loop_of(c)->items, m, &err);
    const struct account *account = account_now(c->worker->pool->service, &call->login.who);
    code = code == 0 ? account_check(account, account_roles_for(&m->asked.rq), &err) : code;
    if (code < 0) {
        call_refuse_err(call, &err, false);
    }
    return code == 0;
}

static enum call_step end(struct call *call, size_t from)
{
    call_end_reply(call, from);
    call_end(call, GRPC_OK, NULL);
    return call_ran(call);
}

enum call_step call_run_pool_list(struct call *call, struct slice bytes)
{
    struct message m;
    if (!begin(call, bytes, &m)) {
        return STEP_DONE;
    }
    const struct pool_table *table = service_pools(service_of(&call->conn->conn));
    if (!conn_may_reply(&call->conn->conn, GRPC_PREFIX + message_pools_max(table))) {
        return STEP_WAIT;
    }
    size_t from = call_begin_reply(call);
    message_write_pools(table, &call->reply);
    return end(call, from);
}

static int find(const struct pool_table *table, const struct message *m, const struct pool **pool, struct err *err)
{
    if (m->asked.count > PAGE_MAX) {
        return err_set(err, ERR_INVALID, "count is %" PRIu64 ", expected 0 to %d", m->asked.count, PAGE_MAX);
    }
    *pool = table != NULL ? pool_table_find(table, m->asked.names[0]) : NULL;
    if (*pool == NULL) {
        return err_set(err, ERR_POOL, "there is no pool %.100s", log_quote(m->asked.names[0]));
    }
    return pool_version_check(m->asked.rq.version, (*pool)->version, 1, err);
}

enum call_step call_run_pool_get(struct call *call, struct slice bytes)
{
    struct message m;
    struct err err = {0};
    const struct pool *pool = NULL;
    if (!begin(call, bytes, &m)) {
        return STEP_DONE;
    }
    if (find(service_pools(service_of(&call->conn->conn)), &m, &pool, &err) < 0) {
        call_refuse_err(call, &err, false);
        return STEP_DONE;
    }
    size_t count = m.asked.count > 0 ? (size_t)m.asked.count : PAGE, most = GRPC_PREFIX + message_page_max(pool, count);
    if (conn_check_reply(&call->conn->conn, most, "the page", "ask for fewer items", &err) < 0) {
        call_refuse_err(call, &err, false);
        return STEP_DONE;
    }
    if (!conn_may_reply(&call->conn->conn, most)) {
        return STEP_WAIT;
    }
    size_t from = call_begin_reply(call);
    message_write_page(pool, m.asked.from < POOL_ITEMS_MAX ? (size_t)m.asked.from : POOL_ITEMS_MAX, count,
                       &call->reply);
    return end(call, from);
}
