/* Pools: what a list becomes in memory, what it may take, and what is left of it on a disk that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "dedup/pool_match.h"
#include "dedup/view_probe.h"
#include "store/pools.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"
#include "tests/lib/store_calls.h"

static struct pool_budget budget;

/* --- one pool --- */

static void pack(struct buf *packed, const char *id)
{
    assert_int_equal(pool_pack(packed, slice_str(id)), 0);
}

static void pack_numbers(struct buf *packed, unsigned from, unsigned to)
{
    char id[24];
    for (unsigned i = from; i < to; i++) {
        snprintf(id, sizeof id, "item-%07u", i);
        pack(packed, id);
    }
}

static struct pool *make(const struct pool *base, struct buf *packed)
{
    struct pool *pool = NULL;
    struct err err = {0};
    if (pool_make(SEED, slice_str("hot"), base, buf_slice(packed), START, &budget, UINT64_MAX, &pool, &err) < 0) {
        fail_msg("%s", err.text);
    }
    buf_clear(packed);
    return pool;
}

static void expect_items(const struct pool *pool, const char *const *items, size_t n)
{
    struct pool_walk walk = {0};
    assert_int_equal(pool->n, n);
    for (size_t i = 0; i < n; i++) {
        struct slice id = pool_item(pool, i, &walk);
        assert_int_equal(id.len, strlen(items[i]));
        assert_memory_equal(id.data, items[i], id.len);
        assert_true(pool->hashes[i] == hash_id(SEED, id));
        assert_true(pool_has(pool, pool->hashes[i]));
    }
}

static void an_item_stands_once_where_it_came_first(void **state)
{
    (void)state;
    struct buf packed = {0};
    static const char *const first[] = {"b", "a", "b", "c", "a"}, *const more[] = {"c", "d", "b", "d"};
    for (size_t i = 0; i < 5; i++) {
        pack(&packed, first[i]);
    }
    struct pool *pool = make(NULL, &packed);
    expect_items(pool, (const char *const[]){"b", "a", "c"}, 3);
    for (size_t i = 0; i < 4; i++) {
        pack(&packed, more[i]);
    }
    struct pool *grown = make(pool, &packed);
    expect_items(grown, (const char *const[]){"b", "a", "c", "d"}, 4);
    expect_items(pool, (const char *const[]){"b", "a", "c"}, 3);
    pool_release(pool);
    pool_release(grown);
    buf_free(&packed);
    assert_int_equal(budget.used, 0);
}

static void the_version_is_of_the_list_alone(void **state)
{
    (void)state;
    struct buf packed = {0};
    pack_numbers(&packed, 0, 1000);
    struct pool *whole = make(NULL, &packed);
    pack_numbers(&packed, 0, 1);
    struct pool *grown = make(NULL, &packed);
    for (unsigned i = 1; i < 1000; i += 111) {
        pack_numbers(&packed, i - 1, i + 111 < 1000 ? i + 111 : 1000);
        struct pool *next = make(grown, &packed);
        pool_release(grown);
        grown = next;
    }
    assert_true(whole->version == grown->version && whole->n == grown->n);
    pack_numbers(&packed, 1, 1000);
    pack_numbers(&packed, 0, 1);
    struct pool *other = make(NULL, &packed);
    assert_true(other->version != whole->version);
    pool_release(whole);
    pool_release(grown);
    pool_release(other);
    buf_free(&packed);
}

static void hundred_pools_of_hundred_thousand_items(void **state)
{
    (void)state;
    struct buf packed = {0};
    struct pool *pools[100];
    uint64_t ids = 0;
    pack_numbers(&packed, 0, 100000);
    pools[0] = make(NULL, &packed);
    ids = pools[0]->id_bytes;
    uint64_t one = budget.used;
    for (int i = 1; i < 100; i++) {
        struct err err = {0};
        assert_int_equal(pool_rename(pools[0], slice_str("x"), &budget, UINT64_MAX, &pools[i], &err), 0);
    }
    assert_true(one <= ids + (uint64_t)100000 * POOL_ITEM_BYTES + POOL_BESIDE_BYTES);
    assert_true(budget.used <= 100 * (ids + (uint64_t)100000 * POOL_ITEM_BYTES + POOL_BESIDE_BYTES));
    print_message("100 pools of 100,000 items: %.2f bytes an item beside its id\n",
                  (double)(budget.used - 100 * ids) / 1e7);
    for (int i = 0; i < 100; i++) {
        pool_release(pools[i]);
    }
    buf_free(&packed);
    assert_int_equal(budget.used, 0);
}

static void any_size_has_what_it_has(void **state)
{
    (void)state;
    struct buf packed = {0};
    uint64_t random = 1;
    for (unsigned n = 1; n < 3000; n += 1 + (unsigned)random_below(&random, 40)) {
        pack_numbers(&packed, 0, n);
        struct pool *pool = make(NULL, &packed);
        struct pool_walk walk = {0};
        assert_true(pool->bytes <= pool->id_bytes + (uint64_t)n * POOL_ITEM_BYTES + POOL_BESIDE_BYTES);
        for (int k = 0; k < 50; k++) {
            size_t i = (size_t)random_below(&random, n);
            char id[24];
            snprintf(id, sizeof id, "item-%07zu", i);
            assert_true(slice_eq(pool_item(pool, i, &walk), slice_str(id)));
            assert_true(pool_has(pool, hash_id(SEED, slice_str(id))));
            snprintf(id, sizeof id, "item-%07zu", i + n);
            assert_false(pool_has(pool, hash_id(SEED, slice_str(id))));
        }
        struct slice some;
        size_t from = (size_t)random_below(&random, n), got = pool_packed(pool, from, 100, &some);
        assert_true(got >= 1 && some.len <= 100);
        assert_int_equal(pool_packed(pool, n, 100, &some), 0);
        pool_release(pool);
    }
    buf_free(&packed);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct buf packed = {0};
    struct pool *pool = NULL;
    struct err err = {0};
    pack_numbers(&packed, 0, 1000);
    struct slice items = buf_slice(&packed);
    assert_int_equal(pool_make(SEED, slice_str("x"), NULL, items, START, &budget, 20000, &pool, &err), ERR_RANGE);
    assert_non_null(strstr(err.text, "pool_memory is full"));
    assert_int_equal(pool_make(SEED, slice_str("x"), NULL, slice_of("\0", 1), START, &budget, UINT64_MAX, &pool, &err),
                     ERR_INVALID);
    assert_int_equal(
        pool_make(SEED, slice_str("x"), NULL, slice_of("\5ab", 3), START, &budget, UINT64_MAX, &pool, &err),
        ERR_INVALID);
    assert_int_equal(pool_make(SEED, slice_str("x"), NULL, slice_of("", 0), START, &budget, UINT64_MAX, &pool, &err),
                     ERR_INVALID);
    for (int n = 0; n < 2; n++) {
        alloc_fail_after(n);
        assert_int_equal(pool_make(SEED, slice_str("x"), NULL, items, START, &budget, UINT64_MAX, &pool, &err),
                         ERR_NOMEM);
        alloc_fail_after(-1);
    }
    assert_int_equal(budget.used, 0);
    pack_numbers(&packed, 1000, POOL_ITEMS_MAX + 1);
    assert_int_equal(pool_make(SEED, slice_str("x"), NULL, buf_slice(&packed), START, &budget, UINT64_MAX, &pool, &err),
                     ERR_RANGE);
    assert_int_equal(budget.used, 0);
    buf_free(&packed);
}

/* --- the other way round --- */

/* A user of any filters, staged plays, deliveries and exceptions, of items of the pools and of others: both ways say
 * the same. */
static void both_ways_say_the_same(void **state)
{
    (void)state;
    enum { PARTS = 6, MOST = 400, OTHERS = 40 };
    static const uint64_t ranges[] = {FILTER_LIVE_M, FILTER_LIVE_M >> FILTER_GRAIN, 1, 1000, 77777, 123456789};
    static struct store_month months[1];
    static uint32_t positions[PARTS][MOST];
    static struct store_play plays[OTHERS];
    static uint64_t exceptions[OTHERS], hashes[20000];
    static uint8_t one[20000 / 8 + 2], other[20000 / 8 + 2];
    struct view_probe probe;
    struct err err = {0};
    uint64_t random = 3;
    assert_int_equal(view_probe_init(&probe, &err), 0);
    for (int round = 0; round < 60; round++) {
        struct buf packed = {0};
        struct pool_line line = {0};
        struct pool *pools[3];
        for (int k = 0; k < 1 + round % 3; k++) {
            unsigned from = (unsigned)random_below(&random, 3000);
            pack_numbers(&packed, from, from + 1 + (unsigned)random_below(&random, 5000));
            pools[k] = make(NULL, &packed);
            pool_line_add(&line, pools[k]);
        }
        pool_line_hashes(&line, hashes);
        struct store_view view = {.months = months, .n_months = 1, .plays = plays, .exceptions = exceptions};
        months[0].filter.n_parts = (unsigned)random_below(&random, PARTS + 1);
        for (unsigned p = 0; p < months[0].filter.n_parts; p++) {
            struct filter_part *part = &months[0].filter.parts[p];
            bool coarse = p == 1 || (p > 2 && random_below(&random, 2) > 0);
            *part = (struct filter_part){.positions = positions[p], .m = ranges[p], .coarse = coarse};
            uint32_t n = (uint32_t)random_below(&random, MOST);
            for (uint32_t i = 0; i < n; i++) {
                bool theirs = random_below(&random, 3) > 0;
                uint64_t hash = theirs ? hashes[random_below(&random, line.n)] : random_next(&random);
                positions[p][i] =
                    filter_part_live(part) && coarse ? (uint32_t)(hash >> 37) : filter_part_position(part, hash);
            }
            part->n = filter_sort(positions[p], n, NULL);
        }
        view.n_plays = (size_t)random_below(&random, OTHERS);
        view.n_exceptions = (size_t)random_below(&random, OTHERS);
        for (size_t i = 0; i < OTHERS; i++) {
            plays[i].hash = hashes[random_below(&random, line.n)];
            exceptions[i] = hashes[random_below(&random, line.n)];
        }
        struct query q = {.kind = QUERY_FILTER, .hashes = hashes, .n = line.n, .unseen = one};
        assert_int_equal(view_probe_filter(&probe, &view, &q, &err), 0);
        assert_int_equal(pool_match(&line, &view, other), q.n_unseen);
        assert_memory_equal(one, other, (line.n + 7) / 8);
        for (size_t k = 0; k < line.n_pools; k++) {
            pool_release(pools[k]);
        }
        buf_free(&packed);
    }
    view_probe_free(&probe);
}

/* Ranges that begin in one bucket and end in the next: of so many some do, of each kind of part. */
static void no_position_is_missed(void **state)
{
    (void)state;
    enum { ITEMS = 500000 };
    struct buf packed = {0};
    static uint8_t unseen[ITEMS / 8 + 2];
    static struct store_month month;
    pack_numbers(&packed, 0, ITEMS);
    struct pool *pool = make(NULL, &packed);
    struct pool_line line = {0};
    pool_line_add(&line, pool);
    uint32_t *positions = malloc(ITEMS * sizeof *positions), *scratch = malloc(ITEMS * sizeof *scratch);
    static const struct filter_part kinds[] = {
        {.m = FILTER_LIVE_M},
        {.m = FILTER_LIVE_M >> FILTER_GRAIN, .coarse = true},
        {.m = 1000 * 1000 * 10},
        {.m = 1000 * 1000 * 10 + 7, .coarse = true},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct filter_part *part = &month.filter.parts[0];
        month.filter.n_parts = 1;
        *part = kinds[k];
        part->positions = positions;
        for (size_t i = 0; i < ITEMS; i++) {
            positions[i] = filter_part_position(part, pool->hashes[i]);
        }
        part->n = filter_sort(positions, ITEMS, scratch);
        struct store_view view = {.months = &month, .n_months = 1};
        assert_int_equal(pool_match(&line, &view, unseen), 0);
    }
    free(positions);
    free(scratch);
    pool_release(pool);
    buf_free(&packed);
}

/* --- all of them, on a disk --- */

struct world {
    struct store_fixture *f;
    struct dedup dedup;
};

static void on_change(struct pool_change *change)
{
    *(_Atomic int *)change->owner = 1;
}

static int change(struct world *w, struct pool_change *c)
{
    _Atomic int done = 0;
    c->done = on_change;
    c->owner = (void *)&done;
    pools_change(w->dedup.pools, c);
    while (done == 0) {
    }
    return c->err.code;
}

static int set(struct world *w, enum pool_change_kind kind, const char *name, unsigned from, unsigned to,
               struct pool_change *c)
{
    struct buf packed = {0};
    pack_numbers(&packed, from, to);
    *c = (struct pool_change){.kind = kind, .name = slice_str(name), .items = buf_slice(&packed)};
    int rc = change(w, c);
    buf_free(&packed);
    return rc;
}

static void start(struct world *w)
{
    struct err err = {0};
    dedup_init(&w->dedup, w->f->store, &w->f->cfg);
    if (pools_start(&w->dedup, &w->dedup.pools, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void stop(struct world *w)
{
    pools_stop(w->dedup.pools);
    pools_free(w->dedup.pools);
}

static size_t items_of(struct world *w, const char *name, uint64_t *version)
{
    const struct pool_table *table = pools_take(w->dedup.pools);
    const struct pool *pool = pool_table_find(table, slice_str(name));
    size_t n = pool != NULL ? pool->n : 0;
    *version = pool != NULL ? pool->version : 0;
    pools_let_go(table);
    return n;
}

static void expect(struct world *w, const char *name, size_t n, uint64_t version)
{
    uint64_t is;
    assert_int_equal(items_of(w, name, &is), n);
    assert_true(is == version);
}

static void again(struct world *w, bool killed)
{
    stop(w);
    if (killed) {
        kill_store(w->f);
    } else {
        close_store(w->f);
    }
    open_store(w->f);
    start(w);
}

/* Large enough for several pieces. */
enum { MANY = 200000 };

static void they_outlive_kills(void **state)
{
    struct world w = {*state, {0}};
    struct pool_change c, hot, rare;
    start(&w);
    assert_int_equal(set(&w, POOL_SET, "hot", 0, MANY, &hot), 0);
    assert_int_equal(hot.n, MANY);
    assert_int_equal(set(&w, POOL_ADD, "rare", 0, 3, &c), 0); /* there was none */
    assert_int_equal(set(&w, POOL_ADD, "rare", 1, 9, &rare), 0);
    assert_int_equal(rare.n, 9);
    again(&w, true);
    expect(&w, "hot", MANY, hot.version);
    expect(&w, "rare", 9, rare.version);
    assert_int_equal(set(&w, POOL_ADD, "rare", 9, 12, &rare), 0);
    c = (struct pool_change){.kind = POOL_RENAME, .name = slice_str("rare"), .to = slice_str("hot")};
    assert_int_equal(change(&w, &c), 0);
    c = (struct pool_change){.kind = POOL_RENAME, .name = slice_str("rare"), .to = slice_str("hot")};
    assert_int_equal(change(&w, &c), ERR_POOL);
    again(&w, false);
    expect(&w, "hot", 12, rare.version);
    expect(&w, "rare", 0, 0);
    c = (struct pool_change){.kind = POOL_DROP, .name = slice_str("hot")};
    assert_int_equal(change(&w, &c), 0);
    assert_true(c.existed);
    again(&w, true);
    expect(&w, "hot", 0, 0);
    stop(&w);
    close_store(w.f);
    expect_problem(w.f, NULL);
    assert_int_equal(ask(w.f, "staging", "SELECT count(*) FROM pool_parts"), 0);
}

/* Each write and sync of a replacement fails once: afterwards there is the old pool or the new one, as it is in memory,
 * or, where the outcome was unknown, as the next start finds it. */
static void a_replacement_is_whole_or_none(void **state)
{
    struct world w = {*state, {0}};
    struct pool_change old, c;
    start(&w);
    assert_int_equal(set(&w, POOL_SET, "hot", 0, 1000, &old), 0);
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        rule(nth % 2 ? VFS_SYNC : VFS_WRITE, "staging", (nth + 1) / 2 * (nth % 2 ? 1 : 40), false, VFS_EIO);
        int rc = set(&w, POOL_SET, "hot", 0, 60000, &c);
        failed = rc < 0 || nth % 2 == 0;
        vfs_fault_heal();
        uint64_t version;
        size_t n = items_of(&w, "hot", &version);
        assert_true(rc < 0 ? n == 1000 : n == 60000);
        again(&w, true);
        n = items_of(&w, "hot", &version);
        assert_true(n == 60000 || (rc < 0 && n == 1000));
        assert_int_equal(set(&w, POOL_SET, "hot", 0, 1000, &c), 0);
        expect(&w, "hot", 1000, old.version);
        assert_true(nth < 100);
    }
    stop(&w);
    close_store(w.f);
    expect_problem(w.f, NULL);
}

static void damage_costs_one_pool(void **state)
{
    struct world w = {*state, {0}};
    struct pool_change a, b;
    start(&w);
    assert_int_equal(set(&w, POOL_SET, "a", 0, 100, &a), 0);
    assert_int_equal(set(&w, POOL_SET, "b", 0, 100, &b), 0);
    stop(&w);
    close_store(w.f);
    damage(w.f, "staging",
           "UPDATE pool_parts SET items = x'0161' WHERE id / 1048576 = (SELECT place FROM pools WHERE name = 'a')");
    expect_problem(w.f, "pool \"a\" is damaged: items of it are missing");
    open_store(w.f);
    start(&w);
    expect(&w, "a", 0, 0);
    expect(&w, "b", 100, b.version);
    assert_int_equal(set(&w, POOL_SET, "a", 0, 100, &a), 0);
    stop(&w);
    close_store(w.f);
    expect_problem(w.f, NULL);
}

static void memory_is_bounded(void **state)
{
    struct world w = {*state, {0}};
    struct pool_change c;
    w.f->cfg.pool_memory = 4 * 1024 * 1024;
    start(&w);
    assert_int_equal(set(&w, POOL_SET, "a", 0, 50000, &c), 0);
    assert_int_equal(set(&w, POOL_SET, "b", 0, 80000, &c), ERR_RANGE);
    assert_non_null(strstr(c.err.text, "pool_memory is full"));
    struct pools_stats stats;
    pools_look(w.dedup.pools, &stats);
    assert_int_equal(stats.pools, 1);
    assert_int_equal(stats.refused, 1);
    assert_true(stats.bytes < stats.limit);
    w.f->cfg.pool_memory = 1024 * 1024; /* what is there stays */
    again(&w, false);
    uint64_t version;
    assert_int_equal(items_of(&w, "a", &version), 50000);
    assert_int_equal(set(&w, POOL_SET, "b", 0, 1, &c), ERR_RANGE);
    stop(&w);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_item_stands_once_where_it_came_first),
        cmocka_unit_test(the_version_is_of_the_list_alone),
        cmocka_unit_test(hundred_pools_of_hundred_thousand_items),
        cmocka_unit_test(any_size_has_what_it_has),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(both_ways_say_the_same),
        cmocka_unit_test(no_position_is_missed),
        TEST(they_outlive_kills),
        TEST(a_replacement_is_whole_or_none),
        TEST(damage_costs_one_pool),
        TEST(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
