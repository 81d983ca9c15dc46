/* What the files of message.h share: where the fields are, and what a format's reader finds. */
#ifndef UNSEEN_KAFKA_MESSAGE_IMPL_H
#define UNSEEN_KAFKA_MESSAGE_IMPL_H

#include "kafka/message.h"

enum message_field { MESSAGE_USER, MESSAGE_ITEM, MESSAGE_TIME, MESSAGE_TYPE, MESSAGE_FIELDS };
enum { MESSAGE_PATH_MAX = 8 };

extern const char *const message_names[MESSAGE_FIELDS];

/* Where a field stands: names in JSON, numbers in protobuf, the one number of a column in CSV. */
struct message_path {
    size_t n; /* 0: it is not looked for */
    struct slice names[MESSAGE_PATH_MAX];
    uint32_t numbers[MESSAGE_PATH_MAX];
    /* Protobuf: bytes are a packed list of numbers; these may be below 0 (int64, sfixed64); the same, as sint64 has
     * them. */
    bool packed, is_signed, zigzag;
};

struct message_rules {
    enum config_kafka_format format;
    enum config_kafka_time unit;
    bool confluent, key_is_user;
    struct message_path paths[MESSAGE_FIELDS];
    char texts[MESSAGE_FIELDS][CONFIG_TEXT]; /* the paths' names point here */
    char play[CONFIG_TEXT], delivery[CONFIG_TEXT];
};

/* The texts of one message, within it or in the arena. */
struct message_draft {
    struct arena *arena;
    struct slice texts[MESSAGE_FIELDS]; /* data NULL: it has none. Not of MESSAGE_ITEM */
    struct slice *items;
    size_t n, room;
    bool has_items; /* there may be none in the list */
};

/* ERR_INVALID: more than ITEMS_MAX. ERR_NOMEM. */
int message_add_item(struct message_draft *draft, struct slice item, struct err *err);

/* Each fills in the draft, whose arena is set, or fails as kafka_message_read() does. Whether ids are good and whether
 * all is there is not their business. */
int message_read_json(const struct message_rules *rules, struct slice value, struct message_draft *draft,
                      struct err *err);
int message_read_csv(const struct message_rules *rules, struct slice value, struct message_draft *draft,
                     struct err *err);
int message_read_protobuf(const struct message_rules *rules, struct slice value, struct message_draft *draft,
                          struct err *err);
/* Passes over the message indexes of Confluent's prefix. */
int message_skip_indexes(struct slice *value, struct err *err);

#endif
