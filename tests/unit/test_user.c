/* The laws of a user: in whatever order, in however many steps and however often plays come together, the same items
 * are found; and sides of a user that are united hide what either hid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "base/hash.h"
#include "store/user/exceptions.h"
#include "store/user/parcel.h"
#include "store/user/plays.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"

enum { ROUNDS = 200, PLAYS_MAX = 90, OTHERS = 200 };

/* --- plays --- */

/* As the staged index has them: something lies between two hashes. */
struct row {
    uint64_t hash;
    int month;
    uint32_t id;
};

struct drawn_plays {
    struct row rows[PLAYS_MAX];
    size_t n;
};

static struct plays plays_from(const struct drawn_plays *d)
{
    return (struct plays){.hashes = &d->rows[0].hash, .n = d->n, .stride = sizeof d->rows[0]};
}

/* Some of them are of one position, and some twice there. */
static void draw_plays(struct drawn_plays *d, uint64_t *random)
{
    d->n = 1 + random_below(random, PLAYS_MAX);
    for (size_t i = 0; i < d->n; i++) {
        const uint64_t near = random_below(random, 4);
        const uint64_t hash = i > 0 && near < 2 ? d->rows[random_below(random, i)].hash : random_next(random);
        d->rows[i] = (struct row){.hash = near == 1 ? hash ^ (random_next(random) & UINT32_MAX) : hash};
    }
}

static void add(struct filter *f, const struct drawn_plays *d, const struct plays_limits *limits, struct arena *arena)
{
    const struct plays plays = plays_from(d);
    assert_int_equal(plays_add(f, &plays, limits, arena), 0);
}

static void expect_found(const struct filter *f, const struct drawn_plays *d)
{
    for (size_t i = 0; i < d->n; i++) {
        assert_true(filter_has(f, d->rows[i].hash));
    }
}

/* By what is found of each and of others, the filters are one. */
static void expect_same(const struct filter *a, const struct filter *b, const struct drawn_plays *d, size_t n,
                        uint64_t random)
{
    for (size_t i = 0; i < n; i++) {
        expect_found(a, &d[i]);
        expect_found(b, &d[i]);
    }
    for (int i = 0; i < OTHERS; i++) {
        const uint64_t hash = random_next(&random);
        assert_false(filter_has(a, hash) || filter_has(b, hash));
    }
}

static void encode(const struct filter *f, struct buf *out)
{
    buf_clear(out);
    assert_int_equal(filter_encode(f, out), 0);
}

static void test_plays_are_united(void **state)
{
    uint64_t random = 1;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct arena arena = {0};
        struct buf before = {0}, after = {0};
        struct drawn_plays d[3];
        struct filter forth = {0}, back = {0}, of[3] = {{.n_parts = 0}}, left = {0}, right = {0};
        const struct plays_limits limits = {(uint32_t)random_below(&random, PLAYS_MAX),
                                            (uint32_t)random_below(&random, 2 * PLAYS_MAX)};
        for (int i = 0; i < 3; i++) {
            draw_plays(&d[i], &random);
            add(&of[i], &d[i], &limits, &arena);
        }
        for (int i = 0; i < 3; i++) {
            add(&forth, &d[i], &limits, &arena);
            add(&back, &d[2 - i], &limits, &arena);
        }
        expect_same(&forth, &back, d, 3, random);
        for (int i = 0; i < 3; i++) { /* once more, nothing changes */
            encode(&forth, &before);
            add(&forth, &d[i], &limits, &arena);
            encode(&forth, &after);
            assert_int_equal(before.len, after.len);
            assert_memory_equal(before.data, after.data, before.len);
        }
        struct filter rest = {0};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(filter_join(&left, &of[i], limits.coarse_max, &arena), 0);
        }
        assert_int_equal(filter_join(&rest, &of[1], limits.coarse_max, &arena), 0);
        assert_int_equal(filter_join(&rest, &of[2], limits.coarse_max, &arena), 0);
        assert_int_equal(filter_join(&right, &of[0], limits.coarse_max, &arena), 0);
        assert_int_equal(filter_join(&right, &rest, limits.coarse_max, &arena), 0);
        expect_same(&left, &right, d, 3, random);
        expect_same(&forth, &left, d, 3, random);
        buf_free(&before);
        buf_free(&after);
        arena_free(&arena);
    }
}

/* The parts fill one after another, and memory of the caller's serves as well as the arena's. */
static void test_limits_are_kept(void **state)
{
    static const struct plays_limits steps[] = {{100, 0}, {0, 100}, {0, 0}};
    uint32_t positions[PLAYS_MAX], scratch[PLAYS_MAX];
    struct arena arena = {0};
    struct drawn_plays d;
    uint64_t random = 2;
    (void)state;
    draw_plays(&d, &random);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct buf one = {0}, other = {0};
        struct filter f = {0}, g = {0};
        struct plays plays = plays_from(&d);
        add(&f, &d, &steps[i], &arena);
        assert_int_equal(f.n_parts, 1);
        assert_int_equal(f.parts[0].coarse, i == 0);
        assert_int_equal(f.parts[0].fine, i == 2);
        plays.positions = positions;
        plays.scratch = scratch;
        assert_int_equal(plays_add(&g, &plays, &steps[i], &arena), 0);
        encode(&f, &one);
        encode(&g, &other);
        assert_int_equal(one.len, other.len);
        assert_memory_equal(one.data, other.data, one.len);
        buf_free(&one);
        buf_free(&other);
    }
    arena_free(&arena);
}

static void test_runs_are_of_one_month(void **state)
{
    static const struct store_play list[] = {{1, 7}, {2, 7}, {3, 8}, {4, 9}, {5, 9}};
    (void)state;
    size_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        const struct plays run = plays_of_month(list, 5, at);
        assert_ptr_equal(run.hashes, &list[at].hash);
        assert_int_equal(run.n, i == 1 ? 1 : 2);
        at += run.n;
    }
    assert_int_equal(plays_of_month(list, 5, 5).n, 0);
    assert_int_equal(plays_of_month(NULL, 0, 0).n, 0);
}

/* Every allocation of it fails once. */
static void test_no_memory(void **state)
{
    struct drawn_plays d;
    uint64_t random = 3;
    int failures = 0;
    (void)state;
    draw_plays(&d, &random);
    for (int after = 0, result = ERR_NOMEM; result == ERR_NOMEM; after++) {
        struct arena arena = {.block_size = 64};
        const struct plays plays = plays_from(&d);
        struct filter f = {0};
        alloc_fail_after(after);
        result = plays_add(&f, &plays, &(struct plays_limits){0, 0}, &arena);
        alloc_fail_after(-1);
        failures += result == ERR_NOMEM;
        assert_true(result == ERR_NOMEM || result == 0);
        arena_free(&arena);
    }
    assert_true(failures >= 2);
}

/* --- exceptions --- */

/* A side, by the rule said plainly: a bit of each item. */
enum { ITEMS = 16 };
struct side {
    uint32_t filter, plays, unseen;
};

static uint32_t hides(struct side s)
{
    return s.plays | (s.filter & ~s.unseen);
}

static uint32_t draw_items(uint64_t *random)
{
    return (uint32_t)(random_next(random) & random_next(random)) & ((1U << ITEMS) - 1);
}

static struct side draw_side(uint64_t *random)
{
    return (struct side){draw_items(random), draw_items(random), draw_items(random)};
}

/* Ascending, in the order of the bits. */
static uint64_t hash_of(unsigned item)
{
    return (uint64_t)(item + 1) * UINT64_C(0x0123456789abcdef);
}

static struct filter filter_of(uint32_t items, struct arena *arena)
{
    struct filter f = {0};
    for (unsigned i = 0; i < ITEMS; i++) {
        const uint64_t hash = hash_of(i);
        if (items >> i & 1) {
            assert_int_equal(
                plays_add(&f, &(struct plays){&hash, 1, 8, NULL, NULL}, &(struct plays_limits){4, 8}, arena), 0);
        }
    }
    return f;
}

/* As an engine does it. Plays of month 9 are past retention. */
static struct side unite(struct side here, struct side there)
{
    struct arena arena = {0};
    struct exceptions x;
    uint64_t of_here[ITEMS], of_there[ITEMS];
    struct store_play plays[2][2 * ITEMS];
    size_t n_here = 0, n_there = 0, n_plays[2] = {0};
    for (unsigned i = 0; i < ITEMS; i++) {
        if (here.unseen >> i & 1) {
            of_here[n_here++] = hash_of(i);
        }
        if (there.unseen >> i & 1) {
            of_there[n_there++] = hash_of(i);
        }
        plays[0][n_plays[0]++] = (struct store_play){hash_of(i), here.plays >> i & 1 ? 10 : 9};
        plays[1][n_plays[1]++] = (struct store_play){hash_of(i), there.plays >> i & 1 ? 10 : 9};
    }
    struct filter ours = filter_of(here.filter, &arena), theirs = filter_of(there.filter, &arena);
    assert_int_equal(exceptions_begin(&x, of_here, n_here, of_there, n_there, &arena), 0);
    exceptions_played(&x, plays[1], n_plays[1], 10, true);
    exceptions_played(&x, plays[0], n_plays[0], 10, false);
    exceptions_shown_there(&x, &theirs);
    exceptions_shown_here(&x, &ours);
    struct side both = {here.filter | there.filter, here.plays | there.plays, 0};
    for (unsigned i = 0; i < ITEMS; i++) {
        size_t at = hash_place(of_here, n_here, hash_of(i)), is = hash_place(of_there, n_there, hash_of(i));
        both.unseen |= (uint32_t)((at < n_here && !x.ends[at]) || (is < n_there && x.comes[is])) << i;
        assert_false(at < n_here && is < n_there && x.comes[is]); /* it is one already */
    }
    arena_free(&arena);
    return both;
}

static void test_sides_hide_what_either_hid(void **state)
{
    uint64_t random = 4;
    (void)state;
    for (int round = 0; round < 20 * ROUNDS; round++) {
        const struct side a = draw_side(&random), b = draw_side(&random), c = draw_side(&random);
        const struct side ab = unite(a, b);
        assert_int_equal(hides(ab), hides(a) | hides(b));
        assert_int_equal(hides(unite(b, a)), hides(ab));
        assert_int_equal(hides(unite(ab, c)), hides(unite(a, unite(b, c))));
        const struct side again = unite(ab, b);
        assert_int_equal(hides(again), hides(ab));
        assert_memory_equal(&(struct side){.unseen = unite(again, b).unseen}, &(struct side){.unseen = again.unseen},
                            sizeof(struct side));
    }
}

/* What can't be read may have shown anything: then nothing that was un-seen there comes. */
static void test_a_damaged_filter_may_show_all(void **state)
{
    const uint64_t there[] = {1, 2};
    struct arena arena = {0};
    struct exceptions x;
    (void)state;
    assert_int_equal(exceptions_begin(&x, NULL, 0, there, 2, &arena), 0);
    assert_true(x.comes[0] && x.comes[1]);
    exceptions_shown_here(&x, NULL);
    assert_false(x.comes[0] || x.comes[1]);
    arena_free(&arena);
    alloc_fail_after(0);
    assert_int_equal(exceptions_begin(&x, NULL, 0, there, 2, &arena), ERR_NOMEM);
    alloc_fail_after(-1);
}

/* --- parcels --- */

enum { SEED = 42 };
#define NOW month_start_ms(24300)

static void pack(struct user_snapshot *p, struct buf *out)
{
    p->user = slice_str("u");
    p->key = hash_user_key(SEED, p->user);
    buf_clear(out);
    assert_int_equal(user_snapshot_encode(p, out), 0);
}

/* Whatever is newest, a month more may come, since clocks differ. */
static void test_what_lies_ahead_is_refused(void **state)
{
    struct arena arena = {0};
    struct buf bytes = {0};
    (void)state;
    for (int what = 0; what < 3; what++) {
        for (int month = 24301; month <= 24302; month++) {
            struct user_snapshot p;
            struct err err = {0};
            struct buf empty = {0};
            const struct filter none = {0};
            int newest = 0;
            assert_int_equal(filter_encode(&none, &empty), 0);
            const struct snapshot_month of = {month, buf_slice(&empty)};
            const struct store_play play = {7, month};
            pack(&(struct user_snapshot){.last_month = what == 0 ? month : 24200,
                                         .months = &of,
                                         .n_months = what == 1,
                                         .plays = &play,
                                         .n_plays = what == 2},
                 &bytes);
            assert_int_equal(parcel_open(buf_slice(&bytes), SEED, &arena, &p, &err), 0);
            assert_int_equal(parcel_admit(&p, INT64_MIN, NOW, INT_MIN, &arena, &newest, &err),
                             month == 24301 ? 0 : ERR_RANGE);
            assert_int_equal(newest, month);
            assert_int_equal(parcel_open(buf_slice(&bytes), SEED + 1, &arena, &p, &err), ERR_SEED);
            buf_free(&empty);
        }
    }
    buf_free(&bytes);
    arena_free(&arena);
}

/* What is past retention is left out; that it was the newest is told. A damaged filter is refused all the same. */
static void test_what_is_past_retention_goes(void **state)
{
    static const struct store_play plays[] = {{7, 24297}, {7, 24298}, {8, 24298}};
    struct arena arena = {0};
    struct buf bytes = {0}, blob = {0};
    const uint64_t hash = 7;
    struct filter f = {0};
    (void)state;
    assert_int_equal(plays_add(&f, &(struct plays){&hash, 1, 8, NULL, NULL}, &(struct plays_limits){4, 8}, &arena), 0);
    assert_int_equal(filter_encode(&f, &blob), 0);
    const struct snapshot_month months[] = {{24296, buf_slice(&blob)}, {24298, buf_slice(&blob)}};
    const struct snapshot_month bad[] = {{24296, slice_str("bad")}};
    for (int first_kept = 24297; first_kept <= 24299; first_kept++) {
        struct user_snapshot p;
        struct filter *filters;
        struct err err = {0};
        int newest = 0;
        pack(&(struct user_snapshot){.last_month = 24298,
                                     .months = months,
                                     .n_months = 2,
                                     .plays = plays,
                                     .n_plays = 3,
                                     .deliveries = slice_str("some")},
             &bytes);
        assert_int_equal(parcel_open(buf_slice(&bytes), SEED, &arena, &p, &err), 0);
        assert_int_equal(parcel_admit(&p, INT64_MIN, NOW, first_kept, &arena, &newest, &err), 0);
        assert_int_equal(newest, 24298);
        assert_int_equal(p.n_months, first_kept <= 24298);
        assert_int_equal(p.n_plays, first_kept == 24297 ? 3 : first_kept == 24298 ? 2 : 0);
        assert_int_equal(p.deliveries.len > 0, first_kept <= 24298);
        assert_int_equal(parcel_months(&p, &arena, &filters, &err), 0);
        for (size_t i = 0; i < p.n_months; i++) {
            assert_true(filter_has(&filters[i], 7) && p.months[i].month == 24298);
        }
        p = (struct user_snapshot){.user = slice_str("anna"), .months = bad, .n_months = 1};
        assert_int_equal(parcel_admit(&p, INT64_MIN, NOW, first_kept, &arena, &newest, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.text, "anna"));
    }
    buf_free(&blob);
    buf_free(&bytes);
    arena_free(&arena);
}

/* What is newest is so without what a forget here has ended. */
static void test_what_was_forgotten_does_not_count(void **state)
{
    static const struct store_play plays[] = {{7, 24298}, {7, 24299}};
    struct user_snapshot p = {.last_month = 24299, .plays = plays, .n_plays = 2};
    struct arena arena = {0};
    struct err err = {0};
    int newest = 0;
    (void)state;
    assert_int_equal(parcel_admit(&p, month_start_ms(24298), NOW, INT_MIN, &arena, &newest, &err), 0);
    assert_int_equal(newest, 24299);
    assert_int_equal(p.n_plays, 1);
    assert_int_equal(parcel_admit(&p, month_start_ms(24299), NOW, INT_MIN, &arena, &newest, &err), 0);
    assert_int_equal(newest, 0);
    assert_int_equal(p.n_plays, 0);
}

static void test_marks_are_in_order(void **state)
{
    static const int months[] = {5, 0, 9, 5, 7};
    static const int expected[] = {0, 5, 7, 9};
    int damaged[USER_SNAPSHOT_LISTS_MAX];
    char text[STORE_ERROR_TEXT];
    struct user_snapshot p = {.user = slice_str("anna"), .damaged = damaged};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(parcel_mark(&p, damaged, months[i], "bits", text), i != 3);
        assert_string_equal(text, i == 0   ? "user \"anna\": 0000-06: bits"
                                  : i == 1 ? "user \"anna\": deliveries: bits"
                                           : text);
    }
    assert_int_equal(p.n_damaged, 4);
    assert_memory_equal(damaged, expected, sizeof expected);
    for (int month = 10; parcel_mark(&p, damaged, month, "bits", text); month++) {
    }
    assert_int_equal(p.n_damaged, USER_SNAPSHOT_LISTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plays_are_united),
        cmocka_unit_test(test_limits_are_kept),
        cmocka_unit_test(test_runs_are_of_one_month),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_sides_hide_what_either_hid),
        cmocka_unit_test(test_a_damaged_filter_may_show_all),
        cmocka_unit_test(test_what_lies_ahead_is_refused),
        cmocka_unit_test(test_what_is_past_retention_goes),
        cmocka_unit_test(test_what_was_forgotten_does_not_count),
        cmocka_unit_test(test_marks_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
