/* What a folder says of the clone that makes it (unseen clone): a position of the source "clone:NODE" of the node that
 * is copied. It is there before the first user is, and ends only when all of them are. A folder whose clone has not
 * ended is neither a replica nor anything else: a server asks here first.
 */
#ifndef UNSEEN_REPLICA_CLONE_MARK_H
#define UNSEEN_REPLICA_CLONE_MARK_H

#include "store/store.h"

#define CLONE_MARK_PREFIX "clone:" /* then the node, 16 hex digits */
#define CLONE_FEED_PREFIX "feed:"  /* then node and run, split by a colon: up to where that feed is applied here */
/* Of a folder that unseen restore makes: positions, too. */
#define RESTORE_NODE "restore:node"     /* the node whose objects it is made of, */
#define RESTORE_ROUND "restore:round"   /* from which round, */
#define RESTORE_TO "restore:to"         /* and up to which event */
#define RESTORE_PARTS "restore:parts"   /* so many parts of the round are in it */
#define RESTORE_EVENTS "restore:events" /* all events up to there are */
#define RESTORE_ENDED "restore:ended"   /* 1: it is whole */

#define CLONE_FOLLOWED "clone:followed" /* a position, too: the node whose feed was applied last */

enum { CLONE_MARK_TEXT = 48 };
#define CLONE_MARK_ENDED INT64_MAX /* else the key to go on from */

const char *clone_mark_name(uint64_t node, char out[CLONE_MARK_TEXT]);
const char *clone_feed_name(uint64_t node, uint64_t run, char out[CLONE_MARK_TEXT]);

/* Whether a position says how far its node came with others, which says nothing of a folder that is made of what the
 * node has. */
bool clone_is_own(struct slice source);

/* 0; ERR_INVALID: a clone or a restore into this folder was begun and not ended, and the text says how to go on. */
int clone_mark_check(struct store *store, const char *folder, struct err *err);

#endif
