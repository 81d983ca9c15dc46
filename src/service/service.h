/* The request layer: what every edge asks the same way stands here once. An edge (src/resp, src/http) only turns bytes
 * into a struct request and its outcome into bytes; see request.h.
 *
 * `struct service` is shared by all loops; `struct service_loop` is one loop's: what it asks the store with, its
 * scratch memory, its figures. It lives on the worker's thread.
 */
#ifndef UNSEEN_SERVICE_SERVICE_H
#define UNSEEN_SERVICE_SERVICE_H

#include <stdatomic.h>
#include <stdint.h>

#include "dedup/dedup.h"
#include "dedup/pools.h"
#include "dedup/sessions.h"
#include "legacy/read_through.h"
#include "net/worker.h"
#include "service/hedge.h"
#include "service/meter.h"
#include "service/offload.h"
#include "service/policy_meter.h"
#include "service/recorder.h"
#include "store/user/deliveries.h"

struct accounts;
struct sendings;

struct service {
    struct worker_pool *pool;
    struct accounts *accounts;           /* login.h */
    _Atomic(const struct dedup *) dedup; /* NULL while the store recovers */
    _Atomic uint64_t rows_read, rows_of; /* meanwhile: how far it is */
    atomic_bool records;                 /* meanwhile: plays and deliveries are taken */
    struct hedge hedge;
    struct policy_meter policies;
    struct sendings *sendings; /* since service_attach() */
    struct offload offload;    /* runs between service_attach() and service_stop() */
};

struct late;
struct pool_table;

/* As many deliveries of a user hide at most: here, and in the Redis that they come from. */
enum { AGES_MAX = DELIVERED_MAX + READ_THROUGH_DELIVERED };

struct service_loop {
    struct worker *worker;
    const struct dedup *dedup;     /* NULL while the store recovers */
    const struct dedup *recording; /* what plays and deliveries are recorded with: the same, or, before, what is known
                                    * by then; NULL: none are taken yet */
    struct asker *asker;
    struct loop_message answers;            /* the asker's have come */
    struct read_through_port *read_through; /* NULL: there is no other Redis */
    struct tier_port *tier;                 /* NULL: there is no second one */
    const struct tier_ops *tier_ops;
    struct question *hedged; /* that wait until it is to be asked, the next one first */
    uv_timer_t hedge_timer;
    bool closing;
    struct recorder recorder;
    struct forget *forgets;     /* with the store */
    struct err forgets_refused; /* code ERR_BUSY: the store says that they are stalled, as of the last look */
    struct meter meter;
    struct late *late; /* that have a deadline, the earliest first */
    uv_timer_t deadline;

    /* Of the request at hand, until the next one. */
    uint64_t *hashes;    /* ITEMS_MAX */
    uint64_t *grouped;   /* the same of their groups; NULL: none were asked about yet */
    struct slice *pairs; /* RESP's: items, then their groups; NULL: none were given yet */
    uint64_t excluded[EXCLUDE_MAX];
    struct buf sent; /* struct exposure_sent each */
    struct exposure_groups groups;
    uint8_t *bits;                  /* of POOL_ITEMS_MAX items, and a byte more */
    const struct pool_table *pools; /* the newest that was seen; NULL: none was yet */
    struct pool_line line;
    struct place places[1 + PLACES_MAX];
    struct history history;
    struct exposed exposed[EXPOSURE_MAX];
    uint8_t *open;            /* as bits */
    struct exposed_age *ages; /* AGES_MAX */
    struct session_set blocked;
    struct err err;
};

/* Makes the pool's workers serve: before worker_pool_start(). */
void service_init(struct service *s, struct worker_pool *pool);

/* While the store recovers: from here on plays and deliveries are taken. Of dedup only store, cfg, seed and role are
 * looked at; it outlives service_stop(). Returns 0 or ERR_NOMEM. */
int service_record(struct service *s, const struct dedup *dedup, struct err *err);

/* How far it is: rows of at most so many. Any thread, as the next two. */
void service_recovering(struct service *s, uint64_t rows, uint64_t of);
double service_recovered(const struct service *s); /* 0 .. 1 */
int service_loading(const struct service *s,
                    struct err *err); /* ERR_LOADING, in the words of Redis and how far it is */

/* The store has recovered: opens what each loop asks it with (in the calling thread), and hands it over. dedup outlives
 * service_stop(). Returns 0, asker_open()'s error, or ERR_NOMEM; then it is still loading. */
int service_attach(struct service *s, const struct dedup *dedup, struct err *err);

/* request.c: ends what is late. */
void service_on_deadline(uv_timer_t *timer);

/* forget.c, now and then: when the store says that forgets are stalled, those who wait are told, and further ones are
 * refused until it says otherwise. */
void service_look_at_forgets(struct service_loop *l);

/* Once the workers have stopped. Also without service_attach(). */
void service_stop(struct service *s);

/* Once the workers are freed: what is still in their queues asks for it. */
void service_free(struct service *s);

static inline struct service_loop *service_of(const struct conn *c)
{
    return c->worker->service;
}

/* What all loops have counted, and of plays and deliveries what came from Kafka too. Any thread. */
uint64_t service_counted(const struct worker_pool *pool, enum meter_count what);

/* The pools as of now, good until the next request; NULL: the server has none. */
const struct pool_table *service_pools(struct service_loop *l);

/* NULL while the store recovers. */
static inline const struct dedup *service_dedup(const struct conn *c)
{
    return c->worker->service->dedup;
}

#endif
