/* One try at a connection to the old Redis, on a loop: a name is looked up, a socket connects, bytes go out, replies
 * come in. hiredis only parses these.
 *
 * Everything that libuv uses (handles, requests, the buffer being written) is in the socket's own memory. Its owner may
 * drop it at any time; it is freed when libuv is done with it.
 */
#ifndef UNSEEN_LEGACY_REDIS_SOCKET_H
#define UNSEEN_LEGACY_REDIS_SOCKET_H

#include <stddef.h>
#include <uv.h>

#include "base/buf.h"
#include "net/tls.h"

struct redis_socket;
struct redisReply; /* see legacy/redis_reply.h */

/* Of a reply: questions get some hundred elements at most. A larger one is refused before it takes memory. */
enum { REDIS_SOCKET_REPLY_BYTES_MAX = 1024 * 1024, REDIS_SOCKET_REPLY_ELEMENTS_MAX = 4096 };

/* None comes after redis_socket_drop(), which they may call. */
struct redis_socket_ops {
    void (*connected)(void *owner);
    void (*written)(void *owner);                               /* the next bytes may be sent */
    void (*reply)(void *owner, const struct redisReply *reply); /* the socket's own */
    void (*ended)(void *owner, const char *why);                /* from over there */
    void (*failed)(void *owner, const char *why); /* also from within redis_socket_dial() and redis_socket_send() */
};

/* address: as legacy_address() takes it. files: for TLS; they are read when it is connected. NULL: out of memory. */
struct redis_socket *redis_socket_dial(uv_loop_t *loop, const char *address, const struct tls_files *files,
                                       const struct redis_socket_ops *ops, void *owner);
void redis_socket_drop(struct redis_socket *w); /* NULL is fine */

/* Once connected. Takes the bytes over. */
void redis_socket_send(struct redis_socket *w, struct buf *bytes);
size_t redis_socket_sending(const struct redis_socket *w); /* bytes; while there are any, none may be sent. NULL: 0 */

/* Ignores everything from now on, until it is dropped. May be NULL. */
void redis_socket_mute(struct redis_socket *w);

#endif
