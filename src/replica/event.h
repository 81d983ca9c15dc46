/* Events of a feed on the wire, and apart again. Pure. The form is described in docs/format.md.
 *
 * A run of events is the concatenation of: kind (a byte), the length of what follows (varint), then seq as its distance
 * to the event before, at_ms and how much later it was recorded (zigzag varints; at_ms as its distance, too), the user
 * and, of kinds that have one, the item, each with its length in front. An empty user is that of the event before. A
 * delivery with a group is of kind FEED_GROUPED, and the group's hash, 8 bytes, little endian, follows the item.
 * A reader that meets a kind that it doesn't know stops there.
 */
#ifndef UNSEEN_REPLICA_EVENT_H
#define UNSEEN_REPLICA_EVENT_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/feed.h"

enum { EVENT_RUN_MAX = 8192 }; /* events of one reply */

/* What the next one is told by; all zero before the first. */
struct event_state {
    uint64_t seq;
    int64_t at_ms;
    struct slice user; /* in the bytes of the run */
};

/* 0 or ERR_NOMEM, with out as it was. */
int event_write(struct event_state *state, const struct feed_event *event, struct buf *out);

/* 1: the next one, whose ids point into the bytes; 0: the end; ERR_CORRUPT: what is wrong and where; ERR_VERSION: a
 * kind that this program doesn't know. *at begins at 0. */
int event_read(struct event_state *state, struct slice bytes, size_t *at, struct feed_event *out, struct err *err);

#endif
