/* The request parser, at every split point of every message: however the bytes come in, the outcome is the same. Each
 * feed sees a fresh copy of exactly the bytes that have come, so that a read past them or a slice that did not move
 * along is found by the address sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "resp/parser.h"
#include "tests/lib/random.h"

struct message {
    const char *bytes;
    const char *args;  /* joined by '|'; NULL: the message is refused */
    const char *error; /* then with this */
    size_t len;        /* 0: strlen(bytes) */
};

static const struct message messages[] = {
    {"*1\r\n$4\r\nPING\r\n", "PING", NULL, 0},
    {"*3\r\n$6\r\nPLAYED\r\n$2\r\nu1\r\n$12\r\nabcdefghijkl\r\n", "PLAYED|u1|abcdefghijkl", NULL, 0},
    {"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "ECHO|", NULL, 0},
    {"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\n", "ECHO|\r\n\r\n", NULL, 0},
    {"*2\r\n$1\r\n*\r\n$3\r\n$3\r\r\n", "*|$3\r", NULL, 0},
    {"*0\r\n", "", NULL, 0},
    {"*-1\r\n", "", NULL, 0},
    {"\r\n", "", NULL, 0},
    {"\n", "", NULL, 0},
    {"  \t \r\n", "", NULL, 0},
    {"PING\r\n", "PING", NULL, 0},
    {"PING\n", "PING", NULL, 0},
    {"  played  u1 i1\ti2 \r\n", "played|u1|i1|i2", NULL, 0},
    {"echo \"a b\\x41\\n\\\"\\q\\\\\" 'c d\\'\\n'\r\n", "echo|a bA\n\"q\\|c d'\\n", NULL, 0},
    {"echo \"\" ''\r\n", "echo||", NULL, 0},
    {"echo a\"b c\" \"\\x4\" \"\\xzz\"\r\n", "echo|ab c|x4|xzz", NULL, 0},
    {"echo $3 *2\r\n", "echo|$3|*2", NULL, 0},

    {"*a\r\n", NULL, "ERR Protocol error: invalid multibulk length", 0},
    {"*\r\n", NULL, "ERR Protocol error: invalid multibulk length", 0},
    {"*1\n$4\r\n", NULL, "ERR Protocol error: invalid multibulk length", 0},
    {"*1\r$4\r\n", NULL, "ERR Protocol error: invalid multibulk length", 0},
    {"*01\r\n", NULL, "ERR Protocol error: invalid multibulk length", 0},
    {"*+1\r\n", NULL, "ERR Protocol error: invalid multibulk length", 0},
    {"*1048577\r\n", NULL, "ERR Protocol error: invalid multibulk length", 0},
    {"*1111111111111111111111\r\n", NULL, "ERR Protocol error: too big mbulk count string", 0},
    {"*1\r\nfoo\r\n", NULL, "ERR Protocol error: expected '$', got 'f'", 0},
    {"*1\r\n:1\r\n", NULL, "ERR Protocol error: expected '$', got ':'", 0},
    {"*2\r\n$1\r\na\r\n*1\r\n", NULL, "ERR Protocol error: expected '$', got '*'", 0},
    {"*1\r\n$-1\r\n", NULL, "ERR Protocol error: invalid bulk length", 0},
    {"*1\r\n$x\r\n", NULL, "ERR Protocol error: invalid bulk length", 0},
    {"*1\r\n$4x\r\n", NULL, "ERR Protocol error: invalid bulk length", 0},
    {"*1\r\n$04\r\nPING\r\n", NULL, "ERR Protocol error: invalid bulk length", 0},
    {"*1\r\n$16777217\r\n", NULL, "ERR Protocol error: invalid bulk length", 0},
    {"*1\r\n$16777216\r\n", NULL, "ERR Protocol error: too big request", 0},
    {"*1\r\n$1111111111111111111\r\n", NULL, "ERR Protocol error: too big bulk count string", 0},
    {"*1\r\n$4\r\nPINGxx", NULL, "ERR Protocol error: expected CR LF behind an argument", 0},
    {"*1\r\n$4\r\nPING\r\r", NULL, "ERR Protocol error: expected CR LF behind an argument", 0},
    {"PING \"a\r\n", NULL, "ERR Protocol error: unbalanced quotes in request", 0},
    {"PING 'a\r\n", NULL, "ERR Protocol error: unbalanced quotes in request", 0},
    {"PING \"a\"b\r\n", NULL, "ERR Protocol error: unbalanced quotes in request", 0},
    {"GET / HTTP/1.1\r\n", NULL, "ERR Protocol error: this port speaks the Redis protocol, not HTTP", 0},
    {"post /\r\n", NULL, "ERR Protocol error: this port speaks the Redis protocol, not HTTP", 0},
    {"Host: localhost\r\n", NULL, "ERR Protocol error: this port speaks the Redis protocol, not HTTP", 0},
};

enum { N_MESSAGES = sizeof messages / sizeof *messages };

static size_t message_len(const struct message *m)
{
    return m->len > 0 ? m->len : strlen(m->bytes);
}

/* Feeds the first len bytes in memory of their own, and frees that of the feed before. */
static enum parse_result feed(struct parser *p, const char *bytes, size_t len, char **memory)
{
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    enum parse_result result = parser_feed(p, copy, len);
    free(*memory);
    *memory = copy;
    return result;
}

static void check_args(const struct parser *p, const char *want)
{
    char got[256];
    size_t len = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (i > 0) {
            got[len++] = '|';
        }
        memcpy(got + len, p->args[i].data, p->args[i].len);
        len += p->args[i].len;
    }
    got[len] = '\0';
    assert_string_equal(got, want);
    assert_int_equal(p->count, p->n);
}

static void check_end(struct parser *p, const struct message *m, enum parse_result result, size_t fed)
{
    if (m->args == NULL) {
        assert_int_equal(result, PARSE_BAD);
        assert_string_equal(p->error, m->error);
        return;
    }
    assert_int_equal(result, PARSE_DONE);
    assert_int_equal(p->used, message_len(m));
    assert_true(p->used <= fed);
    check_args(p, m->args);
}

static void whole_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        struct parser p;
        parser_init(&p);
        char *memory = NULL;
        size_t len = message_len(&messages[i]);
        check_end(&p, &messages[i], feed(&p, messages[i].bytes, len, &memory), len);
        free(memory);
        parser_free(&p);
    }
}

/* At each place: the bytes before it first; then all of them. */
static void every_split_point(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        size_t len = message_len(&messages[i]);
        for (size_t split = 0; split < len; split++) {
            struct parser p;
            parser_init(&p);
            char *memory = NULL;
            enum parse_result result = feed(&p, messages[i].bytes, split, &memory);
            if (result == PARSE_MORE) {
                assert_true(p.need > split);
                assert_true(messages[i].args == NULL || p.need <= len);
            } else {
                assert_int_equal(result, PARSE_BAD);
                assert_null(messages[i].args);
            }
            check_end(&p, &messages[i], feed(&p, messages[i].bytes, len, &memory), len);
            free(memory);
            parser_free(&p);
        }
    }
}

static void byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        struct parser p;
        parser_init(&p);
        char *memory = NULL;
        size_t len = message_len(&messages[i]);
        enum parse_result result = PARSE_MORE;
        size_t fed = 0;
        while (result == PARSE_MORE && fed < len) {
            result = feed(&p, messages[i].bytes, ++fed, &memory);
        }
        check_end(&p, &messages[i], result, fed);
        free(memory);
        parser_free(&p);
    }
}

/* One behind the other in one buffer, with every good message as the second of every other. */
static void pipelined(void **state)
{
    (void)state;
    struct parser p;
    parser_init(&p);
    for (size_t i = 0; i < N_MESSAGES; i++) {
        for (size_t k = 0; k < N_MESSAGES; k++) {
            if (messages[i].args == NULL) {
                continue;
            }
            size_t first = message_len(&messages[i]), second = message_len(&messages[k]);
            char *both = malloc(first + second);
            assert_non_null(both);
            memcpy(both, messages[i].bytes, first);
            memcpy(both + first, messages[k].bytes, second);
            check_end(&p, &messages[i], parser_feed(&p, both, first + second), first + second);
            parser_next(&p);
            assert_true(parser_fresh(&p));
            check_end(&p, &messages[k], parser_feed(&p, both + first, second), second);
            parser_next(&p);
            free(both);
        }
    }
    parser_free(&p);
}

static struct buf big_request(size_t n, size_t size)
{
    struct buf b = {0};
    buf_addf(&b, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        buf_addf(&b, "$%zu\r\n", size);
        buf_reserve(&b, size + 2);
        memset(b.data + b.len, 'a' + (int)(i % 26), size);
        b.len += size;
        buf_add(&b, "\r\n", 2);
    }
    assert_false(b.failed);
    return b;
}

/* Large requests come in pieces, and the announced need is honest. */
static void large_in_pieces(void **state)
{
    (void)state;
    struct buf b = big_request(10002, 25);
    struct parser p;
    parser_init(&p);
    char *memory = NULL;
    size_t len = 0;
    enum parse_result result = PARSE_MORE;
    while (result == PARSE_MORE) {
        assert_true(len < b.len);
        len = len + 1777 < b.len ? len + 1777 : b.len;
        result = feed(&p, b.data, len, &memory);
        assert_true(result != PARSE_MORE || (p.need > len && p.need <= b.len));
    }
    assert_int_equal(result, PARSE_DONE);
    assert_int_equal(p.n, 10002);
    for (size_t i = 0; i < p.n; i++) {
        assert_int_equal(p.args[i].len, 25);
        assert_int_equal(p.args[i].data[24], 'a' + (int)(i % 26));
    }
    free(memory);
    parser_free(&p);
    buf_free(&b);
}

/* More arguments than any command takes are counted, not kept. */
static void too_many_are_counted(void **state)
{
    (void)state;
    struct buf b = big_request(PARSER_ARGS_MAX + 5, 1);
    struct parser p;
    parser_init(&p);
    assert_int_equal(parser_feed(&p, b.data, b.len), PARSE_DONE);
    assert_int_equal(p.n, PARSER_ARGS_MAX);
    assert_int_equal(p.count, PARSER_ARGS_MAX + 5);
    assert_int_equal(p.used, b.len);
    parser_free(&p);
    buf_free(&b);
}

static void limits(void **state)
{
    (void)state;
    struct parser p;
    parser_init(&p);
    p.bytes_max = 1000;
    struct buf b = big_request(9, 100); /* 4 + 9 * 108 = 976 */
    assert_int_equal(parser_feed(&p, b.data, b.len), PARSE_DONE);
    buf_free(&b);
    parser_next(&p);
    b = big_request(10, 100);
    assert_int_equal(parser_feed(&p, b.data, 500), PARSE_MORE);
    assert_int_equal(parser_feed(&p, b.data, b.len), PARSE_BAD);
    assert_string_equal(p.error, "ERR Protocol error: too big request");
    buf_free(&b);

    /* Announced counts that can't fit are refused before anything of them has come. */
    parser_free(&p);
    parser_init(&p);
    p.bytes_max = 1000;
    assert_int_equal(parser_feed(&p, "*200\r\n", 6), PARSE_BAD);
    parser_free(&p);

    parser_init(&p);
    char *line = malloc(PARSER_INLINE_MAX + 2);
    assert_non_null(line);
    memset(line, 'a', PARSER_INLINE_MAX + 2);
    assert_int_equal(parser_feed(&p, line, PARSER_INLINE_MAX), PARSE_MORE);
    assert_int_equal(parser_feed(&p, line, PARSER_INLINE_MAX + 1), PARSE_BAD);
    assert_string_equal(p.error, "ERR Protocol error: too big inline request");
    parser_free(&p);

    parser_init(&p);
    line[PARSER_INLINE_MAX] = '\n';
    assert_int_equal(parser_feed(&p, line, PARSER_INLINE_MAX + 1), PARSE_DONE);
    assert_int_equal(p.args[0].len, PARSER_INLINE_MAX);
    parser_free(&p);
    free(line);
}

static void limits_before_authentication(void **state)
{
    (void)state;
    static const struct message guarded[] = {
        {"*11\r\n", NULL, "ERR Protocol error: unauthenticated multibulk length", 0},
        {"*2\r\n$4\r\nAUTH\r\n$16385\r\n", NULL, "ERR Protocol error: unauthenticated bulk length", 0},
        {"*2\r\n$4\r\nAUTH\r\n$16384\r\n", NULL, "ERR Protocol error: too big request", 0},
        {"1 2 3 4 5 6 7 8 9 10 11\r\n", NULL, "ERR Protocol error: unauthenticated multibulk length", 0},
        {"1 2 3 4 5 6 7 8 9 10\r\n", "1|2|3|4|5|6|7|8|9|10", NULL, 0},
        {"*2\r\n$4\r\nAUTH\r\n$3\r\nfoo\r\n", "AUTH|foo", NULL, 0},
    };
    for (size_t i = 0; i < sizeof guarded / sizeof *guarded; i++) {
        struct parser p;
        parser_init(&p);
        p.guarded = true;
        size_t len = message_len(&guarded[i]);
        check_end(&p, &guarded[i], parser_feed(&p, guarded[i].bytes, len), len);
        parser_free(&p);
    }
    struct parser p;
    parser_init(&p);
    p.guarded = true;
    char line[PARSER_GUARDED_BYTES + 1];
    memset(line, 'a', sizeof line);
    assert_int_equal(parser_feed(&p, line, sizeof line), PARSE_BAD);
    assert_string_equal(p.error, "ERR Protocol error: too big inline request");
    parser_free(&p);
}

/* Arguments hold any byte. */
static void binary_safe(void **state)
{
    (void)state;
    char bytes[400];
    memcpy(bytes, "*1\r\n$256\r\n", 10);
    for (int i = 0; i < 256; i++) {
        bytes[10 + i] = (char)i;
    }
    memcpy(bytes + 266, "\r\n", 2);
    struct parser p;
    parser_init(&p);
    assert_int_equal(parser_feed(&p, bytes, 268), PARSE_DONE);
    assert_int_equal(p.args[0].len, 256);
    assert_memory_equal(p.args[0].data, bytes + 10, 256);
    parser_free(&p);

    parser_init(&p);
    assert_int_equal(parser_feed(&p, "echo a\0b\r\n", 10), PARSE_DONE);
    check_args(&p, "echo|a|b");
    parser_free(&p);
}

/* A request of many arguments of all kinds, sometimes with a byte changed. */
static size_t random_request(char *out, uint64_t *seed)
{
    size_t n = 1 + random_below(seed, 60);
    size_t len = (size_t)sprintf(out, "*%zu\r\n", n);
    uint64_t changes = 1 + random_below(seed, 8); /* of lengths: one in so many arguments has another */
    size_t bulk = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || random_below(seed, changes) == 0) {
            bulk = random_below(seed, 8) > 0 ? random_below(seed, 30) : random_below(seed, 300);
        }
        const char *zero = random_below(seed, 500) == 0 ? "0" : "";
        len += (size_t)sprintf(out + len, "$%s%zu\r\n", zero, bulk);
        memset(out + len, (int)('a' + i % 26), bulk);
        len += bulk;
        len += (size_t)sprintf(out + len, "\r\n");
    }
    if (random_below(seed, 2) == 0) {
        static const char bytes[] = "\r\n$*0159:x";
        out[random_below(seed, len)] = bytes[random_below(seed, sizeof bytes - 1)];
    }
    return len;
}

/* Arguments that have come whole take a shorter way than those that come in pieces: both must end alike. */
static void whole_as_byte_by_byte(void **state)
{
    (void)state;
    uint64_t seed = 7;
    static char bytes[60 * 400];
    for (int round = 0; round < 3000; round++) {
        size_t len = random_request(bytes, &seed);
        struct parser whole;
        struct parser slow;
        parser_init(&whole);
        parser_init(&slow);
        enum parse_result want = PARSE_MORE;
        for (size_t i = 1; i <= len && want == PARSE_MORE; i++) {
            want = parser_feed(&slow, bytes, i);
        }
        assert_int_equal(parser_feed(&whole, bytes, len), want);
        if (want == PARSE_BAD) {
            assert_string_equal(whole.error, slow.error);
        }
        assert_int_equal(whole.n, slow.n);
        assert_int_equal(whole.count, slow.count);
        assert_int_equal(whole.used, slow.used);
        for (size_t i = 0; i < whole.n; i++) {
            assert_int_equal(whole.args[i].len, slow.args[i].len);
            assert_memory_equal(whole.args[i].data, slow.args[i].data, slow.args[i].len);
        }
        parser_free(&whole);
        parser_free(&slow);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_messages),  cmocka_unit_test(every_split_point),
        cmocka_unit_test(byte_by_byte),    cmocka_unit_test(pipelined),
        cmocka_unit_test(large_in_pieces), cmocka_unit_test(too_many_are_counted),
        cmocka_unit_test(limits),          cmocka_unit_test(limits_before_authentication),
        cmocka_unit_test(binary_safe),     cmocka_unit_test(whole_as_byte_by_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
