/* What conn.c, conn_read.c and conn_write.c share. */
#ifndef UNSEEN_NET_CONN_IMPL_H
#define UNSEEN_NET_CONN_IMPL_H

#include "net/conn.h"

static inline size_t conn_unsent(const struct conn *c)
{
    return c->out.len + c->sending.len;
}

/* Tells the budget what the connection holds now. */
void conn_account(struct conn *c);

/* Drops all input. */
void conn_free_input(struct conn *c);

/* Reads, if anything is wanted. */
void conn_read_on(struct conn *c);

/* Kicks it in so many milliseconds. */
void conn_wait(struct conn *c, uint64_t ms);

/* The peer has sent all it wants to. What it asked for is still answered; then the connection ends. */
void conn_end_if_done(struct conn *c);

#endif
