/* The slot of an id as Redis Cluster reckons it, so that every cluster client can tell where a user lives: CRC16
 * (XMODEM: polynomial 0x1021, from 0) of the id, mod 16384. Of an id with braces only what stands between the first {
 * and the next } counts, unless that is nothing. */
#ifndef UNSEEN_BASE_KEYSLOT_H
#define UNSEEN_BASE_KEYSLOT_H

#include "base/slice.h"

enum { KEYSLOTS = 16384 };

unsigned keyslot(struct slice id);

/* Which of n shards (1 .. KEYSLOTS) has the slot: runs of slots, as a cluster deals them out. */
static inline unsigned keyslot_shard(unsigned slot, unsigned n)
{
    return slot * n / KEYSLOTS;
}

#endif
