/* What is damaged in a user's object, or nobody of ours has written: an error for the user or the month, by on_damage;
 * writes go on, nothing is lost by a merge, and a forget always helps. fuzz_rados tries anything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/rados/cluster.h"
#include "store/rados/night.h"
#include "store/rados/rados_store.h"
#include "tests/lib/rados_fixture.h"

static void no_month(void *arg, int month, bool good)
{
    (void)arg, (void)month, (void)good;
}

static void see_nothing(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                        uint32_t n)
{
    (void)arg, (void)part, (void)before, (void)positions, (void)n;
}

static int scan_user(struct store_fixture *f, const char *user, struct err *err)
{
    const struct store_scan scan = {.see = see_nothing, .month = no_month};
    struct store_view view;
    return f->store->ops->scan(f->reader, key_of(user), slice_str(user), INT_MIN, &scan, &view, err);
}

static const char long_key[] = "pppppppppppppppppppppppppppppppppppppppppppp";

/* Each damages a user with a merged play "a", a waiting one "b", a delivery "c". */
static const struct damage {
    const char *key, *value; /* value NULL: the key goes */
    const char *words;       /* of the error; NULL: it is none */
    bool scanned;            /* also seen by who reads by prefixes */
} damages[] = {
    {"m202611.0000", "garbage", "2026-11", true},
    {"m202611.0000", NULL, "2026-11", true},
    {"w", "00000000", "directory", true}, /* names none of what is there */
    {"w", "0000", "directory", true},     /* not even a sum; one that sorts higher is a large user's, and scanned */
    {"w", NULL, "directory", true},
    {"q202610", "", "2026-10", true},
    {"q000000", "", "deliveries", true},
    {"dffffffffffffffffffffffffffffffff", "?", "deliveries", true},
    {"zzz", "", "didn't write", false},
    {long_key, "", "didn't write", true},
    {"p202611", "", "didn't write", true}, /* it was to be a play */
    {"p20261100000000000000ff", "never", NULL, false},
    {"g", "odd", NULL, false},
    {"g", NULL, NULL, false},
    {"f", "never", NULL, false},
};

static void damage_user(struct store_fixture *f, const struct damage *d)
{
    assert_int_equal(forget(f, "u", NULL) >= 0, 1);
    memory_pool_drop(one_pool, "u.u");
    play(f, "u", "a");
    walk_pool(f);
    play(f, "u", "b");
    deliver(f, "u", "c");
    assert_int_equal(memory_pool_count(one_pool, "u.u", "m202611.0000"), 1);
    if (d->value != NULL) {
        memory_pool_put(one_pool, "u.u", d->key, slice_str(d->value));
    } else {
        memory_pool_take(one_pool, "u.u", d->key);
    }
}

static void what_is_damaged_is_told(void **state)
{
    struct store_fixture *f = *state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *d = &damages[i];
        struct store_view view;
        struct err err = {0}, again = {0};
        damage_user(f, d);
        int code = load(f, f->reader, "u", &view, &err), scanned = scan_user(f, "u", &again);
        if (d->words == NULL) {
            assert_int_equal(code, 0);
            assert_int_equal(scanned, 0);
            assert_true(seen(f, "u", "a") && seen(f, "u", "b") && seen(f, "u", "c"));
            struct err ignored = {0};
            rados_store_walk(f->store, &ignored);
            assert_true(seen(f, "u", "a") && seen(f, "u", "b") && seen(f, "u", "c"));
        } else {
            if (code != ERR_CORRUPT || strstr(err.text, d->words) == NULL || strstr(err.text, "\"u\"") == NULL) {
                fail_msg("%s: %d %s", d->key, code, err.text);
            }
            assert_int_equal(scanned, d->scanned ? ERR_CORRUPT : 0);
            struct err ignored = {0};
            rados_store_walk(f->store, &ignored); /* which must not make it look whole */
            assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_CORRUPT);
            f->cfg.on_damage = DAMAGE_ANSWER;
            uint64_t before = stats(f).damaged_answers;
            assert_true(seen(f, "u", "b"));
            assert_int_equal(stats(f).damaged_answers, before + 1);
            f->cfg.on_damage = DAMAGE_ERROR;
        }
        assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "new"), 0);
        assert_true(forget(f, "u", NULL) >= 0);
        assert_false(known(f, "u"));
        play(f, "u", "b");
        assert_true(seen(f, "u", "b"));
        assert_false(seen(f, "u", "a"));
    }
}

/* A user of whom nothing but damage is left isn't unknown. */
static void damage_alone_is_told(void **state)
{
    static const char *const keys[] = {"q000000", "q202611", "zzz"};
    struct store_fixture *f = *state;
    struct store_view view;
    struct err err = {0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        memory_pool_put(one_pool, "u.x", keys[i], slice_of("", 0));
        assert_int_equal(load(f, f->reader, "x", &view, &err), ERR_CORRUPT);
        rados_store_walk(f->store, &err);
        assert_int_equal(load(f, f->reader, "x", &view, &err), keys[i][0] == 'z' ? 0 : ERR_CORRUPT);
        memory_pool_drop(one_pool, "u.x");
    }
}

/* A tombstone that can't be read: what it may concern is refused, and nothing else is. */
static void a_damaged_tombstone(void **state)
{
    struct store_fixture *f = *state;
    struct slice id = slice_str("a");
    uint64_t hash = hash_id(SEED, id);
    play(f, "u", "a");
    memory_pool_put(one_pool, "u.u", "f", slice_str("never"));
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    assert_int_equal(
        store_batch_add(&batch, STORE_PLAY, START, STORE_STATED, key_of("u"), slice_str("u"), &id, &hash, 1), 0);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, ERR_CORRUPT);
    buf_free(&batch.bytes);
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(memory_pool_count(one_pool, "u.u", "f"), 1);
}

/* The mark of a night that is still to come keeps nobody from walking. */
static void a_night_that_never_was(void **state)
{
    struct store_fixture *f = *state;
    char name[NIGHT_NAME], value[LAYOUT_HEX + 1];
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        night_piece_name(i, name);
        memory_pool_put(one_pool, name, "done", slice_str("00000000ffffffff"));
    }
    clock_test_advance(DAY_MS - clock_wall_ms() % DAY_MS);
    call(f, f->store->ops->tick, NULL);
    int walked = 0;
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        night_piece_name(i, name);
        assert_int_equal(memory_pool_value(one_pool, name, "done", value, sizeof value), LAYOUT_HEX);
        walked += strcmp(value, "00000000ffffffff") != 0;
    }
    assert_true(walked >= NIGHT_PIECES / NIGHTS);
}

/* --- values of a size that nobody of ours has written --- */

static void note_words(void *arg, const char *problem)
{
    bool *found = arg;
    *found =
        *found || (strstr(problem, "object \"u.u\"") != NULL && strstr(problem, "bytes, and Unseen writes") != NULL);
}

static bool check_names_it(struct store_fixture *f)
{
    bool found = false;
    const struct rados_check order = {.ops = &memory_pool_ops, .found = note_words, .arg = &found};
    struct rados_checked out;
    struct err err = {0};
    assert_int_equal(rados_check_pool(&f->cfg, &order, &out, &err), 0);
    assert_int_equal(out.users, 1); /* the other one */
    return found;
}

/* They are named, with their size and the bound; nothing of them is kept, nobody else suffers, and a forget helps. */
static void values_that_are_too_long(void **state)
{
    static const struct {
        const char *key;
        size_t most;
    } values[] = {
        {"dffffffffffffffffffffffffffffffff", LAYOUT_DIRECTORY_MAX},
        {"fffffffffffffffff", LAYOUT_DIRECTORY_MAX},
        {"m202611.0000", CLUSTER_WRITE},
        {"p20261100000000000000ff", LAYOUT_DIRECTORY_MAX},
        {"w", LAYOUT_DIRECTORY_MAX},
        {"x00000000000000ff", LAYOUT_DIRECTORY_MAX},
        {"zzz", LAYOUT_DIRECTORY_MAX},
    };
    struct store_fixture *f = *state;
    struct store_view view;
    char *bytes = calloc(1, CLUSTER_WRITE + 1);
    assert_non_null(bytes);
    memset(bytes, '0', CLUSTER_WRITE + 1);
    play(f, "v", "a");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char words[200];
        struct err err = {0};
        play(f, "u", "a");
        walk_pool(f);
        play(f, "u", "b");
        memory_pool_put(one_pool, "u.u", values[i].key, slice_of(bytes, values[i].most + 1));
        snprintf(words, sizeof words, "object \"u.u\": a value has %zu bytes, and Unseen writes %zu at most",
                 values[i].most + 1, values[i].most);
        bool asked = load(f, f->reader, "u", &view, &err) == ERR_LARGE; /* of a large user: aside */
        assert_int_equal(asked ? scan_user(f, "u", &err) : err.code, ERR_CORRUPT);
        if (strstr(err.text, words) == NULL) {
            fail_msg("%s: \"%s\", expected \"%s\"", values[i].key, err.text, words);
        }
        f->store->ops->rest(f->reader);
        RADOS_UNTIL(stats(f).user_bytes == 0);
        assert_true(check_names_it(f));
        assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "new"), 0);
        err = (struct err){0};
        int walked = rados_store_walk(f->store, &err);
        assert_true(walked == 0 || walked == ERR_CORRUPT);
        for (size_t night = 0; night < NIGHT_PIECES; night++) { /* the piece counts as walked */
            char name[NIGHT_NAME], day[LAYOUT_HEX + 1];
            uint64_t n;
            night_piece_name(night, name);
            assert_int_equal(memory_pool_value(one_pool, name, "done", day, sizeof day), LAYOUT_HEX);
            assert_true(layout_unhex(slice_str(day), &n) && (int64_t)n == clock_wall_ms() / DAY_MS);
        }
        assert_true(seen(f, "v", "a"));
        assert_int_equal(forget(f, "u", NULL), 1);
        assert_false(known(f, "u"));
        play(f, "u", "b");
        assert_true(seen(f, "u", "b") && !seen(f, "u", "a"));
        clock_test_advance(DAY_MS);
    }
    free(bytes);
}

/* Of what a node keeps for itself it copies no more than it writes. */
static void long_values_of_nodes_are_passed_over(void **state)
{
    struct store_fixture *f = *state;
    enum { LONG = 1 << 20 };
    char *bytes = calloc(1, LONG);
    assert_non_null(bytes);
    play(f, "u", "a");
    static const char *const objects[] = {LAYOUT_META, LAYOUT_POSITIONS, "night.3"};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        memory_pool_put(one_pool, objects[i], "odd", slice_of(bytes, LONG));
    }
    memory_pool_put(one_pool, "night.4", "done", slice_of(bytes, LONG));
    close_node(f);
    open_node(f);
    assert_true(seen(f, "u", "a"));
    walk_pool(f);
    assert_true(seen(f, "u", "a"));
    char day[LAYOUT_HEX + 1];
    assert_int_equal(memory_pool_value(one_pool, "night.4", "done", day, sizeof day), LAYOUT_HEX);
    free(bytes);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        POOL_TEST(what_is_damaged_is_told),  POOL_TEST(damage_alone_is_told),
        POOL_TEST(a_damaged_tombstone),      POOL_TEST(a_night_that_never_was),
        POOL_TEST(values_that_are_too_long), POOL_TEST(long_values_of_nodes_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
