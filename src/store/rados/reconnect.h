/* A connection that is made again when the cluster has fenced its client (blocklisted it): the functions of cluster.h
 * over another one's. Ceph never lets a fenced client in again, but a new one of the same name at once.
 *
 * Whatever was under way with the fenced client ends, as CLUSTER_FENCED or late, and so does what is begun before
 * there is a new one: nothing is sent a second time here, since only the caller knows whether it may be. A thread of
 * its own connects, tries again after delays that grow to half a minute, and drops the old client once nothing is under
 * way with it.
 */
#ifndef UNSEEN_STORE_RADOS_RECONNECT_H
#define UNSEEN_STORE_RADOS_RECONNECT_H

#include "store/rados/cluster.h"

/* All but failed() on the thread of the connection. */
struct reconnect_hooks {
    void *owner;
    /* Whether a new client is with the pool that the old one was with: a pool of that name may be another one now. 0;
     * or an error: then the old one stays, and it is tried again. May block. */
    int (*check)(void *owner, const struct cluster_ops *ops, struct cluster *fresh, struct err *err);
    /* Operations go to a new client from now on. */
    void (*connected)(void *owner);
    /* An operation ended late, or with an error of the cluster; one that is full makes none. Any thread, before the
     * caller that began it is told. */
    void (*failed)(void *owner);
};

/* Connects as `inner` does; all that the arguments point to stays. *cluster is for reconnect_ops, which have neither
 * version nor connect: those are inner's. disconnect blocks, within the time limit. */
int reconnect_open(const struct cluster_ops *inner, const struct cluster_options *to,
                   const struct reconnect_hooks *hooks, struct cluster **cluster, struct err *err);

extern const struct cluster_ops reconnect_ops;

#endif
