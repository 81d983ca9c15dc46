/* What the folder knows of itself as one of several (store/node.h), in staging.db's meta and `runs`. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_NODE_H
#define UNSEEN_STORE_SQLITE_STAGING_NODE_H

#include "store/node.h"

struct sqlite_store;

extern const struct store_node_ops sqlite_node_ops;

/* At start, behind feed_open(): its name, made when there is none, and a new run, which begins behind all seqs. */
int node_open(struct sqlite_store *s, struct err *err);
void node_close(struct sqlite_store *s);

/* The stager's. */
void node_work(struct sqlite_store *s, struct store_message *m);

#endif
