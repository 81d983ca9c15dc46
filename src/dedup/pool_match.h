/* The other way round: what a user has seen, looked up in a pool, so that nothing is built of it and no candidate is
 * tested. Its cost goes by what the user has, and hardly by the pool: with 800 plays and a pool of 100,000 it is a
 * tenth of what the probe takes (filter/probe.h), with 10,000 plays and a pool of 10,000 some seven tenths. */
#ifndef UNSEEN_DEDUP_POOL_MATCH_H
#define UNSEEN_DEDUP_POOL_MATCH_H

#include "dedup/pools.h"
#include "store/store.h"

/* Whether it is the faster way to ask about all of the line: of one pool it always is; each further one has the user
 * looked up once more. */
bool pool_match_pays(const struct pool_line *line, const struct store_view *view);

/* Sets bit i of unseen (most significant first, padded with 0) when the i-th item is unseen, exactly as a probe says
 * it. Returns how many are. */
size_t pool_match(const struct pool_line *line, const struct store_view *view, uint8_t *unseen);

#endif
