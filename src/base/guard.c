/* The believed time is the monotonic clock plus an offset. A step or slew of the wall clock below 5 minutes is
 * forgiven, but not followed at once: the offset is taken anew once a day, so that many small steps can't add up to a
 * large one unseen. */
#include "base/guard.h"

#include <stdio.h>

#define DAY_MS INT64_C(86400000)
#define LATEST INT64_C(253402300799999) /* the end of the year 9999; sums with it can't overflow */

static bool within(int64_t difference, int64_t behind, int64_t ahead)
{
    return difference >= -behind && difference <= ahead;
}

/* How far the wall clock may be from the believed time: little once it was read from the clock itself, much while all
 * that is known is when the folder was last in use. */
static bool agrees(const struct guard *g, int64_t wall, int64_t mono)
{
    int64_t difference = wall - (g->offset + mono);
    return g->anchored ? within(difference, GUARD_JUMP_MS, GUARD_JUMP_MS) : within(difference, DAY_MS, 31 * DAY_MS);
}

static void believe_again(struct guard *g, int64_t mono)
{
    g->since = mono;
    g->doubted = false;
    g->reason[0] = '\0';
}

static void believe(struct guard *g, int64_t wall, int64_t mono)
{
    g->offset = wall - mono;
    g->anchored = true;
    believe_again(g, mono);
}

static void doubt(struct guard *g, int64_t wall, int64_t mono)
{
    int64_t difference = wall - (g->offset + mono);
    const char *side = difference < 0 ? "behind" : "ahead of";
    const char *witness = g->anchored ? "the time it kept until now" : "the newest time seen before";
    int64_t minutes = (difference < 0 ? -difference : difference) / 60000;
    g->candidate = wall - mono;
    g->since = mono;
    g->doubted = true;
    if (minutes < 2 * 24 * 60) {
        snprintf(g->reason, sizeof g->reason, "the clock is %lld min %s %s", (long long)minutes, side, witness);
    } else {
        snprintf(g->reason, sizeof g->reason, "the clock is %lld days %s %s", (long long)minutes / (24 * 60), side,
                 witness);
    }
}

bool guard_observe(struct guard *g, int64_t newest, int64_t wall, int64_t mono)
{
    if (!g->started) {
        g->started = true;
        if (newest > 0) {
            g->newest = newest < LATEST ? newest : LATEST;
            g->offset = g->newest - mono;
        } else {
            g->newest = wall;
            believe(g, wall, mono);
        }
    }

    if (agrees(g, wall, mono)) {
        bool was_doubted = g->doubted;
        if (was_doubted && g->anchored) {
            believe_again(g, mono);
        } else if (!g->anchored || mono - g->since >= GUARD_STEADY_MS) {
            believe(g, wall, mono);
        }
        if (wall > g->newest) {
            g->newest = wall;
        }
        return was_doubted;
    }
    if (!g->doubted || !within(wall - mono - g->candidate, GUARD_JUMP_MS, GUARD_JUMP_MS)) {
        doubt(g, wall, mono);
        return true;
    }
    if (mono - g->since >= GUARD_STEADY_MS) {
        believe(g, wall, mono);
        g->newest = wall; /* also when that is earlier: the old one was wrong */
        return true;
    }
    return false;
}

int64_t guard_believed(const struct guard *g, int64_t wall, int64_t mono)
{
    return g->doubted ? g->offset + mono : wall;
}
