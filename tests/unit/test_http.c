/* HTTP on a store that answers when the test says so: what happens to a write that is under way. */
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
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/log.h"
#include "fake_store.h"
#include "http/http.h"
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
    if (http_open(&f->cfg, &f->http, &err) < 0 || server_start(&f->cfg, http_listener(f->http), &f->server, &err) < 0 ||
        server_attach(f->server, &f->dedup, &err) < 0) {
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
    a.sin_port = htons((uint16_t)atoi(strrchr(http_listener(f->http)->address, ':') + 1));
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
    int fd = client_play(f), gone = client_play(f);
    fake_store_wait(f->store, 2);
    close(gone);
    server_stop_within(f->server, STOP_MS);
    expect(fd, "urn:unseen:problem:stopping");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers_after_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_client_that_leaves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_errors_of_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_while_the_store_does_not_answer, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
