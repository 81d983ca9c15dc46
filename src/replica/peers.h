/* Whom this node has to tell of its term: every node that it has followed, or that has followed it or followed the same
 * primary, and how it is reached. The list is in the folder: each peer is a position (store/positions.h)
 *
 *   "peer:OWN:NODE:ADDRESS"   OWN: this node; NODE: the peer, 0 where only its address is known (16 hex digits each)
 *
 * of which the value says the highest term that the peer has heard of from this node, its own or its primary's, and
 * whether an operator named the address. So a node that was promoted goes on telling after any start, whatever its
 * configuration says, until each peer has heard, or an operator has dismissed it. A backup that is restored, and a
 * folder that has become another node, have no peers. One that doesn't answer is tried less and less often, unless
 * there is a sign that others are reached.
 *
 * One thread at a time. Whatever changes the list blocks until that is durable.
 */
#ifndef UNSEEN_REPLICA_PEERS_H
#define UNSEEN_REPLICA_PEERS_H

#include "store/node.h"
#include "store/store.h"

enum { PEERS_MAX = 32, PEERS_FIRST_US = 1000 * 1000, PEERS_LAST_US = 5 * 1000 * 1000 };

struct peer {
    uint64_t node;  /* 0: not known */
    uint64_t heard; /* of this term; 0: of none */
    bool named;     /* the address: by replica_of, unseen clone or rejoin */
    char address[NODE_ADDRESS_TEXT];
    int64_t delay_us, due_us; /* of this run: how long it rests, and until when (clock_real_us()); 0: it may be tried */
};

struct peers {
    struct peer list[PEERS_MAX];
    int n;
};

/* What the folder says; none where the store has no positions to be read. */
int peers_load(struct store *store, struct peers *peers, struct err *err);

/* Adds a peer, or what is new of it: a higher term, another address. Nothing is written where nothing is new. A full
 * list loses the one that has heard of the highest term. */
int peers_note(struct store *store, struct peers *peers, const struct peer *peer, struct err *err);

/* Takes it off the list, by its node or its address; 0 also when it isn't there. */
int peers_drop(struct store *store, struct peers *peers, const struct peer *peer, struct err *err);

/* It was tried: true when it rests for as long as any does, for the first time. */
bool peers_tried(struct peers *peers, const struct peer *peer, bool answered, int64_t now_us);
void peers_try_all(struct peers *peers);

#endif
