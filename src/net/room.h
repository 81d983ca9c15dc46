/* Room for connections: who may come in, and who goes when there is none left.
 *
 * At max_clients a new connection takes the place of a silent one, the oldest first: one that has asked nothing yet or,
 * where there is a password, has not given it. So connections that say nothing keep no other out, and those that work
 * are never closed for others. Only where none is silent is the new one turned away. Unix sockets have some room of
 * their own above max_clients, so that an administrator gets in. max_clients_per_address counts what one address has,
 * but for Unix sockets.
 *
 * Each edge has a room of its own: RESP's has max_clients, HTTP's a number that is fixed.
 *
 * The listener's thread lets in; each worker has a list of its silent connections, oldest first, and closes one when
 * the listener's message asks it to. A message that finds none goes on to the next worker. It may come too late, since
 * everybody has spoken by then: that is how connections beyond max_clients stay, ROOM_SPARE of them at most.
 */
#ifndef UNSEEN_NET_ROOM_H
#define UNSEEN_NET_ROOM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "net/peer.h"

struct conn_ops;
struct worker;
struct conn;
struct room_address;

enum {
    ROOM_KEPT = 16,  /* for Unix sockets, above max_clients */
    ROOM_SPARE = 64, /* above max_clients for moments, until a silent one is gone; ROOM_KEPT included */
};

struct room {
    struct worker *workers; /* whose connections these are */
    int n_workers;
    int64_t max;  /* connections */
    bool patient; /* beyond ROOM_SPARE none is turned away: they wait until they are accepted */
    int64_t max_per_address;
    _Atomic int64_t clients;
    _Atomic int64_t silent;   /* of them, also those still on their way to a worker */
    _Atomic int64_t opening;  /* those */
    _Atomic int64_t shedding; /* mails that will close one each */
    atomic_uint turn;         /* of the workers, when it can't be seen who has the oldest */
    struct log_limit turned_limit, shed_limit;

    pthread_mutex_t lock;             /* of what follows */
    struct room_address **by_address; /* NULL: they are not counted */
    uint32_t n_buckets;
};

/* For what workers, edge, max, patient and max_per_address say. ERR_NOMEM. */
int room_init(struct room *r, struct err *err);
void room_free(struct room *r);

/* The listener has accepted one, on w's thread. NULL: it is in, and counted until room_leave(). Else why not, for the
 * client; that is logged and counted. */
const char *room_enter(struct worker *w, const struct conn_ops *ops, uint64_t peer);

/* Whether those who come now must wait until they are accepted. */
bool room_is_crowded(const struct room *r);

/* Its socket is closed. silent: it never had a connection of its own. */
void room_leave(struct room *r, uint64_t peer, bool silent);

/* On the worker's thread: c is there; it asked something; it was answered, and may be taken for silent until it asks
 * again; it is gone. */
void room_sit(struct conn *c);
void room_spoke(struct conn *c);
void room_quiet(struct conn *c);
void room_rise(struct conn *c);

#endif
