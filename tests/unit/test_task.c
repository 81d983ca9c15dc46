/* Tasks: no wake-up is lost, an end comes at any moment, heartbeats. A wait that nothing ends costs an hour here, so
 * that an alarm ends the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/settle.h"
#include "base/task.h"
#include "tests/lib/rounds.h"

#define HOUR_US INT64_C(3600000000)
enum { STUCK_S = 120, ROUNDS = 60000, CREW = 3, NAP_US = 200 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER; /* by a task, for the test */

/* What the tasks of these tests are given, and do with it. */
static struct desk {
    struct task task;
    int given, done, turns;
    int64_t until_us; /* of the first wait */
    bool came, ended;
} desk;

static int setup(void **state)
{
    (void)state;
    desk = (struct desk){.until_us = INT64_MAX};
    task_init(&desk.task, &mutex);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    task_stop(&desk.task);
    task_destroy(&desk.task);
    return 0;
}

static void start(void (*run)(void *arg))
{
    struct err err;
    assert_int_equal(task_start(&desk.task, "a task with a name", TASK_BEATS, run, &desk, &err), 0);
}

/* With the mutex. */
static void until_done(int n)
{
    while (desk.done < n) {
        pthread_cond_wait(&told, &mutex);
    }
}

static void take_all(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&mutex);
    while (task_wait(&d->task, d->until_us)) {
        d->turns++;
        d->until_us = INT64_MAX;
        d->done = d->given;
        pthread_cond_signal(&told);
    }
    d->ended = true;
    pthread_mutex_unlock(&mutex);
}

/* --- wake-ups --- */

/* Whatever the task does when it is woken: runs, waits, has not begun, is about to wait. */
static void no_wake_up_is_lost(void **state)
{
    (void)state;
    start(take_all);
    for (int i = 1; i <= test_rounds(ROUNDS); i++) {
        pthread_mutex_lock(&mutex);
        desk.given = i;
        task_wake(&desk.task);
        if (i % 3 != 0) { /* else the next one may come before it has run */
            until_done(i);
        }
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    until_done(desk.given);
    pthread_mutex_unlock(&mutex);
}

static void several_wake_ups_are_one(void **state)
{
    (void)state;
    pthread_mutex_lock(&mutex);
    desk.given = 1;
    for (int i = 0; i < 5; i++) {
        task_wake(&desk.task); /* it has not begun */
    }
    start(take_all);
    until_done(1);
    pthread_mutex_unlock(&mutex);
    while (!task_is_idle(&desk.task)) {
        usleep(NAP_US);
    }
    pthread_mutex_lock(&mutex);
    desk.given = 2;
    task_wake(&desk.task);
    until_done(2);
    assert_int_equal(desk.turns, 2);
    pthread_mutex_unlock(&mutex);
}

static void rest_once(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&mutex);
    task_rest(&d->task, d->until_us);
    d->done = 1;
    pthread_cond_signal(&told);
    while (task_wait(&d->task, INT64_MAX)) { /* the wake-up was kept for this one */
        d->done = 2;
        pthread_cond_signal(&told);
    }
    pthread_mutex_unlock(&mutex);
}

static void a_rest_ends_in_its_time_alone(void **state)
{
    (void)state;
    desk.until_us = clock_mono_us() + HOUR_US;
    start(rest_once);
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&mutex);
        task_wake(&desk.task);
        assert_int_equal(desk.done, 0);
        pthread_mutex_unlock(&mutex);
        usleep(NAP_US); /* it could wake, were it wrong */
    }
    clock_test_advance(HOUR_US / 1000);
    pthread_mutex_lock(&mutex);
    until_done(2);
    pthread_mutex_unlock(&mutex);
}

static void an_advance_ends_a_wait(void **state)
{
    (void)state;
    desk.until_us = clock_mono_us() + HOUR_US;
    desk.given = 1;
    start(take_all);
    clock_test_advance(HOUR_US / 1000 - 1);
    pthread_mutex_lock(&mutex);
    assert_int_equal(desk.turns, 0);
    pthread_mutex_unlock(&mutex);
    clock_test_advance(1);
    pthread_mutex_lock(&mutex);
    until_done(1);
    pthread_mutex_unlock(&mutex);
}

static void by_the_real_clock(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&mutex);
    task_rest_real(&d->task, clock_real_us() + NAP_US);
    d->done = 1;
    task_wait_real(&d->task, clock_real_us() + NAP_US);
    d->done = 2;
    pthread_cond_signal(&told);
    task_wait_real(&d->task, clock_real_us() + HOUR_US);
    d->done = 3;
    pthread_cond_signal(&told);
    d->ended = !task_rest_real(&d->task, clock_real_us() + HOUR_US);
    pthread_mutex_unlock(&mutex);
}

static void real_time_goes_on_beside_a_test_clock(void **state)
{
    (void)state;
    start(by_the_real_clock);
    pthread_mutex_lock(&mutex);
    until_done(2);
    task_wake(&desk.task);
    until_done(3);
    pthread_mutex_unlock(&mutex);
    task_stop(&desk.task);
    assert_true(desk.ended);
}

static void await(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&mutex);
    task_await(&d->task, &d->came);
    d->done = 1;
    pthread_mutex_unlock(&mutex);
}

static void await_and_wait(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&mutex);
    task_await(&d->task, &d->came);
    while (task_wait(&d->task, INT64_MAX)) {
        d->turns++;
        d->done = d->given;
        pthread_cond_signal(&told);
    }
    pthread_mutex_unlock(&mutex);
}

/* Else what tries again and again in vain, and asks the store each time, never rests. */
static void an_answer_ends_no_other_wait(void **state)
{
    (void)state;
    start(await_and_wait);
    pthread_mutex_lock(&mutex);
    task_answer(&desk.task, &desk.came);
    pthread_mutex_unlock(&mutex);
    while (!task_is_idle(&desk.task)) {
        usleep(NAP_US);
    }
    assert_int_equal(desk.turns, 0);
    pthread_mutex_lock(&mutex);
    desk.given = 1;
    task_wake(&desk.task);
    until_done(1);
    assert_int_equal(desk.turns, 1);
    pthread_mutex_unlock(&mutex);
}

/* The task's memory is being written to until then. */
static void what_must_come_is_waited_for(void **state)
{
    (void)state;
    start(await);
    pthread_mutex_lock(&mutex);
    task_wake(&desk.task);
    pthread_mutex_unlock(&mutex);
    task_ask_stop(&desk.task);
    usleep(NAP_US); /* it could end, were it wrong */
    pthread_mutex_lock(&mutex);
    assert_int_equal(desk.done, 0);
    task_answer(&desk.task, &desk.came);
    pthread_mutex_unlock(&mutex);
    task_stop(&desk.task);
    assert_int_equal(desk.done, 1);
}

/* --- several that do the same --- */

static struct crew {
    struct task tasks[CREW];
    int queue, done;
} crew;

static void take_one(struct task *t)
{
    pthread_mutex_lock(&mutex);
    while (!task_stops(t)) {
        if (crew.queue == 0) {
            task_wait(t, INT64_MAX);
            continue;
        }
        crew.queue--;
        pthread_mutex_unlock(&mutex);
        pthread_mutex_lock(&mutex);
        crew.done++;
        pthread_cond_signal(&told);
    }
    pthread_mutex_unlock(&mutex);
}

static void take_one_each(void *arg)
{
    take_one(arg);
}

static void one_of_a_crew_is_woken(void **state)
{
    (void)state;
    const int n = test_rounds(ROUNDS);
    struct err err;
    tasks_init(crew.tasks, CREW, &mutex);
    for (int i = 0; i < CREW; i++) {
        assert_int_equal(task_start(&crew.tasks[i], "crew", TASK_SILENT, take_one_each, &crew.tasks[i], &err), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&mutex);
        crew.queue++;
        task_unlock_wake_one(crew.tasks, CREW);
        pthread_mutex_lock(&mutex);
        while (i % 7 == 0 && crew.done <= i) {
            pthread_cond_wait(&told, &mutex);
        }
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    while (crew.done < n) {
        pthread_cond_wait(&told, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    tasks_stop(crew.tasks, CREW);
    tasks_destroy(crew.tasks, CREW);
}

/* --- its end --- */

static void it_ends_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < test_rounds(2000); i++) {
        desk.ended = false;
        start(take_all);
        if (i % 4 > 0) { /* else hardly begun */
            pthread_mutex_lock(&mutex);
            desk.given++;
            task_wake(&desk.task);
            if (i % 4 > 1) { /* it waits again, or is about to */
                until_done(desk.given);
            }
            pthread_mutex_unlock(&mutex);
        }
        task_stop(&desk.task);
        assert_true(desk.ended);
        task_stop(&desk.task); /* once more is nothing */
        task_destroy(&desk.task);
        task_init(&desk.task, &mutex);
    }
}

static void what_is_to_end_waits_no_more(void **state)
{
    (void)state;
    task_ask_stop(&desk.task); /* before it has begun */
    assert_true(task_stops(&desk.task));
    pthread_mutex_lock(&mutex);
    assert_false(task_wait(&desk.task, INT64_MAX));
    assert_false(task_rest(&desk.task, INT64_MAX));
    assert_false(task_wait_real(&desk.task, INT64_MAX));
    assert_false(task_rest_real(&desk.task, INT64_MAX));
    pthread_mutex_unlock(&mutex);
    start(take_all);
    task_stop(&desk.task);
    assert_true(desk.ended);
    assert_int_equal(desk.turns, 0);
}

static void one_that_never_began_may_be_stopped(void **state)
{
    (void)state;
    task_stop(&desk.task);
    task_stop(&desk.task);
}

/* --- what all tasks have --- */

static void look_at_signals(void *arg)
{
    struct desk *d = arg;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    d->done = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGHUP) == 1;
}

static void no_signal_is_delivered_to_it(void **state)
{
    (void)state;
    sigset_t mine;
    start(look_at_signals);
    task_stop(&desk.task);
    assert_int_equal(desk.done, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGTERM), 0);
}

static int64_t silent_ms(const char *name)
{
    struct heartbeat_age ages[8];
    int n = heartbeat_ages(ages, 8);
    for (int i = 0; i < n; i++) {
        if (strcmp(ages[i].name, name) == 0) {
            return ages[i].silent_ms;
        }
    }
    return -1;
}

static void work_long(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&mutex);
    d->done = 1;
    pthread_cond_signal(&told);
    while (d->given == 0) { /* as a disk that hangs: no wait of the task's */
        pthread_cond_wait(&told, &mutex);
    }
    d->done = 2;
    pthread_cond_signal(&told);
    task_wait(&d->task, INT64_MAX);
    pthread_mutex_unlock(&mutex);
}

static void it_beats_while_it_waits(void **state)
{
    (void)state;
    const char *name = "a task with a n"; /* which is cut */
    assert_int_equal(silent_ms(name), -1);
    start(work_long);
    pthread_mutex_lock(&mutex);
    until_done(1);
    pthread_mutex_unlock(&mutex);
    clock_test_pass(5000);
    assert_in_range(silent_ms(name), 5000, 100 * 1000);
    pthread_mutex_lock(&mutex);
    desk.given = 1;
    pthread_cond_broadcast(&told);
    until_done(2);
    pthread_mutex_unlock(&mutex);
    while (silent_ms(name) >= 5000) {
        usleep(NAP_US);
    }
    task_stop(&desk.task);
    assert_int_equal(silent_ms(name), -1);
}

static void a_silent_one_has_no_heartbeat(void **state)
{
    (void)state;
    struct err err;
    pthread_mutex_lock(&mutex);
    assert_int_equal(task_start(&desk.task, "silent", TASK_SILENT, work_long, &desk, &err), 0);
    until_done(1);
    desk.given = 1;
    pthread_cond_broadcast(&told);
    until_done(2);
    pthread_mutex_unlock(&mutex);
    assert_int_equal(silent_ms("silent"), -1);
}

/* --- whether there is anything left to do --- */

static struct settle look(const char *busy)
{
    struct settle now;
    struct buf names = {0};
    assert_int_equal(settle_look(&now, &names), 0);
    assert_int_equal(names.len, strlen(busy));
    assert_memory_equal(names.len > 0 ? names.data : "", busy, names.len);
    buf_free(&names);
    return now;
}

static void until_idle(void)
{
    while (!task_is_idle(&desk.task)) {
        usleep(NAP_US);
    }
}

/* A beat may have the mutex at the moment of a look, and so it is asked again. */
static struct settle rest(void)
{
    struct settle now;
    struct buf names = {0};
    do {
        assert_int_equal(settle_look(&now, &names), 0);
    } while (names.len > 0);
    buf_free(&names);
    return now;
}

static void one_that_waits_is_idle_until_it_is_woken(void **state)
{
    (void)state;
    look("");
    start(take_all);
    until_idle();
    const struct settle before = rest();
    assert_true(before.due_us == INT64_MAX);
    assert_int_equal(rest().acts, before.acts);
    pthread_mutex_lock(&mutex);
    desk.given = 1;
    task_wake(&desk.task);
    look("a task with a name"); /* it has the news, and hasn't run yet */
    until_done(1);
    pthread_mutex_unlock(&mutex);
    until_idle();
    assert_true(rest().acts > before.acts);
    task_stop(&desk.task);
    look("");
}

static void what_a_task_waits_for_is_due(void **state)
{
    (void)state;
    desk.until_us = clock_mono_us() + HOUR_US;
    start(take_all);
    until_idle();
    const struct settle before = rest();
    assert_int_equal(before.due_us - clock_mono_us(), HOUR_US);
    clock_test_advance(HOUR_US / 1000);
    pthread_mutex_lock(&mutex);
    while (desk.turns == 0) {
        pthread_cond_wait(&told, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    until_idle();
    assert_true(rest().due_us == INT64_MAX);
    assert_true(rest().acts > before.acts);
}

static void one_that_works_is_not_idle(void **state)
{
    (void)state;
    start(work_long);
    pthread_mutex_lock(&mutex);
    until_done(1);
    look("a task with a name");
    desk.given = 1;
    pthread_cond_broadcast(&told);
    until_done(2);
    pthread_mutex_unlock(&mutex);
}

static void pause_in_work(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&mutex);
    d->done = 1;
    pthread_cond_signal(&told);
    task_pause_real(&d->task, clock_real_us() + HOUR_US);
    d->done = 2;
    pthread_cond_signal(&told);
    task_rest_real(&d->task, clock_real_us() + HOUR_US);
    pthread_mutex_unlock(&mutex);
}

static void one_that_pauses_or_rests_by_real_time_is_not_idle(void **state)
{
    (void)state;
    start(pause_in_work);
    pthread_mutex_lock(&mutex);
    until_done(1);
    look("a task with a name");
    task_wake(&desk.task);
    until_done(2);
    look("a task with a name");
    pthread_mutex_unlock(&mutex);
}

static int line[2];

static void park(void *arg)
{
    struct desk *d = arg;
    char byte;
    task_park(&d->task, line[0]);
    pthread_mutex_lock(&mutex);
    d->done = 1;
    pthread_cond_signal(&told);
    while (d->given == 0) {
        pthread_cond_wait(&told, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    d->came = read(line[0], &byte, 1) == 1;
    task_unpark(&d->task);
}

static void one_that_is_parked_is_idle_until_something_comes(void **state)
{
    (void)state;
    assert_int_equal(pipe(line), 0);
    start(park);
    pthread_mutex_lock(&mutex);
    until_done(1);
    const struct settle before = look("");
    assert_int_equal(write(line[1], "x", 1), 1);
    look("a task with a name");
    desk.given = 1;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&mutex);
    task_stop(&desk.task);
    assert_true(desk.came);
    assert_true(look("").acts > before.acts);
    close(line[0]);
    close(line[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_wake_up_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(several_wake_ups_are_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_rest_ends_in_its_time_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(an_advance_ends_a_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(real_time_goes_on_beside_a_test_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(what_must_come_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(an_answer_ends_no_other_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(one_of_a_crew_is_woken, setup, teardown),
        cmocka_unit_test_setup_teardown(it_ends_at_any_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_to_end_waits_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_never_began_may_be_stopped, setup, teardown),
        cmocka_unit_test_setup_teardown(no_signal_is_delivered_to_it, setup, teardown),
        cmocka_unit_test_setup_teardown(it_beats_while_it_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_one_has_no_heartbeat, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_waits_is_idle_until_it_is_woken, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_task_waits_for_is_due, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_works_is_not_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_pauses_or_rests_by_real_time_is_not_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_is_parked_is_idle_until_something_comes, setup, teardown),
    };
    clock_test_start(INT64_C(1790000000000));
    alarm(STUCK_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
