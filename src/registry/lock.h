/* The seam to what keeps the primary's lock. lease_state.h asks, a kind of server puts that into one request of HTTP
 * and takes the answer apart; lease.c sends it. All here is pure.
 *
 * What a kind must have, or the proof in lease_state.h is void:
 *   - one key with a value of about 1 KiB, whose reads see all writes that were carried out before they were asked for;
 *   - each write of it gives it an index (a revision) that it has never had before;
 *   - a write is carried out only if the key is still at the index that was read (0: it is not there), whoever holds
 *     it, and however late the request comes;
 *   - the key says who holds it, and outlives its holder. Either the server frees it when the holder's session ends,
 *     and then gives it to no other for LEASE_LOCK_DELAY_MS unless the key is taken over at its index; or nothing but
 *     a write frees it (lease_promises).
 * Clocks of servers are not asked for, and none is compared with another: who is silent is judged by the observer's
 * own monotonic clock, from when it first read that index.
 */
#ifndef UNSEEN_REGISTRY_LOCK_H
#define UNSEEN_REGISTRY_LOCK_H

#include <jansson.h>

#include "base/buf.h"
#include "registry/lease_state.h"

enum { LOCK_PATH = CONFIG_TEXT + 256, LOCK_KEY = CONFIG_TEXT + 32 };

enum lock_status {
    HTTP_OK = 200,
    HTTP_NOT_FOUND = 404,
    HTTP_CONFLICT = 409,
};

struct lock_request {
    const char *method;
    char path[LOCK_PATH];
    char *body; /* the caller frees it; NULL: none */
};

struct lock_kind {
    const char *name; /* as people call it */
    struct lease_promises promises;
    /* Sets method, path and body. False: out of memory. */
    bool (*request)(const struct lease_state *s, const struct lease_self *self, const char *name,
                    struct lock_request *out);
    /* reply: NULL if it is no JSON. out->said is LEASE_YES. False: it says nothing that can be understood. */
    bool (*take)(const struct lease_state *s, long status, const json_t *reply, struct lease_answer *out);
};

extern const struct lock_kind lock_consul;

/* What lease_next() asks for, of anything but REST and PROMOTE; name: of the group. 0, ERR_NOMEM. */
int lock_request(const struct lock_kind *kind, const struct lease_state *s, const struct lease_self *self,
                 const char *name, struct lock_request *out, struct err *err);

/* The answer to it. What can't be understood is LEASE_LOST, and cause says what it was. */
void lock_reply(const struct lock_kind *kind, const struct lease_state *s, long status, struct slice reply,
                struct lease_answer *out, struct err *cause);

/* For a cause of lease_state.h: the name takes the place of each '@'. */
void lock_cause(const struct lock_kind *kind, const char *cause, char *out, size_t size);

#endif
