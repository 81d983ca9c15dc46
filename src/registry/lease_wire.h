/* Failover as requests to Consul's agent, and its answers taken apart. Pure. */
#ifndef UNSEEN_REGISTRY_LEASE_WIRE_H
#define UNSEEN_REGISTRY_LEASE_WIRE_H

#include "base/buf.h"
#include "registry/lease_state.h"

enum { LEASE_PATH = CONFIG_TEXT + 256, LEASE_KEY = CONFIG_TEXT + 32 };

struct lease_request {
    const char *method;
    char path[LEASE_PATH];
    char *body; /* the caller frees it; NULL: none */
};

/* What lease_next() asks for, of anything but REST and PROMOTE. 0, ERR_NOMEM. */
int lease_request(const struct lease_state *s, const struct lease_self *self, const char *name,
                  struct lease_request *out, struct err *err);

/* The answer to it. What can't be understood is LEASE_LOST, and cause says what it was. */
void lease_reply(const struct lease_state *s, long status, struct slice reply, struct lease_answer *out,
                 struct err *cause);

#endif
