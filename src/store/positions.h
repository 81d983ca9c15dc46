/* The capability `positions`: how far a source outside was taken, such as a partition of a Kafka topic. A position is
 * committed with the batch that holds what was read up to it (store_batch.positions), so after any crash, restore or
 * copy of the folder it says exactly what the folder lacks.
 */
#ifndef UNSEEN_STORE_POSITIONS_H
#define UNSEEN_STORE_POSITIONS_H

#include "store/store.h"

enum { STORE_SOURCE_MAX = 400 /* bytes of a source's name */ };

/* Any thread; from memory. */
struct store_positions_ops {
    /* 1: *next is the position of the next thing to read from the source, and it is durable; 0: nothing of the source
     * was ever taken in this folder. */
    int (*find)(struct store *s, struct slice source, int64_t *next);
};

#endif
