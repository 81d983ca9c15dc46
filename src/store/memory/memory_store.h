/* A store in memory: no files, nothing durable. For tests of programs that use Unseen (`unseen serve --store memory`),
 * and for tests of what stands above the seam.
 *
 * Plays are kept as exact hashes, so that no answer is an error; only what was imported as a filter is one. One thread
 * applies what is handed in, in order. staging_memory bounds all of it: what doesn't fit is refused. The data folder is
 * not looked at. */
#ifndef UNSEEN_STORE_MEMORY_STORE_H
#define UNSEEN_STORE_MEMORY_STORE_H

#include "store/store.h"

/* All of it may be NULL. */
struct memory_store_options {
    bool later;       /* loads are answered later, on the store's thread, as an engine across a network would */
    int64_t built_ms; /* no clock before it is believed; 0: clock_built_ms() */
};

/* cfg must outlive the store. Returns 0, ERR_NOMEM or ERR_SYSTEM. */
int memory_store_open(const struct config *cfg, const struct memory_store_options *options, struct store **store,
                      struct err *err);

#endif
