/* A load generator for the figures that the README and the notes quote: the same work against unseen and against Redis.
 *
 *   bench/load --port 7979 ask        one user with 4 months of 2,500 plays; FILTER with 10,000 candidates, 30 % seen
 *   bench/load --port 6379 smismember the same question, put to Redis as 4 monthly sets
 *   bench/load --port 6379 zrange     the same, reading one ZSET whole and testing the candidates here (both timed)
 *   bench/load --port 7979 played     single PLAYED commands; --connections 8 --pipeline 64
 *   bench/load --port 6379 zadd       the same plays as ZADD
 *   bench/load --port 7979 ping
 *
 * Requests are formatted before the clock starts and replies are only scanned, so that what is timed is server and
 * transfer. One thread a connection. Ids are 25 bytes. Prints operations a second and the latency of a request (of a
 * whole pipeline for played, zadd and ping). */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"

enum { MONTHS = 4, PLAYS_A_MONTH = 2500, CANDIDATES = 10000, SEEN_PERCENT = 30, REPLY_MAX = 1 << 20 };

static struct {
    int port;
    int connections;
    int pipeline;
    double seconds;
    const char *workload;
} opt = {.port = 7979, .connections = 1, .pipeline = 64, .seconds = 5};

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        die("connect");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n <= 0) {
            die("write");
        }
        data += n;
        len -= (size_t)n;
    }
}

/* Reads a whole reply and the bytes of a bulk string or array in it. A reply is scanned only as far as its length
 * needs. */
struct reader {
    int fd;
    char *data;
    size_t len;
};

static void more(struct reader *r)
{
    if (r->len == REPLY_MAX) {
        fprintf(stderr, "load: the reply is too long\n");
        exit(1);
    }
    ssize_t n = read(r->fd, r->data + r->len, REPLY_MAX - r->len);
    if (n <= 0) {
        die("read");
    }
    r->len += (size_t)n;
}

/* The end of the line that begins at `at`: the offset behind CRLF. */
static size_t line_end(struct reader *r, size_t at)
{
    for (;;) {
        char *nl = memchr(r->data + at, '\n', r->len - at);
        if (nl != NULL) {
            return (size_t)(nl - r->data) + 1;
        }
        more(r);
    }
}

/* The offset behind the reply at `at`. */
static size_t reply_end(struct reader *r, size_t at)
{
    size_t end = line_end(r, at);
    char type = r->data[at];
    if (type == '-') {
        fprintf(stderr, "load: %.*s", (int)(end - at), r->data + at);
        exit(1);
    }
    if (type == '$') {
        long n = strtol(r->data + at + 1, NULL, 10);
        end += n >= 0 ? (size_t)n + 2 : 0;
        while (r->len < end) {
            more(r);
        }
    } else if (type == '*') {
        long n = strtol(r->data + at + 1, NULL, 10);
        for (long i = 0; i < n; i++) {
            end = reply_end(r, end);
        }
    }
    return end;
}

static void bulk(struct buf *b, const char *text, size_t len)
{
    buf_addf(b, "$%zu\r\n", len);
    buf_add(b, text, len);
    buf_add(b, "\r\n", 2);
}

static void word(struct buf *b, const char *text)
{
    bulk(b, text, strlen(text));
}

/* 25 bytes, as "video:0000000000123456789". */
static const char *item(uint64_t n)
{
    static _Thread_local char text[4][32];
    static _Thread_local int at;
    at = (at + 1) % 4;
    snprintf(text[at], sizeof text[at], "video:%019" PRIu64, n * 2654435761u % 10000000000000000u);
    return text[at];
}

static void call(int fd, struct buf *b)
{
    struct reader r = {.fd = fd, .data = malloc(REPLY_MAX)};
    if (r.data == NULL || b->failed) {
        die("memory");
    }
    send_all(fd, b->data, b->len);
    reply_end(&r, 0);
    free(r.data);
    buf_clear(b);
}

static bool is(const char *name)
{
    return strcmp(opt.workload, name) == 0;
}

/* The user's plays: item numbers 0 .. MONTHS * PLAYS_A_MONTH - 1, a quarter in each month. */
static void prepare_user(int fd)
{
    struct buf b = {0};
    int64_t now = clock_wall_ms();
    int this_month = month_of_ms(now);
    for (int m = 0; m < MONTHS; m++) {
        int64_t at = m == 0 ? now : month_start_ms(this_month - m) + 1000;
        char text[64];
        if (is("ask")) {
            buf_addf(&b, "*%d\r\n", 3 + PLAYS_A_MONTH);
            word(&b, "PLAYEDAT");
            word(&b, "bench-user");
            snprintf(text, sizeof text, "%" PRId64, at);
            word(&b, text);
        } else if (is("smismember")) {
            buf_addf(&b, "*%d\r\n", 2 + PLAYS_A_MONTH);
            word(&b, "SADD");
            snprintf(text, sizeof text, "played:bench-user:%d", m);
            word(&b, text);
        } else {
            buf_addf(&b, "*%d\r\n", 2 + 2 * PLAYS_A_MONTH);
            word(&b, "ZADD");
            word(&b, "played:bench-user");
        }
        for (int i = 0; i < PLAYS_A_MONTH; i++) {
            if (is("zrange")) {
                snprintf(text, sizeof text, "%" PRId64, at + i);
                word(&b, text);
            }
            word(&b, item((uint64_t)(m * PLAYS_A_MONTH + i)));
        }
        call(fd, &b);
    }
    if (is("ask")) {
        buf_addf(&b, "*2\r\n");
        word(&b, "RING");
        word(&b, "FLUSH");
        call(fd, &b);
    }
    buf_free(&b);
}

/* SEEN_PERCENT of the candidates were played. */
static uint64_t candidate(int i)
{
    return i % 100 < SEEN_PERCENT ? (uint64_t)(i * 7 % (MONTHS * PLAYS_A_MONTH)) : (uint64_t)(1000000 + i);
}

static void format_question(struct buf *b)
{
    if (is("ask")) {
        buf_addf(b, "*%d\r\n", 5 + CANDIDATES);
        word(b, "FILTER");
        word(b, "bench-user");
        word(b, "REPLY");
        word(b, "BITMAP");
        word(b, "ITEMS");
        for (int i = 0; i < CANDIDATES; i++) {
            word(b, item(candidate(i)));
        }
        return;
    }
    if (is("zrange")) {
        buf_addf(b, "*4\r\n");
        word(b, "ZRANGE");
        word(b, "played:bench-user");
        word(b, "0");
        word(b, "-1");
        return;
    }
    for (int m = 0; m < MONTHS; m++) {
        char key[64];
        snprintf(key, sizeof key, "played:bench-user:%d", m);
        buf_addf(b, "*%d\r\n", 2 + CANDIDATES);
        word(b, "SMISMEMBER");
        word(b, key);
        for (int i = 0; i < CANDIDATES; i++) {
            word(b, item(candidate(i)));
        }
    }
}

/* --- results --- */

struct result {
    uint64_t operations;
    int64_t *us;
    size_t n, cap;
};

static void note(struct result *r, int64_t us, uint64_t operations)
{
    if (r->n == r->cap) {
        r->cap = r->cap > 0 ? 2 * r->cap : 4096;
        r->us = realloc(r->us, r->cap * sizeof *r->us);
        if (r->us == NULL) {
            die("memory");
        }
    }
    r->us[r->n++] = us;
    r->operations += operations;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Testing the candidates of a ZSET that was read whole: what today's callers do. */
struct set {
    uint64_t *slots;
    size_t mask;
};

static size_t test_in_client(struct reader *r, const uint64_t *hashes, struct set *set)
{
    memset(set->slots, 0, (set->mask + 1) * sizeof *set->slots);
    size_t at = line_end(r, 0);
    long n = strtol(r->data + 1, NULL, 10);
    for (long i = 0; i < n; i++) {
        size_t body = line_end(r, at);
        size_t len = (size_t)strtol(r->data + at + 1, NULL, 10);
        uint64_t h = hash_id(0, slice_of(r->data + body, len)) | 1;
        size_t s = (size_t)(h >> 20) & set->mask;
        while (set->slots[s] != 0 && set->slots[s] != h) {
            s = (s + 1) & set->mask;
        }
        set->slots[s] = h;
        at = body + len + 2;
    }
    size_t unseen = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        size_t s = (size_t)(hashes[i] >> 20) & set->mask;
        while (set->slots[s] != 0 && set->slots[s] != hashes[i]) {
            s = (s + 1) & set->mask;
        }
        unseen += set->slots[s] == 0;
    }
    return unseen;
}

static size_t count_unseen(struct reader *r)
{
    size_t unseen = 0;
    if (is("ask")) {
        size_t at = line_end(r, 0);
        for (size_t i = 0; i < (CANDIDATES + 7) / 8; i++) {
            unseen += (size_t)__builtin_popcount((unsigned char)r->data[at + i]);
        }
    }
    return unseen;
}

static void run_questions(int fd, struct result *result)
{
    struct buf b = {0};
    format_question(&b);
    int replies = is("smismember") ? MONTHS : 1;
    struct reader r = {.fd = fd, .data = malloc(REPLY_MAX)};
    struct set set = {.slots = calloc(32768, sizeof *set.slots), .mask = 32767};
    uint64_t *hashes = malloc(CANDIDATES * sizeof *hashes);
    if (r.data == NULL || set.slots == NULL || hashes == NULL || b.failed) {
        die("memory");
    }
    size_t unseen = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        hashes[i] = hash_id(0, slice_str(item(candidate(i)))) | 1; /* made once, in the client's favour */
    }
    int64_t end = clock_stopwatch_us() + (int64_t)(opt.seconds * 1e6);
    int64_t started = clock_stopwatch_us();
    while (started < end) {
        r.len = 0;
        send_all(fd, b.data, b.len);
        size_t at = 0;
        for (int i = 0; i < replies; i++) {
            at = reply_end(&r, at);
        }
        if (is("zrange")) {
            unseen = test_in_client(&r, hashes, &set);
        } else {
            unseen = count_unseen(&r);
        }
        int64_t now = clock_stopwatch_us();
        note(result, now - started, 1);
        started = now;
    }
    if (unseen > 0) {
        fprintf(stderr, "unseen of %d candidates: %zu\n", CANDIDATES, unseen);
    }
    free(r.data);
    free(set.slots);
    free(hashes);
    buf_free(&b);
}

static void format_writes(struct buf *b, int connection, uint64_t *n)
{
    for (int i = 0; i < opt.pipeline; i++) {
        char user[32];
        snprintf(user, sizeof user, "user:%06d", (int)((*n * 7919 + (uint64_t)connection * 104729) % 100000));
        if (is("ping")) {
            buf_addf(b, "*1\r\n");
            word(b, "PING");
        } else if (is("played")) {
            buf_addf(b, "*3\r\n");
            word(b, "PLAYED");
            word(b, user);
            word(b, item((uint64_t)connection * 100000000 + *n));
        } else {
            buf_addf(b, "*4\r\n");
            word(b, "ZADD");
            word(b, user);
            word(b, "1790000000000");
            word(b, item((uint64_t)connection * 100000000 + *n));
        }
        ++*n;
    }
}

static void run_writes(int fd, int connection, struct result *result)
{
    enum { PREPARED = 200 };
    struct buf blocks[PREPARED] = {0};
    uint64_t n = 0;
    for (int i = 0; i < PREPARED; i++) {
        format_writes(&blocks[i], connection, &n);
    }
    struct reader r = {.fd = fd, .data = malloc(REPLY_MAX)};
    if (r.data == NULL) {
        die("memory");
    }
    int64_t end = clock_stopwatch_us() + (int64_t)(opt.seconds * 1e6);
    int64_t started = clock_stopwatch_us();
    for (int i = 0; started < end; i = (i + 1) % PREPARED) {
        r.len = 0;
        send_all(fd, blocks[i].data, blocks[i].len);
        size_t at = 0;
        for (int p = 0; p < opt.pipeline; p++) {
            at = reply_end(&r, at);
        }
        int64_t now = clock_stopwatch_us();
        note(result, now - started, (uint64_t)opt.pipeline);
        started = now;
    }
    for (int i = 0; i < PREPARED; i++) {
        buf_free(&blocks[i]);
    }
    free(r.data);
}

struct connection {
    pthread_t thread;
    int number;
    struct result result;
};

static void *connection_main(void *arg)
{
    struct connection *c = arg;
    int fd = dial();
    if (is("ask") || is("smismember") || is("zrange")) {
        run_questions(fd, &c->result);
    } else {
        run_writes(fd, c->number, &c->result);
    }
    close(fd);
    return NULL;
}

static void report(struct connection *connections, double seconds)
{
    struct result all = {0};
    for (int i = 0; i < opt.connections; i++) {
        for (size_t j = 0; j < connections[i].result.n; j++) {
            note(&all, connections[i].result.us[j], 0);
        }
        all.operations += connections[i].result.operations;
    }
    qsort(all.us, all.n, sizeof *all.us, by_value);
    printf("%-10s port %-5d connections %-3d pipeline %-3d %9.0f/s  p50 %7.3f ms  p99 %7.3f ms\n", opt.workload,
           opt.port, opt.connections, is("ask") || is("smismember") || is("zrange") ? 1 : opt.pipeline,
           (double)all.operations / seconds, (double)all.us[all.n / 2] / 1e3, (double)all.us[all.n * 99 / 100] / 1e3);
    free(all.us);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"connections", required_argument, NULL, 'c'},
                                            {"pipeline", required_argument, NULL, 'P'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "p:c:P:s:", options, NULL)) != -1) {
        switch (c) {
        case 'p':
            opt.port = atoi(optarg);
            break;
        case 'c':
            opt.connections = atoi(optarg);
            break;
        case 'P':
            opt.pipeline = atoi(optarg);
            break;
        case 's':
            opt.seconds = atof(optarg);
            break;
        default:
            return 2;
        }
    }
    static const char *const workloads[] = {"ask", "smismember", "zrange", "played", "zadd", "ping"};
    opt.workload = optind < argc ? argv[optind] : "";
    bool known = false;
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        known = known || is(workloads[i]);
    }
    if (!known || opt.connections < 1 || opt.pipeline < 1) {
        fprintf(stderr, "usage: load [--port N] [--connections N] [--pipeline N] [--seconds N] "
                        "ask|smismember|zrange|played|zadd|ping\n");
        return 2;
    }
    if (is("ask") || is("smismember") || is("zrange")) {
        int fd = dial();
        prepare_user(fd);
        close(fd);
    }
    struct connection *connections = calloc((size_t)opt.connections, sizeof *connections);
    if (connections == NULL) {
        die("memory");
    }
    int64_t started = clock_stopwatch_us();
    for (int i = 0; i < opt.connections; i++) {
        connections[i].number = i;
        if (pthread_create(&connections[i].thread, NULL, connection_main, &connections[i]) != 0) {
            die("thread");
        }
    }
    for (int i = 0; i < opt.connections; i++) {
        pthread_join(connections[i].thread, NULL);
    }
    report(connections, (double)(clock_stopwatch_us() - started) / 1e6);
    for (int i = 0; i < opt.connections; i++) {
        free(connections[i].result.us);
    }
    free(connections);
    return 0;
}
