/* A user's plays of one month as one thing: how a flush, a merge and an import put them into the month's filter. Pure.
 *
 * What is in a filter is a union (filter.h). So it doesn't matter in which order plays and filters come together, how
 * often, or in how many steps: the same items are found, each of them always.
 */
#ifndef UNSEEN_STORE_USER_PLAYS_H
#define UNSEEN_STORE_USER_PLAYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "filter/filter.h"
#include "store/store.h"

struct plays {
    const uint64_t *hashes; /* the first; each other one lies `stride` bytes behind the one before */
    size_t n, stride;
    uint32_t *positions, *scratch; /* room for n each; NULL: positions are the arena's, and sorted in place */
};

/* The run of a list that is ordered by months which begins at `at`. */
struct plays plays_of_month(const struct store_play *list, size_t n, size_t at);

/* What a filter may have in its coarse part, and in a live one at 2^32: of the whole month, or what others leave. */
struct plays_limits {
    uint32_t coarse_max, live_max;
};
struct plays_limits plays_limits(double error_rate);

/* Adds them: into the coarse part as long as that has room, then into a live one, then with tails into a fine one. 0,
 * ERR_NOMEM or ERR_FULL, as filter_add(); f is of no use then. */
int plays_add(struct filter *f, const struct plays *plays, const struct plays_limits *limits, struct arena *arena);

#endif
