#include "base/buckets.h"

const struct bucket_scale buckets_us = {
    .n = 19,
    .upper = {10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000,
              2500000, 5000000, 10000000},
};

const struct bucket_scale buckets_rows = {
    .n = 16,
    .upper = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000},
};

/* There is one writer, so nothing can come between reading and writing. */
static void add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n, memory_order_relaxed);
}

void buckets_note(struct buckets *b, const struct bucket_scale *scale, uint64_t value, uint64_t times)
{
    unsigned i = 0;
    while (i < scale->n && value > scale->upper[i]) {
        i++;
    }
    add(&b->counts[i], times);
    add(&b->sum, value * times);
}

void buckets_add(struct bucket_sums *to, const struct buckets *from)
{
    for (unsigned i = 0; i <= BUCKETS; i++) {
        to->counts[i] += atomic_load_explicit(&from->counts[i], memory_order_relaxed);
    }
    to->sum += atomic_load_explicit(&from->sum, memory_order_relaxed);
}

uint64_t buckets_count(const struct bucket_sums *b)
{
    uint64_t count = 0;
    for (unsigned i = 0; i <= BUCKETS; i++) {
        count += b->counts[i];
    }
    return count;
}

double buckets_quantile(const struct bucket_sums *b, const struct bucket_scale *scale, double q)
{
    double rank = q * (double)buckets_count(b);
    double before = 0;
    for (unsigned i = 0; i < scale->n && rank > 0; i++) {
        double in_it = (double)b->counts[i];
        if (in_it > 0 && before + in_it >= rank) {
            double lower = i > 0 ? (double)scale->upper[i - 1] : 0;
            return lower + ((double)scale->upper[i] - lower) * (rank - before) / in_it;
        }
        before += in_it;
    }
    return rank > 0 ? (double)scale->upper[scale->n - 1] : 0;
}
