#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "store/ring_turns.h"

static void test_slot(void **state)
{
    (void)state;
    assert_int_equal(ring_slot(0, 6), 0);
    assert_int_equal(ring_slot(5, 6), 5);
    assert_int_equal(ring_slot(6, 6), 0);
    assert_int_equal(ring_slot(13, 4), 1);
    assert_int_equal(ring_slot(99, 1), 0);
    assert_int_equal(ring_slot((UINT64_C(1) << 40) + 3, 64), 3);
}

/* Slots are written as text, one letter each: '.' empty, 'x' holds rows. */
struct lap {
    uint64_t turn;
    const char *slots;
    uint64_t next;
};

static void check_laps(uint64_t (*move)(uint64_t, int, const bool *), const struct lap *laps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool empty[64];
        int slots = (int)strlen(laps[i].slots);
        for (int slot = 0; slot < slots; slot++) {
            empty[slot] = laps[i].slots[slot] == '.';
        }
        uint64_t got = move(laps[i].turn, slots, empty);
        if (got != laps[i].next) {
            fail_msg("from %u over %s: to %u, not %u", (unsigned)laps[i].turn, laps[i].slots, (unsigned)got,
                     (unsigned)laps[i].next);
        }
    }
}

static void test_next(void **state)
{
    (void)state;
    static const struct lap laps[] = {
        {0, "x.....", 1},                    /* the neighbour */
        {5, ".....x", 6},                    /* round the end */
        {5, "x....x", 7},  {0, "xx.x..", 2}, /* over one that isn't done */
        {0, "xxxxx.", 5},                    /* the last of the lap */
        {7, "xx.xxx", 8},                    /* in a later lap */
        {7, "xxxxxx", 7},                    /* no slot is empty: it stays */
        {7, ".xxxxx", 12},                   /* one behind it, in the next lap */
        {7, "x.xxxx", 7},                    /* its own slot is not another one */
        {3, ".", 3},                         /* a ring of one never turns */
        {3, "x", 3},       {4, "x.", 5},     {4, "xx", 4},
    };
    check_laps(ring_next, laps, sizeof laps / sizeof laps[0]);
}

static void test_recover(void **state)
{
    (void)state;
    static const struct lap laps[] = {
        {0, "......", 0}, /* a new folder */
        {9, "......", 9}, /* clean stop after a flush: the same turn goes on */
        {9, "...x..", 10},
        {9, "...xxx", 12},
        {9, "xx.xxx", 14}, /* the last of the lap */
        {9, "xxxxxx", 9},  /* all hold rows: the persisted one goes on with its rows */
        {9, "xx.x", 10},
        {5, "x", 5},
        /* 6 slots became 4, with rows in slots 4 and 5: those are outside the ring, and turn 5 means slot 1. */
        {5, "....", 5},
        {5, ".x..", 6},
        {5, ".xxx", 8},
        {5, "xxxx", 5},
        /* 4 slots became 6 */
        {7, "xxxx..", 10},
        {3, "xxxx..", 4},
    };
    check_laps(ring_recover, laps, sizeof laps / sizeof laps[0]);
}

/* The turn never moves back or more than a lap, and never onto a slot that holds rows: all states of 5 slots. */
static void test_all_laps(void **state)
{
    (void)state;
    enum { SLOTS = 5 };
    for (unsigned bits = 0; bits < 1u << SLOTS; bits++) {
        bool empty[SLOTS];
        for (unsigned i = 0; i < SLOTS; i++) {
            empty[i] = (bits >> i & 1) != 0;
        }
        for (uint64_t turn = 0; turn < 3 * SLOTS; turn++) {
            uint64_t next = ring_next(turn, SLOTS, empty);
            assert_in_range(next, turn, turn + SLOTS - 1);
            assert_true(next == turn || empty[next % SLOTS]);
            for (uint64_t skipped = turn + 1; skipped < (next == turn ? turn + SLOTS : next); skipped++) {
                assert_false(empty[skipped % SLOTS]);
            }
            uint64_t start = ring_recover(turn, SLOTS, empty);
            assert_int_equal(start, empty[turn % SLOTS] ? turn : next);
        }
    }
}

static void test_due(void **state)
{
    (void)state;
    enum { HOUR = 3600 * 1000, LIMIT = 1000 };
    static const struct {
        int64_t elapsed;
        uint64_t taken, bytes;
        enum ring_due due;
    } table[] = {
        {0, 0, 0, RING_STAY},          {HOUR - 1, 5, 249, RING_STAY}, {HOUR, 5, 249, RING_TURN},
        {HOUR, 1, 0, RING_TURN},       {HOUR, 0, 0, RING_RENEW},      {HOUR, 0, 900, RING_RENEW},
        {10 * HOUR, 0, 0, RING_RENEW}, {0, 5, 250, RING_TURN_EARLY},  {HOUR - 1, 5, 5000, RING_TURN_EARLY},
        {HOUR, 5, 5000, RING_TURN},    {HOUR - 1, 0, 900, RING_STAY}, /* an empty index costs something too */
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_int_equal(ring_due(table[i].elapsed, HOUR, table[i].taken, table[i].bytes, LIMIT), table[i].due);
    }
}

static void test_retry(void **state)
{
    (void)state;
    static const int64_t minutes[] = {0, 1, 2, 4, 5, 5, 5};
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(ring_retry_delay_ms(i), minutes[i] * 60000);
    }
    assert_int_equal(ring_retry_delay_ms(UINT32_MAX), 300000);
}

static void test_memory(void **state)
{
    (void)state;
    struct ring_pressure p = {0};
    static const struct {
        int64_t now;
        uint64_t memory, freed;
        enum ring_memory expected;
    } story[] = {
        {1000000, 99, 0, RING_ROOM},    {1000100, 100, 0, RING_FULL},
        {1060099, 130, 0, RING_FULL},   {1060100, 130, 0, RING_REFUSE},
        {1070000, 130, 0, RING_REFUSE}, /* and goes on refusing */
        {1070001, 110, 1, RING_FULL},   /* a slot was emptied, but not enough: patience begins anew */
        {1130000, 110, 1, RING_FULL},   {1130001, 110, 1, RING_REFUSE},
        {1130002, 99, 2, RING_ROOM}, /* room again */
        {1130003, 100, 2, RING_FULL},   {1190002, 100, 2, RING_FULL},
        {1190003, 100, 3, RING_FULL}, /* freed and filled between two looks */
        {1250002, 100, 3, RING_FULL},   {1250003, 100, 3, RING_REFUSE},
    };
    for (size_t i = 0; i < sizeof story / sizeof story[0]; i++) {
        if (ring_memory(&p, story[i].memory, 100, story[i].freed, story[i].now) != story[i].expected) {
            fail_msg("step %u", (unsigned)i);
        }
    }
    /* Slots freed while there was room are no sign of movement later. */
    p = (struct ring_pressure){0};
    assert_int_equal(ring_memory(&p, 50, 100, 7, 0), RING_ROOM);
    assert_int_equal(ring_memory(&p, 100, 100, 7, 1), RING_FULL);
    assert_int_equal(ring_memory(&p, 100, 100, 7, 60001), RING_REFUSE);
    /* The limit is live. */
    assert_int_equal(ring_memory(&p, 100, 200, 7, 60002), RING_ROOM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot),     cmocka_unit_test(test_next), cmocka_unit_test(test_recover),
        cmocka_unit_test(test_all_laps), cmocka_unit_test(test_due),  cmocka_unit_test(test_retry),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
