/* Filters of the same items agree, in whatever batches they were filled, and whether they are sealed or not; one item
 * more is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "filter/compare.h"
#include "tests/lib/random.h"

enum { ITEMS_MOST = 3000, COARSE_MAX = 200, LIVE_MAX = 1000, ROUNDS = 200 };

static uint64_t hashes[ITEMS_MOST];

static void add(struct filter *f, const uint64_t *batch, uint32_t n, struct arena *arena)
{
    uint32_t *positions = malloc((n + 1) * sizeof *positions);
    uint8_t *tails = malloc(n + 1);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = filter_position(batch[i], FILTER_LIVE_M);
    }
    uint32_t left = filter_sort(positions, n, NULL);
    for (int again = 0; again <= 1; again++) {
        for (uint32_t i = 0; i < n; i++) {
            filter_set_tail(positions, tails, left, batch[i], again != 0);
        }
    }
    assert_int_equal(filter_add_tails(f, positions, tails, left, COARSE_MAX, LIVE_MAX, arena), 0);
    free(positions);
    free(tails);
}

/* In some batches, and sealed now and then: a live part is cut. */
static void fill(struct filter *f, uint32_t n, bool sealed, uint64_t *random, struct arena *arena)
{
    *f = (struct filter){.n_parts = 0};
    for (uint32_t at = 0; at < n;) {
        uint32_t batch = 1 + (uint32_t)random_below(random, n);
        batch = batch > n - at ? n - at : batch;
        add(f, hashes + at, batch, arena);
        at += batch;
    }
    if (sealed) {
        assert_int_equal(filter_drop_tails(f, arena), 0);
        for (unsigned k = 0; k < f->n_parts; k++) {
            assert_int_equal(filter_cut(&f->parts[k], (uint64_t)f->parts[k].n * 1000), 0);
        }
    }
}

static void the_same_items_agree(void **state)
{
    (void)state;
    uint64_t random = 1;
    uint32_t missed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct arena arena = {0};
        struct filter a, b, more;
        uint32_t n = 1 + (uint32_t)random_below(&random, ITEMS_MOST - 2);
        for (uint32_t i = 0; i < ITEMS_MOST; i++) {
            hashes[i] = random_next(&random);
        }
        fill(&a, n, round % 3 == 1, &random, &arena);
        fill(&b, n, round % 3 != 0, &random, &arena);
        assert_int_equal(filter_unmatched(&a, &b, 1, NULL, 0), 0);
        assert_int_equal(filter_unmatched(&b, &a, 1, NULL, 0), 0);
        fill(&more, n + 1, false, &random, &arena);
        uint64_t last = hashes[n];
        missed +=
            filter_unmatched(&more, &a, 1, NULL, 0) == 0; /* hidden by chance: about n in 1,000 n of a sealed one */
        assert_int_equal(filter_unmatched(&more, &a, 1, &last, 1), 0);
        assert_int_equal(filter_unmatched(&a, &more, 1, NULL, 0), 0);
        arena_free(&arena);
    }
    assert_true(missed <= 3);
}

static void nothing_beside_something(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct filter none = {.n_parts = 0}, one;
    uint64_t random = 9;
    hashes[0] = random_next(&random);
    fill(&one, 1, false, &random, &arena);
    assert_int_equal(filter_unmatched(&none, &one, 1, NULL, 0), 0);
    assert_int_equal(filter_unmatched(&one, &none, 1, NULL, 0), 1);
    assert_int_equal(filter_unmatched(&none, &none, 1, NULL, 0), 0);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_items_agree),
        cmocka_unit_test(nothing_beside_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
