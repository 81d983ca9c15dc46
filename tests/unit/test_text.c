/* Base64 as RFC 4648 has it, and doubles that read back as themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"

static void test_base64(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } rows[] = {{"", ""},
                {"f", "Zg=="},
                {"fo", "Zm8="},
                {"foo", "Zm9v"},
                {"foob", "Zm9vYg=="},
                {"fooba", "Zm9vYmE="},
                {"foobar", "Zm9vYmFy"},
                {"\xff\xfe\xfd", "//79"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        base64_add(&out, slice_str(rows[i].bytes));
        assert_false(out.failed);
        assert_int_equal(out.len, strlen(rows[i].text));
        if (out.len > 0) {
            assert_memory_equal(out.data, rows[i].text, out.len);
        }
        buf_free(&out);
    }
}

static void test_doubles(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0"}, {0.25, "0.25"}, {0.1, "0.1"}, {2.3283064365386963e-10, "2.3283064365386963e-10"}, {1e6, "1e+06"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[DOUBLE_TEXT];
        assert_string_equal(double_text(rows[i].value, text), rows[i].text);
        assert_true(strtod(text, NULL) == rows[i].value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
