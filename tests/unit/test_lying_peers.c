/* Every client of ours that reads what a peer sends, against peers that lie: each ends with an error that names the
 * peer, in time and without the memory that the lie asks for. Time is the test's: the peer lets it pass. */
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/heartbeat.h"
#include "config/config.h"
#include "legacy/redis.h"
#include "net/client.h"
#include "net/tls.h"
#include "registry/agent.h"
#include "tests/lib/rounds.h"
#include "tests/lib/send_bytes.h"

#define WITHOUT_END SIZE_MAX
#define FILL_64K "\x01" /* stands for 64 KiB of x, so that tables stay short */

enum { PATIENCE_MS = 5 * 1000, ADDRESS_TEXT = 64, KIB = 1024, MIB = 1024 * 1024 };

/* --- the peer --- */

struct lie {
    const char *name, *head, *piece; /* the piece so many times, then it hangs up */
    size_t times;
    int64_t pass_ms;  /* after each piece */
    const char *said; /* within the error; NULL: it is none for this client */
};

struct peer {
    int listener;
    pthread_t thread;
    const struct lie *lie;
    const char *greeting; /* to the first request; NULL: the lie is that already */
    char address[ADDRESS_TEXT];
    bool waits; /* until each piece was read, before time passes; at a Unix socket */
};

static bool say(int fd, const char *text)
{
    static char fill[64 * KIB];
    if (strcmp(text, FILL_64K) != 0) {
        return send_bytes(fd, text, strlen(text));
    }
    memset(fill, 'x', sizeof fill);
    return send_bytes(fd, fill, sizeof fill);
}

static void serve(const struct peer *p, int fd)
{
    char bytes[4096];
    const struct lie *lie = p->lie;
    if (p->greeting != NULL && (recv(fd, bytes, sizeof bytes, 0) <= 0 || !say(fd, p->greeting))) {
        return;
    }
    if (recv(fd, bytes, sizeof bytes, 0) <= 0) {
        return;
    }
    bool sent = say(fd, lie->head);
    for (size_t i = 0; sent && i < lie->times; i++) {
        sent = say(fd, lie->piece);
        for (int unread = 1; p->waits && unread > 0 && ioctl(fd, SIOCOUTQ, &unread) == 0;) {
            sched_yield();
        }
        clock_test_pass(lie->pass_ms);
    }
}

/* One connection after the other, until the listener is shut. */
static void *peer_main(void *arg)
{
    const struct peer *p = arg;
    for (int fd; (fd = accept(p->listener, NULL, NULL)) >= 0; close(fd)) {
        serve(p, fd);
    }
    return NULL;
}

static void bind_tcp(struct peer *p)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&address, &len), 0);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%d", ntohs(address.sin_port));
}

static void bind_unix(struct peer *p)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(p->address, sizeof p->address, "unix:/tmp/unseen-test-%d", (int)getpid());
    strcpy(address.sun_path, p->address + strlen("unix:"));
    unlink(address.sun_path);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&address, sizeof address), 0);
}

static void peer_start(struct peer *p, bool waits, const char *greeting, const struct lie *lie)
{
    *p = (struct peer){.waits = waits, .greeting = greeting, .lie = lie};
    (waits ? bind_unix : bind_tcp)(p);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
}

static void peer_stop(struct peer *p)
{
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listener);
    if (p->waits) {
        unlink(p->address + strlen("unix:"));
    }
}

/* --- the clients --- */

/* rc: of connecting. */
static int call_and_close(int rc, struct client **client, struct err *err)
{
    const struct slice word = slice_str("INFO");
    const struct reply *reply;
    if (rc == 0) {
        rc = client_call(*client, &word, 1, &reply, err);
        client_close(*client);
    }
    return rc;
}

static int ask_as_subcommand(const char *address, struct err *err)
{
    struct client *client;
    return call_and_close(client_connect(address, NULL, &client, err), &client, err);
}

static int ask_as_service(const char *address, struct err *err)
{
    const struct tls_files files = {"", "", ""};
    const struct client_how how = {.user = "", .password = "", .tls = files, .patience_ms = PATIENCE_MS};
    struct client *client;
    return call_and_close(client_connect_as(address, &how, &client, err), &client, err);
}

static int ask_as_follower(const char *address, struct err *err)
{
    const struct client_how how = {.user = "", .password = "", .patience_ms = PATIENCE_MS, .reply_max = 8 * MIB};
    struct client *client;
    int rc = client_connect_as(address, &how, &client, err);
    if (rc == 0) {
        client_bound_silence(client, PATIENCE_MS);
    }
    return call_and_close(rc, &client, err);
}

static int ask_over_tls(const char *address, struct err *err)
{
    char text[ADDRESS_TEXT + 8];
    snprintf(text, sizeof text, "tls://%s", address);
    return ask_as_service(text, err);
}

static int ask_old_redis(const char *address, struct err *err)
{
    static struct config cfg;
    const struct slice words[] = {slice_str("ZSCAN"), slice_str("k")};
    struct redisReply *reply = NULL;
    struct redis *redis;
    config_defaults(&cfg);
    cfg.legacy_at.kind = REDIS_AT_SINGLE;
    snprintf(cfg.legacy_at.nodes, sizeof cfg.legacy_at.nodes, "%s", address);
    int rc = redis_new(NULL, &redis, err);
    if (rc < 0) {
        return rc;
    }
    rc = redis_connect(redis, &cfg, err);
    if (rc == 0 && (rc = redis_send(redis, words, 2, err)) == 0 && (rc = redis_read(redis, &reply, err)) == 0) {
        struct slice text;
        rc =
            redis_is_error(reply, &text) ? err_set(err, ERR_INVALID, "%s: %.*s", address, (int)text.len, text.data) : 0;
        redis_free(reply);
    }
    redis_close(redis);
    return rc;
}

static int ask_consul(const char *address, struct err *err)
{
    char url[128];
    const struct agent_tls tls = {.ca = "", .cert = "", .key = ""};
    const struct agent_request request = {.url = url,
                                          .method = "GET",
                                          .type = "application/json",
                                          .path = "/v1/kv/x",
                                          .header = "",
                                          .secret = "",
                                          .ms = PATIENCE_MS};
    struct heartbeat heartbeat;
    struct agent *agent;
    struct buf reply = {0};
    long status;
    snprintf(url, sizeof url, "http://%s", address);
    heartbeat_begin(&heartbeat, "agent");
    int rc = agent_new(&tls, &heartbeat, &agent, err);
    if (rc == 0) {
        rc = agent_call(agent, &request, &status, &reply, err);
        agent_free(agent);
    }
    assert_true(reply.len <= MIB);
    buf_free(&reply);
    heartbeat_end(&heartbeat);
    return rc;
}

/* --- each lie to each client --- */

static const bool measures = !UNDER_SANITIZER; /* else what was freed is kept */

static size_t peak_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "VmHWM: %zu", &kib) == 1) {
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib;
}

static void begin_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (f != NULL) {
        fputs("5", f);
        fclose(f);
    }
}

static void lie_to(int (*ask)(const char *address, struct err *err), const char *greeting, const struct lie *lies,
                   size_t n, size_t most_kib)
{
    for (size_t i = 0; i < n; i++) {
        struct peer peer;
        struct err err = {0};
        peer_start(&peer, false, greeting, &lies[i]);
        begin_peak();
        const size_t before = peak_kib();
        const int rc = ask(peer.address, &err);
        const size_t peak = peak_kib();
        peer_stop(&peer);
        if ((rc < 0) != (lies[i].said != NULL) ||
            (rc < 0 && (strstr(err.text, lies[i].said) == NULL || strstr(err.text, peer.address) == NULL))) {
            fail_msg("%s: %d, \"%s\"; expected \"%s\"", lies[i].name, rc, err.text,
                     lies[i].said != NULL ? lies[i].said : "no error");
        }
        if (measures && peak > before + most_kib) {
            fail_msg("%s: took %zu KiB, at most %zu were expected", lies[i].name, peak - before, most_kib);
        }
    }
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* What no client of RESP takes, at the login or behind it. */
static const struct lie resp_lies[] = {
    {"a text of 2^31 bytes", "$2147483648\r\n", FILL_64K, WITHOUT_END, 0, "a text of a wrong length"},
    {"a text of 2^63 bytes", "$9223372036854775808\r\n", FILL_64K, WITHOUT_END, 0, "a number was expected"},
    {"a text of less than nothing", "$-2\r\n", FILL_64K, WITHOUT_END, 0, "a text of a wrong length"},
    {"an array of less than nothing", "*-7\r\n", FILL_64K, WITHOUT_END, 0, "an array of a wrong length"},
    {"an array of 2^40", "*1099511627776\r\n", FILL_64K, WITHOUT_END, 0, "an array of a wrong length"},
    {"a map of 2^31", "%2147483648\r\n", FILL_64K, WITHOUT_END, 0, "an array of a wrong length"},
    {"nesting", "", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", WITHOUT_END, 0, "nested too deep"},
    {"a line without end", "+", FILL_64K, WITHOUT_END, 0, "a line without an end"},
    {"an error of 10 MiB", "-ERR ", FILL_64K, 160, 0, "a line without an end"},
    {"no type of RESP", "?\r\n", "", 0, 0, "an unknown type"},
    {"HTTP", "HTTP/1.1 200 OK\r\n\r\n", "", 0, 0, "an unknown type"},
    {"no number", ":12x\r\n", "", 0, 0, "a number was expected"},
    {"longer than it says", "$1\r\nabc\r\n", "", 0, 0, "a text longer than it says"},
    {"an end in the middle", "*2\r\n$3\r\nab", "", 0, 0, "closed the connection"},
    {"an end before the beginning", "", "", 0, 0, "closed the connection"},
};

/* Of those, where the bytes have time of their own. */
static const struct lie slow_lies[] = {
    {"a byte a second", "*3\r\n$1000000\r\n", "x", WITHOUT_END, 1000, "all of it was expected within"},
    {"nearly fast enough", "*1\r\n$500000000\r\n", FILL_64K, WITHOUT_END, 14 * 1000,
     "and a second more for each 16 KiB"},
    {"pushes, a second each", "", ">1\r\n+x\r\n", WITHOUT_END, 1000, "no answer for"},
};

static const struct lie late_lies[] = {
    {"a byte a second", "*3\r\n$1000000\r\n", "x", WITHOUT_END, 1000, "no whole answer for 5 s"},
    {"pushes", "", ">1\r\n+x\r\n", WITHOUT_END, 1000, "no whole answer for 5 s"},
};

static void lie_in_resp(int (*ask)(const char *address, struct err *err), const char *greeting, const char *how_long,
                        const struct lie *in_time, size_t n)
{
    const bool at_login = greeting == NULL;
    const struct lie endless[] = {
        {"items without end", "*1000000000\r\n", FILL_64K, WITHOUT_END, 0, how_long},
        {"a text without end", "$500000000\r\n", FILL_64K, WITHOUT_END, 0, how_long},
        {"an error without end", "!500000000\r\n", FILL_64K, WITHOUT_END, 0, how_long},
    };
    lie_to(ask, greeting, resp_lies, COUNT(resp_lies), (size_t)(at_login ? 8 : 16) * KIB);
    lie_to(ask, greeting, in_time, n, (size_t)(at_login ? 8 : 256) * KIB);
    lie_to(ask, greeting, endless, COUNT(endless), (size_t)(at_login ? 8 : 256) * KIB);
}

static void a_subcommand(void **state)
{
    (void)state;
    lie_in_resp(ask_as_subcommand, NULL, "more than 1024 KiB", slow_lies, 1);
    lie_in_resp(ask_as_subcommand, "%0\r\n", "more than 65536 KiB", slow_lies, COUNT(slow_lies));
}

static void a_service(void **state)
{
    (void)state;
    lie_in_resp(ask_as_service, NULL, "more than 1024 KiB", late_lies, COUNT(late_lies));
    lie_in_resp(ask_as_service, "%0\r\n", "more than 65536 KiB", late_lies, COUNT(late_lies));
}

static void a_follower(void **state)
{
    (void)state;
    lie_in_resp(ask_as_follower, NULL, "more than 1024 KiB", late_lies, COUNT(late_lies));
    lie_in_resp(ask_as_follower, "%0\r\n", "more than 8192 KiB", slow_lies, COUNT(slow_lies));
}

/* 64 KiB in 3 s, which is a slow line and no lie. */
static void a_long_reply_over_a_slow_line_is_one(void **state)
{
    (void)state;
    static const struct lie honest = {"a long reply", "!1048574\r\n", FILL_64K, 16, 3 * 1000, NULL};
    int (*const clients[])(const char *address, struct err *err) = {ask_as_subcommand, ask_as_follower, ask_old_redis};
    const bool has_hiredis = strcmp(redis_library_version(), "none") != 0;
    for (size_t i = 0; i < COUNT(clients) - !has_hiredis; i++) {
        const bool old = clients[i] == ask_old_redis;
        struct lie lie = honest;
        struct peer peer;
        struct err err = {0};
        lie.head = old ? "$1048574\r\n" : lie.head;
        peer_start(&peer, true, old ? "+OK\r\n" : "%0\r\n", &lie);
        int rc = clients[i](peer.address, &err);
        peer_stop(&peer);
        /* It ends with xx, which hiredis takes for the end of a line. */
        if (old ? rc < 0 : strstr(err.text, "longer than it says") == NULL) {
            fail_msg("%d \"%s\"", rc, err.text);
        }
    }
}

static void a_handshake_of_tls(void **state)
{
    (void)state;
    if (strcmp(tls_library_version(), "none") == 0) {
        skip();
    }
    static const struct lie lies[] = {
        {"a record that trickles", "\x16\x03\x03\x3f\xff", "x", WITHOUT_END, 100, "no whole answer for 5 s"},
        {"RESP", "-ERR \r\n", "", 0, 0, "TLS"},
        {"no record", "", FILL_64K, WITHOUT_END, 0, "TLS"},
        {"an end", "", "", 0, 0, "within the handshake"},
    };
    lie_to(ask_over_tls, NULL, lies, COUNT(lies), (size_t)16 * KIB);
}

static void the_old_redis(void **state)
{
    (void)state;
    if (strcmp(redis_library_version(), "none") == 0) {
        skip();
    }
    static const struct lie lies[] = {
        {"a text of 2^31 bytes", "$2147483648\r\n", FILL_64K, WITHOUT_END, 0, "announces a string of 2147483648 bytes"},
        {"a text of 2^63 bytes", "$9223372036854775808\r\n", FILL_64K, WITHOUT_END, 0, "expected $ and a length"},
        {"an array of 10^9", "*1000000000\r\n", FILL_64K, WITHOUT_END, 0, "announces 1000000000 elements"},
        {"nesting", "", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", WITHOUT_END, 0, "deeper than"},
        {"an error of 10 MiB", "-ERR ", FILL_64K, 160, 0, "a line of more than"},
        {"an end in the middle", "*2\r\n$3\r\nab", "", 0, 0, "closed the connection"},
        {"a byte a second", "$1000000\r\n", "x", WITHOUT_END, 1000, "all of it was expected within 5 s"},
        {"a byte of a line a second", "+", "x", WITHOUT_END, 1000, "all of it was expected within 5 s"},
        {"nearly fast enough", "$16000000\r\n", FILL_64K, WITHOUT_END, 14 * 1000, "for each 16 KiB"},
    };
    lie_to(ask_old_redis, NULL, lies, COUNT(lies), (size_t)32 * KIB);
    lie_to(ask_old_redis, "+OK\r\n", lies, COUNT(lies), (size_t)32 * KIB);
}

#define OK "HTTP/1.1 200 OK\r\n"
#define CHUNKS                                                                                                         \
    "4\r\nabcd\r\n3f\r\nabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk\r\n" /* of 4 and 63 bytes */
#define GZIP "\x1f\x8b\x08\x01\x01\x01\x01\x01\x01\x03"

static void consul(void **state)
{
    (void)state;
    if (strcmp(agent_library_version(), "none") == 0) {
        skip();
    }
    static const struct lie lies[] = {
        {"headers without end", OK, "X-Name: value value value value value value\r\n", WITHOUT_END, 0,
         "a head of more"},
        {"a header without end", OK "X: ", FILL_64K, WITHOUT_END, 0, "longer than libcurl takes"},
        {"a status line without end", "HTTP/1.1 200 ", FILL_64K, WITHOUT_END, 0, "longer than libcurl takes"},
        {"early hints without end", "", "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", WITHOUT_END, 0, "a head of more"},
        {"go on, without end", "", "HTTP/1.1 100 Continue\r\n\r\n", WITHOUT_END, 0, "a head of more"},
        {"a body without end", OK "\r\n", FILL_64K, WITHOUT_END, 0, "a reply of more than 1 MiB"},
        {"chunks without end", OK "Transfer-Encoding: chunked\r\n\r\n", CHUNKS CHUNKS CHUNKS CHUNKS, WITHOUT_END, 0,
         "a reply of more"},
        {"a chunk of 2^64", OK "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", FILL_64K, WITHOUT_END, 0, ""},
        {"a chunk of no length", OK "Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n", "", 0, 0, ""},
        {"what a chunk is about, without end", OK "Transfer-Encoding: chunked\r\n\r\n5;", FILL_64K, WITHOUT_END, 10,
         "no answer in"},
        {"trailers without end", OK "Transfer-Encoding: chunked\r\n\r\n0\r\n", "T: value\r\n", WITHOUT_END, 0,
         "a head of more"},
        {"a length of 10^12", OK "Content-Length: 1000000000000\r\n\r\n", FILL_64K, WITHOUT_END, 0,
         "a reply of more than 1 MiB"},
        {"less than it says", OK "Content-Length: 100\r\n\r\nabc", "", 0, 0, "remaining"},
        {"less than nothing", OK "Content-Length: -1\r\n\r\nabc", "", 0, 0, "Content-Length"},
        {"two lengths", OK "Content-Length: 1\r\nContent-Length: 1000000000\r\n\r\n", FILL_64K, WITHOUT_END, 0,
         "a reply of more"},
        {"what is packed, without end", OK "Content-Encoding: gzip\r\n\r\n" GZIP, FILL_64K, WITHOUT_END, 0,
         "a reply of more than 1 MiB"},
        {"no HTTP", "+OK\r\n", "", 0, 0, "HTTP/0.9"},
        {"HTTP/2", "HTTP/2 200\r\n\r\n", FILL_64K, WITHOUT_END, 0, ""},
        {"an end before the beginning", "", "", 0, 0, "Empty reply"},
        {"a byte a second", OK, "X", WITHOUT_END, 1000, "no answer in 5000 ms"},
        {"a body that trickles", OK "Content-Length: 1000000\r\n\r\n", "x", WITHOUT_END, 1000, "no answer in 5000 ms"},
        {"sent elsewhere", "HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "", 0, 0,
         NULL},
        {"what is packed", OK "Content-Encoding: gzip\r\nContent-Length: 10\r\n\r\n" GZIP, "", 0, 0, NULL},
    };
    lie_to(ask_consul, NULL, lies, COUNT(lies), (size_t)8 * KIB);
}

static bool goes_on(void *arg)
{
    return --*(int *)arg > 0;
}

/* A thread that is to stop, or to say that it lives, does in the middle of a reply. */
static void who_is_asked_to_stop_does(void **state)
{
    (void)state;
    static const struct lie trickles = {"a byte", "$1000000\r\n", "x", WITHOUT_END, 0, ""};
    const struct client_how how = {.user = "", .password = "", .patience_ms = PATIENCE_MS};
    const struct slice word = slice_str("INFO");
    const struct reply *reply;
    struct client *client;
    struct peer peer;
    struct err err = {0};
    int left = 3;
    peer_start(&peer, false, "%0\r\n", &trickles);
    assert_int_equal(client_connect_as(peer.address, &how, &client, &err), 0);
    client_go_on(client, goes_on, &left);
    assert_int_equal(client_call(client, &word, 1, &reply, &err), ERR_CLOSED);
    assert_non_null(strstr(err.text, "interrupted"));
    client_close(client);
    peer_stop(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_subcommand),
        cmocka_unit_test(a_service),
        cmocka_unit_test(a_follower),
        cmocka_unit_test(a_long_reply_over_a_slow_line_is_one),
        cmocka_unit_test(a_handshake_of_tls),
        cmocka_unit_test(the_old_redis),
        cmocka_unit_test(consul),
        cmocka_unit_test(who_is_asked_to_stop_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
