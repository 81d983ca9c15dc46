/* What conn.c, conn_read.c and conn_write.c share. */
#ifndef UNSEEN_NET_CONN_IMPL_H
#define UNSEEN_NET_CONN_IMPL_H

#include "net/conn.h"
#include "net/tls.h"
#include "net/worker.h"

enum { CONN_KEEP_OUT = 4096 }; /* of the buffer for replies, while there is plenty */

static inline size_t conn_unsent(const struct conn *c)
{
    return c->out.len - c->sealed + c->sending.len;
}

/* Tells the budget what the connection holds now. */
void conn_account(struct conn *c);

/* One that holds a stranger's memory, which others of them wait for: ends, if it has had its time. */
bool conn_make_way_for_strangers(struct conn *c, int64_t now);

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
    if (conn_unsent(c) > (conn_is_stranger(c) ? CONN_UNSENT_STRANGE : CONN_UNSENT_MAX)) {
        c->choked = true;
        return false;
    }
    return true;
}

/* Reads, if anything is wanted. */
void conn_read_on(struct conn *c);
void conn_stop_reading(struct conn *c);
bool conn_wants_input(struct conn *c);

/* --- what reading with and without TLS share; see conn_read.c --- */

bool conn_has_plenty(const struct conn *c);
bool conn_is_fresh(const struct conn *c);

/* A large request is read into memory of its own: how much there is behind what has come. */
bool conn_reads_directly(const struct conn *c);
size_t conn_own_room(struct conn *c);

/* n bytes have come: `at` is there, or the worker's shared buffer. True: there. */
bool conn_add_input(struct conn *c, const char *at, size_t n);

/* Gives the protocol its input; and sees to what it left of it, which was `before` bytes with those in the kernel. */
void conn_feed(struct conn *c);
void conn_settle(struct conn *c, size_t before, int64_t now);
void conn_run(struct conn *c, int64_t now); /* both */

void conn_end_input(struct conn *c, ssize_t code);

/* --- TLS, conn_tls.c --- */

static inline bool conn_is_shaking(const struct conn *c)
{
    return c->secure && (c->tls == NULL || tls_state(c->tls) == TLS_SHAKING);
}

void conn_tls_readable(struct conn *c);
void conn_tls_kick(struct conn *c);

/* conn_send()'s part of it. */
bool conn_tls_send(struct conn *c);
void conn_tls_dismiss(struct conn *c, struct slice last_word);
void conn_tls_free(struct conn *c);

void conn_clear_out(struct conn *c); /* all of it is sent */

/* Leaves what the kernel does not take to libuv: `sending`, but for so many bytes. */
void conn_leave_to_libuv(struct conn *c, size_t sent);

/* Sends what the kernel takes of out. False: the rest is with libuv, or the connection is closing. */
bool conn_send(struct conn *c);

/* The peer has sent all it wants to. What it asked for is still answered; then the connection ends. */
void conn_end_if_done(struct conn *c);

#endif
