/* A connection to the old Redis on a loop, for whoever may not wait: connecting, sending and reading are the loop's
 * business, and looking up a name a thread's (legacy/resolve.h). What fails is tried again by itself, after delays that
 * grow.
 *
 * All of it on the loop's thread, but for link_new() and link_free(). The callbacks come from the loop, never from
 * within a call.
 */
#ifndef UNSEEN_LEGACY_LINK_H
#define UNSEEN_LEGACY_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"

struct link;
struct redisReply; /* see legacy/redis_reply.h */

enum {
    LINK_CONNECT_MS = 2 * 1000,
    LINK_SILENCE_MS = 5 * 1000, /* replies are due, and none comes: a new connection is tried */
    LINK_FIRST_DELAY_MS = 100,
    LINK_LAST_DELAY_MS = 5 * 1000,
    LINK_UNSENT_MAX = 1024 * 1024, /* bytes; above it nothing more is taken */
};

struct link_ops {
    /* It is connected, and let in. */
    void (*up)(void *owner);
    /* The next reply, in the order of the commands; the link's own. */
    void (*reply)(void *owner, const struct redisReply *reply);
    /* It can't be reached, or was lost, as the text says: replies that are due will never come. Not when one that was
     * good for a while ended while none was due: then there is a new one at once. */
    void (*down)(void *owner, const struct err *err);
};

int link_new(const struct config *cfg, const struct link_ops *ops, void *owner, struct link **link, struct err *err);
void link_free(struct link *l); /* never opened, or closed and its loop ended */

void link_open(struct link *l, uv_loop_t *loop); /* nothing is connected yet */
void link_connect(struct link *l);               /* unless it is, or tries to */
void link_shut(struct link *l);                  /* no connection any more; link_connect() may follow */
void link_close(struct link *l);                 /* for good; then the loop may end */

/* Whether a question makes sense now: connected, or connecting with nothing known against it; and what was sent before
 * is on its way. */
bool link_takes(const struct link *l);

/* As far as is known. Redis 6.2 and later have ZMSCORE. */
bool link_has_zmscore(const struct link *l);

/* Sends commands that will get so many replies. Takes the bytes over; ERR_NOMEM: nothing was sent. */
int link_send(struct link *l, struct buf *bytes, size_t replies);

/* It has answered as it should: should it be lost, the next one is tried soon. */
void link_proved(struct link *l);

/* What it said makes the connection useless: it is down, and tried again. */
void link_fail(struct link *l, struct slice why);

/* Appends "*n\r\n", and "$len\r\nbytes\r\n". */
void link_add_count(struct buf *out, size_t n);
void link_add_word(struct buf *out, struct slice word);

#endif
