/* The engine of `unseen bench`: sends requests over many connections and times their replies. A `struct bench_work`
 * decides what is sent and what a reply must look like; the engine knows only RESP's framing.
 *
 * Each thread has its own loop, connections and counts. A connection keeps up to `pipeline` requests under way. In a
 * closed loop (no rate) a reply makes room for the next request, and a request's time begins when it is made. In an
 * open loop each request is due at a moment that doesn't depend on the server, and its time begins then. So the queue
 * behind a slow reply is counted as waiting ("coordinated omission" leaves it out).
 */
#ifndef UNSEEN_CLI_BENCH_BENCH_ENGINE_H
#define UNSEEN_CLI_BENCH_BENCH_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/histogram.h"
#include "base/slice.h"
#include "cli/lib/random.h"

enum { BENCH_ERRORS_NAMED = 8, BENCH_ERROR_TEXT = 160, BENCH_PIPELINE_MAX = 4096 };

/* One connection's own supply. */
struct bench_source {
    struct random random;
    uint64_t serial; /* requests made */
};

/* A request is its head, which next() appends, and a body that is sent as it stands and outlives the run. */
struct bench_request {
    struct slice body;
    uint32_t tag; /* for check() */
};

/* What check() may count, besides right and wrong. */
struct bench_findings {
    uint64_t hidden;   /* never-played candidates that are hidden */
    uint64_t unplayed; /* candidates that were never played */
    uint64_t shown;    /* candidates that were played, and unseen all the same */
};

struct bench_work {
    const char *name; /* "questions" */
    unsigned replies; /* to one request */
    const void *own;  /* the work's; read by all threads */
    bool (*next)(const struct bench_work *work, struct bench_source *source, struct buf *out,
                 struct bench_request *request); /* false: there are no more */

    /* Whether a reply that isn't an error is as expected. Its time ends after this call. */
    bool (*check)(const struct bench_work *work, uint32_t tag, struct slice reply, struct bench_findings *findings);
};

/* What one group of connections does. */
struct bench_load {
    const struct bench_work *work;
    int connections;
    int pipeline;
    double rate; /* requests a second, of all its connections; 0: closed loop */
};

struct bench_plan {
    const char *address, *password;
    const struct bench_load *loads;
    int n_loads;
    int threads;
    double warm_up, seconds; /* seconds 0: until there are no more requests */
    double silence;          /* a run fails when no answer comes for this many seconds; 0: never */
    bool random_arrivals;    /* open loop: random moments (Poisson) instead of even ones */
    bool poll;               /* threads never sleep, so that no figure includes waking them */
    uint64_t seed;
};

/* What came of a load. Times are in nanoseconds. */
struct bench_result {
    struct histogram latency; /* of requests answered after the warm-up */
    uint64_t done;            /* answered between the warm-up and the end */
    uint64_t answered;        /* in all */
    uint64_t errors;          /* error replies among those */
    uint64_t wrong;           /* replies that are not what was asked for */
    uint64_t unsent;          /* open loop: due, but not sent before the end */
    uint64_t unanswered;      /* sent, without an answer BENCH_DRAIN_S after the end */
    struct bench_findings findings;
    double seconds; /* that `done` took */
    struct bench_error {
        uint64_t count;
        char text[BENCH_ERROR_TEXT]; /* the first of those with the same first word */
    } named[BENCH_ERRORS_NAMED];
    int n_named;
};

enum { BENCH_DRAIN_S = 10 };

/* Runs a plan; results has room for n_loads, zeroed. Returns 0, or an error that ended the run: no connection, a lost
 * one, a silent server, bytes that are not RESP, memory. */
int bench_run(const struct bench_plan *plan, struct bench_result *results, struct err *err);

#endif
