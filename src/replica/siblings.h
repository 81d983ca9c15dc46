/* The other replicas of this node's primary, as that names them in REPLICA HELLO. What is applied here is kept for
 * them, too, for FEED_HOLD_MS: when this node is promoted, they go on behind it without being copied again
 * (adopt.h). */
#ifndef UNSEEN_REPLICA_SIBLINGS_H
#define UNSEEN_REPLICA_SIBLINGS_H

#include "replica/follower_impl.h"

/* The follower's thread. The primary's answer to a hello: those that are new are enlisted here, and those not named any
 * more, or was left over from this node's own time as a primary, is dismissed. */
void siblings_note(struct follower *f, const struct reply *hello);

/* Now and then: what has come by now is held for them by its time alone. */
void siblings_skip(struct follower *f);

#endif
