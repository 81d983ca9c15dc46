/* The queue of the store's threads: order, and when a receiver that gathers is woken. Whoever waits here too long is
 * ended by an alarm: an hour stands for "must not be needed". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/clock.h"
#include "store/thread_queue.h"

#define HOUR_US INT64_C(3600000000)
enum { STUCK_S = 30, BATCHES = 5000, ADVANCES = 300 };

static struct thread_queue box;

static int setup(void **state)
{
    (void)state;
    thread_queue_init(&box);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    thread_queue_destroy(&box);
    return 0;
}

static struct store_batch batch_of(uint32_t events)
{
    return (struct store_batch){.message.kind = STORE_BATCH, .events = events};
}

static void put(struct store_batch *batch)
{
    thread_queue_put(&box, &batch->message);
}

static void messages_come_in_order(void **state)
{
    (void)state;
    struct store_batch a = batch_of(3), b = batch_of(4);
    struct store_call call = {.message.kind = STORE_CALL};
    assert_null(thread_queue_take(&box));
    put(&a);
    thread_queue_put(&box, &call.message);
    put(&b);
    assert_int_equal(thread_queue_length(&box), 3);
    assert_int_equal(thread_queue_events(&box), 7);
    assert_false(thread_queue_wait(&box, 3600 * 1000));
    assert_ptr_equal(thread_queue_take(&box), &a);
    assert_ptr_equal(a.message.next, &call);
    assert_ptr_equal(call.message.next, &b);
    assert_null(b.message.next);
    assert_int_equal(thread_queue_length(&box), 0);
    assert_int_equal(thread_queue_events(&box), 0);
    assert_null(thread_queue_take(&box));
}

/* Nobody to wait for, enough already, or something that must not wait. */
static void gathering_ends_at_once(void **state)
{
    (void)state;
    thread_queue_gather(&box, 2, HOUR_US);
    struct store_batch one = batch_of(1), two = batch_of(1);
    put(&one);
    thread_queue_gather(&box, 1, HOUR_US);
    put(&two);
    thread_queue_gather(&box, 2, HOUR_US);
    thread_queue_take(&box);

    struct store_call call = {.message.kind = STORE_CALL};
    struct store_forget forget = {.message.kind = STORE_FORGET};
    put(&one);
    thread_queue_put(&box, &call.message);
    thread_queue_gather(&box, 2, HOUR_US);
    thread_queue_take(&box);
    put(&one);
    thread_queue_put(&box, &forget.message);
    thread_queue_gather(&box, 2, HOUR_US);
    thread_queue_take(&box);

    put(&one);
    thread_queue_wake(&box);
    thread_queue_gather(&box, 2, HOUR_US);
    thread_queue_wait(&box, 0); /* the wake is taken */
    task_ask_stop(&box.task);
    thread_queue_gather(&box, 2, HOUR_US);
    assert_true(thread_queue_wait(&box, 3600 * 1000));
}

static void gathering_has_a_limit(void **state)
{
    (void)state;
    struct store_batch one = batch_of(1), two = batch_of(1);
    put(&one);
    thread_queue_gather(&box, 2, 1000);
    assert_int_equal(thread_queue_events(&box), 1);
    thread_queue_gather(&box, 2, -5);
    assert_ptr_equal(thread_queue_take(&box), &one);
    put(&two); /* from here on one is enough again */
    thread_queue_wait(&box, 3600 * 1000);
    assert_ptr_equal(thread_queue_take(&box), &two);
}

static void *send_all(void *arg)
{
    struct store_batch *batches = arg;
    for (int i = 0; i < BATCHES; i++) {
        batches[i] = batch_of(1);
        put(&batches[i]);
    }
    return NULL;
}

/* A sender in another thread: a receiver that waits for several is woken by the last of them, each time. */
static void gathering_ends_with_the_last_one(void **state)
{
    (void)state;
    struct store_batch *batches = calloc(BATCHES, sizeof *batches);
    assert_non_null(batches);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_all, batches), 0);
    int got = 0;
    while (got < BATCHES) {
        thread_queue_wait(&box, 3600 * 1000);
        int left = BATCHES - got;
        thread_queue_gather(&box, (uint64_t)(left < 7 ? left : 7), HOUR_US);
        int n = 0;
        for (struct store_message *m = thread_queue_take(&box); m != NULL; m = m->next) {
            assert_ptr_equal(m, &batches[got + n].message);
            n++;
        }
        assert_true(n == 0 || n >= (left < 7 ? left : 7));
        got += n;
    }
    pthread_join(thread, NULL);
    free(batches);
}

static void *advance(void *arg)
{
    clock_test_advance(3600 * 1000);
    return arg;
}

/* The last: it starts the test clock. */
static void an_advance_ends_the_wait(void **state)
{
    (void)state;
    clock_test_start(1000);
    for (int i = 0; i < ADVANCES; i++) {
        pthread_t thread;
        int64_t until_us = clock_mono_us() + HOUR_US;
        assert_int_equal(pthread_create(&thread, NULL, advance, NULL), 0);
        while (clock_mono_us() < until_us) {
            assert_false(thread_queue_wait_until(&box, until_us));
        }
        pthread_join(thread, NULL);
    }
    struct store_batch batch = batch_of(1);
    put(&batch);
    assert_false(thread_queue_wait_until(&box, INT64_MAX));
    assert_ptr_equal(thread_queue_take(&box), &batch);
    task_ask_stop(&box.task);
    assert_true(thread_queue_wait_until(&box, INT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_come_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(gathering_ends_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(gathering_has_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(gathering_ends_with_the_last_one, setup, teardown),
        cmocka_unit_test_setup_teardown(an_advance_ends_the_wait, setup, teardown),
    };
    alarm(STUCK_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
