/* Plays and deliveries from topics of Kafka: a thread of its own polls, turns messages into events (message.h), and
 * hands them to the store in groups, each with the offsets that it reaches (store/positions.h). What can't be read goes
 * to the dead letters (dead_letters.h), which are synced before the offset moves. librdkafka itself is in a module,
 * which is loaded when brokers are configured (client.h).
 *
 *   the store recovers -> kafka_start() -> ... kafka_stop() -> the store closes
 */
#ifndef UNSEEN_KAFKA_KAFKA_H
#define UNSEEN_KAFKA_KAFKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "config/config.h"
#include "dedup/dedup.h"

struct kafka;

/* *kafka is NULL when no brokers are configured; the functions below take that. Brokers that can't be reached are no
 * error: they are tried again. ERR_ABSENT: the module is not installed, saying which package has it. ERR_INVALID: what
 * librdkafka says of the configuration. dedup outlives it. */
int kafka_start(const struct dedup *dedup, struct kafka **kafka, struct err *err);

/* Ends the thread: what was handed in is waited for, its offsets are given to the broker, and the group is left; all in
 * bounded time. */
void kafka_stop(struct kafka *k);
void kafka_free(struct kafka *k); /* when no thread looks any more */

enum kafka_doing {
    KAFKA_OFF,        /* no brokers are configured */
    KAFKA_CONNECTING, /* no broker has answered yet, or none does any more */
    KAFKA_WAITING,    /* a member of the group, without a partition */
    KAFKA_READING,
    KAFKA_PAUSED, /* the store takes nothing now, as `cause` says; the membership is kept */
    KAFKA_DOINGS,
};
const char *kafka_doing_name(enum kafka_doing doing); /* "off", "connecting" ... */

enum { KAFKA_TOPIC_MAX = 249, KAFKA_PARTITIONS_SHOWN = 1024, KAFKA_TEXT = 256 };

struct kafka_partition {
    char topic[KAFKA_TOPIC_MAX + 1];
    int32_t partition;
    int64_t next;           /* of this folder, durable: the next offset to read; -1: none yet */
    int64_t end;            /* of the log; -1: not known */
    int64_t lag;            /* messages; -1: not known */
    int64_t lag_ms;         /* the age of the last message that became durable while there are more; 0: none are */
    double rate;            /* messages a second, over the last seconds */
    uint64_t messages;      /* since it was assigned */
    uint64_t dead;          /* of these, dead letters */
    char error[KAFKA_TEXT]; /* the last of this partition, or "" */
};

struct kafka_state {
    enum kafka_doing doing;
    char cause[KAFKA_TEXT]; /* KAFKA_PAUSED, KAFKA_CONNECTING: why */
    char group[CONFIG_TEXT];
    size_t n_partitions; /* assigned now */
    int64_t lag, lag_ms; /* the sum, and the longest; -1: not known */
    double rate;         /* messages a second */
    /* since start: */
    uint64_t messages, plays, deliveries; /* items, of the latter two */
    uint64_t nulls;                       /* messages without a value */
    uint64_t too_old;                     /* events past retention, which are passed over */
    uint64_t dead;                        /* messages that went to the dead letters */
    uint64_t rebalances;
    uint64_t errors;                          /* that librdkafka told */
    char error[KAFKA_TEXT];                   /* the last of them, or "" */
    int64_t error_ms;                         /* wall time of it; 0: none */
    uint64_t dead_letters, dead_letter_bytes; /* what the folder holds now; see dead_letters.h */
};

/* Any thread. Copies up to max of the assigned partitions, by topic and number; returns how many. Of more than max it
 * takes those with the largest lag. k may be NULL. */
size_t kafka_look(struct kafka *k, struct kafka_state *state, struct kafka_partition *partitions, size_t max);

/* Each figure of the state, for metrics and INFO. What may be unknown is not among them: the lag. */
void kafka_figures_each(const struct kafka_state *state, figure_visit *visit, void *arg);

#endif
