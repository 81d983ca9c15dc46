/* What a link says first on a new connection: password, database, and once the commands that will be used, to see
 * whether they are allowed, and known. */
#ifndef UNSEEN_LEGACY_GREETING_H
#define UNSEEN_LEGACY_GREETING_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"
#include "config/config.h"

struct redisReply; /* see legacy/redis_reply.h */

struct greeting {
    const struct config *cfg;
    int next;        /* whose reply that is */
    bool no_zmscore; /* it doesn't know that command, or doesn't allow it */
};

/* Appends the commands. */
void greeting_begin(struct greeting *g, const struct config *cfg, struct buf *out);

enum greeting_verdict { GREETING_MORE, GREETING_REFUSED, GREETING_LET_IN };

/* Takes the next reply. GREETING_REFUSED: the reply says why. */
enum greeting_verdict greeting_reply(struct greeting *g, const struct redisReply *reply, struct slice *why);

#endif
