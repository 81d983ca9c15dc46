/* Whom a write waits for: with ack = replica, until a replica has it durable, too; with ack = local, none.
 *
 * In step, a write that is durable here waits until some replica's durable cursor has reached it, for ack_timeout at
 * most. Then, with ack = replica, the primary falls out of step, loudly, and answers by itself, at once, from then on.
 * It comes into step again when for ACK_PROVE_MS a replica has reached each write within ack_timeout, and has reached
 * all of them. With replica-strict each write waits, and gets ERR_ALONE after ack_timeout. A start is out of step.
 *
 * With a gatekeeper (failover by Consul) the replicas that have all that was acknowledged are named elsewhere, so that
 * no other one is promoted. A write is answered once all that are, or may be, named have it. One that lags for
 * ACK_LAG_MS while another has the write is left out of the names first, and one that keeps up for ACK_PROVE_MS is
 * named again. Before the first answer of its own, with ack = local too, none is named. What is named at a start
 * isn't known, so a write waits until it is. As long as nothing can be recorded, writes get ERR_ALONE.
 *
 * A primary that was replaced meanwhile answers no write that waits but with ERR_ALONE, unless the node that has
 * replaced it has the write; and one that may not write now, since its lease has ended, answers none by itself.
 *
 * Memory: what waits is the caller's. Any thread.
 */
#ifndef UNSEEN_REPLICA_ACK_H
#define UNSEEN_REPLICA_ACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "config/config.h"

enum { ACK_PROVE_MS = 10 * 1000, ACK_LAG_MS = 500, ACK_NODES_MAX = 16 };

struct role;

struct ack_wait {
    struct ack_wait *next;
    uint64_t seq;
    int64_t began_ms;                    /* ack's own */
    struct err *err;                     /* where an ERR_ALONE goes */
    void (*done)(struct ack_wait *wait); /* from within ack_wait(), or later on another thread; must not wait */
    void *owner;
};

struct ack;

struct ack *ack_new(const struct config *cfg);
void ack_free(struct ack *a);
/* Whose role it is, before there is a thread. NULL: this node stays the primary. */
void ack_set_role(struct ack *a, const struct role *role);
int ack_start(struct ack *a, struct err *err); /* its thread, which ends what has waited for too long */
void ack_stop(struct ack *a); /* all that waits is answered: as durable here; or, where it may not be, with ERR_ALONE */

/* Once a write is durable here and is not an error, in the order of seqs as far as one caller goes. */
void ack_wait(struct ack *a, struct ack_wait *wait);

/* A replica has all up to seq. */
void ack_reached(struct ack *a, uint64_t node, uint64_t seq);
/* It is gone: it no longer counts. */
void ack_left(struct ack *a, uint64_t node);

/* record() names elsewhere the replicas that have all that was acknowledged: true once that stands there; false: it may
 * stand there, or come to later. n is 0: there is none, so this node answers alone. Called on ack's thread. NULL:
 * nothing is to be recorded. */
void ack_set_gatekeeper(struct ack *a, bool (*record)(void *arg, const uint64_t *nodes, int n), void *arg);

struct ack_state {
    enum config_ack mode;
    bool in_step;      /* ack = local: whether a replica has reached the newest write */
    int64_t since_ms;  /* wall time */
    uint64_t waiting;  /* writes */
    uint64_t alone;    /* answered by this node alone since the start, while it was to wait */
    uint64_t refused;  /* with ERR_ALONE */
    uint64_t fell_out; /* times */
    uint64_t common;   /* all that are named have all up to here; 0: none is, or it isn't known */
};
void ack_look(struct ack *a, struct ack_state *out);
const char *ack_mode_name(enum config_ack mode); /* as the configuration has it */

#endif
