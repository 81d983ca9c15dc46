/* One question of read-through in the old Redis's words: the commands that ask, and what their replies say.
 *
 * First ZREVRANGE, for the newest deliveries, then ZMSCORE, each about some hundred candidates, or, from a Redis that
 * has no ZMSCORE, ZSCORE, each about one. Scores that are not a time, or a time too old to be taken over, count as not
 * seen.
 */
#ifndef UNSEEN_LEGACY_ASKING_H
#define UNSEEN_LEGACY_ASKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"
#include "dedup/dedup.h"
#include "legacy/parse.h"
#include "legacy/read_through.h"

struct redisReply; /* see legacy/redis_reply.h */

struct asking {
    struct read_through_question *question; /* NULL: answered, or late; further replies are discarded */
    const struct dedup *dedup;
    struct legacy_times plays, deliveries;
    size_t n;       /* replies that are due */
    size_t left;    /* candidates without one */
    size_t at;      /* the next of these */
    size_t chunk;   /* candidates of a reply */
    bool delivered; /* the next reply is that of ZREVRANGE */
    bool single;    /* ZSCORE's */
    bool failed;
};

/* All zero before. zmscore: whether it has that. */
void asking_begin(struct asking *a, struct read_through_question *q, const struct dedup *dedup, bool zmscore);

/* Appends its commands, which get a->n replies. items: the question's candidates. */
void asking_words(const struct asking *a, struct slice user, const struct slice *items, struct buf *out);

/* Takes the next reply. Returns whether it was the last; a->failed: one was not an answer. */
bool asking_reply(struct asking *a, const struct redisReply *reply);

/* Removes the items that were found there from a local answer about the same candidates; returns how many. */
size_t asking_hide(const struct read_through_question *q, const uint64_t *hashes, uint8_t *unseen);

#endif
