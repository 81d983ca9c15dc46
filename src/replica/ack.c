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

enum { LOOK_MS = 100 };

struct reached {
    uint64_t node, seq;
    int64_t prove_ms; /* monotonic: since then it has kept up; -1: it doesn't */
    uint64_t owed;    /* the next that it must reach ... */
    int64_t owed_ms;  /* ... and since when; 0: none is owed */
};

/* Replicas that are named elsewhere, or may be. */
struct names {
    bool known; /* since the start */
    int n;
    uint64_t nodes[ACK_NODES_MAX];
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
    struct reached nodes[ACK_NODES_MAX];
    size_t n_nodes;
    struct names names; /* with a gatekeeper, unless there is leave */
    uint64_t answered;  /* the newest that was */
    bool in_step;
    int64_t since_ms; /* wall time: of in_step */
    uint64_t alone, refused, fell_out;

    bool (*record)(void *arg, const uint64_t *nodes, int n);
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

static struct reached *find(const struct ack *a, uint64_t node)
{
    for (size_t i = 0; i < a->n_nodes; i++) {
        if (a->nodes[i].node == node) {
            return (struct reached *)&a->nodes[i];
        }
    }
    return NULL;
}

static uint64_t reached_by(const struct ack *a, uint64_t node)
{
    const struct reached *r = find(a, node);
    return r != NULL ? r->seq : 0;
}

/* What all that are or may be named have. */
static uint64_t common(const struct ack *a)
{
    uint64_t least = a->names.known && a->names.n > 0 ? UINT64_MAX : 0;
    for (int i = 0; i < a->names.n && least > 0; i++) {
        uint64_t seq = reached_by(a, a->names.nodes[i]);
        least = seq < least ? seq : least;
    }
    return least;
}

/* Up to where writes may be answered since others have them: of a primary that was replaced, only what the new one has
 * is not lost. */
static uint64_t furthest(const struct ack *a)
{
    uint64_t most = 0;
    if (!role_is_primary(a->role)) {
        struct store_node now;
        role_look(a->role, &now);
        return reached_by(a, now.leader);
    }
    if (a->record != NULL && !a->leave) {
        return common(a);
    }
    for (size_t i = 0; i < a->n_nodes; i++) {
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

static void note_answered(struct ack *a, uint64_t seq)
{
    a->answered = seq > a->answered ? seq : a->answered;
}

static struct ack_wait *take(struct ack *a)
{
    struct ack_wait *wait = a->first;
    note_answered(a, wait->seq);
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
    for (size_t i = 0; i < a->n_nodes && !reached; i++) {
        struct reached *r = &a->nodes[i];
        if (r->seq < wait->seq && r->owed_ms == 0) {
            r->owed = wait->seq;
            r->owed_ms = wait->began_ms;
        }
    }
    if (!waits) {
        note_answered(a, wait->seq);
    } else {
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

/* What is owed next is measured from the moment at which the last debt was paid: so a write counts as late at the
 * latest after twice the time. */
static void pay(struct ack *a, int64_t now)
{
    uint64_t newest = atomic_load(&a->newest);
    for (size_t i = 0; i < a->n_nodes; i++) {
        struct reached *r = &a->nodes[i];
        if (r->owed_ms != 0 && r->seq >= r->owed) {
            r->owed_ms = newest > r->seq ? now : 0;
            r->owed = newest;
        }
        if (r->prove_ms < 0 && newest <= r->seq) {
            r->prove_ms = now;
        }
    }
}

void ack_reached(struct ack *a, uint64_t node, uint64_t seq)
{
    pthread_mutex_lock(&a->mutex);
    struct reached *r = find(a, node);
    if (r == NULL && a->n_nodes < ACK_NODES_MAX) {
        r = &a->nodes[a->n_nodes++];
        *r = (struct reached){.node = node, .prove_ms = -1};
    }
    if (r != NULL) {
        r->seq = seq;
    }
    pay(a, clock_mono_ms());
    struct ack_wait *list = take_reached(a);
    if (mode_of(a) != ACK_LOCAL && (!a->in_step || !a->names.known)) {
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
    pthread_mutex_unlock(&a->mutex);
}

void ack_set_gatekeeper(struct ack *a, bool (*record)(void *arg, const uint64_t *nodes, int n), void *arg)
{
    pthread_mutex_lock(&a->mutex);
    a->record = record;
    a->arg = arg;
    a->leave = record == NULL;
    pthread_mutex_unlock(&a->mutex);
}

/* --- the thread --- */

static void set_in_step(struct ack *a, bool in_step)
{
    a->in_step = in_step;
    a->since_ms = clock_wall_ms();
}

static bool is_among(const struct names *names, uint64_t node)
{
    bool among = false;
    for (int i = 0; i < names->n; i++) {
        among = among || names->nodes[i] == node;
    }
    return among;
}

static bool unite(struct names *names, const struct names *more)
{
    for (int i = 0; i < more->n; i++) {
        if (!is_among(names, more->nodes[i])) {
            if (names->n == ACK_NODES_MAX) {
                return false;
            }
            names->nodes[names->n++] = more->nodes[i];
        }
    }
    return true;
}

/* Those that have all up to seq; proven: for so long. */
static struct names who_has(const struct ack *a, uint64_t seq, int64_t since_ms)
{
    struct names who = {.known = true};
    for (size_t i = 0; i < a->n_nodes; i++) {
        const struct reached *r = &a->nodes[i];
        if (r->seq >= seq && (since_ms == INT64_MAX || (r->prove_ms >= 0 && r->prove_ms <= since_ms))) {
            who.nodes[who.n++] = r->node;
        }
    }
    return who;
}

/* Names these alone: all of them have what was answered. Until it is recorded, and where it can't be told whether it
 * is, those of before count, too. Called with the lock, which is let go meanwhile. */
static bool name(struct ack *a, const struct names *who)
{
    struct names both = a->names;
    if (!unite(&both, who)) {
        return false;
    }
    a->names = both;
    a->leave = false;
    pthread_mutex_unlock(&a->mutex);
    heartbeat_excuse(&a->heartbeat);
    bool recorded = a->record(a->arg, who->nodes, who->n);
    heartbeat_now(&a->heartbeat);
    pthread_mutex_lock(&a->mutex);
    if (recorded) {
        a->names = *who;
    }
    struct ack_wait *list = take_reached(a);
    pthread_mutex_unlock(&a->mutex);
    answer(list);
    pthread_mutex_lock(&a->mutex);
    return recorded;
}

/* The oldest write is there with some, while others that are named lag: or it isn't known which are. */
static void leave_out(struct ack *a, int64_t waited_ms, int64_t lag_ms)
{
    uint64_t seq = a->first->seq > a->answered ? a->first->seq : a->answered;
    const struct names who = who_has(a, seq, INT64_MAX);
    if (who.n > 0 && (!a->names.known || waited_ms >= lag_ms) && name(a, &who) && !a->in_step) {
        set_in_step(a, true);
    }
}

/* The oldest write has waited too long, or is to wait for none. Called with the lock, which is let go meanwhile. */
static void give_up(struct ack *a, enum config_ack mode, int64_t timeout_ms)
{
    bool fell = a->in_step && mode != ACK_LOCAL, leave = false;
    a->fell_out += fell;
    if (a->in_step) {
        set_in_step(a, false);
    }
    for (size_t i = 0; i < a->n_nodes; i++) {
        a->nodes[i].prove_ms = a->nodes[i].seq < a->first->seq ? -1 : a->nodes[i].prove_ms;
    }
    if (mode != ACK_REPLICA_STRICT && !(leave = a->leave && a->record == NULL)) {
        pthread_mutex_unlock(&a->mutex);
        heartbeat_excuse(&a->heartbeat);
        leave = a->record == NULL || a->record(a->arg, NULL, 0);
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

/* A replica that has kept up for long enough, and has all. It is named; leave ends first: one that has read it before
 * has said how far it is. */
static void come_into_step(struct ack *a, int64_t now)
{
    bool had = a->leave;
    a->leave = a->record == NULL;
    struct names who = who_has(a, atomic_load(&a->newest), now - ACK_PROVE_MS);
    bool all_named = a->in_step;
    for (int i = 0; i < who.n && a->record != NULL; i++) {
        all_named = all_named && is_among(&a->names, who.nodes[i]);
    }
    if (who.n == 0 || all_named || (a->in_step && !unite(&who, &a->names))) {
        a->leave = had;
        return;
    }
    if (had) { /* none is named */
        a->names = (struct names){.known = true};
    }
    if (!a->in_step) {
        set_in_step(a, true);
        log_info("in step: a replica keeps up with every write", "");
    }
    if (a->record != NULL) {
        name(a, &who);
    }
}

/* Called with the lock, which may be let go meanwhile. */
static void look(struct ack *a)
{
    const struct config *live = config_now(a->cfg);
    enum config_ack mode = (enum config_ack)live->replica_ack;
    int64_t now = clock_mono_ms(), timeout_ms = live->replica_ack_timeout_ms;
    bool local = mode == ACK_LOCAL; /* it was changed meanwhile, or there was no leave yet */
    if (a->first != NULL && !local && a->record != NULL && !a->leave && role_is_primary(a->role)) {
        leave_out(a, now - a->first->began_ms, timeout_ms / 2 < ACK_LAG_MS ? timeout_ms / 2 : ACK_LAG_MS);
    }
    if (a->first != NULL && (local || now - a->first->began_ms >= timeout_ms)) {
        give_up(a, mode, timeout_ms);
    }
    for (size_t i = 0; i < a->n_nodes; i++) {
        struct reached *r = &a->nodes[i];
        if (r->owed_ms != 0 && now - r->owed_ms >= timeout_ms) {
            r->prove_ms = -1;
            r->owed_ms = 0;
        }
    }
    pay(a, now);
    if (mode != ACK_LOCAL) {
        come_into_step(a, now);
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
        .common = a->record != NULL && !a->leave ? common(a) : 0,
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
