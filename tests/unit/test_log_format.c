/* A line of the log in both forms, whatever is in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { TIME = sizeof "2026-11-21T10:00:00.000Z" - 1 };

static char said[2 * LOG_LINE];

/* What this logs, without its newline. */
#define SAID(as, ...)                                                                                                  \
    do {                                                                                                               \
        int pair[2], kept = dup(STDERR_FILENO);                                                                        \
        assert_int_equal(pipe(pair), 0);                                                                               \
        dup2(pair[1], STDERR_FILENO);                                                                                  \
        log_set_format(as);                                                                                            \
        __VA_ARGS__;                                                                                                   \
        dup2(kept, STDERR_FILENO);                                                                                     \
        close(kept);                                                                                                   \
        close(pair[1]);                                                                                                \
        ssize_t len = read(pair[0], said, sizeof said);                                                                \
        assert_in_range(len, 1, LOG_LINE);                                                                             \
        assert_int_equal(said[len - 1], '\n');                                                                         \
        said[len - 1] = '\0';                                                                                          \
        assert_null(strchr(said, '\n'));                                                                               \
        close(pair[0]);                                                                                                \
    } while (0)

static json_t *object(void)
{
    json_error_t problem;
    json_t *o = json_loads(said, JSON_REJECT_DUPLICATES, &problem);
    if (o == NULL) {
        fail_msg("%s: %s", problem.text, said);
    }
    return o;
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        struct slice value;
        const char *quoted;
        const char *decoded;
    } rows[] = {
#define S(text) {text, sizeof(text) - 1}
        {S(""), "\"\"", ""},
        {S("plain"), "\"plain\"", "plain"},
        {S("two words"), "\"two words\"", "two words"},
        {S("a=b"), "\"a=b\"", "a=b"},
        {S("say \"hi\""), "\"say \\\"hi\\\"\"", "say \"hi\""},
        {S("back\\slash\\"), "\"back\\\\slash\\\\\"", "back\\slash\\"},
        {S("a\nb\r\tc"), "\"a\\nb\\r\\tc\"", "a\nb\r\tc"},
        {S("\x01\x1b[2J\x7f"), "\"\\u0001\\u001b[2J\\u007f\"", "\x01\x1b[2J\x7f"},
        {S("nul\0byte"), "\"nul\\u0000byte\"", NULL},
        {S("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"), "\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\"",
         "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {S("\xc2\x9b\x33\x31m\xe2\x80\xae"), "\"\\u009b31m\\u202e\"", "\xc2\x9b\x33\x31m\xe2\x80\xae"},
        {S("\xff\xc3"), "\"\\\\xff\\\\xc3\"", "\\xff\\xc3"},
        {S("\xed\xa0\x80"), "\"\\\\xed\\\\xa0\\\\x80\"", "\\xed\\xa0\\x80"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[256];
        assert_string_equal(log_quote(rows[i].value), rows[i].quoted);
        SAID(LOG_FORMAT_LOGFMT, log_error("message of it", "user=%s n=%d", log_quote(rows[i].value), 7));
        snprintf(expected, sizeof expected, " error message of it user=%s n=7", rows[i].quoted);
        assert_string_equal(said + TIME, expected);
        SAID(LOG_FORMAT_JSON, log_error("message of it", "user=%s n=%d", log_quote(rows[i].value), 7));
        if (rows[i].decoded != NULL) { /* jansson takes no NUL */
            json_t *o = object();
            assert_string_equal(json_string_value(json_object_get(o, "user")), rows[i].decoded);
            assert_int_equal(json_integer_value(json_object_get(o, "n")), 7);
            assert_int_equal(json_object_size(o), 5);
            json_decref(o);
        }
    }
}

static void test_an_error_within_an_error(void **state)
{
    (void)state;
    char inner[256];
    snprintf(inner, sizeof inner, "user %s can't be read", log_quote_str("a \"b\" \xff"));
    SAID(LOG_FORMAT_JSON, log_error("damaged", "error=%s", log_quote_str(inner)));
    json_t *o = object();
    assert_string_equal(json_string_value(json_object_get(o, "error")), inner);
    json_decref(o);
}

static void test_numbers_and_words(void **state)
{
    (void)state;
    SAID(LOG_FORMAT_JSON,
         log_error("m", "a=-12 b=0 c=1.50 d=007 e=1. f=- g=00ff h=1e5 i=yes j= k=18446744073709551615"));
    assert_non_null(strstr(said, ",\"a\":-12,\"b\":0,\"c\":1.50,\"d\":\"007\",\"e\":\"1.\",\"f\":\"-\",\"g\":\"00ff\","
                                 "\"h\":\"1e5\",\"i\":\"yes\",\"j\":\"\",\"k\":18446744073709551615}"));
    SAID(LOG_FORMAT_JSON, log_error("m", "seed=12345678 jansson=2.14 node=\"7\" seeds=1"));
    assert_non_null(strstr(said, ",\"seed\":\"12345678\",\"jansson\":\"2.14\",\"node\":\"7\",\"seeds\":1}"));
    SAID(LOG_FORMAT_JSON, log_error("nothing \"else\"", ""));
    assert_string_equal(said + strlen("{\"time\":\"") + TIME,
                        "\",\"level\":\"error\",\"message\":\"nothing \\\"else\\\"\"}");
    json_decref(object());
}

/* What does not fit is left out, whole pairs from the end, and the line says so. */
static void test_a_line_too_long(void **state)
{
    (void)state;
    char bytes[200];
    memset(bytes, 1, sizeof bytes); /* six times as long in quotes */
    const char *q = log_quote(slice_of(bytes, sizeof bytes));
    SAID(LOG_FORMAT_LOGFMT, log_error("m", "a=%s b=%s c=1", q, q));
    assert_non_null(strstr(said, " a=\"\\u0001"));
    assert_null(strstr(said, " b="));
    assert_string_equal(said + strlen(said) - strlen("\\u0001\" cut=true"), "\\u0001\" cut=true");
    SAID(LOG_FORMAT_JSON, log_error("m", "a=%s b=%s c=1 d=%s e=%s", q, q, q, q));
    json_t *o = object();
    assert_int_equal(json_string_length(json_object_get(o, "a")), 200);
    assert_null(json_object_get(o, "b"));
    assert_true(json_is_true(json_object_get(o, "cut")));
    json_decref(o);
}

static void test_the_last_word(void **state)
{
    (void)state;
    SAID(LOG_FORMAT_LOGFMT, log_last("listen is \"x\", expected a port"));
    assert_string_equal(said, "unseen: listen is \"x\", expected a port");
    SAID(LOG_FORMAT_JSON, log_last("listen is \"x\", expected a port"));
    json_t *o = object();
    assert_string_equal(json_string_value(json_object_get(o, "message")), "listen is \"x\", expected a port");
    assert_string_equal(json_string_value(json_object_get(o, "level")), "error");
    json_decref(o);
}

/* The page shows them as logfmt in any case. */
static void test_recent(void **state)
{
    (void)state;
    struct log_recent last;
    SAID(LOG_FORMAT_JSON, log_warn("message of it", "a=1 b=%s", log_quote_str("x y")));
    assert_int_equal(log_recent(&last, 1), 1);
    assert_string_equal(last.text, "message of it a=1 b=\"x y\"");
}

int main(void)
{
    unsetenv("JOURNAL_STREAM");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_an_error_within_an_error),
        cmocka_unit_test(test_numbers_and_words),
        cmocka_unit_test(test_a_line_too_long),
        cmocka_unit_test(test_the_last_word),
        cmocka_unit_test(test_recent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
