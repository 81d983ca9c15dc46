/* Requests to an agent of Consul, over HTTP or TLS. It is called on one thread, but for agent_interrupt(). */
#ifndef UNSEEN_REGISTRY_AGENT_H
#define UNSEEN_REGISTRY_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/heartbeat.h"
#include "config/config.h"

struct agent;

const char *agent_library_version(void); /* libcurl's; "none": built without */

/* Connects to nobody yet. ERR_INVALID: built without libcurl; ERR_NOMEM. */
int agent_new(const struct config *cfg, struct heartbeat *heartbeat, struct agent **agent, struct err *err);
void agent_free(struct agent *a);

/* Asks, and waits for the answer, for ms at most. body: JSON, or NULL. *status: what HTTP said, any; *reply: what came
 * with it. ERR_SYSTEM: there was no answer, and why; ERR_CLOSED: interrupted. */
int agent_call(struct agent *a, const char *method, const char *path, const char *body, int64_t ms, long *status,
               struct buf *reply, struct err *err);

/* Waits, until interrupted. */
void agent_rest(struct agent *a, int64_t ms);

/* What waits returns at once, and so does what is called later, until agent_resume(). Any thread. */
void agent_interrupt(struct agent *a);
bool agent_interrupted(const struct agent *a);
void agent_resume(struct agent *a);

#endif
