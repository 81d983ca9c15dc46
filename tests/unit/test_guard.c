/* Each case is a story: a start with some newest time, then steps in which time passes and the wall clock jumps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "base/guard.h"

#define MIN INT64_C(60000)
#define HOUR (60 * MIN)
#define DAY (24 * HOUR)
#define T0 INT64_C(1795000000000) /* 2026-11-18 */
#define LATEST (INT64_C(253402300799999) - T0)
#define MONO INT64_C(5000)
#define BUILT (90 * DAY) /* before T0 */
#define HOLD (4 * 31 * DAY)

struct step {
    int64_t advance; /* both clocks */
    int64_t jump;    /* then the wall clock alone */
    bool changed;    /* what guard_observe returns */
    bool doubted;
    int64_t newest;   /* expected, from T0 */
    int64_t believed; /* expected, from T0 */
    enum { NOTHING, ACCEPT, SET_BACK } then;
};

enum { STEPS_MAX = 10 };

struct story {
    const char *name;
    int64_t persisted; /* from T0; NONE: first start */
    size_t n;
    struct step steps[STEPS_MAX];
};

#define NONE INT64_MIN
#define STEPS(...)                                                                                                     \
    sizeof((struct step[]){__VA_ARGS__}) / sizeof(struct step),                                                        \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* clang-format off */
static const struct story stories[] = {
    {"the first start believes whatever it sees, from the program's time on", NONE, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {HOUR, 0, false, false, HOUR, HOUR, NOTHING})},
    {"the first start in 1970: nothing is known, until the clock is set right", NONE, STEPS(
        {0, -T0 + 60000, false, true, -T0, -BUILT, NOTHING},
        {2 * DAY, 0, false, true, -T0, -BUILT + 2 * DAY, NOTHING},
        {0, T0 - 60000 - 2 * DAY, true, false, 0, 0, NOTHING},
        {HOUR, 0, false, false, HOUR, HOUR, NOTHING})},
    {"or an administrator knows better", NONE, STEPS(
        {0, -100 * DAY, false, true, -T0, -BUILT, ACCEPT},
        {HOUR, 0, false, false, HOUR - 100 * DAY, HOUR - 100 * DAY, NOTHING})},
    {"an ordinary restart", -3 * DAY, STEPS(
        {0, 0, false, false, 0, 0, NOTHING})},
    {"exactly a day behind and 31 days ahead is believed", DAY, STEPS(
        {0, 0, false, false, DAY, 0, NOTHING},
        {DAY, 0, false, false, DAY, DAY, NOTHING},
        {1, 0, false, false, DAY + 1, DAY + 1, NOTHING})},
    {"31 days off", -31 * DAY, STEPS(
        {0, 0, false, false, 0, 0, NOTHING})},
    {"a dead clock: steady for years, and never believed", 0, STEPS(
        {0, -20 * 365 * DAY, false, true, 0, 0, NOTHING},
        {DAY, 0, false, true, 0, DAY, NOTHING},
        {2 * 365 * DAY, 0, false, true, 0, 731 * DAY, NOTHING},
        {0, 20 * 365 * DAY, true, false, 730 * DAY + DAY, 730 * DAY + DAY, NOTHING})},
    {"more than a day behind: until it has passed the newest time", DAY + 1, STEPS(
        {0, 0, false, true, DAY + 1, DAY + 1, NOTHING},
        {DAY, 0, false, true, DAY + 1, 2 * DAY + 1, NOTHING},
        {1, 0, true, false, DAY + 1, DAY + 1, NOTHING},
        {1, 0, false, false, DAY + 2, DAY + 2, NOTHING})},
    {"or is set back", 40 * DAY, STEPS(
        {0, 0, false, true, 40 * DAY, 40 * DAY, NOTHING},
        {HOUR, 0, false, true, 40 * DAY, 40 * DAY + HOUR, SET_BACK},
        {HOUR, 0, false, false, 2 * HOUR, 2 * HOUR, NOTHING})},
    {"more than 31 days ahead at start: never, unless accepted", -31 * DAY - 1, STEPS(
        {0, 0, false, true, -31 * DAY - 1, -31 * DAY - 1, NOTHING},
        {DAY, 0, false, true, -31 * DAY - 1, -30 * DAY - 1, NOTHING},
        {400 * DAY, 0, false, true, -31 * DAY - 1, 370 * DAY - 1, ACCEPT},
        {HOUR, 0, false, false, 401 * DAY + HOUR, 401 * DAY + HOUR, NOTHING})},
    {"no battery: 1970 at start, corrected soon after", -2 * DAY, STEPS(
        {0, -T0, false, true, -2 * DAY, -2 * DAY, NOTHING},
        {MIN, 0, false, true, -2 * DAY, -2 * DAY + MIN, NOTHING},
        {MIN, T0, true, false, 2 * MIN, 2 * MIN, NOTHING},
        {0, 6 * MIN, true, true, 2 * MIN, 2 * MIN, NOTHING})},
    {"a jump of 5 minutes is forgiven, more is not", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {0, 5 * MIN, false, false, 5 * MIN, 5 * MIN, NOTHING},
        {0, 1, true, true, 5 * MIN, 0, NOTHING},
        {0, -1, true, false, 5 * MIN, 5 * MIN, NOTHING},
        {0, -10 * MIN, false, false, 5 * MIN, -5 * MIN, NOTHING},
        {0, -1, true, true, 5 * MIN, 0, NOTHING})},
    {"an hour back, and corrected", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {HOUR, -HOUR, true, true, 0, HOUR, NOTHING},
        {3 * HOUR, 0, false, true, 0, 4 * HOUR, NOTHING},
        {0, HOUR + MIN, true, false, 4 * HOUR + MIN, 4 * HOUR + MIN, NOTHING})},
    {"an hour back, and it was right: a day to prove, and the newest time stays", 0, STEPS(
        {2 * HOUR, 0, false, false, 2 * HOUR, 2 * HOUR, NOTHING},
        {0, -HOUR, true, true, 2 * HOUR, 2 * HOUR, NOTHING},
        {DAY, 0, true, false, DAY + HOUR, DAY + HOUR, NOTHING})},
    {"26 hours back: steady for a day is not enough", 0, STEPS(
        {2 * HOUR, 0, false, false, 2 * HOUR, 2 * HOUR, NOTHING},
        {0, -26 * HOUR, true, true, 2 * HOUR, 2 * HOUR, NOTHING},
        {DAY, 0, false, true, 2 * HOUR, 26 * HOUR, NOTHING},
        {2 * HOUR - 1, 0, false, true, 2 * HOUR, 28 * HOUR - 1, NOTHING},
        {1, 0, true, false, 2 * HOUR, 2 * HOUR, NOTHING})},
    {"a month ahead while running: a day to prove", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {0, 31 * DAY, true, true, 0, 0, NOTHING},
        {DAY - 1, 0, false, true, 0, DAY - 1, NOTHING},
        {1, 0, true, false, 32 * DAY, 32 * DAY, NOTHING},
        {HOUR, 0, false, false, 32 * DAY + HOUR, 32 * DAY + HOUR, NOTHING})},
    {"two months ahead while running: never", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {0, 61 * DAY, true, true, 0, 0, NOTHING},
        {DAY, 0, false, true, 0, DAY, NOTHING},
        {300 * DAY, 0, false, true, 0, 301 * DAY, NOTHING},
        {0, -61 * DAY, true, false, 301 * DAY, 301 * DAY, NOTHING})},
    {"a month ahead twice, without a day between", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {0, 30 * DAY, true, true, 0, 0, NOTHING},
        {HOUR, 30 * DAY, true, true, 0, HOUR, NOTHING},
        {5 * DAY, 0, false, true, 0, 5 * DAY + HOUR, NOTHING})},
    {"2040 was accepted, and taken back", 0, STEPS(
        {0, 5000 * DAY, false, true, 0, 0, ACCEPT},
        {HOUR, 0, false, false, 5000 * DAY + HOUR, 5000 * DAY + HOUR, NOTHING},
        {0, -5000 * DAY, true, true, 5000 * DAY + HOUR, 5000 * DAY + HOUR, SET_BACK},
        {HOUR, 0, false, false, 2 * HOUR, 2 * HOUR, NOTHING})},
    {"to 1970, to 2031, and back", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {HOUR, -T0, true, true, 0, HOUR, NOTHING},
        {HOUR, T0 + 1500 * DAY, true, true, 0, 2 * HOUR, NOTHING},
        {HOUR, -1500 * DAY, true, false, 3 * HOUR, 3 * HOUR, NOTHING})},
    {"small steps that add up within a day", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {HOUR, 4 * MIN, false, false, HOUR + 4 * MIN, HOUR + 4 * MIN, NOTHING},
        {HOUR, 4 * MIN, true, true, HOUR + 4 * MIN, 2 * HOUR, NOTHING},
        {DAY, 0, true, false, 26 * HOUR + 8 * MIN, 26 * HOUR + 8 * MIN, NOTHING})},
    {"a slow drift is followed day by day, as is what a time server slews", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {DAY, 4 * MIN, false, false, DAY + 4 * MIN, DAY + 4 * MIN, NOTHING},
        {DAY, 4 * MIN, false, false, 2 * DAY + 8 * MIN, 2 * DAY + 8 * MIN, NOTHING},
        {DAY, -4 * MIN, false, false, 3 * DAY + 4 * MIN, 3 * DAY + 4 * MIN, NOTHING})},
    {"a leap second, and a step back of two seconds: the newest time stays", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {1000, -1000, false, false, 0, 0, NOTHING},
        {0, -2000, false, false, 0, -2000, NOTHING},
        {2500, 0, false, false, 500, 500, NOTHING})},
    {"small steps while proving don't start again, their sum does", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {0, 30 * DAY, true, true, 0, 0, NOTHING},
        {HOUR, 3 * MIN, false, true, 0, HOUR, NOTHING},
        {HOUR, 3 * MIN, true, true, 0, 2 * HOUR, NOTHING},
        {23 * HOUR, 0, false, true, 0, 25 * HOUR, NOTHING},
        {HOUR, 0, true, false, 30 * DAY + 26 * HOUR + 6 * MIN, 30 * DAY + 26 * HOUR + 6 * MIN, NOTHING})},
    {"much time without an observation is no jump: the machine slept", 0, STEPS(
        {0, 0, false, false, 0, 0, NOTHING},
        {400 * DAY, 0, false, false, 400 * DAY, 400 * DAY, NOTHING})},
    {"a newest time that makes no sense is kept until it is set back", INT64_MAX - T0, STEPS(
        {0, 0, false, true, LATEST, LATEST, NOTHING},
        {HOUR, 0, false, true, LATEST, LATEST + HOUR, NOTHING},
        {DAY, 0, false, true, LATEST, LATEST + DAY + HOUR, SET_BACK},
        {HOUR, 0, false, false, DAY + 2 * HOUR, DAY + 2 * HOUR, NOTHING})},
};
/* clang-format on */

static void tell(const struct story *story, size_t step, const char *what, int64_t got, int64_t wanted)
{
    if (got != wanted) {
        fail_msg("%s, step %zu: %s is %lld, not %lld", story->name, step, what, (long long)got, (long long)wanted);
    }
}

/* A start where the clocks stand, with what was persisted. */
static struct guard started(int64_t newest, int64_t wall, int64_t mono)
{
    struct guard g = {.hold_ms = HOLD};
    const struct guard_kept kept = {.newest = newest};
    guard_start(&g, &kept, T0 - BUILT, wall, mono);
    return g;
}

static void test_stories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
        const struct story *story = &stories[i];
        struct guard g = {0};
        int64_t wall = T0, mono = MONO;
        for (size_t k = 0; k < story->n; k++) {
            const struct step *step = &story->steps[k];
            mono += step->advance;
            wall += step->advance + step->jump;
            if (k == 0) {
                g = started(story->persisted == NONE ? 0 : T0 + story->persisted, wall, mono);
            } else {
                tell(story, k, "changed", guard_observe(&g, wall, mono), step->changed);
            }
            tell(story, k, "doubted", g.doubted, step->doubted);
            tell(story, k, "newest", g.kept.newest - T0, step->newest);
            tell(story, k, "believed", guard_believed(&g, wall, mono) - T0, step->believed);
            tell(story, k, "a reason", g.reason[0] != '\0', g.doubted);
            if (step->then != NOTHING) {
                struct err err = {0};
                int rc =
                    step->then == ACCEPT ? guard_accept(&g, wall, mono, &err) : guard_set_back(&g, wall, mono, &err);
                tell(story, k, "change", rc, 0);
                tell(story, k, "doubted after", g.doubted, false);
            }
        }
    }
}

static void test_reason(void **state)
{
    (void)state;
    struct guard g = started(T0, T0 - 400 * DAY, MONO);
    assert_string_equal(g.reason, "the clock is 400 days behind the newest time seen before; set it right, or if it is "
                                  "right, type: unseen clock --set-back");
    guard_observe(&g, T0, MONO);
    assert_string_equal(g.reason, "");
    guard_observe(&g, T0 + 90 * MIN, MONO);
    assert_string_equal(g.reason, "the clock is 90 min ahead of the time it kept until now; set it right, or if it is "
                                  "right, wait 24 hours, or type: unseen clock --accept");
    guard_observe(&g, T0 + 40 * DAY, MONO);
    assert_string_equal(g.reason, "the clock is 40 days ahead of the time it kept until now; set it right, or if it is "
                                  "right, type: unseen clock --accept");
    g = started(0, 60000, MONO);
    assert_true(g.unknown);
    assert_string_equal(g.reason, "the clock says 1970-01-01 00:01 UTC, which is before this program was built "
                                  "(2026-08-20 11:06 UTC); set it right, or if it is right, type: unseen clock "
                                  "--accept");
}

/* What an administrator can't change, and is told. */
static void test_refusals(void **state)
{
    (void)state;
    struct err err = {0};
    struct guard g = started(T0, T0, MONO);
    assert_int_equal(guard_accept(&g, T0, MONO, &err), ERR_INVALID);
    assert_string_equal(err.text, "the clock is believed: there is nothing to accept");
    assert_int_equal(guard_set_back(&g, T0 + 1, MONO, &err), ERR_INVALID);
    assert_string_equal(err.text, "no time later than the clock's (2026-11-18 11:06 UTC) was ever believed: there is "
                                  "nothing to set back");
    g = started(T0 + 50 * DAY, T0, MONO);
    assert_int_equal(guard_accept(&g, T0, MONO, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "unseen clock --set-back"));
    assert_true(g.doubted);
    assert_int_equal(guard_set_back(&g, T0 - BUILT - 1, MONO, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "before this program was built"));
    assert_int_equal(g.kept.newest, T0 + 50 * DAY);
}

static void times(const struct guard *g, int64_t wall, int64_t mono, int64_t *later, int64_t *earlier)
{
    const struct guard_view v = {g->offset, g->kept.newest, g->kept.unsure, g->doubted};
    guard_times(&v, wall, mono, later, earlier);
}

/* A leap that is accepted moves no window until what was played before it has left by itself. */
static void test_leap(void **state)
{
    (void)state;
    struct err err = {0};
    int64_t later, earlier, wall = T0 + 5000 * DAY, mono = MONO;
    struct guard g = started(T0, wall, mono);
    times(&g, wall, mono, &later, &earlier);
    assert_true(later == wall && earlier == T0);
    assert_int_equal(guard_accept(&g, wall, mono, &err), 0);
    times(&g, wall, mono, &later, &earlier);
    assert_true(later == wall && earlier == T0);

    struct guard next = {.hold_ms = HOLD}; /* over a restart too */
    struct guard_kept kept = g.kept;
    kept.newest += HOLD;
    guard_start(&next, &kept, T0 - BUILT, wall + HOLD, mono);
    times(&next, wall + HOLD, mono, &later, &earlier);
    assert_true(later == wall + HOLD && earlier == T0);
    guard_observe(&next, wall + HOLD + 1, mono + 1);
    times(&next, wall + HOLD + 1, mono + 1, &later, &earlier);
    assert_true(later == wall + HOLD + 1 && earlier == later);

    /* It was a mistake: the time held back is that of the mistake, and its end counts from now. */
    guard_observe(&g, T0 + HOUR, mono + HOUR);
    assert_int_equal(guard_set_back(&g, T0 + HOUR, mono + HOUR, &err), 0);
    times(&g, T0 + HOUR, mono + HOUR, &later, &earlier);
    assert_true(later == T0 + HOUR && earlier == T0);
    guard_observe(&g, T0 + 2 * HOUR + HOLD, mono + 2 * HOUR + HOLD);
    times(&g, T0 + 2 * HOUR + HOLD, mono + 2 * HOUR + HOLD, &later, &earlier);
    assert_true(earlier == T0 + 2 * HOUR + HOLD);
}

/* What is proven after a long doubt is no leap, if it is near what the monotonic clock counted. */
static void test_no_leap(void **state)
{
    (void)state;
    struct guard g = started(T0, T0, MONO);
    int64_t wall = T0 + 40 * DAY + HOUR, mono = MONO + 40 * DAY;
    guard_observe(&g, T0 + 5000 * DAY, MONO);
    guard_observe(&g, wall, mono);
    guard_observe(&g, wall + DAY, mono + DAY);
    assert_false(g.doubted);
    assert_int_equal(g.kept.newest, wall + DAY);
    assert_int_equal(g.kept.unsure, 0);
}

/* In doubt or not, nothing is stamped below the newest time. */
static void test_never_below_the_newest(void **state)
{
    (void)state;
    int64_t later, earlier;
    struct guard g = started(T0, T0 - DAY, MONO);
    assert_false(g.doubted);
    times(&g, T0 - DAY, MONO, &later, &earlier);
    assert_true(later == T0 && earlier == T0 - DAY);
    g = started(T0, T0 - 26 * 365 * DAY, MONO);
    times(&g, T0 - 26 * 365 * DAY + HOUR, MONO + HOUR, &later, &earlier);
    assert_true(later == T0 + HOUR && earlier == T0 - 26 * 365 * DAY + HOUR);
}

/* A dead clock, boot after boot: what the monotonic clock counted is not lost. */
static void test_reached(void **state)
{
    (void)state;
    struct guard g = started(T0, 1000, MONO);
    guard_observe(&g, 1000 + 20 * DAY, MONO + 20 * DAY);
    assert_int_equal(g.kept.reached, T0 + 20 * DAY);
    struct guard next = {.hold_ms = HOLD};
    guard_start(&next, &g.kept, T0 - BUILT, 1000, MONO);
    assert_true(next.doubted);
    assert_int_equal(guard_believed(&next, 1000, MONO), T0 + 20 * DAY);
    assert_int_equal(next.kept.newest, T0);
    /* Right again, and a little behind what was reached. */
    guard_observe(&next, T0 + 25 * DAY, MONO + 5 * DAY + HOUR);
    assert_false(next.doubted);
    assert_int_equal(next.kept.newest, T0 + 25 * DAY);
    assert_int_equal(next.kept.reached, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories), cmocka_unit_test(test_reason),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_leap),    cmocka_unit_test(test_no_leap), cmocka_unit_test(test_never_below_the_newest),
        cmocka_unit_test(test_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
