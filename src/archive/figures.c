/* The figures of the archive, for metrics, INFO and /v1/status. Nothing where there is none. */
#include "archive/archive.h"

void archive_figures_each(const struct dedup *d, figure_visit *visit, void *arg)
{
    struct archive_status s;
    if (d == NULL || d->archive == NULL) {
        return;
    }
    archive_look(d, &s);
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"archive_up", "archive_up", FIGURE_GAUGE, "1 unless the archive's writer waits for its folder or bucket."},
         s.doing != ARCHIVE_WAITING},
        {{"archive_restorable", "archive_restorable", FIGURE_GAUGE,
          "1 once this node can be restored from the archive."},
         s.restorable},
        {{"archive_lost", "archive_lost", FIGURE_GAUGE,
          "1 when events were left out because more waited than feed_max, until all users are brought in again."},
         s.queue.place == FEED_LOST},
        {{"archive_waiting", "archive_waiting_events", FIGURE_GAUGE, "Events that wait to be archived."},
         s.queue.events},
        {{"archive_waiting_bytes", "archive_waiting_bytes", FIGURE_GAUGE,
          "About what the waiting events take on disk."},
         s.queue.bytes},
        {{"archive_behind_us", "archive_behind_seconds", FIGURE_US,
          "Age of the oldest event not archived yet; 0: none waits."},
         (uint64_t)s.queue.behind_ms * 1000},
        {{"archive_archived", "archive_archived_timestamp_seconds", FIGURE_TIME,
          "All that was recorded up to then is in the archive; 0: not known."},
         (uint64_t)s.archived_ms},
        {{"archive_rounded", "archive_rounded_timestamp_seconds", FIGURE_TIME,
          "When the last round ended; 0: none has."},
         (uint64_t)s.rounded_ms},
        {{"archive_round", "archive_round", FIGURE_GAUGE, "The number of the round under way; 0: none is."}, s.round},
        {{"archive_segments", "archive_segments_total", FIGURE_COUNTER, "Segments that were archived."}, s.segments},
        {{"archive_segment_bytes", "archive_segment_bytes_total", FIGURE_COUNTER, "Bytes of these segments."},
         s.segment_bytes},
        {{"archive_events", "archive_events_total", FIGURE_COUNTER, "Events that were archived."}, s.events},
        {{"archive_users", "archive_users_total", FIGURE_COUNTER, "Users that were archived whole, beside rounds."},
         s.users},
        {{"archive_parts", "archive_parts_total", FIGURE_COUNTER, "Parts of rounds that were archived."}, s.shards},
        {{"archive_part_bytes", "archive_part_bytes_total", FIGURE_COUNTER, "Bytes of these parts."}, s.shard_bytes},
        {{"archive_rounds", "archive_rounds_total", FIGURE_COUNTER, "Rounds that have ended."}, s.rounds},
        {{"archive_errors", "archive_errors_total", FIGURE_COUNTER, "Times that the archive could not be written."},
         s.errors},
        {{"archive_removed", "archive_removed_total", FIGURE_COUNTER, "Objects that were removed as too old."},
         s.removed},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
