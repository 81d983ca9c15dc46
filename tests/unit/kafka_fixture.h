/* The consumer of Kafka over the test's client (fake_kafka.h), with a world below it: "plays" 0 into a folder. What the
 * tests of the consumer share. */
#ifndef UNSEEN_TESTS_KAFKA_FIXTURE_H
#define UNSEEN_TESTS_KAFKA_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "kafka/kafka.h"
#include "tests/lib/world_fixture.h"
#include "tests/unit/fake_kafka.h"

#define LOCKED FAKE_KAFKA_LOCKED
#define client fake_kafka

extern struct world world;
extern char folder[64];
extern struct kafka *kafka;

int kafka_setup(void **state);
int kafka_teardown(void **state);
#define KAFKA_TEST(name) cmocka_unit_test_setup_teardown(name, kafka_setup, kafka_teardown)

void begin(int64_t end); /* the log has messages up to that one */
/* The group has committed nothing, and `start` says that. */
void begin_nowhere(const char *at, int64_t first, int64_t end);
void finish(void);

struct kafka_state look(void);
int64_t position(void); /* of the folder; -1: none */

bool has(int64_t offset);
void check_has(int64_t from, int64_t to); /* all of a few, a part of many: each question reads the whole user */

enum { WAIT_S = 30 };

/* Until the condition holds, while time passes; under the client's lock, with the consumer's state as s. */
#define UNTIL(condition)                                                                                               \
    for (time_t until_ = time(NULL) + WAIT_S;;) {                                                                      \
        struct kafka_state s = look();                                                                                 \
        bool holds_;                                                                                                   \
        LOCKED(holds_ = (condition));                                                                                  \
        if (holds_) {                                                                                                  \
            break;                                                                                                     \
        }                                                                                                              \
        if (time(NULL) > until_) {                                                                                     \
            fail_msg("%s: %s, %llu messages, next %lld, told %lld, error %s, cause %s", #condition,                    \
                     kafka_doing_name(s.doing), (unsigned long long)s.messages, (long long)client.next,                \
                     (long long)client.stored, s.error, s.cause);                                                      \
        }                                                                                                              \
        clock_test_advance(1);                                                                                         \
        usleep(500);                                                                                                   \
    }

#endif
