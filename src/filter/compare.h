/* Whether two filters of one user and month, filled in different batches on two machines, hold the same items. Pure. */
#ifndef UNSEEN_FILTER_COMPARE_H
#define UNSEEN_FILTER_COMPARE_H

#include "filter/filter.h"

/* How many positions of `a` no item of the n_b filters at `b` can have made. A position stands for a range of the top
 * 32 bits of a hash, wider in a coarse or a cut part; it is matched by any position of b whose range meets it. So two
 * filters with the same items give 0 both ways, however their parts differ, and an item that is in a alone is missed
 * only by the chance that b has a position in its range. Positions of the hashes in `except`, which are ascending,
 * count as matched. */
uint32_t filter_unmatched(const struct filter *a, const struct filter *b, size_t n_b, const uint64_t *except,
                          size_t n_except);

#endif
