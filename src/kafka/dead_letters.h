/* Messages that can't be read, kept in the data folder until somebody mends and imports them (`unseen import
 * --dead-letters`): one JSON object a line with topic, partition, offset, time, reason, and key and payload in base64.
 * Files are rotated by size; nothing is deleted here.
 */
#ifndef UNSEEN_KAFKA_DEAD_LETTERS_H
#define UNSEEN_KAFKA_DEAD_LETTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct dead_letters;

struct dead_letter {
    struct slice topic;
    int32_t partition;
    int64_t offset;
    int64_t at_ms; /* the message's time, unix; 0: it has none */
    struct slice reason;
    struct slice key, value; /* data NULL: it has none */
};

/* Below folder, which exists; files are made when there is something to keep. A line that a crash cut off is completed
 * before the next one. */
int dead_letters_open(const char *folder, struct dead_letters **letters, struct err *err);
void dead_letters_close(struct dead_letters *letters); /* NULL is fine */

/* Appends; durable after the next sync. After an error nothing of the letter counts, and it may be added again. */
int dead_letters_add(struct dead_letters *letters, const struct dead_letter *letter, struct err *err);
int dead_letters_sync(struct dead_letters *letters, struct err *err); /* at once when nothing was added */

/* What the folder holds: letters and bytes, over all files. Any thread. */
void dead_letters_look(struct dead_letters *letters, uint64_t *n, uint64_t *bytes);

#endif
