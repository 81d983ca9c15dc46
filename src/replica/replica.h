/* A second machine: one primary takes the writes; replicas follow its feed, in its order, over RESP.
 *
 *   feeder.h   the primary's half: answers REPLICA FETCH from the feed, knows who follows and how far
 *   ack.h      the primary's: whom a write waits for
 *   follower.h the replica's half: a thread that fetches and applies
 *   dedup/role.h who this node is: primary, replica or fenced, its term, and what follows from it
 *   change.h   promotions, and what they end: a thread that waits for disks and other nodes
 *   second.h   a replica as this primary's second tier
 *   reach.h    what nodes tell each other of where they are, and how they connect
 *   pages.h    pages of this folder, for a clone
 *   event.h    events on the wire
 *
 * A replica applies events by the store's own record(), forget() and import(). How far it is, is a position
 * (store/positions.h) of the source "feed:NODE:RUN" that is committed with the events themselves, so each is applied
 * once. A forget has no room for a position: it is carried out first, and the position moves with what follows; to
 * repeat it changes nothing, since nothing behind it was applied.
 *
 *   store_open() -> replica_start() -> server_attach() ... server_stop() -> replica_stop() -> the store closes ->
 *   replica_free()
 */
#ifndef UNSEEN_REPLICA_REPLICA_H
#define UNSEEN_REPLICA_REPLICA_H

#include "base/err.h"
#include "base/figure.h"
#include "config/config.h"
#include "dedup/dedup.h"
#include "replica/ack.h"
#include "replica/reach.h"
#include "store/node.h"

enum {
    REPLICA_PROTOCOL = 4,     /* of REPLICA HELLO and what follows it ... */
    REPLICA_PROTOCOL_MIN = 1, /* ... and the oldest that is understood: both sides take the lower of theirs. 3: pools */
    REPLICA_TIMES = 4,        /* the first that knows times and groups of deliveries; others are told none */
    REPLICA_HEARTBEAT_MS = 250,
    REPLICA_TEXT = 320,
};

struct replica;
struct changer;
struct pages;
struct feeder;
struct follower;

struct replica {
    const struct dedup *dedup;
    struct store *store;
    const struct config *cfg;
    int protocol;       /* REPLICA_PROTOCOL, unless a test says otherwise */
    struct reach reach; /* how others reach this node, and it reaches them */
    struct ack *ack;
    struct feeder *feeder;
    struct changer *changer;   /* change.h */
    struct pages *pages;       /* pages.h */
    struct follower *follower; /* NULL: this node follows none */
    struct second *second;     /* second.h; NULL: replica_hedge = no */
};

/* listens: where this node's RESP listens, as reach_init() takes it. *replica is NULL where the
 * store keeps no feed; then replica_of is an ERR_INVALID. ERR_INVALID as well: role and configuration contradict each
 * other, and the text says what to do. */
int replica_start(const struct dedup *dedup, const char *listens, struct replica **replica, struct err *err);
void replica_stop(struct replica *r);
void replica_free(struct replica *r);

#endif
