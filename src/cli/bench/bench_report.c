#include "cli/bench/bench_report.h"
#include "base/plural.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { LABEL_COLUMNS = 24, TAIL_COLUMNS = 32 };

static const struct quantile {
    double q;
    const char *name, *key;
} quantiles[] = {{0.5, "p50", "p50"}, {0.9, "p90", "p90"}, {0.99, "p99", "p99"}, {0.999, "p99.9", "p999"}};
enum { QUANTILES = sizeof quantiles / sizeof *quantiles };

const char *latency_text(double ns, char out[OUTPUT_TEXT])
{
    static const char *const units[] = {"us", "ms", "s"};
    double value = ns / 1000;
    size_t unit = 0;
    while (value >= 999.5 && unit < 2) {
        value /= 1000;
        unit++;
    }
    int places = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, OUTPUT_TEXT, "%.*f %s", places, value, units[unit]);
    return out;
}

/* --- the drawing --- */

/* The rows grow by the same factor each, so that both ends can be told apart. */
static double row_factor(const struct histogram *h)
{
    double low = h->min > 0 ? (double)h->min : 1;
    double factor = pow((double)h->max / low, 1.0 / (BENCH_ROWS - 1));
    return factor > 1.02 ? factor : 1.02;
}

static int fill_rows(const struct histogram *h, uint64_t rows[BENCH_ROWS])
{
    double low = h->min > 0 ? (double)h->min : 1, factor = row_factor(h);
    int n = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (h->buckets[i] > 0) {
            double at = (double)histogram_from(i);
            int row = at <= low ? 0 : (int)(log(at / low) / log(factor));
            row = row < BENCH_ROWS ? row : BENCH_ROWS - 1;
            rows[row] += h->buckets[i];
            n = row + 1;
        }
    }
    return n;
}

void bench_draw(FILE *out, const struct histogram *h, int width)
{
    uint64_t rows[BENCH_ROWS] = {0}, most = 1, seen = 0;
    char from[OUTPUT_TEXT], to[OUTPUT_TEXT], bar[BENCH_WIDTH + 1];
    int n = fill_rows(h, rows);
    int room = width - LABEL_COLUMNS - TAIL_COLUMNS;
    room = room < 10 ? 10 : room > BENCH_WIDTH ? BENCH_WIDTH : room;
    double low = h->min > 0 ? (double)h->min : 1, factor = row_factor(h);
    for (int i = 0; i < n; i++) {
        most = rows[i] > most ? rows[i] : most;
    }
    size_t next = 0;
    for (int i = 0; i < n; i++) {
        int len = (int)ceil((double)rows[i] * room / (double)most);
        memset(bar, '#', (size_t)len);
        bar[len] = '\0';
        seen += rows[i];
        fprintf(out, "  %8s .. %8s  %-*s %6.2f %%", latency_text(low * pow(factor, i), from),
                latency_text(low * pow(factor, i + 1), to), room, bar, 100 * (double)rows[i] / (double)h->count);
        for (const char *before = "  "; next < QUANTILES && (double)seen >= quantiles[next].q * (double)h->count;
             next++, before = ", ") {
            fprintf(out, "%s%s", before, quantiles[next].name);
        }
        fputc('\n', out);
    }
}

/* --- for people --- */

static void cell_latency(struct table *t, const struct bench_result *r, double ns)
{
    char text[OUTPUT_TEXT];
    table_cell(t, "%s", r->latency.count > 0 ? latency_text(ns, text) : "-");
}

static void print_table(FILE *out, const struct bench_plan *plan, const struct bench_result *results)
{
    char text[OUTPUT_TEXT];
    struct table t;
    table_begin(&t, "|a second>|p50>|p90>|p99>|p99.9>|max>|mean>|errors>");
    for (int i = 0; i < plan->n_loads; i++) {
        const struct bench_result *r = &results[i];
        table_cell(&t, "%s", plan->loads[i].work->name);
        table_cell(&t, "%s", count_text((uint64_t)((double)r->done / r->seconds + 0.5), text));
        for (size_t q = 0; q < QUANTILES; q++) {
            cell_latency(&t, r, (double)histogram_quantile(&r->latency, quantiles[q].q));
        }
        cell_latency(&t, r, (double)r->latency.max);
        cell_latency(&t, r, histogram_mean(&r->latency));
        table_cell(&t, "%s", count_text(r->errors, text));
    }
    table_end(&t, out);
}

static void print_problems(FILE *out, const struct bench_result *r, const char *name)
{
    char text[OUTPUT_TEXT];
    for (int i = 0; i < r->n_named; i++) {
        fprintf(out, "%s: %s time%s -%s\n", name, count_text(r->named[i].count, text), plural(r->named[i].count),
                r->named[i].text);
    }
    if (r->latency.count == 0) {
        fprintf(out, "%s: none was answered in the time that is measured\n", name);
    }
    if (r->wrong > 0) {
        fprintf(out, "%s: %s wrong answer%s\n", name, count_text(r->wrong, text), plural(r->wrong));
    }
    if (r->unsent > 0) {
        fprintf(
            out,
            "%s: %s request%s due but not sent before the end: the server (or this machine) is slower than --rate\n",
            name, count_text(r->unsent, text), plural(r->unsent));
    }
    if (r->unanswered > 0) {
        fprintf(out, "%s: %s request%s without an answer %d s after the end\n", name, count_text(r->unanswered, text),
                plural(r->unanswered), BENCH_DRAIN_S);
    }
}

static void print_findings(FILE *out, const struct bench_findings *f)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT];
    fprintf(out, "played, and unseen all the same: %s", count_text(f->shown, a));
    fputs(f->shown > 0 ? " (were the users prepared with these plays, in months that a question looks at?)\n" : "\n",
          out);
    fprintf(out, "never played, and hidden all the same: %s of %s that were asked about once (%s)\n",
            count_text(f->hidden, a), count_text(f->unplayed, b),
            chance_text((double)f->hidden / (double)(f->unplayed > 0 ? f->unplayed : 1), c));
}

static uint64_t all_answered(const struct bench_plan *plan, const struct bench_result *results)
{
    uint64_t n = 0;
    for (int i = 0; i < plan->n_loads; i++) {
        n += results[i].answered;
    }
    return n;
}

void bench_print(FILE *out, const struct bench_plan *plan, const struct bench_result *results, bool verified,
                 const struct bench_cpu *cpu)
{
    print_table(out, plan, results);
    for (int i = 0; i < plan->n_loads; i++) {
        if (results[i].latency.count > 0) {
            fprintf(out, "\n%s, by the time they took:\n", plan->loads[i].work->name);
            bench_draw(out, &results[i].latency, BENCH_WIDTH);
        }
    }
    uint64_t n = all_answered(plan, results);
    if (cpu->known && n > 0) {
        char all[OUTPUT_TEXT], user[OUTPUT_TEXT], system[OUTPUT_TEXT];
        double each = 1e9 / (double)n;
        fprintf(out, "\nthe server's CPU time a request: %s (user %s, kernel %s)\n",
                latency_text((cpu->user + cpu->system) * each, all), latency_text(cpu->user * each, user),
                latency_text(cpu->system * each, system));
    }
    for (int i = 0; i < plan->n_loads; i++) {
        print_problems(out, &results[i], plan->loads[i].work->name);
        if (verified && results[i].findings.unplayed > 0) {
            print_findings(out, &results[i].findings);
        }
    }
}

/* --- for programs --- */

static void json_us(struct json *j, const char *key, double ns)
{
    json_double(j, key, ns / 1000);
}

static void json_latency(struct json *j, const struct histogram *h)
{
    json_open(j, "latency_us", '{');
    for (size_t q = 0; q < QUANTILES; q++) {
        json_us(j, quantiles[q].key, (double)histogram_quantile(h, quantiles[q].q));
    }
    json_us(j, "max", (double)h->max);
    json_us(j, "mean", histogram_mean(h));
    json_close(j, '}');
    json_open(j, "histogram_us", '[');
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (h->buckets[i] > 0) {
            json_open(j, NULL, '{');
            json_us(j, "from", (double)histogram_from(i));
            json_us(j, "to", (double)histogram_to(i));
            json_number(j, "count", (int64_t)h->buckets[i]);
            json_close(j, '}');
        }
    }
    json_close(j, ']');
}

static void json_result(struct json *j, const struct bench_load *load, const struct bench_result *r, bool verified)
{
    json_open(j, NULL, '{');
    json_text(j, "kind", load->work->name);
    json_number(j, "connections", load->connections);
    json_number(j, "pipeline", load->pipeline);
    json_double(j, "rate", load->rate);
    json_double(j, "seconds", r->seconds);
    json_number(j, "done", (int64_t)r->done);
    json_double(j, "per_second", (double)r->done / r->seconds);
    json_number(j, "answered", (int64_t)r->answered);
    json_number(j, "errors", (int64_t)r->errors);
    json_number(j, "wrong", (int64_t)r->wrong);
    json_number(j, "unsent", (int64_t)r->unsent);
    json_number(j, "unanswered", (int64_t)r->unanswered);
    if (verified) {
        json_number(j, "played_but_unseen", (int64_t)r->findings.shown);
        json_number(j, "unplayed_but_hidden", (int64_t)r->findings.hidden);
        json_number(j, "unplayed", (int64_t)r->findings.unplayed);
    }
    json_open(j, "named_errors", '[');
    for (int i = 0; i < r->n_named; i++) {
        json_open(j, NULL, '{');
        json_text(j, "error", r->named[i].text);
        json_number(j, "count", (int64_t)r->named[i].count);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_latency(j, &r->latency);
    json_close(j, '}');
}

void bench_json(struct json *j, const struct bench_plan *plan, const struct bench_result *results, bool verified,
                const struct bench_cpu *cpu)
{
    json_number(j, "threads", plan->threads);
    json_bool(j, "poll", plan->poll);
    json_open(j, "loads", '[');
    for (int i = 0; i < plan->n_loads; i++) {
        json_result(j, &plan->loads[i], &results[i], verified);
    }
    json_close(j, ']');
    uint64_t n = all_answered(plan, results);
    if (cpu->known && n > 0) {
        json_open(j, "server_cpu_us_a_request", '{');
        json_double(j, "user", cpu->user * 1e6 / (double)n);
        json_double(j, "kernel", cpu->system * 1e6 / (double)n);
        json_close(j, '}');
    }
}
