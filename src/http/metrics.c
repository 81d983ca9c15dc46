#include "http/metrics.h"

#include <inttypes.h>

#include "archive/archive.h"
#include "base/calendar.h"
#include "base/log.h"
#include "front/front.h"
#include "front/reader_store.h"
#include "http/http.h"
#include "registry/lease.h"
#include "registry/registry.h"
#include "replica/figures.h"

enum { SLOT_STATES = SLOT_EMPTYING + 1 };

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct buf *out, const char *name, const char *help, uint64_t value)
{
    head(out, name, "gauge", help);
    buf_addf(out, "%s %" PRIu64 "\n", name, value);
}

static void gauge_double(struct buf *out, const char *name, const char *help, double value)
{
    head(out, name, "gauge", help);
    buf_addf(out, "%s %.10g\n", name, value);
}

/* ms as seconds. */
static void gauge_ms(struct buf *out, const char *name, const char *help, int64_t ms)
{
    head(out, name, "gauge", help);
    buf_addf(out, "%s %" PRId64 ".%03d\n", name, ms / 1000, (int)(ms % 1000));
}

static void add_figure(void *arg, const struct figure *figure, uint64_t value)
{
    struct buf *out = arg;
    if (figure->metric == NULL) {
        return;
    }
    bool counts = figure->kind == FIGURE_COUNTER || figure->kind == FIGURE_MILLIONTH;
    char name[96];
    snprintf(name, sizeof name, "unseen_%s", figure->metric);
    head(out, name, counts ? "counter" : "gauge", figure->help);
    switch (figure->kind) {
    case FIGURE_COUNTER:
    case FIGURE_GAUGE:
        buf_addf(out, "%s %" PRIu64 "\n", name, value);
        break;
    case FIGURE_US:
    case FIGURE_MILLIONTH:
        buf_addf(out, "%s %" PRIu64 ".%06" PRIu64 "\n", name, value / 1000000, value % 1000000);
        break;
    case FIGURE_TIME:
        buf_addf(out, "%s %" PRIu64 ".%03" PRIu64 "\n", name, value / 1000, value % 1000);
        break;
    }
}

/* One histogram's lines. label: "", or 'command="played"'. in_us: bounds and sum are shown in seconds. */
static void add_buckets(struct buf *out, const char *name, const char *label, const struct bucket_sums *sums,
                        const struct bucket_scale *scale, bool in_us)
{
    double unit = in_us ? 1e-6 : 1;
    const char *open = label[0] != '\0' ? "{" : "", *close = label[0] != '\0' ? "}" : "";
    uint64_t count = 0;
    for (unsigned i = 0; i < scale->n; i++) {
        count += sums->counts[i];
        buf_addf(out, "%s_bucket{%s%sle=\"%.10g\"} %" PRIu64 "\n", name, label, label[0] != '\0' ? "," : "",
                 (double)scale->upper[i] * unit, count);
    }
    count = buckets_count(sums);
    buf_addf(out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, label, label[0] != '\0' ? "," : "", count);
    if (in_us) {
        buf_addf(out, "%s_sum%s%s%s %" PRIu64 ".%06" PRIu64 "\n", name, open, label, close, sums->sum / 1000000,
                 sums->sum % 1000000);
    } else {
        buf_addf(out, "%s_sum%s%s%s %" PRIu64 "\n", name, open, label, close, sums->sum);
    }
    buf_addf(out, "%s_count%s%s%s %" PRIu64 "\n", name, open, label, close, count);
}

static void add_commands(struct buf *out, const struct metrics *m)
{
    static const char name[] = "unseen_command_duration_seconds";
    head(out, name, "histogram",
         "From the arrival of a command's last byte to its reply, through the commit of what it writes. What is asked "
         "or recorded over HTTP or gRPC is counted as the command that it stands for.");
    for (int i = 0; i < OPS; i++) {
        char label[48];
        snprintf(label, sizeof label, "command=\"%s\"", op_names[i]);
        add_buckets(out, name, label, &m->ops[i], &buckets_us, true);
    }
    static const char errors[] = "unseen_command_errors_total";
    head(out, errors, "counter", "Refused commands, over RESP, HTTP and gRPC, by the first word of the reply.");
    for (int i = 0; i < METER_ERRORS; i++) {
        buf_addf(out, "%s{kind=\"%s\"} %" PRIu64 "\n", errors, meter_error_names[i], m->errors[i]);
    }
}

static void add_edges(struct buf *out, const struct metrics *m)
{
    static const char requests[] = "unseen_edge_requests_total", errors[] = "unseen_edge_errors_total";
    const struct {
        const char *name;
        const struct edge_counts *counts;
    } edges[] = {{"resp", &m->resp}, {"http", &m->of_http}, {"grpc", &m->grpc}};
    head(out, requests, "counter", "Commands over RESP, requests over HTTP and messages over gRPC that were answered.");
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        buf_addf(out, "%s{edge=\"%s\"} %" PRIu64 "\n", requests, edges[i].name, edges[i].counts->requests);
    }
    head(out, errors, "counter", "Of these, those that were refused.");
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        buf_addf(out, "%s{edge=\"%s\"} %" PRIu64 "\n", errors, edges[i].name, edges[i].counts->errors);
    }
}

void metrics_note_request(struct http_meter *meter, const struct http_route *route, unsigned status, int64_t us)
{
    size_t row = METRICS_ROUTES - 1;
    if (route != NULL && route - http_routes < METRICS_ROUTES - 1) {
        row = (size_t)(route - http_routes);
    }
    meter->routes[row].count++;
    meter->routes[row].us += us > 0 ? (uint64_t)us : 0;
    meter->statuses[status < METRICS_STATUSES ? status : METRICS_STATUSES - 1]++;
}

static void add_route(struct buf *out, const struct http_meter *meter, size_t row, const char *method, const char *path)
{
    static const char name[] = "unseen_http_request_duration_seconds";
    uint64_t us = meter->routes[row].us;
    buf_addf(out, "%s_sum{method=\"%s\",path=\"%s\"} %" PRIu64 ".%06" PRIu64 "\n", name, method, path, us / 1000000,
             us % 1000000);
    buf_addf(out, "%s_count{method=\"%s\",path=\"%s\"} %" PRIu64 "\n", name, method, path, meter->routes[row].count);
}

static void add_http(struct buf *out, const struct http_meter *meter)
{
    head(out, "unseen_http_request_duration_seconds", "summary",
         "From the arrival of an HTTP request's last byte to its answer, through the commit of what it writes.");
    for (size_t i = 0; http_routes[i].method != NULL; i++) {
        add_route(out, meter, i, http_routes[i].method, http_routes[i].path);
    }
    add_route(out, meter, METRICS_ROUTES - 1, "other", "other");
    head(out, "unseen_http_responses_total", "counter", "Answers over HTTP, by their status.");
    for (unsigned i = 0; i < METRICS_STATUSES; i++) {
        if (meter->statuses[i] > 0 || i == 200) {
            buf_addf(out, "unseen_http_responses_total{code=\"%u\"} %" PRIu64 "\n", i, meter->statuses[i]);
        }
    }
}

static void add_process(struct buf *out, const struct metrics *m)
{
    head(out, "process_cpu_seconds_total", "counter", "User and system time of the process.");
    buf_addf(out, "process_cpu_seconds_total %.6f\n", m->process.cpu_s);
    gauge(out, "process_resident_memory_bytes", "Memory of the process.", m->process.resident_bytes);
    gauge(out, "process_virtual_memory_bytes", "Addresses of the process.", m->process.virtual_bytes);
    gauge(out, "process_open_fds", "Open files, connections among them.", m->process.open_files);
    gauge(out, "process_max_fds", "How many files may be open.", m->process.max_files);
    gauge_ms(out, "process_start_time_seconds", "When the server was started.", m->started_ms);
}

static void add_server(struct buf *out, const struct metrics *m)
{
    head(out, "unseen_build_info", "gauge", "1, with the versions as labels.");
    buf_addf(out, "unseen_build_info{version=\"%s\",sqlite=\"%s\",libuv=\"%s\"} 1\n", m->version, m->sqlite, m->libuv);
    gauge(out, "unseen_loading", "1 while the server reads what was staged: what is no play or delivery gets LOADING.",
          !m->has_store);
    head(out, "unseen_loading_ratio", "gauge", "How much of what was staged is read.");
    buf_addf(out, "unseen_loading_ratio %.6g\n", m->loaded);
    gauge(out, "unseen_ready", "1 while /readyz is 200: alive, recovered, and taking writes.", m->ready);
    head(out, "unseen_thread_silent_seconds", "gauge",
         "Since when the thread has not beaten; a beat is due each second.");
    for (int i = 0; i < m->n_heartbeats; i++) {
        buf_addf(out, "unseen_thread_silent_seconds{thread=\"%s\"} %" PRId64 ".%03d\n", m->heartbeats[i].name,
                 m->heartbeats[i].silent_ms / 1000, (int)(m->heartbeats[i].silent_ms % 1000));
    }
    gauge(out, "unseen_workers", "Threads that answer questions.", (uint64_t)m->workers);
    gauge(out, "unseen_connections", "Open connections of clients of RESP and gRPC.", (uint64_t)m->clients);
    gauge(out, "unseen_connections_limit", "How many connections there may be (max_clients).",
          (uint64_t)m->max_clients);
    gauge(out, "unseen_request_memory_bytes", "Memory of requests and replies, in steps of a MiB a worker.",
          m->request_memory);
    gauge(out, "unseen_request_memory_limit_bytes", "How much memory requests and replies may take (request_memory).",
          m->request_memory_limit);
    gauge(out, "unseen_request_memory_waiting_connections", "Connections that wait for request_memory.",
          m->request_memory_waiting);
    gauge(out, "unseen_tls_certificate_expires_timestamp_seconds",
          "When the first certificate of tls_cert expires; 0: no address speaks TLS.", (uint64_t)m->tls_expires_s);
    for (int i = 0; i < COUNTERS; i++) {
        add_figure(out, &counter_figures[i], m->counters[i]);
    }
    for (int i = 0; i < METER_COUNTS; i++) {
        add_figure(out, &meter_figures[i], m->counts[i]);
    }
}

/* Since when the oldest of what is staged and closed waits to be in the filters. */
static int64_t behind_ms(const struct metrics *m)
{
    int64_t oldest = m->now_ms;
    for (int i = 0; i < m->ring.n_slots; i++) {
        int64_t closed = m->ring.slots[i].closed_ms;
        oldest = closed > 0 && closed < oldest ? closed : oldest;
    }
    return m->now_ms - oldest;
}

static void add_slots(struct buf *out, const struct metrics *m)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } sizes[] = {
        {"unseen_slot_rows", "Plays and deliveries that the slot holds.", offsetof(struct store_slot, rows)},
        {"unseen_slot_users", "Users whose plays and deliveries the slot holds.", offsetof(struct store_slot, users)},
        {"unseen_slot_memory_bytes", "Memory of the slot.", offsetof(struct store_slot, bytes)},
    };
    const struct store_ring *ring = &m->ring;
    head(out, "unseen_slot_state", "gauge", "1 for the state that the slot is in.");
    for (int i = 0; i < ring->n_slots; i++) {
        for (int state = 0; state < SLOT_STATES; state++) {
            buf_addf(out, "unseen_slot_state{slot=\"%d\",state=\"%s\"} %d\n", ring->slots[i].slot,
                     store_slot_state_name((enum store_slot_state)state), (int)ring->slots[i].state == state);
        }
    }
    head(out, "unseen_slot_state_since_timestamp_seconds", "gauge", "Since when the slot is in its state.");
    for (int i = 0; i < ring->n_slots; i++) {
        int64_t since = ring->slots[i].since_ms;
        buf_addf(out, "unseen_slot_state_since_timestamp_seconds{slot=\"%d\"} %" PRId64 ".%03d\n", ring->slots[i].slot,
                 since / 1000, (int)(since % 1000));
    }
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        head(out, sizes[k].name, "gauge", sizes[k].help);
        for (int i = 0; i < ring->n_slots; i++) {
            const struct store_slot *slot = &ring->slots[i];
            buf_addf(out, "%s{slot=\"%d\"} %" PRIu64 "\n", sizes[k].name, slot->slot,
                     *(const uint64_t *)((const char *)slot + sizes[k].offset));
        }
    }
}

static void add_writes(struct buf *out, const struct metrics *m)
{
    gauge(out, "unseen_writes_refused",
          "1 while writes are refused: memory is full, the disk nearly so, or no time is known.", m->refused);
    gauge(out, "unseen_clock_doubted", "1 while the wall clock is not believed: nothing is swept or sealed.",
          m->clock.doubted);
}

static void add_ring(struct buf *out, const struct metrics *m)
{
    const struct store_ring *ring = &m->ring;
    int64_t overdue = m->now_ms > ring->next_turn_ms ? m->now_ms - ring->next_turn_ms : 0;
    gauge_ms(out, "unseen_ring_next_turn_timestamp_seconds", "When the ring is to turn.", ring->next_turn_ms);
    gauge_ms(out, "unseen_ring_overdue_seconds", "For how long the ring should have turned by now.", overdue);
    gauge_ms(out, "unseen_slot_length_seconds", "How often the ring turns (slot_length).", m->slot_length_ms);
    gauge_ms(out, "unseen_flush_behind_seconds", "For how long the oldest closed slot waits for its flush.",
             behind_ms(m));
    gauge(out, "unseen_staged_limit_bytes", "How much memory staged plays may take (staging_memory).",
          ring->memory_limit);
    add_slots(out, m);
}

static void add_month_line(struct buf *out, const char *name, const struct store_month_info *month, const char *value)
{
    char text[MONTH_TEXT];
    buf_addf(out, "%s{month=\"%s\",state=\"%s\"} %s\n", name, month_name(month->month, text),
             store_month_state_name(month->state), value);
}

static void add_months(struct buf *out, const struct metrics *m)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } sizes[] = {
        {"unseen_month_users", "Users who have plays in the month.", offsetof(struct store_month_info, users)},
        {"unseen_month_plays", "Plays that the month's filters hold.", offsetof(struct store_month_info, plays)},
        {"unseen_month_filter_bytes", "Size of the month's filters.", offsetof(struct store_month_info, bytes)},
    };
    char value[32];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        head(out, sizes[k].name, "gauge", sizes[k].help);
        for (int i = 0; i < m->n_months; i++) {
            uint64_t n = *(const uint64_t *)((const char *)&m->months[i] + sizes[k].offset);
            snprintf(value, sizeof value, "%" PRIu64, n);
            add_month_line(out, sizes[k].name, &m->months[i], value);
        }
    }
    head(out, "unseen_month_progress_ratio", "gauge", "How far the month's sealing or sweep is; 0: none is under way.");
    for (int i = 0; i < m->n_months; i++) {
        snprintf(value, sizeof value, "%.6g", m->months[i].progress);
        add_month_line(out, "unseen_month_progress_ratio", &m->months[i], value);
    }
}

static void add_policies(struct buf *out, const struct metrics *m)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;
    } rows[] = {
        {"unseen_policy_questions_total", "counter", "Questions by this policy.",
         offsetof(struct policy_count, questions)},
        {"unseen_policy_candidates_total", "counter", "Candidates that they asked about.",
         offsetof(struct policy_count, candidates)},
        {"unseen_policy_hidden_total", "counter", "Candidates of these that were hidden.",
         offsetof(struct policy_count, hidden)},
        {"unseen_policy_hidden_today", "gauge", "The same since 0:00 UTC.",
         offsetof(struct policy_count, hidden_today)},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        head(out, rows[k].name, rows[k].type, rows[k].help);
        for (size_t i = 0; i < m->n_policies; i++) {
            const struct policy_count *c = &m->policies[i];
            buf_addf(out, "%s{policy=\"%s\"} %" PRIu64 "\n", rows[k].name, c->name,
                     *(const uint64_t *)(const void *)((const char *)c + rows[k].offset));
        }
    }
    head(out, "unseen_policy_also_hidden_total", "counter", "Candidates that one of its other users alone hid.");
    for (size_t i = 0; i < m->n_policies; i++) {
        for (size_t k = 0; k < m->policy_of[i]->n_also; k++) {
            const struct slice user = policy_also(m->policy_of[i], k);
            buf_addf(out, "unseen_policy_also_hidden_total{policy=\"%s\",also=\"%.*s\"} %" PRIu64 "\n",
                     m->policies[i].name, (int)user.len, user.data, m->policies[i].also[k]);
        }
    }
}

static void add_feed(struct buf *out, const struct metrics *m)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } counts[] = {
        {"unseen_feed_events", "Events that wait for the consumer of the feed.", offsetof(struct feed_state, events)},
        {"unseen_feed_bytes", "About what the waiting events take on disk.", offsetof(struct feed_state, bytes)},
        {"unseen_feed_limit_bytes", "How much the waiting events may take on disk; beyond it the consumer is lost.",
         offsetof(struct feed_state, limit)},
        {"unseen_feed_left_out_events", "Events that a lost consumer misses, until that is accepted.",
         offsetof(struct feed_state, left_out)},
    };
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        head(out, counts[k].name, "gauge", counts[k].help);
        for (int i = 0; i < m->n_consumers; i++) {
            const struct feed_state *c = &m->consumers[i];
            buf_addf(out, "%s{consumer=\"%s\"} %" PRIu64 "\n", counts[k].name, c->name,
                     *(const uint64_t *)((const char *)c + counts[k].offset));
        }
    }
    head(out, "unseen_feed_behind_seconds", "gauge", "For how long the oldest event has waited; 0: nothing waits.");
    for (int i = 0; i < m->n_consumers; i++) {
        int64_t ms = m->consumers[i].behind_ms;
        buf_addf(out, "unseen_feed_behind_seconds{consumer=\"%s\"} %" PRId64 ".%03d\n", m->consumers[i].name, ms / 1000,
                 (int)(ms % 1000));
    }
    head(out, "unseen_feed_state", "gauge", "1 for the state that the consumer is in.");
    for (int i = 0; i < m->n_consumers; i++) {
        for (int place = 0; place < FEED_PLACES; place++) {
            buf_addf(out, "unseen_feed_state{consumer=\"%s\",state=\"%s\"} %d\n", m->consumers[i].name,
                     feed_place_name((enum feed_place)place), (int)m->consumers[i].place == place);
        }
    }
}

enum partition_unit { UNIT_ONE, UNIT_MS, UNIT_UNSIGNED };

/* A line for each partition where the figure is known. */
static void add_partitions(struct buf *out, const struct metrics *m, const char *name, const char *type,
                           const char *help, size_t offset, enum partition_unit unit)
{
    head(out, name, type, help);
    for (size_t i = 0; i < m->n_partitions; i++) {
        const struct kafka_partition *p = &m->partitions[i];
        int64_t value = *(const int64_t *)((const char *)p + offset);
        if (value < 0 && unit != UNIT_UNSIGNED) {
            continue;
        }
        buf_addf(out, "%s{topic=\"%s\",partition=\"%" PRId32 "\"} ", name, p->topic, p->partition);
        if (unit == UNIT_MS) {
            buf_addf(out, "%" PRId64 ".%03d\n", value / 1000, (int)(value % 1000));
        } else {
            buf_addf(out, "%" PRIu64 "\n", (uint64_t)value);
        }
    }
}

static void add_kafka(struct buf *out, const struct metrics *m)
{
    static const char state[] = "unseen_kafka_state";
    head(out, state, "gauge", "1 for what the reading from Kafka does.");
    for (int doing = 0; doing < KAFKA_DOINGS; doing++) {
        buf_addf(out, "%s{state=\"%s\"} %d\n", state, kafka_doing_name((enum kafka_doing)doing),
                 (int)m->kafka.doing == doing);
    }
    kafka_figures_each(&m->kafka, add_figure, out);
    add_partitions(out, m, "unseen_kafka_next_offset", "gauge",
                   "The next offset to read: all before it are durable in this folder.",
                   offsetof(struct kafka_partition, next), UNIT_ONE);
    add_partitions(out, m, "unseen_kafka_end_offset", "gauge", "The end of the partition's log.",
                   offsetof(struct kafka_partition, end), UNIT_ONE);
    add_partitions(out, m, "unseen_kafka_lag_messages", "gauge", "Messages of the partition that are not durable here.",
                   offsetof(struct kafka_partition, lag), UNIT_ONE);
    add_partitions(out, m, "unseen_kafka_lag_seconds", "gauge",
                   "The age of the last message that became durable, while there are more; else 0.",
                   offsetof(struct kafka_partition, lag_ms), UNIT_MS);
    add_partitions(out, m, "unseen_kafka_partition_messages_total", "counter",
                   "Messages that were read since the partition was assigned.",
                   offsetof(struct kafka_partition, messages), UNIT_UNSIGNED);
    add_partitions(out, m, "unseen_kafka_partition_dead_total", "counter",
                   "Of these, those that went to the dead letters.", offsetof(struct kafka_partition, dead),
                   UNIT_UNSIGNED);
}

static void add_store(struct buf *out, const struct metrics *m)
{
    gauge_double(out, "unseen_error_rate_limit_ratio",
                 "The chance, at most, that a candidate is hidden wrongly (error_rate).", m->error_rate);
    gauge(out, "unseen_history_wal_limit_bytes", "How large the log of history.db may get (wal_limit).",
          (uint64_t)m->wal_limit);
    gauge(out, "unseen_disk_min_free_bytes", "Plays are refused when the disk has less left (min_free).",
          (uint64_t)m->min_free);
    store_stats_each(&m->stats, add_figure, out);
    legacy_figures_each(&m->migration, add_figure, out);
    mirror_figures_each(m->mirror, add_figure, out);
    registry_figures_each(m->registry, add_figure, out);
    replica_figures_each(m->dedup, add_figure, out);
    front_figures_each(m->dedup, add_figure, out);
    archive_figures_each(m->dedup, add_figure, out);
    lease_figures_each(m->lease, add_figure, out);
    add_feed(out, m);
    read_through_figures_each(m->read_through, add_figure, out);
    if (m->hedge != NULL) {
        hedge_figures_each(m->hedge, m->dedup, add_figure, out);
        front_store_figures_each(m->dedup->store, add_figure, out);
    }
    add_kafka(out, m);
    if (m->sessions != NULL) {
        sessions_stats_each(m->sessions, add_figure, out);
    }
    pools_figures_each(m->pools, add_figure, out);
    head(out, "unseen_commit_duration_seconds", "histogram", "How long the commits of writes took, with their fsync.");
    add_buckets(out, "unseen_commit_duration_seconds", "", &m->stats.commit_us, &buckets_us, true);
    head(out, "unseen_commit_rows", "histogram", "How many plays and deliveries a commit held.");
    add_buckets(out, "unseen_commit_rows", "", &m->stats.commit_rows, &buckets_rows, false);
    add_writes(out, m);
    if (m->has_ring) {
        add_ring(out, m);
    }
    add_months(out, m);
    add_policies(out, m);
}

void metrics_write(struct buf *out, const struct metrics *m)
{
    add_server(out, m);
    add_commands(out, m);
    add_edges(out, m);
    if (m->http != NULL) {
        add_http(out, m->http);
    }
    if (m->has_store) {
        add_store(out, m);
    }
    add_process(out, m);
    log_figures_each(add_figure, out);
}
