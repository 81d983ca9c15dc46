/* What a remote source makes of a server's replies. The server is a thread that answers each request with the next of
 * some canned replies. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "cli/lib/source.h"
#include "net/client.h"
#include "store/admin.h"

enum { REPLIES = 4, REQUEST = 1024 };

struct server {
    pthread_t thread;
    char folder[64], address[96];
    int listener;
    const char *replies[REPLIES]; /* NULL: close the connection */
    char requests[REPLIES][REQUEST];
};

static struct server server;
static struct source *source;

static void *run_server(void *arg)
{
    struct server *s = arg;
    int fd = accept(s->listener, NULL, NULL);
    for (int i = 0; i < REPLIES && s->replies[i] != NULL; i++) {
        /* One request is one send() of the client, and small. */
        ssize_t n = recv(fd, s->requests[i], REQUEST - 1, 0);
        if (n <= 0 || send(fd, s->replies[i], strlen(s->replies[i]), MSG_NOSIGNAL) < 0) {
            break;
        }
    }
    close(fd);
    return NULL;
}

static void start_server(const char *handshake, const char *reply)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    server = (struct server){.replies = {handshake, reply}};
    strcpy(server.folder, "/tmp/unseen-source-XXXXXX");
    assert_non_null(mkdtemp(server.folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/sock", server.folder);
    snprintf(server.address, sizeof server.address, "unix:%s/sock", server.folder);
    server.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(server.listener >= 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server.listener, 1), 0);
    assert_int_equal(pthread_create(&server.thread, NULL, run_server, &server), 0);
}

static void end_server(void)
{
    pthread_join(server.thread, NULL);
    close(server.listener);
    unlink(server.address + strlen("unix:"));
    rmdir(server.folder);
}

static void open_source(const char *reply)
{
    start_server("%1\r\n+proto\r\n:3\r\n", reply);
    assert_int_equal(source_remote(server.address, NULL, &source, NULL), 0);
}

static void close_source(void)
{
    source_close(source);
    end_server();
}

static void test_history(void **state)
{
    (void)state;
    struct history h;
    open_source("%5\r\n$4\r\nuser\r\n$2\r\nu1\r\n$6\r\nmonths\r\n*2\r\n"
                "%7\r\n+month\r\n$7\r\n2026-11\r\n+items\r\n:10\r\n+bytes\r\n:99\r\n+error\r\n,2.5e-4\r\n+sealed\r\n#"
                "f\r\n+in_window\r\n:1\r\n"
                "+expires\r\n:1800000000000\r\n"
                "%7\r\n+month\r\n+2026-09\r\n+items\r\n:7\r\n+bytes\r\n:50\r\n+error\r\n,0\r\n+sealed\r\n#t\r\n+in_"
                "window\r\n:0\r\n"
                "+expires\r\n:1\r\n"
                "+staged\r\n:3\r\n+delivered\r\n:4\r\n+error\r\n,1e-3\r\n");
    assert_int_equal(source_history(source, slice_str("u1"), &h, NULL), 1);
    assert_int_equal(h.n_months, 2);
    assert_int_equal(h.staged, 3);
    assert_int_equal(h.delivered, 4);
    assert_true(h.error > 0.00099 && h.error < 0.00101);
    assert_int_equal(h.months[0].month, month_make(2026, 11));
    assert_int_equal(h.months[0].items, 10);
    assert_int_equal(h.months[0].bytes, 99);
    assert_true(h.months[0].error > 0.00024);
    assert_false(h.months[0].sealed);
    assert_true(h.months[0].in_window);
    assert_int_equal(h.months[0].expires_ms, 1800000000000);
    assert_int_equal(h.months[1].month, month_make(2026, 9));
    assert_true(h.months[1].sealed);
    assert_false(h.months[1].in_window);
    close_source();
    assert_string_equal(server.requests[0], "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
    assert_string_equal(server.requests[1], "*2\r\n$7\r\nHISTORY\r\n$2\r\nu1\r\n");
}

static void test_history_of_nobody(void **state)
{
    (void)state;
    struct history h;
    open_source("_\r\n");
    assert_int_equal(source_history(source, slice_str("u1"), &h, NULL), 0);
    close_source();
}

static void test_why(void **state)
{
    (void)state;
    struct place p[PLACES_MAX];
    open_source("%4\r\n$6\r\nstaged\r\n,0\r\n$9\r\ndelivered\r\n,0\r\n$7\r\n2026-09\r\n,6e-6\r\n+legacy\r\n,0\r\n");
    assert_int_equal(source_why(source, slice_str("u1"), slice_of("i\0x", 3), p, NULL), 4);
    assert_int_equal(p[3].kind, PLACE_LEGACY);
    assert_int_equal(p[0].kind, PLACE_STAGED);
    assert_int_equal(p[1].kind, PLACE_DELIVERED);
    assert_int_equal(p[2].kind, PLACE_MONTH);
    assert_int_equal(p[2].month, month_make(2026, 9));
    assert_true(p[2].error > 5e-6 && p[2].error < 7e-6);
    close_source();
    assert_memory_equal(server.requests[1], "*3\r\n$3\r\nWHY\r\n$2\r\nu1\r\n$3\r\ni\0x\r\n", 31);
}

static void test_why_unseen(void **state)
{
    (void)state;
    struct place p[PLACES_MAX];
    open_source("%0\r\n");
    assert_int_equal(source_why(source, slice_str("u1"), slice_str("i"), p, NULL), 0);
    close_source();
}

static void test_months(void **state)
{
    (void)state;
    struct store_month_info m[3];
    open_source(
        "*2\r\n%7\r\n+month\r\n+2026-11\r\n+users\r\n:5\r\n+plays\r\n:9\r\n+bytes\r\n:100\r\n+state\r\n+live\r\n"
        "+progress\r\n,0\r\n+in_window\r\n:1\r\n"
        "%7\r\n+month\r\n+2026-04\r\n+users\r\n:1\r\n+plays\r\n:2\r\n+bytes\r\n:3\r\n+state\r\n+expiring\r\n"
        "+progress\r\n,0.25\r\n+in_window\r\n:0\r\n");
    assert_int_equal(source_months(source, m, 2, NULL), 2);
    assert_int_equal(m[0].month, month_make(2026, 11));
    assert_int_equal(m[0].users, 5);
    assert_int_equal(m[0].plays, 9);
    assert_int_equal(m[0].bytes, 100);
    assert_int_equal(m[0].state, STORE_MONTH_LIVE);
    assert_int_equal(m[1].state, STORE_MONTH_EXPIRING);
    assert_true(m[1].progress > 0.24 && m[1].progress < 0.26);
    close_source();
}

static void test_more_months_than_asked_for(void **state)
{
    (void)state;
    struct store_month_info *m = calloc(1, sizeof *m);
    assert_non_null(m);
    open_source(
        "*2\r\n%7\r\n+month\r\n+2026-11\r\n+users\r\n:5\r\n+plays\r\n:9\r\n+bytes\r\n:100\r\n+state\r\n+live\r\n"
        "+progress\r\n,0\r\n+in_window\r\n:1\r\n"
        "%5\r\n+month\r\n+2026-10\r\n+users\r\n:5\r\n+plays\r\n:9\r\n+bytes\r\n:100\r\n+state\r\n+live\r\n");
    assert_int_equal(source_months(source, m, 1, NULL), 1);
    assert_int_equal(m->month, month_make(2026, 11));
    close_source();
    free(m);
}

/* Answers that make no sense are errors that name what is missing, and never read as data. */
static void test_answers_of_another_version(void **state)
{
    (void)state;
    static const char *const histories[] = {
        ":1\r\n",
        "%1\r\n+staged\r\n:3\r\n",
        "%4\r\n+staged\r\n:-3\r\n+delivered\r\n:4\r\n+error\r\n,0\r\n+months\r\n*0\r\n",
        "%4\r\n+staged\r\n:3\r\n+delivered\r\n:4\r\n+error\r\n,0\r\n+months\r\n:0\r\n",
        "%4\r\n+staged\r\n:3\r\n+delivered\r\n:4\r\n+error\r\n,0\r\n+months\r\n*1\r\n%1\r\n+month\r\n+Sept\r\n",
    };
    static const char *const whys[] = {":1\r\n", "*1\r\n+staged\r\n", "%1\r\n+nowhere\r\n,0\r\n",
                                       "%1\r\n+2026-09\r\n+x\r\n", "%1\r\n:1\r\n,0\r\n"};
    struct history h;
    struct place p[PLACES_MAX];
    struct err err;
    for (size_t i = 0; i < sizeof histories / sizeof histories[0]; i++) {
        open_source(histories[i]);
        assert_int_equal(source_history(source, slice_str("u1"), &h, &err), ERR_VERSION);
        assert_non_null(strstr(err.text, "HISTORY"));
        close_source();
    }
    for (size_t i = 0; i < sizeof whys / sizeof whys[0]; i++) {
        open_source(whys[i]);
        assert_int_equal(source_why(source, slice_str("u1"), slice_str("i"), p, &err), ERR_VERSION);
        assert_non_null(strstr(err.text, "WHY"));
        close_source();
    }
    struct buf many = {0};
    buf_addf(&many, "%%%d\r\n", PLACES_MAX + 1);
    for (int i = 0; i <= PLACES_MAX; i++) {
        buf_addf(&many, "+staged\r\n,0\r\n");
    }
    buf_add(&many, "", 1);
    open_source(many.data);
    assert_int_equal(source_why(source, slice_str("u1"), slice_str("i"), p, &err), ERR_VERSION);
    close_source();
    buf_free(&many);
    struct store_month_info m[1];
    open_source("*1\r\n%1\r\n+month\r\n+2026-11\r\n");
    assert_int_equal(source_months(source, m, 1, &err), ERR_VERSION);
    close_source();
}

static void test_server_errors(void **state)
{
    (void)state;
    struct history h;
    struct err err;
    open_source("-LOADING Unseen is recovering\r\n");
    assert_int_equal(source_history(source, slice_str("u1"), &h, &err), ERR_LOADING);
    close_source();
    open_source("-ERR user u1, month 2026-09: damaged\r\n");
    assert_int_equal(source_history(source, slice_str("u1"), &h, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "ERR user u1, month 2026-09: damaged"));
    close_source();
    open_source("what?\r\n");
    assert_int_equal(source_history(source, slice_str("u1"), &h, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "not RESP"));
    close_source();
    open_source(NULL);
    assert_int_equal(source_history(source, slice_str("u1"), &h, &err) < 0, 1);
    assert_non_null(strstr(err.text, server.address));
    close_source();
}

static void test_passwords(void **state)
{
    (void)state;
    struct err err;
    start_server("-NOAUTH HELLO must be called with the client already authenticated\r\n", NULL);
    assert_int_equal(source_remote(server.address, "", &source, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "wants a password"));
    assert_non_null(strstr(err.text, "UNSEEN_PASSWORD"));
    end_server();
    start_server("-WRONGPASS invalid\r\n", NULL);
    assert_int_equal(source_remote(server.address, "secret", &source, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "is wrong"));
    end_server();
    assert_string_equal(server.requests[0],
                        "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$6\r\nsecret\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_history_of_nobody),
        cmocka_unit_test(test_why),
        cmocka_unit_test(test_why_unseen),
        cmocka_unit_test(test_months),
        cmocka_unit_test(test_more_months_than_asked_for),
        cmocka_unit_test(test_answers_of_another_version),
        cmocka_unit_test(test_server_errors),
        cmocka_unit_test(test_passwords),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
