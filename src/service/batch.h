/* One question about many users: which of the same candidates has each of them not seen? What they share is done once:
 * rights and options are checked, items hashed, pools found and held, so that all answers go by the same version. The
 * rest is a request for each user (request.h), with an answer or an error of its own.
 *
 *   batch_new() -> batch_go_on() -> told(), told(), ... -> BATCH_DONE -> batch_end()
 *
 * A user whose answer is late lets the others pass, so answers come in any order; BATCH_LATE_MAX may be late at once,
 * and the next user waits for one of them. A batch is at it for a turn of BATCH_TURN_US; then other connections of the
 * loop have theirs before it goes on.
 *
 * All of it on the connection's loop. The batch copies what it needs, so the request's bytes may go; the edge charges
 * its connection for batch_held() whenever it has called one of these. */
#ifndef UNSEEN_SERVICE_BATCH_H
#define UNSEEN_SERVICE_BATCH_H

#include "dedup/pools.h"
#include "net/loop_queue.h"
#include "service/request.h"

enum {
    BATCH_USERS_MAX = 1000,
    BATCH_LATE_MAX = 16, /* users who are late at once */
    BATCH_TURN_US = 500,
};

enum batch_state {
    BATCH_DONE,  /* every user was told */
    BATCH_LATER, /* wake() follows: then batch_go_on() again */
    BATCH_WAIT,  /* memory is short, and the connection waits in line: again when it is kicked */
    BATCH_FULL,  /* room() said so: again when the edge has room */
};

struct batch;

/* The edge's. */
struct batch_ops {
    /* Whether it has room for one more answer, of an error too: BATCH_DONE: yes; BATCH_WAIT or BATCH_FULL: not now. */
    enum batch_state (*room)(struct batch *b);
    /* What came of the user at that place: rq->err, or the answer, good until told() returns. */
    void (*told)(struct batch *b, size_t user, const struct request *rq);
    void (*wake)(struct batch *b); /* not from within batch_go_on() */
};

struct batch_late {
    struct batch *batch;
    struct request *late; /* NULL: none */
    size_t user;
    bool arrived;
};

struct batch {
    const struct batch_ops *ops;
    void *owner; /* the edge's own */

    /* What all users are asked about: to be read by the edge. */
    struct request rq; /* without a user; n: how many candidates, items: NULL of pools */
    size_t id_bytes;   /* of all candidates */
    const struct slice *users;
    size_t n_users;

    /* batch.c's own: */
    struct conn *conn;
    struct service_loop *loop;
    struct pool_line line;
    size_t next, n_late, bytes, late_bytes;
    struct batch_late late[BATCH_LATE_MAX];
    struct loop_message turn;
    bool queued, ended;
};

/* asked: a question without a user, whose `account` and `deadline_us` are set. DELIVER and SESSION are refused.
 * REQUEST_LATE: *out is there. REQUEST_ANSWERED: it is refused as a whole, asked->err says why. REQUEST_WAIT: as ever.
 */
enum request_state batch_new(struct conn *c, struct request *asked, const struct slice *users, size_t n_users,
                             const struct batch_ops *ops, void *owner, struct batch **out);

enum batch_state batch_go_on(struct batch *b);

/* How many candidates one answer may list at most, and the length of their ids. */
void batch_answer_max(const struct batch *b, size_t *n, size_t *id_bytes);

/* Bytes that it and its late requests hold. */
static inline size_t batch_held(const struct batch *b)
{
    return b->bytes + b->late_bytes;
}

/* All users were told: measures it as c->op since c->arrived_us. */
void batch_answered(const struct batch *b);

/* Its answers were told, or no client waits for them any more. NULL: nothing. */
void batch_end(struct batch *b);

#endif
