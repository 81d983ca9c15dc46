/* What `unseen bench` prints: a table, a histogram drawn in the terminal, or JSON. */
#ifndef UNSEEN_CLI_BENCH_BENCH_REPORT_H
#define UNSEEN_CLI_BENCH_BENCH_REPORT_H

#include <stdio.h>

#include "cli/bench/bench_engine.h"
#include "cli/lib/output.h"

/* The service's CPU time over a run, from INFO cpu. */
struct bench_cpu {
    bool known;
    double user, system; /* seconds */
};

void bench_print(FILE *out, const struct bench_plan *plan, const struct bench_result *results, bool verified,
                 const struct bench_cpu *cpu);

/* Members of the object that is open. */
void bench_json(struct json *j, const struct bench_plan *plan, const struct bench_result *results, bool verified,
                const struct bench_cpu *cpu);

/* Draws a latency histogram of at most BENCH_ROWS rows of `width` columns in all. */
enum { BENCH_ROWS = 20, BENCH_WIDTH = 100 };
void bench_draw(FILE *out, const struct histogram *h, int width);

/* "87.4 us", "1.61 ms", "2.30 s" */
const char *latency_text(double ns, char out[OUTPUT_TEXT]);

#endif
