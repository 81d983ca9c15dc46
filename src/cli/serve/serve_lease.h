/* Failover by Consul, tied to this node's role: what src/registry/lease.h asks and orders is answered by dedup/role.h
 * and src/replica/, which it doesn't know. */
#ifndef UNSEEN_CLI_SERVE_LEASE_H
#define UNSEEN_CLI_SERVE_LEASE_H

#include "base/err.h"
#include "dedup/dedup.h"

/* Before any client can write: writes are held from here on, until the lock is ours. Nothing without
 * replica_failover. */
int serve_lease_new(struct dedup *dedup, struct err *err);
/* Once this node answers, and has started what it is a replica or a primary with. */
int serve_lease_start(const struct dedup *dedup, struct err *err);

#endif
