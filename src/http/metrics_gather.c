/* Reads what GET /metrics shows, on the HTTP thread. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/handlers.h"
#include "http/metrics.h"
#include "http/server.h"
#include "net/version.h"
#include "service/health.h"
#include "service/service.h"
#include "store/factory.h"
#include "store/ring.h"

static uint64_t count_open_files(void)
{
    uint64_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n > 3 ? n - 3 : 0; /* two dots and the folder itself */
}

/* What can't be read is shown as 0. */
static void gather_process(struct metrics *m)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        if (fscanf(f, "%lu %lu", &size, &resident) != 2) {
            size = resident = 0;
        }
        fclose(f);
    }
    m->process.virtual_bytes = size * page;
    m->process.resident_bytes = resident * page;
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        m->process.cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        m->process.max_files = files.rlim_cur;
    }
    m->process.open_files = count_open_files();
}

static void gather_meter(struct metrics *m, const struct meter *meter)
{
    for (int i = 0; i < OPS; i++) {
        buckets_add(&m->ops[i], &meter->ops[i]);
    }
    for (int i = 0; i < METER_ERRORS; i++) {
        m->errors[i] += atomic_load_explicit(&meter->errors[i], memory_order_relaxed);
    }
}

static void gather_health(struct metrics *m, struct worker_pool *pool)
{
    struct health health;
    health_look(pool, &health);
    m->ready = health.ready;
    m->n_heartbeats = heartbeat_ages(m->heartbeats, METRICS_HEARTBEATS);
}

static uint64_t risen(uint64_t *last, uint64_t all, uint64_t others)
{
    *last = all > others && all - others > *last ? all - others : *last;
    return *last;
}

/* HTTP has a worker of its own. What is neither HTTP's nor gRPC's came over RESP. */
static void gather_edges(struct metrics *m, const struct worker_pool *pool, struct edge_counts *resp)
{
    for (int i = pool->n; i < pool->n_all; i++) {
        const struct worker *w = &pool->workers[i];
        m->of_http.requests += atomic_load_explicit(&w->counters[COUNT_COMMANDS], memory_order_relaxed);
        m->of_http.errors += atomic_load_explicit(&w->counters[COUNT_ERRORS], memory_order_relaxed);
    }
    m->grpc.requests = m->counters[COUNT_GRPC_MESSAGES];
    m->grpc.errors = m->counters[COUNT_GRPC_ERRORS];
    m->resp.requests = risen(&resp->requests, m->counters[COUNT_COMMANDS], m->of_http.requests + m->grpc.requests);
    m->resp.errors = risen(&resp->errors, m->counters[COUNT_ERRORS], m->of_http.errors + m->grpc.errors);
}

static void gather_workers(struct metrics *m, const struct worker_pool *pool)
{
    for (int i = 0; i < COUNTERS; i++) {
        m->counters[i] = worker_pool_counter(pool, (enum counter)i);
    }
    for (int i = 0; i < METER_COUNTS; i++) {
        m->counts[i] = service_counted(pool, (enum meter_count)i);
    }
    for (int i = 0; i < pool->n_all; i++) {
        gather_meter(m, &pool->workers[i].service->meter);
    }
    m->workers = pool->n;
    m->started_ms = pool->started_wall_ms;
    m->clients = atomic_load_explicit(&pool->room.clients, memory_order_relaxed);
    m->tls_expires_s = worker_pool_tls_expires(pool);
    m->request_memory = budget_used(&pool->budget);
    m->request_memory_limit = budget_load(&pool->budget.limit);
    m->request_memory_waiting = budget_load(&pool->budget.waiting);
}

/* A line of a partition is at most so long, and there are so many of each: what they need is there before they are
 * read, or they are left out. */
enum { PARTITION_LINE = KAFKA_TOPIC_MAX + 112, PARTITION_LINES = 6 };

static void gather_policies(struct metrics *m, const struct http_request *rq)
{
    const struct policies *all = &config_now(rq->dedup->cfg)->policies;
    const int64_t now_ms = dedup_stamp(rq->dedup);
    for (size_t i = 0; i < all->n; i++) {
        struct policy_count *c = &m->policies[m->n_policies++];
        policy_meter_look(&rq->pool->service->policies, &all->list[i], now_ms, c);
        memcpy(c->name, all->list[i].name, sizeof c->name);
        m->policy_of[i] = &all->list[i];
    }
}

static void gather_kafka(struct metrics *m, const struct http_request *rq)
{
    struct kafka *kafka = rq->dedup->kafka;
    size_t one = sizeof *m->partitions + PARTITION_LINE * PARTITION_LINES;
    if (kafka != NULL && conn_has_room(&rq->conn->conn, BUDGET_REPLY, KAFKA_PARTITIONS_SHOWN * one)) {
        m->partitions = malloc(KAFKA_PARTITIONS_SHOWN * sizeof *m->partitions);
    }
    m->n_partitions = kafka_look(kafka, &m->kafka, m->partitions, m->partitions != NULL ? KAFKA_PARTITIONS_SHOWN : 0);
}

static int gather_store(struct metrics *m, const struct http_request *rq, struct err *err)
{
    struct store *store = rq->dedup->store;
    m->has_store = true;
    const struct config *live = config_now(rq->cfg);
    m->error_rate = live->error_rate;
    m->slot_length_ms = config_slot_length_ms(live);
    m->wal_limit = live->wal_limit;
    m->min_free = live->min_free;
    store->ops->stats(store, &m->stats);
    m->has_ring = store->ring != NULL;
    if (m->has_ring) {
        store->ring->look(store, &m->ring);
    }
    store->ops->clock(store, &m->clock);
    m->refused = store->ops->refusal(store, NULL) < 0;
    legacy_look(rq->dedup, &m->migration);
    m->mirror = rq->dedup->mirror;
    m->registry = rq->dedup->registry;
    m->dedup = rq->dedup;
    m->lease = rq->dedup->lease;
    m->n_consumers = feed_look(store, m->consumers);
    m->read_through = rq->dedup->read_through;
    m->hedge = &rq->pool->service->hedge;
    m->sessions = rq->dedup->sessions;
    m->pools = rq->dedup->pools;
    gather_kafka(m, rq);
    gather_policies(m, rq);
    m->n_months = store->admin != NULL ? asker_months(rq->asker, m->months, METRICS_MONTHS, err) : 0;
    return m->n_months < 0 ? m->n_months : 0;
}

enum http_outcome get_metrics(struct http_request *rq)
{
    struct err err = {0};
    struct metrics *m = calloc(1, sizeof *m);
    if (m == NULL) {
        err_set(&err, ERR_NOMEM, "out of memory for the metrics");
        return http_fail(rq, &err);
    }
    m->version = UNSEEN_VERSION;
    m->sqlite = store_sqlite_version();
    m->libuv = net_library_version();
    m->now_ms = clock_wall_ms();
    m->max_clients = rq->cfg->max_clients;
    m->loaded = service_recovered(rq->pool->service);
    gather_health(m, rq->pool);
    gather_workers(m, rq->pool);
    gather_edges(m, rq->pool, &rq->http->meter.resp);
    gather_process(m);
    m->http = &rq->http->meter;
    if (rq->dedup == NULL || gather_store(m, rq, &err) == 0) {
        rq->type = "text/plain; version=0.0.4; charset=utf-8";
        metrics_write(&rq->out, m);
    }
    free(m->partitions);
    free(m);
    return err.code < 0 ? http_fail(rq, &err) : HTTP_DONE;
}
