/* Addresses, and failed logins by address: who waits for how long, and that the table stays as large as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>

#include "net/logins.h"

enum { T0 = 1000 * 1000 };

static struct logins l;

static uint64_t peer(const char *text)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        a.ss_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
        a.ss_family = AF_INET6;
    }
    return peer_of(&a);
}

static void test_peers(void **state)
{
    (void)state;
    static const char *const shown[][2] = {
        {"10.0.0.7", "10.0.0.7"},
        {"127.0.0.1", "127.0.0.1"},
        {"::ffff:10.0.0.7", "10.0.0.7"},
        {"::1", "::/64"},
        {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
        {"0.0.0.0", "0.0.0.0"},
    };
    char text[PEER_TEXT];
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        uint64_t p = peer(shown[i][0]);
        assert_true(p != PEER_UNIX);
        peer_text(p, text);
        assert_string_equal(text, shown[i][1]);
        assert_true(peer_bucket(p, 16) < 16);
    }
    assert_true(peer("::ffff:10.0.0.7") == peer("10.0.0.7"));
    assert_true(peer("2001:db8::1") == peer("2001:db8::ffff:1"));
    assert_true(peer("2001:db8::1") != peer("2001:db8:0:1::1"));
    struct sockaddr_storage unix_socket = {.ss_family = AF_UNIX};
    assert_true(peer_of(&unix_socket) == PEER_UNIX);
    peer_text(PEER_UNIX, text);
    assert_string_equal(text, "unix");
}

enum { FREE = 10 };

static int begin(void **state)
{
    (void)state;
    memset(&l, 0, sizeof l);
    logins_init(&l, FREE);
    return 0;
}

static void fail_n(uint64_t p, int n, int64_t now)
{
    for (int i = 0; i < n; i++) {
        logins_failed(&l, p, "test", now);
    }
}

static void test_turns(void **state)
{
    (void)state;
    uint64_t p = peer("10.0.0.1"), other = peer("10.0.0.2");
    for (int i = 0; i < FREE; i++) {
        assert_int_equal(logins_turn(&l, p, T0), 0);
        fail_n(p, 1, T0);
    }
    /* One at once, and then each a second behind the one before, whoever takes them. */
    for (int i = 0; i <= LOGINS_WAIT_MS / LOGINS_TURN_MS; i++) {
        assert_int_equal(logins_turn(&l, p, T0), i * LOGINS_TURN_MS);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(logins_turn(&l, p, T0), -1); /* and that takes no turn */
    }
    assert_int_equal(logins_turn(&l, p, T0 + LOGINS_TURN_MS), LOGINS_WAIT_MS);
    assert_int_equal(logins_turn(&l, other, T0), 0);
    assert_int_equal(logins_turn(&l, PEER_UNIX, T0), 0);

    logins_good(&l, p);
    assert_int_equal(logins_turn(&l, p, T0), 0);
    assert_int_equal(logins_turn(&l, p, T0), 0);

    fail_n(p, FREE, T0);
    assert_int_equal(logins_turn(&l, p, T0), 0);
    assert_true(logins_turn(&l, p, T0) > 0);
    assert_true(logins_turn(&l, p, T0) > 0);
    assert_int_equal(logins_turn(&l, p, T0 + LOGINS_FORGET_MS), 0);
    assert_int_equal(logins_turn(&l, p, T0 + LOGINS_FORGET_MS), 0);

    fail_n(PEER_UNIX, 10 * FREE, T0);
    assert_int_equal(logins_turn(&l, PEER_UNIX, T0), 0);
}

/* Many addresses that fail once don't push out the one that fails often. */
static void test_bounded(void **state)
{
    (void)state;
    uint64_t guesser = peer("192.0.2.1");
    fail_n(guesser, 2 * FREE, T0);
    char text[PEER_TEXT];
    for (uint32_t i = 0; i < 20 * LOGINS_SETS * LOGINS_WAYS; i++) {
        snprintf(text, sizeof text, "10.%u.%u.%u", i >> 16 & 255, i >> 8 & 255, i & 255);
        fail_n(peer(text), 1, T0 + 1);
    }
    assert_int_equal(logins_turn(&l, guesser, T0 + 2), 0);
    assert_int_equal(logins_turn(&l, guesser, T0 + 2), LOGINS_TURN_MS);
    /* One that fails goes on being counted, even in a crowd. */
    uint64_t late = peer("192.0.2.2");
    fail_n(late, FREE, T0 + 3);
    assert_int_equal(logins_turn(&l, late, T0 + 3), 0);
    assert_int_equal(logins_turn(&l, late, T0 + 3), LOGINS_TURN_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers),
        cmocka_unit_test_setup(test_turns, begin),
        cmocka_unit_test_setup(test_bounded, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
