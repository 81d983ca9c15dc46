/* A non-blocking connection to the old Redis, on a loop, which connects, sends and reads. A thread looks up names
 * (legacy/resolve.h). After a failure it tries again by itself, with growing delays.
 *
 * All on the loop's thread, except redis_connection_new() and redis_connection_free(). The callbacks come from the
 * loop, never from within a call.
 */
#ifndef UNSEEN_LEGACY_REDIS_CONNECTION_H
#define UNSEEN_LEGACY_REDIS_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"

struct redis_connection;
struct redisReply; /* see legacy/redis_reply.h */

enum {
    REDIS_CONNECTION_CONNECT_MS = 2 * 1000,
    REDIS_CONNECTION_SILENCE_MS = 5 * 1000, /* replies are due, and none arrives: a new connection is tried */
    REDIS_CONNECTION_FIRST_DELAY_MS = 100,
    REDIS_CONNECTION_LAST_DELAY_MS = 5 * 1000,
    REDIS_CONNECTION_UNSENT_MAX = 1024 * 1024, /* bytes; above it nothing more is taken */
};

struct redis_connection_ops {
    /* Where to connect to, the n-th time (from 0), as legacy_address() takes it. Called from within
     * redis_connection_connect(), too. */
    void (*address)(void *owner, unsigned n, char out[CONFIG_TEXT]);
    /* The answer to CLUSTER SLOTS, or a refusal, before up(). NULL: isn't asked for. */
    void (*slots)(void *owner, const struct redisReply *reply);
    /* It is connected, and let in. */
    void (*up)(void *owner);
    /* The next reply, in the order of the commands; the connection's own. */
    void (*reply)(void *owner, const struct redisReply *reply);
    /* It can't be reached, or was lost, as the text says: due replies will never arrive. Not called when a connection
     * that was good for a while ended without due replies: then there is a new one at once. */
    void (*down)(void *owner, const struct err *err);
};

int redis_connection_new(const struct config *cfg, const struct redis_connection_ops *ops, void *owner,
                         struct redis_connection **connection, struct err *err);
void redis_connection_free(struct redis_connection *l); /* never opened, or closed and its loop ended */

void redis_connection_open(struct redis_connection *l, uv_loop_t *loop); /* nothing is connected yet */
void redis_connection_connect(struct redis_connection *l);               /* unless it is, or tries to */
void redis_connection_shut(
    struct redis_connection *l); /* no connection any more; redis_connection_connect() may follow */
void redis_connection_close(struct redis_connection *l); /* for good; then the loop may end */

/* Where it connected to last. */
const char *redis_connection_address(const struct redis_connection *l);

/* Whether a question may be asked now: connected, or connecting without known trouble; and earlier commands are on
 * their way. */
bool redis_connection_takes(const struct redis_connection *l);

/* As far as is known. Redis 6.2 and later have ZMSCORE. */
bool redis_connection_has_zmscore(const struct redis_connection *l);

/* Sends commands that will get that many replies. Takes over the bytes; ERR_NOMEM: nothing was sent. */
int redis_connection_send(struct redis_connection *l, struct buf *bytes, size_t replies);

/* It has answered well: if it is lost, the next one is tried soon. */
void redis_connection_proved(struct redis_connection *l);

/* Its reply makes the connection useless: it is closed, and tried again. */
void redis_connection_fail(struct redis_connection *l, struct slice why);

#endif
