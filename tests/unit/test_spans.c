/* A day and a month for the page: their points, what is kept of them, and what today was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/spans.h"

enum { MINUTE = 60 * 1000, HOUR = 60 * MINUTE };

static const int64_t MIDNIGHT = 1795219200000; /* 2026-11-21T00:00Z */
static struct spans spans;
static struct timeline_mark now;
static int64_t wall;

static int start(void **state)
{
    (void)state;
    memset(&spans, 0, sizeof spans);
    now = (struct timeline_mark){.mono_ms = 5000};
    wall = MIDNIGHT + 10 * HOUR;
    assert_false(spans_note(&spans, &now, wall));
    return 0;
}

/* A question of ten candidates each minute, of which four are hidden. */
static int pass(int minutes)
{
    int ended = 0;
    for (int i = 0; i < minutes; i++) {
        now.mono_ms += MINUTE;
        wall += MINUTE;
        now.questions++;
        now.candidates += 10;
        now.unseen += 6;
        ended += spans_note(&spans, &now, wall);
    }
    return ended;
}

static void a_point_each_five_minutes_and_each_hour(void **state)
{
    (void)state;
    assert_int_equal(pass(60), 12);
    assert_int_equal(spans.day.n, 12);
    assert_int_equal(spans.month.n, 1);
    assert_int_equal(spans.month.points[0].ms, HOUR);
    assert_int_equal(spans.month.points[0].hidden, 240);
    pass(5);
    assert_int_equal(spans.month.n, 2);
    assert_int_equal(spans.month.points[1].candidates, 50);
}

static void the_oldest_go(void **state)
{
    (void)state;
    pass(33 * 24 * 60);
    assert_int_equal(spans.day.n, SPAN_DAY_POINTS);
    assert_int_equal(spans.month.n, SPAN_MONTH_POINTS);
    assert_int_equal(spans.day.points[SPAN_DAY_POINTS - 1].at_ms, wall);
    assert_int_equal(spans.day.points[0].at_ms, wall - SPAN_DAY_MS + SPAN_DAY_STEP_MS);
    assert_int_equal(spans.month.points[0].at_ms, wall - (int64_t)SPAN_MONTH_STEP_MS * (SPAN_MONTH_POINTS - 1));
}

static void what_is_kept_is_what_was(void **state)
{
    (void)state;
    static struct span read;
    struct buf text = {0};
    pass(7 * 60);
    spans.day.points[3].question_p99_us = 250;
    span_write(&spans.day, &text);
    assert_true(span_read(&read, SPAN_DAY_POINTS, buf_slice(&text)));
    assert_int_equal(read.n, spans.day.n);
    assert_memory_equal(read.points, spans.day.points, read.n * sizeof *read.points);
    assert_true(span_read(&read, SPAN_DAY_POINTS, slice_str("")));
    assert_int_equal(read.n, 0);
    /* Cut at any byte but behind a point. */
    for (size_t len = 0; len < text.len; len++) {
        bool whole = len == 0 || text.data[len - 1] == '\n';
        assert_int_equal(span_read(&read, SPAN_DAY_POINTS, slice_of(text.data, len)), whole);
        assert_true(whole || read.n == 0);
    }
    assert_false(span_read(&read, spans.day.n - 1, buf_slice(&text)));
    buf_free(&text);
    static const char *const bad[] = {"\n",
                                      "1,2,3,4,5,6,7,8\n",
                                      "1,2,3,4,5,6,7,8,9,10\n",
                                      "1,2,3,4,5,6,7,8,-9\n",
                                      "1,2,3,4,5,6,7,8,99999999999999999999\n",
                                      "1, 2,3,4,5,6,7,8,9\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(span_read(&read, SPAN_DAY_POINTS, slice_str(bad[i])));
    }
}

static void today_begins_at_midnight(void **state)
{
    (void)state;
    pass(14 * 60 - 5); /* to 23:55 */
    struct span_today today = spans_today(&spans, &now, wall);
    assert_int_equal(today.hidden, 4 * (14 * 60 - 5));
    pass(7);
    today = spans_today(&spans, &now, wall);
    assert_int_equal(today.questions, 2); /* the point that ended at midnight is of the day before */
    assert_int_equal(today.hidden, 8);
    pass(63);
    assert_int_equal(spans_today(&spans, &now, wall).candidates, 650);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_point_each_five_minutes_and_each_hour, start),
        cmocka_unit_test_setup(the_oldest_go, start),
        cmocka_unit_test_setup(what_is_kept_is_what_was, start),
        cmocka_unit_test_setup(today_begins_at_midnight, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
