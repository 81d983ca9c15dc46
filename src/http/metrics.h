/* GET /metrics: what the server counts and measures, in the text format of Prometheus (version 0.0.4).
 *
 * Counters of workers and store come from the tables that INFO prints too (base/figure.h); histograms, and what has
 * labels, are written here. Names: unseen_ and base units. */
#ifndef UNSEEN_HTTP_METRICS_H
#define UNSEEN_HTTP_METRICS_H

#include "base/buf.h"
#include "base/heartbeat.h"
#include "dedup/sessions.h"
#include "kafka/kafka.h"
#include "legacy/legacy.h"
#include "legacy/mirror.h"
#include "legacy/read_through.h"
#include "service/hedge.h"
#include "service/service.h"
#include "store/admin.h"
#include "store/feed.h"
#include "store/ring.h"
#include "store/stats.h"
#include "store/store.h"

enum { METRICS_HEARTBEATS = 512, METRICS_MONTHS = 256, METRICS_ROUTES = 64, METRICS_STATUSES = 600 };

struct edge_counts {
    uint64_t requests, errors;
};

/* Of HTTP requests, on the HTTP thread alone. */
struct http_meter {
    struct edge_counts resp; /* the last that was shown: what is reckoned from counters that rise may not fall */
    struct {
        uint64_t count, us;
    } routes[METRICS_ROUTES]; /* as http_routes; the last: what fits none */
    uint64_t statuses[METRICS_STATUSES];
};

struct http_route;
void metrics_note_request(struct http_meter *meter, const struct http_route *route, unsigned status, int64_t us);

/* Everything that is shown, read at one time, though not in one step: counters go on meanwhile. */
struct metrics {
    const char *version, *sqlite, *libuv;
    int64_t now_ms, started_ms; /* wall */

    uint64_t counters[COUNTERS];
    uint64_t counts[METER_COUNTS];
    struct edge_counts resp, of_http, grpc;
    struct bucket_sums ops[OPS];
    uint64_t errors[METER_ERRORS];
    const struct http_meter *http;
    bool ready;
    struct heartbeat_age heartbeats[METRICS_HEARTBEATS];
    int n_heartbeats;
    int workers;
    int64_t clients, max_clients;
    uint64_t request_memory, request_memory_limit, request_memory_waiting;
    int64_t tls_expires_s; /* 0: no TLS */
    struct {
        double cpu_s;
        uint64_t resident_bytes, virtual_bytes, open_files, max_files;
    } process;

    double loaded;  /* 0 .. 1: how far the store has recovered */
    bool has_store; /* else the store recovers, and there is none of this: */
    double error_rate;
    int64_t slot_length_ms, wal_limit, min_free;
    struct store_stats stats;
    bool has_ring;
    struct store_ring ring;
    struct store_clock clock;
    bool refused; /* writes are */
    struct legacy_state migration;
    struct mirror *mirror;
    const struct dedup *dedup;
    struct registry *registry;
    struct lease *lease;
    struct feed_state consumers[FEED_CONSUMERS_MAX];
    int n_consumers;
    struct read_through *read_through;
    struct hedge *hedge;
    struct kafka_state kafka;
    struct kafka_partition *partitions; /* the caller's; at most KAFKA_PARTITIONS_SHOWN */
    size_t n_partitions;
    const struct sessions *sessions; /* counted when they are printed */
    struct pools *pools;
    struct store_month_info months[METRICS_MONTHS];
    int n_months;
    struct policy_count policies[POLICIES_MAX];
    const struct policy *policy_of[POLICIES_MAX];
    size_t n_policies;
};

/* A failed allocation shows in out->failed. */
void metrics_write(struct buf *out, const struct metrics *m);

#endif
