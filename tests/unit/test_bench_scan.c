/* The load generator finds the end of every kind of reply, at every split, and takes nothing that is no reply. Each
 * feed sees a fresh copy of exactly the bytes that have come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench/bench_scan.h"

static int feed(struct bench_scan *scan, const char *bytes, size_t len)
{
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    int result = bench_scan(scan, copy, len);
    free(copy);
    return result;
}

static void finds_the_end(void **state)
{
    (void)state;
    static const char *const replies[] = {
        "+PONG\r\n",
        "-ERR no\r\n",
        ":-12\r\n",
        "$5\r\nhello\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "$4\r\n\r\n*1\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*2\r\n$1\r\na\r\n:5\r\n",
        "*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n$2\r\nxy\r\n",
        "_\r\n",
        "#t\r\n",
        ",1.5e3\r\n",
        "(123456789012345678901234567890\r\n",
        "=7\r\ntxt:abc\r\n",
        "!5\r\nERR x\r\n",
        "%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n*1\r\n_\r\n",
        "~1\r\n$1\r\na\r\n",
        "*3\r\n%1\r\n+a\r\n*0\r\n$-1\r\n$3\r\n\r\n\r\r\n",
    };
    for (size_t r = 0; r < sizeof replies / sizeof *replies; r++) {
        size_t len = strlen(replies[r]);
        for (size_t split = 0; split < len; split++) {
            struct bench_scan scan = {0};
            assert_int_equal(feed(&scan, replies[r], split), BENCH_SCAN_MORE);
            assert_int_equal(feed(&scan, replies[r], len), BENCH_SCAN_DONE);
            assert_int_equal(scan.at, len);
        }
        struct bench_scan scan = {0};
        char followed[128];
        snprintf(followed, sizeof followed, "%s:7\r\n", replies[r]);
        for (size_t n = 0; n < len; n++) {
            assert_int_equal(feed(&scan, followed, n), BENCH_SCAN_MORE);
        }
        assert_int_equal(feed(&scan, followed, strlen(followed)), BENCH_SCAN_DONE);
        assert_int_equal(scan.at, len);
    }
}

static void takes_nothing_else(void **state)
{
    (void)state;
    static const char *const bytes[] = {"HTTP/1.1", "\r\n", "$x\r\n", "*1x\r\n", "$12345678901\r\n", "*1\r\nx"};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        struct bench_scan scan = {0};
        assert_int_equal(feed(&scan, bytes[i], strlen(bytes[i])), BENCH_SCAN_BAD);
    }
}

static void walks_over_lines(void **state)
{
    (void)state;
    struct slice reply = slice_str("*4\r\n$3\r\nabc\r\n:-7\r\n$-1\r\n-BUSY now\r\n"), text;
    size_t at = 0;
    int64_t number;
    assert_int_equal(bench_line(reply, &at, &number, &text), '*');
    assert_int_equal(number, 4);
    assert_int_equal(bench_line(reply, &at, &number, &text), '$');
    assert_true(slice_eq(text, slice_str("abc")));
    assert_int_equal(bench_line(reply, &at, &number, &text), ':');
    assert_int_equal(number, -7);
    assert_int_equal(bench_line(reply, &at, &number, &text), '$');
    assert_int_equal(number, -1);
    assert_int_equal(bench_line(reply, &at, &number, &text), '-');
    assert_true(slice_eq(text, slice_str("BUSY now")));
    assert_int_equal(at, reply.len);
    assert_int_equal(bench_line(reply, &at, &number, &text), '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_end),
        cmocka_unit_test(takes_nothing_else),
        cmocka_unit_test(walks_over_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
