/* A batch of the mirror's events as commands of the old Redis, and what the replies say. All are sent before the first
 * reply is read; events of one user that follow each other go in one command.
 */
#ifndef UNSEEN_LEGACY_REPEAT_H
#define UNSEEN_LEGACY_REPEAT_H

#include <stdbool.h>

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "legacy/redis.h"
#include "store/feed.h"

enum { REPEAT_BATCH = 512 }; /* events */

struct repeat {
    const struct config *cfg;
    struct redis *redis;
    /* A reply concerns this key alone: so many events are passed over. */
    void (*refused)(void *owner, struct slice key, int events, struct slice text);
    void *owner;
    const struct feed_event *rows; /* the events, at most REPEAT_BATCH: of the caller */

    /* Commands on their way. */
    struct repeat_sent {
        int first;      /* of the events that it repeats, */
        int n;          /* so many; 0: it only follows up the one before */
        bool delivered; /* which of the two keys */
    } sent[2 * REPEAT_BATCH];
    int n_sent;
};

/* Repeats the first n rows. 0; ERR_BUSY: a reply concerns the Redis as a whole; or an error of the connection. */
int repeat_rows(struct repeat *r, int n, struct err *err);

#endif
