/* The thread takes one change after the other: it makes the new pool, waits until the store has it durably, and then
 * publishes a table with it. What fails before that leaves everything as it was. */
#include "dedup/pools.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"
#include "dedup/role.h"
#include "store/pools.h"

struct pools {
    struct store *store;
    const struct dedup *dedup; /* its role */
    const struct config *cfg;
    uint64_t seed;
    struct pool_budget budget;
    struct task task;

    pthread_mutex_t mutex;    /* guards: */
    struct pool_table *table; /* the newest one */
    struct pool_change *first, **end;
    bool done; /* the store has answered */

    _Atomic uint64_t generation, changes, refused;
};

/* --- tables --- */

static struct pool_table *table_new(size_t n)
{
    struct pool_table *t = calloc(1, sizeof *t + n * sizeof t->list[0]);
    if (t != NULL) {
        t->refs = 1;
    }
    return t;
}

/* Where the name is, or would be. */
static size_t place_of(const struct pool_table *t, struct slice name, bool *found)
{
    size_t from = 0, to = t->n;
    *found = false;
    while (from < to && !*found) {
        size_t middle = from + (to - from) / 2;
        struct slice there = t->list[middle]->name;
        size_t shorter = there.len < name.len ? there.len : name.len;
        int order = memcmp(there.data, name.data, shorter);
        order = order != 0 ? order : (there.len > name.len) - (there.len < name.len);
        *found = order == 0;
        if (order < 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return to;
}

const struct pool *pool_table_find(const struct pool_table *table, struct slice name)
{
    bool found;
    size_t i = place_of(table, name, &found);
    return found ? table->list[i] : NULL;
}

void pools_let_go(const struct pool_table *table)
{
    struct pool_table *t = (struct pool_table *)table; /* its count is not part of what never changes */
    if (t != NULL && atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1) {
        for (size_t i = 0; i < t->n; i++) {
            pool_release(t->list[i]);
        }
        free(t);
    }
}

const struct pool_table *pools_take(struct pools *all)
{
    pthread_mutex_lock(&all->mutex);
    struct pool_table *t = all->table;
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&all->mutex);
    return t;
}

uint64_t pools_generation(const struct pools *all)
{
    return atomic_load_explicit(&all->generation, memory_order_acquire);
}

/* Room for one more pool than there are. NULL: no memory. */
static struct pool_table *table_copy(const struct pool_table *from)
{
    struct pool_table *t = table_new(from->n + 1);
    for (size_t i = 0; t != NULL && i < from->n; i++) {
        t->list[t->n++] = pool_hold(from->list[i]);
    }
    return t;
}

/* pool NULL: takes out the one of that name. */
static void table_put(struct pool_table *t, struct slice name, struct pool *pool)
{
    bool found;
    size_t i = place_of(t, name, &found);
    if (found) {
        pool_release(t->list[i]);
    }
    if (pool == NULL && found) {
        memmove(&t->list[i], &t->list[i + 1], (--t->n - i) * sizeof t->list[0]);
    } else if (pool != NULL) {
        memmove(&t->list[i + 1], &t->list[i], found ? 0 : (t->n - i) * sizeof t->list[0]);
        t->n += !found;
        t->list[i] = pool;
    }
}

static void publish(struct pools *all, struct pool_table *t)
{
    pthread_mutex_lock(&all->mutex);
    struct pool_table *old = all->table;
    t->generation = atomic_load(&all->generation) + 1;
    all->table = t;
    atomic_store_explicit(&all->generation, t->generation, memory_order_release);
    pthread_mutex_unlock(&all->mutex);
    pools_let_go(old);
}

/* --- the store --- */

static void on_stored(struct store_call *call)
{
    struct pools *all = call->owner;
    pthread_mutex_lock(&all->mutex);
    task_answer(&all->task, &all->done);
    pthread_mutex_unlock(&all->mutex);
}

/* Until it is durable; at once where the store keeps no pools. */
static int keep(struct pools *all, struct store_pool_change *change, struct err *err)
{
    if (all->store->pools == NULL) {
        return 0;
    }
    change->call.done = on_stored;
    change->call.owner = all;
    all->store->pools->change(all->store, change);
    pthread_mutex_lock(&all->mutex);
    task_await(&all->task, &all->done); /* how the store is its own threads say */
    all->done = false;
    pthread_mutex_unlock(&all->mutex);
    return change->call.err.code < 0 ? (*err = change->call.err).code : 0;
}

/* --- changes --- */

/* What is refused needs no look at the pools. */
static int check(const struct pools *all, const struct pool_change *c, struct err *err)
{
    const struct pool *there = pool_table_find(all->table, c->name);
    int rc = dedup_check_id("pool", 0, c->name, err);
    if (rc == 0 && c->kind == POOL_RENAME) {
        rc = dedup_check_id("pool", 0, c->to, err);
    }
    if (rc == 0 && c->kind == POOL_RENAME && there == NULL) {
        rc = err_set(err, ERR_POOL, "there is no pool %s", log_quote(c->name));
    }
    if (rc == 0 && (c->kind == POOL_SET || c->kind == POOL_ADD) && there == NULL && all->table->n >= POOLS_MAX) {
        rc = err_set(err, ERR_RANGE, "there are %d pools already, the most there may be", POOLS_MAX);
    }
    return rc;
}

/* The pool as it is to be; NULL: it goes. */
static int make(struct pools *all, const struct pool_change *c, const struct pool *there, struct pool **pool,
                struct err *err)
{
    uint64_t limit = c->replicated ? UINT64_MAX : (uint64_t)config_now(all->cfg)->pool_memory;
    *pool = NULL;
    switch (c->kind) {
    case POOL_SET:
        return pool_make(all->seed, c->name, NULL, c->items, clock_wall_ms(), &all->budget, limit, pool, err);
    case POOL_ADD:
        return pool_make(all->seed, c->name, there, c->items, clock_wall_ms(), &all->budget, limit, pool, err);
    case POOL_RENAME:
        return pool_rename(there, c->to, &all->budget, limit, pool, err);
    case POOL_DROP:
    case POOL_NOTHING:
        break;
    }
    return 0;
}

/* What of the pool the store doesn't have yet. */
static void describe(const struct pool_change *c, const struct pool *there, const struct pool *pool,
                     struct store_pool_change *out)
{
    static const enum store_pool_kind kinds[] = {
        [POOL_SET] = STORE_POOL_SET,
        [POOL_ADD] = STORE_POOL_ADD,
        [POOL_DROP] = STORE_POOL_DROP,
        [POOL_RENAME] = STORE_POOL_RENAME,
    };
    bool adds = c->kind == POOL_ADD && there != NULL;
    *out = (struct store_pool_change){.kind = c->kind == POOL_ADD && !adds ? STORE_POOL_SET : kinds[c->kind],
                                      .pool = {.name = c->name},
                                      .to = c->to,
                                      .before = there != NULL ? there->version : 0};
    if (pool != NULL) {
        out->pool.n = pool->n;
        out->pool.version = pool->version;
        out->pool.changed_ms = pool->changed_ms;
    }
    if (c->kind == POOL_SET || c->kind == POOL_ADD) {
        pool_packed(pool, adds ? there->n : 0, SIZE_MAX, &out->pool.items);
    }
}

/* Asked before and after: what a primary has written behind its last event, as it stepped down, no other node has. */
static int may_change(const struct pools *all, const struct pool_change *c, struct err *err)
{
    return c->replicated ? 0 : role_may_write(all->dedup->role, err);
}

static int carry_out(struct pools *all, struct pool_change *c, struct err *err)
{
    const struct pool *there = pool_table_find(all->table, c->name);
    struct pool *pool = NULL;
    struct store_pool_change kept;
    int rc = c->kind == POOL_NOTHING ? 0 : check(all, c, err);
    rc = rc == 0 && c->kind != POOL_NOTHING ? may_change(all, c, err) : rc;
    c->existed = there != NULL;
    if (rc < 0 || c->kind == POOL_NOTHING || (c->kind == POOL_DROP && there == NULL)) {
        return rc;
    }
    if (c->kind == POOL_RENAME && slice_eq(c->name, c->to)) {
        c->n = there->n;
        c->version = there->version;
        return 0;
    }
    if ((rc = make(all, c, there, &pool, err)) < 0) {
        return rc;
    }
    struct pool_table *t = table_copy(all->table);
    if (t == NULL) {
        rc = err_set(err, ERR_NOMEM, "out of memory for pools");
    } else {
        describe(c, there, pool, &kept);
        rc = keep(all, &kept, err);
        c->seq = kept.seq;
    }
    if (rc < 0) {
        pools_let_go(t);
        pool_release(pool);
        return rc;
    }
    c->n = pool != NULL ? pool->n : 0;
    c->version = pool != NULL ? pool->version : 0;
    if (c->kind == POOL_RENAME) {
        table_put(t, c->name, NULL);
    }
    table_put(t, c->kind == POOL_RENAME ? c->to : c->name, pool);
    publish(all, t);
    atomic_fetch_add_explicit(&all->changes, 1, memory_order_relaxed);
    return may_change(all, c, err);
}

static void pools_main(void *arg)
{
    struct pools *all = arg;
    pthread_mutex_lock(&all->mutex);
    while (!task_stops(&all->task)) {
        struct pool_change *c = all->first;
        if (c != NULL) {
            all->first = c->next;
            all->end = all->first == NULL ? &all->first : all->end;
            pthread_mutex_unlock(&all->mutex);
            if (carry_out(all, c, &c->err) == ERR_RANGE) {
                atomic_fetch_add_explicit(&all->refused, 1, memory_order_relaxed);
            }
            c->done(c);
            pthread_mutex_lock(&all->mutex);
        } else {
            task_wait(&all->task, INT64_MAX);
        }
        heartbeat_now(&all->task.heartbeat);
    }
    pthread_mutex_unlock(&all->mutex);
}

static void refuse(struct pool_change *list)
{
    for (struct pool_change *next; list != NULL; list = next) {
        next = list->next;
        err_set(&list->err, ERR_CLOSED, "the server is stopping");
        list->done(list);
    }
}

void pools_change(struct pools *all, struct pool_change *change)
{
    change->next = NULL;
    change->err = (struct err){0};
    pthread_mutex_lock(&all->mutex);
    bool takes = !task_stops(&all->task);
    if (takes) {
        *all->end = change;
        all->end = &change->next;
        task_wake(&all->task);
    }
    pthread_mutex_unlock(&all->mutex);
    if (!takes) {
        refuse(change);
    }
}

/* --- start and end --- */

struct loading {
    struct pools *all;
    struct pool_table *table;
};

static void tell_bad(void *arg, struct slice name, const char *what)
{
    (void)arg;
    log_error("a pool is damaged and left out: set it again", "pool=%s error=%s", log_quote(name), log_quote_str(what));
}

static int load(void *arg, const struct store_pool *kept, struct err *err)
{
    struct loading *l = arg;
    struct pool *pool;
    struct err bad = {0};
    int rc = pool_make(l->all->seed, kept->name, NULL, kept->items, kept->changed_ms, &l->all->budget, UINT64_MAX,
                       &pool, &bad);
    if (rc == 0 && (pool->version != kept->version || pool->n != kept->n)) {
        pool_release(pool);
        rc = err_set(&bad, ERR_CORRUPT, "it is not what was set");
    }
    if (rc == ERR_NOMEM) {
        return err_set(err, rc, "%s", bad.text);
    }
    if (rc < 0) {
        tell_bad(NULL, kept->name, bad.text);
        return 0;
    }
    struct pool_table *t = table_copy(l->table);
    if (t == NULL) {
        pool_release(pool);
        return err_set(err, ERR_NOMEM, "out of memory for pools");
    }
    table_put(t, pool->name, pool);
    pools_let_go(l->table);
    l->table = t;
    return 0;
}

static int load_all(struct pools *all, struct err *err)
{
    struct loading l = {all, table_new(0)};
    struct store_reader *reader;
    if (l.table == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for pools");
    }
    int rc = all->store->pools == NULL ? 0 : all->store->ops->reader_open(all->store, &reader, err);
    if (rc == 0 && all->store->pools != NULL) {
        rc = all->store->pools->each(reader, load, tell_bad, &l, err);
        all->store->ops->reader_close(reader);
    }
    all->table = l.table;
    uint64_t limit = (uint64_t)config_now(all->cfg)->pool_memory, used = atomic_load(&all->budget.used);
    if (rc == 0 && used > limit) {
        log_warn("pools take more than pool_memory: none can be set until some are dropped",
                 "bytes=%" PRIu64 " pool_memory=%" PRIu64, used, limit);
    }
    return rc;
}

int pools_start(const struct dedup *d, struct pools **out, struct err *err)
{
    struct pools *all = calloc(1, sizeof *all);
    if (all == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    all->store = d->store;
    all->dedup = d;
    all->cfg = d->cfg;
    all->seed = d->seed;
    all->end = &all->first;
    pthread_mutex_init(&all->mutex, NULL);
    task_init(&all->task, &all->mutex);
    int rc = load_all(all, err);
    rc = rc < 0 ? rc : task_start(&all->task, "pools", TASK_BEATS, pools_main, all, err);
    if (rc < 0) {
        pools_free(all);
        return rc;
    }
    *out = all;
    return 0;
}

void pools_stop(struct pools *all)
{
    if (all == NULL) {
        return;
    }
    task_stop(&all->task);
    struct pool_change *rest = all->first;
    all->first = NULL;
    refuse(rest);
}

void pools_free(struct pools *all)
{
    if (all != NULL) {
        pools_let_go(all->table);
        task_destroy(&all->task);
        pthread_mutex_destroy(&all->mutex);
        free(all);
    }
}

void pools_charge(struct pools *all, int64_t bytes)
{
    atomic_fetch_add_explicit(&all->budget.used, (uint64_t)bytes, memory_order_relaxed);
}

/* --- figures --- */

void pools_look(struct pools *all, struct pools_stats *out)
{
    const struct pool_table *t = pools_take(all);
    *out = (struct pools_stats){
        .pools = t->n,
        .bytes = atomic_load_explicit(&all->budget.used, memory_order_relaxed),
        .limit = (uint64_t)config_now(all->cfg)->pool_memory,
        .changes = atomic_load_explicit(&all->changes, memory_order_relaxed),
        .refused = atomic_load_explicit(&all->refused, memory_order_relaxed),
    };
    for (size_t i = 0; i < t->n; i++) {
        out->items += t->list[i]->n;
    }
    pools_let_go(t);
}

void pools_figures_each(struct pools *all, figure_visit *visit, void *arg)
{
    struct pools_stats s = {0};
    if (all != NULL) {
        pools_look(all, &s);
    }
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"pools", "pools", FIGURE_GAUGE, "Pools: lists of candidates that questions name."}, s.pools},
        {{"pool_items", "pool_items", FIGURE_GAUGE, "Items of all pools."}, s.items},
        {{"pool_memory_used", "pool_memory_bytes", FIGURE_GAUGE, "Memory of pools."}, s.bytes},
        {{"pool_memory_limit", "pool_memory_limit_bytes", FIGURE_GAUGE, "pool_memory."}, s.limit},
        {{"pool_changes", "pool_changes_total", FIGURE_COUNTER, "Pools that were set, added to, renamed or dropped."},
         s.changes},
        {{"pools_refused", "pools_refused_total", FIGURE_COUNTER,
          "Changes of pools that were refused because pool_memory was full, or for being too large."},
         s.refused},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
