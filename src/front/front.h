/* The front: a Redis as an optional second tier. SQLite stays the truth and is asked first; what stands in Redis
 * (layout.h) is enough to answer without the disk, for this node (tier.c) and for others (reader_store.h).
 *
 *   layout.h        what stands there
 *   link.h          a connection
 *   scripts.h       what is written, atomically
 *   writer.c        what its courier (dedup/courier.h) does with the events of the feed
 *   states.c        a thread that carries the states of users
 *   reconcile.c     what stands there against the folder
 *   user_question.h a user, as it stands there
 *   tier.c          the second tier of questions (dedup/tier.h)
 *   reader_store.h  a store without a folder: serve --front-only
 *
 *   replica_start() -> front_start() -> server_attach() ... server_stop() -> front_stop() -> the store closes ->
 *   front_free()
 */
#ifndef UNSEEN_FRONT_FRONT_H
#define UNSEEN_FRONT_FRONT_H

#include "base/err.h"
#include "base/figure.h"
#include "dedup/courier.h"
#include "dedup/dedup.h"
#include "front/link.h"

struct front;
struct tier;

/* Whether cfg has one. */
bool front_is_wanted(const struct config *cfg);

/* *front is NULL when there is none; what an earlier run kept for it is given up then. The Redis need not be there.
 * ERR_ABSENT: the store keeps no feed. Blocks until the store keeps what is recorded for it. */
int front_start(const struct dedup *dedup, struct front **front, struct err *err);
struct tier *front_tier(struct front *f); /* NULL: NULL */
void front_stop(struct front *f);         /* once no question comes any more; what waits is sent after the next start */
void front_free(struct front *f);         /* once the loops are gone */

enum { FRONT_NAMED_MAX = 10, FRONT_TEXT = 320 };

struct front_status {
    struct courier_status courier; /* FILLING: all users are brought in again; until then it answers nothing */
    char address[CONFIG_TEXT];     /* of the Redis; "": it was not reached yet */
    bool full;
    uint64_t epoch;

    /* Since the start. */
    uint64_t states, state_bytes; /* that were sent; the courier's bytes have them, too */
    uint64_t rebuilds;
    uint64_t giants, unread; /* states that were too large, or could not be read */
    uint64_t dirty;          /* users whose state is to be sent again, now */
    uint64_t filled;         /* users that were brought in by the rebuild, so far */

    /* Reconciliation. */
    bool comparing;
    uint64_t compared, differences;          /* since the start */
    int64_t reconciled_ms;                   /* wall time: when all users were compared last; 0: never */
    char named[FRONT_NAMED_MAX][FRONT_TEXT]; /* "user u: what differs"; the first ones */
    int n_named;
};
void front_look(const struct dedup *d, struct front_status *out); /* any thread; also when there is none */

/* Compares all users, at front_users_rate. ERR_ABSENT: there is no front, or it isn't full now. */
int front_reconcile(struct front *f, struct err *err);
/* Removes what stands there and brings all users in again; also ends COURIER_FENCED, so that the other one is
 * fenced. */
int front_rebuild(struct front *f, struct err *err);

void front_figures_each(const struct dedup *d, figure_visit *visit, void *arg);

#endif
