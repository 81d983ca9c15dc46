/* The first commands on a new connection: user and password, database, where the slots of a cluster are, and each
 * command that will be used, once, to see whether it is known and allowed. */
#ifndef UNSEEN_LEGACY_HANDSHAKE_H
#define UNSEEN_LEGACY_HANDSHAKE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"
#include "config/config.h"

struct redisReply; /* see legacy/redis_reply.h */

/* Why a Redis is refused that a Sentinel names as master, and that is none by its own answer to ROLE. */
#define HANDSHAKE_NO_MASTER "a Sentinel says that it is the master, and ROLE there says that it is none"
bool handshake_is_master(const struct redisReply *role); /* what ROLE answered */

/* AUTH for the Redis, or for a Sentinel; 0: no password is set. */
size_t handshake_auth(const struct config *live, bool sentinel, struct slice words[3]);

struct handshake {
    const struct config *cfg;
    int next;        /* whose reply that is */
    bool password;   /* what is asked */
    bool slots;      /* the same: where the slots are */
    bool sentinel;   /* it is one, and the same: which Redis is the master */
    bool no_zmscore; /* it doesn't know that command, or doesn't allow it */
};

/* Appends the commands. slots: also what cluster_words() asks, if that is to be asked; of a Sentinel
 * that alone, behind its own password. */
void handshake_begin(struct handshake *g, const struct config *cfg, bool slots, struct buf *out);

/* HANDSHAKE_SLOTS: the reply says where the slots are, and more will come; HANDSHAKE_MASTER: and it was the last. */
enum handshake_verdict { HANDSHAKE_MORE, HANDSHAKE_SLOTS, HANDSHAKE_MASTER, HANDSHAKE_REFUSED, HANDSHAKE_LET_IN };

/* Takes the next reply. HANDSHAKE_REFUSED: the reply says why. */
enum handshake_verdict handshake_reply(struct handshake *g, const struct redisReply *reply, struct slice *why);

#endif
