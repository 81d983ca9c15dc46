/* What was sent to a consumer of the feed and is not durable there yet, as stretches: so that it is known how many
 * events, of how many bytes, a cursor passes. */
#ifndef UNSEEN_STORE_FEED_SENT_H
#define UNSEEN_STORE_FEED_SENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heartbeat.h"
#include "store/feed.h"

enum { FEED_SENT_MAX = 64 };

struct feed_stretch {
    uint64_t from, to; /* above `from`, up to `to` */
    uint64_t n, bytes;
};

struct feed_sent {
    struct feed_stretch list[FEED_SENT_MAX];
    size_t n;
};

/* What doesn't follow the stretch before begins the list again. */
void feed_sent_add(struct feed_sent *s, const struct feed_stretch *stretch);

/* All up to `done` is done. True: *n and *bytes are what lies behind the cursor; false: that isn't remembered. */
bool feed_sent_pass(struct feed_sent *s, uint64_t cursor, uint64_t done, uint64_t *n, uint64_t *bytes);

/* Says so to the feed, where the cursor isn't there yet. What isn't remembered is counted in the feed itself. */
int feed_sent_done(struct feed_sent *s, struct store *store, struct store_reader *reader, const char *consumer,
                   uint64_t done, struct heartbeat *heartbeat, struct err *err);

#endif
