/* The first commands on a new connection: password, database, and each command that will be used, once, to see whether
 * it is known and allowed. */
#ifndef UNSEEN_LEGACY_HANDSHAKE_H
#define UNSEEN_LEGACY_HANDSHAKE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"
#include "config/config.h"

struct redisReply; /* see legacy/redis_reply.h */

struct handshake {
    const struct config *cfg;
    int next;        /* whose reply that is */
    bool no_zmscore; /* it doesn't know that command, or doesn't allow it */
};

/* Appends the commands. */
void handshake_begin(struct handshake *g, const struct config *cfg, struct buf *out);

enum handshake_verdict { HANDSHAKE_MORE, HANDSHAKE_REFUSED, HANDSHAKE_LET_IN };

/* Takes the next reply. HANDSHAKE_REFUSED: the reply says why. */
enum handshake_verdict handshake_reply(struct handshake *g, const struct redisReply *reply, struct slice *why);

#endif
