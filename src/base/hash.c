#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t hash_id(uint64_t seed, struct slice id)
{
    return XXH3_64bits_withSeed(id.data, id.len, seed);
}

uint32_t hash_seed_fingerprint(uint64_t seed)
{
    static const char what[] = "unseen: fingerprint of a folder's hash seed";
    return (uint32_t)(XXH3_64bits_withSeed(what, sizeof what - 1, seed) >> 32);
}

uint64_t hash_checksum(const void *bytes, size_t len)
{
    return XXH3_64bits(bytes, len);
}
