/* The blocking client against a server that this test plays itself: one that sends what is no help. */
#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/client.h"
#include "tests/lib/alloc.h"
#include "tests/lib/send_bytes.h"

enum { SHORT_MS = 100, LONG_MS = 1000, ENOUGH_MS = 20 * 1000 };

/* It greets, and then answers each read with play(); until the client is gone. */
struct server {
    int listener, port;
    pthread_t thread;
    bool (*play)(int fd); /* false: the connection is over */
};

static void *serve(void *arg)
{
    const struct server *s = arg;
    char bytes[4096];
    int fd = accept(s->listener, NULL, NULL);
    if (fd >= 0 && recv(fd, bytes, sizeof bytes, 0) > 0 && send_bytes(fd, "%0\r\n", 4)) {
        while (recv(fd, bytes, sizeof bytes, 0) > 0 && s->play(fd)) {
        }
    }
    close(fd);
    return NULL;
}

static void listen_at(struct server *s, char text[64])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    *s = (struct server){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&address, &len), 0);
    s->port = ntohs(address.sin_port);
    snprintf(text, 64, "127.0.0.1:%d", s->port);
}

static struct client *begin(struct server *s, bool (*play)(int fd), int patience_ms, size_t reply_max)
{
    char text[64];
    struct client *client;
    struct err err;
    listen_at(s, text);
    s->play = play;
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    const struct client_how how = {.user = "", .password = "", .patience_ms = ENOUGH_MS, .reply_max = reply_max};
    assert_int_equal(client_connect_as(text, &how, &client, &err), 0);
    client_be_patient(client, patience_ms);
    return client;
}

static void end(struct server *s, struct client *client)
{
    client_close(client);
    pthread_join(s->thread, NULL);
    close(s->listener);
}

static int ask(struct client *client, const struct reply **reply, struct err *err)
{
    const struct slice word = slice_str("PING");
    *err = (struct err){0};
    return client_call(client, &word, 1, reply, err);
}

static bool answer(int fd)
{
    return send_bytes(fd, "+OK\r\n", 5);
}

static void patience_begins_with_each_call(void **state)
{
    (void)state;
    struct server server;
    const struct reply *reply;
    struct err err;
    struct client *client = begin(&server, answer, LONG_MS, 0);
    assert_int_equal(ask(client, &reply, &err), 0);
    clock_test_pass(LONG_MS + SHORT_MS);
    assert_int_equal(ask(client, &reply, &err), 0);
    end(&server, client);
}

/* The machine had something else to do, when the answer was there long before. */
static void an_answer_that_came_in_time_is_one(void **state)
{
    (void)state;
    struct server server;
    const struct slice word = slice_str("PING");
    const struct reply *reply;
    struct err err;
    struct client *client = begin(&server, answer, LONG_MS, 0);
    assert_int_equal(client_queue(client, &word, 1, &err), 0);
    assert_int_equal(client_wait(client, ENOUGH_MS, &err), 1);
    clock_test_pass(LONG_MS + SHORT_MS);
    assert_int_equal(client_read(client, &reply, &err), 0);
    assert_true(slice_eq(reply->text, slice_str("OK")));
    end(&server, client);
}

/* --- how long a reply may be --- */

static atomic_size_t most; /* of one allocation */

static bool note_allocation(enum alloc_by by, size_t n, size_t size)
{
    (void)by;
    if (n * size > most) {
        most = n * size;
    }
    return false;
}

static bool send_long_text(int fd)
{
    static const char zeros[64 * 1024];
    const size_t n = (size_t)512 * 1024 * 1024;
    char head[32];
    snprintf(head, sizeof head, "$%zu\r\n", n);
    bool sent = send_bytes(fd, head, strlen(head));
    for (size_t i = 0; i < n && sent; i += sizeof zeros) {
        sent = send_bytes(fd, zeros, sizeof zeros);
    }
    return sent && send_bytes(fd, "\r\n", 2);
}

/* Shorter on the way than what may be sent, and much longer as items. */
static bool send_many_items(int fd)
{
    bool sent = send_bytes(fd, "*200000\r\n", 9);
    for (int i = 0; i < 200000 && sent; i++) {
        sent = send_bytes(fd, "_\r\n", 3);
    }
    return sent;
}

static void refuse_large(bool (*play)(int fd))
{
    struct server server;
    const struct reply *reply;
    struct err err;
    struct client *client = begin(&server, play, ENOUGH_MS, CLIENT_ANSWER_MAX);
    most = 0;
    alloc_fails = note_allocation;
    assert_int_equal(ask(client, &reply, &err), ERR_SYSTEM);
    alloc_fails = NULL;
    assert_non_null(strstr(err.text, "a reply of more than 1024 KiB"));
    assert_in_range(most, 1, 4 * CLIENT_ANSWER_MAX);
    end(&server, client);
}

/* Before it has greeted, too, and where nothing says how long a reply may be. */
static bool send_without_end(int fd)
{
    static char piece[64 * 1024];
    char head[32];
    snprintf(head, sizeof head, "$%zu\r\n", sizeof piece - 2);
    memset(piece, 'x', sizeof piece - 2);
    memcpy(piece + sizeof piece - 2, "\r\n", 2);
    bool sent = send_bytes(fd, "*2147483647\r\n", 13);
    while (sent) {
        sent = send_bytes(fd, head, strlen(head)) && send_bytes(fd, piece, sizeof piece);
    }
    return false;
}

static void *greet_without_end(void *arg)
{
    const struct server *s = arg;
    char bytes[4096];
    int fd = accept(s->listener, NULL, NULL);
    if (fd >= 0 && recv(fd, bytes, sizeof bytes, 0) > 0) {
        send_without_end(fd);
    }
    close(fd);
    return NULL;
}

static void a_greeting_without_end_takes_no_memory(void **state)
{
    (void)state;
    struct server server;
    struct client *client;
    struct err err = {0};
    char text[64];
    listen_at(&server, text);
    for (int as = 0; as < 2; as++) { /* a service, and a subcommand */
        const struct client_how how = {.user = "", .password = "", .patience_ms = ENOUGH_MS, .reply_max = 0};
        assert_int_equal(pthread_create(&server.thread, NULL, greet_without_end, &server), 0);
        most = 0;
        alloc_fails = note_allocation;
        int rc = as == 0 ? client_connect_as(text, &how, &client, &err) : client_connect(text, NULL, &client, &err);
        alloc_fails = NULL;
        assert_int_equal(rc, ERR_SYSTEM);
        assert_non_null(strstr(err.text, "a reply of more than 1024 KiB"));
        assert_in_range(most, 1, 4 * CLIENT_ANSWER_MAX);
        pthread_join(server.thread, NULL);
    }
    close(server.listener);
}

static void no_client_is_without_a_bound(void **state)
{
    (void)state;
    struct server server;
    const struct reply *reply;
    struct err err;
    struct client *client = begin(&server, send_without_end, ENOUGH_MS, 0);
    most = 0;
    alloc_fails = note_allocation;
    assert_int_equal(ask(client, &reply, &err), ERR_SYSTEM);
    alloc_fails = NULL;
    assert_non_null(strstr(err.text, "a reply of more than 65536 KiB"));
    assert_in_range(most, 1, 4 * (size_t)CLIENT_REPLY_MAX);
    end(&server, client);
}

static void a_long_text_takes_no_memory(void **state)
{
    (void)state;
    refuse_large(send_long_text);
}

static void many_items_take_no_memory(void **state)
{
    (void)state;
    refuse_large(send_many_items);
}

static bool send_fitting(int fd)
{
    static char text[CLIENT_ANSWER_MAX / 2];
    char head[32];
    memset(text, 'x', sizeof text);
    snprintf(head, sizeof head, "$%zu\r\n", sizeof text);
    return send_bytes(fd, head, strlen(head)) && send_bytes(fd, text, sizeof text) && send_bytes(fd, "\r\n", 2);
}

static void what_fits_comes_again_and_again(void **state)
{
    (void)state;
    struct server server;
    const struct reply *reply;
    struct err err;
    struct client *client = begin(&server, send_fitting, ENOUGH_MS, CLIENT_ANSWER_MAX);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(client, &reply, &err), 0);
        assert_int_equal(reply->text.len, CLIENT_ANSWER_MAX / 2);
    }
    end(&server, client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patience_begins_with_each_call),
        cmocka_unit_test(an_answer_that_came_in_time_is_one),
        cmocka_unit_test(a_greeting_without_end_takes_no_memory),
        cmocka_unit_test(no_client_is_without_a_bound),
        cmocka_unit_test(a_long_text_takes_no_memory),
        cmocka_unit_test(many_items_take_no_memory),
        cmocka_unit_test(what_fits_comes_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
