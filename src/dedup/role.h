/* Who this node is, and what follows from it. Any thread; what is asked often is answered from memory.
 *
 * Roles and terms are durable (store/node.h). A higher term always wins: a primary that meets one is fenced, at once
 * and durably. Of two primaries with the same term the one with the higher node id wins.
 */
#ifndef UNSEEN_DEDUP_ROLE_H
#define UNSEEN_DEDUP_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "store/node.h"

struct role;

/* What the folder says, against replica_of. ERR_INVALID: they contradict each other, and the text says what to do. */
int role_new(const struct config *cfg, struct store *store, struct role **role, struct err *err);
/* Of a server without a folder, whose writes are refused with that text: a replica that follows none, for good. */
int role_new_reader(const char *why, struct role **role, struct err *err);
void role_free(struct role *r);

/* Whether writes are taken here: 0; or ERR_REPLICA, with the address of the primary if it is known. NULL: they are. One
 * atomic load when they are. */
int role_may_write(const struct role *r, struct err *err);
bool role_is_primary(const struct role *r); /* NULL: it is */

/* A hold on writes beside the role (a lease that has ended): ERR_REPLICA with that text, until released (NULL). */
void role_hold(struct role *r, const char *why);
/* A second one, for a primary that doesn't know yet whether it was replaced. Each ends by itself alone. */
void role_hold_start(struct role *r, const char *why);
/* The same by itself, at that moment of clock_mono_ms(): the node that would hold may not be heard of by then. 0:
 * never. */
void role_hold_at(struct role *r, int64_t mono_ms);

void role_look(const struct role *r, struct store_node *out);

/* Another node says that it is the primary of a term. Fences this node where that wins; blocks until that is durable.
 * Returns 1: it has won; 0: this node's term is the higher one, or the same; or an error. */
int role_meet(struct role *r, uint64_t term, uint64_t node, const char *address, struct err *err);

/* Blocking, durable when they return 0: becomes the primary of a term above `above` (0: above the highest known); or a
 * replica of that node. */
int role_promote(struct role *r, uint64_t above, struct err *err);
int role_follow(struct role *r, uint64_t term, uint64_t leader, const char *address, struct err *err);

/* Told of each change, on the thread that made it; must not wait. Of a promotion before any write is taken. One
 * listener each of eight, and none is taken back: arg outlives the role's changes. */
int role_listen(struct role *r, void (*changed)(void *arg, enum node_role now), void *arg);

#endif
