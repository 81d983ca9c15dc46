/* When a scheduled backup is due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "cli/serve_backup.h"

#define DAY_START INT64_C(1795219200000) /* 2026-11-21T00:00Z */

enum { MINUTE_MS = 60 * 1000, DAY = 24 * 60 };

static void check(int64_t now_minute, int64_t at_minute, int64_t due_minute)
{
    int64_t now = DAY_START + now_minute * MINUTE_MS + 12345;
    assert_int_equal(serve_backup_due_ms(now, at_minute), DAY_START + due_minute * MINUTE_MS);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_due)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
