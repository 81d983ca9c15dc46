/* The guarded clock that the nodes of a pool keep together: judged by it at a start, written rarely, and changed by an
 * administrator at one node for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/rados/layout.h"
#include "tests/lib/rados_fixture.h"

enum { MINUTE_MS = 60 * 1000 };

static struct store_clock clock_of(struct store_fixture *f)
{
    struct store_clock clock;
    f->store->ops->clock(f->store, &clock);
    return clock;
}

static int change_clock(struct store_fixture *f, bool set_back)
{
    int done = 0;
    struct store_clock_change change = {.call = {.done = call_done, .owner = &done}, .set_back = set_back};
    f->store->ops->clock_change(f->store, &change);
    wait_flag(&done);
    return change.call.err.code;
}

static int64_t newest_in_pool(struct cluster_of_nodes *c)
{
    char value[80];
    uint64_t newest;
    int len = memory_pool_value(c->pool, LAYOUT_META, "clock", value, sizeof value);
    return len == 4 * LAYOUT_HEX && layout_unhex(slice_of(value + LAYOUT_HEX, LAYOUT_HEX), &newest) ? (int64_t)newest
                                                                                                    : -1;
}

static void tick_all(struct cluster_of_nodes *c)
{
    for (int i = 0; i < NODES; i++) {
        if (c->nodes[i].store != NULL) {
            call(&c->nodes[i], c->nodes[i].store->ops->tick, NULL);
        }
    }
}

static void a_start_far_ahead(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    assert_int_equal(newest_in_pool(c), START);
    for (int i = 0; i < NODES; i++) {
        close_node(&c->nodes[i]);
    }
    clock_test_jump(20 * (int64_t)DAY_MS); /* the nodes were away for so long: nothing to wonder about */
    open_node(f);
    assert_false(clock_of(f).doubted);
    assert_int_equal(newest_in_pool(c), START + 20 * (int64_t)DAY_MS);
    close_node(f);
    clock_test_jump(40 * (int64_t)DAY_MS);
    for (int i = 0; i < NODES; i++) {
        open_node(&c->nodes[i]);
        assert_true(clock_of(&c->nodes[i]).doubted);
    }
    assert_int_equal(clock_of(f).newest_ms, START + 20 * (int64_t)DAY_MS);
    assert_int_equal(newest_in_pool(c), START + 20 * (int64_t)DAY_MS);
    assert_int_equal(change_clock(f, false), 0); /* an administrator at one of them */
    assert_false(clock_of(f).doubted);
    assert_int_equal(newest_in_pool(c), START + 60 * (int64_t)DAY_MS);
    clock_test_advance(2 * MINUTE_MS); /* the others hear of it */
    tick_all(c);
    RADOS_UNTIL(!clock_of(&c->nodes[1]).doubted && !clock_of(&c->nodes[2]).doubted);
    assert_int_equal(change_clock(f, false), ERR_INVALID);
}

/* Taken back at one node: no other one brings the later time back. */
static void set_back_at_one(void **state)
{
    struct cluster_of_nodes *c = *state;
    for (int i = 0; i < NODES; i++) {
        close_node(&c->nodes[i]);
    }
    clock_test_jump(20 * (int64_t)DAY_MS);
    for (int i = 0; i < NODES; i++) {
        open_node(&c->nodes[i]);
    }
    clock_test_jump(-20 * (int64_t)DAY_MS);
    assert_true(clock_of(&c->nodes[0]).doubted && clock_of(&c->nodes[1]).doubted);
    assert_int_equal(change_clock(&c->nodes[0], true), 0);
    assert_int_equal(newest_in_pool(c), START);
    clock_test_advance(11 * MINUTE_MS);
    tick_all(c);
    RADOS_UNTIL(!clock_of(&c->nodes[1]).doubted && !clock_of(&c->nodes[2]).doubted);
    clock_test_advance(11 * MINUTE_MS);
    tick_all(c);
    RADOS_UNTIL(newest_in_pool(c) > START);
    assert_true(newest_in_pool(c) <= START + 22 * MINUTE_MS);
}

/* Ten minutes of three nodes are one write. */
static void it_is_written_rarely(void **state)
{
    struct cluster_of_nodes *c = *state;
    uint64_t before = memory_pool_operations(c->pool, MEMORY_POOL_WRITES);
    for (int i = 0; i < 9; i++) {
        clock_test_advance(MINUTE_MS);
        tick_all(c);
    }
    assert_int_equal(memory_pool_operations(c->pool, MEMORY_POOL_WRITES), before);
    uint64_t reads = memory_pool_operations(c->pool, MEMORY_POOL_READS); /* an advance wakes who reads */
    clock_test_advance(MINUTE_MS + 1);
    tick_all(c);
    RADOS_UNTIL(newest_in_pool(c) == clock_wall_ms());
    RADOS_UNTIL(memory_pool_operations(c->pool, MEMORY_POOL_READS) >= reads + NODES); /* all have looked */
    tick_all(c);
    assert_true(memory_pool_operations(c->pool, MEMORY_POOL_WRITES) <= before + NODES); /* those that lost count, too */
    assert_int_equal(newest_in_pool(c), clock_wall_ms());
}

/* What isn't durable isn't believed. */
static void a_change_that_fails(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    clock_test_jump(40 * (int64_t)DAY_MS);
    assert_true(clock_of(f).doubted);
    fault(c, MEMORY_POOL_WRITES, LAYOUT_META, CLUSTER_LATE);
    assert_int_equal(change_clock(f, false), ERR_LATE);
    assert_true(clock_of(f).doubted);
    assert_int_equal(newest_in_pool(c), START);
    assert_int_equal(change_clock(f, false), 0);
    assert_false(clock_of(f).doubted);
}

/* --- each operation, in each way --- */

static const struct way {
    const char *name;
    unsigned kinds;
    enum cluster_result result;
    bool carried_out, counts;
} ways[] = {
    {"late read", MEMORY_POOL_READS, CLUSTER_LATE, false, true},
    {"failed read", MEMORY_POOL_READS, CLUSTER_FAILED, false, true},
    {"read without memory", MEMORY_POOL_READS, CLUSTER_NOMEM, false, false},
    {"late write", MEMORY_POOL_WRITES, CLUSTER_LATE, false, true},
    {"late write that was carried out", MEMORY_POOL_WRITES, CLUSTER_LATE, true, true},
    {"failed write", MEMORY_POOL_WRITES, CLUSTER_FAILED, false, true},
    {"failed write that was carried out", MEMORY_POOL_WRITES, CLUSTER_FAILED, true, true},
    {"full", MEMORY_POOL_WRITES, CLUSTER_FULL, false, false},
    {"write that another was faster with", MEMORY_POOL_WRITES, CLUSTER_DIFFERS, false, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void arm(struct cluster_of_nodes *c, const struct way *w)
{
    log_from_here();
    memory_pool_fault(
        c->pool,
        &(struct memory_pool_fault){
            .kinds = w->kinds, .object = LAYOUT_META, .nth = 1, .result = w->result, .carried_out = w->carried_out});
}

static void leave_one(struct cluster_of_nodes *c)
{
    for (int i = 1; i < NODES; i++) {
        close_node(&c->nodes[i]);
    }
}

/* The newest time is kept a little later then. */
static void each_round_fails(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    leave_one(c);
    for (int i = 0; i < WAYS; i++) {
        unsigned faults = memory_pool_faults(c->pool);
        uint64_t errors = stats(f).rados_errors;
        arm(c, &ways[i]);
        clock_test_advance(11 * MINUTE_MS);
        int64_t due = clock_wall_ms();
        tick_all(c);
        RADOS_UNTIL(memory_pool_faults(c->pool) == faults + 1);
        if (ways[i].result != CLUSTER_DIFFERS) {
            RADOS_UNTIL(logged("newest time not saved"));
        }
        assert_int_equal(stats(f).rados_errors, errors + ways[i].counts);
        clock_test_advance(2 * MINUTE_MS);
        tick_all(c);
        RADOS_UNTIL(newest_in_pool(c) >= due);
        assert_false(clock_of(f).doubted);
    }
}

/* Whoever changes it is told, and does it again. */
static void each_change_fails(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    leave_one(c);
    for (int i = 0; i < WAYS; i++) {
        clock_test_jump(40 * (int64_t)DAY_MS);
        assert_true(clock_of(f).doubted);
        int64_t before = newest_in_pool(c);
        uint64_t errors = stats(f).rados_errors;
        arm(c, &ways[i]);
        int code = change_clock(f, false);
        assert_true(ways[i].result == CLUSTER_DIFFERS ? code == 0 : code < 0);
        assert_true(code == 0 || ways[i].carried_out || (newest_in_pool(c) == before && clock_of(f).doubted));
        assert_int_equal(stats(f).rados_errors, errors + ways[i].counts);
        code = change_clock(f, false);
        assert_true(code == 0 || (code == ERR_INVALID && (ways[i].carried_out || ways[i].result == CLUSTER_DIFFERS)));
        assert_false(clock_of(f).doubted);
        assert_int_equal(newest_in_pool(c), clock_wall_ms());
    }
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        RADOS_TEST(a_start_far_ahead),   RADOS_TEST(set_back_at_one),  RADOS_TEST(it_is_written_rarely),
        RADOS_TEST(a_change_that_fails), RADOS_TEST(each_round_fails), RADOS_TEST(each_change_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
