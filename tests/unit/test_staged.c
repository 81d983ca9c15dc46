/* The staged index against a plain oracle (a list of rows), alone and with allocations that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "store/sqlite/index/staged.h"
#include "store/user/deliveries.h"
#include "tests/lib/alloc.h"

/* --- small things --- */

enum { SEP = 2026 * 12 + 8, OCT, NOV };

static uint64_t random_state = 88172645463325252u;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void add_play(struct staged *s, int64_t key, const char *user, uint64_t hash, int month, uint64_t id)
{
    struct staged_user *handle = staged_user(s, key, slice_str(user));
    assert_non_null(handle);
    assert_int_equal(staged_add_play(s, handle, hash, month, id), 0);
}

/* Times of a month ascend as ids do. */
static int64_t at_of(int month, uint64_t id)
{
    return month_start_ms(month) + (int64_t)(id % 100000);
}

/* Some items have one. */
static uint64_t group_of(uint64_t hash)
{
    return hash % 3 == 1 ? ~hash : 0;
}

static void add_delivery(struct staged *s, int64_t key, const char *user, const char *item, uint64_t hash, int month,
                         uint64_t id)
{
    struct staged_user *handle = staged_user(s, key, slice_str(user));
    assert_non_null(handle);
    assert_int_equal(staged_add_delivery(s, handle, &(struct store_item){slice_str(item), hash, group_of(hash)},
                                         at_of(month, id), id),
                     0);
}

/* --- one thing at a time --- */

static void prefetch(const struct staged *s, const int64_t *keys, size_t n)
{
    for (int step = 0; step < STAGED_STEPS; step++) {
        for (size_t i = 0; i < n; i++) {
            staged_prefetch(s, keys[i], step);
        }
    }
}

static void test_empty(void **state)
{
    (void)state;
    struct staged *s = staged_new(1);
    struct staged_out out = {0};
    struct staged_walk walk = {0};
    struct staged_ids ids = {0};
    bool seen = false;
    uint64_t hash = 1;
    assert_int_equal(staged_load(s, 5, slice_str("u"), INT_MIN, &out), 0);
    assert_int_equal(staged_find_user(s, 5, slice_str("u"), &ids), 0);
    assert_int_equal(staged_find_items(s, 5, slice_str("u"), &hash, 1, INT_MIN, 0, &seen, &ids), 0);
    staged_drop_user(s, 5, slice_str("u"));
    staged_drop_rows(s, 5, slice_str("u"), NULL, 0);
    assert_false(staged_has_other(s, 5, slice_str("u")));
    staged_walk_begin(&walk, s, INT64_MIN);
    assert_int_equal(staged_walk_next(&walk), 0);
    assert_int_equal(staged_walk_next(&walk), 0);

    /* An entry alone is no user. Fetching ahead changes nothing, whoever is there. */
    int64_t keys[40] = {5, INT64_MIN, INT64_MAX};
    size_t bytes = staged_bytes(s);
    prefetch(s, keys, 40);
    assert_int_equal(staged_bytes(s), bytes);
    assert_non_null(staged_user(s, 5, slice_str("u")));
    bytes = staged_bytes(s);
    prefetch(s, keys, 40);
    assert_int_equal(staged_bytes(s), bytes);
    assert_int_equal(staged_users(s), 0);
    assert_int_equal(staged_load(s, 5, slice_str("u"), INT_MIN, &out), 0);
    assert_false(staged_has_other(s, 5, slice_str("other")));
    staged_walk_begin(&walk, s, INT64_MIN);
    assert_int_equal(staged_walk_next(&walk), 0);
    staged_walk_free(&walk);
    staged_out_free(&out);
    staged_ids_free(&ids);
    staged_free(s);
    staged_free(NULL);
}

static void test_load(void **state)
{
    (void)state;
    struct staged *s = staged_new(100);
    struct staged_out out = {0};
    add_play(s, 7, "ann", 11, SEP, 100);
    add_play(s, 7, "ann", 12, NOV, 101);
    add_delivery(s, 7, "ann", "film", 13, SEP, 102);
    add_play(s, 7, "bob", 14, NOV, 103);
    add_play(s, 8, "ann", 15, NOV, 104);

    assert_int_equal(staged_load(s, 7, slice_str("ann"), NOV, &out), 1);
    assert_int_equal(out.n_plays, 1);
    assert_true(out.plays[0].hash == 12 && out.plays[0].month == NOV);
    assert_int_equal(out.deliveries.n, 1);
    assert_true(out.deliveries.list[0].hash == 13 && delivered_sub(out.deliveries.list[0].stamp) == 102);
    assert_true(slice_eq(out.deliveries.list[0].item, slice_str("film")));

    /* Appended to; known even when no month is in the window; the copy outlives the slot. */
    assert_int_equal(staged_load(s, 7, slice_str("bob"), NOV + 1, &out), 1);
    assert_int_equal(out.n_plays, 1);
    assert_int_equal(staged_load(s, 7, slice_str("bob"), SEP, &out), 1);
    assert_int_equal(out.n_plays, 2);
    assert_int_equal(out.plays[1].hash, 14);
    assert_int_equal(staged_load(s, 7, slice_str("cat"), SEP, &out), 0);

    assert_true(staged_has_other(s, 7, slice_str("ann")));
    assert_false(staged_has_other(s, 8, slice_str("ann")));
    assert_true(staged_has_other(s, 8, slice_str("bob")));
    assert_int_equal(staged_rows(s), 5);
    assert_int_equal(staged_users(s), 3);

    staged_drop_user(s, 7, slice_str("bob"));
    assert_false(staged_has_other(s, 7, slice_str("ann")));
    assert_int_equal(staged_rows(s), 4);
    assert_int_equal(staged_taken(s), 5);
    assert_int_equal(staged_users(s), 2);
    staged_free(s);
    assert_true(slice_eq(out.deliveries.list[0].item, slice_str("film")));

    struct store_delivery stored[2] = {{.stamp = 1, .hash = 2, .item = slice_str("x")},
                                       {.stamp = 3, .hash = 4, .item = slice_str("y")}};
    assert_int_equal(delivered_add(&out.deliveries, stored, 2), 0);
    assert_int_equal(out.deliveries.n, 3);
    assert_ptr_equal(out.deliveries.list[2].item.data, stored[1].item.data);
    staged_out_clear(&out);
    assert_true(out.n_plays == 0 && out.deliveries.n == 0);
    staged_out_free(&out);
}

/* Of what is loaded up to max the same deliveries count as of all: of one slot, or of a newer one, too. Returns how
 * many are loaded. */
static size_t check_last(const struct staged *s, const struct staged *newer, size_t max)
{
    struct staged_out all = {0}, last = {.deliveries_max = max};
    if (newer != NULL) {
        assert_int_equal(staged_load(newer, 7, slice_str("ann"), NOV, &all), 1);
        assert_int_equal(staged_load(newer, 7, slice_str("ann"), NOV, &last), 1);
    }
    int known = staged_load(s, 7, slice_str("ann"), NOV, &all);
    assert_int_equal(staged_load(s, 7, slice_str("ann"), NOV, &last), known);
    const size_t loaded = last.deliveries.n;
    delivered_unite(&all.deliveries, max);
    delivered_unite(&last.deliveries, max);
    assert_int_equal(last.deliveries.n, all.deliveries.n);
    for (size_t i = 0; i < all.deliveries.n; i++) {
        assert_int_equal(last.deliveries.list[i].stamp, all.deliveries.list[i].stamp);
        assert_true(slice_eq(last.deliveries.list[i].item, all.deliveries.list[i].item));
        assert_int_equal(last.deliveries.list[i].group, all.deliveries.list[i].group);
    }
    staged_out_free(&all);
    staged_out_free(&last);
    return loaded;
}

/* Of thousands only those that count are read, whatever repeats; of those in another order, all. */
static void test_last_deliveries(void **state)
{
    (void)state;
    static const unsigned distinct[] = {1, 3, 9, 10, 11, 40, 5000};
    for (size_t round = 0; round < sizeof distinct / sizeof *distinct; round++) {
        struct staged *s = staged_new(1), *newer = staged_new(10001);
        for (uint64_t id = 1; id <= 5006; id++) {
            char item[16];
            unsigned number = (unsigned)(random_next() % distinct[round]);
            snprintf(item, sizeof item, "i%u", number);
            struct staged *slot = id <= 5000 ? s : newer;
            uint64_t at = id <= 5000 ? id : 10000 + id;
            add_delivery(slot, 7, "ann", item, number, NOV, at);
            if (id % 7 == 0) {
                staged_drop_rows(slot, 7, slice_str("ann"), &at, 1);
            }
        }
        assert_true(check_last(s, NULL, 10) < 20 * DELIVERED_TIMES);
        assert_true(check_last(s, NULL, 1) == 1);
        check_last(s, newer, 1);
        assert_true(check_last(s, newer, 10) < 26 * DELIVERED_TIMES);
        add_delivery(s, 7, "ann", "late", 7777, NOV, 6000);
        add_delivery(s, 7, "ann", "early", 8888, NOV, 5500); /* as a file has it that somebody else wrote */
        check_last(s, NULL, 1);
        check_last(s, newer, 10);
        staged_drop_user(s, 7, slice_str("ann"));
        assert_int_equal(check_last(s, NULL, 10), 0);
        staged_free(s);
        staged_free(newer);
    }
}

/* Items of all lengths, in any order, of two users in turn: each row is found with its bytes, newest first. */
static void test_items_of_all_lengths(void **state)
{
    (void)state;
    enum { N = 20000, ITEM = 255 };
    static uint8_t lengths[N];
    static char bytes[N + ITEM];
    static bool dropped[N];
    struct staged *s = staged_new(0);
    struct staged_out out = {0};
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)random_next();
    }
    for (uint64_t id = 0; id < N; id++) {
        lengths[id] = id < 4 ? (uint8_t[]){1, 255, 1, 255}[id] : (uint8_t)(1 + random_next() % ITEM);
        const char *user = id % 2 == 0 ? "ann" : "bob";
        struct staged_user *entry = staged_user(s, 7, slice_str(user));
        assert_int_equal(staged_add_delivery(s, entry,
                                             &(struct store_item){slice_of(bytes + id, lengths[id]), id, group_of(id)},
                                             at_of(NOV, id), id),
                         0);
        dropped[id] = random_next() % 5 == 0;
        if (dropped[id]) {
            staged_drop_rows(s, 7, slice_str(user), &id, 1);
        }
        if (id >= 300 && id != N - 1) {
            continue;
        }
        staged_out_clear(&out);
        staged_load(s, 7, slice_str(user), NOV, &out);
        size_t at = 0;
        for (uint64_t i = id + 2; i >= 2; i -= 2) {
            if (!dropped[i - 2]) {
                const struct store_delivery *d = &out.deliveries.list[at++];
                assert_true(at <= out.deliveries.n && delivered_sub(d->stamp) == (int64_t)(i - 2) && d->hash == i - 2);
                assert_int_equal(d->group, group_of(d->hash));
                assert_true(slice_eq(d->item, slice_of(bytes + i - 2, lengths[i - 2])));
            }
        }
        assert_int_equal(at, out.deliveries.n);
    }
    staged_out_free(&out);
    staged_free(s);
}

static void test_ranges(void **state)
{
    (void)state;
    struct staged *s = staged_new(1000);
    struct staged_out out = {0};
    struct staged_ids ids = {0};
    static const struct {
        uint64_t id;
        int month;
        int expected;
    } table[] = {
        {999, NOV, ERR_RANGE},
        {1000, NOV, 0},
        {1000 + (uint64_t)UINT32_MAX, NOV, 0},
        {1001 + (uint64_t)UINT32_MAX, NOV, ERR_RANGE},
        {UINT64_MAX, NOV, ERR_RANGE},
        {1001, -1, ERR_RANGE},
        {1001, 0, 0},
        {1001, 65535, 0},
        {1001, 65536, ERR_RANGE},
    };
    uint64_t rows = 0;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct staged_user *user = staged_user(s, 1, slice_str("u"));
        bool fits = table[i].expected == 0;
        assert_int_equal(staged_fits(s, table[i].id, table[i].month), fits);
        assert_int_equal(staged_add_play(s, user, i, table[i].month, table[i].id), table[i].expected);
        if (table[i].month >= 0 && table[i].month <= 65535) { /* as all are that a time is in */
            assert_int_equal(staged_add_delivery(s, user, &(struct store_item){slice_str("i"), i, group_of(i)},
                                                 month_start_ms(table[i].month), table[i].id),
                             table[i].expected);
        }
        rows += fits ? 2 : 0;
        assert_int_equal(staged_rows(s), rows);
    }
    assert_int_equal(staged_find_user(s, 1, slice_str("u"), &ids), 1);
    assert_int_equal(ids.n, rows);
    assert_true(ids.at[0] == 1000 && ids.at[rows - 1] == 1000 + (uint64_t)UINT32_MAX);
    assert_int_equal(staged_load(s, 1, slice_str("u"), 65535, &out), 1);
    assert_int_equal(out.n_plays, 1);
    assert_int_equal(out.plays[0].month, 65535);
    staged_out_free(&out);
    staged_ids_free(&ids);
    staged_free(s);
}

/* Every count of plays around the chunks' ends, and binary ids of the longest size. */
static void test_chunks(void **state)
{
    (void)state;
    struct staged *s = staged_new(0);
    struct staged_out out = {0};
    char name[255];
    memset(name, 0, sizeof name);
    struct slice user = slice_of(name, sizeof name);
    enum { MANY = 100000 };
    for (uint64_t n = 1; n <= MANY; n++) {
        struct staged_user *handle = staged_user(s, -3, user);
        assert_int_equal(staged_add_play(s, handle, n * 77, NOV, n), 0);
        if (n > 5000 && n != MANY) {
            continue;
        }
        staged_out_clear(&out);
        assert_int_equal(staged_load(s, -3, user, INT_MIN, &out), 1);
        assert_int_equal(out.n_plays, n);
        assert_int_equal(out.plays[n - 1].hash, n * 77);
        assert_int_equal(out.plays[n / 2].hash, (n / 2 + 1) * 77);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        assert_int_equal(out.plays[i].hash, (i + 1) * 77);
    }
    /* A giant's arrays aren't kept. */
    staged_out_clear(&out);
    assert_null(out.plays);
    name[254] = 1;
    assert_int_equal(staged_load(s, -3, slice_of(name, 255), INT_MIN, &out), 0);
    assert_int_equal(staged_load(s, -3, slice_of(name, 254), INT_MIN, &out), 0);
    staged_out_free(&out);
    staged_free(s);
}

static void test_forget_items(void **state)
{
    (void)state;
    struct staged *s = staged_new(1);
    struct staged_out out = {0};
    struct staged_ids ids = {0};
    add_play(s, 1, "u", 10, SEP, 1);
    add_play(s, 1, "u", 20, NOV, 2);
    add_delivery(s, 1, "u", "thirty", 30, SEP, 3);
    add_delivery(s, 1, "u", "ten", 10, SEP, 4);
    add_play(s, 1, "u", 20, SEP, 5);
    add_play(s, 1, "u", 40, SEP, 6);
    add_play(s, 1, "v", 20, NOV, 7);

    /* Only old plays: removed, but they didn't count as seen. Asked for twice, seen twice. Nothing changes yet. */
    uint64_t hashes[] = {40, 30, 99, 20, 20, 10};
    bool seen[6] = {false};
    assert_int_equal(staged_find_items(s, 1, slice_str("u"), hashes, 1, OCT, 0, seen, &ids), 1);
    assert_false(seen[0]);
    assert_true(ids.n == 1 && ids.at[0] == 6);
    assert_int_equal(staged_find_items(s, 1, slice_str("u"), hashes, 5, OCT, 0, seen, &ids), 1);
    const bool expected[6] = {false, true, false, true, true, false};
    assert_memory_equal(seen, expected, sizeof seen);
    const uint64_t expected_ids[] = {6, 2, 3, 5, 6};
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.at, expected_ids, sizeof expected_ids);
    assert_int_equal(staged_rows(s), 7);
    assert_int_equal(staged_find_items(s, 1, slice_str("u"), hashes + 2, 1, OCT, 0, seen, &ids), 0);
    assert_int_equal(ids.n, 5);
    /* It never clears. */
    seen[2] = true;
    assert_int_equal(staged_find_items(s, 1, slice_str("u"), hashes, 3, OCT, 0, seen, &ids), 1);
    assert_true(seen[2]);
    ids.n = 5;

    /* A row that was added between the two steps stays. */
    add_play(s, 1, "u", 20, NOV, 8);
    staged_drop_rows(s, 1, slice_str("u"), ids.at + 1, 4);
    assert_int_equal(staged_rows(s), 4);
    assert_int_equal(staged_load(s, 1, slice_str("u"), INT_MIN, &out), 1);
    assert_int_equal(out.n_plays, 2);
    assert_true(out.plays[0].hash == 10 && out.plays[1].hash == 20);
    assert_int_equal(out.deliveries.n, 1);
    assert_int_equal(delivered_sub(out.deliveries.list[0].stamp), 4);

    /* Dropped rows aren't found again; dropping again changes nothing; the other user has all. */
    ids.n = 0;
    assert_int_equal(staged_find_user(s, 1, slice_str("u"), &ids), 1);
    const uint64_t left[] = {1, 4, 8};
    assert_int_equal(ids.n, 3);
    assert_memory_equal(ids.at, left, sizeof left);
    const uint64_t gone[] = {2, 3};
    staged_drop_rows(s, 1, slice_str("u"), gone, 2);
    assert_int_equal(staged_rows(s), 4);
    staged_drop_user(s, 1, slice_str("u"));
    assert_int_equal(staged_find_user(s, 1, slice_str("u"), &ids), 0);
    staged_out_clear(&out);
    assert_int_equal(staged_load(s, 1, slice_str("u"), INT_MIN, &out), 0);
    assert_true(out.n_plays == 0 && out.deliveries.n == 0);
    assert_int_equal(staged_load(s, 1, slice_str("v"), INT_MIN, &out), 1);
    assert_int_equal(staged_users(s), 1);

    /* A forgotten user plays again. */
    add_play(s, 1, "u", 50, NOV, 9);
    staged_out_clear(&out);
    assert_int_equal(staged_load(s, 1, slice_str("u"), INT_MIN, &out), 1);
    assert_true(out.n_plays == 1 && out.plays[0].hash == 50);
    assert_int_equal(staged_users(s), 2);
    staged_out_free(&out);
    staged_ids_free(&ids);
    staged_free(s);
}

static void test_walk(void **state)
{
    (void)state;
    static const struct {
        int64_t key;
        const char *user;
    } order[] = {
        {INT64_MIN, "min"}, {INT64_MIN + 1, "m"}, {-8, "a"},  {-8, "aa"},     {-8, "b"},
        {0, "zero"},        {1, "one"},           {256, "x"}, {1 << 20, "y"}, {INT64_MAX, "max"},
    };
    enum { N = sizeof order / sizeof order[0] };
    struct staged *s = staged_new(1);
    struct staged_walk walk = {0};
    for (size_t i = 0; i < N; i++) {
        size_t at = i * 3 % N;
        add_play(s, order[at].key, order[at].user, at, NOV, 10 * i + 1);
        add_delivery(s, order[at].key, order[at].user, order[at].user, at, OCT, 10 * i + 2);
        add_delivery(s, order[at].key, order[at].user, order[at].user, at, SEP, 10 * i + 3);
        add_play(s, order[at].key, order[at].user, at, SEP, 10 * i + 4);
    }
    for (size_t from = 0; from <= N; from++) {
        if (from > 0 && from < N && order[from - 1].key == order[from].key) {
            continue;
        }
        staged_walk_begin(&walk, s, from < N ? order[from].key : INT64_MAX);
        for (size_t i = from < N ? from : N - 1; i < N; i++) {
            assert_int_equal(staged_walk_next(&walk), 1);
            assert_int_equal(walk.key, order[i].key);
            assert_true(slice_eq(walk.user, slice_str(order[i].user)));
            assert_int_equal(walk.n_plays, 2);
            assert_true(walk.plays[0].hash == i && walk.plays[0].month == NOV && walk.plays[0].id % 10 == 1);
            assert_true(walk.plays[1].month == SEP && walk.plays[1].id == walk.plays[0].id + 3);
            assert_int_equal(walk.n_deliveries, 2);
            assert_true(delivered_sub(walk.deliveries[0].stamp) == (int64_t)walk.plays[0].id + 2 &&
                        walk.deliveries[0].month == SEP);
            assert_true(delivered_sub(walk.deliveries[1].stamp) == (int64_t)walk.plays[0].id + 1 &&
                        walk.deliveries[1].hash == i && walk.deliveries[1].group == group_of(i));
            assert_true(slice_eq(walk.deliveries[1].item, slice_str(order[i].user)));
        }
        assert_int_equal(staged_walk_next(&walk), 0);
    }

    /* Forgotten before the visit: not visited, also when its shard was already taken. */
    staged_walk_begin(&walk, s, -8);
    assert_int_equal(staged_walk_next(&walk), 1);
    staged_drop_user(s, -8, slice_str("aa"));
    staged_drop_user(s, 1, slice_str("one"));
    static const char *const left[] = {"b", "zero", "x", "y", "max"};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(staged_walk_next(&walk), 1);
        assert_true(slice_eq(walk.user, slice_str(left[i])));
    }
    assert_int_equal(staged_walk_next(&walk), 0);
    staged_walk_free(&walk);
    staged_free(s);
}

/* --- anything, against a list of rows --- */

enum { KEYS = 40, NAMES = 3, HASHES = 30, STEPS = 6000 };

struct row {
    int key, name;
    bool delivery;
    uint64_t hash, id;
    int month;
};

static struct row rows[STEPS];
static size_t n_rows;

static int64_t key_of(int key)
{
    return (int64_t)((uint64_t)(key / 2) * 0x9e3779b97f4a7c15u) + key % 2;
}

static struct slice name_of(int name)
{
    static const char *const names[NAMES] = {"u", "user", "somebody:with:a:longer:name"};
    return slice_str(names[name]);
}

static void remove_rows(int key, int name, const bool *hashes)
{
    size_t kept = 0;
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].key != key || rows[i].name != name || (hashes != NULL && !hashes[rows[i].hash])) {
            rows[kept++] = rows[i];
        }
    }
    n_rows = kept;
}

static void compare_user(const struct staged *s, int key, int name, int first_month, struct staged_out *out)
{
    staged_out_clear(out);
    int known = staged_load(s, key_of(key), name_of(name), first_month, out);
    bool expected_known = false, expected_other = false;
    size_t plays = 0, deliveries = 0;
    for (size_t i = 0; i < n_rows; i++) {
        expected_other |= key_of(rows[i].key) == key_of(key) && rows[i].name != name;
        if (rows[i].key != key || rows[i].name != name) {
            continue;
        }
        expected_known = true;
        if (rows[i].delivery) {
            deliveries++;
            assert_true(deliveries <= out->deliveries.n);
            const struct store_delivery *d = &out->deliveries.list[out->deliveries.n - deliveries];
            char item[8];
            snprintf(item, sizeof item, "i%u", (unsigned)rows[i].hash);
            assert_true(delivered_sub(d->stamp) == (int64_t)rows[i].id && d->hash == rows[i].hash &&
                        slice_eq(d->item, slice_str(item)) && d->group == group_of(d->hash));
        } else if (rows[i].month >= first_month) {
            assert_true(plays < out->n_plays);
            assert_true(out->plays[plays].hash == rows[i].hash && out->plays[plays].month == rows[i].month);
            plays++;
        }
    }
    assert_int_equal(known, expected_known);
    assert_int_equal(out->n_plays, plays);
    assert_int_equal(out->deliveries.n, deliveries);
    assert_int_equal(staged_has_other(s, key_of(key), name_of(name)), expected_other);
}

static void compare_all(const struct staged *s, struct staged_out *out, struct staged_walk *walk)
{
    uint64_t users = 0;
    for (int key = 0; key < KEYS; key++) {
        for (int name = 0; name < NAMES; name++) {
            compare_user(s, key, name, SEP + key % 3, out);
            for (size_t i = 0; i < n_rows; i++) {
                if (rows[i].key == key && rows[i].name == name) {
                    users++;
                    break;
                }
            }
        }
    }
    assert_int_equal(staged_rows(s), n_rows);
    assert_int_equal(staged_users(s), users);
    size_t walked = 0;
    int64_t last = INT64_MIN;
    staged_walk_begin(walk, s, INT64_MIN);
    while (staged_walk_next(walk) == 1) {
        assert_true(walk->key >= last);
        last = walk->key;
        users--;
        walked += walk->n_plays + walk->n_deliveries;
    }
    assert_int_equal(users, 0);
    assert_int_equal(walked, n_rows);
}

static void test_against_oracle(void **state)
{
    (void)state;
    struct staged *s = staged_new(5000);
    struct staged_out out = {0};
    struct staged_walk walk = {0};
    struct staged_ids ids = {0};
    n_rows = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        int key = (int)(random_next() % KEYS), name = (int)(random_next() % NAMES);
        uint64_t what = random_next() % 100;
        ids.n = 0;
        if (what < 90) {
            struct row row = {
                key, name, what < 20, random_next() % HASHES, 5000 + step, SEP + (int)(random_next() % 3)};
            struct staged_user *user = staged_user(s, key_of(key), name_of(name));
            char item[8];
            snprintf(item, sizeof item, "i%u", (unsigned)row.hash);
            assert_int_equal(
                row.delivery
                    ? staged_add_delivery(s, user, &(struct store_item){slice_str(item), row.hash, group_of(row.hash)},
                                          at_of(row.month, row.id), row.id)
                    : staged_add_play(s, user, row.hash, row.month, row.id),
                0);
            rows[n_rows++] = row;
        } else if (what < 98) {
            uint64_t hashes[4];
            bool seen[4] = {false}, expected[4] = {false}, removed[HASHES] = {false};
            size_t n = 1 + random_next() % 4, expected_ids = 0;
            for (size_t i = 0; i < n; i++) {
                hashes[i] = random_next() % HASHES;
                removed[hashes[i]] = true;
            }
            int found = staged_find_items(s, key_of(key), name_of(name), hashes, n, OCT, 0, seen, &ids);
            for (size_t r = 0; r < n_rows; r++) {
                if (rows[r].key == key && rows[r].name == name && removed[rows[r].hash]) {
                    assert_true(expected_ids < ids.n && ids.at[expected_ids] == rows[r].id);
                    expected_ids++;
                    for (size_t i = 0; i < n; i++) {
                        expected[i] |= rows[r].hash == hashes[i] && (rows[r].delivery || rows[r].month >= OCT);
                    }
                }
            }
            assert_int_equal(ids.n, expected_ids);
            assert_int_equal(found, expected_ids > 0);
            assert_memory_equal(seen, expected, sizeof seen);
            compare_user(s, key, name, SEP, &out);
            staged_drop_rows(s, key_of(key), name_of(name), ids.at, ids.n);
            remove_rows(key, name, removed);
        } else {
            size_t expected_ids = 0;
            int found = staged_find_user(s, key_of(key), name_of(name), &ids);
            for (size_t r = 0; r < n_rows; r++) {
                if (rows[r].key == key && rows[r].name == name) {
                    assert_true(expected_ids < ids.n && ids.at[expected_ids] == rows[r].id);
                    expected_ids++;
                }
            }
            assert_int_equal(ids.n, expected_ids);
            assert_int_equal(found, expected_ids > 0);
            staged_drop_user(s, key_of(key), name_of(name));
            remove_rows(key, name, NULL);
        }
        compare_user(s, key, name, OCT, &out);
        if (step % 500 == 499) {
            compare_all(s, &out, &walk);
        }
    }
    staged_ids_free(&ids);
    staged_walk_free(&walk);
    staged_out_free(&out);
    staged_free(s);
}

/* --- each allocation fails once --- */

static int whole_life(size_t *rows_left)
{
    struct staged_ids ids = {0};
    struct staged_out out = {0};
    struct staged_walk walk = {0};
    int rc = ERR_NOMEM;
    *rows_left = 0;
    struct staged *s = staged_new(0);
    if (s == NULL) {
        return rc;
    }
    char item[200] = "";
    for (uint64_t i = 0; i < 3000; i++) {
        struct staged_user *user = staged_user(s, (int64_t)(i % 30), slice_str("u"));
        uint64_t before = staged_rows(s);
        rc = user == NULL ? ERR_NOMEM
             : i % 7 == 0
                 ? staged_add_delivery(s, user, &(struct store_item){slice_of(item, sizeof item), i, group_of(i)},
                                       at_of(NOV, i), i)
                 : staged_add_play(s, user, i, NOV, i);
        if (rc != 0) {
            assert_int_equal(staged_rows(s), before);
            goto out;
        }
    }
    uint64_t hash = 31;
    bool seen = false;
    if ((rc = staged_find_user(s, 4, slice_str("u"), &ids)) < 0) {
        assert_int_equal(ids.n, 0);
        goto out;
    }
    assert_int_equal(ids.n, 100);
    if ((rc = staged_find_items(s, 1, slice_str("u"), &hash, 1, SEP, 0, &seen, &ids)) < 0) {
        assert_int_equal(ids.n, 100);
        goto out;
    }
    for (int key = 0; key < 30; key++) {
        size_t n = out.n_plays + out.deliveries.n;
        if ((rc = staged_load(s, key, slice_str("u"), SEP, &out)) < 0) {
            assert_int_equal(out.n_plays + out.deliveries.n, n);
            goto out;
        }
        assert_int_equal(out.n_plays + out.deliveries.n, n + 100);
        assert_memory_equal(out.deliveries.list[out.deliveries.n - 1].item.data, item, sizeof item);
    }
    staged_walk_begin(&walk, s, INT64_MIN);
    while ((rc = staged_walk_next(&walk)) == 1) {
        *rows_left += walk.n_plays + walk.n_deliveries;
    }
    if (rc < 0) { /* The walk goes on where it was. */
        alloc_fail_after(-1);
        while (staged_walk_next(&walk) == 1) {
            *rows_left += walk.n_plays + walk.n_deliveries;
        }
        assert_int_equal(*rows_left, 3000);
    }
out:
    staged_ids_free(&ids);
    staged_out_free(&out);
    staged_walk_free(&walk);
    staged_free(s);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    int n = 0;
    size_t left;
    for (;; n++) {
        alloc_fail_after(n);
        int rc = whole_life(&left);
        alloc_fail_after(-1);
        if (!alloc_failed) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_true(n < 1000);
    }
    assert_int_equal(left, 3000);
    assert_true(n > 20);
}

/* --- memory, and a line to look at --- */

static void test_bytes_per_play(void **state)
{
    (void)state;
    static const struct {
        uint64_t users, each;
    } table[] = {{100000, 1}, {20000, 10}, {2000, 100}, {1, 200000}};
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++) {
        struct staged *s = staged_new(1);
        uint64_t id = 1;
        int64_t start = clock_real_us();
        for (uint64_t each = 0; each < table[t].each; each++) {
            for (uint64_t u = 0; u < table[t].users; u++) {
                char name[24];
                struct slice user = slice_of(name, (size_t)snprintf(name, sizeof name, "user%06u", (unsigned)u));
                struct staged_user *handle = staged_user(s, hash_user_key(1, user), user);
                assert_int_equal(staged_add_play(s, handle, id * 0x9e3779b97f4a7c15u, NOV, id), 0);
                id++;
            }
        }
        int64_t us = clock_real_us() - start;
        double each = (double)staged_bytes(s) / (double)staged_rows(s);
        print_message("%6u users x %6u plays: %6.1f bytes a play, %.1f million adds/s\n", (unsigned)table[t].users,
                      (unsigned)table[t].each, each, (double)staged_rows(s) / (double)(us > 0 ? us : 1));
        if (table[t].each == 10) {
            assert_true(each <= 40.0);
        }
        staged_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),           cmocka_unit_test(test_load),
        cmocka_unit_test(test_last_deliveries), cmocka_unit_test(test_items_of_all_lengths),
        cmocka_unit_test(test_ranges),          cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_forget_items),    cmocka_unit_test(test_walk),
        cmocka_unit_test(test_against_oracle),  cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_bytes_per_play),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
