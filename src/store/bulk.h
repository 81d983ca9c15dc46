/* The capability `bulk`: many events at once, older than what is recorded meanwhile: the import of a file, and the
 * migration from another Redis. */
#ifndef UNSEEN_STORE_BULK_H
#define UNSEEN_STORE_BULK_H

#include "store/store.h"

enum { STORE_RANK_MAX = 100 };

struct store_bulk_ops {
    /* Bulk load: events go to memory and from there, sorted by user, into history. One at a time, called by one thread;
     * each blocks. What was added is durable when end returns 0; an error ends the load (nothing is lost by
     * repeating it: a load is a union).
     *
     * serving = false is for the process that owns the folder and serves no client: all of staging_memory is used, and
     * what was added is handed over whenever that is full. serving = true is for what is brought in beside the
     * service, older than anything that clients write meanwhile: it ends no exception, and passes over users whose note
     * was ended. It is handed over by turn alone: that waits until what was handed over before is durable, and
     * then hands over what was added since. */
    int (*begin)(struct store *s, bool serving, struct err *err);
    /* What is not newer than a forget of its user or item is passed over, and counted. */
    int (*add)(struct store *s, int64_t at_ms, int64_t key, struct slice user, uint64_t item_hash, struct err *err);
    /* rank: 1 is the oldest; at most STORE_RANK_MAX. It orders those of one time. */
    int (*deliver)(struct store *s, int64_t at_ms, int64_t key, struct slice user, struct slice item,
                   uint64_t item_hash, uint64_t rank, struct err *err);
    size_t (*bytes)(struct store *s); /* added and not handed over */
    int (*turn)(struct store *s, struct err *err);
    int (*end)(struct store *s, struct err *err);

    /* Before the end, any thread: one who waits for a load's merge, which a reader may hold up, gets ERR_CLOSED. */
    void (*stop)(struct store *s);

    /* Whether the disk has room for more: 0, or ERR_FULL. Any thread, often. */
    int (*room)(struct store *s, struct err *err);
};

#endif
