/* Requests to a registry or to the server of a lock, over HTTP or TLS. It is called on one thread, but for
 * agent_interrupt(). */
#ifndef UNSEEN_REGISTRY_AGENT_H
#define UNSEEN_REGISTRY_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/heartbeat.h"

struct agent;

/* What stays as long as the agent. Paths of files, "": none. */
struct agent_tls {
    const char *ca; /* "": the system's */
    const char *cert, *key;
};

struct agent_request {
    const char *url; /* http[s]://host:port */
    const char *method, *path;
    const char *type, *body;     /* body: NULL: none; then type counts for nothing */
    const char *header, *secret; /* "X-Token: " and what follows that; "": none is sent */
    int64_t ms;                  /* so long the answer is waited for, at most */
};

const char *agent_library_version(void); /* libcurl's; "none": built without */

/* Connects to no server yet. ERR_INVALID: built without libcurl; ERR_NOMEM. */
int agent_new(const struct agent_tls *tls, struct heartbeat *heartbeat, struct agent **agent, struct err *err);
void agent_free(struct agent *a);

/* Asks, and waits for the answer. *status: what HTTP said, any; *reply: what came with it. ERR_SYSTEM: there was no
 * answer, and why; ERR_CLOSED: interrupted. */
int agent_call(struct agent *a, const struct agent_request *request, long *status, struct buf *reply, struct err *err);

/* Waits, until interrupted. */
void agent_rest(struct agent *a, int64_t ms);

/* What waits returns at once, and so does what is called later, until agent_resume(). Any thread. */
void agent_interrupt(struct agent *a);
bool agent_interrupted(const struct agent *a);
void agent_resume(struct agent *a);

#endif
