/* Where a replica of the primary before this one goes on. Both have followed the same feed, each with seqs of its own:
 * while a node is a replica its own feed says again and again up to where of that feed it has come (FEED_OFFSET), and
 * is kept for the other replicas (siblings.h). So a replica that followed NODE up to SEQ goes on behind the last of
 * these marks that isn't beyond SEQ. What lies between is applied once more, which ends alike: of each item the last
 * word counts. */
#ifndef UNSEEN_REPLICA_ADOPT_H
#define UNSEEN_REPLICA_ADOPT_H

#include "replica/cursor.h"

/* from: the seq of this node's feed to go on behind. 0; ERR_NOTFOUND: it must be cloned again, and why; ERR_RANGE: it
 * has more of that feed than this node ever had, and would keep it; or an error of the store. Reads the feed. */
int adopt_find(struct store *store, struct store_reader *reader, uint64_t replica, const struct feed_cursor *followed,
               uint64_t *from, struct err *err);

#endif
