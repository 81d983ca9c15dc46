/* The month filter: a Bloom filter with one hash function over a large range, stored compressed.
 * (Michael Mitzenmacher, "Compressed Bloom Filters", IEEE/ACM ToN 2002: for a given error a filter that is
 * compressed for storage is smallest with a large, sparse range and few hash functions.)
 *
 * What is stored is the sorted positions of the set bits. An item's position in a range of m is
 * (h * m) >> 32, where h is the top 32 bits of its hash. A live filter has m = 2^32, so its positions are
 * the h themselves; only such a one can be cut to a smaller m, once: a second cut would move positions,
 * and that is a false negative.
 *
 * A coarse filter doesn't look at the lowest FILTER_GRAIN bits of h: live, it has m = 2^27 and takes five bits less
 * a position, on disk and in every flush. When it is cut, its new range is computed from the 27 bits, so the part stays
 * coarse. Its error is 32 times that of a live filter of the same size, so a user's month begins coarse, and what goes
 * beyond a number of positions that depends on the error wanted goes into a second part at 2^32.
 *
 * A fine filter has a byte more of each item's hash beside its position at 2^32, the tail, and a 254th of the error.
 * What goes beyond a number of positions at 2^32 goes there, so that even a giant's month takes no more of the error
 * than was kept back for it. Cut, it has no tails any more.
 *
 * A blob is a list of parts, each with its own n and m: plays that reach a sealed month go into a further
 * part at 2^32. The error of a filter is the sum over its parts of n times the chance
 * of a position, which is 1/m, or a little more for a part that was cut to not much less, or much less for a fine one.
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

enum {
    FILTER_PARTS_MAX = 16,
    FILTER_GRAIN = 5,
    FILTER_FEW = 15,      /* positions of a coarse part that alone takes the short form of blob */
    FILTER_ANY_N = 65536, /* positions in any pattern, as a session's ids; those of a larger part are noise */
    FILTER_RATIO_MIN = 8, /* of m to n in a larger part that is not fine; what is sealed has 20 */
};

struct filter_part {
    uint32_t *positions; /* strictly ascending, each < m */
    uint32_t n;
    uint64_t m; /* 1 .. 2^32; 2^27 at most when coarse; 2^32 when fine */
    bool coarse, fine;
    uint8_t *tails;  /* of a fine part: of each position; 0 matches any item, when two with one position differ */
    uint32_t n_open; /* how many of them are 0 */
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

/* An item's tail, 1 to 255. */
static inline uint8_t filter_tail(uint64_t hash)
{
    uint8_t tail = (uint8_t)(hash >> 24);
    return (uint8_t)(tail + (tail == 0));
}

/* The lowest bits of an item's h that count in the part, and all above them. */
static inline uint64_t filter_part_mask(const struct filter_part *part)
{
    return part->coarse ? UINT64_MAX << (32 + FILTER_GRAIN) : UINT64_MAX << 32;
}

static inline uint32_t filter_part_position(const struct filter_part *part, uint64_t hash)
{
    return filter_position(hash & filter_part_mask(part), part->m);
}

/* Whether an item with the part's i-th position matches its tail. Without tails all do. */
static inline bool filter_part_fits(const uint8_t *tails, uint32_t i, uint64_t hash)
{
    return tails == NULL || tails[i] == 0 || tails[i] == filter_tail(hash);
}

/* Not cut yet. */
static inline bool filter_part_live(const struct filter_part *part)
{
    return part->m == (part->coarse ? FILTER_LIVE_M >> FILTER_GRAIN : FILTER_LIVE_M);
}

/* Larger and denser than a flush, a seal or a join makes one. Such a part is refused: it would be of little use, and a
 * blob of such parts would take many times its bytes in memory. */
static inline bool filter_part_dense(const struct filter_part *part)
{
    return part->n > FILTER_ANY_N && !part->fine && part->m / part->n < FILTER_RATIO_MIN;
}

/* Decodes a blob; positions are allocated in the arena. Returns 0, ERR_NOMEM, or ERR_CORRUPT with what is
 * wrong and where. Every byte is validated: version, checksum, lengths, order, range, padding. Never reads
 * outside blob[0..len), and takes at most eight times len from the arena, beside the arena's blocks and
 * 256 KiB a part: a large part whose positions can't be noise (docs/format.md) is refused. */
int filter_decode(const void *blob, size_t len, struct arena *arena, struct filter *out, struct err *err);

/* Like filter_decode(), but keeps no positions: it hands them over as they are decoded, in ascending runs of at most
 * FILTER_RUN, part by part. `before` is how many positions of the part came in earlier runs, so 0 begins a part. A fine
 * part's tails are all available meanwhile. out gets each part's n and m, but no positions or tails. If it fails, what
 * was handed over is void. */
enum { FILTER_RUN = 1024 };
typedef void filter_see(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                        uint32_t n);
int filter_scan(const void *blob, size_t len, filter_see *see, void *arg, struct filter *out, struct err *err);

/* Reads a blob as these do, but keeps only its n and m; tells whether it is sound. */
int filter_weigh(const void *blob, size_t len, struct filter *out, struct err *err);

/* The least range from m on that a short blob of n coarse positions can have, or m when there is none. A position takes
 * up to a bit more in it, and the blob seven bytes less. */
uint64_t filter_short_range(uint32_t n, uint64_t m);

/* Appends the blob of f to out. Empty parts are left out. Returns 0 or ERR_NOMEM; or ERR_INVALID when
 * positions aren't strictly ascending below m (a bug of the caller). */
int filter_encode(const struct filter *f, struct buf *out);

/* Sorts positions and removes repeats; returns how many are left. (Radix sort with scratch of n entries
 * when n is large; scratch may be NULL: then it sorts in place.) */
uint32_t filter_sort(uint32_t *positions, uint32_t n, uint32_t *scratch);

/* Union of two ascending runs into out (room for na + nb, no overlap with either). Returns its length. */
uint32_t filter_union(const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb, uint32_t *out);

/* Adds items by their ascending positions at 2^32; those that a part holds already are left out, also of what the
 * array holds. They go into the live part at 2^32, or all of them into the coarse one where it then has at most
 * coarse_max positions; either is begun when there is none, a coarse one only in a filter that is empty. A sealed
 * filter takes no more into a coarse part. New arrays come from the arena. Returns 0, ERR_NOMEM, or ERR_FULL when there
 * are FILTER_PARTS_MAX parts, or one would be dense. */
int filter_add(struct filter *f, uint32_t *positions, uint32_t n, uint32_t coarse_max, struct arena *arena);

/* The same with a tail for each position: all of them go into the fine part when the live one at 2^32 would have more
 * than live_max positions. */
int filter_add_tails(struct filter *f, uint32_t *positions, uint8_t *tails, uint32_t n, uint32_t coarse_max,
                     uint32_t live_max, struct arena *arena);

/* Makes the tails of ascending positions at 2^32, which are those of the items: for each item once with again = false,
 * then for each once more with again = true. */
void filter_set_tail(const uint32_t *positions, uint8_t *tails, uint32_t n, uint64_t hash, bool again);

/* Merges another filter of the same user and month, from another store with the same seed, into f: afterwards f has
 * what either had. An empty f becomes a copy. Otherwise a cut or coarse part is merged into the part of the same range
 * or added beside the others, and live positions are added as by filter_add(). f takes over arrays of other. A second
 * merge of the same filter changes nothing. Returns 0, ERR_NOMEM, or ERR_FULL when more than FILTER_PARTS_MAX parts
 * would be needed, or one would be dense (f is of no use then). */
int filter_join(struct filter *f, const struct filter *other, uint32_t coarse_max, struct arena *arena);

/* Makes one part at 2^32 of a live and a fine one, without tails. Returns 0 or ERR_NOMEM. */
int filter_drop_tails(struct filter *f, struct arena *arena);

/* Makes one coarse part of a filter whose parts are all live, one of them coarse. Returns 0, ERR_NOMEM, or ERR_INVALID
 * when it is not such a filter. */
int filter_unite(struct filter *f, struct arena *arena);

/* Cuts a live part to a smaller m, in place: p becomes (p * m) >> 32 (of a coarse part, >> 27). Returns 0, or
 * ERR_INVALID when the part was cut before or m is not below its range. */
int filter_cut(struct filter_part *part, uint64_t m);

/* Whether the part, or some part, has the hash's position set, with a tail that fits; by binary search, for single
 * questions. */
bool filter_part_has(const struct filter_part *part, uint64_t hash);
bool filter_has(const struct filter *f, uint64_t hash);

/* Sum of n; a tail that matches any item counts as two. It rises with every addition. */
uint64_t filter_items(const struct filter *f);
/* The chance, over its parts, that an item which was never added is found: at most 1. */
double filter_error(const struct filter *f);

/* What one position of a part that is not fine adds to that: 1/m, or a little more when m is not far below 2^32 (or, of
 * a coarse part, 2^27). */
double filter_chance(uint64_t m, bool coarse);
bool filter_sealed(const struct filter *f); /* some part was cut */

#endif
