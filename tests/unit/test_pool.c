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
#include "tests/lib/rounds.h"
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

/* --- the index --- */

static void expect_index(const struct pool *pool)
{
    for (size_t b = 0; b < pool->n_buckets; b++) {
        uint64_t cells = 0, n_cells = 0;
        for (uint32_t k = pool_start(pool, b); k < pool_start(pool, b + 1); k++) {
            uint32_t entry = pool->entries[k];
            uint64_t spot = pool_spot(pool, pool->hashes[entry & pool->place_mask]);
            uint64_t cell = UINT64_C(1) << ((uint32_t)spot >> POOL_CELL_SHIFT);
            assert_int_equal(spot >> 32, b);
            assert_int_equal(entry | pool->place_mask, (uint32_t)spot | pool->place_mask);
            assert_true(k == pool_start(pool, b) || entry > pool->entries[k - 1]);
            n_cells += (cells & cell) == 0;
            cells |= cell;
        }
        assert_true(pool->cells[b] == cells);
        uint64_t more = pool_start(pool, b + 1) - pool_start(pool, b) - n_cells;
        assert_int_equal(pool_shared(pool, b), more < 2 ? more : 2);
    }
    for (size_t b = pool->n_buckets; b < pool->n_buckets + 2; b++) {
        assert_true(pool->cells[b] == 0 && pool->starts[b] == pool->n);
    }
    assert_int_equal(pool->entries[pool->n], 0);
}

/* Some n ids whose hashes are in one small range, as chance alone makes none: a cell has many items then. */
static void pack_neighbours(struct buf *packed, size_t n, unsigned bits)
{
    char id[24];
    for (unsigned i = 0; n > 0; i++) {
        snprintf(id, sizeof id, "near-%07u", i);
        if (hash_id(SEED, slice_str(id)) >> (64 - bits) == 1) {
            pack(packed, id);
            n--;
        }
    }
}

static void the_index_is_in_order(void **state)
{
    (void)state;
    static const unsigned sizes[] = {1, 2, 4, 5, 6, 9, 10, 63, 64, 65, 1000, 4096, 65536, 300000};
    struct buf packed = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pack_numbers(&packed, 0, sizes[i]);
        struct pool *pool = make(NULL, &packed), *other = NULL;
        struct err err = {0};
        expect_index(pool);
        assert_int_equal(pool_rename(pool, slice_str("a longer name"), &budget, UINT64_MAX, &other, &err), 0);
        expect_index(other);
        pool_release(pool);
        pack_neighbours(&packed, 300, 10);
        pool = make(other, &packed);
        expect_index(pool);
        pool_release(other);
        pool_release(pool);
    }
    buf_free(&packed);
    assert_int_equal(budget.used, 0);
}

/* --- the other way round --- */

enum { LINE_MOST = 60000, PARTS = 7, POSITIONS_MOST = 6000, OTHERS = 300 };

/* A user, and pools that they are asked about. */
struct question {
    uint64_t random;
    struct pool_line line;
    uint64_t hashes[LINE_MOST];
    struct store_view view;
    struct store_month months[2];
    uint32_t positions[PARTS][POSITIONS_MOST];
    uint8_t tails[PARTS][POSITIONS_MOST];
    struct store_play plays[OTHERS];
    struct store_delivery deliveries[OTHERS];
    uint64_t exceptions[OTHERS];
    uint64_t hidden; /* seed of what hide() takes out */
};

static size_t any_below(struct question *q, size_t limit)
{
    return (size_t)random_below(&q->random, limit);
}

/* Small ones, large ones, and some whose items lie together. */
static void make_line(struct question *q)
{
    struct buf packed = {0};
    q->line = (struct pool_line){0};
    for (size_t n = 1 + any_below(q, 3); q->line.n_pools < n;) {
        unsigned from = (unsigned)any_below(q, 3000);
        pack_numbers(&packed, from, from + 1 + (unsigned)any_below(q, (size_t)10 << any_below(q, 11)));
        if (any_below(q, 4) == 0) {
            pack_neighbours(&packed, 1 + any_below(q, 200), 8 + (unsigned)any_below(q, 4));
        }
        pool_line_add(&q->line, make(NULL, &packed));
    }
    assert_true(q->line.n <= LINE_MOST);
    pool_line_hashes(&q->line, q->hashes);
    buf_free(&packed);
}

static uint64_t any_hash(struct question *q)
{
    return any_below(q, 3) > 0 ? q->hashes[any_below(q, q->line.n)] : random_next(&q->random);
}

static void make_part(struct question *q, struct filter_part *part, size_t p)
{
    static const uint64_t ranges[PARTS] = {FILTER_LIVE_M,    FILTER_LIVE_M >> FILTER_GRAIN, 1, 1000, 77777, 123456789,
                                           FILTER_LIVE_M - 1};
    bool coarse = p == 1 || (p > 1 && p < 6 && any_below(q, 2) > 0);
    *part = (struct filter_part){.positions = q->positions[p], .m = ranges[p], .coarse = coarse};
    uint32_t n = (uint32_t)any_below(q, (size_t)2 << any_below(q, 12));
    n = n < POSITIONS_MOST ? n : POSITIONS_MOST;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = any_hash(q);
        part->positions[i] = filter_part_live(part) && coarse ? (uint32_t)(hash >> (32 + FILTER_GRAIN))
                                                              : filter_part_position(part, hash);
    }
    part->n = filter_sort(part->positions, n, NULL);
    if (p == 0 && any_below(q, 2) > 0) { /* fine: with the tails of some of its items, of others, and open ones */
        part->fine = true;
        part->tails = q->tails[p];
        for (uint32_t i = 0; i < part->n; i++) {
            part->tails[i] = (uint8_t)any_below(q, 4);
        }
        for (size_t i = 0; i < q->line.n; i++) {
            uint32_t at = filter_part_position(part, q->hashes[i]);
            for (uint32_t k = (uint32_t)(i % 7); k < part->n; k += 7) {
                part->tails[k] = part->positions[k] == at ? filter_tail(q->hashes[i]) : part->tails[k];
            }
        }
    }
}

static void make_view(struct question *q)
{
    q->view = (struct store_view){.months = q->months,
                                  .n_months = 2,
                                  .plays = q->plays,
                                  .n_plays = any_below(q, OTHERS),
                                  .deliveries = q->deliveries,
                                  .n_deliveries = any_below(q, OTHERS),
                                  .exceptions = q->exceptions,
                                  .n_exceptions = any_below(q, 2) * any_below(q, OTHERS)};
    q->months[0].filter.n_parts = q->months[1].filter.n_parts = 0;
    for (size_t p = 0; p < PARTS; p++) {
        if (any_below(q, 3) > 0) {
            struct filter *f = &q->months[p % 2].filter;
            make_part(q, &f->parts[f->n_parts++], p);
        }
    }
    const bool again = any_below(q, 2) > 0; /* the first items were delivered last */
    for (size_t i = 0; i < OTHERS; i++) {
        q->plays[i].hash = any_hash(q);
        q->deliveries[i].hash = again && i < q->line.n ? q->hashes[i] : any_hash(q);
        q->exceptions[i] = any_hash(q);
    }
}

/* As sessions and repeats take some out: each item always or never. */
static bool is_hidden(const struct question *q, size_t i)
{
    uint64_t state = q->hidden + i;
    return random_below(&state, 3) == 0;
}

static size_t hide_some(void *arg, size_t from, size_t n, uint8_t *unseen)
{
    const struct question *q = arg;
    size_t hidden = 0;
    for (size_t i = from; i < from + n; i++) {
        const uint8_t bit = (uint8_t)(0x80 >> i % 8);
        if ((unseen[i / 8] & bit) != 0 && is_hidden(q, i)) {
            unseen[i / 8] = (uint8_t)(unseen[i / 8] & ~bit);
            hidden++;
        }
    }
    return hidden;
}

/* What is answered along the line, beside what the probe says of each candidate; with a limit, as far as that goes. */
static void ask_along(struct question *q, struct view_probe *probe, const uint8_t *unseen, size_t enough)
{
    static uint8_t bits[LINE_MOST / 8 + 2];
    struct err err = {0};
    struct query along = {.kind = QUERY_FILTER,
                          .line = &q->line,
                          .n = q->line.n,
                          .unseen = bits,
                          .hide = hide_some,
                          .hide_arg = q,
                          .enough = enough,
                          .most = LINE_MOST};
    assert_int_equal(view_probe_filter(probe, &q->view, &along, &err), 0);
    size_t n = 0, i = 0;
    for (; i < along.n_tested; i++) {
        bool expected = (unseen[i / 8] & 0x80 >> i % 8) != 0 && !is_hidden(q, i);
        assert_int_equal((bits[i / 8] & 0x80 >> i % 8) != 0, expected);
        n += expected;
    }
    assert_int_equal(along.n_unseen, n);
    assert_true(i == q->line.n || (enough > 0 && n >= enough));
}

/* A user of any filters, staged plays, deliveries and exceptions, of items of the pools and of others, asked about all
 * of them or a few, with sessions or without: both ways say the same. */
static void both_ways_say_the_same(void **state)
{
    (void)state;
    static struct question q;
    static uint8_t one[LINE_MOST / 8 + 2], other[LINE_MOST / 8 + 2];
    struct view_probe probe;
    struct err err = {0};
    q.random = 3;
    assert_int_equal(view_probe_init(&probe, &err), 0);
    for (int round = 0; round < test_rounds(200); round++) {
        make_line(&q);
        make_view(&q);
        q.hidden = random_next(&q.random);
        struct query by_hash = {.kind = QUERY_FILTER, .hashes = q.hashes, .n = q.line.n, .unseen = one};
        assert_int_equal(view_probe_filter(&probe, &q.view, &by_hash, &err), 0);
        assert_int_equal(pool_match(&q.line, &q.view, other), by_hash.n_unseen);
        assert_memory_equal(one, other, (q.line.n + 7) / 8);
        ask_along(&q, &probe, one, 0);
        ask_along(&q, &probe, one, 1 + any_below(&q, 40));
        ask_along(&q, &probe, one, 1 + any_below(&q, q.line.n));
        for (size_t k = 0; k < q.line.n_pools; k++) {
            pool_release((struct pool *)q.line.pools[k]);
        }
    }
    view_probe_free(&probe);
    assert_int_equal(budget.used, 0);
}

/* Of one pool it pays always, of several as long as they outnumber what the user has. */
static void it_pays_by_the_pools(void **state)
{
    (void)state;
    struct buf packed = {0};
    struct store_month month = {.filter = {.n_parts = 1, .parts = {{.n = 1000}}}};
    struct store_view view = {.months = &month, .n_months = 1};
    struct pool_line line = {0};
    pack_numbers(&packed, 0, 600);
    struct pool *pool = make(NULL, &packed);
    pool_line_add(&line, pool);
    assert_true(pool_match_pays(&line, &view));
    pool_line_add(&line, pool);
    assert_true(pool_match_pays(&line, &view)); /* 1,000 once more beside 1,200 */
    pool_line_add(&line, pool);
    assert_false(pool_match_pays(&line, &view));
    pool_release(pool);
    buf_free(&packed);
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
        {.m = FILTER_LIVE_M},        {.m = FILTER_LIVE_M >> FILTER_GRAIN, .coarse = true},
        {.m = 1000 * 1000 * 10},     {.m = 1000 * 1000 * 10 + 7, .coarse = true},
        {.m = FILTER_LIVE_M - 1},    {.m = UINT64_C(3000000019)},
        {.m = UINT64_C(4100000003)},
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
        cmocka_unit_test(the_index_is_in_order),
        cmocka_unit_test(both_ways_say_the_same),
        cmocka_unit_test(it_pays_by_the_pools),
        cmocka_unit_test(no_position_is_missed),
        TEST(they_outlive_kills),
        TEST(a_replacement_is_whole_or_none),
        TEST(damage_costs_one_pool),
        TEST(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
