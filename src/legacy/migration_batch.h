/* From read to migrated. What is read goes into the store's bulk load, and fully read users are collected here until
 * they are durable. When the load turns, three lists of users move on. Collected users wait for the merge of their
 * data. Those whose merge has ended, and is durable, are marked. An empty list becomes the collecting one. Marking
 * takes as many transactions as it needs, one after the other on the store's thread, while the next users are read.
 *
 * So users are marked only when all of their data is durable. Those not marked are read again, which is harmless.
 */
#ifndef UNSEEN_LEGACY_MIGRATION_BATCH_H
#define UNSEEN_LEGACY_MIGRATION_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/heartbeat.h"
#include "legacy/fetch_user.h"
#include "store/store.h"

struct migration_batch;

/* beat: the heartbeat of the one thread that calls all of these; it is excused while they wait for the store. */
int migration_batch_new(struct store *store, struct heartbeat *heartbeat, struct migration_batch **batch,
                        struct err *err);
void migration_batch_free(struct migration_batch *g); /* NULL is fine */

/* The load begins, unless it has. */
int migration_batch_begin(struct migration_batch *g, struct err *err);

/* A user was read to the end. */
int migration_batch_user(struct migration_batch *g, const struct fetch_user *t, const struct fetch_rules *rules,
                         struct err *err);

/* Whether it is time to turn, so that memory stays bounded and users don't wait long to be marked. */
bool migration_batch_due(const struct migration_batch *g, int64_t staging_memory);
size_t migration_batch_users(const struct migration_batch *g); /* gathered since the last turn */
int migration_batch_turn(struct migration_batch *g, struct err *err);
int migration_batch_drain(struct migration_batch *g, struct err *err); /* until all are marked */

/* Ends the load, and gives up all that aren't marked. */
void migration_batch_end(struct migration_batch *g);

/* The service stops: waits only for the marking under way; the store ends the load when it closes. */
void migration_batch_stop(struct migration_batch *g);

/* Keys with problems beyond those that are listed. */
uint64_t migration_batch_unlisted(const struct migration_batch *g);

#endif
