/* GET /v1/status: what the page at / lives on: how the service is, its rates and latencies of the last seconds, every
 * figure that INFO counts, and the last warnings. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/hide.h"
#include "base/log.h"
#include "dedup/role.h"
#include "front/front.h"
#include "front/reader_store.h"
#include "http/handlers.h"
#include "http/json.h"
#include "http/server.h"
#include "kafka/kafka.h"
#include "legacy/legacy.h"
#include "legacy/mirror.h"
#include "legacy/read_through.h"
#include "registry/lease.h"
#include "registry/registry.h"
#include "replica/ack.h"
#include "replica/feeder.h"
#include "replica/figures.h"
#include "replica/follower.h"
#include "replica/replica.h"
#include "service/account.h"
#include "service/health.h"
#include "service/slowlog.h"
#include "store/admin.h"
#include "store/stats.h"

static void add_figure(void *arg, const struct figure *figure, uint64_t value)
{
    json_object_set_new(arg, figure->info, json_integer((json_int_t)value));
}

/* One that was cut at a number of bytes, which may be within a character. */
static json_t *text_of(const char *text)
{
    json_t *value = json_from_id(slice_str(text));
    return value != NULL ? value : json_string("(not UTF-8)");
}

static json_t *figures(const struct http_request *rq)
{
    json_t *all = json_object();
    for (int i = 0; all != NULL && i < COUNTERS; i++) {
        add_figure(all, &counter_figures[i], worker_pool_counter(rq->pool, (enum counter)i));
    }
    for (int i = 0; all != NULL && i < METER_COUNTS; i++) {
        add_figure(all, &meter_figures[i], service_counted(rq->pool, (enum meter_count)i));
    }
    if (all != NULL) {
        log_figures_each(add_figure, all);
    }
    if (all != NULL && rq->dedup != NULL) {
        struct store_stats stats;
        rq->dedup->store->ops->stats(rq->dedup->store, &stats);
        store_stats_each(&stats, add_figure, all);
        sessions_stats_each(rq->dedup->sessions, add_figure, all);
        pools_figures_each(rq->dedup->pools, add_figure, all);
        struct legacy_state migration;
        legacy_look(rq->dedup, &migration);
        legacy_figures_each(&migration, add_figure, all);
        mirror_figures_each(rq->dedup->mirror, add_figure, all);
        registry_figures_each(rq->dedup->registry, add_figure, all);
        replica_figures_each(rq->dedup, add_figure, all);
        front_figures_each(rq->dedup, add_figure, all);
        archive_figures_each(rq->dedup, add_figure, all);
        lease_figures_each(rq->dedup->lease, add_figure, all);
        read_through_figures_each(rq->dedup->read_through, add_figure, all);
        hedge_figures_each(&rq->pool->service->hedge, rq->dedup, add_figure, all);
        front_store_figures_each(rq->dedup->store, add_figure, all);
        struct kafka_state kafka;
        kafka_look(rq->dedup->kafka, &kafka, NULL, 0);
        kafka_figures_each(&kafka, add_figure, all);
    }
    return all;
}

/* null where no user comes from another Redis. */
static json_t *migration(const struct http_request *rq)
{
    struct legacy_state state = {.doing = LEGACY_OFF};
    if (rq->dedup != NULL) {
        legacy_look(rq->dedup, &state);
    }
    if (state.doing == LEGACY_OFF && state.users_to_migrate.all == 0) {
        return json_null();
    }
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "state", legacy_doing_name(state.doing),
                     "cause", text_of(state.cause), "waiting_since", (json_int_t)state.waiting_since_ms, "noted",
                     (json_int_t)state.users_to_migrate.all, "waiting", (json_int_t)state.users_to_migrate.waiting,
                     "migrated", (json_int_t)state.users_to_migrate.done, "left",
                     (json_int_t)state.users_to_migrate.left, "forgotten", (json_int_t)state.users_to_migrate.ended,
                     "problems", (json_int_t)(state.users_to_migrate.problems + state.unlisted), "users_per_second",
                     (json_int_t)(state.users_second + 0.5), "seconds_left", (json_int_t)legacy_seconds_left(&state));
}

/* null when it is off and owes nothing. */
static json_t *mirror(const struct http_request *rq)
{
    struct mirror_status all = {.courier.doing = COURIER_OFF};
    if (rq->dedup != NULL) {
        mirror_look(rq->dedup, &all);
    }
    const struct courier_status s = all.courier;
    if (s.doing == COURIER_OFF && s.queue.events == 0 && s.queue.lost_ms == 0) {
        return json_null();
    }
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "state", courier_doing_name(s.doing), "cause",
                     text_of(s.cause), "waiting_since", (json_int_t)s.since_ms, "waiting", (json_int_t)s.queue.events,
                     "bytes", (json_int_t)s.queue.bytes, "limit", (json_int_t)s.queue.limit, "behind_ms",
                     (json_int_t)s.queue.behind_ms, "broken_since", (json_int_t)s.queue.lost_ms, "left_out",
                     (json_int_t)s.queue.left_out);
}

/* null where there is none. */
static json_t *archive(const struct http_request *rq)
{
    struct archive_status s;
    if (rq->dedup == NULL || rq->dedup->archive == NULL) {
        return json_null();
    }
    archive_look(rq->dedup, &s);
    return json_pack("{s:s, s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "state",
                     archive_doing_name(s.doing), "cause", text_of(s.cause), "url", text_of(s.url), "restorable",
                     s.restorable, "since", (json_int_t)s.since_ms, "archived_at", (json_int_t)s.archived_ms, "waiting",
                     (json_int_t)s.queue.events, "waiting_bytes", (json_int_t)s.queue.bytes, "behind_ms",
                     (json_int_t)s.queue.behind_ms, "lost_since", (json_int_t)s.queue.lost_ms, "round",
                     (json_int_t)s.round, "part", s.part, "rounded_at", (json_int_t)s.rounded_ms);
}

static json_t *named_differences(const struct http_request *rq, const struct front_status *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->n_named && account_sees_users(rq->account); i++) {
        json_append(&list, text_of(s->named[i]));
    }
    return list;
}

/* null where there is none. */
static json_t *front(const struct http_request *rq)
{
    struct front_status s;
    if (rq->dedup == NULL || rq->dedup->front == NULL) {
        return json_null();
    }
    front_look(rq->dedup, &s);
    return json_pack(
        "{s:s, s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:o}", "state",
        courier_doing_name(s.courier.doing), "cause", text_of(s.courier.cause), "redis", text_of(s.address), "full",
        s.full, "since", (json_int_t)s.courier.since_ms, "epoch", (json_int_t)s.epoch, "to", (json_int_t)s.courier.to,
        "waiting", (json_int_t)s.courier.queue.events, "waiting_bytes", (json_int_t)s.courier.queue.bytes, "behind_ms",
        (json_int_t)s.courier.queue.behind_ms, "lost_since", (json_int_t)s.courier.queue.lost_ms, "dirty",
        (json_int_t)s.dirty, "filled", (json_int_t)s.filled, "rebuilds", (json_int_t)s.rebuilds, "comparing",
        s.comparing, "compared", (json_int_t)s.compared, "differences", (json_int_t)s.differences, "reconciled_at",
        (json_int_t)s.reconciled_ms, "named", named_differences(rq, &s));
}

/* Who consumes the feed. */
static json_t *feed(const struct http_request *rq)
{
    struct feed_state all[FEED_CONSUMERS_MAX];
    int n = rq->dedup != NULL ? feed_look(rq->dedup->store, all) : 0;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_append(&list, json_pack("{s:s, s:s, s:I, s:b, s:I, s:I, s:I, s:I, s:I}", "consumer", all[i].name, "state",
                                     feed_place_name(all[i].place), "since", (json_int_t)all[i].since_ms, "listens",
                                     all[i].listens, "cursor", (json_int_t)all[i].cursor, "last",
                                     (json_int_t)all[i].last, "events", (json_int_t)all[i].events, "behind_ms",
                                     (json_int_t)all[i].behind_ms, "left_out", (json_int_t)all[i].left_out));
    }
    return list;
}

/* -1 says that it is not known. */
static json_t *if_known(int64_t n)
{
    return n >= 0 ? json_integer((json_int_t)n) : json_null();
}

/* null where no brokers are configured. Few of many partitions: the page asks each other second. */
static json_t *kafka(const struct http_request *rq)
{
    enum { SHOWN = 32 };
    struct kafka_state k = {.doing = KAFKA_OFF};
    struct kafka_partition partitions[SHOWN];
    size_t n = rq->dedup != NULL ? kafka_look(rq->dedup->kafka, &k, partitions, SHOWN) : 0;
    if (k.doing == KAFKA_OFF) {
        return json_null();
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct kafka_partition *p = &partitions[i];
        json_append(&list,
                    json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:f, s:I, s:I, s:o}", "topic", text_of(p->topic),
                              "partition", (int)p->partition, "next", if_known(p->next), "end", if_known(p->end), "lag",
                              if_known(p->lag), "lag_ms", if_known(p->lag_ms), "rate", p->rate, "messages",
                              (json_int_t)p->messages, "dead", (json_int_t)p->dead, "error", text_of(p->error)));
    }
    return json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:f, s:I, s:I, s:o, s:I, s:o}", "state", kafka_doing_name(k.doing),
                     "cause", text_of(k.cause), "group", text_of(k.group), "assigned", (json_int_t)k.n_partitions,
                     "lag", if_known(k.lag), "lag_ms", if_known(k.lag_ms), "rate", k.rate, "dead_letters",
                     (json_int_t)k.dead_letters, "rebalances", (json_int_t)k.rebalances, "error", text_of(k.error),
                     "error_at", (json_int_t)k.error_ms, "partitions", list);
}

/* Rates and latencies of the last seconds; null before the first mark. */
static json_t *recent(const struct timeline *t, const struct timeline_mark *now)
{
    const struct timeline_mark *from = timeline_recent(t, now->mono_ms);
    if (from == NULL || from->mono_ms == now->mono_ms) {
        return json_null();
    }
    struct timeline_point point = timeline_between(from, now);
    return timeline_point_json(&point);
}

/* How much larger the data has become within the last hour; null until an hour is known: a start, a load or an import
 * says little of a day. */
static json_t *growth(const struct timeline *t, const struct timeline_mark *now)
{
    enum { LATE_MS = 2 * TIMELINE_STEP_MS }; /* marks are a step apart, and a little late */
    const struct timeline_mark *from = timeline_data(t, now->mono_ms);
    if (from == NULL || now->mono_ms - from->mono_ms < TIMELINE_MS - LATE_MS || now->data_bytes == 0) {
        return json_null();
    }
    return json_pack("{s:I, s:f}", "bytes", (json_int_t)(now->data_bytes - from->data_bytes), "seconds",
                     (double)(now->mono_ms - from->mono_ms) / 1000);
}

/* What this UTC day was asked, and how many candidates were kept away. */
static json_t *today(const struct http *h, const struct timeline_mark *now)
{
    struct span_today t = spans_today(&h->spans, now, clock_wall_ms());
    return json_pack("{s:I, s:I, s:I}", "questions", (json_int_t)t.questions, "candidates", (json_int_t)t.candidates,
                     "hidden", (json_int_t)t.hidden);
}

/* Of all questions since the start: candidates that are expected to be hidden wrongly, and how many may be. */
static json_t *error_budget(const struct http_request *rq)
{
    double rate = config_now(rq->cfg)->error_rate;
    double allowed = rate * (double)service_counted(rq->pool, COUNT_CANDIDATES);
    double expected = (double)service_counted(rq->pool, COUNT_FALSE_HITS) / 1e6;
    return json_pack("{s:f, s:f, s:o}", "error_rate", rate, "expected", expected, "spent",
                     allowed > 0 ? json_real(expected / allowed) : json_null());
}

/* null while the store recovers, or where it keeps none. */
static json_t *backup(const struct http_request *rq)
{
    if (rq->dedup == NULL || rq->dedup->store->admin == NULL) {
        return json_null();
    }
    struct store *store = rq->dedup->store;
    struct store_backup_state b;
    struct store_stats stats;
    store->admin->backup_state(store, &b);
    store->ops->stats(store, &stats);
    int64_t next = config_backup_next_ms(config_now(rq->cfg), (int64_t)stats.backup_ms, clock_wall_ms());
    return json_pack("{s:s, s:I, s:I, s:I, s:b, s:o, s:I, s:I, s:I, s:I}", "phase", store_backup_phase_name(b.phase),
                     "done", (json_int_t)b.done, "total", (json_int_t)b.total, "last_at", (json_int_t)b.last_ms,
                     "last_ok", b.last_ms != 0 && b.last_code == 0, "last_error", text_of(b.last_error), "last_bytes",
                     (json_int_t)b.last_bytes, "problems", (json_int_t)stats.backup_problems, "good_at",
                     (json_int_t)stats.backup_ms, "next_at", (json_int_t)next);
}

/* null while the store recovers. What is to be typed stands in the reason: nothing is written over HTTP. */
static json_t *wall_clock(const struct http_request *rq)
{
    if (rq->dedup == NULL) {
        return json_null();
    }
    struct store_clock c;
    rq->dedup->store->ops->clock(rq->dedup->store, &c);
    return json_pack("{s:s, s:o, s:I, s:I}", "state", store_clock_state_name(&c), "reason", text_of(c.reason),
                     "believed", (json_int_t)c.believed_ms, "newest", (json_int_t)c.newest_ms);
}

static json_t *warnings(const struct http_request *rq)
{
    struct log_recent *lines = rq->http->warnings;
    int n = log_recent(lines, LOG_RECENT);
    for (int i = 0; i < n && !account_sees_users(rq->account); i++) {
        hide_ids(lines[i].text);
    }
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_append(&list, json_pack("{s:I, s:s, s:o}", "at", (json_int_t)lines[i].at_ms, "level",
                                     log_level_name(lines[i].level), "text", text_of(lines[i].text)));
    }
    return list;
}

/* Which node this is: its machine and its folder; null where it has none. */
static json_t *node_of(const struct http_request *rq)
{
    char host[256] = "";
    bool folder = rq->cfg->store == STORE_ENGINE_SQLITE && (rq->dedup == NULL || rq->dedup->store->admin != NULL);
    gethostname(host, sizeof host - 1);
    return json_pack("{s:o, s:o}", "host", text_of(host), "folder", folder ? text_of(rq->cfg->data) : json_null());
}

static void add_slow(void *arg, size_t n, const struct slow *entry)
{
    (void)n;
    if (entry != NULL) {
        size_t at = 0;
        struct slice name = {0};
        slowlog_next_arg(entry, &at, &name); /* what it was about stays in SLOWLOG, which asks for more rights */
        json_array_append_new(arg, json_pack("{s:I, s:f, s:o, s:s}", "at", (json_int_t)entry->at_ms, "ms",
                                             (double)entry->us / 1000, "command", json_from_id(name), "address",
                                             entry->address));
    }
}

/* The last slow commands by name, the newest first. */
static json_t *slow(const struct http_request *rq)
{
    enum { SHOWN = 5 };
    json_t *list = json_array();
    slowlog_each(SHOWN, add_slow, list);
    return json_pack("{s:I, s:I, s:o}", "slower_than_ms", (json_int_t)config_now(rq->cfg)->slowlog_ms, "entries",
                     (json_int_t)slowlog_len(), "last", list);
}

/* Who follows this primary, how far. */
static json_t *replicas(const struct replica *r, const struct store_node *node)
{
    struct feeder_replica all[FEEDER_REPLICAS_MAX];
    int n = r != NULL && r->feeder != NULL && node->role == NODE_PRIMARY ? feeder_look(r->feeder, all) : 0;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        char id[NODE_TEXT];
        snprintf(id, sizeof id, "%016" PRIx64, all[i].node);
        json_append(&list,
                    json_pack("{s:s, s:o, s:b, s:s, s:I, s:I, s:I}", "node", id, "address", text_of(all[i].address),
                              "connected", all[i].connected, "state", feed_place_name(all[i].queue.place), "events",
                              (json_int_t)all[i].queue.events, "behind_ms", (json_int_t)all[i].queue.behind_ms,
                              "clock_apart_ms", (json_int_t)all[i].clock_apart_ms));
    }
    return list;
}

/* Whom writes wait for. */
static json_t *ack(const struct replica *r)
{
    struct ack_state a = {.mode = ACK_LOCAL};
    if (r != NULL && r->ack != NULL) {
        ack_look(r->ack, &a);
    }
    return json_pack("{s:s, s:b, s:I, s:I}", "mode", ack_mode_name(a.mode), "in_step", a.in_step, "waiting",
                     (json_int_t)a.waiting, "alone", (json_int_t)a.alone);
}

/* Who this node is, and of a replica whom it follows and how it fares. null while the store recovers. */
static json_t *replication(const struct http_request *rq)
{
    if (rq->dedup == NULL) {
        return json_null();
    }
    struct store_node node;
    struct err why = {0};
    struct follower_state f = {.doing = FOLLOWER_OFF, .age_ms = -1};
    const struct replica *r = rq->dedup->replica;
    role_look(rq->dedup->role, &node);
    role_may_write(rq->dedup->role, &why);
    if (r != NULL && r->follower != NULL && node.role == NODE_REPLICA) {
        follower_look(r->follower, &f);
    }
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "role", node_role_name(node.role),
                     "term", (json_int_t)node.term, "address", text_of(r != NULL ? reach_shown(&r->reach) : ""),
                     "primary", text_of(node.address), "writes_refused", text_of(why.text), "follower",
                     follower_doing_name(f.doing), "applied", (json_int_t)f.applied, "last", (json_int_t)f.last,
                     "age_ms", (json_int_t)f.age_ms, "problem", text_of(f.problem), "replicas", replicas(r, &node),
                     "ack", ack(r));
}

/* null: no address speaks TLS. */
static json_t *certificate(const struct http_request *rq)
{
    int64_t expires_s = worker_pool_tls_expires(rq->pool);
    return expires_s > 0 ? json_integer(expires_s * 1000) : json_null();
}

enum http_outcome get_status(struct http_request *rq)
{
    struct health health;
    struct timeline_mark now;
    const struct timeline *t = &rq->http->timeline;
    health_look(rq->pool, &health);
    http_timeline_look(rq->conn->conn.worker, &now);
    json_write(
        &rq->out,
        json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:b, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                  "s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                  "version", UNSEEN_VERSION, "node", node_of(rq), "slow", slow(rq), "today", today(rq->http, &now),
                  "now", (json_int_t)clock_wall_ms(), "started", (json_int_t)rq->pool->started_wall_ms, "ready",
                  health.ready, "trouble", health.cause, "degraded", health.degraded, "clients",
                  (json_int_t)atomic_load_explicit(&rq->pool->room.clients, memory_order_relaxed), "max_clients",
                  (json_int_t)rq->cfg->max_clients, "recent", recent(t, &now), "growth", growth(t, &now),
                  "error_budget", error_budget(rq), "clock", wall_clock(rq), "backup", backup(rq), "figures",
                  figures(rq), "migration", migration(rq), "mirror", mirror(rq), "front", front(rq), "archive",
                  archive(rq), "feed", feed(rq), "replication", replication(rq), "kafka", kafka(rq),
                  "tls_certificate_expires", certificate(rq), "warnings", warnings(rq)));
    return HTTP_DONE;
}
