/* The histogram's buckets cover all numbers without a gap, and its quantiles are those of the sorted values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/histogram.h"
#include "tests/lib/random.h"

static struct histogram *new_histogram(void)
{
    struct histogram *h = calloc(1, sizeof *h);
    assert_non_null(h);
    return h;
}

static void buckets_follow_each_other(void **state)
{
    (void)state;
    assert_int_equal(histogram_from(0), 0);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t from = histogram_from(i), to = histogram_to(i);
        assert_true(from <= to);
        assert_int_equal(histogram_bucket(from), i);
        assert_int_equal(histogram_bucket(to), i);
        assert_true((to - from) <= from / HISTOGRAM_FINE);
        if (i > 0) {
            assert_int_equal(histogram_to(i - 1) + 1, from);
        }
    }
    assert_true(histogram_to(HISTOGRAM_BUCKETS - 1) == UINT64_MAX);
}

static void an_empty_one(void **state)
{
    (void)state;
    struct histogram *h = new_histogram(), *other = new_histogram();
    assert_int_equal(histogram_quantile(h, 0.5), 0);
    assert_true(histogram_mean(h) == 0);
    histogram_add(h, other);
    assert_int_equal(h->count, 0);
    histogram_note(other, 7);
    histogram_add(h, other);
    assert_int_equal(h->min, 7);
    assert_int_equal(h->max, 7);
    free(h);
    free(other);
}

static void the_ends(void **state)
{
    (void)state;
    struct histogram *h = new_histogram();
    histogram_note(h, 0);
    histogram_note(h, UINT64_MAX);
    assert_int_equal(histogram_quantile(h, 0), 0);
    assert_int_equal(histogram_quantile(h, 0.5), 0);
    assert_true(histogram_quantile(h, 0.51) == UINT64_MAX);
    assert_true(histogram_quantile(h, 1) == UINT64_MAX);
    assert_int_equal(h->min, 0);
    free(h);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* In two halves, added up. */
static void quantiles_are_those_of_sorted_values(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t values[N];
    struct histogram *h = new_histogram(), *other = new_histogram();
    uint64_t random = 1;
    double sum = 0;
    for (size_t i = 0; i < N; i++) {
        values[i] = random_next(&random) >> (20 + random_below(&random, 44));
        histogram_note(i % 3 == 0 ? other : h, values[i]);
        sum += (double)values[i];
    }
    histogram_add(h, other);
    qsort(values, N, sizeof *values, by_value);
    assert_int_equal(h->count, N);
    assert_int_equal(h->min, values[0]);
    assert_int_equal(h->max, values[N - 1]);
    assert_true(histogram_mean(h) > 0.999999 * sum / N && histogram_mean(h) < 1.000001 * sum / N);
    for (size_t i = 0; i < N; i++) {
        uint64_t exact = values[i], got = histogram_quantile(h, ((double)i + 0.5) / N);
        assert_true(got >= exact && got - exact <= exact / HISTOGRAM_FINE);
    }
    free(h);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_follow_each_other),
        cmocka_unit_test(an_empty_one),
        cmocka_unit_test(the_ends),
        cmocka_unit_test(quantiles_are_those_of_sorted_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
