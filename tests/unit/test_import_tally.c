/* What an import counts: which times are good, events of each month, distinct users and items. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/calendar.h"
#include "cli/import/import_tally.h"

static const int64_t DAY = 24 * 3600 * 1000;

/* Each of n twice: it counts once. */
static void add_twice(uint64_t n, uint64_t (*hash)(uint64_t i))
{
    struct distinct d = {0};
    assert_int_equal(distinct_count(&d), 0);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < n; i++) {
            assert_int_equal(distinct_add(&d, hash(i)), 0);
            assert_int_equal(distinct_count(&d), round == 0 ? i + 1 : n);
        }
    }
    assert_true(d.used <= d.size / 4 * 3);
    distinct_free(&d);
    assert_int_equal(distinct_count(&d), 0);
}

static uint64_t spread(uint64_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t low_bits_collide(uint64_t i)
{
    return i << 32 | i % 7;
}

static void test_distinct(void **state)
{
    (void)state;
    add_twice(100000, spread);
    add_twice(5000, low_bits_collide); /* each looks at all before it, or nearly */
}

static void test_times(void **state)
{
    (void)state;
    struct import_tally t;
    struct err err;
    int64_t now = month_start_ms(month_make(2026, 11)) + 20 * DAY;
    int64_t oldest = month_start_ms(month_make(2026, 5));
    assert_int_equal(import_tally_init(&t, 6, now, now, &err), 0);
    assert_int_equal(import_tally_time(&t, oldest - 1), IMPORT_TIME_OLD);
    assert_int_equal(import_tally_time(&t, oldest), IMPORT_TIME_GOOD);
    assert_int_equal(import_tally_time(&t, now + DAY), IMPORT_TIME_GOOD);
    assert_int_equal(import_tally_time(&t, now + DAY + 1), IMPORT_TIME_AHEAD);
    assert_int_equal(import_tally_time(&t, INT64_MIN), IMPORT_TIME_OLD);
    assert_int_equal(import_tally_time(&t, INT64_MAX), IMPORT_TIME_AHEAD);
    assert_int_equal(t.too_old, 2);
    assert_int_equal(t.ahead, 2);
    assert_int_equal(t.events, 0);
    import_tally_free(&t);

    /* A doubted clock: the earlier one says what is too old, the later one what is ahead. */
    assert_int_equal(import_tally_init(&t, 6, now, now + 400 * DAY, &err), 0);
    assert_int_equal(import_tally_time(&t, oldest), IMPORT_TIME_GOOD);
    assert_int_equal(import_tally_time(&t, now + 401 * DAY), IMPORT_TIME_GOOD);
    assert_int_equal(import_tally_time(&t, now + 401 * DAY + 1), IMPORT_TIME_AHEAD);
    import_tally_free(&t);
}

static void test_months(void **state)
{
    (void)state;
    struct import_tally t;
    struct err err;
    int first = month_make(2026, 9);
    /* The last day of a month: a play of the next one may come already. */
    int64_t now = month_start_ms(month_make(2026, 12)) - 1;
    assert_int_equal(import_tally_init(&t, 2, now, now, &err), 0);
    assert_int_equal(t.first_month, first);
    assert_int_equal(t.n_months, 4);
    for (int i = 0; i < 4; i++) {
        int64_t start = month_start_ms(first + i);
        assert_int_equal(import_tally_event(&t, start, 1, (uint64_t)i, &err), 0);
        assert_int_equal(import_tally_event(&t, month_start_ms(first), 2, 0, &err), 0);
        if (i < 3) {
            assert_int_equal(import_tally_event(&t, month_start_ms(first + i + 1) - 1, 1, 0, &err), 0);
        }
    }
    assert_int_equal(t.months[0], 6);
    assert_int_equal(t.months[1], 2);
    assert_int_equal(t.months[2], 2);
    assert_int_equal(t.months[3], 1);
    assert_int_equal(t.events, 11);
    assert_int_equal(distinct_count(&t.users), 2);
    assert_int_equal(distinct_count(&t.items), 4);
    import_tally_free(&t);
}

static void test_the_first_bad_lines_are_kept(void **state)
{
    (void)state;
    struct import_tally t;
    struct err err;
    assert_int_equal(import_tally_init(&t, 6, 0, 0, &err), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(import_tally_event(&t, 0, 1, 1, &err), 0);
    }
    import_tally_refused(&t, "a", 7, 3, "why not");
    char reason[32];
    for (uint64_t i = 0; i < 8; i++) {
        snprintf(reason, sizeof(reason), "reason %d", (int)i);
        import_tally_malformed(&t, i < 2 ? "a" : "b", 10 + i, reason, slice_of("", 0));
    }
    assert_int_equal(t.events, 7);
    assert_int_equal(t.refused, 3);
    assert_int_equal(t.malformed, 8);
    assert_int_equal(t.n_bad, IMPORT_BAD_SHOWN);
    assert_string_equal(t.bad[0].reason, "why not");
    assert_string_equal(t.bad[4].reason, "reason 3");
    assert_string_equal(t.bad[4].file, "b");
    assert_int_equal(t.bad[4].line, 13);
    import_tally_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_months),
        cmocka_unit_test(test_the_first_bad_lines_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
