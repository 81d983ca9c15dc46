#include "base/hash.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t hash_id(uint64_t seed, struct slice id)
{
    return XXH3_64bits_withSeed(id.data, id.len, seed);
}

/* Hashes on as long as ids are of a length from least to most, and returns where it ended. What is known of a length
 * spares all that XXH3 does with others, and what depends on the seed alone is computed once; all of that just fits the
 * registers, and so each range has a function of its own. */
#define HASH_RUN(least, most)                                                                                          \
    __attribute__((flatten, noinline)) static const struct slice *hash_##least##_to_##most(                            \
        uint64_t seed, const struct slice *id, const struct slice *end, uint64_t *hash)                                \
    {                                                                                                                  \
        for (; id < end && id->len - (least) <= (most) - (least); id++) {                                              \
            *hash++ = XXH3_64bits_withSeed(id->data, id->len, seed);                                                   \
        }                                                                                                              \
        return id;                                                                                                     \
    }
HASH_RUN(4, 8)
HASH_RUN(9, 16)
HASH_RUN(17, 32)
HASH_RUN(33, 64)

size_t hash_ids(uint64_t seed, const struct slice *ids, size_t n, uint64_t *hashes)
{
    const struct slice *id = ids, *const end = n > 0 ? ids + n : ids; /* of none, NULL */
    while (id < end) {
        uint64_t *hash = hashes + (id - ids);
        if (id->len - 17 <= 32 - 17) {
            id = hash_17_to_32(seed, id, end, hash);
        } else if (id->len - 33 <= 64 - 33) { /* a UUID as text has 36 */
            id = hash_33_to_64(seed, id, end, hash);
        } else if (id->len - 9 <= 16 - 9) {
            id = hash_9_to_16(seed, id, end, hash);
        } else if (id->len - 4 <= 8 - 4) {
            id = hash_4_to_8(seed, id, end, hash);
        } else if (id->len - 1 < HASH_ID_MAX) {
            *hash = hash_id(seed, *id++);
        } else {
            break;
        }
    }
    return (size_t)(id - ids);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void hash_sort(uint64_t *hashes, size_t n)
{
    if (n > 1) {
        qsort(hashes, n, sizeof *hashes, by_value);
    }
}

size_t hash_distinct(uint64_t *hashes, size_t n)
{
    size_t left = 0;
    hash_sort(hashes, n);
    for (size_t i = 0; i < n; i++) {
        if (left == 0 || hashes[left - 1] != hashes[i]) {
            hashes[left++] = hashes[i];
        }
    }
    return left;
}

size_t hash_place(const uint64_t *sorted, size_t n, uint64_t hash)
{
    size_t from = 0;
    size_t to = n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (sorted[middle] < hash) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < n && sorted[from] == hash ? from : n;
}

bool hash_is_among(const uint64_t *sorted, size_t n, uint64_t hash)
{
    return hash_place(sorted, n, hash) < n;
}

uint64_t hash_chain(uint64_t before, struct slice id)
{
    return XXH3_64bits_withSeed(id.data, id.len, before);
}

uint32_t hash_seed_fingerprint(uint64_t seed)
{
    static const char what[] = "unseen: fingerprint of a folder's hash seed";
    return (uint32_t)(XXH3_64bits_withSeed(what, sizeof what - 1, seed) >> 32);
}

bool hash_fingerprint_read(struct slice text, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < text.len && text.len == 8; i++) {
        const char c = text.data[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) {
            return false;
        }
        *out = *out << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return text.len == 8;
}

uint64_t hash_checksum(const void *bytes, size_t len)
{
    return XXH3_64bits(bytes, len);
}
