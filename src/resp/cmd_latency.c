/* What the meters of all loops say of each kind of command (service/meter.h), in Redis's forms: INFO commandstats,
 * errorstats and latencystats, and LATENCY. Commands over HTTP and gRPC are among them; all that have no line of their
 * own are "other". */
#include <inttypes.h>

#include "resp/args.h"
#include "resp/command.h"

struct op_sums {
    struct bucket_sums took;
    uint64_t calls, failed, rejected;
};

static struct op_sums sum_op(const struct worker_pool *pool, enum op op)
{
    struct op_sums sums = {0};
    for (int i = 0; i < pool->n_all; i++) {
        const struct meter *meter = &pool->workers[i].service->meter;
        buckets_add(&sums.took, &meter->ops[op]);
        sums.failed += atomic_load_explicit(&meter->failed[op], memory_order_relaxed);
        sums.rejected += atomic_load_explicit(&meter->rejected[op], memory_order_relaxed);
    }
    sums.calls = buckets_count(&sums.took);
    return sums;
}

void info_add_commandstats(struct buf *out, const struct resp_client *s)
{
    for (enum op op = 0; op < OPS; op++) {
        struct op_sums sums = sum_op(s->conn.worker->pool, op);
        if (sums.calls > 0) {
            buf_addf(out, "cmdstat_%s:calls=%" PRIu64 ",usec=%" PRIu64 ",usec_per_call=%.2f", op_names[op], sums.calls,
                     sums.took.sum, (double)sums.took.sum / (double)sums.calls);
            buf_addf(out, ",rejected_calls=%" PRIu64 ",failed_calls=%" PRIu64 "\r\n", sums.rejected, sums.failed);
        }
    }
}

void info_add_errorstats(struct buf *out, const struct resp_client *s)
{
    const struct worker_pool *pool = s->conn.worker->pool;
    for (int i = 0; i < METER_ERRORS; i++) {
        uint64_t n = 0;
        for (int w = 0; w < pool->n_all; w++) {
            n += atomic_load_explicit(&pool->workers[w].service->meter.errors[i], memory_order_relaxed);
        }
        if (n > 0) {
            buf_addf(out, "errorstat_%s:count=%" PRIu64 "\r\n", meter_error_names[i], n);
        }
    }
}

void info_add_latencystats(struct buf *out, const struct resp_client *s)
{
    for (enum op op = 0; op < OPS; op++) {
        struct op_sums sums = sum_op(s->conn.worker->pool, op);
        if (sums.calls > 0) {
            buf_addf(out, "latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f\r\n", op_names[op],
                     buckets_quantile(&sums.took, &buckets_us, 0.5), buckets_quantile(&sums.took, &buckets_us, 0.99),
                     buckets_quantile(&sums.took, &buckets_us, 0.999));
        }
    }
}

static bool wanted(enum op op, const struct slice *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (arg_is(names[i], op_names[op])) {
            return true;
        }
    }
    return n == 0;
}

/* How many took at most so long, for each bound that some more kept than the one below it. What took longer than the
 * last bound is in calls alone. */
static void write_histogram(struct writer *w, const struct op_sums *sums)
{
    size_t bounds = 0;
    for (unsigned i = 0; i < buckets_us.n; i++) {
        bounds += sums->took.counts[i] > 0;
    }
    write_map(w, 2);
    write_pair_int(w, "calls", (int64_t)sums->calls);
    write_str(w, "histogram_usec");
    write_map(w, bounds);
    uint64_t so_far = 0;
    for (unsigned i = 0; i < buckets_us.n; i++) {
        so_far += sums->took.counts[i];
        if (sums->took.counts[i] > 0) {
            write_int(w, (int64_t)buckets_us.upper[i]);
            write_int(w, (int64_t)so_far);
        }
    }
}

/* LATENCY HISTOGRAM [command ...] */
enum outcome cmd_latency_histogram(struct resp_client *s, const struct slice *args, size_t n)
{
    struct op_sums sums[OPS];
    size_t found = 0;
    for (enum op op = 0; op < OPS; op++) {
        sums[op] = sum_op(s->conn.worker->pool, op);
        sums[op].calls = wanted(op, args + 2, n - 2) ? sums[op].calls : 0;
        found += sums[op].calls > 0;
    }
    write_map(&s->writer, found);
    for (enum op op = 0; op < OPS; op++) {
        if (sums[op].calls > 0) {
            write_str(&s->writer, op_names[op]);
            write_histogram(&s->writer, &sums[op]);
        }
    }
    return OUTCOME_ANSWERED;
}

/* LATENCY LATEST, LATENCY HISTORY event: Redis keeps moments when its one thread stood still, none unless it is told to
 * (latency-monitor-threshold). Here no thread stands for all, and none are kept. */
enum outcome cmd_latency_none(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_array(&s->writer, 0);
    return OUTCOME_ANSWERED;
}

/* LATENCY RESET [event ...]: how many were reset. */
enum outcome cmd_latency_reset(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_int(&s->writer, 0);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_latency_doctor(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_text(&s->writer, slice_str("No events are kept (latency-monitor-threshold is 0). LATENCY HISTOGRAM and INFO "
                                     "latencystats say how long commands take, SLOWLOG GET which were slow, and "
                                     "/metrics both and how long commits and flushes take.\n"));
    return OUTCOME_ANSWERED;
}
