/* What changes who a node is, or ends what another one was, and so waits for disks and for other nodes: on a thread of
 * its own, one after the other.
 *
 * A promotion first asks the old primary to step down: where it answers, all that it has is here before this node takes
 * writes, and nothing is lost. Before that it is enlisted in this node's feed (store/feed.h), so that it finds what it
 * lacks when it rejoins, and where the two part is kept as positions (change_parting). Then the thread tells the old
 * primary, and all others that were met, of the new term, until each has heard (peers.h). A node that is replaced
 * before that goes on with it, in the name of the one that has replaced it, which may never have met them.
 */
#ifndef UNSEEN_REPLICA_CHANGE_H
#define UNSEEN_REPLICA_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "store/node.h"

enum {
    CHANGE_ANSWER_MS = 500,         /* an old primary that says nothing for so long is taken for dead */
    CHANGE_STEPDOWN_MS = 3 * 1000,  /* one that has said something may take so long to step down, */
    CHANGE_CATCH_UP_MS = 10 * 1000, /* and this node so long to apply what that has */
    CHANGE_HERALD_MS = 1000,
};

struct replica;
struct changer;

enum change_kind {
    CHANGE_MEET,     /* another node says that it is the primary of a term */
    CHANGE_STEPDOWN, /* another node is about to be that, in this node's place: as MEET, unless it was replaced already
                      */
    CHANGE_LAST,     /* behind it: all that was taken before is durable, and `last` is the newest of it */
    CHANGE_PROMOTE,  /* this node becomes the primary */
    CHANGE_MERGE,    /* events of a node that was the primary, and now rejoins */
    CHANGE_DISMISS,  /* a node is gone for good: it is told nothing, and nothing is kept for it */
};

struct change {
    struct change *next;
    enum change_kind kind;
    uint64_t term, node; /* MEET: the other's; MERGE: node, run and to of the events; DISMISS: node ... */
    uint64_t above;      /* PROMOTE: its term becomes a higher one than this, if it is primary already, too */
    uint64_t run, to;
    char
        address[NODE_ADDRESS_TEXT]; /* MEET: the other's; DISMISS: ... or 0, and the address of one that is not known */
    bool force;                     /* MERGE: forgets end what is newer, too, where it can't be told apart */
    bool forgets;                   /* MERGE: the events are forgets of users, numbered by the sender alone */
    struct slice events;            /* event.h */
    uint64_t left; /* MERGE: forgets that were not carried out since the two parted, and are in the log */

    struct err err;
    struct store_node now; /* who this node is after it */
    uint64_t last;
    char was[NODE_ADDRESS_TEXT]; /* PROMOTE: the old primary's address ... */
    bool lossless;               /* ... and whether all that it had is here */
    char how[320];               /* if not, what is known of that */
    int64_t waited_ms;

    void (*done)(struct change *change); /* on the thread */
    void *owner;
};

int changer_new(struct replica *r, struct changer **changer, struct err *err);
int changer_start(struct changer *c, struct err *err); /* once the replica has all that its thread looks at */
void changer_stop(struct changer *c);                  /* what waits is answered: ERR_CLOSED. NULL is fine */
void changer_free(struct changer *c);

/* Any thread: whether this node is a primary that was started again, and can't know whether it was replaced: no node
 * that it has met has answered yet, nor the lock (changer_heard()). With start = when-heard it takes no writes then. */
bool changer_is_unheard(const struct changer *c);
void changer_heard(struct changer *c);

/* Any thread: whether the folder knows of no other node. */
bool changer_is_alone(const struct changer *c);

/* Any thread: another node may have been met. It is written down without delay. */
void changer_look(struct changer *c);

/* Any thread. change is the changer's until done(). */
void changer_put(struct changer *c, struct change *change);

/* Where this node and the primary before it part: all up to common_seq of that node and run is here, and what only this
 * node has begins behind promoted_at_seq of its own feed. False: it was never promoted. */
struct change_parting {
    uint64_t node, run, common_seq, promoted_at_seq;
};
bool change_parting(struct store *store, struct change_parting *out);

/* Makes the folder of a replica that isn't served that of a primary, as far as that goes without asking another node.
 * Blocks. `of` is replica_of, `was` becomes the old primary's address, or "". ERR_INVALID: it is a primary's, or
 * another node has taken over and this is not forced. */
int change_promote_folder(struct store *store, const char *of, bool force, struct store_node *now,
                          char was[NODE_ADDRESS_TEXT], struct err *err);

/* An answer to MEET is a term, a node and a role. Behind the role of one that is no primary this says that the node is
 * the one whose term that is: 0.1.0 names itself, whichever node leads. */
#define CHANGE_UNDER " under"

/* 16 hex digits, not 0. */
bool change_read_id(struct slice text, uint64_t *id);

#endif
