/* The month filter: a Bloom filter with one hash function over a large range, stored compressed.
 * (Michael Mitzenmacher, "Compressed Bloom Filters", IEEE/ACM ToN 2002: for a given error a filter that is
 * compressed for storage is smallest with a large, sparse range and few hash functions.)
 *
 * What is stored is the sorted positions of the set bits. An item's position in a range of m is
 * (h * m) >> 32, where h is the top 32 bits of its hash. A live filter has m = 2^32, so its positions are
 * the h themselves; only such a one can be cut to a smaller m, once: a second cut would move positions,
 * and that is a false negative.
 *
 * A blob is a list of parts, each with its own n and m: plays that reach a sealed month go into a second
 * part at 2^32. The error of a filter is the sum of n/m over its parts.
 *
 * Pure: no I/O, no globals. Decoders trust nothing.
 */
#ifndef UNSEEN_FILTER_FILTER_H
#define UNSEEN_FILTER_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define FILTER_LIVE_M (UINT64_C(1) << 32)

enum { FILTER_PARTS_MAX = 16 };

struct filter_part {
    uint32_t *positions; /* strictly ascending, each < m */
    uint32_t n;
    uint64_t m; /* 1 .. 2^32 */
};

struct filter {
    struct filter_part parts[FILTER_PARTS_MAX]; /* descending m is not promised */
    unsigned n_parts;
};

/* Where an item's bit is in a range of m. */
static inline uint32_t filter_position(uint64_t hash, uint64_t m)
{
    return (uint32_t)(((hash >> 32) * m) >> 32);
}

/* Decodes a blob; positions are allocated in the arena. Returns 0, ERR_NOMEM, or ERR_CORRUPT with what is
 * wrong and where. Every byte is validated: version, checksum, lengths, order, range, padding. Never reads
 * outside blob[0..len) and never allocates more than a small multiple of len. */
int filter_decode(const void *blob, size_t len, struct arena *arena, struct filter *out, struct err *err);

/* Like filter_decode(), but keeps no position: they are handed over as they are decoded, in runs of at most FILTER_RUN,
 * ascending, a part's runs one behind the other; `before` of the part's positions came in earlier runs, so 0 begins a
 * part. out gets each part's n and m, and positions = NULL. What was handed over means nothing when it fails. */
enum { FILTER_RUN = 1024 };
typedef void filter_see(void *arg, uint64_t m, uint32_t before, const uint32_t *positions, uint32_t n);
int filter_scan(const void *blob, size_t len, filter_see *see, void *arg, struct filter *out, struct err *err);

/* Appends the blob of f to out. Empty parts are left out. Returns 0 or ERR_NOMEM; or ERR_INVALID when
 * positions aren't strictly ascending below m (a bug of the caller). */
int filter_encode(const struct filter *f, struct buf *out);

/* Sorts positions and removes repeats; returns how many are left. (Radix sort with scratch of n entries
 * when n is large; scratch may be NULL: then it sorts in place.) */
uint32_t filter_sort(uint32_t *positions, uint32_t n, uint32_t *scratch);

/* Union of two ascending runs into out (room for na + nb, no overlap with either). Returns its length. */
uint32_t filter_union(const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb, uint32_t *out);

/* Adds ascending live positions (m = 2^32) to f: into its live part if it has one, else as a new part. New
 * arrays come from the arena. Returns 0, ERR_NOMEM, or ERR_FULL when there are FILTER_PARTS_MAX parts. */
int filter_add(struct filter *f, const uint32_t *positions, uint32_t n, struct arena *arena);

/* Cuts a live part to a smaller m, in place: p becomes (p * m) >> 32. Returns 0, or ERR_INVALID when the
 * part was cut before or m is not in 1 .. 2^32 - 1. */
int filter_cut(struct filter_part *part, uint64_t m);

/* Whether some part has the hash's position set; by binary search, for single questions. */
bool filter_has(const struct filter *f, uint64_t hash);

uint64_t filter_items(const struct filter *f); /* sum of n */
double filter_error(const struct filter *f);   /* sum of n/m, at most 1 */
bool filter_sealed(const struct filter *f);    /* some part has m < 2^32 */

#endif
