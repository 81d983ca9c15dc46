/* The laws of a user's plays: in whatever order, in however many steps and however often they come together, the same
 * items are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plays_are_united),
        cmocka_unit_test(test_limits_are_kept),
        cmocka_unit_test(test_runs_are_of_one_month),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
