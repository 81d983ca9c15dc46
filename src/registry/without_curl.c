/* Replaces agent.c in a build without libcurl. Most is never reached: registry_consul is refused. */
#include "registry/agent.h"

const char *agent_library_version(void)
{
    return "none";
}

int agent_new(const struct agent_tls *tls, struct heartbeat *heartbeat, struct agent **agent, struct err *err)
{
    (void)tls, (void)heartbeat;
    *agent = NULL;
    return err_set(err, ERR_INVALID,
                   "this unseen was built without libcurl and can't talk to Consul or another registry");
}

void agent_free(struct agent *a)
{
    (void)a;
}

int agent_call(struct agent *a, const struct agent_request *request, long *status, struct buf *reply, struct err *err)
{
    (void)a, (void)request, (void)status, (void)reply;
    return err_set(err, ERR_CLOSED, "no agent");
}

void agent_rest(struct agent *a, int64_t ms)
{
    (void)a, (void)ms;
}

void agent_interrupt(struct agent *a)
{
    (void)a;
}

bool agent_interrupted(const struct agent *a)
{
    (void)a;
    return true;
}

void agent_resume(struct agent *a)
{
    (void)a;
}
