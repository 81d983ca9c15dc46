/* What the folder knows of itself as a node (store/node.h), in staging.db. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_NODE_H
#define UNSEEN_STORE_SQLITE_STAGING_NODE_H

#include "store/node.h"

struct sqlite_store;

extern const struct store_node_ops sqlite_node_ops;

/* At start, once the next row's id is known and before threads: begins a run. */
int node_open(struct sqlite_store *s, struct err *err);
void node_close(struct sqlite_store *s);
void node_work(struct sqlite_store *s, struct store_message *m); /* on the stager's thread */

#endif
