/* When a scheduled backup is due, and when the next one is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "config/config.h"

#define DAY_START INT64_C(1795219200000) /* 2026-11-21T00:00Z */

enum { MINUTE_MS = 60 * 1000, HOUR_MS = 60 * MINUTE_MS, DAY = 24 * 60 };

static void check(int64_t now_minute, int at_minute, int64_t due_minute)
{
    int64_t now = DAY_START + now_minute * MINUTE_MS + 12345;
    assert_int_equal(calendar_passed_ms(now, at_minute), DAY_START + due_minute * MINUTE_MS);
}

static void test_due(void **state)
{
    (void)state;
    assert_int_equal(calendar_set_zone("UTC0"), 0);
    check(210, 210, 210); /* in this very minute */
    check(209, 210, 210 - DAY);
    check(211, 210, 210);
    check(0, 0, 0);
    check(DAY - 1, 0, 0);
    check(0, DAY - 1, -1);
    assert_int_equal(calendar_set_zone("IST-5:30"), 0); /* 5:30 ahead */
    check(210, 9 * 60, 210);
    check(209, 9 * 60, 210 - DAY);
    check(20 * 60, 60, 19 * 60 + 30);
    assert_int_equal(calendar_set_zone("CET-1CEST,M3.5.0,M10.5.0/3"), 0);
    const int64_t back = -27 * DAY, forth = -237 * DAY; /* days: 2026-10-25, 2026-03-29 */
    for (int64_t now = 0; now < 23 * 60; now++) {
        check(back + now, 60, back - 60);                             /* 01:00, in summer time */
        check(back + now, 150, back + (now < 30 ? 30 - DAY : 30));    /* the first 02:30 alone */
        check(back + now, 180, back + (now < 120 ? 60 - DAY : 120));  /* 03:00, in winter time */
        check(forth + now, 60, forth);                                /* 01:00 */
        check(forth + now, 150, forth + (now < 90 ? 90 - DAY : 90));  /* 02:30 is left out: 03:30 */
        check(forth + now, 180, forth + (now < 60 ? 120 - DAY : 60)); /* 03:00, in summer time */
    }
}

static int64_t minute(int64_t n)
{
    return DAY_START + n * MINUTE_MS;
}

static void check_next(int64_t now, int64_t last_good, int64_t expected)
{
    struct config cfg = {.backup_at = 210};
    assert_int_equal(config_backup_next_ms(&cfg, last_good, now), expected);
    cfg.backup_at = -1;
    assert_int_equal(config_backup_next_ms(&cfg, last_good, now), 0);
}

static void test_next(void **state)
{
    (void)state;
    assert_int_equal(calendar_set_zone("UTC0"), 0);
    check_next(minute(300), 0, minute(210)); /* none yet: overdue */
    check_next(minute(300), minute(209), minute(210));
    check_next(minute(300), minute(212), minute(210 + DAY));
    check_next(minute(209), minute(212 - DAY), minute(210));
    check_next(minute(300), minute(301 + DAY), minute(210)); /* made by a clock that was wrong */
    assert_int_equal(calendar_set_zone("Europe/Berlin"), 0);
    const int64_t last = INT64_C(1792890000000); /* 2026-10-25T01:00Z: the clocks go back, a day of 25 hours */
    check_next(last + HOUR_MS * 4, last + HOUR_MS * 3, last + HOUR_MS * 25 + HOUR_MS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_due), cmocka_unit_test(test_next)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
