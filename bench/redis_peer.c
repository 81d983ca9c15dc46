/* What `unseen bench` measures, put to Redis in the ways of today; and the floor under both. For bench/compare.
 *
 *   redis_peer --to ADDRESS WORKLOAD [--connections N] [--pipeline N] [--seconds S] [--poll] [--candidates N]
 *              [--plays-per-month N]
 *
 *   zrange      a ZSET read whole, its members put into a set and the candidates hashed and tested here, which is timed
 *               too; replies are scanned in place
 *   hiredis     the same through a client library as it is, hiredis, which makes an object of each member
 *   zmscore     ZMSCORE with all candidates
 *   smismember  SMISMEMBER with all candidates on each of 4 monthly sets
 *   zadd        plays, one a ZADD
 *   floor       the request of `unseen bench` sent to a thread of this program that reads it and answers a bitmap's
 *               bytes; needs no server
 *
 * The engine is that of `unseen bench`, and so are ids and the share of seen candidates. Prints its JSON. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef WITH_HIREDIS
#include <hiredis/hiredis.h>
#endif

#include "base/clock.h"
#include "base/hash.h"
#include "cli/bench/bench_engine.h"
#include "cli/bench/bench_ids.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_scan.h"
#include "cli/bench/bench_work.h"
#include "net/client.h"

enum { MONTHS = 4, SEEN_PERCENT = 30, SET_SLOTS = 1 << 16, CANDIDATES_MAX = 65536, SINK_BYTES = 64 * 1024 };

static const char key[] = "played:peer";

struct peer {
    const char *workload, *to;
    uint32_t candidates, plays_per_month, users;
    bool poll;
    struct buf items;  /* the candidates, as a request has them */
    struct slice *ids; /* and each by itself */
    uint32_t expected; /* unseen ones */
    struct buf question;
    struct zipf zipf;
};

static int fail(const char *what)
{
    fprintf(stderr, "redis_peer: %s\n", what);
    return 1;
}

static void add_word(struct buf *out, const char *text)
{
    buf_addf(out, "$%zu\r\n%s\r\n", strlen(text), text);
}

static void add_key(struct buf *out, const struct peer *p, uint32_t month)
{
    char text[64];
    snprintf(text, sizeof text, strcmp(p->workload, "smismember") == 0 ? "%s:%" PRIu32 : "%s", key, month);
    add_word(out, text);
}

/* Whether the ZSET is read whole. */
static bool is_whole(const struct peer *p)
{
    return strcmp(p->workload, "zrange") == 0 || strcmp(p->workload, "hiredis") == 0;
}

/* The same mix as in the lists of `unseen bench`. */
static int make_question(struct peer *p)
{
    struct random random = {1};
    uint64_t plays = (uint64_t)p->plays_per_month * MONTHS;
    p->ids = calloc(p->candidates, sizeof *p->ids);
    if (p->ids == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < p->candidates; i++) {
        bool played = random_below(&random, 100) < SEEN_PERCENT;
        bench_add_item(&p->items, bench_item_id(played ? random_below(&random, plays) : BENCH_NEVER_PLAYED + i));
        p->expected += !played;
    }
    size_t step = p->items.len / p->candidates; /* "$25\r\n", the item, "\r\n" */
    for (uint32_t i = 0; i < p->candidates; i++) {
        p->ids[i] = slice_of(p->items.data + (i + 1) * step - BENCH_ITEM_LEN - 2, BENCH_ITEM_LEN);
    }
    if (is_whole(p)) {
        buf_addf(&p->question, "*4\r\n");
        add_word(&p->question, "ZRANGE");
        add_key(&p->question, p, 0);
        add_word(&p->question, "0");
        add_word(&p->question, "-1");
    } else {
        bool sets = strcmp(p->workload, "smismember") == 0;
        for (uint32_t m = 0; m < (sets ? MONTHS : 1); m++) {
            buf_addf(&p->question, "*%" PRIu32 "\r\n", p->candidates + 2);
            add_word(&p->question, sets ? "SMISMEMBER" : "ZMSCORE");
            add_key(&p->question, p, m);
            buf_add(&p->question, p->items.data, p->items.len);
        }
    }
    return p->items.failed || p->question.failed ? -1 : 0;
}

static bool next_question(const struct bench_work *work, struct bench_source *source, struct buf *out,
                          struct bench_request *request)
{
    const struct peer *p = work->own;
    (void)source;
    (void)out;
    request->body = buf_slice(&p->question);
    return true;
}

/* One value a candidate. */
static bool check_values(const struct bench_work *work, uint32_t tag, struct slice reply,
                         struct bench_findings *findings)
{
    const struct peer *p = work->own;
    size_t at = 0;
    int64_t n;
    struct slice text;
    (void)tag;
    (void)findings;
    return bench_line(reply, &at, &n, &text) == '*' && n == p->candidates;
}

/* What the callers of ZRANGE do: the members into a set, and each candidate hashed and looked up. (With half as many
 * slots, 10,000 members take a twentieth longer.) */
static uint64_t set[SET_SLOTS], hashes[CANDIDATES_MAX];

static size_t set_slot(uint64_t hash)
{
    size_t slot = (size_t)(hash >> 20) % SET_SLOTS;
    while (set[slot] != 0 && set[slot] != hash) {
        slot = (slot + 1) % SET_SLOTS;
    }
    return slot;
}

static void set_add(struct slice member)
{
    uint64_t hash = hash_id(0, member) | 1;
    set[set_slot(hash)] = hash;
}

static uint32_t count_unseen(const struct peer *p)
{
    uint32_t unseen = 0;
    hash_ids(0, p->ids, p->candidates, hashes);
    for (uint32_t i = 0; i < p->candidates; i++) {
        unseen += set[set_slot(hashes[i] | 1)] == 0;
    }
    return unseen;
}

static bool check_members(const struct bench_work *work, uint32_t tag, struct slice reply,
                          struct bench_findings *findings)
{
    const struct peer *p = work->own;
    size_t at = 0;
    int64_t n, number;
    struct slice text;
    (void)tag;
    (void)findings;
    if (bench_line(reply, &at, &n, &text) != '*' || n < 0 || n > SET_SLOTS / 2) {
        return false;
    }
    memset(set, 0, sizeof set);
    for (int64_t i = 0; i < n; i++) {
        bench_line(reply, &at, &number, &text);
        set_add(text);
    }
    return count_unseen(p) == p->expected;
}

static bool next_zadd(const struct bench_work *work, struct bench_source *source, struct buf *out,
                      struct bench_request *request)
{
    const struct peer *p = work->own;
    (void)request;
    buf_add(out, "*4\r\n$4\r\nZADD\r\n", 14);
    bench_add_user(out, "bench", zipf_next(&p->zipf, &source->random) - 1);
    buf_add(out, "$13\r\n1790000000000\r\n", 20);
    bench_add_item(out, random_next(&source->random));
    return true;
}

static bool check_added(const struct bench_work *work, uint32_t tag, struct slice reply,
                        struct bench_findings *findings)
{
    (void)work;
    (void)tag;
    (void)findings;
    return slice_eq(reply, slice_str(":1\r\n"));
}

/* The user's plays, as members of one ZSET or of monthly sets. */
static int fill(const struct peer *p, struct err *err)
{
    bool sets = strcmp(p->workload, "smismember") == 0;
    struct client *client;
    const struct reply *reply;
    int rc = client_connect(p->to, NULL, &client, err);
    if (rc < 0) {
        return rc;
    }
    for (uint32_t i = 0; i < p->plays_per_month * MONTHS && rc == 0; i++) {
        char name[64], score[32], item[BENCH_ITEM_LEN];
        snprintf(name, sizeof name, sets ? "%s:%" PRIu32 : "%s", key, i / p->plays_per_month);
        snprintf(score, sizeof score, "%" PRIu64, UINT64_C(1790000000000) + i);
        bench_write_item(item, bench_item_id(i));
        struct slice words[] = {slice_str(sets ? "SADD" : "ZADD"), slice_str(name), slice_str(score),
                                slice_of(item, sizeof item)};
        if (sets) {
            words[2] = words[3];
        }
        rc = client_call(client, words, sets ? 3 : 4, &reply, err);
    }
    client_close(client);
    return rc;
}

/* Asks once for all candidates, and counts: what is timed later looks at no more than how many values there are. */
static int count_seen(const struct peer *p, const char *command, const char *name, uint32_t *seen, struct err *err)
{
    struct client *client;
    const struct reply *reply;
    struct slice *words = calloc(p->candidates + 2, sizeof *words);
    if (words == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    words[0] = slice_str(command);
    words[1] = slice_str(name);
    memcpy(words + 2, p->ids, p->candidates * sizeof *words);
    int rc = client_connect(p->to, NULL, &client, err);
    if (rc == 0) {
        rc = client_call(client, words, p->candidates + 2, &reply, err);
        for (size_t i = 0; rc == 0 && i < reply->n; i++) {
            const struct reply *one = &reply->items[i];
            *seen += one->kind == REPLY_INTEGER ? one->integer != 0 : one->kind != REPLY_NULL;
        }
        client_close(client);
    }
    free(words);
    return rc;
}

/* The user's plays are there, and Redis tells all that are among the candidates. */
static int prepare(const struct peer *p, struct err *err)
{
    bool sets = strcmp(p->workload, "smismember") == 0;
    uint32_t seen = 0;
    int rc = fill(p, err);
    for (uint32_t m = 0; m < (sets ? MONTHS : 1) && rc == 0 && !is_whole(p); m++) {
        char name[64];
        snprintf(name, sizeof name, sets ? "%s:%" PRIu32 : "%s", key, m);
        rc = count_seen(p, sets ? "SMISMEMBER" : "ZMSCORE", name, &seen, err);
    }
    if (rc == 0 && !is_whole(p) && seen != p->candidates - p->expected) {
        rc = err_set(err, ERR_INVALID, "%s: %" PRIu32 " candidates are seen, expected %" PRIu32, p->to, seen,
                     p->candidates - p->expected);
    }
    return rc;
}

/* --- the floor --- */

struct sink {
    int listener;
    size_t request, reply;
};

/* Answers each `request` bytes with a bulk string of `reply` bytes. The first thing a client says is HELLO. */
static void *sink_main(void *arg)
{
    struct sink *s = arg;
    static char bytes[SINK_BYTES], answer[SINK_BYTES];
    int head = snprintf(answer, sizeof answer, "$%zu\r\n", s->reply), fd = accept(s->listener, NULL, NULL);
    size_t len = (size_t)head + s->reply + 2, come = 0;
    memcpy(answer + len - 2, "\r\n", 2);
    if (fd < 0 || read(fd, bytes, sizeof bytes) <= 0 || write(fd, "%0\r\n", 4) != 4) {
        return NULL;
    }
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) {
        come += (size_t)n;
        if (come == s->request) {
            come = 0;
            if (write(fd, answer, len) != (ssize_t)len) {
                break;
            }
        }
    }
    close(fd);
    return NULL;
}

static int start_sink(struct sink *s, char *address, size_t size)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    pthread_t thread;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(s->listener, 1) < 0 ||
        getsockname(s->listener, (struct sockaddr *)&a, &len) < 0) {
        return -1;
    }
    snprintf(address, size, "127.0.0.1:%d", ntohs(a.sin_port));
    if (pthread_create(&thread, NULL, sink_main, s) != 0) {
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

static bool any_bitmap(const struct bench_work *work, uint32_t tag, struct slice reply, struct bench_findings *findings)
{
    (void)work;
    (void)tag;
    (void)findings;
    return reply.data[0] == '$';
}

/* --- */

static int report(const struct peer *p, const struct bench_plan *plan, const struct bench_result *result)
{
    struct json j = {.out = stdout};
    const struct bench_cpu cpu = {false, 0, 0};
    json_open(&j, NULL, '{');
    json_text(&j, "workload", p->workload);
    bench_json(&j, plan, result, false, &cpu);
    json_close(&j, '}');
    return result->errors + result->wrong > 0 ? fail("an answer was an error, or not what was expected") : 0;
}

#ifdef WITH_HIREDIS
/* As the engine does with --poll: until the first of the reply is there. */
static void poll_for_reply(redisContext *redis)
{
    char first;
    int sent = 0;
    while (sent == 0 && redisBufferWrite(redis, &sent) == REDIS_OK) {
    }
    while (sent != 0 && recv(redis->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
    }
}

/* One question as a program with hiredis asks it. */
static bool ask_hiredis(const struct peer *p, redisContext *redis)
{
    const char *words[] = {"ZRANGE", key, "0", "-1"};
    redisReply *reply = NULL;
    bool good = redisAppendCommandArgv(redis, 4, words, NULL) == REDIS_OK;
    if (good && p->poll) {
        poll_for_reply(redis);
    }
    good = good && redisGetReply(redis, (void **)&reply) == REDIS_OK && reply != NULL &&
           reply->type == REDIS_REPLY_ARRAY && reply->elements <= SET_SLOTS / 2;
    memset(set, 0, sizeof set);
    for (size_t i = 0; good && i < reply->elements; i++) {
        set_add(slice_of(reply->element[i]->str, (size_t)reply->element[i]->len));
    }
    good = good && count_unseen(p) == p->expected;
    freeReplyObject(reply);
    return good;
}

static int run_hiredis(const struct peer *p, const struct bench_plan *plan, struct bench_result *result)
{
    char host[64];
    const char *colon = strrchr(p->to, ':');
    snprintf(host, sizeof host, "%.*s", colon == NULL ? (int)strlen(p->to) : (int)(colon - p->to), p->to);
    redisContext *redis = redisConnect(host, colon == NULL ? 6379 : atoi(colon + 1));
    if (redis == NULL || redis->err != 0) {
        return fail("can't connect");
    }
    int64_t from = clock_figures_ns() + (int64_t)(plan->warm_up * 1e9), end = from + (int64_t)(plan->seconds * 1e9);
    for (int64_t began = clock_figures_ns(), now; began < end && result->wrong == 0; began = now) {
        result->wrong += !ask_hiredis(p, redis);
        result->answered++;
        now = clock_figures_ns();
        if (began >= from) {
            histogram_note(&result->latency, (uint64_t)(now - began));
            result->done++;
            result->seconds = (double)(now - from) / 1e9;
        }
    }
    redisFree(redis);
    return report(p, plan, result);
}
#else
static int run_hiredis(const struct peer *p, const struct bench_plan *plan, struct bench_result *result)
{
    (void)p, (void)plan, (void)result;
    return fail("this program was built without hiredis");
}
#endif

static int run(const struct peer *p, const struct bench_load *load, double seconds)
{
    struct bench_plan plan = {.address = p->to,
                              .loads = load,
                              .n_loads = 1,
                              .threads = 1,
                              .poll = p->poll,
                              .warm_up = 0.5,
                              .seconds = seconds,
                              .seed = (uint64_t)clock_figures_ns()};
    struct bench_result *result = calloc(1, sizeof *result);
    struct err err = {0};
    int rc;
    if (result == NULL) {
        return fail("out of memory");
    }
    if (strcmp(p->workload, "hiredis") == 0) {
        rc = run_hiredis(p, &plan, result);
    } else if (bench_run(&plan, result, &err) < 0) {
        rc = fail(err.text);
    } else {
        rc = report(p, &plan, result);
    }
    free(result);
    return rc;
}

static int run_floor(struct peer *p, double seconds)
{
    static const struct bench_terms none = {.prefix = "bench", .users = 1, .form = BENCH_BITMAP, .months = MONTHS};
    struct bench_terms terms = none;
    struct bench_works *works;
    struct bench_source source = {.serial = 0};
    struct bench_request request;
    struct buf head = {0};
    struct err err;
    char address[64];
    terms.candidates = p->candidates;
    if (bench_works_new(&terms, &works, &err) < 0) {
        return fail(err.text);
    }
    struct bench_work work = *bench_questions(works);
    work.next(&work, &source, &head, &request);
    work.check = any_bitmap;
    struct sink sink = {.request = head.len + request.body.len, .reply = (p->candidates + 7) / 8};
    if (start_sink(&sink, address, sizeof address) < 0) {
        return fail("the sink can't be started");
    }
    p->to = address;
    int code = run(p, &(struct bench_load){.work = &work, .connections = 1, .pipeline = 1}, seconds);
    buf_free(&head);
    bench_works_free(works);
    return code;
}

static int run_redis(struct peer *p, struct bench_load *load, double seconds)
{
    bool whole = is_whole(p), sets = strcmp(p->workload, "smismember") == 0;
    struct bench_work work = {.name = "questions", .replies = sets ? MONTHS : 1, .own = p, .next = next_question};
    struct err err;
    work.check = whole ? check_members : check_values;
    load->work = &work;
    if (strcmp(p->workload, "zadd") == 0) {
        zipf_init(&p->zipf, p->users, 0);
        work = (struct bench_work){.name = "plays", .replies = 1, .own = p, .next = next_zadd, .check = check_added};
    } else if (make_question(p) < 0) {
        return fail("out of memory");
    } else if (prepare(p, &err) < 0) {
        return fail(err.text);
    }
    int code = run(p, load, seconds);
    buf_free(&p->question);
    buf_free(&p->items);
    free(p->ids);
    return code;
}

static int usage(void)
{
    fprintf(stderr, "usage: redis_peer [--to ADDRESS] [--connections N] [--pipeline N] [--seconds S] [--poll]\n"
                    "                  [--candidates N] [--plays-per-month N] [--users N] "
                    "zrange|hiredis|zmscore|smismember|zadd|floor\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"to", required_argument, NULL, 't'},
        {"connections", required_argument, NULL, 'c'},
        {"pipeline", required_argument, NULL, 'P'},
        {"seconds", required_argument, NULL, 's'},
        {"candidates", required_argument, NULL, 'n'},
        {"plays-per-month", required_argument, NULL, 'p'},
        {"users", required_argument, NULL, 'u'},
        {"poll", no_argument, NULL, 'o'},
        {NULL, 0, NULL, 0},
    };
    static const char *const workloads[] = {"zrange", "hiredis", "zmscore", "smismember", "zadd", "floor"};
    struct peer p = {.to = "127.0.0.1:6379", .candidates = 10000, .plays_per_month = 2500, .users = 100000};
    struct bench_load load = {.connections = 1, .pipeline = 1};
    double seconds = 5;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 't':
            p.to = optarg;
            break;
        case 'c':
            load.connections = atoi(optarg);
            break;
        case 'P':
            load.pipeline = atoi(optarg);
            break;
        case 'o':
            p.poll = true;
            break;
        case 's':
            seconds = atof(optarg);
            break;
        case 'n':
            p.candidates = (uint32_t)atoi(optarg);
            break;
        case 'p':
            p.plays_per_month = (uint32_t)atoi(optarg);
            break;
        case 'u':
            p.users = (uint32_t)atoi(optarg);
            break;
        default:
            return usage();
        }
    }
    for (size_t i = 0; optind + 1 == argc && i < sizeof workloads / sizeof *workloads; i++) {
        p.workload = strcmp(argv[optind], workloads[i]) == 0 ? workloads[i] : p.workload;
    }
    if (p.workload == NULL || load.connections < 1 || load.pipeline < 1 || load.pipeline > BENCH_PIPELINE_MAX ||
        !(seconds > 0) || p.candidates < 1 || p.candidates > CANDIDATES_MAX || p.plays_per_month < 1 || p.users < 1) {
        return usage();
    }
    return strcmp(p.workload, "floor") == 0 ? run_floor(&p, seconds) : run_redis(&p, &load, seconds);
}
