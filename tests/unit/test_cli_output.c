/* Tables, JSON and the texts of numbers, as a user or a program reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/lib/output.h"

static char *text;
static size_t text_size;

static FILE *open_text(void)
{
    FILE *out = open_memstream(&text, &text_size);
    assert_non_null(out);
    return out;
}

static void assert_text(FILE *out, const char *want)
{
    fclose(out);
    assert_string_equal(text, want);
    free(text);
}

static void assert_escaped(void (*escape)(struct buf *, struct slice), const char *in, size_t len, const char *want)
{
    struct buf out = {0};
    escape(&out, slice_of(in, len));
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.data, want, out.len);
    buf_free(&out);
}

static void test_table_aligns(void **state)
{
    (void)state;
    FILE *out = open_text();
    struct table t;
    table_begin(&t, "month|plays>|state");
    table_cell(&t, "2026-11");
    table_cell(&t, "%d", 7);
    table_cell(&t, "live");
    table_cell(&t, "\xc3\xa9t\xc3\xa9"); /* two characters of two bytes each */
    table_cell(&t, "1,234,567");
    table_cell(&t, "expiring");
    table_cell(&t, "%s", "");
    table_cell(&t, "8");
    table_cell(&t, "%s", ""); /* nothing stands behind the last text of a line */
    table_end(&t, out);
    assert_text(out, "month        plays  state\n"
                     "2026-11          7  live\n"
                     "\xc3\xa9t\xc3\xa9      1,234,567  expiring\n"
                     "                 8\n");
}

static void test_table_without_rows(void **state)
{
    (void)state;
    FILE *out = open_text();
    struct table t;
    table_begin(&t, "a|b>");
    table_end(&t, out);
    assert_text(out, "a  b\n");
}

static void test_json(void **state)
{
    (void)state;
    FILE *out = open_text();
    struct json j = {.out = out};
    json_open(&j, NULL, '{');
    json_text(&j, "user", "a\"b");
    json_open(&j, "months", '[');
    json_open(&j, NULL, '{');
    json_number(&j, "n", -5);
    json_double(&j, "error", 0.00025);
    json_close(&j, '}');
    json_open(&j, NULL, '{');
    json_close(&j, '}');
    json_close(&j, ']');
    json_open(&j, "none", '[');
    json_close(&j, ']');
    json_bool(&j, "sealed", true);
    json_close(&j, '}');
    assert_text(out, "{\n"
                     "  \"user\": \"a\\\"b\",\n"
                     "  \"months\": [\n"
                     "    {\n"
                     "      \"n\": -5,\n"
                     "      \"error\": 0.00025\n"
                     "    },\n"
                     "    {}\n"
                     "  ],\n"
                     "  \"none\": [],\n"
                     "  \"sealed\": true\n"
                     "}\n");
}

/* JSON can't say an id that is no UTF-8: it stands beside. */
static void test_json_id(void **state)
{
    (void)state;
    char *said = NULL;
    size_t size;
    FILE *out = open_memstream(&said, &size);
    struct json j = {.out = out};
    json_open(&j, NULL, '{');
    json_id(&j, "user", slice_of("\xff\xfe", 2));
    json_id(&j, "item", slice_of("\0", 1));
    json_open(&j, "ids", '[');
    json_id(&j, NULL, slice_str("a"));
    json_id(&j, NULL, slice_str("\xff"));
    json_close(&j, ']');
    json_double(&j, "error", 0.000318471337623194);
    json_close(&j, '}');
    fclose(out);
    assert_string_equal(said, "{\n"
                              "  \"user_base64\": \"//4=\",\n"
                              "  \"item\": \"\\u0000\",\n"
                              "  \"ids\": [\n"
                              "    \"a\",\n"
                              "    {\n"
                              "      \"base64\": \"/w==\"\n"
                              "    }\n"
                              "  ],\n"
                              "  \"error\": 0.000318471337623194\n"
                              "}\n");
    free(said);
}

static void test_json_escape(void **state)
{
    (void)state;
    assert_escaped(json_escape, "", 0, "\"\"");
    assert_escaped(json_escape, "a\\b\"c", 5, "\"a\\\\b\\\"c\"");
    assert_escaped(json_escape, "\0\n\x1f\x7f", 4, "\"\\u0000\\u000a\\u001f\\u007f\"");
    assert_escaped(json_escape, "\xe2\x82\xac\xf0\x9f\x98\x80", 7, "\"\xe2\x82\xac\xf0\x9f\x98\x80\"");
    /* Not UTF-8: a lone byte, an overlong form, a surrogate, beyond the last character, cut off. */
    assert_escaped(json_escape, "\xff", 1, "\"\\udcff\"");
    assert_escaped(json_escape, "\xc0\x80", 2, "\"\\udcc0\\udc80\"");
    assert_escaped(json_escape, "\xed\xa0\x80", 3, "\"\\udced\\udca0\\udc80\"");
    assert_escaped(json_escape, "\xf4\x90\x80\x80", 4, "\"\\udcf4\\udc90\\udc80\\udc80\"");
    assert_escaped(json_escape, "\xe2\x82", 2, "\"\\udce2\\udc82\"");
}

/* Nothing that a terminal would obey gets through. */
static void test_escape_id(void **state)
{
    (void)state;
    assert_escaped(escape_id, "video:7", 7, "video:7");
    assert_escaped(escape_id, "\xe2\x82\xac", 3, "\xe2\x82\xac");
    assert_escaped(escape_id, "\x1b[2J\0\x7f", 6, "\\x1b[2J\\x00\\x7f");
    assert_escaped(escape_id,
                   "\xc2\x9b"
                   "31m",
                   5, "\\xc2\\x9b31m");
    assert_escaped(escape_id, "\xfe", 1, "\\xfe");
}

static void test_numbers(void **state)
{
    (void)state;
    char out[OUTPUT_TEXT];
    assert_string_equal(count_text(0, out), "0");
    assert_string_equal(count_text(999, out), "999");
    assert_string_equal(count_text(1000, out), "1,000");
    assert_string_equal(count_text(UINT64_MAX, out), "18,446,744,073,709,551,615");
    assert_string_equal(size_text(0, out), "0 B");
    assert_string_equal(size_text(1023, out), "1023 B");
    assert_string_equal(size_text(1536, out), "1.5 KiB");
    assert_string_equal(size_text(64 << 20, out), "64.0 MiB");
    assert_string_equal(size_text(UINT64_C(5) << 40, out), "5.0 TiB");
    assert_string_equal(chance_text(0, out), "0");
    assert_string_equal(chance_text(0.25e-3, out), "1 in 4,000");
    assert_string_equal(chance_text(0.6, out), "1 in 1.7");
    assert_string_equal(chance_text(1e-300, out), "0");
    assert_string_equal(date_text(1795219200000, out), "2026-11-21");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_aligns), cmocka_unit_test(test_table_without_rows),
        cmocka_unit_test(test_json),         cmocka_unit_test(test_json_id),
        cmocka_unit_test(test_json_escape),  cmocka_unit_test(test_escape_id),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
