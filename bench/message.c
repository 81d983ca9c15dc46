/* What reading a message of Kafka costs: `make bench/message && bench/message`. Nanoseconds of the thread's own time,
 * the best of several runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/wire.h"
#include "kafka/message.h"

enum { RUNS = 9, MESSAGES = 200000 };

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void bench(const char *what, enum config_kafka_format format, struct slice value)
{
    struct config cfg;
    struct message_rules *rules;
    struct message_event event;
    struct arena arena = {0};
    const struct message message = {.value = value};
    double best = 0;
    config_defaults(&cfg);
    cfg.kafka_format = format;
    if (format != KAFKA_JSON) {
        strcpy(cfg.kafka_user, "1");
        strcpy(cfg.kafka_item, "2");
        strcpy(cfg.kafka_time, "3");
        strcpy(cfg.kafka_type, "4");
    }
    must(message_rules_new(&cfg, &rules, NULL) == 0, "bad rules");
    for (int run = 0; run < RUNS; run++) {
        double began = cpu_ns();
        for (int i = 0; i < MESSAGES; i++) {
            must(kafka_message_read(rules, &message, &arena, &event, NULL) == 1, "can't read the message");
            arena_reset(&arena);
        }
        double took = (cpu_ns() - began) / MESSAGES;
        best = run == 0 || took < best ? took : best;
    }
    printf("%-20s %6zu %8.0f\n", what, value.len, best);
    message_rules_free(rules);
    arena_free(&arena);
}

int main(void)
{
    struct buf protobuf = {0};
    wire_put_bytes(&protobuf, 1, slice_str("u4711"));
    wire_put_bytes(&protobuf, 2, slice_str("video:123456"));
    wire_put_number(&protobuf, 3, 1700000000123);
    wire_put_bytes(&protobuf, 4, slice_str("play"));
    printf("a message             bytes       ns\n");
    bench("json", KAFKA_JSON,
          slice_str("{\"user\":\"u4711\",\"item\":\"video:123456\",\"time\":1700000000123,\"type\":\"play\"}"));
    bench(
        "json, escapes", KAFKA_JSON,
        slice_str("{\"user\":\"u\\u00fc4711\",\"item\":\"video\\/123456\",\"time\":1700000000123,\"type\":\"play\"}"));
    bench("json, ten items", KAFKA_JSON,
          slice_str(
              "{\"user\":\"u4711\",\"item\":[123450,123451,123452,123453,123454,123455,123456,123457,123458,123459]}"));
    bench(
        "json, more fields", KAFKA_JSON,
        slice_str(
            "{\"id\":\"0b6e8a52-7c40-4d5c-9a0e-1f2d3c4b5a69\",\"user\":\"u4711\",\"device\":{\"os\":\"android\",\"v\":"
            "[14,0]},\"item\":\"video:123456\",\"seconds\":31.5,\"time\":1700000000123,\"type\":\"play\"}"));
    bench("csv", KAFKA_CSV, slice_str("u4711,video:123456,1700000000123,play"));
    bench("protobuf", KAFKA_PROTOBUF, buf_slice(&protobuf));
    buf_free(&protobuf);
    return 0;
}
