#include "net/room.h"

#include <inttypes.h>
#include <stdlib.h>

#include "net/conn_impl.h"
#include "net/worker.h"

enum { BUCKETS_MAX = 65536 };

/* --- by address --- */

struct room_address {
    struct room_address *next;
    uint64_t peer;
    int64_t clients;
};

int room_init(struct room *r, struct err *err)
{
    pthread_mutex_init(&r->lock, NULL);
    if (r->max_per_address == 0) {
        return 0;
    }
    for (r->n_buckets = 16; r->n_buckets < BUCKETS_MAX && r->n_buckets < r->max;) {
        r->n_buckets *= 2;
    }
    r->by_address = calloc(r->n_buckets, sizeof *r->by_address);
    return r->by_address != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory for max_clients_per_address");
}

void room_free(struct room *r)
{
    for (uint32_t i = 0; r->by_address != NULL && i < r->n_buckets; i++) {
        while (r->by_address[i] != NULL) {
            struct room_address *a = r->by_address[i];
            r->by_address[i] = a->next;
            free(a);
        }
    }
    free(r->by_address);
    r->by_address = NULL;
}

static struct room_address **find(struct room *r, uint64_t peer)
{
    struct room_address **at = &r->by_address[peer_bucket(peer, r->n_buckets)];
    while (*at != NULL && (*at)->peer != peer) {
        at = &(*at)->next;
    }
    return at;
}

static bool enter_address(struct room *r, uint64_t peer)
{
    if (r->by_address == NULL || peer == PEER_UNIX) {
        return true;
    }
    pthread_mutex_lock(&r->lock);
    struct room_address **at = find(r, peer);
    if (*at == NULL && (*at = calloc(1, sizeof **at)) != NULL) {
        (*at)->peer = peer;
    }
    bool good = *at != NULL && (*at)->clients < r->max_per_address;
    if (good) {
        (*at)->clients++;
    }
    pthread_mutex_unlock(&r->lock);
    return good;
}

static void leave_address(struct room *r, uint64_t peer)
{
    if (r->by_address == NULL || peer == PEER_UNIX) {
        return;
    }
    pthread_mutex_lock(&r->lock);
    struct room_address **at = find(r, peer), *a = *at;
    if (a != NULL && --a->clients == 0) {
        *at = a->next;
        free(a);
    }
    pthread_mutex_unlock(&r->lock);
}

/* --- the silent --- */

static void publish_oldest(struct worker *w)
{
    uint64_t oldest = w->silent_first != NULL ? w->silent_first->id : UINT64_MAX;
    atomic_store_explicit(&w->oldest_silent, oldest, memory_order_relaxed);
}

static void join_silent(struct conn *c)
{
    struct worker *w = c->worker;
    c->silent = true;
    c->prev_silent = w->silent_last;
    if (w->silent_last != NULL) {
        w->silent_last->next_silent = c;
    } else {
        w->silent_first = c;
    }
    w->silent_last = c;
    publish_oldest(w);
}

void room_sit(struct conn *c)
{
    atomic_fetch_sub_explicit(&c->worker->room->opening, 1, memory_order_relaxed);
    join_silent(c);
}

void room_quiet(struct conn *c)
{
    if (!c->silent && c->state != CONN_CLOSING) {
        atomic_fetch_add_explicit(&c->worker->room->silent, 1, memory_order_relaxed);
        join_silent(c);
    }
}

void room_spoke(struct conn *c)
{
    struct worker *w = c->worker;
    if (!c->silent) {
        return;
    }
    c->silent = false;
    *(c->prev_silent != NULL ? &c->prev_silent->next_silent : &w->silent_first) = c->next_silent;
    *(c->next_silent != NULL ? &c->next_silent->prev_silent : &w->silent_last) = c->prev_silent;
    c->next_silent = c->prev_silent = NULL;
    atomic_fetch_sub_explicit(&w->room->silent, 1, memory_order_relaxed);
    publish_oldest(w);
}

void room_rise(struct conn *c)
{
    room_spoke(c);
    room_leave(c->worker->room, c->peer, false);
}

struct shed_message {
    struct loop_message message;
    int hops; /* workers that it may still go to */
};

/* The oldest; one that still reads its last reply only where there is no other. */
static struct conn *oldest_silent(const struct worker *w)
{
    struct conn *reading = NULL;
    for (struct conn *c = w->silent_first; c != NULL; c = c->next_silent) {
        if (c->state == CONN_CLOSING) {
            continue; /* makes room anyway */
        }
        if (conn_unsent(c) == 0) {
            return c;
        }
        reading = reading != NULL ? reading : c;
    }
    return reading;
}

static void on_shed(struct loop_message *message, void *owner)
{
    struct worker *w = owner;
    struct shed_message *m = (struct shed_message *)message;
    struct room *r = w->room;
    struct conn *c = oldest_silent(w);
    if (c == NULL && --m->hops > 0 && !w->stopping) {
        loop_queue_post(&r->workers[(w - r->workers + 1) % r->n_workers].queue, message);
        return;
    }
    if (c != NULL) {
        room_spoke(c);
        conn_dismiss(c, slice_str(c->ops->made_room));
        worker_count(w, COUNT_SHED, 1);
    }
    atomic_fetch_sub_explicit(&r->shedding, 1, memory_order_relaxed);
    free(m);
}

/* The worker that has the oldest. What the workers published is of no use while they have still to open and to close
 * some: then each gives up its own oldest in turn, which is as good, since they get connections in turn too. */
static struct worker *worker_to_shed(struct room *r, bool fresh)
{
    struct worker *chosen = NULL;
    uint64_t oldest = UINT64_MAX;
    for (int i = 0; fresh && i < r->n_workers; i++) {
        uint64_t id = atomic_load_explicit(&r->workers[i].oldest_silent, memory_order_relaxed);
        if (id < oldest) {
            oldest = id;
            chosen = &r->workers[i];
        }
    }
    unsigned turn = chosen == NULL ? atomic_fetch_add_explicit(&r->turn, 1, memory_order_relaxed) : 0;
    return chosen != NULL ? chosen : &r->workers[turn % (unsigned)r->n_workers];
}

/* Whether a silent one will go. */
static bool make_room(struct room *r)
{
    int64_t shedding = atomic_load_explicit(&r->shedding, memory_order_relaxed);
    if (atomic_load_explicit(&r->silent, memory_order_relaxed) <= shedding) {
        return false;
    }
    struct shed_message *m = malloc(sizeof *m);
    if (m == NULL) {
        return false;
    }
    *m = (struct shed_message){{NULL, on_shed}, r->n_workers};
    atomic_fetch_add_explicit(&r->shedding, 1, memory_order_relaxed);
    bool fresh = shedding == 0 && atomic_load_explicit(&r->opening, memory_order_relaxed) == 0;
    loop_queue_post(&worker_to_shed(r, fresh)->queue, &m->message);
    return true;
}

/* --- in and out --- */

static void log_turned(struct room *r, const char *edge, uint64_t peer, const char *limit, int64_t most)
{
    if (log_again(&r->turned_limit)) {
        char address[PEER_TEXT];
        peer_text(peer, address);
        log_warn("connections are turned away", "address=%s edge=%s %s=%" PRId64, address, edge, limit, most);
    }
}

static void log_shed(struct room *r, const char *edge)
{
    if (log_again(&r->shed_limit)) {
        log_warn("silent connections are closed to make room", "edge=%s max_clients=%" PRId64, edge, r->max);
    }
}

bool room_is_crowded(const struct room *r)
{
    return r->patient && atomic_load_explicit(&r->clients, memory_order_relaxed) >= r->max + ROOM_SPARE;
}

/* How many may be there beyond r->max where none is silent. */
static int64_t spare(const struct room *r, uint64_t peer)
{
    return r->patient ? ROOM_SPARE : peer == PEER_UNIX ? ROOM_KEPT : 0;
}

const char *room_enter(struct worker *w, const struct conn_ops *ops, uint64_t peer)
{
    struct room *r = w->room;
    if (!enter_address(r, peer)) {
        worker_count(w, COUNT_REJECTED, 1);
        log_turned(r, ops->edge, peer, "max_clients_per_address", r->max_per_address);
        return ops->full_here;
    }
    int64_t over = atomic_fetch_add_explicit(&r->clients, 1, memory_order_relaxed) + 1 - r->max;
    if (over > 0 && over <= ROOM_SPARE && make_room(r)) {
        log_shed(r, ops->edge);
    } else if (over > spare(r, peer)) {
        room_leave(r, peer, false);
        worker_count(w, COUNT_REJECTED, 1);
        log_turned(r, ops->edge, peer, "max_clients", r->max);
        return ops->full;
    }
    atomic_fetch_add_explicit(&r->silent, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->opening, 1, memory_order_relaxed);
    return NULL;
}

void room_leave(struct room *r, uint64_t peer, bool silent)
{
    if (silent) {
        atomic_fetch_sub_explicit(&r->silent, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&r->opening, 1, memory_order_relaxed);
    }
    leave_address(r, peer);
    atomic_fetch_sub_explicit(&r->clients, 1, memory_order_relaxed);
}
