/* From read to migrated. What is read goes into the store's bulk load, and who was read to the end is gathered here.
 * When the load turns, three lists of users move on: those that are gathered wait for the merge of what was handed
 * over, those of the merge that has ended, which is durable, are marked, and an empty list is gathered into. Marking
 * takes as many transactions as it needs, one after the other on the store's thread, while the next are read.
 *
 * So a user is marked only when all of it is durable; whoever isn't marked is read again: a union.
 */
#ifndef UNSEEN_LEGACY_GATHER_H
#define UNSEEN_LEGACY_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/heartbeat.h"
#include "legacy/fetch_user.h"
#include "store/store.h"

struct gather;

/* beat: of the one thread that calls all of these; it is excused while they wait for the store. */
int gather_new(struct store *store, struct heartbeat *heartbeat, struct gather **gather, struct err *err);
void gather_free(struct gather *g); /* NULL is fine */

/* The load begins, unless it has. */
int gather_begin(struct gather *g, struct err *err);

/* A user was read to the end. */
int gather_user(struct gather *g, const struct fetch_user *t, const struct fetch_rules *rules, struct err *err);

/* Whether it is time to turn, so that memory stays bounded and nobody waits for long to be marked. */
bool gather_due(const struct gather *g, int64_t staging_memory);
size_t gather_users(const struct gather *g); /* gathered since the last turn */
int gather_turn(struct gather *g, struct err *err);
int gather_drain(struct gather *g, struct err *err); /* until all are marked */

/* Ends the load, and gives up whoever isn't marked. */
void gather_end(struct gather *g);

/* The service stops: waits for the marking under way, no more; the store ends the load when it closes. */
void gather_stop(struct gather *g);

/* Keys with problems beyond those that are listed. */
uint64_t gather_unlisted(const struct gather *g);

#endif
