/* Writes wait in one list, in the order in which they became durable here. A forget is durable later than the writes
 * behind it in the feed, so the list need not rise; then one waits for the one before it, which is reached as soon. */
#include "replica/ack.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "dedup/role.h"

enum { NODES_MAX = 16, LOOK_MS = 100 };

struct reached {
    uint64_t node, seq;
};

struct ack {
    const struct config *cfg;
    const struct role *role; /* NULL: a primary for good */
    pthread_t thread;
    bool has_thread;
    struct heartbeat heartbeat;
    _Atomic uint64_t newest; /* write that is durable here */
    atomic_bool leave;       /* to answer alone; changed with the mutex alone */

    pthread_mutex_t mutex; /* guards: */
    pthread_cond_t wake;
    bool stop;
    struct ack_wait *first, **last;
    uint64_t waiting;
    struct reached nodes[NODES_MAX];
    size_t n_nodes;
    bool in_step;
    int64_t since_ms; /* wall time: of in_step */
    int64_t prove_ms; /* monotonic: since then a replica has kept up; -1: none does */
    uint64_t owed;    /* the next that a replica must reach ... */
    int64_t owed_ms;  /* ... and since when; 0: none is owed */
    uint64_t alone, refused, fell_out;

    bool (*may_go_alone)(void *arg);
    void (*in_step_again)(void *arg);
    void *arg;
};

struct ack *ack_new(const struct config *cfg)
{
    struct ack *a = calloc(1, sizeof *a);
    if (a != NULL) {
        a->cfg = cfg;
        a->last = &a->first;
        a->leave = true;
        a->since_ms = clock_wall_ms();
        a->prove_ms = -1;
        pthread_mutex_init(&a->mutex, NULL);
        pthread_cond_init(&a->wake, NULL);
    }
    return a;
}

void ack_free(struct ack *a)
{
    if (a != NULL) {
        pthread_cond_destroy(&a->wake);
        pthread_mutex_destroy(&a->mutex);
        free(a);
    }
}

static enum config_ack mode_of(const struct ack *a)
{
    return (enum config_ack)config_now(a->cfg)->replica_ack;
}

/* As far as it counts: of a primary that was replaced, only what the new one has is not lost. */
static uint64_t furthest(const struct ack *a)
{
    uint64_t most = 0;
    struct store_node now;
    bool replaced = !role_is_primary(a->role);
    if (replaced) {
        role_look(a->role, &now);
    }
    for (size_t i = 0; i < a->n_nodes; i++) {
        if (replaced && a->nodes[i].node != now.leader) {
            continue;
        }
        most = a->nodes[i].seq > most ? a->nodes[i].seq : most;
    }
    return most;
}

/* Another node may take writes by now. */
static bool may_answer_alone(const struct ack *a)
{
    struct err why;
    return role_may_write(a->role, &why) == 0;
}

void ack_set_role(struct ack *a, const struct role *role)
{
    a->role = role;
}

/* --- what waits --- */

static void put(struct ack *a, struct ack_wait *wait)
{
    wait->next = NULL;
    *a->last = wait;
    a->last = &wait->next;
    a->waiting++;
}

static struct ack_wait *take(struct ack *a)
{
    struct ack_wait *wait = a->first;
    a->first = wait->next;
    a->last = a->first == NULL ? &a->first : a->last;
    a->waiting--;
    return wait;
}

/* In its order, without the lock. */
static void answer(struct ack_wait *list)
{
    for (struct ack_wait *next; list != NULL; list = next) {
        next = list->next;
        list->done(list);
    }
}

/* The writes that some replica has, taken off the list. */
static struct ack_wait *take_reached(struct ack *a)
{
    struct ack_wait *list = NULL, **last = &list;
    uint64_t seq = furthest(a);
    while (a->first != NULL && a->first->seq <= seq) {
        *last = take(a);
        last = &(*last)->next;
    }
    *last = NULL;
    return list;
}

static struct ack_wait *take_all(struct ack *a)
{
    struct ack_wait *list = a->first;
    a->first = NULL;
    a->last = &a->first;
    a->waiting = 0;
    return list;
}

static void set_stopping(struct ack_wait *wait)
{
    err_set(wait->err, ERR_ALONE, "durable here, but the server stops before a replica has acknowledged it");
}

void ack_wait(struct ack *a, struct ack_wait *wait)
{
    uint64_t newest = atomic_load_explicit(&a->newest, memory_order_relaxed);
    while (wait->seq > newest && !atomic_compare_exchange_weak(&a->newest, &newest, wait->seq)) {
    }
    enum config_ack mode = mode_of(a);
    if (mode == ACK_LOCAL && atomic_load(&a->leave)) {
        wait->done(wait);
        return;
    }
    wait->began_ms = clock_mono_ms();
    pthread_mutex_lock(&a->mutex);
    bool reached = wait->seq <= furthest(a);
    bool alone =
        !reached && (mode == ACK_LOCAL || (mode == ACK_REPLICA && !a->in_step)) && a->leave && may_answer_alone(a);
    bool waits = !reached && !alone && !a->stop;
    if (!reached && !alone && a->stop && (mode == ACK_REPLICA_STRICT || !a->leave || !may_answer_alone(a))) {
        set_stopping(wait);
    }
    a->alone += alone;
    if (!reached && a->owed_ms == 0) {
        a->owed = wait->seq;
        a->owed_ms = wait->began_ms;
    }
    if (waits) {
        put(a, wait);
        if (a->first == wait) {
            pthread_cond_signal(&a->wake);
        }
    }
    pthread_mutex_unlock(&a->mutex);
    if (!waits) {
        wait->done(wait);
    }
}

/* --- replicas --- */

static struct reached *find(struct ack *a, uint64_t node)
{
    for (size_t i = 0; i < a->n_nodes; i++) {
        if (a->nodes[i].node == node) {
            return &a->nodes[i];
        }
    }
    return NULL;
}

/* What is owed next is measured from the moment at which the last debt was paid: so a write counts as late at the
 * latest after twice the time. */
static void pay(struct ack *a, int64_t now)
{
    uint64_t newest = atomic_load(&a->newest), seq = furthest(a);
    if (a->owed_ms != 0 && seq >= a->owed) {
        a->owed_ms = newest > seq ? now : 0;
        a->owed = newest;
    }
    if (a->prove_ms < 0 && a->n_nodes > 0 && newest <= seq) {
        a->prove_ms = now;
    }
}

void ack_reached(struct ack *a, uint64_t node, uint64_t seq)
{
    pthread_mutex_lock(&a->mutex);
    struct reached *r = find(a, node);
    if (r == NULL && a->n_nodes < NODES_MAX) {
        r = &a->nodes[a->n_nodes++];
        *r = (struct reached){.node = node};
    }
    if (r != NULL) {
        r->seq = seq;
    }
    pay(a, clock_mono_ms());
    struct ack_wait *list = take_reached(a);
    if (!a->in_step && mode_of(a) != ACK_LOCAL) {
        pthread_cond_signal(&a->wake); /* this may have been all that it lacked */
    }
    pthread_mutex_unlock(&a->mutex);
    answer(list);
}

void ack_left(struct ack *a, uint64_t node)
{
    pthread_mutex_lock(&a->mutex);
    struct reached *r = find(a, node);
    if (r != NULL) {
        *r = a->nodes[--a->n_nodes];
    }
    a->prove_ms = a->n_nodes == 0 ? -1 : a->prove_ms;
    pthread_mutex_unlock(&a->mutex);
}

void ack_set_gatekeeper(struct ack *a, bool (*may_go_alone)(void *arg), void (*in_step_again)(void *arg), void *arg)
{
    pthread_mutex_lock(&a->mutex);
    a->may_go_alone = may_go_alone;
    a->in_step_again = in_step_again;
    a->arg = arg;
    a->leave = may_go_alone == NULL;
    pthread_mutex_unlock(&a->mutex);
}

/* --- the thread --- */

static void set_in_step(struct ack *a, bool in_step)
{
    a->in_step = in_step;
    a->since_ms = clock_wall_ms();
}

/* The oldest write has waited too long, or is to wait for nobody. Called with the lock, which is let go meanwhile. */
static void give_up(struct ack *a, enum config_ack mode, int64_t timeout_ms)
{
    bool fell = a->in_step && mode != ACK_LOCAL, leave = false;
    a->fell_out += fell;
    if (a->in_step) {
        set_in_step(a, false);
    }
    a->prove_ms = -1;
    if (mode != ACK_REPLICA_STRICT && !(leave = a->leave && a->may_go_alone == NULL)) {
        pthread_mutex_unlock(&a->mutex);
        heartbeat_excuse(&a->heartbeat);
        leave = a->may_go_alone == NULL || a->may_go_alone(a->arg);
        heartbeat_now(&a->heartbeat);
        pthread_mutex_lock(&a->mutex);
    }
    a->leave = leave;
    bool replaced = !may_answer_alone(a);
    leave = leave && !replaced;
    struct ack_wait *list = NULL, **last = &list;
    int64_t now = clock_mono_ms();
    while (a->first != NULL && (leave || now - a->first->began_ms >= timeout_ms)) {
        struct ack_wait *wait = *last = take(a);
        last = &wait->next;
        a->alone += leave;
        a->refused += !leave;
        if (!leave) {
            err_set(wait->err, ERR_ALONE,
                    replaced ? "durable here, but this node may not write any more; waited for %" PRId64 " ms"
                    : mode == ACK_LOCAL ? "durable here, but it could not be recorded within %" PRId64
                                          " ms that this node answers alone"
                                        : "durable here, but no replica has acknowledged it within %" PRId64 " ms",
                    timeout_ms);
        }
    }
    *last = NULL;
    pthread_mutex_unlock(&a->mutex);
    if (fell) {
        log_error("out of step: no replica has acknowledged a write in time", "timeout_ms=%" PRId64 " writes=%s",
                  timeout_ms, leave ? "\"answered by this node alone\"" : "refused");
    }
    answer(list);
    pthread_mutex_lock(&a->mutex);
}

/* A replica must have all that was answered by then. Leave ends first: whoever has read it before has said how far it
 * is. False: not all, and it is as it was. */
static bool end_leave(struct ack *a)
{
    bool had = a->leave;
    a->leave = a->may_go_alone == NULL;
    bool has_all = furthest(a) >= atomic_load(&a->newest);
    a->leave = has_all ? a->leave : had;
    return has_all;
}

/* Called with the lock, which may be let go meanwhile. */
static void look(struct ack *a)
{
    const struct config *live = config_now(a->cfg);
    enum config_ack mode = (enum config_ack)live->replica_ack;
    int64_t now = clock_mono_ms(), timeout_ms = live->replica_ack_timeout_ms;
    bool local = mode == ACK_LOCAL; /* it was changed meanwhile, or there was no leave yet */
    if (a->first != NULL && (local || now - a->first->began_ms >= timeout_ms)) {
        give_up(a, mode, timeout_ms);
    }
    if (a->owed_ms != 0 && now - a->owed_ms >= timeout_ms) {
        a->prove_ms = -1;
        a->owed_ms = 0;
    }
    pay(a, now);
    bool proven = a->prove_ms >= 0 && now - a->prove_ms >= ACK_PROVE_MS;
    if (!a->in_step && proven && mode != ACK_LOCAL && end_leave(a)) {
        set_in_step(a, true);
        pthread_mutex_unlock(&a->mutex);
        log_info("in step: a replica keeps up with every write", "");
        if (a->in_step_again != NULL) {
            heartbeat_excuse(&a->heartbeat);
            a->in_step_again(a->arg);
        }
        pthread_mutex_lock(&a->mutex);
    }
}

/* When to look again, in us of the clock. */
static int64_t next_look(const struct ack *a)
{
    if (mode_of(a) == ACK_LOCAL && a->first == NULL) {
        return INT64_MAX;
    }
    int64_t at_ms = clock_mono_ms() + LOOK_MS;
    int64_t over_ms = a->first != NULL ? a->first->began_ms + config_now(a->cfg)->replica_ack_timeout_ms : INT64_MAX;
    return (over_ms < at_ms ? over_ms : at_ms) * 1000;
}

static void *ack_main(void *arg)
{
    struct ack *a = arg;
    heartbeat_begin(&a->heartbeat, "ack");
    pthread_mutex_lock(&a->mutex);
    while (!a->stop) {
        heartbeat_wait(&a->heartbeat, &a->wake, &a->mutex, next_look(a));
        look(a);
    }
    pthread_mutex_unlock(&a->mutex);
    heartbeat_end(&a->heartbeat);
    return NULL;
}

int ack_start(struct ack *a, struct err *err)
{
    int rc = pthread_create(&a->thread, NULL, ack_main, a);
    a->has_thread = rc == 0;
    return rc == 0 ? 0 : err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(rc));
}

void ack_stop(struct ack *a)
{
    pthread_mutex_lock(&a->mutex);
    a->stop = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->mutex);
    if (a->has_thread) {
        pthread_join(a->thread, NULL);
        a->has_thread = false;
    }
    pthread_mutex_lock(&a->mutex);
    bool strict = mode_of(a) == ACK_REPLICA_STRICT || !a->leave || !may_answer_alone(a);
    struct ack_wait *list = take_all(a);
    pthread_mutex_unlock(&a->mutex);
    for (struct ack_wait *wait = list; wait != NULL && strict; wait = wait->next) {
        set_stopping(wait);
    }
    answer(list);
}

void ack_look(struct ack *a, struct ack_state *out)
{
    pthread_mutex_lock(&a->mutex);
    *out = (struct ack_state){
        .mode = mode_of(a),
        .in_step = a->in_step,
        .since_ms = a->since_ms,
        .waiting = a->waiting,
        .alone = a->alone,
        .refused = a->refused,
        .fell_out = a->fell_out,
    };
    if (out->mode == ACK_LOCAL) {
        out->in_step = a->n_nodes > 0 && furthest(a) >= atomic_load(&a->newest);
    }
    pthread_mutex_unlock(&a->mutex);
}

const char *ack_mode_name(enum config_ack mode)
{
    static const char *const names[] = {"local", "replica", "replica-strict"};
    return names[mode];
}
