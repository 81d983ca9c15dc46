/* Another node, as subcommands ask it: the commands REPLICA ... of its RESP. One thread. */
#ifndef UNSEEN_CLI_REPLICA_OTHER_NODE_H
#define UNSEEN_CLI_REPLICA_OTHER_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/lib/pipeline.h"
#include "config/config.h"
#include "store/node.h"

enum {
    OTHER_VERSION_TEXT = 32,
};

struct other_node {
    struct pipeline *pipeline;
    const char *address; /* as it was given */
    /* what it says of itself */
    char version[OTHER_VERSION_TEXT], role[16], says[NODE_ADDRESS_TEXT]; /* says: how it wants to be reached; "" */
    int64_t protocol;
    uint64_t node, run, term, leader, seed, last;
    int64_t window, retention, delivered_max;
};

/* Who tells that the other one is busy, or loading, and is asked again (cli/lib/pipeline.h); progress NULL: no bar is
 * drawn there. */
struct other_told {
    const char *label;
    struct progress *progress;
};

/* Connects. user: its account; NULL: replica_user, or else that of $UNSEEN_USER. The password: replica_password, if it
 * is that account's; else as every subcommand has it. cfg must outlive it. */
int other_node_open(const struct config *cfg, const char *address, const char *user, const struct other_told *told,
                    struct other_node *out, struct err *err);
void other_node_close(struct other_node *o);

/* REPLICA HELLO, in the name of a node (0: none yet), and what was answered. */
int other_node_hello(struct other_node *o, uint64_t node, uint64_t term, struct err *err);

/* Whether the two can be one cluster: window, retention, delivered_max. ERR_INVALID names both. */
int other_node_fits(const struct other_node *o, const struct config *cfg, struct err *err);

/* Asks it to keep its feed for a node: from after *seq of *run on everything is there. ERR_NOTFOUND: it was kept, and
 * has been lost since. */
int other_node_enlist(struct other_node *o, uint64_t node, uint64_t *run, uint64_t *seq, struct err *err);

/* One command and its reply, which lives until the next call. ERR_NOTFOUND: the other one says LOST; ERR_VERSION,
 * ERR_REPLICA: VERSION, READONLY; another error of it is ERR_INVALID. */
int other_node_call(struct other_node *o, const struct slice *words, size_t n, const struct reply **reply,
                    struct err *err);
/* The two halves of that, so that something may be done meanwhile. */
int other_node_ask(struct other_node *o, const struct slice *words, size_t n, struct err *err);
int other_node_answer(struct other_node *o, const struct reply **reply, struct err *err);

/* Ids on the wire. */
enum { ID_TEXT = 17, NUMBER_TEXT = 24 };
struct slice id_text(uint64_t id, char out[ID_TEXT]);
struct slice number_text(int64_t n, char out[NUMBER_TEXT]);
bool reply_id(const struct reply *r, uint64_t *id);
uint64_t reply_id_field(const struct reply *map, const char *name); /* 0: there is none */

#endif
