/* What hides by a policy: a table of deliveries, caps and clocks; views; and how the lines of a policy are read. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "config/config.h"
#include "dedup/exposure.h"
#include "store/user/deliveries.h"
#include "tests/lib/random.h"

enum { MINUTE = 60 * 1000, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
#define NOW INT64_C(1790000000000)

static struct policy policy_of(const char *plays, const char *item)
{
    struct policies all = {0};
    struct policy *p;
    struct err err = {0};
    assert_int_equal(policy_add(&all, slice_str("feed"), &p, &err), 0);
    if (policy_set(p, "plays", plays, &err) < 0 || policy_set(p, "item", item, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return *p;
}

/* --- caps --- */

/* Ages in ms at the earlier clock; END behind the last. */
#define END INT64_MIN
static const struct {
    const char *item;
    int64_t ages[18];
    bool hides;
    int64_t left; /* ms; 0: as long as it is remembered */
} rows[] = {
    {"1", {END}, false, 0},
    {"1", {0, END}, true, 0},
    {"1", {INT64_C(3000) * DAY, END}, true, 0},
    {"off", {0, END}, false, 0},
    {"off", {0, 1, 2, 3, END}, false, 0},
    {"2", {0, END}, false, 0},
    {"2", {0, INT64_C(400) * DAY, END}, true, 0},
    {"1 in 10min", {END}, false, 0},
    {"1 in 10min", {0, END}, true, 10 * MINUTE},
    {"1 in 10min", {10 * MINUTE - 1, END}, true, 1},
    {"1 in 10min", {10 * MINUTE, END}, false, 0},
    {"1 in 10min", {9 * MINUTE, 11 * MINUTE, END}, true, MINUTE},
    {"3 in 7d", {0, DAY, END}, false, 0},
    {"3 in 7d", {0, DAY, 2 * DAY, END}, true, 5 * DAY},
    {"3 in 7d", {0, DAY, 7 * DAY, END}, false, 0},
    {"3 in 7d", {0, DAY, 2 * DAY, 3 * DAY, END}, true, 5 * DAY}, /* the third newest of them leaves first */
    {"1 in 10min, 3 in 7d", {11 * MINUTE, DAY, END}, false, 0},
    {"1 in 10min, 3 in 7d", {MINUTE, END}, true, 9 * MINUTE},
    {"1 in 10min, 3 in 7d", {MINUTE, DAY, 2 * DAY, END}, true, 5 * DAY},
    {"1 in 10min, 3 in 7d", {11 * MINUTE, 6 * DAY, 7 * DAY - 1, END}, true, 1},
    {"3 in 7d, 1 in 10min", {MINUTE, DAY, 7 * DAY - 1, END}, true, 9 * MINUTE}, /* the longer one counts */
    {"1 in 10min, 3", {DAY, 2 * DAY, 300 * (int64_t)DAY, END}, true, 0},
    {"1 in 10min, 3", {DAY, 2 * DAY, END}, false, 0},
    {"1 in 1h", {-5 * MINUTE, END}, true, HOUR},               /* ahead of the earlier clock: now */
    {"1 in 1h", {-3 * HOUR - DAY, END}, true, HOUR},           /* a day ahead of the later one */
    {"1 in 1h", {-3 * HOUR - DAY - 1, END}, false, 0},         /* more: long ago, */
    {"1", {-3 * HOUR - DAY - 1, END}, true, 0},                /* though remembered */
    {"2 in 1h", {-3 * HOUR - DAY - 1, MINUTE, END}, false, 0}, /* wherever it stands in the list */
    {"2 in 1h", {-3 * HOUR - DAY - 1, MINUTE, 2 * MINUTE, END}, true, 58 * MINUTE},
    {"1 in 3660d", {NOW, END}, false, 0}, /* of 1970 */
    {"1", {NOW, END}, true, 0},
    {"15 in 1h", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, END}, false, 0},
    {"15 in 1h", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, END}, true, HOUR - 14},
    {"15 in 1h", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, END}, true, HOUR - 14},
};

static struct exposure exposure_of(const struct policy *p)
{
    return (struct exposure){.policy = p, .first_month = INT_MAX, .earlier_ms = NOW, .later_ms = NOW + 3 * HOUR};
}

static void test_caps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct policy p = policy_of("off", rows[i].item);
        const struct exposure e = exposure_of(&p);
        int64_t at_ms[18], until_ms;
        size_t n = 0;
        for (; rows[i].ages[n] != END; n++) {
            at_ms[n] = NOW - rows[i].ages[n];
        }
        const bool hides = exposure_hides(&e, at_ms, n, &until_ms);
        if (hides != rows[i].hides || until_ms != (rows[i].left > 0 ? NOW + rows[i].left : 0)) {
            fail_msg("row %zu, %s: hides %d until %lld", i, rows[i].item, hides, (long long)(until_ms - NOW));
        }
        for (size_t k = 0; k < n / 2 && n <= 15; k++) { /* in whichever order */
            const int64_t other = at_ms[k];
            at_ms[k] = at_ms[n - 1 - k];
            at_ms[n - 1 - k] = other;
        }
        assert_int_equal(exposure_hides(&e, at_ms, n, &until_ms), rows[i].hides);
    }
}

/* What is hidden until then is hidden a ms before, and not then, if nothing else is sent. */
static void test_until(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct policy p = policy_of("off", rows[i].item);
        struct exposure e = exposure_of(&p);
        int64_t at_ms[18], until_ms, other;
        size_t n = 0;
        bool ahead = false;
        for (; rows[i].ages[n] != END; n++) {
            at_ms[n] = NOW - rows[i].ages[n];
            ahead |= rows[i].ages[n] < 0;
        }
        if (ahead || !exposure_hides(&e, at_ms, n, &until_ms) || until_ms == 0) {
            continue;
        }
        e.earlier_ms = e.later_ms = until_ms - 1;
        assert_true(exposure_hides(&e, at_ms, n, &other));
        assert_int_equal(other, until_ms);
        e.earlier_ms = e.later_ms = until_ms;
        assert_false(exposure_hides(&e, at_ms, n, &other));
    }
}

/* --- views --- */

static void test_view(void **state)
{
    (void)state;
    const int month = month_of_ms(NOW);
    const struct policy p = policy_of("1", "2 in 1h");
    const struct exposure e = {.policy = &p, .first_month = month - 1, .months = 1, .earlier_ms = NOW, .later_ms = NOW};
    struct store_delivery sent[5];
    static const struct {
        const char *item;
        int64_t age;
    } list[] = {{"a", 0}, {"b", 1}, {"a", 2}, {"c", 3}, {"c", 2 * HOUR}};
    for (size_t i = 0; i < 5; i++) {
        sent[i] = (struct store_delivery){.stamp = delivered_stamp(NOW - list[i].age, 0),
                                          .hash = (uint64_t)list[i].item[0],
                                          .item = slice_str(list[i].item)};
    }
    struct delivered d = {.list = sent, .n = 5};
    assert_int_equal(delivered_unite(&d, 100), 3);
    const struct store_play plays[] = {{.hash = 1, .month = month}, {.hash = 2, .month = month - 2}, {3, month - 1}};
    const struct store_month months[] = {{.month = month}, {.month = month - 1}, {.month = month - 2}};
    const uint64_t exceptions[] = {9};
    const struct store_view view = {.known = true,
                                    .months = months,
                                    .n_months = 3,
                                    .plays = plays,
                                    .n_plays = 3,
                                    .deliveries = sent,
                                    .n_deliveries = d.n,
                                    .exceptions = exceptions,
                                    .n_exceptions = 1};
    struct exposure_memory memory = {0};
    struct store_view out;
    assert_int_equal(exposure_view(&e, &view, &memory, &out), 0);
    assert_int_equal(out.n_months, 2);
    assert_int_equal(out.n_plays, 2);
    assert_int_equal(out.plays[0].hash, 1);
    assert_int_equal(out.plays[1].hash, 3);
    assert_int_equal(out.n_deliveries, 1);
    assert_int_equal(out.deliveries[0].hash, 'a');
    assert_int_equal(out.n_exceptions, 1);

    const struct exposure nothing = {.policy = NULL};
    assert_int_equal(exposure_view(&nothing, &view, &memory, &out), 0);
    assert_memory_equal(&out, &view, sizeof view);
    const struct policy off = policy_of("off", "off");
    const struct exposure none = exposure_of(&off);
    assert_int_equal(exposure_view(&none, &view, &memory, &out), 0);
    assert_int_equal(out.n_months + out.n_plays + out.n_deliveries, 0);
    const struct policy all = policy_of("window", "1");
    const struct exposure every = exposure_of(&all);
    assert_int_equal(exposure_view(&every, &view, &memory, &out), 0);
    assert_int_equal(out.n_months + out.n_plays + out.n_deliveries, 11);
    exposure_memory_free(&memory);
}

/* --- lines --- */

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value, *shown, *error;
    } lines[] = {
        {"plays", "0", "0", NULL},
        {"plays", "12", "12", NULL},
        {"plays", "off", "off", NULL},
        {"plays", "window", "window", NULL},
        {"plays", "", NULL, "plays is \"\", expected a number of full months, window or off"},
        {"plays", "-1", NULL, "plays is \"-1\", expected a number of full months, window or off"},
        {"plays", "1 month", NULL, "plays is \"1 month\", expected a number of full months, window or off"},
        {"item", "off", "off", NULL},
        {"item", "1", "1", NULL},
        {"item", "1 in 10min, 3 in 7d", "1 in 10min, 3 in 7d", NULL},
        {"item", " 2  in  90 min ,15 in 24h", "2 in 90min, 15 in 1d", NULL},
        {"item", "1 in 1s,2 in 2s,3 in 3s,4", "1 in 1s, 2 in 2s, 3 in 3s, 4", NULL},
        {"item", "1,2,3,4,5", NULL, "item is \"1,2,3,4,5\", expected at most 4 caps"},
        {"item", "", NULL, "item has the cap \"\", expected 1, off, or caps such as 1 in 10min, 3 in 7d"},
        {"item", "1,", NULL, "item has the cap \"\", expected 1, off, or caps such as 1 in 10min, 3 in 7d"},
        {"item", "0", NULL, "item has the cap \"0\", expected 1 to 15 times"},
        {"item", "16 in 1h", NULL, "item has the cap \"16 in 1h\", expected 1 to 15 times"},
        {"item", "1 in 10", NULL, "item has the cap \"1 in 10\", expected 1, off, or caps such as 1 in 10min, 3 in 7d"},
        {"item", "1 in", NULL, "item has the cap \"1 in\", expected 1, off, or caps such as 1 in 10min, 3 in 7d"},
        {"item", "1 in10min", NULL,
         "item has the cap \"1 in10min\", expected 1, off, or caps such as 1 in 10min, 3 in 7d"},
        {"item", "1 in 0", NULL, "item has the cap \"1 in 0\", expected a time of 1s to 3660d"},
        {"item", "1 in 999ms", NULL, "item has the cap \"1 in 999ms\", expected a time of 1s to 3660d"},
        {"item", "1 in 3661d", NULL, "item has the cap \"1 in 3661d\", expected a time of 1s to 3660d"},
        {"item", "1 in 99999999999999999999d", NULL,
         "item has the cap \"1 in 99999999999999999999d\", expected a time of 1s to 3660d"},
        {"item", "once in 7d", NULL,
         "item has the cap \"once in 7d\", expected 1, off, or caps such as 1 in 10min, 3 in 7d"},
        {"also", "push:{user}", "push:{user}", NULL},
        {"also", "  a:{user}:b  all\t{user}{user} ", "a:{user}:b all {user}{user}", NULL},
        {"also", "a b c d e f g h", "a b c d e f g h", NULL},
        {"also", "a b c d e f g h i", NULL, "also names more users, expected at most 8"},
        {"also", "", NULL, "also is empty, expected users, as in push:{user}"},
        {"also", "push:{user} {user}", NULL,
         "also has \"{user}\", which is the user, expected other users, as in push:{user}"},
        {"also", "a b a", NULL, "also has \"a\" twice"},
        {"also", "push:{usr}", NULL,
         "also has \"push:{usr}\", expected UTF-8 without quotes, \\, and braces but in {user}"},
        {"also", "push:user}", NULL,
         "also has \"push:user}\", expected UTF-8 without quotes, \\, and braces but in {user}"},
        {"also", "a\\b", NULL, "also has \"a\\\\b\", expected UTF-8 without quotes, \\, and braces but in {user}"},
        {"also", "a\xff", NULL, "also has \"a\\\\xff\", expected UTF-8 without quotes, \\, and braces but in {user}"},
        {"author", "2 in 1h", NULL, "there is no option \"author\" in [policy feed], only plays, item, group and also"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct policy p = policy_of("window", "1");
        struct err err = {0};
        char text[POLICY_TEXT];
        const int code = policy_set(&p, lines[i].option, lines[i].value, &err);
        if (lines[i].error != NULL) {
            assert_true(code < 0);
            assert_string_equal(err.text, lines[i].error);
            continue;
        }
        assert_int_equal(code, 0);
        switch (lines[i].option[0]) {
        case 'p':
            policy_plays_text(&p, text);
            break;
        case 'i':
            policy_item_text(&p, text);
            break;
        default:
            snprintf(text, sizeof text, "%.150s", p.also);
            break;
        }
        assert_string_equal(text, lines[i].shown);
        struct policy again = policy_of("window", "1");
        assert_int_equal(policy_set(&again, lines[i].option, text, &err), 0);
        const struct policies one = {1, {p}}, other = {1, {again}};
        assert_true(policies_same(&one, &other));
    }
}

static void test_other_users(void **state)
{
    (void)state;
    struct policy p = policy_of("window", "1");
    struct err err = {0};
    char id[HASH_ID_MAX + 1] = {0}, most[HASH_ID_MAX - 2];
    assert_int_equal(policy_set(&p, "also", "a:{user} all {user}{user}", &err), 0);
    assert_int_equal(p.n_also, 3);
    assert_int_equal(policy_also_user(&p, 0, slice_str("u7"), id), 4);
    assert_memory_equal(id, "a:u7", 4);
    assert_int_equal(policy_also_user(&p, 1, slice_str("u7"), id), 3);
    assert_memory_equal(id, "all", 3);
    assert_int_equal(policy_also_user(&p, 2, slice_str("u7"), id), 4);
    assert_memory_equal(id, "u7u7", 4);
    memset(most, 'x', sizeof most);
    assert_int_equal(policy_also_user(&p, 0, slice_of(most, sizeof most), id), HASH_ID_MAX);
    assert_int_equal(id[HASH_ID_MAX - 1], 'x');
    assert_int_equal(id[HASH_ID_MAX], 0);
    assert_int_equal(policy_also_user(&p, 2, slice_of(most, sizeof most), id), 2 * sizeof most);
    assert_int_equal(id[HASH_ID_MAX], 0);
    char long_name[POLICY_ALSO_TEXT];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(policy_set(&p, "also", long_name, &err), ERR_RANGE);
    assert_string_equal(err.text, "also has more than 510 bytes");
    assert_string_equal(p.also, "a:{user} all {user}{user}");
    long_name[sizeof long_name - 2] = '\0';
    assert_int_equal(policy_set(&p, "also", long_name, &err), 0);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "default", "feed-2.new_one",
                                       "123456789012345678901234567890123456789012345678901234567890123"};
    static const char *const bad[] = {
        "", " feed", "a b", "a\"", "f\xc3\xbcr", "1234567890123456789012345678901234567890123456789012345678901234"};
    struct policies all = {0};
    struct policy *p;
    struct err err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(policy_add(&all, slice_str(good[i]), &p, &err), 0);
        assert_ptr_equal(policy_find(&all, slice_str(good[i])), p);
        assert_int_equal(policy_add(&all, slice_str(good[i]), &p, &err), ERR_INVALID);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(policy_add(&all, slice_str(bad[i]), &p, &err), ERR_INVALID);
    }
    for (char name[8]; all.n < POLICIES_MAX;) {
        snprintf(name, sizeof name, "n%zu", all.n);
        assert_int_equal(policy_add(&all, slice_str(name), &p, &err), 0);
    }
    assert_int_equal(policy_add(&all, slice_str("more"), &p, &err), ERR_RANGE);
    assert_null(policy_find(&all, slice_str("more")));
}

/* --- groups --- */

enum { ITEMS = 40, GROUPS = 6 };

/* The rule said plainly: of the items of a group, each by its newest time, in ms ago; negative: never. */
static bool plain_hides(const struct policy *p, const int64_t ages[ITEMS], const uint64_t groups[ITEMS], uint64_t group)
{
    for (int64_t c = 0; c < p->n_group_caps; c++) {
        const struct policy_cap *cap = &p->group_caps[c];
        int64_t n = 0;
        for (int i = 0; i < ITEMS; i++) {
            n += groups[i] == group && ages[i] >= 0 && (cap->within_ms == 0 || ages[i] < cap->within_ms);
        }
        if (group != 0 && n >= cap->times) {
            return true;
        }
    }
    return false;
}

static void test_groups_against_plain(void **state)
{
    (void)state;
    static const char *const lines[] = {"2 in 1h", "1", "1 in 10min, 3 in 1h", "15", "4 in 3h, 2 in 1min", "off"};
    struct exposure_groups g = {0};
    struct buf sent = {0};
    uint64_t random = 5;
    for (int round = 0; round < 3000; round++) {
        struct policy p = policy_of("off", "off");
        struct err err;
        assert_int_equal(policy_set(&p, "group", lines[round % 6], &err), 0);
        const struct exposure e = {.policy = &p, .earlier_ms = NOW, .later_ms = NOW};
        struct store_delivery list[2 * ITEMS];
        int64_t ages[ITEMS];
        uint64_t groups[ITEMS];
        struct delivered d = {.list = list};
        for (int i = 0; i < ITEMS; i++) {
            ages[i] = -1;
            groups[i] = 0;
            for (uint64_t k = random_below(&random, 3); k > 0; k--) {
                const bool ahead = random_below(&random, 20) == 0;
                const int64_t age = ahead ? NOW : (int64_t)random_below(&random, 2 * HOUR);
                const int64_t at = ahead ? NOW + 2 * DAY + i : NOW - age;
                list[d.n++] = (struct store_delivery){
                    .stamp = delivered_stamp(at, (uint64_t)i),
                    .hash = (uint64_t)i + 1,
                    .item = slice_of(&"0123456789012345678901234567890123456789ABCDEFGH"[i % 10], 1 + (size_t)i / 10),
                    .group = random_below(&random, GROUPS)};
            }
        }
        delivered_unite(&d, DELIVERED_MAX);
        for (size_t k = 0; k < d.n; k++) { /* newest first */
            const size_t i = list[k].hash - 1;
            ages[i] = list[k].nth == 0 ? exposure_age(&e, delivered_ms(list[k].stamp)) : ages[i];
            groups[i] = groups[i] == 0 ? list[k].group : groups[i];
        }
        const struct store_view view = {.deliveries = list, .n_deliveries = d.n};
        buf_clear(&sent);
        assert_int_equal(exposure_groups_of(&e, &view, &sent), 0);
        assert_int_equal(exposure_groups_begin(&g, (const struct exposure_sent *)(const void *)sent.data,
                                               sent.len / sizeof(struct exposure_sent)),
                         0);
        for (int step = 0; step < 30; step++) {
            int64_t until;
            for (uint64_t group = 0; group < GROUPS; group++) {
                assert_int_equal(exposure_groups_hide(&g, &e, group, &until), plain_hides(&p, ages, groups, group));
            }
            const size_t i = random_below(&random, ITEMS);
            const uint64_t group = groups[i] != 0 ? groups[i] : random_below(&random, GROUPS);
            assert_int_equal(exposure_groups_take(&g, group, i + 1), 0);
            ages[i] = 0;
            groups[i] = group;
        }
    }
    exposure_groups_free(&g);
    buf_free(&sent);
}

static void test_group_lines(void **state)
{
    (void)state;
    struct policies all = {0};
    struct policy *feed, *other;
    struct err err;
    char text[POLICY_TEXT];
    assert_int_equal(policy_add(&all, slice_str("feed"), &feed, &err), 0);
    assert_int_equal(policy_add(&all, slice_str(POLICY_DEFAULT), &other, &err), 0);
    policy_group_text(feed, text);
    assert_string_equal(text, "off");
    assert_int_equal(policy_set(feed, "group", "2 in 1h,15", &err), 0);
    policy_group_text(feed, text);
    assert_string_equal(text, "2 in 1h, 15");
    assert_int_equal(policy_set(feed, "group", "1,2,3,4,5", &err), ERR_RANGE);
    assert_int_equal(policy_set(feed, "group", "16 in 1h", &err), ERR_RANGE);
    assert_string_equal(err.text, "group has the cap \"16 in 1h\", expected 1 to 15 times");
    assert_int_equal(policy_set(feed, "group", "two", &err), ERR_INVALID);
    assert_int_equal(policy_set(other, "group", "1", &err), ERR_INVALID);
    struct policies same = all;
    assert_true(policies_same(&all, &same));
    assert_int_equal(policy_set(&same.list[0], "group", "2 in 2h", &err), 0);
    assert_false(policies_same(&all, &same));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_until),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_other_users),
        cmocka_unit_test(test_groups_against_plain),
        cmocka_unit_test(test_group_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
