/* The small histograms count each value once, below the right bound; errors are told apart by their first word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buckets.h"
#include "service/meter.h"

static void bounds_rise(void **state)
{
    (void)state;
    const struct bucket_scale *scales[] = {&buckets_us, &buckets_rows};
    for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
        assert_true(scales[k]->n <= BUCKETS);
        for (unsigned i = 1; i < scales[k]->n; i++) {
            assert_true(scales[k]->upper[i] > scales[k]->upper[i - 1]);
        }
    }
}

static void a_bound_is_included(void **state)
{
    (void)state;
    for (unsigned i = 0; i < buckets_us.n; i++) {
        struct buckets b = {0};
        struct bucket_sums sums = {0};
        buckets_note(&b, &buckets_us, buckets_us.upper[i], 1);
        buckets_note(&b, &buckets_us, buckets_us.upper[i] + 1, 1);
        buckets_add(&sums, &b);
        assert_int_equal(sums.counts[i], 1);
        assert_int_equal(sums.counts[i + 1], 1);
        assert_int_equal(buckets_count(&sums), 2);
        assert_int_equal(sums.sum, 2 * buckets_us.upper[i] + 1);
    }
}

static void the_ends(void **state)
{
    (void)state;
    struct buckets b = {0};
    struct bucket_sums sums = {0};
    buckets_note(&b, &buckets_us, 0, 3);
    buckets_note(&b, &buckets_us, UINT32_MAX, 2);
    buckets_add(&sums, &b);
    assert_int_equal(sums.counts[0], 3);
    assert_int_equal(sums.counts[buckets_us.n], 2);
    assert_int_equal(sums.sum, 2 * (uint64_t)UINT32_MAX);
}

static void they_add_up(void **state)
{
    (void)state;
    struct buckets a = {0}, b = {0};
    struct bucket_sums sums = {0};
    buckets_note(&a, &buckets_rows, 7, 5);
    buckets_note(&b, &buckets_rows, 8, 1);
    buckets_note(&b, &buckets_rows, 1, 1);
    buckets_add(&sums, &a);
    buckets_add(&sums, &b);
    assert_int_equal(sums.counts[3], 6); /* up to 10 */
    assert_int_equal(sums.counts[0], 1);
    assert_int_equal(buckets_count(&sums), 7);
    assert_int_equal(sums.sum, 5 * 7 + 8 + 1);
}

static void every_operation_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < OPS; i++) {
        assert_non_null(op_names[i]);
        assert_int_equal(op_find(op_names[i]), i);
    }
    assert_int_equal(op_find("play"), OP_OTHER);
    assert_int_equal(op_find("playedx"), OP_OTHER);
}

static void errors_by_their_first_word(void **state)
{
    (void)state;
    struct meter m = {0};
    for (int i = 0; i < METER_ERRORS; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s why", meter_error_names[i]);
        meter_error(&m, slice_str(text));
        assert_int_equal(m.errors[i], 1);
    }
    const char *const others[] = {"ERRORS why", "ER", "ERR", "", "err why"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        meter_error(&m, slice_str(others[i]));
    }
    assert_int_equal(m.errors[METER_ERRORS - 1], 1 + sizeof others / sizeof *others);
    assert_int_equal(m.errors[0], 1);
}

static void time_that_runs_backwards_is_none(void **state)
{
    (void)state;
    struct meter m = {0};
    struct bucket_sums sums = {0};
    meter_note(&m, OP_SEEN, -5, 1, METER_DONE);
    buckets_add(&sums, &m.ops[OP_SEEN]);
    assert_int_equal(sums.counts[0], 1);
    assert_int_equal(sums.sum, 0);
}

/* All are measured, and those that ended with an error counted beside it. */
static void errors_of_an_operation(void **state)
{
    (void)state;
    struct meter m = {0};
    struct bucket_sums sums = {0};
    meter_note(&m, OP_SEEN, 5, 3, METER_DONE);
    meter_note(&m, OP_SEEN, 5, 2, METER_FAILED);
    meter_note(&m, OP_SEEN, 5, 1, METER_REJECTED);
    buckets_add(&sums, &m.ops[OP_SEEN]);
    assert_int_equal(buckets_count(&sums), 6);
    assert_int_equal(m.failed[OP_SEEN], 2);
    assert_int_equal(m.rejected[OP_SEEN], 1);
    assert_int_equal(m.failed[OP_WHY] + m.rejected[OP_WHY], 0);
}

/* As Prometheus reckons it: values stand evenly in their bucket. */
static void quantiles_are_interpolated(void **state)
{
    (void)state;
    const struct bucket_scale scale = {.n = 3, .upper = {10, 20, 40}};
    struct bucket_sums sums = {0};
    assert_true(buckets_quantile(&sums, &scale, 0.5) == 0);
    sums.counts[1] = 10;
    assert_true(buckets_quantile(&sums, &scale, 0.5) == 15);
    assert_true(buckets_quantile(&sums, &scale, 1) == 20);
    sums.counts[2] = 10;
    assert_true(buckets_quantile(&sums, &scale, 0.5) == 20);
    assert_true(buckets_quantile(&sums, &scale, 0.75) == 30);
    sums.counts[0] = 20;
    assert_true(buckets_quantile(&sums, &scale, 0.25) == 5);
    sums.counts[3] = 100; /* above all bounds: the last one is all that is known */
    assert_true(buckets_quantile(&sums, &scale, 0.99) == 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_interpolated),
        cmocka_unit_test(bounds_rise),
        cmocka_unit_test(a_bound_is_included),
        cmocka_unit_test(the_ends),
        cmocka_unit_test(they_add_up),
        cmocka_unit_test(every_operation_has_a_name),
        cmocka_unit_test(errors_by_their_first_word),
        cmocka_unit_test(time_that_runs_backwards_is_none),
        cmocka_unit_test(errors_of_an_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
