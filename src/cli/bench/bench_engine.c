#include "cli/bench/bench_engine.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "cli/bench/bench_conn.h"

enum { EVENTS = 64, IDLE_NS = 100 * 1000 * 1000 };

struct thread {
    pthread_t id;
    bool started;
    struct bench_run *run;
    int epoll;
    struct bench_conn *conns;
    int n_conns;
    struct bench_result *results;
    struct err err;
};

/* Sends what has become due, and says when the next one will be. */
static int send_due(const struct thread *t, int64_t now, int64_t *wake, struct err *err)
{
    for (int i = 0; i < t->n_conns; i++) {
        struct bench_conn *c = &t->conns[i];
        if (c->gap_ns <= 0 || c->n == c->load->pipeline || c->body.len > 0) {
            continue; /* a reply, or room in the socket, will move it on */
        }
        int rc = c->due_ns <= now ? bench_conn_pump(c, err) : 0;
        if (rc < 0) {
            return rc;
        }
        if (c->n < c->load->pipeline && c->body.len == 0 && c->due_ns < *wake) {
            *wake = c->due_ns;
        }
    }
    return 0;
}

static bool any_under_way(const struct thread *t, bool sending)
{
    for (int i = 0; i < t->n_conns; i++) {
        if (t->conns[i].n > 0 || (sending && !t->conns[i].exhausted)) {
            return true;
        }
    }
    return false;
}

static uint64_t answers_of(const struct thread *t)
{
    uint64_t n = 0;
    for (int i = 0; i < t->run->plan->n_loads; i++) {
        n += t->results[i].answered;
    }
    return n;
}

/* What has been heard of the server so far. */
struct hearing {
    uint64_t answers;
    int64_t at_ns;
};

static int listen_for(const struct thread *t, struct hearing *h, int64_t now, struct err *err)
{
    uint64_t answers = answers_of(t);
    if (answers != h->answers) {
        *h = (struct hearing){answers, now};
    }
    double silent = (double)(now - h->at_ns) / (double)SECOND_NS;
    return t->run->plan->silence <= 0 || silent < t->run->plan->silence
               ? 0
               : err_set(err, ERR_SYSTEM, "%s: no answer for %g s", t->run->plan->address, t->run->plan->silence);
}

static int wait_and_receive(const struct thread *t, int64_t wake, struct err *err)
{
    struct epoll_event events[EVENTS];
    int64_t left = wake - clock_figures_ns();
    left = left < 0 || t->run->plan->poll ? 0 : left > IDLE_NS ? IDLE_NS : left;
    struct timespec timeout = {.tv_nsec = (long)left};
    int n = epoll_pwait2(t->epoll, events, EVENTS, &timeout, NULL);
    if (n < 0 && errno != EINTR) {
        return err_set(err, ERR_SYSTEM, "can't wait: %s", strerror(errno));
    }
    for (int i = 0; i < n; i++) {
        struct bench_conn *c = events[i].data.ptr;
        int rc = bench_conn_receive(c, err);
        if (rc == 0) {
            rc = bench_conn_pump(c, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int run_loop(struct thread *t, struct err *err)
{
    struct bench_run *run = t->run;
    struct hearing hearing = {.at_ns = clock_figures_ns()};
    int rc = 0;
    for (int i = 0; i < t->n_conns && rc == 0; i++) {
        rc = bench_conn_pump(&t->conns[i], err);
    }
    while (rc == 0 && !atomic_load_explicit(&run->stop, memory_order_relaxed)) {
        int64_t now = clock_figures_ns();
        bool sending = now < run->end_ns;
        if (!any_under_way(t, sending) || (!sending && now > run->end_ns + BENCH_DRAIN_S * SECOND_NS)) {
            break;
        }
        int64_t wake = sending ? run->end_ns : INT64_MAX;
        rc = listen_for(t, &hearing, now, err);
        if (rc == 0 && sending) {
            rc = send_due(t, now, &wake, err);
        }
        if (rc == 0) {
            rc = wait_and_receive(t, wake, err);
        }
    }
    return rc;
}

/* Who never sleeps has used its slice up only after milliseconds, and the server, on the same core, would wait for
 * that: not so for a client on a machine of its own. A policy or a priority that was chosen stays. */
static void give_way(void)
{
    if (sched_getscheduler(0) == SCHED_OTHER) {
        background_enter(getpriority(PRIO_PROCESS, 0), BACKGROUND_SLICE_LONG_MS); /* refused: the tail is longer */
    }
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    prctl(PR_SET_TIMERSLACK, 1UL); /* or the kernel wakes us up to 50 us late */
    if (t->run->plan->poll) {
        give_way();
    }
    if (run_loop(t, &t->err) < 0) {
        atomic_store(&t->run->stop, true);
    }
    for (int i = 0; i < t->n_conns; i++) {
        bench_conn_settle(&t->conns[i]);
    }
    return NULL;
}

/* --- setting up --- */

static int open_thread(struct thread *t, int n_conns, struct err *err)
{
    t->conns = calloc((size_t)n_conns, sizeof *t->conns);
    t->results = calloc((size_t)t->run->plan->n_loads, sizeof *t->results);
    if (t->conns == NULL || t->results == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for %d connections", n_conns);
    }
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    return t->epoll < 0 ? err_set(err, ERR_SYSTEM, "no epoll: %s", strerror(errno)) : 0;
}

/* Deals the connections out to the threads, load by load. */
static int open_all(const struct bench_plan *plan, struct thread *threads, int n_conns, struct err *err)
{
    struct random random = {plan->seed};
    for (int i = 0; i < plan->threads; i++) {
        int rc = open_thread(&threads[i], n_conns / plan->threads + 1, err);
        if (rc < 0) {
            return rc;
        }
    }
    for (int l = 0, next = 0; l < plan->n_loads; l++) {
        const struct bench_load *load = &plan->loads[l];
        for (int i = 0; i < load->connections; i++, next++) {
            struct thread *t = &threads[next % plan->threads];
            struct bench_conn *c = &t->conns[t->n_conns++];
            *c = (struct bench_conn){
                .run = t->run, .load = load, .stream = {.fd = -1}, .source.random = {random_next(&random)}};
            c->result = &t->results[l];
            c->gap_ns = load->rate > 0 ? (double)SECOND_NS * load->connections / load->rate : 0;
            c->due_ns = (int64_t)(c->gap_ns * i / load->connections); /* made absolute by begin() */
            int rc = bench_conn_open(c, t->epoll, err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

static void begin(struct bench_run *run, const struct bench_plan *plan, struct thread *threads)
{
    run->begin_ns = clock_figures_ns();
    run->from_ns = run->begin_ns + (int64_t)(plan->warm_up * (double)SECOND_NS);
    run->end_ns = plan->seconds > 0 ? run->from_ns + (int64_t)(plan->seconds * (double)SECOND_NS) : INT64_MAX / 2;
    for (int i = 0; i < plan->threads; i++) {
        for (int k = 0; k < threads[i].n_conns; k++) {
            threads[i].conns[k].due_ns += run->begin_ns;
        }
    }
}

static void close_thread(struct thread *t)
{
    for (int i = 0; i < t->n_conns; i++) {
        bench_conn_close(&t->conns[i]);
    }
    if (t->epoll >= 0) {
        close(t->epoll);
    }
    free(t->conns);
    free(t->results);
}

static void add_result(struct bench_result *sum, const struct bench_result *r)
{
    histogram_add(&sum->latency, &r->latency);
    sum->done += r->done;
    sum->answered += r->answered;
    sum->errors += r->errors;
    sum->wrong += r->wrong;
    sum->unsent += r->unsent;
    sum->unanswered += r->unanswered;
    sum->findings.hidden += r->findings.hidden;
    sum->findings.unplayed += r->findings.unplayed;
    sum->findings.shown += r->findings.shown;
    for (int i = 0; i < r->n_named; i++) {
        bench_name_error(sum, slice_str(r->named[i].text), r->named[i].count);
    }
}

/* Every connection needs a file descriptor. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit); /* if not, connecting says what is short */
    }
}

static int run_threads(const struct bench_plan *plan, struct thread *threads, struct bench_run *run, struct err *err)
{
    int rc = 0;
    begin(run, plan, threads);
    for (int i = 0; i < plan->threads && rc == 0; i++) {
        int code = pthread_create(&threads[i].id, NULL, thread_main, &threads[i]);
        if (code != 0) {
            atomic_store(&run->stop, true);
            rc = err_set(err, ERR_SYSTEM, "no thread: %s", strerror(code));
        }
        threads[i].started = code == 0;
    }
    for (int i = 0; i < plan->threads; i++) {
        if (threads[i].started) {
            pthread_join(threads[i].id, NULL);
        }
        if (rc == 0 && threads[i].err.code < 0) {
            *err = threads[i].err;
            rc = err->code;
        }
    }
    return rc;
}

int bench_run(const struct bench_plan *plan, struct bench_result *results, struct err *err)
{
    struct bench_run run = {.plan = plan};
    struct thread *threads = calloc((size_t)plan->threads, sizeof *threads);
    if (threads == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for %d threads", plan->threads);
    }
    int n_conns = 0;
    for (int i = 0; i < plan->n_loads; i++) {
        n_conns += plan->loads[i].connections;
    }
    for (int i = 0; i < plan->threads; i++) {
        threads[i] = (struct thread){.run = &run, .epoll = -1};
    }
    raise_limit();
    int rc = open_all(plan, threads, n_conns, err);
    if (rc == 0) {
        rc = run_threads(plan, threads, &run, err);
    }
    int64_t now = clock_figures_ns(), end = now < run.end_ns ? now : run.end_ns;
    for (int i = 0; i < plan->threads; i++) {
        for (int l = 0; rc == 0 && l < plan->n_loads; l++) {
            add_result(&results[l], &threads[i].results[l]);
            results[l].seconds = (double)(end - run.from_ns) / (double)SECOND_NS;
        }
        close_thread(&threads[i]);
    }
    free(threads);
    return rc;
}
