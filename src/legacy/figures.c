/* The migration's figures for INFO, the metrics and the page. */
#include <stdio.h>

#include "dedup/dedup.h"
#include "legacy/legacy.h"
#include "store/migration.h"

const char *legacy_doing_name(enum legacy_doing doing)
{
    static const char *const names[] = {"idle", "reading", "paused", "waiting", "off"};
    return names[doing];
}

void legacy_look(const struct dedup *dedup, struct legacy_state *out)
{
    if (dedup->legacy != NULL) {
        legacy_state(dedup->legacy, out);
    } else {
        *out = (struct legacy_state){.doing = LEGACY_OFF};
        if (dedup->store->migration != NULL) {
            dedup->store->migration->state(dedup->store, &out->users_to_migrate);
        }
        if (out->users_to_migrate.waiting > 0) {
            snprintf(out->cause, sizeof out->cause, "users are noted, but no Redis to come from is configured");
        }
    }
}

uint64_t legacy_seconds_left(const struct legacy_state *s)
{
    return s->users_second > 0 ? (uint64_t)((double)s->users_to_migrate.waiting / s->users_second) + 1 : 0;
}

void legacy_figures_each(const struct legacy_state *s, figure_visit *visit, void *arg)
{
    bool waits = s->doing == LEGACY_WAITING || (s->doing == LEGACY_OFF && s->users_to_migrate.waiting > 0);
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"migration_noted", "migration_noted_users", FIGURE_GAUGE, "Users who were noted, in any state."},
         s->users_to_migrate.all},
        {{"migration_waiting", "migration_waiting_users", FIGURE_GAUGE, "Noted users who are still to be read."},
         s->users_to_migrate.waiting},
        {{"migration_migrated", "migration_migrated_users", FIGURE_GAUGE, "Noted users who are taken over."},
         s->users_to_migrate.done},
        {{"migration_left", "migration_left_users", FIGURE_GAUGE,
          "Noted users who can't be taken over as a whole: a key of theirs has a problem."},
         s->users_to_migrate.left},
        {{"migration_forgotten", "migration_forgotten_users", FIGURE_GAUGE, "Noted users who were forgotten."},
         s->users_to_migrate.ended},
        {{"migration_problems", "migration_problem_keys", FIGURE_GAUGE,
          "Keys of the old Redis with a problem, also those that the mirror met."},
         s->users_to_migrate.problems + s->unlisted},
        {{"migration_up", "migration_up", FIGURE_GAUGE,
          "1 unless the migration waits: for the old Redis, or for room."},
         !waits},
        {{"migration_needs_room", "migration_needs_room", FIGURE_GAUGE,
          "1 while the migration waits for room on this machine's disk."},
         s->needs_room},
        {{"migration_paused", "migration_paused", FIGURE_GAUGE, "1 while the migration is paused by command."},
         s->users_to_migrate.paused},
        {{"migration_waiting_since", "migration_waiting_since_timestamp_seconds", FIGURE_TIME,
          "Since when the migration waits; 0: it doesn't."},
         (uint64_t)s->waiting_since_ms},
        {{"migration_users", "migration_users_total", FIGURE_COUNTER, "Users that were read to their end."}, s->users},
        {{"migration_plays", "migration_plays_total", FIGURE_COUNTER, "Plays that were taken over."}, s->plays},
        {{"migration_deliveries", "migration_deliveries_total", FIGURE_COUNTER, "Deliveries that were taken over."},
         s->deliveries},
        {{"migration_bytes", "migration_read_bytes_total", FIGURE_COUNTER, "Bytes read from the old Redis."}, s->bytes},
        {{"migration_too_old", "migration_too_old_total", FIGURE_COUNTER,
          "Plays and deliveries that were left because they are too old."},
         s->too_old},
        {{"migration_skipped", "migration_skipped_total", FIGURE_COUNTER,
          "Members that were left because of their size or score."},
         s->skipped},
        {{"migration_masters", "migration_cluster_masters", FIGURE_GAUGE,
          "Masters of the Redis Cluster that is read from; 0: a single Redis, or not known yet."},
         s->masters},
        {{"migration_moved", "migration_cluster_moved_total", FIGURE_COUNTER,
          "Commands that a node of the cluster sent to another one, which has the slot now (MOVED)."},
         s->moved},
        {{"migration_asks", "migration_cluster_asks_total", FIGURE_COUNTER,
          "Commands that a node of the cluster sent to another one once, since the slot is on the move (ASK)."},
         s->asks},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
