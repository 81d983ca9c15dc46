/* Small benchmarks of what a question spends its time on: `make bench/micro && bench/micro`.
 *
 * Each figure is the median of several samples, each of which repeats the work for two milliseconds on other data
 * of the same kind, in processor time. Sizes are exact. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/wire.h"
#include "bench/rival_planes.h"
#include "dedup/pool_match.h"
#include "filter/probe.h"
#include "filter/sieve.h"
#include "grpc/message.h"
#include "resp/parser.h"

enum { SAMPLES = 21, SAMPLE_US = 2000 };

static uint64_t random_state = 1;

static uint64_t random_next(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void *must_alloc(size_t size)
{
    void *p = malloc(size);
    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The thread's own time, so that other work on the machine disturbs less. */
static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Median nanoseconds of one call of work(arg, round). */
static double median_ns(void (*work)(void *arg, unsigned round), void *arg)
{
    double samples[SAMPLES];
    unsigned round = 0, rounds = 1;
    for (int i = 0; i < SAMPLES;) {
        double began = cpu_us();
        for (unsigned r = 0; r < rounds; r++) {
            work(arg, round++);
        }
        double took = cpu_us() - began;
        if (i == 0 && took < SAMPLE_US && rounds < 1U << 30) { /* until a sample is long enough */
            rounds = took < SAMPLE_US / 8 ? rounds * 8 : rounds * 2;
            continue;
        }
        samples[i++] = took * 1000 / rounds;
    }
    qsort(samples, SAMPLES, sizeof *samples, compare_doubles);
    return samples[SAMPLES / 2];
}

/* n items; m < 2^32 cuts. */
static struct filter_part random_part(uint32_t n, uint64_t m, uint64_t *hashes)
{
    struct filter_part part = {.positions = must_alloc((n + 1) * sizeof(uint32_t)), .m = FILTER_LIVE_M};
    uint32_t *scratch = must_alloc((n + 1) * sizeof *scratch);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = random_next();
        part.positions[i] = filter_position(hash, FILTER_LIVE_M);
        if (hashes != NULL) {
            hashes[i] = hash;
        }
    }
    part.n = filter_sort(part.positions, n, scratch);
    free(scratch);
    must(m == FILTER_LIVE_M || filter_cut(&part, m) == 0, "a filter can't be cut");
    return part;
}

/* The codec and its rival, on so many filters that the branch predictor can't learn them. */
enum { FILTERS_MAX = 256 };
struct codec_bench {
    unsigned n_filters;
    struct filter filters[FILTERS_MAX];
    struct buf blobs[FILTERS_MAX];
    uint8_t *rivals[FILTERS_MAX];
    size_t rival_lens[FILTERS_MAX];
    struct buf out;
    struct arena arena;
    struct planes *planes;
    uint8_t *rival_out;
    uint32_t *rival_positions;
};

static void encode_once(void *arg, unsigned round)
{
    struct codec_bench *b = arg;
    buf_clear(&b->out);
    must(filter_encode(&b->filters[round % b->n_filters], &b->out) == 0, "can't encode");
}

static void decode_once(void *arg, unsigned round)
{
    struct codec_bench *b = arg;
    struct buf *blob = &b->blobs[round % b->n_filters];
    struct filter f;
    struct err err;
    arena_reset(&b->arena);
    must(filter_decode(blob->data, blob->len, &b->arena, &f, &err) == 0, "can't decode");
}

static void rival_encode_once(void *arg, unsigned round)
{
    struct codec_bench *b = arg;
    planes_encode(b->planes, &b->filters[round % b->n_filters].parts[0], b->rival_out);
}

static void rival_decode_once(void *arg, unsigned round)
{
    struct codec_bench *b = arg;
    unsigned i = round % b->n_filters;
    struct filter_part part = {.positions = b->rival_positions};
    planes_decode(b->planes, b->rivals[i], b->rival_lens[i], &part);
}

/* log2(m over n) / n: fewer bits an item can't tell all sets of n positions apart. */
static double least_bits(double n, double m)
{
    return (lgamma(m + 1) - lgamma(n + 1) - lgamma(m - n + 1)) / log(2) / n;
}

/* The forms of a blob. Short ones are of coarse parts. */
enum form { SEALED, LIVE, SHORT_SEALED, SHORT_LIVE };
static const char *const form_names[] = {"sealed", "live", "sealed, short", "live, short"};

static uint64_t range_of(enum form form, uint32_t n)
{
    switch (form) {
    case SHORT_SEALED:
        return (uint64_t)n << 12;
    case SHORT_LIVE:
        return FILTER_LIVE_M >> FILTER_GRAIN;
    case LIVE:
        return FILTER_LIVE_M;
    default:
        return (uint64_t)ceil(n / 2.5e-4);
    }
}

static void bench_codec(uint32_t n, enum form form)
{
    static struct codec_bench b;
    b = (struct codec_bench){.n_filters = n < 1000 ? FILTERS_MAX : 1 + 200000 / n};
    const uint64_t m = range_of(form, n);
    double bytes = 0, rival_bytes = 0, items = 0;
    b.planes = planes_new(n);
    b.rival_out = must_alloc(planes_bound(n));
    b.rival_positions = must_alloc(n * sizeof(uint32_t));
    for (unsigned i = 0; i < b.n_filters; i++) {
        b.filters[i] = (struct filter){.n_parts = 1, .parts = {random_part(n, m, NULL)}};
        b.filters[i].parts[0].coarse = form >= SHORT_SEALED;
        const struct filter_part *part = &b.filters[i].parts[0];
        must(filter_encode(&b.filters[i], &b.blobs[i]) == 0, "can't encode");
        b.rival_lens[i] = planes_encode(b.planes, part, b.rival_out);
        b.rivals[i] = must_alloc(b.rival_lens[i]);
        memcpy(b.rivals[i], b.rival_out, b.rival_lens[i]);
        struct filter_part check = {.positions = b.rival_positions};
        planes_decode(b.planes, b.rivals[i], b.rival_lens[i], &check);
        must(check.n == part->n && memcmp(check.positions, part->positions, part->n * sizeof(uint32_t)) == 0,
             "the rival lost something");
        items += part->n;
        bytes += (double)b.blobs[i].len;
        rival_bytes += (double)b.rival_lens[i];
    }
    printf("%-13s %7u %9.2f %8.2f %8.2f %10.1f %8.1f %10.1f %8.1f\n", form_names[form], n, least_bits(n, (double)m),
           bytes * 8 / items, rival_bytes * 8 / items, median_ns(decode_once, &b) / n,
           median_ns(rival_decode_once, &b) / n, median_ns(encode_once, &b) / n, median_ns(rival_encode_once, &b) / n);
    for (unsigned i = 0; i < b.n_filters; i++) {
        free(b.filters[i].parts[0].positions);
        free(b.rivals[i]);
        buf_free(&b.blobs[i]);
    }
    buf_free(&b.out);
    arena_free(&b.arena);
    planes_free(b.planes);
    free(b.rival_out);
    free(b.rival_positions);
}

/* Sorting new positions and merging them into a filter, as a flush does. */
struct merge_bench {
    uint32_t n;
    uint32_t *given, *sorted, *scratch;
    struct filter_part a, b;
    uint32_t *out;
};

static void sort_once(void *arg, unsigned round)
{
    struct merge_bench *b = arg;
    (void)round;
    memcpy(b->sorted, b->given, b->n * sizeof(uint32_t));
    filter_sort(b->sorted, b->n, b->scratch);
}

static void sort_in_place_once(void *arg, unsigned round)
{
    struct merge_bench *b = arg;
    (void)round;
    memcpy(b->sorted, b->given, b->n * sizeof(uint32_t));
    filter_sort(b->sorted, b->n, NULL);
}

static void union_once(void *arg, unsigned round)
{
    struct merge_bench *b = arg;
    (void)round;
    filter_union(b->a.positions, b->a.n, b->b.positions, b->b.n, b->out);
}

static void bench_merge(uint32_t n)
{
    struct merge_bench b = {.n = n, .a = random_part(n, FILTER_LIVE_M, NULL), .b = random_part(n, FILTER_LIVE_M, NULL)};
    b.given = must_alloc(n * sizeof(uint32_t));
    b.sorted = must_alloc(n * sizeof(uint32_t));
    b.scratch = must_alloc(n * sizeof(uint32_t));
    b.out = must_alloc(2 * n * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        b.given[i] = (uint32_t)random_next();
    }
    printf("%7u %10.1f %10.1f %10.1f\n", n, median_ns(sort_once, &b) / n, median_ns(sort_in_place_once, &b) / n,
           median_ns(union_once, &b) / (2 * n));
    free(b.given);
    free(b.sorted);
    free(b.scratch);
    free(b.out);
    free(b.a.positions);
    free(b.b.positions);
}

/* A question: four months, three of them sealed, and a share of the candidates seen. */
enum { MONTHS = 4, CANDIDATES = 10000, LISTS = 64 };
struct probe_bench {
    struct filter_part parts[MONTHS];
    const struct filter_part *pointers[MONTHS];
    struct buf blobs[MONTHS];
    struct arena arena;
    struct probe_input in;
    struct probe *probe;
    struct sieve *sieve;
    uint64_t *lists[LISTS];
    uint8_t unseen[CANDIDATES / 8];
};

static void probe_build_once(void *arg, unsigned round)
{
    struct probe_bench *b = arg;
    (void)round;
    must(probe_build(b->probe, &b->in) == 0, "out of memory");
}

static void probe_test_once(void *arg, unsigned round)
{
    struct probe_bench *b = arg;
    probe_test(b->probe, b->lists[round % LISTS], CANDIDATES, b->unseen);
}

static void whole_question_once(void *arg, unsigned round)
{
    struct probe_bench *b = arg;
    struct filter f[MONTHS];
    const struct filter_part *parts[MONTHS];
    struct err err;
    arena_reset(&b->arena);
    for (int i = 0; i < MONTHS; i++) {
        must(filter_decode(b->blobs[i].data, b->blobs[i].len, &b->arena, &f[i], &err) == 0, "can't decode");
        parts[i] = &f[i].parts[0];
    }
    struct probe_input in = b->in;
    in.parts = parts;
    must(probe_build(b->probe, &in) == 0, "out of memory");
    probe_test(b->probe, b->lists[round % LISTS], CANDIDATES, b->unseen);
}

/* The same through the sieve, as it's done for large users. */
static void sifted_question_once(void *arg, unsigned round)
{
    struct probe_bench *b = arg;
    struct filter f;
    struct err err;
    must(sieve_begin(b->sieve, b->lists[round % LISTS], CANDIDATES) == 0, "out of memory");
    for (int i = 0; i < MONTHS; i++) {
        must(filter_scan(b->blobs[i].data, b->blobs[i].len, sieve_see, b->sieve, &f, &err) == 0, "can't decode");
        sieve_month(b->sieve, true);
    }
    for (size_t i = 0; i < b->in.n_exact; i++) {
        sieve_exact(b->sieve, b->in.exact[i]);
    }
    for (size_t i = 0; i < b->in.n_exceptions; i++) {
        sieve_except(b->sieve, b->in.exceptions[i]);
    }
    sieve_end(b->sieve, b->unseen);
}

static void bench_probe(uint32_t n, size_t n_exact, size_t n_exceptions, unsigned seen_percent)
{
    static struct probe_bench b;
    b = (struct probe_bench){.probe = probe_new(), .sieve = sieve_new()};
    must(b.probe != NULL && b.sieve != NULL, "out of memory");
    uint64_t *hashes = must_alloc((size_t)MONTHS * n * sizeof *hashes);
    uint64_t *exact = must_alloc((n_exact + n_exceptions + 1) * sizeof *exact);
    for (unsigned i = 0; i < MONTHS; i++) {
        b.parts[i] = random_part(n, i == 0 ? FILTER_LIVE_M : (uint64_t)(n / 3.2e-4), hashes + (size_t)i * n);
        b.pointers[i] = &b.parts[i];
        const struct filter f = {.n_parts = 1, .parts = {b.parts[i]}};
        must(filter_encode(&f, &b.blobs[i]) == 0, "can't encode");
    }
    for (size_t i = 0; i < n_exact + n_exceptions; i++) {
        exact[i] = random_next();
    }
    b.in = (struct probe_input){.parts = b.pointers,
                                .n_parts = MONTHS,
                                .exact = exact,
                                .n_exact = n_exact,
                                .exceptions = exact + n_exact,
                                .n_exceptions = n_exceptions};
    for (unsigned list = 0; list < LISTS; list++) {
        b.lists[list] = must_alloc(CANDIDATES * sizeof(uint64_t));
        for (unsigned i = 0; i < CANDIDATES; i++) {
            bool seen = random_next() % 100 < seen_percent;
            b.lists[list][i] = seen ? hashes[random_next() % ((uint64_t)MONTHS * n)] : random_next();
        }
    }
    double build = median_ns(probe_build_once, &b), test = median_ns(probe_test_once, &b);
    double whole = median_ns(whole_question_once, &b), sifted = median_ns(sifted_question_once, &b);
    printf("%7u %7zu %6zu %5u%% %10.1f %10.1f %10.1f %12.1f %12zu\n", n, n_exact, n_exceptions, seen_percent,
           build / 1000, test / 1000, whole / 1000, sifted / 1000, probe_trim(b.probe, SIZE_MAX));
    for (unsigned i = 0; i < MONTHS; i++) {
        free(b.parts[i].positions);
        buf_free(&b.blobs[i]);
    }
    for (unsigned list = 0; list < LISTS; list++) {
        free(b.lists[list]);
    }
    arena_free(&b.arena);
    probe_free(b.probe);
    sieve_free(b.sieve);
    free(hashes);
    free(exact);
}

/* The same question about a pool: the months are looked up in it, beside a probe that is built of them and tested with
 * all of it. */
enum { POOLS = 3 };
struct pool_bench {
    struct store_month months[MONTHS];
    const struct filter_part *pointers[MONTHS];
    struct store_view view;
    struct probe_input in;
    struct probe *probe;
    struct pool *pools[POOLS];
    struct pool_line lines[POOLS];
    uint8_t *unseen;
};

static void match_once(void *arg, unsigned round)
{
    struct pool_bench *b = arg;
    pool_match(&b->lines[round % POOLS], &b->view, b->unseen);
}

static void probe_pool_once(void *arg, unsigned round)
{
    struct pool_bench *b = arg;
    const struct pool *pool = b->pools[round % POOLS];
    must(probe_build(b->probe, &b->in) == 0, "out of memory");
    probe_test(b->probe, pool->hashes, pool->n, b->unseen);
}

/* Items that nobody else has, and their hashes. */
static struct pool *random_pool(size_t n, struct pool_budget *budget)
{
    struct buf packed = {0};
    struct pool *pool = NULL;
    struct err err;
    for (size_t i = 0; i < n; i++) {
        char id[26];
        snprintf(id, sizeof id, "%025llu", (unsigned long long)random_next());
        must(pool_pack(&packed, slice_str(id)) == 0, "out of memory");
    }
    must(pool_make(1, slice_str("pool"), NULL, buf_slice(&packed), 0, budget, UINT64_MAX, &pool, &err) == 0,
         "can't make a pool");
    buf_free(&packed);
    return pool;
}

/* Plays of one month; of all of them as many are in each pool as make up the share of it. */
static struct filter_part pool_month(const struct pool_bench *b, unsigned month, uint32_t n, unsigned seen_percent)
{
    struct filter_part part = random_part(n, FILTER_LIVE_M, NULL);
    size_t shared = b->pools[0]->n * seen_percent / 100 / MONTHS;
    for (size_t i = 0; i < n / POOLS && i < shared; i++) {
        for (size_t k = 0; k < POOLS; k++) {
            part.positions[i * POOLS + k] = (uint32_t)(b->pools[k]->hashes[i * MONTHS + month] >> 32);
        }
    }
    part.n = filter_sort(part.positions, n, NULL);
    must(month == 0 || filter_cut(&part, (uint64_t)(n / 3.2e-4)) == 0, "a filter can't be cut");
    return part;
}

static void bench_pool(uint32_t n, size_t items, unsigned seen_percent)
{
    static struct pool_bench b;
    struct pool_budget budget = {0};
    b = (struct pool_bench){.view = {.months = b.months, .n_months = MONTHS},
                            .in = {.parts = b.pointers, .n_parts = MONTHS},
                            .probe = probe_new(),
                            .unseen = must_alloc(items / 8 + 2)};
    must(b.probe != NULL, "out of memory");
    for (size_t k = 0; k < POOLS; k++) {
        b.pools[k] = random_pool(items, &budget);
        pool_line_add(&b.lines[k], b.pools[k]);
    }
    for (unsigned i = 0; i < MONTHS; i++) {
        b.months[i].filter = (struct filter){.n_parts = 1, .parts = {pool_month(&b, i, n, seen_percent)}};
        b.pointers[i] = &b.months[i].filter.parts[0];
    }
    size_t unseen = pool_match(&b.lines[0], &b.view, b.unseen);
    must(probe_build(b.probe, &b.in) == 0 && probe_test(b.probe, b.pools[0]->hashes, items, b.unseen) == unseen,
         "the probe says something else");
    printf("%7u %8zu %5.1f%% %10.1f %10.1f %12.2f\n", n, items, 100 - 100.0 * (double)unseen / (double)items,
           median_ns(match_once, &b) / 1000, median_ns(probe_pool_once, &b) / 1000,
           (double)(b.pools[0]->bytes - b.pools[0]->id_bytes) / (double)items);
    for (size_t k = 0; k < POOLS; k++) {
        pool_release(b.pools[k]);
    }
    for (unsigned i = 0; i < MONTHS; i++) {
        free(b.months[i].filter.parts[0].positions);
    }
    probe_free(b.probe);
    free(b.unseen);
}

/* A request: parsed, in RESP and in protobuf, and its candidates hashed. */
struct request_bench {
    struct buf bytes, message;
    struct slice items[FIELDS_SLICES];
    struct parser parser;
    uint64_t *hashes;
};

static void parse_once(void *arg, unsigned round)
{
    struct request_bench *b = arg;
    (void)round;
    parser_next(&b->parser);
    must(parser_feed(&b->parser, b->bytes.data, b->bytes.len) == PARSE_DONE, "can't parse");
}

static void scan_once(void *arg, unsigned round)
{
    struct request_bench *b = arg;
    struct message m;
    struct err err;
    (void)round;
    int code = message_read(method_find(slice_str("Filter")), buf_slice(&b->message), b->items, &m, &err);
    must(code == 0 && m.asked.rq.n == CANDIDATES, "can't scan");
}

static void hash_once(void *arg, unsigned round)
{
    struct request_bench *b = arg;
    must(hash_ids(round, b->parser.args, b->parser.n, b->hashes) == b->parser.n, "can't hash");
}

/* No id of two bytes and more is ASCII then. */
static void end_in_other_letters(struct buf *message)
{
    struct wire w = wire_of(buf_slice(message));
    struct wire_field f;
    struct err err;
    while (wire_next(&w, &f, &err) > 0) {
        if (f.bytes.len >= 2) {
            memcpy(message->data + message->len - (w.end - w.at) - 2, "\xc3\xbc", 2);
        }
    }
}

static void bench_request(size_t least, size_t most)
{
    static struct request_bench b;
    b = (struct request_bench){.hashes = must_alloc(CANDIDATES * sizeof *b.hashes)};
    parser_init(&b.parser);
    buf_addf(&b.bytes, "*%d\r\n", CANDIDATES);
    for (int i = 0; i < CANDIDATES; i++) {
        size_t len = least + random_next() % (most - least + 1);
        buf_addf(&b.bytes, "$%zu\r\n", len);
        must(buf_reserve(&b.bytes, len + 2) == 0, "out of memory");
        for (size_t k = 0; k < len; k++) {
            b.bytes.data[b.bytes.len++] = (char)('a' + random_next() % 26);
        }
        wire_put_item(&b.message, 2, slice_of(b.bytes.data + b.bytes.len - len, len));
        buf_add(&b.bytes, "\r\n", 2);
    }
    double parse = median_ns(parse_once, &b), hash = median_ns(hash_once, &b), scan = median_ns(scan_once, &b);
    end_in_other_letters(&b.message);
    double scan_text = median_ns(scan_once, &b);
    printf("%4zu to %3zu %10.2f %10.2f %10.2f %10.2f\n", least, most, parse / CANDIDATES, scan / CANDIDATES,
           scan_text / CANDIDATES, hash / CANDIDATES);
    parser_free(&b.parser);
    buf_free(&b.bytes);
    buf_free(&b.message);
    free(b.hashes);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {10, 100, 1000, 2500, 10000, 30000, 100000};
    static const uint32_t few[] = {1, 3, 8, FILTER_FEW};
    const size_t n_sizes = sizeof sizes / sizeof *sizes;

    (void)argv;
    if (argc > 1) {
        fprintf(stderr, "usage: bench/micro\n");
        return 2;
    }
    printf("Month filter, one part: Rice (src/filter) and byte planes with zstd (bench/rival_planes.c)\n"
           "                       bits an item                decode, ns an item  encode, ns an item\n"
           "                   n     bound     Rice   planes       Rice   planes       Rice   planes\n");
    for (enum form form = SEALED; form <= LIVE; form++) {
        for (size_t i = 0; i < n_sizes; i++) {
            bench_codec(sizes[i], form);
        }
    }
    for (enum form form = SEALED; form <= SHORT_LIVE; form++) {
        for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
            bench_codec(few[i], form);
        }
    }

    printf("\nPositions, ns an item\n      n  sort, LSD   in place      union\n");
    for (size_t i = 0; i < n_sizes; i++) {
        bench_merge(sizes[i]);
    }

    printf("\nA request with %d ids, ns an id\nbytes an id       RESP   protobuf  not ASCII    hashing\n", CANDIDATES);
    bench_request(11, 11);
    bench_request(25, 25);
    bench_request(36, 36);
    bench_request(7, 12);
    bench_request(1, 40);

    printf("\nQuestion with %d candidates, %d months (one live), us; memory of the probe, bytes\n"
           "      n   exact  excpt  seen      build       test +decode,all    the sieve       memory\n",
           CANDIDATES, MONTHS);
    bench_probe(10, 0, 0, 30);
    bench_probe(100, 0, 0, 30);
    bench_probe(2500, 0, 0, 0);
    bench_probe(2500, 0, 0, 30);
    bench_probe(2500, 0, 0, 70);
    bench_probe(2500, 200, 0, 30);
    bench_probe(2500, 200, 5, 30);
    bench_probe(10000, 200, 0, 30);
    bench_probe(30000, 200, 0, 30);
    bench_probe(100000, 200, 0, 30);
    bench_probe(1000000, 200, 0, 30);

    printf("\nQuestion about a pool, %d months (one live), us; memory of the pool, bytes an item beside its id\n"
           "      n    items   seen  looked up  the probe       memory\n",
           MONTHS);
    for (size_t items = 10000; items <= 100000; items *= 10) {
        bench_pool(10, items, 30);
        bench_pool(200, items, 30);
        bench_pool(2500, items, 0);
        bench_pool(2500, items, 30);
        bench_pool(10000, items, 30);
    }
    return 0;
}
