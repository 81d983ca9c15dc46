/* The capability `node`: what a folder knows of itself as one of several: who it is, whose writes it takes, and in
 * whose name. All of it is durable, and none of it goes into a backup.
 *
 * A seq of the feed means one thing only together with node and run: a node is a folder, made or restored; a run is one
 * start of it, and has the seqs from its first one on. A folder that was copied, or went back to an older state, shares
 * node and old runs with the other one, but no newer run.
 */
#ifndef UNSEEN_STORE_NODE_H
#define UNSEEN_STORE_NODE_H

#include "store/store.h"

enum {
    NODE_TEXT = 17,          /* of a node's or a run's id: 16 hex digits, and the end */
    NODE_ADDRESS_TEXT = 320, /* as CONFIG_TEXT */
    NODE_RUNS_MAX = 1024,    /* that are remembered */
};

enum node_role {
    NODE_PRIMARY, /* takes writes; so does a folder that knows of no other node */
    NODE_REPLICA, /* follows `leader`, and takes nothing else */
    NODE_FENCED,  /* was a primary, and has met a higher term: takes nothing until it rejoins */
    NODE_ROLES,
};
const char *node_role_name(enum node_role role); /* "primary", "replica", "fenced" */

struct store_node {
    uint64_t node, run; /* never 0 */
    enum node_role role;
    uint64_t term;   /* of promotions: the highest that was met; a folder begins with 1 */
    bool promoted;   /* a primary that was a replica: its configuration may still say whom it followed */
    uint64_t leader; /* replica: the node that it follows; fenced: the one that has the term; 0: none */
    char address[NODE_ADDRESS_TEXT]; /* of that node's RESP; "": not known */
};

struct store_node_change {
    struct store_call call; /* first */
    struct store_node to;   /* role, term, promoted, leader, address; a term never falls: ERR_INVALID */
};

struct store_node_ops {
    /* Any thread, from memory: as it is durable. */
    void (*get)(struct store *s, struct store_node *out);
    /* done() once it is durable. */
    void (*set)(struct store *s, struct store_node_change *change);
    /* Whether this node's feed has reached `seq` in that run of that node, so that what follows there follows here: 1;
     * 0: the node, the run or the seq is none of ours. When the node is ours and the rest is not, this folder was
     * copied or went back: *rolled_back. */
    int (*knows)(struct store *s, uint64_t node, uint64_t run, uint64_t seq, bool *rolled_back);
    /* It was: it becomes another node, durably, and all remote consumers of its feed are lost. */
    void (*renew)(struct store *s, struct store_call *call);
};

#endif
