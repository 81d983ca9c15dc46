/* A month's filter as it grows, for tests and benchmarks: its plays in several flushes, so that it has its coarse part,
 * the live one behind it, and what goes beyond in a fine one. */
#ifndef UNSEEN_TESTS_GROWN_H
#define UNSEEN_TESTS_GROWN_H

#include "filter/filter.h"

/* Adds n hashes to f in `flushes` parts of one size, as merge.c does. coarse_max, live_max: as of filter_add_tails();
 * new arrays come from the arena. Returns 0, ERR_NOMEM or ERR_FULL. */
int grown_add(struct filter *f, const uint64_t *hashes, uint32_t n, uint32_t flushes, uint32_t coarse_max,
              uint32_t live_max, struct arena *arena);

#endif
