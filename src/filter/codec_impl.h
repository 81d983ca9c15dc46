/* What reading and writing a blob share. See codec.c for the layout. */
#ifndef UNSEEN_FILTER_CODEC_IMPL_H
#define UNSEEN_FILTER_CODEC_IMPL_H

#include <endian.h>
#include <string.h>

#include "base/hash.h"
#include "filter/filter.h"

enum {
    BLOB_VERSION = 1,
    BLOB_VERSION_COARSE = 2,
    BLOB_VERSION_FINE = 3,
    VERSION_SHIFT = 5,
    PARTS_MASK = 0x1f,
    LIVE_FLAG = 0x80,
    COARSE_FLAG = 0x40,
    FINE_FLAG = 0x20,
    K_MASK = 0x1f,
    K_MAX = 31,
    CHECKSUM_BYTES = 4,
    WORD = 8, /* bytes that are read or written at once */

    SHORT_FLAG = 0x80, /* of the first byte; no version of a framed blob has it */
    SHORT_RANGE_SHIFT = 4,
    SHORT_RANGE_MASK = 7,
    SHORT_N_MASK = 0x0f,
    SHORT_RANGE_BASE = 8,
    SHORT_CHECK_BYTES = 1,
    SHORT_LEAST = 1 + 1 + SHORT_CHECK_BYTES,
    SHORT_MOST = 1 + 48 + SHORT_CHECK_BYTES, /* 15 positions with k = 22, whose high parts are 32 together */
};

static inline uint64_t load_word(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return le64toh(word);
}

/* What lies behind end is read as zeros. */
static inline uint64_t load_guarded(const uint8_t *from, const uint8_t *end)
{
    if (end - from >= WORD) {
        return load_word(from);
    }
    uint8_t padded[WORD] = {0};
    memcpy(padded, from, (size_t)(end - from));
    return load_word(padded);
}

static inline void store_word(uint8_t *to, uint64_t word)
{
    word = htole64(word);
    memcpy(to, &word, sizeof word);
}

static inline uint32_t checksum(const uint8_t *bytes, size_t len)
{
    return (uint32_t)hash_checksum(bytes, len);
}

/* Of a part that was not cut. */
static inline uint64_t range_of(bool coarse)
{
    return coarse ? FILTER_LIVE_M >> FILTER_GRAIN : FILTER_LIVE_M;
}

/* What the head of a short blob says: n, m, and from both k, which is best for random positions, or within a twentieth
 * of a bit of it: log2(m / n) rounded down, less 1. */
static inline uint32_t short_n(uint8_t head)
{
    return head & SHORT_N_MASK;
}

static inline uint64_t short_m(uint8_t head)
{
    const unsigned range = head >> SHORT_RANGE_SHIFT & SHORT_RANGE_MASK;
    return range == 0 ? range_of(true) : (uint64_t)short_n(head) << (SHORT_RANGE_BASE + range);
}

static inline unsigned short_k(uint8_t head)
{
    const unsigned range = head >> SHORT_RANGE_SHIFT & SHORT_RANGE_MASK;
    const unsigned n_bits = short_n(head) > 1 ? 32 - (unsigned)__builtin_clz(short_n(head) - 1) : 0; /* rounded up */
    return (range == 0 ? 32 - FILTER_GRAIN - n_bits : SHORT_RANGE_BASE + range) - 1;
}

/* The first byte of the part's short blob; 0: it has none. */
uint8_t short_head(const struct filter_part *part);

/* The remainder of the bytes' polynomial x x^8, modulo x^8 + x^2 + x + 1; bit i of byte j is the coefficient of
 * x^(8j + i). With it, any odd number of flipped bits shows, and in up to 15 bytes any two; other damage with a chance
 * of 255/256. It reads whole words: up to the next multiple of 8 zeros must stand behind the bytes. */
uint8_t short_check(const uint8_t *bytes, size_t len);

#endif
