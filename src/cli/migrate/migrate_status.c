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

uint64_t migrate_number(const struct reply *map, const char *name)
{
    int64_t value = 0;
    const struct reply *field = reply_field(map, name);
    return field != NULL && reply_integer(field, &value) ? (uint64_t)value : 0;
}

static void copy_text(const struct reply *map, const char *name, char *out, size_t size)
{
    const struct reply *field = reply_field(map, name);
    out[0] = '\0';
    if (field != NULL && field->kind == REPLY_TEXT) {
        snprintf(out, size, "%.*s", (int)field->text.len, field->text.data);
    }
}

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
    uint64_t migration_state = migrate_number(map, "noted"), users = migrate_number(map, "users_per_second");
    copy_text(map, "state", state, sizeof state);
    count_text(migration_state - migrate_number(map, "waiting"), done);
    count_text(migration_state, all);
    if (users > 0) {
        snprintf(out, size, "%s of %s user%s  %s/s  %s", done, all, plural(migration_state), count_text(users, rate),
                 left_text(migrate_number(map, "seconds_left"), left));
    } else {
        snprintf(out, size, "%s of %s user%s  %s", done, all, plural(migration_state),
                 migrate_number(map, "waiting") > 0 ? state : "");
    }
}

static void print_mirror(const struct reply *map)
{
    char state[STATE_TEXT], when[TIME_TEXT], a[OUTPUT_TEXT];
    uint64_t broken = migrate_number(map, "mirror_broken_since");
    copy_text(map, "mirror", state, sizeof state);
    printf("%16s  events wait for the mirror, which is %s", count_text(migrate_number(map, "mirror_waiting"), a),
           state);
    if (broken != 0) {
        printf(" since %s: %s events were left out while it was full", time_text((int64_t)broken, when),
               count_text(migrate_number(map, "mirror_left_out"), a));
    }
    putchar('\n');
}

static void print_read_through(const struct reply *map)
{
    char state[STATE_TEXT], cause[320], a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT], d[OUTPUT_TEXT];
    copy_text(map, "read_through", state, sizeof state);
    copy_text(map, "read_through_cause", cause, sizeof cause);
    if (strcmp(state, "off") != 0) {
        printf("%16s  questions put to the old Redis too, which is %s%s%s: %s late, %s failed, %s skipped\n",
               count_text(migrate_number(map, "read_through_asked"), a), state, cause[0] != '\0' ? ", " : "", cause,
               count_text(migrate_number(map, "read_through_late"), b),
               count_text(migrate_number(map, "read_through_failed"), c),
               count_text(migrate_number(map, "read_through_skipped"), d));
    }
}

/* What LEGACY MIRROR says besides. */
static void print_mirror_trouble(const struct reply *map)
{
    char text[400], when[TIME_TEXT], a[OUTPUT_TEXT];
    uint64_t since = migrate_number(map, "waiting_since"), skipped = migrate_number(map, "skipped");
    if (since != 0) {
        copy_text(map, "cause", text, sizeof text);
        printf("%16s  since %s it waits: %s\n", "", time_text((int64_t)since, when), text);
    }
    if (skipped != 0) {
        copy_text(map, "last_problem", text, sizeof text);
        printf("%16s  events passed over, refused for their key; the last: %s\n", count_text(skipped, a), text);
    }
}

static void print_cluster(const struct reply *map)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT];
    uint64_t masters = migrate_number(map, "cluster_masters");
    if (masters > 0) {
        printf("%16s  master%s of a cluster; %s commands were sent on since a slot had moved, %s since it was moving\n",
               count_text(masters, a), plural(masters), count_text(migrate_number(map, "cluster_moved"), b),
               count_text(migrate_number(map, "cluster_asks"), c));
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
    uint64_t all = migrate_number(map, "noted"), waiting = migrate_number(map, "waiting");
    int64_t since = (int64_t)migrate_number(map, "waiting_since");
    copy_text(map, "state", state, sizeof state);
    copy_text(map, "cause", cause, sizeof cause);
    if (all > 0) {
        note_of(map, note, sizeof note);
        progress_line(bar, sizeof bar, BAR_WIDTH, "migrated", all - waiting, all, 0, note);
        puts(bar);
    }
    printf("%s%s%s%s%s\n", state, since > 0 ? " since " : "", since > 0 ? time_text(since, when) : "",
           cause[0] != '\0' ? ": " : "", cause);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%16s  %s\n", count_text(migrate_number(map, rows[i][0]), a), rows[i][1]);
    }
    uint64_t rate = migrate_number(map, "users_per_second");
    if (rate > 0) {
        char left[LEFT_TEXT];
        printf("%16s  users a second, %s: done about %.16sZ\n", count_text(rate, a),
               left_text(migrate_number(map, "seconds_left"), left),
               time_text((int64_t)migrate_number(map, "estimated_end"), when));
    }
    printf("%16s  read since the server's start\n", size_text(migrate_number(map, "bytes"), a));
    print_cluster(map);
    print_mirror(map);
    print_read_through(map);
}

static int follow(struct migrate *m, const struct reply **reply, struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000 * 1000};
    int rc;
    progress_begin(&m->progress, "migrated", m->quiet || m->json);
    m->progress.known = true;
    while ((rc = migrate_command(m, "STATUS", "", reply, err)) == 0) {
        char state[STATE_TEXT], note[128];
        uint64_t all = migrate_number(*reply, "noted"), waiting = migrate_number(*reply, "waiting");
        copy_text(*reply, "state", state, sizeof state);
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
    int rc = watch ? follow(m, &reply, err) : migrate_command(m, "STATUS", "", &reply, err);
    if (rc == 0 && m->json) {
        struct json j = {.out = stdout};
        migrate_json(&j, reply);
    } else if (rc == 0) {
        print_status(reply);
        if ((rc = migrate_command(m, "MIRROR", "", &reply, err)) == 0) {
            print_mirror_trouble(reply);
        }
    }
    return rc;
}
