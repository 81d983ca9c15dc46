/* Shows the migration's progress, once or until no user is waiting. Rate and estimate are the server's, so they are
 * right from the start. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/calendar.h"
#include "base/plural.h"
#include "cli/lib/output.h"
#include "cli/migrate/migrate.h"

enum { LOOK_MS = 500, BAR_WIDTH = 78, STATE_TEXT = 32, CAUSE_TEXT = 300, LEFT_TEXT = 32 };

static const char *left_text(uint64_t s, char out[LEFT_TEXT])
{
    unsigned long long hours = s / 3600, minutes = s / 60 % 60, seconds = s % 60;
    if (hours > 0) {
        snprintf(out, LEFT_TEXT, "%llu:%02llu:%02llu left", hours, minutes, seconds);
    } else {
        snprintf(out, LEFT_TEXT, "%llu:%02llu left", minutes, seconds);
    }
    return out;
}

/* "1,234 of 5,000 users  600/s  0:06 left", or what it is at instead of reading. */
static void note_of(const struct reply *map, char *out, size_t size)
{
    char state[STATE_TEXT], done[OUTPUT_TEXT], all[OUTPUT_TEXT], rate[OUTPUT_TEXT], left[LEFT_TEXT];
    uint64_t migration_state = reply_count(map, "noted"), users = reply_count(map, "users_per_second");
    reply_copy(map, "state", state, sizeof state);
    count_text(migration_state - reply_count(map, "waiting"), done);
    count_text(migration_state, all);
    if (users > 0) {
        snprintf(out, size, "%s of %s user%s  %s/s  %s", done, all, plural(migration_state), count_text(users, rate),
                 left_text(reply_count(map, "seconds_left"), left));
    } else {
        snprintf(out, size, "%s of %s user%s  %s", done, all, plural(migration_state),
                 reply_count(map, "waiting") > 0 ? state : "");
    }
}

static void print_mirror(const struct reply *map)
{
    char state[STATE_TEXT], when[TIME_TEXT], a[OUTPUT_TEXT];
    uint64_t broken = reply_count(map, "mirror_broken_since");
    reply_copy(map, "mirror", state, sizeof state);
    printf("%16s  events wait for the mirror, which is %s", count_text(reply_count(map, "mirror_waiting"), a), state);
    if (broken != 0) {
        printf(" since %s: %s events were left out while it was full", time_text((int64_t)broken, when),
               count_text(reply_count(map, "mirror_left_out"), a));
    }
    putchar('\n');
}

static void print_read_through(const struct reply *map)
{
    char state[STATE_TEXT], cause[320], a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT], d[OUTPUT_TEXT];
    reply_copy(map, "read_through", state, sizeof state);
    reply_copy(map, "read_through_cause", cause, sizeof cause);
    if (strcmp(state, "off") != 0) {
        printf("%16s  questions put to the old Redis too, which is %s%s%s: %s late, %s failed, %s skipped\n",
               count_text(reply_count(map, "read_through_asked"), a), state, cause[0] != '\0' ? ", " : "", cause,
               count_text(reply_count(map, "read_through_late"), b),
               count_text(reply_count(map, "read_through_failed"), c),
               count_text(reply_count(map, "read_through_skipped"), d));
    }
}

/* What LEGACY MIRROR says besides. */
static void print_mirror_trouble(const struct reply *map)
{
    char text[400], when[TIME_TEXT], a[OUTPUT_TEXT];
    uint64_t since = reply_count(map, "waiting_since"), skipped = reply_count(map, "skipped");
    if (since != 0) {
        reply_copy(map, "cause", text, sizeof text);
        printf("%16s  since %s it waits: %s\n", "", time_text((int64_t)since, when), text);
    }
    if (skipped != 0) {
        reply_copy(map, "last_problem", text, sizeof text);
        printf("%16s  events passed over, refused for their key; the last: %s\n", count_text(skipped, a), text);
    }
}

static void print_cluster(const struct reply *map)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT];
    uint64_t masters = reply_count(map, "cluster_masters");
    if (masters > 0) {
        printf("%16s  master%s of a cluster; %s commands followed a slot that had moved, %s one that was moving\n",
               count_text(masters, a), plural(masters), count_text(reply_count(map, "cluster_moved"), b),
               count_text(reply_count(map, "cluster_asks"), c));
    }
}

static void print_status(const struct reply *map)
{
    static const char *const rows[][2] = {
        {"noted", "users noted"},         {"migrated", "migrated"},
        {"waiting", "waiting"},           {"left", "left, because of a problem"},
        {"forgotten", "forgotten"},       {"problems", "keys with a problem"},
        {"plays", "plays read"},          {"deliveries", "deliveries read"},
        {"too_old", "too old, left out"}, {"skipped", "members skipped"},
    };
    char state[STATE_TEXT], cause[CAUSE_TEXT], note[128], bar[BAR_WIDTH + 2], when[TIME_TEXT], a[OUTPUT_TEXT];
    uint64_t all = reply_count(map, "noted"), waiting = reply_count(map, "waiting");
    int64_t since = reply_signed(map, "waiting_since");
    reply_copy(map, "state", state, sizeof state);
    reply_copy(map, "cause", cause, sizeof cause);
    if (all > 0) {
        note_of(map, note, sizeof note);
        progress_line(bar, sizeof bar, BAR_WIDTH, "migrated", all - waiting, all, 0, note);
        puts(bar);
    }
    printf("%s%s%s%s%s\n", state, since > 0 ? " since " : "", since > 0 ? time_text(since, when) : "",
           cause[0] != '\0' ? ": " : "", cause);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%16s  %s\n", count_text(reply_count(map, rows[i][0]), a), rows[i][1]);
    }
    uint64_t rate = reply_count(map, "users_per_second");
    if (rate > 0) {
        char left[LEFT_TEXT];
        printf("%16s  users a second, %s: done about %.16sZ\n", count_text(rate, a),
               left_text(reply_count(map, "seconds_left"), left), time_text(reply_signed(map, "estimated_end"), when));
    }
    printf("%16s  read since the server's start\n", size_text(reply_count(map, "bytes"), a));
    print_cluster(map);
    print_mirror(map);
    print_read_through(map);
}

static int ask(struct migrate *m, const char *name, const struct reply **map, struct err *err)
{
    const struct slice words[] = {slice_str("LEGACY"), slice_str(name)};
    return server_ask_map(m->client, words, 2, "state", map, err);
}

static int follow(struct migrate *m, const struct reply **reply, struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000 * 1000};
    int rc;
    progress_begin(&m->progress, "migrated", m->quiet || m->json);
    m->progress.known = true;
    while ((rc = ask(m, "STATUS", reply, err)) == 0) {
        char state[STATE_TEXT], note[128];
        uint64_t all = reply_count(*reply, "noted"), waiting = reply_count(*reply, "waiting");
        reply_copy(*reply, "state", state, sizeof state);
        if (waiting == 0 && strcmp(state, "reading") != 0) {
            break;
        }
        note_of(*reply, note, sizeof note);
        progress_show(&m->progress, all - waiting, all, "%s", note);
        nanosleep(&pause, NULL);
    }
    progress_end(&m->progress);
    return rc;
}

int migrate_status(struct migrate *m, bool watch, struct err *err)
{
    const struct reply *reply;
    int rc = watch ? follow(m, &reply, err) : ask(m, "STATUS", &reply, err);
    if (rc == 0 && m->json) {
        struct json j = {.out = stdout};
        json_open(&j, NULL, '{');
        reply_json(&j, reply);
        json_close(&j, '}');
    } else if (rc == 0) {
        print_status(reply);
        if ((rc = ask(m, "MIRROR", &reply, err)) == 0) {
            print_mirror_trouble(reply);
        }
    }
    return rc;
}
