/* How small 300 ids of a scroll session can be, and how fast: our sessions and CRoaring on the same ids.
 *
 *   bench/session_sets            the table, one row a kind of ids
 *   bench/session_sets ids KIND   the ids of one kind, one a line (bench/sessions gives them to Redis)
 *
 * Medians of CPU time of one thread. "add 20": to a set of 280, as a screen is shown; "load": made ready for a question
 * (ours: decoded, with its bitmap); "test": of one candidate, of which one in 30 is in the set. */
#include <math.h>
#include <roaring/roaring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "dedup/sessions.h"
#include "tests/lib/random.h"

enum { IDS = 300, SCREEN = 20, ROUNDS = 2001, CANDIDATES = 2000 };

static const struct kind {
    const char *name;
    uint64_t range; /* of single ids */
    unsigned run;   /* ids side by side */
} kinds[] = {
    {"300 of 10,000", 10000, 1},
    {"clustered: 15 runs of 20 in 10,000", 10000, 20},
    {"300 of 3 million", 3000000, 1},
    {"300 of 2^32", UINT64_C(1) << 32, 1},
};

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool has(const uint32_t *ids, size_t n, uint32_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* Distinct ids, in the order in which they would be shown. */
static void draw(const struct kind *kind, uint64_t seed, uint32_t ids[IDS])
{
    size_t n = 0;
    while (n < IDS) {
        uint32_t first = (uint32_t)random_below(&seed, kind->range - kind->run + 1);
        bool fresh = true;
        for (unsigned i = 0; i < kind->run; i++) {
            fresh = fresh && !has(ids, n, first + i);
        }
        for (unsigned i = 0; fresh && i < kind->run; i++) {
            ids[n++] = first + i;
        }
    }
}

/* log2 of the number of such sets, in bytes. */
static double limit_bytes(const struct kind *kind)
{
    double n = IDS / kind->run, m = (double)kind->range;
    return (lgamma(m + 1) - lgamma(n + 1) - lgamma(m - n + 1)) / log(2) / 8;
}

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return values[n / 2];
}

struct result {
    double bytes, add, load, test;
};

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "session_sets: %s\n", what);
        exit(1);
    }
}

static struct result ours(const uint32_t ids[IDS], const uint32_t candidates[CANDIDATES])
{
    static double add[ROUNDS], load[ROUNDS], test[ROUNDS];
    struct config cfg;
    struct sessions *all;
    struct err err;
    config_defaults(&cfg);
    check(sessions_new(&cfg, 1, &all, &err) == 0, "out of memory");
    struct session_set set = {0};
    struct sessions_stats before, after;
    struct slice name = slice_str("a-session-of-16b");
    struct result r = {0};
    sessions_stats(all, &before);
    size_t found = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t copy[IDS];
        memcpy(copy, ids, sizeof copy);
        sessions_unblock(all, name, &(struct session_ids){0}, &err);
        sessions_block(all, name, &(struct session_ids){.numbers = copy, .n_numbers = IDS - SCREEN}, &err);
        memcpy(copy, ids + IDS - SCREEN, SCREEN * sizeof *copy);
        struct session_ids screen = {.numbers = copy, .n_numbers = SCREEN};
        double began = cpu_ns();
        sessions_block(all, name, &screen, &err);
        double added = cpu_ns();
        check(sessions_load(all, name, &set, &err) == 0 && set.n_numbers == IDS, "not all ids are there");
        double loaded = cpu_ns();
        for (size_t i = 0; i < CANDIDATES; i++) {
            found += session_set_has_number(&set, candidates[i]);
        }
        add[round] = added - began;
        load[round] = loaded - added;
        test[round] = (cpu_ns() - loaded) / CANDIDATES;
    }
    check(found > 0, "nothing was found");
    sessions_stats(all, &after);
    r.bytes = (double)(after.bytes - before.bytes);
    r.add = median(add, ROUNDS);
    r.load = median(load, ROUNDS);
    r.test = median(test, ROUNDS);
    session_set_free(&set);
    sessions_free(all);
    return r;
}

/* Kept serialized, as they are smallest: an object of CRoaring's own is several allocations. */
static struct result roaring(const uint32_t ids[IDS], const uint32_t candidates[CANDIDATES])
{
    static double add[ROUNDS], load[ROUNDS], test[ROUNDS];
    struct result r = {0};
    size_t found = 0;
    for (int round = 0; round < ROUNDS; round++) {
        roaring_bitmap_t *set = roaring_bitmap_of_ptr(IDS - SCREEN, ids);
        roaring_bitmap_run_optimize(set);
        size_t size = roaring_bitmap_portable_size_in_bytes(set);
        char *bytes = malloc(size);
        check(bytes != NULL, "out of memory");
        roaring_bitmap_portable_serialize(set, bytes);
        roaring_bitmap_free(set);

        double began = cpu_ns();
        set = roaring_bitmap_portable_deserialize_safe(bytes, size);
        roaring_bitmap_add_many(set, SCREEN, ids + IDS - SCREEN);
        roaring_bitmap_run_optimize(set);
        free(bytes);
        size = roaring_bitmap_portable_size_in_bytes(set);
        bytes = malloc(size);
        check(bytes != NULL, "out of memory");
        roaring_bitmap_portable_serialize(set, bytes);
        roaring_bitmap_free(set);
        double added = cpu_ns();
        set = roaring_bitmap_portable_deserialize_safe(bytes, size);
        double loaded = cpu_ns();
        check(roaring_bitmap_get_cardinality(set) == IDS, "not all ids are there");
        double tested = cpu_ns();
        for (size_t i = 0; i < CANDIDATES; i++) {
            found += roaring_bitmap_contains(set, candidates[i]);
        }
        add[round] = added - began;
        load[round] = loaded - added;
        test[round] = (cpu_ns() - tested) / CANDIDATES;
        r.bytes = (double)size;
        roaring_bitmap_free(set);
        free(bytes);
    }
    check(found > 0, "nothing was found");
    r.add = median(add, ROUNDS);
    r.load = median(load, ROUNDS);
    r.test = median(test, ROUNDS);
    return r;
}

static double our_blob(const uint32_t ids[IDS])
{
    uint32_t sorted[IDS];
    memcpy(sorted, ids, sizeof sorted);
    qsort(sorted, IDS, sizeof *sorted, compare_ids);
    struct filter filter = {.n_parts = 1, .parts[0] = {.positions = sorted, .n = IDS, .m = FILTER_LIVE_M}};
    struct buf blob = {0};
    check(filter_encode(&filter, &blob) == 0, "out of memory");
    double bytes = (double)blob.len;
    buf_free(&blob);
    return bytes;
}

static void print_table(void)
{
    printf("| ids | limit, bytes | unseen: ids | all in | add 20 | load | test | CRoaring: ids | add 20 | load | test "
           "|\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint32_t ids[IDS], candidates[CANDIDATES];
        draw(&kinds[k], k + 1, ids);
        uint64_t seed = 99;
        for (size_t i = 0; i < CANDIDATES; i++) {
            candidates[i] = i % 30 == 0 ? ids[i % IDS] : (uint32_t)random_below(&seed, kinds[k].range);
        }
        struct result a = ours(ids, candidates), b = roaring(ids, candidates);
        printf("| %s | %.0f | %.0f | %.0f | %.2f us | %.2f us | %.1f ns | %.0f | %.2f us | %.2f us | %.1f ns |\n",
               kinds[k].name, limit_bytes(&kinds[k]), our_blob(ids), a.bytes, a.add / 1000, a.load / 1000, a.test,
               b.bytes, b.add / 1000, b.load / 1000, b.test);
    }
}

int main(int argc, char **argv)
{
    clock_test_start(INT64_C(1795262400000));
    if (argc == 1) {
        print_table();
        return 0;
    }
    uint32_t ids[IDS];
    int k = argc == 3 && strcmp(argv[1], "ids") == 0 ? atoi(argv[2]) : -1;
    if (k < 0 || k >= (int)(sizeof kinds / sizeof *kinds)) {
        fprintf(stderr, "usage: session_sets [ids 0..%zu]\n", sizeof kinds / sizeof *kinds - 1);
        return 2;
    }
    draw(&kinds[k], (uint64_t)k + 1, ids);
    for (size_t i = 0; i < IDS; i++) {
        printf("%u\n", ids[i]);
    }
    return 0;
}
