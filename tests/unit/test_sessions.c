/* Scroll sessions against a plain model: what is blocked, when it ends, who goes when memory is short, and restarts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "dedup/sessions.h"
#include "store/saved_sessions.h"
#include "tests/lib/random.h"

enum { TTL_MS = 600000, SEED = 42 };

static struct config cfg;
static struct sessions *all;

static int begin(void **state)
{
    (void)state;
    config_defaults(&cfg);
    struct err err;
    return sessions_new(&cfg, SEED, &all, &err);
}

static int end(void **state)
{
    (void)state;
    sessions_free(all);
    return 0;
}

static struct session_ids numbers(uint32_t *ids, size_t n)
{
    return (struct session_ids){.numbers = ids, .n_numbers = n};
}

static int64_t block(const char *name, uint32_t id)
{
    struct err err = {0};
    struct session_ids ids = numbers(&id, 1);
    return sessions_block(all, slice_str(name), &ids, &err);
}

typedef int64_t change_fn(struct sessions *sessions, struct slice name, struct session_ids *ids, struct err *err);

/* BLOCK or UNBLOCK as it is typed; the list ends with NULL. */
static int64_t change(change_fn *make, const char *name, const char *const *texts)
{
    struct slice slices[16];
    uint64_t scratch[16];
    size_t n = 0;
    struct err err = {0};
    struct session_ids ids;
    for (; texts[n] != NULL; n++) {
        slices[n] = slice_str(texts[n]);
    }
    assert_int_equal(session_ids_read(SEED, slices, n, scratch, &ids, &err), 0);
    assert_int_equal(session_ids_count(&ids), n);
    return make(all, slice_str(name), &ids, &err);
}

#define BLOCK(name, ...) change(sessions_block, name, (const char *const[]){__VA_ARGS__, NULL})
#define UNBLOCK(name, ...) change(sessions_unblock, name, (const char *const[]){__VA_ARGS__, NULL})

static bool blocks(const char *name, const char *item)
{
    struct session_set set = {0};
    struct err err = {0};
    assert_int_equal(sessions_load(all, slice_str(name), &set, &err), 0);
    bool has = session_set_has(&set, slice_str(item), hash_id(SEED, slice_str(item)));
    session_set_free(&set);
    return has;
}

static size_t size_of(const char *name)
{
    struct session_set set = {0};
    struct err err = {0};
    assert_int_equal(sessions_load(all, slice_str(name), &set, &err), 0);
    size_t n = set.n_numbers + set.n_hashes;
    session_set_free(&set);
    return n;
}

static struct sessions_stats stats(void)
{
    struct sessions_stats s;
    sessions_stats(all, &s);
    return s;
}

static void test_canonical_ids(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "007",        "+7",          "-7",  "7 ", " 7", "7a",
                                      "a7", "4294967296", "99999999999", "0x7", "00", "7.0"};
    uint32_t id = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(session_number(slice_str(bad[i]), &id));
    }
    assert_true(session_number(slice_str("0"), &id));
    assert_int_equal(id, 0);
    assert_true(session_number(slice_str("7"), &id));
    assert_int_equal(id, 7);
    assert_true(session_number(slice_str("4294967295"), &id));
    assert_int_equal(id, UINT32_MAX);
}

/* Random commands on a few sessions of a small range, against arrays of bool. */
static void test_like_a_plain_set(void **state)
{
    (void)state;
    enum { NAMES = 7, RANGE = 700, ROUNDS = 4000, MOST = 40 };
    static bool model[NAMES][RANGE];
    memset(model, 0, sizeof model);
    uint64_t r = 7;
    struct session_set set = {0};
    for (int round = 0; round < ROUNDS; round++) {
        unsigned who = (unsigned)random_below(&r, NAMES);
        char name[16];
        snprintf(name, sizeof name, "session %u", who);
        uint32_t ids[MOST];
        size_t n = (size_t)random_below(&r, MOST);
        bool blocks = random_below(&r, 3) > 0;
        n += blocks && n == 0;
        int64_t want = 0;
        for (size_t i = 0; i < n; i++) {
            ids[i] = (uint32_t)random_below(&r, RANGE);
            want += model[who][ids[i]] != blocks;
            model[who][ids[i]] = blocks;
        }
        for (int i = 0; !blocks && n == 0 && i < RANGE; i++) {
            want += model[who][i];
            model[who][i] = false;
        }
        struct err err = {0};
        struct session_ids given = numbers(ids, n);
        int64_t got = blocks ? sessions_block(all, slice_str(name), &given, &err)
                             : sessions_unblock(all, slice_str(name), &given, &err);
        assert_int_equal(got, want);
        assert_int_equal(sessions_load(all, slice_str(name), &set, &err), 0);
        for (uint32_t i = 0; i < RANGE; i++) {
            assert_int_equal(session_set_has_number(&set, i), model[who][i]);
        }
    }
    session_set_free(&set);
}

static void test_large_and_extreme(void **state)
{
    (void)state;
    uint32_t *ids = malloc((SESSION_IDS_MAX + 1) * sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < SESSION_IDS_MAX; i++) {
        ids[i] = UINT32_MAX - i * 65535;
    }
    struct err err = {0};
    struct session_ids given = numbers(ids, SESSION_IDS_MAX);
    assert_int_equal(sessions_block(all, slice_str("s"), &given, &err), SESSION_IDS_MAX);
    assert_int_equal(BLOCK("s", "video:7"), ERR_FULL);
    assert_int_equal(block("s", 1), ERR_FULL); /* 1 is none of them */
    assert_int_equal(block("s", UINT32_MAX), 0);
    struct session_set set = {0};
    assert_int_equal(sessions_load(all, slice_str("s"), &set, &err), 0);
    assert_int_equal(set.n_numbers, SESSION_IDS_MAX);
    assert_true(session_set_has_number(&set, UINT32_MAX));
    assert_false(session_set_has_number(&set, UINT32_MAX - 1));
    session_set_free(&set);
    free(ids);
}

static void test_ends_with_its_last_id(void **state)
{
    (void)state;
    block("s", 1);
    block("s", 2);
    BLOCK("s", "video:3");
    assert_int_equal(UNBLOCK("s", "1", "4"), 1);
    assert_int_equal(size_of("s"), 2);
    assert_int_equal(UNBLOCK("s", "2"), 1);
    assert_int_equal(stats().live, 1);
    assert_int_equal(UNBLOCK("s", "3", "video:3"), 1);
    assert_int_equal(stats().live, 0);
}

static void test_hide(void **state)
{
    (void)state;
    block("s", 7);
    block("s", 9);
    assert_int_equal(BLOCK("s", "video:7"), 1);
    const struct slice items[] = {slice_str("7"),       slice_str("07"), slice_str("9"),
                                  slice_str("video:7"), slice_str("8"),  slice_str("video:8")};
    uint64_t hashes[6];
    assert_int_equal(hash_ids(SEED, items, 6, hashes), 6);
    uint8_t unseen = 0xdc; /* the third is seen already */
    struct session_set set = {0};
    struct err err = {0};
    assert_int_equal(sessions_load(all, slice_str("s"), &set, &err), 0);
    assert_int_equal(session_set_hide(&set, items, hashes, 6, &unseen), 2);
    assert_int_equal(unseen, 0x4c);
    assert_int_equal(sessions_load(all, slice_str("nobody"), &set, &err), 0);
    assert_int_equal(session_set_hide(&set, items, hashes, 6, &unseen), 0);
    session_set_free(&set);
}

static void test_any_id(void **state)
{
    (void)state;
    assert_int_equal(BLOCK("s", "7", "007", "+7", "-7", "video:7", "4294967296", "4294967295", "7", "007"), 7);
    static const char *const in[] = {"7", "007", "+7", "-7", "video:7", "4294967296", "4294967295"};
    static const char *const out[] = {"07", "0007", "video:07", "VIDEO:7", "0", "4294967297", "4294967294", " 7"};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        assert_true(blocks("s", in[i]));
    }
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        assert_false(blocks("s", out[i]));
    }
    assert_int_equal(UNBLOCK("s", "007", "07"), 1); /* and not 7 */
    assert_true(blocks("s", "7"));
    assert_false(blocks("s", "007"));
    assert_int_equal(UNBLOCK("s", "7"), 1);
    assert_false(blocks("s", "7"));
    assert_int_equal(size_of("s"), 5);
    struct err err = {0};
    assert_int_equal(sessions_unblock(all, slice_str("s"), &(struct session_ids){0}, &err), 5);
    assert_int_equal(stats().live, 0);

    const struct slice bad[] = {slice_str("7"), slice_str("")};
    uint64_t scratch[2];
    struct session_ids ids;
    assert_int_equal(session_ids_read(SEED, bad, 2, scratch, &ids, &err), ERR_INVALID);
    assert_string_equal(err.text, "id 2 is empty: an id has 1 to 255 bytes");
}

/* Numbers cost what they did, others 8 bytes each, and both are accounted. */
static void test_memory(void **state)
{
    (void)state;
    uint32_t ids[300];
    for (uint32_t i = 0; i < 300; i++) {
        ids[i] = i * 33;
    }
    struct err err = {0};
    struct session_ids given = numbers(ids, 300);
    uint64_t empty = stats().bytes;
    assert_int_equal(sessions_block(all, slice_str("s"), &given, &err), 300);
    uint64_t with_numbers = stats().bytes - empty;
    assert_true(with_numbers < 360);
    uint64_t hashes[300], seed = 1;
    for (size_t i = 0; i < 300; i++) {
        hashes[i] = random_next(&seed);
    }
    given = (struct session_ids){.hashes = hashes, .n_hashes = 300};
    assert_int_equal(sessions_block(all, slice_str("s"), &given, &err), 300);
    uint64_t with_both = stats().bytes - empty - with_numbers;
    assert_true(with_both >= 300 * 8 && with_both < 300 * 8 + 32);
    assert_int_equal(sessions_unblock(all, slice_str("s"), &(struct session_ids){0}, &err), 600);
    assert_int_equal(stats().bytes, empty);
}

static const struct store_session *kept_one;

static int take_one(struct store *s, void (*each)(void *arg, const struct store_session *kept), void *arg,
                    struct err *err)
{
    (void)s;
    (void)err;
    each(arg, kept_one);
    return 0;
}

/* As stored by the release before, of which ids were numbers only. */
static void test_older_kept_session(void **state)
{
    (void)state;
    static const char older[] = "\x21\x9e\x03\x07\x00\x00\x80\x08\x00\x00\x40\xfd\xff\xff\x8f\x91\x15\xc0\x69";
    struct store_session row = {slice_str("s"), slice_of(older, sizeof older - 1), clock_wall_ms()};
    const struct store_sessions_ops ops = {.take = take_one};
    struct store store = {.engine = "fake", .sessions = &ops};
    struct err err = {0};
    kept_one = &row;
    assert_int_equal(sessions_restore(all, &store, &err), 0);
    assert_int_equal(size_of("s"), 3);
    assert_true(blocks("s", "7") && blocks("s", "42") && blocks("s", "4294967295"));
    assert_int_equal(BLOCK("s", "7", "video:7"), 1);
    assert_true(blocks("s", "video:7") && blocks("s", "42"));
}

/* Whatever a file gives for a session's ids: no byte is read that isn't there, and what decodes is a set. */
static void test_damaged_ids(void **state)
{
    (void)state;
    uint64_t hashes[3] = {1, 1 << 20, UINT64_MAX};
    uint32_t ids[2] = {7, 42};
    struct session_ids given = {ids, hashes, 2, 3}, out;
    struct buf blob = {0};
    struct arena arena = {0};
    struct err err = {0};
    assert_int_equal(session_ids_encode(&given, &blob), 0);
    assert_int_equal(session_ids_decode(buf_slice(&blob), &arena, &out, &err), 0);
    assert_int_equal(out.n_numbers, 2);
    assert_memory_equal(out.numbers, ids, sizeof ids);
    assert_int_equal(out.n_hashes, 3);
    assert_memory_equal(out.hashes, hashes, sizeof hashes);
    for (size_t len = 0; len < blob.len; len++) {
        char *cut = malloc(len + 1); /* exactly so long, for the address sanitizer */
        memcpy(cut, blob.data, len);
        int rc = session_ids_decode(slice_of(cut, len), &arena, &out, &err);
        bool only_hashes = len == 1 + 1 + sizeof hashes + 4;
        assert_int_equal(rc, only_hashes ? 0 : ERR_CORRUPT);
        free(cut);
    }
    for (size_t bit = 0; bit < 8 * blob.len; bit++) {
        blob.data[bit / 8] = (char)(blob.data[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(session_ids_decode(buf_slice(&blob), &arena, &out, &err), ERR_CORRUPT);
        blob.data[bit / 8] = (char)(blob.data[bit / 8] ^ 1 << bit % 8);
    }
    hashes[1] = 0; /* they don't ascend, with a checksum that fits */
    buf_clear(&blob);
    assert_int_equal(session_ids_encode(&given, &blob), 0);
    assert_int_equal(session_ids_decode(buf_slice(&blob), &arena, &out, &err), ERR_CORRUPT);
    static const char huge[] = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 and no more";
    assert_int_equal(session_ids_decode(slice_of(huge, sizeof huge - 1), &arena, &out, &err), ERR_CORRUPT);
    arena_free(&arena);
    buf_free(&blob);
}

static void test_ends_after_its_last_use(void **state)
{
    (void)state;
    block("a", 1);
    block("b", 1);
    clock_test_advance(TTL_MS - 1);
    assert_int_equal(size_of("a"), 1); /* a use */
    clock_test_advance(1);
    assert_int_equal(size_of("b"), 0);
    assert_int_equal(size_of("a"), 1);
    clock_test_advance(TTL_MS);
    assert_int_equal(block("a", 2), 1); /* begins anew */
    assert_int_equal(size_of("a"), 1);
    assert_int_equal(stats().begun, 3);
    assert_int_equal(stats().expired, 2);

    /* What nobody asks for is freed too. */
    clock_test_advance(TTL_MS);
    sessions_expire(all, 0, 2);
    sessions_expire(all, 1, 2);
    assert_int_equal(stats().live, 0);
    assert_int_equal(stats().expired, 3);
}

static void test_least_recently_used_goes_first(void **state)
{
    (void)state;
    cfg.session_memory = 1 << 20;
    char name[32];
    uint32_t ids[300];
    unsigned n = 0;
    while (stats().evicted == 0) {
        snprintf(name, sizeof name, "session %u", n++);
        for (uint32_t i = 0; i < 300; i++) {
            ids[i] = i * 33;
        }
        struct err err = {0};
        struct session_ids given = numbers(ids, 300);
        assert_int_equal(sessions_block(all, slice_str(name), &given, &err), 300);
        clock_test_advance(1);
        assert_true(n == 1 || size_of("session 0") == 300); /* the first stays in use */
        clock_test_advance(1);
    }
    assert_true(stats().bytes <= 1 << 20);
    assert_true(n > 2500); /* small: some 350 bytes each */
    assert_int_equal(stats().evicted, 1);
    assert_int_equal(size_of("session 1"), 0);
    assert_int_equal(size_of("session 2"), 300);
}

/* Rows as a store would keep them. */
static struct {
    struct buf bytes;
    struct store_session rows[64];
    int n;
} kept;

static int keep(struct store *s, bool (*next)(void *arg, struct store_session *out), void *arg, struct err *err)
{
    (void)s;
    (void)err;
    for (kept.n = 0; next(arg, &kept.rows[kept.n]); kept.n++) {
        struct store_session *row = &kept.rows[kept.n];
        char *copy = malloc(row->name.len + row->ids.len);
        assert_non_null(copy);
        memcpy(copy, row->name.data, row->name.len);
        memcpy(copy + row->name.len, row->ids.data, row->ids.len);
        row->name.data = copy;
        row->ids.data = copy + row->name.len;
    }
    return 0;
}

static int take(struct store *s, void (*each)(void *arg, const struct store_session *kept), void *arg, struct err *err)
{
    (void)s;
    (void)err;
    for (int i = 0; i < kept.n; i++) {
        each(arg, &kept.rows[i]);
        free((char *)kept.rows[i].name.data);
    }
    kept.n = 0;
    return 0;
}

static void test_restart(void **state)
{
    const struct store_sessions_ops ops = {.keep = keep, .take = take};
    struct store store = {.engine = "fake", .sessions = &ops};
    struct err err = {0};
    block("old", 5);
    clock_test_advance(TTL_MS / 2);
    block("new", 6);
    BLOCK("new", "video:6");
    block("unused", 6);
    block("damaged", 7);
    assert_int_equal(sessions_save(all, &store, &err), 0);
    assert_int_equal(kept.n, 4);
    for (int i = 0; i < kept.n; i++) {
        if (slice_eq(kept.rows[i].name, slice_str("damaged"))) {
            ((char *)kept.rows[i].ids.data)[2] ^= 1;
        }
    }
    end(state);
    clock_test_advance(TTL_MS / 2);
    begin(state);
    log_set_level(LOG_LEVEL_ERROR);
    assert_int_equal(sessions_restore(all, &store, &err), 0);
    assert_int_equal(size_of("old"), 0);
    assert_int_equal(size_of("damaged"), 0);
    assert_int_equal(stats().live, 2);
    clock_test_advance(TTL_MS / 2 - 1);
    assert_int_equal(size_of("new"), 2);
    assert_true(blocks("new", "6") && blocks("new", "video:6"));
    clock_test_advance(1);
    assert_int_equal(size_of("unused"), 0);
}

/* A wall clock that went back: the session was used just now. */
static void test_restart_after_a_jump(void **state)
{
    const struct store_sessions_ops ops = {.keep = keep, .take = take};
    struct store store = {.engine = "fake", .sessions = &ops};
    struct err err = {0};
    block("s", 5);
    assert_int_equal(sessions_save(all, &store, &err), 0);
    end(state);
    clock_test_jump(-86400000);
    begin(state);
    assert_int_equal(sessions_restore(all, &store, &err), 0);
    assert_int_equal(stats().live, 1);
    clock_test_advance(TTL_MS);
    assert_int_equal(size_of("s"), 0);
}

int main(void)
{
    clock_test_start(INT64_C(1795262400000));
    log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_canonical_ids, begin, end),
        cmocka_unit_test_setup_teardown(test_like_a_plain_set, begin, end),
        cmocka_unit_test_setup_teardown(test_large_and_extreme, begin, end),
        cmocka_unit_test_setup_teardown(test_ends_with_its_last_id, begin, end),
        cmocka_unit_test_setup_teardown(test_hide, begin, end),
        cmocka_unit_test_setup_teardown(test_any_id, begin, end),
        cmocka_unit_test_setup_teardown(test_memory, begin, end),
        cmocka_unit_test_setup_teardown(test_older_kept_session, begin, end),
        cmocka_unit_test_setup_teardown(test_damaged_ids, begin, end),
        cmocka_unit_test_setup_teardown(test_ends_after_its_last_use, begin, end),
        cmocka_unit_test_setup_teardown(test_least_recently_used_goes_first, begin, end),
        cmocka_unit_test_setup_teardown(test_restart, begin, end),
        cmocka_unit_test_setup_teardown(test_restart_after_a_jump, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
