/* Connect's unary protocol: its times, statuses and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "grpc/unary.h"

static void test_timeouts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us; /* -1: refused */
    } rows[] = {{"0", 0},   {"1", 1000}, {"0000000001", 1000}, {"9999999999", 9999999999000},
                {"", -1},   {"-1", -1},  {"+1", -1},           {"1s", -1},
                {" 1", -1}, {"1.5", -1}, {"10000000000", -1},  {"00000000001", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t us = -1;
        assert_int_equal(unary_timeout(slice_str(rows[i].text), &us), rows[i].us < 0 ? ERR_INVALID : 0);
        assert_int_equal(us, rows[i].us);
    }
}

static void test_errors(void **state)
{
    (void)state;
    struct buf out = {0};
    unary_write_error(GRPC_INVALID_ARGUMENT, "a \"b\" \\ \n\x01 \xc3\xbc", &out);
    static const char expected[] =
        "{\"code\":\"invalid_argument\",\"status\":3,\"message\":\"a \\\"b\\\" \\\\ \\u000a\\u0001 \xc3\xbc\"}";
    assert_false(out.failed);
    assert_int_equal(out.len, sizeof expected - 1);
    assert_memory_equal(out.data, expected, out.len);
    buf_free(&out);
    for (int status = GRPC_CANCELLED; status <= GRPC_UNAUTHENTICATED; status++) {
        assert_in_range(unary_http_status((enum grpc_status)status), 400, 504);
    }
    assert_int_equal(unary_http_status(GRPC_OK), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
