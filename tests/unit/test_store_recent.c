/* What memory has of a user, what it has no more, and a whole user as of a place in the feed (store_ops.recent,
 * feed->covers, copy->whole): what a second tier is united with. The model folds events; the store is the real one. */
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
#include "base/hash.h"
#include "store/codec/user_snapshot.h"
#include "store/copy.h"
#include "store/sqlite/staging/recent_forgets.h"
#include "store/sqlite/state.h"
#include "store/user/deliveries.h"
#include "tests/lib/random.h"
#include "tests/lib/store_calls.h"

enum { USERS = 3, ITEMS = 6, STEPS = 60, COURSES = 40 };

/* --- the model --- */

struct step {
    uint64_t seq;
    int user, item; /* item -1: all of the user is forgotten */
    bool seen;
};
static struct step steps[STEPS];
static int n_steps;

static const char *user_name(int u)
{
    static const char *const names[USERS] = {"u", "v", "w"};
    return names[u];
}

static const char *item_name(int i)
{
    static const char *const names[ITEMS] = {"a", "b", "c", "d", "e", "f"};
    return names[i];
}

/* As of a place in the feed. */
static bool model(int user, int item, uint64_t to)
{
    bool seen = false;
    for (int i = 0; i < n_steps; i++) {
        const struct step *s = &steps[i];
        if (s->seq <= to && s->user == user && (s->item == item || s->item < 0)) {
            seen = s->seen;
        }
    }
    return seen;
}

static void note(uint64_t seq, int user, int item, bool seen)
{
    assert_true(n_steps == 0 || seq > steps[n_steps - 1].seq);
    steps[n_steps++] = (struct step){seq, user, item, seen};
}

/* --- the store --- */

static void listen(struct store_fixture *f)
{
    int done = 0;
    struct feed_enlist e = {.call = {.done = call_done, .owner = &done}, .consumer = FEED_REMOTE "00000000000000bb"};
    f->store->feed->enlist(f->store, &e);
    wait_flag(&done);
    assert_int_equal(e.call.err.code, 0);
}

static void record(struct store_fixture *f, enum store_kind kind, int user, int item)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    add(&batch, kind, START, user_name(user), item_name(item));
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    note(batch.seq, user, item, true);
    buf_free(&batch.bytes);
}

static void forget_some(struct store_fixture *f, int user, int item)
{
    int done = 0;
    struct slice id = slice_str(item < 0 ? "" : item_name(item));
    uint64_t hash = hash_id(SEED, id);
    struct store_forget fg = {.key = key_of(user_name(user)),
                              .user = slice_str(user_name(user)),
                              .items = &id,
                              .hashes = &hash,
                              .n_items = item >= 0,
                              .first_month = INT_MIN,
                              .done = forget_done,
                              .owner = &done};
    f->store->ops->forget(f->store, &fg);
    wait_flag(&done);
    assert_int_equal(fg.err.code, 0);
    note(fg.seq, user, item, false);
}

/* What memory has of the user; the newest that it has no more is returned. */
static uint64_t recent(struct store_fixture *f, int user, bool has[ITEMS])
{
    struct store_load l = {.key = key_of(user_name(user)), .user = slice_str(user_name(user)), .first_month = INT_MIN};
    uint64_t left = 0;
    assert_int_equal(f->store->ops->recent(f->reader, &l, &left), 0);
    assert_int_equal(l.view.n_months + l.view.n_exceptions, 0);
    for (int i = 0; i < ITEMS; i++) {
        has[i] = in_view(&l.view, item_name(i));
    }
    return left;
}

/* A tier that is up to `to`, where it may be believed, with what memory has, is all there is. Returns whether it may.
 */
static bool check_tier(struct store_fixture *f, int user, uint64_t to)
{
    bool has[ITEMS];
    if (to < recent(f, user, has) || !f->store->feed->covers(f->store, key_of(user_name(user)), to)) {
        return false;
    }
    for (int i = 0; i < ITEMS; i++) {
        bool expected = model(user, i, UINT64_MAX);
        if ((has[i] || model(user, i, to)) != expected) {
            fail_msg("user %s item %s as of %d: expected %d", user_name(user), item_name(i), (int)to, expected);
        }
    }
    return true;
}

/* What is newer than as_of, on top of the whole user, is all there is; and nothing in it was forgotten before. */
static void check_whole(struct store_fixture *f, int user)
{
    struct buf bytes = {0};
    struct arena arena = {0};
    struct delivered_codec codec = {0};
    struct err err = {0};
    struct user_snapshot p = {0};
    struct delivered sent = {0};
    uint64_t as_of = 0, last = f->store->feed->last(f->store);
    int rc = f->store->copy->whole(f->reader, slice_str(user_name(user)), &bytes, &as_of, &err);
    assert_true(rc == 0 || rc == 1);
    assert_int_equal(as_of, last); /* nothing is under way */
    if (rc == 1) {
        assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &p, &err), 0);
        if (p.deliveries.len > 0) {
            assert_int_equal(delivered_unpack(&codec, p.deliveries.data, p.deliveries.len, SEED, &arena, &sent, &err),
                             0);
            assert_true(p.last_month >= month_of_ms(delivered_ms(sent.list[0].stamp))); /* or an import drops them */
        }
    }
    for (int i = 0; i < ITEMS; i++) {
        uint64_t hash = hash_id(SEED, slice_str(item_name(i)));
        bool has = false, excepted = false;
        for (size_t k = 0; k < p.n_exceptions; k++) {
            excepted = excepted || p.exceptions[k] == hash;
        }
        for (size_t k = 0; k < p.n_months && !excepted; k++) {
            struct filter filter;
            assert_int_equal(filter_decode(p.months[k].blob.data, p.months[k].blob.len, &arena, &filter, &err), 0);
            has = has || filter_has(&filter, hash);
        }
        for (size_t k = 0; k < p.n_plays; k++) {
            assert_true(k == 0 || p.plays[k].hash != p.plays[k - 1].hash);
            has = has || p.plays[k].hash == hash;
        }
        for (size_t k = 0; k < sent.n; k++) {
            has = has || sent.list[k].hash == hash;
        }
        assert_int_equal(has, model(user, i, UINT64_MAX));
    }
    buf_free(&bytes);
    arena_free(&arena);
    delivered_codec_free(&codec);
}

/* --- tests --- */

static void test_courses(void **state)
{
    struct store_fixture *f = *state;
    uint64_t random = 16;
    int believed = 0, refused = 0;
    listen(f);
    for (int course = 0; course < COURSES; course++) {
        for (int u = 0; u < USERS; u++) { /* each course begins with nobody, in a store that goes on */
            n_steps = 0;
            forget_some(f, u, -1);
        }
        n_steps = 0;
        for (int step = 0; step < STEPS - 1; step++) {
            int user = (int)random_below(&random, USERS), item = (int)random_below(&random, ITEMS);
            switch (random_below(&random, 12)) {
            case 0:
                forget_some(f, user, -1);
                break;
            case 1:
            case 2:
                forget_some(f, user, item);
                break;
            case 3:
                assert_int_equal(flush(f), 0);
                break;
            case 4:
            case 5:
                record(f, STORE_DELIVERY, user, item);
                break;
            default:
                record(f, STORE_PLAY, user, item);
            }
            for (int u = 0; u < USERS; u++) {
                check_whole(f, u);
                for (int i = 0; i < n_steps; i++) {
                    bool may = check_tier(f, u, steps[i].seq);
                    believed += may;
                    refused += !may;
                }
                assert_true(check_tier(f, u, f->store->feed->last(f->store)));
            }
        }
    }
    assert_true(believed > 1000 && refused > 1000);
}

static void test_another_run(void **state)
{
    struct store_fixture *f = *state;
    bool has[ITEMS];
    n_steps = 0;
    listen(f);
    record(f, STORE_PLAY, 0, 0);
    uint64_t seq = f->store->feed->last(f->store);
    assert_true(recent(f, 0, has) < seq);
    close_store(f);
    open_store(f);
    assert_int_equal(recent(f, 0, has), seq); /* what was forgotten, say, is not remembered */
    assert_false(f->store->feed->covers(f->store, key_of("u"), seq - 1));
    assert_true(f->store->feed->covers(f->store, key_of("u"), seq));
}

/* Users that are imported were never in memory. */
static void test_imported(void **state)
{
    struct store_fixture *f = *state;
    struct buf bytes = {0};
    struct err err = {0};
    uint64_t as_of;
    bool has[ITEMS];
    n_steps = 0;
    listen(f);
    record(f, STORE_PLAY, 0, 0);
    assert_int_equal(f->store->copy->whole(f->reader, slice_str("u"), &bytes, &as_of, &err), 1);
    uint64_t before = recent(f, 0, has);
    int done = 0;
    uint8_t verdict = 0;
    struct slice snapshot = slice_of((const char *)bytes.data, bytes.len);
    struct store_import import = {.snapshots = &snapshot, .n = 1, .verdicts = &verdict};
    import.call.done = call_done;
    import.call.owner = &done;
    f->store->ops->import(f->store, &import);
    wait_flag(&done);
    assert_int_equal(import.call.err.code, 0);
    uint64_t left = recent(f, 0, has);
    assert_true(left > before && left == import.seq);
    buf_free(&bytes);
}

static void test_what_is_long_ago(void **state)
{
    (void)state;
    struct recent_forgets *f = calloc(1, sizeof *f);
    assert_non_null(f);
    recent_forgets_init(f);
    f->unknown = 5;
    assert_false(recent_forgets_cover(f, 1, 4));
    for (uint64_t i = 0; i < RECENT_FORGETS_MAX; i++) {
        recent_forgets_add(f, (int64_t)i, 10 + i);
    }
    assert_true(recent_forgets_cover(f, 0, 10));
    assert_false(recent_forgets_cover(f, 0, 9));
    assert_true(recent_forgets_cover(f, -1, 5));
    recent_forgets_add(f, -2, 10 + RECENT_FORGETS_MAX); /* the first is remembered no more */
    assert_false(recent_forgets_cover(f, -1, 9));
    assert_true(recent_forgets_cover(f, -1, 10));
    assert_false(recent_forgets_cover(f, -2, 10));
    recent_forgets_free(f);
    free(f);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_courses),
        TEST(test_another_run),
        TEST(test_imported),
        cmocka_unit_test(test_what_is_long_ago),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
