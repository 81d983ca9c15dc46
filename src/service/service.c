#include "service/service.h"

#include <pthread.h>
#include <stdlib.h>

#include "dedup/tier.h"
#include "kafka/kafka.h"
#include "service/question.h"
#include "service/sending.h"

static int begin(struct worker *w, struct err *err)
{
    struct service_loop *l = calloc(1, sizeof *l);
    w->service = l;
    if (l != NULL) {
        l->worker = w;
        l->hashes = malloc(ITEMS_MAX * sizeof *l->hashes);
        l->bits = malloc(POOL_ITEMS_MAX / 8 + 2);
        l->open = malloc(POOL_ITEMS_MAX / 8 + 2);
        l->ages = malloc(AGES_MAX * sizeof *l->ages);
    }
    if (l == NULL || l->hashes == NULL || l->bits == NULL || l->open == NULL || l->ages == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for worker %d", w->index);
    }
    return 0;
}

const struct pool_table *service_pools(struct service_loop *l)
{
    struct pools *all = l->dedup->pools;
    if (all != NULL && (l->pools == NULL || l->pools->generation != pools_generation(all))) {
        pools_let_go(l->pools);
        l->pools = pools_take(all);
    }
    return l->pools;
}

/* A loop that is not asked about pools keeps no old ones. */
static void pools_tick(struct service_loop *l)
{
    if (l->pools != NULL && l->pools->generation != pools_generation(l->dedup->pools)) {
        pools_let_go(l->pools);
        l->pools = NULL;
    }
}

static void tick(struct worker *w)
{
    const struct service_loop *l = w->service;
    if (l->dedup != NULL && l->dedup->sessions != NULL && w->index < w->pool->n) {
        sessions_expire(l->dedup->sessions, (unsigned)w->index, (unsigned)w->pool->n);
    }
    read_through_port_tick(l->read_through);
    recorder_look(w->service);
    service_look_at_forgets(w->service);
    pools_tick(w->service);
}

static void turn_end(struct worker *w)
{
    recorder_submit(w->service);
}

static size_t under_way(const struct worker *w)
{
    return w->service->recorder.under_way;
}

static void close_handles(struct worker *w)
{
    struct service_loop *l = w->service;
    l->closing = true;
    if (l->tier != NULL) {
        question_hedge_close(l);
        l->tier_ops->port_close(l->tier);
    }
    if (l->dedup != NULL) {
        uv_close((uv_handle_t *)&l->deadline, NULL);
        uv_close((uv_handle_t *)&l->hedge_timer, NULL);
    }
    read_through_port_close(l->read_through);
}

static void leave(struct worker *w)
{
    struct service_loop *l = w->service;
    if (l->asker != NULL) {
        asker_close(l->asker);
        l->asker = NULL;
    }
    pools_let_go(l->pools);
    l->pools = NULL;
}

static void end(struct worker *w)
{
    struct service_loop *l = w->service;
    if (l != NULL) {
        recorder_free(&l->recorder);
        if (l->tier != NULL) {
            l->tier_ops->port_free(l->tier);
        }
        read_through_port_free(l->read_through);
        session_set_free(&l->blocked);
        free(l->hashes);
        free(l->grouped);
        free(l->pairs);
        buf_free(&l->sent);
        exposure_groups_free(&l->groups);
        free(l->bits);
        free(l->open);
        free(l->ages);
        free(l);
        w->service = NULL;
    }
}

void service_init(struct service *s, struct worker_pool *pool)
{
    static const struct worker_hooks hooks = {begin, tick, turn_end, under_way, close_handles, leave, end};
    s->pool = pool;
    hedge_init(&s->hedge);
    policy_meter_init(&s->policies);
    pool->service = s;
    pool->hooks = &hooks;
}

/* --- while the store recovers --- */

struct record_message {
    struct loop_message message;
    const struct dedup *dedup;
};

static void on_record(struct loop_message *message, void *owner)
{
    struct worker *w = owner;
    struct record_message *m = (struct record_message *)message;
    if (w->service->recording == NULL) {
        w->service->recording = m->dedup;
    }
    free(m);
}

int service_record(struct service *s, const struct dedup *dedup, struct err *err)
{
    for (int i = 0; i < s->pool->n_all; i++) {
        struct record_message *m = calloc(1, sizeof *m);
        if (m == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory for the workers' recorders");
        }
        *m = (struct record_message){.message = {.deliver = on_record}, .dedup = dedup};
        loop_queue_post(&s->pool->workers[i].queue, &m->message);
    }
    atomic_store(&s->records, true);
    return 0;
}

void service_recovering(struct service *s, uint64_t rows, uint64_t of)
{
    atomic_store_explicit(&s->rows_read, rows, memory_order_relaxed);
    atomic_store_explicit(&s->rows_of, of, memory_order_relaxed);
}

double service_recovered(const struct service *s)
{
    uint64_t rows = atomic_load_explicit(&s->rows_read, memory_order_relaxed);
    uint64_t of = atomic_load_explicit(&s->rows_of, memory_order_relaxed);
    return atomic_load(&s->dedup) != NULL ? 1 : rows < of ? (double)rows / (double)of : of > 0 ? 1 : 0;
}

int service_loading(const struct service *s, struct err *err)
{
    return err_set(err, ERR_LOADING, "Redis is loading the dataset in memory: %.0f %% of what was staged is read",
                   100 * service_recovered(s));
}

/* --- once it has --- */

/* An attach waits for all workers: or one would still refuse what another answers, while all the world is told
 * that the server is ready. */
struct attaching {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int left;
};

struct attach_message {
    struct loop_message message;
    struct attaching *attaching; /* gone once it was told */
    const struct dedup *dedup;
    struct asker *asker;
    struct read_through_port *read_through;
    struct tier_port *tier;
};

static void free_attach(struct attach_message *m)
{
    if (m != NULL) {
        asker_close(m->asker);
        read_through_port_free(m->read_through);
        if (m->tier != NULL) {
            m->dedup->tier->ops->port_free(m->tier);
        }
        free(m);
    }
}

static void on_answers(struct loop_message *message, void *owner)
{
    (void)message;
    struct service_loop *l = ((struct worker *)owner)->service;
    if (l->asker != NULL) {
        asker_deliver(l->asker);
    }
}

/* On a thread of the store. */
static void wake(void *loop)
{
    struct service_loop *l = loop;
    l->answers.deliver = on_answers;
    loop_queue_post(&l->worker->queue, &l->answers);
}

static void on_attach(struct loop_message *message, void *owner)
{
    struct worker *w = owner;
    struct attach_message *m = (struct attach_message *)message;
    if (!w->stopped) {
        struct service_loop *l = w->service;
        l->asker = m->asker;
        l->read_through = m->read_through;
        l->dedup = l->recording = m->dedup;
        l->tier = m->tier;
        m->asker = NULL;
        m->read_through = NULL;
        m->tier = NULL;
        read_through_port_open(l->read_through, &w->loop);
        uv_timer_init(&w->loop, &l->deadline);
        uv_timer_init(&w->loop, &l->hedge_timer);
        l->deadline.data = l->hedge_timer.data = l;
        if (l->tier != NULL) {
            l->tier_ops = l->dedup->tier->ops;
            l->tier_ops->port_open(l->tier, &w->loop, &w->memory);
        }
    }
    struct attaching *a = m->attaching;
    free_attach(m);
    pthread_mutex_lock(&a->mutex);
    if (--a->left == 0) {
        pthread_cond_signal(&a->wake);
    }
    pthread_mutex_unlock(&a->mutex);
}

static int make_attach(struct service_loop *l, const struct dedup *dedup, struct attach_message **message,
                       struct err *err)
{
    struct attach_message *m = *message = calloc(1, sizeof *m);
    if (m == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the workers' readers");
    }
    m->message.deliver = on_attach;
    m->dedup = dedup;
    int code = asker_open(dedup, &m->asker, err);
    if (code == 0) {
        asker_leave_large(m->asker);
        asker_leave_cold(m->asker);
        asker_on_answers(m->asker, wake, l);
        code = read_through_port_new(dedup->read_through, &m->read_through, err);
    }
    if (code == 0 && dedup->tier != NULL) {
        code = dedup->tier->ops->port_new(dedup->tier, &m->tier, err);
    }
    return code;
}

int service_attach(struct service *s, const struct dedup *dedup, struct err *err)
{
    const int n = s->pool->n_all;
    struct attaching attaching = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, n};
    struct attach_message **messages = calloc((size_t)n, sizeof(struct attach_message *));
    int code = messages == NULL ? err_set(err, ERR_NOMEM, "out of memory for the workers' readers") : 0;
    for (int i = 0; code == 0 && i < n; i++) {
        code = make_attach(s->pool->workers[i].service, dedup, &messages[i], err);
    }
    if (code == 0 && s->sendings == NULL && (s->sendings = sendings_new()) == NULL) {
        code = err_set(err, ERR_NOMEM, "out of memory for what is being sent");
    }
    if (code == 0) {
        code = offload_start(&s->offload, dedup, err);
    }
    if (code == 0) {
        atomic_store_explicit(&s->dedup, dedup, memory_order_release);
    }
    for (int i = 0; messages != NULL && i < n; i++) {
        if (code == 0) {
            messages[i]->attaching = &attaching;
            loop_queue_post(&s->pool->workers[i].queue, &messages[i]->message);
        } else {
            free_attach(messages[i]);
        }
    }
    free(messages);
    pthread_mutex_lock(&attaching.mutex);
    while (code == 0 && attaching.left > 0) {
        pthread_cond_wait(&attaching.wake, &attaching.mutex);
    }
    pthread_mutex_unlock(&attaching.mutex);
    return code;
}

void service_stop(struct service *s)
{
    offload_stop(&s->offload);
}

void service_free(struct service *s)
{
    hedge_free(&s->hedge);
    policy_meter_destroy(&s->policies);
    sendings_free(s->sendings);
}

/* It records without a loop. */
static uint64_t kafka_counted(const struct worker_pool *pool, enum meter_count what)
{
    const struct dedup *dedup = atomic_load(&pool->service->dedup);
    if (dedup == NULL || dedup->kafka == NULL || (what != COUNT_PLAYS && what != COUNT_DELIVERIES)) {
        return 0;
    }
    struct kafka_state state;
    kafka_look(dedup->kafka, &state, NULL, 0);
    return what == COUNT_PLAYS ? state.plays : state.deliveries;
}

uint64_t service_counted(const struct worker_pool *pool, enum meter_count what)
{
    uint64_t sum = kafka_counted(pool, what);
    for (int i = 0; i < pool->n_all; i++) {
        sum += atomic_load_explicit(&pool->workers[i].service->meter.counts[what], memory_order_relaxed);
    }
    return sum;
}
