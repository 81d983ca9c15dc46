/* Messages of topics: any bytes give an event that keeps the rules, or an error with a text. The first byte chooses
 * format, prefix, key, unit of time, and whether paths lead into messages within. */
#include "dedup/dedup.h"
#include "fuzz.h"
#include "kafka/message.h"

static struct message_rules *rules_of(uint8_t choice)
{
    static const char *const paths[][2][4] = {
        [KAFKA_JSON] = {{"user", "item", "time", "type"}, {"a.user", "a.item", "a.b.time", "type"}},
        [KAFKA_CSV] = {{"1", "2", "3", "4"}, {"4", "1", "2", "3"}},
        [KAFKA_PROTOBUF] = {{"1", "2", "3", "4"}, {"5.1", "5.2 packed", "5.3.1", "4"}},
    };
    static const char *const names[] = {"kafka_user", "kafka_item", "kafka_time", "kafka_type"};
    struct config cfg;
    struct message_rules *rules = NULL;
    config_defaults(&cfg);
    cfg.kafka_format = choice % 3;
    cfg.kafka_prefix = choice >> 2 & 1;
    cfg.kafka_key = choice >> 3 & 1;
    cfg.kafka_time_unit = (choice >> 4 & 3) % 3;
    for (size_t i = 0; i < 4; i++) {
        CHECK(config_set(&cfg, names[i], paths[choice % 3][choice >> 6 & 1][i], NULL) == 0);
    }
    CHECK(message_rules_new(&cfg, &rules, NULL) == 0);
    return rules;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct message_event event;
    struct err err = {0};
    if (size == 0) {
        return 0;
    }
    struct message_rules *rules = rules_of(data[0]);
    const struct message message = {slice_str("key"), slice_of((const char *)data + 1, size - 1)};
    int code = kafka_message_read(rules, &message, &arena, &event, &err);
    CHECK(code == 1 || (code == ERR_INVALID && err.code == code && err.text[0] != '\0'));
    if (code == 1) {
        CHECK(event.kind == STORE_PLAY || event.kind == STORE_DELIVERY);
        CHECK(event.n >= 1 && event.n <= ITEMS_MAX);
        CHECK(dedup_check_id("user", 0, event.user, NULL) == 0);
        CHECK(dedup_check_items(event.items, event.n, NULL) == 0);
        CHECK(kafka_message_read(rules, &message, &arena, &event, &err) == 1); /* the message is as it was */
    }
    message_rules_free(rules);
    arena_free(&arena);
    return 0;
}
