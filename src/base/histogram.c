#include "base/histogram.h"

#include <math.h>

size_t histogram_bucket(uint64_t value)
{
    if (value < HISTOGRAM_FINE) {
        return (size_t)value;
    }
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_FINE_BITS;
    return (size_t)shift * HISTOGRAM_FINE + (size_t)(value >> shift);
}

uint64_t histogram_from(size_t bucket)
{
    if (bucket < HISTOGRAM_FINE) {
        return bucket;
    }
    return (uint64_t)(HISTOGRAM_FINE + bucket % HISTOGRAM_FINE) << (bucket / HISTOGRAM_FINE - 1);
}

uint64_t histogram_to(size_t bucket)
{
    return bucket + 1 < HISTOGRAM_BUCKETS ? histogram_from(bucket + 1) - 1 : UINT64_MAX;
}

void histogram_note(struct histogram *h, uint64_t value)
{
    h->min = h->count == 0 || value < h->min ? value : h->min;
    h->max = value > h->max ? value : h->max;
    h->sum += (double)value;
    h->count++;
    h->buckets[histogram_bucket(value)]++;
}

void histogram_add(struct histogram *h, const struct histogram *more)
{
    if (more->count == 0) {
        return;
    }
    h->min = h->count == 0 || more->min < h->min ? more->min : h->min;
    h->max = more->max > h->max ? more->max : h->max;
    h->sum += more->sum;
    h->count += more->count;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        h->buckets[i] += more->buckets[i];
    }
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
    if (h->count == 0) {
        return 0;
    }
    uint64_t rank = (uint64_t)ceil(q * (double)h->count), seen = 0;
    rank = rank < 1 ? 1 : rank > h->count ? h->count : rank;
    size_t bucket = 0;
    while ((seen += h->buckets[bucket]) < rank) {
        bucket++;
    }
    uint64_t to = histogram_to(bucket);
    return to < h->max ? to : h->max;
}

double histogram_mean(const struct histogram *h)
{
    return h->count == 0 ? 0 : h->sum / (double)h->count;
}
