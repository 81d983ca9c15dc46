/* The figures of the front, for metrics, INFO and the page. Nothing where there is none. */
#include "front/front.h"

void front_figures_each(const struct dedup *d, figure_visit *visit, void *arg)
{
    struct front_status s;
    if (d == NULL || d->front == NULL) {
        return;
    }
    front_look(d, &s);
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"front_up", "front_up", FIGURE_GAUGE, "1 unless the front's writer waits for its Redis, or is fenced."},
         s.courier.doing != COURIER_WAITING && s.courier.doing != COURIER_FENCED},
        {{"front_full", "front_full", FIGURE_GAUGE, "1 while all users stand in the front, so that it may answer."},
         s.full},
        {{"front_fenced", "front_fenced", FIGURE_GAUGE, "1 when another writer has taken the front over."},
         s.courier.doing == COURIER_FENCED},
        {{"front_lost", "front_lost", FIGURE_GAUGE,
          "1 when events were left out because more waited than feed_max, until all users were brought in again."},
         s.courier.queue.place == FEED_LOST},
        {{"front_waiting", "front_waiting_events", FIGURE_GAUGE, "Events that wait to be sent to the front."},
         s.courier.queue.events},
        {{"front_waiting_bytes", "front_waiting_bytes", FIGURE_GAUGE, "About what the waiting events take on disk."},
         s.courier.queue.bytes},
        {{"front_behind_us", "front_behind_seconds", FIGURE_US, "Age of the oldest event not sent yet; 0: none waits."},
         (uint64_t)s.courier.queue.behind_ms * 1000},
        {{"front_epoch", "front_epoch", FIGURE_GAUGE, "The epoch of this node's writer; the highest one holds."},
         s.epoch},
        {{"front_to", "front_to_event", FIGURE_GAUGE, "The newest event that stands in the front."}, s.courier.to},
        {{"front_dirty", "front_dirty_users", FIGURE_GAUGE, "Users whose state is to be sent again."}, s.dirty},
        {{"front_filled", "front_filled_users", FIGURE_GAUGE, "Users that were brought in again by the last rebuild."},
         s.filled},
        {{"front_comparing", "front_comparing", FIGURE_GAUGE, "1 while all users are compared with the front."},
         s.comparing},
        {{"front_reconciled", "front_reconciled_timestamp_seconds", FIGURE_TIME,
          "When all users were compared last; 0: never."},
         (uint64_t)s.reconciled_ms},
        {{"front_events", "front_events_total", FIGURE_COUNTER, "Events that were sent to the front."},
         s.courier.events},
        {{"front_states", "front_states_total", FIGURE_COUNTER, "States of users that were sent to the front."},
         s.states},
        {{"front_bytes", "front_sent_bytes_total", FIGURE_COUNTER, "What was sent to the front."}, s.courier.bytes},
        {{"front_giants", "front_giants_total", FIGURE_COUNTER,
          "States that were too large, so that the front doesn't answer for their users."},
         s.giants},
        {{"front_unread", "front_unread_total", FIGURE_COUNTER, "States that could not be read from the disk."},
         s.unread},
        {{"front_rebuilds", "front_rebuilds_total", FIGURE_COUNTER, "Times that all users were brought in again."},
         s.rebuilds},
        {{"front_outages", "front_outages_total", FIGURE_COUNTER, "Times that the writer lost the front's Redis."},
         s.courier.outages},
        {{"front_compared", "front_compared_total", FIGURE_COUNTER, "Users that were compared with the front."},
         s.compared},
        {{"front_differences", "front_differences_total", FIGURE_COUNTER,
          "Users that stood otherwise in the front than here, and were sent again."},
         s.differences},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
