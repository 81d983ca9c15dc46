/* The slot of an id as in Redis Cluster, so that every cluster client can tell where a user belongs: CRC16 (XMODEM:
 * polynomial 0x1021, from 0) of the id, mod 16384. In an id with braces only the text between the first { and the next
 * } counts, unless it is empty. */
#ifndef UNSEEN_BASE_KEYSLOT_H
#define UNSEEN_BASE_KEYSLOT_H

#include "base/slice.h"

enum { KEYSLOTS = 16384 };

unsigned keyslot(struct slice id);

/* Which of n shards (1 .. KEYSLOTS) has the slot. A shard is a range of slots, as in a cluster. */
static inline unsigned keyslot_shard(unsigned slot, unsigned n)
{
    return slot * n / KEYSLOTS;
}

#endif
