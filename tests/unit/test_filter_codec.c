/* The blob: what is written comes back, known bytes stay what they are, and bad bytes are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "filter/filter.h"
#include "tests/lib/random.h"

#define COARSE_M (FILTER_LIVE_M >> FILTER_GRAIN)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static void *must_alloc(size_t size)
{
    void *p = malloc(size + 1);
    assert_non_null(p);
    return p;
}

static void seal(uint8_t *blob, size_t len)
{
    uint64_t sum = hash_checksum(blob, len - 4);
    for (int i = 0; i < 4; i++) {
        blob[len - 4 + (size_t)i] = (uint8_t)(sum >> (8 * i));
    }
}

/* What a scan hands over is compared with what was decoded. */
struct expected {
    const struct filter *filter;
    unsigned part; /* that the runs are of, once there is one */
    uint32_t n;    /* of its positions seen */
    unsigned begun;
};

static void see_expected(void *arg, const struct filter_part *scanned, uint32_t before, const uint32_t *positions,
                         uint32_t n)
{
    struct expected *e = arg;
    assert_true(n > 0 && n <= FILTER_RUN);
    if (e->filter == NULL) {
        return; /* it's going to be refused */
    }
    if (before == 0) {
        e->part = e->begun++;
        e->n = 0;
    }
    const struct filter_part *part = &e->filter->parts[e->part];
    assert_true(e->part < e->filter->n_parts && part->m == scanned->m && part->coarse == scanned->coarse);
    assert_true(e->n == before && n <= part->n - before);
    assert_true(part->fine == scanned->fine && part->n_open == scanned->n_open);
    if (part->fine) {
        assert_memory_equal(part->tails, scanned->tails, part->n);
    }
    assert_memory_equal(part->positions + before, positions, n * sizeof *positions);
    e->n += n;
}

/* The same bytes scanned: the same filter without positions, or the same error. */
static void scan_too(const void *blob, size_t len, int rc, const struct filter *decoded, const struct err *err)
{
    struct expected e = {.filter = rc == 0 ? decoded : NULL};
    struct filter scanned;
    struct err why = {0};
    assert_int_equal(filter_scan(blob, len, see_expected, &e, &scanned, &why), rc);
    assert_string_equal(why.text, rc == 0 ? "" : err->text);
    assert_int_equal(scanned.n_parts, decoded->n_parts);
    assert_true(rc != 0 || e.begun == decoded->n_parts);
    for (unsigned i = 0; i < scanned.n_parts; i++) {
        assert_null(scanned.parts[i].positions);
        assert_null(scanned.parts[i].tails);
        assert_int_equal(scanned.parts[i].n, decoded->parts[i].n);
        assert_true(scanned.parts[i].m == decoded->parts[i].m);
    }
}

/* Decodes a copy of exactly len bytes, so that a sanitizer sees a read outside of it. */
static int decode_copy(const uint8_t *blob, size_t len, struct arena *arena, struct filter *out, struct err *err)
{
    uint8_t *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    if (len > 0) {
        memcpy(copy, blob, len);
    }
    err->code = 0;
    int rc = filter_decode(len > 0 ? copy : copy + 1, len, arena, out, err);
    scan_too(len > 0 ? copy : copy + 1, len, rc, out, err);
    free(copy);
    if (rc != 0) {
        assert_int_equal(rc, ERR_CORRUPT);
        assert_int_equal(err->code, ERR_CORRUPT);
        assert_true(strstr(err->text, "month filter of ") == err->text);
        assert_int_equal(out->n_parts, 0);
    }
    /* Each byte can stand for eight positions of four bytes; 64 KiB is the arena's smallest block. */
    assert_true(arena->bytes <= 64 * len + 2 * 65536);
    return rc;
}

static void assert_same(const struct filter *a, const struct filter *b)
{
    assert_int_equal(a->n_parts, b->n_parts);
    for (unsigned i = 0; i < a->n_parts; i++) {
        assert_int_equal(a->parts[i].n, b->parts[i].n);
        assert_true(a->parts[i].m == b->parts[i].m);
        assert_int_equal(a->parts[i].coarse, b->parts[i].coarse);
        assert_memory_equal(a->parts[i].positions, b->parts[i].positions, a->parts[i].n * sizeof(uint32_t));
        assert_int_equal(a->parts[i].fine, b->parts[i].fine);
        assert_int_equal(a->parts[i].n_open, b->parts[i].n_open);
        if (a->parts[i].fine) {
            assert_memory_equal(a->parts[i].tails, b->parts[i].tails, a->parts[i].n);
        }
    }
}

/* Encodes f behind other bytes, decodes it, and compares; empty parts are expected to be gone. */
static size_t assert_round_trip(const struct filter *f)
{
    struct filter expected = {0}, decoded;
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (f->parts[i].n > 0) {
            expected.parts[expected.n_parts++] = f->parts[i];
        }
    }
    struct buf out = {0};
    struct arena arena = {0};
    struct err err;
    assert_int_equal(buf_add(&out, "before", 6), 0);
    assert_int_equal(filter_encode(f, &out), 0);
    assert_memory_equal(out.data, "before", 6);
    size_t len = out.len - 6;
    assert_int_equal(decode_copy((uint8_t *)out.data + 6, len, &arena, &decoded, &err), 0);
    assert_same(&decoded, &expected);
    arena_free(&arena);
    buf_free(&out);
    return len;
}

static size_t round_trip_part(uint32_t *positions, uint32_t n, uint64_t m)
{
    struct filter f = {.n_parts = 1, .parts = {{.positions = positions, .n = n, .m = m}}};
    if (m <= COARSE_M) { /* the same as a coarse part; at 2^27, which is live there, it is smaller */
        f.parts[0].coarse = true;
        assert_round_trip(&f);
        f.parts[0].coarse = false;
    }
    return assert_round_trip(&f);
}

/* n distinct ascending positions below m. */
static uint32_t random_positions(uint32_t *v, uint32_t n, uint64_t m, uint64_t *seed)
{
    for (uint32_t i = 0; i < n; i++) {
        v[i] = (uint32_t)random_below(seed, m);
    }
    return filter_sort(v, n, NULL);
}

static void random_positions_come_back(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 2, 3, 7, 10, 31, 32, 33, 64, 100, 1000, 10000, 100000};
    static const uint64_t ranges[] = {1,      2,        3,       64,         1001,       65536,
                                      999983, 40000001, 1 << 27, 0x80000000, 0xffffffff, FILTER_LIVE_M};
    uint64_t seed = 11;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        uint32_t *v = must_alloc(sizes[s] * sizeof *v);
        for (size_t r = 0; r < COUNT(ranges); r++) {
            for (int repeat = 0; repeat < (sizes[s] < 1000 ? 20 : 1); repeat++) {
                round_trip_part(v, random_positions(v, sizes[s], ranges[r], &seed), ranges[r]);
            }
        }
        free(v);
    }
}

static void dense_and_clustered_runs_come_back(void **state)
{
    (void)state;
    enum { N = 65536 };
    uint64_t seed = 12;
    uint32_t *v = must_alloc(N * sizeof *v);
    static const uint32_t starts[] = {0, 1, 0x7fffffff, UINT32_MAX - N + 1};
    for (size_t s = 0; s < COUNT(starts); s++) {
        for (uint32_t step = 1; step < 4 && (step == 1 || s < 3); step++) {
            for (uint32_t i = 0; i < N; i++) {
                v[i] = starts[s] + i * step;
            }
            round_trip_part(v, N, FILTER_LIVE_M);
            round_trip_part(v, 33, FILTER_LIVE_M);
            round_trip_part(v, N, (uint64_t)v[N - 1] + 1);
        }
    }
    for (int repeat = 0; repeat < 50; repeat++) { /* runs with wide gaps between them */
        uint32_t at = 0, n = 0;
        while (n < 2000 && at < UINT32_MAX / 2) {
            at += random_below(&seed, 8) == 0 ? (uint32_t)random_below(&seed, 100000000) : 1;
            v[n++] = at++;
        }
        round_trip_part(v, n, FILTER_LIVE_M);
    }
    free(v);
}

static void the_largest_gaps_come_back(void **state)
{
    (void)state;
    uint32_t ends[] = {0, UINT32_MAX}, first[] = {0}, last[] = {UINT32_MAX}, before_last[] = {UINT32_MAX - 1};
    round_trip_part(ends, 2, FILTER_LIVE_M);
    round_trip_part(first, 1, FILTER_LIVE_M);
    round_trip_part(first, 1, 1);
    round_trip_part(last, 1, FILTER_LIVE_M);
    round_trip_part(before_last, 1, FILTER_LIVE_M - 1);

    uint32_t v[1000];
    for (uint32_t i = 0; i < 1000; i++) { /* one wide gap, then none */
        v[i] = UINT32_MAX - 999 + i;
    }
    for (uint32_t n = 1; n <= 1000; n++) {
        round_trip_part(v + 1000 - n, n, FILTER_LIVE_M);
    }
    for (uint32_t i = 0; i < 999; i++) { /* none, then one wide gap */
        v[i] = i;
    }
    for (uint32_t n = 1; n <= 1000; n++) {
        round_trip_part(v + 1000 - n, n, FILTER_LIVE_M);
    }
}

static void several_parts_come_back(void **state)
{
    (void)state;
    uint64_t seed = 13;
    for (int repeat = 0; repeat < 300; repeat++) {
        struct filter f = {.n_parts = (unsigned)random_below(&seed, FILTER_PARTS_MAX + 1)};
        for (unsigned i = 0; i < f.n_parts; i++) {
            uint64_t m =
                random_below(&seed, 2) ? FILTER_LIVE_M : 1 + (random_next(&seed) >> (32 + random_below(&seed, 32)));
            bool coarse = random_below(&seed, 3) == 0;
            m = coarse && m > COARSE_M ? COARSE_M : m;
            uint32_t n = (uint32_t)random_below(&seed, 1U << random_below(&seed, 10)); /* some are empty */
            uint32_t *v = must_alloc(n * sizeof *v);
            n = random_positions(v, n, m, &seed);
            f.parts[i] = (struct filter_part){.positions = v, .n = n, .m = m, .coarse = coarse};
            if (m == FILTER_LIVE_M && n > 0 && random_below(&seed, 2)) {
                f.parts[i].fine = true;
                f.parts[i].tails = must_alloc(n);
                for (uint32_t j = 0; j < n; j++) {
                    f.parts[i].tails[j] = (uint8_t)random_below(&seed, 1U << random_below(&seed, 9));
                    f.parts[i].n_open += f.parts[i].tails[j] == 0;
                }
            }
        }
        assert_round_trip(&f);
        for (unsigned i = 0; i < f.n_parts; i++) {
            free(f.parts[i].positions);
            free(f.parts[i].tails);
        }
    }
}

static void blobs_are_small(void **state)
{
    (void)state;
    static const struct {
        uint32_t n;
        size_t live, sealed; /* at most so many bytes */
    } limits[] = {{0, 5, 5}, {1, 12, 12}, {10, 46, 28}, {100, 350, 185}, {1000, 2970, 1715}, {10000, 25300, 17000}};
    uint64_t seed = 14;
    for (size_t i = 0; i < COUNT(limits); i++) {
        uint32_t *v = must_alloc(limits[i].n * sizeof *v);
        uint64_t m = (uint64_t)(limits[i].n / 2.5e-4) + 1;
        uint32_t n = random_positions(v, limits[i].n, FILTER_LIVE_M, &seed);
        size_t live = round_trip_part(v, n, FILTER_LIVE_M);
        struct filter_part part = {.positions = v, .n = n, .m = FILTER_LIVE_M};
        assert_int_equal(filter_cut(&part, m), 0);
        size_t sealed = round_trip_part(v, part.n, m);
        assert_in_range(live, 0, limits[i].live);
        assert_in_range(sealed, 0, limits[i].sealed);
        free(v);
    }
}

/* The length that another k would give, counted gap by gap. */
static void no_other_k_is_shorter(void **state)
{
    (void)state;
    uint64_t seed = 16;
    for (int repeat = 0; repeat < 500; repeat++) {
        uint32_t v[1000], n;
        if (repeat % 2) {
            uint64_t m = 1 + (random_next(&seed) >> (32 + random_below(&seed, 32)));
            n = random_positions(v, 1 + (uint32_t)random_below(&seed, 1000), m, &seed);
        } else { /* gaps of two lengths, for which the mean misleads */
            unsigned j = (unsigned)random_below(&seed, 12);
            uint32_t at = 0;
            for (n = 0; n < 1000; n++, at++) {
                at += (random_below(&seed, 5) < 2 ? 3U : 1U) << j;
                v[n] = at;
            }
        }
        uint64_t best = UINT64_MAX;
        for (unsigned k = 0; k < 32; k++) {
            uint64_t bits = 0;
            for (uint32_t i = 0; i < n; i++) {
                bits += k + 1 + ((i == 0 ? v[0] : v[i] - v[i - 1] - 1) >> k);
            }
            best = bits < best ? bits : best;
        }
        size_t head = 1 + 1 + (n < 128 ? 1 : 2);
        assert_int_equal(round_trip_part(v, n, FILTER_LIVE_M), head + (best + 7) / 8 + 4);
    }
}

static void encode_refuses_what_is_not_a_filter(void **state)
{
    (void)state;
    uint32_t equal[] = {1, 5, 5, 9}, falling[] = {1, 9, 5}, good[] = {1, 5, 9};
    uint8_t tails[] = {1, 2, 3};
    const struct filter_part wrong[] = {
        {.positions = equal, .n = 4, .m = FILTER_LIVE_M},
        {.positions = falling, .n = 3, .m = FILTER_LIVE_M},
        {.positions = good, .n = 3, .m = 9},
        {.positions = good, .n = 3, .m = 0},
        {.positions = good, .n = 3, .m = FILTER_LIVE_M + 1},
        {.positions = good, .n = 3, .m = COARSE_M + 1, .coarse = true},
        {.positions = good, .n = 3, .m = FILTER_LIVE_M, .fine = true},
        {.positions = good, .n = 3, .m = FILTER_LIVE_M - 1, .fine = true, .tails = tails},
        {.positions = good, .n = 3, .m = COARSE_M, .fine = true, .coarse = true, .tails = tails},
    };
    struct buf out = {0};
    assert_int_equal(buf_add(&out, "x", 1), 0);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct filter f = {.n_parts = 2, .parts = {{.positions = good, .n = 3, .m = 10}, wrong[i]}};
        assert_int_equal(filter_encode(&f, &out), ERR_INVALID);
        assert_int_equal(out.len, 1);
    }
    struct filter many = {.n_parts = FILTER_PARTS_MAX + 1};
    assert_int_equal(filter_encode(&many, &out), ERR_INVALID);
    assert_int_equal(out.len, 1);
    buf_free(&out);
}

/* Version 1 for ever: these bytes are on disks. */
static const uint8_t known_empty[] = {0x20, 0xcf, 0xb7, 0x3c, 0x10};
static const uint8_t known_two_parts[] = {
    0x22,                                                       /* version 1, two parts */
    0x9d, 0x04,                                                 /* live, k = 29, n = 4 */
    0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x3c, 0x00, 0x00, /* gaps 3, 0, 15, 2^32 - 22 */
    0x00, 0xf5, 0xff, 0xff, 0x7f, 0x40,                         /* */
    0x01, 0x03, 0xab, 0x02,                                     /* k = 1, n = 3, m = 300 */
    0x19, 0x01,                                                 /* gaps 1, 0, 6 */
    0x7c, 0x13, 0xc4, 0xed,                                     /* checksum */
};

/* And version 2, which has coarse parts. */
static const uint8_t known_coarse[] = {
    0x43,                                                 /* version 2, three parts */
    0xd8, 0x04,                                           /* coarse, live, k = 24, n = 4 */
    0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x00, 0x00, /* gaps 3, 0, 15, 2^27 - 22 */
    0xea, 0xff, 0xff, 0x07, 0x04,                         /* */
    0x41, 0x03, 0xab, 0x02,                               /* coarse, k = 1, n = 3, m = 300 */
    0x19, 0x01,                                           /* gaps 1, 0, 6 */
    0x82, 0x01, 0x0b,                                     /* live, k = 2, n = 1, gap 7 */
    0x2e, 0x52, 0xfe, 0x30,                               /* checksum */
};

static void known_coarse_bytes_stay_what_they_are(void **state)
{
    (void)state;
    uint32_t live[] = {3, 4, 20, (1U << 27) - 1}, sealed[] = {1, 2, 9}, late[] = {7};
    const struct filter f = {
        .n_parts = 3,
        .parts = {{.positions = live, .n = 4, .m = COARSE_M, .coarse = true},
                  {.positions = sealed, .n = 3, .m = 300, .coarse = true},
                  {.positions = late, .n = 1, .m = FILTER_LIVE_M}},
    };
    struct arena arena = {0};
    struct buf out = {0};
    struct filter decoded;
    struct err err;
    assert_int_equal(filter_encode(&f, &out), 0);
    assert_int_equal(out.len, sizeof known_coarse);
    assert_memory_equal(out.data, known_coarse, sizeof known_coarse);
    assert_int_equal(decode_copy(known_coarse, sizeof known_coarse, &arena, &decoded, &err), 0);
    assert_same(&decoded, &f);
    buf_free(&out);
    arena_free(&arena);
}

/* And version 3, which has fine parts. */
static const uint8_t known_fine[] = {
    0x62,                   /* version 3, two parts */
    0xc2, 0x01, 0x0b,       /* coarse, live, k = 2, n = 1, gap 7 */
    0xa2, 0x02, 0x11, 0x00, /* live, fine, k = 2, n = 2, tails 17 and any */
    0x5b,                   /* gaps 3, 6 */
    0x7e, 0x47, 0x6d, 0xb2, /* checksum */
};

static void known_fine_bytes_stay_what_they_are(void **state)
{
    (void)state;
    uint32_t coarse[] = {7}, positions[] = {3, 10};
    uint8_t tails[] = {17, 0};
    const struct filter f = {
        .n_parts = 2,
        .parts = {{.positions = coarse, .n = 1, .m = COARSE_M, .coarse = true},
                  {.positions = positions, .n = 2, .m = FILTER_LIVE_M, .fine = true, .tails = tails, .n_open = 1}},
    };
    struct arena arena = {0};
    struct buf out = {0};
    struct filter decoded;
    struct err err;
    assert_int_equal(filter_encode(&f, &out), 0);
    assert_int_equal(out.len, sizeof known_fine);
    assert_memory_equal(out.data, known_fine, sizeof known_fine);
    assert_int_equal(decode_copy(known_fine, sizeof known_fine, &arena, &decoded, &err), 0);
    assert_same(&decoded, &f);
    buf_free(&out);
    arena_free(&arena);
}

static void known_bytes_stay_what_they_are(void **state)
{
    (void)state;
    uint32_t live[] = {3, 4, 20, UINT32_MAX}, sealed[] = {1, 2, 9};
    const struct filter empty = {0};
    const struct filter two_parts = {
        .n_parts = 2,
        .parts = {{.positions = live, .n = 4, .m = FILTER_LIVE_M}, {.positions = sealed, .n = 3, .m = 300}},
    };
    struct arena arena = {0};
    struct buf out = {0};
    struct filter decoded;
    struct err err;

    assert_int_equal(filter_encode(&empty, &out), 0);
    assert_int_equal(out.len, sizeof known_empty);
    assert_memory_equal(out.data, known_empty, sizeof known_empty);
    assert_int_equal(decode_copy(known_empty, sizeof known_empty, &arena, &decoded, &err), 0);
    assert_int_equal(decoded.n_parts, 0);

    buf_clear(&out);
    assert_int_equal(filter_encode(&two_parts, &out), 0);
    assert_int_equal(out.len, sizeof known_two_parts);
    assert_memory_equal(out.data, known_two_parts, sizeof known_two_parts);
    assert_int_equal(decode_copy(known_two_parts, sizeof known_two_parts, &arena, &decoded, &err), 0);
    assert_same(&decoded, &two_parts);
    buf_free(&out);
    arena_free(&arena);
}

/* And the short form. */
static const uint8_t known_short_live[] = {
    0x83,                                                 /* live, n = 3, so k = 24 */
    0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0xfa, 0xff, 0xff, /* gaps 3, 0, 2^27 - 6 */
    0x03, 0x02,                                           /* */
    0x82,                                                 /* check */
};
static const uint8_t known_short_sealed[] = {
    0x93,                   /* m = 3 x 2^9, n = 3, so k = 8 */
    0x01, 0x00, 0xfc, 0x83, /* gaps 1, 0, 1532 */
    0x3f,                   /* check */
};

static struct filter_part coarse_part(uint32_t *positions, uint32_t n, uint64_t m)
{
    return (struct filter_part){.positions = positions, .n = n, .m = m, .coarse = true};
}

/* One with a right check. */
static void check_short(uint8_t *blob, size_t len)
{
    uint8_t check = 0; /* a bit at a time, as docs/format.md has it */
    for (size_t i = len - 1; i-- > 0;) {
        for (int bit = 7; bit >= 0; bit--) {
            check = (uint8_t)(check << 1 ^ (blob[i] >> bit & 1) ^ (check & 0x80 ? 0x07 : 0));
        }
    }
    for (int bit = 0; bit < 8; bit++) {
        check = (uint8_t)(check << 1 ^ (check & 0x80 ? 0x07 : 0));
    }
    blob[len - 1] = check;
}

/* All bits are ones, so each gap is 2^k - 1 and the unary run as short as it can be: the blob's end is nowhere nearer
 * to the low parts. */
static void the_shortest_runs_are_read(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 100; n++) {
        for (unsigned k = 0; k < 32 && (uint64_t)n << k <= FILTER_LIVE_M; k++) {
            uint8_t blob[3 + 100 * 32 / 8 + 4] = {0x21, (uint8_t)(0x80 | k), (uint8_t)n};
            uint32_t bits = n * (k + 1);
            memset(blob + 3, 0xff, bits / 8);
            blob[3 + bits / 8] = (uint8_t)((1U << (bits % 8)) - 1);
            size_t len = 3 + (bits + 7) / 8 + 4;
            seal(blob, len);
            struct arena arena = {0};
            struct filter f;
            struct err err;
            assert_int_equal(decode_copy(blob, len, &arena, &f, &err), 0);
            assert_int_equal(f.parts[0].n, n);
            for (uint32_t i = 0; i < n; i++) {
                assert_true(f.parts[0].positions[i] == ((uint64_t)(i + 1) << k) - 1);
            }
            arena_free(&arena);
        }
    }
}

static void few_positions_take_the_short_form(void **state)
{
    (void)state;
    uint64_t seed = 17;
    for (uint32_t n = 1; n <= 17; n++) {
        for (unsigned shift = 8; shift <= 17; shift++) {
            const bool live = shift == 17;
            const uint64_t m = live ? COARSE_M : (uint64_t)n << shift;
            for (int repeat = 0; repeat < 50; repeat++) {
                uint32_t v[17], kept;
                do {
                    kept = random_positions(v, n, m, &seed);
                } while (kept < n);
                struct filter f = {.n_parts = 1, .parts = {coarse_part(v, n, m)}};
                size_t len = assert_round_trip(&f);
                struct buf out = {0};
                assert_int_equal(filter_encode(&f, &out), 0);
                const bool is_short = n <= FILTER_FEW && (live || (shift >= 9 && shift <= 15));
                assert_int_equal((uint8_t)out.data[0] >> 7, is_short);
                uint8_t again[64];
                if (is_short) {
                    assert_int_equal(out.data[0] & 0x0f, n);
                    assert_in_range(len, 2 + (n * ((live ? 22 : shift - 1) + 1) + 7) / 8, 50);
                    memcpy(again, out.data, len);
                    check_short(again, len);
                    assert_memory_equal(again, out.data, len);
                }
                /* Not beside another part, and not when it isn't coarse. */
                uint32_t other[] = {5};
                buf_clear(&out);
                f.parts[f.n_parts++] = (struct filter_part){.positions = other, .n = 1, .m = FILTER_LIVE_M};
                assert_round_trip(&f);
                assert_int_equal(filter_encode(&f, &out), 0);
                assert_int_equal((uint8_t)out.data[0] >> 5, 2);
                buf_free(&out);
            }
        }
    }
    for (uint32_t n = 1; n <= 16; n++) { /* which a seal asks for */
        assert_int_equal(filter_short_range(n, 0), 0);
        assert_int_equal(filter_short_range(n, (uint64_t)n << 12), n << 12);
        assert_int_equal(filter_short_range(n, ((uint64_t)n << 12) - 1), n < 16 ? n << 12 : (n << 12) - 1);
        assert_int_equal(filter_short_range(n, 1), n < 16 ? n << 9 : 1);
        assert_int_equal(filter_short_range(n, ((uint64_t)n << 15) + 1), (n << 15) + 1);
    }
}

static void known_short_bytes_stay_what_they_are(void **state)
{
    (void)state;
    uint32_t live[] = {3, 4, COARSE_M - 1}, sealed[] = {1, 2, 1535};
    const struct {
        struct filter_part part;
        const uint8_t *bytes;
        size_t len;
    } known[] = {{coarse_part(live, 3, COARSE_M), known_short_live, sizeof known_short_live},
                 {coarse_part(sealed, 3, 1536), known_short_sealed, sizeof known_short_sealed}};
    for (size_t i = 0; i < COUNT(known); i++) {
        const struct filter f = {.n_parts = 1, .parts = {known[i].part}};
        struct arena arena = {0};
        struct buf out = {0};
        struct filter decoded;
        struct err err;
        assert_int_equal(filter_encode(&f, &out), 0);
        assert_int_equal(out.len, known[i].len);
        assert_memory_equal(out.data, known[i].bytes, known[i].len);
        assert_int_equal(decode_copy(known[i].bytes, known[i].len, &arena, &decoded, &err), 0);
        assert_same(&decoded, &f);
        buf_free(&out);
        arena_free(&arena);
    }
}

/* Bytes before the check, which is added. */
static const struct {
    const char *expected;
    size_t len;
    uint8_t bytes[50];
} bad_short_blobs[] = {
    {"of 1 bytes: at least 3 are expected", 0, {0}},
    {"of 2 bytes: at least 3 are expected", 1, {0x83}},
    {"the number of positions is not in 1 .. 15", 5, {0x90, 0x01, 0x00, 0xfc, 0x83}},
    {"more positions than the bytes can hold", 4, {0x93, 0x01, 0x00, 0xfc}}, /* 27 bits at least */
    {"at byte 1: the gaps are cut off", 5, {0x93, 0x01, 0x00, 0xfc, 0x03}},  /* two ones of three */
    {"not below m", 6, {0x93, 0x01, 0x00, 0xfc, 0x03, 0x01}},
    {"not below m", 5, {0x93, 0x01, 0x00, 0xfe, 0x83}},                                            /* 1537 */
    {"not below m", 12, {0x83, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0xfb, 0xff, 0xff, 0x03, 0x02}}, /* 2^27 */
    {"the padding", 6, {0x92, 0x01, 0x00, 0x07}},
    {"the padding", 5, {0x93, 0x01, 0x00, 0xfc, 0xc7}},
    {"at byte 5: bytes left over behind the gaps", 6, {0x93, 0x01, 0x00, 0xfc, 0x83, 0x00}},
    {"of 51 bytes in the short form: at most 50 are expected", 50, {0x93, 0x01, 0x00, 0xfc, 0x83, 0x00}},
};

static void bad_short_bytes_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad_short_blobs); i++) {
        uint8_t blob[sizeof bad_short_blobs[i].bytes + 1] = {0};
        const size_t len = bad_short_blobs[i].len + 1;
        memcpy(blob, bad_short_blobs[i].bytes, bad_short_blobs[i].len);
        if (len > 1) {
            check_short(blob, len);
        } else {
            blob[0] = 0x83;
        }
        struct arena arena = {0};
        struct filter f;
        struct err err;
        if (decode_copy(blob, len, &arena, &f, &err) != ERR_CORRUPT ||
            strstr(err.text, bad_short_blobs[i].expected) == NULL) {
            fail_msg("bad short blob %zu: expected \"%s\", got code %d, \"%s\"", i, bad_short_blobs[i].expected,
                     err.code, err.code == 0 ? "" : err.text);
        }
        arena_free(&arena);
    }
}

/* Of a short blob of up to 15 bytes any one, two or three, and of a longer one any one or three. */
static void flipped_bits_of_a_short_blob_are_refused(void **state)
{
    (void)state;
    uint32_t v[15];
    uint64_t seed = 18;
    for (uint32_t n = 1; n <= 15; n++) {
        const uint64_t m = n % 2 ? COARSE_M : (uint64_t)n << 12;
        while (random_positions(v, n, m, &seed) < n) {
        }
        const struct filter f = {.n_parts = 1, .parts = {coarse_part(v, n, m)}};
        struct buf out = {0};
        assert_int_equal(filter_encode(&f, &out), 0);
        uint8_t *blob = (uint8_t *)out.data;
        const size_t bits = 8 * out.len;
        for (int repeat = 0; repeat < 4000; repeat++) {
            size_t flips[3] = {(size_t)random_below(&seed, bits), (size_t)random_below(&seed, bits),
                               (size_t)random_below(&seed, bits)};
            const int n_flips = (size_t)repeat < bits ? 1 : out.len <= 15 && repeat % 2 ? 2 : 3;
            if (n_flips == 1) {
                flips[0] = (size_t)repeat;
            } else if (flips[0] == flips[1] || (n_flips == 3 && (flips[0] == flips[2] || flips[1] == flips[2]))) {
                continue;
            }
            struct arena arena = {0};
            struct filter decoded;
            struct err err;
            for (int i = 0; i < n_flips; i++) {
                blob[flips[i] / 8] ^= (uint8_t)(1U << (flips[i] % 8));
            }
            assert_int_equal(decode_copy(blob, out.len, &arena, &decoded, &err), ERR_CORRUPT);
            for (int i = 0; i < n_flips; i++) {
                blob[flips[i] / 8] ^= (uint8_t)(1U << (flips[i] % 8));
            }
            arena_free(&arena);
        }
        buf_free(&out);
    }
}

/* Any bytes with a right check: refused, or a sound filter that is written as the same bytes. */
static void crafted_short_bytes_do_no_harm(void **state)
{
    (void)state;
    uint64_t seed = 19;
    int sound = 0;
    for (int repeat = 0; repeat < 100000; repeat++) {
        uint8_t blob[56];
        size_t len = 3 + (size_t)random_below(&seed, repeat % 2 ? 6 : sizeof blob - 2);
        for (size_t i = 0; i < len; i++) {
            blob[i] = (uint8_t)random_next(&seed);
        }
        blob[0] |= 0x80;
        check_short(blob, len);
        struct arena arena = {0};
        struct filter f;
        struct err err;
        if (decode_copy(blob, len, &arena, &f, &err) == 0) {
            struct buf out = {0};
            assert_int_equal(filter_encode(&f, &out), 0);
            assert_int_equal(out.len, len);
            assert_memory_equal(out.data, blob, len);
            buf_free(&out);
            sound++;
        }
        arena_free(&arena);
    }
    assert_true(sound > 100);
}

/* Bytes before the checksum, which is added; each breaks one rule. */
static const struct {
    const char *expected;
    size_t len;
    uint8_t bytes[24];
} bad_blobs[] = {
    {"format version 0", 1, {0x00}},
    {"more than 16 parts", 1, {0x31}},
    {"at byte 1: a part is missing", 1, {0x21}},
    {"at byte 5: a part is missing", 5, {0x22, 0x00, 0x01, 0x09, 0x01}},
    {"at byte 1: bytes left over", 2, {0x20, 0x00}},
    {"at byte 5: bytes left over", 6, {0x21, 0x00, 0x01, 0x09, 0x01, 0x00}},
    {"at byte 1: unknown flags", 5, {0x21, 0x20, 0x01, 0x09, 0x01}},
    {"at byte 1: unknown flags", 5, {0x21, 0x40, 0x01, 0x09, 0x01}},               /* coarse, in version 1 */
    {"at byte 1: unknown flags", 5, {0x41, 0xa0, 0x01, 0x09, 0x01}},               /* fine, in version 2 */
    {"at byte 1: unknown flags", 6, {0x61, 0x20, 0x01, 0x09, 0x07, 0x01}},         /* fine, and cut */
    {"at byte 1: unknown flags", 6, {0x61, 0xe0, 0x01, 0x07, 0x01}},               /* fine and coarse */
    {"more positions than the bytes can hold", 5, {0x61, 0xa0, 0x02, 0x07, 0x07}}, /* tails, and no gaps */
    {"number of positions", 2, {0x21, 0x00}},
    {"number of positions", 4, {0x21, 0x00, 0x00, 0x09}},                                /* none */
    {"number of positions", 4, {0x21, 0x00, 0x81, 0x00}},                                /* not the shortest form */
    {"number of positions", 8, {0x21, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 0x00}},        /* 2^32 */
    {"number of positions", 12, {0x21, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}, /* too long */
    {"the range of a sealed part", 3, {0x21, 0x00, 0x01}},
    {"the range of a sealed part", 5, {0x21, 0x00, 0x01, 0x80, 0x00}},
    {"the range of a sealed part", 9, {0x21, 0x00, 0x01, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x01}},  /* 2^32 */
    {"the range of a sealed part", 9, {0x21, 0x00, 0x01, 0x80, 0x80, 0x80, 0x80, 0x10, 0x01}},  /* 2^32 + 1 */
    {"the range of a coarse sealed part", 8, {0x41, 0x40, 0x01, 0xff, 0xff, 0xff, 0x3f, 0x01}}, /* 2^27 */
    {"more positions than", 3, {0x21, 0x80, 0x01}},                                             /* no bytes at all */
    {"more positions than", 4, {0x21, 0x80, 0x09, 0xff}},                                       /* 9 in 8 bits */
    {"more positions than", 5, {0x21, 0x9f, 0x01, 0xff, 0xff}},                                 /* 32 bits in 2 bytes */
    {"more positions than", 8, {0x21, 0x9f, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xff}},               /* 2^32 - 1 */
    {"the gaps are cut off", 4, {0x21, 0x80, 0x01, 0x00}},                                      /* no one in sight */
    {"the gaps are cut off", 4, {0x21, 0x80, 0x02, 0x80}},                                      /* one of two */
    {"the gaps are cut off", 13, {0x21, 0x80, 0x01}},
    {"not below m", 5, {0x21, 0x00, 0x01, 0x02, 0x08}},                   /* 3 in a range of 3 */
    {"not below m", 5, {0x21, 0x00, 0x02, 0x02, 0x12}},                   /* 1 and 4 */
    {"not below m", 16, {0x21, 0x00, 0x01, 0x02, [14] = 0x01}},           /* further than a word */
    {"not below m", 8, {0x21, 0x9f, 0x01, 0x00, 0x00, 0x00, 0x00, 0x02}}, /* 2^32 */
    {"not below m", 7, {0x41, 0xdb, 0x01, 0x00, 0x00, 0x00, 0x10}},       /* 2^27, coarse */
    {"the padding", 5, {0x21, 0x00, 0x01, 0x02, 0x03}},
    {"the padding", 5, {0x21, 0x00, 0x01, 0x09, 0x81}},
};

static void bad_bytes_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad_blobs); i++) {
        uint8_t blob[sizeof bad_blobs[i].bytes + 4];
        size_t len = bad_blobs[i].len + 4;
        memcpy(blob, bad_blobs[i].bytes, bad_blobs[i].len);
        seal(blob, len);
        struct arena arena = {0};
        struct filter f;
        struct err err;
        if (decode_copy(blob, len, &arena, &f, &err) != ERR_CORRUPT ||
            strstr(err.text, bad_blobs[i].expected) == NULL) {
            fail_msg("bad blob %zu: expected \"%s\", got code %d, \"%s\"", i, bad_blobs[i].expected, err.code,
                     err.code == 0 ? "" : err.text);
        }
        arena_free(&arena);
    }
}

static void every_truncation_and_extension_is_refused(void **state)
{
    (void)state;
    uint8_t blob[sizeof known_two_parts + 9] = {0};
    for (int sealed = 0; sealed < 2; sealed++) {
        for (size_t len = 0; len <= sizeof blob; len++) {
            memset(blob, 0, sizeof blob);
            memcpy(blob, known_two_parts, sizeof known_two_parts);
            if (sealed && len >= 5) { /* the checksum is right, only the length is wrong */
                seal(blob, len);
            }
            struct arena arena = {0};
            struct filter f;
            struct err err;
            int rc = decode_copy(blob, len, &arena, &f, &err);
            assert_int_equal(rc, len == sizeof known_two_parts ? 0 : ERR_CORRUPT);
            if (len < 5) {
                assert_non_null(strstr(err.text, "at least 5 are expected"));
            } else if (rc != 0 && !sealed) {
                assert_non_null(strstr(err.text, "its checksum is"));
            }
            arena_free(&arena);
        }
    }
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    uint8_t blob[sizeof known_two_parts];
    for (size_t bit = 0; bit < 8 * sizeof blob; bit++) {
        memcpy(blob, known_two_parts, sizeof blob);
        blob[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        struct arena arena = {0};
        struct filter f;
        struct err err;
        assert_int_equal(decode_copy(blob, sizeof blob, &arena, &f, &err), ERR_CORRUPT);
        arena_free(&arena);
    }
}

/* Damage with a right checksum may give another filter, but only a sound one. */
static void damage_behind_a_right_checksum_does_no_harm(void **state)
{
    (void)state;
    uint64_t seed = 15;
    uint32_t v[200];
    for (int repeat = 0; repeat < 20000; repeat++) {
        struct filter f = {.n_parts = 1 + (unsigned)random_below(&seed, 3)}, decoded;
        uint32_t *at = v;
        for (unsigned i = 0; i < f.n_parts; i++) {
            uint64_t m = random_below(&seed, 2) ? FILTER_LIVE_M : 1 + random_below(&seed, 100000);
            uint32_t n = random_positions(at, 1 + (uint32_t)random_below(&seed, 60), m, &seed);
            f.parts[i] = (struct filter_part){.positions = at, .n = n, .m = m};
            at += n;
        }
        struct buf out = {0};
        struct arena arena = {0};
        struct err err;
        assert_int_equal(filter_encode(&f, &out), 0);
        uint8_t *blob = (uint8_t *)out.data;
        for (uint64_t flips = 1 + random_below(&seed, 3); flips > 0; flips--) {
            uint64_t bit = random_below(&seed, repeat % 2 ? 48 : (out.len - 4) * 8);
            blob[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        }
        seal(blob, out.len);
        if (decode_copy(blob, out.len, &arena, &decoded, &err) == 0) {
            assert_round_trip(&decoded); /* encoding refuses what is not sound */
        }
        arena_free(&arena);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_positions_come_back),
        cmocka_unit_test(dense_and_clustered_runs_come_back),
        cmocka_unit_test(the_largest_gaps_come_back),
        cmocka_unit_test(several_parts_come_back),
        cmocka_unit_test(blobs_are_small),
        cmocka_unit_test(no_other_k_is_shorter),
        cmocka_unit_test(encode_refuses_what_is_not_a_filter),
        cmocka_unit_test(known_bytes_stay_what_they_are),
        cmocka_unit_test(known_coarse_bytes_stay_what_they_are),
        cmocka_unit_test(known_fine_bytes_stay_what_they_are),
        cmocka_unit_test(few_positions_take_the_short_form),
        cmocka_unit_test(known_short_bytes_stay_what_they_are),
        cmocka_unit_test(bad_short_bytes_are_refused_by_name),
        cmocka_unit_test(flipped_bits_of_a_short_blob_are_refused),
        cmocka_unit_test(crafted_short_bytes_do_no_harm),
        cmocka_unit_test(the_shortest_runs_are_read),
        cmocka_unit_test(bad_bytes_are_refused_by_name),
        cmocka_unit_test(every_truncation_and_extension_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(damage_behind_a_right_checksum_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
