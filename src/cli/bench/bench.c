/* `unseen bench`: how fast a running server is, from the outside. Reads the arguments, prepares users if asked to, runs
 * the engine, prints. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/plural.h"
#include "base/text.h"
#include "cli/bench/bench_engine.h"
#include "cli/bench/bench_ids.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_work.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "dedup/pools.h"
#include "net/client.h"

static const char help[] =
    "Measures a running server: sends it questions, plays or pings, and times the answers.\n\n"
    "Usage: unseen bench [--workload KIND] [OPTION ...]\n\n"
    "Users are bench:00000000 and on; --prepare gives each the same plays in the current and earlier months, flushed,\n"
    "so that questions find something. The plays stay: use a server made for it, or FORGET the users.\n\n"
    "Without --rate it's a closed loop: each connection sends as fast as answers come. With --rate each request is\n"
    "due at a moment of its own, and its time counts from that moment on, so that waiting behind a slow answer is\n"
    "part of it.\n\n"
    "Options:\n"
    "      --to ADDRESS       host:port, tls://host:port or unix:/path (default: where the configuration listens);\n"
    "                         its password is requirepass of the configuration, or $UNSEEN_PASSWORD;\n"
    "                         $UNSEEN_USER: its account\n"
    "      --workload KIND    unseen: questions (default); played: plays, one a command; ping; mixed: questions on "
    "one\n"
    "                         half of the connections and plays on the other\n"
    "      --seconds S        how long it is measured (5)\n"
    "      --warm-up S        how long it runs before that (0.5)\n"
    "      --connections N    how many (1; mixed: 2)\n"
    "      --pipeline N       requests under way on a connection (1)\n"
    "      --threads N        of this program (1)\n"
    "      --poll             never sleep: each thread keeps a core busy. Then the times don't include waking it,\n"
    "                         which on a virtual machine can take as long as the answer itself. A server that shares\n"
    "                         the cores goes first, as if the clients were on a machine of their own\n"
    "      --rate R           requests a second over all connections; default: as many as possible\n"
    "      --arrivals HOW     with --rate: even (default), or random, as from independent users (Poisson)\n"
    "      --plays-per-question N   mixed with --rate: how many plays come with a question (7)\n"
    "      --users N          how many users are asked about (1000)\n"
    "      --skew S           how unevenly: Zipf's exponent, 0 is even (0.99)\n"
    "      --prefix TEXT      of the users' names (bench)\n"
    "      --candidates N     of a question (2000)\n"
    "      --seen-percent P   of the candidates that were played (30)\n"
    "      --reply FORM       bitmap (default), items or indexes\n"
    "      --pool             the candidates are pools on the server, which are set first and stay, and questions "
    "name\n"
    "                         them\n"
    "      --hashes           questions hold hashes instead of ids (FILTER ... HASHES); for an account of the role "
    "admin,\n"
    "                         which gets the seed\n"
    "      --limit N          with --pool: ask for the first N only, as items or indexes\n"
    "      --deliver          with --limit of at most 100: and record them as delivered\n"
    "      --prepare          first record the users' plays, and flush the ring\n"
    "      --plays-per-month N   of each prepared user (200)\n"
    "      --months N         with plays, the current one included (4)\n"
    "      --verify           look into every answer: nothing that was played may be unseen; count what is hidden\n"
    "                         without having been played. The users must have been prepared with the same options\n"
    "      --json             print JSON\n\n"
    "Exit code: 0 good; 1 failed, or an answer was an error or wrong, or none came; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen bench --prepare --verify\n"
    "  unseen bench --users 1 --prepare --plays-per-month 2500 --candidates 10000\n"
    "  unseen bench --workload played --connections 8 --pipeline 64 --users 100000\n"
    "  unseen bench --workload mixed --connections 16 --rate 20000 --arrivals random --seconds 60 --json\n";

enum { LOADS_MAX = 2, THREADS_MAX = 64, CONNECTIONS_MAX = 50000, PREPARE_CONNECTIONS = 4, PREPARE_SILENCE_S = 120 };

struct bench {
    struct config cfg;
    char to[CONFIG_TEXT + 8];
    const char *password;
    struct bench_terms terms;
    struct bench_plan plan;
    struct bench_load loads[LOADS_MAX];
    struct bench_result *results;
    struct bench_works *works;
    const char *workload;
    uint64_t connections, pipeline, threads;
    double rate, plays_per_question;
    bool prepare, json;
    struct bench_cpu cpu;
};

/* --- arguments --- */

static bool whole(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out, int *exit_code)
{
    if (text == NULL) {
        return true;
    }
    uint64_t n;
    if (!count_read(text, max, &n) || n < min) {
        *exit_code = cli_misuse("bench", "--%s '%s': expected a whole number from %llu to %llu", name, text,
                                (unsigned long long)min, (unsigned long long)max);
        return false;
    }
    *out = n;
    return true;
}

static bool number(const char *name, const char *text, double min, double max, double *out, int *exit_code)
{
    if (text == NULL) {
        return true;
    }
    char *end;
    errno = 0;
    double n = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(n >= min && n <= max)) {
        *exit_code = cli_misuse("bench", "--%s '%s': expected a number from %g to %g", name, text, min, max);
        return false;
    }
    *out = n;
    return true;
}

/* Sets *out to the place of text among the words. */
static bool one_of(const char *name, const char *text, const char *const words[], size_t n, size_t *out, int *exit_code)
{
    if (text == NULL) {
        return true;
    }
    char list[128] = "";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return true;
        }
        strcat(list, i == 0 ? "" : i + 1 == n ? " or " : ", ");
        strcat(list, words[i]);
    }
    *exit_code = cli_misuse("bench", "--%s '%s': expected %s", name, text, list);
    return false;
}

static bool good_prefix(const char *text, int *exit_code)
{
    size_t len = strlen(text);
    bool good = len >= BENCH_PREFIX_MIN && len <= BENCH_PREFIX_MAX;
    for (size_t i = 0; i < len; i++) {
        good = good && text[i] > ' ' && text[i] < 0x7f;
    }
    if (!good) {
        *exit_code =
            cli_misuse("bench", "--prefix '%s': expected 1 to %d characters, no blanks", text, BENCH_PREFIX_MAX);
    }
    return good;
}

/* The options as they were typed. */
struct texts {
    const char *to, *workload, *seconds, *warm_up, *connections, *pipeline, *threads, *rate, *arrivals;
    const char *plays_per_question, *users, *skew, *prefix, *candidates, *seen_percent, *reply, *plays_per_month,
        *months, *limit;
};

static bool read_terms(struct bench *b, const struct texts *t, int *exit_code)
{
    static const char *const forms[] = {"items", "indexes", "bitmap"};
    struct bench_terms *terms = &b->terms;
    uint64_t users = 1000, candidates = 2000, seen = 30, plays = 200, months = 4, limit = 0;
    size_t form = BENCH_BITMAP;
    terms->skew = 0.99;
    terms->prefix = t->prefix != NULL ? t->prefix : "bench";
    bool good =
        whole("users", t->users, 1, BENCH_USERS_MAX, &users, exit_code) &&
        number("skew", t->skew, 0, 10, &terms->skew, exit_code) && good_prefix(terms->prefix, exit_code) &&
        whole("candidates", t->candidates, 1, terms->pools ? POOL_ITEMS_MAX : ITEMS_MAX, &candidates, exit_code) &&
        whole("limit", t->limit, 1, ITEMS_MAX, &limit, exit_code) &&
        whole("seen-percent", t->seen_percent, 0, 100, &seen, exit_code) &&
        one_of("reply", t->reply, forms, 3, &form, exit_code) &&
        whole("plays-per-month", t->plays_per_month, 0, 100 * 1000 * 1000, &plays, exit_code) &&
        whole("months", t->months, 1, 120, &months, exit_code);
    terms->users = users;
    terms->candidates = (uint32_t)candidates;
    terms->seen_percent = (uint32_t)seen;
    terms->plays_per_month = (uint32_t)plays;
    terms->months = (uint32_t)months;
    terms->form = (enum bench_reply_form)form;
    terms->limit = (uint32_t)limit;
    if (good && limit > 0 && (!terms->pools || terms->form == BENCH_BITMAP)) {
        *exit_code = cli_misuse("bench", "--limit needs --pool, and --reply items or indexes");
        good = false;
    }
    if (good && terms->deliver && (limit == 0 || limit > DELIVER_MAX)) {
        *exit_code = cli_misuse("bench", "--deliver needs --limit of at most 100");
        good = false;
    }
    if (good && terms->hashes && (terms->pools || terms->form == BENCH_ITEMS)) {
        *exit_code = cli_misuse("bench", "--hashes can't be used with --pool or --reply items");
        good = false;
    }
    return good;
}

static bool asks(const struct bench *b)
{
    return strcmp(b->workload, "unseen") == 0 || strcmp(b->workload, "mixed") == 0;
}

static bool read_plan(struct bench *b, const struct texts *t, int *exit_code)
{
    static const char *const kinds[] = {"unseen", "played", "ping", "mixed"}, *const arrivals[] = {"even", "random"};
    size_t kind = 0, random = 0;
    if (!one_of("workload", t->workload, kinds, 4, &kind, exit_code)) {
        return false;
    }
    bool mixed = kind == 3;
    b->workload = kinds[kind];
    b->connections = mixed ? 2 : 1;
    b->pipeline = b->threads = 1;
    b->plan.seconds = 5;
    b->plan.warm_up = 0.5;
    b->plays_per_question = 7;
    if (!number("seconds", t->seconds, 0.01, 1e6, &b->plan.seconds, exit_code) ||
        !number("warm-up", t->warm_up, 0, 1e6, &b->plan.warm_up, exit_code) ||
        !whole("connections", t->connections, mixed ? 2 : 1, CONNECTIONS_MAX, &b->connections, exit_code) ||
        !whole("pipeline", t->pipeline, 1, BENCH_PIPELINE_MAX, &b->pipeline, exit_code) ||
        !whole("threads", t->threads, 1, THREADS_MAX, &b->threads, exit_code) ||
        !number("rate", t->rate, 0.01, 1e9, &b->rate, exit_code) ||
        !one_of("arrivals", t->arrivals, arrivals, 2, &random, exit_code) ||
        !number("plays-per-question", t->plays_per_question, 0.01, 1e6, &b->plays_per_question, exit_code)) {
        return false;
    }
    if (b->threads > b->connections) {
        *exit_code = cli_misuse("bench", "--threads %llu: more than there are connections (%llu)",
                                (unsigned long long)b->threads, (unsigned long long)b->connections);
        return false;
    }
    if (b->rate <= 0 && (t->arrivals != NULL || t->plays_per_question != NULL)) {
        *exit_code = cli_misuse("bench", "--%s needs --rate", t->arrivals != NULL ? "arrivals" : "plays-per-question");
        return false;
    }
    if (!mixed && t->plays_per_question != NULL) {
        *exit_code = cli_misuse("bench", "--plays-per-question needs --workload mixed");
        return false;
    }
    if (!asks(b) && b->terms.verify) {
        *exit_code = cli_misuse("bench", "--verify needs questions: --workload unseen or mixed");
        return false;
    }
    b->plan.random_arrivals = random == 1;
    return true;
}

/* Where the server of the configuration listens. */
static int find_server(struct bench *b, const char *to, struct err *err)
{
    const char *listen = strcmp(b->cfg.listen, "none") == 0 ? "" : b->cfg.listen;
    if (to != NULL) {
        snprintf(b->to, sizeof b->to, "%s", to);
    } else if (listen[0] != '\0') {
        snprintf(b->to, sizeof b->to, "%.*s", (int)strcspn(listen, ", \t"), listen); /* the first of several */
    } else if (b->cfg.unix_socket[0] != '\0') {
        snprintf(b->to, sizeof b->to, "unix:%s", b->cfg.unix_socket);
    } else {
        return err_set(err, ERR_INVALID, "bench: the configuration listens nowhere: say where with --to");
    }
    return client_prepare(&b->cfg, &b->password, err);
}

/* --- running --- */

static void add_load(struct bench *b, const struct bench_work *work, uint64_t connections, double rate)
{
    b->loads[b->plan.n_loads++] =
        (struct bench_load){.work = work, .connections = (int)connections, .pipeline = (int)b->pipeline, .rate = rate};
}

static void make_plan(struct bench *b)
{
    struct bench_plan *p = &b->plan;
    p->address = b->to;
    p->password = b->password;
    p->loads = b->loads;
    p->threads = (int)b->threads;
    p->seed = (uint64_t)clock_figures_ns() ^ (uint64_t)clock_wall_ms() << 20; /* a second run plays other items */
    if (strcmp(b->workload, "mixed") == 0) {
        double part = b->rate / (b->plays_per_question + 1);
        add_load(b, bench_questions(b->works), b->connections / 2, part);
        add_load(b, bench_plays(b->works), b->connections - b->connections / 2, b->rate - part);
    } else if (strcmp(b->workload, "unseen") == 0) {
        add_load(b, bench_questions(b->works), b->connections, b->rate);
    } else {
        add_load(b, strcmp(b->workload, "ping") == 0 ? bench_pings(b->works) : bench_plays(b->works), b->connections,
                 b->rate);
    }
}

static int flush_ring(const struct bench *b, struct err *err)
{
    struct client *client;
    const struct slice words[] = {slice_str("RING"), slice_str("FLUSH")};
    const struct reply *reply;
    int rc = client_connect(b->to, b->password, &client, err);
    if (rc == 0) {
        rc = client_call(client, words, 2, &reply, err);
        client_close(client);
    }
    return rc;
}

static int prepare(struct bench *b, struct err *err)
{
    const struct bench_work *work;
    int rc = bench_preparation(b->works, &work, err);
    if (rc < 0) {
        return rc;
    }
    const struct bench_load load = {.work = work, .connections = PREPARE_CONNECTIONS, .pipeline = 16};
    const struct bench_plan plan = {.address = b->to,
                                    .password = b->password,
                                    .loads = &load,
                                    .n_loads = 1,
                                    .threads = 1,
                                    .silence = PREPARE_SILENCE_S};
    int64_t began = clock_figures_us();
    struct bench_result *result = calloc(1, sizeof *result);
    rc = result == NULL ? err_set(err, ERR_NOMEM, "out of memory") : bench_run(&plan, result, err);
    if (rc == 0 && result->errors + result->wrong > 0) {
        rc = err_set(err, ERR_INVALID, "%s: the plays of users were refused: %s", b->to,
                     result->errors > 0 ? result->named[0].text : "a wrong answer");
    }
    if (rc == 0) {
        rc = flush_ring(b, err);
    }
    if (rc == 0) {
        char users[OUTPUT_TEXT], plays[OUTPUT_TEXT];
        const struct bench_terms *t = &b->terms;
        fprintf(stderr, "prepared %s user%s with %s play%s each in %.1f s\n", count_text(t->users, users),
                plural(t->users), count_text((uint64_t)t->plays_per_month * t->months, plays),
                plural((uint64_t)t->plays_per_month * t->months), (double)(clock_figures_us() - began) / 1e6);
    }
    free(result);
    return rc;
}

/* used_cpu_user:0.123 of INFO's text; false when it isn't there. */
static bool info_seconds(struct slice text, const char *name, double *out)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.data);
    const char *at = strstr(copy, name);
    *out = at != NULL ? strtod(at + strlen(name), NULL) : 0;
    return at != NULL;
}

/* What the server has used so far; not known when it doesn't say so. */
static void read_cpu(struct client *client, struct bench_cpu *cpu)
{
    const struct slice words[] = {slice_str("INFO"), slice_str("cpu")};
    const struct reply *reply;
    struct err err;
    cpu->known = client_call(client, words, 2, &reply, &err) == 0 && reply->kind == REPLY_TEXT &&
                 info_seconds(reply->text, "used_cpu_user:", &cpu->user) &&
                 info_seconds(reply->text, "used_cpu_sys:", &cpu->system);
}

static int measure(struct bench *b, struct err *err)
{
    struct client *client;
    struct bench_cpu before, after;
    int rc = client_connect(b->to, b->password, &client, err);
    if (rc < 0) {
        return rc;
    }
    read_cpu(client, &before);
    rc = bench_run(&b->plan, b->results, err);
    if (rc == 0) {
        read_cpu(client, &after);
        b->cpu =
            (struct bench_cpu){before.known && after.known, after.user - before.user, after.system - before.system};
    }
    client_close(client);
    return rc;
}

static int run(struct bench *b, struct err *err)
{
    b->results = calloc(LOADS_MAX, sizeof *b->results);
    if (b->results == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int rc = b->terms.hashes ? bench_read_seed(&b->terms, b->to, b->password, err) : 0;
    if (rc == 0) {
        rc = bench_works_new(&b->terms, &b->works, err);
    }
    if (rc == 0 && b->prepare) {
        rc = prepare(b, err);
    }
    if (rc == 0 && b->terms.pools) {
        rc = bench_make_pools(b->works, b->to, b->password, err);
    }
    if (rc == 0) {
        make_plan(b);
        rc = measure(b, err);
    }
    return rc;
}

static void print_json(const struct bench *b)
{
    static const char *const forms[] = {"items", "indexes", "bitmap"};
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_text(&j, "workload", b->workload);
    json_text(&j, "to", b->to);
    json_number(&j, "users", (int64_t)b->terms.users);
    json_double(&j, "skew", b->terms.skew);
    json_number(&j, "candidates", b->terms.candidates);
    json_number(&j, "seen_percent", b->terms.seen_percent);
    json_text(&j, "reply", forms[b->terms.form]);
    json_number(&j, "plays_per_month", b->terms.plays_per_month);
    json_number(&j, "months", b->terms.months);
    bench_json(&j, &b->plan, b->results, b->terms.verify, &b->cpu);
    json_close(&j, '}');
}

static void print_people(const struct bench *b)
{
    char text[OUTPUT_TEXT];
    printf("%s to %s: %llu connection%s, pipeline %llu, %g s", b->workload, b->to, (unsigned long long)b->connections,
           plural((uint64_t)b->connections), (unsigned long long)b->pipeline, b->plan.seconds);
    if (b->rate > 0) {
        printf(", %g a second due at %s moments\n", b->rate, b->plan.random_arrivals ? "random" : "even");
    } else {
        printf(", closed loop\n");
    }
    if (strcmp(b->workload, "ping") != 0) {
        printf("%s user%s, skew %g", count_text(b->terms.users, text), plural(b->terms.users), b->terms.skew);
        if (asks(b)) {
            printf("; %s candidate%s, %u %% of them played", count_text(b->terms.candidates, text),
                   plural(b->terms.candidates), b->terms.seen_percent);
        }
        putchar('\n');
    }
    putchar('\n');
    bench_print(stdout, &b->plan, b->results, b->terms.verify, &b->cpu);
}

static bool all_good(const struct bench *b)
{
    uint64_t bad = 0;
    for (int i = 0; i < b->plan.n_loads; i++) {
        const struct bench_result *r = &b->results[i];
        bad += r->errors + r->wrong + r->unanswered + (r->latency.count == 0);
    }
    return bad == 0;
}

int cli_bench(int argc, char **argv)
{
    struct bench b = {.workload = ""};
    struct texts t = {.to = NULL};
    const struct cli_flag flags[] = {
        {"to", NULL, &t.to},
        {"workload", NULL, &t.workload},
        {"seconds", NULL, &t.seconds},
        {"warm-up", NULL, &t.warm_up},
        {"connections", NULL, &t.connections},
        {"pipeline", NULL, &t.pipeline},
        {"threads", NULL, &t.threads},
        {"poll", &b.plan.poll, NULL},
        {"rate", NULL, &t.rate},
        {"arrivals", NULL, &t.arrivals},
        {"plays-per-question", NULL, &t.plays_per_question},
        {"users", NULL, &t.users},
        {"skew", NULL, &t.skew},
        {"prefix", NULL, &t.prefix},
        {"candidates", NULL, &t.candidates},
        {"seen-percent", NULL, &t.seen_percent},
        {"reply", NULL, &t.reply},
        {"pool", &b.terms.pools, NULL},
        {"hashes", &b.terms.hashes, NULL},
        {"limit", NULL, &t.limit},
        {"deliver", &b.terms.deliver, NULL},
        {"prepare", &b.prepare, NULL},
        {"plays-per-month", NULL, &t.plays_per_month},
        {"months", NULL, &t.months},
        {"verify", &b.terms.verify, NULL},
        {"json", &b.json, NULL},
        {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"bench", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code) || !read_terms(&b, &t, &exit_code) ||
        !read_plan(&b, &t, &exit_code)) {
        return exit_code;
    }
    struct err err;
    if (cli_options_config(&options, &b.cfg, &err) < 0 || find_server(&b, t.to, &err) < 0) {
        return cli_fail(&err);
    }
    if (run(&b, &err) < 0) {
        exit_code = cli_fail(&err);
    } else {
        b.json ? print_json(&b) : print_people(&b);
        exit_code = all_good(&b) ? EXIT_GOOD : EXIT_FAILED;
    }
    bench_works_free(b.works);
    free(b.results);
    return exit_code;
}
