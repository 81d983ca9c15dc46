/* What stands in the old Redis, read: keys, scores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "legacy/parse.h"
#include "legacy/rate_limiter.h"

#define NOW INT64_C(1795255200000) /* 2026-11-21T10:00Z */
#define DAY INT64_C(86400000)
#define SECOND INT64_C(1000000) /* us, of the pace */

static const struct legacy_times in_ms = {SCORE_MS, NOW - 90 * DAY, NOW + DAY};
static const struct legacy_times in_s = {SCORE_S, NOW - 90 * DAY, NOW + DAY};

static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *form, *key, *user; /* NULL: none */
    } cases[] = {
        {"played:{user}", "played:u1", "u1"},
        {"played:{user}", "played:", ""},
        {"played:{user}", "played", NULL},
        {"played:{user}", "delivered:u1", NULL},
        {"{user}:p", "u:1:p", "u:1"},
        {"{user}:p", ":p", ""},
        {"a{user}b", "aub", "u"},
        {"a{user}b", "ab", ""},
        {"a{user}b", "a", NULL},
        {"aa{user}aa", "aaa", NULL},
        {"{user}", "anything", "anything"},
        {"", "u1", NULL},
        {"p{{user}}", "p{u7}", "u7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice user = {0};
        bool is = legacy_key_user(cases[i].form, slice_str(cases[i].key), &user);
        assert_int_equal(is, cases[i].user != NULL);
        if (is) {
            char key[LEGACY_KEY_MAX];
            assert_true(slice_eq(user, slice_str(cases[i].user)));
            assert_true(slice_eq(legacy_key_make(cases[i].form, user, key), slice_str(cases[i].key)));
        }
    }
    char longest[7 + 256];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "played:", 7);
    struct slice user;
    assert_true(legacy_key_user("played:{user}", slice_of(longest, 7 + 255), &user));
    assert_true(legacy_user_good(user) && user.len == 255);
    assert_true(legacy_key_user("played:{user}", slice_of(longest, 7 + 256), &user));
    assert_false(legacy_user_good(user));
    assert_false(legacy_user_good(slice_str("")));
}

static void test_two_forms(void **state)
{
    (void)state;
    static const struct {
        const char *played, *delivered, *key;
        enum legacy_key kind;
        const char *user;
    } cases[] = {
        {"played:{user}", "delivered:{user}", "played:u1", LEGACY_KEY_PLAYED, "u1"},
        {"played:{user}", "delivered:{user}", "delivered:u1", LEGACY_KEY_DELIVERED, "u1"},
        {"played:{user}", "delivered:{user}", "u1", LEGACY_KEY_NONE, ""},
        {"played:{user}", "", "delivered:u1", LEGACY_KEY_NONE, ""},
        {"{user}", "", "delivered:u1", LEGACY_KEY_PLAYED, "delivered:u1"},
        {"{user}", "delivered:{user}", "u1", LEGACY_KEY_PLAYED, "u1"},
        {"{user}", "delivered:{user}", "delivered:u1", LEGACY_KEY_DELIVERED, "u1"},
        {"{user}", "delivered:{user}", "delivered:", LEGACY_KEY_DELIVERED, ""},
        {"{user}", "{user}:d", "u1:d", LEGACY_KEY_DELIVERED, "u1"},
        {"played:{user}", "{user}", "played:u1", LEGACY_KEY_PLAYED, "u1"},
        {"played:{user}", "{user}", "u1", LEGACY_KEY_DELIVERED, "u1"},
        {"u:{user}", "u:{user}:d", "u:1:d", LEGACY_KEY_DELIVERED, "1"},
        {"u:{user}", "u:{user}:d", "u:1", LEGACY_KEY_PLAYED, "1"},
        {"u:{user}:p", "u:{user}:d", "u:1:d", LEGACY_KEY_DELIVERED, "1"},
        {"u:{user}", "{user}:d", "u:1:d", LEGACY_KEY_DOUBTFUL, ""},
        {"{user}:d", "u:{user}", "u:1:d", LEGACY_KEY_DOUBTFUL, ""},
        {"u:{user}", "{user}:d", "u:1", LEGACY_KEY_PLAYED, "1"},
        {"u:{user}", "{user}:d", "1:d", LEGACY_KEY_DELIVERED, "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice user = slice_str("");
        enum legacy_key kind = legacy_key_read(cases[i].played, cases[i].delivered, slice_str(cases[i].key), &user);
        if (kind != cases[i].kind || !slice_eq(user, slice_str(cases[i].user))) {
            fail_msg("%s of %s and %s: kind %d, user %.*s", cases[i].key, cases[i].played, cases[i].delivered,
                     (int)kind, (int)user.len, user.data);
        }
    }
}

static void test_pattern(void **state)
{
    (void)state;
    char out[2 * LEGACY_KEY_MAX];
    assert_true(slice_eq(legacy_key_pattern("played:{user}", out), slice_str("played:*")));
    assert_true(slice_eq(legacy_key_pattern("a*[b]{user}?", out), slice_str("a\\*\\[b\\]*\\?")));
}

static void test_scores(void **state)
{
    (void)state;
    static const struct {
        const struct legacy_times *times;
        const char *score;
        enum legacy_time time;
        int64_t at_ms;
        const char *why; /* a part of it */
    } cases[] = {
        {&in_ms, "1795255200000", LEGACY_TIME_GOOD, NOW, ""},
        {&in_ms, "1.7952552e+12", LEGACY_TIME_GOOD, NOW, ""},
        {&in_ms, "1795255200000.75", LEGACY_TIME_GOOD, NOW, ""},
        {&in_ms, "1787479200000", LEGACY_TIME_GOOD, NOW - 90 * DAY, ""},
        {&in_ms, "1787479199999", LEGACY_TIME_OLD, NOW - 90 * DAY - 1, ""},
        {&in_ms, "1795341600000", LEGACY_TIME_GOOD, NOW + DAY, ""},
        {&in_ms, "1795341600001", LEGACY_TIME_BAD, 0, "more than a day ahead"},
        {&in_ms, "1795255200", LEGACY_TIME_BAD, 0, "looks like seconds"},
        {&in_ms, "17", LEGACY_TIME_BAD, 0, "no time since the year 2000"},
        {&in_ms, "0", LEGACY_TIME_BAD, 0, "no time since the year 2000"},
        {&in_ms, "-1", LEGACY_TIME_BAD, 0, "is no time"},
        {&in_ms, "inf", LEGACY_TIME_BAD, 0, "is no time"},
        {&in_ms, "-inf", LEGACY_TIME_BAD, 0, "is no time"},
        {&in_ms, "nan", LEGACY_TIME_BAD, 0, "is no time"},
        {&in_ms, "1e300", LEGACY_TIME_BAD, 0, "more than a day ahead"},
        {&in_ms, "", LEGACY_TIME_BAD, 0, "is no number"},
        {&in_ms, "12x", LEGACY_TIME_BAD, 0, "is no number"},
        {&in_ms, "-", LEGACY_TIME_BAD, 0, "the score - is no number"},
        {&in_ms, "1795341600001.5", LEGACY_TIME_BAD, 0, "more than a day ahead"},
        {&in_ms, "1795255200000000", LEGACY_TIME_BAD, 0, "looks like microseconds, and legacy_score is ms"},
        {&in_ms, "1795255200000000000", LEGACY_TIME_BAD, 0, "looks like nanoseconds, and legacy_score is ms"},
        {&in_ms, "001795255200000", LEGACY_TIME_GOOD, NOW, ""},
        {&in_s, "1795255200", LEGACY_TIME_GOOD, NOW, ""},
        {&in_s, "1795255200.25", LEGACY_TIME_GOOD, NOW + 250, ""},
        {&in_s, "1795255200000", LEGACY_TIME_BAD, 0, "looks like milliseconds"},
        {&in_s, "1795255200000000", LEGACY_TIME_BAD, 0, "looks like microseconds, and legacy_score is s"},
        {&in_s, "1e9", LEGACY_TIME_OLD, 0, ""},
        {&in_s, "1795341601", LEGACY_TIME_BAD, 0, "more than a day ahead"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t at_ms = 0;
        char why[LEGACY_WHY] = "";
        enum legacy_time time = legacy_time_parse(cases[i].times, slice_str(cases[i].score), &at_ms, why);
        if (time != cases[i].time || (time == LEGACY_TIME_GOOD && at_ms != cases[i].at_ms) ||
            strstr(why, cases[i].why) == NULL) {
            fail_msg("%s: %d, %lld, %s", cases[i].score, time, (long long)at_ms, why);
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *error;
        bool key;
    } cases[] = {
        {"WRONGTYPE Operation against a key holding the wrong kind of value", true},
        {"MOVED 3999 127.0.0.1:6381", true},
        {"ASK 3999 127.0.0.1:6381", true},
        {"NOPERM this user has no permissions to access one of the keys used as arguments", true},
        {"NOPERM No permissions to access a key", true},
        {"NOPERM this user has no permissions to run the 'zadd' command", false},
        {"NOPERM User app has no permissions to run the 'zscan' command", false},
        {"LOADING Redis is loading the dataset in memory", false},
        {"READONLY You can't write against a read only replica.", false},
        {"OOM command not allowed when used memory > 'maxmemory'.", false},
        {"NOAUTH Authentication required.", false},
        {"MISCONF Errors writing to the AOF file", false},
        {"CLUSTERDOWN The cluster is down", false},
        {"ERR unknown command 'ZADD'", false},
        {"no upstream host", false},
        {"MOVEDX", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (legacy_refuses_key(slice_str(cases[i].error)) != cases[i].key) {
            fail_msg("%s", cases[i].error);
        }
    }
}

/* What a rate lets through, on a clock of its own. */
static void test_pace(void **state)
{
    (void)state;
    int64_t now = 77 * SECOND, taken;
    struct rate_limiter p = {0};
    /* One at a time: what may be taken at once first, then as the rate has it. */
    for (taken = 0; taken < 999 && rate_limiter_left(&p, now, 1000) == 0; taken++) {
        rate_limiter_take(&p, now, 1, 1000);
    }
    assert_int_equal(taken, 101);
    assert_int_equal(rate_limiter_left(&p, now, 1000), 1000);
    for (int i = 0; i < 5000; i++) {
        now += rate_limiter_left(&p, now, 1000);
        assert_int_equal(rate_limiter_left(&p, now, 1000), 0);
        rate_limiter_take(&p, now, 1, 1000);
    }
    assert_int_equal(now, 77 * SECOND + 5 * SECOND);
    /* Many at a time are waited for afterwards. */
    now += SECOND;
    rate_limiter_take(&p, now, 10000, 1000);
    assert_int_equal(rate_limiter_left(&p, now, 1000), 10 * SECOND - RATE_LIMITER_BURST_US);
    assert_int_equal(rate_limiter_left(&p, now + 9 * SECOND, 1000), SECOND - RATE_LIMITER_BURST_US);
    /* A new rate counts for what is owed, too. */
    now += 9 * SECOND;
    assert_int_equal(rate_limiter_left(&p, now, 9000), SECOND / 10);
    assert_int_equal(rate_limiter_left(&p, now, 0), 0);
    rate_limiter_take(&p, now, 1000000, 0);
    assert_int_equal(rate_limiter_left(&p, now, 1), 0);
    /* Idle time is not saved up. */
    now += 3600 * SECOND;
    for (taken = 0; taken < 999 && rate_limiter_left(&p, now, 100) == 0; taken++) {
        rate_limiter_take(&p, now, 1, 100);
    }
    assert_int_equal(taken, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),     cmocka_unit_test(test_two_forms), cmocka_unit_test(test_pattern),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_scores),    cmocka_unit_test(test_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
