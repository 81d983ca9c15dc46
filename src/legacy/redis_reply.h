/* Replies of the old Redis. hiredis parses them, and only files that include it know how. This reads them, be they from
 * legacy/redis_connection.h or from legacy/redis.h.
 *
 * hiredis allocates memory for each element, which with two hundred elements a reply costs more than all the rest. So a
 * connection's reply is in one arena as a whole, and one arena is kept for the next.
 */
#ifndef UNSEEN_LEGACY_REDIS_REPLY_H
#define UNSEEN_LEGACY_REDIS_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct redisReader; /* hiredis's */
struct redisReply;

bool redis_is_error(const struct redisReply *reply, struct slice *text);
size_t redis_count(const struct redisReply *reply); /* elements of an array; 0: it is none, or empty */
const struct redisReply *redis_item(const struct redisReply *reply, size_t i);
bool redis_integer(const struct redisReply *reply, int64_t *number);
bool redis_text(const struct redisReply *reply, struct slice *text); /* a string, simple or bulk */

/* A connection's replies. All zero at first. */
struct redis_replies {
    struct whole *growing; /* is being read */
    struct whole *spare;   /* kept for the next reply */
};

/* From now on the reader makes such replies, as long as r lives. */
void redis_replies_to(struct redis_replies *r, struct redisReader *reader);
void redis_replies_free(struct redis_replies *r); /* after all of them */

/* One of these, not a connection's. */
size_t redis_bytes(const struct redisReply *reply); /* about as many as it had */
void redis_free(struct redisReply *reply);          /* NULL is fine */

#endif
