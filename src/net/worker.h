/* Workers: one thread each, with its own loop, connections and counters. They know bytes and connections; what stands
 * on the loops (src/service/) is told of their life by worker_hooks.
 *
 * A turn of the loop: read from the sockets that have something, answer what can be answered, take messages of other
 * threads from the queue, see to timers; then the end of the turn, and all replies are sent. A worker never waits for
 * another thread.
 *
 * The worker pool is all workers together, and what they share: the configuration, the memory budget, the counts.
 */
#ifndef UNSEEN_NET_WORKER_H
#define UNSEEN_NET_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/figure.h"
#include "base/heartbeat.h"
#include "base/slice.h"
#include "config/config.h"
#include "net/budget.h"
#include "net/conn.h"
#include "net/line.h"
#include "net/listener.h"
#include "net/loop_queue.h"
#include "net/relay.h"
#include "net/room.h"
#include "net/tls.h"

/* Counted by each worker for itself, summed by the reader. */
enum counter {
    COUNT_CONNECTIONS,
    COUNT_REJECTED, /* over max_clients, or max_clients_per_address */
    COUNT_SHED,     /* silent ones, closed to make room */
    COUNT_TIMEOUTS,
    COUNT_STARVED, /* times that a connection had to wait for memory */
    COUNT_BYTES_IN,
    COUNT_BYTES_OUT,
    COUNT_COMMANDS,
    COUNT_ERRORS,
    COUNT_PROTOCOL_ERRORS,
    COUNT_TLS_HANDSHAKES,
    COUNT_TLS_FAILED,
    COUNT_FAILED_LOGINS,
    /* Of gRPC, which shares its workers with RESP. */
    COUNT_GRPC_MESSAGES, /* of COUNT_COMMANDS, */
    COUNT_GRPC_ERRORS,   /* and of COUNT_ERRORS */
    COUNT_GRPC_CALLS,
    COUNT_GRPC_OPEN,        /* calls; it falls too, as does the next: (uint64_t)-1 is added */
    COUNT_GRPC_CONNECTIONS, /* open ones that have said something */
    COUNTERS,
};
extern const struct figure counter_figures[COUNTERS];

struct service;
struct service_loop;
struct worker;
struct worker_pool;

/* What stands on the loops. All but begin() and end() are called on the worker's thread. */
struct worker_hooks {
    int (*begin)(struct worker *w, struct err *err); /* before the thread starts; sets w->service */
    void (*tick)(struct worker *w);                  /* each second */
    void (*turn_end)(struct worker *w);              /* before replies are sent */
    size_t (*under_way)(const struct worker *w);     /* how much still comes back to the queue; the loop waits for it */
    void (*close)(struct worker *w);                 /* closes its handles; then the loop ends */
    void (*leave)(struct worker *w);                 /* the thread's last */
    void (*end)(struct worker *w);                   /* frees w->service, which may be NULL; the thread is gone */
};

/* An edge that has a worker of its own, beside those that share all other connections. */
struct worker_side {
    const char *name; /* of its thread, and of the edge */
    int64_t max_clients;
    void (*tick)(struct worker *w); /* each second, and when its thread begins */
};

enum { WORKER_TICK_MS = 1000, WORKER_LINE_MS = 20, WORKER_LINE_BATCH = 64, WORKER_SLICE_US = 200 };

struct worker {
    struct worker_pool *pool;
    const struct worker_side *side; /* NULL: it is one of those that share */
    struct room *room;              /* its connections' */
    int index;
    pthread_t thread;
    struct heartbeat heartbeat;
    bool has_loop, has_queue, has_thread;
    uv_loop_t loop;
    struct loop_queue queue;
    struct worker_relays relays;
    uv_check_t turn_end;
    uv_prepare_t before_wait; /* sends replies that timers made before it waits for events */
    uv_timer_t tick;          /* each second */
    uv_timer_t serving;       /* while connections wait for memory, */
    uv_idle_t turning;        /* or for their turn: the loop does not sleep then */
    uv_timer_t deadline;

    struct conn *conns;
    struct conn *silent_first, *silent_last;   /* room.h; the oldest first */
    _Atomic uint64_t oldest_silent;            /* its id; UINT64_MAX: there is none */
    struct conn *strange_first, *strange_last; /* strangers that hold memory; the one that has for longest first */
    struct conn_cursor *cursors;
    struct conn *dirty;
    struct line lines[BUDGET_REPLY + 1]; /* those that wait for memory, by what for */
    struct line next_turn;
    struct line handshakes; /* of TLS: they take long, and so their turns are short */
    struct line strangers;  /* those that wait for memory, of theirs: serve_strangers() */
    struct line halves;     /* Unix sockets with half a request in the kernel, while there is no memory for it */
    size_t given_way;       /* bytes that conn_tick() has freed this second, of those that waited for more */
    int overdraft_turn;     /* which line's first the overdraft is offered to */
    size_t n_alive;         /* conns that still have memory, also those without a peer */
    bool stopping, stopped;

    struct service_loop *service;
    struct budget_share memory;
    _Atomic uint64_t counters[COUNTERS];

    char *read_buf;    /* CONN_READ bytes, shared by all connections, behind as many for what one has of a request */
    char *sealed_in;   /* the same of TLS as it came, behind room for half a record; NULL: no listener has it */
    struct buf sealed; /* what is to be sent over it */
    struct buf spare;  /* the last large input buffer, for the next large request */

    struct slice *args; /* a large request's, until it is answered */
    size_t args_cap;
};

struct worker_pool {
    const struct config *cfg;
    const struct worker_hooks *hooks;
    struct service *service; /* of the hooks */
    struct worker *workers;
    int n;     /* those that share */
    int n_all; /* and one for an edge that has its own */
    struct budget budget;
    size_t request_max;
    size_t crowd_most; /* worker 0's: bytes of connections and what they held, at most, since memory was given back */
    struct room room, side_room;
    struct tls_context *tls; /* of the listeners that have it; NULL: none has */
    _Atomic uint64_t last_id;
    atomic_uint next_worker;
    struct listeners *listeners;         /* run by worker 0, but for those of a side */
    int64_t started_ms, started_wall_ms; /* monotonic, and wall */
};

/* How many share the connections. */
int worker_pool_size(const struct config *cfg);

/* The listeners are bound before, and handed over: worker_pool_start() begins to accept. pool->hooks and pool->service
 * are set. */
int worker_pool_start(struct worker_pool *pool, const struct config *cfg, size_t request_max,
                      struct listeners *listeners, struct err *err);
/* The configuration was changed (config_change()). Any thread, one at a time. */
void worker_pool_reconfigured(struct worker_pool *pool);

int64_t worker_pool_tls_expires(const struct worker_pool *pool); /* seconds of unix time; 0: no listener has TLS */

/* Reads certificate, key and CAs again: new connections get them. An error is logged, and leaves those before. */
int worker_pool_reload_tls(struct worker_pool *pool, struct err *err);

/* Returns once all threads have ended. Called again, it does nothing. */
void worker_pool_stop(struct worker_pool *pool, int64_t patience_ms);
void worker_pool_free(struct worker_pool *pool);

static inline void worker_count(struct worker *w, enum counter counter, uint64_t n)
{
    uint64_t old = atomic_load_explicit(&w->counters[counter], memory_order_relaxed);
    atomic_store_explicit(&w->counters[counter], old + n, memory_order_relaxed);
}
uint64_t worker_pool_counter(const struct worker_pool *pool, enum counter counter); /* of all workers */

/* Gives a socket that l's worker has accepted to the next worker in turn; that of a side keeps its own. */
void worker_deal(const struct listener *l, int fd, uint64_t peer, const struct sockaddr_storage *address);

/* Sees to timeouts now, because the test clock moved. On the worker's thread. */
void worker_tick(struct worker *w);

/* Kicks the connection when so much more may be held (the holder of the overdraft first); or at the next turn. It is in
 * no line. */
void worker_wait(struct conn *c, enum budget_use use, size_t more);
void worker_wait_turn(struct conn *c);
void worker_wait_handshake(struct conn *c);
void worker_wait_rest(struct conn *c); /* or when more has come than was left with the kernel */
void worker_leave_line(struct conn *c);
void worker_stop_waiting(struct conn *c);    /* leaves a line of those that wait for memory, and no other */
void worker_serve_lines(struct worker *w);   /* at the end of a turn, while a connection waits for memory */
void worker_make_way(struct worker *w);      /* each second, and while strangers wait for memory: some make way */
bool worker_is_busy(const struct worker *w); /* a connection waits for something */

#endif
