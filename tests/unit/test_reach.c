/* What a node announces to whom, what it takes, and that one that was told tls:// connects by nothing else. Both ends
 * of a connection are on loopback here; beyond that see tests/e2e/test_beyond_loopback.py. */
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "replica/reach.h"

static void set(struct config *cfg, const char *name, const char *value)
{
    assert_int_equal(config_set(cfg, name, value, NULL), 0);
}

static void test_what_is_shown(void **state)
{
    (void)state;
    static const struct {
        const char *address, *listens, *shown;
    } cases[] = {
        {"", "127.0.0.1:1", "127.0.0.1:1"}, /* nothing else is there */
        {"", "[::1]:1", "[::1]:1"},
        {"", "127.0.0.1:1,10.0.0.7:2", "10.0.0.7:2"},
        {"", "127.0.0.1:1,tls://10.0.0.7:2", "tls://10.0.0.7:2"},
        {"", "10.0.0.7:1,tls://10.0.0.7:2", "10.0.0.7:1"},
        {"", "0.0.0.0:1", ""},
        {"", "[::]:1", ""},
        {"", "[::ffff:0.0.0.0]:1", ""},
        {"", "0.0.0.0:1,[fe80::7]:2", "[fe80::7]:2"},
        {"", "", ""},
        {"tls://node-a.example:7443", "0.0.0.0:1", "tls://node-a.example:7443"},
        {"node-a:7443", "tls://10.0.0.7:7443", "node-a:7443"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg;
        struct reach r;
        config_defaults(&cfg);
        set(&cfg, "replica_address", cases[i].address);
        reach_init(&r, &cfg, cases[i].listens, "");
        assert_string_equal(reach_shown(&r), cases[i].shown);
    }
}

static void test_what_is_taken(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool local;
        const char *out; /* NULL: refused */
    } cases[] = {
        {"", false, ""},
        {"10.0.0.7:1", false, "10.0.0.7:1"},
        {"tls://node-a:1", false, "tls://node-a:1"},
        {"[2001:db8::7]:65535", false, "[2001:db8::7]:65535"},
        {"127.0.0.1:1", true, "127.0.0.1:1"},
        {"127.0.0.1:1", false, ""},
        {"127.1:1", false, ""},
        {"tls://127.0.0.1:1", false, ""},
        {"localhost:1", false, ""},
        {"[::1]:1", false, ""},
        {"[::ffff:127.0.0.1]:1", false, ""},
        {"0.0.0.0:1", true, ""},
        {"0:1", true, ""},
        {"[::]:1", true, ""},
        {"tls://[::]:1", true, ""},
        {"h:1\r\nrole:master", true, NULL},
        {"h\x1b[2J:1", true, NULL},
        {"h:1 ", true, NULL},
        {"h h:1", true, NULL},
        {"h:0", true, NULL},
        {"h:65536", true, NULL},
        {"h", true, NULL},
        {":1", true, NULL},
        {"unix:/run/s", true, NULL},
        {"http://h:1", true, NULL},
        {"tls://tls://h:1", true, NULL},
        {"h,slave1:1", true, NULL},
    };
    char out[NODE_ADDRESS_TEXT], longest[NODE_ADDRESS_TEXT + 1];
    struct err err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = reach_take(slice_str(cases[i].text), cases[i].local, out, &err);
        assert_int_equal(rc, cases[i].out != NULL ? 0 : ERR_INVALID);
        assert_string_equal(out, cases[i].out != NULL ? cases[i].out : "");
        assert_true(strpbrk(err.text, "\r\n\x1b") == NULL);
    }
    memset(longest, 'h', sizeof longest);
    memcpy(longest + sizeof longest - 3, ":1", 3);
    assert_int_equal(reach_take(slice_str(longest), true, out, &err), ERR_INVALID);
    assert_int_equal(reach_take(slice_str(longest + 1), true, out, &err), 0);
    assert_int_equal(reach_take(slice_of("h\0:1", 4), true, out, &err), ERR_INVALID);
}

static void test_what_consul_says(void **state)
{
    (void)state;
    struct config cfg;
    struct reach r;
    struct err err;
    char out[NODE_ADDRESS_TEXT];
    config_defaults(&cfg);
    reach_init(&r, &cfg, "127.0.0.1:1", "");
    assert_int_equal(reach_take_shown(&r, "127.0.0.1:2", out, &err), 0);
    assert_string_equal(out, "127.0.0.1:2");
    reach_init(&r, &cfg, "127.0.0.1:1,10.0.0.7:1", "");
    assert_int_equal(reach_take_shown(&r, "127.0.0.1:2", out, &err), 0);
    assert_string_equal(out, "");
    assert_int_equal(reach_take_shown(&r, "10.0.0.8:2", out, &err), 0);
    assert_string_equal(out, "10.0.0.8:2");
}

static void test_who_was_told_to_speak_tls(void **state)
{
    (void)state;
    static const struct {
        const char *of, *address, *listens, *follows;
        bool tls;
    } cases[] = {
        {"tls://a:1", "", "127.0.0.1:1", "", true},
        {"tls://a:1", "", "127.0.0.1:1", "b:1", true}, /* what a peer has said since then is not what it was told */
        {"a:1", "", "tls://10.0.0.7:1", "tls://b:1", false},
        {"", "", "127.0.0.1:1", "tls://a:1", true}, /* a clone */
        {"", "", "tls://10.0.0.7:1", "a:1", false},
        {"", "", "tls://10.0.0.7:1", "", true}, /* primaries */
        {"", "", "127.0.0.1:1,tls://10.0.0.7:1", "", true},
        {"", "", "10.0.0.7:1,tls://10.0.0.7:2", "", false},
        {"", "", "tls://127.0.0.1:1", "", true},
        {"", "", "127.0.0.1:1", "", false},
        {"", "tls://a:1", "127.0.0.1:1", "", true},
        {"", "", "", "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg;
        struct reach r;
        char out[NODE_ADDRESS_TEXT];
        config_defaults(&cfg);
        set(&cfg, "replica_of", cases[i].of);
        set(&cfg, "replica_address", cases[i].address);
        reach_init(&r, &cfg, cases[i].listens, cases[i].follows);
        reach_secure(&r, "b:1", out);
        assert_string_equal(out, cases[i].tls ? "tls://b:1" : "b:1");
        reach_secure(&r, out, out);
        assert_string_equal(out, cases[i].tls ? "tls://b:1" : "b:1");
        reach_secure(&r, "tls://b:1", out);
        assert_string_equal(out, "tls://b:1");
        reach_secure(&r, "", out);
        assert_string_equal(out, "");
        reach_secure(&r, "unix:/run/s", out); /* of a clone */
        assert_string_equal(out, "unix:/run/s");
    }
}

/* A peer that keeps the first words that are said to it. */
struct listener {
    int fd;
    char address[NODE_ADDRESS_TEXT], got[1024];
};

static void listen_here(struct listener *l)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    *l = (struct listener){.fd = socket(AF_INET, SOCK_STREAM, 0)};
    assert_int_equal(bind(l->fd, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(listen(l->fd, 1), 0);
    assert_int_equal(getsockname(l->fd, (struct sockaddr *)&in, &len), 0);
    snprintf(l->address, sizeof l->address, "127.0.0.1:%d", ntohs(in.sin_port));
}

static void *listener_main(void *arg)
{
    struct listener *l = arg;
    int fd = accept(l->fd, NULL, NULL);
    ssize_t n = recv(fd, l->got, sizeof l->got - 1, 0);
    l->got[n > 0 ? n : 0] = '\0';
    close(fd);
    return NULL;
}

static void test_who_is_given_the_own_password(void **state)
{
    (void)state;
    static const struct {
        bool of, follows;
        const char *user, *password, *told; /* the word behind AUTH; NULL: it isn't there */
    } cases[] = {
        {true, false, "", "", "default\r\n$4\r\nhush"},
        {false, true, "", "", "default\r\n$4\r\nhush"},
        {false, false, "", "", NULL}, /* another node has told of it */
        {false, false, "", "secret", "default\r\n$6\r\nsecret"},
        {false, false, "ann", "secret", "ann\r\n$6\r\nsecret"},
        {true, false, "ann", "secret", "ann\r\n$6\r\nsecret"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct listener l;
        struct config cfg;
        struct reach r;
        struct err err = {0};
        struct client *client;
        pthread_t thread;
        listen_here(&l);
        config_defaults(&cfg);
        set(&cfg, "requirepass", "hush");
        set(&cfg, "replica_of", cases[i].of ? l.address : "127.0.0.1:1");
        set(&cfg, "replica_user", cases[i].user);
        set(&cfg, "replica_password", cases[i].password);
        reach_init(&r, &cfg, "127.0.0.1:2", cases[i].follows ? l.address : "127.0.0.1:3");
        assert_int_equal(pthread_create(&thread, NULL, listener_main, &l), 0);
        assert_true(reach_connect(&r, l.address, 60 * 1000, 1024, &client, &err) < 0);
        pthread_join(thread, NULL);
        close(l.fd);
        assert_non_null(strstr(l.got, "HELLO"));
        if (cases[i].told != NULL) {
            assert_non_null(strstr(l.got, cases[i].told));
        } else {
            assert_null(strstr(l.got, "AUTH"));
            assert_null(strstr(l.got, "hush"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_shown),
        cmocka_unit_test(test_what_is_taken),
        cmocka_unit_test(test_what_consul_says),
        cmocka_unit_test(test_who_was_told_to_speak_tls),
        cmocka_unit_test(test_who_is_given_the_own_password),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
