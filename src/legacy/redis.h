/* A connection to the old Redis, over hiredis; only redis.c, redis_reply.c and redis_socket.c include it. Blocking,
 * pipelined, for one thread, whose heartbeat goes on while it waits.
 *
 * After an ERR_SYSTEM (it can't be reached, doesn't answer, or speaks no RESP), an ERR_LARGE (a reply is larger than
 * any may be; nothing of it was kept) or an ERR_CLOSED (interrupted) only redis_disconnect() and redis_close() are left
 * to do.
 */
#ifndef UNSEEN_LEGACY_REDIS_H
#define UNSEEN_LEGACY_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "legacy/redis_reply.h"

struct heartbeat;
struct redis;

enum {
    REDIS_CONNECT_MS = 2 * 1000,
    REDIS_SILENCE_MS = 5 * 1000, /* one that says nothing for this long is taken for away */
    /* Of a reply. A page of ZSCAN has some thousand elements, or all of a sorted set that Redis keeps as one list. */
    REDIS_REPLY_BYTES_MAX = 16 * 1024 * 1024,
    REDIS_REPLY_ELEMENTS_MAX = 256 * 1024,
};

/* "0.14.1", or "none". */
const char *redis_library_version(void);

/* One without a connection. beat: of the thread that will wait for replies, or NULL. ERR_INVALID: built without
 * hiredis. */
int redis_new(struct heartbeat *heartbeat, struct redis **redis, struct err *err);

/* Connects, gives the password and selects the database, by cfg. The text of an error names the address. ERR_INVALID:
 * the Redis refuses, and says why. */
int redis_connect(struct redis *r, const struct config *cfg, struct err *err);
void redis_disconnect(struct redis *r); /* also when it isn't connected */
bool redis_connected(const struct redis *r);

void redis_close(struct redis *r); /* NULL is fine */

/* Any thread, between redis_new() and redis_close(): connecting or waiting for a reply returns ERR_CLOSED, from now
 * on. */
void redis_interrupt(struct redis *r);

/* Queues a command; sent when a reply is waited for. */
int redis_send(struct redis *r, const struct slice *words, size_t n, struct err *err);

/* The next reply, which may be an error; the caller frees it, before the connection is closed. */
int redis_read(struct redis *r, struct redisReply **reply, struct err *err);

/* Both. An error reply is an ERR_INVALID. */
int redis_call(struct redis *r, const struct slice *words, size_t n, struct redisReply **reply, struct err *err);

#endif
