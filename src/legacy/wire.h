/* One try at a connection to the old Redis, on a loop: a name is looked up, a socket connects, bytes go out, replies
 * come in. hiredis only takes these apart.
 *
 * What libuv works at (handles, requests, the buffer that is being written) is in the wire's own piece of memory: its
 * owner drops it at any time, at once, and it goes when libuv has let go of it.
 */
#ifndef UNSEEN_LEGACY_WIRE_H
#define UNSEEN_LEGACY_WIRE_H

#include <stddef.h>
#include <uv.h>

#include "base/buf.h"

struct wire;
struct redisReply; /* see legacy/redis_reply.h */

/* Of a reply: questions get at most some hundred elements. What has more is refused before memory is taken for it. */
enum { WIRE_REPLY_BYTES_MAX = 1024 * 1024, WIRE_REPLY_ELEMENTS_MAX = 4096 };

/* None comes after wire_drop(), which they may call. */
struct wire_ops {
    void (*connected)(void *owner);
    void (*written)(void *owner);                               /* the next bytes may be sent */
    void (*reply)(void *owner, const struct redisReply *reply); /* the wire's own */
    void (*ended)(void *owner, const char *why);                /* from over there */
    void (*failed)(void *owner, const char *why);               /* also from within wire_dial() and wire_send() */
};

/* address: as legacy_address() takes it. NULL: out of memory. */
struct wire *wire_dial(uv_loop_t *loop, const char *address, const struct wire_ops *ops, void *owner);
void wire_drop(struct wire *w); /* NULL is fine */

/* Once connected. Takes the bytes over. */
void wire_send(struct wire *w, struct buf *bytes);
size_t wire_sending(const struct wire *w); /* bytes; while there are any, none may be sent. NULL: 0 */

/* What comes from now on is of no interest, until it is dropped. NULL is fine. */
void wire_mute(struct wire *w);

#endif
