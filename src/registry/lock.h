/* The seam to what keeps the primary's lock. lease_state.h asks, a kind of server puts that into one request of HTTP
 * and takes the answer apart; lease.c sends it. All here is pure.
 *
 * What a kind must have, or the proof in lease_state.h is void:
 *   - one key with a value of about 1 KiB, whose reads see all writes that were carried out before they were asked for;
 *   - each write of it gives it an index (a revision) that it has never had before;
 *   - a write is carried out only if the key is still at the index that was read (0: it is not there), whichever node
 *   holds
 *     it, and however late the request comes;
 *   - so it is, too, if the server has lost its data since, and gives indexes again: the session is gone, the holder is
 *     compared, or the key has a mark;
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

enum { LOCK_PATH = 2 * CONFIG_TEXT + 512, LOCK_KEY = CONFIG_TEXT + 32, LOCK_SECRET = 16 * 1024 };

enum lock_status {
    HTTP_OK = 200,
    HTTP_CREATED = 201,
    HTTP_NOT_FOUND = 404,
    HTTP_CONFLICT = 409,
};

/* Whose lock it is. */
struct lock_group {
    const char *name;
    const char *space; /* Kubernetes: its namespace */
    int64_t wall_ms;   /* for people to read; nothing is decided by it */
};

struct lock_request {
    const char *method;
    const char *type; /* of the body */
    char path[LOCK_PATH];
    char *body; /* the caller frees it; NULL: none */
};

struct lock_kind {
    const char *name, *id; /* as people call it, and as INFO does */
    const char *header;    /* what stands before a secret */
    struct lease_promises promises;
    /* Sets method, path and body. False: out of memory. */
    bool (*request)(const struct lease_state *s, const struct lease_self *self, const struct lock_group *group,
                    struct lock_request *out);
    /* reply: NULL if it is no JSON. out->said is LEASE_YES. False: it says nothing that can be understood. */
    bool (*take)(const struct lease_state *s, long status, const json_t *reply, struct lease_answer *out);
    /* With a name and a password a secret is asked for first, and again once that is refused. NULL: it never is. */
    bool (*login)(const char *user, const char *password, struct lock_request *out);
    const char *(*take_login)(long status, const json_t *reply); /* NULL: refused */
};

extern const struct lock_kind lock_consul, lock_etcd, lock_kubernetes;

/* What lease_next() asks for, of anything but REST and PROMOTE. 0, ERR_NOMEM. */
int lock_request(const struct lock_kind *kind, const struct lease_state *s, const struct lease_self *self,
                 const struct lock_group *group, struct lock_request *out, struct err *err);

/* The answer to it. What can't be understood is LEASE_LOST, and cause says what it was. */
void lock_reply(const struct lock_kind *kind, const struct lease_state *s, long status, struct slice reply,
                struct lease_answer *out, struct err *cause);

/* The same for a login. 0, and the secret; ERR_NOMEM; ERR_INVALID: refused, or not understood. */
int lock_login(const struct lock_kind *kind, const char *user, const char *password, struct lock_request *out,
               struct err *err);
int lock_take_login(const struct lock_kind *kind, long status, struct slice reply, char secret[LOCK_SECRET],
                    struct err *err);

/* For a cause of lease_state.h: the name takes the place of each '@'. */
void lock_cause(const struct lock_kind *kind, const char *cause, char *out, size_t size);

#endif
