/* user_compare(): two users are the same if no answer could tell them apart, and what differs is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "filter/filter.h"
#include "store/codec/user_compare.h"
#include "store/user/deliveries.h"
#include "tests/lib/sent_list.h"

enum { SEED = 7, MONTH = 2026 * 12 + 10, ITEMS = 500 };

static struct arena arena;
static struct buf blobs[6];
static int n_blobs;

static int setup(void **state)
{
    (void)state;
    n_blobs = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    for (size_t i = 0; i < sizeof blobs / sizeof *blobs; i++) {
        buf_free(&blobs[i]);
    }
    return 0;
}

static uint64_t hash_of(uint32_t i)
{
    return hash_id(SEED, slice_of((const char *)&i, sizeof i));
}

/* The items 0 .. n, in batches of that size. */
static struct slice filled(uint32_t n, uint32_t batch)
{
    struct filter f = {.n_parts = 0};
    struct buf *out = &blobs[n_blobs++];
    for (uint32_t at = 0; at < n; at += batch) {
        uint32_t positions[ITEMS], left = batch < n - at ? batch : n - at;
        uint8_t tails[ITEMS];
        for (uint32_t i = 0; i < left; i++) {
            positions[i] = filter_position(hash_of(at + i), FILTER_LIVE_M);
        }
        uint32_t sorted = filter_sort(positions, left, NULL);
        for (int again = 0; again <= 1; again++) {
            for (uint32_t i = 0; i < left; i++) {
                filter_set_tail(positions, tails, sorted, hash_of(at + i), again != 0);
            }
        }
        assert_int_equal(filter_add_tails(&f, positions, tails, sorted, 200, 1000, &arena), 0);
    }
    assert_int_equal(filter_encode(&f, out), 0);
    return buf_slice(out);
}

static int64_t sent_apart_ms = 1; /* of deliveries */

static struct slice delivered(const char *const *items, size_t n)
{
    struct delivered_codec codec = {0};
    struct store_delivery list[4];
    struct buf *out = &blobs[n_blobs++];
    for (size_t i = 0; i < n; i++) {
        struct slice item = slice_str(items[i]);
        list[i] = (struct store_delivery){.stamp = delivered_stamp(1000 + (int64_t)(n - i) * sent_apart_ms, n - i),
                                          .hash = hash_id(SEED, item),
                                          .item = item};
    }
    assert_int_equal(sent_list_pack(&codec, list, n, out), 0);
    delivered_codec_free(&codec);
    return buf_slice(out);
}

static void expect(const struct user_snapshot *a, const struct user_snapshot *b, const char *why)
{
    char text[USER_COMPARE_TEXT];
    struct err err = {0};
    assert_int_equal(user_compare(a, b, SEED, text, &err), why == NULL);
    assert_string_equal(text, why != NULL ? why : "");
}

static struct user_snapshot user(const struct snapshot_month *months, size_t n)
{
    return (struct user_snapshot){.user = slice_str("ann"), .months = months, .n_months = n};
}

static void the_same_items_in_other_batches_are_the_same(void **state)
{
    (void)state;
    const struct snapshot_month x = {MONTH, filled(ITEMS, 7)}, y = {MONTH, filled(ITEMS, ITEMS)};
    const struct user_snapshot a = user(&x, 1), b = user(&y, 1);
    expect(&a, &b, NULL);
    expect(NULL, NULL, NULL);
}

static void an_item_more_is_named_by_its_side(void **state)
{
    (void)state;
    const struct snapshot_month x = {MONTH, filled(ITEMS, ITEMS)}, y = {MONTH, filled(ITEMS - 1, ITEMS)};
    const struct user_snapshot a = user(&x, 1), b = user(&y, 1);
    expect(&a, &b, "2026-11: 1 of 500 positions are only here");
    expect(&b, &a, "2026-11: 1 of 500 positions are only there");
    expect(NULL, &b, "2026-11: 499 of 499 positions are only there");
}

/* Un-seen on one side by an exception, on the other before its flush. */
static void an_exception_is_as_good_as_no_item(void **state)
{
    (void)state;
    const struct snapshot_month x = {MONTH, filled(ITEMS, ITEMS)}, y = {MONTH, filled(ITEMS - 1, ITEMS)};
    const uint64_t last = hash_of(ITEMS - 1);
    struct user_snapshot a = user(&x, 1), b = user(&y, 1), c = user(&x, 1);
    a.exceptions = &last;
    a.n_exceptions = 1;
    expect(&a, &b, NULL);
    expect(&a, &c, "2026-11: an item was un-seen only here");
    expect(&c, &a, "2026-11: an item was un-seen only there");
}

/* A play waits on one side and is merged on the other; or it is on one side alone. */
static void a_play_that_waits_is_as_good_as_one_that_is_merged(void **state)
{
    (void)state;
    const struct snapshot_month x = {MONTH, filled(ITEMS, ITEMS)}, y = {MONTH, filled(ITEMS - 1, ITEMS)};
    const struct store_play last = {hash_of(ITEMS - 1), MONTH}, more = {hash_of(ITEMS), MONTH};
    const struct store_play other = {hash_of(ITEMS), MONTH + 1};
    struct user_snapshot a = user(&x, 1), b = user(&y, 1), c = user(&x, 1), d = user(NULL, 0), e = user(NULL, 0);
    b.plays = &last;
    c.plays = &more;
    d.plays = e.plays = &more;
    b.n_plays = c.n_plays = d.n_plays = e.n_plays = 1;
    expect(&a, &b, NULL);
    expect(&b, &a, NULL);
    expect(&a, &c, "2026-11: a play is only there");
    expect(&c, &a, "2026-11: a play is only here");
    expect(&d, &e, NULL);
    expect(&d, NULL, "2026-11: a play is only here");
    e.plays = &other;
    expect(&d, &e, "2026-11: a play is only here");
    const uint64_t hash = last.hash;
    struct user_snapshot excepted = user(&x, 1);
    excepted.exceptions = &hash;
    excepted.n_exceptions = 1;
    expect(&b, &excepted, "2026-11: a play is only here");
}

/* Un-seen in November, after a flush on one side alone, and played again in December, which ends the exception. */
static void an_item_may_be_in_a_later_month_of_the_other_side(void **state)
{
    (void)state;
    const struct slice all = filled(ITEMS, ITEMS), but_the_last = filled(ITEMS - 1, ITEMS);
    const struct snapshot_month x[] = {{MONTH, all}, {MONTH + 1, all}}, y[] = {{MONTH, but_the_last}, {MONTH + 1, all}};
    const struct snapshot_month z[] = {{MONTH, all}, {MONTH + 1, but_the_last}};
    const struct store_play last = {hash_of(ITEMS - 1), MONTH + 1};
    const uint64_t hash = last.hash;
    struct user_snapshot a = user(x, 2), b = user(y, 2), c = user(z, 2), d = user(z, 2), e = user(y, 1);
    expect(&a, &b, NULL);
    expect(&b, &a, NULL);
    expect(&a, &c, "2026-12: 1 of 500 positions are only here"); /* there it is seen again a month earlier */
    d.plays = e.plays = &last;
    d.n_plays = e.n_plays = 1;
    expect(&d, &b, NULL); /* it waits to be merged */
    expect(&d, &e, "2026-12: 499 of 499 positions are only here");
    b.exceptions = &hash;
    b.n_exceptions = 1;
    expect(&a, &b, "2026-11: an item was un-seen only there");
}

static void damage_is_named_with_and_without_a_filter(void **state)
{
    (void)state;
    const struct snapshot_month x = {MONTH, filled(ITEMS, ITEMS)};
    const int month = MONTH, deliveries = 0;
    struct user_snapshot a = user(&x, 1), b = user(&x, 1), c = user(NULL, 0), d = user(NULL, 0), e = user(NULL, 0);
    a.damaged = c.damaged = &month;
    d.damaged = &deliveries;
    a.n_damaged = c.n_damaged = d.n_damaged = 1;
    expect(&a, &b, "2026-11 can't be read here");
    expect(&b, &a, "2026-11 can't be read there");
    expect(&a, &a, NULL);
    expect(&c, &e, "2026-11 can't be read here"); /* nothing is left of it on either side */
    expect(NULL, &c, "2026-11 can't be read there");
    expect(&d, &e, "deliveries can't be read here");
}

static void deliveries_are_compared_in_their_order(void **state)
{
    (void)state;
    static const char *const first[] = {"x", "y"}, *const second[] = {"y", "x"}, *const third[] = {"x"};
    struct user_snapshot a = user(NULL, 0), b = a, c = a;
    a.deliveries = delivered(first, 2);
    b.deliveries = delivered(second, 2);
    c.deliveries = delivered(third, 1);
    expect(&a, &a, NULL);
    expect(&a, &b, "delivery 1 of 2 is another");
    expect(&a, &c, "2 deliveries here, 1 there");
    expect(NULL, &c, "0 deliveries here, 1 there");
}

static void a_blob_that_is_none_is_an_error(void **state)
{
    (void)state;
    const struct snapshot_month x = {MONTH, slice_str("nonsense")};
    const struct user_snapshot a = user(&x, 1);
    char why[USER_COMPARE_TEXT];
    struct err err = {0};
    assert_int_equal(user_compare(&a, NULL, SEED, why, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "user \"ann\": "));
}

/* The order within one ms is each node's own. */
static void deliveries_of_one_ms_are_a_set(void **state)
{
    (void)state;
    struct user_snapshot a = user(NULL, 0), b = user(NULL, 0), c = user(NULL, 0);
    a.deliveries = delivered((const char *const[]){"x", "y", "z"}, 3);
    b.deliveries = delivered((const char *const[]){"x", "z", "y"}, 3);
    expect(&a, &b, "delivery 2 of 3 is another");
    sent_apart_ms = 0;
    a.deliveries = delivered((const char *const[]){"x", "y", "z"}, 3);
    b.deliveries = delivered((const char *const[]){"z", "x", "y"}, 3);
    c.deliveries = delivered((const char *const[]){"z", "x", "w"}, 3);
    sent_apart_ms = 1;
    expect(&a, &b, NULL);
    expect(&a, &c, "delivery 1 of 3 is another");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_items_in_other_batches_are_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(an_item_more_is_named_by_its_side, setup, teardown),
        cmocka_unit_test_setup_teardown(an_exception_is_as_good_as_no_item, setup, teardown),
        cmocka_unit_test_setup_teardown(a_play_that_waits_is_as_good_as_one_that_is_merged, setup, teardown),
        cmocka_unit_test_setup_teardown(an_item_may_be_in_a_later_month_of_the_other_side, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_named_with_and_without_a_filter, setup, teardown),
        cmocka_unit_test_setup_teardown(deliveries_are_compared_in_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(deliveries_of_one_ms_are_a_set, setup, teardown),
        cmocka_unit_test_setup_teardown(a_blob_that_is_none_is_an_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
