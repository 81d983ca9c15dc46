/* Counts of values by a few fixed sizes, as Prometheus wants its histograms: small enough that each thread has one for
 * every command, and cheap enough for each of them. (base/histogram.h is exact and large: for the load generator.)
 *
 * One thread notes, any thread reads. A reader may see a value in one field and not yet in another. */
#ifndef UNSEEN_BASE_BUCKETS_H
#define UNSEEN_BASE_BUCKETS_H

#include <stdatomic.h>
#include <stdint.h>

enum { BUCKETS = 19 };

/* Upper bounds, inclusive. Values above the last one have a bucket after it. */
struct bucket_scale {
    unsigned n;
    uint64_t upper[BUCKETS];
};
extern const struct bucket_scale buckets_us;   /* 10 us to 10 s */
extern const struct bucket_scale buckets_rows; /* 1 to 100,000 */

/* All zero is an empty one. */
struct buckets {
    _Atomic uint64_t counts[BUCKETS + 1];
    _Atomic uint64_t sum;
};

/* The same as plain numbers, of one thread or added up. */
struct bucket_sums {
    uint64_t counts[BUCKETS + 1]; /* in each bucket alone, not yet cumulative */
    uint64_t sum;
};

/* Counts `times` values of this size. Always with the same scale. */
void buckets_note(struct buckets *b, const struct bucket_scale *scale, uint64_t value, uint64_t times);

void buckets_add(struct bucket_sums *to, const struct buckets *from);
uint64_t buckets_count(const struct bucket_sums *b);

/* The value that a share q (0 to 1) of all values don't exceed. Within a bucket they count as evenly spread, as with
 * Prometheus's histogram_quantile(). Above the last bound: that bound. 0 when empty. */
double buckets_quantile(const struct bucket_sums *b, const struct bucket_scale *scale, double q);

#endif
