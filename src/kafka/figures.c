/* The figures of Kafka for INFO, the metrics and the page. */
#include "kafka/kafka.h"

const char *kafka_doing_name(enum kafka_doing doing)
{
    static const char *const names[KAFKA_DOINGS] = {"off", "connecting", "waiting", "reading", "paused"};
    return names[doing];
}

void kafka_figures_each(const struct kafka_state *s, figure_visit *visit, void *arg)
{
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"kafka_partitions", "kafka_partitions", FIGURE_GAUGE, "Partitions that the group has assigned to this node."},
         s->n_partitions},
        {{"kafka_messages", "kafka_messages_total", FIGURE_COUNTER, "Messages that were read from Kafka."},
         s->messages},
        {{"kafka_plays", "kafka_plays_total", FIGURE_COUNTER, "Plays that came from Kafka."}, s->plays},
        {{"kafka_deliveries", "kafka_deliveries_total", FIGURE_COUNTER, "Deliveries that came from Kafka."},
         s->deliveries},
        {{"kafka_nulls", "kafka_nulls_total", FIGURE_COUNTER, "Messages without a value, which are passed over."},
         s->nulls},
        {{"kafka_too_old", "kafka_too_old_total", FIGURE_COUNTER, "Events past retention, which are passed over."},
         s->too_old},
        {{"kafka_dead", "kafka_dead_total", FIGURE_COUNTER,
          "Messages that could not be read and went to the dead letters."},
         s->dead},
        {{"kafka_dead_letters", "kafka_dead_letters", FIGURE_GAUGE, "Dead letters that the data folder holds."},
         s->dead_letters},
        {{"kafka_dead_letter_bytes", "kafka_dead_letter_bytes", FIGURE_GAUGE, "What the dead letters take on disk."},
         s->dead_letter_bytes},
        {{"kafka_rebalances", "kafka_rebalances_total", FIGURE_COUNTER,
          "How often the group has dealt its partitions again."},
         s->rebalances},
        {{"kafka_errors", "kafka_errors_total", FIGURE_COUNTER, "Errors that librdkafka has told."}, s->errors},
        {{"kafka_error_time", "kafka_error_timestamp_seconds", FIGURE_TIME, "When it told the last one; 0: never."},
         (uint64_t)s->error_ms},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
