/* The map of a Redis Cluster: of what its nodes and Sentinels say, be it good, odd or garbage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <hiredis/hiredis.h>
#include <string.h>

#include "legacy/cluster.h"
#include "legacy/redis_reply.h"

#define ASKED "10.0.0.9:7000"

static const struct config plain = {.legacy_at = {.kind = REDIS_AT_ANY, .nodes = ASKED}};
static const struct config watched = {
    .legacy_at = {.kind = REDIS_AT_SENTINEL, .nodes = "10.0.0.5:26379", .master = "old"}};

static int take_from(struct cluster *c, const struct config *cfg, const char *asked, const char *bytes, struct err *err)
{
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    assert_non_null(reader);
    assert_int_equal(redisReaderFeed(reader, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    int rc = cluster_take(c, cfg, reply, asked, err);
    freeReplyObject(reply);
    redisReaderFree(reader);
    return rc;
}

static int take(struct cluster *c, const char *bytes, struct err *err)
{
    return take_from(c, &plain, ASKED, bytes, err);
}

/* "" when nobody serves it. */
static const char *owner(const struct cluster *c, unsigned slot)
{
    return c->slots[slot] > 0 ? c->nodes[c->slots[slot] - 1] : "";
}

#define HOST(len, host, port) "*2\r\n$" #len "\r\n" host "\r\n:" #port "\r\n"
#define RANGE(first, last, master) "*3\r\n:" #first "\r\n:" #last "\r\n" master

static void test_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *host, *address;
    } cases[] = {
        {ASKED, HOST(8, "10.0.0.1", 7001), "10.0.0.1:7001"},
        {ASKED, HOST(11, "redis-1.lan", 7001), "redis-1.lan:7001"},
        {ASKED, HOST(0, "", 7001), "10.0.0.9:7001"},
        {ASKED, HOST(1, "?", 7001), "10.0.0.9:7001"},
        {ASKED, "*2\r\n$-1\r\n:7001\r\n", "10.0.0.9:7001"},
        {ASKED, HOST(5, "fd::1", 7001), "[fd::1]:7001"},
        {"[fd::2]:7000", HOST(0, "", 7001), "[fd::2]:7001"},
        {"tls://a:7000", HOST(1, "b", 7001), "tls://b:7001"},
        {"tls://a:7000", HOST(0, "", 7001), "tls://a:7001"},
        /* its name and what else Redis 7 tells of it */
        {ASKED, "*4\r\n$1\r\nb\r\n:7001\r\n$2\r\nid\r\n*2\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n", "b:7001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c = {0};
        struct err err = {0};
        char bytes[512];
        snprintf(bytes, sizeof bytes, "*1\r\n*3\r\n:0\r\n:16383\r\n%s", cases[i].host);
        assert_int_equal(take_from(&c, &plain, cases[i].asked, bytes, &err), 1);
        assert_true(c.known);
        assert_string_equal(owner(&c, 0), cases[i].address);
        assert_string_equal(owner(&c, 16383), cases[i].address);
        cluster_free(&c);
    }
}

/* Of ranges that overlap the last counts; slots of no range are nobody's. */
static void test_ranges(void **state)
{
    (void)state;
    struct cluster c = {0};
    struct err err = {0};
    assert_int_equal(take(&c,
                          "*3\r\n" RANGE(0, 99, HOST(1, "a", 1)) RANGE(90, 200, HOST(1, "b", 2))
                              RANGE(300, 16383, HOST(1, "a", 1)),
                          &err),
                     1);
    assert_string_equal(owner(&c, 89), "a:1");
    assert_string_equal(owner(&c, 90), "b:2");
    assert_string_equal(owner(&c, 200), "b:2");
    assert_string_equal(owner(&c, 201), "");
    assert_string_equal(owner(&c, 299), "");
    assert_string_equal(owner(&c, 300), "a:1");
    assert_int_equal(cluster_masters(&c), 2);
    cluster_free(&c);
}

/* The address that was asked is the map's own, and moves as the map grows. */
static void test_many_nodes(void **state)
{
    (void)state;
    struct cluster c = {0};
    struct err err = {0};
    char bytes[4096] = "*30\r\n", address[64];
    int home = cluster_node(&c, "tls://home:1", &err);
    assert_int_equal(home, 0);
    for (int i = 0; i < 30; i++) {
        size_t at = strlen(bytes);
        snprintf(bytes + at, sizeof bytes - at, "*3\r\n:%d\r\n:%d\r\n*2\r\n$0\r\n\r\n:%d\r\n", i, i, 7000 + i);
    }
    assert_int_equal(take_from(&c, &plain, c.nodes[home], bytes, &err), 1);
    for (unsigned i = 0; i < 30; i++) {
        snprintf(address, sizeof address, "tls://home:%u", 7000 + i);
        assert_string_equal(owner(&c, i), address);
    }
    cluster_free(&c);
}

static void test_no_cluster(void **state)
{
    (void)state;
    struct cluster c = {0};
    struct err err = {0};
    assert_int_equal(take(&c, "-ERR This instance has cluster support disabled\r\n", &err), 0);
    assert_int_equal(take(&c, "*0\r\n", &err), 0);
    assert_int_equal(take(&c, "+OK\r\n", &err), 0);
    assert_false(c.known);
    assert_int_equal(cluster_route(&c, slice_str("any")), 0);
}

#define X50 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void test_garbage(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "*1\r\n:1\r\n",
        "*1\r\n*0\r\n",
        "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n+a\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n",
        "*1\r\n" RANGE(-1, 1, HOST(1, "a", 1)),
        "*1\r\n" RANGE(2, 1, HOST(1, "a", 1)),
        "*1\r\n" RANGE(0, 16384, HOST(1, "a", 1)),
        "*1\r\n" RANGE(0, 9223372036854775807, HOST(1, "a", 1)),
        "*1\r\n" RANGE(0, 1, HOST(1, "a", 0)),
        "*1\r\n" RANGE(0, 1, HOST(1, "a", 65536)),
        "*1\r\n*3\r\n$1\r\n0\r\n:1\r\n" HOST(1, "a", 1),
        "*2\r\n" RANGE(5, 6, HOST(1, "a", 1)) "*1\r\n:1\r\n",
        /* no address: it would be cut, or be the path of a socket */
        "*1\r\n" RANGE(0, 1, HOST(300, X50 X50 X50 X50 X50 X50, 1)),
        "*1\r\n" RANGE(0, 1, HOST(4, "/tmp", 1)),
        "*1\r\n" RANGE(0, 1, HOST(4, "unix", 1)),
        "*1\r\n" RANGE(0, 1, HOST(3, "a b", 1)),
        "*1\r\n" RANGE(0, 1, HOST(3, "a\nb", 1)),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c = {0};
        struct err err = {0};
        assert_int_equal(take(&c, "*1\r\n" RANGE(0, 16383, HOST(1, "z", 7)), &err), 1);
        if (take(&c, cases[i], &err) >= 0) {
            fail_msg("taken: %s", cases[i]);
        }
        assert_non_null(strstr(err.text, ASKED));
        assert_string_equal(owner(&c, 0), "z:7");
        assert_string_equal(owner(&c, 5), "z:7");
        cluster_free(&c);
    }
}

static void test_sentinel(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "*-1\r\n",
        "*1\r\n$1\r\na\r\n",
        "*2\r\n$1\r\na\r\n$1\r\n0\r\n",
        "*2\r\n$1\r\na\r\n$5\r\n65536\r\n",
        "*2\r\n$1\r\na\r\n$3\r\nfoo\r\n",
        "-NOAUTH Authentication required.\r\n",
    };
    struct cluster c = {0};
    struct err err = {0};
    struct slice words[CLUSTER_WORDS];
    assert_int_equal(cluster_words(&watched, words), 3);
    assert_true(slice_eq(words[2], slice_str("old")));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (take_from(&c, &watched, "10.0.0.5:26379", bad[i], &err) >= 0) {
            fail_msg("taken: %s", bad[i]);
        }
        assert_false(c.known);
    }
    assert_int_equal(take_from(&c, &watched, "10.0.0.5:26379", "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n", &err), 1);
    assert_string_equal(owner(&c, 12345), "10.0.0.1:6379");
    assert_int_equal(cluster_masters(&c), 1);
    cluster_free(&c);
}

static void test_verdict(void **state)
{
    (void)state;
    static const struct {
        const char *error;
        enum cluster_verdict verdict;
        const char *address;
    } cases[] = {
        {"MOVED 3999 10.0.0.2:6381", CLUSTER_MOVED, "10.0.0.2:6381"},
        {"MOVED 3999 redis-2.lan:6381", CLUSTER_MOVED, "redis-2.lan:6381"},
        {"MOVED 3999 fd::1:6381", CLUSTER_MOVED, "[fd::1]:6381"},
        {"MOVED 3999 :6381", CLUSTER_MOVED, "10.0.0.9:6381"},
        {"MOVED 3999 ?:6381", CLUSTER_MOVED, "10.0.0.9:6381"},
        {"ASK 3999 10.0.0.2:6381", CLUSTER_ASK, "10.0.0.2:6381"},
        {"MOVED 16384 10.0.0.2:6381", CLUSTER_STAYS, NULL},
        {"MOVED -1 10.0.0.2:6381", CLUSTER_STAYS, NULL},
        {"MOVED x 10.0.0.2:6381", CLUSTER_STAYS, NULL},
        {"MOVED 3999", CLUSTER_STAYS, NULL},
        {"MOVED 3999 ", CLUSTER_STAYS, NULL},
        {"MOVED 3999 10.0.0.2", CLUSTER_STAYS, NULL},
        {"MOVED 3999 10.0.0.2:", CLUSTER_STAYS, NULL},
        {"MOVED 3999 10.0.0.2:0", CLUSTER_STAYS, NULL},
        {"MOVED 3999 10.0.0.2:65536", CLUSTER_STAYS, NULL},
        {"MOVED 3999 /tmp/x:1", CLUSTER_STAYS, NULL},
        {"MOVED", CLUSTER_STAYS, NULL},
        {"ASKING", CLUSTER_STAYS, NULL},
        {"TRYAGAIN Multiple keys request during rehashing of slot", CLUSTER_STAYS, NULL},
        {"CLUSTERDOWN The cluster is down", CLUSTER_STAYS, NULL},
        {"", CLUSTER_STAYS, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c = {0};
        struct err err = {0};
        size_t node = 999;
        assert_int_equal(take(&c, "*1\r\n" RANGE(0, 16383, HOST(1, "z", 7)), &err), 1);
        if (cluster_verdict(&c, slice_str(cases[i].error), ASKED, &node) != cases[i].verdict) {
            fail_msg("%s", cases[i].error);
        }
        const bool moved = cases[i].verdict == CLUSTER_MOVED;
        if (cases[i].address != NULL) {
            assert_string_equal(c.nodes[node], cases[i].address);
        }
        assert_string_equal(owner(&c, 3999), moved ? cases[i].address : "z:7");
        assert_int_equal(c.stale, moved);
        assert_int_equal(c.moved, moved);
        assert_int_equal(c.asks, cases[i].verdict == CLUSTER_ASK);
        cluster_free(&c);
    }
    struct cluster none = {0};
    size_t node;
    assert_int_equal(cluster_verdict(&none, slice_str("MOVED 1 a:1"), ASKED, &node), CLUSTER_STAYS);
}

static void test_refresh(void **state)
{
    (void)state;
    struct cluster c = {.known = true};
    int64_t now = 5 * CLUSTER_REFRESH_US;
    assert_false(cluster_refresh(&c, now));
    c.stale = true;
    assert_true(cluster_refresh(&c, now));
    assert_false(cluster_refresh(&c, now));
    assert_false(cluster_refresh(&c, now + CLUSTER_REFRESH_US - 1));
    assert_true(cluster_refresh(&c, now + CLUSTER_REFRESH_US));
    c.stale = false;
    assert_false(cluster_refresh(&c, now + 9 * CLUSTER_REFRESH_US));
}

static void test_route(void **state)
{
    (void)state;
    struct cluster c = {0};
    struct err err = {0};
    /* CLUSTER KEYSLOT: foo 12182, user1000 3443 */
    assert_int_equal(take(&c,
                          "*3\r\n" RANGE(0, 3442, HOST(1, "a", 1)) RANGE(3443, 3443, HOST(1, "b", 1))
                              RANGE(12182, 12182, HOST(1, "c", 1)),
                          &err),
                     1);
    assert_string_equal(c.nodes[cluster_route(&c, slice_str("user1000"))], "b:1");
    assert_string_equal(c.nodes[cluster_route(&c, slice_str("played:{user1000}"))], "b:1");
    assert_string_equal(c.nodes[cluster_route(&c, slice_str("{user1000}{foo}"))], "b:1");
    assert_string_equal(c.nodes[cluster_route(&c, slice_str("{foo}.x"))], "c:1");
    assert_string_equal(c.nodes[cluster_route(&c, slice_str("foo"))], "c:1");
    assert_int_equal(cluster_route(&c, slice_str("{}{foo}")), 0); /* nobody's: any */
    cluster_free(&c);
}

static void test_too_many_nodes(void **state)
{
    (void)state;
    struct cluster c = {0};
    struct err err = {0};
    char address[32];
    for (int i = 0; i < CLUSTER_NODES_MAX; i++) {
        snprintf(address, sizeof address, "n%d:1", i);
        assert_int_equal(cluster_node(&c, address, &err), i);
    }
    assert_int_equal(cluster_node(&c, "n7:1", &err), 7);
    assert_int_equal(cluster_node(&c, "one:1", &err), ERR_SYSTEM);
    cluster_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),          cmocka_unit_test(test_ranges),  cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_no_cluster),     cmocka_unit_test(test_garbage), cmocka_unit_test(test_sentinel),
        cmocka_unit_test(test_verdict),        cmocka_unit_test(test_refresh), cmocka_unit_test(test_route),
        cmocka_unit_test(test_too_many_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
