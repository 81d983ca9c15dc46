/* Filters in memory: sort, union, add, cut, look up; compared with plain arrays sorted by qsort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "filter/filter.h"
#include "tests/lib/grown.h"
#include "tests/lib/random.h"

static const uint32_t sizes[] = {0, 1, 2, 3, 7, 10, 31, 32, 33, 100, 255, 256, 257, 1000, 10000, 100000};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static void *must_alloc(size_t size)
{
    void *p = malloc(size + 1);
    assert_non_null(p);
    return p;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t oracle_sort(uint32_t *v, uint32_t n)
{
    uint32_t kept = 0;
    qsort(v, n, sizeof *v, compare);
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || v[kept - 1] != v[i]) {
            v[kept++] = v[i];
        }
    }
    return kept;
}

enum shape { RANDOM, FEW_VALUES, ASCENDING, DESCENDING, EQUAL, ENDS, LOWEST_BIT, DENSE, SHAPES };

static void fill(uint32_t *v, uint32_t n, enum shape shape, uint64_t *seed)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = (uint32_t)random_next(seed);
        switch (shape) {
        case RANDOM:
            v[i] = r;
            break;
        case FEW_VALUES:
            v[i] = r % 17 * 0x0f0f0f0fU;
            break;
        case ASCENDING:
            v[i] = i * 3;
            break;
        case DESCENDING:
            v[i] = UINT32_MAX - i * 3;
            break;
        case EQUAL:
            v[i] = 0x80000000U;
            break;
        case ENDS:
            v[i] = r & 1 ? UINT32_MAX : 0;
            break;
        case LOWEST_BIT:
            v[i] = r & 1;
            break;
        default:
            v[i] = 0x7ffffff0U + r % (n + 1);
            break;
        }
    }
}

static void sort_agrees_with_qsort(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        uint32_t n = sizes[s];
        uint32_t *given = must_alloc(n * sizeof *given), *expected = must_alloc(n * sizeof *given);
        uint32_t *sorted = must_alloc(n * sizeof *given), *scratch = must_alloc(n * sizeof *given);
        for (enum shape shape = 0; shape < SHAPES; shape++) {
            fill(given, n, shape, &seed);
            memcpy(expected, given, n * sizeof *given);
            uint32_t n_expected = oracle_sort(expected, n);
            for (int in_place = 0; in_place < 2; in_place++) {
                memcpy(sorted, given, n * sizeof *given);
                assert_int_equal(filter_sort(sorted, n, in_place ? NULL : scratch), n_expected);
                assert_memory_equal(sorted, expected, n_expected * sizeof *given);
            }
        }
        free(given);
        free(expected);
        free(sorted);
        free(scratch);
    }
}

static void union_agrees_with_qsort(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        for (size_t t = 0; t < COUNT(sizes); t++) {
            enum shape shape = (enum shape)random_below(&seed, SHAPES);
            uint32_t na = sizes[s], nb = sizes[t];
            uint32_t *a = must_alloc(na * sizeof *a), *b = must_alloc(nb * sizeof *b);
            uint32_t *both = must_alloc((na + nb) * sizeof *a), *out = must_alloc((na + nb) * sizeof *a);
            fill(a, na, shape, &seed);
            fill(b, nb, random_below(&seed, 2) ? shape : RANDOM, &seed);
            na = oracle_sort(a, na);
            nb = oracle_sort(b, nb);
            memcpy(both, a, na * sizeof *a);
            memcpy(both + na, b, nb * sizeof *a);
            uint32_t n_both = oracle_sort(both, na + nb);
            assert_int_equal(filter_union(a, na, b, nb, out), n_both);
            assert_memory_equal(out, both, n_both * sizeof *a);
            free(a);
            free(b);
            free(both);
            free(out);
        }
    }
}

/* A filter's part of the hashes, as a caller makes it. */
static void add_hashes_up_to(struct filter *f, const uint64_t *hashes, uint32_t n, uint32_t coarse_max,
                             struct arena *arena)
{
    uint32_t *positions = must_alloc(n * sizeof *positions);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = filter_position(hashes[i], FILTER_LIVE_M);
    }
    uint32_t distinct = filter_sort(positions, n, NULL);
    assert_int_equal(filter_add(f, positions, distinct, coarse_max, arena), 0);
    free(positions);
}

static void add_hashes(struct filter *f, const uint64_t *hashes, uint32_t n, struct arena *arena)
{
    add_hashes_up_to(f, hashes, n, 0, arena);
}

static uint64_t *random_hashes(uint32_t n, uint64_t *seed)
{
    uint64_t *hashes = must_alloc(n * sizeof *hashes);
    for (uint32_t i = 0; i < n; i++) {
        hashes[i] = random_next(seed);
    }
    return hashes;
}

static void assert_ascending(const struct filter_part *part)
{
    for (uint32_t i = 0; i < part->n; i++) {
        assert_true(part->positions[i] < part->m);
        assert_true(i == 0 || part->positions[i - 1] < part->positions[i]);
    }
}

static void add_merges_into_the_live_part(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        uint32_t n = sizes[s], half = n / 2;
        struct arena arena = {0};
        struct filter f = {0};
        uint64_t *hashes = random_hashes(n, &seed);
        add_hashes(&f, hashes, half, &arena);
        add_hashes(&f, hashes + half / 2, n - half / 2, &arena); /* overlaps the first */
        assert_int_equal(f.n_parts, n > 0);
        assert_false(filter_sealed(&f));
        if (n > 0) {
            assert_true(f.parts[0].m == FILTER_LIVE_M);
            assert_ascending(&f.parts[0]);
            assert_in_range(filter_items(&f), n - n / 1000, n);
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_true(filter_has(&f, hashes[i]));
        }
        free(hashes);
        arena_free(&arena);
    }
}

static void add_keeps_equal_hashes_once(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct filter f = {0};
    const uint64_t hashes[] = {UINT64_MAX, 0, UINT64_MAX, 7, 0, UINT64_C(1) << 32};
    add_hashes(&f, hashes, COUNT(hashes), &arena);
    add_hashes(&f, hashes, COUNT(hashes), &arena);
    assert_int_equal(filter_items(&f), 3); /* 0 and 7 have the same upper half */
    assert_int_equal(f.parts[0].positions[0], 0);
    assert_int_equal(f.parts[0].positions[1], 1);
    assert_int_equal(f.parts[0].positions[2], UINT32_MAX);
    arena_free(&arena);
}

static void add_leaves_sealed_parts_alone(void **state)
{
    (void)state;
    uint64_t seed = 4;
    struct arena arena = {0};
    struct filter f = {0};
    uint64_t *hashes = random_hashes(FILTER_PARTS_MAX * 100, &seed);
    for (uint32_t i = 0; i < FILTER_PARTS_MAX; i++) {
        add_hashes(&f, hashes + i * 100, 100, &arena);
        assert_int_equal(f.n_parts, i + 1);
        assert_int_equal(filter_cut(&f.parts[i], 1000003 + i), 0);
        assert_true(filter_sealed(&f));
    }
    for (uint32_t i = 0; i < FILTER_PARTS_MAX * 100; i++) {
        assert_true(filter_has(&f, hashes[i]));
    }

    struct filter before = f;
    uint32_t more[] = {1, 2, 3};
    assert_int_equal(filter_add(&f, more, COUNT(more), 0, &arena), ERR_FULL);
    assert_memory_equal(&f, &before, sizeof f);
    assert_int_equal(filter_add(&f, more, 0, 0, &arena), 0);
    assert_memory_equal(&f, &before, sizeof f);
    free(hashes);
    arena_free(&arena);
}

static uint32_t coarse_items(const struct filter *f)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < f->n_parts; i++) {
        n += f->parts[i].coarse ? f->parts[i].n : 0;
    }
    return n;
}

static void copy_filter(struct filter *to, const struct filter *from, struct arena *arena)
{
    *to = *from;
    for (unsigned i = 0; i < from->n_parts; i++) {
        const struct filter_part *part = &from->parts[i];
        to->parts[i].positions = arena_copy(arena, part->positions, part->n * sizeof(uint32_t));
        to->parts[i].tails = part->fine ? arena_copy(arena, part->tails, part->n) : NULL;
    }
}

static void assert_has_all(const struct filter *f, const uint64_t *hashes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_true(filter_has(f, hashes[i]));
    }
}

/* Flush by flush: into the coarse part while all of a flush fits there, then beside it; what comes again is in one of
 * them already. */
static void add_fills_the_coarse_part_first(void **state)
{
    (void)state;
    enum { FLUSHES = 40, EACH = 100, MOST = 1050 };
    uint64_t seed = 8;
    struct arena arena = {0};
    struct filter f = {0};
    uint64_t *hashes = random_hashes(FLUSHES * EACH, &seed);
    for (uint32_t i = 0; i < FLUSHES; i++) {
        add_hashes_up_to(&f, hashes + (size_t)i * EACH, EACH, MOST, &arena);
        assert_int_equal(f.n_parts, i < 10 ? 1 : 2);
        assert_false(filter_sealed(&f));
        assert_has_all(&f, hashes, (i + 1) * EACH);
    }
    assert_true(f.parts[0].coarse && !f.parts[1].coarse);
    assert_true(f.parts[0].m == FILTER_LIVE_M >> FILTER_GRAIN && f.parts[1].m == FILTER_LIVE_M);
    assert_ascending(&f.parts[0]);
    assert_ascending(&f.parts[1]);
    assert_in_range(f.parts[0].n, 10 * EACH - 2, 10 * EACH);
    assert_in_range(f.parts[1].n, 30 * EACH - 2, 30 * EACH);
    uint64_t before = filter_items(&f);
    add_hashes_up_to(&f, hashes, FLUSHES * EACH, MOST, &arena);
    add_hashes_up_to(&f, hashes, EACH, MOST, &arena);
    add_hashes_up_to(&f, hashes + (FLUSHES - 1) * EACH, EACH, MOST, &arena);
    assert_int_equal(filter_items(&f), before);
    /* Room that is left is used by what fits. */
    uint64_t *few = random_hashes(20, &seed);
    add_hashes_up_to(&f, few, 20, MOST, &arena);
    assert_in_range(coarse_items(&f), 10 * EACH + 10, 10 * EACH + 20);
    assert_has_all(&f, few, 20);
    free(few);
    free(hashes);
    arena_free(&arena);
}

static void add_with_tails(struct filter *f, const uint64_t *hashes, uint32_t n, uint32_t coarse_max, uint32_t live_max,
                           struct arena *arena)
{
    assert_int_equal(grown_add(f, hashes, n, 1, coarse_max, live_max, arena), 0);
}

/* As above, and what would be too much for the live part goes into a fine one, which hides a 254th. Sealed, it is like
 * any other. */
static void add_goes_on_in_a_fine_part(void **state)
{
    (void)state;
    enum { FLUSHES = 40, EACH = 100, COARSE = 1050, LIVE = 1950 };
    uint64_t seed = 18;
    uint64_t *hashes = random_hashes(FLUSHES * EACH, &seed);
    for (int sealed = 0; sealed <= 1; sealed++) { /* 1: late plays, which have no coarse part */
        struct arena arena = {0};
        struct filter f = {0};
        if (sealed) {
            add_hashes_up_to(&f, hashes, EACH, EACH, &arena);
            assert_int_equal(filter_cut(&f.parts[0], 70000), 0);
        }
        for (uint32_t i = 0; i < FLUSHES; i++) {
            add_with_tails(&f, hashes + (size_t)i * EACH, EACH, COARSE, LIVE, &arena);
            assert_has_all(&f, hashes, (i + 1) * EACH);
        }
        assert_int_equal(f.n_parts, 3);
        assert_true(f.parts[0].coarse && !f.parts[1].fine && f.parts[2].fine && f.parts[2].m == FILTER_LIVE_M);
        assert_in_range(f.parts[1].n, LIVE - EACH - 10, LIVE);
        assert_ascending(&f.parts[2]);
        struct filter fine = {.n_parts = 1, .parts = {f.parts[2]}};
        assert_true(filter_error(&fine) > f.parts[2].n / (double)FILTER_LIVE_M / 255);
        assert_true(filter_error(&fine) < f.parts[2].n / (double)FILTER_LIVE_M / 253);
        uint64_t items = filter_items(&f);
        for (uint32_t i = 0; i < FLUSHES; i++) {
            add_with_tails(&f, hashes + (size_t)i * EACH, EACH, COARSE, LIVE, &arena);
        }
        add_with_tails(&f, hashes, FLUSHES * EACH, COARSE, LIVE, &arena);
        assert_int_equal(filter_items(&f), items);
        uint32_t beyond = f.parts[2].n;
        struct filter again;
        copy_filter(&again, &f, &arena);
        assert_int_equal(filter_drop_tails(&f, &arena), 0);
        assert_int_equal(f.n_parts, 2);
        assert_int_equal(filter_items(&f), items);
        assert_has_all(&f, hashes, FLUSHES * EACH);
        assert_int_equal(filter_cut(&again.parts[2], 3000 * (uint64_t)beyond), 0);
        assert_true(!again.parts[2].fine && again.parts[2].tails == NULL);
        assert_has_all(&again, hashes, FLUSHES * EACH);
        assert_int_equal(filter_unite(&f, &arena), sealed ? ERR_INVALID : 0);
        assert_has_all(&f, hashes, FLUSHES * EACH);
        arena_free(&arena);
    }
    free(hashes);
}

/* In one flush, or one after the other: the tail then fits any. */
static void two_items_of_one_position_are_both_found(void **state)
{
    (void)state;
    const uint64_t hashes[] = {UINT64_C(9) << 32 | 7 << 24, UINT64_C(9) << 32 | 8 << 24, UINT64_C(10) << 32 | 5 << 24};
    const uint64_t third = UINT64_C(9) << 32 | 9 << 24, zero = UINT64_C(11) << 32, one = zero | 1 << 24;
    for (int flushes = 1; flushes <= 2; flushes++) {
        struct arena arena = {0};
        struct filter f = {0};
        add_with_tails(&f, hashes, flushes == 1 ? 3 : 1, 0, 0, &arena);
        if (flushes == 2) {
            assert_true(filter_has(&f, hashes[0]) && !filter_has(&f, hashes[1]) && !filter_has(&f, third));
            assert_int_equal(filter_items(&f), 1);
            add_with_tails(&f, hashes + 1, 2, 0, 0, &arena);
        }
        assert_has_all(&f, hashes, 3);
        assert_int_equal(f.n_parts, 1);
        assert_int_equal(f.parts[0].n, 2);
        assert_int_equal(f.parts[0].n_open, 1);
        assert_int_equal(filter_items(&f), 3);
        assert_true(filter_has(&f, third) && !filter_has(&f, hashes[2] ^ 1 << 25));
        assert_true(filter_error(&f) > 1 / (double)FILTER_LIVE_M);
        add_with_tails(&f, &third, 1, 0, 0, &arena);
        assert_int_equal(filter_items(&f), 3);
        add_with_tails(&f, &zero, 1, 0, 0, &arena);
        assert_true(filter_has(&f, zero) && filter_has(&f, one) && !filter_has(&f, zero | 2 << 24));
        assert_int_equal(f.parts[0].n_open, 1); /* a tail of bits that are zero is no open one */
        arena_free(&arena);
    }
}

static void a_large_first_flush_is_not_coarse(void **state)
{
    (void)state;
    uint64_t seed = 9;
    struct arena arena = {0};
    struct filter f = {0};
    uint64_t *hashes = random_hashes(500, &seed);
    add_hashes_up_to(&f, hashes, 400, 399, &arena);
    add_hashes_up_to(&f, hashes + 400, 100, 399, &arena);
    assert_int_equal(f.n_parts, 1);
    assert_int_equal(coarse_items(&f), 0);
    assert_int_equal(filter_items(&f), 500);
    free(hashes);
    arena_free(&arena);
}

/* Neighbours that a coarse part takes for one. */
static void coarse_positions_are_kept_once(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct filter f = {0};
    uint32_t positions[] = {0, 31, 32, 64, UINT32_MAX - 32, UINT32_MAX - 31, UINT32_MAX};
    assert_int_equal(filter_add(&f, positions, COUNT(positions), 100, &arena), 0);
    static const uint32_t expected[] = {0, 1, 2, (1U << 27) - 2, (1U << 27) - 1};
    assert_int_equal(f.parts[0].n, COUNT(expected));
    assert_memory_equal(f.parts[0].positions, expected, sizeof expected);
    assert_true(filter_has(&f, UINT64_C(5) << 32));
    assert_false(filter_has(&f, UINT64_C(96) << 32));
    arena_free(&arena);
}

static void late_plays_of_a_coarse_month_go_beside_it(void **state)
{
    (void)state;
    uint64_t seed = 10;
    struct arena arena = {0};
    struct filter f = {0};
    uint64_t *hashes = random_hashes(300, &seed);
    add_hashes_up_to(&f, hashes, 200, 1000, &arena);
    assert_int_equal(filter_cut(&f.parts[0], 600000), 0);
    add_hashes_up_to(&f, hashes + 100, 200, 1000, &arena); /* half of them are there already */
    assert_int_equal(f.n_parts, 2);
    assert_false(f.parts[1].coarse);
    assert_in_range(f.parts[1].n, 95, 100);
    assert_has_all(&f, hashes, 300);
    free(hashes);
    arena_free(&arena);
}

static void unite_makes_one_coarse_part(void **state)
{
    (void)state;
    uint64_t seed = 11;
    struct arena arena = {0};
    uint64_t *hashes = random_hashes(3000, &seed);
    static const uint64_t ranges[] = {1, 1000, 9278351, (1U << 27) - 1};
    for (size_t r = 0; r < COUNT(ranges); r++) {
        struct filter f = {0};
        assert_int_equal(filter_unite(&f, &arena), ERR_INVALID);
        add_hashes_up_to(&f, hashes, 1000, 1500, &arena);
        add_hashes_up_to(&f, hashes + 1000, 2000, 1500, &arena);
        assert_int_equal(f.n_parts, 2);
        assert_int_equal(filter_unite(&f, &arena), 0);
        assert_int_equal(f.n_parts, 1);
        assert_true(f.parts[0].coarse && filter_part_live(&f.parts[0]));
        assert_ascending(&f.parts[0]);
        assert_in_range(f.parts[0].n, 2990, 3000);
        assert_has_all(&f, hashes, 3000);
        assert_int_equal(filter_cut(&f.parts[0], 1 << 27), ERR_INVALID);
        assert_int_equal(filter_cut(&f.parts[0], ranges[r]), 0);
        assert_ascending(&f.parts[0]);
        assert_true(filter_sealed(&f));
        assert_has_all(&f, hashes, 3000);
        assert_int_equal(filter_unite(&f, &arena), ERR_INVALID);
        assert_int_equal(filter_cut(&f.parts[0], 1), ERR_INVALID);
    }
    struct filter fine = {0};
    add_hashes(&fine, hashes, 10, &arena);
    assert_int_equal(filter_unite(&fine, &arena), ERR_INVALID);
    free(hashes);
    arena_free(&arena);
}

static void add_of_nothing_makes_no_part(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct filter f = {0};
    assert_int_equal(filter_add(&f, NULL, 0, 9, &arena), 0);
    assert_int_equal(f.n_parts, 0);
    assert_false(filter_has(&f, 0));
    assert_true(filter_error(&f) == 0);
    assert_int_equal(filter_items(&f), 0);
    arena_free(&arena);
}

static void cut_loses_no_item(void **state)
{
    (void)state;
    static const uint64_t ranges[] = {1,        2,          3,          255,        65536,      999983,    3092783,
                                      40000000, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff};
    uint64_t seed = 5;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        uint64_t *hashes = random_hashes(sizes[s], &seed);
        if (sizes[s] >= 3) {
            hashes[0] = 0;
            hashes[1] = UINT64_MAX;
            hashes[2] = UINT64_C(0x8000000000000000);
        }
        for (size_t r = 0; r < COUNT(ranges) && sizes[s] > 0; r++) {
            struct arena arena = {0};
            struct filter f = {0};
            add_hashes(&f, hashes, sizes[s], &arena);
            assert_int_equal(filter_cut(&f.parts[0], ranges[r]), 0);
            assert_true(f.parts[0].m == ranges[r]);
            assert_ascending(&f.parts[0]);
            for (uint32_t i = 0; i < sizes[s]; i++) {
                assert_true(filter_has(&f, hashes[i]));
            }
            arena_free(&arena);
        }
        free(hashes);
    }
}

static void cut_is_refused_twice_and_outside_its_range(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct filter f = {0};
    uint32_t positions[] = {5, 1U << 30, UINT32_MAX};
    assert_int_equal(filter_add(&f, positions, COUNT(positions), 0, &arena), 0);
    static const uint64_t wrong[] = {0, FILTER_LIVE_M, FILTER_LIVE_M + 1, UINT64_MAX};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(filter_cut(&f.parts[0], wrong[i]), ERR_INVALID);
        assert_int_equal(f.parts[0].n, COUNT(positions));
        assert_memory_equal(f.parts[0].positions, positions, sizeof positions);
    }
    assert_int_equal(filter_cut(&f.parts[0], 1 << 20), 0);
    struct filter before = f;
    assert_int_equal(filter_cut(&f.parts[0], 1 << 10), ERR_INVALID);
    assert_int_equal(filter_cut(&f.parts[0], 1 << 20), ERR_INVALID);
    assert_memory_equal(&f, &before, sizeof f);
    arena_free(&arena);
}

/* --- joining --- */

enum { KINDS = 8 };

/* A filter of the hashes as it may be found: 0 coarse, 1 live, 2 coarse and live, 3 and 4 cut (to two ranges), 5 cut
 * and coarse, 6 cut with a live part beside it, 7 coarse, live and fine. */
static void make_kind(struct filter *f, int kind, const uint64_t *hashes, uint32_t n, struct arena *arena)
{
    uint32_t first = kind == 2 || kind == 6 ? n / 2 : n;
    uint32_t *positions = arena_alloc(arena, n * sizeof *positions + 1);
    f->n_parts = 0;
    if (kind == 7) {
        for (uint32_t third = 0; third < 3; third++) {
            uint32_t from = n * third / 3, to = n * (third + 1) / 3;
            add_with_tails(f, hashes + from, to - from, third == 0 ? n : 0, third == 2 ? 0 : n, arena);
        }
        return;
    }
    for (uint32_t from = 0, to = first; from < n; from = to, to = n) {
        for (uint32_t i = from; i < to; i++) {
            positions[i - from] = filter_position(hashes[i], FILTER_LIVE_M);
        }
        uint32_t distinct = filter_sort(positions, to - from, NULL);
        bool coarse = kind == 0 || kind == 5 || (kind == 2 && from == 0);
        assert_int_equal(filter_add(f, positions, distinct, coarse ? n : 0, arena), 0);
        if (kind >= 3 && from == 0) {
            assert_int_equal(filter_cut(&f->parts[0], kind == 4 ? 700000 : 500000), 0);
        }
    }
}

/* Of every kind with every kind: both are in it, it costs no more than both, and once more changes nothing. */
static void imported_filters_have_what_both_had(void **state)
{
    enum { N = 600 };
    uint64_t seed = 11;
    uint64_t hashes[N];
    (void)state;
    for (int pair = 0; pair < KINDS * KINDS * 3; pair++) {
        struct arena arena = {0};
        struct filter ours;
        struct filter theirs;
        struct filter again;
        struct buf once = {0};
        struct buf twice = {0};
        uint32_t shared = pair % 3 == 0 ? 0 : pair % 3 == 1 ? 100 : N / 2;
        uint32_t coarse_max = (uint32_t)random_below(&seed, 2 * N);
        for (size_t i = 0; i < N; i++) {
            hashes[i] = random_next(&seed);
        }
        make_kind(&ours, pair / 3 % KINDS, hashes, N / 2, &arena);
        make_kind(&theirs, pair / 3 / KINDS, hashes + N / 2 - shared, N / 2, &arena);
        double error = filter_error(&ours) + filter_error(&theirs);
        copy_filter(&again, &theirs, &arena);
        assert_int_equal(filter_join(&ours, &theirs, coarse_max, &arena), 0);
        for (size_t i = 0; i < N - shared; i++) {
            assert_true(filter_has(&ours, hashes[i]));
        }
        /* What was fine may have become coarse. */
        assert_true(filter_error(&ours) <= error + N / (double)(FILTER_LIVE_M >> FILTER_GRAIN));
        assert_int_equal(filter_encode(&ours, &once), 0);
        assert_int_equal(filter_join(&ours, &again, coarse_max, &arena), 0);
        assert_int_equal(filter_encode(&ours, &twice), 0);
        assert_int_equal(once.len, twice.len);
        assert_memory_equal(once.data, twice.data, once.len);
        buf_free(&once);
        buf_free(&twice);
        arena_free(&arena);
    }
}

static void a_filter_joins_an_empty_one_as_it_is(void **state)
{
    (void)state;
    uint64_t seed = 12;
    uint64_t hashes[40];
    struct arena arena = {0};
    for (size_t i = 0; i < COUNT(hashes); i++) {
        hashes[i] = random_next(&seed);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        struct filter ours = {0};
        struct filter theirs;
        make_kind(&theirs, kind, hashes, COUNT(hashes), &arena);
        assert_int_equal(filter_join(&ours, &theirs, 1000, &arena), 0);
        assert_int_equal(ours.n_parts, theirs.n_parts);
        for (unsigned i = 0; i < ours.n_parts; i++) {
            assert_true(ours.parts[i].m == theirs.parts[i].m && ours.parts[i].n == theirs.parts[i].n &&
                        ours.parts[i].coarse == theirs.parts[i].coarse && ours.parts[i].fine == theirs.parts[i].fine);
        }
    }
    arena_free(&arena);
}

/* Each cut to a range of its own. */
static void too_many_ranges_do_not_join(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct filter ours = {0};
    for (unsigned i = 0; i <= FILTER_PARTS_MAX; i++) {
        struct filter theirs = {0};
        uint32_t position = 77 + i;
        assert_int_equal(filter_add(&theirs, &position, 1, 0, &arena), 0);
        assert_int_equal(filter_cut(&theirs.parts[0], 1000 + i), 0);
        assert_int_equal(filter_join(&ours, &theirs, 1000, &arena), i < FILTER_PARTS_MAX ? 0 : ERR_FULL);
    }
    arena_free(&arena);
}

static void parts_of_different_ranges_are_looked_up_each(void **state)
{
    (void)state;
    uint64_t seed = 6;
    struct arena arena = {0};
    struct filter f = {0};
    static const uint64_t ranges[] = {7919, 0xffffffff, 65536, 1};
    uint64_t *hashes = random_hashes(4 * 20 + 50, &seed);
    for (uint32_t i = 0; i < 3; i++) {
        add_hashes(&f, hashes + i * 20, 20, &arena);
        assert_int_equal(filter_cut(&f.parts[i], ranges[i]), 0);
    }
    add_hashes(&f, hashes + 80, 50, &arena);
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t hash = i < 130 ? hashes[i] : random_next(&seed);
        bool expected = false;
        for (unsigned p = 0; p < f.n_parts; p++) {
            for (uint32_t j = 0; j < f.parts[p].n; j++) {
                expected |= f.parts[p].positions[j] == ((hash >> 32) * f.parts[p].m) >> 32;
            }
        }
        assert_int_equal(filter_has(&f, hash), expected);
    }
    assert_int_equal(filter_items(&f), 110);
    double error = 20 / 7919.0 + 20 / 4294967295.0 + 20 / 65536.0 + 50 / 4294967296.0;
    assert_true(filter_error(&f) > error * 0.999999 && filter_error(&f) < error * 1.000001);

    /* A range of one position hides everything, and no error is more than certain. */
    struct filter all = f;
    uint32_t one[] = {77};
    all.n_parts = 3;
    assert_int_equal(filter_add(&all, one, 1, 0, &arena), 0);
    assert_int_equal(filter_cut(&all.parts[3], ranges[3]), 0);
    assert_true(filter_has(&all, random_next(&seed)));
    assert_true(filter_error(&all) == 1);
    free(hashes);
    arena_free(&arena);
}

static void a_look_up_stays_inside_the_part(void **state)
{
    (void)state;
    uint32_t positions[] = {3, 5, 8};
    const struct filter f = {.n_parts = 1, .parts = {{.positions = positions, .n = 2, .m = FILTER_LIVE_M}}};
    assert_true(filter_has(&f, UINT64_C(5) << 32));
    assert_false(filter_has(&f, UINT64_C(4) << 32));
    assert_false(filter_has(&f, UINT64_C(8) << 32));
}

/* Ten million items that were never played: as many are hidden as n/m says, within six standard deviations. */
static void the_error_is_n_over_m(void **state)
{
    (void)state;
    enum { PLAYED = 2500, ASKED = 10 * 1000 * 1000 };
    uint64_t seed = 7;
    struct arena arena = {0};
    struct filter f = {0};
    uint64_t *hashes = random_hashes(PLAYED, &seed);
    add_hashes(&f, hashes, PLAYED, &arena);
    assert_int_equal(filter_cut(&f.parts[0], (uint64_t)(PLAYED / 2.5e-4)), 0);
    int hidden = 0;
    for (int i = 0; i < ASKED; i++) {
        hidden += filter_has(&f, random_next(&seed));
    }
    assert_true(filter_error(&f) <= 2.5e-4);
    assert_in_range(hidden, 2500 - 6 * 50, 2500 + 6 * 50);
    free(hashes);
    arena_free(&arena);
}

/* Against the plain count: how many of the 2^27 values fall to each position, squared. */
static void test_chance_of_a_cut_coarse_position(void **state)
{
    (void)state;
    static const uint64_t ranges[] = {93700000, 44000000, 1000};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        uint64_t m = ranges[i], position = 0, values = 0;
        double squares = 0;
        for (uint64_t v = 0; v <= FILTER_LIVE_M >> FILTER_GRAIN; v++) {
            uint64_t at = (v * m) >> (32 - FILTER_GRAIN);
            if (at != position) {
                squares += (double)(values * values);
                position = at;
                values = 0;
            }
            values++;
        }
        double want = squares / 0x1p54;
        assert_true(fabs(filter_chance(m, true) - want) <= (m > 1000 ? 1e-12 : 1e-6) * want);
        assert_true(filter_chance(m, true) >= 1 / (double)m * (1 - 1e-12));
    }
    assert_true(filter_chance(93700000, true) > 1.11 / 93700000);
    assert_true(fabs(filter_chance(93700000, false) * 93700000 - 1) < 1e-3);
    /* And of 32 bits into a range near 2^32. */
    assert_true(filter_chance(FILTER_LIVE_M, false) == 1 / (double)FILTER_LIVE_M);
    assert_true(filter_chance(UINT64_C(3000000000), false) > 1.11 / 3000000000);
    assert_true(filter_chance(UINT64_C(1) << 31, false) == 1 / (double)(UINT64_C(1) << 31));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sort_agrees_with_qsort),
        cmocka_unit_test(union_agrees_with_qsort),
        cmocka_unit_test(add_merges_into_the_live_part),
        cmocka_unit_test(add_keeps_equal_hashes_once),
        cmocka_unit_test(add_leaves_sealed_parts_alone),
        cmocka_unit_test(add_fills_the_coarse_part_first),
        cmocka_unit_test(add_goes_on_in_a_fine_part),
        cmocka_unit_test(two_items_of_one_position_are_both_found),
        cmocka_unit_test(a_large_first_flush_is_not_coarse),
        cmocka_unit_test(coarse_positions_are_kept_once),
        cmocka_unit_test(late_plays_of_a_coarse_month_go_beside_it),
        cmocka_unit_test(unite_makes_one_coarse_part),
        cmocka_unit_test(add_of_nothing_makes_no_part),
        cmocka_unit_test(cut_loses_no_item),
        cmocka_unit_test(cut_is_refused_twice_and_outside_its_range),
        cmocka_unit_test(imported_filters_have_what_both_had),
        cmocka_unit_test(a_filter_joins_an_empty_one_as_it_is),
        cmocka_unit_test(too_many_ranges_do_not_join),
        cmocka_unit_test(parts_of_different_ranges_are_looked_up_each),
        cmocka_unit_test(a_look_up_stays_inside_the_part),
        cmocka_unit_test(the_error_is_n_over_m),
        cmocka_unit_test(test_chance_of_a_cut_coarse_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
