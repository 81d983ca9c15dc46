/* What a blob may take in memory: a large one that was made to be many times its bytes is refused before anything is
 * allocated, by a flush, a seal and a forget alike; what a user can really have is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "filter/filter.h"
#include "tests/lib/random.h"
#include "tests/lib/rounds.h"
#include "tests/lib/store_calls.h"

enum {
    BOMB = 8 * 1000 * 1000, /* positions: a megabyte, and 32 of them in memory */
    MOST = 4 << 20,
};

/* n positions, one behind the other, or scattered below m. */
static struct filter_part make_part(uint32_t n, uint64_t m, bool scattered)
{
    struct filter_part part = {.positions = malloc(n * sizeof *part.positions), .n = n, .m = m};
    uint64_t seed = n + m;
    assert_non_null(part.positions);
    for (uint32_t i = 0; i < n; i++) {
        part.positions[i] = scattered ? (uint32_t)random_below(&seed, m) : i;
    }
    part.n = scattered ? filter_sort(part.positions, n, NULL) : n;
    return part;
}

static void encode(const struct filter_part *parts, unsigned n, struct buf *blob)
{
    struct filter filter = {.n_parts = n};
    memcpy(filter.parts, parts, n * sizeof *parts);
    assert_int_equal(filter_encode(&filter, blob), 0);
}

/* Returns what was allocated. */
static size_t refuse(const struct buf *blob)
{
    struct arena arena = {0};
    struct filter filter;
    struct err err = {0};
    assert_int_equal(filter_decode(blob->data, blob->len, &arena, &filter, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "more positions than"));
    assert_int_equal(filter_weigh(blob->data, blob->len, &filter, &err), ERR_CORRUPT);
    size_t bytes = arena.bytes;
    arena_free(&arena);
    return bytes;
}

static void crafted_blobs_are_refused(void **state)
{
    (void)state;
    static const uint64_t ranges[] = {FILTER_LIVE_M, FILTER_LIVE_M - 1, BOMB * UINT64_C(8), BOMB};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct buf blob = {0};
        struct filter_part part = make_part(BOMB, ranges[i], false);
        encode(&part, 1, &blob);
        assert_true(blob.len < BOMB / 8 + 32);
        assert_int_equal(refuse(&blob), 0);
        buf_free(&blob);
        free(part.positions);
    }
}

/* Each counts on the bytes of those behind it. */
static void parts_have_bytes_of_their_own(void **state)
{
    (void)state;
    struct filter_part parts[FILTER_PARTS_MAX];
    struct buf blob = {0};
    uint32_t n = BOMB / 8;
    for (unsigned i = 0; i < FILTER_PARTS_MAX; i++) {
        parts[i] = make_part(n, 8 * (uint64_t)n, false);
    }
    encode(parts, FILTER_PARTS_MAX, &blob);
    assert_true(refuse(&blob) <= 8 * blob.len + 2 * 65536);
    for (unsigned i = 0; i < FILTER_PARTS_MAX; i++) {
        free(parts[i].positions);
    }
    buf_free(&blob);
}

/* From the fullest that is ever sealed to the emptiest live one. */
static void honest_blobs_are_not(void **state)
{
    (void)state;
    const uint32_t numbers[] = {FILTER_ANY_N + 1, 70000, 1100000 / (uint32_t)test_stride()};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (uint64_t m = numbers[i] * UINT64_C(9); m <= FILTER_LIVE_M; m = m * 3 / 2) {
            struct filter_part part = make_part(numbers[i], m, true);
            struct arena arena = {0};
            struct filter decoded;
            struct buf blob = {0};
            struct err err = {0};
            encode(&part, 1, &blob);
            if (filter_decode(blob.data, blob.len, &arena, &decoded, &err) < 0) {
                fail_msg("n=%u m=%llu: %s", part.n, (unsigned long long)m, err.text);
            }
            assert_true(arena.bytes <= 8 * blob.len + 2 * 65536);
            arena_free(&arena);
            buf_free(&blob);
            free(part.positions);
        }
    }
}

/* What couldn't be read again is not joined. */
static void a_join_ends_where_it_gets_dense(void **state)
{
    (void)state;
    const uint64_t m = UINT64_C(9) * 70000;
    struct filter_part part = make_part(70000, m, true);
    struct filter_part other = make_part(70001, m, true);
    struct filter f = {.n_parts = 1, .parts = {part}}, from = {.n_parts = 1, .parts = {other}};
    struct arena arena = {0};
    assert_int_equal(filter_join(&f, &from, 0, &arena), ERR_FULL);
    arena_free(&arena);
    free(part.positions);
    free(other.positions);
}

/* --- in a folder --- */

static void put_bomb(struct store_fixture *f)
{
    struct buf blob = {0};
    struct filter_part part = make_part(BOMB, FILTER_LIVE_M, false);
    encode(&part, 1, &blob);
    sqlite3 *history = open_file(f, "history");
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(history,
                                        "UPDATE plays_202611 SET filter = ?1, counted = ?2 WHERE user_key = "
                                        "(SELECT user_key FROM users WHERE user = 'u')",
                                        -1, &stmt, NULL),
                     SQLITE_OK);
    sqlite3_bind_blob(stmt, 1, blob.data, (int)blob.len, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, BOMB);
    assert_int_equal(sqlite3_step(stmt), SQLITE_DONE);
    assert_int_equal(sqlite3_changes(history), 1);
    sqlite3_finalize(stmt);
    sqlite3_close(history);
    buf_free(&blob);
    free(part.positions);
}

static void begin_with_bomb(struct store_fixture *f)
{
    play(f, "u", "a");
    play(f, "v", "a");
    assert_int_equal(flush(f), 0);
    close_store(f);
    put_bomb(f);
    open_store(f);
    atomic_store(&largest_malloc, 0);
}

static void a_flush_sets_it_aside(void **state)
{
    struct store_fixture *f = *state;
    begin_with_bomb(f);
    play(f, "u", "b");
    play(f, "v", "b");
    assert_int_equal(flush(f), 0);
    assert_true(atomic_load(&largest_malloc) < MOST);
    assert_int_equal(stats(f).quarantined, 1);
    assert_true(seen(f, "v", "b"));
    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_CORRUPT); /* marked, until the loss is accepted */
    f->cfg.on_damage = DAMAGE_ANSWER;
    assert_true(seen(f, "u", "b"));
}

static void a_forget_refuses_it(void **state)
{
    struct store_fixture *f = *state;
    begin_with_bomb(f);
    assert_int_equal(forget(f, "u", "a"), ERR_CORRUPT);
    assert_true(seen(f, "v", "a"));
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_true(atomic_load(&largest_malloc) < MOST);
}

/* Moved as it is. */
static void a_seal_leaves_it(void **state)
{
    struct store_fixture *f = *state;
    begin_with_bomb(f);
    for (int i = 0; i < 14 * 24 && ask(f, "history", "SELECT min(sealed) FROM months") == 0; i++) {
        advance(f, HOUR_MS);
    }
    assert_true(atomic_load(&largest_malloc) < MOST);
    assert_int_equal(ask(f, "history", "SELECT items FROM plays_202611 ORDER BY items DESC"), BOMB);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crafted_blobs_are_refused),
        cmocka_unit_test(parts_have_bytes_of_their_own),
        cmocka_unit_test(honest_blobs_are_not),
        cmocka_unit_test(a_join_ends_where_it_gets_dense),
        TEST(a_flush_sets_it_aside),
        TEST(a_forget_refuses_it),
        TEST(a_seal_leaves_it),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
