/* The reply parser of the command line: every form, every split point, and bytes that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "net/reply.h"

static struct arena arena;

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* One line that says all of a tree: numbers as they are, texts in '', arrays in []. */
static void describe(const struct reply *r, struct buf *out)
{
    switch (r->kind) {
    case REPLY_NULL:
        buf_addf(out, "null ");
        break;
    case REPLY_TEXT:
        buf_addf(out, "'%.*s' ", (int)r->text.len, r->text.data);
        break;
    case REPLY_ERROR:
        buf_addf(out, "error'%.*s' ", (int)r->text.len, r->text.data);
        break;
    case REPLY_INTEGER:
        buf_addf(out, "%lld ", (long long)r->integer);
        break;
    case REPLY_DOUBLE:
        buf_addf(out, "%g ", r->number);
        break;
    case REPLY_BOOL:
        buf_addf(out, r->integer ? "true " : "false ");
        break;
    case REPLY_ARRAY:
        buf_addf(out, r->push ? ">[ " : "[ ");
        for (size_t i = 0; i < r->n; i++) {
            describe(&r->items[i], out);
        }
        buf_addf(out, "] ");
        break;
    }
}

/* Copied to memory of just that size, so that a read beyond the end is found. */
static int parse_copy(const char *bytes, size_t len, struct buf *description, size_t *used)
{
    char *copy = malloc(len + 1);
    struct reply r;
    assert_non_null(copy);
    char *exact = realloc(copy, len > 0 ? len : 1);
    memcpy(exact, bytes, len);
    arena_reset(&arena);
    int rc = reply_parse(exact, len, &arena, &r, used, NULL);
    if (rc == REPLY_DONE && description != NULL) {
        describe(&r, description);
        buf_add(description, "", 1);
    }
    free(exact);
    return rc;
}

static void test_every_form_at_every_split(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *want;
    } rows[] = {
        {"+OK\r\n", "'OK' "},
        {"+\r\n", "'' "},
        {"-ERR no\r\n", "error'ERR no' "},
        {":-42\r\n", "-42 "},
        {":9223372036854775807\r\n", "9223372036854775807 "},
        {"$5\r\na\r\nbc\r\n", "'a\r\nbc' "},
        {"$0\r\n\r\n", "'' "},
        {"$-1\r\n", "null "},
        {"*-1\r\n", "null "},
        {"_\r\n", "null "},
        {"#t\r\n", "true "},
        {"#f\r\n", "false "},
        {",1.5e-3\r\n", "0.0015 "},
        {",inf\r\n", "inf "},
        {"(123456789012345678901234567890\r\n", "'123456789012345678901234567890' "},
        {"!5\r\nERR x\r\n", "error'ERR x' "},
        {"=7\r\ntxt:abc\r\n", "'abc' "},
        {"*0\r\n", "[ ] "},
        {"*3\r\n:1\r\n$1\r\nx\r\n*1\r\n_\r\n", "[ 1 'x' [ null ] ] "},
        {"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", "[ 'a' 1 'b' [ 2 ] ] "},
        {"~2\r\n:1\r\n:2\r\n", "[ 1 2 ] "},
        {">1\r\n:1\r\n", ">[ 1 ] "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t len = strlen(rows[i].bytes), used;
        for (size_t cut = 0; cut < len; cut++) {
            assert_int_equal(parse_copy(rows[i].bytes, cut, NULL, &used), REPLY_MORE);
        }
        struct buf text = {0}, with_more = {0};
        buf_add(&with_more, rows[i].bytes, len);
        buf_add(&with_more, "+next\r\n", 7);
        used = 0;
        assert_int_equal(parse_copy(with_more.data, with_more.len, &text, &used), REPLY_DONE);
        assert_int_equal(used, len);
        assert_string_equal(text.data, rows[i].want);
        buf_free(&text);
        buf_free(&with_more);
    }
}

static void test_bad_bytes(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "HTTP/1.1 200 OK\r\n",
        "\r\n",
        ":\r\n",
        ":1x\r\n",
        ": 1\r\n",
        ":9223372036854775808\r\n",
        "$x\r\n",
        "$-2\r\n",
        "$536870913\r\n",
        "$1\r\nabc\r\n",
        "=3\r\nabc\r\n",
        "*-2\r\n",
        "*99999999999\r\n",
        "%4611686018427387905\r\n",
        "~-1\r\n",
        "#x\r\n",
        ",x\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    };
    size_t used;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse_copy(rows[i], strlen(rows[i]), NULL, &used), ERR_INVALID);
    }
    assert_int_equal(parse_copy("\0", 1, NULL, &used), ERR_INVALID);
}

static void test_a_line_has_a_limit(void **state)
{
    (void)state;
    size_t used, len = REPLY_LINE_MAX;
    char *line = malloc(len);
    assert_non_null(line);
    memset(line, 'x', len);
    line[0] = '+';
    assert_int_equal(parse_copy(line, len - 1, NULL, &used), REPLY_MORE);
    assert_int_equal(parse_copy(line, len, NULL, &used), ERR_INVALID);
    line[len - 2] = '\r';
    line[len - 1] = '\n';
    assert_int_equal(parse_copy(line, len, NULL, &used), REPLY_DONE);
    line = realloc(line, len + 1);
    assert_non_null(line);
    memcpy(line + len - 2, "x\r\n", 3);
    assert_int_equal(parse_copy(line, len + 1, NULL, &used), ERR_INVALID);
    free(line);
}

/* A huge array that is only announced costs no memory. */
static void test_announced_arrays_cost_nothing(void **state)
{
    (void)state;
    size_t used;
    assert_int_equal(parse_copy("*2000000000\r\n:1\r\n", 18, NULL, &used), REPLY_MORE);
    assert_true(arena.bytes < 1024 * 1024);
}

static void test_fields_and_numbers(void **state)
{
    (void)state;
    const char *bytes =
        "%6\r\n+first\r\n+a\r\n+a\r\n:7\r\n+b\r\n,0.5\r\n+c\r\n$4\r\n1e-3\r\n+d\r\n#t\r\n+e\r\n$2\r\n12\r\n";
    struct reply r;
    size_t used;
    double number;
    int64_t integer;
    arena_reset(&arena);
    assert_int_equal(reply_parse(bytes, strlen(bytes), &arena, &r, &used, NULL), REPLY_DONE);
    assert_true(reply_integer(reply_field(&r, "a"), &integer) && integer == 7);
    assert_true(reply_number(reply_field(&r, "a"), &number) && number > 6.9);
    assert_true(reply_number(reply_field(&r, "b"), &number) && number > 0.49 && number < 0.51);
    assert_true(reply_number(reply_field(&r, "c"), &number) && number > 0.0009 && number < 0.0011);
    assert_false(reply_integer(reply_field(&r, "c"), &integer));
    assert_true(reply_integer(reply_field(&r, "d"), &integer) && integer == 1);
    assert_true(reply_integer(reply_field(&r, "e"), &integer) && integer == 12);
    assert_null(reply_field(&r, "x"));
    assert_null(reply_field(reply_field(&r, "a"), "x"));
    assert_false(reply_integer(NULL, &integer));
    assert_false(reply_number(NULL, &number));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_at_every_split),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_a_line_has_a_limit),
        cmocka_unit_test(test_fields_and_numbers),
        cmocka_unit_test(test_announced_arrays_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
