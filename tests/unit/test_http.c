/* HTTP on a store that answers when the test says so: what happens to a write that is under way; and how requests may
 * come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/log.h"
#include "fake_store.h"
#include "http/http.h"
#include "net/worker.h"
#include "registry/consul.h"
#include "resp/server.h"

enum { STUCK_S = 60, STOP_MS = 1000 };

static const char played[] = "POST /v1/played HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                             "Content-Length: 26\r\n\r\n{\"user\":\"u\",\"items\":[\"a\"]}";

struct fixture {
    struct config cfg;
    struct server *server;
    struct dedup dedup;
    struct store *store;
    struct http *http;
    struct listeners listeners;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct err err = {0};
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_LEVEL_ERROR);
    config_defaults(&f->cfg);
    snprintf(f->cfg.http, sizeof f->cfg.http, "127.0.0.1:0");
    snprintf(f->cfg.listen, sizeof f->cfg.listen, "127.0.0.1:0");
    f->cfg.workers = 1;
    f->store = fake_store_new();
    dedup_init(&f->dedup, f->store, &f->cfg);
    if (http_open(&f->cfg, &f->listeners, &f->http, &err) < 0 ||
        server_start(&f->cfg, &f->listeners, &f->server, &err) < 0 || server_attach(f->server, &f->dedup, &err) < 0) {
        fail_msg("%s", err.text);
    }
    *state = f;
    return 0;
}

/* As serve does it: stop, the store closes and answers what is left, free. */
static int tear_down(void **state)
{
    struct fixture *f = *state;
    server_stop(f->server);
    fake_store_release(f->store);
    server_free(f->server);
    http_free(f->http);
    fake_store_free(f->store);
    free(f);
    return 0;
}

static int client_open(const struct fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a.sin_port = htons((uint16_t)atoi(strrchr(f->listeners.list[0].address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    struct timeval stuck = {.tv_sec = STUCK_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &stuck, sizeof stuck);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static int client_play(const struct fixture *f)
{
    int fd = client_open(f);
    assert_int_equal(send(fd, played, sizeof played - 1, 0), sizeof played - 1);
    return fd;
}

static void expect(int fd, const char *text)
{
    char answer[4096];
    size_t len = 0;
    ssize_t n;
    do {
        n = recv(fd, answer + len, sizeof answer - 1 - len, 0);
        assert_true(n > 0);
        len += (size_t)n;
        answer[len] = '\0';
    } while (strstr(answer, text) == NULL);
    close(fd);
}

static void test_answers_after_the_store(void **state)
{
    struct fixture *f = *state;
    char byte;
    fake_store_hold(f->store);
    int fd = client_play(f);
    fake_store_wait(f->store, 1);
    int other = client_open(f);
    const char health[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_int_equal(send(other, health, sizeof health - 1, 0), sizeof health - 1);
    expect(other, "{\"alive\":true}");                            /* nobody waits for it */
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0); /* and it was not answered early */
    fake_store_release(f->store);
    expect(fd, "{\"recorded\":1}");
}

static void test_a_client_that_leaves(void **state)
{
    struct fixture *f = *state;
    fake_store_hold(f->store);
    for (size_t i = 0; i < 10; i++) {
        int fd = client_play(f);
        fake_store_wait(f->store, i + 1);
        struct linger reset = {1, 0};
        if (i % 2 == 0) {
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        }
        close(fd);
    }
    fake_store_release(f->store);
    expect(client_play(f), "{\"recorded\":1}");
}

static void test_errors_of_the_store(void **state)
{
    static const struct {
        int code;
        const char *expected;
    } rows[] = {
        {ERR_BUSY, "503 Service Unavailable"},           {ERR_FULL, "urn:unseen:problem:disk-full"},
        {ERR_IO, "urn:unseen:problem:not-recorded"},     {ERR_CLOSED, "urn:unseen:problem:stopping"},
        {ERR_NOMEM, "urn:unseen:problem:out-of-memory"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake_store_fail(f->store, rows[i].code, "the cause");
        expect(client_play(f), rows[i].expected);
    }
    fake_store_fail(f->store, 0, "");
    expect(client_play(f), "{\"recorded\":1}");
}

/* Whoever waits is told so, and the store's answer, which comes later, finds nobody. */
static void test_stop_while_the_store_does_not_answer(void **state)
{
    struct fixture *f = *state;
    fake_store_hold(f->store);
    int fd = client_play(f);
    fake_store_wait(f->store, 1); /* or both would be of one batch */
    int gone = client_play(f);
    fake_store_wait(f->store, 2);
    close(gone);
    server_stop_within(f->server, STOP_MS);
    expect(fd, "urn:unseen:problem:stopping");
}

static size_t read_to_end(int fd, char *to, size_t size)
{
    size_t len = 0;
    for (ssize_t n; (n = recv(fd, to + len, size - 1 - len, 0)) > 0;) {
        len += (size_t)n;
    }
    to[len] = '\0';
    close(fd);
    return len;
}

/* The same while memory is short: one has come whole, and waits for what its question takes; of the other the body is
 * still to come. */
static void test_stop_while_memory_is_short(void **state)
{
    struct fixture *f = *state;
    struct budget *budget = &server_pool(f->server)->budget;
    int idle = client_open(f);
    const char health[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_int_equal(send(idle, health, sizeof health - 1, 0), sizeof health - 1);
    char byte;
    assert_int_equal(recv(idle, &byte, 1, MSG_PEEK), 1);
    atomic_store(&budget->overdrawn, true);
    atomic_fetch_add(&budget->used, budget_load(&budget->limit));
    int fds[] = {client_play(f), client_open(f)};
    static char large[100000] = "POST /v1/played HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                "Content-Length: 300000\r\n\r\n";
    memset(large + strlen(large), ' ', sizeof large - strlen(large));
    assert_int_equal(send(fds[1], large, sizeof large, 0), sizeof large);
    while (budget_load(&budget->waiting) < 2) {
        sched_yield();
    }
    server_stop_within(f->server, STOP_MS);
    expect(fds[0], "urn:unseen:problem:stopping");
    expect(fds[1], "urn:unseen:problem:stopping");
    char rest[4096];
    size_t len = read_to_end(idle, rest, sizeof rest);
    assert_null(memmem(rest, len, "503", 3));
    close(idle);
    atomic_fetch_sub(&budget->used, budget_load(&budget->limit));
}

static void send_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
}

/* All that comes until the server closes. */
static size_t count_of(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        n++;
    }
    return n;
}

static char answers[64 * 1024];

#define HEALTH "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
#define PLAYED "POST /v1/played HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
#define BODY "{\"user\":\"u\",\"items\":[\"a\"]}"

/* In their order, also behind one that the store takes its time for. */
static void test_pipelined(void **state)
{
    struct fixture *f = *state;
    fake_store_hold(f->store);
    int fd = client_play(f);
    send_text(fd, HEALTH "\r\nGET /nosuch HTTP/1.1\r\nHost: localhost\r\n\r\n" HEALTH "Connection: close\r\n\r\n" HEALTH
                         "\r\n");
    fake_store_wait(f->store, 1);
    fake_store_release(f->store);
    read_to_end(fd, answers, sizeof answers);
    const char *recorded = strstr(answers, "{\"recorded\":1}"), *missing = strstr(answers, "404 Not Found");
    const char *alive = strstr(answers, "{\"alive\":true}");
    assert_true(recorded != NULL && alive > recorded && missing > alive);
    assert_int_equal(count_of(answers, "{\"alive\":true}"), 2); /* none behind the one that closes */
    assert_int_equal(count_of(answers, "Connection: close"), 1);
}

/* Each byte alone: the server sees every cut. */
static void test_single_bytes(void **state)
{
    struct fixture *f = *state;
    const char text[] =
        "\r\n" PLAYED "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n19;x=y\r\n"
        "\"user\":\"u\",\"items\":[\"a\"]}\r\n0\r\nTrailer: t\r\n\r\n" HEALTH "Connection: close\r\n\r\n";
    int fd = client_open(f), on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        assert_int_equal(send(fd, text + i, 1, 0), 1);
    }
    read_to_end(fd, answers, sizeof answers);
    assert_non_null(strstr(answers, "{\"recorded\":1}"));
    assert_non_null(strstr(answers, "{\"alive\":true}"));
}

/* What a proxy could read as another request ends the connection, and nothing behind it is run. */
static void test_smuggling(void **state)
{
    static const struct {
        const char *request;
        const char *status;
    } rows[] = {
        {PLAYED "Content-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 "},
        {PLAYED "Content-Length: 26\r\nContent-Length: 0\r\n\r\n" BODY, "400 "},
        {PLAYED "Content-Length: +26\r\n\r\n" BODY, "400 "},
        {PLAYED "Content-Length : 26\r\n\r\n" BODY, "400 "},
        {PLAYED "X: y\r\n Content-Length: 0\r\n\r\n", "400 "},
        {PLAYED "X: y\rContent-Length: 0\r\n\r\n", "400 "},
        {PLAYED "X: y\nContent-Length: 0\r\n\r\n", "400 "},
        {PLAYED "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501 "},
        {PLAYED "Transfer-Encoding: chunked\r\n\r\n1\r\n{XY0\r\n\r\n", "400 "},
        {PLAYED "Transfer-Encoding: chunked\r\n\r\n1 \r\n{\r\n0\r\n\r\n", "400 "},
        {PLAYED "Transfer-Encoding: chunked\r\n\r\n1\n{\r\n0\r\n\r\n", "400 "},
        {"POST /nosuch HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "421 "},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n", "400 "},
        {"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", "505 "},
        {"BREW /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "501 "},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = client_open(f);
        send_text(fd, rows[i].request);
        send_text(fd, HEALTH "\r\n");
        read_to_end(fd, answers, sizeof answers);
        if (strncmp(answers, "HTTP/1.1 ", 9) != 0 || strncmp(answers + 9, rows[i].status, 4) != 0 ||
            strstr(answers, "alive") != NULL || strstr(answers, "Connection: close") == NULL) {
            fail_msg("row %zu: %s", i, answers);
        }
    }
}

/* No byte is said to what is no HTTP, but a client of RESP, which is told where it belongs. */
static void test_no_http(void **state)
{
    static const char *const rows[] = {"\x16\x03\x01\x02", "get / HTTP/1.1\r\n"};
    static const char *const resp[] = {"*1\r\n$4\r\nPING\r\n", "PING\r\n"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = client_open(f);
        send_text(fd, rows[i]);
        assert_int_equal(read_to_end(fd, answers, sizeof answers), 0);
    }
    for (size_t i = 0; i < sizeof resp / sizeof *resp; i++) {
        int fd = client_open(f);
        send_text(fd, resp[i]);
        read_to_end(fd, answers, sizeof answers);
        assert_int_equal(strncmp(answers, "-ERR this port speaks HTTP", 26), 0);
    }
}

static void test_old_clients(void **state)
{
    struct fixture *f = *state;
    int fd = client_open(f);
    send_text(fd, "GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n" HEALTH "\r\n");
    read_to_end(fd, answers, sizeof answers);
    assert_int_equal(count_of(answers, "{\"alive\":true}"), 2); /* by default it closes */
    assert_int_equal(count_of(answers, "Connection: keep-alive"), 1);
    assert_int_equal(count_of(answers, "Connection: close"), 1);
}

static void test_head_has_no_body(void **state)
{
    struct fixture *f = *state;
    int fd = client_open(f);
    send_text(fd, "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /nosuch HTTP/1.1\r\nHost: localhost\r\n"
                  "Connection: close\r\n\r\n");
    read_to_end(fd, answers, sizeof answers);
    assert_non_null(strstr(answers, "200 OK\r\n"));
    assert_null(strstr(answers, "Content-Length: 0\r\n"));
    assert_non_null(strstr(answers, "404 Not Found\r\n"));
    assert_null(strchr(answers, '{'));
}

/* Who asks first is told to go on once, or is refused before it sends, and then the connection ends. */
static void test_expectations(void **state)
{
    struct fixture *f = *state;
    int fd = client_open(f);
    send_text(fd, PLAYED "Content-Length: 26\r\nExpect: 100-continue\r\n\r\n");
    assert_true(recv(fd, answers, sizeof answers, 0) > 0);
    assert_int_equal(strncmp(answers, "HTTP/1.1 100 Continue\r\n\r\n", 25), 0);
    send_text(fd, BODY);
    expect(fd, "{\"recorded\":1}");
    fd = client_open(f);
    send_text(fd, "POST /nosuch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 26\r\nExpect: 100-continue\r\n\r\n");
    read_to_end(fd, answers, sizeof answers);
    assert_non_null(strstr(answers, "404 Not Found"));
    assert_null(strstr(answers, "100 Continue"));
}

/* What clients and proxies of others send is taken as RFC 9110 and 9112 say. */
static void test_what_others_send(void **state)
{
    static const struct {
        const char *request, *answer;
    } rows[] = {
        {"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n", "{\"alive\":true}"},
        {"GET http://127.0.0.1:1/v1/nosuch HTTP/1.1\r\nHost: evil.example\r\n", "there is nothing at /v1/nosuch;"},
        {"GET http://evil.example/v1/nosuch HTTP/1.1\r\nHost: localhost\r\n", "421 Misdirected Request"},
        {"GET /v1/nosuch HTTP/1.1\r\nHost: LocalHost.:7980\r\n", "404 Not Found"},
        {"OPTIONS * HTTP/1.1\r\nHost: x\r\n", "Content-Length: 0\r\n"},
        {"OPTIONS * HTTP/1.1\r\nHost: x\r\n", "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n"},
        {"GET /%68ealthz HTTP/1.1\r\nHost: localhost\r\n", "{\"alive\":true}"},
        {"GET /v1/unseen%3abatch HTTP/1.1\r\nHost: localhost\r\n", "405 Method Not Allowed"},
        {"GET /v1%2fring HTTP/1.1\r\nHost: localhost\r\n", "404 Not Found"},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
         "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
         "{\"alive\":true}"},
        {"POST /v1/played HTTP/1.1\r\nHost: localhost\r\nExpect: a-cake\r\nContent-Length: 26\r\n",
         "417 Expectation Failed"},
        {PLAYED "Content-Length: 26\r\nContent-Encoding: br\r\nExpect: 100-Continue\r\n",
         "Accept-Encoding: gzip, identity\r\n"},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
         "Authorization is given twice"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = client_open(f);
        send_text(fd, rows[i].request);
        send_text(fd, "\r\n");
        size_t len = 0;
        do {
            ssize_t n = recv(fd, answers + len, sizeof answers - 1 - len, 0);
            assert_true(n > 0);
            answers[len += (size_t)n] = '\0';
        } while (strstr(answers, "\r\n\r\n") == NULL);
        close(fd);
        if (strstr(answers, rows[i].answer) == NULL) {
            fail_msg("row %zu: %s", i, answers);
        }
    }
}

enum { UPDATES = 100, UPDATE_BYTES = 1024 * 1024 };

/* More bytes in all than any bound on what bodies take; said is NULL when one was refused. */
static void *update_often(void *said)
{
    char *cause = malloc(UPDATE_BYTES + 1);
    memset(cause, 'x', UPDATE_BYTES);
    cause[UPDATE_BYTES] = '\0';
    for (int i = 0; i < UPDATES && *(bool *)said; i++) {
        char *update = consul_check_update(false, cause);
        *(bool *)said = update != NULL;
        free(update);
    }
    free(cause);
    return NULL;
}

/* The registry's thread makes its JSON beside the HTTP thread: neither takes from the other, at once or in the end.
 * Under the thread sanitizer nothing that they share shows. */
static void test_a_registry_beside(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    bool said = true;
    assert_int_equal(pthread_create(&thread, NULL, update_often, &said), 0);
    for (int i = 0; i < 20; i++) {
        expect(client_play(f), "{\"recorded\":1}");
        int fd = client_open(f);
        send_text(fd, HEALTH "\r\n");
        expect(fd, "{\"alive\":true}");
    }
    pthread_join(thread, NULL);
    assert_true(said);
    expect(client_play(f), "{\"recorded\":1}");
}

/* What is decoded in place stands where it came, also in chunks and beside what is only counted. */
static void test_escapes(void **state)
{
    static const char chunked[] = PLAYED "Transfer-Encoding: chunked\r\n\r\n"
                                         "1c\r\n{\"\\u0075ser\":\"\\ud83d\\ude00\",\r\n"
                                         "16\r\n \"items\":[\"\\\"\\n\",\"b\"]}\r\n0\r\n\r\n";
    struct fixture *f = *state;
    int fd = client_open(f);
    send_text(fd, chunked);
    expect(fd, "{\"recorded\":2}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers_after_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_client_that_leaves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_errors_of_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pipelined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_single_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_smuggling, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_http, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_clients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_head_has_no_body, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_expectations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_others_send, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_registry_beside, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_escapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_while_the_store_does_not_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_while_memory_is_short, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
