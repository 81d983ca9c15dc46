/* One blocking connection to one address of the old Redis, over hiredis: a single Redis, or a node of a cluster. Only
 * redis.c uses it.
 *
 * After an error only redis_node_close() is left to do.
 */
#ifndef UNSEEN_LEGACY_REDIS_NODE_H
#define UNSEEN_LEGACY_REDIS_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"

struct heartbeat;
struct redis_node;
struct redisReply; /* see legacy/redis_reply.h */

/* What all connections of one thread share. */
struct redis_wait {
    struct heartbeat *heartbeat; /* goes on while it waits; NULL: none */
    int stop_fd;                 /* an eventfd: waiting ends with ERR_CLOSED once it can be read */
    char bytes[64 * 1024];       /* that have just come */
};

/* Connects, gives user and password, and selects the database, by cfg; of a Sentinel those of Sentinels, and it has no
 * database. The text of an error names the address. ERR_INVALID: the Redis refuses, and says why. ERR_SYSTEM also: a
 * Sentinel named it, and it is no master. */
int redis_node_open(struct redis_wait *wait, const char *address, const struct config *cfg, bool sentinel,
                    struct redis_node **node, struct err *err);
void redis_node_close(struct redis_node *r); /* NULL is fine */

/* Queues the bytes of commands. */
int redis_node_send(struct redis_node *r, struct slice bytes, struct err *err);

/* Sends what it can at once. */
int redis_node_flush(struct redis_node *r, struct err *err);

/* The next reply if it has come: 1, or 0. The caller frees it, before the connection is closed. */
int redis_node_take(struct redis_node *r, struct redisReply **reply, struct err *err);

/* Sends, and waits until something has come; at most REDIS_SILENCE_MS from since_us on, and the time of the bytes of a
 * reply that has begun (net/patience.h). */
int redis_node_wait(struct redis_node *r, int64_t since_us, struct err *err);

/* The next reply, which may be an error. */
int redis_node_read(struct redis_node *r, struct redisReply **reply, struct err *err);

#endif
