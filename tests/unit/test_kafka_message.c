/* Messages of topics: what each format says, and what is refused, by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "base/wire.h"
#include "dedup/dedup.h"
#include "kafka/message.h"

static struct arena arena;

/* options: "name=value|name=value", without kafka_ */
static struct message_rules *rules_of(const char *options, struct err *err)
{
    struct config cfg;
    struct message_rules *rules = NULL;
    char copy[512], name[64], *next = NULL;
    config_defaults(&cfg);
    snprintf(copy, sizeof copy, "%s", options);
    for (char *at = strtok_r(copy, "|", &next); at != NULL; at = strtok_r(NULL, "|", &next)) {
        char *equals = strchr(at, '=');
        *equals = '\0';
        snprintf(name, sizeof name, "kafka_%s", at);
        assert_int_equal(config_set(&cfg, name, equals + 1, err), 0);
    }
    int code = message_rules_new(&cfg, &rules, err);
    assert_int_equal(code == 0, rules != NULL);
    return rules;
}

/* "play u a,b 1700000000000", or the error's text. */
static const char *read_message(const char *options, struct slice key, struct slice value)
{
    static char said[1024];
    struct err err = {0};
    struct message_event e;
    struct message_rules *rules = rules_of(options, &err);
    if (rules == NULL) {
        fail_msg("%s: %s", options, err.text);
    }
    struct message m = {key, value};
    char *before = value.len > 0 ? malloc(value.len) : NULL; /* asan sees what reads beyond it */
    if (before != NULL) {
        memcpy(before, value.data, value.len);
        m.value.data = before;
    }
    int code = kafka_message_read(rules, &m, &arena, &e, &err);
    if (code == 1) {
        int len = snprintf(said, sizeof said, "%s %.*s ", e.kind == STORE_PLAY ? "play" : "delivery", (int)e.user.len,
                           e.user.data);
        for (size_t i = 0; i < e.n && i < 8; i++) {
            len += snprintf(said + len, sizeof said - (size_t)len, "%s%.*s", i > 0 ? "," : "", (int)e.items[i].len,
                            e.items[i].data);
        }
        if (e.has_at) {
            snprintf(said + len, sizeof said - (size_t)len, " %lld", (long long)e.at_ms);
        }
    } else {
        assert_true(code == 0 || code == ERR_INVALID);
        snprintf(said, sizeof said, "%s", code == 0 ? "nothing" : err.text);
    }
    if (before != NULL) {
        assert_memory_equal(before, value.data, value.len);
    }
    free(before);
    arena_reset(&arena);
    message_rules_free(rules);
    return said;
}

static void check(const char *options, const char *key, struct slice value, const char *wanted)
{
    const char *said = read_message(options, key != NULL ? slice_str(key) : (struct slice){NULL, 0}, value);
    if (strcmp(said, wanted) != 0) {
        fail_msg("%s, %.*s\n  said:   %s\n  wanted: %s", options, (int)value.len, value.data, said, wanted);
    }
}

struct text_case {
    const char *options, *key, *value, *wanted;
};

static void check_all(const struct text_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        check(cases[i].options, cases[i].key, slice_str(cases[i].value), cases[i].wanted);
    }
}

#define NEST8 "[[[[[[[["
#define NEST8_END "]]]]]]]]"

static void test_json(void **state)
{
    (void)state;
    static const struct text_case cases[] = {
        {"", NULL, "{\"user\":\"u\",\"item\":\"i\",\"time\":1700000000123}", "play u i 1700000000123"},
        {"", NULL, " {\"x\":[1,{\"user\":2}],\"item\":7,\"user\":-42} ", "play -42 7"},
        {"", NULL, "{\"user\":\"u\",\"item\":[\"a\", 7 ,\"b\",\"c\",\"d\"],\"type\":\"play\"}", "play u a,7,b,c,d"},
        {"", NULL, "{\"user\":\"u\",\"item\":\"i\",\"type\":\"delivery\"}", "delivery u i"},
        {"play=a, b|delivery=c d", NULL, "{\"user\":\"u\",\"item\":\"i\",\"type\":\"b\"}", "play u i"},
        {"play=a, b|delivery=c d", NULL, "{\"user\":\"u\",\"item\":\"i\",\"type\":\"d\"}", "delivery u i"},
        {"play=1|delivery=2", NULL, "{\"user\":\"u\",\"item\":\"i\",\"type\":2}", "delivery u i"},
        {"", NULL, "{\"user\":\"u\",\"item\":\"i\",\"type\":null,\"time\":null}", "play u i"},
        {"", NULL, "{\"user\":\"u\",\"item\":\"i\",\"type\":\"\",\"time\":\"\"}", "play u i"},
        {"", NULL, "{\"user\":\"u\",\"item\":\"i\",\"type\":\"click\"}",
         "type is \"click\", expected play or delivery"},
        {"user=a.b.c|item=a.i", NULL, "{\"a\":{\"b\":{\"x\":1,\"c\":\"u\"},\"i\":[9]},\"b\":{\"c\":\"no\"}}",
         "play u 9"},
        {"user=a.b", NULL, "{\"a\":5,\"item\":1}", "user is missing"},
        {"user=a.b", NULL, "{\"a\":{\"b\":1},\"a\":{\"b\":2},\"item\":1}", "user is given twice"},
        {"", NULL, "{\"us\\u0065r\":\"\\u00fc\\n\\ud83d\\ude00\",\"item\":\"a\\\"b\"}",
         "play \xc3\xbc\n\xf0\x9f\x98\x80 a\"b"},
        {"key=user", "k", "{\"user\":\"u\",\"item\":\"i\"}", "play k i"},
        {"key=user|user=", "k", "{\"item\":\"i\"}", "play k i"},
        {"key=user", NULL, "{\"item\":\"i\"}", "the message has no key, which is to be the user"},
        {"key=user", "", "{\"item\":\"i\"}", "user is empty: an id has 1 to 255 bytes"},
        {"time_unit=s", NULL, "{\"user\":1,\"item\":1,\"time\":1700000000}", "play 1 1 1700000000000"},
        {"time_unit=s", NULL, "{\"user\":1,\"item\":1,\"time\":1700000000.1239}", "play 1 1 1700000000123"},
        {"time_unit=s", NULL, "{\"user\":1,\"item\":1,\"time\":1700000000000}",
         "time is \"1700000000000\", which looks like milliseconds, expected seconds"},
        {"", NULL, "{\"user\":1,\"item\":1,\"time\":1700000000}",
         "time is \"1700000000\", which looks like seconds, expected milliseconds"},
        {"", NULL, "{\"user\":1,\"item\":1,\"time\":1700000000000000}",
         "time is \"1700000000000000\", which looks like microseconds, expected milliseconds"},
        {"time_unit=s", NULL, "{\"user\":1,\"item\":1,\"time\":\"1700000000000000000\"}",
         "time is \"1700000000000000000\", which looks like nanoseconds, expected seconds"},
        {"", NULL, "{\"user\":1,\"item\":1,\"time\":\"1700000000000.9\"}", "play 1 1 1700000000000"},
        {"", NULL, "{\"user\":1,\"item\":1,\"time\":1.7e12}", "time is \"1.7e12\", expected unix time in milliseconds"},
        {"", NULL, "{\"user\":1,\"item\":1,\"time\":99999999999999999999}",
         "time is \"99999999999999999999\", expected unix time in milliseconds"},
        {"", NULL, "{\"user\":1,\"item\":1,\"time\":true}", "time is neither a string nor a number"},
        {"time_unit=iso", NULL, "{\"user\":1,\"item\":1,\"time\":\"2023-11-14T22:13:20.123Z\"}",
         "play 1 1 1700000000123"},
        {"time_unit=iso", NULL, "{\"user\":1,\"item\":1,\"time\":\"2023-11-15T00:13:20+02:00\"}",
         "play 1 1 1700000000000"},
        {"time_unit=iso", NULL, "{\"user\":1,\"item\":1,\"time\":\"2023-02-30T00:00:00Z\"}",
         "time is \"2023-02-30T00:00:00Z\", expected a time such as 2026-11-22T20:40:00Z"},
        {"", NULL, "", "expected \"{\" at byte 1"},
        {"", NULL, "[]", "expected \"{\" at byte 1"},
        {"", NULL, "{}", "user is missing"},
        {"", NULL, "{\"user\":\"u\"}", "item is missing"},
        {"", NULL, "{\"user\":\"u\",\"item\":null}", "item is missing"},
        {"", NULL, "{\"user\":\"u\",\"item\":[]}", "item is an empty list"},
        {"", NULL, "{\"user\":\"u\",\"item\":[\"a\",\"\"]}", "item 2 is empty: an id has 1 to 255 bytes"},
        {"", NULL, "{\"user\":\"u\",\"item\":[null]}", "item is neither a string nor a whole number"},
        {"", NULL, "{\"user\":\"u\",\"item\":[[1]]}", "item is neither a string nor a whole number"},
        {"", NULL, "{\"user\":\"u\",\"item\":[1", "expected \",\" or \"]\" at byte 22"},
        {"", NULL, "{\"user\":7.0,\"item\":1}", "user is neither a string nor a whole number"},
        {"", NULL, "{\"user\":\"u\",\"user\":\"u\",\"item\":1}", "user is given twice"},
        {"", NULL, "{\"user\":\"u\",\"item\":1,\"item\":1}", "item is given twice"},
        {"", NULL, "{\"user\":\"u\",\"item\":1}{", "text after the object at byte 22"},
        {"", NULL, "{\"user\":\"u\",\"item\":1,}", "expected a key at byte 22"},
        {"", NULL, "{\"user\":\"u\",\"item\":1", "expected \",\" or \"}\" at byte 21"},
        {"", NULL, "{\"user\":\"u", "a string isn't closed at byte 11"},
        {"", NULL, "{\"user\":\"u\\", "unknown escape at byte 12"},
        {"", NULL, "{\"user\":\"u\\ud800\"}", "half of a surrogate pair at byte 17"},
        {"", NULL, "{\"user\":\"\xff\",\"item\":1}", "it is not UTF-8, expected JSON"},
        {"", NULL, "{\"x\":" NEST8 NEST8 NEST8 NEST8 "[" NEST8_END NEST8_END NEST8_END NEST8_END "]}",
         "nested too deeply at byte 38"},
    };
    check_all(cases, sizeof cases / sizeof *cases);
    check("", NULL, (struct slice){NULL, 0}, "nothing");
}

static void test_csv(void **state)
{
    (void)state;
#define CSV "format=csv|user=2|item=3|time=1|type=4"
    static const struct text_case cases[] = {
        {CSV, NULL, "1700000000000,u,i,play", "play u i 1700000000000"},
        {CSV, NULL, ",u,i,\r\n", "play u i"},
        {CSV, NULL, ",u,i", "play u i"},
        {CSV, NULL, "1700000000000,\"u,\"\"1\"\"\n2\",i,delivery,more\n", "delivery u,\"1\"\n2 i 1700000000000"},
        {CSV, NULL, "1700000000000,u", "item is column 3, and the line has 2"},
        {CSV, NULL, "1700000000000,,i", "user is empty: an id has 1 to 255 bytes"},
        {CSV, NULL, "x,u,i", "time is \"x\", expected unix time in milliseconds"},
        {CSV, NULL, ",u,i\n,u,i", "it has more than one line, expected one line of CSV"},
        {CSV, NULL, ",\"u,i", "a quote isn't closed, expected a line of CSV"},
        {CSV, NULL, ",\"u\"x,i", "text after a closing quote, expected a line of CSV"},
        {CSV, NULL, "", "user is column 2, and the line has 1"},
        {"format=csv|key=user|item=1|time=|type=", "k", "i", "play k i"},
    };
    check_all(cases, sizeof cases / sizeof *cases);
}

#define PROTOBUF "format=protobuf|user=1|item=2|time=3|type=4|play=1|delivery=2"

static void test_protobuf(void **state)
{
    (void)state;
    struct buf b = {0};
    wire_put_bytes(&b, 1, slice_str("x"));
    wire_put_number(&b, 9, 5);
    wire_put_double(&b, 10, 1.5);
    wire_put_bytes(&b, 1, slice_str("u")); /* the last one counts */
    wire_put_item(&b, 2, slice_str("a"));
    wire_put_number(&b, 2, UINT64_MAX);
    wire_put_number(&b, 3, 1700000000000);
    wire_put_number(&b, 4, 2);
    check(PROTOBUF, NULL, buf_slice(&b), "delivery u a,18446744073709551615 1700000000000");
    check(PROTOBUF, NULL, slice_of(b.data, b.len - 1), "field 4: the message ends within its value");
    buf_free(&b);
}

static void test_protobuf_within(void **state)
{
    (void)state;
    struct buf b = {0};
    size_t open = wire_begin(&b, 5);
    wire_put_bytes(&b, 1, slice_str("u"));
    size_t list = wire_begin(&b, 2);
    buf_add(&b, "\x01\xac\x02\x00", 4);
    wire_end(&b, list);
    wire_end(&b, open);
    wire_put_number(&b, 2, 4);
    check("format=protobuf|user=5.1|item=5.2 packed|time=|type=", NULL, buf_slice(&b), "play u 1,300,0");
    check("format=protobuf|user=5.1|item=2.1|time=|type=", NULL, buf_slice(&b),
          "item: field 2 is a number, expected a message");
    check("format=protobuf|user=7|item=2|time=|type=", NULL, buf_slice(&b), "user is missing");
    check("format=protobuf|user=5.1|item=7|time=|type=", NULL, buf_slice(&b), "item is missing");
    check("format=protobuf|user=1|item=2|time=|type=", NULL, slice_of("\x0b", 1),
          "field 1: is a group, which proto3 does not have");
    check("format=protobuf|user=1|item=2 packed|time=|type=", NULL, slice_of("\x12\x01\xff", 3),
          "item: the message ends within a number of its list");
    check("format=protobuf|user=1|item=2|time=|type=", NULL, slice_str(""), "user is missing");
    check("format=protobuf|user=1|item=2|time=|type=", NULL, slice_of("\x0d\x07\0\0\0\x12\x01i", 8), "play 7 i");
    buf_free(&b);
}

/* Below 0: as int64, sint64, sfixed32 and sfixed64 have them, and in a packed list. */
static void test_protobuf_signed(void **state)
{
    (void)state;
    struct buf b = {0};
    wire_put_number(&b, 1, (uint64_t)-5);
    wire_put_number(&b, 2, (uint64_t)INT64_MIN);
    wire_put_number(&b, 2, 7);
    check("format=protobuf|user=1 signed|item=2 signed|time=|type=", NULL, buf_slice(&b),
          "play -5 -9223372036854775808,7");
    check("format=protobuf|user=1|item=2 signed|time=|type=", NULL, buf_slice(&b),
          "play 18446744073709551611 -9223372036854775808,7");
    buf_clear(&b);
    wire_put_number(&b, 1, 9);
    wire_put_number(&b, 2, UINT64_MAX);
    wire_put_number(&b, 2, 4);
    wire_put_number(&b, 3, 2 * INT64_C(1700000000000));
    check("format=protobuf|user=1 zigzag|item=2 zigzag|time=3 zigzag|type=", NULL, buf_slice(&b),
          "play -5 -9223372036854775808,2 1700000000000");
    buf_free(&b);
    static const char fixed[] = "\x0d\xfb\xff\xff\xff\x11\xfe\xff\xff\xff\xff\xff\xff\xff\x12\x03\x01\x02\x03";
    check("format=protobuf|user=1 signed|item=2 packed zigzag|time=|type=", NULL, slice_of(fixed, sizeof fixed - 1),
          "play -5 9223372036854775807,-1,1,-2");
    check("format=protobuf|user=1 signed|item=2 zigzag packed|time=|type=", NULL, slice_of(fixed, sizeof fixed - 1),
          "play -5 9223372036854775807,-1,1,-2");
    check("format=protobuf|user=1|item=2 signed packed|time=|type=", NULL, slice_of(fixed, sizeof fixed - 1),
          "play 4294967291 -2,1,2,3");
}

static void test_prefix(void **state)
{
    (void)state;
    static const char json[] = "\0\0\0\0\7{\"user\":1,\"item\":2}";
    check("prefix=confluent", NULL, slice_of(json, sizeof json - 1), "play 1 2");
    check("prefix=confluent", NULL, slice_str("{\"user\":1,\"item\":2}"),
          "it does not begin with Confluent's prefix, a zero byte and four more");
    check("prefix=confluent", NULL, slice_of(json, 4),
          "it does not begin with Confluent's prefix, a zero byte and four more");
    check("prefix=confluent", NULL, slice_of(json, 5), "expected \"{\" at byte 1");

    static const char first[] = "\0\0\0\0\7\0\x0a\1u\x12\1i", nested[] = "\0\0\0\0\7\4\2\0\x0a\1u\x12\1i";
#define CONFLUENT "format=protobuf|prefix=confluent|user=1|item=2|time=|type="
    check(CONFLUENT, NULL, slice_of(first, sizeof first - 1), "play u i");
    check(CONFLUENT, NULL, slice_of(nested, sizeof nested - 1), "play u i");
    check(CONFLUENT, NULL, slice_of(nested, 7), "the message indexes of Confluent's prefix can't be read");
    check(CONFLUENT, NULL, slice_of(nested, 5), "the message indexes of Confluent's prefix can't be read");
    check(CONFLUENT, NULL, slice_of("\0\0\0\0\7\xff\xff\1", 8),
          "the message indexes of Confluent's prefix can't be read");
}

static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *options, *wanted;
    } cases[] = {
        {"user=", "kafka_user is \"\", expected the name"},
        {"item=", "kafka_item is \"\", expected the name"},
        {"user=a..b", "kafka_user is \"a..b\", expected the name"},
        {"user=.a", "kafka_user is"},
        {"user=1.2.3.4.5.6.7.8.9", "kafka_user is"},
        {"user=a|item=a", "kafka_user is \"a\" and kafka_item is \"a\", expected two places"},
        {"user=a|item=a.b", "expected two places"},
        {"format=csv", "kafka_user is \"user\", expected the number of a column, 1 to 64, with format = csv"},
        {"format=csv|user=1|item=0", "kafka_item is \"0\""},
        {"format=csv|user=1|item=65", "kafka_item is \"65\""},
        {"format=csv|user=1|item=2.1", "kafka_item is \"2.1\""},
        {"format=csv|user=1|item=2|time=01|type=", "kafka_user is \"1\" and kafka_time is \"01\", expected two places"},
        {"format=protobuf", "kafka_user is \"user\", expected a field's number"},
        {"format=protobuf|user=1|item=536870912", "kafka_item is"},
        {"format=protobuf|user=1 packed|item=2", "kafka_user is"},
        {"format=protobuf|user=1 signed zigzag|item=2", "kafka_user is"},
        {"format=protobuf|user=1|item=2 packed packed|time=|type=", "kafka_item is"},
        {"format=csv|user=1 signed|item=2", "kafka_user is"},
        {"play=", "kafka_play is empty"},
        {"play=a b|delivery=c b", "kafka_play and kafka_delivery both have \"b\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        assert_null(rules_of(cases[i].options, &err));
        assert_int_equal(err.code, ERR_INVALID);
        if (strstr(err.text, cases[i].wanted) == NULL) {
            fail_msg("%s: %s", cases[i].options, err.text);
        }
    }
}

static void test_bounds(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_addf(&b, "{\"user\":1,\"item\":[0");
    for (int i = 1; i < ITEMS_MAX; i++) {
        buf_addf(&b, ",%d", i);
    }
    size_t len = b.len;
    buf_addf(&b, "]}");
    check("", NULL, buf_slice(&b), "play 1 0,1,2,3,4,5,6,7");
    b.len = len;
    buf_addf(&b, ",1]}");
    check("", NULL, buf_slice(&b), "it has more than 65536 items");
    buf_clear(&b);
    buf_addf(&b, "{\"user\":\"%0256d\",\"item\":1}", 1);
    check("", NULL, buf_slice(&b), "user has 256 bytes: an id has 1 to 255");
    buf_free(&b);
}

/* A flat message without escapes costs no more of the arena than the list of its items. */
static void test_memory(void **state)
{
    (void)state;
    struct err err;
    struct message_event e;
    struct arena small = {.block_size = 96, .limit = 192};
    struct message_rules *rules = rules_of("", &err);
    struct message m = {.value = slice_str("{\"user\":\"u\",\"item\":\"i\",\"time\":1700000000123,\"x\":\"\\n\"}")};
    assert_int_equal(kafka_message_read(rules, &m, &small, &e, &err), 1);
    assert_ptr_equal(e.user.data, m.value.data + 9);
    m.value = slice_str("{\"user\":\"\\n\",\"item\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}");
    assert_int_equal(kafka_message_read(rules, &m, &small, &e, &err), ERR_NOMEM);
    assert_int_equal(err.code, ERR_NOMEM);
    arena_free(&small);
    message_rules_free(rules);
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* INT64_MIN: it is none */
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2024-02-29T23:59:60.9999Z", 1709251200999},
        {"2023-11-14 22:13:20z", 1700000000000},
        {"2023-11-14T22:13:20-0130", 1700005400000},
        {"2023-11-14T22:13:20", INT64_MIN},
        {"2023-11-14", INT64_MIN},
        {"2023-13-14T22:13:20Z", INT64_MIN},
        {"2023-11-14T24:13:20Z", INT64_MIN},
        {"2023-11-14T22:13:20.Z", INT64_MIN},
        {"2023-11-14T22:13:20+25:00", INT64_MIN},
        {"2023-11-14T22:13:20Zx", INT64_MIN},
        {"20231114T221320Z", INT64_MIN},
        {"", INT64_MIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ms = 0;
        bool good = time_parse(slice_str(cases[i].text), &ms);
        if (good != (cases[i].ms != INT64_MIN) || (good && ms != cases[i].ms)) {
            fail_msg("%s: %d, %lld", cases[i].text, good, (long long)ms);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_protobuf),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_protobuf_within),
        cmocka_unit_test(test_protobuf_signed),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
