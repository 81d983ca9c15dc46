/* Counts of values by size, for latencies: any 64-bit value, kept to within 1/128 of itself in a fixed 58 KiB.
 *
 * As in HdrHistogram (Gil Tene): a value below 128 has a bucket of its own; above, each power of two is cut into 128
 * buckets of equal width. So a bucket's number is the value's exponent and the seven bits after its leading one. Noting
 * a value is an increment; histograms can be added. Owned by one thread. */
#ifndef UNSEEN_BASE_HISTOGRAM_H
#define UNSEEN_BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum {
    HISTOGRAM_FINE_BITS = 7,
    HISTOGRAM_FINE = 1 << HISTOGRAM_FINE_BITS,
    HISTOGRAM_BUCKETS = (64 - HISTOGRAM_FINE_BITS + 1) * HISTOGRAM_FINE,
};

/* All zero is an empty one. */
struct histogram {
    uint64_t count;
    uint64_t min, max; /* exact; 0 when empty */
    double sum;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* A value's bucket, and the smallest and the largest value that a bucket holds. */
size_t histogram_bucket(uint64_t value);
uint64_t histogram_from(size_t bucket);
uint64_t histogram_to(size_t bucket);

void histogram_note(struct histogram *h, uint64_t value);
void histogram_add(struct histogram *h, const struct histogram *more);

/* The smallest value that at least a share q (0 to 1) of all values don't exceed, at most 1/128 too high and never
 * above the largest one; 0 when empty. */
uint64_t histogram_quantile(const struct histogram *h, double q);

double histogram_mean(const struct histogram *h);

#endif
