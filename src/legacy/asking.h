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
    size_t left;  /* candidates without one */
    size_t at;    /* the next of these */
    size_t chunk; /* candidates of a reply */
    bool single;  /* ZSCORE's */
    bool failed;
};

/* Its parts, each about a key. */
enum asking_part { ASKING_DELIVERED, ASKING_SCORES, ASKING_PARTS };
struct slice asking_key(const struct config *cfg, enum asking_part part, struct slice user, char out[LEGACY_KEY_MAX]);

/* All zero before. zmscore: whether it has that. */
void asking_begin(struct asking *a, struct read_through_question *q, const struct dedup *dedup, bool zmscore);
void asking_again(struct asking *a, enum asking_part part); /* its replies come again, from the first on */

/* How many commands, which get as many replies; 0: it isn't asked. */
size_t asking_commands(const struct asking *a, enum asking_part part);

/* Appends them. items: the question's candidates. once: each is behind ASKING, which gets a reply too. */
void asking_words(const struct asking *a, enum asking_part part, struct slice user, const struct slice *items,
                  bool once, struct buf *out);

/* Takes the part's next reply. a->failed: one was not an answer. */
void asking_reply(struct asking *a, enum asking_part part, const struct redisReply *reply);

/* Removes the items that were found there from a local answer about the same candidates; returns how many. */
size_t asking_hide(const struct read_through_question *q, const uint64_t *hashes, uint8_t *unseen);

#endif
