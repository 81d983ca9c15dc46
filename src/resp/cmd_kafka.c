/* KAFKA: how far the reading from Kafka is. */
#include <stdlib.h>

#include "kafka/kafka.h"
#include "resp/command.h"

static void write_partition(struct writer *w, const struct kafka_partition *p)
{
    const struct writer_number numbers[] = {
        {"partition", p->partition},
        {"next", p->next},
        {"end", p->end},
        {"lag", p->lag},
        {"lag_ms", p->lag_ms},
        {"messages", (int64_t)p->messages},
        {"dead", (int64_t)p->dead},
    };
    write_map(w, 3 + sizeof numbers / sizeof *numbers);
    write_pair_str(w, "topic", p->topic);
    write_pair_ints(w, numbers, sizeof numbers / sizeof *numbers);
    write_pair_double(w, "rate", p->rate);
    write_pair_str(w, "error", p->error);
}

static void write_state(struct writer *w, const struct kafka_state *s, const struct kafka_partition *partitions,
                        size_t n)
{
    const struct writer_number numbers[] = {
        {"assigned", (int64_t)s->n_partitions},
        {"lag", s->lag},
        {"lag_ms", s->lag_ms},
        {"messages", (int64_t)s->messages},
        {"plays", (int64_t)s->plays},
        {"deliveries", (int64_t)s->deliveries},
        {"nulls", (int64_t)s->nulls},
        {"too_old", (int64_t)s->too_old},
        {"dead", (int64_t)s->dead},
        {"dead_letters", (int64_t)s->dead_letters},
        {"dead_letter_bytes", (int64_t)s->dead_letter_bytes},
        {"rebalances", (int64_t)s->rebalances},
        {"errors", (int64_t)s->errors},
        {"error_at", s->error_ms},
    };
    write_map(w, 6 + sizeof numbers / sizeof *numbers);
    write_pair_str(w, "state", kafka_doing_name(s->doing));
    write_pair_str(w, "cause", s->cause);
    write_pair_str(w, "group", s->group);
    write_pair_ints(w, numbers, sizeof numbers / sizeof *numbers);
    write_pair_double(w, "rate", s->rate);
    write_pair_str(w, "error", s->error);
    write_str(w, "partitions");
    write_array(w, n);
    for (size_t i = 0; i < n; i++) {
        write_partition(w, &partitions[i]);
    }
}

enum outcome cmd_kafka(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct kafka *kafka = service_dedup(&s->conn)->kafka;
    if (kafka == NULL) {
        return resp_client_refuse(s, "ERR no Kafka is configured: set brokers in the section [kafka]");
    }
    struct kafka_partition *partitions = malloc(KAFKA_PARTITIONS_SHOWN * sizeof *partitions);
    if (partitions == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    struct kafka_state state;
    size_t shown = kafka_look(kafka, &state, partitions, KAFKA_PARTITIONS_SHOWN);
    write_state(&s->writer, &state, partitions, shown);
    free(partitions);
    return OUTCOME_ANSWERED;
}
