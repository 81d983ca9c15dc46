/* The capability `bulk` on a pool, for the import of files: events are collected in memory, sorted by user, and written
 * as those of a client are that states their time, a user at a time and many users at once. What is not newer than a
 * forget is dropped and counted. The nodes go on meanwhile. Only of a store that was opened to load. */
#ifndef UNSEEN_STORE_RADOS_BULK_H
#define UNSEEN_STORE_RADOS_BULK_H

#include "store/bulk.h"
#include "store/rados/rados.h"

extern const struct store_bulk_ops rados_bulk_ops;

void bulk_free(struct rados_store *s); /* of a load that was not ended, too; nothing is under way */

#endif
