/* Failover by a lock (lock.h): a thread that holds the primary's lock, or watches it and promotes this node.
 * lease_state.h says what the lock is and why no two nodes take writes under it; docs/replicas.md what that costs.
 *
 * It knows neither roles nor feeds: its starter gives it the hooks. All of them are called on its thread (hold()
 * on that of lease_new() as well), and may block, but for until().
 *
 *   lease_new(): writes are held -> lease_start() -> ... -> no more writes -> lease_stop(): the lock is free at once
 */
#ifndef UNSEEN_REGISTRY_LEASE_H
#define UNSEEN_REGISTRY_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "config/config.h"
#include "registry/lease_state.h"

struct lease;

enum { LEASE_TEXT = 320, LEASE_ALONE_MS = 3000, LEASE_STOP_MS = 2000 };

struct lease_hooks {
    /* Who this node is now; all but in_step, and address points to what stays until the next call. */
    void (*look)(void *arg, struct lease_self *out); /* out->named is given */
    /* No writes are to be taken, and why; NULL: they may be. Whatever the role is: a replica that is promoted by hand
     * waits for the lock, too. */
    void (*hold)(void *arg, const char *why);
    /* And none at or after that moment of clock_mono_ms(), even if this thread is not heard of any more: each time that
     * moves, and before hold(NULL). NULL: no. */
    void (*until)(void *arg, int64_t mono_ms);
    /* Another node is primary of that term, as Consul has it, and comes before this one. NULL: no. */
    void (*met)(void *arg, uint64_t term, uint64_t node, const char *address);
    /* Becomes primary of that term or a higher one; durable when it returns 0. */
    int (*promote)(void *arg, uint64_t term, struct err *err);
    void *arg;
};

/* *lease is NULL when replica_failover is no, or no server keeps a lock; the functions below take that. ERR_INVALID:
 * this unseen was built without libcurl, or the lock is in-cluster and this is no pod; ERR_SYSTEM; ERR_NOMEM. Who keeps
 * the lock need not be there. */
int lease_new(const struct config *cfg, const struct lease_hooks *hooks, struct lease **lease, struct err *err);
int lease_start(struct lease *l, struct err *err); /* ERR_SYSTEM: no thread */
void lease_stop(struct lease *l);
void lease_free(struct lease *l);

/* The gatekeeper of replica/ack.h, on any thread; arg is the lease. Has the key name these replicas as those that have
 * all that was acknowledged, or none; true once it does, and false after LEASE_ALONE_MS, when it may come to. Until
 * it was called the key says of a node what it said before its start, and of a new primary that it is out of step. */
bool lease_record(void *lease, const uint64_t *nodes, int n);

struct lease_status {
    bool on;
    const char *by;                           /* who keeps the lock: consul, etcd, kubernetes */
    bool held;                                /* this node may take writes, if it is primary */
    bool in_step;                             /* as recorded there */
    uint64_t term;                            /* as recorded there; 0: nothing was read */
    int64_t left_ms;                          /* until writes would end */
    char cause[LEASE_TEXT];                   /* why writes are held or none is promoted; "" */
    uint64_t asked, errors, promotions, lost; /* since the start; lost: times that writes were held after they went */
};
void lease_look(struct lease *l, struct lease_status *out); /* any thread */
void lease_figures_each(struct lease *l, figure_visit *visit, void *arg);

#endif
