/* Whom a write waits for: released in order by a replica, alone after the timeout, in step again after ten seconds of
 * keeping up, refused where that is wanted, and never alone without leave. The test owns the clock; the thread of ack
 * looks at it every 2 ms of real time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "replica/ack.h"

enum { WAITS = 8, TIMEOUT_MS = 50, PATIENCE_S = 60 };

struct fixture {
    struct config cfg, changed;
    struct ack *ack;
    struct ack_wait waits[WAITS];
    struct err errs[WAITS];
    _Atomic int order[WAITS], done;
    _Atomic bool leave;
    _Atomic int asked, again;
    _Atomic uint64_t named; /* the sum of who was named last */
};

static void on_done(struct ack_wait *wait)
{
    struct fixture *f = wait->owner;
    f->order[atomic_fetch_add(&f->done, 1)] = (int)wait->seq;
}

static void put(struct fixture *f, int i)
{
    f->waits[i] = (struct ack_wait){.seq = (uint64_t)i + 1, .err = &f->errs[i], .done = on_done, .owner = f};
    ack_wait(f->ack, &f->waits[i]);
}

static void until_done(struct fixture *f, int n)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    time_t end = time(NULL) + PATIENCE_S;
    while (atomic_load(&f->done) < n) {
        assert_true(time(NULL) < end);
        nanosleep(&moment, NULL);
    }
}

static struct ack_state look(struct fixture *f)
{
    struct ack_state s;
    ack_look(f->ack, &s);
    return s;
}

static void until_in_step(struct fixture *f)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    time_t end = time(NULL) + PATIENCE_S;
    while (!look(f).in_step) {
        assert_true(time(NULL) < end);
        clock_test_advance(1000);
        nanosleep(&moment, NULL);
    }
}

static void until_named(struct fixture *f, uint64_t sum)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    time_t end = time(NULL) + PATIENCE_S;
    while (atomic_load(&f->named) != sum) {
        assert_true(time(NULL) < end);
        clock_test_advance(1000);
        nanosleep(&moment, NULL);
    }
}

static int setup_as(void **state, enum config_ack mode)
{
    struct fixture *f = *state = calloc(1, sizeof *f);
    config_defaults(&f->cfg);
    f->cfg.replica_ack = mode;
    f->cfg.replica_ack_timeout_ms = TIMEOUT_MS;
    f->ack = ack_new(&f->cfg);
    struct err err;
    return ack_start(f->ack, &err);
}

static int setup(void **state)
{
    return setup_as(state, ACK_REPLICA);
}

static int setup_strict(void **state)
{
    return setup_as(state, ACK_REPLICA_STRICT);
}

static int setup_local(void **state)
{
    return setup_as(state, ACK_LOCAL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ack_stop(f->ack);
    ack_free(f->ack);
    free(f);
    return 0;
}

static void come_into_step(struct fixture *f)
{
    ack_reached(f->ack, 7, 0);
    until_in_step(f);
}

static void a_start_is_out_of_step(void **state)
{
    struct fixture *f = *state;
    clock_test_advance(60 * 1000);
    put(f, 0); /* nobody is there: at once */
    assert_int_equal(f->done, 1);
    assert_int_equal(f->errs[0].code, 0);
    assert_int_equal(look(f).alone, 1);
    assert_false(look(f).in_step);
}

static void released_in_order(void **state)
{
    struct fixture *f = *state;
    come_into_step(f);
    for (int i = 0; i < 4; i++) {
        put(f, i);
    }
    assert_int_equal(f->done, 0);
    assert_int_equal(look(f).waiting, 4);
    ack_reached(f->ack, 7, 2);
    assert_int_equal(f->done, 2);
    ack_reached(f->ack, 8, 1); /* another one, which is behind */
    assert_int_equal(f->done, 2);
    ack_reached(f->ack, 8, 4);
    assert_int_equal(f->done, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(f->order[i], i + 1);
        assert_int_equal(f->errs[i].code, 0);
    }
    put(f, 3); /* reached already */
    assert_int_equal(f->done, 5);
}

static void alone_and_in_step_again(void **state)
{
    struct fixture *f = *state;
    come_into_step(f);
    put(f, 0);
    put(f, 1);
    clock_test_advance(TIMEOUT_MS);
    until_done(f, 2);
    assert_int_equal(f->errs[0].code, 0);
    assert_false(look(f).in_step);
    assert_int_equal(look(f).fell_out, 1);
    put(f, 2); /* out of step: at once */
    assert_int_equal(f->done, 3);
    assert_int_equal(look(f).alone, 3);
    ack_reached(f->ack, 7, 3);
    until_in_step(f);
    put(f, 3);
    assert_int_equal(f->done, 3);
    ack_reached(f->ack, 7, 4);
    assert_int_equal(f->done, 4);
    assert_int_equal(look(f).fell_out, 1);
}

static void strict_refuses(void **state)
{
    struct fixture *f = *state;
    put(f, 0);
    assert_int_equal(f->done, 0);
    clock_test_advance(TIMEOUT_MS);
    until_done(f, 1);
    assert_int_equal(f->errs[0].code, ERR_ALONE);
    put(f, 1);
    ack_reached(f->ack, 7, 2);
    assert_int_equal(f->done, 2);
    assert_int_equal(f->errs[1].code, 0);
    assert_int_equal(look(f).refused, 1);
    assert_int_equal(look(f).alone, 0);
}

static bool record(void *arg, const uint64_t *nodes, int n)
{
    struct fixture *f = arg;
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += nodes[i];
    }
    atomic_store(&f->named, sum);
    atomic_fetch_add(n > 0 ? &f->again : &f->asked, 1);
    return n > 0 || atomic_load(&f->leave);
}

static void not_alone_without_leave(void **state)
{
    struct fixture *f = *state;
    ack_set_gatekeeper(f->ack, record, f);
    put(f, 0); /* also at a start: nothing was recorded elsewhere */
    assert_int_equal(f->done, 0);
    clock_test_advance(TIMEOUT_MS);
    until_done(f, 1);
    assert_int_equal(f->errs[0].code, ERR_ALONE);
    assert_int_equal(f->asked, 1);
    atomic_store(&f->leave, true);
    put(f, 1);
    assert_int_equal(f->done, 1);
    clock_test_advance(TIMEOUT_MS);
    until_done(f, 2);
    assert_int_equal(f->errs[1].code, 0);
    put(f, 2); /* it has leave now */
    assert_int_equal(f->done, 3);
    assert_int_equal(f->asked, 2);
    ack_reached(f->ack, 7, 3);
    until_in_step(f);
    time_t end = time(NULL) + PATIENCE_S;
    while (atomic_load(&f->again) == 0) {
        assert_true(time(NULL) < end);
    }
    assert_int_equal(f->again, 1);
}

/* A replica that lags is left out of the names before a write is answered that it lacks, and named once it keeps up. */
static void all_that_are_named(void **state)
{
    struct fixture *f = *state;
    ack_set_gatekeeper(f->ack, record, f);
    ack_reached(f->ack, 7, 0);
    ack_reached(f->ack, 8, 0);
    until_in_step(f);
    until_named(f, 7 + 8);
    put(f, 0);
    ack_reached(f->ack, 7, 1);
    assert_int_equal(f->done, 0);
    assert_int_equal(atomic_load(&f->named), 7 + 8);
    clock_test_advance(TIMEOUT_MS / 2);
    until_done(f, 1);
    assert_int_equal(f->errs[0].code, 0);
    assert_int_equal(atomic_load(&f->named), 7);
    assert_int_equal(look(f).common, 1);
    put(f, 1);
    ack_reached(f->ack, 8, 2); /* it has all again, but another one is named */
    assert_int_equal(f->done, 1);
    ack_reached(f->ack, 7, 2);
    assert_int_equal(f->done, 2);
    until_named(f, 7 + 8);
    assert_int_equal(look(f).alone, 0);
    assert_int_equal(f->asked, 0);
}

/* What is named isn't known at a start: nothing is answered before it is. */
static void names_of_a_start(void **state)
{
    struct fixture *f = *state;
    ack_set_gatekeeper(f->ack, record, f);
    ack_reached(f->ack, 7, 1);
    put(f, 0);
    until_done(f, 1);
    assert_int_equal(f->errs[0].code, 0);
    assert_int_equal(atomic_load(&f->named), 7);
}

/* Whoever waits for nobody answers alone, and needs leave for that as well: what was recorded before may say in step.
 */
static void local_needs_leave_too(void **state)
{
    struct fixture *f = *state;
    ack_set_gatekeeper(f->ack, record, f);
    put(f, 0);
    assert_int_equal(f->done, 0);
    time_t end = time(NULL) + PATIENCE_S;
    while (atomic_load(&f->asked) < 2) { /* again and again, without a timeout */
        assert_true(time(NULL) < end);
    }
    assert_int_equal(f->done, 0);
    clock_test_advance(TIMEOUT_MS);
    until_done(f, 1);
    assert_int_equal(f->errs[0].code, ERR_ALONE);
    put(f, 1);
    atomic_store(&f->leave, true);
    until_done(f, 2);
    assert_int_equal(f->errs[1].code, 0);
    put(f, 2);
    assert_int_equal(f->done, 3);
    assert_int_equal(look(f).fell_out, 0);
}

/* The mode is changed while the two are in step. */
static void changed_to_local(void **state)
{
    struct fixture *f = *state;
    ack_set_gatekeeper(f->ack, record, f);
    come_into_step(f);
    f->changed = f->cfg;
    f->changed.replica_ack = ACK_LOCAL;
    atomic_store(&f->cfg.changed, &f->changed);
    put(f, 0);
    assert_int_equal(f->done, 0);
    atomic_store(&f->leave, true);
    until_done(f, 1);
    assert_int_equal(f->errs[0].code, 0);
    assert_true(atomic_load(&f->asked) > 0);
    put(f, 1);
    assert_int_equal(f->done, 2);
    atomic_store(&f->cfg.changed, NULL); /* and back: it must come into step once more */
    assert_false(look(f).in_step);
    int again = atomic_load(&f->again);
    ack_reached(f->ack, 7, 2);
    until_in_step(f);
    time_t end = time(NULL) + PATIENCE_S;
    while (atomic_load(&f->again) == again) {
        assert_true(time(NULL) < end);
    }
    atomic_store(&f->leave, false);
    put(f, 2);
    assert_int_equal(f->done, 2);
}

static void a_stop_ends_all(void **state)
{
    struct fixture *f = *state;
    put(f, 0);
    ack_stop(f->ack);
    assert_int_equal(f->done, 1);
    assert_int_equal(f->errs[0].code, ERR_ALONE);
    put(f, 1); /* and what comes behind it */
    assert_int_equal(f->done, 2);
    assert_int_equal(f->errs[1].code, ERR_ALONE);
}

static void local_waits_for_nobody(void **state)
{
    struct fixture *f = *state;
    put(f, 0);
    assert_int_equal(f->done, 1);
    assert_int_equal(look(f).alone, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_start_is_out_of_step, setup, teardown),
        cmocka_unit_test_setup_teardown(released_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(alone_and_in_step_again, setup, teardown),
        cmocka_unit_test_setup_teardown(strict_refuses, setup_strict, teardown),
        cmocka_unit_test_setup_teardown(not_alone_without_leave, setup, teardown),
        cmocka_unit_test_setup_teardown(all_that_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(names_of_a_start, setup, teardown),
        cmocka_unit_test_setup_teardown(local_needs_leave_too, setup_local, teardown),
        cmocka_unit_test_setup_teardown(changed_to_local, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stop_ends_all, setup_strict, teardown),
        cmocka_unit_test_setup_teardown(local_waits_for_nobody, setup_local, teardown),
    };
    clock_test_start(1795255200000);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
