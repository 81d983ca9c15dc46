/* A courier carries the feed (store/feed.h) to one consumer: a thread that waits for events, gives them to its user a
 * batch at a time, in their order, and says to the feed what is done. The consumer may be away, slow, or refuse: then
 * what waits stays in the feed, and nothing waits for the courier.
 *
 *     static const struct courier_ops ops = {.consumer = "mirror", ...};          the user's half
 *     courier_init(&c, &ops, owner, store, role); courier_start(&c, err)
 *         on the courier's thread:  open()                                        reaches the consumer
 *                                   look(), send(), look(), send() ...            until one fails
 *                                   close(), and after a while open() ...
 *     courier_stop(&c)              before the store closes; what waits is carried after the next start
 *     courier_free(&c)              once the store is closed and roles no longer change
 *
 * The courier's: its thread, waiting for events and reading them, the place up to which they are carried, what of the
 * feed is done, tries again after delays that grow, what is shown. It rests while another node takes the writes. The
 * user's: what stands at the consumer, how that is reached and written, and which state of it can be gone on with.
 *
 * A local consumer listens from the start, and from the moment when this node becomes the primary; it goes on from
 * where the feed says it is, which after a crash may be some events too early. A remote one (feed_is_remote()) says in
 * open() from where it goes on: what stands there decides (feed_fits()). Once that is decided it calls
 * courier_enlist(), and then courier_go_from(); or, where it can't go on, courier_skip(), and is filled in another way
 * with what is here by then. A remote one that is lost, or whose folder has become another node, is opened again; and
 * while this node is no primary nothing is kept for it.
 */
#ifndef UNSEEN_DEDUP_COURIER_H
#define UNSEEN_DEDUP_COURIER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/task.h"
#include "dedup/role.h"
#include "store/feed.h"
#include "store/feed_sent.h"

enum {
    COURIER_TEXT = 320,
    COURIER_AGAIN_MS = 1000, /* what has been open for so long is opened again at once (ERR_STALE, ERR_CLOSED) */
};

struct courier_batch {
    const struct feed_event *events;
    int n;
    uint64_t from;    /* up to where all was sent before */
    uint64_t to;      /* the consumer then has all up to here: the last event, or, with none later, the newest place */
    int64_t as_of_ms; /* wall time: and all that was recorded before */
    /* All up to here is durable there. Comes as `to`; send() lowers it when it keeps events back, to a `to` of before:
     * they are sent again after the next open(). */
    uint64_t done;
};

struct courier_ops {
    const char *task;     /* of the thread */
    const char *name;     /* in the log: "the mirror" */
    const char *consumer; /* in the feed */
    uint64_t (*limit)(const struct config *live);
    int batch_max;         /* events */
    int gather_ms;         /* rests so long behind a part of a batch, so that the next is larger. 0: not at all */
    int beat_ms;           /* send() is called at least so often, with nothing if need be. 0: only with events */
    int first_delay_ms;    /* between tries, */
    int last_delay_ms;     /* doubled up to this */
    bool real;             /* by real time: the consumer has no test clock */
    const char *unreached; /* why it waits until it was reached for the first time. NULL: it is in step */

    /* On the courier's thread. What fails is closed, and opened again after a delay; but for
     *   ERR_STALE   it is to be opened again, at once when it was open for COURIER_AGAIN_MS, which is logged;
     *   ERR_CLOSED  the same, also when it has taken events, and that is nothing to log: it hung up while there was
     *               nothing to say;
     *   ERR_LOCKED  another writer has taken over: not before courier_retry(), or a change of roles.
     */
    int (*open)(void *arg, struct err *err);
    int (*look)(void *arg, struct err *err); /* before each read. NULL: nothing is to be looked at */
    int (*send)(void *arg, struct courier_batch *batch, struct err *err);
    void (*close)(void *arg);     /* also of what is not open */
    void (*interrupt)(void *arg); /* any thread: ends what open() and send() wait for. NULL: that takes no time */
};

enum courier_doing {
    COURIER_OFF,     /* there is none, or this node is no primary */
    COURIER_WAITING, /* for what `cause` says; tries again by itself */
    COURIER_FENCED,  /* another writer has taken over, as `cause` says */
    COURIER_FILLING, /* what stands there is being filled: of users who say so, the courier doesn't know */
    COURIER_SENDING,
    COURIER_IN_STEP, /* all that was there at the last look is sent */
    COURIER_DOINGS,
};
const char *
courier_doing_name(enum courier_doing doing); /* "off", "waiting", "fenced", "filling", "sending", "in step" */

struct courier_status {
    enum courier_doing doing;
    char cause[COURIER_TEXT]; /* without ids of users */
    int64_t since_ms;         /* wall time: when it began to wait, or was fenced; 0 */
    uint64_t to;              /* all up to here was sent */
    uint64_t events, bytes;   /* that were sent since the start */
    uint64_t outages;         /* times that it began to wait */
    struct feed_state queue;  /* where the feed says it is: in step, behind, lost, by how much; name "": not known */
};

struct courier {
    const struct courier_ops *ops;
    void *arg;
    struct store *store;
    struct role *role; /* NULL: always the primary */
    struct task task;  /* its heartbeat is for the user's functions, too */

    /* The rest is courier.c's. */
    _Atomic bool asleep;  /* wants to be woken when something waits */
    _Atomic bool listens; /* and can be */
    struct store_reader *reader;
    struct arena arena;
    struct feed_event *events;
    bool is_open, worked; /* worked: has taken events since */
    uint64_t node;        /* this one, as it was opened */
    uint64_t to, done;    /* sent; and durable there, in this run */
    struct feed_sent sent;
    int64_t opened_us, beat_us;
    int64_t delay_ms;

    pthread_mutex_t mutex; /* guards: */
    struct courier_status status;
};

void courier_init(struct courier *c, const struct courier_ops *ops, void *arg, struct store *store, struct role *role);
int courier_start(struct courier *c, struct err *err); /* after an error only courier_free() is left */
void courier_ask_stop(struct courier *c);              /* for several that end together */
void courier_stop(struct courier *c);                  /* also of one that was not started */
void courier_free(struct courier *c);

/* Any thread. */
void courier_look(struct courier *c, struct courier_status *out);
void courier_wake(struct courier *c);  /* look() has something to see */
void courier_retry(struct courier *c); /* the same, also when it is fenced */

/* In open(), of a remote one. */
void courier_go_from(struct courier *c, uint64_t to); /* it has all up to there */
/* What is there by now is passed over: it is brought in another way. Returns up to where. */
uint64_t courier_skip(struct courier *c);
/* From here on the feed keeps for it what is recorded; what a lost one missed is given up. Waits for the store, but not
 * where all is kept already. */
int courier_enlist(struct courier *c, struct err *err);

/* There is no such consumer any more: what is kept for it, if anything, is dropped. Any thread. */
void courier_give_up(struct store *store, const struct courier_ops *ops);

#endif
