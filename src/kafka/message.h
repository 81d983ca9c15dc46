/* What a message of a topic says: who played, or was sent, what and when. JSON by configured field names, CSV by
 * columns, protobuf by field numbers (`[kafka] format`, `user`, `item`, `time`, `type`, ...).
 */
#ifndef UNSEEN_KAFKA_MESSAGE_H
#define UNSEEN_KAFKA_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "store/store.h"

struct message_rules;

/* What the configuration says of messages. ERR_INVALID names the option. */
int message_rules_new(const struct config *cfg, struct message_rules **rules, struct err *err);
void message_rules_free(struct message_rules *rules);

struct message {
    struct slice key, value; /* data NULL: it has none */
};

struct message_event {
    enum store_kind kind;
    bool has_at;   /* else the message's own time is that of the event */
    int64_t at_ms; /* unix */
    struct slice user;
    const struct slice *items; /* in the arena, or in the message */
    size_t n;
};

/* 1: *out is what the message says. Its ids have 1..255 bytes, and there are at most ITEMS_MAX items; its time is
 * in range only as far as ms and s can be told apart. A time or type that is empty or null is none. 0: it has no value
 * (a tombstone of a compacted topic). ERR_INVALID: it can't be read; the text names the field, and what was found
 * instead of what was expected. ERR_NOMEM. One thread at a time may use the rules. */
int kafka_message_read(struct message_rules *rules, const struct message *message, struct arena *arena,
                       struct message_event *out, struct err *err);

#endif
