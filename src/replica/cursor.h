/* How far other nodes' feeds are applied in a folder: its positions (store/positions.h) of the sources "feed:NODE:RUN",
 * each committed with the events that it says are here. Seqs grow from run to run of a node, so the furthest counts. */
#ifndef UNSEEN_REPLICA_CURSOR_H
#define UNSEEN_REPLICA_CURSOR_H

#include "store/store.h"

enum { CURSOR_NODES_MAX = 32 };

/* All up to seq of that run of that node. */
struct feed_cursor {
    uint64_t node, run, seq;
};

/* That of a node: 1; 0: nothing of its feed was ever applied; or an error. */
int cursor_find(struct store *store, struct store_reader *reader, uint64_t node, struct feed_cursor *out,
                struct err *err);

/* Whose feed was applied last: 0: a folder of a version before this, or of a node that never followed. What is here
 * ends with that feed, so its position alone says what is not beyond another node; the others say only what is here. */
uint64_t cursor_last(struct store *store);

/* That of cursor_last(); of a folder that doesn't say, of `leader`. */
int cursor_find_last(struct store *store, struct store_reader *reader, uint64_t leader, struct feed_cursor *out,
                     struct err *err);

/* Of all nodes that were ever followed, in the order of their ids; returns how many. Those behind CURSOR_NODES_MAX are
 * left out. */
int cursor_list(struct store *store, struct store_reader *reader, struct feed_cursor out[CURSOR_NODES_MAX],
                struct err *err);

#endif
