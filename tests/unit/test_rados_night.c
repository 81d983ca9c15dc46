/* The walk of a night that nodes share: what each takes, what it tells of it, and what fails meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "store/rados/night.h"
#include "tests/lib/rados_fixture.h"

enum { LOOKS = 3 };

static void to_midnight(void)
{
    assert_int_equal(calendar_set_zone("UTC"), 0);
    clock_test_advance(DAY_MS - clock_wall_ms() % DAY_MS);
}

static void tick(struct store_fixture *f)
{
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
}

static int64_t day_of(struct cluster_of_nodes *c, size_t i)
{
    char name[NIGHT_NAME], value[LAYOUT_HEX + 1];
    uint64_t day;
    night_piece_name(i, name);
    int len = memory_pool_value(c->pool, name, "done", value, sizeof value);
    return len == LAYOUT_HEX && layout_unhex(slice_str(value), &day) ? (int64_t)day : -1;
}

static int walked_today(struct cluster_of_nodes *c)
{
    int n = 0;
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        n += day_of(c, i) == clock_wall_ms() / DAY_MS;
    }
    return n;
}

/* Somebody who takes the locks of all pieces, and walks none. */
static struct cluster *take_locks(void)
{
    const struct cluster_options to = {.pool = "rados"};
    struct cluster *other;
    struct err err = {0};
    assert_int_equal(memory_pool_ops.connect(&to, &other, &err), 0);
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        char name[NIGHT_NAME];
        night_piece_name(i, name);
        assert_int_equal(memory_pool_ops.lock(other, name, "somebody", 2 * DAY_MS / 1000, &err), 1);
    }
    return other;
}

static void leave_locks(struct cluster *other)
{
    struct err err = {0};
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        char name[NIGHT_NAME];
        night_piece_name(i, name);
        assert_int_equal(memory_pool_ops.unlock(other, name, "somebody", &err), 0);
    }
    memory_pool_ops.disconnect(other);
}

/* --- what a node tells --- */

/* A night is over when its pieces are walked, and not when others have them in hand. */
static void a_night_in_other_hands_is_not_over(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0], *idle = &c->nodes[1];
    struct cluster *other = take_locks();
    close_node(idle);
    close_node(&c->nodes[2]);
    to_midnight();
    tick(f);
    assert_int_equal(walked_today(c), 0);
    assert_int_equal(stats(f).swept_ms, 0);
    assert_int_equal(stats(f).sealed_ms, 0);
    leave_locks(other);
    tick(f);
    assert_int_equal(stats(f).swept_ms, clock_wall_ms());
    assert_int_equal(stats(f).sealed_ms, clock_wall_ms());
    int walked = walked_today(c);
    assert_true(walked > 0);
    open_node(idle); /* it finds that all is done, which is no less an end of the night */
    assert_int_equal(walked_today(c), walked);
    assert_int_equal(stats(idle).swept_ms, clock_wall_ms());
    assert_int_equal(stats(f).flush_errors + stats(idle).flush_errors, 0);
}

/* Of what was missed a few pieces a night are walked, by all nodes together, however often they look. */
static void a_new_pool_takes_some_nights(void **state)
{
    struct cluster_of_nodes *c = *state;
    enum { A_NIGHT = NIGHT_PIECES / NIGHTS + NIGHT_MISSED };
    to_midnight();
    for (int night = 1; night <= 3; night++) {
        for (int look = 0; look < LOOKS; look++) {
            for (int i = 0; i < NODES; i++) {
                tick(&c->nodes[i]);
            }
            clock_test_advance(60 * 1000);
        }
        assert_int_equal(walked_today(c), A_NIGHT);
        to_midnight();
    }
    int never = 0;
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        never += day_of(c, i) < 0;
    }
    assert_true(never > 0 && never <= NIGHT_PIECES - 2 * A_NIGHT);
}

/* --- what fails --- */

static void fail_marks(struct cluster_of_nodes *c)
{
    clock_test_advance(2 * (int64_t)HOUR_MS); /* they are read each hour */
    log_from_here();
    memory_pool_fault(
        c->pool, &(struct memory_pool_fault){
                     .kinds = MEMORY_POOL_READS, .object = "night.", .nth = 1, .result = CLUSTER_LATE, .every = true});
}

/* Marks that can't be read are told of by day, too, and while the clock is doubted. */
static void marks_that_fail_are_told_of(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    to_midnight();
    clock_test_advance(12 * (int64_t)HOUR_MS);
    tick(f);
    fail_marks(c);
    tick(f);
    assert_true(stats(f).flush_errors > 0);
    assert_true(logged("nightly walk broken off"));
    memory_pool_fault(c->pool, NULL);
    tick(f);
    clock_test_jump(40 * (int64_t)DAY_MS);
    uint64_t before = stats(f).flush_errors;
    fail_marks(c);
    tick(f);
    assert_true(stats(f).flush_errors > before);
    assert_true(logged("nightly walk broken off"));
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        RADOS_TEST(a_night_in_other_hands_is_not_over),
        RADOS_TEST(a_new_pool_takes_some_nights),
        RADOS_TEST(marks_that_fail_are_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
