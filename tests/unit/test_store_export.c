/* An export of a served folder while its users are forgotten or flushed: what it writes of a user is of one moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "base/hash.h"
#include "store/codec/user_snapshot.h"
#include "tests/lib/store_calls.h"

enum meanwhile { FORGET_USER, FORGET_ITEM, FLUSH };

struct exported {
    struct store_fixture *f;
    enum meanwhile meanwhile;
    int asked;
    bool snapshot, old, staged; /* whether there is one of u, and what it has */
    bool excepted, delivered;
};

/* Called first while staging is read, in its snapshot: what happens then is over before history is read. */
static bool wanted(void *arg, struct slice user)
{
    struct exported *x = arg;
    if (slice_eq(user, slice_str("u")) && x->asked++ == 0) {
        if (x->meanwhile == FLUSH) {
            assert_int_equal(flush(x->f), 0);
        } else {
            assert_int_equal(forget(x->f, "u", x->meanwhile == FORGET_ITEM ? "staged" : NULL), 1);
        }
    }
    return true;
}

static int begin(void *arg, uint64_t seed, struct err *err)
{
    (void)arg;
    (void)err;
    assert_int_equal(seed, SEED);
    return 0;
}

static bool has(const struct user_snapshot *p, const char *item, struct arena *arena)
{
    uint64_t hash = hash_id(SEED, slice_str(item));
    for (size_t i = 0; i < p->n_plays; i++) {
        if (p->plays[i].hash == hash) {
            return true;
        }
    }
    for (size_t i = 0; i < p->n_months; i++) {
        struct filter filter;
        assert_int_equal(filter_decode(p->months[i].blob.data, p->months[i].blob.len, arena, &filter, NULL), 0);
        if (filter_has(&filter, hash)) {
            return true;
        }
    }
    return false;
}

static int snapshot(void *arg, struct slice bytes, struct err *err)
{
    struct exported *x = arg;
    struct arena arena = {0};
    struct user_snapshot p;
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &p, err), 0);
    if (slice_eq(p.user, slice_str("u"))) {
        x->snapshot = true;
        x->old = has(&p, "old", &arena);
        x->staged = has(&p, "staged", &arena);
        x->excepted = p.n_exceptions > 0;
        x->delivered = p.deliveries.len > 0;
    }
    arena_free(&arena);
    return 0;
}

static void damaged(void *arg, const char *what)
{
    (void)arg;
    fail_msg("damaged: %s", what);
}

/* stored: u has something in history, too. */
static struct exported export(struct store_fixture *f, enum meanwhile meanwhile, bool stored)
{
    struct exported x = {.f = f, .meanwhile = meanwhile};
    struct err err = {0};
    play(f, "somebody", "a");
    play(f, "else", "a");
    if (stored) {
        play(f, "u", "old");
    }
    assert_int_equal(flush(f), 0);
    play(f, "u", "staged");
    deliver(f, "u", "sent");
    const struct store_export e = {.from = INT64_MIN,
                                   .to = INT64_MAX,
                                   .wanted = wanted,
                                   .begin = begin,
                                   .snapshot = snapshot,
                                   .damaged = damaged,
                                   .arg = &x};
    if (sqlite_export_folder(f->cfg.data, &e, &err) < 0) {
        fail_msg("export: %s", err.text);
    }
    return x;
}

static void test_forgotten(void **state)
{
    assert_false(export(*state, FORGET_USER, true).snapshot);
    assert_false(export(*state, FORGET_USER, false).snapshot);
}

static void test_item_forgotten(void **state)
{
    for (int stored = 0; stored <= 1; stored++) {
        struct exported x = export(*state, FORGET_ITEM, stored != 0);
        assert_true(x.snapshot);
        assert_int_equal(x.old, stored);
        assert_false(x.staged);
        assert_true(x.delivered);
        assert_int_equal(forget(*state, "u", NULL), 1);
    }
}

static void test_flushed(void **state)
{
    for (int stored = 0; stored <= 1; stored++) {
        struct exported x = export(*state, FLUSH, stored != 0);
        assert_true(x.snapshot);
        assert_int_equal(x.old, stored);
        assert_true(x.staged);
        assert_true(x.delivered);
        assert_int_equal(forget(*state, "u", NULL), 1);
    }
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_forgotten),
        TEST(test_item_forgotten),
        TEST(test_flushed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
