/* Fills a topic of Kafka, and reads one as the bare client does: polled one by one, and nothing done with it. For
 * bench/kafka.
 *
 *   kafka_peer topic BROKERS TOPIC PARTITIONS                    makes it
 *   kafka_peer fill BROKERS TOPIC MESSAGES USERS SKEW RATE       a play a message, keyed by user; RATE 0: all at once
 *   kafka_peer poll BROKERS TOPIC PARTITIONS MESSAGES            from the beginning, until so many were there
 *
 * Items have 25 bytes and are all different; users have 8 digits, and appear by Zipf. fill and poll print the seconds
 * they took: fill until the broker has acknowledged all, poll from the first message on. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench/bench_ids.h"
#include "cli/bench/zipf.h"

enum { PATIENCE_MS = 60000, BATCH = 1000 };

static char text[512];
static uint64_t failed;

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "kafka_peer: %s: %s\n", what, why);
    exit(1);
}

static uint64_t number(const char *word)
{
    char *end;
    uint64_t n = strtoull(word, &end, 10);
    if (end == word || *end != '\0') {
        fail(word, "expected a number");
    }
    return n;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) != RD_KAFKA_CONF_OK) {
        fail(name, text);
    }
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf, const char *brokers)
{
    set(conf, "bootstrap.servers", brokers);
    rd_kafka_t *k = rd_kafka_new(type, conf, text, sizeof text);
    if (k == NULL) {
        fail("can't make a client", text);
    }
    return k;
}

static double seconds_since(int64_t began_us)
{
    return (double)(clock_figures_us() - began_us) / 1e6;
}

static void make_topic(const char *brokers, const char *name, int partitions)
{
    rd_kafka_t *k = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), brokers);
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(name, partitions, 1, text, sizeof text);
    rd_kafka_queue_t *answers = rd_kafka_queue_new(k);
    rd_kafka_CreateTopics(k, &topic, 1, NULL, answers);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, PATIENCE_MS);
    if (event == NULL) {
        fail(name, "no answer");
    }
    size_t n = 0;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n);
    if (n != 1 || rd_kafka_topic_result_error(results[0]) != 0) {
        fail(name, n == 1 ? rd_kafka_topic_result_error_string(results[0]) : rd_kafka_event_error_string(event));
    }
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(answers);
    rd_kafka_NewTopic_destroy(topic);
    rd_kafka_destroy(k);
}

static void delivered(rd_kafka_t *k, const rd_kafka_message_t *message, void *opaque)
{
    (void)k;
    (void)opaque;
    failed += message->err != 0;
}

static void produce(rd_kafka_t *k, rd_kafka_topic_t *topic, uint64_t user, uint64_t item)
{
    char id[BENCH_ITEM_LEN], key[32], value[160];
    bench_write_item(id, bench_item_id(item));
    int key_len = snprintf(key, sizeof key, "bench:%08llu", (unsigned long long)user);
    int len = snprintf(value, sizeof value, "{\"user\":\"%s\",\"item\":\"%.*s\",\"time\":%lld}", key, BENCH_ITEM_LEN,
                       id, (long long)clock_wall_ms());
    while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, value, (size_t)len, key, (size_t)key_len,
                            NULL) != 0) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        }
        rd_kafka_poll(k, 10);
    }
}

static void fill(const char *brokers, const char *name, uint64_t messages, uint64_t users, double skew, uint64_t rate)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "linger.ms", "20");
    set(conf, "queue.buffering.max.messages", "500000");
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *k = client(RD_KAFKA_PRODUCER, conf, brokers);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(k, name, NULL);
    struct zipf zipf;
    struct random random = {.state = 1};
    zipf_init(&zipf, users, skew);
    int64_t began = clock_figures_us();
    uint64_t base = (uint64_t)clock_wall_ms() << 24; /* other runs have other items */
    for (uint64_t i = 0; i < messages; i++) {
        produce(k, topic, zipf_next(&zipf, &random) - 1, base + i);
        if (i % BATCH == 0) {
            rd_kafka_poll(k, 0);
            double early = rate == 0 ? 0 : (double)i / (double)rate - seconds_since(began);
            if (early > 0) {
                usleep((useconds_t)(early * 1e6));
            }
        }
    }
    rd_kafka_resp_err_t err = rd_kafka_flush(k, PATIENCE_MS);
    if (err != 0 || failed > 0) {
        fail("not all was delivered", rd_kafka_err2str(err));
    }
    printf("%.6f\n", seconds_since(began));
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(k);
}

static void poll_all(const char *brokers, const char *name, int partitions, uint64_t messages)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "kafka_peer");
    set(conf, "enable.auto.commit", "false");
    rd_kafka_t *k = client(RD_KAFKA_CONSUMER, conf, brokers);
    rd_kafka_poll_set_consumer(k);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int i = 0; i < partitions; i++) {
        rd_kafka_topic_partition_list_add(list, name, i)->offset = RD_KAFKA_OFFSET_BEGINNING;
    }
    rd_kafka_resp_err_t err = rd_kafka_assign(k, list);
    if (err != 0) {
        fail("assign", rd_kafka_err2str(err));
    }
    uint64_t n = 0;
    int64_t began = 0;
    while (n < messages) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(k, PATIENCE_MS);
        if (message == NULL || message->err != 0) {
            fail("poll", message == NULL ? "nothing came" : rd_kafka_message_errstr(message));
        }
        began = n++ == 0 ? clock_figures_us() : began;
        rd_kafka_message_destroy(message);
    }
    printf("%.6f\n", seconds_since(began));
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(k);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "topic") == 0) {
        make_topic(argv[2], argv[3], (int)number(argv[4]));
    } else if (argc == 8 && strcmp(argv[1], "fill") == 0) {
        fill(argv[2], argv[3], number(argv[4]), number(argv[5]), strtod(argv[6], NULL), number(argv[7]));
    } else if (argc == 6 && strcmp(argv[1], "poll") == 0) {
        poll_all(argv[2], argv[3], (int)number(argv[4]), number(argv[5]));
    } else {
        fprintf(stderr, "kafka_peer: see the head of bench/kafka_peer.c\n");
        return 2;
    }
    return 0;
}
