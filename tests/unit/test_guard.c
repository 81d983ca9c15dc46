/* Each case is a story: a start with some newest time, then steps in which time passes and the wall clock jumps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "base/guard.h"

#define MIN INT64_C(60000)
#define HOUR (60 * MIN)
#define DAY (24 * HOUR)
#define T0 INT64_C(1795000000000) /* 2026-11-18 */
#define LATEST (INT64_C(253402300799999) - T0)
#define MONO INT64_C(5000)

struct step {
    int64_t advance; /* both clocks */
    int64_t jump;    /* then the wall clock alone */
    bool changed;    /* what guard_observe returns */
    bool doubted;
    int64_t newest;   /* expected, from T0 */
    int64_t believed; /* expected, from T0 */
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
    {"the first start believes whatever it sees", NONE, STEPS(
        {0, 0, false, false, 0, 0},
        {HOUR, 0, false, false, HOUR, HOUR})},
    {"the first start in 1970, then the right time: proven for a day", NONE, STEPS(
        {0, -T0 + 60000, false, false, -T0 + 60000, -T0 + 60000},
        {0, T0 - 60000, true, true, -T0 + 60000, -T0 + 60000},
        {DAY, 0, true, false, DAY, DAY})},
    {"an ordinary restart", -3 * DAY, STEPS(
        {0, 0, false, false, 0, 0})},
    {"exactly a day behind and 31 days ahead is believed", DAY, STEPS(
        {0, 0, false, false, DAY, 0},
        {DAY, 0, false, false, DAY, DAY},
        {1, 0, false, false, DAY + 1, DAY + 1})},
    {"31 days off", -31 * DAY, STEPS(
        {0, 0, false, false, 0, 0})},
    {"more than a day behind at start: proven for a day, and then newest goes back", DAY + 1, STEPS(
        {0, 0, true, true, DAY + 1, DAY + 1},
        {DAY - 1, 0, false, true, DAY + 1, 2 * DAY},
        {1, 0, true, false, DAY, DAY})},
    {"more than 31 days ahead at start: proven for a day", -31 * DAY - 1, STEPS(
        {0, 0, true, true, -31 * DAY - 1, -31 * DAY - 1},
        {HOUR, 0, false, true, -31 * DAY - 1, -31 * DAY - 1 + HOUR},
        {23 * HOUR, 0, true, false, DAY, DAY})},
    {"no battery: 1970 at start, corrected soon after", -2 * DAY, STEPS(
        {0, -T0, true, true, -2 * DAY, -2 * DAY},
        {MIN, 0, false, true, -2 * DAY, -2 * DAY + MIN},
        {MIN, T0, true, false, 2 * MIN, 2 * MIN},
        {0, 6 * MIN, true, true, 2 * MIN, 2 * MIN})},
    {"doubted at start, and the correction is as wrong: a new day to prove", -60 * DAY, STEPS(
        {0, 0, true, true, -60 * DAY, -60 * DAY},
        {23 * HOUR, 10 * DAY, true, true, -60 * DAY, -60 * DAY + 23 * HOUR},
        {23 * HOUR, 0, false, true, -60 * DAY, -60 * DAY + 46 * HOUR},
        {HOUR, 0, true, false, 10 * DAY + 47 * HOUR, 10 * DAY + 47 * HOUR})},
    {"a jump of 5 minutes is forgiven, more is not", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {0, 5 * MIN, false, false, 5 * MIN, 5 * MIN},
        {0, 1, true, true, 5 * MIN, 0},
        {0, -1, true, false, 5 * MIN, 5 * MIN},
        {0, -10 * MIN, false, false, 5 * MIN, -5 * MIN},
        {0, -1, true, true, 5 * MIN, 0})},
    {"an hour back, and corrected", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {HOUR, -HOUR, true, true, 0, HOUR},
        {3 * HOUR, 0, false, true, 0, 4 * HOUR},
        {0, HOUR + MIN, true, false, 4 * HOUR + MIN, 4 * HOUR + MIN})},
    {"an hour back, and it was right: newest goes back", 0, STEPS(
        {2 * HOUR, 0, false, false, 2 * HOUR, 2 * HOUR},
        {0, -26 * HOUR, true, true, 2 * HOUR, 2 * HOUR},
        {DAY, 0, true, false, 0, 0})},
    {"two months ahead: newest stays until it is proven", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {0, 61 * DAY, true, true, 0, 0},
        {DAY - 1, 0, false, true, 0, DAY - 1},
        {1, 0, true, false, 62 * DAY, 62 * DAY},
        {HOUR, 0, false, false, 62 * DAY + HOUR, 62 * DAY + HOUR})},
    {"to 1970, to 2031, and back", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {HOUR, -T0, true, true, 0, HOUR},
        {HOUR, T0 + 1500 * DAY, true, true, 0, 2 * HOUR},
        {HOUR, -1500 * DAY, true, false, 3 * HOUR, 3 * HOUR})},
    {"small steps that add up within a day", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {HOUR, 4 * MIN, false, false, HOUR + 4 * MIN, HOUR + 4 * MIN},
        {HOUR, 4 * MIN, true, true, HOUR + 4 * MIN, 2 * HOUR},
        {DAY, 0, true, false, 26 * HOUR + 8 * MIN, 26 * HOUR + 8 * MIN})},
    {"a slow drift is followed day by day", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {DAY, 4 * MIN, false, false, DAY + 4 * MIN, DAY + 4 * MIN},
        {DAY, 4 * MIN, false, false, 2 * DAY + 8 * MIN, 2 * DAY + 8 * MIN},
        {DAY, 4 * MIN, false, false, 3 * DAY + 12 * MIN, 3 * DAY + 12 * MIN})},
    {"small steps while proving don't start anew, their sum does", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {0, 30 * DAY, true, true, 0, 0},
        {HOUR, 3 * MIN, false, true, 0, HOUR},
        {HOUR, 3 * MIN, true, true, 0, 2 * HOUR},
        {23 * HOUR, 0, false, true, 0, 25 * HOUR},
        {HOUR, 0, true, false, 30 * DAY + 26 * HOUR + 6 * MIN, 30 * DAY + 26 * HOUR + 6 * MIN})},
    {"much time without an observation is no jump", 0, STEPS(
        {0, 0, false, false, 0, 0},
        {400 * DAY, 0, false, false, 400 * DAY, 400 * DAY})},
    {"a newest time that makes no sense is given up after a day", INT64_MAX - T0, STEPS(
        {0, 0, true, true, LATEST, LATEST},
        {HOUR, 0, false, true, LATEST, LATEST + HOUR},
        {23 * HOUR, 0, true, false, DAY, DAY})},
};
/* clang-format on */

static void tell(const struct story *story, size_t step, const char *what, int64_t got, int64_t wanted)
{
    if (got != wanted) {
        fail_msg("%s, step %zu: %s is %lld, not %lld", story->name, step, what, (long long)got, (long long)wanted);
    }
}

static void test_stories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
        const struct story *story = &stories[i];
        struct guard g = {0};
        int64_t wall = T0, mono = MONO;
        int64_t persisted = story->persisted == NONE ? 0 : T0 + story->persisted;
        for (size_t k = 0; k < story->n; k++) {
            const struct step *step = &story->steps[k];
            mono += step->advance;
            wall += step->advance + step->jump;
            tell(story, k, "changed", guard_observe(&g, persisted, wall, mono), step->changed);
            tell(story, k, "doubted", g.doubted, step->doubted);
            tell(story, k, "newest", g.newest - T0, step->newest);
            tell(story, k, "believed", guard_believed(&g, wall, mono) - T0, step->believed);
            tell(story, k, "a reason", g.reason[0] != '\0', g.doubted);
        }
    }
}

static void test_reason(void **state)
{
    (void)state;
    struct guard g = {0};
    guard_observe(&g, T0, T0 - 400 * DAY, MONO);
    assert_string_equal(g.reason, "the clock is 400 days behind the newest time seen before");
    guard_observe(&g, 0, T0, MONO);
    assert_string_equal(g.reason, "");
    guard_observe(&g, 0, T0 + 90 * MIN, MONO);
    assert_string_equal(g.reason, "the clock is 90 min ahead of the time it kept until now");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
