/* A client of Kafka that is the test's (kafka/client.h). It has one partition, "plays" 0, whose offsets from `first` up
 * to `end` each hold a play of user "u" of item "i<offset>". A group that has committed nothing is at offset 10, unless
 * the test says that it is nowhere. */
#ifndef UNSEEN_TESTS_FAKE_KAFKA_H
#define UNSEEN_TESTS_FAKE_KAFKA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kafka/client.h"

enum fake_kafka_tell { FAKE_KAFKA_QUIET, FAKE_KAFKA_ASSIGN, FAKE_KAFKA_REVOKE, FAKE_KAFKA_FATAL };

struct kafka_client {
    struct client_hooks hooks;
    void *owner;
    char text[128];

    pthread_mutex_t mutex; /* guards: */
    enum fake_kafka_tell tell;
    int64_t assigned_at, first, end, next, stored;
    bool paused, has_paused, closed;
    int opened, refusals; /* opened so often; that many opens fail before */
    int polls_paused;     /* polls while it was paused */
    bool nowhere;         /* the group has committed nothing; else */
    int64_t committed;    /* this, with a note, as store() leaves it */
    char note[CLIENT_NOTE];
    bool two;            /* "plays" 1 is assigned as well, and empty */
    bool unacknowledged; /* what was stored; told with the next poll, unless */
    bool keeps_silent;
    int asked, silences;              /* committed() was so often; that many fail before */
    int64_t asked_ms, at_time;        /* of at_time(): what was asked, and what it answers */
    int64_t poison_first, poison_end; /* these hold no play */
    int64_t gap_first, gap_end;       /* these are gone, as compaction takes them */
    int64_t twice;                    /* when this one is given, it begins once more from `twice_from`; 0: never */
    int64_t twice_from;
};

enum { FAKE_KAFKA_COMMITTED = 10 };

#define FAKE_KAFKA_MS INT64_C(1795255200000) /* when all messages were written */

extern struct kafka_client fake_kafka;
extern const struct client_ops fake_kafka_ops;

/* Before each start of the consumer: nothing has been told yet, and the partition is about to be assigned. */
void fake_kafka_begin(int64_t end);

/* To the state in which a test finds it. */
void fake_kafka_reset(void);

#define FAKE_KAFKA_LOCKED(statement)                                                                                   \
    do {                                                                                                               \
        pthread_mutex_lock(&fake_kafka.mutex);                                                                         \
        statement;                                                                                                     \
        pthread_mutex_unlock(&fake_kafka.mutex);                                                                       \
    } while (0)

#endif
