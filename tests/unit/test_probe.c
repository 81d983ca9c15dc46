/* The probe against plain arrays: no seen item is ever called unseen, and nothing else is hidden than what a part's
 * position, or an exact hash, says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "filter/probe.h"
#include "tests/lib/random.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { PARTS = 20 };

/* What one question looks at, as the oracle keeps it. */
struct window {
    struct filter_part parts[PARTS];
    const struct filter_part *pointers[PARTS];
    size_t n_parts;
    uint64_t *hashes; /* all that is in parts or exact, then those in exceptions */
    size_t n_hashes;
    uint64_t *exact;
    size_t n_exact;
    uint64_t *exceptions;
    size_t n_exceptions;
};

static void *must_alloc(size_t size)
{
    void *p = malloc(size + 1);
    assert_non_null(p);
    return p;
}

static void window_init(struct window *w, size_t hashes)
{
    *w = (struct window){.hashes = must_alloc(hashes * sizeof *w->hashes)};
}

static void window_free(struct window *w)
{
    for (size_t i = 0; i < w->n_parts; i++) {
        free(w->parts[i].positions);
        free(w->parts[i].tails);
    }
    free(w->hashes);
    free(w->exact);
    free(w->exceptions);
}

/* Adds a part of n items, cut to m; m = 2^32 leaves it live. */
static void window_part_of(struct window *w, uint32_t n, uint64_t m, bool coarse, uint64_t *seed)
{
    struct filter_part *part = &w->parts[w->n_parts];
    *part = (struct filter_part){.positions = must_alloc(n * sizeof(uint32_t)), .m = FILTER_LIVE_M};
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = random_next(seed);
        if (random_below(seed, 50) == 0) { /* the ends of the range, and next to them */
            hash = random_below(seed, 2) ? UINT64_MAX - hash % 3 * (UINT64_C(1) << 31) : hash % 3 << 32;
        }
        w->hashes[w->n_hashes++] = hash;
        part->positions[i] = filter_position(hash, FILTER_LIVE_M);
    }
    if (coarse) {
        part->coarse = true;
        part->m = FILTER_LIVE_M >> FILTER_GRAIN;
        for (uint32_t i = 0; i < n; i++) {
            part->positions[i] >>= FILTER_GRAIN;
        }
    }
    part->n = filter_sort(part->positions, n, NULL);
    if (!coarse && m >= part->m && part->n > 0 && random_below(seed, 3) == 0) {
        part->fine = true;
        part->tails = must_alloc(part->n);
        for (uint32_t i = 0; i < 2 * n; i++) {
            filter_set_tail(part->positions, part->tails, part->n, w->hashes[w->n_hashes - n + i % n], i >= n);
        }
    }
    if (m < part->m) {
        assert_int_equal(filter_cut(part, m), 0);
    }
    w->pointers[w->n_parts++] = part;
}

static void window_part(struct window *w, uint32_t n, uint64_t m, uint64_t *seed)
{
    window_part_of(w, n, m, false, seed);
}

static void window_exact(struct window *w, size_t n, uint64_t *seed)
{
    w->exact = must_alloc(n * sizeof *w->exact);
    for (size_t i = 0; i < n; i++) {
        w->exact[i] = random_next(seed) << random_below(seed, 2) * random_below(seed, 64);
        if (random_below(seed, 20) == 0) {
            w->exact[i] = random_below(seed, 2) ? 0 : UINT64_MAX;
        }
        w->hashes[w->n_hashes++] = w->exact[i];
    }
    w->n_exact = n;
}

/* Exceptions: some of what is in, some that isn't. */
static void window_exceptions(struct window *w, size_t n, uint64_t *seed)
{
    size_t known = w->n_hashes;
    w->exceptions = must_alloc(n * sizeof *w->exceptions);
    for (size_t i = 0; i < n; i++) {
        bool one_of_them = known > 0 && random_below(seed, 4) > 0;
        w->exceptions[i] = one_of_them ? w->hashes[random_below(seed, known)] : random_next(seed);
        if (random_below(seed, 20) == 0) {
            w->exceptions[i] = 0;
        }
        w->hashes[w->n_hashes++] = w->exceptions[i];
    }
    w->n_exceptions = n;
}

static int build(struct probe *p, const struct window *w)
{
    const struct probe_input in = {
        .parts = w->pointers,
        .n_parts = w->n_parts,
        .exact = w->exact,
        .n_exact = w->n_exact,
        .exceptions = w->exceptions,
        .n_exceptions = w->n_exceptions,
    };
    return probe_build(p, &in);
}

static bool listed(const uint64_t *hashes, size_t n, uint64_t hash)
{
    for (size_t i = 0; i < n; i++) {
        if (hashes[i] == hash) {
            return true;
        }
    }
    return false;
}

static bool oracle_seen(const struct window *w, uint64_t hash)
{
    if (listed(w->exact, w->n_exact, hash)) {
        return true;
    }
    if (listed(w->exceptions, w->n_exceptions, hash)) {
        return false;
    }
    for (size_t i = 0; i < w->n_parts; i++) {
        const struct filter f = {.n_parts = 1, .parts = {w->parts[i]}};
        if (filter_has(&f, hash)) {
            return true;
        }
    }
    return false;
}

/* Asks for n candidates at once and one by one. Answers nothing but zeros in the padding, and nothing behind it. */
static void assert_answers(const struct probe *p, const struct window *w, const uint64_t *candidates, size_t n)
{
    size_t bytes = (n + 7) / 8, n_unseen = 0;
    uint8_t *unseen = must_alloc(bytes);
    memset(unseen, 0xaa, bytes + 1);
    size_t told = probe_test(p, candidates, n, unseen);
    for (size_t i = 0; i < n; i++) {
        bool is_unseen = unseen[i / 8] >> (7 - i % 8) & 1;
        if (is_unseen == oracle_seen(w, candidates[i])) {
            fail_msg("candidate %zu of %zu, hash %016llx: expected %s", i, n, (unsigned long long)candidates[i],
                     is_unseen ? "seen" : "unseen");
        }
        assert_int_equal(probe_seen(p, candidates[i]), !is_unseen);
        n_unseen += is_unseen;
    }
    assert_int_equal(told, n_unseen);
    if (n % 8 != 0) {
        assert_int_equal(unseen[bytes - 1] & (0xff >> n % 8), 0);
    }
    assert_int_equal(unseen[bytes], 0xaa);
    free(unseen);
}

static void an_empty_probe_has_seen_nothing(void **state)
{
    (void)state;
    struct probe *p = probe_new();
    assert_non_null(p);
    const struct window nothing = {0};
    const uint64_t candidates[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32};
    assert_answers(p, &nothing, candidates, COUNT(candidates));
    assert_answers(p, &nothing, NULL, 0);
    assert_int_equal(build(p, &nothing), 0);
    assert_answers(p, &nothing, candidates, COUNT(candidates));

    struct filter_part empty = {.m = FILTER_LIVE_M};
    const struct window empty_part = {.pointers = {&empty}, .n_parts = 1};
    assert_int_equal(build(p, &empty_part), 0);
    assert_answers(p, &nothing, candidates, COUNT(candidates));
    probe_free(p);
    probe_free(NULL);
}

static void windows_of_all_shapes_agree_with_the_oracle(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    uint64_t seed = 21;
    struct probe *p = probe_new();
    for (int round = 0; round < 1500; round++) {
        struct window w;
        window_init(&w, 100000);
        for (uint64_t parts = random_below(&seed, round % 10 == 0 ? PARTS : 5); parts > 0; parts--) {
            uint32_t n = (uint32_t)random_below(&seed, 1U << random_below(&seed, 11));
            uint64_t m = random_below(&seed, 3) == 0 ? FILTER_LIVE_M
                                                     : 1 + (random_next(&seed) >> (32 + random_below(&seed, 32)));
            window_part_of(&w, n, m, random_below(&seed, 2), &seed);
        }
        window_exact(&w, random_below(&seed, 3) == 0 ? random_below(&seed, 150) : 0, &seed);
        window_exceptions(&w, random_below(&seed, 3) == 0 ? random_below(&seed, 20) : 0, &seed);
        assert_int_equal(build(p, &w), 0);

        static uint64_t candidates[MOST];
        size_t n = (size_t)random_below(&seed, 1U << random_below(&seed, 11));
        for (size_t i = 0; i < n; i++) {
            candidates[i] = random_next(&seed);
            if (w.n_hashes > 0 && random_below(&seed, 2)) {
                candidates[i] = w.hashes[random_below(&seed, w.n_hashes)];
            }
            if (random_below(&seed, 8) == 0) { /* next to one, or in its cell */
                candidates[i] ^= UINT64_C(1) << random_below(&seed, 64);
            }
        }
        assert_answers(p, &w, candidates, n);
        window_free(&w);
    }
    probe_free(p);
}

/* A position of a cut part stands for a range of hashes. Its first and last hash, by exact division, and their
 * neighbours must be answered right whatever the size of the bitmap: exact hashes of no interest make it grow. */
static void every_hash_of_a_cut_position_is_seen(void **state)
{
    (void)state;
    static const uint64_t ranges[] = {1,         2,          3,          5,          64,         1000,      4095,
                                      4096,      4097,       65537,      999983,     3092783,    9999991,   123456789,
                                      0x7ffffff, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff};
    static const size_t fillers[] = {0,     1,     200,   300,   600,    1100,   3000,
                                     10000, 20000, 40000, 70000, 140000, 270000, 600000};
    uint64_t seed = 22;
    struct probe *p = probe_new();
    for (size_t s = 0; s < COUNT(fillers); s++) {
        uint64_t *filler = must_alloc(fillers[s] * sizeof *filler);
        for (size_t i = 0; i < fillers[s]; i++) {
            filler[i] = 0xffff; /* one cell; the bitmap stays empty but for the part */
        }
        for (size_t r = 0; r < 2 * COUNT(ranges); r++) {
            uint64_t m = ranges[r / 2];
            bool coarse = r % 2 == 1;
            if (coarse && m > FILTER_LIVE_M >> FILTER_GRAIN) {
                continue;
            }
            struct window w;
            window_init(&w, 300);
            window_part_of(&w, 300, m, coarse, &seed);
            w.exact = filler;
            w.n_exact = fillers[s];
            assert_int_equal(build(p, &w), 0);
            w.n_exact = fillers[s] > 0; /* they are all the same */
            const struct filter_part *part = &w.parts[0];
            for (uint32_t i = 0; i < part->n; i++) {
                const uint64_t position = part->positions[i], grain = coarse ? 1U << FILTER_GRAIN : 1;
                uint64_t first = ((position << 32) + m - 1) / m, behind = (((position + 1) << 32) + m - 1) / m;
                first = (first + grain - 1) / grain * grain;
                behind = (behind + grain - 1) / grain * grain;
                assert_int_equal(filter_part_position(part, first << 32), position);
                assert_int_equal(filter_part_position(part, (behind - 1) << 32), position);
                uint64_t upper[] = {
                    first,     behind - 1, first + (behind - first) / 2, first + random_below(&seed, behind - first),
                    first - 1, behind};
                for (size_t u = 0; u < COUNT(upper); u++) {
                    uint64_t hash = (upper[u] << 32) | (random_next(&seed) >> 32);
                    if (u < 4) {
                        assert_true(probe_seen(p, hash));
                    }
                    assert_int_equal(probe_seen(p, hash), oracle_seen(&w, hash));
                }
            }
            w.exact = NULL;
            window_free(&w);
        }
        free(filler);
    }
    probe_free(p);
}

static void crowded_buckets_are_searched(void **state)
{
    (void)state;
    enum { N = 100000 };
    uint64_t seed = 23;
    struct probe *p = probe_new();
    uint32_t *v = must_alloc(N * sizeof *v);
    static const uint32_t starts[] = {0, 12345, 0x80000000U - N / 2, UINT32_MAX - N + 1};
    for (size_t s = 0; s < COUNT(starts); s++) {
        for (uint32_t i = 0; i < N; i++) { /* every second one; the last run ends at the top */
            v[i] = s == 3 ? starts[s] + i : starts[s] + 2 * i;
        }
        for (uint32_t n = 1; n <= N; n = n < 20 ? n + 1 : n * 10) {
            struct filter_part part = {.positions = v + N - n, .n = n, .m = FILTER_LIVE_M};
            const struct window w = {.parts = {part}, .pointers = {&part}, .n_parts = 1};
            assert_int_equal(build(p, &w), 0);
            for (int i = 0; i < 3000; i++) {
                uint64_t position = part.positions[random_below(&seed, n)] + random_below(&seed, 3) - 1;
                uint64_t hash = position << 32 | random_next(&seed) >> 32;
                assert_int_equal(probe_seen(p, hash), oracle_seen(&w, hash));
            }
        }
    }
    free(v);
    probe_free(p);
}

static void exceptions_lift_parts_but_not_exact_hashes(void **state)
{
    (void)state;
    uint32_t positions[] = {0, 5, 9};
    struct filter_part part = {.positions = positions, .n = 3, .m = FILTER_LIVE_M};
    uint64_t exact[] = {UINT64_C(9) << 32, 0}, exceptions[] = {UINT64_C(5) << 32, UINT64_C(9) << 32};
    const struct window w = {.parts = {part},
                             .pointers = {&part},
                             .n_parts = 1,
                             .exact = exact,
                             .n_exact = 2,
                             .exceptions = exceptions,
                             .n_exceptions = 2};
    struct probe *p = probe_new();
    assert_int_equal(build(p, &w), 0);
    assert_true(probe_seen(p, 0));
    assert_true(probe_seen(p, 1)); /* the upper half is that of an item */
    assert_false(probe_seen(p, UINT64_C(5) << 32));
    assert_true(probe_seen(p, UINT64_C(5) << 32 | 1)); /* another hash at the same position */
    assert_true(probe_seen(p, UINT64_C(9) << 32));
    uint64_t zero[] = {0};
    const struct window lifted = {
        .parts = {part}, .pointers = {&part}, .n_parts = 1, .exceptions = zero, .n_exceptions = 1};
    assert_int_equal(build(p, &lifted), 0);
    assert_false(probe_seen(p, 0));
    assert_true(probe_seen(p, 1));
    probe_free(p);
}

static void a_build_replaces_what_was_there(void **state)
{
    (void)state;
    uint64_t seed = 24;
    struct probe *p = probe_new();
    static const uint32_t sizes[] = {5000, 10, 0, 700, 40000, 3};
    struct window before = {0};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        struct window w;
        window_init(&w, sizes[s] + 50);
        window_part(&w, sizes[s], s % 2 ? 99999989 : FILTER_LIVE_M, &seed);
        window_exact(&w, s % 3 * 10, &seed);
        assert_int_equal(build(p, &w), 0);
        assert_answers(p, &w, w.hashes, w.n_hashes);
        assert_answers(p, &w, before.hashes, before.n_hashes);
        window_free(&before);
        before = w;
    }
    window_free(&before);
    probe_free(p);
}

static void memory_is_bounded_and_given_back(void **state)
{
    (void)state;
    enum { N = 1000000, KEEP = 1 << 20 };
    uint64_t seed = 25;
    struct probe *p = probe_new();
    size_t empty = probe_trim(p, 0);
    struct window small, giant;
    window_init(&small, 3000);
    window_part(&small, 3000, FILTER_LIVE_M, &seed);
    assert_int_equal(build(p, &small), 0);
    size_t held = probe_trim(p, KEEP);
    assert_in_range(held, 3000, KEEP);
    assert_answers(p, &small, small.hashes, small.n_hashes);

    window_init(&giant, 4 * N);
    for (int i = 0; i < 4; i++) {
        window_part(&giant, N, i % 2 ? FILTER_LIVE_M : N * 4000ULL, &seed);
    }
    assert_int_equal(build(p, &giant), 0);
    size_t input = 4 * N * sizeof(uint32_t);
    held = probe_trim(p, SIZE_MAX);
    assert_in_range(held, input / 8, input + (1 << 20) + 4096); /* directories, the largest bitmap */
    assert_answers(p, &giant, giant.hashes, 10000);
    uint64_t candidates[10000];
    for (size_t i = 0; i < COUNT(candidates); i++) {
        candidates[i] = random_next(&seed);
    }
    assert_answers(p, &giant, candidates, COUNT(candidates));

    assert_int_equal(probe_trim(p, KEEP), empty);
    assert_false(probe_seen(p, giant.hashes[0]));
    assert_int_equal(build(p, &small), 0);
    assert_answers(p, &small, small.hashes, small.n_hashes);
    window_free(&small);
    window_free(&giant);
    probe_free(p);
}

/* A user's whole window: ten million candidates that were never played, four months at a quarter of one in a
 * thousand each. As many are hidden as n/m says, within six standard deviations. */
static void the_error_over_a_window_is_the_sum_of_n_over_m(void **state)
{
    (void)state;
    enum { PLAYED = 2500, ASKED = 10 * 1000 * 1000, AT_ONCE = 10000 };
    uint64_t seed = 26;
    struct probe *p = probe_new();
    struct window w;
    window_init(&w, 4 * PLAYED);
    double error = 0;
    for (int i = 0; i < 4; i++) {
        window_part(&w, PLAYED, PLAYED * 4000ULL, &seed);
        error += (double)w.parts[i].n / (double)w.parts[i].m;
    }
    assert_true(error <= 0.001);
    assert_int_equal(build(p, &w), 0);
    static uint64_t candidates[AT_ONCE];
    static uint8_t unseen[AT_ONCE / 8];
    size_t hidden = 0;
    for (int asked = 0; asked < ASKED; asked += AT_ONCE) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            candidates[i] = random_next(&seed);
        }
        hidden += AT_ONCE - probe_test(p, candidates, AT_ONCE, unseen);
    }
    double expected = error * ASKED;
    assert_in_range(hidden, (size_t)expected - 600, (size_t)expected + 600);
    window_free(&w);
    probe_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_probe_has_seen_nothing),
        cmocka_unit_test(windows_of_all_shapes_agree_with_the_oracle),
        cmocka_unit_test(every_hash_of_a_cut_position_is_seen),
        cmocka_unit_test(crowded_buckets_are_searched),
        cmocka_unit_test(exceptions_lift_parts_but_not_exact_hashes),
        cmocka_unit_test(a_build_replaces_what_was_there),
        cmocka_unit_test(memory_is_bounded_and_given_back),
        cmocka_unit_test(the_error_over_a_window_is_the_sum_of_n_over_m),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
