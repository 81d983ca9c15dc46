/* A connection of `unseen bench`. Its life is two functions: pump() makes requests and sends them until the socket is
 * full, the pipeline is, or nothing is due; receive() reads replies and takes them off the pipeline. Sockets are
 * watched edge-triggered, so both go on until the kernel has no more. A body is sent from where it stands; until it is
 * gone, no further request is made. */
#ifndef UNSEEN_CLI_BENCH_BENCH_CONN_H
#define UNSEEN_CLI_BENCH_BENCH_CONN_H

#include <stdatomic.h>

#include "cli/bench/bench_engine.h"
#include "cli/bench/bench_scan.h"
#include "net/stream.h"

#define SECOND_NS INT64_C(1000000000)

struct bench_run {
    const struct bench_plan *plan;
    int64_t begin_ns, from_ns, end_ns; /* measured is from .. end */
    atomic_bool stop;
};

struct bench_pending {
    int64_t began_ns;
    uint32_t tag;
    unsigned replies; /* still to come */
};

struct bench_conn {
    const struct bench_run *run;
    const struct bench_load *load;
    struct bench_result *result; /* the thread's, of this load */
    struct stream stream;
    struct bench_source source;
    bool exhausted;

    int64_t due_ns; /* open loop: when the next request is */
    double gap_ns;  /* between two, on average; 0: closed loop */

    struct buf out; /* heads */
    size_t out_sent;
    struct slice body; /* what is left of it */

    struct buf in;
    size_t in_used; /* by replies that are done */
    struct bench_scan scan;

    struct bench_pending *pending; /* a ring of load->pipeline */
    int first, n;
};

/* Connects what has run, load, result, source and times, and has it watched. */
int bench_conn_open(struct bench_conn *c, int epoll, struct err *err);
void bench_conn_close(struct bench_conn *c);

/* 0, or an error that ends the run. */
int bench_conn_pump(struct bench_conn *c, struct err *err);
int bench_conn_receive(struct bench_conn *c, struct err *err);

/* Counts what was left undone at the end. */
void bench_conn_settle(struct bench_conn *c);

/* Counts an error reply. They are told apart by their first word, which is what clients decide on. */
void bench_name_error(struct bench_result *r, struct slice text, uint64_t count);

#endif
