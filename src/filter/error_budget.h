/* How error_rate is shared out over a user's window: among its months, and within a month among the parts of its
 * filter. Pure.
 *
 * A window of w full months and the current one may hide a candidate with a chance of error_rate. Nearly all of it is
 * for the sealed months, which are cut until they spend it; a little is reserved for parts that are still live.
 */
#ifndef UNSEEN_FILTER_ERROR_BUDGET_H
#define UNSEEN_FILTER_ERROR_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "filter/filter.h"

/* What a sealed month may spend. All of a window together spend what the live parts leave of error_rate. */
double error_budget_share(double error_rate, int64_t window);

/* The range to which n positions of a finished month are cut to spend that share; 0: they stay live. */
uint64_t error_budget_range(uint32_t n, bool coarse, double share);

/* How many positions the coarse part of a user's month takes at most, and a part at 2^32 before a fine one is begun. */
uint32_t error_budget_coarse_max(double error_rate);
uint32_t error_budget_live_max(double error_rate);

/* Cuts a finished month's filter. 1; 0: it stays as it is; or ERR_NOMEM. */
int error_budget_seal(struct filter *f, double error_rate, int64_t window, struct arena *arena);

#endif
