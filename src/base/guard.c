/* The believed time is the monotonic clock plus an offset. A step or slew of the wall clock below 5 minutes is
 * accepted, but not followed at once: the offset is renewed once a day, so that many small steps can't add up to a
 * large one unnoticed. The newest time rises only with a believed wall clock. So it stands still in doubt, and a clock
 * that is behind it passes it in the end. */
#include "base/guard.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/calendar.h"

#define DAY_MS INT64_C(86400000)
#define BEHIND_MS DAY_MS
#define AHEAD_MS (31 * DAY_MS)
#define LEAP_MS (7 * DAY_MS)

enum { DATE_TEXT = 32 };

static bool within(int64_t difference, int64_t behind, int64_t ahead)
{
    return difference >= -behind && difference <= ahead;
}

static int64_t apart(const struct guard *g, int64_t wall, int64_t mono)
{
    return wall - (g->offset + mono);
}

/* How far the wall clock may be from the believed time: little once it was read from the clock itself, much while all
 * that is known is when the folder was last in use. */
static bool agrees(const struct guard *g, int64_t wall, int64_t mono)
{
    return g->anchored ? within(apart(g, wall, mono), GUARD_JUMP_MS, GUARD_JUMP_MS)
                       : wall >= g->kept.newest - (g->behind ? 0 : BEHIND_MS) && apart(g, wall, mono) <= AHEAD_MS;
}

static void raise_newest(struct guard *g, int64_t wall)
{
    g->kept.newest = wall > g->kept.newest ? wall : g->kept.newest;
}

static void believe_again(struct guard *g, int64_t mono)
{
    g->since = mono;
    g->doubted = g->unknown = g->behind = false;
    g->reason[0] = '\0';
}

static void believe(struct guard *g, int64_t wall, int64_t mono)
{
    g->offset = wall - mono;
    g->anchored = true;
    believe_again(g, mono);
}

/* Believes a time that may be far ahead of the one before. */
static void leap(struct guard *g, int64_t wall, int64_t mono)
{
    struct guard_kept *kept = &g->kept;
    if (kept->newest > 0 && apart(g, wall, mono) > LEAP_MS) {
        kept->unsure = kept->unsure == 0 || kept->newest < kept->unsure ? kept->newest : kept->unsure;
        kept->leapt = wall;
    }
    believe(g, wall, mono);
    raise_newest(g, wall);
}

/* What was played before the leap has left any window by itself. */
static void forget_leap(struct guard *g, int64_t wall)
{
    if (wall - g->kept.leapt > g->hold_ms) {
        g->kept.unsure = g->kept.leapt = 0;
    }
}

static const char *date_text(int64_t ms, char out[DATE_TEXT])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm) == NULL || strftime(out, DATE_TEXT, "%Y-%m-%d %H:%M UTC", &tm) == 0) {
        snprintf(out, DATE_TEXT, "%" PRId64 " ms", ms);
    }
    return out;
}

static void doubt(struct guard *g, int64_t wall, int64_t mono)
{
    int64_t difference = apart(g, wall, mono);
    const char *side = difference < 0 ? "behind" : "ahead of";
    const char *witness = g->anchored ? "the time it kept until now" : "the newest time seen before";
    int64_t minutes = (difference < 0 ? -difference : difference) / 60000;
    g->candidate = wall - mono;
    g->since = mono;
    g->doubted = true;
    g->behind = wall < g->kept.newest - BEHIND_MS;
    const char *remedy = g->behind               ? "if it is right, type: unseen clock --set-back"
                         : difference > AHEAD_MS ? "if it is right, type: unseen clock --accept"
                                                 : "if it is right, wait 24 hours, or type: unseen clock --accept";
    bool in_days = minutes >= 2 * 24 * 60;
    snprintf(g->reason, sizeof g->reason, "the clock is %" PRId64 " %s %s %s; set it right, or %s",
             in_days ? minutes / (24 * 60) : minutes, in_days ? "days" : "min", side, witness, remedy);
}

static void know_no_time(struct guard *g, int64_t wall, int64_t mono)
{
    char now[DATE_TEXT], built[DATE_TEXT];
    g->offset = g->built - mono;
    g->doubted = g->unknown = true;
    snprintf(g->reason, sizeof g->reason,
             "the clock says %s, which is before this program was built (%s); set it right, or if it is right, type: "
             "unseen clock --accept",
             date_text(wall, now), date_text(g->built, built));
}

void guard_start(struct guard *g, const struct guard_kept *kept, int64_t built, int64_t wall, int64_t mono)
{
    g->kept = *kept;
    g->built = built;
    if (kept->newest > 0) {
        g->kept.newest = kept->newest < CALENDAR_LAST_MS ? kept->newest : CALENDAR_LAST_MS;
        int64_t reached = kept->reached < CALENDAR_LAST_MS ? kept->reached : CALENDAR_LAST_MS;
        g->offset = (reached > g->kept.newest ? reached : g->kept.newest) - mono;
    } else if (wall < built) {
        know_no_time(g, wall, mono);
    } else {
        g->kept.newest = wall;
        believe(g, wall, mono);
    }
    guard_observe(g, wall, mono);
}

/* Whether a clock that was steady for a day is now proven. */
static bool is_proven(const struct guard *g, int64_t wall, int64_t mono)
{
    return mono - g->since >= GUARD_STEADY_MS && apart(g, wall, mono) <= AHEAD_MS &&
           (!g->behind || wall >= g->kept.newest);
}

static bool observe_known(struct guard *g, int64_t wall, int64_t mono)
{
    if (agrees(g, wall, mono)) {
        bool was_doubted = g->doubted;
        if (was_doubted && g->anchored) {
            believe_again(g, mono);
        } else if (!g->anchored || mono - g->since >= GUARD_STEADY_MS) {
            believe(g, wall, mono);
        }
        return was_doubted;
    }
    if (!g->doubted || !within(wall - mono - g->candidate, GUARD_JUMP_MS, GUARD_JUMP_MS)) {
        doubt(g, wall, mono);
        return true;
    }
    if (is_proven(g, wall, mono)) {
        leap(g, wall, mono);
        return true;
    }
    return false;
}

bool guard_observe(struct guard *g, int64_t wall, int64_t mono)
{
    bool changed;
    if (!g->unknown) {
        changed = observe_known(g, wall, mono);
    } else if ((changed = wall >= g->built)) {
        believe(g, wall, mono);
    }
    if (!g->doubted) {
        raise_newest(g, wall);
        forget_leap(g, wall);
    }
    g->kept.reached = g->doubted && !g->unknown ? g->offset + mono : 0;
    return changed;
}

int guard_accept(struct guard *g, int64_t wall, int64_t mono, struct err *err)
{
    char newest[DATE_TEXT], now[DATE_TEXT];
    guard_observe(g, wall, mono);
    if (!g->doubted) {
        return err_set(err, ERR_INVALID, "the clock is believed: there is nothing to accept");
    }
    if (!g->unknown && g->behind) {
        return err_set(err, ERR_INVALID,
                       "the clock says %s, and %s was believed: if that was wrong, take it back with unseen clock "
                       "--set-back",
                       date_text(wall, now), date_text(g->kept.newest, newest));
    }
    leap(g, wall, mono);
    g->kept.reached = 0;
    return 0;
}

int guard_set_back(struct guard *g, int64_t wall, int64_t mono, struct err *err)
{
    char a[DATE_TEXT], b[DATE_TEXT];
    guard_observe(g, wall, mono);
    if (wall < g->built) {
        return err_set(err, ERR_INVALID,
                       "the clock says %s, which is before this program was built (%s): set it right first",
                       date_text(wall, a), date_text(g->built, b));
    }
    if (g->kept.newest <= wall) {
        return err_set(err, ERR_INVALID,
                       "no time later than the clock's (%s) was ever believed: there is nothing to "
                       "set back",
                       date_text(wall, a));
    }
    believe(g, wall, mono);
    g->kept.newest = wall;
    g->kept.reached = 0;
    g->kept.leapt = g->kept.leapt < wall ? g->kept.leapt : wall;
    return 0;
}

int64_t guard_believed(const struct guard *g, int64_t wall, int64_t mono)
{
    return g->doubted ? g->offset + mono : wall;
}

static int64_t later_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void guard_times(const struct guard_view *v, int64_t wall, int64_t mono, int64_t *later, int64_t *earlier)
{
    int64_t believed = v->doubted ? v->offset + mono : wall;
    *later = later_of(later_of(wall, believed), v->newest);
    *earlier = wall < believed ? wall : believed;
    if (v->unsure != 0 && v->unsure < *earlier) {
        *earlier = v->unsure;
    }
}
