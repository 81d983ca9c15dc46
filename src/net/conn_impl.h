/* What conn.c, conn_read.c and conn_write.c share. */
#ifndef UNSEEN_NET_CONN_IMPL_H
#define UNSEEN_NET_CONN_IMPL_H

#include "net/conn.h"
#include "net/worker.h"

enum { CONN_KEEP_OUT = 4096 }; /* of the buffer for replies, while there is plenty */

static inline size_t conn_unsent(const struct conn *c)
{
    return c->out.len + c->sending.len;
}

/* Tells the budget what the connection holds now. */
void conn_account(struct conn *c);

/* Whether there is no peer any more; half: or it has sent its last byte, though it may still want the answer. */
bool conn_has_ended(const struct conn *c, bool half);

/* Drops all input. */
void conn_free_input(struct conn *c);

/* Whether it may go on, as far as its peer and memory are concerned. */
static inline bool conn_may_go_on(struct conn *c)
{
    if (c->state != CONN_OPEN || (c->worker->stopping && !c->owed) || c->line != NULL) {
        return false;
    }
    if (conn_unsent(c) > CONN_UNSENT_MAX) {
        c->choked = true;
        return false;
    }
    return true;
}

/* Reads, if anything is wanted. */
void conn_read_on(struct conn *c);

/* Whether it may not do more than say who it is. */
bool conn_is_stranger(const struct conn *c);

/* Sends what the kernel takes of out. False: the rest is with libuv, or the connection is closing. */
bool conn_send(struct conn *c);

/* The peer has sent all it wants to. What it asked for is still answered; then the connection ends. */
void conn_end_if_done(struct conn *c);

#endif
