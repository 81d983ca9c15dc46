/* Replies of an old Redis that lies, cut anywhere; and how the migration tries again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "legacy/parse.h"
#include "legacy/reply_limits.h"
#include "legacy/retry.h"

enum { BYTES = 100, ELEMENTS = 6 };

#define SIXTY "$60\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n"

/* In pieces of so many bytes. Returns how many were good. */
static size_t see(const char *text, size_t piece, int *result, struct err *err)
{
    struct reply_limits l = {.bytes_max = BYTES, .elements_max = ELEMENTS};
    const size_t len = strlen(text);
    size_t all = 0;
    *result = 0;
    for (size_t at = 0; at < len && *result == 0; at += piece) {
        size_t good;
        *result = reply_limits_see(&l, text + at, len - at < piece ? len - at : piece, &good, err);
        all += good;
    }
    return all;
}

static void test_good(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "+OK\r\n",
        "-ERR no\r\n:12\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n",
        "*2\r\n$1\r\n0\r\n*4\r\n$1\r\na\r\n:1\r\n$2\r\n\r\n\r\n$-1\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n+four\r\n+again\r\n",
        "+a lone \n and \r\r in a line\r\n+next\r\n",
        /* the limits are a reply's, not the connection's */
        "*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n",
        SIXTY SIXTY,
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t piece = 1; piece <= strlen(cases[i]); piece++) {
            struct err err = {0};
            int result;
            size_t good = see(cases[i], piece, &result, &err);
            if (result != 0 || good != strlen(cases[i])) {
                fail_msg("%s by %zu: %s", cases[i], piece, err.text);
            }
        }
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *before, *text;
        int code;
        const char *what;
    } cases[] = {
        {"+OK\r\n", "$101\r\n", ERR_LARGE, "announces a string of 101 bytes, expected at most 100"},
        {"*2\r\n$1\r\n0\r\n", "*5\r\n", ERR_LARGE, "announces 5 elements, expected at most 6 in all"},
        {"", "*7\r\n", ERR_LARGE, "announces 7 elements"},
        {"", "*999999999999999999\r\n", ERR_LARGE, "announces 999999999999999999 elements"},
        {"", "*9999999999999999999\r\n", ERR_SYSTEM, "expected * and a length"},
        {"", "$99999999999999999999999999", ERR_SYSTEM, "expected $ and a length"},
        {"*1\r\n*1\r\n*1\r\n*1\r\n", "*1\r\n", ERR_LARGE, "deeper than the 4 levels"},
        {"*2\r\n$60\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", "$40\r\n", ERR_LARGE,
         "more than 100 bytes"},
        {"", "$-2\r\n", ERR_SYSTEM, "begins with \"$-2\", expected $ and a length"},
        {"", "$\r\n", ERR_SYSTEM, "expected $ and a length"},
        {"", "$+1\r\n", ERR_SYSTEM, "expected $ and a length"},
        {"", "$1\n\r\n", ERR_SYSTEM, "expected $ and a length"},
        {"", "*1 \r\n", ERR_SYSTEM, "expected * and a length"},
        {":1\r\n", "HTTP/1.1 400 Bad Request\r\n", ERR_SYSTEM, "begins with byte 0x48, expected one of"},
        {"", "%1\r\n", ERR_SYSTEM, "begins with byte 0x25"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        int n = snprintf(text, sizeof text, "%s%s", cases[i].before, cases[i].text);
        for (size_t piece = 1; piece <= (size_t)n; piece++) {
            struct err err = {0};
            int result;
            size_t good = see(text, piece, &result, &err);
            if (result != cases[i].code || strstr(err.text, cases[i].what) == NULL) {
                fail_msg("%s by %zu: %d %s", text, piece, result, err.text);
            }
            assert_true(good >= strlen(cases[i].before) && good < (size_t)n);
        }
    }
}

/* A line without end is refused before it has cost more than its limit. */
static void test_long_line(void **state)
{
    (void)state;
    char line[4096];
    struct reply_limits l = {.bytes_max = SIZE_MAX, .elements_max = ELEMENTS};
    struct err err = {0};
    size_t good, all = 0;
    int result;
    memset(line, '+', sizeof line);
    while ((result = reply_limits_see(&l, line, sizeof line, &good, &err)) == 0) {
        all += good;
    }
    assert_int_equal(result, ERR_LARGE);
    assert_int_equal(all, REPLY_LINE_MAX);
}

static void test_cursor(void **state)
{
    (void)state;
    char cursor[LEGACY_CURSOR] = "0";
    assert_true(legacy_cursor_ended(cursor));
    assert_null(legacy_cursor_take(cursor, slice_str("18446744073709551615")));
    assert_string_equal(cursor, "18446744073709551615");
    assert_false(legacy_cursor_ended(cursor));
    assert_non_null(strstr(legacy_cursor_take(cursor, slice_str("18446744073709551615")), "does not move on"));
    assert_non_null(strstr(legacy_cursor_take(cursor, slice_str("")), "no number"));
    assert_non_null(strstr(legacy_cursor_take(cursor, slice_str("-1")), "no number"));
    assert_non_null(strstr(legacy_cursor_take(cursor, slice_str("111111111111111111111111")), "no number"));
    assert_null(legacy_cursor_take(cursor, slice_str("0")));
    assert_null(legacy_cursor_take(cursor, slice_str("0"))); /* all on one page */
}

static void test_retry(void **state)
{
    (void)state;
    struct retry r = {0};
    assert_false(retry_proved(&r));
    assert_int_equal(retry_failed(&r, false), RETRY_MIN_MS);
    assert_false(r.careful);
    assert_int_equal(retry_failed(&r, true), 2 * RETRY_MIN_MS);
    assert_true(r.careful);
    for (int i = 0; i < 100; i++) {
        retry_failed(&r, false);
    }
    assert_int_equal(retry_failed(&r, false), RETRY_MAX_MS);
    assert_true(r.careful);
    assert_true(retry_proved(&r));
    assert_false(r.careful);
    assert_int_equal(retry_failed(&r, false), RETRY_MIN_MS);

    assert_false(retry_blames(&r, 0));
    assert_false(retry_blames(&r, 0));
    assert_false(retry_blames(&r, 1)); /* another one begins anew */
    assert_false(retry_blames(&r, 0));
    assert_false(retry_blames(&r, 0));
    assert_true(retry_blames(&r, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_bad),   cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_cursor), cmocka_unit_test(test_retry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
