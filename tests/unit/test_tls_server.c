/* A server that speaks TLS, on real loops. Time is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_store.h"
#include "tests/lib/certificates.h"
#include "tests/lib/server_fixture.h"

enum { LARGE = 15 * 1024 * 1024, PIPELINED = 10000, CROWD = 60, LIMIT = 16 * 1024 * 1024, HELLOS = 200 };
enum { IDLE = 590, MANY = 790, LATE = 10 }; /* streams of which each holds 12 KiB, in memory for some 740 of them */

static struct certificates certs;
static struct fixture f;
static int clock_fd;

static void begin(const char *client_ca, int64_t memory)
{
    fixture_init(&f);
    f.cfg.workers = 1;
    f.cfg.request_memory = memory > 0 ? memory : f.cfg.request_memory;
    snprintf(f.cfg.listen, sizeof f.cfg.listen, "tls://127.0.0.1:0");
    snprintf(f.cfg.tls_cert, sizeof f.cfg.tls_cert, "%s", certificate(&certs, "server"));
    snprintf(f.cfg.client_ca, sizeof f.cfg.client_ca, "%s", certificate(&certs, client_ca));
    fixture_start(&f);
    fixture_attach(&f);
    clock_fd = client_open(&f);
}

static void end(void)
{
    close(clock_fd);
    fixture_stop(&f);
    fixture_end(&f);
}

static void advance(int ms)
{
    char text[64];
    snprintf(text, sizeof text, "DEBUG ADVANCE %d\r\n", ms);
    client_say(clock_fd, text);
    client_expect(clock_fd, "+OK\r\n");
}

/* All that has come is seen. */
static void settle(void)
{
    for (int i = 0; i < 3; i++) {
        client_say(clock_fd, "PING\r\n");
        client_expect(clock_fd, "+PONG\r\n");
    }
}

static long long stat(const char *name)
{
    return client_info(clock_fd, "stats", name);
}

static void open_client(struct secure *s, const char *cert)
{
    secure_begin(s, client_open_tcp(&f), &certs, cert, "ca", "localhost", NULL);
}

static void join(struct secure *s)
{
    open_client(s, "");
    assert_int_equal(secure_shake(s), TLS_OPEN);
}

static void say(struct secure *s, const char *text)
{
    secure_say(s, text, strlen(text));
}

static void test_questions(void **state)
{
    (void)state;
    struct secure s;
    begin("", 0);
    join(&s);
    say(&s, "PING\r\n");
    secure_expect(&s, "+PONG\r\n");
    say(&s, "*2\r\n$4\r\nECHO\r\n$2\r\nh");
    settle();
    say(&s, "i\r\nPING\r\nQUIT\r\n");
    secure_expect(&s, "$2\r\nhi\r\n+PONG\r\n+OK\r\n");
    assert_int_equal(secure_read(&s), TLS_ENDED); /* it says so before it closes */
    assert_int_equal(stat("tls_handshakes"), 1);
    secure_end(&s);
    end();
}

static void test_byte_at_a_time(void **state)
{
    (void)state;
    struct secure s;
    begin("", 0);
    join(&s);
    tls_write(s.tls, "PING\r\n", 6, &s.out);
    for (size_t i = 0; i < s.out.len; i++) {
        client_send(s.fd, s.out.data + i, 1);
        if (i % 5 == 0) {
            settle();
        }
    }
    buf_clear(&s.out);
    secure_expect(&s, "+PONG\r\n");
    for (const char *at = "*1\r\n$4\r\nPING\r\n"; *at != '\0'; at++) { /* and as many records */
        secure_say(&s, at, 1);
    }
    secure_expect(&s, "+PONG\r\n");
    secure_end(&s);
    end();
}

static void test_large(void **state)
{
    (void)state;
    struct secure s;
    struct buf echo = {0}, want = {0};
    begin("", 0);
    join(&s);
    buf_addf(&want, "$%d\r\n", LARGE);
    assert_int_equal(buf_reserve(&want, LARGE + 3), 0);
    for (size_t i = 0; i < LARGE; i++) {
        want.data[want.len + i] = (char)('a' + i * 7 % 23);
    }
    want.len += LARGE;
    buf_add(&want, "\r\n", 3);
    buf_addf(&echo, "PING\r\n*2\r\n$4\r\nECHO\r\n");
    buf_add(&echo, want.data, want.len - 1);
    buf_addf(&echo, "PING\r\n");
    for (int i = 0; i < 2; i++) {
        secure_say(&s, echo.data, echo.len);
        secure_expect(&s, "+PONG\r\n");
        secure_expect(&s, want.data);
        secure_expect(&s, "+PONG\r\n");
    }
    buf_free(&echo);
    buf_free(&want);
    secure_end(&s);
    end();
}

static void test_pipelined(void **state)
{
    (void)state;
    struct secure s;
    struct buf pings = {0}, pongs = {0};
    begin("", 0);
    join(&s);
    for (int i = 0; i < PIPELINED; i++) {
        buf_addf(&pings, "*2\r\n$4\r\nECHO\r\n$5\r\n%05d\r\n", i);
        buf_addf(&pongs, "$5\r\n%05d\r\n", i);
    }
    buf_add(&pongs, "", 1);
    secure_say(&s, pings.data, pings.len);
    secure_expect(&s, pongs.data);
    buf_free(&pings);
    buf_free(&pongs);
    secure_end(&s);
    end();
}

/* Replies that nobody reads wait in the server; then all of them come. */
static void test_unread_replies(void **state)
{
    (void)state;
    struct secure s;
    struct buf echo = {0}, want = {0};
    enum { BYTES = 100 * 1000, TIMES = 60 };
    begin("", 0);
    join(&s);
    buf_addf(&want, "$%d\r\n", BYTES);
    buf_reserve(&want, BYTES + 3);
    memset(want.data + want.len, 'y', BYTES);
    want.len += BYTES;
    buf_add(&want, "\r\n", 3);
    buf_addf(&echo, "*2\r\n$4\r\nECHO\r\n");
    buf_add(&echo, want.data, want.len - 1);
    struct buf all = {0};
    for (int i = 0; i < TIMES; i++) {
        tls_write(s.tls, echo.data, echo.len, &all);
    }
    size_t sent = 0;
    while (sent < all.len) { /* reads only when it can't write */
        ssize_t n = send(s.fd, all.data + sent, all.len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            assert_int_equal(secure_read(&s), TLS_OPEN);
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    for (int i = 0; i < TIMES; i++) {
        secure_expect(&s, want.data);
    }
    buf_free(&all);
    buf_free(&echo);
    buf_free(&want);
    secure_end(&s);
    end();
}

/* The end of the bytes is an end, with or without a word; what was asked is answered, and half a request is not. */
static void test_ends(void **state)
{
    (void)state;
    struct secure s;
    begin("", 0);
    for (int word = 0; word < 3; word++) {
        join(&s);
        say(&s, "PING\r\n*1\r\n$4\r\nPI");
        if (word == 1) {
            tls_end(s.tls, &s.out);
            client_send(s.fd, s.out.data, s.out.len);
        } else if (word == 2) { /* within a record */
            tls_write(s.tls, "NG\r\n", 4, &s.out);
            client_send(s.fd, s.out.data, s.out.len / 2);
        }
        shutdown(s.fd, SHUT_WR);
        secure_expect(&s, "+PONG\r\n");
        assert_int_equal(secure_read(&s), TLS_ENDED);
        assert_int_equal(s.plain.len, 0);
        secure_end(&s);
    }
    end();
}

static void test_who_speaks_no_tls(void **state)
{
    (void)state;
    static const char *const texts[] = {"PING\r\n", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff...",
                                        "\x80\x2e\x01"};
    begin("", 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct buf got = {0};
        int fd = client_open_tcp(&f);
        client_say(fd, texts[i]);
        client_read_all(fd, &got);
        assert_true(got.len == 0 || got.data[0] == 21); /* at most an alert */
        buf_free(&got);
        close(fd);
    }
    assert_int_equal(stat("tls_failed_handshakes"), 4);
    end();
}

static void test_client_certificates(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *cause;
    } cases[] = {{"", "a client certificate is asked for, and none was given"},
                 {"stranger", "the peer does not know the CA of our certificate"},
                 {"expired", "the peer says that our certificate has expired"}};
    struct secure s;
    begin("ca", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_client(&s, cases[i].cert);
        secure_shake(&s); /* in TLS 1.3 the client learns it later */
        while (secure_read(&s) == TLS_OPEN) {
        }
        assert_string_equal(tls_cause(s.tls), cases[i].cause);
        secure_end(&s);
    }
    open_client(&s, "client");
    assert_int_equal(secure_shake(&s), TLS_OPEN);
    say(&s, "PING\r\n");
    secure_expect(&s, "+PONG\r\n");
    secure_end(&s);
    end();
}

/* Half a handshake has its time. What it holds meanwhile is bounded: who comes later waits. */
static void test_handshakes_have_a_deadline(void **state)
{
    (void)state;
    static struct secure crowd[HELLOS];
    char byte;
    begin("", LIMIT);
    int silent = client_open_tcp(&f);
    for (int i = 0; i < HELLOS; i++) {
        struct tls_input in = {.len = 0};
        open_client(&crowd[i], "");
        assert_int_equal(tls_read(crowd[i].tls, &in, &crowd[i].out), TLS_SHAKING);
        client_send(crowd[i].fd, crowd[i].out.data, crowd[i].out.len);
        if (i < 10) {
            assert_int_equal(recv(crowd[i].fd, &byte, 1, 0), 1);
        }
    }
    settle();
    long long used = client_info(clock_fd, "memory", "request_memory_used");
    assert_in_range(used, LIMIT / 16, LIMIT / 10); /* what strangers have; the others wait */
    advance(9000);                                 /* those in the way of others are gone, and these have begun */
    assert_false(client_has_input(silent));
    advance(2000);
    assert_int_equal(recv(silent, &byte, 1, 0), 0);
    for (int i = 0; i < HELLOS; i++) {
        struct buf rest = {0};
        client_read_all(crowd[i].fd, &rest);
        buf_free(&rest);
        secure_end(&crowd[i]);
    }
    settle();
    assert_in_range(client_info(clock_fd, "memory", "request_memory_used"), 0, LIMIT / 8);
    close(silent);
    end();
}

static void test_renegotiation(void **state)
{
    (void)state;
    char out[16] = "";
    begin("", 0);
    int fd = client_open_tcp(&f);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    assert_int_equal(SSL_connect(ssl), 1);
    assert_string_equal(SSL_get_version(ssl), "TLSv1.2");
    SSL_write(ssl, "PING\r\n", 6);
    assert_int_equal(SSL_read(ssl, out, 7), 7);
    SSL_renegotiate(ssl);
    assert_true(SSL_do_handshake(ssl) <= 0);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    assert_int_equal(stat("tls_handshakes"), 1);
    end();
}

/* A hello that comes behind a request: keys are changed, thousands of times, and nobody else notices. */
static void test_key_updates(void **state)
{
    (void)state;
    begin("", 0);
    int fd = client_open_tcp(&f);
    char out[16] = "";
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    assert_int_equal(SSL_connect(ssl), 1);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_write(ssl, "PING\r\n", 6), 6);
        assert_int_equal(SSL_read(ssl, out, 7), 7);
        assert_string_equal(out, "+PONG\r\n");
    }
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    end();
}

/* Memory is short: what is held stays below the limit, and once those who hold it are gone the others go on. */
static void test_short_memory(void **state)
{
    (void)state;
    static struct secure crowd[CROWD];
    struct secure s;
    static char half[300 * 1000];
    begin("", LIMIT);
    join(&s);
    snprintf(half, sizeof half, "*2\r\n$4\r\nECHO\r\n$%zu\r\n", sizeof half);
    memset(half + strlen(half), 'h', sizeof half - strlen(half));
    for (int i = 0; i < CROWD; i++) {
        join(&crowd[i]);
    }
    for (int i = 0; i < CROWD; i++) {
        struct buf sealed = {0};
        tls_write(crowd[i].tls, half, sizeof half, &sealed);
        send(crowd[i].fd, sealed.data, sealed.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        buf_free(&sealed);
        settle();
        assert_true(client_info(clock_fd, "memory", "request_memory_used") <= LIMIT);
    }
    say(&s, "PING\r\n");
    for (int i = 0; i < 20; i++) {
        advance(1000);
        settle();
        assert_true(client_info(clock_fd, "memory", "request_memory_used") <= LIMIT);
    }
    secure_expect(&s, "+PONG\r\n");
    for (int i = 0; i < CROWD; i++) {
        secure_end(&crowd[i]);
    }
    secure_end(&s);
    end();
}

static long long used(void)
{
    return client_info(clock_fd, "memory", "request_memory_used");
}

static bool is_closed(int fd)
{
    char byte;
    while (recv(fd, &byte, 1, MSG_DONTWAIT) > 0) {
    }
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* What OpenSSL holds for them counts. Where many are idle, some of them make way for those that come. */
static void test_idle_streams_count(void **state)
{
    (void)state;
    static struct secure crowd[MANY + LATE];
    struct secure late;
    int stayed = 0;
    begin("", LIMIT);
    for (int i = 0; i < MANY; i++) {
        join(&crowd[i]);
    }
    settle();
    assert_in_range(used(), MANY * tls_idle_bytes(crowd[0].tls) / 2, LIMIT);
    for (int i = MANY; i < MANY + LATE; i++) {
        struct tls_input in = {.len = 0};
        open_client(&crowd[i], "");
        tls_read(crowd[i].tls, &in, &crowd[i].out);
        client_send(crowd[i].fd, crowd[i].out.data, crowd[i].out.len);
        buf_clear(&crowd[i].out);
    }
    settle();
    assert_true(used() <= LIMIT);
    advance(2000);
    settle();
    join(&late);
    say(&late, "PING\r\n");
    secure_expect(&late, "+PONG\r\n");
    assert_true(used() <= LIMIT);
    for (int i = 0; i < MANY; i++) {
        stayed += !is_closed(crowd[i].fd);
    }
    assert_in_range(stayed, MANY / 2, MANY - 1);
    for (int i = 0; i < MANY + LATE; i++) {
        secure_end(&crowd[i]);
    }
    secure_end(&late);
    settle();
    assert_in_range(used(), 0, LIMIT / 8);
    end();
}

/* They hold more than what large requests may take; one of these at a time is served anyway, and drives nobody out. */
static void test_idle_streams_stay_beside_large(void **state)
{
    (void)state;
    enum { ECHOED = 1500 * 1000 };
    static struct secure crowd[IDLE];
    struct buf echo = {0}, want = {0};
    struct secure s;
    begin("", LIMIT);
    join(&s);
    for (int i = 0; i < IDLE; i++) {
        join(&crowd[i]);
    }
    buf_reserve(&echo, ECHOED + 64);
    buf_reserve(&want, ECHOED + 64);
    want.len = (size_t)snprintf(want.data, 64, "$%d\r\n", ECHOED);
    memset(want.data + want.len, 'e', ECHOED);
    want.len += ECHOED;
    buf_add(&want, "\r\n", 3);
    echo.len = (size_t)snprintf(echo.data, 64, "*2\r\n$4\r\nECHO\r\n");
    buf_add(&echo, want.data, want.len - 1);
    for (int i = 0; i < 5; i++) {
        advance(1000);
        secure_say(&s, echo.data, echo.len);
        secure_expect(&s, want.data);
    }
    advance(1000);
    settle();
    for (int i = 0; i < IDLE; i++) {
        assert_false(is_closed(crowd[i].fd));
        secure_end(&crowd[i]);
    }
    secure_end(&s);
    buf_free(&echo);
    buf_free(&want);
    end();
}

static void test_reload(void **state)
{
    (void)state;
    struct secure s, next;
    struct err err = {0};
    begin("", 0);
    join(&s);
    snprintf(f.cfg.tls_cert, sizeof f.cfg.tls_cert, "%s", certificate(&certs, "missing"));
    assert_int_equal(server_reload_tls(f.server, &err), ERR_NOTFOUND);
    join(&next);
    secure_end(&next);
    snprintf(f.cfg.tls_cert, sizeof f.cfg.tls_cert, "%s", certificate(&certs, "elsewhere"));
    assert_int_equal(server_reload_tls(f.server, &err), 0);
    open_client(&next, "");
    assert_int_equal(secure_shake(&next), TLS_BROKEN);
    assert_string_equal(tls_cause(next.tls), "the server's certificate is refused: hostname mismatch");
    secure_end(&next);
    say(&s, "PING\r\n");
    secure_expect(&s, "+PONG\r\n");
    secure_end(&s);
    end();
}

static int set_up(void **state)
{
    (void)state;
    certificates_make(&certs);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    certificates_free(&certs);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_byte_at_a_time),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_unread_replies),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_who_speaks_no_tls),
        cmocka_unit_test(test_client_certificates),
        cmocka_unit_test(test_handshakes_have_a_deadline),
        cmocka_unit_test(test_renegotiation),
        cmocka_unit_test(test_key_updates),
        cmocka_unit_test(test_short_memory),
        cmocka_unit_test(test_idle_streams_count),
        cmocka_unit_test(test_idle_streams_stay_beside_large),
        cmocka_unit_test(test_reload),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
