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
#include "base/log.h"
#include "dedup/sessions.h"
#include "random.h"

enum { TTL_MS = 600000 };

static struct config cfg;
static struct sessions *all;

static int begin(void **state)
{
    (void)state;
    config_defaults(&cfg);
    struct err err;
    return sessions_new(&cfg, 42, &all, &err);
}

static int end(void **state)
{
    (void)state;
    sessions_free(all);
    return 0;
}

static int64_t block(const char *name, uint32_t id)
{
    struct err err = {0};
    return sessions_block(all, slice_str(name), &id, 1, &err);
}

static size_t size_of(const char *name)
{
    struct session_set set = {0};
    struct err err = {0};
    assert_int_equal(sessions_load(all, slice_str(name), &set, &err), 0);
    size_t n = set.n;
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
        assert_false(session_id(slice_str(bad[i]), &id));
    }
    assert_true(session_id(slice_str("0"), &id));
    assert_int_equal(id, 0);
    assert_true(session_id(slice_str("7"), &id));
    assert_int_equal(id, 7);
    assert_true(session_id(slice_str("4294967295"), &id));
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
        int64_t got = blocks ? sessions_block(all, slice_str(name), ids, n, &err)
                             : sessions_unblock(all, slice_str(name), ids, n, &err);
        assert_int_equal(got, want);
        assert_int_equal(sessions_load(all, slice_str(name), &set, &err), 0);
        for (uint32_t i = 0; i < RANGE; i++) {
            assert_int_equal(session_set_has(&set, i), model[who][i]);
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
    assert_int_equal(sessions_block(all, slice_str("s"), ids, SESSION_IDS_MAX, &err), SESSION_IDS_MAX);
    assert_int_equal(block("s", 1), ERR_FULL); /* 1 is none of them */
    assert_int_equal(block("s", UINT32_MAX), 0);
    struct session_set set = {0};
    assert_int_equal(sessions_load(all, slice_str("s"), &set, &err), 0);
    assert_int_equal(set.n, SESSION_IDS_MAX);
    assert_true(session_set_has(&set, UINT32_MAX));
    assert_false(session_set_has(&set, UINT32_MAX - 1));
    session_set_free(&set);
    free(ids);
}

static void test_ends_with_its_last_id(void **state)
{
    (void)state;
    block("s", 1);
    block("s", 2);
    struct err err = {0};
    uint32_t id = 1;
    assert_int_equal(sessions_unblock(all, slice_str("s"), &id, 1, &err), 1);
    assert_int_equal(size_of("s"), 1);
    id = 2;
    assert_int_equal(sessions_unblock(all, slice_str("s"), &id, 1, &err), 1);
    assert_int_equal(stats().live, 0);
}

static void test_hide(void **state)
{
    (void)state;
    block("s", 7);
    block("s", 9);
    const struct slice items[] = {slice_str("7"), slice_str("07"), slice_str("9"), slice_str("video:7"),
                                  slice_str("8")};
    uint8_t unseen = 0xd8; /* the third is seen already */
    struct session_set set = {0};
    struct err err = {0};
    assert_int_equal(sessions_load(all, slice_str("s"), &set, &err), 0);
    assert_int_equal(session_set_hide(&set, items, 5, &unseen), 1);
    assert_int_equal(unseen, 0x58);
    assert_int_equal(sessions_load(all, slice_str("nobody"), &set, &err), 0);
    assert_int_equal(session_set_hide(&set, items, 5, &unseen), 0);
    session_set_free(&set);
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
        assert_int_equal(sessions_block(all, slice_str(name), ids, 300, &err), 300);
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
    const struct store_ops ops = {.keep_sessions = keep, .take_sessions = take};
    struct store store = {&ops};
    struct err err = {0};
    block("old", 5);
    clock_test_advance(TTL_MS / 2);
    block("new", 6);
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
    assert_int_equal(size_of("new"), 1);
    clock_test_advance(1);
    assert_int_equal(size_of("unused"), 0);
}

/* A wall clock that went back: the session was used just now. */
static void test_restart_after_a_jump(void **state)
{
    const struct store_ops ops = {.keep_sessions = keep, .take_sessions = take};
    struct store store = {&ops};
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
        cmocka_unit_test_setup_teardown(test_ends_after_its_last_use, begin, end),
        cmocka_unit_test_setup_teardown(test_least_recently_used_goes_first, begin, end),
        cmocka_unit_test_setup_teardown(test_restart, begin, end),
        cmocka_unit_test_setup_teardown(test_restart_after_a_jump, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
