/* Heads of HTTP requests, and chunks: what is taken, and what somebody in front could read in another way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/parser.h"

enum { BODY_MAX = 1000 };

static char text[HEAD_MAX];

static struct head parse(const char *head)
{
    struct head h;
    memcpy(text, head, strlen(head));
    head_parse(&h, text, strlen(head));
    return h;
}

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"

static void test_good_heads(void **state)
{
    (void)state;
    struct head h = parse("POST /v1/x?a=b HTTP/1.1\r\nhOST:\t localhost:1 \t\r\nAuthorization: Bearer a b\r\nX: y\r\n"
                          "Content-Type: t\r\nContent-Length: 0017\r\nExpect: 100-continue\r\nEmpty:\r\n\r\n");
    assert_int_equal(h.status, 0);
    assert_string_equal(h.method, "POST");
    assert_string_equal(h.target, "/v1/x?a=b");
    assert_string_equal(h.fields[FIELD_HOST], "localhost:1");
    assert_string_equal(h.fields[FIELD_AUTHORIZATION], "Bearer a b");
    assert_string_equal(h.fields[FIELD_CONTENT_TYPE], "t");
    assert_string_equal(h.fields[FIELD_EXPECT], "100-continue");
    assert_null(h.fields[FIELD_CONTENT_ENCODING]);
    assert_int_equal(h.length, 17);
    assert_true(h.keep_alive && !h.old && !h.chunked);

    assert_true(parse(POST "Transfer-Encoding: Chunked\r\n\r\n").chunked);
    assert_false(parse(GET "Connection: close\r\n\r\n").keep_alive);
    h = parse("GET / HTTP/1.0\r\n\r\n");
    assert_true(h.status == 0 && h.old && !h.keep_alive);
    assert_true(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
    assert_string_equal(parse("GET / HTTP/1.1\r\nHost: \r\n\r\n").fields[FIELD_HOST], "");
    assert_string_equal(parse("DELETE /%00 HTTP/1.1\r\nHost: a\r\n\r\n").method, "DELETE");
}

/* What is sent to a server that is taken for a proxy: its host counts, and the header's does not. */
static void test_absolute_targets(void **state)
{
    static const struct {
        const char *sent, *target, *host;
    } rows[] = {
        {"http://localhost:7980/healthz", "/healthz", "localhost:7980"},
        {"HTTP://[::1]:1/v1/x?a=http://b", "/v1/x?a=http://b", "[::1]:1"},
        {"https://h/", "/", "h"},
        {"http://h", "/", "h"},
        {"http://h?a=b", "/?a=b", "h"},
        {"http://h:?", "/?", "h:"},
        {"/http://h/", "/http://h/", "a"},
        {"//h/x", "//h/x", "a"},
    };
    static const char *const bad[] = {"http:///x",  "http://?x",   "ftp://h/x", "http://u@h/x",  "http://u:p@h/x",
                                      "http://:1/", "http://h:x/", "*",         "http://[::1/x", "http:/h/x"};
    (void)state;
    char head[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", rows[i].sent);
        struct head h = parse(head);
        if (h.status != 0) {
            fail_msg("%s: %s", rows[i].sent, h.error);
        }
        assert_string_equal(h.target, rows[i].target);
        assert_string_equal(h.fields[FIELD_HOST], rows[i].host);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", bad[i]);
        if (parse(head).status != 400) {
            fail_msg("%s is taken", bad[i]);
        }
    }
    assert_string_equal(parse("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").target, "*");
}

static void test_refused_heads(void **state)
{
    static const struct {
        const char *head;
        unsigned status;
    } rows[] = {
        {GET "A b: c\r\n\r\n", 400},
        {GET "A : c\r\n\r\n", 400},
        {GET "A: c\r\n d\r\n\r\n", 400},
        {GET "A: c\rB: d\r\n\r\n", 400},
        {GET "A: c\nB: d\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: a\n\r\n\r\n", 400},
        {GET "A: c\1\r\n\r\n", 400},
        {GET ": c\r\n\r\n", 400},
        {GET "abc\r\n\r\n", 400},
        {GET "Host: b\r\n\r\n", 400},
        {GET "hOST: a\r\n\r\n", 400},
        {GET "Authorization: Bearer a\r\nAUTHORIZATION: Bearer b\r\n\r\n", 400},
        {GET "Authorization:\r\nAuthorization: Bearer b\r\n\r\n", 400},
        {GET "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n\r\n", 400},
        {POST "Content-Type: a\r\nContent-Type: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 400},
        {"GET http://h/ HTTP/1.1\r\n\r\n", 400},
        {"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET /\r\n\r\n", 505},
        {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
        {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
        {"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501},
        {POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
        {POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {POST "Content-Length: 1, 1\r\n\r\n", 400},
        {POST "Content-Length: +1\r\n\r\n", 400},
        {POST "Content-Length: -1\r\n\r\n", 400},
        {POST "Content-Length: 0x1\r\n\r\n", 400},
        {POST "Content-Length:\r\n\r\n", 400},
        {POST "Content-Length: 99999999999999999999999\r\n\r\n", 413},
        {POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {POST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
        {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {POST "Transfer-Encoding: gzip\r\n\r\n", 501},
        {POST "Transfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\n", 501},
        {POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {POST "Transfer-Encoding: chunked, gzip\r\n\r\n", 501},
        {POST "Transfer-Encoding: xchunked\r\n\r\n", 501},
        {POST "Transfer-Encoding:\r\n\r\n", 501},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct head h = parse(rows[i].head);
        if (h.status != rows[i].status || h.error == NULL) {
            fail_msg("%u instead of %u for %s", h.status, rows[i].status, rows[i].head);
        }
    }
    char nul[] = GET "A: \0\r\n\r\n";
    struct head h;
    head_parse(&h, nul, sizeof nul - 1);
    assert_int_equal(h.status, 400);
}

static void test_where_a_head_ends(void **state)
{
    static const char head[] = GET "A: b\r\n\r\nGET /";
    size_t len = sizeof head - 1 - 5, seen = 0;
    (void)state;
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(head_find(slice_of(head, n), &seen), 0);
    }
    assert_int_equal(head_find(slice_of(head, len), &seen), len);
    seen = 0;
    assert_int_equal(head_find(slice_of(head, sizeof head - 1), &seen), len);
}

static void test_what_may_begin_a_head(void **state)
{
    static const char *const good[] = {"", "G", "GET", "GET ", "GET /\x80", "M-SEARCH *", "DELETE"};
    static const char *const bad[] = {" ",     "*1\r\n", "PING\r\n",         "\x16\x03\x01",
                                      "get /", "GET\t/", "ABCDEFGHIJKLMNOPQ"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(head_may_begin(slice_str(good[i])));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(head_may_begin(slice_str(bad[i])));
    }
}

/* In pieces of so many bytes, looked at and then gathered in place, as a connection does it. */
static enum chunk_state scan(const char *chunks, size_t step, const char *body)
{
    struct chunks k = {0}, again = {0};
    size_t len = strlen(chunks), at = 0, from = 0;
    while (from < len && k.state < CHUNK_DONE) {
        from = len - from < step ? len : from + step;
        at += chunks_scan(&k, chunks + at, from - at, BODY_MAX, NULL);
    }
    if (k.state == CHUNK_DONE) {
        char *copy = malloc(at);
        memcpy(copy, chunks, at);
        assert_int_equal(chunks_scan(&again, copy, at, BODY_MAX, copy), at);
        assert_int_equal(again.body, strlen(body));
        assert_memory_equal(copy, body, again.body);
        free(copy);
    }
    return k.state;
}

static void test_chunks(void **state)
{
    static const struct {
        const char *chunks;
        enum chunk_state state;
        const char *body;
    } rows[] = {
        {"0\r\n\r\n", CHUNK_DONE, ""},
        {"3\r\nabc\r\n0\r\n\r\n", CHUNK_DONE, "abc"},
        {"1\r\na\r\n1\r\nb\r\n00a\r\n0123456789\r\n000\r\n\r\n", CHUNK_DONE, "ab0123456789"},
        {"3;x=y;z=\"q\"\r\nabc\r\n0;a\r\nTrailer: b\r\nAnother: c\r\n\r\n", CHUNK_DONE, "abc"},
        {"3\r\n\r\n0\r\n0\r\n\r\n", CHUNK_DONE, "\r\n0"},
        {"3\r\nab", CHUNK_DATA, NULL},
        {"3\r\nabcXY0\r\n\r\n", CHUNK_BAD, NULL},
        {"3\rXabc\r\n0\r\n\r\n", CHUNK_BAD, NULL},
        {"3\nabc\r\n0\r\n\r\n", CHUNK_BAD, NULL},
        {"3;a\nX\r\nabc\r\n0\r\n\r\n", CHUNK_BAD, NULL},
        {"3 \t;x = y\r\nabc\r\n0 ;z\r\n\r\n", CHUNK_DONE, "abc"},
        {"3 \r\nabc\r\n0\r\n\r\n", CHUNK_BAD, NULL},
        {"3 3\r\nabc\r\n0\r\n\r\n", CHUNK_BAD, NULL},
        {"\r\n", CHUNK_BAD, NULL},
        {"-1\r\n", CHUNK_BAD, NULL},
        {"0x3\r\nabc\r\n", CHUNK_BAD, NULL},
        {"zz\r\n", CHUNK_BAD, NULL},
        {"0\r\n\rX", CHUNK_BAD, NULL},
        {"0\r\n\nX", CHUNK_BAD, NULL},
        {"0\r\n folded\r\n\r\n", CHUNK_BAD, NULL},
        {"0\r\nA: b\n\r\n", CHUNK_BAD, NULL},
        {"3e9\r\n", CHUNK_LARGE, NULL},
        {"ffffffffffffffffff\r\n", CHUNK_LARGE, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t step = 1; step < 40; step += step < 5 ? 1 : 17) {
            if (scan(rows[i].chunks, step, rows[i].body) != rows[i].state) {
                fail_msg("row %zu in steps of %zu", i, step);
            }
        }
    }
}

/* As many bytes beside the body as one likes are not taken. */
static void test_chunks_that_are_mostly_frame(void **state)
{
    (void)state;
    struct chunks k = {0};
    chunks_scan(&k, "1;", 2, BODY_MAX, NULL);
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i <= CHUNKS_MAX / sizeof text; i++) {
        chunks_scan(&k, text, sizeof text, BODY_MAX, NULL);
    }
    assert_int_equal(k.state, CHUNK_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_heads),
        cmocka_unit_test(test_absolute_targets),
        cmocka_unit_test(test_refused_heads),
        cmocka_unit_test(test_where_a_head_ends),
        cmocka_unit_test(test_what_may_begin_a_head),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunks_that_are_mostly_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
