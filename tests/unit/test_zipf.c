/* Ranks are drawn as often as Zipf's law says: each of the first ranks, and the rest in pieces, within five standard
 * deviations. The same numbers every time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/bench/zipf.h"

enum { DRAWS = 400000, PIECES = 64 };

/* Rank 1..32 have a piece each; above, each power of two. */
static size_t piece_of(uint64_t rank)
{
    return rank <= 32 ? (size_t)rank - 1 : 27 + (63 - (size_t)__builtin_clzll(rank));
}

static void check_law(uint64_t n, double skew)
{
    double expected[PIECES] = {0}, all = 0;
    uint64_t drawn[PIECES] = {0};
    for (uint64_t k = 1; k <= n; k++) {
        double chance = pow((double)k, -skew);
        expected[piece_of(k)] += chance;
        all += chance;
    }
    struct zipf z;
    struct random random = {42};
    zipf_init(&z, n, skew);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t rank = zipf_next(&z, &random);
        assert_in_range(rank, 1, n);
        drawn[piece_of(rank)]++;
    }
    for (size_t i = 0; i < PIECES; i++) {
        double p = expected[i] / all, mean = p * DRAWS, deviation = sqrt(mean * (1 - p));
        if (fabs((double)drawn[i] - mean) > 5 * deviation + 1) {
            fail_msg("n %llu, skew %g, piece %zu: %llu drawn, %.0f expected", (unsigned long long)n, skew, i,
                     (unsigned long long)drawn[i], mean);
        }
    }
}

static void as_often_as_the_law_says(void **state)
{
    (void)state;
    static const double skews[] = {0, 0.2, 0.5, 0.99, 1, 1 + 1e-12, 1.2, 2, 4};
    static const uint64_t sizes[] = {1, 2, 3, 33, 1000, 1000000};
    for (size_t s = 0; s < sizeof skews / sizeof *skews; s++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_law(sizes[i], skews[s]);
        }
    }
}

static void numbers_stay_below_their_limit(void **state)
{
    (void)state;
    struct random random = {7};
    uint64_t seen = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t n = random_below(&random, 5);
        assert_in_range(n, 0, 4);
        seen |= UINT64_C(1) << n;
        double unit = random_unit(&random);
        assert_true(unit >= 0 && unit < 1);
    }
    assert_int_equal(seen, 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_often_as_the_law_says),
        cmocka_unit_test(numbers_stay_below_their_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
