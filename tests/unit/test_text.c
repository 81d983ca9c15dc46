/* Base64 as RFC 4648 has it, UTF-8, and doubles that read back as themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/slice.h"
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

/* What is UTF-8, at every place of a text, since words are looked at before bytes. */
static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len; /* of the character; 0: it is none */
    } rows[] = {
        {"a", 1},
        {"\x7f", 1},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\x80", 0},
        {"\xbf", 0},
        {"\xc0\x80", 0},
        {"\xc1\xbf", 0},
        {"\xc2", 0},
        {"\xc2\x41", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xed\xa0\x80", 0},
        {"\xe1\x80", 0},
        {"\xe1\x80\x41", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xf1\x80\x80", 0},
        {"\xff", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t len = strlen(rows[i].bytes);
        assert_int_equal(utf8_len(rows[i].bytes, len), rows[i].len);
        for (size_t before = 0; before < 80; before++) {
            char text[100];
            memset(text, 'x', sizeof text);
            memcpy(text + before, rows[i].bytes, len);
            bool ascii = (rows[i].bytes[0] & 0x80) == 0;
            assert_int_equal(slice_is_utf8(slice_of(text, before + len)), rows[i].len > 0);
            assert_int_equal(slice_is_utf8(slice_of(text, sizeof text)), rows[i].len > 0);
            assert_int_equal(ascii_len(slice_of(text, sizeof text)), ascii ? sizeof text : before);
        }
    }
    assert_true(slice_is_utf8(slice_of("a\0b", 3)));
    assert_false(slice_is_text(slice_of("a\0b", 3)));
    assert_true(slice_is_text(slice_of(NULL, 0)));
    char text[] = "a\xff\xc3\xbc\xc3";
    utf8_clean(text);
    assert_string_equal(text, "a?\xc3\xbc?");
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

/* Digits alone, and no more than is asked for. */
static void test_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "-1", "+1", " 1", "1 ", "1x", "0x1", "18446744073709551616", "99999999999999999999"};
    uint64_t n = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(count_read(bad[i], UINT64_MAX, &n));
        assert_int_equal(n, 0);
    }
    assert_true(count_read("18446744073709551615", UINT64_MAX, &n) && n == UINT64_MAX);
    assert_true(count_read("0", 0, &n) && n == 0);
    assert_false(count_read("1", 0, &n));
    assert_true(count_read("0065535", 65535, &n) && n == 65535);
    assert_false(count_read("65536", 65535, &n));
    assert_false(count_read("70000", 65535, &n));
    assert_true(hex_read("0123456789abcdefx", 16, &n) && n == UINT64_C(0x0123456789abcdef));
    assert_false(hex_read("0123456789abcdeF", 16, &n));
    assert_false(hex_read("g", 1, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
