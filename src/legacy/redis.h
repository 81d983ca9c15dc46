/* The old Redis, single or a cluster, for one thread: blocking, pipelined; the thread's heartbeat goes on while it
 * waits. hiredis is behind it; only redis_node.c, redis_reply.c and redis_socket.c include that.
 *
 * To a cluster there is a connection for each master that is asked. Commands go where the slot of their key is, by the
 * map of legacy/cluster.h; replies come back in the order of the commands, whatever node they come from. A node that
 * sends a command elsewhere (MOVED, ASK) is obeyed here, and later commands of the same node stay behind it. Any node
 * that is lost ends the connection to all of them: what was not answered is asked again over the next, with a new map.
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

/* Connects to the first that answers of the addresses in cfg, gives user and password, selects the database, and finds
 * out whether that is a cluster. The text of an error names the address. ERR_INVALID: the Redis refuses, and says why.
 */
int redis_connect(struct redis *r, const struct config *cfg, struct err *err);
void redis_disconnect(struct redis *r); /* also when it isn't connected */
bool redis_connected(const struct redis *r);

void redis_close(struct redis *r); /* NULL is fine */

/* Any thread, between redis_new() and redis_close(): connecting or waiting for a reply returns ERR_CLOSED, from now
 * on. */
void redis_interrupt(struct redis *r);

/* Queues a command, whose second word is its key; sent when a reply is waited for. */
int redis_send(struct redis *r, const struct slice *words, size_t n, struct err *err);

/* The next reply, which may be an error; the caller frees it, before the connection is closed. */
int redis_read(struct redis *r, struct redisReply **reply, struct err *err);

/* Both. An error reply is an ERR_INVALID. */
int redis_call(struct redis *r, const struct slice *words, size_t n, struct redisReply **reply, struct err *err);

/* Where the last reply came from: a scan of one key that is gone on with elsewhere must begin again, since the other
 * node's cursors are not the same. */
const void *redis_place(const struct redis *r);

struct redis_cluster_figures {
    uint64_t masters; /* 0: it is no cluster */
    uint64_t moved, asks;
};
void redis_cluster_figures(const struct redis *r, struct redis_cluster_figures *out);

/* --- commands about all keys: to each master --- */

/* Moves *node on to a master, unless it is one; false: there is no further one. Begin at 0; of a single Redis only 0 is
 * one. */
bool redis_next_master(const struct redis *r, size_t *node);

const char *redis_master_address(const struct redis *r, size_t node);

/* As redis_call() to that node, of a command without a key. Only while no reply is due. */
int redis_call_master(struct redis *r, size_t node, const struct slice *words, size_t n, struct redisReply **reply,
                      struct err *err);

/* The same number as long as no slot has moved; asks for a new map. ERR_BUSY: a slot is on the move. */
int redis_layout(struct redis *r, uint64_t *layout, struct err *err);

#endif
