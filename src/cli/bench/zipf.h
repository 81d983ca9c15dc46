/* How often each user appears: ranks 1..n, rank k with a chance proportional to 1 / k^skew (Zipf). A skew of 0 is even,
 * 0.99 is usual for cache benchmarks, and above 1 a few dominate.
 *
 * Drawn by rejection-inversion (W. Hoermann, G. Derflinger, "Rejection-inversion to generate variates from monotone
 * discrete distributions", ACM TOMACS 6(3), 1996): no table, the same time for any n. */
#ifndef UNSEEN_CLI_BENCH_ZIPF_H
#define UNSEEN_CLI_BENCH_ZIPF_H

#include <stdint.h>

#include "cli/lib/random.h"

struct zipf {
    uint64_t n;
    double skew;
    double area_first, area_end; /* under the curve up to x = 3/2 less what rank 1 stands for, and up to n + 1/2 */
    double sure;                 /* an x no further below its rank than this is good without a look */
};

void zipf_init(struct zipf *z, uint64_t n, double skew); /* n >= 1, skew >= 0 */

uint64_t zipf_next(const struct zipf *z, struct random *random);

#endif
