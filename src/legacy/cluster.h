/* Where the keys of a Redis Cluster are: each slot's master, from CLUSTER SLOTS; and what a refusal says about it.
 * Pure: the blocking connections (legacy/redis.h) and those on a loop (legacy/read_through_port.c) both route by it,
 * each with a map of its own.
 *
 * A node is its address and keeps its number as long as the map lives. All zero is a map of which nothing is known:
 * then all keys are at node 0, as with a single Redis.
 */
#ifndef UNSEEN_LEGACY_CLUSTER_H
#define UNSEEN_LEGACY_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/keyslot.h"
#include "base/slice.h"
#include "config/config.h"

struct redisReply; /* see legacy/redis_reply.h */

enum {
    CLUSTER_NODES_MAX = 1024, /* that a map ever knew */
    CLUSTER_HOPS_MAX = 5,     /* of one command, from node to node */
    CLUSTER_REFRESH_US = 1000 * 1000,
};

struct cluster {
    bool known; /* it is a cluster, and this its map */
    bool stale; /* a command was sent elsewhere */
    int64_t asked_us;
    char (*nodes)[CONFIG_TEXT]; /* addresses as legacy_address() takes them */
    size_t n, cap;
    uint16_t slots[KEYSLOTS]; /* by number, plus 1; 0: no node serves it */
    uint64_t moved, asks;     /* commands that were sent elsewhere, for good or once */
};

void cluster_free(struct cluster *c); /* all zero afterwards */

/* Its number; a new one when it is not known. ERR_NOMEM, or ERR_SYSTEM: too many. */
int cluster_node(struct cluster *c, const char *address, struct err *err);

/* Which node to ask for the key; any, when none serves it: that one says why. */
size_t cluster_route(const struct cluster *c, struct slice key);

/* Whether the node serves any slot. */
bool cluster_serves(const struct cluster *c, size_t node);
size_t cluster_masters(const struct cluster *c);

/* The command that asks where the slots are; with Sentinels, which Redis is the master: that has all slots. Returns how
 * many words. */
enum { CLUSTER_WORDS = 3 };
size_t cluster_words(const struct config *cfg, struct slice words[CLUSTER_WORDS]);

/* Takes over the answer to that of the node at `asked`, whose host and scheme count for what is left out. 1;
 * 0: it is no cluster, or has no slots; or an error: the map is as it was. */
int cluster_take(struct cluster *c, const struct config *cfg, const struct redisReply *reply, const char *asked,
                 struct err *err);

/* Whether to ask for the map now: once it is stale, and at most once a second. True counts as asked. */
bool cluster_refresh(struct cluster *c, int64_t now_us);

/* What an error of the node at `asked` says: it stays the answer; or the command is to be put to another node, whose
 * number is returned in *node, once (behind ASKING), or from now on. */
enum cluster_verdict { CLUSTER_STAYS, CLUSTER_MOVED, CLUSTER_ASK };
enum cluster_verdict cluster_verdict(struct cluster *c, struct slice error, const char *asked, size_t *node);

#endif
