/* TLS as a filter of bytes, from memory to memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <malloc.h>
#include <openssl/x509.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/budget.h"
#include "net/tls_impl.h"
#include "tests/lib/certificates.h"

enum { ROOM = 64 * 1024, MANY = 64 };

static struct certificates certs;

/* One end, and what it has said. */
struct end {
    struct tls_context *context;
    struct tls *tls;
    struct buf said;
    char plain[ROOM];
    size_t n;
};

static struct tls_context *context_of(bool is_server, const char *cert, const char *ca)
{
    char cert_path[96], ca_path[96];
    struct tls_context *context = NULL;
    struct err err = {0};
    snprintf(cert_path, sizeof cert_path, "%s", certificate(&certs, cert));
    snprintf(ca_path, sizeof ca_path, "%s", certificate(&certs, ca));
    struct tls_files files = {cert_path, "", ca_path};
    int code = is_server ? tls_server(&files, &context, &err) : tls_client(&files, &context, &err);
    if (code < 0) {
        fail_msg("%s", err.text);
    }
    return context;
}

static void begin(struct end *server, struct end *client, const char *server_cert, const char *client_ca,
                  const char *client_cert, const char *ca, const char *host)
{
    *server = (struct end){.context = context_of(true, server_cert, client_ca)};
    *client = (struct end){.context = context_of(false, client_cert, ca)};
    server->tls = tls_accept(server->context, "http/1.1");
    client->tls = tls_connect(client->context, host, "http/1.1");
    assert_non_null(server->tls);
    assert_non_null(client->tls);
}

static void end(struct end *a, struct end *b)
{
    struct end *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        tls_free(both[i]->tls);
        tls_context_free(both[i]->context);
        buf_free(&both[i]->said);
    }
}

/* Gives `to` what `from` has said, at most `step` bytes more at a time than it can take. */
static enum tls_state pass(struct end *from, struct end *to, size_t step)
{
    struct buf *said = &from->said;
    size_t at = 0, shown = 0;
    enum tls_state state = tls_state(to->tls);
    do {
        shown = shown + step < said->len ? shown + step : said->len;
        struct tls_input in = {.bytes = at > 0 ? said->data + at : said->data,
                               .len = shown - at,
                               .out = to->plain + to->n,
                               .room = ROOM - to->n};
        state = tls_read(to->tls, &in, &to->said);
        at += in.used;
        to->n += in.made;
        assert_true(in.missing <= TLS_RECORD_MAX);
    } while (state < TLS_ENDED && (shown < said->len || at < shown) && (shown < said->len || to->n < ROOM));
    buf_clear(said);
    return state;
}

static void shake(struct end *server, struct end *client, size_t step)
{
    pass(server, client, step); /* nothing: it begins */
    for (int i = 0; i < 3; i++) {
        pass(client, server, step);
        pass(server, client, step);
    }
}

static void test_bytes_pass_both_ways(void **state)
{
    (void)state;
    static struct end server, client;
    static char large[3 * 16384 + 100];
    for (size_t step = 1; step <= 4097; step += 4096) {
        begin(&server, &client, "server", "", "", "ca", "localhost");
        shake(&server, &client, step);
        assert_int_equal(tls_state(server.tls), TLS_OPEN);
        assert_int_equal(tls_state(client.tls), TLS_OPEN);
        assert_string_equal(tls_version(server.tls), "TLSv1.3");
        memset(large, 'x', sizeof large);
        assert_int_equal(tls_write(client.tls, large, sizeof large, &client.said), 0);
        pass(&client, &server, step);
        assert_int_equal(server.n, sizeof large);
        assert_memory_equal(server.plain, large, sizeof large);
        assert_int_equal(tls_write(server.tls, "good", 4, &server.said), 0);
        tls_end(server.tls, &server.said);
        assert_int_equal(pass(&server, &client, step), TLS_ENDED);
        assert_int_equal(client.n, 4);
        assert_int_equal(tls_write(client.tls, "late", 4, &client.said), 0);
        server.n = 0;
        assert_int_equal(pass(&client, &server, step), TLS_OPEN);
        assert_int_equal(server.n, 4);
        end(&server, &client);
    }
}

/* What a record holds and has no room comes with the next call. */
static void test_room(void **state)
{
    (void)state;
    static struct end server, client;
    char out[10];
    begin(&server, &client, "server", "", "", "ca", "127.0.0.1");
    shake(&server, &client, ROOM);
    tls_write(client.tls, "0123456789abcdef", 16, &client.said);
    size_t one = client.said.len;
    tls_write(client.tls, "second", 6, &client.said);
    struct tls_input in = {.bytes = client.said.data, .len = one + 3, .out = out, .room = sizeof out};
    assert_int_equal(tls_read(server.tls, &in, &server.said), TLS_OPEN);
    assert_int_equal(in.used, one);
    assert_int_equal(in.made, 10);
    assert_true(tls_pending(server.tls));
    in = (struct tls_input){.bytes = client.said.data + one, .len = 3, .out = out, .room = sizeof out};
    assert_int_equal(tls_read(server.tls, &in, &server.said), TLS_OPEN);
    assert_int_equal(in.used, 0);
    assert_int_equal(in.made, 6);
    assert_int_equal(in.missing, 2);
    assert_false(tls_pending(server.tls));
    in.len = TLS_HEAD;
    assert_int_equal(tls_read(server.tls, &in, &server.said), TLS_OPEN);
    assert_int_equal(in.used, 0);
    assert_int_equal(in.missing, client.said.len - one - TLS_HEAD);
    in.len = client.said.len - one;
    assert_int_equal(tls_read(server.tls, &in, &server.said), TLS_OPEN);
    assert_int_equal(in.made, 6);
    end(&server, &client);
}

/* Each is refused by name, on both sides. */
static void test_refused(void **state)
{
    (void)state;
    static struct end server, client;
    static const struct {
        const char *server_cert, *client_ca, *client_cert, *ca, *host;
        const char *client_says, *server_says;
    } cases[] = {
        {"server", "", "", "other_ca", "localhost",
         "the server's certificate is refused: unable to get local issuer certificate",
         "the peer does not know the CA of our certificate"},
        {"expired", "", "", "ca", "localhost", "the server's certificate is refused: certificate has expired",
         "the peer says that our certificate has expired"},
        {"elsewhere", "", "", "ca", "localhost", "the server's certificate is refused: hostname mismatch",
         "the peer refuses our certificate: it is bad, or for another name"},
        {"elsewhere", "", "", "ca", "127.0.0.1", "the server's certificate is refused: IP address mismatch",
         "the peer refuses our certificate: it is bad, or for another name"},
        {"server", "ca", "", "ca", "localhost", "a client certificate is asked for, and none was given",
         "no client certificate, and client_ca asks for one"},
        {"server", "ca", "stranger", "ca", "localhost", "the peer does not know the CA of our certificate",
         "the client's certificate is refused: unable to get local issuer certificate"},
        {"server", "ca", "expired", "ca", "localhost", "the peer says that our certificate has expired",
         "the client's certificate is refused: certificate has expired"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&server, &client, cases[i].server_cert, cases[i].client_ca, cases[i].client_cert, cases[i].ca,
              cases[i].host);
        shake(&server, &client, ROOM);
        assert_int_equal(tls_state(server.tls), TLS_BROKEN);
        assert_int_equal(tls_state(client.tls), TLS_BROKEN);
        assert_string_equal(tls_cause(client.tls), cases[i].client_says);
        assert_string_equal(tls_cause(server.tls), cases[i].server_says);
        assert_int_equal(tls_write(server.tls, "x", 1, &server.said), ERR_CLOSED);
        end(&server, &client);
    }
    begin(&server, &client, "server", "ca", "client", "ca", "localhost");
    shake(&server, &client, ROOM);
    assert_int_equal(tls_state(server.tls), TLS_OPEN);
    assert_int_equal(tls_state(client.tls), TLS_OPEN);
    end(&server, &client);
}

static void test_protocols(void **state)
{
    (void)state;
    static struct end server, client;
    static const struct {
        const char *server, *client;
        bool good;
    } cases[] = {{"h2", "h2", true}, {"h2", NULL, true}, {NULL, "h2", true}, {"h2", "http/1.1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&server, &client, "server", "", "", "ca", "localhost");
        tls_free(server.tls);
        tls_free(client.tls);
        server.tls = tls_accept(server.context, cases[i].server);
        client.tls = tls_connect(client.context, "localhost", cases[i].client);
        shake(&server, &client, ROOM);
        assert_int_equal(tls_state(server.tls), cases[i].good ? TLS_OPEN : TLS_BROKEN);
        if (!cases[i].good) {
            assert_string_equal(tls_cause(server.tls), "no protocol in common (ALPN)");
            assert_string_equal(tls_cause(client.tls), "no protocol in common (ALPN)");
        }
        end(&server, &client);
    }
}

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        bool broken;
    } cases[] = {
        {"PING\r\n", 6, true},
        {"*", 1, true},
        {"\x16", 1, false},
        {"\x16\x03\x01\x40", 4, false},
        {"\x16\x03\x01\xff\xff", 5, true},
        {"\x16\x03\x01\x00\x04\x01\xff\xff\xff", 9, true},
        {"\x16\x02\x00\x00\x04\x01\x00\x00\x00", 9, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tls_context *context = context_of(true, "server", "");
        struct tls *t = tls_accept(context, NULL);
        struct tls_input in = {.bytes = cases[i].bytes, .len = cases[i].len};
        struct buf said = {0};
        enum tls_state got = tls_read(t, &in, &said);
        assert_int_equal(got, cases[i].broken ? TLS_BROKEN : TLS_SHAKING);
        assert_true(cases[i].broken || in.used == 0);
        tls_free(t);
        buf_free(&said);
        tls_context_free(context);
    }
}

/* A hello may be split into records without end: OpenSSL would keep them. */
static void test_hello_without_end(void **state)
{
    (void)state;
    struct tls_context *context = context_of(true, "server", "");
    struct tls *t = tls_accept(context, NULL);
    static char record[5 + 1024];
    struct buf said = {0};
    enum tls_state got = TLS_SHAKING;
    size_t sent = 0;
    memcpy(record, "\x16\x03\x01\x04\x00\x01\x01\xff\x00\x03\x03", 11);
    for (; got == TLS_SHAKING && sent < 1024 * 1024; sent += sizeof record) {
        struct tls_input in = {.bytes = record, .len = sizeof record};
        got = tls_read(t, &in, &said);
        memset(record + 5, 0, 6);
    }
    assert_int_equal(got, TLS_BROKEN);
    assert_true(sent <= 64 * 1024);
    tls_free(t);
    buf_free(&said);
    tls_context_free(context);
}

static void test_files(void **state)
{
    (void)state;
    char server[96], ca[96], missing[96], want[256];
    struct tls_context *context = NULL;
    struct err err = {0};
    snprintf(server, sizeof server, "%s", certificate(&certs, "server"));
    snprintf(ca, sizeof ca, "%s", certificate(&certs, "ca"));
    snprintf(missing, sizeof missing, "%s", certificate(&certs, "missing"));
    const struct {
        struct tls_files files;
        int code;
        const char *text;
    } cases[] = {
        {{missing, "", ""}, ERR_NOTFOUND, "certificate %s: No such file or directory"},
        {{server, missing, ""}, ERR_NOTFOUND, "private key %s: No such file or directory"},
        {{server, server, missing}, ERR_NOTFOUND, "CA %s: No such file or directory"},
        {{certs.folder, "", ""}, ERR_IO, "certificate %s: Is a directory"},
        {{"/dev/null", "", ""}, ERR_INVALID, "certificate %s: the file is empty"},
        {{"/etc/passwd", "", ""}, ERR_INVALID, "certificate %s: there is none in it, expected PEM"},
        {{server, ca, ""}, ERR_INVALID, "private key %s: it does not belong to the certificate"},
        {{server, "/etc/passwd", ""}, ERR_INVALID, "private key %s: there is none in it, expected PEM"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tls_files *f = &cases[i].files;
        assert_int_equal(tls_server(f, &context, &err), cases[i].code);
        const char *path = f->ca[0] != '\0' ? f->ca : f->key[0] != '\0' ? f->key : f->cert;
        snprintf(want, sizeof want, cases[i].text, path);
        assert_string_equal(err.text, want);
    }
}

static void test_reload(void **state)
{
    (void)state;
    static struct end server, client;
    char path[96], missing[96];
    struct err err = {0};
    begin(&server, &client, "server", "", "", "ca", "localhost");
    shake(&server, &client, ROOM);
    int64_t expires = tls_expires(server.context);
    assert_true(expires > clock_wall_ms() / 1000);
    snprintf(missing, sizeof missing, "%s", certificate(&certs, "missing"));
    assert_int_equal(tls_reload(server.context, &(struct tls_files){missing, "", ""}, &err), ERR_NOTFOUND);
    snprintf(path, sizeof path, "%s", certificate(&certs, "expired"));
    assert_int_equal(tls_reload(server.context, &(struct tls_files){path, "", ""}, &err), ERR_INVALID);
    assert_int_equal(tls_expires(server.context), expires);
    snprintf(path, sizeof path, "%s", certificate(&certs, "elsewhere"));
    assert_int_equal(tls_reload(server.context, &(struct tls_files){path, "", ""}, &err), 0);
    tls_write(client.tls, "still", 5, &client.said); /* what is open goes on */
    assert_int_equal(pass(&client, &server, ROOM), TLS_OPEN);
    assert_int_equal(server.n, 5);
    tls_free(server.tls);
    tls_free(client.tls);
    buf_clear(&server.said);
    server.tls = tls_accept(server.context, NULL);
    client.tls = tls_connect(client.context, "localhost", NULL);
    shake(&server, &client, ROOM);
    assert_string_equal(tls_cause(client.tls), "the server's certificate is refused: hostname mismatch");
    end(&server, &client);
}

/* Comes again with what the server gave it last time. True: the session was resumed. */
static bool come_again(struct end *server, struct end *client, SSL_SESSION **session)
{
    tls_end(client->tls, &client->said); /* a session that was cut off is not resumed */
    tls_free(server->tls);
    tls_free(client->tls);
    buf_clear(&server->said);
    buf_clear(&client->said);
    server->tls = tls_accept(server->context, NULL);
    client->tls = tls_connect(client->context, "localhost", NULL);
    assert_int_equal(SSL_set_session(client->tls->ssl, *session), 1);
    SSL_SESSION_free(*session);
    shake(server, client, ROOM);
    assert_int_equal(tls_state(server->tls), TLS_OPEN);
    *session = SSL_get1_session(client->tls->ssl);
    return SSL_session_reused(server->tls->ssl);
}

/* A certificate is looked at when a session begins, and a session ends with it; one that was resumed, too. */
static void test_resumed_until_the_certificate_ends(void **state)
{
    (void)state;
    static struct end server, client;
    struct tm tm;
    clock_test_start((int64_t)time(NULL) * 1000);
    begin(&server, &client, "server", "ca", "client", "ca", "localhost");
    shake(&server, &client, ROOM);
    assert_int_equal(tls_state(server.tls), TLS_OPEN);
    assert_int_equal(ASN1_TIME_to_tm(X509_get0_notAfter(SSL_get0_peer_certificate(server.tls->ssl)), &tm), 1);
    int64_t left_ms = (int64_t)timegm(&tm) * 1000 - clock_wall_ms();
    SSL_SESSION *session = SSL_get1_session(client.tls->ssl);
    assert_true(come_again(&server, &client, &session));
    clock_test_advance(left_ms - 1);
    assert_true(come_again(&server, &client, &session));
    clock_test_advance(1);
    assert_false(come_again(&server, &client, &session));
    SSL_SESSION_free(session);
    end(&server, &client);
}

/* Who needs no certificate comes back as long as OpenSSL lets it. */
static void test_resumed_without_certificate(void **state)
{
    (void)state;
    static struct end server, client;
    begin(&server, &client, "server", "", "", "ca", "localhost");
    shake(&server, &client, ROOM);
    SSL_SESSION *session = SSL_get1_session(client.tls->ssl);
    clock_test_advance(INT64_C(100) * 365 * 24 * 3600 * 1000);
    assert_true(come_again(&server, &client, &session));
    SSL_SESSION_free(session);
    end(&server, &client);
}

static long long allocated(void)
{
    return (long long)mallinfo2().uordblks;
}

/* How much more the server holds for what the client has said. */
static long long taken_for(struct end *server, struct end *client)
{
    long long before = allocated();
    pass(client, server, ROOM);
    return allocated() - before;
}

/* tls.h says how much a stream holds: while it shakes hands, and when a question was answered. */
static void measure(const char *client_ca)
{
    static struct end server, client;
    static char question[40 * 1000];
    long long most = 0, idle = 0, says = 0;
    for (int i = 0; i < MANY; i++) {
        begin(&server, &client, "server", client_ca, "client", "ca", "localhost");
        assert_int_equal(buf_reserve(&server.said, ROOM), 0);
        assert_int_equal(buf_reserve(&client.said, ROOM), 0);
        tls_free(server.tls);
        pass(&server, &client, ROOM);
        long long before = allocated();
        server.tls = tls_accept(server.context, NULL);
        long long busy = allocated() - before + taken_for(&server, &client);
        pass(&server, &client, ROOM);
        long long held = busy + taken_for(&server, &client);
        assert_int_equal(tls_state(server.tls), TLS_OPEN);
        tls_write(client.tls, question, sizeof question, &client.said);
        held += taken_for(&server, &client);
        before = allocated();
        assert_int_equal(tls_write(server.tls, question, sizeof question, &server.said), 0);
        held += allocated() - before;
        says = (long long)tls_idle_bytes(server.tls);
        if (i > 0) { /* the first pays for what is made once */
            most = busy > most ? busy : most;
            idle = held > idle ? held : idle;
        }
        end(&server, &client);
    }
    if (most == 0) {
        skip(); /* a sanitizer's malloc() does not say */
    }
    print_message("a stream holds %lld bytes while it shakes hands, %lld when idle\n", most, idle);
    assert_in_range(most, 1, TLS_BUSY_BYTES);
    assert_in_range(idle, 1, says);
}

static void test_memory(void **state)
{
    (void)state;
    measure("");
}

/* As many idle streams as there may be by default leave requests their room. */
static void test_room_beside_idle_streams(void **state)
{
    (void)state;
    static struct end server, client;
    struct config cfg;
    struct budget all = {0};
    struct budget_share share = {.all = &all};
    config_defaults(&cfg);
    budget_limit(&all, (size_t)cfg.request_memory, 16 * 1024 * 1024, 1);
    begin(&server, &client, "server", "", "", "ca", "localhost");
    budget_take(&share, (size_t)cfg.max_clients * tls_idle_bytes(server.tls));
    assert_true(budget_allows(&share, BUDGET_REQUEST, (size_t)cfg.request_memory / 32));
    end(&server, &client);
}

static void test_memory_with_client_certificate(void **state)
{
    (void)state;
    measure("ca");
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
        cmocka_unit_test(test_bytes_pass_both_ways),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_protocols),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_hello_without_end),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_room_beside_idle_streams),
        cmocka_unit_test(test_memory_with_client_certificate),
        cmocka_unit_test(test_resumed_until_the_certificate_ends), /* from here on the clock is the test's */
        cmocka_unit_test(test_resumed_without_certificate),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
