#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
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
        uint64_t taken, bytes, closed;
        enum ring_due due;
    } table[] = {
        {0, 0, 0, 0, RING_STAY},
        {HOUR - 1, 5, 249, 900, RING_STAY}, /* never below a quarter */
        {HOUR, 5, 249, 0, RING_TURN},
        {HOUR, 1, 0, 0, RING_TURN},
        {HOUR, 0, 0, 0, RING_RENEW},
        {HOUR, 0, 900, 0, RING_RENEW},
        {10 * HOUR, 0, 0, 0, RING_RENEW},
        {0, 5, 250, 0, RING_TURN_EARLY}, /* all at once */
        {HOUR - 1, 5, 5000, 0, RING_TURN_EARLY},
        {HOUR, 5, 5000, 0, RING_TURN},
        {HOUR - 1, 0, 900, 0, RING_STAY}, /* an empty index costs something too */
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ring_fill fill = {0};
        const struct ring_open open = {.elapsed_ms = table[i].elapsed,
                                       .slot_length_ms = HOUR,
                                       .taken = table[i].taken,
                                       .bytes = table[i].bytes,
                                       .closed = table[i].closed,
                                       .limit = LIMIT};
        if (ring_due(&fill, &open) != table[i].due) {
            fail_msg("row %u", (unsigned)i);
        }
    }
}

/* At how many bytes a slot turns that takes so many a second, while others hold `closed`. */
static uint64_t turns_at(struct ring_fill *fill, double rate, uint64_t closed, uint64_t limit)
{
    struct ring_open open = {.slot_length_ms = INT64_MAX, .taken = 1, .closed = closed, .limit = limit};
    while (ring_due(fill, &open) == RING_STAY) {
        open.elapsed_ms += 200;
        open.bytes = (uint64_t)(rate * (double)open.elapsed_ms / 1000);
    }
    assert_int_equal(ring_due(fill, &open), RING_TURN_EARLY);
    return open.bytes;
}

static void test_early_share(void **state)
{
    (void)state;
    enum { LIMIT = 240000000 }; /* 1,000,000 a second is a quarter in 60 s */
    static const struct {
        double rate;
        uint64_t closed, least, most;
    } table[] = {
        {1e9, 0, 60000000, 260000000},        {4e6, 0, 60000000, 61000000},
        {1e6, 0, 60000000, 60300000},         {0.8e6, 0, 79800000, 80300000},
        {0.65e6, 0, 120000000, 120300000},    {1e3, 0, 120000000, 120001000},
        {1e3, 60000000, 90000000, 90001000},  {1e3, 120000000, 60000000, 60001000},
        {1e3, 200000000, 60000000, 60001000}, {1e3, 500000000, 60000000, 60001000},
    };
    struct ring_fill fill = {0}; /* that of the slot before doesn't matter */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        uint64_t bytes = turns_at(&fill, table[i].rate, table[i].closed, LIMIT);
        assert_in_range(bytes, table[i].least, table[i].most);
    }

    /* What came slowly doesn't hide a burst, and what came long ago none makes. */
    fill = (struct ring_fill){0};
    struct ring_open open = {.slot_length_ms = INT64_MAX, .taken = 1, .limit = LIMIT};
    open.bytes = 29000000;
    assert_int_equal(ring_due(&fill, &open), RING_STAY);
    open.elapsed_ms = 3600 * 1000;
    open.bytes = 65000000;
    assert_int_equal(ring_due(&fill, &open), RING_TURN_EARLY);
    fill = (struct ring_fill){0};
    open.elapsed_ms = 0;
    open.bytes = 29000000;
    assert_int_equal(ring_due(&fill, &open), RING_STAY);
    open.elapsed_ms = 3600 * 1000;
    assert_int_equal(ring_due(&fill, &open), RING_STAY);
    open.bytes = 58000000;
    assert_int_equal(ring_due(&fill, &open), RING_STAY);
    open.elapsed_ms += 30 * 1000;
    open.bytes = 70000000;
    assert_int_equal(ring_due(&fill, &open), RING_STAY);
    open.elapsed_ms = 5; /* renewed */
    assert_int_equal(ring_due(&fill, &open), RING_TURN_EARLY);
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
        if (ring_memory(&p, story[i].memory, 100, story[i].freed, 0, story[i].now) != story[i].expected) {
            fail_msg("step %u", (unsigned)i);
        }
    }
    /* Slots freed while there was room are no sign of movement later. */
    p = (struct ring_pressure){0};
    assert_int_equal(ring_memory(&p, 50, 100, 7, 0, 0), RING_ROOM);
    assert_int_equal(ring_memory(&p, 100, 100, 7, 0, 1), RING_FULL);
    assert_int_equal(ring_memory(&p, 100, 100, 7, 0, 60001), RING_REFUSE);
    /* The limit is live. */
    assert_int_equal(ring_memory(&p, 100, 200, 7, 0, 60002), RING_ROOM);
}

/* A quarter of the limit that was merged is movement, once. */
static void test_merging_moves(void **state)
{
    (void)state;
    struct ring_pressure p = {0};
    static const struct {
        int64_t now;
        uint64_t memory, freed, merged;
        enum ring_memory expected;
    } story[] = {
        {0, 99, 0, 30, RING_ROOM},         {1, 100, 0, 30, RING_FULL}, /* what was merged before doesn't count */
        {60000, 100, 0, 54, RING_FULL},    {60001, 100, 0, 54, RING_REFUSE},
        {60002, 100, 0, 55, RING_FULL},    {120001, 100, 0, 79, RING_FULL},
        {120002, 100, 0, 79, RING_REFUSE}, {120003, 100, 0, 0, RING_REFUSE}, /* it failed, and is merged again */
        {180000, 100, 0, 79, RING_REFUSE}, {180001, 100, 0, 80, RING_FULL},
        {180002, 100, 1, 0, RING_FULL}, /* freed, and filled again: the next slot */
        {240002, 100, 1, 24, RING_REFUSE}, {240003, 100, 1, 25, RING_FULL},
    };
    for (size_t i = 0; i < sizeof story / sizeof story[0]; i++) {
        if (ring_memory(&p, story[i].memory, 100, story[i].freed, story[i].merged, story[i].now) != story[i].expected) {
            fail_msg("step %u", (unsigned)i);
        }
    }
}

/* --- a model of the ring: rows arrive, slots are flushed one after the other --- */

enum { SLOTS = 6, MODEL_MS = 250, MODEL_LIMIT = 240 * 1000 * 1000 };

struct model {
    bool plain; /* a slot turns at a quarter, and only emptied ones are movement: the rule before */
    uint64_t slots[SLOTS];
    uint64_t turn, freed, merged, flushed;
    int64_t now, opened, held_since; /* held_since: of the write that waits; -1: none does */
    struct ring_fill fill;
    struct ring_pressure pressure;
    uint64_t taken, refused;
    int64_t longest; /* wait of a write, ms */
};

static uint64_t held_in_slots(const struct model *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < SLOTS; i++) {
        sum += m->slots[i];
    }
    return sum;
}

static void model_turn(struct model *m)
{
    uint64_t *open = &m->slots[ring_slot(m->turn, SLOTS)];
    const struct ring_open now = {.elapsed_ms = m->now - m->opened,
                                  .slot_length_ms = INT64_MAX,
                                  .taken = *open,
                                  .bytes = *open,
                                  .closed = held_in_slots(m) - *open,
                                  .limit = MODEL_LIMIT};
    bool due = m->plain ? *open >= MODEL_LIMIT / 4 : ring_due(&m->fill, &now) == RING_TURN_EARLY;
    bool empty[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        empty[i] = m->slots[i] == 0;
    }
    uint64_t next = ring_next(m->turn, SLOTS, empty);
    if (due && next != m->turn) {
        m->turn = next;
        m->opened = m->now;
        m->fill = (struct ring_fill){0};
    }
}

/* The oldest closed slot loses nothing until all of it is merged. */
static void model_flush(struct model *m, uint64_t bytes)
{
    for (uint64_t turn = m->turn > SLOTS ? m->turn - SLOTS + 1 : 0; turn < m->turn; turn++) {
        uint64_t *slot = &m->slots[ring_slot(turn, SLOTS)];
        if (*slot > 0 && ring_slot(turn, SLOTS) != ring_slot(m->turn, SLOTS)) {
            m->merged += bytes;
            if (m->merged >= *slot) {
                m->flushed += *slot;
                *slot = m->merged = 0;
                m->freed++;
            }
            return;
        }
    }
}

/* arrival, flush: bytes a second. Nothing more arrives from who waits. */
static void model_run(struct model *m, double arrival, double flush, int64_t ms)
{
    for (int64_t end = m->now + ms; m->now < end; m->now += MODEL_MS) {
        uint64_t rows = (uint64_t)(arrival * MODEL_MS / 1000);
        enum ring_memory verdict =
            ring_memory(&m->pressure, held_in_slots(m), MODEL_LIMIT, m->freed, m->plain ? 0 : m->merged, m->now);
        if (verdict == RING_ROOM) {
            m->slots[ring_slot(m->turn, SLOTS)] += rows;
            m->taken += rows;
        } else if (verdict == RING_REFUSE) {
            m->refused += rows;
        } else if (m->held_since < 0) {
            m->held_since = m->now;
        }
        if (verdict != RING_FULL && m->held_since >= 0) {
            int64_t wait = m->now - m->held_since;
            m->longest = wait > m->longest ? wait : m->longest;
            m->held_since = -1;
        }
        model_turn(m);
        model_flush(m, (uint64_t)(flush * MODEL_MS / 1000));
        assert_true(held_in_slots(m) < MODEL_LIMIT + rows);
    }
}

static struct model model_of(bool plain)
{
    return (struct model){.plain = plain, .held_since = -1};
}

/* Runs both rules side by side. A quarter that is merged within the patience (1 MB/s) never ends in a refusal, and no
 * write waits longer than by the rule before, or `times` as long behind a burst. With a slower flush both refuse: a
 * write waits for the patience, or twice while a half is merged, and as much is taken as before. */
static void compare(const struct model *before, const struct model *now, double flush, int times)
{
    bool good = now->longest <= 2 * RING_FULL_PATIENCE_MS + 4 * MODEL_MS;
    if (flush * RING_FULL_PATIENCE_MS / 1000 > MODEL_LIMIT / 4 * 1.1) {
        good = good && now->refused == 0 && before->refused == 0 &&
               (double)now->longest <= 1.05 * times * (double)before->longest + 4 * MODEL_MS;
    } else {
        good = good && now->taken + MODEL_LIMIT / 2 >= before->taken;
    }
    if (!good) {
        fail_msg("flush %.0f: refused %" PRIu64 " (%" PRIu64 "), longest wait %" PRId64 " ms (%" PRId64
                 "), taken %" PRIu64 " (%" PRIu64 ")",
                 flush, now->refused, before->refused, now->longest, before->longest, now->taken, before->taken);
    }
}

static void test_pressure_steady(void **state)
{
    (void)state;
    for (double arrival = 0.1e6; arrival < 50e6; arrival *= 2.3) {
        for (double flush = 0.1e6; flush < 50e6; flush *= 1.5) {
            struct model before = model_of(true), now = model_of(false);
            model_run(&before, arrival, flush, 40 * 60 * 1000);
            model_run(&now, arrival, flush, 40 * 60 * 1000);
            compare(&before, &now, flush, 1);
        }
    }
}

/* A burst that finds up to a half in the open slot. */
static void test_pressure_burst(void **state)
{
    (void)state;
    for (double flush = 0.1e6; flush < 50e6; flush *= 1.5) {
        for (int64_t quiet = 0; quiet < 150; quiet += 7) {
            struct model before = model_of(true), now = model_of(false);
            struct model *both[] = {&before, &now};
            for (int i = 0; i < 2; i++) {
                model_run(both[i], 20e3, 50e6, quiet * 60 * 1000);
                model_run(both[i], 10e6, flush, 20 * 60 * 1000);
            }
            compare(&before, &now, flush, 2);
        }
    }
}

/* Who writes slowly gets slots of a half: fewer, larger flushes. */
static void test_slots_grow(void **state)
{
    (void)state;
    struct model before = model_of(true), now = model_of(false);
    model_run(&before, 0.2e6, 2e6, 4 * 3600 * 1000);
    model_run(&now, 0.2e6, 2e6, 4 * 3600 * 1000);
    assert_true(before.flushed / before.freed < MODEL_LIMIT / 100 * 26);
    assert_true(now.flushed / now.freed >= MODEL_LIMIT / 100 * 49);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot),
        cmocka_unit_test(test_next),
        cmocka_unit_test(test_recover),
        cmocka_unit_test(test_all_laps),
        cmocka_unit_test(test_due),
        cmocka_unit_test(test_retry),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_early_share),
        cmocka_unit_test(test_merging_moves),
        cmocka_unit_test(test_pressure_steady),
        cmocka_unit_test(test_pressure_burst),
        cmocka_unit_test(test_slots_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
