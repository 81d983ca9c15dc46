/* The owned clock waited for, and the work clock. A wake-up that is lost costs a second here: the rounds are so many
 * that an alarm ends them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heartbeat.h"

enum { STUCK_S = 60, ROUNDS = 20000, THREADS = 4, STEP_MS = 7 };

static void *advance(void *arg)
{
    (void)arg;
    clock_test_advance(STEP_MS);
    return NULL;
}

/* Each waits for the next time, and advances the clock when it is the last to have come there. */
static struct meeting {
    pthread_mutex_t mutex;
    int64_t round, come;
} meeting = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void *meet(void *arg)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* each of these goes as soon as nobody waits for it */
    pthread_cond_t cond;
    struct heartbeat beat;
    int64_t start_us = *(const int64_t *)arg;
    heartbeat_begin(&beat, "meets");
    for (int64_t round = 1; round <= ROUNDS; round++) {
        int64_t until_us = start_us + round * STEP_MS * 1000;
        pthread_mutex_lock(&meeting.mutex);
        bool last = ++meeting.come == THREADS * round;
        pthread_mutex_unlock(&meeting.mutex);
        if (last) {
            clock_test_advance(STEP_MS);
        }
        pthread_cond_init(&cond, NULL);
        pthread_mutex_lock(&mutex);
        while (clock_mono_us() < until_us) {
            heartbeat_wait(&beat, &cond, &mutex, until_us);
        }
        pthread_mutex_unlock(&mutex);
        pthread_cond_destroy(&cond);
        assert_true(clock_mono_us() >= until_us);
    }
    heartbeat_end(&beat);
    return NULL;
}

static void an_advance_wakes_all_who_wait(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int64_t start_us = clock_mono_us();
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, meet, &start_us), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(clock_mono_us(), start_us + (int64_t)ROUNDS * STEP_MS * 1000);
}

static void what_is_due_is_not_waited_for(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < ROUNDS; i++) {
        clock_cond_wait_until(&cond, &mutex, clock_mono_us() - i);
    }
    pthread_mutex_unlock(&mutex);
}

/* Several who advance at once: none is passed over. */
static void two_may_advance(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    for (int i = 0; i < ROUNDS / 40; i++) {
        pthread_t threads[THREADS];
        int64_t until_us = clock_mono_us() + THREADS * STEP_MS * 1000;
        for (int t = 0; t < THREADS; t++) {
            assert_int_equal(pthread_create(&threads[t], NULL, advance, NULL), 0);
        }
        pthread_mutex_lock(&mutex);
        while (clock_mono_us() < until_us) {
            clock_cond_wait_until(&cond, &mutex, until_us);
        }
        pthread_mutex_unlock(&mutex);
        for (int t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
        }
    }
}

static void *look(void *arg)
{
    int64_t *took = arg, began = clock_work_us();
    *took = clock_work_us() - began;
    return NULL;
}

/* A look takes a microsecond, and those of other threads none. */
static void work_takes_looks(void **state)
{
    (void)state;
    int64_t began = clock_work_us(), theirs = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look, &theirs), 0);
    pthread_join(thread, NULL);
    assert_int_equal(theirs, 1);
    assert_int_equal(clock_work_us() - began, 1);
    clock_test_advance(1000);
    assert_int_equal(clock_work_us() - began, 2);
}

/* In microseconds the clock is the same as in milliseconds, and of the three only the real one can be passed. */
static void clocks_are_apart(void **state)
{
    (void)state;
    int64_t mono_us = clock_mono_us(), real_us = clock_real_us(), figures_us = clock_figures_us();
    assert_int_equal(mono_us, clock_mono_ms() * 1000);
    clock_test_advance(1);
    assert_int_equal(clock_mono_us(), mono_us + 1000);
    clock_test_jump(5);
    clock_test_pass(3600 * 1000);
    assert_int_equal(clock_mono_us(), mono_us + 1000);
    assert_true(clock_real_us() >= real_us + INT64_C(3600000000));
    assert_true(clock_figures_us() >= figures_us && clock_figures_us() < figures_us + INT64_C(3600000000));
}

/* Before there is a test clock. */
static void without_a_test_all_of_them_go_on(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    int64_t mono_us = clock_mono_us(), work_us = clock_work_us();
    pthread_mutex_lock(&mutex);
    while (clock_mono_us() < mono_us + 2000 || clock_work_us() < work_us + 2000) {
        clock_cond_wait_until(&cond, &mutex, mono_us + 2000);
    }
    pthread_mutex_unlock(&mutex);
    clock_test_start(1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_test_all_of_them_go_on), /* the first: it starts the test clock */
        cmocka_unit_test(an_advance_wakes_all_who_wait),
        cmocka_unit_test(what_is_due_is_not_waited_for),
        cmocka_unit_test(two_may_advance),
        cmocka_unit_test(work_takes_looks),
        cmocka_unit_test(clocks_are_apart),
    };
    alarm(STUCK_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
