/* Two users with one 64-bit key, when a step of the flush ends between them and the next one fails: whichever of both
 * is still to be merged must be merged at the next try, before the slot's rows are deleted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/sqlite/index/staged.h"
#include "tests/lib/alloc.h"
#include "tests/lib/store_calls.h"

/* The walk of a flush copies deliveries into an array of these, and nothing else makes one. */
static bool no_deliveries(enum alloc_by by, size_t n, size_t size)
{
    (void)n;
    return by == ALLOC_REALLOCARRAY && size == sizeof(struct staged_delivery);
}

enum {
    STEP_PLAYS = 50000, /* flush.c: a step ends with the user who brings it there */
    BATCH = 1000,
};

static void record_one(struct store_fixture *f, enum store_kind kind, int64_t key, const char *user,
                       const struct slice *items, const uint64_t *hashes, size_t n)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    assert_int_equal(
        store_batch_add(&batch, kind, clock_wall_ms(), STORE_STAMPED, key, slice_str(user), items, hashes, (uint32_t)n),
        0);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    assert_int_equal(batch.err.code, 0);
}

static void record_with_key(struct store_fixture *f, enum store_kind kind, int64_t key, const char *user,
                            const char *item)
{
    struct slice id = slice_str(item);
    uint64_t hash = hash_id(SEED, id);
    record_one(f, kind, key, user, &id, &hash, 1);
}

/* Enough plays to end a step, all of one item: the filter stays small. */
static void record_step(struct store_fixture *f, int64_t key, const char *user)
{
    static struct slice items[BATCH];
    static uint64_t hashes[BATCH];
    for (int i = 0; i < BATCH; i++) {
        items[i] = slice_str("again");
        hashes[i] = hash_id(SEED, items[i]);
    }
    for (int at = 0; at < STEP_PLAYS; at += BATCH) {
        record_one(f, STORE_PLAY, key, user, items, hashes, BATCH);
    }
}

static bool seen_with_key(struct store_fixture *f, int64_t key, const char *user, const char *item)
{
    struct store_view view;
    struct err err = {0};
    if (store_load_wait(f->store, f->reader, key, slice_str(user), INT_MIN, &view, &err) < 0) {
        fail_msg("load: %s", err.text);
    }
    return in_view(&view, item);
}

static void test_twin_behind_a_step(void **state)
{
    struct store_fixture *f = *state;
    const int64_t key = key_of("somebody");
    record_step(f, key, "a"); /* by its id the first of both */
    record_with_key(f, STORE_PLAY, key, "b", "mine");
    record_with_key(f, STORE_DELIVERY, key, "b", "sent");
    atomic_store(&alloc_fails, no_deliveries);
    assert_true(flush(f) < 0);
    atomic_store(&alloc_fails, NULL);
    assert_int_equal(flush(f), 0);
    assert_int_equal(stats(f).staged_rows, 0);
    assert_true(seen_with_key(f, key, "a", "again"));
    assert_true(seen_with_key(f, key, "b", "mine"));
    assert_true(seen_with_key(f, key, "b", "sent"));
}

/* The greatest key has no key behind it. */
static void test_twin_of_the_last_key(void **state)
{
    struct store_fixture *f = *state;
    record_step(f, INT64_MAX, "a");
    record_with_key(f, STORE_PLAY, INT64_MAX, "b", "mine");
    record_with_key(f, STORE_DELIVERY, INT64_MAX, "b", "sent");
    atomic_store(&alloc_fails, no_deliveries);
    assert_true(flush(f) < 0);
    atomic_store(&alloc_fails, NULL);
    assert_int_equal(flush(f), 0);
    assert_true(seen_with_key(f, INT64_MAX, "b", "mine"));
    assert_true(seen_with_key(f, INT64_MAX, "b", "sent"));
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_twin_behind_a_step),
        TEST(test_twin_of_the_last_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
