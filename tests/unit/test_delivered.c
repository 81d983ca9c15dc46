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

enum { SEED = 42 };

/* --- lists of tests --- */

static size_t unite(struct store_delivery *list, size_t n, size_t max)
{
    struct delivered d = {.list = list, .n = n};
    delivered_unite(&d, max);
    return d.n;
}

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

static struct store_delivery delivery(uint64_t id, const char *item)
{
    return (struct store_delivery){id, hash_id(SEED, slice_str(item)), slice_str(item)};
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
                 (unsigned)copy[i].id);
    }
    assert_string_equal(got, expected);
}

static void test_last(void **state)
{
    (void)state;
    const struct store_delivery list[] = {delivery(3, "a"), delivery(9, "b"), delivery(5, "c"), delivery(7, "a"),
                                          delivery(1, "d"), delivery(9, "b"), delivery(2, "b")};
    check_last(list, 7, 100, "b9 a7 c5 d1");
    check_last(list, 7, 4, "b9 a7 c5 d1");
    check_last(list, 7, 3, "b9 a7 c5");
    check_last(list, 7, 1, "b9");
    check_last(list, 7, 0, "");
    check_last(list, 1, 100, "a3");
    check_last(list, 4, 100, "b9 a7 c5");
    check_last(list, 0, 100, "");
    assert_int_equal(unite(NULL, 0, 100), 0);

    /* One hash, two items: told apart by their bytes. */
    struct store_delivery same[] = {delivery(1, "x"), delivery(2, "y"), delivery(3, "xx"), delivery(4, "x")};
    for (size_t i = 0; i < 4; i++) {
        same[i].hash = 5;
    }
    check_last(same, 4, 100, "x4 xx3 y2");
}

/* The union of both, as "a7 b5"; and the same when theirs come once more. */
static void check_rank(const struct store_delivery *ours, size_t n_ours, const struct store_delivery *theirs,
                       size_t n_theirs, size_t max, const char *expected)
{
    struct delivered all = {0}, came = {0};
    assert_int_equal(delivered_add(&all, ours, n_ours), 0);
    for (int times = 0; times < 2; times++) {
        came.n = 0;
        assert_int_equal(delivered_add(&came, theirs, n_theirs), 0);
        delivered_rank(&all, &came);
        assert_int_equal(delivered_add(&all, came.list, came.n), 0);
        check_last(all.list, all.n, max, expected);
        delivered_unite(&all, max);
    }
    delivered_free(&all);
    delivered_free(&came);
}

static void test_rank(void **state)
{
    (void)state;
    const struct store_delivery ours[] = {delivery(90, "a"), delivery(50, "b"), delivery(20, "c")};
    const struct store_delivery theirs[] = {delivery(7000, "x"), delivery(6000, "a"), delivery(5, "y"),
                                            delivery(4, "z"), delivery(3, "w")};
    const struct store_delivery batch[] = {delivery(9, "x"), delivery(9, "y"), delivery(8, "z")};
    check_rank(ours, 3, theirs, 1, 100, "a90 x90 b50 c20");
    check_rank(ours, 3, theirs, 5, 100, "a90 x90 b50 c20 y20 z19 w18"); /* a has a higher id here */
    check_rank(ours, 3, theirs + 2, 3, 100, "a90 y90 b50 z50 w20 c20"); /* of one rank: by hash */
    check_rank(ours, 3, theirs + 2, 3, 5, "a90 y90 b50 z50 w20");
    check_rank(ours, 3, theirs + 2, 3, 3, "a90 y90 b50");
    check_rank(ours, 3, batch, 3, 100, "a90 x90 y90 b50 z50 c20"); /* sent together */
    check_rank(NULL, 0, theirs, 3, 100, "x3 a2 y1");
    check_rank(ours, 3, NULL, 0, 100, "a90 b50 c20");
    check_rank(ours, 1, theirs + 1, 3, 100, "a90 y89 z88"); /* the same item has rank 1 in both */
}

static struct store_delivery *many(size_t n, size_t distinct, uint64_t *random, char (*items)[16])
{
    struct store_delivery *list = calloc(n > 0 ? n : 1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < n; i++) {
        uint64_t number = random_below(random, distinct);
        size_t len = (size_t)snprintf(items[i], 16, "i%u", (unsigned)number);
        struct slice item = slice_of(items[i], len);
        list[i] = (struct store_delivery){random_below(random, 3 * n + 1), hash_id(SEED, item), item};
    }
    return list;
}

/* The rule said plainly: again and again the newest whose item isn't there yet. */
static size_t plain_last(const struct store_delivery *list, size_t n, size_t max, struct store_delivery *out)
{
    size_t left = 0;
    bool *taken = calloc(n + 1, sizeof *taken);
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i < n; i++) {
            if (!taken[i] && (best == n || list[i].id > list[best].id)) {
                best = i;
            }
        }
        if (best == n || left == max) {
            free(taken);
            return left;
        }
        taken[best] = true;
        bool there = false;
        for (size_t i = 0; i < left; i++) {
            there |= slice_eq(out[i].item, list[best].item);
        }
        if (!there) {
            out[left++] = list[best];
        }
    }
}

static int newest_first(const void *a, const void *b)
{
    const struct store_delivery *x = a, *y = b;
    return x->id != y->id ? (x->id < y->id) - (x->id > y->id) : (x->hash < y->hash) - (x->hash > y->hash);
}

static void test_last_against_plain(void **state)
{
    (void)state;
    uint64_t random = 7;
    static char items[400][16];
    for (size_t round = 0; round < 2000; round++) {
        size_t n = random_below(&random, round % 100 == 0 ? 400 : 40);
        struct store_delivery *list = many(n, 1 + random_below(&random, 60), &random, items);
        /* Ids are unique but for the same delivery, stored and still staged. */
        for (size_t i = 0; i < n; i++) {
            list[i].id = list[i].id * n + i;
            if (i > 0 && i % 7 == 0) {
                list[i] = list[i - 1];
            }
        }
        if (round % 3 == 0 && n > 0) {
            qsort(list, n, sizeof *list, newest_first);
        }
        size_t max = random_below(&random, 50);
        struct store_delivery expected[50];
        size_t left = plain_last(list, n, max, expected);
        assert_int_equal(unite(list, n, max), left);
        for (size_t i = 0; i < left; i++) {
            assert_int_equal(list[i].id, expected[i].id);
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
        list[i].id = i * 7919 % N;
    }
    assert_int_equal(unite(list, N, SIZE_MAX), DELIVERED_MAX);
    for (size_t i = 1; i < DELIVERED_MAX; i++) {
        assert_true(list[i].id < list[i - 1].id);
    }
    free(list);
    list = many(N, 1, &random, items);
    uint64_t newest = 0;
    for (size_t i = 0; i < N; i++) {
        newest = list[i].id > newest ? list[i].id : newest;
    }
    assert_int_equal(unite(list, N, 100), 1);
    assert_int_equal(list[0].id, newest);
    free(list);
    free(items);
}

/* --- the laws --- */

enum { DRAWN = 40 };

struct drawn {
    struct store_delivery list[DRAWN];
    size_t n;
};

/* Of few items, so that both sides have the same ones; with equal ids, as one row that two places have. */
static void draw(struct drawn *d, uint64_t *random)
{
    static char names[12][4];
    d->n = random_below(random, DRAWN + 1);
    for (size_t i = 0; i < d->n; i++) {
        size_t number = random_below(random, 12);
        snprintf(names[number], sizeof names[number], "i%u", (unsigned)number);
        d->list[i] = delivery(random_below(random, 60), names[number]);
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
        assert_int_equal(a->list[i].id, b->list[i].id);
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
        struct delivered_unseen what = {hashes, round % 2 == 0 ? items : NULL, random_below(&random, 4),
                                        random_below(&random, 3) == 0 ? random_below(&random, 60) : 0};
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
            assert_true(x.list[i].id >= what.cut);
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
                there = there || (x.list[j].id == b.list[i].id && slice_eq(x.list[j].item, b.list[i].item));
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
    assert_true(d.list != theirs && d.n == 3 && d.list[0].id == 2 && d.list[2].id == 3);
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
        assert_true(back[i].id == list[i].id && slice_eq(back[i].item, list[i].item));
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

    /* Any bytes, any length, the largest and the smallest id. */
    for (size_t i = 0; i < DELIVERED_MAX; i++) {
        for (size_t b = 0; b < sizeof bytes[i]; b++) {
            bytes[i][b] = (char)random_next(&random);
        }
        list[i] = (struct store_delivery){UINT64_MAX - i * 3, 0, slice_of(bytes[i], 1 + random_below(&random, 255))};
    }
    for (size_t n = 1; n < 300; n++) {
        round_trip(list, n);
    }
    round_trip(list, DELIVERED_MAX);
    list[1].id = 0;
    round_trip(list, 2);
    list[1].id = list[0].id; /* not expected, but no reason to lose a user's list */
    round_trip(list, 2);
    for (size_t i = 0; i < DELIVERED_MAX; i++) {
        list[i] = (struct store_delivery){i < DELIVERED_MAX / 2 ? UINT64_MAX : 0, 0, slice_of(bytes[i], 255)};
    }
    round_trip(list, DELIVERED_MAX); /* the largest payload but for the ids */
    memset(bytes, 'x', sizeof bytes);
    assert_true(round_trip(list, DELIVERED_MAX) < 1000);
}

/* Stored bytes of version 1, which every later version must read. */
static const uint8_t golden[] = {0x20, 2, 0xac, 0x02, 44, 1, 'a', 2, 'b', 'c', 0x21, 0x58, 0x7f, 0x93};

static void test_golden(void **state)
{
    (void)state;
    struct store_delivery list[] = {delivery(300, "a"), delivery(256, "bc")};
    struct buf out = {0};
    assert_int_equal(pack(&codec, list, 2, &out), 0);
    assert_int_equal(out.len, sizeof golden);
    assert_memory_equal(out.data, golden, sizeof golden);
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
    }
    buf_add(&out, "z", 1);
    assert_int_equal(pack(&codec, list, DELIVERED_MAX + 1, &out), ERR_INVALID);
    list[7].id = list[6].id + 1;
    assert_int_equal(pack(&codec, list, 7, &out), 0);
    out.len = 1;
    assert_int_equal(pack(&codec, list, 8, &out), ERR_INVALID);
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
    assert_int_equal(out.data[0], 0x21);
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
        {B(0x40, 0), "version"},
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
            list[i] = (struct store_delivery){random_below(&random, 1000000), hash_id(SEED, text), text};
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
        cmocka_unit_test(test_rank),
        cmocka_unit_test(test_unite_laws),
        cmocka_unit_test(test_unsee),
        cmocka_unit_test(test_has),
        cmocka_unit_test(test_add),
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
