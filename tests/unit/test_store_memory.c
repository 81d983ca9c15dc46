/* The memory store, beyond what every engine keeps (test_store_conformance.c): its bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/memory/memory_store.h"
#include "store/stats.h"
#include "tests/lib/store_calls.h"

static struct store_fixture *open_with(const struct memory_store_options *options)
{
    struct store_fixture *f = store_fixture_new("memory");
    struct err err = {0};
    f->cfg.staging_memory = 1 << 20;
    assert_int_equal(memory_store_open(&f->cfg, options, &f->store, &err), 0);
    assert_int_equal(f->store->ops->reader_open(f->store, &f->reader, &err), 0);
    return f;
}

/* n items of the user and, in the same batch, one play and one delivery of "small". */
static int record_many(struct store_fixture *f, const char *user, int n)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    add(&batch, STORE_DELIVERY, START, "small", "sent");
    add(&batch, STORE_PLAY, START, "small", user);
    for (int i = 0; i < n; i++) {
        char item[32];
        snprintf(item, sizeof item, "%s %d", user, i);
        add(&batch, STORE_PLAY, START, user, item);
    }
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

static void test_the_bound(void **state)
{
    (void)state;
    struct store_fixture *f = open_with(NULL);
    struct err err = {0};
    char user[16] = "";
    int n = 0;
    while (snprintf(user, sizeof user, "user%d", n), record_many(f, user, 5000) == 0) {
        n++;
        assert_in_range(stats(f).staged_bytes, 1, f->cfg.staging_memory);
        assert_true(n < 100);
    }
    assert_true(n > 5);
    assert_int_equal(stats(f).busy_refusals, 1);
    uint64_t bytes = stats(f).staged_bytes;
    assert_int_equal(record_many(f, user, 5000), ERR_BUSY);
    assert_int_equal(stats(f).staged_bytes, bytes);

    /* Of what was refused there is nothing, and what was there before is. */
    assert_false(known(f, user));
    assert_false(seen(f, "small", user));
    assert_true(seen(f, "small", "user0"));
    assert_int_equal(stats(f).staged_rows, (uint64_t)n * 5001 + 1);

    /* What is small still fits; forgetting makes room. */
    play(f, "small", "one more");
    for (int i = 0; i < n; i++) {
        snprintf(user, sizeof user, "user%d", i);
        assert_int_equal(forget(f, user, NULL), 1);
    }
    assert_int_equal(f->store->ops->refusal(f->store, &err), 0);
    assert_int_equal(record_many(f, "again", 5000), 0);
    assert_int_equal(forget(f, "again", NULL), 1);
    assert_int_equal(forget(f, "small", NULL), 1);
    assert_int_equal(stats(f).staged_rows, 0);
    store_fixture_free(f);
}

/* The bound may be lowered under what is there. */
static void test_a_lower_bound(void **state)
{
    (void)state;
    struct store_fixture *f = open_with(NULL);
    struct err err = {0};
    assert_int_equal(record_many(f, "u", 5000), 0);
    f->cfg.staging_memory = 4096;
    assert_int_equal(f->store->ops->refusal(f->store, &err), ERR_BUSY);
    assert_non_null(strstr(err.text, "staging_memory"));
    assert_int_equal(record_at(f, STORE_PLAY, START, "v", "a"), ERR_BUSY);
    assert_true(seen(f, "u", "u 7"));
    assert_int_equal(forget(f, "u", "u 7"), 1);
    store_fixture_free(f);
}

/* Plays that repeat take no more. */
static void test_repeats_take_no_room(void **state)
{
    (void)state;
    struct store_fixture *f = open_with(NULL);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(record_many(f, "u", 5000), 0);
    }
    assert_true(seen(f, "u", "u 4999"));
    store_fixture_free(f);
}

static void test_no_time_is_known(void **state)
{
    (void)state;
    struct store_fixture *f = open_with(&(struct memory_store_options){.built_ms = START + DAY_MS});
    struct err err = {0};
    assert_int_equal(f->store->ops->time_known(f->store, &err), ERR_BUSY);
    assert_int_equal(f->store->ops->refusal(f->store, &err), ERR_BUSY);
    assert_int_equal(record_at(f, STORE_PLAY, START, "u", "a"), ERR_BUSY);
    assert_false(known(f, "u"));
    store_fixture_free(f);
}

/* What was handed in before the end is answered. */
static void test_close_answers(void **state)
{
    (void)state;
    enum { N = 200 };
    struct store_fixture *f = open_with(NULL);
    static struct store_batch batches[N];
    static int done[N];
    for (int i = 0; i < N; i++) {
        batches[i] = (struct store_batch){.done = batch_done, .owner = &done[i]};
        add(&batches[i], STORE_PLAY, START, "u", "a");
        f->store->ops->record(f->store, &batches[i]);
    }
    close_store(f);
    for (int i = 0; i < N; i++) {
        assert_true(is_raised(&done[i]));
        assert_int_equal(batches[i].err.code, 0);
        buf_free(&batches[i].bytes);
    }
    store_fixture_free(f);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bound),
        cmocka_unit_test(test_a_lower_bound),
        cmocka_unit_test(test_repeats_take_no_room),
        cmocka_unit_test(test_no_time_is_known),
        cmocka_unit_test(test_close_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
