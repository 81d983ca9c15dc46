/* INFO: sections of "name:value" lines. Names that Redis has too mean the same as there, since health checks and
 * exporters read them. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "dedup/pools.h"
#include "front/front.h"
#include "front/reader_store.h"
#include "kafka/kafka.h"
#include "legacy/legacy.h"
#include "legacy/mirror.h"
#include "legacy/read_through.h"
#include "registry/lease.h"
#include "registry/registry.h"
#include "resp/args.h"
#include "resp/command.h"
#include "store/admin.h"
#include "store/codec/user_snapshot.h"
#include "store/ring.h"
#include "store/stats.h"

/* INFO shows so many partitions; KAFKA shows more. */
enum { INFO_PARTITIONS = 16 };

/* Appends text as a value: control bytes become blanks, and `marks`, which stand between values, ':' or ';'. */
static void add_value(struct buf *out, const char *text, const char *marks)
{
    size_t at = out->len;
    buf_addf(out, "%s", text);
    for (char *c = out->data + at; !out->failed && at < out->len; at++, c++) {
        bool mark = strchr(marks, *c) != NULL;
        *c = (unsigned char)*c < ' ' || *c == 0x7f ? ' ' : !mark ? *c : *c == '=' ? ':' : ';';
    }
}

void info_add_text(struct buf *out, const char *name, const char *text)
{
    buf_addf(out, "%s:", name);
    add_value(out, text, "=");
    buf_addf(out, "\r\n");
}

static void add_server(struct buf *out, const struct resp_client *s)
{
    const struct worker_pool *pool = s->conn.worker->pool;
    int64_t uptime = (clock_mono_ms() - pool->started_ms) / 1000;
    buf_addf(out, "redis_version:%s\r\nredis_mode:standalone\r\nunseen_version:%s\r\n", REDIS_VERSION, UNSEEN_VERSION);
    buf_addf(out, "arch_bits:64\r\nmultiplexing_api:epoll\r\nprocess_id:%ld\r\n", (long)getpid());
    buf_addf(out, "uptime_in_seconds:%" PRId64 "\r\nuptime_in_days:%" PRId64 "\r\n", uptime, uptime / 86400);
    buf_addf(out, "server_time_usec:%" PRId64 "\r\nworkers:%d\r\n", clock_wall_ms() * 1000, pool->n);
    for (int i = 0; i < pool->listeners->n; i++) {
        char name[24];
        snprintf(name, sizeof name, "listener%d", i);
        info_add_text(out, name, pool->listeners->list[i].address);
    }
    buf_addf(out, "tls_certificate_expires:%" PRId64 "\r\n", worker_pool_tls_expires(pool));
}

static void add_clients(struct buf *out, const struct resp_client *s)
{
    const struct worker_pool *pool = s->conn.worker->pool;
    buf_addf(out, "connected_clients:%" PRId64 "\r\nmaxclients:%" PRId64 "\r\nblocked_clients:0\r\n",
             (int64_t)atomic_load_explicit(&pool->room.clients, memory_order_relaxed), pool->cfg->max_clients);
}

static size_t resident(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        if (fscanf(f, "%*u %lu", &pages) != 1) {
            pages = 0;
        }
        fclose(f);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

struct process_memory process_memory(void)
{
    struct mallinfo2 info = mallinfo2();
    size_t used = info.uordblks + info.hblkhd, rss = resident();
    return (struct process_memory){used, rss, used > 0 ? (double)rss / (double)used : 1};
}

static void add_memory(struct buf *out, const struct resp_client *s)
{
    const struct worker_pool *pool = s->conn.worker->pool;
    struct process_memory memory = process_memory();
    buf_addf(out, "used_memory:%zu\r\nused_memory_rss:%zu\r\nmem_fragmentation_ratio:%.2f\r\n", memory.used,
             memory.resident, memory.fragmentation);
    buf_addf(out, "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
    buf_addf(out, "request_memory_used:%zu\r\nrequest_memory_limit:%zu\r\nrequest_memory_waiting:%zu\r\n",
             budget_used(&pool->budget), budget_load(&pool->budget.limit), budget_load(&pool->budget.waiting));
}

static void add_persistence(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    const struct service *service = s->conn.worker->pool->service;
    buf_addf(out, "loading:%d\r\nasync_loading:0\r\n", dedup == NULL);
    if (dedup == NULL) {
        buf_addf(out, "loading_loaded_perc:%.2f\r\nloading_takes_plays:%d\r\n", 100 * service_recovered(service),
                 atomic_load(&service->records));
    }
    if (dedup != NULL) {
        struct err cause = {0};
        bool refused = dedup->store->ops->refusal(dedup->store, &cause) < 0;
        buf_addf(out, "store:%s\r\n", dedup->store->engine);
        buf_addf(out, "writes_refused:%d\r\n", refused);
        info_add_text(out, "writes_refused_cause", cause.text);
        buf_addf(out, "aof_enabled:1\r\naof_last_write_status:%s\r\n", refused ? "err" : "ok");
        buf_addf(out, "seed_fingerprint:%08" PRIx32 "\r\nparcel_version:%d\r\n", hash_seed_fingerprint(dedup->seed),
                 USER_SNAPSHOT_VERSION);
    }
}

static void add_stat(void *arg, const struct figure *figure, uint64_t value)
{
    buf_addf(arg, "%s:%" PRIu64 "\r\n", figure->info, value);
}

static void add_stats(struct buf *out, const struct resp_client *s)
{
    const struct worker *w = s->conn.worker;
    for (int i = 0; i < COUNTERS; i++) {
        add_stat(out, &counter_figures[i], worker_pool_counter(w->pool, (enum counter)i));
    }
    for (int i = 0; i < METER_COUNTS; i++) {
        add_stat(out, &meter_figures[i], service_counted(w->pool, (enum meter_count)i));
    }
    log_figures_each(add_stat, out);
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        struct store_stats stats;
        dedup->store->ops->stats(dedup->store, &stats);
        store_stats_each(&stats, add_stat, out);
        hedge_figures_each(&w->pool->service->hedge, dedup, add_stat, out);
    }
}

/* Seconds of the whole process, as Redis has them. */
static void add_cpu(struct buf *out, const struct resp_client *s)
{
    (void)s;
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        buf_addf(out, "used_cpu_sys:%lld.%06ld\r\nused_cpu_user:%lld.%06ld\r\n", (long long)used.ru_stime.tv_sec,
                 (long)used.ru_stime.tv_usec, (long long)used.ru_utime.tv_sec, (long)used.ru_utime.tv_usec);
    }
}

static void add_ring(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup == NULL || dedup->store->ring == NULL) {
        return;
    }
    struct store_ring ring;
    dedup->store->ring->look(dedup->store, &ring);
    buf_addf(out, "ring_turn:%" PRIu64 "\r\nring_slots:%d\r\nring_open:%d\r\n", ring.turn, ring.n_slots, ring.open);
    buf_addf(out, "ring_next_turn:%" PRId64 "\r\nring_memory:%" PRIu64 "\r\nring_memory_limit:%" PRIu64 "\r\n",
             ring.next_turn_ms, ring.memory, ring.memory_limit);
    info_add_text(out, "clock", ring.clock_doubted ? ring.clock_reason : "steady");
    for (int i = 0; i < ring.n_slots; i++) {
        const struct store_slot *slot = &ring.slots[i];
        buf_addf(out, "slot%d:state=%s,rows=%" PRIu64 ",users=%" PRIu64 ",memory=%" PRIu64 "\r\n", slot->slot,
                 store_slot_state_name(slot->state), slot->rows, slot->users, slot->bytes);
    }
}

static void add_sessions(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup == NULL || dedup->sessions == NULL) {
        return;
    }
    sessions_stats_each(dedup->sessions, add_stat, out);
}

static void add_pools(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        pools_figures_each(dedup->pools, add_stat, out);
    }
}

static void add_migration(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        struct legacy_state state;
        legacy_look(dedup, &state);
        info_add_text(out, "migration_state", legacy_doing_name(state.doing));
        info_add_text(out, "migration_cause", state.cause);
        legacy_figures_each(&state, add_stat, out);
    }
}

static void add_mirror(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        struct mirror_status status;
        mirror_look(dedup, &status);
        info_add_text(out, "mirror_state", courier_doing_name(status.courier.doing));
        info_add_text(out, "mirror_cause", status.courier.cause);
        mirror_figures_each(dedup->mirror, add_stat, out);
    }
}

/* Of a server without a folder, which answers from it. */
static void add_front_only(struct buf *out, struct store *store)
{
    struct front_store_state state;
    front_store_look(store, &state);
    buf_addf(out, "front_only:1\r\nfront_reached:%d\r\nfront_full:%d\r\n", state.reached, state.full);
    buf_addf(out, "front_node:%016" PRIx64 "\r\nfront_epoch:%" PRIu64 "\r\nfront_to:%" PRIu64 "\r\n", state.node,
             state.epoch, state.to);
    buf_addf(out, "front_age_ms:%" PRId64 "\r\n", state.age_ms);
    info_add_text(out, "front_cause", state.cause);
}

static void add_front(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL && front_store_is(dedup->store)) {
        add_front_only(out, dedup->store);
    } else if (dedup != NULL) {
        struct front_status status;
        front_look(dedup, &status);
        info_add_text(out, "front_state", courier_doing_name(status.courier.doing));
        info_add_text(out, "front_cause", status.courier.cause);
        info_add_text(out, "front_redis", status.address);
        front_figures_each(dedup, add_stat, out);
    }
}

static void add_archive(struct buf *out, const struct resp_client *s)
{
    struct archive_status status;
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        archive_look(dedup, &status);
        info_add_text(out, "archive_state", archive_doing_name(status.doing));
        info_add_text(out, "archive_cause", status.cause);
        info_add_text(out, "archive_url", status.url);
        archive_figures_each(dedup, add_stat, out);
    }
}

static void add_registry(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        struct registry_status status;
        registry_look(dedup->registry, &status);
        info_add_text(out, "registry_state", registry_doing_name(status.doing));
        info_add_text(out, "registry_cause", status.cause);
        registry_figures_each(dedup->registry, add_stat, out);
        struct lease_status lease;
        lease_look(dedup->lease, &lease);
        if (lease.on) {
            info_add_text(out, "failover_by", lease.by);
            info_add_text(out, "failover_cause", lease.cause);
            lease_figures_each(dedup->lease, add_stat, out);
        }
    }
}

static void add_read_through(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        read_through_figures_each(dedup->read_through, add_stat, out);
    }
}

static void add_kafka(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup == NULL) {
        return;
    }
    struct kafka_state state;
    struct kafka_partition partitions[INFO_PARTITIONS];
    size_t n = kafka_look(dedup->kafka, &state, partitions, INFO_PARTITIONS);
    info_add_text(out, "kafka_state", kafka_doing_name(state.doing));
    info_add_text(out, "kafka_cause", state.cause);
    info_add_text(out, "kafka_group", state.group);
    buf_addf(out, "kafka_lag:%" PRId64 "\r\nkafka_lag_ms:%" PRId64 "\r\nkafka_rate:%.1f\r\n", state.lag, state.lag_ms,
             state.rate);
    kafka_figures_each(&state, add_stat, out);
    info_add_text(out, "kafka_error", state.error);
    for (size_t i = 0; i < n; i++) {
        const struct kafka_partition *p = &partitions[i];
        buf_addf(out, "kafka_partition%zu:topic=%s,partition=%" PRId32 ",next=%" PRId64 ",end=%" PRId64, i, p->topic,
                 p->partition, p->next, p->end);
        buf_addf(out,
                 ",lag=%" PRId64 ",lag_ms=%" PRId64 ",rate=%.1f,messages=%" PRIu64 ",dead=%" PRIu64 ",error=", p->lag,
                 p->lag_ms, p->rate, p->messages, p->dead);
        add_value(out, p->error, "=,");
        buf_addf(out, "\r\n");
    }
}

/* The last one's figures are of this run of the server, but for when one was good. */
static void add_backup(struct buf *out, const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup == NULL || dedup->store->admin == NULL) {
        return;
    }
    struct store_backup_state state;
    struct store_stats stats;
    dedup->store->admin->backup_state(dedup->store, &state);
    dedup->store->ops->stats(dedup->store, &stats);
    buf_addf(out, "backup_phase:%s\r\nbackup_done:%" PRIu64 "\r\nbackup_total:%" PRIu64 "\r\n",
             store_backup_phase_name(state.phase), state.done, state.total);
    buf_addf(out, "last_good_backup_time:%" PRIu64 "\r\n", stats.backup_ms / 1000);
    int64_t next = config_backup_next_ms(config_now(dedup->cfg), (int64_t)stats.backup_ms, clock_wall_ms());
    buf_addf(out, "next_backup_time:%" PRId64 "\r\n", next / 1000);
    buf_addf(out, "last_backup_time:%" PRId64 "\r\nlast_backup_ms:%" PRId64 "\r\n", state.last_ms / 1000,
             state.last_took_ms);
    buf_addf(out, "last_backup_bytes:%" PRIu64 "\r\nlast_backup_problems:%" PRIu64 "\r\n", state.last_bytes,
             state.last_problems);
    info_add_text(out, "last_backup_result", state.last_ms == 0 ? "none" : err_name(state.last_code));
    info_add_text(out, "last_backup_error", state.last_error);
    info_add_text(out, "last_backup_folder", state.last_folder);
}

/* Modules: there are none. Keyspace: Redis's line is db0:keys=...; for us a key is a user, and counting them is no
 * INFO's business. */
static void add_nothing(struct buf *out, const struct resp_client *s)
{
    (void)out;
    (void)s;
}

static void add_cluster(struct buf *out, const struct resp_client *s)
{
    (void)s;
    buf_addf(out, "cluster_enabled:0\r\n");
}

/* Titles are words as Redis's are, [A-Za-z_]: its readers take no others. */
static const struct section {
    const char *name;
    const char *title;
    void (*add)(struct buf *out, const struct resp_client *s);
    bool extra; /* only by its name, or with all */
} sections[] = {
    {"server", "Server", add_server, false},
    {"clients", "Clients", add_clients, false},
    {"memory", "Memory", add_memory, false},
    {"persistence", "Persistence", add_persistence, false},
    {"stats", "Stats", add_stats, false},
    {"replication", "Replication", role_add_info, false},
    {"cpu", "CPU", add_cpu, false},
    {"commandstats", "Commandstats", info_add_commandstats, true},
    {"errorstats", "Errorstats", info_add_errorstats, false},
    {"latencystats", "Latencystats", info_add_latencystats, true},
    {"modules", "Modules", add_nothing, true},
    {"cluster", "Cluster", add_cluster, false},
    {"ring", "Ring", add_ring, false},
    {"backup", "Backup", add_backup, false},
    {"sessions", "Sessions", add_sessions, false},
    {"pools", "Pools", add_pools, false},
    {"migration", "Migration", add_migration, false}, /* from another Redis, */
    {"mirror", "Mirror", add_mirror, false},          /* and back to it */
    {"front", "Front", add_front, false},
    {"archive", "Archive", add_archive, false},
    {"read_through", "Readthrough", add_read_through, false},
    {"kafka", "Kafka", add_kafka, false},
    {"registry", "Registry", add_registry, false},
    {"keyspace", "Keyspace", add_nothing, false},
};

static bool section_wanted(const struct section *section, const struct slice *args, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (arg_is(args[i], section->name) || arg_is(args[i], section->title) || arg_is(args[i], "all") ||
            arg_is(args[i], "everything") || (arg_is(args[i], "default") && !section->extra)) {
            return true;
        }
    }
    return n == 1 && !section->extra;
}

enum outcome cmd_info(struct resp_client *s, const struct slice *args, size_t n)
{
    struct buf text = {0};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (section_wanted(&sections[i], args, n)) {
            buf_addf(&text, "%s# %s\r\n", text.len > 0 ? "\r\n" : "", sections[i].title);
            sections[i].add(&text, s);
        }
    }
    if (text.failed) {
        write_error(&s->writer, "OOM out of memory");
    } else {
        write_text(&s->writer, buf_slice(&text));
    }
    buf_free(&text);
    return OUTCOME_ANSWERED;
}
