/* What was sent to a replica and is not durable there yet, as stretches: so that it is known how many events, of how
 * many bytes, a cursor passes. Pure. */
#ifndef UNSEEN_REPLICA_FEEDER_SENT_H
#define UNSEEN_REPLICA_FEEDER_SENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FEEDER_SENT_MAX = 64 };

struct feeder_stretch {
    uint64_t from, to; /* above `from`, up to `to` */
    uint64_t n, bytes;
};

struct feeder_sent {
    struct feeder_stretch list[FEEDER_SENT_MAX];
    size_t n;
};

/* Whoever asks for what they had before begins the list anew. */
void feeder_sent_add(struct feeder_sent *s, const struct feeder_stretch *stretch);

/* All up to `durable` is done. True: *n and *bytes are what lies behind the cursor; false: that isn't remembered. */
bool feeder_sent_pass(struct feeder_sent *s, uint64_t cursor, uint64_t durable, uint64_t *n, uint64_t *bytes);

#endif
