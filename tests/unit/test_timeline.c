/* The last hour: what is kept, in how much memory, and what the points say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/timeline.h"

static struct timeline t;
static struct timeline_mark now;

static int start(void **state)
{
    (void)state;
    t = (struct timeline){0};
    now = (struct timeline_mark){.mono_ms = 5000};
    return 0;
}

static void pass(int64_t ms)
{
    now.mono_ms += ms;
    timeline_note(&t, &now);
}

static void a_mark_each_step(void **state)
{
    (void)state;
    assert_null(timeline_recent(&t, 0));
    pass(0);
    assert_int_equal(t.n, 1);
    pass(TIMELINE_STEP_MS - 1);
    assert_int_equal(t.n, 1);
    pass(1);
    assert_int_equal(t.n, 2);
    assert_int_equal(timeline_mark(&t, 0)->mono_ms, 5000);
    assert_int_equal(timeline_mark(&t, 1)->mono_ms, 5000 + TIMELINE_STEP_MS);
}

/* After hours it holds one, in order. */
static void no_more_than_an_hour(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * TIMELINE_POINTS; i++) {
        now.questions += 30;
        pass(TIMELINE_STEP_MS);
    }
    assert_int_equal(t.n, TIMELINE_POINTS + 1);
    assert_int_equal(now.mono_ms - timeline_mark(&t, 0)->mono_ms, TIMELINE_MS);
    for (size_t i = 1; i < t.n; i++) {
        struct timeline_point p = timeline_between(timeline_mark(&t, i - 1), timeline_mark(&t, i));
        assert_true(p.seconds == 15 && p.questions == 2);
    }
}

/* Nobody ticked for an hour: one long point, not a spike. */
static void a_long_step(void **state)
{
    (void)state;
    pass(0);
    now.writes = 7200;
    pass(TIMELINE_MS);
    struct timeline_point p = timeline_between(timeline_mark(&t, 0), timeline_mark(&t, 1));
    assert_true(p.seconds == 3600 && p.writes == 2);
}

static void what_a_point_says(void **state)
{
    (void)state;
    struct timeline_mark later = now;
    struct timeline_point p = timeline_between(&now, &later);
    assert_true(p.questions == 0 && p.hidden < 0 && p.asked.p50_us < 0 && p.recorded.p99_us < 0);
    later.mono_ms += 10000;
    later.candidates = 100;
    later.unseen = 75;
    later.errors = 5;
    later.asked.counts[4] = 100; /* 100 to 250 us */
    p = timeline_between(&now, &later);
    assert_true(p.hidden == 0.25 && p.errors == 0.5);
    assert_true(p.asked.p50_us == 175 && p.asked.p99_us == 248.5);
    assert_true(p.recorded.p50_us < 0);
}

/* From a mark that is old enough to say something; right after the start from the first. */
static void now_is_some_seconds(void **state)
{
    (void)state;
    pass(0);
    assert_ptr_equal(timeline_recent(&t, now.mono_ms + 1), timeline_mark(&t, 0));
    pass(TIMELINE_STEP_MS);
    assert_ptr_equal(timeline_recent(&t, now.mono_ms + TIMELINE_RECENT_MS - 1), timeline_mark(&t, 0));
    assert_ptr_equal(timeline_recent(&t, now.mono_ms + TIMELINE_RECENT_MS), timeline_mark(&t, 1));
}

static void growth_begins_when_it_is_known(void **state)
{
    (void)state;
    pass(0);
    assert_null(timeline_data(&t, now.mono_ms));
    now.data_bytes = 100;
    pass(TIMELINE_STEP_MS);
    now.data_bytes = 300;
    pass(TIMELINE_STEP_MS);
    assert_int_equal(timeline_data(&t, now.mono_ms)->data_bytes, 100);
    assert_null(timeline_data(&t, now.mono_ms + TIMELINE_MS + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_mark_each_step, start),
        cmocka_unit_test_setup(no_more_than_an_hour, start),
        cmocka_unit_test_setup(a_long_step, start),
        cmocka_unit_test_setup(what_a_point_says, start),
        cmocka_unit_test_setup(now_is_some_seconds, start),
        cmocka_unit_test_setup(growth_begins_when_it_is_known, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
