/* The sieve against the probe: on the same user, through the same blobs, both say the same of every candidate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "filter/probe.h"
#include "filter/sieve.h"
#include "tests/lib/random.h"

enum { MONTHS = 4, PARTS = 3, KNOWN = 40000, MOST = 5000, FEW = 300 };

struct user {
    struct buf blobs[MONTHS];
    bool good[MONTHS]; /* others are damaged and left out */
    uint64_t known[KNOWN];
    size_t n_known;
    uint64_t exact[FEW], exceptions[FEW];
    size_t n_exact, n_exceptions;
};

static struct user user;
static uint64_t candidates[MOST];
static uint64_t seed = 77;

static uint64_t some_hash(void)
{
    uint64_t hash = random_next(&seed);
    if (random_below(&seed, 20) == 0) { /* the ends of the range */
        hash = random_below(&seed, 2) ? UINT64_MAX - hash % 5 : hash % 5 << 31;
    }
    return hash;
}

static uint64_t known_or_not(void)
{
    return user.n_known > 0 && random_below(&seed, 3) > 0 ? user.known[random_below(&seed, user.n_known)] : some_hash();
}

static struct filter_part make_part(uint32_t n)
{
    struct filter_part part = {.positions = malloc((n + 1) * sizeof(uint32_t)), .m = FILTER_LIVE_M};
    assert_non_null(part.positions);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = some_hash();
        part.positions[i] = filter_position(hash, FILTER_LIVE_M);
        if (user.n_known < KNOWN) {
            user.known[user.n_known++] = hash;
        }
    }
    part.coarse = random_below(&seed, 2);
    for (uint32_t i = 0; i < n && part.coarse; i++) {
        part.positions[i] >>= FILTER_GRAIN;
    }
    part.m = part.coarse ? FILTER_LIVE_M >> FILTER_GRAIN : FILTER_LIVE_M;
    part.n = filter_sort(part.positions, n, NULL);
    if (!part.coarse && part.n > 0 && random_below(&seed, 3) == 0) { /* not all tails are those of what is known */
        part.fine = true;
        part.tails = malloc(part.n);
        assert_non_null(part.tails);
        for (uint32_t i = 0; i < part.n; i++) {
            part.tails[i] = (uint8_t)random_below(&seed, 3);
        }
        for (size_t i = user.n_known > n ? user.n_known - n : 0; i < user.n_known; i++) {
            if (random_below(&seed, 2)) {
                filter_set_tail(part.positions, part.tails, part.n, user.known[i], false);
            }
        }
    } else if (random_below(&seed, 2)) {
        uint64_t least = part.coarse ? 32 + FILTER_GRAIN : 32;
        assert_int_equal(filter_cut(&part, 1 + (random_next(&seed) >> (least + random_below(&seed, 64 - least)))), 0);
    }
    return part;
}

/* Sizes around the runs in which positions are handed over, too. */
static uint32_t some_size(void)
{
    if (random_below(&seed, 4) == 0) {
        return (uint32_t)(FILTER_RUN * (1 + random_below(&seed, 3)) - 1 + random_below(&seed, 3));
    }
    return (uint32_t)random_below(&seed, UINT64_C(1) << random_below(&seed, 14));
}

static void make_user(void)
{
    user.n_known = 0;
    for (int i = 0; i < MONTHS; i++) {
        struct filter f = {.n_parts = (unsigned)random_below(&seed, PARTS + 1)};
        for (unsigned p = 0; p < f.n_parts; p++) {
            f.parts[p] = make_part(some_size());
        }
        buf_clear(&user.blobs[i]);
        assert_int_equal(filter_encode(&f, &user.blobs[i]), 0);
        user.good[i] = random_below(&seed, 10) > 0;
        for (unsigned p = 0; p < f.n_parts; p++) {
            free(f.parts[p].positions);
            free(f.parts[p].tails);
        }
    }
    user.n_exact = random_below(&seed, 2) * random_below(&seed, FEW);
    user.n_exceptions = random_below(&seed, 2) * random_below(&seed, FEW);
    for (size_t i = 0; i < user.n_exact; i++) {
        user.exact[i] = known_or_not();
    }
    for (size_t i = 0; i < user.n_exceptions; i++) {
        user.exceptions[i] =
            random_below(&seed, 5) == 0 && user.n_exact > 0 ? user.exact[i % user.n_exact] : known_or_not();
    }
}

static void make_candidates(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        candidates[i] = i > 0 && random_below(&seed, 10) == 0 ? candidates[random_below(&seed, i)]
                        : user.n_exact > 0 && random_below(&seed, 10) == 0
                            ? user.exact[random_below(&seed, user.n_exact)]
                            : known_or_not();
        if (random_below(&seed, 10) == 0) { /* beside one: in the half that counts, or in the other */
            candidates[i] ^= UINT64_C(1) << random_below(&seed, 64);
        }
    }
}

static size_t probed(size_t n, uint8_t *unseen)
{
    static struct filter filters[MONTHS];
    const struct filter_part *parts[MONTHS * FILTER_PARTS_MAX];
    struct probe_input in = {.parts = parts,
                             .exact = user.exact,
                             .n_exact = user.n_exact,
                             .exceptions = user.exceptions,
                             .n_exceptions = user.n_exceptions};
    struct arena arena = {0};
    struct probe *probe = probe_new();
    assert_non_null(probe);
    for (int i = 0; i < MONTHS; i++) {
        if (user.good[i]) {
            assert_int_equal(filter_decode(user.blobs[i].data, user.blobs[i].len, &arena, &filters[i], NULL), 0);
            for (unsigned p = 0; p < filters[i].n_parts; p++) {
                parts[in.n_parts++] = &filters[i].parts[p];
            }
        }
    }
    assert_int_equal(probe_build(probe, &in), 0);
    size_t n_unseen = probe_test(probe, candidates, n, unseen);
    probe_free(probe);
    arena_free(&arena);
    return n_unseen;
}

static size_t sifted(struct sieve *s, size_t n, uint8_t *unseen)
{
    struct filter filter;
    assert_int_equal(sieve_begin(s, candidates, n), 0);
    for (int i = 0; i < MONTHS; i++) {
        assert_int_equal(filter_scan(user.blobs[i].data, user.blobs[i].len, sieve_see, s, &filter, NULL), 0);
        size_t found = sieve_month(s, user.good[i]);
        assert_true(user.good[i] ? found <= n : found == 0);
    }
    for (size_t i = 0; i < user.n_exact; i++) {
        sieve_exact(s, user.exact[i]);
    }
    for (size_t i = 0; i < user.n_exceptions; i++) {
        sieve_except(s, user.exceptions[i]);
    }
    return sieve_end(s, unseen);
}

static void assert_agreement(struct sieve *s, size_t n)
{
    static uint8_t by_probe[MOST / 8 + 2], by_sieve[MOST / 8 + 2];
    size_t bytes = (n + 7) / 8;
    memset(by_probe, 0xaa, sizeof by_probe);
    memset(by_sieve, 0xaa, sizeof by_sieve);
    size_t want = probed(n, by_probe);
    assert_int_equal(sifted(s, n, by_sieve), want);
    assert_memory_equal(by_sieve, by_probe, bytes + 1);
}

static void users_of_all_kinds_get_the_probes_answers(void **state)
{
    (void)state;
    struct sieve *s = sieve_new();
    assert_non_null(s);
    for (int round = 0; round < 600; round++) {
        make_user();
        size_t n = (size_t)random_below(&seed, UINT64_C(1) << random_below(&seed, 13));
        make_candidates(n);
        assert_agreement(s, n);
    }
    sieve_free(s);
    sieve_free(NULL);
}

/* However often they repeat: an item staged a thousand times, asked about five thousand times. */
static void repeats_are_no_special_case(void **state)
{
    (void)state;
    struct sieve *s = sieve_new();
    assert_non_null(s);
    make_user();
    for (size_t i = 0; i < MOST; i++) {
        candidates[i] = user.n_known > 0 ? user.known[0] : 7;
    }
    assert_agreement(s, MOST);
    user.n_exact = FEW;
    for (size_t i = 0; i < FEW; i++) {
        user.exact[i] = candidates[0];
    }
    assert_agreement(s, MOST);
    user.exceptions[0] = candidates[0];
    user.n_exceptions = 1;
    assert_agreement(s, MOST);
    user.n_exact = 0;
    assert_agreement(s, MOST);
    sieve_free(s);
}

static void free_user(void)
{
    for (int i = 0; i < MONTHS; i++) {
        buf_free(&user.blobs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_of_all_kinds_get_the_probes_answers),
        cmocka_unit_test(repeats_are_no_special_case),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free_user();
    return failed;
}
