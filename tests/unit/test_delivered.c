/* What counts of deliveries against the rule said plainly, the laws of uniting and un-seeing, and the blob: round
 * trips, hand-made bad bytes, and no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/varint.h"
#include "store/user/deliveries.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"
#include "tests/lib/sent_list.h"

enum { SEED = 42 };

/* --- lists of tests --- */

static size_t unite(struct store_delivery *list, size_t n, size_t max)
{
    struct delivered d = {.list = list, .n = n};
    delivered_unite(&d, max);
    return d.n;
}

/* The list is united, but for what must be refused. */
static int pack(struct delivered_codec *by, struct store_delivery *list, size_t n, struct buf *out)
{
    return delivered_pack(by, &(struct delivered){.list = list, .n = n}, out);
}

static int unpack(struct delivered_codec *by, const void *blob, size_t len, uint64_t seed, struct arena *to,
                  struct store_delivery **list, size_t *n, struct err *err)
{
    struct delivered d = {.n = 7};
    int rc = delivered_unpack(by, blob, len, seed, to, &d, err);
    *list = d.list;
    *n = d.n;
    return rc;
}

/* --- the rule --- */

/* Its time is so many ms. */
static struct store_delivery delivery(uint64_t id, const char *item)
{
    return (struct store_delivery)SENT((int64_t)id, hash_id(SEED, slice_str(item)), slice_str(item));
}

static void check_last(const struct store_delivery *list, size_t n, size_t max, const char *expected)
{
    struct store_delivery copy[16];
    char got[256] = "";
    memcpy(copy, list, n * sizeof *list);
    size_t left = unite(copy, n, max);
    for (size_t i = 0; i < left; i++) {
        size_t at = strlen(got);
        snprintf(got + at, sizeof got - at, "%s%.*s%u", i > 0 ? " " : "", (int)copy[i].item.len, copy[i].item.data,
                 (unsigned)delivered_ms(copy[i].stamp));
    }
    assert_string_equal(got, expected);
}

static void test_last(void **state)
{
    (void)state;
    const struct store_delivery list[] = {delivery(3, "a"), delivery(9, "b"), delivery(5, "c"), delivery(7, "a"),
                                          delivery(1, "d"), delivery(9, "b"), delivery(2, "b")};
    check_last(list, 7, 100, "b9 a7 c5 a3 b2 d1");
    check_last(list, 7, 4, "b9 a7 c5 a3 b2 d1");
    check_last(list, 7, 3, "b9 a7 c5"); /* the last item that counts ends it */
    check_last(list, 7, 1, "b9");
    check_last(list, 7, 0, "");
    check_last(list, 1, 100, "a3");
    check_last(list, 4, 100, "b9 a7 c5 a3");
    check_last(list, 4, 2, "b9 a7");
    check_last(list, 0, 100, "");
    assert_int_equal(unite(NULL, 0, 100), 0);

    /* One hash, two items: told apart by their bytes. */
    struct store_delivery same[] = {delivery(1, "x"), delivery(2, "y"), delivery(3, "xx"), delivery(4, "x")};
    for (size_t i = 0; i < 4; i++) {
        same[i].hash = 5;
    }
    check_last(same, 4, 100, "x4 xx3 y2 x1");
}

/* Of one time the higher sub is later, then the higher hash; of twice one delivery the later stays. */
static void test_one_time(void **state)
{
    (void)state;
    struct store_delivery list[] = {delivery(5, "a"), delivery(5, "b"), delivery(5, "a"),
                                    delivery(5, "c"), delivery(4, "c"), delivery(5, "b")};
    list[0].stamp = delivered_stamp(5, 1);
    list[1].stamp = delivered_stamp(5, 3);
    list[1].group = 1;
    list[2].stamp = delivered_stamp(5, 2);
    list[2].group = 8;
    list[5].stamp = delivered_stamp(5, 3);
    list[5].group = 2; /* the larger one */
    size_t n = unite(list, 6, 100);
    assert_int_equal(n, 4);
    assert_true(slice_eq(list[0].item, slice_str("b")) && list[0].group == 2 && list[0].nth == 0 && list[0].which == 0);
    assert_true(slice_eq(list[1].item, slice_str("a")) && list[1].group == 8 && list[1].nth == 0 && list[1].which == 1);
    assert_true(slice_eq(list[2].item, slice_str("c")) && list[2].nth == 0 && list[2].which == 2);
    assert_true(slice_eq(list[3].item, slice_str("c")) && list[3].nth == 1 && list[3].which == 2);
    assert_int_equal(delivered_items(list, n), 3);
}

static void test_times(void **state)
{
    (void)state;
    struct store_delivery list[40];
    for (size_t i = 0; i < 40; i++) {
        list[i] = delivery(40 - i, i % 2 == 0 ? "a" : "b");
    }
    size_t n = unite(list, 40, 100);
    assert_int_equal(n, 2 * DELIVERED_TIMES);
    assert_int_equal(delivered_ms(list[n - 1].stamp), 40 - 2 * DELIVERED_TIMES + 1);
    assert_int_equal(list[n - 1].nth, DELIVERED_TIMES - 1);

    assert_int_equal(delivered_stamp(-5, 3), 3);
    assert_int_equal(delivered_ms(delivered_stamp(1764338400000, UINT64_MAX)), 1764338400000);
    assert_int_equal(delivered_sub(delivered_stamp(1, (1 << 20) + 5)), 5);
    assert_true(delivered_stamp(INT64_MAX, UINT64_MAX) == INT64_MAX);
}

static struct store_delivery *many(size_t n, size_t distinct, uint64_t *random, char (*items)[16])
{
    struct store_delivery *list = calloc(n > 0 ? n : 1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < n; i++) {
        uint64_t number = random_below(random, distinct);
        size_t len = (size_t)snprintf(items[i], 16, "i%u", (unsigned)number);
        struct slice item = slice_of(items[i], len);
        list[i] = (struct store_delivery)SENT((int64_t)random_below(random, 3 * n + 1), hash_id(SEED, item), item);
        list[i].stamp += random_below(random, 3);
    }
    return list;
}

static bool is_later(const struct store_delivery *a, const struct store_delivery *b)
{
    return a->stamp != b->stamp ? a->stamp > b->stamp : a->hash > b->hash;
}

/* The rule said plainly: again and again the newest that isn't there yet and has not enough newer times, until the last
 * item that counts. */
static size_t plain_last(const struct store_delivery *list, size_t n, size_t max, struct store_delivery *out)
{
    size_t left = 0, items = 0;
    bool *taken = calloc(n + 1, sizeof *taken);
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i < n; i++) {
            if (!taken[i] && (best == n || is_later(&list[i], &list[best]))) {
                best = i;
            }
        }
        if (best == n || items == max) {
            free(taken);
            return left;
        }
        taken[best] = true;
        size_t times = 0;
        bool there = false;
        for (size_t i = 0; i < left; i++) {
            bool same = slice_eq(out[i].item, list[best].item);
            times += same;
            there = there || (same && delivered_ms(out[i].stamp) == delivered_ms(list[best].stamp));
        }
        if (!there && times < DELIVERED_TIMES) {
            out[left++] = list[best];
            items += times == 0;
        }
    }
}

static int newest_first(const void *a, const void *b)
{
    const struct store_delivery *x = a, *y = b;
    return is_later(x, y) ? -1 : is_later(y, x);
}

static void test_last_against_plain(void **state)
{
    (void)state;
    uint64_t random = 7;
    static char items[400][16];
    for (size_t round = 0; round < 2000; round++) {
        size_t n = random_below(&random, round % 100 == 0 ? 400 : 40);
        struct store_delivery *list = many(n, 1 + random_below(&random, 60), &random, items);
        for (size_t i = 7; i < n; i += 7) { /* the same delivery, stored and still staged */
            list[i] = list[i - 1];
        }
        if (round % 3 == 0 && n > 0) {
            qsort(list, n, sizeof *list, newest_first);
        }
        size_t max = random_below(&random, 50);
        struct store_delivery expected[400];
        size_t left = plain_last(list, n, max, expected);
        assert_int_equal(unite(list, n, max), left);
        for (size_t i = 0; i < left; i++) {
            assert_int_equal(list[i].stamp, expected[i].stamp);
            assert_true(slice_eq(list[i].item, expected[i].item));
        }
        free(list);
    }
}

/* Large ones: as many as a blob holds, and a list of one item only. */
static void test_last_large(void **state)
{
    (void)state;
    enum { N = 50000 };
    uint64_t random = 8;
    char(*items)[16] = calloc(N, sizeof *items);
    struct store_delivery *list = many(N, 30000, &random, items);
    for (size_t i = 0; i < N; i++) {
        list[i].stamp = delivered_stamp((int64_t)(i * 7919 % N), 0);
    }
    size_t left = unite(list, N, SIZE_MAX);
    assert_int_equal(delivered_items(list, left), DELIVERED_MAX);
    for (size_t i = 1; i < left; i++) {
        assert_true(list[i].stamp < list[i - 1].stamp);
    }
    free(list);
    list = many(N, 1, &random, items);
    uint64_t newest = 0;
    for (size_t i = 0; i < N; i++) {
        newest = list[i].stamp > newest ? list[i].stamp : newest;
    }
    assert_int_equal(unite(list, N, 100), DELIVERED_TIMES);
    assert_int_equal(list[0].stamp, newest);
    free(list);
    free(items);
}

/* --- the laws --- */

enum { DRAWN = 90 };

struct drawn {
    struct store_delivery list[DRAWN];
    size_t n;
};

/* Of few items, so that both sides have the same ones; with equal ids, as one row that two places have. */
static void draw(struct drawn *d, uint64_t *random)
{
    static char names[12][4];
    d->n = random_below(random, 41);
    for (size_t i = 0; i < d->n; i++) {
        size_t number = random_below(random, 12);
        snprintf(names[number], sizeof names[number], "i%u", (unsigned)number);
        d->list[i] = delivery(random_below(random, 60), names[number]);
        d->list[i].stamp += random_below(random, 3);
        d->list[i].group = random_below(random, 3);
    }
}

static void united(struct delivered *to, const struct drawn *a, const struct drawn *b, const struct drawn *c,
                   size_t max)
{
    const struct drawn *all[] = {a, b, c};
    delivered_clear(to);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(all[i] != NULL ? delivered_add(to, all[i]->list, all[i]->n) : 0, 0);
    }
    delivered_unite(to, max);
}

static void kept_as(struct drawn *to, const struct delivered *from)
{
    assert_true(from->n <= DRAWN);
    to->n = from->n;
    memcpy(to->list, from->list, from->n * sizeof *from->list);
}

static void same(const struct delivered *a, const struct delivered *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        assert_int_equal(a->list[i].stamp, b->list[i].stamp);
        assert_int_equal(a->list[i].group, b->list[i].group);
        assert_int_equal(a->list[i].which, b->list[i].which);
        assert_int_equal(a->list[i].nth, b->list[i].nth);
        assert_true(slice_eq(a->list[i].item, b->list[i].item));
    }
}

/* Whoever unites what first, and however often: one list. */
static void test_unite_laws(void **state)
{
    (void)state;
    uint64_t random = 21;
    struct delivered x = {0}, y = {0};
    struct drawn a, b, c, part;
    for (int round = 0; round < 20000; round++) {
        const size_t max = random_below(&random, 15);
        draw(&a, &random);
        draw(&b, &random);
        draw(&c, &random);
        united(&x, &a, &b, NULL, max);
        united(&y, &b, &a, NULL, max);
        same(&x, &y);
        kept_as(&part, &x);
        united(&y, &part, &part, &b, max); /* the same once more, in one part or whole */
        same(&x, &y);
        united(&x, &part, &c, NULL, max);
        united(&y, &b, &c, NULL, max);
        kept_as(&part, &y);
        united(&y, &a, &part, NULL, max);
        same(&x, &y);
        united(&y, &c, &b, &a, max);
        same(&x, &y);
    }
    delivered_free(&x);
    delivered_free(&y);
}

/* Un-seeing twice is once; of lists that nothing was cut off, before they are united is after it. */
static void test_unsee(void **state)
{
    (void)state;
    uint64_t random = 22;
    struct delivered x = {0}, y = {0};
    struct drawn a, b;
    for (int round = 0; round < 5000; round++) {
        struct slice items[3];
        uint64_t hashes[3];
        char names[3][4];
        struct delivered_unseen what = {
            hashes, round % 2 == 0 ? items : NULL, random_below(&random, 4),
            random_below(&random, 3) == 0 ? delivered_stamp((int64_t)random_below(&random, 60), 1) : 0};
        for (size_t i = 0; i < what.n; i++) {
            snprintf(names[i], sizeof names[i], "i%u", (unsigned)random_below(&random, 12));
            items[i] = slice_str(names[i]);
            hashes[i] = hash_id(SEED, items[i]);
        }
        draw(&a, &random);
        draw(&b, &random);
        united(&x, &a, &b, NULL, 100);
        const size_t before = x.n, went = delivered_unsee(&x, &what);
        assert_int_equal(went, before - x.n);
        for (size_t i = 0; i < x.n; i++) {
            assert_true(x.list[i].stamp >= what.cut);
            for (size_t j = 0; j < what.n; j++) {
                assert_true(x.list[i].hash != hashes[j]);
            }
        }
        assert_int_equal(delivered_unsee(&x, &what), 0);
        struct delivered of_a = {.list = a.list, .n = a.n}, of_b = {.list = b.list, .n = b.n};
        delivered_unsee(&of_a, &what);
        delivered_unsee(&of_b, &what);
        a.n = of_a.n;
        b.n = of_b.n;
        united(&y, &a, &b, NULL, 100);
        same(&x, &y);
    }
    delivered_free(&x);
    delivered_free(&y);

    struct store_delivery twins[] = {delivery(3, "x"), delivery(2, "y")};
    twins[1].hash = twins[0].hash; /* told apart by their bytes, where those are known */
    struct delivered d = {.list = twins, .n = 2};
    const struct slice item = slice_str("y");
    const struct delivered_unseen one = {&twins[0].hash, &item, 1, 0}, both = {&twins[0].hash, NULL, 1, 0};
    assert_int_equal(delivered_unsee(&d, &one), 1);
    assert_true(d.n == 1 && slice_eq(d.list[0].item, slice_str("x")));
    assert_int_equal(delivered_unsee(&d, &both), 1);
}

static void test_has(void **state)
{
    (void)state;
    uint64_t random = 23;
    struct delivered x = {0};
    struct drawn a, b;
    for (int round = 0; round < 2000; round++) {
        draw(&a, &random);
        draw(&b, &random);
        united(&x, &a, NULL, NULL, 1 + random_below(&random, 15));
        for (size_t i = 0; i < b.n; i++) {
            bool there = false;
            for (size_t j = 0; j < x.n; j++) {
                there = there || (x.list[j].stamp == b.list[i].stamp && x.list[j].group == b.list[i].group &&
                                  slice_eq(x.list[j].item, b.list[i].item));
            }
            assert_int_equal(delivered_has(&x, &b.list[i]), there);
        }
    }
    delivered_free(&x);
    struct store_delivery twins[] = {delivery(3, "x"), delivery(3, "y"), delivery(3, "z")};
    twins[0].hash = twins[1].hash = twins[2].hash = 5;
    const struct delivered two = {.list = twins, .n = 2};
    assert_true(delivered_has(&two, &twins[0]) && delivered_has(&two, &twins[1]) && !delivered_has(&two, &twins[2]));
}

/* A list that is somebody else's is copied before it grows; without memory it stays. */
static void test_add(void **state)
{
    (void)state;
    struct store_delivery theirs[] = {delivery(2, "a"), delivery(1, "b")}, more = delivery(3, "c");
    struct delivered d = {.list = theirs, .n = 2};
    alloc_fail_after(0);
    assert_int_equal(delivered_add(&d, &more, 1), ERR_NOMEM);
    alloc_fail_after(-1);
    assert_true(d.list == theirs && d.n == 2 && d.cap == 0);
    assert_int_equal(delivered_add(&d, NULL, 0), 0);
    assert_ptr_equal(d.list, theirs);
    assert_int_equal(delivered_add(&d, &more, 1), 0);
    assert_true(d.list != theirs && d.n == 3 && d.list[0].stamp == theirs[0].stamp && d.list[2].stamp == more.stamp);
    delivered_clear(&d);
    assert_true(d.n == 0 && d.cap >= 3);
    assert_int_equal(delivered_reserve(&d, 100000), 0);
    delivered_clear(&d); /* a giant's memory is given back */
    assert_true(d.n == 0 && d.cap == 0 && d.list == NULL);
}

/* --- the blob --- */

static struct delivered_codec codec;
static struct arena arena;

static int decode(const void *blob, size_t len, struct store_delivery **list, size_t *n, struct err *err)
{
    /* Of its own size, so that a read behind it is noticed. */
    void *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, blob, len);
    int rc = unpack(&codec, copy, len, SEED, &arena, list, n, err);
    free(copy);
    return rc;
}

static size_t round_trip(struct store_delivery *list, size_t n)
{
    struct buf out = {0};
    struct err err = {0};
    struct store_delivery *back;
    size_t n_back;
    buf_add(&out, "before", 6);
    assert_int_equal(pack(&codec, list, n, &out), 0);
    assert_memory_equal(out.data, "before", 6);
    arena_reset(&arena);
    if (decode(out.data + 6, out.len - 6, &back, &n_back, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(n_back, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(back[i].stamp == list[i].stamp && slice_eq(back[i].item, list[i].item));
        assert_true(back[i].which == list[i].which && back[i].nth == list[i].nth && back[i].group == list[i].group);
        assert_int_equal(back[i].hash, hash_id(SEED, list[i].item));
    }
    size_t len = out.len - 6;
    buf_free(&out);
    return len;
}

static void test_round_trip(void **state)
{
    (void)state;
    static struct store_delivery list[DELIVERED_MAX];
    static char bytes[DELIVERED_MAX][255];
    uint64_t random = 9;
    assert_int_equal(round_trip(NULL, 0), 6);

    /* Any bytes, any length, the largest and the smallest time. */
    for (size_t i = 0; i < DELIVERED_MAX; i++) {
        for (size_t b = 0; b < sizeof bytes[i]; b++) {
            bytes[i][b] = (char)random_next(&random);
        }
        list[i] = (struct store_delivery){.stamp = INT64_MAX - i * 300000,
                                          .item = slice_of(bytes[i], 1 + random_below(&random, 255)),
                                          .which = (uint32_t)i};
    }
    for (size_t n = 1; n < 300; n++) {
        round_trip(list, n);
    }
    round_trip(list, DELIVERED_MAX);
    list[1].stamp = 0;
    round_trip(list, 2);
    list[1].stamp = list[0].stamp;
    round_trip(list, 2);
    for (size_t i = 0; i < DELIVERED_MAX; i++) {
        list[i].stamp = i < DELIVERED_MAX / 2 ? INT64_MAX : 0;
        list[i].item = slice_of(bytes[i], 255);
    }
    round_trip(list, DELIVERED_MAX);
    memset(bytes, 'x', sizeof bytes);
    assert_true(round_trip(list, DELIVERED_MAX) < 1000);
}

/* As many of everything as there can be, and drawn ones. */
static void test_round_trip_times(void **state)
{
    (void)state;
    enum { ALL = DELIVERED_MAX * DELIVERED_TIMES };
    struct store_delivery *list = calloc(ALL, sizeof *list);
    char(*items)[16] = calloc(ALL, sizeof *items);
    uint64_t random = 13;
    for (size_t i = 0; i < ALL; i++) {
        struct slice item = slice_of(items[i], (size_t)snprintf(items[i], 16, "i%u", (unsigned)(i % DELIVERED_MAX)));
        list[i] = (struct store_delivery)SENT((int64_t)(ALL - i) * 1000000, hash_id(SEED, item), item);
        list[i].stamp += random_below(&random, 1 << 20);
        list[i].group = random_next(&random);
    }
    assert_int_equal(unite(list, ALL, DELIVERED_MAX), ALL - DELIVERED_MAX * (DELIVERED_TIMES - 1));
    for (size_t i = 0; i < ALL; i++) { /* whole: the cut of the last item is the rule's, not the blob's */
        list[i].which = (uint32_t)(i % DELIVERED_MAX);
        list[i].nth = (uint32_t)(i / DELIVERED_MAX);
    }
    round_trip(list, ALL);
    for (int round = 0; round < 500; round++) {
        struct store_delivery *drawn = many(200, 1 + random_below(&random, 60), &random, items);
        for (size_t i = 0; i < 200; i++) {
            drawn[i].group = round % 2 == 0 ? random_below(&random, 4) : 0;
        }
        round_trip(drawn, unite(drawn, 200, 1 + random_below(&random, 60)));
        free(drawn);
    }
    free(items);
    free(list);
}

/* Stored bytes, which every later version must read. */
static const uint8_t golden_1[] = {0x20, 2, 0xac, 0x02, 44, 1, 'a', 2, 'b', 'c', 0x21, 0x58, 0x7f, 0x93};
static const uint8_t golden_2[] = {0x46, 2, 3, 0xac, 0x02, 0, 44, 5, 1, 7, 0, 0,   2, 1,   0,
                                   1,    1, 9, 0,    0,    0, 0,  0, 0, 0, 1, 'a', 2, 'b', 'c'};

static void test_golden(void **state)
{
    (void)state;
    struct store_delivery *back, list[] = {delivery(300, "a"), delivery(300, "bc"), delivery(256, "a")};
    struct buf out = {0};
    size_t n;
    struct err err;
    uint32_t sum = (uint32_t)hash_checksum(golden_2, sizeof golden_2);
    list[0].stamp += 5;
    list[1].stamp += 4;
    list[2].stamp += 7;
    list[0].group = list[2].group = 9;
    assert_int_equal(unite(list, 3, 100), 3);
    assert_int_equal(pack(&codec, list, 3, &out), 0);
    assert_int_equal(out.len, sizeof golden_2 + 4);
    assert_memory_equal(out.data, golden_2, sizeof golden_2);
    assert_memory_equal(out.data + sizeof golden_2, &sum, 4);
    assert_false(delivered_is_old(buf_slice(&out)));

    /* What has no times has been long ago, in its order. */
    arena_reset(&arena);
    assert_int_equal(decode(golden_1, sizeof golden_1, &back, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_true(back[0].stamp == delivered_stamp(DELIVERED_MAX, 0) && slice_eq(back[0].item, slice_str("a")));
    assert_true(back[1].stamp == delivered_stamp(DELIVERED_MAX - 1, 0) && slice_eq(back[1].item, slice_str("bc")));
    assert_true(back[1].which == 1 && back[1].nth == 0);
    out.len = 0;
    assert_int_equal(delivered_pack_old(&codec, &(struct delivered){.list = list, .n = 3}, &out), 0);
    assert_true(delivered_is_old(buf_slice(&out)));
    arena_reset(&arena);
    assert_int_equal(decode(out.data, out.len, &back, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_true(slice_eq(back[0].item, slice_str("a")) && slice_eq(back[1].item, slice_str("bc")));
    buf_free(&out);
}

static void test_encode_refuses(void **state)
{
    (void)state;
    static struct store_delivery list[DELIVERED_MAX + 1];
    char longest[256] = "";
    struct buf out = {0};
    for (size_t i = 0; i <= DELIVERED_MAX; i++) {
        list[i] = delivery(DELIVERED_MAX - i, "x");
        list[i].which = (uint32_t)i;
    }
    buf_add(&out, "z", 1);
    assert_int_equal(pack(&codec, list, DELIVERED_MAX + 1, &out), ERR_INVALID);
    list[7].stamp = list[6].stamp + 1;
    assert_int_equal(pack(&codec, list, 7, &out), 0);
    out.len = 1;
    assert_int_equal(pack(&codec, list, 8, &out), ERR_INVALID);
    list[3].which = 4;
    assert_int_equal(pack(&codec, list, 4, &out), ERR_INVALID);
    list[3].which = 3;
    list[3].nth = 1;
    assert_int_equal(pack(&codec, list, 4, &out), ERR_INVALID);
    list[3].nth = 0;
    list[3].item.len = 0;
    assert_int_equal(pack(&codec, list, 4, &out), ERR_INVALID);
    list[3].item = slice_of(longest, sizeof longest);
    assert_int_equal(pack(&codec, list, 4, &out), ERR_INVALID);
    list[3].item.len--;
    assert_int_equal(out.len, 1);
    assert_int_equal(pack(&codec, list, 4, &out), 0);
    buf_free(&out);
}

/* Any change of any bit, and every length, is refused. */
static void test_damage(void **state)
{
    (void)state;
    uint64_t random = 10;
    static char items[60][16];
    struct store_delivery *list = many(60, 1000, &random, items), *back;
    size_t n = unite(list, 60, 60), n_back;
    struct buf out = {0};
    struct err err;
    assert_int_equal(pack(&codec, list, n, &out), 0);
    assert_int_equal(out.data[0], 0x43);
    for (size_t len = 0; len < out.len; len++) {
        assert_int_equal(decode(out.data, len, &back, &n_back, &err), ERR_CORRUPT);
        assert_true(back == NULL && n_back == 0);
    }
    for (size_t bit = 0; bit < out.len * 8; bit++) {
        out.data[bit / 8] = (char)(out.data[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(decode(out.data, out.len, &back, &n_back, &err), ERR_CORRUPT);
        out.data[bit / 8] = (char)(out.data[bit / 8] ^ 1 << bit % 8);
        arena_reset(&arena);
    }
    /* With a right checksum it may be accepted, but then it's a list like any other. */
    size_t accepted = 0;
    for (size_t round = 0; round < 20000; round++) {
        uint8_t bad[2048];
        size_t len = out.len - 4;
        memcpy(bad, out.data, len);
        for (size_t k = 0; k <= round % 3; k++) {
            bad[random_below(&random, len)] = (uint8_t)random_next(&random);
        }
        uint32_t sum = (uint32_t)hash_checksum(bad, len);
        memcpy(bad + len, &sum, 4);
        arena_reset(&arena);
        if (decode(bad, len + 4, &back, &n_back, &err) == 0) {
            accepted++;
            round_trip(back, n_back);
        }
    }
    assert_true(accepted > 0);
    free(list);
    buf_free(&out);
}

/* Hand-made: a first byte, what follows, and what must be said. */
static void test_hand_made(void **state)
{
    (void)state;
#define B(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
    const struct {
        const uint8_t *bytes;
        size_t len;
        const char *says; /* NULL: good */
    } table[] = {
        {B(0x20, 0), NULL},
        {B(0x20, 1, 5, 1, 'x'), NULL},
        {B(0x20, 2, 5, 5, 1, 'x', 1, 'y'), NULL},
        {B(0x40, 0), NULL},
        {B(0x60, 0), "version"},
        {B(0x48, 0), "version"},
        {B(0x40, 1, 5, 0, 1, 'x'), NULL},
        {B(0x40, 2, 5, 0, 3, 3, 1, 'x', 1, 'y'), NULL},
        {B(0x40, 2, 5, 0, 3, 4, 1, 'x', 1, 'y'), "delivery 2 of 2 has a broken sub"},
        {B(0x40, 2, 5, 1, 3, 4, 1, 'x', 1, 'y'), NULL},
        {B(0x40, 2, 5, 6, 3, 4, 1, 'x', 1, 'y'), "delivery 2 of 2 has a broken time"},
        {B(0x40, 1, 5, 0x80, 0x80, 0x40, 1, 'x'), "sub"}, /* 2^20 */
        {B(0x42, 1, 1, 5, 0, 0, 1, 'x'), "count"},
        {B(0x42, 1, 16, 5, 0, 0, 1, 'x'), "count"},
        {B(0x42, 1, 2, 5, 1, 0, 0, 0, 1, 1, 'x'), NULL},
        {B(0x42, 1, 2, 5, 0, 0, 0, 0, 1, 1, 'x'), "delivery 2 of 2 has a broken item"}, /* the same ms */
        {B(0x42, 1, 2, 5, 1, 0, 0, 1, 1, 1, 'x'), "delivery 1 of 2 has a broken item"},
        {B(0x42, 1, 2, 5, 1, 0, 0, 0, 0, 1, 'x'), "delivery 2 of 2 has a broken item"},
        {B(0x42, 1, 2, 5, 1, 0, 0, 0, 2, 1, 'x'), "delivery 2 of 2 has a broken item"},
        {B(0x44, 1, 5, 0, 1, 1, 7, 0, 0, 0, 0, 0, 0, 0, 1, 'x'), NULL},
        {B(0x44, 1, 5, 0, 0, 0, 1, 'x'), NULL},
        {B(0x44, 1, 5, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x'), "delivery 1 of 1 has a broken group"},
        {B(0x44, 1, 5, 0, 1, 0, 1, 'x'), "delivery 1 of 1 has a broken group"},
        {B(0x44, 1, 5, 0, 1, 1, 7, 0), "number of groups"},
        {B(0x00, 0), "version"},
        {B(0x22, 0), "version"},
        {B(0x20), "fewer"},
        {B(0x20, 0, 0), "1 bytes behind"},
        {B(0x20, 1), "count"},
        {B(0x20, 2, 5, 1, 'x'), "count"},
        {B(0x20, 0x81, 0x00, 5, 1, 'x'), "count"},
        {B(0x20, 0x91, 0x4e, 5, 1, 'x'), "count"}, /* DELIVERED_MAX + 1 */
        {B(0x20, 1, 0x85, 0x00, 1, 'x'), "id"},
        {B(0x20, 2, 5, 6, 1, 'x', 1, 'y'), "delivery 2 of 2 has a broken id"},
        {B(0x20, 1, 0x80, 0x80, 0x80), "id"},
        {B(0x20, 1, 5, 0, 'x'), "delivery 1 of 1 is cut off or empty"},
        {B(0x20, 1, 5, 3, 'x', 'y'), "cut off"},
        {B(0x20, 2, 5, 1, 3, 'x', 'y', 'z'), "delivery 2 of 2 is cut off"},
        {B(0x20, 1, 5, 1, 'x', 'y'), "1 bytes behind"},
        {B(0x21, 0x85, 0x00, 1), "length at byte 1"},
        {B(0x21, 0x80), "length at byte 1"},
        {B(0x21, 0), "of 0 bytes"},
        {B(0x21, 5), "decompress"},
        {B(0x21, 5, 1, 2, 3, 4), "decompress"},
        {B(0x21, 0xff, 0xff, 0xff, 0x7f, 1), "expected 1 to"},
        {B(0x21, 5, 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0), "decompress"}, /* a frame to be skipped */
    };
#undef B
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        uint8_t blob[64];
        struct store_delivery *back;
        size_t n;
        struct err err = {0};
        memcpy(blob, table[i].bytes, table[i].len);
        uint32_t sum = (uint32_t)hash_checksum(blob, table[i].len);
        memcpy(blob + table[i].len, &sum, 4);
        arena_reset(&arena);
        int rc = decode(blob, table[i].len + 4, &back, &n, &err);
        if (rc != (table[i].says == NULL ? 0 : ERR_CORRUPT) ||
            (table[i].says != NULL && strstr(err.text, table[i].says) == NULL)) {
            fail_msg("row %u: %d, \"%s\"", (unsigned)i, rc, err.text);
        }
    }
}

static size_t frame(uint8_t *blob, size_t room, uint64_t claimed, const void *bytes, size_t len)
{
    blob[0] = 0x21;
    size_t at = 1 + varint_put(blob + 1, claimed);
    size_t compressed = ZSTD_compress(blob + at, room - at, bytes, len, 1);
    assert_false(ZSTD_isError(compressed));
    return at + compressed;
}

static int decode_sealed(uint8_t *blob, size_t len)
{
    struct store_delivery *back;
    size_t n;
    uint32_t sum = (uint32_t)hash_checksum(blob, len);
    memcpy(blob + len, &sum, 4);
    arena_free(&arena);
    return decode(blob, len + 4, &back, &n, NULL);
}

/* As many as a blob may hold, and one more. */
static void test_count(void **state)
{
    (void)state;
    static uint8_t blob[8 + 3 * (DELIVERED_MAX + 1)];
    for (size_t n = DELIVERED_MAX; n <= DELIVERED_MAX + 1; n++) {
        memset(blob, 1, sizeof blob); /* items of one byte, 1 */
        blob[0] = 0x20;
        size_t at = 1 + varint_put(blob + 1, n);
        blob[at] = 0x7f; /* all of one id */
        memset(blob + at + 1, 0, n - 1);
        assert_int_equal(decode_sealed(blob, at + 3 * n), n > DELIVERED_MAX ? ERR_CORRUPT : 0);
    }
}

/* Frames that claim a wrong length, bombs, two frames. */
static void test_bombs(void **state)
{
    (void)state;
    enum { HUGE = 64 * 1024 * 1024, ROOM = 32 * 1024 };
    static uint8_t blob[ROOM];
    uint8_t payload[40] = {1, 5, 37};
    void *zeros = calloc(1, HUGE);
    assert_int_equal(decode_sealed(blob, frame(blob, ROOM, sizeof payload, payload, sizeof payload)), 0);
    size_t len = frame(blob, ROOM, sizeof payload, payload, sizeof payload);
    assert_int_equal(decode_sealed(blob, frame(blob, ROOM, sizeof payload + 1, payload, sizeof payload)), ERR_CORRUPT);
    assert_int_equal(decode_sealed(blob, frame(blob, ROOM, sizeof payload - 1, payload, sizeof payload)), ERR_CORRUPT);

    /* What it claims is too much: nothing is allocated. What it claims is little: no more than that. */
    assert_int_equal(decode_sealed(blob, frame(blob, ROOM, HUGE, zeros, HUGE)), ERR_CORRUPT);
    assert_int_equal(arena.bytes, 0);
    assert_int_equal(decode_sealed(blob, frame(blob, ROOM, 100, zeros, HUGE)), ERR_CORRUPT);
    assert_in_range(arena.bytes, 1, 128 * 1024);

    len = frame(blob, ROOM, sizeof payload, payload, sizeof payload);
    size_t first = len;
    len += ZSTD_compress(blob + len, ROOM - len, "", 0, 1);
    assert_true(len > first);
    assert_int_equal(decode_sealed(blob, len), ERR_CORRUPT);
    free(zeros);
}

static void test_no_memory(void **state)
{
    (void)state;
    static char items[100][16];
    uint64_t random = 11;
    struct store_delivery *list = many(100, 100000, &random, items), *back;
    size_t n = unite(list, 100, 100), n_back;
    for (int after = 0;; after++) {
        struct buf out = {0};
        struct delivered_codec fresh = {0};
        struct arena own = {0};
        alloc_fail_after(after);
        int rc = pack(&fresh, list, n, &out);
        if (rc == 0) {
            rc = unpack(&fresh, out.data, out.len, SEED, &own, &back, &n_back, NULL);
        } else {
            assert_int_equal(out.len, 0);
        }
        alloc_fail_after(-1);
        assert_int_equal(rc, alloc_failed ? ERR_NOMEM : 0);
        delivered_codec_free(&fresh);
        arena_free(&own);
        buf_free(&out);
        if (!alloc_failed) {
            assert_true(after >= 3);
            break;
        }
    }
    free(list);
}

/* --- a line to look at --- */

static void test_figures(void **state)
{
    (void)state;
    static char items[100][32];
    struct store_delivery list[300];
    uint64_t random = 12;
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < 300; i++) {
            char *item = items[i % 100];
            static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            int len = snprintf(item, 32, "video:%u", (unsigned)random_below(&random, 10000000));
            for (len = kind == 0 ? 0 : len; kind == 0 && len < 11; len++) {
                item[len] = letters[random_below(&random, 64)];
            }
            struct slice text = slice_of(item, (size_t)len);
            list[i] = (struct store_delivery)SENT((int64_t)random_below(&random, 1000000), hash_id(SEED, text), text);
        }
        enum { TIMES = 200 };
        struct store_delivery copy[300], *back;
        size_t n = 0, n_back, len = 0;
        int64_t us[3] = {0};
        for (int t = 0; t < TIMES; t++) {
            struct buf out = {0};
            memcpy(copy, list, sizeof list);
            int64_t start = clock_real_us();
            n = unite(copy, 200, 100);
            int64_t a = clock_real_us();
            assert_int_equal(pack(&codec, copy, n, &out), 0);
            int64_t b = clock_real_us();
            arena_reset(&arena);
            assert_int_equal(unpack(&codec, out.data, out.len, SEED, &arena, &back, &n_back, NULL), 0);
            us[0] += a - start;
            us[1] += b - a;
            us[2] += clock_real_us() - b;
            len = out.len;
            buf_free(&out);
        }
        print_message("%s: %u items in %u bytes; last of 200: %.1f us, encode %.1f us, decode %.1f us\n",
                      kind == 0 ? "dQw4w9WgXcQ  " : "video:2945340", (unsigned)n, (unsigned)len, (double)us[0] / TIMES,
                      (double)us[1] / TIMES, (double)us[2] / TIMES);
    }
}

static int finish(void **state)
{
    (void)state;
    delivered_codec_free(&codec);
    arena_free(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last),
        cmocka_unit_test(test_last_against_plain),
        cmocka_unit_test(test_last_large),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_one_time),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_unite_laws),
        cmocka_unit_test(test_unsee),
        cmocka_unit_test(test_has),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_round_trip_times),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_encode_refuses),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_hand_made),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, finish);
}
