/* Registers the server in Consul, so that clients find it: section [registry]. A thread of its own does that and keeps
 * the entries alive; only a stop waits for it, for REGISTRY_STOP_MS at most.
 *
 *   registry_new() -> the server answers questions -> registry_start() -> a signal -> registry_stop(): the entries go
 * -> connections are drained -> registry_free()
 */
#ifndef UNSEEN_REGISTRY_REGISTRY_H
#define UNSEEN_REGISTRY_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "config/config.h"

struct registry;

enum { REGISTRY_STOP_MS = 2000, REGISTRY_TEXT = 512 };

/* How the server is: whether it is well, and if not, why; and its role, a constant word. Called on the registry's
 * thread. */
struct registry_self {
    bool well;
    char cause[REGISTRY_TEXT];
    const char *role;
};
typedef void registry_look_fn(void *arg, struct registry_self *out);

/* *registry is NULL when nothing is to be registered; the functions below take that. ERR_INVALID: this unseen was built
 * without libcurl; ERR_NOMEM. Consul need not be there. cfg and arg outlive it. */
int registry_new(const struct config *cfg, registry_look_fn *look, void *arg, struct registry **registry,
                 struct err *err);

/* Something that the server listens on, as server_address() has it; before the start. */
void registry_add(struct registry *r, const char *address);
/* The server is ready. ERR_SYSTEM: no thread; ERR_NOMEM. */
int registry_start(struct registry *r, uint32_t seed_fingerprint, struct err *err);
void registry_stop(struct registry *r); /* deregisters, and ends the thread */
void registry_free(struct registry *r); /* when no thread looks any more */

enum registry_doing {
    REGISTRY_OFF,
    REGISTRY_WAITING, /* for what `cause` says; tries again by itself */
    REGISTRY_REGISTERED,
};
const char *registry_doing_name(enum registry_doing doing); /* "off", "waiting", "registered" */

struct registry_status {
    enum registry_doing doing;
    char cause[REGISTRY_TEXT];
    uint64_t services;      /* registered now */
    uint64_t registrations; /* since the start, as is the next */
    uint64_t errors;
};
void registry_look(struct registry *r, struct registry_status *out);            /* any thread */
void registry_figures_each(struct registry *r, figure_visit *visit, void *arg); /* NULL: none */

#endif
