/* A connection's life is two functions: pump() makes requests and sends them until the socket is full, the pipeline is,
 * or nothing is due; receive() reads replies and takes them off the pipeline. Sockets are watched edge-triggered, so
 * both go on until the kernel has no more. A body is sent from where it stands; until it is gone, no further request is
 * made. */
#include "cli/bench/bench_engine.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "cli/bench/bench_scan.h"
#include "cli/lib/client.h"

#define SECOND_NS INT64_C(1000000000)
#define LAST_MOMENT_NS INT64_C(1000000) /* what became due so shortly before the end says nothing about the server */

enum { EVENTS = 64, READ_BYTES = 16 * 1024, IDLE_NS = 100 * 1000 * 1000 };

struct pending {
    int64_t began_ns;
    uint32_t tag;
    unsigned replies; /* still to come */
};

struct conn {
    const struct bench_load *load;
    struct bench_result *result; /* the thread's, of this load */
    struct wire wire;
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

    struct pending *pending; /* a ring of load->pipeline */
    int first, n;
};

struct thread {
    pthread_t id;
    bool started;
    const struct bench_plan *plan;
    struct run *run;
    int epoll;
    struct conn *conns;
    int n_conns;
    struct bench_result *results;
    struct err err;
};

struct run {
    int64_t begin_ns, from_ns, end_ns; /* measured is from .. end */
    atomic_bool stop;
};

static int64_t next_gap(const struct thread *t, struct conn *c)
{
    if (!t->plan->random_arrivals) {
        return (int64_t)c->gap_ns;
    }
    return (int64_t)(-log(1 - random_unit(&c->source.random)) * c->gap_ns);
}

/* Makes requests while there is room for them and they are due. */
static void make_requests(const struct thread *t, struct conn *c, int64_t now)
{
    const struct bench_work *work = c->load->work;
    while (c->n < c->load->pipeline && c->body.len == 0 && !c->exhausted) {
        int64_t began = c->gap_ns > 0 ? c->due_ns : now;
        if (began > now || now >= t->run->end_ns) {
            return;
        }
        struct bench_request request = {.tag = 0};
        if (!work->next(work, &c->source, &c->out, &request)) {
            c->exhausted = true;
            return;
        }
        c->source.serial++;
        c->body = request.body;
        struct pending *p = &c->pending[(c->first + c->n) % c->load->pipeline];
        *p = (struct pending){.began_ns = began, .tag = request.tag, .replies = work->replies};
        c->n++;
        if (c->gap_ns > 0) {
            c->due_ns += next_gap(t, c);
        }
    }
}

static int closed(const struct thread *t, struct err *err)
{
    return err_set(err, ERR_CLOSED, "%s: the server closed a connection", t->plan->address);
}

static int lost(const struct thread *t, const struct conn *c, const char *what, struct err *err)
{
    if (errno == ECONNRESET || errno == EPIPE) {
        return closed(t, err);
    }
    return err_set(err, ERR_SYSTEM, "%s: %s: %s", t->plan->address, what, wire_problem(&c->wire));
}

/* Returns 1 when all is sent, 0 when the socket is full. */
static int send_some(const struct thread *t, struct conn *c, struct err *err)
{
    while (c->out_sent < c->out.len || c->body.len > 0) {
        struct iovec parts[2] = {
            {c->out.len > 0 ? c->out.data + c->out_sent : NULL, c->out.len - c->out_sent},
            {(void *)(uintptr_t)c->body.data, c->body.len},
        };
        bool head = parts[0].iov_len > 0;
        ssize_t n = wire_write(&c->wire, head ? parts : parts + 1, head && c->body.len > 0 ? 2 : 1);
        if (n < 0 && errno == EAGAIN) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return lost(t, c, "can't send", err);
        }
        size_t sent = n > 0 ? (size_t)n : 0;
        size_t of_head = sent < parts[0].iov_len ? sent : parts[0].iov_len;
        c->out_sent += of_head;
        if (sent > of_head) {
            c->body.data += sent - of_head;
            c->body.len -= sent - of_head;
        }
    }
    buf_clear(&c->out);
    c->out_sent = 0;
    return 1;
}

static int pump(const struct thread *t, struct conn *c, struct err *err)
{
    if (wire_flush(&c->wire) < 0) {
        return lost(t, c, "can't send", err);
    }
    for (;;) {
        if (c->body.len == 0) {
            make_requests(t, c, clock_stopwatch_ns());
        }
        if (c->out.failed) {
            return err_set(err, ERR_NOMEM, "out of memory for requests");
        }
        if (c->out_sent == c->out.len && c->body.len == 0) {
            return 0;
        }
        int rc = send_some(t, c, err);
        if (rc <= 0) {
            return rc;
        }
    }
}

/* Errors are told apart by their first word, which is what clients decide on. */
static void name_error(struct bench_result *r, struct slice text, uint64_t count)
{
    const char *blank = memchr(text.data, ' ', text.len);
    size_t word = blank == NULL ? text.len : (size_t)(blank - text.data);
    int i = 0;
    for (; i < r->n_named; i++) {
        if (strcspn(r->named[i].text, " ") == word && memcmp(r->named[i].text, text.data, word) == 0) {
            break;
        }
    }
    if (i == BENCH_ERRORS_NAMED) {
        return;
    }
    if (i == r->n_named) {
        size_t len = text.len < BENCH_ERROR_TEXT - 1 ? text.len : BENCH_ERROR_TEXT - 1;
        memcpy(r->named[i].text, text.data, len);
        r->named[i].text[len] = '\0';
        r->n_named++;
    }
    r->named[i].count += count;
}

static void take_reply(const struct thread *t, struct conn *c, struct slice reply)
{
    struct bench_result *r = c->result;
    struct pending *p = &c->pending[c->first];
    if (reply.data[0] == '-' || reply.data[0] == '!') {
        size_t at = 0;
        int64_t number;
        struct slice text;
        bench_line(reply, &at, &number, &text);
        name_error(r, text, 1);
        r->errors++;
    } else if (!c->load->work->check(c->load->work, p->tag, reply, &r->findings)) {
        r->wrong++;
    }
    if (--p->replies > 0) {
        return;
    }
    int64_t now = clock_stopwatch_ns();
    r->answered++;
    if (now >= t->run->from_ns) { /* one that was due in the warm-up, too: what piled up then is still waiting */
        histogram_note(&r->latency, (uint64_t)(now - p->began_ns));
        r->done += now < t->run->end_ns;
    }
    c->first = (c->first + 1) % c->load->pipeline;
    c->n--;
}

static int take_replies(const struct thread *t, struct conn *c, struct err *err)
{
    while (c->in_used < c->in.len) {
        const char *data = c->in.data + c->in_used;
        int result = bench_scan(&c->scan, data, c->in.len - c->in_used);
        if (result == BENCH_SCAN_MORE) {
            break;
        }
        if (result == BENCH_SCAN_BAD || c->n == 0) {
            return err_set(err, ERR_CORRUPT, "%s: an answer that is no RESP, or to no question", t->plan->address);
        }
        take_reply(t, c, slice_of(data, c->scan.at));
        c->in_used += c->scan.at;
        c->scan = (struct bench_scan){0};
    }
    if (c->in_used > 0) {
        c->in.len -= c->in_used;
        memmove(c->in.data, c->in.data + c->in_used, c->in.len);
        c->in_used = 0;
    }
    return 0;
}

static int receive(const struct thread *t, struct conn *c, struct err *err)
{
    for (;;) {
        if (buf_reserve(&c->in, c->in.len > READ_BYTES ? c->in.len : READ_BYTES) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for a reply");
        }
        size_t room = c->in.cap - c->in.len;
        ssize_t n = wire_read(&c->wire, c->in.data + c->in.len, room);
        if (n == 0) {
            return closed(t, err);
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno == EAGAIN ? 0 : lost(t, c, "can't receive", err);
        }
        c->in.len += (size_t)n;
        int rc = take_replies(t, c, err);
        if (rc < 0 || ((size_t)n < room && c->wire.tls == NULL)) {
            return rc;
        }
    }
}

/* Sends what has become due, and says when the next one will be. */
static int send_due(const struct thread *t, int64_t now, int64_t *wake, struct err *err)
{
    for (int i = 0; i < t->n_conns; i++) {
        struct conn *c = &t->conns[i];
        if (c->gap_ns <= 0 || c->n == c->load->pipeline || c->body.len > 0) {
            continue; /* a reply, or room in the socket, will move it on */
        }
        int rc = c->due_ns <= now ? pump(t, c, err) : 0;
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
    for (int i = 0; i < t->plan->n_loads; i++) {
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
    return t->plan->silence <= 0 || silent < t->plan->silence
               ? 0
               : err_set(err, ERR_SYSTEM, "%s: no answer for %g s", t->plan->address, t->plan->silence);
}

static int wait_and_receive(const struct thread *t, int64_t wake, struct err *err)
{
    struct epoll_event events[EVENTS];
    int64_t left = wake - clock_stopwatch_ns();
    left = left < 0 || t->plan->poll ? 0 : left > IDLE_NS ? IDLE_NS : left;
    struct timespec timeout = {.tv_nsec = (long)left};
    int n = epoll_pwait2(t->epoll, events, EVENTS, &timeout, NULL);
    if (n < 0 && errno != EINTR) {
        return err_set(err, ERR_SYSTEM, "can't wait: %s", strerror(errno));
    }
    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;
        int rc = receive(t, c, err);
        if (rc == 0) {
            rc = pump(t, c, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int run_loop(struct thread *t, struct err *err)
{
    struct run *run = t->run;
    struct hearing hearing = {.at_ns = clock_stopwatch_ns()};
    int rc = 0;
    for (int i = 0; i < t->n_conns && rc == 0; i++) {
        rc = pump(t, &t->conns[i], err);
    }
    while (rc == 0 && !atomic_load_explicit(&run->stop, memory_order_relaxed)) {
        int64_t now = clock_stopwatch_ns();
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

/* What was left undone. */
static void settle(const struct thread *t)
{
    int64_t end = t->run->end_ns;
    for (int i = 0; i < t->n_conns; i++) {
        struct conn *c = &t->conns[i];
        c->result->unanswered += (uint64_t)c->n;
        if (c->gap_ns > 0 && c->due_ns < end - LAST_MOMENT_NS) {
            c->result->unsent += (uint64_t)((double)(end - c->due_ns) / c->gap_ns) + 1;
        }
    }
}

/* Who never sleeps has used its slice up only after milliseconds, and the server, on the same core, would wait for
 * that: not so for a client on a machine of its own. Whoever chose a policy or a priority keeps it. */
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
    if (t->plan->poll) {
        give_way();
    }
    if (run_loop(t, &t->err) < 0) {
        atomic_store(&t->run->stop, true);
    }
    settle(t);
    return NULL;
}

/* --- setting up --- */

static int open_conn(struct thread *t, struct conn *c, const struct bench_load *load, struct err *err)
{
    struct client *client;
    int rc = client_connect(t->plan->address, t->plan->password, &client, err);
    if (rc < 0) {
        return rc;
    }
    c->wire = client_detach(client);
    int one = 1;
    setsockopt(c->wire.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails on a Unix socket, which needs none */
    c->pending = calloc((size_t)load->pipeline, sizeof *c->pending);
    if (c->pending == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a connection");
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, c->wire.fd, &event) < 0) {
        return err_set(err, ERR_SYSTEM, "can't watch a connection: %s", strerror(errno));
    }
    return 0;
}

static int open_thread(struct thread *t, int n_conns, struct err *err)
{
    t->conns = calloc((size_t)n_conns, sizeof *t->conns);
    t->results = calloc((size_t)t->plan->n_loads, sizeof *t->results);
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
            struct conn *c = &t->conns[t->n_conns++];
            *c = (struct conn){.load = load, .wire = {.fd = -1}, .source.random = {random_next(&random)}};
            c->result = &t->results[l];
            c->gap_ns = load->rate > 0 ? (double)SECOND_NS * load->connections / load->rate : 0;
            c->due_ns = (int64_t)(c->gap_ns * i / load->connections); /* made absolute by begin() */
            int rc = open_conn(t, c, load, err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

static void begin(struct run *run, const struct bench_plan *plan, struct thread *threads)
{
    run->begin_ns = clock_stopwatch_ns();
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
        struct conn *c = &t->conns[i];
        wire_close(&c->wire);
        buf_free(&c->out);
        buf_free(&c->in);
        free(c->pending);
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
        name_error(sum, slice_str(r->named[i].text), r->named[i].count);
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

static int run_threads(const struct bench_plan *plan, struct thread *threads, struct run *run, struct err *err)
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
    struct run run = {0};
    struct thread *threads = calloc((size_t)plan->threads, sizeof *threads);
    if (threads == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for %d threads", plan->threads);
    }
    int n_conns = 0;
    for (int i = 0; i < plan->n_loads; i++) {
        n_conns += plan->loads[i].connections;
    }
    for (int i = 0; i < plan->threads; i++) {
        threads[i] = (struct thread){.plan = plan, .run = &run, .epoll = -1};
    }
    raise_limit();
    int rc = open_all(plan, threads, n_conns, err);
    if (rc == 0) {
        rc = run_threads(plan, threads, &run, err);
    }
    int64_t now = clock_stopwatch_ns(), end = now < run.end_ns ? now : run.end_ns;
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
