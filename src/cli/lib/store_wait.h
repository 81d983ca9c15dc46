/* A store's messages, waited for: for subcommands that open a folder or a pool by themselves. */
#ifndef UNSEEN_CLI_LIB_STORE_WAIT_H
#define UNSEEN_CLI_LIB_STORE_WAIT_H

#include "store/copy.h"
#include "store/node.h"
#include "store/pools.h"

/* Each hands the message in and returns once it was answered: 0, or its error. */
int store_wait_positions(struct store *s, const struct store_position *positions, size_t n, struct err *err);
int store_wait_adopt(struct store *s, const struct tombstone *list, size_t n, struct err *err);
int store_wait_node(struct store *s, const struct store_node *to, struct err *err);
int store_wait_flush(struct store *s, struct err *err);
int store_wait_clock(struct store *s, bool set_back, struct err *err);
int store_wait_pool(struct store *s, struct store_pool_change *change, struct err *err);
/* Both try again for a while as long as the store is busy. */
int store_wait_record(struct store *s, struct store_batch *batch, struct err *err); /* the batch stays the caller's */
int store_wait_forget(struct store *s, struct store_forget *forget, struct err *err);
/* Tries again for a while as long as the store is busy. */
int store_wait_import(struct store *s, const struct slice *snapshots, size_t n, uint8_t *verdicts, struct err *err);

#endif
