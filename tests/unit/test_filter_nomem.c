/* Memory that ends: each allocation fails once, the error is clean, and what was there is as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "filter/filter.h"
#include "filter/probe.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"

enum { N = 50000 }; /* a part needs an arena block of its own */

static void make_positions(uint32_t *v, uint64_t seed)
{
    for (uint32_t i = 0; i < N; i++) {
        v[i] = (uint32_t)random_below(&seed, 80000) + i * 80000;
    }
}

static void encode_and_decode_survive_each_failure(void **state)
{
    (void)state;
    static uint32_t v[N];
    make_positions(v, 1);
    const struct filter f = {
        .n_parts = 3,
        .parts = {{.positions = v, .n = N, .m = FILTER_LIVE_M},
                  {.positions = v, .n = 10, .m = FILTER_LIVE_M - 1},
                  {.positions = v, .n = N - 1, .m = FILTER_LIVE_M}},
    };
    struct buf blob = {0};
    alloc_fail_at(1);
    assert_int_equal(filter_encode(&f, &blob), ERR_NOMEM);
    assert_int_equal(blob.len, 0);
    assert_int_equal(filter_encode(&f, &blob), 0);

    unsigned failures = 0;
    for (unsigned n = 1;; n++) {
        struct arena arena = {0};
        struct filter decoded;
        struct err err = {0};
        alloc_fail_at((int)n);
        int rc = filter_decode(blob.data, blob.len, &arena, &decoded, &err);
        if (!alloc_failed) {
            alloc_fail_after(-1);
            assert_int_equal(rc, 0);
            assert_int_equal(decoded.n_parts, 3);
            arena_free(&arena);
            break;
        }
        failures++;
        assert_int_equal(rc, ERR_NOMEM);
        assert_int_equal(err.code, ERR_NOMEM);
        assert_int_equal(decoded.n_parts, 0);
        arena_free(&arena);
    }
    assert_true(failures >= 2);
    buf_free(&blob);
}

static void add_survives_a_failure(void **state)
{
    (void)state;
    for (uint32_t coarse_max = 0; coarse_max <= N; coarse_max += N) { /* the second goes beside a coarse part */
        uint32_t v[N], w[N], kept[N];
        make_positions(v, 2);
        make_positions(w, 3);
        struct arena arena = {0};
        struct filter f = {0};
        alloc_fail_at(1);
        assert_int_equal(filter_add(&f, v, N, coarse_max, &arena), ERR_NOMEM);
        assert_int_equal(f.n_parts, 0);
        make_positions(v, 2);
        assert_int_equal(filter_add(&f, v, N, coarse_max, &arena), 0);
        assert_int_equal(f.parts[0].coarse, coarse_max > 0);
        struct filter before = f;
        memcpy(kept, f.parts[0].positions, f.parts[0].n * sizeof *kept);
        alloc_fail_at(1);
        assert_int_equal(filter_add(&f, w, N, coarse_max, &arena), ERR_NOMEM);
        assert_memory_equal(&f, &before, sizeof f);
        assert_memory_equal(f.parts[0].positions, kept, f.parts[0].n * sizeof *kept);
        make_positions(w, 3);
        assert_int_equal(filter_add(&f, w, N, coarse_max, &arena), 0);
        if (coarse_max > 0) {
            assert_int_equal(f.n_parts, 2);
            alloc_fail_at(1);
            assert_int_equal(filter_unite(&f, &arena), ERR_NOMEM);
        }
        arena_free(&arena);
    }
}

static void the_probe_survives_a_failure(void **state)
{
    (void)state;
    static uint32_t v[N];
    make_positions(v, 4);
    const struct filter_part part = {.positions = v, .n = N, .m = FILTER_LIVE_M},
                             little = {.positions = v, .n = 5, .m = FILTER_LIVE_M};
    const struct filter_part *const parts[] = {&part}, *const little_parts[] = {&little};
    const uint64_t hash = (uint64_t)v[0] << 32;
    const struct probe_input in = {.parts = parts, .n_parts = 1}, little_in = {.parts = little_parts, .n_parts = 1};

    alloc_fail_at(1);
    assert_null(probe_new());
    struct probe *p = probe_new();
    assert_int_equal(probe_build(p, &little_in), 0);
    assert_true(probe_seen(p, hash));
    alloc_fail_at(1);
    assert_int_equal(probe_build(p, &in), ERR_NOMEM);
    assert_false(probe_seen(p, hash)); /* it holds nothing */
    assert_int_equal(probe_build(p, &in), 0);
    assert_true(probe_seen(p, hash));

    alloc_fail_at(1); /* once warm, nothing is allocated */
    assert_int_equal(probe_build(p, &little_in), 0);
    assert_int_equal(probe_build(p, &in), 0);
    assert_true(probe_seen(p, hash));
    assert_false(alloc_failed);
    alloc_fail_after(-1);
    probe_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode_and_decode_survive_each_failure),
        cmocka_unit_test(add_survives_a_failure),
        cmocka_unit_test(the_probe_survives_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
